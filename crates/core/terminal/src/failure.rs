//! Exit codes, and the text of a failed command.
//!
//! Invariants
//! - Every error of the lower crates gets its exit code in one exhaustive match: a new error without a code does not
//!   compile.
//!
//! Leaves to others: SQL Server's numbers and the hints (the `Error` of each crate).

use longshore_pipeline::{Error, LandingError, LeftStripe, Standing, abort_command, left_lines};
use serde::Serialize;

use crate::text::plain;

/// How the program ends. The numbers are stable; `--help` and README list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Done = 0,
    /// The answer is no: verify found damage.
    No = 1,
    Usage = 2,
    Source = 3,
    Media = 4,
    /// Done, with findings.
    Warnings = 5,
    Target = 6,
    /// The WAL archive has other bytes under this name, or belongs to another cluster.
    Conflict = 7,
    /// A bug in this program.
    Internal = 70,
    Interrupted = 130,
    /// `wal get` cannot tell whether the WAL continues. PostgreSQL's recovery stops at codes above 125.
    NoAnswer = 200,
}

impl Exit {
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The exit code's name in `--json`. The words are stable.
    pub fn word(self) -> &'static str {
        match self {
            Exit::Done => "done",
            Exit::No => "no",
            Exit::Usage => "usage",
            Exit::Source => "source",
            Exit::Media => "media",
            Exit::Warnings => "warnings",
            Exit::Target => "target",
            Exit::Conflict => "conflict",
            Exit::Internal => "internal",
            Exit::Interrupted => "interrupted",
            Exit::NoAnswer => "no_answer",
        }
    }
}

impl Serialize for Exit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// Why a command failed, as shown to people and in `--json`.
#[derive(Debug, Serialize)]
pub struct Failure {
    /// In `--json` as a word, which also errors without a number have.
    #[serde(rename = "code")]
    pub exit: Exit,
    /// SQL Server's message number, if there is one.
    pub number: Option<u32>,
    pub text: String,
    /// The outermost cause first.
    pub causes: Vec<String>,
    pub hint: Option<String>,
    /// The state of each stripe, if a failed backup to object stores left anything.
    #[serde(skip_serializing_if = "LeftBehind::is_empty")]
    pub left: LeftBehind,
}

/// The stripes of a failed backup.
#[derive(Debug, Default)]
pub struct LeftBehind(Vec<LeftStripe>);

impl LeftBehind {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for LeftBehind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Row<'a> {
            stripe: &'a str,
            state: &'static str,
            /// An upload that the store keeps, and the command that aborts it.
            upload_id: Option<&'a str>,
            abort: Option<String>,
        }
        serializer.collect_seq(self.0.iter().map(|left| Row {
            stripe: &left.device,
            state: match left.standing {
                Standing::No => "absent",
                Standing::Yes => "complete",
                Standing::Replaced => "replaced",
                Standing::Unknown => "unknown",
            },
            upload_id: left.upload.as_deref(),
            abort: abort_command(left),
        }))
    }
}

impl Failure {
    pub fn usage(text: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure {
            exit: Exit::Usage,
            number: None,
            text: text.into(),
            causes: Vec::new(),
            hint: Some(hint.into()),
            left: LeftBehind::default(),
        }
    }

    /// The failure of an answer that could not be written to its file.
    pub fn unwritten(text: impl Into<String>, why: impl std::fmt::Display) -> Failure {
        Failure {
            exit: Exit::Target,
            number: None,
            text: text.into(),
            causes: vec![why.to_string()],
            hint: Some("check the free space, then run the command again".to_owned()),
            left: LeftBehind::default(),
        }
    }

    /// Converts an error of a lower crate.
    pub fn of(
        exit: Exit,
        error: &(dyn std::error::Error + 'static),
        number: Option<u32>,
        hint: &str,
    ) -> Failure {
        Failure {
            exit,
            number,
            text: error.to_string(),
            causes: causes(error),
            hint: Some(hint.to_owned()),
            left: LeftBehind::default(),
        }
    }

    /// The lines for standard error.
    pub fn lines(&self) -> String {
        // The text may quote names from media.
        let text = plain(&self.text);
        let mut lines = match self.number {
            Some(number) => format!("longshore: error {number}: {text}\n"),
            None => format!("longshore: error: {text}\n"),
        };
        for cause in &self.causes {
            lines.push_str(&format!("  because: {}\n", plain(cause)));
        }
        for left in left_lines(&self.left.0) {
            lines.push_str(&format!("  {}\n", plain(&left)));
        }
        if let Some(hint) = &self.hint {
            lines.push_str(&format!("hint: {hint}\n"));
        }
        lines
    }
}

/// The chain below an error. Transparent wrappers repeat their text; that is left out.
fn causes(error: &(dyn std::error::Error + 'static)) -> Vec<String> {
    let mut last = error.to_string();
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if text != last {
            causes.push(text.clone());
        }
        last = text;
        next = cause.source();
    }
    causes
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let hint = error.hint();
        if let Error::Left { source, stripes } = error {
            return Failure {
                hint: Some(hint.to_owned()),
                left: LeftBehind(stripes),
                ..Failure::from(*source)
            };
        }
        let exit = match &error {
            Error::Left { source, .. } => {
                return Failure::of(Exit::Media, source, error.number(), hint);
            }
            Error::Source(_)
            | Error::Changed { .. }
            | Error::PathTooLong { .. }
            | Error::LeftOut { .. }
            | Error::EntryName { .. }
            | Error::LogMissing { .. } => Exit::Source,
            Error::LogUnproved
            | Error::LogBroken { .. }
            | Error::NoLog
            | Error::NotDifferential
            | Error::DeviceInside { .. }
            | Error::DeviceKept { .. }
            | Error::BaseOverwritten { .. } => Exit::Usage,
            Error::Cancelled => Exit::Interrupted,
            Error::Archive(
                longshore_wal::Error::OtherBranch { .. }
                | longshore_wal::Error::NotTheBackups { .. },
            ) => Exit::Conflict,
            Error::Archive(_)
            | Error::Reliance(_)
            | Error::Media(_)
            | Error::SourceKind { .. }
            | Error::NoBase { .. }
            | Error::Chain(_) => Exit::Media,
            Error::Codec(_)
            | Error::OutOfRange { .. }
            | Error::Memory { .. }
            | Error::Room { .. }
            | Error::Spool { .. }
            | Error::Random { .. }
            | Error::Thread { .. }
            | Error::NotInSet { .. }
            | Error::Landing(LandingError::BadMove { .. }) => Exit::Usage,
            Error::Landing(_) => Exit::Target,
            Error::Panicked { .. } => Exit::Internal,
        };
        Failure::of(exit, &error, error.number(), error.hint())
    }
}

impl From<longshore_wal::Error> for Failure {
    fn from(error: longshore_wal::Error) -> Failure {
        use longshore_wal::Error as Wal;
        let exit = match &error {
            Wal::Io { .. }
            | Wal::Store(_)
            | Wal::Replaces { .. }
            | Wal::NotAnArchive { .. }
            | Wal::LinkBelow { .. }
            | Wal::OthersDirectory { .. }
            | Wal::NothingYet { .. }
            | Wal::IdentityDamaged { .. }
            | Wal::Busy { .. }
            | Wal::ReplayGap { .. }
            | Wal::EndsBefore { .. }
            | Wal::OtherWay { .. }
            | Wal::BrokenLink { .. }
            | Wal::BranchUnknown { .. }
            | Wal::NeedUnreadable { .. }
            | Wal::NeedUnwritten { .. }
            | Wal::BeingExpired { .. }
            | Wal::Damaged { .. }
            | Wal::Newer { .. } => Exit::Media,
            Wal::OtherCluster { .. }
            | Wal::OtherSegmentSize { .. }
            | Wal::OtherContent { .. }
            | Wal::TwoContents { .. }
            | Wal::OtherBranch { .. }
            | Wal::NotTheBackups { .. } => Exit::Conflict,
            Wal::NotWal { .. } | Wal::OtherSegment { .. } | Wal::NotHistory { .. } => Exit::Source,
            Wal::BadName { .. } | Wal::Codec(_) => Exit::Usage,
            Wal::Missing { .. } => Exit::No,
            Wal::Gap { .. } | Wal::TablespaceTaken { .. } => Exit::NoAnswer,
        };
        let failure = Failure::of(exit, &error, None, error.hint());
        match &error {
            Wal::OthersDirectory { owner, .. } => Failure {
                hint: Some(as_owner(owner)),
                ..failure
            },
            _ => failure,
        }
    }
}

impl From<longshore_wal::ReceiveError> for Failure {
    fn from(error: longshore_wal::ReceiveError) -> Failure {
        use longshore_wal::ReceiveError;
        let exit = match error {
            ReceiveError::Archive(error) => return error.into(),
            ReceiveError::Server(_) | ReceiveError::Stream { .. } => Exit::Source,
            ReceiveError::Taken { .. } => Exit::Media,
            ReceiveError::Elsewhere { .. } | ReceiveError::Behind { .. } => Exit::Conflict,
        };
        Failure::of(exit, &error, None, error.hint())
    }
}

impl From<longshore_catalog::Error> for Failure {
    fn from(error: longshore_catalog::Error) -> Failure {
        use longshore_catalog::Error;
        let exit = match &error {
            Error::Media(_) => Exit::Media,
            _ => Exit::Usage,
        };
        Failure::of(exit, &error, error.number(), error.hint())
    }
}

impl From<longshore_repository::Error> for Failure {
    fn from(error: longshore_repository::Error) -> Failure {
        use longshore_repository::Error;
        let exit = match error {
            Error::Wal(error) => return error.into(),
            Error::Store(error) => return longshore_media::Error::from(error).into(),
            Error::Name { .. } | Error::NoArchive { .. } => Exit::Usage,
            Error::LeaseLost { .. }
            | Error::Unreachable { .. }
            | Error::NotADirectory { .. }
            | Error::OthersTarget { .. }
            | Error::Io { .. }
            | Error::NoBase { .. }
            | Error::Branches { .. }
            | Error::Nothing { .. }
            | Error::NoSuchLabel { .. }
            | Error::NotWhole { .. }
            | Error::NoneBefore { .. }
            | Error::NoLog { .. }
            | Error::Chain(_)
            | Error::Busy { .. } => Exit::Media,
        };
        let failure = Failure::of(exit, &error, error.number(), error.hint());
        match &error {
            Error::OthersTarget { owner, .. } => Failure {
                hint: Some(as_owner(owner)),
                ..failure
            },
            _ => failure,
        }
    }
}

/// How to run the command as another user. Its arguments may hold a password and are not repeated.
fn as_owner(owner: &str) -> String {
    let way = match owner.strip_prefix('#') {
        Some(number) => format!("setpriv --reuid={number} --clear-groups longshore …"),
        None => format!("runuser -u {owner} -- longshore …"),
    };
    format!(
        "run the same command as the owner: {way}; or, if root is to own these files, make the directory first, as root"
    )
}

impl From<longshore_media::Error> for Failure {
    fn from(error: longshore_media::Error) -> Failure {
        Error::from(error).into()
    }
}

impl From<longshore_source::Error> for Failure {
    fn from(error: longshore_source::Error) -> Failure {
        Error::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_its_number_its_causes_once_and_a_hint() {
        let error = longshore_media::Error::Io {
            action: "write",
            device: "a.bak".into(),
            offset: 4096,
            source: std::io::Error::other("no space"),
        };
        let failure = Failure::from(error);
        assert_eq!(failure.exit, Exit::Media);
        let lines = failure.lines();
        let mut lines = lines.lines();
        assert_eq!(
            lines.next(),
            Some("longshore: error 3202: cannot write backup device a.bak at byte 4096")
        );
        assert_eq!(lines.next(), Some("  because: no space"));
        assert!(lines.next().is_some_and(|l| l.starts_with("hint: ")));
        assert_eq!(lines.next(), None);
    }
}
