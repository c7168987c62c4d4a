# Change of throughput with each input, a panel per run, the strongest input first. Needs root (plots),
# data, out, ext.
set datafile separator ','
width = 1240
height = 430
load root . '/style.gp'
across(x) = x / real(width)
down(y) = 1 - y / real(height)
inputs = system(sprintf("tail -n +2 '%s' | cut -d, -f3 | uniq", data))
rows = words(inputs)
stats data using 7 skip 1 nooutput
most = 1.35 * (STATS_max > -STATS_min ? STATS_max : -STATS_min)
set output out . '.' . ext
set multiplot
set border 1
set tmargin at screen down(78)
set bmargin at screen down(height - 58)
set yrange [-rows - 0.5 : -0.5]
set xrange [-most : most]
set xtics nomirror out scale 0.5 font font_text
set grid xtics linecolor rgb faint linewidth 0.6 linetype 1
set xlabel 'change of throughput (%)' font font_text offset 0, 0.3
set ytics nomirror scale 0 font font_text noenhanced
array schedule[3] = ['1f1b', 'roundpipe', 'roundpipe']
array optimizer[3] = ['sync', 'sync', 'async']
array title[3] = ['1f1b', 'roundpipe, synchronous', 'roundpipe, asynchronous']
is(p, factor) = stringcolumn(1) eq schedule[p] && stringcolumn(2) eq optimizer[p] && abs($4 - factor) < 1e-9
far(p) = is(p, 0.8) || is(p, 1.2)
left = 236
do for [p = 1 : 3] {
    from = left + (p - 1) * 334
    set lmargin at screen across(from)
    set rmargin at screen across(from + 316)
    if (p == 1) {
        set ytics ()
        do for [i = 1 : rows] { set ytics add (word(inputs, i) -i) }
        set label 1 'Throughput when one input changes   (qwen3-1.7b, 8 RTX 4090, 16 microbatches, hardware fidelity)' \
            at screen across(20), screen down(18) left font font_title
        set key at screen across(width - 14), screen down(18) right center horizontal maxrows 1 reverse Left \
            samplen 1.6 width 1 font font_text textcolor rgb ink noenhanced
    } else {
        unset ytics
        unset key
    }
    set label 2 title[p] at graph 0.5, 1 offset 0, 0.8 center font font_title noenhanced
    set arrow 1 from 0, graph 0 to 0, graph 1 nohead linecolor rgb ink linewidth 0.8 front
    plot data using (is(p, 0.8) ? $7 / 2 : NaN):(-$8):(0):7:(-$8 - 0.36):(-$8 + 0.36) skip 1 with boxxyerror \
            fillstyle solid border linecolor rgb ink linewidth 0.4 fillcolor rgb '#cfe3f3' title 'input -20 %', \
        data using (is(p, 0.9) ? $7 / 2 : NaN):(-$8):(0):7:(-$8 - 0.2):(-$8 + 0.2) skip 1 with boxxyerror \
            fillstyle solid border linecolor rgb ink linewidth 0.4 fillcolor rgb '#7fb8e6' title '-10 %', \
        data using (is(p, 1.2) ? $7 / 2 : NaN):(-$8):(0):7:(-$8 - 0.36):(-$8 + 0.36) skip 1 with boxxyerror \
            fillstyle solid border linecolor rgb ink linewidth 0.4 fillcolor rgb '#8a63b3' title '+20 %', \
        data using (is(p, 1.1) ? $7 / 2 : NaN):(-$8):(0):7:(-$8 - 0.2):(-$8 + 0.2) skip 1 with boxxyerror \
            fillstyle solid border linecolor rgb ink linewidth 0.4 fillcolor rgb '#5b2a86' title '+10 %', \
        data using (far(p) && $7 >= 0.05 ? $7 : NaN):(-$8):(sprintf('%+.1f', $7)) skip 1 with labels left \
            offset 0.5, 0 font font_small notitle, \
        data using (far(p) && $7 <= -0.05 ? $7 : NaN):(-$8):(sprintf('%+.1f', $7)) skip 1 with labels right \
            offset -0.5, 0 font font_small notitle, \
        data using (is(p, 0.8) && abs($7) < 0.05 ? 0 : NaN):(-$8):('0.0') skip 1 with labels left \
            offset 0.5, 0 font font_small notitle
    unset label 1
}
unset multiplot
unset output
