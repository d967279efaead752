//! Goal: the engine does every job or leaves it to software, with every fault that the libraries can report.
//! Method: a double of both libraries, driven by a script: healthy, and with every fault that the double can make.
//!
//! Not covered: a real GPU, its driver, the kernel's text, and speed.

use std::ffi::{CString, c_char};
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use libloading::Library as Loaded;
use longshore_codec::payload_bound;
use longshore_double_nvcomp::stage::{Installed, install};
use longshore_io::Pool;
use tempfile::TempDir;

use super::library::Library;
use super::*;
use crate::EngineState;
use crate::contract::{compression_jobs, engine_contract, gunzip, pages};
use crate::devices::contract::keeps_its_contract;

/// One copy of the double, with a script of its own.
struct Double {
    _dir: TempDir,
    installed: Installed,
    library: &'static Loaded,
}

impl Double {
    fn new(script: &str) -> Double {
        let dir = TempDir::new().unwrap();
        let installed = install(dir.path()).unwrap();
        let library = symbols::open(installed.cuda.as_os_str()).unwrap();
        let double = Double {
            _dir: dir,
            installed,
            library,
        };
        double.script(script);
        double
    }

    fn script(&self, script: &str) {
        let text = CString::new(script).unwrap();
        // SAFETY: a symbol must have the type under which it is called: the double defines `double_script` so. It wants
        // a text that ends with a zero byte and outlives the call, as this one does.
        let understood = unsafe {
            let set: libloading::Symbol<unsafe extern "C" fn(*const c_char) -> i32> =
                self.library.get("double_script").unwrap();
            set(text.as_ptr())
        };
        assert_eq!(understood, 0, "{script}");
    }

    fn calls(&self, name: &str) -> u64 {
        let name = CString::new(name).unwrap();
        // SAFETY: a symbol must have the type under which it is called: the double defines `double_calls` so. It wants a
        // name that ends with a zero byte and outlives the call, as this one does.
        unsafe {
            let calls: libloading::Symbol<unsafe extern "C" fn(*const c_char) -> u64> =
                self.library.get("double_calls").unwrap();
            calls(name.as_ptr())
        }
    }

    /// Waits until a function was called that often; a minute at most.
    fn wait_for_calls(&self, name: &str, calls: u64) {
        let began = std::time::Instant::now();
        while self.calls(name) < calls {
            assert!(began.elapsed() < Duration::from_secs(60), "{name}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn used_bytes(&self) -> u64 {
        // SAFETY: a symbol must have the type under which it is called: the double defines `double_used` so. It wants
        // nothing.
        unsafe {
            let used: libloading::Symbol<unsafe extern "C" fn() -> u64> =
                self.library.get("double_used").unwrap();
            used()
        }
    }

    fn release(&self) {
        // SAFETY: a symbol must have the type under which it is called: the double defines `double_release` so. It may be
        // called from any thread, at any time.
        unsafe {
            let release: libloading::Symbol<unsafe extern "C" fn()> =
                self.library.get("double_release").unwrap();
            release()
        }
    }

    /// Small batches: the double does everything on one core.
    fn options(&self) -> Options {
        Options {
            cuda: Some(self.installed.cuda.clone().into()),
            nvcomp: Some(self.installed.nvcomp.clone().into()),
            batch_bytes: 8 << 20,
            batches: 2,
            ..Options::default()
        }
    }

    fn engine(&self) -> Nvcomp {
        let engine = Nvcomp::open(self.options());
        keeps_its_contract(&engine).expect("it is not tested yet");
        engine
    }

    /// An engine that has passed its self-test; the faults begin after it.
    fn ready(&self, faults: &str) -> Nvcomp {
        let engine = self.engine();
        let health = engine.self_test();
        assert_eq!(health.state, EngineState::Ready, "{}", health.reason);
        assert_eq!(keeps_its_contract(&engine), None);
        self.script(faults);
        engine
    }
}

fn judged(engine: &Nvcomp, lens: &[usize]) -> usize {
    let jobs = compression_jobs(Algorithm::QatDeflate, lens);
    engine_contract(engine, jobs, gunzip)
}

const MIB: usize = 1 << 20;
/// 28 whole chunks in four jobs with one, and four jobs with less than one.
const LENS: [usize; 8] = [
    MIB,
    1,
    CHUNK,
    CHUNK - 1,
    10 * CHUNK + 77,
    255,
    CHUNK + 1,
    40_000,
];

fn faults(engine: &Nvcomp, lens: &[usize]) -> Vec<Option<Fault>> {
    let jobs = engine.run(compression_jobs(Algorithm::QatDeflate, lens));
    let fault = |job: &Job| match job.outcome {
        Outcome::Recompute(fault) => Some(fault),
        Outcome::Done { .. } => None,
        Outcome::Pending => panic!("pending"),
    };
    jobs.iter().map(fault).collect()
}

#[test]
fn a_healthy_device_does_every_job_with_either_version() {
    for version in [5100, 5200, 6000] {
        let double = Double::new(&format!("version={version}"));
        let engine = double.ready(&format!("version={version}"));
        assert_eq!(judged(&engine, &LENS), LENS.len());
        let health = engine.health();
        assert_eq!(health.hardware.unwrap(), "a double of a GPU");
        assert_eq!(health.driver_version.unwrap(), "CUDA 13.0");
        let dotted = format!("nvCOMP {}.{}.0", version / 1000, version % 1000 / 100);
        assert_eq!(health.library_version.unwrap(), dotted);
        assert_eq!(engine.chunks_failed(), 0);
        let facts = engine.facts().unwrap();
        assert!(facts.gathers && facts.checksums, "{facts:?}");
    }
}

#[test]
fn nothing_touches_the_device_before_the_self_test() {
    let double = Double::new("");
    let engine = double.engine();
    assert_eq!(engine.health().state, EngineState::Probing);
    assert_eq!(faults(&engine, &[MIB]), [Some(Fault::Down)]);
    assert_eq!(double.calls("cuInit"), 0);
}

#[test]
fn calls_larger_than_a_batch_are_done_in_turns() {
    let double = Double::new("");
    let engine = double.ready("");
    // 20 MiB in batches of 8 MiB, jobs of up to 4 MiB.
    let lens = [4 * MIB, 3 * MIB, MIB + 5, 4 * MIB, 4 * MIB, 4 * MIB - 1];
    let before = engine.timings().batches;
    assert_eq!(judged(&engine, &lens), lens.len());
    assert_eq!(engine.timings().batches - before, 3);
}

#[test]
fn concurrent_calls_have_memory_of_their_own_and_one_too_many_is_refused() {
    let double = Double::new("");
    let engine = double.ready("delay=cuEventSynchronize:20");
    let done: usize = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| (0..5).map(|_| judged(&engine, &LENS)).sum::<usize>()))
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).sum()
    });
    assert_eq!(done, 10 * LENS.len());

    let n = double.calls("cuEventSynchronize");
    let hang = |n: u64| format!("hang=cuEventSynchronize:{n} ");
    double.script(&(hang(n + 1) + &hang(n + 2)));
    std::thread::scope(|scope| {
        let busy: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| judged(&engine, &[MIB])))
            .collect();
        double.wait_for_calls("cuEventSynchronize", n + 2);
        assert_eq!(faults(&engine, &[MIB]), [Some(Fault::Busy)]);
        double.release();
        assert!(busy.into_iter().all(|call| call.join().unwrap() == 1));
    });
    assert_eq!(
        engine.health().state,
        EngineState::Ready,
        "busy is no fault"
    );
}

#[test]
fn restoring_is_left_to_software() {
    let double = Double::new("");
    let engine = double.ready("");
    assert!(!engine.caps().decompresses);
    let jobs = crate::contract::decompression_jobs(Algorithm::QatDeflate, &[MIB]);
    let done = engine.run(jobs);
    assert_eq!(done[0].outcome, Outcome::Recompute(Fault::Down));
}

#[test]
fn without_the_kernel_chunks_come_back_one_by_one() {
    for (script, why) in [("ptx=refuse", "does not load"), ("ptx=wrong", "is wrong")] {
        let double = Double::new(script);
        let engine = double.ready(script);
        assert!(!engine.facts().unwrap().gathers, "{why}");
        let before = double.calls("cuLaunchKernel");
        assert_eq!(judged(&engine, &LENS), LENS.len(), "{why}");
        assert_eq!(double.calls("cuLaunchKernel"), before, "{why}");
    }
}

#[test]
fn checksums_that_are_wrong_from_the_start_are_done_without() {
    let double = Double::new("crc=1");
    let engine = double.ready("crc=1");
    let facts = engine.facts().unwrap();
    assert!(!facts.checksums && facts.gathers, "{facts:?}");
    assert_eq!(judged(&engine, &LENS), LENS.len());
}

#[test]
fn chunks_that_fail_are_done_here_and_the_good_ones_kept() {
    for (script, whats) in [
        ("status=19:9", "a status"),
        ("long=9", "an impossible length"),
        ("silent=9", "no answer"),
        ("crc=9", "a damaged input"),
    ] {
        let double = Double::new("");
        let engine = double.ready(script);
        assert_eq!(judged(&engine, &[MIB; 4]), 4, "{whats}");
        assert_eq!(engine.chunks_failed(), 7, "{whats}: of 64");
        assert_eq!(engine.health().state, EngineState::Ready, "{whats}");
    }
}

#[test]
fn a_job_that_loses_many_chunks_is_left_to_software() {
    let double = Double::new("");
    let engine = double.ready("status=19:2");
    let code = Some(Fault::Device { code: 19 });
    assert_eq!(faults(&engine, &[MIB, 40_000]), [code, None]);
    double.script("long=2");
    assert_eq!(faults(&engine, &[MIB]), [Some(Fault::Corrupt)]);
}

/// Faults that the engine cannot see must be visible to its dispatcher: the contract's judge stands in for it.
#[test]
fn a_flipped_byte_and_a_short_length_are_visible_to_a_decoder() {
    for script in ["flip=5", "short=5"] {
        let double = Double::new("");
        let engine = double.ready(script);
        let jobs = engine.run(compression_jobs(Algorithm::QatDeflate, &[MIB]));
        let Outcome::Done { len } = jobs[0].outcome else {
            panic!("{script}: {:?}", jobs[0].outcome);
        };
        assert_eq!(gunzip(&jobs[0].output()[..len], MIB), None, "{script}");
    }
}

#[test]
fn a_device_that_makes_wrong_data_does_not_pass_the_self_test() {
    for script in ["flip=2", "short=3", "status=19:2"] {
        let double = Double::new(script);
        let health = double.engine().self_test();
        assert_eq!(health.state, EngineState::Off, "{script}");
        assert!(health.reason.contains("self-test"), "{}", health.reason);
    }
}

#[test]
fn incompressible_data_is_stored_and_fits() {
    let double = Double::new("");
    let engine = double.ready("");
    let pool = Pool::new(2, 2 * MIB).unwrap();
    let mut input = pool.take().unwrap();
    let noise = longshore_kit::random::noise(1, input.len());
    input.copy_from_slice(&noise);
    // One chunk in five shrinks.
    for chunk in input.chunks_exact_mut(CHUNK).step_by(5) {
        chunk.copy_from_slice(&pages(3, CHUNK));
    }
    let plain = input[..MIB + 1].to_vec();
    let job = Job {
        sequence: 1,
        task: Task::Compress { level: Level::High },
        input: Arc::new(input),
        input_range: 0..plain.len(),
        output: pool.take().unwrap(),
        output_range: 0..payload_bound(Algorithm::QatDeflate, plain.len()),
        outcome: Outcome::Pending,
    };
    assert_eq!(engine_contract(&engine, vec![job], gunzip), 1);
}

#[test]
fn levels_may_be_mixed_and_higher_ones_get_more_scratch_memory() {
    let double = Double::new("");
    let engine = double.ready("");
    let used = double.used_bytes();
    let mut jobs = compression_jobs(Algorithm::QatDeflate, &[4 * MIB, MIB, MIB, MIB]);
    for (job, level) in jobs.iter_mut().zip([9, 1, 4, 9]) {
        job.task = Task::Compress {
            level: Level::Number(level),
        };
    }
    assert_eq!(engine_contract(&engine, jobs, gunzip), 4);
    assert!(double.used_bytes() > used);
}

#[test]
fn an_output_that_is_too_small_is_the_jobs_trouble_alone() {
    let double = Double::new("");
    let engine = double.ready("");
    let mut jobs = compression_jobs(Algorithm::QatDeflate, &[MIB, MIB]);
    jobs[0].output_range.end = 1000;
    let done = engine.run(jobs);
    assert_eq!(done[0].outcome, Outcome::Recompute(Fault::NoRoom));
    assert!(matches!(done[1].outcome, Outcome::Done { .. }));
}

#[test]
fn an_error_that_ends_the_context_is_final() {
    for (call, code) in [
        ("cuMemcpyHtoDAsync_v2", 700),
        ("cuEventSynchronize", 719),
        ("nvcompBatchedDeflateCompressAsync", 700),
        ("cuLaunchKernel", 700),
        ("cuMemcpyDtoHAsync_v2", 214),
    ] {
        let double = Double::new("");
        let engine = double.ready(&format!(
            "fail={call}:{code}:{}:1",
            calls_of_one_batch(call) + 1
        ));
        let found: Vec<_> = (0..3).flat_map(|_| faults(&engine, &[MIB])).collect();
        assert_eq!(found[0], None, "{call}: the first still works");
        assert!(
            matches!(found[1], Some(Fault::Device { .. })),
            "{call}: {found:?}"
        );
        assert_eq!(found[2], Some(Fault::Down), "{call}");
        let health = engine.health();
        assert_eq!(health.state, EngineState::Off, "{call}: {}", health.reason);
        assert!(
            health.reason.contains("restart the program"),
            "{}",
            health.reason
        );
        // Another self-test does not bring it back either.
        assert_eq!(engine.self_test().state, EngineState::Off, "{call}");
    }
}

/// How often the self-test of a healthy device and one batch make a call.
fn calls_of_one_batch(call: &str) -> u64 {
    let double = Double::new("");
    let engine = double.ready("");
    assert_eq!(faults(&engine, &[MIB]), [None]);
    double.calls(call)
}

#[test]
fn other_errors_suspend_and_a_self_test_brings_it_back() {
    let double = Double::new("");
    let engine = double.ready("");
    let n = double.calls("cuMemcpyHtoDAsync_v2");
    double.script(&format!("fail=cuMemcpyHtoDAsync_v2:1:{}:1", n + 1));
    assert_eq!(faults(&engine, &[MIB]), [Some(Fault::Device { code: 1 })]);
    let health = engine.health();
    assert_eq!(health.state, EngineState::Suspended);
    assert!(
        health.reason.contains("CUDA_ERROR_INVALID_VALUE (1)"),
        "{}",
        health.reason
    );
    assert_eq!(engine.self_test().state, EngineState::Ready);
    assert_eq!(judged(&engine, &LENS), LENS.len());
}

#[test]
fn memory_that_does_not_suffice_halves_batches_until_they_are_too_small() {
    // 150 chunks fit in half of this with any number of batches; then another program takes nearly all.
    let double = Double::new("memory=1024");
    let options = Options {
        batch_bytes: 64 << 20,
        ..double.options()
    };
    let engine = Nvcomp::open(options);
    assert_eq!(engine.self_test().state, EngineState::Ready);
    let whole = engine.facts().unwrap().batch_bytes;
    assert!((8 * MIB..64 * MIB).contains(&whole), "{whole}");

    let n = double.calls("cuMemcpyHtoDAsync_v2");
    double.script(&format!(
        "memory=1024 fail=cuMemcpyHtoDAsync_v2:2:{}:1",
        n + 1
    ));
    assert_eq!(faults(&engine, &[MIB]), [Some(Fault::Memory)]);
    assert_eq!(engine.health().state, EngineState::Suspended);
    assert_eq!(engine.self_test().state, EngineState::Ready);
    let half = engine.facts().unwrap().batch_bytes;
    assert!(half <= whole / 2, "{half} of {whole}");
    assert_eq!(judged(&engine, &LENS), LENS.len());

    let starved = Double::new("memory=1024 taken=1020");
    let health = starved.engine().self_test();
    assert_eq!(health.state, EngineState::Off, "{}", health.reason);
    assert!(
        health.reason.contains("no memory for batches of 8 MiB"),
        "{}",
        health.reason
    );
}

#[test]
fn memory_that_others_take_meanwhile_means_smaller_batches() {
    let double = Double::new("memory=2048 taken=1500");
    let options = Options {
        batch_bytes: 64 << 20,
        ..double.options()
    };
    let engine = Nvcomp::open(options);
    let health = engine.self_test();
    assert_eq!(health.state, EngineState::Ready, "{}", health.reason);
    assert!(engine.facts().unwrap().batch_bytes < 64 * MIB);
    assert_eq!(judged(&engine, &LENS), LENS.len());
}

#[test]
fn a_call_that_hangs_keeps_its_batchs_memory_and_nothing_else() {
    let double = Double::new("");
    let engine = Arc::new(double.ready(""));
    let n = double.calls("cuEventSynchronize");
    double.script(&format!("hang=cuEventSynchronize:{}", n + 1));
    let (sender, receiver) = mpsc::channel();
    let hung = std::thread::spawn({
        let engine = Arc::clone(&engine);
        move || {
            sender.send(judged(&engine, &LENS)).unwrap();
        }
    });
    double.wait_for_calls("cuEventSynchronize", n + 1);
    // Other calls go on in the other batch's memory, and status queries do not block.
    assert_eq!(judged(&engine, &LENS), LENS.len());
    assert_eq!(engine.health().state, EngineState::Ready);
    assert_eq!(engine.facts().unwrap().batches, 1);
    assert_eq!(receiver.try_recv(), Err(mpsc::TryRecvError::Empty));
    double.release();
    assert_eq!(
        receiver.recv_timeout(Duration::from_secs(60)),
        Ok(LENS.len())
    );
    hung.join().unwrap();
}

#[test]
fn a_machine_without_a_gpu_is_named_and_no_missing_library() {
    let engine = Nvcomp::open(Options::default());
    let refusal = |engine: &Nvcomp| engine.found().refusal.map(|r| r.trouble);
    let at_first = refusal(&engine);
    engine.self_test();
    if at_first == Some(door::Trouble::HardwareNotFound) && !engine.found().hardware_detected {
        assert_eq!(refusal(&engine), at_first);
    } else {
        eprintln!("left out: this machine has a GPU, or looks so");
    }
}

#[test]
fn a_missing_or_unknown_library_is_named_and_not_tried_further() {
    let double = Double::new("");
    for (options, trouble, why) in [
        (
            Options {
                cuda: Some("/nowhere/libcuda.so.1".into()),
                ..double.options()
            },
            door::Trouble::LibraryNotFound,
            "cannot load /nowhere/libcuda.so.1",
        ),
        (
            Options {
                nvcomp: Some("/nowhere/libnvcomp.so.5".into()),
                ..double.options()
            },
            door::Trouble::LibraryNotFound,
            "cannot load /nowhere/libnvcomp.so.5",
        ),
        (
            Options {
                nvcomp: Some("off".into()),
                ..double.options()
            },
            door::Trouble::SwitchedOff,
            "LONGSHORE_NVCOMP=off",
        ),
        (
            Options {
                cuda: Some("libc.so.6".into()),
                ..double.options()
            },
            door::Trouble::EntryPointMissing,
            "it has no function cuInit",
        ),
    ] {
        let engine = Nvcomp::open(options);
        let health = engine.self_test();
        let refusal = keeps_its_contract(&engine).unwrap();
        assert_eq!(refusal.trouble, trouble, "{why}");
        assert_eq!(health.state, trouble.state(), "{why}");
        assert!(health.reason.contains(why), "{}", health.reason);
    }
    for version in [4300, 7000, 2600] {
        double.script(&format!("version={version}"));
        let engine = double.engine();
        let health = engine.self_test();
        let trouble = engine.found().refusal.unwrap().trouble;
        assert_eq!(trouble, door::Trouble::VersionNotCompatible);
        let number = format!(
            "it is nvCOMP {}.{}.0;",
            version / 1000,
            version % 1000 / 100
        );
        assert!(health.reason.contains(&number), "{}", health.reason);
        assert!(health.reason.contains("5.x and 6.x"), "{}", health.reason);
    }
    assert_eq!(double.calls("cuInit"), 0);
}

/// A library with the right name and version that lacks a function.
#[test]
fn a_missing_function_is_named() {
    let dir = TempDir::new().unwrap();
    let build = |version: u32| -> PathBuf {
        let (source, library) = (
            dir.path().join("a.c"),
            dir.path().join(format!("{version}.so")),
        );
        let text = format!(
            "int nvcompGetProperties(unsigned *p) {{ p[0] = {version}; p[1] = 0; return 0; }}"
        );
        fs::write(&source, text).unwrap();
        let built = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .status();
        assert!(built.unwrap().success());
        library
    };
    for (version, function) in [
        (5200, "nvcompBatchedDeflateCompressGetTempSizeAsync"),
        (6000, "nvcompBatchedDeflateCompressGetTempSize"),
    ] {
        let refusal = Library::load(Some(build(version).as_os_str()))
            .err()
            .unwrap()
            .text;
        assert!(
            refusal.ends_with(&format!("it has no function {function}")),
            "{refusal}"
        );
    }
}

#[test]
fn no_gpu_is_absence_and_a_gpu_in_trouble_is_not() {
    for (script, state, why) in [
        ("gpus=0", EngineState::Absent, "CUDA_ERROR_NO_DEVICE (100)"),
        (
            "fail=cuInit:100:1:0",
            EngineState::Absent,
            "CUDA_ERROR_NO_DEVICE (100)",
        ),
        (
            "fail=cuDevicePrimaryCtxRetain:214:1:0",
            EngineState::Off,
            "ECC_UNCORRECTABLE",
        ),
    ] {
        let double = Double::new(script);
        let engine = double.engine();
        let health = engine.self_test();
        assert_eq!(health.state, state, "{script}: {}", health.reason);
        assert!(health.reason.contains(why), "{}", health.reason);
        assert_eq!(faults(&engine, &[MIB]), [Some(Fault::Down)]);
    }
}

/// Goal: batches are usually of 64 MiB, and shorter where all of them would take more than an eighth of the memory.
#[test]
fn a_small_machine_gets_short_batches() {
    let gib = |n: u64| options::batch_bytes_within(n << 30);
    assert_eq!((gib(128), gib(16)), (64 * MIB, 64 * MIB));
    assert_eq!(gib(4), 26_804_224);
    assert_eq!((gib(1), gib(0)), (8 * MIB, 8 * MIB));
    assert_eq!(options::batch_bytes_within(u64::MAX), 64 * MIB);
}

/// Goal: no call to nvCOMP is made for jobs that are shorter than a chunk: it refuses checksums of no chunks.
#[test]
fn jobs_without_a_whole_chunk_stay_on_the_cpu() {
    let double = Double::new("");
    let engine = double.ready("");
    let calls = |name: &str| double.calls(name);
    let before = calls("nvcompBatchedCRC32Async");
    assert_eq!(judged(&engine, &[1, 255, 65_535]), 3);
    assert_eq!(calls("nvcompBatchedCRC32Async"), before);
    assert_eq!(engine.health().state, EngineState::Ready);
}

/// Goal: checksums that nvCOMP refuses to compute cost the checksums, and not the device; compression that it refuses
/// costs the device.
#[test]
fn a_device_without_checksums_is_used_without_them() {
    let double = Double::new("fail=nvcompBatchedCRC32Async:10000:1:0");
    let engine = double.engine();
    let health = engine.self_test();
    assert_eq!(health.state, EngineState::Ready, "{}", health.reason);
    assert!(!engine.facts().unwrap().checksums);
    assert_eq!(judged(&engine, &LENS), LENS.len());
    let double = Double::new("fail=nvcompBatchedDeflateCompressAsync:10000:1:0");
    let health = double.engine().self_test();
    assert_eq!(health.state, EngineState::Suspended, "{}", health.reason);
    let why = "nvcompBatchedDeflateCompressAsync answered internal error (10000)";
    assert!(health.reason.contains(why), "{}", health.reason);
}

#[test]
fn everything_is_given_back_in_the_end() {
    let double = Double::new("");
    let engine = double.ready("");
    assert_eq!(judged(&engine, &LENS), LENS.len());
    assert!(double.used_bytes() > 0);
    drop(engine);
    assert_eq!(double.used_bytes(), 0);
    assert_eq!(double.calls("cuDevicePrimaryCtxRelease_v2"), 1);
}

#[test]
fn the_device_check_gets_answers_and_its_memory_is_returned() {
    let double = Double::new("memory=1024");
    let engine = double.engine();
    assert!(engine.copy_rates(MIB, 1).is_err(), "not ready");
    assert_eq!(engine.self_test().state, EngineState::Ready);
    let rates = engine.copy_rates(MIB, 3).unwrap();
    assert!(
        rates.to_device_bytes_per_s > 0.0
            && rates.from_device_bytes_per_s > 0.0
            && rates.both_bytes_per_s > 0.0
    );
    let used = double.used_bytes();
    let held = engine.hold_memory(20 * MIB).unwrap();
    assert_eq!(double.used_bytes() - used, held.bytes as u64);
    assert!(engine.facts().unwrap().memory_free_bytes <= 21 * MIB);
    let starved = double.engine();
    assert_eq!(
        starved.self_test().state,
        EngineState::Off,
        "no room for another"
    );
    assert_eq!(
        judged(&engine, &LENS),
        LENS.len(),
        "what has its memory goes on"
    );
    drop(held);
    assert_eq!(double.engine().self_test().state, EngineState::Ready);
}
