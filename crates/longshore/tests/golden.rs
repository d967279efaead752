//! Goal: what was written once is read for ever.
//! Method: the stripes of `tests/golden/v1`, never written again, are verified and restored by the program and
//! by the reader that was written from `docs/format.md` alone, and compared with their descriptions.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_longshore");

/// Directory, position, description of what it restores to.
const SETS: [(&str, &str, &str); 11] = [
    ("none", "1", "tree-3.txt"),
    ("none", "2", "tree-2.txt"),
    ("ms_xpress", "1", "tree-1.txt"),
    ("ms_xpress", "2", "tree-2.txt"),
    ("qat_deflate", "1", "tree-1.txt"),
    ("qat_deflate", "2", "tree-2.txt"),
    ("zstd", "1", "tree-1.txt"),
    ("zstd", "2", "tree-2.txt"),
    ("lz4", "1", "tree-1.txt"),
    ("lz4", "2", "tree-2.txt"),
    ("one_file", "1", "file.txt"),
];

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests")
}

fn golden() -> PathBuf {
    tests().join("golden/v1")
}

/// The stripes of a media set, last one first: their order means nothing.
fn stripes(media: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(golden().join(media)).unwrap();
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths.reverse();
    paths
}

/// Runs a program to its end. A missing one is a failure where `LONGSHORE_REQUIRE_TOOLS` is set, and left out
/// elsewhere.
fn run(command: &mut Command) -> Option<Output> {
    match command.stdin(Stdio::null()).output() {
        Ok(output) => Some(output),
        Err(e) if std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_none() => {
            eprintln!("left out: {command:?}: {e}");
            None
        }
        Err(e) => panic!("{command:?}: {e}"),
    }
}

#[track_caller]
fn succeeds(output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

fn longshore(args: &[&str], paths: &[PathBuf]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(["--catalog", "none", "--quiet"]);
    run(command.args(args).args(paths)).unwrap()
}

/// A tree, described as `tests/golden/describe.py` does, without the SHA-256.
fn describe(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut left = vec![PathBuf::new()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(root.join(&dir)).unwrap() {
            let name = dir.join(entry.unwrap().file_name());
            let path = root.join(&name);
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let time = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
            let mode = meta.mode() & 0o7777;
            let shown = name.as_os_str().as_bytes().escape_ascii();
            lines.push(if meta.is_symlink() {
                let target = std::fs::read_link(&path).unwrap();
                let target = target.as_os_str().as_bytes().escape_ascii().to_string();
                format!("l - {time} - - - {shown} -> {target}")
            } else if meta.is_dir() {
                left.push(name.clone());
                format!("d {mode:04o} {time} - - - {shown}")
            } else {
                let data = std::fs::read(&path).unwrap();
                let (len, crc) = (data.len(), longshore_io::crc32c(&data));
                format!(
                    "f {mode:04o} {time} {len} {crc:08x} {} {shown}",
                    meta.nlink()
                )
            });
        }
    }
    lines.sort();
    lines
}

/// A description as [`describe`] gives it.
fn described(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(golden().join(file)).unwrap();
    let without_sha = |line: &str| {
        let fields: Vec<&str> = line.splitn(7, ' ').collect();
        [&fields[..5], &fields[6..]].concat().join(" ")
    };
    let mut lines: Vec<_> = text.lines().map(without_sha).collect();
    lines.sort();
    lines
}

#[test]
fn nobody_touched_the_golden_stripes() {
    let mut command = Command::new("sha256sum");
    let command = command.args(["--strict", "--quiet", "-c", "SHA256SUMS"]);
    if let Some(output) = run(command.current_dir(golden())) {
        succeeds(&output);
    }
    let listed = std::fs::read_to_string(golden().join("SHA256SUMS")).unwrap();
    let there: usize = [
        "none",
        "ms_xpress",
        "qat_deflate",
        "zstd",
        "lz4",
        "one_file",
    ]
    .iter()
    .map(|media| stripes(media).len())
    .sum();
    assert_eq!(listed.lines().count(), there);
}

#[test]
fn the_program_verifies_and_restores_every_golden_set() {
    for (media, position, description) in SETS {
        let stripes = stripes(media);
        succeeds(&longshore(&["verify"], &stripes));
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("to");
        let args = [
            "restore",
            "--position",
            position,
            "--to",
            to.to_str().unwrap(),
        ];
        succeeds(&longshore(&args, &stripes));
        assert_eq!(describe(&to), described(description), "{media} {position}");
    }
}

#[test]
fn the_independent_reader_verifies_and_restores_every_golden_set() {
    let python = |file: &str| {
        let mut command = Command::new("python3");
        command.arg("-B").arg(tests().join(file));
        command
    };
    for (media, position, description) in SETS {
        let stripes = stripes(media);
        let verify = run(python("reader/longshore_reader.py")
            .arg("verify")
            .args(&stripes));
        let Some(verify) = verify else { return };
        succeeds(&verify);
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("to");
        let mut restore = python("reader/longshore_reader.py");
        restore
            .args(["restore", "--position", position, "--to"])
            .arg(&to);
        succeeds(&run(restore.args(&stripes)).unwrap());
        let found = run(python("golden/describe.py").arg(&to)).unwrap();
        let wanted = std::fs::read(golden().join(description)).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&found.stdout),
            String::from_utf8_lossy(&wanted),
            "{media} {position}"
        );
    }
}

#[test]
fn stock_tools_accept_the_golden_stripes_and_give_back_the_one_file() {
    for (media, program) in [
        ("none", "lz4"),
        ("ms_xpress", "lz4"),
        ("lz4", "lz4"),
        ("qat_deflate", "gzip"),
        ("zstd", "zstd"),
    ] {
        for stripe in stripes(media) {
            let mut command = Command::new(program);
            if let Some(output) = run(command.args(["-t", "-q"]).arg(&stripe)) {
                succeeds(&output);
            }
        }
    }
    let mut command = Command::new("gzip");
    if let Some(output) = run(command.arg("-dc").args(stripes("one_file"))) {
        succeeds(&output);
        let crc = format!(" {:08x} ", longshore_io::crc32c(&output.stdout));
        assert!(described("file.txt")[0].contains(&crc));
    }
}
