//! Messages about a batch that may have a secret in it.
//!
//! A message about a mistake shows a piece of the batch, and of a statement about a credential or a key this piece may be the secret:
//! a quotation mark too many is enough, also in another statement before it.
//!
//! Invariants
//! - A batch that has the word CREDENTIAL or PASSWORD, or other words around passwords, and a word that begins such a
//!   statement, gets messages that show words of the language only. The word SECRET or PASSWORD may be what was forgotten.
//!
//! Leaves to others: parsing (`parser`).

use crate::message::Message;
use crate::syntax::ast::Batch;
use crate::syntax::parser::parse_batch;

/// The words of these statements, which a message may show.
const WORDS: [&str; 28] = [
    "ALTER",
    "BACKUP",
    "BY",
    "CERTIFICATE",
    "CLOSE",
    "CREATE",
    "CREDENTIAL",
    "CRYPTOGRAPHIC",
    "DECRYPTION",
    "DROP",
    "ENCRYPTION",
    "FILE",
    "FOR",
    "FORCE",
    "FROM",
    "GO",
    "IDENTITY",
    "KEY",
    "MASTER",
    "OPEN",
    "PASSWORD",
    "PRIVATE",
    "PROVIDER",
    "REGENERATE",
    "RESTORE",
    "SECRET",
    "WITH",
    "SELECT",
];

/// The place of a piece that is not shown.
const HIDDEN: &str = "***";

/// Parses one whole batch: with one mistake, none of it is run.
///
/// Errors: the message of the first mistake, with its line. It shows no secret of a statement about a credential.
pub fn parse(text: &str) -> Result<Batch, Message> {
    parse_batch(text).map_err(|message| hidden(message, text))
}

/// The message as it may be shown for a mistake in this batch.
fn hidden(mut message: Message, batch: &str) -> Message {
    let begins: [&[u8]; 5] = [b"create", b"alter", b"open", b"backup", b"restore"];
    let gives_one = begins.into_iter().any(|word| has(batch, word));
    if gives_one && may_have_secret(batch) {
        for mark in ['\'', '"'] {
            message.text = without_quoted(&message.text, mark);
        }
    }
    message
}

/// The text between the first and the last of these marks replaced, unless it is a word of the language.
fn without_quoted(text: &str, mark: char) -> String {
    let (Some(first), Some(last)) = (text.find(mark), text.rfind(mark)) else {
        return text.to_owned();
    };
    if first == last {
        return text.to_owned();
    }
    let shown = &text[first + 1..last];
    let is_word = |word: &&str| shown.eq_ignore_ascii_case(word);
    let is_sign = shown.chars().count() == 1 && !shown.contains(char::is_alphanumeric);
    match is_sign || WORDS.iter().any(is_word) {
        true => text.to_owned(),
        false => format!("{}{HIDDEN}{}", &text[..=first], &text[last..]),
    }
}

/// Whether a text may be a part of a batch with a secret in it: it has the word CREDENTIAL or PASSWORD, in letters of any
/// case, also as a part of another word, or words that stand around passwords, one of which may be misspelt.
pub fn may_have_secret(text: &str) -> bool {
    const PAIRS: [(&[u8], &[u8]); 4] = [
        (b"master", b"key"),
        (b"private", b"key"),
        (b"encryption", b"by"),
        (b"decryption", b"by"),
    ];
    let is_near = |(first, second): (&[u8], &[u8])| has(text, first) && has(text, second);
    has(text, b"credential") || has(text, b"password") || PAIRS.into_iter().any(is_near)
}

fn has(text: &str, word: &[u8]) -> bool {
    let mut parts = text.as_bytes().windows(word.len());
    parts.any(|part| part.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use crate::syntax::parse;

    #[test]
    fn a_mistake_near_a_secret_does_not_show_it() {
        let head = "CREATE CREDENTIAL [s3://h:1/b] WITH IDENTITY = 'S3 Access Key'";
        for batch in [
            format!("{head}, SECRET = 'AK:verysecret"),
            format!("{head}, SECRET = 'AK:verysecret' 'verysecret'"),
            format!("{head}, SECRET 'verysecret'"),
            format!("{head}, SECRET = verysecret"),
            format!("{head}, SECRET = \"verysecret\""),
            format!("{head}, SECRET = [verysecret]"),
            format!("{head}, SECRET = @verysecret"),
            format!("{head}, SECRET = 'a', verysecret = 1"),
            format!("{head} SECRET = 'verysecret'"),
            format!("PRINT 'x; {head}, SECRET = 'AK:verysecret'"),
            format!("PRINT 'it's'; {head}, SECRET = 'verysecret'"),
            format!("SELECT verysecret verysecret verysecret 'x {head}, SECRET = ''"),
            format!("{head}, SECRET = 'a'; BACKUP DATABASE x TO DISK = 'y' WITH verysecret"),
            format!("{head}, SECRET = '{}'", "verysecret'".repeat(20)),
            format!("{head}, SECRET = [{}]", "verysecret".repeat(20)),
            format!("{head}, SECRET = 'a' /* verysecret"),
            format!("{head}, 'verysecret'"),
            format!("{head} 'verysecret'"),
            format!("{head}, SECERT = 'verysecret'"),
            "create credential c WITH IDENTITY = 'i', verysecret".to_owned(),
        ] {
            let message = parse(&batch).unwrap_err();
            assert!(!message.text.contains("verysecret"), "{batch}: {message}");
        }
        // Other batches are told as before.
        let message = parse("USE 5").unwrap_err();
        assert!(message.text.contains('5'), "{message}");
    }

    #[test]
    fn a_mistake_near_a_password_does_not_show_it() {
        for batch in [
            "CREATE MASTER KEY ENCRYPTION BY PASSWORD 'verysecret'",
            "CREATE MASTER KEY ENCRYPTION BY PASSWORD = verysecret",
            "CREATE MASTER KEY ENCRYPTION BY PASSWROD = 'verysecret'",
            "CREATE MASTER KEY ENCRYPTION PASSWORD = 'verysecret'",
            "CREATE MASTER KEY 'verysecret'",
            "CREATE MASTER KEY ENCRYPTION BY PASSWORD = 'verysecret",
            "OPEN MASTER KEY DECRYPTION BY PASSWORD = 'a' 'verysecret'",
            "PRINT 'it's'; OPEN MASTER KEY DECRYPTION BY PASSWORD = 'verysecret'",
            "CREATE CERTIFICATE c ENCRYPTION BY PASSWORD = 'a' 'verysecret' WITH SUBJECT = 's'",
            "CREATE CERTIFICATE c FROM FILE = 'f' WITH PRIVATE KEY (FILE = 'k', PASSWRD = 'verysecret')",
            "BACKUP CERTIFICATE c TO FILE = 'f' WITH PRIVATE KEY (FILE = 'k', ENCRYPTION BY PASSWORD = verysecret)",
            "RESTORE MASTER KEY FROM FILE = 'f' DECRYPTION BY PASSWORD = 'a' ENCRYPTION BY PASSWORD verysecret",
            "ALTER MASTER KEY ADD ENCRYPTION BY 'verysecret'",
        ] {
            let message = parse(batch).unwrap_err();
            assert!(!message.text.contains("verysecret"), "{batch}: {message}");
        }
        for batch in [
            "CREATE MASTER KEY ENCRYPTION BY PASSWORD = 'verysecret'",
            "ALTER MASTER KEY FORCE REGENERATE WITH ENCRYPTION BY PASSWORD = 'verysecret'",
            "RESTORE MASTER KEY FROM FILE = 'f' DECRYPTION BY PASSWORD = 'verysecret' ENCRYPTION BY PASSWORD = 'verysecret' FORCE",
            "BACKUP CERTIFICATE c TO FILE = 'f' WITH PRIVATE KEY (FILE = 'k', DECRYPTION BY PASSWORD = 'verysecret', \
             ENCRYPTION BY PASSWORD = 'verysecret')",
            "CREATE CERTIFICATE c ENCRYPTION BY PASSWORD = 'verysecret' WITH SUBJECT = 's', EXPIRY_DATE = '20300101'",
        ] {
            let parsed = parse(batch).unwrap();
            let shown = format!("{parsed:?} {parsed}");
            assert!(!shown.contains("verysecret"), "{shown}");
            let printed = parsed.to_string();
            assert_eq!(parse(&printed).unwrap(), parsed, "{printed}");
        }
    }

    #[test]
    fn a_parsed_secret_is_shown_by_nothing() {
        let batch = "CREATE CREDENTIAL c WITH IDENTITY = 'i', SECRET = 'AK:verysecret'";
        let parsed = parse(batch).unwrap();
        let shown = format!("{parsed:?} {parsed}");
        assert!(!shown.contains("verysecret"), "{shown}");
        assert!(shown.contains("SECRET = '***'"), "{shown}");
    }
}
