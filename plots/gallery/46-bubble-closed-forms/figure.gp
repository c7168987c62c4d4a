# Bubble against microbatches and against stages: points are simulated, lines the closed forms. Needs root
# (plots), data, out, ext.
width = 1200
height = 470
load root . '/style.gp'
load root . '/gallery/lib/lines.gp'
set datafile separator ','
across(x) = x / real(width)
down(y) = 1 - y / real(height)
set output out . '.' . ext
N = 8.0
# Idle slots over all slots of a GPU, in %; K stages per GPU, S stages in all.
pipeline(M, K) = 100 * (N - 1) / (K * M + N - 1)
zb_h1(M) = 100 * (N - 1) / (3 * M + N - 1)
zbv(M) = 100 * (N - 1) / 2 / (3 * M + (N - 1) / 2)
rounds(M, S) = 100 * (N - 1) / (S * M / N + N - 1)
is(panel, schedule) = stringcolumn(1) eq panel && stringcolumn(2) eq schedule

set multiplot
set border 3
set ytics nomirror out scale 0.5 font font_text
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
set yrange [0 : 52]
set samples 400
array title[3] = ['stages all alike, against microbatches', 'stages all alike, against stages', \
    'qwen3-32b on RTX 4090, against stages']
array panel[3] = ['microbatches', 'stages', 'qwen3-32b']
names_1 = 'gpipe 1f1b interleaved-1f1b zb-h1 zbv roundpipe'
names_2 = 'interleaved-1f1b looped-bfs roundpipe'
colour_of(name) = line_colour(name eq 'gpipe' ? 1 : name eq '1f1b' ? 2 : name eq 'interleaved-1f1b' ? 3 : \
    name eq 'zb-h1' ? 4 : name eq 'zbv' ? 5 : name eq 'looped-bfs' ? 7 : 6)
point_of(name) = name eq 'gpipe' ? 6 : name eq '1f1b' ? 2 : name eq 'interleaved-1f1b' ? 9 : \
    name eq 'zb-h1' ? 13 : name eq 'zbv' ? 11 : name eq 'looped-bfs' ? 4 : 7
form(name, x, p) = p == 1 ? (name eq 'gpipe' || name eq '1f1b' ? pipeline(x, 1) : \
        name eq 'interleaved-1f1b' ? pipeline(x, 2) : name eq 'zb-h1' ? zb_h1(x) : \
        name eq 'zbv' ? zbv(x) : rounds(x, 17)) : \
    p == 2 ? (name eq 'roundpipe' ? rounds(16, x) : pipeline(16, x / N)) : NaN
set label 10 'Bubble in % of GPU time, 8 GPUs   (points: simulated; lines: closed form; last panel: measured layer times)' \
    at screen across(20), screen down(18) left font font_title noenhanced
do for [p = 1 : 3] {
    names = p == 1 ? names_1 : names_2
    from = 20 + (p - 1) * 396
    set lmargin at screen across(from + 36)
    set rmargin at screen across(from + 376)
    set tmargin at screen down(76)
    set bmargin at screen down(height - 56)
    set label 12 title[p] at screen across(from + 36), screen down(60) left font font_title
    set logscale x 2
    set xrange [(p == 1 ? 7 : 6.5) : (p == 1 ? 145 : 75)]
    set xtics (4, 8, 16, 32, 64, 128) nomirror out scale 0.5 font font_text
    set xlabel (p == 1 ? 'microbatches' : 'stages, forward and backward' . (p == 3 ? '' : '')) \
        font font_text offset 0, 0.3
    set key at graph 1, 1 right top vertical maxcols 1 Left reverse samplen 2.2 spacing 1.2 font font_text \
        textcolor rgb ink noenhanced
    plot for [k = 1 : words(names)] (p < 3 ? form(word(names, k), x, p) : NaN) with lines \
            linewidth 1.4 linecolor rgb colour_of(word(names, k)) notitle, \
        for [k = 1 : words(names)] data using (is(panel[p], word(names, k)) ? (p == 1 ? $4 : $5) : NaN):6 \
            skip 1 with points pointtype point_of(word(names, k)) pointsize 1.3 * mark linewidth 1.6 \
            linecolor rgb colour_of(word(names, k)) title word(names, k)
    unset label 10
}
unset multiplot
unset output
