#!/usr/bin/env bash
# The Debian package: its fields, its files, and the libraries it depends on. With RP_DEB_ROOT=FOLDER, a clean Debian
# (`debootstrap --variant=minbase bookworm FOLDER`), it is installed there by apt in a copy, and every program runs;
# with RP_LONG=1 as well, who is not root builds there by `./bootstrap.sh run --prefix`, and runs the programs from where
# they were moved to, without the build. Needs root for that. Release only.
set -euo pipefail
source_dir=$(cd "$1" && pwd)
build_dir=$(cd "$2" && pwd)
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
source "$(dirname "${BASH_SOURCE[0]}")/lib/installed.sh"
if ! command -v dpkg-shlibdeps >/dev/null; then
    echo "skipped: no dpkg-shlibdeps (apt package dpkg-dev)"
    exit 77
fi
cpack --config "$build_dir/CPackConfig.cmake" -G DEB -B "$work" -D CPACK_DEBIAN_COMPRESSION_TYPE=none >"$work/log" 2>&1 ||
    { tail -n 20 "$work/log"; exit 1; }
deb=$(echo "$work"/*.deb)
field() { dpkg-deb -f "$deb" "$1"; }
version=$("$build_dir/rpsim" --version | awk 'NR == 1 { print $2 }')
[ "$(field Package) $(field Version)" = "rpsim $version" ] || fail "it is $(field Package) $(field Version)"
[[ $(field Maintainer) == *\<*@*\> ]] || fail "Maintainer: $(field Maintainer)"
[ "$(field Section)" = science ] || fail "Section: $(field Section)"
[[ $(field Description) == *$'\n 'rpsim* ]] || fail "Description: $(field Description)"
for library in libc6 libyaml libjansson libsqlite3 libgsl zlib1g openblas; do
    [[ $(field Depends) == *$library* ]] || fail "$library is not among $(field Depends)"
done
# Files as `cmake --install` has them, owned by root, in folders that all may enter.
cmake --install "$build_dir" --prefix "$work/tree/usr" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
dpkg-deb -c "$deb" >"$work/list"
diff <(cd "$work/tree" && find . -mindepth 1 ! -type d | sort) \
    <(awk '$1 !~ /^d/ { print $6 }' "$work/list" | sort) || fail "the files differ from an installation's"
awk '$2 != "root/root" || $1 ~ /^d/ && $1 != "drwxr-xr-x" || $1 ~ /^-/ && $1 !~ /^-r..r-.r-./ { bad = 1; print }
    END { exit bad }' "$work/list" || fail "owners or modes"

if [ -n "${RP_DEB_ROOT:-}" ]; then
    root=$work/root
    cp -a "$RP_DEB_ROOT" "$root"
    cp "$deb" "$root/tmp/rpsim.deb"
    [ ! -s /etc/resolv.conf ] || cp /etc/resolv.conf "$root/etc/resolv.conf"
    in_root()
    {
        unshare -m sh -c 'mount -t proc proc "$0/proc"; exec chroot "$0" "$@"' "$root" \
            env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/var/tmp "$@"
    }
    # The package of 0.2, whose name and folders were other ones, makes way.
    old=$work/old
    mkdir -p "$old/DEBIAN" "$old/usr/bin" "$old/usr/share/roundpipe" "$old/usr/lib/python3/dist-packages/roundpipe"
    touch "$old"/usr/{bin/rpsim,share/roundpipe/data,lib/libroundpipe.so.0,lib/python3/dist-packages/roundpipe/__init__.py}
    printf '%s\n' "Package: roundpipe" "Version: 0.2.0" "Architecture: all" "Maintainer: x <x@localhost>" \
        "Description: a stand-in" >"$old/DEBIAN/control"
    dpkg-deb --build --root-owner-group "$old" "$root/tmp/old.deb" >"$work/log"
    in_root dpkg -i /tmp/old.deb >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -i old.deb"; }
    {
        in_root apt-get update
        in_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends /tmp/rpsim.deb python3
    } >"$work/log" 2>&1 || { tail -n 20 "$work/log"; fail "apt-get install"; }
    left=$(find "$root/usr" -iname '*roundpipe*' | grep -v 'share/doc/rpsim\|share/rpsim\|/man/' || true)
    [ -z "$left" ] || fail "left of the package of 0.2: $left"
    as_user() { in_root chroot --userspec=nobody:nogroup / sh -c 'cd /var/tmp && exec "$@"' sh "$@"; }
    run_programs /usr as_user
    [ -s "$root/usr/share/man/man1/rpsim.1" ] || fail "no man page"
    expect 1 gnuplot-nox as_user /usr/bin/rpsim --schedule gpipe --gantt-out chart.svg
    expect 0 True as_user python3 -c 'import rpsim; print(rpsim.run(["--schedule", "roundpipe"])[0]["fits"])'
    in_root apt-get purge -y rpsim >"$work/log" 2>&1 || { cat "$work/log"; fail "apt-get purge"; }
    left=$(find "$root/usr" \( -iname '*rpsim*' -o -iname '*roundpipe*' \) ! -path '*/__pycache__*' || true)
    [ -z "$left" ] || fail "left after purge: $left"
    echo "installed in $RP_DEB_ROOT's copy by apt: every program runs"
fi
if [ -n "${RP_DEB_ROOT:-}" ] && [ "${RP_LONG:-0}" = 1 ]; then
    in_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends build-essential cmake \
        pkg-config >"$work/log" 2>&1 || { tail -n 20 "$work/log"; fail "apt-get install build-essential"; }
    mkdir -p "$root/var/tmp/rp/source"
    git -C "$source_dir" ls-files -z | tar -C "$source_dir" --null -cf - -T - | tar -xf - -C "$root/var/tmp/rp/source"
    chown -R nobody:nogroup "$root/var/tmp/rp"
    as_user sh -c 'cd rp && ./source/bootstrap.sh run --prefix opt && mv opt moved && rm -r source' >"$work/log" 2>&1 ||
        { tail -n 20 "$work/log"; fail "bootstrap.sh run --prefix"; }
    find "$root/var/tmp" -maxdepth 1 -name 'installed*' -delete
    run_programs /var/tmp/rp/moved as_user
    grep -rlF /var/tmp/rp "$root/var/tmp/rp/moved" && fail "files that name the folder of the build"
    echo "built there without root: every program runs"
fi
end
