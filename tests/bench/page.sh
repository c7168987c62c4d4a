#!/usr/bin/env bash
# page.sh RPSIM REPEATS [MICROBATCHES]: time to the first picture of a page of --html-out, and how many pictures a second it
# draws while it is moved, as CSV: medians of REPEATS in headless Chromium without a GPU, in a window of 1280 x 900. The
# default of 88 microbatches makes more than 100,000 ops. Exit status 77: no Chromium, or no python3.
set -euo pipefail
rpsim=$1
repeats=$2
microbatches=${3:-88}
here=$(dirname "${BASH_SOURCE[0]}")
browser=
for name in chromium chromium-browser google-chrome-stable google-chrome; do
    [ -n "$browser" ] || browser=$(command -v "$name" || true)
done
{ [ -n "$browser" ] && command -v python3 >/dev/null; } || { echo "skipped: no Chromium or no python3" >&2; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$rpsim" --schedule roundpipe --gpus 8 --microbatches "$microbatches" --intervals off --html-out "$work/page.html" >"$work/said"
PYTHONPATH=$here/../checks/lib python3 "$here/page.py" "$browser" "$work/page.html" "$repeats"
