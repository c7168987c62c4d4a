#!/usr/bin/env bash
# make_all.sh BINDIR OUTDIR: makes every study.
source "$(dirname "${BASH_SOURCE[0]}")/../../paper-figures/lib/make_all.sh"
