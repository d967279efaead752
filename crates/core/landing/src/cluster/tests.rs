//! Goal: the text of [`RootContent`], [`RootFiles`] and [`RootSwitch`], which are a [`Root`] together, holds for every
//! root: targets of each scope, a data directory and a tablespace that are changed in place.
//! Method: each promise is a function of a root on a simulated disk; the macro at the top makes each a test of all roots.
//! A double that breaks one promise at a time shows that each promise can turn red.
//! Not covered: whole restores (`tests/contract.rs`), and power cuts at every step (`place/tests.rs`).

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Attributes, Fault, File, Op, SimDisk, Storage, Via, Xattr};
use longshore_media::{Entry, EntryKind, Extent};

use super::in_place::InPlace;
use crate::error::Error;
use crate::locked_target::STAGING;
use crate::place::tests::{entry, machine};
use crate::place::{
    DeltaResult, FilePiece, LateAttributes, LostAttributes, ReplacePolicy, Root, RootContent,
    RootFiles, RootSwitch, Scope, Target,
};

const AT: &str = "/d/to";
const CONTROL: &str = "global/pg_control";
const EIO: i32 = 5;

/// The kinds of roots.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Of {
    Names,
    Space,
    Directory,
    Data,
    Tablespace,
}

const ALL: [Of; 5] = [
    Of::Names,
    Of::Space,
    Of::Directory,
    Of::Data,
    Of::Tablespace,
];

impl Of {
    fn is_staged(self) -> bool {
        !matches!(self, Of::Data | Of::Tablespace)
    }

    fn open(self, disk: &SimDisk, lie: Lie) -> Box<dyn Root> {
        let machine = machine(disk);
        let target = |replacing, scope| {
            let opened = Target::open(&machine, Path::new(AT), replacing, scope, &[]);
            Box::new(opened.unwrap()) as Box<dyn Root>
        };
        let in_place = |is_data| {
            let opened = InPlace::open(&machine, Path::new(AT), is_data, true);
            Box::new(opened.unwrap()) as Box<dyn Root>
        };
        let inner = match self {
            Of::Names => target(ReplacePolicy::Anything, Scope::Names { side_files: false }),
            Of::Space => target(ReplacePolicy::No, Scope::Space),
            Of::Directory => target(ReplacePolicy::Anything, Scope::Directory { last: "global" }),
            Of::Data => in_place(true),
            Of::Tablespace => in_place(false),
        };
        let disk = disk.clone();
        Box::new(Lying { lie, inner, disk })
    }
}

type Tree = BTreeMap<PathBuf, Vec<u8>>;

/// The files that other programs see, without the restore's own directory.
fn tree(disk: &SimDisk) -> Tree {
    let files = disk.paths().into_iter().filter_map(|path| {
        let below = path.strip_prefix(AT).ok()?.to_path_buf();
        let bytes = disk.read_file(&path).ok()?;
        (!below.starts_with(STAGING)).then_some((below, bytes))
    });
    files.collect()
}

/// Other programs see these files and no others.
#[track_caller]
fn assert_holds(disk: &SimDisk, wanted: &Tree, of: Of) {
    let found = tree(disk);
    let names = found.keys().chain(wanted.keys());
    let wrong: Vec<&PathBuf> = names.filter(|n| found.get(*n) != wanted.get(*n)).collect();
    assert!(wrong.is_empty(), "{of:?}: {wrong:?}");
}

fn mode(disk: &SimDisk, name: &str) -> u32 {
    disk.stat(&Path::new(AT).join(name)).unwrap().mode
}

const LEN: usize = 100_000;

fn content() -> Vec<u8> {
    (0..LEN).map(|i| (i / 7) as u8).collect()
}

fn extent(offset: usize, len: usize) -> Extent {
    Extent {
        offset: offset as u64,
        len: len as u32,
    }
}

fn file(name: &str, len: usize) -> Entry {
    entry(name, EntryKind::File, len as u64)
}

fn put(root: &dyn Root, name: &str, bytes: &[u8]) -> Result<(), Error> {
    let parts: &[(Extent, &[u8])] = &[(extent(0, bytes.len()), bytes)];
    root.put_data(&file(name, bytes.len()), parts)
}

/// Puts all that a set has, in an order that no backup would have, from several threads.
fn put_all(root: &dyn Root) {
    let all = content();
    let (left, right) = all.split_at(LEN / 3);
    let halves = [
        (extent(LEN / 3, right.len()), right),
        (extent(0, left.len()), left),
    ];
    let block = |i: usize| {
        let mut block = file("blocks", LEN);
        block.first = i == 0;
        root.put_data(&block, &[halves[i]]).unwrap();
    };
    let piece = |i: usize| {
        let path = Path::new("sub/pieces");
        let (len_bytes, parts) = (LEN as u64, &halves[i..=i]);
        let piece = FilePiece {
            path,
            len_bytes,
            parts,
        };
        root.put_piece(&piece).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| (0..2).for_each(block));
        scope.spawn(|| (0..2).for_each(piece));
        put(root, CONTROL, b"control").unwrap();
        root.put_name(&file("empty", 0)).unwrap();
        let mut sub = entry("sub", EntryKind::Dir, 0);
        sub.mode = 0o750;
        root.put_name(&sub).unwrap();
        root.put_name(&entry("global", EntryKind::Dir, 0)).unwrap();
    });
    let mut pieces = file("sub/pieces", LEN);
    pieces.mode = 0o640;
    root.complete(&pieces).unwrap();
}

fn expected() -> Tree {
    let names = ["blocks", "empty", CONTROL, "sub/pieces"];
    let contents = [content(), Vec::new(), b"control".to_vec(), content()];
    names.into_iter().map(PathBuf::from).zip(contents).collect()
}

/// The whole way from the last byte to the end.
fn switch(root: &mut dyn Root) {
    let closed = root.seal().unwrap();
    root.displace().unwrap();
    root.move_in(&closed).unwrap();
    root.give_up_displaced().unwrap();
    root.stand();
}

fn disk() -> SimDisk {
    let disk = SimDisk::new(5);
    disk.write_file("/d/other", b"").unwrap();
    disk
}

/// Every promise as a test of all roots, and by its name for the double that breaks it.
macro_rules! contract {
    ($($promise:ident)*) => {
        const PROMISES: &[(&str, fn(Of, Lie))] = &[$((stringify!($promise), $promise)),*];

        mod kept {
            $(#[test] fn $promise() {
                super::ALL.into_iter().for_each(|of| super::$promise(of, super::Lie::None));
            })*
        }
    };
}

contract! {
    names_and_bytes_in_any_order_have_their_names_after_the_switch
    nothing_can_be_used_before_the_switch
    an_error_names_its_path
    attributes_that_cannot_be_set_are_recorded
    a_name_is_held_if_it_was_restored
    a_restored_directory_knows_its_attributes_before_it_has_them
    files_are_added_changed_and_removed_before_the_end
    the_directory_itself_gets_its_attributes_with_its_names
    a_volume_is_told_where_space_decides
    a_power_cut_after_the_switch_takes_nothing_back
    a_switch_that_fails_leaves_no_new_name
    what_is_displaced_cannot_be_started_and_comes_back
    names_stay_only_after_the_end
    a_delta_tells_what_it_wrote
}

/// Goal: everything that was put is there at the end, whole.
fn names_and_bytes_in_any_order_have_their_names_after_the_switch(of: Of, lie: Lie) {
    let disk = disk();
    let mut root = of.open(&disk, lie);
    put_all(&*root);
    switch(&mut *root);
    drop(root);
    assert_holds(&disk, &expected(), of);
    assert_eq!(mode(&disk, "sub"), 0o750, "{of:?}");
    assert_eq!(mode(&disk, "sub/pieces"), 0o640, "{of:?}");
}

/// Goal: a restore that has not been switched is no database: it has no names, or lacks the one without which it cannot
/// start.
fn nothing_can_be_used_before_the_switch(of: Of, lie: Lie) {
    let disk = disk();
    let mut root = of.open(&disk, lie);
    put_all(&*root);
    root.seal().unwrap();
    match of {
        Of::Data => assert!(!tree(&disk).contains_key(Path::new(CONTROL))),
        // Only its cluster's data directory can be started.
        Of::Tablespace => {}
        _ => assert_eq!(tree(&disk), Tree::new(), "{of:?}"),
    }
}

/// Goal: an operator learns which file it was.
fn an_error_names_its_path(of: Of, lie: Lie) {
    let disk = disk();
    let root = of.open(&disk, lie);
    disk.inject(Fault::errno(EIO).on(Op::Write));
    let refused = put(&*root, "sub/whole", b"whole").unwrap_err();
    assert!(refused.to_string().contains("sub/whole"), "{refused}");
}

/// Goal: attributes that the file system refuses end no restore, and all of them are in one record.
fn attributes_that_cannot_be_set_are_recorded(of: Of, lie: Lie) {
    let disk = disk();
    let mut root = of.open(&disk, lie);
    let before = root.lost();
    let mut with = file("with", 0);
    with.xattrs.push(Xattr {
        name: b"user.note".to_vec(),
        value: b"1".to_vec(),
    });
    root.put_name(&with).unwrap();
    root.seal().unwrap();
    // The simulated disk keeps no extended attributes.
    assert_eq!((before.count(), root.lost().count()), (1, 1), "{of:?}");
}

/// Goal: the caller can ask for what the set had.
fn a_name_is_held_if_it_was_restored(of: Of, lie: Lie) {
    let disk = disk();
    let root = of.open(&disk, lie);
    put_all(&*root);
    root.add_file(Path::new("own")).unwrap();
    for name in ["blocks", "sub", "sub/pieces", "empty", CONTROL, "own"] {
        assert!(root.holds(Path::new(name)), "{of:?}: {name}");
    }
    for name in ["other", "sub/other"] {
        assert!(!root.holds(Path::new(name)), "{of:?}: {name}");
    }
}

/// Goal: files of our own can get the attributes that the set's have.
fn a_restored_directory_knows_its_attributes_before_it_has_them(of: Of, lie: Lie) {
    let disk = disk();
    let root = of.open(&disk, lie);
    put_all(&*root);
    let of_sub = root.attributes_of(Path::new("sub"));
    assert_eq!(of_sub.mode, Some(0o750), "{of:?}");
    let of_none = root.attributes_of(Path::new("none"));
    assert_eq!(of_none, Attributes::default(), "{of:?}");
}

/// Goal: what is added is part of the restore as what was put is.
fn files_are_added_changed_and_removed_before_the_end(of: Of, lie: Lie) {
    let disk = disk();
    let mut root = of.open(&disk, lie);
    put_all(&*root);
    let (own, gone) = (Path::new("own"), Path::new("gone"));
    let added = root.add_file(own).unwrap();
    added.write_all_at(b"own", 0, Via::Cache).unwrap();
    drop(added);
    let private = Attributes {
        mode: Some(0o640),
        ..Attributes::default()
    };
    root.set_added(own, &private).unwrap();
    let opened = root.open_added(Path::new("blocks")).unwrap();
    opened.write_all_at(b"edited", 0, Via::Cache).unwrap();
    drop(opened);
    root.add_file(gone).unwrap();
    root.remove_added(gone).unwrap();
    assert!(root.remove_added(gone).is_err(), "{of:?}: it is gone");
    switch(&mut *root);
    drop(root);
    let mut all = expected();
    all.insert(own.into(), b"own".to_vec());
    all.get_mut(Path::new("blocks")).unwrap()[..6].copy_from_slice(b"edited");
    assert_holds(&disk, &all, of);
    assert_eq!(mode(&disk, "own"), 0o640, "{of:?}");
}

/// Goal: the root is as private as what is in it, at the latest when that has its names.
fn the_directory_itself_gets_its_attributes_with_its_names(of: Of, lie: Lie) {
    let disk = disk();
    let mut root = of.open(&disk, lie);
    put_all(&*root);
    let closed = root.seal().unwrap();
    root.displace().unwrap();
    let private = Attributes {
        mode: Some(0o700),
        ..Attributes::default()
    };
    root.set_root(&private).unwrap();
    root.move_in(&closed).unwrap();
    for image in disk.images(5) {
        assert_eq!(mode(&image, ""), 0o700, "{of:?}");
    }
}

/// Goal: a restore that would not fit can be refused; in place nobody knows what it needs.
fn a_volume_is_told_where_space_decides(of: Of, lie: Lie) {
    let disk = disk();
    let root = of.open(&disk, lie);
    disk.set_capacity(AT, 1 << 30).unwrap();
    let stat = disk.stat(Path::new(AT)).unwrap();
    let told = root.volume();
    match (of.is_staged(), told) {
        (true, Some((volume, free))) => {
            assert_eq!(volume, stat.dev, "{of:?}");
            assert!((1 << 29..=1 << 30).contains(&free), "{of:?}: {free}");
        }
        (is_staged, told) => assert!(!is_staged && told.is_none(), "{of:?}: {told:?}"),
    }
}

/// Goal: all of it is durable, bytes and names, when the switch is over.
fn a_power_cut_after_the_switch_takes_nothing_back(of: Of, lie: Lie) {
    let disk = disk();
    let mut root = of.open(&disk, lie);
    put_all(&*root);
    let closed = root.seal().unwrap();
    root.displace().unwrap();
    root.move_in(&closed).unwrap();
    root.give_up_displaced().unwrap();
    for image in disk.images(8) {
        assert_holds(&image, &expected(), of);
    }
}

/// Goal: of a switch that fails nothing is seen, or what is seen cannot be started.
fn a_switch_that_fails_leaves_no_new_name(of: Of, lie: Lie) {
    for nth in 1..4 {
        let disk = disk();
        let mut root = of.open(&disk, lie);
        put_all(&*root);
        let closed = root.seal().unwrap();
        root.displace().unwrap();
        disk.inject(Fault::errno(EIO).on(Op::Rename).nth(nth).times(1));
        if root.move_in(&closed).is_ok() {
            // It needs fewer renames.
            continue;
        }
        match of {
            Of::Data => assert!(!tree(&disk).contains_key(Path::new(CONTROL))),
            Of::Tablespace => {}
            _ => assert_eq!(tree(&disk), Tree::new(), "{of:?}, {nth}"),
        }
    }
}

/// Goal: while a directory is replaced its old content cannot be started, and a restore that ends then gives it back.
fn what_is_displaced_cannot_be_started_and_comes_back(of: Of, lie: Lie) {
    if of != Of::Directory {
        // The others displace nothing as a whole.
        return;
    }
    let disk = disk();
    for name in [CONTROL, "old"] {
        disk.write_file(Path::new(AT).join(name), b"old").unwrap();
    }
    let before = tree(&disk);
    let mut root = of.open(&disk, lie);
    put_all(&*root);
    root.seal().unwrap();
    root.displace().unwrap();
    assert!(!tree(&disk).contains_key(Path::new(CONTROL)));
    drop(root);
    assert_holds(&disk, &before, of);
}

/// Goal: a restore that is dropped before its end leaves no names of its own, and one that stands leaves all.
fn names_stay_only_after_the_end(of: Of, lie: Lie) {
    for stands in [false, true] {
        let disk = disk();
        let mut root = of.open(&disk, lie);
        put_all(&*root);
        let closed = root.seal().unwrap();
        root.displace().unwrap();
        root.move_in(&closed).unwrap();
        root.give_up_displaced().unwrap();
        if stands {
            root.stand();
        }
        drop(root);
        // In place there is nothing to go back to.
        let stay = stands || !of.is_staged();
        let left = if stay { expected() } else { Tree::new() };
        assert_holds(&disk, &left, of);
        if stands {
            let own = disk.paths().into_iter().filter(|p| p.ends_with("new"));
            assert_eq!(own.count(), 0, "{of:?}: staged files are left");
        }
    }
}

/// Goal: an operator learns how much of an existing directory was changed.
fn a_delta_tells_what_it_wrote(of: Of, lie: Lie) {
    let disk = disk();
    let mut there = content();
    there[70_000] ^= 1;
    if !of.is_staged() {
        disk.write_file(Path::new(AT).join("blocks"), &there)
            .unwrap();
    }
    let root = of.open(&disk, lie);
    let all = content();
    put(&*root, "blocks", &all).unwrap();
    match (of.is_staged(), root.delta()) {
        (true, None) => {}
        (false, Some(delta)) => {
            let grain = 1..=all.len() as u64 / 2;
            let wrote = delta.rewritten_bytes.unwrap();
            assert!(grain.contains(&wrote), "{of:?}: {wrote}");
            assert_eq!(delta.removed.count, 0, "{of:?}");
        }
        (_, delta) => panic!("{of:?}: {delta:?}"),
    }
}

/// The one thing that a double does otherwise than the root behind it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    /// Hands all calls on.
    None,
    LosesAPiece,
    CompletesNothing,
    LosesANameWithoutData,
    ShowsANameEarly,
    NamesNoPath,
    HasTwoRecords,
    HoldsAll,
    HoldsNothing,
    KnowsNoAttributes,
    AddsElsewhere,
    OpensAnother,
    SetsNothing,
    RemovesWhatIsNot,
    LeavesTheRootOpen,
    KnowsNoVolume,
    SealsNothing,
    LeavesAHalf,
    DisplacesNothing,
    StandsTooEarly,
    NeverStands,
    TellsNoDelta,
}

/// Every lie, and the promise that it breaks.
const LIES: &[(Lie, &str)] = &[
    (
        Lie::LosesAPiece,
        "names_and_bytes_in_any_order_have_their_names_after_the_switch",
    ),
    (
        Lie::CompletesNothing,
        "names_and_bytes_in_any_order_have_their_names_after_the_switch",
    ),
    (
        Lie::LosesANameWithoutData,
        "names_and_bytes_in_any_order_have_their_names_after_the_switch",
    ),
    (
        Lie::ShowsANameEarly,
        "nothing_can_be_used_before_the_switch",
    ),
    (Lie::NamesNoPath, "an_error_names_its_path"),
    (
        Lie::HasTwoRecords,
        "attributes_that_cannot_be_set_are_recorded",
    ),
    (Lie::HoldsAll, "a_name_is_held_if_it_was_restored"),
    (Lie::HoldsNothing, "a_name_is_held_if_it_was_restored"),
    (
        Lie::KnowsNoAttributes,
        "a_restored_directory_knows_its_attributes_before_it_has_them",
    ),
    (
        Lie::AddsElsewhere,
        "files_are_added_changed_and_removed_before_the_end",
    ),
    (
        Lie::OpensAnother,
        "files_are_added_changed_and_removed_before_the_end",
    ),
    (
        Lie::SetsNothing,
        "files_are_added_changed_and_removed_before_the_end",
    ),
    (
        Lie::RemovesWhatIsNot,
        "files_are_added_changed_and_removed_before_the_end",
    ),
    (
        Lie::LeavesTheRootOpen,
        "the_directory_itself_gets_its_attributes_with_its_names",
    ),
    (Lie::KnowsNoVolume, "a_volume_is_told_where_space_decides"),
    (
        Lie::SealsNothing,
        "a_power_cut_after_the_switch_takes_nothing_back",
    ),
    (Lie::LeavesAHalf, "a_switch_that_fails_leaves_no_new_name"),
    (
        Lie::DisplacesNothing,
        "what_is_displaced_cannot_be_started_and_comes_back",
    ),
    (Lie::StandsTooEarly, "names_stay_only_after_the_end"),
    (Lie::NeverStands, "names_stay_only_after_the_end"),
    (Lie::TellsNoDelta, "a_delta_tells_what_it_wrote"),
];

/// A root that does as another one, but for one thing.
struct Lying {
    lie: Lie,
    inner: Box<dyn Root>,
    disk: SimDisk,
}

impl Lying {
    /// Puts a file where others see it.
    fn show(&self, name: &str) {
        let path = Path::new(AT).join(name);
        self.disk.write_file(path, b"shown").unwrap();
    }
}

impl RootContent for Lying {
    fn put_name(&self, entry: &Entry) -> Result<(), Error> {
        if self.lie == Lie::LosesANameWithoutData && entry.kind == EntryKind::File {
            return Ok(());
        }
        self.inner.put_name(entry)
    }

    fn put_data(&self, entry: &Entry, parts: &[(Extent, &[u8])]) -> Result<(), Error> {
        if self.lie == Lie::ShowsANameEarly {
            self.show(CONTROL);
        }
        let done = self.inner.put_data(entry, parts);
        match self.lie {
            Lie::NamesNoPath => done.map_err(|_| Error::TargetBusy { path: AT.into() }),
            _ => done,
        }
    }

    fn put_piece(&self, piece: &FilePiece) -> Result<(), Error> {
        if self.lie == Lie::LosesAPiece && piece.parts[0].0.offset == 0 {
            return Ok(());
        }
        self.inner.put_piece(piece)
    }

    fn complete(&self, entry: &Entry) -> Result<(), Error> {
        match self.lie {
            Lie::CompletesNothing => Ok(()),
            _ => self.inner.complete(entry),
        }
    }

    fn lost(&self) -> Arc<LostAttributes> {
        match self.lie {
            Lie::HasTwoRecords => Arc::default(),
            _ => self.inner.lost(),
        }
    }

    fn holds(&self, name: &Path) -> bool {
        match self.lie {
            Lie::HoldsAll => true,
            Lie::HoldsNothing => false,
            _ => self.inner.holds(name),
        }
    }

    fn attributes_of(&self, dir: &Path) -> Attributes {
        match self.lie {
            Lie::KnowsNoAttributes => Attributes::default(),
            _ => self.inner.attributes_of(dir),
        }
    }
}

impl RootFiles for Lying {
    fn add_file(&self, name: &Path) -> Result<Arc<dyn File>, Error> {
        match self.lie {
            Lie::AddsElsewhere => self.inner.add_file(&name.with_extension("else")),
            _ => self.inner.add_file(name),
        }
    }

    fn open_added(&self, name: &Path) -> Result<Arc<dyn File>, Error> {
        match self.lie {
            Lie::OpensAnother => self.inner.open_added(Path::new("empty")),
            _ => self.inner.open_added(name),
        }
    }

    fn set_added(&self, name: &Path, attributes: &Attributes) -> Result<(), Error> {
        match self.lie {
            Lie::SetsNothing => Ok(()),
            _ => self.inner.set_added(name, attributes),
        }
    }

    fn remove_added(&self, name: &Path) -> Result<(), Error> {
        let removed = self.inner.remove_added(name);
        match self.lie {
            Lie::RemovesWhatIsNot => Ok(()),
            _ => removed,
        }
    }

    fn set_root(&self, attributes: &Attributes) -> Result<(), Error> {
        match self.lie {
            Lie::LeavesTheRootOpen => Ok(()),
            _ => self.inner.set_root(attributes),
        }
    }

    fn volume(&self) -> Option<(u64, u64)> {
        match self.lie {
            Lie::KnowsNoVolume => None,
            _ => self.inner.volume(),
        }
    }
}

impl RootSwitch for Lying {
    fn seal(&mut self) -> Result<LateAttributes, Error> {
        match self.lie {
            Lie::SealsNothing => Ok(LateAttributes::default()),
            _ => self.inner.seal(),
        }
    }

    fn displace(&self) -> Result<(), Error> {
        match self.lie {
            Lie::DisplacesNothing => Ok(()),
            _ => self.inner.displace(),
        }
    }

    fn move_in(&mut self, closed: &LateAttributes) -> Result<(), Error> {
        let moved = self.inner.move_in(closed);
        match self.lie {
            Lie::StandsTooEarly => self.inner.stand(),
            Lie::LeavesAHalf if moved.is_err() => self.show(CONTROL),
            _ => {}
        }
        moved
    }

    fn give_up_displaced(&mut self) -> Result<(), Error> {
        self.inner.give_up_displaced()
    }

    fn stand(&mut self) {
        if !matches!(self.lie, Lie::NeverStands | Lie::StandsTooEarly) {
            self.inner.stand();
        }
    }

    fn delta(&self) -> Option<DeltaResult> {
        match self.lie {
            Lie::TellsNoDelta => None,
            _ => self.inner.delta(),
        }
    }
}

/// Goal: the suite sees every root that breaks the contract, and sees it in the promise that is broken.
#[test]
fn every_lie_of_a_root_breaks_the_promise_that_it_is_about() {
    for (name, promise) in PROMISES {
        let about = LIES.iter().filter(|(_, of)| of == name);
        let mut broken = 0;
        for (lie, _) in about {
            let breaks = |of: &Of| {
                let keeps = catch_unwind(AssertUnwindSafe(|| promise(*of, *lie)));
                keeps.is_err()
            };
            assert!(ALL.iter().any(breaks), "{lie:?} does not break {name}");
            broken += 1;
        }
        assert!(broken > 0, "no lie breaks {name}");
    }
    let names: Vec<&str> = PROMISES.iter().map(|(name, _)| *name).collect();
    let strays = LIES.iter().filter(|(_, of)| !names.contains(of));
    assert_eq!(strays.count(), 0, "a lie of no promise");
}
