//! Goal: encrypted sets of every algorithm go out and come back through all threads, chains too, and a child takes nothing
//! from a set that only has its parent's identifier.
//! Method: trees with every kind of entry are backed up and restored; a parent is exchanged for a set of the same header
//! that was encrypted for the same recipient, as anybody can make it.
//! Not covered: changed bytes (`encrypted.rs` of media), options and configuration (`encrypted.rs` of the command line).

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{
    backup, backup_request, context, describe, odd_tree, restore, restore_request, stripes,
    verify_with,
};
use longshore_codec::Algorithm;
use longshore_crypt::{
    Identities, Identity, Keyring, NewKey, Recipients, Signer, Signers, SigningKey,
};
use longshore_io::Via;
use longshore_media::{
    BackupDevice, DeviceSpec, Disposition, EncryptTo, MediaSet, SetHeader, SetPlan, SetWriter,
    Totals,
};
use longshore_pipeline::{Against, BaseRequest, Error, RunContext, SourceSpec};

struct Keys {
    recipients: Recipients,
    reading: RunContext,
}

fn keys() -> Keys {
    keys_of(true)
}

/// `required`: whether sets that are not encrypted are refused.
fn keys_of(required: bool) -> Keys {
    let identity = Identity::new_hybrid().unwrap();
    let recipients = Recipients::new(vec![identity.recipient()], false).unwrap();
    let keyring = Keyring::new(Identities::new(vec![identity]), required);
    Keys {
        recipients,
        reading: RunContext {
            keyring: Arc::new(keyring),
            ..context()
        },
    }
}

fn devices(dir: &Path, name: &str) -> Vec<DeviceSpec> {
    std::fs::create_dir_all(dir.join(name)).unwrap();
    stripes(&dir.join(name), 2)
}

fn open(specs: &[DeviceSpec]) -> Vec<Arc<dyn BackupDevice>> {
    let storage = context().storage;
    specs.iter().map(|spec| spec.open(&storage)).collect()
}

fn header_of(specs: &[DeviceSpec]) -> SetHeader {
    let media = MediaSet::open(&open(specs)).unwrap();
    media.set(1).unwrap().header
}

/// Writes a set of this header over nothing, as anybody can.
fn forge(specs: &[DeviceSpec], header: SetHeader, encryption: Option<EncryptTo>) {
    let plan = SetPlan {
        disposition: Disposition::Format,
        media_name: String::new(),
        media_description: String::new(),
        header,
        via: Via::Cache,
        expected_bytes: None,
        parity: Default::default(),
        encryption,
    };
    let mut writer = SetWriter::begin(&open(specs), plan, 0).unwrap();
    for family in &mut writer.families {
        family.finish_data().unwrap();
    }
    writer.seal(&Totals::default()).unwrap();
}

#[test]
fn a_tree_goes_out_encrypted_and_comes_back_with_every_algorithm() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    odd_tree(&source);
    let keys = keys();
    for algorithm in Algorithm::ALL {
        let to = devices(dir.path(), algorithm.name());
        let mut request = backup_request(
            SourceSpec::Files(vec![source.clone()]),
            to.clone(),
            algorithm,
        );
        request.encrypt_to = Some(keys.recipients.clone());
        backup(&context(), request).unwrap();
        let refused = restore(
            &context(),
            restore_request(to.clone(), &dir.path().join("no")),
        );
        assert!(refused.is_err() && !dir.path().join("no").exists());
        let target = dir.path().join(format!("{algorithm}-restored"));
        restore(&keys.reading, restore_request(to, &target)).unwrap();
        assert_eq!(describe(&target), describe(&source), "{algorithm}");
    }
}

#[test]
fn neither_a_parent_nor_a_child_is_replaced_by_another_set_of_its_identifier() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("a"), common::content(1, 300_000)).unwrap();
    // A set that is not encrypted is not refused for that alone.
    let keys = keys_of(false);
    let (full, child) = (devices(dir.path(), "full"), devices(dir.path(), "child"));
    let spec = SourceSpec::Files(vec![source.clone()]);
    let request = |to: &[DeviceSpec], base: Option<&[DeviceSpec]>| {
        let mut request = backup_request(spec.clone(), to.to_vec(), Algorithm::Zstd);
        request.encrypt_to = Some(keys.recipients.clone());
        request.page_sums = true;
        request.base = base.map(|base| BaseRequest {
            set: None,
            against: Against::LastFull,
            devices: base.to_vec(),
        });
        request
    };
    backup(&context(), request(&full, None)).unwrap();
    std::fs::write(source.join("b"), b"new").unwrap();
    backup(&keys.reading, request(&child, Some(&full))).unwrap();
    let restored_of = |child: &[DeviceSpec], name: &str| {
        let target = dir.path().join(name);
        let mut request = restore_request(child.to_vec(), &target);
        request.bases = full.clone();
        restore(&keys.reading, request).map(|_| target)
    };
    let restored = |name| restored_of(&child, name);
    let target = restored("right").unwrap();
    assert_eq!(describe(&target), describe(&source));
    let checked = verify_with(&keys.reading, child.clone(), full.clone()).unwrap();
    assert!(checked.findings.is_empty(), "{checked:?}");

    // A child that anybody can make, over the parent as it is.
    let mut header = header_of(&child);
    header.encrypted = false;
    let plain = devices(dir.path(), "plain");
    forge(&plain, header, None);
    let refused = restored_of(&plain, "wrong").unwrap_err().to_string();
    assert!(refused.contains("is not encrypted itself"), "{refused}");
    assert!(!dir.path().join("wrong").exists());
    // Another parent, for the same recipient.
    let encryption = EncryptTo {
        key: Arc::new(NewKey::wrapped(&keys.recipients).unwrap()),
        parent_root: [0; 32],
        sign: None,
        places: Vec::new(),
    };
    forge(&full, header_of(&full), Some(encryption));
    let refused = restored("wrong").unwrap_err().to_string();
    assert!(refused.contains("other content"), "{refused}");
    assert!(!dir.path().join("wrong").exists());
}

/// Goal: a SQLite database differs page by page from its encrypted base, and the chain comes back; without the base, or for a
/// stranger, nothing does.
#[test]
fn a_sqlite_database_differs_from_an_encrypted_base_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    let database = rusqlite::Connection::open(&path).unwrap();
    let rows = "CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600)
         INSERT INTO t SELECT i, randomblob(2000) FROM n";
    database.execute_batch(rows).unwrap();
    let keys = keys_of(false);
    let [full, differential, incremental] =
        ["full", "differential", "incremental"].map(|name| devices(dir.path(), name));
    let request = |to: &[DeviceSpec], base: Option<(Against, &[DeviceSpec])>| {
        let spec = SourceSpec::Sqlite(path.clone());
        let mut request = backup_request(spec, to.to_vec(), Algorithm::Zstd);
        request.encrypt_to = Some(keys.recipients.clone());
        request.page_sums = true;
        request.base = base.map(|(against, base)| BaseRequest {
            set: None,
            against,
            devices: base.to_vec(),
        });
        request
    };
    let whole = backup(&keys.reading, request(&full, None)).unwrap();
    let change = |id: u32| {
        let change = "UPDATE t SET body = randomblob(2000) WHERE id = ?1";
        database.execute(change, [id]).unwrap();
    };
    change(70);
    let base = Some((Against::LastFull, &full[..]));
    let first = backup(&keys.reading, request(&differential, base)).unwrap();
    change(400);
    let base = Some((Against::Newest, &differential[..]));
    let second = backup(&keys.reading, request(&incremental, base)).unwrap();
    for made in [&first, &second] {
        let few = made.plain_bytes < whole.plain_bytes / 10;
        assert!(few, "{} of {}", made.plain_bytes, whole.plain_bytes);
    }
    let restored = |by: &RunContext, bases: &[DeviceSpec], name: &str| {
        let target = dir.path().join(name);
        let mut request = restore_request(incremental.clone(), &target);
        request.bases = bases.to_vec();
        restore(by, request).map(|_| target.join("app.db"))
    };
    let both = [full.clone(), differential.clone()].concat();
    let copy = restored(&keys.reading, &both, "right").unwrap();
    let content = |path: &Path| -> Vec<(u32, Vec<u8>)> {
        let database = rusqlite::Connection::open(path).unwrap();
        let mut all = database
            .prepare("SELECT id, body FROM t ORDER BY id")
            .unwrap();
        let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        rows.unwrap().map(Result::unwrap).collect()
    };
    assert!(content(&copy) == content(&path));
    assert!(restored(&keys_of(false).reading, &both, "stranger").is_err());
    assert!(restored(&keys.reading, &full, "gap").is_err());
}

/// Goal: a chain is as much worth as the least of its sets: where one of them is a stranger's, none of it is restored, and no
/// differential backup is made on it.
#[test]
fn a_chain_with_a_set_of_somebody_who_is_not_trusted_is_neither_restored_nor_continued() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("a"), common::content(1, 300_000)).unwrap();
    let keys = keys_of(false);
    let [own, other] = [(), ()].map(|()| Arc::new(SigningKey::new().unwrap()));
    let machine = |sign: &Arc<SigningKey>, trusted: &[Signer]| {
        let signers = Signers::new(trusted.to_vec(), !trusted.is_empty()).unwrap();
        let keyring = keys.reading.keyring.for_one_run();
        let keyring = keyring.with_signers(Arc::new(signers));
        RunContext {
            keyring: Arc::new(keyring.signing_with(Some(sign.clone()))),
            ..context()
        }
    };
    let request = |to: &[DeviceSpec], base: Option<&[DeviceSpec]>| {
        let spec = SourceSpec::Files(vec![source.clone()]);
        let mut request = backup_request(spec, to.to_vec(), Algorithm::Zstd);
        request.encrypt_to = Some(keys.recipients.clone());
        request.page_sums = true;
        request.base = base.map(|base| BaseRequest {
            set: None,
            against: Against::LastFull,
            devices: base.to_vec(),
        });
        request
    };
    let [full, theirs, child, mixed] =
        ["full", "theirs", "child", "mixed"].map(|name| devices(dir.path(), name));
    let strict = || machine(&own, &[own.signer()]);
    let lenient = || machine(&own, &[]);
    backup(&strict(), request(&full, None)).unwrap();
    backup(&machine(&other, &[]), request(&theirs, None)).unwrap();
    std::fs::write(source.join("b"), b"new").unwrap();
    backup(&strict(), request(&child, Some(&full))).unwrap();
    // A machine that requires nothing made a child of the stranger's full backup; its own is signed as it is to be.
    backup(&lenient(), request(&mixed, Some(&theirs))).unwrap();
    let restored = |by: &RunContext, child: &[DeviceSpec], base: &[DeviceSpec], name: &str| {
        let target = dir.path().join(name);
        let mut request = restore_request(child.to_vec(), &target);
        request.bases = base.to_vec();
        restore(by, request).map(|_| target)
    };
    let target = restored(&strict(), &child, &full, "right").unwrap();
    assert_eq!(describe(&target), describe(&source));
    restored(&lenient(), &mixed, &theirs, "unasked").unwrap();
    let refused = restored(&strict(), &mixed, &theirs, "wrong").unwrap_err();
    assert!(refused.is_closed(), "{refused}");
    assert!(!dir.path().join("wrong").exists());
    let everybody = machine(&own, &[own.signer(), other.signer()]);
    restored(&everybody, &mixed, &theirs, "both").unwrap();
    let to = devices(dir.path(), "more");
    let refused = backup(&strict(), request(&to, Some(&theirs))).unwrap_err();
    let told = format!("{refused:?}");
    assert!(
        told.contains("Unsigned") || told.contains("not trusted"),
        "{told}"
    );
    assert!(!dir.path().join("more/s0.bak").exists());
}

/// Goal: a machine that has recipients alone makes differential backups of its own sets, and of no others.
/// Method: two machines are two histories. The forged sets have the identifiers of real ones, and the same recipient.
#[test]
fn a_machine_without_an_identity_differs_from_its_own_sets_and_from_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("a"), common::content(1, 300_000)).unwrap();
    let keys = keys();
    let machine = |name: &str| RunContext {
        catalog: Some(dir.path().join(name).join("history.db")),
        ..context()
    };
    for name in ["here", "there"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    // A keyring of its own for each run, as a run keeps the keys of what it wrote.
    let (here, there) = (|| machine("here"), || machine("there"));
    let request = |to: &[DeviceSpec], base: Option<&[DeviceSpec]>| {
        let spec = SourceSpec::Files(vec![source.clone()]);
        let mut request = backup_request(spec, to.to_vec(), Algorithm::Zstd);
        request.encrypt_to = Some(keys.recipients.clone());
        request.page_sums = true;
        request.base = base.map(|base| BaseRequest {
            set: None,
            against: Against::Newest,
            devices: base.to_vec(),
        });
        request
    };
    let [full, other, first, second] =
        ["full", "other", "first", "second"].map(|name| devices(dir.path(), name));
    backup(&here(), request(&full, None)).unwrap();
    backup(&here(), request(&other, None)).unwrap();
    std::fs::write(source.join("b"), b"new").unwrap();
    let made = backup(&here(), request(&first, Some(&full))).unwrap();
    assert!(made.plain_bytes < 100_000, "{}", made.plain_bytes);
    std::fs::write(source.join("c"), b"newer").unwrap();
    backup(&here(), request(&second, Some(&first))).unwrap();
    let target = dir.path().join("restored");
    let mut restoring = restore_request(second.clone(), &target);
    restoring.bases = [full.clone(), first.clone()].concat();
    restore(&keys.reading, restoring).unwrap();
    assert_eq!(describe(&target), describe(&source));

    // The index is all that the history opens.
    let closed = restore(
        &here(),
        restore_request(full.clone(), &dir.path().join("no")),
    );
    assert!(closed.is_err() && !dir.path().join("no").exists());
    // Nobody else, and nothing without a history.
    for elsewhere in [there(), context()] {
        let to = devices(dir.path(), "elsewhere");
        let refused = backup(&elsewhere, request(&to, Some(&full))).unwrap_err();
        assert!(matches!(refused, Error::NoBase { .. }), "{refused}");
        assert!(refused.to_string().contains("no identity"), "{refused}");
        assert!(!dir.path().join("elsewhere/s0.bak").exists());
    }
    // A key that opens one set opens no other, also under its identifier.
    let (own, exchanged) = (header_of(&full).set, header_of(&other).set);
    let history = rusqlite::Connection::open(here().catalog.as_ref().unwrap()).unwrap();
    let swap = "UPDATE longshore_index SET root = o.root, secret = o.secret FROM \
                (SELECT root, secret FROM longshore_index WHERE backup_set_uuid = ?2) AS o WHERE backup_set_uuid = ?1";
    let changed = history.execute(swap, [own.to_string(), exchanged.to_string()]);
    assert_eq!(changed.unwrap(), 1);
    // A history that cannot be read says nothing: this is no reason for a full backup.
    let to = devices(dir.path(), "swapped");
    let refused = backup(&here(), request(&to, Some(&full))).unwrap_err();
    assert!(matches!(refused, Error::HistoryUnread { .. }), "{refused}");

    // A set of the same identifier that anybody can make, over nothing.
    let right = header_of(&first);
    let plain = SetHeader {
        encrypted: false,
        ..right.clone()
    };
    let encrypted = EncryptTo {
        key: Arc::new(NewKey::wrapped(&keys.recipients).unwrap()),
        parent_root: [0; 32],
        sign: None,
        places: Vec::new(),
    };
    // An identity opens what anybody encrypted for it, and does not help here.
    let with_identity = RunContext {
        keyring: keys.reading.keyring.clone(),
        ..here()
    };
    for (header, encryption) in [(right, Some(encrypted)), (plain, None)] {
        forge(&first, header, encryption);
        for machine in [here(), with_identity.clone()] {
            let to = devices(dir.path(), "forged");
            let refused = backup(&machine, request(&to, Some(&first))).unwrap_err();
            assert!(matches!(refused, Error::NoBase { .. }), "{refused}");
            assert!(refused.to_string().contains("exchanged"), "{refused}");
            assert!(!dir.path().join("forged/s0.bak").exists());
        }
    }
}
