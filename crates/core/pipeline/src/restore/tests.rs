//! Goal: a restore that cannot come to an end is refused by the decisions about the media, before anything is written.
//! Method: sets written by hand on a simulated disk, opened as a run opens them.

use std::path::Path;
use std::sync::Arc;

use longshore_io::{HostClock, SimDisk, Storage};
use longshore_landing::{ClusterError, ClusterOptions};
use longshore_media::{DeviceSpec, LogEnd, LogStart, MediaSet};
use longshore_pg::{Lsn, Recovery};
use uuid::Uuid;

use super::*;
use crate::ChainError;
use crate::forge::{Claims, write};

fn context() -> RunContext {
    let disk = SimDisk::new(1);
    disk.create_dir_all(Path::new("/media")).unwrap();
    RunContext {
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
        match PreparedRestore::of(&context, &request, &opened) {
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
