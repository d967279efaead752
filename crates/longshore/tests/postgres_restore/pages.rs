//! Goal: no command of such a page is left out, and each runs as it stands.
//! Method: the blocks run as root in a mount and process namespace, with directories of their own for all that they change, on
//! Debian's layout. A course names the blocks in their order.
//! Not covered: pages whose blocks need other machines.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{BINARY, text};

/// The version that is on the pages.
const MAJOR: &str = "15";

/// The first lines of every script, with `run SECTION NUMBER`, which runs a block.
const STAGE: &str = r#"
set -euo pipefail
umask 022
ulimit -v 16000000
repo=$1 blocks=$2 longshore=$3
for dir in /etc/postgresql /var/lib/postgresql /var/log/postgresql /run/postgresql /mnt /srv /usr/local/bin; do
    mkdir -p $dir
    mount -t tmpfs -o mode=755 tmpfs $dir
done
chown postgres:postgres /etc/postgresql /var/lib/postgresql /var/log/postgresql /run/postgresql /srv
ln -s "$longshore" /usr/local/bin/longshore

p() { runuser -l postgres -c "$*"; }
# Block number $2 of a section.
run() {
    local file="$blocks/$1.$2"
    echo "== $1, block $2"
    { cat "$blocks/start"; cat "$file"; } | sed "s/LABEL/${LABEL:-none}/g; s/TIME-OF-THE-PAGE/${TIME:-}/" > /srv/block.sh
    case $(cat "$file.words") in
    "as root") bash -e /srv/block.sh ;;
    *) runuser -l postgres -c "cd $repo && bash -e /srv/block.sh" ;;
    esac
}
"#;

/// Runs `course`, in which `run SECTION NUMBER` runs a block of `docs/NAME.md`; each but `start` must be run, and `start`
/// runs before each. `edit` changes the commands of a block first.
///
/// # Panics
/// If a block is not run, or the course does not come to its end.
pub fn run_page(name: &str, start: &str, course: &str, edit: impl Fn(String) -> String) {
    let is_root = fs::read_to_string("/proc/self/status").is_ok_and(|s| s.contains("Uid:\t0\t"));
    let has_tools = Path::new("/usr/bin/pg_createcluster").exists()
        && Path::new("/usr/lib/postgresql").join(MAJOR).exists();
    if !is_root || !has_tools {
        assert!(
            std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_none(),
            "needs root, and PostgreSQL {MAJOR} of Debian's packages"
        );
        eprintln!("skipped: needs root, and PostgreSQL {MAJOR} of Debian's packages");
        return;
    }
    let page = fs::read_to_string(repository().join(format!("docs/{name}.md"))).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    for (heading, blocks) in blocks(&page) {
        for (number, (words, commands)) in blocks.into_iter().enumerate() {
            assert_ne!(
                words, "no",
                "{heading}: a block that no test runs: {commands}"
            );
            let name = format!("{}.{}", file_name(&heading), number + 1);
            fs::write(dir.path().join(&name), edit(commands)).unwrap();
            fs::write(dir.path().join(format!("{name}.words")), words).unwrap();
            names.push(name);
        }
    }
    fs::rename(dir.path().join(start), dir.path().join("start")).unwrap();
    for name in names.iter().filter(|name| *name != start) {
        let call = format!("run {}", name.replace('.', " "));
        assert!(course.contains(&call), "{name} is never run");
    }
    let script = dir.path().join("script");
    fs::write(&script, format!("{STAGE}{course}echo THE PAGE RAN\n")).unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "--pid", "--fork"]);
    unshare.args(["--kill-child", "--mount-proc", "bash"]);
    unshare.arg(&script).arg(repository());
    let output = unshare.arg(dir.path()).arg(BINARY).output().unwrap();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success() && said.contains("THE PAGE RAN"),
        "{}",
        &said[said.len().saturating_sub(6000)..]
    );
}

pub fn repository() -> PathBuf {
    let repo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    repo.canonicalize().unwrap()
}

/// Blocks of commands: the words after `sh run`, and the commands.
type Blocks = Vec<(String, String)>;

/// The blocks of a page by their headings; those before the first one under an empty name.
fn blocks(page: &str) -> BTreeMap<String, Blocks> {
    let mut found: BTreeMap<String, Blocks> = BTreeMap::new();
    let mut heading = String::new();
    let mut block: Option<(String, String)> = None;
    for line in page.lines() {
        match (&mut block, line) {
            (Some(_), "```") => found
                .entry(heading.clone())
                .or_default()
                .extend(block.take()),
            (Some((_, commands)), line) => *commands += &format!("{line}\n"),
            (None, line) => {
                if let Some(name) = line.strip_prefix("## ") {
                    name.clone_into(&mut heading);
                }
                if let Some(words) = line.strip_prefix("```sh run") {
                    block = Some((words.trim().to_owned(), String::new()));
                } else if line.starts_with("```") {
                    block = Some(("no".to_owned(), String::new()));
                }
            }
        }
    }
    found
}

fn file_name(heading: &str) -> String {
    match heading {
        "" => "top".to_owned(),
        heading => heading.to_lowercase().replace(',', "").replace(' ', "-"),
    }
}
