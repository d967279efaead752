#!/bin/bash
# Made the media of v7/ and wal-v2/ once: make_kinds.sh DIRECTORY, as root, who may mount a small file system.
# DIRECTORY is new; longshore is the one on the PATH.
#
# Method: small sets of what v1 to v6 have not: a differential one that is encrypted, one for a key that a program keeps, one that
# lost a device while it was made, one of PAGES, and a segment of WAL that is signed.
#
# Leaves to others: the rules of golden files (README.md), and reading them (crates/longshore/tests/golden.rs).
set -e
umask 022
here=$(realpath "$(dirname "$0")")
mkdir "$1"
dir=$(realpath "$1")
cd "$dir"
export LONGSHORE_CATALOG=$dir/history.db XDG_CONFIG_HOME=$dir/none
mkdir v7 wal-v2 v7/secrets
secret() { (umask 077; "$@"); }

# An encrypted full set of a tree, and one that differs from it: bytes in the middle of a file, a new file, and one that is gone.
secret cp "$here/v4/secrets/classic" classic
to=$(longshore key recipient classic)
python3 "$here/make_tree.py" 1 tree
mkdir v7/full v7/differential
longshore backup files:tree -a ZSTD --max-transfer-size 64K --page-sums --to v7/full/stripe-1 --encrypt-to "$to"
python3 - <<'P'
import os
with open("tree/big", "r+b") as file:
    file.seek(50_000)
    file.write(b"other bytes in the middle")
with open("tree/new", "wb") as file:
    file.write(b"a file that the base has not\n")
os.remove("tree/d/new\nline")
P
longshore backup files:tree -a ZSTD --max-transfer-size 64K --differential --base v7/full/stripe-1 --identity classic \
    --to v7/differential/stripe-1 --encrypt-to "$to"

# For a key that a program keeps: it turns each line around, as everybody can.
printf '#!/bin/sh\nrev\n' >v7/secrets/turn
chmod 755 v7/secrets/turn
printf '[encryption]\nwrap_command = ["%s"]\n' "$dir/v7/secrets/turn" >command.toml
python3 "$here/make_tree.py" 2 tree2
mkdir v7/command
longshore --config command.toml backup files:tree2 -a ZSTD --max-transfer-size 64K --to v7/command/stripe-1 \
    --encrypt-to command:golden/key

# The second of three data stripes is on a disk that is full: it fails at its first write.
mkdir v7/tolerated small
mount -t tmpfs -o size=4k tmpfs small
head -c 4096 /dev/zero >small/full
longshore backup files:tree -a NONE --max-transfer-size 64K --to v7/tolerated/stripe-1 --to small/stripe-2 \
    --to v7/tolerated/stripe-3 --to v7/tolerated/stripe-4 --parity 1 --tolerate 1 || [ $? = 5 ]
umount small

# A database whose pages are stored by columns.
python3 - <<'P'
import sqlite3
db = sqlite3.connect("shop.db", isolation_level=None)
db.execute("pragma page_size = 4096")
db.execute("begin")
db.execute("create table t (n integer primary key, day integer, what text)")
db.executemany("insert into t values (?, ?, ?)", ((n, n // 7, "row %d of the quay" % (n % 13)) for n in range(3000)))
db.execute("commit")
P
mkdir v7/pages
longshore backup sqlite:shop.db -a PAGES --to v7/pages/stripe-1

# A segment of WAL whose plain bytes are those of wal-v1, encrypted and signed.
secret cp "$here/wal-v1/identity" wal-v2/identity
secret cp "$here/v6/secrets/signing" signing
gzip -dc "$here/wal-v1/segment.gz" >000000010000000000000003
mkdir archives
longshore wal create --archive archives/main
longshore wal push --archive archives/main 000000010000000000000003 --algorithm ZSTD --identity wal-v2/identity \
    --encrypt-to "$(longshore key recipient wal-v2/identity)" --sign signing
cp archives/main/*/000000010000000000000003.* wal-v2/segment.zst
(cd wal-v2 && sha256sum identity segment.zst >SHA256SUMS)
(cd v7 && sha256sum */stripe-* >SHA256SUMS)
