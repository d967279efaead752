//! A sandbox that does not know newer system calls, as in containers: seccomp refuses them in one thread.

use rustix::io::Errno;

/// `cachestat`, `openat2`, `fchmodat2`, `preadv2`, `pwritev2`: the calls that host files prefer.
const CALLS: [libc::c_long; 5] = [
    451,
    libc::SYS_openat2,
    libc::SYS_fchmodat2,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
];

/// Runs `work` in a thread where those calls fail with `errno`, also in threads that it starts.
pub fn refusing(errno: Errno, work: fn()) {
    let inside = move || {
        if !refuse(errno) {
            eprintln!("skipped: this system takes no seccomp filter");
            return;
        }
        let is_in_force = rustix::io::preadv2(
            std::fs::File::open("/dev/zero").unwrap(),
            &mut [std::io::IoSliceMut::new(&mut [0])],
            0,
            rustix::io::ReadWriteFlags::empty(),
        );
        assert_eq!(is_in_force, Err(errno));
        work();
    };
    if let Err(panic) = std::thread::spawn(inside).join() {
        std::panic::resume_unwind(panic);
    }
}

/// Installs the filter; returns whether the system accepted it.
fn refuse(errno: Errno) -> bool {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let (load, equal, answer) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    // In the data shown to the filter, the call's number comes first.
    let mut steps = vec![step(load, 0, 0, 0)];
    for (at, call) in CALLS.iter().enumerate() {
        let to_refusal = (CALLS.len() - at) as u8;
        steps.push(step(equal, to_refusal, 0, *call as u32));
    }
    steps.push(step(answer, 0, 0, libc::SECCOMP_RET_ALLOW));
    let refusal = libc::SECCOMP_RET_ERRNO | errno.raw_os_error() as u32;
    steps.push(step(answer, 0, 0, refusal));
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the call demands numbers only.
    let promised = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the call demands a program that lives for the call, which copies it and its steps.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    (promised, set) == (0, 0)
}
