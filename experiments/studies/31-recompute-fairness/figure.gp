# RoundPipe's lead in parts, two bars per model: everyone early, everyone waiting. Left the paper's
# four rivals, right zero bubble among them. Needs root (plots), bars (make.sh's table), out, ext.
width = 1280
height = 560
load root . '/style.gp'

set datafile separator ','
set output out . '.' . ext
set multiplot
set border 3
set xrange [0.5 : 5.5]
set yrange [-16 : 25]
set xtics scale 0 font font_text offset 0, -0.9 noenhanced ('qwen3-1.7b' 1, 'llama3.1-8b' 2, \
    'gpt-oss-20b' 3, 'qwen3-32b' 4, 'qwen3-235b' 5)
set ytics 5 nomirror out scale 0.5 font font_text
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
set tmargin at screen 1 - 100.0 / height
set bmargin at screen 56.0 / height
set key at screen 70.0 / width, screen 1 - 48.0 / height left center horizontal maxrows 1 \
    reverse Left samplen 1.6 width 1 font font_text
set label 1 'Parts of RoundPipe''s lead over its best rival; they add up to the lead as published   ' \
    . '(8 GPUs, 16 microbatches, stage fidelity)' at screen 70.0 / width, screen 1 - 20.0 / height left font font_title noenhanced
half = 0.16
set xzeroaxis linecolor rgb ink linewidth 1 linetype 1
do for [panel = 1 : 2] {
    set lmargin at screen (panel == 1 ? 70.0 : 694.0) / width
    set rmargin at screen (panel == 1 ? 650.0 : 1260.0) / width
    set label 2 (panel == 1 ? 'rivals: the paper''s four schedules' : 'rivals: zb-h1 and zbv, too') \
        at graph 0.01, 1.03 left font font_text
    if (panel == 1) {
        set ylabel 'lead, 100 ln(rival / RoundPipe)' font font_text offset 1, 0
    } else {
        unset ylabel
        unset key
    }
    do for [m = 1 : 5] {
        set label 10 + 2 * m 'early' at first m - 0.2, screen 42.0 / height center font font_small
        set label 11 + 2 * m 'wait' at first m + 0.2, screen 42.0 / height center font font_small
    }
    plot bars using ($1 == panel ? $2 : NaN):6:($2 - half):($2 + half):5:6 skip 1 with boxxyerror \
            fillstyle solid border rgb 'white' linewidth 0.6 fillcolor rgb '#f3d56b' title 'recompute rule', \
        bars using ($1 == panel ? $2 : NaN):8:($2 - half):($2 + half):7:8 skip 1 with boxxyerror \
            fillstyle solid border rgb 'white' linewidth 0.6 fillcolor rgb '#7fb8e6' title 'partition', \
        bars using ($1 == panel ? $2 : NaN):10:($2 - half):($2 + half):9:10 skip 1 with boxxyerror \
            fillstyle solid border rgb 'white' linewidth 0.6 fillcolor rgb '#5b2a86' title 'schedule', \
        bars using ($1 == panel ? $2 : NaN):11 skip 1 with points pointtype 7 pointsize 1.2 * mark \
            linecolor rgb 'white' notitle, \
        bars using ($1 == panel ? $2 : NaN):11 skip 1 with points pointtype 6 pointsize 1.2 * mark \
            linewidth 1.6 linecolor rgb ink title 'lead as published'
    unset label 1
}
unset multiplot
unset output
