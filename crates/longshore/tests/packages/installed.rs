//! Goal: `make install` installs everything, stripped, and `make uninstall` removes it except a changed configuration.
//! Method: the Makefile with this build and an empty DESTDIR; the installed files are listed, run, and read by bash and
//! groff.
//! Not covered: an installation into the system itself, and the units under systemd.

use std::process::Command;

use crate::stage::{Root, has_symbols, repository, said, tool, works};

#[test]
fn an_installation_is_complete_stripped_and_gone_after_uninstall() {
    let root = Root::new();
    root.make(&["install-built", "PREFIX=/usr"]);
    for file in [
        "/etc/longshore/longshore.toml",
        "/usr/bin/longshore",
        "/usr/bin/longshore-lab",
        "/usr/lib/longshore/liblongshore_nbd.so",
        "/usr/lib/sysusers.d/longshore.conf",
        "/usr/lib/tmpfiles.d/longshore.conf",
        "/usr/share/bash-completion/completions/longshore",
        "/usr/share/zsh/site-functions/_longshore",
        "/usr/share/fish/vendor_completions.d/longshore.fish",
        "/usr/share/man/man1/longshore-backup.1",
        "/usr/share/man/man5/longshore.toml.5",
        "/usr/share/doc/longshore/docs/emergency.md",
        "/usr/share/doc/longshore/contrib/monitoring/longshore.rules.yml",
        "/usr/share/doc/longshore/tests/reader/longshore_reader.py",
    ] {
        assert!(root.path(file).is_file(), "{file} is missing");
    }
    for binary in [
        "usr/bin/longshore",
        "usr/bin/longshore-lab",
        "usr/lib/longshore/liblongshore_nbd.so",
    ] {
        assert!(!has_symbols(&root.path(binary)), "{binary} is not stripped");
    }
    works(&root.path("usr/bin/longshore"));
    let units = std::fs::read_dir(repository().join("contrib/systemd")).unwrap();
    for unit in units.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        if !unit.ends_with(".service") && !unit.ends_with(".timer") {
            continue;
        }
        let text = root.text(&format!("usr/lib/systemd/system/{unit}"));
        assert!(!text.contains("/usr/local"), "{unit}");
        assert!(
            unit.ends_with(".timer") || text.contains("=/usr/bin/longshore "),
            "{unit}"
        );
    }
    root.make(&["uninstall", "PREFIX=/usr"]);
    assert_eq!(root.files(), Vec::<String>::new());
    assert!(!root.path("usr/share/doc/longshore").exists());
    assert!(!root.path("etc/longshore").exists());
}

/// The reader is where the emergency page calls it, so the page's commands work from its own place.
#[test]
fn the_installed_emergency_page_finds_its_reader() {
    let root = Root::new();
    root.make(&["install-built", "PREFIX=/usr", "PARTS=longshore"]);
    let docs = root.path("usr/share/doc/longshore");
    let page = root.text("usr/share/doc/longshore/docs/emergency.md");
    assert!(page.contains("python3 tests/reader/longshore_reader.py --help"));
    let mut reader = Command::new("python3");
    reader.args(["tests/reader/longshore_reader.py", "--help"]);
    said(reader.current_dir(docs));
}

#[test]
fn a_changed_configuration_survives_installation_and_removal() {
    let root = Root::new();
    let config = "etc/longshore/longshore.toml";
    root.make(&["install-built", "PREFIX=/usr", "PARTS=longshore"]);
    // The sample says nothing yet, and is understood.
    let mut check = Command::new(root.path("usr/bin/longshore"));
    check
        .arg("--config")
        .arg(root.path(config))
        .args(["config", "check"]);
    said(check.env("LONGSHORE_CATALOG", "none"));
    std::fs::write(root.path(config), "[target.t]\ndirectories = [\"/\"]\n").unwrap();
    root.make(&["install-built", "PREFIX=/usr", "PARTS=longshore"]);
    let told = root.make(&["uninstall", "PREFIX=/usr"]);
    assert!(
        told.contains("longshore.toml stays: it was changed"),
        "{told}"
    );
    assert_eq!(root.files(), ["/etc/longshore/longshore.toml"]);
    assert!(root.text(config).starts_with("[target.t]"));
}

/// The sample without its comment marks is a configuration that the program understands.
#[test]
fn the_sample_configuration_is_understood_when_its_lines_are_used() {
    let root = Root::new();
    let sample = std::fs::read_to_string(repository().join("contrib/longshore.toml")).unwrap();
    let (_, sample) = sample.split_once("# [").unwrap();
    let used: String = format!("# [{sample}")
        .lines()
        .map(|line| {
            format!(
                "{}\n",
                line.trim_start_matches("# ").trim_start_matches('#')
            )
        })
        .collect();
    let target = root.path("backup");
    std::fs::create_dir(&target).unwrap();
    let used = used.replace("/mnt/backup", target.to_str().unwrap());
    std::fs::write(root.path("longshore.toml"), used).unwrap();
    let mut check = crate::common::longshore(["--config"]);
    check
        .arg(root.path("longshore.toml"))
        .args(["config", "check"]);
    let told = said(&mut check);
    assert!(
        told.contains("target disk") && told.contains("database main"),
        "{told}"
    );
}

/// Below a home directory nothing is written outside of it.
#[test]
fn a_prefix_of_ones_own_keeps_everything_below_it() {
    let root = Root::new();
    root.make(&[
        "install-built",
        "PREFIX=/home/ada/.local",
        "PARTS=longshore",
    ]);
    let files = root.files();
    let outside = files
        .iter()
        .find(|file| !file.starts_with("/home/ada/.local/"));
    assert_eq!(outside, None);
    root.make(&["uninstall", "PREFIX=/home/ada/.local"]);
    assert_eq!(root.files(), Vec::<String>::new());
}

/// Every link of a package's documents leads to a file of the package, and the role for Ansible is among them.
#[test]
fn the_links_of_installed_documents_lead_to_installed_files() {
    let root = Root::new();
    root.make(&["install-built", "PREFIX=/usr", "PARTS=longshore"]);
    let docs = "/usr/share/doc/longshore/";
    let files = root.files();
    let role = format!("{docs}contrib/ansible/roles/longshore/tasks/main.yml");
    assert!(files.contains(&role), "{role} is missing");
    let mut followed = 0;
    for page in files
        .iter()
        .filter(|f| f.starts_with(docs) && f.ends_with(".md"))
    {
        let text = root.text(page.trim_start_matches('/'));
        let targets = text.split("](").skip(1);
        for target in targets.filter_map(|rest| rest.split_once(')')) {
            let path = target.0.split('#').next().unwrap();
            if path.is_empty() || path.contains("://") || path.contains(' ') {
                continue;
            }
            let home = root.path(page);
            let found = home.parent().unwrap().join(path);
            assert!(found.exists(), "{page}: {path}");
            followed += 1;
        }
    }
    assert!(followed > 200, "{followed}");
}

/// A file of an earlier version goes with the next one.
#[test]
fn an_upgrade_removes_files_that_the_new_version_lacks() {
    let root = Root::new();
    root.make(&["install-built", "PREFIX=/usr", "PARTS=lab"]);
    let old = root.path("usr/share/man/man1/longshore-old.1");
    std::fs::write(&old, "").unwrap();
    let list = root.path("usr/share/longshore/lab.files");
    let more = std::fs::read_to_string(&list).unwrap() + "/usr/share/man/man1/longshore-old.1\n";
    let mut lines: Vec<&str> = more.lines().collect();
    lines.sort_unstable();
    std::fs::write(&list, lines.join("\n") + "\n").unwrap();
    root.make(&["install-built", "PREFIX=/usr", "PARTS=lab"]);
    assert!(!old.exists());
    assert!(root.path("usr/bin/longshore-lab").exists());
}

#[test]
fn manual_pages_and_completions_are_well_formed() {
    let root = Root::new();
    root.make(&["install-built", "PREFIX=/usr"]);
    let bash = root.path("usr/share/bash-completion/completions/longshore");
    said(Command::new("bash").arg("-n").arg(bash));
    let Some(groff) = tool("groff") else { return };
    for page in root.files().iter().filter(|file| file.contains("/man/man")) {
        let mut groff = Command::new(&groff);
        groff
            .args(["-man", "-Kutf8", "-Tutf8", "-Wbreak", "-z"])
            .arg(root.path(page));
        let output = groff.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && told.is_empty(), "{page}: {told}");
    }
}

/// Neither asks for the tests' tools: no setup, and no program but cargo and the compiler before cargo runs.
#[test]
fn building_and_installing_need_no_tool_of_the_tests() {
    for (target, profile) in [
        ("build", "--release"),
        ("install", "--release"),
        ("deb", "--profile dist"),
        ("rpm", "--profile dist"),
    ] {
        let mut make = Command::new("make");
        make.arg("-C").arg(repository()).args(["-n", target]);
        make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
        let told = said(&mut make);
        let build = format!("build {profile} -p longshore ");
        assert!(told.contains(&build), "{target}: {told}");
        assert!(!told.contains("setup.sh"), "{target}: {told}");
    }
}
