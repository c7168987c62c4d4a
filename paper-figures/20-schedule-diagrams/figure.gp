# Schedules as boxes over time, one panel per schedule, one row per GPU. Needs root (plots), data (the
# boxes), summary (one row per schedule), picture (which of the summary's), out, ext.
set datafile separator ','
column_of(n) = system(sprintf("awk -F, -v n=%d '$1 == \"%s\" { gsub(/ /, \"_\"); print $n == \"\" ? \"-\" : $n }' '%s'", \
    n, picture, summary))
schedules = column_of(2)
panels = words(schedules)
gpus = real(word(column_of(3), 1))
makespans = column_of(7)
forms = column_of(8)
idle = column_of(11)
# RoundPipe's stages move from GPU to GPU: their numbers stand above their boxes.
rounds = word(schedules, 1)[1 : 5] eq 'round'
row_px = rounds ? 40 : 24
low = rounds ? 0.47 : 0.42
high = rounds ? 0.16 : 0.42
left = 58
right = 14
top = 44
panel_px = 30 + gpus * row_px + 8
width = 1200
height = top + panels * panel_px + 44
load root . '/style.gp'
across(x) = x / real(width)
down(y) = 1 - y / real(height)
span = 0
do for [m in makespans] { span = real(m) > span ? real(m) : span }

set output out . '.' . ext
set multiplot
set lmargin at screen across(left)
set rmargin at screen across(width - right)
set tmargin at screen down(2)
set bmargin at screen down(30)
unset border
unset tics
set xrange [0:1]
set yrange [0:1]
set key at screen across(left), screen down(18) left center horizontal maxrows 1 reverse Left \
    samplen 1.6 width 1 font font_text textcolor rgb ink noenhanced
plot NaN with boxes fillstyle solid border linecolor rgb '#777777' fillcolor rgb '#7fb8e6' \
        title 'forward', \
    NaN with boxes fillstyle solid border linecolor rgb '#777777' fillcolor rgb '#f3d56b' \
        title 'recompute', \
    NaN with boxes fillstyle solid border linecolor rgb '#777777' fillcolor rgb '#b5452c' \
        title 'backward', \
    NaN with boxes fillstyle solid border linecolor rgb '#777777' fillcolor rgb '#5b2a86' \
        title 'weight gradient, where apart', \
    NaN with lines linecolor rgb ink linewidth 3 \
        title (rounds ? 'a stage begins' : 'second stage of its GPU')
unset key

set border 3 linecolor rgb ink linewidth 0.8
set xrange [0 : span * 1.002]
set ytics nomirror out scale 0 font font_text
set xtics nomirror out scale 0.5 font font_text
kinds = 'F R B I W'
colours = '#7fb8e6 #f3d56b #b5452c #b5452c #5b2a86'
texts = 'black black white white white'
is(k) = stringcolumn(1) eq schedule && stringcolumn(3) eq word(kinds, k)
second(x) = stringcolumn(1) eq schedule && !rounds && $4 >= gpus
begins(stage, gpu) = (old = before, before = stage + 1000 * gpu, old != before)
begun(x) = stringcolumn(1) eq schedule && rounds ? begins($4, $2) : 0
do for [p = 1 : panels] {
    schedule = word(schedules, p)
    underscore = strstrt(schedule, '_')
    if (underscore) {
        schedule = schedule[1 : underscore - 1] . ' ' . schedule[underscore + 1 : *]
    }
    from = top + (p - 1) * panel_px + 30
    set tmargin at screen down(from)
    set bmargin at screen down(from + gpus * row_px)
    set yrange [-gpus + 0.5 : 0.5]
    set ytics ()
    do for [g = 0 : gpus - 1] { set ytics add (sprintf('GPU %d', g) -g) }
    set format x (p == panels ? '%g' : '')
    set xlabel (p == panels ? 'time' : '') font font_text offset 0, 0.5
    set label 1 schedule at screen across(left), screen down(from - 13) left font font_title noenhanced
    set label 2 sprintf('makespan %s%s, idle %.1f %%', word(makespans, p), \
        word(forms, p) eq '-' ? '' : ' = ' . word(forms, p), real(word(idle, p))) \
        at screen across(width - right), screen down(from - 13) right font font_text noenhanced
    before = -1
    plot for [k = 1 : words(kinds)] data \
            using (is(k) ? ($7 + $8) / 2 : NaN):(-$2):7:8:(-$2 - low):(-$2 + high) \
            with boxxyerror fillstyle solid border linecolor rgb 'white' linewidth 0.7 \
            fillcolor rgb word(colours, k) notitle, \
        data using (second(0) ? $7 : NaN):(-$2 - low):($8 - $7):(0) with vectors nohead \
            linecolor rgb ink linewidth 3 notitle, \
        data using (begun(0) ? $7 : NaN):(-$2 - low):(0):(low + 0.5) with vectors nohead \
            linecolor rgb ink linewidth 2 notitle, \
        data using (begun(0) ? $7 : NaN):(-$2 + 0.34):(sprintf(' stage %d', $4)) with labels left \
            font font_small textcolor rgb ink notitle, \
        for [k = 1 : words(kinds)] data \
            using (is(k) ? ($7 + $8) / 2 : NaN):(-$2 + (high - low) / 2):(sprintf('%d', $5)) \
            with labels font font_small textcolor rgb word(texts, k) notitle
}
unset multiplot
unset output
