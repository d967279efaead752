//! `wal receive`: receives the WAL as a stream, until it is stopped.
//!
//! Invariants
//! - A server that is away is tried again every few seconds, and the log says so; an error that no retry can mend ends
//!   the command.
//! - Only WAL that is durable in the archive is reported to the server.
//! - Without a replication slot nothing is received: the server would not keep WAL for it.
//!
//! Leaves to others: the stream and the archive (`longshore-wal`).

use std::time::Duration;

use longshore_facts as facts;
use longshore_pg::{Lsn, Timeline, client};
use longshore_pipeline::SourceSpec;
use longshore_wal::{Event, Progress, ReceivePlan, receive};
use serde::Serialize;

use super::form::{sealed_form, signing_keyring};
use crate::commands::archive::ArchiveLocation;
use crate::commands::ends::RunLines;
use crate::commands::source;
use crate::context::Context;
use crate::options::WalReceive;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::interrupt;
use longshore_terminal::journal;
use longshore_terminal::numbers;
use longshore_terminal::output::{Output, bytes};

/// The interval between two attempts to reach a server that is away.
const RETRY: Duration = Duration::from_secs(5);
/// The longest time for which a receiver that has just ended holds the slot.
const SLOT_PATIENCE: Duration = Duration::from_secs(30);
/// The longest time in which a waiting program may miss the request to stop.
const NAP: Duration = Duration::from_millis(100);

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    timeline: u32,
    /// WAL before this LSN is durable here.
    flushed_lsn: String,
    segments: u64,
    /// The number of reconnections.
    reconnects: u64,
}

pub fn run(options: &WalReceive, context: &Context) -> Result<Exit, Failure> {
    let database = options.archive.database.as_deref();
    let target = options.archive.target.as_deref();
    let archive = options.archive.archive.as_deref();
    let archive = archive.map_or(String::new(), |path| path.display().to_string());
    let lines = RunLines::of(context, "wal_receive", (database, target), &archive);
    let server = server(options, context)?;
    let plan = plan(options, context)?;
    let place = ArchiveLocation::of(&options.archive, context)?;
    let archive = place.open(context)?;
    let sign = (options.sign.as_deref(), &options.keys);
    let archive = archive.with_keyring(&signing_keyring(context, sign, &plan.form)?);
    let stop = interrupt::cancel_flag();
    let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
    let output = context.output;
    let mut told = ReportedEvents::default();
    let mut reconnects = 0;
    let mut watch = |event: Event<'_>| told.tell(event, output);
    let held_until = context.clock.now() + SLOT_PATIENCE;
    let end = loop {
        let result = receive(
            &*context.storage,
            &*context.clock,
            &archive,
            &server,
            &plan,
            &stop,
            &mut watch,
        );
        match result {
            Ok(end) => break end,
            Err(error)
                if options.once
                    && error.slot_is_held()
                    && context.clock.now() < held_until
                    && !stopped() =>
            {
                context.clock.sleep(NAP);
            }
            Err(error) if error.may_pass() && !options.once && !stopped() => {
                output.warn(&format!("{error}; retrying in {} s", RETRY.as_secs()));
                reconnects += 1;
                let until = context.clock.now() + RETRY;
                while context.clock.now() < until && !stopped() {
                    context.clock.sleep(NAP);
                }
            }
            Err(error) => return Err(error.into()),
        }
    };
    let received = format!(
        "Received up to {} on timeline {}.",
        end.flushed, end.timeline
    );
    output.say(&format!("{received}\n"));
    is_at(end.flushed, end.timeline);
    lines.end(Exit::Done, &received);
    output.json(
        Exit::Done,
        Answer {
            action: "wal_receive",
            timeline: end.timeline.number(),
            flushed_lsn: end.flushed.to_string(),
            segments: told.segments_before + end.segments,
            reconnects,
        },
    );
    Ok(Exit::Done)
}

/// Names the LSN up to which the WAL is durable here.
fn is_at(flushed: Lsn, timeline: Timeline) {
    journal::learn(|run| {
        run.last_lsn = Some(flushed.to_string());
        run.timeline = Some(timeline.number());
    });
}

/// The slot that `--create-slot` makes for a configured database whose slot nobody names, as in the shipped unit.
pub const DEFAULT_SLOT: &str = "longshore";

fn plan(options: &WalReceive, context: &Context) -> Result<ReceivePlan, Failure> {
    let database = options.archive.database.as_deref();
    let wal = database.and_then(|name| context.config.wal_of(name));
    let slot = options
        .slot
        .as_ref()
        .or(wal.and_then(|wal| wal.slot.as_ref()))
        .map(String::as_str);
    let default = (options.create_slot && database.is_some()).then_some(DEFAULT_SLOT);
    let Some(slot) = slot.or(default) else {
        return Err(Failure::usage(
            "no replication slot is named: without a slot the server does not keep WAL that was not received yet",
            "give --slot, or `slot` in [database.NAME.wal]",
        ));
    };
    Ok(ReceivePlan {
        slot: slot.to_owned(),
        create_slot: options.create_slot,
        form: sealed_form(
            (options.algorithm, options.level),
            &options.archive,
            (&options.encrypt_to, &options.keys),
            context,
        )?,
        until: options.until,
        status_every: Duration::from_secs(options.status_interval.into()),
    })
}

/// The events that were already reported.
#[derive(Default)]
struct ReportedEvents {
    last: Option<Progress>,
    /// Segments of earlier connections.
    segments_before: u64,
    gap: bool,
}

impl ReportedEvents {
    fn tell(&mut self, event: Event<'_>, output: Output) {
        match event {
            Event::Started(at) => {
                self.segments_before += self.last.map_or(0, |p| p.segments);
                self.last = Some(at);
                let text = format!(
                    "longshore: receiving from {}, timeline {}\n",
                    at.flushed, at.timeline
                );
                is_at(at.flushed, at.timeline);
                output.remark(&text);
                output.journal(&text, None);
            }
            Event::Status(at) => {
                self.last = Some(at);
                let behind = bytes(at.server.0.saturating_sub(at.flushed.0));
                output.remark(&format!(
                    "longshore: timeline {}, durable up to {}, {behind} behind\n",
                    at.timeline, at.flushed
                ));
            }
            Event::Segment(_) => {}
            Event::History(timeline) => {
                output.remark(&format!(
                    "longshore: history of timeline {timeline} archived\n"
                ));
            }
            Event::Kept(error) => output.warn(&error.to_string()),
            Event::MayLack { before } => output.warn(&format!(
                "the archive is empty, and this version of PostgreSQL does not say from where the slot holds WAL: what it holds \
                 before {before} is not received; make the full backup after the first segment has arrived"
            )),
            // Once, not after every connection.
            Event::Gap { .. } if self.gap => {}
            Event::Gap { after, before } => {
                self.gap = true;
                output.warn(&format!(
                    "the archive has no WAL between {after} and {before}, and the receiver does not fetch it again: recovery \
                     cannot cross this gap; make a backup that begins later"
                ));
            }
        }
    }
}

fn server(options: &WalReceive, context: &Context) -> Result<client::Options, Failure> {
    let name = options.archive.database.as_deref();
    let configured = name.and_then(|name| context.config.database.get_key_value(name));
    let url = match (&options.server, configured) {
        (Some(url), _) => url,
        (None, Some((name, database))) => {
            return match source::configured(context, name, database)? {
                SourceSpec::Postgres(server) => Ok(*server),
                SourceSpec::Sqlite(_) | SourceSpec::Files(_) => Err(Failure::usage(
                    format!("[database.{name}] is not a PostgreSQL cluster"),
                    "only PostgreSQL has WAL to receive",
                )),
            };
        }
        (None, None) => {
            return Err(Failure::usage(
                "no server was named",
                "give its URL, or --database with a database of the configuration",
            ));
        }
    };
    client::Options::of_environment()
        .and_then(|variable| client::Options::parse(url, &variable, &facts::login_name))
        .map_err(|e| Failure::of(Exit::Usage, &e, numbers::REQUEST, e.hint()))
}
