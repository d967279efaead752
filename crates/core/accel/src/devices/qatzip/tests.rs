//! Goal: the engine does every job or leaves it to software, and each reason for being out of service is distinguished.
//! Method: a double of the library, driven by a script: healthy first, then with every fault that the double can make.
//! One test uses Intel's own library where it was built.
//! Not covered: a real device, its driver, and speed.

use std::sync::Arc;
use std::thread;

use longshore_codec::{Level, payload_bound};
use qatzip::members;
use qatzip::stage;
use tempfile::TempDir;

use super::*;
use crate::contract::{compression_jobs, decompression_jobs, engine_contract, pages, stock_decode};
use crate::devices::contract::keeps_its_contract;

/// A machine with a device and a library that follows a script. Calls 1 and 2 are the self-test's.
struct Stage {
    dir: TempDir,
    engine: Arc<Qatzip>,
}

impl Stage {
    fn new(script: &str) -> Stage {
        let dir = tempfile::tempdir().unwrap();
        let library = stage::install(dir.path(), script).unwrap();
        Stage::with(dir, library)
    }

    fn with(dir: TempDir, library: PathBuf) -> Stage {
        let sys = dir.path().join("sys");
        stage::machine(&sys).unwrap();
        let library = library.into_os_string();
        let engine = Arc::new(Qatzip::new(Places { sys, library }));
        keeps_its_contract(&*engine).expect("it is not tested yet");
        Stage { dir, engine }
    }

    /// Asserts that the self-test passes.
    #[track_caller]
    fn ready(self) -> Stage {
        let health = self.engine.self_test();
        assert_eq!(health.state, EngineState::Ready, "{}", health.reason);
        assert_eq!(keeps_its_contract(&*self.engine), None);
        self
    }

    fn refusal(&self) -> Refusal {
        self.engine.self_test();
        keeps_its_contract(&*self.engine).expect("it is in service")
    }

    /// The outcome of one job of this length.
    fn outcome(&self, len: usize) -> Outcome {
        let jobs = self
            .engine
            .run(compression_jobs(Algorithm::QatDeflate, &[len]));
        jobs.into_iter().next().unwrap().outcome
    }

    /// Waits until the library was called that often.
    fn wait_until_begun(&self, calls: u64) {
        let path = self.dir.path().join("libqatzip.so.3");
        // SAFETY: `new` demands a file whose constructors may run here: this double has none. The engine has it loaded,
        // so dropping this handle unloads nothing.
        let library = unsafe { libloading::Library::new(path) }.unwrap();
        // SAFETY: `get` demands the function's own type: doubles/ declares it so, and the function may be called from
        // any thread.
        unsafe {
            let wait: libloading::Symbol<unsafe extern "C" fn(u64)> =
                library.get("double_wait_until_begun").unwrap();
            wait(calls);
        }
    }

    fn fault(&self, len: usize) -> Fault {
        match self.outcome(len) {
            Outcome::Recompute(fault) => fault,
            other => panic!("{other:?}"),
        }
    }
}

fn judge(payload: &[u8], plain_len: usize) -> Option<Vec<u8>> {
    stock_decode(Algorithm::QatDeflate, payload, plain_len)
}

/// Lengths around members, calls and buffers.
const LENS: [usize; 12] = [
    4096,
    5000,
    CHUNK - 1,
    CHUNK,
    CHUNK + 1,
    300_001,
    session::CALL_LEN - 1,
    session::CALL_LEN,
    session::CALL_LEN + 1,
    session::CALL_LEN + 128,
    2 * session::CALL_LEN + 127,
    PLAIN_LEN_MAX,
];
const CHUNK: usize = abi::CHUNK_LEN;

/// Jobs that restore what hardware compressed from pages of these lengths.
fn restoring(lens: &[usize]) -> Vec<Job> {
    let mut jobs = compression_jobs(Algorithm::QatDeflate, lens);
    for job in &mut jobs {
        let plain = job.input().to_vec();
        let payload: Vec<u8> = plain
            .chunks(CHUNK)
            .flat_map(|chunk| members::hardware(chunk, 1))
            .collect();
        let input = Arc::get_mut(&mut job.input).unwrap();
        input[..payload.len()].copy_from_slice(&payload);
        job.input_range = 0..payload.len();
        job.output_range = 0..plain.len();
        job.task = Task::Decompress {
            plain_len: plain.len(),
        };
    }
    jobs
}

#[test]
fn a_healthy_device_does_every_job_both_ways() {
    let stage = Stage::new("").ready();
    let jobs = compression_jobs(Algorithm::QatDeflate, &LENS);
    assert_eq!(engine_contract(&*stage.engine, jobs, judge), LENS.len());
    let jobs = restoring(&LENS);
    assert_eq!(engine_contract(&*stage.engine, jobs, judge), LENS.len());
    assert_eq!(stage.engine.doubtful.load(Ordering::Relaxed), 0);
}

#[test]
fn members_are_of_64_kib_and_pass_qatzips_own_rules() {
    let stage = Stage::new("").ready();
    let plain_len = 5 * CHUNK + 17;
    let job = stage
        .engine
        .run(compression_jobs(Algorithm::QatDeflate, &[plain_len]))
        .remove(0);
    let Outcome::Done { len } = job.outcome else {
        panic!("{:?}", job.outcome)
    };
    let mut rest = &job.output()[..len];
    let mut lens = Vec::new();
    while !rest.is_empty() {
        let member = members::Member::read(rest).unwrap();
        lens.push(member.plain_len);
        rest = &rest[member.len()..];
    }
    assert_eq!(lens, [CHUNK, CHUNK, CHUNK, CHUNK, CHUNK, 17]);
}

#[test]
fn large_members_that_software_wrote_are_left_to_software() {
    let stage = Stage::new("").ready();
    let jobs = decompression_jobs(Algorithm::QatDeflate, &[60_000, 1 << 20]);
    let done = stage.engine.run(jobs);
    assert_eq!(done[0].outcome, Outcome::Done { len: 60_000 });
    assert_eq!(done[1].outcome, Outcome::Recompute(Fault::Busy));
}

#[test]
fn damaged_payloads_are_left_to_software_which_says_what_is_wrong() {
    let stage = Stage::new("").ready();
    for at in [0, 16, 20] {
        let mut jobs = restoring(&[CHUNK]);
        Arc::get_mut(&mut jobs[0].input).unwrap()[at] ^= 1;
        let done = stage.engine.run(jobs);
        assert_eq!(
            done[0].outcome,
            Outcome::Recompute(Fault::Busy),
            "byte {at}"
        );
    }
    let mut jobs = restoring(&[CHUNK]);
    Arc::get_mut(&mut jobs[0].input).unwrap()[500] ^= 1;
    let done = stage.engine.run(jobs);
    assert_eq!(
        done[0].outcome,
        Outcome::Recompute(Fault::Device { code: -4 })
    );
    assert_eq!(stage.engine.health().state, EngineState::Ready);
}

#[test]
fn noise_that_does_not_fit_the_job_is_left_to_software() {
    let stage = Stage::new("").ready();
    let mut jobs = compression_jobs(Algorithm::QatDeflate, &[CHUNK]);
    let input = Arc::get_mut(&mut jobs[0].input).unwrap();
    let noise = longshore_kit::random::noise(1, input.len());
    input.copy_from_slice(&noise);
    let room = payload_bound(Algorithm::QatDeflate, CHUNK);
    assert_eq!(jobs[0].output_range, 0..room);
    jobs[0].output_range = 0..room - 40;
    let done = stage.engine.run(jobs);
    assert_eq!(done[0].outcome, Outcome::Recompute(Fault::NoRoom));
    assert_eq!(
        stage.outcome(CHUNK),
        stage.outcome(CHUNK),
        "the session serves on"
    );
}

#[test]
fn many_threads_share_the_instances_and_more_are_refused() {
    let stage = Stage::new("instances 4").ready();
    assert_eq!(stage.engine.caps().calls_max, 4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let jobs = compression_jobs(Algorithm::QatDeflate, &[200_000; 2]);
                    assert_eq!(engine_contract(&*stage.engine, jobs, judge), 2);
                }
            });
        }
    });
    assert!(stage.engine.idle.lock().len() <= 4);

    let stage = Stage::new("instances 1\ncall 3 delay 300").ready();
    thread::scope(|scope| {
        scope.spawn(|| assert!(matches!(stage.outcome(CHUNK), Outcome::Done { .. })));
        // The first caller takes the only session.
        while !stage.engine.idle.lock().is_empty() {
            thread::yield_now();
        }
        assert_eq!(stage.fault(CHUNK), Fault::Busy);
    });
    assert!(matches!(stage.outcome(CHUNK), Outcome::Done { .. }));
}

#[test]
fn levels_are_mapped_and_a_session_of_another_level_gives_way() {
    let stage = Stage::new("").ready();
    let len_at = |level: i32| {
        let mut jobs = compression_jobs(Algorithm::QatDeflate, &[1 << 20]);
        jobs[0].task = Task::Compress {
            level: Level::Number(level),
        };
        match stage.engine.run(jobs)[0].outcome {
            Outcome::Done { len } => len,
            ref other => panic!("{other:?}"),
        }
    };
    let (low, high) = (len_at(1), len_at(9));
    assert!(high < low, "{high} {low}");
    assert_eq!(len_at(12), high);
    for level in 1..=9 {
        len_at(level);
    }
    assert!(stage.engine.idle.lock().len() <= stage.engine.caps().calls_max);
}

#[test]
fn every_error_code_leaves_its_job_to_software_and_the_next_job_is_served() {
    for (code, fault) in [
        (-2, Fault::Device { code: -2 }),
        (-3, Fault::NoRoom),
        (-5, Fault::Device { code: -5 }),
        (-100, Fault::Corrupt),
        (-101, Fault::Down),
        (-102, Fault::Down),
        (-103, Fault::Busy),
        (-104, Fault::Memory),
        (-116, Fault::Device { code: -116 }),
        (-200, Fault::Device { code: -200 }),
        (2, Fault::Device { code: 2 }),
        (11, Fault::Down),
        (13, Fault::Busy),
        (100, Fault::Down),
    ] {
        // A call that finds no room is made twice.
        let stage = Stage::new(&format!("call 3..4 code {code}")).ready();
        assert_eq!(stage.fault(CHUNK), fault, "{code}");
        if code != -3 {
            assert_eq!(stage.fault(CHUNK), fault, "{code}");
        }
        let jobs = compression_jobs(Algorithm::QatDeflate, &[CHUNK]);
        assert_eq!(engine_contract(&*stage.engine, jobs, judge), 1, "{code}");
    }
}

#[test]
fn no_room_once_is_tried_again_with_all_there_is() {
    let stage = Stage::new("call 3 code -3").ready();
    assert!(matches!(stage.outcome(CHUNK), Outcome::Done { .. }));
}

#[test]
fn parameters_that_are_refused_end_the_engines_service() {
    let stage = Stage::new("call 3 code -1").ready();
    assert_eq!(stage.fault(CHUNK), Fault::Device { code: -1 });
    assert_eq!(stage.engine.health().state, EngineState::Off);
    assert_eq!(stage.fault(CHUNK), Fault::Down);
}

#[test]
fn short_and_lying_results_are_never_done() {
    for (script, fault) in [
        ("short-input 1", Fault::Short),
        ("short-input 65536", Fault::Short),
        ("short-output 1", Fault::Corrupt),
        ("short-output 4000", Fault::Corrupt),
        ("short-output 1000000000", Fault::Short),
        ("lie 1", Fault::Corrupt),
        ("lie 4294967295", Fault::Corrupt),
        ("flip 0", Fault::Corrupt),
        ("flip 3", Fault::Corrupt),
        ("flip 9", Fault::Corrupt),
        ("flip 16", Fault::Corrupt),
    ] {
        let stage = Stage::new(&format!("call 3 {script}")).ready();
        assert_eq!(stage.fault(3 * CHUNK), fault, "{script}");
        let jobs = compression_jobs(Algorithm::QatDeflate, &[3 * CHUNK]);
        assert_eq!(engine_contract(&*stage.engine, jobs, judge), 1, "{script}");
    }
}

#[test]
fn bytes_that_a_device_writes_beyond_its_result_stay_in_its_memory() {
    let stage = Stage::new("call 3 tail 60000").ready();
    let mut jobs = compression_jobs(Algorithm::QatDeflate, &[CHUNK]);
    jobs[0].output.fill(0x77);
    let job = stage.engine.run(jobs).remove(0);
    let Outcome::Done { len } = job.outcome else {
        panic!("{:?}", job.outcome)
    };
    assert!(job.output[len..].iter().all(|byte| *byte == 0x77));
}

#[test]
fn a_call_that_never_returns_leaves_the_others_in_service() {
    let stage = Stage::new("instances 4\ncall 3 hang").ready();
    let engine = stage.engine.clone();
    thread::spawn(move || engine.run(compression_jobs(Algorithm::QatDeflate, &[CHUNK])));
    stage.wait_until_begun(3);
    for _ in 0..3 {
        let jobs = compression_jobs(Algorithm::QatDeflate, &LENS);
        assert_eq!(engine_contract(&*stage.engine, jobs, judge), LENS.len());
    }
}

#[test]
fn a_result_that_comes_late_is_written_to_memory_of_the_call_only() {
    let stage = Stage::new("call 3 late 23").ready();
    let engine = stage.engine.clone();
    let late = thread::spawn(move || engine.run(compression_jobs(Algorithm::QatDeflate, &[CHUNK])));
    stage.wait_until_begun(3);
    let meanwhile: Vec<_> = (0..20).map(|_| stage.outcome(CHUNK)).collect();
    let jobs = late.join().unwrap();
    assert_eq!(jobs[0].outcome, meanwhile[0]);
    let Outcome::Done { len } = jobs[0].outcome else {
        panic!("{:?}", jobs[0].outcome)
    };
    assert_eq!(
        judge(&jobs[0].output()[..len], CHUNK).unwrap(),
        pages(1, CHUNK)
    );
}

#[test]
fn memory_that_a_device_may_still_write_to_is_kept_and_counted() {
    let stage = Stage::new("call 3.. code -2").ready();
    for call in 1..=DOUBTFUL_MAX {
        assert_eq!(
            stage.engine.health().state,
            EngineState::Ready,
            "call {call}"
        );
        assert_eq!(stage.fault(CHUNK), Fault::Device { code: -2 });
    }
    assert_eq!(stage.engine.health().state, EngineState::Off);
    assert_eq!(stage.refusal().trouble, Trouble::MemoryLost);
}

#[test]
fn a_device_that_dies_and_comes_back_serves_again() {
    let stage = Stage::new("call 3..8 code -101").ready();
    for _ in 3..=8 {
        assert_eq!(stage.fault(CHUNK), Fault::Down);
    }
    assert!(matches!(stage.outcome(CHUNK), Outcome::Done { .. }));
}

#[test]
fn without_pinned_memory_our_own_serves() {
    let stage = Stage::new("unpinned").ready();
    let jobs = compression_jobs(Algorithm::QatDeflate, &LENS);
    assert_eq!(engine_contract(&*stage.engine, jobs, judge), LENS.len());
}

#[test]
fn a_library_that_compresses_in_software_after_all_is_not_taken_for_hardware() {
    // It writes one member for the whole call.
    let refusal = Stage::new("software").refusal();
    assert_eq!(refusal.trouble, Trouble::SelfTestFailed);
    assert!(refusal.text.contains("software"), "{}", refusal.text);
}

#[test]
fn every_reason_for_being_out_of_service_is_distinguished() {
    for (script, trouble, word) in [
        ("init -101", Trouble::InitializationFailed, "QZ_NOSW_NO_HW"),
        ("init -102", Trouble::InitializationFailed, "ulimit"),
        (
            "init 1",
            Trouble::ProcessWithoutDevice,
            "restart the program",
        ),
        (
            "setup -103",
            Trouble::SessionFailed,
            "QZ_NOSW_NO_INST_ATTACH",
        ),
        ("defaults wide", Trouble::VersionNotCompatible, "structures"),
        ("defaults other", Trouble::VersionNotCompatible, "defaults"),
        (
            "call 1 flip 5000",
            Trouble::SelfTestFailed,
            "does not inflate",
        ),
        (
            "call 1 flip 1",
            Trouble::SelfTestFailed,
            "does not compress (Corrupt)",
        ),
        ("call 1 code -2", Trouble::SelfTestFailed, "QZ_FAIL (-2)"),
        (
            "call 2 code -2",
            Trouble::SelfTestFailed,
            "does not decompress",
        ),
        (
            "call 2 flip 5000",
            Trouble::SelfTestFailed,
            "is not the original",
        ),
    ] {
        let stage = Stage::new(script);
        assert_eq!(stage.engine.health().state, EngineState::Probing);
        let refusal = stage.refusal();
        assert_eq!(refusal.trouble, trouble, "{script}: {}", refusal.text);
        assert!(refusal.text.contains(word), "{script}: {}", refusal.text);
        assert_eq!(stage.fault(CHUNK), Fault::Down, "{script}");
    }
}

/// The data of each member inflates to the original, and its own checksum of them is wrong: a restore would refuse it.
#[test]
fn a_device_whose_own_checksum_is_wrong_fails_its_self_test() {
    const FOOTER_LEN: usize = 8;
    let first = members::hardware(&isal::test_pattern()[..CHUNK], 1).len();
    for at in first - FOOTER_LEN..first - FOOTER_LEN / 2 {
        let refusal = Stage::new(&format!("call 1 flip {at}")).refusal();
        assert_eq!(refusal.trouble, Trouble::SelfTestFailed, "{at}");
        assert!(refusal.text.contains("CRC-32"), "{at}: {}", refusal.text);
    }
}

#[test]
fn missing_foreign_and_incomplete_libraries_are_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("libqatzip.so.3");
    let stage = Stage::with(dir, nowhere);
    assert_eq!(stage.refusal().trouble, Trouble::LibraryNotFound);
    std::fs::write(stage.dir.path().join("libqatzip.so.3"), b"not a library").unwrap();
    assert_eq!(stage.refusal().trouble, Trouble::LoadFailed);
    for symbol in [
        "qzInit",
        "qzCompress",
        "qzDecompress",
        "qzGetDefaultsDeflate",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let library = stage::install_without(dir.path(), symbol).unwrap();
        let refusal = Stage::with(dir, library).refusal();
        assert_eq!(refusal.trouble, Trouble::EntryPointMissing, "{symbol}");
        assert!(refusal.text.contains(symbol), "{}", refusal.text);
    }
    let dir = tempfile::tempdir().unwrap();
    let library = stage::install_without(dir.path(), "qzMalloc").unwrap();
    let stage = Stage::with(dir, library).ready();
    assert!(matches!(stage.outcome(CHUNK), Outcome::Done { .. }));
    let version = stage.engine.health().library_version.unwrap();
    assert_eq!(version, "libqatzip.so.3 (API 2.3)");
}

#[test]
fn the_library_is_not_loaded_where_sysfs_shows_no_device_that_serves() {
    // If the library were loaded, the process would end here.
    let dir = tempfile::tempdir().unwrap();
    let library = stage::install(dir.path(), "init die").unwrap();
    let engine = |name: &str| {
        Qatzip::new(Places {
            sys: dir.path().join(name),
            library: library.clone().into(),
        })
    };
    let none = engine("none");
    assert_eq!(none.health().state, EngineState::Absent);
    assert_eq!(none.self_test().state, EngineState::Absent);
    assert!(!none.found().hardware_detected);
    stage::endpoint(
        &dir.path().join("down"),
        "0000:6b:00.0",
        0x4940,
        "down",
        "dc",
    )
    .unwrap();
    let down = engine("down");
    let health = down.self_test();
    assert_eq!(
        (health.state, health.hardware.as_deref()),
        (EngineState::Absent, Some("1 × QAT 4xxx"))
    );
    assert!(
        health.reason.contains("systemctl enable --now qat"),
        "{}",
        health.reason
    );
    let off = Qatzip::new(Places {
        sys: dir.path().join("down"),
        library: "off".into(),
    });
    assert_eq!(off.self_test().state, EngineState::Off);
}

#[test]
fn a_device_that_appears_later_is_taken_when_the_self_test_is_run_again() {
    let dir = tempfile::tempdir().unwrap();
    let library = stage::install(dir.path(), "").unwrap();
    let sys = dir.path().join("sys");
    let engine = Qatzip::new(Places {
        sys: sys.clone(),
        library: library.into(),
    });
    assert_eq!(engine.self_test().state, EngineState::Absent);
    stage::machine(&sys).unwrap();
    assert_eq!(engine.self_test().state, EngineState::Ready);
    assert_eq!(
        engine.self_test().state,
        EngineState::Ready,
        "it is initialised once only"
    );
}

#[test]
fn a_process_that_saw_no_device_once_says_that_only_another_process_helps() {
    let stage = Stage::new("init -101");
    assert_eq!(stage.refusal().trouble, Trouble::InitializationFailed);
    assert_eq!(stage.refusal().trouble, Trouble::ProcessWithoutDevice);
    assert_eq!(stage.engine.health().state, EngineState::Off);
}

/// The same with Intel's own QATzip, if `scripts/qatzip-witness.sh` has built it with a simulated device.
#[test]
fn intels_own_library_does_every_job_both_ways_where_it_was_built() {
    let Some(library) = std::env::var_os("LONGSHORE_QATZIP_WITNESS") else {
        eprintln!(
            "skipped: LONGSHORE_QATZIP_WITNESS names no library; scripts/qatzip-witness.sh builds it"
        );
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::with(dir, library.into()).ready();
    let found = stage.engine.health();
    eprintln!("{:?}", found.library_version);
    for level in [1, 6, 9] {
        let mut jobs = compression_jobs(Algorithm::QatDeflate, &LENS);
        for job in &mut jobs {
            job.task = Task::Compress {
                level: Level::Number(level),
            };
        }
        assert_eq!(engine_contract(&*stage.engine, jobs, judge), LENS.len());
    }
    let jobs = restoring(&LENS);
    assert_eq!(engine_contract(&*stage.engine, jobs, judge), LENS.len());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let jobs = compression_jobs(Algorithm::QatDeflate, &[1 << 20; 2]);
                    assert_eq!(engine_contract(&*stage.engine, jobs, judge), 2);
                }
            });
        }
    });
    assert_eq!(stage.engine.doubtful.load(Ordering::Relaxed), 0);
}
