//! Credentials that are held until they end, and replaced before.
//!
//! Invariants
//! - Held credentials are handed out as they are while they are valid for 5 more minutes. In those last minutes one caller at a
//!   time asks for new ones, for a minute at most, and the others get what is held.
//! - If that fails, what is held serves until it ends. A warning says so once, and a pause goes before the next try. A pause also
//!   follows an answer that ends no later than what is held, as of a program that prints what it keeps.
//! - Credentials that have ended are handed out to nobody.
//! - Without valid credentials, callers wait for one answer.
//! - `object_store` holds credentials itself, replaces them four to five minutes before they end, and does not tell when that is. So
//!   of its providers, what was given within three minutes is valid ([`Lasting`]).
//!
//! Leaves to others: how credentials are asked for (`exchanged.rs`, `credentials.rs`, `object_store`).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use longshore_io::{Clock, HostClock};
use object_store::CredentialProvider;

use crate::watched::innermost;

/// Credentials are replaced so long before they end. A request may be repeated for four minutes.
const MARGIN_S: i64 = 300;
/// A caller with valid credentials waits no longer for new ones.
const REFRESH_MAX: Duration = Duration::from_secs(60);
/// New credentials are asked for again so long after a failure, while the old ones are valid.
const PAUSE: Duration = Duration::from_secs(10);

/// Credentials of `object_store` are valid for so long after it gave them.
const LASTING: Duration = Duration::from_secs(180);

/// Credentials, and when they end in seconds since the Unix epoch; `None`: they do not.
pub struct Held<C> {
    pub credential: Arc<C>,
    pub until_s: Option<i64>,
}

/// Credentials that are asked for when they are needed. It has no `Debug`: it holds secrets.
pub struct Holder<C> {
    state: Mutex<State<C>>,
    /// Locked by the caller that asks.
    asking: tokio::sync::Mutex<()>,
}

struct State<C> {
    held: Option<Held<C>>,
    /// The moment before which nothing is asked again, since the last try brought nothing better.
    pause_until: Option<Duration>,
    /// A failure was told of since the last answer.
    is_told: bool,
}

/// The state of what is held.
enum HeldState<C> {
    Good(Arc<C>),
    /// It ends soon.
    Ending(Arc<C>),
    Nothing,
}

impl<C> Holder<C> {
    pub fn empty() -> Holder<C> {
        Holder {
            state: Mutex::new(State {
                held: None,
                pause_until: None,
                is_told: false,
            }),
            asking: tokio::sync::Mutex::new(()),
        }
    }

    /// The credentials that are held, or those that `ask` gives. `whose` says in a warning whose they are.
    pub async fn get(
        &self,
        whose: &str,
        ask: impl Future<Output = Result<Held<C>, String>>,
    ) -> Result<Arc<C>, String> {
        let _one = match self.held_state() {
            HeldState::Good(credential) => return Ok(credential),
            HeldState::Ending(credential) => match self.asking.try_lock() {
                Ok(one) => one,
                Err(_) => return Ok(credential),
            },
            HeldState::Nothing => self.asking.lock().await,
        };
        // Another caller may have got some meanwhile.
        let asked = match self.held_state() {
            HeldState::Good(credential) => return Ok(credential),
            HeldState::Ending(_) => {
                let asked = tokio::time::timeout(REFRESH_MAX, ask).await;
                asked.unwrap_or_else(|_| {
                    Err(format!(
                        "there was no answer in {} seconds",
                        REFRESH_MAX.as_secs()
                    ))
                })
            }
            HeldState::Nothing => ask.await,
        };
        match asked {
            Ok(fresh) if left_s(&fresh) <= 0 => {
                let why = "those that were given have ended already".to_owned();
                self.kept(whose, &why).ok_or(why)
            }
            Ok(fresh) => Ok(self.replaced(fresh)),
            Err(why) => self.kept(whose, &why).ok_or(why),
        }
    }

    /// Holds these, unless those that are held end later. Returns the credentials that are held.
    fn replaced(&self, fresh: Held<C>) -> Arc<C> {
        let mut state = self.state();
        let left = left_s(&fresh);
        let held = state.held.take().filter(|held| left_s(held) > 0);
        let is_no_better = held.as_ref().is_some_and(|held| left <= left_s(held));
        let held = held.filter(|held| left < left_s(held)).unwrap_or(fresh);
        let credential = held.credential.clone();
        *state = State {
            pause_until: is_no_better.then(|| HostClock.now() + PAUSE),
            held: Some(held),
            is_told: false,
        };
        credential
    }

    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held_state(&self) -> HeldState<C> {
        let state = self.state();
        let Some(held) = &state.held else {
            return HeldState::Nothing;
        };
        let credential = held.credential.clone();
        let pauses = state.pause_until.is_some_and(|end| HostClock.now() < end);
        match left_s(held) {
            left if left > MARGIN_S || (left > 0 && pauses) => HeldState::Good(credential),
            left if left > 0 => HeldState::Ending(credential),
            _ => HeldState::Nothing,
        }
    }

    /// What is held, after a try to replace it failed; `None`: it has ended.
    fn kept(&self, whose: &str, why: &str) -> Option<Arc<C>> {
        let mut state = self.state();
        let held = state.held.as_ref()?;
        let left_s = left_s(held);
        if left_s <= 0 {
            return None;
        }
        let credential = held.credential.clone();
        if !state.is_told {
            tracing::warn!(
                why,
                "{whose} could not be replaced before they end; they are used for {left_s} more seconds, and new ones are asked for again"
            );
        }
        state.pause_until = Some(HostClock.now() + PAUSE);
        state.is_told = true;
        Some(credential)
    }
}

/// A provider of `object_store`'s. While it fails, what it gave last serves for three minutes.
pub struct Lasting<C> {
    provider: Arc<dyn CredentialProvider<Credential = C>>,
    last: Mutex<Option<Last<C>>>,
    /// Locked by the caller that asks the provider.
    asking: tokio::sync::Mutex<()>,
}

struct Last<C> {
    credential: Arc<C>,
    valid_until: Duration,
    pause_until: Option<Duration>,
}

impl<C> fmt::Debug for Lasting<C> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        // The credentials are secrets.
        f.write_str("Lasting")
    }
}

impl<C> Lasting<C> {
    pub fn new(provider: Arc<dyn CredentialProvider<Credential = C>>) -> Lasting<C> {
        Lasting {
            provider,
            last: Mutex::new(None),
            asking: tokio::sync::Mutex::new(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, Option<Last<C>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was given last, if it is still valid; `pauses`: and the provider failed a moment ago.
    fn valid(&self, pauses: bool) -> Option<Arc<C>> {
        let (state, now) = (self.state(), HostClock.now());
        let last = state.as_ref()?;
        let does_pause = last.pause_until.is_some_and(|end| now < end);
        let is_valid = now < last.valid_until && (does_pause || !pauses);
        is_valid.then(|| last.credential.clone())
    }

    /// Notes that the provider failed. Returns what serves all the same.
    fn failed(&self, why: &object_store::Error) -> Option<Arc<C>> {
        let credential = self.valid(false)?;
        let mut state = self.state();
        let last = state.as_mut()?;
        if last.pause_until.is_none() {
            tracing::warn!(
                why = innermost(why),
                "credentials that end soon could not be replaced; they are used for 3 more minutes at most, and new ones are asked for again"
            );
        }
        last.pause_until = Some(HostClock.now() + PAUSE);
        Some(credential)
    }
}

#[async_trait]
impl<C: std::fmt::Debug + Send + Sync + 'static> CredentialProvider for Lasting<C> {
    type Credential = C;

    async fn get_credential(&self) -> object_store::Result<Arc<C>> {
        let _one = match (self.asking.try_lock(), self.valid(false)) {
            (Ok(one), _) => one,
            (Err(_), Some(credential)) => return Ok(credential),
            (Err(_), None) => self.asking.lock().await,
        };
        if let Some(credential) = self.valid(true) {
            return Ok(credential);
        }
        match self.provider.get_credential().await {
            Ok(credential) => {
                *self.state() = Some(Last {
                    credential: credential.clone(),
                    valid_until: HostClock.now() + LASTING,
                    pause_until: None,
                });
                Ok(credential)
            }
            Err(error) => self.failed(&error).ok_or(error),
        }
    }
}

/// The seconds until these end.
fn left_s<C>(held: &Held<C>) -> i64 {
    let now_s = HostClock.wall_ns() / 1_000_000_000;
    held.until_s
        .map_or(i64::MAX, |until| until.saturating_sub(now_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn held(name: &'static str, seconds: i64) -> Held<&'static str> {
        Held {
            credential: Arc::new(name),
            until_s: Some(HostClock.wall_ns() / 1_000_000_000 + seconds),
        }
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        crate::runtime::handle().unwrap().block_on(work)
    }

    async fn get(
        holder: &Holder<&'static str>,
        answer: Result<Held<&'static str>, &str>,
    ) -> Result<&'static str, String> {
        let answer = answer.map_err(str::to_owned);
        let got = holder.get("the credentials", async { answer }).await;
        got.map(|credential| *credential)
    }

    /// Goal: while a try fails ahead of their end, credentials that are still valid serve; those that have ended do not.
    #[test]
    fn valid_credentials_serve_while_new_ones_are_refused_and_no_longer() {
        run(async {
            let holder = Holder::empty();
            assert_eq!(get(&holder, Err("away")).await, Err("away".to_owned()));
            assert!(get(&holder, Ok(held("ended", 0))).await.is_err());
            assert_eq!(get(&holder, Ok(held("first", 200))).await, Ok("first"));
            // An answer that ends no later replaces nothing, and is not asked for again at once.
            assert_eq!(get(&holder, Ok(held("earlier", 100))).await, Ok("first"));
            assert_eq!(get(&holder, Ok(held("at once", 900))).await, Ok("first"));
            holder.state().pause_until = Some(Duration::ZERO);
            assert_eq!(get(&holder, Err("away")).await, Ok("first"));
            // In the pause nothing is asked.
            assert_eq!(get(&holder, Ok(held("early", 900))).await, Ok("first"));
            holder.state().pause_until = Some(Duration::ZERO);
            assert_eq!(get(&holder, Err("away")).await, Ok("first"));
            holder.state().pause_until = Some(Duration::ZERO);
            assert_eq!(get(&holder, Ok(held("second", 900))).await, Ok("second"));
            assert_eq!(get(&holder, Ok(held("needless", 900))).await, Ok("second"));
            holder.state().held = Some(held("ended", 0));
            assert_eq!(get(&holder, Err("away")).await, Err("away".to_owned()));
        });
    }

    /// Method: the first caller's answer does not come; a second caller asks meanwhile.
    #[test]
    fn who_has_valid_credentials_does_not_wait_for_the_one_who_asks() {
        run(async {
            let holder = Holder::empty();
            get(&holder, Ok(held("first", 200))).await.unwrap();
            let never = holder.get("the credentials", std::future::pending());
            let other = async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                get(&holder, Ok(held("second", 900))).await
            };
            tokio::select! {
                _ = never => panic!("nobody answered"),
                got = other => assert_eq!(got, Ok("first")),
            }
        });
    }

    /// Gives its number until it is away.
    #[derive(Debug, Default)]
    struct Giver {
        given: AtomicUsize,
        is_away: std::sync::atomic::AtomicBool,
    }

    #[async_trait]
    impl CredentialProvider for Giver {
        type Credential = usize;

        async fn get_credential(&self) -> object_store::Result<Arc<usize>> {
            let given = self.given.fetch_add(1, Ordering::Relaxed);
            match self.is_away.load(Ordering::Relaxed) {
                true => Err(object_store::Error::NotImplemented {
                    operation: "away".to_owned(),
                    implementer: "test".to_owned(),
                }),
                false => Ok(Arc::new(given)),
            }
        }
    }

    #[test]
    fn what_object_store_gave_last_serves_for_some_minutes_while_it_fails() {
        run(async {
            let giver = Arc::new(Giver::default());
            let lasting = Lasting::new(giver.clone());
            let get = || async { lasting.get_credential().await.ok().map(|given| *given) };
            assert_eq!((get().await, get().await), (Some(0), Some(1)));
            giver.is_away.store(true, Ordering::Relaxed);
            assert_eq!((get().await, get().await), (Some(1), Some(1)));
            assert_eq!(
                giver.given.load(Ordering::Relaxed),
                3,
                "a pause goes before the next try"
            );
            lasting.state().as_mut().unwrap().pause_until = Some(Duration::ZERO);
            assert_eq!(get().await, Some(1));
            assert_eq!(giver.given.load(Ordering::Relaxed), 4);
            lasting.state().as_mut().unwrap().valid_until = Duration::ZERO;
            assert_eq!(get().await, None);
            giver.is_away.store(false, Ordering::Relaxed);
            assert_eq!(get().await, Some(5));
        });
    }

    #[test]
    fn without_valid_credentials_one_caller_asks_and_all_get_the_answer() {
        run(async {
            let (holder, asked) = (Holder::empty(), AtomicUsize::new(0));
            let ask = || async {
                asked.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
                Ok(held("given", 900))
            };
            let whose = "the credentials";
            let got = tokio::join!(
                holder.get(whose, ask()),
                holder.get(whose, ask()),
                holder.get(whose, ask())
            );
            assert_eq!([got.0, got.1, got.2].map(|got| *got.unwrap()), ["given"; 3]);
            assert_eq!(asked.load(Ordering::Relaxed), 1);
        });
    }
}
