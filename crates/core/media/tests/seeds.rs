//! Goal: fuzzing begins with media that readers take, and that have each kind of record: a fuzzer finds no encrypted set by itself.
//! Method: the seeds of `fuzz/seeds/media` are read as the target reads them. With LONGSHORE_TEST_WRITE_SEEDS set, those of
//! encrypted sets and of parity are made again, with new keys that nobody has.
//! Not covered: inputs that fuzzing finds (`scripts/fuzz.sh`).

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_codec::Algorithm;
use longshore_crypt::{Identity, NewKey, Recipients, SigningKey};
use longshore_media::record::{Container, RecordKind};
use longshore_media::{Disposition, EncryptTo, MediaSet, ParityPlan};
use support::forge::take_apart;
use support::rows::ROW;
use support::seeds::{KINDS, input_of, pieces_of, stripes_of};
use support::{Shape, devices, media, small_tree};

/// Longer inputs are not read by `scripts/fuzz.sh`.
const LEN_MAX: usize = 16_000;

/// The seeds that are made here: stripes of data, of parity, and whether they are encrypted.
const MADE: [(&str, usize, u16, bool); 3] = [
    ("encrypted", 1, 0, true),
    ("parity", 2, 1, false),
    ("encrypted-parity", 1, 1, true),
];

fn place() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/seeds/media")
}

fn encryption() -> EncryptTo {
    let identity = Identity::new_x25519().unwrap();
    let recipients = Recipients::new(vec![identity.recipient()], false).unwrap();
    EncryptTo {
        key: Arc::new(NewKey::wrapped(&recipients).unwrap()),
        parent_root: [0; 32],
        sign: Some(Arc::new(SigningKey::new().unwrap())),
        places: Vec::new(),
    }
}

fn made(data: usize, parity: u16, is_encrypted: bool) -> Vec<Vec<u8>> {
    let shape = Shape {
        parity: ParityPlan {
            count: parity,
            row_bytes: ROW,
            ..ParityPlan::default()
        },
        encryption: is_encrypted.then(encryption),
        ..Shape::new(Disposition::New, Algorithm::Zstd, 3000)
    };
    media(data + usize::from(parity), &[(shape, small_tree())])
}

#[test]
fn an_input_has_the_stripes_that_it_was_made_of() {
    for (name, data, parity, is_encrypted) in MADE {
        let stripes = made(data, parity, is_encrypted);
        let pieces: Vec<_> = stripes
            .iter()
            .map(|stripe| take_apart(Container::Zstd, stripe))
            .collect();
        let input = input_of(Container::Zstd, &pieces);
        assert!(input.len() < LEN_MAX, "{name}: {} bytes", input.len());
        assert!(stripes_of(&input).unwrap() == stripes, "{name}");
        if std::env::var_os("LONGSHORE_TEST_WRITE_SEEDS").is_some() {
            std::fs::write(place().join(name), input).unwrap();
        }
    }
    assert!(stripes_of(&[]).is_none());
}

#[test]
fn the_seeds_have_each_kind_of_record_and_those_made_here_are_whole_media() {
    let mut kinds = BTreeMap::new();
    for entry in std::fs::read_dir(place()).unwrap() {
        let input = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(input.len() < LEN_MAX);
        let (_, stripes) = pieces_of(&input).unwrap();
        for piece in stripes.into_iter().flatten() {
            *kinds.entry(piece.kind as u8).or_insert(0) += 1;
        }
    }
    // A manifest continues in a record of its own where it is longer than a whole seed.
    for kind in KINDS
        .into_iter()
        .filter(|kind| *kind != RecordKind::Manifest)
    {
        assert!(kinds.contains_key(&(kind as u8)), "no seed has {kind:?}");
    }
    for (name, data, parity, is_encrypted) in MADE {
        let input = std::fs::read(place().join(name)).unwrap();
        let stripes = stripes_of(&input).unwrap();
        assert_eq!(stripes.len(), data + usize::from(parity), "{name}");
        let media = MediaSet::open(&devices(&stripes)).unwrap();
        assert_eq!(media.sets().unwrap().len(), 1, "{name}");
        assert_eq!(media.parity_count(), usize::from(parity), "{name}");
        assert_eq!(media.header(0).encrypted, is_encrypted, "{name}");
    }
}
