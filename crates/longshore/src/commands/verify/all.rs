//! `verify --all`: every backup at a target and its WAL, as far as no earlier run has found it good.
//!
//! Invariants
//! - Each set is read once, whatever depends on it: a set that is known to be good is not read again for a differential.
//! - Results are recorded while the run goes on, so that a run after an interruption goes on from there. Records
//!   take a twentieth of the time at most.
//! - One backup, and one part of the WAL, is in memory at a time.
//! - A database that cannot be read does not keep the others from being verified.
//!
//! Leaves to others: reading and checking (`pipeline`, `longshore-wal`), and what a recorded result counts for
//! (`longshore_repository::status`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_io::Clock;
use longshore_media::Error as MediaError;
use longshore_pipeline::{
    Error, Report, Request, VerifyReport, VerifyRequest, run as run_pipeline,
};
use longshore_repository::chain::{SetFacts, chain};
use longshore_repository::status::{FailedRun, SetResult, Status, Task};
use longshore_repository::{
    BackupLease, BackupState, Error as TargetError, Listing, SetIdentity, Shelf,
};
use serde::Serialize;
use uuid::Uuid;

use super::super::devices;
use super::super::moving::{limits, reading_tuning};
use super::super::recording;
use super::super::shelves::{Failures, shelves};
use super::ledger::{Ledger, Trust};
use super::log::{self, VerifiedWal};
use crate::context::Context;
use crate::keys::keyring;
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
    verified: u64,
    /// Backups that an earlier run had found good.
    known: u64,
    damaged: u64,
    /// Backups that this run did not reach.
    left: u64,
    /// Bytes that were decoded.
    plain_bytes: u64,
    elapsed_s: f64,
    backups: Vec<VerifiedRow>,
    wal: Option<VerifiedWal>,
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
    /// The run was interrupted, or failed before.
    Left,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Known => "known to be good",
            Verdict::Damaged => "DAMAGED",
            Verdict::Left => "left",
        }
    }
}

pub fn run(options: &Verify, context: &Context) -> Result<Exit, Failure> {
    let named: Vec<String> = options.media.database.iter().cloned().collect();
    let target = options.media.target.as_deref();
    let mut all = shelves(context, &named, target)?;
    // Copies may be far away: they are verified where their target is named.
    let is_own =
        |shelf: &Shelf| context.config.target_of(&shelf.database) == Some(&shelf.target.name);
    all.retain(|shelf| target.is_some() || is_own(shelf));
    let cancel = interrupt::cancel_flag();
    let mut failures = Failures::default();
    let mut databases = Vec::new();
    for shelf in &all {
        if cancel.load(Ordering::Relaxed) {
            break;
        }
        let verification = Verification::new(options, context, shelf, cancel.clone());
        match verification.run() {
            Ok(database) => {
                context.output.say(&text(&database));
                databases.push(database);
            }
            Err(failure) => failures.note(shelf, failure, context),
        }
    }
    let valid = databases.iter().all(VerifiedDatabase::is_valid);
    let exit = match (cancel.load(Ordering::Relaxed), failures.exit()) {
        (true, _) => Exit::Interrupted,
        (false, _) if !valid => Exit::No,
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
    fn is_valid(&self) -> bool {
        let log_is = self.wal.as_ref().is_none_or(VerifiedWal::is_valid);
        self.damaged == 0 && log_is
    }

    fn count(&mut self) {
        let count = |verdict| {
            let of_it = self.backups.iter().filter(|row| row.verdict == verdict);
            of_it.count() as u64
        };
        self.verified = count(Verdict::Good);
        self.known = count(Verdict::Known);
        self.damaged = count(Verdict::Damaged);
        self.left = count(Verdict::Left);
    }
}

/// The verification of one database at one target.
struct Verification<'a> {
    options: &'a Verify,
    context: &'a Context,
    shelf: &'a Shelf,
    cancel: Arc<AtomicBool>,
    trust: Trust,
    ledger: Ledger<'a>,
    /// The sets that are known to be good.
    known: BTreeMap<Uuid, SetIdentity>,
    /// The sets that are not, and why.
    bad: BTreeMap<Uuid, String>,
    database: VerifiedDatabase,
    failed: Option<FailedRun>,
}

impl<'a> Verification<'a> {
    fn new(
        options: &'a Verify,
        context: &'a Context,
        shelf: &'a Shelf,
        cancel: Arc<AtomicBool>,
    ) -> Verification<'a> {
        let days = options.older_than.map(i64::from);
        Verification {
            options,
            context,
            shelf,
            cancel,
            trust: Trust {
                again: options.again,
                older_than_us: days.map(|days| days.saturating_mul(DAY_US)),
                now_us: Clock::wall_ns(&*context.clock) / 1000,
            },
            ledger: Ledger::new(context, shelf),
            known: BTreeMap::new(),
            bad: BTreeMap::new(),
            database: VerifiedDatabase {
                database: shelf.database.clone(),
                target: shelf.target.name.clone(),
                ..VerifiedDatabase::default()
            },
            failed: None,
        }
    }

    fn run(mut self) -> Result<VerifiedDatabase, Failure> {
        let began = self.context.clock.now();
        let done = self.all();
        if let Err(failure) = &done
            && !matches!(failure.exit, Exit::Interrupted | Exit::Usage)
        {
            let told = (failure.exit.code(), failure.number, failure.text.as_str());
            let mut run = FailedRun::new(self.ledger.now(), None, told);
            if let Some(first) = &self.failed {
                run.also(first);
            }
            self.failed = Some(run);
        }
        let is_whole = done.is_ok() && !self.cancel.load(Ordering::Relaxed);
        let wal = self.database.wal.as_ref();
        let has_wal = wal.is_some_and(VerifiedWal::is_whole);
        self.ledger.end(self.failed.take(), is_whole, has_wal);
        done?;
        self.database.count();
        self.database.elapsed_s = (self.context.clock.now() - began).as_secs_f64();
        Ok(self.database)
    }

    /// Notes what the run has failed at, next to earlier ones.
    fn fail(&mut self, run: FailedRun) {
        match &mut self.failed {
            Some(first) => first.also(&run),
            None => self.failed = Some(run),
        }
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
            let row = self.row(&listing, &facts, *index, (done, order.len()))?;
            rows.extend(row.map(|row| (*index, row)));
        }
        self.database.backups = rows.into_values().collect();
        if self.cancel.load(Ordering::Relaxed) {
            return Ok(());
        }
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
        self.database.wal = wal;
        Ok(())
    }

    /// Believes what earlier runs found good.
    fn learn(&mut self, listing: &Listing, status: &Status) {
        let only_encrypted =
            self.options.keys.require_encryption || self.context.config.encryption.require;
        for set in &listing.sets {
            // A person who can write a plain set there can write its result, too.
            if only_encrypted && set.complete().is_some_and(|c| !c.header.encrypted) {
                continue;
            }
            let result = status.of_set(Task::Verify, set, self.trust.now_us);
            let is_good = result.is_some_and(|r| r.good && self.trust.in_result(&r.by));
            if let Some(identity) = set.identity().filter(|_| is_good) {
                self.known.insert(identity.set, identity);
            }
        }
    }

    /// The row of one backup; `None` for what is no backup yet or any longer.
    fn row(
        &mut self,
        listing: &Listing,
        facts: &[SetFacts],
        index: usize,
        (done, count): (usize, usize),
    ) -> Result<Option<VerifiedRow>, Failure> {
        let set = &listing.sets[index];
        let complete = set.complete();
        let row = |verdict, why: Option<String>| {
            Some(VerifiedRow {
                label: set.label.to_string(),
                kind: facts[index].kind.text(),
                verdict,
                plain_bytes: complete.map(|c| c.trailer.plain_bytes_total),
                why,
            })
        };
        let Some(complete) = complete else {
            return Ok(match &set.state {
                BackupState::Writing { .. } | BackupState::Abandoned | BackupState::Removing => {
                    None
                }
                _ => row(
                    Verdict::Damaged,
                    Some(self.not_whole(set.label.as_str(), &set.state)),
                ),
            });
        };
        let id = complete.header.set;
        if let Some(why) = self.lost(facts, index) {
            let told = (Exit::No.code(), DAMAGED, why.as_str());
            let run = FailedRun::new(self.ledger.now(), Some(set.label.as_str()), told);
            self.fail(run);
            // Its own bytes may be good: nothing is recorded of it.
            if self.known.contains_key(&id) || chain(facts, index).is_err() {
                return Ok(row(Verdict::Damaged, Some(why)));
            }
        }
        if self.known.contains_key(&id) {
            return Ok(row(Verdict::Known, None));
        }
        if self.cancel.load(Ordering::Relaxed) {
            return Ok(row(
                Verdict::Left,
                Some("the run was interrupted".to_owned()),
            ));
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
            // An expire has removed it meanwhile.
            Err(TargetError::NoSuchLabel { .. }) => return Ok(None),
            Err(TargetError::Chain(broken)) => {
                let why = format!("it cannot be restored: {broken}");
                self.judged(set.identity().into_iter().collect(), id, Some(&why));
                return Ok(row(Verdict::Damaged, Some(why)));
            }
            Err(error) => return Err(error.into()),
        };
        devices::remark(&lease, self.context);
        let wrong = match self.read(&lease, &facts[index]) {
            Err(failure) if failure.exit == Exit::Interrupted => {
                return Ok(row(
                    Verdict::Left,
                    Some("the run was interrupted".to_owned()),
                ));
            }
            // It is another's, or encrypted for somebody else: the others are read all the same.
            Err(failure) if is_closed(&failure) => {
                let told = (failure.exit.code(), failure.number, failure.text.as_str());
                let run = FailedRun::new(self.ledger.now(), Some(set.label.as_str()), told);
                self.fail(run);
                self.context.output.warn(&failure.text);
                return Ok(row(Verdict::Left, Some(failure.text)));
            }
            read => read?,
        };
        Ok(match wrong {
            None => row(Verdict::Good, None),
            Some(why) => row(Verdict::Damaged, Some(why)),
        })
    }

    /// Why a backup cannot be restored, though its own stripes may be good.
    fn lost(&self, facts: &[SetFacts], index: usize) -> Option<String> {
        let links = match chain(facts, index) {
            Ok(links) => links,
            Err(broken) => return Some(format!("it cannot be restored: {broken}")),
        };
        let is_bad = |link: &&usize| {
            facts[**link]
                .id
                .is_some_and(|id| self.bad.contains_key(&id))
        };
        let bad = links.iter().skip(1).find(is_bad)?;
        Some(format!("it needs {}, which is damaged", facts[*bad].label))
    }

    /// Notes a backup that lacks stripes or has damaged headers: why it is no good.
    fn not_whole(&mut self, label: &str, state: &BackupState) -> String {
        let why = state.text();
        self.context.output.warn(&format!("{label}: {why}"));
        let told = (Exit::No.code(), DAMAGED, why.as_str());
        let run = FailedRun::new(self.ledger.now(), Some(label), told);
        self.fail(run);
        why
    }

    /// Reads a backup; what is wrong with it. Of the sets that it needs, those with a known result are not read.
    fn read(&mut self, lease: &BackupLease, facts: &SetFacts) -> Result<Option<String>, Failure> {
        let is_known = |identity: &&SetIdentity| self.known.get(&identity.set) == Some(*identity);
        let known = lease.identities.iter().filter(is_known).map(|i| i.set);
        let lost = lease.identities.iter().skip(1);
        let mut lost = lost.filter(|identity| self.bad.contains_key(&identity.set));
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
            known: known.collect(),
            tuning: reading_tuning(&self.options.moving, defaults),
            limits: limits(&self.options.moving, defaults),
        };
        let id = facts.id.unwrap_or_default();
        let watch = ProgressView::new(self.context.output, self.context.clock.clone());
        let mut run_context = self.context.run_context();
        run_context.keyring = keyring(self.context, &self.options.keys)?;
        let result = run_pipeline(&run_context, &Request::Verify(request), &watch);
        watch.end();
        let report = match result {
            Ok(Report::Verify(report)) => report,
            Ok(_) => return Err(super::super::backup::wrong_report()),
            Err(error) if is_answer(&error) => {
                let failure = Failure::from(error);
                let own = lease.identities.first().cloned().into_iter().collect();
                self.judged(own, id, Some(&failure.text));
                return Ok(Some(failure.text));
            }
            Err(error) => return Err(error.into()),
        };
        let read = report.sets.iter().map(|set| set.plain_bytes);
        self.database.plain_bytes += read.sum::<u64>();
        Ok(self.judge(lease, &report, id, lost.map(|label| label.to_string())))
    }

    /// Records the report on a backup; what is wrong with it.
    fn judge(
        &mut self,
        lease: &BackupLease,
        report: &VerifyReport,
        id: Uuid,
        lost: Option<String>,
    ) -> Option<String> {
        for finding in &report.findings {
            let (label, text, hint) = (&lease.label, &finding.text, finding.hint);
            let told = format!("{label}: {text}\nhint: {hint}");
            self.context.output.warn(&told);
        }
        let results = recording::verified(report, &lease.identities, &self.ledger.now());
        for result in &results {
            if let Some(identity) = lease.identities.iter().find(|i| i.set == result.set)
                && result.set != id
            {
                let wrong = (!result.good).then_some(result.text.as_str());
                self.judged(vec![identity.clone()], result.set, wrong);
            }
        }
        let own = results.iter().find(|result| result.set == id);
        let wrong = match (own, lost) {
            (Some(own), _) if !own.good => Some(own.text.clone()),
            (_, Some(label)) => Some(format!("it needs {label}, which is damaged")),
            (Some(_), None) => None,
            (None, None) => Some("its chain could not be checked".to_owned()),
        };
        let own = lease.identities.first().cloned().into_iter().collect();
        self.judged(own, id, wrong.as_deref());
        wrong
    }

    fn judged(&mut self, identities: Vec<SetIdentity>, id: Uuid, wrong: Option<&str>) {
        let by = self.ledger.now();
        for identity in identities {
            let result = SetResult::new(&identity, &by, wrong);
            match wrong {
                None => {
                    self.known.insert(id, identity);
                }
                Some(why) => {
                    self.bad.insert(id, why.to_owned());
                    let label = identity.label.as_str();
                    let run =
                        FailedRun::new(by.clone(), Some(label), (Exit::No.code(), DAMAGED, why));
                    self.fail(run);
                }
            }
            self.ledger.add(|news| news.sets.push(result));
        }
    }
}

/// The backups, each after those that it needs, else in the order of the listing.
fn in_order(facts: &[SetFacts]) -> Vec<usize> {
    let depth = |i: &usize| chain(facts, *i).map_or(usize::MAX, |links| links.len());
    let mut order: Vec<usize> = (0..facts.len()).collect();
    order.sort_by_key(depth);
    order
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
        if let Some(why) = row.why.as_ref().filter(|_| row.verdict == Verdict::Damaged) {
            text += &format!("  {}: {}\n", row.label, plain(why));
        }
    }
    text += &format!(
        "backups           {} verified, {} known to be good, {} DAMAGED, {} left\n",
        database.verified, database.known, database.damaged, database.left
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
        numbers::KEY_MISSING | numbers::NOT_ENCRYPTED
    )
}
