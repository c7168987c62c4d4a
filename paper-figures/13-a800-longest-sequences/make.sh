#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the predictions of this figure, beside measured values where there are any,
# and the pictures.
source "$(dirname "${BASH_SOURCE[0]}")/../lib/figure.sh"
source "$paper/lib/prediction.sh"
answers=$(answers "$paper/lib/cells/lengths.csv" a800x8)
predictions "$answers" model
bars=$(bars model measured)
pairs=$(pairs "$bars")
draw bars="$bars" pairs="$pairs"
