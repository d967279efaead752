//! Goal: no bytes in the archive, damaged by accident or on purpose, cause a wrong segment, a panic or a large
//! allocation.
//! Method: stored files of every algorithm on a simulated disk are changed byte by byte, cut, extended and recombined;
//! 60,000 seeded changes of the records themselves get right checksums. `LONGSHORE_MUTATION_SECONDS` and
//! `LONGSHORE_MUTATION_SEED` make other runs.

use std::path::{Path, PathBuf};

use longshore_codec::Algorithm;
use longshore_crypt::Signer;
use longshore_io::SimDisk;
use longshore_media::Container;
use longshore_media::record::RecordKind;
use longshore_pg::wal::SegmentHeader;
use longshore_wal::Error;
use longshore_wal::object::{End, Head, PlainMark, Row, SealedHead, WholeMark};

use super::support::*;

/// An archive with segment 3 of timeline 1: its path in it, and its stored bytes.
fn stored_as(algorithm: Algorithm, bytes: &[u8]) -> (SimDisk, PathBuf, Vec<u8>) {
    let disk = disk(1);
    let out = outgoing(&disk, name(1, 3), bytes);
    let pushed = archive(&disk)
        .unwrap()
        .push(&out, &form(algorithm), &*clock());
    pushed.unwrap();
    let path = stored(&disk, name(1, 3));
    let whole = disk.read_file(&path).unwrap();
    (disk, path, whole)
}

/// Changes, shortens or lengthens it at some places.
fn mangle(body: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(body.len() as u64) as usize;
        match random.below(3) {
            0 => body[at] = random.next() as u8,
            1 => body.truncate(at.max(1)),
            _ => body.insert(at, random.next() as u8),
        }
    }
}

#[test]
fn a_changed_byte_anywhere_is_found() {
    for algorithm in Algorithm::ALL {
        let bytes = segment_of(SYSTEM, 1, 3, 3, 3);
        let (disk, path, whole) = stored_as(algorithm, &bytes);
        // Every byte at the ends, samples between them.
        let step = (whole.len() / 400).max(1);
        let ends = (0..200).chain(whole.len().saturating_sub(200)..whole.len());
        for at in ends
            .chain((0..whole.len()).step_by(step))
            .filter(|at| *at < whole.len())
        {
            let mut changed = whole.clone();
            changed[at] ^= 1 << (at % 8);
            disk.write_file(&path, &changed).unwrap();
            match fetch(&disk, name(1, 3)) {
                Err(Error::Damaged { .. } | Error::Newer { .. }) => {}
                Err(e) => panic!("{algorithm}, byte {at}: {e}"),
                Ok(_) => panic!("{algorithm}, byte {at}: nobody noticed"),
            }
        }
    }
}

#[test]
fn a_file_that_ends_early_or_late_is_refused_wherever_it_ends() {
    for algorithm in Algorithm::ALL {
        let bytes = segment(1, 3, 3);
        let (disk, path, whole) = stored_as(algorithm, &bytes);
        let step = (whole.len() / 300).max(1);
        for len in (0..100)
            .chain((0..whole.len()).step_by(step))
            .chain([whole.len() - 1])
        {
            disk.write_file(&path, &whole[..len]).unwrap();
            let refused = fetch(&disk, name(1, 3)).unwrap_err();
            assert!(
                matches!(refused, Error::Damaged { .. }),
                "{algorithm}, {len} bytes: {refused}"
            );
        }
        disk.write_file(&path, &[&whole[..], b"\0"].concat())
            .unwrap();
        assert!(fetch(&disk, name(1, 3)).is_err());
        // A push does not take the damaged file for the segment either.
        assert!(push(&disk, name(1, 3), &bytes).is_err());
    }
}

#[test]
fn a_file_under_another_name_is_refused() {
    let disk = disk(1);
    push(&disk, name(1, 3), &segment(1, 3, 3)).unwrap();
    let bytes = disk.read_file(stored(&disk, name(1, 3))).unwrap();
    let path = Path::new(ARCHIVE).join(format!("0000000100000000/{}.gz", name(1, 4)));
    disk.write_file(path, &bytes).unwrap();
    let refused = fetch(&disk, name(1, 4)).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
}

/// Goal: every byte between the ends of a file belongs to a block.
#[test]
fn bytes_between_the_blocks_and_the_end_are_refused() {
    for algorithm in Algorithm::ALL {
        let bytes = segment(1, 3, 3);
        let (disk, path, whole) = stored_as(algorithm, &bytes);
        let end = whole.len() - Head::parse(&whole).unwrap().len_after();
        let longer = [&whole[..end], b"more", &whole[end..]].concat();
        disk.write_file(&path, &longer).unwrap();
        let refused = fetch(&disk, name(1, 3)).unwrap_err();
        assert!(
            matches!(refused, Error::Damaged { .. }),
            "{algorithm}: {refused}"
        );
    }
}

/// Goal: both ends of a file are sound by themselves, and belong together.
#[test]
fn a_head_of_another_file_is_refused() {
    let bytes = segment(1, 3, 3);
    let (disk, path, whole) = stored_as(Algorithm::Zstd, &bytes);
    let own = Head::parse(&whole).unwrap();
    let other = Head {
        system: own.system + 1,
        ..own.clone()
    };
    let (own, other) = (own.framed(), other.framed());
    assert_eq!(own.len(), other.len());
    disk.write_file(&path, &[&other[..], &whole[own.len()..]].concat())
        .unwrap();
    let refused = fetch(&disk, name(1, 3)).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
}

fn head() -> Head {
    Head {
        system: SYSTEM,
        plain_len: SEGMENT as u32,
        block_bytes: 1 << 18,
        segment_bytes: SEGMENT as u32,
        magic: 0xd110,
        algorithm: Algorithm::Zstd,
        unfinished: false,
        name: name(1, 3),
        sealed: None,
    }
}

fn sealed_head() -> Head {
    Head {
        sealed: Some(SealedHead {
            keys_len: 700,
            history: [7; 32],
            signer: None,
        }),
        ..head()
    }
}

fn signed_head() -> Head {
    let sealed = sealed_head().sealed.map(|sealed| SealedHead {
        signer: Some(Signer::from_bytes([9; 32])),
        ..sealed
    });
    Head { sealed, ..head() }
}

fn end(head: &Head) -> End {
    let sealed = head.sealed.is_some();
    End {
        head_crc: longshore_io::crc32c(&head.encode()),
        whole: match sealed {
            false => WholeMark::Crc(1),
            true => WholeMark::Sealed {
                tags: [5; 8],
                mac: [6; 32],
                signature: head.sealed.and_then(|s| s.signer).map(|_| [8; 64]),
            },
        },
        rows: vec![
            Row {
                stored_len: 99,
                plain: match sealed {
                    false => PlainMark::Crc(2),
                    true => PlainMark::Tag([4; 16]),
                },
                stored_crc: 3
            };
            4
        ],
    }
}

/// `LONGSHORE_MUTATION_SECONDS` and `LONGSHORE_MUTATION_SEED` make longer and other runs.
#[test]
fn records_changed_at_random_with_right_checksums_are_refused_or_read_without_harm() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seconds = number("LONGSHORE_MUTATION_SECONDS");
    let mut random = Random(number("LONGSHORE_MUTATION_SEED").unwrap_or(1));
    let clock = host_clock();
    let start = longshore_io::Clock::now(&clock);
    let mut rounds = 0u64;
    loop {
        let over = match seconds {
            Some(s) => (longshore_io::Clock::now(&clock) - start).as_secs() >= s,
            None => rounds >= 60_000,
        };
        if over {
            break;
        }
        rounds += 1;
        let own = [head(), sealed_head(), signed_head()][random.below(3) as usize].clone();
        let mut body = own.encode();
        let end = end(&own);
        mangle(&mut body, &mut random);
        let container =
            [Container::Gzip, Container::Zstd, Container::Lz4][random.below(3) as usize];
        let mut framed = container.preamble().to_vec();
        container.append(RecordKind::Wal, &body, &mut framed);
        if let Ok(head) = Head::parse(&framed) {
            assert_eq!(head.encode(), body, "two spellings of one head");
            assert!(head.blocks() <= 1324 && head.len_after() < 16_384);
            assert!(head.len_before() < 1 << 17);
        }
        let mut body = end.encode();
        mangle(&mut body, &mut random);
        let mut framed = Vec::new();
        Container::Zstd.append(RecordKind::WalEnd, &body, &mut framed);
        let len = random.below(1 << 20);
        if let Ok(end) = End::parse(&own, &framed, len) {
            assert_eq!(end.encode(), body);
        }
        // The same for the server's own header.
        let mut page = segment_of(SYSTEM, 1, 3, 1, 1);
        page.truncate(64);
        for _ in 0..=random.below(6) {
            let at = random.below(64) as usize;
            page[at] = random.next() as u8;
        }
        if let Ok(header) = SegmentHeader::parse(&page) {
            assert!(header.start.0 % header.segment_size.bytes() == 0);
            assert!(header.page_bytes <= 1 << 16);
        }
    }
}
