# Draws what common/timeline/gantt.c computed, which pipes the data and all variables used here into gnuplot
# first. Positions are SVG pixels from the top left corner.
load root . '/style.gp'
font_row = sprintf('%s,%g', font, row_font * points)
font_box = sprintf('%s,%g', font, box_font * points)
across(x) = x / real(width)
down(y) = 1 - y / real(height)
before_colon(text) = text[1 : strstrt(text, ':') - 1]
after_colon(text) = text[strstrt(text, ':') + 1 : *]
box(layer, border) = '$boxes index ' . before_colon(layer) . \
    ' using 1:3:1:2:3:4 with boxxyerror fillstyle solid ' . border . \
    " fillcolor rgb '" . after_colon(layer) . "' notitle, "
label(layer, colour) = '$boxes index ' . layer . \
    " using 1:2:3 with labels font font_box textcolor rgb '" . colour . "' notitle, "
white_border = "border linecolor rgb 'white' linewidth 0.5"

set multiplot
set lmargin at screen across(left)
set rmargin at screen across(width - right)

# Legend: one entry per colour in a strip of its own.
set tmargin at screen down(2)
set bmargin at screen down(32)
unset border
unset tics
set xrange [0:1]
set yrange [0:1]
set key at screen across(width - right), screen down(16) right center horizontal maxrows 1 \
    reverse Left samplen 1.6 width 1 font font_text textcolor rgb ink noenhanced
plot for [entry in legend] NaN with boxes fillstyle solid border linecolor rgb '#777777' \
    fillcolor rgb before_colon(entry) title after_colon(entry)
unset key

set border 3 linecolor rgb ink linewidth 0.8
set xrange [0 : span * 1.003]
set xtics nomirror out scale 0.5 font font_text
do for [p = 1 : panels] {
    set tmargin at screen down(top[p])
    set bmargin at screen down(bottom[p])
    set yrange [-rows[p] + 0.5 : 0.5]
    set ytics nomirror out scale 0 font font_row
    set ytics ()
    gpus = rows[p] - host[p]
    do for [gpu = 0 : gpus - 1 : row_names[p]] {
        set ytics add (sprintf('GPU %d', gpu) -gpu)
    }
    if (host[p]) {
        set ytics add ('host' -gpus)
    }
    set format x (p == panels ? '%g' : '')
    if (p == panels) {
        set xlabel 'time (ms)' font font_text textcolor rgb ink offset 0, 0.4
        set label 3 note at screen across(left), screen down(height - 10) left font font_small \
            textcolor rgb '#555555' noenhanced
    }
    set label 1 name[p] at screen across(left), screen down(top[p] - 11) left font font_title \
        textcolor rgb ink enhanced
    set label 2 details[p] at screen across(width - right), screen down(top[p] - 11) right \
        font font_text textcolor rgb ink noenhanced
    # Put together as text, because a loop over no layers cannot be written inside `plot`.
    draw = ''
    do for [i = 1 : words(narrow[p])] { draw = draw . box(word(narrow[p], i), 'noborder') }
    do for [i = 1 : words(wide[p])] { draw = draw . box(word(wide[p], i), white_border) }
    do for [i = 1 : words(black_text[p])] { draw = draw . label(word(black_text[p], i), 'black') }
    do for [i = 1 : words(white_text[p])] { draw = draw . label(word(white_text[p], i), 'white') }
    eval 'plot ' . draw[1 : strlen(draw) - 2]
}
unset multiplot
