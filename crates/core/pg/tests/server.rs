//! Goal: this crate's facts about PostgreSQL hold for every installed major version: control files, pages, passwords,
//! and certificates.
//! Method: real servers; their own functions and answers are the oracle. Certificates are made by openssl.
//! Not covered: versions that are not installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use longshore_io::Host;
use longshore_kit::{Options as ServerOptions, Server, Stop, installations};
use longshore_pg::client::{Connection, Error, Mode, Options};
use longshore_pg::{Control, Page, RelationFile};

fn connect(text: &str) -> Result<Connection, Error> {
    let options = Options::parse(text, &|_| None, &|| Ok("postgres".to_owned()))?;
    Connection::open(&Host::default(), &options, Mode::Sql)
}

/// The server's own functions read the same file.
#[test]
fn a_control_file_says_what_the_server_says() {
    for installation in installations() {
        for wal_segment_mib in [1, 64] {
            let server = Server::create(
                &installation,
                ServerOptions {
                    wal_segment_mib,
                    ..ServerOptions::default()
                },
            );
            server.start();
            let expected = server.psql(
                "select system_identifier, pg_control_version, catalog_version_no, checkpoint_lsn, redo_lsn,
                        timeline_id, data_page_checksum_version, database_block_size, blocks_per_segment,
                        bytes_per_wal_segment, replace(next_xid, ':', ',')
                 from pg_control_system(), pg_control_checkpoint(), pg_control_init()",
            );
            let bytes = fs::read(server.data_dir().join("global/pg_control")).unwrap();
            let c = Control::parse(&bytes).unwrap();
            let found = format!(
                "{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{},{}",
                c.system,
                c.version,
                c.catalog_version,
                c.checkpoint,
                c.redo,
                c.timeline,
                c.data_checksum_version,
                c.page_bytes,
                c.relation_segment_pages,
                c.wal_segment.bytes(),
                c.next_xid >> 32,
                c.next_xid as u32
            );
            assert_eq!(found, expected, "PostgreSQL {}", installation.major);
        }
    }
}

/// Every page that a server has written is intact as the right block of its relation, and as no other block.
#[test]
fn pages_of_real_clusters_are_intact_and_only_in_their_place() {
    for installation in installations() {
        let server = Server::create(&installation, ServerOptions::default());
        server.start();
        server.psql(
            "create table t as select g, md5(g::text) m from generate_series(1, 30000) g;
             create index on t (m); vacuum t; checkpoint",
        );
        server.stop(Stop::Fast);
        let mut pages = 0;
        for dir in databases(server.data_dir()) {
            for file in fs::read_dir(dir).unwrap() {
                let file = file.unwrap();
                let name = file.file_name();
                if RelationFile::parse(name.to_str().unwrap()).is_none() {
                    continue;
                }
                let bytes = fs::read(file.path()).unwrap();
                for (block, bytes) in bytes.chunks_exact(8192).enumerate() {
                    let page = Page::new(bytes).unwrap();
                    if page.is_new() {
                        assert!(page.is_zero());
                        continue;
                    }
                    let block = block as u32;
                    assert!(page.is_intact(block), "{:?} {block}", file.path());
                    assert!(!page.is_intact(block + 1) && !page.is_intact(block + 131_072));
                    pages += 1;
                }
            }
        }
        assert!(pages > 1000, "only {pages} pages");
    }
}

fn databases(data: &Path) -> Vec<std::path::PathBuf> {
    let base = fs::read_dir(data.join("base")).unwrap();
    base.map(|entry| entry.unwrap().path())
        .chain([data.join("global")])
        .collect()
}

/// Both kinds of password authentication work; the server refuses a wrong password, this side refuses a missing one.
#[test]
fn passwords_open_the_door_and_wrong_ones_do_not() {
    for installation in installations() {
        let server = Server::create(
            &installation,
            ServerOptions {
                tcp: true,
                ..ServerOptions::default()
            },
        );
        server.start();
        server.psql(
            "set password_encryption = 'md5'; create role old login password 'päss word';
             set password_encryption = 'scram-sha-256'; create role new login password 'päss word'",
        );
        server.stop(Stop::Fast);
        let hba = "local all all trust\nhost all old 127.0.0.1/32 md5\nhost all new 127.0.0.1/32 scram-sha-256\n";
        fs::write(server.data_dir().join("pg_hba.conf"), hba).unwrap();
        server.start();
        let url = |user: &str, password: &str| {
            format!(
                "postgres://{user}{password}@127.0.0.1:{}/postgres?sslmode=disable",
                server.port()
            )
        };
        for user in ["old", "new"] {
            let mut session = connect(&url(user, ":p%C3%A4ss%20word")).unwrap();
            let rows = session.query("select current_user").unwrap();
            assert_eq!(rows.text(0, 0).unwrap(), user);
            let refused = connect(&url(user, ":wrong")).err().unwrap();
            assert_eq!(refused.sqlstate(), Some("28P01"), "{refused}");
            assert!(!format!("{refused:?}").contains("wrong"));
            let missing = connect(&url(user, "")).err().unwrap();
            assert!(matches!(missing, Error::Authentication { .. }), "{missing}");
        }
    }
}

fn openssl(dir: &Path, args: &[&str]) {
    let output = Command::new("openssl")
        .args(args)
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
}

/// A server's identity is verified as far as `sslmode` requires: not at all, by its root, by root and name.
#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn a_server_proves_as_much_as_is_asked_for() {
    let has_ssl = |server: &Server| {
        server
            .try_psql("postgres", "alter system set ssl = on")
            .is_ok()
    };
    let mut tried = 0;
    for installation in installations() {
        let server = Server::create(
            &installation,
            ServerOptions {
                tcp: true,
                ..ServerOptions::default()
            },
        );
        let data = server.data_dir();
        let days = ["-days", "2", "-nodes", "-newkey", "rsa:2048"];
        let request = |subject: &'static str, name: &'static str| {
            let mut args = vec!["req", "-x509", "-subj", subject];
            args.extend(days);
            args.extend(["-keyout", name]);
            args
        };
        let mut root = request("/CN=root", "root.key");
        root.extend(["-out", "root.crt"]);
        openssl(data, &root);
        let mut other = request("/CN=other root", "other.key");
        other.extend(["-out", "other.crt"]);
        openssl(data, &other);
        openssl(
            data,
            &[
                "req",
                "-new",
                "-nodes",
                "-newkey",
                "rsa:2048",
                "-subj",
                "/CN=localhost",
                "-keyout",
                "server.key",
                "-out",
                "server.csr",
            ],
        );
        fs::write(data.join("names"), "subjectAltName = DNS:localhost\n").unwrap();
        openssl(
            data,
            &[
                "x509",
                "-req",
                "-in",
                "server.csr",
                "-CA",
                "root.crt",
                "-CAkey",
                "root.key",
                "-CAcreateserial",
                "-days",
                "2",
                "-extfile",
                "names",
                "-out",
                "server.crt",
            ],
        );
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(data.join("server.key"), mode).unwrap();
        server.user().own(&data.join("server.key"));
        server.user().own(&data.join("server.crt"));
        server.start();
        if !has_ssl(&server) {
            eprintln!(
                "PostgreSQL {} here is built without TLS",
                installation.major
            );
            continue;
        }
        server.psql("select pg_reload_conf()");
        server.wait_for("show ssl", "on");
        tried += 1;
        let try_with = |host: &str, more: &str| {
            let root = data.display();
            let more = more.replace("DIR", &root.to_string());
            connect(&format!(
                "host={host} hostaddr=127.0.0.1 port={} user=postgres dbname=postgres {more}",
                server.port()
            ))
        };
        let encrypted = |mut session: Connection| {
            let rows = session.query("select ssl from pg_stat_ssl where pid = pg_backend_pid()");
            rows.unwrap().is_true(0, 0).unwrap()
        };
        for (host, more, is_encrypted) in [
            ("localhost", "sslmode=disable", false),
            ("localhost", "sslmode=prefer", true),
            ("localhost", "sslmode=require", true),
            (
                "localhost",
                "sslmode=verify-ca sslrootcert=DIR/root.crt",
                true,
            ),
            (
                "localhost",
                "sslmode=verify-full sslrootcert=DIR/root.crt",
                true,
            ),
            (
                "elsewhere",
                "sslmode=verify-ca sslrootcert=DIR/root.crt",
                true,
            ),
            // A certificate that is itself trusted.
            (
                "localhost",
                "sslmode=verify-full sslrootcert=DIR/server.crt",
                true,
            ),
        ] {
            let session = try_with(host, more).unwrap_or_else(|e| panic!("{host} {more}: {e}"));
            assert_eq!(encrypted(session), is_encrypted, "{host} {more}");
        }
        for (host, more) in [
            ("elsewhere", "sslmode=verify-full sslrootcert=DIR/root.crt"),
            (
                "elsewhere",
                "sslmode=verify-full sslrootcert=DIR/server.crt",
            ),
            ("localhost", "sslmode=verify-ca sslrootcert=DIR/other.crt"),
            ("localhost", "sslmode=require sslrootcert=DIR/other.crt"),
        ] {
            let refused = try_with(host, more).err();
            assert!(
                matches!(refused, Some(Error::Tls { .. })),
                "{host} {more}: {refused:?}"
            );
        }
        let missing = try_with("localhost", "sslmode=verify-ca").err();
        assert!(matches!(missing, Some(Error::File { .. })), "{missing:?}");
    }
    assert!(
        tried > 0 || installations().is_empty(),
        "no server here speaks TLS"
    );
}
