#!/bin/bash
# Made the cluster's sets of v2/ once: make_cluster.sh BIN_DIR_OF_POSTGRESQL DIRECTORY, as a user who is not root.
# DIRECTORY is new; longshore is the one on the PATH.
set -e
export PATH=$1:$PATH
dir=$2
mkdir "$dir"
mkdir "$dir/wal"
initdb -D "$dir/data" -N -k --wal-segsize=1 -E UTF8 --no-locale -U postgres >"$dir/said"
cat >>"$dir/data/postgresql.conf" <<C
port = 54399
listen_addresses = ''
unix_socket_directories = '$dir'
archive_mode = on
archive_command = '$(command -v longshore) --config $dir/longshore.toml wal push %p --database main'
min_wal_size = 2MB
max_wal_size = 8MB
autovacuum = off
C
cat >"$dir/longshore.toml" <<C
[database.main]
url = "postgres://postgres@/postgres?host=$dir&port=54399"
algorithm = "ZSTD"
[database.main.wal]
archive = "$dir/wal/main"
[catalog]
path = "$dir/catalog.db"
C
longshore() { command longshore --config "$dir/longshore.toml" "$@"; }
sql() { psql -h "$dir" -p 54399 -U postgres -d postgres -qAt -c "$1"; }
longshore wal create --database main
pg_ctl -D "$dir/data" -l "$dir/log" -w start >>"$dir/said"
# One database is enough, and smaller than three.
sql "update pg_database set datistemplate = false"
sql "drop database template0"
sql "drop database template1"
sql "create table t as select i, md5(i::text) v from generate_series(1, 2000) i"
sql "create index on t (i)"
sql "vacuum full"
sql "checkpoint"
longshore backup main --with-wal -l HIGH --to "$dir/full-1" --to "$dir/full-2"
sql "update t set v = 'changed' where i = 1000"
sql "create table u as select 7 seven"
longshore sql -Q "BACKUP LOG main TO DISK = '$dir/log-1' WITH COMPRESSION (ALGORITHM = ZSTD)"
longshore backup main --differential --base "$dir/full-1" --base "$dir/full-2" --with-wal -l HIGH --to "$dir/diff-1"
pg_ctl -D "$dir/data" -m fast stop >>"$dir/said"
