//! Goal: systemd hears when the cache's clients are answered: not while a start still compares, and never from a server that
//! cannot serve.
//! Method: the command of the unit, with a socket of the test in the place of systemd's. A start is held at its last step:
//! at the name of its control socket somebody listens who takes nobody.
//! Not covered: systemd itself (`cli/units.rs` reads the unit).

use std::ffi::OsStr;
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{BINARY, longshore};
use crate::{Stage, have, run};

/// Far longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// The command of the unit, as systemd makes it of `BACKEND`, `CACHE` and `OPTIONS`, with the files of a stage.
fn unit(stage: &Stage, manager: &OsStr) -> Command {
    let unit = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../contrib/systemd/longshore-cache@.service"
    );
    let text = std::fs::read_to_string(unit).unwrap();
    assert!(text.contains("\nType=notify\n") && text.contains("\nKillSignal=SIGTERM\n"));
    let line = text.lines().find_map(|l| l.strip_prefix("ExecStart="));
    let plugin = std::env::current_exe()
        .unwrap()
        .with_file_name("liblongshore_nbd.so");
    let mut words = Vec::new();
    for word in line.unwrap().split(' ') {
        words.extend(match word {
            "/usr/local/bin/longshore" => vec![],
            "/run/longshore-cache-%i/disk.sock" => vec![stage.text("socket")],
            "${CACHE}" => vec![stage.text("cache")],
            "${BACKEND}" => vec![stage.text("backend")],
            "$OPTIONS" => {
                let plugin = plugin.to_str().unwrap().to_owned();
                let given = ["--policy".to_owned(), "none".to_owned()];
                [given.to_vec(), vec!["--plugin".to_owned(), plugin]].concat()
            }
            word => vec![word.to_owned()],
        });
    }
    let mut command = longshore(words);
    assert_eq!(command.get_program(), BINARY);
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(stage.path("log"));
    command
        .env("NOTIFY_SOCKET", manager)
        .stdout(Stdio::null())
        .stderr(log.unwrap());
    command
}

/// A socket in the place of systemd's.
fn manager(stage: &Stage) -> UnixDatagram {
    let manager = UnixDatagram::bind(stage.path("manager")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    manager
}

fn start(stage: &mut Stage) {
    let mut command = unit(stage, stage.path("manager").as_os_str());
    stage.server = Some(command.spawn().unwrap());
}

/// The next message to the manager.
fn told(manager: &UnixDatagram) -> String {
    let mut text = [0; 4096];
    let len = manager.recv(&mut text).unwrap();
    String::from_utf8(text[..len].to_vec()).unwrap()
}

/// Whether there is no message to the manager that nobody has read.
fn is_silent(manager: &UnixDatagram) -> bool {
    manager.set_nonblocking(true).unwrap();
    let found = manager.recv(&mut [0; 4096]).map_err(|e| e.kind());
    manager.set_nonblocking(false).unwrap();
    found == Err(ErrorKind::WouldBlock)
}

/// Holds each start of a stage at its last step, until it is dropped.
struct Hold {
    _listener: UnixListener,
    _first: UnixStream,
}

impl Hold {
    fn new(stage: &Stage) -> Hold {
        let path = stage.path("socket.control");
        let _dead = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: `listen` demands a socket that is bound, which `listener` holds open.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        // With one client the queue is full, and the next one waits until it is taken or the listener is closed.
        let first = UnixStream::connect(path).unwrap();
        Hold {
            _listener: listener,
            _first: first,
        }
    }

    /// Waits until the server has opened and compared everything `times` times, so that only the hold keeps it.
    fn wait(&self, stage: &Stage, times: usize) {
        let since = Instant::now();
        while stage.log().matches("the cache is attached").count() < times {
            assert!(since.elapsed() < PATIENCE, "{}", stage.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A killed server's next start compares. Clients may connect meanwhile, and wait.
#[test]
fn systemd_hears_of_a_start_when_it_has_compared_and_clients_are_answered() {
    if !have(&["nbdkit", "nbdinfo", "nbdcopy"]) {
        return;
    }
    let mut stage = Stage::new(16, 40);
    let manager = manager(&stage);
    start(&mut stage);
    assert!(told(&manager).starts_with("STATUS=starting"));
    assert_eq!(told(&manager), "READY=1\nSTATUS=serving");
    stage.reads_as_the_backend();
    assert!(stage.held_at_rest() > 0);
    checkpoint(&stage);
    stage.signal(libc::SIGKILL);

    let hold = Hold::new(&stage);
    start(&mut stage);
    assert!(told(&manager).starts_with("STATUS=starting"));
    hold.wait(&stage, 2);
    let log = stage.log();
    assert!(log.contains("comparing the cached slots"), "{log}");
    assert!(is_silent(&manager), "systemd was told too early");
    let mut early = UnixStream::connect(stage.path("socket")).unwrap();
    early.set_nonblocking(true).unwrap();
    let answer = early.read(&mut [0; 16]).map_err(|e| e.kind());
    assert_eq!(answer, Err(ErrorKind::WouldBlock));
    drop(hold);
    assert_eq!(told(&manager), "READY=1\nSTATUS=serving");
    // Both sockets answer at once, as units after this one expect.
    let status = stage.status();
    assert!(status["cache_state"]["held_bytes"].as_u64().unwrap() > 0);
    run(Command::new("nbdinfo").arg(stage.uri()));
    early.set_nonblocking(false).unwrap();
    early.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(early.read(&mut [0; 16]).unwrap() > 0);
    drop(early);
    stage.stop();
    assert!(is_silent(&manager));
}

/// Makes everything durable that is cached, as the server itself does every ten seconds.
fn checkpoint(stage: &Stage) {
    use longshore_blockcache::control::{Request, ask};
    ask(&stage.path("socket.control"), &Request::Checkpoint).unwrap();
}

/// A stop in the middle of a start is a clean one, with the exit code that systemd takes for a success.
#[test]
fn a_start_that_is_asked_to_stop_ends_cleanly_when_it_has_compared() {
    if !have(&["nbdkit"]) {
        return;
    }
    let mut stage = Stage::new(4, 20);
    let manager = manager(&stage);
    let hold = Hold::new(&stage);
    start(&mut stage);
    assert!(told(&manager).starts_with("STATUS=starting"));
    hold.wait(&stage, 1);
    let mut server = stage.server.take().unwrap();
    // SAFETY: `kill` demands a process that is ours: the child was not waited for yet, so the number is still its own.
    unsafe { libc::kill(server.id() as i32, libc::SIGTERM) };
    drop(hold);
    assert_eq!(server.wait().unwrap().code(), Some(0), "{}", stage.log());
    assert!(stage.log().contains("stopped cleanly"), "{}", stage.log());
}

/// systemd sees a process that ends, and waits for nothing.
#[test]
fn a_server_that_cannot_serve_ends_with_an_error_and_is_never_ready() {
    if !have(&["nbdkit"]) {
        return;
    }
    let mut stage = Stage::new(4, 20);
    let manager = manager(&stage);
    std::fs::remove_file(stage.path("backend")).unwrap();
    start(&mut stage);
    let mut server = stage.server.take().unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(1), "{}", stage.log());
    let what = format!("cannot find {}", stage.text("backend"));
    assert!(stage.log().contains(&what), "{}", stage.log());
    assert!(told(&manager).starts_with("STATUS=starting"));
    assert!(is_silent(&manager));
}

/// A manager may have an abstract name. One that is gone costs a warning, and no service.
#[test]
fn a_manager_of_any_kind_is_told_and_one_that_is_gone_keeps_nobody_from_serving() {
    if !have(&["nbdkit", "nbdinfo"]) {
        return;
    }
    let mut stage = Stage::new(4, 20);
    let name = format!("longshore-ready-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let manager = UnixDatagram::bind_addr(&address).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = unit(&stage, OsStr::new(&format!("@{name}")));
    stage.server = Some(command.spawn().unwrap());
    assert!(told(&manager).starts_with("STATUS="));
    assert!(told(&manager).starts_with("READY=1\n"));
    stage.stop();

    let mut command = unit(&stage, stage.path("nowhere").as_os_str());
    stage.server = Some(command.spawn().unwrap());
    let since = Instant::now();
    while !stage.log().contains("does not take: \"READY=1") {
        assert!(since.elapsed() < PATIENCE, "{}", stage.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    run(Command::new("nbdinfo").arg(stage.uri()));
    stage.stop();
}
