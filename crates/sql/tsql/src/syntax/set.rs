//! The options of a session (`SET …`), how each is handled, and what a session has set.
//!
//! Invariants
//! - None is ignored silently: a value that would change an answer is refused where it is not honoured.
//! - What has no effect is kept all the same: `@@OPTIONS` and the views of sessions show it.
//!
//! Leaves to others: reading SET (`parser/control.rs`), and the options that are honoured (`run.rs`).

use crate::dates::DateOrder;
use crate::message::{self, Message};

/// How an option is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetFate {
    Honoured,
    /// It has no effect here.
    Accepted,
    /// These values describe the behaviour here; other values are refused (50002).
    Only(&'static [&'static str]),
    /// These values are honoured; other values are refused (50002).
    OneOf(&'static [&'static str]),
    /// The first of several words, none of which has an effect here.
    Phrase,
}

use SetFate::{Accepted, Honoured, OneOf, Only, Phrase};

/// Every option, by name.
pub const SET_OPTIONS: &[(&str, SetFate)] = &[
    ("ANSI_DEFAULTS", Only(&["ON"])),
    ("ANSI_NULLS", Only(&["ON"])),
    ("ANSI_NULL_DFLT_OFF", Accepted),
    ("ANSI_NULL_DFLT_ON", Accepted),
    ("ANSI_PADDING", Accepted),
    ("ANSI_WARNINGS", Honoured),
    ("ARITHABORT", Honoured),
    ("ARITHIGNORE", Honoured),
    ("CONCAT_NULL_YIELDS_NULL", Only(&["ON"])),
    ("CONTEXT_INFO", Phrase),
    ("CURSOR_CLOSE_ON_COMMIT", Accepted),
    ("DATEFIRST", Honoured),
    (
        "DATEFORMAT",
        OneOf(&["MDY", "DMY", "YMD", "YDM", "MYD", "DYM"]),
    ),
    ("DEADLOCK_PRIORITY", Accepted),
    ("FIPS_FLAGGER", Phrase),
    ("FMTONLY", Honoured),
    ("FORCEPLAN", Accepted),
    ("IMPLICIT_TRANSACTIONS", Honoured),
    ("LANGUAGE", OneOf(&["US_ENGLISH", "ENGLISH", "BRITISH"])),
    ("LOCK_TIMEOUT", Accepted),
    ("NOCOUNT", Honoured),
    ("NOEXEC", Honoured),
    ("NUMERIC_ROUNDABORT", Accepted),
    ("OFFSETS", Phrase),
    ("PARSEONLY", Honoured),
    ("QUERY_GOVERNOR_COST_LIMIT", Accepted),
    ("QUOTED_IDENTIFIER", Honoured),
    ("REMOTE_PROC_TRANSACTIONS", Accepted),
    ("ROWCOUNT", Honoured),
    ("SHOWPLAN_ALL", Honoured),
    ("SHOWPLAN_TEXT", Honoured),
    ("SHOWPLAN_XML", Honoured),
    ("STATISTICS", Phrase),
    ("TEXTSIZE", Accepted),
    ("TRANSACTION", Phrase),
    ("XACT_ABORT", Honoured),
];

/// The bits of `@@OPTIONS` for options that are kept here.
const BITS: &[(&str, i64)] = &[
    ("CURSOR_CLOSE_ON_COMMIT", 4),
    ("ANSI_WARNINGS", WARNINGS),
    ("ANSI_PADDING", 16),
    ("ARITHABORT", ABORTS),
    ("ARITHIGNORE", IGNORES),
    ("QUOTED_IDENTIFIER", QUOTED),
    ("ANSI_NULL_DFLT_ON", NULL_DEFAULT_ON),
    ("ANSI_NULL_DFLT_OFF", NULL_DEFAULT_OFF),
    ("NUMERIC_ROUNDABORT", 8192),
];
const WARNINGS: i64 = 8;
const ABORTS: i64 = 64;
const IGNORES: i64 = 128;
const QUOTED: i64 = 256;
const NULL_DEFAULT_ON: i64 = 1024;
const NULL_DEFAULT_OFF: i64 = 2048;

/// The bits that SET ANSI_DEFAULTS ON switches on, of those above.
const OF_DEFAULTS: i64 = 4 | 8 | 16 | 256 | NULL_DEFAULT_ON;

/// ANSI_WARNINGS, ANSI_PADDING, ANSI_NULLS, ARITHABORT, QUOTED_IDENTIFIER, ANSI_NULL_DFLT_ON and CONCAT_NULL_YIELDS_NULL: as
/// clients begin.
const BITS_FIRST: i64 = 5496;

/// The consequence of arithmetic that fails, and of an aggregate that skips a NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heed {
    /// Arithmetic that fails is an error, and the client is told of NULLs (ANSI_WARNINGS).
    Warnings,
    /// Arithmetic that fails is an error (ARITHABORT).
    Errors,
    /// Arithmetic that fails is NULL, and the client is told.
    Tells,
    /// The same, and nobody is told (ARITHIGNORE).
    Ignores,
}

impl Heed {
    /// `options`: `@@OPTIONS`.
    pub fn of(options: i64) -> Heed {
        let is_on = |bit| options & bit != 0;
        match (is_on(WARNINGS), is_on(ABORTS), is_on(IGNORES)) {
            (true, ..) => Heed::Warnings,
            (_, true, _) => Heed::Errors,
            (.., false) => Heed::Tells,
            (.., true) => Heed::Ignores,
        }
    }
}

/// Weeks begin with Sunday in us_english.
const DATE_FIRST: i64 = 7;

/// A language of a session: both have English words and messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Language {
    #[default]
    UsEnglish,
    British,
}

impl Language {
    /// As `@@LANGUAGE` shows it.
    pub fn name(self) -> &'static str {
        match self {
            Language::UsEnglish => "us_english",
            Language::British => "British",
        }
    }

    /// `@@LANGID`
    pub fn number(self) -> i64 {
        match self {
            Language::UsEnglish => 0,
            Language::British => 23,
        }
    }

    fn order(self) -> DateOrder {
        match self {
            Language::UsEnglish => DateOrder::MonthDayYear,
            Language::British => DateOrder::DayMonthYear,
        }
    }

    fn date_first(self) -> i64 {
        match self {
            Language::UsEnglish => DATE_FIRST,
            Language::British => 1,
        }
    }
}

/// The levels of SET TRANSACTION ISOLATION LEVEL, as views number them.
const LEVELS: &[(&str, i64)] = &[
    ("READ UNCOMMITTED", 1),
    ("READ COMMITTED", 2),
    ("REPEATABLE READ", 3),
    ("SERIALIZABLE", 4),
    ("SNAPSHOT", 5),
];

/// Options as a session has set them, most of which have no effect here: scripts ask for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ToldOptions {
    /// Of `@@OPTIONS`.
    pub bits: i64,
    /// In milliseconds; -1: for ever.
    pub lock_timeout: i64,
    /// From 1, READ UNCOMMITTED, to 5, SNAPSHOT.
    pub isolation: i64,
    /// The day that weeks begin with, from 1, Monday, to 7, Sunday: this one has an effect.
    pub date_first: i64,
    /// `SET DATEFORMAT`, which has an effect, too.
    pub date_order: DateOrder,
    pub language: Language,
}

impl Default for ToldOptions {
    fn default() -> ToldOptions {
        ToldOptions {
            bits: BITS_FIRST,
            lock_timeout: -1,
            isolation: 2,
            date_first: DATE_FIRST,
            date_order: DateOrder::default(),
            language: Language::default(),
        }
    }
}

impl ToldOptions {
    /// Whether double quotation marks enclose names (QUOTED_IDENTIFIER).
    pub fn quotes_names(&self) -> bool {
        self.bits & QUOTED != 0
    }

    /// Notes what a SET says.
    pub fn set(&mut self, words: &[String]) {
        let Some((value, names)) = words.split_last() else {
            return;
        };
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["DATEFIRST", day] => self.date_first = day.parse().unwrap_or(DATE_FIRST),
            ["DATEFORMAT", order] => {
                self.date_order = DateOrder::named(order).unwrap_or(self.date_order);
            }
            ["LANGUAGE", name] => {
                self.language = match *name {
                    "BRITISH" => Language::British,
                    _ => Language::UsEnglish,
                };
                self.date_first = self.language.date_first();
                self.date_order = self.language.order();
            }
            ["LOCK_TIMEOUT", time] => self.lock_timeout = time.parse().unwrap_or(-1),
            ["TRANSACTION", "ISOLATION", "LEVEL", level @ ..] => {
                let level = level.join(" ");
                let found = LEVELS.iter().find(|(name, _)| *name == level);
                self.isolation = found.map_or(self.isolation, |(_, number)| *number);
            }
            _ => {}
        }
        let on = value == "ON";
        for name in names {
            if name == "ANSI_DEFAULTS" && on {
                self.bits |= OF_DEFAULTS;
            }
            let Some((_, bit)) = BITS.iter().find(|(known, _)| known == name) else {
                continue;
            };
            match on {
                true => self.bits |= bit,
                false => self.bits &= !bit,
            }
            // One of the two at most is on.
            match *bit {
                NULL_DEFAULT_ON if on => self.bits &= !NULL_DEFAULT_OFF,
                NULL_DEFAULT_OFF if on => self.bits &= !NULL_DEFAULT_ON,
                _ => {}
            }
        }
    }
}

/// SQL Server's state of 195 for an option of SET.
const STATE: u8 = 5;

fn fate(option: &str) -> Option<SetFate> {
    let found = SET_OPTIONS.iter().find(|(name, _)| *name == option);
    found.map(|(_, fate)| *fate)
}

/// Checks that all words are options: names, then one value for all. Errors: 195.
pub(super) fn check(words: &[String]) -> Result<(), Message> {
    let names = match words.first().and_then(|first| fate(first)) {
        Some(Phrase) => &words[..1],
        _ => words.split_last().map_or(words, |(_, names)| names),
    };
    for name in names {
        if fate(name).is_none() {
            let mut unknown = message::NOT_RECOGNIZED.with(&[name, &"SET option"]);
            unknown.state = STATE;
            return Err(unknown);
        }
    }
    Ok(())
}

/// The option that is set to a value unsupported here, if any, in the words of the message.
pub(crate) fn unheard_of(words: &[String]) -> Option<String> {
    let (value, names) = words.split_last()?;
    let other = |name: &&String| match fate(name) {
        Some(Only(values) | OneOf(values)) => !values.contains(&value.as_str()),
        _ => false,
    };
    let name = names.iter().find(other)?;
    Some(format!("SET {name} {value}"))
}
