#!/usr/bin/env bash
# The store as a user meets it: where a run is from, values to compare with, and what happens when
# the database is read-only, locked, full, something else, or of another version: for every command
# that opens one. Nothing may be lost or half-written.
set -euo pipefail
source=$1
build=$2
rpsim=$3
rpsweep=$build/experiments/rpsweep
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"

same()
{
    [ "$2" = "$3" ] || fail "$1: '$2', expected '$3'"
}

ask()
{
    sqlite3 -batch "$@"
}

# ---- provenance ----

commit_of()
{
    cmake -DSOURCE="$work/tree" -DOUT="$work/commit.c" -P "$source/cmake/Commit.cmake"
    sed -n 's/.*return "\(.*\)";/\1/p' "$work/commit.c"
}
if command -v git >/dev/null; then
    tree() { git -C "$work/tree" -c user.name=t -c user.email=t@t -c commit.gpgsign=false "$@"; }
    mkdir "$work/tree"
    same "outside of git" "$(commit_of)" unknown
    tree init -q
    same "without a commit" "$(commit_of)" unknown
    echo a >"$work/tree/a"
    tree add a
    tree commit -qm one
    one=$(commit_of)
    same "a commit" "$one" "$(tree rev-parse HEAD)"
    touch -d 2020-01-01 "$work/commit.c"
    commit_of >/dev/null
    same "time of a file that is right already" "$(date -r "$work/commit.c" +%Y)" 2020
    echo untracked >"$work/tree/b"
    same "a file that git does not track" "$(commit_of)" "$one"
    echo b >>"$work/tree/a"
    same "a change" "$(commit_of)" "$one-dirty"
    tree commit -qam two
    same "HEAD has moved" "$(commit_of)" "$(tree rev-parse HEAD)"
    mkdir "$work/tree/below"
    mv "$work/tree" "$work/above"
    ln -s "$work/above/below" "$work/tree"
    same "a folder inside of another work tree" "$(commit_of)" unknown
    rm "$work/tree"
fi
db=$work/runs.db
expect 0 "" "$rpsim" --schedule gpipe,1f1b --fidelity stage --seed 5 --db "$db"
same "commit of a run" "$(ask "$db" 'SELECT DISTINCT git_commit FROM runs')" \
    "$(sed -n 's/.*return "\(.*\)";/\1/p' "$build/generated/commit.c")"
same "host, version, seed, time, duration" "$(ask "$db" "SELECT DISTINCT host = '$(uname -n)',
    'rpsim ' || version = '$("$rpsim" --version | sed 's/ (commit.*//')', seed, created_utc > '2026', duration_s > 0
    AND duration_s < 100 FROM runs")" "1|1|5|1|1"

# ---- values to compare with ----

printf 'framework,model,tokens_per_s,max_seqlen_k\nroundpipe,a,100,OOM\nroundpipe-sync,a,200.5,\n' >"$work/p.csv"
expect 0 "p.csv: 3 values in" "$rpsweep" reference "$work/p.csv" --db "$db" --cell gpus=8,platform=p,source=x
expect 0 "p.csv: 3 values in" "$rpsweep" reference "$work/p.csv" --db "$db" --cell gpus=8,platform=p,source=x
same "references" "$(ask "$db" "SELECT group_concat(kind || source || schedule || optimizer || model ||
    platform || gpus || quantity || ifnull(value, 'OOM')) FROM (SELECT * FROM reference ORDER BY 1)")" \
    "publishedxroundpipeasyncap8tokens_per_s100.0,publishedxroundpipeasyncap8max_seqlen_kOOM,publishedxroundpipesyncap8tokens_per_s200.5"
refuse()
{
    printf "$2" >"$work/bad.csv"
    expect 2 "$1" "$rpsweep" reference "$work/bad.csv" --db "$db"
}
refuse "bad.csv:1: column 'speed' is neither" 'schedule,model,speed\n'
refuse "bad.csv:1: no quantity" 'schedule,model\n'
refuse "bad.csv:1: no schedule" 'model,tokens_per_s\n'
refuse "bad.csv:3: row 3, column 3: 'tokens_per_s' is 'fast'" 'schedule,model,tokens_per_s\na,b,1\na,b,fast\n'
refuse "bad.csv:2: gpus: '0' is not valid" 'schedule,model,tokens_per_s,gpus\na,b,1,0\n'
refuse "bad.csv:2: no schedule" 'schedule,model,tokens_per_s\n,b,1\n'
expect 2 "--cell: 'gpus' is not valid" "$rpsweep" reference "$work/p.csv" --db "$db" --cell gpus
expect 2 "--cell: 'kind=guessed' is not valid" "$rpsweep" reference "$work/p.csv" --db "$db" --cell kind=guessed
expect 2 "--cell: valid with reference" "$rpsweep" export best --db "$db" --cell gpus=8
expect 2 "valid is rpsweep reference FILE.csv" "$rpsweep" reference --db "$db"
expect 2 "nowhere.csv" "$rpsweep" reference "$work/nowhere.csv" --db "$db"
same "references after mistakes" "$(ask "$db" 'SELECT count(*) FROM reference')" 3
expect 0 "published,x,tokens_per_s,roundpipe,a,p" "$rpsweep" export error_per_cell --db "$db"
# The program knows all quantities that the table allows: a column each.
quantities=$(ask "$db" "SELECT sql FROM sqlite_schema WHERE name = 'reference'" | tr -d '\n' |
    sed "s/.*quantity IN (//; s/)).*//; s/[' ]//g")
printf 'schedule,model,%s\na,b%s\n' "$quantities" "$(sed 's/[^,]//g; s/,/,1/g; s/^/,1/' <<<"$quantities")" >"$work/all.csv"
expect 0 "all.csv: 21 values" "$rpsweep" reference "$work/all.csv" --db "$db"

# ---- what cannot be opened ----

cat >"$work/e.yaml" <<'YAML'
name: small
options: {fidelity: stage}
cross: {schedule: [gpipe, 1f1b], microbatches: [8, 12, 16]}
YAML
"$rpsweep" "$work/e.yaml" --db "$work/good.db" >/dev/null
rows()
{
    ask "$1" "SELECT command, schedule, program_hash, name, value FROM runs JOIN metrics
        ON run_id = runs.id ORDER BY 1, 4"
}
rows "$work/good.db" >"$work/good"

# every STATUS NEEDLE FILE: of each command that writes.
every()
{
    expect "$1" "$2" "$rpsim" --schedule gpipe --fidelity stage --db "$3"
    expect "$1" "$2" "$rpsweep" "$work/e.yaml" --db "$3" --resume
    expect "$1" "$2" "$rpsweep" merge "$work/good.db" --db "$3"
    expect "$1" "$2" "$rpsweep" reference "$work/p.csv" --db "$3"
}
every_reader()
{
    expect "$1" "$2" "$rpsweep" merge "$3" --db "$work/target.db"
    expect "$1" "$2" "$rpsweep" export best --db "$3"
}
unchanged()
{
    cmp -s "$1" "$1.before" || fail "$1 has changed"
}

for ((i = 0; i < 300; i++)); do echo schedule,model,makespan_ms; done >"$work/text.db"
cp "$work/good.db" "$work/newer.db"
ask "$work/newer.db" 'PRAGMA user_version = 5; PRAGMA wal_checkpoint' >/dev/null
cp "$work/good.db" "$work/older.db"
ask "$work/older.db" 'PRAGMA user_version = 2; PRAGMA wal_checkpoint' >/dev/null
for file in text newer older; do cp "$work/$file.db" "$work/$file.db.before"; done
every 2 "text.db: cannot read its version: file is not a database" "$work/text.db"
every_reader 2 "text.db: cannot read its version: file is not a database" "$work/text.db"
every 2 "newer.db: the database has version 5; this program knows versions up to 4: use a newer one" "$work/newer.db"
every_reader 2 "use a newer one" "$work/newer.db"
refusal="older.db: the database has version 2, which no release has written; valid are versions from 3 on: store the runs again"
every 2 "$refusal" "$work/older.db"
every_reader 2 "$refusal" "$work/older.db"
for file in text newer older; do unchanged "$work/$file.db"; done
every 2 "nowhere/x.db: cannot be made: No such file or directory" "$work/nowhere/x.db"
every_reader 2 "nowhere/x.db: No such file or directory" "$work/nowhere/x.db"
every 2 "cannot be opened: not a regular file" "$work"
expect 2 "RP_STORE_WAIT_S: 'long' is not valid" env RP_STORE_WAIT_S=long "$rpsweep" export best --db "$work/good.db"

# ---- read-only ----

# Root may write everything, so it has to be somebody else.
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    prefix=(setpriv --reuid 65534 --regid 65534 --clear-groups)
    chmod 777 "$work"
    mkdir "$work/locked"
    cp "$work/good.db" "$work/locked/good.db"
    chmod 666 "$work/good.db" "$work/locked/good.db"
else
    mkdir "$work/locked"
    cp "$work/good.db" "$work/locked/good.db"
fi
if "${prefix[@]}" test -x "$rpsweep" -a -r "$source/traces/models/qwen3-1.7b.yaml" && [ "$(id -u)${prefix[*]:0:1}" != 0 ]; then
    cp "$work/good.db" "$work/readonly.db"
    : >"$work/locked/empty.db"
    cp "$work/good.db" "$work/locked/a?b#c%41.db"
    chmod 444 "$work/readonly.db"
    chmod 555 "$work/locked"
    cp "$work/readonly.db" "$work/readonly.db.before"
    every 2 "readonly.db: the database is read-only; make the file and its folder writable" "$work/readonly.db"
    every 2 "locked/good.db: cannot read its version: attempt to write a readonly database: its folder cannot be written" \
        "$work/locked/good.db"
    every 2 "locked/new.db: cannot be made: Permission denied" "$work/locked/new.db"
    # To read it is enough that it can be read.
    for file in readonly.db locked/good.db 'locked/a?b#c%41.db'; do
        expect 0 "6 points added" "$rpsweep" merge "$work/$file" --db "$work/merged.db"
        "${prefix[@]}" "$rpsweep" export best --db "$work/$file" >"$work/best" || fail "export of $file"
        same "best of $file" "$(cut -d, -f4 "$work/best" | tr '\n' ' ')" "schedule 1f1b 1f1b 1f1b "
        rm -f "$work"/merged.db*
    done
    expect 2 "locked/empty.db: the database is empty and cannot be written" \
        "$rpsweep" export best --db "$work/locked/empty.db"
    unchanged "$work/readonly.db"
    same "files in a folder that cannot be written" "$(ls "$work/locked" | wc -l)" 3
else
    echo "this user may write everything, or nobody else may read the build: read-only stores were not tested"
fi
prefix=()

# ---- locked ----

# hold FILE SQL: another process has the lock until release.
hold()
{
    coproc HOLDER { exec sqlite3 -batch "$1"; }
    printf '%s;\nSELECT 1;\n' "$2" >&"${HOLDER[1]}"
    until IFS= read -r line <&"${HOLDER[0]}" && [ "$line" = 1 ]; do :; done
}
release()
{
    local holder=$HOLDER_PID
    printf 'COMMIT;\n.quit\n' >&"${HOLDER[1]}"
    wait "$holder" || true
}
cp "$work/good.db" "$work/busy.db"
export RP_STORE_WAIT_S=0
hold "$work/busy.db" "BEGIN EXCLUSIVE"
for command in "$rpsim --schedule gpipe --fidelity stage" "$rpsweep $work/e.yaml --resume" \
    "$rpsweep merge $work/good.db" "$rpsweep reference $work/p.csv"; do
    expect 1 "busy.db: cannot lock it: database is locked by another program for more than 0 s; wait until it has ended and run this again" \
        $command --db "$work/busy.db"
done
expect 0 1f1b "$rpsweep" export best --db "$work/busy.db" # readers see what was committed before
release
hold "$work/busy.db" "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; UPDATE runs SET seed = seed WHERE id = 1"
every 1 "busy.db: cannot" "$work/busy.db"
every_reader 1 "locked by another program" "$work/busy.db"
release
rows "$work/busy.db" | cmp -s - "$work/good" || fail "a locked store has other rows"
expect 0 "6 were in" "$rpsweep" "$work/e.yaml" --db "$work/busy.db" --resume
# A lock that goes is waited for.
export RP_STORE_WAIT_S=30
hold "$work/busy.db" "BEGIN IMMEDIATE"
"$rpsim" --schedule gpipe --fidelity stage --db "$work/busy.db" >/dev/null 2>"$work/out" &
waiting=$!
sleep 0.4
kill -0 $waiting 2>/dev/null || fail "a lock is not waited for"
release
wait $waiting || { fail "after a short lock:"; cat "$work/out"; }
same "rows after a short lock" "$(ask "$work/busy.db" 'SELECT count(*) FROM runs')" 7
unset RP_STORE_WAIT_S

# ---- no space ----

cp "$work/good.db" "$work/full.db"
cp "$work/good.db" "$work/other.db"
ask "$work/other.db" "UPDATE experiments SET name = 'other'"
for command in "$rpsim --schedule gpipe,1f1b,roundpipe --fidelity stage --db-ops" "$rpsweep merge $work/other.db"; do
    status=0
    (
        ulimit -f 40
        exec $command --db "$work/full.db" >"$work/out" 2>&1
    ) || status=$?
    same "exit status of $command when the disk is full" $status 1
    grep -q "full.db: cannot" "$work/out" || { fail "$command, a full disk:"; cat "$work/out"; }
done
rows "$work/full.db" | cmp -s - "$work/good" || fail "a full disk leaves a part of a run"
same "integrity" "$(ask "$work/full.db" 'PRAGMA integrity_check')" ok
status=0
"$rpsweep" export summary --db "$work/good.db" >/dev/full 2>"$work/out" || status=$?
same "export to a full disk" "$status$(grep -c 'standard output' "$work/out")" 11

# ---- the same rows in any order give the same export ----

for shard in 0 1 2; do "$rpsweep" "$work/e.yaml" --db "$work/part$shard.db" --shard $shard/3 >/dev/null; done
"$rpsweep" merge "$work"/part{0,1,2}.db --db "$work/up.db" >/dev/null
"$rpsweep" merge "$work"/part{2,0,1}.db --db "$work/down.db" >/dev/null
for view in best wins error_per_cell failures; do
    for way in up down; do "$rpsweep" export $view --db "$work/$way.db" | sed 's/^[0-9]*,//' >"$work/$way"; done
    cmp "$work/up" "$work/down" || fail "$view depends on the order of the runs"
done

end
