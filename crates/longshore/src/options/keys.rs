//! Options of encrypted backups, and `longshore key`.
//!
//! Invariants
//! - No key and no passphrase is an option's value: options are seen in the list of processes. They name files.
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`.
//!
//! Leaves to others: reading the files (`keys.rs` of the program).

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use longshore_media::DeviceSpec;

use super::values;

/// The files that open encrypted backups.
#[derive(Debug, Clone, Default, Args)]
pub struct KeyOptions {
    /// Identities: FILE, passphrase:FILE or command:ID. Repeatable.
    ///
    /// The file is that of `longshore key new`, of age-keygen, or the private key of a certificate of T-SQL (PKCS#8 as PEM or
    /// DER, not encrypted). After passphrase: the first line of FILE is the passphrase.
    /// Only its owner may read it. command:ID is a key that `unwrap_command` of [encryption] keeps. Without this option the files of `identities` in [encryption] are taken, and without
    /// those no encrypted backup can be read.
    #[arg(long, value_name = "FILE")]
    pub identity: Vec<String>,

    /// Refuse backups and WAL that are not encrypted.
    ///
    /// A person who can write to the media could otherwise put their own backup in the place of an encrypted one. By
    /// default they are read, unless [encryption] has `require = true`.
    #[arg(long, hide_short_help = true)]
    pub require_encryption: bool,

    /// Trust what this signer signed: lssigner1... Repeatable.
    ///
    /// `longshore key new --signing FILE` makes a signer, on the machine that makes the backups. Without this option `signers`
    /// of [encryption] are trusted. Signatures of others count as none.
    #[arg(long, value_name = "SIGNER", hide_short_help = true)]
    pub signer: Vec<String>,

    /// Refuse backups and WAL that no trusted signer signed.
    ///
    /// Recipients are public: a person who can write to the media could otherwise put an encrypted backup of their own there,
    /// which would be the newest one. By default they are read, unless [encryption] has `require_signature = true`.
    #[arg(long, hide_short_help = true)]
    pub require_signature: bool,
}

/// The same for commands that read sets.
#[derive(Debug, Clone, Default, Args)]
pub struct SetKeyOptions {
    #[command(flatten)]
    pub own: KeyOptions,

    /// A key object that is not next to the backup's stripes. Repeatable.
    ///
    /// `longshore key rewrap` writes key objects next to stripes, where they are found by themselves. Give this option for one
    /// that is elsewhere, or where more are there than are looked at. By default none is. Anybody may read such a file.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub key_object: Vec<PathBuf>,

    /// A place of detached keys: a directory, or a prefix in a bucket. Repeatable.
    ///
    /// A backup of `--keys-detached` is opened by the key objects there. The places of the configuration, `keys` of all targets, are
    /// looked at in any case. Without this option there are no others.
    #[arg(long = "keys", value_name = "PLACE", hide_short_help = true)]
    pub key_places: Vec<String>,
}

impl std::ops::Deref for SetKeyOptions {
    type Target = KeyOptions;

    fn deref(&self) -> &KeyOptions {
        &self.own
    }
}

const TEACH: &str = "\
Examples:
  longshore key new /root/longshore-identity
      on the machine where restores are made; prints the recipient for the database host
  longshore key recipient /root/longshore-identity
      the recipient again
  longshore key new --signing /etc/longshore/signing-key
      on the database host, whose backups are then signed; prints the signer for those who read them
  longshore backup app.db --to app.bak --encrypt-to age1pq1...
      on the database host, which cannot read its own backups afterwards

Not for: passphrases, which need no file but their own (--encrypt-to passphrase:FILE), and not for
getting back what was encrypted for a lost identity: nothing can, unless `key rewrap` ran before.";

/// Makes keys, and lets further identities open encrypted backups.
///
/// A backup is encrypted for one or more recipients, which are public, and is opened with the identity of one of them,
/// which is secret. Both are those of age (age-encryption.org). Keep copies of the identity at two places, away from the
/// backups: without it they cannot be read. A signing key shows who made a backup: it is on the machine that makes them, and
/// its public half, the signer, with those who read them.
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
  longshore key new --signing /etc/longshore/signing-key

Not for: identities on the database host, which needs the recipient only.";

const TEACH_RECIPIENT: &str = "\
Examples:
  longshore key recipient /root/longshore-identity
  longshore key recipient /root/longshore-identity > recipients    # for --encrypt-to @recipients

Not for: finding out for whom a backup is encrypted; no recipient of age can be told from it.";

const TEACH_REWRAP: &str = "\
Examples:
  longshore key rewrap --database sales --identity old --encrypt-to age1pq1...
      all backups of sales at its target
  longshore key rewrap /mnt/a/app.bak /mnt/b/app.bak --identity old --encrypt-to @new.recipient
      the backup on these devices

Not for: identities that were stolen (make new backups), WAL, and backups that no identity opens.";

const TEACH_SHRED: &str = "\
Examples:
  longshore key shred 20270131T020000Z-full-1a2b3c4d
      says what would be destroyed, and destroys nothing
  longshore key shred 6fa31d0e-3c02-4c8e-9c6d-0f6a5a3f9d11 --keys /mnt/keys1 --yes
      by the set's identifier, which `longshore list` shows, also without its stripes

Not for: backups without detached keys (docs/security.md#erasure), and not for making room.";

#[derive(Debug, Subcommand)]
pub enum KeyAction {
    /// Writes a new identity or signing key to a file, and prints its recipient or signer.
    ///
    /// The file must not exist; only its owner can read it.
    #[command(after_long_help = TEACH_NEW)]
    New(KeyNew),
    /// Prints the recipients of the identities in a file, or the signer of a signing key.
    ///
    /// One line for each.
    #[command(after_long_help = TEACH_RECIPIENT)]
    Recipient(KeyRecipient),
    /// Lets further recipients open backups that are there, without changing them.
    ///
    /// Opens each backup with an identity that it is for, and writes a small file next to its stripes, a key object, with the
    /// set's key for the new recipients. Readers find it by themselves, copies take it along, and at a target it goes with its backup; next to
    /// named devices it stays until somebody removes it. Do this before
    /// an identity is retired, or its last copy may be lost. It takes no right from anybody: who has the old
    /// identity opens the backups as before. After a theft, only new backups for another recipient help, and the removal of the
    /// old ones. WAL that was archived stays as it was encrypted.
    #[command(after_long_help = TEACH_REWRAP)]
    Rewrap(KeyRewrap),
    /// Destroys backups by their keys: removes the key objects of backups with detached keys.
    ///
    /// Looks in the places of `keys` of all targets, in --keys, and next to the stripes at all configured targets, and reads
    /// again afterwards. A shredded backup opens for nobody, wherever copies of its stripes are. Things that this program
    /// cannot reach are not erased, and it says so: versions that a bucket keeps, locked objects, snapshots, copies of the key
    /// objects, and set keys that somebody kept. A backup whose slots are on its media is refused: nothing destroys those.
    #[command(after_long_help = TEACH_SHRED)]
    Shred(KeyShred),
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

    /// Make a signing key (Ed25519), and print its signer (lssigner1...).
    ///
    /// `sign` of [encryption], or --sign, names the file on the machine that makes backups; `signers`, or --signer, the signer
    /// wherever they are read. It opens nothing.
    #[arg(long, conflicts_with = "classic")]
    pub signing: bool,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("backups").required(true).multiple(true).args(["devices", "database"]))]
pub struct KeyRewrap {
    /// All stripes of the media set, in any order: paths, or s3://BUCKET/KEY.
    ///
    /// All sets on them are served. az://CONTAINER/KEY and gs://BUCKET/KEY are objects, too. Without devices, --database must say what
    /// is meant.
    #[arg(value_name = "DEVICE", value_parser = values::device())]
    pub devices: Vec<DeviceSpec>,

    /// Instead of devices: the database whose backups are meant, at its target.
    ///
    /// All of them are served, as each differential backup needs others. One that has such a file for the recipients already is left
    /// as it is, so the command can be run again. Without this option the named devices are meant.
    #[arg(long, value_name = "NAME", conflicts_with = "devices")]
    pub database: Option<String>,

    /// The target that holds the backups; else the one configured for the database.
    ///
    /// The default is the database's own. `longshore copy` brings the files to copies that are there already; or name a copy's target here.
    #[arg(long, value_name = "NAME", requires = "database")]
    pub target: Option<String>,

    /// Only the backup with this label, or `latest`, and those that it needs.
    ///
    /// By default all backups of the database are served.
    #[arg(long, value_name = "LABEL", requires = "database")]
    pub label: Option<String>,

    /// A new recipient: age1pq1..., age1..., @FILE, passphrase:FILE or command:ID. Repeatable.
    ///
    /// As for `longshore backup`. Those of the configuration are not taken: the backups have them already. Without this option there is
    /// nothing to do.
    #[arg(long, value_name = "RECIPIENT", required = true)]
    pub encrypt_to: Vec<String>,

    /// Open the backups, and write nothing.
    ///
    /// Shows which have no such file yet, and which no identity opens. Without it, the files are written.
    #[arg(long, short = 'n')]
    pub dry_run: bool,

    #[command(flatten)]
    pub keys: SetKeyOptions,
}

#[derive(Debug, Args)]
pub struct KeyShred {
    /// The identifiers of sets, or labels of backups at configured targets.
    #[arg(value_name = "SET", required = true)]
    pub sets: Vec<String>,

    /// A place of detached keys that is not configured. Repeatable.
    ///
    /// A directory, or a prefix in a bucket, in addition to `keys` of all targets. By default there is no other.
    #[arg(long = "keys", value_name = "PLACE")]
    pub key_places: Vec<String>,

    /// Destroy them.
    ///
    /// Nothing brings them back. Without this option the command says what it would destroy, and fails.
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct KeyRecipient {
    /// The file with identities, or with a signing key.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}
