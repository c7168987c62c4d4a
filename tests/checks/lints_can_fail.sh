#!/usr/bin/env bash
# A lint that cannot fail protects nothing: each gets a copy of the tree with one violation per rule
# and must exit 1 and name the file that breaks the rule. An untouched copy must not be blamed for
# that file.
set -euo pipefail
source_dir=$(cd "$1" && pwd)
rpsim=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir "$tree"
tar -C "$source_dir" --exclude='./build*' --exclude=./.git -cf - . | tar -C "$tree" -xf -
failures=0
cases=0

# judge LINT NEEDLE WHAT: the lint, run once for all that wait, must exit 1 and print NEEDLE.
judged=
judge()
{
    local lint=$1 needle=$2 what=$3
    if [ -z "$judged" ]; then
        status=0
        bash "$source_dir/tests/lint/$lint.sh" "$tree" "$work/no-build" "$rpsim" >"$work/output" 2>&1 || status=$?
        judged=yes
    fi
    cases=$((cases + 1))
    if [ $status -eq 77 ]; then
        skipped="${skipped:-} $lint"
    elif [ $status -ne 1 ] || ! grep -qF -- "$needle" "$work/output"; then
        echo "lint/$lint.sh overlooks: $what (exit $status, \"$needle\" not named)"
        failures=$((failures + 1))
    fi
}

# expect LINT NEEDLE WHAT: likewise on the tree as it is now, without what waits.
expect()
{
    check_injected
    judge "$@"
    judged=
}

# inject LINT FILE WHAT: stdin becomes FILE of the tree, which must not exist; the lint must name it. Lints look at one
# file at a time: injections for one lint that follow each other wait for check_injected, which runs it once for all.
# A second one of a name gets a number.
injected=()
inject()
{
    local lint=$1 file=$2 what=$3 number=1
    [ ${#injected[@]} -eq 0 ] || [ "$lint" = "${injected[0]%%|*}" ] || check_injected
    while printf '%s\n' "${injected[@]}" | grep -qF "|$file|"; do
        number=$((number + 1))
        file=${2%.*}$number.${2##*.}
    done
    if [ -e "$tree/$file" ]; then
        echo "$file exists already: choose another name for this injection"
        exit 1
    fi
    mkdir -p "$(dirname "$tree/$file")"
    cat >"$tree/$file"
    injected+=("$lint|$file|$what")
}

# check_injected: the lint names each file that waits; then they go.
check_injected()
{
    local entry lint= file what
    for entry in "${injected[@]}"; do
        IFS='|' read -r lint file what <<<"$entry"
        judge "$lint" "$file:" "$what"
    done
    for entry in "${injected[@]}"; do
        IFS='|' read -r lint file what <<<"$entry"
        rm "$tree/$file"
    done
    injected=()
    judged=
}

# The rules look at one file at a time, so the injections below need none of our own sources around
# them: without those each run is a blink.
for room in common sim exec tests; do
    find "$tree/$room" -name '*.[ch]' ! -path '*/schedules/*' -delete
done
rm -rf "$tree/tests/bad" "$tree/tests/golden" "$tree/tests/fuzz"

# Harmless text that must not be blamed: words in comments and strings, members of other names.
cat >"$tree/common/zz_harmless.c" <<'C'
/* malloc(1), rand(), time(NULL), stderr and #include "sim/sim.h" in prose */
#include "common/base/status.h"
#define ZZ_MACRO(x)                                                                                \
    do {                                                                                           \
        (x)++;                                                                                     \
    } while (0)

static const char text[] = "free(x); exit(1); \"if (x) y;\" // stderr";
static int zz_free_op(const char *rp_time)
{
    do {
        if (rp_time == text) {
            return 1;
        }
    } while (0);
    for (int i = 0; i < 2; i++) {
        // if (x) y;
    }
    return '"';
}
C
cat >"$tree/tests/common/zz_harmless.c" <<<$'static void begin(void)\n{\n    cr_assert(x);\n}\nstatic void end(void)\n{\n    rp_end(x); // cr_expect(x)\n}\nTestSuite(zz, .init = begin, .fini = end);'
mkdir "$tree/common/zz_harmless"
printf '%s\n' '```' "$(printf 'z%.0s' {1..121})" '```' "- https://example.org/$(printf 'z%.0s' {1..121})" >"$tree/common/zz_harmless/README.md"
for lint in "$source_dir"/tests/lint/*.sh; do
    bash "$lint" "$tree" "$work/no-build" "$rpsim" >"$work/output" 2>&1 || true
    if grep -qF 'zz_harmless' "$work/output"; then
        echo "$(basename "$lint") blames harmless code:"
        grep -F 'zz_harmless' "$work/output"
        failures=$((failures + 1))
    fi
done
rm -r "$tree/common/zz_harmless" "$tree/common/zz_harmless.c" "$tree/tests/common/zz_harmless.c"

inject includes common/zz_a.c "common includes sim" <<<'#include "sim/engine.h"'
inject includes common/zz_b.c "common includes exec" <<<'#  include <exec/run/backend.h>'
inject includes sim/zz_c.c "sim includes exec" <<<'#include "exec/run/backend.h"'
inject includes exec/zz_d.c "exec includes sim" <<<'#include "../sim/engine.h"'
inject includes common/zz_e.h "GSL in common" <<<'#include <gsl/gsl_rng.h>'
inject includes exec/zz_f.c "GSL in exec" <<<'#include <gsl/gsl_rng.h>'
inject includes sim/zz_f.c "GSL in another file of sim" <<<'#include <gsl/gsl_blas.h>'
inject includes sim/rppredict/fit.c "random numbers in the fit" <<<'#include <gsl/gsl_rng.h>'
inject includes sim/zz_g.c "CUDA in sim" <<<'#include <cuda_runtime.h>'
inject includes common/zz_h.c "cuBLAS in common" <<<'#include <cublas_v2.h>'

mkdir -p "$tree"/common/{yy,zz} "$tree"/exec/{run,host}
echo '#include "common/zz/zz_a.h"' >"$tree/common/yy/yy.c"
inject rooms common/zz/zz_a.c "rooms that include each other" <<<'#include "common/yy/yy.h"'
check_injected
mkdir -p "$tree"/common/yy/{xx,ww}
echo '#include "common/yy/xx/xx.h"' >"$tree/common/yy/yy.c"
inject rooms common/yy/xx/zz_a.c "a folder and its sub-folder that include each other" <<<'#include "common/yy/yy.h"'
check_injected
echo '#include "common/yy/ww/left/ww.h"' >"$tree/common/yy/xx/xx.c"
inject rooms common/yy/ww/right/zz_a.c "sub-folders that include each other by theirs" <<<'#include "common/yy/xx/in/xx.h"'
check_injected
rm -r "$tree"/common/yy/{xx,ww,yy.c}
inject rooms 0 "a file at the top that a shell's > made" <<<0
inject rooms common/zz/zz_b.c "a private header of another folder" <<<'#include "common/yy/yy_internal.h"'
inject rooms exec/run/zz_c.c "the executor knows the host backend" <<<'#include "exec/host/lane.h"'
inject rooms sim/rppredict/zz_d.c "a program includes another program's folder" <<<'#include "sim/rpsim/artefacts.h"'
inject rooms sim/run/zz_d.c "a room includes a program's folder" <<<'#include "sim/rpsim/artefacts.h"'
inject rooms sim/library/zz_d.c "the library includes a program" <<<'#include "sim/rpsim/command.h"'
inject rooms experiments/zz_e.c "rpsweep includes another program's folder" <<<'#include "sim/rppredict/cells.h"'
inject rooms experiments/zz_f.c "rpsweep includes rpsim" <<<'#include "sim/rpsim/command.h"'
inject rooms exec/plan/zz_f.c "a schedule looked up by name" <<<'static const void *zz(const rp_program *p) { return rp_schedule_find(p->schedule); }'
inject rooms sim/run/zz_g.c "an op kind compared" <<<'static bool zz(const rp_op *op) { return op->kind == RP_OP_SEND; }'
inject rooms exec/run/zz_h.c "an op kind as a case" <<<'    case RP_OP_SEND:'
for file in {01..25}; do : >"$tree/common/yy/yy_$file.c"; done
: >"$tree/common/yy/yy_26.c"
expect rooms "common/yy:1:" "26 files in a folder"
rm -r "$tree"/common/yy

for call in 'void *p = malloc(8)' 'p = realloc (p, 8)' 'free(p)' 'q = strdup(p)' 'mmap(0, 1, 2, 3, 4, 0)' \
    'getline(&p, &n, f)' 'asprintf(&p, "")' '(void)calloc(1, 1)'; do
    inject allocation sim/zz_alloc.c "$call" <<<"    $call;"
done

inject sizes common/zz_long.c "a function of 124 lines" < <(
    echo 'int zz_long(int x)'
    echo '{'
    for _ in $(seq 120); do echo '    x++;'; done
    printf '    return x;\n}\n'
)
inject sizes exec/zz_file.c "a file of 601 lines" < <(seq 601 | sed 's|.*|// &|')
# functions COUNT LINES: that many functions of that many lines.
functions()
{
    awk -v count="$1" -v lines="$2" 'BEGIN {
        for (i = 0; i < count; i++) {
            printf "int zz_f%d(int x)\n{\n", i
            for (j = 4; j < lines; j++) print "    x++;"
            print "    return x;\n}"
        }
    }'
}
functions 3000 24 >"$tree/tests/zz_median.c"
expect sizes "all functions: median" "a median of 24 lines"
rm "$tree/tests/zz_median.c"
functions 300 64 >"$tree/tests/zz_share.c"
expect sizes "longer than 60 lines" "too many functions of 64 lines"
rm "$tree/tests/zz_share.c"

inject style common/zz_wide.c "101 columns" <<<"// $(printf 'x%.0s' $(seq 98))"
inject style common/zz_tab.c "a tab" <<<$'\tint x;'
inject style plots/zz_tab.gp "a tab in a plot" <<<$'set title\t"x"'
inject style common/zz_blank.c "a trailing blank" <<<'int x; '
inject style common/zz_guard.h "a header without #pragma once" <<<'int zz_x;'
for body in 'if (x) return;' 'for (;;) x++;' 'while (f(x, (y))) x++;' 'if (x) { } else y();' 'do x++; while (x);' \
    $'if (x &&\n        y)\n        z();'; do
    inject style common/zz_braces.c "$body" <<<"    $body"
done
inject style common/zz_type.h "a type in _t" <<<$'#pragma once\ntypedef struct zz_x zz_x_t;'
inject style common/zz_type.h "a struct in _t" <<<$'#pragma once\ntypedef struct {\n    int x;\n} zz_x_t;'
inject style common/zz_type.h "a function type in _t" <<<$'#pragma once\ntypedef void (*zz_x_t)(void);'
inject style common/zz_type.h "a tag in _t" <<<$'#pragma once\nstruct zz_x_t {\n    int x;\n};'
inject style common/zz_root.c "an include beside the file" <<<'#include "status.h"'
inject style exec/zz_weave.c "#ifdef of CUDA" <<<$'#ifdef RP_CUDA\n#endif'
inject style sim/zz_weave.c "#if of a program" <<<$'#if defined(RP_SIM)\n#endif'
inject style common/zz_weave.c "#if 0" <<<$'#if 0\n#endif'

published=$source_dir/paper-figures/published/pipeline_bubbles.csv
if [ -f "$published" ]; then
    makespan=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "makespan_ms") c = i } NR == 2 { print $c }' \
        "$published")
    inject published sim/zz_result.c "a published makespan" <<<"static double x = $makespan;"
    inject published tests/common/zz_result.c "the same without its last zero" <<<"static double x = ${makespan%0};"
    inject published plots/zz_result.sh "in a script" <<<"echo $makespan"
    inject published paper-figures/10-throughput/zz_result.awk "in awk" <<<"BEGIN { x = $makespan }"
    inject published paper-figures/lib/zz_result.gp "in a figure's gnuplot" <<<"x = $makespan"
    inject published paper-figures/zz_result/make.sh "in a figure's script" <<<"x=$makespan"
    inject published plots/gallery/zz_result/zz.sql "in SQL" <<<"SELECT $makespan;"
    inject published experiments/zz_result.yaml "in an experiment" <<<"options: {costs.fwd_ms: $makespan}"
    inject published paper-figures/zz_result/constants.csv "in a figure's constants" <<<"x,$makespan"
else
    mkdir -p "$tree/paper-figures"
    expect published "nothing to compare" "no published numbers"
fi

inject style exec/zz_prose.c "a comment that opens with What" <<<"/* What is done. */"
inject docs exec/zz_cites.c "a document that is not there" <<<"/* Rules: nowhere.md 2. */"
inject docs common/zz_docs.h "a prototype without a comment" <<<$'#pragma once\n\nint zz_x(int y);'
inject docs common/zz_docs.h "a long prototype without one" <<<$'#pragma once\n\nstruct zz *zz_x(int y,\n    int z);'
inject docs common/schedules/zz-hidden.c "a schedule that nobody lists" <<<'// zz'
check_injected
inject docs traces/platforms/zz-hidden.yaml "a platform that nobody lists" <<<'name:'
rpsim='' check_injected
for word in 'bootstrap.sh run' 'bootstrap.sh test'; do
    sed -i.orig "s|$word|zz|g" "$tree/README.md"
    expect docs "does not name ./$word" "a README without $word"
    mv "$tree/README.md.orig" "$tree/README.md"
done
sed -i.orig '/Unreleased/d' "$tree/CHANGELOG.md"
expect docs "no Unreleased section" "a changelog without Unreleased"
mv "$tree/CHANGELOG.md.orig" "$tree/CHANGELOG.md"
sed -i.orig '$a zz goes on' "$tree/CHANGELOG.md"
expect docs "zz goes on" "an entry of two lines"
mv "$tree/CHANGELOG.md.orig" "$tree/CHANGELOG.md"
sed -i.orig 's/^## \[[0-9.]*\]/## [9.9.9]/' "$tree/CHANGELOG.md"
expect docs "CMakeLists.txt:" "a version that is not the newest release"
mv "$tree/CHANGELOG.md.orig" "$tree/CHANGELOG.md"
sed -i.orig 's/^version: .*/version: 9.9.9/' "$tree/CITATION.cff"
expect docs "CITATION.cff:" "another version in the citation"
mv "$tree/CITATION.cff.orig" "$tree/CITATION.cff"
for page in README ARCHITECTURE; do
    cp "$tree/$page.md" "$tree/$page.md.orig"
    printf -- '- zz %s\n' {1..2500} >>"$tree/$page.md"
    expect docs "$page.md:1: " "a long $page.md"
    mv "$tree/$page.md.orig" "$tree/$page.md"
done
inject docs docs/zz-wide.md "a wide line" <<<"$(printf 'z%.0s' {1..121})"
inject docs common/zz/zz-wide.md "a wide row of a table" <<<"| $(printf 'é%.0s' {1..119})"
inject site docs/zz-page.md "a document that the site lacks" <<<'# zz'
echo "      - zz: docs/zz-nowhere.md" >>"$tree/docs/site/mkdocs.yml"
expect site "docs/site/mkdocs.yml:1: no document matches docs/zz-nowhere.md" "an entry without a document"

for call in 'x = rand()' 'srandom(1)' 't = time(NULL)' 'clock_gettime(0, &t)' 'char *d = __DATE__'; do
    inject random common/zz_random.c "$call" <<<"    $call;"
    inject random sim/zz_random.c "$call" <<<"    $call;"
done

inject includes sim/zz_options.c "a loop over options" <<<'#include <getopt.h>'
inject settings common/zz_option.c "a library names an option" <<<'    rp_log_error("--gpus: 0");'
inject settings sim/run/zz_argv.c "a library reads a command line" <<<'int zz(int argc, char **argv)'
inject settings exec/run/zz_capture.c "a caller that decides captures" <<<'    rp_log_capture_begin(a, sizeof a);'
inject status exec/zz_broken.c "a silent broken invariant" <<<"    return RP_BROKEN;"
inject status common/zz_status.c "fprintf(stderr" <<<'    fprintf(stderr, "x");'
inject status sim/zz_status.c "fputs to stderr" <<<'    fputs("x", stderr);'
inject status sim/zz_status.c "perror" <<<'    perror("x");'
inject status common/zz_status.c "exit" <<<'    exit(2);'

suite='TestSuite(zz, .init = begin, .fini = end, .timeout = 60);'
inject criterion tests/common/zz_end.c "an assertion of a .fini" <<<$'static void end(void)\n{\n    cr_expect(x);\n}\n\n'"$suite"
check_injected # it looks at functions of all files
inject criterion tests/common/zz_end.c "one in what it calls" \
    <<<$'static void zz_check(int x)\n{\n    cr_assert(eq(int, x, 0));\n}\nstatic void end(void)\n{\n    zz_check(1);\n}\n'"$suite"
check_injected
cat >"$tree/tests/support/zz_check.c" <<<$'void zz_check(int x,\n              int y)\n{\n    cr_assert(lt(int, x, y));\n}'
cat >"$tree/tests/common/zz_end.c" <<<'Test(zz, zz, .fini = zz_check)'
expect criterion tests/support/zz_check.c:4: "one in another file, of a single test"
rm "$tree/tests/support/zz_check.c" "$tree/tests/common/zz_end.c"
inject criterion tests/common/zz_limits.c "two time limits in a file" \
    <<<$'TestSuite(zz, .timeout = 60);\n\nTest(zz, one, .timeout = 90)\n{\n}'
inject criterion tests/common/zz_assert.c "Criterion's own assertions" <<<'#include <criterion/new/assert.h>'
check_injected

echo "$cases injected violations, $failures overlooked${skipped:+; skipped lints:$skipped}"
[ "$failures" -eq 0 ]
