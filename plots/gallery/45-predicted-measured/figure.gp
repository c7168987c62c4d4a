# Predicted against published cells, and how far each is off. Needs root (plots), data, out, ext.
set datafile separator ','
width = 1280
height = 546
load root . '/style.gp'
load root . '/gallery/lib/lines.gp'
across(x) = x / real(width)
down(y) = 1 - y / real(height)
models = 'qwen3-1.7b llama3.1-8b gpt-oss-20b qwen3-32b qwen3-235b-lora'
is(quantity, m) = stringcolumn(1) eq quantity && stringcolumn(2) eq word(models, m)
ours(x) = stringcolumn(3)[1:9] eq 'roundpipe'
set output out . '.' . ext
set multiplot
set border 3
set xtics nomirror out scale 0.5 font font_text
set ytics nomirror out scale 0.5 font font_text
set grid xtics ytics linecolor rgb faint linewidth 0.6 linetype 1
set tmargin at screen down(122)
set bmargin at screen down(height - 56)
band = '#e4eef6'

# One panel: x is published, y a function of it and the prediction.
array title[3] = ['throughput (tokens/s)', 'throughput: difference (%)', 'longest sequence (1024 tokens)']
array quantity[3] = ['throughput', 'throughput', 'length']
array low[3] = [150, 150, 3]
array high[3] = [110000, 110000, 110]
do for [p = 1 : 3] {
    from = 62 + (p - 1) * 424
    set lmargin at screen across(from)
    set rmargin at screen across(from + 352)
    set logscale x 10
    set xrange [low[p] : high[p]]
    if (p == 2) {
        unset logscale y
        set yrange [-30 : 66]
    } else {
        set logscale y 10
        set yrange [low[p] : high[p]]
    }
    set label 2 title[p] at screen across(from), screen down(106) left font font_title
    set xlabel 'published' font font_text
    set ylabel (p == 2 ? 'predicted / published - 1 (%)' : 'predicted') font font_text offset 1, 0
    if (p == 1) {
        set label 1 'Predicted against published on RTX 4090   (shaded: within 10 %; filled: RoundPipe, empty: the others)' \
            at screen across(20), screen down(18) left font font_title
        set key at screen across(20), screen down(60) left center horizontal maxrows 1 reverse Left \
            samplen 1.4 width 1 font font_text textcolor rgb ink noenhanced
    } else {
        unset key
    }
    y(x) = p == 2 ? $8 : $7
    # Far off; below 15 % their names would lie on other points at the right.
    named(p) = p > 1 && stringcolumn(1) eq quantity[p] && !ours(0) && abs($8) > (p == 2 ? 10.5 : 13)
    set samples 2
    plot '+' using 1:(p == 2 ? -10 : 0.9 * $1):(p == 2 ? 10 : 1.1 * $1) \
            with filledcurves fillstyle solid noborder linecolor rgb band notitle, \
        (p == 2 ? 0 : x) with lines linewidth 1 linecolor rgb ink notitle, \
        for [m = 1 : 5] data using (is(quantity[p], m) && ours(0) ? $6 : NaN):(y(0)) skip 1 with points \
            pointtype solid_point(m) pointsize 1.1 * mark linecolor rgb line_colour(m) notitle, \
        for [m = 1 : 5] data using (is(quantity[p], m) && !ours(0) ? $6 : NaN):(y(0)) skip 1 with points \
            pointtype empty_point(m) pointsize 1.3 * mark linewidth 1.6 linecolor rgb line_colour(m) notitle, \
        data using (named(p) && !(p == 2 && $8 < 15) ? $6 : NaN):(y(0)):3 skip 1 with labels left \
            offset 1.4, 0 font font_small noenhanced notitle, \
        data using (named(p) && p == 2 && $8 < 15 ? $6 : NaN):(y(0)):3 skip 1 with labels right \
            offset -1.4, 0 font font_small noenhanced notitle, \
        for [m = 1 : 5] NaN with points pointtype solid_point(m) pointsize 1.1 * mark linecolor rgb line_colour(m) \
            title word(models, m)
    unset label 1
}
unset multiplot
unset output
