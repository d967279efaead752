//! JSON texts: JSON_VALUE, JSON_QUERY, JSON_MODIFY, ISJSON, and the rows of OPENJSON.
//!
//! A value is a piece of the text that it was found in, so JSON_QUERY gives it as it was written.
//!
//! Invariants
//! - A text is read whole before anything of it is looked for; nesting is bounded, as in SQL Server.
//! - Names count with their case. Of several members with one name the first counts.
//!
//! Leaves to others: making JSON of rows (`markup.rs`).

use serde_json::Value as Json;

use super::packed;
use crate::convert::convert_from;
use crate::message::{self, Message};
use crate::value::{Type, Value};
use crate::variables::{Sum, VALUE_MAX, too_much};

type Result<T> = std::result::Result<T, Message>;

/// The most nested arrays and objects, as in SQL Server.
const DEPTH_MAX: usize = 128;

/// The longest text that JSON_VALUE gives.
const TEXT_MAX: usize = 4000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Null,
    Text,
    Number,
    Truth,
    Array,
    Object,
}

/// A value, as a piece of a text that was read.
#[derive(Debug, Clone, Copy)]
struct Node<'a> {
    kind: Kind,
    raw: &'a str,
}

/// The place of the first mistake in a text.
#[derive(Debug)]
struct Mistake(usize);

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> std::result::Result<(), Mistake> {
        match self.take(byte) {
            true => Ok(()),
            false => Err(Mistake(self.at)),
        }
    }

    /// The value here, with blanks around it.
    fn value(&mut self, depth: usize) -> std::result::Result<Node<'a>, Mistake> {
        self.blanks();
        let begin = self.at;
        let kind = match self.peek() {
            Some(b'{') if depth < DEPTH_MAX => self.object(depth)?,
            Some(b'[') if depth < DEPTH_MAX => self.array(depth)?,
            Some(b'"') => {
                self.string()?;
                Kind::Text
            }
            Some(b't') => self.word("true", Kind::Truth)?,
            Some(b'f') => self.word("false", Kind::Truth)?,
            Some(b'n') => self.word("null", Kind::Null)?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => return Err(Mistake(self.at)),
        };
        let raw = &self.text[begin..self.at];
        self.blanks();
        Ok(Node { kind, raw })
    }

    fn word(&mut self, word: &str, kind: Kind) -> std::result::Result<Kind, Mistake> {
        match self.text[self.at..].starts_with(word) {
            true => {
                self.at += word.len();
                Ok(kind)
            }
            false => Err(Mistake(self.at)),
        }
    }

    fn digits(&mut self) -> std::result::Result<(), Mistake> {
        let begin = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        match self.at > begin {
            true => Ok(()),
            false => Err(Mistake(self.at)),
        }
    }

    fn number(&mut self) -> std::result::Result<Kind, Mistake> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _signed = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Ok(Kind::Number)
    }

    fn string(&mut self) -> std::result::Result<&'a str, Mistake> {
        let begin = self.at;
        self.expect(b'"')?;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {}
                        Some(b'u') => {
                            let hex = self.text.as_bytes().get(self.at + 1..self.at + 5);
                            if !hex.is_some_and(|h| h.iter().all(u8::is_ascii_hexdigit)) {
                                return Err(Mistake(self.at));
                            }
                        }
                        _ => return Err(Mistake(self.at)),
                    }
                    self.at += 1;
                }
                Some(byte) if byte >= b' ' => self.at += 1,
                _ => return Err(Mistake(self.at)),
            }
        }
        self.at += 1;
        Ok(&self.text[begin..self.at])
    }

    fn object(&mut self, depth: usize) -> std::result::Result<Kind, Mistake> {
        self.at += 1;
        self.blanks();
        if self.take(b'}') {
            return Ok(Kind::Object);
        }
        loop {
            self.blanks();
            self.string()?;
            self.blanks();
            self.expect(b':')?;
            self.value(depth + 1)?;
            if !self.take(b',') {
                self.expect(b'}')?;
                return Ok(Kind::Object);
            }
        }
    }

    fn array(&mut self, depth: usize) -> std::result::Result<Kind, Mistake> {
        self.at += 1;
        self.blanks();
        if self.take(b']') {
            return Ok(Kind::Array);
        }
        loop {
            self.value(depth + 1)?;
            if !self.take(b',') {
                self.expect(b']')?;
                return Ok(Kind::Array);
            }
        }
    }
}

/// Reads a whole text.
fn read(text: &str) -> std::result::Result<Node<'_>, Mistake> {
    let mut scanner = Scanner { text, at: 0 };
    let node = scanner.value(0)?;
    match scanner.at == text.len() {
        true => Ok(node),
        false => Err(Mistake(scanner.at)),
    }
}

/// The character at a place, and its number, for a message.
fn unexpected(template: message::MessageTemplate, text: &str, at: usize) -> Message {
    let character = text.get(at..).and_then(|rest| rest.chars().next());
    let character = character.map_or('.', |c| if c.is_control() { '.' } else { c });
    let place = text.get(..at).map_or(at, |before| before.chars().count());
    template.with(&[&character, &place])
}

/// Errors: 13609.
fn parsed(text: &str) -> Result<Node<'_>> {
    read(text).map_err(|Mistake(at)| unexpected(message::JSON_FORMAT, text, at))
}

/// A text without its quotation marks and escapes.
fn unescaped(raw: &str) -> String {
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    if !inner.contains('\\') {
        return inner.to_owned();
    }
    // The text was read before, and this is JSON's own grammar.
    serde_json::from_str(raw).unwrap_or_else(|_| inner.to_owned())
}

impl<'a> Node<'a> {
    /// The members of an object, or the elements of an array with their numbers as names.
    fn children(self) -> Vec<(String, Node<'a>)> {
        let mut scanner = Scanner {
            text: self.raw,
            at: 1,
        };
        let mut all = Vec::new();
        let is_object = self.kind == Kind::Object;
        loop {
            scanner.blanks();
            let mut name = all.len().to_string();
            if is_object {
                let Ok(raw) = scanner.string() else {
                    return all;
                };
                name = unescaped(raw);
                scanner.blanks();
                scanner.take(b':');
            }
            match scanner.value(0) {
                Ok(node) => all.push((name, node)),
                Err(_) => return all,
            }
            if !scanner.take(b',') {
                return all;
            }
        }
    }

    fn is_scalar(self) -> bool {
        !matches!(self.kind, Kind::Array | Kind::Object)
    }

    /// The value as a text; NULL for null.
    fn text(self) -> Value {
        match self.kind {
            Kind::Null => Value::Null,
            Kind::Text => Value::Text(unescaped(self.raw)),
            _ => Value::text(self.raw),
        }
    }

    /// The number that OPENJSON shows.
    fn number(self) -> i64 {
        match self.kind {
            Kind::Null => 0,
            Kind::Text => 1,
            Kind::Number => 2,
            Kind::Truth => 3,
            Kind::Array => 4,
            Kind::Object => 5,
        }
    }
}

#[derive(Debug, PartialEq)]
enum Step {
    Member(String),
    Element(usize),
}

#[derive(Debug, PartialEq)]
struct Path {
    is_strict: bool,
    steps: Vec<Step>,
}

impl Path {
    /// `lax $.a."b c"[0]`. Errors: 13607.
    fn read(text: &str) -> Result<Path> {
        let wrong = |at: usize| unexpected(message::JSON_PATH, text, at);
        let mut at = 0;
        let blanks = |at: usize| text.len() - text[at..].trim_start().len();
        at = blanks(at);
        let mut is_strict = false;
        for (word, strict) in [("strict", true), ("lax", false)] {
            if text
                .get(at..at + word.len())
                .is_some_and(|t| t.eq_ignore_ascii_case(word))
            {
                is_strict = strict;
                at = blanks(at + word.len());
                break;
            }
        }
        if !text[at..].starts_with('$') {
            return Err(wrong(at));
        }
        at += 1;
        let mut steps = Vec::new();
        while at < text.len() {
            let rest = &text[at..];
            if let Some(member) = rest.strip_prefix('.') {
                let (name, len) = match member.starts_with('"') {
                    true => {
                        let mut scanner = Scanner {
                            text: member,
                            at: 0,
                        };
                        let raw = scanner.string();
                        let raw = raw.map_err(|Mistake(m)| wrong(at + 1 + m))?;
                        (unescaped(raw), raw.len())
                    }
                    false => {
                        let end =
                            member.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'));
                        let end = end.unwrap_or(member.len());
                        (member[..end].to_owned(), end)
                    }
                };
                if len == 0 {
                    return Err(wrong(at + 1));
                }
                steps.push(Step::Member(name));
                at += 1 + len;
            } else if let Some(index) = rest.strip_prefix('[') {
                let end = index.find(']').ok_or_else(|| wrong(at + 1))?;
                let n = index[..end].trim().parse().map_err(|_| wrong(at + 1))?;
                steps.push(Step::Element(n));
                at += end + 2;
            } else if rest.trim().is_empty() {
                break;
            } else {
                return Err(wrong(at));
            }
        }
        Ok(Path { is_strict, steps })
    }

    /// The value at the path. Errors: 13608 for a strict path.
    fn find<'a>(&self, node: Node<'a>) -> Result<Option<Node<'a>>> {
        let mut node = node;
        for step in &self.steps {
            let found = match (step, node.kind) {
                (Step::Member(name), Kind::Object) => {
                    let mut all = node.children().into_iter();
                    all.find(|(n, _)| n == name).map(|(_, node)| node)
                }
                (Step::Element(i), Kind::Array) => {
                    node.children().into_iter().nth(*i).map(|(_, node)| node)
                }
                _ => None,
            };
            match (found, self.is_strict) {
                (Some(found), _) => node = found,
                (None, true) => return Err(message::JSON_PROPERTY.plain()),
                (None, false) => return Ok(None),
            }
        }
        Ok(Some(node))
    }

    /// A scalar. Errors: 13608, 13623 for a strict path.
    fn scalar(&self, node: Node) -> Result<Value> {
        let found = self.find(node)?;
        match found {
            None => Ok(Value::Null),
            Some(found) if found.is_scalar() => Ok(found.text()),
            Some(_) if self.is_strict => Err(message::JSON_SCALAR.plain()),
            Some(_) => Ok(Value::Null),
        }
    }

    /// An object or an array. Errors: 13608, 13624 for a strict path.
    fn fragment<'a>(&self, node: Node<'a>) -> Result<Option<Node<'a>>> {
        match self.find(node)? {
            Some(found) if !found.is_scalar() => Ok(Some(found)),
            Some(_) if self.is_strict => Err(message::JSON_FRAGMENT.plain()),
            _ => Ok(None),
        }
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        value => Some(value.to_string()),
    }
}

fn text_or_empty(value: &Value) -> String {
    text(value).unwrap_or_default()
}

/// The text and the path of a call; `None`: one is NULL.
fn given(arguments: &[Value]) -> Result<Option<(String, Path)>> {
    let path = match arguments.get(1) {
        None => Path::read("$")?,
        Some(path) => match text(path) {
            Some(path) => Path::read(&path)?,
            None => return Ok(None),
        },
    };
    Ok(text(&arguments[0]).map(|text| (text, path)))
}

/// JSON_VALUE
pub(super) fn value(arguments: &[Value]) -> Result<Value> {
    let Some((text, path)) = given(arguments)? else {
        return Ok(Value::Null);
    };
    let found = path.scalar(parsed(&text)?)?;
    match &found {
        Value::Text(text) if text.chars().nth(TEXT_MAX).is_some() => match path.is_strict {
            true => Err(message::JSON_LONG.plain()),
            false => Ok(Value::Null),
        },
        _ => Ok(found),
    }
}

/// JSON_QUERY
pub(super) fn query(arguments: &[Value]) -> Result<Value> {
    let Some((text, path)) = given(arguments)? else {
        return Ok(Value::Null);
    };
    let found = path.fragment(parsed(&text)?)?;
    Ok(found.map_or(Value::Null, |node| Value::text(node.raw)))
}

/// A text with another text in place of a part of it.
fn spliced(text: &str, from: usize, to: usize, with: &str) -> String {
    [text.get(..from), Some(with), text.get(to..)]
        .into_iter()
        .flatten()
        .collect()
}

/// A new piece after the last one in an object or an array.
fn with_last(text: &str, node: Node, piece: &str) -> String {
    let end = place(text, node) + node.raw.len() - 1;
    let inside = node.raw.get(1..node.raw.len() - 1).unwrap_or_default();
    let comma = if inside.trim().is_empty() { "" } else { "," };
    spliced(text, end, end, &format!("{comma}{piece}"))
}

/// The offset of a part in the text that it is a piece of.
fn place(text: &str, node: Node) -> usize {
    (node.raw.as_ptr() as usize).saturating_sub(text.as_ptr() as usize)
}

/// The text without a member of an object, and without the comma next to it.
fn without(text: &str, object: Node, member: Node) -> String {
    let (begin, end) = (
        place(text, object) + 1,
        place(text, member) + member.raw.len(),
    );
    // The name before a value is a text: what stands before it is a comma, or the object's beginning.
    let mut scanner = Scanner { text, at: begin };
    let mut from = begin;
    loop {
        scanner.blanks();
        let name = scanner.at;
        if scanner.string().is_err() {
            return text.to_owned();
        }
        scanner.blanks();
        scanner.take(b':');
        match scanner.value(0) {
            Ok(node) if place(text, node) == place(text, member) => {
                scanner.at = end;
                scanner.blanks();
                return match scanner.take(b',') {
                    true => {
                        scanner.blanks();
                        spliced(text, name, scanner.at, "")
                    }
                    false => spliced(text, from, end, ""),
                };
            }
            Ok(_) => {}
            Err(_) => return text.to_owned(),
        }
        from = scanner.at;
        if !scanner.take(b',') {
            return text.to_owned();
        }
    }
}

/// JSON_MODIFY: the text, the path, the new value, and what that is: `json`, `bit`, `number` or `text`. Errors: 13608,
/// 13609; 50002 for a place that SQL Server's documentation does not describe.
pub(super) fn modify(arguments: &[Value]) -> Result<Value> {
    let (Some(whole), Some(path)) = (text(&arguments[0]), text(&arguments[1])) else {
        return Ok(Value::Null);
    };
    let path = path.trim_start();
    let word = path.split_whitespace().next().unwrap_or_default();
    let appends = word.eq_ignore_ascii_case("append");
    let mut path = Path::read(if appends { &path[word.len()..] } else { path })?;
    let refused = |what: &str| message::NOT_HERE.with(&[&format!("JSON_MODIFY of {what}")]);
    let last = path.steps.pop();
    if last.is_none() && !appends {
        return Err(refused("the whole text"));
    }
    let new = match (&arguments[2], text_or_empty(&arguments[3]).as_str()) {
        (Value::Null, _) => None,
        (value, "bit") => Some((*value != Value::Int(0)).to_string()),
        (value, "json" | "number") => Some(value.to_string()),
        (value, _) => Some(super::markup::quoted(&value.to_string())),
    };
    let root = parsed(&whole)?;
    let Some(parent) = path.find(root)? else {
        return Ok(Value::Text(whole));
    };
    let place_of = |node| place(&whole, node);
    // Of `append $` it is the whole text.
    let found = Path {
        is_strict: path.is_strict,
        steps: last.into_iter().collect(),
    };
    let target = found.find(parent)?;
    let null = || "null".to_owned();
    let made = match (target, new, found.steps.first()) {
        (Some(array), new, _) if appends && array.kind == Kind::Array => {
            with_last(&whole, array, &new.unwrap_or_else(null))
        }
        (Some(_), ..) if appends => return Err(refused("what is no array")),
        (Some(node), None, Some(Step::Member(_))) if !path.is_strict => {
            without(&whole, parent, node)
        }
        (Some(node), new, _) => {
            let from = place_of(node);
            spliced(
                &whole,
                from,
                from + node.raw.len(),
                &new.unwrap_or_else(null),
            )
        }
        (None, Some(new), Some(Step::Member(name))) if parent.kind == Kind::Object => {
            let new = if appends { format!("[{new}]") } else { new };
            let name = super::markup::quoted(name);
            with_last(&whole, parent, &format!("{name}:{new}"))
        }
        (None, Some(_), Some(Step::Element(_))) if parent.kind == Kind::Array => {
            return Err(refused("an element that is not there"));
        }
        (None, ..) => whole,
    };
    match made.len() > VALUE_MAX {
        true => Err(too_much()),
        false => Ok(Value::Text(made)),
    }
}

/// ISJSON: an object or an array.
pub(super) fn is_json(arguments: &[Value]) -> Result<Value> {
    Ok(match text(&arguments[0]) {
        None => Value::Null,
        Some(text) => Value::bit(read(&text).is_ok_and(|node| !node.is_scalar())),
    })
}

/// The columns of OPENJSON … WITH, for [`rows`]: paths, types, and whether AS JSON was said.
pub(super) fn columns_text(columns: &[(String, Type, bool)]) -> String {
    let column = |(path, kind, as_json): &(String, Type, bool)| {
        Json::from(vec![
            Json::from(path.as_str()),
            Json::from(kind.to_string()),
            Json::from(*as_json),
        ])
    };
    Json::Array(columns.iter().map(column).collect()).to_string()
}

/// The columns of such a text.
fn columns_of(text: &str) -> Result<Vec<(Path, Type, bool)>> {
    let all: Json = serde_json::from_str(text).unwrap_or_default();
    let mut columns = Vec::new();
    for column in all.as_array().into_iter().flatten() {
        let word = |i: usize| column[i].as_str().unwrap_or_default();
        let kind = super::cell::kind(&Value::text(word(1)));
        columns.push((Path::read(word(0))?, kind, column[2] == true));
    }
    Ok(columns)
}

/// The rows of OPENJSON, packed. Arguments: the text, the path, and the columns of WITH or NULL.
pub(super) fn rows(arguments: &[Value]) -> Result<Value> {
    let Some((text, path)) = given(&arguments[..2])? else {
        return Ok(packed::rows(Vec::new()));
    };
    let root = parsed(&text)?;
    if root.is_scalar() {
        return Err(unexpected(message::JSON_FORMAT, &text, 0));
    }
    let Some(node) = path.find(root)? else {
        return Ok(packed::rows(Vec::new()));
    };
    let mut sum = Sum::default();
    let mut all = Vec::new();
    let columns = text_or_empty(&arguments[2]);
    if columns.is_empty() {
        if node.is_scalar() {
            return match path.is_strict {
                true => Err(message::JSON_FRAGMENT.plain()),
                false => Ok(packed::rows(all)),
            };
        }
        for (name, child) in node.children() {
            sum.add_bytes(name.len() + child.raw.len() + 64)?;
            all.push(vec![
                Value::Text(name),
                child.text(),
                Value::Int(child.number()),
            ]);
        }
        return Ok(packed::rows(all));
    }
    let read = columns_of(&columns)?;
    let nodes = match node.kind {
        Kind::Array => node.children().into_iter().map(|(_, n)| n).collect(),
        Kind::Object => vec![node],
        _ => Vec::new(),
    };
    for node in nodes {
        let mut row = Vec::new();
        for (path, kind, as_json) in &read {
            let found = match as_json {
                true => path
                    .fragment(node)?
                    .map_or(Value::Null, |n| Value::text(n.raw)),
                false => typed(path.scalar(node)?, *kind)?,
            };
            sum.add(&found)?;
            sum.add_bytes(64)?;
            row.push(super::cell::stored(found)?);
        }
        all.push(row);
    }
    Ok(packed::rows(all))
}

/// A scalar in a column's type: `true` is 1 in a number.
fn typed(value: Value, kind: Type) -> Result<Value> {
    let value = match (&value, kind.is_number()) {
        (Value::Text(text), true) if text == "true" => Value::text("1"),
        (Value::Text(text), true) if text == "false" => Value::text("0"),
        _ => value,
    };
    convert_from(&value, Type::NVarChar(None), kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Value {
        Value::text(value)
    }

    #[test]
    fn paths_find_values_as_they_were_written() {
        let json = r#"{ "a": { "b c": [1, "x\ny", { "d": null }] }, "n": 1.50, "t": true }"#;
        let of = |path: &str| value(&[text(json), text(path)]).unwrap();
        assert_eq!(of("$.n"), text("1.50"));
        assert_eq!(of("$.t"), text("true"));
        assert_eq!(of(r#"$.a."b c"[1]"#), text("x\ny"));
        assert_eq!(of(r#"$.a."b c"[2].d"#), Value::Null);
        assert_eq!(of("$.a"), Value::Null);
        assert_eq!(of("$.N"), Value::Null);
        let part = query(&[text(json), text("$.a")]).unwrap();
        assert_eq!(part, text(r#"{ "b c": [1, "x\ny", { "d": null }] }"#));
        let number = |path: &str| value(&[text(json), text(path)]).unwrap_err().number;
        assert_eq!(number("strict $.no"), 13608);
        assert_eq!(number("strict $.a"), 13623);
        assert_eq!(number("n"), 13607);
        assert_eq!(value(&[text("{"), text("$.a")]).unwrap_err().number, 13609);
    }

    #[test]
    fn only_whole_objects_and_arrays_are_json_and_depth_is_bounded() {
        for (given, expected) in [
            ("{}", 1),
            (" [1, 2] ", 1),
            ("1", 0),
            ("{\"a\":1,}", 0),
            ("[01]", 0),
            ("", 0),
            ("{\"a\":\"\\u00e9\"}", 1),
            ("{\"a\":\"\\u00\"}", 0),
        ] {
            assert_eq!(
                is_json(&[text(given)]).unwrap(),
                Value::Int(expected),
                "{given}"
            );
        }
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert_eq!(is_json(&[text(&deep)]).unwrap(), Value::Int(0));
    }
}
