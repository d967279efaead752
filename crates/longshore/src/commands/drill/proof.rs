//! The results of a drill, item by item.

use serde::Serialize;

/// One checked item.
#[derive(Debug, Serialize)]
pub struct Proof {
    pub what: &'static str,
    pub sound: bool,
    pub text: String,
}

impl Proof {
    pub fn of(what: &'static str, sound: bool, text: impl Into<String>) -> Proof {
        let text = text.into();
        Proof { what, sound, text }
    }
}
