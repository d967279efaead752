//! Statements as trees. Names are decoded; options keep their order.
//!
//! Invariants
//! - A tree has everything that its statement said, so it can be printed and parsed again to the same tree; only line
//!   breaks and comments are gone.
//! - Lines are kept for messages and do not count in comparisons. A secret does not either: no text shows it.
//!
//! Leaves to others: making trees (`parser`), printing them (`print.rs`), and their meaning (`statement`, `query`).

use zeroize::Zeroizing;

use crate::syntax::option::Key;

/// The text between two GOs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    pub statements: Vec<LocatedStatement>,
}

/// A statement and the line it begins on.
#[derive(Debug, Clone)]
pub struct LocatedStatement {
    /// From 1.
    pub line: u32,
    pub statement: Statement,
}

impl PartialEq for LocatedStatement {
    /// Printing moves statements to other lines, so lines are not compared.
    fn eq(&self, other: &LocatedStatement) -> bool {
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
    /// A statement of SQL Server's that is refused by name when it is reached.
    Refused {
        /// The words of the refusal.
        what: String,
        /// The statement, without the literals of a secret.
        text: String,
    },
    /// `KILL 52`; `status`: WITH STATUSONLY.
    Kill {
        session: i64,
        status: bool,
    },
    /// `ALTER DATABASE … SET SINGLE_USER`, `SET RECOVERY SIMPLE`; the clause about other users is dropped.
    AlterAccess {
        database: String,
        access: String,
    },
    DropDatabase {
        if_exists: bool,
        names: Vec<String>,
    },
    /// CREATE, ALTER or DROP CREDENTIAL
    Credential(Box<CredentialStatement>),
    /// About the master key or a certificate.
    Key(Box<KeyStatement>),
    Declare(Vec<Declaration>),
    /// `SET @variable = expression`, also with `+=` and similar operators.
    Assign {
        variable: String,
        /// Empty, `+`, `-`, `*`, `/` or `%`.
        operator: String,
        value: Fragment,
    },
    /// `SET NOCOUNT ON`: a session option, as words.
    SetOption(Vec<String>),
    Print(Fragment),
    Execute(Execute),
    /// `EXEC (text)`
    ExecuteText(Fragment),
    Dbcc(Dbcc),
    Query(Fragment),
    If {
        condition: Fragment,
        then: Box<LocatedStatement>,
        otherwise: Option<Box<LocatedStatement>>,
    },
    While {
        condition: Fragment,
        body: Box<LocatedStatement>,
    },
    Block(Vec<LocatedStatement>),
    Try {
        body: Vec<LocatedStatement>,
        catch: Vec<LocatedStatement>,
    },
    Transaction(Transaction),
    /// The same with the name of the transaction, or of a savepoint in it.
    NamedTransaction(Transaction, Name),
    Break,
    Continue,
    Return,
    /// `RETURN value`: only a procedure may, so another batch that has one is refused.
    ReturnValue(Fragment),
    Raise(Box<Raise>),
    /// `None`: the error that the CATCH block handles is raised again.
    Throw(Option<Box<Throw>>),
    /// WAITFOR
    Wait {
        /// TIME: up to a time of day; otherwise DELAY: for so long.
        until: bool,
        time: Operand,
    },
    Goto(String),
    Label(String),
    DeclareCursor(Box<DeclaredCursor>),
    /// `SET @variable = CURSOR … FOR …`
    SetCursor {
        variable: String,
        cursor: Box<CursorQuery>,
    },
    OpenCursor(CursorName),
    CloseCursor(CursorName),
    DeallocateCursor(CursorName),
    Fetch(Box<Fetch>),
    CreateTable {
        name: Vec<String>,
        table: TableSpec,
    },
    /// `DECLARE @variable TABLE (…)`
    DeclareTable {
        variable: String,
        table: TableSpec,
    },
    AlterTable {
        name: Vec<String>,
        change: TableChange,
    },
    /// DROP TABLE, DROP PROCEDURE
    DropObjects {
        kind: ObjectKind,
        if_exists: bool,
        names: Vec<Vec<String>>,
    },
    CreateIndex(Box<IndexSpec>),
    DropIndex {
        if_exists: bool,
        name: String,
        table: Vec<String>,
    },
    Truncate(Vec<String>),
    /// SET IDENTITY_INSERT
    IdentityInsert {
        table: Vec<String>,
        on: bool,
    },
    Insert(Box<Insert>),
    Update(Box<Update>),
    Delete(Box<Delete>),
    Merge(Box<Merge>),
    /// CREATE or ALTER of a procedure, a function or a view.
    Routine(Box<Routine>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    Table,
    Procedure,
    Function,
    View,
}

/// The columns and the constraints of a table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TableSpec {
    pub columns: Vec<ColumnSpec>,
    pub constraints: Vec<ConstraintSpec>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ColumnSpec {
    pub name: String,
    pub kind: TypeName,
    /// `None`: not said.
    pub nullable: Option<bool>,
    /// Its seed and its increment.
    pub identity: Option<(i64, i64)>,
    pub default: Option<Fragment>,
    /// The expression of a computed column; its type is empty where the expression does not end with it.
    pub computed: Option<Fragment>,
    /// `WITH VALUES`: rows that are there get the default.
    pub fills: bool,
}

/// PRIMARY KEY, UNIQUE, FOREIGN KEY or CHECK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConstraintSpec {
    pub name: Option<String>,
    pub kind: ConstraintKind,
    pub columns: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConstraintKind {
    Primary,
    Unique,
    Foreign {
        table: Vec<String>,
        columns: Vec<String>,
    },
    Check(Fragment),
}

/// ALTER TABLE
#[derive(Debug, Clone, PartialEq)]
pub enum TableChange {
    Add(TableSpec),
    AlterColumn(ColumnSpec),
    DropColumns(Vec<String>),
    DropConstraints(Vec<String>),
    /// `CHECK CONSTRAINT`, `NOCHECK CONSTRAINT`; `None`: ALL.
    Check {
        on: bool,
        name: Option<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexSpec {
    pub name: String,
    pub unique: bool,
    pub table: Vec<String>,
    pub columns: Vec<String>,
}

/// INSERT
#[derive(Debug, Clone, PartialEq)]
pub struct Insert {
    /// The WITH clause before it.
    pub with: Option<Fragment>,
    pub top: Option<Top>,
    /// A table variable has one part, with its @.
    pub table: Vec<String>,
    pub columns: Vec<String>,
    pub output: Option<OutputClause>,
    pub source: InsertSource,
}

#[derive(Debug, Clone, PartialEq)]
pub enum InsertSource {
    /// `None`: DEFAULT.
    Values(Vec<Vec<Option<Fragment>>>),
    Query(Fragment),
    /// EXEC, also of a text.
    Execute(Box<LocatedStatement>),
    DefaultValues,
}

/// TOP of a statement that changes rows: how many of them, or how many of a hundred.
#[derive(Debug, Clone, PartialEq)]
pub struct Top {
    pub count: Fragment,
    pub percent: bool,
}

/// UPDATE
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    pub with: Option<Fragment>,
    pub top: Option<Top>,
    /// Its name, or an alias of the FROM clause.
    pub table: Vec<String>,
    pub sets: Vec<SetClause>,
    pub output: Option<OutputClause>,
    /// `FROM … WHERE …`
    pub rest: Option<Fragment>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SetClause {
    /// A variable that gets the value, too.
    pub variable: Option<String>,
    /// Empty: only the variable is set.
    pub column: String,
    /// Empty, `+`, `-`, `*`, `/` or `%`.
    pub operator: String,
    /// `None`: DEFAULT.
    pub value: Option<Fragment>,
}

/// DELETE
#[derive(Debug, Clone, PartialEq)]
pub struct Delete {
    pub with: Option<Fragment>,
    pub top: Option<Top>,
    pub table: Vec<String>,
    pub output: Option<OutputClause>,
    pub rest: Option<Fragment>,
}

/// MERGE
#[derive(Debug, Clone, PartialEq)]
pub struct Merge {
    pub with: Option<Fragment>,
    pub top: Option<Top>,
    pub table: Vec<String>,
    pub alias: Option<String>,
    /// A table, or a query in parentheses, with its alias.
    pub source: Fragment,
    pub on: Fragment,
    pub clauses: Vec<MergeClause>,
    pub output: Option<OutputClause>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct MergeClause {
    pub when: MergeRows,
    pub condition: Option<Fragment>,
    pub action: MergeAction,
}

/// The rows that a clause of MERGE is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeRows {
    Matched,
    /// NOT MATCHED BY TARGET
    OnlySource,
    /// NOT MATCHED BY SOURCE
    OnlyTarget,
}

#[derive(Debug, Clone, PartialEq)]
pub enum MergeAction {
    Update(Vec<SetClause>),
    Delete,
    Insert {
        columns: Vec<String>,
        /// `None`: DEFAULT.
        values: Vec<Option<Fragment>>,
    },
    InsertDefaults,
}

/// OUTPUT
#[derive(Debug, Clone, PartialEq)]
pub struct OutputClause {
    pub items: Fragment,
    /// The table of INTO and its columns.
    pub into: Option<(Vec<String>, Vec<String>)>,
}

/// CREATE or ALTER of a procedure, a function or a view, which is a batch of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Routine {
    pub verb: RoutineVerb,
    pub kind: RoutineKind,
    pub name: Vec<String>,
    pub parameters: Vec<RoutineParameter>,
    pub body: Vec<LocatedStatement>,
    /// The whole batch.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum RoutineKind {
    Procedure,
    /// A function of one value.
    Scalar {
        returns: TypeName,
        /// RETURNS NULL ON NULL INPUT
        strict: bool,
    },
    /// RETURNS TABLE, with its query.
    Inline(Fragment),
    /// `RETURNS @variable TABLE (…)`
    Rows {
        variable: String,
        table: TableSpec,
    },
    View {
        /// Empty: those of the query.
        columns: Vec<String>,
        query: Fragment,
    },
}

impl RoutineKind {
    /// Its type in `sys.objects`.
    pub fn code(&self) -> &'static str {
        match self {
            RoutineKind::Procedure => "P",
            RoutineKind::Scalar { .. } => "FN",
            RoutineKind::Inline(_) => "IF",
            RoutineKind::Rows { .. } => "TF",
            RoutineKind::View { .. } => "V",
        }
    }

    /// As statements name it.
    pub fn word(&self) -> &'static str {
        match self {
            RoutineKind::Procedure => "PROCEDURE",
            RoutineKind::View { .. } => "VIEW",
            _ => "FUNCTION",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoutineVerb {
    Create,
    Alter,
    CreateOrAlter,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RoutineParameter {
    /// With its @.
    pub name: String,
    pub kind: TypeName,
    pub default: Option<Operand>,
    pub output: bool,
}

/// A statement about a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialStatement {
    pub name: String,
    pub change: CredentialChange,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialChange {
    Create(CredentialText),
    Alter(CredentialText),
    Drop,
}

/// The content of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialText {
    pub identity: String,
    pub secret: Option<Hidden>,
}

/// A statement about the master key or a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyStatement {
    CreateMaster {
        password: Hidden,
    },
    OpenMaster {
        password: Hidden,
    },
    CloseMaster,
    AlterMaster(MasterChange),
    BackupMaster {
        file: String,
        password: Hidden,
    },
    RestoreMaster {
        file: String,
        /// Of the file.
        decryption: Hidden,
        /// Of the master key from now on.
        encryption: Hidden,
        force: bool,
    },
    DropMaster,
    CreateCertificate {
        name: String,
        from: CertificateOrigin,
    },
    BackupCertificate {
        name: String,
        file: String,
        private_key: Option<PrivateKeyFile>,
    },
    DropCertificate {
        name: String,
    },
}

/// ALTER MASTER KEY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MasterChange {
    Regenerate { force: bool, password: Hidden },
    AddService,
    DropService,
    AddPassword(Hidden),
    DropPassword(Hidden),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateOrigin {
    New {
        /// `None`: the master key encrypts the private key.
        password: Option<Hidden>,
        subject: String,
        start: Option<String>,
        expiry: Option<String>,
    },
    File {
        file: String,
        private_key: Option<PrivateKeyFile>,
    },
}

/// `PRIVATE KEY (…)`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateKeyFile {
    pub file: String,
    pub decryption: Option<Hidden>,
    pub encryption: Option<Hidden>,
}

/// A secret. No text shows it, so it does not count in comparisons either.
#[derive(Clone)]
pub struct Hidden(Zeroizing<String>);

impl Hidden {
    pub fn new(secret: String) -> Hidden {
        Hidden(Zeroizing::new(secret))
    }

    /// For those who keep it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl PartialEq for Hidden {
    fn eq(&self, _other: &Hidden) -> bool {
        true
    }
}

impl Eq for Hidden {}

/// RAISERROR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raise {
    /// A text, a number of `sys.messages`, or a variable with one of the two.
    pub message: Operand,
    pub severity: Operand,
    pub state: Operand,
    pub arguments: Vec<Operand>,
    /// WITH LOG
    pub log: bool,
    /// WITH NOWAIT
    pub no_wait: bool,
    /// WITH SETERROR
    pub set_error: bool,
}

/// THROW with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Throw {
    pub number: Operand,
    pub message: Operand,
    pub state: Operand,
}

/// `DECLARE name CURSOR`
#[derive(Debug, Clone, PartialEq)]
pub struct DeclaredCursor {
    pub name: String,
    pub cursor: CursorQuery,
}

/// A cursor's query and its options.
#[derive(Debug, Clone, PartialEq)]
pub struct CursorQuery {
    /// The form of SQL-92, with the options before CURSOR: INSENSITIVE, SCROLL.
    pub is_iso: bool,
    /// In the order in which they were written.
    pub options: Vec<CursorOption>,
    pub query: Fragment,
    /// FOR READ ONLY
    pub for_read_only: bool,
}

/// An option of a cursor. The order is that in which a conflict names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CursorOption {
    Local,
    Global,
    ForwardOnly,
    Scroll,
    Static,
    Insensitive,
    Keyset,
    Dynamic,
    FastForward,
    ReadOnly,
    ScrollLocks,
    Optimistic,
    TypeWarning,
}

/// A cursor as statements name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CursorName {
    Named { global: bool, name: String },
    Variable(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    pub which: FetchRow,
    pub cursor: CursorName,
    /// The variables of INTO; empty: the row goes to the client.
    pub into: Vec<String>,
}

/// The row of a FETCH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchRow {
    Next,
    Prior,
    First,
    Last,
    Absolute(Operand),
    Relative(Operand),
}

/// Begins or ends a transaction, or marks a point in it. Rows of tables are all that can be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transaction {
    Begin,
    Commit,
    Rollback,
    /// A point to which ROLLBACK with its name returns. It always has a name.
    Save,
}

/// A run of tokens separated by single blanks: a query or an expression.
#[derive(Debug, Clone, Eq)]
pub struct Fragment {
    pub text: String,
    /// The line of the first token in the batch, from 1.
    line: u32,
    /// Where a token begins a new line: its offset in `text`, and its line in the batch. In ascending order.
    breaks: Vec<(u32, u32)>,
}

impl Fragment {
    /// A text on the first line.
    pub fn new(text: String) -> Fragment {
        Fragment::at_lines(text, vec![(0, 1)])
    }

    /// A text that a statement on this line means.
    pub(crate) fn at_line(text: String, line: u32) -> Fragment {
        Fragment::at_lines(text, vec![(0, line)])
    }

    /// The same behind another text.
    pub(crate) fn after(&self, text: &str) -> Fragment {
        let moved = self.breaks.iter();
        let moved = moved.map(|(at, line)| (at + text.len() as u32, *line));
        Fragment {
            text: format!("{text}{}", self.text),
            line: self.line,
            breaks: moved.collect(),
        }
    }

    /// `lines`: offsets of tokens in `text` and their lines, in ascending order, the first token's first.
    pub(crate) fn at_lines(text: String, mut lines: Vec<(u32, u32)>) -> Fragment {
        let line = match lines.is_empty() {
            true => 1,
            false => lines.remove(0).1,
        };
        lines.shrink_to_fit();
        Fragment {
            text,
            line,
            breaks: lines,
        }
    }

    /// The line in the batch of the token at this offset in the text.
    pub fn line_at(&self, at: usize) -> u32 {
        let begun = self
            .breaks
            .partition_point(|(from, _)| *from as usize <= at);
        let last = begun.checked_sub(1).map(|i| self.breaks[i].1);
        last.unwrap_or(self.line)
    }
}

impl PartialEq for Fragment {
    /// Printing moves tokens to other lines, so lines are not compared.
    fn eq(&self, other: &Fragment) -> bool {
        self.text == other.text
    }
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
    /// A number with a fraction or an exponent, as written.
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

/// The selected part of a database; empty means all.
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
    /// Each is a whole copy.
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
    /// Empty: bring a restored database online.
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
        /// Otherwise an asymmetric key.
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
    /// A number of the algorithm's own scale; our extension.
    Number(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardwareOffload {
    pub on: bool,
    pub accelerator: String,
    /// `MODE = SOFTWARE`, and our extension `MODE = HYBRID`.
    pub mode: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    /// With its @.
    pub variable: String,
    /// As written, without blanks: `nvarchar(128)`.
    pub kind: TypeName,
    pub value: Option<Fragment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeName {
    pub name: String,
    /// A size of `max` is `None`.
    pub sizes: Vec<Option<u32>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execute {
    /// `EXEC @code = procedure`
    pub code: Option<String>,
    /// The parts of its name; omitted parts are empty.
    pub procedure: Vec<String>,
    /// A variable that has the name, instead.
    pub name_in: Option<String>,
    pub arguments: Vec<Argument>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// With its @; `None`: by position.
    pub name: Option<String>,
    /// `None`: DEFAULT.
    pub value: Option<Operand>,
    pub output: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dbcc {
    pub command: String,
    pub arguments: Vec<Operand>,
    /// `WITH NO_INFOMSGS, MAXDOP = 2`
    pub options: Vec<(String, Option<i64>)>,
}
