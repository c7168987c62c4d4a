#!/usr/bin/env bash
# The installed library as a stranger uses it, from a folder that it was moved to: programs in C by pkg-config and by
# CMake, and a script in Python, give what rpsim prints. It exports what its header declares.
# Release only: unit tests run its code sanitized, and a sanitized library does not load into Python.
set -euo pipefail
source_dir=$(cd "$1" && pwd)
build_dir=$(cd "$2" && pwd)
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
cmake --install "$build_dir" --prefix "$work/opt" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
mv "$work/opt" "$work/moved"
cp -r "$source_dir/docs/library" "$work/examples"
cd "$work"
unset RP_TRACES RP_PLOTS RP_DATA RP_LIBRARY
prefix_dir=$work/moved
library=$(find "$prefix_dir" -name librpsim.so.0)
libraries=$(dirname "$library")
export LD_LIBRARY_PATH=$libraries PKG_CONFIG_PATH=$libraries/pkgconfig
PYTHONPATH=$(dirname "$(dirname "$(find "$prefix_dir" -path '*/rpsim/__init__.py')")")
export PYTHONPATH PYTHONDONTWRITEBYTECODE=1

# ---- what is installed
declared=$(sed -nE 's/^RP_API .*[ *](rp_[a-z0-9_]+)\(.*/\1/p' "$prefix_dir/include/rpsim.h" | sort)
exported=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sort)
[ "$declared" = "$exported" ] || fail "exported and declared differ: $(diff <(echo "$declared") <(echo "$exported"))"
[ "$(readelf -d "$library" | grep -c 'SONAME.*\[librpsim.so.0\]')" = 1 ] || fail "no SONAME librpsim.so.0"
version=$("$prefix_dir/bin/rpsim" --version | awk 'NR == 1 { print $2 }')
[ "$(pkg-config --modversion rpsim)" = "$version" ] || fail "rpsim.pc is not of version $version"
grep -rlF "$work/opt" "$prefix_dir/include" "$libraries" | grep -v '\.so' && fail "paths of where it was first installed"
grep -rlF "$source_dir" "$libraries/cmake" "$libraries/pkgconfig" && fail "paths of the sources"

# ---- the same JSON from rpsim and from programs in C
options=(--schedule roundpipe,1f1b --model llama3.1-8b --intervals 4 --seed 3)
"$prefix_dir/bin/rpsim" "${options[@]}" --format json >"$work/rpsim.json"
# shellcheck disable=SC2046 # flags are words
cc -std=c11 -Wall -Wextra -Wpedantic -Werror examples/command.c $(pkg-config --cflags --libs rpsim) -o with_pkg_config
cmake -S examples -B by_cmake -DCMAKE_PREFIX_PATH="$prefix_dir" >"$work/log" 2>&1 &&
    cmake --build by_cmake >>"$work/log" 2>&1 || { cat "$work/log"; fail "find_package"; }
for program in ./with_pkg_config by_cmake/command; do
    "$program" "${options[@]}" >"$work/program.json" || fail "$program failed"
    cmp "$work/rpsim.json" "$work/program.json" || fail "$program prints another JSON than rpsim"
done
"$prefix_dir/bin/rpsim" --schedule roundpipe --model llama3.1-8b --platform h100x8 --format json >"$work/h100x8.json"
tokens=$(sed -nE 's/.*"tokens_per_s":([0-9.]+),.*/\1/p' "$work/h100x8.json")
expect 0 "$(printf 'llama3.1-8b on h100x8: %.0f tokens/s' "$tokens")" by_cmake/throughput llama3.1-8b
expect 2 "unknown model 'llama'" by_cmake/throughput llama
# A model that only this installation has.
models=$prefix_dir/share/rpsim/traces/models
sed 's/^name: .*/name: only-here/' "$models/qwen3-1.7b.yaml" >"$models/only-here.yaml"
expect 0 '"model":"only-here"' ./with_pkg_config --schedule gpipe --model only-here --costs qwen3-1.7b@rtx4090
expect 2 "unknown schedule 'roundpip'" ./with_pkg_config --schedule roundpip
expect 2 "help: gives text" ./with_pkg_config --help
expect 2 "standard output" ./with_pkg_config --schedule gpipe --trace-out -
expect 2 "valid is json" ./with_pkg_config --schedule gpipe --format csv
# A reader that goes away is an error, and does not end the calling program by a signal.
mkfifo pipe
exec 7<>pipe
./with_pkg_config --schedule roundpipe --intervals off --trace-out pipe >"$work/out" 2>&1 7<&- &
timeout 60 head -c 1 <&7 >/dev/null
exec 7<&-
status=0
wait $! || status=$?
[ $status = 1 ] && grep -q 'Broken pipe' "$work/out" || fail "exit status $status of a program whose reader went away"
printf '#include <rpsim.h>\nrp_settings settings = RP_SETTINGS_INIT;\nrp_result result = RP_RESULT_INIT;\n' |
    c++ -x c++ -fsyntax-only -Wall -Wextra -Wpedantic -Werror "-I$prefix_dir/include" - || fail "C++"

# ---- Python
cat >script.py <<'P'
import concurrent.futures, csv, json, locale, os, shutil, sys, warnings
import rpsim

if "LOCPATH" in os.environ:
    locale.setlocale(locale.LC_ALL, "de_DE")
    assert locale.localeconv()["decimal_point"] == ","

rows = rpsim.run(sys.argv[2:])
expected = json.load(open(sys.argv[1]))
assert rows == expected
for options in (["--schedule", "gpip"], ["--schedule", "gpipe", "--gantt-out", "nowhere/a.svg"], ["--help"]):
    try:
        rpsim.run(options)
        sys.exit(f"{options} are not refused")
    except rpsim.InputError as error:
        assert len(str(error)) > 20, error
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    rpsim.run(["--schedule", "all", "--gpus", "6", "--intervals", "off", "--iterations", "1"])
assert any("megatron-tp left out" in str(w.message) for w in said), said
one = ["--schedule", "roundpipe", "--intervals", "off", "--iterations", 2]
row = rpsim.run(one + ["--trace-out", "trace.json", "--timeline-out", "timeline.csv"])[0]
assert json.load(open("trace.json"))
if shutil.which("gnuplot"):
    rpsim.run(["--schedule", "gpipe", "--fidelity", "stage", "--gantt-out", "chart.svg"])
    assert open("chart.svg").read(5) in ("<?xml", "<svg ")
simulation = rpsim.simulate(one)
assert simulation.rows[0]["tokens_per_s"] == row["tokens_per_s"]
ops = simulation.ops()
for op, line in zip(ops, csv.DictReader(open("timeline.csv")), strict=True):
    assert (op.kind, op.queue, op.stage, op.microbatch, op.iteration) == (
        line["kind"], line["queue"], int(line["stage"]), int(line["microbatch"]), int(line["iteration"]))
    assert ("host" if op.gpu is None else str(op.gpu)) == line["gpu"]
    assert abs(op.start_ms * 1e9 - int(line["start_ps"])) < 1 and abs(op.end_ms * 1e9 - int(line["end_ps"])) < 1
    assert op.waited_for is None or ops[op.waited_for].end_ms <= op.start_ms
assert {"qwen3-1.7b"} <= set(rpsim.names("models")) and "1f1b" in rpsim.names("schedules")

def speed(name):
    return [rpsim.run(["--schedule", name, "--iterations", "2"])[0]["tokens_per_s"] for _ in range(3)]

def message(name):
    try:
        rpsim.run(["--schedule", name])
    except rpsim.InputError as error:
        return str(error)

schedules = ["gpipe", "1f1b", "roundpipe", "fsdp"]
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    together = [pool.submit(speed, name) for name in schedules]
    mistakes = [pool.submit(message, name + "-x") for name in schedules]
    assert [future.result() for future in together] == [speed(name) for name in schedules]
    for name, future in zip(schedules, mistakes):
        assert f"'{name}-x'" in future.result(), future.result()
P
# A host with decimal commas, where the system has the sources of such a locale.
if mkdir locales && localedef -f UTF-8 -i de_DE locales/de_DE 2>/dev/null; then
    export LOCPATH=$work/locales
fi
LD_LIBRARY_PATH='' python3 script.py "$work/rpsim.json" "${options[@]}" >"$work/out" 2>&1 || fail "script.py"
[ ! -s "$work/out" ] || { cat "$work/out"; fail "the library has printed something"; }
expect 1 "RP_LIBRARY names its file" env RP_LIBRARY=/nowhere/librpsim.so python3 -c 'import rpsim'
if python3 -c 'import matplotlib' 2>/dev/null; then
    MPLBACKEND=Agg python3 "$source_dir/docs/library/notebook.py" >"$work/out" 2>&1 || { cat "$work/out"; fail "notebook.py"; }
    [ -s timeline.png ] && [ -s sweep.png ] || fail "notebook.py draws nothing"
fi

# ---- the wheel, in an environment of its own
if [ "${RP_LONG:-0}" = 1 ]; then
    python3 "$source_dir/sim/library/python/make_wheel.py" "$source_dir" "$library" "$version" "$work/wheel" >"$work/log"
    python3 "$source_dir/sim/library/python/make_wheel.py" "$source_dir" "$library" "$version" "$work/again" >"$work/log"
    cmp wheel/*.whl again/*.whl || fail "two wheels of the same files differ"
    python3 -m venv venv
    venv/bin/pip install --quiet --no-index --no-deps wheel/*.whl >"$work/log" 2>&1 || { cat "$work/log"; fail "pip"; }
    LD_LIBRARY_PATH='' PYTHONPATH='' venv/bin/python script.py "$work/rpsim.json" "${options[@]}" || fail "the wheel"
    [ "$(venv/bin/pip show rpsim 2>/dev/null | sed -n 's/^Version: //p')" = "$version" ] || fail "version of the wheel"
    # Beside the paper's own library, which PyPI has as RoundPipe: neither has a file of the other.
    if venv/bin/pip install --quiet --no-deps RoundPipe==0.1.1 >"$work/log" 2>&1; then
        cat >whole.py <<'P'
import hashlib, base64, importlib.metadata
files = importlib.metadata.files("RoundPipe")
assert len(files) > 10, files
for file in files:
    if file.hash:
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.locate().read_bytes()).digest()).rstrip(b"=").decode()
        assert digest == file.hash.value, file
P
        venv/bin/python whole.py || fail "our wheel has changed files of RoundPipe's"
        LD_LIBRARY_PATH='' PYTHONPATH='' venv/bin/python -c 'import rpsim; rpsim.names("models")' || fail "import rpsim"
        venv/bin/pip uninstall --quiet -y rpsim
        venv/bin/python whole.py || fail "uninstalling our wheel has changed files of RoundPipe's"
        ! PYTHONPATH='' venv/bin/python -c 'import rpsim' 2>"$work/log" || fail "rpsim is there after it was uninstalled"
    else
        echo "not checked: the wheel beside RoundPipe 0.1.1, which pip cannot fetch here"
    fi
fi
end
