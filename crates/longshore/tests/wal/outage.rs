//! Goal: during an outage a push waits for no archive that is known to be away, and each archive is asked again as soon as it is
//! back: a copy that failed, and the database's own archive while older files are still owed to it.
//! Method: a real server archives to directories that are taken away and brought back; its log tells what each push did.

use super::kept::with_two_copies;
use super::owed::{owe, owed, paid, rename, switch};
use super::stage::*;

/// How often the server's log has these words.
fn told(server: &longshore_kit::Server, words: &str) -> usize {
    server.log().matches(words).count()
}

#[test]
fn a_copy_that_failed_is_left_out_until_it_is_well_again() {
    let Some(shop) = with_two_copies("copy_behind = \"1G\"\n") else {
        return;
    };
    let server = &shop.server;
    rename(server, "third", "third-away");
    rename(server, "near", "away");
    owe(&shop, "main", 1);
    wait_until("its failure is noted", server, || {
        switch(server);
        told(server, "target third may lack") > 0
    });
    // None, where the process that brings WAL was first to find it away.
    let asked = told(server, "the archive of target third did not take");
    let before = owed(server, "main").len();
    owe(&shop, "main", before + 2);
    let again = told(server, "the archive of target third did not take");
    assert_eq!(again, asked, "no push asks it again");
    rename(server, "third-away", "third");
    wait_until("pushes go there again", server, || {
        switch(server);
        told(
            server,
            "of target far and third and not in that of target near",
        ) > 0
    });
    // It has also what it missed.
    let names = owed(server, "main");
    let third = beside(server, "third/main/wal");
    wait_until("it has all", server, || {
        let there = segments(&third);
        switch(server);
        names.iter().all(|name| there.contains(name))
    });
    rename(server, "away", "near");
    paid(&shop, "main");
}

#[test]
fn new_files_go_to_an_archive_that_answered_while_older_ones_are_owed() {
    let Some(shop) = with_two_copies("") else {
        return;
    };
    let server = &shop.server;
    rename(server, "near", "away");
    owe(&shop, "main", 3);
    // The only copy that has one of them is away, so it waits.
    let first = owed(server, "main")[0].clone();
    wait_until("both copies have it", server, || {
        switch(server);
        segments(&beside(server, "third/main/wal")).contains(&first)
    });
    std::fs::remove_file(stored(&shop.far_archive(), &first)).unwrap();
    std::fs::remove_file(server.data_dir().join("pg_wal").join(&first)).unwrap();
    rename(server, "third", "third-away");
    rename(server, "away", "near");
    let list = || std::fs::read_to_string(server.data_dir().join("pg_wal/longshore/owed")).unwrap();
    wait_until("all others are paid", server, || {
        switch(server);
        std::thread::sleep(std::time::Duration::from_millis(300));
        owed(server, "main") == [first.clone()] && list().contains("there\tmain\t")
    });
    let instead = "and not in that of target near";
    let before = told(server, instead);
    let newest = segments(&shop.near_archive()).pop().unwrap();
    wait_until("new files come", server, || {
        switch(server);
        segments(&shop.near_archive())
            .iter()
            .filter(|n| **n > newest)
            .count()
            >= 3
    });
    assert_eq!(
        (told(server, instead), owed(server, "main")),
        (before, vec![first.clone()])
    );
    // It goes away once more, and the copies take over.
    rename(server, "near", "away");
    owe(&shop, "main", 3);
    assert!(!list().contains("there\tmain"));
    rename(server, "away", "near");
    rename(server, "third-away", "third");
    paid(&shop, "main");
    assert!(segments(&shop.near_archive()).contains(&first));
    shop.done("wal list --database main --verify", 0);
}
