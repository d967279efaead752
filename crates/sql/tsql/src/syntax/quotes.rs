//! The meaning of double quotation marks: names, or, after SET QUOTED_IDENTIFIER OFF, texts.
//!
//! Invariants
//! - The option counts from where the text says it, not from where it is run: as in SQL Server, the parser heeds it.
//! - A text keeps its lines, so messages name the same ones.
//!
//! Leaves to others: tokens (`lexer.rs`), and keeping the option for the next batch (`set.rs`).

use std::borrow::Cow;

use super::lexer::{Lexer, Token, TokenKind};

const OPTION: &str = "QUOTED_IDENTIFIER";

/// The batch with texts in single quotation marks where double ones enclose texts. `is_on`: they enclose names at first. A
/// batch with a mistake is left as it is, from there on.
pub(crate) fn with_texts(text: &str, is_on: bool) -> Cow<'_, str> {
    let names = |at: &[u8]| at.eq_ignore_ascii_case(OPTION.as_bytes());
    if is_on && !text.as_bytes().windows(OPTION.len()).any(names) {
        return Cow::Borrowed(text);
    }
    let (mut made, mut copied) = (String::new(), 0);
    let mut lexer = Lexer::new(text);
    let mut reading = Reading::default();
    let mut is_on = is_on;
    while let Ok(token) = lexer.token() {
        match token.kind {
            TokenKind::End => break,
            TokenKind::Quoted if !is_on => {
                made += text.get(copied..token.at).unwrap_or_default();
                made += &format!("'{}'", token.value().replace('\'', "''"));
                copied = token.at + token.raw.len();
            }
            _ => {}
        }
        is_on = reading.read(&token).unwrap_or(is_on);
    }
    match copied {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned(made + text.get(copied..).unwrap_or_default()),
    }
}

/// How much of `SET QUOTED_IDENTIFIER OFF` the last tokens are.
#[derive(Default)]
enum Reading {
    #[default]
    Nothing,
    /// SET, and other options.
    Set,
    Named,
}

impl Reading {
    /// The new value, after the statement's last word.
    fn read(&mut self, token: &Token) -> Option<bool> {
        let is_set = token.is_word("SET");
        *self = match self {
            _ if is_set => Reading::Set,
            Reading::Named if token.is_word("ON") || token.is_word("OFF") => {
                *self = Reading::Nothing;
                return Some(token.is_word("ON"));
            }
            Reading::Set | Reading::Named if token.is(",") => return None,
            Reading::Set if token.is_word(OPTION) => Reading::Named,
            Reading::Set | Reading::Named
                if token.kind == TokenKind::Word
                    && !token.is_word("ON")
                    && !token.is_word("OFF") =>
            {
                return None;
            }
            _ => Reading::Nothing,
        };
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn double_quotation_marks_enclose_texts_from_where_the_option_says_so() {
        for (text, made) in [
            ("PRINT \"a\"", "PRINT \"a\""),
            (
                "PRINT \"a\"\nSET QUOTED_IDENTIFIER OFF\nPRINT \"it's \"\"b\"\"\"",
                "PRINT \"a\"\nSET QUOTED_IDENTIFIER OFF\nPRINT 'it''s \"b\"'",
            ),
            (
                "set ansi_nulls, quoted_identifier, nocount off print \"\" set quoted_identifier on select \"c\"",
                "set ansi_nulls, quoted_identifier, nocount off print '' set quoted_identifier on select \"c\"",
            ),
            (
                "PRINT 'SET QUOTED_IDENTIFIER OFF' -- SET QUOTED_IDENTIFIER OFF\nPRINT \"a\"",
                "PRINT 'SET QUOTED_IDENTIFIER OFF' -- SET QUOTED_IDENTIFIER OFF\nPRINT \"a\"",
            ),
            (
                "SET QUOTED_IDENTIFIER OFF PRINT \"a\" PRINT \"b",
                "SET QUOTED_IDENTIFIER OFF PRINT 'a' PRINT \"b",
            ),
            (
                "UPDATE t SET QUOTED_IDENTIFIER = 1 PRINT \"OFF\"",
                "UPDATE t SET QUOTED_IDENTIFIER = 1 PRINT \"OFF\"",
            ),
        ] {
            assert_eq!(with_texts(text, true), made);
        }
        assert_eq!(with_texts("PRINT \"a\"", false), "PRINT 'a'");
    }
}
