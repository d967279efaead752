//! Goal: the tests of packages have an empty root to install into, the programs of this build, and ways to look at the
//! result.
//! Not covered: this file has no tests. A tool that is missing is skipped with a message, unless
//! `LONGSHORE_REQUIRE_TOOLS` is set.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::common::{BINARY, Ran};

/// A directory with links to the programs of this build. A build of tests alone leaves the plugin next to the tests.
pub fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let links = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
        std::fs::create_dir_all(&links).unwrap();
        let programs = Path::new(BINARY);
        let plugin = "liblongshore_nbd.so";
        let tests = std::env::current_exe().unwrap();
        for built in [
            programs.to_owned(),
            programs.with_file_name("longshore-lab"),
            tests.with_file_name(plugin),
        ] {
            let link = links.join(built.file_name().unwrap());
            let _old = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(built, link).unwrap();
        }
        links
    })
}

pub fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap()
}

/// `None` if a program is missing, where the tests need not have it.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|path| path.exists());
    if found.is_none() {
        let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
        assert!(!required, "{name} is not here; run scripts/setup.sh");
        eprintln!("skipped: {name} is not here");
    }
    found
}

/// Runs a command that must succeed; its standard output.
pub fn said(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let ran = Ran::of(&output);
    assert!(
        output.status.success(),
        "{command:?}\n{}\n{}",
        ran.out,
        ran.err
    );
    ran.out
}

pub struct Root {
    pub dir: TempDir,
}

impl Root {
    pub fn new() -> Root {
        Root {
            dir: TempDir::new().unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name.trim_start_matches('/'))
    }

    pub fn text(&self, name: &str) -> String {
        let path = self.path(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// A target of the Makefile, with this root as DESTDIR.
    pub fn make(&self, words: &[&str]) -> String {
        let mut make = Command::new("make");
        make.arg("-C").arg(repository()).arg("--no-print-directory");
        make.args(words);
        make.arg(format!("BUILT={}", built().display()));
        make.arg(format!("DESTDIR={}", self.dir.path().display()));
        // Of a `make test` around this.
        make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
        said(&mut make)
    }

    /// Every file, without the root in front, sorted.
    pub fn files(&self) -> Vec<String> {
        let found = said(Command::new("find").arg(self.dir.path()).args([
            "(", "-type", "f", "-o", "-type", "l", ")", "-printf", "/%P\n",
        ]));
        let mut files: Vec<_> = found.lines().map(str::to_owned).collect();
        files.sort();
        files
    }
}

/// A backup of a small tree, its verification and its restore, by an installed program.
pub fn works(program: &Path) {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("data")).unwrap();
    std::fs::write(at("data/file"), "content").unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(program);
        command.args(["--catalog", "none", "--quiet"]).args(args);
        said(command.current_dir(dir.path()).env("HOME", dir.path()));
    };
    run(&[
        "backup", "data", "--to", "a.bak", "--to", "b.bak", "--verify",
    ]);
    run(&["restore", "a.bak", "b.bak", "--to", "back"]);
    assert_eq!(std::fs::read_to_string(at("back/file")).unwrap(), "content");
}

/// Whether an ELF file has its table of symbols.
pub fn has_symbols(path: &Path) -> bool {
    said(Command::new("readelf").args(["-S", "-W"]).arg(path)).contains(".symtab")
}
