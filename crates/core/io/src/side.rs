//! Runs the same work on several threads at once; the system may refuse a thread.

use std::io;
use std::panic::resume_unwind;
use std::thread::{self, Builder};

/// Runs `work(n)` for each `n` below `count` on a separate thread and returns the results in order.
///
/// # Errors
/// The system's error if it refuses a thread; the threads that were started have ended by then.
///
/// # Panics
/// If one of the threads panicked.
pub fn side_by_side<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> io::Result<Vec<T>> {
    let work = &work;
    thread::scope(|scope| {
        let start = |n| Builder::new().spawn_scoped(scope, move || work(n));
        let threads: Vec<_> = (0..count).map(start).collect::<io::Result<_>>()?;
        let ended = threads.into_iter().map(|thread| thread.join());
        Ok(ended
            .map(|t| t.unwrap_or_else(|p| resume_unwind(p)))
            .collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn all_work_at_once_and_answer_in_order() {
        let all = Barrier::new(7);
        let answers = side_by_side(7, |n| {
            all.wait();
            10 * n
        });
        assert_eq!(answers.unwrap(), [0, 10, 20, 30, 40, 50, 60]);
        assert!(side_by_side(0, |n| n).unwrap().is_empty());
    }
}
