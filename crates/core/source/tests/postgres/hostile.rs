//! Goal: no answer to `BASE_BACKUP` crashes a backup, hangs it, takes its memory or leads out of its directory.
//! Method: a double of the server sends archives made by hand, and generated ones.
//! Not covered: hostile answers to other commands.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_io::{Host, Storage, Via};
use longshore_kit::Random;
use longshore_kit::random::from_env;
use longshore_source::{EntryKind, Error, SourceOptions};

use crate::cluster::{Copy, END, START, SYSTEM, connect, control, read, segment_with};
use crate::double::{Double, done, message, ready, refusal, row, table};

/// A server of which only the answer to `BASE_BACKUP` matters.
pub fn sends(answer: Vec<u8>) -> Double {
    Double::new(move |command| match command {
        "IDENTIFY_SYSTEM" => row(&[&SYSTEM.to_string(), "1", "0/2000028", ""]),
        "SHOW block_size" => row(&["8192"]),
        "SHOW cluster_name" => row(&["../../etc"]),
        "SHOW wal_segment_size" => row(&["16MB"]),
        "SHOW in_hot_standby" => row(&["off"]),
        _ if command.starts_with("CREATE_REPLICATION_SLOT") => row(&["s", "0/0", "", ""]),
        _ if command.starts_with("BASE_BACKUP") => answer.clone(),
        _ => refusal("42501"),
    })
}

/// Goal: a major that was never tried is refused before anything is read, by either way.
#[test]
fn a_server_of_an_untried_major_is_refused() {
    for (version, untried) in [("13.22", Some(13)), ("14.0", None), ("19beta1", Some(19))] {
        let double = Double::of_version(version, |_| refusal("42501"));
        let storage: Arc<dyn Storage> = Arc::new(Host::new());
        for remote in [false, true] {
            let mut options = SourceOptions::default();
            options.postgres.remote = remote;
            let refused = connect(&double, &storage, &options).err().unwrap();
            let found = match refused {
                Error::ServerMajor { major } => Some(major),
                _ => None,
            };
            assert_eq!(found, untried, "{version}: {refused}");
        }
    }
}

fn back_up(answer: Vec<u8>) -> Result<Copy, Error> {
    read(begin(&sends(answer))?)
}

pub fn begin(double: &Double) -> Result<Box<dyn longshore_source::Source>, Error> {
    let storage: Arc<dyn Storage> = Arc::new(Host::new());
    let mut options = SourceOptions::default();
    options.postgres.remote = true;
    connect(double, &storage, &options)
}

/// A member's header and its bytes, padded to whole units.
fn member(name: &[u8], kind: u8, bytes: &[u8]) -> Vec<u8> {
    let mut all = header(name, kind, format!("{:011o}\0", bytes.len()).as_bytes());
    all.extend(bytes);
    all.resize(all.len().next_multiple_of(512), 0);
    all
}

fn header(name: &[u8], kind: u8, len: &[u8]) -> Vec<u8> {
    let mut unit = vec![0; 512];
    unit[..name.len()].copy_from_slice(name);
    unit[100..108].copy_from_slice(b"0000600\0");
    unit[124..124 + len.len()].copy_from_slice(len);
    unit[156] = kind;
    if kind == b'2' {
        unit[157..161].copy_from_slice(b"/etc");
    }
    seal(&mut unit);
    unit
}

fn seal(unit: &mut [u8]) {
    unit[148..156].fill(b' ');
    let sum: u32 = unit.iter().map(|byte| u32::from(*byte)).sum();
    unit[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// The answer of PostgreSQL 15 and later: a start, archives in one COPY, an end.
pub struct Answer {
    archives: Vec<(&'static str, Vec<u8>)>,
    end: Vec<u8>,
    /// Bytes of an archive in one message.
    piece: usize,
}

impl Answer {
    pub fn usual() -> Answer {
        let space = [
            member(b"PG_18_202506291/5/16390", b'0', b"far"),
            vec![0; 1024],
        ];
        Answer {
            archives: vec![("16389.tar", space.concat()), ("base.tar", base(&[]))],
            end: end("1"),
            piece: 700,
        }
    }

    /// An answer with these members in the middle of the data directory's archive.
    fn with(members: &[Vec<u8>]) -> Answer {
        Answer {
            archives: vec![("base.tar", base(members))],
            ..Answer::usual()
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let place = [Some(&b"0/2000028"[..]), Some(&b"1"[..])];
        let spaces: [&[Option<&[u8]>]; 2] = [
            &[Some(b"16389"), Some(b"/srv/space"), Some(b"1")],
            &[None, None, Some(b"1")],
        ];
        let mut all = [table(&[&place]), table(&spaces), message(b'H', b"\0\0\0")].concat();
        for (name, archive) in &self.archives {
            all.extend(message(b'd', format!("n{name}\0/srv/space\0").as_bytes()));
            for piece in archive.chunks(self.piece) {
                all.extend(message(b'd', &[b"d", piece].concat()));
            }
            all.extend(message(b'd', b"p\0\0\0\0\0\0\0\x07"));
        }
        all.extend(message(b'c', b""));
        all.extend(&self.end);
        all
    }
}

fn base(members: &[Vec<u8>]) -> Vec<u8> {
    let mut all = member(b"backup_label", b'0', b"START WAL LOCATION: 0/2000028\n");
    all.extend(member(b"base/5/", b'5', b""));
    all.extend(member(b"base/5/16384", b'0', &vec![b'x'; 200_000]));
    all.extend(member(b"pg_tblspc/16389", b'2', b""));
    all.extend(members.concat());
    all.extend(member(b"global/pg_control", b'0', &control()));
    all.extend([0; 1024]);
    all
}

fn end(timeline: &str) -> Vec<u8> {
    let place = [Some(&b"0/3000000"[..]), Some(timeline.as_bytes())];
    [
        table(&[&place]),
        done("SELECT"),
        done("BASE_BACKUP"),
        ready(),
    ]
    .concat()
}

#[test]
fn a_proper_stream_is_taken_apart_however_it_is_cut() {
    for piece in [1, 511, 512, 700, 64 << 10] {
        let answer = Answer {
            piece,
            ..Answer::usual()
        };
        let copy = back_up(answer.bytes()).unwrap();
        assert_eq!(copy.file("base/5/16384").unwrap(), &vec![b'x'; 200_000]);
        assert_eq!(
            copy.file("pg_tblspc/16389/PG_18_202506291/5/16390")
                .unwrap(),
            b"far"
        );
        assert_eq!(copy.order[0], Path::new("pg_tblspc/16389"));
        assert_eq!(copy.order.last().unwrap(), Path::new("global/pg_control"));
        assert_eq!(copy.summary.log.unwrap().last.0, 0x300_0000);
    }
}

#[test]
fn members_that_lead_out_or_are_not_files_end_the_backup() {
    for (name, kind) in [
        (&b"../../etc/cron.d/x"[..], b'0'),
        (b"/etc/passwd", b'0'),
        (b"base/../../x", b'0'),
        (b"", b'0'),
        (b"link", b'1'),
        (b"device", b'3'),
        (b"fifo", b'6'),
        (b"long", b'L'),
        (b"pax", b'x'),
    ] {
        let refused = back_up(Answer::with(&[member(name, kind, b"")]).bytes()).err();
        let text = String::from_utf8_lossy(name);
        assert!(
            matches!(refused, Some(Error::ServerSaid { .. })),
            "{text}: {refused:?}"
        );
    }
}

/// Resource managers.
const DATABASES: u8 = 4;
const MAPS: u8 = 7;

/// A record of that resource manager whose data are these numbers.
fn of(manager: u8, kind: u8, numbers: &[u32]) -> (u8, u8, Vec<u8>) {
    let data = numbers.iter().flat_map(|number| number.to_le_bytes());
    (manager, kind, data.collect())
}

/// The WAL segments of the backup as members; the first begins with `records`.
fn log_members(records: &[(u8, u8, Vec<u8>)]) -> Vec<Vec<u8>> {
    let (mut before, mut records) = (START - 40, records);
    let mut members = Vec::new();
    for number in START >> 20..END >> 20 {
        let (bytes, last) = segment_with(number, before, records);
        let name = format!("pg_wal/00000001000000000000{number:04X}");
        members.push(member(name.as_bytes(), b'0', &bytes));
        (before, records) = (last, &[]);
    }
    members
}

fn sent_with(records: &[(u8, u8, Vec<u8>)], change: impl FnOnce(&mut Vec<Vec<u8>>)) -> Copy {
    let mut members = vec![
        member(b"base/", b'5', b""),
        member(b"pg_tblspc/16390/", b'5', b""),
        member(b"pg_tblspc/16390/PG_18_202506291/", b'5', b""),
    ];
    members.extend(log_members(records));
    change(&mut members);
    back_up(Answer::with(&members).bytes()).unwrap()
}

/// Goal: a directory into which replay writes a relation map, and which replay does not create, is in the backup even
/// if the server did not send it. If it cannot be added, the set is marked.
#[test]
fn a_directory_that_the_sent_log_needs_is_added() {
    let needs = |database, space| of(MAPS, 0, &[database, space, 0, 0]);
    let records = [
        needs(5, 1663),
        needs(7, 1663),
        needs(0, 1664),
        // Created by replay.
        of(DATABASES, 0x10, &[8, 1663]),
        needs(8, 1663),
        needs(9, 16390),
    ];
    let copy = sent_with(&records, |_| {});
    let added = [
        "base/7".as_ref(),
        "pg_tblspc/16390/PG_18_202506291/9".as_ref(),
    ];
    let count = copy.order.len();
    let mut last = copy.order[count - 3..count - 1].to_vec();
    last.sort();
    assert_eq!(last, added.map(Path::to_owned));
    assert_eq!(copy.order[count - 1], Path::new("global/pg_control"));
    assert!(!copy.summary.damaged, "{:?}", copy.summary.warnings);
    let twice = |path: &Path| copy.order.iter().filter(|p| *p == path).count();
    assert_eq!(twice("base/5".as_ref()), 1);
    assert_eq!(twice("base/8".as_ref()), 0);

    let copy = sent_with(&[needs(9, 4242)], |_| {});
    assert!(copy.summary.damaged);
    let said = &copy.summary.warnings[0];
    assert!(said.contains("OID 9 in tablespace 4242"), "{said}");
}

/// Goal: a copied database whose origin was removed during the backup is reported by name.
#[test]
fn a_copy_without_its_origin_in_the_sent_log_is_told() {
    let copied = of(DATABASES, 0, &[9, 1663, 7, 1663]);
    let dropped = of(DATABASES, 0x20, &[7, 1, 1663]);
    let copy = sent_with(&[copied.clone(), dropped], |_| {});
    assert!(copy.summary.damaged);
    let said = &copy.summary.warnings[0];
    assert!(
        said.contains("database with OID 9 may be incomplete"),
        "{said}"
    );
    assert!(!sent_with(&[copied], |_| {}).summary.damaged);
}

/// WAL that cannot be followed to the backup's end yields no findings, whatever it contains.
#[test]
fn a_sent_log_that_is_none_adds_nothing() {
    let records = [of(MAPS, 0, &[7, 1663, 0, 0])];
    let changes: [fn(&mut Vec<Vec<u8>>); 5] = [
        |members| drop(members.remove(5)),
        |members| members[6][512 + 50] ^= 1,
        |members| members[3][512 + 70] ^= 1,
        |members| members.swap(7, 9),
        |members| members.truncate(3),
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let copy = sent_with(&records, change);
        let added = copy.order.contains(&"base/7".into());
        assert!(!added && !copy.summary.damaged, "{i}");
    }
    // Segment names that no WAL has.
    for name in ["00000001FFFFFFFFFFFFFFFF", "0000000100000000FFFFFFFF"] {
        let name = format!("pg_wal/{name}");
        let copy = sent_with(&records, |members| {
            members.push(member(name.as_bytes(), b'0', &vec![1; 1 << 20]));
        });
        assert!(copy.order.contains(&"base/7".into()));
    }
}

/// Each of these streams is incomplete.
#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn an_incomplete_stream_is_not_a_backup() {
    let usual = || Answer::usual();
    let unsealed = {
        let mut bytes = member(b"base/5/1", b'0', b"x");
        bytes[0] ^= 1;
        bytes
    };
    let mut cut = base(&[]);
    cut.truncate(3000);
    let mut without_control = base(&[]);
    let at = without_control.len() - 1024 - 8192 - 512;
    without_control.truncate(at);
    without_control.extend([0; 1024]);
    let refused_late = [message(b'E', b"SERROR\0C58030\0Mdisk\0\0"), ready()].concat();
    let mut torn = control();
    torn[44] ^= 1;
    let torn = member(b"global/pg_control", b'0', &torn);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a header's sum is wrong", Answer::with(&[unsealed]).bytes()),
        (
            "an archive ends within a member",
            Answer {
                archives: vec![("base.tar", cut)],
                ..usual()
            }
            .bytes(),
        ),
        (
            "no control file",
            Answer {
                archives: vec![("base.tar", without_control)],
                ..usual()
            }
            .bytes(),
        ),
        ("a torn control file", Answer::with(&[torn]).bytes()),
        (
            "a length of 2^63",
            Answer::with(&[header(
                b"a",
                b'0',
                &[0x80, 0, 0, 0, 0x7f, 255, 255, 255, 255, 255, 255, 255],
            )])
            .bytes(),
        ),
        (
            "a length beyond 2^64",
            Answer::with(&[header(b"a", b'0', &[0xff; 12])]).bytes(),
        ),
        (
            "another timeline at the end",
            Answer {
                end: end("2"),
                ..usual()
            }
            .bytes(),
        ),
        (
            "timeline 0",
            Answer {
                end: end("0"),
                ..usual()
            }
            .bytes(),
        ),
        (
            "no end",
            Answer {
                end: ready(),
                ..usual()
            }
            .bytes(),
        ),
        (
            "an error at the end",
            Answer {
                end: refused_late,
                ..usual()
            }
            .bytes(),
        ),
        (
            "an archive's name",
            Answer {
                archives: vec![("x.tar", base(&[]))],
                ..usual()
            }
            .bytes(),
        ),
        (
            "an archive's ending",
            Answer {
                archives: vec![("base.zip", base(&[]))],
                ..usual()
            }
            .bytes(),
        ),
        ("refused at once", refusal("42501")),
        ("nothing", Vec::new()),
    ];
    for (what, bytes) in cases {
        assert!(drained(bytes).is_err(), "{what}");
    }
    // An archive that ends inside a member, at any point, even if a complete archive follows.
    let space = member(b"PG_18_202506291/5/16390", b'0', &[b'x'; 3000]);
    for len in [1, 511, 512, 513, 2048, 3511, 3512, 3583] {
        let archives = vec![
            ("16389.tar", space[..len].to_vec()),
            ("base.tar", base(&[])),
        ];
        let answer = Answer {
            archives,
            ..usual()
        };
        assert!(drained(answer.bytes()).is_err(), "{len} bytes of a member");
    }
    // Truncated anywhere, it is incomplete: between messages, in their headers, in members.
    let whole = Answer::usual().bytes();
    let steps = (0..whole.len())
        .step_by(997)
        .chain(whole.len() - 40..whole.len());
    for len in steps {
        // Only the final message, that the server is ready, may be missing.
        let refused = back_up(whole[..len].to_vec()).err();
        assert!(refused.is_some(), "{len} of {} bytes", whole.len());
    }
}

/// A page with a wrong checksum is reported after everything was sent: the backup is kept, and marked.
#[test]
fn bad_pages_that_the_server_found_mark_the_backup() {
    let place = [Some(&b"0/3000000"[..]), Some(&b"1"[..])];
    let end = [table(&[&place]), refusal("XX001")].concat();
    let copy = back_up(
        Answer {
            end: end.clone(),
            ..Answer::usual()
        }
        .bytes(),
    )
    .unwrap();
    assert!(copy.summary.damaged && copy.summary.warnings.len() == 1);
    let double = sends(
        Answer {
            end,
            ..Answer::usual()
        }
        .bytes(),
    );
    let storage: Arc<dyn Storage> = Arc::new(Host::new());
    let mut options = SourceOptions::default();
    (options.postgres.remote, options.postgres.fail_on_bad_page) = (true, true);
    let refused = read(connect(&double, &storage, &options).unwrap()).err();
    assert!(matches!(refused, Some(Error::BadPages)), "{refused:?}");
}

#[test]
fn a_message_that_announces_gigabytes_is_refused_before_it_is_held() {
    for head in [
        &b"d\x7f\xff\xff\xff"[..],
        b"T\x7f\xff\xff\xff",
        b"D\xff\xff\xff\xff",
        b"d\0\0\0\0",
    ] {
        let mut bytes = Answer::usual().bytes();
        bytes.truncate(5000);
        bytes.extend(head);
        assert!(back_up(bytes).is_err(), "{head:?}");
        assert!(back_up(head.to_vec()).is_err(), "{head:?}");
    }
}

/// Goal: for any answer of a server, a backup ends, with success or an error, and names nothing outside itself.
/// Method: a valid answer with bytes changed and runs duplicated, removed or turned into headers with matching
/// checksums, from a seed, for `LONGSHORE_MUTATION_SECONDS`.
#[test]
fn no_answer_crashes_hangs_or_leads_out() {
    let mut random = Random(from_env("LONGSHORE_MUTATION_SEED", 5));
    let whole = Answer {
        piece: 8192,
        ..Answer::usual()
    }
    .bytes();
    let (begin_at, seconds) = (Instant::now(), from_env("LONGSHORE_MUTATION_SECONDS", 0));
    let (mut rounds, mut kept) = (0, 0);
    while rounds < 300 || begin_at.elapsed() < Duration::from_secs(seconds) {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len());
            let end = (at + random.below(600)).min(bytes.len());
            match random.below(5) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = random.below(256) as u8,
                2 => drop(bytes.drain(at..end)),
                3 => {
                    let run = bytes[at..end].to_vec();
                    bytes.splice(at..at, run);
                }
                // A member whose header was changed and its checksum corrected.
                _ => {
                    let magic = bytes.windows(8).skip(at).position(|w| w == b"0000600\0");
                    if let Some(found) = magic.map(|found| at + found)
                        && (100..bytes.len() - 412).contains(&found)
                    {
                        let unit = &mut bytes[found - 100..found + 412];
                        unit[random.below(300)] = random.below(256) as u8;
                        seal(unit);
                    }
                }
            }
        }
        kept += u64::from(drained(bytes).is_ok());
        rounds += 1;
    }
    println!("{kept} of {rounds} answers were backups");
    assert!(kept > 0, "the changes reach nothing but the first bytes");
}

/// Reads everything without keeping it, whatever length is announced.
fn drained(answer: Vec<u8>) -> Result<(), Error> {
    let double = sends(answer);
    let source = begin(&double)?;
    let (mut buf, mut seen) = (vec![0; 1 << 20], BTreeMap::<PathBuf, u64>::new());
    loop {
        while let Some(entry) = source.next(0)? {
            let mut parts = entry.path.components();
            assert!(
                parts.all(|part| matches!(part, Component::Normal(_))),
                "{:?}",
                entry.path
            );
            *seen.entry(entry.path.clone()).or_default() += 1;
            let mut at = 0;
            while let (EntryKind::File, Some(content)) = (&entry.kind, &entry.content) {
                if at >= entry.len {
                    break;
                }
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
            break;
        }
    }
    source.finish()?;
    Ok(())
}
