//! Goal: every command that reads a set made from a file in use reports that.
//! Method: the real program reads a file slowly while the test writes to it.

mod common;

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use common::*;

#[test]
fn a_set_made_from_a_changing_file_says_so_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("source")).unwrap();
    std::fs::write(at("source/busy.log"), content(1, 3 << 20)).unwrap();
    let slowly = |policy: &str| {
        let mut command = longshore(["backup", "--max-rate", "4M", "--max-transfer-size", "64K"]);
        command
            .args(["--on-change", policy, "--to"])
            .arg(at("a.bak"))
            .arg(at("source"));
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = std::fs::File::options()
            .append(true)
            .open(at("source/busy.log"))
            .unwrap();
        // The test writes until the program has ended, however late the program begins to read.
        while child.try_wait().unwrap().is_none() {
            log.write_all(b"one more line\n").unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait_with_output().unwrap()
    };
    let failed = slowly("fail");
    assert_eq!(failed.status.code(), Some(3), "{}", text(&failed.stderr));
    assert!(
        text(&failed.stderr).contains("busy.log"),
        "{}",
        text(&failed.stderr)
    );
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        1,
        "left behind"
    );

    let marked = slowly("mark");
    assert_eq!(marked.status.code(), Some(5), "{}", text(&marked.stderr));
    assert!(
        text(&marked.stderr).contains("busy.log"),
        "{}",
        text(&marked.stderr)
    );
    let media = at("a.bak");
    let listed = expect(0, ["list".as_ref(), media.as_os_str()]);
    let said = text(&listed.stdout) + &text(&listed.stderr);
    assert!(said.contains("marked"), "list says nothing: {said}");
    let verified = expect(0, ["verify".as_ref(), media.as_os_str()]);
    assert!(
        text(&verified.stdout).contains("changed"),
        "{}",
        text(&verified.stdout)
    );
    let out = at("out");
    let restored = expect(
        5,
        [
            "restore".as_ref(),
            media.as_os_str(),
            "--to".as_ref(),
            out.as_os_str(),
        ],
    );
    assert!(
        text(&restored.stderr).contains("3188"),
        "{}",
        text(&restored.stderr)
    );
    assert!(
        text(&restored.stderr).contains("busy.log"),
        "{}",
        text(&restored.stderr)
    );
}
