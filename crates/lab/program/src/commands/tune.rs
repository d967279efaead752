//! `tune`: the settings that suit a source, its places and a purpose.
//!
//! Invariants
//! - A file that exists is refused before anything is measured, and none is replaced.
//!
//! Leaves to others: the search and its report (`longshore-studies`).

use std::time::Duration;

use longshore_pipeline::SourceSpec;
use longshore_studies::tune::{Objective, TuneSpec, tune};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::files::write_new;
use longshore_terminal::numbers;
use longshore_terminal::text::command_line;

use super::answers::{answer, context_with_accelerators, failure};
use crate::context::Context;
use crate::options::{Purpose, Tune};

pub fn run(options: &Tune, context: &Context) -> Result<Exit, Failure> {
    let storage = &*context.storage;
    if let Some(path) = options
        .write
        .as_deref()
        .filter(|path| storage.stat(path).is_ok())
    {
        let what = format!("{} exists, and is not replaced", path.display());
        let hint = "give --write another name, or leave it out: the settings are printed";
        return Err(Failure::usage(what, hint).numbered(numbers::FILE_UNUSABLE));
    }
    let spec = TuneSpec {
        source: SourceSpec::parse(storage, &options.source)?,
        words: options.source.clone(),
        line: |words| command_line(words),
        to: places(&options.to)?,
        objective: match options.purpose {
            Purpose::Window => Objective::Window,
            Purpose::Cpu => Objective::Cpu,
            Purpose::Workload => Objective::Workload,
            Purpose::Size => Objective::Size,
        },
        within: options.within.map(Duration::from_secs_f64),
        algorithms: options.algorithm.clone(),
        time: Duration::from_secs_f64(options.time),
    };
    let step = |line: &str| context.output.remark(&format!("{line}\n"));
    let tuned = tune(&context_with_accelerators(context), &spec, &step).map_err(failure)?;
    let exit = answer(Exit::Done, tuned.report, false, &options.written, context)?;
    // The settings are shown by now, if the file cannot be written.
    if let Some(path) = &options.write {
        write_new(path, &tuned.configuration, storage)?;
    }
    Ok(exit)
}

/// Directories become absolute, as the configuration wants them.
fn places(to: &[String]) -> Result<Vec<String>, Failure> {
    let absolute = |place: &String| {
        if place.contains("://") {
            return Ok(place.clone());
        }
        let path = std::path::absolute(place).map_err(|error| failure(error.into()))?;
        Ok(path.to_string_lossy().into_owned())
    };
    to.iter().map(absolute).collect()
}
