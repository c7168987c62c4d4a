# The bars of bars.gp for a narrow window: a row per place, names on the left, bars to the right. Needs
# what bars.gp needs but its panel, size.gp, and offset (pixels above).
set datafile separator ','
# Statistics count what is in range.
unset logscale
set xrange [* : *]
set yrange [* : *]
stats bars using ($4 > 0 ? $4 : $5 > 0 ? $5 : NaN) skip 1 nooutput name 'left'
stats bars using ($5 > 0 ? $5 : $4 > 0 ? $4 : NaN) skip 1 nooutput name 'right'
stats bars using 1 skip 1 nooutput name 'place'
least = left_min < right_min ? left_min : right_min
most = left_max > right_max ? left_max : right_max
base = bottom > 0 ? bottom : least * 0.6
limit = (top > most ? top : most) * 2
set lmargin at screen 108.0 / width
set rmargin at screen 1 - 24.0 / width
set tmargin at screen 1 - (offset + 84.0) / height
set bmargin at screen 1 - (offset + narrow_px(bars, pairs) - 2.0) / height
set border 4
unset label
unset xlabel
unset xtics
unset ytics
unset x2label
set logscale x
set logscale x2
set xrange [base * 0.9999 : limit]
set x2range [base * 0.9999 : limit]
set yrange [-place_max - 0.6 : 1.6]
set format x2 '%.0s%c'
set x2tics nomirror out scale 0.5 font font_small
set grid x2tics linecolor rgb faint linewidth 0.6 linetype 1
set ytics scale 0 right noenhanced font font_small offset 0.8, 0
set label 1 what at screen 0.5, screen 1 - (offset + 50.0) / height center font font_text noenhanced
set key at screen 4.0 / width, screen 1 - (offset + 20.0) / height left center horizontal \
    maxrows 1 reverse Left samplen 1 width -2 font font_small
do for [r = 1 : int(place_records)] {
    name = system("awk -F, -v r=" . r . " 'NR == 1 + r { name = $2 } NR > 1 && !($2 in first) { first[$2] = NR; at[$2] = $1 } END { if (first[name] == 1 + r) print at[name] \",\" name }' '" . bars . "'")
    if (strlen(name) > 0) {
        cut = strstrt(name, ',')
        set label name[cut + 1 :] at screen 6.0 / width, first 1 - real(name[1 : cut - 1]) left font font_title noenhanced
    }
}
colour(c) = c == 1 ? 0x5b2a86 : c == 2 ? 0xb5452c : 0x7fb8e6
higher(a, b) = a > b ? a : b
# The published bar is the upper one of a pair.
u0 = 0.02
u1 = 0.4
l0 = pairs ? -0.4 : -0.38
l1 = pairs ? -0.02 : 0.38
after = base * 1.06
plot bars using ($4 > 0 ? $4 : NaN):(-$1):(base):4:(u0 - $1):(u1 - $1) skip 1 with boxxyerror \
        fillstyle solid border rgb ink fillcolor rgb 'white' linewidth 1 title pairs ? given : '', \
    for [c = 0 : 2] bars using ($5 > 0 && $9 == c ? $5 : NaN):(-$1):(base):5:(l0 - $1):(l1 - $1) skip 1 with boxxyerror \
        fillstyle solid noborder fillcolor rgb colour(c) title c == 0 ? 'ours' : c == 1 ? 'RoundPipe' : 'synchronous', \
    bars using (after):(-$1):6 skip 1 with labels left font font_small textcolor rgb ink notitle, \
    bars using ($4 > 0 ? $4 * 1.06 : after * (strlen(strcol(6)) ? (limit / base) ** 0.16 : 1)):(-$1):7 skip 1 with labels left \
        font font_small textcolor rgb '#2f6fa8' notitle, \
    bars using ($4 + $5 > 0 ? higher($4, $5) * 1.06 : NaN):(-$1):8 skip 1 with labels left \
        font font_small textcolor rgb ink notitle, \
    bars using (NaN):(-$1):ytic(3) skip 1 with points notitle
