//! Confines a child process: it can write only below given directories and connect to nothing.
//!
//! Two parts of the kernel enforce this, for any user and in most containers. Landlock (Linux 5.13; 6.2 for all that
//! is used here) limits what can be written. A seccomp filter refuses sockets, except for listening on this machine.
//! Reading files and using CPU and memory stay possible.
//!
//! Invariants
//! - Processes that the child starts inherit both limits.
//!
//! Leaves to others: which directories a child may write to (the callers), and starting it (`child.rs`).
//!
//! Source: Linux `include/uapi/linux/landlock.h`, `seccomp.h`, `filter.h`, `audit.h`.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The number is the same on every architecture.
const SYS_LANDLOCK_CREATE_RULESET: libc::c_long = 444;
const SYS_LANDLOCK_ADD_RULE: libc::c_long = 445;
const SYS_LANDLOCK_RESTRICT_SELF: libc::c_long = 446;

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;

/// Rights to change something, grouped by the Landlock ABI version that introduced them.
const WRITE_FILE: u64 = 1 << 1;
const REMOVE_DIR_TO_MAKE_SYM: u64 = 0x1ff << 4;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
const NET_BIND_AND_CONNECT_TCP: u64 = 0b11;
const SCOPE_ABSTRACT_SOCKET_AND_SIGNAL: u64 = 0b11;

/// Below this version Landlock refuses every rename between directories, which a database server needs.
const ABI_MIN: u32 = 2;
/// From this version on, truncating files is limited too.
const ABI_WHOLE: u32 = 3;

#[repr(C)]
struct RulesetAttr {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneathAttr {
    allowed_access: u64,
    parent_fd: i32,
}

/// Limits for a child, as far as this kernel supports them.
#[derive(Debug)]
pub struct Confinement {
    ruleset: Option<OwnedFd>,
    abi: u32,
    filter: Vec<libc::sock_filter>,
}

impl Confinement {
    /// Allows writes below `writable` and to `/dev/null`. Errors: one of the directories cannot be opened.
    pub fn within(writable: &[&Path]) -> io::Result<Confinement> {
        let abi = landlock_abi();
        let ruleset = match abi {
            ABI_MIN.. => Some(ruleset(abi, writable)?),
            _ => None,
        };
        let filter = match seccomp_is_there() {
            true => no_connections(),
            false => Vec::new(),
        };
        Ok(Confinement {
            ruleset,
            abi,
            filter,
        })
    }

    /// Whether the kernel prevents writing, creating, removing and truncating outside the directories.
    pub fn keeps_writes_in(&self) -> bool {
        self.ruleset.is_some() && self.abi >= ABI_WHOLE
    }

    /// Whether the kernel prevents connections, over the network and on this machine.
    pub fn keeps_connections_in(&self) -> bool {
        !self.filter.is_empty()
    }

    /// Applies the limits to a child before it executes its program. Set-user-ID programs cannot give the child more
    /// rights either.
    pub fn apply(self, command: &mut Command) {
        let Confinement {
            ruleset, filter, ..
        } = self;
        let enter = move || -> io::Result<()> {
            // SAFETY: the call demands five integers and touches no memory.
            checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
            if let Some(ruleset) = &ruleset {
                // SAFETY: the call demands two integers and an open descriptor, which the closure owns; it touches no
                // memory.
                checked(unsafe {
                    libc::syscall(SYS_LANDLOCK_RESTRICT_SELF, ruleset.as_raw_fd(), 0)
                })?;
            }
            if !filter.is_empty() {
                let program = libc::sock_fprog {
                    len: filter.len() as u16,
                    filter: filter.as_ptr().cast_mut(),
                };
                // SAFETY: the kernel demands a program of `len` instructions and copies it: `filter`, which the closure
                // owns, has as many, and `no_connections` made fewer than 65,536.
                checked(unsafe {
                    libc::syscall(
                        libc::SYS_seccomp,
                        libc::SECCOMP_SET_MODE_FILTER,
                        0,
                        &raw const program,
                    )
                })?;
            }
            Ok(())
        };
        // SAFETY: `pre_exec` demands a closure that may run between fork and exec, when locks of other threads stay locked:
        // it makes system calls only, on values prepared before the fork. Nothing is allocated and no lock is taken.
        unsafe { command.pre_exec(enter) };
    }
}

fn checked(returned: libc::c_long) -> io::Result<()> {
    match returned {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The kernel's Landlock version. 0: the kernel has no Landlock, or it is switched off.
fn landlock_abi() -> u32 {
    let none = std::ptr::null::<RulesetAttr>();
    // SAFETY: with this flag the call demands no structure, and only returns the version.
    let abi = unsafe {
        libc::syscall(
            SYS_LANDLOCK_CREATE_RULESET,
            none,
            0usize,
            CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(abi).unwrap_or(0)
}

fn ruleset(abi: u32, writable: &[&Path]) -> io::Result<OwnedFd> {
    let mut rights = WRITE_FILE | REMOVE_DIR_TO_MAKE_SYM | REFER;
    let mut file_rights = WRITE_FILE;
    for (since, right) in [(3, TRUNCATE), (5, IOCTL_DEV)] {
        if abi >= since {
            rights |= right;
            file_rights |= right;
        }
    }
    let attr = RulesetAttr {
        handled_access_fs: rights,
        handled_access_net: NET_BIND_AND_CONNECT_TCP,
        scoped: SCOPE_ABSTRACT_SOCKET_AND_SIGNAL,
    };
    // An older kernel knows only the first members of the structure.
    let len = match abi {
        ..4 => 8usize,
        4..6 => 16,
        6.. => 24,
    };
    // SAFETY: the kernel demands `len` readable bytes and copies them: `len` is at most the structure's 24.
    let fd = unsafe { libc::syscall(SYS_LANDLOCK_CREATE_RULESET, &raw const attr, len, 0u32) };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `from_raw_fd` demands a descriptor that nothing else owns: the call just returned it.
    let ruleset = unsafe { OwnedFd::from_raw_fd(fd) };
    let places = writable.iter().map(|dir| (*dir, rights));
    #[expect(
        clippy::disallowed_methods,
        reason = "opened as a place alone (O_PATH): its close drops no lock"
    )]
    for (path, rights) in places.chain([(Path::new("/dev/null"), file_rights)]) {
        let place = File::options()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(path)?;
        let rule = PathBeneathAttr {
            allowed_access: rights,
            parent_fd: place.as_raw_fd(),
        };
        // SAFETY: the kernel demands a `landlock_path_beneath_attr` and copies it: `rule` is packed as its header says. Both
        // descriptors are open until the end of this function.
        checked(unsafe {
            libc::syscall(
                SYS_LANDLOCK_ADD_RULE,
                ruleset.as_raw_fd(),
                RULE_PATH_BENEATH,
                &raw const rule,
                0u32,
            )
        })?;
    }
    Ok(ruleset)
}

/// The number of this architecture in `seccomp_data`.
#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const AUDIT_ARCH: Option<u32> = None;

/// System calls of the machine's other interface (x32) have numbers from here on.
const OTHER_INTERFACE: u32 = 0x4000_0000;

fn seccomp_is_there() -> bool {
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel demands a pointer to one 32-bit number, which is a local variable, and only reads it.
    let known = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0,
            &raw const action,
        )
    };
    AUDIT_ARCH.is_some() && known == 0
}

/// A filter that refuses every way to reach another program: connecting, sending to an address, sockets of families
/// other than this machine's own, io_uring (which would hide all of these), and writing into another process.
fn no_connections() -> Vec<libc::sock_filter> {
    // Offsets in `struct seccomp_data`: the call's number, the architecture, and the two halves of an argument.
    const NUMBER: u32 = 0;
    const ARCH: u32 = 4;
    let low = |argument: u32| 16 + 8 * argument + u32::from(cfg!(target_endian = "big")) * 4;
    let high = |argument: u32| 16 + 8 * argument + u32::from(cfg!(target_endian = "little")) * 4;
    let load = |at: u32| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    let ret = |what: u32| statement(libc::BPF_RET | libc::BPF_K, what);
    let refuse = ret(libc::SECCOMP_RET_ERRNO | libc::EACCES as u32);
    let allow = ret(libc::SECCOMP_RET_ALLOW);
    let equal = |value: u32, then: u8, otherwise: u8| {
        jump(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            value,
            then,
            otherwise,
        )
    };
    let number = |call: libc::c_long| u32::try_from(call).unwrap_or(u32::MAX);
    let mut filter = vec![
        load(ARCH),
        equal(AUDIT_ARCH.unwrap_or(0), 1, 0),
        refuse,
        load(NUMBER),
        jump(
            libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K,
            OTHER_INTERFACE,
            0,
            1,
        ),
        refuse,
    ];
    for call in [
        libc::SYS_connect,
        libc::SYS_sendmsg,
        libc::SYS_sendmmsg,
        libc::SYS_io_uring_setup,
        libc::SYS_ptrace,
        libc::SYS_process_vm_writev,
    ] {
        filter.extend([equal(number(call), 0, 1), refuse]);
    }
    filter.extend([
        equal(number(libc::SYS_socket), 0, 4),
        load(low(0)),
        equal(libc::AF_UNIX as u32, 0, 1),
        allow,
        refuse,
        // A reply on a connected socket has no address and is allowed.
        equal(number(libc::SYS_sendto), 0, 5),
        load(low(4)),
        equal(0, 0, 2),
        load(high(4)),
        equal(0, 1, 0),
        refuse,
        allow,
    ]);
    filter
}

fn statement(code: u32, value: u32) -> libc::sock_filter {
    jump(code, value, 0, 0)
}

fn jump(code: u32, value: u32, then: u8, otherwise: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: then,
        jf: otherwise,
        k: value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::{UnixDatagram, UnixListener};

    /// Runs a Perl script (Perl needs no library for sockets) and returns whether it succeeded.
    fn perl(script: &str, within: Option<&Path>) -> bool {
        let mut command = crate::child::installed("perl").unwrap();
        command.args(["-MSocket", "-e", script]);
        command.stderr(std::process::Stdio::null());
        if let Some(dir) = within {
            Confinement::within(&[dir]).unwrap().apply(&mut command);
        }
        command.status().unwrap().success()
    }

    /// Goal: a kernel that can confine does, so that what needs it is not left out in silence.
    #[test]
    fn the_kernels_confinement_is_used() {
        let inside = tempfile::tempdir().unwrap();
        let confinement = Confinement::within(&[inside.path()]).unwrap();
        assert_eq!(confinement.keeps_writes_in(), landlock_abi() >= ABI_WHOLE);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let has_seccomp = status.lines().any(|line| line.starts_with("Seccomp:"));
        assert_eq!(confinement.keeps_connections_in(), has_seccomp);
    }

    #[test]
    fn a_confined_child_writes_only_inside_and_cannot_connect() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let confinement = Confinement::within(&[inside.path()]).unwrap();
        if !confinement.keeps_writes_in() || !confinement.keeps_connections_in() {
            return eprintln!("skipped: this kernel confines nothing");
        }
        if crate::child::installed("perl").is_err() {
            return eprintln!("skipped: no perl");
        }
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let sockets = tempfile::tempdir().unwrap();
        let (listener, datagram) = (sockets.path().join("s"), sockets.path().join("d"));
        let _listens = UnixListener::bind(&listener).unwrap();
        let _receives = UnixDatagram::bind(&datagram).unwrap();
        let old = outside.path().join("old");
        std::fs::write(&old, "old").unwrap();
        let (inside, outside) = (inside.path().display(), outside.path().display());
        let (listener, datagram) = (listener.display(), datagram.display());
        for (script, confined) in [
            (
                format!(
                    "open F, '>', '{inside}/a' or exit 1; rename '{inside}/a', '{inside}/b' or exit 1"
                ),
                true,
            ),
            (
                format!(
                    "mkdir '{inside}/d'; open F, '>', '{inside}/c' or exit 1; rename '{inside}/c', '{inside}/d/c' or exit 1"
                ),
                true,
            ),
            ("open F, '>', '/dev/null' or exit 1".into(), true),
            ("open F, '<', '/etc/passwd' or exit 1".into(), true),
            (
                "socketpair(A, B, AF_UNIX, SOCK_STREAM, 0) or exit 1; send(A, 'x', 0) or exit 1"
                    .into(),
                true,
            ),
            (
                format!(
                    "socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un('{inside}/own')) or exit 1; unlink '{inside}/own'"
                ),
                true,
            ),
            (format!("open F, '>', '{outside}/a' or exit 1"), false),
            (format!("open F, '>>', '{outside}/old' or exit 1"), false),
            (
                format!("mkdir '{outside}/m' or exit 1; rmdir '{outside}/m'"),
                false,
            ),
            (
                format!(
                    "link '{outside}/old', '{outside}/other' or exit 1; unlink '{outside}/other'"
                ),
                false,
            ),
            (format!("truncate '{outside}/old', 1 or exit 1"), false),
            (
                format!(
                    "socket(S, AF_INET, SOCK_STREAM, 0) or exit 1; connect(S, pack_sockaddr_in({port}, inet_aton('127.0.0.1'))) or exit 1"
                ),
                false,
            ),
            ("socket(S, AF_INET, SOCK_DGRAM, 0) or exit 1".into(), false),
            ("socket(S, 10, SOCK_DGRAM, 0) or exit 1".into(), false),
            (
                format!(
                    "socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, pack_sockaddr_un('{listener}')) or exit 1"
                ),
                false,
            ),
            (
                format!(
                    "socket(S, AF_UNIX, SOCK_DGRAM, 0); send(S, 'x', 0, pack_sockaddr_un('{datagram}')) or exit 1"
                ),
                false,
            ),
            ("kill(0, getppid()) or exit 1".into(), confinement.abi < 6),
        ] {
            assert!(perl(&script, None), "unconfined: {script}");
            assert_eq!(
                perl(&script, Some(Path::new(&inside.to_string()))),
                confined,
                "confined: {script}"
            );
        }
    }
}
