//! The environment's say: `LONGSHORE_DATABASE_SALES_URL` is `url` in `[database.sales]`.
//!
//! A name in a variable stands for the configured one that is equal in capitals with `_` for every other sign; one
//! that is not configured is made, in small letters. Only variables that begin with a table's name are looked at.

use toml::{Table, Value};

use super::near::nearest;

const PREFIX: &str = "LONGSHORE_";

/// A table of the configuration and its keys. `named`: one for each name.
struct Form {
    table: &'static str,
    named: bool,
    keys: &'static [&'static str],
}

/// Keys whose value is a list; in a variable it is divided by colons.
const LISTS: [&str; 1] = ["directories"];

const FORMS: [Form; 5] = [
    Form {
        table: "database",
        named: true,
        keys: super::Database::KEYS,
    },
    Form {
        table: "target",
        named: true,
        keys: super::Target::KEYS,
    },
    Form {
        table: "retention",
        named: true,
        keys: super::Retention::KEYS,
    },
    Form {
        table: "defaults",
        named: false,
        keys: super::Defaults::KEYS,
    },
    Form {
        table: "serve",
        named: false,
        keys: super::Serve::KEYS,
    },
];

/// Puts one variable's value where it belongs. `None`: it is none of the configuration's.
///
/// Errors: why it cannot be meant.
pub fn apply(variable: &str, value: &str, config: &mut Table) -> Option<Result<(), String>> {
    let rest = variable.strip_prefix(PREFIX)?;
    let within = |form: &&Form| {
        let table = form.table.to_ascii_uppercase();
        rest.strip_prefix(table.as_str())
            .is_some_and(|r| r.starts_with('_'))
    };
    let form = FORMS.iter().find(within)?;
    Some(set(form, &rest[form.table.len() + 1..], value, config))
}

fn set(form: &Form, rest: &str, value: &str, config: &mut Table) -> Result<(), String> {
    // What stands before the key: the name and its `_`, or nothing.
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
    // `MAIN_WAL_LEVEL` may be `wal.level` of main or `level` of main_wal: the one that is configured is meant, else
    // the longest key.
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
            "no key of [{}] is named there, expected one of {}{near}",
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
        .ok_or_else(|| format!("{name:?} is no table in the configuration"))
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

/// Numbers and truth values as such; a number that a key wants as text is read as text there.
fn valued(key: &str, value: &str) -> Value {
    if LISTS.contains(&key) {
        return Value::Array(value.split(':').map(|v| Value::String(v.into())).collect());
    }
    match (value.parse::<i64>(), value.parse::<bool>()) {
        (Ok(number), _) => Value::Integer(number),
        (_, Ok(truth)) => Value::Boolean(truth),
        _ => Value::String(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(config: &str, variable: &str, value: &str) -> Result<String, String> {
        let mut table: Table = config.parse().unwrap();
        apply(variable, value, &mut table).unwrap()?;
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
    fn a_key_of_the_log_is_told_from_a_name_that_ends_alike() {
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
        assert!(refused.contains("no table"), "{refused}");
    }

    #[test]
    fn what_names_no_key_or_two_names_is_refused() {
        let unknown = applied("", "LONGSHORE_DATABASE_SALES_TARGTE", "x").unwrap_err();
        assert!(unknown.ends_with("did you mean `target`?"), "{unknown}");
        assert!(applied("", "LONGSHORE_DATABASE_URL", "x").is_err());
        let two = "[target.a-b]\n[target.a_b]\n";
        let two = applied(two, "LONGSHORE_TARGET_A_B_DIRECTORIES", "/x").unwrap_err();
        assert!(two.contains("could mean"), "{two}");
    }

    #[test]
    fn other_variables_are_nobodys_business() {
        let mut table = Table::new();
        for name in [
            "LONGSHORE_LOG",
            "LONGSHORE_CATALOG",
            "PATH",
            "LONGSHORE_DATABASES",
        ] {
            assert!(apply(name, "x", &mut table).is_none(), "{name}");
        }
        assert!(table.is_empty());
    }
}
