//! Goal: what is written is read back, and what cannot be written is refused.
//! Method: properties over generated values. Decoding is the inverse of encoding, for every record, every manifest and
//! every split of a manifest; any other bytes are refused or harmless.

use longshore_codec::{Algorithm, Level};
use longshore_io::{SumKey, Xattr, crc32c};
use longshore_kit::Random;
use longshore_media::TreeRoot;
use longshore_media::block::{HeadReader, head_len, put_head};
use longshore_media::header::*;
use longshore_media::index;
use longshore_media::manifest::{self, Entry, EntryKind, Extent, Item, Mark, MarkKind, Sums};
use longshore_media::parity::{ROW_BYTES, ROW_BYTES_MIN, RowRecord, Span};
use longshore_media::record::{BODY_MAX, Container, HEAD_LEN, RecordError, RecordKind};
use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

fn uuids() -> impl Strategy<Value = Uuid> {
    any::<u128>().prop_map(Uuid::from_u128)
}

fn containers() -> impl Strategy<Value = Container> {
    prop_oneof![
        Just(Container::Gzip),
        Just(Container::Zstd),
        Just(Container::Lz4)
    ]
}

fn kinds() -> impl Strategy<Value = RecordKind> {
    prop_oneof![
        Just(RecordKind::Media),
        Just(RecordKind::Set),
        Just(RecordKind::Manifest),
        Just(RecordKind::Block),
        Just(RecordKind::Index),
        Just(RecordKind::Trailer),
        Just(RecordKind::Parity)
    ]
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    (0..Algorithm::ALL.len()).prop_map(|i| Algorithm::ALL[i])
}

fn levels() -> impl Strategy<Value = Level> {
    prop_oneof![
        Just(Level::Low),
        Just(Level::Medium),
        Just(Level::High),
        (-1000..=1000).prop_map(Level::Number)
    ]
}

prop_compose! {
    fn media_headers()(
        ids in (uuids(), uuids()),
        parity_count in 0..=PARITY_MAX,
        counts in (0..FAMILIES_MAX, any::<u16>()),
        container in containers(),
        kind in (any::<bool>(), any::<bool>()),
        created_us: i64,
        generation: u32,
        texts in (".{0,128}", ".{0,256}", ".{0,32}"),
    ) -> MediaHeader {
        let family_count = counts.0 % (FAMILIES_MAX - parity_count) + 1;
        let family = counts.1 % (family_count + parity_count) + 1;
        MediaHeader {
            media_set: ids.0,
            family_uuid: ids.1,
            family,
            family_count,
            parity_count,
            container: if family > family_count { Container::Zstd } else { container },
            compressed: kind.0,
            encrypted: kind.1,
            created_us,
            generation,
            name: texts.0,
            description: texts.1,
            software: texts.2,
        }
    }
}

prop_compose! {
    fn set_headers()(
        set in uuids(),
        position in 1..=SETS_MAX,
        times in (any::<i64>(), any::<Option<i64>>()),
        source_kind: u8,
        algorithm in algorithms(),
        level in levels(),
        buffer_bytes in 1..=PLAIN_MAX as u32,
        page_bytes: u32,
        copy_only: bool,
        kind in (any::<bool>(), any::<bool>()),
        parent in proptest::option::of(uuids()),
        log in (any::<u64>(), any::<u32>(), any::<u64>()),
        time_zone: i16,
        sums in proptest::option::of((any::<[u8; 32]>(), any::<Option<i64>>())),
        texts in (".{0,64}", ".{0,64}", ".{0,64}", ".{0,64}", ".{0,64}", ".{0,1024}"),
        lineage in proptest::collection::vec(any::<u8>(), 0..=LINEAGE_MAX),
        identity in (".{0,64}", proptest::collection::vec(any::<i64>(), 0..=BIRTHS_MAX)),
        root in proptest::option::of(proptest::option::of((
            0..=0o7777u32,
            any::<(u32, u32)>(),
            any::<i64>(),
            proptest::collection::vec(any::<u8>(), 0..64),
        ))),
    ) -> SetHeader {
        SetHeader {
            set,
            position,
            start_us: times.0,
            source_kind,
            backup_type: match parent {
                Some(_) => BackupType::Differential,
                None => BackupType::Database,
            },
            algorithm,
            level,
            buffer_bytes,
            page_bytes,
            copy_only,
            attributes: kind.0,
            encrypted: kind.1,
            keys_detached: false,
            parent,
            log: LogStart {
                system: log.0,
                timeline: log.1,
                first_lsn: log.2,
            },
            // On media, 0 means that the set does not expire.
            expires_us: times.1.filter(|t| *t != 0),
            time_zone,
            database: texts.0,
            name: texts.1,
            description: texts.2,
            machine: texts.3,
            user: texts.4,
            origin: texts.5,
            lineage,
            identity: SourceIdentity {
                name: identity.0,
                births_ns: identity.1,
            },
            tree_root: match root {
                None => TreeRoot::Unknown,
                Some(None) => TreeRoot::None,
                Some(Some((mode, owner, mtime_ns, value))) => {
                    let name = b"user.a".to_vec();
                    TreeRoot::dir(mode, owner, mtime_ns, vec![Xattr { name, value }])
                }
            },
            sum_key: sums.map(|(key, _)| SumKey::from_bytes(key)),
            // On media, 0 means unknown.
            server_started_us: sums.and_then(|(_, us)| us).filter(|us| *us != 0),
        }
    }
}

prop_compose! {
    fn block_headers()(
        set in uuids(),
        sequence: u64,
        plain_len in 0..=PLAIN_MAX,
        stored in any::<prop::sample::Index>(),
        crcs in (any::<u32>(), any::<u32>()),
        algorithm in algorithms(),
        salt: [u8; 16],
    ) -> BlockHeader {
        let empty = plain_len == 0;
        BlockHeader {
            set,
            sequence,
            plain_len: plain_len as u32,
            stored_len: if empty { 0 } else { 1 + stored.index(stored_max(plain_len)) as u32 },
            plain_crc: if empty { 0 } else { crcs.0 },
            stored_crc: if empty { 0 } else { crcs.1 },
            // Filled in when the block's head is assembled.
            manifest_crc: 0,
            manifest_len: 0,
            manifest_parts: 0,
            algorithm,
            salt,
        }
    }
}

prop_compose! {
    fn trailers()(
        set in uuids(),
        position in 1..=SETS_MAX,
        damaged: bool,
        log in (any::<u32>(), any::<u64>(), any::<bool>()),
        finish_us: i64,
        n in any::<[u64; 8]>(),
        blocks in (any::<u64>(), any::<u64>()),
        index_len: u32,
        chain_crc: u32,
        proof in proptest::option::of((any::<[u8; 32]>(), 1..=u8::MAX)),
    ) -> SetTrailer {
        SetTrailer {
            set,
            position,
            damaged,
            log: LogEnd {
                timeline: log.0,
                last_lsn: log.1,
                included: log.2,
            },
            finish_us,
            set_offset: n[0],
            previous_trailer: n[1],
            blocks_here: blocks.0.min(blocks.1),
            blocks_total: blocks.0.max(blocks.1),
            plain_bytes_total: n[2],
            stored_bytes_total: n[3],
            entries_total: n[4],
            files_total: n[5],
            index_offset: n[6],
            index_len,
            chain_crc,
            proof: proof.map(|(mac, n)| RootProof { mac, root: [n; 32] }),
        }
    }
}

/// Path components of any bytes except `/` and NUL.
fn paths() -> impl Strategy<Value = std::path::PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let byte = any::<u8>().prop_filter("not in a name", |b| *b != 0 && *b != b'/');
    let component = vec(byte, 1..20).prop_filter("a special name", |c| c != b"." && c != b"..");
    vec(component, 1..5)
        .prop_map(|c| std::path::PathBuf::from(std::ffi::OsString::from_vec(c.join(&b'/'))))
}

fn entry_kinds() -> impl Strategy<Value = EntryKind> {
    prop_oneof![
        3 => Just(EntryKind::File),
        1 => Just(EntryKind::Dir),
        // Any bytes except NUL, canonical or not.
        1 => "[^\0]{1,30}".prop_map(|t| EntryKind::Symlink { target: t.into() }),
        1 => paths().prop_map(|target| EntryKind::HardLink { target }),
    ]
}

/// As a source provides them: each name once, in order.
fn xattrs() -> impl Strategy<Value = Vec<Xattr>> {
    let name = prop_oneof![
        "user\\.[^\0]{1,40}",
        "trusted\\.[a-z]{1,9}",
        Just("security.capability".to_owned()),
        Just("security.selinux".to_owned()),
        Just("system.posix_acl_access".to_owned()),
        Just("system.posix_acl_default".to_owned()),
    ];
    prop::collection::btree_map(name, vec(any::<u8>(), 0..100), 0..4).prop_map(|all| {
        let xattr = |(name, value): (String, Vec<u8>)| Xattr {
            name: name.into_bytes(),
            value,
        };
        all.into_iter().map(xattr).collect()
    })
}

prop_compose! {
    fn entries()(
        path in paths(),
        kind in entry_kinds(),
        first: bool,
        based: bool,
        mode in 0..=0o7777u32,
        owner in (any::<u32>(), any::<u32>()),
        mtime_ns: i64,
        len in 0..=i64::MAX as u64,
        xattrs in xattrs(),
    ) -> Entry {
        let has_none = !first || matches!(kind, EntryKind::HardLink { .. });
        let xattrs = if has_none { Vec::new() } else { xattrs };
        Entry { path, based: based && kind == EntryKind::File, kind, first, mode, uid: owner.0, gid: owner.1, mtime_ns, len, xattrs }
    }
}

/// Sums of pages inside a file of `len` bytes.
fn sums(len: u64) -> impl Strategy<Value = Option<Item>> {
    (9..=16u32, any::<u64>(), vec(1..=u64::MAX, 1..20)).prop_map(move |(shift, at, mut sums)| {
        let pages = len >> shift;
        let first = at.checked_rem(pages)?;
        sums.truncate((pages - first).min(20) as usize);
        Some(Item::Sums(Sums {
            offset: first << shift,
            page_bytes: 1 << shift,
            sums,
        }))
    })
}

/// Manifests as a writer makes them, with their plain length: extents and sums follow their file and lie inside it.
fn manifests() -> impl Strategy<Value = (Vec<Item>, u32)> {
    let mark = (paths(), 0..3usize).prop_map(|(path, kind)| {
        let kinds = [MarkKind::Modified, MarkKind::Shrunk, MarkKind::Vanished];
        Item::Mark(Mark {
            path,
            kind: kinds[kind],
        })
    });
    let extents = vec((any::<u64>(), 1..4000u32), 0..4);
    let group = prop_oneof![
        4 => (entries(), extents).prop_flat_map(|(entry, extents)| {
            (sums(entry.len), Just((entry, extents)))
        }).prop_map(|(sums, (entry, extents))| {
            let mut items = vec![Item::Entry(entry.clone())];
            if entry.kind == EntryKind::File {
                let fits = extents.into_iter().filter(|(_, len)| u64::from(*len) <= entry.len);
                items.extend(fits.map(|(at, len)| {
                    let offset = at % (entry.len - u64::from(len) + 1);
                    Item::Extent(Extent { offset, len })
                }));
                items.extend(sums);
            }
            items
        }),
        1 => mark.prop_map(|m| vec![m]),
    ];
    vec(group, 0..12).prop_map(|groups| {
        let items: Vec<Item> = groups.concat();
        let plain = items.iter().map(|i| match i {
            Item::Extent(e) => e.len,
            _ => 0,
        });
        let plain_len = plain.sum();
        (items, plain_len)
    })
}

fn encode(items: &[Item]) -> Vec<u8> {
    let mut out = Vec::new();
    items.iter().for_each(|i| i.encode(&mut out));
    out
}

proptest! {
    #[test]
    fn headers_come_back_as_they_were(
        media in media_headers(),
        set in set_headers(),
        block in block_headers(),
        trailer in trailers(),
    ) {
        prop_assert_eq!(MediaHeader::decode(&media.encode()), Ok(media));
        prop_assert_eq!(SetHeader::decode(&set.encode()), Ok(set));
        let encoded = block.encode();
        prop_assert_eq!(BlockHeader::decode(&encoded), Ok((block, &[][..])));
        prop_assert_eq!(SetTrailer::decode(&trailer.encode()), Ok(trailer));
    }

    /// Bytes that decode also encode to themselves: everything has exactly one encoding.
    #[test]
    fn other_bytes_are_refused_or_mean_exactly_themselves(
        mut body in vec(any::<u8>(), 0..400),
        header in set_headers(),
        at in any::<prop::sample::Index>(),
        value: u8,
    ) {
        if let Ok(trailer) = SetTrailer::decode(&body) {
            prop_assert_eq!(&trailer.encode()[..], &body[..]);
        }
        // A valid header with one byte changed reaches every check.
        body = header.encode();
        let at = at.index(body.len());
        body[at] = value;
        if let Ok(header) = SetHeader::decode(&body) {
            // This version does not write compatible bits and levels out of range.
            let ours = (48..56).contains(&at) || (32..34).contains(&at);
            prop_assert!(ours || header.encode() == body, "byte {at}");
        }
    }

    #[test]
    fn long_texts_are_cut_at_a_character(text in "\\PC{400,900}") {
        let mut header = proptest::strategy::ValueTree::current(
            &media_headers().new_tree(&mut proptest::test_runner::TestRunner::deterministic()).unwrap(),
        );
        header.name = text.clone();
        let found = MediaHeader::decode(&header.encode()).unwrap().name;
        prop_assert!(text.starts_with(&found) && found.len() <= 512);
        prop_assert!(found.len() > 508 || found == text);
    }

    #[test]
    fn records_come_back_from_every_container(
        container in containers(),
        kind in kinds(),
        body in vec(any::<u8>(), 0..1000),
    ) {
        let mut framed = b"before".to_vec();
        container.append(kind, &body, &mut framed);
        let framed = &framed[6..];
        prop_assert_eq!(framed.len(), container.framed_len(body.len()));
        prop_assert_eq!(container.framed_len_at(framed), Ok(framed.len()));
        prop_assert_eq!(container.parse(framed), Ok((kind, &body[..])));
        // A record of another container is not one of this container.
        for other in [Container::Gzip, Container::Zstd] {
            let alike = other == container || container == Container::Lz4 && other == Container::Zstd;
            prop_assert_eq!(other.parse(framed).is_ok(), alike);
        }
    }

    #[test]
    fn any_bytes_are_refused_as_records_without_harm(
        container in containers(),
        bytes in vec(any::<u8>(), 0..300),
    ) {
        prop_assert!(container.parse(&bytes).is_err());
        let _ = container.framed_len_at(&bytes);
        let _ = Container::detect(&bytes);
    }

    #[test]
    fn manifests_come_back_as_they_were((items, plain_len) in manifests()) {
        let encoded = encode(&items);
        prop_assert_eq!(manifest::decode(&encoded, plain_len), Ok(items));
        prop_assert_eq!(manifest::decode(&encoded, plain_len + 1), Err(RecordError::Length));
    }

    #[test]
    fn a_changed_manifest_is_refused_or_means_exactly_itself(
        (items, plain_len) in manifests(),
        at in any::<prop::sample::Index>(),
        value: u8,
        cut in any::<prop::sample::Index>(),
    ) {
        let mut encoded = encode(&items);
        prop_assume!(!encoded.is_empty());
        encoded.truncate(cut.index(encoded.len()) + 1);
        let at = at.index(encoded.len());
        encoded[at] = value;
        if let Ok(items) = manifest::decode(&encoded, plain_len) {
            prop_assert_eq!(encode(&items), encoded);
        }
    }

    #[test]
    fn paths_that_could_leave_the_target_are_refused(path in paths(), trick in 0..10usize) {
        use std::os::unix::ffi::OsStrExt;
        let path = path.as_os_str().as_bytes();
        prop_assert!(manifest::safe_path(path).is_ok());
        let hostile = match trick {
            0 => [b"/", path].concat(),
            1 => [b"../", path].concat(),
            2 => [path, b"/.."].concat(),
            3 => [path, b"/"].concat(),
            4 => [path, b"//x"].concat(),
            5 => [path, b"/./x"].concat(),
            6 => [path, b"\0"].concat(),
            7 => [b"./", path].concat(),
            8 => [path, b"/../x"].concat(),
            _ => path.iter().copied().cycle().take(manifest::PATH_MAX + 1).collect(),
        };
        prop_assert_eq!(manifest::safe_path(&hostile), Err(RecordError::Field));
    }

    #[test]
    fn block_heads_come_back_however_long_their_manifest(
        container in containers(),
        header in block_headers(),
        manifest_len in prop_oneof![
            0..=100usize,
            // Around every length at which another Manifest record becomes necessary.
            (0..=4usize, 0..=4usize).prop_map(|(n, d)| 15_828 + 15_872 * n + d - 2),
            0..=MANIFEST_MAX,
        ],
        seed: u8,
    ) {
        let manifest_len = manifest_len.min(MANIFEST_MAX);
        let manifest: Vec<u8> = (0..manifest_len).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
        let mut out = vec![0xee; head_len(container, manifest_len) + 5];
        put_head(container, header.clone(), &manifest, &mut out);
        let (head, payload) = out.split_at(head_len(container, manifest_len));
        prop_assert_eq!(payload, [0xee; 5]);

        let (mut reader, mut at, mut parts) = (HeadReader::default(), 0, 0);
        let found = loop {
            let len = container.framed_len_at(&head[at..]).unwrap();
            let (kind, body) = container.parse(&head[at..at + len]).unwrap();
            at += len;
            match kind {
                RecordKind::Manifest => reader.manifest(body).unwrap(),
                RecordKind::Block => break reader.block(body).unwrap(),
                other => prop_assert!(false, "a {other:?} record"),
            }
            parts += 1;
            prop_assert!(reader.is_open());
        };
        prop_assert_eq!(at, head.len());
        prop_assert!(!reader.is_open());
        let wanted = BlockHeader {
            manifest_crc: crc32c(&manifest),
            manifest_len: manifest_len as u32,
            manifest_parts: parts,
            ..header
        };
        prop_assert_eq!(found, (wanted, manifest));
    }

    #[test]
    fn index_chunks_come_back_as_they_were(
        container in containers(),
        rows in vec((any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>(), vec(any::<u8>(), 0..3000)), 1..60),
        offsets in (1..u64::MAX, any::<u64>()),
    ) {
        let mut builder = index::Builder::default();
        builder.add(row(1, 2, 3, 4, b"the chunk before"));
        let before = builder.flush(container, offsets.0);
        for (sequence, offset, len, plain_len, manifest) in &rows {
            builder.add(row(*sequence, *offset, *len, *plain_len, manifest));
        }
        let framed = builder.flush(container, offsets.1);
        prop_assert!(builder.is_empty() && framed.len() <= index::CHUNK_FRAMED_MAX);
        prop_assert_eq!(builder.last(), (offsets.1, framed.len() as u32));
        let chunk = index::stored_chunk(container, &framed).unwrap();
        prop_assert_eq!(chunk.previous, (offsets.0, before.len() as u32));
        let found: Vec<_> = chunk
            .rows()
            .unwrap()
            .into_iter()
            .map(|r| (r.sequence, r.offset, r.len, r.plain_len, r.manifest))
            .collect();
        prop_assert_eq!(found, rows);
        // A chunk with one byte less or more is refused.
        prop_assert!(index::stored_chunk(container, &framed[..framed.len() - 1]).is_err());
        prop_assert!(index::stored_chunk(container, &[&framed[..], &before].concat()).is_err());
        prop_assert!(index::stored_chunk(container, &[]).is_err());
    }
}

fn row(sequence: u64, offset: u64, len: u32, plain_len: u32, manifest: &[u8]) -> index::RowRef<'_> {
    index::RowRef {
        sequence,
        offset,
        len,
        plain_len,
        digest: None,
        manifest,
    }
}

#[test]
fn the_largest_chunk_of_incompressible_rows_can_be_written_and_read() {
    let mut random = Random(1);
    let mut builder = index::Builder::default();
    builder.add(row(0, 0, 0, 0, &random.bytes(index::CHUNK_RAW - 29)));
    assert!(!builder.is_full());
    builder.add(row(1, 0, 0, 0, &random.bytes(MANIFEST_MAX)));
    assert!(builder.is_full());
    let framed = builder.flush(Container::Gzip, 1);
    assert!(framed.len() <= index::CHUNK_FRAMED_MAX);
    assert_eq!(
        index::stored_chunk(Container::Gzip, &framed)
            .unwrap()
            .rows()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn a_body_of_exactly_the_limit_is_a_record_and_one_byte_more_is_refused() {
    for container in [Container::Gzip, Container::Zstd, Container::Lz4] {
        let mut framed = Vec::new();
        container.append(RecordKind::Index, &[1; BODY_MAX], &mut framed);
        assert!(container.parse(&framed).is_ok());
        // The same frame claiming one byte more.
        let record_len = (HEAD_LEN + BODY_MAX + 1) as u32;
        match container {
            Container::Gzip => {
                framed[10..12].copy_from_slice(&(record_len as u16 + 4).to_le_bytes());
                framed[14..16].copy_from_slice(&(record_len as u16).to_le_bytes());
            }
            _ => framed[4..8].copy_from_slice(&record_len.to_le_bytes()),
        }
        assert_eq!(container.framed_len_at(&framed), Err(RecordError::Length));
    }
}

#[test]
fn every_field_out_of_range_is_refused() {
    let media = MediaHeader {
        media_set: Uuid::nil(),
        family_uuid: Uuid::nil(),
        family: 1,
        family_count: 1,
        parity_count: 0,
        container: Container::Gzip,
        compressed: true,
        encrypted: false,
        created_us: 0,
        generation: 0,
        name: String::new(),
        description: String::new(),
        software: String::new(),
    };
    let changed = |at: usize, value: u8| {
        let mut body = media.encode();
        body[at] = value;
        MediaHeader::decode(&body)
    };
    assert!(MediaHeader::decode(&media.encode()).is_ok());
    for (at, value, what) in [
        (32, 0, "family 0"),
        (32, 2, "family 2 of 1"),
        (34, 0, "no families"),
        (34, 65, "65 families"),
        (36, 1, "a parity family"),
        (38, 0, "container 0"),
        (38, 4, "container 4"),
        (39, 2, "compressed 2"),
        (68, 1, "a reserved byte"),
    ] {
        assert_eq!(changed(at, value), Err(RecordError::Field), "{what}");
    }
    // Bit 0 is known: encrypted media.
    assert!(changed(56, 1).is_ok_and(|header| header.encrypted));
    for bit in 1..8 {
        // Bit 2 is known, and contradicts the number of parity families.
        let expected = match bit {
            2 => RecordError::Field,
            bit => RecordError::Feature(1 << bit),
        };
        assert_eq!(changed(56, 1 << bit), Err(expected));
    }
    let parity = |family: u16, counts: (u16, u16), container| {
        let header = MediaHeader {
            family,
            family_count: counts.0,
            parity_count: counts.1,
            container,
            ..media.clone()
        };
        MediaHeader::decode(&header.encode())
    };
    for (family, counts, container, what) in [
        (1, (60, 5), Container::Gzip, "65 families"),
        (1, (3, 9), Container::Gzip, "9 parity families"),
        (6, (3, 2), Container::Zstd, "family 6 of 5"),
        (
            4,
            (3, 2),
            Container::Gzip,
            "a parity stripe that is no zstd stripe",
        ),
        (1, (1, u16::MAX), Container::Gzip, "many parity families"),
    ] {
        assert_eq!(
            parity(family, counts, container),
            Err(RecordError::Field),
            "{what}"
        );
    }
    assert!(parity(5, (3, 2), Container::Zstd).is_ok());
    assert!(parity(3, (3, 2), Container::Gzip).is_ok());
    let mut longer = media.encode();
    longer.extend_from_slice(b"a field of a later version");
    assert_eq!(MediaHeader::decode(&longer), Err(RecordError::Length));
    longer[48] = 1;
    assert_eq!(MediaHeader::decode(&longer), Ok(media));
}

/// A record of two data and two parity families.
fn parity_record() -> RowRecord {
    let span = |n: u32| Span {
        offset: u64::from(n) << 30,
        len: n,
        crc: n + 2,
    };
    RowRecord {
        set: Uuid::nil(),
        row: 2,
        at: 3,
        row_bytes: ROW_BYTES,
        chunk_len: 5000,
        spans: vec![span(5000), span(0)],
        chunk_crcs: vec![6, 7],
    }
}

#[test]
fn a_parity_record_out_of_range_is_refused_and_any_bytes_are_no_panic() {
    let good = parity_record();
    assert_eq!(RowRecord::decode(&good.encode()), Ok(good.clone()));
    let changed = |at: usize, value: &[u8]| {
        let mut body = good.encode();
        body[at..at + value.len()].copy_from_slice(value);
        RowRecord::decode(&body)
    };
    for (at, value, what) in [
        (32, (ROW_BYTES_MIN - 1).to_le_bytes(), "short rows"),
        (32, (ROW_BYTES + 1).to_le_bytes(), "long rows"),
        (32, 4096u32.to_le_bytes(), "a chunk longer than its row"),
        (36, 4999u32.to_le_bytes(), "a chunk shorter than a member"),
        (36, 5001u32.to_le_bytes(), "a chunk longer than all members"),
        (36, 0u32.to_le_bytes(), "no chunk"),
        (40, [0, 0, 2, 0], "no data"),
        (40, [2, 0, 0, 0], "no parity"),
        (40, [2, 0, 9, 0], "9 parity families"),
        (40, [60, 0, 5, 0], "65 families"),
        (44, [1, 0, 0, 0], "a reserved byte"),
    ] {
        assert_eq!(changed(at, &value), Err(RecordError::Field), "{what}");
    }
    let beyond = changed(48, &[255; 8]);
    assert_eq!(
        beyond,
        Err(RecordError::Field),
        "a member after the last offset"
    );
    let body = good.encode();
    for len in 0..body.len() {
        assert!(RowRecord::decode(&body[..len]).is_err(), "{len} bytes");
    }
    let mut random = Random(5);
    for _ in 0..20_000 {
        let mut body = body.clone();
        for _ in 0..1 + random.below(6) {
            let at = random.below(body.len());
            body[at] = random.next() as u8;
        }
        if let Ok(record) = RowRecord::decode(&body) {
            assert_eq!(record.encode(), body, "what is read is what is written");
        }
        let len = random.below(200_usize);
        let _ = RowRecord::decode(&random.bytes(len));
    }
}
