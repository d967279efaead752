//! Goal: an accepted model predicts the device, and a model that cannot is refused.
//! Method: shipped profiles as devices, with their jitter and tails, measured in virtual time; the fit sees latencies
//! only.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use longshore_io::{
    Clock, FileAttributes, FileLock, FileRead, FileWrite, HostClock, SimClock, SimDisk, Stat, Via,
};
use proptest::prelude::*;

use super::course::Slice;
use super::*;
use crate::model::{Credit, Device, Op, Profile, Request, WriteBuffer};

fn of_commands(profile: &Profile) -> Known {
    Known {
        command_bytes: Some(profile.command_bytes),
        ..Known::default()
    }
}

fn reads(file: &dyn longshore_io::File, len_bytes: u64) -> Probe<'_> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    Probe {
        file,
        len_bytes,
        op: Op::Read,
        written_bytes: &WRITTEN,
    }
}

fn accepted(profile: &Profile) -> AcceptedProfile {
    AcceptedProfile {
        profile: profile.clone(),
        residuals: Vec::new(),
        near: 0.95,
    }
}

/// The fit of a shipped profile's reads; each is made once for all tests.
fn reads_of(name: &'static str) -> AcceptedProfile {
    static MADE: Mutex<BTreeMap<&str, AcceptedProfile>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let fitted = made.entry(name).or_insert_with(|| {
        let truth = Profile::named(name).unwrap();
        let fitted = fit(&measured(truth, 5), of_commands(truth));
        fitted.unwrap_or_else(|e| panic!("{name}: {e}: {e:?}"))
    });
    fitted.clone()
}

/// Latencies of a modelled device, as [`measure`] would find them.
fn measured(profile: &Profile, seed: u64) -> Vec<Point> {
    measured_by(Op::Read, profile, seed)
}

fn measured_by(op: Op, profile: &Profile, seed: u64) -> Vec<Point> {
    let cells = MeasurePlan::default().cells();
    let points = cells.into_iter().map(|(len, depth)| {
        let count = 3000.min((40_000 << 12) / len).max(8 * u64::from(depth));
        let mean_us = profile.steady(op, (len, depth), count, seed).mean_us;
        Point {
            op,
            len_bytes: len,
            depth,
            mean_us,
            count,
        }
    });
    points.collect()
}

#[test]
fn a_device_of_the_models_kind_is_found_from_its_latencies_alone() {
    for name in ["optane-905p", "samsung-970pro", "ebs-gp3-max"] {
        let truth = Profile::named(name).unwrap();
        let fitted = reads_of(name);
        assert!(fitted.near >= 0.9, "{name}: {}", fitted.near);
        assert_eq!(fitted.profile.command_bytes, truth.command_bytes);
        // The two figures on which policies rely: a lone small read, and the bandwidth.
        let lone = |p: &Profile| p.unloaded_us(Op::Read, 4096);
        let ratio = lone(&fitted.profile) / lone(truth);
        assert!((0.85..1.15).contains(&ratio), "{name}: {ratio}");
        let rate = |p: &Profile| p.capacity(Op::Read, 512 << 10);
        let ratio = rate(&fitted.profile) / rate(truth);
        assert!((0.85..1.15).contains(&ratio), "{name}: {ratio}");
    }
}

/// Reads and writes at the same time take this many times as long as alone.
fn facts(reads: &AcceptedProfile, writes: &[Point], slower: f64, fall: Option<Fall>) -> WriteFacts {
    let reads: Vec<Point> = reads.residuals.iter().map(|one| one.point).collect();
    let both = [&reads[..], writes].map(|points| {
        let mut points = points.iter();
        let alike = |p: &&Point| (p.len_bytes, p.depth) == (128 << 10, 16);
        let alone = *points.find(alike).unwrap();
        Point {
            mean_us: slower * alone.mean_us,
            ..alone
        }
    });
    WriteFacts {
        together: both,
        fall,
    }
}

#[test]
fn writes_are_found_whether_or_not_a_buffer_takes_them() {
    let with_small_buffer = Profile {
        write_buffer: Some(WriteBuffer {
            bytes: 64e6,
            ack_us: 20.0,
        }),
        write_us: 2000.0,
        ..Profile::named("samsung-970pro").unwrap().clone()
    };
    let drained = 64.0 * 16_384.0 / 2000.0;
    let fall = Fall {
        before: 2700.0,
        after: drained,
        excess: 64e6,
    };
    let optane = Profile::named("optane-905p").unwrap();
    let samsung = Profile::named("samsung-970pro").unwrap();
    for (truth, fall) in [
        (optane, None),
        (samsung, None),
        (&with_small_buffer, Some(fall)),
    ] {
        let reads = reads_of(truth.name);
        let points = measured_by(Op::Write, truth, 5);
        let facts = facts(&reads, &points, 2.0, fall);
        let fitted = fit_writes(reads.clone(), &points, facts);
        let fitted = fitted.unwrap_or_else(|e| panic!("{}: {e}: {e:?}", truth.name));
        let found = &fitted.profile;
        // A buffer that is emptied at once and units that are quick are alike; a slow unit behind a buffer is not.
        let is_slow = truth.write_us > 100.0;
        assert!(found.write_buffer.is_some() || !is_slow, "{found:?}");
        let lone = |p: &Profile| p.steady(Op::Write, (4096, 1), 400, 7).mean_us;
        let ratio = lone(found) / lone(truth);
        assert!((0.85..1.15).contains(&ratio), "{}: {ratio}", truth.name);
        if fall.is_some() {
            let bytes = found.write_buffer.unwrap().bytes;
            assert!((60e6..70e6).contains(&bytes), "{bytes}");
            let units = f64::from(found.units) * f64::from(found.chunk_bytes);
            let rate = units / found.write_us;
            assert!((0.9..1.1).contains(&(rate / drained)), "{rate}");
        }
        // Reads are as they were.
        let of_reads = |p: &Profile| (p.units, p.read_us, p.fixed_us, p.read_link, p.command_us);
        assert_eq!(of_reads(found), of_reads(&reads.profile));
    }
}

#[test]
fn writes_that_fit_no_model_are_refused() {
    let optane = Profile::named("optane-905p").unwrap();
    let reads = reads_of(optane.name);
    let mut points = measured_by(Op::Write, optane, 5);
    for (n, point) in points.iter_mut().enumerate() {
        point.mean_us *= [1.0, 3.0, 0.4][n % 3];
    }
    let refused = fit_writes(reads.clone(), &points, facts(&reads, &points, 2.0, None));
    let refused = refused.unwrap_err();
    assert!(
        refused.to_string().starts_with("of writes the best"),
        "{refused}"
    );
    assert!(matches!(
        fit_writes(
            reads.clone(),
            &points[..9],
            facts(&reads, &points, 2.0, None)
        ),
        Err(FitRefusal::TooFew { have: 9 })
    ));
}

#[test]
fn what_reads_and_writes_move_together_tells_whether_they_share_a_link() {
    let optane = Profile::named("optane-905p").unwrap();
    let reads = reads_of(optane.name);
    let points = measured_by(Op::Write, optane, 5);
    for (slower, is_shared) in [(1.0, false), (2.0, true)] {
        let facts = facts(&reads, &points, slower, None);
        let fitted = fit_writes(reads.clone(), &points, facts).unwrap();
        assert_eq!(fitted.profile.shared_link, is_shared, "{slower}");
    }
}

/// A volume of a cloud: 125 MB/s and 3,000 commands a second for long, ten times as much for a while.
fn limited(bytes: bool, commands: bool) -> Profile {
    let credit = |per_us, most| Some(Credit { per_us, most });
    Profile {
        byte_credit: bytes.then_some(()).and_then(|()| credit(125.0, 4e9)),
        command_credit: commands.then_some(()).and_then(|()| credit(3e-3, 60_000.0)),
        ..Profile::named("ebs-gp3-max").unwrap().clone()
    }
}

/// The rate in slices of 250 ms of a device that is asked for as much as it gives, from `begun` on.
fn asked_for_all(device: &mut Device, begun: &mut u64, kind: Kind, slices: usize) -> Vec<Slice> {
    let (len_bytes, depth, unit) = match kind {
        Kind::Bytes => (512 << 10, 32, (512 << 10) as f64),
        Kind::Commands => (4096, 64, 1.0),
    };
    let mut place = 1_u64;
    let mut submit = |device: &mut Device, now, id| {
        place = place
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let offset = (place >> 33) * len_bytes;
        let op = Op::Read;
        let request = Request {
            op,
            offset,
            len_bytes,
        };
        device.submit(now, id, request);
    };
    (0..depth).for_each(|id| submit(device, *begun, id));
    let mut units = vec![0.0; slices];
    let slice_ns = 250_000_000;
    let end = *begun + slices as u64 * slice_ns;
    while let Some(now) = device.next_step() {
        for done in device.advance(now) {
            if now < end {
                units[((now - *begun) / slice_ns) as usize] += unit;
                submit(device, now, done.id);
            }
        }
    }
    *begun = end;
    even(&units)
}

/// Slices of 250 ms.
fn even(units: &[f64]) -> Vec<Slice> {
    let us = 250_000.0;
    units
        .iter()
        .map(|units| Slice { units: *units, us })
        .collect()
}

/// The same by their rates, in units per µs.
fn at_rates(rates: &[f64]) -> Vec<Slice> {
    let units: Vec<f64> = rates.iter().map(|rate| rate * 250_000.0).collect();
    even(&units)
}

#[test]
fn a_limit_is_told_from_another_user_by_a_rest() {
    for kind in [Kind::Bytes, Kind::Commands] {
        let truth = limited(kind == Kind::Bytes, kind == Kind::Commands);
        let credit = truth.byte_credit.or(truth.command_credit).unwrap();
        let mut device = Device::new(&truth, 3);
        let mut now = 0;
        let first = asked_for_all(&mut device, &mut now, kind, 120);
        let fallen = course::fall(&first).unwrap_or_else(|| panic!("{first:?}"));
        now += 10_000_000_000;
        let again = asked_for_all(&mut device, &mut now, kind, 60);
        let Course::Limited(burst) = course::judged(fallen, Duration::from_secs(10), &again) else {
            panic!("{kind:?}: {fallen:?}, {again:?}");
        };
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.1;
        assert!(near(burst.after, credit.per_us), "{burst:?}");
        assert!(near(burst.excess, credit.most), "{burst:?}");
        let unlimited = limited(false, false);
        let all = asked_for_all(&mut Device::new(&unlimited, 3), &mut 0, kind, 20);
        assert!(near(burst.before, all[10].units / all[10].us), "{burst:?}");
        // Without a limit nothing falls.
        assert_eq!(course::fall(&all), None);
    }
    // Another user takes a share of the device after some seconds; then he stays, goes, or goes and comes again soon.
    let rest = Duration::from_secs(10);
    for share in [0.3, 0.5, 0.65, 0.9] {
        for alone in [4, 24, 40, 56] {
            let slow = 2000.0 * (1.0 - share);
            let mut rates = vec![2000.0; 80];
            rates[alone..].fill(slow);
            let fallen = course::fall(&at_rates(&rates)).unwrap();
            for fast in [0, 1, 39, 40] {
                let mut again = vec![2000.0; 40];
                again[fast..].fill(slow);
                let told = course::judged(fallen, rest, &at_rates(&again));
                // By chance it may be as long as a limit would give.
                let earned = (2000.0 - slow) * 0.25 * fast as f64;
                let gives = earned / (10.0 * slow).min(fallen.excess / 1e6);
                let is_alike = fast <= 36 && (0.5..=2.0).contains(&gives);
                assert!(
                    is_alike || told == Course::Fell(fallen),
                    "{share} {alone} {fast}"
                );
            }
        }
    }
}

#[test]
fn a_limit_that_follows_from_the_other_one_is_none() {
    let burst = |after: f64| {
        Some(Fall {
            before: 10.0 * after,
            after,
            excess: 1e6 * after,
        })
    };
    let both = |bytes, commands| {
        let (bytes, commands) = own_limits(burst(bytes), burst(commands), 256 << 10);
        (bytes.is_some(), commands.is_some())
    };
    assert_eq!(both(125.0, 3e-3), (true, true));
    // 4 KiB each, as fast as the bytes may be.
    assert_eq!(both(125.0, 125.0 / 4096.0), (true, false));
    // Commands of 256 KiB, as fast as they may be.
    assert_eq!(both(4e-4 * 262_144.0, 4e-4), (false, true));
}

/// A volume with a limit of bytes, whose requests move the clock on.
#[derive(Debug)]
struct Volume {
    clock: SimClock,
    credit: Credit,
    rate: f64,
    /// The credit that is held, and since when.
    held: Mutex<(f64, Duration)>,
}

impl Volume {
    fn ask(&self, len: usize) -> usize {
        let mut held = self.held.lock().unwrap();
        let now = self.clock.now();
        let us = |time: Duration| time.as_nanos() as f64 / 1000.0;
        let came = us(now - held.1) * self.credit.per_us;
        held.0 = (held.0 + came).min(self.credit.most) - len as f64;
        held.1 = now;
        let waits_us = (-held.0).max(0.0) / self.credit.per_us + len as f64 / self.rate;
        self.clock
            .advance(Duration::from_nanos((waits_us * 1000.0) as u64));
        len
    }
}

impl FileRead for Volume {
    fn read_at(&self, buf: &mut [u8], _offset: u64, _via: Via) -> io::Result<usize> {
        Ok(self.ask(buf.len()))
    }

    fn stat(&self) -> io::Result<Stat> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn is_cached(&self, _range: Range<u64>) -> bool {
        false
    }

    fn next_data(&self, _offset: u64) -> io::Result<Option<Range<u64>>> {
        Ok(None)
    }
}

impl FileWrite for Volume {
    fn write_at(&self, buf: &[u8], _offset: u64, _via: Via) -> io::Result<usize> {
        Ok(self.ask(buf.len()))
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _range: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    fn free_unwritten(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl FileAttributes for Volume {}

impl FileLock for Volume {
    fn try_lock(&self) -> io::Result<bool> {
        Ok(true)
    }
}

fn volume(per_us: f64, most: f64, rate: f64) -> Volume {
    Volume {
        clock: SimClock::new(0),
        credit: Credit { per_us, most },
        rate,
        held: Mutex::new((most, Duration::ZERO)),
    }
}

#[test]
fn the_limit_of_a_volume_is_found_by_asking_it() {
    let time = Duration::from_secs(20);
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.2;
    // Also of one whose slices last for longer than a quick one's.
    for (per_us, most, rate) in [(125.0, 4e9, 1250.0), (12.0, 4e8, 80.0)] {
        let bursting = volume(per_us, most, rate);
        for op in [Op::Read, Op::Write] {
            let probe = Probe {
                op,
                ..reads(&bursting, 1 << 40)
            };
            let begun = bursting.clock.now();
            let found = course(probe, Kind::Bytes, time, &bursting.clock);
            let Ok(Course::Limited(burst)) = found else {
                panic!("{rate}: {found:?}");
            };
            assert!(near(burst.after, per_us), "{burst:?}");
            assert!(near(burst.excess, most), "{burst:?}");
            assert!(bursting.clock.now() - begun < 3 * time);
            // It rests before it is asked again.
            bursting.clock.advance(Duration::from_secs(100));
        }
    }
    let flat = volume(125.0, 0.0, 1250.0);
    let found = course(reads(&flat, 1 << 40), Kind::Bytes, time, &flat.clock);
    assert_eq!(found.unwrap(), Course::Even);
}

#[test]
fn a_cell_begins_when_the_credit_is_used_up() {
    let bursting = volume(125.0, 4e9, 1250.0);
    let plan = |lasting| MeasurePlan {
        lens: vec![128 << 10],
        depths: vec![1],
        time: Duration::from_millis(500),
        in_flight_bytes_max: 16 << 20,
        lasting,
    };
    let rates = |lasting| {
        let points = measure(
            reads(&bursting, 1 << 40),
            &plan(lasting),
            &bursting.clock,
            &|_| {},
        );
        points
            .unwrap()
            .iter()
            .map(Point::bytes_per_us)
            .collect::<Vec<_>>()
    };
    let mixed = rates(Vec::new());
    assert!(mixed[0] > 500.0, "{mixed:?}");
    bursting.clock.advance(Duration::from_secs(100));
    let lasting = Lasting {
        kind: Kind::Bytes,
        rate: 125.0,
    };
    let rates = rates(vec![lasting]);
    assert!(
        rates.iter().all(|rate| (100.0..150.0).contains(rate)),
        "{rates:?}"
    );
}

#[test]
fn noise_and_single_slow_values_are_no_fall() {
    let noisy = |n: usize| 100.0 + [9.0, -8.0, 3.0, -4.0, 12.0, -11.0, 1.0][n % 7];
    let mut rates: Vec<f64> = (0..120).map(noisy).collect();
    assert_eq!(course::fall(&at_rates(&rates)), None);
    rates[50] = 10.0;
    rates[51] = 12.0;
    assert_eq!(course::fall(&at_rates(&rates)), None);
    // A fall at the very end may be the beginning of anything.
    rates[117..].fill(20.0);
    assert_eq!(course::fall(&at_rates(&rates)), None);
    // A rate that goes down step by step does not last.
    let down: Vec<f64> = (0..120).map(|n| 200.0 - 1.5 * n as f64).collect();
    assert_eq!(course::fall(&at_rates(&down)), None);
    assert_eq!(course::fall(&[]), None);
    assert_eq!(course::fall(&at_rates(&[5.0, 1.0])), None);
}

#[test]
fn a_device_with_limits_is_found_from_cells_without_credit() {
    let truth = limited(true, true);
    let fall = |before, credit: Option<Credit>| {
        credit.map(|credit| Fall {
            before,
            after: credit.per_us,
            excess: credit.most,
        })
    };
    let known = Known {
        bytes: fall(2000.0, truth.byte_credit),
        commands: fall(0.08, truth.command_credit),
        ..of_commands(&truth)
    };
    let fitted = fit(&measured(&truth, 5), known);
    let fitted = fitted.unwrap_or_else(|e| panic!("{e}: {e:?}"));
    assert_eq!(fitted.profile.read_link, 2000.0);
    assert_eq!(fitted.profile.byte_credit, truth.byte_credit);
    let lone = |p: &Profile| p.unloaded_us(Op::Read, 4096);
    let ratio = lone(&fitted.profile) / lone(&truth);
    assert!((0.85..1.15).contains(&ratio), "{ratio}");
    assert!((fitted.profile.capacity(Op::Read, 512 << 10) - 125.0).abs() < 1.0);
}

#[test]
fn measurements_that_fit_no_model_are_refused_with_their_cells() {
    let mut points = measured(Profile::named("optane-905p").unwrap(), 5);
    // Some longer reads take less time than shorter ones.
    for (n, point) in points.iter_mut().enumerate() {
        point.mean_us *= [1.0, 3.0, 0.4][n % 3];
    }
    match fit(&points, Known::default()) {
        Err(FitRefusal::Far {
            near, residuals, ..
        }) => {
            assert!(near < 0.9 && residuals.len() == points.len());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn cells_that_are_missing_or_say_nothing_are_refused() {
    let points = measured(Profile::named("optane-905p").unwrap(), 5);
    assert!(matches!(
        fit(&points[..9], Known::default()),
        Err(FitRefusal::TooFew { have: 9 })
    ));
    for mean_us in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let mut points = points.clone();
        points[3].mean_us = mean_us;
        assert!(matches!(
            fit(&points, Known::default()),
            Err(FitRefusal::NoTime { .. })
        ));
    }
}

#[test]
fn a_path_is_measured_in_every_cell_and_never_written() {
    let disk = SimDisk::new(1);
    let bytes = 4u64 << 20;
    let file = filled(&disk, bytes);
    let plan = MeasurePlan {
        lens: vec![4096, 65_536],
        depths: vec![1, 4],
        time: Duration::from_millis(1),
        in_flight_bytes_max: 128 << 10,
        lasting: Vec::new(),
    };
    let told = std::cell::Cell::new(0);
    let points = measure(reads(&*file, bytes), &plan, &HostClock, &|_| {
        told.set(told.get() + 1);
    });
    let points = points.unwrap();
    let cells: Vec<_> = points.iter().map(|p| (p.len_bytes, p.depth)).collect();
    assert_eq!(cells, [(4096, 1), (4096, 4), (65_536, 1)]);
    assert_eq!(told.get(), 3);
    assert!(points.iter().all(|p| p.count >= 3 * u64::from(p.depth)));
    let mut now = vec![0; bytes as usize];
    file.read_full_at(&mut now, 0, longshore_io::Via::Cache)
        .unwrap();
    assert!(now.iter().all(|byte| *byte == 7));
    assert!(matches!(
        measure(reads(&*file, 1 << 20), &plan, &HostClock, &|_| {}),
        Err(MeasureError::TooSmall { .. })
    ));
    // The file is shorter than stated: a short read does not count as a fast one.
    assert!(matches!(
        measure(reads(&*file, 1 << 40), &plan, &HostClock, &|_| {}),
        Err(MeasureError::Request { .. })
    ));
}

/// Numbers with which the clock of the model would stand still, or overflow, or a request would never end.
#[test]
fn models_that_cannot_be_run_are_refused() {
    let text = write_model(&accepted(Profile::named("optane-905p").unwrap()), "");
    for (line, wrong) in [
        ("read_us = 6.8", "read_us = 0.0004"),
        ("read_us = 6.8", "read_us = 1e9"),
        ("command_us = 0.2", "command_us = 1e12"),
        ("chunk_bytes = 4096", "chunk_bytes = 1"),
        ("read_mb_s = 2550", "read_mb_s = 1e-6"),
    ] {
        assert!(text.contains(line), "{text}");
        assert!(read_model(&text.replace(line, wrong)).is_err(), "{wrong}");
    }
    let limited = format!("{text}limit_commands_s = 0.5\nlimit_burst_commands = 9\n");
    let name = "limit_commands_s";
    assert_eq!(read_model(&limited), Err(BadModel::Missing { name }));
    // The worst that is taken still runs.
    let slowest = text
        .replace("read_us = 6.8", "read_us = 1e7")
        .replace("units = 7", "units = 1");
    let profile = read_model(&slowest.replace("chunk_bytes = 4096", "chunk_bytes = 512")).unwrap();
    assert!(profile.steady(Op::Read, (2 << 20, 64), 80, 1).mean_us > 1e9);
}

#[test]
fn writes_go_to_the_probe_alone_and_no_two_lines_of_them_are_equal() {
    let disk = SimDisk::new(1);
    let bytes = 4u64 << 20;
    let file = filled(&disk, 2 * bytes);
    let written_bytes = AtomicU64::new(0);
    let span = Probe {
        file: &*file,
        len_bytes: bytes,
        op: Op::Write,
        written_bytes: &written_bytes,
    };
    let plan = MeasurePlan {
        lens: vec![65_536],
        depths: vec![4],
        time: Duration::from_millis(5),
        in_flight_bytes_max: 256 << 10,
        lasting: Vec::new(),
    };
    let points = measure(span, &plan, &HostClock, &|_| {}).unwrap();
    assert!(points[0].op == Op::Write && points[0].count >= 12);
    let written = written_bytes.load(Ordering::Relaxed);
    assert_eq!(written, points[0].count * 65_536);
    let mut now = vec![0; 2 * bytes as usize];
    file.read_full_at(&mut now, 0, Via::Cache).unwrap();
    let (in_span, behind) = now.split_at(bytes as usize);
    assert!(behind.iter().all(|byte| *byte == 7));
    let lines = in_span
        .chunks(4096)
        .filter(|line| line.iter().any(|byte| *byte != 7));
    let lines: Vec<&[u8]> = lines.collect();
    let kinds: std::collections::BTreeSet<&[u8]> = lines.iter().copied().collect();
    assert!(lines.len() >= 16 * 4, "{}", lines.len());
    assert_eq!(kinds.len(), lines.len());
}

fn filled(disk: &SimDisk, bytes: u64) -> std::sync::Arc<dyn longshore_io::File> {
    use longshore_io::{OpenHow, Storage, Via};
    let dir = disk.create_dir_all(std::path::Path::new("/d")).unwrap();
    let file = dir
        .open(std::path::Path::new("f"), OpenHow::CreateNew)
        .unwrap();
    file.write_all_at(&vec![7; bytes as usize], 0, Via::Cache)
        .unwrap();
    file
}

#[test]
fn a_model_reads_back_as_it_was_written() {
    let fitted = Profile {
        name: "calibrated",
        write_us: 6.8,
        write_link: 2550.0,
        jitter: 0.0,
        ..Profile::named("optane-905p").unwrap().clone()
    };
    let text = write_model(&accepted(&fitted), "/dev/x\nunits = 3");
    assert_eq!(read_model(&text).unwrap(), fitted);
    // A device has a buffer or limits.
    let both = Profile {
        write_us: 20.0,
        write_link: 1100.0,
        shared_link: false,
        write_buffer: Some(WriteBuffer {
            bytes: 1e9,
            ack_us: 11.5,
        }),
        byte_credit: Some(Credit {
            per_us: 125.0,
            most: 4e9,
        }),
        command_credit: Some(Credit {
            per_us: 0.003,
            most: 6e4,
        }),
        ..fitted.clone()
    };
    let written = |profile: &Profile| {
        let written = AcceptedProfile {
            residuals: vec![Residual {
                point: measured_by(Op::Write, &fitted, 1)[0],
                predicted_us: 1.0,
            }],
            ..accepted(profile)
        };
        write_model(&written, "")
    };
    assert_eq!(read_model(&written(&both)), Err(BadModel::BufferAndLimits));
    let limited = Profile {
        write_buffer: None,
        ..both.clone()
    };
    let buffered = Profile {
        byte_credit: None,
        command_credit: None,
        ..both.clone()
    };
    for one in [&limited, &buffered] {
        assert_eq!(read_model(&written(one)).as_ref(), Ok(one));
    }
    let whole = written(&both);
    for name in [
        "write_mb_s",
        "buffer_ack_us",
        "limit_burst_bytes",
        "limit_commands_s",
    ] {
        let line = whole.lines().find(|line| line.starts_with(name)).unwrap();
        let without = whole.replace(&format!("{line}\n"), "");
        assert_eq!(read_model(&without), Err(BadModel::Missing { name }));
    }
    assert_eq!(read_model("units = 7\n"), Err(BadModel::NoModel));
    let without = text.replace("read_us = 6.8\n", "");
    assert_eq!(
        read_model(&without),
        Err(BadModel::Missing { name: "read_us" })
    );
    for wrong in [
        "units = 0",
        "units = nan",
        "units = -1",
        "speed = 7",
        "units",
    ] {
        let text = text.replace("units = 7", wrong);
        assert!(read_model(&text).is_err(), "{wrong}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_model_of_which_any_line_was_changed_can_be_run_or_is_refused(
        line in 2..19_usize,
        value in "(-?[0-9]{1,3}(\\.[0-9]{1,3})?(e-?[0-9]{1,3})?|[-0-9.e]{0,12})",
    ) {
        let text = write_model(&accepted(&limited(true, true)), "");
        let text = text + "write_us = 2\nwrite_mb_s = 3\nown_write_link = 1\nbuffer_bytes = 0\nbuffer_ack_us = 0\n";
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let name = lines[line].split_once('=').unwrap().0.to_owned();
        lines[line] = format!("{name}={value}");
        if let Ok(profile) = read_model(&lines.join("\n")) {
            prop_assert!(profile.units > 0 && profile.chunk_bytes > 0 && profile.read_link > 0.0);
            for op in [Op::Read, Op::Write] {
                prop_assert!(profile.steady(op, (4096, 2), 8, 1).mean_us.is_finite());
            }
        }
    }
}
