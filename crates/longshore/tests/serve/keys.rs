//! Goal: a client of the server encrypts for a certificate and restores by it; its passwords are in nothing that others see.
//! Method: bare batches over the protocol; what the server printed, logged and stored is searched.

use crate::raw::{Raw, says};
use crate::stage::Stage;

const PASSWORD: &str = "Verysecret-1";

#[test]
fn a_client_encrypts_and_restores_by_a_certificate() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut client = Raw::login(server.port);
    let mistake = format!("CREATE MASTER KEY ENCRYPTION BY PASSWROD = '{PASSWORD}'");
    assert!(!says(&client.batch(&mistake), PASSWORD));
    let create = format!("CREATE MASTER KEY ENCRYPTION BY PASSWORD = '{PASSWORD}'");
    client.batch(&create);
    assert!(says(
        &client.batch(&create),
        "There is already a master key"
    ));
    client.batch("CREATE CERTIFICATE c WITH SUBJECT = 's'");
    let backup = "BACKUP DATABASE shop TO DISK = 'k.bak' WITH ENCRYPTION (ALGORITHM = AES_256, SERVER CERTIFICATE = c)";
    let answer = client.batch(backup);
    assert!(says(&answer, "has not been backed up"));
    assert!(says(&answer, "BACKUP DATABASE successfully processed"));
    let outside = "BACKUP CERTIFICATE c TO FILE = '/outside.cer'";
    assert!(says(
        &client.batch(outside),
        "Cannot write into file '/outside.cer'"
    ));
    drop(client);
    drop(server);
    // A restarted server, and another session.
    let server = stage.server(&[]);
    let mut other = Raw::login(server.port);
    let verify = "RESTORE VERIFYONLY FROM DISK = 'k.bak'";
    assert!(says(&other.batch(verify), "is valid"));
    other.batch("ALTER MASTER KEY DROP ENCRYPTION BY SERVICE MASTER KEY");
    assert!(says(
        &other.batch(verify),
        "open the master key in the session"
    ));
    other.batch(&format!(
        "OPEN MASTER KEY DECRYPTION BY PASSWORD = '{PASSWORD}'"
    ));
    assert!(says(&other.batch(verify), "is valid"));
    // It is open for this session alone.
    let mut third = Raw::login(server.port);
    assert!(says(
        &third.batch(verify),
        "open the master key in the session"
    ));
    let log = third.batch("EXEC sp_readerrorlog");
    assert!(!says(&log, PASSWORD));
    for entry in std::fs::read_dir(stage.path("state")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(bytes) = std::fs::read(&path) else {
            continue;
        };
        let has = bytes
            .windows(PASSWORD.len())
            .any(|w| w == PASSWORD.as_bytes());
        assert!(!has, "{}", path.display());
    }
}
