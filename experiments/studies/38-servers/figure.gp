# Tokens/s per GPU against the number of GPUs: RoundPipe over servers and the best 3D layout, on RTX 4090 and on H100.
# Needs root (plots), data, out, ext, narrow (1: a window of a phone, one column).
width = narrow ? 358 : 1100
height = narrow ? 910.0 : 460
load root . '/style.gp'
set output out . '.' . ext
set datafile separator ','
set border 3
set tics nomirror out scale 0.5 font font_text
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
set logscale x 2
set xtics (8, 16, 32, 64, 256, 1024)
set xrange [6.5 : 1300]
set xlabel 'GPUs' font font_text
rate(i) = i <= 3 ? 3.125 : 12.5
system_of(i) = word('roundpipe-async roundpipe-sync 3d', (i - 1) % 3 + 1)
title_of(i) = word('RoundPipe-async RoundPipe-sync 3D', (i - 1) % 3 + 1)
colour(i) = word('#0072b2 #56b4e9 #e69f00', (i - 1) % 3 + 1)
# GPUs, tokens/s per GPU, its 80 % interval
points(server, network, system) = sprintf("< awk -F, '$1 == \"%s\" && $2 == %g && $3 == \"%s\" && $7 == \"true\" " . \
    "{ print $5 \",\" $9 / $5 \",\" $10 / $5 \",\" $11 / $5 }' '%s'", server, network, system, data)
set multiplot
do for [side = 1 : 2] {
    server = side == 1 ? 'rtx4090x8' : 'h100x8'
    left = narrow ? 48.0 : side == 1 ? 70.0 : 620.0
    down = narrow && side == 2 ? 460.0 : 0.0
    names = narrow ? 9 - 3 * side : 3 # below each other
    set lmargin at screen left / width
    set rmargin at screen (narrow ? 350.0 : left + 460) / width
    set tmargin at screen 1 - (down + 44 + 22 * names) / height
    set bmargin at screen 1 - (down + 404) / height
    set label 1 (side == 1 ? 'RTX 4090: tokens/s per GPU' : 'H100: tokens/s per GPU') \
        at screen left / width, screen 1 - (down + 18) / height left font font_title noenhanced
    set key at screen left / width, screen 1 - (down + 36 + 10 * names) / height left center vertical maxrows names \
        reverse Left samplen 2.5 width 1 font font_text
    top = side == 1 ? 4000 : 13000
    set yrange [0 : top]
    if (side == 1) {
        plot for [i = 1 : 6] points(server, rate(i), system_of(i)) using 1:2:3:4 with yerrorlines linewidth 2 \
            pointtype 6 + (i > 3) pointsize 0.8 dashtype 2 - (i > 3) linecolor rgb colour(i) \
            title title_of(i) . sprintf(', %g Gbit/s', 8 * rate(i))
    } else {
        plot for [i = 1 : 3] points(server, 360, system_of(i)) using 1:2:3:4 with yerrorlines linewidth 2 \
            pointtype 7 pointsize 0.8 linecolor rgb colour(i) title title_of(i)
    }
}
unset multiplot
unset output
