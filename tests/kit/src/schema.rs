//! Holds the answers of `--json` to their page, `docs/json.md`.
//!
//! The page has one table for each kind of object. The chapter "Every answer" has the members around all answers,
//! "Parts" the objects that several answers share, and "Answers" one section for each `action`. A section with several
//! tables describes an answer of several forms, each of which has one table.
//!
//! Invariants
//! - A member that is not on the page is an error, and so is an unmarked member that is missing.
//! - Each member has a type that the page gives, in each object and array below the answer.
//! - No object has two members of one name: readers differ in which of them they take.
//! - [`Schema::names_of_two_types`] tells of names that have one type here and another one there.
//!
//! Leaves to others: which answers are checked (`program.rs` and the suites).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::LazyLock;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Integers up to this value are exact for readers that have only 64-bit floating point, such as jq.
const EXACT_MAX: u64 = 1 << 53;

/// The chapter with the members around every answer.
const FRAME: &str = "Every answer";
const SOMETIMES: &str = " (sometimes)";
const ALL_OF: &str = "all of";

/// The content of the page.
#[derive(Debug)]
pub struct Schema {
    /// The members around every answer.
    frame: Table,
    parts: BTreeMap<String, Vec<Table>>,
    answers: BTreeMap<String, Vec<Table>>,
}

/// The members of one object.
type Table = BTreeMap<String, Member>;

#[derive(Debug, Clone)]
struct Member {
    kind: Kind,
    /// Whether the object can be without it.
    sometimes: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    String,
    Integer,
    LongInteger,
    Number,
    Boolean,
    Null,
    Any,
    /// This string.
    Word(String),
    Array(Box<Kind>),
    /// An object whose members have names of any kind.
    Map(Box<Kind>),
    Pair(Box<Kind>, Box<Kind>),
    Part(String),
    OneOf(Vec<Kind>),
}

/// The page of this tree.
pub fn page() -> &'static Schema {
    static PAGE: LazyLock<Schema> = LazyLock::new(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
        let text = std::fs::read_to_string(&path);
        let text = text.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Schema::read(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    });
    &PAGE
}

/// The answer in `text`. Panics if it is none, or is not as the page says.
#[track_caller]
pub fn checked(text: &str) -> Value {
    match page().check(text) {
        Ok(value) => value,
        Err(errors) => panic!("{}\nthe answer: {text}", errors.join("\n")),
    }
}

/// Checks the output of a program if it is an answer. Cut answers and other texts are left to the caller.
#[track_caller]
pub fn check_if_answer(stdout: &[u8]) {
    let text = str::from_utf8(stdout).unwrap_or_default();
    let is_one = text.starts_with("{\"") && text.ends_with("}\n") && text.lines().count() == 1;
    if is_one && text.contains("\"exit_code\":") {
        checked(text);
    }
}

impl Schema {
    /// Reads the page. The error names the line that cannot be understood.
    pub fn read(page: &str) -> Result<Schema, String> {
        let mut schema = Schema {
            frame: Table::new(),
            parts: BTreeMap::new(),
            answers: BTreeMap::new(),
        };
        let mut includes = Vec::new();
        let (mut chapter, mut section) = ("", "");
        let mut in_table = false;
        for line in page.lines() {
            let is_row = line.starts_with('|');
            if let Some(heading) = line.strip_prefix("## ") {
                (chapter, section) = (heading, "");
            } else if let Some(heading) = line.strip_prefix("### ") {
                section = heading.trim_matches('`');
                if let Some(tables) = schema.tables(chapter) {
                    let is_new = tables.insert(section.to_owned(), Vec::new()).is_none();
                    is_new.then_some(()).ok_or(format!("{line}: twice"))?;
                }
            } else if line.starts_with("| member ") || line.starts_with("|---") {
                if !in_table && let Some(tables) = schema.tables(chapter) {
                    let tables = tables.get_mut(section);
                    tables
                        .ok_or(format!("{line}: no section"))?
                        .push(Table::new());
                }
            } else if is_row && (chapter == FRAME || schema.tables(chapter).is_some()) {
                let wrong = |why: &str| format!("{line}: {why}");
                let [name, kind, meaning] = cells(line)[..] else {
                    return Err(wrong("not three cells"));
                };
                if chapter == FRAME {
                    let (name, member) = member(name, kind).ok_or(wrong("not a member"))?;
                    schema.frame.insert(name, member);
                } else if let Some(tables) = schema.tables(chapter) {
                    let tables = tables.get_mut(section).ok_or(wrong("no section"))?;
                    let at = tables.len().checked_sub(1).ok_or(wrong("no head"))?;
                    if name == ALL_OF {
                        let part = Kind::read(kind).ok_or(wrong("unknown type"))?;
                        includes.push((chapter, section, at, part));
                    } else {
                        let (name, member) = member(name, kind).ok_or(wrong("unknown type"))?;
                        if meaning.is_empty() || tables[at].insert(name, member).is_some() {
                            return Err(wrong("without a meaning, or twice"));
                        }
                    }
                }
            }
            in_table = is_row;
        }
        for (chapter, section, at, part) in includes {
            let Kind::Part(part) = part else {
                return Err(format!("{section}: {part:?} is not a part"));
            };
            let [shared] = &schema.parts.get(&part).cloned().unwrap_or_default()[..] else {
                return Err(format!("{section}: {part} is not one table"));
            };
            if let Some(tables) = schema.tables(chapter)
                && let Some(table) = tables.get_mut(section).and_then(|t| t.get_mut(at))
            {
                table.extend(shared.clone());
            }
        }
        schema.complete()
    }

    /// The sections of a chapter that describes objects.
    fn tables(&mut self, chapter: &str) -> Option<&mut BTreeMap<String, Vec<Table>>> {
        match chapter {
            "Parts" => Some(&mut self.parts),
            "Answers" => Some(&mut self.answers),
            _ => None,
        }
    }

    /// Every section has a table, and every part that is named is there and is used.
    fn complete(self) -> Result<Schema, String> {
        let mut used = Vec::new();
        for (name, tables) in self.parts.iter().chain(&self.answers) {
            if tables.is_empty() || self.frame.is_empty() {
                return Err(format!("{name}: no table"));
            }
        }
        let tables = self.parts.values().chain(self.answers.values()).flatten();
        for member in tables.chain([&self.frame]).flat_map(BTreeMap::values) {
            member.kind.parts(&mut used);
        }
        match used.iter().find(|part| !self.parts.contains_key(*part)) {
            Some(part) => Err(format!("there is no part {part}")),
            None => Ok(self),
        }
    }

    /// The names of all actions that the page describes.
    pub fn actions(&self) -> impl Iterator<Item = &str> {
        self.answers.keys().map(String::as_str)
    }

    /// The names that have different types in different objects, each with its types and the sections that give them. A
    /// reader that makes columns or types of answers keeps one type for a name. All parts count as one: they are objects.
    pub fn names_of_two_types(&self) -> Vec<String> {
        let mut found: BTreeMap<&str, BTreeMap<String, BTreeSet<&str>>> = BTreeMap::new();
        let sections = self.parts.iter().chain(&self.answers);
        let tables = sections.flat_map(|(section, tables)| tables.iter().map(|t| (&**section, t)));
        for (section, table) in tables.chain([(FRAME, &self.frame)]) {
            for (name, member) in table {
                // A member that is always null has no type yet.
                if let Some(kind) = member.kind.type_of_json() {
                    let of_name = found.entry(name).or_default();
                    of_name.entry(kind).or_default().insert(section);
                }
            }
        }
        let told = |(kind, sections): (&String, &BTreeSet<&str>)| {
            let sections: Vec<&str> = sections.iter().copied().collect();
            format!("{kind} in {}", sections.join(", "))
        };
        let found = found.iter().filter(|(_, types)| types.len() > 1);
        found
            .map(|(name, types)| {
                let types: Vec<String> = types.iter().map(told).collect();
                format!("{name}: {}", types.join("; "))
            })
            .collect()
    }

    /// The answer, or everything in it that is not as the page says.
    pub fn check(&self, text: &str) -> Result<Value, Vec<String>> {
        let value: Unique = serde_json::from_str(text).map_err(|e| vec![e.to_string()])?;
        let Unique(value) = value;
        let mut errors = Vec::new();
        match &value {
            Value::Object(members) => self.answer(members, &mut errors),
            _ => errors.push("not an object".to_owned()),
        }
        match errors.is_empty() {
            true => Ok(value),
            false => Err(errors),
        }
    }

    fn answer(&self, members: &Map<String, Value>, errors: &mut Vec<String>) {
        let action = members.get("action").and_then(Value::as_str);
        let none = [Table::new()];
        let forms: &[Table] = match action {
            Some(action) => match self.answers.get(action) {
                Some(forms) => forms,
                None => return errors.push(format!("{action}: no such action on the page")),
            },
            None if members.contains_key("error") => &none,
            None => return errors.push("neither `action` nor `error`".to_owned()),
        };
        let framed = |form: &Table| {
            let mut table = self.frame.clone();
            table.extend(form.clone());
            table
        };
        let forms: Vec<Table> = forms.iter().map(framed).collect();
        self.object(members, &forms, action.unwrap_or("error"), errors);
    }

    /// Checks an object against each of its forms, and reports what is wrong with the nearest one.
    fn object(
        &self,
        members: &Map<String, Value>,
        forms: &[Table],
        path: &str,
        errors: &mut Vec<String>,
    ) {
        let wrong_with = |form: &Table| {
            let mut wrong = Vec::new();
            for (name, value) in members {
                let path = format!("{path}.{name}");
                match form.get(name) {
                    Some(member) => self.value(value, &member.kind, &path, &mut wrong),
                    None => wrong.push(format!("{path}: not on the page")),
                }
            }
            let missing = form
                .iter()
                .filter(|(name, member)| !member.sometimes && !members.contains_key(*name));
            wrong.extend(missing.map(|(name, _)| format!("{path}.{name}: missing")));
            wrong
        };
        let nearest = forms.iter().map(wrong_with).min_by_key(Vec::len);
        errors.extend(nearest.unwrap_or_default());
    }

    fn value(&self, value: &Value, kind: &Kind, path: &str, errors: &mut Vec<String>) {
        match (kind, value) {
            (Kind::Array(kind), Value::Array(values)) => {
                for (i, value) in values.iter().enumerate() {
                    self.value(value, kind, &format!("{path}[{i}]"), errors);
                }
            }
            (Kind::Pair(one, other), Value::Array(values)) if values.len() == 2 => {
                self.value(&values[0], one, &format!("{path}[0]"), errors);
                self.value(&values[1], other, &format!("{path}[1]"), errors);
            }
            (Kind::Map(kind), Value::Object(members)) => {
                for (name, value) in members {
                    self.value(value, kind, &format!("{path}.{name}"), errors);
                }
            }
            (Kind::Part(part), Value::Object(members)) => {
                self.object(members, &self.parts[part], path, errors);
            }
            (Kind::OneOf(kinds), value) => {
                let wrong_with = |kind: &Kind| {
                    let mut wrong = Vec::new();
                    self.value(value, kind, path, &mut wrong);
                    wrong
                };
                let found: Vec<_> = kinds.iter().map(wrong_with).collect();
                if found.iter().all(|wrong| !wrong.is_empty()) {
                    // An error inside of a part says more than that the value has none of the types.
                    let told = kinds.iter().zip(found).find(|(kind, _)| kind.holds(value));
                    match told {
                        Some((_, wrong)) => errors.extend(wrong),
                        None => errors.push(format!("{path}: {value} is not {kind}")),
                    }
                }
            }
            (kind, value) if kind.is(value) => {}
            (kind, value) => errors.push(format!("{path}: {value} is not {kind}")),
        }
    }
}

/// The cells of a row of a table.
fn cells(row: &str) -> Vec<&str> {
    let row = row.trim().trim_matches('|');
    row.split(" | ").map(str::trim).collect()
}

/// `` `name` `` or `` `name` (sometimes) ``, and its type.
fn member(name: &str, kind: &str) -> Option<(String, Member)> {
    let always = name.strip_suffix(SOMETIMES);
    let quoted = always.unwrap_or(name);
    let name = quoted.strip_prefix('`')?.strip_suffix('`')?;
    let member = Member {
        kind: Kind::read(kind)?,
        sometimes: always.is_some(),
    };
    Some((name.to_owned(), member))
}

impl Kind {
    /// A type as the page writes it: `array of [run](#run) or null`.
    fn read(text: &str) -> Option<Kind> {
        let either: Vec<&str> = text.split(" or ").flat_map(|t| t.split(", ")).collect();
        if either.len() > 1 {
            let kinds = either.into_iter().map(Kind::read);
            return Some(Kind::OneOf(kinds.collect::<Option<_>>()?));
        }
        if let Some(of) = text.strip_prefix("array of ") {
            return Some(Kind::Array(Box::new(Kind::read(of)?)));
        }
        if let Some(of) = text.strip_prefix("object of ") {
            return Some(Kind::Map(Box::new(Kind::read(of)?)));
        }
        if let Some(of) = text.strip_prefix("pair of ") {
            let (one, other) = of.split_once(" and ")?;
            let (one, other) = (Kind::read(one)?, Kind::read(other)?);
            return Some(Kind::Pair(Box::new(one), Box::new(other)));
        }
        if let Some(word) = text.strip_prefix('`') {
            return Some(Kind::Word(word.strip_suffix('`')?.to_owned()));
        }
        if let Some(link) = text.strip_prefix('[') {
            let (name, _) = link.split_once("](#")?;
            return Some(Kind::Part(name.to_owned()));
        }
        Some(match text {
            "string" => Kind::String,
            "integer" => Kind::Integer,
            "long integer" => Kind::LongInteger,
            "number" => Kind::Number,
            "boolean" => Kind::Boolean,
            "null" => Kind::Null,
            "any" => Kind::Any,
            _ => return None,
        })
    }

    /// Whether a value without others in it has this type.
    fn is(&self, value: &Value) -> bool {
        let exact = |n: &serde_json::Number| {
            let size = n.as_u64().or(n.as_i64().map(i64::unsigned_abs));
            size.is_some_and(|size| size <= EXACT_MAX)
        };
        match (self, value) {
            (Kind::Any, _) => true,
            (Kind::String, Value::String(_)) => true,
            (Kind::Word(word), Value::String(text)) => word == text,
            (Kind::Integer, Value::Number(n)) => exact(n),
            (Kind::LongInteger, Value::Number(n)) => n.is_i64() || n.is_u64(),
            (Kind::Number, Value::Number(_)) => true,
            (Kind::Boolean, Value::Bool(_)) => true,
            (Kind::Null, Value::Null) => true,
            _ => false,
        }
    }

    /// Whether it is a container, and the value one of the same form.
    fn holds(&self, value: &Value) -> bool {
        match self {
            Kind::Array(_) | Kind::Pair(..) => value.is_array(),
            Kind::Map(_) | Kind::Part(_) => value.is_object(),
            _ => false,
        }
    }

    /// What JSON makes of it: words are strings, and all parts are objects. `None` of null.
    fn type_of_json(&self) -> Option<String> {
        let of = |kind: &Kind| kind.type_of_json().unwrap_or("null".to_owned());
        Some(match self {
            Kind::String | Kind::Word(_) => "string".to_owned(),
            Kind::Integer | Kind::LongInteger => "integer".to_owned(),
            Kind::Number => "number".to_owned(),
            Kind::Boolean => "boolean".to_owned(),
            Kind::Null => return None,
            Kind::Any => "any".to_owned(),
            Kind::Array(kind) => format!("array of {}", of(kind)),
            Kind::Map(kind) => format!("object of {}", of(kind)),
            Kind::Pair(one, other) => format!("pair of {} and {}", of(one), of(other)),
            Kind::Part(_) => "object".to_owned(),
            Kind::OneOf(kinds) => {
                let types: BTreeSet<String> = kinds.iter().filter_map(Kind::type_of_json).collect();
                let types: Vec<String> = types.into_iter().collect();
                types.join(" or ")
            }
        })
    }

    fn parts(&self, found: &mut Vec<String>) {
        match self {
            Kind::Array(kind) | Kind::Map(kind) => kind.parts(found),
            Kind::Pair(one, other) => {
                one.parts(found);
                other.parts(found);
            }
            Kind::Part(part) => found.push(part.clone()),
            Kind::OneOf(kinds) => kinds.iter().for_each(|kind| kind.parts(found)),
            _ => {}
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::String => f.write_str("a string"),
            Kind::Integer => f.write_str("an integer up to 2^53"),
            Kind::LongInteger => f.write_str("an integer"),
            Kind::Number => f.write_str("a number"),
            Kind::Boolean => f.write_str("a boolean"),
            Kind::Null => f.write_str("null"),
            Kind::Any => f.write_str("anything"),
            Kind::Word(word) => write!(f, "{word:?}"),
            Kind::Array(kind) => write!(f, "an array of {kind}"),
            Kind::Map(kind) => write!(f, "an object of {kind}"),
            Kind::Pair(one, other) => write!(f, "a pair of {one} and {other}"),
            Kind::Part(part) => write!(f, "a {part}"),
            Kind::OneOf(kinds) => {
                let told: Vec<String> = kinds.iter().map(Kind::to_string).collect();
                f.write_str(&told.join(" or "))
            }
        }
    }
}

/// A value in which no object has two members of one name.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Unique, D::Error> {
        from.deserialize_any(UniqueVisitor)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Unique;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Unique, E> {
        Ok(Unique(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Unique, E> {
        Ok(Unique(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Unique, E> {
        Ok(Unique(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Unique, E> {
        Ok(Unique(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Unique, E> {
        Ok(Unique(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Unique, E> {
        Ok(Unique(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Unique, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = from.next_element()? {
            values.push(value);
        }
        Ok(Unique(Value::Array(values)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Unique, A::Error> {
        let mut members = Map::new();
        while let Some((name, Unique(value))) = from.next_entry::<String, Unique>()? {
            if members.insert(name.clone(), value).is_some() {
                return Err(A::Error::custom(format!("two members {name:?}")));
            }
        }
        Ok(Unique(Value::Object(members)))
    }
}
