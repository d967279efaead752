#!/usr/bin/env bash
# The main job on real input: a database in use is backed up, verified, listed, restored and compared.
#
# usage: demo.sh BINARY DIRECTORY [SIZE]
set -euo pipefail
binary=$(realpath "$1")
story=$(realpath "$(dirname "$0")/demo-story.py")
size=${3:-200M}
rm -rf "$2"
mkdir -p "$2"
cd "$2"
export LONGSHORE_CATALOG=$PWD/history.db LONGSHORE_CONFIG=$PWD/longshore.toml
: >longshore.toml

say() { printf '\n== %s\n' "$*"; }
longshore() {
    printf '$ longshore %s\n' "$*"
    "$binary" "$@"
}

say "A sample database of $size, in WAL mode"
longshore lab sample tprocc --size "$size" --wal app.db

say "Another process keeps committing: two bookings in each transaction, which add up to 0"
cat >writer.py <<'PY'
import sqlite3, sys, time
db = sqlite3.connect("app.db", isolation_level=None, timeout=30)
db.execute("CREATE TABLE IF NOT EXISTS booking (id INTEGER PRIMARY KEY, amount INTEGER)")
print("ready", flush=True)
amount = 0
while True:
    amount += 1
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO booking (amount) VALUES (?)", (amount,))
    db.execute("INSERT INTO booking (amount) VALUES (?)", (-amount,))
    db.execute("COMMIT")
    time.sleep(0.001)
PY
mkfifo started
python3 writer.py >started &
writer=$!
trap 'kill $writer 2>/dev/null || true' EXIT
read -r _ <started
sleep 0.5

say "Backup to four stripes, and verify"
longshore backup app.db --to 1.bak --to 2.bak --to 3.bak --to 4.bak --algorithm QAT_DEFLATE --verify
longshore verify 1.bak 2.bak 3.bak 4.bak
for stripe in ?.bak; do gzip -t <"$stripe"; done
echo "gzip -t accepts all four stripes"

say "What the media hold"
longshore list 1.bak 2.bak 3.bak 4.bak

say "Restore, and ask SQLite what came back"
longshore restore 4.bak 3.bak 2.bak 1.bak --to restored
kept=$(sqlite3 restored/app.db 'SELECT count(*) FROM booking')
committed=$(sqlite3 app.db 'SELECT count(*) FROM booking')
echo "integrity_check: $(sqlite3 restored/app.db 'PRAGMA integrity_check')"
echo "bookings: $(sqlite3 restored/app.db 'SELECT count(*) || ", sum " || sum(amount) FROM booking')," \
    "now $committed in the database that stayed in use"
[ "$(sqlite3 restored/app.db 'PRAGMA integrity_check')" = ok ]
[ "$(sqlite3 restored/app.db 'SELECT sum(amount) FROM booking')" = 0 ]

kill $writer
wait $writer 2>/dev/null || true
trap - EXIT
sqlite3 app.db 'PRAGMA wal_checkpoint(TRUNCATE)' >/dev/null

say "At rest: every byte comes back"
longshore backup app.db --to rest.bak --algorithm ZSTD
longshore restore rest.bak --to rest
cmp app.db rest/app.db
echo "cmp: app.db and rest/app.db are equal"

say "What history knows"
longshore history

say "The algorithms side by side, to the NUL device"
"$binary" history --json >backups.json
"$binary" history --restores --json >restores.json
python3 "$story" backups.json restores.json "$committed" "$kept" >story.json
longshore lab compare --source app.db --stripes 1 --rounds 3 --after story.json --html report.html

say "Look at"
echo "  $PWD/report.html     what was done, and the comparison, with plots"
echo "  $PWD/*.bak           stripes that gzip and zstd unpack"
echo "  $PWD/history.db      what was done, in msdb's tables"
