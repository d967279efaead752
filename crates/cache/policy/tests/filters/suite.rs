//! Goal: the text of [`Filter`] as a test of any filter. Rooms that make filters of their own include this file. The
//! rule that moves a share ([`Steer`]) is run as the filter that it makes.
//! Method: random requests, loads and times, from fixed seeds. Two filters of one kind get the same schedule; one of
//! them is asked for its gauges all the time, and both must decide alike.
//! Not covered: whether a filter's decisions are good; that no call waits.

use longshore_policy::model::{Nanos, Op, Profile};
use longshore_policy::policy::filter::{Filter, ReadRequest, Sides};
use longshore_policy::policy::{EndedRequest, Load, Purpose, Side, View, Write};

/// Numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn load(&mut self) -> Load {
        let in_flight_requests = self.below(200);
        Load {
            in_flight_requests,
            in_flight_bytes: in_flight_requests * (4096 << self.below(8)),
            written_bytes: self.below(1 << 30),
        }
    }
}

/// Checks whatever the trait promises; `make` makes a new filter for these devices.
///
/// # Panics
/// If the filter breaks a promise.
pub fn keeps_its_contract(make: &dyn Fn(Sides) -> Box<dyn Filter>) {
    for (fast, slow) in [
        ("optane-905p", "samsung-970pro"),
        ("nvme-pcie5", "ebs-gp3-base"),
        // The fast side is the slower one.
        ("ebs-gp3-base", "nvme-pcie5"),
    ] {
        let outlook = |name| Profile::named(name).unwrap().outlook();
        let sides = Sides {
            fast: outlook(fast),
            slow: outlook(slow),
        };
        for seed in 1..4 {
            schedule(&mut *make(sides), &mut *make(sides), seed);
        }
    }
}

fn schedule(filter: &mut dyn Filter, asked: &mut dyn Filter, seed: u64) {
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut now: Nanos = 0;
    for _ in 0..3000 {
        // Mostly soon after one another, sometimes after a night.
        now += match numbers.below(200) {
            0 => 30_000_000_000_000,
            1..10 => 0,
            _ => numbers.below(2_000_000),
        };
        let view = View {
            now,
            fast: numbers.load(),
            slow: numbers.load(),
        };
        let before = asked.gauges();
        assert_eq!(before, asked.gauges(), "gauges change nothing");
        if let Some(share) = before.share {
            assert!((0.0..=1.0).contains(&share), "{share}");
        }
        match numbers.below(10) {
            0..5 => read(filter, asked, &view, &mut numbers),
            5..6 => write(filter, asked, &view, &mut numbers),
            _ => ended(filter, asked, now, &mut numbers),
        }
        let (fast, slow) = (filter.pace(), asked.pace());
        assert_eq!(fast, slow, "one schedule gives one run");
    }
    assert_eq!(
        filter.gauges(),
        asked.gauges(),
        "one schedule gives one run"
    );
}

fn read(filter: &mut dyn Filter, asked: &mut dyn Filter, view: &View, numbers: &mut Numbers) {
    let len = [1, 4096, 65_536, 1 << 20, 64 << 20][numbers.below(5) as usize];
    let held_bytes = match numbers.below(3) {
        0 => 0,
        1 => len,
        _ => numbers.below(len + 1),
    };
    let request = ReadRequest {
        len_bytes: len,
        held_bytes,
        run_bytes: len + numbers.below(64 << 20),
    };
    let saved = filter.saved_us(view, &request);
    assert!(saved.is_finite() && saved >= 0.0, "{saved} of {request:?}");
    let plan = filter.read(view, &request);
    assert!(plan.fast_bytes <= held_bytes, "{plan:?} for {request:?}");
    let is_whole = held_bytes == len;
    assert!(!(is_whole && plan.admit), "nothing to fill: {request:?}");
    assert_eq!(plan, asked.read(view, &request), "{request:?}");
}

fn write(filter: &mut dyn Filter, asked: &mut dyn Filter, view: &View, numbers: &mut Numbers) {
    let len = 4096 << numbers.below(12);
    let write = Write {
        offset: numbers.below(1 << 40),
        len_bytes: len,
        held_bytes: numbers.below(2) * len,
    };
    let plan = filter.write(view, &write);
    assert_eq!(plan, asked.write(view, &write), "{write:?}");
}

fn ended(filter: &mut dyn Filter, asked: &mut dyn Filter, now: Nanos, numbers: &mut Numbers) {
    let pick = |one, other, first: bool| if first { one } else { other };
    let ended = EndedRequest {
        now,
        side: pick(Side::Fast, Side::Slow, numbers.below(2) == 0),
        op: if numbers.below(3) == 0 {
            Op::Write
        } else {
            Op::Read
        },
        purpose: [Purpose::Client, Purpose::Joined, Purpose::Fill][numbers.below(3) as usize],
        len_bytes: 4096 << numbers.below(10),
        // From nothing to an hour.
        took_us: [0.0, 80.0, 2000.0, 3.6e9][numbers.below(4) as usize],
        before: numbers.load(),
    };
    filter.ended(&ended);
    asked.ended(&ended);
}
