use std::io;

use super::read::beside_by;
use super::shared::cut;
use crate::geometry::{BUFFER_BYTES, LINE};

#[test]
fn runs_of_a_request_fit_a_buffer_with_their_lines() {
    for (offset, len) in [
        (0, 1),
        (4095, 5),
        (BUFFER_BYTES - 1, 2),
        (5000, 5 * BUFFER_BYTES),
    ] {
        let (mut next, mut filled) = (offset, 0);
        for (at, part) in cut(offset, len) {
            assert_eq!((at, part.start), (next, filled));
            let (start, end) = (at / LINE * LINE, at + part.len() as u64);
            assert!(end > at && end.next_multiple_of(LINE) - start <= BUFFER_BYTES);
            (next, filled) = (end, part.end);
        }
        assert_eq!((next, filled as u64), (offset + len, len));
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
