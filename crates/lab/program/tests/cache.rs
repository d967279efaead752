//! Studies of a cache: what `longshore` shows of them, and that it passes them on.

use std::path::Path;
use std::process::{Command, Output, Stdio};

const LAB: &str = env!("CARGO_BIN_EXE_longshore-lab");

fn run(program: &Path, words: &[&str]) -> Output {
    assert!(
        program.exists(),
        "run `cargo test --workspace --test cache`"
    );
    longshore_kit::program::succeed(&mut longshore_kit::program::command(program, words))
}

#[test]
fn a_study_through_longshore_is_the_labs_and_the_help_says_whose_it_is() {
    let longshore = Path::new(LAB).with_file_name("longshore");
    let words = [
        "cache",
        "simulate",
        "--json",
        "--seconds",
        "1",
        "--policy",
        "none,aware",
    ];
    let (own, through) = (run(Path::new(LAB), &words), run(&longshore, &words));
    assert_eq!(own.stdout, through.stdout);
    assert!(own.stdout.starts_with(b"{"));

    let help = run(&longshore, &["cache", "--help"]).stdout;
    let help = String::from_utf8(help).unwrap();
    for study in ["simulate", "grid"] {
        let line = help
            .lines()
            .find(|line| line.trim_start().starts_with(study));
        let line = line.unwrap_or_else(|| panic!("{study} is not in {help}"));
        assert!(line.ends_with("(needs longshore-lab)"), "{line}");
    }
}

#[test]
fn a_study_of_models_begins_with_that_word() {
    for line in [
        "cache simulate --seconds 1 --policy none",
        "cache grid --core --every 20 --seeds 1",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let said = String::from_utf8(run(Path::new(LAB), &words).stdout).unwrap();
        assert!(said.starts_with("Modelled: "), "{line}: {said}");
        // Further tables have a line above them.
        for above in said.lines().filter(|line| line.ends_with(':')) {
            assert!(above.contains("modelled"), "{line}: {above}");
        }
    }
}

/// nbdkit with a plugin that was built for this run; `None` where nbdkit is missing and may be.
fn nbdkit(plugin: &str, words: &[&str]) -> Option<String> {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new("nbdkit");
    let command = command.arg(own.with_file_name(plugin)).args(words);
    match command.stdin(Stdio::null()).output() {
        Ok(output) => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            Some(text(&output.stdout) + &text(&output.stderr))
        }
        Err(why) => {
            let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
            assert!(!required, "nbdkit: {why}; run scripts/setup.sh");
            println!("skipped: nbdkit: {why}");
            None
        }
    }
}

#[test]
fn the_plugin_that_is_shipped_emulates_no_device_and_knows_no_rival() {
    let (own, lab) = ("liblongshore_nbd.so", "liblongshore_lab_nbd.so");
    let Some(help) = nbdkit(own, &["--help"]) else {
        return;
    };
    assert!(help.contains("backend=PATH"), "{help}");
    assert!(!help.contains("emulate"), "{help}");
    let help = nbdkit(lab, &["--help"]).unwrap();
    assert!(help.contains("backend=PATH") && help.contains("emulate=F/S@N"));
    let wrong = nbdkit(own, &["emulate=-/-@1"]).unwrap();
    assert!(wrong.contains("unknown setting \"emulate\""), "{wrong}");
    let wrong = nbdkit(lab, &["emulate=tape/-@1"]).unwrap();
    assert!(wrong.contains("unknown profile \"tape\""), "{wrong}");
    for rival in ["orthus", "split=60", "bcache"] {
        let wrong = nbdkit(own, &[&format!("policy={rival}")]).unwrap();
        assert!(wrong.contains("unknown policy"), "{rival}: {wrong}");
    }
}
