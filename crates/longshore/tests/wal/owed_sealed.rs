//! Goal: what `wal owed --settle` brings from pg_wal is encrypted and signed as the options say, as a push would do it.
//! Method: a real server's first archive is away, and the copy loses what it got, so that pg_wal alone has the files.

use super::encrypted::{identity, sealed, signing};
use super::owed::{begun, owe, owed, rename};
use super::stage::*;

#[test]
fn files_that_pg_wal_still_has_are_encrypted_and_signed_as_asked() {
    let Some(shop) = begun() else { return };
    let server = &shop.server;
    let (id, to) = identity(server, "id");
    let (key, signer) = signing(server, "key");
    rename(server, "near", "away");
    owe(&shop, "main", 2);
    server.append_conf("archive_command = 'false'");
    server.psql("select pg_reload_conf()");
    wait_until("no push is made", server, || {
        server.psql("select pg_switch_wal()");
        server.log().contains("archive command was: false")
    });
    let settle = "wal owed --database main --settle";
    // A push leaves a process that copies; while it runs, nobody else does.
    wait_until("nothing else brings WAL", server, || {
        !text(&shop.run(settle)).contains("wait until it has ended")
    });
    let names = owed(server, "main");
    for name in &names {
        std::fs::remove_file(stored(&shop.far_archive(), name)).unwrap();
    }
    rename(server, "away", "near");
    let strict = format!("--identity {id} --require-encryption");
    let refused = text(&shop.done(&format!("{settle} {strict}"), 2));
    assert!(refused.contains("nobody is named"), "{refused}");
    assert_eq!(owed(server, "main"), names);
    let unsigned = format!("{settle} --encrypt-to {to} {strict} --require-signature");
    let refused = text(&shop.done(&unsigned, 2));
    assert!(refused.contains("sign"), "{refused}");
    assert_eq!(owed(server, "main"), names);
    let signed = format!("--signer {signer} --require-signature");
    let line = format!("{settle} --encrypt-to {to} --sign {key} {strict} {signed}");
    shop.done(&line, 0);
    assert_eq!(owed(server, "main"), [""; 0]);
    for name in &names {
        assert!(sealed(&shop.near_archive(), name).exists(), "{name}");
    }
    let got = format!("wal get {} pg_wal/R --database main", names[0]);
    shop.done(&format!("{got} {strict} {signed}"), 0);
    let dir = server.data_dir().join("pg_wal");
    let read = |name: &str| std::fs::read(dir.join(name)).unwrap();
    assert!(read("R") == read(&names[0]));
}
