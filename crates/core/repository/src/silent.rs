//! A target of which some places do not answer.
//!
//! Invariants
//! - Readers alone go on without a place: whoever writes or removes needs every one.
//! - A store that answers with a refusal is no silent one.
//!
//! Leaves to others: whether parity stands for the stripes there (`longshore-media`).

use std::path::{Path, PathBuf};

use longshore_bucket::Address;

use crate::Error;
use crate::shelf::Shelf;
use crate::target::{Places, Target};

/// The scheme of a place's address with the server's name, if it has one.
fn server_of(place: &str) -> Option<&str> {
    place.split_once("://").map(|split| split.0)
}

impl Shelf {
    /// The same shelf without the places that do not answer, as `error` tells, and the texts of these: parity may stand for their stripes.
    /// All places at one server go together. For readers alone: whoever writes or removes needs every place. `None`: it is another
    /// error, or no place is left.
    pub fn without_silent(&self, error: &Error) -> Option<(Shelf, Vec<String>)> {
        let is_silent: Box<dyn Fn(&str) -> bool> = match error {
            Error::Store(store) if store.may_pass() => {
                let server = server_of(store.at())?;
                Box::new(move |place| server_of(place) == Some(server))
            }
            Error::Unreachable { path, .. } => Box::new(move |place| Path::new(place) == path),
            _ => return None,
        };
        let silent = self
            .target
            .texts()
            .into_iter()
            .filter(|place| is_silent(place));
        let silent: Vec<String> = silent.collect();
        let places = match &self.target.places {
            Places::Directories(all) => {
                let is_left = |dir: &&PathBuf| !is_silent(&dir.display().to_string());
                Places::Directories(all.iter().filter(is_left).cloned().collect())
            }
            Places::Buckets(all) => {
                let is_left = |prefix: &&Address| !is_silent(&prefix.to_string());
                Places::Buckets(all.iter().filter(is_left).cloned().collect())
            }
        };
        let target = Target {
            name: self.target.name.clone(),
            places,
        };
        if silent.is_empty() || target.count() == 0 {
            return None;
        }
        let place = target.place(&self.storage, &self.clock, &self.database);
        let shelf = Shelf {
            target,
            // It is next to the backups at the first of all places.
            archive: self.wal_path(),
            place,
            ..self.clone()
        };
        Some((shelf, silent))
    }
}
