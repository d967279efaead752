//! The form in which WAL is stored, and the key that signs it.
//!
//! Invariants
//! - A level and an algorithm come from one place: the first that names either of them has both.
//! - Plain WAL is refused before a file is made where encryption is required, also if the configuration switches it off for WAL.
//!
//! Leaves to others: recipients and keys (`keys.rs` of the program), and what is stored (`longshore-wal`).

use std::path::Path;
use std::sync::Arc;

use longshore_codec::{Algorithm, Level};
use longshore_crypt::Keyring;
use longshore_wal::StorageForm;

use crate::commands::archive::ArchiveLocation;
use crate::context::Context;
use crate::keys::{lenient_keyring, signing_key, wal_recipients};
use crate::options::{Archive, KeyOptions};
use longshore_terminal::failure::Failure;

/// How files are stored: the command's options, then the settings of the database's WAL, of the database, and the
/// defaults.
pub fn form(
    (algorithm, level): (Option<Algorithm>, Option<Level>),
    database: Option<&str>,
    context: &Context,
) -> StorageForm {
    let config = &context.config;
    let known = database.and_then(|name| config.database.get(name));
    let wal = known.and_then(|d| d.wal.as_ref());
    // A level belongs to an algorithm: both come from the first place that names either.
    let places = [
        (algorithm, level),
        wal.map_or((None, None), |w| (w.algorithm, w.level)),
        known.map_or((None, None), |d| (d.algorithm, d.level)),
        (config.defaults.algorithm, config.defaults.level),
    ];
    let level = places.iter().find(|(a, l)| a.is_some() || l.is_some());
    StorageForm {
        algorithm: places
            .iter()
            .find_map(|(algorithm, _)| *algorithm)
            .unwrap_or(Algorithm::QatDeflate),
        level: level.and_then(|(_, level)| *level).unwrap_or(Level::Low),
        verify: false,
        recipients: None,
    }
}

/// [`form`] of files that are made here, encrypted as the options and the configuration say.
///
/// Errors: those of [`wal_recipients`]; encryption is required, for somebody or at all, and switched off.
pub fn sealed_form(
    asked: (Option<Algorithm>, Option<Level>),
    archive: &Archive,
    (encrypt_to, keys): (&[String], &KeyOptions),
    context: &Context,
) -> Result<StorageForm, Failure> {
    let config = &context.config;
    let configured = || {
        let named = ArchiveLocation::of(archive, context).ok()?.path();
        let is_of = |name: &&String| {
            let place = ArchiveLocation::of_database(context, name, None);
            place.is_ok_and(|place| place.path() == named)
        };
        config.database.keys().find(is_of).map(String::as_str)
    };
    // An archive that is named by its path may be a configured database's all the same.
    let database = archive.database.as_deref().or_else(configured);
    let target = archive.target.as_deref();
    let target = target.or_else(|| config.target_of(database?));
    let wal = database.and_then(|name| config.wal_of(name));
    let is_off = wal.is_some_and(|wal| wal.encrypt == Some(false)) && encrypt_to.is_empty();
    let is_required = keys.require_encryption;
    let recipients = match is_off {
        true if is_required
            || config.encryption.require
            || !config.encryption.require_recipients.is_empty() =>
        {
            return Err(Failure::usage(
                "encryption is required, and `encrypt = false` in [database.NAME.wal] switches it off",
                "remove `encrypt` there, or `require` and `require_recipients` in [encryption]",
            ));
        }
        true => None,
        false => wal_recipients(context, encrypt_to, (target, is_required))?,
    };
    Ok(StorageForm {
        recipients,
        ..form(asked, archive.database.as_deref(), context)
    })
}

/// The keys of a writer of WAL of this form.
///
/// Errors: those of [`lenient_keyring`] and [`signing_key`].
pub fn signing_keyring(
    context: &Context,
    (named, options): (Option<&Path>, &KeyOptions),
    form: &StorageForm,
) -> Result<Arc<Keyring>, Failure> {
    let sign = signing_key(context, (named, options), form.recipients.is_some())?;
    Ok(Arc::new(
        lenient_keyring(context, options)?.signing_with(sign),
    ))
}
