# Signed errors of Megatron-LM's iterations: a point per row above, a bar per degree of parallelism
# below. Needs root (plots), data, means, out, ext, narrow (1: a window of a phone, one column).
width = narrow ? 358 : 1280
height = narrow ? 1530 : 760
load root . '/style.gp'

set datafile separator ','
set output out . '.' . ext
groups = 'megatron-a100 megatron-a100-servers'
titles = "'one server of 8 A100, 338 runs' '64 and 512 A100, 50 runs'"
kinds = 'tensor data pipeline'
colours = '#5b2a86 #1b7f79 #c05a00 #b00040 #555555'
degrees = '1 2 4 8 16'
most = '4 5' # of these each group has
set border 3
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
set ytics nomirror out scale 0.5 font font_text
set boxwidth 0.7
set multiplot
do for [g = 1 : 2] {
    group = word(groups, g)
    left = narrow ? 40.0 : (g - 1) * 640.0 + 64
    right = narrow ? 352.0 : left + 556
    down = narrow ? (g - 1) * 760.0 : 0.0
    set lmargin at screen left / width
    set rmargin at screen right / width
    set tmargin at screen 1 - (down + 70) / height
    set bmargin at screen 1 - (down + 380) / height
    set logscale x 10
    set xrange [g == 1 ? 50 : 3000 : g == 1 ? 2500 : 40000]
    set yrange [-60 : 50]
    set xtics auto nomirror out scale 0.5 font font_text
    set xlabel 'measured, ms per iteration' font font_text offset 0, 0.4
    unset label
    if (g == 1) {
        set label 1 (narrow ? '' : 'Megatron-LM on A100: ') . "predicted / measured − 1, in percent" \
            at screen (narrow ? 4.0 : 20.0) / width, screen 1 - 18.0 / height left font font_title noenhanced
    }
    set label 2 word(titles, g) at screen left / width, screen 1 - (down + 46) / height left \
        font font_title noenhanced
    set key at screen right / width, screen 1 - (down + (narrow ? 62 : 46)) / height right \
        horizontal samplen 0.5 \
        font font_small title 'tensor parallel' noenhanced
    plot 0 linewidth 1 linecolor rgb ink notitle, \
        for [t = 1 : int(word(most, g))] "< awk -F, '$1 == \"" . group . "\" && $4 == " . \
            word(degrees, t) . "' '" . data . "'" using 9:11 with points pointtype 7 \
            pointsize 0.7 * mark linecolor rgb word(colours, t) title word(degrees, t)
    unset logscale x
    unset key
    unset label
    set tmargin at screen 1 - (down + 470) / height
    set bmargin at screen 1 - (down + 690) / height
    if (narrow) { set xtics rotate by 90 right }
    set yrange [-30 : 25]
    rows = "< awk -F, -v OFS=, '$1 == \"" . group . "\" { print ++n, $2 == \"all\" ? \"all\" : " . \
        "substr(toupper($2), 1, 1) $3, $5, $6, $4, $7 }' '" . means . "'"
    stats rows using 1 nooutput
    set xrange [0.4 : STATS_records + 0.6]
    set xlabel (narrow ? 'tensor (T), data (D), pipeline (P) parallel' : \
        'degree of tensor (T), data (D) and pipeline (P) parallelism') font font_text \
        offset 0, (narrow ? -0.6 : 0.4)
    set label 3 (narrow ? 'bars: mean; rings: mean absolute; dashed: vTrain' : \
        'bars: mean; rings: mean of absolute errors; dashed: vTrain''s') \
        at screen left / width, screen 1 - (down + 452) / height left font font_small noenhanced
    given = real(system("awk -F, '$1 == \"" . group . "\" && $2 == \"all\" { print $7 }' '" . means . "'"))
    plot 0 linewidth 1 linecolor rgb ink notitle, \
        given with lines dashtype 2 linewidth 1.2 linecolor rgb '#b00040' notitle, \
        rows using 1:3:xtic(2) with boxes fillcolor rgb '#5b2a86' fillstyle solid 0.4 noborder \
            notitle, \
        rows using 1:4 with points pointtype 6 pointsize 1.1 * mark linewidth 1.2 \
            linecolor rgb ink notitle, \
        rows using 1:4:(sprintf('%.1f', $4)) with labels font font_small textcolor rgb ink \
            rotate by (narrow ? 90 : 0) offset 0, (narrow ? 1.4 : 0.9) notitle
    set xtics norotate
}
unset multiplot
