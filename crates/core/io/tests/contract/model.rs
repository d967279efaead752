//! Goal: the simulated disk and the real file system agree on any sequence of calls.
//! Method: random sequences of calls on a few names are made on both sides; the result of each call and the trees at
//! the end must be equal, so each side is the oracle of the other.
//! Not covered: faults, power cuts and concurrent calls.

use std::path::Path;
use std::sync::Arc;

use longshore_io::{Attributes, Dir, File, FileKind, Host, OpenHow, Via};
use proptest::prelude::*;

use crate::{Place, noise};

/// A call on one of a few names, so that calls often meet the same file.
#[derive(Debug, Clone)]
enum Call {
    Open(usize, OpenHow),
    Write { len: usize, offset: u64, via: Via },
    SetLen(u64),
    Read { len: usize, offset: u64, via: Via },
    CreateDir(usize),
    Symlink(usize),
    Link(usize, usize),
    Rename(usize, usize),
    RemoveFile(usize),
    RemoveDir(usize),
    SetAttributes(usize, u32, i64),
    Sync(usize),
    Stat(usize),
}

const NAMES: [&str; 9] = ["a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", ""];

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let name = || 0..NAMES.len();
    // Calls with two names leave the directory itself out: it is refused, but with one of two errors.
    let other = || 0..NAMES.len() - 1;
    let via = || prop_oneof![Just(Via::Cache), Just(Via::Direct), Just(Via::DontCache)];
    let how = prop_oneof![1 => Just(OpenHow::Read), 1 => Just(OpenHow::ReadWrite), 3 => Just(OpenHow::CreateNew)];
    let (len, offset) = (|| 0..12_000usize, || 0..20_000u64);
    let call = prop_oneof![
        6 => (name(), how).prop_map(|(n, how)| Call::Open(n, how)),
        4 => (len(), offset(), via()).prop_map(|(len, offset, via)| Call::Write { len, offset, via }),
        1 => offset().prop_map(Call::SetLen),
        2 => (len(), offset(), via()).prop_map(|(len, offset, via)| Call::Read { len, offset, via }),
        3 => name().prop_map(Call::CreateDir),
        1 => name().prop_map(Call::Symlink),
        2 => (other(), other()).prop_map(|(a, b)| Call::Link(a, b)),
        4 => (other(), other()).prop_map(|(a, b)| Call::Rename(a, b)),
        2 => name().prop_map(Call::RemoveFile),
        1 => name().prop_map(Call::RemoveDir),
        1 => (name(), 0o400..0o777u32, -9..9i64).prop_map(|(n, mode, s)| Call::SetAttributes(n, mode | 0o700, s)),
        1 => name().prop_map(Call::Sync),
        2 => name().prop_map(Call::Stat),
    ];
    proptest::collection::vec(call, 1..60)
}

/// One side of the comparison: a directory and the file opened last.
struct Side {
    place: Place,
    file: Option<Arc<dyn File>>,
}

impl Side {
    fn new(place: Place) -> Self {
        Self { place, file: None }
    }

    /// Makes a call and describes the result in words that both sides must agree on.
    fn make(&mut self, call: &Call, seed: u64) -> String {
        let dir = &self.place.dir;
        let name = |n: &usize| Path::new(NAMES[*n]);
        let done = match call {
            Call::Open(n, how) => dir.open(name(n), *how).map(|file| {
                self.file = Some(file);
                String::new()
            }),
            Call::Write { len, offset, via } => match &self.file {
                Some(file) => file
                    .write_all_at(&noise(seed, *len), *offset, *via)
                    .map(|()| String::new()),
                None => Ok(String::new()),
            },
            Call::SetLen(len) => match &self.file {
                Some(file) => file.set_len(*len).map(|()| String::new()),
                None => Ok(String::new()),
            },
            Call::Read { len, offset, via } => match &self.file {
                Some(file) => {
                    let mut bytes = vec![0; *len];
                    file.read_full_at(&mut bytes, *offset, *via)
                        .map(|n| format!("{:?}", &bytes[..n]))
                }
                None => Ok(String::new()),
            },
            Call::CreateDir(n) => dir.create_dir(name(n)).map(|()| String::new()),
            Call::Symlink(n) => dir.symlink(Path::new("a"), name(n)).map(|()| String::new()),
            Call::Link(a, b) => dir.hard_link(name(a), name(b)).map(|()| String::new()),
            Call::Rename(a, b) => dir.rename(name(a), name(b)).map(|()| String::new()),
            Call::RemoveFile(n) => dir.remove_file(name(n)).map(|()| String::new()),
            Call::RemoveDir(n) => dir.remove_dir(name(n)).map(|()| String::new()),
            Call::SetAttributes(n, mode, seconds) => {
                let mtime_ns = Some(seconds * 1_000_000_000 + 1);
                let set = Attributes {
                    mode: Some(*mode),
                    mtime_ns,
                    owner: None,
                };
                dir.set_attributes(name(n), &set).map(|()| String::new())
            }
            Call::Sync(n) => dir.sync(name(n)).map(|()| String::new()),
            Call::Stat(n) => dir
                .stat(name(n))
                .map(|stat| format!("{:?} {:o}", stat.kind, stat.mode)),
        };
        done.unwrap_or_else(|e| match e.raw_os_error() {
            // Which of the two a symbolic link on the path causes depends on the implementation.
            Some(libc::ELOOP | libc::ENOTDIR) => "in the way".to_owned(),
            _ => format!("{:?}", e.kind()),
        })
    }

    /// The whole tree, in words.
    fn tree(&self) -> Vec<String> {
        let mut lines = Vec::new();
        describe(&*self.place.dir, "", &mut lines);
        lines.sort();
        lines
    }
}

fn describe(dir: &dyn Dir, at: &str, lines: &mut Vec<String>) {
    for name in dir.list().unwrap() {
        let name = name.unwrap().into_string().unwrap();
        let stat = dir.stat(Path::new(&name)).unwrap();
        let what = match stat.kind {
            FileKind::File => {
                let bytes = crate::all(dir, &name);
                format!(
                    "{:o} {} names, {} bytes {:x}",
                    stat.mode,
                    stat.links,
                    stat.len,
                    longshore_io::crc32c(&bytes)
                )
            }
            FileKind::Symlink => format!("-> {:?}", dir.read_link(Path::new(&name)).unwrap()),
            kind => format!("{kind:?} {:o}", stat.mode),
        };
        lines.push(format!("{at}/{name}: {what}"));
        if stat.kind == FileKind::Dir {
            describe(
                &*dir.dir(Path::new(&name)).unwrap(),
                &format!("{at}/{name}"),
                lines,
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_simulated_disk_answers_as_the_host_does(calls in calls(), walk in any::<bool>()) {
        let host = if walk { Host::without_openat2() } else { Host::new() };
        let (mut real, mut simulated) = (Side::new(Place::on_the_host(host)), Side::new(Place::simulated()));
        for (number, call) in calls.iter().enumerate() {
            let (expected, found) = (real.make(call, number as u64), simulated.make(call, number as u64));
            prop_assert_eq!(expected, found, "call {}: {:?}", number, call);
        }
        prop_assert_eq!(real.tree(), simulated.tree());
    }
}
