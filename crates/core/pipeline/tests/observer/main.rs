//! Goal: the contract of [`Observer`] holds from both sides: what an observer owes a run (`suite.rs`, which observers
//! of other rooms include), and what a run owes its observer.
//! Method: observers that lie in one thing must break the suite. An observer that notes every breach watches backups,
//! restores and verifications of a small tree on the real file system.

mod suite;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use longshore_io::{Host, HostClock};
use longshore_pipeline::{
    BackupRequest, DeviceSpec, Limits, NullObserver, Observer, Plan, Progress, Request,
    RestoreRequest, RunContext, SourceSpec, Tuning, VerifyDepth, VerifyRequest, run,
};
use suite::keeps_its_contract;

#[test]
fn whoever_ignores_everything_keeps_the_contract() {
    keeps_its_contract(&|| Arc::new(NullObserver));
    keeps_its_contract(&|| Arc::new(Watching::default()));
}

/// Breaks the contract in one thing.
struct Lying(Lie);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    None,
    NeedsAPlanFirst,
    WaitsForAReader,
    DividesByWhatIsExpected,
    TakesANoteForALine,
}

impl Observer for Lying {
    fn planned(&self, _plan: &Plan) {}

    fn progress(&self, progress: &Progress) {
        match self.0 {
            Lie::WaitsForAReader => thread::sleep(Duration::from_secs(1)),
            Lie::DividesByWhatIsExpected => {
                let expected = progress.expected_bytes.unwrap_or(1);
                std::hint::black_box(progress.plain_bytes / expected);
            }
            _ => {}
        }
    }

    fn warning(&self, text: &str) {
        assert!(self.0 != Lie::NeedsAPlanFirst || text != "refused");
    }

    fn note(&self, text: &str) {
        assert!(self.0 != Lie::TakesANoteForALine || !text.contains('\n'));
    }
}

/// Goal: the suite sees whoever breaks the contract.
#[test]
fn every_lie_of_an_observer_breaks_the_contract() {
    for lie in [
        Lie::None,
        Lie::NeedsAPlanFirst,
        Lie::WaitsForAReader,
        Lie::DividesByWhatIsExpected,
        Lie::TakesANoteForALine,
    ] {
        let checked = std::panic::catch_unwind(|| keeps_its_contract(&|| Arc::new(Lying(lie))));
        assert_eq!(checked.is_ok(), lie == Lie::None, "{lie:?}");
    }
}

/// Notes whatever a run does that its observer need not expect.
#[derive(Default)]
struct Watching {
    state: Mutex<Watched>,
    in_progress: AtomicBool,
}

#[derive(Default)]
struct Watched {
    planned: usize,
    progress: usize,
    last: Progress,
    broken: Vec<String>,
}

impl Watching {
    fn hear(&self, what: &str, text: &str) {
        if text.is_empty() {
            let broken = format!("an empty {what}");
            self.state.lock().unwrap().broken.push(broken);
        }
    }

    fn end(self) -> Watched {
        self.state.into_inner().unwrap()
    }
}

impl Observer for Watching {
    fn planned(&self, _plan: &Plan) {
        let mut state = self.state.lock().unwrap();
        state.planned += 1;
        if state.planned > 1 || state.progress > 0 {
            state.broken.push("a plan came too late".into());
        }
    }

    fn progress(&self, now: &Progress) {
        let is_second = self.in_progress.swap(true, Ordering::SeqCst);
        let mut state = self.state.lock().unwrap();
        if is_second {
            state
                .broken
                .push("two threads told progress at a time".into());
        }
        if state.planned != 1 {
            state.broken.push("progress without a plan".into());
        }
        let last = state.last;
        if now.plain_bytes < last.plain_bytes
            || now.stored_bytes < last.stored_bytes
            || now.entries < last.entries
        {
            state.broken.push(format!("{now:?} after {last:?}"));
        }
        state.progress += 1;
        state.last = *now;
        drop(state);
        // Another one would come meanwhile.
        thread::sleep(Duration::from_millis(2));
        self.in_progress.store(false, Ordering::SeqCst);
    }

    fn warning(&self, text: &str) {
        self.hear("warning", text);
    }

    fn note(&self, text: &str) {
        self.hear("note", text);
    }
}

fn watched(request: &Request) -> Watched {
    let context = RunContext {
        keyring: Default::default(),
        storage: Arc::new(Host::new()),
        clock: Arc::new(HostClock),
        catalog: None,
        accelerators: Vec::new(),
        cancel: Arc::new(AtomicBool::new(false)),
    };
    let watching = Watching::default();
    let ended = run(&context, request, &watching);
    let watched = watching.end();
    assert_eq!(watched.broken, [""; 0], "{request:?}");
    assert!(watched.planned == 1 || ended.is_err(), "{ended:?}");
    watched
}

fn tree(path: &Path) -> u64 {
    let mut bytes = 0;
    for number in 0..20_u8 {
        let content = vec![number; 1 << (number % 20)];
        std::fs::write(path.join(number.to_string()), &content).unwrap();
        bytes += content.len() as u64;
    }
    bytes
}

/// Goal: a run tells its plan once and first, its progress upwards to the end, and of a refused run no plan at all.
#[test]
fn a_run_owes_its_observer_one_plan_and_progress_that_only_grows() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::create_dir(path("source")).unwrap();
    let bytes = tree(&path("source"));
    let devices = ["one", "two"].map(|name| DeviceSpec::File(path(name)));
    let source = SourceSpec::Files(vec![path("source")]);
    let mut backup = BackupRequest::new(source, devices.to_vec());
    backup.tuning.buffer_bytes = Some(64 << 10);
    let restore = RestoreRequest::new(devices.to_vec(), path("to"));
    let verify = VerifyRequest {
        devices: devices.to_vec(),
        bases: Vec::new(),
        position: None,
        known: Vec::new(),
        depth: VerifyDepth::Chains,
        tuning: Tuning::default(),
        limits: Limits::default(),
    };
    for request in [
        Request::Backup(backup),
        Request::Verify(verify),
        Request::Restore(restore.clone()),
    ] {
        let watched = watched(&request);
        let last = watched.last.plain_bytes;
        assert!(last <= bytes, "{last} of {bytes}: {request:?}");
    }
    // Only the target, which exists now, is against it.
    watched(&Request::Restore(restore));
    // Without media there is nothing to plan.
    let nowhere = vec![DeviceSpec::File(path("nowhere"))];
    let refused = RestoreRequest::new(nowhere, path("other"));
    assert_eq!(watched(&Request::Restore(refused)).planned, 0);
}
