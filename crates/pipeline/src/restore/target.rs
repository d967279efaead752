//! The destination of a restore: which kind of it receives the set, and whether the set fits.

use std::path::{Path, PathBuf};

use longshore_landing::{
    Cluster, ClusterError, Destination, Error as LandingError, Kept, KeptFiles, Outline, Replacing,
    Scope, Target,
};
use longshore_media::{BackupType, DeviceSpec, MediaSet, SetHeader, SetTrailer};
use longshore_source::SourceKind;

use super::choice;
use crate::chain::Merge;
use crate::request::RestoreRequest;
use crate::{ClusterOptions, Error, House};

/// What is to be restored, as far as its destination needs to know.
pub struct Wanted<'a> {
    pub request: &'a RestoreRequest,
    /// Those of the request, with what was learned since.
    pub options: &'a ClusterOptions,
    pub kind: SourceKind,
    pub media: &'a MediaSet,
    pub header: &'a SetHeader,
    /// `None` where the media are a pipe.
    pub trailer: Option<&'a SetTrailer>,
    pub merge: Option<&'a Merge>,
}

impl Wanted<'_> {
    /// Opens the destination. A cluster as a whole is put together with care; parts of one, and all else, are names like
    /// others.
    pub fn open(&self, house: &House) -> Result<Box<dyn Destination>, Error> {
        let kept = kept(house, self.request);
        kept.check_target(&self.request.target)?;
        let whole = self.request.only.is_empty() && self.request.moves.is_empty();
        let is_log = self.header.backup_type == BackupType::Log;
        if self.kind == SourceKind::Postgres && whole && !is_log {
            return self.open_cluster(house, &kept);
        }
        if !self.options.is_default() {
            return Err(ClusterError::NotACluster.into());
        }
        self.open_names(house, kept)
    }

    fn open_cluster(&self, house: &House, kept: &Kept) -> Result<Box<dyn Destination>, Error> {
        let (request, options) = (self.request, self.options);
        let missing = |path: &Path| {
            let merge = self.merge?;
            Some(merge.missing(merge.file(path)?))
        };
        let outline = match self.trailer {
            Some(trailer) => {
                choice::check(self.header, trailer, options)?;
                let (position, delta) = (self.header.position, options.delta);
                Some(Outline::read(self.media, position, delta, &missing)?)
            }
            None => None,
        };
        if request.replace || options.delta {
            check_standing(house, kept, &request.target)?;
        }
        let set = (self.header, self.trailer);
        let place = (request.target.as_path(), request.replace);
        let cluster = Cluster::open(&house.machine(), place, options, set, outline.as_ref())?;
        Ok(Box::new(cluster))
    }

    fn open_names(&self, house: &House, kept: Kept) -> Result<Box<dyn Destination>, Error> {
        let request = self.request;
        let scope = Scope::Names {
            side_files: self.kind == SourceKind::Sqlite,
        };
        let replacing = match (request.replace, request.in_use) {
            (false, _) => Replacing::No,
            (true, false) => Replacing::Unused,
            (true, true) => Replacing::Anything,
        };
        let machine = house.machine();
        let target = Target::open(&machine, &request.target, replacing, scope, &request.moves)?;
        let target = target.keeping(kept);
        let older = self.merge.map_or(0, Merge::older_bytes);
        let needed = self.trailer.map(|trailer| trailer.plain_bytes_total);
        let needed = needed.map(|bytes| bytes.saturating_add(older));
        if let (Some(needed), Some(free), true) =
            (needed, target.free_bytes(), request.only.is_empty())
        {
            // Holes are not counted in either: this refuses only what cannot fit.
            if needed > free {
                return Err(LandingError::TargetFull {
                    path: request.target.clone(),
                    free,
                    needed,
                }
                .into());
            }
        }
        Ok(Box::new(target))
    }
}

/// What this restore must leave where it is.
fn kept(house: &House, request: &RestoreRequest) -> Kept {
    let media = request.devices.iter().chain(&request.bases);
    let media: Vec<PathBuf> = media
        .filter_map(|device| match device {
            DeviceSpec::File(path) => Some(path.clone()),
            DeviceSpec::Nul | DeviceSpec::Pipe => None,
        })
        .collect();
    let storage = &*house.storage;
    let own = KeptFiles::own(storage, &request.own, house.catalog.as_deref());
    Kept::of(storage, &media, own, &request.target)
}

/// Of a directory that is replaced as a whole, or whose other names are removed.
fn check_standing(house: &House, kept: &Kept, target: &Path) -> Result<(), Error> {
    let cannot = longshore_landing::at("list", target);
    let dir = match house.storage.dir(target) {
        // Nothing stands there, or the restore will say what does.
        Err(e) if e.kind() != std::io::ErrorKind::PermissionDenied => return Ok(()),
        dir => dir.map_err(&cannot)?,
    };
    for name in dir.list().map_err(&cannot)? {
        kept.check_replaced(&*dir, target, Path::new(&name.map_err(&cannot)?))?;
    }
    Ok(())
}
