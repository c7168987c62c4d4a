# The ideal bubble per model as a bar and a line over its group, the real ones as bars, the published
# ones as marks. Needs root (plots), data (the CSV file), out, ext (make.sh).
width = 1200
height = 540
load root . '/style.gp'

set datafile separator ','
set output out . '.' . ext
# The same number of bars per model, the ideal first, one place between models.
stats data using 5 skip 1 nooutput
total = STATS_records
top = STATS_max
models = real(system(sprintf("grep -c ',ideal,' '%s'", data)))
each = total / models
place(row) = row + floor(row / each)
set lmargin at screen 62.0 / width
set rmargin at screen 1 - 16.0 / width
set tmargin at screen 1 - 68.0 / height
set bmargin at screen 124.0 / height
set border 3
set xrange [-1.2 : total + models - 1]
set yrange [0 : top * 1.1]
set label 1 'Ideal and real bubble in % of GPU time   (8 GPUs, 16 microbatches)' \
    at screen 62.0 / width, screen 1 - 20.0 / height left font font_title noenhanced
set key at screen 62.0 / width, screen 1 - 46.0 / height left center horizontal maxrows 1 \
    reverse Left samplen 1.6 width 2 font font_text
set ytics nomirror out scale 0.5 font font_text
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
set ylabel 'bubble (%)' font font_text offset 1, 0
set xtics scale 0 rotate by 45 right font font_small noenhanced
# Names of the models below their groups: tics cannot have two levels.
do for [m = 0 : models - 1] {
    set label system(sprintf("sed -n %dp '%s' | cut -d, -f1", 2 + m * each, data)) \
        at first place(m * each) + (each - 1) / 2.0, screen 18.0 / height center \
        font font_title textcolor rgb ink noenhanced
}
half = 0.42
is_ideal(kind) = kind eq 'formula'

plot data using (place($0)):(is_ideal(strcol(3)) ? $5 : NaN):(2 * half) skip 1 with boxes \
        fillstyle solid border rgb ink fillcolor rgb 'white' title 'ideal (formula)', \
    data using (place($0)):(is_ideal(strcol(3)) ? NaN : $5):(2 * half) skip 1 with boxes \
        fillstyle solid noborder fillcolor rgb '#7fb8e6' title 'real (simulated)', \
    data using (place($0) - half):(is_ideal(strcol(3)) ? $5 : NaN):(each - 1 + 2 * half):(0) skip 1 \
        with vectors nohead linecolor rgb ink linewidth 1 dashtype (6, 4) notitle, \
    data using (place($0)):4 skip 1 with points pointtype 6 pointsize 0.9 * mark linewidth 1.2 \
        linecolor rgb ink title 'real (published)', \
    data using (place($0)):5:(sprintf('%.1f', $5)):xtic(2) skip 1 with labels font font_small \
        offset 0, 0.9 notitle
unset output
