//! What a server sends in answer to BASE_BACKUP: messages of the protocol, and the tar archives within them.
//!
//! The first byte says whether the rest is the answer as it stands, or an archive whose headers get the checksum that
//! fits, in messages of some length.
#![no_main]
#![allow(dead_code, reason = "the script's helpers serve other tests, too")]

#[path = "../../crates/core/source/tests/postgres/double.rs"]
mod double;

use std::path::Component;
use std::sync::{Arc, LazyLock, Mutex};

use double::{Double, done, message, ready, row, table};
use libfuzzer_sys::fuzz_target;
use longshore_io::{Host, Storage, Via};
use longshore_source::{Error, SourceOptions, SourceSpec, open};

static ANSWER: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static SERVER: LazyLock<Double> = LazyLock::new(|| {
    Double::new(|command| match command {
        "IDENTIFY_SYSTEM" => row(&["7", "1", "0/2000028", ""]),
        "SHOW block_size" => row(&["8192"]),
        "SHOW cluster_name" => row(&[""]),
        _ if command.starts_with("CREATE_REPLICATION_SLOT") => row(&["s", "0/0", "", ""]),
        _ => ANSWER.lock().unwrap().clone(),
    })
});

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    *ANSWER.lock().unwrap() = match kind % 2 {
        0 => rest.to_vec(),
        _ => archive(rest, 1 + usize::from(*kind) * 16),
    };
    let _refused = drain();
});

/// A whole answer with one archive, each unit of which that could be a header is one.
fn archive(bytes: &[u8], piece: usize) -> Vec<u8> {
    let place = [Some(&b"0/2000028"[..]), Some(&b"1"[..])];
    let space: [Option<&[u8]>; 3] = [Some(b"16389"), Some(b"/srv"), None];
    let mut all = [table(&[&place]), table(&[&space]), message(b'H', b"\0\0\0")].concat();
    all.extend(message(b'd', b"nbase.tar\0\0"));
    let mut bytes = bytes.to_vec();
    for unit in bytes.chunks_exact_mut(512) {
        unit[148..156].fill(b' ');
        let sum: u32 = unit.iter().map(|byte| u32::from(*byte)).sum();
        unit[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    for piece in bytes.chunks(piece) {
        all.extend(message(b'd', &[b"d", piece].concat()));
    }
    all.extend(message(b'c', b""));
    all.extend([table(&[&place]), done("SELECT"), done("BASE_BACKUP"), ready()].concat());
    all
}

fn drain() -> Result<(), Error> {
    let storage: Arc<dyn Storage> = Arc::new(Host::new());
    let spec = SourceSpec::parse(&*storage, &[SERVER.address().into()])?;
    let mut options = SourceOptions::default();
    options.postgres.remote = true;
    let source = open(storage, &spec, &options)?;
    let mut buf = vec![0; 1 << 20];
    loop {
        while let Some(entry) = source.next(0)? {
            let mut parts = entry.path.components();
            assert!(parts.all(|part| matches!(part, Component::Normal(_))));
            let mut at = 0;
            while let Some(content) = entry.content.as_ref().filter(|_| at < entry.len) {
                let Some(range) = content.next_data(at)? else {
                    break;
                };
                assert!(range.start >= at && range.end <= entry.len);
                let part = &mut buf[..(range.end - range.start) as usize];
                content.read_at(part, range.start, Via::Cache)?;
                at = range.end;
            }
        }
        if !source.epilogue()? {
            return source.finish().map(drop);
        }
    }
}
