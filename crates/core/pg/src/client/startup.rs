//! From a socket to a session: encryption, the startup message, the password.
//!
//! Invariants
//! - Servers of a list are tried in order, and the first that answers decides, even if it refuses.
//! - `sslmode` means what it means to libpq: only with `prefer` a connection is tried again, or goes on, in plain text.
//! - A password in clear text goes only over an encrypted connection; with SCRAM the server must prove that it knows
//!   the password.
//! - Nothing after the server's one-byte answer is read before TLS starts, so an attacker cannot inject data.
//!
//! Leaves to others: reading options (`options.rs`), verifying certificates (`tls.rs`), and messages after the start.

use std::collections::HashMap;
use std::io::{Read, Write};

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use longshore_io::Storage;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use super::connection::{Connection, Mode, ParsedMessage};
use super::options::{Host, Options, Secret, SslMode};
use super::stream::Stream;
use super::{Error, ServerError, passfile, tls};

/// If a server cannot be reached, the next one is tried; the first one that answers decides.
pub(super) fn open(
    storage: &dyn Storage,
    options: &Options,
    mode: Mode,
) -> Result<Connection, Error> {
    let mut last = None;
    for host in &options.hosts {
        match open_one(storage, options, host, mode) {
            Err(e @ (Error::Connect { .. } | Error::Timeout { .. })) => last = Some(e),
            other => return other,
        }
    }
    Err(last.unwrap_or(Error::Options {
        reason: "no host is given".into(),
    }))
}

fn open_one(
    storage: &dyn Storage,
    options: &Options,
    host: &Host,
    mode: Mode,
) -> Result<Connection, Error> {
    let encrypt = options.ssl_mode != SslMode::Disable;
    let first = attempt(storage, options, host, mode, encrypt);
    match first {
        // As in libpq: `prefer` does not require encryption, and pg_hba.conf may demand a plain connection (28000).
        Err(ref e @ (Error::Tls { .. } | Error::Server(_)))
            if options.ssl_mode == SslMode::Prefer
                && matches!(host, Host::Tcp { .. })
                && e.sqlstate().is_none_or(|state| state == "28000") =>
        {
            attempt(storage, options, host, mode, false).or(first)
        }
        other => other,
    }
}

fn attempt(
    storage: &dyn Storage,
    options: &Options,
    host: &Host,
    mode: Mode,
    encrypt: bool,
) -> Result<Connection, Error> {
    let stream = Stream::connect(host, options)?;
    stream.set_read_timeout(Some(options.connect_timeout))?;
    let stream = match (stream, host) {
        (Stream::Tcp(socket), Host::Tcp { name, .. }) if encrypt => {
            negotiate(storage, options, name, host, socket)?
        }
        (stream, _) => stream,
    };
    let mut connection = Connection {
        stream,
        input: BytesMut::new(),
        output: BytesMut::new(),
        parameters: HashMap::new(),
        refused: None,
        address: host.to_string(),
    };
    let mut parameters = vec![
        ("user", options.user.as_str()),
        ("database", &options.database),
        ("application_name", &options.application_name),
        // Nothing is converted: labels must be stored as they are.
        ("client_encoding", "SQL_ASCII"),
        // A role's settings must not change the format of values that are parsed here.
        ("DateStyle", "ISO"),
    ];
    if let Some(settings) = &options.settings {
        parameters.push(("options", settings));
    }
    if mode == Mode::Replication {
        parameters.push(("replication", "true"));
    }
    frontend::startup_message(parameters, &mut connection.output).map_err(|_| Error::Options {
        reason: "a value holds a zero byte".into(),
    })?;
    connection.flush()?;
    let password = || password(storage, options, host);
    connection.authenticate(&options.user, &password)?;
    loop {
        match connection.message()? {
            ParsedMessage::Message(Message::ReadyForQuery(_)) => break,
            ParsedMessage::Message(Message::BackendKeyData(_)) => {}
            other => return Err(refusal(other)),
        }
    }
    connection.stream.set_read_timeout(None)?;
    Ok(connection)
}

/// Requests encryption and reads the answer, one byte. Nothing after that byte is read before TLS starts, so an
/// attacker cannot inject data.
fn negotiate(
    storage: &dyn Storage,
    options: &Options,
    name: &str,
    host: &Host,
    mut socket: std::net::TcpStream,
) -> Result<Stream, Error> {
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    let mut answer = [0];
    socket
        .write_all(&request)
        .and_then(|()| socket.read_exact(&mut answer))
        .map_err(|source| Error::Connect {
            address: host.to_string(),
            source,
        })?;
    match answer[0] {
        b'S' => Ok(Stream::Tls(tls::wrap(storage, options, name, socket)?)),
        _ if options.ssl_mode == SslMode::Prefer => Ok(Stream::Tcp(socket)),
        _ => Err(Error::Tls {
            address: host.to_string(),
            reason: "the server does not encrypt".into(),
        }),
    }
}

fn password(storage: &dyn Storage, options: &Options, host: &Host) -> Result<Secret, Error> {
    if let Some(password) = &options.password {
        return Ok(password.clone());
    }
    let found = match &options.passfile {
        None => None,
        Some(path) => passfile::find(storage, path, host, &options.database, &options.user)?,
    };
    found.ok_or(Error::Authentication {
        address: host.to_string(),
        reason: "the server asks for a password, and none is given",
    })
}

/// The error for a message that is not valid at this point.
fn refusal(message: ParsedMessage) -> Error {
    match message {
        ParsedMessage::Message(Message::ErrorResponse(body)) => {
            match ServerError::parse(body.fields()) {
                Ok(refusal) => Error::Server(Box::new(refusal)),
                Err(e) => e,
            }
        }
        _ => Error::protocol("a message came that does not belong to a session's startup".into()),
    }
}

impl Connection {
    fn authenticate(
        &mut self,
        user: &str,
        password: &dyn Fn() -> Result<Secret, Error>,
    ) -> Result<(), Error> {
        let refuse = |address: &str, reason| Error::Authentication {
            address: address.to_owned(),
            reason,
        };
        match self.message()? {
            ParsedMessage::Message(Message::AuthenticationOk) => return Ok(()),
            ParsedMessage::Message(Message::AuthenticationCleartextPassword) => {
                if matches!(self.stream, Stream::Tcp(_)) {
                    return Err(refuse(
                        &self.address,
                        "the server asks for the password in clear text over an unencrypted connection",
                    ));
                }
                self.put_password(password()?.0.as_bytes())?;
            }
            ParsedMessage::Message(Message::AuthenticationMd5Password(body)) => {
                let hash = md5_hash(user.as_bytes(), password()?.0.as_bytes(), body.salt());
                self.put_password(hash.as_bytes())?;
            }
            ParsedMessage::Message(Message::AuthenticationSasl(body)) => {
                let knows = body
                    .mechanisms()
                    .any(|m| Ok(m == SCRAM_SHA_256))
                    .map_err(Error::malformed)?;
                if !knows {
                    return Err(refuse(
                        &self.address,
                        "the server does not offer SCRAM-SHA-256",
                    ));
                }
                self.scram(&password()?)?;
            }
            ParsedMessage::Message(
                Message::AuthenticationGss
                | Message::AuthenticationSspi
                | Message::AuthenticationKerberosV5
                | Message::AuthenticationScmCredential,
            ) => {
                let reason = "the server asks for Kerberos, which is not supported";
                return Err(refuse(&self.address, reason));
            }
            other => return Err(refusal(other)),
        }
        match self.message()? {
            ParsedMessage::Message(Message::AuthenticationOk) => Ok(()),
            other => Err(refusal(other)),
        }
    }

    fn put_password(&mut self, password: &[u8]) -> Result<(), Error> {
        frontend::password_message(password, &mut self.output).map_err(|_| Error::Options {
            reason: "the password holds a zero byte".into(),
        })?;
        self.flush()
    }

    /// SCRAM proves that both sides know the password; a server that does not know it learns nothing.
    fn scram(&mut self, password: &Secret) -> Result<(), Error> {
        let wrong = |address: &str| Error::Authentication {
            address: address.to_owned(),
            reason: "the server did not prove that it knows the password",
        };
        let mut scram = ScramSha256::new(password.0.as_bytes(), ChannelBinding::unsupported());
        frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), &mut self.output)
            .map_err(Error::malformed)?;
        self.flush()?;
        match self.message()? {
            ParsedMessage::Message(Message::AuthenticationSaslContinue(body)) => {
                scram
                    .update(body.data())
                    .map_err(|_| wrong(&self.address))?;
            }
            other => return Err(refusal(other)),
        }
        frontend::sasl_response(scram.message(), &mut self.output).map_err(Error::malformed)?;
        self.flush()?;
        match self.message()? {
            ParsedMessage::Message(Message::AuthenticationSaslFinal(body)) => {
                scram.finish(body.data()).map_err(|_| wrong(&self.address))
            }
            other => Err(refusal(other)),
        }
    }
}
