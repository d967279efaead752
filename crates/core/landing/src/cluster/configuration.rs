//! The configuration that a restored cluster had outside its data directory, and how a server is started with it.
//!
//! Invariants
//! - Nothing is written: a restore puts the copies into the data directory, and only a person puts them elsewhere.
//! - Paths that the media name are shown, quoted for a shell, and never opened: only names below the restored directory
//!   are.
//! - A restored directory that cannot be read has no configuration; nothing fails.
//!
//! Leaves to others: the names in a set (`longshore-pg`), and collecting the files (`longshore-source`).

use std::path::{Path, PathBuf};

use longshore_io::{Dir, FileKind, Storage};
use longshore_pg::set_notes::{CONFIG_FACTS, ConfigFacts, copy_of};

use super::subscribed::text;

/// Longest facts that are read, in bytes.
const FACTS_MAX: u64 = 64 << 10;
/// Where Debian's tools have configurations.
const DEBIAN: &str = "/etc/postgresql";
/// The version whose statistics are in a directory of their own that Debian's configuration names.
const STATS_DIRECTORY: &str = "14";

/// The configuration of a restored cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredConfiguration {
    /// The originals of the files that the server's settings name, outside its data directory then.
    pub config_file: Option<String>,
    pub hba_file: Option<String>,
    pub ident_file: Option<String>,
    /// The directory of the copies.
    pub copies: String,
    /// A command that starts the server with the copies.
    pub start: String,
}

/// What there is to tell about the configuration of the cluster at `data`, which was restored and never started: the
/// notice, and the facts if the set has copies.
pub fn restored_configuration(
    storage: &dyn Storage,
    data: &Path,
) -> (Option<String>, Option<RestoredConfiguration>) {
    let dir = storage.dir(data).ok();
    // Parts of a set are no cluster.
    let Some(dir) = dir.filter(|dir| dir.stat(Path::new("PG_VERSION")).is_ok()) else {
        return (None, None);
    };
    let real = storage.canonical(data).unwrap_or_else(|_| data.to_owned());
    let facts = text(&*dir, Path::new(CONFIG_FACTS), FACTS_MAX).ok();
    match facts.and_then(|text| ConfigFacts::parse(&text)) {
        Some(facts) => {
            let own = storage.canonical(&facts.data_directory);
            let found = Copies {
                dir: &*dir,
                data: &real,
                is_at_its_place: own.is_ok_and(|own| own == real),
                facts: &facts,
            };
            (Some(found.told()), Some(found.report()))
        }
        None if dir.stat(Path::new("postgresql.conf")).is_err() => {
            let told = "this cluster has no postgresql.conf: its configuration was outside its data directory and is not in \
                the backup. Start the server with its own one, as pg_ctlcluster does, or with -c config_file=FILE";
            (Some(told.to_owned()), None)
        }
        None => (None, None),
    }
}

struct Copies<'a> {
    dir: &'a dyn Dir,
    /// The restored data directory, without links.
    data: &'a Path,
    /// Whether that is where the original was.
    is_at_its_place: bool,
    facts: &'a ConfigFacts,
}

impl Copies<'_> {
    /// The copy of a file that was outside the data directory.
    fn copy(&self, original: &Path) -> Option<PathBuf> {
        if original.starts_with(&self.facts.data_directory) {
            return None;
        }
        let name = copy_of(original)?;
        let found = self.dir.stat(&name).ok()?;
        (found.kind == FileKind::File).then(|| self.data.join(name))
    }

    /// A file that was inside the data directory, where it is now. The configuration may name its original place.
    fn restored(&self, original: &Path) -> Option<PathBuf> {
        let name = original.strip_prefix(&self.facts.data_directory).ok()?;
        let found = self.dir.stat(name).ok()?;
        (found.kind == FileKind::File).then(|| self.data.join(name))
    }

    /// `pg_ctl` with the copies in the place of the originals.
    fn start(&self) -> String {
        let files = [
            ("config_file", &self.facts.config_file),
            ("hba_file", &self.facts.hba_file),
            ("ident_file", &self.facts.ident_file),
        ];
        let mut options = vec![format!("-c data_directory={}", quoted_path(self.data))];
        for (name, original) in files {
            if let Some(copy) = self.copy(original).or_else(|| self.restored(original)) {
                options.push(format!("-c {name}={}", quoted_path(&copy)));
            }
        }
        // The original's, if it runs on this machine.
        options.push("-c external_pid_file=".to_owned());
        let version = text(self.dir, Path::new("PG_VERSION"), 64).unwrap_or_default();
        if version.trim_ascii() == STATS_DIRECTORY.as_bytes() {
            options.push("-c stats_temp_directory=pg_stat_tmp".to_owned());
        }
        format!(
            "pg_ctl -D {} -o {} start",
            quoted_path(self.data),
            quoted(&options.join(" "))
        )
    }

    /// The version and the name of a cluster of Debian's tools, restored to its own place.
    fn debian(&self) -> Option<(&Path, &str, &str)> {
        let dir = self.facts.config_file.parent()?;
        let mut names = dir.strip_prefix(DEBIAN).ok()?.iter();
        let version = names.next()?.to_str()?;
        let name = names.next()?.to_str()?;
        let is_own = names.next().is_none() && self.is_at_its_place;
        is_own.then_some((dir, version, name))
    }

    fn told(&self) -> String {
        let copies = self.data.join("longshore-config/files");
        let named = [
            &self.facts.config_file,
            &self.facts.hba_file,
            &self.facts.ident_file,
        ];
        if named.iter().all(|original| self.copy(original).is_none()) {
            return format!(
                "files that the server's configuration includes were outside its data directory; copies are in {}: put them \
                 back to their original paths, or correct the includes, before the server is started",
                copies.display()
            );
        }
        let Some((dir, version, name)) = self.debian() else {
            return format!(
                "the server's configuration was outside its data directory ({}); copies are in {}. To start the server with \
                 them: {}",
                self.facts.config_file.display(),
                copies.display(),
                self.start()
            );
        };
        let above = dir.parent().unwrap_or(dir);
        let copy = self.data.join(copy_of(dir).unwrap_or_default());
        format!(
            "the server's configuration was in {0}; copies are in {1}. If {0} is lost, put it back as root: mkdir -p {2} && \
             cp -a {3} {2}/; to start the server: pg_ctlcluster {4} {5} start",
            dir.display(),
            copies.display(),
            quoted_path(above),
            quoted_path(&copy),
            quoted(version),
            quoted(name)
        )
    }

    fn report(&self) -> RestoredConfiguration {
        let shown =
            |original: &PathBuf| self.copy(original).map(|_| original.display().to_string());
        RestoredConfiguration {
            config_file: shown(&self.facts.config_file),
            hba_file: shown(&self.facts.hba_file),
            ident_file: shown(&self.facts.ident_file),
            copies: self
                .data
                .join("longshore-config/files")
                .display()
                .to_string(),
            start: self.start(),
        }
    }
}

fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// One word for a shell.
fn quoted(word: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "_./+@:,-".contains(c);
    match !word.is_empty() && word.chars().all(is_safe) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use longshore_io::SimDisk;

    use super::*;

    fn cluster(data: &str, config: &str, files: &[&str]) -> SimDisk {
        let disk = SimDisk::new(1);
        let facts = ConfigFacts {
            data_directory: "/var/lib/postgresql/15/main".into(),
            config_file: config.into(),
            hba_file: "/etc/postgresql/15/main/pg_hba.conf".into(),
            ident_file: "/var/lib/postgresql/15/main/pg_ident.conf".into(),
        };
        let at = |name: &Path| Path::new(data).join(name);
        disk.write_file(at(Path::new("PG_VERSION")), b"15\n")
            .unwrap();
        disk.write_file(at(Path::new(CONFIG_FACTS)), &facts.format())
            .unwrap();
        disk.write_file(at(Path::new("pg_ident.conf")), b"")
            .unwrap();
        for file in files {
            disk.write_file(at(&copy_of(Path::new(file)).unwrap()), b"x")
                .unwrap();
        }
        disk
    }

    const OWN: &str = "/etc/postgresql/15/main/postgresql.conf";
    const HBA: &str = "/etc/postgresql/15/main/pg_hba.conf";

    #[test]
    fn a_copy_elsewhere_is_started_with_the_copies_of_what_was_outside() {
        let disk = cluster("/srv/a b/data", OWN, &[OWN, HBA]);
        let (told, found) = restored_configuration(&disk, Path::new("/srv/a b/data"));
        let found = found.unwrap();
        let copies = "/srv/a b/data/longshore-config/files/etc/postgresql/15/main";
        let inner = |name: &str| format!("'\\''{copies}/{name}'\\''");
        let expected = format!(
            "pg_ctl -D '/srv/a b/data' -o '-c data_directory='\\''/srv/a b/data'\\'' -c config_file={} -c hba_file={} -c ident_file='\\''/srv/a b/data/pg_ident.conf'\\'' -c external_pid_file=' start",
            inner("postgresql.conf"),
            inner("pg_hba.conf")
        );
        assert_eq!(found.start, expected);
        assert!(told.unwrap().contains(&expected));
        assert_eq!(
            (found.config_file.as_deref(), found.ident_file),
            (Some(OWN), None)
        );
    }

    #[test]
    fn a_cluster_of_debians_at_its_own_place_is_started_by_debians_tool() {
        let data = "/var/lib/postgresql/15/main";
        let disk = cluster(data, OWN, &[OWN, HBA]);
        let told = restored_configuration(&disk, Path::new(data)).0.unwrap();
        assert!(
            told.contains("cp -a /var/lib/postgresql/15/main/longshore-config/files/etc/postgresql/15/main /etc/postgresql/15/; to start the server: pg_ctlcluster 15 main start"),
            "{told}"
        );
    }

    #[test]
    fn a_cluster_without_any_configuration_says_so_and_one_with_its_own_says_nothing() {
        let disk = SimDisk::new(1);
        disk.write_file("/d/PG_VERSION", b"15\n").unwrap();
        let (told, found) = restored_configuration(&disk, Path::new("/d"));
        assert!(told.unwrap().contains("no postgresql.conf") && found.is_none());
        disk.write_file("/d/postgresql.conf", b"").unwrap();
        assert_eq!(restored_configuration(&disk, Path::new("/d")), (None, None));
        // Facts that no backup writes are none.
        disk.write_file("/d/longshore-config/settings", b"config_file ../x\n")
            .unwrap();
        assert_eq!(restored_configuration(&disk, Path::new("/d")), (None, None));
    }

    #[test]
    fn a_word_for_a_shell_is_one_word() {
        for (word, expected) in [
            ("a/b-1.c", "a/b-1.c"),
            ("", "''"),
            ("$(x)", "'$(x)'"),
            ("a'b", "'a'\\''b'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
