//! `key`: new identities and signing keys, their recipients and signers.
//!
//! Invariants
//! - A key is written once and never shown. Recipients and signers, which are printed, are public.
//! - A failed run leaves no part of a key.
//!
//! Leaves to others: reading identities (`keys.rs` of the program), and making them (`longshore-crypt`).

mod rewrap;
mod shred;

use std::path::Path;

use longshore_crypt::{Error, Identity, SigningKey};
use longshore_io::{OpenHow, Via};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::numbers;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::context::Context;
use crate::core_dumps;
use crate::keys;
use crate::options::{Key, KeyAction, KeyNew, KeyRecipient};

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    /// The file with the keys.
    file: String,
    recipients: Vec<String>,
    /// Of a signing key, which has no recipient.
    signer: Option<String>,
}

pub fn run(options: &Key, context: &Context) -> Result<Exit, Failure> {
    match &options.action {
        KeyAction::New(new) => {
            keys::refuse_secret(&new.file.to_string_lossy())?;
            let name = made(new, context)?;
            let named = match new.signing {
                true => (Vec::new(), Some(name)),
                false => (vec![name], None),
            };
            Ok(told("key_new", &new.file, named, context))
        }
        KeyAction::Recipient(of) => {
            keys::refuse_secret(&of.file.to_string_lossy())?;
            let named = named_in(of, context)?;
            Ok(told("key_recipient", &of.file, named, context))
        }
        KeyAction::Rewrap(options) => rewrap::run(options, context),
        KeyAction::Shred(options) => shred::run(options, context),
    }
}

/// The recipients of a file, or its signer.
fn named_in(
    of: &KeyRecipient,
    context: &Context,
) -> Result<(Vec<String>, Option<String>), Failure> {
    if keys::is_signing_key(context, &of.file)? {
        let key = keys::signing_key_in(context, &of.file)?;
        return Ok((Vec::new(), Some(key.signer().to_string())));
    }
    let identities = keys::identities_in(context, &of.file)?;
    let is_key = |i: &Identity| matches!(i, Identity::Certificate(_));
    if identities.list().iter().any(is_key) {
        return Err(Failure::usage(
            "this is the private key of a certificate, which is no recipient of a command",
            "encrypt for its certificate with T-SQL: BACKUP DATABASE … WITH ENCRYPTION (ALGORITHM = AES_256, SERVER CERTIFICATE = NAME)",
        ));
    }
    let names = identities.list().iter().map(|i| i.recipient().name());
    Ok((names.collect(), None))
}

fn told(
    action: &'static str,
    file: &Path,
    (recipients, signer): (Vec<String>, Option<String>),
    context: &Context,
) -> Exit {
    let names: Vec<&str> = recipients
        .iter()
        .chain(&signer)
        .map(String::as_str)
        .collect();
    context.output.say(&(names.join("\n") + "\n"));
    let exit = context.output.done();
    let answer = Answer {
        action,
        file: file.display().to_string(),
        recipients,
        signer,
    };
    context.output.json(exit, answer);
    exit
}

/// The public name of a new key, and the line of its file.
fn generated(options: &KeyNew) -> Result<(String, Zeroizing<String>), Error> {
    if options.signing {
        let key = SigningKey::new()?;
        return Ok((key.signer().to_string(), key.line()));
    }
    let identity = match options.classic {
        true => Identity::new_x25519(),
        false => Identity::new_hybrid(),
    }?;
    let line = identity.line().ok_or(Error::Random)?;
    Ok((identity.recipient().name(), line))
}

/// Writes a new key; returns its recipient or its signer.
fn made(options: &KeyNew, context: &Context) -> Result<String, Failure> {
    core_dumps::forbid();
    let (name, line) = generated(options).map_err(|e| {
        Failure::new(
            Exit::Internal,
            numbers::INTERNAL,
            e.to_string(),
            "run the command again; if it stays, check that getrandom(2) works",
        )
    })?;
    let text = format!("# longshore key new\n# public key: {name}\n{}\n", &*line);
    write(context, &options.file, &Zeroizing::new(text)).map_err(|e| {
        let hint = match e.kind() {
            std::io::ErrorKind::AlreadyExists => "name another file: a key is never overwritten",
            _ => "name a file in a directory where you can write",
        };
        let what = format!("cannot write {}", options.file.display());
        Failure::usage(what, hint)
            .numbered(numbers::FILE_UNUSABLE)
            .because(e)
    })?;
    Ok(name)
}

/// Writes a new file that only its owner can read, durably.
fn write(context: &Context, path: &Path, text: &str) -> std::io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(std::io::ErrorKind::InvalidFilename.into());
    };
    let parent = match parent.as_os_str().is_empty() {
        true => Path::new("."),
        false => parent,
    };
    let dir = context.storage.dir(parent)?;
    let name = Path::new(name);
    let file = dir.open(name, OpenHow::CreateNew)?;
    let written = file
        .write_all_at(text.as_bytes(), 0, Via::Cache)
        .and_then(|()| file.sync())
        .and_then(|()| dir.sync(Path::new("")));
    // Half a key would be taken for one that must not be overwritten.
    written.inspect_err(|_| drop(dir.remove_file(name)))
}
