//! Goal: every promise of the `suite` can turn red.
//! Method: each double of a storage breaks one promise, and must turn exactly that one red.
//!
//! Invariants
//! - The double without a lie keeps every promise, so a lie is all that a promise can refuse.
//! - Every promise is broken by at least one lie.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, ThreadId};

use longshore_io::{
    Attributes, Dir, DirAttributes, DirChange, DirIdentity, DirRead, DirSync, File, FileAttributes,
    FileKind, FileLock, FileRead, FileWrite, OpenHow, Stat, Storage, Via, ZeroedSpace,
};

use crate::suite::alone::{self, Lone};
use crate::suite::{PROMISES, Place, put};

/// Declares every lie, with the promise that it breaks.
macro_rules! lies {
    ($($lie:ident breaks $promise:ident;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq)]
        enum Lie {
            None,
            $($lie,)*
        }

        const LIES: &[(Lie, &str)] = &[$((Lie::$lie, stringify!($promise))),*];
    };
}

lies! {
    LeavesTheDirectory breaks names_that_leave_the_directory_are_refused_by_every_call;
    FollowsLinksOnTheWay breaks a_symbolic_link_in_the_middle_leads_nowhere;
    OpensLinks breaks a_symbolic_link_at_the_end_is_not_opened;
    MissesDirectories breaks a_directory_is_not_opened_as_a_file_nor_a_file_as_a_directory;
    HidesOddNames breaks odd_names_are_names_like_any_other;
    TakesDotsLiterally breaks superfluous_dots_and_slashes_change_nothing;
    ShortensNames breaks a_name_of_255_bytes_is_possible_and_one_more_is_refused;
    RenamesItself breaks the_empty_name_is_the_directory_itself;
    FlipsABit breaks what_was_written_is_read_by_every_way_at_every_alignment;
    ReadsBeyondTheEnd breaks reading_is_short_at_the_end_and_empty_beyond_it;
    ExtendsWithOnes breaks a_file_is_cut_and_extended_with_zeros;
    FillsGaps breaks writing_beyond_the_end_leaves_zeros_between;
    CutsWhatIsOnlyRead breaks a_file_opened_for_reading_is_not_writable;
    CreatesOverAnother breaks creating_refuses_an_existing_name_and_opening_a_missing_one;
    SeesHolesOnly breaks whatever_is_not_zero_is_told_as_data;
    SeesNoHole breaks data_is_found_around_holes;
    ReservesByLength breaks allocating_leaves_the_length_alone;
    FreesTheEnd breaks giving_unwritten_space_back_leaves_what_was_written;
    PunchesMore breaks a_zeroed_range_reads_as_zeros_and_nothing_beside_it;
    PunchesNothing breaks a_zeroed_range_reads_as_zeros_and_nothing_beside_it;
    ZeroesMore breaks a_zeroed_range_reads_as_zeros_and_nothing_beside_it;
    DropsTheFile breaks dropping_the_cache_changes_no_byte;
    LosesOtherThreads breaks many_threads_write_one_file_at_once;
    LocksForNobody breaks a_lock_is_given_to_its_holder_again;
    LocksForEverybody breaks a_lock_is_refused_to_others_until_its_holder_is_gone;
    TakesEveryOffset breaks offsets_no_file_can_have_are_errors;
    MakesDirectoriesAgain breaks directories_are_made_opened_listed_and_removed;
    RenamesToFreeNamesOnly breaks a_rename_replaces_a_file_and_moves_between_directories;
    HidesRefusedRenames breaks renames_that_make_no_sense_are_refused;
    LinksACopy breaks a_hard_link_is_one_more_name_of_the_same_file;
    CountsOneName breaks a_file_with_other_names_is_opened_as_one_of_its_own;
    TidiesTargets breaks a_symbolic_link_keeps_its_target_as_it_is;
    SetsTheTarget breaks attributes_are_set_and_links_are_not_followed;
    SetsNoMode breaks an_open_file_is_changed_and_given_whatever_has_its_name;
    GivesFilesWithOtherNames breaks an_open_file_is_changed_and_given_whatever_has_its_name;
    GivesFullDirectories breaks a_directory_is_given_while_it_is_empty;
    MakesNoParents breaks missing_parents_are_made_and_existing_ones_left_alone;
    ResolvesNothing breaks a_directory_named_by_a_person_may_be_reached_through_links;
    TakesADirectoryForADisk breaks a_disk_named_by_a_person_is_written_and_a_directory_is_none;
    EmptiesWhatItRemoves breaks a_removed_file_stays_readable_for_those_who_have_it_open;
    StopsTheTime breaks every_change_moves_the_time_of_change;
    IsBornWhenAsked breaks a_new_file_is_born_later_and_a_renamed_one_keeps_its_birth;
    MountsEveryName breaks every_name_is_on_the_mount_of_its_directory;
    ListsAThousand breaks thousands_of_names_are_listed_once_each;
    SyncsWhatIsMissing breaks syncing_and_free_space_are_answered;
    HasNoSpace breaks syncing_and_free_space_are_answered;
}

/// A storage that does as another one, but for one thing.
#[derive(Debug)]
struct LyingStorage {
    lie: Lie,
    inner: Arc<dyn Storage>,
}

impl LyingStorage {
    fn lying(&self, dir: Arc<dyn Dir>) -> Arc<dyn Dir> {
        let lie = self.lie;
        Arc::new(LyingDir { lie, inner: dir })
    }
}

impl Storage for LyingStorage {
    fn dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        Ok(self.lying(self.inner.dir(path)?))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        match self.lie {
            Lie::MakesNoParents => self.dir(path),
            _ => Ok(self.lying(self.inner.create_dir_all(path)?)),
        }
    }

    fn disk(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        match self.lie {
            Lie::TakesADirectoryForADisk => self
                .inner
                .disk(path)
                .or_else(|_| self.inner.dir(path)?.open(Path::new("disk"), OpenHow::Read)),
            _ => self.inner.disk(path),
        }
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.inner.stat(path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        match self.lie {
            Lie::ResolvesNothing => Ok(path.to_owned()),
            _ => self.inner.canonical(path),
        }
    }
}

#[derive(Debug)]
struct LyingDir {
    lie: Lie,
    inner: Arc<dyn Dir>,
}

impl LyingDir {
    fn lying(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(LyingFile {
            lie: self.lie,
            inner: file,
            thread: thread::current().id(),
        })
    }

    /// The name that is used for the one that was asked for.
    fn name(&self, asked: &Path) -> PathBuf {
        let is_inside = |part: &Component| *part != Component::ParentDir;
        match self.lie {
            Lie::LeavesTheDirectory => asked.components().filter(is_inside).collect(),
            Lie::ShortensNames => {
                let text = asked.as_os_str().to_str().unwrap_or_default();
                text[..text.len().min(255)].into()
            }
            Lie::FollowsLinksOnTheWay => {
                let mut parts = asked.components();
                let first = parts.next().map(|part| Path::new(part.as_os_str()));
                let target = first.and_then(|first| self.inner.read_link(first).ok());
                match target.filter(|_| parts.clone().next().is_some()) {
                    Some(target) => target.join(parts.as_path()),
                    None => asked.to_owned(),
                }
            }
            _ => asked.to_owned(),
        }
    }
}

impl DirIdentity for LyingDir {
    fn birth_ns(&self, name: &Path) -> io::Result<Option<i64>> {
        match self.lie {
            Lie::IsBornWhenAsked => Ok(Some(name.as_os_str().len() as i64)),
            _ => self.inner.birth_ns(name),
        }
    }

    fn mount_id(&self, name: &Path) -> io::Result<u64> {
        let told = self.inner.mount_id(name)?;
        match self.lie {
            Lie::MountsEveryName => Ok(told + name.as_os_str().len() as u64),
            _ => Ok(told),
        }
    }
}

impl DirRead for LyingDir {
    fn open(&self, name: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let name = &*self.name(name);
        let odd = name.as_os_str().to_str().is_some_and(|n| n.contains("//"));
        if self.lie == Lie::TakesDotsLiterally && odd {
            return Err(ErrorKind::NotFound.into());
        }
        let opened = self.inner.open(name, how);
        let opened = match (self.lie, opened) {
            (Lie::OpensLinks, Err(_)) if how != OpenHow::CreateNew => {
                let target = self.inner.read_link(name)?;
                self.inner.open(&target, how)
            }
            (Lie::MissesDirectories, Err(e)) if e.kind() == ErrorKind::IsADirectory => {
                Err(ErrorKind::NotFound.into())
            }
            (Lie::CreatesOverAnother, Err(e)) if e.kind() == ErrorKind::AlreadyExists => {
                self.inner.open(name, OpenHow::ReadWrite)
            }
            (_, opened) => opened,
        };
        Ok(self.lying(opened?))
    }

    fn dir(&self, name: &Path) -> io::Result<Arc<dyn Dir>> {
        Ok(Arc::new(LyingDir {
            lie: self.lie,
            inner: self.inner.dir(&self.name(name))?,
        }))
    }

    fn stat(&self, name: &Path) -> io::Result<Stat> {
        self.inner.stat(&self.name(name))
    }

    fn list(&self) -> io::Result<Box<dyn Iterator<Item = io::Result<OsString>> + Send>> {
        let lie = self.lie;
        let is_shown = move |name: &io::Result<OsString>| match name {
            Ok(name) => lie != Lie::HidesOddNames || name.to_str().is_some(),
            Err(_) => true,
        };
        let most = match lie {
            Lie::ListsAThousand => 1000,
            _ => usize::MAX,
        };
        Ok(Box::new(self.inner.list()?.filter(is_shown).take(most)))
    }

    fn read_link(&self, name: &Path) -> io::Result<PathBuf> {
        self.inner.read_link(&self.name(name))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        match self.lie {
            Lie::HasNoSpace => Ok(0),
            _ => self.inner.free_bytes(),
        }
    }

    fn keeps_locks(&self, name: &Path) -> io::Result<bool> {
        self.inner.keeps_locks(name)
    }
}

impl DirChange for LyingDir {
    fn create_dir(&self, name: &Path) -> io::Result<()> {
        match self.inner.create_dir(&self.name(name)) {
            Err(e)
                if self.lie == Lie::MakesDirectoriesAgain
                    && e.kind() == ErrorKind::AlreadyExists =>
            {
                Ok(())
            }
            made => made,
        }
    }

    fn symlink(&self, target: &Path, name: &Path) -> io::Result<()> {
        let tidy: PathBuf = target.components().collect();
        match self.lie {
            Lie::TidiesTargets => self.inner.symlink(&tidy, name),
            _ => self.inner.symlink(target, &self.name(name)),
        }
    }

    fn hard_link(&self, existing: &Path, name: &Path) -> io::Result<()> {
        let (existing, name) = (self.name(existing), self.name(name));
        if self.lie != Lie::LinksACopy {
            return self.inner.hard_link(&existing, &name);
        }
        let from = self.inner.open(&existing, OpenHow::Read)?;
        let to = self.inner.open(&name, OpenHow::CreateNew)?;
        from.copy_to(&*to, from.stat()?.len)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match self.lie {
            Lie::RenamesItself if from.as_os_str().is_empty() => Ok(()),
            Lie::RenamesToFreeNamesOnly if self.inner.stat(to).is_ok() => {
                Err(ErrorKind::AlreadyExists.into())
            }
            Lie::HidesRefusedRenames => {
                let _refused = self.inner.rename(from, to);
                Ok(())
            }
            _ => self.inner.rename(&self.name(from), &self.name(to)),
        }
    }

    fn remove_file(&self, name: &Path) -> io::Result<()> {
        if self.lie == Lie::EmptiesWhatItRemoves {
            self.inner.open(name, OpenHow::ReadWrite)?.set_len(0)?;
        }
        self.inner.remove_file(&self.name(name))
    }

    fn remove_dir(&self, name: &Path) -> io::Result<()> {
        self.inner.remove_dir(&self.name(name))
    }
}

impl DirAttributes for LyingDir {
    fn set_attributes(&self, name: &Path, attributes: &Attributes) -> io::Result<()> {
        let name = self.name(name);
        let target = match self.lie {
            Lie::SetsTheTarget => self.inner.read_link(&name).ok(),
            _ => None,
        };
        self.inner
            .set_attributes(&target.unwrap_or(name), attributes)
    }

    fn give(&self, owner: (u32, u32)) -> io::Result<bool> {
        match self.lie {
            Lie::GivesFullDirectories => Ok(true),
            _ => self.inner.give(owner),
        }
    }
}

impl DirSync for LyingDir {
    fn sync(&self, name: &Path) -> io::Result<()> {
        match self.lie {
            Lie::SyncsWhatIsMissing => Ok(()),
            _ => self.inner.sync(&self.name(name)),
        }
    }

    fn sync_all(&self) -> io::Result<()> {
        self.inner.sync_all()
    }
}

#[derive(Debug)]
struct LyingFile {
    lie: Lie,
    inner: Arc<dyn File>,
    /// Which opened it.
    thread: ThreadId,
}

impl FileRead for LyingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, via: Via) -> io::Result<usize> {
        let n = self.inner.read_at(buf, offset, via);
        match self.lie {
            Lie::TakesEveryOffset => Ok(n.unwrap_or(0)),
            Lie::ReadsBeyondTheEnd => n.map(|_| buf.len()),
            Lie::FlipsABit if via == Via::Direct => n.inspect(|n| {
                if let Some(last) = buf[..*n].last_mut() {
                    *last ^= 1;
                }
            }),
            _ => n,
        }
    }

    fn stat(&self) -> io::Result<Stat> {
        let stat = self.inner.stat()?;
        Ok(match self.lie {
            Lie::StopsTheTime => Stat {
                ctime_ns: 0,
                ..stat
            },
            Lie::CountsOneName if stat.kind == FileKind::File => Stat { links: 1, ..stat },
            _ => stat,
        })
    }

    fn is_cached(&self, range: Range<u64>) -> bool {
        self.inner.is_cached(range)
    }

    fn drop_cached(&self) {
        self.inner.drop_cached();
        if self.lie == Lie::DropsTheFile {
            let _cut = self.inner.set_len(0);
        }
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        match self.lie {
            Lie::SeesHolesOnly => Ok(None),
            Lie::SeesNoHole => {
                let len = self.inner.stat()?.len;
                Ok((offset < len).then_some(offset..len))
            }
            _ => self.inner.next_data(offset),
        }
    }
}

impl FileWrite for LyingFile {
    fn write_at(&self, buf: &[u8], offset: u64, via: Via) -> io::Result<usize> {
        if self.lie == Lie::LosesOtherThreads && thread::current().id() != self.thread {
            return Ok(buf.len());
        }
        if self.lie == Lie::FillsGaps && offset > self.inner.stat()?.len {
            self.inner.write_all_at(b"!", offset - 1, via)?;
        }
        self.inner.write_at(buf, offset, via)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let before = self.inner.stat()?.len;
        let done = self.inner.set_len(len);
        if self.lie == Lie::ExtendsWithOnes && len > before && done.is_ok() {
            self.inner.write_all_at(&[1], len - 1, Via::Cache)?;
        }
        match self.lie {
            Lie::CutsWhatIsOnlyRead => Ok(()),
            _ => done,
        }
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        match self.lie {
            Lie::ReservesByLength => self.inner.set_len(range.end),
            _ => self.inner.allocate(range),
        }
    }

    fn free_unwritten(&self) -> io::Result<()> {
        match self.lie {
            Lie::FreesTheEnd => self.inner.set_len(self.inner.stat()?.len - 1),
            _ => self.inner.free_unwritten(),
        }
    }

    fn zero(&self, range: Range<u64>, space: ZeroedSpace) -> io::Result<bool> {
        let wider = range.start.saturating_sub(1)..range.end;
        match (self.lie, space) {
            (Lie::PunchesNothing, _) => Ok(true),
            (Lie::PunchesMore, ZeroedSpace::Freed) | (Lie::ZeroesMore, ZeroedSpace::Kept) => {
                self.inner.zero(wider, space)
            }
            _ => self.inner.zero(range, space),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
}

impl FileAttributes for LyingFile {
    fn set_mode(&self, mode: u32) -> io::Result<()> {
        match self.lie {
            Lie::SetsNoMode => Ok(()),
            _ => self.inner.set_mode(mode),
        }
    }

    fn give(&self, owner: (u32, u32)) -> io::Result<bool> {
        match self.lie {
            Lie::GivesFilesWithOtherNames => Ok(true),
            _ => self.inner.give(owner),
        }
    }
}

impl FileLock for LyingFile {
    fn try_lock(&self) -> io::Result<bool> {
        match self.lie {
            Lie::LocksForNobody => Ok(false),
            Lie::LocksForEverybody => Ok(true),
            _ => self.inner.try_lock(),
        }
    }
}

fn place(lie: Lie) -> Place {
    let honest = Place::simulated();
    let inner = honest.storage;
    let storage = LyingStorage { lie, inner };
    Place {
        dir: storage.dir(&honest.path).unwrap(),
        storage: Arc::new(storage),
        ..honest
    }
}

/// Goal: the suite sees every storage that breaks the contract, and sees it in the promise that is broken.
#[test]
fn every_lie_of_a_storage_breaks_the_promise_that_it_is_about() {
    let is_kept =
        |lie, promise: fn(&Place)| catch_unwind(AssertUnwindSafe(|| promise(&place(lie)))).is_ok();
    let mut broken = BTreeSet::new();
    for (name, promise) in PROMISES {
        assert!(is_kept(Lie::None, *promise), "{name}");
        for (lie, _) in LIES.iter().filter(|(_, of)| of == name) {
            assert!(!is_kept(*lie, *promise), "{lie:?} does not break {name}");
            broken.insert((name, format!("{lie:?}")));
        }
        assert!(broken.iter().any(|(of, _)| of == &name), "{name}");
    }
    assert_eq!(broken.len(), LIES.len(), "a lie of no promise");
}

/// Goal: the suite of a lone file sees every lie of a file, and syncs that answer otherwise than was said.
#[test]
fn every_lie_of_a_file_breaks_its_contract_without_its_name() {
    let is_kept = |lie, synced: Result<(), ErrorKind>| {
        let place = Place::simulated();
        let make = |name: &str| Lone {
            file: Arc::new(LyingFile {
                lie,
                inner: put(&*place.dir, name, b""),
                thread: thread::current().id(),
            }),
            synced,
        };
        catch_unwind(AssertUnwindSafe(|| alone::keeps_its_contract(&make))).is_ok()
    };
    assert!(is_kept(Lie::None, Ok(())));
    assert!(!is_kept(Lie::None, Err(ErrorKind::Unsupported)));
    for (name, _) in alone::PROMISES {
        let mut lies = LIES.iter().filter(|(_, of)| of == name).peekable();
        assert!(lies.peek().is_some(), "{name}");
        assert!(lies.all(|(lie, _)| !is_kept(*lie, Ok(()))), "{name}");
    }
}
