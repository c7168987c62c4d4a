#!/usr/bin/env bash
# Diagnostics go through common/base/log.h: nobody else writes to stderr, and nobody but main ends the process (_exit is
# for the child of a fork). Progress of training, sweeps and searches is on stderr, too. A broken invariant names its
# place.
source "$(dirname "$0")/lib/lint.sh"

mapfile -t files < <(lint_files "c h inc" common sim exec experiments | grep -vE '^common/base/log.c$|^exec/cuda/(tests|emulator)/|^(exec/rpexec/train|experiments/sweep|sim/rpadvise/trial).c$')
lint_bare "${files[@]}" >"$lint_work/bare"
{ grep -E '[^A-Za-z0-9_]stderr([^A-Za-z0-9_]|$)|[^A-Za-z0-9_.>](perror|psignal|warnx?|errx?|syslog)[[:space:]]*\(' \
    "$lint_work/bare" || true; } | lint_report "messages go through common/base/log.h"
{ grep -E '(^|[^A-Za-z0-9_.>])(exit|_Exit|quick_exit)[[:space:]]*\(' "$lint_work/bare" || true; } |
    lint_report "functions return a status; only main ends the process"
mapfile -t files < <(lint_files "c h inc" common sim exec experiments | grep -vE '/tests/|^common/base/log.c$')
(cd "$lint_root" && { grep -nE 'return RP_BROKEN;' "${files[@]}" /dev/null || true; }) |
    { grep -vE 'return RP_BROKEN; /\* (logged by|somebody else has failed)' || true; } |
    lint_report "rp_broken() says where (common/base/log.h)"
lint_end
