# On the roof the layers of different models hide each other: below it each model has a row of its own.
# Rooflines of four servers over the host link, with the models' layers. Needs root (plots), data, out, ext.
set datafile separator ','
width = 1100
height = 806
load root . '/style.gp'
load root . '/gallery/lib/lines.gp'
across(x) = x / real(width)
down(y) = 1 - y / real(height)
list(column) = system(sprintf("tail -n +2 '%s' | cut -d, -f%d | awk '!seen[$0]++'", data, column))
servers = list(1)
models = list(2)
set output out . '.' . ext
set multiplot
set border 3
set logscale xy 10
set xrange [120 : 130000]
set yrange [0.17 : 2000]
set xtics nomirror out scale 0.5 font font_text
set ytics (1, 10, 100, 1000) nomirror out scale 0.5 font font_text
set grid xtics ytics linecolor rgb faint linewidth 0.6 linetype 1
set samples 300
row(m) = 0.25 * 1.75 ** (m - 1)
do for [p = 1 : words(servers)] {
    server = word(servers, p)
    is(x) = stringcolumn(1) eq server
    set autoscale
    stats data using (is(0) ? $7 : NaN):(is(0) ? $8 : NaN) skip 1 nooutput
    peak = STATS_max_x
    link = STATS_max_y
    set xrange [120 : 130000]
    set yrange [0.17 : 2000]
    from = 80 + ((p - 1) % 2) * 530
    line = 96 + ((p - 1) / 2) * 352
    set lmargin at screen across(from)
    set rmargin at screen across(from + 470)
    set tmargin at screen down(line)
    set bmargin at screen down(line + 290)
    set label 1 sprintf('%s: %g TFLOP/s, %g GB/s per GPU', server, peak, link) at graph 0, 1 \
        offset 0.3, 0.8 left font font_title noenhanced
    set label 2 sprintf('%.0f FLOP/byte', 1000 * peak / link) at 1000 * peak / link, peak offset 0, 0.8 center \
        font font_small
    if (p == 1) {
        set label 3 'A layer''s forward pass whose weights and output cross the host link' \
            at screen across(20), screen down(18) left font font_title
    }
    set xlabel (p > 2 ? 'FLOP per byte over the link   (numbers: sequences of the batch)' : '') \
        font font_text
    set ylabel (p % 2 ? 'attainable TFLOP/s' : '') font font_text offset 1, 0
    if (p == 1) {
        set key at screen across(20), screen down(48) left center horizontal maxrows 1 reverse Left \
            samplen 1.4 width 1 font font_text textcolor rgb ink noenhanced
    } else {
        unset key
    }
    plot (x * link / 1000 < peak ? x * link / 1000 : peak) with lines linewidth 1.6 linecolor rgb ink notitle, \
        for [m = 1 : words(models)] data using (is(0) && stringcolumn(2) eq word(models, m) ? $6 : NaN):9 skip 1 \
            with points pointtype empty_point(m) pointsize 1.6 * mark linewidth 1.6 linecolor rgb line_colour(m) \
            title word(models, m), \
        for [m = 1 : words(models)] data using (is(0) && stringcolumn(2) eq word(models, m) ? $6 : NaN):(row(m)) \
            skip 1 with linespoints pointtype empty_point(m) pointsize 1.1 * mark linewidth 1.2 pointinterval 1 \
            linecolor rgb line_colour(m) notitle, \
        for [m = 1 : words(models)] data using (is(0) && stringcolumn(2) eq word(models, m) ? $6 * ($3 == 256 ? 1.16 : 1.06) : NaN) \
            :(row(m) * ($3 == 256 ? 1 : 1.22)):(sprintf('%d', $3)) skip 1 with labels left font font_small textcolor rgb ink notitle
    unset label 3
}
unset multiplot
unset output
