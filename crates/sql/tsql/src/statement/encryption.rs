//! WITH ENCRYPTION of BACKUP: for whom a set is encrypted, and what is said about it; and what is said where a set does not
//! open.
//!
//! Invariants
//! - The recipients of the configuration stay recipients: a statement adds its certificate to them.
//! - A certificate is used only if it is the one that was stored last under its name.
//! - An expired certificate encrypts nothing new, and opens what it has encrypted.
//!
//! Leaves to others: keeping certificates (`server/keys.rs`), and encrypting (`longshore-media`).

use longshore_catalog::{KeptBy, KeptCertificate};
use longshore_media::Recipients;

use super::options::Options;
use crate::flow::{Out, Stop};
use crate::message::{self, Message};
use crate::refusal;
use crate::session::Session;

/// The cipher that every encrypted set has.
const CIPHER: &str = "AES_256";

/// For whom a backup is encrypted; `None`: it is not.
///
/// Errors: 15151, 3096; the configuration's recipients or its signing key cannot be used, or a signature would be missing.
pub fn recipients(
    session: &Session,
    options: &Options,
    out: &mut Out,
) -> Result<Option<Recipients>, Stop> {
    let configured = match &session.server.setup.encrypt_to {
        Ok(recipients) => recipients.clone(),
        Err(why) => return Err(refusal::unusable(why).into()),
    };
    let Some(wanted) = &options.encryption else {
        if configured.is_none() && session.context().keyring.signers().required() {
            let text = "a signature is required, and what is not encrypted cannot be signed; add WITH ENCRYPTION, or `recipients` to the \
                        configuration";
            return Err(message::OWN.with(&[&text]).into());
        }
        return Ok(configured);
    };
    let row = session.server.keys.certificate(&wanted.certificate)?;
    let now_s = session.server.setup.context.clock.wall_ns() / 1_000_000_000;
    if row.certificate.expiry_s < now_s {
        return Err(message::CERTIFICATE_EXPIRED.plain().into());
    }
    let mut list = configured
        .as_ref()
        .map_or(Vec::new(), |all| all.list().to_vec());
    list.push((&row.certificate).into());
    // The statement asks for RSA by name.
    let all = Recipients::new(list, true).map_err(|e| message::OWN.with(&[&e]))?;
    if wanted.algorithm != CIPHER {
        let text = format!(
            "{CIPHER} is used instead of {}: every encrypted set has it",
            wanted.algorithm
        );
        out.say(message::DETAIL.with(&[&text]))?;
    }
    if configured.is_some_and(|all| all.are_hybrid()) {
        let text = "the backup is encrypted for the configuration's recipients, too, which withstand a quantum computer; RSA does \
                    not, and the weakest decides";
        out.say(message::WARNING.with(&[&text]))?;
    }
    if let Some(said) = about(&row) {
        out.say(said)?;
    }
    Ok(Some(all))
}

/// The fact that somebody who relies on this certificate must know.
fn about(row: &KeptCertificate) -> Option<Message> {
    let text = match row.kept_by() {
        KeptBy::MasterKey => {
            return row
                .backed_up
                .is_none()
                .then(|| message::NOT_BACKED_UP.plain());
        }
        KeptBy::Nobody => "its private key is not here",
        KeptBy::Password => "its private key is encrypted by a password",
    };
    let text = format!(
        "this server cannot restore the backup with the certificate '{}': {text}",
        row.name
    );
    Some(message::WARNING.with(&[&text]))
}

/// Replaces the message that a certificate is not here by the reason, if it is here and its key cannot be used.
pub fn explain(session: &Session, messages: &mut [Message]) {
    let missing = message::NO_SERVER_CERTIFICATE.number;
    for message in messages.iter_mut().filter(|m| m.number == missing) {
        let thumbprint = message.text.split('\'').nth(1).unwrap_or_default();
        let keys = &session.server.keys;
        if let Some(why) = keys.why_closed(thumbprint, session.master_key.as_ref()) {
            *message = why;
        }
    }
}
