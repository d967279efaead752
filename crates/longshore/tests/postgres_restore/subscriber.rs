//! A restored subscriber and its original's replication slots.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use longshore_kit::{PATIENCE, Stop, representatives};

use crate::common::{answer, text};
use crate::stage::{Stage, end, succeed};

/// Witness: a listener in the publisher's place.
#[test]
fn a_restored_subscriber_is_reported_and_kept_from_its_publisher_on_request() {
    for installation in representatives() {
        let stage = Stage::new(&installation, &[]);
        let publisher = TcpListener::bind("127.0.0.1:0").unwrap();
        publisher.set_nonblocking(true).unwrap();
        let port = publisher.local_addr().unwrap().port();
        let called = || std::iter::from_fn(|| publisher.accept().ok()).count() > 0;
        for (name, enabled) in [("orders", true), ("gone", true), ("idle", false)] {
            stage.server.psql(&format!(
                "create subscription {name} connection 'host=127.0.0.1 port={port} dbname=x' publication p \
                 with (connect = false, slot_name = '{name}')"
            ));
            if enabled {
                stage
                    .server
                    .psql(&format!("alter subscription {name} enable"));
            }
        }
        stage.server.psql("alter subscription gone disable");
        stage.server.psql("vacuum pg_subscription");
        stage.server.psql("checkpoint");
        let media = stage.back_up("full", &[]);
        stage.server.stop(Stop::Immediate);

        let (data, copy) = (stage.path("copy"), stage.path("quiet"));
        let output = end(stage.restore(&media, &data).arg("--json"), 5);
        assert_eq!(
            answer(&output)["subscriptions"],
            serde_json::json!(["orders"])
        );
        let said = text(&output.stderr) + &text(&output.stdout);
        for part in ["(orders)", "--no-subscriptions", "slots at the publishers"] {
            assert!(
                said.contains(part),
                "{}: {part}: {said}",
                installation.major
            );
        }
        let output = succeed(
            stage
                .restore(&media, &copy)
                .args(["--no-subscriptions", "--json"]),
        );
        let said = text(&output.stderr) + &text(&output.stdout);
        assert!(!said.contains("slots at the publishers"), "{said}");

        let _of_the_original = called();
        let quiet = stage.adopt(&copy);
        quiet.start();
        assert_eq!(quiet.psql("show max_logical_replication_workers"), "0");
        std::thread::sleep(Duration::from_secs(3));
        assert!(
            !called(),
            "{}: the copy called its publisher",
            installation.major
        );
        quiet.stop(Stop::Fast);

        // The call that the option prevents.
        let open = stage.adopt(&data);
        open.start();
        let begin = Instant::now();
        while !called() {
            assert!(
                begin.elapsed() < PATIENCE,
                "{}: nobody called",
                installation.major
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        open.stop(Stop::Immediate);
    }
}
