//! Finds the known word that a misspelt one probably means.

/// The nearest of the known words, if it is near enough to suggest.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let ranked = known.into_iter().map(|k| (distance(word, k), k));
    let (steps, best) = ranked.min()?;
    let far = word.chars().count().max(best.chars().count()) / 3;
    (steps <= far.max(1)).then_some(best)
}

/// The number of letters to insert, remove, replace, or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let exchanged = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = exchanged.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if swapped {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_understood_and_another_word_is_not() {
        let known = ["keep_full", "keep_days", "keep_wal"];
        assert_eq!(nearest("keep_dyas", known), Some("keep_days"));
        assert_eq!(nearest("kep_full", known), Some("keep_full"));
        assert_eq!(nearest("compression", known), None);
        assert_eq!(nearest("", []), None);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("retian", "retain"), 1);
    }
}
