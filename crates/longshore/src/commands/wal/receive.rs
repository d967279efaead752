//! `wal receive`: the log as a stream.

use std::time::Duration;

use longshore_io::facts;
use longshore_pg::client;
use longshore_pipeline::SourceSpec;
use longshore_repository::wal::{Event, Plan, Progress, ReceiveError, receive};
use serde::Serialize;

use super::{Context, Place, form};
use crate::commands::source;
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::options::WalReceive;
use crate::output::bytes;

/// Between two tries to reach a server that is away.
const RETRY: Duration = Duration::from_secs(5);
/// How long the program may not notice that it is to end, while it waits.
const NAP: Duration = Duration::from_millis(100);

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    timeline: u32,
    /// Everything before it is durable here.
    flushed_lsn: String,
    segments: u64,
    /// How often the server was reached again.
    reconnects: u64,
}

pub fn run(options: &WalReceive, context: &Context) -> Result<Exit, Failure> {
    let server = server(options, context)?;
    let database = options.archive.database.as_deref();
    let wal = database.and_then(|name| context.config.wal_of(name));
    let slot = options
        .slot
        .as_ref()
        .or(wal.and_then(|wal| wal.slot.as_ref()));
    let Some(slot) = slot else {
        return Err(Failure::usage(
            "no replication slot was named: without one the server does not keep what was not received yet",
            "give --slot, or `slot` in [database.NAME.wal]",
        ));
    };
    let plan = Plan {
        slot: slot.clone(),
        create_slot: options.create_slot,
        form: form((options.algorithm, options.level), database, context),
        until: options.until,
        status_every: Duration::from_secs(options.status_interval.into()),
    };
    let place = Place::of(&options.archive, context)?;
    let archive = place.open(context)?;
    let stop = interrupt::cancel_flag();
    let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
    let output = context.output;
    let mut told = Told::default();
    let mut reconnects = 0;
    let mut watch = |event: Event<'_>| match event {
        Event::Started(at) => {
            told.segments_before += told.last.map_or(0, |p| p.segments);
            told.last = Some(at);
            output.remark(&format!(
                "longshore: receiving from {}, timeline {}\n",
                at.flushed, at.timeline
            ));
        }
        Event::Status(at) => {
            told.last = Some(at);
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
        // Once, not after every connection.
        Event::Gap { .. } if told.gap => {}
        Event::Gap { after, before } => {
            told.gap = true;
            output.warn(&format!(
                "the archive has nothing between {after} and {before}, and this does not receive it again: no recovery \
                 gets across; make a backup that begins later"
            ));
        }
    };
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
            Err(error) if error.may_pass() && !options.once && !stopped() => {
                output.warn(&format!("{error}; trying again in {} s", RETRY.as_secs()));
                reconnects += 1;
                let until = context.clock.now() + RETRY;
                while context.clock.now() < until && !stopped() {
                    context.clock.sleep(NAP);
                }
            }
            Err(error) => return Err(error.into()),
        }
    };
    output.say(&format!(
        "Received up to {} on timeline {}.\n",
        end.flushed, end.timeline
    ));
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

/// What was told so far.
#[derive(Default)]
struct Told {
    last: Option<Progress>,
    /// Of connections before the present one.
    segments_before: u64,
    gap: bool,
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
                    format!("[database.{name}] is no PostgreSQL cluster"),
                    "only PostgreSQL has a log to receive",
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
        .and_then(|variable| client::Options::parse(url, &variable, &facts::user_name()))
        .map_err(|e| Failure::of(Exit::Usage, &e, None, e.hint()))
}

impl From<ReceiveError> for Failure {
    fn from(error: ReceiveError) -> Failure {
        let exit = match error {
            ReceiveError::Archive(error) => return error.into(),
            ReceiveError::Server(_) | ReceiveError::Stream { .. } => Exit::Source,
            ReceiveError::Taken { .. } => Exit::Media,
            ReceiveError::Elsewhere { .. } | ReceiveError::Behind { .. } => Exit::Conflict,
        };
        Failure::of(exit, &error, None, error.hint())
    }
}
