//! Goal: each form is read as its makers write it, and any other bytes are merely refused.
//! Method: short texts of each form, written here as in real traces; replays of a small trace; and random texts and
//! bytes.
//! Not covered: whole published traces.

use proptest::prelude::*;

use super::*;
use crate::sim::Source;

fn read_text(text: &str) -> Result<Trace, TraceError> {
    read(text.as_bytes(), None)
}

/// The last request of the trace.
fn last(text: &str) -> (Nanos, Op, u64, u64) {
    let trace = read_text(text).unwrap();
    let mut requests = trace
        .records
        .iter()
        .rev()
        .filter_map(|record| match record.ask {
            Ask::Io(Request {
                op,
                offset,
                len_bytes: len,
            }) => Some((record.at, op, offset, len)),
            Ask::Flush | Ask::Discard { .. } => None,
        });
    requests.next().unwrap()
}

/// Two lines each, as in real traces; the second is checked.
#[test]
fn every_form_is_recognised_and_read() {
    let plain =
        "t_us,op,offset,len,host_lat_us\n0,F,0,0,138\n5,W,512,16384,26\n172,R,2286469120,8192,6\n";
    assert_eq!(last(plain), (172_000, Op::Read, 2_286_469_120, 8192));
    let cloud = "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633900,28,4096,8\n";
    assert_eq!(last(cloud), (2_000_000_000, Op::Read, 4096, 4096));
    let tencent = "1538323200,4247200,128,1,0\n1538323201,8,16,0,0\n";
    assert_eq!(last(tencent), (1_000_000_000, Op::Read, 4096, 8192));
    let systor = "Timestamp,Response,IOType,LUN,Offset,Size\n1.5,0.000806,R,0,4096,131072\n2.5,,W,0,8192,512\n";
    assert_eq!(last(systor), (1_000_000_000, Op::Write, 8192, 512));
    let msr = "128166385295514663,hm,0,Write,9056014336,2048,2833\n128166385295514763,hm,0,Read,4096,512,1\n";
    assert_eq!(last(msr).1, Op::Read);
    let at = last(msr).0;
    assert!(at.abs_diff(10_000) < 2_000, "file times are coarse: {at}");
    let disk_sim = "938513000 4 264719034 16 0\n938828000 0 8 32 1\n";
    assert_eq!(last(disk_sim), (315_000, Op::Read, 4096, 16_384));
    let fio = "fio version 3 iolog\n0 /dev/sdb add\n0 /dev/sdb open\n1 /dev/sdb write 8192 4096\n4 /dev/sdb read 4096 512\n";
    assert_eq!(last(fio), (3_000_000, Op::Read, 4096, 512));
    let fio_2 =
        "fio version 2 iolog\nx add\nx open\nx wait 100 0\nx read 4096 512\nx sync 0 0\nx close\n";
    assert_eq!(last(fio_2), (0, Op::Read, 4096, 512));
    let blk = "  0,0    3       11     0.000000000   697  Q   W 223490 + 8 [kjournald]\n\
               \x20 0,0    3       12     0.000001000   697  G   W 223490 + 8 [kjournald]\n\
               \x20 0,0    3       13     0.000002000   697  Q  FN [kjournald]\n\
               \x20 0,0    1        5     0.009507758   697  Q  RA 8 + 16 [x]\n\
               CPU0 (sda):\n Reads Queued:           0,        0KiB\n";
    assert_eq!(last(blk), (9_507_758, Op::Read, 4096, 8192));
}

#[test]
fn flushes_trims_and_zeroes_are_read_where_a_form_has_them() {
    let asks = |text: &str| -> Vec<Ask> {
        let trace = read_text(text).unwrap();
        trace.records.iter().map(|record| record.ask).collect()
    };
    let discard = |offset, len| Ask::Discard { offset, len };
    let plain = "0,F,0,0,9\n1,T,4096,8192,1\n2,Z,0,5000000000,1\n3,T,0,0,1\n";
    let wanted = [Ask::Flush, discard(4096, 8192), discard(0, 5_000_000_000)];
    assert_eq!(asks(plain), wanted);
    assert_eq!(read_text(plain).unwrap().skipped, 1);
    let fio = "fio version 2 iolog\nx sync 0 0\nx datasync\nx trim 512 1024\n";
    assert_eq!(asks(fio), [Ask::Flush, Ask::Flush, discard(512, 1024)]);
    let cloud = "version,time,op,size,lbn\n1,5,35,0,0\n1,6,91,0,0\n1,7,a0,0,0\n";
    assert_eq!(asks(cloud), [Ask::Flush, Ask::Flush]);
    let blk = "8,0 3 13 0.000002000 697 Q FN [kjournald]\n\
               8,0 3 14 0.000003000 697 Q D 8 + 16 [fstrim]\n\
               8,0 3 15 0.000004000 697 Q WS 8 + 16 [x]\n";
    let at = volume_of(8);
    let write = Ask::Io(Request {
        op: Op::Write,
        offset: at + 4096,
        len_bytes: 8192,
    });
    assert_eq!(asks(blk), [Ask::Flush, discard(at + 4096, 8192), write]);
}

/// Where blkparse's device `major,0` begins.
fn volume_of(major: u64) -> u64 {
    major * 4096 * (1 << 44)
}

#[test]
fn numbers_are_read_only_when_asked_for() {
    let bytes = [7u32, 9].map(u32::to_le_bytes).concat();
    let trace = read(&bytes[..], Some(TraceFormat::Numbers)).unwrap();
    let op = Op::Read;
    let (offset, len) = (9 * 4096, 4096);
    assert_eq!(
        trace.records[1].ask,
        Ask::Io(Request {
            op,
            offset,
            len_bytes: len
        })
    );
    assert!(matches!(
        read(&bytes[..], None),
        Err(TraceError::UnknownForm { .. })
    ));
}

#[test]
fn an_invalid_record_is_refused_with_its_line() {
    let error = read_text("0,R,0,4096,1\n1,R,0,x,1\n").unwrap_err();
    assert!(error.to_string().contains("line 2"), "{error}");
    for text in ["", "\n \n", "t_us,op,offset,len,host_lat_us\n"] {
        assert!(
            matches!(read_text(text), Err(TraceError::Empty)),
            "{text:?}"
        );
    }
    for text in [
        "hello",
        "0,R,18446744073709551615,4096,1",
        "0,R,0,99999999999,1",
        "nan,R,0,4096,1",
        "-1,R,0,4096,1",
        "inf,R,0,4096,1",
    ] {
        assert!(
            matches!(read_text(text), Err(TraceError::UnknownForm { .. })),
            "{text:?}"
        );
    }
    let long = format!("0,R,0,4096,1\n{}\n", "9".repeat(100_000));
    assert!(matches!(
        read_text(&long),
        Err(TraceError::NoRecord { number: 2, .. })
    ));
}

#[test]
fn requests_come_in_the_order_of_their_times_with_the_hosts_depth() {
    let trace = read_text("9,R,0,512,5\n0,R,512,512,10\n5,W,1024,512,5\n20,R,0,512,1\n").unwrap();
    let depths: Vec<_> = trace.records.iter().map(|r| (r.at, r.depth)).collect();
    let expected = [(0, Some(0)), (5, Some(1)), (9, Some(2)), (20, Some(0))];
    assert_eq!(depths, expected.map(|(us, depth)| (us * 1000, depth)));
}

#[test]
fn a_replay_keeps_the_contract_of_all_sources_of_requests() {
    let text = "0,R,0,512,10\n5,R,512,512,10\n30,W,1024,512,1\n30,R,4096,512,1\n";
    let trace = read_text(text).unwrap();
    for pace in [Pace::Times(2.0), Pace::Depth(1), Pace::Depth(3)] {
        for took in [1, 4_000, 1_000_000] {
            let mut replay = Replay::new(&trace, pace);
            let given = crate::sim::contract::keeps_its_contract(&mut replay, took, 9);
            let asked = given.iter().map(|(_, ask)| *ask);
            assert!(asked.eq(trace.records.iter().map(|record| record.ask)));
        }
    }
}

#[test]
fn a_replay_keeps_times_or_depth() {
    let trace = read_text("0,R,0,512,10\n5,R,512,512,10\n30,R,1024,512,1\n").unwrap();
    let mut open = Replay::new(&trace, Pace::Times(2.0));
    assert!(open.take(0).is_some() && open.take(0).is_none());
    assert_eq!(open.due(), Some(2_500));
    let mut closed = Replay::new(&trace, Pace::Depth(1));
    assert!(
        closed.take(0).is_some() && closed.take(0).is_some(),
        "two overlapped"
    );
    assert!(closed.take(9).is_none(), "the third was alone");
    closed.ended(0, 50);
    assert_eq!(closed.due(), None);
    closed.ended(0, 60);
    assert_eq!(closed.due(), Some(60));
}

/// Lines that almost look like a trace's.
fn line() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        any::<u64>().prop_map(|n| n.to_string()),
        (0..5000u64).prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| n.to_string()),
        "[RWFTZQ0-9a-f+,. ]{0,6}",
        Just(String::new()),
    ];
    let separator = prop_oneof![Just(","), Just(" ")];
    (proptest::collection::vec(field, 0..9), separator).prop_map(|(f, s)| f.join(s))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(
        lines in proptest::collection::vec(line(), 0..20),
        form in proptest::option::of(0..TraceFormat::ALL.len()),
        noise in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = lines.join("\n").into_bytes();
        bytes.extend(noise);
        check(&bytes, form.map(|at| TraceFormat::ALL[at]));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        check(&bytes, None);
    }
}

/// A trace that was read keeps the promises of its types.
fn check(bytes: &[u8], form: Option<TraceFormat>) {
    let Ok(trace) = read(bytes, form) else { return };
    assert!(!trace.records.is_empty() && trace.records.len() <= bytes.len());
    assert!(trace.records.is_sorted_by_key(|record| record.at));
    for record in &trace.records {
        let (offset, len) = match record.ask {
            Ask::Io(Request {
                offset,
                len_bytes: len,
                ..
            })
            | Ask::Discard { offset, len } => (offset, len),
            Ask::Flush => continue,
        };
        assert!(len > 0 && offset.checked_add(len).is_some());
    }
}
