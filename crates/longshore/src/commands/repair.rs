//! `repair`: writes lost and damaged stripes of media with parity once more, and shows what became of each stripe.
//!
//! Invariants
//! - A dry run writes nothing, and reads what the repair reads.
//! - Exit code 0 means that the media are whole now.
//!
//! Leaves to others: finding and writing stripes (`longshore-media`), and where a target has them (`repository`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use longshore_media::{BackupDevice, DeviceSpec, Error as MediaError, Examined, StripeFault};
use longshore_pipeline::Error;
use longshore_repository::{BackupLease, Shelf};
use serde::Serialize;

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
    set: String,
    database: String,
    stripes: Vec<Stripe>,
    written_bytes: u64,
}

/// A stripe as it was found, and whether it was repaired.
#[derive(Serialize)]
pub struct Stripe {
    family: u16,
    parity: bool,
    device: String,
    /// As it was found.
    state: StripeState,
    what: Option<String>,
    repaired: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum StripeState {
    Whole,
    Damaged,
    Lost,
}

pub fn run(options: &Repair, context: &Context) -> Result<Exit, Failure> {
    let answer = repair(options, context)?;
    context.output.say(&text(&answer));
    let exit = context.output.done();
    context.output.json(exit, answer);
    Ok(exit)
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
        set: examined.header().set.to_string(),
        database: examined.header().database.clone(),
        stripes: stripes(media, &faults, !options.dry_run),
        written_bytes: 0,
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
    Ok(answer)
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

    fn make_room(&self) -> Result<(), Failure> {
        match &self.at_target {
            Some((shelf, lease)) => Ok(shelf.make_room(lease, &self.devices)?),
            None => Ok(()),
        }
    }
}

fn stripes(
    media: &longshore_media::MediaSet,
    faults: &[StripeFault],
    repairs: bool,
) -> Vec<Stripe> {
    let places = media.stripes().into_iter();
    let stripe = |place: longshore_media::StripePlace| {
        let fault = faults.iter().find(|fault| fault.family == place.family);
        Stripe {
            family: place.family,
            parity: place.is_parity,
            device: place.name,
            state: match fault {
                None => StripeState::Whole,
                Some(fault) if fault.is_lost => StripeState::Lost,
                Some(_) => StripeState::Damaged,
            },
            what: fault.map(|fault| fault.what.clone()),
            repaired: repairs && fault.is_some(),
        }
    };
    places.map(stripe).collect()
}

fn text(answer: &Answer) -> String {
    let mut table = Table::new(&["family", "kind", "device", "state", "what"]);
    for stripe in &answer.stripes {
        table.row(vec![
            stripe.family.to_string(),
            if stripe.parity { "parity" } else { "data" }.to_owned(),
            plain(&stripe.device),
            match (stripe.repaired, stripe.state) {
                (true, _) => "repaired",
                (false, StripeState::Whole) => "whole",
                (false, StripeState::Damaged) => "DAMAGED",
                (false, StripeState::Lost) => "LOST",
            }
            .to_owned(),
            stripe.what.as_deref().map_or("-".to_owned(), plain),
        ]);
    }
    let closing = match (answer.written_bytes, answer.dry_run) {
        (0, false) => "All stripes are whole.\n".to_owned(),
        (0, true) => String::new(),
        (written, _) => format!("{} were written; all stripes are whole.\n", bytes(written)),
    };
    table.to_string() + &closing
}
