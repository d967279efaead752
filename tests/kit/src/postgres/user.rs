//! The user that runs the servers.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The user of every server and of the tools that talk to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// User and group, if they are not those of this process.
    switch: Option<(u32, u32)>,
}

impl User {
    /// This process's user; as root `postgres`, or `nobody` if that user does not exist.
    pub fn of_servers() -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self { switch: None };
        }
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let find = |name: &str| {
            let line = users.lines().find(|l| l.split(':').next() == Some(name))?;
            let mut ids = line.split(':').skip(2).map(str::parse);
            Some((ids.next()?.ok()?, ids.next()?.ok()?))
        };
        let ids = find("postgres").or_else(|| find("nobody"));
        Self {
            switch: Some(ids.expect("root needs a user postgres or nobody to run servers")),
        }
    }

    /// User and group, if they are not those of this process.
    pub fn ids(self) -> Option<(u32, u32)> {
        self.switch
    }

    /// `program`, to be run as this user.
    pub fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some((user, group)) = self.switch {
            command.uid(user).gid(group);
        }
        command
    }

    /// Gives a file, or a directory with everything below it, to this user. Links are not followed.
    pub fn own(self, path: &Path) {
        let Some((user, group)) = self.switch else {
            return;
        };
        std::os::unix::fs::lchown(path, Some(user), Some(group))
            .unwrap_or_else(|e| panic!("chown {}: {e}", path.display()));
        if path.is_dir() && !path.is_symlink() {
            for entry in std::fs::read_dir(path).unwrap() {
                self.own(&entry.unwrap().path());
            }
        }
    }
}
