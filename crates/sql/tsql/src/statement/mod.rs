//! The effects of statements: one file for each family.
//!
//! Invariants
//! - A statement gets the session and the place of its results, and says how the batch goes on ([`Flow`]).
//!
//! Leaves to others: which statement runs next (`run.rs`), and the meaning of queries (`query`).
//!
//! [`Flow`]: crate::flow::Flow

mod alter;
mod applock;
mod arguments;
mod backup;
mod catalog;
mod change;
mod checkdb;
mod computed;
mod conditions;
mod configure;
mod content;
mod credential;
pub(crate) mod cursor;
mod dbcc;
mod describe;
mod device;
mod drop;
mod elsewhere;
mod encryption;
mod files;
mod foreign;
mod function;
pub(crate) mod ground;
mod identity;
mod key;
mod look;
mod media;
mod merge;
mod object;
mod operand;
mod options;
mod output;
mod procedure;
mod raise;
mod rename;
mod reports;
mod restore;
mod restoring;
mod routine;
mod select;
mod sequence;
mod table;
mod target;
mod top;
mod trace;
mod undo;
mod wait;

use longshore_pipeline::{Run, mb_per_s, pages};

use crate::flow::{Flow, Out};
use crate::kinds::{self, TypePlace};
use crate::message::{self, Message, PERCENT_PROCESSED, PROCESSED};
use crate::moving::{News, Steps};
use crate::session::Session;
use crate::sink::{Command, ReceiverGone};
use crate::syntax::{RoutineParameter, TypeName};
use crate::value::Type;

pub(crate) use alter::alter_database;
pub(crate) use backup::backup;
pub(crate) use change::{delete, identity_insert, insert, truncate, update};
pub(crate) use computed::typed;
pub(crate) use configure::{hardware_offload, reconfigure};
pub(crate) use credential::credential;
pub(crate) use dbcc::dbcc;
pub(crate) use drop::drop_databases;
pub(crate) use function::run as run_function;
pub(crate) use key::key;
pub(crate) use look::{
    look_through_delete, look_through_insert, look_through_query, look_through_update, query_of,
    values_of,
};
pub(crate) use merge::merge;
pub(crate) use procedure::{call, execute};
pub(crate) use raise::{raise, rethrow, throw};
pub(crate) use restore::restore;
pub(crate) use routine::create as create_routine;
pub(crate) use select::{describe, select};
pub(crate) use table::{
    alter as alter_table, create as create_table, create_index, drop_index, drop_objects,
};
pub(crate) use wait::wait;

/// Up to this many files each have their own line (4035); a database with more has one line in all.
const FILES_SHOWN_MAX: usize = 64;

/// The log's name where SQL Server shows its file name.
const LOG_FILE: &str = "pg_wal";

/// A declared type. Errors: those of [`kinds::named`].
pub(crate) fn type_of(name: &TypeName, place: TypePlace) -> Result<Type, Message> {
    Ok(kinds::named(&name.name, &name.sizes, place)?.declared())
}

/// The type of a parameter, by its number from 0.
fn type_of_parameter(at: usize, parameter: &RoutineParameter) -> Result<Type, Message> {
    type_of(
        &parameter.kind,
        TypePlace::Variable(&parameter.name, at.saturating_add(1)),
    )
}

/// The first of `count` names, and how many more there are.
fn some_of(count: u64, first: impl Iterator<Item = impl std::fmt::Display>) -> String {
    let mut names: Vec<String> = first.map(|name| name.to_string()).collect();
    let more = count.saturating_sub(names.len() as u64);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}

/// The most warnings of a run that are said one by one.
const WARNINGS_SHOWN_MAX: usize = 16;

/// The warnings of a run, such as names that vanished or attributes that were lost. `has_own`: those that a message of its
/// own tells.
fn say_warnings(run: &Run, has_own: impl Fn(&String) -> bool, out: &mut Out) -> Flow {
    // The history's failure is the last one and has a number, as the mark of a damaged set has.
    let said = run.warnings.len() - usize::from(run.history_failed && !run.warnings.is_empty());
    let is_told = |text: &&String| !text.ends_with("(3188)") && !has_own(text);
    let told: Vec<&String> = run.warnings[..said].iter().filter(is_told).collect();
    for text in told.iter().take(WARNINGS_SHOWN_MAX) {
        out.say(message::WARNING.with(&[text]))?;
    }
    if told.len() > WARNINGS_SHOWN_MAX {
        let more = told.len() - WARNINGS_SHOWN_MAX;
        let text = format!("{more} more warnings are in the error log");
        out.say(message::WARNING.with(&[&text]))?;
    }
    Ok(())
}

/// 3014; the rate is truncated after three decimals, as in SQL Server.
fn processed(statement: &str, plain_bytes: u64, elapsed_s: f64) -> Message {
    let rate = (mb_per_s(plain_bytes, elapsed_s) * 1000.0).floor() / 1000.0;
    let (seconds, rate) = (format!("{elapsed_s:.3}"), format!("{rate:.3}"));
    PROCESSED.with(&[&statement, &pages(plain_bytes), &seconds, &rate])
}

/// Handles reports during a run: its plan for the trace, its percents for STATS.
fn hear(
    session: &Session,
    news: News,
    steps: &mut Option<Steps>,
    command: Command,
    out: &mut Out,
) -> Result<(), ReceiverGone> {
    match news {
        News::Planned(plan) => trace::plan(session, &plan, out),
        News::Percent(percent) => {
            session.progress(percent);
            match steps.as_mut().is_some_and(|s| s.shows(percent)) {
                true => out.say_done(PERCENT_PROCESSED.with(&[&percent]), command),
                false => Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_message_is_that_of_a_published_run() {
        let message = processed("BACKUP DATABASE", 2_136_466 * 8192, 39.266);
        let expected = "BACKUP DATABASE successfully processed 2136466 pages in 39.266 seconds (425.078 MB/sec).";
        assert_eq!(message.text, expected);
    }
}
