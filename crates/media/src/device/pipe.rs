//! Standard output and input as a device: one stripe, in sequence.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use longshore_io::Via;

use super::{BackupDevice, DeviceClass, FamilyRead, FamilyWrite};
use crate::Error;

#[derive(Debug)]
pub struct PipeDevice;

const NAME: &str = "-";

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
        })))
    }
    fn open_pending(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        Ok(None)
    }
    fn complete_pending(&self) -> Result<(), Error> {
        Err(Error::Unsupported {
            device: NAME.into(),
            action: "complete a stripe",
        })
    }
    fn create(&self, _via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        Ok(Box::new(PipeWrite { offset: 0 }))
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
        let mut stdin = std::io::stdin().lock();
        let mut done = 0;
        while done < buf.len() {
            match stdin.read(&mut buf[done..]) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(Error::Io {
                        action: "read",
                        device: NAME.into(),
                        offset: *at,
                        source,
                    });
                }
            }
        }
        *at += done as u64;
        Ok(done)
    }
}

struct PipeWrite {
    offset: u64,
}

impl PipeWrite {
    fn error(&self, action: &'static str, source: std::io::Error) -> Error {
        Error::Io {
            action,
            device: NAME.into(),
            offset: self.offset,
            source,
        }
    }
}

impl FamilyWrite for PipeWrite {
    fn offset(&self) -> u64 {
        self.offset
    }
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        std::io::stdout()
            .lock()
            .write_all(bytes)
            .map_err(|e| self.error("write", e))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
    fn sync(&mut self) -> Result<(), Error> {
        std::io::stdout()
            .lock()
            .flush()
            .map_err(|e| self.error("write", e))
    }
    fn keep(&mut self) {}
    fn complete(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}
