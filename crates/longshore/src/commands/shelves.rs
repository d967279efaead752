//! Facts about a database at a target that several commands report.
//!
//! Invariants
//! - `info`, `check`, `expire` and `list` show the same rows, so that they never contradict each other.
//! - A database that fails is noted, and the others are served; the exit code is that of the first failure.
//!
//! Leaves to others: reading headers and deciding by rules (`repository`).

use std::collections::BTreeSet;

use longshore_pipeline::ratio;
use longshore_repository::branch;
use longshore_repository::chain::{Health, SetFacts, chain, is_good};
use longshore_repository::lease::Holder;
use longshore_repository::retention::{Decision, Keep, Remove, RetentionVerdict};
use longshore_repository::target::WAL;
use longshore_repository::{BackupEntry, BackupKind, Doubt, Listing, Shelf, Target};
use serde::Serialize;

use super::devices;
use crate::context::Context;
use crate::key_places::KeyState;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::numbers;
use longshore_terminal::output::{Table, bytes};
use longshore_terminal::text::plain;

/// The databases that a command is about, each with its contents at the target. Without names: all configured
/// databases that have a target, or, if a target is given, all databases that it holds.
pub fn shelves(
    context: &Context,
    names: &[String],
    target: Option<&str>,
) -> Result<Vec<Shelf>, Failure> {
    let names: Vec<String> = match (names, target) {
        ([], Some(target)) => devices::target(context, target)?.databases(&*context.storage)?,
        ([], None) => {
            let config = &context.config;
            let has_target = |name: &&String| config.target_of(name).is_some();
            config.database.keys().filter(has_target).cloned().collect()
        }
        (names, _) => names.to_vec(),
    };
    if names.is_empty() && target.is_none() {
        return Err(Failure::usage(
            "no configured database has a target",
            "name a database and --target, or configure [database.NAME] with a `target`; `longshore config check` shows the configuration",
        )
        .numbered(numbers::NOT_CONFIGURED));
    }
    let mut shelves = Vec::new();
    for name in &names {
        let own = devices::target_of(context, target, name)?;
        shelves.push(devices::shelf(context, &own, name)?);
        let copies = context.config.copies_of(name);
        match target {
            None => {
                for copy in copies {
                    shelves.push(of_copy(context, &own, copy, name)?);
                }
            }
            // One that is named alone may be another of the database's under a second name.
            Some(_) => {
                let all = context.config.target_of(name).into_iter();
                let all = all.chain(copies.iter().map(String::as_str));
                for other in all.filter(|other| *other != own.name) {
                    refuse_same(&own, &devices::target(context, other)?, name, context)?;
                }
            }
        }
    }
    Ok(shelves)
}

/// The copy of a database at another target than its `own`.
fn of_copy(context: &Context, own: &Target, copy: &str, database: &str) -> Result<Shelf, Failure> {
    let at = devices::target(context, copy)?;
    refuse_same(own, &at, database, context)?;
    devices::shelf(context, &at, database)
}

/// A configured database and one of its targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub database: String,
    pub target: String,
    /// Whether the target has copies only.
    pub is_copy: bool,
}

impl Placed {
    /// All that [`shelves`] opens without names. No target is asked, so that one that hangs keeps no other from being
    /// shown.
    pub fn all(context: &Context) -> Vec<Placed> {
        let config = &context.config;
        let of = |database: &String| {
            let own = config.target_of(database).map(|own| (own, false));
            let copies = config.copies_of(database).iter();
            let copies = copies.map(|copy| (copy.as_str(), true));
            let placed = |(target, is_copy): (&str, bool)| Placed {
                database: database.clone(),
                target: target.to_owned(),
                is_copy,
            };
            let all = own
                .into_iter()
                .flat_map(|own| std::iter::once(own).chain(copies.clone()));
            all.map(placed).collect::<Vec<_>>()
        };
        config.database.keys().flat_map(of).collect()
    }

    pub fn shelf(&self, context: &Context) -> Result<Shelf, Failure> {
        let own = devices::target_of(context, None, &self.database)?;
        match self.is_copy {
            true => of_copy(context, &own, &self.target, &self.database),
            false => devices::shelf(context, &own, &self.database),
        }
    }
}

/// Errors: the targets have a place in common for the database, under whatever name. A copy there protects nothing, and an expire by the
/// copy's rules would remove the backups themselves.
pub fn refuse_same(
    one: &Target,
    other: &Target,
    database: &str,
    context: &Context,
) -> Result<(), Failure> {
    match one.common_place(other, database, &*context.storage) {
        None => Ok(()),
        Some(place) => Err(longshore_repository::Error::SamePlace {
            one: one.name.clone(),
            other: other.name.clone(),
            place,
        }
        .into()),
    }
}

/// Refuses a database called `wal` whose directory would be another one's WAL archive.
///
/// Errors: which one's.
pub fn refuse_among_wal(shelf: &Shelf, context: &Context) -> Result<(), Failure> {
    let config = &context.config;
    let places = |target: &str| {
        let found = config.target.get(target);
        found.and_then(|found| found.places(target).ok())
    };
    let own = shelf.target.texts();
    let is_taken = |name: &str| {
        let copies = config.copies_of(name).iter().map(String::as_str);
        let all = config.target_of(name).into_iter().chain(copies);
        let texts = all.filter_map(places).flat_map(|places| places.texts());
        let mut folders = texts.map(|text| format!("{}/{name}", text.trim_end_matches('/')));
        folders.any(|folder| own.iter().any(|own| own.trim_end_matches('/') == folder))
    };
    let servers = config
        .database
        .iter()
        .filter(|(_, database)| !database.has_no_log());
    let mut others = servers.map(|(name, _)| name).filter(|name| **name != WAL);
    match others.find(|name| shelf.database == WAL && is_taken(name)) {
        None => Ok(()),
        Some(name) => Err(Failure::usage(
            format!(
                "a database called {WAL} at target {} would be in the WAL archive of {}",
                shelf.target.name,
                plain(name)
            ),
            "give it another name with --database, or another target",
        )
        .numbered(numbers::TARGET)),
    }
}

/// The sentence for two targets that may be one, with what to look at.
pub fn doubt_text(doubt: &Doubt, (one, other): (&Shelf, &Shelf)) -> String {
    let (label, why) = (&doubt.label, &doubt.why);
    format!(
        "targets {} and {} may be one place under two names: {label} has the same length and time of change at both, and nothing can be \
         written there to tell ({why})",
        one.target.name, other.target.name
    )
}

/// Errors: always.
pub fn refuse_doubt(doubt: &Doubt, both: (&Shelf, &Shelf)) -> Result<(), Failure> {
    let hint = "let this user write at one of them, or give copies a place of their own; then run the command again";
    Err(Failure::usage(doubt_text(doubt, both), hint).numbered(numbers::TARGET))
}

/// Refuses a place of copies that is the database's own under another name. A place that cannot be asked is not the reason: what is
/// left there is expired as before.
///
/// Errors: the targets have a place in common, or that cannot be found out.
pub fn refuse_alias(shelf: &Shelf, context: &Context) -> Result<(), Failure> {
    let own = context.config.target_of(&shelf.database);
    let Some(own) = own.filter(|own| *own != shelf.target.name) else {
        return Ok(());
    };
    let own = devices::target(context, own)
        .and_then(|target| devices::shelf(context, &target, &shelf.database));
    let Ok(own) = own else { return Ok(()) };
    match shelf.looked_apart(&own) {
        Ok(None) => Ok(()),
        Ok(Some(doubt)) => refuse_doubt(&doubt, (&own, shelf)),
        Err(same @ longshore_repository::Error::SamePlace { .. }) => Err(same.into()),
        Err(error) => {
            tracing::info!(%error, "whether a target of copies is the own one is not known");
            Ok(())
        }
    }
}

/// Failures of single databases while others were served.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Failures(Vec<TargetError>);

#[derive(Debug, Serialize)]
struct TargetError {
    database: String,
    target: String,
    exit_code: u8,
    error: Failure,
}

impl Failures {
    /// Prints the failure for people at once; scripts get it in the answer.
    pub fn note(&mut self, shelf: &Shelf, failure: Failure, context: &Context) {
        let (database, target) = (shelf.database.clone(), shelf.target.name.clone());
        let place = plain(&format!("{database} at target {target}"));
        context.output.complain(&place, &failure);
        self.0.push(TargetError {
            database,
            target,
            exit_code: failure.exit.code(),
            error: failure,
        });
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The databases and their targets.
    pub fn places(&self) -> impl Iterator<Item = (&str, &str)> {
        let failed = self.0.iter();
        failed.map(|failed| (failed.database.as_str(), failed.target.as_str()))
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The last one.
    pub fn last(&self) -> Option<&Failure> {
        self.0.last().map(|failed| &failed.error)
    }

    /// The exit code of a run with such failures: the code of the first one.
    pub fn exit(&self) -> Option<Exit> {
        self.0.first().map(|failed| failed.error.exit)
    }
}

/// One backup.
#[derive(Debug, Serialize)]
pub struct Row {
    pub label: String,
    pub set: Option<String>,
    /// The set's root, which nobody without its key can give to another set; `None`: it is not encrypted, or not complete.
    pub root: Option<String>,
    /// `full`, `diff`, or `incr` if it is compared with another one that is not full.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The state in one word.
    pub state: &'static str,
    /// The state in full.
    pub detail: String,
    pub restorable: bool,
    pub begun_us: i64,
    pub finish_us: Option<i64>,
    pub plain_bytes: Option<u64>,
    pub stored_bytes: Option<u64>,
    pub bytes: u64,
    pub ratio: Option<f64>,
    pub algorithm: Option<String>,
    /// As it was named when it was made; `None` without a name.
    pub name: Option<String>,
    pub description: Option<String>,
    /// Whose it is, in one word; `None` where no signers are configured.
    pub signature: Option<&'static str>,
    pub signer: Option<String>,
    /// Recipients on its media; 0: it is not encrypted, or its keys are detached. `None` also if that cannot be read.
    pub recipient_count: Option<u64>,
    /// Key objects next to it, which may let further recipients open it. Nothing proves them here.
    pub key_object_count: u64,
    /// Where the slots of a set with detached keys are; `None`: they are on its media, or it is not encrypted.
    pub keys: Option<KeyState>,
    /// Whether it is refused for its signature, or because it is not encrypted: then it is not the newest one, whatever its label says.
    #[serde(skip)]
    pub is_strangers: bool,
    /// Labels of the backups that it depends on, parent first.
    pub needed: Vec<String>,
    pub used_by: Vec<String>,
    pub log: Option<LogRow>,
    /// Numbers of the branches that it belongs to, from 1; empty if the backup is damaged or incomplete.
    pub branch_numbers: Vec<usize>,
    /// The verdict of the retention rules; `None` if there are none.
    pub retention: Option<String>,
}

/// The WAL that a backup needs.
#[derive(Debug, Serialize)]
pub struct LogRow {
    /// PostgreSQL's system identifier: as a text, since JSON readers round numbers of this size.
    pub system: String,
    pub timeline: u32,
    pub first: String,
    pub last: String,
    pub included: bool,
}

/// `full`, `diff`, or `incr` if it is compared with another one of `facts` that is not full. The labels of both are `diff`.
pub fn kind_of(facts: &[SetFacts], i: usize) -> &'static str {
    let parent = facts[i].parent.and_then(|id| {
        let is_parent = |other: &&SetFacts| other.id == Some(id);
        facts.iter().find(is_parent)
    });
    match parent {
        Some(parent) if parent.kind == BackupKind::Differential => "incr",
        _ => facts[i].kind.text(),
    }
}

pub fn rows(listing: &Listing, decision: Option<&Decision>) -> Vec<Row> {
    let facts = listing.facts();
    let branches = listing.branches();
    let row = |(i, set): (usize, &BackupEntry)| {
        let complete = set.complete();
        let links = facts[i].is_whole().then(|| chain(&facts, i));
        let broken = match &links {
            Some(Err(broken)) => Some(broken.to_string()),
            _ => None,
        };
        let needs = match &links {
            Some(Ok(links)) => links[1..]
                .iter()
                .map(|l| facts[*l].label.to_string())
                .collect(),
            _ => Vec::new(),
        };
        let sizes = complete.map(|c| (c.trailer.plain_bytes_total, c.stored_bytes));
        Row {
            label: set.label.to_string(),
            set: facts[i].id.map(|id| id.to_string()),
            root: complete.and_then(|c| c.trailer.root_text()),
            kind: kind_of(&facts, i),
            state: match broken {
                Some(_) => "BROKEN",
                None => set.state.word(),
            },
            restorable: matches!(links, Some(Ok(_))),
            detail: broken.unwrap_or_else(|| set.state.text()),
            begun_us: facts[i].start_us,
            finish_us: complete.map(|c| c.trailer.finish_us),
            plain_bytes: sizes.map(|s| s.0),
            stored_bytes: sizes.map(|s| s.1),
            bytes: set.bytes,
            ratio: sizes.map(|(p, s)| ratio(p, s)),
            algorithm: complete.map(|c| c.header.algorithm.to_string()),
            name: complete.and_then(|c| given(&c.header.name)),
            description: complete.and_then(|c| given(&c.header.description)),
            signature: complete.and_then(|c| Some(c.signature?.word())),
            signer: complete.and_then(|c| Some(c.signature?.signer()?.to_string())),
            recipient_count: complete.and_then(|c| Some(c.recipients? as u64)),
            key_object_count: set.object_count() as u64,
            keys: None,
            is_strangers: set.is_strangers(),
            needed: needs,
            used_by: set.readers.iter().map(Holder::text).collect(),
            log: complete.and_then(|c| {
                let range = facts[i].log?;
                Some(LogRow {
                    system: range.system.to_string(),
                    timeline: range.first_timeline,
                    first: longshore_pg::Lsn(range.first_lsn).to_string(),
                    last: longshore_pg::Lsn(range.last_lsn).to_string(),
                    included: c.trailer.log.included,
                })
            }),
            branch_numbers: (1..)
                .zip(&branches)
                .filter(|(_, branch)| branch.sets.contains(&i))
                .map(|(number, _)| number)
                .collect(),
            retention: decision.map(|d| verdict(&d.verdicts[i])),
        }
    };
    listing.sets.iter().enumerate().map(row).collect()
}

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// One branch of a database's backups at a target.
#[derive(Debug, Serialize)]
pub struct BranchRow {
    /// The number used in the backups' `branch_numbers`.
    pub number: usize,
    /// PostgreSQL's system identifier; `None`: a source without WAL.
    pub system: Option<String>,
    /// The identity of a source without WAL: its configured name, else machine and path.
    pub identity: Option<String>,
    /// Its newest backup.
    pub newest: String,
    pub backup_count: usize,
    /// Its newest backup that can be restored and holds exactly what the source held.
    pub last_good: Option<String>,
    pub last_good_finish_us: Option<i64>,
    /// Whether WAL proves that each backup follows the one before; without WAL, whether all are of the same file.
    pub proved: bool,
    /// The number of the branch on which its server continued instead.
    pub given_up_for: Option<usize>,
    /// Labels dated before the previous backup although their LSN is higher: a clock was wrong.
    pub clock_was_wrong: Vec<String>,
    /// A text for people.
    pub text: String,
}

/// `lost`: the newest backups whose source had lost its content.
pub fn branch_rows(listing: &Listing, lost: &[usize], now_us: i64) -> Vec<BranchRow> {
    let facts = listing.facts();
    let row = |(number, branch): (usize, branch::Branch)| {
        let good = last_good_of(&facts, &branch, lost, now_us);
        let origin = &facts[branch.tip()].identity.origin;
        BranchRow {
            number,
            system: branch.system.map(|system| system.to_string()),
            identity: branch.system.is_none().then(|| origin.name.clone()),
            newest: facts[branch.tip()].label.to_string(),
            backup_count: branch.sets.len(),
            last_good: good.map(|i| facts[i].label.to_string()),
            last_good_finish_us: good.map(|i| facts[i].finish_us),
            proved: branch.proved,
            given_up_for: branch.given_up_for.map(|index| index + 1),
            clock_was_wrong: branch::clock_contradictions(&facts, &branch)
                .into_iter()
                .map(|(_, next)| facts[next].label.to_string())
                .collect(),
            text: branch::text(&facts, &branch),
        }
    };
    (1..).zip(listing.branches()).map(row).collect()
}

/// The findings about branches, and whether backups of several branches are still being made.
pub fn mixed(listing: &Listing) -> (Vec<String>, bool) {
    let facts = listing.facts();
    let branches = listing.branches();
    let mut texts = Vec::new();
    let mut both = false;
    let living = branch::living(&branches);
    if living.len() > 1 {
        texts.push(format!(
            "the backups are of {} branches or clusters, and retention counts each separately:",
            living.len()
        ));
        for i in &living {
            texts.push(format!(
                "branch {}: {}",
                i + 1,
                branch::text(&facts, &branches[*i])
            ));
        }
        texts.extend(mending(listing, &facts, &branches, &living));
        both = living.iter().any(|one| {
            let others = living.iter().filter(|other| *other > one);
            others
                .into_iter()
                .any(|other| branch::are_both_made(&facts, &branches[*one], &branches[*other]))
        });
    }
    for branch in &branches {
        for (one, next) in branch::clock_contradictions(&facts, branch) {
            texts.push(format!(
                "{} comes after {} by its LSN, and before it by its label: a clock was wrong; the LSN counts",
                facts[next].label, facts[one].label
            ));
        }
    }
    texts.dedup();
    (texts, both)
}

/// The remedy for several branches of sources without WAL.
fn mending(
    listing: &Listing,
    facts: &[SetFacts],
    branches: &[branch::Branch],
    living: &[usize],
) -> Option<String> {
    let plain = living.iter().filter(|i| branches[**i].system.is_none());
    let tips: Vec<usize> = plain.map(|i| branches[*i].tip()).collect();
    let header = listing.sets[*tips.first()?].complete().map(|c| &c.header);
    let table = format!(
        "[database.{}]",
        header.map_or("NAME", |header| &header.database)
    );
    let names: BTreeSet<&str> = tips
        .iter()
        .map(|tip| facts[*tip].identity.origin.name.as_str())
        .collect();
    let ended =
        "an ended branch is kept until you remove the LABEL directories of its backups by hand";
    let mend = match names.len() < tips.len() {
        true => format!(
            "two files were backed up in turn as one: give each its own `identity` in its {table}, another name, or \
             another target; {ended}"
        ),
        false => format!(
            "if one of them is the other's database, moved, give it the other's identity in its {table}, such as {}, \
             so that new backups continue that branch; {ended}; two live databases need two names or two targets",
            devices::as_key(&facts[tips[0]].identity.origin.name)
        ),
    };
    Some(mend)
}

/// A table of backups, oldest first. It fits a terminal of 80 columns, but where branches are mixed.
pub fn table(rows: &[Row]) -> Table {
    let with_retention = rows.iter().any(|r| r.retention.is_some());
    let with_branches = rows.iter().flat_map(|r| &r.branch_numbers).any(|n| *n > 1);
    let mut heads = vec!["label", "type", "in", "out", "state"];
    if with_branches {
        heads.push("branch");
    }
    if with_retention {
        heads.push("retention");
    }
    let mut table = Table::new(&heads);
    for r in rows {
        let mut cells = vec![
            r.label.clone(),
            r.kind.to_owned(),
            r.plain_bytes.map_or_else(|| "-".to_owned(), bytes),
            bytes(r.bytes),
            r.state.to_owned(),
        ];
        if with_branches {
            let numbers: Vec<String> = r.branch_numbers.iter().map(usize::to_string).collect();
            cells.push(match numbers.is_empty() {
                true => "-".to_owned(),
                false => numbers.join(", "),
            });
        }
        if with_retention {
            let verdict = r.retention.as_deref().unwrap_or_default();
            cells.push(verdict.split(':').next().unwrap_or_default().to_owned());
        }
        table.row(cells);
    }
    table
}

/// Why each backup stays or goes; `all` of them, or those alone that go.
pub fn reasons(rows: &[Row], all: bool) -> String {
    let verdicts = rows
        .iter()
        .filter_map(|r| Some((&r.label, r.retention.as_deref()?)));
    let told = verdicts.filter(|(_, verdict)| all || verdict.starts_with(GOES));
    told.map(|(label, verdict)| format!("  {label} {verdict}\n"))
        .collect()
}

/// A warning for each backup for whose stripes parity stands.
pub fn degraded(rows: &[Row]) -> Vec<String> {
    let degraded = rows.iter().filter(|r| r.state == "DEGRADED");
    degraded
        .map(|r| format!("{}: {}", r.label, r.detail))
        .collect()
}

/// Lines about backups that are not simply complete.
pub fn remarks(listing: &Listing, rows: &[Row]) -> String {
    let mut text = String::new();
    for r in rows.iter().filter(|r| r.state != "complete") {
        text += &format!("  {}: {}\n", r.label, plain(&r.detail));
    }
    for told in keeping_wal(listing).into_iter().chain(doubles(listing)) {
        text += &format!("  {}\n", plain(&told));
    }
    for r in rows {
        let words = [r.name.as_deref(), r.description.as_deref()];
        let words: Vec<_> = words.into_iter().flatten().map(plain).collect();
        if !words.is_empty() {
            text += &format!("  {} is \"{}\"\n", r.label, words.join("\": \""));
        }
    }
    for r in rows {
        if let Some(keys) = r.keys {
            text += &format!("  {}: {}\n", r.label, keys.text());
        }
    }
    let further = |r: &&Row| r.key_object_count > 0 && r.keys.is_none();
    for r in rows.iter().filter(further) {
        let (objects, own) = (r.key_object_count, r.recipient_count.unwrap_or(0));
        text += &format!(
            "  {} is encrypted for {own} recipients, and has {objects} key objects for further ones\n",
            r.label
        );
    }
    for r in rows.iter().filter(|r| !r.used_by.is_empty()) {
        text += &format!(
            "  {} is in use: {}\n",
            r.label,
            plain(&r.used_by.join("; "))
        );
    }
    for told in mixed(listing).0 {
        text += &format!("  {}\n", plain(&told));
    }
    for stray in &listing.strays {
        let stray = plain(stray);
        text += &format!("  {stray} is unknown here and is not touched\n");
    }
    text
}

/// The cost of foreign backups: nothing removes them, and the WAL that they may need stays as long.
pub fn keeping_wal(listing: &Listing) -> Vec<String> {
    kept_for(&listing.facts())
}

fn kept_for(facts: &[SetFacts]) -> Vec<String> {
    let has_wal = facts.iter().any(|set| set.log.is_some());
    let foreign = facts
        .iter()
        .filter(|set| has_wal && set.health == Health::Foreign);
    let told = |set: &SetFacts| {
        let what = match (set.log, set.id) {
            (Some(log), _) => format!(
                "expire keeps the WAL since {} for it",
                longshore_pg::Lsn(log.first_lsn)
            ),
            // Its header was read, and it needs none.
            (None, Some(_)) => return None,
            (None, None) => {
                "expire removes no WAL while it is here, for nobody knows what it needs".into()
            }
        };
        Some(format!(
            "{}: {what}: move its directories, or the stripes that are another backup's, out of the target, then run \
             `longshore info`",
            set.label
        ))
    };
    foreign.filter_map(told).collect()
}

/// Stripes that are there twice. They take space, and whoever moves one by mistake may move the one that is read.
pub fn doubles(listing: &Listing) -> Vec<String> {
    let told = |set: &BackupEntry| {
        let first = set.doubles.first()?;
        Some(format!(
            "{}: {} there twice, such as {first}: the backup is whole by its headers and trailers; run `longshore verify`, then \
             remove the copies by hand",
            set.label,
            match set.doubles.len() {
                1 => "1 stripe is".to_owned(),
                count => format!("{count} stripes are"),
            }
        ))
    };
    listing.sets.iter().filter_map(told).collect()
}

/// The first word of a verdict by which a backup is removed.
const GOES: &str = "goes";

/// The verdict of a rule on a backup, for people: a word, and why.
pub fn verdict(verdict: &RetentionVerdict) -> String {
    match verdict {
        RetentionVerdict::Keep(why) => format!("stays: {}", keep(why)),
        RetentionVerdict::Remove(why) => format!("{GOES}: {}", remove(*why)),
    }
}

fn days(us: i64) -> String {
    match us / 86_400_000_000 {
        0 => format!("{} hours", us / 3_600_000_000),
        1 => "1 day".to_owned(),
        n => format!("{n} days"),
    }
}

fn keep(why: &Keep) -> String {
    match why {
        Keep::NoRule => "no rule allows a removal".into(),
        Keep::NothingWhole => {
            "no full backup is complete and undamaged, so nothing is removed".into()
        }
        Keep::Count(n) => format!("full backup number {n}"),
        Keep::Recent => "within the days to be kept".into(),
        Keep::Stretched(us) => format!(
            "within the days to be kept; {} without a full backup are not counted",
            days(*us)
        ),
        Keep::Base => "base of the oldest day to be kept".into(),
        Keep::NeededBy(label) => format!("needed by {label}"),
        Keep::FileBefore => {
            "the last of the previous file, until the next file has two backups".into()
        }
        Keep::OfKept(label) => format!("part of {label}"),
        Keep::LastGood => "the newest good backup".into(),
        Keep::Leads => {
            "no newer backup leads to the timeline with which the archive goes on; a full backup made now will".into()
        }
        Keep::LastWhole => "the newest good backup without lost or damaged stripes".into(),
        Keep::Unexpired => "its own expiry date has not passed".into(),
        Keep::InUse => "in use".into(),
        Keep::BeingWritten => "being written".into(),
        Keep::NotOurs => "its state is unknown".into(),
        Keep::OutOfReach => {
            "stripes that it needs may only be out of reach: return their place to the target, or remove \
             what is left of the backup by hand if the stripes are lost"
                .into()
        }
        Keep::Recoverable => "not older than the kept backups".into(),
        Keep::FoundBad => {
            "found not to be good, so no rule counts it; not older than the kept backups".into()
        }
        Keep::Emptied(label) => format!(
            "its source had lost the content of {label}, so no rule counts it; not older than the kept backups"
        ),
        Keep::NotYet => "it begins in the future: a clock was wrong; remove it by hand".into(),
    }
}

fn remove(why: Remove) -> &'static str {
    match why {
        Remove::Surplus => "no rule keeps it",
        Remove::Abandoned => "it was never completed",
        Remove::Broken => "it cannot be restored",
        Remove::Begun => "its removal had begun",
    }
}

/// The newest backup that can be restored and holds exactly what the source held. A backup dated later than now, by a
/// fast clock, counts only if there is no other: otherwise it would hide for years that no more backups are made.
pub fn last_good(facts: &[SetFacts], lost: &[usize], now_us: i64) -> Option<usize> {
    let filled = (0..facts.len()).filter(|i| !lost.contains(i));
    newest_good(facts, filled, now_us)
}

/// The same for one branch.
pub fn last_good_of(
    facts: &[SetFacts],
    branch: &branch::Branch,
    lost: &[usize],
    now_us: i64,
) -> Option<usize> {
    let filled = branch.sets.iter().copied().filter(|i| !lost.contains(i));
    newest_good(facts, filled, now_us)
}

fn newest_good(
    facts: &[SetFacts],
    among: impl Iterator<Item = usize>,
    now_us: i64,
) -> Option<usize> {
    let good = |i: &usize| facts[*i].is_whole() && is_good(facts, *i);
    let mut places = vec![0; facts.len()];
    for (place, i) in branch::in_order(facts).into_iter().enumerate() {
        places[i] = place;
    }
    let order = |i: &usize| (facts[*i].start_us <= now_us, places[*i]);
    among.filter(good).max_by_key(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_repository::Label;
    use longshore_repository::identity::Identity;
    use longshore_wal::LogRange;

    const HOUR_US: i64 = 3_600_000_000;

    /// A full backup that took a minute.
    fn full(start_us: i64, clean: bool) -> SetFacts {
        SetFacts {
            label: Label::new(start_us, BackupKind::Full),
            health: Health::Whole { clean },
            kind: BackupKind::Full,
            id: None,
            parent: None,
            copy_only: false,
            start_us,
            finish_us: start_us + HOUR_US / 60,
            plain_bytes: 0,
            expires_us: None,
            log: None,
            identity: Identity::default(),
            in_use: false,
            is_degraded: false,
            found_bad: false,
            leads: false,
        }
    }

    #[test]
    fn a_backup_of_the_future_is_the_last_good_one_only_if_there_is_no_other() {
        let now_us = 100 * HOUR_US;
        let ahead = || full(9000 * HOUR_US, true);
        let sets = [
            ahead(),
            full(HOUR_US, true),
            full(2 * HOUR_US, true),
            full(3 * HOUR_US, false),
        ];
        assert_eq!(last_good(&sets, &[], now_us), Some(2));
        assert_eq!(last_good(&sets[..1], &[], now_us), Some(0));
        // Still in progress at the time of the question.
        assert_eq!(
            last_good(&[full(now_us, true), full(0, true)], &[], now_us),
            Some(0)
        );
        assert_eq!(last_good(&[full(0, false)], &[], now_us), None);
    }
    /// Goal: whoever wonders why WAL stays reads which backup keeps it, and why; of one that keeps none, nothing is said.
    #[test]
    fn a_foreign_backup_that_keeps_wal_is_told_with_its_reason() {
        let log = LogRange {
            system: 7,
            first_timeline: 1,
            first_lsn: 0x1_0000_0028,
            last_timeline: 1,
            last_lsn: 0x1_0000_0100,
        };
        let foreign = |day: i64, log, id: Option<u8>| SetFacts {
            health: Health::Foreign,
            log,
            id: id.map(|id| uuid::Uuid::from_bytes([id; 16])),
            ..full(24 * day * HOUR_US, true)
        };
        let own = SetFacts {
            log: Some(log),
            ..full(9 * 24 * HOUR_US, true)
        };
        let sets = [
            foreign(1, Some(log), Some(1)),
            foreign(2, None, Some(2)),
            foreign(3, None, None),
            own,
        ];
        let told = kept_for(&sets);
        let labels = [&sets[0].label, &sets[2].label];
        let why = [
            "expire keeps the WAL since 1/28 for it",
            "expire removes no WAL while it is here, for nobody knows what it needs",
        ];
        assert_eq!(told.len(), 2, "{told:?}");
        for ((text, label), why) in told.iter().zip(labels).zip(why) {
            assert!(
                text.starts_with(&format!("{label}: {why}: move ")),
                "{text}"
            );
        }
        // Without any WAL nothing keeps it.
        assert_eq!(kept_for(&sets[1..3]), Vec::<String>::new());
    }
}
