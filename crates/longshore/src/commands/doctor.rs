//! `doctor`: shows what this machine has for backups and what is missing, with the command that helps.

use std::time::Duration;

use longshore_accelerators::Probe;
use longshore_accelerators::doctor::{CheckResult, Checkup, Roots, examine};
use serde::Serialize;

use super::wal::{of_server, unknown};
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
    let mut checkups = examine(&Roots::host(), &probes);
    checkups.extend(owed(context));
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

/// The debts in the pg_wal of this machine's servers.
fn owed(context: &Context) -> Vec<Checkup> {
    let wanting = |text: String, fix: String| Checkup {
        about: "wal",
        verdict: CheckResult::Wanting,
        text,
        fix: Some(fix),
    };
    let mut found = Vec::new();
    for name in context.config.database.keys() {
        let Some(report) = of_server(name, context) else {
            continue;
        };
        let debts = report.debts.into_iter();
        found.extend(debts.map(|row| wanting(row.text, row.next)));
        if let Some((text, next)) = report.unknown.as_deref().map(unknown) {
            found.push(wanting(text, next.to_owned()));
        }
    }
    found
}
