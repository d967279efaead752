//! Goal: malicious media do no harm: nothing outside the target directory is touched, sizes in them cause no
//! allocation, and every refusal is an error message. Accidental damage is found wherever it is.
//! Method: the format's own encoders write media, checksums included, from entries that no source would give; the real
//! program restores them next to a canary directory. In addition, stripes of real backups get flipped bits and
//! truncated ends.

mod common;
#[path = "../../core/pipeline/tests/common/forge.rs"]
mod forge;

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::*;
use forge::Block;
use longshore_codec::Algorithm;
use longshore_io::{Host, Storage};
use longshore_media::{DeviceSpec, Disposition, Entry, EntryKind, Extent, Item};
use uuid::Uuid;

/// A run that takes longer is considered hung. Runs take milliseconds; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);
/// No hostile media may make the program use more memory than a usual run does.
const RESIDENT_MAX: u64 = 160 << 20;

fn entry(path: &str, kind: EntryKind, len: u64) -> Item {
    Item::Entry(Entry {
        path: path.into(),
        kind,
        first: true,
        based: false,
        xattrs: Vec::new(),
        mode: 0o666,
        uid: 0,
        gid: 0,
        mtime_ns: 0,
        len,
    })
}

/// A file that lies completely in its block.
fn file(path: &str, bytes: &[u8]) -> Block {
    let items = vec![
        entry(path, EntryKind::File, bytes.len() as u64),
        Item::Extent(Extent {
            offset: 0,
            len: bytes.len() as u32,
        }),
    ];
    (items, bytes.to_vec())
}

/// A piece of a larger file.
fn piece(path: &str, first: bool, len: u64, offset: u64, bytes: &[u8]) -> Block {
    let mut entry = entry(path, EntryKind::File, len);
    if let Item::Entry(e) = &mut entry {
        e.first = first;
    }
    let len = bytes.len() as u32;
    (
        vec![entry, Item::Extent(Extent { offset, len })],
        bytes.to_vec(),
    )
}

fn name(path: &str, kind: EntryKind) -> Block {
    (vec![entry(path, kind, 0)], Vec::new())
}

fn link(path: &str, target: &str) -> Block {
    let target = target.into();
    name(path, EntryKind::Symlink { target })
}

fn hard(path: &str, target: &str) -> Block {
    let target = target.into();
    name(path, EntryKind::HardLink { target })
}

fn dir(path: &str) -> Block {
    name(path, EntryKind::Dir)
}

/// The claims of the headers.
struct Claims {
    set: u128,
    /// The set that it differs from.
    parent: Option<u128>,
    buffer_bytes: u32,
    plain_bytes: Option<u64>,
    source_kind: u8,
}

const HONEST: Claims = Claims {
    set: 1,
    parent: None,
    buffer_bytes: 1 << 20,
    plain_bytes: None,
    source_kind: 1,
};

fn craft(path: &Path, claims: &Claims, blocks: &[Block]) {
    let storage: Arc<dyn Storage> = Arc::new(Host::new());
    let claims = forge::Claims {
        set: Uuid::from_u128(claims.set),
        source_kind: claims.source_kind,
        algorithm: Algorithm::Zstd,
        buffer_bytes: claims.buffer_bytes,
        disposition: Disposition::Format,
        plain_bytes: claims.plain_bytes,
        ..forge::Claims::new(claims.parent.map(Uuid::from_u128))
    };
    let devices = [DeviceSpec::File(path.into())];
    forge::write(&storage, &devices, &claims, blocks, |_| 0);
}

/// A target next to a canary that must be unchanged afterwards.
struct Cage {
    dir: tempfile::TempDir,
}

impl Cage {
    fn new() -> Cage {
        let dir = tempfile::tempdir().unwrap();
        for name in ["canary/deep", "target", "media"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("canary/secret"), b"song").unwrap();
        std::fs::write(dir.path().join("canary/deep/other"), b"song").unwrap();
        Cage { dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn canary(&self) -> impl PartialEq + std::fmt::Debug {
        let around: Vec<_> = std::fs::read_dir(self.dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        (fingerprint(&self.at("canary")), around.len())
    }

    /// Restores media and returns the outcome. In every case nothing outside is touched and nothing is left half done.
    fn restore(&self, what: &str, more: &[&str]) -> Used {
        let before = self.canary();
        let (media, target) = (self.at("media/a.bak"), self.at("target"));
        let mut command = longshore([
            "restore".as_ref(),
            media.as_os_str(),
            "--to".as_ref(),
            target.as_os_str(),
        ]);
        let used = measure(command.args(more), PATIENCE);
        assert_eq!(self.canary(), before, "{what}: the canary was touched");
        assert!(
            matches!(used.code, Some(0 | 2 | 4 | 6)),
            "{what}: {:?} {}",
            used.code,
            used.stderr
        );
        assert!(
            used.resident_bytes < RESIDENT_MAX,
            "{what}: {} bytes resident",
            used.resident_bytes
        );
        if used.code != Some(0) {
            assert!(
                used.stderr.contains("longshore: error"),
                "{what}: {}",
                used.stderr
            );
            assert!(used.stderr.contains("hint: "), "{what}: {}", used.stderr);
        }
        used
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn hostile_entries_touch_nothing_outside_the_target() {
    let bytes = b"evil".as_slice();
    let half = vec![1; 1000];
    let cases: Vec<(&str, &[i32], Vec<Block>)> = vec![
        ("upwards", &[4], vec![file("../canary/secret", bytes)]),
        (
            "upwards inside",
            &[4],
            vec![file("a/../../canary/x", bytes)],
        ),
        ("absolute", &[4], vec![file("/tmp/longshore-evil", bytes)]),
        ("a dot", &[4], vec![file("./x", bytes)]),
        ("empty", &[4], vec![file("", bytes)]),
        ("a NUL", &[4], vec![file("x\0y", bytes)]),
        (
            "through a link",
            &[6],
            vec![link("l", "../../../canary"), file("l/evil", bytes)],
        ),
        (
            "through a link, absolute",
            &[6],
            vec![link("l", "/"), file("l/tmp/longshore-evil", bytes)],
        ),
        (
            "through a link to the target",
            &[6],
            vec![link("l", "."), file("l/evil", bytes)],
        ),
        (
            "a link, then a directory",
            &[0, 6],
            vec![link("l", "../canary"), dir("l")],
        ),
        (
            "a link, then a directory below",
            &[6],
            vec![link("l", "../canary"), dir("l/deep")],
        ),
        (
            "a link, then a file",
            &[6],
            vec![link("l", "../../../canary/secret"), file("l", bytes)],
        ),
        (
            "a file, then a link",
            &[6],
            vec![file("l", bytes), link("l", "../canary/secret")],
        ),
        (
            "a file that becomes a link",
            &[6],
            vec![
                piece("f", true, 3000, 0, &half),
                link("f", "../../../canary/secret"),
                piece("f", false, 3000, 1000, &half),
                piece("f", false, 3000, 2000, &half),
            ],
        ),
        (
            "file and directory",
            &[6],
            vec![file("x", bytes), dir("x"), file("x/y", bytes)],
        ),
        (
            "directory and file",
            &[6],
            vec![dir("x"), file("x/y", bytes), file("x", bytes)],
        ),
        ("twice", &[6], vec![file("x", b"one"), file("x", b"two")]),
        (
            "hard link upwards",
            &[4],
            vec![hard("h", "../canary/secret")],
        ),
        ("hard link, absolute", &[4], vec![hard("h", "/etc/passwd")]),
        (
            "hard link through a link",
            &[6],
            vec![link("l", "../../../canary"), hard("h", "l/secret")],
        ),
        ("hard link to nothing", &[6], vec![hard("h", "nowhere")]),
        ("hard link to itself", &[6], vec![hard("h", "h")]),
        (
            "hard link to a directory",
            &[6],
            vec![dir("d"), hard("h", "d")],
        ),
        (
            "the staging directory",
            &[6],
            vec![file(".longshore-restoring", bytes)],
        ),
        (
            "the lock",
            &[6],
            vec![file(".longshore-restoring/lock", bytes)],
        ),
        (
            "staged",
            &[6],
            vec![file(".longshore-restoring/new/x", bytes)],
        ),
        (
            "staged link",
            &[6],
            vec![link(".longshore-restoring", "../canary")],
        ),
        (
            "overlapping pieces",
            &[0, 4, 6],
            vec![
                piece("f", true, 1500, 0, &half),
                piece("f", false, 1500, 500, &half),
            ],
        ),
        (
            "a piece too many",
            &[0, 4, 6],
            vec![
                piece("f", true, 1000, 0, &half),
                piece("f", false, 1000, 0, &half),
            ],
        ),
        (
            "behind the end",
            &[4],
            vec![piece("f", true, 100, 0, &half)],
        ),
        (
            "2^62 bytes of nothing",
            &[0, 6],
            vec![(vec![entry("f", EntryKind::File, 1 << 62)], vec![])],
        ),
        (
            "2^62 bytes, the last ones written",
            &[0, 6],
            vec![piece("f", true, 1 << 62, (1 << 62) - 1000, &half)],
        ),
        (
            "2^63 bytes",
            &[4],
            vec![piece("f", true, 1 << 63, 0, &half)],
        ),
        (
            "an end beyond 2^64",
            &[4],
            vec![piece("f", true, 1 << 62, u64::MAX - 10, &half)],
        ),
    ];
    for (what, codes, blocks) in cases {
        let cage = Cage::new();
        craft(&cage.at("media/a.bak"), &HONEST, &blocks);
        let used = cage.restore(what, &[]);
        let code = used.code.unwrap();
        assert!(codes.contains(&code), "{what}: {code} {}", used.stderr);
        let left: Vec<_> = std::fs::read_dir(cage.at("target")).unwrap().collect();
        if code != 0 {
            assert!(left.is_empty(), "{what}: left {left:?}");
        }
        let here = |p: &Path| std::fs::symlink_metadata(p).map_or(0, |m| m.blocks() * 512);
        assert!(
            here(&cage.at("target/f")) < 1 << 20,
            "{what}: space was taken"
        );
        // The same with a replaced target, and for verify: a message, no harm.
        cage.restore(what, &["--replace"]);
        let verify = measure(
            &mut longshore(["verify".as_ref(), cage.at("media/a.bak").as_os_str()]),
            PATIENCE,
        );
        assert!(matches!(verify.code, Some(0 | 1 | 4)), "{what}: {verify:?}");
    }
}

/// The same block, of a file whose other bytes are the parent's.
fn based((mut items, plain): Block) -> Block {
    if let Item::Entry(entry) = &mut items[0] {
        entry.based = true;
    }
    (items, plain)
}

/// A set with an empty file whose bytes are all the parent's.
fn all_based(path: &str, len: u64) -> Block {
    based((vec![entry(path, EntryKind::File, len)], Vec::new()))
}

/// The name of the case, the exit codes that it may end with, the base's blocks and the newest set's.
type HostileChain = (&'static str, &'static [i32], Vec<Block>, Vec<Block>);

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn hostile_chains_touch_nothing_outside_the_target() {
    let bytes = b"evil".as_slice();
    let half = vec![1; 1000];
    let out = "../../../canary";
    let cases: Vec<HostileChain> = vec![
        (
            "upwards in the base",
            &[4],
            vec![file("../canary/secret", bytes)],
            vec![all_based("f", 4)],
        ),
        (
            "upwards in the newest",
            &[4],
            vec![file("f", bytes)],
            vec![all_based("../canary/secret", 4)],
        ),
        (
            "through a link of the newest",
            &[6],
            vec![dir("l"), file("l/secret", bytes)],
            vec![link("l", out), all_based("l/secret", 4)],
        ),
        (
            "through a link of the base, which nobody asks for",
            &[0],
            vec![link("l", out), file("l/secret", bytes)],
            vec![dir("l"), all_based("l/secret", 4)],
        ),
        (
            "a link and a based file",
            &[6],
            vec![file("secret", bytes)],
            vec![
                link("secret", "../../../canary/secret"),
                all_based("secret", 4),
            ],
        ),
        (
            "based on a link",
            &[4],
            vec![link("f", "../../../canary/secret")],
            vec![all_based("f", 4)],
        ),
        (
            "the staging directory",
            &[6],
            vec![file(".longshore-restoring/lock", bytes)],
            vec![all_based(".longshore-restoring/lock", 4)],
        ),
        (
            "2^62 bytes of the base",
            &[0, 6],
            vec![piece("f", true, 1 << 62, (1 << 62) - 1000, &half)],
            vec![all_based("f", 1 << 62)],
        ),
        (
            "2^62 bytes where the base has four",
            &[0, 6],
            vec![file("f", bytes)],
            vec![all_based("f", 1 << 62)],
        ),
        (
            "overlapping pieces in the base",
            &[0, 4],
            vec![
                piece("f", true, 1500, 0, &half),
                piece("f", false, 1500, 500, &half),
            ],
            vec![all_based("f", 1500)],
        ),
        (
            "overlapping pieces in the newest",
            &[4],
            vec![file("f", bytes)],
            vec![
                based(piece("f", true, 1500, 0, &half)),
                based(piece("f", false, 1500, 500, &half)),
            ],
        ),
        (
            "a base that the base does not have",
            &[4],
            vec![file("f", bytes)],
            vec![all_based("g", 4)],
        ),
        (
            "a whole set that says that it is based",
            &[4],
            vec![all_based("f", 4)],
            vec![all_based("f", 4)],
        ),
    ];
    for (what, codes, base, newest) in cases {
        let cage = Cage::new();
        let (set, parent) = (2, Some(1));
        craft(&cage.at("media/base.bak"), &HONEST, &base);
        craft(
            &cage.at("media/a.bak"),
            &Claims {
                set,
                parent,
                ..HONEST
            },
            &newest,
        );
        let at = cage.at("media/base.bak");
        let named = ["--base", at.to_str().unwrap()];
        let used = cage.restore(what, &named);
        let code = used.code.unwrap();
        assert!(codes.contains(&code), "{what}: {code} {}", used.stderr);
        let left: Vec<_> = std::fs::read_dir(cage.at("target")).unwrap().collect();
        assert_eq!(left.is_empty(), code != 0, "{what}: left {left:?}");
        let here = |p: &Path| std::fs::symlink_metadata(p).map_or(0, |m| m.blocks() * 512);
        assert!(
            here(&cage.at("target/f")) < 1 << 20,
            "{what}: space was taken"
        );
        cage.restore(what, &[named[0], named[1], "--replace"]);
        let verify = [
            "verify",
            cage.at("media/a.bak").to_str().unwrap(),
            named[0],
            named[1],
        ]
        .map(String::from);
        let verify = measure(&mut longshore(verify), PATIENCE);
        assert!(matches!(verify.code, Some(0 | 1 | 4)), "{what}: {verify:?}");
    }
}

#[test]
fn chains_that_lead_nowhere_are_refused_in_words() {
    for (what, claims) in [
        ("each other's parents", vec![(1, Some(2)), (2, Some(1))]),
        ("its own parent", vec![(1, None), (2, Some(2))]),
        (
            "a circle of three",
            vec![(1, Some(2)), (3, Some(1)), (2, Some(3))],
        ),
        ("nobody's child", vec![(7, None), (2, Some(9))]),
    ] {
        let cage = Cage::new();
        let mut bases = Vec::new();
        for (i, (set, parent)) in claims.iter().enumerate() {
            let (set, parent) = (*set, *parent);
            let name = match i + 1 == claims.len() {
                true => "media/a.bak".into(),
                false => format!("media/{i}.bak"),
            };
            craft(
                &cage.at(&name),
                &Claims {
                    set,
                    parent,
                    ..HONEST
                },
                &[all_based("f", 4)],
            );
            if name != "media/a.bak" {
                bases.push(cage.at(&name));
            }
        }
        let mut more = vec!["--base"];
        more.extend(bases.iter().map(|base| base.to_str().unwrap()));
        let used = cage.restore(what, &more);
        assert_eq!(used.code, Some(4), "{what}: {}", used.stderr);
    }
}

#[test]
fn hostile_claims_allocate_nothing() {
    for (what, claims, codes) in [
        (
            "a buffer of 4 MiB",
            Claims {
                buffer_bytes: 4 << 20,
                ..HONEST
            },
            &[0][..],
        ),
        (
            "a buffer of one byte more",
            Claims {
                buffer_bytes: (4 << 20) + 1,
                ..HONEST
            },
            &[4],
        ),
        (
            "a buffer of 4 GiB",
            Claims {
                buffer_bytes: u32::MAX,
                ..HONEST
            },
            &[4],
        ),
        (
            "a buffer of nothing",
            Claims {
                buffer_bytes: 0,
                ..HONEST
            },
            &[4],
        ),
        (
            "a buffer of one byte",
            Claims {
                buffer_bytes: 1,
                ..HONEST
            },
            &[4],
        ),
        (
            "more than the disk holds",
            Claims {
                plain_bytes: Some(u64::MAX),
                ..HONEST
            },
            &[6],
        ),
        (
            "another total",
            Claims {
                plain_bytes: Some(1),
                ..HONEST
            },
            &[4],
        ),
        (
            "an unknown source",
            Claims {
                source_kind: 77,
                ..HONEST
            },
            &[4],
        ),
    ] {
        let cage = Cage::new();
        craft(
            &cage.at("media/a.bak"),
            &claims,
            &[file("x", b"some bytes")],
        );
        let used = cage.restore(what, &[]);
        assert!(codes.contains(&used.code.unwrap()), "{what}: {used:?}");
        let names = std::fs::read_dir(cage.at("target")).unwrap().count();
        assert_eq!(names, usize::from(used.code == Some(0)), "{what}");
    }
}

#[test]
fn links_that_wait_in_the_target_are_not_followed() {
    let blocks = [
        file("x", b"restored"),
        dir("d"),
        file("d/secret", b"restored"),
    ];
    for (what, place, points_to, code) in [
        ("a file", "target/x", "../canary/secret", 0),
        ("a directory", "target/d", "../canary", 0),
        ("staging", "target/.longshore-restoring", "../canary", 6),
    ] {
        let cage = Cage::new();
        craft(&cage.at("media/a.bak"), &HONEST, &blocks);
        symlink(points_to, cage.at(place)).unwrap();
        assert_eq!(cage.restore(what, &[]).code, Some(6), "{what}");
        let used = cage.restore(what, &["--replace"]);
        assert_eq!(used.code, Some(code), "{what}: {}", used.stderr);
        if code == 0 {
            let tree = read(&cage.at("target"));
            assert_eq!(tree[Path::new("x")], b"restored", "{what}");
            assert_eq!(tree[Path::new("d/secret")], b"restored", "{what}");
        }
    }
}

/// Two backup sets over one or three stripes, and where they are.
fn stripes(dir: &Path, algorithm: &str, count: u64) -> Vec<PathBuf> {
    let source = dir.join("source");
    let tree: Tree = [
        ("big".into(), content(1, 900_000)),
        ("small/one".into(), content(2, 3000)),
        ("small/two".into(), vec![]),
    ]
    .into();
    put(&source, &tree);
    let stripes: Vec<_> = (0..count).map(|i| dir.join(format!("stripe{i}"))).collect();
    let mut args = vec!["backup".into(), source.into_os_string()];
    for stripe in &stripes {
        args.extend(["--to".into(), stripe.into()]);
    }
    args.extend(
        [
            "--algorithm",
            algorithm,
            "--max-transfer-size",
            "64K",
            "--quiet",
        ]
        .map(Into::into),
    );
    expect(0, &args);
    args.push("--append".into());
    expect(0, &args);
    stripes
}

/// Goal: damage is told from a set that was never there, also on a stripe that got no block of any set.
#[test]
fn a_stripe_that_is_cut_anywhere_is_damaged_media_and_not_a_set_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let tree: Tree = [("one".into(), content(2, 3000))].into();
    put(&dir.path().join("source"), &tree);
    let stripes: Vec<_> = (0..3)
        .map(|i| dir.path().join(format!("stripe{i}")))
        .collect();
    let mut args = vec!["backup".into(), dir.path().join("source").into_os_string()];
    for stripe in &stripes {
        args.extend(["--to".into(), stripe.into()]);
    }
    expect(0, &args);
    args.push("--append".into());
    expect(0, &args);
    let names: Vec<_> = stripes.iter().map(|s| s.as_os_str()).collect();
    let verify = [&["verify".as_ref()], &names[..]].concat();
    let shortest = stripes
        .iter()
        .min_by_key(|s| std::fs::metadata(s).unwrap().len());
    let shortest = shortest.unwrap();
    let good = std::fs::read(shortest).unwrap();
    assert!(good.len() < 3000, "it has a block");
    for at in (0..good.len()).step_by(41) {
        std::fs::write(shortest, &good[..at]).unwrap();
        let verified = longshore(&verify).output().unwrap();
        let said = text(&verified.stderr) + &text(&verified.stdout);
        assert_eq!(verified.status.code(), Some(1), "cut at {at}: {said}");
        assert!(
            said.contains(shortest.to_str().unwrap()),
            "cut at {at}: {said}"
        );
        assert!(!said.contains("3287"), "cut at {at}: {said}");
    }
    std::fs::write(shortest, &good).unwrap();
    expect(0, &verify);
}

#[test]
fn every_flipped_bit_and_every_lost_end_is_found_and_its_device_is_named() {
    let rounds = from_env("LONGSHORE_FLIPS", 60);
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(rounds);
    for (i, algorithm) in ["NONE", "MS_XPRESS", "QAT_DEFLATE", "ZSTD", "LZ4", "PAGES"]
        .iter()
        .enumerate()
    {
        let dir = dir.path().join(algorithm);
        let count = if i % 2 == 0 { 3 } else { 1 };
        let stripes = stripes(&dir, algorithm, count);
        let whole = read(&dir.join("source"));
        let names: Vec<_> = stripes.iter().map(|s| s.as_os_str()).collect();
        let verify: Vec<_> = ["verify".as_ref()]
            .into_iter()
            .chain(names.clone())
            .collect();
        expect(0, &verify);
        for round in 0..rounds / 6 {
            let stripe = &stripes[random.below(count) as usize];
            let good = std::fs::read(stripe).unwrap();
            let mut bad = good.clone();
            // The ends, where headers and trailers are, are hit as often as the middle.
            let at = match random.below(3) {
                0 => random.below(700.min(good.len() as u64)) as usize,
                1 => good.len() - 1 - random.below(1500.min(good.len() as u64 - 1)) as usize,
                _ => random.below(good.len() as u64) as usize,
            };
            let what = match (round + i as u64) % 4 {
                0 => {
                    bad.truncate(at);
                    format!(
                        "{algorithm}: {} cut at {at} of {}",
                        stripe.display(),
                        good.len()
                    )
                }
                _ => {
                    let bit = random.below(8);
                    bad[at] ^= 1 << bit;
                    format!(
                        "{algorithm}: {} bit {bit} at {at} of {}",
                        stripe.display(),
                        good.len()
                    )
                }
            };
            std::fs::write(stripe, &bad).unwrap();
            let verified = longshore(&verify).output().unwrap();
            let said = text(&verified.stderr) + &text(&verified.stdout);
            assert_eq!(verified.status.code(), Some(1), "{what}: {said}");
            assert!(said.contains(stripe.to_str().unwrap()), "{what}: {said}");
            // The other set may still be intact; then it restores completely.
            let mut refused = 0;
            for position in ["1", "2"] {
                let target = dir.join("out");
                let mut restore: Vec<_> = vec!["restore".as_ref()];
                restore.extend(&names);
                restore.extend(["--position", position, "--to"].map(std::ffi::OsStr::new));
                restore.push(target.as_os_str());
                let restored = longshore(&restore).output().unwrap();
                let said = text(&restored.stderr);
                let left = read(&target);
                if restored.status.success() {
                    assert!(left == whole, "{what}: set {position} differs");
                    std::fs::remove_dir_all(&target).unwrap();
                    continue;
                }
                refused += 1;
                assert_eq!(restored.status.code(), Some(4), "{what}: {said}");
                assert!(said.contains(stripe.to_str().unwrap()), "{what}: {said}");
                assert!(left.is_empty(), "{what}: left {:?}", left.keys());
            }
            assert!(refused > 0, "{what}: nothing was refused");
            std::fs::write(stripe, &good).unwrap();
        }
        expect(0, &verify);
    }
}
