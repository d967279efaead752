//! Asking an accelerator whether it serves, in a process of its own.
//!
//! Vendors' libraries may hang, end the process, or decide for its whole life that there is no device. None of that may
//! happen to the process that asks, so a fresh one does the test and answers in JSON.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use longshore_codec::accel::{self, Accelerator, Trouble};
use longshore_io::Clock;
use serde::{Deserialize, Serialize};

/// What was found of one accelerator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The engine's name: `qatzip`.
    pub engine: String,
    pub accelerator: String,
    pub description: String,
    pub library: String,
    pub hardware_detected: bool,
    pub hardware: Option<String>,
    pub library_version: Option<String>,
    pub driver_version: Option<String>,
    pub calls_max: usize,
    /// [`Trouble::name`]; none when it is ready.
    pub trouble: Option<String>,
    /// In one sentence, with what to do; empty when it is ready.
    pub reason: String,
}

impl Probe {
    fn of(accelerator: &dyn Accelerator) -> Probe {
        let (found, health) = (accelerator.found(), accelerator.health());
        Probe {
            engine: accelerator.caps().name.to_owned(),
            accelerator: found.accelerator.to_owned(),
            description: found.description.to_owned(),
            library: found.library.to_owned(),
            hardware_detected: found.hardware_detected,
            hardware: health.hardware,
            library_version: health.library_version,
            driver_version: health.driver_version,
            calls_max: accelerator.caps().calls_max,
            trouble: found.refusal.map(|r| r.trouble.name().to_owned()),
            reason: health.reason,
        }
    }

    /// Why it is not ready. What a later version calls otherwise is [`Trouble::NotAvailable`].
    pub fn trouble(&self) -> Option<Trouble> {
        let name = self.trouble.as_deref()?;
        let known = Trouble::ALL.into_iter().find(|t| t.name() == name);
        Some(known.unwrap_or(Trouble::NotAvailable))
    }

    /// What can be told without loading a library that has a device behind it.
    pub fn look() -> Vec<Probe> {
        let known = accel::known();
        known.iter().map(|a| Probe::of(&**a)).collect()
    }

    /// Loads and tests everything in this process, side by side. Blocks, perhaps for ever.
    pub fn test() -> Vec<Probe> {
        let test = |accelerator: Arc<dyn Accelerator>| {
            thread::spawn(move || {
                accelerator.self_test();
                Probe::of(&*accelerator)
            })
        };
        let running: Vec<_> = accel::known().into_iter().map(test).collect();
        running.into_iter().filter_map(|t| t.join().ok()).collect()
    }

    /// [`Probe::test`] in a fresh process of `program`, which is this program's file. One that has not answered after
    /// `patience` is ended.
    pub fn test_in_child(program: &Path, clock: &dyn Clock, patience: Duration) -> Vec<Probe> {
        ask(program, clock, patience).unwrap_or_else(|why| {
            let mut all = Probe::look();
            for probe in all.iter_mut().filter(|p| p.hardware_detected) {
                probe.trouble = Some(Trouble::NoAnswer.name().to_owned());
                probe.reason = why.clone();
            }
            all
        })
    }
}

fn ask(program: &Path, clock: &dyn Clock, patience: Duration) -> Result<Vec<Probe>, String> {
    const LOOK: Duration = Duration::from_millis(10);
    const LEN_MAX: u64 = 1 << 20;
    let mut child = Command::new(program)
        .args(["accelerator", "probe"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("the test could not be started: {e}"))?;
    let pipe = child.stdout.take();
    let hear = thread::spawn(move || {
        let mut said = Vec::new();
        let heard = pipe.map(|pipe| pipe.take(LEN_MAX).read_to_end(&mut said));
        matches!(heard, Some(Ok(_))).then_some(said)
    });
    let began = clock.now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if clock.now() - began < patience => clock.sleep(LOOK),
            Ok(None) | Err(_) => {
                // It may have ended meanwhile; a call into a driver that cannot be interrupted keeps it.
                let _ended_already = child.kill();
                return Err(format!(
                    "its library did not answer within {} s; look at the kernel's log (`dmesg`), then restart the service \
                     or the machine",
                    patience.as_secs()
                ));
            }
        }
    };
    let said = hear.join().ok().flatten().unwrap_or_default();
    if !status.success() {
        return Err(format!(
            "its library ended the process that tested it ({status})"
        ));
    }
    serde_json::from_slice(&said)
        .map_err(|e| format!("the test answered nothing that can be read: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::HostClock;

    /// Written by another process: a file that this one has open for writing, even in a child that another test
    /// has just forked, cannot be executed.
    fn program(dir: &Path, script: &str) -> std::path::PathBuf {
        let path = dir.join("program");
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0.new\" && chmod 755 \"$0.new\" && mv \"$0.new\" \"$0\"";
        let mut sh = std::process::Command::new("sh");
        let done = sh.args(["-c", write]).arg(&path).arg(script).status();
        assert!(done.unwrap().success());
        path
    }

    #[test]
    fn a_child_that_hangs_dies_or_babbles_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        for (script, word) in [
            ("exec sleep 100", "did not answer within 0 s"),
            ("kill -ABRT $$", "ended the process"),
            ("exit 3", "ended the process"),
            ("echo hello", "nothing that can be read"),
        ] {
            let program = program(dir.path(), script);
            let why = ask(&program, &HostClock, Duration::from_millis(500)).unwrap_err();
            assert!(why.contains(word), "{script}: {why}");
        }
        assert!(ask(&dir.path().join("none"), &HostClock, Duration::ZERO).is_err());
    }

    #[test]
    fn an_answer_is_understood_and_an_unknown_trouble_is_one_still() {
        let dir = tempfile::tempdir().unwrap();
        let mut probe = Probe {
            engine: "qatzip".into(),
            accelerator: "QAT".into(),
            description: "Intel".into(),
            library: "QATzip".into(),
            hardware_detected: true,
            hardware: None,
            library_version: None,
            driver_version: None,
            calls_max: 4,
            trouble: Some("self_test_failed".into()),
            reason: "it lies".into(),
        };
        let json = serde_json::to_string(&[&probe]).unwrap();
        let program = program(dir.path(), &format!("cat <<'END'\n{json}\nEND"));
        let heard = Probe::test_in_child(&program, &HostClock, Duration::from_secs(60));
        assert_eq!(heard, [probe.clone()]);
        assert_eq!(probe.trouble(), Some(Trouble::SelfTestFailed));
        probe.trouble = Some("of next year".into());
        assert_eq!(probe.trouble(), Some(Trouble::NotAvailable));
    }
}
