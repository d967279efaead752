//! Short warnings about many files.

use std::path::{Path, PathBuf};

/// The words for names that are no data, in both sources of files.
pub(crate) const SPECIAL_LEFT_OUT: &str = "sockets, FIFOs or devices were left out";

/// Counts occurrences and remembers the first few names.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    count: u64,
    examples: Vec<PathBuf>,
}

const EXAMPLES_MAX: usize = 5;

impl Tally {
    pub(crate) fn add(&mut self, path: &Path) {
        self.count += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(path.into());
        }
    }

    pub(crate) fn merge(&mut self, other: Tally) {
        self.count += other.count;
        let room = EXAMPLES_MAX - self.examples.len();
        self.examples.extend(other.examples.into_iter().take(room));
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The first name that was added.
    pub(crate) fn first(&self) -> Option<&Path> {
        self.examples.first().map(PathBuf::as_path)
    }

    /// "3 WHAT: a, b, c", or nothing if the count is 0.
    pub(crate) fn warning(&self, what: &str) -> Option<String> {
        if self.count == 0 {
            return None;
        }
        let names: Vec<_> = self
            .examples
            .iter()
            .map(|path| format!("{path:?}"))
            .collect();
        let more = match self.count - names.len() as u64 {
            0 => "",
            _ => ", ...",
        };
        Some(format!("{} {what}: {}{more}", self.count, names.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_counts_all_and_names_the_first_five() {
        let mut tally = Tally::default();
        assert_eq!(tally.warning("odd"), None);
        for i in 0..4 {
            tally.add(Path::new(&format!("a\n{i}")));
        }
        let mut other = Tally::default();
        for i in 0..4 {
            other.add(Path::new(&format!("b{i}")));
        }
        assert_eq!(
            other.warning("odd").as_deref(),
            Some(r#"4 odd: "b0", "b1", "b2", "b3""#)
        );
        tally.merge(other);
        assert_eq!(
            tally.warning("odd").as_deref(),
            Some(r#"8 odd: "a\n0", "a\n1", "a\n2", "a\n3", "b0", ..."#)
        );
    }
}
