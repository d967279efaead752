//! `wal needs`: lists the targets that rely on an archive, and the servers whose debts do, from the records that they left there.
//!
//! Invariants
//! - A record is removed only if the user names it.
//! - Without the certainty that all records are there, the answer says so with the exit code of warnings, and no WAL is
//!   removed from the archive.
//!
//! Leaves to others: records (`longshore-wal`), and expiring (`longshore-repository`).

use longshore_wal as wal;
use longshore_wal::needs::Purpose;
use serde::Serialize;

use crate::commands::archive::ArchiveLocation;
use crate::context::Context;
use crate::options::WalNeeds;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::{Table, moment};
use longshore_terminal::text::plain;

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    archive: String,
    /// Whether every target that relies on the archive is known; otherwise no WAL is removed from it.
    complete: bool,
    needs: Vec<Need>,
    forgotten: usize,
}

/// The needs of one target, or of one server's debt.
#[derive(Debug, Serialize)]
pub struct Need {
    pub id: String,
    pub purpose: &'static str,
    database: String,
    target: String,
    host: String,
    directory: String,
    since_us: i64,
    /// WAL that ends before this LSN is not kept for this target; `None` if the target needs everything.
    from_lsn: Option<String>,
    #[serde(skip)]
    owner: Purpose,
}

impl Need {
    pub fn of(need: &wal::Need) -> Need {
        Need {
            id: need.id.to_string(),
            purpose: match need.purpose {
                Purpose::Backups => "backups",
                Purpose::Debt => "debt",
            },
            database: need.database.clone(),
            target: need.target.clone(),
            host: need.host.clone(),
            directory: need.directory.display().to_string(),
            since_us: need.since_us,
            from_lsn: need.from().map(|lsn| lsn.to_string()),
            owner: need.purpose,
        }
    }

    /// A text for people: `main at target nightly on host db1 (/mnt/backup/main), since 2027-01-31 02:00:00`.
    pub fn text(&self) -> String {
        let what = match self.owner {
            Purpose::Backups => "",
            Purpose::Debt => "what is owed to ",
        };
        format!(
            "{what}{} at target {} on host {} ({}), since {}",
            plain(&self.database),
            plain(&self.target),
            plain(&self.host),
            plain(&self.directory),
            moment(self.since_us)
        )
    }

    /// The condition on which nobody needs the WAL.
    pub fn end(&self) -> &'static str {
        match self.owner {
            Purpose::Backups => "if that target no longer exists",
            Purpose::Debt => "if that server no longer exists",
        }
    }
}

pub fn run(options: &WalNeeds, context: &Context) -> Result<Exit, Failure> {
    let archive = ArchiveLocation::of(&options.archive, context)?.open(context)?;
    let mut forgotten = 0;
    if let Some(id) = options.forget {
        forgotten = archive.forget_need(id)?;
        if forgotten == 0 {
            return Err(Failure::usage(
                format!(
                    "there is no target's record {id} in {}",
                    archive.path().display()
                ),
                "`longshore wal needs` without --forget shows the records",
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
        "for",
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
            need.purpose.to_owned(),
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
            "an earlier version used this archive and left no records: no WAL is removed. Run `longshore expire` at every target \
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
