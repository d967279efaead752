//! Keys that a program keeps: it wraps a set's key for a key service, a hardware module or a chip, and unwraps it again.
//!
//! Invariants
//! - A program gets the key on its standard input alone, and nothing that media say but a set's identifier and its own bytes:
//!   which key it is asked for is what the caller named, and a slot of another key is skipped.
//! - A wrapped key that shows the key itself is refused, and so is one that is shorter than a key or longer than
//!   [`WRAPPED_MAX`].
//! - A program's own message is shown without anything that could be a key.
//! - Whether an unwrapped key is right the set's commitment decides, as for all others.
//!
//! Leaves to others: which programs these are, starting them and ending them in time (the programs of this workspace).

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::text::hexadecimal;
use crate::{Error, KEY_LEN, Secret};

/// The name of what is no set.
pub(crate) const WAL: &str = "wal";
/// The number of this form of a slot.
const PLAIN: u16 = 1;
/// Bytes of a slot before the key id.
const HEAD_LEN: usize = 4;
/// The longest key id: a resource name of a cloud, or a URI of PKCS#11.
pub(crate) const KEY_ID_MAX: usize = 512;
/// The most bytes of a wrapped key.
pub const WRAPPED_MAX: usize = 4096;
/// A word of a program's message that is as long may be a key, and is not shown.
const WORD_MAX: usize = 40;
/// Shorter words are no pieces of a key.
const PIECE_MIN: usize = 6;
/// Words with letters and digits that together are as long may be a key in pieces, which has 43 characters or more, and some pieces have
/// no digit.
const PIECES_MAX: usize = 30;
/// The most characters of a program's message.
const MESSAGE_MAX: usize = 300;

/// The task of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// Input: a set's key in base64. Output: any bytes, as many as a key has or more, at most [`WRAPPED_MAX`].
    Wrap,
    /// Input: those bytes. Output: the key in base64; white space around it means nothing.
    Unwrap,
}

/// One call of a program.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    pub errand: Errand,
    pub key_id: &'a str,
    /// The set's identifier, or `wal`.
    pub set: &'a str,
    pub input: &'a [u8],
}

/// Runs a program and returns what it printed. The error says why there is nothing.
pub type KeyProgram = dyn Fn(&Ask) -> Result<Zeroizing<Vec<u8>>, String> + Send + Sync;

/// A key that a program keeps.
#[derive(Clone)]
pub struct CommandKey {
    id: String,
    program: Arc<KeyProgram>,
}

impl std::fmt::Debug for CommandKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CommandKey({})", self.id)
    }
}

/// The name of a set for programs that keep keys: its identifier, as it is printed everywhere.
pub(crate) fn set_name(set: &[u8; 16]) -> String {
    let shown = hexadecimal(set).to_lowercase();
    let mut name = shown.strip_prefix("0x").unwrap_or(&shown).to_owned();
    for at in [20, 16, 12, 8] {
        name.insert(at, '-');
    }
    name
}

fn is_key_id(text: &[u8]) -> bool {
    (1..=KEY_ID_MAX).contains(&text.len()) && text.iter().all(u8::is_ascii_graphic)
}

impl CommandKey {
    /// Errors: [`Error::Recipient`] for an id that is none: 1 to 512 visible characters of ASCII.
    pub fn new(id: &str, program: Arc<KeyProgram>) -> Result<CommandKey, Error> {
        match is_key_id(id.as_bytes()) {
            true => Ok(CommandKey {
                id: id.to_owned(),
                program,
            }),
            false => Err(Error::Recipient {
                what: "the id of a command's key has 1 to 512 visible characters of ASCII",
            }),
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    fn failed(&self, what: &str) -> Error {
        Error::Command {
            id: self.id.clone(),
            what: without_keys(what),
        }
    }

    /// The bytes of a slot.
    ///
    /// Errors: [`Error::Command`].
    pub(crate) fn wrap(&self, secret: &Secret, set: &str) -> Result<Vec<u8>, Error> {
        let text = Zeroizing::new(STANDARD.encode(&secret[..]));
        let asked = (self.program)(&Ask {
            errand: Errand::Wrap,
            key_id: &self.id,
            set,
            input: text.as_bytes(),
        });
        let wrapped = asked.map_err(|what| self.failed(&what))?;
        let (lower, upper) = (
            digits(secret, b"0123456789abcdef"),
            digits(secret, b"0123456789ABCDEF"),
        );
        let shows = |part: &[u8]| wrapped.windows(part.len()).any(|found| found == part);
        let parts = [
            &secret[..],
            text.trim_end_matches('=').as_bytes(),
            &lower[..],
            &upper[..],
        ];
        if parts.into_iter().any(shows) {
            return Err(self.failed("its output has the key in it, not wrapped"));
        }
        // Less than a key cannot hold one: `null`, for example, is what a service's error becomes on its way.
        if !(KEY_LEN..=WRAPPED_MAX).contains(&wrapped.len()) {
            let what = format!(
                "it printed {} bytes, not {KEY_LEN} to {WRAPPED_MAX}",
                wrapped.len()
            );
            return Err(self.failed(&what));
        }
        let mut out = Vec::with_capacity(HEAD_LEN + self.id.len() + wrapped.len());
        out.extend_from_slice(&PLAIN.to_le_bytes());
        out.extend_from_slice(&(self.id.len() as u16).to_le_bytes());
        out.extend_from_slice(self.id.as_bytes());
        out.extend_from_slice(&wrapped);
        Ok(out)
    }

    /// Whether a slot is for this key.
    pub(crate) fn fits(&self, bytes: &[u8]) -> bool {
        CommandSlot::of(bytes).is_some_and(|slot| slot.key_id == self.id)
    }

    /// The secret of a slot.
    ///
    /// Errors: [`Error::Command`].
    pub(crate) fn open(&self, bytes: &[u8], set: &str) -> Result<Secret, Error> {
        let slot = CommandSlot::of(bytes).filter(|slot| slot.key_id == self.id);
        let slot = slot.ok_or_else(|| self.failed("the slot is another key's"))?;
        let asked = (self.program)(&Ask {
            errand: Errand::Unwrap,
            key_id: &self.id,
            set,
            input: slot.wrapped,
        });
        let printed = asked.map_err(|what| self.failed(&what))?;
        let mut secret = Secret::default();
        // One byte more than a key has room here, so that a longer text is seen.
        let mut room = Zeroizing::new([0; KEY_LEN + 4]);
        match STANDARD.decode_slice(printed.trim_ascii(), &mut room[..]) {
            Ok(KEY_LEN) => secret.copy_from_slice(&room[..KEY_LEN]),
            _ => return Err(self.failed("it printed something else than a key in base64")),
        }
        Ok(secret)
    }
}

/// The two digits of each byte.
fn digits(secret: &Secret, of: &[u8; 16]) -> Zeroizing<[u8; 2 * KEY_LEN]> {
    let mut out = Zeroizing::new([0; 2 * KEY_LEN]);
    for (pair, byte) in out.chunks_exact_mut(2).zip(secret.iter()) {
        pair.copy_from_slice(&[of[usize::from(byte >> 4)], of[usize::from(byte & 15)]]);
    }
    out
}

/// A slot of a program's key, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandSlot<'a> {
    pub key_id: &'a str,
    wrapped: &'a [u8],
}

impl<'a> CommandSlot<'a> {
    /// `None`: it is malformed, or of another form.
    pub fn of(bytes: &'a [u8]) -> Option<CommandSlot<'a>> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>()?;
        let n = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let (key_id, wrapped) = rest.split_at_checked(n(2).into())?;
        let is_whole =
            n(0) == PLAIN && is_key_id(key_id) && (1..=WRAPPED_MAX).contains(&wrapped.len());
        is_whole.then_some(CommandSlot {
            key_id: std::str::from_utf8(key_id).ok()?,
            wrapped,
        })
    }
}

/// Whether a word may be a piece of a key: letters with digits.
fn may_be_a_piece(word: &str) -> bool {
    let has = |is: fn(&char) -> bool| word.chars().any(|c| is(&c));
    word.len() >= PIECE_MIN && has(char::is_ascii_digit) && has(char::is_ascii_alphabetic)
}

/// A program's message on one line, without control characters and without words that could be a key, or a key together.
fn without_keys(message: &str) -> String {
    let is_of_a_key =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '-' | '_');
    let pieces = message
        .split_whitespace()
        .filter(|word| may_be_a_piece(word));
    let is_in_pieces = pieces.map(str::len).sum::<usize>() >= PIECES_MAX;
    let mut out = String::new();
    for word in message.split_whitespace() {
        // Those of a key may be escaped or apart: `%2F`, `ab:cd`.
        let is_long = word.chars().filter(|c| is_of_a_key(*c)).count() >= WORD_MAX;
        let shown = match (is_long, is_in_pieces && may_be_a_piece(word)) {
            (false, false) => word,
            (true, _) => "(a long word)",
            (false, true) => "(a word)",
        };
        if !out.is_empty() {
            out.push(' ');
        }
        out.extend(shown.chars().filter(|c| !c.is_control()));
    }
    if let Some((end, _)) = out.char_indices().nth(MESSAGE_MAX) {
        out.truncate(end);
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn program(
        act: impl Fn(&Ask) -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> Arc<KeyProgram> {
        Arc::new(move |ask: &Ask| act(ask).map(Zeroizing::new))
    }

    /// A service that turns letters around.
    fn turned(ask: &Ask) -> Result<Vec<u8>, String> {
        Ok(ask.input.iter().rev().copied().collect())
    }

    #[test]
    fn a_key_comes_back_from_its_program_and_is_asked_for_by_its_own_id_alone() {
        let key = CommandKey::new("arn:aws:kms:eu-west-1:1:key/2", program(turned)).unwrap();
        let secret = Secret::new([7; KEY_LEN]);
        let slot = key.wrap(&secret, "wal").unwrap();
        assert!(key.fits(&slot));
        assert_eq!(*key.open(&slot, "wal").unwrap(), *secret);
        let spaced = |ask: &Ask| turned(ask).map(|out| [b" \n", &out[..], b"\r\n"].concat());
        let spaced = CommandKey::new(key.id(), program(spaced)).unwrap();
        assert_eq!(*spaced.open(&slot, "wal").unwrap(), *secret);
        let other = CommandKey::new("another", program(|_| panic!("it is not asked"))).unwrap();
        assert!(!other.fits(&slot));
        assert!(other.open(&slot, "wal").is_err());
    }

    #[test]
    fn a_program_that_keeps_nothing_secret_or_prints_too_much_is_refused() {
        let secret = Secret::new([0xab; KEY_LEN]);
        fn raw(ask: &Ask) -> Result<Vec<u8>, String> {
            STANDARD.decode(ask.input).map_err(|e| e.to_string())
        }
        let hex = |ask: &Ask| raw(ask).map(|key| hexadecimal(&key).replace("0x", ""));
        let lower = move |ask: &Ask| Ok(hex(ask)?.to_lowercase().into_bytes());
        let upper = move |ask: &Ask| Ok(hex(ask)?.into_bytes());
        let outputs: [Arc<KeyProgram>; 7] = [
            program(|ask| Ok(ask.input.to_vec())),
            program(|ask| Ok([b"x:", ask.input, b"\n"].concat())),
            program(raw),
            program(lower),
            program(upper),
            program(|_| Ok(b"null".to_vec())),
            program(|_| Ok(vec![1; WRAPPED_MAX + 1])),
        ];
        for (i, output) in outputs.into_iter().enumerate() {
            let key = CommandKey::new("k", output).unwrap();
            assert!(key.wrap(&secret, "wal").is_err(), "{i}");
        }
    }

    #[test]
    fn what_is_printed_for_a_key_is_a_key_or_refused_and_is_not_repeated() {
        let good = STANDARD.encode([3; KEY_LEN]);
        let slot = CommandKey::new("k", program(turned))
            .and_then(|key| key.wrap(&Secret::new([3; KEY_LEN]), "wal"))
            .unwrap();
        let printed = [
            String::new(),
            good[1..].to_owned(),
            STANDARD.encode([3; KEY_LEN + 1]),
            STANDARD.encode([3; KEY_LEN - 1]),
            STANDARD.encode([3; 4000]),
            format!("{good} {good}"),
            "denied".to_owned(),
        ];
        for text in printed {
            let said = text.clone();
            let key = CommandKey::new("k", program(move |_| Ok(said.clone().into()))).unwrap();
            let refused = key.open(&slot, "wal").unwrap_err().to_string();
            assert!(!refused.contains(&good[..8]), "{refused}");
        }
        let key = CommandKey::new(
            "k",
            program({
                let good = good.clone();
                move |_| Err(format!("bad key\n{good}\x1b[2J"))
            }),
        );
        let refused = key.unwrap().open(&slot, "wal").unwrap_err().to_string();
        assert!(refused.contains("bad key (a long word)"), "{refused}");
        let escaped = format!(
            "bad http://k/?key={}",
            good.replace('=', "%3D").replace('A', "%41")
        );
        let apart: Vec<String> = [3u8; KEY_LEN].iter().map(|b| format!("{b:02x}")).collect();
        for shown in [escaped, apart.join(":")] {
            let key = CommandKey::new("k", program(move |_| Err(shown.clone())));
            let refused = key.unwrap().open(&slot, "wal").unwrap_err().to_string();
            assert!(refused.contains("(a long word)"), "{refused}");
        }
        // Letters and digits, as random keys have them.
        let real: Vec<u8> = (0..KEY_LEN as u8).map(|n| n.wrapping_mul(89)).collect();
        let real = STANDARD.encode(real);
        for size in [8, 11, 22, 33] {
            let pieces: Vec<&str> = (0..real.len())
                .step_by(size)
                .map(|at| &real[at..real.len().min(at + size)])
                .collect();
            let shown = format!("bad key: {}", pieces.join(" "));
            let key = CommandKey::new("k", program(move |_| Err(shown.clone())));
            let refused = key.unwrap().open(&slot, "wal").unwrap_err().to_string();
            assert!(refused.contains("bad key:"), "{refused}");
            let is_shown = |piece: &&&str| piece.len() > 5 && refused.contains(**piece);
            let left: usize = pieces.iter().filter(is_shown).map(|p| p.len()).sum();
            assert!(left <= 12, "{size}: {refused}");
        }
        let plain = "AccessDenied 403: user u17 may not use 10.0.0.1:8200";
        let key = CommandKey::new("k", program(move |_| Err(plain.to_owned())));
        let refused = key.unwrap().open(&slot, "wal").unwrap_err().to_string();
        assert!(refused.ends_with(plain), "{refused}");
        assert!(!refused.contains('\x1b'), "{refused}");
    }

    #[test]
    fn ids_that_no_terminal_or_variable_would_bear_are_refused() {
        for id in [
            "",
            "a b",
            "a\nb",
            "a\0",
            "schlüssel",
            &"x".repeat(KEY_ID_MAX + 1),
        ] {
            assert!(CommandKey::new(id, program(turned)).is_err(), "{id:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_of_a_slot_are_read_without_a_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..700),
            short in any::<bool>(),
        ) {
            if short && bytes.len() > 4 {
                bytes[..4].copy_from_slice(&[1, 0, 9, 0]);
            }
            if let Some(slot) = CommandSlot::of(&bytes) {
                prop_assert!(is_key_id(slot.key_id.as_bytes()));
            }
        }
    }
}
