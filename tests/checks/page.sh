#!/usr/bin/env bash
# Pages of --html-out in headless Chromium: what they show, by search, pointer, finger and keys, and that they ask for
# nothing from outside. Release only: pages of sanitized programs are the same, and unit.common_page writes them.
set -euo pipefail
source=$(realpath "$1")
build=$(realpath "$2")
rpsim=$(realpath "$3")
command -v python3 >/dev/null || { echo "skipped: python3 is missing"; exit 77; }
browser=
for name in chromium chromium-browser google-chrome-stable google-chrome; do
    [ -n "$browser" ] || browser=$(command -v "$name" || true)
done
[ -n "$browser" ] || { echo "skipped: no Chromium here"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
export RP_TRACES=$source/traces

# A run with its timeline and its program, so that the page is compared with them.
(cd "$work" && "$rpsim" --schedule roundpipe --gpus 8 --iterations 3 --intervals off --html-out one.html --timeline-out one.csv \
    --program-out one.txt --format json >one.out)
"$rpsim" --schedule roundpipe --gpus 8 --html-out "$work/default.html" >/dev/null
[ "$(wc -c <"$work/default.html")" -lt 2000000 ] || fail "the page of the default run has $(wc -c <"$work/default.html") bytes"
(cd "$work" && "$rpsim" --schedule gpipe,1f1b,roundpipe --gpus 4 --iterations 2 --intervals off --html-out many.html --format json >many.out)
(cd "$work" && "$rpsim" --schedule roundpipe --gpus 4 --fidelity stage --model qwen3-1.7b,llama3.1-8b --html-out stage.html \
    --format json >stage.out)
# Each recompute mode of a ranking has ranks of its own, and a table.
"$rpsim" --schedule all --gpus 2 --microbatches 2 --fidelity stage --html-out "$work/all.html" >/dev/null 2>&1
awk '/<h2>Runs/ { tables++ }
    /<h2>Runs: recompute (wait|early)</ { named++ }
    /<tbody>/ { last = 0 }
    match($0, /^<tr><td class="n">[0-9]+</) { rank = substr($0, 20, RLENGTH - 20) + 0; bad += rank < last; last = rank; ranks++ }
    END { exit !(tables == 2 && named == 2 && ranks > 20 && !bad) }' "$work/all.html" || fail "the tables of a ranking: $(grep '<h2>' "$work/all.html")"
# A path that would end the script and begin another one.
mkdir "$work/x<"
cp "$source/traces/platforms/rtx4090x8.yaml" "$work/x</script><script>window.evil=1<!--&amp;.yaml"
(cd "$work" && "$rpsim" --schedule 1f1b --gpus 2 --iterations 2 --intervals off --platform 'x</script><script>window.evil=1<!--&amp;.yaml' \
    --html-out evil.html >/dev/null)

# A measured run, and its prediction beside it.
rpexec=$build/exec/rpexec
small=(--backend host --schedule 1f1b --gpus 2 --seq-len 16)
(cd "$work" && "$rpexec" "${small[@]}" --steps 3 --record costs >/dev/null 2>said &&
    "$rpexec" "${small[@]}" --steps 2 --costs costs --predict --record run --html-out exec.html >/dev/null 2>said &&
    "$build/rpdiff" run/predicted.csv run --html-out diff.html >/dev/null &&
    "$build/rpdiff" run/predicted.csv run/timeline.csv --html-out bare.html >/dev/null 2>said) || { fail "no page of a measured run: $(cat "$work/said")"; end; }

# An output that cannot be written is no output.
expect 2 "cannot be written" "$rpsim" --schedule gpipe --gpus 2 --html-out "$work/no/such/page.html"
expect 2 "cannot be written" "$rpexec" "${small[@]}" --steps 1 --html-out "$work/no/such/page.html"
expect 2 "cannot be written" "$build/rpdiff" "$work/run" "$work/run" --trace-out "$work/never.html.json" --html-out "$work/no/such/page.html"
expect 2 "with two timelines only" "$build/rpdiff" "$work/runs.db" --html-out "$work/never.html"
expect 1 "No space left" "$rpsim" --schedule gpipe --gpus 2 --html-out /dev/full
expect 2 "valid are up to 64" "$rpsim" --schedule all --recompute all --model qwen3-1.7b,llama3.1-8b --intervals off \
    --html-out "$work/never.html"
for left in "$work"/never.html* "$work"/no; do
    [ ! -e "$left" ] || fail "$left was left"
done

python3 "$source/tests/checks/lib/page_test.py" "$browser" "$work" || fail "the page is not as it should be"
end
