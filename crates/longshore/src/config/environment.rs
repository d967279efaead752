//! Configuration from the environment: `LONGSHORE_DATABASE_SALES_URL` is `url` in `[database.sales]`.
//!
//! A name in a variable stands for the configured name that equals it in capitals, with `_` for every other sign; a
//! name that is not configured is created in lower case.
//!
//! Invariants
//! - An unknown variable that begins with `LONGSHORE_` is refused, as a misspelt key in the file is.
//!
//! Leaves to others: the tables with their keys ([`Form`]s, which `mod.rs` hands in), and the values (`mod.rs`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use toml::{Table, Value};

use super::near::nearest;

const PREFIX: &str = "LONGSHORE_";

/// A table of the configuration and its keys. `named`: one for each name.
pub struct Form {
    pub table: &'static str,
    pub named: bool,
    pub keys: &'static [&'static str],
}

/// Keys whose value is a list, and what separates its elements in a variable: an address has colons.
const LISTS: [(&str, char); 10] = [
    ("directories", ':'),
    ("buckets", ' '),
    ("copies", ' '),
    ("recipients", ' '),
    ("keys", ' '),
    ("identities", ' '),
    ("require_recipients", ' '),
    ("signers", ' '),
    ("wrap_command", ' '),
    ("unwrap_command", ' '),
];

/// Variables that are not keys: their value is a path, which need not be UTF-8, or `off` or `none`.
const PATHS: [&str; 9] = [
    "LONGSHORE_CA_FILE",
    "LONGSHORE_CATALOG",
    "LONGSHORE_CONFIG",
    "LONGSHORE_CUDA",
    "LONGSHORE_ISAL",
    "LONGSHORE_NVCOMP",
    "LONGSHORE_PROGRAM",
    "LONGSHORE_QATZIP",
    "LONGSHORE_SYSFS",
];
/// Other variables that are not keys.
const TEXTS: [&str; 7] = [
    "LONGSHORE_ALLOW_HTTP",
    "LONGSHORE_LOG",
    "LONGSHORE_LOGIN_PASSWORD",
    "LONGSHORE_PART_MIB",
    "LONGSHORE_S3_ADDRESSING_STYLE",
    "LONGSHORE_S3_CHECKSUM",
    "LONGSHORE_STORE_PATIENCE",
];

/// Variables for the program's own tests, doubles and scripts; the programs that they start inherit them.
const OF_TESTS: [&str; 4] = [
    "LONGSHORE_TEST_",
    "LONGSHORE_PG_",
    "LONGSHORE_DOUBLE_",
    "LONGSHORE_MUTATION_",
];
const OF_TESTS_WHOLE: [&str; 22] = [
    "LONGSHORE_ALL_MAJORS",
    "LONGSHORE_BUILT",
    "LONGSHORE_CASES",
    "LONGSHORE_CHAINS",
    "LONGSHORE_CHAIN_SEED",
    "LONGSHORE_FILES",
    "LONGSHORE_FLIPS",
    "LONGSHORE_HYBRID_WORLDS",
    "LONGSHORE_KILLS",
    "LONGSHORE_MEGABYTES",
    "LONGSHORE_NBD_PLUGIN",
    "LONGSHORE_NONSENSE",
    "LONGSHORE_OFFLOAD_SCHEDULES",
    "LONGSHORE_PYTHON",
    "LONGSHORE_QATZIP_WITNESS",
    "LONGSHORE_REQUIRE_TOOLS",
    "LONGSHORE_ROUNDS",
    "LONGSHORE_SEED",
    "LONGSHORE_SKIP_PEERS",
    "LONGSHORE_SOFTWARE_MB_S",
    "LONGSHORE_SOURCE",
    "LONGSHORE_WRITE_ANSWERS",
];

/// The environment variables that this program reads. `passwords`: those that the configuration names.
///
/// Errors: the name of a variable, and why it is refused: it is unknown, or it is not UTF-8 where it must be.
pub fn own(
    variables: impl Iterator<Item = (OsString, OsString)>,
    passwords: &[&str],
    forms: &[Form],
) -> Result<Vec<(String, String)>, (String, String)> {
    let mut own = Vec::new();
    for (name, value) in variables {
        if !name.as_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let shown = name.to_string_lossy().into_owned();
        let Ok(name) = name.into_string() else {
            return Err((shown, "its name is not UTF-8".to_owned()));
        };
        if PATHS.contains(&name.as_str()) {
            longshore_media::only_path(&value).map_err(|why| (shown, why))?;
            continue;
        }
        if passwords.contains(&name.as_str()) {
            continue;
        }
        if of_tests(&name) || of_kubernetes(&name, &value) {
            continue;
        }
        let Ok(value) = value.into_string() else {
            return Err((shown, "its value is not UTF-8".to_owned()));
        };
        if form(&name, forms).is_none() && !TEXTS.contains(&name.as_str()) {
            return Err((shown, unknown(&name, forms)));
        }
        own.push((name, value));
    }
    Ok(own)
}

fn of_tests(name: &str) -> bool {
    OF_TESTS_WHOLE.contains(&name) || OF_TESTS.iter().any(|prefix| name.starts_with(prefix))
}

/// Kubernetes gives each container variables about every service of its namespace; one may be named `longshore`.
fn of_kubernetes(name: &str, value: &OsStr) -> bool {
    let is_address = |value: &[u8]| {
        let schemes = ["tcp://", "udp://", "sctp://"];
        schemes.iter().any(|s| value.starts_with(s.as_bytes()))
    };
    let of_port = |rest: &str| {
        let mut parts = rest.split('_');
        parts.next().is_some_and(|n| n.parse::<u16>().is_ok())
            && parts
                .next()
                .is_some_and(|p| ["TCP", "UDP", "SCTP"].contains(&p))
    };
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || (name.ends_with("_PORT") && is_address(value.as_bytes()))
        || name
            .match_indices("_PORT_")
            .any(|(at, word)| of_port(&name[at + word.len()..]))
}

/// The reason why a variable is refused, and the probable intention.
fn unknown(name: &str, forms: &[Form]) -> String {
    let whole = PATHS.into_iter().chain(TEXTS);
    let near = nearest(name, whole).map(str::to_owned).or_else(|| {
        let rest = &name[PREFIX.len()..];
        let (table, key) = rest.split_once('_').unwrap_or((rest, ""));
        let tables: Vec<_> = forms.iter().map(|f| f.table.to_ascii_uppercase()).collect();
        let near = nearest(table, tables.iter().map(String::as_str))?;
        Some(format!("{PREFIX}{near}_{key}"))
    });
    let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    format!("longshore has no such variable{near}")
}

/// Writes one variable's value into the configuration. `None`: the variable does not belong to the configuration.
///
/// Errors: why the value is invalid.
pub fn apply(
    variable: &str,
    value: &str,
    config: &mut Table,
    forms: &[Form],
) -> Option<Result<(), String>> {
    let form = form(variable, forms)?;
    let rest = &variable[PREFIX.len() + form.table.len() + 1..];
    Some(set(form, rest, value, config))
}

/// The table that a variable names.
fn form<'f>(variable: &str, forms: &'f [Form]) -> Option<&'f Form> {
    let rest = variable.strip_prefix(PREFIX)?;
    let within = |form: &&Form| {
        let table = form.table.to_ascii_uppercase();
        rest.strip_prefix(table.as_str())
            .is_some_and(|r| r.starts_with('_'))
    };
    forms.iter().find(within)
}

fn set(form: &Form, rest: &str, value: &str, config: &mut Table) -> Result<(), String> {
    // The part before the key: the name and its `_`, or nothing.
    let before = |key: &str| {
        let key = key.replace('.', "_").to_ascii_uppercase();
        let name = rest.strip_suffix(key.as_str())?;
        match form.named {
            true => name.strip_suffix('_').filter(|name| !name.is_empty()),
            false => Some(name).filter(|name| name.is_empty()),
        }
    };
    let is_configured = |name: &str| {
        let table = config.get(form.table).and_then(Value::as_table);
        table.is_some_and(|table| table.keys().any(|key| capitals(key) == name))
    };
    // `MAIN_WAL_LEVEL` may be `wal.level` of main or `level` of main_wal: the configured name wins, else the longest
    // key.
    let fitting = form.keys.iter().filter_map(|key| Some((key, before(key)?)));
    let best = fitting.max_by_key(|(key, name)| (is_configured(name), key.len()));
    let Some((key, wanted)) = best else {
        let word = rest.to_ascii_lowercase();
        let word = word
            .rsplit_once('_')
            .map_or(word.as_str(), |(_, last)| last);
        let near = nearest(word, form.keys.iter().copied());
        let near = near.map_or(String::new(), |n| format!("; did you mean `{n}`?"));
        let keys: Vec<_> = form.keys.iter().map(|k| format!("`{k}`")).collect();
        return Err(format!(
            "it names no key of [{}]; expected one of {}{near}",
            form.table,
            keys.join(", ")
        ));
    };
    let table = child(config, form.table)?;
    let table = match form.named {
        false => table,
        true => {
            let name = configured(table, wanted)?;
            child(table, &name)?
        }
    };
    let (table, key) = match key.split_once('.') {
        Some((below, key)) => (child(table, below)?, key),
        None => (table, *key),
    };
    table.insert(key.to_owned(), valued(key, value));
    Ok(())
}

fn child<'a>(table: &'a mut Table, name: &str) -> Result<&'a mut Table, String> {
    table
        .entry(name)
        .or_insert_with(|| Value::Table(Table::new()))
        .as_table_mut()
        .ok_or_else(|| format!("{name:?} is not a table of the configuration"))
}

/// The name that a variable means.
fn configured(table: &Table, wanted: &str) -> Result<String, String> {
    let mut fitting = table.keys().filter(|name| capitals(name) == wanted);
    match (fitting.next(), fitting.next()) {
        (Some(one), None) => Ok(one.clone()),
        (Some(one), Some(other)) => Err(format!("it could mean {one:?} or {other:?}")),
        (None, _) => Ok(wanted.to_ascii_lowercase()),
    }
}

/// A name as variables write it.
fn capitals(name: &str) -> String {
    let sign = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_uppercase(),
        false => '_',
    };
    name.chars().map(sign).collect()
}

/// Numbers and truth values become such; a key that wants a text reads a number as text.
fn valued(key: &str, value: &str) -> Value {
    if let Some((_, mark)) = LISTS.iter().find(|(list, _)| *list == key) {
        let elements = value.split(*mark).map(|v| Value::String(v.into()));
        return Value::Array(elements.collect());
    }
    match (value.parse::<i64>(), value.parse::<bool>()) {
        (Ok(number), _) => Value::Integer(number),
        (_, Ok(truth)) => Value::Boolean(truth),
        _ => Value::String(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::FORMS;
    use super::*;

    fn applied(config: &str, variable: &str, value: &str) -> Result<String, String> {
        let mut table: Table = config.parse().unwrap();
        apply(variable, value, &mut table, FORMS).unwrap()?;
        Ok(table.to_string().replace('\n', " "))
    }

    #[test]
    fn a_variable_means_the_configured_name_or_makes_one() {
        let config = "[database.\"big-Sales\"]\nurl = \"a\"\n";
        let made = applied(config, "LONGSHORE_DATABASE_BIG_SALES_URL", "b").unwrap();
        assert_eq!(made, "[database.big-Sales] url = \"b\" ");
        let made = applied("", "LONGSHORE_DATABASE_SHOP_PASSWORD_FILE", "/x").unwrap();
        assert_eq!(made, "[database.shop] password_file = \"/x\" ");
        let made = applied("", "LONGSHORE_TARGET_N_DIRECTORIES", "/a:/b").unwrap();
        assert_eq!(made, "[target.n] directories = [\"/a\", \"/b\"] ");
        let made = applied("", "LONGSHORE_DEFAULTS_MAX_CPU", "25").unwrap();
        assert_eq!(made, "[defaults] max_cpu = 25 ");
    }

    #[test]
    fn a_key_of_the_wal_table_is_distinguished_from_a_name_that_ends_alike() {
        let made = applied("", "LONGSHORE_DATABASE_MAIN_WAL_LEVEL", "3").unwrap();
        assert_eq!(made, "[database.main.wal] level = 3 ");
        let config = "[database.main-wal]\nurl = \"a\"\n";
        let made = applied(config, "LONGSHORE_DATABASE_MAIN_WAL_LEVEL", "3").unwrap();
        assert!(made.starts_with("[database.main-wal] "), "{made}");
        assert!(
            made.contains("level = 3") && made.contains("url = \"a\""),
            "{made}"
        );
        let config = "[database.main]\nwal = 3\n";
        let refused = applied(config, "LONGSHORE_DATABASE_MAIN_WAL_ASYNC", "true").unwrap_err();
        assert!(refused.contains("is not a table"), "{refused}");
    }

    #[test]
    fn a_variable_that_names_no_key_or_two_is_refused() {
        let unknown = applied("", "LONGSHORE_DATABASE_SALES_TARGTE", "x").unwrap_err();
        assert!(unknown.ends_with("did you mean `target`?"), "{unknown}");
        assert!(applied("", "LONGSHORE_DATABASE_URL", "x").is_err());
        let two = "[target.a-b]\n[target.a_b]\n";
        let two = applied(two, "LONGSHORE_TARGET_A_B_DIRECTORIES", "/x").unwrap_err();
        assert!(two.contains("could mean"), "{two}");
    }

    #[test]
    fn other_variables_are_ignored() {
        let mut table = Table::new();
        for name in [
            "LONGSHORE_LOG",
            "LONGSHORE_CATALOG",
            "PATH",
            "LONGSHORE_DATABASES",
        ] {
            assert!(apply(name, "x", &mut table, FORMS).is_none(), "{name}");
        }
        assert!(table.is_empty());
    }

    #[test]
    fn a_variable_of_ours_that_means_nothing_is_refused_with_the_nearest_name() {
        let os = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
        let own = |name: &[u8], value: &[u8]| {
            own(
                [(os(name), os(value))].into_iter(),
                &["LONGSHORE_SECRET"],
                FORMS,
            )
        };
        for (name, near) in [
            ("LONGSHORE_CATALOGUE", "LONGSHORE_CATALOG"),
            ("LONGSHORE_CONFG", "LONGSHORE_CONFIG"),
            ("LONGSHORE_DATABSE_SHOP_URL", "LONGSHORE_DATABASE_SHOP_URL"),
            (
                "LONGSHORE_RETENTON_R_KEEP_FULL",
                "LONGSHORE_RETENTION_R_KEEP_FULL",
            ),
            ("LONGSHORE_SERV_LISTEN", "LONGSHORE_SERVE_LISTEN"),
        ] {
            let (shown, why) = own(name.as_bytes(), b"x").unwrap_err();
            assert_eq!(shown, name);
            let near = format!("did you mean `{near}`?");
            assert!(why.ends_with(&near), "{name}: {why}");
        }
        let (_, far) = own(b"LONGSHORE_WHATEVER_ELSE_THERE_IS", b"x").unwrap_err();
        assert!(far.ends_with("no such variable"), "{far}");
        for (name, value, why) in [
            (
                &b"LONGSHORE_DATABASE_A_URL"[..],
                &b"files:/\xff"[..],
                "value is not UTF-8",
            ),
            (b"LONGSHORE_LOG", b"\xff", "value is not UTF-8"),
            (b"LONGSHORE_X\xff", b"", "name is not UTF-8"),
        ] {
            let (_, said) = own(name, value).unwrap_err();
            assert!(said.ends_with(why), "{said}");
        }
        for (name, value) in [
            (&b"LONGSHORE_CONFIG"[..], &b"/\xff"[..]),
            (b"LONGSHORE_SECRET", b"x"),
            (b"LONGSHORE_REQUIRE_TOOLS", b"1"),
            (b"PATH", b"\xff"),
            (b"\xff", b""),
            (b"LONGSHORE_SERVICE_HOST", b"10.0.0.1"),
            (b"LONGSHORE_SERVE_SERVICE_PORT", b"1433"),
            (b"LONGSHORE_PORT", b"tcp://10.0.0.1:1433"),
            (b"LONGSHORE_PORT_1433_TCP_ADDR", b"10.0.0.1"),
        ] {
            assert!(own(name, value).unwrap().is_empty(), "{name:?}");
        }
        assert_eq!(own(b"LONGSHORE_LOG", b"debug").unwrap().len(), 1);
        assert!(own(b"LONGSHORE_PORT", b"1433").is_err());
    }
}
