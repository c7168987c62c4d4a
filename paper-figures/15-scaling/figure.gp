# RoundPipe's throughput on 1 to 8 GPUs, a panel per model: ours as a line, published as rings, eight
# times and more one GPU as a dashed line. Needs root (plots), data, out, ext.
width = 1280
height = 640
load root . '/style.gp'

set datafile separator ','
set output out . '.' . ext
models = system("awk -F, 'NR > 1 && !seen[$1]++ { printf \"%s \", $1 }' '" . data . "'")
panels = words(models)
across = 3
panel_width = 1280.0 / across
panel_height = 286.0
set border 3
set xrange [0.5 : 8.5]
set xtics 1 nomirror out scale 0.5 font font_text
set ytics nomirror out scale 0.5 font font_text
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
set multiplot
do for [m = 1 : panels] {
    model = word(models, m)
    left = ((m - 1) % across) * panel_width
    above = 36 + int((m - 1) / across) * (panel_height + 14)
    set lmargin at screen (left + 74) / width
    set rmargin at screen (left + panel_width - 14) / width
    set tmargin at screen 1 - (above + 34) / height
    set bmargin at screen 1 - (above + panel_height - 30) / height
    # A star where a constant was set: gnuplot cannot read an empty column.
    rows = "< awk -F, -v OFS=, '$1 == \"" . model . "\" { if ($7 == \"\") $7 = \"no\"; print }' '" . data . "'"
    stats rows using 3:4 nooutput name 'given'
    stats rows using 3:5 nooutput name 'mine'
    one = given_min_y
    most = mine_max_y > 8 * one ? mine_max_y : 8 * one
    set yrange [0 : most * 1.12]
    unset label
    if (m == 1) {
        set label 1 'RoundPipe on 1 to 8 RTX 4090: published and predicted, tokens/s' \
            at screen 20.0 / width, screen 1 - 18.0 / height left font font_title noenhanced
    }
    set label 2 model at screen (left + 74) / width, screen 1 - (above + 16) / height left \
        font font_title noenhanced
    if (m > panels - across) {
        set xlabel 'GPUs' font font_text offset 0, 0.4
    } else {
        unset xlabel
    }
    unset key
    # Signed errors of every other number of GPUs: all eight would touch each other.
    plot rows using 3:8:9 with filledcurves fillcolor rgb '#5b2a86' fillstyle transparent solid 0.15 \
            noborder notitle, \
        one * x with lines dashtype 2 linewidth 1 linecolor rgb '#777777' notitle, \
        rows using 3:5 with linespoints pointtype 7 pointsize 0.5 * mark linewidth 1.6 \
            linecolor rgb '#5b2a86' notitle, \
        rows using 3:4 with points pointtype 6 pointsize 1.1 * mark linewidth 1.2 linecolor rgb ink notitle, \
        rows using 3:($5 < $4 ? $5 : $4):(sprintf('%s%.1f%s', $6 < 0 ? '−' : '+', abs($6), \
            strcol(7) eq 'yes' ? ' *' : '')) with labels font font_small textcolor rgb ink \
            offset 0.6, -0.8 notitle
}
# The key stands where the sixth panel would be.
unset label
left = 2 * panel_width
set lmargin at screen (left + 74) / width
set rmargin at screen (left + panel_width - 14) / width
set tmargin at screen 1 - 400.0 / height
set bmargin at screen 1 - 560.0 / height
unset border
unset xtics
unset ytics
unset xlabel
unset grid
set yrange [0 : 1]
set key at screen (left + 74) / width, screen 1 - 400.0 / height left top reverse Left samplen 2.5 \
    spacing 1.4 font font_text
set label 3 'numbers: ours / published − 1 in percent' at screen (left + 74) / width, \
    screen 1 - 520.0 / height left font font_text noenhanced
set label 4 '* a constant of the model was set on this cell' at screen (left + 74) / width, \
    screen 1 - 544.0 / height left font font_text noenhanced
plot NaN with linespoints pointtype 7 pointsize 0.5 * mark linewidth 1.6 linecolor rgb '#5b2a86' \
        title 'ours, predicted', \
    NaN with filledcurves fillcolor rgb '#5b2a86' fillstyle transparent solid 0.15 noborder \
        title '80 % interval', \
    NaN with points pointtype 6 pointsize 1.1 * mark linewidth 1.2 linecolor rgb ink title 'published', \
    NaN with lines dashtype 2 linewidth 1 linecolor rgb '#777777' \
        title 'GPUs × published on one'
unset multiplot
unset output
