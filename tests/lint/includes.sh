#!/usr/bin/env bash
# Layers: sim -> common, exec -> common, experiments -> all; common knows neither; GSL only in sim; CUDA only in exec.
source "$(dirname "$0")/lib/lint.sh"

# forbid ROOM REGEX WHY: no file of ROOM includes anything that matches.
forbid()
{
    mapfile -t files < <(lint_files "c h cu cuh inc" "$1")
    lint_bare "${files[@]}" |
        { grep -E ":[[:space:]]*#[[:space:]]*include[[:space:]]*[\"<]($2)" || true; } | lint_report "$3"
}

cuda='cuda|cublas|nccl|curand|nvml|driver_types'
forbid common '(\.\./)*sim/' "common knows no sim"
forbid common '(\.\./)*exec/' "common knows no exec"
forbid sim '(\.\./)*exec/' "sim and exec share common only"
forbid exec '(\.\./)*sim/' "sim and exec share common only"
for room in common sim exec; do
    forbid "$room" '(\.\./)*experiments/' "experiments is above common, sim and exec"
done
for room in common sim exec experiments; do
    forbid "$room" '(\.\./)*tests/' "only tests include tests"
    forbid "$room" 'getopt' "options are rows (common/cli/options.h)"
done
for room in common exec tests; do
    forbid "$room" 'gsl/' "GSL is linked by the simulator only"
done
# Only sim/run/noise.c has a random number generator; sim/rppredict/fit.c only has least squares.
mapfile -t gsl_users < <(grep -rlE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]gsl/' "$lint_root"/sim 2>/dev/null | grep -v '/sim/run/noise\.c$' || true)
for file in "${gsl_users[@]}"; do
    echo "$file:1: includes GSL"
done | lint_report "only sim/run/noise.c includes GSL"
mapfile -t files < <(lint_files "c h" sim)
lint_bare "${files[@]}" | { grep -v '^sim/run/noise\.c:' || true; } | { grep -E 'gsl/gsl_(rng|randist|qrng)' || true; } |
    lint_report "only sim/run/noise.c draws random numbers"
for room in common sim tests experiments; do
    forbid "$room" "$cuda" "CUDA belongs to exec"
done
lint_end
