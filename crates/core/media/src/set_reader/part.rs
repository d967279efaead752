//! Media of which not all stripes are there, opened to be described.
//!
//! Invariants
//! - No block is read of such media, and nothing is appended: a restore or a verification of a part says which families are
//!   missing.
//! - The stripes that are there agree, as those of whole media do.
//!
//! Leaves to others: the sets and names that stripes tell of (`set_reader.rs`).

use std::sync::Arc;

use super::one_set::{agreeing, missing};
use super::{MediaSet, all_in_place, families_missing};
use crate::Error;
use crate::device::{BackupDevice, DeviceClass};

impl MediaSet {
    /// Opens the stripes on the devices to describe their media set, whether or not the others are there: each stripe has the
    /// headers and the totals of all sets, and names the files whose blocks it has. [`MediaSet::absent`] says which families
    /// are not there. A set counts as complete if it is on the stripes that are.
    ///
    /// Errors: those of [`MediaSet::open`]; [`Error::FamilyMissing`] only for a pipe, and where stripes of several sets
    /// were taken for one.
    pub fn open_any(devices: &[Arc<dyn BackupDevice>]) -> Result<MediaSet, Error> {
        let refused = match MediaSet::open(devices) {
            Err(error @ Error::FamilyMissing { .. }) => error,
            opened => return opened,
        };
        // A pipe is read once.
        if devices.iter().any(|d| d.class() == DeviceClass::Pipe) {
            return Err(refused);
        }
        let found = all_in_place(devices).into_iter();
        let members = agreeing(found.collect::<Result<Vec<_>, _>>()?)?;
        let absent = missing(&members, &members[0].header);
        if absent.is_empty() {
            return Err(refused);
        }
        let (of_data, of_parity): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|m| !m.header.is_parity());
        let members = match of_data.is_empty() {
            true => of_parity,
            false => of_data,
        };
        Ok(MediaSet::plain(members, absent).next_to(devices))
    }

    /// The families of which no stripe was given; empty unless [`MediaSet::open_any`] opened the media.
    pub fn absent(&self) -> &[u16] {
        &self.absent
    }

    /// Errors: [`Error::FamilyMissing`].
    pub(super) fn check_whole(&self) -> Result<(), Error> {
        match self.absent.is_empty() {
            true => Ok(()),
            false => {
                let header = &self.members[0].header;
                Err(families_missing(header, &self.members, self.absent.clone()))
            }
        }
    }
}
