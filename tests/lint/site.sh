#!/usr/bin/env bash
# Every document is on the documentation site: an entry of nav in docs/site/mkdocs.yml names it, and each entry a document.
source "$(dirname "$0")/lib/lint.sh"
lint_need python3 python3
{ python3 "$lint_root/docs/site/stage.py" "$lint_root" --check || true; } | lint_report "the site has every document"
lint_end
