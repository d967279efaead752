//! Goal: logins are accepted and refused as configured, none keeps others out or makes them wait, sessions of a removed
//! one end, and clients recognise the server by its certificate.
//! Method: the real server, many processes that change its logins, and a client that sends packets by hand.
//! Not covered: encryption, which third-party clients use.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use crate::raw::{BATCH, FAILED, LOGIN, Raw, batch_body, end_of, login7, says};
use crate::stage::{PASSWORD, Stage, USER};

const IN: &str = "Changed database context";

fn is_in(answer: &Option<Vec<u8>>) -> bool {
    answer.as_ref().is_some_and(|a| says(a, IN))
}

/// `serve` with these arguments for each name, all at once; how many answered 0.
fn at_once(stage: &Stage, names: &[String], option: &str) -> usize {
    let children: Vec<_> = names
        .iter()
        .map(|name| {
            let mut command = stage.command(&["serve", option, name]);
            command.env("LONGSHORE_LOGIN_PASSWORD", PASSWORD);
            command.stdout(std::process::Stdio::null());
            command.spawn().unwrap()
        })
        .collect();
    let ended = children.into_iter().map(|mut c| c.wait().unwrap());
    ended.filter(std::process::ExitStatus::success).count()
}

#[test]
fn logins_that_are_added_and_removed_at_once_are_all_added_and_removed() {
    let stage = Stage::new();
    let names: Vec<String> = (0..16).map(|n| format!("user{n}")).collect();
    let path = stage.path("state/logins");
    let known = || {
        let text = std::fs::read_to_string(&path).unwrap();
        text.lines().filter(|l| l.starts_with("user")).count()
    };
    assert_eq!(at_once(&stage, &names, "--add-login"), names.len());
    assert_eq!(known(), names.len());
    assert_eq!(at_once(&stage, &names, "--remove-login"), names.len());
    assert_eq!(known(), 0);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let server = stage.server(&[]);
    Raw::login(server.port);
}

#[test]
fn sessions_of_a_removed_login_end_and_others_continue() {
    let stage = Stage::new();
    stage.add_login("Bob", PASSWORD);
    let server = stage.server(&[]);
    let mut ada = Raw::login(server.port);
    let (mut idle, answer) = Raw::login_as(server.port, "bob", PASSWORD);
    assert!(is_in(&answer));
    let (mut busy, answer) = Raw::login_as(server.port, "BOB", PASSWORD);
    assert!(is_in(&answer));
    busy.send(
        BATCH,
        0,
        &batch_body("PRINT 'on'; WHILE 1 = 1 DECLARE @i int"),
    );
    assert!(busy.packet().is_some());
    let removed = stage.command(&["serve", "--remove-login", "bob"]).output();
    assert!(removed.unwrap().status.success());
    assert!(idle.message().is_none());
    while busy.packet().is_some() {}
    assert_eq!(end_of(&ada.batch("SELECT 1")) & FAILED, 0);
    // The log says so once the sessions have ended.
    let began = Instant::now();
    while !says(
        &ada.batch("EXEC sp_readerrorlog"),
        "The sessions of 'bob' were ended",
    ) {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "it never says so"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    // A file that is missing for a moment ends no session.
    std::fs::rename(stage.path("state/logins"), stage.path("state/elsewhere")).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(end_of(&ada.batch("SELECT 1")) & FAILED, 0);
}

#[test]
fn a_login_leaves_room_for_others() {
    let mut stage = Stage::new();
    stage.env = vec![("LONGSHORE_SERVE_SESSIONS", "8".into())];
    stage.add_login("bob", PASSWORD);
    let server = stage.server(&[]);
    let all: Vec<Raw> = (0..7).map(|_| Raw::login(server.port)).collect();
    let began = Instant::now();
    let (_, refused) = Raw::login_as(server.port, USER, PASSWORD);
    let refused = refused.unwrap();
    assert!(says(&refused, "maximum number of '7' user connections"));
    let (_, bob) = Raw::login_as(server.port, "bob", PASSWORD);
    assert!(is_in(&bob));
    assert!(began.elapsed() < Duration::from_secs(5), "nobody waits");
    drop(all);
    // Their places become free as soon as the server has noticed.
    let comes_in = || {
        let mut raw = Raw::connect(server.port);
        raw.try_greet() && {
            raw.send(LOGIN, 0, &login7(USER, PASSWORD, ""));
            is_in(&raw.message())
        }
    };
    while !comes_in() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_login_with_the_right_password_never_waits() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    Raw::login(server.port);
    // Far more than may be logging in; each waits for its answer.
    let mut wrong = Vec::new();
    for _ in 0..160 {
        let mut raw = Raw::connect(server.port);
        if raw.try_greet() {
            raw.send(LOGIN, 0, &login7("nobody", "wrong", ""));
            wrong.push(raw);
        }
    }
    let began = Instant::now();
    let (_, answer) = Raw::login_as(server.port, USER, PASSWORD);
    assert!(is_in(&answer));
    let (_, answer) = Raw::login_to(server.port, USER, PASSWORD, "nowhere");
    let answer = answer.unwrap();
    assert!(says(&answer, "Cannot open database \"nowhere\""));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
    // The newest of the others still waits, and receives the reason of its failure in the end.
    let last = wrong.last_mut().unwrap();
    last.socket.set_nonblocking(true).unwrap();
    assert!(last.socket.peek(&mut [0]).is_err());
    last.socket.set_nonblocking(false).unwrap();
    assert!(says(
        &last.message().unwrap(),
        "Login failed for user 'nobody'"
    ));
}

/// Clients that failed and wait for their answers take no places: all are answered, and the next one comes in.
#[test]
fn failed_logins_take_no_place_and_are_all_answered() {
    let mut stage = Stage::new();
    stage.env = vec![("LONGSHORE_SERVE_SESSIONS", "2".into())];
    let server = stage.server(&[]);
    let failures = || {
        let log = std::fs::read_to_string(stage.path("state/errorlog")).unwrap();
        log.lines().filter(|l| l.contains("Login failed")).count()
    };
    let wrong: Vec<Raw> = (1..=4)
        .map(|count| {
            let mut raw = Raw::connect(server.port);
            raw.greet();
            raw.send(LOGIN, 0, &login7("nobody", "wrong", ""));
            while failures() < count {
                std::thread::sleep(Duration::from_millis(5));
            }
            raw
        })
        .collect();
    let (_in, answer) = Raw::login_as(server.port, USER, PASSWORD);
    assert!(is_in(&answer));
    for mut raw in wrong {
        let answer = raw.message().expect("an answer to a failed login");
        assert!(says(&answer, "Login failed for user 'nobody'"));
    }
}

#[test]
fn the_certificate_that_the_server_makes_stays_the_same() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let read = |name: &str| std::fs::read_to_string(stage.path(name)).unwrap();
    let (pair, shown) = (read("state/serve.pem"), read("state/serve.crt"));
    assert!(pair.contains(&shown) && pair.contains("PRIVATE KEY"));
    let mode = |name: &str| {
        let stat = std::fs::metadata(stage.path(name)).unwrap();
        stat.permissions().mode() & 0o777
    };
    assert_eq!(
        (mode("state/serve.pem"), mode("state/serve.crt")),
        (0o600, 0o644)
    );
    let mut raw = Raw::login(server.port);
    for file in [
        "state/serve.pem",
        "state/serve.crt",
        "state/serve.pem.lock",
        "state/logins.lock",
    ] {
        let batch = format!("BACKUP DATABASE shop TO DISK = '{file}' WITH FORMAT");
        assert_ne!(end_of(&raw.batch(&batch)) & FAILED, 0, "{file}");
    }
    let (_, _) = server.stop();
    let server = stage.server(&[]);
    assert_eq!(
        (read("state/serve.pem"), read("state/serve.crt")),
        (pair, shown)
    );
    drop(server);
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(stage.path("state/serve.pem"), open).unwrap();
    let refused = stage
        .command(&["serve", "--listen", "127.0.0.1:0"])
        .output();
    let refused = refused.unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(crate::common::text(&refused.stderr).contains("chmod 600"));
}
