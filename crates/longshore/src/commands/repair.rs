//! `repair`: writes lost and damaged stripes of media with parity once more, and shows what became of each stripe.
//!
//! Invariants
//! - A dry run writes nothing, and reads what the repair reads.
//! - Exit code 0 means that the media are whole now, and that each place has the key objects of its sets.
//!
//! Leaves to others: finding and writing stripes (`longshore-media`), and where a target has them (`repository`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use longshore_catalog::RunTask;
use longshore_media::{
    BackupDevice, DeviceSpec, Error as MediaError, Examined, MediaSet, StripeFault,
};
use longshore_pipeline::{Error, NeededWal};
use longshore_repository::{BackupLease, Shelf};
use serde::Serialize;
use uuid::Uuid;

use super::ends::{self, RunLines};
use super::runs::PendingRun;
use super::{devices, labelled};
use crate::context::Context;
use crate::options::Repair;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::interrupt;
use longshore_terminal::output::{Table, bytes};
use longshore_terminal::text::plain;

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    dry_run: bool,
    media_set: String,
    set: Uuid,
    database: String,
    #[serde(skip)]
    label: Option<String>,
    stripes: Vec<Stripe>,
    written_bytes: u64,
    /// Key objects that some place lacked.
    key_object_count: u64,
}

impl Answer {
    /// The state of the media now.
    fn summary(&self) -> String {
        let is_whole = |stripe: &&Stripe| stripe.state == StripeState::Whole;
        let objects = match self.key_object_count {
            0 => String::new(),
            count => format!(" {count} key objects were brought to places that lacked them."),
        };
        match (self.written_bytes, self.dry_run) {
            (0, false) => format!("All stripes are whole.{objects}"),
            (written, false) => {
                let written = bytes(written);
                format!("{written} were written; all stripes are whole.{objects}")
            }
            (_, true) => format!(
                "{} of {} stripes are whole; nothing was written (--dry-run)",
                self.stripes.iter().filter(is_whole).count(),
                self.stripes.len()
            ),
        }
    }
}

/// A stripe as it was found, and whether it was repaired.
#[derive(Serialize)]
pub struct Stripe {
    family: u16,
    is_parity: bool,
    device: String,
    /// As it was found.
    state: StripeState,
    what: Option<String>,
    was_repaired: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum StripeState {
    Whole,
    Damaged,
    Lost,
}

pub fn run(options: &Repair, context: &Context) -> Result<Exit, Failure> {
    let named = (options.database.as_deref(), options.target.as_deref());
    let lines = RunLines::of(context, "repair", named, &ends::stripes(&options.devices));
    let mut run = PendingRun::begin(context, RunTask::Repair);
    run.record.database.clone_from(&options.database);
    let target = options.database.as_deref().and_then(|database| {
        let usual = || context.config.target_of(database);
        options.target.as_deref().or_else(usual)
    });
    run.record.target = target.map(str::to_owned);
    run.record.label = options.label.clone().filter(|label| label != "latest");
    run.on(&options.devices);
    let repaired = repair(options, context);
    if let (Err(failure), false) = (&repaired, options.dry_run) {
        run.failed(failure);
    }
    let answer = repaired?;
    ends::is_of(&answer.database, &NeededWal::default());
    let exit = context.output.done();
    if !options.dry_run {
        remember(&mut run, &answer, exit);
    }
    context.output.say(&text(&answer));
    lines.end(exit, &answer.summary());
    context.output.json(exit, answer);
    Ok(exit)
}

/// Records the run in the history.
fn remember(run: &mut PendingRun, answer: &Answer, exit: Exit) {
    run.record.database.get_or_insert(answer.database.clone());
    run.record.label.clone_from(&answer.label);
    run.record.set = Some(answer.set);
    run.record.bytes = Some(answer.written_bytes);
    let repaired = answer.stripes.iter().filter(|stripe| stripe.was_repaired);
    let text = format!("{} stripes repaired", repaired.count());
    run.ended(exit, Some(&text));
}

/// Repairs media, and returns the stripes as they were found, also as a table.
pub fn mend(options: &Repair, context: &Context) -> Result<(Vec<Stripe>, String), Failure> {
    let answer = repair(options, context)?;
    let text = text(&answer);
    Ok((answer.stripes, text))
}

fn repair(options: &Repair, context: &Context) -> Result<Answer, Failure> {
    let cancel = interrupt::cancel_flag();
    let chosen = Chosen::of(options, context)?;
    let open = |spec: &DeviceSpec| spec.open_until(&context.storage, &cancel);
    let devices: Vec<Arc<dyn BackupDevice>> = chosen.devices.iter().map(open).collect();
    let moved = |_: u64| match cancel.load(Ordering::Relaxed) {
        false => Ok(()),
        true => Err(MediaError::Cancelled {
            device: devices[0].name(),
        }),
    };
    let examined = Examined::of(&devices, &moved).map_err(Error::from)?;
    let faults = examined.faults().to_vec();
    let media = examined.media();
    let waits = media.is_pending();
    let mut answer = Answer {
        action: "repair",
        dry_run: options.dry_run,
        media_set: media.header(0).media_set.to_string(),
        set: examined.header().set,
        database: examined.header().database.clone(),
        label: chosen.label(),
        stripes: stripes(media, &faults, !options.dry_run),
        written_bytes: 0,
        key_object_count: 0,
    };
    match options.dry_run {
        true => {
            for fault in &faults {
                context.output.warn(&fault.to_string());
            }
            if waits {
                context.output.warn("stripes that are whole wait for their names: a run was killed before it gave them");
            }
        }
        false if faults.is_empty() && !waits => {}
        false => {
            chosen.make_room()?;
            answer.written_bytes = examined.repair(&devices, &moved).map_err(Error::from)?;
        }
    }
    if !options.dry_run {
        answer.key_object_count = bring_objects(&devices, context);
    }
    Ok(answer)
}

/// Brings the key objects of each set to each place of its stripes, and returns how many some place lacked. What cannot be brought is
/// a warning: the stripes are whole.
fn bring_objects(devices: &[Arc<dyn BackupDevice>], context: &Context) -> u64 {
    let warn = |why: &dyn std::fmt::Display| {
        let text = format!(
            "a key object is not at each place: {}",
            plain(&why.to_string())
        );
        context.output.warn(&text);
    };
    let bring = || -> Result<u64, MediaError> {
        let media = MediaSet::open(devices)?;
        let mut brought = 0;
        for set in media.sets()?.iter().filter(|set| set.trailer.is_some()) {
            let (written, left) = media.take_objects(&media, set.header.position)?;
            brought += written;
            left.iter().for_each(|why| warn(why));
        }
        Ok(brought)
    };
    bring().unwrap_or_else(|error| {
        warn(&error);
        0
    })
}

/// All stripes of the backup, also the places of lost ones. Of a target's, the lease is held until the repair has ended.
struct Chosen {
    devices: Vec<DeviceSpec>,
    at_target: Option<(Shelf, BackupLease)>,
}

impl Chosen {
    fn of(options: &Repair, context: &Context) -> Result<Chosen, Failure> {
        let Some(database) = &options.database else {
            return Ok(Chosen {
                devices: options.devices.clone(),
                at_target: None,
            });
        };
        let target = devices::target_of(context, options.target.as_deref(), database)?;
        let shelf = devices::shelf(context, &target, database)?;
        let label = options.label.as_deref().filter(|l| *l != "latest");
        let lease = shelf.lease(label).map_err(labelled::of_branch)?;
        devices::remark(&lease, context);
        Ok(Chosen {
            devices: shelf.all_stripes(&lease)?,
            at_target: Some((shelf, lease)),
        })
    }

    fn label(&self) -> Option<String> {
        let (_, lease) = self.at_target.as_ref()?;
        Some(lease.label.to_string())
    }

    fn make_room(&self) -> Result<(), Failure> {
        match &self.at_target {
            Some((shelf, lease)) => Ok(shelf.make_room(lease, &self.devices)?),
            None => Ok(()),
        }
    }
}

fn stripes(media: &MediaSet, faults: &[StripeFault], repairs: bool) -> Vec<Stripe> {
    let places = media.stripes().into_iter();
    let stripe = |place: longshore_media::StripePlace| {
        let fault = faults.iter().find(|fault| fault.family == place.family);
        Stripe {
            family: place.family,
            is_parity: place.is_parity,
            device: place.name,
            state: match fault {
                None => StripeState::Whole,
                Some(fault) if fault.is_lost => StripeState::Lost,
                Some(_) => StripeState::Damaged,
            },
            what: fault.map(|fault| fault.what.clone()),
            was_repaired: repairs && fault.is_some(),
        }
    };
    places.map(stripe).collect()
}

fn text(answer: &Answer) -> String {
    let mut table = Table::new(&["family", "kind", "device", "state", "what"]);
    for stripe in &answer.stripes {
        table.row(vec![
            stripe.family.to_string(),
            if stripe.is_parity { "parity" } else { "data" }.to_owned(),
            plain(&stripe.device),
            match (stripe.was_repaired, stripe.state) {
                (true, _) => "repaired",
                (false, StripeState::Whole) => "whole",
                (false, StripeState::Damaged) => "DAMAGED",
                (false, StripeState::Lost) => "LOST",
            }
            .to_owned(),
            stripe.what.as_deref().map_or("-".to_owned(), plain),
        ]);
    }
    match answer.dry_run {
        true => table.to_string(),
        false => format!("{table}{}\n", answer.summary()),
    }
}
