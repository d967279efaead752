#!/usr/bin/env bash
# Bundles everything that a bare Linux machine with an NVIDIA GPU needs to run `longshore lab device-check`: no Rust, no
# network and no Python packages are needed there.
#
# usage: device-check.sh LONGSHORE-LAB DIRECTORY
#
# NVCOMP names versions of nvidia-libnvcomp-cu13 to fetch with pip (5.2.0.13), or library files to copy. nvCOMP is
# NVIDIA's, under NVIDIA's licence (kept next to it): for machines with NVIDIA GPUs, and not for redistribution. It is
# fetched for the user who runs this script and is no part of this repository.
set -euo pipefail
binary=$1
bundle=$2
limit_mib=60

rm -rf "$bundle"
mkdir -p "$bundle/lib"
cp "$binary" "$bundle/longshore-lab"
strip "$bundle/longshore-lab"
cp scripts/device-check-run.sh "$bundle/run.sh"

isal=$(ldconfig -p | awk '/libisal\.so\.2 / { print $NF; exit }')
if [ -n "$isal" ]; then
    # The file's name contains the version, so it is kept, with a link to it.
    cp "$(realpath "$isal")" "$bundle/lib/"
    ln -s "$(basename "$(realpath "$isal")")" "$bundle/lib/libisal.so.2"
    cp /usr/share/doc/libisal2/copyright "$bundle/lib/libisal.copyright" 2>/dev/null || true
else
    echo "device-check: no libisal.so.2 here: software will be measured with slower code"
fi

fetch() {
    local wheels
    wheels=$(mktemp -d)
    if python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: -d "$wheels" \
        "nvidia-libnvcomp-cu13==$1" && python3 -m zipfile -e "$wheels"/*.whl "$wheels/unpacked"; then
        cp "$wheels"/unpacked/nvidia/libnvcomp/lib64/libnvcomp.so.[0-9]* "$bundle/lib/"
        cp "$wheels/unpacked/nvidia/libnvcomp/LICENSE" "$bundle/lib/libnvcomp.LICENSE"
    else
        echo "device-check: cannot fetch nvidia-libnvcomp-cu13 $1: name a file in NVCOMP, or have nvCOMP on the machine"
    fi
    rm -rf "$wheels"
}

for one in ${NVCOMP:-5.2.0.13}; do
    if [ -e "$one" ]; then
        cp -L "$one" "$bundle/lib/"
    else
        fetch "$one"
    fi
done

size_mib=$(du -sm "$bundle" | cut -f1)
echo "$bundle: $size_mib MiB: copy it to the machine and run run.sh there"
if [ "$size_mib" -gt "$limit_mib" ]; then
    echo "device-check: more than $limit_mib MiB: fetch fewer versions of nvCOMP"
    exit 1
fi
