#!/usr/bin/env bash
# Registers, shared memory, stack and spills of every CUDA kernel, as ptxas said when the build compiled it
# (exec/cuda/resources.sh), against tests/golden/cuda_resources.csv: nothing spills on any architecture, and no kernel
# takes more than the table says. Figures hold for the compiler that the table names; other releases' kernels must not
# spill. Skipped where the build has no kernels. Release only: other builds would compile the same.
set -euo pipefail
source=$1
build=$2
objects=$build/exec/cuda/CMakeFiles/rp_cuda.dir/kernels
table=$source/tests/golden/cuda_resources.csv
compgen -G "$objects/*.cu.o" >/dev/null || { echo "skipped: this build has no CUDA kernels"; exit 77; }
command -v c++filt >/dev/null || { echo "skipped: c++filt is missing"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# resources FILE...: lines of "kernel,architecture,registers,shared,stack,spilled bytes" of what ptxas said, sorted.
resources()
{
    c++filt <"$1" | awk '
        /Compiling entry function/ {
            split($0, quoted, "'\''")
            kernel = quoted[2]
            sub(/^void /, "", kernel)
            sub(/\(.*/, "", kernel)
            gsub(/, /, " ", kernel)
            at = quoted[4]
        }
        /bytes stack frame/ { stack = $1; spilled = $5 + $9 }
        /: Used [0-9]+ registers/ {
            used = $0
            sub(/.*: Used /, "", used)
            shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH) + 0 : 0
            print kernel "," at "," used + 0 "," shared "," stack "," spilled
            kernel = "nothing"
        }' | LC_ALL=C sort
}

# compare FOUND TABLE SAME: what is worse than the table; with SAME 0 only spills count.
compare()
{
    awk -F, -v same="$3" '
        NR == FNR { if ($0 !~ /^#/ && $1 != "kernel") { known[$1 "," $2] = $0; of[$2] = 1 }; next }
        $6 > 0 { print $1 " spills " $6 " bytes on " $2; bad++ }
        same && !($1 "," $2 in known) && $2 in of { print $1 " on " $2 " is not in the table"; bad++ }
        { built[$2] = 1; seen[$1 "," $2] = 1 }
        same && $1 "," $2 in known {
            split(known[$1 "," $2], was, ",")
            if ($3 > was[3]) { print $1 " takes " $3 " registers on " $2 ", not " was[3]; bad++ }
            if ($4 > was[4]) { print $1 " takes " $4 " bytes of shared memory on " $2 ", not " was[4]; bad++ }
            if ($5 > was[5]) { print $1 " takes " $5 " bytes of stack on " $2 ", not " was[5]; bad++ }
        }
        END {
            for (key in known) {
                split(key, part, ",")
                if (same && part[2] in built && !(key in seen)) { print part[1] " on " part[2] " is gone"; bad++ }
            }
            exit bad > 0
        }' "$2" "$1"
}

for object in "$objects"/*.cu.o; do
    [ -s "$object.resources" ] || { echo "$object.resources is missing: build $object again"; exit 1; }
done
cat "$objects"/*.cu.o.resources >"$work/said"
resources "$work/said" >"$work/found"
release=$(sed -n 's/^set(CMAKE_CUDA_COMPILER_VERSION "\(.*\)")$/\1/p' "$build"/CMakeFiles/*/CMakeCUDACompiler.cmake)
{
    echo "# Resources of the CUDA kernels as ptxas $release reports them, in bytes but for registers (checks.cuda_resources)"
    echo "kernel,architecture,registers,shared,stack,spilled"
    cat "$work/found"
} >"$build/cuda_resources.csv"
same=0
grep -q "^# .* ptxas $release " "$table" && same=1
[ $same -eq 1 ] || echo "nvcc is $release, the table is of another release: only spills are looked for"
if ! compare "$work/found" "$table" $same; then
    echo "the kernels are worse than $table; if that is meant: cp $build/cuda_resources.csv $table"
    failures=$((failures + 1))
fi

# A kernel that spills, one that takes more, one that is new and one that is gone are noticed.
sed '0,/0 bytes spill stores/s//4 bytes spill stores/' "$work/said" >"$work/spilling"
resources "$work/spilling" >"$work/worse.spills"
sed "0,/Used [0-9]* registers/s//Used 256 registers/" "$work/said" >"$work/larger"
resources "$work/larger" >"$work/worse.takes"
sed '1s/^/new_/' "$work/found" >"$work/worse.table"
sed 1d "$work/found" >"$work/worse.gone"
for kind in spills takes table gone; do
    if [ $same -eq 0 ] && [ $kind != spills ]; then
        continue
    fi
    if compare "$work/worse.$kind" "$table" $same >"$work/out" || ! grep -q "$kind" "$work/out"; then
        echo "not noticed: $kind"
        failures=$((failures + 1))
    fi
done
echo "$(wc -l <"$work/found") kernels, largest: $(sort -t, -k3,3nr "$work/found" | head -n 1)"
exit $((failures > 0))
