//! The promises of a place: where the backups of one database are, behind doors.
//!
//! A place knows names, leases and removals.
//!
//! Invariants, the promises of every place
//! - A new backup has a live lease before its first byte is written.
//! - A reader's lease and a removal of the same backup notice each other, whichever is first.
//! - A backup whose removal has begun is [`LabelFiles::removing`] until nothing of it is left, or until the removal was
//!   taken back as a whole.
//!
//! Leaves to others: what a backup is, which one is whole, and which ones go; that is decided above these doors and is
//! the same for every place (`shelf.rs`, `retention.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::PathBuf;

use longshore_media::{DeviceSpec, ObjectName};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::Error;
use crate::label::{BackupKind, Label};
use crate::lease::Holder;

/// Everything that lies at a place.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub labels: BTreeMap<Label, LabelFiles>,
    /// Unknown names. Nothing changes them.
    pub strays: Vec<String>,
    /// The place's own time at which leases were judged, in nanoseconds since the Unix epoch.
    pub now_ns: i64,
}

/// The files under one label.
#[derive(Debug, Default)]
pub(crate) struct LabelFiles {
    pub stripes: Vec<DeviceSpec>,
    /// Whether a stripe has its final name in a way that only a whole set gives it.
    pub any_finished: bool,
    pub removing: bool,
    /// Live leases.
    pub holders: Vec<Holder>,
    /// A writer that ended while this was listed, or not long ago: the listing may be older than its last stripes.
    pub ending: Option<Holder>,
    /// Whether all writers among the holders were processes of this machine that have ended.
    pub writers_ended: bool,
    /// Whether there is a lease of any kind, alive or dead. A run that is killed leaves its own.
    pub has_lease: bool,
    pub bytes: u64,
    pub unreadable: Option<String>,
    /// The key objects, each name once; anybody may have put them there.
    pub objects: BTreeSet<ObjectName>,
    /// One line for each stripe that has its final name: its length, and its last change by the place's own clock. No
    /// copy of the stripe has the same line.
    pub changes: Vec<String>,
    /// The same as facts, without the place: also of a stripe that is seen under another name of the place.
    pub stamps: Vec<Stamp>,
}

/// The family of a stripe, its length in bytes, and its last change by the place's own clock, in nanoseconds since the
/// Unix epoch. No stripe that was written at another moment has the same.
pub type Stamp = (u32, u64, i64);

impl LabelFiles {
    /// A digest of what no copy of the stripes has.
    pub fn imprint(&self) -> String {
        let mut changes: Vec<&String> = self.changes.iter().collect();
        changes.sort();
        let mut sum = Sha256::new();
        for change in changes {
            sum.update(change);
            sum.update("\n");
        }
        let hex = |byte: &u8| format!("{byte:02x}");
        sum.finalize().iter().take(16).map(hex).collect()
    }
}

/// A place for a new backup.
#[derive(Debug)]
pub(crate) struct Begun {
    pub label: Label,
    /// One for each family, in order.
    pub devices: Vec<DeviceSpec>,
    pub hold: Box<dyn Hold>,
}

/// Something that is held at a place; the drop releases it. Its holder asks before it believes that what it did while
/// it held was protected.
pub(crate) trait Hold: Debug + Send + Sync {
    /// Whether it was held from its beginning until now.
    ///
    /// Errors: it was lost meanwhile, so others may have acted as if it did not exist.
    fn confirm(&self) -> Result<(), Error>;
}

/// Whether a reader is protected.
#[derive(Debug)]
pub(crate) enum Protection {
    Held(Box<dyn Hold>),
    /// Nothing can remove it: the bucket is read as it was.
    Needless,
    /// It may read, and not write there; the text says why.
    Impossible(String),
}

/// The end of a removal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Done,
    /// The program that uses it. The removal was taken back, unless an earlier one had begun it.
    InUse(String),
    /// The store does not let these credentials remove it, or nobody; the text says what it answered.
    Retained(String),
    /// Some of it is gone, and the rest cannot be removed now: it is no backup any longer. The text says why.
    Partly(String),
}

/// The mark by which a WAL archive knows this place.
pub(crate) struct ShelfMark {
    pub id: Uuid,
    /// The time of its last change, which no copy of a file has.
    pub changed_ns: i64,
    /// Where it lies, if its copies can have its time: then no other place has it.
    pub only_at: Option<PathBuf>,
}

/// Where the backups of one database lie. Any number of programs may use one place. The tests in `place/tests.rs` check
/// the text of the traits here for every place.
pub(crate) trait Place:
    Claims + Marks + StatusRecords + Stops + Debug + Send + Sync
{
    /// Errors: a part of the place cannot be read; trouble with one backup is in its [`LabelFiles`].
    fn look(&self) -> Result<Found, Error>;

    /// The program that writes to these stripes and holds no lease.
    fn writer(&self, stripes: &[DeviceSpec], now_ns: i64) -> Option<String>;

    /// Where this family of a backup would be written now.
    fn stripe(&self, label: &Label, family: u16) -> String;

    /// Protects a backup from removal. The caller then looks whether it is still there.
    ///
    /// Errors: [`Error::NoSuchLabel`].
    fn protect(&self, label: &Label) -> Result<Protection, Error>;

    /// Excludes other expires; `None` if nothing is there.
    ///
    /// Errors: [`Error::Busy`].
    fn lock(&self) -> Result<Option<Box<dyn Remover + '_>>, Error>;

    /// How many uploads killed backups have left here, as [`Remover::abort_left_uploads`] would find them; `None`: the
    /// place has no such thing, or does not tell.
    fn left_uploads(&self) -> Result<Option<u64>, Error> {
        Ok(None)
    }

    /// How many backups are looked into at once, where each look waits for answers.
    fn side_by_side(&self) -> usize {
        1
    }
}

/// New labels at a place.
pub(crate) trait Claims {
    /// Makes a place for a new backup.
    fn begin(&self, kind: BackupKind, begun_us: i64) -> Result<Begun, Error>;

    /// The database's directories that do not exist, each with the number of the family that a backup writes there. None in a
    /// bucket, which has no directories.
    fn bare_homes(&self) -> Result<Vec<(u16, PathBuf)>, Error> {
        Ok(Vec::new())
    }

    /// Makes a place for a copy of a backup, under the same label. Family N goes to the place after that of family N - 1, and
    /// the first place follows the last.
    ///
    /// Errors: [`Error::LabelTaken`] if anything is under the label.
    fn begin_copy(&self, label: &Label, families: u16) -> Result<Begun, Error>;

    /// The device of this family of a backup, where it would be written now.
    fn device(&self, label: &Label, family: u16) -> Result<DeviceSpec, Error>;

    /// Makes room for a lost stripe of a backup that is there and that the caller protects: afterwards
    /// [`Claims::device`] can be written.
    ///
    /// Errors: a directory of the target does not exist, or cannot be written to.
    fn make_room(&self, label: &Label, family: u16) -> Result<(), Error>;
}

/// The marks at a place, which are no backups and are never removed.
pub(crate) trait Marks {
    /// All marks of this database, each once.
    ///
    /// Errors: a part of the place cannot be read.
    fn marks(&self) -> Result<Vec<ShelfMark>, Error>;

    /// Makes a mark with an identifier that no other has, as [`Marks::marks`] shows it from then on. The caller has begun
    /// a backup here before.
    ///
    /// Errors: there is nothing of the database yet, or nothing can be written.
    fn new_mark(&self) -> Result<ShelfMark, Error>;

    /// Where the database lies, for people: the same for everybody who names this place, and another for other places.
    fn home(&self) -> Result<PathBuf, Error>;
}

/// A word that an operator leaves at a place, for every host: nothing is to be written or removed there. A run
/// that has begun goes on.
pub(crate) trait Stops {
    /// The word that was left; `None`: there is none.
    ///
    /// Errors: a part of the place cannot be read.
    fn stopped(&self) -> Result<Option<String>, Error>;

    /// Leaves a word, which replaces an earlier one. Its owner is that of the place.
    ///
    /// Errors: the place is another user's, or nothing can be written.
    fn stop(&self, word: &str) -> Result<(), Error>;

    /// Takes the word away; false if there was none.
    ///
    /// Errors: it is still there, or a part of the place cannot be read.
    fn resume(&self) -> Result<bool, Error>;
}

/// The end of uploads that killed backups left in a store, which charges for their parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftUploads {
    pub aborted: u64,
    /// Why some could not be found or aborted.
    pub kept_because: Option<String>,
}

/// A record of what was found out about a database's backups.
#[derive(Debug, Clone)]
pub(crate) struct FoundRecord {
    pub name: String,
    /// Where it lies, for people.
    pub at: String,
    /// The time of its last change by the place's own clock, in nanoseconds since the Unix epoch.
    pub changed_ns: i64,
    /// `None`: it is no regular file, or longer than was asked for. Its bytes are anybody's who may write there.
    pub bytes: Option<Vec<u8>>,
}

/// Small files about a database at its place, by name. They prove nothing and protect nothing, so there are no locks: the
/// last writer counts.
pub(crate) trait StatusRecords {
    /// All records of these names, the first place's first. At most a byte more than `len_max` of each is read.
    ///
    /// Errors: a part of the place cannot be read, or a record not by this user.
    fn records(&self, names: &[&str], len_max: usize) -> Result<Vec<FoundRecord>, Error>;

    /// Replaces the record of this name as a whole: a reader, and a power cut, finds the one before or this one. A
    /// link of its name is not followed. Its owner is that of the place.
    ///
    /// Errors: there is nothing of the database yet, it is another user's, or nothing can be written; then the record is as it was.
    fn put_record(&self, name: &str, bytes: &[u8]) -> Result<(), Error>;
}

/// A place from which no other program removes backups now.
pub(crate) trait Remover {
    /// [`Place::look`], with leases judged by the place's own clock.
    fn look(&self) -> Result<Found, Error>;

    /// Removes a backup unless a program uses it; one that is not there is removed already.
    fn remove(&self, label: &Label) -> Result<Removal, Error>;

    /// Makes the remains of a copy under this label a place for the same copy, and claims it; `None`: nothing of it can be kept
    /// here, or somebody uses it.
    fn adopt(&self, _label: &Label, _families: u16) -> Result<Option<Begun>, Error> {
        Ok(None)
    }

    /// [`Remover::remove`] of a label that only ended processes of this machine write ([`LabelFiles::writers_ended`]), though
    /// their leases are alive for others. The store may still do what they sent before.
    fn take_over(&self, label: &Label) -> Result<Removal, Error> {
        self.remove(label)
    }

    /// Aborts the uploads of backups that have ended. A store that refuses or is silent is in the answer, since no backup
    /// depends on it, and what was removed and aborted before has to be told.
    ///
    /// Errors: the lock was lost.
    fn abort_left_uploads(&self) -> Result<LeftUploads, Error>;
}
