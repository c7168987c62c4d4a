#!/usr/bin/env bash
# make.sh BUILD OUT: the documentation site in OUT/html, from the repository's documents and the man pages of BUILD's
# programs. Needs MkDocs with the theme material (apt package mkdocs-material); nothing from a network.
# Exit status 77 where MkDocs is missing, 1 at a warning or a dead link.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
if ! command -v mkdocs >/dev/null || [ ! -d /usr/share/mkdocs/themes/material ]; then
    echo "docs-site: no MkDocs with its theme material (apt package mkdocs-material)" >&2
    exit 77
fi
rm -rf "$out/man"
mkdir "$out/man"
for program in rpsim rpadvise rpplan rpimport rpdiff rppredict exec/rpexec experiments/rpsweep; do
    "$build/$program" --print-man >"$out/man/${program##*/}.1"
done
python3 "$source/docs/site/stage.py" "$source" "$out/man" "$out"
if ! mkdocs build --strict --clean --config-file "$out/mkdocs.yml" >"$out/mkdocs.log" 2>&1; then
    grep -vE '^(INFO|  )' "$out/mkdocs.log" >&2
    exit 1
fi
{ printf 'var __search = { index: Promise.resolve('; cat "$out/html/search/search_index.json"; printf ') };\n'; } \
    >"$out/html/search/search_index.js" # theme/search/from_file.js
python3 "$source/docs/site/links.py" "$out/html"
