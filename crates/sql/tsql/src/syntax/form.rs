//! The form of an expression: what is left of its text when its literals are taken out.
//!
//! ```text
//! 'set 1 of ' + CAST ( @n + 7 AS varchar ( 9 ) )
//!     form      ?0 + CAST ( @n + ?1 AS varchar ( 9 ) )
//!     literals  'set 1 of ', 7
//! ```
//!
//! Two expressions of one form differ in their literals only, so one tree serves both. Scripts that a program writes
//! say the same thing thousands of times with other literals.
//!
//! Invariants
//! - A mark stands only where a value may stand: what else is written as a literal, such as a type's length, stays in
//!   the form. Where that cannot be told from the tokens, there is no form.
//!
//! Leaves to others: keeping trees by their form (`query/reader.rs`), and values in the place of marks (`query`).

use super::lexer::{Lexer, Token, TokenKind};

/// A literal as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Literal {
    Text { value: String, is_national: bool },
    Number(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExpressionForm {
    /// With `?0`, `?1`, … for the literals: no token of the language begins with `?`.
    pub text: String,
    pub literals: Vec<Literal>,
}

/// Types whose name a length, a precision or a scale may follow in parentheses.
const SIZED: &[&str] = &[
    "BINARY",
    "CHAR",
    "CHARACTER",
    "DATETIME2",
    "DATETIMEOFFSET",
    "DEC",
    "DECIMAL",
    "FLOAT",
    "NCHAR",
    "NUMERIC",
    "NVARCHAR",
    "TIME",
    "VARBINARY",
    "VARCHAR",
];

/// The form of an expression between two texts. `None`: it has no literals, or a query inside, where literals may be
/// names and places of columns; or something that only the whole text tells.
pub(crate) fn form(before: &str, expression: &str, after: &str) -> Option<ExpressionForm> {
    let mut text = String::with_capacity(before.len() + expression.len() + after.len());
    text.push_str(before);
    let mut literals = Vec::new();
    let mut lexer = Lexer::new(expression);
    let mut last: Option<Token> = None;
    // Between the parentheses after a type's name.
    let mut sizes = false;
    loop {
        let token = lexer.token().ok()?;
        let is_literal = match token.kind {
            TokenKind::End => break,
            TokenKind::Strange => return None,
            TokenKind::Word if token.is_word("SELECT") => return None,
            TokenKind::Number if token.raw.starts_with('$') => return None,
            TokenKind::Number => !sizes && !matches!(token.raw.get(..2), Some("0x" | "0X")),
            TokenKind::Text => true,
            _ => false,
        };
        let after_point = last.is_some_and(|l| l.is("."));
        let after_literal =
            last.is_some_and(|l| matches!(l.kind, TokenKind::Number | TokenKind::Text));
        if (is_literal && after_point) || (after_literal && token.is(".")) {
            return None;
        }
        if token.is("(") {
            sizes = last.is_some_and(|l| SIZED.iter().any(|word| l.is_word(word)));
        } else if token.is(")") {
            sizes = false;
        }
        if last.is_some() {
            text.push(' ');
        }
        if is_literal {
            text.push('?');
            text.push_str(&literals.len().to_string());
            literals.push(match token.kind {
                TokenKind::Text => Literal::Text {
                    value: token.value(),
                    is_national: !token.raw.starts_with('\''),
                },
                _ => Literal::Number(token.raw.to_owned()),
            });
        } else {
            text.push_str(token.raw);
        }
        last = Some(token);
    }
    text.push_str(after);
    (!literals.is_empty()).then_some(ExpressionForm { text, literals })
}

/// The literal that a mark of a form stands for.
pub(crate) fn marked<'a>(mark: &str, literals: &'a [Literal]) -> Option<&'a Literal> {
    literals.get(mark.strip_prefix('?')?.parse::<usize>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(expression: &str) -> Option<String> {
        form("", expression, "").map(|f| f.text)
    }

    #[test]
    fn literals_are_taken_out_and_sizes_stay() {
        let found = form("(", "N'it''s' + CAST ( .5 AS numeric ( 9 , 2 ) )", ")").unwrap();
        assert_eq!(found.text, "(?0 + CAST ( ?1 AS numeric ( 9 , 2 ) ))");
        let text = Literal::Text {
            value: "it's".into(),
            is_national: true,
        };
        assert_eq!(found.literals, [text, Literal::Number(".5".into())]);
        let number = marked("?1", &found.literals);
        assert_eq!(number, Some(&Literal::Number(".5".into())));
        assert_eq!(marked("?2", &found.literals), None);
        assert_eq!(of("LEFT ( 'a' , 1 )").unwrap(), "LEFT ( ?0 , ?1 )");
        assert_eq!(of("'?0' + [?0]").unwrap(), "?0 + [?0]");
        assert_eq!(of("0xFF + 1").unwrap(), "0xFF + ?0");
    }

    #[test]
    fn statements_that_the_tokens_do_not_determine_have_no_form() {
        for text in [
            "@a + @b",
            "( SELECT 1 'one' )",
            "a . 5",
            "'a' . b",
            "$1.50 + 1",
            "1 ? 2",
            "'open",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
