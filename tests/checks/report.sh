#!/usr/bin/env bash
# The report (paper-figures/report.sh): a tree of made-up entries, one of which fails; then the page
# of the real READMEs with two real figures. Release only: it runs no compiled code but rpsim --version.
set -euo pipefail
source=$1
build=$2
for tool in awk sqlite3 cmark-gfm; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is missing"; exit 77; }
done
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"

# check PAGE: everything that page.awk and, where it is installed, xmllint find.
check()
{
    awk -f "$source/tests/checks/lib/page.awk" "$1" >"$work/wrong"
    [ ! -s "$work/wrong" ] || fail "$1: $(head -20 "$work/wrong")"
    ! command -v xmllint >/dev/null || xmllint --noout "$1" >"$work/wrong" 2>&1 || fail "xmllint: $(head -20 "$work/wrong")"
}

# has PAGE TEXT: the text stands in the page.
has()
{
    grep -qF -- "$2" "$1" || fail "${1#"$work"/} does not have: $2"
}

tree=$work/tree
mkdir -p "$tree/paper-figures" "$work/bin"
cp -r "$source/paper-figures/report.sh" "$source/paper-figures/report" "$tree/paper-figures"
# entry FOLDER: README.md from stdin; its make.sh is the file `body`.
entry()
{
    mkdir -p "$tree/$1"
    cat >"$tree/$1/README.md"
    cp "$work/body" "$tree/$1/make.sh"
}
cat >"$work/picture.svg" <<'SVG'
<?xml version="1.0"?>
<!DOCTYPE svg>
<svg width="300" height="100"
 xmlns="http://www.w3.org/2000/svg">
<g id="gnuplot_canvas"><title>gnuplot_plot_1</title><g id="gnuplot_canvas"/>
<defs><pattern id='hatch1' width="4" height="4"/></defs><rect fill='url(#hatch1)' width="9"/>
<defs><pattern id='hatch1' width="8" height="8"/></defs><rect fill="url(#hatch1)" width="10"/>
<use xlink:href='#mark' xmlns:xlink="http://www.w3.org/1999/xlink"/><circle id='mark' r="1"/></g>
</svg>
SVG
# Differences of +4 and -7 % (mean -1.5), one cell that set a constant, one out of memory on one side.
cat >"$work/body" <<EOF2
cp "$work/picture.svg" "\$2/02-good.svg"
cat >"\$2/02-good.csv" <<'END'
model,published,ours,difference_pct,set_a_constant
"a, <b>",100,104,4.00,
c,100,93.00000000001,-7.00,
d,100,300,200.00,yes
e,OOM,5,,
END
EOF2
entry paper-figures/02-good <<'MD'
# Figure 2: a < b & c

Kind: *predicted*. [A file](../published/x.csv), [a page](https://example.org/), ![remote](https://example.org/p.png)
<script>alert(1)</script>

What did not reproduce: the middle of it, and these:

| what | by |
|---|---|
| row of the table | 3 % |

**What the picture shows.** A square of 9 units beside a larger one of 10, both hatched, and
a *circle* after them with `one` "unit".

- `-b`: an item that is not of this picture.

**Method.** Nothing of this paragraph.
MD
# Its name begins with another's.
cat >"$work/body" <<EOF2
cp "$work/picture.svg" "\$2/02-good-too.svg"; cp "$work/picture.svg" "\$2/02-good-too-b.svg"
EOF2
entry paper-figures/02-good-too <<'MD'
# Its longer name

**Question.** Asked?

**Pictures.** Two pictures that look the same and are told apart by name:

- ``: the first of both
  on two lines.
- `-b`: the second of both, which [leads](nowhere) on.

**Result.** First finding.

1. Second finding.

**Files.** Folded away.
MD
printf '%s\n' "echo 'cause: 1 < 2 & 3' >&2; echo half >\"\$2/03-bad.csv\"; exit 3" >"$work/body"
entry paper-figures/03-bad <<<'# Figure 3: fails'
cat >"$work/body" <<'EOF2'
sqlite3 "$2/paper.db" "CREATE TABLE experiments (id INTEGER PRIMARY KEY, name TEXT);
    CREATE TABLE points (id INTEGER PRIMARY KEY, experiment_id INTEGER, failure TEXT);
    CREATE TABLE runs (id INTEGER PRIMARY KEY, point_id INTEGER);
    INSERT INTO experiments VALUES (1, 'my-study'); INSERT INTO points VALUES (1, 1, NULL), (2, 1, 'why');
    INSERT INTO runs VALUES (1, 1), (2, 1), (3, NULL);"
seq -f 'row,%g' 0 900 >"$2/31-study.csv"
EOF2
entry experiments/studies/31-study <<<'# A study'
printf 'printf "| x |\\n|---|\\n| of the gallery |\\n" >"$2/41-more.md"\n' >"$work/body"
entry plots/gallery/41-more <<<'# More'
printf 'ls "$2"/*.{csv,md} >"$2/all.md"\n' >"$work/body"
entry paper-figures/all <<<'# What runs last'

run()
{
    status=0
    bash "$tree/paper-figures/report.sh" "$@" >"$work/log" 2>&1 || status=$?
}
run "$work/bin" "$work/out"
page=$work/out/index.html
[ $status -eq 1 ] || fail "a failed entry: status $status: $(cat "$work/log")"
[ -s "$page" ] || { cat "$work/log"; exit 1; }
check "$page"
for name in 02-good 02-good-too 03-bad 31-study 41-more all; do
    has "$page" "<section class=\"entry\" id=\"$name\">"
    has "$page" "<a href=\"#$name\">"
done
# Findings before the picture, the rest folded after it; alternative texts of the right paragraph.
order=$(sed -n '/<section class="entry" id="02-good-too">/,/<\/section>/p' "$page" |
    grep -oE 'Asked|First finding|Second finding|<svg|<details class="method">|Folded away' | tr '\n' ' ')
[ "$order" = 'Asked First finding Second finding <svg <svg <details class="method"> Folded away ' ] || fail "order: $order"
for text in 'aria-label="Figure 2: a &lt; b &amp; c. A square of 9 units beside a larger one of 10, both hatched, and a circle after them with one &quot;unit&quot;."' \
    'same and are told apart by name: the first of both on two lines."' 'told apart by name: the second of both, which leads on."' \
    '<a href="02-good.csv">' '<a class="permalink" href="#02-good"' '<a href="https://arxiv.org/abs/2604.27085">'; do
    has "$page" "$text"
done
for text in 'exit status 3' 'cause: 1 &lt; 2 &amp; 3' 'Figure 2: a &lt; b &amp; c' '<td class="n">2</td><td class="n">-1.50 %</td>' \
    '<td class="n">-7.00 %</td><td>1 set a constant; 1 out of memory on one side only</td>' 'a, &lt;b&gt;' \
    'the middle of it' 'row of the table' 'The first 400 rows:' 'of the gallery' '41-more.md' \
    '<td>my-study</td><td class="n">2</td><td class="n">1</td>' 'href="https://example.org/"' 'viewBox="0 0 300 100"'; do
    has "$page" "$text"
done
grep -q 'failed: 03-bad$' "$work/log" || fail "the log does not name it: $(cat "$work/log")"
! grep -q '<td>half' "$page" || fail "what a failed entry has left is shown"
[ "$(grep -c '<svg' "$page")" -eq 3 ] || fail "$(grep -c '<svg' "$page") pictures, not 3"
# The second rectangle of each picture has the second pattern: not one of the same name before it.
for name in 02-good 02-good-too 02-good-too-b; do
    has "$page" "<pattern id=\"$name-hatch1-2\" width=\"8\""
    has "$page" "<rect fill=\"url(#$name-hatch1-2)\" width=\"10\""
done
[ "$(grep -c 'Nothing of this paragraph' "$page")" -eq 1 ] || fail "too much of the README did not reproduce"
# The check sees what it is for.
for error in 's#</nav>##' 's#href="02-good.csv"#href="02-bad.csv"#' 's#aria-label="Figure 2[^"]*"#aria-label="Figure 2"#' 's# id="31-study"# id="41-more"#' 's#<h1>#<h1><img src="http://x/y" />#' \
    's#href="\#all"#href="\#nobody"#' 's#url(\#02-good-hatch1-2)#url(http://x)#' 's#<h1>#<script></script><h1>#'; do
    sed "$error" "$page" >"$work/wrong.html"
    ! cmp -s "$page" "$work/wrong.html" || fail "$error changes nothing"
    [ -n "$(awk -f "$source/tests/checks/lib/page.awk" "$work/wrong.html")" ] || fail "nothing seen after $error"
done

# Mended: the store and everything else are made anew, and the status is 0.
printf 'touch "$2/03-bad.csv"; [ ! -e "$2/paper.db" ]\n' >"$tree/paper-figures/03-bad/make.sh"
run "$work/bin" "$work/out"
[ $status -eq 0 ] || fail "mended: status $status: $(cat "$work/log")"
! grep -q 'class="failed"' "$page" || fail "mended, and still failed"
# Interrupted: no page, whole or half, is left.
printf 'kill -TERM $PPID\n' >"$tree/paper-figures/03-bad/make.sh"
run "$work/bin" "$work/out"
[ $status -ne 0 ] && [ ! -e "$page" ] && [ -z "$(find "$work/out" -name '.index*')" ] || fail "interrupted: $(ls -A "$work/out")"
# A folder with something else in it is left alone.
mkdir "$work/other"
touch "$work/other/precious"
run "$work/bin" "$work/other"
[ $status -eq 2 ] && [ -e "$work/other/precious" ] || fail "other folder: status $status: $(cat "$work/log")"
run "$work/bin"
[ $status -eq 2 ] || fail "one argument: status $status"

# The real tree: every README, the pictures of two formulas; what has not run is said to be missing.
mkdir -p "$work/real/logs"
for name in 02-recompute-or-reload 05-intensity; do
    bash "$source/paper-figures/$name/make.sh" "$build" "$work/real" >"$work/log" 2>&1 || fail "$name: $(cat "$work/log")"
    echo "0 0" >"$work/real/logs/$name.status"
done
status=0
bash "$source/paper-figures/report.sh" --assemble "$build" "$work/real" >"$work/log" 2>&1 || status=$?
[ $status -eq 1 ] || fail "real tree: status $status: $(cat "$work/log")"
check "$work/real/index.html"
for script in "$source"/{paper-figures,experiments/studies,plots/gallery}/*/make.sh; do
    [ ! -f "$script" ] || has "$work/real/index.html" "<section class=\"entry\" id=\"$(basename "$(dirname "$script")")\">"
done
has "$work/real/index.html" "its make.sh has not run"
! grep 'not said' "$work/real/index.html" || fail "a figure whose kind its README does not name"
end
