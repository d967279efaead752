//! RPM packages.

use std::process::Command;

use crate::stage::{Root, built, repository, said, tool, works};

#[test]
fn rpm_packages_hold_programs_units_pages_and_a_kept_configuration() {
    let (Some(_), Some(cpio)) = (tool("rpmbuild"), tool("cpio")) else {
        return;
    };
    let root = Root::new();
    let mut script = Command::new(repository().join("scripts/package.sh"));
    script.arg("rpm").arg(built()).arg(root.path("out"));
    script.env("COMPRESSION", "none");
    let made = said(&mut script);
    let package = |begin: &str| {
        let named = |line: &&str| line.rsplit('/').next().unwrap().starts_with(begin);
        made.lines()
            .find(named)
            .unwrap_or_else(|| panic!("no {begin}: {made}"))
    };
    let query = |args: &[&str], package: &str| said(Command::new("rpm").args(args).arg(package));
    let main = package("longshore-0");
    let files = query(&["-qlp"], main);
    for file in [
        "/etc/longshore/longshore.toml",
        "/usr/bin/longshore",
        "/usr/lib/systemd/system/longshore-backup@.service",
        "/usr/share/man/man5/longshore.toml.5.gz",
        "/usr/share/doc/longshore/docs/emergency.md",
    ] {
        assert!(
            files.lines().any(|line| line == file),
            "{file} is missing: {files}"
        );
    }
    assert!(
        !files.lines().any(|line| line == "/usr/bin"),
        "a system's directory is owned"
    );
    assert!(
        files
            .lines()
            .any(|line| line == "/usr/share/doc/longshore/docs"),
        "a directory of its own stays after a removal"
    );
    let symbols = query(&["-qlp"], package("longshore-debuginfo-0"));
    assert!(
        symbols.lines().any(|line| line.ends_with(".debug")),
        "{symbols}"
    );
    assert_eq!(query(&["-qcp"], main), "/etc/longshore/longshore.toml\n");
    let cache = package("longshore-cache-0");
    assert!(query(&["-qp", "--requires"], cache).contains("nbdkit"));
    assert!(query(&["-qlp"], cache).contains("/system/longshore-cache@.service\n"));
    assert!(query(&["-qp", "--scripts"], cache).contains("systemctl stop 'longshore-cache@*'"));
    assert!(query(&["-qlp"], package("longshore-lab-0")).contains("/usr/bin/longshore-lab"));
    assert!(query(&["-qp", "--requires"], main).contains("libc.so.6"));
    let mut unpack = Command::new("sh");
    unpack.args(["-c", "rpm2cpio \"$1\" | \"$2\" -idm --quiet", "sh", main]);
    said(unpack.arg(cpio).current_dir(root.dir.path()));
    works(&root.path("usr/bin/longshore"));
}
