//! Rows as XML and JSON: FOR XML PATH, RAW and AUTO, FOR JSON PATH and AUTO.
//!
//! Invariants
//! - A column's name is its place in the element or the object; names that have no place are refused with SQL Server's
//!   messages.
//! - A NULL is left out, unless INCLUDE_NULL_VALUES asks for it.
//!
//! Leaves to others: which columns there are, and putting rows together (`translate/markup.rs`).

use serde_json::Value as Json;

use crate::convert::convert_styled;
use crate::message::{self, Message};
use crate::value::{Type, Value};

type Result<T> = std::result::Result<T, Message>;

/// A column of rows that become XML or JSON.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MarkedColumn {
    pub name: String,
    pub kind: Type,
    /// Its values are XML, or JSON, already.
    pub is_marked: bool,
}

/// How rows are written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MarkupShape {
    /// Of a row; empty: none.
    pub element: String,
    /// RAW and AUTO: columns are attributes.
    pub attributes: bool,
    /// TYPE: an empty element ends itself.
    pub typed: bool,
    /// INCLUDE_NULL_VALUES
    pub nulls: bool,
    pub columns: Vec<MarkedColumn>,
}

impl MarkupShape {
    /// The shape as an argument of our functions.
    pub fn text(&self) -> String {
        let column = |c: &MarkedColumn| {
            Json::from(vec![
                Json::from(c.name.as_str()),
                Json::from(c.kind.to_string()),
                Json::from(c.is_marked),
            ])
        };
        Json::from(vec![
            Json::from(self.element.as_str()),
            Json::from(self.attributes),
            Json::from(self.typed),
            Json::from(self.nulls),
            Json::Array(self.columns.iter().map(column).collect()),
        ])
        .to_string()
    }

    fn of(text: &Value) -> MarkupShape {
        let text = match text {
            Value::Text(text) => text.as_str(),
            _ => "",
        };
        let all: Json = serde_json::from_str(text).unwrap_or_default();
        let column = |c: &Json| MarkedColumn {
            name: c[0].as_str().unwrap_or_default().to_owned(),
            kind: super::cell::kind(&Value::text(c[1].as_str().unwrap_or_default())),
            is_marked: c[2] == true,
        };
        let columns = all[4].as_array().into_iter().flatten();
        MarkupShape {
            element: all[0].as_str().unwrap_or_default().to_owned(),
            attributes: all[1] == true,
            typed: all[2] == true,
            nulls: all[3] == true,
            columns: columns.map(column).collect(),
        }
    }
}

/// A text inside of an element.
pub(super) fn escaped(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => made += "&amp;",
            '<' => made += "&lt;",
            '>' => made += "&gt;",
            '\n' | '\t' => made.push(c),
            c if c < ' ' => made += &format!("&#x{:02X};", u32::from(c)),
            c => made.push(c),
        }
    }
    made
}

/// A text inside of an attribute.
fn escaped_attribute(text: &str) -> String {
    let made = escaped(text).replace('"', "&quot;");
    made.replace('\n', "&#x0A;").replace('\t', "&#x09;")
}

/// A value as XML and JSON show it: moments in ISO 8601.
fn shown(value: &Value, kind: Type) -> Result<String> {
    let typed = super::cell::as_kind(value, kind)?;
    let styled = |style| convert_styled(&typed, kind, Type::NVarChar(None), style);
    let text = match kind {
        kind if kind.is_moment() => styled(126)?,
        // With four decimals.
        Type::Money | Type::SmallMoney => styled(2)?,
        Type::Binary(_) | Type::VarBinary(_) => Value::Text(base64(&typed)),
        Type::Float => match &typed {
            Value::Float(n) => Value::Text(scientific(*n)),
            _ => styled(0)?,
        },
        _ => super::cell::converted(value, kind, Type::NVarChar(None))?,
    };
    Ok(text.to_string())
}

/// `1.500000000000000e+000`
fn scientific(n: f64) -> String {
    let text = format!("{n:.15e}");
    match text.split_once('e') {
        Some((digits, power)) => match power.strip_prefix('-') {
            Some(power) => format!("{digits}e-{power:0>3}"),
            None => format!("{digits}e+{power:0>3}"),
        },
        None => text,
    }
}

fn base64(value: &Value) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let Value::Binary(bytes) = value else {
        return String::new();
    };
    let mut made = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4_usize {
            match i <= chunk.len() {
                true => made.push(DIGITS[(bits >> (18 - 6 * i) & 63) as usize] as char),
                false => made.push('='),
            }
        }
    }
    made
}

/// An element as it is made, or a text inside of one.
#[derive(Debug, Default)]
struct Element {
    name: String,
    attributes: String,
    /// A text as it is written; then there is nothing else.
    raw: Option<String>,
    parts: Vec<Element>,
}

impl Element {
    fn named(name: &str) -> Element {
        Element {
            name: name.to_owned(),
            ..Element::default()
        }
    }

    fn text(raw: String) -> Element {
        Element {
            raw: Some(raw),
            ..Element::default()
        }
    }

    /// The last part, if it is the element of this name; else a new one.
    fn child(&mut self, name: &str) -> &mut Element {
        let is_it = |e: &Element| e.raw.is_none() && e.name == name;
        if !self.parts.last().is_some_and(is_it) {
            self.parts.push(Element::named(name));
        }
        let last = self.parts.len() - 1;
        &mut self.parts[last]
    }

    fn write(&self, typed: bool, made: &mut String) {
        if let Some(raw) = &self.raw {
            *made += raw;
            return;
        }
        if !self.name.is_empty() {
            *made += &format!("<{}{}", self.name, self.attributes);
            if self.parts.is_empty() || (typed && self.is_blank()) {
                *made += "/>";
                return;
            }
            made.push('>');
        }
        for part in &self.parts {
            part.write(typed, made);
        }
        if !self.name.is_empty() {
            *made += &format!("</{}>", self.name);
        }
    }

    fn is_blank(&self) -> bool {
        let is_empty = |part: &Element| part.raw.as_ref().is_some_and(String::is_empty);
        self.parts.iter().all(is_empty)
    }
}

fn is_first(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn is_later(c: char) -> bool {
    is_first(c) || c.is_numeric() || matches!(c, '-' | '.')
}

/// Errors: 6850 for a name that XML does not have.
fn check_name(name: &str, whole: &str) -> Result<()> {
    let mut characters = name.chars().enumerate();
    let bad = characters.find(|(i, c)| !if *i == 0 { is_first(*c) } else { is_later(*c) });
    match bad {
        None => Ok(()),
        Some((_, c)) => {
            let number = format!("0x{:04X}", u32::from(c));
            Err(message::XML_NAME.with(&[&"Column", &whole, &c, &number]))
        }
    }
}

/// A name as RAW and AUTO write it: `Last_x0020_Backup`.
pub(super) fn encoded_name(name: &str) -> String {
    let mut made = String::new();
    for (i, c) in name.chars().enumerate() {
        match if i == 0 { is_first(c) } else { is_later(c) } {
            true => made.push(c),
            false => made += &format!("_x{:04X}_", u32::from(c)),
        }
    }
    made
}

/// A row of FOR XML. Arguments: the shape, then the values. Errors: 6809, 6850, 6852, 6864.
pub(super) fn xml_row(arguments: &[Value]) -> Result<Value> {
    let shape = MarkupShape::of(&arguments[0]);
    let mut row = Element::named(&shape.element);
    for (column, value) in shape.columns.iter().zip(&arguments[1..]) {
        if value.is_null() {
            continue;
        }
        let text = shown(value, column.kind)?;
        let content = match column.is_marked {
            true => text.clone(),
            false => escaped(&text),
        };
        if shape.attributes {
            if column.name.is_empty() {
                return Err(message::XML_NAMELESS.plain());
            }
            let name = encoded_name(&column.name);
            row.attributes += &format!(" {name}=\"{}\"", escaped_attribute(&text));
            continue;
        }
        place(&mut row, &column.name, &text, content)?;
    }
    let mut made = String::new();
    row.write(shape.typed, &mut made);
    Ok(Value::Text(made))
}

/// Puts a value where a column's name says.
fn place(row: &mut Element, name: &str, text: &str, content: String) -> Result<()> {
    let mut steps: Vec<&str> = name.split('/').collect();
    let last = steps.pop().unwrap_or_default();
    let mut element = row;
    for step in steps {
        check_name(step, name)?;
        element = element.child(step);
    }
    if let Some(attribute) = last.strip_prefix('@') {
        check_name(attribute, name)?;
        if element.name.is_empty() {
            return Err(message::XML_ROW_TAG.plain());
        }
        if !element.parts.is_empty() {
            return Err(message::XML_ATTRIBUTE_LATE.with(&[&name]));
        }
        element.attributes += &format!(" {attribute}=\"{}\"", escaped_attribute(text));
        return Ok(());
    }
    match last {
        "" | "*" | "text()" | "node()" => element.parts.push(Element::text(content)),
        "data()" => {
            // Values of a list have blanks between them.
            let content = match element.parts.last() {
                Some(part) if part.raw.is_some() => format!(" {content}"),
                _ => content,
            };
            element.parts.push(Element::text(content));
        }
        "comment()" => element.parts.push(Element::text(format!("<!--{text}-->"))),
        last if last.starts_with("processing-instruction(") => {
            let target = last.trim_start_matches("processing-instruction(");
            let target = target.trim_end_matches(')');
            check_name(target, name)?;
            element
                .parts
                .push(Element::text(format!("<?{target} {text}?>")));
        }
        last => {
            check_name(last, name)?;
            element.child(last).parts.push(Element::text(content));
        }
    }
    Ok(())
}

/// A text in quotation marks, as FOR JSON writes it: a slash is escaped, too.
pub(super) fn quoted(text: &str) -> String {
    let mut made = String::with_capacity(text.len() + 2);
    made.push('"');
    for c in text.chars() {
        match c {
            '"' => made += "\\\"",
            '\\' => made += "\\\\",
            '/' => made += "\\/",
            '\u{8}' => made += "\\b",
            '\u{c}' => made += "\\f",
            '\n' => made += "\\n",
            '\r' => made += "\\r",
            '\t' => made += "\\t",
            c if c < ' ' => made += &format!("\\u{:04x}", u32::from(c)),
            c => made.push(c),
        }
    }
    made.push('"');
    made
}

/// STRING_ESCAPE(text, 'json'). Errors: 50002 for other types.
pub(super) fn string_escape(arguments: &[Value]) -> Result<Value> {
    if arguments.iter().any(Value::is_null) {
        return Ok(Value::Null);
    }
    let kind = arguments[1].to_string();
    if !kind.eq_ignore_ascii_case("json") {
        return Err(message::NOT_HERE.with(&[&format!("STRING_ESCAPE of {kind}")]));
    }
    let made = quoted(&arguments[0].to_string());
    Ok(Value::text(&made[1..made.len() - 1]))
}

fn json_value(value: &Value, column: &MarkedColumn) -> Result<String> {
    if value.is_null() {
        return Ok("null".to_owned());
    }
    let text = shown(value, column.kind)?;
    Ok(match column.kind {
        _ if column.is_marked => text,
        Type::Bit => (if text == "0" { "false" } else { "true" }).to_owned(),
        kind if kind.is_number() => text,
        _ => quoted(&text),
    })
}

/// An object as it is made: its members in their order.
#[derive(Debug, Default)]
struct Object(Vec<(String, Member)>);

#[derive(Debug)]
enum Member {
    Written(String),
    Object(Object),
}

impl Object {
    /// Errors: 13601 where a name is both a value and an object, or comes again after others.
    fn put(&mut self, name: &str, whole: &str, value: String) -> Result<()> {
        let taken = || message::JSON_CONFLICT.with(&[&whole]);
        let Some((first, rest)) = name.split_once('.') else {
            if self.0.iter().any(|(known, _)| known == name) {
                return Err(taken());
            }
            self.0.push((name.to_owned(), Member::Written(value)));
            return Ok(());
        };
        let is_last = self.0.last().is_some_and(|(known, _)| known == first);
        if !is_last {
            if self.0.iter().any(|(known, _)| known == first) {
                return Err(taken());
            }
            self.0
                .push((first.to_owned(), Member::Object(Object::default())));
        }
        match self.0.last_mut() {
            Some((_, Member::Object(inner))) => inner.put(rest, whole, value),
            _ => Err(taken()),
        }
    }

    fn text(&self) -> String {
        let member = |(name, value): &(String, Member)| {
            let value = match value {
                Member::Written(text) => text.clone(),
                Member::Object(inner) => inner.text(),
            };
            format!("{}:{value}", quoted(name))
        };
        let all: Vec<_> = self.0.iter().map(member).collect();
        format!("{{{}}}", all.join(","))
    }
}

/// A row of FOR JSON. Arguments: the shape, then the values. Errors: 13601, 13605.
pub(super) fn json_row(arguments: &[Value]) -> Result<Value> {
    let shape = MarkupShape::of(&arguments[0]);
    let mut row = Object::default();
    for (column, value) in shape.columns.iter().zip(&arguments[1..]) {
        if column.name.is_empty() {
            return Err(message::JSON_NO_NAME.plain());
        }
        if value.is_null() && !shape.nulls {
            continue;
        }
        row.put(&column.name, &column.name, json_value(value, column)?)?;
    }
    Ok(Value::Text(row.text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(element: &str, names: &[&str]) -> MarkupShape {
        let column = |name: &&str| MarkedColumn {
            name: (*name).to_owned(),
            kind: Type::NVarChar(None),
            is_marked: false,
        };
        MarkupShape {
            element: element.to_owned(),
            attributes: false,
            typed: false,
            nulls: false,
            columns: names.iter().map(column).collect(),
        }
    }

    fn row(run: fn(&[Value]) -> Result<Value>, shape: &MarkupShape, values: &[&str]) -> String {
        let values = values.iter().map(|v| match *v {
            "NULL" => Value::Null,
            v => Value::text(v),
        });
        let all: Vec<Value> = std::iter::once(Value::Text(shape.text()))
            .chain(values)
            .collect();
        match run(&all) {
            Ok(made) => made.to_string(),
            Err(refused) => refused.number.to_string(),
        }
    }

    #[test]
    fn names_of_columns_say_where_values_are_in_xml() {
        let html = shape("tr", &["td", "", "td"]);
        assert_eq!(
            row(xml_row, &html, &["a<b", "", "c"]),
            "<tr><td>a&lt;b</td><td>c</td></tr>"
        );
        let same = shape("tr", &["td", "td"]);
        assert_eq!(row(xml_row, &same, &["a", "b"]), "<tr><td>ab</td></tr>");
        let deep = shape("r", &["@id", "a/b", "a/c", "d", "text()"]);
        assert_eq!(
            row(xml_row, &deep, &["1\"", "x", "y", "NULL", "z"]),
            "<r id=\"1&quot;\"><a><b>x</b><c>y</c></a>z</r>"
        );
        assert_eq!(row(xml_row, &shape("", &[""]), &[", a & b"]), ", a &amp; b");
        assert_eq!(row(xml_row, &shape("r", &["a b"]), &["1"]), "6850");
        assert_eq!(row(xml_row, &shape("r", &["a", "@b"]), &["1", "2"]), "6852");
        assert_eq!(row(xml_row, &shape("", &["@b"]), &["2"]), "6864");
        assert_eq!(row(xml_row, &shape("r", &["a"]), &["NULL"]), "<r/>");
    }

    #[test]
    fn names_of_columns_say_where_values_are_in_json() {
        let nested = shape("", &["a.b", "a.c", "d"]);
        assert_eq!(
            row(json_row, &nested, &["/x\"", "NULL", "y\n"]),
            r#"{"a":{"b":"\/x\""},"d":"y\n"}"#
        );
        assert_eq!(row(json_row, &shape("", &["a", "a"]), &["1", "2"]), "13601");
        assert_eq!(
            row(json_row, &shape("", &["a.b", "c", "a.d"]), &["1", "2", "3"]),
            "13601"
        );
        assert_eq!(row(json_row, &shape("", &[""]), &["1"]), "13605");
    }

    #[test]
    fn bytes_are_base64_and_floats_have_fifteen_digits() {
        assert_eq!(
            base64(&Value::Binary(b"longshore".to_vec())),
            "bG9uZ3Nob3Jl"
        );
        assert_eq!(base64(&Value::Binary(vec![255])), "/w==");
        assert_eq!(scientific(1.5), "1.500000000000000e+000");
        assert_eq!(scientific(-2.5e-7), "-2.500000000000000e-007");
    }
}
