//! Measures a device: requests to random places, several at a time, for each size and depth of a plan.
//!
//! Invariants
//! - The bytes in flight are bounded by the plan.
//! - A cell has at least some requests, however long they take.
//! - A cell of a device with limits begins without credit of the limit that holds it.
//!
//! Leaves to others: the requests of a cell (`cell.rs`), fitting a model to the cells (`fit.rs`, `writes.rs`), and limits that
//! show over time (`course.rs`).

use std::time::Duration;

use longshore_io::{Clock, side_by_side};

use super::Point;
use super::cell::{MeasureError, Probe, cell};
use super::course::{Kind, Lasting, use_up};

/// Bytes of the requests of a plan.
const LENS: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 128 << 10, 512 << 10, 2 << 20];
/// Requests in flight at a time.
const DEPTHS: [u32; 4] = [1, 4, 16, 64];
/// The time for each size and depth.
const CELL_TIME: Duration = Duration::from_secs(2);
/// The most bytes in flight.
const IN_FLIGHT_MAX: u64 = 16 << 20;

/// The requests, and the time for them.
#[derive(Debug, Clone)]
pub struct MeasurePlan {
    /// Multiples of 4096.
    pub lens: Vec<u64>,
    pub depths: Vec<u32>,
    /// For each cell; some requests are made even if they take longer.
    pub time: Duration,
    /// Rates that last, on devices where a burst is faster: before each cell the credit of the burst is used up.
    pub lasting: Vec<Lasting>,
    /// At most this many bytes are in flight: more would only measure the link again.
    pub in_flight_bytes_max: u64,
}

impl Default for MeasurePlan {
    fn default() -> MeasurePlan {
        MeasurePlan {
            lens: LENS.to_vec(),
            depths: DEPTHS.to_vec(),
            time: CELL_TIME,
            lasting: Vec::new(),
            in_flight_bytes_max: IN_FLIGHT_MAX,
        }
    }
}

impl MeasurePlan {
    /// The fewest bytes that a file may have.
    pub fn least_bytes(&self) -> u64 {
        let longest = self.lens.iter().copied().max().unwrap_or(0);
        longest.saturating_mul(PLACES).max(1)
    }

    /// The rate that holds requests of this size: the one that lets the fewest pass.
    fn holds(&self, len: u64) -> Option<Lasting> {
        let requests = |lasting: &Lasting| match lasting.kind {
            Kind::Bytes => lasting.rate / len as f64,
            Kind::Commands => lasting.rate,
        };
        let lasting = self.lasting.iter().copied();
        lasting.min_by(|a, b| requests(a).total_cmp(&requests(b)))
    }

    /// The sizes and depths that are measured.
    pub fn cells(&self) -> Vec<(u64, u32)> {
        let all = self
            .lens
            .iter()
            .flat_map(|len| self.depths.iter().map(move |depth| (*len, *depth)));
        all.filter(|(len, depth)| len * u64::from(*depth) <= self.in_flight_bytes_max)
            .collect()
    }
}

/// The range must hold this many of the longest requests.
const PLACES: u64 = 64;
/// Each thread makes this many requests, however long they take.
const REQUESTS_LEAST: u64 = 3;

/// Measures all cells, bypassing the page cache. Calls `on_cell` after each cell.
pub fn measure(
    probe: Probe<'_>,
    plan: &MeasurePlan,
    clock: &dyn Clock,
    on_cell: &dyn Fn(&Point),
) -> Result<Vec<Point>, MeasureError> {
    let (have, least) = (probe.len_bytes, plan.least_bytes());
    if have < least {
        return Err(MeasureError::TooSmall { have, least });
    }
    let mut points = Vec::new();
    for shape in plan.cells() {
        let point = measured(probe, shape, plan, clock)?;
        on_cell(&point);
        points.push(point);
    }
    Ok(points)
}

fn measured(
    probe: Probe<'_>,
    shape: (u64, u32),
    plan: &MeasurePlan,
    clock: &dyn Clock,
) -> Result<Point, MeasureError> {
    if let Some(lasting) = plan.holds(shape.0) {
        use_up(probe, lasting, clock)?;
    }
    cell(probe, shape, (plan.time, REQUESTS_LEAST), clock)
}

/// Equal requests of both probes at the same time.
pub fn together(
    probes: [Probe<'_>; 2],
    shape: (u64, u32),
    plan: &MeasurePlan,
    clock: &dyn Clock,
) -> Result<[Point; 2], MeasureError> {
    let one = |n: usize| measured(probes[n], shape, plan, clock);
    let both = side_by_side(2, one).map_err(|error| MeasureError::Threads { depth: 2, error })?;
    let both: Vec<Point> = both.into_iter().collect::<Result<_, _>>()?;
    Ok([both[0], both[1]])
}
