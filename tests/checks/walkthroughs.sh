#!/usr/bin/env bash
# Does what CONTRIBUTING.md says: takes files and patches of its walk-throughs out of the page, puts
# them into a copy of the tree, where they keep our rules and compile. With RP_LONG=1 the copy is built, and everything
# new is found and works.
set -euo pipefail
source_dir=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
built=$(realpath "$3")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir "$tree"
tar -C "$source_dir" --exclude='./build*' --exclude=./.git -cf - . | tar -C "$tree" -xf -
cd "$tree"
unset RP_TRACES

fail()
{
    echo "CONTRIBUTING.md: $*"
    exit 1
}

# A block is "<!-- file: PATH -->" or "<!-- patch: PATH -->", a line that opens a fence, the file's text or its changes, a
# line that closes it.
awk '
    /^<!-- file: [^ ]+ -->$/ { path = $3; next }
    /^<!-- patch: [^ ]+ -->$/ { path = "'"$work/patch"'" ++patches; header = "--- " $3 "\n+++ " $3; next }
    path != "" && !open {
        if ($0 !~ /^```/) { print "line " NR ": no code block after the file name " path; exit 1 }
        open = 1
        if (header != "") { print header >path; header = ""; next }
        folder = path
        sub("/[^/]*$", "", folder)
        system("mkdir -p " folder)
        print path >"'"$work/files"'"
        next
    }
    open && /^```$/ { open = 0; close(path); path = ""; next }
    open { print >path }
    END { if (open) { print "a code block does not end"; exit 1 } }' CONTRIBUTING.md || fail "malformed"

for folder in common/schedules traces/models traces/platforms plots/gallery exec/backends; do
    grep -q "^$folder/" "$work/files" || fail "no walk-through adds a file to $folder"
done
while read -r file; do
    [ ! -e "$source_dir/$file" ] || fail "$file is in the tree already"
    [ -s "$file" ] || fail "$file is empty"
done <"$work/files"

for patch in "$work"/patch*; do
    patch --quiet --fuzz=0 -p0 <"$patch" || fail "a patch does not fit: $(cat "$patch")"
done
[ "$(grep -l my_option "$work"/patch* | wc -l)" -eq 2 ] || fail "an option is more than its row and its use"

# The examples keep our own rules.
sed -n 's/^+++ //p' "$work"/patch* >"$work/patched"
for lint in style includes allocation status random; do
    bash tests/lint/$lint.sh "$tree" >"$work/log" 2>&1 || true
    if grep -F -f "$work/files" -f "$work/patched" "$work/log"; then
        fail "an example breaks lint/$lint.sh"
    fi
done

if [ "${RP_LONG:-0}" != 1 ]; then
    # What is generated is this build's: it knows nothing of the new files, but has all names.
    grep -hE '\.c$' "$work/files" "$work/patched" >"$work/sources"
    while read -r file; do
        "${CC:-cc}" -std=gnu17 -fsyntax-only -I. -I"$build" -I"$build/generated" "$file" 2>"$work/log" || { cat "$work/log"; fail "$file does not compile"; }
    done <"$work/sources"
    echo "$(wc -l <"$work/files") files fit, $(wc -l <"$work/patched") patches, $(wc -l <"$work/sources") sources compile; they are built and run with RP_LONG=1"
    exit 0
fi
options=(-DRP_TESTS=OFF -DRP_CUDA=OFF -DCMAKE_BUILD_TYPE=None) # the quickest to compile
if command -v ninja >/dev/null; then
    options+=(-G Ninja)
fi
if command -v ccache >/dev/null; then
    options+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
fi
{ cmake -S . -B build "${options[@]}" && cmake --build build -j 2 --target rpsim rpexec rpsim_command_line; } >"$work/log" 2>&1 ||
    { tail -n 40 "$work/log"; fail "the copy with the new files does not build"; }
rpsim=$tree/build/rpsim

# What the page types into a shell, but for cmake, with this build in place of build/dev.
ln -s . build/dev
awk '/^```sh$/ { open = 1; next } /^```/ { open = 0 } open && !/^cmake/ { print NR "\t" $0 }' CONTRIBUTING.md >"$work/typed"
[ "$(wc -l <"$work/typed")" -ge 10 ] || fail "only $(wc -l <"$work/typed") commands"
while IFS=$'\t' read -r number line; do
    bash -ec "$line" >"$work/log" 2>&1 </dev/null || { cat "$work/log"; fail "line $number fails: $line"; }
done <"$work/typed"

# name_of FOLDER: the name that the walk-through's file in FOLDER makes known.
name_of()
{
    basename "$(grep "^$1/" "$work/files" | head -n 1)" | sed 's/\.[a-z]*$//'
}

# listed NAME COMMAND...: the command's output names NAME as a word.
listed()
{
    local name=$1
    shift
    "$@" >"$work/list" || fail "$* fails"
    grep -qE "(^|[^A-Za-z0-9._-])$name([^A-Za-z0-9._-]|\$)" "$work/list" || fail "$* does not name $name"
}

schedule=$(name_of common/schedules)
model=$(name_of traces/models)
platform=$(name_of traces/platforms)
figure=$(grep "^plots/gallery/" "$work/files" | head -n 1 | cut -d/ -f3)
backend=$(name_of exec/backends)
listed "$schedule" "$rpsim" --list schedules
listed "$model" "$rpsim" --list models
listed "$platform" "$rpsim" --list platforms
listed "$backend" build/exec/rpexec --list backends
build/exec/rpexec --backend "$backend" --gpus 2 --steps 2 --check >"$work/list" 2>"$work/log" ||
    { cat "$work/log"; fail "$backend does not train as plain loops do"; }
grep -q "^rpexec: warning: $backend runs [0-9]* ops\$" "$work/log" || fail "$backend is not what has run"
listed "$schedule" "$rpsim" --schedule "$schedule" --gpus 4 --format csv
listed "$model" "$rpsim" --schedule "$schedule" --model "$model" --platform "$platform" --gpus 4 --format csv
listed "$platform" "$rpsim" --schedule gpipe --model "$model" --platform "$platform" --gpus 4 --format csv

# An output column: in JSON, CSV, the text table and the store, by at most two files of code.
rows=$(grep -l '^+++ sim/study/columns.c$' "$work"/patch*) || fail "no walk-through adds a column"
column=$(sed -nE 's/^\+    X\(([a-z_]+),.*/\1/p' "$rows")
heading=$(sed -nE 's/^\+.*TABLE\([A-Z]+, [0-9]+, "([^"]+)".*/\1/p' "$rows")
run=(--schedule gpipe --gpus 4 --accumulate 2 --fidelity hardware)
[ "$(grep -l "$column" "$work"/patch* | xargs sed -n 's/^+++ //p' | grep -cv '\.md$')" -le 2 ] || fail "$column takes more than two files"
"$built" "${run[@]}" --format csv >"$work/list" || fail "${run[*]} fails"
! grep -qw "$column" "$work/list" || fail "$column is a column already"
listed "$column" "$rpsim" "${run[@]}" --format json
listed "$column" "$rpsim" "${run[@]}" --format csv
COLUMNS=200 listed "$heading" "$rpsim" "${run[@]}" --db "$work/column.db"
[ "$(sqlite3 "$work/column.db" "SELECT value FROM metrics WHERE name = '$column'")" = 16 ] || fail "$column is not stored"

# The property is in the program's text, and halves the bytes between GPUs.
sent()
{
    "$rpsim" --schedule "$1" --platform h100x8 --gpus 4 --program-out "$work/program" >"$work/list"
    awk '{ for (i = 2; i < NF; i++) if ($1 ~ /^[0-9]+SEND/ && $i == "bytes") sum += $(i + 1) } END { printf "%.0f\n", sum }' "$work/program"
}
whole=$(sent gpipe)
half=$(sent "$schedule")
grep -q '^traits half-boundaries$' "$work/program" || fail "$schedule does not have its property"
[ "$whole" -gt 0 ] && [ "$((2 * half))" -eq "$whole" ] || fail "$schedule sends $half bytes, gpipe $whole"

# The option is everywhere where options are, and decides the run.
option=--$(sed -n 's/^+OPTION(.*"\(.*\)", "N".*/\1/p' "$work"/patch*)
listed "$option" "$rpsim" --help
for text in man1/rpsim.1 completions/rpsim site-functions/_rpsim; do
    listed "$option" sed 's/\\-/-/g' build/command_line/$text
done
"$rpsim" --schedule gpipe "$option" 7 --db "$work/runs.db" >"$work/list" 2>"$work/log" || fail "$option 7 is refused"
[ "$(sqlite3 "$work/runs.db" "SELECT microbatches FROM runs")" = 56 ] || fail "$option 7 of 8 GPUs are not 56 microbatches"
[ "$(sqlite3 "$work/runs.db" "SELECT config_json ->> 'my_option' FROM runs")" = 7 ] || fail "$option is not stored"
! "$rpsim" --schedule gpipe --fidelity stage "$option" 7 2>"$work/log" || fail "$option: its rule refuses nothing"
grep -qx "rpsim: $option: valid only with --fidelity hardware" "$work/log" || fail "$option: $(cat "$work/log")"
! "$rpsim" --schedule gpipe --microbatches 8 "$option" 7 2>"$work/log" || fail "$option: --microbatches is not excluded"
grep -qx "rpsim: $option: --microbatches says it, too; valid is one of them" "$work/log" || fail "$option: $(cat "$work/log")"
! "$rpsim" --schedule gpipe "$option" 101 2>"$work/log" || fail "$option 101 is accepted"
grep -q -- "$option: '101' is not valid; valid values are integers from 1 to 100" "$work/log" || fail "$option 101: $(cat "$work/log")"

# The others are made elsewhere (checks.plots): the loop shall find this one.
find plots/gallery -mindepth 1 -maxdepth 1 -name '[0-9]*' ! -name "$figure" -exec rm -r {} +
plots/gallery/make_all.sh build "$work/figures" >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "drawing fails"; }
[ -s "$work/figures/$figure.csv" ] || fail "$figure.csv is not written"
for ext in svg png pdf; do
    drawn=$work/figures/$figure.$ext
    if [ ! -f "$drawn" ] || [ "$(wc -c <"$drawn")" -lt 2000 ]; then
        cat "$work/log"
        fail "$figure.$ext is not drawn"
    fi
done

echo "$(wc -l <"$work/files") files added and found: $(tr '\n' ' ' <"$work/files")"
echo "$(wc -l <"$work/patched") files patched: $(tr '\n' ' ' <"$work/patched")"
