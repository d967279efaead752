//! Goal: a differential backup of files or of a SQLite database stores exactly the pages that differ from its base, and
//! its chain restores to what a full backup of the same moment restores to.
//! Method: random trees and databases, changed at random for some generations. Each generation is backed up in full, and
//! as a differential set on the one before it or on the first. Both are restored and compared; the pages that must
//! differ are counted from the files themselves.
//! Not covered: PostgreSQL's clusters (`postgres_backup`), and chains that no writer makes (`chain.rs`).

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::*;
use longshore_codec::Algorithm;
use longshore_kit::Random;
use longshore_media::{DeviceSpec, Disposition};
use longshore_pipeline::{
    Against, BackupReport, BackupRequest, BaseRequest, Error, SourceSpec, Tuning,
};

const PAGE: usize = 8192;

/// A source, and the backups of its generations.
struct Stage {
    dir: tempfile::TempDir,
    spec: SourceSpec,
    tuning: Tuning,
}

impl Stage {
    fn new(spec: impl Fn(&Path) -> SourceSpec) -> Stage {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("source")).unwrap();
        let spec = spec(&dir.path().join("source"));
        let tuning = Tuning::default();
        Stage { dir, spec, tuning }
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn devices(&self, name: &str) -> Vec<DeviceSpec> {
        let dir = self.dir.path().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        stripes(&dir, 2)
    }

    fn request(&self, name: &str, base: Option<(&str, Against)>) -> BackupRequest {
        let mut request = backup_request(self.spec.clone(), self.devices(name), Algorithm::Zstd);
        request.tuning = self.tuning;
        request.page_sums = true;
        request.base = base.map(|(base, against)| BaseRequest {
            set: None,
            against,
            devices: self.devices(base),
        });
        request
    }

    fn backup(&self, name: &str, base: Option<(&str, Against)>) -> BackupReport {
        backup(&context(), self.request(name, base)).unwrap()
    }

    /// The restored tree of a set and the sets that it needs.
    fn restored(&self, name: &str, bases: &[String]) -> BTreeMap<PathBuf, String> {
        let to = tempfile::tempdir_in(self.dir.path()).unwrap();
        let target = to.path().join("to");
        let mut request = restore_request(self.devices(name), &target);
        let bases: Vec<DeviceSpec> = bases.iter().flat_map(|base| self.devices(base)).collect();
        request.bases = bases.clone();
        restore(&context(), request).unwrap();
        let checked = verify_with(&context(), self.devices(name), bases).unwrap();
        assert!(checked.findings.is_empty(), "{checked:?}");
        let found = describe(&target);
        // Directories that a test made without the right to write would stay.
        drop(to);
        found
    }
}

fn all_files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut stack = vec![root.to_path_buf()];
    while let Some(path) = stack.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            stack.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        } else if meta.is_file() {
            let name = path.strip_prefix(root).unwrap().to_path_buf();
            found.insert(name, std::fs::read(&path).unwrap());
        }
    }
    found
}

/// Bytes of the pages of files that both trees have, and that differ.
fn differing(
    before: &BTreeMap<PathBuf, Vec<u8>>,
    now: &BTreeMap<PathBuf, Vec<u8>>,
    page: usize,
) -> u64 {
    let mut bytes = 0;
    for (path, new) in now {
        let Some(old) = before.get(path).filter(|old| !old.is_empty()) else {
            continue;
        };
        let mut old = old.chunks(page);
        for new in new.chunks(page) {
            bytes += match old.next() == Some(new) {
                true => 0,
                false => new.len() as u64,
            };
        }
    }
    bytes
}

/// Changes a file in a way that moves its end over a page's borders, or leaves it.
fn touch(random: &mut Random, path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    match random.below(6) {
        0 => bytes.truncate(random.below(bytes.len() + 1)),
        1 => bytes.extend(content(random.next(), random.below(3 * PAGE))),
        2 => bytes.resize(bytes.len().next_multiple_of(PAGE), 7),
        3 => bytes.extend(vec![0; random.below(2 * PAGE)]),
        _ if bytes.is_empty() => bytes.push(1),
        _ => {
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
        }
    }
    std::fs::write(path, bytes).unwrap();
}

fn new_file(random: &mut Random, path: &Path) {
    let len = [
        0,
        1,
        100,
        PAGE - 1,
        PAGE,
        PAGE + 1,
        5 * PAGE,
        40 * PAGE + 17,
    ][random.below(8)];
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content(random.next(), len)).unwrap();
}

fn change(random: &mut Random, root: &Path) {
    let files: Vec<PathBuf> = all_files(root).into_keys().collect();
    for file in &files {
        let path = root.join(file);
        match random.below(12) {
            0 => std::fs::remove_file(&path).unwrap(),
            1 => {
                std::fs::remove_file(&path).unwrap();
                std::os::unix::fs::symlink("elsewhere", &path).unwrap();
            }
            2 => {
                let to = root.join(format!("renamed-{}", random.below(1000)));
                std::fs::rename(&path, to).unwrap();
            }
            3 => {
                std::fs::remove_file(&path).unwrap();
                new_file(random, &path);
            }
            4..7 => touch(random, &path),
            _ => {}
        }
    }
    for _ in 0..random.below(4) {
        let path = root.join(format!("d{}/n{}", random.below(3), random.below(1000)));
        new_file(random, &path);
    }
}

#[test]
fn a_chain_of_files_is_what_a_full_backup_of_the_moment_is() {
    for seed in 1..=6 {
        let mut random = Random(seed);
        let mut stage = Stage::new(|root| SourceSpec::Files(vec![root.into()]));
        // Small buffers split files, and large ones gather them.
        stage.tuning.buffer_bytes = Some([64 << 10, 1 << 20][seed as usize % 2]);
        let root = stage.source();
        for n in 0..20 {
            new_file(&mut random, &root.join(format!("d{}/f{n}", n % 3)));
        }
        let has_links = seed % 3 == 0;
        if has_links {
            std::fs::hard_link(root.join("d0/f0"), root.join("hard")).unwrap();
        }
        stage.backup("g0", None);
        let mut before = vec![all_files(&root)];
        for generation in 1..5 {
            change(&mut random, &root);
            let incremental = random.one_in(2);
            let (against, parent) = match incremental {
                true => (Against::Newest, generation - 1),
                false => (Against::LastFull, 0),
            };
            let name = format!("g{generation}");
            let now = all_files(&root);
            let report = stage.backup(&name, Some((&format!("g{parent}"), against)));
            let found = report.differential.unwrap();
            let expected = differing(&before[parent], &now, PAGE);
            // A second name of a file is an entry without bytes.
            if !has_links {
                assert_eq!(
                    found.changed_bytes, expected,
                    "seed {seed}, generation {generation}"
                );
            }
            let full = format!("full{generation}");
            stage.backup(&full, None);
            let bases: Vec<String> = (0..generation).rev().map(|g| format!("g{g}")).collect();
            let chain = stage.restored(&name, &bases);
            assert_eq!(
                chain,
                stage.restored(&full, &[]),
                "seed {seed}, generation {generation}"
            );
            before.push(now);
        }
    }
}

/// Goal: nothing that stayed as it was is stored again, whatever the length of the last page.
#[test]
fn an_unchanged_tree_stores_no_bytes() {
    let stage = Stage::new(|root| SourceSpec::Files(vec![root.into()]));
    for (n, len) in [1, 100, PAGE - 1, PAGE, PAGE + 1, 30 * PAGE + 5]
        .into_iter()
        .enumerate()
    {
        std::fs::write(stage.source().join(n.to_string()), content(n as u64, len)).unwrap();
    }
    // Holes: one at the end of a page that is not whole, and one of many pages.
    let sparse = std::fs::File::create(stage.source().join("sparse")).unwrap();
    sparse.set_len(40 * PAGE as u64 + 77).unwrap();
    sparse.write_all_at(b"island", 20 * PAGE as u64).unwrap();
    stage.backup("full", None);
    let report = stage.backup("diff", Some(("full", Against::LastFull)));
    assert_eq!(report.plain_bytes, 0);
    let found = report.differential.unwrap();
    assert_eq!((found.changed_bytes, found.based_files), (0, 7));
    let chain = stage.restored("diff", &["full".into()]);
    assert_eq!(chain, stage.restored("full", &[]));
    // One byte in the last page of one file, and in the hole of another.
    let one = std::fs::OpenOptions::new()
        .write(true)
        .open(stage.source().join("5"))
        .unwrap();
    one.write_all_at(b"!", 30 * PAGE as u64 + 4).unwrap();
    sparse.write_all_at(b"!", 40 * PAGE as u64 + 76).unwrap();
    let report = stage.backup("next", Some(("diff", Against::Newest)));
    assert_eq!(report.plain_bytes, 5 + 77);
    let chain = stage.restored("next", &["diff".into(), "full".into()]);
    stage.backup("whole", None);
    assert_eq!(chain, stage.restored("whole", &[]));
}

#[test]
fn a_chain_of_a_database_is_what_a_full_backup_of_the_moment_is() {
    for (seed, page) in [512, 1024, 4096, 8192, 65_536].into_iter().enumerate() {
        let mut random = Random(seed as u64 + 1);
        let stage = Stage::new(|root| SourceSpec::Sqlite(root.join("app.db")));
        let path = stage.source().join("app.db");
        let db = rusqlite::Connection::open(&path).unwrap();
        let journal = ["wal", "delete"][seed % 2];
        db.execute_batch(&format!(
            "PRAGMA page_size = {page}; PRAGMA auto_vacuum = FULL; PRAGMA journal_mode = {journal};
             CREATE TABLE t (i INTEGER PRIMARY KEY, x BLOB)"
        ))
        .unwrap();
        let fill = |count: usize, random: &mut Random| {
            for _ in 0..count {
                let x = content(random.next(), random.below(3000));
                db.execute("INSERT INTO t (x) VALUES (?1)", [x]).unwrap();
            }
        };
        db.execute_batch("BEGIN").unwrap();
        fill(1200, &mut random);
        db.execute_batch("COMMIT").unwrap();
        let full = stage.backup("g0", None);
        for generation in 1..5 {
            db.execute_batch("BEGIN").unwrap();
            match random.below(4) {
                0 => db.execute_batch("DELETE FROM t WHERE i % 3 = 0").unwrap(),
                1 => fill(300, &mut random),
                _ => db
                    .execute_batch("UPDATE t SET x = zeroblob(20) WHERE i % 97 = 0")
                    .unwrap(),
            }
            db.execute_batch("COMMIT").unwrap();
            let name = format!("g{generation}");
            let parent = format!("g{}", generation - 1);
            let report = stage.backup(&name, Some((&parent, Against::Newest)));
            assert!(report.plain_bytes < full.plain_bytes * 2);
            let whole = format!("full{generation}");
            let report = stage.backup(&whole, None);
            let bases: Vec<String> = (0..generation).rev().map(|g| format!("g{g}")).collect();
            let chain = stage.restored(&name, &bases);
            assert_eq!(chain, stage.restored(&whole, &[]), "pages of {page}");
            assert!(report.plain_bytes > 0);
        }
        // Nothing changed: not a page is stored.
        let report = stage.backup("same", Some(("g4", Against::Newest)));
        assert_eq!((report.plain_bytes, page), (0, page));
    }
}

#[test]
fn only_a_set_of_the_same_kind_with_sums_is_a_base() {
    let stage = Stage::new(|root| SourceSpec::Files(vec![root.into()]));
    std::fs::write(stage.source().join("f"), content(1, 50_000)).unwrap();
    let refused = |name: &str| {
        let wanted = stage.request("refused", Some((name, Against::LastFull)));
        match backup(&context(), wanted).unwrap_err() {
            Error::NoBase { reasons } => reasons,
            other => panic!("{other}"),
        }
    };
    let mut copy = stage.request("copy", None);
    copy.copy_only = true;
    backup(&context(), copy).unwrap();
    assert!(refused("copy").contains("is copy-only"));

    let database = Stage::new(|root| SourceSpec::Sqlite(root.join("app.db")));
    let db = rusqlite::Connection::open(database.source().join("app.db")).unwrap();
    db.execute_batch("CREATE TABLE t (x)").unwrap();
    let mut other = database.request("other", None);
    other.devices = stage.devices("other");
    backup(&context(), other).unwrap();
    assert!(refused("other").contains("is of another kind of source"));

    // The media may be a copy that was made before the newest set.
    let set = backup(&context(), stage.request("older", None))
        .unwrap()
        .set;
    let with_base = |set| {
        let mut wanted = stage.request("newer", Some(("older", Against::LastFull)));
        wanted.base.as_mut().unwrap().set = Some(set);
        backup(&context(), wanted)
    };
    let told = with_base(uuid::Uuid::from_u128(7)).unwrap_err().to_string();
    assert!(told.contains("is not the newest full backup"), "{told}");
    assert_eq!(with_base(set).unwrap().differential.unwrap().parent, set);

    let mut bare = stage.request("bare", None);
    bare.page_sums = false;
    backup(&context(), bare).unwrap();
    assert!(refused("bare").contains("without --page-sums"));

    // The media of the base cannot be overwritten, and can be appended to.
    stage.backup("full", None);
    let mut over = stage.request("full", Some(("full", Against::LastFull)));
    over.disposition = Disposition::Init { skip: true };
    let error = backup(&context(), over.clone()).unwrap_err();
    assert!(matches!(error, Error::BaseOverwritten { .. }), "{error}");
    over.disposition = Disposition::Append;
    let report = backup(&context(), over).unwrap();
    assert_eq!((report.position, report.plain_bytes), (2, 0));
}
