# Four claims as bars, published beside ours, and the bound each is judged by as a line. Needs root
# (plots), data, bars (panel,place,model,published,ours; 'bound' rows have a value in
# published), out, ext (make.sh).
# narrow: the panels one below the other.
width = narrow ? 358 : 900
height = narrow ? 664 : 640
load root . '/style.gp'

set datafile separator ','
set datafile missing ''
set output out . '.' . ext
set multiplot
set border 3
unset xtics
set style textbox opaque noborder margins 0.2, 0.2
set ytics nomirror out scale 0.5 font font_small
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
set style fill solid border linecolor rgb ink
set boxwidth 0.34
names = "speedup scaling bubbles longer"
formats = "%.2f %.0f %.0f %.1f"
apart = narrow ? 0.5 : 0 # numbers of a pair, that they do not touch
do for [panel = 1:4] {
    left = (panel % 2 == 1 || narrow ? narrow ? 34.0 : 50.0 : 500.0) / width
    bottom = (narrow ? 664.0 - 160 * panel + 26 : panel < 3 ? 364.0 : 62.0) / height
    set lmargin at screen left
    set rmargin at screen left + (narrow ? 320.0 : 385.0) / width
    set bmargin at screen bottom
    set tmargin at screen bottom + (narrow ? 76.0 : 200.0) / height
    unset label
    set label 1 word("Speedup Scaling Bubbles Sequences", panel) . ': ' . \
        (panel == 1 ? 'RoundPipe over the best baseline (times)' : \
        panel == 2 ? '8 GPUs over 8 times one GPU (%)' : \
        panel == 3 ? 'GPU time without computing, 8 GPUs (%)' : 'the longest over FSDP''s (times)') \
        at screen left, screen bottom + (narrow ? 96.0 : 224.0) / height left font font_title noenhanced
    if (panel == 1) {
        set key at screen left, screen 1 - (narrow ? 10.0 : 18.0) / height left center horizontal maxrows 1 \
            reverse Left samplen (narrow ? 1.2 : 1.6) width (narrow ? -3 : 0) font font_text
    } else {
        unset key
    }
    if (narrow) {
        set ytics word("1 50 20 4", panel) + 0
    }
    name = word(names, panel)
    is(x) = strcol(1) eq name && strcol(3) ne 'bound' ? x : NaN
    set xrange [0.4 : 5.6]
    set yrange [0 : *<100]
    plot bars using (is($2 - 0.18)):4 with boxes fillcolor rgb 'white' title 'published', \
        bars using (is($2 + 0.18)):5 with boxes fillcolor rgb '#5b2a86' title 'ours', \
        bars using (is($2)):(0):3 with labels font font_small noenhanced rotate by 20 right \
            offset 2, -0.9 notitle, \
        bars using (strcol(1) eq name && strcol(3) eq 'bound' ? 0.4 : NaN):4:(5.2):(0) with vectors nohead \
            dashtype 2 linewidth 1.5 linecolor rgb '#b8860b' title 'the claim', \
        bars using (is($2 - 0.18)):4:(sprintf(word(formats, panel), $4)) with labels font font_small boxed \
            offset -apart, 0.6 notitle, \
        bars using (is($2 + 0.18)):5:(sprintf(word(formats, panel), $5)) with labels font font_small boxed \
            offset apart, 0.6 notitle
}
unset multiplot
unset output
