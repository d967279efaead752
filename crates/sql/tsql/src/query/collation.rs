//! Comparison of texts: collations by SQL Server's names, and their names in SQLite.
//!
//! Invariants
//! - Trailing blanks never count.
//! - A collation that would treat other texts as equal than ours is refused by name, never replaced by a similar one.
//! - Two sides with different collations are an error, as in SQL Server; without any, the server's counts.
//!
//! Leaves to others: LIKE (`like.rs`), and where a collation comes from in an expression (`translate`).

use std::cmp::Ordering;

use rusqlite::Connection;

use crate::message::{self, Message};

/// The collation of the server and of all databases.
pub(crate) const SERVER: &str = "SQL_Latin1_General_CP1_CI_AS";

/// The families of SQL Server's collations that are distinguished here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Collation {
    /// `…_CI_…`, like the server's: upper and lower case are equal.
    #[default]
    CaseInsensitive,
    /// `…_CS_…`
    CaseSensitive,
    /// `…_BIN`, `…_BIN2`: by code points.
    Binary,
}

impl Collation {
    /// The collation of this name. Errors: 448; 50002 for one that treats other texts as equal.
    pub fn named(name: &str) -> Result<Collation, Message> {
        let upper = name.to_ascii_uppercase();
        if matches!(upper.as_str(), "DATABASE_DEFAULT" | "CATALOG_DEFAULT") {
            return Ok(Collation::default());
        }
        let words: Vec<&str> = upper.split('_').collect();
        let has = |word: &str| words.contains(&word);
        if has("AI") {
            return Err(message::NOT_HERE.with(&[&format!("the collation {name} (accents count)")]));
        }
        match (has("CI"), has("CS"), has("BIN") || has("BIN2")) {
            (true, false, false) => Ok(Collation::CaseInsensitive),
            (false, true, false) => Ok(Collation::CaseSensitive),
            (false, false, true) => Ok(Collation::Binary),
            _ => Err(message::COLLATION_UNKNOWN.with(&[&name])),
        }
    }

    /// The collation of an operation's two sides. Errors: 468.
    pub fn of_both(
        left: Option<Collation>,
        right: Option<Collation>,
        operation: &str,
    ) -> Result<Collation, Message> {
        match (left, right) {
            (Some(a), Some(b)) if a != b => {
                Err(message::COLLATION_CONFLICT.with(&[&a.name(), &b.name(), &operation]))
            }
            (a, b) => Ok(a.or(b).unwrap_or_default()),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Collation::CaseInsensitive => "CI",
            Collation::CaseSensitive => "CS",
            Collation::Binary => "BIN",
        }
    }

    /// The COLLATE clause after an expression in SQLite's SQL.
    pub fn clause(self) -> &'static str {
        match self {
            Collation::CaseInsensitive => " COLLATE TS_CI",
            Collation::CaseSensitive => " COLLATE TS_CS",
            Collation::Binary => " COLLATE TS_BIN",
        }
    }

    pub fn compare(self, a: &str, b: &str) -> Ordering {
        let (a, b) = (a.trim_end_matches(' '), b.trim_end_matches(' '));
        fn lower(text: &str) -> impl Iterator<Item = char> {
            text.chars().flat_map(char::to_lowercase)
        }
        let folded = || lower(a).cmp(lower(b));
        match self {
            Collation::CaseInsensitive => folded(),
            // Lower case comes before upper case if nothing else differs.
            Collation::CaseSensitive => folded().then_with(|| b.cmp(a)),
            Collation::Binary => a.cmp(b),
        }
    }
}

/// Registers them with a connection.
pub fn register(db: &Connection) -> rusqlite::Result<()> {
    for (name, collation) in [
        (c"TS_CI", Collation::CaseInsensitive),
        (c"TS_CS", Collation::CaseSensitive),
        (c"TS_BIN", Collation::Binary),
    ] {
        db.create_collation(name, move |a: &str, b: &str| collation.compare(a, b))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collations_are_known_by_their_names() {
        let of = |name| Collation::named(name).map_err(|m| m.number);
        assert_eq!(of(SERVER), Ok(Collation::CaseInsensitive));
        assert_eq!(of("Latin1_General_CS_AS"), Ok(Collation::CaseSensitive));
        assert_eq!(of("Latin1_General_100_BIN2"), Ok(Collation::Binary));
        assert_eq!(of("database_default"), Ok(Collation::CaseInsensitive));
        assert_eq!(of("Latin1_General_CI_AI"), Err(50002));
        assert_eq!(of("nonsense"), Err(448));
    }

    #[test]
    fn blanks_at_the_end_never_count_and_case_where_it_should() {
        use Ordering::{Equal, Greater, Less};
        let of = |c: Collation, a, b| c.compare(a, b);
        for c in [
            Collation::CaseInsensitive,
            Collation::CaseSensitive,
            Collation::Binary,
        ] {
            assert_eq!(of(c, "a  ", "a"), Equal);
            assert_eq!(of(c, " a", "a"), Less);
        }
        assert_eq!(of(Collation::CaseInsensitive, "ÄB", "äb"), Equal);
        assert_eq!(of(Collation::CaseSensitive, "ab", "aB"), Less);
        assert_eq!(of(Collation::CaseSensitive, "B", "a"), Greater);
        assert_eq!(of(Collation::Binary, "B", "a"), Less);
    }
}
