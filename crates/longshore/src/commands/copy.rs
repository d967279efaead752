//! `copy`: brings backups and WAL from one target to another.
//!
//! Invariants
//! - The same plan is shown by --dry-run and carried out without it.
//! - A backup that cannot be copied does not stop the others, except those that need it.
//! - WAL is copied while the first copy is held, so that no expire at the other target takes it away again.
//!
//! Leaves to others: which backups are copied, places and leases (`repository`), and bytes (`media`).

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use longshore_catalog::RunTask;
use longshore_io::Throttle;
use longshore_media::Error as MediaError;
use longshore_repository::chain::{SetFacts, chain};
use longshore_repository::copying::{BegunCopy, CopyPlan, CopyStep, needs_archive, plan};
use longshore_repository::retention::Policy;
use longshore_repository::status::{FailedRun, GoodRun, Task};
use longshore_repository::{BackupState, Error, Label, Listing, Shelf, Target};
use longshore_wal::WalCopied;
use serde::Serialize;

use super::ends::RunLines;
use super::recording::{self, Recorder};
use super::runs::PendingRun;
use super::shelves::{self, Failures};
use super::{detached, devices, unmounted, wal};
use crate::context::Context;
use crate::options::Copy;
use crate::progress::ProgressView;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::interrupt;
use longshore_terminal::journal::RunFields;
use longshore_terminal::numbers;
use longshore_terminal::output::{Table, bytes};
use longshore_terminal::text::plain;

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    dry_run: bool,
    databases: Vec<CopiedDatabase>,
    failures: Failures,
}

/// One database, copied to one target.
#[derive(Serialize)]
struct CopiedDatabase {
    database: String,
    from: String,
    to: String,
    copied: u64,
    copied_bytes: u64,
    there: u64,
    wal_files: u64,
    /// As the first archive stores the segments.
    wal_bytes: u64,
    /// Key objects that the second target lacked.
    key_object_count: u64,
    /// The most memory that the copy of one of these backups may take; 0 where none was copied.
    memory_bytes: u64,
    /// Bytes of files that an interrupted copy had left.
    kept_bytes: u64,
    elapsed_s: f64,
    backups: Vec<CopyRow>,
}

#[derive(Serialize)]
struct CopyRow {
    label: String,
    #[serde(rename = "type")]
    kind: &'static str,
    bytes: u64,
    fate: CopyFate,
    why: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum CopyFate {
    Copied,
    WouldBeCopied,
    There,
    NotWhole,
    Unkept,
    BeingCopied,
    Blocked,
    Failed,
    Left,
}

pub fn run(options: &Copy, context: &Context) -> Result<Exit, Failure> {
    let routes = routes(options, context)?;
    let began_us = recording::now_us(context);
    let cancel = interrupt::cancel_flag();
    let rate = options.max_rate.and_then(NonZeroU64::new);
    let throttle = rate.map(|rate| Throttle::new(context.clock.clone(), Some(rate), BURST_BYTES));
    let mut failures = Failures::default();
    let mut databases = Vec::new();
    let mut failed = BTreeSet::new();
    for (from, to) in &routes {
        let before = failures.count();
        let mut row = PendingRun::begin(context, RunTask::Copy).at(&from.database, &to.target.name);
        let run = RouteRun {
            options,
            context,
            from,
            to,
            cancel: cancel.clone(),
            throttle: throttle.as_ref(),
        };
        let lines = run.lines();
        let copied = run.copy(&mut failures);
        let copied = copied.map_err(|failure| failures.note(to, failure, context));
        let failure = failures.last().filter(|_| failures.count() > before);
        let is_interrupted = cancel.load(Ordering::Relaxed);
        if let Ok(database) = &copied {
            let exit = match is_interrupted {
                true => Exit::Interrupted,
                false => failure.map_or_else(|| lines.done(), |failure| failure.exit),
            };
            lines.end(exit, &database.summary(options.dry_run));
        }
        if !options.dry_run {
            remember(&mut row, copied.as_ref().ok(), (failure, is_interrupted));
        }
        databases.extend(copied);
        if cancel.load(Ordering::Relaxed) {
            break;
        }
        if let Some(failure) = failures.last().filter(|_| failures.count() > before) {
            failed.insert(place_of(from));
            record_failed(from, to, failure, (options, context));
        }
    }
    if !cancel.load(Ordering::Relaxed) {
        let mended = routes.iter().map(|(from, _)| from);
        let mended = mended.filter(|from| !failed.contains(&place_of(from)));
        mended.for_each(|from| record_mended(from, began_us, (options, context)));
    }
    let exit = match (cancel.load(Ordering::Relaxed), failures.exit()) {
        (true, _) => Exit::Interrupted,
        (false, Some(exit)) => exit,
        (false, None) => context.output.done(),
    };
    context.output.json(
        exit,
        Answer {
            action: "copy",
            dry_run: options.dry_run,
            databases,
            failures,
        },
    );
    Ok(exit)
}

/// Records the run of one route in the history.
fn remember(
    run: &mut PendingRun,
    copied: Option<&CopiedDatabase>,
    (failure, is_interrupted): (Option<&Failure>, bool),
) {
    run.record.bytes = copied.map(|copied| copied.copied_bytes);
    match (failure, copied) {
        (Some(failure), _) if !is_interrupted => run.failed(failure),
        (_, None) => run.ended(Exit::Interrupted, None),
        (_, Some(copied)) => {
            let exit = match (is_interrupted, copied.is_doubtful()) {
                (true, _) => Exit::Interrupted,
                (false, true) => Exit::Warnings,
                (false, false) => Exit::Done,
            };
            let (count, there, wal) = (copied.copied, copied.there, copied.wal_files);
            let text =
                format!("{count} backups copied, {there} were there; {wal} WAL files copied");
            run.ended(exit, Some(&text));
        }
    }
}

fn place_of(from: &Shelf) -> (String, String) {
    (from.target.name.clone(), from.database.clone())
}

/// Records a copy that failed where the backups are, for the other target may be what failed.
fn record_failed(
    from: &Shelf,
    to: &Shelf,
    failure: &Failure,
    (options, context): (&Copy, &Context),
) {
    if let Some(recorder) = Recorder::new(context, from, Task::Copy).filter(|_| !options.dry_run) {
        let text = format!("to target {}: {}", to.target.name, failure.text);
        let told = Failure::new(failure.exit, failure.number, text, "");
        let label = options.labels.first().map(Label::as_str);
        let run = FailedRun {
            to: Some(to.target.name.clone()),
            // Without a label it may have failed at any.
            more: options.labels.len() != 1,
            ..recorder.failed_run(&told, label)
        };
        recorder.failed_as(&told, run);
    }
}

/// Records that nothing failed of what was asked for: one backup, or all of them, to one target or to all.
fn record_mended(from: &Shelf, began_us: i64, (options, context): (&Copy, &Context)) {
    let recorder = Recorder::new(context, from, Task::Copy).filter(|_| !options.dry_run);
    if let Some(recorder) = recorder.map(|recorder| recorder.since(began_us)) {
        let labels = options.labels.iter().cloned();
        recorder.mended_by(GoodRun {
            to: options.to.clone().map(|to| [to].into()),
            backups: (!options.labels.is_empty()).then(|| labels.collect()),
            ..recorder.good_run(None)
        });
    }
}

/// Bytes that may pass at once under a limit.
const BURST_BYTES: u64 = 1 << 20;

/// Where each database's backups are copied from and to.
fn routes(options: &Copy, context: &Context) -> Result<Vec<(Shelf, Shelf)>, Failure> {
    let config = &context.config;
    let mut routes = Vec::new();
    let names: Vec<String> = match (&options.databases[..], &options.from) {
        ([], Some(from)) if options.to.is_some() => {
            devices::target(context, from)?.databases(&*context.storage)?
        }
        ([], _) => {
            let has_target =
                |name: &str| options.from.is_some() || config.target_of(name).is_some();
            let has_copies = |name: &&String| {
                has_target(name) && (options.to.is_some() || !config.copies_of(name).is_empty())
            };
            let names = config.database.keys().filter(has_copies);
            names.cloned().collect()
        }
        (names, _) => names.to_vec(),
    };
    for name in &names {
        let from = devices::target_of(context, options.from.as_deref(), name)?;
        let targets: Vec<&String> = match &options.to {
            Some(to) => vec![to],
            // From a copy the others are brought up to date.
            None => config
                .copies_of(name)
                .iter()
                .filter(|to| **to != from.name)
                .collect(),
        };
        if targets.is_empty() {
            return Err(nowhere(name));
        }
        for to in targets {
            let to = devices::target(context, to)?;
            shelves::refuse_same(&from, &to, name, context)?;
            let shelf = |target: &Target| devices::shelf(context, target, name);
            let (from, to) = (shelf(&from)?, shelf(&to)?);
            let to = to.heeding(&from);
            routes.push((from, to));
        }
    }
    match routes.is_empty() && options.databases.is_empty() {
        true => Err(Failure::usage(
            "no configured database has copies",
            "name targets in `copies` of [database.NAME] or [defaults], or give a database and --to; `longshore config check` \
             shows the configuration",
        )
        .numbered(numbers::NOT_CONFIGURED)),
        false => Ok(routes),
    }
}

fn nowhere(database: &str) -> Failure {
    Failure::usage(
        format!("no target is named for copies of {database}"),
        "give --to TARGET, or name targets in `copies` of [database.NAME]",
    )
    .numbered(numbers::NOT_CONFIGURED)
}

/// One database on its way to one target.
struct RouteRun<'a> {
    options: &'a Copy,
    context: &'a Context,
    from: &'a Shelf,
    to: &'a Shelf,
    cancel: Arc<AtomicBool>,
    throttle: Option<&'a Throttle>,
}

/// Counts while stripes are copied.
struct Counted {
    moved: AtomicU64,
    /// Of what moved, the bytes that were there.
    kept: AtomicU64,
    /// The largest bound of memory.
    memory: AtomicU64,
    total_bytes: u64,
    view: ProgressView,
}

/// The backups that one route takes, and how far they have come.
struct Load<'a> {
    from: &'a Listing,
    plan: &'a CopyPlan,
    facts: Vec<SetFacts>,
    /// Those to copy.
    chosen: Vec<usize>,
    /// Those of them that did not come, for whatever reason.
    failed: BTreeSet<usize>,
    /// `None`: not tried yet. Backups without their WAL are no copies.
    wal_came: Option<bool>,
    failures: &'a mut Failures,
    database: &'a mut CopiedDatabase,
}

impl Load<'_> {
    /// Names the first thing that a backup needs and that did not come.
    fn missing_for(&self, index: usize) -> Option<String> {
        let needs = chain(&self.facts, index).unwrap_or_default();
        if let Some(lost) = needs.iter().find(|need| self.failed.contains(need)) {
            let lost = &self.facts[*lost].label;
            return Some(format!("it needs {lost}, which was not copied"));
        }
        let lacks_wal = self.wal_came == Some(false) && needs_archive(&self.from.sets[index]);
        lacks_wal.then(|| "the WAL that it needs could not be copied".to_owned())
    }
}

/// The end of one backup that was to be copied.
enum Outcome {
    Copied,
    /// Another process has it in hand, or had.
    Taken,
}

impl RouteRun<'_> {
    fn copy(&self, failures: &mut Failures) -> Result<CopiedDatabase, Failure> {
        let began = self.context.clock.now();
        let from = self.from.list()?;
        self.refuse_unknown(&from)?;
        self.to.check_mounted()?;
        unmounted::refuse(self.to, RunTask::Copy, self.context)?;
        let to = self.to.list()?;
        if let Some(doubt) = self.from.told_apart(&from, (self.to, &to))? {
            shelves::refuse_doubt(&doubt, (self.from, self.to))?;
        }
        let now_us = self.context.clock.wall_ns() / 1000;
        let mut plan = plan(&from, &to, &self.options.labels, &self.policy(), now_us);
        self.block_shared(&from, &to, &mut plan);
        let mut database = CopiedDatabase {
            database: self.from.database.clone(),
            from: self.from.target.name.clone(),
            to: self.to.target.name.clone(),
            copied: 0,
            copied_bytes: 0,
            there: 0,
            wal_files: 0,
            wal_bytes: 0,
            key_object_count: 0,
            memory_bytes: 0,
            kept_bytes: 0,
            elapsed_s: 0.0,
            backups: Vec::new(),
        };
        let facts = from.facts();
        let rows: Vec<Option<CopyRow>> = (0..plan.steps.len())
            .map(|i| CopyRow::of((&from, &facts), i, &plan.steps[i]))
            .collect();
        let rows = match self.options.dry_run {
            true => {
                let todo = match self.options.no_wal {
                    true => None,
                    false => self.from.plan_wal_copy(self.to, &plan)?,
                };
                database.wal_files = todo.as_ref().map_or(0, |todo| todo.names.len() as u64);
                database.wal_bytes = todo.map_or(0, |todo| todo.stored_bytes);
                rows
            }
            false => {
                let rows = self.carry_out((&from, &plan), rows, failures, &mut database);
                self.bring_findings(&from, &rows);
                rows
            }
        };
        database.backups = rows.into_iter().flatten().collect();
        database.sum();
        database.elapsed_s = (self.context.clock.now() - began).as_secs_f64();
        self.tell(&database, &from);
        self.tell_branches(&to);
        Ok(database)
    }

    /// Brings what drills found in the content of backups that are at both targets now.
    fn bring_findings(&self, from: &Listing, rows: &[Option<CopyRow>]) {
        let is_there = |row: &Option<CopyRow>| {
            let fate = row.as_ref().map(|row| row.fate);
            matches!(fate, Some(CopyFate::Copied | CopyFate::There))
        };
        let sets = (0..rows.len()).filter(|i| is_there(&rows[*i]));
        let sets = sets.filter_map(|i| Some(from.sets[i].complete()?.header.set));
        if let Err(error) = self.to.record_heeded(&sets.collect::<Vec<_>>()) {
            let text = format!("what drills found is not recorded there: {error}");
            self.context.output.note(&text);
        }
    }

    fn lines(&self) -> RunLines {
        let (database, to) = (&self.to.database, &self.to.target.name);
        let what = format!(
            "copy of {} from target {} to target {}",
            plain(database),
            plain(&self.from.target.name),
            plain(to)
        );
        let run = RunFields {
            task: "copy",
            database: Some(database.clone()),
            target: Some(to.clone()),
            ..RunFields::default()
        };
        RunLines::begin(self.context.output, what, run)
    }

    fn policy(&self) -> Policy {
        let target = Some(self.to.target.name.as_str());
        let found = self.context.config.policy_of(&self.to.database, target);
        found.unwrap_or_default()
    }

    /// A label that is not there would otherwise be a copy of nothing, with success; so would one of a backup that cannot be
    /// read.
    fn refuse_unknown(&self, from: &Listing) -> Result<(), Failure> {
        for label in &self.options.labels {
            match from.sets.iter().find(|set| set.label == *label) {
                None => {
                    return Err(Error::NoSuchLabel {
                        target: self.from.target.name.clone(),
                        database: self.from.database.clone(),
                        label: label.to_string(),
                    }
                    .into());
                }
                // The lease says why it is refused.
                Some(set) if set.complete().is_none() => {
                    self.from.lease(Some(label.as_str()))?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// A copy that is the same files is none.
    fn block_shared(&self, from: &Listing, to: &Listing, plan: &mut CopyPlan) {
        for (i, step) in plan.steps.iter_mut().enumerate() {
            let CopyStep::There(label) = step else {
                continue;
            };
            let theirs = to.sets.iter().find(|set| set.label == *label);
            let shared = theirs
                .is_some_and(|set| self.from.shares_files(&from.sets[i].devices, &set.devices));
            if shared {
                *step = CopyStep::Blocked(
                    "its stripes there are the same files, by hard links or a second mount, and protect nothing"
                        .to_owned(),
                );
            }
        }
    }

    /// Copies what was chosen, in the order in which backups need each other. Returns the rows with their ends.
    fn carry_out(
        &self,
        (from, plan): (&Listing, &CopyPlan),
        mut rows: Vec<Option<CopyRow>>,
        failures: &mut Failures,
        database: &mut CopiedDatabase,
    ) -> Vec<Option<CopyRow>> {
        let mut load = Load {
            from,
            plan,
            facts: from.facts(),
            chosen: plan.copied(),
            failed: BTreeSet::new(),
            wal_came: self.options.no_wal.then_some(true),
            failures,
            database,
        };
        let counted = Counted {
            moved: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            memory: AtomicU64::new(0),
            total_bytes: load.chosen.iter().map(|i| from.sets[*i].bytes).sum(),
            view: ProgressView::new(self.context.output, self.context.clock.clone()),
        };
        for i in in_order(&load.facts, &load.chosen) {
            if let Some(row) = &mut rows[i] {
                let (fate, why) = self.carry_one(i, &mut load, &counted);
                row.end(fate, why);
            }
        }
        self.bring_objects(&mut load);
        counted.view.end();
        load.database.memory_bytes = counted.memory.load(Ordering::Relaxed);
        load.database.kept_bytes = counted.kept.load(Ordering::Relaxed);
        self.bring_later_wal(&mut load);
        rows
    }

    /// Copies one backup, unless it would be no backup there; returns its end and the reason.
    fn carry_one(
        &self,
        index: usize,
        load: &mut Load<'_>,
        counted: &Counted,
    ) -> (CopyFate, Option<String>) {
        let left = || (CopyFate::Left, Some("the run was interrupted".to_owned()));
        if self.is_cancelled() {
            return left();
        }
        if let Some(why) = load.missing_for(index) {
            load.failed.insert(index);
            return (CopyFate::Blocked, Some(why));
        }
        let what = (load.from, index, load.plan);
        match self.copy_one(what, counted, |begun| self.bring_wal_once(begun, load)) {
            Ok(Outcome::Copied) => (CopyFate::Copied, None),
            Ok(Outcome::Taken) => (CopyFate::BeingCopied, None),
            Err(_) if self.is_cancelled() => left(),
            Err(failure) => {
                let why = failure.text.clone();
                load.failed.insert(index);
                load.failures.note(self.to, failure, self.context);
                (CopyFate::Failed, Some(why))
            }
        }
    }

    /// Copies the WAL while the first copy is held, and never again in this run, whether that succeeds or not.
    fn bring_wal_once(&self, begun: &BegunCopy, load: &mut Load<'_>) -> Result<(), Failure> {
        if load.wal_came.is_some() {
            return Ok(());
        }
        load.wal_came = Some(false);
        let copied = load.chosen.iter().map(|i| load.facts[*i].clone());
        let copied: Vec<_> = copied.collect();
        let done = self.copy_wal(load.plan, Some((begun, &copied)))?;
        load.wal_came = Some(true);
        self.count_wal(done, load.failures, load.database);
        Ok(())
    }

    /// Copies the WAL if no copy was begun: backups may be there already that go on with newer WAL.
    fn bring_later_wal(&self, load: &mut Load<'_>) {
        if load.wal_came.is_some() || self.is_cancelled() {
            return;
        }
        match self.copy_wal(load.plan, None) {
            Ok(done) => self.count_wal(done, load.failures, load.database),
            Err(failure) => load.failures.note(self.to, failure, self.context),
        }
    }

    /// Brings key objects, also those that were made after their backups were copied.
    fn bring_objects(&self, load: &mut Load<'_>) {
        let is_there = |i: &usize| {
            let step = &load.plan.steps[*i];
            matches!(step, CopyStep::There(_) | CopyStep::Copy { .. })
        };
        let there = (0..load.plan.steps.len()).filter(is_there);
        let there: Vec<_> = there.map(|i| &load.from.sets[i]).collect();
        match detached::copied(&there, &self.to.target.name, self.context) {
            Ok(brought) => load.database.key_object_count += brought,
            Err(failure) => load.failures.note(self.to, failure, self.context),
        }
        let has = |i: &usize| {
            let entry = &load.from.sets[*i];
            let is_detached = entry.complete().is_some_and(|c| c.header.keys_detached);
            is_there(i) && entry.object_count() > 0 && !is_detached
        };
        let with: Vec<usize> = (0..load.plan.steps.len()).filter(has).collect();
        if with.is_empty() || self.is_cancelled() {
            return;
        }
        let there = match self.to.list() {
            Ok(there) => there,
            Err(error) => return load.failures.note(self.to, error.into(), self.context),
        };
        for i in with {
            if self.is_cancelled() {
                return;
            }
            match self.from.copy_objects((load.from, i), (self.to, &there)) {
                Ok((copied, left)) => {
                    load.database.key_object_count += copied;
                    for why in left {
                        let label = &load.from.sets[i].label;
                        let text = format!("{label}: a key object is not copied: {}", plain(&why));
                        self.context.output.warn(&text);
                    }
                }
                Err(error) => load.failures.note(self.to, error.into(), self.context),
            }
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Copies one backup. `first` runs when the copy is a backup that is being written.
    fn copy_one(
        &self,
        (from, index, plan): (&Listing, usize, &CopyPlan),
        counted: &Counted,
        first: impl FnOnce(&BegunCopy) -> Result<(), Failure>,
    ) -> Result<Outcome, Failure> {
        let again = plan.steps[index] == CopyStep::Copy { again: true };
        let begun = match self.from.begin_copy((from, index), self.to, again) {
            Err(Error::LabelTaken { .. }) if self.is_in_hand(from, index, again)? => {
                return Ok(Outcome::Taken);
            }
            begun => begun?,
        };
        let label = &from.sets[index].label;
        devices::remark(&begun.source, self.context);
        first(&begun)?;
        let moved = |n: u64| {
            if let Some(throttle) = self.throttle {
                throttle.take(n);
            }
            let moved = counted.moved.fetch_add(n, Ordering::Relaxed) + n;
            counted.view.copied(moved, counted.total_bytes);
            match self.is_cancelled() {
                true => Err(MediaError::Cancelled {
                    device: label.to_string(),
                }),
                false => Ok(()),
            }
        };
        let planned = |bytes: u64| self.tell_memory((label, bytes), counted);
        let copied = self.from.copy_stripes(&begun, &planned, &moved)?;
        if copied.kept_bytes > 0 {
            counted.kept.fetch_add(copied.kept_bytes, Ordering::Relaxed);
            let text = format!(
                "{label}: {} were there, which an interrupted copy had left",
                bytes(copied.kept_bytes)
            );
            self.context.output.note(&text);
        }
        let database = &self.from.database;
        for fault in &copied.faults {
            self.context.output.warn(&format!(
                "{label}: {fault}; the copy is whole, and `longshore repair --database {database} --label {label}` mends this one",
            ));
        }
        Ok(Outcome::Copied)
    }

    /// Says what memory the copy of a backup takes at most.
    fn tell_memory(&self, (label, memory): (&Label, u64), counted: &Counted) {
        counted.memory.fetch_max(memory, Ordering::Relaxed);
        if self.context.output.verbose {
            let mb = memory.div_ceil(1 << 20);
            self.context.output.remark(&format!(
                "{:<28}{label}\n{:<28}{mb} MB\n",
                "Copy of:", "Memory bound:"
            ));
        }
    }

    /// Whether another process copies this very backup, or has done so since the plan was made.
    fn is_in_hand(&self, from: &Listing, index: usize, again: bool) -> Result<bool, Failure> {
        let label = &from.sets[index].label;
        let ours = from.sets[index].complete();
        let now = self.to.list()?;
        let there = now.sets.iter().find(|set| set.label == *label);
        Ok(match there.map(|set| &set.state) {
            Some(BackupState::Writing { .. }) => true,
            Some(BackupState::Complete(theirs)) => {
                ours.is_some_and(|ours| ours.header == theirs.header)
            }
            // Nothing was there for the plan, so another process has just made it and takes its lease next.
            Some(BackupState::Abandoned) => !again,
            _ => false,
        })
    }

    fn copy_wal(
        &self,
        plan: &CopyPlan,
        first: Option<(&BegunCopy, &[SetFacts])>,
    ) -> Result<WalCopied, Failure> {
        let form = wal::form((None, None), Some(&self.to.database), self.context);
        let goes_on = || !self.is_cancelled();
        Ok(self.from.copy_wal(self.to, plan, first, &form, &goes_on)?)
    }

    /// Files that the first archive lost are failures of this run, though all others were copied.
    fn count_wal(&self, done: WalCopied, failures: &mut Failures, database: &mut CopiedDatabase) {
        database.wal_files += done.files;
        database.wal_bytes += done.stored_bytes;
        for error in done.unreadable {
            failures.note(self.to, error.into(), self.context);
        }
    }

    /// Says so where the second target holds backups of several branches: a restore from there will ask, or follow one.
    fn tell_branches(&self, before: &Listing) {
        let Ok(now) = self.to.list() else {
            return;
        };
        let (texts, _) = shelves::mixed(&now);
        if !texts.is_empty() && shelves::mixed(before).0 != texts {
            let text = format!("target {}: {}", self.to.target.name, texts.join(" "));
            self.context.output.warn(&text);
        }
    }

    fn tell(&self, database: &CopiedDatabase, from: &Listing) {
        let mut text = format!(
            "{} from target {} to target {}\n",
            plain(&database.database),
            plain(&database.from),
            plain(&database.to)
        );
        let mut table = Table::new(&["backup", "type", "bytes", "result"]);
        let shown = |row: &&CopyRow| row.fate != CopyFate::There;
        let rows: Vec<&CopyRow> = database.backups.iter().filter(shown).collect();
        for row in &rows {
            let result = match &row.why {
                Some(why) => format!("{}: {}", row.fate.word(), plain(why)),
                None => row.fate.word().to_owned(),
            };
            table.row(vec![
                row.label.clone(),
                row.kind.to_owned(),
                bytes(row.bytes),
                result,
            ]);
        }
        if !rows.is_empty() {
            text += &table.to_string();
        }
        text += &database.summary(self.options.dry_run);
        self.context.output.say(&(text + "\n"));
        if from.sets.is_empty() {
            self.context.output.warn(&format!(
                "target {} holds no backup of {}",
                database.from, database.database
            ));
        }
        self.tell_condemned(database, from);
        for row in database.backups.iter().filter(|row| row.is_doubtful()) {
            let why = row.why.as_deref().unwrap_or_default();
            self.context
                .output
                .warn(&format!("{} is not copied: {why}", row.label));
        }
    }
}

impl RouteRun<'_> {
    /// Warns of each backup that is copied although its content was found not to be good.
    fn tell_condemned(&self, database: &CopiedDatabase, from: &Listing) {
        let is_copied =
            |row: &&CopyRow| matches!(row.fate, CopyFate::Copied | CopyFate::WouldBeCopied);
        for row in database.backups.iter().filter(is_copied) {
            let set = from.sets.iter().find(|set| set.label.as_str() == row.label);
            let what = set.and_then(|set| set.found_bad.as_ref().map(|what| (set, what)));
            if let Some((_, what)) = what.filter(|(set, _)| self.from.is_content_bad(set)) {
                self.context.output.warn(&format!(
                    "{} {what}, and so is its copy: no rule counts it there, either. Make a full backup (`longshore backup {}`)",
                    row.label, database.database
                ));
            }
        }
    }
}

/// Each after those it needs, otherwise by time.
fn in_order(facts: &[SetFacts], chosen: &[usize]) -> Vec<usize> {
    let mut order = chosen.to_vec();
    let depth = |i: usize| chain(facts, i).map_or(usize::MAX, |links| links.len());
    let root = |i: usize| chain(facts, i).ok().and_then(|links| links.last().copied());
    order.sort_by_cached_key(|i| (root(*i).unwrap_or(*i), depth(*i), *i));
    order
}

impl CopiedDatabase {
    /// Whether a backup was not copied that is whole, or is not whole.
    fn is_doubtful(&self) -> bool {
        let mut rows = self.backups.iter();
        rows.any(CopyRow::is_doubtful)
    }

    /// The numbers, on one line.
    fn summary(&self, dry_run: bool) -> String {
        let verb = match dry_run {
            true => "would be copied",
            false => "copied",
        };
        let mut text = format!(
            "{} backups ({}) {verb}, {} were there",
            self.copied,
            bytes(self.copied_bytes),
            self.there
        );
        if self.wal_files > 0 {
            let size = bytes(self.wal_bytes);
            text += &format!("; {} WAL files ({size}) {verb}", self.wal_files);
        }
        if self.key_object_count > 0 {
            text += &format!("; {} key objects {verb}", self.key_object_count);
        }
        text
    }

    fn sum(&mut self) {
        let is = |row: &&CopyRow, fates: &[CopyFate]| fates.contains(&row.fate);
        let copied = [CopyFate::Copied, CopyFate::WouldBeCopied];
        let rows = self.backups.iter();
        let done: Vec<_> = rows.clone().filter(|row| is(row, &copied)).collect();
        self.copied = done.len() as u64;
        self.copied_bytes = done.iter().map(|row| row.bytes).sum();
        self.there = rows.filter(|row| is(row, &[CopyFate::There])).count() as u64;
    }
}

impl CopyRow {
    /// `None`: the backup was not asked for, or it is none yet.
    fn of(
        (from, facts): (&Listing, &[SetFacts]),
        index: usize,
        step: &CopyStep,
    ) -> Option<CopyRow> {
        let set = &from.sets[index];
        let (fate, why) = match step {
            CopyStep::NotAsked => return None,
            CopyStep::Copy { .. } => (CopyFate::WouldBeCopied, None),
            CopyStep::There(label) if *label != set.label => {
                (CopyFate::There, Some(format!("under the label {label}")))
            }
            CopyStep::There(_) => (CopyFate::There, None),
            CopyStep::NotWhole => match set.state {
                BackupState::Writing { .. } | BackupState::Abandoned | BackupState::Removing => {
                    return None;
                }
                _ => (CopyFate::NotWhole, Some(set.state.text())),
            },
            CopyStep::Unkept => (
                CopyFate::Unkept,
                Some("the next expire there would remove it".to_owned()),
            ),
            CopyStep::BeingCopied => (CopyFate::BeingCopied, None),
            CopyStep::Blocked(why) => (CopyFate::Blocked, Some(why.clone())),
        };
        Some(CopyRow {
            label: set.label.to_string(),
            kind: shelves::kind_of(facts, index),
            bytes: set.bytes,
            fate,
            why,
        })
    }

    /// Whether a person has to look why it is not copied.
    fn is_doubtful(&self) -> bool {
        matches!(self.fate, CopyFate::Blocked | CopyFate::NotWhole)
    }

    fn end(&mut self, fate: CopyFate, why: Option<String>) {
        self.fate = fate;
        self.why = why;
    }
}

impl CopyFate {
    fn word(self) -> &'static str {
        match self {
            CopyFate::Copied => "copied",
            CopyFate::WouldBeCopied => "would be copied",
            CopyFate::There => "there",
            CopyFate::NotWhole => "no whole backup",
            CopyFate::Unkept => "not needed there",
            CopyFate::BeingCopied => "another process is copying it",
            CopyFate::Blocked => "NOT COPIED",
            CopyFate::Failed => "FAILED",
            CopyFate::Left => "left",
        }
    }
}
