//! The options of a session (`SET …`), and how each is handled: none is ignored silently.

use crate::message::{self, Message};

/// How an option is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetFate {
    Honoured,
    /// It has no effect here.
    Accepted,
    /// These values describe the behaviour here; other values are refused (50002).
    Only(&'static [&'static str]),
    /// The first of several words, none of which has an effect here.
    Phrase,
}

use SetFate::{Accepted, Honoured, Only, Phrase};

/// Every option, by name.
pub const SET_OPTIONS: &[(&str, SetFate)] = &[
    ("ANSI_DEFAULTS", Only(&["ON"])),
    ("ANSI_NULLS", Only(&["ON"])),
    ("ANSI_NULL_DFLT_OFF", Accepted),
    ("ANSI_NULL_DFLT_ON", Accepted),
    ("ANSI_PADDING", Accepted),
    ("ANSI_WARNINGS", Accepted),
    ("ARITHABORT", Accepted),
    ("ARITHIGNORE", Accepted),
    ("CONCAT_NULL_YIELDS_NULL", Only(&["ON"])),
    ("CONTEXT_INFO", Phrase),
    ("CURSOR_CLOSE_ON_COMMIT", Accepted),
    ("DATEFIRST", Only(&["7"])),
    ("DATEFORMAT", Only(&["MDY"])),
    ("DEADLOCK_PRIORITY", Accepted),
    ("FIPS_FLAGGER", Phrase),
    ("FMTONLY", Honoured),
    ("FORCEPLAN", Accepted),
    ("IMPLICIT_TRANSACTIONS", Honoured),
    ("LANGUAGE", Only(&["US_ENGLISH", "ENGLISH"])),
    ("LOCK_TIMEOUT", Accepted),
    ("NOCOUNT", Honoured),
    ("NOEXEC", Honoured),
    ("NUMERIC_ROUNDABORT", Accepted),
    ("OFFSETS", Phrase),
    ("PARSEONLY", Honoured),
    ("QUERY_GOVERNOR_COST_LIMIT", Accepted),
    ("QUOTED_IDENTIFIER", Accepted),
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
        Some(Only(values)) => !values.contains(&value.as_str()),
        _ => false,
    };
    let name = names.iter().find(other)?;
    Some(format!("SET {name} {value}"))
}
