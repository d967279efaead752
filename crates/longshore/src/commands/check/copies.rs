//! Whether the backups of a database are at the targets of its copies, too.
//!
//! Invariants
//! - A backup that was made a moment ago may lack its copy: only one that is older than the newest backup may be is told.
//! - A target that cannot be reached is something to look at: the backups themselves are where they should be.
//!
//! Leaves to others: which backups belong there (`longshore-repository`), and gaps in WAL (`info.rs`).

use longshore_repository::copying::{CopyStep, needs_archive, plan};
use longshore_repository::retention::Policy;
use longshore_repository::{BackupState, Listing, Shelf};

use super::super::info;
use super::super::results::age_text;
use super::super::{devices, shelves};
use super::depth::CheckDepth;
use super::notes::{Notes, told};
use crate::context::Context;
use longshore_terminal::failure::Exit;

pub(super) fn look(
    shelf: &Shelf,
    listing: &Listing,
    depth: &CheckDepth,
    context: &Context,
    notes: &mut Notes,
) {
    for copy in context.config.copies_of(&shelf.database) {
        let there = devices::target(context, copy)
            .and_then(|target| {
                shelves::refuse_same(&shelf.target, &target, context)?;
                devices::shelf(context, &target, &shelf.database)
            })
            .and_then(|there| Ok((there.list()?, there)));
        match there {
            Ok((found, there)) => {
                compare(copy, (shelf, listing), &found, depth, context, notes);
                wal(&there, &found, context, notes);
            }
            Err(failure) if failure.exit == Exit::Usage => notes.bad("copies", told(&failure)),
            Err(failure) => notes.look("copies", format!("{copy}: {}", told(&failure))),
        }
    }
}

fn compare(
    copy: &str,
    (shelf, listing): (&Shelf, &Listing),
    there: &Listing,
    depth: &CheckDepth,
    context: &Context,
    notes: &mut Notes,
) {
    let now_us = context.clock.wall_ns() / 1000;
    let database = &shelf.database;
    let rules = context.config.retention_of(database, Some(copy));
    let policy = rules.map_or(Policy::default(), |(_, rules)| rules.policy());
    let steps = plan(listing, there, &[], &policy, now_us).steps;
    let facts = listing.facts();
    let is_old = |i: &usize| {
        now_us.saturating_sub(facts[*i].finish_us) > i64::from(depth.max_age) * 3_600_000_000
    };
    let lacking = |step: &CopyStep| matches!(step, CopyStep::Copy { .. });
    let late: Vec<usize> = (0..steps.len())
        .filter(|i| lacking(&steps[*i]))
        .filter(is_old)
        .collect();
    if let Some(first) = late.first() {
        let age = age_text(now_us.saturating_sub(facts[*first].finish_us) / 1_000_000);
        notes.look(
            "copies",
            format!(
                "{copy} lacks {} backups, the oldest {}, complete {age} ago; run `longshore copy {database} --to {copy}`",
                late.len(),
                facts[*first].label
            ),
        );
    }
    for (i, step) in steps.iter().enumerate() {
        if let CopyStep::Blocked(why) = step {
            let label = &facts[i].label;
            notes.look("copies", format!("{label} is not copied to {copy}: {why}"));
        }
    }
    let broken = there.sets.iter().filter(|set| {
        let state = &set.state;
        matches!(
            state,
            BackupState::Missing { .. } | BackupState::Damaged { .. }
        )
    });
    for set in broken {
        let what = set.state.text();
        notes.bad("copies", format!("{copy}: {}: {what}", set.label));
    }
    if late.is_empty() {
        let copied = |step: &&CopyStep| matches!(step, CopyStep::There(_));
        let count = steps.iter().filter(copied).count();
        let all = facts.iter().filter(|set| set.is_whole()).count();
        notes.good("copies", format!("{copy}: {count} of {all} backups"));
    }
}

/// Whether the second target has the WAL that its backups need, and of one branch.
fn wal(there: &Shelf, found: &Listing, context: &Context, notes: &mut Notes) {
    let copy = &there.target.name;
    let (texts, both) = shelves::mixed(found);
    for text in texts {
        let text = format!("{copy}: {text}");
        match both {
            true => notes.bad("copies", text),
            false => notes.look("copies", text),
        }
    }
    let known = match info::database(there, found, context) {
        Ok(known) => known,
        Err(failure) => {
            notes.bad("copies", format!("{copy}: {}", told(&failure)));
            return;
        }
    };
    if let Some(word) = &known.stopped {
        let text = format!(
            "{copy}: no copy or expire begins there: stopped {word}; `longshore start {} --target {copy}` allows them again",
            known.database
        );
        notes.look("copies", text);
    }
    match &known.wal {
        None if found.sets.iter().any(needs_archive) => notes.bad(
            "copies",
            format!("{copy} has backups that need WAL, and no archive of it"),
        ),
        None => {}
        Some(wal) => {
            for gap in &wal.gaps {
                notes.bad("copies", format!("{copy} lacks WAL: {gap}"));
            }
            for label in &wal.inconsistent {
                notes.bad("copies", format!("{copy} lacks WAL that {label} needs"));
            }
        }
    }
}
