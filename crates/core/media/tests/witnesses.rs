//! Goal: other programs can read what we write: stock gzip, zstd and lz4, and the Python reader written from
//! `docs/format.md` alone.
//! Method: media of every algorithm are written to files and given to those programs.

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_codec::Algorithm;
use longshore_kit::random::noise;
use longshore_media::{Disposition, EntryKind};
use support::tools::{has, python, reader, run};
use support::*;

/// A small tree with a larger file and an awkward name.
fn tree() -> Vec<Input> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let mut tree = small_tree();
    tree.push(file("large", &text_like(300_000, 7)));
    tree.push(file("noise", &noise(99, 70_000)));
    tree.push(file("zeros", &vec![0; 100_000]));
    let mut odd = file("x", b"odd name");
    odd.entry.path = OsStr::from_bytes(b"d/a b\nc\xff").into();
    tree.push(odd);
    tree
}

/// Writes stripes to files in `dir` and returns their paths.
fn to_files(dir: &Path, stripes: &[Vec<u8>]) -> Vec<PathBuf> {
    let write = |(i, bytes): (usize, &Vec<u8>)| {
        let path = dir.join(format!("stripe-{i}"));
        std::fs::write(&path, bytes).unwrap();
        path
    };
    stripes.iter().enumerate().map(write).collect()
}

fn two_sets(algorithm: Algorithm, families: usize) -> Vec<Vec<u8>> {
    let sets = [
        (Shape::new(Disposition::New, algorithm, 100_000), tree()),
        (
            Shape::new(Disposition::Append, algorithm, 1 << 20),
            small_tree(),
        ),
    ];
    media(families, &sets)
}

/// The tree below a directory, by path, as far as an [`Input`] describes it.
fn found(root: &Path) -> BTreeMap<PathBuf, (String, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(root.join(&dir)).unwrap() {
            let name = dir.join(entry.unwrap().file_name());
            let path = root.join(&name);
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let times = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
            let mut facts = format!("{:o} {times}", meta.mode() & 0o7777);
            let mut data = Vec::new();
            if meta.is_dir() {
                left.push(name.clone());
                facts.push_str(" dir");
            } else if meta.is_symlink() {
                facts = format!(
                    "{times} -> {}",
                    std::fs::read_link(&path).unwrap().display()
                );
            } else {
                facts.push_str(&format!(" file {}", meta.nlink()));
                data = std::fs::read(&path).unwrap();
            }
            found.insert(name, (facts, data));
        }
    }
    found
}

fn wanted(inputs: &[Input]) -> BTreeMap<PathBuf, (String, Vec<u8>)> {
    let content = expected(inputs);
    let linked = |path: &Path| {
        let is_link = |r: &&Restored| matches!(&r.entry.kind, EntryKind::HardLink { target } if target == path);
        content.values().filter(is_link).count() + 1
    };
    let facts = |path: &PathBuf| {
        let Restored { entry, data } = &content[path];
        let (mode, time) = (entry.mode, entry.mtime_ns);
        let facts = match &entry.kind {
            EntryKind::File => format!("{mode:o} {time} file {}", linked(path)),
            EntryKind::Dir => format!("{mode:o} {time} dir"),
            EntryKind::Symlink { target } => format!("{time} -> {}", target.display()),
            EntryKind::HardLink { target } => {
                let data = content[target].data.clone();
                return (format!("{mode:o} {time} file {}", linked(target)), data);
            }
        };
        (facts, data.clone())
    };
    content.keys().map(|p| (p.clone(), facts(p))).collect()
}

#[test]
fn the_reader_written_from_the_page_restores_every_algorithm() {
    if !has("python3") || !has("zstd") {
        return;
    }
    for algorithm in Algorithm::ALL {
        for families in [1, 3] {
            let dir = tempfile::tempdir().unwrap();
            let mut paths = to_files(dir.path(), &two_sets(algorithm, families));
            paths.reverse();
            for (position, inputs) in [("1", tree()), ("0", small_tree())] {
                let target = dir.path().join(format!("to-{position}"));
                let output = run(python(&reader("longshore_reader.py"))
                    .args(["restore", "--position", position, "--to"])
                    .arg(&target)
                    .args(&paths));
                let text = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{algorithm} {families}: {text}");
                assert_eq!(found(&target), wanted(&inputs), "{algorithm} {families}");
            }
            let listed = run(python(&reader("longshore_reader.py"))
                .arg("list")
                .args(&paths));
            let text = String::from_utf8(listed.stdout).unwrap();
            assert!(
                text.contains(&format!("set 2: 'db', {algorithm}, ")),
                "{text}"
            );
            assert!(text.contains(" d/sparse\n"), "{text}");
        }
    }
}

#[test]
fn the_reader_written_from_the_page_notices_a_change_of_any_byte() {
    if !has("python3") {
        return;
    }
    // ZSTD decodes in a separate process each time: too slow for thousands of runs.
    let pairs = [
        (Algorithm::QatDeflate, Algorithm::QatDeflate),
        (Algorithm::Lz4, Algorithm::MsXpress),
    ];
    std::thread::scope(|scope| {
        for (first, second) in pairs {
            scope.spawn(move || {
                let sets = [
                    (Shape::new(Disposition::New, first, 150), small_tree()),
                    (
                        Shape::new(Disposition::Append, second, 150),
                        vec![file("b", &text_like(80, 3))],
                    ),
                ];
                let dir = tempfile::tempdir().unwrap();
                let paths = to_files(dir.path(), &media(1, &sets));
                let output = run(python(&reader("check_reader.py")).args(&paths));
                let text = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{first}, {second}: {text}");
            });
        }
    });
}

#[test]
fn the_reader_written_from_the_page_never_writes_through_a_symbolic_link() {
    if !has("python3") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let target = outside.clone();
    let inputs = [
        named("trap", EntryKind::Symlink { target }),
        file("trap/file", b"must not arrive"),
    ];
    let shape = Shape::new(Disposition::New, Algorithm::Lz4, 50);
    let paths = to_files(dir.path(), &media(1, &[(shape, inputs.to_vec())]));
    let output = run(python(&reader("longshore_reader.py"))
        .args(["restore", "--to"])
        .arg(dir.path().join("to"))
        .args(&paths));
    assert!(!output.status.success());
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn stock_tools_accept_every_stripe() {
    for algorithm in Algorithm::ALL {
        let (program, args): (_, &[&str]) = match algorithm {
            Algorithm::QatDeflate => ("gzip", &["-t"]),
            Algorithm::Zstd => ("zstd", &["-tq"]),
            Algorithm::None | Algorithm::MsXpress | Algorithm::Lz4 | Algorithm::Pages => {
                ("lz4", &["-tq"])
            }
        };
        if !has(program) {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        for path in to_files(dir.path(), &two_sets(algorithm, 2)) {
            let stripe = std::fs::File::open(&path).unwrap();
            let output = Command::new(program)
                .args(args)
                .stdin(stripe)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program} {algorithm}: {text}");
        }
    }
}

#[test]
fn a_stripe_with_one_whole_file_is_that_file_to_stock_tools() {
    let data = text_like(700_000, 11);
    for (algorithm, program, args) in [
        (Algorithm::QatDeflate, "gzip", &["-dc"][..]),
        (Algorithm::QatDeflate, "pigz", &["-dc"]),
        (Algorithm::QatDeflate, "busybox", &["gunzip", "-c"]),
        (Algorithm::Zstd, "zstd", &["-dcq"]),
        (Algorithm::Lz4, "lz4", &["-dc"]),
        (Algorithm::None, "lz4", &["-dc"]),
    ] {
        if !has(program) {
            continue;
        }
        let shape = Shape::new(Disposition::New, algorithm, 128 << 10);
        let dir = tempfile::tempdir().unwrap();
        let path = &to_files(dir.path(), &media(1, &[(shape, vec![file("f", &data)])]))[0];
        let stripe = std::fs::File::open(path).unwrap();
        let output = Command::new(program)
            .args(args)
            .stdin(stripe)
            .output()
            .unwrap();
        assert!(
            output.status.success() && output.stdout == data,
            "{program} {algorithm}"
        );
    }
}
