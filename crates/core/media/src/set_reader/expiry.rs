//! The sets of media that must be kept, and those of which nobody knows until when.

use super::{MediaSet, Row};
use crate::error::Error;

impl MediaSet {
    /// Errors: [`Error::NotExpired`], and [`Error::ExpiryUnknown`] for a set that cannot be read.
    pub(crate) fn check_expiry(&self, now_us: i64) -> Result<(), Error> {
        // Stripes of media that were copied, and then written at both places, may hold different sets.
        for row in self.rows()? {
            for (i, part) in row.parts.iter().enumerate() {
                let header = part.and_then(|part| part.header.as_ref().ok());
                if let Some(until) = header.and_then(|h| h.expires_us).filter(|e| *e > now_us) {
                    return Err(Error::NotExpired {
                        device: self.device(i).into(),
                        position: row.position,
                        until: format!("{} s after 1970-01-01 UTC", until / 1_000_000),
                    });
                }
            }
        }
        // A set that nobody can read may be the one that must be kept.
        match self.damaged()?.first() {
            Some(position) => Err(Error::ExpiryUnknown {
                device: self.device(0).into(),
                position: *position,
            }),
            None => Ok(()),
        }
    }

    /// The positions of sets whose headers are damaged, so that nothing is known of them. The rest of a crash is none.
    pub fn damaged(&self) -> Result<Vec<u32>, Error> {
        let rows = self.rows()?;
        let is_damaged = |row: &&Row| match row.header(self) {
            Ok(_) | Err(Error::Incomplete { .. }) => false,
            Err(_) => true,
        };
        Ok(rows
            .iter()
            .filter(is_damaged)
            .map(|row| row.position)
            .collect())
    }
}
