use super::read::beside_by;
use super::*;

#[test]
fn runs_of_a_request_fit_a_buffer_with_their_lines() {
    for (offset, len) in [
        (0, 1),
        (4095, 5),
        (BUFFER_BYTES - 1, 2),
        (5000, 5 * BUFFER_BYTES),
    ] {
        let mut at = offset;
        for run in cut(offset, len) {
            assert_eq!(run.start, at);
            let start = run.start / LINE * LINE;
            assert!(run.end > run.start && run.end.next_multiple_of(LINE) - start <= BUFFER_BYTES);
            at = run.end;
        }
        assert_eq!(at, offset + len);
    }
}

#[test]
fn both_parts_of_a_read_are_done_where_no_thread_can_be_started() {
    // No address space has room for such a stack.
    let impossible = std::thread::Builder::new().stack_size(1 << 60);
    let mut aside = 0;
    let (here, outcome) = beside_by(
        impossible,
        || {
            aside = 1;
            Err(io::ErrorKind::NotFound.into())
        },
        || 2,
    );
    assert_eq!((aside, here), (1, 2));
    assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::NotFound);
}
