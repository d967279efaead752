#!/bin/bash
# Made the media of v3/ once: make_sources.sh BIN_DIR_OF_POSTGRESQL DIRECTORY, as a user who is not root.
# DIRECTORY is new; longshore is the one on the PATH.
#
# Method: small databases, so that the media can be kept for ever: a SQLite database that another one replaces, one with
# a write-ahead log that is backed up twice to one media set, and a cluster that goes on from a restore.
#
# Leaves to others: the rules of golden files (README.md), and reading them (crates/longshore/tests/golden.rs).
set -e
export PATH=$1:$PATH
dir=$2
mkdir "$dir" "$dir/target" "$dir/wal"
cat >"$dir/longshore.toml" <<C
[target.t]
directories = ["$dir/target"]
[database.shop]
url = "sqlite:$dir/shop.db"
identity = "harbour shop"
target = "t"
algorithm = "ZSTD"
[database.main]
url = "postgres://postgres@/postgres?host=$dir&port=54398"
target = "t"
algorithm = "ZSTD"
[database.main.wal]
archive = "$dir/wal/main"
[catalog]
path = "$dir/catalog.db"
C
longshore() { command longshore --config "$dir/longshore.toml" "$@"; }
# The newest stripe at the target becomes $1/stripe-1.
keep() {
    mkdir "$dir/$1"
    cp "$(ls -d "$dir/target/$2"/2*/ | tail -n 1)family-1.bak" "$dir/$1/stripe-1"
}

# A database with pages of 512 bytes that another one replaces: the second backup has two births.
sqlite() { python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
for text in sys.argv[2:]: db.execute(text)' "$@"; }
sqlite "$dir/shop.db" "pragma page_size = 512" "create table t (x)"
longshore backup shop
keep sqlite_first shop
mv "$dir/shop.db" "$dir/old.db"
sleep 1.1
sqlite "$dir/shop.db" "pragma page_size = 512" "create table u (n integer primary key, x)" \
    "insert into u select value, 'row ' || value || hex(zeroblob(value % 50)) from (
        with recursive c(value) as (select 1 union all select value + 1 from c where value < 200) select * from c)"
longshore backup shop
keep sqlite shop

# A database with a write-ahead log, without an identity of its own, as gzip; twice on one medium.
python3 - "$dir" <<P
import sqlite3, subprocess, sys
dir = sys.argv[1]
db = sqlite3.connect(dir + "/log.db", isolation_level=None)
for text in ("pragma page_size = 512", "pragma journal_mode = wal", "pragma wal_autocheckpoint = 0",
             "create table t (x)", "insert into t values ('in the log')"):
    db.execute(text)
backup = ["longshore", "--config", dir + "/longshore.toml", "backup", "sqlite:" + dir + "/log.db"]
backup += ["--max-transfer-size", "64K", "--to", dir + "/log-1", "--to", dir + "/log-2"]
subprocess.run(backup, check=True)
db.execute("insert into t values (zeroblob(70000))")
subprocess.run(backup + ["--append"], check=True)
P
mkdir "$dir/sqlite_log"
mv "$dir/log-1" "$dir/sqlite_log/stripe-1"
mv "$dir/log-2" "$dir/sqlite_log/stripe-2"

# A cluster that goes on from a restore: its last backup has an ancestor and two earlier sets, one of them on its branch.
settings() { cat >>"$1/postgresql.conf" <<C
port = 54398
listen_addresses = ''
unix_socket_directories = '$dir'
archive_mode = on
archive_command = '$(command -v longshore) --config $dir/longshore.toml wal push %p --database main'
min_wal_size = 2MB
max_wal_size = 8MB
wal_keep_size = 32MB
autovacuum = off
C
}
sql() { psql -h "$dir" -p 54398 -U postgres -d postgres -qAt -c "$1"; }
initdb -D "$dir/data" -N -k --wal-segsize=1 -E UTF8 --no-locale -U postgres >"$dir/said"
settings "$dir/data"
longshore wal create --database main
pg_ctl -D "$dir/data" -l "$dir/log" -w start >>"$dir/said"
# One database is enough, and smaller than three.
sql "update pg_database set datistemplate = false"
sql "drop database template0"
sql "drop database template1"
sql "vacuum full"
sql "checkpoint"
longshore backup main -l HIGH
sql "create table t as select i, md5(i::text) v from generate_series(1, 100) i"
sql "select pg_switch_wal()"
pg_ctl -D "$dir/data" -m fast -w stop >>"$dir/said"
longshore restore --database main --to "$dir/again" --wal-archive "$dir/wal/main"
pg_ctl -D "$dir/again" -l "$dir/log" -w start >>"$dir/said"
until [ "$(sql "select pg_is_in_recovery()")" = f ]; do sleep 0.2; done
sql "create table u as select 7 seven"
sql "checkpoint"
longshore backup main
sql "insert into u values (8)"
longshore backup main -l HIGH
keep branch main
pg_ctl -D "$dir/again" -m fast -w stop >>"$dir/said"
