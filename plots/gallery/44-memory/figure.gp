# Bytes in use over time by what they are, a row per schedule, a column per GPU and one for the host.
# Needs root (plots), data, curves (bins.awk: sums from the bottom up), usable (GB of a GPU), out, ext.
set datafile separator ','
schedules = system(sprintf("tail -n +2 '%s' | cut -d, -f1 | uniq", data))
places = system(sprintf("tail -n +2 '%s' | cut -d, -f2 | tr ' ' _ | awk '!seen[$0]++'", data))
columns = words(places)
left = 50
top = 96
row_px = 150
plot_px = 104
width = 1240
height = top + words(schedules) * row_px + 10
load root . '/style.gp'
across(x) = x / real(width)
down(y) = 1 - y / real(height)
column_px = (width - left - 70) / real(columns)
set output out . '.' . ext
set multiplot
set border 3
set style fill solid noborder
# From the bottom; a layer is drawn over those above it.
layers = 8
colours = '#999999 #7fb8e6 #b5452c #222222 #f3d56b #1f9e78 #e08fb0 #5b2a86'
titles = 'always_there weights gradients optimizer boundary_activations saved_for_backward temporary logits'
title_of(n) = system(sprintf("echo '%s' | tr _ ' '", word(titles, n)))

set tmargin at screen down(2)
set bmargin at screen down(40)
set lmargin at screen across(left)
set rmargin at screen across(width - 10)
unset border
unset tics
set xrange [0:1]
set yrange [0:1]
set label 1 'Memory in use during one step, GB   (qwen3-1.7b, 4 RTX 4090, 8 microbatches of 4 x 2048 tokens)' \
    at screen across(left), screen down(16) left font font_title
set key at screen across(left - 6), screen down(46) left center horizontal maxrows 1 reverse Left \
    samplen 1.4 width -1 font font_small textcolor rgb ink noenhanced
plot for [n = 1 : layers] NaN with boxes fillstyle solid border linecolor rgb '#777777' \
        fillcolor rgb word(colours, n) title title_of(n), \
    NaN with lines linecolor rgb ink linewidth 1.2 dashtype 2 title 'usable'
unset key
unset label 1
set border 3
do for [r = 1 : words(schedules)] {
    schedule = word(schedules, r)
    set autoscale
    stats data using (stringcolumn(1) eq schedule ? $3 : NaN) skip 1 nooutput
    set xrange [0 : STATS_max / 1000]
    do for [c = 1 : columns] {
        place = system(sprintf("echo '%s' | tr _ ' '", word(places, c)))
        host = place eq 'host'
        from = left + (c - 1) * column_px + (host ? 46 : 0)
        set lmargin at screen across(from)
        set rmargin at screen across(from + column_px - 18)
        set tmargin at screen down(top + (r - 1) * row_px)
        set bmargin at screen down(top + (r - 1) * row_px + plot_px)
        set yrange [0 : (host ? 50 : 28)]
        set xtics nomirror out scale 0.5 font font_small offset 0, 0.3 autofreq
        step = host ? 20 : 10
        set ytics step nomirror out scale 0.5 font font_small
        if (!host && c > 1) { set format y '' } else { set format y '%g' }
        set label 1 (c == 1 ? schedule . ', ' : '') . place at graph 0, 1 offset 0.2, 0.7 left font font_text noenhanced
        set xlabel (r == words(schedules) && c == 1 ? 'time (s)' : '') font font_small offset 0, 0.9
        set table $panel separator comma
        plot curves using 3:4:5:6:7:8:9:10:11 with table if (stringcolumn(1) eq schedule && stringcolumn(2) eq place)
        unset table
        plot for [n = layers : 1 : -1] $panel using 1:(column(n + 1)) with filledcurves x1 linecolor rgb word(colours, n) \
                notitle, \
            (host ? NaN : usable + 0) with lines linecolor rgb ink linewidth 1.2 dashtype 2 notitle
    }
}
unset multiplot
unset output
