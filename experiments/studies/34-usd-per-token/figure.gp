# Left: USD per billion tokens on the two servers that have a price, with the best system that fits and
# with the best other than RoundPipe. Right: the hourly price at which eight of the other cards would
# cost as much per token. Needs root (plots), bars, out, ext.
width = 1280
height = 540
load root . '/style.gp'

set datafile separator ','
set output out . '.' . ext
models = 'qwen3-1.7b llama3.1-8b gpt-oss-20b qwen3-32b qwen3-235b-lora'
set border 3
set tics nomirror out scale 0.5 font font_text
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
unset xtics
half = 0.4
price_4090 = system(sprintf("awk -F, '$2 == \"rtx4090x8\" { print $7; exit }' '%s'", bars)) + 0
price_a800 = system(sprintf("awk -F, '$2 == \"a800x8\" { print $7; exit }' '%s'", bars)) + 0

set multiplot
set tmargin at screen 1 - 96.0 / height
set bmargin at screen 40.0 / height
set lmargin at screen 62.0 / width
set rmargin at screen 650.0 / width
set label 1 sprintf('USD per billion tokens   (8 x 4090 at %.2f USD/h, 8 x A800 at %.2f USD/h)', price_4090, price_a800) \
    at screen 62.0 / width, screen 1 - 20.0 / height left font font_title noenhanced
set key at screen 62.0 / width, screen 1 - 58.0 / height left center horizontal maxrows 2 \
    reverse Left samplen 1.6 width 2 font font_text
set logscale y
set yrange [5 : 6000]
set xrange [-1 : 24]
do for [i = 1 : 5] {
    set label 10 + i word(models, i) at first (i - 1) * 5 + 1.5, screen 22.0 / height center font font_text \
        textcolor rgb ink noenhanced
}
place(which) = 5 * ($1 - 1) + which
box(server, which, value) = strcol(2) eq server && value > 0 ? 5 * ($1 - 1) + which : NaN
plot bars using (box('rtx4090x8', 0, $3)):3:(5 * ($1 - 1) - half):(5 * ($1 - 1) + half):(5):3 with boxxyerror \
        fillstyle solid noborder fillcolor rgb '#0072b2' title '4090, best', \
    bars using (box('rtx4090x8', 1, $4)):4:(5 * ($1 - 1) + 1 - half):(5 * ($1 - 1) + 1 + half):(5):4 with boxxyerror \
        fillstyle pattern 4 border rgb '#0072b2' fillcolor rgb '#0072b2' title '4090, without RoundPipe', \
    bars using (box('a800x8', 2, $3)):3:(5 * ($1 - 1) + 2 - half):(5 * ($1 - 1) + 2 + half):(5):3 with boxxyerror \
        fillstyle solid noborder fillcolor rgb '#e69f00' title 'A800, best', \
    bars using (box('a800x8', 3, $4)):4:(5 * ($1 - 1) + 3 - half):(5 * ($1 - 1) + 3 + half):(5):4 with boxxyerror \
        fillstyle pattern 5 border rgb '#e69f00' fillcolor rgb '#e69f00' title 'A800, without RoundPipe', \
    bars using (box('rtx4090x8', 0, $3)):3:(sprintf($3 < 20 ? '%.1f' : '%.0f', $3)) with labels font font_small offset 0, 0.6 notitle, \
    bars using (box('rtx4090x8', 1, $4)):4:(sprintf($4 < 20 ? '%.1f' : '%.0f', $4)) with labels font font_small offset 0, 0.6 notitle, \
    bars using (box('a800x8', 2, $3)):3:(sprintf($3 < 20 ? '%.1f' : '%.0f', $3)) with labels font font_small offset 0, 0.6 notitle, \
    bars using (box('a800x8', 3, $4)):4:(sprintf($4 < 20 ? '%.1f' : '%.0f', $4)) with labels font font_small offset 0, 0.6 notitle

unset logscale y
set lmargin at screen 712.0 / width
set rmargin at screen 1 - 16.0 / width
set label 1 'Worth in USD per hour: the price at which tokens cost the same' \
    at screen 712.0 / width, screen 1 - 20.0 / height left font font_title noenhanced
set key at screen 712.0 / width, screen 1 - 58.0 / height left center horizontal maxrows 2 \
    reverse Left samplen 1.6 width 2 font font_text
set yrange [0 : 12]
plot bars using (box('rtx3090x8', 0, $5)):5:(5 * ($1 - 1) - half):(5 * ($1 - 1) + half):(0):5 with boxxyerror \
        fillstyle solid noborder fillcolor rgb '#999999' title '8 x 3090 against the A800', \
    bars using (box('rtx3090x8', 1, $6)):6:(5 * ($1 - 1) + 1 - half):(5 * ($1 - 1) + 1 + half):(0):6 with boxxyerror \
        fillstyle pattern 4 border rgb '#666666' fillcolor rgb '#666666' title '8 x 3090 against the 4090', \
    bars using (box('rtx5090x8', 2, $5)):5:(5 * ($1 - 1) + 2 - half):(5 * ($1 - 1) + 2 + half):(0):5 with boxxyerror \
        fillstyle solid noborder fillcolor rgb '#009e73' title '8 x 5090 against the A800', \
    bars using (box('rtx5090x8', 3, $6)):6:(5 * ($1 - 1) + 3 - half):(5 * ($1 - 1) + 3 + half):(0):6 with boxxyerror \
        fillstyle pattern 5 border rgb '#009e73' fillcolor rgb '#009e73' title '8 x 5090 against the 4090', \
    bars using (box('rtx3090x8', 0, $5)):5:(sprintf('%.1f', $5)) with labels font font_small offset 0, 0.6 notitle, \
    bars using (box('rtx3090x8', 1, $6)):6:(sprintf('%.1f', $6)) with labels font font_small offset 0, 0.6 notitle, \
    bars using (box('rtx5090x8', 2, $5)):5:(sprintf('%.1f', $5)) with labels font font_small offset 0, 0.6 notitle, \
    bars using (box('rtx5090x8', 3, $6)):6:(sprintf('%.1f', $6)) with labels font font_small offset 0, 0.6 notitle
unset multiplot
unset output
