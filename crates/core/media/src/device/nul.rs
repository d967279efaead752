//! The NUL device: counts and discards.

use std::sync::Arc;

use longshore_io::Via;

use super::door::{
    BackupDevice, DeviceClass, FamilyRead, FamilyWrite, LastLook, PendingStripe, Surroundings,
};
use crate::Error;

#[derive(Debug)]
pub struct NulDevice;

impl NulDevice {
    fn unsupported(&self, action: &'static str) -> Error {
        Error::Unsupported {
            device: self.name(),
            action,
        }
    }
}

impl PendingStripe for NulDevice {
    fn open_pending(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        Ok(None)
    }

    fn complete_pending(&self) -> Result<(), Error> {
        Err(self.unsupported("complete a stripe"))
    }
}

impl Surroundings for NulDevice {}

impl BackupDevice for NulDevice {
    fn name(&self) -> String {
        "nul:".into()
    }

    fn class(&self) -> DeviceClass {
        DeviceClass::Nul
    }

    fn open(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        Ok(None)
    }

    fn create(&self, _via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        Ok(Box::new(NulWrite { offset: 0 }))
    }

    fn append(&self, _offset: u64, _via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        Err(self.unsupported("be appended to"))
    }
}

struct NulWrite {
    offset: u64,
}

impl FamilyWrite for NulWrite {
    fn offset(&self) -> u64 {
        self.offset
    }
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.offset += bytes.len() as u64;
        Ok(())
    }
    fn sync(&mut self) -> Result<(), Error> {
        Ok(())
    }
    fn keep(&mut self) {}
    fn complete(self: Box<Self>) -> Result<Option<LastLook>, Error> {
        Ok(None)
    }
}
