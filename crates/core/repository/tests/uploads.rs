//! Goal: unfinished uploads are found at any address; one that is young, or that a live lease protects, is never aborted.
//! Method: the shipped client over a simulated store whose clock moves as the test says.

use std::sync::atomic::AtomicBool;

use longshore_bucket::sim::Store;
use longshore_bucket::{Address, Bytes, Key, Scheme};
use longshore_io::SimDisk;
use longshore_repository::{LeftUpload, abort_left_upload, left_uploads};

static NO: AtomicBool = AtomicBool::new(false);
const DAY_S: i64 = 86_400;

fn address(store: &Store, bucket: &str, key: &str) -> Address {
    Address::of(&format!("{}{bucket}{key}", store.scheme())).unwrap()
}

/// A writer that was killed after one part.
fn left(store: &Store, key: &str) {
    let mut upload = store
        .bucket()
        .unwrap()
        .begin(&Key::from(key), "x".to_owned(), &NO)
        .unwrap();
    let part = upload.part(0, Bytes::from_static(b"part")).unwrap();
    part.wait(&NO).unwrap();
    upload.leave();
}

fn found(store: &Store, bucket: &str, key: &str) -> Vec<LeftUpload> {
    left_uploads(&address(store, bucket, key), &SimDisk::new(1), DAY_S).unwrap()
}

fn keys(found: &[LeftUpload]) -> Vec<String> {
    let key = |left: &LeftUpload| {
        left.address
            .split('/')
            .skip(3)
            .collect::<Vec<_>>()
            .join("/")
    };
    found.iter().map(key).collect()
}

/// A store whose bucket of this name is found by its address.
fn store(scheme: Scheme) -> (Store, String) {
    let store = Store::speaking(scheme);
    let bucket = store.install().unwrap();
    (store, bucket)
}

#[test]
fn uploads_are_found_by_their_object_by_a_prefix_and_by_the_bucket() {
    for scheme in [Scheme::S3, Scheme::Google] {
        let (store, bucket) = store(scheme);
        for key in ["app/1.bak", "app/10.bak", "app/1.bak/x", "other"] {
            left(&store, key);
        }
        assert_eq!(
            keys(&found(&store, &bucket, "/app/1.bak")),
            ["app/1.bak", "app/1.bak/x"]
        );
        assert_eq!(found(&store, &bucket, "/app").len(), 3);
        assert_eq!(found(&store, &bucket, "").len(), 4);
        assert_eq!(found(&store, &bucket, "/none").len(), 0);
        let one = &found(&store, &bucket, "/other")[0];
        assert_eq!((one.parts, one.bytes, one.idle_s), (1, 4, Some(0)));
    }
}

/// Goal: an upload is shown, protected and aborted whatever characters its key has, also those of other programs that no address
/// of ours has.
#[test]
fn uploads_of_any_key_are_shown_protected_and_aborted() {
    const LABEL: &str = "20270131T020000Z-full-1a2b3c4d";
    for scheme in [Scheme::S3, Scheme::Google] {
        let (store, bucket) = store(scheme);
        let folder = format!("t %41+?#/b\u{fc}ro/{LABEL}");
        let mut odd = [
            "t %41+?#/a b",
            "t %41+?#/100%",
            "t %41+?#/%2F",
            "t %41+?#/a&b=c",
            "t %41+?#/b\u{fc}ro/x#y",
            "t %41+?#//two",
            "t %41+?#/slash/",
            "t %41+?#/a\tb",
        ]
        .map(str::to_owned)
        .to_vec();
        odd.sort();
        for key in &odd {
            store.leave_upload(key, b"part");
        }
        store.leave_upload("t %41+?#2", b"part");
        store.leave_upload("/t %41+?#/x", b"part");
        store.leave_upload(&format!("{folder}/family-1.bak"), b"part");
        store.leave_upload("t %41+?#/../dots", b"part");
        store.pass(2 * DAY_S);
        store.put(
            &format!("{folder}/.longshore-lease-backup.b0b0b0b0.1.1"),
            b"host far process 1\n",
        );
        let at = address(&store, &bucket, "/t %41+?#");
        let disk = SimDisk::new(1);
        let shown = left_uploads(&at, &disk, DAY_S).unwrap();
        let free: Vec<_> = shown.iter().filter(|u| u.protected_by.is_none()).collect();
        let free_keys: Vec<_> = keys(&shown)
            .into_iter()
            .zip(&shown)
            .filter(|(_, upload)| upload.protected_by.is_none())
            .map(|(key, _)| key)
            .collect();
        assert_eq!(free_keys, odd);
        let held: Vec<_> = shown.iter().filter(|u| u.protected_by.is_some()).collect();
        assert_eq!(held.len(), 2, "{held:?}");
        let why = |n: usize| held[n].protected_by.as_deref().unwrap();
        assert!(why(0).contains(". or .."), "{held:?}");
        assert!(why(1).contains("host far"), "{held:?}");
        for upload in free {
            assert_eq!((upload.parts, upload.bytes), (1, 4), "{upload:?}");
            assert_eq!(abort_left_upload(&at, &disk, upload, DAY_S).unwrap(), None);
        }
        let left = store.uploads().len();
        assert_eq!(left, 4, "{:?}", store.uploads());
        assert_eq!(left_uploads(&at, &disk, DAY_S).unwrap().len(), 2);
        assert_eq!(found(&store, &bucket, "").len(), 4);
        assert_eq!(found(&store, &bucket, "/t %41+?#/b\u{fc}ro").len(), 1);
    }
}

/// Goal: the leases next to a backup's stripes are listed once for all of them.
#[test]
fn the_leases_of_a_backup_are_listed_once() {
    let (store, bucket) = store(Scheme::S3);
    let folder = "t/db/20270131T020000Z-full-1a2b3c4d";
    for n in 1..=3 {
        left(&store, &format!("{folder}/family-{n}.bak"));
    }
    store.pass(30 * DAY_S);
    let before = store.asked().len();
    assert_eq!(found(&store, &bucket, "/t").len(), 3);
    let lists = |since: usize| {
        let asked = store.asked();
        let lists = asked[since..].iter();
        lists.filter(|a| a.query.contains("list-type")).count()
    };
    assert_eq!(lists(before), 1);
    let shown = found(&store, &bucket, "/t").remove(0);
    let before = store.asked().len();
    let at = address(&store, &bucket, "/t");
    let kept = abort_left_upload(&at, &SimDisk::new(1), &shown, DAY_S).unwrap();
    assert!(kept.is_some());
    assert_eq!(lists(before), 1);
}

#[test]
fn only_one_without_a_part_for_so_long_is_aborted() {
    let (store, bucket) = store(Scheme::S3);
    left(&store, "app/1.bak");
    store.pass(DAY_S - 1);
    let young = found(&store, &bucket, "/app").remove(0);
    assert!(young.protected_by.is_some(), "{young:?}");
    let at = address(&store, &bucket, "/app");
    let disk = SimDisk::new(1);
    assert!(
        abort_left_upload(&at, &disk, &young, DAY_S)
            .unwrap()
            .is_some()
    );
    store.pass(1);
    let old = found(&store, &bucket, "/app").remove(0);
    assert_eq!(old.protected_by, None);
    assert_eq!(store.uploads().len(), 1);
    assert_eq!(abort_left_upload(&at, &disk, &old, DAY_S).unwrap(), None);
    assert_eq!(store.uploads(), []);
    // It has ended meanwhile.
    assert_eq!(abort_left_upload(&at, &disk, &old, DAY_S).unwrap(), None);
}

#[test]
fn one_that_got_a_part_since_it_was_shown_is_not_aborted() {
    let (store, bucket) = store(Scheme::S3);
    let key = Key::from("app/1.bak");
    let mut upload = store
        .bucket()
        .unwrap()
        .begin(&key, "x".to_owned(), &NO)
        .unwrap();
    store.pass(2 * DAY_S);
    let shown = found(&store, &bucket, "/app").remove(0);
    assert_eq!(shown.protected_by, None);
    upload
        .part(0, Bytes::from_static(b"p"))
        .unwrap()
        .wait(&NO)
        .unwrap();
    let at = address(&store, &bucket, "/app");
    let why = abort_left_upload(&at, &SimDisk::new(1), &shown, DAY_S).unwrap();
    assert!(why.unwrap().contains("since it was looked at"));
    assert_eq!(store.uploads().len(), 1);
    upload.leave();
}

#[test]
fn a_live_lease_next_to_a_stripe_protects_its_upload() {
    let (store, bucket) = store(Scheme::S3);
    let folder = "t/db/20270131T020000Z-full-1a2b3c4d";
    left(&store, &format!("{folder}/family-1.bak"));
    store.pass(2 * DAY_S);
    // A writer of another host that is alive by the store's clock.
    store.put(
        &format!("{folder}/.longshore-lease-backup.b0b0b0b0.1.1"),
        b"host far process 1\n",
    );
    let held = found(&store, &bucket, "/t").remove(0);
    assert!(held.protected_by.is_some(), "{held:?}");
    store.pass(16 * 60);
    let dead = found(&store, &bucket, "/t").remove(0);
    assert_eq!(dead.protected_by, None);
}

/// Goal: a target of several buckets has the lease of a backup in the first one alone.
#[test]
fn a_stripe_without_any_lease_next_to_it_is_protected() {
    let (store, bucket) = store(Scheme::S3);
    left(&store, "t/db/20270131T020000Z-full-1a2b3c4d/family-2.bak");
    store.pass(30 * DAY_S);
    let found = found(&store, &bucket, "/t").remove(0);
    let why = found.protected_by.clone().unwrap_or_default();
    assert!(why.contains("longshore expire"), "{found:?}");
    let at = address(&store, &bucket, "/t");
    let kept = abort_left_upload(&at, &SimDisk::new(1), &found, DAY_S).unwrap();
    assert_eq!(kept, found.protected_by);
    assert_eq!(store.uploads().len(), 1);
}

/// Goal: a writer that goes on may send a part again that is as long as the first was.
#[test]
fn one_whose_part_was_replaced_since_it_was_shown_is_not_aborted() {
    let (store, bucket) = store(Scheme::S3);
    left(&store, "app/1.bak");
    store.pass(2 * DAY_S);
    let shown = found(&store, &bucket, "/app").remove(0);
    assert_eq!(shown.protected_by, None);
    let key = Key::from("app/1.bak");
    let opened = store.bucket().unwrap();
    let resumed = opened.begin_or_resume(&key, "x".to_owned(), 4, &NO);
    let mut resumed = resumed.unwrap();
    let part = resumed.part(0, Bytes::from_static(b"else")).unwrap();
    part.wait(&NO).unwrap();
    let at = address(&store, &bucket, "/app");
    let why = abort_left_upload(&at, &SimDisk::new(1), &shown, DAY_S).unwrap();
    assert!(why.unwrap().contains("since it was looked at"));
    assert_eq!(store.uploads().len(), 1);
    resumed.leave();
}

#[test]
fn a_store_that_tells_no_time_and_azure_give_nothing_to_abort() {
    let (store, bucket) = store(Scheme::S3);
    left(&store, "app/1.bak");
    store.habits(longshore_bucket::sim::Habits {
        tells_no_time: true,
        ..longshore_bucket::sim::Habits::default()
    });
    store.pass(9 * DAY_S);
    let found = found(&store, &bucket, "/app");
    assert!(
        found[0].protected_by.as_ref().unwrap().contains("how old"),
        "{found:?}"
    );
    let azure = Address::of("az://container/app").unwrap();
    let refused = left_uploads(&azure, &SimDisk::new(1), DAY_S);
    assert!(refused.is_err());
}
