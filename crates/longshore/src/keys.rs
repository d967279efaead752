//! From files to keys: identities, recipients, passphrases, signing keys and signers.
//!
//! Invariants
//! - A file with a secret that others may read is refused, as are one that others may change, and one that is no regular
//!   file.
//! - No message repeats what is in such a file.
//! - From the first key on, this process leaves no memory in a file when it crashes.
//!
//! Leaves to others: what the keys do (`longshore-crypt`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_crypt::{
    Certificate, CommandKey, Errand, Error, FoundObjects, Identities, Identity, KeyObject, Keyring,
    OBJECT_MAX, ObjectFinder, Passphrase, PrivateKey, Recipient, Recipients, Signer, Signers,
    SigningKey, is_certificate, is_private_key, is_secret,
};
use longshore_io::{OpenHow, Via};
use longshore_terminal::failure::Failure;
use longshore_terminal::numbers;
use zeroize::Zeroizing;

use crate::context::Context;
use crate::core_dumps;
use crate::key_command::{self, COMMAND};
use crate::key_places;
use crate::options::{KeyOptions, SetKeyOptions};

/// The most bytes of a file of identities or recipients: room for hundreds.
const FILE_MAX: usize = 1 << 20;
/// The word before the name of a file that has a passphrase.
const PASSPHRASE: &str = "passphrase:";

/// What opens encrypted sets, and whose signatures count: of the options, or else of the configuration.
pub fn keyring(context: &Context, options: &KeyOptions) -> Result<Arc<Keyring>, Failure> {
    let configured = &context.config.encryption;
    let files = match options.identity.is_empty() {
        true => &configured.identities,
        false => &options.identity,
    };
    let mut identities = Identities::default();
    for file in files {
        refuse_secret(file)?;
        identities.add(
            match (file.strip_prefix(PASSPHRASE), file.strip_prefix(COMMAND)) {
                (Some(file), _) => {
                    let line = passphrase(context, Path::new(file))?;
                    let made = spellings(&line).map(|text| Zeroizing::new(text.to_vec()));
                    let made = made.map(|text| Identity::Passphrase(Passphrase::new(text)));
                    Identities::new(made.collect())
                }
                (_, Some(id)) => {
                    let key = command_key(context, id, Errand::Unwrap)?;
                    Identities::new(vec![Identity::Command(key)])
                }
                _ => identities_in(context, Path::new(file))?,
            },
        );
    }
    with_rules(context, options, identities)
}

/// These identities, with the rules of the options and the configuration for what is read.
fn with_rules(
    context: &Context,
    options: &KeyOptions,
    identities: Identities,
) -> Result<Arc<Keyring>, Failure> {
    let required = options.require_encryption || context.config.encryption.require;
    let signers = Arc::new(signers(context, options)?);
    Ok(Arc::new(
        Keyring::new(identities, required).with_signers(signers),
    ))
}

/// [`keyring`], with the key objects that were named.
pub fn set_keyring(context: &Context, options: &SetKeyOptions) -> Result<Arc<Keyring>, Failure> {
    let keyring = keyring(context, options)?;
    let keyring = key_places::with(keyring, key_places::all(context, &options.key_places)?);
    Ok(match options.key_object.as_slice() {
        [] => keyring,
        named => Arc::new(keyring.with_objects(named_objects(context, named)?)),
    })
}

/// Gives the key objects in these files, whatever set they are for.
///
/// Errors: one cannot be read, or is no key object.
fn named_objects(context: &Context, files: &[PathBuf]) -> Result<Arc<ObjectFinder>, Failure> {
    let read = |file: &PathBuf| {
        let bytes = beginning(context, file, OBJECT_MAX).map_err(|e| {
            let what = format!("cannot read {}", file.display());
            Failure::usage(
                what,
                "name a key object, as keys-SET-ID.lsk next to a backup",
            )
            .numbered(numbers::FILE_UNUSABLE)
            .because(e)
        })?;
        KeyObject::decode(&bytes).map_err(|e| {
            Failure::usage(
                format!("cannot use {}: {e}", file.display()),
                "name a key object, as keys-SET-ID.lsk next to a backup",
            )
            .numbered(numbers::FILE_UNUSABLE)
        })?;
        Ok(bytes)
    };
    let objects = files
        .iter()
        .map(read)
        .collect::<Result<Vec<_>, Failure>>()?;
    Ok(Arc::new(move |_: &[u8; 16]| FoundObjects {
        objects: objects.clone(),
        ..FoundObjects::default()
    }))
}

/// At most a byte more than `len_max` of a file.
fn beginning(context: &Context, path: &Path, len_max: usize) -> std::io::Result<Vec<u8>> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(std::io::ErrorKind::InvalidFilename.into());
    };
    let parent = match parent.as_os_str().is_empty() {
        true => Path::new("."),
        false => parent,
    };
    let dir = context.storage.dir(parent)?;
    let file = dir.open(Path::new(name), OpenHow::Read)?;
    let mut bytes = vec![0; len_max + 1];
    let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// Whose signatures count.
///
/// Errors: a text is no signer; signatures are required, and nobody is named.
pub fn signers(context: &Context, options: &KeyOptions) -> Result<Signers, Failure> {
    let configured = &context.config.encryption;
    let texts = match options.signer.is_empty() {
        true => &configured.signers,
        false => &options.signer,
    };
    let signers = texts.iter().map(|text| text.parse::<Signer>());
    let required = options.require_signature || configured.require_signature;
    let signers = signers.collect::<Result<Vec<_>, _>>();
    let signers = signers.and_then(|list| Signers::new(list, required));
    signers.map_err(|e| {
        Failure::usage(
            e.to_string(),
            "write lssigner1… in --signer or in `signers` of [encryption]; `longshore key recipient FILE` prints it where the signing key is",
        )
    })
}

/// The key that signs what is written; `None`: nothing is signed. `named`: the option's file. `encrypts`: whether what is
/// written is encrypted, without which there is nothing to sign.
///
/// Errors: the file cannot be used; a signature is required, and would be missing or count for nothing.
pub fn signing_key(
    context: &Context,
    (named, options): (Option<&Path>, &KeyOptions),
    encrypts: bool,
) -> Result<Option<Arc<SigningKey>>, Failure> {
    let configured = context.config.encryption.sign.as_deref();
    let file = named.or(configured);
    let signers = signers(context, options)?;
    let to_encrypt = "add `recipients` to [encryption] or to the target, or name one with --encrypt-to: an encrypted backup alone has digests \
                      that a signature can be of";
    let Some(file) = file else {
        return match signers.required() {
            false => Ok(None),
            true => Err(Failure::usage(
                "a signature is required, and there is no key to sign with",
                "make one with `longshore key new --signing FILE`, and name it as `sign` in [encryption] or with --sign",
            )),
        };
    };
    refuse_secret(&file.to_string_lossy())?;
    if !encrypts {
        return match named.is_some() || signers.required() {
            false => Ok(None),
            true => Err(Failure::usage(
                "what is not encrypted cannot be signed",
                to_encrypt,
            )),
        };
    }
    let key = signing_key_in(context, file)?;
    let signer = key.signer();
    match signers.required() && !signers.trusts(&signer) {
        false => Ok(Some(Arc::new(key))),
        true => Err(Failure::usage(
            format!(
                "{} signs as {signer}, who is not among the signers that are trusted here: what is written would be refused",
                file.display()
            ),
            "add it to `signers` in [encryption], or to --signer",
        )),
    }
}

/// The signing key in a file.
pub fn signing_key_in(context: &Context, file: &Path) -> Result<SigningKey, Failure> {
    let bytes = read(context, file, true)?;
    let text = std::str::from_utf8(&bytes);
    let text = text.map_err(|_| unusable(file, "it is not a text"))?;
    SigningKey::parse(text).map_err(|e| {
        let hint = "correct the file, or name another one; `longshore key new --signing FILE` makes a signing key";
        let what = format!("cannot use {}: {e}", file.display());
        Failure::usage(what, hint).numbered(numbers::FILE_UNUSABLE)
    })
}

/// Whether a file has a signing key, and no identities.
pub fn is_signing_key(context: &Context, file: &Path) -> Result<bool, Failure> {
    let bytes = read(context, file, true)?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    Ok(SigningKey::is_in(text))
}

/// The files of identities, of the options or else of the configuration, and keys of programs; no passphrases.
pub fn identity_files(context: &Context, options: &KeyOptions) -> Vec<PathBuf> {
    let files = match options.identity.is_empty() {
        true => &context.config.encryption.identities,
        false => &options.identity,
    };
    let files = files.iter().filter(|file| !file.starts_with(PASSPHRASE));
    files.map(PathBuf::from).collect()
}

/// Like [`keyring`], where encrypted files may be, or not: identities of the configuration that this user may not read, as
/// those of the administrator who restores, are none.
pub fn lenient_keyring(context: &Context, options: &KeyOptions) -> Result<Arc<Keyring>, Failure> {
    match keyring(context, options) {
        Err(_) if options.identity.is_empty() => {
            tracing::info!("the identities of the configuration cannot be read here");
            with_rules(context, options, Identities::default())
        }
        opened => opened,
    }
}

/// For whom a database's WAL is encrypted: as the options say, else its target, else the configuration.
///
/// Errors: also a passphrase among them, which would take a second and 256 MiB for each segment.
pub fn wal_recipients(
    context: &Context,
    named: &[String],
    place: (Option<&str>, bool),
) -> Result<Option<Arc<Recipients>>, Failure> {
    let found = recipients(context, named, place)?;
    let is_slow = |recipients: &Recipients| {
        let list = recipients.list().iter();
        list.clone().any(|r| matches!(r, Recipient::Passphrase(_)))
    };
    match found {
        Some(recipients) if is_slow(&recipients) => Err(Failure::usage(
            "WAL cannot be encrypted for a passphrase: each segment would take a second",
            "name a recipient of `longshore key new`; or set `encrypt = false` in [database.NAME.wal] if the archive needs no encryption",
        )),
        found => Ok(found.map(Arc::new)),
    }
}

/// The identities in a file.
pub fn identities_in(context: &Context, file: &Path) -> Result<Identities, Failure> {
    let bytes = read(context, file, true)?;
    if is_private_key(&bytes) {
        let key = PrivateKey::of_file(&bytes, None).map_err(|e| match e {
            Error::KeyPassword { .. } => Failure::usage(
                format!("cannot use {}: {e}", file.display()),
                format!(
                    "run: openssl pkcs8 -in {} -out PLAIN (with umask 077), name PLAIN, and remove it afterwards; or restore through \
                     the server that has the certificate: longshore sql",
                    file.display()
                ),
            )
            .numbered(numbers::FILE_UNUSABLE),
            e => unusable(file, &e.to_string()),
        })?;
        return Ok(Identities::new(vec![Identity::Certificate(key)]));
    }
    let text = std::str::from_utf8(&bytes);
    let text = text.map_err(|_| unusable(file, "it is not a text"))?;
    Identities::parse(text).map_err(|e| unusable(file, &e.to_string()))
}

/// A key that a program keeps.
fn command_key(context: &Context, id: &str, errand: Errand) -> Result<CommandKey, Failure> {
    key_command::check_file(context.config.path.as_deref()).map_err(|why| {
        let hint = "make the file its owner's alone to change (chmod go-w), as the directories above it, then run the command again";
        Failure::usage(why, hint).numbered(numbers::FILE_UNUSABLE)
    })?;
    key_command::key(&context.config.encryption, id, errand).map_err(|e| {
        let hint = match e {
            Error::Command { .. } => "name a program there, as docs/recipes.md shows",
            _ => "write the id after command: as the key service spells it",
        };
        Failure::usage(e.to_string(), hint)
    })
}

/// The bytes with which some editors begin a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The passphrases that a file's line may mean: without an editor's mark, and as it is.
fn spellings(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.strip_prefix(BYTE_ORDER_MARK)
        .into_iter()
        .chain(std::iter::once(line))
}

/// The first line of a file.
fn passphrase(context: &Context, file: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let is_missing = |e: std::io::Error| e.kind() == std::io::ErrorKind::NotFound;
    if context.storage.stat(file).is_err_and(is_missing) {
        // It may be the passphrase itself.
        return Err(Failure::usage(
            "there is no file of the name that follows passphrase:",
            "write the passphrase as the first line of a file (chmod 600), and name that file",
        )
        .numbered(numbers::FILE_UNUSABLE));
    }
    let bytes = read(context, file, true)?;
    let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    Ok(Zeroizing::new(line.to_vec()))
}

/// For whom a backup to `target` is encrypted: as the options say, else the target, else the configuration.
///
/// Errors: none is named, and encryption is required, by the configuration or otherwise; a recipient is missing that everything
/// must have.
pub fn recipients(
    context: &Context,
    named: &[String],
    (target, is_required): (Option<&str>, bool),
) -> Result<Option<Recipients>, Failure> {
    let config = &context.config;
    let texts = match named.is_empty() {
        true => config.recipients_of(target),
        false => named,
    };
    let mut list = Vec::new();
    for text in texts {
        list.extend(recipients_of(context, text)?);
    }
    if list.is_empty() {
        return match config.encryption.require || is_required {
            false => check_required(context, None).map(|()| None),
            true => Err(Failure::usage(
                "encryption is required, and nobody is named for whom",
                "add `recipients` to [encryption] or to the target, or name one with --encrypt-to, then run the command again",
            )),
        };
    }
    let all = Recipients::new(list, false).map_err(|e| {
        let hint = match e {
            Error::Mixed => "name age1pq1… recipients only, or others only",
            Error::Passphrases { .. } => "name other recipients: age1pq1… or age1…",
            _ => "name 1 to 32 recipients",
        };
        Failure::usage(e.to_string(), hint)
    })?;
    check_required(context, Some(&all))?;
    // The keys of what is encrypted are made in this process.
    core_dumps::forbid();
    Ok(Some(all))
}

/// Errors: a recipient that everything must have is not among these; `None`: nothing is encrypted.
fn check_required(context: &Context, all: Option<&Recipients>) -> Result<(), Failure> {
    for text in &context.config.encryption.require_recipients {
        // As of a variable that was emptied: that is no way to require nobody.
        if text.trim().is_empty() {
            return Err(Failure::usage(
                "`require_recipients` in [encryption] has an empty recipient",
                "name it there, or in LONGSHORE_ENCRYPTION_REQUIRE_RECIPIENTS; a variable that is to require nobody must not be set",
            ));
        }
        for required in recipients_of(context, text)? {
            if matches!(required, Recipient::Passphrase(_)) {
                return Err(Failure::usage(
                    "`require_recipients` in [encryption] has a passphrase, and passphrases are not compared",
                    "name a recipient of `longshore key new`, a certificate's file or command:ID there",
                ));
            }
            let what = match all {
                Some(all) if all.includes(&required) => continue,
                Some(_) => "not for it",
                None => "for nobody",
            };
            return Err(Failure::usage(
                format!(
                    "`require_recipients` in [encryption] has {}, and this would be encrypted {what}",
                    shortened(text)
                ),
                "add it to `recipients` in [encryption] or of the target, or with --encrypt-to, then run the command again",
            ));
        }
    }
    Ok(())
}

/// A recipient's text for a message: those with ML-KEM-768 have 1,959 characters.
fn shortened(text: &str) -> String {
    let begin: String = text.chars().take(24).collect();
    match text.starts_with("age1") && begin.len() < text.len() {
        true => format!("{begin}…"),
        false => text.to_owned(),
    }
}

/// Refuses an identity where the name of a file, or a recipient, belongs. It is not repeated.
pub fn refuse_secret(text: &str) -> Result<(), Failure> {
    let rest = text.strip_prefix('@').unwrap_or(text);
    let rest = rest.strip_prefix(PASSPHRASE).unwrap_or(rest);
    match is_secret(rest) {
        false => Ok(()),
        true => Err(Failure::usage(
            "an identity or a signing key stands where the name of its file belongs; it is secret",
            "write it to a file (chmod 600), name that file, and make a new one: others may have seen this one",
        )),
    }
}

fn recipients_of(context: &Context, text: &str) -> Result<Vec<Recipient>, Failure> {
    refuse_secret(text)?;
    if let Some(file) = text.strip_prefix(PASSPHRASE) {
        let line = passphrase(context, Path::new(file))?;
        if line.starts_with(BYTE_ORDER_MARK) {
            return Err(unusable(
                Path::new(file),
                "it begins with a byte order mark, three bytes that nobody sees and that would be a part of the passphrase: save it as \
                 UTF-8 without one",
            ));
        }
        return Ok(vec![Recipient::Passphrase(Passphrase::new(line))]);
    }
    if let Some(id) = text.strip_prefix(COMMAND) {
        let key = command_key(context, id, Errand::Wrap)?;
        return Ok(vec![Recipient::Command(key)]);
    }
    let Some(file) = text.strip_prefix('@') else {
        return Ok(vec![recipient(text).map_err(|e| {
            Failure::usage(
                e.to_string(),
                "write age1…, age1pq1…, @FILE, passphrase:FILE or command:ID; `longshore key recipient FILE` prints a recipient",
            )
        })?]);
    };
    let file = Path::new(file);
    let bytes = read(context, file, false)?;
    if is_certificate(&bytes) {
        return Ok(vec![certificate(context, file, &bytes)?]);
    }
    let text = std::str::from_utf8(&bytes);
    let text = text.map_err(|_| unusable(file, "it is not a text"))?;
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let list = lines.map(recipient).collect::<Result<Vec<_>, _>>();
    match list {
        Ok(list) if list.is_empty() => Err(unusable(file, "it names no recipient")),
        Ok(list) => Ok(list),
        Err(e) => Err(unusable(file, &e.to_string())),
    }
}

/// The recipient that a certificate's file names. As in SQL Server, one that has expired encrypts nothing new.
fn certificate(context: &Context, file: &Path, bytes: &[u8]) -> Result<Recipient, Failure> {
    if is_private_key(bytes) && Certificate::of_file(bytes).is_err() {
        return Err(unusable(
            file,
            "it is a private key, which is secret; name its certificate",
        ));
    }
    let certificate = Certificate::of_file(bytes).map_err(|e| unusable(file, &e.to_string()))?;
    let now_s = context.clock.wall_ns() / 1_000_000_000;
    match certificate.expiry_s < now_s {
        false => Ok(Recipient::from(&certificate)),
        true => Err(unusable(file, "the certificate has expired")),
    }
}

fn recipient(text: &str) -> Result<Recipient, Error> {
    text.parse()
}

fn unusable(file: &Path, what: &str) -> Failure {
    Failure::usage(
        format!("cannot use {}: {what}", file.display()),
        "correct the file, or name another one; `longshore key new FILE` makes an identity",
    )
    .numbered(numbers::FILE_UNUSABLE)
}

/// All bytes of a file, which nobody but its owner may read if it is `secret`.
fn read(context: &Context, path: &Path, secret: bool) -> Result<Zeroizing<Vec<u8>>, Failure> {
    if secret {
        core_dumps::forbid();
    }
    let failed = |e: std::io::Error| {
        Failure::usage(
            format!("cannot read {}", path.display()),
            "check the path and who may read the file, then run the command again",
        )
        .numbered(numbers::FILE_UNUSABLE)
        .because(e)
    };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(failed(std::io::ErrorKind::InvalidFilename.into()));
    };
    let parent = match parent.as_os_str().is_empty() {
        true => Path::new("."),
        false => parent,
    };
    let read = || {
        let file = context
            .storage
            .dir(parent)?
            .open(Path::new(name), OpenHow::Read)?;
        let stat = file.stat()?;
        let owner = stat.uid;
        let mut bytes = Zeroizing::new(vec![0; FILE_MAX + 1]);
        let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
        bytes.truncate(len);
        Ok((bytes, stat.mode, owner))
    };
    let (bytes, mode, owner) = read().map_err(failed)?;
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(Failure::usage(
            format!(
                "{} belongs to another user, who can exchange it",
                path.display()
            ),
            "name a file of your own, or of root",
        )
        .numbered(numbers::FILE_UNUSABLE));
    }
    if !secret && mode & 0o022 != 0 {
        return Err(Failure::usage(
            format!(
                "others may write to {}: its mode is {:04o}",
                path.display(),
                mode & 0o777
            ),
            format!("chmod 644 {}", path.display()),
        )
        .numbered(numbers::FILE_UNUSABLE));
    }
    if secret && mode & 0o077 != 0 {
        return Err(Failure::usage(
            format!(
                "others may read {}: its mode is {:04o}",
                path.display(),
                mode & 0o777
            ),
            format!("chmod 600 {}", path.display()),
        )
        .numbered(numbers::FILE_UNUSABLE));
    }
    match bytes.len() <= FILE_MAX {
        true => Ok(bytes),
        false => Err(unusable(path, "it is longer than 1 MiB")),
    }
}
