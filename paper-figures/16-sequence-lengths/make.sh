#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the predictions of this figure, beside measured values where there are any,
# and the pictures.
source "$(dirname "${BASH_SOURCE[0]}")/../lib/figure.sh"
source "$paper/lib/prediction.sh"
answers=$(answers "$figure/cells.csv" rtx4090x8)
predictions "$answers" seq_len
bars=$(bars seq_len measured)
pairs=$(pairs "$bars")
draw bars="$bars" pairs="$pairs"
