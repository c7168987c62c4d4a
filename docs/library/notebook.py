"""A timeline and a sweep, drawn with matplotlib. Cells begin with # %%: an editor or Jupyter (jupytext) runs them in
turn; as a script it writes timeline.png and sweep.png. Needs the module rpsim and matplotlib."""
# %% Timelines of two schedules
import matplotlib.pyplot as plt

import rpsim

COLORS = {"F": "#7fb8e6", "B": "#f2a65a", "R": "#c9dcef"}
LABELS = {"F": "forward", "B": "backward", "R": "recompute"}
SCHEDULES = ["1f1b", "roundpipe"]

simulation = rpsim.simulate(
    ["--schedule", ",".join(SCHEDULES), "--fidelity", "stage", "--gpus", 4, "--microbatches", 8]
)

# %% A row per GPU, time to the right
figure, axes = plt.subplots(len(SCHEDULES), sharex=True, figsize=(10, 4.6), layout="constrained")
for index, (row, plot) in enumerate(zip(simulation.rows, axes)):
    ops = [op for op in simulation.ops(index) if op.queue == "compute"]
    for kind, color in COLORS.items():
        for gpu in range(row["gpus"]):
            spans = [(op.start_ms, op.end_ms - op.start_ms) for op in ops if op.gpu == gpu and op.kind == kind]
            plot.broken_barh(spans, (gpu - 0.42, 0.84), facecolors=color, edgecolor="white", linewidth=0.4)
    plot.set_yticks(range(row["gpus"]), [f"GPU {gpu}" for gpu in range(row["gpus"])])
    plot.invert_yaxis()
    plot.set_facecolor("#eeeeee")
    plot.set_title(f"{row['schedule']}: {row['makespan_ms']:.0f} ms, {row['bubble_pct']:.1f} % idle", loc="left")
axes[-1].set_xlabel("time (ms)")
figure.legend(
    handles=[plt.Rectangle((0, 0), 1, 1, color=color, label=LABELS[kind]) for kind, color in COLORS.items()],
    loc="outside upper right",
    ncols=len(COLORS),
    frameon=False,
)
figure.savefig("timeline.png", dpi=120)

# %% The chain of causes: from the op that ends last back to the beginning, always to the op that was waited for
ops = simulation.ops(0)
path = [max(range(len(ops)), key=lambda i: ops[i].end_ms)]
while ops[path[-1]].waited_for is not None:
    path.append(ops[path[-1]].waited_for)
print(f"{SCHEDULES[0]}: {len(path)} of {len(ops)} ops are on the chain that decides its time")

# %% Throughput against microbatches, as far as they fit
COUNTS = [8, 16, 32, 64, 128]
figure, plot = plt.subplots(figsize=(7, 4), layout="constrained")
for schedule in ["1f1b", "roundpipe", "fsdp"]:
    rows = [
        rpsim.run(["--schedule", schedule, "--microbatches", count, "--microbatch-size", 2, "--intervals", "off"])[0]
        for count in COUNTS
    ]
    fits = [row["tokens_per_s"] if row["fits"] else float("nan") for row in rows]
    plot.plot(COUNTS, fits, marker="o", label=schedule)
    print(schedule, [f"{row['tokens_per_s']:.0f}" if row["fits"] else "does not fit" for row in rows])
plot.set_xscale("log", base=2)
plot.set_xticks(COUNTS, [str(count) for count in COUNTS])
plot.set_ylim(bottom=0)
plot.set_xlabel("microbatches of 2 sequences in a step")
plot.set_ylabel("tokens/s")
plot.set_title("qwen3-1.7b on 8 x RTX 4090, where it fits", loc="left")
plot.legend(frameon=False)
plot.spines[["top", "right"]].set_visible(False)
figure.savefig("sweep.png", dpi=120)
