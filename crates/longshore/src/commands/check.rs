//! `check`: would the next backup and the next restore work?
//!
//! Invariants
//! - Each check is a finding with a grade and, if it is not good, the next command to type.
//! - A check that cannot be made is a finding, too, and never ends the others.
//! - Nothing is changed, except that a PostgreSQL server switches to a new WAL segment.
//!
//! Leaves to others: copies (`check/copies.rs`), questions to the server (`check/postgres.rs`), WAL that is owed (`check/debts.rs`), and
//! reading backups (`verify`, `drill`).

mod copies;
mod damage;
mod debts;
mod depth;
mod gone;
mod keys;
mod notes;
mod postgres;
mod sending;
mod space;
mod standby;
mod timeline;

use longshore_catalog::{Catalog, Error as CatalogError, RunOutcome, RunRow, RunTask};
use longshore_pipeline::SourceSpec;
use longshore_repository::branch::Branch;
use longshore_repository::chain::{SetFacts, chain, is_sound};
use longshore_repository::emptied::Loss;
use longshore_repository::identity::Origin;
use longshore_repository::{Listing, Places, Shelf};
use longshore_source::SourceOptions;
use serde::Serialize;

use super::info;
use super::remembered::runs_of;
use super::results::age_text;
use super::wal::OwedReport;
use super::{devices, emptied, shelves, source};
use crate::context::Context;
use crate::options::Check;
pub use depth::CheckDepth;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::numbers;
use longshore_terminal::output::{moment, moment_after};
use longshore_terminal::text::{plain, shell_words};
pub use notes::{Finding, Grade};
use notes::{Notes, told};

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    databases: Vec<CheckedDatabase>,
}

#[derive(Serialize)]
pub struct CheckedDatabase {
    pub database: String,
    pub grade: Grade,
    pub findings: Vec<Finding>,
    /// The server's report on its archive_command; `None` if no server is asked.
    pub archiver: Option<postgres::Archiver>,
    /// The list in the cluster's pg_wal; `None`: it cannot be seen.
    pub owed: Option<OwedReport>,
}

pub fn run(options: &Check, context: &Context) -> Result<Exit, Failure> {
    let names: Vec<String> = match options.databases.as_slice() {
        [] => context.config.database.keys().cloned().collect(),
        names => names.to_vec(),
    };
    if names.is_empty() {
        return Err(Failure::usage(
            "no database is configured",
            "write a [database.NAME] with its `url` and `target` into the configuration, then run `longshore config check`",
        )
        .numbered(numbers::NOT_CONFIGURED));
    }
    for name in &names {
        if !context.config.database.contains_key(name) {
            let (table, known) = (format!("database.{name}"), context.config.database.keys());
            return Err(devices::not_configured(context, &table, "url", known));
        }
    }
    let depth = CheckDepth::of(options);
    let databases: Vec<CheckedDatabase> = names
        .into_iter()
        .map(|name| database(name, &depth, context))
        .collect();
    let exit = match databases.iter().map(|d| d.grade).max() {
        Some(Grade::Bad) => Exit::No,
        Some(Grade::Look) => Exit::Warnings,
        Some(Grade::Good) | None => Exit::Done,
    };
    let texts = databases.iter().map(|d| text(d, context.output.quiet));
    context.output.findings(&texts.collect::<String>());
    let action = "check";
    context.output.json(exit, Answer { action, databases });
    Ok(exit)
}

/// Checks a configured database.
pub fn database(name: String, depth: &CheckDepth, context: &Context) -> CheckedDatabase {
    let mut notes = Notes::default();
    let answers = look(&name, depth, context, &mut notes);
    let (grade, findings) = notes.judged();
    CheckedDatabase {
        database: name,
        grade,
        findings,
        archiver: answers.archiver,
        owed: answers.owed,
    }
}

/// `quiet`: only what is wrong, and nothing of a database without faults.
fn text(database: &CheckedDatabase, quiet: bool) -> String {
    if quiet && database.grade == Grade::Good {
        return String::new();
    }
    let mut text = format!("{}\n", plain(&database.database));
    let told = database.findings.iter();
    for finding in told.filter(|f| !quiet || f.grade != Grade::Good) {
        let mark = match finding.grade {
            Grade::Good => "ok  ",
            Grade::Look => "WARN",
            Grade::Bad => "FAIL",
        };
        text += &format!("  {mark}  {:<9}  {}\n", finding.what, plain(&finding.text));
    }
    text
}

/// Returns the answers of a PostgreSQL server.
fn look(
    name: &str,
    depth: &CheckDepth,
    context: &Context,
    notes: &mut Notes,
) -> postgres::ServerAnswers {
    let spec = match source::configured(context, name, &context.config.database[name]) {
        Ok(spec) => Some(spec),
        Err(failure) => {
            notes.bad("source", told(&failure));
            None
        }
    };
    let shelf = devices::target_of(context, None, name)
        .and_then(|target| devices::shelf(context, &target, name));
    let shelf = match shelf {
        Ok(shelf) => Some(shelf),
        Err(failure) => {
            notes.look("target", told(&failure));
            None
        }
    };
    let own = context.config.target_of(name);
    match context.config.retention_of(name, own) {
        Some((retention, _)) => notes.good("retention", retention),
        None => notes.look("retention", "none: backups are never removed"),
    }
    catalog(context, notes);
    // The segment that the server switches to arrives first, so that the archive is looked at as it is then.
    let mut asked = Notes::default();
    let answers = match &spec {
        Some(SourceSpec::Postgres(server)) => {
            let archive = postgres::Archive::of(name, shelf.as_ref(), context);
            let server = (name, &**server);
            postgres::look(server, archive.as_ref(), depth, context, &mut asked)
        }
        _ => postgres::ServerAnswers::default(),
    };
    if let Some(shelf) = &shelf {
        target(
            shelf,
            (spec.as_ref(), answers.system),
            depth,
            context,
            notes,
        );
    }
    match &spec {
        Some(SourceSpec::Postgres(_)) => notes.append(asked),
        Some(spec) => {
            // Opens the source and drops it: reads nothing and delays no writer.
            let opened =
                longshore_source::open(context.storage.clone(), spec, &SourceOptions::default());
            match opened {
                Ok(_) => notes.good("source", &context.config.database[name].url[..]),
                Err(e) => notes.bad("source", told(&Failure::from(e))),
            }
        }
        None => {}
    }
    answers
}

/// Whether runs can be written to the history. One that is not there is made; what cannot be asked now, such as one that
/// is somebody else's to write, says nothing about theirs.
fn catalog(context: &Context, notes: &mut Notes) {
    let Some(path) = &context.catalog else {
        return;
    };
    match context.storage.stat(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            notes.look(
                "catalog",
                format!(
                    "{} is not there: no history until the next run",
                    path.display()
                ),
            );
            return;
        }
        // Opening it says why.
        _ => {}
    }
    match Catalog::open(path) {
        Ok(_) => {}
        Err(
            e @ (CatalogError::Corrupt { .. }
            | CatalogError::Foreign { .. }
            | CatalogError::Newer { .. }
            | CatalogError::Shared { .. }
            | CatalogError::Path { .. }),
        ) => notes.bad("catalog", told(&Failure::from(e))),
        // The backups' user may be able to open it.
        Err(e) => notes.look("catalog", told(&Failure::from(e))),
    }
}

fn target(
    shelf: &Shelf,
    (spec, system): (Option<&SourceSpec>, Option<u64>),
    depth: &CheckDepth,
    context: &Context,
    notes: &mut Notes,
) {
    let listing = match shelf.list() {
        Ok(listing) => listing,
        Err(e) => {
            notes.bad("target", told(&Failure::from(e)));
            return;
        }
    };
    notes.good(
        "target",
        format!(
            "{}: {} {}, {} backups",
            shelf.target.name,
            shelf.target.count(),
            match &shelf.target.places {
                Places::Directories(_) => "directories",
                Places::Buckets(_) => "prefixes in buckets",
            },
            listing.sets.len()
        ),
    );
    let origin = spec.and_then(|spec| devices::origin(context, spec, Some(&shelf.database)));
    let own = system.map(Own::Cluster).or(origin.map(Own::Origin));
    let mut told = match info::database(shelf, &listing, context) {
        Ok(told) => told,
        Err(failure) => {
            notes.bad("log", notes::told(&failure));
            return;
        }
    };
    let losses = emptied::losses(shelf, &listing, context);
    if let Some(own) = own {
        let lost: Vec<usize> = losses.iter().flat_map(|loss| loss.lost.clone()).collect();
        narrow(&mut told, (&listing, &lost), &own, context);
    }
    if let Some(word) = &told.stopped {
        let database = &told.database;
        let text = format!(
            "no backup, copy or expire begins at {}: stopped {word}; `longshore start {database}` allows them again",
            told.target
        );
        notes.look("stopped", text);
    }
    age(&told, depth, notes);
    results(&told, spec, depth, notes);
    empty(shelf, (&listing, &losses), notes);
    others_age(&told, depth, context, notes);
    ahead(&listing, &told, context, notes);
    damaged_and_mixed(&listing, &told, context, notes);
    let newest = told.last_good.as_deref();
    keys::look(&listing, newest, (&shelf.target.name, context), notes);
    space::look(shelf, &listing, context, notes);
    unrecorded(&told, context, notes);
    let at = (&*told.database, &*told.target, told.last_good_finish_us);
    gone::look(&runs_of(&told.database, context), &listing, at, notes);
    copied(shelf, &listing, context, notes);
    if !depth.only_looks {
        stores(shelf, spec, context, notes);
    }
    copies::look(shelf, &listing, depth, context, notes);
    if let Some(wal) = &told.wal {
        log(wal, context, notes);
        timeline::plain(shelf, &listing, told.last_good.as_deref(), notes);
        stranded(&told, wal, notes);
        damage::look(shelf, wal, context, notes);
    }
}

/// The newest backups whose source had lost its content.
fn empty(shelf: &Shelf, (listing, losses): (&Listing, &[Loss]), notes: &mut Notes) {
    let at = (&*shelf.database, &*shelf.target.name);
    for loss in losses {
        let text = emptied::told(&loss.filled, loss.left, at);
        let label = &listing.sets[loss.lost[0]].label;
        notes.bad("emptied", format!("{label}: {text}"));
    }
}

/// Backups that cannot be restored, branches in one place, and what is nobody's.
fn damaged_and_mixed(
    listing: &Listing,
    told: &info::DescribedDatabase,
    context: &Context,
    notes: &mut Notes,
) {
    let own = told.backups.iter().filter(|row| !row.is_strangers);
    let newest = own.map(|row| row.begun_us).max();
    for (row, set) in told.backups.iter().zip(&listing.sets) {
        if row.restorable {
            continue;
        }
        let text = format!("{}: {}", row.label, row.detail);
        match row.state {
            _ if set.is_bare_name() => {
                let at = (&*told.database, &*told.target);
                bare(at, &row.label, context, notes);
            }
            // A run that died, and none was complete since.
            "INCOMPLETE" if Some(row.begun_us) == newest => notes.look(
                "backup",
                format!(
                    "{text}: the newest run did not complete; run `longshore backup {}`",
                    told.database
                ),
            ),
            "writing" | "removing" | "INCOMPLETE" => notes.good("backup", text),
            _ => notes.bad("backup", text),
        }
    }
    for row in told.backups.iter().filter(|r| r.state == "DEGRADED") {
        let text = format!("{}: {}", row.label, row.detail);
        notes.look("backup", text);
    }
    for text in shelves::doubles(listing) {
        notes.look("backup", text);
    }
    if told.wal.is_some() {
        for text in shelves::keeping_wal(listing) {
            notes.look("log", text);
        }
    }
    marked(listing, told, notes);
    let (texts, both) = super::shelves::mixed(listing);
    for text in texts {
        match both {
            true => notes.bad("branches", text),
            false => notes.look("branches", text),
        }
    }
    stray_objects(listing, notes);
    if !told.strays.is_empty() {
        let count = told.strays.len();
        notes.look(
            "target",
            format!("{count} unknown names, such as {}", told.strays[0]),
        );
    }
}

/// A label with nothing below it, not even what a run leaves that was killed. This machine's history may know that its
/// backup was complete.
fn bare((database, target): (&str, &str), label: &str, context: &Context, notes: &mut Notes) {
    let made = |run: &RunRow| {
        let is_good =
            run.outcome == RunOutcome::Good.word() || run.outcome == RunOutcome::Warnings.word();
        // A copy at another target has the same label.
        let is_here = run.target.as_deref() == Some(target) && run.label.as_deref() == Some(label);
        run.task == RunTask::Backup.word() && is_here && is_good
    };
    match runs_of(database, context).into_iter().find(made) {
        Some(run) => notes.bad(
            "backup",
            format!(
                "{label}: all its stripes are missing, and it was complete: this machine made it, {}. If they are gone for good, \
                 remove what is left of it by hand, and run `longshore backup {database}`",
                moment(run.finish_us)
            ),
        ),
        None => notes.look(
            "backup",
            format!(
                "{label}: nothing is below this name: a run ended there with its machine, or its stripes were removed. An expire \
                 removes the name"
            ),
        ),
    }
}

/// Newest backups that are marked, or need one that is: a restore takes them, and they may not be what the source held.
fn marked(listing: &Listing, told: &info::DescribedDatabase, notes: &mut Notes) {
    let facts = listing.facts();
    let living = listing.branches();
    let living = living.iter().filter(|branch| branch.given_up_for.is_none());
    for tip in living.map(Branch::tip) {
        let links = chain(&facts, tip).unwrap_or_default();
        if links.iter().any(|link| !facts[*link].is_clean()) {
            let text = format!(
                "{}, the newest, is marked, or a backup that it needs: made from files that changed, or from damaged ones. Look at \
                 what that run said, then run `longshore backup {}`",
                facts[tip].label, told.database
            );
            notes.look("backup", text);
        }
    }
}

/// Whether moments after the newest good backup cannot be recovered, for another reason than a gap, which is told.
fn stranded(told: &info::DescribedDatabase, wal: &info::Wal, notes: &mut Notes) {
    let Some(good) = told.last_good.as_deref() else {
        return;
    };
    let row = told.backups.iter().find(|row| row.label == good);
    let Some(log) = row.and_then(|row| row.log.as_ref()) else {
        return;
    };
    if wal.recoverable_from.is_some() {
        return;
    }
    let refused_us = wal.refused_push.as_ref().map(|refused| refused.at_us);
    let is_gap = !wal.gaps.is_empty() || wal.gaps_unknown.is_some() || !wal.lost.is_empty();
    let why = match log.system == wal.system {
        true if refused_us > told.last_good_finish_us => {
            "a push was refused since, so a server may have gone on whose WAL is not there"
                .to_owned()
        }
        true if is_gap => return,
        true => "its WAL does not go on in the archive".to_owned(),
        false => format!(
            "it is of cluster {}, and the archive has the WAL of {}",
            log.system, wal.system
        ),
    };
    let text = format!(
        "not every moment after the newest good backup, {good}, can be recovered: {why}. Make a full backup (`longshore backup {}`)",
        told.database
    );
    notes.bad("log", text);
}

/// Key objects under labels of backups that they are not of: no reader looks at them, and somebody put them there.
fn stray_objects(listing: &Listing, notes: &mut Notes) {
    let strays = listing.sets.iter().flat_map(|set| {
        let names = set.stray_objects().into_iter();
        names.map(|name| format!("{}/{name}", set.label))
    });
    let strays: Vec<String> = strays.collect();
    if let Some(first) = strays.first() {
        let count = strays.len();
        let text =
            format!("{count} key objects are of no backup there, such as {first}: remove them");
        notes.look("encryption", text);
    }
}

/// Whether the archive has the WAL that the backups need.
fn log(wal: &info::Wal, context: &Context, notes: &mut Notes) {
    let what = "log";
    let now_us = context.clock.wall_ns() / 1000;
    if let Some(refused) = &wal.refused_push
        && now_us.saturating_sub(refused.at_us) < REFUSED_FRESH_US
    {
        let age = age_text(now_us.saturating_sub(refused.at_us) / 1_000_000);
        let text = format!(
            "{} from {} was refused {age} ago: two branches of the cluster archive there. Create another archive for one of them \
             (`longshore wal create --archive NEW`)",
            refused.name, refused.host
        );
        notes.bad(what, text);
    }
    if let (Some(label), Some(us)) = (&wal.recoverable_from, wal.recoverable_from_us) {
        let since = moment_after(us);
        notes.good(
            what,
            format!("every moment since {since} UTC can be recovered, from {label}"),
        );
    }
    // A gap before the time from which every moment can be recovered stays as long as the older backups.
    let is_healed = wal.recoverable_from.is_some();
    for gap in &wal.gaps {
        match is_healed {
            true => notes.good(
                what,
                format!("{gap} is missing, before these moments: older backups cannot be recovered across this gap"),
            ),
            false => notes.bad(
                what,
                format!(
                    "{gap} is missing: point-in-time recovery cannot cross this gap; \
                     make a full backup now, so that later moments can be recovered"
                ),
            ),
        }
    }
    for label in &wal.inconsistent {
        notes.bad(
            what,
            format!("{label} lacks WAL that it needs to become consistent"),
        );
    }
    if let Some(error) = &wal.gaps_unknown {
        notes.bad(what, error);
    }
    let has_gap = !wal.gaps.is_empty() || !wal.inconsistent.is_empty() || !wal.lost.is_empty();
    if !has_gap && wal.gaps_unknown.is_none() {
        notes.good(what, format!("{} segments without a gap", wal.segments));
    }
}

/// The configured source, as backups tell it.
enum Own {
    /// A cluster's system identifier.
    Cluster(u64),
    Origin(Origin),
}

impl Own {
    fn is_of(&self, set: &SetFacts) -> bool {
        match self {
            Own::Cluster(system) => set.log.is_some_and(|log| log.system == *system),
            Own::Origin(own) => set.log.is_none() && set.identity.origin.is_same(own),
        }
    }
}

/// Where several branches are there, the last good backup is to be the configured source's own: another database's says
/// nothing about it. On a machine that has none there, as one that only looks, it is the newest of all.
fn narrow(
    told: &mut info::DescribedDatabase,
    (listing, lost): (&Listing, &[usize]),
    own: &Own,
    context: &Context,
) {
    let now_us = context.clock.wall_ns() / 1000;
    let facts = listing.facts();
    let branches = listing.branches();
    let of_own = branches.iter().filter(|b| own.is_of(&facts[b.tip()]));
    let is_cluster = matches!(own, Own::Cluster(_));
    let own: Vec<&Branch> = match own {
        // An abandoned future's backups say nothing about the server as it is.
        Own::Cluster(_) => of_own.filter(|b| b.given_up_for.is_none()).collect(),
        Own::Origin(_) => of_own.collect(),
    };
    // The server itself has told which cluster it is.
    let has_none = is_cluster && own.is_empty();
    if !has_none && (branches.len() < 2 || own.is_empty()) {
        return;
    }
    // Of two files of one name, the older backup counts: nobody knows which is this machine's.
    let good = |branch: &&Branch| shelves::last_good_of(&facts, branch, lost, now_us);
    let goods: Option<Vec<usize>> = own.iter().map(good).collect();
    let oldest = goods.and_then(|goods| goods.into_iter().min_by_key(|i| facts[*i].finish_us));
    let complete = oldest.and_then(|i| listing.sets[i].complete());
    told.last_good = oldest.map(|i| facts[i].label.to_string());
    told.last_good_of_standby = oldest.is_some_and(|i| info::is_of_standby(&facts[i]));
    told.last_good_finish_us = oldest.map(|i| facts[i].finish_us);
    told.last_good_age_s = oldest.map(|i| now_us.saturating_sub(facts[i].finish_us) / 1_000_000);
    told.last_good_stored_bytes = complete.map(|complete| complete.stored_bytes);
}

/// Branches of which no backup was made for too long, but the one that [`age`] has judged.
fn others_age(
    told: &info::DescribedDatabase,
    depth: &CheckDepth,
    context: &Context,
    notes: &mut Notes,
) {
    let now_us = context.clock.wall_ns() / 1000;
    let living = told.branches.iter().filter(|b| b.given_up_for.is_none());
    for branch in living.filter(|b| b.last_good != told.last_good) {
        let age_s = branch
            .last_good_finish_us
            .map(|us| now_us.saturating_sub(us) / 1_000_000);
        if age_s.is_none_or(|age_s| age_s > i64::from(depth.max_age) * 3600) {
            let text = format!(
                "branch {}, of {}, has no good backup newer than {} hours: if the branch has ended, remove its LABEL \
                 directories by hand",
                branch.number,
                branch.identity.as_deref().unwrap_or(&branch.text),
                depth.max_age
            );
            notes.look("age", text);
        }
    }
}

/// How long a refused push raises an alarm. A server whose push is refused retries every minute.
const REFUSED_FRESH_US: i64 = 24 * 3600 * 1_000_000;

/// By how many seconds a backup may be ahead of this machine's clock and still count as current.
const CLOCKS_DIFFER_S: i64 = 3600;

fn age(told: &info::DescribedDatabase, depth: &CheckDepth, notes: &mut Notes) {
    let (Some(label), Some(age)) = (&told.last_good, told.last_good_age_s) else {
        notes.bad("age", "there is no good backup (complete and unmarked)");
        return;
    };
    let (grade, mut text) = judged_age(label, age, depth.max_age);
    if told.last_good_of_standby {
        text += "; it is a standby's, and lacks what that had not replayed";
    }
    notes.note("age", grade, text);
}

/// The finding on the last good backup, of which the end was `age_s` ago.
fn judged_age(label: &str, age_s: i64, max_age_hours: u32) -> (Grade, String) {
    // The hosts' clocks differ.
    if age_s < -CLOCKS_DIFFER_S {
        let ahead = age_text(age_s.saturating_neg());
        let text = format!(
            "the last good backup, {label}, is dated {ahead} ahead of now: correct the clock, or remove it by hand"
        );
        return (Grade::Bad, text);
    }
    let grade = match age_s > i64::from(max_age_hours) * 3600 {
        true => Grade::Bad,
        false => Grade::Good,
    };
    let age = age_text(age_s);
    (
        grade,
        format!("the last good backup, {label}, is {age} old"),
    )
}

/// What earlier runs found out: damage and a last run that failed are told always, ages only where a limit is given.
fn results(
    told: &info::DescribedDatabase,
    spec: Option<&SourceSpec>,
    depth: &CheckDepth,
    notes: &mut Notes,
) {
    let (database, target, results) = (&told.database, &told.target, &told.results);
    let limits = [
        ("verified", depth.max_verify_age, &results.last_verified),
        ("drilled", depth.max_drill_age, &results.last_drilled),
    ];
    for (what, limit, last) in limits {
        let next = match what {
            "verified" => format!("longshore verify --all --database {database} --target {target}"),
            _ => format!("longshore drill {database} --target {target}"),
        };
        match (limit, last) {
            (None, None) => {}
            (Some(_), None) => notes.bad(
                what,
                format!("no backup that is there was {what}: run `{next}`"),
            ),
            (limit, Some(row)) => {
                let age = age_text(row.age_s);
                let text = format!("{} was {what} {age} ago", row.label);
                match limit.is_some_and(|hours| row.age_s > i64::from(hours) * 3600) {
                    true => notes.bad(what, format!("{text}: run `{next}`")),
                    false => notes.good(what, text),
                }
            }
        }
    }
    for bad in results.all.iter().filter(|row| !row.good) {
        let (label, task, why) = (
            &bad.label,
            bad.task,
            bad.text.as_deref().unwrap_or_default(),
        );
        let again = match task {
            "verify" => format!("longshore verify --database {database}"),
            _ => format!("longshore drill {database}"),
        };
        // A backup has the damage of its source, and so has the next one.
        let source = match (task, spec) {
            ("drill", Some(SourceSpec::Sqlite(path))) => {
                let words = [
                    "sqlite3".into(),
                    path.clone().into(),
                    "PRAGMA integrity_check".into(),
                ];
                format!(
                    "Look whether the source is damaged, too: `{}`. ",
                    shell_words(words)
                )
            }
            _ => String::new(),
        };
        let text = format!(
            "{label} was found not to be good by {task}, {} ago on host {}: {why}. {source}Make a full backup (`longshore backup \
             {database}`); after a repair, run `{again} --target {target} --label {label}`",
            age_text(bad.age_s),
            bad.host
        );
        notes.bad("damaged", text);
    }
    for failed in results.last_failed.iter().filter(|run| !run.mended) {
        notes.look("last run", format!("failed: {}", failed.told()));
    }
    for unreadable in &results.unreadable {
        notes.look("record", format!("unreadable record {unreadable}"));
    }
}

/// The last backup of this machine's history, if it failed, no record at the target says so, and no good backup ended there
/// since: a full target takes no record, either.
fn unrecorded(told: &info::DescribedDatabase, context: &Context, notes: &mut Notes) {
    let is_told = |run: &super::results::FailedRow| run.task == RunTask::Backup.word();
    if told.results.last_failed.iter().any(is_told) {
        return;
    }
    let runs = runs_of(&told.database, context);
    let is_here = |run: &&RunRow| {
        run.task == RunTask::Backup.word() && run.target.as_deref() == Some(&told.target)
    };
    let last = runs.iter().filter(is_here).max_by_key(|run| run.finish_us);
    // Another machine may have made the newer one.
    let is_last = |run: &&RunRow| told.last_good_finish_us < Some(run.finish_us);
    let failed = last.filter(|run| run.outcome == RunOutcome::Failed.word());
    if let Some(failed) = failed.filter(is_last) {
        let text = format!(
            "failed: backup, {} by this machine's history, and no record at the target says so: {}",
            moment(failed.finish_us),
            failed.message.as_deref().unwrap_or_default()
        );
        notes.look("last run", text);
    }
}

/// Backups that are known not to be good, of which another target has a copy that is not.
fn copied(shelf: &Shelf, listing: &Listing, context: &Context, notes: &mut Notes) {
    let (facts, database) = (listing.facts(), &shelf.database);
    if facts.iter().all(|set| !set.found_bad) {
        return;
    }
    for copy in context.config.copies_of(database) {
        let there = devices::target(context, copy)
            .and_then(|target| devices::shelf(context, &target, database))
            .and_then(|there| Ok(there.heeding(shelf).list()?));
        // `copies` tells of a target that is away.
        let Ok(there) = there else { continue };
        let others = there.facts();
        for bad in facts.iter().filter(|set| set.found_bad) {
            let is_same = |i: &usize| others[*i].is_whole() && others[*i].id == bad.id;
            let same = (0..others.len()).find(is_same);
            if same.is_some_and(|i| is_sound(&others, i)) {
                let text = format!(
                    "target {copy} has a copy of {0} that nothing found damaged: `longshore verify --database {database} --target {copy} \
                     --label {0}`, then `longshore restore --database {database} --target {copy} --label {0}`",
                    bad.label
                );
                notes.look("damaged", text);
            }
        }
    }
}

/// Backups that a clock dated later than now, but the last good one, of which [`age`] tells: a restore without a label may
/// take them for the latest.
fn ahead(listing: &Listing, told: &info::DescribedDatabase, context: &Context, notes: &mut Notes) {
    let now_us = context.clock.wall_ns() / 1000;
    for set in listing.facts().iter().filter(|set| set.is_whole()) {
        let ahead_s = (set.start_us - now_us) / 1_000_000;
        if ahead_s > CLOCKS_DIFFER_S && told.last_good.as_deref() != Some(set.label.as_str()) {
            let text = format!(
                "{} is dated {} ahead of now: correct the clock, or remove it by hand",
                set.label,
                age_text(ahead_s)
            );
            notes.bad("age", text);
        }
    }
}

/// The promises that the stores of a target's buckets keep. A probe is written twice and removed: what a store does
/// counts, not what it is said to do.
fn stores(shelf: &Shelf, spec: Option<&SourceSpec>, context: &Context, notes: &mut Notes) {
    let what = "store";
    if let (Some(SourceSpec::Postgres(_)), Err(e)) = (spec, shelf.needed_wal_path()) {
        notes.look("log", told(&Failure::from(e)));
    }
    let probed = match shelf.target.probe(&context.storage, &shelf.database) {
        Ok(probed) => probed,
        Err(e) => return notes.bad(what, told(&Failure::from(e))),
    };
    for (place, abilities) in probed {
        match abilities.keeps_first {
            true => notes.good(what, format!("{place} does not replace what it has")),
            false => notes.look(
                what,
                format!(
                    "{place} ignores If-None-Match: two backups to one device's name could replace each other; backups \
                     to this target have names of their own, and its expires exclude each other by their leases alone"
                ),
            ),
        }
        if let Some(why) = abilities.no_removal {
            notes.good(
                what,
                format!("these credentials remove nothing, so expire must run with others: {why}"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_too_old_when_it_is_older_than_the_limit_and_not_before() {
        let judged = |age_s| judged_age("20260101T000000Z-F", age_s, 2);
        assert_eq!(judged(0).0, Grade::Good);
        assert_eq!(judged(7200).0, Grade::Good);
        assert_eq!(judged(7201).0, Grade::Bad);
        assert_eq!(judged(i64::MAX).0, Grade::Bad);
        // Clocks differ, by an hour at most.
        assert_eq!(judged(-CLOCKS_DIFFER_S).0, Grade::Good);
        assert_eq!(judged(-CLOCKS_DIFFER_S - 1).0, Grade::Bad);
        assert_eq!(judged(i64::MIN).0, Grade::Bad);
        assert!(judged(7201).1.contains("20260101T000000Z-F"));
    }
}
