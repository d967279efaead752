//! The catalog procedures of ODBC: sp_tables, sp_columns and their kin, which drivers ask for metadata.
//!
//! Each is a query over views, with its parameters as variables. Columns, their order and the order of rows are those of
//! SQL Server's documentation.
//!
//! Invariants
//! - A name of a caller is a value of a variable, never a part of the query's text.
//! - The database of a name is the one in use, or the call is refused (15250).
//!
//! Leaves to others: the views (`query`), and binding arguments (`procedure.rs`).

use std::collections::BTreeMap;

use super::arguments::Arguments;
use crate::convert::convert;
use crate::flow::{Flow, Out, Variable};
use crate::message;
use crate::query::{self, QueryContext};
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::Fragment;
use crate::value::{Type, Value};
use crate::variables::Variables;

/// A parameter of a procedure.
struct Parameter {
    name: &'static str,
    kind: Kind,
}

/// The type of a parameter, and its value where a call leaves it out.
#[derive(Clone, Copy)]
enum Kind {
    /// A name; NULL.
    Name,
    /// A name that every call has.
    Needed,
    /// The name of the database in use, or NULL.
    Database,
    Number(i64),
}

const fn name(name: &'static str) -> Parameter {
    Parameter {
        name,
        kind: Kind::Name,
    }
}

const fn needed(name: &'static str) -> Parameter {
    Parameter {
        name,
        kind: Kind::Needed,
    }
}

const fn database(name: &'static str) -> Parameter {
    Parameter {
        name,
        kind: Kind::Database,
    }
}

const fn number(name: &'static str, usual: i64) -> Parameter {
    Parameter {
        name,
        kind: Kind::Number(usual),
    }
}

struct Report {
    names: &'static [&'static str],
    parameters: &'static [Parameter],
    answer: Answer,
}

/// The query of a procedure.
enum Answer {
    Query(&'static str),
    /// Several, of which the call decides.
    Made,
}

const TABLES: &str = "SELECT CAST(DB_NAME() AS nvarchar(128)) AS TABLE_QUALIFIER, \
    CAST(SCHEMA_NAME(o.schema_id) AS nvarchar(128)) AS TABLE_OWNER, \
    o.name AS TABLE_NAME, CAST(CASE RTRIM(o.type) WHEN 'U' THEN 'TABLE' WHEN 'S' THEN 'SYSTEM TABLE' ELSE 'VIEW' END AS varchar(32)) AS TABLE_TYPE, \
    CAST(NULL AS varchar(254)) AS REMARKS FROM sys.all_objects o WHERE RTRIM(o.type) IN ('U', 'V', 'S')";

/// The answers of sp_tables to its three questions about databases, schemas and types, and to all others.
const SP_TABLES: [&str; 4] = [
    "SELECT CAST(name AS nvarchar(128)) AS TABLE_QUALIFIER, CAST(NULL AS nvarchar(128)) AS TABLE_OWNER, \
     CAST(NULL AS nvarchar(128)) AS TABLE_NAME, CAST(NULL AS varchar(32)) AS TABLE_TYPE, \
     CAST(NULL AS varchar(254)) AS REMARKS FROM sys.databases ORDER BY 1",
    "SELECT CAST(NULL AS nvarchar(128)) AS TABLE_QUALIFIER, CAST(name AS nvarchar(128)) AS TABLE_OWNER, \
     CAST(NULL AS nvarchar(128)) AS TABLE_NAME, CAST(NULL AS varchar(32)) AS TABLE_TYPE, \
     CAST(NULL AS varchar(254)) AS REMARKS FROM sys.schemas ORDER BY 2",
    "SELECT CAST(NULL AS nvarchar(128)) AS TABLE_QUALIFIER, CAST(NULL AS nvarchar(128)) AS TABLE_OWNER, \
     CAST(NULL AS nvarchar(128)) AS TABLE_NAME, CAST(t.kind AS varchar(32)) AS TABLE_TYPE, \
     CAST(NULL AS varchar(254)) AS REMARKS FROM (VALUES ('SYSTEM TABLE'), ('TABLE'), ('VIEW')) AS t (kind) ORDER BY 4",
    "SELECT * FROM (tables) t WHERE (@table_name IS NULL OR (@fusepattern = 1 AND t.TABLE_NAME LIKE @table_name) OR t.TABLE_NAME = @table_name) \
     AND (@table_owner IS NULL OR (@fusepattern = 1 AND t.TABLE_OWNER LIKE @table_owner) OR t.TABLE_OWNER = @table_owner) \
     AND (@table_type IS NULL OR CHARINDEX('''' + t.TABLE_TYPE + '''', @table_type) > 0) \
     ORDER BY t.TABLE_TYPE, t.TABLE_QUALIFIER, t.TABLE_OWNER, t.TABLE_NAME",
];

/// The columns of sp_columns before those of newer clients. Older clients do not know `max` and the newer types of
/// moments: they see texts.
const COLUMNS_HEAD: &str = "SELECT CAST(DB_NAME() AS nvarchar(128)) AS TABLE_QUALIFIER, c.TABLE_OWNER, c.TABLE_NAME, \
    c.COLUMN_NAME, CAST(type AS smallint) AS DATA_TYPE, CAST(type_name AS nvarchar(128)) AS TYPE_NAME, \
    CAST(precision AS int) AS PRECISION, CAST(length AS int) AS LENGTH, scale AS SCALE, \
    CAST(CASE WHEN @odbcver < 3 AND c.TYPE_NAME = 'float' THEN 10 ELSE c.RADIX END AS smallint) AS RADIX, \
    c.NULLABLE, CAST(NULL AS varchar(254)) AS REMARKS, c.COLUMN_DEF, CAST(sql_type AS smallint) AS SQL_DATA_TYPE, \
    CAST(sub AS smallint) AS SQL_DATETIME_SUB, CAST(octets AS int) AS CHAR_OCTET_LENGTH, c.ORDINAL_POSITION, \
    CAST(CASE c.NULLABLE WHEN 1 THEN 'YES' ELSE 'NO' END AS varchar(254)) AS IS_NULLABLE";

const COLUMNS_TAIL: &str = ", c.SS_DATA_TYPE FROM sys.spt_columns_odbc_view c \
    WHERE ((@fusepattern = 1 AND c.TABLE_NAME LIKE @table_name) OR c.TABLE_NAME = @table_name) \
    AND (@table_owner IS NULL OR (@fusepattern = 1 AND c.TABLE_OWNER LIKE @table_owner) OR c.TABLE_OWNER = @table_owner) \
    AND (@column_name IS NULL OR (@fusepattern = 1 AND c.COLUMN_NAME LIKE @column_name) OR c.COLUMN_NAME = @column_name) \
    ORDER BY TABLE_QUALIFIER, c.TABLE_OWNER, c.TABLE_NAME, c.ORDINAL_POSITION";

const COLUMNS_NEWER: &str = ", CAST(0 AS smallint) AS SS_IS_SPARSE, CAST(0 AS smallint) AS SS_IS_COLUMN_SET, \
    c.IS_COMPUTED AS SS_IS_COMPUTED, c.IS_IDENTITY AS SS_IS_IDENTITY, \
    CAST(NULL AS nvarchar(128)) AS SS_UDT_CATALOG_NAME, CAST(NULL AS nvarchar(128)) AS SS_UDT_SCHEMA_NAME, \
    CAST(NULL AS nvarchar(4000)) AS SS_UDT_ASSEMBLY_TYPE_NAME, \
    CAST(NULL AS nvarchar(128)) AS SS_XML_SCHEMACOLLECTION_CATALOG_NAME, \
    CAST(NULL AS nvarchar(128)) AS SS_XML_SCHEMACOLLECTION_SCHEMA_NAME, \
    CAST(NULL AS nvarchar(128)) AS SS_XML_SCHEMACOLLECTION_NAME";

const SPROC_HEAD: &str = "SELECT CAST(DB_NAME() AS nvarchar(128)) AS PROCEDURE_QUALIFIER, c.PROCEDURE_OWNER, \
    CAST(c.PROCEDURE_NAME + CASE RTRIM(c.ROUTINE_TYPE) WHEN 'P' THEN ';1' ELSE ';0' END AS nvarchar(134)) AS PROCEDURE_NAME, \
    c.COLUMN_NAME, c.COLUMN_TYPE, CAST(type AS smallint) AS DATA_TYPE, CAST(type_name AS nvarchar(128)) AS TYPE_NAME, \
    CAST(precision AS int) AS PRECISION, CAST(length AS int) AS LENGTH, scale AS SCALE, c.RADIX, \
    CAST(CASE c.COLUMN_TYPE WHEN 5 THEN 0 ELSE 1 END AS smallint) AS NULLABLE, CAST(NULL AS varchar(254)) AS REMARKS, \
    CAST(NULL AS nvarchar(4000)) AS COLUMN_DEF, CAST(sql_type AS smallint) AS SQL_DATA_TYPE, \
    CAST(sub AS smallint) AS SQL_DATETIME_SUB, CAST(octets AS int) AS CHAR_OCTET_LENGTH, c.ORDINAL_POSITION, \
    CAST(CASE c.COLUMN_TYPE WHEN 5 THEN 'NO' ELSE 'YES' END AS varchar(254)) AS IS_NULLABLE";

const SPROC_NEWER: &str = ", CAST(NULL AS nvarchar(128)) AS SS_TYPE_CATALOG_NAME, CAST(NULL AS nvarchar(128)) AS SS_TYPE_SCHEMA_NAME, \
    CAST(NULL AS nvarchar(128)) AS SS_UDT_CATALOG_NAME, CAST(NULL AS nvarchar(128)) AS SS_UDT_SCHEMA_NAME, \
    CAST(NULL AS nvarchar(4000)) AS SS_UDT_ASSEMBLY_TYPE_NAME, \
    CAST(NULL AS nvarchar(128)) AS SS_XML_SCHEMACOLLECTION_CATALOG_NAME, \
    CAST(NULL AS nvarchar(128)) AS SS_XML_SCHEMACOLLECTION_SCHEMA_NAME, \
    CAST(NULL AS nvarchar(128)) AS SS_XML_SCHEMACOLLECTION_NAME";

const SPROC_TAIL: &str = ", c.SS_DATA_TYPE FROM sys.spt_parameters_odbc_view c \
    WHERE (@procedure_name IS NULL OR (@fusepattern = 1 AND c.PROCEDURE_NAME LIKE @procedure_name) OR c.PROCEDURE_NAME = @procedure_name) \
    AND (@procedure_owner IS NULL OR (@fusepattern = 1 AND c.PROCEDURE_OWNER LIKE @procedure_owner) OR c.PROCEDURE_OWNER = @procedure_owner) \
    AND (@column_name IS NULL OR (@fusepattern = 1 AND c.COLUMN_NAME LIKE @column_name) OR c.COLUMN_NAME = @column_name) \
    ORDER BY c.PROCEDURE_OWNER, c.PROCEDURE_NAME, c.ORDINAL_POSITION";

/// In these queries the words `type`, `type_name`, `precision`, `length`, `scale`, `sql_type`, `sub` and `octets` after
/// CAST stand for what a client sees of a type.
const WORDS_OLDER: [(&str, &str); 8] = [
    (
        "CAST(type AS",
        "CAST(CASE WHEN c.DATA_TYPE IN (91, -154, -155) OR c.TYPE_NAME = 'datetime2' THEN -9 \
        WHEN c.LENGTH = 0 THEN CASE c.DATA_TYPE WHEN 12 THEN -1 WHEN -9 THEN -10 ELSE -4 END \
        WHEN c.DATA_TYPE = 93 AND @odbcver < 3 THEN 11 ELSE c.DATA_TYPE END AS",
    ),
    (
        "CAST(type_name AS",
        "CAST(CASE WHEN c.LENGTH = 0 THEN CASE c.DATA_TYPE WHEN 12 THEN 'text' WHEN -9 THEN 'ntext' ELSE 'image' END \
        ELSE c.TYPE_NAME END AS",
    ),
    (
        "CAST(precision AS",
        "CAST(CASE WHEN c.LENGTH = 0 THEN CASE c.DATA_TYPE WHEN -9 THEN 1073741823 ELSE 2147483647 END \
        WHEN @odbcver < 3 AND c.TYPE_NAME = 'float' THEN 15 ELSE c.PRECISION END AS",
    ),
    (
        "CAST(length AS",
        "CAST(CASE WHEN c.DATA_TYPE IN (91, -154, -155) OR c.TYPE_NAME = 'datetime2' THEN c.PRECISION * 2 \
        WHEN c.LENGTH = 0 THEN CASE c.DATA_TYPE WHEN -9 THEN 2147483646 ELSE 2147483647 END ELSE c.LENGTH END AS",
    ),
    (
        "scale AS SCALE",
        "CAST(CASE WHEN c.DATA_TYPE IN (91, -154, -155) OR c.TYPE_NAME = 'datetime2' THEN NULL ELSE c.SCALE END AS smallint) AS SCALE",
    ),
    (
        "CAST(sql_type AS",
        "CAST(CASE WHEN c.DATA_TYPE IN (91, -154, -155) OR c.TYPE_NAME = 'datetime2' THEN -9 \
        WHEN c.LENGTH = 0 THEN CASE c.DATA_TYPE WHEN 12 THEN -1 WHEN -9 THEN -10 ELSE -4 END ELSE c.SQL_DATA_TYPE END AS",
    ),
    (
        "CAST(sub AS",
        "CAST(CASE WHEN c.DATA_TYPE = 91 OR c.TYPE_NAME = 'datetime2' THEN NULL ELSE c.SQL_DATETIME_SUB END AS",
    ),
    (
        "CAST(octets AS",
        "CAST(CASE WHEN c.LENGTH = 0 THEN CASE c.DATA_TYPE WHEN -9 THEN 2147483646 ELSE 2147483647 END \
        ELSE c.CHAR_OCTET_LENGTH END AS",
    ),
];

const WORDS_NEWER: [(&str, &str); 8] = [
    (
        "CAST(type AS",
        "CAST(CASE WHEN c.DATA_TYPE = 93 AND @odbcver < 3 THEN 11 WHEN c.DATA_TYPE = 91 AND @odbcver < 3 THEN 9 \
        ELSE c.DATA_TYPE END AS",
    ),
    ("CAST(type_name AS", "CAST(c.TYPE_NAME AS"),
    (
        "CAST(precision AS",
        "CAST(CASE WHEN @odbcver < 3 AND c.TYPE_NAME = 'float' THEN 15 ELSE c.PRECISION END AS",
    ),
    ("CAST(length AS", "CAST(c.LENGTH AS"),
    ("scale AS SCALE", "c.SCALE AS SCALE"),
    ("CAST(sql_type AS", "CAST(c.SQL_DATA_TYPE AS"),
    ("CAST(sub AS", "CAST(c.SQL_DATETIME_SUB AS"),
    ("CAST(octets AS", "CAST(c.CHAR_OCTET_LENGTH AS"),
];

const PKEYS: &str = "SELECT CAST(DB_NAME() AS nvarchar(128)) AS TABLE_QUALIFIER, CAST('dbo' AS nvarchar(128)) AS TABLE_OWNER, \
    o.name AS TABLE_NAME, c.name AS COLUMN_NAME, CAST(ic.key_ordinal AS smallint) AS KEY_SEQ, i.name AS PK_NAME \
    FROM sys.tables o JOIN sys.indexes i ON i.object_id = o.object_id AND i.is_primary_key = 1 \
    JOIN sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id \
    JOIN sys.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id \
    WHERE o.name = @table_name AND (@table_owner IS NULL OR @table_owner = 'dbo') \
    ORDER BY TABLE_QUALIFIER, TABLE_OWNER, TABLE_NAME, KEY_SEQ";

const FKEYS: &str = "SELECT CAST(DB_NAME() AS nvarchar(128)) AS PKTABLE_QUALIFIER, CAST('dbo' AS nvarchar(128)) AS PKTABLE_OWNER, \
    p.name AS PKTABLE_NAME, pc.name AS PKCOLUMN_NAME, CAST(DB_NAME() AS nvarchar(128)) AS FKTABLE_QUALIFIER, \
    CAST('dbo' AS nvarchar(128)) AS FKTABLE_OWNER, t.name AS FKTABLE_NAME, tc.name AS FKCOLUMN_NAME, \
    CAST(fc.constraint_column_id AS smallint) AS KEY_SEQ, CAST(1 AS smallint) AS UPDATE_RULE, CAST(1 AS smallint) AS DELETE_RULE, \
    f.name AS FK_NAME, k.name AS PK_NAME, CAST(7 AS smallint) AS DEFERRABILITY \
    FROM sys.foreign_keys f JOIN sys.foreign_key_columns fc ON fc.constraint_object_id = f.object_id \
    JOIN sys.tables t ON t.object_id = fc.parent_object_id JOIN sys.tables p ON p.object_id = fc.referenced_object_id \
    JOIN sys.columns tc ON tc.object_id = fc.parent_object_id AND tc.column_id = fc.parent_column_id \
    JOIN sys.columns pc ON pc.object_id = fc.referenced_object_id AND pc.column_id = fc.referenced_column_id \
    LEFT JOIN sys.indexes k ON k.object_id = f.referenced_object_id AND k.index_id = f.key_index_id \
    WHERE (@pktable_name IS NULL OR p.name = @pktable_name) AND (@fktable_name IS NULL OR t.name = @fktable_name) \
    AND (@pktable_owner IS NULL OR @pktable_owner = 'dbo') AND (@fktable_owner IS NULL OR @fktable_owner = 'dbo') \
    ORDER BY CASE WHEN @pktable_name IS NULL THEN p.name ELSE t.name END, f.name, fc.constraint_column_id";

const STATISTICS: &str = "SELECT s.* FROM ( \
    SELECT CAST(DB_NAME() AS nvarchar(128)) AS TABLE_QUALIFIER, CAST('dbo' AS nvarchar(128)) AS TABLE_OWNER, o.name AS TABLE_NAME, \
    CAST(NULL AS smallint) AS NON_UNIQUE, CAST(NULL AS nvarchar(128)) AS INDEX_QUALIFIER, CAST(NULL AS nvarchar(128)) AS INDEX_NAME, \
    CAST(0 AS smallint) AS TYPE, CAST(NULL AS smallint) AS SEQ_IN_INDEX, CAST(NULL AS nvarchar(128)) AS COLUMN_NAME, \
    CAST(NULL AS char(1)) AS COLLATION, CAST(p.rows AS int) AS CARDINALITY, CAST(NULL AS int) AS PAGES, \
    CAST(NULL AS varchar(128)) AS FILTER_CONDITION \
    FROM sys.tables o JOIN sys.partitions p ON p.object_id = o.object_id AND p.index_id IN (0, 1) \
    UNION ALL \
    SELECT CAST(DB_NAME() AS nvarchar(128)), CAST('dbo' AS nvarchar(128)), o.name, \
    CAST(CASE i.is_unique WHEN 1 THEN 0 ELSE 1 END AS smallint), o.name, i.name, \
    CAST(CASE i.index_id WHEN 1 THEN 1 ELSE 3 END AS smallint), CAST(ic.key_ordinal AS smallint), c.name, CAST('A' AS char(1)), \
    CAST(p.rows AS int), CAST(NULL AS int), CAST(NULL AS varchar(128)) \
    FROM sys.tables o JOIN sys.indexes i ON i.object_id = o.object_id AND i.index_id > 0 \
    JOIN sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id \
    JOIN sys.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id \
    JOIN sys.partitions p ON p.object_id = o.object_id AND p.index_id IN (0, 1)) s \
    WHERE s.TABLE_NAME = @table_name AND (@table_owner IS NULL OR @table_owner = 'dbo') \
    AND (@index_name IS NULL OR s.INDEX_NAME IS NULL OR s.INDEX_NAME LIKE @index_name) \
    AND (@is_unique IS NULL OR @is_unique <> 'Y' OR s.NON_UNIQUE IS NULL OR s.NON_UNIQUE = 0) \
    ORDER BY s.NON_UNIQUE, s.TYPE, s.INDEX_NAME, s.SEQ_IN_INDEX";

const SPECIAL: &str = "SELECT CAST(CASE WHEN @scope = 'C' THEN 0 ELSE 1 END AS smallint) AS SCOPE, s.COLUMN_NAME, \
    CAST(CASE WHEN s.DATA_TYPE = 93 AND @odbcver < 3 THEN 11 ELSE s.DATA_TYPE END AS smallint) AS DATA_TYPE, s.TYPE_NAME, \
    s.PRECISION, s.LENGTH, s.SCALE, CAST(1 AS smallint) AS PSEUDO_COLUMN \
    FROM sys.tables o JOIN sys.indexes i ON i.object_id = o.object_id \
    JOIN sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id \
    JOIN sys.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id \
    JOIN sys.spt_columns_odbc_view s ON s.TABLE_NAME = o.name AND s.COLUMN_NAME = c.name \
    WHERE o.name = @table_name AND (@table_owner IS NULL OR @table_owner = 'dbo') AND (@col_type IS NULL OR @col_type <> 'V') \
    AND i.index_id = (SELECT TOP (1) u.index_id FROM sys.indexes u WHERE u.object_id = o.object_id AND u.is_unique = 1 \
    AND (@nullable IS NULL OR @nullable <> 'O' OR NOT EXISTS (SELECT 1 FROM sys.index_columns uc \
    JOIN sys.columns n ON n.object_id = uc.object_id AND n.column_id = uc.column_id \
    WHERE uc.object_id = u.object_id AND uc.index_id = u.index_id AND n.is_nullable = 1)) \
    ORDER BY u.is_primary_key DESC, u.index_id) \
    ORDER BY ic.key_ordinal";

const PROCEDURES: &str = "SELECT CAST(DB_NAME() AS nvarchar(128)) AS PROCEDURE_QUALIFIER, CAST('dbo' AS nvarchar(128)) AS PROCEDURE_OWNER, \
    CAST(o.name + CASE RTRIM(o.type) WHEN 'P' THEN ';1' ELSE ';0' END AS nvarchar(134)) AS PROCEDURE_NAME, CAST(-1 AS int) AS NUM_INPUT_PARAMS, \
    CAST(-1 AS int) AS NUM_OUTPUT_PARAMS, CAST(-1 AS int) AS NUM_RESULT_SETS, CAST(NULL AS varchar(254)) AS REMARKS, \
    CAST(2 AS smallint) AS PROCEDURE_TYPE FROM sys.objects o WHERE RTRIM(o.type) IN ('P', 'FN', 'IF', 'TF') \
    AND (@sp_name IS NULL OR (@fusepattern = 1 AND o.name LIKE @sp_name) OR o.name = @sp_name) \
    AND (@sp_owner IS NULL OR (@fusepattern = 1 AND 'dbo' LIKE @sp_owner) OR 'dbo' = @sp_owner) \
    ORDER BY PROCEDURE_QUALIFIER, PROCEDURE_OWNER, PROCEDURE_NAME";

const TABLE_PRIVILEGES: &str = "SELECT CAST(DB_NAME() AS nvarchar(128)) AS TABLE_QUALIFIER, CAST('dbo' AS nvarchar(128)) AS TABLE_OWNER, \
    o.name AS TABLE_NAME, CAST('dbo' AS nvarchar(128)) AS GRANTOR, CAST('dbo' AS nvarchar(128)) AS GRANTEE, \
    CAST(p.what AS varchar(32)) AS PRIVILEGE, CAST('YES' AS varchar(3)) AS IS_GRANTABLE FROM sys.tables o \
    CROSS JOIN (VALUES ('DELETE'), ('INSERT'), ('REFERENCES'), ('SELECT'), ('UPDATE')) AS p (what) \
    WHERE o.name LIKE @table_name AND (@table_owner IS NULL OR 'dbo' LIKE @table_owner) \
    ORDER BY TABLE_QUALIFIER, TABLE_OWNER, TABLE_NAME, PRIVILEGE";

const COLUMN_PRIVILEGES: &str = "SELECT CAST(DB_NAME() AS nvarchar(128)) AS TABLE_QUALIFIER, CAST('dbo' AS nvarchar(128)) AS TABLE_OWNER, \
    o.name AS TABLE_NAME, c.name AS COLUMN_NAME, CAST('dbo' AS nvarchar(128)) AS GRANTOR, CAST('dbo' AS nvarchar(128)) AS GRANTEE, \
    CAST(p.what AS varchar(32)) AS PRIVILEGE, CAST('YES' AS varchar(3)) AS IS_GRANTABLE FROM sys.tables o \
    JOIN sys.columns c ON c.object_id = o.object_id \
    CROSS JOIN (VALUES ('INSERT'), ('REFERENCES'), ('SELECT'), ('UPDATE')) AS p (what) \
    WHERE o.name = @table_name AND (@table_owner IS NULL OR @table_owner = 'dbo') \
    AND (@column_name IS NULL OR c.name LIKE @column_name) \
    ORDER BY TABLE_QUALIFIER, TABLE_OWNER, TABLE_NAME, COLUMN_NAME, PRIVILEGE";

/// The attributes of this server, as sp_server_info's documentation numbers them.
const SERVER: &str = "SELECT CAST(a.id AS int) AS attribute_id, CAST(a.name AS varchar(60)) AS attribute_name, \
    CAST(a.value AS varchar(255)) AS attribute_value FROM (VALUES (1, 'DBMS_NAME', 'Microsoft SQL Server'), \
    (2, 'DBMS_VER', 'Microsoft SQL Server 2022 - ' + CAST(SERVERPROPERTY('ProductVersion') AS varchar(30))), \
    (10, 'OWNER_TERM', 'owner'), (11, 'TABLE_TERM', 'table'), (12, 'MAX_OWNER_NAME_LENGTH', '128'), (13, 'TABLE_LENGTH', '128'), \
    (14, 'MAX_QUAL_LENGTH', '128'), (15, 'COLUMN_LENGTH', '128'), (16, 'IDENTIFIER_CASE', 'MIXED'), (17, 'TX_ISOLATION', '2'), \
    (18, 'COLLATION_SEQ', 'charset=iso_1 sort_order=nocase_iso charset_num=1 sort_order_num=52'), (19, 'SAVEPOINT_SUPPORT', 'Y'), \
    (20, 'MULTI_RESULT_SETS', 'Y'), (22, 'ACCESSIBLE_TABLES', 'Y'), (100, 'USERID_LENGTH', '128'), \
    (101, 'QUALIFIER_TERM', 'database'), (102, 'NAMED_TRANSACTIONS', 'Y'), (103, 'SPROC_AS_LANGUAGE', 'Y'), \
    (104, 'ACCESSIBLE_SPROC', 'Y'), (105, 'MAX_INDEX_COLS', '16'), (106, 'RENAME_TABLE', 'N'), (107, 'RENAME_COLUMN', 'N'), \
    (108, 'DROP_COLUMN', 'Y'), (109, 'INCREASE_COLUMN_LENGTH', 'Y'), (110, 'DDL_IN_TRANSACTION', 'N'), \
    (111, 'DESCENDING_INDEXES', 'N'), (112, 'SP_RENAME', 'N'), (113, 'REMOTE_SPROC', 'N'), \
    (500, 'SYS_SPROC_VERSION', CAST(SERVERPROPERTY('ProductVersion') AS varchar(30)))) AS a (id, name, value) \
    WHERE @attribute_id = 0 OR a.id = @attribute_id ORDER BY a.id";

/// The types as ODBC numbers them: name, number, precision, prefix, suffix, parameters, nullable, case, searchable, unsigned,
/// money, numbers rows, least and greatest scale, number of its kind, of the moment, radix, number of SQL Server's.
const TYPES: &str = "SELECT CAST(t.n AS nvarchar(128)) AS TYPE_NAME, \
    CAST(CASE WHEN t.d = 93 AND @odbcver < 3 AND t.n <> 'datetime2' THEN 11 WHEN older AND t.k = 1 THEN -9 ELSE t.d END AS smallint) AS DATA_TYPE, \
    CAST(CASE WHEN @odbcver < 3 AND t.n = 'float' THEN 15 ELSE t.p END AS int) AS PRECISION, CAST(t.b AS varchar(32)) AS LITERAL_PREFIX, \
    CAST(t.e AS varchar(32)) AS LITERAL_SUFFIX, CAST(t.c AS varchar(32)) AS CREATE_PARAMS, CAST(t.nu AS smallint) AS NULLABLE, \
    CAST(t.cs AS smallint) AS CASE_SENSITIVE, CAST(t.s AS smallint) AS SEARCHABLE, CAST(t.u AS smallint) AS UNSIGNED_ATTRIBUTE, \
    CAST(t.m AS smallint) AS MONEY, CAST(t.a AS smallint) AS AUTO_INCREMENT, CAST(t.n AS nvarchar(128)) AS LOCAL_TYPE_NAME, \
    CAST(t.l AS smallint) AS MINIMUM_SCALE, CAST(t.g AS smallint) AS MAXIMUM_SCALE, \
    CAST(CASE WHEN older AND t.k = 1 THEN -9 ELSE t.q END AS smallint) AS SQL_DATA_TYPE, \
    CAST(CASE WHEN older AND t.k = 1 THEN NULL ELSE t.sub END AS smallint) AS SQL_DATETIME_SUB, \
    CAST(CASE WHEN @odbcver < 3 AND t.n = 'float' THEN 10 ELSE t.r END AS int) AS NUM_PREC_RADIX, \
    CAST(NULL AS smallint) AS INTERVAL_PRECISION, CAST(t.x AS smallint) AS USERTYPE FROM (VALUES \
    ('datetimeoffset', -155, 34, '''', '''', 'scale', 1, 0, 3, NULL, 0, NULL, 0, 7, -155, NULL, NULL, 0, 1), \
    ('time', -154, 16, '''', '''', 'scale', 1, 0, 3, NULL, 0, NULL, 0, 7, -154, NULL, NULL, 0, 1), \
    ('xml', -152, 0, 'N''', '''', NULL, 1, 1, 0, NULL, 0, NULL, NULL, NULL, -152, NULL, NULL, 0, 0), \
    ('sql_variant', -150, 8000, NULL, NULL, NULL, 1, 0, 2, NULL, 0, NULL, 0, 0, -150, NULL, 10, 0, 0), \
    ('uniqueidentifier', -11, 36, '''', '''', NULL, 1, 0, 2, NULL, 0, NULL, NULL, NULL, -11, NULL, NULL, 0, 0), \
    ('ntext', -10, 1073741823, 'N''', '''', NULL, 1, 1, 1, NULL, 0, NULL, NULL, NULL, -10, NULL, NULL, 0, 0), \
    ('nvarchar', -9, 4000, 'N''', '''', 'max length', 1, 1, 3, NULL, 0, NULL, NULL, NULL, -9, NULL, NULL, 0, 0), \
    ('sysname', -9, 128, 'N''', '''', NULL, 0, 1, 3, NULL, 0, NULL, NULL, NULL, -9, NULL, NULL, 18, 0), \
    ('nchar', -8, 4000, 'N''', '''', 'length', 1, 1, 3, NULL, 0, NULL, NULL, NULL, -8, NULL, NULL, 0, 0), \
    ('bit', -7, 1, NULL, NULL, NULL, 1, 0, 2, NULL, 0, NULL, 0, 0, -7, NULL, NULL, 16, 0), \
    ('tinyint', -6, 3, NULL, NULL, NULL, 1, 0, 2, 1, 0, 0, 0, 0, -6, NULL, 10, 5, 0), \
    ('tinyint identity', -6, 3, NULL, NULL, NULL, 0, 0, 2, 1, 0, 1, 0, 0, -6, NULL, 10, 5, 0), \
    ('bigint', -5, 19, NULL, NULL, NULL, 1, 0, 2, 0, 0, 0, 0, 0, -5, NULL, 10, 0, 0), \
    ('bigint identity', -5, 19, NULL, NULL, NULL, 0, 0, 2, 0, 0, 1, 0, 0, -5, NULL, 10, 0, 0), \
    ('image', -4, 2147483647, '0x', NULL, NULL, 1, 0, 0, NULL, 0, NULL, NULL, NULL, -4, NULL, NULL, 20, 0), \
    ('varbinary', -3, 8000, '0x', NULL, 'max length', 1, 0, 2, NULL, 0, NULL, NULL, NULL, -3, NULL, NULL, 4, 0), \
    ('binary', -2, 8000, '0x', NULL, 'length', 1, 0, 2, NULL, 0, NULL, NULL, NULL, -2, NULL, NULL, 3, 0), \
    ('timestamp', -2, 8, '0x', NULL, NULL, 0, 0, 2, NULL, 0, NULL, NULL, NULL, -2, NULL, NULL, 80, 0), \
    ('text', -1, 2147483647, '''', '''', NULL, 1, 1, 1, NULL, 0, NULL, NULL, NULL, -1, NULL, NULL, 19, 0), \
    ('char', 1, 8000, '''', '''', 'length', 1, 1, 3, NULL, 0, NULL, NULL, NULL, 1, NULL, NULL, 1, 0), \
    ('numeric', 2, 38, NULL, NULL, 'precision,scale', 1, 0, 2, 0, 0, 0, 0, 38, 2, NULL, 10, 10, 0), \
    ('numeric() identity', 2, 38, NULL, NULL, 'precision', 0, 0, 2, 0, 0, 1, 0, 0, 2, NULL, 10, 10, 0), \
    ('decimal', 3, 38, NULL, NULL, 'precision,scale', 1, 0, 2, 0, 0, 0, 0, 38, 3, NULL, 10, 24, 0), \
    ('money', 3, 19, '$', NULL, NULL, 1, 0, 2, 0, 1, 0, 4, 4, 3, NULL, 10, 11, 0), \
    ('smallmoney', 3, 10, '$', NULL, NULL, 1, 0, 2, 0, 1, 0, 4, 4, 3, NULL, 10, 21, 0), \
    ('decimal() identity', 3, 38, NULL, NULL, 'precision', 0, 0, 2, 0, 0, 1, 0, 0, 3, NULL, 10, 24, 0), \
    ('int', 4, 10, NULL, NULL, NULL, 1, 0, 2, 0, 0, 0, 0, 0, 4, NULL, 10, 7, 0), \
    ('int identity', 4, 10, NULL, NULL, NULL, 0, 0, 2, 0, 0, 1, 0, 0, 4, NULL, 10, 7, 0), \
    ('smallint', 5, 5, NULL, NULL, NULL, 1, 0, 2, 0, 0, 0, 0, 0, 5, NULL, 10, 6, 0), \
    ('smallint identity', 5, 5, NULL, NULL, NULL, 0, 0, 2, 0, 0, 1, 0, 0, 5, NULL, 10, 6, 0), \
    ('float', 6, 53, NULL, NULL, NULL, 1, 0, 2, 0, 0, 0, NULL, NULL, 6, NULL, 2, 8, 0), \
    ('real', 7, 24, NULL, NULL, NULL, 1, 0, 2, 0, 0, 0, NULL, NULL, 7, NULL, 2, 23, 0), \
    ('varchar', 12, 8000, '''', '''', 'max length', 1, 1, 3, NULL, 0, NULL, NULL, NULL, 12, NULL, NULL, 2, 0), \
    ('date', 91, 10, '''', '''', NULL, 1, 0, 3, NULL, 0, NULL, NULL, 0, 9, 1, NULL, 0, 1), \
    ('datetime2', 93, 27, '''', '''', 'scale', 1, 0, 3, NULL, 0, NULL, 0, 7, 9, 3, NULL, 0, 1), \
    ('datetime', 93, 23, '''', '''', NULL, 1, 0, 3, NULL, 0, NULL, 3, 3, 9, 3, NULL, 12, 0), \
    ('smalldatetime', 93, 16, '''', '''', NULL, 1, 0, 3, NULL, 0, NULL, 0, 0, 9, 3, NULL, 22, 0)) \
    AS t (n, d, p, b, e, c, nu, cs, s, u, m, a, l, g, q, sub, r, x, k) \
    WHERE @data_type = 0 OR t.d = @data_type OR (@data_type = 11 AND t.d = 93) ORDER BY DATA_TYPE, AUTO_INCREMENT, MONEY, USERTYPE";

const REPORTS: &[Report] = &[
    Report {
        names: &["sp_tables"],
        parameters: &[
            name("@table_name"),
            name("@table_owner"),
            name("@table_qualifier"),
            name("@table_type"),
            number("@fusepattern", 1),
        ],
        answer: Answer::Made,
    },
    Report {
        names: &["sp_columns"],
        parameters: &[
            needed("@table_name"),
            name("@table_owner"),
            database("@table_qualifier"),
            name("@column_name"),
            number("@odbcver", 2),
        ],
        answer: Answer::Made,
    },
    Report {
        names: &["sp_columns_90", "sp_columns_100"],
        parameters: &[
            needed("@table_name"),
            name("@table_owner"),
            database("@table_qualifier"),
            name("@column_name"),
            number("@namescope", 0),
            number("@odbcver", 2),
            number("@fusepattern", 1),
        ],
        answer: Answer::Made,
    },
    Report {
        names: &[
            "sp_sproc_columns",
            "sp_sproc_columns_90",
            "sp_sproc_columns_100",
        ],
        parameters: &[
            name("@procedure_name"),
            name("@procedure_owner"),
            database("@procedure_qualifier"),
            name("@column_name"),
            number("@odbcver", 2),
            number("@fusepattern", 1),
        ],
        answer: Answer::Made,
    },
    Report {
        names: &["sp_pkeys"],
        parameters: &[
            needed("@table_name"),
            name("@table_owner"),
            database("@table_qualifier"),
        ],
        answer: Answer::Query(PKEYS),
    },
    Report {
        names: &["sp_fkeys"],
        parameters: &[
            name("@pktable_name"),
            name("@pktable_owner"),
            database("@pktable_qualifier"),
            name("@fktable_name"),
            name("@fktable_owner"),
            database("@fktable_qualifier"),
        ],
        answer: Answer::Query(FKEYS),
    },
    Report {
        names: &["sp_statistics", "sp_statistics_100"],
        parameters: &[
            needed("@table_name"),
            name("@table_owner"),
            database("@table_qualifier"),
            name("@index_name"),
            name("@is_unique"),
            name("@accuracy"),
        ],
        answer: Answer::Query(STATISTICS),
    },
    Report {
        names: &[
            "sp_special_columns",
            "sp_special_columns_90",
            "sp_special_columns_100",
        ],
        parameters: &[
            needed("@table_name"),
            name("@table_owner"),
            database("@table_qualifier"),
            name("@col_type"),
            name("@scope"),
            name("@nullable"),
            number("@odbcver", 2),
        ],
        answer: Answer::Query(SPECIAL),
    },
    Report {
        names: &["sp_stored_procedures"],
        parameters: &[
            name("@sp_name"),
            name("@sp_owner"),
            database("@sp_qualifier"),
            number("@fusepattern", 1),
        ],
        answer: Answer::Query(PROCEDURES),
    },
    Report {
        names: &["sp_table_privileges"],
        parameters: &[
            needed("@table_name"),
            name("@table_owner"),
            database("@table_qualifier"),
            number("@fusepattern", 1),
        ],
        answer: Answer::Query(TABLE_PRIVILEGES),
    },
    Report {
        names: &["sp_column_privileges"],
        parameters: &[
            needed("@table_name"),
            name("@table_owner"),
            database("@table_qualifier"),
            name("@column_name"),
        ],
        answer: Answer::Query(COLUMN_PRIVILEGES),
    },
    Report {
        names: &[
            "sp_datatype_info",
            "sp_datatype_info_90",
            "sp_datatype_info_100",
        ],
        parameters: &[number("@data_type", 0), number("@odbcver", 2)],
        answer: Answer::Made,
    },
    Report {
        names: &["sp_server_info"],
        parameters: &[number("@attribute_id", 0)],
        answer: Answer::Query(SERVER),
    },
];

/// The type of names, which are patterns as well.
const NAME: Type = Type::nvarchar(384);

/// Whether a procedure is one of these, by its name in any case.
pub(super) fn is_known(procedure: &str) -> bool {
    report_of(procedure).is_some()
}

fn report_of(procedure: &str) -> Option<&'static Report> {
    let is = |name: &&str| name.eq_ignore_ascii_case(procedure);
    REPORTS.iter().find(|report| report.names.iter().any(is))
}

/// Runs the catalog procedure that was called. Errors: 201, 8144, 8145, 15250, 15252.
pub(super) fn answer(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let called = arguments.procedure.to_ascii_lowercase();
    let report = report_of(&called).ok_or_else(|| message::PROCEDURE_UNKNOWN.with(&[&called]))?;
    let names: Vec<_> = report.parameters.iter().map(|p| p.name).collect();
    let values = arguments.values(&names)?;
    let mut variables = BTreeMap::new();
    for (parameter, value) in report.parameters.iter().zip(values) {
        let value = value.filter(|v| !v.is_null());
        let (kind, value) = match (parameter.kind, value) {
            (Kind::Number(usual), None) => (Type::Int, Value::Int(usual)),
            (Kind::Number(_), Some(value)) => (Type::Int, convert(&value, Type::Int)?),
            (Kind::Needed, None) => return Err(arguments.missing(parameter.name).into()),
            (_, None) => (NAME, Value::Null),
            (kind, Some(value)) => {
                let value = convert(&value, NAME)?;
                if matches!(kind, Kind::Database) && !is_here(session, &value) {
                    return Err(message::QUALIFIER_OTHER.plain().into());
                }
                (NAME, value)
            }
        };
        variables.insert(parameter.name.to_owned(), Variable { kind, value });
    }
    let is_given = |name| variables.get(name).is_some_and(|v| !v.value.is_null());
    if called == "sp_fkeys" && !is_given("@pktable_name") && !is_given("@fktable_name") {
        return Err(message::FKEYS_OF_NOTHING.plain().into());
    }
    let text = match report.answer {
        Answer::Query(query) => query.to_owned(),
        Answer::Made => made(session, &called, &variables)?,
    };
    show(session, text, variables, out)
}

/// Whether a database is the one in use.
fn is_here(session: &Session, database: &Value) -> bool {
    let name = database.to_string();
    name.is_empty() || name.eq_ignore_ascii_case(&session.database)
}

/// The query of a procedure that has several.
fn made(
    session: &Session,
    called: &str,
    variables: &BTreeMap<String, Variable>,
) -> Result<String, message::Message> {
    let newer = called.ends_with("_100");
    let worded = |head: &str, more: &str, tail: &str| {
        let words = if newer { WORDS_NEWER } else { WORDS_OLDER };
        let more = if newer { more } else { "" };
        let mut text = format!("{head}{more}{tail}");
        for (word, meaning) in words {
            text = text.replace(word, meaning);
        }
        text
    };
    match called {
        "sp_tables" => tables(session, variables),
        // Its names are always patterns.
        "sp_columns" => {
            Ok(worded(COLUMNS_HEAD, "", COLUMNS_TAIL).replace("@fusepattern = 1", "1 = 1"))
        }
        called if called.starts_with("sp_columns") => {
            Ok(worded(COLUMNS_HEAD, COLUMNS_NEWER, COLUMNS_TAIL))
        }
        called if called.starts_with("sp_sproc_columns") => {
            Ok(worded(SPROC_HEAD, SPROC_NEWER, SPROC_TAIL))
        }
        _ => Ok(TYPES.replace("older", if newer { "1 = 0" } else { "1 = 1" })),
    }
}

/// sp_tables asks for databases, for schemas or for types where one argument is `%` and the others are empty texts.
fn tables(
    session: &Session,
    variables: &BTreeMap<String, Variable>,
) -> Result<String, message::Message> {
    let given = |name: &str| match variables.get(name).map(|v| &v.value) {
        None | Some(Value::Null) => None,
        Some(value) => Some(value.to_string()),
    };
    let [table, owner, database, kind] = [
        "@table_name",
        "@table_owner",
        "@table_qualifier",
        "@table_type",
    ]
    .map(given);
    let is_empty = |text: &Option<String>| text.as_deref() == Some("");
    // FreeTDS quotes the type.
    let is_all = |text: &Option<String>| matches!(text.as_deref(), Some("%" | "'%'"));
    let [databases, schemas, types, all] = SP_TABLES;
    let asked = if is_all(&database) && is_empty(&owner) && is_empty(&table) {
        databases.to_owned()
    } else if is_all(&owner) && is_empty(&database) && is_empty(&table) {
        schemas.to_owned()
    } else if is_all(&kind) && is_empty(&table) && is_empty(&owner) && is_empty(&database) {
        types.to_owned()
    } else {
        let here = database.as_deref().is_none_or(|name| {
            name.is_empty() || name == "%" || name.eq_ignore_ascii_case(&session.database)
        });
        if !here {
            return Err(message::QUALIFIER_OTHER.plain());
        }
        all.replace("tables", TABLES)
    };
    Ok(asked)
}

/// Sends the rows of a query with these variables.
pub(super) fn show(
    session: &mut Session,
    text: String,
    variables: BTreeMap<String, Variable>,
    out: &mut Out,
) -> Flow {
    let claim = session.server.setup.memory.claim(0)?;
    let variables = Variables::new(variables, session.variables.bytes(), claim)?;
    let query = Fragment::at_line(text, out.line);
    let context = QueryContext {
        variables: &variables,
        ..session.query_context()
    };
    let plan = query::prepare(&context, &query)?;
    let sqlite = context.sqlite(&plan)?;
    out.sink.columns(&plan.columns)?;
    let count = sqlite.run_first(session.rows_max(), &plan, &mut |row| {
        Ok(out.sink.row(&row)?)
    })?;
    // SQL Server's procedures say nothing of the NULLs that their own queries pass over.
    out.notices.take();
    Ok(out.done(Command::Execute, Some(count))?)
}
