#!/usr/bin/env bash
# Rooms are folders of common, sim and exec. Folders do not include each other in a circle, whatever their level, and
# neither do a folder and its sub-folder. Only its own folder and tests include a private header (*_internal.h), only
# the program itself includes a program's folder, the executor does not know the host backend, and a folder holds at
# most 25 files of C.
# At the top stand only the rooms, and the documents that visitors look for there.
source "$(dirname "$0")/lib/lint.sh"

cd "$lint_root"
mapfile -t files < <(lint_files "c h inc cc cu cuh" common sim exec experiments)
# FILE:LINE FILE INCLUDED, of our own headers.
awk 'FNR <= 200 && /^[ \t]*#[ \t]*include[ \t]*"[a-z]+\// { split($0, part, "\""); print FILENAME ":" FNR, FILENAME, part[2] }' \
    "${files[@]}" >"$lint_work/includes"

# FROM TO FILE:LINE INCLUDED: each include joins two folders right below the deepest folder that holds both files, which
# itself is "FOLDER/.". A circle at any level is then a circle of these.
awk '
    function below(folder, path) {
        path = substr(path, length(folder) + 1)
        return folder (index(path, "/") ? substr(path, 1, index(path, "/") - 1) : ".")
    }
    {
        folder = ""
        while (below(folder, $2) == below(folder, $3) && below(folder, $2) != folder ".") {
            folder = below(folder, $2) "/"
        }
        from = below(folder, $2)
        to = below(folder, $3)
        if (from != to) {
            print from, to, $1, $3
        }
    }' "$lint_work/includes" >"$lint_work/edges"
# tsort names the folders of a loop on stderr.
cut -d' ' -f1,2 "$lint_work/edges" | tsort 2>&1 >/dev/null | sed -n 's/^tsort: \([a-z][^ ]*\)$/\1/p' >"$lint_work/loop" || true
awk 'FILENAME ~ /loop$/ { loop[$1]; next } $1 in loop && $2 in loop { print $3 ": includes " $4 }' \
    "$lint_work/loop" "$lint_work/edges" | lint_report "folders include each other in a circle"

awk '$3 ~ /internal\.h$/ { a = $2; b = $3; sub(/[^\/]*$/, "", a); sub(/[^\/]*$/, "", b) }
    $3 ~ /internal\.h$/ && a != b && $2 !~ /\/tests\// { print $1 ": includes " $3 }' "$lint_work/includes" |
    lint_report "private headers are for their own folder"

awk 'function program(path) {
        return match(path, /^(sim\/rp[a-z]+|exec\/rpexec|experiments)\//) ? substr(path, 1, RLENGTH - 1) : ""
    }
    program($3) != "" && program($2) != program($3) {
        print $1 ": includes " $3
    }' "$lint_work/includes" | lint_report "only a program includes its folder"

# Training and records ask for the host's cores and its operators as a reference.
awk '$3 ~ /^exec\/host\// && $2 !~ /^exec\/(host|backends|rpexec|measure|describe|cuda\/tests)\// { print $1 ": includes " $3 }' \
    "$lint_work/includes" | lint_report "the executor knows no backend"

# A schedule's name is a label: only command lines, and the options of a study, turn names into schedules.
awk '/rp_schedule_(find|require)\(/ &&
    FILENAME !~ /^(common\/schedule\/schedule_type\.[ch]|common\/compile\/|sim\/rp[a-z]+\/|sim\/study\/setup\.c|exec\/setup\/|exec\/rpexec\/|experiments\/)/ {
        print FILENAME ":" FNR ": " $0 }' "${files[@]}" |
    lint_report "only command lines look a schedule up by name"

# A new op kind is a row; no other code compares with it.
awk '/[!=]= *RP_OP_|case RP_OP_|RP_OP_[A-Z_]+ *[!=]=/ && !/RP_OP_(JOIN|OVERLAP|KIND_COUNT)/ { print FILENAME ":" FNR ": " $0 }' \
    "${files[@]}" | lint_report "ops are asked for what the row of their kind says (common/program/op_rows.inc)"

find . -maxdepth 1 -mindepth 1 -printf '%f\n' |
    awk '!/^(\.[A-Za-z].*|build.*|cmake|common|docs|exec|experiments|paper-figures|plots|sim|tests|traces)$/ &&
        !/^((ARCHITECTURE|CHANGELOG|CONTRIBUTING|README)\.md|CITATION\.cff|CMakeLists\.txt|CMakePresets\.json|LICENSE|bootstrap\.sh)$/ {
            print $0 ":1:" }' | lint_report "no place for a file at the top"

printf '%s\n' "${files[@]}" | grep -vE '\.(cc|inc)$' | sed 's|/[^/]*$||' | grep -vx 'common/schedules' | sort | uniq -c |
    awk '$1 > 25 { print $2 ":1: " $1 " files" }' | lint_report "a folder has at most 25 files"
lint_end
