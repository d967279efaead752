//! Goal: the lab answers the same by its own name and as `longshore` becomes it, and no other program is run in its
//! place.
//! Method: both real programs, in scratch directories that stand for installations; output, exit codes and files are
//! compared.
//! Not covered: the studies' figures.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const LAB: &str = env!("CARGO_BIN_EXE_longshore-lab");

/// The program next to the lab. Cargo builds it for the same run where the whole workspace is tested.
fn longshore() -> PathBuf {
    let path = Path::new(LAB).with_file_name("longshore");
    assert!(path.exists(), "run `cargo test --workspace --test cli`");
    path
}

fn stage() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn command(program: &Path, dir: &Path, line: &str) -> Command {
    let mut command = longshore_kit::program::command(program, line.split_whitespace());
    command.current_dir(dir).env("XDG_CONFIG_HOME", dir);
    command
}

fn run(program: impl AsRef<Path>, dir: &TempDir, line: &str) -> Output {
    command(program.as_ref(), dir.path(), line)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn longshore_passes_words_and_exit_codes_on_and_the_lab_answers_the_same_by_its_own_name() {
    let (own, through) = (stage(), stage());
    for (line, code) in [
        ("lab sample tprocc --size 3M app.db --json", 0),
        ("lab --help", 0),
        ("lab sample -h", 0),
        ("cache grid --help", 0),
        ("lab sweep", 2),
        ("lab sweep --json", 2),
        ("--json lab sweep --dir d --source no-such.db", 3),
        ("lab nothing", 2),
    ] {
        let (own, through) = (run(LAB, &own, line), run(longshore(), &through, line));
        assert_eq!(own.status.code(), Some(code), "{line}: {}", said(&own));
        assert_eq!(through.status.code(), Some(code), "{line}");
        assert_eq!(said(&through), said(&own), "{line}");
    }
    let built = |dir: &TempDir| fs::read(dir.path().join("app.db")).unwrap();
    assert!(built(&own) == built(&through));
}

#[test]
fn the_pages_of_both_programs_are_all_pages_and_none_is_written_twice() {
    let (own, through) = (stage(), stage());
    for (program, dir) in [(Path::new(LAB), &own), (&longshore(), &through)] {
        let written = run(program, dir, "man .");
        assert!(written.status.success(), "{}", said(&written));
    }
    let (own, through) = (names(own.path()), names(through.path()));
    let both: Vec<_> = own.intersection(&through).collect();
    assert!(both.is_empty(), "{both:?}");
    for page in [
        "longshore-lab.1",
        "longshore-lab-bench.1",
        "longshore-cache-grid.1",
    ] {
        assert!(own.contains(page), "{page}: {own:?}");
    }
    for page in [
        "longshore.1",
        "longshore-cache.1",
        "longshore-cache-serve.1",
    ] {
        assert!(through.contains(page), "{page}: {through:?}");
    }
}

#[test]
fn without_the_lab_the_command_names_what_is_missing_and_nothing_else_is_run_in_its_place() {
    let dir = stage();
    let bin = dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let program = bin.join("longshore");
    fs::hard_link(longshore(), &program).unwrap();
    let refused = |line: &str, path: &str| {
        let mut command = command(&program, dir.path(), line);
        let output = command.env("PATH", path).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        said(&output)
    };
    let lines = [
        "lab sample stae --size 3M a.db",
        "cache simulate",
        "--quiet cache grid --core",
    ];
    for line in lines {
        let said = refused(line, "");
        assert!(said.contains("needs the program longshore-lab"), "{said}");
        assert!(said.contains("hint: run `make install`"), "{said}");
    }
    // A program of that name in the working directory, which PATH names, too.
    let planted = dir.path().join("longshore-lab");
    fs::write(&planted, "#!/bin/sh\necho planted\n").unwrap();
    fs::set_permissions(&planted, Permissions::from_mode(0o755)).unwrap();
    for line in lines {
        let said = refused(line, ".:");
        assert!(said.contains("longshore-lab is not started"), "{said}");
        assert!(said.contains("would depend on the working directory"));
        assert!(said.contains("hint: write its directory into PATH as an absolute path"));
    }
    let mut json = command(&program, dir.path(), "lab bench --json");
    let refused = json.env("PATH", "").output().unwrap();
    let answer = longshore_kit::program::answer(&refused);
    assert_eq!(answer["exit_code"], 2);

    // Where packagers put what only other programs start.
    let libexec = dir.path().join("libexec/longshore");
    fs::create_dir_all(&libexec).unwrap();
    for place in [libexec.parent().unwrap(), &libexec] {
        fs::set_permissions(place, Permissions::from_mode(0o755)).unwrap();
    }
    fs::hard_link(LAB, libexec.join("longshore-lab")).unwrap();
    let found = run(&program, &dir, "lab sample --help");
    assert_eq!(found.status.code(), Some(0), "{}", said(&found));

    // Where others could have put it.
    fs::set_permissions(&libexec, Permissions::from_mode(0o777)).unwrap();
    let refused = run(&program, &dir, "lab sample --help");
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("longshore-lab is not started"));
}

/// `bin/longshore` and `libexec/longshore`, where packagers put what only other programs start.
fn installed() -> (TempDir, PathBuf, PathBuf) {
    let dir = stage();
    let (bin, libexec) = (dir.path().join("bin"), dir.path().join("libexec/longshore"));
    for place in [&bin, libexec.parent().unwrap(), &libexec] {
        fs::create_dir(place).unwrap();
        fs::set_permissions(place, Permissions::from_mode(0o755)).unwrap();
    }
    let program = bin.join("longshore");
    fs::hard_link(longshore(), &program).unwrap();
    (dir, program, libexec.join("longshore-lab"))
}

fn script(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_bench_measures_the_program_that_was_called_and_not_one_that_lies_next_to_the_lab() {
    let (dir, program, lab) = installed();
    script(
        &lab,
        "#!/bin/sh\necho \"measures $LONGSHORE_PROGRAM\"\n",
        0o755,
    );
    let mut bench = command(&program, dir.path(), "lab bench");
    let told = said(&bench.env("LONGSHORE_PROGRAM", "/else").output().unwrap());
    let own = program.canonicalize().unwrap();
    assert_eq!(told, format!("measures {}\n", own.display()));

    // The lab believes what it is told, and nothing is measured in its place.
    let mut bench = command(Path::new(LAB), dir.path(), "lab bench --source no-such.db");
    let refused = bench.env("LONGSHORE_PROGRAM", &lab).output().unwrap();
    assert!(said(&refused).contains("no-such.db"), "{}", said(&refused));
    fs::set_permissions(&lab, Permissions::from_mode(0o777)).unwrap();
    let refused = bench.output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let told = said(&refused);
    assert!(
        told.contains("LONGSHORE_PROGRAM names is not measured"),
        "{told}"
    );
    // The measured program is started with that variable.
    let mut called = command(&program, dir.path(), "config check");
    let called = called.env("LONGSHORE_PROGRAM", &program).output().unwrap();
    assert!(
        !said(&called).contains("LONGSHORE_PROGRAM"),
        "{}",
        said(&called)
    );
}

#[test]
fn a_configuration_that_no_study_reads_is_refused_wherever_it_is_named() {
    let dir = stage();
    fs::write(dir.path().join("good.toml"), "").unwrap();
    for program in [PathBuf::from(LAB), longshore()] {
        for line in [
            "lab sample stae --size 3M a.db --config good.toml",
            "lab --config good.toml sample stae --size 3M a.db",
            "--config good.toml lab sample stae --size 3M a.db",
            "cache simulate --config good.toml",
            "cache grid --config good.toml",
        ] {
            let refused = run(&program, &dir, line);
            let told = said(&refused);
            assert_eq!(refused.status.code(), Some(2), "{line}: {told}");
            assert!(
                told.contains("studies read no configuration file"),
                "{told}"
            );
        }
        let mut help = command(&program, dir.path(), "lab --help");
        let help = help.env("LONGSHORE_CONFIG", "good.toml").output().unwrap();
        assert!(help.status.success());
    }
    assert!(!dir.path().join("a.db").exists());
}

#[test]
fn a_lab_that_cannot_be_executed_does_not_hide_the_installed_one() {
    let (dir, program, lab) = installed();
    let plain = program.with_file_name("longshore-lab");
    script(&plain, "#!/bin/sh\n", 0o644);
    let refused = command(&program, dir.path(), "lab bench")
        .env("PATH", "")
        .output();
    let told = said(&refused.unwrap());
    let named = format!(
        "{} is not an executable file",
        plain.canonicalize().unwrap().display()
    );
    assert!(told.contains(&named), "{told}");
    script(&lab, "#!/bin/sh\necho installed\n", 0o755);
    assert_eq!(said(&run(&program, &dir, "lab bench")), "installed\n");
}

#[test]
fn help_and_completions_know_the_studies_of_the_lab() {
    let dir = stage();
    for line in [
        "help lab",
        "help lab compare",
        "lab help compare",
        "help cache simulate",
        "cache help grid",
        "cache grid --help",
    ] {
        let (own, through) = (run(LAB, &dir, line), run(longshore(), &dir, line));
        assert!(through.status.success(), "{line}: {}", said(&through));
        assert_eq!(said(&through), said(&own), "{line}");
        assert!(said(&own).contains("Usage: longshore "), "{line}");
    }
    let wrong = run(longshore(), &dir, "help lab no-such-study");
    assert_eq!(wrong.status.code(), Some(2));

    let help = said(&run(LAB, &dir, "lab -h"));
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let listed: Vec<_> = commands
        .lines()
        .take_while(|line| !line.is_empty())
        .collect();
    let script = said(&run(longshore(), &dir, "completions fish"));
    let mut offered = 0;
    for line in listed {
        let is_broken = line.starts_with("     ");
        let (name, about) = line.trim().split_once(' ').unwrap_or((line, ""));
        if name == "help" || is_broken {
            continue;
        }
        // The help breaks a long line; the rest of it is on the next one.
        let about = about.trim().replace('\'', "\\'");
        let offer = format!("-a \"{name}\" -d '{about}");
        assert!(script.contains(&offer), "{offer}");
        offered += 1;
    }
    assert_eq!(offered, 12);
    let bash = said(&run(longshore(), &dir, "completions bash"));
    assert!(
        bash.contains("longshore__subcmd__lab,cache-figures)"),
        "bash completes no study"
    );
}
