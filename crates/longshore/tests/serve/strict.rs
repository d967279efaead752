//! Goal: TDS 8.0 (`encrypt=strict`) is spoken inside of TLS that both sides call `tds/8.0`, and nothing of it outside.
//! Method: drivers that know it; hostile clients by rustls and by bare bytes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::client::Client;
use crate::raw::{LOGIN, PRELOGIN, Raw, login7};
use crate::stage::{PASSWORD, Stage, USER};

#[test]
fn drivers_that_ask_for_strict_encryption_get_it() {
    let clients = [
        ("tedious", Client::tedious()),
        ("go", Client::go()),
        ("jdbc", Client::jdbc()),
    ];
    let stage = Stage::new();
    let server = stage.server(&[]);
    // go-mssqldb reads a certificate by its ending.
    let certificate = stage.path("certificate.pem");
    std::fs::copy(stage.path("state/serve.crt"), &certificate).unwrap();
    let env = [
        ("TDS_ENCRYPT", "strict"),
        ("TDS_CERTIFICATE", certificate.to_str().unwrap()),
        ("NODE_EXTRA_CA_CERTS", certificate.to_str().unwrap()),
    ];
    for (name, client) in clients {
        let Some(client) = client else {
            continue;
        };
        let lines = client.run(&server, &env, r#"["SELECT 7 AS seven"]"#);
        let row = serde_json::json!({"row": ["7"]});
        assert!(lines.contains(&row), "{name}: {lines:#?}");
    }
}

/// A client of TLS that trusts the server and names these protocols.
fn named(stage: &Stage, protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let pem = std::fs::read(stage.path("state/serve.crt")).unwrap();
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(&pem).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let mut config = config
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
    Arc::new(config)
}

fn socket(port: u16) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let limit = Some(Duration::from_secs(60));
    socket.set_read_timeout(limit).unwrap();
    socket
}

/// One packet that is a whole message.
fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u16 + 8).to_be_bytes();
    [&[kind, 1, len[0], len[1], 0, 0, 1, 0], body].concat()
}

/// PRELOGIN with this wish about encryption.
fn wish(encryption: u8) -> Vec<u8> {
    packet(PRELOGIN, &[1, 0, 6, 0, 1, 0xff, encryption])
}

/// The first bytes of the answer, up to 512; empty: the server has closed the connection.
fn answer(mut from: impl Read) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    match from.read(&mut bytes) {
        Ok(len) => {
            bytes.truncate(len);
            bytes
        }
        Err(error) => {
            let hangs = error.kind() == std::io::ErrorKind::WouldBlock;
            assert!(!hangs, "the server hangs");
            Vec::new()
        }
    }
}

fn over_tls(port: u16, config: Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(config, name).unwrap();
    StreamOwned::new(client, socket(port))
}

#[test]
fn tls_that_does_not_name_the_protocol_is_not_answered() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let mut good = over_tls(server.port, named(&stage, &[b"tds/8.0"]));
    // A wish about encryption means nothing inside of TLS.
    good.write_all(&wish(1)).unwrap();
    let said = answer(&mut good);
    assert_eq!(said.first(), Some(&4), "{said:?}");
    assert_eq!(
        good.conn.protocol_version(),
        Some(rustls::ProtocolVersion::TLSv1_3)
    );
    // The login of an older version is as good.
    good.write_all(&packet(LOGIN, &login7(USER, PASSWORD, "")))
        .unwrap();
    assert_eq!(answer(&mut good).first(), Some(&4));
    for protocols in [&[][..], &[&b"http/1.1"[..]], &[&b"TDS/8.0"[..]]] {
        let mut other = over_tls(server.port, named(&stage, protocols));
        // The handshake fails, or what follows it is not answered.
        let _refused = other.write_all(&wish(1));
        assert_eq!(answer(&mut other), b"", "{protocols:?}");
    }
}

#[test]
fn what_is_neither_tls_nor_its_plain_form_ends_the_connection() {
    let stage = Stage::new();
    let server = stage.server(&[]);
    let closes = |bytes: &[u8]| {
        let mut socket = socket(server.port);
        socket.write_all(bytes).unwrap();
        let mut all = Vec::new();
        let read = socket.read_to_end(&mut all);
        let hangs = |e: &std::io::Error| e.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!read.as_ref().is_err_and(hangs), "the server hangs");
        // TLS may say why; nothing of TDS is said.
        assert!(!all.starts_with(&[4]), "{all:?}");
    };
    closes(&[0x16; 600]);
    closes(&[&[0x16, 3, 1][..], &wish(1)].concat());
    // A record that is longer than any may be.
    closes(&[&[0x16, 3, 1, 0xff, 0xff][..], &[1; 4000]].concat());
    // A wish for TLS first, by a client that does not begin with it.
    let mut plain = Raw::connect(server.port);
    plain.send(PRELOGIN, 0, &[1, 0, 6, 0, 1, 0xff, 4]);
    assert!(plain.message().is_some());
    assert_eq!(plain.message(), None);
    // TDS 8.0 by its number alone.
    let mut claimed = login7(USER, PASSWORD, "");
    claimed[4..8].copy_from_slice(&0x0800_0000_u32.to_le_bytes());
    let mut plain = Raw::connect(server.port);
    plain.greet();
    plain.send(LOGIN, 0, &claimed);
    assert_eq!(plain.message(), None);
    // Plain packets in the middle of TLS.
    let mut broken = over_tls(server.port, named(&stage, &[b"tds/8.0"]));
    broken.write_all(&wish(1)).unwrap();
    assert_eq!(answer(&mut broken).first(), Some(&4));
    broken
        .sock
        .write_all(&packet(LOGIN, &login7(USER, PASSWORD, "")))
        .unwrap();
    assert_eq!(answer(&mut broken), b"");
    // The server serves others as before.
    Raw::login(server.port).batch("SELECT 1");
}
