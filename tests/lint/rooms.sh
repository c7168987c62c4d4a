#!/usr/bin/env bash
# Rooms are folders of common, sim and exec; their sub-folders belong to them. Rooms do not include each other in a
# circle, a private header (*_internal.h) is included from its own folder and by tests only, a program's folder does not
# include another program's, the executor does not know the host backend, and a folder holds at most 25 files of C.
# At the top stand the rooms, the documents that visitors look for there, and nothing else.
source "$(dirname "$0")/lib/lint.sh"

cd "$lint_root"
mapfile -t files < <(lint_files "c h cu cuh" common sim exec experiments)
# FILE:LINE FILE INCLUDED, of our own headers.
awk 'FNR <= 200 && /^[ \t]*#[ \t]*include[ \t]*"[a-z]+\// { split($0, part, "\""); print FILENAME ":" FNR, FILENAME, part[2] }' \
    "${files[@]}" >"$lint_work/includes"

# tsort names the rooms of a loop on stderr.
awk '
    function room(path,  part, n) { n = split(path, part, "/"); return n > 2 ? part[1] "/" part[2] : part[1] }
    room($2) != room($3) { print room($2), room($3) }' "$lint_work/includes" | sort -u >"$lint_work/edges"
tsort "$lint_work/edges" 2>&1 >/dev/null | sed -n 's/^tsort: \([a-z].*\)/\1/p' | grep -v 'input contains' >"$lint_work/loop" || true
while read -r room; do
    awk -v room="$room" 'index($2, room "/") == 1 { print }' "$lint_work/includes" |
        while read -r place _ included; do
            into=$(cut -d/ -f1-2 <<<"$included")
            [ "$into" = "$room" ] || ! grep -qxF "$into" "$lint_work/loop" || echo "$place: includes $included"
        done
done <"$lint_work/loop" | lint_report "rooms include each other in a circle"

awk '$3 ~ /internal\.h$/ { a = $2; b = $3; sub(/[^\/]*$/, "", a); sub(/[^\/]*$/, "", b) }
    $3 ~ /internal\.h$/ && a != b && $2 !~ /\/tests\// { print $1 ": includes " $3 }' "$lint_work/includes" |
    lint_report "private headers are for their own folder"

# rpsweep runs points of rpsim and rpexec by their own options and records, in one file; candidates of rpadvise are
# command lines of rpsim, and its rows are rpsim's.
awk 'function program(path) {
        return match(path, /^(sim\/rp[a-z]+|exec\/rpexec|experiments)\//) ? substr(path, 1, RLENGTH - 1) : ""
    }
    program($2) != "" && program($3) != "" && program($2) != program($3) && $2 != "experiments/point_run.c" &&
        !(program($2) == "sim/rpadvise" && program($3) == "sim/rpsim") {
        print $1 ": includes " $3
    }' "$lint_work/includes" | lint_report "programs do not include each other"

# Training and records ask for the host's cores and its operators as a reference.
awk '$3 ~ /^exec\/host\// && $2 !~ /^exec\/(host|backends|rpexec|measure|describe|cuda\/tests)\// { print $1 ": includes " $3 }' \
    "$lint_work/includes" | lint_report "the executor knows no backend"

# A program's name is a label: command lines alone turn names into schedules.
awk '/rp_schedule_(find|require)\(/ &&
    FILENAME !~ /^(common\/schedule\/schedule_type\.[ch]|common\/compile\/|sim\/rp[a-z]+\/|exec\/rpexec\/|experiments\/)/ {
        print FILENAME ":" FNR ": " $0 }' "${files[@]}" |
    lint_report "only command lines look a schedule up by name"

# A new op kind is a row, which nobody else compares with.
awk '/[!=]= *RP_OP_|case RP_OP_|RP_OP_[A-Z_]+ *[!=]=/ && !/RP_OP_(JOIN|OVERLAP|KIND_COUNT)/ { print FILENAME ":" FNR ": " $0 }' \
    "${files[@]}" | lint_report "ops are asked for what the row of their kind says (common/program/op_rows.inc)"

find . -maxdepth 1 -mindepth 1 -printf '%f\n' |
    awk '!/^(\.[A-Za-z].*|build.*|cmake|common|docs|exec|experiments|paper-figures|plots|sim|tests|traces)$/ &&
        !/^((ARCHITECTURE|CHANGELOG|CONTRIBUTING|README)\.md|CITATION\.cff|CMakeLists\.txt|CMakePresets\.json|LICENSE|bootstrap\.sh)$/ {
            print $0 ":1:" }' | lint_report "no place for a file at the top"

printf '%s\n' "${files[@]}" | sed 's|/[^/]*$||' | grep -vx 'common/schedules' | sort | uniq -c |
    awk '$1 > 25 { print $2 ":1: " $1 " files" }' | lint_report "a folder has at most 25 files"
lint_end
