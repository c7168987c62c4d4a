#!/usr/bin/env python3
"""Folded test data: a NAME.tar.gz (bytes) or NAME.txtar (text) stands for the files of a folder NAME.

folded.py unfold OUT FOLDER...          writes OUT/FOLDER: links to plain files, and the files that are folded
folded.py fold ARCHIVE FOLDER [PATTERN] puts FOLDER's files (*) into the archive; other files stay in it

A .txtar has a line "-- NAME --" before each file. In tests/bad a row of expected.tsv makes its file, unless that
exists: the file `base` (none: nothing) with `text` in place of `cut` lines from line `at` on. `text` has the escapes
of C.
"""

import csv
import gzip
import io
import pathlib
import re
import shutil
import sys
import tarfile

ARCHIVE = re.compile(r"\.(tar\.gz|txtar)$")
HEADER = re.compile(rb"^-- (\S+) --\n", re.M)


def files_of(archive):
    """{name: bytes} of an archive."""
    if archive.suffix == ".txtar":
        parts = HEADER.split(archive.read_bytes())
        return {name.decode(): data for name, data in zip(parts[1::2], parts[2::2])}
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def rows_as_files(table):
    """{name: bytes} of the files that only an expected.tsv has."""
    files = {}
    with open(table, encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
            if not (table.parent / row["file"]).exists():
                lines = (table.parent / row["base"]).read_bytes().splitlines(True) if row.get("base") else []
                at, cut = int(row.get("at") or 1) - 1, int(row.get("cut") or 0)
                lines[at:at + cut] = [row["text"].encode().decode("unicode_escape").encode("latin-1")]
                files[row["file"]] = b"".join(lines)
    return files


def unfold(out, folder):
    """Writes `out`, which is `folder` with its archives as folders."""
    shutil.rmtree(out, ignore_errors=True)
    for path in filter(pathlib.Path.is_file, folder.resolve().rglob("*")):
        place = out / path.relative_to(folder.resolve())
        if ARCHIVE.search(path.name):
            for name, data in files_of(path).items():
                write(place.with_name(ARCHIVE.sub("", path.name)) / name, data)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(path)
        for name, data in rows_as_files(path).items() if path.name == "expected.tsv" else ():
            write(place.parent / name, data)


def fold(archive, folder, pattern="*"):
    """The same files give the same bytes."""
    files = files_of(archive) if archive.exists() else {}
    files |= {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob(pattern) if path.is_file()}
    if archive.suffix == ".txtar":
        for name, data in files.items():
            if HEADER.search(data) or not data.endswith(b"\n"):
                sys.exit(f"{name}: a file in a .txtar ends with a line feed and has no line '-- NAME --'")
        archive.write_bytes(b"".join(b"-- %s --\n%s" % (name.encode(), files[name]) for name in sorted(files)))
        return
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            tar.addfile(member, io.BytesIO(files[name]))
    archive.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def main(command, *words):
    paths = [pathlib.Path(word) for word in words[:2]]
    if command == "unfold":
        for folder in words[1:]:
            unfold(paths[0] / pathlib.Path(folder).name, pathlib.Path(folder))
    else:
        fold(*paths, *words[2:])


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] not in ("unfold", "fold"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
