//! Goal: a backup survives files that appear, vanish, grow, shrink and fail between two steps.
//! Method: a data directory made for the test and a double of the server; an action runs directly before a chosen step
//! on a chosen file.
//! Not covered: real servers.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_io::{Host, Storage};
use longshore_source::Error;

use crate::cluster::{BASE, Cluster, PAGE, answer, page};
use crate::double::{Double, row};
use crate::hooked::{Step, hooked};

/// Runs an action once, directly before a step on a file of this name.
fn before(
    wanted: Step,
    name: &'static str,
    act: impl Fn(&Path) + Send + Sync + 'static,
) -> Arc<dyn Storage> {
    let times = AtomicUsize::new(0);
    hooked(move |step, path| {
        if step == wanted && path.ends_with(name) && times.fetch_add(1, Ordering::SeqCst) == 0 {
            act(path);
        }
        Ok(())
    })
}

fn remove(path: &Path) {
    fs::remove_file(path).unwrap();
}

fn cut(path: &Path, len: u64) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(len).unwrap();
}

/// Goal: the server's label and map are stored byte for byte, whatever line ends and escapes they contain.
#[test]
fn the_label_and_the_map_are_the_servers_byte_for_byte() {
    let cluster = Cluster::new();
    let lines = "CHECKPOINT LOCATION: 0/2000028\nBACKUP METHOD: streamed\nBACKUP FROM: primary\n\
                 START TIME: 2026-11-21 09:40:10 UTC\nLABEL: a\\b \u{e9}\t \r\nSTART TIMELINE: 1\n  \n";
    let label = format!("START WAL LOCATION: 0/2000028 (file 000000010000000000000020)\n{lines}");
    let map = "16384 /a \\\\ b\\\nc  \r\n16385 /d \n\n";
    let (data, said) = (cluster.dir.path().to_owned(), label.clone());
    let double = Double::new(move |sql| match sql.contains("pg_backup_stop") {
        true => row(&["0/3000000", &said, map]),
        false => answer(&data, sql),
    });
    let copy = cluster
        .back_up_from(&double, &hooked(|_, _| Ok(())))
        .unwrap();
    assert_eq!(copy.file("backup_label").unwrap(), label.as_bytes());
    assert_eq!(copy.file("tablespace_map").unwrap(), map.as_bytes());
    let live = |name| cluster.dir.path().join(name).exists();
    assert!(!live("backup_label") && !live("tablespace_map"));
}

#[test]
fn all_is_read_and_the_control_file_last() {
    let cluster = Cluster::new();
    cluster.relation("16384", 0, 3);
    fs::write(cluster.path("pg_xact/0000"), vec![7; 300_000]).unwrap();
    let asked = cluster.asked.clone();
    let storage = hooked(move |step, path| {
        if let Step::Read(_) = step {
            let mut asked = asked.lock().unwrap();
            asked.push(format!("read {}", path.display()));
        }
        Ok(())
    });
    let copy = cluster.back_up(&storage).unwrap();
    let relation = copy.file("base/5/16384").unwrap();
    assert_eq!(
        relation,
        &[page(0, 0x100), page(1, 0x100), page(2, 0x100)].concat()
    );
    assert_eq!(copy.file("pg_xact/0000").unwrap(), &vec![7; 300_000]);
    assert!(
        copy.file("backup_label")
            .unwrap()
            .starts_with(b"START WAL LOCATION: 0/2000028 ")
    );
    assert_eq!(copy.order.last().unwrap(), Path::new("global/pg_control"));
    assert!(!copy.summary.damaged && copy.summary.warnings.is_empty());

    let asked = cluster.asked.lock().unwrap();
    let last = |what: &str| asked.iter().rposition(|line| line.contains(what)).unwrap();
    assert!(last("pg_backup_start") < last("read ") && last("16384") < last("pg_control"));
    assert!(
        last("pg_xact/0000") < last("pg_control") && last("pg_control") < last("pg_backup_stop")
    );
}

#[test]
fn a_relation_that_is_gone_when_it_is_looked_at_is_left_out() {
    let cluster = Cluster::new();
    cluster.relation("16384", 0, 3);
    cluster.relation("16385", 0, 3);
    let copy = cluster
        .back_up(&before(Step::Stat, "16384", remove))
        .unwrap();
    assert!(copy.file("base/5/16384").is_none());
    assert_eq!(copy.file("base/5/16385").unwrap().len(), 3 * PAGE);
}

/// Its name and length are already written: replay removes the file, or finds empty pages.
#[test]
fn a_relation_that_vanishes_shrinks_or_grows_after_that_keeps_its_length() {
    let shrink = |path: &Path| cut(path, PAGE as u64);
    let grow = |path: &Path| {
        fs::write(
            path,
            [page(0, 0x100), page(1, 0x100), page(2, 0x100)].concat(),
        )
        .unwrap()
    };
    type Act = fn(&Path);
    let acts: [(Act, usize); 3] = [(remove, 0), (shrink, 1), (grow, 2)];
    for (act, pages_left) in acts {
        let cluster = Cluster::new();
        cluster.relation("16384", 0, 2);
        let copy = cluster.back_up(&before(Step::Open, "16384", act)).unwrap();
        let mut expected: Vec<u8> = (0..pages_left as u32)
            .flat_map(|block| page(block, 0x100))
            .collect();
        expected.resize(2 * PAGE, 0);
        assert!(
            copy.file("base/5/16384").unwrap() == &expected,
            "{pages_left} pages are left"
        );
        assert!(!copy.summary.damaged && copy.summary.warnings.is_empty());
    }
}

/// Some file systems show the length of a file in the middle of a page that the server adds.
#[test]
fn a_relation_that_ends_within_a_page_for_a_moment_is_stored_with_whole_pages() {
    let cluster = Cluster::new();
    let path = cluster.relation("16384", 0, 2);
    cut(&path, 12_000);
    let looks = AtomicUsize::new(0);
    let storage = hooked(move |step, path| {
        let is_it = step == Step::Stat && path.ends_with("16384");
        if is_it && looks.fetch_add(1, Ordering::Relaxed) == 2 {
            fs::write(path, [page(0, 0x100), page(1, 0x100)].concat()).unwrap();
        }
        Ok(())
    });
    let copy = cluster.back_up(&storage).unwrap();
    assert_eq!(copy.file("base/5/16384").unwrap().len(), 2 * PAGE);
    assert!(
        copy.summary.warnings.is_empty(),
        "{:?}",
        copy.summary.warnings
    );
}

/// Half a page at the end is not verified, and not reported as damage.
#[test]
fn a_relation_cut_within_a_page_is_not_damaged() {
    let cluster = Cluster::new();
    cluster.relation("16384", 0, 2);
    let storage = before(Step::Read(0), "16384", |path| cut(path, 12_000));
    let copy = cluster.back_up(&storage).unwrap();
    assert!(!copy.summary.damaged);
    let bytes = copy.file("base/5/16384").unwrap();
    assert!(bytes[12_000..].iter().all(|b| *b == 0) && bytes.len() == 2 * PAGE);
}

#[test]
fn a_file_that_is_no_relation_is_stored_whole_or_not_at_all() {
    for (len, act, kept) in [
        (100, Step::Stat, false),
        (100, Step::Open, false),
        (100, Step::Read(0), true),
        (100_000, Step::Open, false),
        (100_000, Step::Read(0), true),
    ] {
        let cluster = Cluster::new();
        let content = vec![b'x'; len];
        fs::write(cluster.path("pg_xact/0000"), &content).unwrap();
        let copy = cluster.back_up(&before(act, "0000", remove)).unwrap();
        let found = copy.file("pg_xact/0000");
        assert_eq!(
            found,
            kept.then_some(&content),
            "{len} bytes, gone at {act:?}"
        );
    }
}

/// A tablespace is a link, before everything else, and the files below it; directories of other major versions are
/// left out.
#[test]
fn a_tablespace_is_its_link_and_its_files() {
    let cluster = Cluster::new();
    let space = tempfile::tempdir().unwrap();
    let at = space.path().canonicalize().unwrap();
    for version in ["PG_18_202506291", "PG_17_202406281"] {
        fs::create_dir_all(at.join(version).join("5")).unwrap();
        fs::write(at.join(version).join("5/16390"), page(0, 0x100)).unwrap();
        fs::write(at.join(version).join("5/16391_init"), b"").unwrap();
    }
    let link = cluster.path("pg_tblspc/16389");
    std::os::unix::fs::symlink(&at, link).unwrap();
    let copy = cluster.back_up(&hooked(|_, _| Ok(()))).unwrap();
    let first: Vec<_> = copy.order[..2].iter().map(|path| path.to_str()).collect();
    assert_eq!(first, [Some("pg_tblspc"), Some("pg_tblspc/16389")]);
    assert_eq!(copy.links[Path::new("pg_tblspc/16389")], at);
    let below = "pg_tblspc/16389/PG_18_202506291/5";
    assert_eq!(copy.file(&format!("{below}/16390")), Some(&page(0, 0x100)));
    assert_eq!(copy.file(&format!("{below}/16391_init")), Some(&Vec::new()));
    assert_eq!(
        copy.files
            .keys()
            .filter(|path| path.ends_with("16390"))
            .count(),
        1
    );
}

#[test]
fn directories_may_vanish() {
    for step in [Step::Stat, Step::Open, Step::List] {
        let cluster = Cluster::new();
        fs::write(cluster.path("base/4242/PG_VERSION"), "18\n").unwrap();
        let storage = before(step, "4242", |path| fs::remove_dir_all(path).unwrap());
        let copy = cluster.back_up(&storage).unwrap();
        assert!(copy.file("base/4242/PG_VERSION").is_none(), "{step:?}");
    }
}

/// A failing disk is not a missing file: nothing is filled with zeros.
#[test]
fn errors_of_the_disk_end_the_backup() {
    for (step, name) in [
        (Step::Read(0), "16384"),
        (Step::Open, "16384"),
        (Step::Stat, "16384"),
        (Step::Stat, "16384_init"),
        (Step::List, "5"),
        (Step::List, ""),
        (Step::Read(0), "PG_VERSION"),
        (Step::Read(0), "pg_control"),
    ] {
        let cluster = Cluster::new();
        cluster.relation("16384", 0, 2);
        let data = cluster.dir.path().to_owned();
        let storage = hooked(move |at, path| {
            let hit = at == step && (path.ends_with(name) || (name.is_empty() && path == data));
            if hit {
                Err(io::Error::from_raw_os_error(5))
            } else {
                Ok(())
            }
        });
        let refused = cluster.back_up(&storage).err();
        let names_it = match &refused {
            Some(Error::Io { path, .. } | Error::Read { path, .. }) => {
                path.starts_with(cluster.dir.path())
            }
            // Without the control file the directory's owner is unknown: the server is asked for its files.
            Some(Error::Server { .. } | Error::ServerSaid { .. }) => name == "pg_control",
            _ => false,
        };
        assert!(names_it, "{step:?} {name}: {refused:?}");
    }
}

/// A control file that is being written is read again, at the start and at the end.
#[test]
fn a_torn_control_file_is_read_again() {
    let cluster = Cluster::new();
    let whole = fs::read(cluster.path("global/pg_control")).unwrap();
    let (expected, readings) = (whole.clone(), AtomicUsize::new(0));
    let storage = hooked(move |step, path| {
        if step == Step::Read(0) && path.ends_with("pg_control") {
            let mut bytes = whole.clone();
            // Two of three reads are torn.
            if readings.fetch_add(1, Ordering::SeqCst) % 3 != 2 {
                bytes[40] ^= 1;
            }
            fs::write(path, bytes)?;
        }
        Ok(())
    });
    let copy = cluster.back_up(&storage).unwrap();
    assert_eq!(copy.file("global/pg_control"), Some(&expected));
}

/// Goal: a relation that becomes unlogged during the backup does not prevent a restored server from starting.
/// Method: a table's main fork exists when it is listed, and its init fork a moment later, as `CREATE UNLOGGED TABLE`
/// creates them. PostgreSQL would find a main fork where it creates one from the init fork.
#[test]
fn an_init_fork_made_during_the_backup_is_in_it() {
    let cluster = Cluster::new();
    cluster.relation("16384", 0, 2);
    cluster.relation("16390", 0, 1);
    fs::write(cluster.path(&format!("{BASE}/16390_init")), b"").unwrap();
    let storage = before(Step::Open, "16384", |path| {
        fs::write(path.with_file_name("16384_init"), page(0, 0x100)).unwrap();
    });
    let copy = cluster.back_up(&storage).unwrap();
    assert_eq!(copy.file("base/5/16384_init"), Some(&page(0, 0x100)));
    assert_eq!(copy.file("base/5/16384").unwrap().len(), 2 * PAGE);
    assert!(copy.file("base/5/16390").is_none());
    assert_eq!(copy.file("base/5/16390_init"), Some(&Vec::new()));

    // A relation that is unlogged when it is listed is not stored, whenever it became so.
    let storage = before(Step::Stat, "16384", |_| {});
    let copy = cluster.back_up(&storage).unwrap();
    assert!(copy.file("base/5/16384").is_none() && copy.file("base/5/16384_init").is_some());
}

/// A server that refuses to end the backup, ends another one, or dies, makes the backup fail.
#[test]
fn nothing_is_left_of_a_backup_that_the_server_does_not_end() {
    let cluster = Cluster::new();
    let storage: Arc<dyn Storage> = Arc::new(Host::new());
    assert!(cluster.back_up(&storage).is_ok());
    for wrong in ["stop refused", "another start", "before start", "no label"] {
        let data = cluster.dir.path().to_owned();
        let double = crate::double::Double::new(move |sql| {
            let answer = crate::cluster::answer(&data, sql);
            match sql.contains("pg_backup_stop") {
                true => crate::cluster::wrong_end(wrong),
                false => answer,
            }
        });
        let refused = cluster.back_up_from(&double, &storage).err();
        assert!(
            matches!(
                refused,
                Some(Error::Server { .. } | Error::ServerSaid { .. })
            ),
            "{wrong}: {refused:?}"
        );
    }
}
