//! The faults of the double.
//!
//! Words separated by blanks, each `what=value`, values separated by `:`.
//!
//! | word | effect |
//! |---|---|
//! | `version=6000` | nvCOMP's version: major × 1000 + minor × 100 + patch; 5200 else |
//! | `gpus=0` | so many devices; 1 else |
//! | `memory=512` | MiB of device memory; 1024 else |
//! | `taken=100` | MiB that another program takes between asking how much is free and allocating |
//! | `fail=CALL:CODE:N:COUNT` | the Nth call of CALL (1 is the first) answers CODE, COUNT times, 0 for ever |
//! | `hang=CALL:N` | the Nth call does not return until `double_release` |
//! | `delay=CALL:MS` | every call takes so many milliseconds |
//! | `status=CODE:N` | every Nth chunk has this status |
//! | `flip=N` | every Nth chunk has one flipped byte |
//! | `long=N` | every Nth chunk's length is beyond its slot |
//! | `short=N` | every Nth chunk's length is one byte less than written |
//! | `silent=N` | every Nth chunk has neither length nor status |
//! | `crc=N` | every Nth chunk's checksum is wrong |
//! | `ptx=refuse`, `ptx=wrong` | the kernel does not load; it moves chunks to the wrong place |
//!
//! Invariants
//! - A word that is not understood is an error, so a test with a misspelt fault fails.
//! - An empty script has no faults.
//!
//! Leaves to others: the faults' effects, which `world.rs` applies.

use std::collections::HashMap;

/// A call that fails: its name, the first failing call, how many fail, and the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub call: String,
    pub code: i32,
    pub first: u64,
    pub count: u64,
}

impl Failure {
    /// Whether call number `n` of this function fails.
    pub fn hits(&self, call: &str, n: u64) -> bool {
        let from = n >= self.first;
        let until = self.count == 0 || n < self.first + self.count;
        self.call == call && from && until
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Ptx {
    #[default]
    Right,
    Refuse,
    Wrong,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    pub version: u32,
    pub gpus: i32,
    pub memory_mib: usize,
    pub taken_mib: usize,
    pub failures: Vec<Failure>,
    pub hangs: Vec<(String, u64)>,
    pub delays: HashMap<String, u64>,
    pub status: Option<(i32, u64)>,
    pub flip: Option<u64>,
    pub long: Option<u64>,
    pub short: Option<u64>,
    pub silent: Option<u64>,
    pub crc: Option<u64>,
    pub ptx: Ptx,
}

impl Default for Script {
    fn default() -> Script {
        Script {
            version: 5200,
            gpus: 1,
            memory_mib: 1024,
            taken_mib: 0,
            failures: Vec::new(),
            hangs: Vec::new(),
            delays: HashMap::new(),
            status: None,
            flip: None,
            long: None,
            short: None,
            silent: None,
            crc: None,
            ptx: Ptx::Right,
        }
    }
}

impl Script {
    /// Reads a script. A word that is not understood is an error: a test with a misspelt fault would test nothing.
    pub fn parse(text: &str) -> Result<Script, String> {
        let mut script = Script::default();
        for word in text.split_whitespace() {
            script
                .word(word)
                .ok_or_else(|| format!("the double does not understand {word:?}"))?;
        }
        Ok(script)
    }

    fn word(&mut self, word: &str) -> Option<()> {
        let (what, value) = word.split_once('=')?;
        let parts: Vec<&str> = value.split(':').collect();
        let every = || value.parse().ok().filter(|n| *n > 0);
        match (what, &parts[..]) {
            ("version", [n]) => self.version = n.parse().ok()?,
            ("gpus", [n]) => self.gpus = n.parse().ok()?,
            ("memory", [n]) => self.memory_mib = n.parse().ok()?,
            ("taken", [n]) => self.taken_mib = n.parse().ok()?,
            ("fail", [call, code, first, count]) => self.failures.push(Failure {
                call: (*call).to_owned(),
                code: code.parse().ok()?,
                first: first.parse().ok()?,
                count: count.parse().ok()?,
            }),
            ("hang", [call, n]) => self.hangs.push(((*call).to_owned(), n.parse().ok()?)),
            ("delay", [call, ms]) => {
                self.delays.insert((*call).to_owned(), ms.parse().ok()?);
            }
            ("status", [code, n]) => self.status = Some((code.parse().ok()?, n.parse().ok()?)),
            ("flip", _) => self.flip = Some(every()?),
            ("long", _) => self.long = Some(every()?),
            ("short", _) => self.short = Some(every()?),
            ("silent", _) => self.silent = Some(every()?),
            ("crc", _) => self.crc = Some(every()?),
            ("ptx", ["refuse"]) => self.ptx = Ptx::Refuse,
            ("ptx", ["wrong"]) => self.ptx = Ptx::Wrong,
            _ => return None,
        }
        Some(())
    }
}

/// Whether the `n`th of something is one of every `every`.
pub fn is_nth(every: Option<u64>, n: u64) -> bool {
    every.is_some_and(|every| n.is_multiple_of(every))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_says_what_goes_wrong_and_a_misspelt_word_is_refused() {
        let script =
            Script::parse("version=6000 fail=cuMemAlloc_v2:2:3:0 flip=7 ptx=refuse").unwrap();
        assert_eq!(
            (script.version, script.flip, script.gpus),
            (6000, Some(7), 1)
        );
        let failure = &script.failures[0];
        assert!(!failure.hits("cuMemAlloc_v2", 2) && failure.hits("cuMemAlloc_v2", 3));
        assert!(failure.hits("cuMemAlloc_v2", 99) && !failure.hits("cuInit", 3));
        for wrong in ["flips=7", "flip=0", "flip", "fail=cuInit:1", "ptx=maybe"] {
            assert!(Script::parse(wrong).is_err(), "{wrong}");
        }
    }
}
