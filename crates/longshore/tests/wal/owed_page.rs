//! Goal: the numbers of what an archive is owed are the same for Prometheus over HTTP as by the command; a list that cannot be
//! read has no number.
//! Method: a real server's first archive is away; the list is changed by hand while nothing is pushed.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::owed::{begun, owe, owed, rename};
use super::served::Server as Page;
use super::stage::*;

/// The answer to `GET /metrics`.
pub(super) fn metrics(port: u16) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_page_has_the_numbers_of_what_is_owed() {
    let Some(shop) = begun() else { return };
    let server = &shop.server;
    rename(server, "near", "away");
    owe(&shop, "main", 2);
    server.append_conf("archive_command = 'false'");
    server.psql("select pg_reload_conf()");
    wait_until("no push is made", server, || {
        server.psql("select pg_switch_wal()");
        server.log().contains("archive command was: false")
    });
    wait_until("nothing else brings WAL", server, || {
        !text(&shop.run("wal owed --database main --settle")).contains("wait until it has ended")
    });
    let args = [
        "--catalog",
        "none",
        "--config",
        &shop.config,
        "serve",
        "--http",
        "127.0.0.1:0",
        "--refresh",
        "1",
    ];
    let page = Page::start_page(&mut longshore(server, &args));
    let line =
        |name: &str, count: usize| format!("longshore_wal_{name}{{database=\"main\"}} {count}\n");
    let shows = |lines: &[String]| {
        wait_until("the page has the numbers", server, || {
            let told = metrics(page.port);
            lines.iter().all(|line| told.contains(line))
        });
    };
    let names = owed(server, "main");
    let count = names.len();
    shows(&[
        line("owed_files", count),
        line("lost_files", 0),
        line("owed_unreadable", 0),
    ]);
    let list = server.data_dir().join("pg_wal/longshore/owed");
    let before = std::fs::read_to_string(&list).unwrap();
    std::fs::write(&list, format!("{before}lost\tmain\t{}\n", names[0])).unwrap();
    shows(&[
        line("owed_files", count),
        line("lost_files", 1),
        line("owed_unreadable", 0),
    ]);
    std::fs::write(&list, "a line of a later version\n").unwrap();
    shows(&[line("owed_unreadable", 1)]);
    let told = metrics(page.port);
    assert!(
        !told.contains("longshore_wal_owed_files") && !told.contains("longshore_wal_lost_files"),
        "{told}"
    );
}
