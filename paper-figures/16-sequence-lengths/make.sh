#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: this figure's predictions, beside any measured values, and the pictures.
source "$(dirname "${BASH_SOURCE[0]}")/../lib/figure.sh"
source "$paper/lib/prediction.sh"
answers=$(answers "$figure/cells.csv" rtx4090x8)
predictions "$answers" seq_len
bars=$(bars seq_len measured)
pairs=$(pairs "$bars")
draw bars="$bars" pairs="$pairs"
