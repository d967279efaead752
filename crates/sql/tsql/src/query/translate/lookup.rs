//! Functions about objects whose argument may be a column: DB_NAME, OBJECT_NAME, OBJECT_DEFINITION and their kin.
//!
//! Invariants
//! - What they know is a table of the query, filled before it runs: nothing asks the server during a query.
//!
//! Leaves to others: functions with arguments that are known before (`call.rs`).

use sqlparser::ast::Expr;

use super::state::{Translator, TypedSql, not_here};
use crate::flow::SYSTEM_DATABASES;
use crate::message::Message;
use crate::query::View;
use crate::query::collation;
use crate::query::context::QueryContext;
use crate::query::datatypes::SYSTEM_TYPES;
use crate::query::known::{PRODUCT_VERSION, version};
use crate::query::objects::{SCHEMAS, facts, objects as object_rows};
use crate::query::plan::{UsedRows, UsedTable};
use crate::query::schema::{LONG_AGO, database_id, database_names};
use crate::query::sql::Sql;
use crate::query::texts::{object_key, parts as name_parts};
use crate::query::views::{number_of, views};
use crate::server::objects::StoredObject;
use crate::server::{Server, is_shared};
use crate::tables::TableRow;
use crate::value::{Type, Value};

const NAME: Type = Type::nvarchar(128);

/// The only schema that holds scripts' objects.
pub(super) const DBO: &str = "dbo";

/// Properties of a database that scripts ask for; NULL for others.
fn database_property(context: &QueryContext, name: &str, property: &str) -> Value {
    let server = context.server;
    let is_system = SYSTEM_DATABASES.contains(&name);
    match property.to_ascii_uppercase().as_str() {
        "STATUS" if server.kept.sequence(name).is_some() => Value::text("RESTORING"),
        "STATUS" => match is_system || matches!(server.database(name), Ok(Some(_))) {
            true => Value::text("ONLINE"),
            false => Value::text("OFFLINE"),
        },
        "RECOVERY" => Value::text(if server.is_logged(name) {
            "FULL"
        } else {
            "SIMPLE"
        }),
        "LASTGOODCHECKDBTIME" => {
            let last = server.last_good_check(name);
            Value::DateTime(last.unwrap_or(LONG_AGO))
        }
        "UPDATEABILITY" => Value::text("READ_WRITE"),
        "USERACCESS" => Value::text("MULTI_USER"),
        "COLLATION" => Value::text(collation::SERVER),
        "ISINSTANDBY" | "ISAUTOCLOSE" | "ISAUTOSHRINK" => Value::Int(0),
        "ISANSINULLDEFAULT"
        | "ISANSINULLSENABLED"
        | "ISANSIPADDINGENABLED"
        | "ISANSIWARNINGSENABLED"
        | "ISARITHMETICABORTENABLED"
        | "ISNULLCONCAT"
        | "ISQUOTEDIDENTIFIERSENABLED" => Value::Int(1),
        off if OFF.contains(&off) => Value::Int(0),
        _ => Value::Null,
    }
}

/// Properties that no database has here: what they tell of does not happen.
const OFF: &[&str] = &[
    "ISAUTOCREATESTATISTICS",
    "ISAUTOCREATESTATISTICSINCREMENTAL",
    "ISAUTOUPDATESTATISTICS",
    "ISCLONE",
    "ISCLOSECURSORSONCOMMITENABLED",
    "ISDATABASESUSPENDEDFORSNAPSHOTBACKUP",
    "ISFULLTEXTENABLED",
    "ISLOCALCURSORSDEFAULT",
    "ISMEMORYOPTIMIZEDELEVATETOSNAPSHOTENABLED",
    "ISMERGEPUBLISHED",
    "ISNUMERICROUNDABORTENABLED",
    "ISPARAMETERIZATIONFORCED",
    "ISPUBLISHED",
    "ISRECURSIVETRIGGERSENABLED",
    "ISSUBSCRIBED",
    "ISSYNCWITHBACKUP",
    "ISTORNPAGEDETECTIONENABLED",
    "ISVERIFIEDCLONE",
    "ISXTPSUPPORTED",
];

/// The properties of DATABASEPROPERTY, the older function: NULL for others.
fn older_property(context: &QueryContext, name: &str, property: &str) -> Value {
    let status = database_property(context, name, "STATUS").to_string();
    let is = |word: &str| Value::bit(status == word);
    match property.to_ascii_uppercase().as_str() {
        "ISOFFLINE" => is("OFFLINE"),
        "ISINLOAD" => is("RESTORING"),
        // The simple model is what the older option said.
        "ISTRUNCLOG" => Value::bit(!context.server.is_logged(name)),
        "ISBULKCOPY" | "ISDBOONLY" | "ISDETACHED" | "ISEMERGENCYMODE" | "ISINRECOVERY"
        | "ISINSTANDBY" | "ISNOTRECOVERED" | "ISREADONLY" | "ISSHUTDOWN" | "ISSINGLEUSER"
        | "ISSUSPECT" => Value::Int(0),
        other => match database_property(context, name, other) {
            Value::Text(_) => Value::Null,
            value => value,
        },
    }
}

/// A property of the server, with its type.
type Property = fn(&Server) -> (Type, Value);

fn named(text: &str) -> (Type, Value) {
    (NAME, Value::text(text))
}

const ZERO: Property = |_| (Type::Int, Value::Int(0));
const HOST: Property = |server| named(&server.setup.name);
const NOTHING: Property = |_| (NAME, Value::Null);
/// Relative paths of statements are below it. It ends with a separator, since scripts append the name of a file.
const DATA_PATH: Property = |server| {
    let path = server.setup.backup_directory.join("");
    named(&path.display().to_string())
};

/// The properties of the server that scripts read.
const SERVER_PROPERTIES: &[(&str, Property)] = &[
    ("Collation", |_| named(collation::SERVER)),
    ("ComputerNamePhysicalNetBIOS", HOST),
    ("Edition", |_| named("Longshore")),
    ("EditionID", |_| (Type::BigInt, Value::Int(1_804_890_536))),
    // Enterprise's number: the edition excludes nothing of the backup language.
    ("EngineEdition", |_| (Type::Int, Value::Int(3))),
    ("InstanceDefaultBackupPath", |server| {
        named(&server.setup.backup_directory.display().to_string())
    }),
    ("InstanceDefaultDataPath", DATA_PATH),
    ("InstanceDefaultLogPath", DATA_PATH),
    ("InstanceName", NOTHING),
    ("IsClustered", ZERO),
    ("IsFullTextInstalled", ZERO),
    ("IsHadrEnabled", ZERO),
    ("IsIntegratedSecurityOnly", ZERO),
    ("IsLocalDB", ZERO),
    ("IsPolyBaseInstalled", ZERO),
    ("IsSingleUser", ZERO),
    ("IsXTPSupported", ZERO),
    ("LongshoreVersion", |_| named(&version())),
    ("MachineName", HOST),
    ("ProductBuild", |_| named("4236")),
    ("ProductLevel", |_| named("RTM")),
    ("ProductMajorVersion", |_| named("16")),
    ("ProductMinorVersion", |_| named("0")),
    ("ProductVersion", |_| named(PRODUCT_VERSION)),
    ("ServerName", HOST),
];

/// NULL for other properties, as SQL Server answers.
pub(super) fn server_property(server: &Server, property: &str) -> (Type, Value) {
    let mut all = SERVER_PROPERTIES.iter();
    let found = all.find(|(name, _)| name.eq_ignore_ascii_case(property));
    found.map_or((NAME, Value::Null), |(_, of)| of(server))
}

/// SQL Server's fixed roles of a server. Each login has them: there are no others to have less.
const SERVER_ROLES: &[&str] = &[
    "bulkadmin",
    "dbcreator",
    "diskadmin",
    "processadmin",
    "public",
    "securityadmin",
    "serveradmin",
    "setupadmin",
    "sysadmin",
];

/// SQL Server's fixed roles of a database, and whether each login is in it: all but those that only take rights away.
const DATABASE_ROLES: &[(&str, bool)] = &[
    ("db_accessadmin", true),
    ("db_backupoperator", true),
    ("db_datareader", true),
    ("db_datawriter", true),
    ("db_ddladmin", true),
    ("db_denydatareader", false),
    ("db_denydatawriter", false),
    ("db_owner", true),
    ("db_securityadmin", true),
    ("public", true),
];

/// The login that owns the databases.
const OWNER: &str = "sa";

/// SQL Server's users of each database, but for `dbo`.
const USERS: &[&str] = &["guest", "INFORMATION_SCHEMA", "sys"];

/// Whether a database has a user or a role of this name.
pub(super) fn is_principal(name: &str) -> bool {
    let roles = DATABASE_ROLES.iter().map(|(role, _)| *role);
    let mut all = roles.chain(USERS.iter().copied()).chain([DBO]);
    all.any(|known| known.eq_ignore_ascii_case(name))
}

/// Properties of an object that scripts ask for; NULL for others.
fn object_property(o: &StoredObject, property: &str) -> Value {
    let is = |kinds: &[&str]| Value::bit(kinds.contains(&o.object.kind.as_str()));
    match property.to_ascii_uppercase().as_str() {
        "ISPROCEDURE" => is(&["P"]),
        "ISTABLE" => is(&["U"]),
        "ISUSERTABLE" => is(&["U"]),
        "ISVIEW" => is(&["V"]),
        "ISSCALARFUNCTION" => is(&["FN"]),
        "ISINLINEFUNCTION" => is(&["IF"]),
        "ISTABLEFUNCTION" => is(&["IF", "TF"]),
        "ISTRIGGER" | "ISMSSHIPPED" | "ISSYSTEMTABLE" | "ISENCRYPTED" => Value::Int(0),
        _ => Value::Null,
    }
}

impl Translator<'_> {
    /// COL_LENGTH: the bytes of a column, or NULL.
    pub(super) fn column_length(&self, table: &str, column: &str) -> Value {
        let mut parts = name_parts(table).unwrap_or_default();
        parts.reverse();
        let last = parts.last().map_or("", String::as_str);
        let context = &self.context;
        let columns = match last.starts_with('#') && !is_shared(last) {
            true => {
                let id = context.tables.temporary(last);
                id.and_then(|id| context.tables.get(id))
                    .map(|t| t.shape.result_columns())
            }
            false => {
                let found = context.server.kept.named(&parts, &self.database);
                let view = || View::find(&parts, &self.database).map(|(view, _)| view.columns());
                found.map(|o| o.columns()).or_else(view)
            }
        };
        let mut all = columns.into_iter().flatten();
        let found = all.find(|c| c.name.eq_ignore_ascii_case(column));
        found.map_or(Value::Null, |c| Value::Int(facts(c.kind)[1]))
    }

    /// The last number that a table's identity column got, its seed and its step.
    pub(super) fn identity_of(&self, table: &str) -> Option<(Option<i64>, i64, i64)> {
        let mut parts = name_parts(table)?;
        parts.reverse();
        let last = parts.last()?;
        let context = &self.context;
        if last.starts_with('#') && !is_shared(last) {
            let found = context.tables.get(context.tables.temporary(last)?)?;
            let (_, seed, step) = found.shape.identity()?;
            return Some((found.rows.last_identity, seed, step));
        }
        let object = context.server.kept.named(&parts, &self.database)?;
        let (_, seed, step) = object.table.as_ref()?.identity()?;
        let loaded = context.server.kept.rows(&object).ok()?;
        Some((loaded.rows.last_identity, seed, step))
    }

    /// A property of the session's own connection; NULL where there is no network, and for other properties.
    pub(super) fn connection_property(&self, property: &str) -> (Type, Value) {
        let context = &self.context;
        let mut sessions = context.server.sessions.all();
        let connection = sessions.remove(&context.id).and_then(|s| s.connection);
        let Some(connection) = connection else {
            return (Type::nvarchar(40), Value::Null);
        };
        let value = match property.to_ascii_lowercase().as_str() {
            "net_transport" | "physical_net_transport" => Value::text("TCP"),
            "protocol_type" => Value::text("TSQL"),
            "auth_scheme" => Value::text("SQL"),
            "local_net_address" => Value::Text(connection.local),
            "client_net_address" => Value::Text(connection.client),
            "local_tcp_port" => return (Type::Int, Value::Int(connection.local_port.into())),
            _ => Value::Null,
        };
        (Type::nvarchar(48), value)
    }

    /// A table of this query, and its name in SQLite.
    pub(super) fn use_table(&mut self, columns: usize, rows: UsedRows) -> String {
        let table = UsedTable {
            number: self.tables.len(),
            columns,
            rows,
        };
        let name = table.name();
        self.tables.push(table);
        name
    }

    /// The value next to a key, or NULL.
    fn looked_up(
        &mut self,
        key: &Expr,
        rows: Vec<(Value, Value)>,
        kind: Type,
    ) -> Result<TypedSql, Message> {
        let key = self.expression(key)?;
        let text = if key.kind().is_text() {
            " COLLATE NOCASE"
        } else {
            ""
        };
        let rows: Vec<TableRow> = rows.into_iter().map(|(k, v)| vec![k, v]).collect();
        let table = self.use_table(2, UsedRows::Made(rows));
        let sql = format!("(SELECT c1 FROM {table} WHERE c0 = {}{text})", key.sql);
        Ok(TypedSql::of(sql, kind))
    }

    /// Whether a login has a role of the server: every login that is known has each. NULL for others.
    fn of_server_role(&mut self, role: &Expr, member: &Expr) -> Result<TypedSql, Message> {
        let server = self.context.server;
        let mut logins = (server.setup.logins)();
        logins.extend([OWNER.to_owned(), self.context.login.user.clone()]);
        let roles = SERVER_ROLES.iter().flat_map(|role| {
            let row = |login: &String| {
                vec![
                    Value::text(*role),
                    Value::text(login.as_str()),
                    Value::Int(1),
                ]
            };
            logins.iter().map(row).collect::<Vec<_>>()
        });
        self.membership(role, member, roles.collect())
    }

    /// Whether a user or a role of a database has one of its roles. NULL for names that no database has: logins are not
    /// users, each is the user `dbo`.
    fn of_database_role(&mut self, role: &Expr, member: &Expr) -> Result<TypedSql, Message> {
        let mut rows = Vec::new();
        for (role, is_in) in DATABASE_ROLES {
            let mut row = |member: &str, is: bool| {
                rows.push(vec![
                    Value::text(*role),
                    Value::text(member),
                    Value::bit(is),
                ]);
            };
            row(DBO, *is_in);
            // Every user is in `public`, and these are in no other role.
            for user in USERS {
                row(user, *role == "public");
            }
            for (other, _) in DATABASE_ROLES {
                row(other, false);
            }
        }
        self.membership(role, member, rows)
    }

    /// The third value of the row that has these two, or NULL.
    fn membership(
        &mut self,
        role: &Expr,
        member: &Expr,
        rows: Vec<TableRow>,
    ) -> Result<TypedSql, Message> {
        let (role, member) = (self.as_text(role)?, self.as_text(member)?);
        let table = self.use_table(3, UsedRows::Made(rows));
        let sql = format!(
            "(SELECT c2 FROM {table} WHERE c0 = {role} COLLATE NOCASE AND c1 = {member} COLLATE NOCASE LIMIT 1)"
        );
        Ok(TypedSql::of(sql, Type::Int))
    }

    /// OBJECT_NAME and OBJECT_SCHEMA_NAME of an object in the database of a number.
    fn name_in(&mut self, function: &str, id: &Expr, database: &Expr) -> Result<TypedSql, Message> {
        let server = self.context.server;
        let (id, database) = (self.expression(id)?.sql, self.expression(database)?.sql);
        let rows = server.kept.objects().into_iter().map(|o| {
            let name = match function {
                "OBJECT_NAME" => &o.object.name,
                _ => DBO,
            };
            let of = database_id(server, &o.object.database);
            let of = of.map_or(Value::Null, Value::Int);
            vec![Value::Int(o.object.id), Value::text(name), of]
        });
        let table = self.use_table(3, UsedRows::Made(rows.collect()));
        let sql = format!("(SELECT c1 FROM {table} WHERE c0 = {id} AND c2 = {database})");
        Ok(TypedSql::of(sql, NAME))
    }

    /// OBJECT_ID of names that differ from row to row. Errors: 50002 for a kind that does, too.
    fn object_ids(&mut self, name: &Expr, kind: Option<&Expr>) -> Result<TypedSql, Message> {
        let kind = match kind {
            Some(kind) => {
                let known = self.known_value(kind)?;
                let known = known.ok_or_else(|| not_here("OBJECT_ID with a kind of a column"))?;
                Some(known.to_string().trim().to_ascii_uppercase())
            }
            None => None,
        };
        let fits = |found: &str| kind.as_deref().is_none_or(|kind| kind == found.trim());
        let server = self.context.server;
        let mut rows = Vec::new();
        for database in database_names(server) {
            for row in object_rows(server, &database)? {
                // `sys.objects` begins with the name and the number; the kind is its sixth column.
                if let [Value::Text(name), id, _, _, _, kind, ..] = row.as_slice()
                    && fits(&kind.to_string())
                {
                    let key = object_key(&database, DBO, name);
                    rows.push(vec![Value::Text(key), id.clone()]);
                }
            }
            for view in views().filter(|_| fits("V")) {
                if view
                    .database
                    .is_none_or(|d| d.eq_ignore_ascii_case(&database))
                {
                    let key = object_key(&database, view.schema, view.name);
                    rows.push(vec![Value::Text(key), Value::Int(number_of(view))]);
                }
            }
        }
        let name = self.as_text(name)?;
        let here = self.bind(Value::text(self.context.database));
        let key = Sql::call("ts_object_key", [name, here]);
        let table = self.use_table(2, UsedRows::Made(rows));
        let sql = format!("(SELECT c1 FROM {table} WHERE c0 = {key})");
        Ok(TypedSql::of(sql, Type::Int))
    }

    /// COL_LENGTH of tables and columns that differ from row to row.
    fn column_lengths(&mut self, table: &Expr, column: &Expr) -> Result<TypedSql, Message> {
        let server = self.context.server;
        let mut rows = Vec::new();
        for object in server.kept.objects() {
            let key = object_key(&object.object.database, DBO, &object.object.name);
            for column in object.columns() {
                let length = Value::Int(facts(column.kind)[1]);
                rows.push(vec![
                    Value::text(key.as_str()),
                    Value::Text(column.name),
                    length,
                ]);
            }
        }
        for database in database_names(server) {
            for view in views().filter(|view| view.database.is_none_or(|d| d == database)) {
                let key = object_key(&database, view.schema, view.name);
                for column in view.columns() {
                    let length = Value::Int(facts(column.kind)[1]);
                    rows.push(vec![
                        Value::text(key.as_str()),
                        Value::Text(column.name),
                        length,
                    ]);
                }
            }
        }
        let (name, column) = (self.as_text(table)?, self.as_text(column)?);
        let here = self.bind(Value::text(self.context.database));
        let key = Sql::call("ts_object_key", [name, here]);
        let table = self.use_table(3, UsedRows::Made(rows));
        let sql =
            format!("(SELECT c2 FROM {table} WHERE c0 = {key} AND c1 = {column} COLLATE NOCASE)");
        Ok(TypedSql::of(sql, Type::SmallInt))
    }

    /// `None`: another function.
    pub(super) fn of_object(
        &mut self,
        name: &str,
        arguments: &[&Expr],
    ) -> Result<Option<TypedSql>, Message> {
        let context = self.context;
        let int = |n: i64| Value::Int(n);
        let text = |text: &str| Value::text(text);
        let objects = || {
            let all = context.server.kept.objects().into_iter();
            let here = |o: &std::sync::Arc<crate::server::objects::StoredObject>| {
                o.object.database.eq_ignore_ascii_case(context.database)
            };
            all.filter(here).collect::<Vec<_>>()
        };
        let (key, rows, kind) = match (name, arguments) {
            ("DB_NAME", [id]) => {
                let all = database_names(context.server);
                let pair =
                    |name: &String| Some((int(database_id(context.server, name)?), text(name)));
                (id, all.iter().filter_map(pair).collect(), NAME)
            }
            ("DB_ID", [database]) => {
                let all = database_names(context.server);
                let pair =
                    |name: &String| Some((text(name), int(database_id(context.server, name)?)));
                (
                    database,
                    all.iter().filter_map(pair).collect(),
                    Type::SmallInt,
                )
            }
            ("OBJECT_NAME" | "OBJECT_SCHEMA_NAME", [id, database]) => {
                return self.name_in(name, id, database).map(Some);
            }
            ("OBJECT_NAME", [id]) => {
                let all = objects();
                let pairs = all.iter().map(|o| (int(o.object.id), text(&o.object.name)));
                (id, pairs.collect(), NAME)
            }
            ("OBJECT_SCHEMA_NAME", [id]) => {
                let all = objects();
                (
                    id,
                    all.iter().map(|o| (int(o.object.id), text(DBO))).collect(),
                    NAME,
                )
            }
            ("OBJECT_DEFINITION", [id]) => {
                let all = objects();
                let coded = all.iter().filter(|o| o.table.is_none());
                let pairs = coded.map(|o| (int(o.object.id), text(&o.object.definition)));
                (id, pairs.collect(), Type::NVarChar(None))
            }
            ("SCHEMA_NAME", [id]) => {
                let all = SCHEMAS.map(|(id, name)| (int(id), text(name)));
                (id, all.into(), NAME)
            }
            ("SCHEMA_ID", [name]) => {
                let all = SCHEMAS.map(|(id, name)| (text(name), int(id)));
                (name, all.into(), Type::Int)
            }
            ("TYPE_NAME", [id]) => {
                let all = SYSTEM_TYPES.iter().map(|t| (int(t.user), text(t.name)));
                (id, all.collect(), NAME)
            }
            ("TYPE_ID", [name]) => {
                let all = SYSTEM_TYPES.iter().map(|t| (text(t.name), int(t.user)));
                (name, all.collect(), Type::Int)
            }
            ("SUSER_SNAME" | "SUSER_NAME", [sid]) => {
                let all = vec![(Value::Binary(vec![1]), text(OWNER)), (int(1), text(OWNER))];
                (sid, all, NAME)
            }
            ("DATABASEPROPERTYEX", [database, property]) => {
                let property = self.constant(property)?.to_string();
                let all = database_names(context.server);
                let pair =
                    |name: &String| (text(name), database_property(&context, name, &property));
                let kind = match property.to_ascii_uppercase().as_str() {
                    "STATUS" | "RECOVERY" | "UPDATEABILITY" | "USERACCESS" | "COLLATION" => NAME,
                    "LASTGOODCHECKDBTIME" => Type::DateTime,
                    _ => Type::Int,
                };
                (database, all.iter().map(pair).collect(), kind)
            }
            ("FILEPROPERTY", [name, _]) => (name, Vec::new(), Type::Int),
            ("OBJECTPROPERTY", [id, property]) => {
                let property = self.constant(property)?.to_string();
                let all = objects();
                let pairs = all
                    .iter()
                    .map(|o| (int(o.object.id), object_property(o, &property)));
                (id, pairs.collect(), Type::Int)
            }
            ("USER_NAME", [id]) => (id, vec![(int(1), text(DBO))], NAME),
            _ => return self.of_names(name, arguments),
        };
        self.looked_up(key, rows, kind).map(Some)
    }

    /// The same of names: of objects, databases, roles and properties. `None`: another function.
    fn of_names(&mut self, name: &str, arguments: &[&Expr]) -> Result<Option<TypedSql>, Message> {
        let context = self.context;
        let int = |n: i64| Value::Int(n);
        let text = |text: &str| Value::text(text);
        let (key, rows, kind) = match (name, arguments) {
            ("OBJECT_ID", [object]) => return self.object_ids(object, None).map(Some),
            ("OBJECT_ID", [object, kind]) => {
                return self.object_ids(object, Some(kind)).map(Some);
            }
            ("COL_LENGTH", [table, column]) => {
                return self.column_lengths(table, column).map(Some);
            }
            ("SERVERPROPERTY", [property]) => {
                let pair = |(name, of): &(&str, Property)| {
                    let (_, value) = of(context.server);
                    let shown = match value {
                        Value::Null => Value::Null,
                        value => Value::text(value.to_string()),
                    };
                    (text(name), shown)
                };
                (property, SERVER_PROPERTIES.iter().map(pair).collect(), NAME)
            }
            ("HAS_DBACCESS", [database]) => {
                let all = database_names(context.server);
                let is_open = |name: &str| {
                    let status = database_property(&context, name, "STATUS");
                    Value::bit(status == Value::text("ONLINE"))
                };
                let pair = |name: &String| (text(name), is_open(name));
                (database, all.iter().map(pair).collect(), Type::Int)
            }
            ("IS_SRVROLEMEMBER", [role, member]) => {
                return self.of_server_role(role, member).map(Some);
            }
            ("IS_ROLEMEMBER", [role, member]) => {
                return self.of_database_role(role, member).map(Some);
            }
            ("IS_SRVROLEMEMBER", [role]) => {
                let all = SERVER_ROLES.iter().map(|name| (text(name), int(1)));
                (role, all.collect(), Type::Int)
            }
            ("IS_MEMBER" | "IS_ROLEMEMBER", [role]) => {
                let all = DATABASE_ROLES.iter();
                let all = all.map(|(name, is_in)| (text(name), int(i64::from(*is_in))));
                (role, all.collect(), Type::Int)
            }
            ("DATABASEPROPERTY", [database, property]) => {
                let property = self.constant(property)?.to_string();
                let all = database_names(context.server);
                let pair = |name: &String| (text(name), older_property(&context, name, &property));
                (database, all.iter().map(pair).collect(), Type::Int)
            }
            _ => return Ok(None),
        };
        self.looked_up(key, rows, kind).map(Some)
    }
}
