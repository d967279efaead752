//! XML texts: what `value`, `query`, `exist` and `nodes` find in one.
//!
//! `xml` is kept as text here. A path is a row of steps: names, `*`, `.`, `text()`, `@name`, `//`, each with places and
//! filters such as `[@name = "full"]` or without, and parentheses around all of it with a place. `count` counts what a path
//! finds. Other XQuery is refused by name.
//!
//! Invariants
//! - Nesting, and the number of nodes, are bounded; a text that is no XML is refused with its number.
//! - No entity but the five of XML and characters by their numbers is known: nothing is looked up.
//!
//! Leaves to others: making XML of rows (`markup.rs`).

use super::packed;
use crate::convert::convert_from;
use crate::message::{self, Message, MessageTemplate};
use crate::value::{Type, Value};

type Result<T> = std::result::Result<T, Message>;

/// The most nested elements, as in SQL Server.
const DEPTH_MAX: usize = 128;
/// The most nodes of a text.
const NODES_MAX: usize = 200_000;
/// The most steps of a path, and the most nodes that all of them look at: some tenths of a second.
const STEPS_MAX: usize = 64;
const LOOKS_MAX: usize = 20_000_000;
/// Bytes of a text that take as long as a look at a node.
const BYTES_A_LOOK: usize = 16;

/// How the text of a row of `nodes` begins. No XML has this character.
const ROW: char = '\u{1}';

#[derive(Debug)]
enum Node {
    Text(String),
    Element {
        name: String,
        attributes: Vec<(String, String)>,
        /// Numbers of nodes.
        children: Vec<usize>,
        /// Its place in the text.
        raw: (usize, usize),
    },
}

/// A text as it was read. The first node has no name; it is the parent of all at the top.
#[derive(Debug)]
struct Document<'a> {
    text: &'a str,
    nodes: Vec<Node>,
}

/// What a step has found: a node, or an attribute of it by its place. The order is that of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    node: usize,
    attribute: Option<usize>,
}

impl Found {
    fn node(node: usize) -> Found {
        Found {
            node,
            attribute: None,
        }
    }
}

/// A mistake, and its offset in the text.
#[derive(Debug)]
struct Mistake(MessageTemplate, usize);

type Read<T> = std::result::Result<T, Mistake>;

impl Mistake {
    /// The mistake of a part of a text that begins there.
    fn after(self, begin: usize) -> Mistake {
        Mistake(self.0, self.1 + begin)
    }

    /// Its message, with line and character from 1.
    fn message(self, text: &str) -> Message {
        let Mistake(template, at) = self;
        if template.number == message::NOT_HERE.number {
            return template.with(&[&"this XML"]);
        }
        let before = text.get(..at).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let begin = before.rfind('\n').map_or(0, |i| i + 1);
        let character = before[begin..].chars().count() + 1;
        template.with(&[&line, &character])
    }
}

/// A text with its entities written out. Errors: 9411, 9448.
fn decoded(text: &str) -> Read<String> {
    if !text.contains('&') {
        return Ok(text.to_owned());
    }
    let mut made = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        let place = text.len() - rest.len() + at;
        made += &rest[..at];
        let after = &rest[at + 1..];
        let end = after
            .find(';')
            .ok_or(Mistake(message::XML_SEMICOLON, place))?;
        let name = &after[..end];
        let number = |digits: &str, radix| {
            let number = u32::from_str_radix(digits, radix).ok();
            number.and_then(char::from_u32)
        };
        let character = match name {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            name => match (name.strip_prefix("#x"), name.strip_prefix('#')) {
                (Some(digits), _) => number(digits, 16),
                (None, Some(digits)) => number(digits, 10),
                (None, None) => None,
            },
        };
        made.push(character.ok_or(Mistake(message::XML_ENTITY, place))?);
        rest = &after[end + 1..];
    }
    Ok(made + rest)
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':')
}

fn begins_as_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || matches!(c, '_' | ':'))
}

impl<'a> Document<'a> {
    /// Errors: 9400 and its kin; too many nodes, or too deep ones.
    fn read(text: &'a str) -> Read<Document<'a>> {
        let root = Node::Element {
            name: String::new(),
            attributes: Vec::new(),
            children: Vec::new(),
            raw: (0, text.len()),
        };
        let mut document = Document {
            text,
            nodes: vec![root],
        };
        let mut open = vec![0];
        let mut at = 0;
        // Whether text ended here: what follows is of the same node.
        let mut is_text = false;
        while at < text.len() {
            if document.nodes.len() > NODES_MAX || open.len() > DEPTH_MAX {
                return Err(Mistake(message::NOT_HERE, at));
            }
            let rest = &text[at..];
            let (text, len) = match rest.strip_prefix("<![CDATA[") {
                Some(inner) => {
                    let end_of_input = || Mistake(message::XML_END, text.len());
                    let close = inner.find("]]>").ok_or_else(end_of_input)?;
                    (inner[..close].to_owned(), close + 12)
                }
                None if rest.starts_with('<') => {
                    at += document.markup(&mut open, at)?;
                    is_text = false;
                    continue;
                }
                None => {
                    let end = rest.find('<').unwrap_or(rest.len());
                    let text = decoded(&rest[..end]).map_err(|m| m.after(at))?;
                    (text, end)
                }
            };
            document.add_text(&open, text, is_text);
            is_text = true;
            at += len;
        }
        match open.len() {
            1 => Ok(document),
            _ => Err(Mistake(message::XML_END, text.len())),
        }
    }

    fn add(&mut self, open: &[usize], node: Node) -> usize {
        let number = self.nodes.len();
        self.nodes.push(node);
        let parent = open.last().and_then(|p| self.nodes.get_mut(*p));
        if let Some(Node::Element { children, .. }) = parent {
            children.push(number);
        }
        number
    }

    /// Adds text, to the text before it if it `joins` that.
    fn add_text(&mut self, open: &[usize], text: String, joins: bool) {
        match self.nodes.last_mut() {
            Some(Node::Text(before)) if joins => before.push_str(&text),
            _ => {
                self.add(open, Node::Text(text));
            }
        }
    }

    /// Reads what begins with `<`; returns its length.
    fn markup(&mut self, open: &mut Vec<usize>, at: usize) -> Read<usize> {
        let rest = &self.text[at..];
        let end_of_input = || Mistake(message::XML_END, self.text.len());
        for (begin, end) in [("<!--", "-->"), ("<?", "?>")] {
            if rest.starts_with(begin) {
                let close = rest.find(end).ok_or_else(end_of_input)?;
                return Ok(close + end.len());
            }
        }
        if rest.starts_with("<!") {
            return Err(Mistake(message::NOT_HERE, at));
        }
        if let Some(inner) = rest.strip_prefix("</") {
            let close = inner.find('>').ok_or_else(end_of_input)?;
            let name = inner[..close].trim();
            let last = open.pop().filter(|_| !open.is_empty());
            let end = at + close + 3;
            match last.and_then(|last| self.nodes.get_mut(last)) {
                Some(Node::Element { name: own, raw, .. }) if own == name => raw.1 = end,
                _ => return Err(Mistake(message::XML_TAGS, at)),
            }
            return Ok(close + 3);
        }
        let (len, name, attributes, is_closed) = tag(&rest[1..]).map_err(|m| m.after(at + 1))?;
        let node = Node::Element {
            name,
            attributes,
            children: Vec::new(),
            raw: (at, at + 1 + len),
        };
        let number = self.add(open, node);
        if !is_closed {
            open.push(number);
        }
        Ok(1 + len)
    }

    fn children(&self, node: usize) -> &[usize] {
        match self.nodes.get(node) {
            Some(Node::Element { children, .. }) => children,
            _ => &[],
        }
    }

    /// All text inside of a node.
    fn string(&self, node: usize) -> String {
        let mut made = String::new();
        let mut rest = vec![node];
        while let Some(next) = rest.pop() {
            match self.nodes.get(next) {
                Some(Node::Text(text)) => made += text,
                _ => rest.extend(self.children(next).iter().rev()),
            }
        }
        made
    }

    /// What a step finds, each once; `None`: it has looked at too much.
    fn step(&self, from: &[Found], step: &Step, looks: &mut usize) -> Option<Vec<Found>> {
        let mut all = Vec::new();
        let mut known = std::collections::BTreeSet::new();
        for found in from {
            let node = found.node;
            if found.attribute.is_some() {
                if step.test == Test::Itself {
                    all.push(*found);
                }
                continue;
            }
            let mut bases = vec![node];
            if step.is_deep {
                let mut rest: Vec<usize> = self.children(node).iter().rev().copied().collect();
                while let Some(next) = rest.pop() {
                    *looks += 1;
                    bases.push(next);
                    rest.extend(self.children(next).iter().rev());
                }
            }
            for base in bases {
                *looks += 1 + self.children(base).len();
                if *looks > LOOKS_MAX {
                    return None;
                }
                let mut own = self.tested(base, &step.test);
                for bracket in &step.brackets {
                    own = match bracket {
                        Bracket::Place(place) => own.into_iter().skip(place - 1).take(1).collect(),
                        Bracket::Where(filter) => own
                            .into_iter()
                            .filter(|found| self.holds(*found, filter, looks))
                            .collect(),
                        Bracket::Any(filters) => own
                            .into_iter()
                            .filter(|found| filters.iter().any(|f| self.holds(*found, f, looks)))
                            .collect(),
                    };
                }
                if *looks > LOOKS_MAX {
                    return None;
                }
                own.retain(|found| known.insert(*found));
                all.extend(own);
            }
        }
        match step.is_deep {
            true => Some(known.into_iter().collect()),
            false => Some(all),
        }
    }

    /// Whether a filter is true for a node; false once it has looked at too much.
    fn holds(&self, found: Found, filter: &Filter, looks: &mut usize) -> bool {
        *looks += self.children(found.node).len();
        if *looks > LOOKS_MAX {
            return false;
        }
        let mut values = self.tested(found.node, &filter.test).into_iter();
        match &filter.equals {
            None => values.next().is_some(),
            Some(Wanted::Text(wanted)) => values.any(|value| self.is_text(value, wanted, looks)),
            Some(Wanted::Number(wanted)) => values.any(|value| {
                let text = self.bounded_value(value, looks);
                text.is_some_and(|text| text.trim().parse() == Ok(*wanted))
            }),
        }
    }

    /// Whether a value is this text. No more of it is looked at than is the same.
    fn is_text(&self, found: Found, wanted: &str, looks: &mut usize) -> bool {
        if let Some(value) = self.attribute(found) {
            return value == wanted;
        }
        let mut left = Some(wanted);
        let is_known = self.pieces(found.node, (wanted.len(), &mut *looks), |piece| {
            left = left.and_then(|left| left.strip_prefix(piece));
            left.is_some()
        });
        is_known && left == Some("")
    }

    /// A value; `None`: it would look at too much.
    fn bounded_value(&self, found: Found, looks: &mut usize) -> Option<String> {
        if let Some(value) = self.attribute(found) {
            return Some(value.to_owned());
        }
        let mut made = String::new();
        let is_known = self.pieces(found.node, (usize::MAX, &mut *looks), |piece| {
            made += piece;
            true
        });
        is_known.then_some(made)
    }

    /// Visits the texts inside of a node, for as long as `visit` asks for more; it looks at no more than `most` bytes of each.
    /// `false`: it would look at too much.
    fn pieces(
        &self,
        node: usize,
        (most, looks): (usize, &mut usize),
        mut visit: impl FnMut(&str) -> bool,
    ) -> bool {
        let mut rest = vec![node];
        while let Some(next) = rest.pop() {
            *looks += 1 + self.children(next).len();
            if let Some(Node::Text(text)) = self.nodes.get(next) {
                *looks += text.len().min(most) / BYTES_A_LOOK;
                if *looks <= LOOKS_MAX && !visit(text) {
                    return true;
                }
            }
            if *looks > LOOKS_MAX {
                return false;
            }
            rest.extend(self.children(next).iter().rev());
        }
        true
    }

    fn tested(&self, base: usize, test: &Test) -> Vec<Found> {
        if *test == Test::Itself {
            return vec![Found::node(base)];
        }
        if let (Test::Attribute(wanted), Some(Node::Element { attributes, .. })) =
            (test, self.nodes.get(base))
        {
            let own = attributes.iter().enumerate();
            let own = own.filter(|(_, (name, _))| name == wanted);
            return own
                .map(|(at, _)| Found {
                    node: base,
                    attribute: Some(at),
                })
                .collect();
        }
        let children =
            self.children(base)
                .iter()
                .filter(|child| match (self.nodes.get(**child), test) {
                    (Some(Node::Text(_)), Test::Text | Test::Any) => true,
                    (Some(Node::Element { name, .. }), Test::Name(wanted)) => name == wanted,
                    (Some(Node::Element { .. }), Test::Element | Test::Any) => true,
                    _ => false,
                });
        children.map(|child| Found::node(*child)).collect()
    }

    /// `None`: it would look at too much.
    fn find(&self, path: &Path, from: usize) -> Option<Vec<Found>> {
        let mut found = vec![Found::node(from)];
        let mut looks = 0;
        for step in &path.steps {
            found = self.step(&found, step, &mut looks)?;
        }
        Some(match path.place {
            Some(place) => found.into_iter().skip(place - 1).take(1).collect(),
            None => found,
        })
    }

    /// The value of an attribute.
    fn attribute(&self, found: Found) -> Option<&str> {
        let at = found.attribute?;
        match self.nodes.get(found.node) {
            Some(Node::Element { attributes, .. }) => {
                attributes.get(at).map(|(_, value)| value.as_str())
            }
            _ => None,
        }
    }

    fn value(&self, found: Found) -> String {
        match self.attribute(found) {
            Some(value) => value.to_owned(),
            None => self.string(found.node),
        }
    }

    /// A node as XML.
    fn written(&self, found: Found) -> String {
        if let Some(value) = self.attribute(found) {
            return super::markup::escaped(value);
        }
        match self.nodes.get(found.node) {
            Some(Node::Element { raw, .. }) => self.text[raw.0..raw.1].to_owned(),
            _ => super::markup::escaped(&self.string(found.node)),
        }
    }
}

/// The length of a start tag, its name, its attributes, and whether it ends itself.
type Tag = (usize, String, Vec<(String, String)>, bool);

fn tag(text: &str) -> Read<Tag> {
    let name_end = text.find(|c: char| !is_name(c)).unwrap_or(text.len());
    if text.is_empty() {
        return Err(Mistake(message::XML_END, 0));
    }
    if !begins_as_name(text) {
        return Err(Mistake(message::XML_NAME_CHARACTER, 0));
    }
    let name = text[..name_end].to_owned();
    let mut attributes = Vec::new();
    let mut at = name_end;
    loop {
        let rest = text[at..].trim_start();
        at = text.len() - rest.len();
        if rest.starts_with("/>") {
            return Ok((at + 2, name, attributes, true));
        }
        if rest.starts_with('>') {
            return Ok((at + 1, name, attributes, false));
        }
        let end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
        let after = rest[end..].trim_start();
        let value = after.strip_prefix('=').map(str::trim_start);
        let quote = value
            .and_then(|v| v.chars().next())
            .filter(|c| matches!(c, '"' | '\''));
        let is_named = begins_as_name(rest);
        let (Some(value), Some(quote), true) = (value, quote, is_named) else {
            return Err(match (rest.is_empty(), is_named, value) {
                (true, ..) => Mistake(message::XML_END, text.len()),
                (false, false, _) => Mistake(message::XML_NAME_CHARACTER, at),
                (false, _, None) => Mistake(message::XML_EQUAL, at + end),
                (false, _, Some(_)) => Mistake(message::XML_STRING, at + end),
            });
        };
        let inner = &value[1..];
        let begin = text.len() - inner.len();
        let close = inner
            .find(quote)
            .ok_or(Mistake(message::XML_END, text.len()))?;
        let content = decoded(&inner[..close]).map_err(|m| m.after(begin))?;
        attributes.push((rest[..end].to_owned(), content));
        at = begin + close + 1;
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    Itself,
    Text,
    /// `*`
    Element,
    /// `node()`
    Any,
    Name(String),
    Attribute(String),
}

/// `[@name = "full"]`, `[name]`
#[derive(Debug)]
struct Filter {
    test: Test,
    /// `None`: it is there.
    equals: Option<Wanted>,
}

#[derive(Debug)]
enum Wanted {
    Text(String),
    Number(f64),
}

#[derive(Debug)]
enum Bracket {
    /// `[n]`
    Place(usize),
    Where(Filter),
    /// `[a or b]`
    Any(Vec<Filter>),
}

#[derive(Debug)]
struct Step {
    /// `//`
    is_deep: bool,
    test: Test,
    brackets: Vec<Bracket>,
}

#[derive(Debug)]
struct Path {
    steps: Vec<Step>,
    /// `(…)[n]`
    place: Option<usize>,
}

/// The place at the end of a text in brackets, and what is before it.
fn place(text: &str) -> Option<(&str, Option<usize>)> {
    let text = text.trim();
    let Some(inner) = text.strip_suffix(']') else {
        return Some((text, None));
    };
    let begin = inner.rfind('[')?;
    let place = inner[begin + 1..].trim().parse().ok().filter(|n| *n > 0)?;
    Some((inner[..begin].trim(), Some(place)))
}

/// The offset of the first `/` outside of brackets and texts; `None`: something is not closed.
fn step_end(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0_usize, None);
    for (at, c) in text.char_indices() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (_, Some(_)) => {}
            ('"' | '\'', None) => quote = Some(c),
            ('[', None) => depth += 1,
            (']', None) => depth = depth.checked_sub(1)?,
            ('/', None) if depth == 0 => return Some(at),
            _ => {}
        }
    }
    (depth == 0 && quote.is_none()).then_some(text.len())
}

/// A name, `.`, `*` and their kin.
fn test(text: &str) -> Option<Test> {
    let named = |name: &str| {
        let is_whole = begins_as_name(name) && name.chars().all(is_name);
        // An axis is no part of a name.
        let is_whole = is_whole && !name.contains("::");
        is_whole.then(|| name.to_owned())
    };
    Some(match text {
        "." => Test::Itself,
        "text()" => Test::Text,
        "*" => Test::Element,
        "node()" => Test::Any,
        text => match text.strip_prefix('@') {
            Some(name) => Test::Attribute(named(name)?),
            None => Test::Name(named(text)?),
        },
    })
}

/// The inside of brackets.
fn bracket(text: &str) -> Option<Bracket> {
    let text = text.trim();
    if let Ok(place) = text.parse() {
        return (place > 0).then_some(Bracket::Place(place));
    }
    let (left, right) = match text.split_once('=') {
        Some((left, right)) => (left.trim(), Some(right.trim())),
        None => (text, None),
    };
    let wanted = |right: &str| {
        let quote = right.chars().next().filter(|c| matches!(c, '"' | '\''));
        match quote {
            Some(quote) => {
                let inner = right.strip_prefix(quote)?.strip_suffix(quote)?;
                (!inner.contains([quote, '&'])).then(|| Wanted::Text(inner.to_owned()))
            }
            None => {
                let is_number = right.starts_with(|c: char| c.is_ascii_digit());
                right.parse().ok().filter(|_| is_number).map(Wanted::Number)
            }
        }
    };
    let equals = match right {
        Some(right) => Some(wanted(right)?),
        None => None,
    };
    let test = test(left)?;
    Some(Bracket::Where(Filter { test, equals }))
}

/// The pieces of a text between a word outside of texts.
fn pieces<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    let mut quote = None;
    let (mut all, mut begin) = (Vec::new(), 0);
    for (at, c) in text.char_indices() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (_, Some(_)) => {}
            ('"' | '\'', None) => quote = Some(c),
            _ if at >= begin && text[at..].starts_with(word) => {
                all.push(&text[begin..at]);
                begin = at + word.len();
            }
            _ => {}
        }
    }
    all.push(&text[begin..]);
    all
}

/// The inside of brackets, with filters that `and` or `or` joins.
fn joined(text: &str) -> Option<Vec<Bracket>> {
    let filter = |text: &&str| match bracket(text)? {
        Bracket::Where(filter) => Some(filter),
        Bracket::Place(_) | Bracket::Any(_) => None,
    };
    let any = pieces(text, " or ");
    let all = pieces(text, " and ");
    match (any.len(), all.len()) {
        (1, 1) => Some(vec![bracket(text)?]),
        (_, 1) => {
            let filters: Option<Vec<_>> = any.iter().map(filter).collect();
            Some(vec![Bracket::Any(filters?)])
        }
        (1, _) => all
            .iter()
            .map(|text| filter(text).map(Bracket::Where))
            .collect(),
        _ => None,
    }
}

/// One step with its brackets.
fn step(text: &str, is_deep: bool) -> Option<Step> {
    let text = text.trim();
    let begin = text.find('[').unwrap_or(text.len());
    let test = test(text[..begin].trim_end())?;
    let mut brackets = Vec::new();
    let mut rest = text[begin..].trim_start();
    while let Some(inner) = rest.strip_prefix('[') {
        let mut quote = None;
        let end = inner.char_indices().find(|(_, c)| {
            match (*c, quote) {
                (c, Some(open)) if c == open => quote = None,
                ('"' | '\'', None) => quote = Some(*c),
                (']', None) => return true,
                _ => {}
            }
            false
        });
        let (end, _) = end?;
        brackets.extend(joined(&inner[..end])?);
        rest = inner[end + 1..].trim_start();
    }
    rest.is_empty().then_some(Step {
        is_deep,
        test,
        brackets,
    })
}

impl Path {
    /// Errors: 50002 for XQuery that is not known here.
    fn read(text: &str) -> Result<Path> {
        Path::known(text).ok_or_else(|| message::NOT_HERE.with(&[&format!("the XQuery {text}")]))
    }

    fn known(text: &str) -> Option<Path> {
        let mut path = text.trim();
        let mut of_all = None;
        if path.starts_with('(') {
            let (inner, found) = place(path)?;
            path = inner.strip_prefix('(')?.strip_suffix(')')?.trim();
            of_all = found;
            // Parentheses around one step with a place of its own.
            if path.starts_with('(') {
                return None;
            }
        }
        let mut steps = Vec::new();
        let mut rest = path;
        let mut is_deep = false;
        if let Some(after) = rest.strip_prefix('/') {
            is_deep = after.starts_with('/');
            rest = after.strip_prefix('/').unwrap_or(after);
        }
        loop {
            let end = step_end(rest)?;
            steps.push(step(&rest[..end], is_deep)?);
            let Some(after) = rest.get(end + 1..) else {
                break;
            };
            is_deep = after.starts_with('/');
            rest = after.strip_prefix('/').unwrap_or(after);
            if steps.len() >= STEPS_MAX {
                return None;
            }
        }
        Some(Path {
            steps,
            place: of_all,
        })
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        value => Some(value.to_string()),
    }
}

/// Reads the text and the path of a call. `None`: the text is NULL.
fn asked<T>(
    arguments: &[Value],
    find: impl FnOnce(&Document, Vec<Found>) -> Result<T>,
) -> Result<Option<T>> {
    let Some(xml) = text(&arguments[0]) else {
        return Ok(None);
    };
    let words = text(&arguments[1]).unwrap_or_default();
    let path = Path::read(&words)?;
    let is_absolute = words.trim_start_matches([' ', '(']).starts_with('/');
    if is_absolute && xml.starts_with(ROW) {
        let what = format!("the XQuery {words} of a row of nodes");
        return Err(message::NOT_HERE.with(&[&what]));
    }
    // A row of `nodes`: its paths begin at the node itself.
    let (xml, from) = match xml.strip_prefix(ROW) {
        Some(node) => (node, 1),
        None => (xml.as_str(), 0),
    };
    let document = Document::read(xml).map_err(|mistake| mistake.message(xml))?;
    let too_much = || message::NOT_HERE.with(&[&"a path that looks at so much of its XML"]);
    let found = document.find(&path, from).ok_or_else(too_much)?;
    find(&document, found).map(Some)
}

/// `value(path, type)`: the value of the first that is found.
pub(super) fn value(arguments: &[Value]) -> Result<Value> {
    let kind = super::cell::kind(&arguments[2]);
    let words = text(&arguments[1]).unwrap_or_default();
    let counted = words
        .trim()
        .strip_prefix("count(")
        .and_then(|rest| rest.strip_suffix(')'));
    let found = match counted {
        Some(path) => asked(&[arguments[0].clone(), Value::text(path)], |_, found| {
            Ok(Some(found.len().to_string()))
        })?,
        None => asked(arguments, |document, found| {
            Ok(found.first().map(|found| document.value(*found)))
        })?,
    };
    match found.flatten() {
        Some(text) => {
            let value = convert_from(&Value::Text(text), Type::NVarChar(None), kind)?;
            super::cell::stored(value)
        }
        None => Ok(Value::Null),
    }
}

/// `query(path)`: what is found, as XML.
pub(super) fn query(arguments: &[Value]) -> Result<Value> {
    let found = asked(arguments, |document, found| {
        Ok(found.iter().map(|f| document.written(*f)).collect())
    })?;
    Ok(found.map_or(Value::Null, Value::Text))
}

/// `exist(path)`
pub(super) fn exist(arguments: &[Value]) -> Result<Value> {
    let found = asked(arguments, |_, found| Ok(Value::bit(!found.is_empty())))?;
    Ok(found.unwrap_or(Value::Null))
}

/// `nodes(path)`: rows of one column, packed.
pub(super) fn nodes(arguments: &[Value]) -> Result<Value> {
    let found = asked(arguments, |document, found| {
        let row = |f: &Found| vec![Value::Text(format!("{ROW}{}", document.written(*f)))];
        Ok(packed::rows(found.iter().map(row).collect()))
    })?;
    Ok(found.unwrap_or_else(|| packed::rows(Vec::new())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(xml: &str, path: &str) -> Value {
        let kind = Value::text("nvarchar(max)");
        value(&[Value::text(xml), Value::text(path), kind]).unwrap()
    }

    #[test]
    fn paths_find_texts_elements_and_attributes() {
        let xml = r#"<a x="1&amp;2"><b>one &lt; two</b><b>3<c/></b></a>"#;
        for (path, expected) in [
            (".", "one < two3"),
            ("(/a/b)[2]", "3"),
            ("/a[1]/b[1]", "one < two"),
            ("(//b/text())[1]", "one < two"),
            ("/a/@x", "1&2"),
            ("(./a/b/text())[2]", "3"),
        ] {
            assert_eq!(at(xml, path), Value::text(expected), "{path}");
        }
        assert_eq!(at(xml, "/a/z"), Value::Null);
        assert_eq!(at(", a, b &amp; c", "."), Value::text(", a, b & c"));
        assert_eq!(at("x", "text()[1]"), Value::text("x"));
        assert_eq!(at("x", "(.)[1]"), Value::text("x"));
    }

    #[test]
    fn a_path_of_many_ways_finds_each_node_once_and_is_bounded() {
        let deep = "<a>".repeat(100) + "x" + &"</a>".repeat(100);
        assert_eq!(at(&deep, "(//a//a//a//a//a//a)[1]"), Value::text("x"));
        let kind = Value::text("nvarchar(max)");
        let wide = format!("<r>{}</r>", "<a><b/></a>".repeat(60_000));
        let long = format!("{}x", "//*".repeat(60));
        let refused = value(&[Value::Text(wide), Value::Text(long), kind]);
        assert_eq!(refused.unwrap_err().number, 50002);
        // Filters that look at all that is below each node.
        let text = "y".repeat(1 << 20);
        let deep = "<a>".repeat(100) + &text + &"</a>".repeat(100);
        let below = format!("<r>{}</r>", "<a>1</a>".repeat(60_000));
        let below = "<a>".repeat(100) + &below + &"</a>".repeat(100);
        for (xml, path) in [(&deep, "(//*//*[.=1])[1]"), (&below, "(//*//*[.=7])[1]")] {
            let kind = Value::text("nvarchar(max)");
            let refused = value(&[Value::text(xml.as_str()), Value::text(path), kind]);
            assert_eq!(refused.unwrap_err().number, 50002, "{path}");
        }
        assert_eq!(at(&deep, "count(//*//*[.=\"x\"])"), Value::text("0"));
        let xml = "<r><a k=\"1\" t=\"x and y\"/><a k=\"1\"/><a t=\"z\"/></r>";
        for (path, expected) in [
            ("/r/a[@k=1 and @t=\"x and y\"]", "1"),
            ("/r/a[@k=1 and @t]", "1"),
            ("/r/a[@t=\"z\" or @k=1]", "3"),
            ("/r/a[@k=1 and @t][1]", "1"),
        ] {
            assert_eq!(
                at(xml, &format!("count({path})")),
                Value::text(expected),
                "{path}"
            );
        }
        let both = Value::text("/r/a[@k=1 and @t or @k]");
        let refused = value(&[Value::text(xml), both, Value::text("int")]);
        assert_eq!(refused.unwrap_err().number, 50002);
        let xml = "<r><a>o<b>ne</b></a><a>one</a><a> 1 </a><a>on</a></r>";
        assert_eq!(at(xml, "count(/r/a[.=\"one\"])"), Value::text("2"));
        assert_eq!(at(xml, "count(/r/a[.=1])"), Value::text("1"));
    }

    #[test]
    fn what_is_no_xml_is_refused_and_depth_is_bounded() {
        let kind = Value::text("nvarchar(max)");
        let deep = "<a>".repeat(10_000);
        for (xml, number) in [
            ("<a>", 9400),
            ("<a></b>", 9436),
            ("</a>", 9436),
            ("&nbsp;", 9448),
            ("a & b", 9411),
            ("<a b>", 9414),
            ("<a b=1>", 9413),
            ("<", 9400),
            ("<1/>", 9421),
            ("<a", 9400),
            ("<!DOCTYPE x>", 50002),
            (&deep, 50002),
        ] {
            let path = Value::text(".");
            let refused = value(&[Value::text(xml), path, kind.clone()]).unwrap_err();
            assert_eq!(refused.number, number, "{xml:.20}");
        }
        let refused = value(&[Value::text("a\n<b></c>"), Value::text("."), kind]).unwrap_err();
        let said = "XML parsing: line 2, character 4, end tag does not match start tag";
        assert_eq!(refused.text, said);
    }
}
