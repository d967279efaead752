//! Goal: the commands of docs/emergency.md bring a cluster back as they stand on the page, on Debian's layout: after the loss
//! of rows, of pages, of a stripe, of the data directory and the tablespaces, and of the whole machine.
//! Method: a cluster of `pg_createcluster` in a mount and process namespace of its own, in which the page's blocks run.
//! Only the page's time and its LABEL are replaced. Needs root, and PostgreSQL of Debian's packages.
//! Not covered: systemd, and disks that fail instead of losing files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{BINARY, text};

/// The version that is on the page.
const MAJOR: &str = "15";
const TIME: &str = "2027-01-31 05:59:30+01";

/// Blocks of commands: the words after `sh run`, and the commands.
type Blocks = Vec<(String, String)>;

/// The blocks of a page by their headings; those before the first one under an empty name.
fn blocks(page: &str) -> BTreeMap<String, Blocks> {
    let mut found: BTreeMap<String, Blocks> = BTreeMap::new();
    let mut heading = String::new();
    let mut block: Option<(String, String)> = None;
    for line in page.lines() {
        match (&mut block, line) {
            (Some(_), "```") => found
                .entry(heading.clone())
                .or_default()
                .extend(block.take()),
            (Some((_, commands)), line) => *commands += &format!("{line}\n"),
            (None, line) => {
                if let Some(name) = line.strip_prefix("## ") {
                    name.clone_into(&mut heading);
                }
                if let Some(words) = line.strip_prefix("```sh run") {
                    block = Some((words.trim().to_owned(), String::new()));
                } else if line.starts_with("```") {
                    block = Some(("no".to_owned(), String::new()));
                }
            }
        }
    }
    found
}

/// A directory of its own for everything that the page's commands change, a cluster with WAL, tables and backups.
const SCENE: &str = r#"
set -euo pipefail
umask 022
ulimit -v 16000000
repo=$1 blocks=$2 longshore=$3
for dir in /etc/postgresql /var/lib/postgresql /var/log/postgresql /run/postgresql /mnt /srv /usr/local/bin; do
    mkdir -p $dir
    mount -t tmpfs -o mode=755 tmpfs $dir
done
chown postgres:postgres /etc/postgresql /var/lib/postgresql /var/log/postgresql /run/postgresql /srv
ln -s "$longshore" /usr/local/bin/longshore

p() { runuser -l postgres -c "$*"; }
sql() { runuser -u postgres -- psql -XAtq -d postgres -v ON_ERROR_STOP=1 -c "$1"; }
label() { ls /mnt/disk1/shop | grep -E '^[0-9]{8}T' | sed -n "${1}p"; }
# Block number $2 of a section, with a label.
run() {
    local file="$blocks/$1.$2"
    echo "== $1, block $2"
    { cat "$blocks/start"; cat "$file"; } | sed "s/LABEL/${LABEL:-none}/g; s/TIME-OF-THE-PAGE/${TIME:-}/" > /srv/block.sh
    case $(cat "$file.words") in
    "as root") bash -e /srv/block.sh ;;
    *) runuser -l postgres -c "cd $repo && bash -e /srv/block.sh" ;;
    esac
}
expect() {
    local found; found=$($1)
    [ "$found" = "$2" ] || { echo "$1: $found, not $2"; exit 1; }
}
counts() { sql "select count(*) from kept"; }
rest() { sql "select count(*) from pg_class where relname = 'lost_table'"; }

install -d -o postgres /mnt/disk1 /mnt/disk2 /srv/space /srv/pg /srv/tree /srv/tree/etc
install -d -o postgres -m 700 /srv/space/fast
echo 'a = 1' > /srv/tree/etc/lost.conf
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
echo THE PAGE RAN
"#;

fn file_name(heading: &str) -> String {
    match heading {
        "" => "top".to_owned(),
        heading => heading.to_lowercase().replace(',', "").replace(' ', "-"),
    }
}

#[test]
fn the_commands_of_the_emergency_page_bring_a_cluster_back_as_they_stand() {
    let is_root = fs::read_to_string("/proc/self/status").is_ok_and(|s| s.contains("Uid:\t0\t"));
    let has_tools = Path::new("/usr/bin/pg_createcluster").exists()
        && Path::new("/usr/lib/postgresql").join(MAJOR).exists();
    if !is_root || !has_tools {
        eprintln!("skipped: needs root, and PostgreSQL {MAJOR} of Debian's packages");
        return;
    }
    let repo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(repo.join("docs/emergency.md")).unwrap();
    assert_eq!(page.matches(TIME).count(), 1);
    let dir = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    for (heading, blocks) in blocks(&page) {
        for (number, (words, commands)) in blocks.into_iter().enumerate() {
            assert_ne!(
                words, "no",
                "{heading}: a block that no test runs: {commands}"
            );
            let name = format!("{}.{}", file_name(&heading), number + 1);
            let commands = commands.replace(TIME, "TIME-OF-THE-PAGE");
            fs::write(dir.path().join(&name), commands).unwrap();
            fs::write(dir.path().join(format!("{name}.words")), words).unwrap();
            names.push(name);
        }
    }
    // Every block is run, the first one before each of the others.
    fs::rename(dir.path().join("top.1"), dir.path().join("start")).unwrap();
    for name in names.iter().filter(|name| *name != "top.1") {
        let call = format!("run {}", name.replace('.', " "));
        assert!(COURSE.contains(&call), "{name} is never run");
    }
    let script = dir.path().join("script");
    fs::write(&script, format!("{SCENE}{COURSE}")).unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "--pid", "--fork"]);
    unshare.args(["--kill-child", "--mount-proc", "bash"]);
    unshare.arg(&script).arg(repo.canonicalize().unwrap());
    let output = unshare.arg(dir.path()).arg(BINARY).output().unwrap();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success() && said.contains("THE PAGE RAN"),
        "{}",
        &said[said.len().saturating_sub(6000)..]
    );
}
