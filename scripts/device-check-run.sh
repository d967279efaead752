#!/bin/sh
# Checks GPU compression on this machine. Part of a bundle made by `make device-check`.
#
# usage: run.sh [DIRECTORY [SECONDS [OPTION...]]]
#
# Writes the results to DIRECTORY (out) and takes about SECONDS (300) and two minutes more. Exit status: 0 if all checks
# pass, 1 if there is no GPU or a check fails; summary.txt says which. Needs sh and an NVIDIA driver; uses nvidia-smi,
# gzip and python3 if they are installed. OPTIONs go to `longshore lab device-check`.
#
# Invariants
# - The long check comes first, so its report exists whatever fails later. Every check has a limit in time.
# - A failed check is a line of summary.txt that begins with NOT WELL, and the exit status.
# - Only DIRECTORY and a temporary directory are written.
#
# Leaves to others: the checks (`longshore-lab`), and what is in the bundle (scripts/device-check.sh).
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/out}
seconds=${2:-300}
shift $(($# < 2 ? $# : 2))
options=$*
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0
: >"$out/summary.txt"

note() { printf '%s\n' "$*" | tee -a "$out/summary.txt"; }
bad() {
    note "NOT WELL: $*"
    status=1
}

export LONGSHORE_CATALOG=none
if [ -e "$here/lib/libisal.so.2" ]; then
    export LONGSHORE_ISAL="$here/lib/libisal.so.2"
fi
set -- "$here"/lib/libnvcomp.so.*
if [ -e "$1" ]; then
    export LONGSHORE_NVCOMP="$1"
    shift
else
    set --
fi

if nvidia-smi -q >"$out/nvidia-smi.txt" 2>&1; then
    note "nvidia-smi: $(nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.current,pcie.link.width.current \
        --format=csv,noheader 2>&1 | head -1)"
else
    note "nvidia-smi is missing or failed: see nvidia-smi.txt"
fi

check() {
    limit=$1
    shift
    timeout -k 10 "$limit" "$here/longshore-lab" lab device-check --work "$work" --json "$@"
}

# The long run comes first: its report exists whatever happens later.
# shellcheck disable=SC2086 # options are words
check $((seconds + 90)) $options --seconds "$seconds" --stripe "$work/gpu.bak" --markdown "$out/device-check.md" \
    --html "$out/device-check.html" >"$out/device-check.json" 2>"$out/device-check.log"
code=$?
case $code in
0) note "device check: passed" ;;
1) bad "device check: see the first table of device-check.md" ;;
124 | 137) bad "device check: did not end in time; its last step is the last line of device-check.log" ;;
*) bad "device check: exit code $code; see device-check.log" ;;
esac
if [ ! -s "$work/gpu.bak" ]; then
    note "no backup was made by a GPU, so the rest is left out"
    exit 1
fi

# Stock tools restore what the GPU compressed.
sample=$(ls "$work"/stae-*.db)
same() {
    plain=$(wc -c <"$work/plain")
    if [ "$plain" -gt 0 ] && head -c "$plain" "$sample" | cmp -s - "$work/plain"; then
        note "$1: restores the $plain bytes that were backed up"
    else
        bad "$1: does not restore what was backed up"
    fi
}
if command -v gzip >/dev/null; then
    gzip -dc <"$work/gpu.bak" >"$work/plain"
    same gzip
fi
if command -v python3 >/dev/null; then
    python3 -c 'import gzip, shutil, sys
shutil.copyfileobj(gzip.open(sys.argv[1]), open(sys.argv[2], "wb"))' "$work/gpu.bak" "$work/plain"
    same "python3 and zlib"
fi

# A process that is killed while it uses the GPU leaves the GPU usable.
"$here/longshore-lab" lab device-check --work "$work" --quick >/dev/null 2>&1 &
victim=$!
sleep 4
kill -9 $victim 2>/dev/null
wait $victim 2>/dev/null
if check 240 --quick >"$out/after-kill.json" 2>/dev/null; then
    note "after kill -9: passed"
else
    bad "after kill -9: see after-kill.json"
fi

# Other versions of nvCOMP in the bundle.
for library in "$@"; do
    name=$(basename "$library")
    if LONGSHORE_NVCOMP=$library check 240 --quick >"$out/$name.json" 2>/dev/null; then
        note "$name: passed"
    else
        bad "$name: see $name.json"
    fi
done
exit $status
