//! Goal: the text of [`Observer`] as a test of any observer: it is told everything that a run may tell, and as early,
//! as often and from as many threads as a run may.
//! Method: scripted plans and progress of known, wrong and unknown length. A call that panics or takes longer than half
//! a second breaks the contract.
//! Not covered: what an observer shows; the other side, what a run owes its observer, which `main.rs` checks.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use longshore_pipeline::{LeftStripe, Observer, Plan, Progress, Standing};

/// No call may take so long, even if nobody looks at what the observer shows.
const LONG: Duration = Duration::from_secs(5);
/// After so long a call that has not returned is taken for one that never does.
const FOREVER: Duration = Duration::from_secs(20);

pub fn plan(expected_bytes: Option<u64>) -> Plan {
    Plan {
        parity_stripes: 0,
        action: "backup",
        database: "db".into(),
        devices: vec!["one".into(), "two".into()],
        volumes: vec!["/".into()],
        algorithm: "ZSTD".into(),
        level: "LOW".into(),
        encrypted: false,
        engine: "software".into(),
        buffer_count: 4,
        buffer_bytes: 1 << 20,
        workers: 2,
        cpus: 1,
        cpu_ceiling: Some(0.5),
        rate_bytes_per_s: Some(1 << 30),
        memory_bytes: 1 << 30,
        expected_bytes,
        layouts: None,
        notices: vec!["a notice".into(), String::new()],
        without_effect: vec!["an option".into()],
    }
}

/// Checks whatever the trait asks of observers; `make` makes one for each run.
///
/// # Panics
/// If the observer breaks the contract.
pub fn keeps_its_contract(make: &dyn Fn() -> Arc<dyn Observer>) {
    // A source of known length, of one that is wrong, of none, and an empty one.
    for (expected, total) in [
        (Some(1 << 30), 1 << 30),
        (Some(1 << 20), 1 << 30),
        (None, 1 << 30),
        (Some(0), 0),
    ] {
        let observer = make();
        let (ended, end) = channel();
        thread::spawn(move || {
            observe(&*observer, expected, total);
            let _ = ended.send(());
        });
        // The sender is dropped when the thread panics, too.
        let end = end.recv_timeout(FOREVER);
        assert!(end.is_ok(), "a call panicked, was slow or did not return");
    }
    // A run that is refused tells of no plan.
    let observer = make();
    soon(|| observer.warning("refused"));
    soon(|| observer.note("refused"));
}

fn soon(call: impl FnOnce()) {
    let begin = Instant::now();
    call();
    let took = begin.elapsed();
    assert!(took < LONG, "a call took {took:?}");
}

fn observe(observer: &dyn Observer, expected_bytes: Option<u64>, total: u64) {
    soon(|| observer.warning("before the plan"));
    soon(|| observer.note("a note before the plan"));
    soon(|| observer.planned(&plan(expected_bytes)));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                (0..100).for_each(|_| {
                    soon(|| observer.warning("in between\nof two lines"));
                    soon(|| observer.note("a note in between\nof two lines"));
                })
            });
        }
        scope.spawn(|| {
            for step in 0..=300 {
                let progress = Progress {
                    done_bytes: total / 300 * step,
                    plain_bytes: total / 300 * step,
                    stored_bytes: total / 900 * step,
                    expected_bytes: expected_bytes.filter(|_| step != 7),
                    entries: step,
                };
                soon(|| observer.progress(&progress));
            }
        });
    });
    let stripe = |device: &str, standing, upload: Option<&str>| LeftStripe {
        device: device.into(),
        standing,
        upload: upload.map(Into::into),
        server: None,
    };
    for standing in [
        Standing::No,
        Standing::Yes,
        Standing::Unknown,
        Standing::Replaced,
    ] {
        let stripes = [
            stripe("s3://bucket/one", Standing::Yes, None),
            stripe("s3://bucket/two", standing, Some("an upload")),
        ];
        soon(|| observer.completing(&stripes));
    }
    soon(|| observer.warning("at the end"));
    soon(|| observer.note("a note at the end"));
}
