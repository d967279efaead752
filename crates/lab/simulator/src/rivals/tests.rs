//! Goal: each rival filter follows the rule that it is named after, and keeps the contract of all filters.
//! Method: the filters get requests and endings that the test makes up, without devices; their decisions and gauges are
//! compared with the rule.
//! Not covered: how well a filter does, which is for the simulator's studies.

use longshore_policy::model::{Nanos, Op, Profile};
use longshore_policy::policy::filter::{Filter, ReadRequest, Sides};
use longshore_policy::policy::{EndedRequest, Load, Purpose, ReadPlan, Reason, Side, View};

const MS: Nanos = 1_000_000;
const IDLE: Load = Load {
    in_flight_bytes: 0,
    in_flight_requests: 0,
    written_bytes: 0,
};

fn sides() -> Sides {
    let outlook = |name| Profile::named(name).unwrap().outlook();
    Sides {
        fast: outlook("optane-905p"),
        slow: outlook("samsung-970pro"),
    }
}

fn filter(name: &str) -> Box<dyn Filter> {
    let choice: crate::Choice = name.parse().unwrap();
    choice.filter.build(sides())
}

/// A small read of which so much is held, at a moment.
fn read(filter: &mut dyn Filter, now: Nanos, held_bytes: u64, run_bytes: u64) -> ReadPlan {
    let view = View {
        now,
        fast: IDLE,
        slow: IDLE,
    };
    let asked = ReadRequest {
        len_bytes: 4096,
        held_bytes,
        run_bytes,
    };
    filter.read(&view, &asked)
}

fn hit(filter: &mut dyn Filter, now: Nanos) -> bool {
    read(filter, now, 4096, 4096).fast_bytes == 4096
}

fn ended(filter: &mut dyn Filter, now: Nanos, side: Side, took_us: f64) {
    filter.ended(&EndedRequest {
        now,
        side,
        op: Op::Read,
        purpose: Purpose::Client,
        len_bytes: 4096,
        took_us,
        before: IDLE,
    });
}

/// Every filter that can be compared.
const ALL: [&str; 10] = [
    "none",
    "slow",
    "balance",
    "aware",
    "split=60",
    "bcache",
    "throttle=1000/50",
    "profile",
    "orthus",
    "orthus-kernel",
];

#[test]
fn every_rival_keeps_the_contract_of_all_filters() {
    for name in ALL {
        let choice: crate::Choice = name.parse().unwrap();
        super::suite::keeps_its_contract(&|sides| choice.filter.build(sides));
    }
}

#[test]
fn a_fixed_split_gives_the_fast_side_its_share() {
    for percent in [0, 30, 75, 100] {
        let mut split = filter(&format!("split={percent}"));
        let fast = (0..1000).filter(|_| hit(&mut *split, 0)).count();
        assert_eq!(fast, percent * 10);
    }
}

#[test]
fn a_throttle_serves_so_many_requests_and_bytes_a_second_and_what_is_above_fills_nothing() {
    // A thousand a second, by either cap, of ten thousand that come.
    for name in ["throttle=1000/999999", "throttle=999999/4.096"] {
        let mut throttle = filter(name);
        let mut fast = 0;
        for n in 0..20_000 {
            fast += u32::from(hit(&mut *throttle, n * MS / 10));
        }
        assert!((1990..=2020).contains(&fast), "{name}: {fast} in 2 s");
        (0..50).for_each(|_| _ = hit(&mut *throttle, 2000 * MS));
        let plan = read(&mut *throttle, 2000 * MS, 4096, 4096);
        assert_eq!(plan.reason, Reason::Throttled);
        assert!(!read(&mut *throttle, 2000 * MS, 0, 4096).admit);
        assert!(read(&mut *throttle, 3000 * MS, 0, 4096).admit, "it is over");
    }
}

#[test]
fn bcache_lets_streams_of_four_mebibytes_bypass_and_some_requests_while_it_is_congested() {
    let mut bcache = filter("bcache");
    let by = |filter: &mut dyn Filter, run| read(filter, 0, 4096, run).fast_bytes > 0;
    assert!(by(&mut *bcache, (4 << 20) - 1) && !by(&mut *bcache, 4 << 20));
    assert!(!read(&mut *bcache, 0, 0, 4 << 20).admit && read(&mut *bcache, 0, 0, 4096).admit);
    let bypassed = |took_us: f64| {
        let mut bcache = filter("bcache");
        let count = (0..2000).filter(|_| {
            ended(&mut *bcache, 0, Side::Fast, took_us);
            !hit(&mut *bcache, 0)
        });
        count.count()
    };
    assert_eq!(bypassed(1999.0), 0);
    assert!(bypassed(4000.0) > 500, "{}", bypassed(4000.0));
}

#[test]
fn a_profile_gives_the_share_of_the_bandwidths_and_follows_the_slow_sides() {
    let mut profile = filter("profile");
    let share = |slower: f64| {
        let (fast, slow) = (
            sides().fast.rate_bytes_per_us,
            sides().slow.rate_bytes_per_us / slower,
        );
        fast / (fast + slow)
    };
    let is = |filter: &dyn Filter| filter.gauges().share.unwrap();
    assert!((is(&*profile) - share(1.0)).abs() < 1e-9);
    let expected = sides().slow.loaded_us(4096, IDLE);
    for slower in [2.0, 1.0] {
        (0..1000).for_each(|_| ended(&mut *profile, 0, Side::Slow, slower * expected));
        assert!((is(&*profile) - share(slower)).abs() < 0.01, "{slower}");
    }
}

/// What Orthus does in periods of its own, of which `rate` says how much is done at a share: its share and whether it
/// admits, at the end of each of `count` periods of 25 ms.
fn climbs(orthus: &mut dyn Filter, from: Nanos, count: u64, held: u64, rate: impl Fn(f64) -> u64) {
    for ms in 0..25 * count {
        let now = from + ms * MS;
        let share = orthus.gauges().share.unwrap();
        // Lookups are as many whatever is done.
        (0..50).for_each(|_| _ = read(orthus, now, held, 4096));
        (0..rate(share)).for_each(|_| ended(orthus, now, Side::Fast, 50.0));
    }
}

#[test]
fn orthus_fills_until_the_misses_are_steady_then_climbs_by_a_hundredth_in_25_ms_and_starts_again() {
    let mut orthus = filter("orthus");
    let (share, admits) = (
        |filter: &dyn Filter| filter.gauges().share.unwrap(),
        |filter: &mut dyn Filter, now| read(filter, now, 0, 4096).admit,
    );
    // More is done the less the fast side gets.
    let less = |share: f64| 100 + (1000.0 * (1.0 - share)) as u64;
    climbs(&mut *orthus, 0, 7, 4096, less);
    assert!(
        share(&*orthus) == 1.0 && admits(&mut *orthus, 175 * MS),
        "it fills"
    );
    // Two periods of 100 ms were alike. Then each step takes three periods, one for each side of where it is.
    climbs(&mut *orthus, 175 * MS, 1 + 3 * 20 + 1, 4096, less);
    let now = (175 + 25 * 62) * MS;
    assert!(!admits(&mut *orthus, now), "it climbs");
    assert!(
        (share(&*orthus) - 0.80).abs() < 0.031,
        "{}",
        share(&*orthus)
    );
    // A fifth more is missed.
    climbs(&mut *orthus, now, 3, 0, less);
    assert_eq!(share(&*orthus), 1.0);
    assert!(admits(&mut *orthus, now + 75 * MS), "it starts again");
    // Where the fast side alone does most, it is at the top twice, and fills again.
    let mut orthus = filter("orthus");
    let more = |share: f64| (1000.0 * share) as u64;
    let mut filled = 0;
    for n in 0..40 {
        climbs(&mut *orthus, 25 * n * MS, 1, 4096, more);
        filled += u32::from(admits(&mut *orthus, 25 * (n + 1) * MS));
    }
    assert!((16..34).contains(&filled), "{filled} of 40 periods");
    assert!(share(&*orthus) >= 0.99);
}

#[test]
fn orthus_climbs_five_times_as_fast_with_the_interval_of_its_kernel_version() {
    let less = |share: f64| 100 + (1000.0 * (1.0 - share)) as u64;
    let after = |name: &str, ms: u64| {
        let mut orthus = filter(name);
        assert!(orthus.gauges().settling, "{name}: it has not climbed yet");
        climbs(&mut *orthus, 0, 8 + ms / 25, 4096, less);
        assert!(!orthus.gauges().settling);
        (1.0 - orthus.gauges().share.unwrap(), orthus.pace())
    };
    let ((paper, pace), (kernel, kernel_pace)) =
        (after("orthus", 750), after("orthus-kernel", 750));
    assert!((0.06..0.13).contains(&paper), "ten steps: {paper}");
    assert!((0.4..0.52).contains(&kernel), "fifty steps: {kernel}");
    assert_eq!((pace, kernel_pace), (3000 * MS, 3000 * MS));
    // Where the fast side alone does most it goes on at the top for ten climbs of 15 ms, and then fills again.
    let mut orthus = filter("orthus-kernel");
    let more = |share: f64| (1000.0 * share) as u64;
    climbs(&mut *orthus, 0, 8, 4096, more);
    assert!(!read(&mut *orthus, 200 * MS, 0, 4096).admit, "it climbs");
    climbs(&mut *orthus, 200 * MS, 5, 4096, more);
    assert!(
        !read(&mut *orthus, 325 * MS, 0, 4096).admit,
        "it still does"
    );
    climbs(&mut *orthus, 325 * MS, 3, 4096, more);
    assert!(read(&mut *orthus, 400 * MS, 0, 4096).admit, "it fills");
}
