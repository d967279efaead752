//! Goal: the answer goes to standard output, and progress, plan and log to standard error, in the form that fits a
//! terminal, a file or a pipe.
//! Method: the real program with its streams captured, behind a pipe that closes early, and on a pseudo-terminal of
//! Python's.
//! Not covered: terminals of other widths.

use crate::stage::{BINARY, Ran, Stage};

#[test]
fn progress_is_plain_lines_outside_a_terminal_and_the_answer_is_on_standard_output() {
    let stage = Stage::new();
    stage.write("file", &vec![5; 12 << 20]);
    let ran = stage.line("backup file --to a.bak --max-rate 16M").exits(0);
    let lines = ran
        .err
        .lines()
        .filter(|l| l.contains(" percent processed. "))
        .count();
    assert!((2..=11).contains(&lines), "{}", ran.err);
    assert!(!ran.err.contains(['\r', '\u{1b}']), "{:?}", ran.err);
    let mut out = ran.out.lines();
    let heads: Vec<_> = out.next().unwrap().split("  ").map(str::trim).collect();
    for head in [
        "stripes",
        "algorithm",
        "engine",
        "in",
        "out",
        "ratio",
        "wall",
        "CPU-s/GB",
        "limit",
        "verified",
    ] {
        assert!(heads.contains(&head), "{heads:?}");
    }
    assert!(out.next().unwrap().contains("QAT_DEFLATE"));
    let what = out.next().unwrap();
    assert!(
        what.starts_with("full backup of file, 20") && what.ends_with(" UTC, in a.bak"),
        "{what}"
    );
    let last = out.next().unwrap();
    assert!(
        last.starts_with("Backup of file finished: 12.0 MiB in "),
        "{last}"
    );
    assert!(
        last.contains(" MiB/s), ") && last.ends_with(" on media"),
        "{last}"
    );
    assert_eq!(out.next(), None);
}

#[test]
fn quiet_says_nothing_when_all_is_well() {
    let stage = Stage::new();
    stage.write("file", b"x");
    for line in [
        "backup file --to a.bak -q",
        "verify a.bak -q",
        "restore a.bak --to out -q",
    ] {
        let ran = stage.line(line).exits(0);
        assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""), "{line}");
    }
    // Notes are no reason for a mail.
    let fifo = stage.path("tree/fifo");
    stage.write("tree/file", b"x");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    let noted = stage.line("backup tree --to nul:").exits(0);
    assert!(noted.err.contains("note: "), "{}", noted.err);
    let ran = stage.line("backup tree --to nul: -q").exits(0);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""));
    assert!(!stage.line("verify nowhere.bak -q").exits(4).err.is_empty());
}

#[test]
fn verbose_prints_the_plan_as_lines_of_name_and_value() {
    let stage = Stage::new();
    stage.write("file", b"x");
    let ran = stage
        .line("backup file --to a.bak -v --buffer-count 10 --max-transfer-size 512K --max-cpu 50")
        .exits(0);
    let value = |name: &str| {
        let head = format!("{name}:");
        let line = ran.err.lines().find(|l| l.starts_with(&head));
        let line = line.unwrap_or_else(|| panic!("no {name}: {}", ran.err));
        line[head.len()..].trim().to_owned()
    };
    assert_eq!(value("BufferCount"), "10");
    assert_eq!(value("MaxTransferSize"), "512 KB");
    assert_eq!(value("Total buffer space"), "5 MB");
    for name in [
        "Memory bound",
        "Workers",
        "CPUs",
        "CPU ceiling",
        "Engine",
        "Engine found",
    ] {
        assert!(!value(name).is_empty());
    }
    let options = value("Effective options");
    for part in [
        "Checksum=1",
        "Compression=1",
        "Algorithm=QAT_DEFLATE",
        "BufferCount=10",
    ] {
        assert!(options.contains(part), "{options}");
    }
}

#[test]
fn on_a_terminal_there_is_a_bar_with_rate_ratio_and_time_left() {
    let stage = Stage::new();
    stage.write("file", &vec![5; 12 << 20]);
    let spawn = "import pty,sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    let ran = stage
        .shell(&format!(
            "python3 -c '{spawn}' {BINARY} backup file --to a.bak --max-rate 8M"
        ))
        .exits(0);
    for part in ["[=", " of 12.00 MiB", "MiB/s", "ratio ", " left"] {
        assert!(ran.out.contains(part), "{part}: {:?}", ran.out);
    }
    assert!(!ran.out.contains("percent processed"));
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_error() {
    let stage = Stage::new();
    for i in 0..2000 {
        stage.write(
            format!("tree/a rather long name that fills a pipe {i}"),
            b"",
        );
    }
    stage.line("backup tree --to a.bak").exits(0);
    let ran = stage
        .shell("set +o pipefail; longshore list a.bak --files | head -1")
        .exits(0);
    assert!(ran.err.is_empty(), "{}", ran.err);
}

#[test]
fn the_log_goes_to_standard_error_when_asked_for() {
    let stage = Stage::new();
    stage.write("file", b"x");
    let ran = stage.shell("LONGSHORE_LOG=trace longshore list nowhere.bak || true");
    assert!(ran.out.is_empty(), "{}", ran.out);
}

/// Goal: a level shows what docs/configuration.md says, one crate's messages can be chosen, and each says when it was.
#[test]
fn the_log_shows_the_chosen_levels_and_crates_with_time_level_and_target() {
    let stage = Stage::new();
    stage.write("file", b"x");
    let logged = |filter: &str| {
        let mut run = stage.command(&["backup", "file", "--to", "nul:", "--quiet"]);
        let ran = Ran::of(&run.env("LONGSHORE_LOG", filter).output().unwrap());
        let lines = ran.exits(0).err;
        let lines = lines.lines().filter(|line| line.contains(": ISA-L "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let debug = logged("debug");
    let [line] = &debug[..] else {
        panic!("{debug:?}");
    };
    let words: Vec<_> = line.split_whitespace().collect();
    let now = stage.shell("date -u +%Y-%m-%dT%H:").exits(0).out;
    // The hour may have changed since.
    assert_eq!(words[0][..11], now[..11], "{line}");
    assert!(words[0].ends_with('Z') && words[0].len() > 20, "{line}");
    assert_eq!(words[1..3], ["DEBUG", "longshore_codec::deflate::isal:"]);
    assert_eq!(logged("longshore_codec=debug").len(), 1);
    for filter in [
        "info",
        "warn",
        "debug,longshore_codec=info",
        "longshore_wal=debug",
    ] {
        assert_eq!(logged(filter), [""; 0], "{filter}");
    }
}

#[test]
fn manual_pages_and_completions_cover_every_command() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("man")).unwrap();
    stage.line("man man").exits(0);
    let pages = stage.names("man");
    for page in [
        "longshore.1",
        "longshore-backup.1",
        "longshore-catalog-rebuild.1",
    ] {
        assert!(pages.iter().any(|p| p == page), "{pages:?}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = stage.line(&format!("completions {shell}")).exits(0).out;
        for word in ["backup", "restore", "max-transfer-size", "wal-growth-limit"] {
            assert!(script.contains(word), "{shell} {word}");
        }
    }
}

#[test]
fn a_name_with_a_space_is_quoted_in_a_command_that_is_told() {
    let stage = crate::repository::configured();
    let file = "no-config/longshore/longshore.toml";
    let text = std::fs::read_to_string(stage.path(file)).unwrap();
    let odd = text.replace("[database.docs]", "[database.\"my dB's\"]");
    stage.write(file, odd.as_bytes());
    stage.run(&["backup", "my dB's"]).exits(0);
    stage
        .run(&["info", "my dB's"])
        .exits(0)
        .says("`longshore expire 'my dB'\\''s' --dry-run`");
}
