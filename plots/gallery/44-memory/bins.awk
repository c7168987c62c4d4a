# The curves for the picture, whose columns of pixels cannot show every change: of each of 160 parts of a
# step the row with the most bytes, as two corners of a stair; rows that change nothing are left out.
# Amounts are sums from the bottom up in GB, times seconds.
function corner(time,    i, sum, row)
{
    sum = value[bin, count]
    row = sprintf(",%.4g", sum / 1e9)
    for (i = 1; i < count; i++) {
        sum += value[bin, i]
        row = row sprintf(",%.4g", sum / 1e9)
    }
    if (row != drawn) {
        if (drawn != "") {
            printf "%s,%.5g%s\n", curve, time, drawn
        }
        printf "%s,%.5g%s\n", curve, time, row
        drawn = row
    }
}

function take(into,    i)
{
    if (!(into in most) || now[count + 1] > most[into]) {
        most[into] = now[count + 1]
        for (i = 1; i <= count; i++) {
            value[into, i] = now[i]
        }
    }
}

function finish()
{
    if (curve == "") {
        return
    }
    drawn = ""
    for (bin = 0; bin < bins; bin++) {
        corner(bin * end / bins / 1000)
    }
    printf "%s,%.5g%s\n", curve, end / 1000, drawn
}

# The file twice: the ends first. What is there at the end of a part is there when the next one begins.
BEGIN { FS = ","; bins = 160; count = 8 }
FNR == 1 { next }
NR == FNR { last[$1] = $3 > last[$1] + 0 ? $3 + 0 : last[$1]; next }
$1 "," $2 != curve {
    finish()
    curve = $1 "," $2
    end = last[$1]
    bin = -1
    split("", most)
    split("", now)
}
{
    at = int($3 / end * bins)
    at = at < bins ? at : bins - 1
    while (bin < at) {
        bin++
        take(bin)
    }
    for (i = 1; i <= count + 1; i++) {
        now[i] = $(i + 3)
    }
    take(at)
}
END { finish() }
