//! Ctrl-C: the first asks the run to end, the second ends the program at once.
//!
//! Invariants
//! - SIGTERM and SIGHUP count too, so that a service manager's stop leaves nothing half-valid either. A signal that is
//!   ignored on purpose (nohup, a background job) stays ignored.
//! - A handler does only what signals allow: atomic loads and stores, `write` and `_exit`.
//! - A file that reaches its size limit fails its write; it does not end the program.
//!
//! Leaves to others: looking at the flag (every run), and stripes and staging directories that an end at once leaves:
//! they are invalid by construction.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};

use crate::failure::Exit;

static CANCEL: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The text that the second signal prints; null if there is none. The text is never freed, since the handler may read
/// it.
static LAST_WORDS: AtomicPtr<String> = AtomicPtr::new(std::ptr::null_mut());

/// Sets what is written to standard error if a second signal ends the program. Each text stays in memory: only for the
/// few moments of a run at which the end of the program leaves something half done.
pub fn set_last_words(text: Option<String>) {
    let words = text.map_or(std::ptr::null_mut(), |text| Box::into_raw(Box::new(text)));
    LAST_WORDS.store(words, Ordering::Release);
}

/// Calls only what is allowed in a signal handler: atomic loads and stores, `write` and `_exit`.
extern "C" fn on_signal(_signal: libc::c_int) {
    let again = CANCEL
        .get()
        .is_none_or(|cancel| cancel.swap(true, Ordering::Relaxed));
    if again {
        // SAFETY: `as_ref` demands null or a value that lives: the pointer is of a text that `set_last_words` leaked,
        // which nobody changes or frees.
        if let Some(words) = unsafe { LAST_WORDS.load(Ordering::Acquire).as_ref() } {
            // SAFETY: `write` demands `len` readable bytes, which are the text's, and is allowed in a signal handler. If it
            // fails, there is nobody to tell.
            unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
        }
        // SAFETY: a signal handler must call only what is async-signal-safe: `_exit` is, and does not return.
        // Unfinished stripes and staging directories stay behind, invalid by construction.
        unsafe { libc::_exit(Exit::Interrupted.code().into()) }
    }
}

/// The flag that the signals set. Installs the handlers on first use.
pub fn cancel_flag() -> Arc<AtomicBool> {
    CANCEL
        .get_or_init(|| {
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                install(signal);
            }
            Arc::new(AtomicBool::new(false))
        })
        .clone()
}

/// A file that reaches its size limit (`ulimit -f`, `LimitFSIZE`) is treated as a full disk: the write fails, and the
/// run reports it. By default the signal ends the program silently. The signal is handled, not ignored, so that child
/// processes do not inherit an ignored signal.
pub fn outlive_file_limits() {
    extern "C" fn nothing(_signal: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = nothing;
    handle(libc::SIGXFSZ, handler);
}

/// Under a limit on address space (`ulimit -v`), all threads allocate from one heap. By default glibc reserves 64 MiB for
/// each of many heaps; what remained would not be what the plan of a run was fitted to.
///
/// # Safety
/// No other thread runs: `mallopt` may not change a limit while another thread allocates.
pub unsafe fn save_address_space() {
    #[cfg(target_env = "gnu")]
    // SAFETY: all zeros are a valid `rlimit`, and `getrlimit` demands a place for one. `mallopt` demands that no other
    // thread allocates, which the caller ensures.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_AS, &mut limit) == 0
            && limit.rlim_cur != libc::RLIM_INFINITY
        {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

/// Ends the program here if a normal exit could take for ever: vendors' libraries wait for calls that have not
/// returned, and for their own threads. All data that must last is already on its devices.
pub fn leave_if_hung(exit: Exit) {
    if longshore_accel::holds_exit() {
        let _gone = std::io::stdout().flush();
        // SAFETY: `_exit` demands a number only, and does not return; the destructors that it skips are what may hang.
        unsafe { libc::_exit(exit.code().into()) }
    }
}

fn install(signal: libc::c_int) {
    handle(signal, on_signal);
}

fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: all zeros are a valid `sigaction`, and both structures outlive the calls. The kernel demands a handler that does
    // only what signals allow, with the signature of its flags: `on_signal` says what it does, the other does nothing, and
    // without SA_SIGINFO a handler takes one number. A panic in a handler aborts.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        // A signal that is ignored on purpose (nohup, a background job) stays ignored.
        if libc::sigaction(signal, std::ptr::null(), &mut before) != 0
            || before.sa_sigaction == libc::SIG_IGN
        {
            return;
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        // Reads and writes continue: the flag is checked between buffers.
        action.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}
