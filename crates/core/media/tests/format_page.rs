//! Goal: `docs/format.md` and the code say the same.
//! Method: every table of the page is read; encoders are given values that occur only once, and the
//! bytes at each documented offset must be that value. A row or table that no test looks at fails, too.

use std::collections::BTreeMap;

use longshore_codec::{Algorithm, Compressor, Level, payload_bound};
use longshore_io::{SumKey, XATTR_HEAD, XATTRS_BYTES_MAX, Xattr};
use longshore_media::block::{self, MANIFEST_HEAD_LEN};
use longshore_media::header::{self, *};
use longshore_media::manifest::{
    self, EXTENT_LEN, MarkKind, SUM_PAGE_MAX, SUM_PAGE_MIN, SUMS_HEAD_LEN, sums_len,
};
use longshore_media::parity::{RowRecord, Span};
use longshore_media::record::{self, Container, RecordKind};
use longshore_media::{Entry, EntryKind, Extent, Item, Mark, Sums, TREE_ROOT_MAX, TreeRoot, index};
use uuid::Uuid;

#[path = "support/page.rs"]
mod page;
use page::{PAGE, bytes, check_fields, number, says, table, tables};

fn uuid(n: u8) -> Uuid {
    Uuid::from_bytes([n; 16])
}

/// Longer than any text may be.
fn long() -> String {
    "t".repeat(5000)
}

/// The limits that a table gives for its texts.
fn text_limits(title: &str) -> Vec<usize> {
    let limit = |row: &Vec<&str>| {
        let (_, rest) = row[3].split_once("text, at most ")?;
        Some(number(rest.split(' ').next()?)? as usize)
    };
    table(title).iter().filter_map(limit).collect()
}

/// The lengths of the consecutive texts in `bytes`.
fn text_lens(mut bytes: &[u8]) -> Vec<usize> {
    let mut lens = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk::<2>() {
        lens.push(usize::from(u16::from_le_bytes(*len)));
        bytes = &rest[lens[lens.len() - 1]..];
    }
    lens
}

#[test]
fn the_crc_is_the_one_the_page_names() {
    assert!(says("`123456789` is 0xE3069283, of no bytes 0."));
    assert_eq!(longshore_io::crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(longshore_io::crc32c(b""), 0);
}

#[test]
fn a_record_is_laid_out_as_in_its_table() {
    let body = b"body of a record";
    let mut framed = Vec::new();
    Container::Zstd.append(RecordKind::Set, body, &mut framed);
    let record = &framed[Container::Zstd.prefix_len()..];
    let crc = longshore_io::crc32c(&[&record[..12], body].concat());
    let (fixed, open) = check_fields(
        "record",
        record,
        &[
            ("magic", &bytes(table("record")[0][3])),
            ("kind", &[2]),
            ("body_len", &(body.len() as u32).to_le_bytes()),
            ("crc", &crc.to_le_bytes()),
        ],
    );
    assert_eq!((fixed, open), (record::HEAD_LEN, vec!["body"]));
    assert_eq!(&record[fixed..], body);
    assert_eq!(bytes(table("record")[0][3]), record::MAGIC);
}

#[test]
fn every_kind_of_record_has_its_number() {
    let kinds = [
        RecordKind::Media,
        RecordKind::Set,
        RecordKind::Manifest,
        RecordKind::Block,
        RecordKind::Index,
        RecordKind::Trailer,
        RecordKind::Wal,
        RecordKind::WalEnd,
        RecordKind::Keys,
        RecordKind::Parity,
        RecordKind::Roots,
    ];
    let rows = table("kinds");
    assert_eq!(rows.len(), kinds.len());
    for (row, kind) in rows.iter().zip(kinds) {
        assert_eq!(number(row[0]), Some(kind as u64));
        assert_eq!(row[1], format!("{kind:?}"));
    }
}

#[test]
fn containers_begin_as_the_page_says_and_hold_the_algorithms_it_says() {
    let containers = [Container::Gzip, Container::Zstd, Container::Lz4];
    let rows = table("containers");
    assert_eq!(rows.len(), containers.len());
    for (row, container) in rows.iter().zip(containers) {
        assert_eq!(number(row[0]), Some(container as u64));
        assert_eq!(row[1], format!("{container:?}").to_lowercase());
        let mut start = container.preamble().to_vec();
        container.append(RecordKind::Media, b"", &mut start);
        assert!(start.starts_with(&bytes(row[2])), "{container:?}");
        assert_eq!(Container::detect(&bytes(row[2])), Some(container));
        for algorithm in Algorithm::ALL {
            let listed = row[3].split(", ").any(|name| name == algorithm.name());
            assert_eq!(listed, Container::of(algorithm) == container, "{algorithm}");
        }
    }
    let hex: Vec<_> = record::LZ4_PREAMBLE
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert!(says(&format!("an empty LZ4 frame: `{}`", hex.join(" "))));
}

#[test]
fn records_are_carried_as_in_their_tables() {
    let body = [7u8; 300];
    let n = (record::HEAD_LEN + body.len()) as u16;
    let title = "record in a gzip stripe";
    let rows = table(title);
    let mut framed = Vec::new();
    Container::Gzip.append(RecordKind::Index, &body, &mut framed);
    let (fixed, open) = check_fields(
        title,
        &framed,
        &[
            ("head", &bytes(rows[0][3])),
            ("xlen", &(4 + n).to_le_bytes()),
            ("id", &bytes(rows[2][3])),
            ("len", &n.to_le_bytes()),
        ],
    );
    assert_eq!(fixed, Container::Gzip.prefix_len());
    assert_eq!(open, ["record", "tail"]);
    assert_eq!(bytes(rows[5][3]), framed[fixed + usize::from(n)..]);

    let title = "record in a zstd or LZ4 stripe";
    let magic = bytes(table(title)[0][3]);
    for container in [Container::Zstd, Container::Lz4] {
        let mut framed = Vec::new();
        container.append(RecordKind::Index, &body, &mut framed);
        let expected: [(&str, &[u8]); 2] =
            [("magic", &magic), ("len", &u32::from(n).to_le_bytes())];
        let (fixed, open) = check_fields(title, &framed, &expected);
        assert_eq!((fixed, open), (container.prefix_len(), vec!["record"]));
        assert_eq!(framed.len(), fixed + usize::from(n));
    }
}

#[test]
fn the_media_header_is_laid_out_as_in_its_table() {
    let header = MediaHeader {
        media_set: uuid(1),
        family_uuid: uuid(2),
        family: 3,
        family_count: 4,
        parity_count: 5,
        container: Container::Lz4,
        compressed: true,
        encrypted: false,
        created_us: -5,
        generation: 6,
        name: long(),
        description: long(),
        software: long(),
    };
    let encoded = header.encode();
    let (fixed, open) = check_fields(
        "media header",
        &encoded,
        &[
            ("media_set", &[1; 16]),
            ("family_uuid", &[2; 16]),
            ("family", &3u16.to_le_bytes()),
            ("family_count", &4u16.to_le_bytes()),
            ("parity_count", &5u16.to_le_bytes()),
            ("container", &[Container::Lz4 as u8]),
            ("compressed", &[1]),
            ("created_us", &(-5i64).to_le_bytes()),
            ("compatible", &COMPATIBLE_WRITTEN.to_le_bytes()),
            ("incompatible", &MEDIA_INCOMPATIBLE_PARITY.to_le_bytes()),
            ("generation", &6u32.to_le_bytes()),
        ],
    );
    assert_eq!(open, ["name", "description", "software"]);
    assert_eq!(text_lens(&encoded[fixed..]), text_limits("media header"));
    assert!(says(
        "of the media header incompatible bit 0 (*encryption*) and bit 2 (*parity*"
    ));
    assert_eq!(COMPATIBLE_WRITTEN, 0);
    assert_eq!(INCOMPATIBLE_KNOWN, 1 | 1 << 2);
    let without = MediaHeader {
        parity_count: 0,
        ..header
    };
    assert_eq!(without.encode()[56..64], [0; 8]);
}

/// An attribute with a value of so many bytes.
fn xattr(bytes: usize) -> Xattr {
    Xattr {
        name: b"user.a".to_vec(),
        value: vec![21; bytes],
    }
}

/// Every field has a different value.
fn set_header() -> SetHeader {
    SetHeader {
        set: uuid(1),
        position: 2,
        start_us: -3,
        source_kind: 4,
        backup_type: BackupType::Differential,
        algorithm: Algorithm::Zstd,
        level: Level::Number(-6),
        buffer_bytes: 7,
        page_bytes: 8,
        copy_only: true,
        attributes: false,
        encrypted: false,
        keys_detached: false,
        parent: Some(uuid(11)),
        log: LogStart {
            system: 12,
            timeline: 13,
            first_lsn: 14,
        },
        expires_us: Some(9),
        time_zone: -10,
        database: long(),
        name: long(),
        description: long(),
        machine: long(),
        user: long(),
        origin: long(),
        lineage: vec![15; LINEAGE_MAX],
        identity: SourceIdentity {
            name: "n".repeat(IDENTITY_MAX + 1),
            births_ns: vec![16; BIRTHS_MAX + 1],
        },
        tree_root: TreeRoot::dir(0o17, (18, 19), 20, vec![xattr(2015)]),
        sum_key: None,
        server_started_us: None,
    }
}

#[test]
fn each_kind_of_set_has_its_own_feature_bit_and_no_other() {
    let mut header = set_header();
    for (kind, parent, bit) in [
        (BackupType::Database, None, 0),
        (BackupType::Differential, Some(uuid(1)), 2),
        (BackupType::Log, None, 4),
    ] {
        header.backup_type = kind;
        header.parent = parent;
        let mut encoded = header.encode();
        let decoded = SetHeader::decode(&encoded).unwrap();
        assert_eq!((decoded.backup_type, decoded.parent), (kind, parent));
        assert_eq!(decoded.encode(), encoded);
        assert_eq!(encoded[56], bit);
        // Also with the bit for sums, because the key is missing. Encryption goes with every kind.
        for wrong in (0..16).filter(|wrong| *wrong & !1 != bit) {
            for attributes in [0, INCOMPATIBLE_ATTRIBUTES as u8] {
                encoded[56] = wrong | attributes;
                assert!(SetHeader::decode(&encoded).is_err(), "{kind:?} {wrong}");
            }
        }
        encoded[56] = bit | INCOMPATIBLE_ATTRIBUTES as u8;
        let decoded = SetHeader::decode(&encoded).unwrap();
        assert!(decoded.attributes && decoded.backup_type == kind);
        assert_eq!(decoded.encode(), encoded);
    }
}

#[test]
fn the_algorithm_pages_and_its_bit_come_together() {
    for algorithm in Algorithm::ALL {
        let mut header = set_header();
        header.algorithm = algorithm;
        let mut encoded = header.encode();
        let bits = u64::from(encoded[56]);
        let has_bit = bits & INCOMPATIBLE_PAGES != 0;
        assert_eq!(has_bit, algorithm == Algorithm::Pages);
        assert_eq!(SetHeader::decode(&encoded).unwrap().algorithm, algorithm);
        encoded[56] ^= INCOMPATIBLE_PAGES as u8;
        assert!(SetHeader::decode(&encoded).is_err(), "{algorithm}");
    }
}

#[test]
fn keys_are_detached_from_encrypted_sets_alone() {
    for (encrypted, keys_detached) in [(false, false), (true, false), (true, true), (false, true)] {
        let header = SetHeader {
            encrypted,
            keys_detached,
            ..set_header()
        };
        let encoded = header.encode();
        let bits = u64::from(encoded[56]);
        assert_eq!(bits & INCOMPATIBLE_DETACHED != 0, keys_detached);
        let decoded = SetHeader::decode(&encoded);
        let is_right = encrypted || !keys_detached;
        assert_eq!(decoded.is_ok(), is_right, "{encrypted} {keys_detached}");
        if let Ok(decoded) = decoded {
            assert_eq!(
                (decoded.encrypted, decoded.keys_detached),
                (encrypted, keys_detached)
            );
        }
    }
}

#[test]
fn feature_bits_are_those_of_the_code_and_no_other_is_known() {
    let listed: BTreeMap<_, _> = table("features")
        .iter()
        .map(|row| ((row[0], row[2]), 1 << number(row[1]).unwrap()))
        .collect();
    let known = BTreeMap::from([
        (("incompatible", "encrypted"), INCOMPATIBLE_ENCRYPTED),
        (("incompatible", "differential"), INCOMPATIBLE_DIFFERENTIAL),
        (("incompatible", "log"), INCOMPATIBLE_LOG),
        (("incompatible", "sums"), INCOMPATIBLE_SUMS),
        (("incompatible", "attributes"), INCOMPATIBLE_ATTRIBUTES),
        (("incompatible", "pages"), INCOMPATIBLE_PAGES),
        (("incompatible", "detached"), INCOMPATIBLE_DETACHED),
        (("compatible", "lineage"), COMPATIBLE_LINEAGE),
        (("compatible", "identity"), COMPATIBLE_IDENTITY),
        (("compatible", "root"), COMPATIBLE_TREE_ROOT),
    ]);
    assert_eq!(listed, known);
    let incompatible = listed.iter().filter(|row| row.0.0 == "incompatible");
    let all = incompatible.fold(0, |bits, row| bits | row.1);
    assert_eq!(all, SET_INCOMPATIBLE_KNOWN);
}

#[test]
fn the_checksum_method_follows_the_set_header_as_in_its_table() {
    let mut header = set_header();
    // A lineage would precede it.
    header.lineage.clear();
    header.identity = SourceIdentity::default();
    header.tree_root = TreeRoot::Unknown;
    let without = header.encode();
    header.sum_key = Some(SumKey::from_bytes([3; 32]));
    header.server_started_us = Some(-4);
    let mut encoded = header.encode();
    assert_eq!(encoded[56], 2 | 8);
    // The texts were truncated.
    let decoded = SetHeader::decode(&encoded).unwrap();
    assert!(decoded.encode() == encoded && decoded.sum_key == header.sum_key);
    let (fixed, open) = check_fields(
        "set header with sums",
        &encoded[without.len()..],
        &[
            ("sum_key", &[3; 32]),
            ("server_started_us", &(-4i64).to_le_bytes()),
        ],
    );
    assert_eq!((without.len() + fixed, open.len()), (encoded.len(), 0));
    // Fields of compatible features of later versions follow.
    encoded[48] = 8;
    encoded.push(0);
    assert!(SetHeader::decode(&encoded).is_ok_and(|header| header == decoded));
    for len in without.len()..without.len() + fixed {
        assert!(SetHeader::decode(&encoded[..len]).is_err(), "{len}");
    }
}

#[test]
fn a_lineage_follows_the_texts_or_the_sums_where_its_row_says() {
    let rows = table("set header");
    let row = rows.iter().find(|row| row[2] == "lineage").unwrap();
    let before = |text: &str| text.rsplit(' ').next()?.parse::<usize>().ok();
    let begins: Vec<_> = row[3].split("+6n").filter_map(before).collect();
    let mut header = set_header();
    // Each text is its length, 0.
    header.database.clear();
    header.name.clear();
    header.description.clear();
    header.machine.clear();
    header.user.clear();
    header.origin.clear();
    header.identity = SourceIdentity::default();
    header.tree_root = TreeRoot::Unknown;
    header.lineage = vec![7; 3];
    let keys = [None, Some(SumKey::from_bytes([3; 32]))];
    assert_eq!(begins.len(), keys.len(), "{}", row[3]);
    for (begin, sum_key) in begins.into_iter().zip(keys) {
        header.sum_key = sum_key;
        let encoded = header.encode();
        assert_eq!(encoded[begin + 6 * 2..], [3, 0, 7, 7, 7], "{begin}");
    }
}

#[test]
fn a_source_identity_is_laid_out_as_the_page_says() {
    let mut header = set_header();
    header.lineage.clear();
    header.identity = SourceIdentity::default();
    header.tree_root = TreeRoot::Unknown;
    let without = header.encode();
    header.identity = SourceIdentity {
        name: "ab".into(),
        births_ns: vec![7, -8, 7],
    };
    let mut encoded = header.encode();
    let births = [
        7i64.to_le_bytes(),
        (-8i64).to_le_bytes(),
        7i64.to_le_bytes(),
    ]
    .concat();
    let body = [&[29, 0, 2, 0, b'a', b'b', 3][..], &births].concat();
    assert_eq!(encoded[without.len()..], body);
    // The length of all of it comes first, as before a text.
    let fields = &body[2..];
    let rows: Vec<_> = table("source identity");
    let found: Vec<_> = rows.iter().map(|r| (r[0], r[1], r[2])).collect();
    let documented = [
        ("0", "n", "name"),
        ("n", "1", "count"),
        ("n+1", "8 each", "birth"),
    ];
    assert_eq!(found, documented);
    let n = 2 + usize::from(u16::from_le_bytes([fields[0], fields[1]]));
    assert_eq!((&fields[2..n], fields[n]), (&b"ab"[..], 3));
    assert_eq!(fields[n + 1..], births);
    assert_eq!(text_limits("source identity"), [IDENTITY_MAX]);
    assert_eq!(encoded[48], COMPATIBLE_IDENTITY as u8);
    let decoded = SetHeader::decode(&encoded).unwrap();
    assert_eq!(decoded.identity, header.identity);
    // A wrong count of births.
    for count in (0..=255).filter(|count| *count != 3) {
        encoded[without.len() + 6] = count;
        assert!(SetHeader::decode(&encoded).is_err(), "{count}");
    }
    // An empty identity is expressed only by leaving it out.
    let empty = [&without[..], &[3, 0, 0, 0, 0]].concat();
    let mut empty = empty;
    empty[48] = COMPATIBLE_IDENTITY as u8;
    assert!(SetHeader::decode(&empty).is_err());
    // The newest births are kept.
    header.identity.births_ns = (0..100).collect();
    let decoded = SetHeader::decode(&header.encode()).unwrap();
    assert_eq!(decoded.identity.births_ns[0], 36);
}

#[test]
fn the_root_of_a_tree_is_laid_out_as_the_page_says() {
    let mut header = set_header();
    header.lineage.clear();
    header.identity = SourceIdentity::default();
    header.tree_root = TreeRoot::Unknown;
    let without = header.encode();
    header.tree_root = TreeRoot::dir(0o17, (18, 19), -20, vec![xattr(3)]);
    let encoded = header.encode();
    assert_eq!(encoded[48], COMPATIBLE_TREE_ROOT as u8);
    let (len, field) = encoded[without.len()..].split_at(2);
    assert_eq!(usize::from(len[0]), field.len());
    let attributes = [
        6, 6, 3, 0, 0, 0, b'u', b's', b'e', b'r', b'.', b'a', 21, 21, 21,
    ];
    let (fixed, open) = check_fields(
        "tree root",
        field,
        &[
            ("kind", &[1]),
            ("mode", &0o17u32.to_le_bytes()),
            ("uid", &18u32.to_le_bytes()),
            ("gid", &19u32.to_le_bytes()),
            ("mtime_ns", &(-20i64).to_le_bytes()),
        ],
    );
    assert_eq!(open, ["attributes"]);
    assert_eq!(field[fixed..], attributes);
    assert_eq!(
        SetHeader::decode(&encoded).unwrap().tree_root,
        header.tree_root
    );
    header.tree_root = TreeRoot::None;
    let encoded = header.encode();
    assert_eq!(encoded[without.len()..], [1, 0, 0]);
    assert_eq!(
        SetHeader::decode(&encoded).unwrap().tree_root,
        TreeRoot::None
    );
    assert!(TREE_ROOT_MAX <= usize::from(u16::MAX));
    // All fields at their longest fit into a record.
    let mut longest = set_header();
    longest.sum_key = Some(SumKey::from_bytes([3; 32]));
    assert!(longest.encode().len() <= record::BODY_MAX);
}

#[test]
fn the_set_header_is_laid_out_as_in_its_table() {
    let header = set_header();
    let encoded = header.encode();
    let (fixed, open) = check_fields(
        "set header",
        &encoded,
        &[
            ("set", &[1; 16]),
            ("position", &2u32.to_le_bytes()),
            ("start_us", &(-3i64).to_le_bytes()),
            ("source_kind", &[4]),
            ("backup_type", &[2]),
            ("algorithm", &[Algorithm::Zstd as u8]),
            ("level", &(-6i16).to_le_bytes()),
            ("time_zone", &(-10i16).to_le_bytes()),
            ("buffer_bytes", &7u32.to_le_bytes()),
            ("page_bytes", &8u32.to_le_bytes()),
            ("flags", &1u32.to_le_bytes()),
            (
                "compatible",
                &(COMPATIBLE_LINEAGE | COMPATIBLE_IDENTITY | COMPATIBLE_TREE_ROOT).to_le_bytes(),
            ),
            ("incompatible", &INCOMPATIBLE_DIFFERENTIAL.to_le_bytes()),
            ("expires_us", &9i64.to_le_bytes()),
            ("parent", &[11; 16]),
            ("system", &12u64.to_le_bytes()),
            ("timeline", &13u32.to_le_bytes()),
            ("first_lsn", &14u64.to_le_bytes()),
        ],
    );
    assert_eq!(
        open,
        [
            "database",
            "name",
            "description",
            "machine",
            "user",
            "origin",
            "lineage",
            "identity",
            "root"
        ]
    );
    assert_eq!(text_lens(&encoded[fixed..]), text_limits("set header"));
    let level_at = |level| {
        let encoded = SetHeader {
            level,
            ..header.clone()
        }
        .encode();
        u16::from_le_bytes([encoded[32], encoded[33]])
    };
    for (level, name) in [
        (Level::Low, "LOW"),
        (Level::Medium, "MEDIUM"),
        (Level::High, "HIGH"),
    ] {
        assert!(says(&format!("0x{:04X} {name}", level_at(level))));
    }
}

#[test]
fn block_and_manifest_records_are_laid_out_as_in_their_tables() {
    // Long enough for one Manifest record, so that both kinds are written.
    let manifest: Vec<u8> = (0..20_000u32).map(|n| n as u8).collect();
    let header = BlockHeader {
        set: uuid(1),
        sequence: 2,
        plain_len: 3000,
        stored_len: 400,
        plain_crc: 5,
        stored_crc: 6,
        manifest_crc: 0,
        manifest_len: 0,
        manifest_parts: 0,
        algorithm: Algorithm::QatDeflate,
        salt: [9; 16],
    };
    let container = Container::Zstd;
    let mut out = vec![0; block::head_len(container, manifest.len())];
    block::put_head(container, header, &manifest, &mut out);
    let len = container.framed_len_at(&out).unwrap();
    let (kind, body) = container.parse(&out[..len]).unwrap();
    assert_eq!(kind, RecordKind::Manifest);
    let (fixed, open) = check_fields(
        "manifest record",
        body,
        &[
            ("set", &[1; 16]),
            ("sequence", &2u64.to_le_bytes()),
            ("part", &[0; 2]),
        ],
    );
    assert_eq!((fixed, open), (MANIFEST_HEAD_LEN, vec!["bytes"]));
    let first_part = &body[fixed..];
    assert_eq!(first_part.len(), 15_872);
    assert!(says("each takes the next 15,872 bytes"));
    assert_eq!(record::BODY_MAX - BLOCK_FIXED_LEN, 15_828);
    assert!(says(
        "A manifest of up to 15,828 bytes stands in the Block record alone"
    ));

    let (kind, body) = container.parse(&out[len..]).unwrap();
    assert_eq!(kind, RecordKind::Block);
    let (fixed, open) = check_fields(
        "block header",
        body,
        &[
            ("set", &[1; 16]),
            ("sequence", &2u64.to_le_bytes()),
            ("plain_len", &3000u32.to_le_bytes()),
            ("stored_len", &400u32.to_le_bytes()),
            ("plain_crc", &5u32.to_le_bytes()),
            ("stored_crc", &6u32.to_le_bytes()),
            (
                "manifest_crc",
                &longshore_io::crc32c(&manifest).to_le_bytes(),
            ),
            ("manifest_len", &20_000u32.to_le_bytes()),
            ("manifest_parts", &1u16.to_le_bytes()),
            ("algorithm", &[Algorithm::QatDeflate as u8]),
            ("salt", &[9; 16]),
        ],
    );
    assert_eq!((fixed, open), (BLOCK_FIXED_LEN, vec!["bytes"]));
    assert_eq!([first_part, &body[fixed..]].concat(), manifest);
    for plain in [1, 255, 256, 1 << 20] {
        assert_eq!(header::stored_max(plain), plain + plain / 256 + 1024);
    }
    assert!(says("At most `plain_len` + `plain_len` / 256 + 1,024"));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn manifest_items_are_laid_out_as_in_their_tables() {
    let entry = |kind| Entry {
        path: "a/b".into(),
        kind,
        first: true,
        based: false,
        xattrs: Vec::new(),
        mode: 0o4321,
        uid: 2,
        gid: 3,
        mtime_ns: -4,
        len: 5,
    };
    let kinds = [
        ("file", EntryKind::File, ""),
        ("directory", EntryKind::Dir, ""),
        (
            "symbolic link",
            EntryKind::Symlink {
                target: "cd".into(),
            },
            "cd",
        ),
        ("hard link", EntryKind::HardLink { target: "e".into() }, "e"),
    ];
    for (i, (name, kind, target)) in kinds.into_iter().enumerate() {
        let number = i as u8 + 1;
        assert!(table("item Entry")[1][3].contains(&format!("{number} {name}")));
        let mut encoded = Vec::new();
        Item::Entry(entry(kind)).encode(&mut encoded);
        let (fixed, open) = check_fields(
            "item Entry",
            &encoded,
            &[
                ("tag", &[1]),
                ("kind", &[number]),
                ("flags", &1u16.to_le_bytes()),
                ("mode", &0o4321u32.to_le_bytes()),
                ("uid", &2u32.to_le_bytes()),
                ("gid", &3u32.to_le_bytes()),
                ("mtime_ns", &(-4i64).to_le_bytes()),
                ("len", &5u64.to_le_bytes()),
                ("path_len", &3u16.to_le_bytes()),
            ],
        );
        assert_eq!(open, ["path", "target_len", "target"]);
        let rest = [&b"a/b"[..], &[target.len() as u8, 0], target.as_bytes()].concat();
        assert_eq!(encoded[fixed..], rest);
    }

    let mut encoded = Vec::new();
    Item::Extent(Extent { offset: 6, len: 7 }).encode(&mut encoded);
    let (fixed, open) = check_fields(
        "item Extent",
        &encoded,
        &[
            ("tag", &[2]),
            ("offset", &6u64.to_le_bytes()),
            ("len", &7u32.to_le_bytes()),
        ],
    );
    assert_eq!((fixed, open.len()), (EXTENT_LEN, 0));
    assert_eq!(encoded.len(), EXTENT_LEN);

    let attribute = |name: &str, value: &[u8]| Xattr {
        name: name.into(),
        value: value.to_vec(),
    };
    let with = |xattrs: Vec<Xattr>| {
        let mut encoded = Vec::new();
        let file = entry(EntryKind::File);
        Entry { xattrs, ..file }.encode(&mut encoded);
        encoded
    };
    let plain = with(Vec::new()).len();
    let encoded = with(vec![attribute("user.x", b"value")]);
    let (fixed, open) = check_fields(
        "item Attribute",
        &encoded[plain..],
        &[
            ("tag", &[6]),
            ("name_len", &[6]),
            ("value_len", &5u32.to_le_bytes()),
        ],
    );
    assert_eq!((fixed, &*open), (XATTR_HEAD, &["name", "value"][..]));
    assert_eq!(&encoded[plain + fixed..], b"user.xvalue");
    // The page's rules for names, their order and their position.
    for name in [
        "user.a",
        "trusted.b",
        "security.capability",
        "security.selinux",
        "security.NTACL",
        "security.SMACK64",
        "system.posix_acl_access",
        "system.posix_acl_default",
    ] {
        let space = match name.starts_with("security.") {
            true => "security.",
            false => name.trim_end_matches(".a").trim_end_matches(".b"),
        };
        assert!(table("item Attribute")[3][3].contains(space), "{name}");
        let attributes = with(vec![attribute(name, b"")]);
        assert!(manifest::decode(&attributes, 0).is_ok(), "{name}");
    }
    let too_long = format!("user.{}", "n".repeat(251));
    for name in [
        "user.",
        "security.",
        "security.ima",
        "security.evm",
        "system.nfs4_acl",
        "btrfs.x",
        &too_long[..255],
        "user.\0",
    ] {
        let attributes = with(vec![attribute(name, b"")]);
        let is_kept = name.len() == 255;
        assert_eq!(manifest::decode(&attributes, 0).is_ok(), is_kept, "{name}");
    }
    for (first, second) in [("user.a", "user.a"), ("user.b", "user.a")] {
        let attributes = with(vec![attribute(first, b""), attribute(second, b"")]);
        assert!(
            manifest::decode(&attributes, 0).is_err(),
            "{first}, {second}"
        );
    }
    let most = XATTRS_BYTES_MAX - XATTR_HEAD - 6;
    for (len, fits) in [(most, true), (most + 1, false)] {
        let attributes = with(vec![attribute("user.x", &vec![1; len])]);
        assert_eq!(manifest::decode(&attributes, 0).is_ok(), fits);
    }
    let item = &encoded[plain..];
    assert!(manifest::decode(item, 0).is_err(), "without an entry");
    let mut later = encoded[..plain].to_vec();
    Item::Extent(Extent { offset: 0, len: 5 }).encode(&mut later);
    later.extend_from_slice(item);
    assert!(manifest::decode(&later, 5).is_err(), "behind an extent");
    let mut again = encoded.clone();
    again[2] = 0;
    assert!(manifest::decode(&again, 0).is_err(), "not named first");
    let mut encoded = Vec::new();
    let sums = Sums {
        offset: 16384,
        page_bytes: 8192,
        sums: vec![5, 6],
    };
    Item::Sums(sums).encode(&mut encoded);
    let (fixed, open) = check_fields(
        "item Sums",
        &encoded,
        &[
            ("tag", &[5]),
            ("offset", &16384u64.to_le_bytes()),
            ("page_bytes", &8192u32.to_le_bytes()),
            ("count", &2u16.to_le_bytes()),
        ],
    );
    assert_eq!((fixed, open), (SUMS_HEAD_LEN, vec!["sums"]));
    let rest = [5u64.to_le_bytes(), 6u64.to_le_bytes()].concat();
    assert_eq!(encoded[fixed..], rest);
    assert_eq!(encoded.len(), sums_len(2));
    assert!(says(&format!(
        "a power of two from {SUM_PAGE_MIN} to 65,536"
    )));
    assert_eq!(SUM_PAGE_MAX, 65_536);
    let key = SumKey::from_bytes(std::array::from_fn(|i| i as u8));
    let sum = key.sum(&(0..64).collect::<Vec<u8>>());
    let short = key.sum(&[0, 1]);
    assert!(says(&format!(
        "is {sum:016x}, and that of the 2 bytes 00, 01 is {short:016x}."
    )));

    let kinds = [
        (MarkKind::Modified, 1, "1: changed"),
        (MarkKind::Shrunk, 2, "2: ended early"),
        (MarkKind::Vanished, 3, "3: gone"),
    ];
    for (kind, number, words) in kinds {
        assert!(table("item Mark")[1][3].contains(words));
        let mut encoded = Vec::new();
        let path = "pq".into();
        Item::Mark(Mark { path, kind }).encode(&mut encoded);
        let expected: [(&str, &[u8]); 3] = [
            ("tag", &[3]),
            ("kind", &[number]),
            ("path_len", &2u16.to_le_bytes()),
        ];
        let (fixed, open) = check_fields("item Mark", &encoded, &expected);
        assert_eq!((open, &encoded[fixed..]), (vec!["path"], &b"pq"[..]));
    }
}

#[test]
fn algorithms_have_their_numbers() {
    let rows = table("algorithms");
    assert_eq!(rows.len(), Algorithm::ALL.len());
    for (row, algorithm) in rows.iter().zip(Algorithm::ALL) {
        assert_eq!(number(row[0]), Some(algorithm as u64));
        assert_eq!(row[1], algorithm.name());
    }
}

#[test]
fn index_chunks_are_laid_out_as_in_their_tables() {
    let container = Container::Zstd;
    let mut builder = index::Builder::default();
    let row = |sequence, offset, len, plain_len, manifest| index::RowRef {
        sequence,
        offset,
        len,
        plain_len,
        digest: None,
        manifest,
    };
    builder.add(row(0, 1, 2, 3, b""));
    let first = builder.flush(container, 4000);
    builder.add(row(5, 6, 7, 9, b"manifest"));
    let chunk = builder.flush(container, 9000);
    let (kind, body) = container.parse(&chunk).unwrap();
    assert_eq!(kind, RecordKind::Index);
    let raw_len = index::BLOCK_ROW_LEN + b"manifest".len();
    let (fixed, open) = check_fields(
        "index record",
        body,
        &[
            ("previous_offset", &4000u64.to_le_bytes()),
            ("previous_len", &(first.len() as u32).to_le_bytes()),
            ("raw_len", &(raw_len as u32).to_le_bytes()),
            ("part", &[0; 2]),
            ("count", &1u16.to_le_bytes()),
        ],
    );
    assert_eq!((fixed, open), (index::PART_HEAD_LEN, vec!["bytes"]));
    let raw = miniz_oxide::inflate::decompress_to_vec(&body[fixed..]).unwrap();
    let (fixed, open) = check_fields(
        "index row",
        &raw,
        &[
            ("sequence", &5u64.to_le_bytes()),
            ("offset", &6u64.to_le_bytes()),
            ("len", &7u32.to_le_bytes()),
            ("plain_len", &9u32.to_le_bytes()),
            ("manifest_len", &8u32.to_le_bytes()),
        ],
    );
    assert_eq!((fixed, open), (index::BLOCK_ROW_LEN, vec!["manifest"]));
    assert_eq!(&raw[fixed..], b"manifest");
    assert!(says("all but the last are full (15,876 bytes each)"));
    assert_eq!(record::BODY_MAX - index::PART_HEAD_LEN, 15_876);
}

#[test]
fn the_parity_record_is_laid_out_as_in_its_table_and_factors_are_those_of_the_page() {
    let span = |n: u32| Span {
        offset: u64::from(n),
        len: n + 1,
        crc: n + 2,
    };
    let record = RowRecord {
        set: uuid(1),
        row: 2,
        at: 3,
        row_bytes: 4096,
        chunk_len: 41,
        spans: vec![span(30), span(40), span(20)],
        chunk_crcs: vec![6, 7],
    };
    let encoded = record.encode();
    let (fixed, open) = check_fields(
        "parity record",
        &encoded,
        &[
            ("set", &[1; 16]),
            ("row", &2u64.to_le_bytes()),
            ("at", &3u64.to_le_bytes()),
            ("row_bytes", &4096u32.to_le_bytes()),
            ("chunk_len", &41u32.to_le_bytes()),
            ("data_count", &3u16.to_le_bytes()),
            ("parity_count", &2u16.to_le_bytes()),
        ],
    );
    assert_eq!((fixed, open), (48, vec!["member", "chunk_crc"]));
    assert_eq!(encoded.len(), 48 + 16 * 3 + 4 * 2);
    assert_eq!(encoded[48..56], 30u64.to_le_bytes());
    assert_eq!(encoded[56..64], [31, 0, 0, 0, 32, 0, 0, 0]);
    assert_eq!(encoded[96..], [6, 0, 0, 0, 7, 0, 0, 0]);
    assert_eq!(RowRecord::decode(&encoded), Ok(record));
    assert!(says("factor(j, i) = inv(i xor (255 - j)) / inv(i xor 255)"));
    for (j, i, factor) in [(1, 0, 0x7f), (1, 1, 0xfc), (2, 3, 0xfd)] {
        assert!(says(&format!("factor({j}, {i}) is 0x{factor:02X}")));
        assert_eq!(longshore_parity::coefficient(j, i), factor);
    }
    assert!(says("2 × 0x80 is 0x1D"));
    assert_eq!(longshore_parity::product(2, 0x80), 0x1d);
}

#[test]
fn the_trailer_is_laid_out_as_in_its_table() {
    let trailer = SetTrailer {
        set: uuid(1),
        position: 2,
        damaged: true,
        log: LogEnd {
            timeline: 16,
            last_lsn: 15,
            included: true,
        },
        finish_us: -3,
        set_offset: 4,
        previous_trailer: 5,
        blocks_here: 6,
        blocks_total: 7,
        plain_bytes_total: 8,
        stored_bytes_total: 9,
        entries_total: 10,
        files_total: 11,
        index_offset: 12,
        index_len: 13,
        chain_crc: 14,
        proof: Some(RootProof {
            mac: [17; 32],
            root: [18; 32],
        }),
    };
    let (fixed, open) = check_fields(
        "set trailer",
        &trailer.encode(),
        &[
            ("set", &[1; 16]),
            ("position", &2u32.to_le_bytes()),
            ("flags", &3u32.to_le_bytes()),
            ("finish_us", &(-3i64).to_le_bytes()),
            ("set_offset", &4u64.to_le_bytes()),
            ("previous_trailer", &5u64.to_le_bytes()),
            ("blocks_here", &6u64.to_le_bytes()),
            ("blocks_total", &7u64.to_le_bytes()),
            ("plain_bytes_total", &8u64.to_le_bytes()),
            ("stored_bytes_total", &9u64.to_le_bytes()),
            ("entries_total", &10u64.to_le_bytes()),
            ("files_total", &11u64.to_le_bytes()),
            ("index_offset", &12u64.to_le_bytes()),
            ("index_len", &13u32.to_le_bytes()),
            ("chain_crc", &14u32.to_le_bytes()),
            ("last_lsn", &15u64.to_le_bytes()),
            ("log_timeline", &16u32.to_le_bytes()),
            ("mac", &[17; 32]),
            ("root", &[18; 32]),
        ],
    );
    assert_eq!((fixed, open.len()), (TRAILER_LEN, 0));
    assert!(says(
        "the framed record is 234 bytes in a gzip stripe and 216 in the others"
    ));
    assert_eq!(Container::Gzip.framed_len(TRAILER_LEN), 234);
    assert_eq!(Container::Zstd.framed_len(TRAILER_LEN), 216);
    assert_eq!(Container::Lz4.framed_len(TRAILER_LEN), 216);
}

fn payload(algorithm: Algorithm, plain: &[u8]) -> Vec<u8> {
    let mut out = vec![0; payload_bound(algorithm, plain.len())];
    let mut compressor = Compressor::new(algorithm, Level::Low).unwrap();
    let len = compressor.compress(plain, &mut out).len;
    out.truncate(len);
    out
}

#[test]
fn payloads_are_laid_out_as_in_their_tables() {
    let plain: Vec<u8> = (0..100_000u32).map(|n| (n / 700) as u8).collect();
    let plain_len = plain.len() as u32;

    let rows = table("LZ4 frame");
    for (algorithm, stored) in [(Algorithm::None, 1 << 31), (Algorithm::Lz4, 0)] {
        let frame = payload(algorithm, &plain);
        let block_len = (frame.len() - 23) as u32 | stored;
        // The checksum itself is compared by the Python reader, which has its own XXH32.
        let checksum = frame[14];
        let (fixed, open) = check_fields(
            "LZ4 frame",
            &frame,
            &[
                ("magic", &bytes(rows[0][3])),
                ("flags", &bytes(rows[1][3])),
                ("block_max", &bytes(rows[2][3])),
                ("content_size", &u64::from(plain_len).to_le_bytes()),
                ("header_checksum", &[checksum]),
                ("block_len", &block_len.to_le_bytes()),
            ],
        );
        assert_eq!((fixed, open), (19, vec!["block", "end"]));
        assert!(frame.ends_with(&[0; 4]));
    }

    let frame = payload(Algorithm::MsXpress, &plain);
    let (fixed, open) = check_fields(
        "MS_XPRESS frame",
        &frame,
        &[
            ("magic", &bytes(table("MS_XPRESS frame")[0][3])),
            ("len", &(frame.len() as u32 - 8).to_le_bytes()),
            ("plain_len", &plain_len.to_le_bytes()),
        ],
    );
    assert_eq!((fixed, open), (12, vec!["lengths", "chunks"]));
    let chunk_len = |at| usize::from(u16::from_le_bytes([frame[at], frame[at + 1]])) + 1;
    assert_eq!(frame.len(), 12 + 4 + chunk_len(12) + chunk_len(14));

    let frame = payload(Algorithm::Pages, &plain);
    let (fixed, open) = check_fields(
        "PAGES frame",
        &frame,
        &[
            ("magic", &bytes(table("PAGES frame")[0][3])),
            ("len", &(frame.len() as u32 - 8).to_le_bytes()),
            ("method", &[1]),
        ],
    );
    assert_eq!((fixed, open), (9, vec!["rest"]));

    let member = payload(Algorithm::QatDeflate, &plain);
    let rows = table("gzip member");
    let (fixed, open) = check_fields(
        "gzip member",
        &member,
        &[
            ("head", &bytes(rows[0][3])),
            ("xlen", &12u16.to_le_bytes()),
            ("id", &bytes(rows[2][3])),
            ("len", &8u16.to_le_bytes()),
            ("src_len", &plain_len.to_le_bytes()),
            ("dest_len", &(member.len() as u32 - 32).to_le_bytes()),
        ],
    );
    assert_eq!((fixed, open), (24, vec!["deflate", "crc32", "isize"]));
    let deflate = &member[24..member.len() - 8];
    let inflated = miniz_oxide::inflate::decompress_to_vec(deflate).unwrap();
    assert_eq!(inflated, plain);
    assert!(member.ends_with(&plain_len.to_le_bytes()));

    let frame = payload(Algorithm::Zstd, &plain);
    assert!(frame.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]));
    // Frame header descriptor, RFC 8878 3.1.1.1.1: no checksum, no dictionary, some content size.
    assert_eq!(frame[4] & 0b0000_0111, 0);
    assert_ne!(frame[4] & 0b1110_0000, 0);
}

#[test]
fn the_example_is_what_the_code_writes() {
    let mut manifest = Vec::new();
    Entry {
        path: "a".into(),
        kind: EntryKind::File,
        first: true,
        based: false,
        xattrs: Vec::new(),
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        mtime_ns: 1_000_000_000,
        len: 0,
    }
    .encode(&mut manifest);
    let header = BlockHeader {
        set: Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
        sequence: 7,
        plain_len: 0,
        stored_len: 0,
        plain_crc: 0,
        stored_crc: 0,
        manifest_crc: 0,
        manifest_len: 0,
        manifest_parts: 0,
        algorithm: Algorithm::QatDeflate,
        salt: Default::default(),
    };
    let mut out = vec![0; block::head_len(Container::Gzip, manifest.len())];
    block::put_head(Container::Gzip, header, &manifest, &mut out);
    let line = |(i, bytes): (usize, &[u8])| {
        let hex: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
        format!("{:04x}  {}\n", i * 16, hex.join(" "))
    };
    let code: String = out.chunks(16).enumerate().map(line).collect();
    let page = PAGE.split("```hex\n").nth(1).unwrap();
    assert_eq!(page.split("```").next().unwrap(), code);
}

#[test]
fn every_table_of_the_page_is_compared_with_the_code() {
    let tests = concat!(
        include_str!("format_page.rs"),
        include_str!("format_limits.rs"),
        include_str!("encrypted_page.rs")
    );
    // Only the room `pg` knows the form of a lineage.
    let lineage = include_str!("../../pg/tests/lineage_page.rs");
    for title in tables().keys() {
        let is_read = tests.contains(&format!("\"{title}\""))
            || lineage.contains(&format!("### Table: {title}\\n"));
        assert!(is_read, "no test reads {title:?}");
    }
}

#[test]
fn the_list_of_tags_has_every_item_and_readers_refuse_all_other_tags() {
    let (_, list) = PAGE.split_once("| tag | item |\n|---|---|\n").unwrap();
    let rows = list.lines().take_while(|line| line.starts_with('|'));
    let mut listed = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let (name, _) = cells[1][1..].split_once(']').unwrap();
        listed.insert(format!("item {name}"), cells[0].to_owned());
    }
    let tables = tables();
    let items = tables
        .iter()
        .filter(|(title, _)| title.starts_with("item "));
    let items = items.map(|(title, rows)| ((*title).to_owned(), rows[0][3].to_owned()));
    assert_eq!(listed, items.collect());
    let mut file = Vec::new();
    Item::Entry(Entry {
        path: "a".into(),
        kind: EntryKind::File,
        first: true,
        based: false,
        xattrs: Vec::new(),
        mode: 0,
        uid: 0,
        gid: 0,
        mtime_ns: 0,
        len: 5,
    })
    .encode(&mut file);
    assert!(manifest::decode(&file, 0).is_ok());
    for tag in 0..=255u8 {
        // A known tag lacks the bytes after it.
        let alone = manifest::decode(&[&file[..], &[tag]].concat(), 0).unwrap_err();
        let expected = match listed.values().any(|number| *number == tag.to_string()) {
            true => record::RecordError::Length,
            false => record::RecordError::Field,
        };
        assert_eq!(alone, expected, "{tag}");
    }
}
