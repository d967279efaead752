//! Options of encrypted backups, and `longshore key`.
//!
//! Invariants
//! - No key and no passphrase is an option's value: options are seen in the list of processes. They name files.
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`.
//!
//! Leaves to others: reading the files (`keys.rs` of the program).

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The files that open encrypted backups.
#[derive(Debug, Clone, Default, Args)]
pub struct KeyOptions {
    /// Identities for backups and WAL: FILE, or passphrase:FILE. Repeatable.
    ///
    /// The file is that of `longshore key new`, of age-keygen, or the private key of a certificate of T-SQL (PKCS#8 as PEM or
    /// DER, not encrypted). After passphrase: the first line of FILE is the passphrase.
    /// Only its owner may read it. Without this option the files of `identities` in [encryption] are taken, and without
    /// those no encrypted backup can be read.
    #[arg(long, value_name = "FILE")]
    pub identity: Vec<String>,

    /// Refuse backups and WAL that are not encrypted.
    ///
    /// A person who can write to the media could otherwise put their own backup in the place of an encrypted one. By
    /// default they are read, unless [encryption] has `require = true`.
    #[arg(long, hide_short_help = true)]
    pub require_encryption: bool,
}

const TEACH: &str = "\
Examples:
  longshore key new /root/longshore-identity
      on the machine where restores are made; prints the recipient for the database host
  longshore key recipient /root/longshore-identity
      the recipient again
  longshore backup app.db --to app.bak --encrypt-to age1pq1...
      on the database host, which cannot read its own backups afterwards

Not for: passphrases, which need no file but their own (--encrypt-to passphrase:FILE), and not for
getting back what was encrypted for a lost identity: nothing can.";

/// Makes the keys of encrypted backups.
///
/// A backup is encrypted for one or more recipients, which are public, and is opened with the identity of one of them,
/// which is secret. Both are those of age (age-encryption.org). Keep copies of the identity at two places, away from the
/// backups: without it they cannot be read.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH)]
pub struct Key {
    #[command(subcommand)]
    pub action: KeyAction,
}

const TEACH_NEW: &str = "\
Examples:
  longshore key new /root/longshore-identity
  longshore key new --classic /root/identity-for-rage

Not for: the database host, which needs the recipient only.";

const TEACH_RECIPIENT: &str = "\
Examples:
  longshore key recipient /root/longshore-identity
  longshore key recipient /root/longshore-identity > recipients    # for --encrypt-to @recipients

Not for: finding out for whom a backup is encrypted; no recipient can be told from a backup.";

#[derive(Debug, Subcommand)]
pub enum KeyAction {
    /// Writes a new identity to a file, and prints its recipient.
    ///
    /// The file must not exist; only its owner can read it.
    #[command(after_long_help = TEACH_NEW)]
    New(KeyNew),
    /// Prints the recipients of the identities in a file.
    ///
    /// One line for each identity.
    #[command(after_long_help = TEACH_RECIPIENT)]
    Recipient(KeyRecipient),
}

#[derive(Debug, Args)]
pub struct KeyNew {
    /// The file to write.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Make an X25519 identity (age1...), which more programs know.
    ///
    /// By default it is one of X25519 and ML-KEM-768 (age1pq1...), which is meant to withstand quantum computers: what is
    /// kept for years may be read by one. age 1.3 or later opens it.
    #[arg(long)]
    pub classic: bool,
}

#[derive(Debug, Args)]
pub struct KeyRecipient {
    /// The file with identities.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}
