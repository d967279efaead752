//! Goal: the Debian packages hold what an installation does, depend on one another, keep configuration, and are the
//! same bytes when they are made again.
//! Method: `scripts/package.sh` on this build, without compression; dpkg's own tools and readelf read the results.
//! Not covered: the installation by dpkg on a system, and compressed packages.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::stage::{Root, built, has_symbols, repository, said, tool, works};

/// The packages of this build, made once for all tests; `None` without the tool.
fn packages() -> Option<&'static Path> {
    static MADE: OnceLock<Root> = OnceLock::new();
    tool("dpkg-deb")?;
    let made = MADE.get_or_init(|| {
        let root = Root::new();
        let mut script = Command::new(repository().join("scripts/package.sh"));
        script.arg("deb").arg(built()).arg(root.path("out"));
        // A packed test build would take minutes.
        script
            .env("COMPRESSION", "none")
            .env("VERSION", "0.1.0~test1");
        said(&mut script);
        root
    });
    Some(made.dir.path())
}

fn file(packages: &Path, name: &str) -> PathBuf {
    let found = std::fs::read_dir(packages.join("out")).unwrap();
    let begin = format!("{name}_0.1.0~test1_");
    let mut found = found.map(|entry| entry.unwrap().path());
    found
        .find(|path| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(&begin)
        })
        .unwrap_or_else(|| panic!("no package {name}"))
}

fn extracted(packages: &Path, names: &[&str]) -> Root {
    let root = Root::new();
    for name in names {
        let mut dpkg = Command::new("dpkg-deb");
        said(
            dpkg.arg("-x")
                .arg(file(packages, name))
                .arg(root.dir.path()),
        );
    }
    root
}

fn field(package: &Path, name: &str) -> String {
    let told = said(Command::new("dpkg-deb").arg("-f").arg(package).arg(name));
    told.trim_end().to_owned()
}

#[test]
fn the_packages_hold_what_an_installation_does_and_run_from_their_root() {
    let Some(packages) = packages() else { return };
    let root = extracted(packages, &["longshore", "longshore-lab", "longshore-cache"]);
    let installed = Root::new();
    installed.make(&["install-built", "PREFIX=/usr"]);
    let kept = |file: &&String| !file.starts_with("/usr/share/longshore/");
    let packed = root.files();
    for file in installed.files().iter().filter(kept) {
        let page = format!("{file}.gz");
        assert!(
            packed.contains(file) || packed.contains(&page),
            "{file} is missing"
        );
    }
    works(&root.path("usr/bin/longshore"));
    let listed = said(
        Command::new("dpkg-deb")
            .arg("-c")
            .arg(file(packages, "longshore")),
    );
    assert!(
        listed.lines().all(|line| line.contains(" root/root ")),
        "{listed}"
    );
    let version = said(Command::new(root.path("usr/bin/longshore")).arg("--version"));
    assert!(
        version.starts_with("longshore ") && version.contains("zstd "),
        "{version}"
    );
}

#[test]
fn packages_depend_on_one_another_and_configuration_is_kept() {
    let Some(packages) = packages() else { return };
    let main = file(packages, "longshore");
    assert!(
        field(&main, "Depends").contains("libc6 (>= 2."),
        "{}",
        field(&main, "Depends")
    );
    for (name, needs) in [
        ("longshore-lab", "longshore (= 0.1.0~test1)"),
        ("longshore-cache", "nbdkit"),
        ("longshore-dbgsym", "longshore (= 0.1.0~test1)"),
    ] {
        let depends = field(&file(packages, name), "Depends");
        assert!(depends.contains(needs), "{name}: {depends}");
    }
    let dir = Root::new();
    said(
        Command::new("dpkg-deb")
            .arg("-e")
            .arg(&main)
            .arg(dir.path("control")),
    );
    assert_eq!(
        dir.text("control/conffiles"),
        "/etc/longshore/longshore.toml\n"
    );
    let cache = file(packages, "longshore-cache");
    let mut control = Command::new("dpkg-deb");
    said(control.arg("-e").arg(&cache).arg(dir.path("cache")));
    let of = |package| ["postinst", "prerm", "postrm"].map(|script| format!("{package}/{script}"));
    for script in [of("control"), of("cache")].concat() {
        said(Command::new("sh").arg("-n").arg(dir.path(&script)));
        let text = dir.text(&script);
        for surprise in ["enable", "systemctl start", "restart", "adduser"] {
            assert!(
                !text
                    .lines()
                    .any(|l| !l.starts_with('#') && l.contains(surprise)),
                "{script}"
            );
        }
    }
    // dpkg compares every file with its sum.
    let root = extracted(packages, &["longshore"]);
    let mut sums = Command::new("md5sum");
    sums.args(["--quiet", "-c"])
        .arg(dir.path("control/md5sums"));
    said(sums.current_dir(root.dir.path()));
}

/// The cache's unit comes with its plugin, and not with the program alone.
#[test]
fn the_package_of_the_cache_has_its_unit() {
    let Some(packages) = packages() else { return };
    let unit = "/usr/lib/systemd/system/longshore-cache@.service".to_owned();
    let root = extracted(packages, &["longshore-cache"]);
    assert!(root.files().contains(&unit), "{:?}", root.files());
    assert!(root.text(&unit).contains("ExecStart=/usr/bin/longshore "));
    let program = extracted(packages, &["longshore"]);
    assert!(!program.files().contains(&unit));
}

/// The stripped program's build id leads to its symbols.
#[test]
fn symbols_are_in_a_package_of_their_own() {
    let Some(packages) = packages() else { return };
    let root = extracted(packages, &["longshore", "longshore-dbgsym"]);
    let program = root.path("usr/bin/longshore");
    assert!(!has_symbols(&program));
    let notes = said(Command::new("readelf").arg("-n").arg(&program));
    let id = notes.split("Build ID: ").nth(1).unwrap();
    let id = id.lines().next().unwrap();
    let symbols = format!("usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]);
    assert!(has_symbols(&root.path(&symbols)), "{symbols}");
}

/// Two packages of one build are one file, byte for byte.
#[test]
fn a_package_is_the_same_when_it_is_made_again() {
    let Some(packages) = packages() else { return };
    let again = Root::new();
    let mut script = Command::new(repository().join("scripts/package.sh"));
    script.arg("deb").arg(built()).arg(again.path("out"));
    script
        .env("COMPRESSION", "none")
        .env("VERSION", "0.1.0~test1");
    said(&mut script);
    for name in [
        "longshore",
        "longshore-lab",
        "longshore-cache",
        "longshore-dbgsym",
    ] {
        let (one, two) = (file(packages, name), file(again.dir.path(), name));
        said(Command::new("cmp").arg(one).arg(two));
    }
}
