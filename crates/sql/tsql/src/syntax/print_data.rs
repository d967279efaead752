//! Prints tables and changes of their rows.
//!
//! Invariants
//! - A printed part parses to the same part; names are bracketed, and queries are printed as they are kept.
//!
//! Leaves to others: whole statements (`print.rs`), and the trees (`ast.rs`).

use std::fmt::{self, Display, Formatter};

use super::print::{bracketed, dotted, joined};
use crate::syntax::ast::*;

fn names(all: &[String]) -> String {
    let all: Vec<_> = all.iter().map(|name| bracketed(name)).collect();
    all.join(", ")
}

impl Display for TableSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        joined(f, &self.columns, ", ")?;
        if !self.columns.is_empty() && !self.constraints.is_empty() {
            f.write_str(", ")?;
        }
        joined(f, &self.constraints, ", ")
    }
}

impl Display for ColumnSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = bracketed(&self.name);
        if let Some(computed) = &self.computed {
            return write!(f, "{name} AS {computed}");
        }
        if self.kind.name.is_empty() {
            let default = self.default.as_ref().map_or("NULL", |d| d.text.as_str());
            return write!(f, "DEFAULT {default} FOR {name}");
        }
        write!(f, "{name} {}", self.kind)?;
        if let Some((seed, step)) = self.identity {
            write!(f, " IDENTITY({seed}, {step})")?;
        }
        match self.nullable {
            Some(true) => f.write_str(" NULL")?,
            Some(false) => f.write_str(" NOT NULL")?,
            None => {}
        }
        match &self.default {
            Some(default) if self.fills => write!(f, " DEFAULT {default} WITH VALUES"),
            Some(default) => write!(f, " DEFAULT {default}"),
            None => Ok(()),
        }
    }
}

impl Display for ConstraintSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "CONSTRAINT {} ", bracketed(name))?;
        }
        let own = names(&self.columns);
        match &self.kind {
            ConstraintKind::Primary => write!(f, "PRIMARY KEY ({own})"),
            ConstraintKind::Unique => write!(f, "UNIQUE ({own})"),
            ConstraintKind::Check(condition) => write!(f, "CHECK ({condition})"),
            ConstraintKind::Foreign { table, columns } => {
                write!(f, "FOREIGN KEY ({own}) REFERENCES {}", dotted(table))?;
                match columns.is_empty() {
                    true => Ok(()),
                    false => write!(f, " ({})", names(columns)),
                }
            }
        }
    }
}

impl Display for TableChange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            TableChange::Add(table) => write!(f, "ADD {table}"),
            TableChange::AlterColumn(column) => write!(f, "ALTER COLUMN {column}"),
            TableChange::DropColumns(all) => write!(f, "DROP COLUMN {}", names(all)),
            TableChange::DropConstraints(all) => write!(f, "DROP CONSTRAINT {}", names(all)),
            TableChange::Check { on, name } => {
                let word = if *on { "CHECK" } else { "NOCHECK" };
                let name = name.as_ref().map_or("ALL".to_owned(), |n| bracketed(n));
                write!(f, "{word} CONSTRAINT {name}")
            }
        }
    }
}

impl Display for OutputClause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, " OUTPUT {}", self.items)?;
        match &self.into {
            None => Ok(()),
            Some((table, columns)) if columns.is_empty() => write!(f, " INTO {}", dotted(table)),
            Some((table, columns)) => write!(f, " INTO {} ({})", dotted(table), names(columns)),
        }
    }
}

fn with(f: &mut Formatter<'_>, with: Option<&Fragment>) -> fmt::Result {
    with.map_or(Ok(()), |with| write!(f, "{with} "))
}

impl Display for Top {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let percent = if self.percent { " PERCENT" } else { "" };
        write!(f, "TOP ({}){percent}", self.count)
    }
}

fn top(f: &mut Formatter<'_>, top: Option<&Top>) -> fmt::Result {
    top.map_or(Ok(()), |top| write!(f, "{top} "))
}

fn or_default(value: Option<&Fragment>) -> &str {
    value.map_or("DEFAULT", |v| v.text.as_str())
}

impl Display for Insert {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        with(f, self.with.as_ref())?;
        f.write_str("INSERT ")?;
        top(f, self.top.as_ref())?;
        write!(f, "INTO {}", dotted(&self.table))?;
        if !self.columns.is_empty() {
            write!(f, " ({})", names(&self.columns))?;
        }
        if let Some(output) = &self.output {
            write!(f, "{output}")?;
        }
        match &self.source {
            InsertSource::Values(rows) => {
                let row = |row: &Vec<Option<Fragment>>| {
                    let values: Vec<_> = row.iter().map(|v| or_default(v.as_ref())).collect();
                    format!("({})", values.join(", "))
                };
                let rows: Vec<_> = rows.iter().map(row).collect();
                write!(f, " VALUES {}", rows.join(", "))
            }
            InsertSource::Query(query) => write!(f, " {query}"),
            InsertSource::Execute(executed) => write!(f, " {}", executed.statement),
            InsertSource::DefaultValues => f.write_str(" DEFAULT VALUES"),
        }
    }
}

impl Display for SetClause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(variable) = &self.variable {
            write!(f, "{variable} = ")?;
        }
        if !self.column.is_empty() {
            write!(f, "{} {}= ", bracketed(&self.column), self.operator)?;
        }
        f.write_str(or_default(self.value.as_ref()))
    }
}

fn output_and_rest(
    f: &mut Formatter<'_>,
    output: Option<&OutputClause>,
    rest: Option<&Fragment>,
) -> fmt::Result {
    if let Some(output) = output {
        write!(f, "{output}")?;
    }
    rest.map_or(Ok(()), |rest| write!(f, " {rest}"))
}

impl Display for Update {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        with(f, self.with.as_ref())?;
        f.write_str("UPDATE ")?;
        top(f, self.top.as_ref())?;
        write!(f, "{} SET ", dotted(&self.table))?;
        joined(f, &self.sets, ", ")?;
        output_and_rest(f, self.output.as_ref(), self.rest.as_ref())
    }
}

impl Display for Delete {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        with(f, self.with.as_ref())?;
        f.write_str("DELETE ")?;
        top(f, self.top.as_ref())?;
        write!(f, "FROM {}", dotted(&self.table))?;
        output_and_rest(f, self.output.as_ref(), self.rest.as_ref())
    }
}

impl Display for Merge {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        with(f, self.with.as_ref())?;
        f.write_str("MERGE ")?;
        top(f, self.top.as_ref())?;
        write!(f, "INTO {}", dotted(&self.table))?;
        if let Some(alias) = &self.alias {
            write!(f, " AS {}", bracketed(alias))?;
        }
        write!(f, " USING {} ON {}", self.source, self.on)?;
        for clause in &self.clauses {
            write!(f, " {clause}")?;
        }
        self.output.as_ref().map_or(Ok(()), |o| write!(f, "{o}"))
    }
}

impl Display for MergeClause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.when {
            MergeRows::Matched => "WHEN MATCHED",
            MergeRows::OnlySource => "WHEN NOT MATCHED BY TARGET",
            MergeRows::OnlyTarget => "WHEN NOT MATCHED BY SOURCE",
        })?;
        if let Some(condition) = &self.condition {
            write!(f, " AND {condition}")?;
        }
        f.write_str(" THEN ")?;
        match &self.action {
            MergeAction::Delete => f.write_str("DELETE"),
            MergeAction::InsertDefaults => f.write_str("INSERT DEFAULT VALUES"),
            MergeAction::Update(sets) => {
                f.write_str("UPDATE SET ")?;
                joined(f, sets, ", ")
            }
            MergeAction::Insert { columns, values } => {
                f.write_str("INSERT ")?;
                if !columns.is_empty() {
                    write!(f, "({}) ", names(columns))?;
                }
                let values: Vec<_> = values.iter().map(|v| or_default(v.as_ref())).collect();
                write!(f, "VALUES ({})", values.join(", "))
            }
        }
    }
}
