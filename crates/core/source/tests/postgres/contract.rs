//! A server's source keeps the contract of all sources, with its log and without it.

use std::sync::Arc;

use longshore_io::{Host, Storage};
use longshore_source::SourceOptions;

use crate::cluster::{Cluster, connect};
use crate::hostile::{Answer, begin, sends};
use crate::suite::{keeps_its_contract, keeps_its_contract_to_one_reader};

/// A server that sends its files can be read once only.
#[test]
fn a_server_s_stream_keeps_the_contract_of_all_sources_to_one_reader() {
    let source = begin(&sends(Answer::usual().bytes())).unwrap();
    let kept = keeps_its_contract_to_one_reader(source);
    let file = |path: &str| kept.files.get(std::path::Path::new(path)).unwrap();
    assert!(*file("base/5/16384") == vec![b'x'; 200_000]);
    assert_eq!(file("pg_tblspc/16389/PG_18_202506291/5/16390"), b"far");
    assert!(kept.summary.log.is_some());
}

#[test]
fn a_server_keeps_the_contract_of_all_sources() {
    let storage: Arc<dyn Storage> = Arc::new(Host::new());
    for with_wal in [false, true] {
        let cluster = Cluster::new();
        let relation = cluster.relation("16384", 0, 3);
        cluster.write_log();
        let mut options = SourceOptions::default();
        options.postgres.with_wal = with_wal;
        let source = connect(&cluster.double, &storage, &options).unwrap();
        let kept = keeps_its_contract(source);
        let stored = kept.files.iter().find(|(path, _)| path.ends_with("16384"));
        assert!(*stored.unwrap().1 == std::fs::read(relation).unwrap());
        let log = |path: &&std::path::PathBuf| path.starts_with("pg_wal");
        assert_eq!(kept.files.keys().any(|path| log(&path)), with_wal);
        assert!(kept.summary.log.is_some());
    }
}
