# Below a panel of bars.gp, place by place: the signed error of each pair in percent as a dot, which a
# logarithmic axis of bars hides. Needs what bars.gp needs and has set; panel_top, panel_bottom.
set tmargin at screen 1 - panel_top * 1.0 / height
set bmargin at screen 1 - panel_bottom * 1.0 / height
unset logscale y
unset key
unset xtics
unset label
set yrange [*:*]
stats bars using ($4 > 0 && $5 > 0 ? 100 * ($5 / $4 - 1) : NaN) skip 1 nooutput name 'error'
reach = 10 * ceil((error_max > -error_min ? error_max : -error_min) / 10.0 + 0.1)
set yrange [-reach : reach]
set ytics 10 nomirror out scale 0.5 font font_small
set label 3 'ours / published − 1 (%)' at screen 14.0 / width, screen 1 - (panel_top + panel_bottom) / 2.0 / height \
    center rotate by 90 font font_text noenhanced
set border 2
plot 0 with lines linecolor rgb ink linewidth 0.8 notitle, \
    bars using 1:($4 > 0 && $5 > 0 ? 100 * ($5 / $4 - 1) : NaN) skip 1 with impulses linecolor rgb '#a8a8a8' linewidth 1 notitle, \
    for [c = 0 : 2] bars using 1:($4 > 0 && $5 > 0 && $9 == c ? 100 * ($5 / $4 - 1) : NaN) skip 1 with points \
        pointtype 7 pointsize 1.4 * mark linecolor rgb colour(c) notitle
