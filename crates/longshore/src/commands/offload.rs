//! The accelerators that a run may use, and the part of its report about them.

use std::time::Duration;

use longshore_pipeline::{EngineShare, Offload, OffloadMode};

use crate::options::OffloadOptions;
use longshore_terminal::output::{Output, Table, bytes};

/// The given options, which override the configuration. Says if the objective has nothing to choose.
pub fn of(options: &OffloadOptions, configured: Option<OffloadMode>, output: Output) -> Offload {
    let usual = Offload::default();
    let mode = options
        .offload
        .map(OffloadMode::from)
        .or(configured)
        .unwrap_or(usual.mode);
    if options.objective.is_some() && mode != OffloadMode::Auto {
        output
            .note("--objective has no effect here: it chooses between the modes of --offload auto");
    }
    Offload {
        mode,
        objective: options.objective.map_or(usual.objective, Into::into),
        verify: usual.verify,
        hang_bound: options
            .engine_timeout
            .map_or(usual.hang_bound, |s| Duration::from_secs(s.into())),
    }
}

/// The share of each engine; `None` if software did everything and nothing else was requested.
pub fn table(engines: &[EngineShare]) -> Option<Table> {
    if !engines.iter().any(|engine| engine.is_accelerator) {
        return None;
    }
    let mut table = Table::new(&[
        "engine",
        "state",
        "blocks",
        "in",
        "recomputed",
        "faults",
        "call p99",
    ]);
    for engine in engines {
        let faults: Vec<_> = engine
            .faults
            .iter()
            .map(|(kind, n)| format!("{n} {kind}"))
            .collect();
        let of_accelerator = |text: String| match engine.is_accelerator {
            true => text,
            false => "-".to_owned(),
        };
        let p99 = engine.service_us_p99;
        table.row(vec![
            engine.name.clone(),
            engine.state.to_owned(),
            engine.blocks.to_string(),
            bytes(engine.plain_bytes),
            of_accelerator(engine.recomputed.to_string()),
            of_accelerator(match faults.is_empty() {
                true => "none".to_owned(),
                false => faults.join(", "),
            }),
            p99.map_or("-".to_owned(), |us| format!("{:.1} ms", us as f64 / 1000.0)),
        ]);
    }
    Some(table)
}
