//! `stop` and `start`: keep backups, copies and expires of databases from beginning at a target, on every host, and allow
//! them again.
//!
//! Invariants
//! - The word is at the target itself, so that all hosts see it; it names its author, the time and the reason.
//! - A run that has begun goes on. Restores, verifications and lists are never stopped, nor is the archiving of WAL.
//! - Every database is tried; one that fails is named, and the exit code says so.
//!
//! Leaves to others: the file at a target (`longshore-repository`), which also refuses what is stopped.

use longshore_repository::Shelf;
use serde::Serialize;

use super::shelves::{Failures, shelves};
use crate::context::Context;
use crate::options::{Start, Stop};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::moment;
use longshore_terminal::text::plain;

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    databases: Vec<StoppedDatabase>,
    failures: Failures,
}

#[derive(Serialize)]
struct StoppedDatabase {
    database: String,
    target: String,
    /// The word that stops it; `None`: it runs.
    stopped: Option<String>,
    /// Whether this command changed that.
    was_changed: bool,
}

pub fn stop(options: &Stop, context: &Context) -> Result<Exit, Failure> {
    let by = longshore_facts::user_name();
    let host = longshore_facts::host_name();
    let at = moment(context.clock.wall_ns() / 1000);
    let mut word = format!("by {by} on {host}, {at} UTC");
    if let Some(reason) = &options.reason {
        word += &format!(": {reason}");
    }
    let word = word.replace(char::is_control, " ");
    let names = (&*options.databases, options.target.as_deref());
    let action = "stop";
    each((action, names), context, |shelf| {
        let before = shelf.stopped()?;
        shelf.stop(&word)?;
        Ok((Some(word.clone()), before.is_none()))
    })
}

pub fn start(options: &Start, context: &Context) -> Result<Exit, Failure> {
    let names = (&*options.databases, options.target.as_deref());
    let action = "start";
    each((action, names), context, |shelf| {
        Ok((None, shelf.resume()?))
    })
}

fn each(
    (action, (databases, target)): (&'static str, (&[String], Option<&str>)),
    context: &Context,
    act: impl Fn(&Shelf) -> Result<(Option<String>, bool), longshore_repository::Error>,
) -> Result<Exit, Failure> {
    let mut failures = Failures::default();
    let mut found = Vec::new();
    for shelf in shelves(context, databases, target)? {
        let name = plain(&shelf.database);
        match act(&shelf) {
            Ok((stopped, was_changed)) => {
                let now = match (&stopped, was_changed) {
                    (Some(word), _) => format!("stopped {}", plain(word)),
                    (None, true) => "runs again".to_owned(),
                    (None, false) => "was not stopped".to_owned(),
                };
                context
                    .output
                    .say(&format!("{name} at target {}: {now}\n", shelf.target.name));
                found.push(StoppedDatabase {
                    database: shelf.database.clone(),
                    target: shelf.target.name.clone(),
                    stopped,
                    was_changed,
                });
            }
            Err(error) => failures.note(&shelf, error.into(), context),
        }
    }
    let exit = failures.exit().unwrap_or_else(|| context.output.done());
    let answer = Answer {
        action,
        databases: found,
        failures,
    };
    context.output.json(exit, answer);
    Ok(exit)
}
