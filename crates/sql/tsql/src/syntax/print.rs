//! Prints statements as text that parses to the same statements.
//!
//! Invariants
//! - A printed statement parses to the same statement, which a property test holds: names are bracketed, texts quoted,
//!   and nothing is abbreviated.
//! - The text is for messages and for tests of the parser; line breaks and comments of the original are lost.
//!
//! Leaves to others: the trees (`ast.rs`) and parsing them (`parser`).

use std::fmt::{self, Display, Formatter, Write};

use crate::syntax::ast::*;
use crate::syntax::option::Key;
use crate::syntax::parser::word_of;

pub(super) fn bracketed(name: &str) -> String {
    format!("[{}]", name.replace(']', "]]"))
}

fn quoted(text: &str) -> String {
    let text = text.replace('\'', "''");
    // A backslash at the end of a line continues it: one more of both stands for both.
    let text = text.replace("\\\r\n", "\\\\\r\n\r\n");
    let text = text.replace("\\\n", "\\\\\n\n");
    format!("N'{text}'")
}

/// Parts with a separator.
pub(super) fn joined<T: Display>(f: &mut Formatter<'_>, all: &[T], between: &str) -> fmt::Result {
    for (i, one) in all.iter().enumerate() {
        if i > 0 {
            f.write_str(between)?;
        }
        write!(f, "{one}")?;
    }
    Ok(())
}

fn with(f: &mut Formatter<'_>, options: &[Setting]) -> fmt::Result {
    if !options.is_empty() {
        f.write_str(" WITH ")?;
        joined(f, options, ", ")?;
    }
    Ok(())
}

pub(super) fn statements(f: &mut Formatter<'_>, all: &[LocatedStatement]) -> fmt::Result {
    all.iter()
        .try_for_each(|located| writeln!(f, "{};", located.statement))
}

impl Display for Batch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        statements(f, &self.statements)
    }
}

impl Display for Fragment {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Name::Literal(name) => f.write_str(&bracketed(name)),
            Name::Variable(name) => f.write_str(name),
        }
    }
}

impl Display for Transaction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transaction::Begin => "BEGIN",
            Transaction::Commit => "COMMIT",
            Transaction::Rollback => "ROLLBACK",
            Transaction::Save => "SAVE",
        })
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Integer(n) => write!(f, "{n}"),
            Operand::Number(n) | Operand::Variable(n) => f.write_str(n),
            Operand::Text(text) => f.write_str(&quoted(text)),
            Operand::Null => f.write_str("NULL"),
        }
    }
}

impl Display for Device {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Device::Logical(name) => write!(f, "{name}"),
            Device::Physical { kind, name } => {
                let kind = match kind {
                    DeviceKind::Disk => "DISK",
                    DeviceKind::Tape => "TAPE",
                    DeviceKind::Url => "URL",
                    DeviceKind::Virtual => "VIRTUAL_DEVICE",
                };
                write!(f, "{kind} = {name}")
            }
        }
    }
}

impl Display for Part {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (word, texts) = match self {
            Part::ReadWriteFileGroups => return f.write_str("READ_WRITE_FILEGROUPS"),
            Part::Page(page) => return write!(f, "PAGE = {page}"),
            Part::File(texts) => ("FILE", texts),
            Part::FileGroup(texts) => ("FILEGROUP", texts),
        };
        write!(f, "{word} = (")?;
        joined(f, texts, ", ")?;
        f.write_str(")")
    }
}

fn parts(f: &mut Formatter<'_>, all: &[Part]) -> fmt::Result {
    if !all.is_empty() {
        f.write_str(" ")?;
        joined(f, all, ", ")?;
    }
    Ok(())
}

impl Display for Backup {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.what {
            BackupWhat::Database { name, parts: all } => {
                write!(f, "BACKUP DATABASE {name}")?;
                parts(f, all)?;
            }
            BackupWhat::Log { name } => write!(f, "BACKUP LOG {name}")?,
            BackupWhat::Group(names) => {
                let names: Vec<_> = names.iter().map(|n| bracketed(n)).collect();
                write!(f, "BACKUP GROUP {}", names.join(", "))?;
            }
            BackupWhat::Server => f.write_str("BACKUP SERVER")?,
        }
        f.write_str(" TO ")?;
        joined(f, &self.to, ", ")?;
        for mirror in &self.mirrors {
            f.write_str(" MIRROR TO ")?;
            joined(f, mirror, ", ")?;
        }
        with(f, &self.options)
    }
}

impl Display for Restore {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("RESTORE ")?;
        match &self.what {
            RestoreWhat::Database { name, parts: all } => {
                write!(f, "DATABASE {name}")?;
                parts(f, all)?;
            }
            RestoreWhat::Log { name, parts: all } => {
                write!(f, "LOG {name}")?;
                parts(f, all)?;
            }
            RestoreWhat::Snapshot { name, snapshot } => {
                return write!(f, "DATABASE {name} FROM DATABASE_SNAPSHOT = {snapshot}");
            }
            RestoreWhat::HeaderOnly => f.write_str("HEADERONLY")?,
            RestoreWhat::FileListOnly => f.write_str("FILELISTONLY")?,
            RestoreWhat::LabelOnly => f.write_str("LABELONLY")?,
            RestoreWhat::VerifyOnly => f.write_str("VERIFYONLY")?,
            RestoreWhat::RewindOnly => f.write_str("REWINDONLY")?,
        }
        if !self.from.is_empty() {
            f.write_str(" FROM ")?;
            joined(f, &self.from, ", ")?;
        }
        with(f, &self.options)
    }
}

impl Display for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Display for Setting {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let key = self.key;
        match &self.value {
            SettingValue::None => write!(f, "{key}"),
            SettingValue::Operand(value) => write!(f, "{key} = {value}"),
            SettingValue::Compression(compression) => {
                write!(f, "{key} (ALGORITHM = {}", compression.algorithm)?;
                match &compression.level {
                    Some(LevelWord::Word(word)) => write!(f, ", LEVEL = {word}")?,
                    Some(LevelWord::Number(n)) => write!(f, ", LEVEL = {n}")?,
                    None => {}
                }
                f.write_str(")")
            }
            SettingValue::Encryption {
                algorithm,
                certificate,
                encryptor,
            } => {
                let kind = match certificate {
                    true => "CERTIFICATE",
                    false => "ASYMMETRIC KEY",
                };
                let encryptor = bracketed(encryptor);
                write!(
                    f,
                    "{key} (ALGORITHM = {algorithm}, SERVER {kind} = {encryptor})"
                )
            }
            SettingValue::Move { from, to } => write!(f, "{key} {from} TO {to}"),
            SettingValue::Mark { mark, after } => {
                write!(f, "{key} = {mark}")?;
                match after {
                    Some(after) => write!(f, " AFTER {after}"),
                    None => Ok(()),
                }
            }
            SettingValue::DirectoryName(name) => {
                let name = name.as_deref().map_or("NULL".to_owned(), quoted);
                write!(f, "{key} (DIRECTORY_NAME = {name})")
            }
        }
    }
}

impl Display for HardwareOffload {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let state = if self.on { "ON" } else { "OFF" };
        write!(
            f,
            "ALTER SERVER CONFIGURATION SET HARDWARE_OFFLOAD = {state} (ACCELERATOR = {}",
            bracketed(&self.accelerator)
        )?;
        match &self.mode {
            Some(mode) => write!(f, ", MODE = {mode})"),
            None => f.write_str(")"),
        }
    }
}

impl Display for TypeName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&bracketed(&self.name))?;
        if self.sizes.is_empty() {
            return Ok(());
        }
        let size = |size: &Option<u32>| size.map_or("max".to_owned(), |n| n.to_string());
        let sizes: Vec<_> = self.sizes.iter().map(size).collect();
        write!(f, "({})", sizes.join(", "))
    }
}

impl Display for Declaration {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.variable, self.kind)?;
        match &self.value {
            Some(value) => write!(f, " = {value}"),
            None => Ok(()),
        }
    }
}

impl Display for Argument {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name} = ")?;
        }
        match &self.value {
            Some(value) => write!(f, "{value}")?,
            None => f.write_str("DEFAULT")?,
        }
        match self.output {
            true => f.write_str(" OUTPUT"),
            false => Ok(()),
        }
    }
}

impl Display for Execute {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("EXEC ")?;
        if let Some(code) = &self.code {
            write!(f, "{code} = ")?;
        }
        let name = |part: &String| match part.is_empty() {
            true => String::new(),
            false => bracketed(part),
        };
        let names: Vec<_> = self.procedure.iter().map(name).collect();
        match &self.name_in {
            Some(variable) => f.write_str(variable)?,
            None => f.write_str(&names.join("."))?,
        }
        if !self.arguments.is_empty() {
            f.write_char(' ')?;
            joined(f, &self.arguments, ", ")?;
        }
        Ok(())
    }
}

impl Display for Dbcc {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "DBCC {}", bracketed(&self.command))?;
        if !self.arguments.is_empty() {
            f.write_str(" (")?;
            joined(f, &self.arguments, ", ")?;
            f.write_str(")")?;
        }
        if !self.options.is_empty() {
            let option = |(name, value): &(String, Option<i64>)| match value {
                Some(value) => format!("{} = {value}", bracketed(name)),
                None => bracketed(name),
            };
            let options: Vec<_> = self.options.iter().map(option).collect();
            write!(f, " WITH {}", options.join(", "))?;
        }
        Ok(())
    }
}

impl Display for CredentialStatement {
    /// The secret is not printed.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = bracketed(&self.name);
        let (verb, text) = match &self.change {
            CredentialChange::Create(text) => ("CREATE", text),
            CredentialChange::Alter(text) => ("ALTER", text),
            CredentialChange::Drop => return write!(f, "DROP CREDENTIAL {name}"),
        };
        let identity = quoted(&text.identity);
        write!(f, "{verb} CREDENTIAL {name} WITH IDENTITY = {identity}")?;
        match text.secret {
            Some(_) => f.write_str(", SECRET = '***'"),
            None => Ok(()),
        }
    }
}

/// The place of a password in print.
const PASSWORD: &str = "PASSWORD = '***'";

impl Display for KeyStatement {
    /// No password is printed.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            KeyStatement::CreateMaster { .. } => {
                write!(f, "CREATE MASTER KEY ENCRYPTION BY {PASSWORD}")
            }
            KeyStatement::OpenMaster { .. } => {
                write!(f, "OPEN MASTER KEY DECRYPTION BY {PASSWORD}")
            }
            KeyStatement::CloseMaster => f.write_str("CLOSE MASTER KEY"),
            KeyStatement::AlterMaster(change) => write!(f, "ALTER MASTER KEY {change}"),
            KeyStatement::BackupMaster { file, .. } => {
                let file = quoted(file);
                write!(
                    f,
                    "BACKUP MASTER KEY TO FILE = {file} ENCRYPTION BY {PASSWORD}"
                )
            }
            KeyStatement::RestoreMaster { file, force, .. } => {
                let file = quoted(file);
                write!(
                    f,
                    "RESTORE MASTER KEY FROM FILE = {file} DECRYPTION BY {PASSWORD} ENCRYPTION BY {PASSWORD}"
                )?;
                f.write_str(if *force { " FORCE" } else { "" })
            }
            KeyStatement::DropMaster => f.write_str("DROP MASTER KEY"),
            KeyStatement::CreateCertificate { name, from } => {
                write!(f, "CREATE CERTIFICATE {} {from}", bracketed(name))
            }
            KeyStatement::BackupCertificate {
                name,
                file,
                private_key,
            } => {
                let (name, file) = (bracketed(name), quoted(file));
                write!(f, "BACKUP CERTIFICATE {name} TO FILE = {file}")?;
                with_private_key(f, private_key.as_ref())
            }
            KeyStatement::DropCertificate { name } => {
                write!(f, "DROP CERTIFICATE {}", bracketed(name))
            }
        }
    }
}

impl Display for MasterChange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            MasterChange::Regenerate { force, .. } => {
                f.write_str(if *force { "FORCE " } else { "" })?;
                write!(f, "REGENERATE WITH ENCRYPTION BY {PASSWORD}")
            }
            MasterChange::AddService => f.write_str("ADD ENCRYPTION BY SERVICE MASTER KEY"),
            MasterChange::DropService => f.write_str("DROP ENCRYPTION BY SERVICE MASTER KEY"),
            MasterChange::AddPassword(_) => write!(f, "ADD ENCRYPTION BY {PASSWORD}"),
            MasterChange::DropPassword(_) => write!(f, "DROP ENCRYPTION BY {PASSWORD}"),
        }
    }
}

impl Display for CertificateOrigin {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            CertificateOrigin::New {
                password,
                subject,
                start,
                expiry,
            } => {
                if password.is_some() {
                    write!(f, "ENCRYPTION BY {PASSWORD} ")?;
                }
                write!(f, "WITH SUBJECT = {}", quoted(subject))?;
                if let Some(start) = start {
                    write!(f, ", START_DATE = {}", quoted(start))?;
                }
                match expiry {
                    Some(expiry) => write!(f, ", EXPIRY_DATE = {}", quoted(expiry)),
                    None => Ok(()),
                }
            }
            CertificateOrigin::File { file, private_key } => {
                write!(f, "FROM FILE = {}", quoted(file))?;
                with_private_key(f, private_key.as_ref())
            }
        }
    }
}

fn with_private_key(f: &mut Formatter<'_>, key: Option<&PrivateKeyFile>) -> fmt::Result {
    let Some(key) = key else {
        return Ok(());
    };
    write!(f, " WITH PRIVATE KEY (FILE = {}", quoted(&key.file))?;
    if key.decryption.is_some() {
        write!(f, ", DECRYPTION BY {PASSWORD}")?;
    }
    if key.encryption.is_some() {
        write!(f, ", ENCRYPTION BY {PASSWORD}")?;
    }
    f.write_str(")")
}

impl Display for Statement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Statement::Backup(backup) => write!(f, "{backup}"),
            Statement::Restore(restore) => write!(f, "{restore}"),
            Statement::HardwareOffload(offload) => write!(f, "{offload}"),
            Statement::Reconfigure {
                with_override: true,
            } => f.write_str("RECONFIGURE WITH OVERRIDE"),
            Statement::Reconfigure {
                with_override: false,
            } => f.write_str("RECONFIGURE"),
            Statement::Use(name) => write!(f, "USE {}", bracketed(name)),
            Statement::Refused { text, .. } => f.write_str(text),
            Statement::Kill { session, status } => {
                let words = if *status { " WITH STATUSONLY" } else { "" };
                write!(f, "KILL {session}{words}")
            }
            Statement::AlterAccess { database, access } => {
                write!(f, "ALTER DATABASE {} SET {access}", bracketed(database))
            }
            Statement::DropDatabase { if_exists, names } => {
                f.write_str("DROP DATABASE ")?;
                if *if_exists {
                    f.write_str("IF EXISTS ")?;
                }
                let names: Vec<_> = names.iter().map(|name| bracketed(name)).collect();
                joined(f, &names, ", ")
            }
            Statement::Credential(credential) => write!(f, "{credential}"),
            Statement::Key(key) => write!(f, "{key}"),
            Statement::Declare(all) => {
                f.write_str("DECLARE ")?;
                joined(f, all, ", ")
            }
            Statement::Assign {
                variable,
                operator,
                value,
            } => write!(f, "SET {variable} {operator}= {value}"),
            Statement::SetOption(words) => write!(f, "SET {}", words.join(" ")),
            Statement::Print(value) => write!(f, "PRINT {value}"),
            Statement::Execute(execute) => write!(f, "{execute}"),
            Statement::ExecuteText(text) => write!(f, "EXEC ({text})"),
            Statement::Dbcc(dbcc) => write!(f, "{dbcc}"),
            Statement::Query(query) => write!(f, "{query}"),
            Statement::If {
                condition,
                then,
                otherwise,
            } => {
                // Blocks keep each ELSE with its IF.
                writeln!(f, "IF {condition}")?;
                write!(f, "{}", then.statement)?;
                match otherwise {
                    Some(otherwise) => write!(f, ";\nELSE {}", otherwise.statement),
                    None => Ok(()),
                }
            }
            Statement::While { condition, body } => {
                write!(f, "WHILE {condition}\n{}", body.statement)
            }
            Statement::Block(all) => {
                f.write_str("BEGIN\n")?;
                statements(f, all)?;
                f.write_str("END")
            }
            Statement::Try { body, catch } => {
                f.write_str("BEGIN TRY\n")?;
                statements(f, body)?;
                f.write_str("END TRY\nBEGIN CATCH\n")?;
                statements(f, catch)?;
                f.write_str("END CATCH")
            }
            Statement::Transaction(what) => write!(f, "{what} TRANSACTION"),
            Statement::NamedTransaction(what, name) => write!(f, "{what} TRANSACTION {name}"),
            Statement::Break => f.write_str("BREAK"),
            Statement::Continue => f.write_str("CONTINUE"),
            Statement::Return => f.write_str("RETURN"),
            Statement::ReturnValue(value) => write!(f, "RETURN {value}"),
            procedural => print_procedural(f, procedural),
        }
    }
}

/// The same for messages of the script's own, waits, labels and cursors.
fn print_procedural(f: &mut Formatter<'_>, statement: &Statement) -> fmt::Result {
    match statement {
        Statement::Raise(raise) => write!(f, "{raise}"),
        Statement::Throw(None) => f.write_str("THROW"),
        Statement::Throw(Some(throw)) => {
            let Throw {
                number,
                message,
                state,
            } = &**throw;
            write!(f, "THROW {number}, {message}, {state}")
        }
        Statement::Wait { until, time } => {
            let kind = if *until { "TIME" } else { "DELAY" };
            write!(f, "WAITFOR {kind} {time}")
        }
        Statement::Goto(label) => write!(f, "GOTO {label}"),
        Statement::Label(label) => write!(f, "{label}:"),
        Statement::DeclareCursor(declared) => {
            write!(f, "DECLARE {}", bracketed(&declared.name))?;
            cursor(f, &declared.cursor)
        }
        Statement::SetCursor {
            variable,
            cursor: query,
        } => {
            write!(f, "SET {variable} =")?;
            cursor(f, query)
        }
        Statement::OpenCursor(name) => write!(f, "OPEN {name}"),
        Statement::CloseCursor(name) => write!(f, "CLOSE {name}"),
        Statement::DeallocateCursor(name) => write!(f, "DEALLOCATE {name}"),
        Statement::Fetch(fetch) => write!(f, "{fetch}"),
        data => print_data(f, data),
    }
}

/// A name of several parts; a table variable is one without brackets.
pub(super) fn dotted(name: &[String]) -> String {
    let part = |part: &String| match part.as_str() {
        "" => String::new(),
        variable if variable.starts_with('@') && name.len() == 1 => variable.to_owned(),
        part => bracketed(part),
    };
    let parts: Vec<_> = name.iter().map(part).collect();
    parts.join(".")
}

/// The same for tables, procedures and changes of rows.
fn print_data(f: &mut Formatter<'_>, statement: &Statement) -> fmt::Result {
    let exists = |if_exists: &bool| if *if_exists { "IF EXISTS " } else { "" };
    match statement {
        Statement::CreateTable { name, table } => {
            write!(f, "CREATE TABLE {} ({table})", dotted(name))
        }
        Statement::DeclareTable { variable, table } => {
            write!(f, "DECLARE {variable} TABLE ({table})")
        }
        Statement::AlterTable { name, change } => {
            write!(f, "ALTER TABLE {} {change}", dotted(name))
        }
        Statement::DropObjects {
            kind,
            if_exists,
            names,
        } => {
            let word = match kind {
                ObjectKind::Table => "TABLE",
                ObjectKind::Procedure => "PROCEDURE",
                ObjectKind::Function => "FUNCTION",
                ObjectKind::View => "VIEW",
            };
            let names: Vec<_> = names.iter().map(|name| dotted(name)).collect();
            let names = names.join(", ");
            write!(f, "DROP {word} {}{names}", exists(if_exists))
        }
        Statement::CreateIndex(index) => {
            let unique = if index.unique { "UNIQUE " } else { "" };
            let (name, table) = (bracketed(&index.name), dotted(&index.table));
            let columns: Vec<_> = index.columns.iter().map(|c| bracketed(c)).collect();
            let columns = columns.join(", ");
            write!(f, "CREATE {unique}INDEX {name} ON {table} ({columns})")
        }
        Statement::DropIndex {
            if_exists,
            name,
            table,
        } => {
            let (name, table) = (bracketed(name), dotted(table));
            write!(f, "DROP INDEX {}{name} ON {table}", exists(if_exists))
        }
        Statement::Truncate(name) => write!(f, "TRUNCATE TABLE {}", dotted(name)),
        Statement::IdentityInsert { table, on } => {
            let word = if *on { "ON" } else { "OFF" };
            write!(f, "SET IDENTITY_INSERT {} {word}", dotted(table))
        }
        Statement::Insert(insert) => write!(f, "{insert}"),
        Statement::Update(update) => write!(f, "{update}"),
        Statement::Delete(delete) => write!(f, "{delete}"),
        Statement::Merge(merge) => write!(f, "{merge}"),
        Statement::Routine(routine) => f.write_str(&routine.text),
        _ => Ok(()),
    }
}

impl Display for Raise {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Raise {
            message,
            severity,
            state,
            arguments,
            ..
        } = self;
        write!(f, "RAISERROR ({message}, {severity}, {state}")?;
        for argument in arguments {
            write!(f, ", {argument}")?;
        }
        f.write_char(')')?;
        let options = [
            (self.log, "LOG"),
            (self.no_wait, "NOWAIT"),
            (self.set_error, "SETERROR"),
        ];
        let mut before = " WITH ";
        for (_, word) in options.iter().filter(|(on, _)| *on) {
            write!(f, "{before}{word}")?;
            before = ", ";
        }
        Ok(())
    }
}

/// The words from those before CURSOR on.
fn cursor(f: &mut Formatter<'_>, cursor: &CursorQuery) -> fmt::Result {
    let words = |f: &mut Formatter<'_>| {
        let mut options = cursor.options.iter();
        options.try_for_each(|option| write!(f, " {}", word_of(*option)))
    };
    if cursor.is_iso {
        words(f)?;
    }
    f.write_str(" CURSOR")?;
    if !cursor.is_iso {
        words(f)?;
    }
    write!(f, " FOR {}", cursor.query)?;
    match cursor.for_read_only {
        true => f.write_str(" FOR READ ONLY"),
        false => Ok(()),
    }
}

impl Display for CursorName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            CursorName::Variable(name) => f.write_str(name),
            CursorName::Named { global, name } => {
                f.write_str(if *global { "GLOBAL " } else { "" })?;
                f.write_str(&bracketed(name))
            }
        }
    }
}

impl Display for Fetch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.which {
            FetchRow::Next => f.write_str("FETCH NEXT")?,
            FetchRow::Prior => f.write_str("FETCH PRIOR")?,
            FetchRow::First => f.write_str("FETCH FIRST")?,
            FetchRow::Last => f.write_str("FETCH LAST")?,
            FetchRow::Absolute(row) => write!(f, "FETCH ABSOLUTE {row}")?,
            FetchRow::Relative(row) => write!(f, "FETCH RELATIVE {row}")?,
        }
        write!(f, " FROM {}", self.cursor)?;
        if !self.into.is_empty() {
            f.write_str(" INTO ")?;
            joined(f, &self.into, ", ")?;
        }
        Ok(())
    }
}
