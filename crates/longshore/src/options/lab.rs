//! `longshore lab`: sample data and studies.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use super::values;

/// Builds sample data and measures this machine.
#[derive(Debug, Args)]
pub struct Lab {
    #[command(subcommand)]
    pub action: LabAction,
}

#[derive(Debug, Subcommand)]
pub enum LabAction {
    Sample(Sample),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Order entry with TPC-C's population rules: mostly random strings.
    Tprocc,
    /// Stock trading in the manner of TPC-E: names, prices, timestamps.
    Stae,
}

impl From<Kind> for longshore_lab::sample::SampleKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Tprocc => Self::Tprocc,
            Kind::Stae => Self::Stae,
        }
    }
}

/// Builds SQLite databases with realistic content, the same bytes on every run.
///
/// Two kinds, because databases compress differently: tprocc holds mostly random strings, stae what people's
/// tables look like. Split over files and directories, several readers have work.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  longshore lab sample tprocc --size 800M shop.db
  longshore lab sample stae --size 4G --files 4 --dir /mnt/a --dir /mnt/b

Not for: benchmarks of transactions; the data only has to be realistic to read and compress.",
    group = ArgGroup::new("place").required(true).multiple(true).args(["file", "dir"]))]
pub struct Sample {
    #[arg(value_enum, help = "What the database holds")]
    pub kind: Kind,

    /// The file to build; with --files or --dir leave it out.
    #[arg(value_name = "FILE", conflicts_with_all = ["dir", "files"])]
    pub file: Option<PathBuf>,

    /// Size of all files together, met within 2 %.
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    pub size: u64,

    /// Split over so many files, KIND-1.db, KIND-2.db and so on; the default is one for each --dir.
    #[arg(long, value_name = "N", requires = "dir", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub files: Option<u16>,

    /// A directory for the files; they take turns. Repeatable; made when missing.
    #[arg(long, value_name = "DIR")]
    pub dir: Vec<PathBuf>,

    /// The content follows from this number: another one, other content.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Leave the files in WAL mode instead of rollback-journal mode.
    #[arg(long)]
    pub wal: bool,

    /// Overwrite files that exist.
    #[arg(long)]
    pub replace: bool,
}
