#!/usr/bin/env bash
# The documentation site builds without a warning, has no dead link, loads nothing from a network, can be searched, and
# has the options of all programs; a dead link and a script from elsewhere are found. Release only: pages are no program.
set -euo pipefail
source=$(cd "$1" && pwd)
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
status=0
bash "$source/docs/site/make.sh" "$work/site" >"$work/log" 2>&1 || status=$?
if [ $status -eq 77 ]; then
    sed 's/^docs-site: /skipped: /' "$work/log"
    exit 77
fi
[ $status -eq 0 ] || { cat "$work/log"; exit 1; }
html=$work/site/html

for program in rpsim rpadvise rpplan rpimport rpdiff rppredict rpexec rpsweep; do
    page=$html/docs/generated/$program.html
    grep -q '<code>-h, --help</code>' "$page" || fail "$page lacks --help"
done
# Options keep all their values, and tables no backslash before a bar.
grep -q '<code>--format table&#124;json[^<]*</code>' "$html/docs/generated/rpsim.html" || fail "--format has not all its values"
! grep -rl '<code>[^<]*\\|' "$html" --include='*.html' || fail "a backslash of a table is seen"
python3 - "$html/search/search_index.json" <<'PY' || fail "the search does not know --max-seqlen and the bubble"
import json, sys
places = {entry["location"] for entry in json.load(open(sys.argv[1]))["docs"]
          if "--max-seqlen" in entry["text"] or "bubble" in entry["text"]}
sys.exit(not {"docs/generated/rpsim.html#work", "docs/glossary.html#idle-time"} & {*places} or len(places) < 5)
PY
# Also from pages that are opened as files.
if [ "${RP_LONG:-0}" = 1 ] && command -v chromium >/dev/null; then
    timeout 120 chromium --headless=new --no-sandbox --disable-gpu --user-data-dir="$work/profile" --virtual-time-budget=8000 \
        --dump-dom "file://$html/docs/quickstart.html?q=bubble" >"$work/dom" 2>"$work/errors" || cat "$work/errors"
    grep -q 'search-result__meta">[1-9][0-9]* matching documents<' "$work/dom" || fail "the search finds no bubble"
fi

cp "$html/docs/quickstart.html" "$work/kept"
printf '%s\n' '<a href="nowhere.html">' '<a href="glossary.html#nowhere">' '<script src="https://example.org/x.js">' >>"$html/docs/quickstart.html"
expect 1 " 3 of them wrong" python3 "$source/docs/site/links.py" "$html"
number=$(wc -l <"$work/kept")
for target in nowhere.html glossary.html#nowhere https://example.org/x.js; do
    number=$((number + 1))
    grep -qF "docs/quickstart.html:$number: $target: " "$work/out" || fail "nothing seen of $target: $(cat "$work/out")"
done
end
