//! Goal: the store's client keeps its promises when the network and the store do not.
//! Method: the shipped code, retries included, over a simulated store that loses, repeats, cuts and refuses by a
//! script. Each test runs over a store of S3's protocol, one of Azure's and one of Google's.
//! Not covered: TLS, proxies and signatures, of which the simulated store checks nothing.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longshore_bucket::sim::{Act, Store};
use longshore_bucket::{
    Abilities, Address, Bucket, Bytes, Created, Error, Scheme, Standing, Upload,
};

static NO: AtomicBool = AtomicBool::new(false);

longshore_bucket::over_each_store! {
    an_object_appears_when_it_is_complete_and_not_before
    an_upload_that_is_dropped_is_aborted
    a_part_outlives_its_ticket_until_the_abort
    the_conditional_creation_is_done_once
    one_fault_anywhere_changes_nothing
    a_lost_answer_to_the_completion_is_found_out
    an_answer_that_breaks_off_is_continued_and_never_short
    an_object_that_was_replaced_is_not_read_on
    an_error_says_what_was_asked_and_what_was_answered
    a_wait_ends_when_it_is_cancelled
    a_completion_replaces_only_what_was_found_at_the_beginning
    a_completion_that_was_done_and_is_refused_when_repeated_counts
    an_error_in_the_body_of_a_200_counts_and_keeps_its_code
    a_store_that_says_completed_and_kept_nothing_is_found_out
    a_look_at_an_object_names_the_code_that_a_head_has_no_room_for
    a_store_that_is_away_is_waited_for_by_time_and_not_by_number
    an_abort_waits_for_the_parts_that_are_under_way
    an_object_of_another_length_is_not_the_one_that_was_sent
    an_upload_that_could_not_be_aborted_is_named
    a_completion_that_is_interrupted_does_not_wait_for_ever
    small_objects_are_written_listed_and_removed
    nothing_but_a_listing_is_taken_for_an_empty_bucket
    a_removal_is_repeated_until_it_is_answered
}

fn key(text: &str) -> longshore_bucket::Key {
    let address = Address::of(&format!("s3://sim/{text}")).unwrap();
    address.parts().unwrap().2
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
    upload.complete(done, 10_077, None, &NO).map(drop)
}

fn an_object_appears_when_it_is_complete_and_not_before(scheme: Scheme) {
    let store = Store::speaking(scheme);
    let bucket = store.bucket().unwrap();
    let (upload, done) = sent(&bucket, "dir/a").unwrap();
    assert_eq!(bucket.head(&key("dir/a"), &NO).unwrap(), None);
    upload.complete(done, 10_077, None, &NO).unwrap();
    assert_eq!(store.object("dir/a").unwrap(), parts().concat());
    let head = bucket.head(&key("dir/a"), &NO).unwrap().unwrap();
    assert_eq!(
        (head.len_bytes, head.label.as_deref()),
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

fn an_upload_that_is_dropped_is_aborted(scheme: Scheme) {
    let store = Store::speaking(scheme);
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

fn the_conditional_creation_is_done_once(scheme: Scheme) {
    let store = Store::speaking(scheme);
    let bucket = store.bucket().unwrap();
    let create = |bytes| bucket.create(&key("c"), Bytes::from_static(bytes), &NO);
    assert_eq!(create(b"first").unwrap(), Created::Created);
    assert_eq!(create(b"second").unwrap(), Created::There);
    assert_eq!(store.object("c").unwrap(), b"first");
}

/// Goal: whatever happens once to any one request, the object is whole.
fn one_fault_anywhere_changes_nothing(scheme: Scheme) {
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
            let store = Store::speaking(scheme);
            let bucket = store.bucket().unwrap();
            let once = act.clone();
            store.script(move |asked| match asked.number == nth {
                true => once.clone(),
                false => Act::Pass,
            });
            // Azure has no request that begins an upload.
            let begins_twice = scheme != Scheme::Azure
                && nth == 0
                && matches!(act, Act::LoseRequest | Act::LoseAnswer);
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

fn a_lost_answer_to_the_completion_is_found_out(scheme: Scheme) {
    let store = Store::speaking(scheme);
    let bucket = store.bucket().unwrap();
    store.script(|asked| match asked.is_completion() {
        true => Act::LoseAnswer,
        false => Act::Pass,
    });
    put(&bucket, "a").unwrap();
    assert_eq!(store.object("a").unwrap(), parts().concat());
    // Another object of the same length is not taken for ours.
    let store = Store::speaking(scheme);
    let bucket = store.bucket().unwrap();
    store.put("a", &parts().concat());
    store.script(|asked| match asked.is_completion() {
        true => Act::LoseRequest,
        false => Act::Pass,
    });
    assert!(put(&bucket, "a").is_err());
}

fn an_answer_that_breaks_off_is_continued_and_never_short(scheme: Scheme) {
    let store = Store::speaking(scheme);
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

fn an_object_that_was_replaced_is_not_read_on(scheme: Scheme) {
    let store = Store::speaking(scheme);
    let bucket = store.bucket().unwrap();
    store.put("a", b"first");
    let tag = bucket.head(&key("a"), &NO).unwrap().unwrap().tag;
    store.put("a", b"other");
    let refused = bucket.read(&key("a"), 0, tag, &mut [0; 5], &NO);
    assert!(matches!(refused, Err(Error::Changed { .. })), "{refused:?}");
}

fn an_error_says_what_was_asked_and_what_was_answered(scheme: Scheme) {
    let store = Store::speaking(scheme);
    let bucket = store.bucket().unwrap();
    let address = format!("{scheme}sim/a");
    let no_bucket = match scheme {
        Scheme::Azure => "ContainerNotFound",
        Scheme::S3 | Scheme::Google => "NoSuchBucket",
    };
    for (act, words) in [
        (
            Act::Refuse(403, "AccessDenied"),
            &[address.as_str(), "403", "AccessDenied", "http://sim"][..],
        ),
        (Act::Refuse(400, "ExpiredToken"), &["ExpiredToken"]),
        (
            Act::Refuse(403, "RequestTimeTooSkewed"),
            &["RequestTimeTooSkewed"],
        ),
        (
            Act::Refuse(503, "SlowDown"),
            &["503", "SlowDown", "4 requests"],
        ),
        (Act::LoseRequest, &["no usable answer", "lost"]),
        (Act::Refuse(404, no_bucket), &["bucket does not exist"]),
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
        let is_of_clock = error.hint().starts_with("set this machine's clock");
        assert_eq!(
            is_of_clock,
            text.contains("RequestTimeTooSkewed"),
            "{act:?}"
        );
    }
}

fn a_wait_ends_when_it_is_cancelled(scheme: Scheme) {
    let store = Store::speaking(scheme);
    let bucket = store.bucket().unwrap();
    store.script(|_| Act::Delay(Duration::from_secs(100)));
    let cancel = AtomicBool::new(true);
    let ended = bucket.head(&key("a"), &cancel);
    assert!(matches!(ended, Err(Error::Cancelled { .. })), "{ended:?}");
}

/// A writer that completes a name which is another's by now is refused, replaces nothing and leaves nothing.
fn a_completion_replaces_only_what_was_found_at_the_beginning(scheme: Scheme) {
    for (was_there, is_early) in [(false, false), (false, true), (true, false), (true, true)] {
        let store = Store::speaking(scheme);
        let bucket = store.bucket().unwrap();
        if was_there {
            store.put("a", b"old");
        }
        let found = bucket.head(&key("a"), &NO).unwrap();
        let (upload, done) = sent(&bucket, "a").unwrap();
        let trace = upload.trace();
        // Before the completion is asked for, or when it is on its way.
        match is_early {
            true => store.put("a", b"other"),
            false => store.script(|asked| match asked.is_completion() {
                true => Act::Overtake(b"other"),
                false => Act::Pass,
            }),
        }
        let refused = upload.complete(done, 10_077, found.as_ref(), &NO);
        let Err(Error::Overtaken { now, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert!(now.contains("5 bytes"), "{now}");
        assert_eq!(store.object("a").unwrap(), b"other");
        assert_eq!(store.uploads(), []);
        assert_eq!(trace.end().standing, Standing::No);
        // Nobody else came: it is replaced, or appears.
        store.heal();
        let found = bucket.head(&key("a"), &NO).unwrap();
        let (upload, done) = sent(&bucket, "a").unwrap();
        let made = upload.complete(done, 10_077, found.as_ref(), &NO).unwrap();
        made.look(&NO).unwrap();
        assert_eq!(store.object("a").unwrap(), parts().concat());
    }
}

/// The repeated completion meets our own object, or an upload that is gone.
fn a_completion_that_was_done_and_is_refused_when_repeated_counts(scheme: Scheme) {
    for again in [
        Act::Pass,
        Act::Refuse(412, "PreconditionFailed"),
        Act::Refuse(409, "ConditionalRequestConflict"),
        Act::Hide("PreconditionFailed"),
    ] {
        let store = Store::speaking(scheme);
        let bucket = store.bucket().unwrap();
        let (mut tries, then) = (0, again.clone());
        store.script(move |asked| {
            tries += usize::from(asked.is_completion());
            match (asked.is_completion(), tries) {
                (true, 1) => Act::LoseAnswer,
                (true, _) => then.clone(),
                _ => Act::Pass,
            }
        });
        put(&bucket, "a").unwrap_or_else(|e| panic!("{again:?}: {e}"));
        assert_eq!(store.object("a").unwrap(), parts().concat());
    }
}

fn an_error_in_the_body_of_a_200_counts_and_keeps_its_code(scheme: Scheme) {
    let hidden = |code, times| {
        let store = Store::speaking(scheme);
        let bucket = store.bucket().unwrap();
        let mut left = times;
        store.script(move |asked| match asked.is_completion() && left > 0 {
            true => {
                left -= 1;
                Act::Hide(code)
            }
            false => Act::Pass,
        });
        (put(&bucket, "a"), store)
    };
    for code in ["InternalError", "SlowDown"] {
        let (made, store) = hidden(code, 1);
        made.unwrap();
        assert!(store.object("a").is_some());
    }
    for code in [
        "InternalError",
        "AccessDenied",
        "ConditionalRequestConflict",
        "Unheard",
    ] {
        let (made, store) = hidden(code, usize::MAX);
        let error = made.unwrap_err().to_string();
        assert!(error.contains(code), "{error}");
        assert_eq!((store.object("a"), store.uploads().len()), (None, 0));
    }
    let (made, _) = hidden("PreconditionFailed", usize::MAX);
    assert!(matches!(made, Err(Error::Overtaken { .. })), "{made:?}");
}

fn a_store_that_says_completed_and_kept_nothing_is_found_out(scheme: Scheme) {
    let store = Store::speaking(scheme);
    let bucket = store.bucket().unwrap();
    store.script(|asked| match asked.is_completion() {
        true => Act::Lie,
        false => Act::Pass,
    });
    let complete = || {
        let (upload, done) = sent(&bucket, "a").unwrap();
        let trace = upload.trace();
        (upload.complete(done, 10_077, None, &NO).unwrap(), trace)
    };
    let (made, trace) = complete();
    assert_eq!(trace.end().standing, Standing::Yes);
    let looked = made.look(&NO);
    assert!(matches!(looked, Err(Error::NotKept { .. })), "{looked:?}");
    assert_eq!(trace.end().standing, Standing::No);
    let (made, trace) = complete();
    // Of the same length.
    store.put("a", &parts().concat());
    let looked = made.look(&NO);
    assert!(matches!(looked, Err(Error::Overtaken { .. })), "{looked:?}");
    assert_eq!(trace.end().standing, Standing::Replaced);
}

fn a_look_at_an_object_names_the_code_that_a_head_has_no_room_for(scheme: Scheme) {
    let store = Store::speaking(scheme);
    let bucket = store.bucket().unwrap();
    for (status, code) in [(400, "ExpiredToken"), (403, "InvalidAccessKeyId")] {
        store.script(move |_| Act::Refuse(status, code));
        let error = bucket.head(&key("a"), &NO).unwrap_err();
        assert!(error.to_string().contains(code), "{error}");
        let variable = match scheme {
            Scheme::S3 => "AWS_",
            Scheme::Azure => "AZURE_",
            Scheme::Google => "GOOGLE_",
        };
        let hint = error.hint();
        assert!(
            hint.contains("credentials") || hint.contains(variable),
            "{hint}"
        );
    }
}

fn a_store_that_is_away_is_waited_for_by_time_and_not_by_number(scheme: Scheme) {
    let store = Store::speaking(scheme);
    let bucket = store.patient_bucket(Duration::from_secs(60)).unwrap();
    for away in [
        Act::Refuse(503, "SlowDown"),
        Act::Refuse(429, "TooMany"),
        Act::LoseRequest,
    ] {
        // Each request is refused so often before it is taken.
        let mut seen = std::collections::HashMap::new();
        store.script(move |asked| {
            let times = seen
                .entry((asked.method.clone(), asked.query.clone()))
                .or_insert(0);
            *times += 1;
            // Google's client does not repeat the beginning of an upload that may have been done.
            let is_begun = away == Act::LoseRequest && asked.query == "uploads=";
            match *times <= 25 && !asked.is_abort() && !is_begun {
                true => away.clone(),
                false => Act::Pass,
            }
        });
        put(&bucket, "a").unwrap();
        store.heal();
        bucket.remove(&key("a"), &NO).unwrap();
    }
    let bucket = store.patient_bucket(Duration::from_secs(2)).unwrap();
    store.script(|_| Act::Refuse(503, "SlowDown"));
    let before = store.asked().len();
    let error = bucket.head(&key("a"), &NO).unwrap_err();
    assert!(error.to_string().contains("503"), "{error}");
    assert!(store.asked().len() - before > 12);
}

/// Goal: no part arrives after its upload was aborted: a store may keep it, and charge for it.
fn an_abort_waits_for_the_parts_that_are_under_way(scheme: Scheme) {
    // There is nothing to abort in Azure.
    if scheme == Scheme::Azure {
        return;
    }
    let store = Store::speaking(scheme);
    let bucket = store.bucket().unwrap();
    let upload = bucket.begin(&key("a"), "l".into(), &NO).unwrap();
    store.script(|asked| match asked.is_part() {
        true => Act::Delay(Duration::from_millis(100)),
        false => Act::Pass,
    });
    let ticket = upload.part(0, Bytes::from_static(b"x")).unwrap();
    drop(upload);
    // The store took it, so its upload was there.
    ticket.wait(&NO).unwrap();
    assert_eq!(store.uploads(), []);
}

/// Goal: an interrupt drops the ticket, and a store that has all of a part may still be putting it away. It is waited
/// for, and cut only if it does not answer.
/// Oracle: the times at which the store was asked.
fn a_part_outlives_its_ticket_until_the_abort(scheme: Scheme) {
    // There is nothing to abort in Azure.
    if scheme == Scheme::Azure {
        return;
    }
    let store = Store::speaking(scheme);
    let bucket = store.bucket().unwrap();
    // The time from the question for the part to that for the abort.
    let abort_after = |delay: Duration| {
        let times = Arc::new(Mutex::new(Vec::new()));
        let noted = times.clone();
        store.script(move |asked| {
            if asked.is_part() || asked.is_abort() {
                noted.lock().unwrap().push(Instant::now());
            }
            match asked.is_part() {
                true => Act::Delay(delay),
                false => Act::Pass,
            }
        });
        let upload = bucket.begin(&key("a"), "l".into(), &NO).unwrap();
        let ticket = upload.part(0, Bytes::from_static(b"x")).unwrap();
        while times.lock().unwrap().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(ticket);
        drop(upload);
        assert_eq!(store.uploads(), []);
        let times = times.lock().unwrap();
        assert_eq!(times.len(), 2);
        times[1] - times[0]
    };
    let slow = Duration::from_millis(300);
    assert!(abort_after(slow) >= slow);
    let never = Duration::from_secs(10_000);
    assert!(abort_after(never) >= Duration::from_secs(2));
    // Parts of the next uploads were given that time by the first one.
    assert!(abort_after(never) < Duration::from_secs(2));
    // A store that answers again is waited for again.
    abort_after(Duration::ZERO);
    assert!(abort_after(slow) >= slow);
}

/// Method: the store has one byte less than was sent, as the writer counts.
fn an_object_of_another_length_is_not_the_one_that_was_sent(scheme: Scheme) {
    let store = Store::speaking(scheme);
    let bucket = store.bucket().unwrap();
    let (upload, done) = sent(&bucket, "a").unwrap();
    let made = upload.complete(done, 10_078, None, &NO).unwrap();
    let error = made.look(&NO).unwrap_err();
    assert!(matches!(error, Error::Overtaken { .. }), "{error}");
}

fn an_upload_that_could_not_be_aborted_is_named(scheme: Scheme) {
    // There is nothing to abort in Azure.
    if scheme == Scheme::Azure {
        return;
    }
    let store = Store::speaking(scheme);
    let bucket = store.bucket().unwrap();
    store.script(|asked| match asked.is_abort() {
        true => Act::Refuse(403, "AccessDenied"),
        false => Act::Pass,
    });
    let (upload, _) = sent(&bucket, "a").unwrap();
    let trace = upload.trace();
    drop(upload);
    assert_eq!(trace.end().unaborted.as_deref(), Some("u1"));
    // A lost one is asked for again.
    let mut lost = 0;
    store.script(move |asked| {
        lost += usize::from(asked.is_abort());
        match asked.is_abort() && lost < 4 {
            true => Act::LoseRequest,
            false => Act::Pass,
        }
    });
    let before = store.uploads().len();
    let (upload, _) = sent(&bucket, "b").unwrap();
    let trace = upload.trace();
    drop(upload);
    assert_eq!(trace.end().unaborted, None);
    assert_eq!(store.uploads().len(), before);
}

/// An interrupted completion ends even where a store is silent, and says what it knows.
fn a_completion_that_is_interrupted_does_not_wait_for_ever(scheme: Scheme) {
    let silence = || Act::Delay(Duration::from_secs(10_000));
    // The completion only, or everything after it too.
    for (is_all, expected) in [(false, Standing::No), (true, Standing::Unknown)] {
        let store = Store::speaking(scheme);
        let bucket = store.bucket().unwrap();
        let (upload, done) = sent(&bucket, "a").unwrap();
        let trace = upload.trace();
        let mut begun = false;
        store.script(move |asked| {
            begun |= asked.is_completion();
            match asked.is_completion() || (begun && is_all) {
                true => silence(),
                false => Act::Pass,
            }
        });
        let cancel = AtomicBool::new(true);
        let ended = upload.complete(done, 10_077, None, &cancel);
        assert!(matches!(ended, Err(Error::Cancelled { .. })), "{ended:?}");
        let end = trace.end();
        // Azure may still do it.
        let is_azure = scheme == Scheme::Azure;
        let expected = if is_azure {
            Standing::Unknown
        } else {
            expected
        };
        assert_eq!(end.standing, expected);
        assert_eq!(end.unaborted.is_some(), is_all && !is_azure);
        assert_eq!(store.uploads().len(), usize::from(is_all && !is_azure));
    }
    // A store that is slow and not silent completes.
    let store = Store::speaking(scheme);
    let bucket = store.bucket().unwrap();
    let (upload, done) = sent(&bucket, "a").unwrap();
    let cancel = AtomicBool::new(true);
    upload.complete(done, 10_077, None, &cancel).unwrap();
    assert!(store.object("a").is_some());
}

fn nothing_but_a_listing_is_taken_for_an_empty_bucket(scheme: Scheme) {
    let listed = |act: Act, times| {
        let store = Store::speaking(scheme);
        let bucket = store.bucket().unwrap();
        bucket
            .put(&key("p/a"), Bytes::from_static(b"1234"), &NO)
            .unwrap();
        let mut left = times;
        store.script(move |asked| {
            let is_list = asked.query.contains("list");
            match is_list && left > 0 {
                true => {
                    left -= 1;
                    act.clone()
                }
                false => Act::Pass,
            }
        });
        let below = bucket
            .below(&key("p"), &NO)
            .map(|found| found.objects.len());
        let level = bucket
            .level(&key("p"), &NO)
            .map(|found| found.objects.len());
        (below, level)
    };
    let (below, level) = listed(Act::Hide("InternalError"), 1);
    assert_eq!((below.unwrap(), level.unwrap()), (1, 1));
    for (act, word) in [
        (Act::Hide("AccessDenied"), "AccessDenied"),
        (Act::Answer("<html>login please</html>"), "login please"),
        (Act::Answer(""), "is none"),
        (Act::Answer("<ListBucketResult>"), ""),
        (Act::Answer("<EnumerationResults>"), ""),
    ] {
        let (below, level) = listed(act.clone(), usize::MAX);
        for found in [below, level] {
            let error = found.unwrap_err().to_string();
            assert!(error.contains(word), "{act:?}: {error}");
        }
    }
}

fn small_objects_are_written_listed_and_removed(scheme: Scheme) {
    let store = Store::speaking(scheme);
    store.habits(longshore_bucket::sim::Habits {
        portion: 2,
        ..Default::default()
    });
    let bucket = store.bucket().unwrap();
    for name in ["p/a", "p/b/1", "p/b/2", "p/c+d", "p/e", "p2/x", "q"] {
        bucket
            .put(&key(name), Bytes::from_static(b"1234"), &NO)
            .unwrap();
    }
    store.pass(90);
    bucket
        .put(&key("p/e"), Bytes::from_static(b"56"), &NO)
        .unwrap();
    let below = bucket.below(&key("p"), &NO).unwrap();
    let names: Vec<_> = below.objects.iter().map(|o| o.name.as_str()).collect();
    assert_eq!(names, ["a", "b/1", "b/2", "c+d", "e"]);
    let level = bucket.level(&key("p"), &NO).unwrap();
    assert_eq!(level.folders, ["b"]);
    let by_name = |name: &str| level.objects.iter().find(|o| o.name == name).unwrap();
    assert_eq!((by_name("a").len_bytes, by_name("e").len_bytes), (4, 2));
    // The store's clock, and no other.
    let second = 1_000_000_000;
    assert_eq!(level.now_ns - by_name("a").modified_ns, 90 * second);
    assert_eq!(level.now_ns, by_name("e").modified_ns);
    let small = |name: &str| bucket.small(&key(name), &NO).unwrap();
    assert_eq!(small("p/e").unwrap(), &b"56"[..]);
    assert_eq!(small("p/none"), None);
    let (head, first) = bucket
        .beginning(&key("p/a"), Some(3), &NO)
        .unwrap()
        .unwrap();
    assert_eq!((head.len_bytes, &first[..]), (4, &b"123"[..]));
    let abilities = bucket.probe(&key("p/probe"), &NO).unwrap();
    let all = Abilities {
        keeps_first: true,
        no_removal: None,
    };
    assert_eq!(abilities, all);
    assert!(!store.keys().contains(&"p/probe".to_owned()));
    assert_eq!(bucket.unfinished(&key("p"), &NO).unwrap().uploads, []);
}

fn a_removal_is_repeated_until_it_is_answered(scheme: Scheme) {
    for act in [
        Act::LoseRequest,
        Act::LoseAnswer,
        Act::Refuse(503, "ServerBusy"),
        Act::Refuse(500, "InternalError"),
    ] {
        let store = Store::speaking(scheme);
        let bucket = store.bucket().unwrap();
        store.put("a & b/c", b"x");
        let mut left = 2;
        let often = act.clone();
        store.script(move |_| match left {
            0 => Act::Pass,
            _ => {
                left -= 1;
                often.clone()
            }
        });
        let removed = bucket.remove(&key("a & b/c"), &NO);
        // The client for S3 does not repeat a removal that may have been done.
        let is_silent = matches!(act, Act::LoseRequest | Act::LoseAnswer);
        match scheme == Scheme::S3 && is_silent {
            true => assert!(matches!(removed, Err(Error::Silent { .. })), "{removed:?}"),
            false => removed.unwrap_or_else(|e| panic!("{act:?}: {e}")),
        }
        store.heal();
        bucket.remove(&key("a & b/c"), &NO).unwrap();
        assert_eq!(store.keys(), [""; 0]);
    }
    let store = Store::speaking(scheme);
    let bucket = store.bucket().unwrap();
    for (status, code) in [(403, "AccessDenied"), (409, "BlobImmutableDueToPolicy")] {
        let before = store.asked().len();
        store.script(move |_| Act::Refuse(status, code));
        let error = bucket.remove(&key("a"), &NO).unwrap_err();
        assert!(error.is_forbidden(), "{error}");
        assert!(error.to_string().contains(code), "{error}");
        assert_eq!(store.asked().len() - before, 1, "{code}");
    }
}

/// Goal: an upload that an older version or another program began, under its own label, becomes this writer's object; where
/// nothing tells whose object is there, the error says that, and not that another writer was faster.
#[test]
fn an_upload_that_was_begun_under_another_label_is_gone_on_with() {
    let whole = parts().concat();
    let resumed = |store: &Store| {
        let bucket = store.bucket().unwrap();
        let at = key("d/100% a+b");
        let mut left = bucket.begin(&at, "older".to_owned(), &NO).unwrap();
        let first = Bytes::from_owner(parts()[0].clone());
        left.part(0, first).unwrap().wait(&NO).unwrap();
        left.leave();
        drop(left);
        let before = store.asked().len();
        let upload = bucket.begin_or_resume(&at, "ours".to_owned(), 5000, &NO);
        let upload = upload.unwrap();
        let sent: Vec<_> = parts()
            .into_iter()
            .enumerate()
            .map(|(i, part)| {
                let part = upload.part(i, Bytes::from_owner(part)).unwrap();
                part.wait(&NO).unwrap()
            })
            .collect();
        let asked = store.asked();
        assert_eq!(asked[before..].iter().filter(|a| a.is_part()).count(), 2);
        (upload, sent)
    };
    for scheme in [Scheme::S3, Scheme::Google] {
        let store = Store::speaking(scheme);
        let (upload, sent) = resumed(&store);
        let made = upload.complete(sent, whole.len() as u64, None, &NO);
        let made = made.unwrap();
        made.look(&NO).unwrap();
        assert_eq!(store.object("d/100% a+b").as_ref(), Some(&whole));
        assert_eq!(store.uploads(), []);
        // Another writer's, of the same length and of another one.
        store.put("d/100% a+b", &vec![9; whole.len()]);
        let looked = made.look(&NO).unwrap_err();
        assert!(matches!(looked, Error::OtherLabel { .. }), "{looked}");
        store.put("d/100% a+b", b"other");
        let looked = made.look(&NO).unwrap_err();
        assert!(matches!(looked, Error::Overtaken { .. }), "{looked}");

        let store = Store::speaking(scheme);
        let (upload, sent) = resumed(&store);
        let trace = upload.trace();
        store.script(|asked| match asked.is_completion() {
            true => Act::LoseAnswer,
            false => Act::Pass,
        });
        let lost = upload.complete(sent, whole.len() as u64, None, &NO);
        let lost = lost.unwrap_err();
        assert!(matches!(lost, Error::OtherLabel { .. }), "{lost}");
        assert!(lost.to_string().contains("another label"), "{lost}");
        assert!(lost.hint().contains("run the command again"));
        assert_eq!(trace.end().standing, Standing::Unknown);
        assert_eq!(store.object("d/100% a+b").as_ref(), Some(&whole));

        // The completion was not done: nothing is there.
        let store = Store::speaking(scheme);
        let (upload, sent) = resumed(&store);
        store.script(|asked| match asked.is_completion() {
            true => Act::Refuse(403, "AccessDenied"),
            false => Act::Pass,
        });
        let refused = upload.complete(sent, whole.len() as u64, None, &NO);
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    }
}

/// Sends three blocks of one byte each, thousand times.
fn blocks(upload: &Upload, byte: u8) -> Vec<longshore_bucket::UploadPart> {
    let part = |index| {
        let part = upload.part(index, Bytes::from(vec![byte; 1000])).unwrap();
        part.wait(&NO).unwrap()
    };
    (0..3).map(part).collect()
}

/// Goal: two writers of one blob never mix their blocks, although Azure keeps the blocks of both under one name. The
/// first to complete it drops the other's, which fails.
#[test]
fn two_writers_of_one_blob_do_not_mix_their_blocks() {
    let store = Store::speaking(Scheme::Azure);
    let (one, other) = (store.of(1).bucket().unwrap(), store.of(2).bucket().unwrap());
    let first = one.begin(&key("a"), "one".into(), &NO).unwrap();
    let second = other.begin(&key("a"), "other".into(), &NO).unwrap();
    let done = (blocks(&first, 1), blocks(&second, 2));
    assert_eq!(store.blocks("a"), 6);
    first.complete(done.0, 3000, None, &NO).unwrap();
    assert_eq!(store.object("a").unwrap(), [1; 3000]);
    let refused = second.complete(done.1, 3000, None, &NO);
    assert!(
        matches!(refused, Err(Error::Overtaken { .. })),
        "{refused:?}"
    );
    assert_eq!(
        (store.object("a").unwrap(), store.writer("a")),
        (vec![1; 3000], Some(1))
    );

    // The blob of the first is gone again: nothing stands there, and the blocks are lacking.
    let second = other.begin(&key("a"), "other".into(), &NO).unwrap();
    let found = other.head(&key("a"), &NO).unwrap();
    let done = blocks(&second, 2);
    let third = one.begin(&key("a"), "one".into(), &NO).unwrap();
    let own = blocks(&third, 3);
    third.complete(own, 3000, found.as_ref(), &NO).unwrap();
    store.lose("a");
    let refused = second.complete(done, 3000, None, &NO);
    assert!(
        matches!(refused, Err(Error::Overtaken { .. })),
        "{refused:?}"
    );
    assert_eq!(store.object("a"), None);
}

/// A part that is sent again replaces the first one, as at the end of a stripe.
#[test]
fn a_block_that_is_sent_again_replaces_the_first_one() {
    let store = Store::speaking(Scheme::Azure);
    let bucket = store.bucket().unwrap();
    let upload = bucket.begin(&key("a"), "l".into(), &NO).unwrap();
    let mut done = blocks(&upload, 1);
    let part = upload.part(2, Bytes::from_static(b"end")).unwrap();
    done[2] = part.wait(&NO).unwrap();
    upload.complete(done, 2003, None, &NO).unwrap();
    assert_eq!(
        store.object("a").unwrap(),
        [&[1; 2000], &b"end"[..]].concat()
    );
    assert_eq!(store.blocks("a"), 0);
}
