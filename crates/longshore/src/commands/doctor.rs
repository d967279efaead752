//! `doctor`: shows what this machine has for backups and what is missing, with the command that helps.

use std::time::Duration;

use longshore_accelerators::Probe;
use longshore_accelerators::doctor::{CheckResult, Checkup, Roots, examine};
use serde::Serialize;

use crate::context::Context;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::text::plain;

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
    let wanting = checkups.iter().any(|c| c.verdict == CheckResult::Wanting);
    let exit = if wanting { Exit::Warnings } else { Exit::Done };
    for checkup in &checkups {
        let mark = match checkup.verdict {
            CheckResult::Good => "ok  ",
            CheckResult::Note => "note",
            CheckResult::Wanting => "WARN",
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
