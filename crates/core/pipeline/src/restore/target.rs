//! The destination of a restore: which kind receives the set, and whether the set fits.
//!
//! Invariants
//! - A whole set of a cluster goes to a cluster's directory; parts of one, and everything else, to plain names. Options
//!   that do not suit the kind are refused.
//! - The media that are read, and Longshore's own files, are never replaced.
//! - Space is compared before anything is written; only a set that cannot fit is refused.
//! - [`DestinationNeeds::survey`] refuses what the restore would refuse, and writes nothing.
//!
//! Leaves to others: writing (`landing`), and recovery's settings (`longshore-pg`).

use std::path::{Path, PathBuf};

use longshore_landing::{
    Cluster, ClusterError, Destination, Error as LandingError, KnownFiles, Outline, OwnDirectory,
    PathList, ProtectedFiles, ReplacePolicy, RootWish, Scope, StandingNames, Survey, SurveyedNames,
    Target, WantedAttributes, check_moves, chosen_entry, may_be_log, moved, place_of, refuse_media,
};
use longshore_media::{
    BackupType, DeviceSpec, Entry, Item, MediaSet, SetHeader, SetTrailer, TreeRoot,
};
use longshore_source::SourceKind;

use super::databases::EmptiedDatabases;
use super::{choice, moved_names};
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
    pub emptied: Option<&'a EmptiedDatabases>,
}

impl DestinationNeeds<'_> {
    /// Opens the destination. A whole cluster has a special destination; parts of one, and everything else, are
    /// restored as plain names.
    pub fn open(&self, context: &RunContext) -> Result<Box<dyn Destination>, Error> {
        let kept = kept(context, self.request);
        kept.check_target(&self.request.target)?;
        match self.is_cluster()? {
            true => self.open_cluster(context, &kept),
            false => self.open_names(context, kept),
        }
    }

    /// The changes that a restore would make to the destination. Nothing is written.
    pub fn survey(&self, context: &RunContext) -> Result<Survey, Error> {
        let (request, machine) = (self.request, context.machine());
        let kept = kept(context, request);
        kept.check_target(&request.target)?;
        if self.is_cluster()? {
            let outline = self
                .outline(true)?
                .ok_or(ClusterError::NeedsIndex { what: "a dry run" })?;
            if request.replace || self.options.delta {
                check_standing(context, &kept, &request.target)?;
            }
            let place = (request.target.as_path(), request.replace);
            let survey = Survey::of_cluster(&machine, place, self.options, self.header, &outline)?;
            return Ok(survey);
        }
        check_moves(&request.moves)?;
        self.check_asked()?;
        moved_names::check(self.media, self.header.position, request)?;
        let names = self.names()?;
        let place = (request.target.as_path(), self.replacing());
        let (mut survey, standing) = Survey::of_names(&machine, place, &names, &kept)?;
        if let Some(standing) = standing {
            survey.removed.append(self.vanishing(standing)?);
        }
        // The directory may not exist yet.
        let mut parents = request.target.ancestors();
        let dir = parents.find_map(|known| context.storage.dir(known).ok());
        self.check_room(dir.and_then(|dir| dir.free_bytes().ok()))?;
        Ok(survey)
    }

    /// Whether a whole cluster is restored; otherwise plain names. Errors: `NotACluster` if the options need one.
    fn is_cluster(&self) -> Result<bool, Error> {
        let whole = self.request.only.is_empty() && self.request.moves.is_empty();
        let is_log = self.header.backup_type == BackupType::Log;
        if self.kind == SourceKind::Postgres && whole && !is_log {
            return Ok(true);
        }
        match self.options.is_default() {
            true => Ok(false),
            false => Err(ClusterError::NotACluster.into()),
        }
    }

    /// The content of a cluster's set; `None` for a pipe.
    fn outline(&self, with_names: bool) -> Result<Option<Outline>, Error> {
        let Some(trailer) = self.trailer else {
            return Ok(None);
        };
        let missing = |path: &Path| {
            let merge = self.merge?;
            Some(merge.missing(merge.file(path)?))
        };
        choice::check(self.header, trailer, self.options)?;
        let position = self.header.position;
        let is_empty = |path: &Path| self.emptied.is_some_and(|emptied| emptied.empties(path));
        let outline = Outline::read(self.media, position, with_names, &missing, &is_empty)?;
        Ok(Some(outline))
    }

    /// Refuses what was asked for and is not in the set, as the restore does at its end.
    fn check_asked(&self) -> Result<(), Error> {
        let request = self.request;
        let mut only: Vec<&PathBuf> = request.only.iter().collect();
        let mut moves: Vec<&(PathBuf, PathBuf)> = request.moves.iter().collect();
        self.media.items(self.header.position, |item| {
            if let Item::Entry(entry) = item {
                let may_be_log = may_be_log(&entry.kind);
                let is_wanted = chosen_entry(&request.only, &entry.path, may_be_log);
                only.retain(|only| !entry.path.starts_with(only));
                moves.retain(|(from, _)| !is_wanted || !entry.path.starts_with(from));
            }
        })?;
        if let Some(path) = only.first() {
            let path = path.to_path_buf();
            return Err(Error::NotInSet { path });
        }
        match moves.first() {
            Some((from, to)) => Err(LandingError::BadMove {
                from: from.clone(),
                to: to.clone(),
                what: "the restore has nothing with that name",
            }
            .into()),
            None => Ok(()),
        }
    }

    /// Calls `each` for every entry that is restored as a plain name, with its name in the target.
    fn each_name(&self, mut each: impl FnMut(&Entry, &Path)) -> Result<(), Error> {
        let request = self.request;
        self.media.items(self.header.position, |item| {
            if let Item::Entry(entry) = item
                && chosen_entry(&request.only, &entry.path, may_be_log(&entry.kind))
            {
                let to = moved(&request.moves, &entry.path, may_be_log(&entry.kind));
                each(&entry, &to);
            }
        })?;
        Ok(())
    }

    /// The places that plain names of the set would take in the target.
    fn names(&self) -> Result<SurveyedNames, Error> {
        let request = self.request;
        let mut names = SurveyedNames::default();
        self.each_name(|entry, name| {
            let may_be_log = may_be_log(&entry.kind);
            let place = place_of(&request.only, &request.moves, &entry.path, may_be_log);
            names.add(place, name, &entry.kind);
        })?;
        Ok(names)
    }

    /// The names that would go with the directories that are replaced.
    fn vanishing(&self, mut standing: StandingNames) -> Result<PathList, Error> {
        self.each_name(|_, name| standing.meet(name))?;
        Ok(standing.vanishing()?)
    }

    /// Holes are not counted on either side, so this refuses only sets that cannot fit.
    fn check_room(&self, free: Option<u64>) -> Result<(), Error> {
        let older = self.merge.map_or(0, Merge::older_bytes);
        let needed = self.trailer.map(|trailer| trailer.plain_bytes_total);
        let needed = needed.map(|bytes| bytes.saturating_add(older));
        match (needed, free, self.request.only.is_empty()) {
            (Some(needed), Some(free), true) if needed > free => {
                let path = self.request.target.clone();
                Err(LandingError::TargetFull { path, free, needed }.into())
            }
            _ => Ok(()),
        }
    }

    fn open_cluster(
        &self,
        context: &RunContext,
        kept: &ProtectedFiles,
    ) -> Result<Box<dyn Destination>, Error> {
        let (request, options) = (self.request, self.options);
        let outline = self.outline(options.delta)?;
        if request.replace || options.delta {
            check_standing(context, kept, &request.target)?;
        }
        let set = (self.header, self.trailer);
        let place = (request.target.as_path(), request.replace);
        let cluster = Cluster::open(&context.machine(), place, options, set, outline.as_ref())?;
        Ok(Box::new(cluster))
    }

    /// The attributes of the directory, if the restore makes it. The one around a single file or database may have kept others out.
    fn root(&self) -> RootWish {
        match (self.kind, &self.header.tree_root) {
            (SourceKind::Postgres, _) => RootWish::Usual,
            (SourceKind::Sqlite, _) => RootWish::Closed(OwnDirectory::AroundDatabase),
            (SourceKind::Files, TreeRoot::None) => RootWish::Closed(OwnDirectory::AroundFiles),
            (SourceKind::Files, TreeRoot::Unknown) => RootWish::Closed(OwnDirectory::OfTree),
            (SourceKind::Files, TreeRoot::Dir(entry)) => {
                RootWish::Known(WantedAttributes::of(entry))
            }
        }
    }

    /// The names that may be replaced.
    fn replacing(&self) -> ReplacePolicy {
        match (self.request.replace, self.request.in_use) {
            (false, _) => ReplacePolicy::No,
            (true, false) => ReplacePolicy::Unused,
            (true, true) => ReplacePolicy::Anything,
        }
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
        let replacing = self.replacing();
        check_moves(&request.moves)?;
        if self.trailer.is_some() {
            match moved_names::check(self.media, self.header.position, request) {
                // A damaged index prevents no restore: the file system refuses the second entry of a name.
                Err(Error::Media(_)) => {}
                checked => checked?,
            }
        }
        let machine = context.machine();
        let target = Target::open(&machine, &request.target, replacing, scope, &request.moves)?;
        let target = target.choosing(&request.only).keeping(kept);
        let target = target.rooting(self.root())?;
        self.check_room(target.free_bytes())?;
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
    Ok(refuse_media(&context.storage, target)?)
}
