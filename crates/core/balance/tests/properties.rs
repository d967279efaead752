//! Goal: the promises in this crate's module heads hold for any schedule of requests.
//! Method: random schedules are compared with plain models, in simulated time.

use longshore_balance::{
    Allowance, Band, Budget, Completion, Depth, Drift, Estimate, Guard, Idling, InFlight, Load,
    Outlook, Permit, Serve, Spread, Trust,
};
use longshore_kit::Random;
use proptest::prelude::*;

/// One thing that happens to a budget.
#[derive(Debug, Clone)]
enum Step {
    Admit(u64),
    Within(u64, u64),
    GiveBack(usize),
    Limit(u64),
}

/// A device of which nothing is known, and which counts as another one at twice its times.
fn fitted() -> Estimate {
    Estimate::fitted(1, band(0))
}

fn band(lasting_us: u64) -> Band {
    Band {
        factor: 2.0,
        weight: 1.0 / 16.0,
        settled: 32,
        lasting_us,
    }
}

/// A request that found the device idle.
fn alone(len_bytes: u64, took_us: u64) -> Completion {
    Completion {
        now_us: 0,
        len_bytes,
        took_us: took_us as f64,
        before: Load::default(),
        delivered_bytes: len_bytes,
    }
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || prop_oneof![1..100u64, Just(u64::MAX), Just(u64::MAX / 2)];
    prop_oneof![
        4 => bytes().prop_map(Step::Admit),
        2 => (bytes(), 0..200u64).prop_map(|(len, limit)| Step::Within(len, limit)),
        3 => (0..8usize).prop_map(Step::GiveBack),
        1 => (0..200u64).prop_map(Step::Limit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_budget_admits_what_fits_or_finds_the_device_idle_and_gets_every_byte_back(
        first in 0..200u64,
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let (in_flight, mut budget) = (InFlight::default(), Budget::new(first));
        let mut held: Vec<Permit> = Vec::new();
        for step in steps {
            let before: u64 = held.iter().map(Permit::len_bytes).sum();
            prop_assert_eq!(in_flight.bytes(), before);
            prop_assert_eq!(budget.room_bytes(before), budget.limit_bytes.saturating_sub(before));
            let fits = |len: u64, limit: u64| {
                let sum = before.checked_add(len);
                limit > 0 && sum.is_some_and(|sum| before == 0 || sum <= limit)
            };
            match step {
                Step::Admit(len) => {
                    let permit = in_flight.try_admit(len, budget);
                    prop_assert_eq!(permit.is_some(), fits(len, budget.limit_bytes));
                    held.extend(permit);
                }
                Step::Within(len, limit) => {
                    let permit = in_flight.try_admit(len, budget.within(limit));
                    prop_assert_eq!(permit.is_some(), fits(len, limit.min(budget.limit_bytes)));
                    held.extend(permit);
                }
                Step::GiveBack(at) if at < held.len() => drop(held.swap_remove(at)),
                Step::GiveBack(_) => {}
                Step::Limit(limit) => budget = Budget::new(limit),
            }
        }
        held.clear();
        prop_assert_eq!(in_flight.bytes(), 0);
    }

    /// A device that needs a fixed time and a time for each byte, with one request at a time.
    #[test]
    fn an_estimate_separates_rate_and_latency(
        fixed_us in 0..50_000u64,
        ns_per_byte in 1..1_000u64,
        lens in proptest::collection::vec(1_000..4_000_000u64, 40..80),
    ) {
        let takes = |len: u64| fixed_us + len * ns_per_byte / 1000;
        let mut estimate = fitted();
        prop_assert_eq!(estimate.lone_us(1), 0.0);
        prop_assert_eq!((estimate.rate_bytes_per_s(), estimate.rate_with(1)), (None, 0.0));
        for len in &lens {
            estimate.learn(&alone(*len, takes(*len)));
        }
        for len in [100_000, 1_000_000, 3_000_000] {
            let (told, true_us) = (estimate.lone_us(len), takes(len) as f64);
            let error = (told - true_us).abs();
            prop_assert!(error <= 0.05 * true_us + 200.0, "{told} us, not {true_us} us");
            // Bytes ahead of the request count like its own.
            let halves = estimate.loaded_us(len / 2, Load::of(len - len / 2));
            prop_assert!((halves - told).abs() < 1e-6 * told, "{halves}, not {told}");
        }
    }

    #[test]
    fn a_device_that_becomes_slower_is_believed_within_two_windows(factor in 2..20u64) {
        // No band: what was learnt is outlived, not forgotten.
        let band = Band { factor: f64::MAX, ..band(0) };
        let mut estimate = Estimate::fitted(1, band);
        (0..100).for_each(|_| _ = estimate.learn(&alone(1 << 20, 1_000)));
        let before = estimate.rate_bytes_per_s().unwrap();
        (0..64).for_each(|_| _ = estimate.learn(&alone(1 << 20, 1_000 * factor)));
        let after = estimate.rate_bytes_per_s().unwrap();
        prop_assert!((before / after / factor as f64 - 1.0).abs() < 0.01);
        let lone_us = estimate.lone_us(1 << 20);
        prop_assert!((lone_us - 1_000.0 * factor as f64).abs() < 1.0, "{lone_us}");
    }

    #[test]
    fn nothing_makes_an_estimate_panic_or_answer_nonsense(
        requests in proptest::collection::vec(any::<([u64; 5], f64)>(), 0..60),
        asked in any::<[u64; 4]>(),
    ) {
        let trust = Trust { small_bytes: 1 << 16, weight: 1.0 / 32.0, factors: [0.4, 2.5] };
        let told = Outlook { base_us: 64.0, overlaps: true, rate_bytes_per_us: 3000.0, ..Outlook::UNKNOWN };
        let load = |[bytes, requests, written]: [u64; 3]| Load {
            in_flight_bytes: bytes,
            in_flight_requests: requests,
            written_bytes: written.min(bytes),
        };
        for mut estimate in [fitted(), Estimate::told(told, trust, band(5_000))] {
            for ([now_us, len_bytes, a, b, delivered_bytes], took_us) in &requests {
                let before = load([*a, *b, *a / 2]);
                let (now_us, len_bytes, delivered_bytes) = (*now_us, *len_bytes, *delivered_bytes);
                let took_us = *took_us;
                estimate.learn(&Completion { now_us, len_bytes, took_us, before, delivered_bytes });
            }
            let [len, loads @ ..] = asked;
            let after = estimate.loaded_us(len, load(loads));
            let answers = [after, estimate.cost_us(len, load(loads)), estimate.rate_with(len)];
            let answers = answers.into_iter().chain(estimate.rate_bytes_per_s());
            let answers = answers.chain([estimate.bdp_bytes(), estimate.drift()]);
            for answer in answers {
                prop_assert!(answer.is_finite() && answer >= 0.0, "{answer}");
            }
            prop_assert!(after >= estimate.lone_us(len) * 0.1, "a queue only delays");
        }
    }

    /// Requests that come while the device is idle with some chance: the allowance settles where they seldom find it
    /// idle, and stays within its bounds.
    #[test]
    fn an_allowance_stays_within_its_bounds_and_grows_only_while_the_device_is_found_idle(
        found in proptest::collection::vec(any::<f64>(), 0..200),
        most in 1.0..20.0f64,
        bdp in 1.0..1e9f64,
    ) {
        let idling = Idling { busy: 1.4, idle_share: 0.5, step: 0.25, most };
        let mut allowance = Allowance::new(1.0, idling);
        for in_flight in found {
            let before = allowance.budget(bdp).limit_bytes;
            allowance.found(in_flight, bdp);
            let after = allowance.budget(bdp).limit_bytes;
            prop_assert!((bdp as u64..=(most * bdp) as u64).contains(&after));
            match in_flight < 1.4 * bdp {
                true => prop_assert!(after >= before),
                false => prop_assert!(after <= before),
            }
        }
    }

    #[test]
    fn quantiles_are_an_eighth_above_the_true_ones_at_most(
        times in proptest::collection::vec(0..10_000_000u64, 1..500),
        quantile in 0.0..=1.0f64,
    ) {
        let mut spread = Spread::default();
        times.iter().for_each(|us| spread.add(*us));
        let mut sorted = times;
        sorted.sort_unstable();
        let rank = ((sorted.len() as f64 * quantile).ceil() as usize).max(1);
        let (told, true_us) = (spread.quantile_us(quantile).unwrap(), sorted[rank - 1]);
        prop_assert!(told >= true_us && told as f64 <= true_us as f64 * 1.125 + 1.0, "{told} {true_us}");
    }

    #[test]
    fn a_depth_stays_within_its_bounds_whatever_it_is_told(
        bounds in (0..10u32, 0..10u32),
        rounds in proptest::collection::vec((any::<f64>(), any::<f64>()), 0..200),
    ) {
        let mut depth = Depth::new(bounds.0, bounds.1);
        let (least, most) = (bounds.0.max(1), bounds.1.max(bounds.0.max(1)));
        for (rate, service_us) in rounds {
            depth.round(rate, service_us);
            prop_assert!((least..=most).contains(&depth.steps()));
        }
    }

    /// Constant rates: after its first trials the guard keeps the best choice, and trials cost little.
    #[test]
    fn a_guard_finds_the_best_choice_and_regrets_little(
        both in 10.0..1000.0f64,
        first in 10.0..1000.0f64,
        second in 10.0..1000.0f64,
    ) {
        let mut guard = Guard::new(100_000);
        let (mut now_us, mut done) = (0u64, 0.0f64);
        let mut last = Serve::Both;
        while now_us < 60_000_000 {
            let rate = match last {
                Serve::Both => both,
                Serve::First => first,
                Serve::Second => second,
            };
            now_us += 10_000;
            done += rate * 1e4;
            last = guard.judge(now_us, done as u64, [first * 1e6, second * 1e6]);
        }
        let best = both.max(first).max(second) * now_us as f64;
        prop_assert!(done >= 0.95 * best, "{:.3} of the best", done / best);
    }
}

/// The load changes from epoch to epoch by up to a half, up or down, under every choice; one device alone does 8 %
/// less.
#[test]
fn a_guard_is_not_led_astray_by_a_load_that_changes() {
    let (mut served, mut astray) = (0u32, 0u32);
    for seed in 1..=40u64 {
        let mut guard = Guard::new(5_000);
        let (mut now_us, mut done, mut random) = (0u64, 0.0f64, Random(seed));
        let (mut last, mut load) = (Serve::Both, 1.0);
        while now_us < 4_000_000 {
            if now_us.is_multiple_of(5_000) {
                load = 0.5 + f64::from(random.below(1000_u32)) / 1000.0;
            }
            let rate = if last == Serve::Second { 92.0 } else { 100.0 };
            now_us += 500;
            done += rate * load * 500.0;
            last = guard.judge(now_us, done as u64, [50e6, 100e6]);
            served += 1;
            astray += u32::from(last == Serve::Second);
        }
    }
    let share = f64::from(astray) / f64::from(served);
    assert!(share < 0.10, "{share:.3} of the time with the worse choice");
}

#[test]
fn a_depth_grows_while_it_pays_and_then_rests() {
    // Throughput saturates at five steps.
    let mut depth = Depth::new(1, 20);
    for _ in 0..100 {
        let steps = f64::from(depth.steps());
        depth.round(steps.min(5.0) * 100.0, 1_000.0 * (steps / 5.0).max(1.0));
    }
    assert!((5..=6).contains(&depth.steps()), "{}", depth.steps());
}

#[test]
fn drift_is_reported_once_and_again_only_after_it_ended() {
    let mut drift = Drift::new(band(0));
    let mut told = |ratio: f64| -> Vec<_> {
        let told = (0..1000).filter_map(|at_us| drift.observe(at_us, ratio.ln()));
        told.map(|drifted| drifted.factor).collect()
    };
    assert_eq!(told(1.1).len(), 0, "noise");
    let slower = told(3.0);
    assert_eq!(slower.len(), 1);
    assert!((2.0..3.0).contains(&slower[0]), "{slower:?}");
    assert_eq!(told(1.0).len(), 0);
    assert_eq!(told(f64::NAN).len(), 0, "no number says nothing");
    assert_eq!(told(0.2).len(), 1, "faster is another device too");
}

#[test]
fn drift_that_must_last_is_told_after_that_time_and_not_if_it_goes_earlier() {
    let mut drift = Drift::new(band(1_000));
    let mut at_us = 0;
    let mut told = |ratio: f64, us: u64| {
        let until = at_us + us;
        let mut told = 0;
        while at_us < until {
            told += u32::from(drift.observe(at_us, ratio.ln()).is_some());
            at_us += 1;
        }
        (told, drift.alarmed())
    };
    assert_eq!(told(4.0, 900), (0, false), "it has not lasted");
    assert_eq!(told(1.0, 500), (0, false), "it went");
    assert_eq!(told(4.0, 900), (0, false), "it begins again");
    assert_eq!(told(4.0, 200), (1, true));
    assert_eq!(told(1.0, 900), (0, true), "so must the end");
    assert_eq!(told(1.0, 300), (0, false));
}

#[test]
fn a_fitted_device_that_drifts_is_another_device() {
    let mut estimate = fitted();
    let learn = |estimate: &mut Estimate, us| estimate.learn(&alone(1 << 20, us));
    (0..100).for_each(|_| _ = learn(&mut estimate, 1_000));
    let (calls, drifted) = (1..100)
        .find_map(|n| learn(&mut estimate, 8_000).map(|drifted| (n, drifted)))
        .unwrap();
    assert!(calls < 32 && drifted.factor > 2.0, "{calls}, {drifted:?}");
    // The call that showed it was forgotten, too: only later ones count.
    assert_eq!(estimate.rate_bytes_per_s(), None);
    learn(&mut estimate, 8_000);
    assert!((estimate.lone_us(1 << 20) - 8_000.0).abs() < 1.0);
}

/// Four calls share a device: each takes four times as long as one alone, and that is no drift.
#[test]
fn calls_that_share_a_device_are_no_drift() {
    for (parallel, drifts) in [(1, true), (4, false)] {
        let mut estimate = Estimate::fitted(parallel, band(0));
        let mut drifted = false;
        for n in 0..200 {
            let us = if n < 50 { 1_000 } else { 4_000 };
            drifted |= estimate
                .learn(&alone(1 << 20, us))
                .is_some_and(|d| d.factor > 1.0);
        }
        assert_eq!(drifted, drifts, "{parallel} at a time");
    }
}
