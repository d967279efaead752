//! A standby whose primary moves to another timeline during the backup.

use std::fs;
use std::path::Path;

use longshore_source::Error;

use crate::cluster::{Cluster, END, SYSTEM, answer, control_with};
use crate::double::{Double, row};
use crate::hooked::hooked;

/// A standby's control file: in recovery, consistent from [`END`] on, which is on `timeline`.
fn standing_by(timeline: u32) -> Vec<u8> {
    control_with(&[(16, 5), (136, END as u32), (144, timeline)])
}

/// A backup of a standby that replaces its control file when it is asked to end the backup.
fn backed_up(before: u32, at_stop: u32) -> Result<(), Error> {
    let cluster = Cluster::new();
    let write = |data: &Path, timeline| {
        fs::write(data.join("global/pg_control"), standing_by(timeline)).unwrap();
    };
    write(cluster.dir.path(), before);
    let data = cluster.dir.path().to_owned();
    let double = Double::new(move |sql| {
        if sql.contains("pg_is_in_recovery()") {
            return row(&["t", "replica", &SYSTEM.to_string(), "1000000000", ""]);
        }
        if sql.contains("pg_backup_stop") {
            write(&data, at_stop);
        }
        answer(&data, sql)
    });
    let copy = cluster.back_up_from(&double, &hooked(|_, _| Ok(())))?;
    // The script has no answer about its replay, and no backup fails by that.
    let warnings = &copy.summary.warnings;
    let is_told = |text: &String| text.contains("still follows its primary was not looked at");
    assert!(warnings.iter().any(is_told), "{warnings:?}");
    Ok(())
}

#[test]
fn a_backup_that_ends_on_another_timeline_than_it_began_is_none() {
    backed_up(1, 1).unwrap();
    // Nothing was replayed yet that needs a minimum recovery LSN.
    backed_up(0, 0).unwrap();
    for (before, at_stop) in [(1, 2), (2, 2), (0, 2)] {
        let refused = backed_up(before, at_stop);
        let Err(Error::TimelineChanged { from: 1, to: 2 }) = refused else {
            panic!("{before}, {at_stop}: {refused:?}");
        };
    }
}
