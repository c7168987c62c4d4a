"""The Debian package: its fields, files, and libraries. With RP_DEB_ROOT=FOLDER, a clean Debian (`debootstrap
--variant=minbase bookworm FOLDER`), apt installs it there in a copy, and every program runs; with RP_LONG=1 also a user
without root builds there by `./bootstrap.sh run --prefix`, and runs the programs from another folder, without the
build. Needs root for that.
"""

import os
import re
import shutil
from pathlib import Path

import pytest

from conftest import BUILD, LONG, SOURCE, ran
from lib.installed import install, naming, run_programs

LIBRARIES = "libc6 libyaml libjansson libsqlite3 libgsl zlib1g openblas".split()
# Files of the 0.2 package, which had another name and other folders.
OLD_FILES = "bin/rpsim share/roundpipe/data lib/libroundpipe.so.0 lib/python3/dist-packages/roundpipe/__init__.py"
OLD_FIELDS = "Package: roundpipe\nVersion: 0.2.0\nArchitecture: all\nMaintainer: x <x@localhost>\nDescription: old\n"


@pytest.fixture(scope="module")
def deb(shared):
    if shutil.which("dpkg-shlibdeps") is None:
        pytest.skip("no dpkg-shlibdeps (apt package dpkg-dev)")
    ran("cpack -G DEB -D CPACK_DEBIAN_COMPRESSION_TYPE=none -B", shared, "--config", BUILD / "CPackConfig.cmake")
    [deb] = shared.glob("*.deb")
    return deb


def test_fields(deb):
    fields = {name: ran("dpkg-deb -f", deb, name).out.strip()
              for name in ("Package", "Version", "Maintainer", "Section", "Description", "Depends")}
    assert fields["Package"] == "rpsim" and fields["Version"] == ran("rpsim --version").out.split()[1]
    assert re.fullmatch(".*<.*@.*>", fields["Maintainer"]) and fields["Section"] == "science"
    assert "\n rpsim" in fields["Description"]
    assert all(library in fields["Depends"] for library in LIBRARIES), fields["Depends"]


def test_files(deb, tmp_path):
    """As `cmake --install` has them, owned by root, in folders that all may enter."""
    install(tmp_path / "usr")
    installed = ran("find . -mindepth 1 ! -type d", cwd=tmp_path).out.splitlines()
    rows = [line.split(None, 5) for line in ran("dpkg-deb -c", deb).out.splitlines()]
    assert sorted(name.split(" -> ")[0] for mode, *_, name in rows if mode[0] != "d") == sorted(installed)
    for mode, owner, *_, name in rows:
        assert owner == "root/root" and re.fullmatch("drwxr-xr-x|-r..r-.r-.|l.*", mode), f"{mode} {owner} {name}"


@pytest.fixture(scope="module")
def debian(deb, shared):
    """A copy of RP_DEB_ROOT with the package: the folder, and functions that run commands in it as root and as
    nobody."""
    if not os.environ.get("RP_DEB_ROOT"):
        pytest.skip("RP_DEB_ROOT names no clean Debian")
    folder = shared / "root"
    ran("cp -a", os.environ["RP_DEB_ROOT"], folder)
    shutil.copy(deb, folder / "tmp/rpsim.deb")
    if os.path.exists("/etc/resolv.conf"):
        shutil.copy("/etc/resolv.conf", folder / "etc")
    enter = ["unshare", "-m", "sh", "-c", 'mount -t proc proc "$0/proc"; exec chroot "$0" "$@"', folder]
    root = [*enter, *"env -i DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/var/tmp".split()]
    nobody = [*root, *"chroot --userspec=nobody:nogroup / sh -c".split(), 'cd /var/tmp && exec "$@"', "sh"]
    for name in OLD_FILES.split():  # they make way
        ran("install -D /dev/null", f"old/usr/{name}")
    os.mkdir("old/DEBIAN")
    Path("old/DEBIAN/control").write_text(OLD_FIELDS)
    ran("dpkg-deb --build --root-owner-group old root/tmp/old.deb")
    ran("dpkg -i /tmp/old.deb", prefix=root)
    ran("apt-get update", prefix=root)
    ran("apt-get install -y --no-install-recommends /tmp/rpsim.deb python3", prefix=root)
    return folder, root, nobody


def test_installed_by_apt(debian):
    folder, root, nobody = debian
    ours = "! -path *share/doc/rpsim* ! -path *share/rpsim* ! -path */man/*"
    assert ran("find root/usr -iname *roundpipe*", *ours.split()).out == ""
    run_programs("/usr", prefix=nobody)
    assert (folder / "usr/share/man/man1/rpsim.1").stat().st_size > 0
    ran("/usr/bin/rpsim --schedule gpipe --gantt-out chart.svg", prefix=nobody, status=1, said="gnuplot-nox")
    script = 'import rpsim; print(rpsim.run(["--schedule", "roundpipe"])[0]["fits"])'
    ran("python3 -c", script, prefix=nobody, out="True")
    ran("apt-get purge -y rpsim", prefix=root)
    assert ran("find root/usr ( -iname *rpsim* -o -iname *roundpipe* ) ! -path */__pycache__*").out == ""


def test_built_without_root(debian):
    if not LONG:
        pytest.skip("RP_LONG is not 1")
    folder, root, nobody = debian
    ran("apt-get install -y --no-install-recommends build-essential cmake pkg-config", prefix=root)
    place = folder / "var/tmp/rp"
    (place / "source").mkdir(parents=True)
    copy = 'git -C "$0" ls-files -z | tar -C "$0" --null -cf - -T - | tar -xf - -C "$1"'
    ran("sh -c", copy, SOURCE, place / "source")
    ran("chown -R nobody:nogroup", place)
    build = "cd rp && ./source/bootstrap.sh run --prefix opt && mv opt moved && rm -r source"
    ran("sh -c", build, prefix=nobody, timeout=None)
    for file in place.parent.glob("installed*"):
        file.unlink()
    run_programs("/var/tmp/rp/moved", prefix=nobody)
    assert naming(place / "moved", "/var/tmp/rp") == []
