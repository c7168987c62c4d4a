#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: this figure's predictions, beside any measured values, and the pictures.
source "$(dirname "${BASH_SOURCE[0]}")/../lib/figure.sh"
source "$paper/lib/prediction.sh"
answers=$(answers "$paper/lib/cells/throughput.csv" a800x8)
predictions "$answers" model
bars=$(bars model measured)
pairs=$(pairs "$bars")
draw bars="$bars" pairs="$pairs"
