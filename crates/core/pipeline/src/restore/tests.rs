//! Goal: a restore that cannot come to an end is refused by the decisions about the media, before anything is written.
//! Method: sets written by hand on a simulated disk, opened as a run opens them.

use std::path::Path;
use std::sync::Arc;

use longshore_io::{HostClock, SimDisk, Storage};
use longshore_landing::{ClusterError, ClusterOptions, Error as LandingError};
use longshore_media::{DeviceSpec, LogEnd, LogStart, MediaSet};
use longshore_pg::{Lsn, Recovery, RecoveryTarget};
use longshore_source::SourceKind;
use uuid::Uuid;

use super::*;
use crate::ChainError;
use crate::forge::{Claims, write};

fn context() -> RunContext {
    let disk = SimDisk::new(1);
    disk.create_dir_all(Path::new("/media")).unwrap();
    RunContext {
        keyring: Default::default(),
        storage: Arc::new(disk),
        clock: Arc::new(HostClock),
        catalog: None,
        accelerators: Vec::new(),
        cancel: Arc::default(),
    }
}

/// The request for a set without files, written with these claims.
fn written(context: &RunContext, claims: &Claims) -> RestoreRequest {
    let devices = vec![DeviceSpec::File("/media/set.bak".into())];
    write(&context.storage, &devices, claims, &[], |_| 0);
    RestoreRequest::new(devices, "/out".into())
}

/// The request for a set of this kind, without files.
fn of_kind(context: &RunContext, kind: SourceKind) -> RestoreRequest {
    let claims = Claims {
        source_kind: kind as u8,
        ..Claims::new(None)
    };
    written(context, &claims)
}

fn is_no_cluster(error: &Error) -> bool {
    let cluster = ClusterError::NotACluster;
    let is_told = error.to_string() == cluster.to_string() && error.hint() == cluster.hint();
    is_told
        && matches!(
            error,
            Error::Landing(LandingError::Cluster(ClusterError::NotACluster))
        )
}

/// An LSN or a time is looked for among the clusters of the media, so media without one are refused and not guessed at.
#[test]
fn a_recovery_target_is_refused_on_media_without_a_cluster() {
    for target in [RecoveryTarget::Lsn(Lsn(0x100)), RecoveryTarget::Time(7)] {
        for kind in [SourceKind::Files, SourceKind::Sqlite, SourceKind::Postgres] {
            let context = context();
            let mut request = of_kind(&context, kind);
            request.cluster.recovery = Some(Recovery {
                target: Some(target.clone()),
                ..Recovery::default()
            });
            match OpenedMedia::open(&context, &request) {
                Ok(opened) => {
                    assert_eq!(kind, SourceKind::Postgres, "{target:?}");
                    assert_eq!(opened.position, 1, "{target:?}");
                }
                Err(error) => {
                    assert_ne!(kind, SourceKind::Postgres, "{target:?}: {error}");
                    assert!(is_no_cluster(&error), "{target:?}: {error}");
                }
            }
        }
    }
}

/// Options that only a whole cluster has are not silently ignored for files, nor for a part of a cluster.
#[test]
fn options_of_a_cluster_are_refused_unless_a_whole_cluster_is_restored() {
    for (kind, only, no_archiving, is_refused) in [
        (SourceKind::Files, None, true, true),
        (SourceKind::Sqlite, None, true, true),
        (SourceKind::Postgres, Some("base"), true, true),
        (SourceKind::Postgres, None, true, false),
        (SourceKind::Files, None, false, false),
    ] {
        let context = context();
        let mut request = of_kind(&context, kind);
        request.only = only.into_iter().map(Into::into).collect();
        request.cluster.no_archiving = no_archiving;
        let opened = OpenedMedia::open(&context, &request).unwrap();
        let prepared = PreparedRestore::of(&context, &request, &opened, None).unwrap();
        let needs = prepared.needs(&request.cluster);
        let surveyed = needs.survey(&context).err();
        let restored = needs.open(&context).err();
        for (way, error) in [("a preview", surveyed), ("a restore", restored)] {
            let found = error.as_ref().is_some_and(is_no_cluster);
            let at = format!("{way} of {kind:?}, {only:?}, {no_archiving}: {error:?}");
            assert_eq!(found, is_refused, "{at}");
        }
        if is_refused {
            let target = context.storage.dir(Path::new("/out"));
            assert!(target.is_err(), "{kind:?}: something was written");
        }
    }
}

/// A pipe shows its sets only while it is read: nothing is known of the set before, and its parent cannot be looked for.
#[test]
fn a_differential_set_from_a_pipe_is_refused_and_a_full_one_is_not() {
    for (parent, is_refused) in [(None, false), (Some(Uuid::new_v4()), true)] {
        let context = context();
        let request = written(&context, &Claims::new(parent));
        let devices = context.devices(&request.devices);
        let opened = OpenedMedia {
            media: MediaSet::open(&devices).unwrap(),
            devices,
            bases: Vec::new(),
            position: 1,
            summary: None,
        };
        match PreparedRestore::of(&context, &request, &opened, None) {
            Ok(_) => assert!(!is_refused),
            Err(error) => {
                assert!(is_refused, "{error}");
                assert!(matches!(error, Error::Chain(ChainError::Pipe)), "{error}");
                assert_eq!(error.number(), Some(3136));
                assert!(error.hint().contains("save the stream"), "{}", error.hint());
            }
        }
    }
}

/// A set that holds no WAL needs somebody who brings it: an archive, the caller, or a later restore.
#[test]
fn a_cluster_without_its_wal_is_refused_if_nothing_brings_the_wal() {
    let context = context();
    let request = written(&context, &Claims::new(None));
    let set = OpenedMedia::open(&context, &request)
        .unwrap()
        .summary
        .unwrap();
    let (mut header, mut trailer) = (set.header, set.trailer.unwrap());
    trailer.log = LogEnd {
        timeline: 1,
        last_lsn: 0x200,
        included: false,
    };
    let bare = ClusterOptions::default();
    assert!(choice::check(&header, &trailer, &bare).is_ok(), "no WAL");
    header.log = LogStart {
        system: 7,
        timeline: 1,
        first_lsn: 0x100,
    };
    let lacks = |options: &ClusterOptions| match choice::check(&header, &trailer, options) {
        Ok(()) => false,
        Err(ClusterError::LogNotIncluded { last }) => {
            assert_eq!(last, Lsn(0x200));
            true
        }
        Err(other) => panic!("{other}"),
    };
    let recovery = |command: Option<&str>| ClusterOptions {
        recovery: Some(Recovery {
            restore_command: command.map(str::to_owned),
            ..Recovery::default()
        }),
        ..ClusterOptions::default()
    };
    assert!(lacks(&bare) && lacks(&recovery(None)));
    assert!(!lacks(&recovery(Some("longshore wal get %f %p"))));
    assert!(!lacks(&ClusterOptions {
        log_follows: true,
        ..bare.clone()
    }));
    assert!(!lacks(&ClusterOptions {
        hold: true,
        ..bare.clone()
    }));
    trailer.log.included = true;
    assert!(choice::check(&header, &trailer, &bare).is_ok());
}
