# Training loss per step, and a running mean: what rpexec --loss-out wrote. By hand:
#   gnuplot -e "root='plots'; data='loss.csv'; out='loss'; ext='png'" plots/loss.gp
width = 800
height = 440
load root . '/style.gp'

set datafile separator ','
stats data using 1:2 skip 1 nooutput name 'loss'
if (loss_records < 1) {
    exit error 'no steps in ' . data
}
set output out . '.' . ext
set lmargin at screen 62.0 / width
set rmargin at screen 1 - 16.0 / width
set tmargin at screen 1 - 48.0 / height
set bmargin at screen 56.0 / height
set border 3
set label 1 'Training loss' at screen 62.0 / width, screen 1 - 20.0 / height left font font_title \
    noenhanced
set key at screen 1 - 16.0 / width, screen 1 - 20.0 / height right center horizontal maxrows 1 \
    reverse Left samplen 1.6 width 1 font font_text
# One step alone has no range of its own.
set xrange [loss_min_x - 0.5 : loss_max_x + 0.5]
set yrange [* : *]
set xtics nomirror out scale 0.5 font font_text
set ytics nomirror out scale 0.5 font font_text
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
set xlabel 'optimizer step' font font_text
set ylabel 'cross-entropy per token (nats)' font font_text offset 1, 0

# An exponential mean over about a fortieth of the steps, begun with the first loss.
weight = 1.0 / (1 + loss_records / 40.0)
mean = NaN
running(value) = (mean = (mean == mean ? mean + weight * (value - mean) : value), mean)

plot data using 1:2 skip 1 with lines linecolor rgb '#7fb8e6' linewidth 1 title 'each step', \
    data using 1:(running($2)) skip 1 with lines linecolor rgb '#5b2a86' linewidth 2 \
        title 'running mean'
unset output
