#!/usr/bin/env python3
"""make_wheel.py SOURCE LIBRARY VERSION OUTDIR: a wheel of the module, with the library and its data.

Needs only Python, and no network. The same inputs give the same bytes. The wheel is for this kind of machine
(linux_x86_64), and its library uses the system's libyaml, jansson, GSL, SQLite and, if it was built with it, hwloc.
"""
import base64
import hashlib
import os
import pathlib
import sys
import sysconfig
import zipfile

METADATA = """\
Metadata-Version: 2.1
Name: rpsim
Version: {version}
Summary: Simulation of pipeline schedules on GPUs: rpsim as a Python module
License: Apache-2.0
Requires-Python: >=3.8
"""

WHEEL = """\
Wheel-Version: 1.0
Generator: make_wheel.py
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""


def members(source, library, version, platform):
    """Names in the wheel and their bytes, without RECORD."""
    info = f"rpsim-{version}.dist-info"
    for path in sorted((source / "sim/library/python/rpsim").glob("*.py")):
        yield f"rpsim/{path.name}", path.read_bytes()
    yield "rpsim/lib/librpsim.so.0", library.read_bytes()
    data = [path for path in (source / "traces").rglob("*") if path.is_file()]
    data += (source / "plots").glob("*.gp")
    for path in sorted(data):
        yield f"rpsim/share/rpsim/{path.relative_to(source)}", path.read_bytes()
    yield f"{info}/METADATA", METADATA.format(version=version).encode()
    yield f"{info}/WHEEL", WHEEL.format(platform=platform).encode()
    yield f"{info}/LICENSE", (source / "LICENSE").read_bytes()


def main(source, library, version, folder):
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    final = folder / f"rpsim-{version}-py3-none-{platform}.whl"
    temporary = folder / f".{final.name}.{os.getpid()}.tmp"
    record = f"rpsim-{version}.dist-info/RECORD"
    lines = []
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as wheel:

            def add(name, content):
                entry = zipfile.ZipInfo(name)  # of 1980
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (0o755 if ".so" in name else 0o644) << 16
                wheel.writestr(entry, content)

            for name, content in members(source, library, version, platform):
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
                lines.append(f"{name},sha256={digest.decode()},{len(content)}\n")
                add(name, content)
            add(record, "".join(lines + [f"{record},,\n"]).encode())
        temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)
    print(final)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__.splitlines()[0])
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], pathlib.Path(sys.argv[4]))
