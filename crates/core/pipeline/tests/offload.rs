//! Goal: whatever an accelerator does, a backup restores bit for bit, ends in time, and reports which engine did what.
//! Method: an accelerator made of a clock and a script (`accel::scripted`) inside the shipped pipeline. It takes the
//! time of a device and fails as scripted: refusals; short, swapped, damaged, missing and late results; hangs.
//! Not covered: the libraries themselves (their doubles do that), and hardware.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::*;
use longshore_accel::dispatch::InService;
use longshore_accel::scripted::{Act, Pace, ScriptedEngine};
use longshore_accel::{EngineState, Fault};
use longshore_codec::Algorithm;
use longshore_crypt::{Identities, Identity, Keyring, Recipients};
use longshore_io::HostClock;
use longshore_media::DeviceSpec;
use longshore_pipeline::{
    BackupReport, EngineShare, Limit, Objective, Offload, OffloadMode, RunContext, SourceSpec,
    Tuning, VerifyEngine,
};
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};

const QAT: Algorithm = Algorithm::QatDeflate;
const MS: Duration = Duration::from_millis(1);
const QUICK: Pace = Pace {
    latency: Duration::from_micros(200),
    bytes_per_s: 0,
};

fn scripted(script: impl Fn(u64) -> Act + Send + Sync + 'static) -> ScriptedEngine {
    ScriptedEngine::new(Arc::new(HostClock), QAT, QUICK, script).with_caps(|caps| {
        caps.batch_bytes = 128 << 10..512 << 10;
    })
}

fn context_with(engines: Vec<Arc<ScriptedEngine>>) -> RunContext {
    let mut context = context();
    context.accelerators = engines
        .into_iter()
        .map(|engine| InService::new(engine))
        .collect();
    context
}

fn offload(mode: OffloadMode) -> Offload {
    Offload {
        mode,
        // Long compared with a call that does not hang, even on a busy machine.
        hang_bound: 3000 * MS,
        ..Offload::default()
    }
}

/// Small buffers, so that little data makes many blocks.
const TUNING: Tuning = Tuning {
    buffer_count: None,
    buffer_bytes: Some(64 << 10),
};

/// Backs `source` up with an accelerator, restores it with software alone, and compares.
fn round_trip(
    context: &RunContext,
    source: &Path,
    stripes_count: usize,
    change: impl FnOnce(&mut longshore_pipeline::BackupRequest),
) -> BackupReport {
    let dir = tempfile::tempdir().unwrap();
    let devices = stripes(dir.path(), stripes_count);
    let spec = SourceSpec::Files(vec![source.into()]);
    let mut request = backup_request(spec, devices.clone(), QAT);
    request.tuning = TUNING;
    request.offload = offload(OffloadMode::Hardware);
    change(&mut request);
    let report = backup(context, request).unwrap();
    let out = dir.path().join("out");
    restore(&common::context(), restore_request(devices, &out)).unwrap();
    assert_eq!(describe(&out), describe(source));
    report
}

fn share<'a>(report: &'a BackupReport, name: &str) -> &'a EngineShare {
    let found = report.run.engines.iter().find(|e| e.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {:?}", report.run.engines))
}

fn source(bytes: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("data"), content(7, bytes)).unwrap();
    dir
}

/// Blocks that could be given to an accelerator: those of 64 KiB.
fn blocks(report: &BackupReport) -> u64 {
    report.run.engines.iter().map(|e| e.blocks).sum()
}

#[test]
fn in_hardware_mode_the_device_does_everything_that_is_worth_a_request() {
    for stripes in [1, 3] {
        let source = source(6 << 20);
        let engine = Arc::new(scripted(|_| Act::Well));
        let context = context_with(vec![engine.clone()]);
        let report = round_trip(&context, source.path(), stripes, |_| {});
        let device = share(&report, "scripted");
        // Except blocks that the writer waited for while a busy machine delayed the device's thread.
        let (blocks, hedged) = (device.blocks, device.hedged);
        assert_eq!(blocks + hedged, 96, "{report:?}");
        assert_eq!(device.plain_bytes, blocks << 16);
        assert_eq!((device.recomputed, device.faults_total()), (hedged, 0));
        assert_eq!(
            device.verified_count, blocks,
            "the first results are all decoded"
        );
        assert!(engine.calls() < 96, "in batches");
        assert!(hedged > 0 || device.calls == engine.calls());
    }
}

#[test]
fn a_device_that_everybody_waits_for_is_the_limit_that_is_named() {
    let source = source(4 << 20);
    let slow = Pace {
        latency: 50 * MS,
        bytes_per_s: 0,
    };
    let engine = ScriptedEngine::new(Arc::new(HostClock), QAT, slow, |_| Act::Well);
    let engine = engine.with_caps(|caps| caps.batch_bytes = 64 << 10..64 << 10);
    let report = round_trip(
        &context_with(vec![Arc::new(engine)]),
        source.path(),
        1,
        |_| {},
    );
    assert_eq!(report.run.limit, Limit::Engine, "{:?}", report.run);
}

#[test]
fn odd_trees_come_back_in_both_modes() {
    let tree = tempfile::tempdir().unwrap();
    odd_tree(tree.path());
    for mode in [OffloadMode::Hardware, OffloadMode::Hybrid] {
        let context = context_with(vec![Arc::new(scripted(|_| Act::Well))]);
        let report = round_trip(&context, tree.path(), 2, |request| {
            request.offload = offload(mode);
        });
        assert!(share(&report, "scripted").blocks > 0, "{mode:?}");
        assert_eq!(report.run.engines.len(), 2);
    }
}

#[test]
fn every_fault_costs_blocks_of_the_device_and_none_of_the_backup() {
    for act in Act::ALL {
        let source = source(3 << 20);
        let engine = Arc::new(scripted(
            move |call| if call == 1 { act } else { Act::Well },
        ));
        let context = context_with(vec![engine.clone()]);
        let report = round_trip(&context, source.path(), 1, |_| {});
        engine.release();
        let device = share(&report, "scripted");
        assert_eq!(blocks(&report), 48, "{act:?}: {report:?}");
        let harmless = matches!(act, Act::Well | Act::Late(_) | Act::Reverse);
        // A call with one block has nothing to swap.
        if !matches!(act, Act::Swap) {
            // On a busy machine the writer may also have waited for a successful call.
            let hedged = if harmless { device.hedged } else { 0 };
            let recomputed = device.recomputed - hedged;
            assert_eq!(recomputed == 0, harmless, "{act:?}: {device:?}");
            // Blocks in a hanging call are done again when the writer has waited long enough; a short backup may end
            // before the call counts as hanging.
            let noticed =
                device.faults_total() + u64::from(matches!(act, Act::Hang)) * device.hedged;
            assert_eq!(noticed == 0, harmless, "{act:?}: {device:?}");
        }
        assert!(device.blocks > 0, "{act:?}: call 0 went well");
    }
}

/// Goal: blocks are encrypted after an accelerator has compressed them, also where it fails: the set opens for its recipient alone, and each
/// block is there once.
#[test]
fn what_a_device_compressed_is_encrypted_whatever_becomes_of_its_requests() {
    let identity = Identity::new_hybrid().unwrap();
    let recipients = Recipients::new(vec![identity.recipient()], false).unwrap();
    let reading = RunContext {
        keyring: Arc::new(Keyring::new(Identities::new(vec![identity]), true)),
        ..common::context()
    };
    let source = source(6 << 20);
    for mode in [OffloadMode::Hardware, OffloadMode::Hybrid] {
        let engine = Arc::new(scripted(|call| match call % 7 {
            3 => Act::Half(Fault::Busy),
            _ => Act::Well,
        }));
        let dir = tempfile::tempdir().unwrap();
        let devices = stripes(dir.path(), 2);
        let spec = SourceSpec::Files(vec![source.path().into()]);
        let mut request = backup_request(spec, devices.clone(), QAT);
        request.tuning = TUNING;
        request.offload = offload(mode);
        request.encrypt_to = Some(recipients.clone());
        let report = backup(&context_with(vec![engine.clone()]), request).unwrap();
        assert!(
            share(&report, "scripted").blocks > 0,
            "{mode:?}: {report:?}"
        );
        assert_eq!(blocks(&report), 96, "{mode:?}");
        let restoring = |to: &str| restore_request(devices.clone(), &dir.path().join(to));
        let closed = restore(&common::context(), restoring("no")).unwrap_err();
        assert!(
            closed.is_closed() && !dir.path().join("no").exists(),
            "{closed}"
        );
        restore(&reading, restoring("out")).unwrap();
        let out = describe(&dir.path().join("out"));
        assert_eq!(out, describe(source.path()), "{mode:?}");
    }
}

#[test]
fn two_wrong_results_end_its_service_and_one_does_not() {
    for (wrong, state) in [(1, "ready"), (2, "off")] {
        let source = source(4 << 20);
        let engine = scripted(move |call| match call {
            2 => Act::FlipBody,
            3 if wrong == 2 => Act::FlipFooter,
            _ => Act::Well,
        })
        // One block in each call.
        .with_caps(|caps| caps.batch_bytes = 1..1);
        let context = context_with(vec![Arc::new(engine)]);
        let report = round_trip(&context, source.path(), 1, |_| {});
        let device = share(&report, "scripted");
        assert_eq!(
            (device.verify_failures, device.state),
            (wrong, state),
            "{device:?}"
        );
        assert_eq!(
            context.accelerators[0].state().0 == EngineState::Off,
            wrong == 2
        );
        assert!(!report.run.warnings.is_empty(), "an alarm");
    }
}

#[test]
fn a_damaged_body_passes_unseen_only_where_nothing_is_decoded() {
    // The reason for decoding: lengths, framing and the footer's CRC-32 are all correct.
    let source = source(2 << 20);
    let dir = tempfile::tempdir().unwrap();
    let mut outcomes = Vec::new();
    for verify in [VerifyEngine::None, VerifyEngine::Full] {
        let context = context_with(vec![Arc::new(scripted(|_| Act::FlipBody))]);
        let devices = stripes(&dir.path().join(format!("{verify:?}")), 1);
        std::fs::create_dir(dir.path().join(format!("{verify:?}"))).unwrap();
        let spec = SourceSpec::Files(vec![source.path().into()]);
        let mut request = backup_request(spec, devices.clone(), QAT);
        request.tuning = TUNING;
        request.offload = offload(OffloadMode::Hardware);
        request.offload.verify = verify;
        backup(&context, request).unwrap();
        outcomes.push(verify_is_valid(devices));
    }
    assert_eq!(outcomes, [false, true]);
}

fn verify_is_valid(devices: Vec<DeviceSpec>) -> bool {
    verify(&common::context(), devices).unwrap().is_valid()
}

#[test]
fn a_suspended_device_comes_back_after_its_self_test() {
    // Its first retry comes a second later, so the source must last longer: its rate is limited.
    let source = source(6 << 20);
    let tested = Arc::new(AtomicBool::new(false));
    let seen = tested.clone();
    let engine = scripted(|call| match call {
        3 => Act::Refuse(Fault::Device { code: -2 }),
        _ => Act::Well,
    })
    .with_self_test(move || {
        seen.store(true, Ordering::Relaxed);
        EngineState::Ready
    });
    let engine = Arc::new(engine);
    let context = context_with(vec![engine.clone()]);
    let report = round_trip(&context, source.path(), 1, |request| {
        request.limits.rate_bytes_per_s = Some(3 << 20);
    });
    let device = share(&report, "scripted");
    assert!(tested.load(Ordering::Relaxed), "{device:?}");
    assert_eq!(device.state, "ready");
    assert!(engine.calls() > 5, "it served again: {device:?}");
    assert!(device.blocks < 96 && device.blocks > 10, "{device:?}");
}

#[test]
fn a_hang_is_given_up_within_five_seconds_by_default() {
    assert_eq!(Offload::default().hang_bound, Duration::from_secs(5));
}

#[test]
fn a_device_whose_every_call_hangs_keeps_only_its_own_buffers() {
    for stripes in [1, 2] {
        let source = source(8 << 20);
        let engine = Arc::new(scripted(|_| Act::Hang));
        let context = context_with(vec![engine.clone()]);
        let began = Instant::now();
        let report = round_trip(&context, source.path(), stripes, |request| {
            request.offload.hang_bound = 30 * MS;
        });
        assert!(began.elapsed() < Duration::from_secs(20));
        let device = share(&report, "scripted");
        assert_eq!((device.blocks, blocks(&report)), (0, 128), "{device:?}");
        assert!(device.faults["hung"] > 0);
        assert_ne!(device.state, "ready");
        // Their writes now have no effect.
        engine.release();
    }
}

#[test]
fn a_small_explicit_buffer_count_still_ends_with_hung_calls() {
    for count in [1, 2, 3, 4, 6, 9] {
        for mode in [OffloadMode::Hardware, OffloadMode::Hybrid] {
            let source = source(2 << 20);
            let engine = Arc::new(scripted(|call| match call % 3 {
                1 => Act::Hang,
                _ => Act::Well,
            }));
            let context = context_with(vec![engine.clone()]);
            let report = round_trip(&context, source.path(), 1, |request| {
                request.tuning.buffer_count = Some(count);
                request.offload = offload(mode);
                request.offload.hang_bound = 30 * MS;
            });
            assert_eq!(blocks(&report), 32, "{count} buffers");
            assert_eq!(report.run.plan.buffer_count, count);
            engine.release();
        }
    }
}

#[test]
fn the_printed_memory_bound_contains_what_accelerators_take_for_themselves() {
    let source = source(1 << 20);
    let bound = |staging_bytes| {
        let engine = scripted(|_| Act::Well).with_caps(|caps| caps.staging_bytes = staging_bytes);
        let context = context_with(vec![Arc::new(engine)]);
        round_trip(&context, source.path(), 1, |_| {})
            .run
            .plan
            .memory_bytes
    };
    assert_eq!(bound(50 << 20), bound(0) + (50 << 20));
}

#[test]
fn hybrid_uses_both() {
    let source = source(12 << 20);
    let engine = scripted(|_| Act::Well).with_caps(|caps| caps.calls_max = 1);
    let context = context_with(vec![Arc::new(engine)]);
    let report = round_trip(&context, source.path(), 1, |request| {
        request.offload = offload(OffloadMode::Hybrid);
    });
    let (device, software) = (share(&report, "scripted"), &report.run.engines[0]);
    assert!(
        device.blocks > 0 && software.blocks > 0,
        "{:?}",
        report.run.engines
    );
    assert_eq!(blocks(&report), 192);
    assert!(report.run.plan.engine.contains(" + "));
}

#[test]
fn software_mode_and_auto_without_a_device_never_call_one() {
    let source = source(1 << 20);
    let engine = Arc::new(scripted(|_| Act::Well));
    let context = context_with(vec![engine.clone()]);
    let report = round_trip(&context, source.path(), 1, |request| {
        request.offload = Offload::default();
    });
    assert_eq!((engine.calls(), report.run.engines.len()), (0, 1));
    let report = round_trip(&common::context(), source.path(), 1, |request| {
        request.offload = offload(OffloadMode::Auto);
    });
    assert!(report.run.plan.notices.is_empty());
    let report = round_trip(&common::context(), source.path(), 1, |_| {});
    let notices = &report.run.plan.notices;
    assert!(
        notices
            .iter()
            .any(|n| n.contains("software compresses everything")),
        "{notices:?}"
    );
}

#[test]
fn auto_takes_the_mode_that_its_objective_wants() {
    for (objective, name) in [
        (Objective::Cpu, "scripted"),
        (Objective::Time, "scripted + "),
    ] {
        let source = source(1 << 20);
        let context = context_with(vec![Arc::new(scripted(|_| Act::Well))]);
        let report = round_trip(&context, source.path(), 1, |request| {
            request.offload = offload(OffloadMode::Auto);
            request.offload.objective = objective;
        });
        let engine = &report.run.plan.engine;
        assert!(engine.starts_with(name), "{objective:?}: {engine}");
        assert_eq!(engine.contains(" + "), objective == Objective::Time);
    }
}

#[test]
fn a_cancelled_backup_ends_though_its_device_hangs() {
    let source = source(8 << 20);
    let engine = Arc::new(scripted(|_| Act::Hang));
    let context = context_with(vec![engine.clone()]);
    let dir = tempfile::tempdir().unwrap();
    let spec = SourceSpec::Files(vec![source.path().into()]);
    let mut request = backup_request(spec, stripes(dir.path(), 1), QAT);
    request.offload = Offload {
        hang_bound: Duration::from_secs(3600),
        ..offload(OffloadMode::Hardware)
    };
    let cancel = context.cancel.clone();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(300 * MS);
        cancel.store(true, Ordering::Relaxed);
    });
    let began = Instant::now();
    let result = backup(&context, request);
    assert!(result.is_err());
    assert!(began.elapsed() < Duration::from_secs(20));
    canceller.join().unwrap();
    engine.release();
}

/// Restores with an accelerator a set compressed by software; compares, and returns the engines' shares.
fn restore_with(
    context: &RunContext,
    source: &Path,
    mode: OffloadMode,
) -> longshore_pipeline::RestoreReport {
    let dir = tempfile::tempdir().unwrap();
    let devices = stripes(dir.path(), 2);
    let spec = SourceSpec::Files(vec![source.into()]);
    let mut request = backup_request(spec, devices.clone(), QAT);
    request.tuning = TUNING;
    backup(&common::context(), request).unwrap();
    let out = dir.path().join("out");
    let mut request = restore_request(devices, &out);
    request.offload = offload(mode);
    let report = restore(context, request).unwrap();
    assert_eq!(describe(&out), describe(source));
    report
}

#[test]
fn a_device_restores_what_software_compressed_and_no_fault_of_it_damages_anything() {
    for mode in [OffloadMode::Hardware, OffloadMode::Hybrid] {
        let mut by_device = 0;
        for act in Act::ALL {
            let source = source(3 << 20);
            let engine = scripted(move |call| if call == 1 { act } else { Act::Well });
            let engine = Arc::new(engine);
            let report = restore_with(&context_with(vec![engine.clone()]), source.path(), mode);
            engine.release();
            let engines = &report.run.engines;
            let blocks: u64 = engines.iter().map(|e| e.blocks).sum();
            assert_eq!(blocks, 48, "{act:?}, {mode:?}: {engines:?}");
            // Where both work, software may have done all before the device's thread woke.
            let is_its_own = mode == OffloadMode::Hardware;
            assert!(engines[1].blocks > 0 || !is_its_own, "{act:?}: {engines:?}");
            by_device += engines[1].blocks;
        }
        assert!(by_device > 0, "{mode:?}");
    }
}

#[test]
fn a_device_that_does_not_decompress_is_not_asked_at_a_restore() {
    let source = source(1 << 20);
    let engine = scripted(|_| Act::Well).with_caps(|caps| caps.decompresses = false);
    let engine = Arc::new(engine);
    let context = context_with(vec![engine.clone()]);
    let report = restore_with(&context, source.path(), OffloadMode::Hardware);
    assert_eq!((engine.calls(), report.run.engines.len()), (0, 1));
}

#[test]
fn a_damaged_block_is_damaged_whoever_decodes_it() {
    let source = source(2 << 20);
    let dir = tempfile::tempdir().unwrap();
    let devices = stripes(dir.path(), 1);
    let spec = SourceSpec::Files(vec![source.path().into()]);
    let mut request = backup_request(spec, devices.clone(), QAT);
    request.tuning = TUNING;
    backup(&common::context(), request).unwrap();
    let path = dir.path().join("s0.bak");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let context = context_with(vec![Arc::new(scripted(|_| Act::Well))]);
    let mut request = restore_request(devices, &dir.path().join("out"));
    request.offload = offload(OffloadMode::Hardware);
    assert!(restore(&context, request).is_err());
}

/// How many random schedules are tried; an environment variable sets more.
fn schedules() -> u32 {
    let set = std::env::var("LONGSHORE_OFFLOAD_SCHEDULES").ok();
    set.and_then(|n| n.parse().ok()).unwrap_or(1000)
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        10 => Just(Act::Well),
        5 => proptest::sample::select(&Act::ALL[..]),
        1 => Just(Act::Panic),
    ]
}

/// Any fault at any call: the backup ends, contains every block once, and restores bit for bit.
#[test]
fn any_schedule_of_faults_yields_a_backup_that_restores() {
    // The runs mostly wait, so several are made at a time.
    const LINES: u32 = 4;
    std::thread::scope(|scope| {
        let lines: Vec<_> = (0..LINES)
            .map(|_| scope.spawn(|| try_schedules(schedules() / LINES)))
            .collect();
        for line in lines {
            line.join().unwrap().unwrap();
        }
    });
}

fn try_schedules(cases: u32) -> Result<(), TestError<Schedule>> {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let acts = proptest::collection::vec(act(), 1..12);
    let schedule = (
        acts,
        any::<bool>(),
        1..4usize,
        1..4usize,
        1..6usize,
        1..24usize,
    );
    TestRunner::new(config).run(&schedule, |schedule| {
        try_schedule(schedule);
        Ok(())
    })
}

/// The events of each call, repeated; hybrid; stripes; calls at a time; blocks in a batch; blocks in total.
type Schedule = (Vec<Act>, bool, usize, usize, usize, usize);

fn try_schedule((acts, hybrid, stripes, calls, batch, blocks_count): Schedule) {
    let source = source(blocks_count * (64 << 10));
    let script = acts.clone();
    let engine = Arc::new(
        scripted(move |call| script[call as usize % script.len()]).with_caps(|caps| {
            caps.calls_max = calls;
            caps.batch_bytes = batch * (64 << 10)..2 * batch * (64 << 10);
        }),
    );
    let context = context_with(vec![engine.clone()]);
    let began = Instant::now();
    let report = round_trip(&context, source.path(), stripes, |request| {
        request.offload = offload(match hybrid {
            true => OffloadMode::Hybrid,
            false => OffloadMode::Hardware,
        });
        request.offload.hang_bound = 30 * MS;
        request.offload.verify = VerifyEngine::Full;
    });
    engine.release();
    assert!(began.elapsed() < Duration::from_secs(30), "{acts:?}");
    let engines = &report.run.engines;
    assert_eq!(blocks(&report), blocks_count as u64, "{engines:?}");
}
