//! VAR, VARP, STDEV and STDEVP as aggregates of SQLite.
//!
//! Invariants
//! - Large values that are close together keep their difference: squares are never summed (Welford's way).
//! - Too few rows have no result: it is NULL.
//!
//! Leaves to others: which values are aggregated (`translate/call.rs`).

use rusqlite::Connection;
use rusqlite::functions::{Aggregate, Context, FunctionFlags};

/// The values so far: how many, their mean, and the sum of the squares of their distances from it.
#[derive(Debug, Default)]
struct Spread {
    count: f64,
    mean: f64,
    squares: f64,
}

struct Variance {
    /// Of a sample, not of all.
    is_sample: bool,
    /// STDEV and STDEVP.
    is_root: bool,
}

impl Aggregate<Spread, Option<f64>> for Variance {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<Spread> {
        Ok(Spread::default())
    }

    fn step(&self, context: &mut Context<'_>, spread: &mut Spread) -> rusqlite::Result<()> {
        if let Some(value) = context.get::<Option<f64>>(0)? {
            spread.count += 1.0;
            let before = value - spread.mean;
            spread.mean += before / spread.count;
            spread.squares += before * (value - spread.mean);
        }
        Ok(())
    }

    fn finalize(
        &self,
        _: &mut Context<'_>,
        spread: Option<Spread>,
    ) -> rusqlite::Result<Option<f64>> {
        let spread = spread.unwrap_or_default();
        let counted = spread.count - f64::from(u8::from(self.is_sample));
        let variance = (counted > 0.0).then(|| spread.squares / counted);
        Ok(match self.is_root {
            true => variance.map(f64::sqrt),
            false => variance,
        })
    }
}

/// Registers them with a connection.
pub(super) fn register(db: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    for (name, is_sample, is_root) in [
        ("ts_var", true, false),
        ("ts_varp", false, false),
        ("ts_stdev", true, true),
        ("ts_stdevp", false, true),
    ] {
        db.create_aggregate_function(name, 1, flags, Variance { is_sample, is_root })?;
    }
    Ok(())
}
