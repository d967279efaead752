//! The volumes that directories stand for: what a study may say about several.
//!
//! Invariants
//! - Directories on one drive are one volume, however many there are: a report calls them directories of one drive.
//! - Emulated directories are a volume each, and the report says that they are emulated.
//! - Where a drive cannot be found out, all are taken for one.
//!
//! Leaves to others: finding the drives (`longshore-facts`), and emulating devices (`paced`).

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result};
use longshore_facts as facts;
use longshore_io::Storage;

use crate::paced::EmulatedVolumes;
use crate::report::{Report, counted};

/// The directories for stripes, and what is below them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetVolumes {
    /// Different ones.
    pub directories: usize,
    /// That share no drive.
    pub drives: usize,
    pub emulated: Option<EmulatedVolumes>,
}

impl TargetVolumes {
    /// Directories that do not exist yet are made, as they are for each backup.
    pub fn of(
        storage: &dyn Storage,
        dirs: &[PathBuf],
        emulated: Option<EmulatedVolumes>,
    ) -> Result<TargetVolumes> {
        let place = |dir: &PathBuf| -> Result<PathBuf> {
            storage
                .create_dir_all(dir)
                .and_then(|_| storage.canonical(dir))
                .with_context(|| format!("cannot open directory {}", dir.display()))
        };
        let places: BTreeSet<PathBuf> = dirs.iter().map(place).collect::<Result<_>>()?;
        let drives: std::io::Result<Vec<BTreeSet<String>>> =
            places.iter().map(|dir| facts::drives_of(dir)).collect();
        Ok(TargetVolumes {
            directories: places.len(),
            drives: drives.map_or(1, |drives| facts::groups_apart(&drives)),
            emulated,
        })
    }

    /// The number of volumes that a study may speak of.
    pub fn count(&self) -> usize {
        match self.emulated {
            Some(_) => self.directories,
            None => self.drives,
        }
    }

    /// `1 directory`, `4 directories of one drive`, `2 directories`.
    pub fn directories_told(&self) -> String {
        let directories = match self.directories {
            1 => "1 directory".to_owned(),
            n => format!("{n} directories"),
        };
        match self.drives {
            _ if self.emulated.is_some() || self.directories <= self.drives.max(1) => directories,
            0 | 1 => format!("{directories} of one drive"),
            n => format!("{directories} of {}", counted(n, "drive")),
        }
    }

    /// The words that every caption of a report has, if its volumes are no drives of their own.
    pub fn caption(&self) -> Option<String> {
        match &self.emulated {
            Some(rates) => Some(rates.to_string()),
            None => (self.directories > self.drives).then(|| self.directories_told()),
        }
    }

    /// The same as a sentence for the headline.
    pub fn sentence(&self) -> Option<String> {
        let caption = self.caption()?;
        Some(match self.emulated {
            Some(_) => format!("The devices are not real: {caption}."),
            None => format!("The volumes are {caption}."),
        })
    }
}

/// Puts `caption` into the title of a report, all its headings and the titles of its charts.
pub fn mark(report: &mut Report, caption: &str) {
    report.title = format!("{} ({caption})", report.title);
    for section in &mut report.sections {
        section.heading = format!("{} ({caption})", section.heading);
        for chart in &mut section.charts {
            chart.title = format!("{} ({caption})", chart.title);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::time::Duration;

    use longshore_io::Host;

    use super::*;
    use crate::paced::DeviceRate;

    fn volumes(directories: usize, drives: usize, is_emulated: bool) -> TargetVolumes {
        let target = DeviceRate {
            bytes_per_s: NonZeroU64::new(200 << 20).unwrap(),
            latency: Duration::ZERO,
        };
        let rates = EmulatedVolumes {
            target,
            source: None,
        };
        TargetVolumes {
            directories,
            drives,
            emulated: is_emulated.then_some(rates),
        }
    }

    #[test]
    fn directories_of_one_drive_are_told_and_are_one_volume() {
        let root = tempfile::tempdir().unwrap();
        let dirs: Vec<PathBuf> = (0..4).map(|n| root.path().join(n.to_string())).collect();
        let found = TargetVolumes::of(&Host::new(), &dirs, None).unwrap();
        assert_eq!((found.directories, found.drives, found.count()), (4, 1, 1));
        let told = "4 directories of one drive";
        assert_eq!(found.caption().as_deref(), Some(told));
        assert_eq!(
            found.sentence().unwrap(),
            format!("The volumes are {told}.")
        );
        let same = [dirs[0].clone(), root.path().join("./0")];
        let found = TargetVolumes::of(&Host::new(), &same, None).unwrap();
        assert_eq!((found.directories, found.caption()), (1, None));
    }

    #[test]
    fn only_drives_and_emulated_directories_are_volumes() {
        assert_eq!(volumes(4, 4, false).caption(), None);
        assert_eq!(volumes(4, 4, false).count(), 4);
        assert_eq!(
            volumes(4, 2, false).caption().as_deref(),
            Some("4 directories of 2 drives")
        );
        let emulated = volumes(4, 1, true);
        assert_eq!(emulated.count(), 4);
        assert_eq!(emulated.caption().as_deref(), Some("emulated at 200 MB/s"));
        assert_eq!(emulated.directories_told(), "4 directories");
    }
}
