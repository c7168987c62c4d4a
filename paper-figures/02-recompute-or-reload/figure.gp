# Time to compute a layer's activations again against time to load them: bars from the formulas,
# marks from measured rates. Needs root (plots), data (the CSV file), out, ext (make.sh).
width = 900
height = 480
load root . '/style.gp'

set datafile separator ','
set output out . '.' . ext
# Four rows per model, in the order of points.awk.
stats data using 6 skip 1 nooutput
models = STATS_records / 4
top = STATS_max
set lmargin at screen 62.0 / width
set rmargin at screen 1 - 16.0 / width
set tmargin at screen 1 - 88.0 / height
set bmargin at screen 44.0 / height
set border 3
set label 1 'Time per layer: activations computed again, or loaded from host memory' \
    at screen 62.0 / width, screen 1 - 20.0 / height left font font_title noenhanced
set key at screen 62.0 / width, screen 1 - 54.0 / height left center vertical maxrows 2 \
    reverse Left samplen 1.6 width 2 font font_text
set xrange [-0.6 : models - 0.4]
set yrange [0 : top * 1.05]
set xtics scale 0 font font_text noenhanced
set ytics nomirror out scale 0.5 font font_text
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
set ylabel 'time (ms)' font font_text offset 1, 0
half = 0.17

plot data using ($0 - 0.19):6:(2 * half) skip 1 every 4::0 with boxes fillstyle solid noborder \
        fillcolor rgb '#5b2a86' title 'recompute, at peak FLOP/s', \
    data using ($0 + 0.19):6:(2 * half) skip 1 every 4::1 with boxes fillstyle solid noborder \
        fillcolor rgb '#7fb8e6' title 'reload, at the link''s nominal rate', \
    data using ($0 - 0.19):5 skip 1 every 4::2 with points pointtype 12 pointsize 1.4 * mark linewidth 1.5 \
        linecolor rgb ink title 'forward as measured (published)', \
    data using ($0 + 0.19):6 skip 1 every 4::3 with points pointtype 6 pointsize 1.3 * mark linewidth 1.5 \
        linecolor rgb ink title 'reload, at the link''s measured rate', \
    data using ($0 - 0.19):6:(sprintf('%.1f', $6)) skip 1 every 4::0 with labels font font_small \
        offset 0, 0.42 notitle, \
    data using ($0 + 0.19):6:(sprintf('%.1f', $6)) skip 1 every 4::1 with labels font font_small \
        offset 0, 0.42 notitle, \
    data using ($0):(0):xtic(2) skip 1 every 4::0 with points pointtype 0 linecolor rgb 'white' notitle
unset output
