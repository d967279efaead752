//! A source that had content and has lost it: what the newest backups show, and the words for it.
//!
//! Invariants
//! - The sentence names the newest backup that has the content, and commands that can be typed as they are.
//! - Where the configuration says that a database may be empty, nothing is told.
//!
//! Leaves to others: the verdict (`longshore-repository`).

use longshore_repository::emptied::{Filled, Loss};
use longshore_repository::{BackupLease, Listing, Shelf};

use super::labelled::with_label;
use crate::context::Context;
use longshore_terminal::output::bytes;
use longshore_terminal::text::{command_line, plain, shell_words};

/// The losses that the newest backups show, unless the source may be empty.
pub fn losses(shelf: &Shelf, listing: &Listing, context: &Context) -> Vec<Loss> {
    let now_us = context.clock.wall_ns() / 1000;
    match context.config.may_be_empty(&shelf.database) {
        true => Vec::new(),
        false => shelf.losses(listing, now_us),
    }
}

/// Warns of a backup that nobody has named by its label, and whose source had lost its content.
pub fn tell_leased(lease: &BackupLease, shelf: &Shelf, label: Option<&str>, context: &Context) {
    // A cluster is never empty.
    if label.is_some_and(|label| label != "latest") || lease.facts.log.is_some() {
        return;
    }
    let Ok(listing) = shelf.list() else { return };
    let all = losses(shelf, &listing, context).into_iter();
    let of_it = |loss: &Loss| listing.sets[loss.lost[0]].label == lease.label;
    for loss in all.filter(of_it) {
        let (label, filled) = (&lease.label, &loss.filled);
        let command = command_line(with_label(
            std::env::args_os().skip(1),
            filled.label.as_str(),
        ));
        context.output.warn(&format!(
            "the source of {label} had lost its content: {left} are left of {before} in {with}. For that backup run: {command}",
            left = bytes(loss.left),
            before = bytes(filled.plain_bytes),
            with = filled.label,
        ));
    }
}

/// The sentence for a backup with so many bytes of a database at a target, by names.
pub fn told(filled: &Filled, left: u64, (database, target): (&str, &str)) -> String {
    let word = |name: &str| shell_words([name.into()]);
    format!(
        "the source of {name} has lost its content: {left} are left of {before} in {label}. Look whether its file system is mounted and the \
         application uses this file; the content comes back with `longshore restore --database {database} --target {target} --label \
         {label} --to PATH`. No rule of `expire` counts such a backup, so those with content stay. If it is right, write `may_be_empty = true` \
         into [database.{name}]",
        name = plain(database),
        left = bytes(left),
        before = bytes(filled.plain_bytes),
        label = filled.label,
        database = word(database),
        target = word(target),
    )
}
