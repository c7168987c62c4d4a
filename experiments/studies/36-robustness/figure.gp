# Left: Kendall's tau of the schedules' order against the CV of the noise, per model. Right: what one
# GPU that takes half as long again costs each schedule. Needs root (plots), tau, bars, out, ext.
width = 1280
height = 560
load root . '/style.gp'

set datafile separator ','
set output out . '.' . ext
models = 'qwen3-1.7b llama3.1-8b gpt-oss-20b qwen3-32b'
schedules = 'gpipe 1f1b zb-h1 interleaved-1f1b looped-bfs roundpipe roundpipe-overlap'
array colour[7] = ['#666666', '#56b4e9', '#cc79a7', '#e69f00', '#009e73', '#0072b2', '#d55e00']
array shape[7] = [4, 6, 8, 10, 12, 7, 5]
set border 3
set tics nomirror out scale 0.5 font font_text
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1

set multiplot
set tmargin at screen 1 - 118.0 / height
set bmargin at screen 64.0 / height
set lmargin at screen 76.0 / width
set rmargin at screen 456.0 / width
set label 1 'Order of seven schedules under noise' at screen 62.0 / width, screen 1 - 20.0 / height \
    left font font_title noenhanced
set label 2 'mean and 95 % interval of 30 seeds; 1: the order without noise' \
    at screen 62.0 / width, screen 1 - 40.0 / height left font font_small textcolor rgb ink noenhanced
set key at screen 62.0 / width, screen 1 - 72.0 / height left center horizontal maxrows 2 maxcols 2 \
    reverse Left samplen 2 width 2 font font_text
set xrange [0 : 0.215]
set yrange [0.7 : 1.02]
set xtics 0.05
set xlabel 'coefficient of variation of every computation' font font_text offset 0, 0.3
set ylabel "Kendall's tau" font font_text offset 1, 0
plot for [i = 1 : 4] tau using (strcol(1) eq 'jitter' && strcol(2) eq word(models, i) ? $3 + 0.0015 * (i - 2.5) : NaN):5:6 \
    skip 1 with yerrorlines linecolor rgb colour[i + 3] linewidth 1.6 dashtype i pointtype shape[i + 3] \
    pointsize 1.2 * mark title word(models, i) noenhanced

set lmargin at screen 528.0 / width
set rmargin at screen 1 - 16.0 / width
set label 1 'One GPU takes half as long again' at screen 528.0 / width, screen 1 - 20.0 / height \
    left font font_title noenhanced
set label 2 'mark: mean over which of the 8 GPUs it is; line: least to most' \
    at screen 528.0 / width, screen 1 - 40.0 / height left font font_small textcolor rgb ink noenhanced
set key at screen 528.0 / width, screen 1 - 72.0 / height left center horizontal maxrows 2 maxcols 4 \
    reverse Left samplen 0.5 width -1 font font_small
set xrange [-1 : 32.5]
set yrange [0.98 : 1.54]
unset xtics
unset xlabel
set ylabel 'step time / step time without it' font font_text offset 1, 0
do for [i = 1 : 4] {
    set label 10 + i word(models, i) \
        at first (i - 1) * 8.5 + 3, screen 44.0 / height center font font_text textcolor rgb ink noenhanced
}
set label 20 'bound of every fixed order: 1.5' at first 32.3, first 1.513 right font font_small \
    textcolor rgb ink
set label 21 'work shared out by speed: 8 / (7 + 1 / 1.5) = 1.043' at first 32.3, first 1.028 right \
    font font_small textcolor rgb ink
even = 8 / (7 + 1 / 1.5)
plot 1.5 with lines linecolor rgb ink dashtype 2 linewidth 0.9 notitle, \
    even with lines linecolor rgb ink dashtype 3 linewidth 0.9 notitle, \
    for [s = 1 : 7] bars using (strcol(3) eq word(schedules, s) ? 8.5 * ($1 - 1) + s - 1 : NaN):4:5:6 with yerrorbars \
        linecolor rgb colour[s] linewidth 1.6 pointtype shape[s] pointsize 1.3 * mark \
        title word(schedules, s) noenhanced
unset multiplot
unset output
