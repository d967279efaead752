//! The findings about archived WAL that no recovery crosses, and where a whole copy of it is.
//!
//! Invariants
//! - A copy is named only after its segments were read and are whole.
//! - Few segments are read: of longer damage nothing is said of copies.
//!
//! Leaves to others: which segments are of no use (`info.rs`).

use std::ffi::OsString;
use std::path::PathBuf;

use longshore_pg::SegmentName;
use longshore_pg::wal::WalName;
use longshore_repository::Shelf;
use longshore_terminal::text::shell_words;
use longshore_wal::{WalArchive, is_in_bucket};

use super::super::{devices, info};
use super::notes::Notes;
use crate::context::Context;

/// The most segments that are looked for in copies.
const SEGMENTS_MAX: usize = 8;

pub(super) fn look(shelf: &Shelf, wal: &info::Wal, context: &Context, notes: &mut Notes) {
    let (database, target) = (&shelf.database, &shelf.target.name);
    for lost in &wal.lost {
        let whole = whole(shelf, lost, context).unwrap_or_default();
        let again = match lost.file {
            Some(_) => String::new(),
            None => format!(
                "; after a repair, run `longshore verify --all --database {database} --target {target}`"
            ),
        };
        let text = format!(
            "{}: no recovery crosses it. {whole}Make a full backup (`longshore backup {database}`){again}",
            lost.told
        );
        notes.bad("damaged", text);
    }
}

/// A sentence about a copy of the database that has these segments, all of them whole.
fn whole(shelf: &Shelf, lost: &info::LostWal, context: &Context) -> Option<String> {
    let here = shelf.wal().ok()??;
    let size = here.identity()?.segment_size;
    let next = |name: &SegmentName| (*name < lost.last).then(|| name.next(size));
    let names: Vec<SegmentName> = std::iter::successors(Some(lost.first), next)
        .take(SEGMENTS_MAX + 1)
        .collect();
    if names.len() > SEGMENTS_MAX {
        return None;
    }
    for copy in context.config.copies_of(&shelf.database) {
        let archive = devices::target(context, copy)
            .and_then(|target| devices::shelf(context, &target, &shelf.database))
            .and_then(|there| Ok(there.wal()?));
        let Ok(Some(there)) = archive else { continue };
        let is_same = there.identity() == here.identity();
        let is_whole = |name: &SegmentName| there.verify(WalName::Segment(*name)).is_ok();
        if is_same && names.iter().all(is_whole) {
            return Some(advice(copy, (&here, &there), &names));
        }
    }
    None
}

fn advice(copy: &str, (here, there): (&WalArchive, &WalArchive), names: &[SegmentName]) -> String {
    let all = format!("Target {copy} has it whole, in {}", there.path().display());
    let file_of = |archive: &WalArchive, name| archive.file_of(name).ok().flatten();
    let [name] = names else {
        return format!("{all}. ");
    };
    match (file_of(there, *name), file_of(here, *name)) {
        (Some(from), Some(to)) if !is_in_bucket(&from) && !is_in_bucket(&to) => {
            format!("Target {copy} has it whole: `{}`. ", copying(from, to))
        }
        _ => format!("{all}. "),
    }
}

/// A command that brings a file back, with the attributes that the server's user can read it by.
fn copying(from: PathBuf, to: PathBuf) -> String {
    let words = ["cp", "-p", "--remove-destination"].map(OsString::from);
    shell_words(
        words
            .into_iter()
            .chain([from, to].map(PathBuf::into_os_string)),
    )
}
