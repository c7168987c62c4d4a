"""recorded_error.py CASE RPSIM RPDIFF: the error of rpsim's prediction of a recorded run in percent: the median of the
iterations but the first, predicted over measured, less 1.

CASE: a folder with program.txt, timeline.csv, args (model and sequence length), and, there or one above, costs.yaml and
platform.yaml of another run.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def recorded_error(case, rpsim, rpdiff, args=None, costs=None, platform=None):
    model, length = (args or case / "args").read_text().split()
    if (ROOT / model).is_file():  # of this repository
        model = ROOT / model
    record = case if (case / "costs.yaml").exists() else case.parent
    with tempfile.TemporaryDirectory() as folder:
        predicted = Path(folder, "predicted.csv")
        subprocess.run([
            rpsim, "--program-in", case / "program.txt", "--model", model, "--seq-len", length,
            "--fidelity", "hardware", "--costs", costs or record / "costs.yaml",
            "--platform", platform or record / "platform.yaml", "--timeline-out", predicted,
        ], stdout=subprocess.DEVNULL, check=True)
        found = subprocess.run([rpdiff, predicted, case, "--format", "json"], stdout=subprocess.PIPE, check=True).stdout
    rows = json.loads(found)["iterations"][1:]
    predicted_ms, measured_ms = (statistics.median(row[key] for row in rows) for key in ("predicted_ms", "measured_ms"))
    return 100 * (predicted_ms / measured_ms - 1)


if __name__ == "__main__":
    print(f"{recorded_error(Path(sys.argv[1]), *sys.argv[2:]):.4f}")
