//! The configuration as T-SQL sees it: databases by name, and defaults for what statements omit.
//!
//! Invariants
//! - A database that is configured wrongly has a name all the same, and the reason is the answer to every statement
//!   that uses it.
//! - A database that was given on the command line replaces one of the configuration.
//! - Looking for accelerators has a time limit, and loads no library if hardware is not wanted.
//!
//! Leaves to others: reading the configuration (`config`), and statements (`tsql`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore_accelerators::{AcceleratorSettings as Offload, Probe};
use longshore_facts as facts;
use longshore_pipeline::{Limits, RunContext, SourceSpec, Tuning};
use longshore_repository::Places;
use longshore_tsql::{Database, Databases, Defaults, Memory, Setup, Unusable};

use crate::commands::archive::ArchiveLocation;
use crate::commands::source;
use crate::context::Context;
use crate::core_dumps;
use crate::keys;
use crate::options::KeyOptions;
use longshore_terminal::failure::Failure;

/// The limit for loading the accelerators' libraries and one test each.
const PATIENCE: Duration = Duration::from_secs(60);

/// Every database that can be named, or the reason why it cannot be used.
struct NamedDatabases {
    names: Vec<String>,
    databases: BTreeMap<String, Result<Database, Unusable>>,
}

impl Databases for NamedDatabases {
    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    fn find(&self, name: &str) -> Result<Option<Database>, Unusable> {
        self.databases.get(name).cloned().transpose()
    }
}

fn unusable(failure: Failure, place: Option<PathBuf>) -> Unusable {
    let causes: String = failure.causes.iter().map(|c| format!(": {c}")).collect();
    Unusable {
        text: failure.text + &causes,
        hint: failure.hint,
        place,
    }
}

/// The database's WAL archive: as configured, or the one found at the target.
fn wal(context: &Context, name: &str) -> Option<PathBuf> {
    let place = ArchiveLocation::of_database(context, name, None).ok()?;
    let is_configured = context.config.wal_of(name).is_some();
    (is_configured || place.existing(context).is_ok()).then(|| place.path())
}

/// A server over the configuration. `given`: additional databases, each `NAME=SOURCE`; `backup_directory`: defaults to
/// the working directory.
pub fn setup(
    given: &[String],
    backup_directory: Option<&Path>,
    context: &Context,
) -> Result<Setup, Failure> {
    // Statements open master keys and certificates.
    core_dumps::forbid();
    let defaults = &context.config.defaults;
    let whole = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let named = named(given, context)?;
    let directory = match backup_directory {
        Some(directory) => std::path::absolute(directory),
        None => std::env::current_dir(),
    };
    let backup_directory = directory.map_err(|e| {
        let mut failure = Failure::usage(
            "there is no directory for relative device names",
            "name one with --backup-directory",
        );
        failure.causes.push(e.to_string());
        failure
    })?;
    let clock = context.clock.clone();
    let prober = move |configured: Offload| match std::env::current_exe() {
        Ok(program) if configured.wants_hardware() => {
            Probe::test_in_children(&program, &*clock, PATIENCE)
        }
        _ => Probe::look(),
    };
    // A host that only restores may have nobody to encrypt for, and no key to sign with.
    let rules = KeyOptions::default();
    let (sign, encrypt_to) = match keys::signing_key(context, (None, &rules), true) {
        Ok(sign) => (sign, keys::recipients(context, &[], (None, false))),
        Err(failure) => (None, Err(failure)),
    };
    Ok(Setup {
        memory: Memory::unbounded(),
        name: facts::host_name(),
        context: RunContext {
            keyring: Arc::new(keys::keyring(context, &rules)?.signing_with(sign)),
            ..context.run_context()
        },
        databases: Arc::new(named),
        defaults: Defaults {
            tuning: Tuning {
                buffer_count: defaults.buffer_count.map(|n| whole(n.into())),
                buffer_bytes: defaults.max_transfer_size.map(whole),
            },
            limits: Limits {
                rate_bytes_per_s: defaults.max_rate,
                cpu_percent: defaults.max_cpu,
                low_io_priority: defaults.low_io_priority,
            },
            retain_days: defaults.retain_days,
            algorithm: defaults.algorithm,
            level: defaults.level,
        },
        encrypt_to: encrypt_to.map_err(|failure| Unusable {
            text: failure.text,
            hint: failure.hint,
            place: None,
        }),
        backup_directory,
        directories: None,
        buckets: None,
        kept_buckets: targets_buckets(context),
        reserved: context.config.path.clone().into_iter().collect(),
        prober: Arc::new(prober),
        logins: Arc::new(Vec::new),
    })
}

/// The prefixes of all targets.
fn targets_buckets(context: &Context) -> Vec<String> {
    let targets = context.config.target.iter();
    let places = targets.filter_map(|(name, target)| target.places(name).ok());
    let buckets = places.filter_map(|places| match places {
        Places::Buckets(prefixes) => Some(prefixes),
        Places::Directories(_) => None,
    });
    buckets.flatten().map(|prefix| prefix.to_string()).collect()
}

/// The databases of the configuration, and the given ones.
fn named(given: &[String], context: &Context) -> Result<NamedDatabases, Failure> {
    let mut named = NamedDatabases {
        names: Vec::new(),
        databases: BTreeMap::new(),
    };
    for (name, database) in &context.config.database {
        let found = source::configured(context, name, database).map(|source| Database {
            name: name.clone(),
            source,
            algorithm: database.algorithm,
            level: database.level,
            wal: wal(context, name),
            trust_locks: database.trust_locks,
            server_config: database.server_config.unwrap_or(true),
        });
        // A bare path whose file is lost, and so cannot be inspected, is still a path.
        let path = Path::new(&database.url);
        let place = path.is_absolute().then(|| path.to_path_buf());
        named.names.push(name.clone());
        named
            .databases
            .insert(name.clone(), found.map_err(|e| unusable(e, place)));
    }
    for given in given {
        let Some((name, url)) = given
            .split_once('=')
            .filter(|(n, u)| !n.is_empty() && !u.is_empty())
        else {
            return Err(Failure::usage(
                format!("--database {given}: write a name and a source"),
                "for example --database shop=/srv/shop.db",
            ));
        };
        let database = Database {
            name: name.to_owned(),
            source: SourceSpec::parse(&*context.storage, &[url.into()])?,
            algorithm: None,
            level: None,
            wal: None,
            trust_locks: false,
            server_config: true,
        };
        if named
            .databases
            .insert(name.to_owned(), Ok(database))
            .is_none()
        {
            named.names.push(name.to_owned());
        }
    }
    Ok(named)
}

#[cfg(test)]
#[path = "../../../../sql/tsql/tests/databases/suite.rs"]
mod databases_suite;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_keeps_the_contract_of_all_lists_of_databases() {
        let mut named = NamedDatabases {
            names: Vec::new(),
            databases: BTreeMap::new(),
        };
        assert!(databases_suite::keeps_its_contract(&named).is_empty());
        let shop = Database {
            name: "shop".into(),
            source: SourceSpec::Sqlite("/srv/shop.db".into()),
            algorithm: None,
            level: None,
            wal: None,
            trust_locks: false,
            server_config: true,
        };
        let lost = Failure::usage("no password", "set PGPASSWORD");
        for (name, found) in [("shop", Ok(shop)), ("lost", Err(unusable(lost, None)))] {
            named.names.push(name.into());
            named.databases.insert(name.into(), found);
        }
        assert_eq!(databases_suite::keeps_its_contract(&named), ["shop"]);
    }
}
