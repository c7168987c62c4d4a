# FLOP per byte of a layer whose weights come over the link, against the batch; thresholds of GPUs.
# Needs root (plots), data and curve (CSV files), out, ext (make.sh).
width = 900
height = 520
load root . '/style.gp'

set datafile separator ','
set output out . '.' . ext
set lmargin at screen 96.0 / width
set rmargin at screen 1 - 120.0 / width
set tmargin at screen 1 - 90.0 / height
set bmargin at screen 56.0 / height
set border 3
set label 1 'Operational intensity of one layer (FLOP per byte over the link)' \
    at screen 96.0 / width, screen 1 - 20.0 / height left font font_title noenhanced
set key at screen 80.0 / width, screen 1 - 54.0 / height left center vertical maxrows 2 \
    reverse Left samplen 2 width 1 font font_text noenhanced
set logscale x 2
set logscale y 10
stats curve using 2:3 skip 1 nooutput
set xrange [STATS_min_x : STATS_max_x]
set yrange [100 : 100000]
set xtics nomirror out scale 0.5 font font_text
set ytics nomirror out scale 0.5 font font_text
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
set xlabel 'sequences per batch' font font_text
set ylabel 'FLOP/byte' font font_text offset 1, 0
colour(i) = word('#7fb8e6 #2f6fa8 #b5452c #5b2a86 #c9a21f', i + 1)
shape(i) = int(word('7 5 9 6 4', i + 1))
names = system(sprintf("awk -F, '$1 == \"intensity\" && !seen[$2]++ { print $2 }' '%s'", data))

# Labels of thresholds, pushed apart where two are close; the file has them in ascending order.
limits = system(sprintf("awk -F, '$1 == \"threshold\" { print $7 }' '%s'", data))
gpus = system(sprintf("awk -F, '$1 == \"threshold\" { gsub(/ /, \"_\", $3); print $3 }' '%s'", data))
limit(i) = real(word(limits, i))
close(i) = i >= 1 && i < words(limits) && limit(i + 1) < 1.2 * limit(i)
do for [i = 1 : words(limits)] {
    gpu = word(gpus, i)
    space = strstrt(gpu, "_")
    gpu = space ? gpu[1 : space - 1] . " " . gpu[space + 1 : *] : gpu
    set label gpu . ": " . word(limits, i) at first STATS_max_x, first limit(i) left font font_small \
        offset 0.8, 0.35 * (close(i - 1) - close(i)) noenhanced
}
# A row of a threshold has its value in column 7, an intensity's in column 8.
plot data using (STATS_min_x):(strcol(1) eq 'threshold' ? $7 : NaN):(STATS_max_x - STATS_min_x):(0) \
        skip 1 with vectors nohead dashtype 2 linewidth 1 linecolor rgb ink notitle, \
    for [i = 0 : words(names) - 1] curve using 2:(strcol(1) eq word(names, i + 1) ? $3 : NaN) \
        with lines linewidth 1.8 linecolor rgb colour(i) notitle, \
    for [i = 0 : words(names) - 1] data using 4:(strcol(1) eq 'intensity' && \
        strcol(2) eq word(names, i + 1) ? $8 : NaN) skip 1 with points \
        pointtype shape(i) pointsize 1 * mark linecolor rgb colour(i) title word(names, i + 1)
unset output
