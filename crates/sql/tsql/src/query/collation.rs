//! Comparison of texts: collations by SQL Server's names, and their names in SQLite.
//!
//! Invariants
//! - Trailing blanks never count.
//! - A collation that would treat other texts as equal than ours is refused by name, never replaced by a similar one.
//! - Where two texts meet, the stronger label wins: COLLATE in the expression, then a column's, then the server's. Two of
//!   the strongest that differ are an error, and two columns that differ leave no collation, as in SQL Server.
//!
//! Leaves to others: LIKE (`like.rs`), and where a collation comes from in an expression (`translate`).

use std::borrow::Cow;
use std::cmp::Ordering;

use rusqlite::Connection;

use crate::message::{self, Message};
use crate::value::Type;

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
        let folded = || weighed(a, b);
        match self {
            Collation::CaseInsensitive => folded(),
            // Lower case comes before upper case if nothing else differs.
            Collation::CaseSensitive => folded().then_with(|| b.cmp(a)),
            Collation::Binary => a.cmp(b),
        }
    }
}

/// The order of two texts without regard to case: punctuation, digits, letters. Accents count where nothing else differs.
fn weighed(a: &str, b: &str) -> Ordering {
    fn lower(text: &str) -> impl Iterator<Item = char> {
        text.chars().flat_map(char::to_lowercase)
    }
    let (mut a, mut b) = (lower(a), lower(b));
    let mut accents = Ordering::Equal;
    loop {
        let (one, other) = match (a.next(), b.next()) {
            (None, None) => return accents,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(one), Some(other)) => (one, other),
        };
        if one != other {
            match weight(one).cmp(&weight(other)) {
                Ordering::Equal => accents = accents.then(one.cmp(&other)),
                differ => return differ,
            }
        }
    }
}

/// The place of a lower-case character in the order: its class, and its letter without accents.
fn weight(c: char) -> (u8, char) {
    let base = match c {
        'à'..='æ' | 'ā' | 'ă' | 'ą' => 'a',
        'ç' | 'ć' | 'č' => 'c',
        'ď' | 'đ' | 'ð' => 'd',
        'è'..='ë' | 'ē' | 'ę' | 'ě' => 'e',
        'ğ' => 'g',
        'ì'..='ï' | 'ī' => 'i',
        'ł' | 'ľ' => 'l',
        'ñ' | 'ń' | 'ň' => 'n',
        'ò'..='ö' | 'ø' | 'ő' | 'œ' => 'o',
        'ř' => 'r',
        'ś' | 'ş' | 'š' | 'ß' => 's',
        'ť' | 'þ' => 't',
        'ù'..='ü' | 'ū' | 'ů' | 'ű' => 'u',
        'ý' | 'ÿ' => 'y',
        'ź' | 'ż' | 'ž' => 'z',
        c => c,
    };
    let class = match c {
        c if c.is_alphabetic() => 2,
        c if c.is_numeric() => 1,
        _ => 0,
    };
    (class, base)
}

/// A collation under its name in SQL Server: two names are two collations, even if they compare alike here.
#[derive(Debug, Clone)]
pub struct NamedCollation {
    name: Cow<'static, str>,
    way: Collation,
}

impl PartialEq for NamedCollation {
    fn eq(&self, other: &NamedCollation) -> bool {
        self.name.eq_ignore_ascii_case(&other.name)
    }
}

impl NamedCollation {
    const SERVER: NamedCollation = NamedCollation {
        name: Cow::Borrowed(SERVER),
        way: Collation::CaseInsensitive,
    };

    /// Of keys in JSON: they are compared by code points.
    pub const JSON_KEY: NamedCollation = NamedCollation {
        name: Cow::Borrowed("Latin1_General_BIN2"),
        way: Collation::Binary,
    };

    /// The collation that COLLATE names. Errors: those of [`Collation::named`].
    pub fn of(name: &str) -> Result<NamedCollation, Message> {
        let way = Collation::named(name)?;
        let is_usual = matches!(
            name.to_ascii_uppercase().as_str(),
            "DATABASE_DEFAULT" | "CATALOG_DEFAULT"
        );
        let name = match is_usual {
            true => Cow::Borrowed(SERVER),
            false => Cow::Owned(name.to_owned()),
        };
        Ok(NamedCollation { name, way })
    }
}

/// The strength with which a text has its collation where it meets another text.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Label {
    /// Of literals, variables and functions without texts: the server's, which gives way to any other.
    #[default]
    Default,
    /// Of a column.
    Implicit(NamedCollation),
    /// Of COLLATE in the expression.
    Explicit(NamedCollation),
    /// Of an operation on two columns whose collations differ: none. With the operation's name.
    Conflict(NamedCollation, NamedCollation, &'static str),
}

impl Label {
    /// Of a column of a view or a table, which have the server's collation.
    pub const COLUMN: Label = Label::Implicit(NamedCollation::SERVER);

    /// The label of what an operation makes of two texts. Errors: 468 for two COLLATE clauses that differ.
    pub fn with(self, other: Label, operation: &'static str) -> Result<Label, Message> {
        Ok(match (self, other) {
            (Label::Explicit(a), Label::Explicit(b)) if a != b => {
                return Err(conflict(&a, &b, operation));
            }
            (own @ Label::Explicit(_), _) | (_, own @ Label::Explicit(_)) => own,
            (none @ Label::Conflict(..), _) | (_, none @ Label::Conflict(..)) => none,
            (Label::Implicit(a), Label::Implicit(b)) if a != b => Label::Conflict(a, b, operation),
            (own @ Label::Implicit(_), _) | (_, own @ Label::Implicit(_)) => own,
            (Label::Default, Label::Default) => Label::Default,
        })
    }

    /// The label of what an operation makes of several texts. Errors: 468.
    pub fn of_all(
        mut all: impl Iterator<Item = Label>,
        operation: &'static str,
    ) -> Result<Label, Message> {
        all.try_fold(Label::Default, |label, other| label.with(other, operation))
    }

    /// How two texts are compared whose label this is. Errors: 468 where there is no collation.
    pub fn resolved(&self, operation: &str) -> Result<Collation, Message> {
        match self {
            Label::Default => Ok(Collation::default()),
            Label::Implicit(named) | Label::Explicit(named) => Ok(named.way),
            Label::Conflict(a, b, _) => Err(conflict(a, b, operation)),
        }
    }

    /// The same label, for a text of an operation. One of one byte a character needs a collation at once: its code page
    /// depends on it. Errors: 457.
    pub fn of_text(self, kind: Type) -> Result<Label, Message> {
        match &self {
            Label::Conflict(a, b, operator) if kind.is_text() && !kind.is_national() => {
                Err(message::COLLATION_OF_VALUE
                    .with(&[&"varchar", &"varchar", &b.name, &a.name, operator]))
            }
            _ => Ok(self),
        }
    }

    /// Nothing, for a column of a result: it has a collation. Errors: 451; `place` counts from 1.
    pub fn as_column(&self, clause: &str, place: usize) -> Result<(), Message> {
        match self {
            Label::Conflict(a, b, operator) => {
                Err(message::COLLATION_OF_COLUMN
                    .with(&[&b.name, &a.name, operator, &clause, &place]))
            }
            _ => Ok(()),
        }
    }

    /// The same where an earlier step has refused what has no collation.
    pub fn way(&self) -> Collation {
        self.resolved("").unwrap_or_default()
    }

    /// Whether it has another collation than a column here can have, or none: each column has the server's.
    pub fn is_of_no_column(&self) -> bool {
        match self {
            Label::Default => false,
            Label::Implicit(named) | Label::Explicit(named) => *named != NamedCollation::SERVER,
            Label::Conflict(..) => true,
        }
    }

    /// The label of a column of a derived table, where this is that of the expression.
    pub fn of_column(self) -> Label {
        match self {
            Label::Explicit(named) => Label::Implicit(named),
            other => other,
        }
    }
}

/// The right side is named first, as in SQL Server.
fn conflict(left: &NamedCollation, right: &NamedCollation, operation: &str) -> Message {
    message::COLLATION_CONFLICT.with(&[&right.name, &left.name, &operation])
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
    fn the_stronger_label_wins_and_two_of_the_strongest_must_agree() {
        let named = |name| NamedCollation::of(name).unwrap();
        let (cs, bin) = (named("Latin1_General_CS_AS"), named("Latin1_General_BIN"));
        let server = Label::COLUMN;
        let explicit = |c: &NamedCollation| Label::Explicit(c.clone());
        let implicit = |c: &NamedCollation| Label::Implicit(c.clone());
        let of = |a: Label, b: Label| a.with(b, "equal to").map_err(|m| m.to_string());
        assert_eq!(of(Label::Default, server.clone()), Ok(server.clone()));
        assert_eq!(of(explicit(&cs), implicit(&bin)), Ok(explicit(&cs)));
        assert_eq!(of(server.clone(), explicit(&bin)), Ok(explicit(&bin)));
        assert_eq!(of(explicit(&cs), explicit(&cs)), Ok(explicit(&cs)));
        let text = "Cannot resolve the collation conflict between \"Latin1_General_BIN\" and \
                    \"Latin1_General_CS_AS\" in the equal to operation.";
        let refused = explicit(&cs).with(explicit(&bin), "equal to").unwrap_err();
        assert_eq!((refused.number, refused.text.as_str()), (468, text));
        let none = implicit(&cs).with(implicit(&bin), "equal to").unwrap();
        assert_eq!(none.resolved("equal to").unwrap_err().text, text);
        assert_eq!(of(none.clone(), server.clone()), Ok(none.clone()));
        assert_eq!(of(none, explicit(&bin)), Ok(explicit(&bin)));
        // The server's own collation has two names.
        assert_eq!(
            of(
                explicit(&named("DATABASE_DEFAULT")),
                explicit(&named(SERVER))
            ),
            Ok(explicit(&named(SERVER)))
        );
        assert_eq!(explicit(&bin).of_column(), implicit(&bin));
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
