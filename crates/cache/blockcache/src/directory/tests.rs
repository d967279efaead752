use super::*;

#[test]
fn runs_are_those_of_the_set_bits() {
    for lines in 0..=Lines::MAX {
        let mut again = 0;
        let mut end = 0;
        for (first, count) in runs(lines) {
            assert!(count > 0 && (end == 0 || first > end));
            again |= crate::geometry::ones(count) << first;
            end = first + count;
        }
        assert_eq!(again, lines);
    }
}
