//! Tests each accelerator in a separate process.
//!
//! A vendor's library may hang, abort the process, or decide once for the life of the process that there is no device.
//! That must affect neither the process that asks nor the tests of other libraries. So each accelerator is tested in a
//! new process, which answers in JSON.
//!
//! Invariants
//! - The processes run at the same time if the system has threads to give, each with the same time limit; one that has
//!   not answered by then is killed, and is not waited for.
//! - An answer is believed only from a process that ended well, and only up to a bounded length.
//! - A test that gave no answer counts against a device only if sysfs shows one.
//!
//! Leaves to others: the test itself ([`Accelerator`], in `longshore-accel`), and the limit (the callers).

use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use longshore_accel::{self as accel, Accelerator, Trouble};
use longshore_io::{Clock, child, side_by_side};
use serde::{Deserialize, Serialize};

/// The test result for one accelerator.
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
    /// [`Trouble::name`]; `None` if it is ready.
    pub trouble: Option<String>,
    /// One sentence that includes what to do; empty if it is ready.
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

    /// Why it is not ready. A name from a later version is treated as [`Trouble::NotAvailable`].
    pub fn trouble(&self) -> Option<Trouble> {
        let name = self.trouble.as_deref()?;
        let known = Trouble::ALL.into_iter().find(|t| t.name() == name);
        Some(known.unwrap_or(Trouble::NotAvailable))
    }

    /// The facts known without loading a library that has a device.
    pub fn look() -> Vec<Probe> {
        let known = accel::known();
        known.iter().map(|a| Probe::of(&**a)).collect()
    }

    /// Loads and tests one accelerator in this process. Blocks, possibly for ever. `None`: no engine has this name.
    pub fn test(engine: &str) -> Option<Probe> {
        let known = accel::known();
        let accelerator = known.iter().find(|a| a.caps().name == engine)?;
        accelerator.self_test();
        Some(Probe::of(&**accelerator))
    }

    /// Runs [`Probe::test`] for each accelerator in a new process of `program`, which is this program's file. A
    /// process that has not answered after `patience` is killed.
    pub fn test_in_children(program: &Path, clock: &dyn Clock, patience: Duration) -> Vec<Probe> {
        let test = |mut probe: Probe| match ask(program, &probe.engine, clock, patience) {
            Ok(found) => found,
            Err(why) => {
                if probe.hardware_detected {
                    probe.trouble = Some(Trouble::NoAnswer.name().to_owned());
                    probe.reason = why;
                }
                probe
            }
        };
        let looked = Probe::look();
        // If the system has no thread to give, one after another.
        side_by_side(looked.len(), |n| test(looked[n].clone()))
            .unwrap_or_else(|_| looked.into_iter().map(test).collect())
    }
}

fn ask(
    program: &Path,
    engine: &str,
    clock: &dyn Clock,
    patience: Duration,
) -> Result<Probe, String> {
    const LOOK: Duration = Duration::from_millis(10);
    const LEN_MAX: u64 = 1 << 20;
    let mut child = child::again_at(program)
        .args(["accelerator", "probe", engine])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("the test could not be started: {e}"))?;
    let pipe = child.stdout.take();
    let (tell, hear) = mpsc::channel();
    let started = thread::Builder::new().spawn(move || {
        let mut said = Vec::new();
        let heard = pipe.map(|pipe| pipe.take(LEN_MAX).read_to_end(&mut said));
        let said = matches!(heard, Some(Ok(_))).then_some(said);
        // The receiver may be gone.
        let _ = tell.send(said);
    });
    if let Err(e) = started {
        let _ended_already = child.kill().and_then(|()| child.wait());
        return Err(format!(
            "no thread can be started to wait for the test: {e}"
        ));
    }
    let began = clock.now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if clock.now() - began < patience => clock.sleep(LOOK),
            Ok(None) | Err(_) => {
                // The process may have ended; a call into a driver that cannot be interrupted keeps it alive.
                let _ended_already = child.kill();
                return Err(format!(
                    "its library did not answer within {} s; check the kernel's log (`dmesg`), then restart the service \
                     or the machine",
                    patience.as_secs()
                ));
            }
        }
    };
    // Processes started by the library may keep the pipe open after the test has ended.
    let left = patience.saturating_sub(clock.now() - began);
    let said = hear.recv_timeout(left).ok().flatten().unwrap_or_default();
    if !status.success() {
        return Err(format!(
            "its library ended the process that tested it ({status})"
        ));
    }
    serde_json::from_slice(&said).map_err(|e| format!("the test's answer cannot be read: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::HostClock;

    /// Another process writes the file: a file that this process has open for writing, even in a child that another
    /// test has just forked, cannot be executed.
    fn program(dir: &Path, script: &str) -> std::path::PathBuf {
        let path = dir.join("program");
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0.new\" && chmod 755 \"$0.new\" && mv \"$0.new\" \"$0\"";
        let mut sh = std::process::Command::new("sh");
        let done = sh.args(["-c", write]).arg(&path).arg(script).status();
        assert!(done.unwrap().success());
        path
    }

    const SOON: Duration = Duration::from_millis(500);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn hung_dead_and_babbling_children_are_distinguished() {
        let dir = tempfile::tempdir().unwrap();
        for (script, patience, word) in [
            ("exec sleep 100", SOON, "did not answer within 0 s"),
            ("kill -ABRT $$", LONG, "ended the process"),
            ("exit 3", LONG, "ended the process"),
            ("echo hello", LONG, "answer cannot be read"),
        ] {
            let program = program(dir.path(), script);
            let why = ask(&program, "qatzip", &HostClock, patience).unwrap_err();
            assert!(why.contains(word), "{script}: {why}");
        }
        // A process that it started keeps the pipe open; nothing waits for that process.
        let program = program(dir.path(), "sleep 20 & exit 0");
        let began = HostClock.now();
        ask(&program, "qatzip", &HostClock, 2 * SOON).unwrap_err();
        assert!(HostClock.now() - began < Duration::from_secs(15));
        let none = dir.path().join("none");
        assert!(ask(&none, "qatzip", &HostClock, Duration::ZERO).is_err());
    }

    fn well(engine: &str) -> Probe {
        Probe {
            engine: engine.into(),
            accelerator: "QAT".into(),
            description: "Intel".into(),
            library: "QATzip".into(),
            hardware_detected: true,
            hardware: None,
            library_version: None,
            driver_version: None,
            calls_max: 4,
            trouble: None,
            reason: String::new(),
        }
    }

    #[test]
    fn each_accelerator_has_a_child_of_its_own_and_none_suffers_from_another() {
        let dir = tempfile::tempdir().unwrap();
        let json = serde_json::to_string(&well("nvcomp")).unwrap();
        // One accelerator hangs or dies; the other one answers.
        for (bad, patience) in [("exec sleep 100", SOON), ("kill -ABRT $$", LONG)] {
            let script = format!(
                "echo \"$3\" >> \"$0.asked\"\ncase $3 in qatzip) {bad};; nvcomp) echo '{json}';; esac"
            );
            let program = program(dir.path(), &script);
            let found = Probe::test_in_children(&program, &HostClock, patience.max(SOON * 10));
            let of = |engine: &str| found.iter().find(|p| p.engine == engine).cloned();
            assert_eq!(of("nvcomp"), Some(well("nvcomp")));
            assert_ne!(of("qatzip"), None);
            assert_eq!(found.len(), Probe::look().len());
            let asked = std::fs::read_to_string(dir.path().join("program.asked")).unwrap();
            let mut asked: Vec<_> = asked.lines().collect();
            asked.sort_unstable();
            assert_eq!(asked, ["nvcomp", "qatzip"], "one child for each");
            std::fs::remove_file(dir.path().join("program.asked")).unwrap();
        }
    }

    #[test]
    fn an_answer_is_understood_and_an_unknown_trouble_is_one_still() {
        let dir = tempfile::tempdir().unwrap();
        let mut probe = well("qatzip");
        (probe.trouble, probe.reason) = (Some("self_test_failed".into()), "it lies".into());
        let json = serde_json::to_string(&probe).unwrap();
        let program = program(dir.path(), &format!("cat <<'END'\n{json}\nEND"));
        assert_eq!(ask(&program, "qatzip", &HostClock, LONG), Ok(probe.clone()));
        assert_eq!(probe.trouble(), Some(Trouble::SelfTestFailed));
        probe.trouble = Some("of next year".into());
        assert_eq!(probe.trouble(), Some(Trouble::NotAvailable));
    }
}
