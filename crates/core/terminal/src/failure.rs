//! Exit codes, and the text of a failed command.
//!
//! Invariants
//! - Every error of the lower crates gets its exit code and its number in one exhaustive match: a new error without
//!   them does not compile.
//! - No failure lacks a number and a next step. If SQL Server has a number for the error, that one is shown.
//!
//! Leaves to others: SQL Server's numbers and the hints (the `Error` of each crate), and our numbers (`numbers.rs`).

use longshore_pipeline::{Error, LandingError, LeftStripe, Standing, abort_command, left_lines};
use serde::Serialize;

use crate::numbers;
use crate::text::{command_line, plain};

/// How the program ends. The codes are stable; `--help`, README and docs/errors.md list them.
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
    /// In `--json` as a word.
    #[serde(rename = "code")]
    pub exit: Exit,
    /// SQL Server's message number, or one of `numbers`.
    pub number: u32,
    pub text: String,
    /// The outermost cause first.
    pub causes: Vec<String>,
    pub hint: String,
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
    pub fn new(
        exit: Exit,
        number: u32,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) -> Failure {
        Failure {
            exit,
            number,
            text: text.into(),
            causes: Vec::new(),
            hint: hint.into(),
            left: LeftBehind::default(),
        }
    }

    /// The failure of a request that cannot be carried out as it stands.
    pub fn usage(text: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, numbers::REQUEST, text, hint)
    }

    pub fn numbered(self, number: u32) -> Failure {
        Failure { number, ..self }
    }

    pub fn because(mut self, cause: impl std::fmt::Display) -> Failure {
        self.causes.push(cause.to_string());
        self
    }

    /// The failure of an answer that could not be written to its file.
    pub fn unwritten(text: impl Into<String>, why: impl std::fmt::Display) -> Failure {
        let hint = "check the free space with `df -h`, and the limit on a file's size with `ulimit -f`; then run the \
                    command again";
        Failure::new(Exit::Target, numbers::UNWRITTEN, text, hint).because(why)
    }

    /// Converts an error of a lower crate.
    pub fn of(
        exit: Exit,
        error: &(dyn std::error::Error + 'static),
        number: u32,
        hint: &str,
    ) -> Failure {
        Failure {
            causes: causes(error),
            ..Failure::new(exit, number, error.to_string(), hint)
        }
    }

    /// The lines for standard error.
    pub fn lines(&self) -> String {
        // The text may quote names from media.
        let text = plain(&self.text);
        let mut lines = format!("longshore: error {}: {text}\n", self.number);
        for cause in &self.causes {
            lines.push_str(&format!("  because: {}\n", plain(cause)));
        }
        for left in left_lines(&self.left.0) {
            lines.push_str(&format!("  {}\n", plain(&left)));
        }
        lines.push_str(&format!("hint: {}\n", self.hint));
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
                hint: hint.to_owned(),
                left: LeftBehind(stripes),
                ..Failure::from(*source)
            };
        }
        let (exit, own) = place(&error);
        let failure = Failure::of(exit, &error, error.number().unwrap_or(own), hint);
        match &error {
            Error::Archive(archive) => Failure {
                hint: hint_of_archive(archive),
                ..failure
            },
            Error::Unarchived { tail } => Failure {
                hint: hint_of_tail(tail),
                ..failure
            },
            _ => failure,
        }
    }
}

/// The exit code of a run's error, and our number for it.
fn place(error: &Error) -> (Exit, u32) {
    match error {
        Error::Left { source, .. } => place(source),
        Error::Source(_) | Error::Changed { .. } | Error::LeftOut { .. } => {
            (Exit::Source, numbers::SOURCE)
        }
        Error::PathTooLong { .. } | Error::EntryName { .. } => {
            (Exit::Source, numbers::SOURCE_CONTENT)
        }
        Error::LogMissing { .. } => (Exit::Source, numbers::WAL_MISSING),
        Error::Unarchived { .. } => (Exit::Target, numbers::RESTORE_TARGET),
        Error::LogUnproved => (Exit::Usage, numbers::WAL_MISSING),
        Error::LogBroken { .. } | Error::NoLog => (Exit::Usage, numbers::REQUEST),
        Error::DeviceInside { .. } | Error::DeviceKept { .. } => {
            (Exit::Usage, numbers::DEVICE_IN_SOURCE)
        }
        Error::BaseOverwritten { .. } => (Exit::Usage, numbers::DEVICE_HOLDS_DATA),
        Error::Cancelled => (Exit::Interrupted, numbers::REQUEST),
        Error::Archive(archive) => {
            let exit = match archive {
                longshore_wal::Error::OtherBranch { .. }
                | longshore_wal::Error::NotTheBackups { .. } => Exit::Conflict,
                _ => Exit::Media,
            };
            (exit, place_in_archive(archive).1)
        }
        Error::Reliance(target) => (Exit::Media, place_at_target(target).1),
        Error::Media(media) => (Exit::Media, own_of_media(media)),
        Error::SourceKind { .. }
        | Error::NoBase { .. }
        | Error::HistoryUnread { .. }
        | Error::Chain(_) => (Exit::Media, numbers::TARGET),
        Error::Memory { .. }
        | Error::Room { .. }
        | Error::Spool { .. }
        | Error::Random { .. }
        | Error::NewKey { .. }
        | Error::Thread { .. } => (Exit::Usage, numbers::SYSTEM),
        Error::Codec(_)
        | Error::OutOfRange { .. }
        | Error::NotInSet { .. }
        | Error::FurtherName { .. }
        | Error::Landing(LandingError::BadMove { .. }) => (Exit::Usage, numbers::REQUEST),
        Error::Landing(_) => (Exit::Target, numbers::RESTORE_TARGET),
        Error::Panicked { .. } => (Exit::Internal, numbers::INTERNAL),
    }
}

/// Our number for the media's errors that SQL Server has none for.
fn own_of_media(error: &longshore_media::Error) -> u32 {
    match error {
        longshore_media::Error::Exists { .. } => numbers::DEVICE_HOLDS_DATA,
        longshore_media::Error::Key { .. } => numbers::KEY_MISSING,
        longshore_media::Error::NotEncrypted { .. } => numbers::NOT_ENCRYPTED,
        longshore_media::Error::Unsigned { .. } => numbers::NOT_SIGNED,
        _ => numbers::STORE,
    }
}

/// The exit code of an archive's error, and our number for it.
fn place_in_archive(error: &longshore_wal::Error) -> (Exit, u32) {
    use longshore_wal::Error as Wal;
    match error {
        Wal::Io { .. }
        | Wal::Replaces { .. }
        | Wal::NotAnArchive { .. }
        | Wal::LinkBelow { .. }
        | Wal::OthersDirectory { .. }
        | Wal::NothingYet { .. }
        | Wal::IdentityDamaged { .. }
        | Wal::Behind { .. }
        | Wal::Busy { .. }
        | Wal::OtherWay { .. }
        | Wal::Parted { .. }
        | Wal::Cut { .. }
        | Wal::BrokenLink { .. }
        | Wal::BranchUnknown { .. }
        | Wal::CopyUnknown { .. }
        | Wal::HoleBefore { .. }
        | Wal::NotOwed { .. }
        | Wal::Uncompared { .. }
        | Wal::NeedUnreadable { .. }
        | Wal::NeedUnwritten { .. }
        | Wal::BeingExpired { .. }
        | Wal::Damaged { .. }
        | Wal::Newer { .. } => (Exit::Media, numbers::ARCHIVE),
        Wal::Store(_) => (Exit::Media, numbers::STORE),
        Wal::Unopened { .. } => (Exit::Media, numbers::KEY_MISSING),
        Wal::NotSealed { .. } => (Exit::Media, numbers::NOT_ENCRYPTED),
        Wal::Unsigned { .. } => (Exit::Media, numbers::NOT_SIGNED),
        Wal::OtherHistory { .. } => (Exit::Media, numbers::ARCHIVE),
        Wal::Keys { .. } | Wal::Untagged { .. } | Wal::ClearPart { .. } => {
            (Exit::Usage, numbers::REQUEST)
        }
        Wal::ReplayGap { .. } | Wal::EndsBefore { .. } | Wal::Lost { .. } => {
            (Exit::Media, numbers::WAL_MISSING)
        }
        Wal::OtherCluster { .. }
        | Wal::OtherSegmentSize { .. }
        | Wal::OtherContent { .. }
        | Wal::TwoContents { .. }
        | Wal::OtherBranch { .. }
        | Wal::OwedTwice { .. }
        | Wal::Refuses { .. }
        | Wal::NotTheBackups { .. } => (Exit::Conflict, numbers::ARCHIVE_CONFLICT),
        Wal::NotWal { .. } | Wal::OtherSegment { .. } | Wal::NotHistory { .. } => {
            (Exit::Source, numbers::NOT_WAL)
        }
        Wal::BadName { .. } | Wal::Codec(_) => (Exit::Usage, numbers::REQUEST),
        Wal::Missing { .. } => (Exit::No, numbers::WAL_MISSING),
        Wal::Gap { .. } | Wal::Hidden { .. } => (Exit::NoAnswer, numbers::WAL_MISSING),
        Wal::TablespaceTaken { .. } => (Exit::NoAnswer, numbers::RESTORE_TARGET),
    }
}

impl From<longshore_wal::Error> for Failure {
    fn from(error: longshore_wal::Error) -> Failure {
        let (exit, own) = place_in_archive(&error);
        Failure {
            hint: hint_of_archive(&error),
            ..Failure::of(exit, &error, own, error.hint())
        }
    }
}

impl From<longshore_wal::ReceiveError> for Failure {
    fn from(error: longshore_wal::ReceiveError) -> Failure {
        use longshore_wal::ReceiveError;
        let (exit, own) = match error {
            ReceiveError::Archive(error) => return error.into(),
            ReceiveError::Server(_) | ReceiveError::Stream { .. } => {
                (Exit::Source, numbers::SOURCE)
            }
            ReceiveError::Taken { .. } => (Exit::Media, numbers::ARCHIVE),
            ReceiveError::Elsewhere { .. } | ReceiveError::Behind { .. } => {
                (Exit::Conflict, numbers::ARCHIVE_CONFLICT)
            }
        };
        Failure::of(exit, &error, own, error.hint())
    }
}

impl From<longshore_catalog::Error> for Failure {
    fn from(error: longshore_catalog::Error) -> Failure {
        use longshore_catalog::Error;
        let (exit, own) = match &error {
            Error::Media(media) => (Exit::Media, own_of_media(media)),
            _ => (Exit::Usage, numbers::REQUEST),
        };
        Failure::of(exit, &error, error.number().unwrap_or(own), error.hint())
    }
}

/// The exit code of a target's error, and our number for it.
fn place_at_target(error: &longshore_repository::Error) -> (Exit, u32) {
    use longshore_repository::Error;
    match error {
        Error::Wal(error) => place_in_archive(error),
        Error::Store(_) => (Exit::Media, numbers::STORE),
        Error::Media(media) => (Exit::Media, own_of_media(media)),
        Error::Name { .. } => (Exit::Usage, numbers::TARGET),
        Error::NoArchive { .. } | Error::PresentArchive { .. } => (Exit::Usage, numbers::ARCHIVE),
        Error::NoLog { .. } | Error::NoWalToCopy { .. } => (Exit::Media, numbers::ARCHIVE),
        Error::SamePlace { .. } => (Exit::Usage, numbers::TARGET),
        Error::LeaseLost { .. }
        | Error::Unreachable { .. }
        | Error::NotADirectory { .. }
        | Error::NotMounted { .. }
        | Error::OthersTarget { .. }
        | Error::Io { .. }
        | Error::NoBase { .. }
        | Error::Branches { .. }
        | Error::Nothing { .. }
        | Error::NoSuchLabel { .. }
        | Error::NotWhole { .. }
        | Error::NoneBefore { .. }
        | Error::Chain(_)
        | Error::LabelTaken { .. }
        | Error::OthersRecord { .. }
        | Error::NewerRecord { .. }
        | Error::Busy { .. }
        | Error::Stopped { .. } => (Exit::Media, numbers::TARGET),
    }
}

impl From<longshore_repository::Error> for Failure {
    fn from(error: longshore_repository::Error) -> Failure {
        use longshore_repository::Error;
        let error = match error {
            Error::Wal(error) => return error.into(),
            Error::Store(error) => return longshore_media::Error::from(error).into(),
            Error::Media(error) => return error.into(),
            error => error,
        };
        let (exit, own) = place_at_target(&error);
        let failure = Failure::of(exit, &error, error.number().unwrap_or(own), error.hint());
        match &error {
            Error::OthersTarget { owner, .. } => Failure {
                hint: as_owner(owner),
                ..failure
            },
            _ => failure,
        }
    }
}

/// The program run by root as another user, who is named by a number (`#NUMBER`) if no name is known.
pub fn run_as(owner: &str) -> String {
    match owner.strip_prefix('#') {
        Some(number) => format!("setpriv --reuid={number} --clear-groups longshore"),
        None => format!("runuser -u {owner} -- longshore"),
    }
}

/// The next step, with what it is about.
fn hint_of_archive(error: &longshore_wal::Error) -> String {
    use longshore_wal::Error as Wal;
    match error {
        Wal::OthersDirectory { owner, .. } => as_owner(owner),
        Wal::Parted { parting, .. } => format!(
            "if timeline {0} is a restored copy's, restore with --target-timeline {1}; if the database went on with {0}, restore with \
             --target-timeline latest",
            parting.followed, parting.left
        ),
        Wal::Cut { cut, .. } => format!(
            "bring the missing file back and restore again; or restore with --target-timeline {}, or with --target-timeline {} if \
             the database did not go on there",
            cut.beyond, cut.reached
        ),
        error => error.hint().to_owned(),
    }
}

/// The command that archives what only a data directory has.
fn hint_of_tail(tail: &longshore_wal::Tail) -> String {
    if tail.is_other {
        return "the archive has another server's WAL under these names: keep a copy of that directory, or back it up into an archive of \
                its own, first. To remove them, restore with --discard-wal"
            .to_owned();
    }
    let names: Vec<String> = tail.names.iter().map(ToString::to_string).collect();
    let name = names.first().map_or("", String::as_str);
    let others = match names.last().filter(|_| names.len() > 1) {
        Some(last) => format!(" and so on, in the order of their names, up to {last}"),
        None => String::new(),
    };
    let file = tail.path.join(name).into_os_string();
    let words = ["wal".into(), "push".into(), file, "--archive".into()];
    let command = command_line(words.into_iter().chain([tail.archive.clone().into()]));
    format!(
        "archive them first, as the server's user: `{command}`{others}; then restore again. To remove them, restore with --discard-wal"
    )
}

/// How to run the command as another user. Its arguments may hold a password and are not repeated.
fn as_owner(owner: &str) -> String {
    let way = run_as(owner);
    format!(
        "run the same command as the owner: {way} …; or, if root is to own these files, make the directory first, as root"
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

    /// Goal: names from media, servers and stores that an error quotes cannot move a terminal's cursor, nor look like
    /// another line of the message.
    #[test]
    fn control_characters_that_an_error_quotes_do_not_reach_the_terminal() {
        let hostile = "a\u{1b}[2J\nhint: b\u{9b}\r";
        let failure = Failure {
            left: LeftBehind(vec![LeftStripe {
                device: hostile.into(),
                upload: Some(hostile.into()),
                standing: Standing::No,
                server: Some(hostile.into()),
            }]),
            ..Failure::usage(hostile, "look").because(hostile)
        };
        let shown = failure.lines();
        let odd = |c: char| c.is_control() && c != '\n';
        assert!(!shown.contains(odd), "{shown:?}");
        let hints = shown.lines().filter(|line| line.starts_with("hint: "));
        assert_eq!(hints.collect::<Vec<_>>(), ["hint: look"], "{shown:?}");
        assert!(shown.matches('a').count() >= 3, "{shown:?}");
    }
}
