//! `serve`: T-SQL for SQL Server's clients, over TCP; the status page for browsers and Prometheus.
//!
//! ```text
//! listener ──▶ connection (a thread each: reads, keeps time) ──▶ work (a thread while a request runs: writes)
//! ```
//!
//! A connection's thread reads all the time, so it notices an Attention or the end of its client while a backup runs,
//! and its stack stays small. A request runs in a thread of its own, whose stack is freed with it: an idle session
//! costs little.
//!
//! Invariants
//! - Only a client that has logged in with a password runs anything; failures are slow, and logged without secrets.
//! - Nothing is sent to other machines unencrypted, and clients can check the certificate.
//! - A connection's thread never waits for the running request, unless it has cancelled it.
//! - Every wait for a client ends: for its login, for the rest of a message, for it to take its answer, for its next
//!   request.
//!
//! Leaves to others: one connection (`connection.rs`), its requests (`work.rs`), who may log in (`logins.rs`), and the status
//! page (`http`).

mod connection;
mod convert;
mod door;
mod http;
mod listener;
mod logins;
mod odbc;
mod settings;
mod strikes;
mod tls;
mod validity;
mod wire;
mod work;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_tsql::{Memory, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use self::door::{ClientSlot, Door};
use self::http::{Access, Listening};
use self::listener::{TICK, is_readable, listen};
use self::logins::Logins;
use self::settings::{PageSettings, Settings};
use self::strikes::Strikes;
use self::tls::Protocol;
use crate::commands::sql::configured;
use crate::context::Context;
use crate::options::Serve;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::numbers;

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    login: String,
}

/// The time that running statements may take to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between two checks of who may log in.
const LOOK: Duration = Duration::from_secs(1);

/// File descriptors per connection: its own, and those that a statement opens.
const DESCRIPTORS_EACH: u64 = 4;
/// File descriptors apart from connections: a backup's files, the catalog, the listener.
const DESCRIPTORS_OWN: u64 = 256;

pub fn run(options: &Serve, context: &Context) -> Result<Exit, Failure> {
    let page = PageSettings::of(options, context)?;
    let is_for_logins = options.add_login.is_some() || options.remove_login.is_some();
    match page {
        // Named alone, the page is served alone: it needs no login, and gives nobody the right to run a statement.
        Some(page) if options.http.is_some() && options.listen.is_none() && !is_for_logins => {
            page_alone(options, &page, context)
        }
        page => statements(options, page.as_ref(), context),
    }
}

/// Serves the status page alone, until a signal.
fn page_alone(options: &Serve, page: &PageSettings, context: &Context) -> Result<Exit, Failure> {
    for option in of_statements(options) {
        context.output.note(&format!(
            "{option} has no effect here: no statement is served with --http alone; add --listen (`longshore serve --help`)"
        ));
    }
    if context.config.database.is_empty() {
        return Err(Failure::usage(
            "no database is configured, so the status page would be empty",
            "write a [database.NAME] with its `url` and `target` into the configuration, then run `longshore config check`",
        )
        .numbered(numbers::NOT_CONFIGURED));
    }
    let stop = context.run_context().cancel;
    let access = match &page.logins {
        None => None,
        Some(path) => {
            let logins = Logins::new(path.clone());
            refuse_nobody(&logins, path, context)?;
            Some(access(
                page,
                path,
                (Arc::new(logins), Arc::default()),
                context,
            )?)
        }
    };
    let ends_us = access.as_ref().and_then(|access| access.ends_us);
    let listening = http::open(
        page,
        context,
        (access, ends_us),
        None,
        Box::new(|text| tracing::warn!(text)),
    )?;
    tell_page(&listening, context);
    listening.accept_until(&stop);
    Ok(Exit::Interrupted)
}

/// The options that were given and that only statements have a use for.
fn of_statements(options: &Serve) -> Vec<&'static str> {
    let given = [
        (!options.directory.is_empty(), "--directory"),
        (!options.bucket.is_empty(), "--bucket"),
        (options.backup_directory.is_some(), "--backup-directory"),
        (!options.database.is_empty(), "--database"),
    ];
    let given = given.into_iter().filter(|(is_given, _)| *is_given);
    given.map(|(_, option)| option).collect()
}

/// Errors: nobody could log in.
fn refuse_nobody(logins: &Logins, path: &Path, context: &Context) -> Result<(), Failure> {
    match logins.is_empty(&*context.storage)? {
        false => Ok(()),
        true => Err(Failure::usage(
            format!("no client could log in: {} has no login", path.display()),
            "add one first: longshore serve --add-login NAME",
        )),
    }
}

/// Who reaches the page: its certificate and the logins.
fn access(
    page: &PageSettings,
    logins_path: &Path,
    (logins, strikes): (Arc<Logins>, Arc<Strikes>),
    context: &Context,
) -> Result<Access, Failure> {
    let kept = tls::CertificateFiles::beside(logins_path);
    let identity = (page.identity.as_ref(), &kept);
    let (storage, clock) = (&*context.storage, &*context.clock);
    let tls = tls::config(storage, clock, identity, Protocol::Http)?;
    Ok(Access {
        logins,
        strikes,
        ends_us: tls.ends_us,
        tls: tls.config,
    })
}

fn tell_page(listening: &Listening, context: &Context) {
    let url = listening.url();
    context
        .output
        .remark(&format!("longshore: the status page is at {url}\n"));
}

/// Serves statements, and with them the page if it is configured or named, too.
fn statements(
    options: &Serve,
    page: Option<&PageSettings>,
    context: &Context,
) -> Result<Exit, Failure> {
    let settings = Settings::of(options, context)?;
    let logins = Arc::new(Logins::new(settings.logins.clone()));
    if let Some(name) = &options.add_login {
        let password = logins::ask_password()?;
        logins.add(&*context.storage, &*context.clock, name, &password)?;
        return Ok(answer(context, "add-login", name, "may log in"));
    }
    if let Some(name) = &options.remove_login {
        logins.remove(&*context.storage, &*context.clock, name)?;
        return Ok(answer(context, "remove-login", name, "is gone"));
    }
    refuse_nobody(&logins, &settings.logins, context)?;
    if page.is_none() && (options.refresh.is_some() || options.max_age.is_some()) {
        context.output.note(
            "--refresh and --max-age have no effect here: they are for the status page (--http)",
        );
    }
    let mut setup =
        configured::setup(&options.database, Some(&settings.backup_directory), context)?;
    setup.directories = Some(settings.directories.clone());
    setup.buckets = Some(settings.buckets.clone());
    setup.reserved.extend(settings.own_files(context));
    let memory = Memory::new(settings.memory_bytes);
    setup.memory = memory.clone();
    setup.logins = names_of(&logins, context);
    allow_descriptors(settings.sessions);
    let stop = setup.context.cancel.clone();
    let listener = listen(settings.listen, "--listen")?;
    let address = listener.local_addr().unwrap_or(settings.listen);
    let kept = tls::CertificateFiles::beside(&settings.logins);
    let identity = (settings.identity.as_ref(), &kept);
    let tls = tls::config(&*context.storage, &*context.clock, identity, Protocol::Tds)?;
    let door = Arc::new(Door {
        name: setup.name.clone(),
        server: Server::start(setup),
        memory,
        clock: context.clock.clone(),
        storage: context.storage.clone(),
        strict_tls: tls::config_of(&tls.identity, Protocol::StrictTds)?,
        tls: tls.config,
        certificate_ends_us: tls.ends_us,
        settings,
        logins,
        strikes: Arc::default(),
        guests: Arc::default(),
    });
    let page = page
        .map(|page| page_too(page, &door, context))
        .transpose()?;
    door.server
        .write_log("Server", &format!("Server is listening on {address}."));
    warn_of_root(&door, context);
    let certificate = &tls.fingerprint;
    let file = tls
        .made
        .map(|path| format!(", for clients to pin in {}", path.display()));
    context.output.remark(&format!(
        "longshore: certificate SHA-256 {certificate}{}\n",
        file.unwrap_or_default()
    ));
    context
        .output
        .remark(&format!("longshore: listening on {address}\n"));
    std::thread::scope(|scope| {
        if let Some(page) = &page {
            scope.spawn(|| page.accept_until(&stop));
        }
        accept_until(&stop, &listener, &door);
    });
    end(&door);
    Ok(Exit::Interrupted)
}

/// The logins, as statements may ask for them: none while their file cannot be read, which a login tells.
fn names_of(logins: &Arc<Logins>, context: &Context) -> Arc<longshore_tsql::Logins> {
    let (logins, storage) = (logins.clone(), context.storage.clone());
    Arc::new(move || {
        let names = logins.names(&*storage).ok().flatten();
        names.into_iter().flatten().collect()
    })
}

/// The page of a process that serves statements, too: it shows what these do.
fn page_too(
    page: &PageSettings,
    door: &Arc<Door>,
    context: &Context,
) -> Result<Listening, Failure> {
    let known = (door.logins.clone(), door.strikes.clone());
    let access = match page.is_guarded {
        true => Some(access(page, &door.settings.logins, known, context)?),
        false => None,
    };
    let logged = door.clone();
    let log = Box::new(move |text: &str| logged.log_logon(text));
    let sessions = Some(door.server.clone());
    let ends_us = door.certificate_ends_us;
    let listening = http::open(page, context, (access, ends_us), sessions, log)?;
    tell_page(&listening, context);
    Ok(listening)
}

fn warn_of_root(door: &Door, context: &Context) {
    if rustix::process::geteuid().is_root() {
        context.output.warn(
            "serve runs as root: a client that logs in can reach everything that root can; run it as its own user, as \
             contrib/systemd/longshore-serve.service does (docs/serve.md)",
        );
        door.server
            .write_log("Server", "Warning: the server runs as root.");
    }
}

/// Takes connections until `stop` is set, and meanwhile ends the sessions of removed logins.
fn accept_until(stop: &AtomicBool, listener: &TcpListener, door: &Arc<Door>) {
    let mut removals = Removals {
        looked: door.clock.now(),
    };
    while !stop.load(Ordering::Relaxed) {
        door.sum_up(false);
        removals.look(door);
        if !is_readable(listener) {
            continue;
        }
        match listener.accept() {
            Ok((socket, from)) => welcome(door, socket, from),
            // The socket stays readable, possibly for long: too many files are open, or the client has left.
            Err(error) => {
                tracing::warn!(%error, "a connection was not taken");
                door.clock.sleep(TICK);
            }
        }
    }
}

fn answer(context: &Context, action: &'static str, name: &str, what: &str) -> Exit {
    context.output.say(&format!("{name} {what}\n"));
    let login = name.to_owned();
    context.output.json(Exit::Done, Answer { action, login });
    Exit::Done
}

/// Raises the limit on open files as far as the system allows: the usual limit is lower than all sessions need, and
/// then backups fail.
fn allow_descriptors(sessions: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    let allowed = match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => maximum,
        Err(_) => current,
    };
    // `None`: no limit.
    let needed = sessions as u64 * DESCRIPTORS_EACH + DESCRIPTORS_OWN;
    if let Some(allowed) = allowed.filter(|allowed| *allowed < needed) {
        tracing::warn!(
            allowed,
            needed,
            "too few open files for all sessions: raise LimitNOFILE, or lower sessions"
        );
    }
}

/// Ends the sessions of logins that were removed. An unreadable or missing file ends no session: a file system that is
/// briefly away must not end backups.
struct Removals {
    looked: Duration,
}

impl Removals {
    fn look(&mut self, door: &Door) {
        let now = door.clock.now();
        if now.saturating_sub(self.looked) < LOOK {
            return;
        }
        self.looked = now;
        let names = match door.logins.names(&*door.storage) {
            Ok(Some(names)) => names,
            Ok(None) => return,
            Err(failure) => {
                tracing::warn!(text = failure.text, "cannot read the logins");
                return;
            }
        };
        for login in door.guests.end_sessions_except(&names) {
            let login = strikes::short(&login);
            door.log_logon(&format!(
                "The sessions of '{login}' were ended: the login was removed."
            ));
        }
    }
}

fn welcome(door: &Arc<Door>, socket: TcpStream, from: SocketAddr) {
    if !door.guests.has_room(door.settings.sessions) {
        tracing::warn!(%from, "too many connections: this one was closed");
        return;
    }
    let cancel = Arc::new(AtomicBool::new(false));
    if socket.set_nonblocking(false).is_err() {
        return;
    }
    // One descriptor for the threads that read from it, write to it and end it.
    let socket = Arc::new(socket);
    let place = ClientSlot::take(&door.guests, socket.clone(), cancel.clone());
    let door = door.clone();
    let spawned = std::thread::Builder::new()
        .name("connection".into())
        .stack_size(connection::STACK_LEN)
        .spawn(move || connection::serve(&door, &place, socket, from, cancel));
    if let Err(error) = spawned {
        tracing::warn!(%from, %error, "no thread for a connection: it was closed");
    }
}

/// Ends the running requests as a cancel does, and waits for them.
fn end(door: &Door) {
    door.guests.close();
    let until = door.clock.now() + PATIENCE;
    while !door.guests.is_empty() && door.clock.now() < until {
        door.clock.sleep(Duration::from_millis(20));
    }
    door.sum_up(true);
    door.server.write_log("Server", "Server is terminating.");
}
