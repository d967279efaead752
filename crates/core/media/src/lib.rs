//! The media format: the layout of a stripe, byte by byte, and the devices that hold stripes.
//!
//! `docs/format.md` is the specification; a test compares its tables with the constants here. Encoding and decoding
//! ([`record`], [`header`], [`manifest`], [`index`]) are pure: bytes in, values out, no I/O. [`BackupDevice`] is the
//! interface to storage; [`SetWriter`] writes a set, [`MediaSet`] reads sets.
//!
//! Invariants
//! - A backup set is valid if and only if every family ends it with a trailer that was written after all of the set's
//!   data was durable.
//! - Every byte of a stripe is protected: records and payloads carry CRC-32C, and container framing is compared with
//!   constants.
//! - Decoders accept any bytes without panic; lengths are checked before memory is allocated.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod ahead;
pub mod block;
mod copy;
pub mod device;
pub mod encrypted;
mod error;
mod family_writer;
pub mod header;
pub mod index;
pub mod manifest;
mod member;
pub mod parity;
#[cfg(test)]
#[path = "../tests/contract/reading.rs"]
mod reading;
pub mod record;
mod repair;
mod set_reader;
mod set_writer;
mod stream;
mod tree_root;
mod window;

pub use copy::{CopiedSet, Moved, Planned, ReadyCopy, copy_set, copy_set_planned};
pub use device::{
    BackupDevice, DeviceSpec, FamilyRead, FamilyWrite, Folder, LastLook, LeftStripe, PendingStripe,
    SeenObject, Settle, SharedBytes, Surroundings, finder_in, found, have_all, is_key_object,
    only_path,
};
pub use error::{BEGINNING, Error};
pub use family_writer::{BlockOut, FamilyWriter};
pub use header::{
    BackupType, BlockHeader, LogEnd, LogStart, MediaHeader, SetHeader, SetTrailer, SourceIdentity,
};
pub use longshore_bucket::{Access, Address, S3Server, Scheme, ServerUrl, Standing};
pub use longshore_crypt::{
    Error as KeyError, IndexSecret, KeyObject, Keyring, NewKey, OBJECT_MAX, ObjectName, OpenedSet,
    Recipients, Root, SetKeys, SignatureState, Signer, SigningKey, Thumbprint,
};
pub use manifest::{Entry, EntryKind, Extent, Item, Mark, Sums};
pub use parity::{HELD_BLOCKS, StripeFault};
pub use record::Container;
pub use repair::{Examined, check_parity};
pub use set_reader::{MediaSet, SetSummary, StripePlace};
pub use set_writer::{
    Disposition, EncryptTo, ParityPlan, Sealed, SetPlan, SetWriter, Totals, stripe_bytes,
};
pub use stream::{Block, BlockStream, SecondLook};
pub use tree_root::{TREE_ROOT_MAX, TreeRoot};
