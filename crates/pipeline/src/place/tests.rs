//! Goal: a power cut at any step of replacing a directory leaves the old one, the new one, or nothing that starts.
//! Method: on a simulated disk, cut after every step of the replacement, look at every image the cut can leave, and
//! replace again from there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longshore_io::{Fault, HostClock, Op, SimDisk};
use longshore_media::{Entry, EntryKind, Extent};

use crate::place::{EACH_MAX, Place, Root, Scope, Target};
use crate::{Error, House};

const SCOPE: Scope = Scope::Directory { last: "global" };
const NAMES: [&str; 5] = [
    "base/1",
    "base/2",
    "global/pg_control",
    "pg_wal/x",
    "PG_VERSION",
];

pub fn house(disk: &SimDisk) -> House {
    House {
        storage: Arc::new(disk.clone()),
        clock: Arc::new(HostClock),
        catalog: None,
        cancel: Arc::new(AtomicBool::new(false)),
        accelerators: Vec::new(),
    }
}

pub fn entry(path: &str, kind: EntryKind, len: u64) -> Entry {
    Entry {
        path: path.into(),
        kind,
        first: true,
        based: false,
        mode: 0o700,
        uid: 0,
        gid: 0,
        mtime_ns: 0,
        len,
    }
}

fn replace(disk: &SimDisk, content: &str) -> Result<(), Error> {
    replace_syncing(disk, content, EACH_MAX)
}

fn replace_syncing(disk: &SimDisk, content: &str, each_max: usize) -> Result<(), Error> {
    let mut target = Target::open(&house(disk), Path::new("/data"), true, SCOPE, &[])?;
    target.each_max = each_max;
    for dir in ["base", "global", "pg_wal"] {
        Root::put_name(&target, &entry(dir, EntryKind::Dir, 0))?;
    }
    for name in NAMES {
        let whole = Extent {
            offset: 0,
            len: content.len() as u32,
        };
        let file = entry(name, EntryKind::File, content.len() as u64);
        Root::put_data(&target, &file, &[(whole, content.as_bytes())])?;
    }
    Box::new(target).finish().map(drop)
}

/// What a server would see.
fn tree(disk: &SimDisk) -> BTreeMap<PathBuf, String> {
    let files = disk.paths().into_iter().filter_map(|path| {
        let below = path.strip_prefix("/data").ok()?.to_path_buf();
        let bytes = disk.read_file(&path).ok()?;
        (!below.starts_with(".longshore-restoring"))
            .then(|| (below, String::from_utf8_lossy(&bytes).into_owned()))
    });
    files.collect()
}

fn whole(content: &str) -> BTreeMap<PathBuf, String> {
    NAMES
        .iter()
        .map(|name| (name.into(), content.to_owned()))
        .collect()
}

/// The old directory has a name that the new one lacks, or whose server has removed it.
const EXTRA: &str = "backup_label";

fn whole_old() -> BTreeMap<PathBuf, String> {
    let mut tree = whole("old");
    tree.insert(EXTRA.into(), "old".to_owned());
    tree
}

/// A restore that ends before it has put anything in its place.
fn give_up(disk: &SimDisk) -> Result<(), Error> {
    Target::open(&house(disk), Path::new("/data"), true, SCOPE, &[]).map(drop)
}

fn prepared(seed: u64, old: bool) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.mount("/data").unwrap();
    if old {
        for name in NAMES.into_iter().chain([EXTRA]) {
            disk.write_file(Path::new("/data").join(name), b"old")
                .unwrap();
        }
        disk.settle();
    }
    disk
}

#[test]
fn a_power_cut_leaves_the_old_directory_the_new_one_or_nothing_that_starts() {
    for (old, each_max) in [(true, EACH_MAX), (true, 0), (false, EACH_MAX), (false, 0)] {
        let probe = prepared(7, old);
        let before = probe.steps();
        replace_syncing(&probe, "new", each_max).unwrap();
        assert_eq!(tree(&probe), whole("new"));
        let steps = probe.steps() - before;
        let mut unstartable = 0;
        for step in 0..=steps {
            let disk = prepared(step, old);
            let at = disk.steps() + step;
            let reported = replace_syncing(&disk.cut_power_at(at), "new", each_max).is_ok();
            for image in disk.images(5) {
                let found = tree(&image);
                let what = format!(
                    "old {old}, {each_max} synced each, cut at step {step} of {steps}, reported {reported}"
                );
                if found.contains_key(Path::new("global/pg_control")) {
                    let is_old = old && found == whole_old() && !reported;
                    assert!(is_old || found == whole("new"), "{what}: {found:?}");
                } else {
                    assert!(!reported, "{what}: {found:?}");
                    unstartable += 1;
                }
                crashes_again(&image, &what);
                let fresh = Target::open(&house(&image), Path::new("/data"), false, SCOPE, &[]);
                let stands = found.contains_key(Path::new("global/pg_control"));
                assert_eq!(fresh.is_ok(), !stands && !old, "{what}");
                drop(fresh);
                replace(&image, "again").unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_eq!(tree(&image), whole("again"), "{what}");
            }
        }
        assert!(
            unstartable > 0 && steps > 20,
            "{steps} steps, {unstartable} between"
        );
    }
}

/// Goal: what a crash left is put right by the next restore even when that one gives up, or crashes itself.
fn crashes_again(image: &SimDisk, what: &str) {
    let found = tree(image);
    let is_old = found == whole_old();
    let probe = image.images(1).remove(0);
    let before = probe.steps();
    give_up(&probe).unwrap();
    let after = tree(&probe);
    let starts = after.contains_key(Path::new("global/pg_control"));
    match found.contains_key(Path::new("global/pg_control")) {
        true => assert_eq!(after, found, "{what}"),
        false => assert!(!starts || after == whole_old(), "{what}: {after:?}"),
    }
    for step in 0..probe.steps() - before {
        let disk = image.images(1).remove(0);
        let _cut = give_up(&disk.cut_power_at(disk.steps() + step));
        for again in disk.images(2) {
            let crashed = tree(&again);
            give_up(&again).unwrap();
            for (when, found) in [("then", crashed), ("at last", tree(&again))] {
                let starts = found.contains_key(Path::new("global/pg_control"));
                let fits = found == after || is_old && found == whole_old();
                assert!(
                    !starts || fits,
                    "{what}, again at {step}, {when}: {found:?}"
                );
            }
        }
    }
}

#[test]
fn what_stands_is_refused_without_leave_and_put_back_after_a_failure() {
    let disk = prepared(1, true);
    let refused = Target::open(&house(&disk), Path::new("/data"), false, SCOPE, &[]);
    assert!(matches!(refused, Err(Error::TargetExists { .. })));
    assert_eq!(tree(&disk), whole_old());
    let mut target = Target::open(&house(&disk), Path::new("/data"), true, SCOPE, &[]).unwrap();
    Root::put_name(&target, &entry("base", EntryKind::Dir, 0)).unwrap();
    let closed = target.seal().unwrap();
    target.displace().unwrap();
    assert_eq!(tree(&disk), BTreeMap::new());
    target.move_in(&closed).unwrap();
    drop(target);
    assert_eq!(tree(&disk), whole_old());
}

/// What the disk was asked to make durable from its step `from` on, and when.
fn syncs(disk: &SimDisk, from: usize) -> Vec<(usize, Op, PathBuf)> {
    let history = disk.history().into_iter().enumerate().skip(from);
    let sync = |op| matches!(op, Op::Sync | Op::SyncDir | Op::SyncAll);
    let named = history.filter(|(_, (op, _))| sync(*op));
    named.map(|(step, (op, path))| (step, op, path)).collect()
}

#[test]
fn few_names_are_synced_by_themselves_each_after_its_last_change() {
    let disk = prepared(1, false);
    let before = disk.history().len();
    replace(&disk, "new").unwrap();
    let history = disk.history();
    let first_rename = history.iter().position(|(op, _)| *op == Op::Rename);
    let first_rename = first_rename.unwrap();
    let new = Path::new("/data/.longshore-restoring/new");
    let files = NAMES.iter().map(|name| (Op::Sync, new.join(name)));
    let dirs = ["", "base", "global", "pg_wal"].iter();
    let dirs = dirs.map(|name| (Op::SyncDir, new.join(name)));
    let above = ["/data", "/data/.longshore-restoring"];
    let above = above.iter().map(|name| (Op::SyncDir, PathBuf::from(name)));
    for (op, path) in files.chain(dirs).chain(above) {
        // The disk names a directory as it was asked to, with or without a slash at its end.
        let is_it = |(o, p): &(Op, PathBuf)| *o == op && p.components().eq(path.components());
        let synced = history[..first_rename].iter().rposition(is_it);
        let synced = synced.unwrap_or_else(|| panic!("{op:?} of {} is missing", path.display()));
        let changed = |(o, p): &(Op, PathBuf)| {
            let of_it = *p == path || (op == Op::SyncDir && p.parent() == Some(&path));
            of_it && !matches!(o, Op::Sync | Op::SyncDir)
        };
        let late = history[synced..first_rename]
            .iter()
            .find(|step| changed(step));
        assert_eq!(late, None, "{} was synced before", path.display());
    }
    let all = syncs(&disk, before);
    assert!(all.iter().all(|(_, op, _)| *op != Op::SyncAll), "{all:?}");
}

#[test]
fn many_names_are_synced_together_with_their_file_system() {
    let disk = prepared(1, false);
    let before = disk.history().len();
    // Five files, three directories, and the three that hold them.
    replace_syncing(&disk, "new", 10).unwrap();
    let all = syncs(&disk, before);
    assert!(all.iter().any(|(_, op, _)| *op == Op::SyncAll), "{all:?}");
    let each = all.iter().any(|(_, op, _)| *op == Op::Sync);
    assert!(!each, "{all:?}");
    let disk = prepared(1, false);
    let before = disk.history().len();
    replace_syncing(&disk, "new", 11).unwrap();
    let all = syncs(&disk, before);
    assert!(all.iter().all(|(_, op, _)| *op != Op::SyncAll), "{all:?}");
}

#[test]
fn what_this_user_may_not_look_at_is_synced_with_its_file_system() {
    // Restored modes may forbid their own owner to list a directory, or to open a file.
    for op in [Op::List, Op::Open] {
        let disk = prepared(1, false);
        let before = disk.history().len();
        let target = Target::open(&house(&disk), Path::new("/data"), true, SCOPE, &[]).unwrap();
        Root::put_name(&target, &entry("base", EntryKind::Dir, 0)).unwrap();
        let whole = Extent { offset: 0, len: 3 };
        let file = entry("base/1", EntryKind::File, 3);
        Root::put_data(&target, &file, &[(whole, b"new")]).unwrap();
        let below = "/data/.longshore-restoring/new/base";
        disk.inject(Fault::errno(libc::EACCES).on(op).below(below));
        Box::new(target).finish().unwrap();
        let all = syncs(&disk, before);
        assert!(all.iter().any(|(_, op, _)| *op == Op::SyncAll), "{all:?}");
    }
}

#[test]
fn a_name_that_cannot_be_synced_ends_the_restore_and_is_told() {
    for (op, name) in [(Op::Sync, "base/2"), (Op::SyncDir, "base")] {
        let disk = prepared(1, true);
        let below = Path::new("/data/.longshore-restoring/new").join(name);
        disk.inject(Fault::errno(libc::EIO).on(op).below(&below));
        let refused = replace(&disk, "new").unwrap_err().to_string();
        assert!(
            refused.contains("sync") && refused.contains(name),
            "{refused}"
        );
        assert_eq!(tree(&disk), whole_old());
    }
}
