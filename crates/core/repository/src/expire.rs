//! Expiry: removes the backups that no retention rule covers.
//!
//! A backup is first renamed to `LABEL.removing` in every directory of the target. Each rename is durable before the
//! next, and after the first one it no longer counts as a backup. Then the expire checks whether a program has
//! borrowed it meanwhile; then its stripes are removed. A crash in between leaves a removal that the next expire
//! finishes, never half a backup under its name. Differentials are removed before the backups they depend on.
//!
//! One expire at a time works on a shelf. WAL is removed last: a backup without its WAL is worthless, while WAL
//! without backups only takes space.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;
use crate::chain::{SetFacts, chain};
use crate::label::Label;
use crate::lease::{self, Lease, Use};
use crate::retention::{Decision, LogNeed, Policy, RetentionVerdict, decide};
use crate::shelf::{Listing, Shelf};
use crate::target::{REMOVING, family_of, is_reservation};
use longshore_io::Dir;
use longshore_wal::Need;

/// The decisions and the results of an expire.
#[derive(Debug)]
pub struct ExpireReport {
    pub listing: Listing,
    pub decision: Decision,
    /// For each set of the listing.
    pub fates: Vec<Fate>,
    pub log: LogFate,
}

/// The result for the database's WAL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogFate {
    /// There is no WAL.
    None,
    /// WAL that no kept backup needs was removed, or would be in a dry run.
    Removed {
        files: u64,
        stored_bytes: u64,
        /// Owners of records in the archive that keep WAL that no backup here needs.
        kept_for: Vec<Need>,
    },
    /// All WAL is kept: it is unknown who else relies on the archive, or what they need.
    Undecided(String),
    /// All WAL is kept: the need of a kept backup is unknown, because it is being written, damaged or unreachable.
    Unsure,
    /// All WAL is kept: it belongs to a cluster that has no kept backup here.
    OtherCluster { system: u64 },
    /// The run ended before this step.
    Left,
}

/// The result for a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Kept,
    /// Removed, or would be in a dry run.
    Removed,
    /// It was to be removed, but a program uses it now.
    Spared {
        holder: String,
    },
    /// The run ended before this step.
    Left,
}

impl Shelf {
    /// Decides and, unless `dry`, removes. `cancel` ends it between two backups.
    ///
    /// Errors: [`Error::Busy`] while another expire works here, and those of [`Shelf::list`].
    pub fn expire(
        &self,
        policy: &Policy,
        now_us: i64,
        dry: bool,
        cancel: &AtomicBool,
    ) -> Result<ExpireReport, Error> {
        let dirs = self.dirs()?;
        let home = dirs
            .iter()
            .zip(0..)
            .find_map(|(dir, i)| Some((dir.clone()?, i)));
        let Some((home, index)) = home.filter(|_| !dry) else {
            let listing = self.list()?;
            let decision = decide(&listing.facts(), policy, now_us);
            let fates = fates(&decision, &listing, Fate::Removed);
            let log = self.expire_log(true, &|| Ok(decision.log.clone()))?;
            return Ok(ExpireReport {
                listing,
                decision,
                fates,
                log,
            });
        };
        let own = self.lock(&home, &self.path(index))?;
        let touch = || own.touch().map_err(self.io("lock", &self.path(index)));
        let listing = self.list_at(touch()?)?;
        let facts = listing.facts();
        let decision = decide(&facts, policy, now_us);
        let mut fates = fates(&decision, &listing, Fate::Left);
        let dirs: Vec<(usize, Arc<dyn Dir>)> = dirs
            .into_iter()
            .enumerate()
            .filter_map(|(i, dir)| Some((i, dir?)))
            .collect();
        for i in decision.removals(&facts) {
            if cancel.load(Ordering::Relaxed) {
                break;
            }
            if !matches!(fates[i], Fate::Left) {
                continue;
            }
            match self.remove(&dirs, &listing.sets[i].label, touch()?)? {
                None => fates[i] = Fate::Removed,
                Some(holder) => spare(&facts, i, &holder, &mut fates),
            }
        }
        let log = if cancel.load(Ordering::Relaxed) {
            LogFate::Left
        } else {
            let need = || {
                let listing = self.list_at(touch()?)?;
                let standing = standing(listing.facts(), &facts, &fates);
                Ok(decide(&standing, policy, now_us).log)
            };
            self.expire_log(false, &need)?
        };
        Ok(ExpireReport {
            listing,
            decision,
            fates,
            log,
        })
    }

    fn expire_log(
        &self,
        dry: bool,
        need: &dyn Fn() -> Result<LogNeed, Error>,
    ) -> Result<LogFate, Error> {
        match self.wal()? {
            Some(archive) if archive.identity().is_some() => {
                self.expire_archive(&archive, dry, need)
            }
            _ => Ok(LogFate::None),
        }
    }

    /// Excludes other expires.
    fn lock(&self, home: &Arc<dyn Dir>, path: &Path) -> Result<Lease, Error> {
        let cannot = self.io("lock", path);
        let own = Lease::take(home.clone(), Use::Expire, &*self.clock).map_err(&cannot)?;
        let now_ns = own.touch().map_err(&cannot)?;
        let others = lease::holders(&**home, Some(own.name()), now_ns).map_err(&cannot)?;
        match others.first() {
            Some(other) => Err(Error::Busy {
                path: path.to_owned(),
                holder: other.text(),
            }),
            None => Ok(own),
        }
    }

    /// Returns the program that uses the backup, if any; then the backup stays.
    fn remove(
        &self,
        dirs: &[(usize, Arc<dyn Dir>)],
        label: &Label,
        now_ns: i64,
    ) -> Result<Option<String>, Error> {
        let name = PathBuf::from(label.as_str());
        let removing = PathBuf::from(format!("{label}{REMOVING}"));
        let mut renamed: Vec<&(usize, Arc<dyn Dir>)> = Vec::new();
        for at @ (i, dir) in dirs {
            let cannot = self.io("rename", &self.path(*i).join(&name));
            match dir.rename(&name, &removing) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                done => {
                    done.map_err(&cannot)?;
                    renamed.push(at);
                }
            }
            // Also where it was renamed before: by an expire that may have been killed before that was durable.
            dir.sync(Path::new("")).map_err(cannot)?;
        }
        let mut holder = None;
        for (i, dir) in dirs {
            match dir
                .dir(&removing)
                .and_then(|d| lease::holders(&*d, None, now_ns))
            {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                found => {
                    let found = found.map_err(self.io("list", &self.path(*i).join(&removing)))?;
                    holder = holder.or(found.first().map(lease::Holder::text));
                }
            }
        }
        if holder.is_some() {
            // A removal that had begun before remains one.
            for (i, dir) in renamed.into_iter().rev() {
                dir.rename(&removing, &name)
                    .and_then(|()| dir.sync(Path::new("")))
                    .map_err(self.io("rename", &self.path(*i).join(&removing)))?;
            }
            return Ok(holder);
        }
        for (i, dir) in dirs {
            match clear(&**dir, &removing) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                cleared => {
                    cleared.map_err(self.io("remove", &self.path(*i).join(&removing)))?;
                }
            }
        }
        Ok(None)
    }
}

fn fates(decision: &Decision, listing: &Listing, goes: Fate) -> Vec<Fate> {
    (0..listing.sets.len())
        .map(|i| match decision.verdicts[i] {
            RetentionVerdict::Keep(_) => Fate::Kept,
            RetentionVerdict::Remove(_) => goes.clone(),
        })
        .collect()
}

/// The sets that remain, as they are now, all of them to be kept. A set that was spared is in use, so its WAL is needed;
/// so is the WAL of a set that was added since, and of a whole one that this expire kept: a backup that was completed
/// meanwhile takes its place in the rules only at the next expire, which removes the older one first.
fn standing(now: Vec<SetFacts>, before: &[SetFacts], fates: &[Fate]) -> Vec<SetFacts> {
    let is_kept = |set: &SetFacts| {
        let mut before = before.iter().zip(fates);
        before.any(|(old, fate)| old.label == set.label && *fate == Fate::Kept)
    };
    now.into_iter()
        .map(|set| SetFacts {
            in_use: set.in_use || set.is_whole() || !is_kept(&set),
            ..set
        })
        .collect()
}

/// Keeps a set that is in use, and the sets it needs: the borrower may not have opened those yet.
fn spare(facts: &[SetFacts], index: usize, holder: &str, fates: &mut [Fate]) {
    for i in chain(facts, index).unwrap_or_else(|_| vec![index]) {
        if matches!(fates[i], Fate::Left) {
            let holder = holder.to_owned();
            fates[i] = Fate::Spared { holder };
        }
    }
}

/// Removes a backup's directory. Unknown names are left, and the directory with them.
fn clear(dir: &dyn Dir, name: &Path) -> io::Result<()> {
    let below = dir.dir(name)?;
    let mut strange = false;
    for file in below.list()? {
        let file = PathBuf::from(file?);
        let text = file.to_str().unwrap_or("");
        if family_of(text).is_some() || is_reservation(text) || text.starts_with(lease::PREFIX) {
            match below.remove_file(&file) {
                // A lease that ended just now.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        } else {
            strange = true;
        }
    }
    if strange {
        return Ok(());
    }
    dir.remove_dir(name)?;
    dir.sync(Path::new(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;
    use longshore_io::{Host, HostClock, Storage};
    use longshore_pg::Lsn;

    #[test]
    fn a_borrower_who_comes_between_the_decision_and_the_rename_is_noticed() {
        let temp = tempfile::tempdir().unwrap();
        let label: Label = "20270131T020000Z-full-1a2b3c4d".parse().unwrap();
        let directories: Vec<PathBuf> = ["a", "b"].iter().map(|d| temp.path().join(d)).collect();
        for dir in &directories {
            std::fs::create_dir_all(dir.join("db").join(label.as_str())).unwrap();
        }
        let target = Target {
            name: "t".into(),
            directories: directories.clone(),
        };
        let shelf = Shelf::new(Arc::new(Host::new()), Arc::new(HostClock), &target, "db").unwrap();
        let dirs: Vec<_> = shelf
            .dirs()
            .unwrap()
            .into_iter()
            .flatten()
            .enumerate()
            .collect();
        let place = directories[0].join("db").join(label.as_str());
        let dir = Host::new().dir(&place).unwrap();
        let lease = Lease::take(dir, Use::Read, &HostClock).unwrap();
        let now_ns = lease.touch().unwrap();
        let holder = shelf.remove(&dirs, &label, now_ns).unwrap();
        assert!(holder.is_some_and(|h| h.starts_with("read by process")));
        for dir in &directories {
            assert!(dir.join("db").join(label.as_str()).exists());
        }
        drop(lease);
        assert_eq!(shelf.remove(&dirs, &label, now_ns).unwrap(), None);
        for dir in &directories {
            assert_eq!(std::fs::read_dir(dir.join("db")).unwrap().count(), 0);
        }
    }

    /// Goal: WAL goes only after the backups that need it, whatever was completed, or given back, since the decision.
    #[test]
    fn a_backup_that_stays_keeps_its_wal_whatever_came_since_the_decision() {
        use crate::branch::tests::of_server;
        let policy = Policy {
            keep_full: Some(1),
            ..Policy::default()
        };
        let (spared, kept) = (of_server(1, 10, 1), of_server(2, 20, 1));
        let before = [spared.clone(), kept.clone()];
        let decided = decide(&before, &policy, 9_000_000);
        assert_eq!(decided.removals(&before), [0]);
        let holder = "somebody".to_owned();
        // Its borrower has ended, and another backup was completed.
        for spared_fate in [Fate::Spared { holder }, Fate::Left] {
            let now = vec![spared.clone(), kept.clone(), of_server(3, 30, 1)];
            let fates = [spared_fate, Fate::Kept];
            let log = decide(&standing(now, &before, &fates), &policy, 9_000_000).log;
            assert!(!log.all);
            let timeline = 1;
            for set in &before {
                let first = set.log.unwrap().first_lsn;
                assert!(
                    log.needs(1, timeline, Lsn(first), Lsn(first + 1)),
                    "{first}"
                );
            }
            assert!(!log.needs(1, timeline, Lsn(5), Lsn(9)));
        }
    }

    #[test]
    fn a_backup_in_use_keeps_its_chain() {
        use crate::chain::tests::{diff, full};
        let a = full(1);
        let b = diff(2, &a);
        let facts = [a, b, full(3)];
        let mut fates = vec![Fate::Left, Fate::Left, Fate::Left];
        spare(&facts, 1, "somebody", &mut fates);
        assert!(matches!(fates[0], Fate::Spared { .. }));
        assert!(matches!(fates[1], Fate::Spared { .. }));
        assert_eq!(fates[2], Fate::Left);
    }
}
