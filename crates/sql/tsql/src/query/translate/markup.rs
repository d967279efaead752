//! Translates FOR XML and FOR JSON, and the methods of XML values.
//!
//! ```text
//! SELECT a, b FROM t ORDER BY c FOR XML PATH('x')
//! SELECT group_concat(ts_xml_row(shape, c0, c1), '') FROM (SELECT a AS c0, b AS c1 FROM t ORDER BY c)
//! ```
//!
//! Invariants
//! - XML and JSON go into other XML or JSON as it is; every other text is escaped.
//! - A kind of XML or JSON that is not known here is refused by name.
//!
//! Leaves to others: writing a row (`query/markup.rs`), and reading XML (`query/xml.rs`).

use sqlparser::ast::{
    AccessExpr, Expr, ForClause, ForJson, ForXml, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Query, SetExpr, TableFactor, Value as Literal,
};

use super::state::{
    Markup, SelectPurpose, SelectedColumns, Translator, TypedSql, column_alias, not_here,
};
use super::tables;
use crate::convert::type_of;
use crate::message::{self, Message};
use crate::query::markup::{MarkedColumn, MarkupShape, encoded_name, quoted};
use crate::query::sql::Sql;
use crate::value::{Column, Type, Value};

/// How clients know the column of FOR XML, and that of FOR JSON.
const XML_COLUMN: &str = "XML_F52E2B61-18A1-11d1-B105-00805F49916B";
const JSON_COLUMN: &str = "JSON_F52E2B61-18A1-11d1-B105-00805F49916B";

const TEXT: Type = Type::NVarChar(None);

/// The table of a SELECT of one table, by its name in the query.
fn only_table(query: &Query) -> Option<String> {
    let SetExpr::Select(select) = &*query.body else {
        return None;
    };
    let [from] = select.from.as_slice() else {
        return None;
    };
    match &from.relation {
        TableFactor::Table { name, alias, .. } if from.joins.is_empty() => Some(match alias {
            Some(alias) => alias.name.value.clone(),
            None => tables::parts(name).join("."),
        }),
        TableFactor::Derived {
            alias: Some(alias), ..
        } if from.joins.is_empty() => Some(alias.name.value.clone()),
        _ => None,
    }
}

/// The text of a literal.
pub(super) fn literal(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Literal::SingleQuotedString(text) | Literal::NationalStringLiteral(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// A type as `value` names it. Errors: 243.
fn named_type(text: &str) -> Result<Type, Message> {
    let text = text.trim();
    let (name, sizes) = text.split_once('(').unwrap_or((text, ""));
    let sizes: Vec<Option<u32>> = sizes
        .trim_end_matches(')')
        .split(',')
        .filter(|s| !s.is_empty())
        .map(|s| s.trim().parse().ok())
        .collect();
    let found = type_of(&name.trim().to_ascii_lowercase(), &sizes);
    found.ok_or_else(|| message::TYPE_UNKNOWN.with(&[&text]))
}

impl Translator<'_> {
    /// A query with FOR XML or FOR JSON. Errors: 50002; 6819 for one that sets variables.
    pub(super) fn marked_up(
        &mut self,
        query: &Query,
        clause: &ForClause,
    ) -> Result<SelectedColumns, Message> {
        let mut plain = query.clone();
        plain.for_clause = None;
        let is_outermost = self.queries == 1;
        // Values inside are held against their types, as those of a subquery.
        self.queries += 1;
        let inner = self.query_of(&plain, SelectPurpose::Rows);
        self.queries -= 1;
        let inner = inner?;
        let sql = &inner.sql;
        let list: Vec<_> = (0..inner.columns.len()).map(column_alias).collect();
        let list = list.join(", ");
        let table = only_table(&plain);
        match clause {
            ForClause::Xml {
                for_xml,
                elements,
                binary_base64: _,
                root,
                r#type,
            } => {
                let (element, attributes) = xml_element(for_xml, *elements, table)?;
                let shape = shape(&inner, Markup::Xml, (element, attributes, *r#type, false));
                check_repeated(&shape)?;
                // Atomic values of rows without a tag have blanks between them.
                let is_list = shape.element.is_empty()
                    && shape.columns.first().is_some_and(|c| c.name == "data()");
                let between = if is_list { "' '" } else { "''" };
                let shape = self.bind(Value::Text(shape.text()));
                let mut made = format!("group_concat(ts_xml_row({shape}, {list}), {between})");
                if let Some(root) = root {
                    let root = encoded_name(root);
                    let begin = self.bind(Value::Text(format!("<{root}>")));
                    let end = self.bind(Value::Text(format!("</{root}>")));
                    made = format!("{begin} || {made} || {end}");
                }
                let having = match *r#type && is_outermost {
                    true => "",
                    false => " HAVING count(*) > 0",
                };
                let name = if *r#type { "" } else { XML_COLUMN };
                let mut selected = SelectedColumns::new(
                    format!("SELECT {made} AS {} FROM ({sql}){having}", column_alias(0)),
                    vec![Column::new(name, TEXT)],
                );
                selected.marks = vec![r#type.then_some(Markup::Xml)];
                Ok(selected)
            }
            ForClause::Json {
                for_json,
                root,
                include_null_values,
                without_array_wrapper,
            } => {
                if matches!(for_json, ForJson::Auto) && table.is_none() {
                    return Err(not_here("FOR JSON AUTO of several tables"));
                }
                let nulls = *include_null_values;
                let shape = shape(&inner, Markup::Json, (String::new(), false, false, nulls));
                if shape.columns.iter().any(|c| c.name.is_empty()) {
                    return Err(message::JSON_NO_NAME.plain());
                }
                let shape = self.bind(Value::Text(shape.text()));
                let mut made = format!("group_concat(ts_json_row({shape}, {list}), ',')");
                if !without_array_wrapper {
                    made = format!("'[' || {made} || ']'");
                }
                if let Some(root) = root {
                    let begin = self.bind(Value::Text(format!("{{{}:", quoted(root))));
                    made = format!("{begin} || {made} || '}}'");
                }
                let mut selected = SelectedColumns::new(
                    format!(
                        "SELECT {made} AS {} FROM ({sql}) HAVING count(*) > 0",
                        column_alias(0)
                    ),
                    vec![Column::new(JSON_COLUMN, TEXT)],
                );
                selected.marks = vec![(!without_array_wrapper).then_some(Markup::Json)];
                Ok(selected)
            }
            ForClause::Browse => Err(not_here("FOR BROWSE")),
        }
    }

    /// `(SELECT … FOR XML PATH(''), TYPE).value('.', 'nvarchar(max)')`
    pub(super) fn field_access(
        &mut self,
        root: &Expr,
        chain: &[AccessExpr],
    ) -> Result<TypedSql, Message> {
        let mut value = self.expression(root)?;
        for access in chain {
            let AccessExpr::Dot(Expr::Function(method)) = access else {
                return Err(not_here("this kind of expression"));
            };
            let names = tables::parts(&method.name);
            let [name] = names.as_slice() else {
                return Err(not_here("this kind of expression"));
            };
            value = self.xml_method(value, name, method)?;
        }
        Ok(value)
    }

    /// `value`, `query` and `exist` of an XML value. Errors: 50002.
    pub(super) fn xml_method(
        &mut self,
        xml: TypedSql,
        name: &str,
        method: &Function,
    ) -> Result<TypedSql, Message> {
        let arguments = match &method.args {
            FunctionArguments::List(list) => list.args.as_slice(),
            _ => &[],
        };
        let mut texts = Vec::new();
        for argument in arguments {
            let text = match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => literal(expr),
                _ => None,
            };
            let wrong = || message::XML_LITERAL.with(&[&(texts.len() + 1), &name]);
            texts.push(text.ok_or_else(wrong)?);
        }
        let xml = self.text_of(xml);
        match (name.to_ascii_lowercase().as_str(), texts.as_slice()) {
            ("value", [path, kind]) => {
                let kind = named_type(kind)?;
                let path = self.bind(Value::text(*path));
                let of = self.bind_type(kind);
                Ok(TypedSql::of(
                    Sql::call("ts_xml_value", [xml, path, of]),
                    kind,
                ))
            }
            ("query", [path]) => {
                let path = self.bind(Value::text(*path));
                let made = TypedSql::of(Sql::call("ts_xml_query", [xml, path]), TEXT);
                Ok(made.marked(Some(Markup::Xml)))
            }
            ("exist", [path]) => {
                let path = self.bind(Value::text(*path));
                Ok(TypedSql::of(
                    Sql::call("ts_xml_exist", [xml, path]),
                    Type::Bit,
                ))
            }
            (other, _) => Err(not_here(&format!("the method {other}"))),
        }
    }
}

/// An element has no attribute twice. Errors: 6810.
fn check_repeated(shape: &MarkupShape) -> Result<(), Message> {
    // The attributes of the elements that are open, each with its element's path.
    let mut known: Vec<(&str, &str)> = Vec::new();
    for column in &shape.columns {
        let name = column.name.as_str();
        let (parent, last) = name.rsplit_once('/').unwrap_or(("", name));
        let attribute = match shape.attributes {
            true => Some(("", name)),
            false => last.starts_with('@').then_some((parent, last)),
        };
        known.retain(|(open, _)| {
            open.is_empty() || parent == *open || parent.starts_with(&format!("{open}/"))
        });
        if let Some(attribute) = attribute {
            if known.contains(&attribute) {
                return Err(message::XML_REPEATED.with(&[&name]));
            }
            known.push(attribute);
        }
    }
    Ok(())
}

/// The element of a row, and whether columns are its attributes.
fn xml_element(
    mode: &ForXml,
    elements: bool,
    table: Option<String>,
) -> Result<(String, bool), Message> {
    Ok(match mode {
        ForXml::Path(name) => (name.clone().unwrap_or_else(|| "row".to_owned()), false),
        ForXml::Raw(name) => {
            let name = name.as_deref().unwrap_or("row");
            (encoded_name(name), !elements)
        }
        ForXml::Auto => match table {
            Some(table) => (encoded_name(&table), !elements),
            None => return Err(not_here("FOR XML AUTO of several tables")),
        },
        ForXml::Explicit => return Err(not_here("FOR XML EXPLICIT")),
    })
}

fn shape(
    inner: &SelectedColumns,
    own: Markup,
    (element, attributes, typed, nulls): (String, bool, bool, bool),
) -> MarkupShape {
    let column = |(i, column): (usize, &Column)| MarkedColumn {
        name: column.name.clone(),
        kind: column.kind,
        is_marked: inner.marks.get(i).copied().flatten() == Some(own),
    };
    MarkupShape {
        element,
        attributes,
        typed,
        nulls,
        columns: inner.columns.iter().enumerate().map(column).collect(),
    }
}
