//! A log of transactions, read: rates and latencies of spans of time.
//!
//! Invariants
//! - A transaction counts in the span in which it ended.
//! - A line that is no transaction, such as the last one of a program that was ended, is left out.
//!
//! Leaves to others: writing logs (`load.rs`, pgbench).

/// A transaction that ended: the wall time in seconds, and how long it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ended {
    pub at_s: f64,
    pub took_ms: f64,
}

/// All transactions of a load, in the order of their ends.
#[derive(Debug, Clone, Default)]
pub struct Transactions(Vec<Ended>);

/// The latencies of a span, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TransactionTimes {
    pub median_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
}

impl Transactions {
    /// Reads logs in pgbench's form.
    pub fn read(text: &str) -> Transactions {
        let of = |line: &str| {
            let mut words = line.split_whitespace().skip(2);
            let us: f64 = words.next()?.parse().ok()?;
            let seconds: f64 = words.nth(1)?.parse().ok()?;
            let rest = words.next()?;
            // A line that was cut has too few digits only in its last number, or misses it.
            let at_s = seconds + rest.parse::<f64>().ok()? / 1e6;
            Some(Ended {
                at_s,
                took_ms: us / 1e3,
            })
        };
        let mut all: Vec<Ended> = text.lines().filter_map(of).collect();
        all.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        Transactions(all)
    }

    pub fn join(mut self, other: Transactions) -> Transactions {
        self.0.extend(other.0);
        self.0.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        self
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn within(&self, from_s: f64, to_s: f64) -> &[Ended] {
        let first = self.0.partition_point(|e| e.at_s < from_s);
        let last = self.0.partition_point(|e| e.at_s < to_s);
        self.0.get(first..last).unwrap_or_default()
    }

    /// Transactions each second between two moments.
    pub fn rate(&self, from_s: f64, to_s: f64) -> f64 {
        self.within(from_s, to_s).len() as f64 / (to_s - from_s).max(1e-9)
    }

    /// `None`: none ended between the moments.
    pub fn times(&self, from_s: f64, to_s: f64) -> Option<TransactionTimes> {
        let mut took: Vec<f64> = self
            .within(from_s, to_s)
            .iter()
            .map(|e| e.took_ms)
            .collect();
        took.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let n = (share * took.len() as f64).ceil() as usize;
            took.get(n.saturating_sub(1)).copied()
        };
        Some(TransactionTimes {
            median_ms: at(0.5)?,
            p95_ms: at(0.95)?,
            p99_ms: at(0.99)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_latencies_are_those_of_the_span() {
        let mut text = String::from("garbage\n0 0 1000 0 99 999999\n");
        for n in 0..100 {
            text.push_str(&format!("1 {n} {} 0 100 {}\n", 1000 * (n + 1), n * 1000));
        }
        text.push_str("0 7 500 0 200");
        let all = Transactions::read(&text);
        assert_eq!(all.rate(100.0, 110.0), 10.0);
        let times = all.times(100.0, 110.0).unwrap();
        assert_eq!(
            (times.median_ms, times.p95_ms, times.p99_ms),
            (50.0, 95.0, 99.0)
        );
        assert_eq!(all.times(150.0, 160.0), None);
        assert_eq!(all.rate(99.0, 100.0), 1.0);
        let both = Transactions::read("0 0 1 0 5 0\n").join(Transactions::read("0 0 1 0 4 0\n"));
        assert_eq!(both.rate(4.0, 6.0), 1.0);
    }
}
