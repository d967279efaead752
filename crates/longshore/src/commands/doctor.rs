//! `doctor`: what this machine has for backups, what is missing, and the command that helps.

use std::time::Duration;

use longshore_pipeline::Probe;
use longshore_pipeline::doctor::{Checkup, Roots, Verdict, examine};
use serde::Serialize;

use super::Context;
use crate::failure::{Exit, Failure};
use crate::text::plain;

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct Answer<'a> {
    action: &'static str,
    checkups: &'a [Checkup],
}

pub fn run(context: &Context) -> Result<Exit, Failure> {
    let probes = match std::env::current_exe() {
        Ok(program) => Probe::test_in_children(&program, &*context.clock, PATIENCE),
        Err(_) => Probe::look(),
    };
    let checkups = examine(&Roots::host(), &probes);
    let wanting = checkups.iter().any(|c| c.verdict == Verdict::Wanting);
    let exit = if wanting { Exit::Warnings } else { Exit::Done };
    for checkup in &checkups {
        let mark = match checkup.verdict {
            Verdict::Good => "ok  ",
            Verdict::Note => "note",
            Verdict::Wanting => "MEND",
        };
        let output = &context.output;
        output.say(&format!(
            "{mark}  {:<7} {}\n",
            checkup.about,
            plain(&checkup.text)
        ));
        if let Some(fix) = &checkup.fix {
            output.say(&format!("              -> {fix}\n"));
        }
    }
    context.output.json(
        exit,
        Answer {
            action: "doctor",
            checkups: &checkups,
        },
    );
    Ok(exit)
}
