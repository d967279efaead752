//! Goal: an encrypted archive tells nothing to who has no identity, is compared by hosts that can read none of it, and
//! gives out nothing that was changed, exchanged or put there by somebody without its key.
//! Method: segments of simulated servers are pushed with recipients; every byte of a stored file is changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_codec::Algorithm;
use longshore_crypt::{
    Certificate, CommandKey, Errand, Identities, Identity, Keyring, PrivateKey, Recipient,
    Recipients, SignatureState, Signers, SigningKey, TagKey,
};
use longshore_io::SimDisk;
use longshore_pg::wal::WalName;
use longshore_pg::{Lsn, SegmentName, SegmentSize};
use longshore_wal::object::Head;
use longshore_wal::{Error, Outgoing, PushResult, SegmentTags, StorageForm, WalArchive, copy_wal};

use super::support::*;

struct Keys {
    identities: Identities,
    recipients: Arc<Recipients>,
    sign: Arc<SigningKey>,
}

fn keys() -> Keys {
    let identity = Identity::new_hybrid().unwrap();
    let recipients = Recipients::new(vec![identity.recipient()], false).unwrap();
    Keys {
        identities: Identities::new(vec![identity]),
        recipients: Arc::new(recipients),
        sign: Arc::new(SigningKey::new().unwrap()),
    }
}

impl Keys {
    fn form(&self, algorithm: Algorithm) -> StorageForm {
        StorageForm {
            recipients: Some(self.recipients.clone()),
            ..form(algorithm)
        }
    }

    fn keyring(&self, required: bool) -> Arc<Keyring> {
        Arc::new(Keyring::new(self.identities.clone(), required))
    }

    /// Opens files, and demands a signature of these keys' signer.
    fn strict(&self) -> Arc<Keyring> {
        let signers = Signers::new(vec![self.sign.signer()], true).unwrap();
        let keyring = Keyring::new(self.identities.clone(), false);
        Arc::new(keyring.with_signers(Arc::new(signers)))
    }

    /// The archive as a server without an identity sees it, which signs, and demands signatures.
    fn signing(&self, disk: &SimDisk) -> WalArchive {
        let signers = Signers::new(vec![self.sign.signer()], true).unwrap();
        let keyring = Keyring::default().with_signers(Arc::new(signers));
        let keyring = Arc::new(keyring.signing_with(Some(self.sign.clone())));
        server(disk).with_keyring(&keyring)
    }
}

/// An archive with this segment, which the signer of `keys` signed.
fn signed(algorithm: Algorithm, keys: &Keys, bytes: &[u8]) -> (SimDisk, PathBuf) {
    let disk = disk(1);
    let out = outgoing(&disk, name(1, 3), bytes);
    let pushed = keys
        .signing(&disk)
        .push(&out, &keys.form(algorithm), &*clock());
    let pushed = pushed.unwrap();
    assert!(matches!(pushed, PushResult::Stored { .. }), "{pushed:?}");
    let path = stored(&disk, name(1, 3));
    (disk, path)
}

fn why(refused: Error) -> SignatureState {
    match refused {
        Error::Unsigned { what, .. } => what,
        other => panic!("{other}"),
    }
}

/// Goal: where a signature is required, nothing is given out, taken for there, or copied that no trusted signer signed.
#[test]
fn a_segment_without_a_trusted_signature_is_neither_read_nor_taken_for_there() {
    let (keys, stranger) = (keys(), self::keys());
    let theirs = Keys {
        sign: stranger.sign.clone(),
        identities: keys.identities.clone(),
        recipients: keys.recipients.clone(),
    };
    let bytes = segment(1, 3, 3);
    for algorithm in [Algorithm::Zstd, Algorithm::None] {
        let (disk, _) = signed(algorithm, &keys, &bytes);
        assert_eq!(read(&disk, &keys.strict(), name(1, 3)).unwrap(), bytes);
        assert_eq!(read(&disk, &keys.keyring(true), name(1, 3)).unwrap(), bytes);
        reader(&disk, &keys.strict()).verify(name(1, 3)).unwrap();
        assert!(keys.signing(&disk).unsigned().unwrap().is_none());
        // It is there already, for its server, which reads nothing.
        let again = outgoing(&disk, name(1, 3), &bytes);
        let pushed = keys
            .signing(&disk)
            .push(&again, &keys.form(algorithm), &*clock());
        assert!(matches!(pushed, Ok(PushResult::Already)), "{pushed:?}");
    }
    let unsigned = sealed(Algorithm::Zstd, &keys, &bytes).0;
    let forged = signed(Algorithm::Zstd, &theirs, &bytes).0;
    let plain = disk(1);
    push(&plain, name(1, 3), &bytes).unwrap();
    for (disk, expected) in [
        (unsigned, SignatureState::Unsigned),
        (forged, SignatureState::Stranger(stranger.sign.signer())),
        (plain, SignatureState::Unsigned),
    ] {
        assert_eq!(
            read(&disk, &keys.keyring(false), name(1, 3)).unwrap(),
            bytes
        );
        assert_eq!(
            why(read(&disk, &keys.strict(), name(1, 3)).unwrap_err()),
            expected
        );
        let strict = reader(&disk, &keys.strict());
        assert_eq!(why(strict.verify(name(1, 3)).unwrap_err()), expected);
        let (named, refused) = strict.unsigned().unwrap().unwrap();
        assert_eq!(
            (WalName::Segment(named), why(refused)),
            (name(1, 3), expected)
        );
        // Its server does not take it for its own, although the bytes are.
        let again = outgoing(&disk, name(1, 3), &bytes);
        let form = keys.form(Algorithm::Zstd);
        let pushed = keys.signing(&disk).push(&again, &form, &*clock());
        assert_eq!(why(pushed.unwrap_err()), expected);
        // A copy leaves it out, and tells.
        let other = Path::new("/other");
        mark_at(&disk, other);
        let to = WalArchive::open(&disk, other).unwrap();
        let todo = strict.lacking(Some(&to), &|_, _, _| true).unwrap();
        let copied = copy_wal(&strict, &to, &todo, &form, &*clock(), &|| true).unwrap();
        assert_eq!((copied.files, copied.unreadable.len()), (0, 1));
    }
    // A segment that a receiver was filling is not encrypted, and so it is not signed.
    let disk = disk(1);
    push(&disk, name(1, 3), &bytes).unwrap();
    let partial = format!("receiving/{}.partial", name(1, 4));
    disk.write_file(Path::new(ARCHIVE).join(partial), &segment(1, 4, 4))
        .unwrap();
    let to = Path::new("/restored");
    disk.write_file(to.join("lost+found/.keep"), b"").unwrap();
    let dir = longshore_io::Storage::dir(&disk, to).unwrap();
    let WalName::Segment(wanted) = name(1, 4) else {
        panic!()
    };
    let strict = reader(&disk, &keys.strict());
    let refused = strict.fetch_partial(wanted, &dir, to, "RECOVERYXLOG", &*clock());
    assert_eq!(why(refused.unwrap_err()), SignatureState::Unsigned);
}

/// The checksums of a file's records, and of its head in its end, made to fit.
fn mended(mut file: Vec<u8>) -> Vec<u8> {
    let framing = |bytes: &mut [u8], from: usize, len: usize| {
        let record = &mut bytes[from + 8..from + len];
        let crc = longshore_io::crc32c_append(longshore_io::crc32c(&record[..12]), &record[16..]);
        record[12..16].copy_from_slice(&crc.to_le_bytes());
    };
    let first = u32::from_le_bytes(file[4..8].try_into().unwrap()) as usize + 8;
    if !(32..=file.len()).contains(&first) {
        return file;
    }
    framing(&mut file, 0, first);
    let Ok(head) = Head::parse(&file) else {
        return file;
    };
    let (start, before, after) = (head.len_of_head(), head.len_before(), head.len_after());
    if before + after > file.len() || before - start < 32 {
        return file;
    }
    framing(&mut file, start, before - start);
    let end_at = file.len() - after;
    let crc = longshore_io::crc32c(&head.encode());
    file[end_at + 8 + 16..][..4].copy_from_slice(&crc.to_le_bytes());
    framing(&mut file, end_at, after);
    file
}

/// Goal: no byte that a signature covers can be changed, also where nobody has an identity; and it is of one name and one file.
#[test]
fn a_signature_of_a_segment_is_of_its_head_its_slots_and_its_end() {
    let keys = keys();
    let bytes = segment(1, 3, 3);
    let (disk, path) = signed(Algorithm::Zstd, &keys, &bytes);
    let whole = disk.read_file(&path).unwrap();
    assert!(mended(whole.clone()) == whole);
    let head = Head::parse(&whole).unwrap();
    let end_at = whole.len() - head.len_after();
    let refused_by_all = |changed: &[u8], what: &str| {
        disk.write_file(&path, changed).unwrap();
        for keyring in [keys.strict(), keys.keyring(true)] {
            assert!(read(&disk, &keyring, name(1, 3)).is_err(), "{what}");
        }
        // Its server reads nothing, and finds it out all the same.
        let again = outgoing(&disk, name(1, 3), &bytes);
        let pushed = keys
            .signing(&disk)
            .push(&again, &keys.form(Algorithm::Zstd), &*clock());
        assert!(pushed.is_err(), "{what}");
    };
    let ends = (0..head.len_before()).chain(end_at..whole.len());
    for at in ends.filter(|at| *at < 160 || at % 11 == 0 || *at + 120 > whole.len()) {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        let changed = mended(changed);
        if changed != whole {
            refused_by_all(&changed, &format!("byte {at}"));
        }
    }

    // The signature of another file of the signer, and another signer's of this one.
    let other = signed(Algorithm::Zstd, &keys, &segment(1, 3, 4));
    let other = other.0.read_file(&other.1).unwrap();
    let mut taken = whole.clone();
    let at = whole.len() - 64;
    taken[at..].copy_from_slice(&other[other.len() - 64..]);
    refused_by_all(&mended(taken), "of another file");

    // Without the signature, in the form of a file that never had one.
    let mut bare = head.clone();
    bare.sealed.as_mut().unwrap().signer = None;
    let end = longshore_wal::object::End::parse(&head, &whole[end_at..], whole.len() as u64);
    let mut end = end.unwrap();
    if let longshore_wal::object::WholeMark::Sealed { signature, .. } = &mut end.whole {
        *signature = None;
    }
    end.head_crc = longshore_io::crc32c(&bare.encode());
    let middle = &whole[head.len_of_head()..end_at];
    let stripped = [&bare.framed()[..], middle, &end.framed(&bare)].concat();
    disk.write_file(&path, &stripped).unwrap();
    let found = why(read(&disk, &keys.strict(), name(1, 3)).unwrap_err());
    assert_eq!(found, SignatureState::Unsigned);
    let refused = read(&disk, &keys.keyring(false), name(1, 3)).unwrap_err();
    assert!(matches!(refused, Error::Unopened { .. }), "{refused}");
}

/// The tags of the servers of one cluster.
fn tags(secret: u8) -> Option<Arc<TagKey>> {
    Some(Arc::new(TagKey::of_cluster(&[secret; 32], SYSTEM)))
}

/// The archive as a server sees it that has public keys alone.
fn server(disk: &SimDisk) -> WalArchive {
    archive(disk).unwrap().with_tags(tags(1))
}

fn reader(disk: &SimDisk, keyring: &Arc<Keyring>) -> WalArchive {
    archive(disk).unwrap().with_keyring(keyring)
}

fn read(disk: &SimDisk, keyring: &Arc<Keyring>, name: WalName) -> Result<Vec<u8>, Error> {
    let to = Path::new("/restored");
    disk.write_file(to.join("lost+found/.keep"), b"").unwrap();
    let dir = longshore_io::Storage::dir(disk, to).unwrap();
    reader(disk, keyring).fetch(name, &dir, to, "RECOVERYXLOG", &*clock())?;
    Ok(disk.read_file(to.join("RECOVERYXLOG")).unwrap())
}

fn sealed(algorithm: Algorithm, keys: &Keys, bytes: &[u8]) -> (SimDisk, PathBuf) {
    let disk = disk(1);
    let out = outgoing(&disk, name(1, 3), bytes);
    let pushed = server(&disk).push(&out, &keys.form(algorithm), &*clock());
    assert!(
        matches!(pushed, Ok(PushResult::Stored { .. })),
        "{pushed:?}"
    );
    let path = stored(&disk, name(1, 3));
    (disk, path)
}

#[test]
fn an_encrypted_segment_comes_back_to_its_recipient_and_to_nobody_else() {
    let (keys, stranger) = (keys(), self::keys());
    for algorithm in Algorithm::ALL {
        let bytes = segment(1, 3, 3);
        let (disk, path) = sealed(algorithm, &keys, &bytes);
        assert!(path.to_string_lossy().ends_with(".zst"), "{path:?}");
        assert_eq!(read(&disk, &keys.keyring(true), name(1, 3)).unwrap(), bytes);
        let whole = disk.read_file(&path).unwrap();
        // Noise, which no algorithm changes.
        let noise = bytes
            .chunks(64)
            .find(|piece| piece.iter().any(|b| *b > 0x80));
        let noise = &noise.unwrap()[..16];
        assert!(!whole.windows(16).any(|w| w == noise), "{algorithm}");
        for keyring in [Arc::default(), stranger.keyring(false)] {
            let refused = read(&disk, &keyring, name(1, 3)).unwrap_err();
            assert!(matches!(refused, Error::Unopened { .. }), "{refused}");
            assert!(reader(&disk, &keyring).verify(name(1, 3)).is_err());
        }
        reader(&disk, &keys.keyring(true))
            .verify(name(1, 3))
            .unwrap();
    }
}

/// Goal: WAL is encrypted for whoever backups are: also the owner of a certificate, and a program that keeps a key.
#[test]
fn a_segment_is_encrypted_for_a_certificate_and_for_a_key_of_a_program() {
    let private = PrivateKey::generate().unwrap();
    let certificate = Certificate::new(&private, "s", (0, 4_000_000_000)).unwrap();
    let program = |ask: &longshore_crypt::Ask| {
        assert_eq!((ask.key_id, ask.set), ("k", "wal"));
        assert!(ask.errand == Errand::Unwrap || ask.input.len() == 44);
        Ok(ask.input.iter().rev().copied().collect::<Vec<u8>>().into())
    };
    let of_program = CommandKey::new("k", Arc::new(program)).unwrap();
    for (recipient, identity) in [
        (
            Recipient::from(&certificate),
            Identity::Certificate(private),
        ),
        (
            Recipient::Command(of_program.clone()),
            Identity::Command(of_program),
        ),
    ] {
        let keys = Keys {
            recipients: Arc::new(Recipients::new(vec![recipient], false).unwrap()),
            identities: Identities::new(vec![identity]),
            ..keys()
        };
        let bytes = segment(1, 3, 3);
        let (disk, _) = sealed(Algorithm::Zstd, &keys, &bytes);
        assert_eq!(read(&disk, &keys.keyring(true), name(1, 3)).unwrap(), bytes);
        let refused = read(&disk, &self::keys().keyring(false), name(1, 3)).unwrap_err();
        assert!(matches!(refused, Error::Unopened { .. }), "{refused}");
    }
}

/// Goal: the page says rightly what a person can do who removes an archive's newest segments: it is the archive of a server that never
/// archived them, also where encryption and signatures are required.
#[test]
fn an_archive_without_its_newest_segments_ends_before_them_as_if_they_never_came() {
    let keys = keys();
    let of = |last: u64| {
        let disk = disk(1);
        for number in 3..=last {
            let out = outgoing(&disk, name(1, number), &segment(1, number, number));
            let form = keys.form(Algorithm::Zstd);
            let pushed = keys.signing(&disk).push(&out, &form, &*clock()).unwrap();
            assert!(matches!(pushed, PushResult::Stored { .. }), "{pushed:?}");
        }
        disk
    };
    let (cut, never) = (of(7), of(5));
    for number in 6..=7 {
        longshore_io::Storage::dir(&cut, Path::new(ARCHIVE))
            .and_then(|dir| {
                dir.remove_file(stored(&cut, name(1, number)).strip_prefix(ARCHIVE).unwrap())
            })
            .unwrap();
    }
    let told = |disk: &SimDisk| {
        let archive = reader(disk, &keys.strict());
        let spans = archive.runs().unwrap().into_iter().map(|run| run.span);
        let missing = read(disk, &keys.strict(), name(1, 6)).unwrap_err();
        assert!(matches!(missing, Error::Missing { .. }), "{missing}");
        assert!(archive.unsigned().unwrap().is_none());
        spans.collect::<Vec<_>>()
    };
    assert_eq!(told(&cut), told(&never));
    assert_eq!(
        read(&cut, &keys.strict(), name(1, 5)).unwrap(),
        segment(1, 5, 5)
    );
    // A hole before the newest one is none: the runs show it.
    let holed = of(7);
    longshore_io::Storage::dir(&holed, Path::new(ARCHIVE))
        .and_then(|dir| dir.remove_file(stored(&holed, name(1, 6)).strip_prefix(ARCHIVE).unwrap()))
        .unwrap();
    assert_eq!(told(&holed).len(), 2);
}

/// Goal: a server without an identity finds out whether the archive has its very bytes.
#[test]
fn the_same_bytes_count_as_there_and_others_are_refused_without_a_key() {
    let keys = keys();
    let bytes = segment(1, 3, 3);
    let (disk, _) = sealed(Algorithm::Zstd, &keys, &bytes);
    let form = keys.form(Algorithm::QatDeflate);
    let push = |archive: WalArchive, bytes: &[u8]| {
        archive.push(&outgoing(&disk, name(1, 3), bytes), &form, &*clock())
    };
    assert!(matches!(
        push(server(&disk), &bytes),
        Ok(PushResult::Already)
    ));
    let mut other = bytes.clone();
    *other.last_mut().unwrap() ^= 1;
    let refused = push(server(&disk), &other).unwrap_err();
    assert!(matches!(refused, Error::OtherContent { .. }), "{refused}");
    // A host of another cluster's secret, or without one, cannot tell; who can read it, can.
    let apart = archive(&disk).unwrap().with_tags(tags(2));
    assert!(matches!(push(apart, &bytes), Err(Error::Unopened { .. })));
    let untagged = archive(&disk).unwrap();
    assert!(matches!(
        push(untagged, &bytes),
        Err(Error::Unopened { .. })
    ));
    let holder = || reader(&disk, &keys.keyring(false));
    assert!(matches!(push(holder(), &bytes), Ok(PushResult::Already)));
    assert!(matches!(
        push(holder(), &other),
        Err(Error::OtherContent { .. })
    ));
    assert_eq!(leftovers(&disk), Vec::<PathBuf>::new());
}

#[test]
fn a_file_that_nobody_could_compare_is_not_written() {
    let keys = keys();
    let disk = disk(1);
    let out = outgoing(&disk, name(1, 3), &segment(1, 3, 3));
    let form = keys.form(Algorithm::Zstd);
    let refused = archive(&disk)
        .unwrap()
        .push(&out, &form, &*clock())
        .unwrap_err();
    assert!(matches!(refused, Error::Untagged { .. }), "{refused}");
    let stranger = reader(&disk, &self::keys().keyring(false));
    let refused = stranger.push(&out, &form, &*clock()).unwrap_err();
    assert!(matches!(refused, Error::Untagged { .. }), "{refused}");
    // A holder of an identity compares by reading.
    let holder = || reader(&disk, &keys.keyring(false));
    holder().push(&out, &form, &*clock()).unwrap();
    let again = holder().push(&out, &form, &*clock());
    assert!(matches!(again, Ok(PushResult::Already)), "{again:?}");
}

#[test]
fn a_changed_byte_anywhere_is_found_also_with_checksums_that_fit() {
    let keys = keys();
    let keyring = keys.keyring(true);
    let bytes = segment_of(SYSTEM, 1, 3, 3, 3);
    let (disk, path) = sealed(Algorithm::Zstd, &keys, &bytes);
    let whole = disk.read_file(&path).unwrap();
    let head = Head::parse(&whole).unwrap();
    let (before, after) = (head.len_before(), head.len_after());
    let framing = |bytes: &mut [u8], from: usize, len: usize| {
        // A record's checksum, at 8 + 12, is over its first 12 bytes and its body.
        let record = &mut bytes[from + 8..from + len];
        let crc = longshore_io::crc32c_append(longshore_io::crc32c(&record[..12]), &record[16..]);
        record[12..16].copy_from_slice(&crc.to_le_bytes());
    };
    let step = (whole.len() / 300).max(1);
    let places =
        (0..whole.len()).filter(|at| at % step == 0 || *at < 400 || *at + 400 > whole.len());
    for at in places {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        disk.write_file(&path, &changed).unwrap();
        let refused = read(&disk, &keyring, name(1, 3)).expect_err("nobody noticed");
        assert!(
            matches!(
                refused,
                Error::Damaged { .. } | Error::Newer { .. } | Error::Unopened { .. }
            ),
            "byte {at}: {refused}"
        );
        // Somebody who changes it on purpose makes the checksums fit.
        let end_at = whole.len() - after;
        if (before..end_at).contains(&at) {
            let stored = longshore_io::crc32c(&changed[before..end_at]);
            changed[end_at + 8 + 16 + 12 + 4..][..4].copy_from_slice(&stored.to_le_bytes());
        }
        framing(&mut changed, 0, head.len_of_head());
        framing(
            &mut changed,
            head.len_of_head(),
            before - head.len_of_head(),
        );
        let fits = Head::parse(&changed).map(|head| longshore_io::crc32c(&head.encode()));
        if let Ok(head_crc) = fits {
            changed[end_at + 8 + 16..][..4].copy_from_slice(&head_crc.to_le_bytes());
        }
        framing(&mut changed, end_at, after);
        if changed == whole {
            continue;
        }
        disk.write_file(&path, &changed).unwrap();
        let found = read(&disk, &keyring, name(1, 3));
        let refused = found.expect_err("a change with checksums that fit was not noticed");
        assert!(
            matches!(
                refused,
                Error::Damaged { .. } | Error::Newer { .. } | Error::Unopened { .. }
            ),
            "byte {at}: {refused}"
        );
    }
}

/// Goal: no segment is served as another one, and no block in another's place.
#[test]
fn files_and_blocks_of_others_are_refused() {
    let keys = keys();
    let keyring = keys.keyring(true);
    let (disk, path) = sealed(Algorithm::None, &keys, &segment(1, 3, 3));
    let whole = disk.read_file(&path).unwrap();
    // Under another name.
    let renamed = Path::new(ARCHIVE).join(format!("0000000100000000/{}.zst", name(1, 4)));
    disk.write_file(&renamed, &whole).unwrap();
    let refused = read(&disk, &keyring, name(1, 4)).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    // The same, with a head that says so.
    let head = Head::parse(&whole).unwrap();
    let other = Head {
        name: name(1, 4),
        ..head.clone()
    };
    let mut forged = [&other.framed()[..], &whole[head.len_of_head()..]].concat();
    let end_at = forged.len() - head.len_after();
    let crc = longshore_io::crc32c(&other.encode());
    forged[end_at + 8 + 16..][..4].copy_from_slice(&crc.to_le_bytes());
    let record = &mut forged[end_at + 8..];
    let crc = longshore_io::crc32c_append(longshore_io::crc32c(&record[..12]), &record[16..]);
    record[12..16].copy_from_slice(&crc.to_le_bytes());
    disk.write_file(&renamed, &forged).unwrap();
    let refused = read(&disk, &keyring, name(1, 4)).unwrap_err();
    assert!(matches!(refused, Error::Unopened { .. }), "{refused}");
    // One that somebody else encrypted for the same recipient is another file: it opens, as docs/security.md says.
    let (others, theirs) = sealed(Algorithm::None, &keys, &segment(1, 3, 4));
    disk.write_file(&path, &others.read_file(theirs).unwrap())
        .unwrap();
    assert_eq!(read(&disk, &keyring, name(1, 3)).unwrap(), segment(1, 3, 4));
}

/// Goal: damage where nobody asks for it hinders no question about the archive.
#[test]
fn a_damaged_segment_does_not_hide_whether_others_are_encrypted() {
    let keys = keys();
    let (disk, path) = sealed(Algorithm::Zstd, &keys, &segment(1, 3, 3));
    assert!(server(&disk).is_sealed().unwrap());
    disk.write_file(&path, b"damaged").unwrap();
    assert!(!server(&disk).is_sealed().unwrap());
    assert_eq!(server(&disk).unsealed().unwrap(), None);
}

#[test]
fn a_segment_that_is_not_encrypted_is_refused_where_all_must_be() {
    let keys = keys();
    let disk = disk(1);
    push(&disk, name(1, 3), &segment(1, 3, 3)).unwrap();
    assert!(read(&disk, &keys.keyring(false), name(1, 3)).is_ok());
    let refused = read(&disk, &keys.keyring(true), name(1, 3)).unwrap_err();
    assert!(matches!(refused, Error::NotSealed { .. }), "{refused}");
    let refused = reader(&disk, &keys.keyring(true))
        .verify(name(1, 3))
        .unwrap_err();
    assert!(matches!(refused, Error::NotSealed { .. }), "{refused}");
    // A receiver of earlier days has left the segment that it was filling.
    let partial = format!("receiving/{}.partial", name(1, 4));
    let path = Path::new(ARCHIVE).join(partial);
    disk.write_file(path, &segment(1, 4, 4)).unwrap();
    let to = Path::new("/restored");
    let dir = longshore_io::Storage::dir(&disk, to).unwrap();
    let WalName::Segment(wanted) = name(1, 4) else {
        panic!()
    };
    let partial = |required| {
        let archive = reader(&disk, &keys.keyring(required));
        archive.fetch_partial(wanted, &dir, to, "RECOVERYXLOG", &*clock())
    };
    assert!(matches!(partial(true), Err(Error::NotSealed { .. })));
    assert!(partial(false).unwrap());
}

fn history(disk: &SimDisk, text: &str) -> Outgoing {
    outgoing(disk, "00000002.history".parse().unwrap(), text.as_bytes())
}

/// Goal: histories are not encrypted, and nobody can exchange one for that of another branch unnoticed.
#[test]
fn a_segment_is_read_with_the_history_that_it_was_written_for() {
    let keys = keys();
    let keyring = keys.keyring(true);
    let disk = disk(1);
    let out = Outgoing {
        history: Some(Box::new(history(
            &disk,
            "1\t0/300000\tno recovery target\n",
        ))),
        ..outgoing(&disk, name(2, 3), &segment(2, 3, 3))
    };
    server(&disk)
        .push(&out, &keys.form(Algorithm::Zstd), &*clock())
        .unwrap();
    read(&disk, &keyring, name(2, 3)).unwrap();
    // A receiver gives no history: the archive's counts.
    let out = outgoing(&disk, name(2, 4), &segment(2, 4, 4));
    server(&disk)
        .push(&out, &keys.form(Algorithm::Zstd), &*clock())
        .unwrap();
    let path = stored(&disk, "00000002.history".parse().unwrap());
    let own = disk.read_file(&path).unwrap();
    assert!(
        Head::parse(&own).unwrap().sealed.is_none(),
        "readable without a key"
    );
    let elsewhere = self::disk(2);
    let other = history(&elsewhere, "1\t0/2F0000\tno recovery target\n");
    let form = keys.form(Algorithm::Zstd);
    archive(&elsewhere)
        .unwrap()
        .push(&other, &form, &*clock())
        .unwrap();
    let theirs = stored(&elsewhere, "00000002.history".parse().unwrap());
    disk.write_file(&path, &elsewhere.read_file(theirs).unwrap())
        .unwrap();
    for number in [3, 4] {
        let refused = read(&disk, &keyring, name(2, number)).unwrap_err();
        assert!(matches!(refused, Error::OtherHistory { .. }), "{refused}");
    }
    assert!(reader(&disk, &keyring).open_file(name(2, 3)).is_err());
}

/// Goal: an encrypted archive is copied as it is by a host without any key, also onto what is there already.
#[test]
fn a_copy_needs_no_key_and_refuses_what_differs() {
    let keys = keys();
    let disk = disk(1);
    for number in 3..6 {
        let out = outgoing(&disk, name(1, number), &segment(1, number, number));
        server(&disk)
            .push(&out, &keys.form(Algorithm::Zstd), &*clock())
            .unwrap();
    }
    let other = Path::new("/other");
    mark_at(&disk, other);
    let to = || WalArchive::open(&disk, other).unwrap();
    let copy = |to: &WalArchive| {
        let from = archive(&disk).unwrap();
        let todo = from.lacking(Some(to), &|_, _, _| true)?;
        copy_wal(&from, to, &todo, &form(Algorithm::Lz4), &*clock(), &|| true)
    };
    assert_eq!(copy(&to()).unwrap().files, 3);
    assert_eq!(copy(&to()).unwrap().files, 0);
    let keyring = keys.keyring(true);
    let copied = to().with_keyring(&keyring);
    for number in 3..6 {
        assert_eq!(copied.verify(name(1, number)).unwrap(), SEGMENT as u64);
        let path = stored(&disk, name(1, number));
        let theirs = other.join(path.strip_prefix(ARCHIVE).unwrap());
        assert_eq!(
            disk.read_file(path).unwrap(),
            disk.read_file(theirs).unwrap()
        );
    }
    // The other archive has the segment from the server itself, encrypted with another key.
    let branch = |seed| {
        let disk = self::disk(1);
        let out = outgoing(&disk, name(1, 5), &segment(1, 5, seed));
        server(&disk)
            .push(&out, &keys.form(Algorithm::Zstd), &*clock())
            .unwrap();
        disk.read_file(stored(&disk, name(1, 5))).unwrap()
    };
    let path = stored(&disk, name(1, 5));
    let theirs = other.join(path.strip_prefix(ARCHIVE).unwrap());
    disk.write_file(&theirs, &branch(5)).unwrap();
    assert_eq!(copy(&to()).unwrap().files, 0);
    disk.write_file(&theirs, &branch(6)).unwrap();
    let refused = copy(&to()).unwrap_err();
    assert!(matches!(refused, Error::OtherContent { .. }), "{refused}");
}

/// Goal: a copy that is made again compares the last segment of both, also where no tag and no identity tells what is in it.
#[test]
fn a_copy_of_segments_without_tags_is_the_same_again() {
    let keys = keys();
    let disk = disk(1);
    let holder = || reader(&disk, &keys.keyring(false));
    let out = outgoing(&disk, name(1, 3), &segment(1, 3, 3));
    let form = keys.form(Algorithm::Zstd);
    holder().push(&out, &form, &*clock()).unwrap();
    let other = Path::new("/other");
    mark_at(&disk, other);
    for files in [1, 0] {
        let (from, to) = (
            archive(&disk).unwrap(),
            WalArchive::open(&disk, other).unwrap(),
        );
        let todo = from.lacking(Some(&to), &|_, _, _| true).unwrap();
        let copied = copy_wal(&from, &to, &todo, &form, &*clock(), &|| true);
        assert_eq!(copied.unwrap().files, files);
    }
}

/// Goal: an identity that opens nothing is no worse than none.
#[test]
fn a_host_with_a_strangers_identity_compares_by_tags() {
    let (keys, stranger) = (keys(), self::keys());
    let bytes = segment(1, 3, 3);
    let (disk, _) = sealed(Algorithm::Zstd, &keys, &bytes);
    let host = || server(&disk).with_keyring(&stranger.keyring(true));
    assert!(!host().is_readable(name(1, 3)).unwrap());
    let out = outgoing(&disk, name(1, 3), &bytes);
    let again = host().push(&out, &keys.form(Algorithm::Zstd), &*clock());
    assert!(matches!(again, Ok(PushResult::Already)), "{again:?}");
    let timeline = longshore_pg::Timeline::new(1).unwrap();
    let size = longshore_pg::SegmentSize::new(SEGMENT as u64).unwrap();
    let segment = SegmentName::holding(timeline, Lsn(3 * SEGMENT as u64), size);
    let mut comparison = host().comparison(segment, 1000).unwrap();
    assert_eq!(comparison.len(), SEGMENT as u64);
    assert!(comparison.take(&bytes).unwrap() && comparison.is_whole());
}

/// Goal: a segment that somebody pushed without tags does not hold up the server's next one.
#[test]
fn a_segment_without_tags_lets_the_next_one_in() {
    let keys = keys();
    let disk = disk(1);
    let form = keys.form(Algorithm::Zstd);
    let before = outgoing(&disk, name(1, 3), &segment(1, 3, 3));
    let holder = reader(&disk, &keys.keyring(false));
    holder.push(&before, &form, &*clock()).unwrap();
    let next = || Outgoing {
        beside: Some(longshore_io::Storage::dir(&disk, Path::new(WAL)).unwrap()),
        ..outgoing(&disk, name(1, 4), &segment(1, 4, 4))
    };
    let pushed = server(&disk).push(&next(), &form, &*clock());
    assert!(
        matches!(pushed, Ok(PushResult::Stored { .. })),
        "{pushed:?}"
    );
    // Tags refuse the segment of a server that was set back.
    let path = stored(&disk, name(1, 3));
    let elsewhere = sealed(Algorithm::Zstd, &keys, &segment(1, 3, 9));
    disk.write_file(path, &elsewhere.0.read_file(elsewhere.1).unwrap())
        .unwrap();
    let own = self::disk(3);
    let theirs = disk.read_file(stored(&disk, name(1, 3))).unwrap();
    let place = format!("0000000100000000/{}.zst", name(1, 3));
    own.write_file(Path::new(ARCHIVE).join(place), &theirs)
        .unwrap();
    let refused = server(&own).push(&next(), &form, &*clock()).unwrap_err();
    assert!(matches!(refused, Error::OtherBranch { .. }), "{refused}");
}

#[test]
fn a_copy_of_a_damaged_encrypted_segment_is_told_and_not_made() {
    let keys = keys();
    let (disk, path) = sealed(Algorithm::Zstd, &keys, &segment(1, 3, 3));
    let mut whole = disk.read_file(&path).unwrap();
    let middle = whole.len() / 2;
    whole[middle] ^= 1;
    disk.write_file(&path, &whole).unwrap();
    let other = Path::new("/other");
    mark_at(&disk, other);
    let (from, to) = (
        archive(&disk).unwrap(),
        WalArchive::open(&disk, other).unwrap(),
    );
    let todo = from.lacking(Some(&to), &|_, _, _| true).unwrap();
    let copied = copy_wal(&from, &to, &todo, &form(Algorithm::Lz4), &*clock(), &|| {
        true
    })
    .unwrap();
    assert_eq!((copied.files, copied.unreadable.len()), (0, 1));
    assert!(matches!(copied.unreadable[0], Error::Damaged { .. }));
}

/// Goal: a server compares its WAL with an archive that it cannot read, whole blocks at a time.
/// Goal: a server that has recycled a segment recognizes the archive's copy by what it had seen of it before.
#[test]
fn a_recycled_segment_is_recognized_by_the_tags_of_its_blocks() {
    let keys = keys();
    let bytes = segment(1, 3, 3);
    let (disk, _) = sealed(Algorithm::Zstd, &keys, &bytes);
    let size = SegmentSize::new(SEGMENT as u64).unwrap();
    let archive = archive(&disk).unwrap();
    let named = |number| {
        let at = Lsn(number * SEGMENT as u64);
        SegmentName::holding(longshore_pg::Timeline::new(1).unwrap(), at, size)
    };
    let sample = |key, of, len: u64, bytes: &[u8]| {
        let mut sample = SegmentTags::of(key, of, size, len);
        // In pieces, as a server's file is read.
        let wanted = &bytes[..sample.len() as usize];
        wanted.chunks(70_000).for_each(|piece| sample.take(piece));
        archive.is_sampled(&sample)
    };
    let own = || tags(1).unwrap();
    for len in [1, 100, bytes.len() as u64] {
        assert!(sample(own(), named(3), len, &bytes).unwrap(), "{len}");
    }
    let mut other = bytes.clone();
    *other.last_mut().unwrap() ^= 1;
    let whole = bytes.len() as u64;
    assert!(!sample(own(), named(3), whole, &other).unwrap());
    assert!(!sample(tags(2).unwrap(), named(3), whole, &bytes).unwrap());
    assert!(sample(own(), named(4), whole, &bytes).is_err(), "not there");
    // A sample that was not finished recognizes nothing.
    let unfinished = SegmentTags::of(own(), named(3), size, whole);
    assert!(!archive.is_sampled(&unfinished).unwrap());
}

#[test]
fn parts_of_a_segment_are_compared_by_whole_blocks_without_a_key() {
    let keys = keys();
    let bytes = segment(1, 3, 3);
    let (disk, _) = sealed(Algorithm::Zstd, &keys, &bytes);
    let segment = SegmentName::holding(
        longshore_pg::Timeline::new(1).unwrap(),
        Lsn(3 * SEGMENT as u64),
        longshore_pg::SegmentSize::new(SEGMENT as u64).unwrap(),
    );
    let same = |archive: WalArchive, bytes: &[u8], len: u64| {
        let mut comparison = archive.comparison(segment, len)?;
        let whole = comparison.len() as usize;
        for piece in bytes[..whole].chunks(5000) {
            if !comparison.take(piece)? {
                return Ok(false);
            }
        }
        assert!(comparison.is_whole());
        Ok::<bool, Error>(true)
    };
    let mut late = bytes.clone();
    late[600_000] ^= 1;
    let holder = || reader(&disk, &keys.keyring(true));
    assert!(same(server(&disk), &bytes, 1000).unwrap());
    assert!(same(holder(), &bytes, 1000).unwrap());
    // A reader compares what was asked for; without an identity the whole block is compared.
    assert!(same(holder(), &late, 1000).unwrap());
    assert!(!same(server(&disk), &late, 1000).unwrap());
    assert!(same(archive(&disk).unwrap(), &bytes, 1000).is_err());
    assert!(server(&disk).crc_of(segment, 1000).is_err());
    assert!(!server(&disk).is_readable(name(1, 3)).unwrap());
    assert!(holder().is_readable(name(1, 3)).unwrap());
}
