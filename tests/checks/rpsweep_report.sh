#!/usr/bin/env bash
# rpsweep report: the page of a small store has what varied, the best points with the store's numbers
# and a picture per parameter; bad input leaves nothing. Release only: sanitizers see rpsweep in checks.rpsweep.
set -euo pipefail
source=$1
rpsweep=$2/experiments/rpsweep
for tool in awk sqlite3; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is missing"; exit 77; }
done
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
cd "$work"

cat >e.yaml <<'YAML'
name: small
question: Which schedule scales?
options: {fidelity: stage}
cross:
  schedule: [gpipe, 1f1b, roundpipe]
  gpus: [1, 2, 4]
  microbatches: [8, 16]
YAML
expect 0 "18 run" "$rpsweep" e.yaml --db s.db
drawn="3 pictures"
command -v gnuplot >/dev/null || drawn="0 pictures"
expect 0 "s.html: 18 runs, 3 parameters that varied, $drawn" "$rpsweep" report s.db
[ "$(ls)" = "$(printf '%s\n' e.yaml out s.db s.html)" ] || fail "left behind: $(ls)"

# well_formed PAGE: as a page of the paper, see report.sh.
well_formed()
{
    awk -f "$source/tests/checks/lib/page.awk" "$1" >wrong
    [ ! -s wrong ] || fail "$1: $(cut -c1-300 wrong | head)"
    ! command -v xmllint >/dev/null || xmllint --noout "$1" >wrong 2>&1 || fail "xmllint: $(head wrong)"
}
well_formed s.html
# One section for each that varied, and for nothing that follows from these.
[ "$(grep -o 'id="by-[a-z_]*"' s.html | tr '\n' ' ')" = 'id="by-schedule" id="by-gpus" id="by-microbatches" ' ] ||
    fail "sections: $(grep -o 'id="by-[a-z_]*"' s.html)"
grep -q 'schedule (3), gpus (3), microbatches (2); given by these: ' s.html || fail "what varied: $(grep varied s.html)"
grep -q 'Which schedule scales?' s.html || fail "the question is missing"
# The table of the best has the store's numbers, all digits, in order.
grep -o '^<tr>.*' s.html | sed -n 's#^<tr><td class="n" data-value="\([^"]*\)">.*#\1#p' >page
sqlite3 s.db "SELECT printf('%!.17g', tokens_per_s) FROM summary ORDER BY tokens_per_s DESC" >store
[ "$(wc -l <page)" -eq 18 ] || fail "$(wc -l <page) rows in the table"
paste page store | awk '{ if (sprintf("%.15g", $1) != sprintf("%.15g", $2)) print }' >differences
[ ! -s differences ] || fail "the table differs from the store: $(cat differences)"
# A picture's text has its lines' ends, the best over the parameters that it does not show.
if command -v gnuplot >/dev/null; then
    for schedule in gpipe 1f1b roundpipe; do
        ends=$(sqlite3 s.db "SELECT printf('%s: %.0f at 1, %.0f at 4;', schedule,
            max(tokens_per_s) FILTER (WHERE gpus = 1), max(tokens_per_s) FILTER (WHERE gpus = 4))
            FROM summary WHERE schedule = '$schedule'")
        grep 'alt="tokens per second against gpus, by schedule' s.html | grep -qF "$ends" || fail "no text: $ends"
    done
    [ "$(grep -o '<img src="data:image/svg+xml,[^"]*</*' s.html | wc -l)" -eq 0 ] || fail "a picture is not encoded"
    [ "$(grep -oE '(src|srcset)="data:image/svg\+xml,[^"]{4000,}"' s.html | wc -l)" -eq 6 ] || fail "not six pictures"
fi

# Without gnuplot the page says so; to stdout it is the same.
mkdir bin
prefix=("$(command -v env)" "PATH=$work/bin")
expect 0 "gnuplot is missing (package gnuplot-nox)" "$rpsweep" report s.db --html-out none.html
! grep -q '<img' none.html || fail "pictures without gnuplot"
grep -q 'Without pictures:' none.html || fail "the page does not say that it has no pictures"
well_formed none.html
"${prefix[@]}" "$rpsweep" report s.db --html-out - >stdout.html 2>/dev/null
prefix=()
cmp none.html stdout.html || fail "another page on stdout"

# What stands in a store is text, for HTML as for gnuplot.
cp s.db evil.db
sqlite3 evil.db "UPDATE experiments SET question = '<script>alert(1)</script> & \"x\"';
    UPDATE runs SET config_json = json_set(config_json, '\$.schedule', char(10) || '''; system \"touch made\"; \`touch made\` <b>')
        WHERE schedule = 'gpipe';
    UPDATE runs SET config_json = json_set(config_json, '\$.a\"b', id);"
expect 0 "evil.html: 18 runs" "$rpsweep" report evil.db
well_formed evil.html
[ ! -e made ] || fail "a name in the store has run as a command"

# One run: nothing varied. Runs that do not fit are not the best.
printf 'name: one\noptions: {schedule: gpipe, fidelity: stage}\n' >one.yaml
expect 0 "1 run" "$rpsweep" one.yaml --db one.db
expect 0 "1 run, 0 parameters that varied, 0 pictures" "$rpsweep" report one.db
well_formed one.html
cp s.db unfit.db
sqlite3 unfit.db "UPDATE results SET fits = (schedule <> 'roundpipe')"
expect 0 "unfit.html" "$rpsweep" report unfit.db
! grep -q '<td>roundpipe</td>' unfit.html || fail "what does not fit is among the best"
grep -q '6 do not fit into memory' unfit.html || fail "what does not fit is not counted"

# Bad input.
before=$(cksum <s.db)
expect 2 "No such file or directory" "$rpsweep" report nowhere.db
expect 2 "expected one store" "$rpsweep" report
expect 2 "expected one store" "$rpsweep" report s.db one.db
expect 2 "valid with report" "$rpsweep" export summary --db s.db --html-out x.html
expect 2 "without --db" "$rpsweep" report s.db --db one.db
expect 2 "not with export, merge, reference or report" "$rpsweep" report s.db --jobs 2
expect 2 "is the store itself" "$rpsweep" report s.db --html-out ./s.db
expect 2 "nowhere" "$rpsweep" report s.db --html-out nowhere/x.html
expect 2 "not a database" "$rpsweep" report e.yaml
expect 0 "values in" "$rpsweep" reference "$source/paper-figures/published/throughput_4090.csv" --db empty.db \
    --cell gpus=8,platform=rtx4090x8
expect 2 "there is no run in it" "$rpsweep" report empty.db
[ ! -e empty.html ] && [ ! -e x.html ] && [ ! -e nowhere.html ] || fail "a page of nothing: $(ls ./*.html)"
[ "$(cksum <s.db)" = "$before" ] || fail "the store has changed"
end
