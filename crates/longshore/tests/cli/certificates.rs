//! Goal: a set that a statement encrypted for a certificate opens with the private key in a file, and with nothing else.
//! Method: `longshore sql` makes keys and backups; openssl decrypts the file of the private key.
//! Not covered: the statements themselves (`sql/tsql/tests/keys.rs`).

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::repository::configured;
use crate::stage::Stage;

const PASSWORD: &str = "Verysecret-1";

/// Runs statements from standard input's like: a file, since arguments are seen by others.
fn sql(stage: &Stage, statements: &str, code: i32) -> String {
    std::fs::write(stage.path("script.sql"), statements).unwrap();
    let ran = stage.run(&["sql", "-b", "-e", "-i", "script.sql"]);
    let said = format!("{}{}", ran.out, ran.err);
    assert_eq!(ran.code, code, "{said}");
    assert!(!said.contains(PASSWORD), "{said}");
    said
}

#[test]
fn a_private_key_in_a_file_opens_what_a_statement_encrypted() {
    let stage = configured();
    let made = format!(
        "CREATE MASTER KEY ENCRYPTION BY PASSWORD = '{PASSWORD}'
GO
CREATE CERTIFICATE c WITH SUBJECT = 's'
GO
BACKUP CERTIFICATE c TO FILE = 'c.cer' WITH PRIVATE KEY (FILE = 'c.key', ENCRYPTION BY PASSWORD = '{PASSWORD}')
GO
BACKUP DATABASE sales TO DISK = 'a.bak' WITH ENCRYPTION (ALGORITHM = AES_256, SERVER CERTIFICATE = c), COMPRESSION"
    );
    let said = sql(&stage, &made, 0);
    assert!(
        said.contains("may have a secret in it is not shown"),
        "{said}"
    );
    // Each command is a process of its own.
    sql(&stage, "RESTORE VERIFYONLY FROM DISK = 'a.bak'", 0);
    let closed = stage.line("restore a.bak --to out").exits(4);
    closed.says("a certificate with the thumbprint 0x");
    let encrypted = stage
        .line("restore a.bak --to out --identity c.key")
        .exits(2);
    encrypted.says("openssl pkcs8 -in");
    let pass = format!("pass:{PASSWORD}");
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl")
            .args(arguments)
            .current_dir(stage.path(""))
            .output();
        assert!(output.unwrap().status.success(), "{arguments:?}");
    };
    openssl(&["pkcs8", "-in", "c.key", "-passin", &pass, "-out", "plain"]);
    let mode = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(stage.path("plain"), mode).unwrap();
    };
    mode(0o644);
    stage
        .line("restore a.bak --to out --identity plain")
        .exits(2)
        .says("others may read");
    mode(0o600);
    stage
        .line("restore a.bak --to out --identity plain")
        .exits(0);
    let read = |name: &str| std::fs::read(stage.path(name)).unwrap();
    assert_eq!(read("app.db"), read("out/app.db"));
    stage
        .line("key recipient plain")
        .exits(2)
        .says("no recipient");
    openssl(&[
        "genpkey",
        "-algorithm",
        "RSA",
        "-pkeyopt",
        "rsa_keygen_bits:2048",
        "-out",
        "plain",
    ]);
    stage
        .line("restore a.bak --to other --identity plain")
        .exits(4);
}

/// Goal: whoever the configuration names reads a statement's backup, too.
#[test]
fn recipients_of_the_configuration_stay_recipients() {
    let stage = configured();
    let to = stage.line("key new id").exits(0).out;
    let file = stage.path("no-config/longshore/longshore.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let more = format!("[encryption]\nrecipients = [\"{}\"]\n", to.trim());
    std::fs::write(&file, format!("{text}{more}")).unwrap();
    let made = format!(
        "CREATE MASTER KEY ENCRYPTION BY PASSWORD = '{PASSWORD}'; CREATE CERTIFICATE c WITH SUBJECT = 's';
BACKUP DATABASE sales TO DISK = 'a.bak' WITH ENCRYPTION (ALGORITHM = AES_256, SERVER CERTIFICATE = c)"
    );
    let said = sql(&stage, &made, 0);
    assert!(said.contains("quantum computer"), "{said}");
    stage.line("verify a.bak --identity id").exits(0);
    sql(&stage, "RESTORE VERIFYONLY FROM DISK = 'a.bak'", 0);
}
