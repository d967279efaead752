//! PRELOGIN: the capabilities of both sides, exchanged first (MS-TDS 2.2.6.5).
//!
//! Invariants
//! - Options may come in any order, and unknown ones are skipped; offsets outside of the message are an error.
//! - A client that says nothing about encryption counts as one without it.
//! - The answer has an option only if the client may get it: federated authentication is answered only if it was asked.
//!
//! Leaves to others: which encryption follows from both answers, and the encryption itself (the server).

use crate::cursor::Cursor;
use crate::error::Error;

const VERSION: u8 = 0x00;
const ENCRYPTION: u8 = 0x01;
const INSTANCE: u8 = 0x02;
const THREAD: u8 = 0x03;
const MARS: u8 = 0x04;
const FEDERATED: u8 = 0x06;
const END: u8 = 0xff;

/// One side's position on encryption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// Only the login is encrypted.
    Off,
    On,
    /// Encryption is not available.
    NotSupported,
    Required,
    /// TLS comes before the first message: TDS 8.0.
    Strict,
}

impl Encryption {
    /// The server does not ask for client certificates (bit 0x80), so that bit is ignored.
    fn of(byte: u8) -> Option<Encryption> {
        Some(match byte & 0x7f {
            0 => Encryption::Off,
            1 => Encryption::On,
            2 => Encryption::NotSupported,
            3 => Encryption::Required,
            4 => Encryption::Strict,
            _ => return None,
        })
    }

    fn byte(self) -> u8 {
        match self {
            Encryption::Off => 0,
            Encryption::On => 1,
            Encryption::NotSupported => 2,
            Encryption::Required => 3,
            Encryption::Strict => 4,
        }
    }
}

/// A client's first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreLogin {
    pub encryption: Encryption,
    /// The client asks whether federated authentication is required, and waits for the answer.
    asks_federated: bool,
}

impl PreLogin {
    pub fn parse(body: &[u8]) -> Result<PreLogin, Error> {
        const WHAT: &str = "PRELOGIN";
        let mut options = Cursor::new(body, WHAT);
        let mut found = PreLogin {
            encryption: Encryption::NotSupported,
            asks_federated: false,
        };
        loop {
            let option = options.u8()?;
            if option == END {
                return Ok(found);
            }
            let place = options.take(4)?;
            let at = usize::from(u16::from_be_bytes([place[0], place[1]]));
            let len = usize::from(u16::from_be_bytes([place[2], place[3]]));
            let data = body.get(at..at + len);
            let data = data.ok_or(Error::Truncated { what: WHAT })?;
            match (option, data.first()) {
                (ENCRYPTION, Some(byte)) => {
                    let encryption = Encryption::of(*byte);
                    found.encryption = encryption.ok_or(Error::Malformed { what: WHAT })?;
                }
                (FEDERATED, Some(_)) => found.asks_federated = true,
                // Instances, threads and traces concern the client only; the answer refuses MARS.
                _ => {}
            }
        }
    }

    /// The body of the answer. `version`: major, minor, build, from which clients derive the server's features.
    pub fn answer(&self, version: (u8, u8, u16), encryption: Encryption) -> Vec<u8> {
        let (major, minor, build) = version;
        let [build_high, build_low] = build.to_be_bytes();
        let mut options: Vec<(u8, Vec<u8>)> = vec![
            (VERSION, vec![major, minor, build_high, build_low, 0, 0]),
            (ENCRYPTION, vec![encryption.byte()]),
            (INSTANCE, vec![0]),
            (THREAD, Vec::new()),
            (MARS, vec![0]),
        ];
        if self.asks_federated {
            options.push((FEDERATED, vec![0]));
        }
        let mut at = options.len() * 5 + 1;
        let mut body = Vec::new();
        for (option, data) in &options {
            body.push(*option);
            body.extend((at as u16).to_be_bytes());
            body.extend((data.len() as u16).to_be_bytes());
            at += data.len();
        }
        body.push(END);
        options.iter().for_each(|(_, data)| body.extend(data));
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_can_be_read_as_a_question_is() {
        for encryption in [
            Encryption::Off,
            Encryption::On,
            Encryption::NotSupported,
            Encryption::Required,
            Encryption::Strict,
        ] {
            for asks_federated in [false, true] {
                let asked = PreLogin {
                    encryption,
                    asks_federated,
                };
                let answer = asked.answer((16, 0, 1000), encryption);
                assert_eq!(PreLogin::parse(&answer), Ok(asked));
            }
        }
    }

    #[test]
    fn lists_without_an_end_and_places_outside_are_refused() {
        assert!(PreLogin::parse(&[]).is_err());
        assert!(PreLogin::parse(&[ENCRYPTION, 0, 6, 0, 1]).is_err());
        assert!(PreLogin::parse(&[ENCRYPTION, 0xff, 0xff, 0xff, 0xff, END]).is_err());
        assert!(PreLogin::parse(&[ENCRYPTION, 0, 6, 0, 1, END, 9]).is_err());
        let bare = PreLogin::parse(&[END]).unwrap();
        assert_eq!(bare.encryption, Encryption::NotSupported);
    }
}
