# Share of each schedule's own limit against microbatches per GPU, 8 GPUs, published partitions: one
# panel per model. Needs root (plots), curves (make.sh's table), out, ext.
width = 1280
height = 420
load root . '/style.gp'

set datafile separator ','
set output out . '.' . ext
set multiplot
set tmargin at screen 1 - 90.0 / height
set bmargin at screen 56.0 / height
set label 1 'Throughput in % of each schedule''s own limit   (8 GPUs, published partitions, stage ' \
    . 'fidelity)' at screen 20.0 / width, screen 1 - 20.0 / height left \
    font font_title noenhanced
array models = ['qwen3-1.7b', 'llama3.1-8b', 'gpt-oss-20b', 'qwen3-32b', 'qwen3-235b']
array names = ['gpipe', '1f1b', 'interleaved-1f1b', 'looped-bfs', 'roundpipe']
array colors = ['#8a8a8a', '#e69f00', '#56b4e9', '#009e73', '#5b2a86']
array shapes = [4, 8, 6, 10, 7]
shown(mode, name) = strcol(1) eq '8' && strcol(2) eq 'paper' && strcol(3) eq mode \
    && strcol(4) eq models[m] && strcol(5) eq name ? column(6) : NaN
# What is missing to the limit, not less than the axis shows.
missing(share) = 100 - share > 0.3 ? 100 - share : 0.3
# The key over all panels: a plot of nothing.
set lmargin at screen 20.0 / width
set rmargin at screen 1 - 20.0 / width
set key at screen 20.0 / width, screen 1 - 46.0 / height left center horizontal maxrows 1 \
    Left reverse samplen 2.4 width 1 font font_text
set border 0
unset tics
unset grid
set xrange [0 : 1]
set yrange [0 : 1]
plot for [s = 1 : 5] NaN with linespoints linecolor rgb colors[s] linewidth (s == 5 ? 2 : 1.2) \
        pointtype shapes[s] pointsize 0.6 * mark title names[s] noenhanced, \
    NaN with lines linecolor rgb colors[5] linewidth 2 dashtype 2 title 'roundpipe, asynchronous'
unset key
unset label 1
set border 3
set logscale x 2
set xrange [0.9 : 140]
set logscale y
set yrange [60 : 0.28]
set xtics (1, 2, 4, 8, 16, 32, 64, 128) nomirror out scale 0.5 font font_small
set ytics ('50' 50, '80' 20, '90' 10, '95' 5, '98' 2, '99' 1, '99.5' 0.5) nomirror out scale 0.5 \
    font font_text
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
do for [m = 1 : 5] {
    set lmargin at screen (66.0 + (m - 1) * 243) / width
    set rmargin at screen (66.0 + (m - 1) * 243 + 224) / width
    set title models[m] font font_text offset 0, -0.6 noenhanced
    if (m == 1) {
        set ylabel '% of the limit' font font_text offset 1.4, 0
    } else {
        unset ylabel
        set ytics ('' 50, '' 20, '' 10, '' 5, '' 2, '' 1, '' 0.5)
    }
    set xlabel (m == 3 ? 'microbatches per GPU and iteration' : '') font font_text offset 0, 0.4
    plot for [s = 1 : 5] curves using (shown('sync', names[s])):(missing($8)) skip 1 with linespoints \
            linecolor rgb colors[s] linewidth (s == 5 ? 2 : 1.2) pointtype shapes[s] \
            pointsize 0.6 * mark, \
        curves using (shown('async', 'roundpipe')):(missing($8)) skip 1 with lines linecolor rgb colors[5] \
            linewidth 2 dashtype 2
}
unset multiplot
unset output
