//! Devices that fail while a set with parity is written, as far as that is tolerated: a *loss*.
//!
//! Invariants
//! - A lost stripe goes on in the rows alone: all bytes that it would have had are in the parity. So the set is as if the
//!   stripe had been lost after the backup, and a repair writes it byte for byte.
//! - No more stripes are lost than the caller allows, which is no more than there are parity stripes.
//! - Only a device that fails is a loss. A device that another writer has, a stripe that somebody replaced, and a run that
//!   was cancelled end the set.
//! - Nothing is written to a lost stripe, and it gets no name.
//!
//! Leaves to others: the rows (`rows.rs`), and the order of syncs and names (`set_writer.rs`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Error;
use crate::device::{FamilyWrite, LastLook, Settle};
use crate::header::MediaHeader;

use super::group::StripeFault;

/// The stripes of a set that were lost while it was written.
pub(crate) struct Losses {
    allowed: usize,
    /// Data stripes of the set.
    data: usize,
    lost: Mutex<Vec<StripeFault>>,
}

impl Losses {
    /// Errors are borne for up to `allowed` stripes of a set with `data` data stripes.
    pub fn new(allowed: u16, data: usize) -> Losses {
        Losses {
            allowed: allowed.into(),
            data,
            lost: Mutex::default(),
        }
    }

    fn lost(&self) -> MutexGuard<'_, Vec<StripeFault>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a stripe is lost.
    ///
    /// Errors: `error` itself, if it is none of the device, or too many stripes are lost already.
    fn bear(&self, stripe: &Named, error: Error) -> Result<(), Error> {
        let mut lost = self.lost();
        if lost.iter().any(|fault| fault.family == stripe.family) {
            return Ok(());
        }
        if !is_of_device(&error) || lost.len() >= self.allowed {
            return Err(error);
        }
        let what = cause(&error);
        tracing::warn!(
            device = stripe.device,
            family = stripe.family,
            error = what,
            "the backup goes on without this stripe, for which parity stands"
        );
        lost.push(StripeFault {
            family: stripe.family,
            is_parity: stripe.is_parity,
            device: stripe.device.clone(),
            is_lost: true,
            what: format!("its device failed during the backup: {what}"),
        });
        Ok(())
    }

    /// The stripes that were lost, by their family.
    pub fn faults(&self) -> Vec<StripeFault> {
        let mut lost = self.lost().clone();
        lost.sort_by_key(|fault| fault.family);
        lost
    }

    /// Whether a data stripe is left that has its device.
    fn has_data(&self) -> bool {
        let lost = self.lost();
        lost.iter().filter(|fault| !fault.is_parity).count() < self.data
    }
}

/// Whether the device is at fault, and nobody else.
fn is_of_device(error: &Error) -> bool {
    use longshore_bucket::Error as Bucket;
    match error {
        Error::Io { .. } => true,
        Error::Bucket(error) => matches!(
            **error,
            Bucket::Refused { .. }
                | Bucket::Silent { .. }
                | Bucket::NoBucket { .. }
                | Bucket::Missing { .. }
                | Bucket::NotKept { .. }
        ),
        _ => false,
    }
}

/// An error with its cause, which its own text leaves out.
fn cause(error: &Error) -> String {
    use std::error::Error as _;
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// A stripe, as reports name it.
#[derive(Debug, Clone)]
struct Named {
    family: u16,
    is_parity: bool,
    device: String,
}

/// A stripe whose device may fail.
pub(crate) struct Bearing {
    write: Box<dyn FamilyWrite>,
    losses: Arc<Losses>,
    stripe: Named,
    /// The stripe offset of the next byte, also where the device no longer knows it.
    at: u64,
    is_lost: bool,
}

impl Bearing {
    pub fn new(
        write: Box<dyn FamilyWrite>,
        device: &str,
        media: &MediaHeader,
        losses: &Arc<Losses>,
    ) -> Bearing {
        Bearing {
            at: write.offset(),
            write,
            losses: losses.clone(),
            stripe: Named {
                family: media.family,
                is_parity: media.is_parity(),
                device: device.to_owned(),
            },
            is_lost: false,
        }
    }

    /// Does something with the device, as long as it has not failed.
    fn try_to(
        &mut self,
        act: impl FnOnce(&mut dyn FamilyWrite) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.is_lost {
            return Ok(());
        }
        if let Err(error) = act(&mut *self.write) {
            self.losses.bear(&self.stripe, error)?;
            self.is_lost = true;
        }
        Ok(())
    }
}

impl FamilyWrite for Bearing {
    fn offset(&self) -> u64 {
        self.at
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.try_to(|write| write.write(bytes))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn room(&self) -> u64 {
        match (self.is_lost, self.stripe.is_parity) {
            (false, _) => self.write.room(),
            (true, true) => u64::MAX,
            // Blocks go to stripes that keep them. Without any, parity alone keeps them.
            (true, false) if self.losses.has_data() => 0,
            (true, false) => u64::MAX,
        }
    }

    fn settle(&mut self, how: Settle) -> Result<(), Error> {
        self.try_to(|write| write.settle(how))
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.try_to(|write| write.sync())
    }

    fn keep(&mut self) {
        if !self.is_lost {
            self.write.keep();
        }
    }

    fn complete(self: Box<Self>) -> Result<Option<LastLook>, Error> {
        if self.is_lost {
            return Ok(None);
        }
        let (losses, stripe) = (self.losses, self.stripe);
        let look = match self.write.complete() {
            Ok(look) => look,
            Err(error) => {
                losses.bear(&stripe, error)?;
                None
            }
        };
        Ok(look.map(|look| -> LastLook {
            Box::new(move || look().or_else(|error| losses.bear(&stripe, error)))
        }))
    }
}
