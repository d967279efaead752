//! No file with this process's memory after a crash, once keys are in it.
//!
//! Invariants
//! - The limit of core files is 0 from then on, also for programs that are started, and the system is told not to dump this process.
//!   The second holds for handlers of the system, too, as systemd's, which disregard the limit.
//!
//! Leaves to others: when keys come into memory (`keys.rs`, `key_command.rs` and the commands), and erasing them there
//! (`longshore-crypt`).

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};

/// Leaves no memory of this process in a file from now on. Whatever the system refuses stays as it was: no backup depends on it.
pub fn forbid() {
    let limit = getrlimit(Resource::Core);
    if limit.current != Some(0) {
        let none = Rlimit {
            current: Some(0),
            maximum: limit.maximum,
        };
        let _stays = setrlimit(Resource::Core, none);
    }
    let _stays = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_the_limit_nor_the_system_lets_a_process_with_keys_be_dumped() {
        forbid();
        assert_eq!(getrlimit(Resource::Core).current, Some(0));
        let dumpable = rustix::process::dumpable_behavior().unwrap();
        assert_eq!(dumpable, DumpableBehavior::NotDumpable);
        // The files of /proc that the program reads of itself stay readable, whoever runs it.
        assert!(std::fs::read_dir("/proc/self/fd").unwrap().count() > 2);
        assert!(std::fs::read_to_string("/proc/self/status").is_ok());
    }
}
