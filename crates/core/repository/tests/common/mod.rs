//! Goal: the tests of shelves use backups that the shipped pipeline made, on any storage.
//! Method: a small tree is backed up with LZ4, or stored without compression; labels are dated to a given day.
//! Not covered: this file has no tests.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longshore_codec::Algorithm;
use longshore_io::{Host, HostClock, Storage};
use longshore_media::{DeviceSpec, Keyring, Recipients};
use longshore_pipeline::{
    BackupRequest, Error, NullObserver, Request, RestoreRequest, RunContext, SourceSpec, Tuning,
    run,
};
use longshore_repository::{BackupKind, Label, NewBackup, Places, Shelf, Target};

pub fn target(directories: &[&Path]) -> Target {
    Target {
        name: "t".into(),
        places: Places::Directories(directories.iter().map(|d| d.to_path_buf()).collect()),
    }
}

pub fn shelf(storage: &Arc<dyn Storage>, directories: &[&Path]) -> Shelf {
    let clock = Arc::new(HostClock);
    Shelf::new(storage.clone(), clock, &target(directories), "db").unwrap()
}

pub fn host() -> Arc<dyn Storage> {
    Arc::new(Host::new())
}

fn context(storage: &Arc<dyn Storage>) -> RunContext {
    RunContext {
        keyring: Default::default(),
        storage: storage.clone(),
        clock: Arc::new(HostClock),
        catalog: None,
        accelerators: Vec::new(),
        cancel: Arc::new(AtomicBool::new(false)),
    }
}

/// Backs a tree up to devices.
pub fn back_up(
    storage: &Arc<dyn Storage>,
    source: &Path,
    begun: &Arc<NewBackup>,
    database: &str,
) -> Result<(), Error> {
    back_up_for(storage, source, begun, (database, None))
}

/// The same, encrypted for these recipients.
pub fn back_up_for(
    storage: &Arc<dyn Storage>,
    source: &Path,
    begun: &Arc<NewBackup>,
    (database, encrypt_to): (&str, Option<Recipients>),
) -> Result<(), Error> {
    let spec = SourceSpec::Files(vec![source.into()]);
    let mut request = BackupRequest::new(spec, begun.devices.clone());
    request.encrypt_to = encrypt_to;
    request.algorithm = Algorithm::Lz4;
    request.database = Some(database.into());
    request.place = Some(begun.clone());
    request.tuning = Tuning {
        buffer_count: None,
        buffer_bytes: Some(64 << 10),
    };
    run(&context(storage), &Request::Backup(request), &NullObserver).map(drop)
}

/// [`back_up`] to a place on a shelf, which the pipeline knows.
pub fn back_up_at(
    storage: &Arc<dyn Storage>,
    source: &Path,
    begun: NewBackup,
) -> Result<(), Error> {
    let spec = SourceSpec::Files(vec![source.into()]);
    let mut request = BackupRequest::new(spec, begun.devices.clone());
    request.algorithm = Algorithm::None;
    request.database = Some("db".into());
    request.place = Some(Arc::new(begun));
    run(&context(storage), &Request::Backup(request), &NullObserver).map(drop)
}

/// A new backup on the shelf, dated to a day.
pub fn shelve(shelf: &Shelf, source: &Path, day: i64) -> Label {
    let begun = shelf.begin(BackupKind::Full, day * 86_400_000_000);
    let begun = Arc::new(begun.unwrap());
    back_up(&shelf.storage(), source, &begun, "db").unwrap();
    begun.label.clone()
}

pub fn restore(storage: &Arc<dyn Storage>, devices: &[DeviceSpec], to: &Path) -> Result<(), Error> {
    restore_with(storage, devices, to, &Arc::default())
}

/// The same of a backup that may be encrypted.
pub fn restore_with(
    storage: &Arc<dyn Storage>,
    devices: &[DeviceSpec],
    to: &Path,
    keyring: &Arc<Keyring>,
) -> Result<(), Error> {
    let context = RunContext {
        keyring: keyring.clone(),
        ..context(storage)
    };
    let request = RestoreRequest {
        replace: true,
        ..RestoreRequest::new(devices.to_vec(), to.into())
    };
    run(&context, &Request::Restore(request), &NullObserver).map(drop)
}

pub fn words(shelf: &Shelf) -> Vec<&'static str> {
    let listing = shelf.list().unwrap();
    listing.sets.iter().map(|s| s.state.word()).collect()
}

pub fn paths(below: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut todo = vec![below.to_path_buf()];
    while let Some(path) = todo.pop() {
        for entry in std::fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path.clone());
            }
            all.push(path.strip_prefix(below).unwrap().to_path_buf());
        }
    }
    all.sort();
    all
}
