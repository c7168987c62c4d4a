#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: USD per billion tokens from published, predicted and any measured throughputs, and the
# pictures.
source "$(dirname "${BASH_SOURCE[0]}")/../lib/figure.sh"
source "$paper/lib/prediction.sh"
given=$measured/12-a800-throughput.csv
[ -f "$given" ] || given=/dev/null
here=$(answers "$paper/lib/cells/throughput.csv" rtx4090x8)
there=$(answers "$paper/lib/cells/throughput.csv" a800x8)
report=$(predicted)
awk -v kind=throughput -v means="$work/means" -f "$paper/lib/prediction.awk" "$report" "$here" \
    "$published/throughput_4090.csv" > "$work/10.csv"
awk -v key=model -f "$paper/lib/answers.awk" "$given" "$there" > "$work/12.csv"
awk -f "$figure/cost.awk" "$published/prices.csv" "$work/10.csv" "$work/12.csv" > "$work/points.csv"
mv "$work/points.csv" "$out/$name.csv"
cat "$out/$name.csv"
here=$(bars model published platform=rtx4090x8)
there=$(bars model published platform=a800x8)
# price PLATFORM: USD per hour.
price()
{
    awk -F, -v platform="$1" '$1 == platform { print $2 }' "$published/prices.csv"
}
pairs=$(pairs "$there")
price_here=$(price rtx4090x8)
price_there=$(price a800x8)
draw here="$here" there="$there" pairs="$pairs" price_here="$price_here" price_there="$price_there"
