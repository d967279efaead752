//! Goal: what is brought from pg_wal is encrypted and signed as the options say, as a push would do it, by `wal owed --settle` and
//! by the process that a push starts; and the options say which files of the archive count.
//! Method: a real server's first archive is away, and the copy loses what it got, so that pg_wal alone has the files.

use std::path::Path;

use super::copies::Shop;
use super::encrypted::{identity, sealed, signing};
use super::owed::{begun, owe, owed, paid, rename};
use super::stage::*;

const SETTLE: &str = "wal owed --database main --settle";

/// Has two files owed, which pg_wal alone has, while no push is made; the first archive is there again. Returns their names.
fn in_pg_wal_alone(shop: &Shop) -> Vec<String> {
    let server = &shop.server;
    rename(server, "near", "away");
    owe(shop, "main", 2);
    set_command(shop, "false");
    wait_until("no push is made", server, || {
        server.psql("select pg_switch_wal()");
        server.log().contains("archive command was: false")
    });
    // A push leaves a process that copies; while it runs, nobody else does.
    wait_until("nothing else brings WAL", server, || {
        !text(&shop.run(SETTLE)).contains("wait until it has ended")
    });
    let names = owed(server, "main");
    for name in &names {
        let plain = stored(&shop.far_archive(), name);
        let path = match plain.exists() {
            true => plain,
            false => sealed(&shop.far_archive(), name),
        };
        std::fs::remove_file(path).unwrap();
    }
    rename(server, "away", "near");
    names
}

fn set_command(shop: &Shop, command: &str) {
    let line = format!("archive_command = '{command}'");
    shop.server.append_conf(&line);
    shop.server.psql("select pg_reload_conf()");
}

#[test]
fn files_that_pg_wal_still_has_are_encrypted_and_signed_as_asked() {
    let Some(shop) = begun() else { return };
    let server = &shop.server;
    let (id, to) = identity(server, "id");
    let (key, signer) = signing(server, "key");
    let names = in_pg_wal_alone(&shop);
    let strict = format!("--identity {id} --require-encryption");
    let refused = text(&shop.done(&format!("{SETTLE} {strict}"), 2));
    assert!(refused.contains("nobody is named"), "{refused}");
    assert_eq!(owed(server, "main"), names);
    let unsigned = format!("{SETTLE} --encrypt-to {to} {strict} --require-signature");
    let refused = text(&shop.done(&unsigned, 2));
    assert!(refused.contains("sign"), "{refused}");
    assert_eq!(owed(server, "main"), names);
    let signed = format!("--signer {signer} --require-signature");
    let line = format!("{SETTLE} --encrypt-to {to} --sign {key} {strict} {signed}");
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

/// Goal: the process that a push starts signs what it brings from pg_wal with the push's own options.
#[test]
fn the_process_that_only_follows_signs_what_it_brings_from_pg_wal() {
    let Some(shop) = begun() else { return };
    let server = &shop.server;
    let (id, to) = identity(server, "id");
    let (key, signer) = signing(server, "key");
    let push = format!(
        "{SHELL} {BINARY} --config {} wal push %p --database main --encrypt-to {to} --sign {key}",
        shop.config
    );
    set_command(&shop, &push);
    let names = in_pg_wal_alone(&shop);
    set_command(&shop, &push);
    paid(&shop, "main");
    let strict = format!("--identity {id} --require-encryption --signer {signer}");
    for name in &names {
        assert!(sealed(&shop.near_archive(), name).exists(), "{name}");
        let got = format!("wal get {name} pg_wal/R --database main");
        shop.done(&format!("{got} {strict} --require-signature"), 0);
    }
}

/// Goal: a file that the archive has already counts only for those who can read it, and where signatures are asked for, only a
/// signed one.
/// Method: somebody pushed both files there from elsewhere, so that they have no tags, and did not sign the second.
#[test]
fn a_file_of_the_archive_counts_as_the_options_say() {
    let Some(shop) = begun() else { return };
    let server = &shop.server;
    let (id, to) = identity(server, "id");
    let (key, signer) = signing(server, "key");
    let names = &in_pg_wal_alone(&shop)[..2];
    let (first, second) = (&names[0], &names[1]);
    let elsewhere = beside(server, "pg_wal");
    std::fs::create_dir(&elsewhere).unwrap();
    server.user().own(Path::new(&elsewhere));
    for (name, sign) in [(first, format!(" --sign {key}")), (second, String::new())] {
        let file = format!("{elsewhere}/{name}");
        std::fs::copy(server.data_dir().join("pg_wal").join(name), &file).unwrap();
        server.user().own(Path::new(&file));
        let archive = shop.near_archive();
        let push = format!("wal push {file} --archive {archive} --encrypt-to {to}{sign}");
        shop.done(&format!("{push} --identity {id}"), 0);
    }
    let left = |options: &str, code: i32, words: &str| {
        let said = text(&shop.done(&format!("{SETTLE} {options}"), code));
        assert!(said.contains(words), "{options}: {said}");
        owed(server, "main")
            .into_iter()
            .filter(|name| names.contains(name))
            .collect::<Vec<_>>()
    };
    let own = format!("--encrypt-to {to} --sign {key} --signer {signer}");
    assert_eq!(left(&own, 5, "name the identity"), names);
    let strict = format!("{own} --identity {id} --require-signature");
    assert_eq!(
        left(&strict, 5, "is not taken for a trusted signer's"),
        std::slice::from_ref(second)
    );
    assert_eq!(
        left(&format!("{own} --identity {id}"), 0, "Nothing is owed"),
        [""; 0]
    );
}
