//! CREATE, ALTER and DROP CREDENTIAL.
//!
//! Invariants
//! - A change is stored before the statement succeeds, and is refused in a transaction, which could end in ROLLBACK.
//! - ALTER without a SECRET removes the secret, as in SQL Server.
//! - No message has a secret in it.
//!
//! Leaves to others: keeping credentials (`server/credentials.rs`), and their use (`object.rs`).

use crate::flow::{Flow, Out};
use crate::message::{self, Message};
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::{CredentialChange, CredentialStatement, CredentialText};

/// The most characters of an identity.
const IDENTITY_MAX: usize = 4000;
/// The most bytes of a secret.
const SECRET_MAX: usize = 7900;

/// Errors: 15151, 15530, 15540.
pub(crate) fn credential(
    session: &mut Session,
    statement: &CredentialStatement,
    out: &mut Out,
) -> Flow {
    if session.transactions > 0 {
        let text = "a credential cannot be changed inside a transaction: the change could not be rolled back";
        return Err(message::OWN.with(&[&text]).into());
    }
    let name = &statement.name;
    let kept = &session.server.kept;
    match &statement.change {
        CredentialChange::Create(text) => {
            check(text)?;
            if name.starts_with('#') {
                let text = "the name of a credential does not begin with #";
                return Err(message::OWN.with(&[&text]).into());
            }
            kept.add_credential(name, &text.identity, secret(text), session.server.now())?;
        }
        CredentialChange::Alter(text) => {
            check(text)?;
            kept.change_credential(name, &text.identity, secret(text), session.server.now())?;
        }
        CredentialChange::Drop => kept.drop_credential(name)?,
    }
    Ok(out.done(Command::Other, None)?)
}

fn secret(text: &CredentialText) -> Option<&str> {
    text.secret.as_ref().map(|secret| secret.reveal())
}

fn check(text: &CredentialText) -> Result<(), Message> {
    if text.identity.chars().nth(IDENTITY_MAX).is_some() {
        return Err(message::IDENTITY_TOO_LONG.with(&[&IDENTITY_MAX]));
    }
    match secret(text).is_some_and(|secret| secret.len() > SECRET_MAX) {
        true => {
            let text = format!("the secret is too long: it has at most {SECRET_MAX} bytes");
            Err(message::OWN.with(&[&text]))
        }
        false => Ok(()),
    }
}
