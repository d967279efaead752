//! The options after WITH: one table says how each is spelled and written, in which statements it may occur, and how it
//! is handled.
//!
//! Invariants
//! - The parser reads the table, lowering refuses by it, and `docs/tsql.md` shows it (a test compares the two): there
//!   is no second list.
//! - No option is ignored without a reason in this table.
//! - An option that belongs to no statement of a verb is refused for that verb.
//!
//! Leaves to others: parsing values (`parser/option.rs`), and what an option does (`statement`).

/// The syntax after an option's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Flag,
    /// `= 'text'` or a variable.
    Text,
    /// `= 5`, also quoted, or a variable.
    Number,
    /// `= 5` or a variable, never quoted.
    Integer,
    /// The same, or nothing.
    OptionalNumber,
    /// `(ALGORITHM = …, LEVEL = …)`, or nothing.
    Compression,
    Encryption,
    /// `'logical' TO 'physical'`
    Move,
    /// `= 'mark' AFTER 'time'`
    Mark,
    /// `(DIRECTORY_NAME = …)`
    DirectoryName,
}

/// How an option is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Honoured,
    /// It changes nothing, for the given reason.
    Accepted(&'static str),
    /// The statement is refused, for the given reason.
    Refused(&'static str),
}

/// The statements in which an option may occur, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applies(pub u16);

impl Applies {
    pub const BACKUP_DATABASE: Applies = Applies(1);
    pub const BACKUP_LOG: Applies = Applies(2);
    pub const BACKUP: Applies = Applies(3);
    pub const RESTORE_DATABASE: Applies = Applies(4);
    pub const RESTORE_LOG: Applies = Applies(8);
    pub const RESTORE: Applies = Applies(12);
    pub const VERIFY_ONLY: Applies = Applies(16);
    pub const HEADER_ONLY: Applies = Applies(32);
    pub const FILE_LIST_ONLY: Applies = Applies(64);
    pub const LABEL_ONLY: Applies = Applies(128);
    pub const REWIND_ONLY: Applies = Applies(256);
    /// All statements that read media.
    pub const READ: Applies = Applies(0b1_1111_1100);
    pub const NONE: Applies = Applies(0);

    pub const fn and(self, other: Applies) -> Applies {
        Applies(self.0 | other.0)
    }

    pub const fn but(self, other: Applies) -> Applies {
        Applies(self.0 & !other.0)
    }

    pub const fn has(self, other: Applies) -> bool {
        self.0 & other.0 != 0
    }
}

/// One option.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    pub key: Key,
    pub word: &'static str,
    pub shape: Shape,
    pub applies: Applies,
    pub in_backup: Fate,
    pub in_restore: Fate,
    /// Our extension, unknown to SQL Server.
    pub extension: bool,
}

macro_rules! options {
    ($($key:ident $word:literal $shape:ident [$($applies:ident)+] $in_backup:expr, $in_restore:expr $(; $extension:ident)?)*) => {
        /// An option's identity.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Key { $($key),* }

        /// All options.
        pub const OPTIONS: &[Spec] = &[$(Spec {
            key: Key::$key,
            word: $word,
            shape: Shape::$shape,
            applies: Applies::NONE$(.and(Applies::$applies))+,
            in_backup: $in_backup,
            in_restore: $in_restore,
            extension: false $(|| stringify!($extension).len() > 0)?,
        }),*];
    };
}

const YES: Fate = Fate::Honoured;
/// For the column of a verb that does not have the option.
const NOT: Fate = Fate::Refused("it does not belong to this statement");
const TAPE: Fate = Fate::Accepted("it is for tapes");
const SNAPSHOTS: Fate = Fate::Refused("this version has no snapshot backups");
const TAIL: Fate = Fate::Refused("only its administrator stops a server");
const STANDBY: Fate =
    Fate::Refused("a database opened for reading could not continue with the next log set");
const MARK: Fate = Fate::Refused("the log is not searched for marks");
const SERVICE: Fate = Fate::Accepted("the sources have no such feature");

options! {
    BackupOptions "BACKUP_OPTIONS" Text [BACKUP] YES, NOT
    BlockSize "BLOCKSIZE" Number [BACKUP RESTORE VERIFY_ONLY] Fate::Accepted("checked; stripes have no blocks"), Fate::Accepted("checked; stripes have no blocks")
    BufferCount "BUFFERCOUNT" Number [BACKUP RESTORE VERIFY_ONLY] YES, YES
    Checksum "CHECKSUM" Flag [BACKUP READ] Fate::Accepted("every set has checksums"), Fate::Accepted("checksums are always verified")
    Compression "COMPRESSION" Compression [BACKUP] YES, NOT
    ContinueAfterError "CONTINUE_AFTER_ERROR" Flag [BACKUP READ] YES, YES
    CopyOnly "COPY_ONLY" Flag [BACKUP] YES, NOT
    Credential "CREDENTIAL" Text [BACKUP READ] YES, YES
    DbName "DBNAME" Text [RESTORE_DATABASE] NOT, SNAPSHOTS
    Description "DESCRIPTION" Text [BACKUP] YES, NOT
    Differential "DIFFERENTIAL" Flag [BACKUP_DATABASE] YES, NOT
    EnableBroker "ENABLE_BROKER" Flag [RESTORE_DATABASE] NOT, SERVICE
    Encryption "ENCRYPTION" Encryption [BACKUP] YES, NOT
    ErrorBroker "ERROR_BROKER_CONVERSATIONS" Flag [RESTORE_DATABASE] NOT, SERVICE
    ExpireDate "EXPIREDATE" Text [BACKUP] YES, NOT
    File "FILE" Integer [RESTORE VERIFY_ONLY HEADER_ONLY FILE_LIST_ONLY] NOT, YES
    FileSnapshot "FILE_SNAPSHOT" Flag [BACKUP] SNAPSHOTS, NOT
    FileStream "FILESTREAM" DirectoryName [RESTORE_DATABASE] NOT, Fate::Refused("no source has FILESTREAM data")
    Format "FORMAT" Flag [BACKUP] YES, NOT
    Init "INIT" Flag [BACKUP] YES, NOT
    KeepCdc "KEEP_CDC" Flag [RESTORE] NOT, SERVICE
    KeepReplication "KEEP_REPLICATION" Flag [RESTORE] NOT, SERVICE
    KeepTemporalRetention "KEEP_TEMPORAL_RETENTION" Flag [RESTORE] NOT, SERVICE
    LoadHistory "LOADHISTORY" Flag [VERIFY_ONLY] NOT, YES
    MaxCpuPercent "MAX_CPU_PERCENT" Number [BACKUP RESTORE VERIFY_ONLY] YES, YES; ours
    MaxRate "MAX_RATE" Number [BACKUP RESTORE VERIFY_ONLY] YES, YES; ours
    MaxTransferSize "MAXTRANSFERSIZE" Number [BACKUP RESTORE VERIFY_ONLY] YES, Fate::Accepted("no effect: a set is read in the blocks that it was made in, and the answer says so")
    MediaDescription "MEDIADESCRIPTION" Text [BACKUP] YES, NOT
    MediaName "MEDIANAME" Text [BACKUP READ] YES, YES
    MediaPassword "MEDIAPASSWORD" Text [READ] NOT, Fate::Refused("media have no passwords")
    MetadataOnly "METADATA_ONLY" Flag [BACKUP RESTORE] SNAPSHOTS, SNAPSHOTS
    Move "MOVE" Move [RESTORE VERIFY_ONLY] NOT, YES
    Name "NAME" Text [BACKUP] YES, NOT
    NewBroker "NEW_BROKER" Flag [RESTORE_DATABASE] NOT, SERVICE
    NoChecksum "NO_CHECKSUM" Flag [BACKUP READ] Fate::Accepted("every set has checksums anyway"), Fate::Accepted("checksums are verified anyway")
    NoCompression "NO_COMPRESSION" Flag [BACKUP] YES, NOT
    NoFormat "NOFORMAT" Flag [BACKUP] YES, NOT
    NoInit "NOINIT" Flag [BACKUP] YES, NOT
    NoRecovery "NORECOVERY" Flag [BACKUP_LOG RESTORE] TAIL, YES
    NoRewind "NOREWIND" Flag [BACKUP READ] TAPE, TAPE
    NoSkip "NOSKIP" Flag [BACKUP] YES, NOT
    NoTruncate "NO_TRUNCATE" Flag [BACKUP_LOG] Fate::Refused("the server must run to switch its log; without a server restore from its archive"), NOT
    NoUnload "NOUNLOAD" Flag [BACKUP READ] TAPE, TAPE
    Parity "PARITY" Number [BACKUP_DATABASE] YES, NOT; ours
    Partial "PARTIAL" Flag [RESTORE_DATABASE] NOT, Fate::Refused("a database is always restored whole")
    Password "PASSWORD" Text [READ] NOT, Fate::Refused("sets have no passwords")
    Recovery "RECOVERY" Flag [RESTORE] NOT, YES
    Replace "REPLACE" Flag [RESTORE] NOT, YES
    Restart "RESTART" Flag [BACKUP RESTORE] Fate::Accepted("it has no effect in SQL Server either"), Fate::Accepted("an interrupted restore starts again")
    RestoreOptions "RESTORE_OPTIONS" Text [READ] NOT, YES
    RestrictedUser "RESTRICTED_USER" Flag [RESTORE] NOT, Fate::Refused("the users of the files are not stored with the database")
    RetainDays "RETAINDAYS" Number [BACKUP] YES, NOT
    Rewind "REWIND" Flag [BACKUP READ] TAPE, TAPE
    Skip "SKIP" Flag [BACKUP] YES, NOT
    Snapshot "SNAPSHOT" Flag [BACKUP RESTORE] SNAPSHOTS, SNAPSHOTS
    Standby "STANDBY" Text [BACKUP_LOG RESTORE] TAIL, STANDBY
    Stats "STATS" OptionalNumber [BACKUP RESTORE VERIFY_ONLY] YES, YES
    StopAt "STOPAT" Text [RESTORE] NOT, YES
    StopAtMark "STOPATMARK" Mark [RESTORE] NOT, MARK
    StopBeforeMark "STOPBEFOREMARK" Mark [RESTORE] NOT, MARK
    StopOnError "STOP_ON_ERROR" Flag [BACKUP READ] YES, Fate::Accepted("a restore always stops; VERIFYONLY reports all damage")
    Tolerate "TOLERATE" Number [BACKUP_DATABASE] YES, NOT; ours
    Unload "UNLOAD" Flag [BACKUP READ] TAPE, TAPE
}

/// The verb whose options are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Backup,
    Restore,
}

impl Verb {
    pub fn word(self) -> &'static str {
        match self {
            Verb::Backup => "BACKUP",
            Verb::Restore => "RESTORE",
        }
    }

    fn statements(self) -> Applies {
        match self {
            Verb::Backup => Applies::BACKUP,
            Verb::Restore => Applies::READ,
        }
    }
}

impl Key {
    /// Its line of the table.
    pub fn spec(self) -> &'static Spec {
        &OPTIONS[self as usize]
    }

    /// Its name in messages.
    pub fn word(self) -> &'static str {
        self.spec().word
    }

    /// The option of a verb by name, ignoring case.
    pub fn find(verb: Verb, word: &str) -> Option<&'static Spec> {
        OPTIONS
            .iter()
            .find(|s| s.word.eq_ignore_ascii_case(word))
            .filter(|s| s.applies.has(verb.statements()))
    }

    /// The option of a verb that a misspelt `word` most likely means: at most a third of its letters differ.
    pub fn nearest(verb: Verb, word: &str) -> Option<&'static str> {
        let word = word.to_ascii_uppercase();
        let known = OPTIONS
            .iter()
            .filter(|s| s.applies.has(verb.statements()))
            .map(|s| (distance(word.as_bytes(), s.word.as_bytes()), s.word));
        let (differ, nearest) = known.min()?;
        (0 < differ && differ * 3 <= nearest.len()).then_some(nearest)
    }
}

/// The letters to insert, remove or replace that make one word the other (Levenshtein 1966).
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_option_has_a_nearest_one_and_a_foreign_word_has_none() {
        for (word, nearest) in [
            ("COMPRESION", Some("COMPRESSION")),
            ("compresssion", Some("COMPRESSION")),
            ("CHEKSUM", Some("CHECKSUM")),
            ("FOO", None),
            ("TRUNCATE_ONLY", None),
            ("COMPRESSION", None),
        ] {
            assert_eq!(Key::nearest(Verb::Backup, word), nearest, "{word}");
        }
    }

    #[test]
    fn options_ascend_by_word_but_for_underscores_and_are_found_by_it() {
        for (i, spec) in OPTIONS.iter().enumerate() {
            assert_eq!(spec.key as usize, i);
            assert_eq!(spec.key.word(), spec.word);
            let verbs = [Verb::Backup, Verb::Restore];
            let found = |v: &Verb| Key::find(*v, &spec.word.to_lowercase()).map(|s| s.key);
            assert!(verbs.iter().any(|v| found(v) == Some(spec.key)));
        }
        let mut words: Vec<_> = OPTIONS.iter().map(|s| s.word).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), OPTIONS.len());
    }

    #[test]
    fn an_option_is_said_to_belong_nowhere_only_where_it_does_not_apply() {
        for spec in OPTIONS {
            let backup = spec.applies.has(Applies::BACKUP);
            let read = spec.applies.has(Applies::READ);
            assert_eq!(spec.in_backup == NOT, !backup, "{}", spec.word);
            assert_eq!(spec.in_restore == NOT, !read, "{}", spec.word);
        }
    }
}
