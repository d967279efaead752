//! Devices that do not answer.
//!
//! Invariants
//! - An interruption is never taken for a lost stripe.
//!
//! Leaves to others: what is done without the stripe (`set_reader.rs`).

use crate::Error;
use crate::member::Member;

/// What a device said; `None`: it does not answer, and parity may stand for its stripe.
///
/// Errors: [`Error::Cancelled`].
pub(super) fn if_it_answers<T>(said: Result<T, Error>) -> Result<Option<T>, Error> {
    match said {
        Ok(said) => Ok(Some(said)),
        Err(error @ Error::Cancelled { .. }) => Err(error),
        Err(_) => Ok(None),
    }
}

/// An interruption is no lost stripe.
pub(super) fn cancelled(found: &[Result<Member, Error>]) -> Option<Error> {
    found.iter().find_map(|found| match found {
        Err(Error::Cancelled { device }) => Some(Error::Cancelled {
            device: device.clone(),
        }),
        _ => None,
    })
}
