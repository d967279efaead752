//! Goal: statements of keys and certificates do what SQL Server's do: a backup is encrypted for the certificate that was
//! named, opens where its key is and nowhere else, and no change of the catalog leads a backup to another certificate.
//! Method: statements as scripts have them, on one server and on a second one; plain SQLite changes the catalog; openssl
//! reads the files and makes others.
//! Not covered: PostgreSQL and the two doors (`longshore/tests`), and the bytes of a slot (`core/crypt/tests`).

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use common::{Stage, fill, numbers, rows, run, said, value};
use longshore_tsql::Session;

const PASSWORD: &str = "Verysecret-1";

fn ok(session: &mut Session, batch: &str) -> Vec<u32> {
    let record = run(session, batch);
    let errors: Vec<_> = record.messages().filter(|m| m.is_error()).collect();
    assert!(errors.is_empty(), "{batch}: {errors:?}");
    numbers(&record)
}

/// The numbers of a batch that fails; nothing that is said has a password in it.
fn fails(session: &mut Session, batch: &str) -> Vec<u32> {
    let record = run(session, batch);
    let said = said(&record);
    assert!(record.messages().any(|m| m.is_error()), "{batch}: {said:?}");
    assert!(!said.concat().contains(PASSWORD), "{said:?}");
    numbers(&record)
}

fn master(session: &mut Session) {
    ok(
        session,
        &format!("CREATE MASTER KEY ENCRYPTION BY PASSWORD = '{PASSWORD}'"),
    );
}

const BACKUP: &str = "BACKUP DATABASE shop TO DISK = 'a.bak' WITH FORMAT, \
     ENCRYPTION (ALGORITHM = AES_256, SERVER CERTIFICATE = c)";

fn restore(stage: &Stage, name: &str) -> String {
    let path = stage.path(name);
    format!(
        "RESTORE DATABASE again FROM DISK = 'a.bak' WITH MOVE 'shop.db' TO '{}'",
        path.display()
    )
}

fn copied(stage: &Stage, name: &str) -> bool {
    let count = |name: &str| -> i64 {
        let db = rusqlite::Connection::open(stage.path(name)).unwrap();
        db.query_row("SELECT count(*) FROM ware", [], |row| row.get(0))
            .unwrap()
    };
    count("shop.db") == count(name)
}

fn openssl(dir: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("openssl")
        .args(arguments)
        .current_dir(dir)
        .output();
    let output = output.expect("openssl is installed");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {arguments:?}: {why}");
    output.stdout
}

#[test]
fn a_backup_for_a_certificate_opens_with_it_and_nowhere_else() {
    let stage = Stage::new();
    let mut session = stage.session();
    assert_eq!(
        fails(&mut session, "CREATE CERTIFICATE c WITH SUBJECT = 's'"),
        [15581]
    );
    assert_eq!(fails(&mut session, BACKUP), [15151, 3013]);
    master(&mut session);
    ok(
        &mut session,
        "CREATE CERTIFICATE c WITH SUBJECT = 'Backups of the shop'",
    );
    let said = ok(&mut session, BACKUP);
    assert_eq!(said, [33091, 4035, 3014]);
    // A new session, and a restarted server.
    let mut session = stage.session();
    ok(&mut session, &restore(&stage, "again.db"));
    assert!(copied(&stage, "again.db"));
    ok(&mut session, "RESTORE VERIFYONLY FROM DISK = 'a.bak'");
    let listed = rows(&run(
        &mut session,
        "RESTORE FILELISTONLY FROM DISK = 'a.bak'",
    ));
    assert_eq!(listed[0][0], "shop.db");
    let thumbprint = value(&mut session, "SELECT thumbprint FROM sys.certificates");
    assert_eq!(thumbprint.len(), 42, "{thumbprint}");
    let header = rows(&run(&mut session, "RESTORE HEADERONLY FROM DISK = 'a.bak'"));
    assert_eq!(header[0][53..56], ["aes_256", &thumbprint, "CERTIFICATE"]);
    let kept = value(
        &mut session,
        "SELECT TOP 1 key_algorithm, encryptor_thumbprint, encryptor_type FROM msdb.dbo.backupset",
    );
    assert_eq!(kept, format!("aes_256|{thumbprint}|CERTIFICATE"));
    let media = "SELECT is_encrypted FROM msdb.dbo.backupmediaset";
    assert_eq!(value(&mut session, media), "1");
    // Another server has neither.
    let other = Stage::new();
    let mut stranger = other.session();
    std::fs::copy(stage.path("a.bak"), other.path("a.bak")).unwrap();
    for statement in [
        "RESTORE VERIFYONLY FROM DISK = 'a.bak'",
        "RESTORE FILELISTONLY FROM DISK = 'a.bak'",
        "RESTORE DATABASE shop FROM DISK = 'a.bak' WITH REPLACE",
    ] {
        let record = run(&mut stranger, statement);
        let said = common::said(&record);
        let expected =
            format!("33111 Cannot find server certificate with thumbprint '{thumbprint}'.");
        assert_eq!(said[0], expected, "{statement}: {said:?}");
        assert_eq!(numbers(&record).last(), Some(&3013), "{statement}");
    }
    let header = rows(&run(
        &mut stranger,
        "RESTORE HEADERONLY FROM DISK = 'a.bak'",
    ));
    assert_eq!(header[0][54], thumbprint);
    assert!(copied(&other, "shop.db"));
}

/// Goal: what a second server needs is in the two files of BACKUP CERTIFICATE, which openssl reads, too.
#[test]
fn a_certificate_moves_to_another_server_in_files_that_openssl_reads() {
    let stage = Stage::new();
    let mut session = stage.session();
    master(&mut session);
    ok(&mut session, "CREATE CERTIFICATE c WITH SUBJECT = 'Moves'");
    ok(&mut session, BACKUP);
    let backed = "SELECT pvt_key_last_backup_date FROM sys.certificates";
    ok(&mut session, "BACKUP CERTIFICATE c TO FILE = 'public.cer'");
    assert_eq!(value(&mut session, backed), "NULL");
    let to_files = format!(
        "BACKUP CERTIFICATE c TO FILE = 'c.cer' WITH PRIVATE KEY (FILE = 'c.key', ENCRYPTION BY PASSWORD = '{PASSWORD}')"
    );
    ok(&mut session, &to_files);
    assert_ne!(value(&mut session, backed), "NULL");
    assert_eq!(fails(&mut session, &to_files), [15240]);
    // The warning is gone.
    assert_eq!(ok(&mut session, BACKUP), [4035, 3014]);
    for name in ["c.cer", "c.key"] {
        let mode = std::fs::metadata(stage.path(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let shown = openssl(
        stage.dir.path(),
        &[
            "x509",
            "-inform",
            "DER",
            "-in",
            "c.cer",
            "-noout",
            "-subject",
            "-fingerprint",
            "-sha1",
        ],
    );
    let shown = String::from_utf8(shown).unwrap();
    let digits = shown.lines().last().unwrap().replace(':', "");
    let thumbprint = value(&mut session, "SELECT thumbprint FROM sys.certificates");
    assert!(digits.ends_with(&thumbprint[2..]), "{shown} {thumbprint}");
    assert!(shown.contains("CN = Moves"), "{shown}");
    let verified = ["verify", "-CAfile", "c.pem", "c.pem"];
    openssl(
        stage.dir.path(),
        &["x509", "-inform", "DER", "-in", "c.cer", "-out", "c.pem"],
    );
    openssl(stage.dir.path(), &verified);
    let pass = format!("pass:{PASSWORD}");
    openssl(
        stage.dir.path(),
        &[
            "pkcs8",
            "-in",
            "c.key",
            "-passin",
            &pass,
            "-out",
            "plain.pem",
        ],
    );

    let other = Stage::new();
    let mut there = other.session();
    for name in ["a.bak", "c.cer", "c.key"] {
        std::fs::copy(stage.path(name), other.path(name)).unwrap();
    }
    let from = |more: &str| {
        format!(
            "CREATE CERTIFICATE moved FROM FILE = 'c.cer' WITH PRIVATE KEY (FILE = 'c.key'{more})"
        )
    };
    let right = from(&format!(", DECRYPTION BY PASSWORD = '{PASSWORD}'"));
    assert_eq!(fails(&mut there, &right), [15581]);
    master(&mut there);
    let wrong = from(", DECRYPTION BY PASSWORD = 'another one'");
    assert_eq!(fails(&mut there, &wrong), [15465, 50005]);
    assert_eq!(fails(&mut there, &from("")), [15465, 50005]);
    ok(&mut there, &right);
    assert_eq!(fails(&mut there, &right), [15232]);
    ok(&mut there, &restore(&other, "moved.db"));
    assert!(copied(&other, "moved.db"));
}

#[test]
fn openssls_certificates_and_keys_are_taken() {
    let stage = Stage::new();
    let dir = stage.dir.path();
    let mut session = stage.session();
    master(&mut session);
    let made = |bits: &str, name: &str| {
        let (key, cer) = (format!("{name}.key"), format!("{name}.pem"));
        openssl(
            dir,
            &[
                "req",
                "-x509",
                "-newkey",
                &format!("rsa:{bits}"),
                "-nodes",
                "-keyout",
                &key,
                "-out",
                &cer,
                "-days",
                "30",
                "-subj",
                "/O=Harbour/CN=theirs",
            ],
        );
    };
    made("2048", "a");
    made("4096", "b");
    made("1024", "short");
    openssl(
        dir,
        &[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            "ec.key",
            "-out",
            "ec.pem",
            "-subj",
            "/CN=ec",
        ],
    );
    let from = |name: &str, cer: &str, key: &str| {
        format!(
            "CREATE CERTIFICATE {name} FROM FILE = '{cer}.pem' WITH PRIVATE KEY (FILE = '{key}.key')"
        )
    };
    assert_eq!(
        fails(&mut session, &from("x", "short", "short")),
        [15297, 50005]
    );
    assert_eq!(fails(&mut session, &from("x", "ec", "ec")), [15297, 50005]);
    assert_eq!(fails(&mut session, &from("x", "a", "b")), [15474]);
    assert_eq!(fails(&mut session, &from("x", "a", "ec")), [15464, 50005]);
    assert_eq!(fails(&mut session, &from("x", "nowhere", "a")), [15208]);
    assert_eq!(fails(&mut session, &from("x", "a", "nowhere")), [15208]);
    ok(&mut session, &from("c", "a", "a"));
    ok(&mut session, &from("d", "b", "b"));
    let shown = "SELECT subject, key_length, pvt_key_encryption_type FROM sys.certificates WHERE name = 'c'";
    assert_eq!(value(&mut session, shown), "O=Harbour, CN=theirs|2048|MK");
    ok(&mut session, BACKUP);
    ok(&mut session, &restore(&stage, "again.db"));
    // The public half alone encrypts, and says that it opens nothing.
    ok(&mut session, "DROP CERTIFICATE c");
    ok(&mut session, "CREATE CERTIFICATE c FROM FILE = 'a.pem'");
    assert_eq!(ok(&mut session, BACKUP)[0], 50003);
    let refused = fails(&mut session, "RESTORE VERIFYONLY FROM DISK = 'a.bak'");
    assert_eq!(refused, [33101, 3013]);
    assert_eq!(
        fails(
            &mut session,
            &format!(
                "BACKUP CERTIFICATE c TO FILE = 'x' WITH PRIVATE KEY (FILE = 'y', \
             ENCRYPTION BY PASSWORD = '{PASSWORD}')"
            )
        ),
        [15246]
    );
}

#[test]
fn one_stripe_of_an_encrypted_set_tells_of_it_and_names_its_files_with_the_key() {
    let stage = Stage::new();
    let mut session = stage.session();
    master(&mut session);
    ok(&mut session, "CREATE CERTIFICATE c WITH SUBJECT = 's'");
    ok(
        &mut session,
        &BACKUP.replace("DISK = 'a.bak'", "DISK = 'a.bak', DISK = 'b.bak'"),
    );
    for stripe in ["a.bak", "b.bak"] {
        let header = run(
            &mut session,
            &format!("RESTORE HEADERONLY FROM DISK = '{stripe}'"),
        );
        let at = header.columns().iter();
        let at = at.clone().position(|c| c.name == "EncryptorThumbprint");
        assert_ne!(common::rows(&header)[0][at.unwrap()], "NULL");
        let list = format!("RESTORE FILELISTONLY FROM DISK = '{stripe}'");
        assert_eq!(common::rows(&run(&mut session, &list))[0][0], "shop.db");
    }
    ok(&mut session, "DROP CERTIFICATE c");
    // A stripe without blocks has nothing that is closed.
    let closed = ["a.bak", "b.bak"].map(|stripe| {
        let list = format!("RESTORE FILELISTONLY FROM DISK = '{stripe}'");
        numbers(&run(&mut session, &list))
    });
    assert!(closed.contains(&vec![33111, 3013]), "{closed:?}");
    let header = run(&mut session, "RESTORE HEADERONLY FROM DISK = 'b.bak'");
    assert_eq!(common::rows(&header).len(), 1);
}

#[test]
fn expired_certificates_open_and_encrypt_nothing() {
    let stage = Stage::new();
    let mut session = stage.session();
    master(&mut session);
    ok(&mut session, "CREATE CERTIFICATE c WITH SUBJECT = 's'");
    ok(&mut session, BACKUP);
    // The same key, with a certificate that has expired: the key id finds it.
    ok(
        &mut session,
        &format!(
            "BACKUP CERTIFICATE c TO FILE = 'c.cer' WITH PRIVATE KEY (FILE = 'c.key', \
        ENCRYPTION BY PASSWORD = '{PASSWORD}')"
        ),
    );
    let pass = format!("pass:{PASSWORD}");
    openssl(
        stage.dir.path(),
        &["pkcs8", "-in", "c.key", "-passin", &pass, "-out", "p.key"],
    );
    openssl(
        stage.dir.path(),
        &[
            "req", "-new", "-key", "p.key", "-subj", "/CN=old", "-out", "old.csr",
        ],
    );
    openssl(
        stage.dir.path(),
        &[
            "x509", "-req", "-in", "old.csr", "-signkey", "p.key", "-days", "-1", "-out", "old.pem",
        ],
    );
    ok(&mut session, "DROP CERTIFICATE c");
    let said = ok(
        &mut session,
        "CREATE CERTIFICATE c FROM FILE = 'old.pem' WITH PRIVATE KEY (FILE = 'p.key')",
    );
    assert!(said.contains(&15214), "{said:?}");
    ok(&mut session, &restore(&stage, "again.db"));
    assert_eq!(fails(&mut session, BACKUP), [3096, 3013]);
    let early = "CREATE CERTIFICATE e WITH SUBJECT = 's', START_DATE = '21000101', EXPIRY_DATE = '20990101'";
    assert_eq!(ok(&mut session, early), [15213, 15215]);
    assert_eq!(
        value(
            &mut session,
            "SELECT start_date, expiry_date FROM sys.certificates WHERE name = 'e'"
        ),
        "2100-01-01 00:00:00.000|2099-01-01 00:00:00.000"
    );
}

#[test]
fn ciphers_and_other_encryptors_are_named() {
    let stage = Stage::new();
    let mut session = stage.session();
    master(&mut session);
    ok(&mut session, "CREATE CERTIFICATE c WITH SUBJECT = 's'");
    let with = |what: &str| {
        format!("BACKUP DATABASE shop TO DISK = 'x.bak' WITH FORMAT, ENCRYPTION ({what})")
    };
    for cipher in ["AES_128", "AES_192"] {
        let record = run(
            &mut session,
            &with(&format!("ALGORITHM = {cipher}, SERVER CERTIFICATE = c")),
        );
        let said = said(&record);
        assert!(
            said[0].contains(&format!("AES_256 is used instead of {cipher}")),
            "{said:?}"
        );
    }
    for refused in [
        "ALGORITHM = TRIPLE_DES_3KEY, SERVER CERTIFICATE = c",
        "ALGORITHM = AES_256, SERVER ASYMMETRIC KEY = c",
    ] {
        assert_eq!(fails(&mut session, &with(refused)), [50000, 3013]);
    }
    // Sets that are encrypted and others do not mix, either way.
    let plain = "BACKUP DATABASE shop TO DISK = 'plain.bak'";
    ok(&mut session, plain);
    let mixed = format!("{plain} WITH ENCRYPTION (ALGORITHM = AES_256, SERVER CERTIFICATE = c)");
    assert_eq!(fails(&mut session, &mixed).first(), Some(&33091));
    assert!(fails(&mut session, &mixed).contains(&3095));
    let reverse = "BACKUP DATABASE shop TO DISK = 'x.bak'";
    assert!(fails(&mut session, reverse).contains(&3095));
    let appended = "BACKUP DATABASE shop TO DISK = 'x.bak' WITH ENCRYPTION (ALGORITHM = AES_256, SERVER CERTIFICATE = c)";
    ok(&mut session, appended);
}

#[test]
fn the_master_key_opens_by_its_passwords_and_by_the_service_key() {
    let stage = Stage::new();
    let mut session = stage.session();
    for (statement, number) in [
        ("OPEN MASTER KEY DECRYPTION BY PASSWORD = 'x'", 15151),
        ("CLOSE MASTER KEY", 15315),
        ("DROP MASTER KEY", 15151),
        (
            "ALTER MASTER KEY ADD ENCRYPTION BY SERVICE MASTER KEY",
            15151,
        ),
        (
            "CREATE MASTER KEY ENCRYPTION BY PASSWORD = 'short12'",
            15116,
        ),
    ] {
        assert_eq!(fails(&mut session, statement), [number], "{statement}");
    }
    master(&mut session);
    assert_eq!(
        fails(
            &mut session,
            "CREATE MASTER KEY ENCRYPTION BY PASSWORD = 'another one'"
        ),
        [15578]
    );
    ok(&mut session, "CREATE CERTIFICATE c WITH SUBJECT = 's'");
    assert_eq!(fails(&mut session, "DROP MASTER KEY"), [15580]);
    ok(&mut session, BACKUP);
    ok(
        &mut session,
        "ALTER MASTER KEY DROP ENCRYPTION BY SERVICE MASTER KEY",
    );
    let sealed = "SELECT name, is_master_key_encrypted_by_server FROM sys.databases ORDER BY name";
    let sealed_now = |session: &mut Session| rows(&run(session, sealed));
    assert_eq!(
        sealed_now(&mut session),
        [["master", "0"], ["shop", "0"], ["tempdb", "0"]]
    );
    let verify = "RESTORE VERIFYONLY FROM DISK = 'a.bak'";
    assert_eq!(fails(&mut session, verify), [15581, 3013]);
    // It encrypts without its key.
    ok(&mut session, BACKUP);
    let wrong = "OPEN MASTER KEY DECRYPTION BY PASSWORD = 'another one'";
    assert_eq!(fails(&mut session, wrong), [15313]);
    let open = format!("OPEN MASTER KEY DECRYPTION BY PASSWORD = '{PASSWORD}'");
    ok(&mut session, &format!("{open}; {verify}; CLOSE MASTER KEY"));
    assert_eq!(fails(&mut session, verify), [15581, 3013]);
    ok(&mut session, &open);
    // A key that one session has opened is closed for others.
    let mut other = stage.session();
    assert_eq!(fails(&mut other, verify), [15581, 3013]);
    ok(
        &mut session,
        "ALTER MASTER KEY ADD ENCRYPTION BY PASSWORD = 'another one'",
    );
    ok(
        &mut session,
        &format!("ALTER MASTER KEY DROP ENCRYPTION BY PASSWORD = '{PASSWORD}'"),
    );
    ok(&mut other, &format!("{wrong}; {verify}"));
    ok(
        &mut other,
        "ALTER MASTER KEY ADD ENCRYPTION BY SERVICE MASTER KEY",
    );
    ok(&mut stage.session(), verify);
    assert_eq!(
        sealed_now(&mut other),
        [["master", "1"], ["shop", "0"], ["tempdb", "0"]]
    );
    ok(
        &mut other,
        "ALTER MASTER KEY REGENERATE WITH ENCRYPTION BY PASSWORD = 'the third one'",
    );
    ok(&mut stage.session(), verify);
    let names = "SELECT name FROM sys.symmetric_keys ORDER BY name";
    let names = rows(&run(&mut session, names));
    assert_eq!(
        names,
        [["##MS_DatabaseMasterKey##"], ["##MS_ServiceMasterKey##"]]
    );
    session.reset(false);
    assert_eq!(fails(&mut session, "CLOSE MASTER KEY"), [15315]);
}

#[test]
fn a_master_key_comes_back_from_its_file() {
    let stage = Stage::new();
    let mut session = stage.session();
    master(&mut session);
    ok(&mut session, "CREATE CERTIFICATE c WITH SUBJECT = 's'");
    ok(&mut session, BACKUP);
    let to = format!("BACKUP MASTER KEY TO FILE = 'm' ENCRYPTION BY PASSWORD = '{PASSWORD}'");
    ok(&mut session, &to);
    assert_eq!(fails(&mut session, &to), [15240]);
    let from = |password: &str| {
        format!(
            "RESTORE MASTER KEY FROM FILE = 'm' DECRYPTION BY PASSWORD = '{password}' ENCRYPTION BY PASSWORD = 'next one'"
        )
    };
    assert_eq!(fails(&mut session, &from("another one")), [15466]);
    assert_eq!(ok(&mut session, &from(PASSWORD)), [15588]);
    ok(
        &mut session,
        "ALTER MASTER KEY REGENERATE WITH ENCRYPTION BY PASSWORD = 'the third one'",
    );
    ok(&mut session, &from(PASSWORD));
    ok(&mut session, "RESTORE VERIFYONLY FROM DISK = 'a.bak'");
    ok(
        &mut session,
        "OPEN MASTER KEY DECRYPTION BY PASSWORD = 'next one'",
    );
    std::fs::write(stage.path("broken"), "longshore-master-key-1 00\n").unwrap();
    let broken = "RESTORE MASTER KEY FROM FILE = 'broken' DECRYPTION BY PASSWORD = 'x' ENCRYPTION BY PASSWORD = 'next one'";
    assert_eq!(fails(&mut session, broken), [15317]);
}

#[test]
fn a_private_key_under_a_password_opens_for_that_password_alone() {
    let stage = Stage::new();
    let mut session = stage.session();
    ok(
        &mut session,
        &format!("CREATE CERTIFICATE c ENCRYPTION BY PASSWORD = '{PASSWORD}' WITH SUBJECT = 's'"),
    );
    assert_eq!(ok(&mut session, BACKUP)[0], 50003);
    assert_eq!(
        fails(&mut session, "RESTORE VERIFYONLY FROM DISK = 'a.bak'"),
        [33101, 3013]
    );
    let to = |password: &str| {
        format!(
            "BACKUP CERTIFICATE c TO FILE = 'c.cer' WITH PRIVATE KEY (FILE = 'c.key', \
            ENCRYPTION BY PASSWORD = 'for the file'{password})"
        )
    };
    assert_eq!(fails(&mut session, &to("")), [15465]);
    assert_eq!(
        fails(
            &mut session,
            &to(", DECRYPTION BY PASSWORD = 'another one'")
        ),
        [15465, 50005]
    );
    ok(
        &mut session,
        &to(&format!(", DECRYPTION BY PASSWORD = '{PASSWORD}'")),
    );
    master(&mut session);
    ok(&mut session, "DROP CERTIFICATE c");
    ok(
        &mut session,
        "CREATE CERTIFICATE c FROM FILE = 'c.cer' WITH PRIVATE KEY (FILE = 'c.key', \
        DECRYPTION BY PASSWORD = 'for the file')",
    );
    ok(&mut session, "RESTORE VERIFYONLY FROM DISK = 'a.bak'");
    let needless = to(&format!(", DECRYPTION BY PASSWORD = '{PASSWORD}'"));
    assert_eq!(fails(&mut session, &needless), [15147]);
}

/// Goal: whoever writes to the catalog, and not to the file of the service key, leads no backup to another certificate.
#[test]
fn rows_that_were_swapped_changed_or_put_back_are_not_used() {
    let stage = Stage::new();
    let mut session = stage.session();
    master(&mut session);
    ok(
        &mut session,
        "CREATE CERTIFICATE c WITH SUBJECT = 'first'; CREATE CERTIFICATE d WITH SUBJECT = 'second'",
    );
    ok(&mut session, BACKUP);
    let path = stage.path("state/catalog.db");
    let before = stage.path("before");
    let dump = |to: &Path| {
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute("VACUUM INTO ?1", [to.to_str().unwrap()])
            .unwrap();
    };
    dump(&before);
    let change = |sql: &str| {
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch(sql).unwrap();
    };
    let back = |from: &Path| {
        change(&format!(
            "ATTACH '{}' AS old; DELETE FROM longshore_certificate;
             INSERT INTO longshore_certificate SELECT * FROM old.longshore_certificate;
             DELETE FROM longshore_master_key; INSERT INTO longshore_master_key SELECT * FROM old.longshore_master_key",
            from.display()
        ));
    };
    let other = "(SELECT {} FROM longshore_certificate AS o WHERE o.name = 'd') WHERE name = 'c'";
    let swapped = |column: &str| {
        format!(
            "UPDATE longshore_certificate SET {column} = {}",
            other.replace("{}", column)
        )
    };
    for tampering in [
        swapped("certificate"),
        swapped("private_key"),
        swapped("seal"),
        "UPDATE longshore_certificate SET name = 'x' WHERE name = 'c'; UPDATE longshore_certificate SET name = 'c' WHERE name = 'd'".to_owned(),
        "DELETE FROM longshore_certificate WHERE name = 'd'".to_owned(),
        "UPDATE longshore_certificate SET pvt_key_last_backup_date = '2026-01-01T00:00:00.000'".to_owned(),
        "UPDATE longshore_certificate SET pvt_key_encryption_type = 'PW' WHERE name = 'c'".to_owned(),
        "UPDATE longshore_master_key SET by_passwords = zeroblob(108)".to_owned(),
        "DELETE FROM longshore_master_key".to_owned(),
    ] {
        change(&tampering);
        let refused = fails(&mut session, BACKUP);
        assert_eq!(refused, [50000, 3013], "{tampering}");
        assert_eq!(fails(&mut session, "CREATE CERTIFICATE e WITH SUBJECT = 's'"), [50000], "{tampering}");
        back(&before);
        ok(&mut session, BACKUP);
    }
    // A certificate that was dropped, because its key was stolen, and one of its name in its place.
    ok(
        &mut session,
        "DROP CERTIFICATE c; CREATE CERTIFICATE c WITH SUBJECT = 'third'",
    );
    let now = stage.path("now");
    dump(&now);
    back(&before);
    assert_eq!(fails(&mut session, BACKUP), [50000, 3013]);
    assert_eq!(
        fails(&mut session, &restore(&stage, "x.db")).last(),
        Some(&3013)
    );
    // Another change of such a state makes it no better.
    ok(&mut session, "DROP CERTIFICATE d");
    assert_eq!(fails(&mut session, BACKUP), [50000, 3013]);
    back(&now);
    ok(&mut session, BACKUP);
    // The owner of the key's file can say that an older catalog is the right one.
    back(&before);
    let key = stage.path("state/catalog.db.key");
    let lines = std::fs::read_to_string(&key).unwrap();
    assert_eq!(lines.lines().count(), 2);
    std::fs::write(&key, format!("{}\n", lines.lines().next().unwrap())).unwrap();
    ok(&mut session, BACKUP);
    // Without the key's file nothing is used, and everything can be dropped.
    std::fs::remove_file(&key).unwrap();
    assert_eq!(fails(&mut session, BACKUP), [50000, 3013]);
    ok(
        &mut session,
        "DROP CERTIFICATE c; DROP CERTIFICATE d; DROP MASTER KEY",
    );
    master(&mut session);
}

#[test]
fn a_private_key_is_nowhere_in_the_catalog_and_passwords_are_nowhere_at_all() {
    let stage = Stage::new();
    let mut session = stage.session();
    master(&mut session);
    ok(&mut session, "CREATE CERTIFICATE c WITH SUBJECT = 's'");
    ok(
        &mut session,
        &format!("CREATE CERTIFICATE p ENCRYPTION BY PASSWORD = '{PASSWORD}' WITH SUBJECT = 's'"),
    );
    ok(
        &mut session,
        &format!(
            "BACKUP CERTIFICATE c TO FILE = 'c.cer' WITH PRIVATE KEY (FILE = 'c.key', ENCRYPTION BY PASSWORD = '{PASSWORD}')"
        ),
    );
    let pass = format!("pass:{PASSWORD}");
    let der = openssl(
        stage.dir.path(),
        &[
            "pkcs8", "-in", "c.key", "-passin", &pass, "-topk8", "-nocrypt", "-outform", "DER",
        ],
    );
    fails(
        &mut session,
        &format!("CREATE MASTER KEY ENCRYPTION BY PASSWORD = '{PASSWORD}'"),
    );
    for entry in std::fs::read_dir(stage.path("state")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(bytes) = std::fs::read(&path) else {
            continue;
        };
        let has = |part: &[u8]| bytes.windows(part.len()).any(|w| w == part);
        assert!(!has(PASSWORD.as_bytes()), "{}", path.display());
        // A piece of the key's primes.
        assert!(!has(&der[der.len() / 2..][..24]), "{}", path.display());
    }
}

#[test]
fn files_are_those_that_statements_may_name_and_none_is_replaced() {
    let mut stage = Stage::new();
    let allowed = stage.path("allowed");
    std::fs::create_dir(&allowed).unwrap();
    stage.directories = Some(vec![allowed.clone()]);
    let mut session = stage.session();
    master(&mut session);
    ok(&mut session, "CREATE CERTIFICATE c WITH SUBJECT = 's'");
    std::fs::write(stage.path("there"), "x").unwrap();
    for name in [
        "there",
        "missing",
        "allowed/../there",
        "/etc/passwd",
        "allowed/no/x",
        "NUL",
        "",
    ] {
        let to = format!("BACKUP CERTIFICATE c TO FILE = '{name}'");
        assert_eq!(fails(&mut session, &to), [15240], "{name}");
        let from = format!("CREATE CERTIFICATE x FROM FILE = '{name}'");
        assert_eq!(fails(&mut session, &from), [15208], "{name}");
        let from = format!(
            "RESTORE MASTER KEY FROM FILE = '{name}' DECRYPTION BY PASSWORD = 'x' ENCRYPTION BY PASSWORD = 'x'"
        );
        assert_eq!(fails(&mut session, &from), [15317], "{name}");
    }
    std::os::unix::fs::symlink(stage.path("elsewhere"), allowed.join("link")).unwrap();
    assert_eq!(
        fails(
            &mut session,
            "BACKUP CERTIFICATE c TO FILE = 'allowed/link'"
        ),
        [15240]
    );
    assert!(!stage.path("elsewhere").exists());
    // The first file goes away again if the second cannot be made.
    let both = format!(
        "BACKUP CERTIFICATE c TO FILE = 'allowed/c.cer' WITH PRIVATE KEY (FILE = 'there', ENCRYPTION BY PASSWORD = '{PASSWORD}')"
    );
    assert_eq!(fails(&mut session, &both), [15240]);
    let same = format!(
        "BACKUP CERTIFICATE c TO FILE = 'allowed/c.cer' WITH PRIVATE KEY (FILE = 'allowed/c.cer', ENCRYPTION BY PASSWORD = '{PASSWORD}')"
    );
    assert_eq!(fails(&mut session, &same), [15240]);
    assert!(!allowed.join("c.cer").exists());
    ok(
        &mut session,
        "BACKUP CERTIFICATE c TO FILE = 'allowed/c.cer'",
    );
}

/// Goal: sessions that change keys at the same time lose none of their changes, and the last state is one that is known.
#[test]
fn changes_of_several_sessions_are_all_kept() {
    let stage = Stage::new();
    master(&mut stage.session());
    let server = stage.server();
    std::thread::scope(|scope| {
        for n in 0..3 {
            let server = server.clone();
            scope.spawn(move || {
                let mut session = Session::new(server, common::login());
                for m in 0..2 {
                    ok(
                        &mut session,
                        &format!("CREATE CERTIFICATE c{n}{m} WITH SUBJECT = 's'"),
                    );
                    ok(&mut session, &format!("DROP CERTIFICATE c{n}{m}"));
                    ok(
                        &mut session,
                        &format!("CREATE CERTIFICATE d{n}{m} WITH SUBJECT = 's'"),
                    );
                }
            });
        }
    });
    let mut session = stage.session();
    assert_eq!(
        value(&mut session, "SELECT count(*) FROM sys.certificates"),
        "6"
    );
    ok(
        &mut session,
        &BACKUP.replace("CERTIFICATE = c", "CERTIFICATE = d00"),
    );
}

/// Goal: the page says rightly what a person can do who puts back an older copy of both the catalog and its service key.
#[test]
fn an_older_catalog_with_its_service_key_uses_the_older_certificates() {
    let stage = Stage::new();
    let mut session = stage.session();
    master(&mut session);
    ok(&mut session, "CREATE CERTIFICATE c WITH SUBJECT = 'first'");
    let thumbprint = "SELECT thumbprint FROM sys.certificates";
    let first = value(&mut session, thumbprint);
    let (catalog, key) = (
        stage.path("state/catalog.db"),
        stage.path("state/catalog.db.key"),
    );
    let db = rusqlite::Connection::open(&catalog).unwrap();
    let old = stage.path("old.db");
    db.execute("VACUUM INTO ?1", [old.to_str().unwrap()])
        .unwrap();
    drop(db);
    std::fs::copy(&key, stage.path("old.key")).unwrap();
    ok(
        &mut session,
        "DROP CERTIFICATE c; CREATE CERTIFICATE c WITH SUBJECT = 'second'",
    );
    assert_ne!(value(&mut session, thumbprint), first);
    drop(session);
    for more in ["-wal", "-shm"] {
        let _none = std::fs::remove_file(format!("{}{more}", catalog.display()));
    }
    std::fs::copy(&old, &catalog).unwrap();
    std::fs::copy(stage.path("old.key"), &key).unwrap();
    let mut session = stage.session();
    ok(&mut session, BACKUP);
    let header = rows(&run(&mut session, "RESTORE HEADERONLY FROM DISK = 'a.bak'"));
    assert_eq!(header[0][54], first);
}

/// Goal: the page says rightly that keys belong to no login: what one session made another one uses, takes along and drops.
#[test]
fn every_login_uses_backs_up_and_drops_the_certificates_of_another_one() {
    let stage = Stage::new();
    let server = stage.server();
    let of = |user: &str| {
        let login = longshore_tsql::Login {
            user: user.to_owned(),
            ..common::login()
        };
        Session::new(server.clone(), login)
    };
    let mut owner = of("ada");
    master(&mut owner);
    ok(&mut owner, "CREATE CERTIFICATE c WITH SUBJECT = 'of ada'");
    let mut other = of("eve");
    ok(&mut other, BACKUP);
    ok(&mut other, "RESTORE VERIFYONLY FROM DISK = 'a.bak'");
    ok(
        &mut other,
        "BACKUP CERTIFICATE c TO FILE = 'eve.cer' WITH PRIVATE KEY (FILE = 'eve.key', ENCRYPTION BY PASSWORD = 'Chosen-by-eve-1')",
    );
    let pass = ["pkcs8", "-in", "eve.key", "-passin", "pass:Chosen-by-eve-1"];
    let pem = openssl(stage.dir.path(), &pass);
    assert!(pem.starts_with(b"-----BEGIN PRIVATE KEY-----"));
    ok(&mut other, "DROP CERTIFICATE c; DROP MASTER KEY");
    assert_eq!(fails(&mut owner, BACKUP), [15151, 3013]);
}

#[test]
fn a_transaction_holds_no_change_of_keys() {
    let stage = Stage::new();
    let mut session = stage.session();
    master(&mut session);
    let begun = "BEGIN TRANSACTION; CREATE CERTIFICATE c WITH SUBJECT = 's'; ROLLBACK";
    assert_eq!(fails(&mut session, begun), [50000]);
    fill(&stage.path("shop.db"), 1);
    assert_eq!(
        fails(&mut session, "CREATE CERTIFICATE c WITH SUBJECT = ''"),
        [15212]
    );
    assert_eq!(
        fails(&mut session, "CREATE CERTIFICATE [##c] WITH SUBJECT = 's'"),
        [50000]
    );
    assert_eq!(
        fails(
            &mut session,
            "CREATE CERTIFICATE c WITH SUBJECT = 's', EXPIRY_DATE = 'soon'"
        ),
        [50000]
    );
    assert_eq!(fails(&mut session, "DROP CERTIFICATE c"), [15151]);
}
