# RoundPipe's tokens/s over those of its best rival, by server and model, in own software and in one. Bars: figure 10's
# layouts; diamonds: the best of all. Needs root (plots), ratios, least, most (the claim), out, ext, narrow (1: a window
# of a phone).
width = narrow ? 358.0 : 1100.0
height = narrow ? 470.0 : 480.0
load root . '/style.gp'
set output out . '.' . ext
set datafile separator ','
set border 3
set tics nomirror out scale 0.5 font font_text
set pointintervalbox 0
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
software_of(i) = word('own one published', i)
title_of(i) = word("'each in its own software' 'all in one software' 'published, in fp16'", i)
colour(i) = word('#e69f00 #0072b2 #009e73', i)
# Place, ratio, its interval; place 2.8 i + 1.2 j is of server i and model j.
of(i, layouts) = sprintf("< awk -F, '$3 == \"%s\" && $4 == \"%s\" && $5 == \"%s\" { " . \
    "i = $1 ~ /^rtx/ ? 0 : $1 ~ /^h/ ? 1 : 2; j = $2 ~ /^qwen3-1/ ? 0 : $2 ~ /^llama/ ? 1 : 9; if (j < 9) " . \
    "print 2.8 * i + 1.2 * j \",\" $9 \",\" $10 \",\" $11 }' '%s'", \
    software_of(i), i == 3 ? 'fp16' : 'bf16', layouts, ratios)
shift(i) = i == 3 ? 0 : 0.46 * i - 0.69
set lmargin at screen (narrow ? 40.0 : 60.0) / width
set rmargin at screen 1 - 10.0 / width
set tmargin at screen 1 - (narrow ? 160.0 : 84.0) / height
set bmargin at screen 52.0 / height
set label 1 (narrow ? "RoundPipe's tokens/s over the best rival's" : \
    "RoundPipe's tokens/s over the best rival's, 8 GPUs") at screen 12.0 / width, screen 1 - 18.0 / height \
    left font font_title noenhanced
set key at screen 12.0 / width, screen 1 - (narrow ? 94.0 : 52.0) / height left center vertical \
    maxrows (narrow ? 6 : 2) reverse Left samplen 1.8 width 1 font font_text
set xrange [-0.7 : 7.5]
set yrange [0 : 2.3]
set ytics 0.5
unset xtics
do for [i = 0 : 2] {
    do for [j = 0 : 1] {
        set label 10 + 2 * i + j word('1.7b 8b', j + 1) at 2.8 * i + 1.2 * j, screen 38.0 / height center font font_text
    }
    set label 20 + i word("'RTX 4090' H100 B200", i + 1) at 2.8 * i + 0.6, screen 18.0 / height center font font_title
}
set style fill solid 0.85 border linecolor rgb ink
set boxwidth 0.42
set style rect fillcolor rgb faint fillstyle solid 0.6 noborder
set object 1 rect from graph 0, first least + 0 to graph 1, first most + 0 behind
plot for [i = 1 : 2] of(i, 'figure') using ($1 + shift(i)):2 with boxes linecolor rgb colour(i) \
        title title_of(i), \
    for [i = 1 : 2] of(i, 'figure') using ($1 + shift(i) - 0.07):2:3:4 with yerrorbars pointtype 7 pointsize 0 \
        linewidth 1 linecolor rgb ink notitle, \
    for [i = 1 : 2] of(i, 'free') using ($1 + shift(i) + 0.09):2:3:4 with yerrorbars pointtype 13 \
        pointsize 2 * mark linewidth 1 linecolor rgb ink title i == 1 ? 'the same with the best layouts' : '', \
    of(3, 'figure') using 1:2 with points pointtype 9 pointsize 2 * mark linecolor rgb colour(3) title title_of(3), \
    NaN with boxes fillcolor rgb faint fillstyle solid 0.6 noborder \
        title sprintf("the paper's claim, %g to %g", least + 0, most + 0), \
    1 with lines linewidth 1 dashtype 2 linecolor rgb ink title 'equally fast'
unset output
