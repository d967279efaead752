//! Chains: a differential set, its parent, the parent's parent, down to a full set.
//!
//! [`Chain::collect`] finds the sets and checks that they belong together before anything is written. [`Merge`] then
//! decides from their indexes which set provides each byte. So every byte is written once, and the sets of a chain are
//! read together, in any order, like a single set.
//!
//! Invariants
//! - A chain is complete, or it is refused and the broken link is named.
//! - No claim of one set about another is trusted: identity, kind and system are compared with the other set's own
//!   header.
//!
//! Leaves to others: choosing the set to restore and the media to look on (the restore's request), and reading blocks
//! (`unload`).

mod error;
mod merge;
mod spans;

use std::sync::Arc;

use longshore_catalog::Catalog;
use longshore_media::{
    BackupDevice, BackupType, DeviceSpec, Error as MediaError, MediaSet, Root, SetHeader,
    SetSummary, SetTrailer,
};
use uuid::Uuid;

use crate::{Error, RunContext};
pub use error::ChainError;
pub use merge::{FileRow, Merge};

/// The most sets in a chain: one an hour for a month. Hostile media could name any number.
pub const LINKS_MAX: usize = 1000;
/// The most stripes read at once; a single set with more stripes is still read.
const STREAMS_MAX: usize = 64;

/// One set of a chain.
#[derive(Debug)]
pub struct Link<'a> {
    pub media: &'a MediaSet,
    pub header: SetHeader,
    pub trailer: SetTrailer,
}

impl Link<'_> {
    /// The set's name for people.
    pub fn name(&self) -> String {
        let header = &self.header;
        let kind = match header.backup_type {
            BackupType::Database => "full",
            BackupType::Differential => "differential",
            BackupType::Log => "log",
        };
        let (set, position, device) = (header.set, header.position, self.media.device(0));
        let at = jiff::Timestamp::from_microsecond(header.start_us);
        let at = at.map_or_else(|_| "?".into(), |at| at.strftime("%F %T UTC").to_string());
        format!("the {kind} set {set} (number {position} on {device}, of {at})")
    }
}

/// A differential set and all sets that it needs: the newest first, the full one last. At least two.
#[derive(Debug)]
pub struct Chain<'a> {
    pub links: Vec<Link<'a>>,
}

/// The media sets on the devices; stripes and sets can be given in any order.
pub fn open_bases(context: &RunContext, specs: &[DeviceSpec]) -> Result<Vec<MediaSet>, Error> {
    let mut groups: Vec<(Uuid, Vec<Arc<dyn BackupDevice>>)> = Vec::new();
    let (mut unreadable, mut has_parity) = (None, false);
    for device in context.devices(specs) {
        let label = match MediaSet::label(&*device) {
            Ok(label) => label,
            Err(error) => {
                unreadable.get_or_insert(error);
                continue;
            }
        };
        has_parity |= label.parity_count > 0;
        match groups
            .iter_mut()
            .find(|(known, _)| *known == label.media_set)
        {
            Some((_, group)) => group.push(device),
            None => groups.push((label.media_set, vec![device])),
        }
    }
    // Parity may stand for a stripe that cannot be read: its media set knows that it is missing.
    if let Some(error) = unreadable.filter(|_| !has_parity) {
        return Err(error.into());
    }
    let open = |(_, group): &(Uuid, Vec<_>)| Ok(context.media(group)?);
    groups.iter().map(open).collect()
}

impl<'a> Chain<'a> {
    /// The sets in groups that are read together, newest first.
    pub fn waves(&self) -> Vec<std::ops::Range<usize>> {
        let mut waves: Vec<std::ops::Range<usize>> = Vec::new();
        let mut streams = 0;
        for (depth, link) in self.links.iter().enumerate() {
            let families = link.media.family_count();
            match waves.last_mut() {
                Some(wave) if streams + families <= STREAMS_MAX => {
                    wave.end = depth + 1;
                    streams += families;
                }
                _ => {
                    waves.push(depth..depth + 1);
                    streams = families;
                }
            }
        }
        waves
    }

    /// Finds the sets that the set of `summary` on `media` needs, there and on `bases`.
    ///
    /// Errors: [`ChainError`], which names the broken link.
    pub fn collect(
        context: &RunContext,
        media: &'a MediaSet,
        summary: SetSummary,
        bases: &'a [MediaSet],
    ) -> Result<Chain<'a>, Error> {
        let places: Vec<&MediaSet> = std::iter::once(media).chain(bases).collect();
        let mut found = Vec::new();
        for place in &places {
            found.push(place.sets()?);
        }
        let mut links = vec![link(media, summary)?];
        while let Some(parent) = links[links.len() - 1].header.parent {
            let newest = links[0].name();
            if let Some(again) = links.iter().find(|link| link.header.set == parent) {
                let again = again.name();
                return Err(ChainError::Endless { newest, again }.into());
            }
            if links.len() == LINKS_MAX {
                let max = LINKS_MAX;
                return Err(ChainError::TooLong { newest, max }.into());
            }
            let child = &links[links.len() - 1];
            let root = child.media.parent_root(child.header.position)?;
            let is_parent = |set: &&SetSummary| set.header.set == parent;
            // Somebody may have put another set of this identifier in front of the right one.
            let is_right = |set: &&SetSummary| {
                is_parent(set) && root.is_none_or(|root| root == root_of(set.trailer.as_ref()))
            };
            let find = |fits: &dyn Fn(&&SetSummary) -> bool| {
                places.iter().zip(&found).find_map(|(place, sets)| {
                    let set = sets.iter().find(|set| fits(set))?;
                    Some((*place, set.header.position))
                })
            };
            let next = find(&is_right).or_else(|| find(&is_parent));
            let Some((place, position)) = next else {
                return Err(absent(context, child, parent, &places)?.into());
            };
            let next = place.set(position).and_then(|set| link(place, set));
            let next = next.map_err(|source| ChainError::Broken {
                child: child.name(),
                parent,
                source: Box::new(source),
            })?;
            if let Some(what) = foreign(&child.header, &next.header) {
                return Err(ChainError::Foreign {
                    child: child.name(),
                    parent: next.name(),
                    what,
                }
                .into());
            }
            check_root(child, &next)?;
            links.push(next);
        }
        Ok(Chain { links })
    }
}

/// Why a parent is missing: it may be one of the unreadable sets.
fn absent(
    context: &RunContext,
    child: &Link,
    parent: Uuid,
    places: &[&MediaSet],
) -> Result<ChainError, Error> {
    let child = child.name();
    for place in places {
        if let Some(source) = place.unreadable()?.into_iter().next() {
            let source = Box::new(source);
            return Ok(ChainError::Broken {
                child,
                parent,
                source,
            });
        }
    }
    Ok(ChainError::Missing {
        child,
        parent,
        known: known(context, parent),
    })
}

fn link(media: &MediaSet, summary: SetSummary) -> Result<Link<'_>, MediaError> {
    let header = summary.header;
    let Some(trailer) = summary.trailer else {
        return Err(MediaError::Incomplete {
            device: media.device(0).to_owned(),
            position: header.position,
        });
    };
    Ok(Link {
        media,
        header,
        trailer,
    })
}

/// The root of a set; zeros if it is not encrypted.
fn root_of(trailer: Option<&SetTrailer>) -> Root {
    let proof = trailer.and_then(|trailer| trailer.proof);
    proof.map_or(Root::default(), |proof| proof.root)
}

/// Another set under the parent's identifier must not take its place: an encrypted child knows the parent's root.
fn check_root(child: &Link, parent: &Link) -> Result<(), Error> {
    let foreign = |what| ChainError::Foreign {
        child: child.name(),
        parent: parent.name(),
        what,
    };
    let Some(expected) = child.media.parent_root(child.header.position)? else {
        return match parent.header.encrypted {
            // Anybody who can write to the media could have made the child.
            true => Err(foreign("an encrypted set, and is not encrypted itself").into()),
            false => Ok(()),
        };
    };
    let found = root_of(Some(&parent.trailer));
    match expected == found {
        true => Ok(()),
        false => Err(foreign("other content than the set that it was compared with").into()),
    }
}

/// A difference between a set and its child that must not exist.
fn foreign(child: &SetHeader, parent: &SetHeader) -> Option<&'static str> {
    if child.source_kind != parent.source_kind {
        Some("another kind of source")
    } else if child.log.system != parent.log.system {
        Some("another cluster")
    } else {
        None
    }
}

/// The history's entry for a set. It only helps, so errors are ignored.
fn known(context: &RunContext, set: Uuid) -> Option<String> {
    let catalog = Catalog::open(context.catalog.as_ref()?).ok()?;
    let row = catalog.backup_of(set).ok()??;
    let at = jiff::Timestamp::from_microsecond(row.start_us).ok()?;
    let devices = row.devices.join(", ");
    let (position, at) = (row.position, at.strftime("%F %T UTC"));
    Some(format!("number {position} on {devices}, of {at}"))
}
