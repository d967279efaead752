//! Parses CREATE, ALTER and DROP of tables, table variables and indexes.
//!
//! Invariants
//! - Nothing is executed or looked up.
//! - Parts that a table here cannot have (cascades, partitions) are refused by name.
//!
//! Leaves to others: the meaning of the statements (`statement/table.rs`).

use super::Parser;
use super::change::TABLE_PARTS_MAX;
use crate::message::{Message, SYNTAX_KEYWORD};
use crate::syntax::ast::*;
use crate::syntax::lexer::{NEAR_MAX, TokenKind};

/// The words after the default of a column.
const AFTER_DEFAULT: &[&str] = &[
    "CHECK",
    "CONSTRAINT",
    "FOR",
    "IDENTITY",
    "NOT",
    "NULL",
    "PRIMARY",
    "REFERENCES",
    "UNIQUE",
    "WITH",
];

/// The words after the expression of a computed column.
const AFTER_COMPUTED: &[&str] = &["CONSTRAINT", "PERSISTED", "PRIMARY", "UNIQUE"];

/// The type of an expression that is one `CAST ( … AS type )`.
fn cast_type(expression: &Fragment) -> Option<TypeName> {
    let all = crate::syntax::tokens(&expression.text).ok()?;
    let [cast, open, inner @ .., close] = all.as_slice() else {
        return None;
    };
    let is_cast = cast.is_word && cast.raw.eq_ignore_ascii_case("CAST");
    if !is_cast || open.raw != "(" || close.raw != ")" {
        return None;
    }
    let (mut depth, mut at) = (0_usize, None);
    for (i, token) in inner.iter().enumerate() {
        match token.raw.as_str() {
            "(" => depth += 1,
            ")" => depth = depth.checked_sub(1)?,
            word if depth == 0 && token.is_word && word.eq_ignore_ascii_case("AS") => at = Some(i),
            _ => {}
        }
    }
    let (name, sizes) = inner.get(at? + 1..)?.split_first()?;
    if !name.is_word {
        return None;
    }
    let size = |token: &crate::syntax::FragmentToken| match token.raw.eq_ignore_ascii_case("max") {
        true => Some(None),
        false => token.raw.parse().ok().map(Some),
    };
    let sizes = match sizes {
        [] => Vec::new(),
        [open, one, close] if open.raw == "(" && close.raw == ")" => vec![size(one)?],
        [open, one, comma, two, close]
            if open.raw == "(" && comma.raw == "," && close.raw == ")" =>
        {
            vec![size(one)?, size(two)?]
        }
        _ => return None,
    };
    Some(TypeName {
        name: name.raw.to_ascii_lowercase(),
        sizes,
    })
}

impl Parser<'_> {
    pub(super) fn create(&mut self) -> Result<Statement, Message> {
        self.advance()?;
        if self.take_word("TABLE")? {
            let name = self.names(TABLE_PARTS_MAX)?;
            let table = self.table_spec()?;
            if self.take_word("ON")? {
                self.file_group()?;
            }
            if self.take_word("TEXTIMAGE_ON")? {
                self.file_group()?;
            }
            self.storage_options()?;
            return Ok(Statement::CreateTable { name, table });
        }
        let unique = self.take_word("UNIQUE")?;
        let clustered = self.take_word("CLUSTERED")? || self.take_word("NONCLUSTERED")?;
        if self.take_word("INDEX")? {
            return self.create_index(unique);
        }
        if unique || clustered {
            return Err(self.syntax());
        }
        let what = self.token.raw.chars().take(NEAR_MAX).collect::<String>();
        match self.token.kind {
            TokenKind::Word => Err(self.not_here(&format!("CREATE {}", what.to_uppercase()))),
            _ => Err(self.syntax()),
        }
    }

    fn create_index(&mut self, unique: bool) -> Result<Statement, Message> {
        let name = self.identifier()?;
        self.expect_word("ON")?;
        let table = self.names(TABLE_PARTS_MAX)?;
        let columns = self.key_columns()?;
        if self.take_word("INCLUDE")? {
            self.column_list()?;
        }
        if self.is_word("WHERE") {
            return Err(self.not_here("an index with WHERE"));
        }
        self.storage_options()?;
        if self.take_word("ON")? {
            self.file_group()?;
        }
        Ok(Statement::CreateIndex(Box::new(IndexSpec {
            name,
            unique,
            table,
            columns,
        })))
    }

    /// `[PRIMARY]`: there is one place for everything.
    fn file_group(&mut self) -> Result<(), Message> {
        self.identifier()?;
        match self.is("(") {
            true => Err(self.not_here("a partition scheme")),
            false => Ok(()),
        }
    }

    /// `WITH (PAD_INDEX = OFF, …)`: how SQL Server stores an index.
    fn storage_options(&mut self) -> Result<(), Message> {
        if !(self.is_word("WITH") && self.next.is("(")) {
            return Ok(());
        }
        self.advance()?;
        self.expect("(")?;
        self.list(|p| {
            let option = p.identifier()?;
            p.expect("=")?;
            // It changes what an INSERT does.
            if option.eq_ignore_ascii_case("IGNORE_DUP_KEY") && p.is_word("ON") {
                return Err(p.not_here("IGNORE_DUP_KEY = ON"));
            }
            match p.take_word("ON")? || p.take_word("OFF")? {
                true => Ok(()),
                false => match p.token.kind {
                    TokenKind::Number => p.integer().map(drop),
                    _ => p.identifier().map(drop),
                },
            }
        })?;
        self.expect(")")
    }

    pub(super) fn declare_table(&mut self, variable: String) -> Result<Statement, Message> {
        self.expect_word("TABLE")?;
        let table = self.table_spec()?;
        Ok(Statement::DeclareTable { variable, table })
    }

    pub(super) fn table_spec(&mut self) -> Result<TableSpec, Message> {
        self.expect("(")?;
        let mut table = TableSpec::default();
        loop {
            self.table_part(&mut table)?;
            if !self.take(",")? || self.is(")") {
                break;
            }
        }
        self.expect(")")?;
        // Only a table that is altered has rows.
        match table.columns.iter().any(|column| column.fills) {
            true => Err(SYNTAX_KEYWORD.with(&[&"WITH"])),
            false => Ok(table),
        }
    }

    /// A column or a constraint of the table.
    fn table_part(&mut self, table: &mut TableSpec) -> Result<(), Message> {
        let is_constraint = ["CONSTRAINT", "PRIMARY", "UNIQUE", "FOREIGN", "CHECK"]
            .iter()
            .any(|w| self.is_word(w));
        if is_constraint {
            let name = match self.take_word("CONSTRAINT")? {
                true => Some(self.identifier()?),
                false => None,
            };
            return self.table_constraint(name, table);
        }
        if self.is_word("INDEX") {
            return self.inline_index(None, table);
        }
        if self.is_word("PERIOD") {
            return Err(self.not_here("PERIOD in a table"));
        }
        self.column(table)
    }

    fn table_constraint(
        &mut self,
        name: Option<String>,
        table: &mut TableSpec,
    ) -> Result<(), Message> {
        if self.is_word("CHECK") {
            return self.check(name, table);
        }
        if self.take_word("DEFAULT")? {
            return self.default_for(table);
        }
        if self.take_word("FOREIGN")? {
            self.expect_word("KEY")?;
            let columns = self.column_list()?;
            return self.references(name, columns, table);
        }
        let kind = self.key_kind()?;
        let columns = self.key_columns()?;
        self.storage_options()?;
        if self.take_word("ON")? {
            self.file_group()?;
        }
        table.constraints.push(ConstraintSpec {
            name,
            kind,
            columns,
        });
        Ok(())
    }

    /// `INDEX name [UNIQUE] [CLUSTERED | NONCLUSTERED] (columns)`, or of one column. Only a unique one changes what a table does.
    fn inline_index(&mut self, column: Option<&str>, table: &mut TableSpec) -> Result<(), Message> {
        self.expect_word("INDEX")?;
        let name = self.identifier()?;
        let is_unique = self.take_word("UNIQUE")?;
        if !self.take_word("CLUSTERED")? {
            self.take_word("NONCLUSTERED")?;
        }
        if self.is_word("COLUMNSTORE") || self.is_word("HASH") {
            let what = format!("INDEX … {} in a table", self.token.raw.to_ascii_uppercase());
            return Err(self.not_here(&what));
        }
        let columns = match column {
            Some(column) if !self.is("(") => vec![column.to_owned()],
            _ => self.key_columns()?,
        };
        if self.take_word("INCLUDE")? {
            self.key_columns()?;
        }
        if self.is_word("WHERE") {
            return Err(self.not_here("INDEX … WHERE in a table"));
        }
        self.storage_options()?;
        if self.take_word("ON")? {
            self.file_group()?;
        }
        if is_unique {
            table.constraints.push(ConstraintSpec {
                name: Some(name),
                kind: ConstraintKind::Unique,
                columns,
            });
        }
        Ok(())
    }

    /// `CHECK (condition)`
    fn check(&mut self, name: Option<String>, table: &mut TableSpec) -> Result<(), Message> {
        self.expect_word("CHECK")?;
        if self.take_word("NOT")? {
            self.expect_word("FOR")?;
            self.expect_word("REPLICATION")?;
        }
        self.expect("(")?;
        let condition = self.fragment(false)?;
        self.expect(")")?;
        table.constraints.push(ConstraintSpec {
            name,
            kind: ConstraintKind::Check(condition),
            columns: Vec::new(),
        });
        Ok(())
    }

    /// `DEFAULT value FOR column` of ALTER TABLE.
    fn default_for(&mut self, table: &mut TableSpec) -> Result<(), Message> {
        let default = Some(self.fragment_to(true, AFTER_DEFAULT)?);
        self.expect_word("FOR")?;
        let name = self.identifier()?;
        // Rows that are there keep what they have.
        self.with_values()?;
        // A column without a type: only its default changes.
        table.columns.push(ColumnSpec {
            name,
            kind: TypeName {
                name: String::new(),
                sizes: Vec::new(),
            },
            nullable: None,
            identity: None,
            default,
            computed: None,
            fills: false,
        });
        Ok(())
    }

    /// `WITH VALUES` after a default.
    fn with_values(&mut self) -> Result<bool, Message> {
        let found = self.is_word("WITH") && self.next.is_word("VALUES");
        if found {
            self.advance()?;
            self.advance()?;
        }
        Ok(found)
    }

    fn key_kind(&mut self) -> Result<ConstraintKind, Message> {
        let kind = match self.take_word("UNIQUE")? {
            true => ConstraintKind::Unique,
            false => {
                self.expect_word("PRIMARY")?;
                self.expect_word("KEY")?;
                ConstraintKind::Primary
            }
        };
        if !self.take_word("CLUSTERED")? {
            self.take_word("NONCLUSTERED")?;
        }
        Ok(kind)
    }

    fn key_columns(&mut self) -> Result<Vec<String>, Message> {
        self.expect("(")?;
        let all = self.list(|p| {
            let name = p.identifier()?;
            if !p.take_word("ASC")? {
                p.take_word("DESC")?;
            }
            Ok(name)
        })?;
        self.expect(")")?;
        Ok(all)
    }

    fn references(
        &mut self,
        name: Option<String>,
        columns: Vec<String>,
        table: &mut TableSpec,
    ) -> Result<(), Message> {
        self.expect_word("REFERENCES")?;
        let other = self.names(TABLE_PARTS_MAX)?;
        let others = match self.is("(") {
            true => self.column_list()?,
            false => Vec::new(),
        };
        while self.take_word("ON")? {
            if !self.take_word("DELETE")? {
                self.expect_word("UPDATE")?;
            }
            let none = self.is_word("NO") && self.next.is_word("ACTION");
            if !none {
                let what = format!("ON DELETE {}", self.token.raw.to_ascii_uppercase());
                return Err(self.not_here(&what));
            }
            self.advance()?;
            self.advance()?;
        }
        table.constraints.push(ConstraintSpec {
            name,
            kind: ConstraintKind::Foreign {
                table: other,
                columns: others,
            },
            columns,
        });
        Ok(())
    }

    fn column(&mut self, table: &mut TableSpec) -> Result<(), Message> {
        let name = self.identifier()?;
        if self.is_word("AS") {
            return self.computed(name, table);
        }
        let mut column = ColumnSpec {
            name,
            kind: self.type_name()?,
            nullable: None,
            identity: None,
            default: None,
            computed: None,
            fills: false,
        };
        let mut constraint = None;
        loop {
            if self.take_word("CONSTRAINT")? {
                constraint = Some(self.identifier()?);
            } else if self.take_word("NULL")? {
                column.nullable = Some(true);
            } else if self.take_word("NOT")? {
                if self.is_word("FOR") {
                    self.advance()?;
                    self.expect_word("REPLICATION")?;
                    continue;
                }
                self.expect_word("NULL")?;
                column.nullable = Some(false);
            } else if self.take_word("IDENTITY")? {
                column.identity = Some(self.identity()?);
            } else if self.take_word("DEFAULT")? {
                column.default = Some(self.fragment_to(true, AFTER_DEFAULT)?);
                column.fills = self.with_values()?;
                constraint = None;
            } else if self.is_word("PRIMARY") || self.is_word("UNIQUE") {
                let kind = self.key_kind()?;
                self.storage_options()?;
                table.constraints.push(ConstraintSpec {
                    name: constraint.take(),
                    kind,
                    columns: vec![column.name.clone()],
                });
            } else if self.is_word("FOREIGN") || self.is_word("REFERENCES") {
                if self.take_word("FOREIGN")? {
                    self.expect_word("KEY")?;
                }
                let columns = vec![column.name.clone()];
                self.references(constraint.take(), columns, table)?;
            } else if self.is_word("CHECK") {
                self.check(constraint.take(), table)?;
            } else if self.take_word("COLLATE")? {
                self.collation()?;
            } else if self.is_word("INDEX") {
                self.inline_index(Some(&column.name), table)?;
            } else if [
                "ROWGUIDCOL",
                "SPARSE",
                "MASKED",
                "GENERATED",
                "ENCRYPTED",
                "FILESTREAM",
            ]
            .iter()
            .any(|w| self.is_word(w))
            {
                let what = self.token.raw.to_ascii_uppercase();
                return Err(self.not_here(&what));
            } else {
                break;
            }
        }
        table.columns.push(column);
        Ok(())
    }

    /// `name AS expression [PERSISTED]`
    fn computed(&mut self, name: String, table: &mut TableSpec) -> Result<(), Message> {
        self.expect_word("AS")?;
        let expression = self.fragment_to(true, AFTER_COMPUTED)?;
        if self.take_word("PERSISTED")? && self.is_word("NOT") {
            return Err(self.not_here("NOT NULL of a computed column"));
        }
        table.columns.push(ColumnSpec {
            name: name.clone(),
            kind: cast_type(&expression).unwrap_or(TypeName {
                name: String::new(),
                sizes: Vec::new(),
            }),
            nullable: None,
            identity: None,
            default: None,
            computed: Some(expression),
            fills: false,
        });
        let constraint = match self.take_word("CONSTRAINT")? {
            true => Some(self.identifier()?),
            false => None,
        };
        if self.is_word("PRIMARY") || self.is_word("UNIQUE") {
            let kind = self.key_kind()?;
            self.storage_options()?;
            table.constraints.push(ConstraintSpec {
                name: constraint,
                kind,
                columns: vec![name],
            });
        }
        Ok(())
    }

    /// The collation that every text here has. Others are refused by name.
    fn collation(&mut self) -> Result<(), Message> {
        let name = self.identifier()?;
        let usual = [
            "database_default",
            "catalog_default",
            crate::query::SERVER_COLLATION,
        ];
        match usual.iter().any(|u| u.eq_ignore_ascii_case(&name)) {
            true => Ok(()),
            false => Err(self.not_here(&format!("COLLATE {name} of a column"))),
        }
    }

    fn identity(&mut self) -> Result<(i64, i64), Message> {
        if !self.take("(")? {
            return Ok((1, 1));
        }
        let mut signed = || {
            let sign = if self.take("-")? { -1 } else { 1 };
            Ok::<_, Message>(sign * self.integer()?)
        };
        let seed = signed()?;
        self.expect(",")?;
        let sign = if self.take("-")? { -1 } else { 1 };
        let step = sign * self.integer()?;
        self.expect(")")?;
        Ok((seed, step))
    }

    pub(super) fn alter_table(&mut self) -> Result<Statement, Message> {
        let name = self.names(TABLE_PARTS_MAX)?;
        if self.is_word("WITH") && (self.next.is_word("CHECK") || self.next.is_word("NOCHECK")) {
            self.advance()?;
            // Existing rows are looked at here in any case: a script that asks otherwise would fail at some other place.
            if self.is_word("NOCHECK") && self.next.is_word("ADD") {
                return Err(self.not_here("ALTER TABLE WITH NOCHECK ADD"));
            }
            self.advance()?;
        }
        let change = if self.take_word("ADD")? {
            let mut table = TableSpec::default();
            loop {
                self.take_word("COLUMN")?;
                self.table_part(&mut table)?;
                if !self.take(",")? {
                    break;
                }
            }
            TableChange::Add(table)
        } else if self.take_word("DROP")? {
            self.drop_part()?
        } else if self.take_word("ALTER")? {
            self.expect_word("COLUMN")?;
            let mut table = TableSpec::default();
            self.column(&mut table)?;
            match (table.columns.pop(), table.constraints.is_empty()) {
                (Some(column), true) => TableChange::AlterColumn(column),
                _ => return Err(self.syntax()),
            }
        } else {
            let on = self.take_word("CHECK")?;
            if !on && !self.take_word("NOCHECK")? {
                let what = self.token.raw.chars().take(NEAR_MAX).collect::<String>();
                return match self.token.kind {
                    TokenKind::Word => {
                        Err(self.not_here(&format!("ALTER TABLE {}", what.to_uppercase())))
                    }
                    _ => Err(self.syntax()),
                };
            }
            self.expect_word("CONSTRAINT")?;
            let name = match self.take_word("ALL")? {
                true => None,
                false => Some(self.identifier()?),
            };
            TableChange::Check { on, name }
        };
        Ok(Statement::AlterTable { name, change })
    }

    fn drop_part(&mut self) -> Result<TableChange, Message> {
        let is_column = self.take_word("COLUMN")?;
        if !is_column {
            self.take_word("CONSTRAINT")?;
        }
        if self.is_word("IF") {
            return Err(self.not_here("IF EXISTS in ALTER TABLE"));
        }
        let names = self.list(|p| p.identifier())?;
        Ok(match is_column {
            true => TableChange::DropColumns(names),
            false => TableChange::DropConstraints(names),
        })
    }

    /// After DROP: tables, procedures, indexes; `None` for everything else.
    pub(super) fn drop_object(&mut self) -> Result<Option<Statement>, Message> {
        let kind = if self.take_word("TABLE")? {
            ObjectKind::Table
        } else if self.take_word("PROCEDURE")? || self.take_word("PROC")? {
            ObjectKind::Procedure
        } else if self.take_word("FUNCTION")? {
            ObjectKind::Function
        } else if self.take_word("VIEW")? {
            ObjectKind::View
        } else if self.take_word("INDEX")? {
            let if_exists = self.if_exists()?;
            let name = self.identifier()?;
            self.expect_word("ON")?;
            let table = self.names(TABLE_PARTS_MAX)?;
            return Ok(Some(Statement::DropIndex {
                if_exists,
                name,
                table,
            }));
        } else {
            return Ok(None);
        };
        let if_exists = self.if_exists()?;
        let names = self.list(|p| p.names(TABLE_PARTS_MAX))?;
        Ok(Some(Statement::DropObjects {
            kind,
            if_exists,
            names,
        }))
    }

    fn if_exists(&mut self) -> Result<bool, Message> {
        let found = self.take_word("IF")?;
        if found {
            self.expect_word("EXISTS")?;
        }
        Ok(found)
    }
}
