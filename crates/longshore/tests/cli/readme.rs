//! Goal: the commands of README.md run, and what pages list of keys and exit codes is the program's.
//! Method: fenced blocks marked `sh run` are executed one after another in one directory that holds `app.db` and a tree
//! `data`; their results must be as promised. Lists are compared with the help and with refusals.

use std::collections::BTreeSet;
use std::path::Path;

use crate::stage::Stage;

fn readme() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    std::fs::read_to_string(path).unwrap()
}

fn configuration_page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    std::fs::read_to_string(path).unwrap()
}

/// The words between backticks.
fn ticked(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_page_lists_exactly_the_keys_that_a_configuration_may_have() {
    let (stage, page) = (Stage::new(), configuration_page());
    for table in [
        "[database.NAME]",
        "[database.NAME.wal]",
        "[target.NAME]",
        "[retention.NAME]",
        "[defaults]",
        "[serve]",
        "[catalog]",
    ] {
        let head = format!("## {table}\n");
        let section = page.split(&head).nth(1).unwrap();
        let section = section.split("\n## ").next().unwrap();
        // The program's own message lists the keys that it expects instead of an unknown one.
        stage.write("probe.toml", format!("{table}\nxyzzy = 1\n").as_bytes());
        let refusal = stage.line("--config probe.toml config check").exits(2).err;
        let expected = refusal
            .split("expected")
            .nth(1)
            .unwrap()
            .lines()
            .next()
            .unwrap();
        let keys = ticked(expected);
        assert!(!keys.is_empty(), "{refusal}");
        let shown: BTreeSet<_> = section
            .lines()
            .filter_map(|l| l.strip_prefix("| `")?.split('`').next())
            .collect();
        assert_eq!(shown, keys, "{table}");
    }
}

#[test]
fn the_page_of_errors_says_of_every_command_when_it_ends_with_5() {
    let help = Stage::new().line("--help").exits(0).out;
    let commands = help.split("Commands:\n").nth(1).unwrap();
    let commands = commands.lines().take_while(|line| !line.is_empty());
    let commands = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands = commands.filter(|name| !name.is_empty() && *name != "help");
    let commands: BTreeSet<_> = commands.collect();
    assert!(commands.len() > 15, "{commands:?}");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = page
        .split("| command | ends with 5 instead of 0 |\n|---|---|\n")
        .nth(1)
        .unwrap();
    let rows = table.lines().map_while(|row| row.strip_prefix("| "));
    let listed: BTreeSet<_> = rows
        .flat_map(|row| ticked(row.split(" | ").next().unwrap()))
        .filter(|name| !name.contains(' '))
        .collect();
    assert_eq!(listed, commands);
}

#[test]
fn the_readme_and_the_help_give_the_same_exit_codes() {
    let help = Stage::new().line("--help").exits(0).out;
    let readme = readme();
    let table = readme
        .split("| code | meaning |\n|---|---|\n")
        .nth(1)
        .unwrap();
    let rows: Vec<_> = table
        .lines()
        .map_while(|l| l.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "))
        .collect();
    assert!(rows.len() >= 9, "{rows:?}");
    for (code, meaning) in rows {
        let line = format!("{code:<4} {meaning}");
        assert!(help.contains(&line), "--help lacks: {line}");
    }
}

#[test]
fn the_commands_of_the_readme_run_in_order() {
    let text = readme();
    let stage = Stage::new();
    stage.database("app.db", 4);
    stage.write("data/etc/app.conf", b"key = value\n");
    let mut blocks = 0;
    for block in text.split("\n```sh run\n").skip(1) {
        let commands = block.split("\n```").next().unwrap();
        stage.shell(commands).exits(0);
        blocks += 1;
    }
    assert!(blocks >= 4, "README.md has {blocks} blocks marked `sh run`");
}
