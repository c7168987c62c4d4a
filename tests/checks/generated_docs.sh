#!/usr/bin/env bash
# docs/generated is what docs_pages writes from the rows; a page that is altered, missing or left over is noticed.
# The rows of outputs (output_rows.inc), which no program reads, name what programs print. Release only: pages are no
# program.
set -euo pipefail
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
PATH=$build:$build/exec:$build/experiments:$PATH
pages=$source/docs/generated
mkdir "$work/written"
"$build/tests/docs_pages" "$work/written" || fail "docs_pages: rows have no meaning, or columns no row"

# differs FOLDER: what the folder has otherwise than the generator.
differs()
{
    diff -r "$1" "$work/written" >"$work/diff" 2>&1 && return 1
    return 0
}
! differs "$pages" || fail "cmake --build build/release --target generated_docs: $(cat "$work/diff")"

# ---- the comparison can fail
# notices FILE COMMAND...: in a copy of the folder, in which the command is run, FILE is what differs.
notices()
{
    local file=$1
    shift
    rm -rf "$work/copy"
    cp -r "$pages" "$work/copy"
    (cd "$work/copy" && "$@")
    differs "$work/copy" && grep -qF "$file" "$work/diff" || fail "$* of docs/generated is not noticed"
}
notices rpsim.md sed -i 's/`--piece-mb M`/`--piece-mb MB`/' rpsim.md
notices platforms.md sed -i '/`gpus`/d' platforms.md
notices store.md rm store.md
notices own.md touch own.md

# ---- outputs
# documented PAGE HEADING...: names in the first column of the tables below these headings.
documented()
{
    local page=$1
    shift
    for heading in "$@"; do
        awk -v heading="## $heading" '/^## / { inside = $0 == heading } inside && /^\| `/ { split($0, cell, "`"); print cell[2] }' \
            "$pages/$page.md"
    done | sort -u
}
# places FILE...: the members of JSON as the rows have them; [] stands for all elements.
places()
{
    for file in "$@"; do
        sqlite3 :memory: "SELECT DISTINCT fullkey FROM json_tree(readfile('$file')) WHERE typeof(key) = 'text'"
    done | sed -E 's/\[[0-9]+\]/[]/g; s/^\$(\[\])?\.//; s/"//g' | sort -u
}
header()
{
    head -n 1 "$1" | tr , '\n' | sort -u
}
# same WHAT: stdin, names of an output, are those of $work/documented.
same()
{
    diff "$work/documented" - >"$work/diff" || fail "$1 (<: docs/generated, >: output): $(cat "$work/diff")"
}

cd "$work"
rpsim --schedule 1f1b --gpus 2 --iterations 1 --timeline-out one.csv --chakra-out chakra >out 2>&1 || fail "$(cat out)"
rpsim --schedule 1f1b --gpus 2 --iterations 1 --set 'costs.fwd_ms*1.1' --timeline-out two.csv >out 2>&1 || fail "$(cat out)"
rpdiff one.csv two.csv --format json >diff.json
documented rpdiff "JSON of two timelines" >documented
places diff.json | same "rpdiff of two timelines"
rpplan --format json >plan.json
documented rpplan JSON >documented
places plan.json | same rpplan
rpimport --chakra chakra --format json >chakra.json
documented rpimport 'JSON of `--chakra`' >documented
places chakra.json | same rpimport

rpsim --schedule 1f1b --gpus 2 --iterations 2 --intervals 2 --explain --format json >run.json
documented rpsim "Inputs of a prediction" >documented
places run.json | sed -n 's/^inputs\[\]\.//p' | same "inputs of rpsim"
documented rpsim Explanation | grep -vxFf <(sed -n '/^| key of/,$s/^| `\([a-z_]*\)`.*/\1/p' "$pages/rpsim.md") >documented
places run.json | sed -n 's/^explain\.//p' |
    grep -vE '^(attribution|blame|critical_path|bounds)[a-z_]*(\[\])?\.|^elasticity\.(of_shared\.|switch|root|intersocket|dram|network|leaf)' |
    same "explanations of rpsim"

sed 's/^host_memory_gb: .*/host_memory_gb: 16/' "$source/traces/platforms/rtx4090x8.yaml" >rtx4090x8.yaml
rpadvise --model tiny --platform rtx3090x8 --gpus 1 --seq-len 128 --budget 300 --format json >fits.json
rpadvise --model llama3.1-70b --platform h100x8 --schedule fsdp,1f1b --gpus 1 --format json >none.json 2>out || true
rpadvise --model qwen3-1.7b --platform ./rtx4090x8.yaml --schedule mobius,1f1b --gpus 1 --format json >less.json 2>out || true
rpadvise --model qwen3-1.7b --platform rtx4090x8 --seq-len 256k --schedule mobius --gpus 1 --format json >short.json 2>out || true
runs='answer\.(memory_front|batch_front|staleness_front|changes)\[\]\.'
rpsim --schedule 1f1b --gpus 2 --iterations 2 --intervals 2 --format json >plain.json
documented rpadvise JSON >documented
places fits.json none.json less.json short.json | grep -vxFf <(places plain.json) |
    { grep -vE "^$runs($(documented rpadvise "Runs in these arrays" | paste -sd'|'))$" || true; } | same rpadvise
documented rpadvise "Runs in these arrays" >documented
places fits.json | sed -nE 's/^answer\.memory_front\[\]\.//p' | same "runs of rpadvise"

rpexec --backend host --gpus 2 --steps 2 --schedule 1f1b --record recorded --loss-out loss.csv --format json >exec.json 2>out ||
    fail "$(cat out)"
rpexec --backend host --gpus 2 --steps 2 --schedule 1f1b --costs recorded --predict --db runs.db >out 2>&1 || fail "$(cat out)"
{ documented rpexec JSON; sed -n '/^The settings follow/p' "$pages/rpexec.md" | grep -o '`[a-z_]*`' | grep -vx '`_`' | tr -d '`'; } |
    sort -u >documented
places exec.json | same rpexec
documented rpexec 'CSV of `--loss-out`' >documented
header loss.csv | same "rpexec --loss-out"
for file in links starts operators; do
    documented rpexec "\`$file.csv\` of \`--record\`" >documented
    header recorded/$file.csv | same "$file.csv"
done
rpdiff runs.db --format json >runs.json
documented rpdiff "JSON of a store" >documented
places runs.json | same "rpdiff of a store"
rpdiff runs.db --format csv >runs.csv
documented rpdiff "CSV of a store" >documented
header runs.csv | same "rpdiff --format csv"
printf '%s\n' 'framework,model,seq_len,global_batch,microbatches,calls,grain,sequence_slices' \
    'roundpipe,qwen3-1.7b,4096,,,,,' >cells.csv
rppredict --cells cells.csv --intervals 2 >predicted.csv 2>out || fail "$(cat out)"
documented rppredict 'CSV of `--cells`' >documented
header predicted.csv | same "rppredict --cells"
end
