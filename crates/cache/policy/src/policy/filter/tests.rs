//! Tests each filter by the rule that it is named after, without devices: only its inputs and its answers.

use super::*;
use crate::model::{Nanos, Op, Profile};
use crate::policy::{EndedRequest, Load, Purpose, ReadPlan, Reason, Side, View};

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
    let choice: crate::policy::Choice = name.parse().unwrap();
    choice.filter.build(sides())
}

/// A small read at `now`, of which `held_bytes` are cached.
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

#[test]
fn balance_ends_where_both_sides_take_as_long() {
    // Each side's time grows with its share; they are equal at three quarters.
    let mut balance = filter("balance");
    for _ in 0..20_000 {
        let share = balance.gauges().share.unwrap();
        match hit(&mut *balance, 0) {
            true => ended(&mut *balance, 0, Side::Fast, 100.0 * share),
            false => ended(&mut *balance, 0, Side::Slow, 300.0 * (1.0 - share)),
        }
    }
    let share = balance.gauges().share.unwrap();
    assert!((share - 0.75).abs() < 0.06, "{share}");
}

#[test]
fn aware_lets_balance_decide_while_the_devices_are_not_what_is_believed() {
    let mut aware = filter("aware");
    let mut at = 0;
    let mut run = |aware: &mut dyn Filter, slower: f64, seconds: u64| {
        let mut last = Reason::Always;
        for _ in 0..seconds * 1000 {
            at += MS;
            last = read(aware, at, 4096, 4096).reason;
            let expected = sides().slow.loaded_us(4096, IDLE);
            ended(aware, at, Side::Slow, slower * expected);
        }
        last
    };
    assert_eq!(run(&mut *aware, 1.0, 5), Reason::Hit);
    assert_ne!(run(&mut *aware, 8.0, 4), Reason::Drift, "not before 5 s");
    assert_eq!(run(&mut *aware, 8.0, 3), Reason::Drift);
    assert!(aware.gauges().alarmed);
    assert_eq!(run(&mut *aware, 1.0, 20), Reason::Hit);
    assert!(!aware.gauges().alarmed);
}
