#!/usr/bin/env bash
# From a fresh clone to results: installs what is missing, builds, runs the main job, tests. See
# `help`.
set -euo pipefail

started_in=$PWD
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$root"
exec </dev/null
logs=$root/build/logs
out=$root/build/release/out
cores=$(nproc)
timeout=540 # seconds that a test may take
# Compiling each kernel for five generations of GPUs takes longer than all the rest: here they are compiled for this
# machine's GPU, or without a GPU for code that runs on every GPU from 8.0 on.
cuda_options=(-DCMAKE_CUDA_ARCHITECTURES=80 -UCMAKE_CUDA_FLAGS*)
if nvidia-smi -L >/dev/null 2>&1; then
    cuda_options=(-DCMAKE_CUDA_ARCHITECTURES=native -UCMAKE_CUDA_FLAGS*)
fi

prefix= # of --prefix
long=no # of --long
build_options=(-DRP_TESTS=ON -DRP_LONG=OFF)
source cmake/packaging/without_root.sh

# Needs of the build, the main job and the tests; the first of alternatives, separated by |, is installed.
packages=(build-essential cmake ninja-build pkg-config\|pkgconf libyaml-dev libsqlite3-dev sqlite3
    gnuplot-nox\|gnuplot-qt\|gnuplot-x11 libcriterion-dev libjansson-dev libgsl-dev
    libopenblas-pthread-dev\|libopenblas-dev libhwloc-dev zlib1g-dev
    universal-ctags cmark-gfm python3-pytest)

usage()
{
    cat <<'TEXT'
Usage: ./bootstrap.sh run [--prefix DIR] | test [--long] | paper | help

  run   installs missing apt packages, builds build/release, runs the paper's pipeline study:
        ends with the comparison table and the name of the Gantt picture it made;
        --prefix installs programs, data and documents below DIR as well. Packages are then not installed where
        you are not root, but downloaded and unpacked below build/; only the C compiler must be there
  test  the same, then all tests: checks and the longest unit tests optimised, all other unit tests and those of
        arithmetic and hostile input under AddressSanitizer and UBSan; CUDA kernels are unoptimised if no GPU is here;
        the last lines say what was skipped and why, the very last is "N passed, N failed, N skipped";
        the exit status is 0 if none failed;
        --long runs each test both optimised and sanitized, the optimised with the full counts of the acceptance tests
        (kills, pairs, mutants, sizes), of which a plain test holds a sample, threads once more under ThreadSanitizer:
        more than an hour
  paper installs and builds the same, then makes every figure of the paper, every study and picture from
        an empty store, and one self-contained page with all of them, build/release/paper/index.html;
        the exit status is 1 if one of them failed (the page says which and why)
  help  this text

Works on Debian 12 or newer and Ubuntu 24.04 or newer, as root or with sudo; offline where everything is
installed. CUDA is used where nvcc is found and not needed. All it writes is in build/ (logs in build/logs) and DIR.
TEXT
}

say()
{
    printf '==> %s\n' "$*"
}

fail()
{
    printf 'bootstrap.sh: %s\n' "$*" >&2
    exit 1
}

# logged NAME COMMAND...: output goes to build/logs/NAME.log, and to the screen if the command
# fails.
logged()
{
    local name=$1 log=$logs/$1.log status=0 begin=$SECONDS
    shift
    "$@" >"$log" 2>&1 || status=$?
    if [ $status -ne 0 ]; then
        printf 'failed (exit status %d): %s\n---- last lines of %s\n' $status "$*" "$log" >&2
        tail -n 60 "$log" >&2
        exit 1
    fi
    say "   $name: $((SECONDS - begin)) s, log in ${log#"$root"/}"
}

is_installed()
{
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Prints the packages to install, one per line.
missing_packages()
{
    local entry name found
    for entry in "${packages[@]}"; do
        found=no
        for name in ${entry//|/ }; do
            if is_installed "$name"; then
                found=yes
                break
            fi
        done
        [ $found = yes ] || echo "${entry%%|*}"
    done
}

install_packages()
{
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        say "Packages: this is no Debian or Ubuntu; make sure that you have what these packages hold:"
        say "   ${packages[*]%%|*}"
        return
    fi
    local missing as_root=()
    mapfile -t missing < <(missing_packages)
    if [ ${#missing[@]} -eq 0 ]; then
        say "Packages: all ${#packages[@]} are installed, nothing to do"
        return
    fi
    if [ -n "$prefix" ] && [ "$(id -u)" -ne 0 ]; then
        unpack_packages "${missing[@]}"
        return
    fi
    say "Packages: installing with apt: ${missing[*]}"
    if [ "$(id -u)" -ne 0 ]; then
        as_root=(sudo)
        if ! command -v sudo >/dev/null; then
            fail "not root and no sudo here. Let somebody who is root run
    apt-get update && apt-get install -y --no-install-recommends ${missing[*]}
and then start ./bootstrap.sh again"
        fi
        # Without a terminal nobody can type a password.
        if ! sudo -n true 2>/dev/null && ! { : >/dev/tty; } 2>/dev/null; then
            fail "sudo asks for a password and there is no terminal. Run
    sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}
and then start ./bootstrap.sh again"
        fi
        "${as_root[@]}" true || fail "sudo refused; needed to install: ${missing[*]}"
    fi
    logged apt-update "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update
    logged apt-install "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "${missing[@]}"
}

check_cmake()
{
    local version
    version=$(cmake --version | awk 'NR == 1 { print $3 }')
    if [ "$(printf '%s\n' 3.25 "$version" | sort -V | head -n 1)" != 3.25 ]; then
        fail "cmake $version ($(command -v cmake)) is too old, 3.25 is needed (Debian 12, Ubuntu 24.04 have it)"
    fi
}

# build PRESET: configures build/PRESET and builds it with all cores.
build()
{
    local preset=$1 folder=$root/build/$1 home
    # A build folder that was made for another place (a copied or moved tree) cannot be used again.
    if [ -f "$folder/CMakeCache.txt" ]; then
        home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$folder/CMakeCache.txt")
        if [ "$home" != "$root" ]; then
            say "build/$preset was made for $home: starting afresh"
            rm -rf "$folder"
        fi
    fi
    say "Build: preset $preset into build/$preset on $cores cores"
    logged "configure-$preset" cmake --preset "$preset" "${build_options[@]}" -DRP_TEST_TIMEOUT="$timeout" \
        "${cuda_options[@]}"
    logged "build-$preset" cmake --build "$folder" -j "$cores"
    grep -hE '^-- (CUDA .*|No CUDA .*)' "$logs/configure-$preset.log" | sed 's/^-- /==>    /' || true
}

prepare()
{
    mkdir -p "$logs"
    say "RoundPipe testbed in $root"
    install_packages
    check_cmake
    if [ -z "${CMAKE_GENERATOR:-}" ] && command -v ninja >/dev/null; then
        export CMAKE_GENERATOR=Ninja
    fi
    build release
}

main_job()
{
    say "Main job: the paper's pipeline study (experiments/pipeline-study.sh)"
    experiments/pipeline-study.sh "$root/build/release/rpsim" "$out"
}

paper()
{
    local status=0
    say "Report: every figure, study and picture from an empty store (paper-figures/report)"
    cmake --build "$root/build/release" --target paper || status=1
    say "$((SECONDS / 60)) min $((SECONDS % 60)) s in all"
    [ -f "$root/build/release/paper/index.html" ] || fail "no page was made"
    say "The page: $root/build/release/paper/index.html"
    return $status
}

passed=0
failed=0
skipped=0
skips= # a line for each: its name and why

# Adds what ctest wrote in its JUnit file to the three counts and to the list of skipped tests.
count_results()
{
    local report=$1 results one_passed one_failed one_skipped
    [ -s "$report" ] || fail "ctest wrote no report ($report)"
    results=$(python3 tests/tools/results.py "$report")
    read -r one_passed one_failed one_skipped <<<"$results"
    passed=$((passed + one_passed))
    failed=$((failed + one_failed))
    skipped=$((skipped + one_skipped))
    skips+=$(sed 1d <<<"$results")$'\n'
}

# run_tests PRESET CTEST_ARGUMENT...
run_tests()
{
    local preset=$1 report=$logs/ctest-$1.xml status=0
    shift
    rm -f "$report"
    say "Tests: preset $preset"
    ctest --preset "$preset" --output-on-failure -j3 --no-tests=error --output-junit "$report" "$@" || status=$?
    count_results "$report"
    [ $status -eq 0 ] || ctest_failed=yes
}

run_all_tests()
{
    ctest_failed=no
    build asan+ubsan
    run_tests release
    run_tests asan+ubsan
    if [ $long = yes ]; then
        # Criterion cannot start under ThreadSanitizer; the thread test is a plain program.
        say "Build: preset tsan, the thread test only"
        logged configure-tsan cmake --preset tsan -DRP_TESTS=ON -DRP_CUDA=OFF
        logged build-tsan cmake --build "$root/build/tsan" -j "$cores" --target test_threads
        run_tests tsan -R '^threads\.'
    fi
    say "$((SECONDS / 60)) min $((SECONDS % 60)) s in all"
    [ $skipped -eq 0 ] || say "Skipped:"
    sort -u <<<"$skips" | sed '/./!d; s/^/      /' # once for all builds
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ] && [ $ctest_failed = no ] && [ $passed -gt 0 ]
}

if [ "${1:-}" = run ] && [ "${2:-}" = --prefix ] && [ $# -eq 3 ] && [ -n "$3" ]; then
    prefix=$(cd "$started_in" && realpath -m -- "$3")
    mkdir -p "$prefix" && [ -w "$prefix" ] || fail "--prefix: '$3' cannot be written"
    build_options=(-DRP_TESTS=OFF)
    for i in "${!packages[@]}"; do # those of tests
        case ${packages[i]} in libcriterion-dev | universal-ctags | cmark-gfm | python3-pytest) unset "packages[i]" ;; esac
    done
    set -- run
fi

case $* in
run)
    prepare
    main_job
    [ -z "$prefix" ] || install_below "$prefix"
    ;;
test)
    # Without a GPU no test runs nvcc's kernels: that they compile is all that is seen.
    [[ ${cuda_options[0]} = *native ]] ||
        cuda_options=(-DCMAKE_CUDA_ARCHITECTURES=80 "-DCMAKE_CUDA_FLAGS=-O0 -Xcicc -O0 -Xptxas -O0"
            -DCMAKE_CUDA_FLAGS_RELEASE=-DNDEBUG)
    prepare
    main_job
    run_all_tests
    ;;
"test --long")
    long=yes
    timeout=7200
    cuda_options=(-UCMAKE_CUDA_ARCHITECTURES -UCMAKE_CUDA_FLAGS*)
    build_options=(-DRP_TESTS=ON -DRP_LONG=ON)
    prepare
    run_all_tests
    ;;
paper)
    prepare
    paper
    ;;
help | --help | -h)
    usage
    ;;
*)
    echo "bootstrap.sh: '$*' is no command; valid are run, run --prefix DIR, test, test --long, paper and help" >&2
    exit 2
    ;;
esac
