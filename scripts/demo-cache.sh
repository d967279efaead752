#!/usr/bin/env bash
# The cache below an unmodified database: SQLite on ext4 on a loop device on nbdfuse on nbdkit with the cache.
#
# usage: demo-cache.sh BINARY DIRECTORY [PLUGIN]
#
# FUSE, loop devices and mounting need root and a machine that permits them. If one is missing, the script says which,
# and shows the cache to a plain client of the protocol instead. The script removes everything it made at the end, also
# after errors and after one or more interrupts; the next run removes the mounts of a killed run.
#
# Method: SQLite writes and checks its rows on the disk, then reads them with an empty page cache, once from the backend
# and once from the cache; a client compares what it reads with the backend after a restart.
#
# Leaves to others: building (make build), installing the tools (scripts/setup.sh), and whether the script removes
# everything (crates/longshore/tests/cache/demo.rs looks).
set -euo pipefail
binary=$(realpath "$1")
plugin=${3:-$(dirname "$binary")/liblongshore_nbd.so}
mkdir -p "$2"
here=$(realpath "$2")
export LONGSHORE_CATALOG=none

say() { printf '\n== %s\n' "$*"; }
longshore() {
    printf '$ longshore %s\n' "$*"
    "$binary" "$@"
}

server=
# Fails if the file system stays in use: an interrupted process may be using it, or a program that looks at all mounts.
unmount() {
    for _ in $(seq 300); do
        mountpoint -q "$here/mnt" || return 0
        umount "$here/mnt" 2>/dev/null || sleep 0.1
    done
    ! mountpoint -q "$here/mnt"
}

# Takes the disk apart from its top, also one that an earlier run built.
take_apart() {
    unmount || true
    losetup --associated "$here/disk/nbd" --noheadings --output NAME 2>/dev/null | xargs -r losetup -d
    for _ in $(seq 100); do
        mountpoint -q "$here/disk" || return 0
        fusermount3 -u "$here/disk" 2>/dev/null || umount "$here/disk" 2>/dev/null || sleep 0.1
    done
    # A container that was started meanwhile has copies of the mounts and holds the loop device as long as it runs.
    umount -l "$here/disk"
}

clean_up() {
    # An interrupt here would leave something behind.
    trap '' INT TERM HUP
    set +e
    take_apart
    # Signals all children: one that was started at the moment of the interrupt has no name yet. A child that does not
    # run its program yet may miss a signal, so the signal is sent again.
    # A program whose disk somebody else still holds does not end by a request.
    signal=TERM
    for round in $(seq 6); do
        [ -n "$(jobs -pr)" ] || break
        [ "$round" -lt 4 ] || signal=KILL
        kill -s "$signal" $(jobs -pr) 2>/dev/null
        for _ in $(seq 50); do
            [ -n "$(jobs -pr)" ] || break
            sleep 0.1
        done
    done
    wait
    cd "$here" && rm -rf backend cache backend.longshore-guard backend.longshore-guard.lock disk mnt socket* noise copy
}
take_apart || true
rm -rf "$here"
mkdir -p "$here"
cd "$here"
trap clean_up EXIT
# With these traps an interrupt ends the script in order, and a second one changes nothing.
trap "trap '' INT TERM HUP; exit 130" INT
trap "trap '' INT TERM HUP; exit 143" TERM HUP

for tool in nbdkit nbdcopy; do
    command -v "$tool" >/dev/null || { echo "demo-cache: $tool is missing; run scripts/setup.sh"; exit 1; }
done

# The terminal's signals do not reach the server and nbdfuse: both are needed until the file system is unmounted.
serve() {
    setsid "$binary" cache serve backend --cache cache --socket socket --plugin "$plugin" --policy none >>log 2>&1 &
    server=$!
    for _ in $(seq 600); do
        [ -S socket.control ] && [ -S socket ] && return
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    cat log
    exit 1
}

stop() {
    kill "$server"
    wait "$server" || true
    server=
}

say "A backend of 256 MiB, and a cache of 128 MiB"
truncate -s 256M backend
longshore cache create cache --size 128M --slot 16K
echo '$ longshore cache serve backend --cache cache --socket socket &'
serve

# Makes a file system on the served disk; names the step that is not permitted.
mount_disk() {
    [ "$(id -u)" = 0 ] || { echo "not root: nothing can be mounted"; return 1; }
    [ -w /dev/fuse ] || { echo "/dev/fuse is not permitted here"; return 1; }
    command -v nbdfuse >/dev/null || { echo "nbdfuse is missing"; return 1; }
    mkdir -p disk mnt
    setsid nbdfuse --connections=4 disk/nbd "nbd+unix:///?socket=$here/socket" >>log 2>&1 &
    for _ in $(seq 600); do
        [ -s disk/nbd ] && break
        kill -0 $! 2>/dev/null || break
        sleep 0.1
    done
    [ -s disk/nbd ] || { echo "FUSE is not permitted here"; return 1; }
    loop=$(losetup --find --show --direct-io=on disk/nbd 2>>log) || { echo "loop devices are not permitted here"; return 1; }
    mkfs.ext4 -q "$loop" || { echo "mkfs.ext4 failed"; return 1; }
    mount "$loop" mnt 2>>log || { echo "mounting is not permitted here"; return 1; }
}

if mount_disk; then
    say "SQLite on it: 200,000 rows, then 20,000 random changes in 200 transactions"
    python3 - mnt/app.db <<'PY'
import random, sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode = WAL")
db.execute("PRAGMA cache_size = -2000")
db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER, filler TEXT)")
db.execute("BEGIN")
db.executemany("INSERT INTO t VALUES (?, 0, ?)", ((i, "x" * 200) for i in range(200_000)))
db.execute("COMMIT")
begun = time.time()
random.seed(1)
for _ in range(200):
    db.execute("BEGIN")
    for _ in range(100):
        db.execute("UPDATE t SET v = v + 1 WHERE id = ?", (random.randrange(200_000),))
    db.execute("COMMIT")
print(f"changes: {db.execute('SELECT sum(v) FROM t').fetchone()[0]}, {time.time() - begun:.1f} s")
print("integrity_check:", db.execute("PRAGMA integrity_check").fetchone()[0])
PY
    say "Mounted again twice, so that the kernel's own cache is empty: read from the backend, then from the cache"
    for _ in 1 2; do
        unmount || { echo "mnt stays in use"; return 1; }
        mount "$loop" mnt
        python3 -c 'import sqlite3, sys, time
begun = time.time()
db = sqlite3.connect(sys.argv[1])
told = db.execute("PRAGMA integrity_check").fetchone()[0]
print(f"integrity_check: {told}, {time.time() - begun:.2f} s")' mnt/app.db
    done
    take_apart || true
else
    say "Without a mounted file system: a client writes and reads the disk"
    head -c 64M /dev/urandom >noise
    nbdcopy noise "nbd+unix:///?socket=$here/socket"
    nbdcopy "nbd+unix:///?socket=$here/socket" copy
    cmp -n $((64 << 20)) noise copy && echo "it reads what it wrote"
    rm -f noise copy
fi

say "What the cache did"
longshore cache status socket
longshore cache verify socket

say "Stopped, started again: it is warm"
stop
serve
"$binary" cache status socket | grep -E 'held bytes|durable bytes|^ *cache '
nbdcopy "nbd+unix:///?socket=$here/socket" copy
cmp copy backend && echo "what clients read is what the backend holds"
rm -f copy
stop
say "Done; everything is removed"
