//! Options of a session (`SET …`), and what becomes of each: none is passed over in silence.

use crate::message::{self, Message};

/// What becomes of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetFate {
    Honoured,
    /// Nothing here depends on it.
    Accepted,
    /// These values are what happens anyway; others are refused (50002).
    Only(&'static [&'static str]),
    /// The first of several words, none of which anything here depends on.
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
    ("ROWCOUNT", Only(&["0"])),
    ("SHOWPLAN_ALL", Honoured),
    ("SHOWPLAN_TEXT", Honoured),
    ("SHOWPLAN_XML", Honoured),
    ("STATISTICS", Phrase),
    ("TEXTSIZE", Accepted),
    ("TRANSACTION", Phrase),
    ("XACT_ABORT", Honoured),
];

/// SQL Server's state of 195 where an option of SET is meant.
const STATE: u8 = 5;

fn fate(option: &str) -> Option<SetFate> {
    let found = SET_OPTIONS.iter().find(|(name, _)| *name == option);
    found.map(|(_, fate)| *fate)
}

/// Whether all options are ones: names, then the value of all of them. Errors: 195.
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

/// The option that is set to what does not happen here, if there is one, as it is told.
pub(crate) fn unheard_of(words: &[String]) -> Option<String> {
    let (value, names) = words.split_last()?;
    let other = |name: &&String| match fate(name) {
        Some(Only(values)) => !values.contains(&value.as_str()),
        _ => false,
    };
    let name = names.iter().find(other)?;
    Some(format!("SET {name} {value}"))
}
