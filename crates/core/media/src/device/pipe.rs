//! Standard output and input as a device: one sequential stripe.
//!
//! Invariants
//! - A pipe is read and written once, from front to back: any other offset, appending and completing later are refused.
//! - Every wait for the other end is cancelled when the run is.
//! - Completing and syncing promise nothing: the program at the other end makes the bytes durable.
//!
//! Leaves to others: waiting on descriptors (`longshore_io::standard`), the format of a stripe, and files (`file.rs`).

use std::io::ErrorKind;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_io::{Via, standard};

use super::door::{
    BackupDevice, DeviceClass, FamilyRead, FamilyWrite, LastLook, PendingStripe, Surroundings,
};
use crate::Error;

#[derive(Debug)]
pub struct PipeDevice {
    cancel: Arc<AtomicBool>,
}

impl PipeDevice {
    /// Waits for the other end of the pipe are cancelled when `cancel` is set.
    pub fn new(cancel: Arc<AtomicBool>) -> PipeDevice {
        PipeDevice { cancel }
    }
}

const NAME: &str = "-";

fn error(action: &'static str, offset: u64, source: std::io::Error) -> Error {
    let device = NAME.into();
    match source.kind() {
        ErrorKind::Interrupted => Error::Cancelled { device },
        _ => Error::Io {
            action,
            device,
            offset,
            source,
        },
    }
}

impl PendingStripe for PipeDevice {
    fn open_pending(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        Ok(None)
    }

    fn complete_pending(&self) -> Result<(), Error> {
        Err(Error::Unsupported {
            device: NAME.into(),
            action: "complete a stripe",
        })
    }
}

impl Surroundings for PipeDevice {}

impl BackupDevice for PipeDevice {
    fn name(&self) -> String {
        NAME.into()
    }

    fn class(&self) -> DeviceClass {
        DeviceClass::Pipe
    }

    fn open(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        Ok(Some(Arc::new(PipeRead {
            offset: Mutex::new(0),
            cancel: self.cancel.clone(),
        })))
    }

    fn create(&self, _via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        Ok(Box::new(PipeWrite {
            offset: 0,
            cancel: self.cancel.clone(),
        }))
    }

    fn append(&self, _offset: u64, _via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        Err(Error::Unsupported {
            device: NAME.into(),
            action: "be appended to",
        })
    }
}

#[derive(Debug)]
struct PipeRead {
    offset: Mutex<u64>,
    cancel: Arc<AtomicBool>,
}

impl FamilyRead for PipeRead {
    fn len_bytes(&self) -> Result<Option<u64>, Error> {
        Ok(None)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let mut at = self.offset.lock().unwrap_or_else(PoisonError::into_inner);
        if *at != offset {
            return Err(Error::Unsupported {
                device: NAME.into(),
                action: "be read out of order",
            });
        }
        let mut done = 0;
        while done < buf.len() {
            match standard::read_input(&mut buf[done..], &self.cancel) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) => return Err(error("read", *at, e)),
            }
        }
        *at += done as u64;
        Ok(done)
    }
}

struct PipeWrite {
    offset: u64,
    cancel: Arc<AtomicBool>,
}

impl FamilyWrite for PipeWrite {
    fn offset(&self) -> u64 {
        self.offset
    }
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        standard::write_output(bytes, &self.cancel).map_err(|e| error("write", self.offset, e))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
    fn sync(&mut self) -> Result<(), Error> {
        // The bytes are at the other end, which is responsible for making them durable.
        Ok(())
    }
    fn keep(&mut self) {}
    fn complete(self: Box<Self>) -> Result<Option<LastLook>, Error> {
        Ok(None)
    }
}
