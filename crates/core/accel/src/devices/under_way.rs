//! Calls into vendors' libraries, and whether the process can still end the usual way.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Calls into vendors' libraries that have not returned.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// How many calls into accelerators' libraries have not returned. A process must not end the usual way while there are
/// any: the libraries' destructors wait for their threads and free memory that calls still use. End it with `_exit`
/// after everything else is done.
fn under_way() -> usize {
    UNDER_WAY.load(Ordering::SeqCst)
}

static HOLDS_EXIT: AtomicBool = AtomicBool::new(false);

/// Whether the process must end by `_exit` after everything else is done: calls have not returned, or a library was
/// started whose destructor waits for its own threads.
pub fn holds_exit() -> bool {
    under_way() > 0 || HOLDS_EXIT.load(Ordering::SeqCst)
}

/// From here on a library has threads of its own, and the process ends by `_exit`.
pub(super) fn hold_exit() {
    HOLDS_EXIT.store(true, Ordering::SeqCst);
}

/// Counts a call while it lives.
pub(super) struct UnderWay;

impl UnderWay {
    pub(super) fn begin() -> UnderWay {
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        UnderWay
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    }
}
