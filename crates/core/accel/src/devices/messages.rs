//! The messages with which a server reports its accelerators at its start: SQL Server's numbers 17413 to 17438.
//!
//! | number | says |
//! |---|---|
//! | 17413 | the library could not be loaded |
//! | 17414 | an entry point is missing |
//! | 17417 | the library is not compatible |
//! | 17418 | which library and version was found |
//! | 17419, 17420 | the hardware was found, or not |
//! | 17431, 17432 | it was initialised, or not |
//! | 17433, 17434 | a session could be opened, or not |
//! | 17435, 17437 | it will be used in hardware mode, or in software mode |
//! | 17438 | at run time: it failed, or is out of service now ([`RUN_TIME`](crate::engine::RUN_TIME)) |
//!
//! SQL Server 2022 has messages with these numbers. 17435 to 17437 have SQL Server's meaning. The meaning of the others
//! is not published, so their order is a guess and their words are ours.
//!
//! Invariants
//! - The last message about an accelerator says in which mode it is used, whatever failed before.
//! - A failure is a warning. Missing hardware is not: software does the work.
//!
//! Leaves to others: 17411 and 17412 (configuration unchanged, changed), which the code that configures writes. The
//! others do not occur: 17415 and 17416 (components are missing or do not match), 17436 (an edition allows software
//! only), 17439 and 17440 (a session cannot be torn down) and 17441 (libraries are needed for a restore).

use super::door::{Accelerator, AcceleratorFacts, Refusal, Trouble};
use crate::Health;

/// One line of a server's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub number: u32,
    /// Somebody must look at it; otherwise the line is information.
    pub warning: bool,
    pub text: String,
}

impl Message {
    pub fn log(&self) {
        if self.warning {
            tracing::warn!(number = self.number, "{}", self.text);
        } else {
            tracing::info!(number = self.number, "{}", self.text);
        }
    }
}

/// The messages about a tested accelerator, in the order of the test's steps.
pub fn messages(found: &AcceleratorFacts, health: &Health) -> Vec<Message> {
    let mut lines = Vec::new();
    let mut say = |number, warning, text: String| {
        lines.push(Message {
            number,
            warning,
            text,
        });
    };
    let (name, library) = (found.description, found.library);
    match &health.hardware {
        Some(hardware) => say(
            17419,
            false,
            format!("{name} hardware detected: {hardware}."),
        ),
        None => say(
            17420,
            false,
            format!("{name} hardware not found on the system."),
        ),
    }
    if let Some(version) = &health.library_version {
        say(17418, false, format!("Detected {library} {version}."));
    }
    let why = found.refusal.as_ref().map_or("", |r| r.text.as_str());
    match found.refusal.as_ref().map(|r| r.trouble) {
        None => {
            say(17432, false, format!("{library} initialization succeeded."));
            say(
                17434,
                false,
                format!("{library} session opened and tested."),
            );
            say(
                17435,
                false,
                format!("{name} will be used in hardware mode."),
            );
            return lines;
        }
        Some(Trouble::LibraryNotFound | Trouble::LoadFailed) => {
            say(17413, true, format!("Failed to load {library}: {why}."));
        }
        Some(Trouble::EntryPointMissing) => say(17414, true, format!("{why}.")),
        Some(Trouble::VersionNotCompatible) => say(17417, true, format!("{why}.")),
        Some(Trouble::InitializationFailed | Trouble::ProcessWithoutDevice | Trouble::NoAnswer) => {
            say(
                17431,
                true,
                format!("{library} initialization failed: {why}."),
            );
        }
        Some(
            Trouble::SessionFailed
            | Trouble::SelfTestFailed
            | Trouble::MemoryLost
            | Trouble::Failed
            | Trouble::FailedForGood,
        ) => say(17433, true, format!("{library} session failed: {why}.")),
        Some(
            Trouble::NotTested
            | Trouble::SwitchedOff
            | Trouble::HardwareNotFound
            | Trouble::HardwareNotServing
            | Trouble::NotAvailable,
        ) => {}
    }
    let because = if why.is_empty() {
        String::new()
    } else {
        format!(": {why}")
    };
    say(
        17437,
        false,
        format!("{name} will be used in software mode{because}."),
    );
    lines
}

/// Logs the result of a self-test if it changed: tests that are repeated while a device is absent have nothing new to
/// report.
pub(super) fn log_test(accelerator: &dyn Accelerator, before: Option<&Refusal>) {
    let found = accelerator.found();
    if found.refusal.as_ref() != before {
        let lines = messages(&found, &accelerator.health());
        lines.iter().for_each(Message::log);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EngineState;

    fn numbers(trouble: Option<Trouble>, hardware: bool) -> Vec<u32> {
        let found = AcceleratorFacts {
            accelerator: "QAT",
            description: "Intel(R) QuickAssist Technology",
            library: "QATzip",
            hardware_detected: hardware,
            refusal: trouble.map(|trouble| Refusal::new(trouble, "because")),
        };
        let health = Health {
            hardware: hardware.then(|| "1 × QAT 4xxx".into()),
            ..Health::of(EngineState::Ready)
        };
        messages(&found, &health).iter().map(|m| m.number).collect()
    }

    #[test]
    fn every_trouble_ends_with_the_mode_and_failures_say_where() {
        assert_eq!(numbers(None, true), [17419, 17432, 17434, 17435]);
        assert_eq!(
            numbers(Some(Trouble::HardwareNotFound), false),
            [17420, 17437]
        );
        assert_eq!(
            numbers(Some(Trouble::LibraryNotFound), true),
            [17419, 17413, 17437]
        );
        for trouble in Trouble::ALL {
            let lines = numbers(Some(trouble), true);
            assert_eq!(lines.last(), Some(&17437), "{trouble:?}");
            assert!(lines.len() <= 3);
        }
    }
}
