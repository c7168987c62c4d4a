# One panel of grouped bars: what was published or measured on the left of each place (outlined),
# ours on the right (filled), text at the base where a run is out of memory or was not made. Needs
# what style.gp needs and its variables, bars (bars.awk's file), pairs (1: there are left bars),
# heading, what (the axis), given (name of the left bars), panel_top and panel_bottom (pixels from
# the top), bottom and top (the axis goes at least from here to there; 0: by the data) and keys (1:
# with a key and remark, what else is to be said).
set datafile separator ','
# A slot may have one bar only: then it counts twice.
stats bars using ($4 > 0 ? $4 : $5 > 0 ? $5 : NaN) skip 1 nooutput name 'left'
stats bars using ($5 > 0 ? $5 : $4 > 0 ? $4 : NaN) skip 1 nooutput name 'right'
stats bars using 1 skip 1 nooutput name 'place'
least = left_min < right_min ? left_min : right_min
most = left_max > right_max ? left_max : right_max
# 1, 2 or 5 of a decade below, so that marks have room; room for labels above.
low = least * 0.6
decade = 10.0 ** floor(log10(low))
base = decade * (low >= 5 * decade ? 5 : low >= 2 * decade ? 2 : 1)
base = bottom > 0 && bottom < base ? bottom : base
high = most * (most / base) ** 0.16
high = top > high ? top : high
set yrange [base * 0.9999 : high]
set logscale y
set xrange [-1 : place_max + 1]
set lmargin at screen 74.0 / width
set rmargin at screen 1 - 16.0 / width
set tmargin at screen 1 - panel_top * 1.0 / height
set bmargin at screen 1 - panel_bottom * 1.0 / height
set border 3
unset label
set label 1 heading at screen 74.0 / width, screen 1 - (panel_top - 62.0) / height left \
    font font_title noenhanced
synchronous = int(system("grep -c ',roundpipe-sync,' '" . bars . "' || true"))
if (keys) {
    set label 2 (pairs ? 'black marks: ' . given . ', blue: ours' . (strlen(remark) ? '    ' : '') : '') . remark at screen 1 - 16.0 / width, \
        screen 1 - (panel_top - 62.0) / height right font font_small textcolor rgb ink noenhanced
    set key at screen 74.0 / width, screen 1 - (panel_top - 34.0) / height left center horizontal \
        maxrows 1 reverse Left samplen 1.6 width 1 font font_text
} else {
    unset key
}
set ytics nomirror out scale 0.5 font font_text
unset mytics
# Whole decades, and 2 and 5 of each where these are few.
set ytics ()
do for [d = int(floor(log10(base))) : int(floor(log10(high)))] {
    do for [k in high / base < 1000 ? '1 2 5' : '1'] {
        at = k * 10.0 ** d
        if (at >= base * 0.999 && at <= high) {
            set ytics add (sprintf('%.10g', at) at)
        }
    }
}
set grid ytics linecolor rgb faint linewidth 0.6 linetype 1
set label 3 what at screen 14.0 / width, screen 1 - (panel_top + panel_bottom) / 2.0 / height center \
    rotate by 90 font font_text noenhanced
set xtics scale 0 rotate by 45 right font font_small noenhanced
# Names of the groups below their systems: tics cannot have two levels. No sprintf here: gnuplot's
# makes something else of %% now and then.
rows = int(place_records)
do for [r = 1 : rows] {
    name = system("awk -F, -v r=" . r . " 'NR == 1 + r { name = $2 } NR > 1 { sum[$2] += $1; n[$2]++; if (!($2 in first)) first[$2] = NR } END { if (first[name] == 1 + r) printf \"%g,%s\", sum[name] / n[name], name }' '" . bars . "'")
    if (strlen(name) > 0) {
        cut = strstrt(name, ',')
        set label name[cut + 1 :] at first real(name[1 : cut - 1]), \
            screen 1 - (panel_bottom + 104.0) / height center font font_title textcolor rgb ink noenhanced
    }
}
# Where a pair's bars begin and end beside their place; ours alone takes more of it.
l0 = -0.44
l1 = -0.02
r0 = pairs ? 0.02 : -0.36
r1 = pairs ? 0.44 : 0.36
colour(c) = c == 1 ? 0x5b2a86 : c == 2 ? 0xb5452c : 0x7fb8e6
higher(a, b) = a > b ? a : b
mark_at = base * (high / base) ** 0.012

plot bars using 1:($4 > 0 ? $4 : NaN):($1 + l0):($1 + l1):(base):4 skip 1 with boxxyerror \
        fillstyle solid border rgb ink fillcolor rgb 'white' linewidth 1 \
        title pairs ? given : '', \
    bars using 1:($5 > 0 && $9 == 0 ? $5 : NaN):($1 + r0):($1 + r1):(base):5 skip 1 with boxxyerror \
        fillstyle solid noborder fillcolor rgb colour(0) title 'ours, other systems', \
    bars using 1:($5 > 0 && $9 == 2 ? $5 : NaN):($1 + r0):($1 + r1):(base):5 skip 1 with boxxyerror \
        fillstyle solid noborder fillcolor rgb colour(2) title synchronous ? 'ours, RoundPipe synchronous' : '', \
    bars using 1:($5 > 0 && $9 == 1 ? $5 : NaN):($1 + r0):($1 + r1):(base):5 skip 1 with boxxyerror \
        fillstyle solid noborder fillcolor rgb colour(1) title 'ours, RoundPipe', \
    bars using ($1 + (l0 + l1) / 2):(mark_at):6 skip 1 with labels rotate by 90 left \
        font font_small textcolor rgb ink notitle, \
    bars using ($1 + (r0 + r1) / 2):(mark_at):7 skip 1 with labels rotate by 90 left \
        font font_small textcolor rgb '#2f6fa8' notitle, \
    bars using 1:($4 + $5 > 0 ? higher($4, $5) * (high / base) ** 0.012 : NaN):8 skip 1 with labels \
        rotate by 90 left font font_small textcolor rgb ink notitle, \
    bars using 1:(NaN):xtic(3) skip 1 with points notitle
