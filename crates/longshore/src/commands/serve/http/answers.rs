//! Answers to questions that take long, kept until they are too old: any number of clients ask, and each question is put
//! once in a while.
//!
//! Invariants
//! - A question is not put again before `refresh` has passed since its answer, nor before ten times as long as the
//!   answer took: slow targets are asked less often.
//! - A question that hangs keeps no other from being put, and no client waits for it longer than it wants to.
//! - The last answer stays, with its time, while a newer one is waited for or fails. Whoever sees it sees that, too: a
//!   question that waits for a thread, or that ended in a panic, is no question with an answer.
//! - Nothing is asked while no client wants to know.
//! - Threads are bounded: [`WORKERS`], and one for each question that hangs, [`THREADS_MAX`] in all.
//!
//! Leaves to others: the questions (`status.rs`), and clients (`mod.rs`).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_io::Clock;
use parking_lot::{Condvar, Mutex};

/// The number of questions put at the same time.
const WORKERS: usize = 4;
/// A question without an answer for this time hangs, and another is put in its place.
const HANGS_AFTER: Duration = Duration::from_secs(10);
/// The maximum number of threads. If so many questions hang, the others wait, too.
const THREADS_MAX: usize = 64;
/// An answer is not asked for again before this multiple of the time that it took.
const REST: u32 = 9;

/// An answer and its time.
pub struct Answer<T> {
    pub value: T,
    /// Microseconds since the Unix epoch.
    pub at_us: i64,
    pub took: Duration,
    /// By the clock that only runs forward.
    at: Duration,
}

impl<T> Answer<T> {
    fn new(value: T, at_us: i64, at: Duration, took: Duration) -> Arc<Answer<T>> {
        Arc::new(Answer {
            value,
            at_us,
            took,
            at,
        })
    }
}

/// A question's last answer, and its present state.
pub struct Known<T, E> {
    /// The last answer; `None`: there is none yet.
    pub answer: Option<Arc<Answer<T>>>,
    /// Why the question has no answer newer than that.
    pub error: Option<Arc<Answer<E>>>,
    /// For how long the question has waited to be put, or has been put, and has no answer.
    pub asked_for: Option<Duration>,
    /// Whether it ended in a panic when it was put last.
    pub has_panicked: bool,
}

struct Slot<T, E> {
    answer: Option<Arc<Answer<T>>>,
    error: Option<Arc<Answer<E>>>,
    queued_at: Option<Duration>,
    asked_at: Option<Duration>,
    has_panicked: bool,
}

impl<T, E> Slot<T, E> {
    fn new() -> Slot<T, E> {
        Slot {
            answer: None,
            error: None,
            queued_at: None,
            asked_at: None,
            has_panicked: false,
        }
    }

    fn is_due(&self, now: Duration, refresh: Duration) -> bool {
        let is_rested = |at: Duration, took: Duration| {
            now.saturating_sub(at) >= refresh.max(took.saturating_mul(REST))
        };
        let answer = self.answer.as_ref();
        let error = self.error.as_ref();
        let is_asked = self.queued_at.is_some() || self.asked_at.is_some();
        !is_asked
            && answer.is_none_or(|answer| is_rested(answer.at, answer.took))
            && error.is_none_or(|error| is_rested(error.at, error.took))
    }

    fn hangs(&self, now: Duration) -> bool {
        self.asked_at
            .is_some_and(|at| now.saturating_sub(at) >= HANGS_AFTER)
    }
}

struct Inner<T, E> {
    slots: Vec<Slot<T, E>>,
    queue: VecDeque<usize>,
    threads: usize,
    /// Counts the answers.
    generation: u64,
}

struct Shared<T, E> {
    clock: Arc<dyn Clock>,
    refresh: Duration,
    ask: Box<dyn Fn(usize) -> Result<T, E> + Send + Sync>,
    inner: Mutex<Inner<T, E>>,
    changed: Condvar,
}

/// The answers to questions that are known by their number.
pub struct Answers<T, E>(Arc<Shared<T, E>>);

impl<T: Send + Sync + 'static, E: Send + Sync + 'static> Answers<T, E> {
    pub fn new(
        count: usize,
        refresh: Duration,
        clock: Arc<dyn Clock>,
        ask: impl Fn(usize) -> Result<T, E> + Send + Sync + 'static,
    ) -> Answers<T, E> {
        Answers(Arc::new(Shared {
            clock,
            refresh,
            ask: Box::new(ask),
            inner: Mutex::new(Inner {
                slots: (0..count).map(|_| Slot::new()).collect(),
                queue: VecDeque::new(),
                threads: 0,
                generation: 0,
            }),
            changed: Condvar::new(),
        }))
    }

    /// Asks for the answers that are too old, and waits for them, at most for `patience`. Questions that hang already are
    /// not waited for.
    pub fn renew(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let mut inner = self.0.inner.lock();
        let now = self.0.clock.now();
        for number in 0..inner.slots.len() {
            if inner.slots[number].is_due(now, self.0.refresh) {
                inner.slots[number].queued_at = Some(now);
                inner.queue.push_back(number);
            }
        }
        loop {
            self.engage(&mut inner);
            let now = self.0.clock.now();
            let is_awaited = |slot: &Slot<T, E>| match slot.asked_at {
                Some(_) => !slot.hangs(now),
                None => slot.queued_at.is_some(),
            };
            if !inner.slots.iter().any(is_awaited) {
                return;
            }
            if self.0.changed.wait_until(&mut inner, until).timed_out() {
                return;
            }
        }
    }

    /// The present state of all questions, and how many answers there have been.
    pub fn known(&self) -> (Vec<Known<T, E>>, u64) {
        let inner = self.0.inner.lock();
        let now = self.0.clock.now();
        let known = |slot: &Slot<T, E>| Known {
            answer: slot.answer.clone(),
            error: slot.error.clone(),
            asked_for: slot.queued_at.map(|at| now.saturating_sub(at)),
            has_panicked: slot.has_panicked,
        };
        (inner.slots.iter().map(known).collect(), inner.generation)
    }

    /// Starts the threads that the queue needs.
    fn engage(&self, inner: &mut Inner<T, E>) {
        let now = self.0.clock.now();
        let hanging = inner.slots.iter().filter(|slot| slot.hangs(now)).count();
        let mut idle = inner.queue.len();
        while idle > 0
            && inner.threads < THREADS_MAX
            && inner.threads.saturating_sub(hanging) < WORKERS
        {
            let shared = self.0.clone();
            let spawned = std::thread::Builder::new()
                .name("status".into())
                .spawn(move || shared.work());
            // Without a thread the questions stay in the queue, for the next call.
            if spawned.is_err() {
                return;
            }
            inner.threads += 1;
            idle -= 1;
        }
    }
}

impl<T, E> Shared<T, E> {
    /// Puts questions until none waits.
    fn work(&self) {
        let mut inner = self.inner.lock();
        while let Some(number) = inner.queue.pop_front() {
            let begun = self.clock.now();
            inner.slots[number].asked_at = Some(begun);
            drop(inner);
            // A question that ends in a panic, whose message is on standard error, has no new answer.
            let value = catch_unwind(AssertUnwindSafe(|| (self.ask)(number)));
            let (at, at_us) = (self.clock.now(), self.clock.wall_ns() / 1000);
            inner = self.inner.lock();
            let slot = &mut inner.slots[number];
            slot.queued_at = None;
            slot.asked_at = None;
            slot.error = None;
            slot.has_panicked = value.is_err();
            let took = at.saturating_sub(begun);
            match value {
                Ok(Ok(value)) => slot.answer = Some(Answer::new(value, at_us, at, took)),
                Ok(Err(error)) => slot.error = Some(Answer::new(error, at_us, at, took)),
                Err(_) => {}
            }
            inner.generation += 1;
            self.changed.notify_all();
        }
        inner.threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::HostClock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const MOMENT: Duration = Duration::from_secs(5);

    fn answers<T: Send + Sync + 'static>(
        count: usize,
        refresh: Duration,
        ask: impl Fn(usize) -> T + Send + Sync + 'static,
    ) -> Answers<T, ()> {
        Answers::new(count, refresh, Arc::new(HostClock), move |number| {
            Ok(ask(number))
        })
    }

    /// Goal: however many clients ask at the same time, a question is put once until its answer is too old.
    #[test]
    fn many_clients_put_a_question_once_in_a_while() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let answers = answers(3, Duration::from_millis(300), move |_| {
            std::thread::sleep(Duration::from_millis(10));
            counted.fetch_add(1, Ordering::Relaxed)
        });
        let all = || {
            std::thread::scope(|scope| {
                for _ in 0..40 {
                    scope.spawn(|| {
                        answers.renew(MOMENT);
                        assert!(answers.known().0.iter().all(|known| known.answer.is_some()));
                    });
                }
            });
        };
        assert_eq!(answers.known().1, 0, "nothing is asked unasked");
        all();
        all();
        assert_eq!(asked.load(Ordering::Relaxed), 3);
        std::thread::sleep(Duration::from_millis(350));
        all();
        assert_eq!(asked.load(Ordering::Relaxed), 6);
    }

    /// Goal: a slow question takes at most a tenth of the time, however short `refresh` is.
    #[test]
    fn a_slow_question_rests_nine_times_as_long_as_its_answer_took() {
        let clock = Arc::new(longshore_io::SimClock::new(0));
        let (asked, hour) = (AtomicUsize::new(0), Duration::from_secs(3600));
        let takes = clock.clone();
        let answers = Answers::new(1, Duration::ZERO, clock.clone(), move |_| {
            takes.advance(Duration::from_secs(60));
            Ok::<_, ()>(asked.fetch_add(1, Ordering::Relaxed))
        });
        let seen = |after: Duration| {
            clock.advance(after);
            answers.renew(MOMENT);
            answers.known().0[0]
                .answer
                .as_ref()
                .map(|answer| answer.value)
        };
        assert_eq!(seen(Duration::ZERO), Some(0));
        assert_eq!(seen(Duration::from_secs(539)), Some(0));
        assert_eq!(seen(Duration::from_secs(1)), Some(1));
        assert_eq!(seen(hour), Some(2));
    }

    /// Goal: questions that hang keep no other from being answered again and again, and the time that a client waits is
    /// its own.
    #[test]
    fn questions_that_hang_keep_no_other_from_its_answer() {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let (inside, clock) = (gate.clone(), Arc::new(longshore_io::SimClock::new(0)));
        // The first six hang from their second answer on.
        let times: Vec<_> = (0..8).map(|_| AtomicUsize::new(0)).collect();
        let answers = Answers::new(8, Duration::from_secs(1), clock.clone(), move |number| {
            let time = times[number].fetch_add(1, Ordering::Relaxed);
            if number < 6 && time == 1 {
                let mut open = inside.0.lock();
                while !*open {
                    inside.1.wait(&mut open);
                }
            }
            Ok::<_, ()>(time)
        });
        answers.renew(MOMENT);
        assert!(answers.known().0.iter().all(|known| known.answer.is_some()));
        clock.advance(Duration::from_secs(2));
        let begun = Instant::now();
        answers.renew(Duration::from_millis(50));
        assert!(begun.elapsed() < Duration::from_secs(2));
        // The first four hang; only then the others get their threads.
        clock.advance(HANGS_AFTER);
        answers.renew(Duration::from_millis(200));
        clock.advance(HANGS_AFTER);
        answers.renew(MOMENT);
        let value = |known: &Known<usize, ()>| known.answer.as_ref().map(|answer| answer.value);
        let (known, _) = answers.known();
        let values: Vec<_> = known.iter().map(value).collect();
        assert_eq!(values[..6], [Some(0); 6], "the last answer stays");
        assert!(
            values[6..].iter().all(|value| *value >= Some(1)),
            "{values:?}"
        );
        let hanging = known.iter().filter(|known| known.asked_for.is_some());
        assert_eq!(hanging.count(), 6);
        *gate.0.lock() = true;
        gate.1.notify_all();
        let ended = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            value(&answers.known().0[0]) >= Some(1)
        });
        assert!(ended, "what hung has its answer");
    }

    /// Goal: an answer that nobody can renew, as all threads hang, is not shown as the newest.
    #[test]
    fn a_question_that_waits_for_a_thread_says_for_how_long() {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let (inside, clock) = (gate.clone(), Arc::new(longshore_io::SimClock::new(0)));
        let answers = Answers::new(5, Duration::from_secs(1), clock.clone(), move |number| {
            let mut open = inside.0.lock();
            while number < WORKERS && !*open {
                inside.1.wait(&mut open);
            }
            Ok::<_, ()>(())
        });
        answers.renew(Duration::from_millis(20));
        clock.advance(HANGS_AFTER / 2);
        let last = &answers.known().0[WORKERS];
        assert!(last.answer.is_none());
        assert_eq!(last.asked_for, Some(HANGS_AFTER / 2));
        *gate.0.lock() = true;
        gate.1.notify_all();
        answers.renew(MOMENT);
        let (known, _) = answers.known();
        assert!(known.iter().all(|known| known.asked_for.is_none()));
    }

    #[test]
    fn a_question_that_fails_keeps_its_last_answer_and_says_why_until_it_has_a_new_one() {
        let clock = Arc::new(longshore_io::SimClock::new(0));
        let time = AtomicUsize::new(0);
        let answers = Answers::new(
            1,
            Duration::from_secs(1),
            clock.clone(),
            move |_| match time.fetch_add(1, Ordering::Relaxed) {
                1 => Err("away"),
                time => Ok(time),
            },
        );
        let mut seen = Vec::new();
        for _ in 0..3 {
            answers.renew(MOMENT);
            let (known, _) = answers.known();
            let value = known[0].answer.as_ref().map(|answer| answer.value);
            seen.push((value, known[0].error.as_ref().map(|error| error.value)));
            clock.advance(Duration::from_secs(1));
        }
        assert_eq!(
            seen,
            [(Some(0), None), (Some(0), Some("away")), (Some(2), None)]
        );
    }

    #[test]
    fn a_question_that_panics_is_put_again_and_harms_no_other() {
        let answers = answers(2, Duration::ZERO, |number| assert_eq!(number, 1));
        for _ in 0..3 {
            answers.renew(MOMENT);
        }
        let (known, generation) = answers.known();
        assert!(known[0].answer.is_none() && known[1].answer.is_some());
        assert!(known[0].asked_for.is_none());
        assert!(known[0].has_panicked && !known[1].has_panicked);
        assert!(generation >= 4);
    }
}
