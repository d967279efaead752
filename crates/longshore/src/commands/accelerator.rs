//! `accelerator`: shows what was found and what is used; enables and disables accelerators.
//!
//! Invariants
//! - Libraries are loaded and tested in a process of their own with a time limit, so that one that hangs or crashes
//!   does not take the command with it. If hardware is not wanted, none is loaded.
//! - Enabling changes server settings only, from the next backup on.
//!
//! Leaves to others: finding and testing (`longshore-accelerators`, `longshore-accel`).

use std::time::Duration;

use longshore_accelerators::{
    AcceleratorSettings, AcceleratorStatus, OffloadMode, Probe, RunningBackup, configure,
    configured, running, status,
};
use longshore_catalog::Catalog;
use serde::Serialize;

use crate::context::Context;
use crate::options::{Accelerator, AcceleratorAction};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::numbers;
use longshore_terminal::output::{Table, bytes, moment};
use longshore_terminal::text::plain;

/// The limit for loading the libraries and one test each; a first CUDA context takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct Answer<'a> {
    action: &'static str,
    rows: &'a [AcceleratorStatus],
    running: &'a [RunningBackup],
}

#[derive(Serialize)]
struct SettingChange<'a> {
    action: &'static str,
    /// 17411: nothing changed. 17412: takes effect with the next backup.
    number: u32,
    message: &'a str,
}

pub fn run(options: &Accelerator, context: &Context) -> Result<Exit, Failure> {
    match &options.action {
        AcceleratorAction::Status => show(context),
        AcceleratorAction::Enable(options) => set(context, Some(options.mode.into())),
        AcceleratorAction::Disable => set(context, None),
        AcceleratorAction::Probe { engine } => {
            let Some(probe) = Probe::test(engine) else {
                let text = format!("there is no accelerator engine {engine}");
                return Err(Failure::usage(
                    text,
                    "`longshore accelerator status` lists them",
                ));
            };
            let text = serde_json::to_string(&probe).map_err(|e| internal(&e))?;
            context.output.raw(text.as_bytes());
            Ok(Exit::Done)
        }
    }
}

fn internal(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::of(Exit::Internal, error, numbers::INTERNAL, "report this bug")
}

fn set(context: &Context, mode: Option<OffloadMode>) -> Result<Exit, Failure> {
    let Some(path) = context.catalog.as_deref() else {
        return Err(Failure::usage(
            "there is no catalog to store the setting",
            "--catalog, LONGSHORE_CATALOG or [catalog] in the configuration says `none`",
        ));
    };
    let message = configure(&Catalog::open(path)?, mode)?;
    message.log();
    let action = if mode.is_some() {
        "accelerator_enable"
    } else {
        "accelerator_disable"
    };
    context.output.say(&format!("{}\n", message.text));
    context.output.json(
        Exit::Done,
        SettingChange {
            action,
            number: message.number,
            message: &message.text,
        },
    );
    Ok(Exit::Done)
}

fn show(context: &Context) -> Result<Exit, Failure> {
    let configured = configured(&*context.storage, context.catalog.as_deref())?;
    let rows = status(configured, &probes(context, configured)?);
    let running = running(&context.machine(), context.catalog.as_deref());
    let output = &context.output;
    output.say(&table(&rows).to_string());
    for row in rows.iter().filter(|row| !row.advice.is_empty()) {
        output.say(&format!("{}: {}\n", row.accelerator, plain(&row.advice)));
    }
    if !running.is_empty() {
        output.say(&format!("\n{}", counters(&running)));
    }
    output.json(
        Exit::Done,
        Answer {
            action: "accelerator_status",
            rows: &rows,
            running: &running,
        },
    );
    Ok(Exit::Done)
}

fn probes(context: &Context, configured: AcceleratorSettings) -> Result<Vec<Probe>, Failure> {
    if !configured.wants_hardware() {
        return Ok(Probe::look());
    }
    let program = std::env::current_exe().map_err(|e| internal(&e))?;
    Ok(Probe::test_in_children(&program, &*context.clock, PATIENCE))
}

fn table(rows: &[AcceleratorStatus]) -> Table {
    let mut table = Table::new(&[
        "accelerator",
        "mode",
        "code",
        "reason",
        "hardware",
        "library",
        "driver",
    ]);
    let or_none = |text: &Option<String>| text.as_deref().map_or("-".to_owned(), plain);
    for row in rows {
        table.row(vec![
            row.accelerator.clone(),
            row.mode_desc.to_owned(),
            row.mode_reason.to_string(),
            row.mode_reason_desc.clone(),
            or_none(&row.hardware),
            or_none(&row.accelerator_library_version),
            or_none(&row.accelerator_driver_version),
        ]);
    }
    table
}

fn counters(running: &[RunningBackup]) -> Table {
    let mut table = Table::new(&[
        "process",
        "since",
        "mode",
        "engine",
        "state",
        "in flight",
        "blocks",
        "in",
        "service",
        "p99",
        "fallback",
        "faults",
    ]);
    let ms = |us: u64| format!("{:.1} ms", us as f64 / 1000.0);
    for run in running {
        for engine in &run.engines {
            let faults: Vec<_> = engine
                .faults
                .iter()
                .map(|(kind, n)| format!("{n} {}", plain(kind)))
                .collect();
            table.row(vec![
                run.pid.to_string(),
                moment(run.since_us),
                plain(&run.mode),
                plain(&engine.name),
                plain(&engine.state),
                bytes(engine.in_flight_bytes),
                engine.blocks.to_string(),
                bytes(engine.plain_bytes),
                ms(engine.service_us_mean),
                engine.service_us_p99.map_or("-".to_owned(), ms),
                format!("{:.1} %", 100.0 * engine.fallback_share),
                if faults.is_empty() {
                    "none".to_owned()
                } else {
                    faults.join(", ")
                },
            ]);
        }
    }
    table
}
