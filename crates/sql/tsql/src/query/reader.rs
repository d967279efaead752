//! Queries and expressions as they were read, by their text or their form.
//!
//! To read one takes longer than to run it, and most run many times: in loops, because a batch says the same again, or
//! because it says the same of other literals. An [`ExpressionForm`] serves them all.
//!
//! Invariants
//! - The trees that are kept are bounded by the bytes of their texts; at the bound all are dropped.
//! - A query has no form: there a literal may be a name, or a column's place.
//! - A mistake has its line in the batch, and shows what the client wrote, never the text that was put around it.
//!
//! Leaves to others: the parser (`parse.rs`), and forms (`syntax/form.rs`).

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use sqlparser::ast::Query;

use super::parse::{LEN_MAX, ParseError, near, parse};
use crate::message::{self, Message};
use crate::syntax::{ExpressionForm, Fragment, Literal, form};

/// Bytes of text whose trees are kept, at most. A tree takes some hundred times as much.
const KEPT_LEN_MAX: usize = 8 << 10;

/// A query by its text, or what is to be made one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum QuerySource<'a> {
    Query(&'a Fragment),
    Expression(&'a Fragment),
    /// Whether it is true; unknown is not.
    Condition(&'a Fragment),
}

impl<'a> QuerySource<'a> {
    /// The text, and what stands before and after it in the query. In parentheses, so that nothing behind it is taken for
    /// a name.
    fn parts(self) -> (&'static str, &'a str, &'static str) {
        match self {
            QuerySource::Query(query) => ("", &query.text, ""),
            QuerySource::Expression(value) => ("SELECT ( ", &value.text, " )"),
            QuerySource::Condition(condition) => (
                "SELECT CASE WHEN ( ",
                &condition.text,
                " ) THEN 1 ELSE 0 END",
            ),
        }
    }

    /// As the client wrote it.
    pub fn written(self) -> &'a str {
        self.parts().1
    }

    /// The line in the batch of the token at this offset in [`QuerySource::written`].
    pub fn line_at(self, at: usize) -> u32 {
        let (QuerySource::Query(fragment)
        | QuerySource::Expression(fragment)
        | QuerySource::Condition(fragment)) = self;
        fragment.line_at(at)
    }

    pub fn text(self) -> Cow<'a, str> {
        match self.parts() {
            ("", text, "") => Cow::Borrowed(text),
            (before, text, after) => Cow::Owned(format!("{before}{text}{after}")),
        }
    }

    /// The parser may report a mistake in parentheses as that of the opening one. If that is ours, the text is read
    /// again without it.
    fn mistake(self, found: ParseError) -> Message {
        let (before, text, _) = self.parts();
        if found.at >= before.len() {
            return self.located(found, before.len());
        }
        let bare = match self {
            QuerySource::Condition(_) => "SELECT 1 FROM a WHERE ",
            QuerySource::Query(_) | QuerySource::Expression(_) => "SELECT ",
        };
        match parse(&format!("{bare}{text}")) {
            Err(again) if again.at >= bare.len() => self.located(again, bare.len()),
            _ => self.located(found, before.len()),
        }
    }

    /// The mistake with its line in the batch. At the text's end it is the last token of what the client wrote.
    fn located(self, mistake: ParseError, before: usize) -> Message {
        let text = self.written();
        let at = mistake.at.saturating_sub(before);
        if at < text.len() {
            return mistake.message.at_line(self.line_at(at));
        }
        let last = crate::syntax::last_token(text);
        message::SYNTAX
            .with(&[&near(&text[last..])])
            .at_line(self.line_at(last))
    }

    /// Queries have none: there a literal may be a name, or a column's place.
    fn form(self) -> Option<ExpressionForm> {
        let (before, text, after) = self.parts();
        let fits = before.len() + text.len() + after.len() <= LEN_MAX;
        match self {
            QuerySource::Query(_) => None,
            QuerySource::Expression(_) | QuerySource::Condition(_) if !fits => None,
            QuerySource::Expression(_) | QuerySource::Condition(_) => form(before, text, after),
        }
    }
}

/// Keeps parsed queries by their text, up to a bound in bytes; at the bound all are dropped.
#[derive(Default)]
pub(crate) struct Reader {
    /// `None`: a form that cannot be read. No text is a form: texts have no marks.
    kept: RefCell<HashMap<String, Option<Arc<Query>>>>,
    len: Cell<usize>,
}

impl Reader {
    /// The tree of a text's form, with marks, and the literals that they stand for. `None`: only the text can be read.
    pub fn by_form(&self, asked: QuerySource) -> Option<(Arc<Query>, Vec<Literal>)> {
        let ExpressionForm { text, literals } = asked.form()?;
        let known = self.kept.borrow().get(&text).cloned();
        let tree = match known {
            Some(known) => known,
            None => {
                let made = parse(&text).ok().map(Arc::new);
                self.keep(&text, made.clone());
                made
            }
        };
        Some((tree?, literals))
    }

    /// The tree of the whole text. Errors: what the parser did not expect, as 102, with its line in the batch.
    pub fn by_text(&self, asked: QuerySource) -> Result<Arc<Query>, Message> {
        let text = asked.text();
        if let Some(Some(known)) = self.kept.borrow().get(text.as_ref()) {
            return Ok(known.clone());
        }
        let tree = Arc::new(parse(&text).map_err(|mistake| asked.mistake(mistake))?);
        self.keep(&text, Some(tree.clone()));
        Ok(tree)
    }

    fn keep(&self, text: &str, tree: Option<Arc<Query>>) {
        let mut kept = self.kept.borrow_mut();
        if self.len.get() + text.len() > KEPT_LEN_MAX {
            kept.clear();
            self.len.set(0);
        }
        if text.len() <= KEPT_LEN_MAX {
            self.len.set(self.len.get() + text.len());
            kept.insert(text.to_owned(), tree);
        }
    }

    pub fn forget(&mut self) {
        *self = Reader::default();
    }
}
