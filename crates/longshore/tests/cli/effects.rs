//! Goal: every option changes something: this test finds options that are accepted and ignored.
//! Method: the table (`effects.table`) has a row for each option of each command. The command's own help lists the
//! options: an option without a row fails. Rows with two lines are executed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::stage::Stage;

const TABLE: &str = include_str!("effects.table");

/// Options that all commands have.
const GENERAL: [&str; 7] = [
    "catalog", "config", "help", "json", "quiet", "verbose", "version",
];

/// The number of options that no test shows: it may only decrease.
const NOT_SHOWN_MAX: usize = 2;
/// The start of such a row; the reason follows.
const NOT_SHOWN: &str = "= not shown: ";

/// From `COMMAND --OPTION` to its demonstration.
fn table() -> BTreeMap<&'static str, &'static str> {
    let rows = TABLE
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty());
    rows.map(|row| {
        let end = row.find([' ']).map(|_| {
            let option = row.find("--").unwrap();
            option + row[option..].find(' ').unwrap()
        });
        let (key, shown) = row.split_at(end.unwrap());
        (key, shown.trim())
    })
    .collect()
}

/// The options that a command's help shows, and its subcommands.
fn described(help: &str) -> (Vec<&str>, Vec<&str>) {
    let mut options = Vec::new();
    let mut commands = Vec::new();
    let mut in_commands = false;
    for line in help.lines() {
        if line == "Commands:" {
            in_commands = true;
        } else if in_commands && line.is_empty() {
            in_commands = false;
        } else if let Some(name) = line
            .strip_prefix("  ")
            .filter(|l| in_commands && !l.starts_with(' '))
        {
            commands.extend(name.split(' ').next().filter(|n| *n != "help"));
        } else {
            // Descriptions, which may also name options, are indented further.
            let long = line.strip_prefix("      --").or_else(|| {
                let short = line.strip_prefix("  -").filter(|l| !l.starts_with('-'))?;
                Some(short.split_once(", --")?.1)
            });
            options.extend(long.and_then(|l| l.split([' ', '[', '=']).next()));
        }
    }
    options.retain(|option| !GENERAL.contains(option));
    (options, commands)
}

fn walk(stage: &Stage, command: &str, found: &mut Vec<String>) {
    let help = stage.line(&format!("{command} --help")).exits(0).out;
    let (options, commands) = described(&help);
    found.extend(
        options
            .iter()
            .map(|o| format!("{command} --{o}").trim().to_owned()),
    );
    for name in commands {
        walk(stage, format!("{command} {name}").trim(), found);
    }
}

#[test]
fn every_option_of_every_command_has_a_row() {
    let stage = Stage::new();
    let mut found = Vec::new();
    walk(&stage, "", &mut found);
    found.sort();
    found.dedup();
    let table = table();
    let rows: Vec<_> = table.keys().map(|k| (*k).to_owned()).collect();
    let missing: Vec<_> = found
        .iter()
        .filter(|o| !table.contains_key(o.as_str()))
        .collect();
    let gone: Vec<_> = rows.iter().filter(|row| !found.contains(row)).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "without a row: {missing:?}; no such option: {gone:?}"
    );
    let reasons = table
        .values()
        .filter_map(|shown| shown.strip_prefix(NOT_SHOWN));
    let reasons: Vec<&str> = reasons.collect();
    assert!(
        reasons.iter().all(|reason| reason.len() > 10),
        "{reasons:?}"
    );
    assert!(reasons.len() <= NOT_SHOWN_MAX, "{reasons:?}");
}

/// Whether a test's text has this word, and not only a longer one that begins with it.
fn has(body: &str, word: &str) -> bool {
    let mut after = body.split(word).skip(1);
    after.any(|rest| !rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '-'))
}

#[test]
fn tests_that_the_table_names_use_the_option_of_the_command() {
    for (key, shown) in table() {
        let shown = shown
            .strip_prefix("= ")
            .filter(|_| !shown.starts_with(NOT_SHOWN));
        let Some((file, test)) = shown.and_then(|s| s.split_once(": ")) else {
            continue;
        };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{key}: {file}: {e}"));
        let body = text.split(&format!("\nfn {test}(")).nth(1);
        let body = body.unwrap_or_else(|| panic!("{key}: {file} has no {test}"));
        let body = body.split("\n}\n").next().unwrap();
        let (command, option) = key.split_at(key.find("--").unwrap());
        assert!(has(body, option), "{key}: {test} does not use it");
        // A helper may run the command, and then has its name.
        let command = command.trim().rsplit(' ').next().unwrap();
        let is_run = body.contains(command) || body.contains(&command.replace('-', "_"));
        assert!(is_run, "{key}: {test} does not run the command");
    }
}

/// A tree, media with two sets, a set that has not expired, a target with two backups, scripts.
fn staged() -> Stage {
    let stage = Stage::new();
    stage.write("tree/a", &[b'a'; 4 << 20]);
    stage.write("tree/sub/b", &[b'b'; 1000]);
    stage.write("note.txt", b"no medium");
    stage.write("two.sql", b"PRINT 1\nGO\nPRINT 2\n");
    stage.write("wrong.sql", b"SELECT * FROM nothing\nGO\nPRINT 'on'\n");
    stage.write("variable.sql", b"PRINT '$(x)'\n");
    std::fs::create_dir(stage.path("target")).unwrap();
    let at = |name: &str| stage.path(name).display().to_string();
    let config = format!(
        "[target.t]\ndirectories = [\"{}\"]\n[database.docs]\nurl = \"files:{}\"\ntarget = \"t\"\n[database.other]\nurl = \"files:{}\"\n",
        at("target"),
        at("tree"),
        at("tree"),
    );
    stage.write("no-config/longshore/longshore.toml", config.as_bytes());
    for line in [
        "backup tree --to set.bak",
        "backup tree/sub --to set.bak --append",
        "backup tree --to kept.bak --retain-days 9",
        "backup docs",
        "backup docs",
        "backup other --target t",
    ] {
        stage.line(line).exits(0);
    }
    stage.line("restore set.bak --to once").exits(0);
    stage
}

/// The same scene before each line, in the same place: creating one takes eight runs.
struct Scene {
    stage: Stage,
    kept: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let scene = Scene {
            stage: staged(),
            kept: tempfile::tempdir().unwrap(),
        };
        copy_all(&scene.stage.path(""), scene.kept.path());
        scene
    }

    fn again(&self) -> &Stage {
        let place = self.stage.path("");
        for entry in std::fs::read_dir(&place).unwrap() {
            let path = entry.unwrap().path();
            match path.symlink_metadata().unwrap().is_dir() {
                true => std::fs::remove_dir_all(path).unwrap(),
                false => std::fs::remove_file(path).unwrap(),
            }
        }
        copy_all(self.kept.path(), &place);
        &self.stage
    }
}

/// Copies the content of a directory with its times and permissions.
fn copy_all(from: &Path, to: &Path) {
    let mut copy = std::process::Command::new("cp");
    let copied = copy.arg("-a").arg(from.join(".")).arg(to).status();
    assert!(copied.unwrap().success());
}

/// All visible effects of a line: its output and exit code, the state of the disk and the history afterwards, and
/// whether it was slow.
fn effects(scene: &Scene, line: &str) -> Vec<String> {
    let stage = scene.again();
    let words: Vec<String> = line.split(' ').map(|w| w.replace('~', " ")).collect();
    let began = Instant::now();
    let ran = stage.run(&words);
    let slow = began.elapsed() > Duration::from_millis(3500);
    let mut seen = vec![format!("slow: {slow}"), format!("code: {}", ran.code)];
    let own = stage.path("").display().to_string();
    for text in [&ran.out, &ran.err] {
        seen.push("--".to_owned());
        let lines = text.lines().filter(|line| !is_progress(line));
        seen.extend(lines.map(|line| masked(&line.replace(&own, "/"))));
    }
    for path in crate::common::read(&stage.path("")).keys() {
        if !path.starts_with("history.db") {
            seen.push(masked(&path.display().to_string()));
        }
    }
    let db = Connection::open(stage.path("history.db")).unwrap();
    let mut rows = db
        .prepare(
            "SELECT format('%s|%s|%s|%s|%s|%s|%s|%s', s.name, s.description, s.database_name, s.is_copy_only, \
             s.expiration_date, s.position, m.name, m.description) \
             FROM backupset s JOIN backupmediaset m USING (media_set_id)",
        )
        .unwrap();
    let rows = rows
        .query_map([], |row| row.get::<_, Option<String>>(0))
        .unwrap();
    seen.extend(rows.map(|row| masked(&format!("{:?}", row.unwrap()))));
    seen
}

/// The number of such lines depends on the duration of a run.
fn is_progress(line: &str) -> bool {
    line.contains(" percent processed.") && !line.starts_with("100 percent")
}

/// The bottleneck of a run of a few milliseconds is chance.
const HELD_BY: [&str; 4] = [
    "the source (reading)",
    "the target (writing)",
    "the CPUs (compression and checksums)",
    "the buffers (BUFFERCOUNT: too few for all CPUs)",
];

/// Masks what varies between runs: times, rates, sizes, labels, identities, the bottleneck.
fn masked(line: &str) -> String {
    let held = HELD_BY.iter().find(|held| line.contains(**held));
    let line = held.map_or(line.to_owned(), |held| line.replace(held, "#"));
    let words = line
        .split([' ', '/', ',', '"', '\'', '(', ')', '[', ']'])
        .map(|word| {
            let digits = word.chars().filter(char::is_ascii_digit).count();
            let marks = word
                .chars()
                .filter(|c| matches!(c, '.' | ':' | '-'))
                .count();
            match digits > 0 && (marks > 0 || digits > 9) {
                true => "#",
                false => word,
            }
        });
    let mut words: Vec<&str> = words.filter(|w| !w.is_empty()).collect();
    // The length of media with the same content varies by some bytes: times and identities are compressed, too. So do
    // ages, `12 s ago`, and rates, `12 MiB/s`.
    for i in 1..words.len() {
        let is_varied = matches!(words[i], "B" | "s") || words[i..].starts_with(&["MiB", "s"]);
        if is_varied && words[i - 1].bytes().all(|b| b.is_ascii_digit()) {
            words[i - 1] = "#";
        }
        // If several names are in the way, the report names the first that a worker reaches.
        if words[i - 1..].starts_with(&["exists", "already"]) && i > 1 {
            words[i - 2] = "#";
        }
    }
    words.join(" ")
}

/// The effects that are seen twice in a row: a busy machine may show something else once. Otherwise, all effects that
/// were seen.
fn steady(scene: &Scene, line: &str) -> Result<Vec<String>, Vec<Vec<String>>> {
    let mut seen = vec![effects(scene, line)];
    for _ in 0..4 {
        let again = effects(scene, line);
        if seen.last() == Some(&again) {
            return Ok(again);
        }
        seen.push(again);
    }
    Err(seen)
}

#[test]
fn every_option_in_the_table_changes_something() {
    let scene = Scene::new();
    let mut same: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut without_effect = Vec::new();
    let mut unsteady = Vec::new();
    for (key, shown) in table() {
        let Some((without, with)) = shown.strip_prefix("| ").and_then(|s| s.split_once(" | "))
        else {
            continue;
        };
        if !same.contains_key(without) {
            match steady(&scene, without) {
                Ok(seen) => drop(same.insert(without, seen)),
                Err(seen) => {
                    unsteady.push((without, seen));
                    continue;
                }
            }
        }
        // A line that is as slow without the option as with it may be so only because the machine is busy.
        if (0..2).all(|_| same[without] == effects(&scene, with)) {
            without_effect.push(key);
        }
    }
    assert!(without_effect.is_empty(), "no effect: {without_effect:?}");
    assert!(
        unsteady.is_empty(),
        "differs from run to run: {unsteady:#?}"
    );
}
