//! Files of a cluster or of SQLite, block by block, for the examples that measure PAGES.
//!
//! An argument is FILE, or FILE:STEP for every STEPth MiB of it. FILE.idx has the number of each MiB's layout, from 1, a line
//! each; 0 is none, and so is a file that is missing. LAYOUTS has a line for each layout: its name, how many columns, and
//! LEN:ALIGN of each.

use longshore_codec::pages::{Column, Layout, Part};

/// Bytes of a block; the last one may have fewer.
pub const BLOCK: usize = 1 << 20;

pub fn cpu_seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call demands a place for the time, which `time` is.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

pub fn layouts(path: &str) -> Vec<Layout> {
    let text = std::fs::read_to_string(path).expect("a file of layouts");
    let layout = |line: &str| {
        let columns = line.split_whitespace().skip(2).map(|column| {
            let (len, align) = column.split_once(':').expect("LEN:ALIGN");
            Column {
                len: len.parse().expect("a length"),
                align: align.parse().expect("an alignment"),
            }
        });
        Layout::new(columns.collect::<Vec<_>>()).expect("a layout has columns")
    };
    text.lines().map(layout).collect()
}

pub struct Sample {
    path: String,
    step: usize,
    bytes: Vec<u8>,
    numbers: Vec<usize>,
}

pub struct Block<'a> {
    /// Which MiB of its file it is.
    pub number: usize,
    pub plain: &'a [u8],
    pub parts: [Part<'a>; 1],
}

impl Sample {
    pub fn read(argument: &str) -> Sample {
        let (path, step) = match argument.rsplit_once(':') {
            Some((path, step)) => (path, step.parse().expect("STEP")),
            None => (argument, 1),
        };
        let numbers = std::fs::read_to_string(format!("{path}.idx")).unwrap_or_default();
        let number = |line: &str| line.parse().expect("a number");
        Sample {
            path: path.to_owned(),
            step,
            bytes: std::fs::read(path).expect("FILE"),
            numbers: numbers.lines().map(number).collect(),
        }
    }

    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    pub fn blocks<'a>(&'a self, layouts: &'a [Layout]) -> impl Iterator<Item = Block<'a>> {
        let blocks = self.bytes.chunks(BLOCK).enumerate().step_by(self.step);
        blocks.map(|(number, plain)| {
            let layout = self.numbers.get(number).copied().unwrap_or(0);
            let layout = layout.checked_sub(1).map(|n| &layouts[n]);
            Block {
                number,
                plain,
                parts: [Part {
                    len: plain.len(),
                    layout,
                }],
            }
        })
    }
}
