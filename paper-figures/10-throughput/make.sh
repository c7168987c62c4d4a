#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the data of this figure from a run of BINDIR/rppredict, printed with means,
# and the pictures.
source "$(dirname "${BASH_SOURCE[0]}")/../lib/figure.sh"
source "$paper/lib/prediction.sh"
answers=$(answers "$paper/lib/cells/throughput.csv" rtx4090x8)
table throughput_4090.csv throughput "$answers"
bars=$(bars model published)
draw bars="$bars"
