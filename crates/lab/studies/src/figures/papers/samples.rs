//! The samples that trials recorded each second, one backup after another on one axis of time.

use super::super::trials::Tried;
use crate::over_time::{self, Line, Recorded};
use crate::report::Section;

/// The samples of each trial's last round, each line in a chart of its own; `None`: every run was too short for one.
pub fn over_time(heading: &str, prose: &str, tried: &[Tried], lines: &[Line]) -> Option<Section> {
    let last = tried
        .iter()
        .filter_map(|one| Some((one, one.taken.last()?)));
    let runs: Vec<Recorded> = last
        .map(|(one, taken)| Recorded {
            label: &one.trial.label,
            taken,
        })
        .collect();
    over_time::over_time(heading, prose, &runs, lines)
}
