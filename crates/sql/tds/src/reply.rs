//! A server's answers: tokens, in packets (MS-TDS 2.2.7).
//!
//! Invariants
//! - Tokens are written in the order of the calls; [`Reply::ready`] returns the bytes that can be sent.
//! - The last DONE of a message is held back until another token follows or the message ends: only then is it known
//!   whether it needs the bit MORE.
//!
//! Leaves to others: values on the wire (`value.rs`), and packets (`packet.rs`).

use crate::kind::{PACKET_LEN_MAX, PACKET_LEN_MIN};
use crate::login::Version;
use crate::packet::{HEADER_LEN, PACKET_LEN_DEFAULT, frame};
use crate::text::{cut, put_utf16, utf16_len};
use crate::value::{COLLATION, ResultColumn, Type, Value};

const COLMETADATA: u8 = 0x81;
const RETURNSTATUS: u8 = 0x79;
const RETURNVALUE: u8 = 0xac;
const ERROR: u8 = 0xaa;
const INFO: u8 = 0xab;
const LOGINACK: u8 = 0xad;
const FEATUREEXTACK: u8 = 0xae;
const ROW: u8 = 0xd1;
const NBCROW: u8 = 0xd2;
const ENVCHANGE: u8 = 0xe3;
const DONE: u8 = 0xfd;
const DONEPROC: u8 = 0xfe;
const DONEINPROC: u8 = 0xff;

const MORE: u16 = 0x01;
const FAILED: u16 = 0x02;
const COUNT: u16 = 0x10;
const ATTENTION: u16 = 0x20;

/// The most UTF-16 units of a message's text, and of the names next to it.
const TEXT_MAX: usize = 4000;
const NAME_MAX: usize = 128;

/// INFO or ERROR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice<'a> {
    pub number: u32,
    pub state: u8,
    /// 0 to 10 is information.
    pub class: u8,
    pub text: &'a str,
    pub server: &'a str,
    /// Empty outside of one.
    pub procedure: &'a str,
    pub line: u32,
    pub is_error: bool,
}

/// The end of a statement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DoneToken {
    /// The statement that ended; CurCmd.
    pub command: u16,
    /// `None`: not counted.
    pub rows: Option<u64>,
    pub error: bool,
}

/// The server's answer to a successful login.
#[derive(Debug, Clone, Copy)]
pub struct Greeting<'a> {
    pub version: Version,
    pub program: &'a str,
    /// Major, minor, build.
    pub program_version: (u8, u8, u16),
    /// The client asked for features; the answer lists none.
    pub acknowledge_features: bool,
}

#[derive(Debug, Clone, Copy)]
struct HeldToken {
    token: u8,
    done: DoneToken,
    attention: bool,
}

/// Assembles answers. One for each connection, used for all its messages.
#[derive(Debug)]
pub struct Reply {
    spid: u16,
    number: u8,
    /// Bytes of a packet, its header included.
    packet_len: usize,
    version: Version,
    body: Vec<u8>,
    ready: Vec<u8>,
    held: Option<HeldToken>,
    /// Inside a procedure's call, whose statements end with another token.
    in_procedure: bool,
    /// The column types of the current result set.
    kinds: Vec<Type>,
}

impl Default for Reply {
    fn default() -> Reply {
        Reply {
            spid: 0,
            number: 0,
            packet_len: PACKET_LEN_DEFAULT,
            version: Version::V7_4,
            body: Vec::new(),
            ready: Vec::new(),
            held: None,
            in_procedure: false,
            kinds: Vec::new(),
        }
    }
}

impl Reply {
    /// Called after a login. `session`: its lower 16 bits appear in packets.
    pub fn set_session(&mut self, session: u32, version: Version) {
        self.spid = session as u16;
        self.version = version;
    }

    /// Whether the client knows the date and time types introduced after `datetime`.
    pub fn has_newer_moments(&self) -> bool {
        self.version >= Version::V7_3
    }

    /// The packet length, in bytes, for a client that asks for this one; 0 asks for the default.
    pub fn packet_len_for(asked: u32) -> usize {
        match usize::try_from(asked) {
            Ok(0) => PACKET_LEN_DEFAULT,
            Ok(asked) => asked.clamp(PACKET_LEN_MIN, PACKET_LEN_MAX),
            Err(_) => PACKET_LEN_MAX,
        }
    }

    /// Takes effect with the next message.
    pub fn set_packet_len(&mut self, len_bytes: usize) {
        self.packet_len = len_bytes.clamp(PACKET_LEN_MIN, PACKET_LEN_MAX);
    }

    /// The bytes to send; the sender clears them. Whole packets, unless [`Reply::flush`] asked for everything.
    pub fn ready(&mut self) -> &mut Vec<u8> {
        &mut self.ready
    }

    /// Releases everything so far except the held-back DONE, so that the client sees it now.
    pub fn flush(&mut self) {
        if !self.body.is_empty() {
            self.packets(self.body.len(), false);
        }
    }

    /// The answer to PRELOGIN.
    pub fn pre_login(&mut self, body: &[u8]) {
        self.raw(body);
    }

    /// A TLS library's bytes, during the handshake. Newer clients accept them in packets of any kind; the protocol
    /// names PRELOGIN's.
    pub fn handshake(&mut self, bytes: &[u8]) {
        let from = self.ready.len();
        self.raw(bytes);
        let mut at = from;
        while let Some(header) = self.ready.get_mut(at..at + HEADER_LEN) {
            header[0] = crate::PacketKind::PreLogin as u8;
            at += usize::from(u16::from_be_bytes([header[2], header[3]]));
        }
    }

    fn raw(&mut self, body: &[u8]) {
        self.number = 0;
        frame(
            &mut self.ready,
            body,
            self.packet_len,
            self.spid,
            &mut self.number,
            true,
        );
    }

    /// Releases the first `len_bytes` of the body as packets; `ends`: with the message's last one.
    fn packets(&mut self, len_bytes: usize, ends: bool) {
        frame(
            &mut self.ready,
            &self.body[..len_bytes],
            self.packet_len,
            self.spid,
            &mut self.number,
            ends,
        );
        self.body.drain(..len_bytes);
    }

    /// Full packets are released; the last one stays, because it may be the last of the message.
    fn cut_packets(&mut self) {
        let capacity = self.packet_len - HEADER_LEN;
        let whole = self.body.len().saturating_sub(1) / capacity * capacity;
        if whole > 0 {
            self.packets(whole, false);
        }
    }

    fn token(&mut self, token: u8) {
        if let Some(held) = self.held.take() {
            self.put_done(held, true);
        }
        self.cut_packets();
        self.body.push(token);
    }

    fn put_done(&mut self, held: HeldToken, more: bool) {
        let HeldToken {
            token,
            done,
            attention,
        } = held;
        let flag = |on: bool, bit: u16| if on { bit } else { 0 };
        let status = flag(more, MORE)
            | flag(done.error, FAILED)
            | flag(done.rows.is_some(), COUNT)
            | flag(attention, ATTENTION);
        self.body.push(token);
        self.body.extend(status.to_le_bytes());
        self.body.extend(done.command.to_le_bytes());
        self.body.extend(done.rows.unwrap_or(0).to_le_bytes());
    }

    fn hold(&mut self, token: u8, done: DoneToken, attention: bool) {
        if let Some(held) = self.held.take() {
            self.put_done(held, true);
        }
        self.held = Some(HeldToken {
            token,
            done,
            attention,
        });
    }

    /// A whole answer to a client of TDS 7.0 or 7.1, whose ERROR and DONE are shorter: why it cannot log in.
    pub fn refuse_older(&mut self, notice: Notice) {
        let mut data = notice.number.to_le_bytes().to_vec();
        data.extend([notice.state, notice.class]);
        let text = cut(notice.text, TEXT_MAX);
        data.extend((utf16_len(text) as u16).to_le_bytes());
        put_utf16(&mut data, text);
        put_short(&mut data, notice.server);
        put_short(&mut data, "");
        data.extend(0_u16.to_le_bytes());
        self.body.push(ERROR);
        self.sized(&data);
        self.body.push(DONE);
        self.body.extend(FAILED.to_le_bytes());
        self.body.extend([0; 6]);
        self.packets(self.body.len(), true);
    }

    /// Begins a result set.
    pub fn columns<'a>(&mut self, columns: impl ExactSizeIterator<Item = ResultColumn<'a>>) {
        const NULLABLE: u16 = 0x01;
        // More than any statement returns.
        let count = columns.len().min(4096);
        self.token(COLMETADATA);
        self.body.extend((count as u16).to_le_bytes());
        self.kinds.clear();
        for column in columns.take(count) {
            self.body.extend(0_u32.to_le_bytes());
            let flags = if column.nullable { NULLABLE } else { 0 };
            self.body.extend(flags.to_le_bytes());
            column.kind.put_info(&mut self.body);
            put_short(&mut self.body, column.name);
            self.kinds.push(column.kind);
        }
    }

    /// A row of the result set; missing values are NULL, excess values are left out.
    pub fn row<'a>(&mut self, values: impl Iterator<Item = Value<'a>>) {
        let values: Vec<_> = values
            .chain(std::iter::repeat(Value::Null))
            .take(self.kinds.len())
            .collect();
        let nulls = values.iter().filter(|v| **v == Value::Null).count();
        let map_len = values.len().div_ceil(8);
        let compact = self.version >= Version::V7_3 && nulls > map_len;
        self.token(if compact { NBCROW } else { ROW });
        if compact {
            let at = self.body.len();
            self.body.resize(at + map_len, 0);
            for (i, _) in values
                .iter()
                .enumerate()
                .filter(|(_, v)| **v == Value::Null)
            {
                self.body[at + i / 8] |= 1 << (i % 8);
            }
        }
        for (kind, value) in self.kinds.iter().zip(&values) {
            // A value that does not fit is written as NULL in place; the map does not mark it.
            if !(compact && *value == Value::Null) {
                kind.put_value(&mut self.body, value);
            }
        }
    }

    pub fn notice(&mut self, notice: Notice) {
        self.token(if notice.is_error { ERROR } else { INFO });
        let mut data = Vec::new();
        data.extend(notice.number.to_le_bytes());
        data.extend([notice.state, notice.class]);
        let text = cut(notice.text, TEXT_MAX);
        data.extend((utf16_len(text) as u16).to_le_bytes());
        put_utf16(&mut data, text);
        put_short(&mut data, notice.server);
        put_short(&mut data, notice.procedure);
        data.extend(notice.line.to_le_bytes());
        self.sized(&data);
    }

    fn sized(&mut self, data: &[u8]) {
        self.body.extend((data.len() as u16).to_le_bytes());
        self.body.extend(data);
    }

    pub fn done(&mut self, done: DoneToken) {
        let token = if self.in_procedure { DONEINPROC } else { DONE };
        self.hold(token, done, false);
        if self.in_procedure
            && let Some(held) = self.held.take()
        {
            self.put_done(held, true);
        }
    }

    /// From here to [`Reply::procedure_ended`] statements end with DONEINPROC.
    pub fn procedure_began(&mut self) {
        self.in_procedure = true;
    }

    /// An output value of a procedure, by the parameter's name and position.
    pub fn return_value(&mut self, name: &str, place: u16, kind: Type, value: &Value) {
        self.token(RETURNVALUE);
        self.body.extend(place.to_le_bytes());
        put_short(&mut self.body, name);
        // An output parameter; no user type, no flags.
        self.body.push(0x01);
        self.body.extend([0; 4 + 2]);
        kind.put_info(&mut self.body);
        kind.put_value(&mut self.body, value);
    }

    pub fn return_status(&mut self, status: i32) {
        self.token(RETURNSTATUS);
        self.body.extend(status.to_le_bytes());
    }

    pub fn procedure_ended(&mut self, done: DoneToken) {
        self.in_procedure = false;
        self.hold(DONEPROC, done, false);
    }

    /// USE: the database has changed.
    pub fn database_changed(&mut self, from: &str, to: &str) {
        self.changed(0x01, to, from);
    }

    /// The session was reset, as the client asked.
    pub fn reset_done(&mut self) {
        self.token(ENVCHANGE);
        self.sized(&[0x12, 0, 0]);
    }

    /// A transaction has begun or ended; `id` is its number.
    pub fn transaction(&mut self, change: &crate::Transaction, id: u64) {
        let id = id.to_le_bytes();
        let (kind, new, old): (u8, &[u8], &[u8]) = match change {
            crate::Transaction::Begin { .. } => (0x08, &id, &[]),
            crate::Transaction::Commit { .. } => (0x09, &[], &id),
            crate::Transaction::Rollback { .. } => (0x0a, &[], &id),
            crate::Transaction::Save { .. } | crate::Transaction::Other => return,
        };
        self.token(ENVCHANGE);
        let mut data = vec![kind];
        for part in [new, old] {
            data.push(part.len() as u8);
            data.extend(part);
        }
        self.sized(&data);
    }

    fn changed(&mut self, what: u8, to: &str, from: &str) {
        self.token(ENVCHANGE);
        let mut data = vec![what];
        put_short(&mut data, to);
        put_short(&mut data, from);
        self.sized(&data);
    }

    pub fn language(&mut self, name: &str) {
        self.changed(0x02, name, "");
    }

    pub fn collation(&mut self) {
        self.token(ENVCHANGE);
        let mut data = vec![0x07, COLLATION.len() as u8];
        data.extend(COLLATION);
        data.push(0);
        self.sized(&data);
    }

    /// Announces the packet length that [`Reply::set_packet_len`] will set.
    pub fn packet_len(&mut self, len_bytes: usize) {
        let (to, from) = (len_bytes.to_string(), self.packet_len.to_string());
        self.changed(0x04, &to, &from);
    }

    pub fn login_ack(&mut self, greeting: Greeting) {
        self.token(LOGINACK);
        // Interface: T-SQL.
        let mut data = vec![0x01];
        data.extend(greeting.version.number().to_be_bytes());
        put_short(&mut data, greeting.program);
        let (major, minor, build) = greeting.program_version;
        data.extend([major, minor]);
        data.extend(build.to_be_bytes());
        self.sized(&data);
        if greeting.acknowledge_features {
            self.body.extend([FEATUREEXTACK, 0xff]);
        }
    }

    /// Ends the message.
    pub fn end(&mut self) {
        let held = self.held.take().unwrap_or(HeldToken {
            token: DONE,
            done: DoneToken::default(),
            attention: false,
        });
        self.put_done(held, false);
        self.finish();
    }

    /// The answer to an Attention; it follows the answer of the request that was ended.
    pub fn attention(&mut self) {
        self.hold(DONE, DoneToken::default(), true);
        self.end();
    }

    fn finish(&mut self) {
        self.packets(self.body.len(), true);
        self.number = 0;
        self.in_procedure = false;
        // An idle connection holds no buffer.
        self.body = Vec::new();
        self.kinds = Vec::new();
    }
}

/// B_VARCHAR.
fn put_short(out: &mut Vec<u8>, text: &str) {
    let text = cut(text, NAME_MAX);
    out.push(utf16_len(text) as u8);
    put_utf16(out, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bodies of the packets in order, and whether the last ends the message.
    fn body(reply: &mut Reply) -> (Vec<u8>, bool) {
        let bytes = std::mem::take(reply.ready());
        let mut rest = bytes.as_slice();
        let mut body = Vec::new();
        let mut ends = false;
        while !rest.is_empty() {
            assert!(!ends, "a packet after the last");
            let len = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
            assert!(len <= reply.packet_len);
            ends = rest[1] == 1;
            body.extend(&rest[HEADER_LEN..len]);
            rest = &rest[len..];
        }
        (body, ends)
    }

    fn ended(command: u16) -> DoneToken {
        DoneToken {
            command,
            rows: None,
            error: false,
        }
    }

    #[test]
    fn all_but_the_last_done_say_that_more_follows() {
        let mut reply = Reply::default();
        reply.done(ended(228));
        reply.flush();
        assert!(reply.ready().is_empty(), "the last is held back");
        reply.done(ended(229));
        reply.end();
        let (bytes, ends) = body(&mut reply);
        assert!(ends);
        assert_eq!(bytes.len(), 2 * 13);
        assert_eq!((bytes[0], bytes[1], bytes[3]), (DONE, 1, 228));
        assert_eq!((bytes[13], bytes[14], bytes[16]), (DONE, 0, 229));
    }

    #[test]
    fn a_message_without_a_statement_also_ends_with_a_done() {
        let mut reply = Reply::default();
        reply.end();
        assert_eq!(body(&mut reply).0[..3], [DONE, 0, 0]);
        reply.attention();
        assert_eq!(body(&mut reply).0[..3], [DONE, 0x20, 0]);
    }

    #[test]
    fn statements_of_a_procedure_end_inside_it() {
        let mut reply = Reply::default();
        reply.procedure_began();
        reply.done(ended(193));
        reply.return_status(0);
        reply.return_value("@h", 0, Type::Int, &Value::Int(1));
        reply.procedure_ended(ended(224));
        reply.end();
        let (bytes, _) = body(&mut reply);
        assert_eq!((bytes[0], bytes[1]), (DONEINPROC, 1));
        assert_eq!(bytes[13], RETURNSTATUS);
        assert_eq!(bytes[18], RETURNVALUE);
        assert_eq!(bytes[bytes.len() - 13..][..2], [DONEPROC, 0]);
    }

    #[test]
    fn news_leaves_before_its_message_ends_and_long_rows_are_cut_into_packets() {
        let mut reply = Reply::default();
        reply.set_packet_len(512);
        reply.notice(Notice {
            number: 3211,
            state: 1,
            class: 0,
            text: "10 percent processed.",
            server: "HARBOUR",
            procedure: "",
            line: 1,
            is_error: false,
        });
        reply.flush();
        let (bytes, ends) = body(&mut reply);
        assert_eq!((bytes[0], ends), (INFO, false));
        let long = "x".repeat(3000);
        reply.columns(
            [ResultColumn {
                name: "text",
                kind: Type::NVarChar(None),
                nullable: true,
            }]
            .into_iter(),
        );
        for _ in 0..3 {
            reply.row([Value::Text(long.as_str().into())].into_iter());
        }
        assert!(reply.body.len() < 7000, "rows leave as packets fill");
        reply.end();
        let (bytes, ends) = body(&mut reply);
        assert!(ends && bytes.len() > 3 * 6000);
    }

    #[test]
    fn rows_of_many_nulls_leave_them_out_where_the_client_knows_that() {
        let row = |version: Version| {
            let mut reply = Reply::default();
            reply.set_session(51, version);
            let column = ResultColumn {
                name: "n",
                kind: Type::Int,
                nullable: true,
            };
            reply.columns(
                std::iter::repeat_n(column, 10)
                    .collect::<Vec<_>>()
                    .into_iter(),
            );
            reply.flush();
            reply.ready().clear();
            let mut values = vec![Value::Null; 10];
            values[9] = Value::Int(7);
            reply.row(values.into_iter());
            reply.flush();
            body(&mut reply).0
        };
        let compact = row(Version::V7_3);
        assert_eq!(compact, [NBCROW, 0xff, 0x01, 4, 7, 0, 0, 0]);
        assert_eq!(row(Version::V7_2)[..2], [ROW, 0]);
    }

    #[test]
    fn an_older_client_is_refused_in_its_own_form() {
        let mut reply = Reply::default();
        reply.refuse_older(Notice {
            number: 50_001,
            state: 1,
            class: 16,
            text: "old",
            server: "H",
            procedure: "",
            line: 7,
            is_error: true,
        });
        let (bytes, ends) = body(&mut reply);
        assert!(ends);
        // Number, state, class, the text, the server, no procedure, and a line of two bytes.
        let len = usize::from(u16::from_le_bytes([bytes[1], bytes[2]]));
        assert_eq!((bytes[0], len), (ERROR, 4 + 2 + 2 + 6 + 1 + 2 + 1 + 2));
        assert_eq!(bytes[3 + len..], [DONE, 2, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn texts_longer_than_their_tokens_are_cut() {
        let mut reply = Reply::default();
        let long = "é".repeat(70_000);
        reply.notice(Notice {
            number: 50_000,
            state: 1,
            class: 16,
            text: &long,
            server: &long,
            procedure: "",
            line: 1,
            is_error: true,
        });
        reply.end();
        let (bytes, _) = body(&mut reply);
        let len = usize::from(u16::from_le_bytes([bytes[1], bytes[2]]));
        assert_eq!(bytes.len(), 3 + len + 13);
    }
}
