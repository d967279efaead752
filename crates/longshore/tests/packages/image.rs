//! The files of the container image, as a root directory.

use std::process::Command;

use crate::stage::{Root, built, repository, said};

fn image() -> Root {
    let root = Root::new();
    let mut script = Command::new(repository().join("scripts/image-root.sh"));
    said(script.arg(built()).arg(root.path("image")));
    root
}

#[test]
fn the_image_has_the_program_its_libraries_and_no_shell() {
    let root = image();
    let files = root.files();
    assert!(files.iter().any(|file| file == "/image/usr/bin/longshore"));
    let programs: Vec<_> = files.iter().filter(|file| file.contains("/bin/")).collect();
    assert_eq!(programs, ["/image/usr/bin/longshore"]);
    let container = std::fs::read_to_string(repository().join("contrib/Containerfile")).unwrap();
    for line in ["FROM scratch", "USER 26:26", "COPY --from=build /image/ /"] {
        assert!(container.lines().any(|l| l == line), "{line}");
    }
}

/// As in a container: another root, which is read-only, user 26, and only /mnt and the history can be written.
#[test]
fn a_backup_works_in_the_image_as_user_26_with_a_read_only_root() {
    let root = image();
    let mut tried = Command::new("unshare");
    let tried = tried.args(["--mount", "--pid", "--fork", "true"]).output();
    if !tried.is_ok_and(|output| output.status.success()) {
        let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
        assert!(!required, "nobody can make a mount namespace here");
        eprintln!("skipped: nobody can make a mount namespace here");
        return;
    }
    let data = root.path("data");
    std::fs::create_dir_all(data.join("files")).unwrap();
    std::fs::write(data.join("files/one"), "content").unwrap();
    for path in [&data, &data.join("files"), &data.join("files/one")] {
        std::os::unix::fs::chown(path, Some(26), Some(26)).unwrap();
    }
    let script = r#"
        set -e
        mount --bind "$1/image" "$1/image"
        mount -t proc proc "$1/image/proc"
        mount --bind "$1/data" "$1/image/mnt"
        mount -o remount,ro,bind "$1/image"
        run() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/var/lib/longshore LONGSHORE_CATALOG=none chroot --userspec=26:26 "$1/image" /usr/bin/longshore "${@:2}"; }
        run "$1" --version
        run "$1" --quiet backup files:/mnt/files --to /mnt/a.bak --verify
        run "$1" --quiet restore /mnt/a.bak --to /mnt/back
        if run "$1" --quiet backup files:/mnt/files --to /tmp/a.bak; then exit 9; fi
        if run "$1" backup postgres:///postgres --to /mnt/p.bak; then exit 8; fi
    "#;
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "--pid", "--fork", "bash", "-c", script, "bash"]);
    let output = inside.arg(root.dir.path()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{:?}: {told}", output.status);
    assert!(told.contains("user number 26 has no name"), "{told}");
    let back = std::fs::read_to_string(data.join("back/one")).unwrap();
    assert_eq!(back, "content");
}
