//! Backup devices: where stripes are stored, as a user names them.
//!
//! Invariants
//! - A text names one kind of device, and an address of an object store is never taken for a path.
//! - All stripes of a set get their names before one of them is looked at again.
//!
//! Leaves to others: what a device promises (`device/door.rs`), the four kinds of devices (`device/`), and the order of
//! syncs over several stripes (`set_writer.rs`).

mod bucket;
mod door;
mod file;
mod folder;
mod nul;
mod pipe;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longshore_bucket::Address;
use longshore_io::Storage;

use crate::Error;
pub use bucket::BucketDevice;
pub use door::{
    BackupDevice, DeviceClass, FamilyRead, FamilyWrite, LastLook, LeftStripe, PendingStripe,
    Remains, Settle, SharedBytes, Stripe, Surroundings,
};
pub(crate) use door::{FIRST_BYTES, buffer, buffers};
pub(crate) use file::STAGING_BYTES;
pub use folder::{Folder, NAMES_MAX, SeenObject, finder_in, found, have_all, is_key_object};
pub(crate) use folder::{Named, seen};

/// A device as a user specifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceSpec {
    File(PathBuf),
    /// Discards everything: measures how fast a backup could be.
    Nul,
    /// Standard output for a backup, standard input for a restore.
    Pipe,
    /// An object in an object store.
    Bucket(Address),
}

impl DeviceSpec {
    /// Accepts `nul:` or `NUL`, `-`, `file:PATH`, `s3://BUCKET/KEY`, `az://CONTAINER/KEY`, `gs://BUCKET/KEY`, or a path.
    pub fn parse(text: &str) -> DeviceSpec {
        if text.eq_ignore_ascii_case("nul:") || text.eq_ignore_ascii_case("nul") {
            DeviceSpec::Nul
        } else if text == "-" {
            DeviceSpec::Pipe
        } else if let Some(address) = Address::of(text) {
            DeviceSpec::Bucket(address)
        } else {
            DeviceSpec::File(text.strip_prefix("file:").unwrap_or(text).into())
        }
    }

    /// Opens the device. If the other end of a pipe is silent, reading blocks for ever.
    pub fn open(&self, storage: &Arc<dyn Storage>) -> Arc<dyn BackupDevice> {
        self.open_until(storage, &Arc::default())
    }

    /// Opens the device. Waits for the other end of a pipe, or for an object store, fail once `cancel` is set.
    pub fn open_until(
        &self,
        storage: &Arc<dyn Storage>,
        cancel: &Arc<AtomicBool>,
    ) -> Arc<dyn BackupDevice> {
        match self {
            DeviceSpec::File(path) => {
                Arc::new(file::FileDevice::new(storage.clone(), path.clone()))
            }
            DeviceSpec::Nul => Arc::new(nul::NulDevice),
            DeviceSpec::Pipe => Arc::new(pipe::PipeDevice::new(cancel.clone())),
            DeviceSpec::Bucket(address) => Arc::new(bucket::BucketDevice::new(
                storage.clone(),
                address.clone(),
                cancel.clone(),
            )),
        }
    }

    /// The directory, or the prefix of a bucket, that this names as a place for key objects; `None` for anything else, and where the
    /// settings of the store are wrong.
    pub fn as_folder(
        &self,
        storage: &Arc<dyn Storage>,
        cancel: &Arc<AtomicBool>,
    ) -> Option<Folder> {
        match self {
            DeviceSpec::File(path) => Some(Folder::Directory {
                storage: storage.clone(),
                path: path.clone(),
            }),
            DeviceSpec::Bucket(address) => {
                let (bucket, prefix) = address.place(&**storage).ok()?;
                Some(Folder::Prefix {
                    bucket,
                    prefix,
                    cancel: cancel.clone(),
                })
            }
            DeviceSpec::Nul | DeviceSpec::Pipe => None,
        }
    }

    /// Removes the object of a stripe, whatever it holds; one that is not there is removed already.
    ///
    /// Errors: also [`Error::Unsupported`] for any other device.
    pub fn remove_object(
        &self,
        storage: &Arc<dyn Storage>,
        cancel: &AtomicBool,
    ) -> Result<(), Error> {
        let DeviceSpec::Bucket(address) = self else {
            return Err(Error::Unsupported {
                device: self.open(storage).name(),
                action: "have an object to be removed",
            });
        };
        let (bucket, key) = address.place(&**storage)?;
        Ok(bucket.remove(&key, cancel)?)
    }
}

/// A path where nothing but a path works: an address of an object store would otherwise become a directory named `s3:`.
/// `file:` before a text that begins like an address makes it a path.
///
/// Errors: what works instead.
pub fn only_path(text: &OsStr) -> Result<PathBuf, String> {
    let as_text = text.to_str().unwrap_or_default();
    if Address::of(as_text).is_some() {
        return Err(
            "this is an address of an object store, and only a path works here; stripes take one \
             (`longshore backup --to s3://BUCKET/KEY` or az://, gs://; `restore`, `verify`, `list`), and ./NAME is a path of this name"
                .to_owned(),
        );
    }
    match as_text.strip_prefix("file:") {
        Some(path) if Address::of(path).is_some() => Ok(path.into()),
        _ => Ok(text.into()),
    }
}

/// A stripe and its device's name.
pub(crate) type NamedStripe = (String, Box<dyn FamilyWrite>);

/// Gives all stripes of a set, which are durable and kept, their names; then looks whether each still stands. `tell` is
/// called before the first stripe is completed, and after each.
pub(crate) fn complete_all(
    mut stripes: Vec<NamedStripe>,
    tell: &mut dyn FnMut(),
) -> Result<(), Error> {
    stripes.sort_by(|a, b| a.0.cmp(&b.0));
    let mut looks = Vec::new();
    for (_, stripe) in stripes {
        tell();
        looks.extend(stripe.complete()?);
    }
    tell();
    // All of them are taken, so that each stripe's state is known.
    let taken: Vec<_> = looks.into_iter().map(|look| look()).collect();
    taken.into_iter().collect()
}
