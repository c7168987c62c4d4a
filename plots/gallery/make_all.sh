#!/usr/bin/env bash
# make_all.sh BINDIR OUTDIR: makes every plot of the gallery.
source "$(dirname "${BASH_SOURCE[0]}")/../../paper-figures/lib/make_all.sh"
