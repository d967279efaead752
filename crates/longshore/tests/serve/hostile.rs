//! Goal: no malicious or broken client stops the server, learns anything, or stays for ever.
//! Method: raw connections send requests that no driver sends, and others stay silent; the server must still serve a
//! good client.

use std::io::Write;
use std::net::Shutdown;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::store::Store;
use crate::common::{Random, text};
use crate::raw::{
    ATTENTION, BATCH, FAILED, LOGIN, PRELOGIN, RPC, Raw, batch_body, end_of, login7, says,
};
use crate::stage::{PASSWORD, Stage, USER};

/// The server has closed the connection, and still serves others.
fn is_sent_away(mut raw: Raw, port: u16, what: &str) {
    while let Some(answer) = raw.message() {
        assert!(!says(&answer, "Changed database"), "{what} was let in");
    }
    let answer = Raw::login(port).batch("SELECT 1");
    assert_eq!(end_of(&answer) & FAILED, 0, "after {what}");
}

#[test]
fn a_connection_without_a_login_is_closed() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let port = server.port;
    let say = |bytes: &[u8], what: &str| {
        let mut raw = Raw::connect(port);
        let _gone = raw.socket.write_all(bytes);
        let _gone = raw.socket.shutdown(std::net::Shutdown::Write);
        is_sent_away(raw, port, what);
    };
    say(b"", "silence");
    say(b"GET / HTTP/1.1\r\n\r\n", "another protocol");
    say(&[0x16, 3, 1, 0, 100, 1, 0, 0, 96, 3, 3], "TLS without TDS");
    say(
        &[PRELOGIN, 1, 0, 4, 0, 0, 0, 0],
        "a length below the header's",
    );
    say(&[PRELOGIN, 1, 0xff, 0xff, 0, 0, 1, 0], "a length above all");
    let mut random = Random(7);
    for _ in 0..20 {
        let len = random.below(300) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        if let Some(first) = bytes.first_mut() {
            *first = PRELOGIN;
        }
        say(&bytes, "noise");
    }
    let after_greeting = |kind: u8, body: &[u8], what: &str| {
        let mut raw = Raw::connect(port);
        raw.greet();
        raw.send(kind, 0, body);
        let _gone = raw.socket.shutdown(std::net::Shutdown::Write);
        is_sent_away(raw, port, what);
    };
    let good = login7(USER, PASSWORD, "");
    after_greeting(BATCH, &batch_body("SELECT 1"), "a batch before the login");
    after_greeting(LOGIN, &vec![0; 200_000], "a login that is too long");
    after_greeting(LOGIN, &good[..90], "a login cut off");
    for at in [0, 36, 40, 44, 46] {
        let mut broken = good.clone();
        broken[at..at + 2].copy_from_slice(&[0xff, 0xff]);
        after_greeting(LOGIN, &broken, "a login with a wrong field");
    }
    const CHANGES_PASSWORD: u8 = 1;
    let mut changing = good.clone();
    changing[27] |= CHANGES_PASSWORD;
    after_greeting(LOGIN, &changing, "a login that changes its password");
    let mut raw = Raw::connect(port);
    raw.send(LOGIN, 0, &good);
    is_sent_away(raw, port, "a login without a greeting");
}

#[test]
fn requests_that_cannot_be_read_are_refused_or_end_the_connection() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut raw = Raw::login(server.port);
    // The end of the message is known: the session continues.
    for (kind, body) in [
        (BATCH, vec![4, 0, 0, 0, b'x']),
        (BATCH, vec![200, 0, 0, 0]),
        (RPC, vec![4, 0, 0, 0, 0xff]),
        (
            RPC,
            vec![4, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 0, 0, 0, 0xf3, 0],
        ),
        (0x0e, vec![4, 0, 0, 0, 0, 0]),
    ] {
        raw.send(kind, 0, &body);
        let answer = raw.message().unwrap();
        assert_ne!(end_of(&answer) & FAILED, 0, "{body:?}");
        assert_eq!(end_of(&raw.batch("SELECT 1")) & FAILED, 0);
    }
    // Cancelled by its client: acknowledged, and not run.
    raw.send(
        BATCH,
        2,
        &batch_body("BACKUP DATABASE shop TO DISK = 'given-up.bak'"),
    );
    assert_eq!(end_of(&raw.message().unwrap()), FAILED);
    assert!(stage.leftovers("given-up").is_empty());
    let mut raw = Raw::login(server.port);
    raw.send(0x07, 0, &[0; 100]);
    is_sent_away(raw, server.port, "a bulk load");
    let mut raw = Raw::login(server.port);
    raw.send(BATCH, 0, &batch_body(&"x".repeat(3 << 20)));
    is_sent_away(raw, server.port, "a batch longer than the limit");
}

#[test]
fn a_request_before_the_last_one_s_answer_ends_the_connection_and_what_ran() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let endings: [fn(Raw); 3] = [
        |mut raw| raw.send(ATTENTION, 0, &[]),
        |raw| raw.socket.shutdown(Shutdown::Both).unwrap(),
        |raw| {
            // The server ends it unasked.
            let mut raw = raw;
            assert!(raw.message().is_none());
        },
    ];
    for ending in endings {
        let mut raw = Raw::login(server.port);
        // It never ends, and never says anything.
        raw.send(
            BATCH,
            0,
            &batch_body("DECLARE @i int WHILE 1 = 1 SET @i = 0"),
        );
        raw.send(BATCH, 0, &batch_body("SELECT 1"));
        ending(raw);
        let is_over = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            !server
                .threads()
                .iter()
                .any(|name| name == "request" || name == "connection")
        });
        assert!(is_over, "{:?} are still there", server.threads());
    }
}

/// A call of sp_prepare: handle (out), parameters, statement. The last two have the type and the bytes given.
fn prepare(parameters: (u8, &[u8]), statement: (u8, &[u8])) -> Vec<u8> {
    let mut body = vec![4, 0, 0, 0, 0xff, 0xff, 11, 0, 0, 0];
    // An INTN without a value, which goes back.
    body.extend([0, 1, 0x26, 4, 0]);
    for (kind, bytes) in [parameters, statement] {
        body.extend([0, 0, kind, 0xff, 0xff]);
        if kind == NVARCHAR {
            body.extend([9, 4, 0xd0, 0, 0x34]);
        }
        // (max): the whole length, one chunk, the end.
        body.extend((bytes.len() as u64).to_le_bytes());
        body.extend((bytes.len() as u32).to_le_bytes());
        body.extend(bytes);
        if !bytes.is_empty() {
            body.extend([0; 4]);
        }
    }
    body
}

const NVARCHAR: u8 = 0xe7;
const VARBINARY: u8 = 0xa5;

#[test]
fn prepared_statements_of_a_session_are_bounded() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut raw = Raw::login(server.port);
    let said = |raw: &mut Raw, body: &[u8]| {
        raw.send(RPC, 0, body);
        raw.message().unwrap()
    };
    let select: Vec<u8> = "SELECT 1"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let refused = "a statement is prepared from texts";
    let good = said(&mut raw, &prepare((NVARCHAR, &[]), (NVARCHAR, &select)));
    assert!(!says(&good, refused) && !says(&good, "prepared"));
    for body in [
        prepare((VARBINARY, &[7; 1000]), (NVARCHAR, &select)),
        prepare((NVARCHAR, &[]), (VARBINARY, &[7; 1000])),
    ] {
        assert!(says(&said(&mut raw, &body), refused));
    }
    // A connection that a pool gives to its next user has none.
    const RESET: u8 = 8;
    let execute = |handle: u8| {
        let mut body = vec![4, 0, 0, 0, 0xff, 0xff, 12, 0, 0, 0];
        body.extend([0, 0, 0x26, 4, 4, handle, 0, 0, 0]);
        body
    };
    let unknown = "prepared statement with handle 1";
    assert!(!says(&said(&mut raw, &execute(1)), unknown));
    raw.send(BATCH, RESET, &batch_body("SELECT 1"));
    assert_eq!(end_of(&raw.message().unwrap()) & FAILED, 0);
    assert!(says(&said(&mut raw, &execute(1)), unknown));
    // 1.5 MiB as they are kept: ten fit, eleven do not.
    let long = [b' ', 0].repeat(3 << 19);
    let answers: Vec<_> = (0..11)
        .map(|_| said(&mut raw, &prepare((NVARCHAR, &long), (NVARCHAR, &select))))
        .collect();
    assert!(!says(&answers[9], "too many statements are prepared"));
    assert!(says(&answers[10], "too many statements are prepared"));
}

#[test]
fn a_login_needs_the_password_and_failures_reveal_nothing() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let tries = [
        (USER, "wrong-secret"),
        ("nobody", "wrong-secret"),
        (USER, ""),
        ("a\nb", PASSWORD),
    ];
    for ((user, password), delay_s) in tries.into_iter().zip([1, 2, 4, 8]) {
        let began = Instant::now();
        let (mut raw, answer) = Raw::login_as(server.port, user, password);
        let answer = answer.unwrap();
        assert!(began.elapsed() >= Duration::from_secs(delay_s), "at once");
        assert!(says(&answer, &format!("Login failed for user '{user}'.")));
        assert_eq!(end_of(&answer), FAILED);
        assert!(raw.message().is_none(), "the connection has ended");
    }
    let mut raw = Raw::connect(server.port);
    raw.greet();
    raw.send(LOGIN, 0, &login7(USER, PASSWORD, "nowhere"));
    let answer = raw.message().unwrap();
    assert!(says(&answer, "Cannot open database \"nowhere\""));
    let mut raw = Raw::login(server.port);
    let log = raw.batch("EXEC sp_readerrorlog 0, 1, 'Login failed'");
    assert!(says(
        &log,
        "Login failed for user 'nobody'. [CLIENT: 127.0.0.1]"
    ));
    let (_, said) = server.stop();
    let kept = std::fs::read(stage.path("state/errorlog")).unwrap();
    let kept = said.join("\n") + &text(&kept);
    assert!(kept.contains("Login failed") && !kept.contains("secret"));
    let logins = std::fs::read_to_string(stage.path("state/logins")).unwrap();
    assert!(!logins.contains("Harbour"));
}

#[test]
fn a_flood_of_failed_logins_leaves_the_log_its_history() {
    const FLOOD: usize = 30;
    const INTEGRATED: u8 = 0x80;
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut login = login7(&"\u{10ffff}".repeat(64), "", "");
    // It fails without a check of the password.
    login[25] |= INTEGRATED;
    std::thread::scope(|scope| {
        for _ in 0..FLOOD {
            scope.spawn(|| {
                let mut raw = Raw::connect(server.port);
                raw.greet();
                raw.send(LOGIN, 0, &login);
                assert!(raw.message().is_some());
            });
        }
    });
    let (_, said) = server.stop();
    let log = std::fs::read_to_string(stage.path("state/errorlog")).unwrap();
    let failures: Vec<_> = log.lines().filter(|l| l.contains("Login failed")).collect();
    assert!(failures.iter().all(|l| l.len() < 250), "{failures:?}");
    assert_eq!(failures.len(), 20);
    assert!(
        log.contains("10 more logins failed within a minute."),
        "{log}"
    );
    let said = said.iter().filter(|l| l.contains("Login failed"));
    assert_eq!(said.count(), 20);
}

#[test]
fn a_server_that_would_not_be_safe_does_not_start() {
    let stage = Stage::new();
    // The port is taken, so that a server that would start ends, too.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let refused = |args: &[&str]| {
        let output = stage.command(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        text(&output.stderr)
    };
    let outside = listen.replace("127.0.0.1", "0.0.0.0");
    let open = refused(&["serve", "--listen", &outside]);
    assert!(open.contains("there is no certificate"), "{open}");
    let nobody = refused(&["serve", "--listen", &listen, "--logins", "no/such/file"]);
    assert!(nobody.contains("no client could log in"), "{nobody}");
    refused(&["serve", "--certificate", "a.pem"]);
    let bad = refused(&["serve", "--certificate", "a.pem", "--key", "b.pem"]);
    assert!(bad.contains("cannot be used for TLS"), "{bad}");
    let empty = stage
        .command(&["serve", "--add-login", "eve"])
        .env("LONGSHORE_LOGIN_PASSWORD", "")
        .output();
    assert_eq!(empty.unwrap().status.code(), Some(2));
    let refusal = |change: &dyn Fn(&mut Command)| {
        let mut command = stage.command(&["serve", "--listen", &listen]);
        change(&mut command);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    let half = refusal(&|command| {
        command.env("LONGSHORE_SERVE_CERTIFICATE", "/a.pem");
    });
    assert!(half.contains("belong together"), "{half}");
    let everything = refusal(&|command| {
        command.current_dir("/");
    });
    assert!(
        everything.contains("clients could name any file"),
        "{everything}"
    );
}

#[test]
fn a_database_of_the_command_line_is_known_to_this_server_alone() {
    let stage = Stage::new();
    let source = format!("extra=sqlite:{}", stage.path("shop.db").display());
    let known = |args: &[&str]| {
        let server = stage.server(args);
        let answer = Raw::login(server.port).batch("SELECT name FROM sys.databases");
        says(&answer, "extra")
    };
    assert!(known(&["--database", &source]));
    assert!(!known(&[]));
}

#[test]
fn clients_that_cannot_encrypt_are_refused_where_they_must() {
    let stage = Stage::new();
    let asked = stage.server(&["--encrypt"]);
    // Other machines reach it, so nobody has to ask.
    let pair = "state/serve.pem";
    let mut outside = stage.command(&["serve", "--listen", "0.0.0.0:0"]);
    outside.args(["--certificate", pair, "--key", pair]);
    let outside = crate::served::Server::start(&mut outside);
    for server in [asked, outside] {
        let mut raw = Raw::connect(server.port);
        raw.send(PRELOGIN, 0, &[1, 0, 6, 0, 1, 0xff, 2]);
        let answer = raw.message().unwrap();
        // Encryption is the second option; its value is the seventh byte behind the list.
        let at = usize::from(u16::from_be_bytes([answer[6], answer[7]]));
        assert_eq!(answer[at], 3, "required");
        raw.send(LOGIN, 0, &login7(USER, PASSWORD, ""));
        assert!(raw.message().is_none());
    }
}

#[test]
fn slow_and_silent_clients_are_ended() {
    let mut stage = Stage::new();
    stage.env = vec![("LONGSHORE_SERVE_LOGIN_TIME", "1".into())];
    let server = stage.server(&[]);
    let silent = Raw::connect(server.port);
    let mut half = Raw::connect(server.port);
    let _sent = half.socket.write_all(&[PRELOGIN, 1, 0]);
    // A busy machine may take the whole second for the answer.
    let greeted = (0..60).find_map(|_| {
        let mut raw = Raw::connect(server.port);
        raw.try_greet().then_some(raw)
    });
    let mut drops = Raw::connect(server.port);
    let dripping = std::thread::spawn(move || {
        // A byte now and then is not enough.
        for _ in 0..100 {
            if drops.socket.write_all(&[PRELOGIN]).is_err() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        drops
    });
    let greeted = greeted.expect("an answer to a greeting");
    for mut raw in [silent, half, greeted, dripping.join().unwrap()] {
        assert!(raw.message().is_none());
    }
    // A client that has logged in has another time limit.
    stage.env = vec![("LONGSHORE_SERVE_IDLE_TIME", "1".into())];
    let server = stage.server(&[]);
    assert!(Raw::login(server.port).message().is_none());
}

#[test]
fn no_statement_leaves_the_directories_of_the_server() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("in")).unwrap();
    let inside = stage.path("in").display().to_string();
    let server = stage.server(&["--directory", &inside, "--backup-directory", &inside]);
    let mut raw = Raw::login(server.port);
    let good = raw.batch("BACKUP DATABASE shop TO DISK = 'a.bak'");
    assert_eq!(end_of(&good) & FAILED, 0);
    assert!(stage.path("in/a.bak").exists());
    let out = stage.path("out.bak").display().to_string();
    for statement in [
        format!("BACKUP DATABASE shop TO DISK = '{out}'"),
        "BACKUP DATABASE shop TO DISK = '../out.bak'".to_owned(),
        "RESTORE HEADERONLY FROM DISK = '/etc/passwd'".to_owned(),
        format!("RESTORE DATABASE copy FROM DISK = 'a.bak' WITH MOVE 'shop.db' TO '{out}'"),
        format!("DECLARE @p nvarchar(400) = '{out}'; BACKUP DATABASE shop TO DISK = @p"),
        format!("EXEC ('BACKUP DATABASE shop TO DISK = ''{out}''')"),
        format!("EXEC sp_addumpdevice 'disk', 'd', '{out}'"),
        format!("EXEC xp_create_subdir '{out}'"),
    ] {
        let answer = raw.batch(&statement);
        assert!(says(&answer, "5(Access is denied.)"), "{statement}");
    }
    assert!(stage.leftovers("out.bak").is_empty());
}

#[test]
fn no_statement_writes_onto_what_the_server_rests_on() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut raw = Raw::login(server.port);
    raw.batch("BACKUP DATABASE shop TO DISK = 'good.bak'");
    for file in [
        "state/logins",
        "state/serve.pem",
        "state/serve.crt",
        "state/catalog.db",
        "state/errorlog",
        "longshore.toml",
    ] {
        let kept = std::fs::read(stage.path(file)).unwrap();
        for statement in [
            format!("BACKUP DATABASE shop TO DISK = '{file}' WITH FORMAT"),
            format!(
                "RESTORE DATABASE copy FROM DISK = 'good.bak' WITH MOVE 'shop.db' TO '{file}', REPLACE"
            ),
        ] {
            let answer = raw.batch(&statement);
            assert_ne!(end_of(&answer) & FAILED, 0, "{statement}");
        }
        let now = std::fs::read(stage.path(file)).unwrap();
        // The log goes on, and the history is another page.
        assert!(file != "state/logins" || now == kept, "{file}");
        assert!(now.starts_with(&kept[..16]), "{file}");
    }
    // The later or temporary names of these files are protected before the files exist.
    for file in ["state/errorlog.1", "state/catalog.db-journal"] {
        raw.batch(&format!(
            "BACKUP DATABASE shop TO DISK = '{file}' WITH FORMAT"
        ));
        raw.batch(&format!(
            "RESTORE DATABASE copy FROM DISK = 'good.bak' WITH MOVE 'shop.db' TO '{file}', REPLACE"
        ));
        assert!(!stage.path(file).exists(), "{file}");
    }
    Raw::login(server.port);
}

#[test]
fn no_statement_names_an_object_outside_the_servers_buckets() {
    let stage = Stage::new();
    let answer = |args: &[&str], statement: &str| {
        let mut all = vec!["serve", "--listen", "127.0.0.1:0"];
        all.extend(args);
        let mut command = stage.command(&all);
        command.env("AWS_ENDPOINT_URL", "http://127.0.0.1:1");
        let server = crate::served::Server::start(&mut command);
        text(&Raw::login(server.port).batch(statement)).replace('\0', "")
    };
    let denied = "Access is denied";
    let backup = |url: &str| format!("BACKUP DATABASE shop TO URL = '{url}' WITH FORMAT");
    let inside = backup("s3://nightly/shop/a.bak");
    let reads = "RESTORE HEADERONLY FROM URL = 's3://nightly/shop/a.bak'";
    for statement in [inside.as_str(), reads] {
        assert!(answer(&[], statement).contains(denied));
    }
    let allowed = ["--bucket", "s3://nightly/shop/"];
    for outside in ["s3://nightly/shop-2/a.bak", "s3://other/shop/a.bak"] {
        assert!(answer(&allowed, &backup(outside)).contains(denied));
    }
    let upwards = answer(&allowed, &backup("s3://nightly/shop/../a.bak"));
    assert!(upwards.contains("no . and no .."), "{upwards}");
    // It gets as far as the refusal of plain http.
    for statement in [inside.as_str(), reads] {
        let said = answer(&allowed, statement);
        assert!(said.contains("LONGSHORE_ALLOW_HTTP"), "{said}");
    }
}

/// Goal: a credential opens no server that the server's own buckets do not name, even under the name of an allowed bucket.
#[test]
fn a_credential_reaches_no_server_outside_the_servers_buckets() {
    let (Some(near), Some(far)) = (Store::new(), Store::with_keys("far-id", "far-verysecret"))
    else {
        return;
    };
    let stage = Stage::new();
    let host = |store: &Store| store.endpoint().replace("http://", "");
    let bucket = |store: &Store| format!("s3://{}/nightly", host(store));
    // The settings name both servers, so plain http is spoken to them.
    let config = stage.path("longshore.toml");
    let tables = std::fs::read_to_string(&config).unwrap();
    let target = format!(
        "[target.far]\nbuckets = [\"s3://other\"]\nendpoint = \"{}\"\n",
        far.endpoint()
    );
    std::fs::write(&config, tables + &target).unwrap();
    let near_bucket = bucket(&near);
    let args = ["serve", "--listen", "127.0.0.1:0", "--bucket", &near_bucket];
    let mut command = stage.command(&args);
    command
        .env("AWS_ENDPOINT_URL", near.endpoint())
        .env("AWS_ACCESS_KEY_ID", "none")
        .env("AWS_SECRET_ACCESS_KEY", "none-verysecret")
        .env("LONGSHORE_ALLOW_HTTP", "1")
        .env("LONGSHORE_LOG", "debug");
    let server = crate::served::Server::start(&mut command);
    let mut client = Raw::login(server.port);
    let mut said = |statement: &str| {
        let said = text(&client.batch(statement)).replace('\0', "");
        assert!(!said.contains("verysecret"), "{said}");
        said
    };
    for (store, secret) in [
        (&near, "test-id:test-verysecret"),
        (&far, "far-id:far-verysecret"),
    ] {
        let create = format!(
            "CREATE CREDENTIAL [{}] WITH IDENTITY = 'S3 Access Key', SECRET = '{secret}'",
            bucket(store)
        );
        let made = said(&create);
        assert!(!made.contains("Msg"), "{made}");
    }
    let backup = |store: &Store| {
        format!(
            "BACKUP DATABASE shop TO URL = '{}/a.bak' WITH FORMAT",
            bucket(store)
        )
    };
    let done = said(&backup(&near));
    assert!(done.contains("successfully processed"), "{done}");
    assert!(near.object("a.bak").exists());
    let denied = said(&backup(&far));
    assert!(denied.contains("Access is denied"), "{denied}");
    assert!(!far.object("a.bak").exists());
    let read = said(&format!(
        "RESTORE HEADERONLY FROM URL = '{}/a.bak'",
        bucket(&far)
    ));
    assert!(read.contains("Access is denied"), "{read}");
    // The plain form is the environment's, at the allowed server, with credentials of the environment.
    let plain = said("RESTORE HEADERONLY FROM URL = 's3://nightly/a.bak'");
    assert!(
        !plain.contains("Access is denied") && plain.contains("HTTP 40"),
        "{plain}"
    );
    let (_, lines) = server.stop();
    assert!(!lines.concat().contains("verysecret"), "{lines:?}");
}
