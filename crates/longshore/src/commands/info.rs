//! `info`: reports everything that a target holds, for people and scripts.
//!
//! Invariants
//! - Both forms, and the metrics, show the same facts, computed once in [`database`].
//! - The facts come from the media and the archive, not from the history, and only headers are read, and the index of a newest
//!   differential with few files. The list of what the archive is owed comes from pg_wal, where that is on this machine.
//! - A database that cannot be read does not keep the others from being shown.
//! - The time up to which a recovery leads is that of a transaction in the WAL. Where the WAL cannot be read, it is the time
//!   of the archive's file: its content may be older, and in a copy it says nothing.
//! - No window of time reaches over a segment that is known to be of no use.
//!
//! Leaves to others: rows that several commands share (`shelves.rs`), the time that the WAL covers (`info/windows.rs`),
//! the text for Prometheus (`metrics.rs`), and the rules of retention (`repository`).

mod windows;

use std::path::PathBuf;

use longshore_pg::client::without_password;
use longshore_pg::wal::WalName;
use longshore_pg::{Lsn, SegmentName, SegmentSize, Timeline};
use longshore_repository::chain::{SetFacts, is_sound};
use longshore_repository::retention::{LogNeed, decide};
use longshore_repository::status::Status;
use longshore_repository::{BackupEntry, Listing, Shelf};
use longshore_wal::proof::LastEnd;
use longshore_wal::{Error as WalError, LogRange, Lost, Run, WalArchive};
use serde::Serialize;

use self::windows::{Reach, RecoverableWindow};
use super::results::{Results, age_text, line};
use super::shelves::{self, BranchRow, Failures, Row, shelves};
use super::wal::{OwedReport, of_server, unknown_text};
use super::{detached, elsewhere, emptied, nearest};
use crate::context::Context;
use crate::options::Info;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::{bytes, moment, moment_after};
use longshore_terminal::text::{plain, shell_words};

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    databases: Vec<DescribedDatabase>,
    failures: Failures,
}

/// One database at one target.
#[derive(Serialize)]
pub struct DescribedDatabase {
    pub database: String,
    pub target: String,
    pub directories: Vec<String>,
    pub url: Option<String>,
    pub retention: Option<String>,
    /// Who keeps backups, copies and expires from beginning there, when and why; `None`: nobody does.
    pub stopped: Option<String>,
    pub backups: Vec<Row>,
    pub branches: Vec<BranchRow>,
    pub bytes: u64,
    /// Whether the newest backup is of a source that had lost its content.
    pub newest_emptied: bool,
    /// The newest backup that can be restored and holds exactly what the source held, before that had lost its content.
    pub last_good: Option<String>,
    pub last_good_finish_us: Option<i64>,
    pub last_good_age_s: Option<i64>,
    pub last_good_seconds: Option<f64>,
    pub last_good_stored_bytes: Option<u64>,
    /// Whether it was made of a standby: its data is of when that had replayed it, which may be long before its end.
    #[serde(skip)]
    pub last_good_of_standby: bool,
    /// The recipients that can open it; 0: it is not encrypted, or its keys are detached. `None` also if that cannot be read.
    pub last_good_recipients: Option<u64>,
    /// Stripes that are lost or damaged, of all backups, as far as headers and trailers tell.
    pub families_lost: u64,
    /// Uploads that killed backups left in a store, which charges for their parts; `None`: there is no store, or it does
    /// not tell.
    pub uploads_unfinished: Option<u64>,
    /// By when everything was archived, or in a backup, that a restore from here leads to.
    pub recoverable_until_us: Option<i64>,
    /// The age of that moment: at least what was written since would be lost now.
    pub at_risk_s: Option<i64>,
    pub wal: Option<Wal>,
    /// The debt of its own archive, as the list in the cluster's pg_wal says; `None`: it cannot be seen, or this is
    /// another target.
    pub owed: Option<OwedReport>,
    /// Results of earlier runs on any host.
    pub results: Results,
    pub strays: Vec<String>,
    #[serde(skip)]
    remarks: String,
}

/// A database's WAL.
#[derive(Serialize)]
pub struct Wal {
    /// PostgreSQL's system identifier.
    pub system: String,
    pub segment_bytes: u64,
    pub runs: Vec<Span>,
    pub segments: u64,
    pub stored_bytes: u64,
    /// WAL that is missing between the oldest restorable backup and the end.
    pub gaps: Vec<String>,
    /// Backups that lack the WAL that would make them consistent.
    pub inconsistent: Vec<String>,
    /// WAL that no recovery crosses although its files are there.
    pub unsound: Vec<String>,
    /// Segments of it.
    pub unsound_count: u64,
    /// The same, for commands.
    #[serde(skip)]
    pub lost: Vec<LostWal>,
    /// The oldest backup from whose end on every moment up to the archive's end can be recovered. `None`: not even from
    /// the newest good one.
    pub recoverable_from: Option<String>,
    pub recoverable_from_us: Option<i64>,
    /// When the last segment that these moments reach to was archived, by the archive's clock; `None` in a copy.
    pub archived_until_us: Option<i64>,
    /// When the last transaction ended that these moments reach to, by the WAL itself; the end of the newest good backup if
    /// none ended since. `None`: the WAL cannot be read here.
    pub committed_until_us: Option<i64>,
    /// The stretches of time of which every moment can be recovered.
    pub windows: Vec<RecoverableWindow>,
    /// Why gaps could not be searched for.
    pub gaps_unknown: Option<String>,
    /// The last push that the archive refused because it has other WAL of the same name.
    pub refused_push: Option<RefusedPushRow>,
}

/// Segments of one timeline that no recovery crosses.
pub struct LostWal {
    pub first: SegmentName,
    pub last: SegmentName,
    /// The file of one that a look shows; `None`: a verification found them damaged.
    pub file: Option<PathBuf>,
    pub told: String,
}

/// A push that was refused.
#[derive(Serialize)]
pub struct RefusedPushRow {
    pub name: String,
    pub host: String,
    pub at_us: i64,
}

/// A run of contiguous segments.
#[derive(Serialize)]
pub struct Span {
    pub timeline: u32,
    pub first: String,
    pub last: String,
    pub segments: u64,
    pub stored_bytes: u64,
}

pub fn run(options: &Info, context: &Context) -> Result<Exit, Failure> {
    let (databases, failures) = read_of(
        &options.databases,
        options.target.as_deref(),
        listed,
        context,
    )?;
    warn_degraded(&databases, context);
    warn_owed(&failures, context);
    let exit = failures.exit().unwrap_or_else(|| context.output.done());
    let texts: Vec<String> = databases.iter().map(text).collect();
    context.output.say(&texts.join("\n"));
    context.output.json(
        exit,
        Answer {
            action: "info",
            databases,
            failures,
        },
    );
    Ok(exit)
}

/// The states of the databases that a command is about, as [`shelves`] finds them, and those that could not be read.
pub fn read(
    names: &[String],
    target: Option<&str>,
    context: &Context,
) -> Result<(Vec<DescribedDatabase>, Failures), Failure> {
    let all_places = |shelf: &Shelf, _: &Context| Ok((shelf.clone(), shelf.list()?));
    read_of(names, target, all_places, context)
}

/// A shelf's backups, where some of its places do not answer those that the others tell of.
fn listed(shelf: &Shelf, context: &Context) -> Result<(Shelf, Listing), Failure> {
    let error = match shelf.list() {
        Ok(listing) => return Ok((shelf.clone(), listing)),
        Err(error) => error,
    };
    let found = nearest::in_reach(shelf, &error, context, |shelf| shelf.list().map(Some));
    found.ok_or_else(|| error.into())
}

fn read_of(
    names: &[String],
    target: Option<&str>,
    list: impl Fn(&Shelf, &Context) -> Result<(Shelf, Listing), Failure>,
    context: &Context,
) -> Result<(Vec<DescribedDatabase>, Failures), Failure> {
    let mut databases = Vec::new();
    let mut failures = Failures::default();
    for shelf in shelves(context, names, target)? {
        let described =
            list(&shelf, context).and_then(|(read, listing)| database(&read, &listing, context));
        match described {
            Ok(database) => databases.push(database),
            Err(failure) => failures.note(&shelf, failure, context),
        }
    }
    Ok((databases, failures))
}

pub fn warn_degraded(databases: &[DescribedDatabase], context: &Context) {
    let rows = databases.iter().map(|database| &database.backups);
    for warning in rows.flat_map(|rows| shelves::degraded(rows)) {
        context.output.warn(&warning);
    }
}

/// Of a target that is away, what its archive is owed can be told all the same.
fn warn_owed(failures: &Failures, context: &Context) {
    for (name, target) in failures.places() {
        if context.config.target_of(name) != Some(target) {
            continue;
        }
        for row in of_server(name, context).iter().flat_map(|owed| &owed.debts) {
            context.output.warn(&row.told());
        }
    }
}

/// Whether the whole backups show that this is no cluster.
fn has_no_log(facts: &[SetFacts]) -> bool {
    let mut whole = facts.iter().filter(|set| set.is_whole()).peekable();
    whole.peek().is_some() && whole.all(|set| set.log.is_none())
}

/// The state of a database at its target.
pub fn database(
    shelf: &Shelf,
    listing: &Listing,
    context: &Context,
) -> Result<DescribedDatabase, Failure> {
    let now_us = context.clock.wall_ns() / 1000;
    let name = &shelf.database;
    // An archive that cannot be read is told where its WAL is.
    let facts = shelf.facts_of(listing).unwrap_or_else(|_| listing.facts());
    let target = Some(&*shelf.target.name);
    let retention = context.config.retention_of(name, target);
    let policy = context.config.policy_of(name, target);
    let decision = policy.map(|policy| decide(&facts, &policy, now_us));
    let keeps_less = policy.is_some_and(|policy| policy.keep_wal.is_some());
    // With `keep_wal`, older backups keep only the WAL that makes them consistent; the WAL between them was removed.
    let unbroken = decision.as_ref().filter(|_| keeps_less);
    let unbroken = unbroken.map(|decision| &decision.log);
    let mut rows = shelves::rows(listing, decision.as_ref());
    detached::judge(&mut rows, listing, (&shelf.target.name, context));
    let losses = emptied::losses(shelf, listing, context);
    let lost: Vec<usize> = losses.iter().flat_map(|loss| loss.lost.clone()).collect();
    let good = shelves::last_good(&facts, &lost, now_us);
    let good = good.and_then(|i| Some((i, listing.sets[i].complete()?)));
    let configured = context.config.database.get(name);
    let mut remarks = shelves::remarks(listing, &rows);
    if let Some(archive) = shelf.present_wal() {
        remarks += &format!(
            "  the WAL in {} is not shown: --as-of reads the versions that a bucket keeps, and this is no bucket\n",
            plain(&archive.display().to_string())
        );
    }
    for loss in &losses {
        let at = (&*shelf.database, &*shelf.target.name);
        let told = emptied::told(&loss.filled, loss.left, at);
        let label = &listing.sets[loss.lost[0]].label;
        remarks += &format!("  EMPTIED: {label}: {told}\n");
    }
    let seconds = |from: i64, to: i64| to.saturating_sub(from).max(0) as f64 / 1e6;
    let status = shelf.status();
    let mut wal = match shelf.present_wal() {
        Some(_) => None,
        None => {
            let found = wal(
                shelf,
                listing,
                (unbroken, good.map(|(i, _)| i)),
                (status.as_ref().ok(), now_us),
            );
            match found {
                // Only clusters have an archive: that the place of one does not answer is nothing to others.
                Err(_) if has_no_log(&facts) => None,
                found => found?,
            }
        }
    };
    let own = context.config.target_of(name);
    if own.is_some_and(|own| *own != shelf.target.name) {
        // Its files are as old as the copy.
        wal.iter_mut().for_each(|wal| wal.archived_until_us = None);
    }
    let results = Results::read(&status, listing, now_us);
    let until_us = good.map(|(i, _)| reached_us(&facts[i], wal.as_ref()));
    Ok(DescribedDatabase {
        database: name.clone(),
        target: shelf.target.name.clone(),
        directories: shelf.target.texts(),
        url: configured.map(|d| without_password(&d.url)),
        retention: retention.map(|(name, _)| name.to_owned()),
        stopped: shelf.stopped()?,
        bytes: rows.iter().map(|r| r.bytes).sum(),
        newest_emptied: !losses.is_empty(),
        last_good: good.map(|(i, _)| listing.sets[i].label.to_string()),
        last_good_finish_us: good.map(|(_, c)| c.trailer.finish_us),
        last_good_age_s: good.map(|(_, c)| now_us.saturating_sub(c.trailer.finish_us) / 1_000_000),
        last_good_of_standby: good.is_some_and(|(i, _)| is_of_standby(&facts[i])),
        last_good_seconds: good.map(|(_, c)| seconds(c.header.start_us, c.trailer.finish_us)),
        last_good_stored_bytes: good.map(|(_, c)| c.stored_bytes),
        last_good_recipients: good.and_then(|(_, c)| Some(c.recipients? as u64)),
        // Nothing depends on it, so what a store does not answer is no failure.
        uploads_unfinished: shelf.left_uploads().unwrap_or(None),
        families_lost: listing.sets.iter().map(BackupEntry::families_lost).sum(),
        recoverable_until_us: until_us,
        at_risk_s: until_us.map(|us| (now_us.saturating_sub(us) / 1_000_000).max(0)),
        wal,
        owed: match own.is_none_or(|own| *own == shelf.target.name) {
            true => of_server(name, context),
            false => None,
        },
        strays: listing.strays.clone(),
        backups: rows,
        branches: shelves::branch_rows(listing, &lost, now_us),
        remarks: remarks + &copies_text(shelf, &results, context),
        results,
    })
}

/// Whether a backup was made of a standby.
pub fn is_of_standby(set: &SetFacts) -> bool {
    let lineage = set.identity.lineage.as_ref();
    lineage.is_some_and(|lineage| lineage.in_recovery)
}

/// Where copies are of backups that were found not to be good.
fn copies_text(shelf: &Shelf, results: &Results, context: &Context) -> String {
    let mut text = String::new();
    for bad in results.all.iter().filter(|row| !row.good) {
        if let Some(target) = elsewhere::copy_of(shelf, &bad.label, context) {
            let told = elsewhere::told(shelf, &bad.label, &target);
            text += &format!("  {}\n", plain(&told));
        }
    }
    text
}

/// The moment that a restore from the last good backup leads to. Without a log, a backup holds what was there when it
/// began; with one, the state at its end, and WAL up to the last segment that follows it without a gap.
fn reached_us(good: &SetFacts, wal: Option<&Wal>) -> i64 {
    let reached_us = wal.and_then(|wal| wal.committed_until_us.or(wal.archived_until_us));
    match good.log {
        None => good.start_us,
        Some(_) => reached_us.map_or(good.finish_us, |us| us.max(good.finish_us)),
    }
}

/// `unbroken`: the position from which the WAL must have no gaps; `None`: from the oldest backup. `good`: the newest good
/// backup, by its position in `listing`. `status`: what earlier runs found.
fn wal(
    shelf: &Shelf,
    listing: &Listing,
    (unbroken, good): (Option<&LogNeed>, Option<usize>),
    (status, now_us): (Option<&Status>, i64),
) -> Result<Option<Wal>, Failure> {
    let Some(archive) = shelf.wal()? else {
        return Ok(None);
    };
    let Some(identity) = archive.identity() else {
        return Ok(None);
    };
    let all = archive.runs().map_err(longshore_repository::Error::from)?;
    let told =
        lost_wal(&archive, &all, status, now_us).map_err(longshore_repository::Error::from)?;
    let lost = of_all(&told);
    let runs = match lost.is_empty() {
        true => all,
        false => archive
            .runs_without(&lost)
            .map_err(longshore_repository::Error::from)?,
    };
    let mut wal = Wal {
        system: identity.system.to_string(),
        segment_bytes: identity.segment_size.bytes(),
        segments: runs.iter().map(|r| r.span.segments).sum(),
        stored_bytes: runs.iter().map(|r| r.stored_bytes).sum(),
        runs: runs
            .iter()
            .map(|r| Span {
                timeline: r.span.first.timeline.number(),
                first: r.span.first.to_string(),
                last: r.span.last.to_string(),
                segments: r.span.segments,
                stored_bytes: r.stored_bytes,
            })
            .collect(),
        gaps: Vec::new(),
        inconsistent: Vec::new(),
        unsound: told.iter().map(|lost| lost.told.clone()).collect(),
        unsound_count: told
            .iter()
            .map(|lost| count_of(lost, identity.segment_size))
            .sum(),
        lost: told,
        recoverable_from: None,
        recoverable_from_us: None,
        archived_until_us: None,
        committed_until_us: None,
        windows: Vec::new(),
        gaps_unknown: None,
        refused_push: archive.refused().map(|refused| RefusedPushRow {
            name: refused.name.to_string(),
            host: refused.host,
            at_us: refused.at_us,
        }),
    };
    let mut clusters = unbroken.into_iter().flat_map(LogNeed::clusters);
    let from = clusters.find(|(system, _)| *system == identity.system);
    let from = from.map_or(Lsn(0), |(_, from)| from);
    replays(&archive, listing, (from, &lost), good, &mut wal);
    Ok(Some(wal))
}

/// The timeline with which the archive goes on, if a recovery from the end of this WAL does not come to it.
fn unled(archive: &WalArchive, log: &LogRange) -> Result<Option<Timeline>, WalError> {
    let own = Timeline::new(log.last_timeline);
    let latest = archive.histories()?.last().copied();
    let (Some(own), Some(latest)) = (own, latest.filter(|latest| Some(*latest) > own)) else {
        return Ok(None);
    };
    let is_led = archive.history(latest)?.passes(own, Lsn(log.last_lsn));
    Ok((!is_led).then_some(latest))
}

/// Follows the WAL of each backup to the archive's end, and notes what is missing. Gaps count for the oldest backup that
/// begins at `from` or later; lost segments, of which the files are there, are no gaps.
fn replays(
    archive: &WalArchive,
    listing: &Listing,
    (from, lost): (Lsn, &Lost),
    good: Option<usize>,
    wal: &mut Wal,
) {
    let facts = listing.facts();
    let system = archive.identity().map(|identity| identity.system);
    // Backups from whose end no segment is missing, and the timeline that is followed from there.
    let mut unbroken = Vec::new();
    let mut reaches = Vec::new();
    let mut oldest = true;
    for (i, set) in listing.sets.iter().enumerate() {
        let Some(complete) = set.complete() else {
            continue;
        };
        let Some(log) = facts[i].log.filter(|l| Some(l.system) == system) else {
            continue;
        };
        let included = complete.trailer.log.included;
        let replay = match archive.replay_without(&log, included, lost) {
            Ok(Some(replay)) => replay,
            Ok(None) => continue,
            Err(e) => {
                wal.gaps_unknown = Some(e.to_string());
                continue;
            }
        };
        if !replay.missing_to_consistency.is_empty() {
            wal.inconsistent.push(set.label.to_string());
        }
        if oldest && Lsn(log.first_lsn) >= from {
            oldest = false;
            let missing = match lost.is_empty() {
                true => Ok(Some(replay.clone())),
                false => archive.replay(&log, included),
            };
            match missing {
                Ok(missing) => {
                    let missing = missing.into_iter().flat_map(|replay| replay.missing_to_end);
                    wal.gaps = missing.map(|span| span.to_string()).collect();
                }
                Err(e) => wal.gaps_unknown = Some(e.to_string()),
            }
        }
        if !is_sound(&facts, i) {
            continue;
        }
        if let Some(cut) = &replay.cut {
            wal.gaps_unknown = Some(format!(
                "{cut}. Bring that file back, or restore with --target-timeline {}",
                cut.beyond
            ));
        }
        if replay.missing_to_end.is_empty() && replay.cut.is_none() {
            unbroken.push((i, replay.timeline, replay.end));
        }
        if replay.missing_to_consistency.is_empty() {
            reaches.push(Reach::of(i, &log, &replay, archive));
        }
    }
    match windows::covered(archive, &facts, &listing.branches(), &reaches) {
        Ok(windows) => wal.windows = windows,
        Err(e) => wal.gaps_unknown = Some(e.to_string()),
    }
    let newest = good.and_then(|i| {
        let log = facts[i].log.filter(|log| Some(log.system) == system)?;
        Some((&listing.sets[i].label, log))
    });
    match newest.map(|(label, log)| (label, unled(archive, &log))) {
        Some((_, Ok(None))) | None => {}
        Some((label, Ok(Some(latest)))) => {
            wal.gaps_unknown = Some(format!(
                "the archive goes on with timeline {latest}, and nothing of that can be recovered from {label}: make a full backup \
                 now. Until then restore with --target-timeline {latest}, which takes an older backup"
            ));
            return;
        }
        Some((_, Err(e))) => {
            wal.gaps_unknown = Some(e.to_string());
            return;
        }
    }
    let Some((good, timeline, end)) = unbroken.iter().find(|(i, ..)| Some(*i) == good) else {
        return;
    };
    // Since then, a server may have gone on whose WAL is not there. An older refusal says nothing of this backup: its WAL
    // was compared with the archive's at its end, and a server whose push was refused tries again every minute, so while it
    // runs there is a newer one.
    let refused_us = wal.refused_push.as_ref().map(|refused| refused.at_us);
    if refused_us.is_some_and(|refused_us| refused_us > facts[*good].finish_us) {
        return;
    }
    let first = unbroken
        .iter()
        .filter(|(_, followed, _)| followed == timeline)
        .min_by_key(|(i, ..)| facts[*i].log.map(|log| log.last_lsn));
    if let Some(&(i, ..)) = first {
        wal.recoverable_from = Some(facts[i].label.to_string());
        wal.recoverable_from_us = Some(facts[i].finish_us);
        wal.archived_until_us = archived_us(archive, *timeline);
        wal.committed_until_us = committed_us(archive, &facts[*good], *timeline, *end);
    }
}

/// The segments of these runs that no recovery crosses: those that a look shows, and those that a verification found
/// damaged.
///
/// Errors: those of [`WalArchive::unusable`].
fn lost_wal(
    archive: &WalArchive,
    runs: &[Run],
    status: Option<&Status>,
    now_us: i64,
) -> Result<Vec<LostWal>, WalError> {
    let mut lost: Vec<LostWal> = archive
        .unusable()?
        .into_iter()
        .map(|unusable| LostWal {
            first: unusable.name,
            last: unusable.name,
            told: format!("{} {}", unusable.path.display(), unusable.what),
            file: Some(unusable.path),
        })
        .collect();
    let seen = of_all(&lost);
    let size = archive.identity().map(|identity| identity.segment_size);
    for (run, status, size) in runs.iter().filter_map(|run| Some((run, status?, size?))) {
        for found in status.unsound_wal((run.span.first, run.span.last), size) {
            let (first, last) = (
                found.first.max(run.span.first),
                found.last.min(run.span.last),
            );
            // The look says more.
            if first == last && seen.has(first) {
                continue;
            }
            let age = age_text(now_us.saturating_sub(found.by.at_us) / 1_000_000);
            let names = match first == last {
                true => first.to_string(),
                false => format!("{first} to {last}"),
            };
            lost.push(LostWal {
                first,
                last,
                file: None,
                told: format!("{names}, found damaged {age} ago on host {}", found.by.host),
            });
        }
    }
    Ok(lost)
}

fn of_all(told: &[LostWal]) -> Lost {
    let mut lost = Lost::default();
    for part in told {
        lost.add(part.first, part.last);
    }
    lost
}

/// Segments from its first to its last.
fn count_of(lost: &LostWal, size: SegmentSize) -> u64 {
    let number = |name: SegmentName| name.start(size).0 / size.bytes();
    number(lost.last).saturating_sub(number(lost.first)) + 1
}

/// When the last transaction ended that a restore of this backup leads to, by the WAL up to `end`.
fn committed_us(
    archive: &WalArchive,
    good: &SetFacts,
    timeline: Timeline,
    end: Lsn,
) -> Option<i64> {
    let history = archive.history(timeline).ok()?;
    let (_, from) = good.log?.last();
    match archive.last_end(&history, from, end)? {
        LastEnd::At(us) => Some(us.max(good.finish_us)),
        LastEnd::None => Some(good.finish_us),
    }
}

impl Wal {
    /// Which timeline recovery follows, if the archive has several: the times say nothing of the others.
    fn timeline_text(&self) -> Option<String> {
        let from = self.recoverable_from.as_ref()?;
        let window = self.windows.iter().find(|window| window.from == *from)?;
        let is_other = |run: &Span| run.timeline != window.timeline;
        let some_other = self.runs.iter().any(is_other);
        some_other.then(|| format!(", on timeline {}", window.timeline))
    }
}

/// When the last segment of a timeline was archived.
fn archived_us(archive: &WalArchive, timeline: Timeline) -> Option<i64> {
    let runs = archive.runs().ok()?;
    let of_it = |run: &&Run| run.span.last.timeline == timeline;
    let last = runs.iter().rfind(of_it)?.span.last;
    let file = archive.open_file(WalName::Segment(last)).ok()?;
    Some(file.stat().mtime_ns / 1000)
}

/// One database for people.
fn text(d: &DescribedDatabase) -> String {
    let mut text = format!("{} at target {}", plain(&d.database), d.target);
    if let Some(url) = &d.url {
        text += &format!("  ({})", plain(url));
    }
    text.push('\n');
    if let Some(word) = &d.stopped {
        let told = format!(
            "{}; `longshore start {}` allows backups again",
            plain(word),
            plain(&d.database)
        );
        text += &line("STOPPED", &told);
    }
    if d.backups.is_empty() {
        text += "no backup\n";
    } else {
        text += &shelves::table(&d.backups).to_string();
    }
    text += &shelves::reasons(&d.backups, false);
    text += &d.remarks;
    text += &last_good_text(d);
    if let (Some(until_us), Some(at_risk_s)) = (d.recoverable_until_us, d.at_risk_s) {
        let (age, since) = (age_text(at_risk_s), moment(until_us));
        let of = |us: fn(&Wal) -> Option<i64>| d.wal.as_ref().and_then(us) == Some(until_us);
        let is_backups = Some(until_us) == d.last_good_finish_us;
        let what = match is_backups {
            false if of(|wal| wal.committed_until_us) => {
                format!("what was committed after {since} UTC")
            }
            false if of(|wal| wal.archived_until_us) => {
                format!("what was not archived by {since} UTC")
            }
            _ if d.last_good_of_standby => {
                format!(
                    "what was written since {since} UTC, and what the standby had not replayed then"
                )
            }
            _ => format!("what was written since {since} UTC"),
        };
        let on = d.wal.as_ref().and_then(Wal::timeline_text);
        text += &line(
            "at risk now",
            &format!("{age}: {what}{}", on.unwrap_or_default()),
        );
    }
    if !d.backups.is_empty() {
        text += &d.results.text(d.backups.len());
    }
    text += &format!(
        "in all            {} backups, {}\n",
        d.backups.len(),
        bytes(d.bytes)
    );
    if let Some(left) = d.uploads_unfinished.filter(|left| *left > 0) {
        let told = format!(
            "{left} that killed backups left, for which the store charges; `longshore expire {}` aborts them",
            plain(&d.database)
        );
        text += &line("uploads", &told);
    }
    if let Some(wal) = &d.wal {
        text += &wal_text(wal);
    }
    if let Some(owed) = &d.owed {
        text += &owed_text(owed);
    }
    text += &match &d.retention {
        Some(name) => format!(
            "retention         {name}; `longshore expire {} --dry-run` says why\n",
            shell_words([d.database.clone().into()])
        ),
        None => "retention         none: nothing is ever removed\n".to_owned(),
    };
    text
}

fn last_good_text(d: &DescribedDatabase) -> String {
    let (Some(label), Some(finish), Some(age)) =
        (&d.last_good, d.last_good_finish_us, d.last_good_age_s)
    else {
        return "last good backup  none\n".to_owned();
    };
    let age = match age < 0 {
        true => format!(
            "{} ahead of now: a clock is or was wrong",
            age_text(age.saturating_neg())
        ),
        false => format!("{} ago", age_text(age)),
    };
    format!(
        "last good backup  {label}\n                  finished {} UTC, {age}\n",
        moment(finish)
    )
}

fn owed_text(owed: &OwedReport) -> String {
    let mut text = String::new();
    for row in &owed.debts {
        text += &line("OWED", &plain(&row.told()));
    }
    if let Some(why) = &owed.unknown {
        text += &line("OWED", &plain(&unknown_text(why)));
    }
    text
}

fn wal_text(wal: &Wal) -> String {
    let mut text = format!(
        "WAL               {} segments, {}, of cluster {}\n",
        wal.segments,
        bytes(wal.stored_bytes),
        wal.system
    );
    for run in &wal.runs {
        text += &format!(
            "  timeline {}: {} to {}\n",
            run.timeline, run.first, run.last
        );
    }
    for gap in &wal.gaps {
        text += &format!("  GAP: {gap} is missing\n");
    }
    for unsound in &wal.unsound {
        let broken = plain(unsound).replacen(", ", ",\n    ", 1);
        text += &format!("  DAMAGED: {broken}\n");
    }
    if let (Some(label), Some(finish)) = (&wal.recoverable_from, wal.recoverable_from_us) {
        text += &format!(
            "  every moment since {} UTC can be recovered,\n    from {label}\n",
            moment_after(finish)
        );
    }
    for label in &wal.inconsistent {
        text += &format!("  {label} lacks WAL that it needs to become consistent\n");
    }
    if let Some(refused) = &wal.refused_push {
        text += &format!(
            "  REFUSED: {} from {}, {} UTC: another branch of the cluster archives there\n",
            refused.name,
            plain(&refused.host),
            moment(refused.at_us)
        );
    }
    if let Some(error) = &wal.gaps_unknown {
        text += &format!("  could not search for gaps: {}\n", plain(error));
    }
    text
}
