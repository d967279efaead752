//! `wal needs`: which targets rely on an archive, by what they have left there.

use longshore_repository::wal;
use serde::Serialize;

use super::{Context, Place};
use crate::failure::{Exit, Failure};
use crate::options::WalNeeds;
use crate::output::{Table, moment};
use crate::text::plain;

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    archive: String,
    /// Whether everybody who relies on the archive is among them; else no log is removed from it.
    complete: bool,
    needs: Vec<Need>,
    forgotten: usize,
}

/// What a target needs.
#[derive(Debug, Serialize)]
pub struct Need {
    pub id: String,
    database: String,
    target: String,
    host: String,
    directory: String,
    since_us: i64,
    /// Log that ends before it is not kept for this target; none where it asks for everything.
    from_lsn: Option<String>,
}

impl Need {
    pub fn of(need: &wal::Need) -> Need {
        Need {
            id: need.id.to_string(),
            database: need.database.clone(),
            target: need.target.clone(),
            host: need.host.clone(),
            directory: need.directory.display().to_string(),
            since_us: need.since_us,
            from_lsn: need.from().map(|lsn| lsn.to_string()),
        }
    }

    /// For people: `main at target nightly on host db1 (/mnt/backup/main), since 2027-01-31 02:00:00`.
    pub fn text(&self) -> String {
        format!(
            "{} at target {} on host {} ({}), since {}",
            plain(&self.database),
            plain(&self.target),
            plain(&self.host),
            plain(&self.directory),
            moment(self.since_us)
        )
    }
}

pub fn run(options: &WalNeeds, context: &Context) -> Result<Exit, Failure> {
    let archive = Place::of(&options.archive, context)?.open(context)?;
    let mut forgotten = 0;
    if let Some(id) = options.forget {
        forgotten = archive.forget_need(id)?;
        if forgotten == 0 {
            return Err(Failure::usage(
                format!(
                    "no target has left the record {id} in {}",
                    archive.path().display()
                ),
                "`longshore wal needs` without --forget shows the records there are",
            ));
        }
    }
    if options.complete {
        archive.know_all()?;
    }
    let complete = archive.knows_all()?;
    let needs: Vec<Need> = archive.needs()?.iter().map(Need::of).collect();
    let mut table = Table::new(&[
        "id",
        "database",
        "target",
        "host",
        "directory",
        "since",
        "from",
    ]);
    for need in &needs {
        table.row(vec![
            need.id.clone(),
            plain(&need.database),
            plain(&need.target),
            plain(&need.host),
            plain(&need.directory),
            moment(need.since_us),
            need.from_lsn.clone().unwrap_or_else(|| "all".to_owned()),
        ]);
    }
    let archive = archive.path().display().to_string();
    context.output.say(&match needs.is_empty() {
        true => format!("no target relies on {}\n", plain(&archive)),
        false => table.to_string(),
    });
    if !complete {
        context.output.warn(
            "a version that left no records used this archive: no log is removed. Run `longshore expire` at every target \
             whose backups rely on it, then once this command with --complete",
        );
    }
    let exit = match complete {
        true => Exit::Done,
        false => Exit::Warnings,
    };
    context.output.json(
        exit,
        Answer {
            action: "wal_needs",
            archive,
            complete,
            needs,
            forgotten,
        },
    );
    Ok(exit)
}
