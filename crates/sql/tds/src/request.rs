//! SQL batches and requests about transactions (MS-TDS 2.2.6.7, 2.2.6.9).
//!
//! Invariants
//! - A length from the client is compared with the bytes that are there before they are taken; no input panics.
//!
//! Leaves to others: reassembling messages from packets (`packet.rs`), and the effect of a request (the caller).

use crate::cursor::Cursor;
use crate::error::Error;
use crate::text::from_utf16;

/// Skips ALL_HEADERS: notifications, transactions and traces change no answer here.
pub fn skip_headers(cursor: &mut Cursor) -> Result<(), Error> {
    let len = cursor.len32()?;
    let rest = len.checked_sub(4).ok_or(cursor.malformed())?;
    cursor.take(rest).map(drop)
}

/// The text of a batch.
pub fn batch_text(body: &[u8]) -> Result<String, Error> {
    let mut cursor = Cursor::new(body, "a batch");
    skip_headers(&mut cursor)?;
    match cursor.rest().len() % 2 {
        0 => Ok(from_utf16(cursor.rest())),
        _ => Err(cursor.malformed()),
    }
}

/// A client's request about a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transaction {
    Begin {
        /// Empty: it has none.
        name: String,
    },
    /// `begins`: the next transaction begins at once, as drivers without autocommit ask.
    Commit { begins: bool },
    Rollback {
        /// Of the transaction or of a savepoint; empty: all of it.
        name: String,
        begins: bool,
    },
    /// A savepoint.
    Save { name: String },
    /// Distributed transactions.
    Other,
}

impl Transaction {
    pub fn parse(body: &[u8]) -> Result<Transaction, Error> {
        let mut cursor = Cursor::new(body, "a transaction's request");
        skip_headers(&mut cursor)?;
        Ok(match cursor.u16()? {
            5 => {
                // Its isolation level.
                if !cursor.is_empty() {
                    cursor.u8()?;
                }
                Transaction::Begin {
                    name: name(&mut cursor)?,
                }
            }
            7 => {
                // The name of a transaction that is committed means nothing.
                name(&mut cursor)?;
                Transaction::Commit {
                    begins: begins(&mut cursor)?,
                }
            }
            8 => Transaction::Rollback {
                name: name(&mut cursor)?,
                begins: begins(&mut cursor)?,
            },
            9 => Transaction::Save {
                name: name(&mut cursor)?,
            },
            _ => Transaction::Other,
        })
    }
}

/// A name with its length in bytes before it. Some clients send neither.
fn name(cursor: &mut Cursor) -> Result<String, Error> {
    if cursor.is_empty() {
        return Ok(String::new());
    }
    let len = cursor.u8()?;
    Ok(from_utf16(cursor.take(len.into())?))
}

/// The flags at the end of a request that ends a transaction.
fn begins(cursor: &mut Cursor) -> Result<bool, Error> {
    const BEGIN: u8 = 1;
    Ok(!cursor.is_empty() && cursor.u8()? & BEGIN != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(headers: &[u8], rest: &[u8]) -> Vec<u8> {
        [headers, rest].concat()
    }

    #[test]
    fn texts_follow_headers_of_any_length() {
        let text = [b'G', 0, b'O', 0];
        assert_eq!(batch_text(&body(&[4, 0, 0, 0], &text)).unwrap(), "GO");
        assert_eq!(batch_text(&body(&[6, 0, 0, 0, 9, 9], &text)).unwrap(), "GO");
        assert!(batch_text(&body(&[3, 0, 0, 0], &text)).is_err());
        assert!(batch_text(&body(&[99, 0, 0, 0], &text)).is_err());
        assert!(batch_text(&body(&[4, 0, 0, 0], &text[..3])).is_err());
        assert!(batch_text(&[]).is_err());
        let begin = Transaction::parse(&[4, 0, 0, 0, 5, 0, 0, 0]);
        let name = String::new();
        assert_eq!(begin, Ok(Transaction::Begin { name }));
    }

    #[test]
    fn the_end_of_a_transaction_may_begin_the_next_one() {
        let parse = |rest: &[u8]| Transaction::parse(&body(&[4, 0, 0, 0], rest));
        let commit = |begins| Ok(Transaction::Commit { begins });
        assert_eq!(parse(&[7, 0]), commit(false));
        assert_eq!(parse(&[7, 0, 0]), commit(false));
        assert_eq!(parse(&[7, 0, 0, 0]), commit(false));
        assert_eq!(parse(&[7, 0, 0, 1, 0, 0]), commit(true));
        assert_eq!(parse(&[7, 0, 2, b'a', 0, 1, 0, 0]), commit(true));
        let rollback = |name: &str, begins| {
            let name = name.to_owned();
            Ok(Transaction::Rollback { name, begins })
        };
        assert_eq!(parse(&[8, 0, 0, 1, 0, 0]), rollback("", true));
        assert_eq!(parse(&[8, 0, 2, b'a', 0, 0]), rollback("a", false));
        let save = Transaction::Save { name: "b".into() };
        assert_eq!(parse(&[9, 0, 2, b'b', 0]), Ok(save));
        assert!(parse(&[9, 0, 2, b'b']).is_err());
        assert!(parse(&[8, 0, 9, b'a']).is_err());
    }
}
