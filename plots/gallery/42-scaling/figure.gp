# Tokens per second and GPU against GPUs, a panel per family of schedules. Needs root (plots), data,
# families (which schedule is in which panel), fidelity, out, ext.
width = 1200
height = 760
load root . '/style.gp'
load root . '/gallery/lib/lines.gp'
set datafile separator ','
across(x) = x / real(width)
down(y) = 1 - y / real(height)
families_of = sprintf("awk -F, 'NR > 1 && !seen[$1]++ { gsub(/ /, \"_\", $1); print $1 }' '%s'", families)
panels = system(families_of)
title_of(panel) = system(sprintf("echo '%s' | tr _ ' '", panel))
schedules_of(panel) = system(sprintf("awk -F, -v p='%s' -v f=%s 'NR == FNR { if ($1 == f) known[$2]; next } " . \
    "$1 == p && $2 in known { print $2 }' '%s' '%s'", title_of(panel), fidelity, data, families))
set output out . '.' . ext
set multiplot
set border 3
set xrange [0.9 : 18]
set logscale x 2
set xtics (1, 2, 4, 8, 16) nomirror out scale 0.5 font font_text
set ytics nomirror out scale 0.5 font font_text
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
stats data using (stringcolumn(1) eq fidelity ? $6 / $3 : NaN) skip 1 nooutput
set yrange [0 : STATS_max * 1.08]
set label 10 sprintf('Tokens per second and GPU, llama3.1-8b, 128 sequences per step, %s', \
    fidelity eq 'stage' ? 'RTX 4090 layer times and hops alone (stage fidelity)' : \
    'servers with up to 16 RTX 4090 (hardware fidelity)') \
    at screen across(20), screen down(18) left font font_title
set label 11 (fidelity eq 'stage' ? 'level: each GPU adds as much' : \
    'level: each GPU adds as much; filled: fits into memory, empty: does not') \
    at screen across(20), screen down(38) left font font_text
do for [i = 1 : words(panels)] {
    names = schedules_of(word(panels, i))
    column = (i - 1) % 2
    line = (i - 1) / 2
    from = 20 + column * 600
    top = 86 + line * 340
    set lmargin at screen across(from + 44)
    set rmargin at screen across(from + 400)
    set tmargin at screen down(top)
    set bmargin at screen down(top + 262)
    set label 12 title_of(word(panels, i)) at screen across(from + 44), screen down(top - 14) left \
        font font_title
    set xlabel 'GPUs' font font_text offset 0, 0.3
    set key at screen across(from + 412), screen down(top + 4) left top vertical maxcols 1 reverse Left \
        samplen 1.6 spacing 1.25 font font_text textcolor rgb ink noenhanced
    of(k) = stringcolumn(1) eq fidelity && stringcolumn(2) eq word(names, k)
    everything_fits = fidelity eq 'stage'
    plot for [k = 1 : words(names)] data using (of(k) ? $3 : NaN):($6 / $3) skip 1 \
            with lines linewidth 1.6 linecolor rgb line_colour(k) notitle, \
        for [k = 1 : words(names)] data \
            using (of(k) && (everything_fits || $7 > 0) ? $3 : NaN):($6 / $3) skip 1 with points \
            pointtype solid_point(k) pointsize 1.3 * mark linecolor rgb line_colour(k) notitle, \
        for [k = 1 : words(names)] data \
            using (of(k) && !(everything_fits || $7 > 0) ? $3 : NaN):($6 / $3) skip 1 with points \
            pointtype solid_point(k) pointsize 1.3 * mark linecolor rgb 'white' notitle, \
        for [k = 1 : words(names)] data \
            using (of(k) && !(everything_fits || $7 > 0) ? $3 : NaN):($6 / $3) skip 1 with points \
            pointtype empty_point(k) pointsize 1.3 * mark linewidth 1.4 linecolor rgb line_colour(k) \
            notitle, \
        for [k = 1 : words(names)] NaN with linespoints linewidth 1.6 \
            pointtype solid_point(k) pointsize 1.3 * mark linecolor rgb line_colour(k) \
            title word(names, k)
    unset label 10
    unset label 11
}
unset multiplot
unset output
