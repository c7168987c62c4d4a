#!/usr/bin/env bash
# Schedule diagrams: every op once, no two at a time on a GPU, nothing before what it needs, makespan and
# idle time as their closed forms, evaluated here from N = 4, M = 8 and the tables' durations alone.
# Release only.
set -euo pipefail
source=$1
for tool in awk sqlite3; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is missing"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name=20-schedule-diagrams
mkdir "$work/bin"
ln -s "$3" "$work/bin/rpsim"
bash "$source/paper-figures/$name/make.sh" "$work/bin" "$work/out" >"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
! grep -i warning "$work/log" || exit 1
[ "$(find "$work/out" -name '.*' | wc -l)" -eq 0 ] || { echo "temporary files are left"; exit 1; }
if command -v gnuplot >/dev/null; then
    for picture in $name $name-zero-bubble $name-v-shaped $name-roundpipe $name-mobius; do
        for ext in svg png pdf; do
            [ "$(wc -c <"$work/out/$picture.$ext")" -gt 5000 ] || { echo "$picture.$ext is not drawn"; exit 1; }
        done
    done
fi
awk -F, '
    function problem(text) { print text; bad = 1 }
    function far(a, b) { return a - b > 1e-9 || b - a > 1e-9 }
    FNR == 1 { file++; next }
    file == 1 {
        if ($1 == last && $2 == gpu && $7 < free) problem($0 ": overlaps")
        last = $1; gpu = $2; free = $8
        if (ends[$1] < $8) ends[$1] = $8
        work[$1] += $8 - $7
        id = $1 SUBSEP $6 SUBSEP $4 SUBSEP $5
        if ((id, $3) in start) problem($0 ": twice")
        start[id, $3] = $7; end[id, $3] = $8; seen[id]; at[id] = $2
        count[$1, $3]++
        if ($1 !~ /roundpipe/ && ($4 >= S[$1])) S[$1] = $4 + 1
        next
    }
    {
        reported[$2] = $7
        idle[$2] = $11
        if ($8 != "" && (far($9, $7) || far($10, 0))) problem($2 ": not its closed form")
    }
    END {
        # By name, worked out by hand: forward 1, backward 2 per GPU, N - 1 = 3.
        m["gpipe"] = m["1f1b"] = (8 + 3) * (1 + 2)
        m["interleaved-1f1b"] = m["looped-bfs"] = 8 * 3 + 3 * 3 / 2
        m["zb-h1"] = m["zb-h2"] = 8 * 3 + 3 * 1
        m["zb1p"] = m["zbv"] = 8 * 3 + 3 / 2
        m["dualpipev"] = 8 * 3 + 3
        m["mobius"] = 8 * 4 + 3 * 4 / 2
        m["roundpipe"] = (9 * 2 + 3) * 3
        m["roundpipe overlapped"] = (9 * 2 * 2 + 3) * 3
        for (s in m) {
            if (far(ends[s], m[s]) || far(reported[s], m[s])) problem(s ": " ends[s] ", the closed form is " m[s])
        }
        for (s in ends) {
            shown++
            # Four GPUs x eight microbatches x 3 (recompute 4); RoundPipe 27 per microbatch.
            busy = s == "roundpipe" ? 8 * 27 : s ~ /^roundpipe/ ? 16 * 27 : s == "mobius" ? 128 : 96
            if (far(work[s], busy)) problem(s ": works for " work[s] ", not " busy)
            if (far(reported[s], ends[s])) problem(s ": the summary has another makespan")
            left = 100 * (1 - busy / (4 * ends[s])) - idle[s]
            if (left > 1e-5 || left < -1e-5) problem(s ": idle " idle[s])
            if (s ~ /^roundpipe/) continue
            if (count[s, "F"] != S[s] * 8) problem(s ": " count[s, "F"] " forwards")
            if (count[s, "B"] + count[s, "I"] != S[s] * 8) problem(s ": backwards")
            if (count[s, "I"] != count[s, "W"]) problem(s ": weight gradients")
        }
        if (shown != 14) problem(shown " schedules")
        for (id in seen) {
            split(id, key, SUBSEP)
            if (key[1] ~ /^roundpipe/) continue
            back = (id, "B") in start ? "B" : "I"
            before = key[1] SUBSEP key[2] SUBSEP key[3] - 1 SUBSEP key[4]
            after = key[1] SUBSEP key[2] SUBSEP key[3] + 1 SUBSEP key[4]
            if (key[3] > 0 && start[id, "F"] < end[before, "F"]) problem(id ": forward too early")
            if (start[id, back] < end[id, "F"]) problem(id ": backward before its forward")
            if (key[3] + 1 < S[key[1]]) {
                other = (after, "B") in start ? "B" : "I"
                if (start[id, back] < end[after, other]) problem(id ": backward too early")
            }
            if ((id, "W") in start && start[id, "W"] < end[id, "I"]) problem(id ": weight gradient too early")
        }
        exit bad
    }' "$work/out/$name.csv" "$work/out/$name-summary.csv"
echo "14 schedules as their closed forms"
