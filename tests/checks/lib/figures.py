"""Figures, studies and plots: their make.sh, their pictures, and their tables as rows."""

import csv
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import BUILD, SOURCE, program, ran

PAPER = SOURCE / "paper-figures"
PUBLISHED = PAPER / "published"


def number(text):
    try:
        return float(text)
    except ValueError:
        return text


def near(wanted, limit):
    return pytest.approx(wanted, rel=0, abs=limit)


def rows(lines):
    """The rows of a CSV, with an attribute for each column. Texts of numbers are numbers."""
    return [SimpleNamespace(**{key: number(cell) for key, cell in row.items()}) for row in csv.DictReader(lines)]


def table(path):
    with open(path, encoding="utf-8", newline="") as file:
        return rows(file)


def simulated(command, *arguments):
    """The first row that rpsim prints."""
    return SimpleNamespace(**json.loads(ran(f"rpsim --format json {command}", *arguments).out)[0])


def change(path, *changes):
    """Regular expressions, which must occur in the file, and what replaces them."""
    text = path.read_text()
    for pattern, other in changes:
        text, count = re.subn(pattern, other, text, flags=re.M)
        assert count, f"{path}: no {pattern}"
    path.write_text(text)


def programs(folder, *names):
    """A folder of programs that has only these."""
    Path(folder).mkdir()
    for name in names:
        Path(folder, name).symlink_to(program(name))


def stand_in(path, text):
    """A program that takes the place of one of ours."""
    path = Path(path)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def drawn(out, *pictures, least=5000, forms=("svg", "png", "pdf")):
    """Each picture is there, if gnuplot is."""
    for picture in pictures if shutil.which("gnuplot") else ():
        for form in forms:
            assert Path(out, f"{picture}.{form}").stat().st_size > least, f"{picture}.{form} is not drawn"


def make(figure, out="out", folder=BUILD, **env):
    """Runs the make.sh of a figure with the programs of a folder. It draws the figure without warnings and leaves no
    temporary files."""
    done = ran("bash", Path(figure, "make.sh"), folder, out, env=env)
    assert "warning" not in done.said.lower(), str(done)
    assert not list(Path(out).glob(".*")), "make.sh left temporary files"
    if "RP_FORMS" not in env:
        drawn(out, Path(figure).name)
    return done
