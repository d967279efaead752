//! Goal: the commands of docs/emergency.md bring a cluster back as they stand on the page, on Debian's layout: after the loss
//! of rows, of pages, of a stripe, of the data directory and the tablespaces, and of the whole machine.
//! Method: a cluster of `pg_createcluster` in a mount and process namespace of its own, in which the page's blocks run.
//! Only the page's time and its LABEL are replaced. Needs root, and PostgreSQL of Debian's packages.
//! Not covered: systemd, and disks that fail instead of losing files.

use std::fs;

use crate::pages::{repository, run_page};

const TIME: &str = "2027-01-31 05:59:30+01";

/// A directory of its own for everything that the page's commands change, a cluster with WAL, tables and backups.
const SCENE: &str = r#"
sql() { runuser -u postgres -- psql -XAtq -d postgres -v ON_ERROR_STOP=1 -c "$1"; }
label() { ls /mnt/disk1/shop | grep -E '^[0-9]{8}T' | sed -n "${1}p"; }
expect() {
    local found; found=$($1)
    [ "$found" = "$2" ] || { echo "$1: $found, not $2"; exit 1; }
}
counts() { sql "select count(*) from kept"; }
rest() { sql "select count(*) from pg_class where relname = 'lost_table'"; }

install -d -o postgres /mnt/disk1 /mnt/disk2 /srv/space /srv/pg /srv/tree /srv/tree/etc
install -d -o postgres -m 700 /srv/space/fast
echo 'a = 1' > /srv/tree/etc/lost.conf
chown postgres /srv/tree/etc/lost.conf
pg_createcluster 15 main -- --data-checksums > /dev/null
p 'mkdir -p ~/.config/longshore'
p 'cat > ~/.config/longshore/longshore.toml' <<'END'
[database.shop]
url = "postgres:///postgres"
target = "disk"
[database.shop.wal]
[database.tree]
url = "files:/srv/tree"
target = "disk"
[target.disk]
retention = "some"
directories = ["/mnt/disk1", "/mnt/disk2"]
[retention.some]
keep_full = 9
END
p "cat > /etc/postgresql/15/main/conf.d/archive.conf" <<'END'
archive_mode = on
archive_command = 'longshore wal push %p --database shop'
END
p longshore wal create --database shop
pg_ctlcluster 15 main start
sql "create tablespace fast location '/srv/space/fast'"
sql "create table lost_table tablespace fast as select i from generate_series(1, 1000) i"
sql "create table kept tablespace fast as select i, repeat('x', 100) from generate_series(1, 5000) i"
p longshore --quiet backup shop
sleep 1
sql "insert into kept select i from generate_series(5001, 6000) i"
p longshore --quiet backup shop
p longshore --quiet backup tree
sql "insert into kept values (6001)"
"#;

/// The disasters, one after another; each ends with the server that it brought back.
const COURSE: &str = r#"
LABEL=$(label 2)
run before-it-is-serious 1
run top 2
run a-damaged-backup 1
run without-this-program 1
run one-file 1
cmp /srv/tree/etc/lost.conf /srv/rescue/etc/lost.conf

# A table was dropped.
TIME=$(sql "select clock_timestamp() at time zone 'UTC'")+00
sleep 0.1
sql "drop table lost_table"
sql "insert into kept values (6002)"
run back-to-a-moment 1
run back-to-a-moment 2
run back-to-a-moment 3
[ "$(grep -cE '^[0-9]+$' /srv/pg/lost_table.sql)" = 1000 ]
p /usr/lib/postgresql/15/bin/pg_ctl -D /srv/pg/rescue -w -m fast stop
expect counts 6002

# Some pages are damaged.
sql checkpoint
page=/srv/space/fast/$(cd /srv/space/fast && ls)/$(sql "select oid from pg_database where datname = 'postgres'")/$(sql "select pg_relation_filenode('kept')")
dd if=/dev/zero of="$page" bs=8192 count=1 seek=3 conv=notrunc 2> /dev/null
run the-same-directory-what-differs 1
expect counts 6002
expect rest 0

# A stripe is gone: the backup before.
mv /mnt/disk2/shop/$LABEL/family-2.bak /mnt/disk2/away
longshore=$(p longshore info shop || true)
grep -q MISSING <<< "$longshore"
LABEL=$(label 1) run a-stripe-is-missing 1
mv /mnt/disk2/away /mnt/disk2/shop/$LABEL/family-2.bak

# The data directory and the tablespaces are gone.
sql "insert into kept values (6003)"
sql "select pg_switch_wal()" > /dev/null
until [ "$(sql "select count(*) from pg_ls_archive_statusdir() where name like '%.ready'")" = 0 ]; do sleep 0.1; done
pg_ctlcluster 15 main stop -m immediate
rm -rf /var/lib/postgresql/15/main /srv/space/fast
run the-lost-data-directory 1
run the-lost-data-directory 3
expect counts 6003

# And the configuration.
pg_ctlcluster 15 main stop
rm -rf /var/lib/postgresql/15 /srv/space/fast /etc/postgresql/15
install -d -o postgres /var/lib/postgresql/15
run the-lost-data-directory 1
run the-lost-data-directory 2
run the-lost-data-directory 3
expect counts 6003
[ "$(sql 'show archive_mode')" = on ]

# The machine is gone; the disks with the backups are there.
pg_ctlcluster 15 main stop
rm -rf /var/lib/postgresql/* /var/lib/postgresql/.[!.]* /etc/postgresql/* /srv/space/fast /srv/pg /srv/rescue
install -d -o postgres /srv/pg
run on-a-new-machine 1
run on-a-new-machine 2
expect counts 6003
expect rest 0
run on-a-new-machine 3
[ -e /srv/pg/data/global/pg_control ]
"#;

#[test]
fn the_commands_of_the_emergency_page_bring_a_cluster_back_as_they_stand() {
    let page = fs::read_to_string(repository().join("docs/emergency.md")).unwrap();
    assert_eq!(page.matches(TIME).count(), 1);
    run_page("emergency", "top.1", &format!("{SCENE}{COURSE}"), |block| {
        block.replace(TIME, "TIME-OF-THE-PAGE")
    });
}
