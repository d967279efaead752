#!/usr/bin/env bash
# package.sh deb|rpm BUILT OUT: packages of the programs in BUILT, written to OUT.
#
# Packages: longshore, longshore-lab, longshore-cache, and the symbols that were taken out of the three: longshore-dbgsym
# for deb, longshore-debuginfo for rpm. Files are placed by scripts/install.sh, so that a package and `make install
# PREFIX=/usr` have the same ones. VERSION overrides the version of Cargo.toml, SOURCE_DATE_EPOCH the time of all files (the
# commit's), COMPRESSION (xz; none for tests) how a package is compressed, and SIZE_MAX (none) the most bytes of the program.
#
# Invariants
# - A .deb appears under its name only when complete.
# - No file in a package is newer than SOURCE_DATE_EPOCH.
# - BUILT is only read: programs are stripped as copies.
#
# Leaves to others: building (make build), which files there are and where (scripts/install.sh), what is done when a
# package is installed or removed (contrib/packages), and trying one in a clean system (test-packages.sh, test-rpm.sh).
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."

kind=${1:-} built=${2:-target/release} out=${3:-target/packages}
version=${VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)}
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
fi
export SOURCE_DATE_EPOCH
maintainer=${MAINTAINER:-"The Longshore authors <longshore@localhost>"}

need() {
    command -v "$1" >/dev/null && return
    echo "package: $1 is missing: apt-get install $2" >&2
    exit 1
}
need strip binutils
need objdump binutils

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$out"
out=$(cd "$out" && pwd)

summary_longshore="backups of PostgreSQL, SQLite and files: striped, compressed, verified"
summary_lab="sample databases, measurements and simulations for Longshore"
summary_cache="block cache for nbdkit: a small fast disk before a large slow one"
text_longshore="Backs up databases while they are used, verifies every byte, restores to any moment of a WAL archive, and expires, checks and drills by systemd timers. Stripes are gzip, zstd or LZ4 files. No timer is enabled by the installation."
text_lab="The program longshore-lab, which the commands longshore lab, longshore tune and the studies of longshore cache start. Backups and restores work without it."
text_cache="The plugin that longshore cache serve loads into nbdkit, and a unit for systemd, which the installation does not enable. The pages cache-daemon.md and cache.md of the package longshore describe it."

# The parts of install.sh in roots of their own, compressed pages, and the symbols.
stage_all() {
    local part bytes
    for part in longshore lab cache; do
        BUILT=$built PREFIX=/usr DESTDIR=$stage/$part ./scripts/install.sh install "$part"
        # The lists serve `make uninstall`; here the package manager knows the files.
        rm -rf "$stage/$part/usr/share/longshore"
        find "$stage/$part" -path '*/man/man*' -type f -exec gzip -9n {} +
    done
    bytes=$(stat -c %s "$stage/longshore/usr/bin/longshore")
    if [ -n "${SIZE_MAX:-}" ] && [ "$bytes" -gt "$SIZE_MAX" ]; then
        echo "package: the program has $bytes bytes, more than $SIZE_MAX: see what grew with nm --print-size" >&2
        exit 1
    fi
    mkdir -p "$stage/cache/usr/share/doc/longshore-cache"
    cp docs/cache-daemon.md docs/cache.md "$stage/cache/usr/share/doc/longshore-cache/"
    mkdir -p "$stage/lab/usr/share/doc/longshore-lab"
    symbols "$built/longshore" "$built/longshore-lab" "$built/liblongshore_nbd.so"
}

# Debug files by build id, where gdb and eu-unstrip look for them.
symbols() {
    local file id dir=$stage/dbgsym/usr/lib/debug/.build-id
    for file in "$@"; do
        id=$(readelf -n "$file" | sed -n 's/.*Build ID: //p')
        if [ -z "$id" ]; then
            echo "package: $file has no build id, so its symbols cannot be found: link with --build-id" >&2
            exit 1
        fi
        mkdir -p "$dir/${id:0:2}"
        objcopy --only-keep-debug --compress-debug-sections "$file" "$dir/${id:0:2}/${id:2}.debug"
        chmod 644 "$dir/${id:0:2}/${id:2}.debug"
    done
}

# The newest version of the C library's symbols that the files use.
libc_needed() {
    objdump -T "$@" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -1
}

control() {
    local name=$1 depends=$2 more=$3 summary=$4 text=$5 root=$6 size
    size=$(du -k -s --apparent-size "$root" | cut -f1)
    mkdir -p "$root/DEBIAN"
    {
        echo "Package: $name"
        echo "Version: $version"
        echo "Architecture: $(dpkg --print-architecture)"
        echo "Maintainer: $maintainer"
        echo "Installed-Size: $size"
        echo "Depends: $depends"
        [ -z "$more" ] || echo "$more"
        echo "Section: $([ "${name##*-}" = dbgsym ] && echo debug || echo database)"
        echo "Priority: optional"
        echo "Description: $summary"
        echo "$text" | fold -s -w 78 | sed 's/^/ /; s/ *$//'
    } >"$root/DEBIAN/control"
    (cd "$root" && find . -path ./DEBIAN -prune -o -type f -print0 | sort -z | xargs -0 -r md5sum | sed 's|\./||') \
        >"$root/DEBIAN/md5sums"
}

copyright() {
    mkdir -p "$1"
    {
        echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
        echo "Upstream-Name: longshore"
        echo
        echo "Files: *"
        echo "Copyright: the Longshore authors"
        echo "License: MIT or Apache-2.0"
        sed 's/^$/./; s/^/ /' LICENSE-MIT
        echo " ."
        echo " The text of the Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0."
    } >"$1/copyright"
}

make_deb() {
    local name=$1 root=$2 file
    # A set-group-ID bit of the place that is built in would come along.
    find "$root" -type d -exec chmod 755 {} +
    find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    file=$out/${name}_${version}_$(dpkg --print-architecture).deb
    dpkg-deb --root-owner-group -Z"${COMPRESSION:-xz}" --build "$root" "$file.new" >/dev/null
    mv "$file.new" "$file"
    echo "$file"
}

debs() {
    need dpkg-deb dpkg
    need dpkg dpkg
    stage_all
    local libc script
    libc="libc6 (>= $(libc_needed "$built/longshore" "$built/longshore-lab" "$built/liblongshore_nbd.so")), libgcc-s1"
    for part in longshore lab cache dbgsym; do
        copyright "$stage/$part/usr/share/doc/$([ $part = longshore ] && echo longshore || echo "longshore-$part")"
    done
    control longshore "$libc" "Recommends: libisal2
Suggests: longshore-lab, longshore-cache" "$summary_longshore" "$text_longshore" "$stage/longshore"
    echo /etc/longshore/longshore.toml >"$stage/longshore/DEBIAN/conffiles"
    for script in postinst prerm postrm; do
        install -m755 "contrib/packages/$script" "$stage/longshore/DEBIAN/$script"
        install -Dm755 "contrib/packages/cache/$script" "$stage/cache/DEBIAN/$script"
    done
    control longshore-lab "longshore (= $version), $libc" "" "$summary_lab" "$text_lab" "$stage/lab"
    control longshore-cache "longshore (= $version), nbdkit, $libc" "" "$summary_cache" "$text_cache" "$stage/cache"
    control longshore-dbgsym "longshore (= $version)" "" "symbols of longshore, -lab and -cache for debuggers" \
        "Debug files by build id, for gdb and perf." "$stage/dbgsym"
    make_deb longshore "$stage/longshore"
    make_deb longshore-lab "$stage/lab"
    make_deb longshore-cache "$stage/cache"
    make_deb longshore-dbgsym "$stage/dbgsym"
}

# files ROOT: the list for a spec. Directories of our own belong to the package, the system's do not.
files() {
    (cd "$1" && find . -type f -printf '/%P\n' | sort) | sed 's|^/etc/longshore/longshore.toml$|%config(noreplace) &|'
    (cd "$1" && find . -type d \( -path '*/longshore*' -o -path './usr/lib/debug/*' \) -printf '%%dir /%P\n' | sort)
}

rpms() {
    need rpmbuild rpm
    stage_all
    local part packed=()
    [ "${COMPRESSION:-}" = none ] && packed=(--define "_binary_payload w0.gzdio")
    mkdir -p "$stage/rpm/root" "$stage/rpm/top"
    for part in longshore lab cache dbgsym; do
        cp -a "$stage/$part/." "$stage/rpm/root/"
        files "$stage/$part" >"$stage/rpm/$part.files"
    done
    spec >"$stage/rpm/longshore.spec"
    rpmbuild -bb --quiet --define "_topdir $stage/rpm/top" --define "_rpmdir $out" \
        "${packed[@]}" --buildroot "$stage/rpm/buildroot" "$stage/rpm/longshore.spec" >"$stage/rpm/log" 2>&1 || {
        cat "$stage/rpm/log" >&2
        exit 1
    }
    find "$out" -name "longshore*-$version-1.*.rpm"
}

spec() {
    cat <<END
# Nothing is compiled and nothing stripped here; paths are Fedora's and SUSE's.
%global debug_package %{nil}
%global __os_install_post %{nil}
%global _build_id_links none
%global use_source_date_epoch_as_buildtime 1
%global clamp_mtime_to_source_date_epoch 1
Name: longshore
Version: $version
Release: 1
License: MIT OR Apache-2.0
Summary: $summary_longshore
%description
$text_longshore
%package lab
Summary: $summary_lab
Requires: longshore = %{version}
%description lab
$text_lab
%package cache
Summary: $summary_cache
Requires: longshore = %{version}
Requires: nbdkit
%description cache
$text_cache
%package debuginfo
Summary: symbols of longshore, -lab and -cache for debuggers
AutoReqProv: no
%description debuginfo
Debug files by build id, for gdb and perf.
%install
mkdir -p %{buildroot}
cp -a $stage/rpm/root/. %{buildroot}/
%post
$(sed '/^#!/d; /^set -e/d' contrib/packages/postinst)
%preun
if [ "\$1" = 0 ]; then set -- remove; else set -- upgrade; fi
$(sed '/^#!/d; /^set -e/d' contrib/packages/prerm)
%postun
if [ "\$1" = 0 ]; then set -- remove; else set -- upgrade; fi
$(sed '/^#!/d; /^set -e/d' contrib/packages/postrm)
%post cache
$(sed '/^#!/d; /^set -e/d' contrib/packages/cache/postinst)
%preun cache
if [ "\$1" = 0 ]; then set -- remove; else set -- upgrade; fi
$(sed '/^#!/d; /^set -e/d' contrib/packages/cache/prerm)
%postun cache
if [ "\$1" = 0 ]; then set -- remove; else set -- upgrade; fi
$(sed '/^#!/d; /^set -e/d' contrib/packages/cache/postrm)
%files -f $stage/rpm/longshore.files
%files lab -f $stage/rpm/lab.files
%files cache -f $stage/rpm/cache.files
%files debuginfo -f $stage/rpm/dbgsym.files
END
}

case "$kind" in
deb) debs ;;
rpm) rpms ;;
*)
    echo "package: say deb or rpm" >&2
    exit 2
    ;;
esac
