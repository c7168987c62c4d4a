#!/usr/bin/env bash
# Options belong to programs: libraries name settings by their keys (common/base/log.h), and only programs read command
# lines. Messages are shown and decide nothing: callers that decide take reasons (common/base/reason.h).
source "$(dirname "$0")/lib/lint.sh"

# The rest of rpsim's command line, commands shown by rpadvise, and the library's header for programs in C.
argv_users='^sim/(library/rpsim\.h|rpadvise/(export/|program/)|rpsim/(arguments|command|in_process|artefacts|report/))'
mapfile -t files < <(lint_files "c h inc" common sim exec |
    grep -vE '^common/cli/|^exec/(rpexec|cuda/(tests|emulator))/|/(main|options[a-z_]*|[a-z]+_rows)\.(c|h|inc)$' | grep -vE "$argv_users")
(cd "$lint_root" && { grep -nE '^[^/]*"--[a-z]' "${files[@]}" /dev/null || true; }) |
    { grep -vE ':[0-9]+:[[:space:]]*(/?\*)' || true; } |
    lint_report "messages name settings by their keys in braces (common/base/log.h)"
lint_bare "${files[@]}" | { grep -E '[^A-Za-z0-9_.>]argv([^A-Za-z0-9_]|$)' || true; } |
    { grep -vE '^common/base/process\.[ch]:|^exec/measure/predict\.c:|^common/timeline/gantt\.c:' || true; } |
    lint_report "only programs read command lines"

# The library's edge, rpsweep's report of a point, and the list of files, which shows why a file cannot be read.
mapfile -t files < <(lint_files "c h inc cc cu" common sim exec experiments |
    grep -vE '^common/base/log\.[ch]$|^(sim/library/call|experiments/point_run|sim/rpsim/report/list)\.c$')
lint_bare "${files[@]}" | { grep -E 'rp_log_capture_begin' || true; } |
    lint_report "messages are captured to be shown, in three files; who decides takes a reason (common/base/reason.h)"
lint_end
