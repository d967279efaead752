//! The door for browsers and Prometheus: the status page, its data and the metrics, over HTTP.
//!
//! ```text
//! listener ──▶ connection (a thread each: one request, one answer) ──▶ status (asks targets in threads of its own)
//! ```
//!
//! Invariants
//! - Only GET and HEAD of four names are answered. Nothing is changed by any of them.
//! - Without encryption only this machine reaches the door, and only under a name that is its own. With encryption every
//!   answer needs a login.
//! - Every client has a time for its request and its answer, and a bounded share of memory; connections are bounded, and
//!   for a new one the oldest is closed.
//! - No answer waits for a target that hangs.
//!
//! Leaves to others: what a request says (`request.rs`), bytes (`wire.rs`), and the answers (`status.rs`).

mod answers;
mod looks;
mod page;
mod reply;
mod request;
mod status;
mod wire;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_io::{Clock, Storage};
use longshore_tsql::Server;

use self::reply::{Body, Reply};
use self::request::{PageRequest, is_of_this_machine};
use self::status::{Status, StatusForm};
use self::wire::{NoRequest, PageWire};
use super::door::{ClientSlot, Guests};
use super::listener::{TICK, is_readable, listen, stays};
use super::logins::Logins;
use super::settings::PageSettings;
use super::strikes::{Strikes, short};
use crate::context::Context;
use longshore_terminal::failure::Failure;

/// The stack of a connection's thread.
const STACK_LEN: usize = 512 << 10;
/// The number of connections at a time.
const CONNECTIONS: usize = 64;
/// The time from connecting to the end of the request, with the handshake.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// The time in which a client must take its answer.
const ANSWER_TIME: Duration = Duration::from_secs(30);

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// The logins and their failures, shared with the door for T-SQL.
pub struct Access {
    pub logins: Arc<Logins>,
    pub strikes: Arc<Strikes>,
    pub tls: Arc<rustls::ServerConfig>,
    /// When the certificate ends.
    pub ends_us: Option<i64>,
}

/// The state that all connections share.
pub struct PageDoor {
    clock: Arc<dyn Clock>,
    storage: Arc<dyn Storage>,
    /// `None`: only this machine reaches the door, unencrypted and without a login.
    access: Option<Access>,
    guests: Arc<Guests>,
    status: Status,
    policy: Arc<str>,
    page: Body,
    /// Writes a line about a failed login.
    log: Box<dyn Fn(&str) + Send + Sync>,
}

/// A listener with its door.
pub struct Listening {
    listener: TcpListener,
    door: Arc<PageDoor>,
    address: SocketAddr,
}

/// `ends_us`: when the certificate of this process ends, the page's or that of statements; `sessions`: T-SQL's, if this
/// process serves them; `log`: where failed logins are told.
pub fn open(
    settings: &PageSettings,
    context: &Context,
    (access, ends_us): (Option<Access>, Option<i64>),
    sessions: Option<Arc<Server>>,
    log: Box<dyn Fn(&str) + Send + Sync>,
) -> Result<Listening, Failure> {
    let listener = listen(settings.listen, "--http")?;
    let address = listener.local_addr().unwrap_or(settings.listen);
    let (refresh, max_age) = (settings.refresh, settings.max_age);
    let door = PageDoor {
        clock: context.clock.clone(),
        storage: context.storage.clone(),
        access,
        guests: Arc::default(),
        status: Status::new(context.clone(), (sessions, ends_us), refresh, max_age),
        policy: page::policy(),
        page: Body::from(page::page().as_bytes()),
        log,
    };
    Ok(Listening {
        listener,
        door: Arc::new(door),
        address,
    })
}

impl Listening {
    /// The page's address.
    pub fn url(&self) -> String {
        let scheme = match self.door.access {
            Some(_) => "https",
            None => "http",
        };
        format!("{scheme}://{}/", self.address)
    }

    /// Takes connections until `stop` is set.
    pub fn accept_until(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.door.sum_up(false);
            if !is_readable(&self.listener) {
                continue;
            }
            match self.listener.accept() {
                Ok((socket, from)) => welcome(&self.door, socket, from),
                Err(error) => {
                    tracing::warn!(%error, "a connection was not taken");
                    self.door.clock.sleep(TICK);
                }
            }
        }
        self.door.guests.close();
        self.door.sum_up(true);
    }
}

fn welcome(door: &Arc<PageDoor>, socket: TcpStream, from: SocketAddr) {
    if !door.guests.has_room(CONNECTIONS) {
        tracing::warn!(%from, "too many connections: this one was closed");
        return;
    }
    if socket.set_nonblocking(false).is_err() {
        return;
    }
    let socket = Arc::new(socket);
    let place = ClientSlot::take(&door.guests, socket.clone(), Arc::default());
    let door = door.clone();
    let spawned = std::thread::Builder::new()
        .name("page".into())
        .stack_size(STACK_LEN)
        .spawn(move || match door.serve(&place, &socket, from) {
            Ok(()) => {}
            Err(why) => tracing::debug!(%from, %why, "a connection was ended"),
        });
    if let Err(error) = spawned {
        tracing::warn!(%from, %error, "no thread for a connection: it was closed");
    }
}

impl PageDoor {
    fn sum_up(&self, ends: bool) {
        let strikes = self.access.as_ref().map(|access| &access.strikes);
        if let Some(text) = strikes.and_then(|s| s.summary(self.clock.now(), ends)) {
            (self.log)(&text);
        }
    }

    /// Serves a client: one request, one answer.
    fn serve(
        &self,
        place: &ClientSlot,
        socket: &Arc<TcpStream>,
        from: SocketAddr,
    ) -> std::io::Result<()> {
        let until = self.clock.now() + REQUEST_TIME;
        let tls = self.access.as_ref().map(|access| access.tls.clone());
        let mut wire = PageWire::new(socket.clone(), self.clock.clone(), tls, until)?;
        let (reply, is_head) = match wire.request() {
            Ok(request) => {
                let Some(reply) = self.reply(&request, (place, socket), from) else {
                    return Ok(());
                };
                (reply, request.is_head)
            }
            Err(NoRequest::Refused(refusal)) => {
                let text = "This server answers GET and HEAD of /, /status.json, /status.txt and /metrics.";
                (Reply::refused(refusal.status(), text), false)
            }
            Err(NoRequest::Gone(error)) => return Err(error),
        };
        let body = match is_head {
            true => &[][..],
            false => &reply.body[..],
        };
        let until = self.clock.now() + ANSWER_TIME;
        wire.answer(reply.head().as_bytes(), body, until)?;
        wire.close();
        Ok(())
    }

    /// `None`: the client has left.
    fn reply(
        &self,
        request: &PageRequest,
        (place, socket): (&ClientSlot, &TcpStream),
        from: SocketAddr,
    ) -> Option<Reply> {
        match &self.access {
            None if !is_of_this_machine(&request.host) => {
                let text =
                    "This page is for this machine alone: ask for it as localhost or 127.0.0.1.";
                return Some(Reply::refused((421, "Misdirected Request"), text));
            }
            None => {}
            Some(access) => match &request.login {
                None => return Some(login_wanted()),
                Some((name, password)) => {
                    let is_wanted = || place.is_wanted();
                    let known = access
                        .logins
                        .check(&*self.storage, name, password, &is_wanted);
                    if known.is_none() {
                        return self.refuse_login(access, name, (place, socket), from);
                    }
                }
            },
        }
        Some(match request.path.as_str() {
            "/" => Reply {
                policy: Some(self.policy.clone()),
                ..Reply::good(HTML, self.page.clone())
            },
            "/status.json" => Reply::good(JSON, self.status.form(StatusForm::Json)),
            "/status.txt" => Reply::good(TEXT, self.status.form(StatusForm::Text)),
            "/metrics" => Reply::good(METRICS, self.status.form(StatusForm::Metrics)),
            _ => Reply::refused(
                (404, "Not Found"),
                "There are /, /status.json, /status.txt and /metrics.",
            ),
        })
    }

    /// Answers a failed login as the door for T-SQL does: late, with a line in the log, and in a place that it takes from
    /// nobody.
    fn refuse_login(
        &self,
        access: &Access,
        name: &str,
        (place, socket): (&ClientSlot, &TcpStream),
        from: SocketAddr,
    ) -> Option<Reply> {
        let ip = from.ip();
        if access.strikes.add() {
            let name = short(name);
            (self.log)(&format!("Login failed for user '{name}'. [CLIENT: {ip}]"));
        }
        let now = self.clock.now();
        let delay = access.strikes.delay(ip, now);
        place.refused();
        stays(socket, &*self.clock, now + delay).then(login_wanted)
    }
}

fn login_wanted() -> Reply {
    Reply {
        header: Some("WWW-Authenticate: Basic realm=\"Longshore\", charset=\"UTF-8\""),
        ..Reply::refused(
            (401, "Unauthorized"),
            "A login is needed: longshore serve --add-login NAME makes one.",
        )
    }
}
