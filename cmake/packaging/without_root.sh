# shellcheck shell=bash
# Sourced by bootstrap.sh: packages without root. They are downloaded with a package list of our own and unpacked below
# build/sysroot, and the compiler, CMake and the programs are told to look there. Needs: root, logs, say, fail, logged.
sysroot=$root/build/sysroot

# unpack_packages NAME...
unpack_packages()
{
    local apt=$root/build/apt options package
    command -v cc >/dev/null || fail "there is no C compiler, which cannot be unpacked: have build-essential installed"
    options=(-o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt" -o "Dir::Cache::archives=$apt/archives"
        -o Debug::NoLocking=true -o APT::Sandbox::User=)
    if [ "$(cat "$sysroot/unpacked" 2>/dev/null)" != "$*" ]; then
        say "Packages: not root, unpacking below build/sysroot: $*"
        rm -rf "$sysroot" "$apt/archives"
        mkdir -p "$sysroot" "$apt/lists/partial" "$apt/archives/partial"
        logged apt-update apt-get "${options[@]}" update
        logged apt-download apt-get "${options[@]}" install -y --no-install-recommends --download-only "$@"
        for package in "$apt"/archives/*.deb; do
            dpkg-deb -x "$package" "$sysroot"
        done
        mend_sysroot
        echo "$*" >"$sysroot/unpacked"
    fi
    use_sysroot
}

# Folders of libraries, the alternatives of OpenBLAS first: no script of a package has linked one to its place.
library_folders()
{
    local multiarch
    multiarch=$(cc -print-multiarch)
    for folder in "$sysroot/usr/lib/$multiarch"/openblas-* "$sysroot/usr/lib/$multiarch" "$sysroot/lib/$multiarch" \
        "$sysroot/usr/lib" "$sysroot/lib"; do
        [ ! -d "$folder" ] || echo "$folder"
    done
}

# Links lead to the files' new places; files that the system has itself were not unpacked.
mend_sysroot()
{
    local folder link to place
    for folder in $(library_folders); do
        for link in "$folder"/*.so*; do
            [ -L "$link" ] || continue
            to=$(readlink "$link")
            if [ "${to#/}" != "$to" ] && [ -e "$sysroot$to" ]; then
                ln -sfn "$sysroot$to" "$link"
            fi
            for place in "${folder#"$sysroot"}" /lib/"$(cc -print-multiarch)"; do
                if [ ! -e "$link" ] && [ -e "$place/$to" ]; then
                    ln -sfn "$place/$to" "$link"
                fi
            done
        done
        sed -i -E "s,(^|=| |-I|-L)/usr/,\1$sysroot/usr/,g; s,=/usr\$,=$sysroot/usr," "$folder"/pkgconfig/*.pc 2>/dev/null || true
    done
    if [ -x "$sysroot/usr/bin/gnuplot-nox" ]; then
        ln -sf gnuplot-nox "$sysroot/usr/bin/gnuplot"
    fi
    cat >"$sysroot/fonts.conf" <<TEXT
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>/usr/share/fonts</dir>
  <dir>$sysroot/usr/share/fonts</dir>
  <cachedir>$sysroot/fontconfig</cachedir>
</fontconfig>
TEXT
}

use_sysroot()
{
    local folders
    folders=$(library_folders | paste -sd:)
    export PATH=$sysroot/usr/bin:$PATH LD_LIBRARY_PATH=$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LIBRARY_PATH=$folders CMAKE_PREFIX_PATH=$sysroot/usr FONTCONFIG_FILE=$sysroot/fonts.conf
    export CPATH=$sysroot/usr/include:$sysroot/usr/include/$(cc -print-multiarch)
    PKG_CONFIG_PATH=$(library_folders | sed 's|$|/pkgconfig|' | paste -sd:)
    export PKG_CONFIG_PATH
    # Also the libraries of libraries are found by the programs' own path, so that LD_LIBRARY_PATH need not be set.
    build_options+=("-DCMAKE_INSTALL_RPATH=\$ORIGIN/../lib/rpsim;\$ORIGIN/rpsim"
        -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags -DCMAKE_SHARED_LINKER_FLAGS=-Wl,--disable-new-dtags)
}

# install_below PREFIX: programs and data, and the unpacked libraries that the programs need.
install_below()
{
    local prefix=$1 library
    logged install cmake --install "$root/build/release" --prefix "$prefix"
    { ldd "$prefix"/bin/rp* "$prefix"/lib/librpsim.so 2>/dev/null || true; } |
        awk -v from="$sysroot/" 'index($3, from) == 1 { print $3 }' | sort -u >"$logs/libraries"
    while read -r library; do
        mkdir -p "$prefix/lib/rpsim"
        cp -L "$library" "$prefix/lib/rpsim/"
    done <"$logs/libraries"
    env -u LD_LIBRARY_PATH "$prefix/bin/rpexec" --version >/dev/null || fail "$prefix/bin/rpexec does not start"
    say "Installed: programs in $prefix/bin; the folder may be moved, and build/ deleted"
}
