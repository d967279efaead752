//! The formats of traces, and the content of one line in any of them.

use crate::sim::Ask;

/// A longer request is refused.
pub const REQUEST_MAX: u64 = 1 << 30;
/// A longer trim is refused.
pub const DISCARD_MAX: u64 = 1 << 50;

/// The format of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceFormat {
    Plain,
    CloudPhysics,
    Tencent,
    Systor,
    Msr,
    DiskSim,
    FioLog,
    BlkParse,
    Numbers,
}

impl TraceFormat {
    pub const ALL: [TraceFormat; 9] = [
        TraceFormat::Plain,
        TraceFormat::CloudPhysics,
        TraceFormat::Tencent,
        TraceFormat::Systor,
        TraceFormat::Msr,
        TraceFormat::DiskSim,
        TraceFormat::FioLog,
        TraceFormat::BlkParse,
        TraceFormat::Numbers,
    ];

    pub fn name(self) -> &'static str {
        match self {
            TraceFormat::Plain => "plain",
            TraceFormat::CloudPhysics => "cloudphysics",
            TraceFormat::Tencent => "tencent",
            TraceFormat::Systor => "systor",
            TraceFormat::Msr => "msr",
            TraceFormat::DiskSim => "disksim",
            TraceFormat::FioLog => "fio",
            TraceFormat::BlkParse => "blkparse",
            TraceFormat::Numbers => "numbers",
        }
    }

    pub fn named(name: &str) -> Option<TraceFormat> {
        TraceFormat::ALL
            .into_iter()
            .find(|form| form.name() == name)
    }
}

/// A line's content: a request, a command that is not replayed, or nothing.
pub enum Line {
    Request {
        at: f64,
        ask: Ask,
        /// Its time on the host, in ns.
        took: Option<f64>,
    },
    Skipped,
    Nothing,
}
