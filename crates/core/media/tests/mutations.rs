//! Goal: no media, however they were made, can crash a reader or writer, exhaust memory, or pass as good.
//! Method: valid stripes are taken apart, changed at random with knowledge of their structure, and reassembled with
//! correct checksums, so that the changes reach the code after the first checks. A seed and a number of rounds define
//! one run; the clock bounds it.
//!
//! `LONGSHORE_MUTATION_SECONDS` and `LONGSHORE_MUTATION_SEED` make longer and other runs.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_codec::Algorithm;
use longshore_kit::Random;
use longshore_kit::alloc::{self, Counting};
use longshore_media::header::{MANIFEST_MAX, PLAIN_MAX, stored_max};
use longshore_media::record::{Container, RecordKind};
use longshore_media::{
    BackupDevice, BlockHeader, Disposition, EntryKind, Mark, MediaSet, index, manifest,
};
use support::everything::read_everything;
use support::forge::*;
use support::*;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Values that tend to break parsers.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x1_0000,
    0x1_0001,
    1 << 20,
    PLAIN_MAX as u64,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 40,
    i64::MAX as u64,
    u64::MAX,
];

/// Ways to break media.
trait Breaks {
    fn change(&mut self, bytes: &mut Vec<u8>);
}

impl Breaks for Random {
    /// Changes bytes in one of the ways that tend to break parsers.
    fn change(&mut self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            bytes.extend_from_slice(&self.next().to_le_bytes());
            return;
        }
        let at = self.below(bytes.len());
        match self.below(8) {
            0 => bytes[at] ^= 1 << self.below(8),
            1 => bytes[at] = self.next() as u8,
            2..=4 => {
                let value = EDGES[self.below(EDGES.len())].to_le_bytes();
                let len = (1 << self.below(4)).min(bytes.len() - at);
                bytes[at..at + len].copy_from_slice(&value[..len]);
            }
            5 => {
                let len = self.below(bytes.len() - at + 1).min(64);
                bytes.drain(at..at + len);
            }
            6 => {
                let run: Vec<u8> = bytes[at..]
                    .iter()
                    .copied()
                    .take(self.below(64) + 1)
                    .collect();
                let to = self.below(bytes.len() + 1);
                bytes.splice(to..to, run);
            }
            _ => bytes.truncate(at),
        }
    }
}

/// Valid media to start from.
struct Seed {
    container: Container,
    stripes: Vec<Vec<Piece>>,
}

fn seeds() -> Vec<Seed> {
    let mut many: Vec<Input> = (0..1300)
        .map(|n| file(&format!("{}/{n}", "long-directory-name".repeat(9)), b"x"))
        .collect();
    many.extend(small_tree());
    let mut marked = Shape::new(Disposition::Append, Algorithm::QatDeflate, 60);
    marked.marks = vec![Mark {
        path: "empty".into(),
        kind: longshore_media::manifest::MarkKind::Shrunk,
    }];
    let shape = |disposition, algorithm, buffer| Shape::new(disposition, algorithm, buffer);
    let media = |families, sets: Vec<(Shape, Vec<Input>)>| {
        let container = Container::of(sets[0].0.algorithm);
        let stripes = media(families, &sets);
        let stripes = stripes.iter().map(|s| take_apart(container, s)).collect();
        Seed { container, stripes }
    };
    let large = vec![file("large", &text_like(40_000, 5))];
    vec![
        media(
            2,
            vec![
                (
                    shape(Disposition::New, Algorithm::QatDeflate, 90),
                    small_tree(),
                ),
                (marked, small_tree()),
            ],
        ),
        media(
            1,
            vec![
                (
                    shape(Disposition::New, Algorithm::Zstd, 30_000),
                    large.clone(),
                ),
                (
                    shape(Disposition::Append, Algorithm::Zstd, 90),
                    small_tree(),
                ),
            ],
        ),
        media(
            3,
            vec![
                (
                    shape(Disposition::New, Algorithm::Lz4, 9_000),
                    large.clone(),
                ),
                (
                    shape(Disposition::Append, Algorithm::MsXpress, 9_000),
                    large.clone(),
                ),
            ],
        ),
        media(
            2,
            vec![(shape(Disposition::New, Algorithm::None, 30_000), large)],
        ),
        // Manifests that need separate records, and more than one index chunk.
        media(
            1,
            vec![(shape(Disposition::New, Algorithm::Zstd, 250), many)],
        ),
    ]
}

/// Changes some pieces of some stripes.
fn mutate(random: &mut Random, seed: &Seed) -> Vec<Vec<u8>> {
    let mut stripes = seed.stripes.clone();
    for _ in 0..=random.below(3) {
        let n = random.below(stripes.len());
        let at = random.below(stripes[n].len());
        match random.below(10) {
            0 => {
                stripes[n].remove(at);
            }
            1 => {
                let piece = stripes[n][at].clone();
                let to = random.below(stripes[n].len() + 1);
                stripes[n].insert(to, piece);
            }
            2 => {
                let other = random.below(stripes[n].len());
                stripes[n].swap(at, other);
            }
            3 => {
                let from = random.below(stripes.len());
                let piece = stripes[from][random.below(stripes[from].len())].clone();
                stripes[n].insert(at, piece);
            }
            4 if stripes[n][at].kind == RecordKind::Block => {
                random.change(&mut stripes[n][at].payload)
            }
            5 => change_index(random, &mut stripes[n][at]),
            6 if stripes[n][at].kind == RecordKind::Block && stripes[n][at].body.len() > 72 => {
                let mut manifest = stripes[n][at].body.split_off(72);
                random.change(&mut manifest);
                manifest.truncate(15_000);
                stripes[n][at].body.append(&mut manifest);
            }
            _ => {
                random.change(&mut stripes[n][at].body);
                stripes[n][at].body.truncate(15_900);
            }
        }
        if stripes[n].is_empty() {
            stripes[n] = seed.stripes[n].clone();
        }
    }
    // Mended or not, the changed pointers lead elsewhere.
    let mend_all = !random.one_in(3);
    let mut out: Vec<Vec<u8>> = stripes
        .iter_mut()
        .map(|pieces| {
            if mend_all {
                mend(seed.container, pieces);
            }
            put_together(seed.container, pieces)
        })
        .collect();
    if random.one_in(10) {
        let n = random.below(out.len());
        random.change(&mut out[n]);
    }
    out
}

/// Changes the content of an index chunk, inside its compression. Only chunks of one record; others stay.
fn change_index(random: &mut Random, piece: &mut Piece) {
    if piece.kind != RecordKind::Index || piece.body.len() < 24 || piece.body[18..20] != [1, 0] {
        return;
    }
    let Ok(mut raw) = miniz_oxide::inflate::decompress_to_vec(&piece.body[24..]) else {
        return;
    };
    random.change(&mut raw);
    let packed = miniz_oxide::deflate::compress_to_vec(&raw, 5);
    if packed.len() < 15_000 {
        piece.body.truncate(24);
        put(&mut piece.body, 12, (raw.len() as u32).to_le_bytes());
        piece.body.extend_from_slice(&packed);
    }
}

/// Appends to the media; a set reported as written must be readable.
fn append(stripes: &[Vec<u8>], algorithm: Algorithm) -> bool {
    let slots: Vec<Slot> = stripes.iter().map(|_| Slot::default()).collect();
    for (slot, bytes) in slots.iter().zip(stripes) {
        slot.set(bytes.clone());
    }
    let devices: Vec<Arc<dyn BackupDevice>> =
        slots.iter().map(|s| Arc::new(s.clone()) as _).collect();
    let inputs = small_tree();
    let shape = Shape::new(Disposition::Append, algorithm, 90);
    if write_set(&devices, &shape, &inputs).is_err() {
        return false;
    }
    let media = MediaSet::open(&devices).unwrap();
    let position = media.set(0).unwrap().header.position;
    assert_eq!(read_set(&media, position).unwrap(), expected(&inputs));
    true
}

#[test]
fn changed_media_are_refused_without_harm() {
    let setting = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let seconds = setting("LONGSHORE_MUTATION_SECONDS");
    let first = setting("LONGSHORE_MUTATION_SEED").unwrap_or(1);
    let rounds = if seconds.is_some() { u64::MAX } else { 6_000 };
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(20));
    let seeds = seeds();
    let (mut decoded, mut appended, mut done) = (0, 0, 0);
    for round in (first..).take_while(|r| r - first < rounds) {
        if Instant::now() > until {
            break;
        }
        let mut random = Random(round);
        let seed = &seeds[random.below(seeds.len())];
        let stripes = mutate(&mut random, seed);
        let devices = devices(&stripes);
        alloc::reset();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            decoded += read_everything(&devices);
            let algorithm = match seed.container {
                Container::Gzip => Algorithm::QatDeflate,
                Container::Zstd => Algorithm::Zstd,
                Container::Lz4 => Algorithm::Lz4,
            };
            // The largest allocation is a buffer of the size that a header gives.
            assert!(
                alloc::largest() <= stored_max(PLAIN_MAX),
                "{} bytes",
                alloc::largest()
            );
            appended += u64::from(random.one_in(8) && append(&stripes, algorithm));
        }));
        assert!(
            outcome.is_ok(),
            "round {round}: LONGSHORE_MUTATION_SEED={round} repeats it"
        );
        done += 1;
    }
    eprintln!("{done} rounds, {decoded} blocks decoded, {appended} appends");
    // The changes must get past the first checks, or this test shows nothing.
    assert!(
        decoded > done && appended * 40 > done,
        "{decoded} {appended} of {done}"
    );
}

#[test]
fn changed_records_mean_themselves_or_nothing() {
    let mut random = Random(77);
    let seeds = seeds();
    for _ in 0..60_000 {
        let seed = &seeds[random.below(seeds.len())];
        let stripe = &seed.stripes[random.below(seed.stripes.len())];
        let mut body = stripe[random.below(stripe.len())].body.clone();
        for _ in 0..=random.below(2) {
            random.change(&mut body);
        }
        // Every decoder gets every body: the kind may be wrong, too.
        let _ = longshore_media::MediaHeader::decode(&body);
        let _ = longshore_media::SetHeader::decode(&body);
        let _ = index::part_count(&body);
        let mut head = longshore_media::block::HeadReader::default();
        let _ = head.manifest(&body);
        let _ = head.block(&body);
        if let Ok((header, rest)) = BlockHeader::decode(&body) {
            assert_eq!([&header.encode()[..], rest].concat(), body);
        }
        if let Ok(trailer) = longshore_media::SetTrailer::decode(&body) {
            assert_eq!(trailer.encode()[..], body);
        }
        for start in [0, 28, 72] {
            let manifest = body.get(start..).unwrap_or_default();
            assert!(manifest.len() <= MANIFEST_MAX);
            if let Ok(items) = manifest::decode(manifest, random.below(200) as u32) {
                check_items(&items);
            }
        }
    }
}

/// Checks the guarantees of decoding about names.
fn check_items(items: &[longshore_media::Item]) {
    use std::path::Component;
    let safe = |p: &std::path::Path| p.components().all(|c| matches!(c, Component::Normal(_)));
    for item in items {
        match item {
            longshore_media::Item::Entry(entry) => {
                assert!(safe(&entry.path));
                if let EntryKind::HardLink { target } = &entry.kind {
                    assert!(safe(target));
                }
            }
            longshore_media::Item::Mark(mark) => assert!(safe(&mark.path)),
            longshore_media::Item::Extent(extent) => {
                assert!(extent.offset.checked_add(u64::from(extent.len)).is_some());
            }
            longshore_media::Item::Sums(sums) => {
                let len = sums.sums.len() as u64 * u64::from(sums.page_bytes);
                assert!(sums.offset.checked_add(len).is_some());
                assert!(sums.sums.iter().all(|sum| *sum != 0));
            }
        }
    }
}
