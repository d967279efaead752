//! Goal: every version reads the segments that an earlier one archived, encrypted or not.
//! Method: the files of `tests/golden/wal-v1` and `wal-v2` are never written again; their plain bytes are made here, from a seed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_crypt::{Identities, Keyring, Signer, Signers, TagKey, digest_of};
use longshore_io::SimDisk;
use longshore_wal::{Error, PushResult};

use super::support::*;

/// The signer of the segment of `wal-v2`.
const SIGNER: &str = "lssigner1h8dhu4cnsp73770pwp7q8phm7w23tckx8fsxmvl7lvg45wtapfsq9dug87";

fn golden(file: &str) -> Vec<u8> {
    golden_of("wal-v1", file)
}

fn golden_of(version: &str, file: &str) -> Vec<u8> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/golden");
    std::fs::read(dir.join(version).join(file)).unwrap()
}

/// An archive with the file of this ending.
fn with(ending: &str) -> SimDisk {
    let disk = disk(1);
    let file = format!("0000000100000000/{}.{ending}", name(1, 3));
    let path: PathBuf = Path::new(ARCHIVE).join(file);
    disk.write_file(&path, &golden(&format!("segment.{ending}")))
        .unwrap();
    disk
}

#[test]
fn nobody_touched_the_golden_segments() {
    for (version, files) in [("wal-v1", 3), ("wal-v2", 2)] {
        let listed = String::from_utf8(golden_of(version, "SHA256SUMS")).unwrap();
        assert_eq!(listed.lines().count(), files);
        for line in listed.lines() {
            let (sum, file) = line.split_once("  ").unwrap();
            let found: String = digest_of(&golden_of(version, file))
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(found, sum, "{version}/{file}");
        }
    }
}

/// Goal: a segment's signature that was made once counts for ever, and for its signer alone.
#[test]
fn a_golden_segment_that_is_signed_is_read_where_its_signer_is_trusted() {
    let disk = disk(1);
    let file = format!("0000000100000000/{}.zst", name(1, 3));
    let bytes = golden_of("wal-v2", "segment.zst");
    disk.write_file(Path::new(ARCHIVE).join(file), &bytes)
        .unwrap();
    let identity = String::from_utf8(golden_of("wal-v2", "identity")).unwrap();
    let identities = Identities::parse(&identity).unwrap();
    let verified = |signer: Signer| {
        let signers = Arc::new(Signers::new(vec![signer], true).unwrap());
        let keyring = Keyring::new(identities.clone(), true).with_signers(signers);
        let holder = archive(&disk).unwrap().with_keyring(&Arc::new(keyring));
        holder.verify(name(1, 3))
    };
    let plain = segment_of(SYSTEM, 1, 3, 3, 3);
    let own: Signer = SIGNER.parse().unwrap();
    assert_eq!(verified(own).unwrap(), plain.len() as u64);
    let other = longshore_crypt::SigningKey::new().unwrap().signer();
    let refused = verified(other);
    assert!(
        matches!(refused, Err(Error::Unsigned { .. })),
        "{refused:?}"
    );
}

#[test]
fn golden_segments_are_read_and_known_to_be_the_same() {
    let identity = String::from_utf8(golden("identity")).unwrap();
    let identities = Identities::parse(&identity).unwrap();
    let plain = segment_of(SYSTEM, 1, 3, 3, 3);
    let tags = Arc::new(TagKey::of_cluster(&[1; 32], SYSTEM));
    for (ending, is_sealed) in [("gz", false), ("zst", true)] {
        let disk = with(ending);
        let keyring = Arc::new(Keyring::new(identities.clone(), is_sealed));
        let holder = archive(&disk).unwrap().with_keyring(&keyring);
        assert_eq!(holder.verify(name(1, 3)).unwrap(), plain.len() as u64);
        let reader = holder.open_file(name(1, 3)).unwrap();
        let mut read = vec![0; plain.len()];
        reader.read_at(&mut read, 0).unwrap();
        assert!(read == plain, "{ending}");
        let closed = archive(&disk).unwrap().verify(name(1, 3));
        assert_eq!(matches!(closed, Err(Error::Unopened { .. })), is_sealed);
        // Its tags, if it is encrypted, are those of the cluster with this secret.
        let out = outgoing(&disk, name(1, 3), &plain);
        let server = archive(&disk).unwrap().with_tags(Some(tags.clone()));
        let form = form(longshore_codec::Algorithm::Lz4);
        let pushed = server.push(&out, &form, &*clock());
        assert!(matches!(pushed, Ok(PushResult::Already)), "{pushed:?}");
    }
}
