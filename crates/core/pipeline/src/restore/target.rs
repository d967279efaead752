//! The destination of a restore: which kind receives the set, and whether the set fits.
//!
//! A set of a cluster goes to a cluster's directory, others to a directory of files; what the options ask must suit
//! the kind, else the restore is refused. Space is compared before anything is written.
//!
//! Leaves to others: writing (`landing`), and recovery's settings (`longshore-pg`).

use std::path::{Path, PathBuf};

use longshore_landing::{
    Cluster, ClusterError, Destination, Error as LandingError, KnownFiles, Outline, ProtectedFiles,
    ReplacePolicy, Scope, Target,
};
use longshore_media::{BackupType, DeviceSpec, MediaSet, SetHeader, SetTrailer};
use longshore_source::SourceKind;

use super::choice;
use crate::chain::Merge;
use crate::request::RestoreRequest;
use crate::{ClusterOptions, Error, RunContext};

/// The part of a restore that its destination needs to know.
pub struct DestinationNeeds<'a> {
    pub request: &'a RestoreRequest,
    /// The request's options, completed with what was learned since.
    pub options: &'a ClusterOptions,
    pub kind: SourceKind,
    pub media: &'a MediaSet,
    pub header: &'a SetHeader,
    /// `None` if the media are a pipe.
    pub trailer: Option<&'a SetTrailer>,
    pub merge: Option<&'a Merge>,
}

impl DestinationNeeds<'_> {
    /// Opens the destination. A whole cluster has a special destination; parts of one, and everything else, are
    /// restored as plain names.
    pub fn open(&self, context: &RunContext) -> Result<Box<dyn Destination>, Error> {
        let kept = kept(context, self.request);
        kept.check_target(&self.request.target)?;
        let whole = self.request.only.is_empty() && self.request.moves.is_empty();
        let is_log = self.header.backup_type == BackupType::Log;
        if self.kind == SourceKind::Postgres && whole && !is_log {
            return self.open_cluster(context, &kept);
        }
        if !self.options.is_default() {
            return Err(ClusterError::NotACluster.into());
        }
        self.open_names(context, kept)
    }

    fn open_cluster(
        &self,
        context: &RunContext,
        kept: &ProtectedFiles,
    ) -> Result<Box<dyn Destination>, Error> {
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
            check_standing(context, kept, &request.target)?;
        }
        let set = (self.header, self.trailer);
        let place = (request.target.as_path(), request.replace);
        let cluster = Cluster::open(&context.machine(), place, options, set, outline.as_ref())?;
        Ok(Box::new(cluster))
    }

    fn open_names(
        &self,
        context: &RunContext,
        kept: ProtectedFiles,
    ) -> Result<Box<dyn Destination>, Error> {
        let request = self.request;
        let scope = Scope::Names {
            side_files: self.kind == SourceKind::Sqlite,
        };
        let replacing = match (request.replace, request.in_use) {
            (false, _) => ReplacePolicy::No,
            (true, false) => ReplacePolicy::Unused,
            (true, true) => ReplacePolicy::Anything,
        };
        let machine = context.machine();
        let target = Target::open(&machine, &request.target, replacing, scope, &request.moves)?;
        let target = target.keeping(kept);
        let older = self.merge.map_or(0, Merge::older_bytes);
        let needed = self.trailer.map(|trailer| trailer.plain_bytes_total);
        let needed = needed.map(|bytes| bytes.saturating_add(older));
        if let (Some(needed), Some(free), true) =
            (needed, target.free_bytes(), request.only.is_empty())
        {
            // Holes are not counted on either side, so this refuses only sets that cannot fit.
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

/// Files that this restore must not replace.
fn kept(context: &RunContext, request: &RestoreRequest) -> ProtectedFiles {
    let media = request.devices.iter().chain(&request.bases);
    let media: Vec<PathBuf> = media
        .filter_map(|device| match device {
            DeviceSpec::File(path) => Some(path.clone()),
            DeviceSpec::Nul | DeviceSpec::Pipe | DeviceSpec::Bucket(_) => None,
        })
        .collect();
    let storage = &*context.storage;
    let own = KnownFiles::own(storage, &request.own, context.catalog.as_deref());
    ProtectedFiles::of(storage, &media, own, &request.target)
}

/// For a directory that is replaced as a whole, or whose other names are removed.
fn check_standing(context: &RunContext, kept: &ProtectedFiles, target: &Path) -> Result<(), Error> {
    let cannot = longshore_landing::at("list", target);
    let dir = match context.storage.dir(target) {
        // Nothing exists there, or the restore itself reports what does.
        Err(e) if e.kind() != std::io::ErrorKind::PermissionDenied => return Ok(()),
        dir => dir.map_err(&cannot)?,
    };
    for name in dir.list().map_err(&cannot)? {
        kept.check_replaced(&*dir, target, Path::new(&name.map_err(&cannot)?))?;
    }
    Ok(())
}
