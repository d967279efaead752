//! The table of options: one definition makes parser, short and long help, man page and completions.
//!
//! One file per group of commands.
//!
//! Invariants
//! - The first line of an option's comment is its short help (`-h`), the rest teaches (`--help`): what it is for, when
//!   not to use it, the default and how it was chosen, or what happens without the option. The short help of a command
//!   fits a screen.
//! - Parsing opens no file, and an option that takes a path refuses the address of an object store.
//!
//! Leaves to others: the meaning of the options (`commands`), and options that every program has
//! (`longshore-terminal`).

mod accelerator;
mod backup;
mod cache;
mod cache_service;
mod catalog;
mod forwarded;
mod inspect;
mod keys;
mod offload;
mod project;
mod recovery;
mod repository;
mod restore;
mod serve;
mod sql;
mod wal;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
pub use longshore_terminal::global::Global;
pub use longshore_terminal::values;

pub use accelerator::{Accelerator, AcceleratorAction, Doctor};
pub use backup::Backup;
pub use cache::{Cache, CacheAction, CacheCalibrate};
pub use cache_service::{
    CacheAttach, CacheDetach, CachePolicy, CacheResize, CacheShadow, CacheStatus, CacheTrace,
    CacheVerify, CacheWhy, CreateCache, ServeCache,
};
pub use catalog::{Catalog, CatalogAction, History, Rebuild, Settings};
pub use forwarded::{ForwardedArgs, is_elsewhere, is_help, with_studies};
pub use inspect::{AsOf, Bases, List, Media, Repair, Verify};
pub use keys::{
    Key, KeyAction, KeyNew, KeyOptions, KeyRecipient, KeyRewrap, KeyShred, SetKeyOptions,
};
pub use offload::{OffloadOptions, ResultOptions};
pub use project::{Completions, Config, ConfigAction, Man};
pub use recovery::archive_command;
pub use repository::{Check, Copy, Drill, Expire, Info, Metrics, Rules, Start, Stop, Uploads};
pub use restore::Restore;
pub use serve::Serve;
pub use sql::{Sql, with_tip_for_help};
pub use wal::{
    Archive, LookAheadOptions, Wal, WalAction, WalCreate, WalGet, WalList, WalNeeds, WalOwed,
    WalPush, WalReceive,
};

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the answer is no: verify, check or drill found something wrong
  2    usage or configuration
  3    the source cannot be read
  4    the media cannot be read or written
  5    done, with warnings: a file changed, something was lost, or no history was written
  6    the restore target refused, or the answer could not be written
  7    the WAL archive refused: it has other bytes under this name, or another cluster's WAL
  70   a bug in this program
  130  interrupted; nothing half-valid was left (a second Ctrl-C ends at once, without cleaning up)
  200  wal get: no answer; recovery must not continue";

const EXAMPLES: &str = "\
Examples:
  longshore backup app.db --to /mnt/a/app.bak --to /mnt/b/app.bak --verify
  longshore restore /mnt/a/app.bak /mnt/b/app.bak --to /srv/restored";

/// With `-h`, where a screen has no room for more.
const EXAMPLE: &str =
    "Example: longshore backup app.db --to /mnt/a/app.bak --to /mnt/b/app.bak --verify";

/// Backs up, verifies and restores databases: striped, compressed, checked byte by byte.
///
/// A backup goes to one or more devices at once; each gets a stripe, and all stripes together are the
/// media set. Databases are read while they are in use, and never written to. Stripes are gzip, zstd or
/// LZ4 files that stock tools can decompress.
#[derive(Debug, Parser)]
#[command(name = "longshore", version, max_term_width = 100,
    after_help = EXAMPLE, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// The command line of this process.
    pub fn read() -> Result<Cli, clap::Error> {
        let mut command = values::with_paths_only(Cli::command());
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Backup(Backup),
    Restore(Restore),
    Verify(Verify),
    List(List),
    Info(Info),
    Metrics(Metrics),
    Check(Check),
    Drill(Drill),
    Expire(Expire),
    Copy(Copy),
    Stop(Stop),
    Start(Start),
    Uploads(Uploads),
    Repair(Repair),
    Sql(Sql),
    Serve(Serve),
    History(History),
    Catalog(Catalog),
    Accelerator(Accelerator),
    Doctor(Doctor),
    Key(Key),
    Config(Config),
    Completions(Completions),
    Man(Man),
    /// Builds sample databases and runs studies with them (needs longshore-lab).
    Lab(ForwardedArgs),
    /// Finds the settings that suit this machine (needs longshore-lab).
    Tune(ForwardedArgs),
    Cache(Cache),
    Wal(Wal),
}

/// Buffers and limits, common to all commands that move bytes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Tuning")]
pub struct TransferOptions {
    /// BUFFERCOUNT: the number of buffers.
    ///
    /// Memory is BUFFERCOUNT times MAXTRANSFERSIZE for input and the same for output; --verbose prints the
    /// bound. The default is SQL Server's (5 for each device and 2 for each volume), raised until all workers of this
    /// machine have buffers. With a smaller number fewer workers run. More than the default helps only if a device
    /// stalls now and then.
    #[arg(long, hide_short_help = true, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub buffer_count: Option<u32>,

    /// MAXTRANSFERSIZE: bytes in a buffer, a multiple of 64K up to 4M.
    ///
    /// The default is 1M: throughput was measured to be the same from 256K to 2M, and lower at 4M, which is more than
    /// the core's second-level cache. Restores and verifies ignore it: a set is read in the size that it was made with.
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = values::size)]
    pub max_transfer_size: Option<u64>,

    /// Move at most this many bytes of the database per second.
    ///
    /// Counts uncompressed bytes: those read (backup) or produced (restore, verify). Units are powers of 1024;
    /// `/s` may follow. There is no default limit. Use it to spare a busy disk, and --max-cpu to spare CPUs.
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub max_rate: Option<u64>,

    /// Use at most this share of the whole machine's CPU time, in percent.
    ///
    /// On 8 CPUs, 25 means two CPUs. Enforced by the CPU time that the threads have used. The default is 100. It is a
    /// limit, not a priority: it holds on an idle machine, too.
    #[arg(long, value_name = "PERCENT", value_parser = values::percent)]
    pub max_cpu: Option<f64>,

    /// Let other programs' disk requests go first.
    ///
    /// The threads that move bytes get the lowest level of the best-effort class; a lower priority is kept. Only some
    /// kernel schedulers (BFQ) honour it; --max-rate works everywhere.
    #[arg(long, hide_short_help = true)]
    pub low_io_priority: bool,
}

#[cfg(test)]
mod tests {
    use longshore_kit::help::{walk, without_a_word_of_leaving_out};

    use super::*;

    #[test]
    fn the_table_of_options_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_and_argument_has_a_one_line_help_that_ends_like_a_sentence() {
        walk(&Cli::command(), "longshore", &mut |path, command| {
            for arg in command.get_arguments() {
                let id = arg.get_id();
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.len() > 10, "{path} {id} has no help");
                assert!(help.len() <= 100, "{path} {id}: {help}");
            }
        });
    }

    #[test]
    fn every_command_teaches_with_an_example_and_says_when_not_to_use_it() {
        walk(&Cli::command(), "longshore", &mut |path, command| {
            if command.has_subcommands() || command.get_name() == "help" {
                return;
            }
            if is_elsewhere(command) {
                // The other program teaches.
                return;
            }
            assert!(command.get_about().is_some(), "{path} has no purpose");
            let text = command
                .get_after_long_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(
                text.contains("Example") && text.contains("longshore "),
                "{path} has no example"
            );
            // A longer line is wrapped in the middle of its paragraph.
            let long = text.lines().find(|l| l.chars().count() > 100);
            assert_eq!(long, None, "{path}");
            assert!(
                text.contains("Not for"),
                "{path} does not say what it is not for"
            );
        });
    }

    /// The parser hands the options of the program on to each command when it is built, so only a built command shows
    /// what the user sees.
    fn built() -> clap::Command {
        let mut command = Cli::command();
        command.build();
        command
    }

    #[test]
    fn an_option_with_a_default_explains_the_default_in_its_long_help() {
        walk(&Cli::command(), "longshore", &mut |path, command| {
            for arg in command.get_arguments() {
                if arg.get_default_values().is_empty() {
                    continue;
                }
                let id = arg.get_id();
                let short = arg.get_help().map(ToString::to_string).unwrap_or_default();
                let long = arg
                    .get_long_help()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                let taught = long.strip_prefix(&short).unwrap_or(&long);
                assert!(
                    taught.to_lowercase().contains("default")
                        && taught.split_whitespace().count() >= 6,
                    "{path} {id} does not explain its default: {taught:?}"
                );
            }
        });
    }

    /// The options that have no second paragraph yet, as `COMMAND OPTION`. The list only gets shorter: an option that has
    /// one fails the test, too.
    const TAUGHT_NOT_YET: [&str; 0] = [];

    #[test]
    fn every_option_says_in_its_long_help_what_its_default_is_for_or_when_to_use_it() {
        let mut short = Vec::new();
        let mut seen = 0;
        walk(&Cli::command(), "longshore", &mut |path, command| {
            let shown = |arg: &&clap::Arg| !arg.is_positional() && !arg.is_hide_set();
            for arg in command.get_arguments().filter(shown) {
                let first = arg.get_help().map(ToString::to_string).unwrap_or_default();
                let long = arg.get_long_help().map(ToString::to_string);
                let long = long.unwrap_or_default();
                let taught = long.strip_prefix(&first).unwrap_or(&long);
                if taught.split_whitespace().count() < 6 {
                    short.push(format!("{path} {}", arg.get_id()));
                }
                seen += 1;
            }
        });
        assert!(seen > 100, "{seen}");
        assert_eq!(short, TAUGHT_NOT_YET, "write a second paragraph for each");
    }

    #[test]
    fn every_option_that_may_be_left_out_says_what_happens_without_it() {
        let command = Cli::command();
        let (seen, silent) = without_a_word_of_leaving_out(&command, "longshore", is_elsewhere);
        assert!(seen > 80, "{seen}");
        assert!(
            silent.is_empty(),
            "say what happens without each: {silent:?}"
        );
    }

    #[test]
    fn short_help_fits_a_screen() {
        walk(&built(), "longshore", &mut |path, command| {
            let mut command = command.clone().max_term_width(100);
            let lines = command.render_help().to_string().lines().count();
            assert!(lines <= 45, "{path} -h has {lines} lines");
        });
    }

    #[test]
    fn every_path_refuses_the_address_of_an_object_store() {
        let command = values::with_paths_only(Cli::command());
        let is_path = |arg: &clap::Arg| {
            arg.get_value_parser().type_id() == std::any::TypeId::of::<std::path::PathBuf>()
        };
        let mut seen = 0;
        walk(&command, "longshore", &mut |path, sub| {
            for arg in sub.get_arguments().filter(|arg| is_path(arg)) {
                let address = match arg.get_long() {
                    Some(long) => vec![format!("--{long}=gs://b/k")],
                    None => {
                        let before = sub
                            .get_positionals()
                            .take_while(|p| p.get_id() != arg.get_id());
                        // One of them is the name of a WAL file.
                        let before = before.map(|_| "000000010000000000000001".to_owned());
                        before.chain(["gs://b/k".to_owned()]).collect()
                    }
                };
                let line = path.split(' ').map(str::to_owned).chain(address);
                let error = command.clone().try_get_matches_from(line).unwrap_err();
                let text = error.to_string();
                assert!(
                    text.contains("only a path works here"),
                    "{path} {}: {text}",
                    arg.get_id()
                );
                seen += 1;
            }
        });
        assert!(seen > 30, "{seen}");
    }
}
