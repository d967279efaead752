//! An open session: commands and their replies, message by message.
//!
//! Invariants
//! - A message longer than [`MESSAGE_MAX`] or an answer longer than [`ANSWER_MAX`] is refused before it is held in
//!   memory.
//! - A timeout loses nothing: the next call continues where this one stopped.
//!
//! Leaves to others: opening the connection (`startup.rs`), and the content of replies (`reply.rs`).

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{Header, Message};
use postgres_protocol::message::frontend;

use super::error::{Error, ServerError};
use super::reply::{Reply, Rows};
use super::stream::Stream;

/// Longest message accepted from a server, in bytes. WAL and archives arrive in much smaller messages.
pub const MESSAGE_MAX: usize = 64 << 20;
/// The most bytes of rows in one answer.
pub const ANSWER_MAX: usize = 64 << 20;

const READ_LEN: usize = 64 << 10;

/// The kind of server process that serves the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// SQL.
    Sql,
    /// Physical replication commands, and no SQL.
    Replication,
}

/// An open session. Dropping it ends the session, and any backup that it began.
pub struct Connection {
    pub(super) stream: Stream,
    pub(super) input: BytesMut,
    pub(super) output: BytesMut,
    pub(super) parameters: HashMap<String, String>,
    pub(super) address: String,
    /// The running command's refusal, which is returned once the server is ready for another one.
    pub(super) refused: Option<Box<ServerError>>,
}

impl Connection {
    /// Host and port, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A parameter that the server reported at the start, e.g. `server_version`.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// The server's major version: 15 for `15.14 (Debian 15.14-0+deb12u1)` and for `15beta1`.
    pub fn major(&self) -> Result<u32, Error> {
        let text = self.parameter("server_version").unwrap_or_default();
        let digits = text.split(|c: char| !c.is_ascii_digit()).next();
        digits
            .and_then(|d| d.parse().ok())
            .ok_or_else(|| Error::protocol(format!("the server's version is {text:?}")))
    }

    /// Sends SQL (or a replication command) and waits for the whole answer; returns the last rows.
    pub fn query(&mut self, sql: &str) -> Result<Rows, Error> {
        self.start(sql)?;
        let mut rows = Rows::default();
        while let Some(reply) = self.reply()? {
            match reply {
                Reply::Rows(answer) => rows = answer,
                Reply::Complete(_) => {}
                other => return Err(other.unexpected()),
            }
        }
        Ok(rows)
    }

    /// Like [`Connection::query`], but an answer that takes longer than `limit` is [`Error::Timeout`]; the session
    /// cannot be used afterwards.
    pub fn query_within(&mut self, sql: &str, limit: Duration) -> Result<Rows, Error> {
        self.stream.set_read_timeout(Some(limit))?;
        let answer = self.query(sql);
        self.stream.set_read_timeout(None)?;
        answer
    }

    /// Sends a command. Its replies must then be taken with [`Connection::reply`].
    pub fn start(&mut self, command: &str) -> Result<(), Error> {
        frontend::query(command, &mut self.output)
            .map_err(|_| Error::protocol("the command holds a zero byte".into()))?;
        self.flush()
    }

    /// The next part of the running command's answer; `None` when the server is ready for another command. Blocks.
    /// Errors: [`Error::Server`] if the server refused the command; the server is then ready for another one.
    pub fn reply(&mut self) -> Result<Option<Reply>, Error> {
        let mut rows: Option<Rows> = None;
        let mut held_bytes = 0;
        loop {
            let message = match self.message() {
                // A server that closed the connection has already said why.
                Err(Error::Lost { .. }) if self.refused.is_some() => return Err(self.refusal()),
                other => other?,
            };
            if self.refused.is_some() {
                if matches!(message, ParsedMessage::Message(Message::ReadyForQuery(_))) {
                    return Err(self.refusal());
                }
                continue;
            }
            match message {
                ParsedMessage::CopyBoth => return Ok(Some(Reply::CopyBoth)),
                ParsedMessage::Message(Message::RowDescription(body)) => {
                    let names = body
                        .fields()
                        .map(|f| Ok(f.name().to_owned()))
                        .collect()
                        .map_err(Error::malformed)?;
                    rows = Some(Rows::new(names));
                }
                ParsedMessage::Message(Message::DataRow(body)) => {
                    held_bytes += body.buffer().len();
                    if held_bytes > ANSWER_MAX {
                        return Err(Error::protocol("the answer is too long".into()));
                    }
                    let Some(rows) = rows.as_mut() else {
                        return Err(Error::protocol("a row came without its description".into()));
                    };
                    let bytes = body.buffer_bytes();
                    let values = body
                        .ranges()
                        .map(|range| Ok(range.map(|range| bytes.slice(range))))
                        .collect()
                        .map_err(Error::malformed)?;
                    rows.push(values);
                }
                ParsedMessage::Message(Message::CommandComplete(body)) => {
                    let tag = body.tag().map_err(Error::malformed)?;
                    // Rows end with a command tag; a command without rows has only the tag.
                    return Ok(Some(match rows {
                        Some(rows) => Reply::Rows(rows),
                        None => Reply::Complete(tag.to_owned()),
                    }));
                }
                ParsedMessage::Message(Message::EmptyQueryResponse) => {
                    return Ok(Some(Reply::Complete(String::new())));
                }
                ParsedMessage::Message(Message::CopyOutResponse(_)) => {
                    return Ok(Some(Reply::CopyOut));
                }
                ParsedMessage::Message(Message::CopyInResponse(_)) => {
                    return Ok(Some(Reply::CopyIn));
                }
                ParsedMessage::Message(Message::CopyData(body)) => {
                    return Ok(Some(Reply::Data(body.into_bytes())));
                }
                ParsedMessage::Message(Message::CopyDone) => return Ok(Some(Reply::CopyDone)),
                ParsedMessage::Message(Message::ReadyForQuery(_)) => return Ok(None),
                ParsedMessage::Message(Message::ErrorResponse(body)) => {
                    self.refused = Some(Box::new(ServerError::parse(body.fields())?));
                }
                ParsedMessage::Message(_) => {
                    return Err(Error::protocol(
                        "a message came that belongs to no command".into(),
                    ));
                }
            }
        }
    }

    /// Like [`Connection::reply`], but gives up if nothing arrives for `limit`: [`Error::Timeout`]. During a COPY, and of a
    /// refusal, this loses nothing; the caller can call again.
    pub fn reply_within(&mut self, limit: Duration) -> Result<Option<Reply>, Error> {
        self.stream.set_read_timeout(Some(limit))?;
        let reply = self.reply();
        self.stream.set_read_timeout(None)?;
        reply
    }

    /// Sends data of a COPY to the server, or in both directions.
    pub fn put_copy_data(&mut self, data: &[u8]) -> Result<(), Error> {
        frontend::CopyData::new(data)
            .map_err(|_| Error::protocol("a copy message is too long".into()))?
            .write(&mut self.output);
        self.flush()
    }

    /// Ends the data sent to the server.
    pub fn put_copy_done(&mut self) -> Result<(), Error> {
        frontend::copy_done(&mut self.output);
        self.flush()
    }

    fn refusal(&mut self) -> Error {
        Error::Server(self.refused.take().unwrap_or_default())
    }

    /// The next message that is neither a notice nor a parameter.
    pub(super) fn message(&mut self) -> Result<ParsedMessage, Error> {
        loop {
            if let Some(message) = take_message(&mut self.input)? {
                match message {
                    ParsedMessage::Message(Message::NoticeResponse(body)) => {
                        let notice = ServerError::parse(body.fields())?;
                        tracing::debug!(server = %self.address, notice = %notice.message, "notice");
                    }
                    ParsedMessage::Message(Message::ParameterStatus(body)) => {
                        let (Ok(name), Ok(value)) = (body.name(), body.value()) else {
                            continue;
                        };
                        self.parameters.insert(name.to_owned(), value.to_owned());
                    }
                    ParsedMessage::Message(Message::NotificationResponse(_)) => {}
                    other => return Ok(other),
                }
                continue;
            }
            self.fill()?;
        }
    }

    /// Waits for bytes from the server.
    fn fill(&mut self) -> Result<(), Error> {
        let held = self.input.len();
        self.input.resize(held + READ_LEN, 0);
        let read = loop {
            match self.stream.read(&mut self.input[held..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.input.truncate(held + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(self.lost(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(()),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                Err(Error::Timeout {
                    address: self.address.clone(),
                })
            }
            Err(e) => Err(self.lost(e)),
        }
    }

    pub(super) fn flush(&mut self) -> Result<(), Error> {
        let sent = self
            .stream
            .write_all(&self.output)
            .and_then(|()| self.stream.flush());
        self.output.clear();
        sent.map_err(|e| self.lost(e))
    }

    fn lost(&self, source: io::Error) -> Error {
        Error::Lost {
            address: self.address.clone(),
            source,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.output.clear();
        frontend::terminate(&mut self.output);
        // A courtesy: the server also notices a closed socket.
        let _ = self.flush();
    }
}

/// A message, or the one kind that `postgres-protocol` does not know.
pub(super) enum ParsedMessage {
    CopyBoth,
    Message(Message),
}

const COPY_BOTH_TAG: u8 = b'W';

/// Takes the first complete message out of `input`, or reserves room for the rest of it.
fn take_message(input: &mut BytesMut) -> Result<Option<ParsedMessage>, Error> {
    let Some(header) = Header::parse(input).map_err(Error::malformed)? else {
        return Ok(None);
    };
    // The length includes itself, but not the tag.
    let len = header.len() as usize;
    if len > MESSAGE_MAX {
        return Err(Error::protocol(format!(
            "a message of {len} bytes is announced"
        )));
    }
    if header.tag() == COPY_BOTH_TAG {
        if input.len() < 1 + len {
            return Ok(None);
        }
        input.advance(1 + len);
        return Ok(Some(ParsedMessage::CopyBoth));
    }
    let message = Message::parse(input).map_err(Error::malformed)?;
    Ok(message.map(ParsedMessage::Message))
}
