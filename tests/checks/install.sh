#!/usr/bin/env bash
# An installation is whole and may be moved: programs find their data and each other from their own place, without the
# source tree and from any folder, and no file names the sources, the build or the prefix. -DRP_EXEC=OFF needs neither
# OpenBLAS, hwloc nor Criterion; with RP_LONG=1 it is built, too.
# Sanitized: --long
set -euo pipefail
source_dir=$(cd "$1" && pwd)
build_dir=$(cd "$2" && pwd)
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
source "$(dirname "${BASH_SOURCE[0]}")/lib/installed.sh"
cmake --install "$build_dir" --prefix "$work/opt" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
mv "$work/opt" "$work/moved"
mkdir "$work/run"
cd "$work/run"
unset RP_TRACES RP_PLOTS RP_DATA
rpsim=$work/moved/bin/rpsim

# ---- what is there
[ "$(ls "$work/moved/bin" | paste -sd' ')" = "rpadvise rpdiff rpexec rpimport rpplan rppredict rpsim rpsweep" ] ||
    fail "programs: $(ls "$work/moved/bin")"
for program in "$work/moved/bin"/*; do
    name=$(basename "$program")
    for file in man/man1/"$name".1 bash-completion/completions/"$name" zsh/site-functions/_"$name"; do
        [ -s "$work/moved/share/$file" ] || fail "no share/$file"
    done
done
for file in README.md LICENSE copyright CHANGELOG.md docs/examples.md common/cli/cli.md; do
    [ -s "$work/moved/share/doc/rpsim/$file" ] || fail "no share/doc/rpsim/$file"
done
names=(-e "$work/opt")
if grep -q '^CMAKE_BUILD_TYPE:[^=]*=Release$' "$build_dir/CMakeCache.txt"; then # others have lines for debuggers
    names+=(-e "$source_dir" -e "$build_dir")
fi
grep -rlF "${names[@]}" "$work/moved" && fail "files that name the sources, the build or the prefix"

# ---- the installed data are read: a model that only they have; a broken style breaks the chart
sed 's/^name: .*/name: only-here/' "$work/moved/share/rpsim/traces/models/qwen3-1.7b.yaml" \
    >"$work/moved/share/rpsim/traces/models/only-here.yaml"
expect 0 only-here "$rpsim" --list models
expect 0 gpipe,only-here, "$rpsim" --schedule gpipe --model only-here --costs qwen3-1.7b@rtx4090 --format csv
expect 0 '' "$rpsim" --schedule gpipe --gantt-out chart.svg
[ -s chart.svg ] || fail "no chart"
cp "$work/moved/share/rpsim/plots/style.gp" "$work/style.gp"
echo 'this is no gnuplot' >"$work/moved/share/rpsim/plots/style.gp"
expect 1 gnuplot "$rpsim" --schedule gpipe --gantt-out broken.svg
[ ! -e broken.svg ] || fail "the chart was not drawn with the installed scripts"
mv "$work/style.gp" "$work/moved/share/rpsim/plots/style.gp"

# ---- own data lie over them; without any there is an error
mkdir -p "$work/own/models"
sed 's/^name: .*/name: my-own/' "$work/moved/share/rpsim/traces/models/qwen3-1.7b.yaml" >"$work/own/models/my-own.yaml"
RP_TRACES=$work/own expect 0 gpipe,my-own, "$rpsim" --schedule gpipe --model my-own --costs qwen3-1.7b@rtx4090 --format csv
RP_TRACES=$work/own expect 0 only-here "$rpsim" --list models
RP_TRACES=$work/none expect 2 "'$work/none' is no folder" "$rpsim" --list models
RP_DATA=$work/moved/share/rpsim expect 0 only-here "$build_dir/rpsim" --list models
cp "$rpsim" "$work/run/alone"
expect 2 "set RP_DATA" "$work/run/alone" --list models

# ---- every program runs; the library finds the data from its own place
run_programs "$work/moved"
if ! grep -q '^RP_SANITIZE:[^=]*=.' "$build_dir/CMakeCache.txt" && command -v python3 >/dev/null; then
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$work/moved/lib/python3/dist-packages expect 0 only-here python3 -c '
import rpsim
rows = rpsim.run("--schedule gpipe --model only-here --costs qwen3-1.7b@rtx4090 --intervals off".split())
print(rows[0]["model"])'
fi

# ---- the simulator alone, where only its libraries are known
mkdir "$work/pc"
for name in yaml-0.1 jansson gsl zlib sqlite3; do
    cp "$(pkg-config --variable=pcfiledir $name)/$name.pc" "$work/pc/"
done
PKG_CONFIG_LIBDIR=$work/pc cmake -S "$source_dir" -B "$work/alone" -DRP_EXEC=OFF -DRP_WERROR=OFF >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "RP_EXEC=OFF"; }
grep -E '"command":.*(openblas|hwloc|criterion|nvcc|/exec/|/tests/)' "$work/alone/compile_commands.json" &&
    fail "RP_EXEC=OFF compiles parts of the executor"
if [ "${RP_LONG:-0}" = 1 ]; then
    cmake --build "$work/alone" -j 2 >"$work/log" 2>&1 || { tail -n 40 "$work/log"; fail "RP_EXEC=OFF: the build"; }
    cmake --install "$work/alone" --prefix "$work/simulator" >"$work/log" 2>&1 || fail "RP_EXEC=OFF: the installation"
    rm -rf "$work/alone"
    expect 0 tokens/s "$work/simulator/bin/rpsim" --schedule roundpipe
    ldd "$work/simulator/bin/"* | grep -iE 'openblas|hwloc|cuda|libmpi' && fail "RP_EXEC=OFF: libraries of the executor"
fi
end
