#!/bin/sh
# Goal: measure what hybrid mode gains with a device of a given speed, on a machine that has none.
# Method: `longshore lab offload` with the double of QATzip's library (doubles/qatzip) in place of a device. The double
# answers from members that it compressed in the first, uncounted round and sleeps for its service time, so it takes next
# to no CPU. The study measures how the program divides the work; its numbers say nothing about real hardware.
#
#   scripts/offload-study.sh [SHARE [LATENCY_US [INSTANCES]]] [-- OPTIONS OF longshore lab offload]
#
# SHARE: the device's speed relative to the machine's CPUs, which is measured first (0.5). LATENCY_US: of each call (200).
# INSTANCES: calls at a time (4). LONGSHORE_SOFTWARE_MB_S: the CPUs' speed, if known. LONGSHORE_BUILT: a directory
# with `longshore`, `longshore-lab` and `libqatzip.so`; nothing is built then; LONGSHORE_SOURCE: another file or
# directory to back up.
set -eu
cd "$(dirname "$0")/.."

share=0.5 latency=200 instances=4
if [ $# -gt 0 ] && [ "$1" != -- ]; then share=$1; shift; fi
if [ $# -gt 0 ] && [ "$1" != -- ]; then latency=$1; shift; fi
if [ $# -gt 0 ] && [ "$1" != -- ]; then instances=$1; shift; fi
if [ $# -gt 0 ]; then shift; fi

built=${LONGSHORE_BUILT:-}
if [ -z "$built" ]; then
    cargo build --quiet --release -p longshore -p longshore-lab -p longshore-double-qatzip
    built=${CARGO_TARGET_DIR:-target}/release
fi
longshore=$built/longshore
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT INT TERM

# A machine with one QAT endpoint, according to sysfs.
device=$stage/sys/bus/pci/devices/0000:6b:00.0
mkdir -p "$device/qat" "$stage/sys/bus/pci/drivers/4xxx"
ln -s "$stage/sys/bus/pci/drivers/4xxx" "$device/driver"
for pair in vendor=0x8086 device=0x4940 numa_node=0 qat/state=up qat/cfg_services=dc; do
    echo "${pair#*=}" > "$device/${pair%%=*}"
done

source=${LONGSHORE_SOURCE:-.work/bench/offload-study.db}
mkdir -p "$(dirname "$source")"
[ -e "$source" ] || "$longshore" lab sample stae --size 1G "$source"
find "$source" -type f -exec cat {} + > /dev/null

software=${LONGSHORE_SOFTWARE_MB_S:-}
if [ -z "$software" ]; then
    seconds=$(for _ in 1 2 3; do
        "$longshore" --catalog none backup "$source" --to nul: --offload software --json |
            sed -n 's/.*"elapsed_s": *\([0-9.]*\).*/\1/p' | head -n 1
    done | sort -g | sed -n 2p)
    bytes=$(find "$source" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
    software=$(awk -v bytes="$bytes" -v s="$seconds" 'BEGIN { printf "%d", bytes / s / 1e6 }')
fi
rate=$(awk -v s="$software" -v share="$share" -v n="$instances" 'BEGIN { r = int(s * share / n + 0.5); print r < 1 ? 1 : r }')
echo "software $software MB/s; device $instances x $rate MB/s, $latency us a call" >&2

double=$stage/libqatzip.so.3
cp "$built/libqatzip.so" "$double"
printf 'prepared\ninstances %s\nrate %s\nlatency-us %s\n' "$instances" "$rate" "$latency" > "$double.script"
LONGSHORE_SYSFS=$stage/sys LONGSHORE_QATZIP=$double LONGSHORE_CUDA=off \
    "$longshore" --catalog none lab offload --source "$source" "$@"
