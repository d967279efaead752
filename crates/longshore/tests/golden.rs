//! Goal: every version reads what an earlier version wrote.
//! Method: the stripes of `tests/golden/v1` to `v9` are never written again. The program, and the reader that was
//! written from `docs/format.md` alone, verify and restore them; the results are compared with their descriptions.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use longshore_io::{Host, Storage, Xattr};
use longshore_kit::program;

/// Directory, position, description of the restored content.
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

fn golden_2() -> PathBuf {
    tests().join("golden/v2")
}

fn golden_3() -> PathBuf {
    tests().join("golden/v3")
}

/// Directory, position, description of the restored content.
const SETS_3: [(&str, &str, &str); 4] = [
    ("sqlite", "1", "sqlite.txt"),
    ("sqlite_log", "1", "sqlite_log-1.txt"),
    ("sqlite_log", "2", "sqlite_log-2.txt"),
    ("branch", "1", "branch.txt"),
];

/// The stripes of a media set, last one first: their order does not matter.
fn stripes(media: &str) -> Vec<PathBuf> {
    stripes_at(golden().join(media))
}

fn stripes_2(media: &str) -> Vec<PathBuf> {
    stripes_at(golden_2().join(media))
}

fn stripes_at(dir: PathBuf) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths.reverse();
    paths
}

/// Runs a program to its end. A missing program is a failure if `LONGSHORE_REQUIRE_TOOLS` is set; otherwise it is
/// skipped.
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

/// Every file of a version's media is as it was released, where sha256sum is installed.
fn is_untouched(golden: &Path) {
    let mut sums = Command::new("sha256sum");
    sums.args(["--strict", "--quiet", "-c", "SHA256SUMS"]);
    if let Some(output) = run(sums.current_dir(golden)) {
        succeeds(&output);
    }
}

fn longshore(args: &[&str], paths: &[PathBuf]) -> Output {
    let mut command = program::command(env!("CARGO_BIN_EXE_longshore"), ["--quiet"]);
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
    described_at(&golden().join(file))
}

fn described_at(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
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
    is_untouched(&golden());
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
    is_untouched(&golden_2());
    is_untouched(&golden_3());
    let listed = std::fs::read_to_string(golden_3().join("SHA256SUMS")).unwrap();
    let media = ["sqlite", "sqlite_log", "branch"];
    let there = media.map(|media| stripes_at(golden_3().join(media)).len());
    assert_eq!(listed.lines().count(), there.iter().sum::<usize>());
}

/// The released versions of the changelog that have no row with media that are there.
fn without_media(changelog: &str, page: &str, kept: &[String]) -> Vec<String> {
    let (_, rows) = page.split_once("## Released versions").unwrap();
    let has_media = |version: &str| {
        let head = format!("| {version} | ");
        let row = rows.lines().find_map(|line| line.strip_prefix(&head));
        row.is_some_and(|media| {
            let mut names = media.split('`').skip(1).step_by(2).peekable();
            names.peek().is_some() && names.all(|name| kept.iter().any(|kept| kept == name))
        })
    };
    let headings = changelog
        .lines()
        .filter_map(|line| line.strip_prefix("## "));
    let released = headings.filter(|heading| !heading.ends_with("(not released)"));
    let versions = released.map(|heading| heading.split(' ').next().unwrap());
    versions
        .filter(|version| !has_media(version))
        .map(str::to_owned)
        .collect()
}

/// Goal: the media of a released version are never lost, and none is released without some.
#[test]
fn media_of_every_released_version_are_kept() {
    // A directory is added here and never taken away.
    let kept = [
        "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v9", "wal-v1", "wal-v2",
    ]
    .map(str::to_owned);
    for name in &kept {
        let sums = tests().join("golden").join(name).join("SHA256SUMS");
        assert!(sums.is_file(), "{}", sums.display());
    }
    let page = std::fs::read_to_string(tests().join("golden/README.md")).unwrap();
    let changelog = std::fs::read_to_string(tests().join("../CHANGELOG.md")).unwrap();
    assert_eq!(
        without_media(&changelog, &page, &kept),
        Vec::<String>::new()
    );
    // The comparison after releases.
    let changelog = "## 0.3.0 (not released)\n## 0.2.0 (2027-01-01)\n## 0.1.0 (2026-12-01)\n";
    let rows = |rows: &str| format!("## Released versions\n| version | media |\n{rows}");
    let first = "| 0.1.0 | `v1`, `wal-v1` |\n";
    assert_eq!(without_media(changelog, &rows(first), &kept), ["0.2.0"]);
    let lost = format!("{first}| 0.2.0 | `v99` |\n");
    assert_eq!(without_media(changelog, &rows(&lost), &kept), ["0.2.0"]);
    let none = format!("{first}| 0.2.0 | none |\n");
    assert_eq!(without_media(changelog, &rows(&none), &kept), ["0.2.0"]);
    let all = format!("{first}| 0.2.0 | `v6` |\n");
    assert!(without_media(changelog, &rows(&all), &kept).is_empty());
}

/// Three data stripes and two of parity: any two may be lost.
#[test]
fn golden_stripes_with_parity_are_restored_without_any_two_of_them() {
    let golden = tests().join("golden/v4");
    is_untouched(&golden);
    let all = stripes_at(golden.join("parity"));
    assert_eq!(all.len(), 5);
    succeeds(&longshore(&["verify"], &all));
    for first in 0..5 {
        for second in 0..first {
            let left = all.iter().enumerate();
            let left = left.filter(|(i, _)| *i != first && *i != second);
            let left: Vec<PathBuf> = left.map(|(_, path)| path.clone()).collect();
            let dir = tempfile::tempdir().unwrap();
            let to = dir.path().join("to");
            let restored = longshore(&["restore", "--to", to.to_str().unwrap()], &left);
            assert_eq!(restored.status.code(), Some(5), "{first} {second}");
            assert_eq!(describe(&to), described("tree-1.txt"), "{first} {second}");
            let to = dir.path().join("reader");
            let mut reader = Command::new("python3");
            reader
                .arg("-B")
                .arg(tests().join("reader/longshore_reader.py"))
                .args(["restore", "--to"])
                .arg(&to)
                .args(&left);
            let Some(output) = run(&mut reader) else {
                return;
            };
            succeeds(&output);
            assert_eq!(describe(&to), described("tree-1.txt"), "{first} {second}");
        }
    }
}

/// Goal: the directory of a tree comes back with what it had, and a set that has none leaves it as it is made.
#[test]
fn the_golden_tree_has_a_directory_of_its_own() {
    let golden = tests().join("golden/v9");
    is_untouched(&golden);
    let python = || {
        let mut command = Command::new("python3");
        command
            .arg("-B")
            .arg(tests().join("reader/longshore_reader.py"));
        command
    };
    for (media, is_known) in [("root", true), ("several", false)] {
        let stripes = stripes_at(golden.join(media));
        succeeds(&longshore(&["verify"], &stripes));
        let dir = tempfile::tempdir().unwrap();
        let own = |path: &Path| {
            let found = std::fs::metadata(path).unwrap();
            let opened = Host::new().dir(path).unwrap();
            let attributes = opened.xattrs(Path::new("")).unwrap();
            let is_note = |x: &Xattr| x.name == b"user.note" && x.value == b"kept for ever";
            let note = attributes.read.iter().any(is_note);
            (found.mode() & 0o7777, found.mtime(), note)
        };
        let wanted = (0o2750, 1_000_000_000, true);
        let to = dir.path().join("to");
        succeeds(&longshore(
            &["restore", "--to", to.to_str().unwrap()],
            &stripes,
        ));
        assert_eq!(own(&to) == wanted, is_known, "{media}: {:?}", own(&to));
        let to = dir.path().join("reader");
        let mut reader = python();
        reader.args(["restore", "--to"]).arg(&to).args(&stripes);
        let Some(output) = run(&mut reader) else {
            continue;
        };
        succeeds(&output);
        assert_eq!(own(&to) == wanted, is_known, "{media}: {:?}", own(&to));
        let facts = run(python().arg("facts").args(&stripes)).unwrap();
        let wanted = std::fs::read_to_string(golden.join(format!("{media}.facts"))).unwrap();
        assert_eq!(String::from_utf8_lossy(&facts.stdout), wanted);
    }
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

/// The facts about its source in the header of a set, in the lines of the reader's command `facts`.
fn facts(header: &longshore_media::SetHeader) -> Vec<String> {
    use longshore_pg::lineage::LineageVerdict;
    let mut lines = vec![format!("source_kind: {}", header.source_kind)];
    let hex = |digest: &longshore_pg::lineage::Digest| -> String {
        digest.0.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    if let Some(lineage) = longshore_pg::Lineage::decode(&header.lineage) {
        let mut say = |name: &str, value: String| lines.push(format!("lineage.{name}: {value}"));
        say("system", lineage.system.to_string());
        say("timeline", lineage.timeline.number().to_string());
        say("reached", lineage.reached.0.to_string());
        say("checkpoint", lineage.checkpoint.0.to_string());
        say("next_xid", lineage.next_xid.to_string());
        say("home", hex(&lineage.home.unwrap()));
        say("in_recovery", u8::from(lineage.in_recovery).to_string());
        say("run", hex(&lineage.run.unwrap()));
        let witness = lineage.witness.unwrap();
        say("witness_timeline", witness.timeline.number().to_string());
        say("witness_len", witness.len_bytes.to_string());
        say("witness_start", witness.start.0.to_string());
        say("witness_page", witness.page_bytes.to_string());
        say("witness", hex(&witness.digest));
        // Only comparisons of lineages use these two.
        say(
            "way",
            hex(&longshore_pg::lineage::Digest(
                header.lineage[108..124].try_into().unwrap(),
            )),
        );
        say("older_left_out", (header.lineage[12] >> 1 & 1).to_string());
        for ancestor in lineage.line.unwrap().ancestors() {
            let (timeline, end) = (ancestor.timeline.number(), ancestor.end.0);
            say(
                "ancestor",
                format!("{timeline} left at {end}, way {}", hex(&ancestor.way)),
            );
        }
        for known in &lineage.known {
            let verdict = match known.verdict {
                LineageVerdict::Follows => 1,
                LineageVerdict::Apart => 2,
                LineageVerdict::Seen => 3,
            };
            let set = uuid::Uuid::from_bytes(known.set);
            say("known", format!("{set} verdict {verdict}"));
        }
        let before = witness.before.unwrap();
        say(
            "before",
            format!("{} bytes, {}", before.len_bytes, hex(&before.digest)),
        );
    }
    let identity = &header.identity;
    if !identity.births_ns.is_empty() {
        lines.push(format!("identity.name: {}", identity.name));
        let births = identity.births_ns.iter();
        lines.extend(births.map(|birth| format!("identity.birth: {birth}")));
    }
    lines
}

/// Goal: the program, and the reader that was written from the page alone, read the same of a source's lineage and identity.
#[test]
fn both_readers_find_the_same_facts_about_the_sources() {
    for media in ["sqlite", "sqlite_log", "branch"] {
        let wanted = std::fs::read_to_string(golden_3().join(format!("{media}.facts"))).unwrap();
        let stripes = stripes_at(golden_3().join(media));
        let opened = open_all(&stripes);
        let mut found = String::new();
        for (position, set) in (1..).zip(opened.sets().unwrap()) {
            for fact in facts(&set.header) {
                found += &format!("set {position} {fact}\n");
            }
        }
        assert_eq!(found, wanted, "{media}");
        let mut python = Command::new("python3");
        python
            .arg("-B")
            .arg(tests().join("reader/longshore_reader.py"));
        if let Some(output) = run(python.arg("facts").args(&stripes)) {
            succeeds(&output);
            assert_eq!(String::from_utf8_lossy(&output.stdout), wanted, "{media}");
        }
    }
    // Without these the files above show nothing.
    let facts = |media: &str| std::fs::read_to_string(golden_3().join(media)).unwrap();
    assert_eq!(facts("sqlite.facts").matches("identity.birth").count(), 2);
    assert_eq!(facts("branch.facts").matches("lineage.ancestor").count(), 1);
    assert_eq!(facts("branch.facts").matches("lineage.known").count(), 2);
}

/// Goal: what each reader restores of the sets of `v3` is what was restored when they were made.
#[test]
fn both_readers_restore_the_golden_databases() {
    let python = |file: &str| {
        let mut command = Command::new("python3");
        command.arg("-B").arg(tests().join(file));
        command
    };
    for (media, position, description) in SETS_3 {
        let stripes = stripes_at(golden_3().join(media));
        succeeds(&longshore(&["verify"], &stripes));
        let wanted = golden_3().join(description);
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("to");
        let at = [
            "restore",
            "--position",
            position,
            "--to",
            to.to_str().unwrap(),
        ];
        let mut args = at.to_vec();
        if media == "branch" {
            // The set lacks its WAL. No server is started that would want it.
            args.extend(["--restore-command", "cp /nowhere/%f %p"]);
        }
        succeeds(&longshore(&args, &stripes));
        let (mut found, mut expected) = (describe(&to), described_at(&wanted));
        if media == "branch" {
            (found, expected) = (relations(found), relations(expected));
            assert!(expected.len() > 200);
        }
        assert_eq!(found, expected, "{media} {position}");
        let to = dir.path().join("by the reader");
        let at = [
            "restore",
            "--position",
            position,
            "--to",
            to.to_str().unwrap(),
        ];
        let mut restore = python("reader/longshore_reader.py");
        let Some(restored) = run(restore.args(at).args(&stripes)) else {
            return;
        };
        succeeds(&restored);
        let found = run(python("golden/describe.py").arg(&to)).unwrap();
        assert!(
            found.stdout == std::fs::read(wanted).unwrap(),
            "{media} {position}"
        );
    }
}

fn open_all(stripes: &[PathBuf]) -> longshore_media::MediaSet {
    let storage: std::sync::Arc<dyn longshore_io::Storage> =
        std::sync::Arc::new(longshore_io::Host::new());
    let open = |path: &PathBuf| longshore_media::DeviceSpec::File(path.clone()).open(&storage);
    let devices: Vec<_> = stripes.iter().map(open).collect();
    longshore_media::MediaSet::open(&devices).unwrap()
}

/// A restore makes a cluster from the set: the files that it adds for that are not in the set.
fn relations(mut lines: Vec<String>) -> Vec<String> {
    lines.retain(|line| line.starts_with('f') && line.contains(" base/"));
    lines
}

/// The media of `v2`, and the properties that their sets must have; without them the test shows nothing.
fn opened(media: &str) -> (longshore_media::MediaSet, longshore_media::SetHeader) {
    let media = open_all(&stripes_2(media));
    let header = media.set(0).unwrap().header;
    (media, header)
}

#[test]
fn the_golden_sets_of_a_cluster_have_sums_lineage_and_attributes() {
    let (full, full_header) = opened("full");
    let (_, differential) = opened("differential");
    let (log, log_header) = opened("log");
    assert!(full_header.sum_key.is_some() && differential.sum_key.is_some());
    assert_eq!(differential.parent, Some(full_header.set));
    for header in [&full_header, &differential, &log_header] {
        let lineage = &header.lineage;
        assert!(lineage.len() >= 128, "{:?}", header.backup_type);
        let witness_len = u32::from_le_bytes(lineage[76..80].try_into().unwrap());
        assert!(witness_len > 0, "{:?}", header.backup_type);
    }
    let end = log.set(0).unwrap().trailer.unwrap().log;
    assert!(end.last_lsn > log_header.log.first_lsn);
    let mut sums = 0;
    let count = |item| sums += usize::from(matches!(item, longshore_media::Item::Sums(_)));
    full.items(1, count).unwrap();
    assert!(sums > 100, "{sums}");
    let mut attributes = Vec::new();
    opened("attributes")
        .0
        .items(1, |item| {
            if let longshore_media::Item::Entry(entry) = item {
                attributes.extend(entry.xattrs);
            }
        })
        .unwrap();
    attributes.sort_by(|a, b| a.name.cmp(&b.name));
    let expected: [(&[u8], &[u8]); 3] = [
        (b"user.binary", b"\0\xff\n"),
        (b"user.note", b"kept for ever"),
        (b"user.of", b"a directory"),
    ];
    let found: Vec<(&[u8], &[u8])> = attributes.iter().map(|x| (&*x.name, &*x.value)).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_program_verifies_the_golden_sets_of_a_cluster_and_restores_them() {
    for media in ["full", "log", "attributes"] {
        succeeds(&longshore(&["verify"], &stripes_2(media)));
    }
    let bases: Vec<String> = stripes_2("full")
        .iter()
        .map(|path| path.to_str().unwrap().to_owned())
        .collect();
    let with_bases = |mut args: Vec<&'static str>, to: Option<&Path>| {
        let mut words: Vec<String> = args.drain(..).map(str::to_owned).collect();
        for base in &bases {
            words.extend(["--base".to_owned(), base.clone()]);
        }
        words.extend(to.map(|to| format!("--to={}", to.display())));
        words.push("--".to_owned());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        longshore(&words, &stripes_2("differential"))
    };
    succeeds(&with_bases(vec!["verify"], None));
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    succeeds(&with_bases(vec!["restore"], Some(&to)));
    let wanted = relations(described_at(&golden_2().join("differential.txt")));
    assert!(wanted.len() > 200);
    assert_eq!(relations(describe(&to)), wanted);
    let to = dir.path().join("attributes");
    let args = ["restore", "--to", to.to_str().unwrap()];
    succeeds(&longshore(&args, &stripes_2("attributes")));
    let wanted = described_at(&golden_2().join("attributes.txt"));
    assert_eq!(describe(&to), wanted);
    has_attributes(&to);
}

#[test]
fn the_independent_reader_restores_the_golden_sets_of_a_cluster() {
    let python = |file: &str| {
        let mut command = Command::new("python3");
        command.arg("-B").arg(tests().join(file));
        command
    };
    let dir = tempfile::tempdir().unwrap();
    for media in ["full", "differential", "log", "attributes"] {
        let stripes = stripes_2(media);
        let mut verify = python("reader/longshore_reader.py");
        let Some(verify) = run(verify.arg("verify").args(&stripes)) else {
            return;
        };
        succeeds(&verify);
        let to = dir.path().join(media);
        let mut restore = python("reader/longshore_reader.py");
        restore.arg("restore").arg("--to").arg(&to);
        if media == "differential" {
            restore.arg("--parent").arg(dir.path().join("full"));
        }
        succeeds(&run(restore.args(&stripes)).unwrap());
        let found = run(python("golden/describe.py").arg(&to)).unwrap();
        let wanted = std::fs::read(golden_2().join(format!("{media}.txt"))).unwrap();
        assert!(found.stdout == wanted, "{media}");
    }
    has_attributes(&dir.path().join("attributes"));
}

/// Reads the restored attributes with Python, if the file system keeps any.
fn has_attributes(tree: &Path) {
    const LOOK: &str = r#"
import os, sys
wanted = {"file": {"user.note": b"kept for ever", "user.binary": b"\0\xff\n"}, "sub": {"user.of": b"a directory"}}
for name, attributes in wanted.items():
    path = os.path.join(sys.argv[1], name)
    try:
        os.setxattr(path, "user.try", b"")
        os.removexattr(path, "user.try")
    except OSError:
        continue
    own = {n: os.getxattr(path, n) for n in os.listxattr(path) if n.startswith("user.")}
    assert own == attributes, own
"#;
    let mut python = Command::new("python3");
    if let Some(output) = run(python.args(["-c", LOOK]).arg(tree)) {
        succeeds(&output);
    }
}

/// Identities and passphrases of the encrypted sets: secrets that everybody knows, in files of their own.
fn secrets() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    for (version, name) in [
        ("v4", "hybrid"),
        ("v4", "classic"),
        ("v4", "passphrase"),
        ("v5", "certificate"),
    ] {
        let to = dir.path().join(name);
        let from = tests()
            .join("golden")
            .join(version)
            .join("secrets")
            .join(name);
        std::fs::copy(from, &to).unwrap();
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    dir
}

/// Goal: what was encrypted for an identity or a passphrase opens with it, by the program and by the reader that was written
/// from the page alone. The reader needs Python's package `cryptography`, and knows no passphrase.
#[test]
fn golden_encrypted_sets_open_for_their_recipients() {
    let secrets = secrets();
    let secret = |name: &str| secrets.path().join(name).display().to_string();
    for (media, position, description, identity) in [
        ("hybrid", "1", "tree-1.txt", secret("hybrid")),
        ("hybrid", "2", "tree-2.txt", secret("hybrid")),
        (
            "hybrid",
            "2",
            "tree-2.txt",
            format!("passphrase:{}", secret("passphrase")),
        ),
        ("classic", "1", "tree-1.txt", secret("classic")),
        ("classic_parity", "1", "tree-2.txt", secret("classic")),
        ("certificate", "1", "tree-1.txt", secret("certificate")),
        ("certificate", "2", "tree-2.txt", secret("certificate")),
        ("signed", "1", "tree-2.txt", secret("classic")),
    ] {
        let version = match media {
            "certificate" => "v5",
            "signed" => "v6",
            _ => "v4",
        };
        let mut all = stripes_at(tests().join("golden").join(version).join(media));
        if media == "classic_parity" {
            // One data stripe is lost.
            all.retain(|stripe| !stripe.ends_with("stripe-2"));
        }
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("to");
        let args = ["restore", "--position", position, "--to"];
        let mut args: Vec<&str> = args.to_vec();
        args.extend([to.to_str().unwrap(), "--identity", &identity]);
        let restored = longshore(&args, &all);
        let code = restored.status.code();
        let expected = if media == "classic_parity" { 5 } else { 0 };
        assert_eq!(code, Some(expected), "{media}: {restored:?}");
        assert_eq!(describe(&to), described(description), "{media} {position}");
        let closed = dir.path().join("closed");
        let args = ["restore", "--to", closed.to_str().unwrap()];
        assert_eq!(longshore(&args, &all).status.code(), Some(4), "{media}");
        if identity.starts_with("passphrase:") {
            continue;
        }
        let reader = tests().join("reader/longshore_reader.py");
        let mut python = Command::new("python3");
        python.arg("-B").arg(reader);
        python.args(["restore", "--position", position, "--identity", &identity]);
        let by_reader = dir.path().join("by-reader");
        python.arg("--to").arg(&by_reader).args(&all);
        if run(Command::new("python3").args(["-c", "import cryptography"]))
            .is_some_and(|has_it| has_it.status.success())
        {
            succeeds(&run(&mut python).unwrap());
            assert_eq!(describe(&by_reader), described(description), "{media}");
        }
    }
}

/// The signer of the signed set, and another one.
const SIGNERS: [&str; 2] = [
    "lssigner1h8dhu4cnsp73770pwp7q8phm7w23tckx8fsxmvl7lvg45wtapfsq9dug87",
    "lssigner13r95ylmy6q3zy52h98e6zmf0wk9my5jc0my5yxs8cc73tyecp6kqc653gk",
];

/// Goal: a signature that was made once counts for ever, for the program and for the reader, and for its signer alone.
#[test]
fn a_golden_signature_is_its_signers_alone() {
    let golden = tests().join("golden/v6");
    is_untouched(&golden);
    let all = stripes_at(golden.join("signed"));
    let has_it = run(Command::new("python3").args(["-c", "import cryptography"]));
    let has_it = has_it.is_some_and(|has_it| has_it.status.success());
    for (signer, code) in SIGNERS.into_iter().zip([0, 4]) {
        let args = [
            "verify",
            "--stored",
            "--require-signature",
            "--signer",
            signer,
        ];
        assert_eq!(longshore(&args, &all).status.code(), Some(code), "{signer}");
        let reader = tests().join("reader/longshore_reader.py");
        let mut python = Command::new("python3");
        python.arg("-B").arg(reader);
        python.args(["verify", "--signer", signer]).args(&all);
        if has_it {
            let read = run(&mut python).unwrap();
            assert_eq!(read.status.success(), code == 0, "{read:?}");
        }
    }
}

fn has_cryptography() -> bool {
    let found = run(Command::new("python3").args(["-c", "import cryptography"]));
    let has_it = found.is_some_and(|found| found.status.success());
    assert!(has_it || std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_none());
    has_it
}

fn reader(words: &[&str], stripes: &[PathBuf]) -> Output {
    let mut python = Command::new("python3");
    python
        .arg("-B")
        .arg(tests().join("reader/longshore_reader.py"));
    run(python.args(words).args(stripes)).unwrap()
}

/// The program that keeps the key of a set of `v7`, and a configuration that names it, in this directory.
fn key_program(dir: &Path) -> [String; 2] {
    use std::os::unix::fs::PermissionsExt;
    let turn = dir.join("turn");
    std::fs::copy(tests().join("golden/v7/secrets/turn"), &turn).unwrap();
    std::fs::set_permissions(&turn, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (turn, config) = (turn.display().to_string(), dir.join("command.toml"));
    let text = format!("[encryption]\nunwrap_command = [\"{turn}\"]\n");
    std::fs::write(&config, text).unwrap();
    [turn, config.display().to_string()]
}

/// Goal: the kinds of sets that `v7` has are read for ever: an encrypted differential one, one for a key that a program keeps, one
/// that lost a device while it was made, and one of PAGES.
#[test]
fn golden_sets_of_further_kinds_are_read_by_both_readers() {
    let golden = tests().join("golden/v7");
    is_untouched(&golden);
    let secrets = secrets();
    let (dir, classic) = (secrets.path(), secrets.path().join("classic"));
    let classic = classic.display().to_string();
    let [turn, config] = key_program(dir);
    let stripes = |media: &str| stripes_at(golden.join(media));
    let base = stripes("full")[0].display().to_string();
    let identity = ["--identity", classic.as_str()];
    let differential = ["--base", &base, "--identity", &classic];
    let command = ["--config", &config, "--identity", "command:golden/key"];
    for (media, words, code, description) in [
        ("full", &identity[..], 0, "../v1/tree-1.txt"),
        ("differential", &differential[..], 0, "differential.txt"),
        ("command", &command[..], 0, "../v1/tree-2.txt"),
        ("tolerated", &[][..], 5, "differential.txt"),
        ("pages", &[][..], 0, "pages.txt"),
    ] {
        let to = dir.join(media).display().to_string();
        let args = [&["restore"][..], words, &["--to", &to, "--"]].concat();
        let restored = longshore(&args, &stripes(media));
        assert_eq!(restored.status.code(), Some(code), "{media}: {restored:?}");
        let wanted = described_at(&golden.join(description));
        assert_eq!(describe(Path::new(&to)), wanted, "{media}");
        // Without what opens it, or what it stands on.
        let none = dir.join(format!("{media}-none")).display().to_string();
        let mut left = stripes(media);
        if media == "tolerated" {
            left.retain(|stripe| !stripe.ends_with("stripe-4"));
        }
        let refused = longshore(&["restore", "--to", &none, "--"], &left);
        let is_open = media == "pages";
        assert_eq!(refused.status.success(), is_open, "{media}: {refused:?}");
    }
    let unwrap = format!("golden/key {turn}");
    let by_reader = |media: &str, words: &[&str], description: &str| {
        let to = dir.join(format!("{media}-reader")).display().to_string();
        let args = [&["restore"][..], words, &["--to", &to]].concat();
        let restored = reader(&args, &stripes(media));
        succeeds(&restored);
        let wanted = described_at(&golden.join(description));
        assert_eq!(describe(Path::new(&to)), wanted, "{media}");
        (to, String::from_utf8(restored.stdout).unwrap())
    };
    if run(Command::new("python3").arg("--version")).is_none() {
        return;
    }
    by_reader("tolerated", &[], "differential.txt");
    by_reader("pages", &[], "pages.txt");
    if has_cryptography() {
        by_reader("command", &["--unwrap", &unwrap], "../v1/tree-2.txt");
        let (parent, told) = by_reader("full", &identity, "../v1/tree-1.txt");
        let root = told.split("root ").nth(1).unwrap().trim();
        let listed = longshore(&["list", "--json"], &stripes("full")).stdout;
        let member = format!("\"root\":\"{root}\"");
        let listed = String::from_utf8(listed).unwrap();
        assert!(listed.contains(&member), "{member}: {listed}");
        let on = ["--parent", &parent, "--parent-root", root];
        let words = [&identity[..], &on[..]].concat();
        by_reader("differential", &words, "differential.txt");
    }
}

/// Goal: a set with detached keys is read for ever, with its key object and not without, by both readers.
#[test]
fn a_golden_set_with_detached_keys_is_read_by_both_readers() {
    let golden = tests().join("golden/v8");
    is_untouched(&golden);
    let secrets = secrets();
    let (dir, classic) = (secrets.path(), secrets.path().join("classic"));
    let classic = classic.display().to_string();
    let stripes = stripes_at(golden.join("detached"));
    let keys = golden.join("keys").display().to_string();
    let wanted = described_at(&golden.join("../v1/tree-1.txt"));
    let to = |name: &str| dir.join(name).display().to_string();
    let words = |name: &str| {
        let text = format!("restore --identity {classic} --to {}", to(name));
        text.split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    let given = words("with");
    let mut args: Vec<&str> = given.iter().map(String::as_str).collect();
    args.extend(["--keys", &keys, "--"]);
    succeeds(&longshore(&args, &stripes));
    assert_eq!(describe(Path::new(&to("with"))), wanted);
    let given = words("without");
    let mut args: Vec<&str> = given.iter().map(String::as_str).collect();
    args.push("--");
    let refused = longshore(&args, &stripes);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    if !has_cryptography() {
        return;
    }
    let objects = std::fs::read_dir(&keys).unwrap();
    let object = objects.map(|entry| entry.unwrap().path()).next().unwrap();
    let object = object.display().to_string();
    let given = words("reader");
    let args: Vec<&str> = given.iter().map(String::as_str).collect();
    let refused = reader(&args, &stripes);
    assert!(!refused.status.success(), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stdout) + String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("its keys are detached"), "{said}");
    let args = [&args[..], &["--key-object", &object]].concat();
    succeeds(&reader(&args, &stripes));
    assert_eq!(describe(Path::new(&to("reader"))), wanted);
}

/// Goal: the reader opens and refuses what others publish for age's hybrid recipients; the program's own test is in `age.rs`.
#[test]
fn the_independent_reader_agrees_with_published_vectors_of_hybrid_recipients() {
    const LOOK: &str = r#"
import glob, hashlib, os, sys
sys.path.insert(0, sys.argv[1])
import longshore_reader as reader
paths = glob.glob(os.path.join(sys.argv[2], "*"))
assert len(paths) == 16, paths
for path in paths:
    with open(path, "rb") as file:
        head, _, data = file.read().partition(b"\n\n")
    facts = dict(line.split(": ", 1) for line in head.decode().splitlines())
    try:
        content = reader.open_age(data, [reader.bech32(facts["identity"])])
    except reader.Bad:
        content = None
    assert (content is not None) == (facts["expect"] == "success"), path
    assert content is None or hashlib.sha256(content).hexdigest() == facts["payload"], path
"#;
    if has_cryptography() {
        let mut python = Command::new("python3");
        python.args(["-B", "-c", LOOK]).arg(tests().join("reader"));
        python.arg(tests().join("../crates/core/crypt/tests/cctv"));
        succeeds(&run(&mut python).unwrap());
    }
}

/// Goal: the lost stripe of a set that lost a device is written once more.
#[test]
fn a_golden_set_that_lost_a_device_is_repaired() {
    let dir = tempfile::tempdir().unwrap();
    for stripe in stripes_at(tests().join("golden/v7/tolerated")) {
        std::fs::copy(&stripe, dir.path().join(stripe.file_name().unwrap())).unwrap();
    }
    let all = [1, 2, 3, 4].map(|n| dir.path().join(format!("stripe-{n}")));
    assert!(!all[1].exists());
    succeeds(&longshore(&["repair"], &all));
    succeeds(&longshore(&["verify"], &all));
    if run(Command::new("python3").arg("--version")).is_some() {
        succeeds(&reader(&["verify"], &all));
    }
}

/// Goal: the signature of a segment counts for ever, for the reader that was written from the page, and for its signer alone.
#[test]
fn a_golden_signature_of_a_segment_is_its_signers_alone() {
    if !has_cryptography() {
        return;
    }
    let golden = tests().join("golden/wal-v2");
    let mut gzip = Command::new("gzip");
    let plain = tests().join("golden/wal-v1/segment.gz");
    let plain = run(gzip.arg("-dc").arg(plain)).unwrap();
    for (signer, is_right) in SIGNERS.into_iter().zip([true, false]) {
        let mut python = Command::new("python3");
        python
            .arg("-B")
            .arg(tests().join("reader/longshore_wal_reader.py"));
        python.arg(golden.join("segment.zst"));
        python.arg("--identity").arg(golden.join("identity"));
        let read = run(python.args(["--signer", signer])).unwrap();
        assert_eq!(read.status.success(), is_right, "{signer}");
        let expected: &[u8] = if is_right { &plain.stdout } else { &[] };
        assert!(read.stdout == expected, "{signer}");
    }
}

/// Goal: a segment that was encrypted for an identity opens with it, by a reader that was written from the page alone. It gives
/// the bytes that stock gzip unpacks from the same segment, archived in the clear.
#[test]
fn the_independent_reader_opens_the_golden_segment() {
    let golden = tests().join("golden/wal-v1");
    let read = |identity: &Path| {
        let mut python = Command::new("python3");
        python
            .arg("-B")
            .arg(tests().join("reader/longshore_wal_reader.py"));
        python.arg(golden.join("segment.zst"));
        python.arg("--identity").arg(identity);
        run(&mut python)
    };
    let has_it = run(Command::new("python3").args(["-c", "import cryptography"]));
    if !has_it.is_some_and(|has_it| has_it.status.success()) {
        assert!(std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_none());
        return;
    }
    let mut gzip = Command::new("gzip");
    let plain = run(gzip.arg("-dc").arg(golden.join("segment.gz"))).unwrap();
    let opened = read(&golden.join("identity")).unwrap();
    succeeds(&opened);
    assert!(!plain.stdout.is_empty() && opened.stdout == plain.stdout);
    let secrets = secrets();
    let refused = read(&secrets.path().join("hybrid")).unwrap();
    assert!(!refused.status.success() && refused.stdout.is_empty());
}
