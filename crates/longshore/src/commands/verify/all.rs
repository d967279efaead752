//! `verify --all`: every backup at a target and its WAL, as far as no earlier run has found it good.
//!
//! Invariants
//! - Each set is read once, whatever depends on it: a set that is known to be good is not read again for a differential.
//! - Results are recorded while the run goes on, so that a run after an interruption goes on from there. Records
//!   take a twentieth of the time at most.
//! - One backup, and one part of the WAL, is in memory at a time.
//! - A database that cannot be read does not keep the others from being verified; neither does a backup that no identity
//!   opens, and the run does not call that one valid.
//! - A backup that was there when the run began has a row, unless it was removed meanwhile: it left no trace, and other
//!   backups are there.
//!
//! Leaves to others: reading and checking (`pipeline`, `longshore-wal`), and what a recorded result counts for
//! (`longshore_repository::status`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_catalog::RunTask;
use longshore_crypt::{Error as CryptError, Keyring};
use longshore_io::Clock;
use longshore_media::Error as MediaError;
use longshore_pipeline::{
    Error, Report, Request, VerifyDepth, VerifyReport, VerifyRequest, run as run_pipeline,
};
use longshore_repository::chain::{BrokenChain, Health, SetFacts, chain};
use longshore_repository::status::{FailedRun, SetResult, Status, Task};
use longshore_repository::{
    BackupLease, BackupState, Error as TargetError, Label, Listing, SetIdentity, Shelf,
};
use serde::Serialize;

use super::super::devices;
use super::super::ends::RunLines;
use super::super::moving::{limits, reading_tuning};
use super::super::recording;
use super::super::runs::PendingRun;
use super::super::shelves::{self, Failures};
use super::judged::Judged;
use super::ledger::{Ledger, Trust};
use super::log::{self, VerifiedWal};
use crate::context::Context;
use crate::keys::set_keyring;
use crate::options::Verify;
use crate::progress::ProgressView;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::interrupt;
use longshore_terminal::numbers;
use longshore_terminal::output::{Table, bytes};
use longshore_terminal::text::plain;

const DAY_US: i64 = 86_400_000_000;
/// SQL Server's number for damage to a backup set.
const DAMAGED: u32 = 3189;
/// How often a backup is looked at again that was exchanged since it was listed.
const LOOKS: usize = 3;

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    valid: bool,
    databases: Vec<VerifiedDatabase>,
    failures: Failures,
}

/// One database at one target.
#[derive(Default, Serialize)]
struct VerifiedDatabase {
    database: String,
    target: String,
    /// Backups that were read and found good.
    verified_count: u64,
    /// Backups that an earlier run had found good.
    known_count: u64,
    damaged_count: u64,
    /// Backups that no identity opens, that are not encrypted and must be, or that a newer version wrote.
    closed_count: u64,
    /// Backups that this run did not reach.
    left_count: u64,
    /// Bytes that were decoded.
    plain_bytes: u64,
    elapsed_s: f64,
    backups: Vec<VerifiedRow>,
    wal: Option<VerifiedWal>,
    /// Why the first of the closed ones was not read.
    #[serde(skip)]
    closed_exit: Option<Exit>,
}

#[derive(Serialize)]
struct VerifiedRow {
    label: String,
    #[serde(rename = "type")]
    kind: &'static str,
    verdict: Verdict,
    plain_bytes: Option<u64>,
    /// The damage, or why it was not read.
    why: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Good,
    Known,
    Damaged,
    /// It could not be opened or judged, or must not be read.
    Closed,
    /// The run was interrupted.
    Left,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Known => "known to be good",
            Verdict::Damaged => "DAMAGED",
            Verdict::Closed => "NOT OPENED",
            Verdict::Left => "left",
        }
    }
}

pub fn run(options: &Verify, context: &Context) -> Result<Exit, Failure> {
    let named: Vec<String> = options.media.database.iter().cloned().collect();
    let target = options.media.target.as_deref();
    let mut all = shelves::shelves(context, &named, target)?;
    // Copies may be far away: they are verified where their target is named.
    let is_own =
        |shelf: &Shelf| context.config.target_of(&shelf.database) == Some(&shelf.target.name);
    all.retain(|shelf| target.is_some() || is_own(shelf));
    let cancel = interrupt::cancel_flag();
    // A passphrase may take a second each time.
    let keyring = set_keyring(context, &options.keys)?;
    for shelf in &mut all {
        shelf.keyring = keyring.clone();
    }
    let mut failures = Failures::default();
    let mut databases = Vec::new();
    for shelf in &all {
        if cancel.load(Ordering::Relaxed) {
            break;
        }
        let named = (Some(&*shelf.database), Some(&*shelf.target.name));
        let lines = RunLines::of(context, "verify_all", named, "");
        let shared = (keyring.clone(), cancel.clone());
        match Verification::new(options, context, shelf, shared).run() {
            Ok(database) => {
                context.output.say(&text(&database));
                let exit = database.exit(&cancel).unwrap_or_else(|| lines.done());
                lines.end(exit, &database.counts());
                databases.push(database);
            }
            Err(failure) => failures.note(shelf, failure, context),
        }
    }
    let valid = databases.iter().all(VerifiedDatabase::is_valid);
    let is_damaged = databases.iter().any(VerifiedDatabase::is_damaged);
    let closed = databases.iter().find_map(|database| database.closed_exit);
    let exit = match (cancel.load(Ordering::Relaxed), failures.exit().or(closed)) {
        (true, _) => Exit::Interrupted,
        (false, _) if is_damaged => Exit::No,
        (false, Some(exit)) => exit,
        (false, None) => context.output.done(),
    };
    context.output.json(
        exit,
        Answer {
            action: "verify_all",
            valid,
            databases,
            failures,
        },
    );
    Ok(exit)
}

impl VerifiedDatabase {
    fn is_damaged(&self) -> bool {
        let log_is = self.wal.as_ref().is_some_and(|wal| !wal.is_valid());
        self.damaged_count > 0 || log_is
    }

    /// Nobody knows whether a backup, or WAL, that was not opened is good.
    fn is_valid(&self) -> bool {
        let log = self.wal.as_ref();
        let log_is_closed = log.is_some_and(|wal| wal.first_closed().is_some());
        !self.is_damaged() && self.closed_count == 0 && !log_is_closed
    }

    /// How its own run ended; `None`: it did its work, and nothing is wrong.
    fn exit(&self, cancel: &AtomicBool) -> Option<Exit> {
        match self.is_damaged() {
            _ if cancel.load(Ordering::Relaxed) => Some(Exit::Interrupted),
            true => Some(Exit::No),
            false => self.closed_exit,
        }
    }

    /// The numbers of backups and segments, on one line.
    fn counts(&self) -> String {
        let closed = match self.closed_count {
            0 => String::new(),
            closed => format!(", {closed} NOT OPENED"),
        };
        let mut text = format!(
            "backups {} verified, {} known to be good, {} DAMAGED{closed}, {} left",
            self.verified_count, self.known_count, self.damaged_count, self.left_count
        );
        if let Some(wal) = &self.wal {
            text += &format!("; WAL {}", wal.counts());
        }
        let (read, elapsed_s) = (bytes(self.plain_bytes), self.elapsed_s);
        text + &format!("; {read} in {elapsed_s:.1} s")
    }

    fn count(&mut self) {
        let count = |verdict| {
            let of_it = self.backups.iter().filter(|row| row.verdict == verdict);
            of_it.count() as u64
        };
        self.verified_count = count(Verdict::Good);
        self.known_count = count(Verdict::Known);
        self.damaged_count = count(Verdict::Damaged);
        self.closed_count = count(Verdict::Closed);
        self.left_count = count(Verdict::Left);
    }
}

/// The verification of one database at one target.
struct Verification<'a> {
    options: &'a Verify,
    context: &'a Context,
    shelf: &'a Shelf,
    keyring: Arc<Keyring>,
    cancel: Arc<AtomicBool>,
    trust: Trust,
    ledger: Ledger<'a>,
    judged: Judged,
    database: VerifiedDatabase,
    failed: Option<FailedRun>,
    /// Backups that an earlier run found good, believed or not.
    once_good: BTreeSet<Label>,
    /// The thing that is being read.
    at: At,
}

/// A step of the run: the failure with which it ends there is about this.
enum At {
    Target,
    Backup(Label),
    Wal,
}

/// The state in which a backup was seen.
enum Seen {
    Row(VerifiedRow),
    /// It is none yet, or no longer.
    Nothing,
    /// It is not as it was listed.
    Changed,
}

/// The answer of a run over the pipeline.
enum Read {
    Good,
    Damaged(String),
    /// Stripes are not where they were.
    Changed,
}

impl<'a> Verification<'a> {
    fn new(
        options: &'a Verify,
        context: &'a Context,
        shelf: &'a Shelf,
        (keyring, cancel): (Arc<Keyring>, Arc<AtomicBool>),
    ) -> Verification<'a> {
        let days = options.older_than.map(i64::from);
        Verification {
            options,
            context,
            shelf,
            keyring,
            cancel,
            trust: Trust {
                again: options.again,
                older_than_us: days.map(|days| days.saturating_mul(DAY_US)),
                now_us: Clock::wall_ns(&*context.clock) / 1000,
            },
            ledger: Ledger::new(context, shelf),
            judged: Judged::default(),
            database: VerifiedDatabase {
                database: shelf.database.clone(),
                target: shelf.target.name.clone(),
                ..VerifiedDatabase::default()
            },
            failed: None,
            once_good: BTreeSet::new(),
            at: At::Target,
        }
    }

    fn run(mut self) -> Result<VerifiedDatabase, Failure> {
        let began = self.context.clock.now();
        let run = PendingRun::begin(self.context, RunTask::Verify);
        let run = run.at(&self.shelf.database, &self.shelf.target.name);
        let done = self.all();
        if let Err(failure) = &done
            && !matches!(failure.exit, Exit::Interrupted | Exit::Usage)
        {
            self.ended(failure);
        }
        let is_whole = done.is_ok() && !self.cancel.load(Ordering::Relaxed);
        let wal = self.database.wal.as_ref();
        let has_wal = wal.is_some_and(VerifiedWal::is_whole);
        let failed = self.failed.take();
        self.database.count();
        self.remember(run, (&done, failed.as_ref()));
        self.ledger.end(failed, is_whole, has_wal);
        done?;
        self.database.elapsed_s = (self.context.clock.now() - began).as_secs_f64();
        Ok(self.database)
    }

    /// Records the run in the history. The label is that of the first backup that is not good.
    fn remember(
        &self,
        mut run: PendingRun,
        (done, failed): (&Result<(), Failure>, Option<&FailedRun>),
    ) {
        let database = &self.database;
        run.record.bytes = Some(database.plain_bytes);
        run.record.label = failed.and_then(|failed| failed.label.clone());
        if let Err(failure) = done {
            run.failed(failure);
            return;
        }
        let exit = match (self.cancel.load(Ordering::Relaxed), database.closed_exit) {
            (true, _) => Exit::Interrupted,
            (false, _) if database.is_damaged() => Exit::No,
            (false, closed) => closed.unwrap_or(Exit::Done),
        };
        let counted = format!(
            "{} verified, {} known to be good, {} damaged, {} not opened, {} left",
            database.verified_count,
            database.known_count,
            database.damaged_count,
            database.closed_count,
            database.left_count
        );
        let message = match failed {
            Some(failed) => format!("{counted}: {}", failed.text),
            None => counted,
        };
        run.record.number = failed.map(|failed| failed.number);
        run.ended(exit, Some(&message));
    }

    /// Notes what the run has failed at, next to earlier ones.
    fn fail(&mut self, run: FailedRun) {
        match &mut self.failed {
            Some(first) => first.also(&run),
            None => self.failed = Some(run),
        }
    }

    /// Notes the failure with which the run ends; it is what people are told.
    fn ended(&mut self, failure: &Failure) {
        let told = (failure.exit.code(), failure.number, failure.text.as_str());
        let (label, is_wal) = match &self.at {
            At::Target => (None, false),
            At::Backup(label) => (Some(label.as_str()), false),
            At::Wal => (None, true),
        };
        let mut run = FailedRun::new(self.ledger.now(), label, told);
        run.wal = is_wal;
        if let Some(first) = &self.failed {
            run.also(first);
        }
        self.failed = Some(run);
    }

    /// Notes a backup of which nobody knows whether it is good.
    fn closed(&mut self, label: &Label, (exit, number, why): (Exit, u32, &str)) {
        let told = (exit.code(), number, why);
        let mut run = FailedRun::new(self.ledger.now(), Some(label.as_str()), told);
        // Without an earlier result there is none to doubt, of this backup and of those that are closed next to it.
        run.unread = self.once_good.contains(label);
        self.fail(run);
        self.database.closed_exit.get_or_insert(exit);
    }

    /// Notes a backup that is not good.
    fn fail_at(&mut self, label: &Label, why: &str) {
        let told = (Exit::No.code(), DAMAGED, why);
        self.fail(FailedRun::new(
            self.ledger.now(),
            Some(label.as_str()),
            told,
        ));
    }

    fn all(&mut self) -> Result<(), Failure> {
        let listing = self.shelf.list()?;
        let status = self.shelf.status().unwrap_or_else(|error| {
            let text =
                format!("earlier results cannot be read, so everything is verified: {error}");
            self.context.output.note(&text);
            Status::default()
        });
        self.ledger.know(&listing);
        self.learn(&listing, &status);
        let facts = listing.facts();
        let order = in_order(&facts);
        let mut rows = BTreeMap::new();
        for (done, index) in order.iter().enumerate() {
            let progress = (done, order.len());
            let row = match self.row(&listing, &facts, *index, progress)? {
                Seen::Row(row) => Some(row),
                Seen::Nothing => None,
                Seen::Changed => self.row_now(&listing.sets[*index].label, progress)?,
            };
            rows.extend(row.map(|row| (*index, row)));
        }
        self.database.backups = rows.into_values().collect();
        if self.cancel.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.at = At::Wal;
        let wal = log::verify(
            self.shelf,
            &status,
            self.trust,
            (&mut self.ledger, &self.cancel),
        )?;
        if let Some(text) = wal.as_ref().and_then(VerifiedWal::first_wrong) {
            let told = (Exit::No.code(), DAMAGED, text);
            self.fail(FailedRun::new(self.ledger.now(), None, told).of_wal());
        }
        if let Some(text) = wal.as_ref().and_then(VerifiedWal::first_closed) {
            let told = (Exit::Media.code(), numbers::TARGET, text);
            let mut run = FailedRun::new(self.ledger.now(), None, told).of_wal();
            // No earlier result is for this segment as it is, and each other has its own.
            run.unread = false;
            self.fail(run);
            self.database.closed_exit.get_or_insert(Exit::Media);
        }
        self.database.wal = wal;
        Ok(())
    }

    /// Believes what earlier runs found good, unless a later run of any kind did not find it good or could not read it, or a
    /// backup that needs it.
    fn learn(&mut self, listing: &Listing, status: &Status) {
        let facts = listing.facts();
        let open = status.open(Task::Verify);
        let mut doubted = BTreeSet::new();
        for (i, set) in listing.sets.iter().enumerate() {
            let results = [Task::Verify, Task::Drill]
                .into_iter()
                .filter_map(|task| status.of_set(task, set, self.trust.now_us));
            let bad = results.filter(|result| !result.good);
            let bad_us = bad.map(|result| result.by.at_us).max();
            let doubts = |result: &SetResult| {
                open.is_some_and(|run| run.doubts(&set.label, &result.by))
                    || bad_us.is_some_and(|bad_us| result.by.at_us <= bad_us)
            };
            for link in chain(&facts, i).unwrap_or_else(|_| vec![i]) {
                let result = status.of_set(Task::Verify, &listing.sets[link], self.trust.now_us);
                doubted.extend(result.is_some_and(doubts).then_some(link));
            }
        }
        let only_encrypted =
            self.options.keys.require_encryption || self.context.config.encryption.require;
        for (i, set) in listing.sets.iter().enumerate() {
            // A person who can write a plain set there can write its result, too.
            if only_encrypted && set.complete().is_some_and(|c| !c.header.encrypted) {
                continue;
            }
            let result = status.of_set(Task::Verify, set, self.trust.now_us);
            let Some(result) = result.filter(|result| result.good) else {
                continue;
            };
            self.once_good.insert(set.label.clone());
            let is_believed = self.trust.in_result(&result.by) && !doubted.contains(&i);
            if let Some(identity) = set.identity().filter(|_| is_believed) {
                self.judged.note(identity, true);
            }
        }
    }

    /// The row of a backup that is not as it was listed, from a new list.
    fn row_now(
        &mut self,
        label: &Label,
        progress: (usize, usize),
    ) -> Result<Option<VerifiedRow>, Failure> {
        for _ in 0..LOOKS {
            if self.shelf.is_removed(label)? {
                // An expire leaves the last good backup.
                let is_bare = self.shelf.list()?.sets.is_empty();
                let text = "it is gone, and so are all other backups of the database";
                return Ok(is_bare.then(|| self.lost_row(label, text.to_owned())));
            }
            let listing = self.shelf.list()?;
            let Some(index) = listing.sets.iter().position(|set| set.label == *label) else {
                return Ok(None);
            };
            let state = &listing.sets[index].state;
            if matches!(state, BackupState::Unknown { .. }) {
                return Ok(Some(self.closed_row(label, state.text())));
            }
            if !matches!(state, BackupState::Complete(_) | BackupState::Removing) {
                let text = format!("it was whole when this run began: {}", state.text());
                return Ok(Some(self.lost_row(label, text)));
            }
            match self.row(&listing, &listing.facts(), index, progress)? {
                Seen::Row(row) => return Ok(Some(row)),
                Seen::Nothing => return Ok(None),
                Seen::Changed => {}
            }
        }
        Ok(Some(self.lost_row(
            label,
            "its stripes, or those that it needs, change while they are read".to_owned(),
        )))
    }

    fn lost_row(&mut self, label: &Label, why: String) -> VerifiedRow {
        self.context.output.warn(&format!("{label}: {why}"));
        self.fail_at(label, &why);
        VerifiedRow {
            label: label.to_string(),
            kind: label.kind().text(),
            verdict: Verdict::Damaged,
            plain_bytes: None,
            why: Some(why),
        }
    }

    /// The row of a backup of which nobody can say here whether it is good.
    fn closed_row(&mut self, label: &Label, why: String) -> VerifiedRow {
        self.context.output.warn(&format!("{label}: {why}"));
        self.closed(label, (Exit::Media, numbers::TARGET, &why));
        VerifiedRow {
            label: label.to_string(),
            kind: label.kind().text(),
            verdict: Verdict::Closed,
            plain_bytes: None,
            why: Some(why),
        }
    }

    /// The row of one backup.
    fn row(
        &mut self,
        listing: &Listing,
        facts: &[SetFacts],
        index: usize,
        (done, count): (usize, usize),
    ) -> Result<Seen, Failure> {
        let set = &listing.sets[index];
        let complete = set.complete();
        let row = |verdict, why: Option<String>| {
            Seen::Row(VerifiedRow {
                label: set.label.to_string(),
                kind: shelves::kind_of(facts, index),
                verdict,
                plain_bytes: complete.map(|c| c.trailer.plain_bytes_total),
                why,
            })
        };
        let Some(identity) = set.identity() else {
            return Ok(match &set.state {
                BackupState::Writing { .. } | BackupState::Abandoned | BackupState::Removing => {
                    Seen::Nothing
                }
                state @ BackupState::Unknown { .. } => {
                    Seen::Row(self.closed_row(&set.label, state.text()))
                }
                state => row(Verdict::Damaged, Some(self.not_whole(&set.label, state))),
            });
        };
        self.at = At::Backup(set.label.clone());
        if let Err(broken) = chain(facts, index)
            && is_undecided(&broken, facts)
        {
            let why = format!("it cannot be judged: {broken}");
            return Ok(Seen::Row(self.closed_row(&set.label, why)));
        }
        if let Some(why) = self.lost(listing, facts, index) {
            self.fail_at(&set.label, &why);
            // Its own bytes may be good: nothing is recorded of it.
            if self.judged.is_good(&identity) || chain(facts, index).is_err() {
                return Ok(row(Verdict::Damaged, Some(why)));
            }
        }
        if self.judged.is_good(&identity) {
            return Ok(row(Verdict::Known, None));
        }
        let interrupted = || Some("the run was interrupted".to_owned());
        if self.cancel.load(Ordering::Relaxed) {
            return Ok(row(Verdict::Left, interrupted()));
        }
        self.context.output.remark(&format!(
            "{} at target {}: {} ({} of {count})\n",
            plain(&self.shelf.database),
            self.shelf.target.name,
            set.label,
            done + 1,
        ));
        let lease = match self.shelf.lease_listed(listing, index) {
            Ok(lease) => lease,
            Err(TargetError::NoSuchLabel { .. }) => return Ok(Seen::Changed),
            Err(TargetError::Chain(broken)) => {
                let why = format!("it cannot be restored: {broken}");
                self.note(identity, Some(&why));
                return Ok(row(Verdict::Damaged, Some(why)));
            }
            Err(error) => return Err(error.into()),
        };
        let leased = lease.identities.first();
        if leased.is_none_or(|own| own.set != identity.set) {
            return Ok(Seen::Changed);
        }
        devices::remark(&lease, self.context);
        Ok(match self.read(&lease) {
            Ok(Read::Good) => row(Verdict::Good, None),
            Ok(Read::Damaged(why)) => row(Verdict::Damaged, Some(why)),
            Ok(Read::Changed) => Seen::Changed,
            Err(failure) if failure.exit == Exit::Interrupted => row(Verdict::Left, interrupted()),
            // It is another's, or encrypted for somebody else: the others are read all the same.
            Err(failure) if is_closed(&failure) => {
                self.closed(&set.label, (failure.exit, failure.number, &failure.text));
                let (text, hint) = (&failure.text, &failure.hint);
                let told = format!("{}: {text}\nhint: {hint}", set.label);
                self.context.output.warn(&told);
                row(Verdict::Closed, Some(failure.text))
            }
            Err(failure) => return Err(failure),
        })
    }

    /// Why a backup cannot be restored, though its own stripes may be good.
    fn lost(&self, listing: &Listing, facts: &[SetFacts], index: usize) -> Option<String> {
        let links = match chain(facts, index) {
            Ok(links) => links,
            Err(broken) => return Some(format!("it cannot be restored: {broken}")),
        };
        let is_bad = |link: &&usize| {
            let identity = listing.sets[**link].identity();
            identity.is_some_and(|identity| self.judged.is_bad(&identity))
        };
        let bad = links.iter().skip(1).find(is_bad)?;
        Some(format!("it needs {}, which is damaged", facts[*bad].label))
    }

    /// Notes a backup that lacks stripes or has damaged headers: why it is no good.
    fn not_whole(&mut self, label: &Label, state: &BackupState) -> String {
        let why = state.text();
        self.context.output.warn(&format!("{label}: {why}"));
        self.fail_at(label, &why);
        why
    }

    /// Reads a backup. Of the sets that it needs, those with a known result are not read.
    fn read(&mut self, lease: &BackupLease) -> Result<Read, Failure> {
        let needed = || lease.identities.iter();
        let known = needed().filter(|identity| self.judged.is_good(identity));
        let mut lost = needed().skip(1).filter(|own| self.judged.is_bad(own));
        let lost = lost.next().map(|identity| identity.label.clone());
        let defaults = &self.context.config.defaults;
        let request = VerifyRequest {
            devices: lease.devices.clone(),
            bases: match lost {
                // It would be read again for each that needs it.
                Some(_) => Vec::new(),
                None => devices::bases(lease),
            },
            position: None,
            known: known.map(|identity| identity.set).collect(),
            depth: VerifyDepth::Chains,
            tuning: reading_tuning(&self.options.moving, defaults),
            limits: limits(&self.options.moving, defaults),
        };
        let watch = ProgressView::new(self.context.output, self.context.clock.clone());
        let mut run_context = self.context.run_context();
        run_context.keyring = self.keyring.clone();
        let result = run_pipeline(&run_context, &Request::Verify(request), &watch);
        watch.end();
        let report = match result {
            Ok(Report::Verify(report)) => report,
            Ok(_) => return Err(super::super::backup::wrong_report()),
            Err(error) if is_answer(&error) => {
                let failure = Failure::from(error);
                if let Some(own) = lease.identities.first() {
                    self.note(own.clone(), Some(&failure.text));
                }
                return Ok(Read::Damaged(failure.text));
            }
            Err(Error::Media(MediaError::Missing { .. } | MediaError::FamilyMissing { .. })) => {
                return Ok(Read::Changed);
            }
            Err(error) => return Err(error.into()),
        };
        let read = report.sets.iter().map(|set| set.plain_bytes);
        self.database.plain_bytes += read.sum::<u64>();
        Ok(match self.judge(lease, &report, lost) {
            None => Read::Good,
            Some(why) => Read::Damaged(why),
        })
    }

    /// Records the report on a backup; what is wrong with it.
    fn judge(
        &mut self,
        lease: &BackupLease,
        report: &VerifyReport,
        lost: Option<Label>,
    ) -> Option<String> {
        for finding in &report.findings {
            let (label, text, hint) = (&lease.label, &finding.text, finding.hint);
            let told = format!("{label}: {text}\nhint: {hint}");
            self.context.output.warn(&told);
        }
        let results = recording::verified(report, &lease.identities, &self.ledger.now());
        let of = |identity: &SetIdentity| results.iter().find(|found| found.set == identity.set);
        for needed in lease.identities.iter().skip(1) {
            if let Some(result) = of(needed) {
                let wrong = (!result.good).then_some(result.text.as_str());
                self.note(needed.clone(), wrong);
            }
        }
        let own = lease.identities.first();
        let mut sets = report.sets.iter().filter(|set| set.valid && set.degraded);
        let is_degraded = own.is_some_and(|own| sets.any(|set| set.set == own.set));
        let wrong = match (own.and_then(of), lost) {
            (Some(own), _) if !own.good => Some(own.text.clone()),
            (_, Some(label)) => Some(format!("it needs {label}, which is damaged")),
            (Some(_), None) => None,
            // Without a result it is read again.
            (None, None) if is_degraded => return None,
            // It was found good while this run read another that needs it.
            (None, None) if own.is_some_and(|own| self.judged.is_good(own)) => None,
            (None, None) => Some("its chain could not be checked".to_owned()),
        };
        if let Some(own) = own {
            self.note(own.clone(), wrong.as_deref());
        }
        wrong
    }

    /// Records the result for a backup that was read.
    fn note(&mut self, identity: SetIdentity, wrong: Option<&str>) {
        let result = SetResult::new(&identity, &self.ledger.now(), wrong);
        if let Some(why) = wrong {
            self.fail_at(&identity.label, why);
        }
        self.judged.note(identity, wrong.is_none());
        self.ledger.add(|news| news.sets.push(result));
    }
}

/// The backups, each after those that it needs, else in the order of the listing.
fn in_order(facts: &[SetFacts]) -> Vec<usize> {
    let depth = |i: &usize| chain(facts, *i).map_or(usize::MAX, |links| links.len());
    let mut order: Vec<usize> = (0..facts.len()).collect();
    order.sort_by_key(depth);
    order
}

/// Whether a chain ends at a backup that cannot be judged here, or may: such a one may not tell which set it is.
fn is_undecided(broken: &BrokenChain, facts: &[SetFacts]) -> bool {
    let mut unknown = facts.iter().filter(|set| set.health == Health::Unknown);
    match broken {
        BrokenChain::ParentBroken { parent, .. } => unknown.any(|set| set.label == *parent),
        BrokenChain::ParentMissing { .. } => unknown.any(|set| set.id.is_none()),
        BrokenChain::ParentForeign { .. } | BrokenChain::Endless { .. } => false,
    }
}

/// Media that exist but are no complete stripes: the answer is no. Media that cannot be reached: there is no answer.
pub fn is_answer(error: &Error) -> bool {
    matches!(
        error,
        Error::Media(
            MediaError::NotMedia { .. }
                | MediaError::Empty { .. }
                | MediaError::Damaged { .. }
                | MediaError::BlockDamaged { .. }
                | MediaError::SetDamaged { .. }
                | MediaError::Incomplete { .. }
                | MediaError::Key {
                    source: CryptError::Malformed { .. },
                    ..
                }
        )
    )
}

fn text(database: &VerifiedDatabase) -> String {
    let mut text = format!(
        "{} at target {}\n",
        plain(&database.database),
        database.target
    );
    let read = database
        .backups
        .iter()
        .filter(|row| row.verdict != Verdict::Known);
    let read: Vec<&VerifiedRow> = read.collect();
    if !read.is_empty() {
        let mut table = Table::new(&["label", "out", "verdict"]);
        for row in &read {
            table.row(vec![
                row.label.clone(),
                row.plain_bytes.map_or("-".to_owned(), bytes),
                row.verdict.word().to_owned(),
            ]);
        }
        text += &table.to_string();
    }
    for row in read {
        if let Some(why) = &row.why {
            text += &format!("  {}: {}\n", row.label, plain(why));
        }
    }
    let closed = match database.closed_count {
        0 => String::new(),
        closed => format!(", {closed} NOT OPENED"),
    };
    text += &format!(
        "backups           {} verified, {} known to be good, {} DAMAGED{closed}, {} left\n",
        database.verified_count, database.known_count, database.damaged_count, database.left_count
    );
    if let Some(wal) = &database.wal {
        text += &wal.text();
    }
    text
}

/// Whether a backup could not be opened, or must not be read, as it is.
fn is_closed(failure: &Failure) -> bool {
    matches!(
        failure.number,
        numbers::KEY_MISSING | numbers::NOT_ENCRYPTED | numbers::NOT_SIGNED
    )
}
