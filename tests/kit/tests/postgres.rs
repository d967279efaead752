//! Every major found runs here: start, stop, kill, tools.

use longshore_kit::{Installation, Options, Server, Stop, installations};

fn begins_as_documented(installation: &Installation) {
    let conf = [("wal_level", "logical"), ("cluster_name", "it's mine")];
    let server = Server::create(
        installation,
        Options {
            conf: &conf,
            wal_segment_mib: 1,
            ..Options::default()
        },
    );
    server.start();
    let major: u32 = server.psql("show server_version_num").parse().unwrap();
    assert_eq!(major / 10_000, installation.major);
    assert_eq!(server.psql("show cluster_name"), "it's mine");
    assert_eq!(server.psql("show wal_segment_size"), "1MB");
    assert_eq!(server.psql("show data_checksums"), "on");
    assert_ne!(server.psql("select pg_backend_pid()"), "0");

    server.psql("create table t as select generate_series(1, 1000) i; checkpoint");
    server.kill9();
    server.start();
    assert_eq!(server.psql("select count(*) from t"), "1000");
    let checked = server
        .command("pg_amcheck")
        .arg("--install-missing")
        .output();
    let checked = checked.unwrap();
    assert!(
        checked.status.success(),
        "{}{}",
        String::from_utf8_lossy(&checked.stdout),
        String::from_utf8_lossy(&checked.stderr)
    );
    server.stop(Stop::Fast);
    let mut checksums = server.command("pg_checksums");
    let checked = checksums.arg("-D").arg(server.data_dir()).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn every_major_that_is_there_runs() {
    for installation in installations() {
        begins_as_documented(&installation);
    }
}

#[test]
fn a_server_that_cannot_start_shows_why() {
    for installation in installations().iter().take(1) {
        let server = Server::create(installation, Options::default());
        server.append_conf("shared_buffers = 'much'");
        let reason = server.try_start().unwrap_err();
        assert!(reason.contains("shared_buffers"), "{reason}");
    }
}

#[test]
fn a_server_is_gone_when_it_is_dropped() {
    for installation in installations().iter().take(1) {
        let server = Server::create(
            installation,
            Options {
                tcp: true,
                ..Options::default()
            },
        );
        server.start();
        let pid = server.pid().unwrap();
        let dir = server.socket_dir().to_owned();
        std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        drop(server);
        assert!(rustix::process::test_kill_process(pid).is_err());
        assert!(!dir.exists());
    }
}

/// Clusters are copies of one; what tells clusters apart must still tell these apart.
#[test]
fn clusters_of_one_shape_are_different_clusters() {
    for installation in installations() {
        let created = || Server::create(&installation, Options::default());
        let identifier = |server: &Server| {
            server.start();
            server.psql("create table t (i int); checkpoint");
            // The identifier of the WAL is compared with that of the control file at every start.
            server.kill9();
            server.start();
            server.psql("select system_identifier from pg_control_system()")
        };
        let [one, other] = [created(), created()].map(|server| identifier(&server));
        assert_ne!(one, other, "PostgreSQL {}", installation.major);
    }
}
