//! The results of a drill, item by item.

use serde::Serialize;

/// One checked item.
#[derive(Debug, Serialize)]
pub struct Proof {
    pub what: &'static str,
    pub sound: bool,
    pub text: String,
    /// Whether a fault is one of what the backup holds, so that each copy of it has the same. Others are the archive's, or this
    /// machine's.
    #[serde(skip)]
    pub of_content: bool,
}

impl Proof {
    pub fn of(what: &'static str, sound: bool, text: impl Into<String>) -> Proof {
        Proof {
            what,
            sound,
            text: text.into(),
            of_content: true,
        }
    }

    /// The same of what says nothing about other copies.
    pub fn of_place(what: &'static str, sound: bool, text: impl Into<String>) -> Proof {
        Proof {
            of_content: false,
            ..Proof::of(what, sound, text)
        }
    }
}
