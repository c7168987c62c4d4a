#!/usr/bin/env bash
# make_all.sh BINDIR OUTDIR: makes every figure of the paper.
source "$(dirname "${BASH_SOURCE[0]}")/lib/make_all.sh"
