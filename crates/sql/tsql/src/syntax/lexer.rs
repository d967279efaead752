//! Tokens: their positions and kinds. Their values are decoded only on demand.
//!
//! Invariants
//! - Positions are those of bytes in the batch's text, and messages quote from there.
//! - An unclosed quotation mark or comment is an error; the caller fills in its line.
//!
//! Leaves to others: which words are keywords (`parser`).

use crate::message::{Message, UNCLOSED_COMMENT, UNCLOSED_QUOTE};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A bare word: keyword or name.
    Word,
    /// `[name]`
    Bracketed,
    /// `"name"`
    Quoted,
    /// `'text'` or `N'text'`
    Text,
    /// `@name` or `@@name`
    Variable,
    /// Digits, optionally with a fraction or an exponent; `0x` and hexadecimal digits.
    Number,
    /// An operator, one or two characters.
    Symbol,
    /// A character that begins no token.
    Strange,
    End,
}

#[derive(Debug, Clone, Copy)]
pub struct Token<'a> {
    pub kind: TokenKind,
    /// As it occurs in the text.
    pub raw: &'a str,
    /// The number of bytes before it.
    pub at: usize,
}

impl Token<'_> {
    pub fn is(&self, symbol: &str) -> bool {
        self.kind == TokenKind::Symbol && self.raw == symbol
    }

    /// Whether it is this keyword; `word` is in capitals.
    pub fn is_word(&self, word: &str) -> bool {
        self.kind == TokenKind::Word && self.raw.eq_ignore_ascii_case(word)
    }

    /// The name or text without its quotation marks, with doubled marks reduced.
    pub fn value(&self) -> String {
        let inner = |skip: usize, doubled: &str, single: &str| {
            let inside = self.raw.get(skip..self.raw.len() - 1).unwrap_or_default();
            match inside.contains(doubled) {
                true => inside.replace(doubled, single),
                false => inside.to_owned(),
            }
        };
        match self.kind {
            TokenKind::Bracketed => inner(1, "]]", "]"),
            TokenKind::Quoted => inner(1, "\"\"", "\""),
            TokenKind::Text if self.raw.starts_with('\'') => continued(inner(1, "''", "'")),
            TokenKind::Text => continued(inner(2, "''", "'")),
            _ => self.raw.to_owned(),
        }
    }
}

/// A text without the ends of lines after a backslash: there it is continued.
pub(crate) fn continued(text: String) -> String {
    match text.contains("\\\n") || text.contains("\\\r\n") {
        true => text.replace("\\\r\n", "").replace("\\\n", ""),
        false => text,
    }
}

#[derive(Debug, Clone)]
pub struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

fn starts_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'#') || byte >= 0x80
}

fn continues_word(byte: u8) -> bool {
    starts_word(byte) || byte.is_ascii_digit() || matches!(byte, b'$' | b'@')
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, at: 0 }
    }

    /// Goes on at an earlier position.
    pub fn return_to(&mut self, at: usize) {
        self.at = at;
    }

    fn peek(&self, ahead: usize) -> u8 {
        *self.text.as_bytes().get(self.at + ahead).unwrap_or(&0)
    }

    /// The next token. Errors: an unclosed quotation mark or comment; the caller must fill in the line, from the
    /// lexer's position.
    pub fn token(&mut self) -> Result<Token<'a>, Message> {
        self.skip_blanks()?;
        let start = self.at;
        let first = self.peek(0);
        let kind = if start >= self.text.len() {
            TokenKind::End
        } else if first == b'\'' {
            self.text_from(1)?
        } else if matches!(first, b'N' | b'n') && self.peek(1) == b'\'' {
            self.text_from(2)?
        } else if first == b'[' {
            self.closed(1, b']', TokenKind::Bracketed)?
        } else if first == b'"' {
            self.closed(1, b'"', TokenKind::Quoted)?
        } else if starts_word(first) {
            self.run(continues_word);
            TokenKind::Word
        } else if first == b'@' {
            self.run(|b| continues_word(b) || b == b'#');
            TokenKind::Variable
        } else if first.is_ascii_digit() || (first == b'.' && self.peek(1).is_ascii_digit()) {
            self.number();
            TokenKind::Number
        } else if first == b'$' && self.peek(1).is_ascii_alphabetic() {
            // `$action`
            self.run(continues_word);
            TokenKind::Word
        } else if self.is_money() {
            self.at += 1;
            self.number();
            TokenKind::Number
        } else if b"=<>!+-*/%^&|~.,;:()".contains(&first) {
            self.at += 1;
            let both = [first, self.peek(0)];
            let pair = matches!(
                &both,
                b">="
                    | b"<="
                    | b"<>"
                    | b"!="
                    | b"!<"
                    | b"!>"
                    | b"+="
                    | b"-="
                    | b"*="
                    | b"/="
                    | b"%="
                    | b"|="
                    | b"&="
                    | b"^="
                    | b"::"
            );
            self.at += usize::from(pair);
            TokenKind::Symbol
        } else {
            self.at += 1;
            TokenKind::Strange
        };
        Ok(Token {
            kind,
            raw: &self.text[start..self.at],
            at: start,
        })
    }

    /// `$1.50` and `$.50`
    fn is_money(&self) -> bool {
        let digits = usize::from(self.peek(1) == b'.') + 1;
        self.peek(0) == b'$' && self.peek(digits).is_ascii_digit()
    }

    /// The lexer's position, in bytes.
    pub fn at(&self) -> usize {
        self.at
    }

    fn run(&mut self, more: impl Fn(u8) -> bool) {
        let rest = &self.text.as_bytes()[self.at + 1..];
        let len = rest.iter().position(|b| !more(*b)).unwrap_or(rest.len());
        self.at += 1 + len;
    }

    fn number(&mut self) {
        if self.peek(0) == b'0' && matches!(self.peek(1), b'x' | b'X') {
            self.at += 1;
            self.run(|b| b.is_ascii_hexdigit());
            return;
        }
        let digits = |lexer: &mut Self| {
            while lexer.peek(0).is_ascii_digit() {
                lexer.at += 1;
            }
        };
        digits(self);
        if self.peek(0) == b'.' {
            self.at += 1;
            digits(self);
        }
        let exponent = matches!(self.peek(0), b'e' | b'E');
        let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
        if exponent && self.peek(1 + sign).is_ascii_digit() {
            self.at += 1 + sign;
            digits(self);
        }
    }

    fn text_from(&mut self, skip: usize) -> Result<TokenKind, Message> {
        self.closed(skip, b'\'', TokenKind::Text)
    }

    /// Moves past the closing mark; a doubled mark does not close.
    fn closed(&mut self, skip: usize, mark: u8, kind: TokenKind) -> Result<TokenKind, Message> {
        let bytes = self.text.as_bytes();
        let start = self.at + skip;
        let mut at = start;
        loop {
            let Some(len) = bytes[at..].iter().position(|b| *b == mark) else {
                let shown: String = self.text[start..].chars().take(NEAR_MAX).collect();
                return Err(UNCLOSED_QUOTE.with(&[&shown]));
            };
            at += len + 1;
            if bytes.get(at) != Some(&mark) {
                break;
            }
            at += 1;
        }
        self.at = at;
        Ok(kind)
    }

    fn skip_blanks(&mut self) -> Result<(), Message> {
        loop {
            let first = self.peek(0);
            if self.at >= self.text.len() {
                return Ok(());
            } else if first.is_ascii_whitespace() || first == 0x0b {
                self.at += 1;
            } else if first == b'-' && self.peek(1) == b'-' {
                let rest = &self.text.as_bytes()[self.at..];
                self.at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            } else if first == b'/' && self.peek(1) == b'*' {
                self.comment()?;
            } else if let Some(blank) = self.wide_blank() {
                self.at += blank;
            } else {
                return Ok(());
            }
        }
    }

    /// Blanks beyond ASCII, and the byte order mark.
    fn wide_blank(&self) -> Option<usize> {
        if self.peek(0) < 0x80 {
            return None;
        }
        let c = self.text[self.at..].chars().next()?;
        (c.is_whitespace() || c == '\u{feff}').then_some(c.len_utf8())
    }

    /// Comments of this kind nest.
    fn comment(&mut self) -> Result<(), Message> {
        let bytes = self.text.as_bytes();
        let mut at = self.at + 2;
        let mut open = 1;
        while open > 0 {
            match (bytes.get(at), bytes.get(at + 1)) {
                (Some(b'*'), Some(b'/')) => {
                    open -= 1;
                    at += 2;
                }
                (Some(b'/'), Some(b'*')) => {
                    open += 1;
                    at += 2;
                }
                (Some(_), _) => at += 1,
                (None, _) => return Err(UNCLOSED_COMMENT.plain()),
            }
        }
        self.at = at;
        Ok(())
    }
}

/// The most characters of the source text in a message.
pub const NEAR_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(TokenKind, &str)> {
        let mut lexer = Lexer::new(text);
        let mut all = Vec::new();
        loop {
            let token = lexer.token().unwrap();
            if token.kind == TokenKind::End {
                return all;
            }
            all.push((token.kind, token.raw));
        }
    }

    #[test]
    fn tokens_are_distinguished() {
        assert_eq!(
            kinds("SELECT [a]]b], \"c\", N'd''e', @@f, 1.5e3, 0xFf, .5 >= x_1$"),
            [
                (TokenKind::Word, "SELECT"),
                (TokenKind::Bracketed, "[a]]b]"),
                (TokenKind::Symbol, ","),
                (TokenKind::Quoted, "\"c\""),
                (TokenKind::Symbol, ","),
                (TokenKind::Text, "N'd''e'"),
                (TokenKind::Symbol, ","),
                (TokenKind::Variable, "@@f"),
                (TokenKind::Symbol, ","),
                (TokenKind::Number, "1.5e3"),
                (TokenKind::Symbol, ","),
                (TokenKind::Number, "0xFf"),
                (TokenKind::Symbol, ","),
                (TokenKind::Number, ".5"),
                (TokenKind::Symbol, ">="),
                (TokenKind::Word, "x_1$"),
            ]
        );
    }

    #[test]
    fn comments_nest_and_vanish() {
        assert_eq!(
            kinds("a /* b /* c */ d */ e -- f\ng"),
            [
                (TokenKind::Word, "a"),
                (TokenKind::Word, "e"),
                (TokenKind::Word, "g")
            ]
        );
    }

    #[test]
    fn marks_inside_are_halved() {
        let value = |text| Lexer::new(text).token().unwrap().value();
        assert_eq!(value("[a]]b]"), "a]b");
        assert_eq!(value("N'it''s'"), "it's");
        assert_eq!(value("''"), "");
    }

    #[test]
    fn unclosed_quotes_and_comments_are_refused() {
        for (text, number) in [
            ("'abc", 105),
            ("[abc", 105),
            ("/* abc", 113),
            ("'abc''", 105),
        ] {
            assert_eq!(Lexer::new(text).token().unwrap_err().number, number);
        }
    }
}
