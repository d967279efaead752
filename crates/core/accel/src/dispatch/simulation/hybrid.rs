//! Goal: hybrid mode is never slower than the better of device and CPUs alone, and clearly faster if both are useful.
//! Method: the simulation, over a grid and over random machines and devices.
//!
//! Invariants
//! - The better engine alone, in the same world, is the oracle: hybrid may lose at most 3 % to it.
//! - The random worlds are the same in every run.
//!
//! Leaves to others: the worlds, and running the lanes in them (`simulation.rs`).

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::{World, simulate};
use crate::dispatch::Mode;

/// The better engine's time divided by hybrid's: above 1, hybrid is faster.
fn gain(world: World) -> (f64, f64) {
    let hybrid = simulate(world, Mode::Hybrid);
    let device = simulate(world, Mode::Hardware);
    let better = device.seconds.min(world.software_s());
    (better / hybrid.seconds, hybrid.device_share)
}

const SPEEDS: [f64; 8] = [0.05, 0.2, 0.5, 1.0, 2.0, 4.0, 10.0, 30.0];

#[test]
fn hybrid_is_never_slower_than_the_better_engine_alone() {
    let mut page = String::new();
    let mut failed = false;
    for in_sequence in [true, false] {
        for speed in SPEEDS {
            for (latency_us, calls, batch) in
                [(50, 1, 1), (1_000, 4, 1), (20_000, 2, 16), (5_000, 1, 64)]
            {
                let mut world = World::with_device(speed, latency_us, calls, batch);
                world.in_sequence = in_sequence;
                let (gain, share) = gain(world);
                failed |= gain < 0.97;
                page += &format!(
                    "{speed:5} x, {latency_us:6} us, {calls} calls of {batch:2}, in sequence {in_sequence}: \
                     {gain:.3}, device {share:.2}\n"
                );
            }
        }
    }
    assert!(!failed, "\n{page}");
    println!("{page}");
}

#[test]
fn with_a_device_half_as_fast_as_the_machine_hybrid_is_a_fifth_faster() {
    for (latency_us, calls, batch) in [(50, 1, 1), (1_000, 4, 1), (20_000, 2, 16)] {
        for in_sequence in [true, false] {
            let mut world = World::with_device(0.5, latency_us, calls, batch);
            world.in_sequence = in_sequence;
            let (gain, share) = gain(world);
            assert!(gain >= 1.2, "{world:?}: {gain:.3}, device {share:.2}");
        }
    }
}

/// The number of random worlds; an environment variable raises it.
fn cases() -> usize {
    let set = std::env::var("LONGSHORE_HYBRID_WORLDS").ok();
    set.and_then(|n| n.parse().ok()).unwrap_or(60)
}

/// Devices from 1/50 of the machine's speed to 40 times it, calls that take from almost nothing to 50 ms, batches of
/// up to 32 blocks; 1 to 8 cores that compress slowly or quickly; one stripe or several. Devices that take so long for
/// single blocks that they count as hanging are left out.
fn any_world() -> impl Strategy<Value = World> {
    let hangs = |world: &World| {
        let first_us = world.calls as f64 * 1e6 / world.device_per_s;
        first_us > world.hang_bound_us as f64 / 2.0
    };
    let device = (-5.6..5.3f64, 3.0..10.8f64, 1..8usize, 1..33u64);
    let machine = (1..9usize, 3_000..30_000u64, 150..700u64, any::<bool>());
    let worlds = (device, machine).prop_map(|(device, machine)| {
        let (speed, latency_us, calls, batch) = device;
        let (cores, compress_us, feed_us, in_sequence) = machine;
        let speed = f64::exp2(speed);
        let world = World {
            cores,
            compress_us,
            feed_us,
            in_sequence,
            ..World::with_device(speed, latency_us.exp() as u64, calls, batch)
        };
        world.with_speed(speed)
    });
    worlds.prop_filter("a device that is too slow for its bound", move |w| {
        !hangs(w)
    })
}

#[test]
fn hybrid_is_never_slower_for_any_machine_and_device() {
    let mut runner = TestRunner::deterministic();
    let mut page = String::new();
    let mut losers = 0;
    for _ in 0..cases() {
        let world = any_world().new_tree(&mut runner).unwrap().current();
        let (gain, share) = gain(world);
        if gain < 0.97 {
            losers += 1;
            page += &format!("{world:?}: {gain:.3}, device {share:.2}\n");
        }
    }
    assert!(losers == 0, "{losers} of {}\n{page}", cases());
}

/// Worlds in which hybrid once lost: devices that take so long for their first block that nobody must wait for it.
#[test]
fn hybrid_is_not_slower_with_devices_that_are_of_no_use() {
    for (cores, compress_us, feed_us, per_s, latency_us, calls, batch, in_sequence) in [
        (1, 14_531, 643, 1.96, 186, 1, 2, false),
        (3, 19_811, 597, 3.31, 1_517, 3, 7, true),
        (1, 15_975, 174, 2.46, 153, 6, 2, true),
        (3, 22_686, 692, 5.57, 11_040, 5, 4, true),
        (1, 21_799, 449, 1.64, 14_900, 2, 1, true),
    ] {
        let world = World {
            cores,
            compress_us,
            feed_us,
            in_sequence,
            ..World::with_device(1.0, latency_us, calls, batch)
        };
        let world = world.with_speed(per_s / world.software_per_s());
        let (gain, share) = gain(world);
        assert!(gain >= 0.97, "{world:?}: {gain:.3}, device {share:.2}");
    }
}

/// Worlds in which hybrid once lost: devices far faster than the machine, whose calls fell into step.
#[test]
fn hybrid_is_not_slower_where_calls_fall_into_step() {
    for (cores, per_s, latency_us, calls, batch, in_sequence) in [
        (8, 7968.1, 5_895, 4, 9, false),
        (3, 7207.2, 2_513, 2, 10, true),
        (4, 9723.5, 3_143, 3, 5, true),
        (6, 5398.4, 9_750, 5, 5, true),
    ] {
        let mut world = World::with_device(1.0, latency_us, calls, batch);
        world.cores = cores;
        world.in_sequence = in_sequence;
        let world = world.with_speed(per_s / world.software_per_s());
        let (gain, share) = gain(world);
        assert!(gain >= 0.97, "{world:?}: {gain:.3}, device {share:.2}");
    }
}
