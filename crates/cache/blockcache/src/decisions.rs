//! The last requests, and the reasons for their routes.

use std::collections::VecDeque;

use longshore_policy::policy::Reason;
use parking_lot::Mutex;
use serde::{Serialize, Serializer};

/// The number of requests kept.
const LINES_MAX: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestKind {
    Read,
    Write,
}

/// One request, or one mebibyte of a longer one.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Decision {
    /// Since some fixed moment.
    pub at_ns: u64,
    pub asked: RequestKind,
    pub offset: u64,
    /// Bytes of the request.
    pub len: u64,
    /// How many of these bytes the cache held.
    pub held_bytes: u64,
    /// How many the cache device served.
    pub fast_bytes: u64,
    #[serde(serialize_with = "name")]
    pub reason: Reason,
    pub took_us: u64,
}

fn name<S: Serializer>(reason: &Reason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reason.name())
}

#[derive(Debug, Default)]
pub(crate) struct Diary(Mutex<LineHistory>);

#[derive(Debug, Default)]
struct LineHistory {
    lines: VecDeque<Decision>,
    /// How many requests each reason of [`Reason::ALL`] decided.
    counts: [u64; Reason::ALL.len()],
}

impl Diary {
    pub(crate) fn add(&self, line: Decision) {
        let mut kept = self.0.lock();
        if let Some(at) = Reason::ALL.iter().position(|reason| *reason == line.reason) {
            kept.counts[at] += 1;
        }
        if kept.lines.len() == LINES_MAX {
            kept.lines.pop_front();
        }
        kept.lines.push_back(line);
    }

    /// Newest first.
    pub(crate) fn last(&self, count: usize) -> Vec<Decision> {
        let kept = self.0.lock();
        kept.lines.iter().rev().take(count).copied().collect()
    }

    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let counts = self.0.lock().counts;
        let names = Reason::ALL.iter().map(|reason| reason.name());
        names.zip(counts).collect()
    }
}
