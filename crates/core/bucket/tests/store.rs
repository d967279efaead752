//! What the store's client does when the network and the store do not: over the shipped code, retries included.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longshore_bucket::sim::{Act, Store};
use longshore_bucket::{Address, Bucket, Bytes, Created, Error, Upload};

static NO: AtomicBool = AtomicBool::new(false);

fn key(text: &str) -> longshore_bucket::Key {
    let address = Address::of(&format!("s3://sim/{text}")).unwrap();
    address.parts().unwrap().1
}

fn parts() -> [Vec<u8>; 3] {
    [vec![1; 5000], vec![2; 5000], vec![3; 77]]
}

/// Sends all parts; what is left is to complete it.
fn sent(bucket: &Bucket, name: &str) -> Result<(Upload, Vec<longshore_bucket::UploadPart>), Error> {
    let upload = bucket.begin(&key(name), format!("label of {name}"), &NO)?;
    let tickets: Vec<_> = parts()
        .into_iter()
        .enumerate()
        .map(|(i, part)| upload.part(i, Bytes::from_owner(part)))
        .collect::<Result<_, _>>()?;
    let mut done = Vec::new();
    for ticket in tickets {
        done.push(ticket.wait(&NO)?);
    }
    Ok((upload, done))
}

fn put(bucket: &Bucket, name: &str) -> Result<(), Error> {
    let (upload, done) = sent(bucket, name)?;
    upload.complete(done, 10_077, &NO)
}

#[test]
fn an_object_appears_when_it_is_complete_and_not_before() {
    let store = Store::default();
    let bucket = store.bucket().unwrap();
    let (upload, done) = sent(&bucket, "dir/a").unwrap();
    assert_eq!(bucket.head(&key("dir/a"), &NO).unwrap(), None);
    upload.complete(done, 10_077, &NO).unwrap();
    assert_eq!(store.object("dir/a").unwrap(), parts().concat());
    let head = bucket.head(&key("dir/a"), &NO).unwrap().unwrap();
    assert_eq!(
        (head.len, head.label.as_deref()),
        (10_077, Some("label of dir/a"))
    );
    let mut middle = [0; 200];
    bucket
        .read(&key("dir/a"), 4_900, head.tag.clone(), &mut middle, &NO)
        .unwrap();
    assert_eq!(middle[..], parts().concat()[4_900..5_100]);
    assert_eq!(
        bucket.list(&key("dir"), &NO).unwrap(),
        [(key("dir/a"), 10_077)]
    );
    bucket.remove(&key("dir/a"), &NO).unwrap();
    bucket.remove(&key("dir/a"), &NO).unwrap();
    assert_eq!(store.object("dir/a"), None);
}

#[test]
fn an_upload_that_is_dropped_is_aborted() {
    let store = Store::default();
    let bucket = store.bucket().unwrap();
    drop(sent(&bucket, "a").unwrap());
    assert_eq!(store.uploads(), []);
    let upload = bucket.begin(&key("a"), "l".into(), &NO).unwrap();
    let ticket = upload.part(0, Bytes::from_static(b"x")).unwrap();
    drop(ticket);
    drop(upload);
    assert_eq!(store.uploads(), []);
    assert_eq!(store.object("a"), None);
}

#[test]
fn the_conditional_creation_is_done_once() {
    let store = Store::default();
    let bucket = store.bucket().unwrap();
    let create = |bytes| bucket.create(&key("c"), Bytes::from_static(bytes), &NO);
    assert_eq!(create(b"first").unwrap(), Created::Created);
    assert_eq!(create(b"second").unwrap(), Created::There);
    assert_eq!(store.object("c").unwrap(), b"first");
}

/// Goal: whatever happens once to any one request, the object is whole.
#[test]
fn one_fault_anywhere_changes_nothing() {
    let acts = [
        Act::LoseRequest,
        Act::LoseAnswer,
        Act::Twice,
        Act::Refuse(500, "InternalError"),
        Act::Refuse(503, "SlowDown"),
        Act::Delay(Duration::from_millis(30)),
    ];
    let mut seen = 0;
    for act in acts {
        for nth in 0..5 {
            let store = Store::default();
            let bucket = store.bucket().unwrap();
            let once = act.clone();
            store.script(move |asked| match asked.number == nth {
                true => once.clone(),
                false => Act::Pass,
            });
            let begins_twice = nth == 0 && matches!(act, Act::LoseRequest | Act::LoseAnswer);
            match put(&bucket, "a") {
                Ok(()) => assert_eq!(store.object("a").unwrap(), parts().concat()),
                // The start of an upload is not repeated when it may have been done.
                Err(error) => assert!(begins_twice, "{act:?} {nth}: {error}"),
            }
            seen += store.asked().len();
        }
    }
    assert!(seen > 150, "{seen}");
}

#[test]
fn a_lost_answer_to_the_completion_is_found_out() {
    let store = Store::default();
    let bucket = store.bucket().unwrap();
    store.script(|asked| match asked.is_completion() {
        true => Act::LoseAnswer,
        false => Act::Pass,
    });
    put(&bucket, "a").unwrap();
    assert_eq!(store.object("a").unwrap(), parts().concat());
    // Another object of the same length is not taken for ours.
    let store = Store::default();
    let bucket = store.bucket().unwrap();
    store.put("a", &parts().concat());
    store.script(|asked| match asked.is_completion() {
        true => Act::LoseRequest,
        false => Act::Pass,
    });
    assert!(put(&bucket, "a").is_err());
}

#[test]
fn an_answer_that_breaks_off_is_continued_and_never_short() {
    let store = Store::default();
    let bucket = store.bucket().unwrap();
    store.put("a", &parts().concat());
    let tag = bucket.head(&key("a"), &NO).unwrap().unwrap().tag;
    for after in [0, 1, 3_000] {
        store.script(
            move |asked| match asked.method == "GET" && asked.number % 2 == 1 {
                true => Act::Cut(after),
                false => Act::Pass,
            },
        );
        let mut bytes = vec![0; 10_000];
        bucket
            .read(&key("a"), 10, tag.clone(), &mut bytes, &NO)
            .unwrap();
        assert_eq!(bytes, parts().concat()[10..10_010]);
    }
    store.script(|asked| match asked.method == "GET" {
        true => Act::Cut(0),
        false => Act::Pass,
    });
    let refused = bucket.read(&key("a"), 0, tag, &mut [0; 100], &NO);
    assert!(matches!(refused, Err(Error::Silent { .. })), "{refused:?}");
}

#[test]
fn an_object_that_was_replaced_is_not_read_on() {
    let store = Store::default();
    let bucket = store.bucket().unwrap();
    store.put("a", b"first");
    let tag = bucket.head(&key("a"), &NO).unwrap().unwrap().tag;
    store.put("a", b"other");
    let refused = bucket.read(&key("a"), 0, tag, &mut [0; 5], &NO);
    assert!(matches!(refused, Err(Error::Changed { .. })), "{refused:?}");
}

#[test]
fn an_error_says_what_was_asked_and_what_was_answered() {
    let store = Store::default();
    let bucket = store.bucket().unwrap();
    for (act, words) in [
        (
            Act::Refuse(403, "AccessDenied"),
            &["s3://sim/a", "403", "AccessDenied", "http://sim"][..],
        ),
        (Act::Refuse(400, "ExpiredToken"), &["ExpiredToken"]),
        (
            Act::Refuse(503, "SlowDown"),
            &["503", "SlowDown", "4 requests"],
        ),
        (Act::LoseRequest, &["no usable answer", "lost"]),
        (Act::Refuse(404, "NoSuchBucket"), &["bucket does not exist"]),
    ] {
        let always = act.clone();
        store.script(move |_| always.clone());
        let error = put(&bucket, "a").unwrap_err();
        let text = error.to_string();
        for word in words {
            assert!(text.contains(word), "{act:?}: {text}");
        }
        assert!(!text.contains("secret"), "{text}");
        assert!(error.hint().len() > 20);
    }
}

#[test]
fn a_wait_ends_when_it_is_cancelled() {
    let store = Store::default();
    let bucket = store.bucket().unwrap();
    store.script(|_| Act::Delay(Duration::from_secs(100)));
    let cancel = AtomicBool::new(true);
    let ended = bucket.head(&key("a"), &cancel);
    assert!(matches!(ended, Err(Error::Cancelled { .. })), "{ended:?}");
}
