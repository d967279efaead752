//! Rows of the views on logins, users, roles and file groups: SQL Server's fixed ones, which scripts look for, and the logins
//! that the server knows.
//!
//! Invariants
//! - Numbers and kinds of fixed principals are SQL Server's own; what is not known of one is NULL.
//!
//! Leaves to others: who may log in (the caller of [`Server`]), and what a role allows (`translate/lookup.rs`).

use super::view::Facts;
use crate::message::Message;
use crate::server::Server;
use crate::value::Value;

type Rows = Result<Vec<Facts>, Message>;

/// The number that logins of one's own begin with.
const LOGIN_FIRST: i64 = 257;
/// The `sid` of `sa`, and of `dbo` in its databases.
const OWNER_SID: u8 = 1;
/// The `sid` of `guest`.
const GUEST_SID: u8 = 0;

const SERVER_ROLES: [(i64, &str); 9] = [
    (2, "public"),
    (3, "sysadmin"),
    (4, "securityadmin"),
    (5, "serveradmin"),
    (6, "setupadmin"),
    (7, "processadmin"),
    (8, "diskadmin"),
    (9, "dbcreator"),
    (10, "bulkadmin"),
];

const DATABASE_ROLES: [(i64, &str); 10] = [
    (0, "public"),
    (16384, "db_owner"),
    (16385, "db_accessadmin"),
    (16386, "db_securityadmin"),
    (16387, "db_ddladmin"),
    (16389, "db_backupoperator"),
    (16390, "db_datareader"),
    (16391, "db_datawriter"),
    (16392, "db_denydatareader"),
    (16393, "db_denydatawriter"),
];

/// The users that each database has, with their `sid`.
const USERS: [(i64, &str, Option<u8>); 4] = [
    (1, "dbo", Some(OWNER_SID)),
    (2, "guest", Some(GUEST_SID)),
    (3, "INFORMATION_SCHEMA", None),
    (4, "sys", None),
];

fn principal(id: i64, name: &str, kind: (&str, &str), sid: Option<u8>) -> Facts {
    vec![
        ("name", Value::text(name)),
        ("principal_id", Value::Int(id)),
        ("type", Value::text(kind.0)),
        ("type_desc", Value::text(kind.1)),
        (
            "sid",
            sid.map_or(Value::Null, |sid| Value::Binary(vec![sid])),
        ),
    ]
}

/// `sys.server_principals`
pub(super) fn of_server(server: &Server, _: &str) -> Rows {
    let login = |id: i64, name: &str, sid| {
        let mut row = principal(id, name, ("S", "SQL_LOGIN"), sid);
        row.extend([
            ("is_disabled", Value::bit(false)),
            ("default_database_name", Value::text("master")),
        ]);
        row
    };
    let own = (server.setup.logins)().into_iter();
    let own = own.filter(|name| !name.eq_ignore_ascii_case("sa"));
    let own = (LOGIN_FIRST..).zip(own);
    let roles = SERVER_ROLES.iter().map(|(id, name)| {
        let mut row = principal(*id, name, ("R", "SERVER_ROLE"), None);
        row.push(("is_disabled", Value::bit(false)));
        row
    });
    let owner = login(1, "sa", Some(OWNER_SID));
    let all = std::iter::once(owner).chain(roles);
    Ok(all
        .chain(own.map(|(id, name)| login(id, &name, None)))
        .collect())
}

/// `sys.database_principals`, the same in each database.
pub(super) fn of_database(_: &Server, _: &str) -> Rows {
    let user = |(id, name, sid): &(i64, &str, Option<u8>)| {
        let mut row = principal(*id, name, ("S", "SQL_USER"), *sid);
        let schema = match *name {
            "dbo" | "guest" => Value::text(*name),
            _ => Value::Null,
        };
        row.extend([
            ("default_schema_name", schema),
            ("is_fixed_role", Value::bit(false)),
        ]);
        row
    };
    let role = |(id, name): &(i64, &str)| {
        let mut row = principal(*id, name, ("R", "DATABASE_ROLE"), None);
        row.extend([
            ("owning_principal_id", Value::Int(1)),
            ("is_fixed_role", Value::bit(*id > 0)),
        ]);
        row
    };
    Ok(USERS
        .iter()
        .map(user)
        .chain(DATABASE_ROLES.iter().map(role))
        .collect())
}

/// `sys.filegroups`: each database has one, as the lists of its files say.
pub(super) fn filegroups(_: &Server, _: &str) -> Rows {
    Ok(vec![vec![
        ("name", Value::text("PRIMARY")),
        ("data_space_id", Value::Int(1)),
        ("type", Value::text("FG")),
        ("type_desc", Value::text("ROWS_FILEGROUP")),
        ("is_default", Value::bit(true)),
        ("is_read_only", Value::bit(false)),
    ]])
}
