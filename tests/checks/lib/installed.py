"""Programs of an installation, as checks run them."""

from conftest import BUILD, ran

COMMANDS = [
    ("bin/rpsim --schedule roundpipe --model llama3.1-8b --platform h100x8 --intervals 4", "tokens/s"),
    ("bin/rpsim --schedule 1f1b --gpus 2 --trace-out installed.json --program-out installed.program", ""),
    ("bin/rpadvise --model qwen3-1.7b --platform rtx4090x8 --schedule 1f1b --gpus 4 --seq-len 2048 --global-batch 8"
     " --top 1", "qwen3-1.7b"),
    ("bin/rpplan --model llama3.1-8b --gpus 4", "stage"),
    ("bin/rpsweep pipeline-study --dry-run", "--schedule roundpipe"),
    ("bin/rppredict --cells PLACE/share/doc/rpsim/docs/runs.csv", "tokens"),
    ("bin/rpexec --backend host --gpus 2 --steps 1 --check --timeline-out installed.csv", ""),
    ("bin/rpdiff installed.csv installed.csv", ""),
    ("bin/rpsim --program-in installed.program --chakra-out installed", ""),
    ("bin/rpimport --chakra installed", ""),
]


def install(prefix):
    ran("cmake --install", BUILD, "--prefix", prefix)


def run_programs(place, **how):
    """Runs every program of an installation, from a folder that has nothing of it, which gets their files."""
    for command, said in COMMANDS:
        ran(f"{place}/{command.replace('PLACE', str(place))}", said=said, **how)


def naming(folder, *names):
    """The files of a folder that name any of these."""
    words = [word for name in names for word in ("-e", name)]
    return ran("grep -rlF", *words, folder, status=None).out.splitlines()
