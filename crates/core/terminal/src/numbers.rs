//! The numbers of errors for which SQL Server has no message, so that every failure has a number.
//!
//! Invariants
//! - A number below 50000 is SQL Server's for the same fact; 50000 to 50099 are those of statements
//!   (`longshore-tsql`); 50100 and up are these, for the command line.
//! - A number is never reused. `docs/errors.md` lists them; a test compares the two.
//!
//! Leaves to others: exit codes (`failure.rs`), and SQL Server's numbers (the `Error` of each crate).

/// SQL Server's: a word is not a recognized option.
pub const NOT_RECOGNIZED: u32 = 155;
/// SQL Server's: an option conflicts with another one.
pub const OPTIONS_CONFLICT: u32 = 3031;
/// SQL Server's: a value is not valid for a parameter.
pub const VALUE_INVALID: u32 = 3217;
/// SQL Server's: a configuration option does not exist.
pub const KEY_UNKNOWN: u32 = 15123;
/// SQL Server's: a value is not valid for a configuration option.
pub const KEY_VALUE: u32 = 15129;

/// Options, configuration and files do not fit together.
pub const REQUEST: u32 = 50100;
/// The command line lacks a command, an argument or a value.
pub const ARGUMENT_MISSING: u32 = 50101;
/// The configuration file cannot be read.
pub const CONFIG_UNREADABLE: u32 = 50102;
/// The configuration file is not TOML.
pub const CONFIG_SYNTAX: u32 = 50103;
/// A table of the configuration lacks a key, or contradicts another table.
pub const CONFIG_TABLES: u32 = 50104;
/// The configuration has no target, database or retention of that name.
pub const NOT_CONFIGURED: u32 = 50105;
/// A file that an option or a key names cannot be used.
pub const FILE_UNUSABLE: u32 = 50106;
/// Another program, or a part of it, is missing or does not start.
pub const PROGRAM_MISSING: u32 = 50107;

/// The source cannot be read.
pub const SOURCE: u32 = 50110;
/// The source holds something that a backup set cannot hold.
pub const SOURCE_CONTENT: u32 = 50111;
/// The system refuses something that a run needs.
pub const SYSTEM: u32 = 50112;

/// The device holds data that nothing allows to overwrite.
pub const DEVICE_HOLDS_DATA: u32 = 50120;
/// The device is inside the source.
pub const DEVICE_IN_SOURCE: u32 = 50121;
/// An object store refuses, or cannot be reached.
pub const STORE: u32 = 50122;

/// No identity at hand opens an encrypted backup.
pub const KEY_MISSING: u32 = 50123;
/// A backup is not encrypted, and must be.
pub const NOT_ENCRYPTED: u32 = 50124;
/// A backup is not signed by somebody who is trusted, and must be, or its signature is wrong.
pub const NOT_SIGNED: u32 = 50125;

/// A target cannot be used, or does not say which backup is meant.
pub const TARGET: u32 = 50130;

/// A WAL archive cannot be used.
pub const ARCHIVE: u32 = 50140;
/// A WAL archive has other content under this name, or another cluster's.
pub const ARCHIVE_CONFLICT: u32 = 50141;
/// A file is not the WAL that its name says.
pub const NOT_WAL: u32 = 50142;
/// WAL that is needed is not in the archive.
pub const WAL_MISSING: u32 = 50143;

/// A restore's target cannot be written, or the cluster there cannot be used.
pub const RESTORE_TARGET: u32 = 50150;
/// An answer, or a file with one, could not be written.
pub const UNWRITTEN: u32 = 50151;

/// A cache cannot be made, reached or measured.
pub const CACHE: u32 = 50160;

/// A bug in this program.
pub const INTERNAL: u32 = 50190;
