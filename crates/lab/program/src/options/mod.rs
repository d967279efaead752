//! The table of options: as that of `longshore`, of which these commands are a part.
//!
//! Invariants
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`; tests of the options
//!   demand both.
//! - Parsing opens no file. A value is checked by its own parser (`values.rs` of `longshore-terminal`).
//!
//! Leaves to others: the studies (`commands`), and options that every program has (`longshore-terminal`).

mod cache;
mod emulated;
mod figures;
mod lab;
mod loads;
mod project;
mod tune;
mod written;

use clap::{Parser, Subcommand};
pub use longshore_terminal::global::Global;

pub use cache::{Cache, CacheAction, CacheGrid, PUBLISHED_PAIR, Simulate, WhoShares};
pub use figures::{FigureOfPaper, FigureOptions, FiguresOfPapers};
pub use lab::{
    Bench, CacheFigures, Compare, ComparedDatabase, DeviceCheck, Lab, Network, OffloadStudy,
    Sample, SampleOptions, Study, Sweep,
};
pub use loads::{Load, LoadDatabase, LoadName, LoadPeer, Oltp};
pub use project::{Completions, Man};
pub use tune::{Purpose, Tune};
pub use written::OutputOptions;

/// Builds sample databases, measures, and simulates caches: the studies of `longshore`.
///
/// `longshore lab` and the studies of `longshore cache` start this program with their arguments: `longshore lab bench`
/// runs `longshore-lab lab bench`. `longshore tune` does so, too.
#[derive(Debug, Parser)]
#[command(
    name = "longshore-lab",
    bin_name = "longshore",
    version,
    max_term_width = 100
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Lab(Lab),
    Cache(Cache),
    Tune(Tune),
    Completions(Completions),
    Man(Man),
}

#[cfg(test)]
mod tests {
    use longshore_kit::help::{walk, without_a_word_of_leaving_out};

    use super::*;
    use clap::CommandFactory;
    use longshore_terminal::values;

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
            assert!(command.get_about().is_some(), "{path} has no purpose");
            let text = command
                .get_after_long_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            let is_shown = text.contains("longshore ") || text.contains("longshore-lab ");
            assert!(
                text.contains("Example") && is_shown,
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
        assert!(seen > 40, "{seen}");
        assert_eq!(short, TAUGHT_NOT_YET, "write a second paragraph for each");
    }

    #[test]
    fn every_option_that_may_be_left_out_says_what_happens_without_it() {
        let command = Cli::command();
        let (seen, silent) = without_a_word_of_leaving_out(&command, "longshore", |_| false);
        assert!(seen > 20, "{seen}");
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
                        let valid = |p: &clap::Arg| {
                            let values = p.get_possible_values();
                            values.first().map_or("x", |v| v.get_name()).to_owned()
                        };
                        let before = before.map(valid);
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
        assert!(seen > 12, "{seen}");
    }
}
