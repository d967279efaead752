//! Checks, volume by volume, whether a cluster fits, before anything is written or removed.
//!
//! Invariants
//! - Only clusters that cannot fit are refused: holes count as content, both in the set and in existing files.
//! - Directories on one device share its free space: their needs are added up.
//! - Space of existing files counts only if the restore replaces or removes them in place.
//!
//! Leaves to others: how many bytes a set has (`outline.rs`), and a disk that fills up later (the writes fail).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use longshore_io::{Dir, FileKind, Machine};

use super::outline::{Outline, link};
use super::spaces::Places;
use crate::error::{Error, at};
use crate::locked_target::STAGING;
use crate::place::Root;

/// A volume that receives files.
struct Volume {
    /// One of its directories, for messages.
    path: PathBuf,
    free_bytes: u64,
    needed_bytes: u64,
}

#[derive(Default)]
struct Volumes(BTreeMap<u64, Volume>);

impl Volumes {
    /// `reused`: bytes of existing files in the directory that are overwritten or removed.
    fn add(&mut self, path: &Path, (device, free): (u64, u64), reused: u64, needed: u64) {
        let volume = self.0.entry(device).or_insert_with(|| Volume {
            path: path.to_owned(),
            free_bytes: free,
            needed_bytes: 0,
        });
        volume.free_bytes = volume.free_bytes.saturating_add(reused);
        volume.needed_bytes = volume.needed_bytes.saturating_add(needed);
    }

    fn check(self) -> Result<(), Error> {
        match self.0.into_values().find(|v| v.needed_bytes > v.free_bytes) {
            Some(Volume {
                path,
                free_bytes: free,
                needed_bytes: needed,
            }) => Err(Error::TargetFull { path, free, needed }),
            None => Ok(()),
        }
    }
}

/// For a restore that is staged next to the existing files.
pub fn check_staged(
    (data, path): (&dyn Root, &Path),
    spaces: &BTreeMap<u32, Box<dyn Root>>,
    places: &Places,
    outline: &Outline,
) -> Result<(), Error> {
    let mut volumes = Volumes::default();
    for (space, bytes) in &outline.bytes {
        let space = space.and_then(|oid| Some((&**spaces.get(&oid)?, places.get(&oid)?.as_path())));
        let (root, path) = space.unwrap_or((data, path));
        if let Some(volume) = root.volume() {
            volumes.add(path, volume, 0, *bytes);
        }
    }
    volumes.check()
}

/// Before a directory is opened. `in_place`: existing files are replaced, and their space may be used in addition to the
/// free space.
pub fn check(
    machine: &Machine,
    path: &Path,
    places: &Places,
    outline: &Outline,
    in_place: bool,
) -> Result<(), Error> {
    let mut volumes = Volumes::default();
    for (space, bytes) in &outline.bytes {
        let place = space.and_then(|oid| Some((oid, places.get(&oid)?.as_path())));
        let path = place.map_or(path, |(_, path)| path);
        // A tablespace's directory may not exist yet.
        let known = path.ancestors().find_map(|known| {
            let dir = machine.storage.dir(known).ok()?;
            Some((dir, known == path))
        });
        let Some((dir, exists)) = known else { continue };
        let cannot = at("look at", path);
        let stat = dir.stat(Path::new("")).map_err(&cannot)?;
        let free = dir.free_bytes().map_err(&cannot)?;
        let mut reused = 0;
        if exists && in_place {
            for name in dir.list().map_err(&cannot)? {
                let name = PathBuf::from(name.map_err(&cannot)?);
                // Names that a delta does not change: its own, and those of another major version in a tablespace.
                let stays = name == Path::new(STAGING)
                    || place.is_some_and(|(oid, _)| {
                        outline.names.kind(&link(oid).join(&name)).is_none()
                    });
                if !stays {
                    reused += bytes_below(&*dir, &name).map_err(&cannot)?;
                }
            }
        }
        volumes.add(path, (stat.dev, free), reused, *bytes);
    }
    volumes.check()
}

fn bytes_below(dir: &dyn Dir, name: &Path) -> std::io::Result<u64> {
    let stat = dir.stat(name)?;
    match stat.kind {
        // Replacing a file that has other names frees no space.
        FileKind::File if stat.links > 1 => Ok(0),
        FileKind::File => Ok(stat.len),
        FileKind::Dir => {
            let below = dir.dir(name)?;
            let mut bytes = 0u64;
            for name in below.list()? {
                bytes = bytes.saturating_add(bytes_below(&*below, Path::new(&name?))?);
            }
            Ok(bytes)
        }
        _ => Ok(0),
    }
}
