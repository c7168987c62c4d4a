#!/usr/bin/env bash
# Same input, same bytes: no hidden clock and no hidden randomness in common and sim.
source "$(dirname "$0")/lib/lint.sh"

# Who may look at the clock, and why.
allowed=(
    common/base/log.c     # when progress is shown
    common/store/store.c # the date of a run, provenance only
    sim/engine/clock.c    # sim_wall_s
)
names='rand|srand|rand_r|random|srandom|random_r|[dejlmn]rand48|arc4random[a-z_]*|getrandom|getentropy'
names+='|time|clock|clock_gettime|timespec_get|gettimeofday|ftime|times|localtime|gmtime|localtime_r|gmtime_r'
mapfile -t files < <(lint_files "c h inc" common sim | grep -vxF "$(printf '%s\n' "${allowed[@]}")")
lint_bare "${files[@]}" |
    { grep -E "(^|[^A-Za-z0-9_.>])($names)[[:space:]]*\(|__(DATE|TIME|TIMESTAMP)__" || true; } |
    lint_report "results must not depend on clocks or hidden seeds"
lint_end
