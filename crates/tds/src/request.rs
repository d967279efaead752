//! SQL batches and requests about transactions (MS-TDS 2.2.6.7, 2.2.6.9).

use crate::cursor::Cursor;
use crate::error::Error;
use crate::text::from_utf16;

/// Skips ALL_HEADERS: what a client says of notifications, transactions and traces changes no answer here.
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

/// What a client wants of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transaction {
    Begin,
    Commit,
    Rollback,
    /// Savepoints and distributed ones.
    Other,
}

impl Transaction {
    pub fn parse(body: &[u8]) -> Result<Transaction, Error> {
        let mut cursor = Cursor::new(body, "a transaction's request");
        skip_headers(&mut cursor)?;
        Ok(match cursor.u16()? {
            5 => Transaction::Begin,
            7 => Transaction::Commit,
            8 => Transaction::Rollback,
            _ => Transaction::Other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stand_behind_headers_of_any_length() {
        let body = |headers: &[u8], text: &[u8]| [headers, text].concat();
        let text = [b'G', 0, b'O', 0];
        assert_eq!(batch_text(&body(&[4, 0, 0, 0], &text)).unwrap(), "GO");
        assert_eq!(batch_text(&body(&[6, 0, 0, 0, 9, 9], &text)).unwrap(), "GO");
        assert!(batch_text(&body(&[3, 0, 0, 0], &text)).is_err());
        assert!(batch_text(&body(&[99, 0, 0, 0], &text)).is_err());
        assert!(batch_text(&body(&[4, 0, 0, 0], &text[..3])).is_err());
        assert!(batch_text(&[]).is_err());
        let begin = Transaction::parse(&[4, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!(begin, Ok(Transaction::Begin));
    }
}
