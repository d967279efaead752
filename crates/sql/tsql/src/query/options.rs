//! Options of a SQL Server that this server does not have, and the names of its permissions: scripts read them before they act.
//!
//! Invariants
//! - An option has SQL Server's default, which is what this server does: the feature is off, or nothing is limited.
//!   `sp_configure` refuses to change it by name (`statement/configure.rs`).
//! - Texts that SQL Server's documentation does not have are NULL.
//!
//! Leaves to others: the options that there are (`schema.rs`).
//!
//! Source: Microsoft's pages "Server configuration options" and "Permissions".

use crate::value::Value;

/// Number, name, least and greatest value, default, and whether a change needs no restart.
type Absent = (i64, &'static str, i64, i64, i64, bool);

/// Options that `show advanced options` hides, in the order of their numbers.
const ADVANCED: &[Absent] = &[
    (103, "user connections", 0, 32767, 0, false),
    (109, "fill factor (%)", 0, 100, 0, false),
    (503, "max worker threads", 128, 65535, 0, true),
    (1517, "priority boost", 0, 1, 0, false),
    (1538, "cost threshold for parallelism", 0, 32767, 5, true),
    (1539, "max degree of parallelism", 0, 32767, 0, true),
    (1543, "min server memory (MB)", 0, 2147483647, 0, true),
    (
        1544,
        "max server memory (MB)",
        128,
        2147483647,
        2147483647,
        true,
    ),
    (1545, "query governor cost limit", 0, 2147483647, 0, true),
    (1546, "lightweight pooling", 0, 1, 0, false),
    (1547, "scan for startup procs", 0, 1, 0, false),
    (1569, "blocked process threshold (s)", 0, 86400, 0, true),
    (1581, "optimize for ad hoc workloads", 0, 1, 0, true),
    (16384, "Agent XPs", 0, 1, 0, true),
    (16386, "Database Mail XPs", 0, 1, 0, true),
    (16388, "Ole Automation Procedures", 0, 1, 0, true),
    (16390, "xp_cmdshell", 0, 1, 0, true),
    (16391, "Ad Hoc Distributed Queries", 0, 1, 0, true),
];

/// The others.
const PLAIN: &[Absent] = &[
    (400, "cross db ownership chaining", 0, 1, 0, true),
    (1562, "clr enabled", 0, 1, 0, true),
    (1576, "remote admin connections", 0, 1, 0, true),
    (16393, "contained database authentication", 0, 1, 0, true),
];

/// Their rows of `sys.configurations`.
pub(super) fn absent() -> impl Iterator<Item = Vec<Value>> {
    let row = |is_advanced: bool| {
        move |(id, name, least, most, value, is_dynamic): &Absent| {
            vec![
                Value::Int(*id),
                Value::text(*name),
                Value::Int(*value),
                Value::Int(*least),
                Value::Int(*most),
                Value::Int(*value),
                Value::Null,
                Value::bit(*is_dynamic),
                Value::bit(is_advanced),
            ]
        }
    };
    let advanced = ADVANCED.iter().map(row(true));
    advanced.chain(PLAIN.iter().map(row(false)))
}

/// Permissions on any securable.
const PERMISSIONS: &[&str] = &[
    "ADMINISTER BULK OPERATIONS",
    "ADMINISTER DATABASE BULK OPERATIONS",
    "ALTER",
    "ALTER RESOURCES",
    "ALTER SERVER STATE",
    "ALTER SETTINGS",
    "ALTER TRACE",
    "ANY",
    "AUTHENTICATE",
    "AUTHENTICATE SERVER",
    "BACKUP DATABASE",
    "BACKUP LOG",
    "CHECKPOINT",
    "CONNECT",
    "CONNECT ANY DATABASE",
    "CONNECT REPLICATION",
    "CONNECT SQL",
    "CONTROL",
    "CONTROL SERVER",
    "DELETE",
    "EXECUTE",
    "EXECUTE ANY EXTERNAL SCRIPT",
    "EXECUTE EXTERNAL SCRIPT",
    "EXTERNAL ACCESS ASSEMBLY",
    "IMPERSONATE",
    "IMPERSONATE ANY LOGIN",
    "INSERT",
    "KILL DATABASE CONNECTION",
    "RECEIVE",
    "REFERENCES",
    "SELECT",
    "SELECT ALL USER SECURABLES",
    "SEND",
    "SHOWPLAN",
    "SHUTDOWN",
    "SUBSCRIBE QUERY NOTIFICATIONS",
    "TAKE OWNERSHIP",
    "UNMASK",
    "UNSAFE ASSEMBLY",
    "UPDATE",
    "VIEW ANY COLUMN ENCRYPTION KEY DEFINITION",
    "VIEW ANY COLUMN MASTER KEY DEFINITION",
    "VIEW ANY DATABASE",
    "VIEW ANY DEFINITION",
    "VIEW ANY PERFORMANCE DEFINITION",
    "VIEW ANY SECURITY DEFINITION",
    "VIEW ANY SENSITIVITY CLASSIFICATION",
    "VIEW CHANGE TRACKING",
    "VIEW DATABASE PERFORMANCE STATE",
    "VIEW DATABASE SECURITY STATE",
    "VIEW DATABASE STATE",
    "VIEW DEFINITION",
    "VIEW PERFORMANCE DEFINITION",
    "VIEW SECURITY DEFINITION",
    "VIEW SERVER PERFORMANCE STATE",
    "VIEW SERVER SECURITY STATE",
    "VIEW SERVER STATE",
];

/// Kinds of things that `ALTER ANY` and `CREATE` are permissions on.
const KINDS: &[&str] = &[
    "AGGREGATE",
    "ANY DATABASE",
    "ANY EXTERNAL LIBRARY",
    "APPLICATION ROLE",
    "ASSEMBLY",
    "ASYMMETRIC KEY",
    "AVAILABILITY GROUP",
    "CERTIFICATE",
    "COLUMN ENCRYPTION KEY",
    "COLUMN MASTER KEY",
    "CONNECTION",
    "CONTRACT",
    "CREDENTIAL",
    "DATABASE",
    "DATABASE AUDIT",
    "DATABASE DDL EVENT NOTIFICATION",
    "DATABASE DDL TRIGGER",
    "DATABASE EVENT NOTIFICATION",
    "DATABASE EVENT SESSION",
    "DATABASE SCOPED CONFIGURATION",
    "DATASPACE",
    "DDL EVENT NOTIFICATION",
    "DEFAULT",
    "ENDPOINT",
    "EVENT NOTIFICATION",
    "EVENT SESSION",
    "EXTERNAL DATA SOURCE",
    "EXTERNAL FILE FORMAT",
    "EXTERNAL LANGUAGE",
    "EXTERNAL LIBRARY",
    "FULLTEXT CATALOG",
    "FUNCTION",
    "LINKED SERVER",
    "LOGIN",
    "MASK",
    "MESSAGE TYPE",
    "PROCEDURE",
    "QUEUE",
    "REMOTE SERVICE BINDING",
    "ROLE",
    "ROUTE",
    "RULE",
    "SCHEMA",
    "SECURITY POLICY",
    "SENSITIVITY CLASSIFICATION",
    "SEQUENCE",
    "SERVER AUDIT",
    "SERVER ROLE",
    "SERVICE",
    "SYMMETRIC KEY",
    "SYNONYM",
    "TABLE",
    "TRACE EVENT NOTIFICATION",
    "TYPE",
    "USER",
    "VIEW",
    "XML SCHEMA COLLECTION",
];

/// Whether SQL Server has a permission of this name.
pub(super) fn is_permission(name: &str) -> bool {
    let name = name.trim_end().to_ascii_uppercase();
    let of_kind = name
        .strip_prefix("ALTER ANY ")
        .or_else(|| name.strip_prefix("CREATE "));
    PERMISSIONS.contains(&name.as_str()) || of_kind.is_some_and(|kind| KINDS.contains(&kind))
}
