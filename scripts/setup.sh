#!/usr/bin/env bash
# Installs what building and testing need on a Debian-like machine, and only what is missing.
#
# Packages come from apt (as root, or through sudo), Python modules from pip into .work/venv. What cannot be
# installed is named in one line each. Exit status 1 only when the build itself cannot work: without a test
# tool the tests that need it fail and say so.
set -u
cd "$(dirname "$0")/.."

# command or file that shows the package is there : package
build_packages="
cc:build-essential
pkg-config:pkg-config
"
test_packages="
/usr/lib/*/libisal.so.2:libisal2
igzip:isal
zstd:zstd
lz4:lz4
pigz:pigz
7z:p7zip-full
busybox:busybox
bsdcat:libarchive-tools
sqlite3:sqlite3
python3:python3
/usr/lib/python3*/ensurepip:python3-venv
wimlib-imagex:wimtools
/usr/lib/*/libwim.so.15:libwim15
chromium:chromium
"
python_modules="dissect.util xpress9"

present() {
    case "$1" in
    /*) compgen -G "$1" >/dev/null ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

missing() {
    local pair
    for pair in $1; do
        present "${pair%%:*}" || echo "${pair##*:}"
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

install_packages() {
    local wanted package
    wanted=$(missing "$build_packages$test_packages")
    [ -n "$wanted" ] || return 0
    if ! command -v apt-get >/dev/null; then
        echo "setup: no apt-get here; please install what corresponds to:" $wanted
        return 0
    fi
    export DEBIAN_FRONTEND=noninteractive
    as_root apt-get update -q >/dev/null 2>&1 || echo "setup: apt-get update failed (root or sudo, and a network, are needed)"
    echo "setup: installing" $wanted
    # Together is faster; one by one finds out which one is missing.
    as_root apt-get install -q -y --no-install-recommends $wanted >/dev/null 2>&1 && return 0
    for package in $wanted; do
        as_root apt-get install -q -y --no-install-recommends "$package" >/dev/null 2>&1 ||
            echo "setup: cannot install $package: apt-get install $package"
    done
}

install_python() {
    local module python=.work/venv/bin/python3
    if [ ! -x "$python" ]; then
        python3 -m venv .work/venv >/dev/null 2>&1 || {
            echo "setup: cannot make .work/venv: is python3-venv installed?"
            return 0
        }
    fi
    for module in $python_modules; do
        "$python" -m pip show -q "$module" >/dev/null 2>&1 && continue
        "$python" -m pip install -q --disable-pip-version-check "$module" >/dev/null 2>&1 ||
            echo "setup: cannot install the Python module $module: $python -m pip install $module"
    done
}

install_packages
install_python

status=0
if ! command -v cargo >/dev/null; then
    echo "setup: cargo is missing: install Rust 1.89 or later with rustup (https://rustup.rs)"
    status=1
fi
for pair in $build_packages; do
    if ! present "${pair%%:*}"; then
        echo "setup: ${pair##*:} is missing and the build needs it"
        status=1
    fi
done
for component in fmt clippy; do
    if command -v cargo >/dev/null && ! cargo "$component" --version >/dev/null 2>&1; then
        command -v rustup >/dev/null && rustup component add "${component/fmt/rustfmt}" >/dev/null 2>&1 ||
            echo "setup: cargo $component is missing: rustup component add ${component/fmt/rustfmt}"
    fi
done
exit $status
