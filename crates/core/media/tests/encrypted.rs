//! Goal: an encrypted set gives its content to its recipients alone, and no change of it passes, whoever made the change and
//! however well the checksums fit.
//! Method: sets are written with the crate's own parts, taken apart into records, changed, and put together with right
//! checksums, offsets and counts; then they are read by everything that reads sets.
//! Not covered: ciphers and slots (`longshore-crypt`), and without signatures writers who know a recipient: they can make a
//! set of their own.

mod support;

use std::sync::{Arc, Mutex};

use longshore_codec::Algorithm;
use longshore_crypt::{
    Identities, Identity, Keyring, NewKey, Recipients, SetKeys, SignatureState, Signed, Signers,
    SigningKey,
};
use longshore_io::Via;
use longshore_kit::Random;
use longshore_kit::random::from_env;
use longshore_media::device::DeviceClass;
use longshore_media::encrypted::stored_keys;
use longshore_media::record::{Container, RecordKind};
use longshore_media::{
    BackupDevice, Disposition, EncryptTo, Error, FamilyRead, FamilyWrite, Item, MediaSet,
    PendingStripe, Surroundings, copy_set,
};
use support::forge::{Piece, mend, put, put_together, take_apart};
use support::{Shape, Slot, Stripe, devices, expected, media, read_all_with, small_tree};

const STRIPES: usize = 3;
/// Of the bytes after a record's fields, one in so many is changed.
const CIPHERTEXT_STEP: usize = 13;

fn identity() -> Identity {
    Identity::new_hybrid().unwrap()
}

fn keyring(identity: &Identity) -> Arc<Keyring> {
    let identities = Identities::new(vec![identity.clone()]);
    // Where no encryption is required, a set may be taken for a plain one.
    Arc::new(Keyring::new(identities, false))
}

fn shape(identity: &Identity, algorithm: Algorithm) -> Shape {
    let recipients = Recipients::new(vec![identity.recipient()], false).unwrap();
    Shape {
        encryption: Some(EncryptTo {
            key: Arc::new(NewKey::wrapped(&recipients).unwrap()),
            parent_root: [0; 32],
            sign: None,
            places: Vec::new(),
        }),
        ..Shape::new(Disposition::New, algorithm, 50)
    }
}

fn shape_signed(identity: &Identity, sign: &Arc<SigningKey>) -> Shape {
    let mut shape = shape(identity, Algorithm::Zstd);
    let encryption = shape.encryption.as_mut().unwrap();
    encryption.sign = Some(sign.clone());
    shape
}

/// The stripes of a set for this identity that is signed, or not.
fn signed(identity: &Identity, sign: Option<&Arc<SigningKey>>) -> Vec<Vec<u8>> {
    let mut shape = shape(identity, Algorithm::Zstd);
    let encryption = shape.encryption.as_mut().unwrap();
    encryption.sign = sign.cloned();
    media(STRIPES, &[(shape, small_tree())])
}

/// Opens sets, and demands a signature of this key.
fn strict(identity: &Identity, key: &SigningKey) -> Arc<Keyring> {
    let signers = Signers::new(vec![key.signer()], true).unwrap();
    let identities = Identities::new(vec![identity.clone()]);
    Arc::new(Keyring::new(identities, false).with_signers(Arc::new(signers)))
}

/// The state of a set's signature, as its headers and trailers tell it.
fn state(stripes: &[Vec<u8>], keyring: &Arc<Keyring>) -> SignatureState {
    let media = MediaSet::open(&devices(stripes)).unwrap();
    media.with_keyring(keyring).signature(1).unwrap()
}

/// Why a set is refused that every way of reading must refuse for its signature.
fn refused(stripes: &[Vec<u8>], keyring: &Arc<Keyring>) -> SignatureState {
    let media = MediaSet::open(&devices(stripes)).unwrap();
    let media = media.with_keyring(keyring);
    let mut found = Vec::new();
    let mut take = |refused: Result<(), Error>| match refused {
        Err(Error::Unsigned { what, .. }) => found.push(what),
        other => panic!("{other:?}"),
    };
    take(media.items(1, |_| {}));
    take(media.stream_of(0, 1, &|_: &[Item]| true).map(drop));
    for stored in [true, false] {
        let stream = match stored {
            true => media.stored_stream(0, 1),
            false => media.stream(0, 1),
        };
        take(stream.and_then(|mut stream| {
            let mut payload = vec![0; 4096];
            while stream.next(&mut payload)?.is_some() {}
            Ok(())
        }));
    }
    assert!(found.iter().all(|what| *what == found[0]), "{found:?}");
    found[0]
}

/// Goal: whether slots are on the media is said twice, and both have to agree: a set whose slots were taken away is damaged, and not one
/// whose keys are detached.
#[test]
fn slots_are_where_the_header_says_or_the_set_is_damaged() {
    let identity = identity();
    let recipients = Recipients::new(vec![identity.recipient()], false).unwrap();
    let header = |bits: u64| {
        let mut body = vec![7; 120];
        body[56..64].copy_from_slice(&bits.to_le_bytes());
        body
    };
    let (attached, detached) = (header(1), header(1 | 1 << 6));
    for (body, key) in [
        (&attached, NewKey::wrapped(&recipients).unwrap()),
        (&detached, NewKey::detached(&recipients).unwrap()),
    ] {
        let (_, records) = SetKeys::create(body, &key, [0; 32]).unwrap();
        assert!(stored_keys(body, &records).is_ok());
        let other = if *body == attached {
            &detached
        } else {
            &attached
        };
        let refused = stored_keys(other, &records).unwrap_err();
        assert!(
            matches!(refused, longshore_crypt::Error::Malformed { .. }),
            "{refused}"
        );
    }
    assert!(stored_keys(&attached[..50], &[]).is_err());
    // All readers look: those of contents, of checksums, and of the records alone.
    let mut changed = media(1, &[(shape(&identity, Algorithm::Zstd), small_tree())]);
    let mut pieces = take_apart(Container::Zstd, &changed[0]);
    let is_set = |piece: &&mut Piece| piece.kind == RecordKind::Set;
    let set = pieces.iter_mut().find(is_set).unwrap();
    set.body[56] |= 1 << 6;
    changed[0] = put_together(Container::Zstd, &pieces);
    let opened = MediaSet::open(&devices(&changed)).unwrap();
    let opened = opened.with_keyring(&keyring(&identity));
    assert!(opened.recipients(1).is_err() && opened.opened(1).is_err());
    assert!(opened.stored_stream(0, 1).is_err() && opened.stream(0, 1).is_err());
}

#[test]
fn where_a_signature_is_required_a_set_without_a_trusted_one_is_refused_by_all_who_read_it() {
    let identity = identity();
    let (own, other) = (SigningKey::new().unwrap(), SigningKey::new().unwrap());
    let (own, other) = (Arc::new(own), Arc::new(other));
    let (strict, open) = (strict(&identity, &own), keyring(&identity));
    let genuine = signed(&identity, Some(&own));
    let right = [expected(&small_tree())];
    assert_eq!(read_all_with(&devices(&genuine), &strict).unwrap(), right);
    assert_eq!(accepted(&genuine, 0, genuine[0].clone(), &strict).len(), 3);
    assert_eq!(
        state(&genuine, &strict),
        SignatureState::Trusted(own.signer())
    );
    assert_eq!(
        state(&genuine, &open),
        SignatureState::Stranger(own.signer())
    );

    let forged = signed(&identity, Some(&other));
    let unsigned = signed(&identity, None);
    let plain = Shape::new(Disposition::New, Algorithm::Zstd, 50);
    let plain = media(STRIPES, &[(plain, small_tree())]);
    for (stripes, expected) in [
        (forged, SignatureState::Stranger(other.signer())),
        (unsigned, SignatureState::Unsigned),
        (plain, SignatureState::Unsigned),
    ] {
        assert_eq!(refused(&stripes, &strict), expected);
        assert_eq!(state(&stripes, &strict), expected);
        // Nobody else cares.
        assert_eq!(read_all_with(&devices(&stripes), &open).unwrap(), right);
    }
}

/// A set, with this done to the body of the Roots record of each stripe.
fn with_roots(stripes: &[Vec<u8>], change: &dyn Fn(&mut Vec<u8>)) -> Vec<Vec<u8>> {
    let changed = stripes.iter().map(|stripe| {
        let mut pieces = take_apart(Container::Zstd, stripe);
        let at = places(&pieces, RecordKind::Roots)[0];
        change(&mut pieces[at].body);
        mend(Container::Zstd, &mut pieces);
        put_together(Container::Zstd, &pieces)
    });
    changed.collect()
}

/// Goal: a signature is of one set, and no bit of it can be changed; nobody can take it away or replace it by his own.
#[test]
fn a_signature_that_is_changed_removed_replaced_or_of_another_set_is_refused() {
    let identity = identity();
    let (own, other) = (SigningKey::new().unwrap(), SigningKey::new().unwrap());
    let own = Arc::new(own);
    let (strict, open) = (strict(&identity, &own), keyring(&identity));
    let genuine = signed(&identity, Some(&own));
    let pieces = take_apart(Container::Zstd, &genuine[0]);
    let roots = pieces[places(&pieces, RecordKind::Roots)[0]].body.clone();
    let signature_at = 60 + 32 * STRIPES;
    assert_eq!(roots.len(), signature_at + 64);
    // Every bit of the signer and of the signature, with all checksums right.
    let wrong = (28..60).chain(signature_at..roots.len());
    for at in wrong
        .flat_map(|byte| (0..8).map(move |bit| (byte, bit)))
        .step_by(3)
    {
        let changed = with_roots(&genuine, &|body| body[at.0] ^= 1 << at.1);
        for keyring in [&strict, &open] {
            let found = refused(&changed, keyring);
            assert!(matches!(found, SignatureState::Wrong(_)), "{at:?}: {found}");
        }
    }
    for at in 19..28 {
        let changed = with_roots(&genuine, &|body| body[at] = 1);
        assert!(accepted(&changed, 0, changed[0].clone(), &open).is_empty());
    }
    // A kind of later versions: unsigned for this one.
    let later = with_roots(&genuine, &|body| body[18] = 2);
    assert_eq!(refused(&later, &strict), SignatureState::Unknown(2));
    assert_eq!(accepted(&later, 0, later[0].clone(), &open).len(), 3);
    // Without it the totals are others, which the trailer's MAC covers.
    let without = with_roots(&genuine, &|body| {
        body.truncate(signature_at);
        body[18..60].fill(0);
    });
    let by = accepted(&without, 0, without[0].clone(), &strict);
    assert!(by.is_empty(), "{by:?}");
    let by = accepted(&without, 0, without[0].clone(), &open);
    assert!(!by.contains(&"a whole read"), "{by:?}");

    // Of another set of the same signer.
    let second = signed(&identity, Some(&own));
    let pieces = take_apart(Container::Zstd, &second[0]);
    let theirs = pieces[places(&pieces, RecordKind::Roots)[0]].body.clone();
    let taken = with_roots(&genuine, &|body| {
        body[signature_at..].copy_from_slice(&theirs[signature_at..]);
    });
    assert_eq!(
        refused(&taken, &strict),
        SignatureState::Wrong(own.signer())
    );
    // By who has only the stripes, and signs them once more.
    let pieces = take_apart(Container::Zstd, &genuine[0]);
    let header = &pieces[places(&pieces, RecordKind::Set)[0]].body;
    let root = &pieces.last().unwrap().body[156..188];
    let again = other.sign(&Signed::set(header, root.try_into().unwrap()));
    let resigned = |signer: [u8; 32]| {
        with_roots(&genuine, &|body| {
            body[28..60].copy_from_slice(&signer);
            body[signature_at..].copy_from_slice(&again.bytes);
        })
    };
    let found = refused(&resigned(*other.signer().as_bytes()), &strict);
    assert_eq!(found, SignatureState::Stranger(other.signer()));
    let found = refused(&resigned(*own.signer().as_bytes()), &strict);
    assert_eq!(found, SignatureState::Wrong(own.signer()));
}

/// A stripe that somebody changes while it is open.
#[derive(Debug, Clone)]
struct Changing(Arc<Mutex<Vec<u8>>>);

impl Changing {
    fn stripe(&self) -> Stripe {
        let bytes = self.0.lock().unwrap().clone();
        let (name, bytes) = (self.name(), Arc::new(bytes));
        Stripe { name, bytes }
    }
}

impl PendingStripe for Changing {
    fn open_pending(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        Ok(None)
    }

    fn complete_pending(&self) -> Result<(), Error> {
        self.stripe().complete_pending()
    }
}

impl FamilyRead for Changing {
    fn len_bytes(&self) -> Result<Option<u64>, Error> {
        self.stripe().len_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        self.stripe().read_at(buf, offset)
    }
}

impl Surroundings for Changing {}

impl BackupDevice for Changing {
    fn name(&self) -> String {
        "changing".into()
    }

    fn class(&self) -> DeviceClass {
        DeviceClass::File
    }

    fn open(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        Ok(Some(Arc::new(self.clone())))
    }

    fn create(&self, via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        self.stripe().create(via)
    }

    fn append(&self, offset: u64, via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        self.stripe().append(offset, via)
    }
}

/// Goal: an index that was proved proves no blocks of another key: who chooses a key can make a block of any tag.
/// Method: between the index and the first block somebody puts Keys records there that he made for the set's own header.
#[test]
fn keys_that_are_exchanged_between_the_index_and_its_blocks_are_refused() {
    let identity = identity();
    let own = Arc::new(SigningKey::new().unwrap());
    let keyring = strict(&identity, &own);
    let mut genuine = media(1, &[(shape_signed(&identity, &own), small_tree())]);
    let genuine = genuine.remove(0);
    let mut pieces = take_apart(Container::Zstd, &genuine);
    let header = pieces[places(&pieces, RecordKind::Set)[0]].body.clone();
    let recipients = Recipients::new(vec![identity.recipient()], false).unwrap();
    let theirs = NewKey::wrapped(&recipients).unwrap();
    let (_, bodies) = SetKeys::create(&header, &theirs, [0; 32]).unwrap();
    for (at, body) in places(&pieces, RecordKind::Keys).into_iter().zip(bodies) {
        pieces[at].body = body;
    }
    let exchanged = put_together(Container::Zstd, &pieces);
    assert!(exchanged.len() == genuine.len() && exchanged != genuine);

    let stripe = Arc::new(Mutex::new(genuine));
    let device: Arc<dyn BackupDevice> = Arc::new(Changing(stripe.clone()));
    let media = MediaSet::open(&[device]).unwrap().with_keyring(&keyring);
    assert!(media.stream_of(0, 1, &|_: &[Item]| true).unwrap().is_some());
    let wants = |_: &[Item]| {
        *stripe.lock().unwrap() = exchanged.clone();
        true
    };
    let refused = media.stream_of(0, 1, &wants).map(drop).unwrap_err();
    assert!(matches!(refused, Error::SetDamaged { .. }), "{refused}");
}

/// Goal: a signature is of the header and the totals, also where no block is read: retention counts by them.
#[test]
fn a_signature_is_of_what_a_list_shows() {
    let identity = identity();
    let key = Arc::new(SigningKey::new().unwrap());
    let strict = strict(&identity, &key);
    let genuine = signed(&identity, Some(&key));
    let listed = |stripes: &[Vec<u8>]| {
        let media = MediaSet::open(&devices(stripes))?.with_keyring(&strict);
        // An expiry, a time, a total: what decides without any block.
        media.set(1)?;
        media.signature(1)
    };
    let pieces = take_apart(Container::Zstd, &genuine[0]);
    let mut tried = 0;
    for kind in [RecordKind::Set, RecordKind::Keys, RecordKind::Trailer] {
        let at = places(&pieces, kind)[0];
        for byte in 0..pieces[at].body.len() {
            let changed: Vec<Vec<u8>> = genuine
                .iter()
                .map(|stripe| {
                    let mut pieces = take_apart(Container::Zstd, stripe);
                    let at = places(&pieces, kind)[0];
                    pieces[at].body[byte] ^= 1;
                    mend(Container::Zstd, &mut pieces);
                    put_together(Container::Zstd, &pieces)
                })
                .collect();
            // Fields of one stripe alone: its counts, its chain of checksums, its place, its MAC.
            let is_own = kind == RecordKind::Trailer
                && [32..56, 96..112, 124..156]
                    .iter()
                    .any(|own| own.contains(&byte));
            if changed == genuine || is_own {
                continue;
            }
            tried += 1;
            let found = listed(&changed);
            let is_trusted = matches!(found, Ok(SignatureState::Trusted(_)));
            assert!(!is_trusted, "{kind:?} byte {byte}");
        }
    }
    assert!(tried > 200, "{tried}");
}

/// Media with one set of the small tree, and what opens it.
fn set(algorithm: Algorithm) -> (Vec<Vec<u8>>, Arc<Keyring>) {
    let identity = identity();
    let stripes = media(STRIPES, &[(shape(&identity, algorithm), small_tree())]);
    (stripes, keyring(&identity))
}

#[test]
fn a_set_opens_for_its_recipient_and_for_nobody_else() {
    for algorithm in Algorithm::ALL {
        let (stripes, right) = set(algorithm);
        let content = read_all_with(&devices(&stripes), &right).unwrap();
        assert_eq!(content, [expected(&small_tree())], "{algorithm}");
        for wrong in [Arc::default(), keyring(&identity())] {
            let media = MediaSet::open(&devices(&stripes)).unwrap();
            let media = media.with_keyring(&wrong);
            // Facts that need no key.
            let summary = media.set(1).unwrap();
            assert!(summary.header.encrypted && summary.trailer.is_some());
            let refused = media.stream(0, 1).unwrap_err();
            assert!(matches!(refused, Error::Key { .. }), "{refused}");
            let refused = media.items(1, |_| panic!("an item")).unwrap_err();
            assert!(matches!(refused, Error::Key { .. }), "{refused}");
        }
    }
}

/// Goal: nothing of names or contents is readable in the stripes, not even a checksum of it.
#[test]
fn no_name_and_no_content_is_in_the_stripes() {
    let (stripes, _) = set(Algorithm::None);
    let open = media(
        STRIPES,
        &[(
            Shape::new(Disposition::New, Algorithm::None, 50),
            small_tree(),
        )],
    );
    let has = |stripes: &[Vec<u8>], what: &[u8]| {
        let mut all = stripes.iter();
        all.any(|s| s.windows(what.len()).any(|w| w == what))
    };
    for what in [&b"quick brown"[..], b"d/sparse", b"../anywhere"] {
        assert!(has(&open, what) && !has(&stripes, what), "{what:?}");
    }
    for stripe in &stripes {
        for piece in take_apart(Container::Zstd, stripe) {
            if piece.kind == RecordKind::Block {
                assert_eq!(piece.body[32..36], [0; 4], "a checksum of plain bytes");
            }
        }
    }
}

/// Goal: the page says rightly what everybody sees of blocks: their sizes before and after compression, and nothing else of them.
#[test]
fn without_a_key_the_sizes_of_blocks_are_those_of_a_set_that_is_not_encrypted() {
    let sizes = |stripes: &[Vec<u8>], container| {
        let mut sizes = Vec::new();
        for piece in stripes.iter().flat_map(|s| take_apart(container, s)) {
            if piece.kind == RecordKind::Block {
                let number = |at: usize, len: usize| {
                    let mut bytes = [0; 8];
                    bytes[..len].copy_from_slice(&piece.body[at..at + len]);
                    u64::from_le_bytes(bytes)
                };
                // Sequence, plain bytes.
                sizes.push((number(16, 8), number(24, 4), piece.payload.len()));
            }
        }
        sizes.sort_unstable();
        sizes
    };
    let (stripes, _) = set(Algorithm::Zstd);
    let open = Shape::new(Disposition::New, Algorithm::Zstd, 50);
    let open = media(STRIPES, &[(open, small_tree())]);
    let seen = sizes(&stripes, Container::Zstd);
    let real = sizes(&open, Container::Zstd);
    assert_eq!(seen.len(), real.len());
    let mut kinds = std::collections::BTreeSet::new();
    for (seen, real) in seen.iter().zip(&real) {
        assert_eq!((seen.0, seen.1), (real.0, real.1));
        // A constant more for each payload: whoever reads the stripes knows what it compressed to.
        kinds.insert(seen.2.checked_sub(real.2).unwrap());
    }
    assert!(
        kinds.len() <= 2 && kinds.iter().all(|more| *more < 64),
        "{kinds:?}"
    );
}

/// Goal: whoever has no key copies and compares stored bytes, and the copy opens.
#[test]
fn a_copy_needs_no_key_and_finds_what_rotted() {
    let (identity, key) = (identity(), Arc::new(SigningKey::new().unwrap()));
    let (stripes, keyring) = (signed(&identity, Some(&key)), strict(&identity, &key));
    let copied = |stripes: &[Vec<u8>]| {
        let slots: Vec<Slot> = (0..STRIPES).map(|_| Slot::default()).collect();
        let to: Vec<_> = slots.iter().map(|s| Arc::new(s.clone()) as _).collect();
        let ready = copy_set(&devices(stripes), &to, &|_| Ok(()))?;
        ready.complete()?;
        Ok::<_, Error>(slots.iter().map(Slot::bytes).collect::<Vec<_>>())
    };
    let copy = copied(&stripes).unwrap();
    assert_eq!(copy, stripes);
    read_all_with(&devices(&copy), &keyring).unwrap();
    // A block of another place with right checksums: only its digest tells.
    let mut pieces = take_apart(Container::Zstd, &stripes[0]);
    let blocks = places(&pieces, RecordKind::Block);
    pieces.swap(blocks[0], blocks[1]);
    mend(Container::Zstd, &mut pieces);
    let mut changed = stripes.clone();
    changed[0] = put_together(Container::Zstd, &pieces);
    let refused = copied(&changed).unwrap_err();
    assert!(matches!(refused, Error::SetDamaged { .. }), "{refused}");
}

/// Where the records of a kind are.
fn places(pieces: &[Piece], kind: RecordKind) -> Vec<usize> {
    let found = pieces.iter().enumerate().filter(|(_, p)| p.kind == kind);
    found.map(|(i, _)| i).collect()
}

/// Reads a set with one stripe changed in every way that readers have; which of them accepted it.
fn accepted(
    stripes: &[Vec<u8>],
    at: usize,
    stripe: Vec<u8>,
    keyring: &Arc<Keyring>,
) -> Vec<&'static str> {
    let mut stripes = stripes.to_vec();
    stripes[at] = stripe;
    let devices = devices(&stripes);
    let mut by = Vec::new();
    if read_all_with(&devices, keyring).is_ok() {
        by.push("a whole read");
    }
    if let Ok(media) = MediaSet::open(&devices) {
        let media = media.with_keyring(keyring);
        if media.items(1, |_| {}).is_ok() {
            by.push("the index");
        }
        let all = |_: &[Item]| true;
        let picked = (0..STRIPES).try_for_each(|family| -> Result<(), Error> {
            let Some(mut stream) = media.stream_of(family, 1, &all)? else {
                return Ok(());
            };
            let mut payload = vec![0; 4096];
            while let Some(block) = stream.next(&mut payload)? {
                let len = block.header.stored_len as usize;
                let encrypted = block.encrypted.as_ref().unwrap();
                let place = encrypted.payload(&mut payload[..len]);
                place.map_err(|_| Error::DeviceCount { given: 0 })?;
            }
            Ok(())
        });
        if picked.is_ok() {
            by.push("picked blocks");
        }
    }
    by
}

/// Goal: no bit of a set can be changed, although every checksum, offset and count is made to fit.
#[test]
fn a_changed_bit_behind_right_checksums_is_refused_by_all_who_read_it() {
    let (stripes, keyring) = set(Algorithm::Zstd);
    let whole = accepted(&stripes, 0, stripes[0].clone(), &keyring);
    assert_eq!(whole.len(), 3, "{whole:?}");
    let pieces = take_apart(Container::Zstd, &stripes[1]);
    let mut tried = 0;
    for (i, piece) in pieces.iter().enumerate() {
        let bytes = piece.body.len() + piece.payload.len();
        // All fields, and a part of the ciphertext.
        let step = |byte: &usize| *byte < 128 || byte.is_multiple_of(CIPHERTEXT_STEP);
        for byte in (0..bytes).filter(step) {
            let mut changed = pieces.clone();
            match byte.checked_sub(piece.body.len()) {
                None => changed[i].body[byte] ^= 1 << (byte % 8),
                Some(at) => changed[i].payload[at] ^= 1 << (byte % 8),
            }
            mend(Container::Zstd, &mut changed);
            let stripe = put_together(Container::Zstd, &changed);
            if stripe == stripes[1] {
                // The change was mended away: a checksum, an offset or a count.
                continue;
            }
            tried += 1;
            let by = accepted(&stripes, 1, stripe, &keyring);
            // The index alone suffices for it; a block's own bytes are not read.
            let is_read = piece.kind != RecordKind::Block;
            // The bits of compatible features: a later program may set some on media that are there.
            let of_media = piece.kind == RecordKind::Media && (48..56).contains(&byte);
            // A signature of a later version, which says nothing to this one.
            let of_signature = piece.kind == RecordKind::Roots && byte == 18;
            let expected: &[&str] = match (of_media || of_signature, is_read) {
                (true, _) => &["a whole read", "the index", "picked blocks"],
                (false, true) => &[],
                (false, false) => &["the index"],
            };
            let only = by.iter().all(|by| expected.contains(by));
            assert!(only, "{:?} byte {byte}: {by:?}", piece.kind);
        }
    }
    assert!(tried > 1_000, "{tried}");
}

/// Whether two stripes differ in nothing that the checks of a set cover: in the bits for compatible features of the media
/// header, or in a signature of a kind that this version does not know.
fn is_free(one: &[Piece], other: &[Piece]) -> bool {
    let roots = 60 + 32 * STRIPES;
    let covered = |piece: &Piece| {
        let mut body = piece.body.clone();
        match piece.kind {
            RecordKind::Media if body.len() >= 56 => body[48..56].fill(0),
            RecordKind::Roots if body.len() >= roots && body[18] > 1 => {
                body[18..60].fill(0);
                body.truncate(roots);
            }
            _ => {}
        }
        (body, piece.payload.clone())
    };
    one.iter().map(covered).eq(other.iter().map(covered))
}

/// Changes a record somewhere, in one of several ways.
fn change(random: &mut Random, pieces: &mut [Piece]) {
    let i = random.below(pieces.len() as u64) as usize;
    let from = random.below(pieces.len() as u64) as usize;
    let donor = [&pieces[from].body[..], &pieces[from].payload[..]].concat();
    let piece = &mut pieces[i];
    let in_payload = !piece.payload.is_empty() && random.below(2) == 0;
    let bytes = match in_payload {
        true => &mut piece.payload,
        false => &mut piece.body,
    };
    let at = random.below(bytes.len() as u64) as usize;
    let len = (1 + random.below(40) as usize).min(bytes.len() - at);
    match random.below(5) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at..at + len].copy_from_slice(&random.bytes(len)),
        2 => bytes[at..at + len].fill(0),
        // Bytes from another place are as likely as its own.
        3 => {
            let start = random.below(donor.len() as u64) as usize;
            let len = len.min(donor.len() - start);
            bytes[at..at + len].copy_from_slice(&donor[start..start + len]);
        }
        _ => bytes.truncate(at.max(1)),
    }
}

/// Goal: whatever is changed, however much of it, and in sets of every container: nothing opens, and nothing wrong is read.
/// Method: `LONGSHORE_CRYPT_ROUNDS` rounds of one to three random changes behind right checksums. A seed gives the same changes
/// again, and other keys.
#[test]
fn random_changes_behind_right_checksums_open_nothing() {
    let rounds = from_env("LONGSHORE_CRYPT_ROUNDS", 2_000);
    let seed = from_env("LONGSHORE_SEED", 1);
    let mut random = Random(seed);
    let right = [expected(&small_tree())];
    let (mut tried, mut harmless) = (0, 0);
    let sets = [Algorithm::Zstd, Algorithm::QatDeflate, Algorithm::Lz4].map(|algorithm| {
        // One of them is signed, and has to be.
        let (identity, key) = (identity(), Arc::new(SigningKey::new().unwrap()));
        let set = match algorithm {
            Algorithm::Zstd => (signed(&identity, Some(&key)), strict(&identity, &key)),
            _ => set(algorithm),
        };
        let container = MediaSet::open(&devices(&set.0)).unwrap().container();
        // Refusals are due to changes, not to how stripes are taken apart and put together.
        for stripe in &set.0 {
            let mut pieces = take_apart(container, stripe);
            mend(container, &mut pieces);
            assert!(put_together(container, &pieces) == *stripe);
        }
        (set, container)
    });
    while tried < rounds {
        let ((stripes, keyring), container) = &sets[random.below(3) as usize];
        let at = random.below(STRIPES as u64) as usize;
        let whole = take_apart(*container, &stripes[at]);
        let mut pieces = whole.clone();
        for _ in 0..1 + random.below(3) {
            change(&mut random, &mut pieces);
        }
        mend(*container, &mut pieces);
        let mut all = stripes.clone();
        all[at] = put_together(*container, &pieces);
        if all[at] == stripes[at] {
            continue;
        }
        tried += 1;
        let free = is_free(&whole, &pieces);
        let by = accepted(stripes, at, all[at].clone(), keyring);
        let allowed = |by: &&str| free || *by == "the index";
        assert!(
            by.iter().all(allowed),
            "round {tried} of seed {seed}: {by:?}"
        );
        if let Ok(content) = read_all_with(&devices(&all), keyring) {
            assert!(
                content == right,
                "round {tried} of seed {seed} read something else"
            );
            harmless += 1;
        }
    }
    println!("{tried} changes, of which {harmless} were to what no check covers");
}

/// Goal: nothing can be left out, doubled, moved or taken from another set of the same recipient.
#[test]
fn records_that_are_moved_dropped_doubled_or_of_another_set_are_refused() {
    let identity = identity();
    let one = media(
        STRIPES,
        &[(shape(&identity, Algorithm::Zstd), small_tree())],
    );
    let two = media(
        STRIPES,
        &[(shape(&identity, Algorithm::Zstd), small_tree())],
    );
    let keyring = keyring(&identity);
    let pieces = take_apart(Container::Zstd, &one[0]);
    let others = take_apart(Container::Zstd, &two[0]);
    let mut tried = 0;
    let mut check = |mut changed: Vec<Piece>, what: String| {
        mend(Container::Zstd, &mut changed);
        let stripe = put_together(Container::Zstd, &changed);
        if stripe == one[0] {
            return;
        }
        tried += 1;
        let by = accepted(&one, 0, stripe, &keyring);
        let serious = by.iter().any(|by| *by != "the index");
        assert!(!serious, "{what}: {by:?}");
    };
    for i in 1..pieces.len() {
        let mut changed = pieces.clone();
        changed.remove(i);
        check(changed, format!("without record {i}"));
        // Bytes after the trailer are what a crash may leave after any set.
        if pieces[i].kind != RecordKind::Trailer {
            let mut changed = pieces.clone();
            changed.insert(i, pieces[i].clone());
            check(changed, format!("record {i} twice"));
        }
        for j in i + 1..pieces.len() {
            let mut changed = pieces.clone();
            changed.swap(i, j);
            check(changed, format!("records {i} and {j} exchanged"));
        }
        for other in others.iter().skip(1) {
            if other.kind != pieces[i].kind {
                continue;
            }
            let mut changed = pieces.clone();
            changed[i] = other.clone();
            check(changed.clone(), format!("record {i} of another set"));
            // With this set's own identifier, and at the sequence that is expected.
            let id = pieces[i].body[..16].to_vec();
            if matches!(
                other.kind,
                RecordKind::Block | RecordKind::Trailer | RecordKind::Roots
            ) {
                changed[i].body[..16].copy_from_slice(&id);
                check(changed, format!("record {i} of another set in disguise"));
            }
        }
    }
    assert!(tried > 100, "{tried}");
}

/// Goal: a set that is not encrypted does not take an encrypted one's place where encryption is required.
#[test]
fn where_encryption_is_required_a_plain_set_is_refused() {
    let plain = media(
        STRIPES,
        &[(
            Shape::new(Disposition::New, Algorithm::Zstd, 50),
            small_tree(),
        )],
    );
    let identities = Identities::new(vec![identity()]);
    let required = Arc::new(Keyring::new(identities, true));
    let opened = MediaSet::open(&devices(&plain)).unwrap();
    let opened = opened.with_keyring(&required);
    let refused = opened.stream(0, 1).unwrap_err();
    assert!(matches!(refused, Error::NotEncrypted { .. }), "{refused}");
    let refused = opened.items(1, |_| {}).unwrap_err();
    assert!(matches!(refused, Error::NotEncrypted { .. }), "{refused}");
    // The bit of the media header alone makes no encrypted set of it.
    let mut pieces = take_apart(Container::Zstd, &plain[0]);
    put(&mut pieces[0].body, 56, 1u64.to_le_bytes());
    let mut changed = plain.clone();
    changed[0] = put_together(Container::Zstd, &pieces);
    assert!(read_all_with(&devices(&changed), &required).is_err());
}

#[test]
fn encrypted_sets_and_others_do_not_mix_on_one_media_set() {
    let identity = identity();
    let secret = shape(&identity, Algorithm::Zstd);
    let plain = Shape::new(Disposition::Append, Algorithm::Zstd, 50);
    let more = Shape {
        disposition: Disposition::Append,
        ..shape(&identity, Algorithm::Lz4)
    };
    let slots: Vec<Slot> = (0..STRIPES).map(|_| Slot::default()).collect();
    let to: Vec<_> = slots.iter().map(|s| Arc::new(s.clone()) as _).collect();
    support::write_set(&to, &secret, &small_tree()).unwrap();
    let refused = support::write_set(&to, &plain, &small_tree()).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::EncryptionMix {
                encrypted: false,
                ..
            }
        ),
        "{refused}"
    );
    // Another algorithm is no obstacle: all are hidden in one container.
    support::write_set(&to, &more, &small_tree()).unwrap();
    let content = read_all_with(&to, &keyring(&identity)).unwrap();
    assert_eq!(content.len(), 2);
    let slots: Vec<Slot> = (0..STRIPES).map(|_| Slot::default()).collect();
    let to: Vec<_> = slots.iter().map(|s| Arc::new(s.clone()) as _).collect();
    support::write_set(&to, &plain, &small_tree()).unwrap();
    let refused = support::write_set(&to, &more, &small_tree()).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::EncryptionMix {
                encrypted: true,
                ..
            }
        ),
        "{refused}"
    );
}

/// Goal: a trailer behind the real one, which others would list the set with, is not believed.
#[test]
fn a_second_trailer_behind_the_first_is_refused() {
    let (stripes, keyring) = set(Algorithm::Zstd);
    let changed: Vec<Vec<u8>> = stripes
        .iter()
        .map(|stripe| {
            let pieces = take_apart(Container::Zstd, stripe);
            let mut last = pieces.last().unwrap().clone();
            // When the data was complete.
            last.body[24] ^= 1;
            // All bytes of the set are counted up to the trailer.
            let more = Container::Zstd.framed_len(last.body.len()) as u64 * STRIPES as u64;
            let total = u64::from_le_bytes(last.body[72..80].try_into().unwrap());
            put(&mut last.body, 72, (total + more).to_le_bytes());
            let mut stripe = stripe.clone();
            Container::Zstd.append(RecordKind::Trailer, &last.body, &mut stripe);
            stripe
        })
        .collect();
    let media = MediaSet::open(&devices(&changed)).unwrap();
    let listed = media.set(1).unwrap().trailer.unwrap();
    assert_ne!(listed.finish_us, 1_700_000_001_000_000, "it is listed");
    let refused = read_all_with(&devices(&changed), &keyring).unwrap_err();
    assert!(refused.contains("listed with"), "{refused}");
}

/// Goal: a set whose header cannot be read on one stripe is not read as a plain one there.
#[test]
fn a_plain_index_where_the_header_is_damaged_is_refused() {
    let (stripes, keyring) = set(Algorithm::Zstd);
    let plain = media(
        STRIPES,
        &[(
            Shape::new(Disposition::New, Algorithm::Zstd, 50),
            small_tree(),
        )],
    );
    let index = take_apart(Container::Zstd, &plain[1]);
    let index = &index[places(&index, RecordKind::Index)[0]];
    let mut pieces = take_apart(Container::Zstd, &stripes[1]);
    let at = places(&pieces, RecordKind::Index)[0];
    pieces[at].body = index.body.clone();
    let offset = |pieces: &[Piece], to: usize| -> u64 {
        let bytes = |p: &Piece| (Container::Zstd.framed_len(p.body.len()) + p.payload.len()) as u64;
        pieces[..to].iter().map(bytes).sum()
    };
    let last = pieces.len() - 1;
    let (start, end) = (offset(&pieces, at), offset(&pieces, at + 1));
    put(&mut pieces[last].body, 96, start.to_le_bytes());
    put(
        &mut pieces[last].body,
        104,
        ((end - start) as u32).to_le_bytes(),
    );
    let mut stripe = put_together(Container::Zstd, &pieces);
    let header = offset(&pieces, 1) as usize + 30;
    stripe[header] ^= 1;
    let mut changed = stripes.clone();
    changed[1] = stripe;
    let media = MediaSet::open(&devices(&changed)).unwrap();
    let media = media.with_keyring(&keyring);
    assert!(media.items(1, |_| {}).is_err());
}
