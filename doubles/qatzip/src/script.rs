//! The faults of the double, and when they happen: one directive in a line, `#` begins a comment.
//!
//! | directive | meaning |
//! |---|---|
//! | `instances N` | calls at a time; more get -103. 4 without it |
//! | `rate N` | one instance serves N million plain bytes in a second, asleep |
//! | `latency-us N` | every call takes at least so long, asleep |
//! | `prepared` | inputs seen before are answered from memory, without compressing them |
//! | `software` | one member for each call, of blocks ended by full flushes, as QATzip's software writes |
//! | `unpinned` | `qzMalloc` has no memory |
//! | `init N`, `init die`, `init hang` | what the first `qzInit` does; after -101 the process never has a device |
//! | `setup N` | what `qzSetupSessionDeflate` returns |
//! | `defaults wide`, `defaults other` | structures as of a library built with error injection; other defaults |
//! | `exit waits` | the process does not end while calls are in flight, as with QATzip's own destructor |
//! | `call N FAULT`, `call N..M FAULT`, `call N.. FAULT` | the calls of that number, counted from 1 over all threads |
//!
//! Faults: `code N` (returns it) · `hang` (never returns) · `delay MS` · `late N` (hangs until N calls have begun, then
//! writes and returns as if nothing had been) · `flip N` (one bit of output byte N) · `short-output N` and `short-input N`
//! (reports so many bytes less) · `lie N` (the first member's header says so many deflate bytes more) ·
//! `tail N` (writes N bytes more than it says).
//!
//! The script is in the environment variable `LONGSHORE_DOUBLE_QATZIP`, or in the file next to the library with
//! `.script` after its name.
//!
//! Invariants
//! - A line that is not a directive is refused, so a test with a misspelt fault fails.
//! - An empty script has no faults.
//!
//! Leaves to others: the faults' effects, and where the script is read (`device.rs`).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    pub instances: usize,
    pub rate: Option<u64>,
    pub latency: Duration,
    pub prepared: bool,
    pub software: bool,
    pub unpinned: bool,
    pub init: Init,
    pub setup: i32,
    pub defaults: Defaults,
    pub exit_waits: bool,
    pub calls: Vec<(CallRange, Fault)>,
}

impl Default for Script {
    fn default() -> Script {
        Script {
            instances: 4,
            rate: None,
            latency: Duration::ZERO,
            prepared: false,
            software: false,
            unpinned: false,
            init: Init::Returns(0),
            setup: 0,
            defaults: Defaults::Documented,
            exit_waits: false,
            calls: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Init {
    Returns(i32),
    Dies,
    Hangs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defaults {
    Documented,
    /// Two pointers after the structure, as with the macro `ERR_INJECTION`.
    Wide,
    /// Another default level.
    Other,
}

/// First and last call, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRange(pub u64, pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Code(i32),
    Hang,
    Delay(Duration),
    Late(u64),
    Flip(usize),
    ShortOutput(u32),
    ShortInput(u32),
    Lie(u32),
    Tail(usize),
}

impl Script {
    /// The faults of this call.
    pub fn faults(&self, call: u64) -> impl Iterator<Item = Fault> + '_ {
        let hit = move |c: &&(CallRange, Fault)| (c.0.0..=c.0.1).contains(&call);
        self.calls.iter().filter(hit).map(|c| c.1)
    }
}

/// A line that is not a directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown(pub String);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no directive of the double: {:?}", self.0)
    }
}

impl FromStr for Script {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Script, Unknown> {
        let mut script = Script::default();
        for line in text.lines() {
            let words: Vec<&str> = line
                .split('#')
                .next()
                .unwrap_or_default()
                .split_whitespace()
                .collect();
            if !words.is_empty() && directive(&mut script, &words).is_none() {
                return Err(Unknown(line.to_owned()));
            }
        }
        Ok(script)
    }
}

fn directive(script: &mut Script, words: &[&str]) -> Option<()> {
    match *words {
        ["instances", n] => script.instances = n.parse().ok()?,
        ["rate", n] => script.rate = Some(n.parse().ok().filter(|n| *n > 0)?),
        ["latency-us", n] => script.latency = Duration::from_micros(n.parse().ok()?),
        ["prepared"] => script.prepared = true,
        ["software"] => script.software = true,
        ["unpinned"] => script.unpinned = true,
        ["init", "die"] => script.init = Init::Dies,
        ["init", "hang"] => script.init = Init::Hangs,
        ["init", n] => script.init = Init::Returns(n.parse().ok()?),
        ["setup", n] => script.setup = n.parse().ok()?,
        ["defaults", "wide"] => script.defaults = Defaults::Wide,
        ["defaults", "other"] => script.defaults = Defaults::Other,
        ["exit", "waits"] => script.exit_waits = true,
        ["call", range, ref fault @ ..] => {
            script.calls.push((call_range(range)?, self::fault(fault)?));
        }
        _ => return None,
    }
    Some(())
}

fn call_range(text: &str) -> Option<CallRange> {
    let Some((first, last)) = text.split_once("..") else {
        let only = text.parse().ok()?;
        return Some(CallRange(only, only));
    };
    let last = if last.is_empty() {
        u64::MAX
    } else {
        last.parse().ok()?
    };
    Some(CallRange(first.parse().ok()?, last))
}

fn fault(words: &[&str]) -> Option<Fault> {
    let ms = |n: &str| n.parse().ok().map(Duration::from_millis);
    Some(match *words {
        ["code", n] => Fault::Code(n.parse().ok()?),
        ["hang"] => Fault::Hang,
        ["delay", n] => Fault::Delay(ms(n)?),
        ["late", n] => Fault::Late(n.parse().ok()?),
        ["flip", n] => Fault::Flip(n.parse().ok()?),
        ["short-output", n] => Fault::ShortOutput(n.parse().ok()?),
        ["short-input", n] => Fault::ShortInput(n.parse().ok()?),
        ["lie", n] => Fault::Lie(n.parse().ok()?),
        ["tail", n] => Fault::Tail(n.parse().ok()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_says_which_calls_fail_and_how() {
        let script: Script =
            "instances 2 # two\n\ncall 3 code -2\ncall 3.. flip 9\ncall 1..2 late 7"
                .parse()
                .unwrap();
        let of = |call| script.faults(call).collect::<Vec<_>>();
        assert_eq!(script.instances, 2);
        assert_eq!(of(1), [Fault::Late(7)]);
        assert_eq!(of(3), [Fault::Code(-2), Fault::Flip(9)]);
        assert_eq!(of(1_000_000), [Fault::Flip(9)]);
        assert_eq!("".parse(), Ok(Script::default()));
    }

    #[test]
    fn a_misspelt_script_is_refused() {
        for text in [
            "call x hang",
            "call 1 explode",
            "rate 0",
            "instances",
            "init",
        ] {
            assert_eq!(text.parse::<Script>(), Err(Unknown(text.into())), "{text}");
        }
    }
}
