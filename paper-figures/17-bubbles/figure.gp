# Parts of the bubble per model and schedule, rpsim's as bars and the published totals as marks. Needs
# root (plots), bars (make.sh's table of bars), out, ext.
width = 1280
height = 600
load root . '/style.gp'

set datafile separator ','
set output out . '.' . ext
# The same number of bars per model, one place between models.
stats bars using 8 skip 1 nooutput
total = STATS_records
top = STATS_max
models = real(system(sprintf("tail -n +2 '%s' | cut -d, -f1 | uniq | wc -l", bars)))
each = total / models
place(row) = row + floor(row / each)
set lmargin at screen 62.0 / width
set rmargin at screen 1 - 16.0 / width
set tmargin at screen 1 - 84.0 / height
set bmargin at screen 150.0 / height
set border 3
set xrange [-1.2 : total + models - 1]
set yrange [0 : top * 1.1]
set label 1 'Bubble in % of GPU time   (8 GPUs, 16 microbatches, published partitions)' \
    at screen 62.0 / width, screen 1 - 20.0 / height left font font_title noenhanced
set key at screen 62.0 / width, screen 1 - 50.0 / height left center horizontal maxrows 1 \
    reverse Left samplen 1.6 width 1 font font_text
set ytics nomirror out scale 0.5 font font_text
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
set ylabel 'bubble (%)' font font_text offset 1, 0
set xtics scale 0 rotate by 45 right font font_small noenhanced
# Names of the models below their groups: tics cannot have two levels.
do for [m = 0 : models - 1] {
    set label system(sprintf("sed -n %dp '%s' | cut -d, -f1", 2 + m * each, bars)) \
        at first place(m * each) + (each - 1) / 2.0, screen 18.0 / height center \
        font font_title textcolor rgb ink noenhanced
}
half = 0.42

plot bars using (place($0)):3:(place($0) - half):(place($0) + half):(0):3 skip 1 with boxxyerror \
        fillstyle solid noborder fillcolor rgb '#7fb8e6' title 'fill', \
    bars using (place($0)):3:(place($0) - half):(place($0) + half):3:($3 + $4) skip 1 \
        with boxxyerror fillstyle solid noborder fillcolor rgb '#5b2a86' title 'switch', \
    bars using (place($0)):3:(place($0) - half):(place($0) + half):($3 + $4):($3 + $4 + $5) skip 1 \
        with boxxyerror fillstyle solid noborder fillcolor rgb '#b5452c' title 'intra', \
    bars using (place($0)):3:(place($0) - half):(place($0) + half):($3 + $4 + $5):($3 + $4 + $5 + $6) \
        skip 1 with boxxyerror fillstyle solid noborder fillcolor rgb '#f3d56b' title 'drain', \
    bars using (place($0)):($7 > 0 ? $7 : NaN):(place($0) - half):(place($0) + half):(0):7 skip 1 \
        with boxxyerror fillstyle solid border rgb ink fillcolor rgb 'white' linewidth 1 \
        title 'steady state, simulated', \
    bars using (place($0)):9 skip 1 with points pointtype 6 pointsize 0.9 * mark linewidth 1.2 \
        linecolor rgb ink title 'published (or follows from it)', \
    bars using (place($0)):8:(sprintf('%.1f', $8)):xtic(2) skip 1 with labels font font_small \
        offset 0, 0.9 notitle
unset output
