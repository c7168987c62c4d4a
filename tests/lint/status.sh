#!/usr/bin/env bash
# Diagnostics go through common/base/log.h: nobody else writes to stderr, and nobody but main ends the
# process (_exit is for the child of a fork).
source "$(dirname "$0")/lib/lint.sh"

mapfile -t files < <(lint_files "c h inc" common sim | grep -vx 'common/base/log.c')
lint_bare "${files[@]}" >"$lint_work/bare"
{ grep -E '[^A-Za-z0-9_]stderr([^A-Za-z0-9_]|$)|[^A-Za-z0-9_.>](perror|psignal|warnx?|errx?|syslog)[[:space:]]*\(' \
    "$lint_work/bare" || true; } | lint_report "messages go through common/base/log.h"
{ grep -E '(^|[^A-Za-z0-9_.>])(exit|_Exit|quick_exit)[[:space:]]*\(' "$lint_work/bare" || true; } |
    lint_report "functions return a status; only main ends the process"
lint_end
