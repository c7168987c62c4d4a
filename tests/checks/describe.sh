#!/usr/bin/env bash
# rpexec --platform-out and --host-rates, --platform detect: a platform of this machine, and of machines that hwloc's and
# NVIDIA's libraries say there are (tests/golden/hwloc, tests/tools/fake_nvidia.c). Each file is one that rpsim takes.
# A plain run measures this machine without GPUs, and with known ones; with RP_LONG=1 it does so in each case, and for
# --host-rates.
# Sanitized: --long
set -euo pipefail
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
rpsim=$(realpath "$3")
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
cd "$work"
rpexec=$build/exec/rpexec

# takes FILE GPUS MODEL: rpsim runs with the platform.
takes()
{
    "$rpsim" --platform "$1" --gpus "$2" --model "$3" --schedule roundpipe,1f1b --format csv >out 2>err ||
        fail "rpsim does not take $1: $(cat err "$1")"
}

# says FILE LINE: a line of the file, by an extended regular expression.
says()
{
    grep -qE "^$2\$" "$1" || fail "no line '$2' in $1: $(cat "$1")"
}

# between KEY LOW HIGH FILE
between()
{
    awk -v key="$1:" -v low="$2" -v high="$3" '$1 == key { found = $2 >= low && $2 <= high } END { exit !found }' "$4" ||
        fail "$1 is not from $2 to $3 in $4: $(grep "^$1" "$4")"
}

# hwloc closes plugins that leave memory behind.
export ASAN_OPTIONS=detect_leaks=0
memory_gib=$(awk '$1 == "MemTotal:" { print $2 / 1048576 }' /proc/meminfo)
if ! ldconfig -p 2>/dev/null | grep -q libnvidia-ml; then
    "$rpexec" --platform-out here.yaml 2>err || fail "--platform-out fails: $(cat err)"
    says here.yaml '# No GPU \(.*\): GPUs are threads of this host, as rpexec --backend host runs them\.'
    says here.yaml 'name: here'
    says here.yaml 'gpu: host'
    between host_memory_gib "$(awk -v m="$memory_gib" 'BEGIN { print 0.97 * m }')" "$(awk -v m="$memory_gib" 'BEGIN { print 1.03 * m }')" here.yaml
    between host_optimizer_gb_per_s 0.5 2000 here.yaml
    takes here.yaml 2 tiny
    expect 2 "no GPU of NVIDIA answers (libnvidia-ml.so.1: " \
        "$rpsim" --platform detect --schedule 1f1b
    expect 2 "no GPU of NVIDIA answers" "$rpsim" --platform detect --platform-out none.yaml
    [ ! -e none.yaml ] || fail "a refused --platform-out leaves a file"
else
    echo "a GPU: the description of a machine without one is skipped"
fi

if [ "${RP_LONG:-0}" = 1 ]; then
    "$rpexec" --host-rates rates.txt 2>err || fail "--host-rates fails: $(cat err)"
    says rates.txt 'host_optimizer_gb_per_s: [0-9.]+'
    for pass in adam refresh collect; do
        says rates.txt "host_${pass}_gb_per_s: [0-9.]+"
    done
    [ "$(grep -cE '^# +[0-9]+ +[0-9]+( +[0-9.]+){3}$' rates.txt)" -ge 3 ] || fail "rates by threads and sizes: $(cat rates.txt)"
fi
expect 2 "valid is a file of its own" "$rpexec" --host-rates x --platform-out x
# Rules that ask the backend find one.
expect 2 "the host backend has no devices" "$rpexec" --host-rates x --transport nccl --backend host
RPEXEC_BACKEND=host expect 2 "the host backend has no devices" "$rpexec" --host-rates x --transport nccl
expect 2 "cannot be written" "$rpexec" --platform-out /nowhere/x.yaml
expect 2 "platform.gpus=4" "$rpsim" --gpus 4 --platform-out x.yaml

fake=$build/tests/fake_nvidia
[ -e "$fake/libcuda.so.1" ] || { echo "no fake driver in this build"; end; exit 0; }
export LD_LIBRARY_PATH=$fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export HWLOC_XMLFILE=$source/tests/golden/hwloc/two-switches.xml

# A GPU that is known: its rates are the shipped platform's, its link is read and measured.
# Other processes can only make copies slower: the best of five counts.
for _ in 1 2 3 4 5; do
    RP_FAKE_LINK=8 "$rpexec" --platform-out known.yaml 2>err || fail "--platform-out fails with GPUs: $(cat err)"
    awk '/^(up|down)load_gb_per_s:/ { slow = slow || $2 < 6 } END { exit slow }' known.yaml && break
done
says known.yaml '# 4 x NVIDIA GeForce RTX 4090\. The GPU is known: values without a word are those of platform rtx4090x8\.'
says known.yaml 'gpu: rtx4090'
says known.yaml 'fp16_tflops_fp16_acc: 330\.3'
says known.yaml 'gpus: 4  # read: NVML'
says known.yaml 'memory_gib: 24  # read: NVML'
says known.yaml 'memory_gb_per_s: 1008  # read: NVML, bus width and clock'
says known.yaml 'pcie_gen: 4  # read: NVML'
says known.yaml 'peer: none'
says known.yaml 'measured: .*link_effective_gb_per_s .*upload_gb_per_s.*'
says known.yaml 'moved: .*dispatch_us_per_module.*'
! grep -q '^set:' known.yaml || fail "nothing was set on this server: $(grep ^set: known.yaml)"
between upload_gb_per_s 6 8.1 known.yaml
between download_gb_per_s 6 8.1 known.yaml
if ! grep -q '^# Built without hwloc' known.yaml; then
    says known.yaml '# hwloc: 2 sockets, 2 NUMA nodes, 4 cores, 4 processors, 256\.0 GiB of memory, 4 GPUs on PCI\.'
    says known.yaml 'gpus_per_switch: 2  # read: hwloc, GPUs behind one root port'
    says known.yaml 'sockets: 2  # read: hwloc'
fi
grep -q "The host's part of a step in GB/s, on pinned memory" known.yaml || fail "memory is not pinned"
takes known.yaml 4 qwen3-1.7b

# rpsim reads the same and measures nothing; what it writes and what it takes as detect give the same results.
"$rpsim" --platform detect --platform-out read.yaml 2>err || fail "rpsim --platform-out fails: $(cat err)"
says read.yaml '# 4 x NVIDIA GeForce RTX 4090\. The GPU is known: .*'
says read.yaml 'name: read'
says read.yaml 'link_efficiency: 0\.655  # assumed: no copies were measured'
between host_memory_gib "$(awk -v m="$memory_gib" 'BEGIN { print 0.97 * m }')" "$(awk -v m="$memory_gib" 'BEGIN { print 1.03 * m }')" read.yaml
says read.yaml 'moved: .*host_optimizer_gb_per_s.*dispatch_us_per_module.*'
! grep -qE '^(measured|set):' read.yaml || fail "nothing was measured or set on this server: $(cat read.yaml)"
for file in known.yaml read.yaml; do # what was read is the same in both
    grep '# read: ' "$file" | sort >"$file.read"
done
cmp known.yaml.read read.yaml.read || fail "rpexec and rpsim read different machines: $(diff known.yaml.read read.yaml.read)"
for platform in detect read.yaml; do
    "$rpsim" --platform "$platform" --schedule roundpipe,1f1b --format json 2>err >out || fail "--platform $platform fails: $(cat err)"
    sed -E 's/"platform": *[^,]*,//g' out >"$platform.json"
done
cmp detect.json read.yaml.json || fail "detect and its file differ: $(diff detect.json read.yaml.json)"

# GPUs by the product's name, their slot by NVML: PCIe 3 halves links and collectives of an L40S.
RP_FAKE_GPU="NVIDIA L40S" RP_FAKE_PCIE=3 "$rpsim" --platform detect --platform-out l40s.yaml || fail "an L40S is not detected"
says l40s.yaml 'gpu: l40s'
says l40s.yaml 'peer: pcie'
says l40s.yaml 'peer_gb_per_s: 16  # .*'
says l40s.yaml 'collective_gb_per_s: 10\.48  # moved: by the ratio of the links'
takes l40s.yaml 4 qwen3-1.7b
while IFS='|' read -r name gpu peer; do
    RP_FAKE_GPU="NVIDIA $name" RP_FAKE_NVLINKS=12 "$rpsim" --platform detect --platform-out - >one.yaml || fail "$name is not detected"
    says one.yaml "gpu: $gpu"
    says one.yaml "peer_gb_per_s: $peer"
done <<'GPUS'
A100-SXM4-80GB|a100-80|300
A100-PCIE-40GB|a100-40-pcie|300
A100 80GB PCIe|a100-80-pcie|300
H100 80GB HBM3|h100|450
H100 PCIe|h100-pcie|300
B200|b200|900
RTX A6000|a6000|56.25
GeForce RTX 3090|rtx3090|56.25
GPUS
# A laptop's or an export version of a known GPU is another one.
RP_FAKE_GPU="NVIDIA GeForce RTX 4090 D" "$rpsim" --platform detect --platform-out - | grep -q 'RTX 4090 D. The GPU is not known' ||
    fail "an RTX 4090 D is taken for an RTX 4090"

# One that nobody has heard of: peaks by generation, cores and clock; NVLink; PCIe beyond what rpsim knows.
detect=("$rpsim" --platform detect)
[ "${RP_LONG:-0}" != 1 ] || detect=("$rpexec")
RP_FAKE_GPU="NVIDIA Foo 9" RP_FAKE_GIB=47.5 RP_FAKE_PCIE=6 RP_FAKE_NVLINKS=4 RP_FAKE_LINK=100 "${detect[@]}" --platform-out unknown.yaml 2>err ||
    fail "--platform-out fails with unknown GPUs: $(cat err)"
says unknown.yaml '# 4 x NVIDIA Foo 9\. The GPU is not known: values without a word are those of platform rtx4090x8\.'
says unknown.yaml 'gpu: foo9'
says unknown.yaml 'fp16_tflops_fp32_acc: 165\.2' # 16384 cores x 2.52 GHz x 4 FLOP
says unknown.yaml 'memory_gib: 47\.5  # read: NVML'
says unknown.yaml 'link_gb_per_s: 128  # read: NVML'
says unknown.yaml 'peer_gb_per_s: 100  # read: links that NVML has up, nominal'
! grep -q usable_memory_gb unknown.yaml || fail "an unknown GPU has a known one's usable memory"
takes unknown.yaml 4 qwen3-1.7b

# The driver is installed and does not run: as without one, but for a warning.
RP_FAKE_NO_DRIVER=1 expect 2 "no GPU of NVIDIA answers (NVML does not start: no driver runs)" "$rpsim" --platform detect --schedule 1f1b
if [ "${RP_LONG:-0}" = 1 ]; then
    RP_FAKE_NO_DRIVER=1 "$rpexec" --platform-out none.yaml 2>err || fail "--platform-out fails without a driver: $(cat err)"
    says none.yaml '# No GPU \(NVML does not start: no driver runs\): .*'
    grep -q '^# Built without hwloc' none.yaml ||
        grep -q 'warning: hwloc sees 4 GPUs of NVIDIA on PCI, but NVML does not start' err || fail "nothing is said of GPUs on PCI: $(cat err)"
    takes none.yaml 2 tiny
fi
end
echo "described: this machine, and three others"
