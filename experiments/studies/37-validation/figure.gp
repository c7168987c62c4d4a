# Prediction errors by schedule, one series per size and number of GPUs. Needs root (plots), data,
# out, ext.
set datafile separator ','
width = 900
height = 420
load root . '/style.gp'
across(x) = x / real(width)
down(y) = 1 - y / real(height)
set output out . '.' . ext
set border 3
set xtics nomirror out scale 0.5 font font_text noenhanced
set ytics nomirror out scale 0.5 font font_text
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
set lmargin at screen across(66)
set rmargin at screen across(880)
set tmargin at screen down(86)
set bmargin at screen down(height - 44)
stats data using 13 skip 1 nooutput name 'E'
limit = 5 * ceil((abs(E_min) > abs(E_max) ? abs(E_min) : abs(E_max)) / 5 + 0.2)
limit = limit < 15 ? 15 : limit
set yrange [-limit : limit]
set ylabel 'predicted / measured - 1 (%)' font font_text
set label 1 'rpexec on the host backend: iteration times predicted with the costs of another run' \
    at screen across(20), screen down(18) left font font_title
set label 2 'shaded: within 10 %; lines: how far the runs of a configuration were apart' \
    at screen across(20), screen down(38) left font font_text
set key at screen across(20), screen down(62) left center horizontal maxrows 1 reverse Left samplen 1.4 width 1 \
    font font_text textcolor rgb ink
schedules = 'gpipe 1f1b interleaved-1f1b looped-bfs zb-h1 roundpipe mobius fsdp'
place(s) = sum [i = 1 : words(schedules)] (s eq word(schedules, i) ? i : 0)
array tokens[4] = [128, 128, 512, 512]
array gpus[4] = [2, 4, 2, 4]
array colour[4] = ['#0072b2', '#0072b2', '#d55e00', '#d55e00']
array shape[4] = [7, 6, 5, 4]
set xrange [0.5 : words(schedules) + 0.5]
set for [i = 1 : words(schedules)] xtics (word(schedules, i) i)
is(k) = column(5) == tokens[k] && column(6) == gpus[k]
x(k) = place(stringcolumn(8)) + 0.16 * (k - 2.5)
set samples 2
plot '+' using 1:(-10):(10) with filledcurves fillstyle solid noborder linecolor rgb '#e4eef6' notitle, \
    0 with lines linewidth 1 linecolor rgb ink notitle, \
    for [k = 1 : 4] data using (is(k) ? x(k) : NaN):13:($12 / 2) skip 1 with yerrorbars pointtype shape[k] \
        pointsize 1.3 * mark linewidth 1.4 linecolor rgb colour[k] notitle, \
    for [k = 1 : 4] NaN with points pointtype shape[k] pointsize 1.3 * mark linecolor rgb colour[k] \
        title sprintf('%d tokens, %d GPUs', tokens[k], gpus[k])
unset output
