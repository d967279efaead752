//! Files of a WAL archive: changed heads and ends whose checksums fit are refused, or the segment comes back as it was; records
//! of needs keep their spelling.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use longshore_codec::{Algorithm, Level};
use longshore_crypt::Signer;
use longshore_io::{OpenHow, SimClock, SimDisk, Storage};
use longshore_media::record::RecordKind;
use longshore_pg::wal::{SegmentHeader, WalName};
use longshore_wal::object::{End, Head, PlainMark, Row, SealedHead, WholeMark};
use longshore_wal::{IDENTITY_NAME, Outgoing, StorageForm, WalArchive};

const SEGMENT: usize = 1 << 20;
const NAME: &str = "000000010000000000000003";
const ARCHIVE: &str = "/archive";

/// A change at a place of a record; lengths change, too.
type Change = (u8, u16, u8);

fuzz_target!(|input: (u8, Vec<Change>, Vec<Change>, Vec<u8>)| {
    let (kind, of_head, of_end, raw) = input;
    match kind % 4 {
        0 => whole_file(kind, &of_head, &of_end),
        1 => parts(kind, &of_head, &of_end),
        2 => needs(&raw),
        _ => {
            let _ = Head::parse(&raw);
            let _ = SegmentHeader::parse(&raw);
        }
    }
});

fn changed(mut body: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for (what, at, byte) in changes {
        let at = usize::from(*at) % body.len();
        match what % 4 {
            0 => body.truncate(at.max(1)),
            1 => body.insert(at, *byte),
            _ => body[at] = *byte,
        }
    }
    body
}

/// A segment as a server begins it; zeros follow.
fn segment() -> Vec<u8> {
    let mut bytes = vec![0; SEGMENT];
    bytes[..2].copy_from_slice(&0xd110_u16.to_le_bytes());
    bytes[2..4].copy_from_slice(&2_u16.to_le_bytes());
    bytes[4..8].copy_from_slice(&1_u32.to_le_bytes());
    bytes[8..16].copy_from_slice(&(3 * SEGMENT as u64).to_le_bytes());
    bytes[24..32].copy_from_slice(&7_u64.to_le_bytes());
    bytes[32..36].copy_from_slice(&(SEGMENT as u32).to_le_bytes());
    bytes[36..40].copy_from_slice(&8192_u32.to_le_bytes());
    bytes
}

fn name() -> WalName {
    NAME.parse().unwrap()
}

fn empty() -> SimDisk {
    let disk = SimDisk::new(1);
    let lines = "longshore wal archive 1\nof no cluster yet\n";
    let crc = longshore_io::crc32c(lines.as_bytes());
    let mark = format!("{lines}crc32c {crc:08x}\n");
    disk.write_file(Path::new(ARCHIVE).join(IDENTITY_NAME), mark.as_bytes()).unwrap();
    disk
}

fn archive(disk: &SimDisk) -> Result<WalArchive, longshore_wal::Error> {
    WalArchive::open(disk, Path::new(ARCHIVE))
}

/// Where the archive keeps the segment, its identity after that, and the stored bytes.
fn stored(algorithm: Algorithm) -> (PathBuf, Vec<u8>, Vec<u8>) {
    let disk = empty();
    let path = Path::new("/data/pg_wal").join(NAME);
    disk.write_file(&path, &segment()).unwrap();
    let file = disk.dir(path.parent().unwrap()).unwrap().open(Path::new(NAME), OpenHow::Read);
    let out = Outgoing {
        name: name(),
        path,
        file: file.unwrap(),
        system: None,
        history: None,
        beside: None,
    };
    let form = StorageForm {
        algorithm,
        level: Level::Low,
        verify: false,
        recipients: None,
    };
    archive(&disk).unwrap().push(&out, &form, &SimClock::new(0)).unwrap();
    let is_it = |path: &PathBuf| {
        path.starts_with(ARCHIVE) && path.to_string_lossy().contains(&format!("{NAME}."))
    };
    let path = disk.paths().into_iter().find(is_it).unwrap();
    let identity = disk.read_file(Path::new(ARCHIVE).join(IDENTITY_NAME)).unwrap();
    let bytes = disk.read_file(&path).unwrap();
    (path, identity, bytes)
}

fn whole_file(kind: u8, of_head: &[Change], of_end: &[Change]) {
    static STORED: OnceLock<Vec<(PathBuf, Vec<u8>, Vec<u8>)>> = OnceLock::new();
    let all = STORED.get_or_init(|| Algorithm::ALL.into_iter().map(stored).collect());
    let (path, identity, whole) = &all[usize::from(kind / 4) % all.len()];
    let head = Head::parse(whole).unwrap();
    let body_from = head.framed().len();
    let body_to = whole.len() - head.len_after();
    let end = End::parse(&head, &whole[body_to..], whole.len() as u64).unwrap();
    let container = head.container();
    let mut file = container.preamble().to_vec();
    container.append(RecordKind::Wal, &changed(head.encode(), of_head), &mut file);
    file.extend_from_slice(&whole[body_from..body_to]);
    container.append(RecordKind::WalEnd, &changed(end.encode(), of_end), &mut file);
    let disk = empty();
    disk.write_file(Path::new(ARCHIVE).join(IDENTITY_NAME), identity).unwrap();
    disk.write_file(path, &file).unwrap();
    let to = Path::new("/restored");
    disk.write_file(to.join("lost+found/.keep"), b"").unwrap();
    let dir = disk.dir(to).unwrap();
    let fetched = archive(&disk).and_then(|a| a.fetch(name(), &dir, to, "TAKEN", &SimClock::new(0)));
    if fetched.is_ok() {
        assert!(disk.read_file(to.join("TAKEN")).unwrap() == segment());
    }
}

fn parts(kind: u8, of_head: &[Change], of_end: &[Change]) {
    let sealed = (kind & 4 != 0).then_some(SealedHead {
        keys_len: 700,
        history: [7; 32],
        signer: (kind & 8 != 0).then_some(Signer::from_bytes([9; 32])),
    });
    let head = Head {
        system: 7,
        plain_len: SEGMENT as u32,
        block_bytes: 1 << 18,
        segment_bytes: SEGMENT as u32,
        magic: 0xd110,
        algorithm: Algorithm::Zstd,
        unfinished: false,
        name: name(),
        sealed,
    };
    let row = Row {
        stored_len: 99,
        plain: match head.sealed {
            None => PlainMark::Crc(2),
            Some(_) => PlainMark::Tag([4; 16]),
        },
        stored_crc: 3,
    };
    let end = End {
        head_crc: longshore_io::crc32c(&head.encode()),
        whole: match head.sealed {
            None => WholeMark::Crc(1),
            Some(_) => WholeMark::Sealed {
                tags: [5; 8],
                mac: [6; 32],
                signature: head.sealed.and_then(|s| s.signer).map(|_| [8; 64]),
            },
        },
        rows: vec![row; 4],
    };
    let container = head.container();
    let body = changed(head.encode(), of_head);
    let mut framed = container.preamble().to_vec();
    container.append(RecordKind::Wal, &body, &mut framed);
    if let Ok(read) = Head::parse(&framed) {
        assert_eq!(read.encode(), body);
    }
    let body = changed(end.encode(), of_end);
    let mut framed = Vec::new();
    container.append(RecordKind::WalEnd, &body, &mut framed);
    if let Ok(read) = End::parse(&head, &framed, 1 << 20) {
        assert_eq!(read.encode(), body);
    }
}

/// A record of needs, whose checksum fits, is read whole or not at all.
fn needs(raw: &[u8]) {
    let text = String::from_utf8_lossy(raw);
    let id = "00000000-0000-0000-0000-000000000007";
    let lines = format!("longshore wal need 1\nid {id}\n{text}\n");
    let crc = longshore_io::crc32c(lines.as_bytes());
    let disk = empty();
    let file = Path::new(ARCHIVE).join(format!("needs/{:032x}.{:032x}", 7, 9));
    disk.write_file(file, format!("{lines}crc32c {crc:08x}\n").as_bytes()).unwrap();
    if let Ok(needs) = archive(&disk).unwrap().needs() {
        assert_eq!(needs.len(), 1);
    }
}
