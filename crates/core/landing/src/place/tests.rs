//! Goal: a power cut at any step of replacing a directory leaves the old one, the new one, or nothing that starts.
//! Method: on a simulated disk, cut after every step of the replacement, check every image the cut can leave, and
//! replace again from there.

use crate::place::{RootContent, RootSwitch};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

use longshore_io::{
    Attributes, Clock, Fault, Host, HostClock, Op, OpenHow, SimClock, SimDisk, Storage,
};
use longshore_media::{Entry, EntryKind, Extent};

use crate::error::Error;
use crate::locked_target::{LOCK, STAGING};
use crate::place::{Destination, EACH_MAX, OpenFiles, ReplacePolicy, Scope, Target, remove_tree};
use longshore_io::Machine;

const SCOPE: Scope = Scope::Directory { last: "global" };
const NAMES: [&str; 5] = [
    "base/1",
    "base/2",
    "global/pg_control",
    "pg_wal/x",
    "PG_VERSION",
];

pub fn machine(disk: &SimDisk) -> Machine {
    Machine {
        storage: Arc::new(disk.clone()),
        clock: Arc::new(HostClock),
    }
}

pub fn entry(path: &str, kind: EntryKind, len: u64) -> Entry {
    Entry {
        path: path.into(),
        kind,
        first: true,
        based: false,
        xattrs: Vec::new(),
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
    let mut target = Target::open(
        &machine(disk),
        Path::new("/data"),
        ReplacePolicy::Unused,
        SCOPE,
        &[],
    )?;
    target.each_max = each_max;
    for dir in ["base", "global", "pg_wal"] {
        RootContent::put_name(&target, &entry(dir, EntryKind::Dir, 0))?;
    }
    for name in NAMES {
        let whole = Extent {
            offset: 0,
            len: content.len() as u32,
        };
        let file = entry(name, EntryKind::File, content.len() as u64);
        RootContent::put_data(&target, &file, &[(whole, content.as_bytes())])?;
    }
    Box::new(target).finish().map(drop)
}

/// The files that a server would see.
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

/// A name in the old directory that the new one lacks, or whose server has removed it.
const EXTRA: &str = "backup_label";

fn whole_old() -> BTreeMap<PathBuf, String> {
    let mut tree = whole("old");
    tree.insert(EXTRA.into(), "old".to_owned());
    tree
}

/// A restore that ends before it has moved anything in.
fn give_up(disk: &SimDisk) -> Result<(), Error> {
    Target::open(
        &machine(disk),
        Path::new("/data"),
        ReplacePolicy::Unused,
        SCOPE,
        &[],
    )
    .map(drop)
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
                // The power went after success was reported.
                if step == steps {
                    is_left_alone(&image, &what);
                }
                let fresh = Target::open(
                    &machine(&image),
                    Path::new("/data"),
                    ReplacePolicy::No,
                    SCOPE,
                    &[],
                );
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

/// Goal: if a user empties the target after a restore, except for the hidden staging directory that a power cut
/// brought back, and puts other files there, the next restore does not remove them.
fn is_left_alone(image: &SimDisk, what: &str) {
    let disk = image.images(1).remove(0);
    let dir = disk.dir(Path::new("/data")).unwrap();
    for name in dir.list().unwrap() {
        let name = name.unwrap();
        if name != STAGING {
            remove_tree(&*dir, Path::new(&name)).unwrap();
        }
    }
    disk.write_file("/data/mine", b"mine").unwrap();
    disk.settle();
    let refused = Target::open(
        &machine(&disk),
        Path::new("/data"),
        ReplacePolicy::No,
        SCOPE,
        &[],
    );
    assert!(matches!(refused, Err(Error::TargetExists { .. })), "{what}");
    give_up(&disk).unwrap();
    assert_eq!(disk.read_file("/data/mine").unwrap(), b"mine", "{what}");
}

/// Goal: the next restore repairs what a crash left, even if that restore gives up or crashes itself.
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
fn existing_files_are_refused_without_replace_and_put_back_after_a_failure() {
    let disk = prepared(1, true);
    let refused = Target::open(
        &machine(&disk),
        Path::new("/data"),
        ReplacePolicy::No,
        SCOPE,
        &[],
    );
    assert!(matches!(refused, Err(Error::TargetExists { .. })));
    assert_eq!(tree(&disk), whole_old());
    let mut target = Target::open(
        &machine(&disk),
        Path::new("/data"),
        ReplacePolicy::Unused,
        SCOPE,
        &[],
    )
    .unwrap();
    RootContent::put_name(&target, &entry("base", EntryKind::Dir, 0)).unwrap();
    let closed = target.seal().unwrap();
    target.displace().unwrap();
    assert_eq!(tree(&disk), BTreeMap::new());
    target.move_in(&closed).unwrap();
    drop(target);
    assert_eq!(tree(&disk), whole_old());
}

/// The syncs that the disk was asked for from its step `from` on, with their position.
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
        // The disk names a directory as it was requested, with or without a slash at its end.
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
    // Five files, three directories, and the three directories above them.
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
fn unreadable_files_are_synced_with_their_file_system() {
    // Restored modes may forbid their owner to list a directory. Files are not affected, because they are already
    // open.
    for (op, below, is_whole) in [(Op::List, "base", true), (Op::Open, "base/1", false)] {
        let disk = prepared(1, false);
        let before = disk.history().len();
        let target = Target::open(
            &machine(&disk),
            Path::new("/data"),
            ReplacePolicy::Unused,
            SCOPE,
            &[],
        )
        .unwrap();
        RootContent::put_name(&target, &entry("base", EntryKind::Dir, 0)).unwrap();
        let whole = Extent { offset: 0, len: 3 };
        let file = entry("base/1", EntryKind::File, 3);
        RootContent::put_data(&target, &file, &[(whole, b"new")]).unwrap();
        let below = Path::new("/data/.longshore-restoring/new").join(below);
        disk.inject(Fault::errno(libc::EACCES).on(op).below(below));
        Box::new(target).finish().unwrap();
        let all = syncs(&disk, before);
        let whole = all.iter().any(|(_, op, _)| *op == Op::SyncAll);
        assert_eq!(whole, is_whole, "{all:?}");
    }
}

/// Goal: an error in the system's own delayed writing is reported, even if the file has left the system's memory
/// meanwhile.
#[test]
fn written_files_are_synced_through_a_descriptor_kept_open_or_with_their_file_system() {
    let new = Path::new("/data/.longshore-restoring/new");
    // One more file than may be open.
    for (max, is_whole) in [(NAMES.len(), false), (NAMES.len() - 1, true)] {
        let disk = prepared(1, false);
        let mut target = Target::open(
            &machine(&disk),
            Path::new("/data"),
            ReplacePolicy::Unused,
            SCOPE,
            &[],
        )
        .unwrap();
        target.watch = OpenFiles::of(max);
        for name in NAMES {
            let whole = Extent { offset: 0, len: 3 };
            let file = entry(name, EntryKind::File, 3);
            RootContent::put_data(&target, &file, &[(whole, b"new")]).unwrap();
        }
        // Nothing that was written is opened once more.
        for name in NAMES.map(|name| new.join(name)) {
            disk.inject(Fault::errno(libc::EIO).on(Op::Open).below(name));
        }
        let before = disk.history().len();
        Box::new(target).finish().unwrap();
        let all = syncs(&disk, before);
        let whole = all.iter().any(|(_, op, _)| *op == Op::SyncAll);
        assert_eq!(whole, is_whole, "{max} {all:?}");
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

/// A database among files, or one alone, as restored: its names with their content.
type Files = BTreeMap<PathBuf, String>;

fn files(list: &[(&str, &str)]) -> Files {
    let database = |name: &str| {
        if name == "app.db" {
            "SQLite format 3\0"
        } else {
            ""
        }
    };
    list.iter()
        .map(|(name, content)| (name.into(), format!("{}{content}", database(name))))
        .collect()
}

fn replace_files(disk: &SimDisk, side_files: bool, files: &Files) -> Result<(), Error> {
    let scope = Scope::Names { side_files };
    let target = Target::open(
        &machine(disk),
        Path::new("/data"),
        ReplacePolicy::Unused,
        scope,
        &[],
    )?;
    for (name, content) in files {
        let len = content.len();
        let whole = Extent {
            offset: 0,
            len: len as u32,
        };
        let file = entry(name.to_str().unwrap(), EntryKind::File, len as u64);
        RootContent::put_data(&target, &file, &[(whole, content.as_bytes())])?;
    }
    Box::new(target).finish().map(drop)
}

/// Goal: whatever the moment of a power cut, and of a second one during the repair, a database exists with its own
/// side files or not at all: never with those of the other database.
#[test]
fn a_database_is_never_next_to_another_ones_side_files() {
    let old = files(&[
        ("app.db", "old"),
        ("app.db-wal", "old"),
        ("app.db-journal", "old"),
        ("b", "old"),
    ]);
    let alone = files(&[("app.db", "new")]);
    let with_log = files(&[
        ("a", "new"),
        ("app.db", "new"),
        ("app.db-wal", "new"),
        ("b", "new"),
    ]);
    for (side_files, new) in [(true, alone.clone()), (false, alone), (false, with_log)] {
        let prepared = |seed: u64| {
            let disk = SimDisk::new(seed);
            disk.mount("/data").unwrap();
            for (name, content) in &old {
                disk.write_file(Path::new("/data").join(name), content.as_bytes())
                    .unwrap();
            }
            disk.settle();
            disk
        };
        let group = |tree: &Files| -> Files {
            let of_it =
                |(name, _): &(&PathBuf, &String)| name.to_str().unwrap().starts_with("app.db");
            tree.iter()
                .filter(of_it)
                .map(|(n, c)| (n.clone(), c.clone()))
                .collect()
        };
        let sound = |found: &Files| {
            let found = group(found);
            !found.contains_key(Path::new("app.db")) || found == group(&old) || found == group(&new)
        };
        let give_up = |disk: &SimDisk| {
            let scope = Scope::Names { side_files };
            Target::open(
                &machine(disk),
                Path::new("/data"),
                ReplacePolicy::Unused,
                scope,
                &[],
            )
            .map(drop)
        };
        let probe = prepared(1);
        let before = probe.steps();
        replace_files(&probe, side_files, &new).unwrap();
        assert_eq!(group(&tree(&probe)), group(&new), "{side_files}");
        for step in 0..=probe.steps() - before {
            let disk = prepared(step);
            let at = disk.steps() + step;
            let _cut = replace_files(&disk.cut_power_at(at), side_files, &new);
            for image in disk.images(3) {
                let what = format!("{side_files}, {new:?}, cut at {step}");
                let found = tree(&image);
                assert!(sound(&found), "{what}: {found:?}");
                let probe = image.images(1).remove(0);
                let before = probe.steps();
                give_up(&probe).unwrap();
                let found = tree(&probe);
                assert!(
                    sound(&found) && found.contains_key(Path::new("app.db")),
                    "{what}: {found:?}"
                );
                for step in 0..probe.steps() - before {
                    let disk = image.images(1).remove(0);
                    let _cut = give_up(&disk.cut_power_at(disk.steps() + step));
                    for again in disk.images(2) {
                        give_up(&again).unwrap();
                        let found = tree(&again);
                        let stands = found.contains_key(Path::new("app.db"));
                        assert!(
                            sound(&found) && stands,
                            "{what}, again at {step}: {found:?}"
                        );
                    }
                }
            }
        }
    }
}

/// Restores these files of a set and nothing else of it, over what stands there.
fn replace_chosen(disk: &SimDisk, new: &Files) -> Result<(), Error> {
    let target = open_names(disk, ReplacePolicy::Unused)?;
    let only: Vec<PathBuf> = new.keys().cloned().collect();
    let target = target.choosing(&only);
    for (name, content) in new {
        let (content, len) = (content.as_bytes(), content.len() as u32);
        let file = entry(name.to_str().unwrap(), EntryKind::File, len.into());
        RootContent::put_data(&target, &file, &[(Extent { offset: 0, len }, content)])?;
    }
    Box::new(target).finish().map(drop)
}

fn open_names(disk: &SimDisk, replacing: ReplacePolicy) -> Result<Target, Error> {
    let scope = Scope::Names { side_files: false };
    Target::open(&machine(disk), Path::new("/data"), replacing, scope, &[])
}

/// Goal: whatever the moment of a power cut, and of another one during the repair, the next restore finds all old names or
/// all new ones, even if it is refused itself.
#[test]
fn names_that_were_replaced_one_by_one_go_back_together() {
    let old = files(&[
        ("a", "old"),
        ("app.db", "old"),
        ("app.db-wal", "old"),
        ("d/x", "old"),
        ("d/y", "old"),
        ("z", "old"),
    ]);
    let new = files(&[
        ("a", "new"),
        ("app.db", "new"),
        ("d/x", "new"),
        ("made/here", "new"),
        ("n", "new"),
    ]);
    let mut done = old.clone();
    done.remove(Path::new("app.db-wal"));
    done.extend(new.clone());
    goes_back_together(&old, &done, |disk| replace_chosen(disk, &new));
}

/// Cuts the power at each step of a restore, and at each step of the repair by the next one.
///
/// # Panics
/// If that is refused, or finds neither all `old` names nor all that are `done`.
fn goes_back_together(old: &Files, done: &Files, restore: impl Fn(&SimDisk) -> Result<(), Error>) {
    let repair = |disk: &SimDisk| open_names(disk, ReplacePolicy::No).map(drop);
    let probe = standing_in(1, old);
    let before = probe.steps();
    restore(&probe).unwrap();
    assert_eq!(tree(&probe), *done);
    let steps = probe.steps() - before;
    let mut mixed = 0;
    for step in 0..=steps {
        let disk = standing_in(step, old);
        let at = disk.steps() + step;
        let told = restore(&disk.cut_power_at(at)).is_ok();
        for image in disk.images(3) {
            let what = format!("cut at {step} of {steps}");
            let found = tree(&image);
            mixed += usize::from(found != *old && found != *done);
            let probe = image.images(1).remove(0);
            let before = probe.steps();
            repair(&probe).unwrap_or_else(|e| panic!("{what}: {e}: {found:?}"));
            let after = tree(&probe);
            assert!(
                after == *done || after == *old && !told,
                "{what}: {after:?}"
            );
            for step in 0..probe.steps() - before {
                let disk = image.images(1).remove(0);
                let _cut = repair(&disk.cut_power_at(disk.steps() + step));
                for again in disk.images(2) {
                    repair(&again).unwrap_or_else(|e| panic!("{what}, again at {step}: {e}"));
                    assert_eq!(tree(&again), after, "{what}, again at {step}");
                }
            }
        }
    }
    assert!(mixed > 0, "{steps} steps");
}

fn standing_in(seed: u64, files: &Files) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.mount("/data").unwrap();
    for (name, content) in files {
        disk.write_file(Path::new("/data").join(name), content.as_bytes())
            .unwrap();
    }
    disk.settle();
    disk
}

/// Restores `d/x` with two further names, `l` and `m`, and `z`, over what stands there.
fn replace_linked(disk: &SimDisk) -> Result<(), Error> {
    let target = open_names(disk, ReplacePolicy::Unused)?;
    let whole = Extent { offset: 0, len: 3 };
    for name in ["d/x", "z"] {
        let file = entry(name, EntryKind::File, 3);
        RootContent::put_data(&target, &file, &[(whole, b"new")])?;
    }
    for name in ["l", "m"] {
        let target_of = EntryKind::HardLink {
            target: "d/x".into(),
        };
        RootContent::put_name(&target, &entry(name, target_of, 0))?;
    }
    Box::new(target).finish().map(drop)
}

/// Goal: a rename, which changes the time of a file by all of its names, is not taken for somebody's change.
#[test]
fn a_file_with_several_names_goes_back_by_all_of_them() {
    let old = files(&[("d/x", "old"), ("d/y", "old"), ("m", "old"), ("z", "old")]);
    let done = files(&[("d/x", "new"), ("l", "new"), ("m", "new"), ("z", "new")]);
    goes_back_together(&old, &done, replace_linked);
}

/// Goal: the time of a file that a switch has renamed says nothing, and yet no change of somebody else is taken back.
#[test]
fn a_file_with_several_names_that_was_changed_since_a_power_cut_is_kept() {
    fn set(disk: &SimDisk, name: &str, attributes: Attributes) {
        let dir = disk.dir(Path::new("/data")).unwrap();
        dir.set_attributes(Path::new(name), &attributes).unwrap();
    }
    fn replace(disk: &SimDisk, name: &str) {
        let dir = disk.dir(Path::new("/data")).unwrap();
        dir.remove_file(Path::new(name)).unwrap();
        disk.write_file(Path::new("/data").join(name), b"new")
            .unwrap();
    }
    type Change = (&'static str, fn(&SimDisk));
    let changes: [Change; 6] = [
        ("written", |disk| {
            disk.write_file("/data/d/x", b"own").unwrap();
        }),
        ("written by its place", |disk| {
            disk.write_file("/data/m", b"own").unwrap();
        }),
        ("opened to others", |disk| {
            let mode = Some(0o777);
            set(
                disk,
                "d/x",
                Attributes {
                    mode,
                    ..Attributes::default()
                },
            );
        }),
        ("given away", |disk| {
            let owner = Some((5, 5));
            set(
                disk,
                "l",
                Attributes {
                    owner,
                    ..Attributes::default()
                },
            );
        }),
        ("replaced", |disk| replace(disk, "d/x")),
        ("replaced at its place", |disk| replace(disk, "m")),
    ];
    let old = files(&[("d/x", "old"), ("m", "old"), ("z", "old")]);
    let probe = standing_in(1, &old);
    let before = probe.steps();
    replace_linked(&probe).unwrap();
    let mut cuts = 0;
    for step in 0..probe.steps() - before {
        let disk = standing_in(step, &old);
        let at = disk.steps() + step;
        let _cut = replace_linked(&disk.cut_power_at(at));
        let image = disk.images(2).pop().unwrap();
        let has = |name: &str| {
            let path = Path::new("/data").join(STAGING).join(name);
            image.stat(&path).is_ok()
        };
        let is_new = |name: &str| {
            tree(&image)
                .get(Path::new(name))
                .is_some_and(|x| x == "new")
        };
        if !has("moving") || has("gone") || !["d/x", "l", "m"].into_iter().all(is_new) {
            continue;
        }
        cuts += 1;
        for (what, change) in changes {
            let changed = image.images(1).remove(0);
            change(&changed);
            let found = tree(&changed);
            for replacing in [ReplacePolicy::No, ReplacePolicy::Anything] {
                let refused = open_names(&changed, replacing).err();
                assert!(
                    matches!(refused, Some(Error::KilledRestore { .. })),
                    "{what} after {step}: {refused:?}"
                );
            }
            assert_eq!(tree(&changed), found, "{what} after {step}");
        }
        open_names(&image, ReplacePolicy::No).unwrap();
        assert_eq!(tree(&image), old);
    }
    assert!(cuts > 0);
}

/// Goal: nothing that somebody did after the kill is taken back.
#[test]
fn names_that_were_changed_since_a_power_cut_are_kept_and_the_next_restore_is_refused() {
    let old = files(&[("d/x", "old"), ("z", "old")]);
    let mut refusals = 0;
    let steps = 200;
    for step in 0..steps {
        let disk = SimDisk::new(step);
        disk.mount("/data").unwrap();
        for (name, content) in &old {
            disk.write_file(Path::new("/data").join(name), content.as_bytes())
                .unwrap();
        }
        disk.settle();
        let at = disk.steps() + step;
        let new = files(&[("d/x", "new"), ("z", "new")]);
        if replace_files(&disk.cut_power_at(at), false, &new).is_ok() {
            continue;
        }
        let image = disk.images(1).remove(0);
        let found = tree(&image);
        let is_mixed = found.get(Path::new("d/x")).is_some_and(|x| x == "new");
        if !is_mixed
            || image
                .stat(Path::new("/data/.longshore-restoring/gone"))
                .is_ok()
        {
            continue;
        }
        image.write_file("/data/d/mine", b"mine").unwrap();
        for replacing in [ReplacePolicy::No, ReplacePolicy::Anything] {
            let refused = open_names(&image, replacing).err();
            assert!(
                matches!(refused, Some(Error::KilledRestore { .. })),
                "{step}: {refused:?}"
            );
        }
        assert_eq!(image.read_file("/data/d/mine").unwrap(), b"mine");
        refusals += 1;
    }
    assert!(refusals > 0);
}

/// Goal: an order of names that matters is never left to the file system.
/// Method: the simulated disk keeps names in order, as journals do, so a power cut does not reveal a missing sync
/// between two names. The recorded calls do.
#[test]
fn names_that_must_not_change_places_have_a_sync_between_them() {
    let target = Path::new("/data");
    // Whether the target was synced between the rename to this name and the next one.
    let is_synced = |history: &[(Op, PathBuf)], name: &Path| {
        let renamed = |(op, path): &(Op, PathBuf)| *op == Op::Rename && path == name;
        let at = history.iter().position(renamed);
        let at = at.unwrap_or_else(|| panic!("{} was not renamed", name.display()));
        let next = history[at + 1..].iter();
        let mut until = next.take_while(|(op, _)| *op != Op::Rename);
        until.any(|(op, path)| *op == Op::SyncDir && path.components().eq(target.components()))
    };
    let old = Path::new("/data/.longshore-restoring/old");

    let disk = prepared(1, true);
    let before = disk.history().len();
    replace(&disk, "new").unwrap();
    let history = disk.history().split_off(before);
    let renames = history.iter().filter(|(op, _)| *op == Op::Rename);
    let names: Vec<_> = renames.map(|(_, path)| path.clone()).collect();
    let last = target.join("global");
    let place = names.iter().position(|name| *name == last).unwrap();
    for name in [&old.join("global"), &names[place - 1], &last] {
        assert!(is_synced(&history, name), "{}", name.display());
    }

    let (database, log) = (target.join("app.db"), target.join("app.db-wal"));
    let displaced = ["app.db", "app.db-wal"].map(|name| old.join(name));
    for (new, must) in [
        (files(&[("app.db", "new")]), vec![&database]),
        (
            files(&[("app.db", "new"), ("app.db-wal", "new")]),
            vec![&log, &database],
        ),
    ] {
        let disk = SimDisk::new(1);
        disk.mount(target).unwrap();
        for (name, content) in files(&[("app.db", "old"), ("app.db-wal", "old")]) {
            disk.write_file(target.join(name), content.as_bytes())
                .unwrap();
        }
        let before = disk.history().len();
        replace_files(&disk, false, &new).unwrap();
        let history = disk.history().split_off(before);
        for name in displaced.iter().chain(must) {
            assert!(is_synced(&history, name), "{new:?}: {}", name.display());
        }
    }
}

#[test]
fn a_restore_that_cannot_give_up_what_it_displaced_takes_itself_back() {
    let disk = prepared(1, true);
    let gone = "/data/.longshore-restoring/gone";
    disk.inject(Fault::errno(libc::EIO).on(Op::Rename).below(gone));
    replace(&disk, "new").unwrap_err();
    assert_eq!(tree(&disk), whole_old());
}

#[test]
fn a_left_over_log_next_to_a_restored_database_is_refused_without_replace() {
    let disk = SimDisk::new(1);
    disk.mount("/data").unwrap();
    disk.write_file("/data/app.db-wal", b"left").unwrap();
    let scope = Scope::Names { side_files: false };
    let target = Target::open(
        &machine(&disk),
        Path::new("/data"),
        ReplacePolicy::No,
        scope,
        &[],
    )
    .unwrap();
    let content = b"SQLite format 3\0";
    let whole = Extent { offset: 0, len: 16 };
    let file = entry("app.db", EntryKind::File, 16);
    RootContent::put_data(&target, &file, &[(whole, content)]).unwrap();
    let refused = Box::new(target).finish().unwrap_err();
    assert!(matches!(refused, Error::TargetExists { .. }), "{refused}");
    assert_eq!(tree(&disk), files(&[("app.db-wal", "left")]));
}

/// Goal: no set takes the name of the restore's own directory, or puts anything into it, whatever may be replaced.
#[test]
fn a_set_that_names_the_restores_own_directory_is_refused() {
    let below = format!("{STAGING}/new/a");
    for replacing in [
        ReplacePolicy::No,
        ReplacePolicy::Unused,
        ReplacePolicy::Anything,
    ] {
        for scope in [SCOPE, Scope::Names { side_files: false }] {
            let at = format!("{replacing:?}, {scope:?}");
            let disk = prepared(1, false);
            let target =
                Target::open(&machine(&disk), Path::new("/data"), replacing, scope, &[]).unwrap();
            for name in [STAGING, below.as_str()] {
                let file = entry(name, EntryKind::File, 0);
                let refused = RootContent::put_name(&target, &file).unwrap_err();
                assert!(
                    matches!(refused, Error::TargetTaken { .. }),
                    "{at}: {refused}"
                );
                assert!(refused.to_string().contains(STAGING), "{at}: {refused}");
            }
            // Other names are not refused.
            RootContent::put_name(&target, &entry("a", EntryKind::File, 0)).unwrap();
        }
    }
}

/// Goal: where locks do not reach everybody, a restore that was taken for dead puts nothing next to its successor's.
#[test]
fn a_restore_whose_directory_was_taken_over_puts_nothing_there() {
    let disk = prepared(1, false).set_keeps_locks(false);
    let scope = Scope::Names { side_files: false };
    let target = Target::open(
        &machine(&disk),
        Path::new("/data"),
        ReplacePolicy::No,
        scope,
        &[],
    )
    .unwrap();
    let whole = Extent { offset: 0, len: 3 };
    let file = entry("a", EntryKind::File, 3);
    RootContent::put_data(&target, &file, &[(whole, b"new")]).unwrap();
    let lock = Path::new("/data").join(STAGING).join(LOCK);
    disk.write_file(&lock, b"another-boot 1 7 x\n").unwrap();
    let refused = Box::new(target).finish().unwrap_err();
    assert!(matches!(refused, Error::TargetBusy { .. }), "{refused}");
    assert_eq!(tree(&disk), BTreeMap::new());
}

/// Goal: no trace is left on a file system that keeps a removed file under another name until it is closed.
#[test]
fn the_staging_directory_is_removed_even_if_a_file_in_it_stays_open() {
    const ENOTEMPTY: i32 = 39;
    let disk = prepared(1, false);
    let staging = "/data/.longshore-restoring";
    disk.inject(
        Fault::errno(ENOTEMPTY)
            .on(Op::RemoveDir)
            .below(staging)
            .nth(3)
            .times(1),
    );
    replace(&disk, "new").unwrap();
    assert_eq!(tree(&disk), whole("new"));
    let left = disk
        .paths()
        .into_iter()
        .find(|path| path.starts_with(staging));
    assert_eq!(left, None);
}

/// Goal: workers that reach a database's name at the same time do not take each other for a program that uses it.
#[test]
fn a_restore_s_own_workers_keep_no_database_from_being_replaced() {
    const WORKERS: usize = 6;
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("app.db"), "SQLite format 3\0old").unwrap();
    let machine = Machine {
        storage: Arc::new(Host::new()),
        ..machine(&SimDisk::new(1))
    };
    for round in 0..20 {
        let scope = Scope::Names { side_files: true };
        let target =
            Target::open(&machine, temp.path(), ReplacePolicy::Unused, scope, &[]).unwrap();
        let together = Barrier::new(WORKERS);
        let ask = || {
            together.wait();
            target.check_free("app.db".as_ref())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(ask)).collect();
            for worker in workers {
                worker
                    .join()
                    .unwrap()
                    .unwrap_or_else(|e| panic!("round {round}: {e}"));
            }
        });
    }
}

/// Goal: a database that a program uses is waited for once, however many workers reach it.
#[test]
fn a_database_in_use_is_waited_for_once() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("app.db");
    std::fs::write(&path, "SQLite format 3\0old").unwrap();
    let clock = Arc::new(SimClock::default());
    let machine = Machine {
        storage: Arc::new(Host::new()),
        clock: clock.clone(),
    };
    let scope = Scope::Names { side_files: true };
    let target = Target::open(&machine, temp.path(), ReplacePolicy::Unused, scope, &[]).unwrap();
    let user = Host::new().dir(temp.path()).unwrap();
    let user = user.open("app.db".as_ref(), OpenHow::ReadWrite).unwrap();
    let mut waited = Vec::new();
    for _ in 0..3 {
        let refused = target.check_free("app.db".as_ref());
        assert!(matches!(refused, Err(Error::DatabaseInUse { .. })));
        waited.push(clock.now());
    }
    drop(user);
    assert_eq!(waited, [waited[0]; 3]);
}
