//! Which devices are meant: named one by one, or by a target of the configuration.

use longshore_io::Clock;
use longshore_media::DeviceSpec;
use longshore_pipeline::Against;
use longshore_repository::{Berth, Kind, Loan, Shelf, Target};

use super::{Context, archive};
use crate::failure::Failure;
use crate::options::{Bases, Media};

/// Devices to read from. Held until the reading ends: no expire takes them away meanwhile.
pub struct Chosen {
    pub devices: Vec<DeviceSpec>,
    loan: Option<Loan>,
}

impl Chosen {
    /// Where the other sets are that a differential one needs: as named, or all of them at the target.
    pub fn bases(&self, named: &Bases) -> Vec<DeviceSpec> {
        match &self.loan {
            Some(loan) => bases(loan),
            None => named.bases.clone(),
        }
    }
}

/// The stripes of all that a backup needs beside its own.
pub fn bases(loan: &Loan) -> Vec<DeviceSpec> {
    let devices = loan.parents.iter().flat_map(|(_, devices)| devices);
    devices.cloned().collect()
}

/// What a backup to a target holds until it ends.
pub struct Held {
    pub berth: Berth,
    /// What it differs from.
    pub base: Option<Loan>,
}

/// A target by its name in the configuration.
pub fn target(context: &Context, name: &str) -> Result<Target, Failure> {
    let found = context.config.target.get(name).ok_or_else(|| {
        let known: Vec<_> = context.config.target.keys().map(String::as_str).collect();
        Failure::usage(
            format!("there is no [target.{name}] in the configuration"),
            match known.as_slice() {
                [] => "no configuration names a target; use --config or --to".to_owned(),
                _ => format!("known targets are: {}", known.join(", ")),
            },
        )
    })?;
    Ok(Target {
        name: name.to_owned(),
        directories: found.directories.clone(),
    })
}

/// The target that was named, else the one configured for the database.
pub fn target_of(
    context: &Context,
    named: Option<&str>,
    database: &str,
) -> Result<Target, Failure> {
    let name = named.or_else(|| context.config.target_of(database));
    match name {
        Some(name) => target(context, name),
        None => Err(Failure::usage(
            format!("no target is configured for {database}"),
            "name one with --target, or as `target` in [database.NAME] or [defaults]",
        )),
    }
}

/// What a target holds of a database.
pub fn shelf(context: &Context, target: &Target, database: &str) -> Result<Shelf, Failure> {
    let (storage, clock) = (context.storage.clone(), context.clock.clone());
    let mut shelf = Shelf::new(storage, clock, target, database)?;
    shelf.archive = archive::named(context, database, Some(&target.name)).map(Into::into);
    Ok(shelf)
}

/// New devices for a backup to a target, protected until it ends.
pub fn for_backup(
    context: &Context,
    shelf: &Shelf,
    against: Option<Against>,
) -> Result<Held, Failure> {
    let lent = against.map(|against| shelf.borrow_base(against == Against::LastFull));
    let lent = lent.transpose()?;
    for newer in lent.iter().flat_map(|lent| &lent.passed_over) {
        let text = format!("not the base, although it is newer: {newer}");
        context.output.warn(&text);
    }
    let kind = match against {
        Some(_) => Kind::Differential,
        None => Kind::Full,
    };
    let begun_us = Clock::wall_ns(&*context.clock) / 1000;
    Ok(Held {
        berth: shelf.begin(kind, begun_us)?,
        base: lent.map(|lent| lent.loan),
    })
}

/// The devices a reading command means.
pub fn of(context: &Context, media: &Media) -> Result<Chosen, Failure> {
    let Some(database) = &media.database else {
        if let Some(target) = &media.target {
            return Err(Failure::usage(
                format!("which database of target {target} is meant?"),
                "name it with --database; `longshore list --target` shows what is there",
            ));
        }
        refuse_database(context, media)?;
        return Ok(Chosen {
            devices: media.devices.clone(),
            loan: None,
        });
    };
    let target = target_of(context, media.target.as_deref(), database)?;
    let label = media.label.as_deref().filter(|l| *l != "latest");
    let loan = shelf(context, &target, database)?.borrow(label)?;
    remark(&loan, context);
    Ok(Chosen {
        devices: loan.devices.clone(),
        loan: Some(loan),
    })
}

/// Where a backup is made by its database's name, its media may be looked for by that name, too.
fn refuse_database(context: &Context, media: &Media) -> Result<(), Failure> {
    let [DeviceSpec::File(path)] = media.devices.as_slice() else {
        return Ok(());
    };
    let Some(name) = path
        .to_str()
        .filter(|_| context.storage.stat(path).is_err())
    else {
        return Ok(());
    };
    match context.config.database.contains_key(name) {
        true => Err(Failure::usage(
            format!("{name} is no file here, but a configured database"),
            format!("for the newest backup at its target write --database {name}"),
        )),
        false => Ok(()),
    }
}

/// Tells when a backup that is being read may be taken away meanwhile.
pub fn remark(loan: &Loan, context: &Context) {
    if let Some(why) = &loan.unprotected {
        let text = format!("the backup is not protected against an expire meanwhile: {why}");
        context.output.remark(&format!("{text}\n"));
    }
}
