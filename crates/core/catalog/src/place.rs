//! The default location of the catalog.

use std::ffi::OsString;
use std::path::PathBuf;

/// `$LONGSHORE_CATALOG`; otherwise `longshore/catalog.db` below `$XDG_STATE_HOME`, or below `/var/lib` for root and
/// `~/.local/state` for other users. Accesses no file.
pub fn default_path() -> PathBuf {
    choose(
        |name| std::env::var_os(name),
        rustix::process::geteuid().is_root(),
    )
}

fn choose(env: impl Fn(&str) -> Option<OsString>, root: bool) -> PathBuf {
    let set = |name: &str| env(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(path) = set("LONGSHORE_CATALOG") {
        return path;
    }
    // The XDG specification says to ignore a relative path; a relative home would give one.
    let absolute = |name| set(name).filter(|p| p.is_absolute());
    let state = absolute("XDG_STATE_HOME");
    let home = || {
        absolute("HOME")
            .filter(|_| !root)
            .map(|h| h.join(".local/state"))
    };
    state
        .or_else(home)
        .unwrap_or_else(|| "/var/lib".into())
        .join("longshore/catalog.db")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(vars: &[(&str, &str)], root: bool) -> PathBuf {
        let env = |name: &str| vars.iter().find(|v| v.0 == name).map(|v| v.1.into());
        choose(env, root)
    }

    #[test]
    fn the_environment_wins_then_the_state_directory_then_the_home() {
        let home = ("HOME", "/home/ada");
        let state = ("XDG_STATE_HOME", "/state");
        let own = ("LONGSHORE_CATALOG", "my.db");
        assert_eq!(path(&[home, state, own], true), PathBuf::from("my.db"));
        assert_eq!(
            path(&[home, state], true),
            PathBuf::from("/state/longshore/catalog.db")
        );
        let at_home = PathBuf::from("/home/ada/.local/state/longshore/catalog.db");
        assert_eq!(path(&[home], false), at_home);
        assert_eq!(
            path(&[home, ("XDG_STATE_HOME", "relative")], false),
            at_home
        );
        assert_eq!(path(&[home, ("LONGSHORE_CATALOG", "")], false), at_home);
    }

    #[test]
    fn root_and_the_homeless_share_the_machines_place() {
        let shared = PathBuf::from("/var/lib/longshore/catalog.db");
        assert_eq!(path(&[("HOME", "/root")], true), shared);
        assert_eq!(path(&[], false), shared);
        assert_eq!(path(&[("HOME", "relative")], false), shared);
    }
}
