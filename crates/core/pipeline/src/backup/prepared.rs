//! A backup before its first byte moves: source and devices are open; sizes and set header are decided.
//!
//! Invariants
//! - The target is unchanged. A base that does not fit, a stripe inside the source and a memory bound that cannot be
//!   met are refused here.
//! - The plan that is printed has the sizes that the run uses; its memory bound includes those of the source, the
//!   devices, the accelerators and the base's page sums.
//! - A differential backup keeps the sum key of its base: one key for a chain.
//!
//! Leaves to others: moving bytes (`load`), sealing and recording (`store.rs`, `history.rs`).

use std::sync::Arc;

use longshore_codec::{Algorithm, Compressor};
use longshore_facts as facts;
use longshore_io::{SumKey, Via};
use longshore_media::device::DeviceClass;
use longshore_media::{
    BackupDevice, BackupType, EncryptTo, LogStart, NewKey, ParityPlan, Recipients, Root, SetHeader,
    SetPlan, TreeRoot, stripe_bytes,
};
use longshore_pg::Lineage;
use longshore_source::{
    Description, PostgresOptions, Source, SourceKind, SourceOptions, SourceRoot, SourceSpec,
};
use uuid::Uuid;

use super::refusals::{refuse_inside, refuse_own_files, refuse_twice};
use crate::archived::{SegmentDigest, check_archive};
use crate::base;
use crate::choice::EngineChoice;
use crate::context::RunContext;
use crate::error::Error;
use crate::log::LogSource;
use crate::page_sums::PageSums;
use crate::plan::{Demand, LayoutsKnown, Plan, Sizes};
use crate::request::BackupRequest;
use crate::room::Room;
use crate::{devices, history};

/// The decisions. The source is kept separately, because reading consumes it.
pub struct Decisions<'a> {
    pub context: &'a RunContext,
    pub request: &'a BackupRequest,
    pub devices: Vec<Arc<dyn BackupDevice>>,
    /// Those of each mirror.
    pub mirrors: Vec<Vec<Arc<dyn BackupDevice>>>,
    pub about: Description,
    /// A sample of the segment in which the needed WAL begins, as the server had it.
    pub first: Option<SegmentDigest>,
    /// The software that compresses blocks that no accelerator compresses.
    pub engine: &'static str,
    pub sizes: Sizes,
    pub choice: EngineChoice,
    /// The set that this one is compared with.
    pub parent: Option<Uuid>,
    pub base_sums: Option<Arc<PageSums>>,
    pub sum_key: Option<SumKey>,
    pub start_us: i64,
    /// Losses that were known before a byte moved.
    pub warnings: Vec<String>,
}

impl Decisions<'_> {
    /// The devices that are written, those of mirrors last.
    pub fn all_devices(&self) -> Vec<Arc<dyn BackupDevice>> {
        let mirrors = self.mirrors.iter().flatten();
        self.devices.iter().chain(mirrors).cloned().collect()
    }
}

/// A backup that is ready to begin.
pub struct PreparedBackup<'a> {
    pub decided: Decisions<'a>,
    pub source: Box<dyn Source>,
    pub plan: Plan,
    pub set_plan: SetPlan,
}

impl<'a> PreparedBackup<'a> {
    pub fn of(
        context: &'a RunContext,
        request: &'a BackupRequest,
    ) -> Result<PreparedBackup<'a>, Error> {
        refuse_twice(request)?;
        devices::check(context, request)?;
        let engine = Compressor::new(request.algorithm, request.level)?.engine();
        let devices = context.devices(&request.devices);
        let mirrors = request.mirrors.iter().map(|m| context.devices(m));
        let mirrors: Vec<_> = mirrors.collect();
        let all = [&devices[..], &mirrors.concat()].concat();
        let mut options = source_options(request);
        let base = find_base(context, request, &all)?;
        let set = Uuid::new_v4();
        let wrapped = |to: &Recipients| match &request.key_places {
            None => NewKey::wrapped(&to.for_set(set.as_bytes())),
            Some(_) => NewKey::detached(&to.for_set(set.as_bytes())),
        };
        let key = request.encrypt_to.as_ref().map(wrapped);
        let key = key.transpose().map_err(|source| Error::NewKey { source })?;
        let (mut parent, mut base_sums, mut parent_root) = (None, None, Root::default());
        if let Some(found) = base {
            parent = Some(found.header.set);
            parent_root = found.root;
            options.postgres.base = found.server;
            base_sums = Some(found.sums);
        }
        refuse_own_files(context, request)?;
        let (source, begun_us) = open_source(context, request, &options)?;
        let about = source.description().clone();
        refuse_inside(context, request, &about.trees)?;
        let first = match (&request.wal_proof, &about.log) {
            (Some(proof), Some(start)) => {
                check_archive(context, proof, start, about.own_log.as_ref())?
            }
            _ => None,
        };
        let choice = EngineChoice::of(context, &request.offload, request.algorithm);
        let sizes = sizes(request, (&devices, &all), &about, &choice)?;
        let mut plan = plan(request, &choice.engine(engine), &all, &about, &sizes);
        plan.memory_bytes += devices_bytes(request, (&devices, &all), &about);
        plan.memory_bytes += choice.memory_bytes(&sizes);
        plan.memory_bytes += base_sums.as_ref().map_or(0, |sums| sums.memory_bytes());
        plan.notices.extend(choice.notices.iter().cloned());
        let start_us = begun_us.unwrap_or_else(|| context.now_us());
        let sum_key = match &base_sums {
            // One key for a chain, so that each page is summed once.
            Some(sums) => Some(*sums.sum_key()),
            None => sum_key(request, &about)?,
        };
        let mut set_plan = set_plan(request, &about, &sizes, (set, start_us, parent, sum_key));
        let (tree_root, lost) = tree_root(&*source, request);
        set_plan.header.tree_root = tree_root;
        set_plan.encryption = key.map(|key| EncryptTo {
            key: Arc::new(key),
            parent_root,
            sign: context.keyring.signing_key().cloned(),
            places: request.key_places.clone().unwrap_or_default(),
        });
        Ok(PreparedBackup {
            decided: Decisions {
                context,
                request,
                devices,
                mirrors,
                about,
                first,
                engine,
                sizes,
                choice,
                parent,
                base_sums,
                sum_key,
                start_us,
                warnings: lost.into_iter().collect(),
            },
            source,
            plan,
            set_plan,
        })
    }
}

fn source_options(request: &BackupRequest) -> SourceOptions {
    SourceOptions {
        database: request.database.clone(),
        volume_map: request.volume_map.clone(),
        wal_growth_limit_bytes: request.wal_growth_limit_bytes,
        trust_locks: request.trust_locks,
        refuse_servers: request.refuse_servers,
        postgres: PostgresOptions {
            // Other algorithms have no use for them.
            layouts: request.algorithm == Algorithm::Pages,
            ..(*request.postgres).clone()
        },
        ..SourceOptions::default()
    }
}

/// The base of a differential backup.
fn find_base(
    context: &RunContext,
    request: &BackupRequest,
    devices: &[Arc<dyn BackupDevice>],
) -> Result<Option<base::BaseSet>, Error> {
    let Some(wanted) = &request.base else {
        return Ok(None);
    };
    let kind = match request.source {
        SourceSpec::Postgres(_) => SourceKind::Postgres,
        SourceSpec::Sqlite(_) => SourceKind::Sqlite,
        SourceSpec::Files(_) => SourceKind::Files,
    };
    let database = request.database.as_deref();
    let encrypts = request.encrypt_to.is_some();
    let found = base::find(context, wanted, (kind, database), encrypts)?;
    base::check_kept(&found, request.disposition, devices)?;
    Ok(Some(found))
}

/// The source; for a WAL-only backup, also the time at which it began.
fn open_source(
    context: &RunContext,
    request: &BackupRequest,
    options: &SourceOptions,
) -> Result<(Box<dyn Source>, Option<i64>), Error> {
    match (&request.log, &request.source) {
        (None, _) => {
            let storage = context.storage.clone();
            let source = longshore_source::open(storage, &request.source, options)?;
            Ok((source, None))
        }
        (Some(log), SourceSpec::Postgres(server)) => {
            let database = request.database.clone();
            let database = database.unwrap_or_else(|| "postgres".into());
            let source = LogSource::open(context, server, log, database)?;
            let begun_us = source.begun_us;
            Ok((Box::new(source), Some(begun_us)))
        }
        (Some(_), SourceSpec::Sqlite(_) | SourceSpec::Files(_)) => Err(Error::NoLog),
    }
}

/// The devices, and with them those of the mirrors.
type AllDevices<'a> = (&'a [Arc<dyn BackupDevice>], &'a [Arc<dyn BackupDevice>]);

fn sizes(
    request: &BackupRequest,
    (devices, all): AllDevices<'_>,
    about: &Description,
    choice: &EngineChoice,
) -> Result<Sizes, Error> {
    let files = all.iter().filter(|d| d.class() == DeviceClass::File);
    let demand = Demand {
        tuning: &request.tuning,
        limits: &request.limits,
        devices: data_stripes(request, devices),
        volumes: about.volumes.len(),
        buffer_bytes_of_media: None,
        streams: files.count(),
        algorithm: request.algorithm,
    };
    let others = about.memory_bytes + devices_bytes(request, (devices, all), about);
    let sizes = Room::now().fit(&demand, others)?;
    Ok(sizes.with_staging(choice.buffers_wanted(&sizes), &request.tuning))
}

/// The stripes that hold data.
fn data_stripes(request: &BackupRequest, devices: &[Arc<dyn BackupDevice>]) -> usize {
    // Too many parity stripes are refused when the set begins.
    let data = devices.len().saturating_sub(request.parity.into());
    data.max(1)
}

/// The bytes for which the devices are prepared. Where the walk alone can tell, they may be an eighth more than is known
/// roughly. A backup of differences stores an unknown part of what it reads.
fn planned_bytes(about: &Description) -> Option<u64> {
    let known = about.about_bytes.filter(|_| about.differing.is_none());
    let roughly = known.map(|bytes| bytes.saturating_add(bytes / 8));
    about.expected_bytes.or(roughly)
}

/// The memory that the devices hold themselves, and that of the parity.
fn devices_bytes(
    request: &BackupRequest,
    (devices, all): AllDevices<'_>,
    about: &Description,
) -> u64 {
    let stripe = stripe_bytes(planned_bytes(about), data_stripes(request, devices));
    let of_devices: u64 = all.iter().map(|d| d.writing_bytes(stripe)).sum();
    of_devices + ParityPlan::of(request.parity).memory_bytes()
}

fn plan(
    request: &BackupRequest,
    engine: &str,
    devices: &[Arc<dyn BackupDevice>],
    about: &Description,
    sizes: &Sizes,
) -> Plan {
    Plan {
        action: "backup",
        database: about.database.clone(),
        devices: devices.iter().map(|d| d.name()).collect(),
        volumes: about
            .volumes
            .iter()
            .map(|v| v.path.display().to_string())
            .collect(),
        algorithm: request.algorithm.to_string(),
        level: request.level.to_string(),
        encrypted: request.encrypt_to.is_some(),
        engine: engine.to_owned(),
        parity_stripes: request.parity,
        buffer_count: sizes.buffer_count,
        buffer_bytes: sizes.buffer_bytes,
        workers: sizes.workers,
        cpus: sizes.cpus,
        cpu_ceiling: sizes.cpu_ceiling,
        rate_bytes_per_s: request.limits.rate_bytes_per_s,
        memory_bytes: sizes.memory_bytes + about.memory_bytes,
        expected_bytes: about.expected_bytes.or(about.about_bytes),
        layouts: about.layouts.map(LayoutsKnown::from),
        notices: about.notices.clone(),
        without_effect: Vec::new(),
    }
}

/// A new key, if later sets can be compared with this one.
fn sum_key(request: &BackupRequest, about: &Description) -> Result<Option<SumKey>, Error> {
    let wanted = about.kind == SourceKind::Postgres || request.page_sums;
    if !wanted || request.log.is_some() {
        return Ok(None);
    }
    let key = SumKey::random().map_err(|source| Error::Random { source })?;
    Ok(Some(key))
}

/// The tree's own directory for the set header, and a warning if it has attributes that cannot be there.
fn tree_root(source: &dyn Source, request: &BackupRequest) -> (TreeRoot, Option<String>) {
    let mut root = match source.root() {
        SourceRoot::Unknown => TreeRoot::Unknown,
        SourceRoot::None => TreeRoot::None,
        SourceRoot::Dir { stat, xattrs } => {
            TreeRoot::dir(stat.mode, (stat.uid, stat.gid), stat.mtime_ns, xattrs)
        }
    };
    let encrypted = request.encrypt_to.is_some();
    let why = match (root.fit(encrypted), encrypted) {
        (false, _) => return (root, None),
        (true, true) => "a header shows them to everybody",
        (true, false) => "a header has no room for them",
    };
    let lost =
        format!("extended attributes of the tree's own directory are not in the backup: {why}");
    (root, Some(lost))
}

fn set_plan(
    request: &BackupRequest,
    about: &Description,
    sizes: &Sizes,
    (set, start_us, parent, sum_key): (Uuid, i64, Option<Uuid>, Option<SumKey>),
) -> SetPlan {
    let header = SetHeader {
        set,
        position: 0,
        start_us,
        source_kind: about.kind as u8,
        backup_type: match (&request.log, parent) {
            (Some(_), _) => BackupType::Log,
            (None, Some(_)) => BackupType::Differential,
            (None, None) => BackupType::Database,
        },
        algorithm: request.algorithm,
        level: request.level,
        buffer_bytes: sizes.buffer_bytes as u32,
        page_bytes: about.page_bytes,
        copy_only: request.copy_only,
        attributes: request.log.is_none(),
        encrypted: request.encrypt_to.is_some(),
        keys_detached: false,
        parent,
        log: about.log.map_or(LogStart::default(), |start| LogStart {
            system: start.system,
            timeline: start.timeline.number(),
            first_lsn: start.first.0,
        }),
        expires_us: request.expires_us,
        time_zone: history::time_zone_quarters(start_us),
        database: about.database.clone(),
        name: request.name.clone(),
        description: request.description.clone(),
        machine: facts::host_name(),
        user: request.user.clone().unwrap_or_else(facts::user_name),
        origin: history::origin(&request.source),
        lineage: about
            .lineage
            .as_ref()
            .map(Lineage::encode)
            .unwrap_or_default(),
        identity: request.identity.clone(),
        tree_root: TreeRoot::Unknown,
        sum_key,
        server_started_us: sum_key.and(about.server_started_us),
    };
    SetPlan {
        disposition: request.disposition,
        media_name: request.media_name.clone(),
        media_description: request.media_description.clone(),
        header,
        // Staging uncompressed data gains nothing: the page cache's own write-behind is faster.
        via: if request.algorithm == Algorithm::None {
            Via::DontCache
        } else {
            Via::Direct
        },
        expected_bytes: planned_bytes(about),
        parity: ParityPlan::of(request.parity).tolerating(request.tolerated),
        encryption: None,
    }
}
