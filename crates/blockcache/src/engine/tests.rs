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
