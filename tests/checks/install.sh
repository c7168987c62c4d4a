#!/usr/bin/env bash
# An installed rpsim finds its data and scripts beside itself, without the source tree and from any folder.
set -euo pipefail
build_dir=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build_dir" --prefix "$work/opt" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
mv "$work/opt" "$work/moved"
cd "$work"
rpsim=$work/moved/bin/rpsim
# A sentinel proves that the installed data are read and not the source tree's.
sed 's/^name: .*/name: only-here/' "$work/moved/share/roundpipe/traces/models/qwen3-1.7b.yaml" \
    >"$work/moved/share/roundpipe/traces/models/only-here.yaml"
env -u RP_TRACES -u RP_PLOTS "$rpsim" --list models | grep -x only-here >/dev/null
env -u RP_TRACES -u RP_PLOTS "$rpsim" --schedule gpipe --model only-here --costs qwen3-1.7b@rtx4090 --format csv |
    grep -q '^gpipe,only-here,'
# Likewise the plots: a broken style must break the chart.
env -u RP_TRACES -u RP_PLOTS "$rpsim" --schedule gpipe --gantt-out "$work/chart.svg" >/dev/null
test -s "$work/chart.svg"
echo 'this is no gnuplot' >"$work/moved/share/roundpipe/plots/style.gp"
if env -u RP_TRACES -u RP_PLOTS "$rpsim" --schedule gpipe --gantt-out "$work/broken.svg" >/dev/null 2>"$work/err"; then
    echo "install: the chart was not drawn with the installed scripts"
    exit 1
fi
test ! -e "$work/broken.svg"
for program in "$work/moved/bin"/*; do
    name=$(basename "$program")
    for file in man/man1/"$name".1 bash-completion/completions/"$name" zsh/site-functions/_"$name"; do
        [ -s "$work/moved/share/$file" ] || { echo "install: no share/$file"; exit 1; }
    done
done
"$work/moved/bin/rpexec" --list backends | grep '^host' >/dev/null
echo "install: data, scripts and programs are found"
