//! Statements as they were meant. Names are decoded; options stand in the order they were written in.

use crate::syntax::option::Key;

/// What stands between two GOs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    pub statements: Vec<Located>,
}

/// A statement and the line it begins on.
#[derive(Debug, Clone)]
pub struct Located {
    /// From 1.
    pub line: u32,
    pub statement: Statement,
}

impl PartialEq for Located {
    /// Printing moves statements to other lines.
    fn eq(&self, other: &Located) -> bool {
        self.statement == other.statement
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    Backup(Box<Backup>),
    Restore(Box<Restore>),
    HardwareOffload(HardwareOffload),
    Reconfigure {
        with_override: bool,
    },
    Use(String),
    /// `ALTER DATABASE … SET SINGLE_USER`; how others are to be sent away is not kept.
    AlterAccess {
        database: String,
        access: String,
    },
    DropDatabase {
        if_exists: bool,
        names: Vec<String>,
    },
    Declare(Vec<Declaration>),
    /// `SET @variable = expression`, and with `+=` and its kin.
    Assign {
        variable: String,
        /// Empty, `+`, `-`, `*`, `/` or `%`.
        operator: String,
        value: Fragment,
    },
    /// `SET NOCOUNT ON`: what clients set for a session, as words.
    SetOption(Vec<String>),
    Print(Fragment),
    Execute(Execute),
    /// `EXEC (text)`
    ExecuteText(Fragment),
    Dbcc(Dbcc),
    Query(Fragment),
    If {
        condition: Fragment,
        then: Box<Located>,
        otherwise: Option<Box<Located>>,
    },
    While {
        condition: Fragment,
        body: Box<Located>,
    },
    Block(Vec<Located>),
    Try {
        body: Vec<Located>,
        catch: Vec<Located>,
    },
    Transaction(Transaction),
    Break,
    Continue,
    Return,
}

/// Begins or ends a transaction. Nothing here can be undone: they are counted, because clients open them unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transaction {
    Begin,
    Commit,
    Rollback,
}

/// A run of tokens, one blank between each: a query or an expression.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fragment {
    pub text: String,
}

/// A name that may come from a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    Literal(String),
    Variable(String),
}

/// The value of an option or an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    Integer(i64),
    /// A number with a fraction or an exponent, as it was written.
    Number(String),
    Text(String),
    Variable(String),
    Null,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    Disk,
    Tape,
    Url,
    Virtual,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// Made with `sp_addumpdevice`.
    Logical(Name),
    Physical {
        kind: DeviceKind,
        name: Operand,
    },
}

/// The part of a database that is meant; nothing of it means all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    File(Vec<Operand>),
    FileGroup(Vec<Operand>),
    ReadWriteFileGroups,
    Page(Operand),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Backup {
    pub what: BackupWhat,
    pub to: Vec<Device>,
    /// Each a whole copy.
    pub mirrors: Vec<Vec<Device>>,
    pub options: Vec<Setting>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackupWhat {
    Database { name: Name, parts: Vec<Part> },
    Log { name: Name },
    Group(Vec<String>),
    Server,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Restore {
    pub what: RestoreWhat,
    /// Empty: bring online what was restored before.
    pub from: Vec<Device>,
    pub options: Vec<Setting>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreWhat {
    Database { name: Name, parts: Vec<Part> },
    Log { name: Name, parts: Vec<Part> },
    Snapshot { name: Name, snapshot: Operand },
    HeaderOnly,
    FileListOnly,
    LabelOnly,
    VerifyOnly,
    RewindOnly,
}

/// One option after WITH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub key: Key,
    pub value: SettingValue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingValue {
    None,
    Operand(Operand),
    Compression(Compression),
    Encryption {
        algorithm: String,
        /// Else an asymmetric key.
        certificate: bool,
        encryptor: String,
    },
    Move {
        from: Operand,
        to: Operand,
    },
    Mark {
        mark: Operand,
        after: Option<Operand>,
    },
    /// `None`: NULL.
    DirectoryName(Option<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compression {
    pub algorithm: String,
    pub level: Option<LevelWord>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LevelWord {
    Word(String),
    /// Of the algorithm's own scale; ours.
    Number(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardwareOffload {
    pub on: bool,
    pub accelerator: String,
    /// `MODE = SOFTWARE`, and ours `MODE = HYBRID`.
    pub mode: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    /// With its @.
    pub variable: String,
    /// As it was written, without blanks: `nvarchar(128)`.
    pub kind: TypeName,
    pub value: Option<Fragment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeName {
    pub name: String,
    /// `max` is `None` within.
    pub sizes: Vec<Option<u32>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execute {
    /// `EXEC @code = procedure`
    pub code: Option<String>,
    /// The parts of its name; parts left out are empty.
    pub procedure: Vec<String>,
    pub arguments: Vec<Argument>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// With its @; `None`: by its place.
    pub name: Option<String>,
    /// `None`: DEFAULT.
    pub value: Option<Operand>,
    pub output: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dbcc {
    pub command: String,
    pub arguments: Vec<Operand>,
    /// `WITH NO_INFOMSGS`
    pub options: Vec<String>,
}
