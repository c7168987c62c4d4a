# Left and middle: tokens per second of llama3.1-8b on 8 GPUs against the tokens of a step. Right: from
# how many tokens on asynchronous RoundPipe is within 5 % of the best resident system. Needs root (plots),
# data, cross, host (tokens/s that the host allows per token of a step), out, ext.
width = 1280
height = 560
load root . '/style.gp'

set datafile separator ','
set output out . '.' . ext
systems = 'roundpipe roundpipe-sync mobius zero-infinity interleaved-1f1b fsdp'
titles = '"roundpipe, asynchronous" "roundpipe, synchronous" mobius zero-infinity "interleaved-1f1b (resident)" "fsdp (resident)"'
array colour[6] = ['#0072b2', '#56b4e9', '#009e73', '#cc79a7', '#e69f00', '#d55e00']
array dash[6] = [1, 1, 1, 1, 4, 4]
array full[6] = [7, 5, 9, 11, 13, 5]
array hollow[6] = [6, 4, 8, 10, 12, 4]
set border 3
set tics nomirror out scale 0.5 font font_text
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
set logscale xy
allowed = host + 0

set multiplot
set tmargin at screen 1 - 122.0 / height
set bmargin at screen 62.0 / height
# The key is a plot of its own, as wide as two panels.
set lmargin at screen 66.0 / width
set rmargin at screen 806.0 / width
set label 2 'Tokens per second against the tokens of a step: full marks fit, hollow ones do not' \
    at screen 62.0 / width, screen 1 - 18.0 / height left font font_title noenhanced
set key at screen 62.0 / width, screen 1 - 54.0 / height left center horizontal maxrows 3 \
    reverse Left samplen 2 width -4 font font_small
unset border
unset tics
set xrange [1 : 2]
set yrange [1 : 2]
plot NaN with lines linecolor rgb ink dashtype 2 linewidth 1 title 'allowed by the host', \
    for [s = 1 : 6] NaN with linespoints linecolor rgb colour[s] linewidth 1.4 dashtype dash[s] \
        pointtype full[s] pointsize 1.1 * mark title word(titles, s) noenhanced
unset key
unset label 2
set border 3
set tics nomirror out scale 0.5 font font_text
set xrange [26 : 640]
set xtics nomirror out scale 0.5 ('33k' 32.768, '66k' 65.536, '131k' 131.072, '262k' 262.144, '524k' 524.288)
set xlabel 'tokens per step' font font_text offset 0, 0.3
of(platform, which) = strcol(1) eq platform && strcol(2) eq 'llama3.1-8b' && $3 == 8 && strcol(4) eq which
do for [p = 1 : 2] {
    platform = word('rtx4090x8 h100x8', p)
    set lmargin at screen (p == 1 ? 80.0 : 482.0) / width
    set rmargin at screen (p == 1 ? 404.0 : 806.0) / width
    set label 1 (p == 1 ? 'llama3.1-8b on 8 x RTX 4090' : 'on 8 x H100') at graph 0, 1.05 left font font_title noenhanced
    if (p == 1) {
        set yrange [300 : 40000]
        set ytics nomirror out scale 0.5 ('300' 300, '1000' 1000, '3000' 3000, '10 000' 10000, '30 000' 30000)
        set ylabel 'tokens/s' font font_text offset 1.5, 0
    } else {
        unset ylabel
        set yrange [3000 : 130000]
        set ytics nomirror out scale 0.5 ('3000' 3000, '10 000' 10000, '30 000' 30000, '100 000' 100000)
    }
    plot allowed * x * 1000 with lines linecolor rgb ink dashtype 2 linewidth 1 notitle, \
        for [s = 1 : 6] data using (of(platform, word(systems, s)) ? $7 / 1000 : NaN):8 skip 1 with lines \
            linecolor rgb colour[s] linewidth 1.4 dashtype dash[s] notitle, \
        for [s = 1 : 6] data using (of(platform, word(systems, s)) && $9 == 0 ? $7 / 1000 : NaN):8 skip 1 with points \
            linecolor rgb colour[s] pointtype hollow[s] pointsize 1.1 * mark notitle, \
        for [s = 1 : 6] data using (of(platform, word(systems, s)) && $9 == 1 ? $7 / 1000 : NaN):8 skip 1 with points \
            linecolor rgb colour[s] pointtype full[s] pointsize 1.1 * mark notitle
}

set lmargin at screen 882.0 / width
set rmargin at screen 1 - 16.0 / width
set label 1 'From how many tokens on offloading is as fast' at screen 878.0 / width, screen 1 - 18.0 / height \
    left font font_title noenhanced
set key at screen 878.0 / width, screen 1 - 62.0 / height left center horizontal maxrows 3 maxcols 2 \
    reverse Left samplen 2 width 1 font font_small
set xrange [0.85 : 9.4]
set xtics nomirror out scale 0.5 (1, 2, 4, 8)
set xlabel 'GPUs (mark: simulated, line: closed form)' font font_text offset 0, 0.3
set yrange [5000 : 600000]
set ytics nomirror out scale 0.5 ('10k' 1e4, '30k' 3e4, '100k' 1e5, '300k' 3e5)
array tone[3] = ['#0072b2', '#e69f00', '#d55e00']
platforms = 'rtx4090x8 a800x8 h100x8'
short = '4090 A800 H100'
cell(platform, model) = strcol(1) eq platform && strcol(2) eq model && strcol(4) eq 'async'
plot for [p = 1 : 3] cross using (cell(word(platforms, p), 'llama3.1-8b') ? $3 : NaN):12 skip 1 with lines \
        linecolor rgb tone[p] linewidth 1.3 notitle, \
    for [p = 1 : 3] cross using (cell(word(platforms, p), 'qwen3-1.7b') ? $3 : NaN):12 skip 1 with lines \
        linecolor rgb tone[p] linewidth 1.3 dashtype 2 notitle, \
    for [p = 1 : 3] cross using (cell(word(platforms, p), 'llama3.1-8b') ? $3 : NaN):7 skip 1 with points \
        linecolor rgb tone[p] pointtype full[p] pointsize 1.2 * mark title word(short, p) . ', llama3.1-8b' noenhanced, \
    for [p = 1 : 3] cross using (cell(word(platforms, p), 'qwen3-1.7b') ? $3 : NaN):7 skip 1 with points \
        linecolor rgb tone[p] pointtype hollow[p] pointsize 1.2 * mark title word(short, p) . ', qwen3-1.7b' noenhanced
unset multiplot
unset output
