//! Goal: during an outage a push waits for no archive that is known to be away, and each archive is asked again as soon as it is
//! back.
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
