//! `longshore lab figure` and `figures`: published figures made again.
//!
//! Invariants
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`; tests of the options
//!   demand both.
//!
//! Leaves to others: the meaning of the options (`figures.rs` in `commands`).

use std::path::PathBuf;

use clap::Args;
use longshore_terminal::values;

use super::emulated::EmulateOptions;
use super::written::WORK;

/// How figures are made.
#[derive(Debug, Clone, Args)]
pub struct FigureOptions {
    /// Directory for the files: ID.html, ID.md and ID.json; created if missing.
    ///
    /// Files of the same names are replaced. Without it `figure` only prints, and `figures` writes into `figures` in
    /// the working directory.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Directories for the stripes, in turn [default: --work].
    ///
    /// The published studies wrote to two and to four drives: give a directory on each. One directory plays all
    /// volumes, and the figure says so; so it does of several directories of one drive. The stripes are removed.
    #[arg(long, value_name = "DIR")]
    pub dir: Vec<PathBuf>,

    /// Size of each sample database [default: 1G, with --quick 24M].
    ///
    /// The published databases had 17 to 500 GB. To measure disks give more than the memory.
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    pub size: Option<u64>,

    /// Backups of each kind, alternating; the medians count [default: 3, with --quick 1].
    ///
    /// A statement counts as confirmed or contradicted only if all rounds are on one side. With fewer than three the
    /// headline says that chance may decide.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: Option<u16>,

    /// Least time of each phase under load [default: 20, with --quick 1].
    ///
    /// Only for S0.F6 and S0.F7, which put a load on a database. One backup at least is made in each phase.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..))]
    pub phase: Option<u16>,

    /// Directory that keeps samples between figures [default: .work/bench].
    ///
    /// The default is in the working directory, because samples are large. For PostgreSQL's part as root, user postgres
    /// must be able to enter it. Figures that are modelled have no sample, so with them it is refused.
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,

    /// A trial run: small samples, few points, one round. The numbers mean little.
    ///
    /// For trying out the command and its outputs; the headline says that it was a trial.
    #[arg(long)]
    pub quick: bool,

    #[command(flatten)]
    pub devices: EmulateOptions,
}

impl FigureOptions {
    /// The directory that keeps samples.
    pub fn place(&self) -> PathBuf {
        self.work.clone().unwrap_or_else(|| WORK.into())
    }
}

const TEACH_FIGURE: &str = "\
Examples:
  longshore lab figure S0.F5 --out figures
  longshore lab figure S1.R8 --dir /disk1 --dir /disk2 --size 64G
  longshore lab figure S3.F4 --dir a --dir b --dir c --dir d --emulate 200M
  longshore lab figures --list

Not for: your own data: `longshore lab compare --source` measures them.";

/// Makes one published figure or table again: ours, the published values, and whether they agree.
///
/// `longshore lab figures --list` has the 22 names. Of pictures whose numbers are in no text only the published order is
/// compared. The page names contradictions and their sign, and what this machine cannot show.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_FIGURE)]
pub struct FigureOfPaper {
    /// The figure, such as S0.F5.
    pub id: String,

    #[command(flatten)]
    pub made: FigureOptions,
}

const TEACH_ALL_FIGURES: &str = "\
Examples:
  longshore lab figures --list
  longshore lab figures --quick --out figures

Not for: a busy machine: each page would say that its times mean little.";

/// Makes all 22 published figures and tables again, with an index page.
///
/// Each has a page, Markdown and JSON; index.html shows all with small pictures. A study that several figures show runs
/// once. A figure that cannot be made here is on the index with the reason; the exit code is then 1.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_ALL_FIGURES)]
pub struct FiguresOfPapers {
    /// Print the table of all figures, and make none.
    ///
    /// It names each figure, how sure its published values are, and the command that makes it. Without it all are made.
    #[arg(long, conflicts_with_all = ["out", "dir", "size", "rounds", "phase", "work", "quick", "emulate", "emulate_source"])]
    pub list: bool,

    #[command(flatten)]
    pub made: FigureOptions,
}
