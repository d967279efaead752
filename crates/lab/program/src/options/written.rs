//! The files that a study writes its report to, and the place where samples are kept.

use std::path::PathBuf;

use clap::Args;

/// The directory that keeps samples, unless an option names another one.
pub const WORK: &str = ".work/bench";

/// Further outputs of a study.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Report")]
pub struct OutputOptions {
    /// Write the report as one HTML file with plots; it needs no network and is replaced if it exists.
    ///
    /// For people: tables and plots on one page. By default only the tables are printed; for programs use --json.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write the report as Markdown, for a repository; replaced if it exists.
    ///
    /// It has the tables and the machine's facts. By default the report is only printed, as text; for plots use
    /// --html.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}
