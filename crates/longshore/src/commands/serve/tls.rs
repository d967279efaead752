//! The server's half of TLS.
//!
//! For T-SQL, TLS 1.2 only: under TDS 7 the handshake travels in packets, and TLS 1.3 sends handshake messages after that which
//! would not. (SQL Server does the same.)
//!
//! Invariants
//! - A pair that is made here is made once, and durable before clients can see it: they pin it. Two servers that start
//!   at the same time use the same pair.
//! - A key that others can read or write is refused.
//! - Each login has a full handshake: no session is kept.
//!
//! Leaves to others: the handshake and the bytes (`wire.rs`), and whether a client wants encryption (`longshore-tds`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Clock, Dir, OpenHow, SmallFile, Storage, Via};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};

use super::validity::end_us;
use longshore_terminal::failure::Failure;
use longshore_terminal::numbers;

/// The maximum length of a certificate file.
const LEN_MAX: usize = 1 << 20;
/// The names in the generated certificate.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The location of the generated certificate, so that clients can pin it.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    /// Key and certificate, readable by the server only.
    pair: PathBuf,
    /// The certificate, readable by everyone.
    certificate: PathBuf,
}

impl CertificateFiles {
    /// In the directory of the logins.
    pub fn beside(logins: &Path) -> CertificateFiles {
        CertificateFiles {
            pair: logins.with_file_name("serve.pem"),
            certificate: logins.with_file_name("serve.crt"),
        }
    }

    /// All its files.
    pub fn files(&self) -> Vec<PathBuf> {
        let both = [&self.pair, &self.certificate];
        let locks = both.map(|path| SmallFile::lock_name(path));
        both.into_iter().cloned().chain(locks).collect()
    }

    /// Loads the pair; creates it if there is none. Two servers that start at the same time use the same pair.
    fn load(&self, storage: &dyn Storage, clock: &dyn Clock) -> Result<Pair, Failure> {
        let kept = || -> io::Result<Vec<u8>> {
            let (file, dir) = small(storage, &self.pair)?;
            let pem = file.change(clock, 0o600, |before| match before {
                Some(pem) => Ok::<_, io::Error>((None, pem.to_vec())),
                None => {
                    let pem = make()?.into_bytes();
                    Ok((Some(pem.clone()), pem))
                }
            })?;
            let stat = dir.stat(Path::new(self.pair.file_name().unwrap_or_default()))?;
            if stat.mode & 0o077 != 0 {
                return Err(io::Error::other(
                    "users other than its owner can read or write it",
                ));
            }
            Ok(pem)
        };
        let pem = kept().map_err(|e| self.refuse(&e.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(&pem);
        let key = key.map_err(|_| self.refuse("it holds no private key"))?;
        let chain =
            certificates(&self.pair, &pem).map_err(|_| self.refuse("it holds no certificate"))?;
        let publish = || -> io::Result<()> {
            let shown: String = chain.iter().map(|c| in_pem("CERTIFICATE", c)).collect();
            let (file, _) = small(storage, &self.certificate)?;
            file.change(clock, 0o644, |before| {
                let is_there = before == Some(shown.as_bytes());
                Ok((Some(shown.into_bytes()).filter(|_| !is_there), ()))
            })
        };
        // The server works without this file: a client that connects can see the certificate, too.
        if let Err(error) = publish() {
            tracing::warn!(path = %self.certificate.display(), %error, "the certificate was not written for clients");
        }
        Ok((chain, key))
    }

    fn refuse(&self, why: &str) -> Failure {
        Failure::usage(
            format!("{} cannot be used for TLS", self.pair.display()),
            format!(
                "chmod 600 {0}; or remove it: a new pair is made, and clients that pinned the old certificate must pin the new one",
                self.pair.display()
            ),
        )
        .numbered(numbers::FILE_UNUSABLE)
        .because(why)
    }
}

type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A small file and its directory.
fn small(storage: &dyn Storage, path: &Path) -> io::Result<(SmallFile, Arc<dyn Dir>)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    let dir = storage.create_dir_all(parent)?;
    Ok((SmallFile::new(dir.clone(), name, LEN_MAX), dir))
}

/// The fingerprint of the certificate that clients see: `AB:CD:…`, as `openssl x509 -fingerprint -sha256` prints it.
fn fingerprint(certificate: &CertificateDer) -> String {
    let digest = Sha256::digest(certificate);
    let bytes: Vec<_> = digest.iter().map(|b| format!("{b:02X}")).collect();
    bytes.join(":")
}

/// The server's TLS configuration, and the fingerprint by which a client may recognise it.
pub struct Tls {
    pub config: Arc<ServerConfig>,
    /// SHA-256 of its certificate.
    pub fingerprint: String,
    /// When the certificate ends, in microseconds since the Unix epoch.
    pub ends_us: Option<i64>,
    /// The file that clients pin, if the certificate was generated here.
    pub made: Option<PathBuf>,
    /// For another protocol with the same certificate.
    pub identity: CertificatePair,
}

/// The name of TDS 8.0 in the handshake (ALPN), which both sides must say.
pub const TDS8: &[u8] = b"tds/8.0";

/// A protocol over TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// TDS 7, where the handshake travels inside its packets.
    Tds,
    /// TDS 8.0, where everything is inside TLS.
    StrictTds,
    Http,
}

impl Protocol {
    fn versions(self) -> &'static [&'static rustls::SupportedProtocolVersion] {
        static TLS12: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS12];
        match self {
            Protocol::Tds => TLS12,
            Protocol::StrictTds | Protocol::Http => rustls::DEFAULT_VERSIONS,
        }
    }
}

/// A certificate and its key, and which they are: one pair for all protocols.
pub struct CertificatePair {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    /// The file that is named if they cannot be used.
    place: PathBuf,
    /// The file that clients pin, if the certificate was generated here.
    made: Option<PathBuf>,
}

/// `identity`: certificate and key; without them a pair is generated once and kept.
pub fn identity(
    storage: &dyn Storage,
    clock: &dyn Clock,
    identity: Option<&(PathBuf, PathBuf)>,
    kept: &CertificateFiles,
) -> Result<CertificatePair, Failure> {
    let (chain, key) = match identity {
        Some((certificate, key)) => (
            certificates(certificate, &read(storage, certificate)?)?,
            PrivateKeyDer::from_pem_slice(&read(storage, key)?)
                .map_err(|_| refuse(key, "it holds no private key"))?,
        ),
        None => kept.load(storage, clock)?,
    };
    Ok(CertificatePair {
        chain,
        key,
        place: identity.map_or(&kept.pair, |(path, _)| path).clone(),
        made: identity.is_none().then(|| kept.certificate.clone()),
    })
}

/// The configuration of one protocol.
pub fn config_of(
    identity: &CertificatePair,
    protocol: Protocol,
) -> Result<Arc<ServerConfig>, Failure> {
    let wrong = |e: rustls::Error| refuse(&identity.place, &e.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(protocol.versions())
        .map_err(wrong)?
        .with_no_client_auth()
        .with_single_cert(identity.chain.clone(), identity.key.clone_key())
        .map_err(wrong)?;
    // Each login has a full handshake: no session is kept.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    match protocol {
        Protocol::Tds => {}
        Protocol::StrictTds => config.alpn_protocols = vec![TDS8.to_vec()],
        Protocol::Http => config.alpn_protocols = vec![b"http/1.1".to_vec()],
    }
    Ok(Arc::new(config))
}

/// One protocol with its certificate.
pub fn config(
    storage: &dyn Storage,
    clock: &dyn Clock,
    (given, kept): (Option<&(PathBuf, PathBuf)>, &CertificateFiles),
    protocol: Protocol,
) -> Result<Tls, Failure> {
    let identity = identity(storage, clock, given, kept)?;
    let first = identity.chain.first();
    Ok(Tls {
        config: config_of(&identity, protocol)?,
        fingerprint: first.map(fingerprint).unwrap_or_default(),
        ends_us: first.and_then(|first| end_us(first)),
        made: identity.made.clone(),
        identity,
    })
}

/// A new key and its certificate.
fn make() -> io::Result<String> {
    let made = rcgen::generate_simple_self_signed(NAMES.map(str::to_owned));
    let made = made.map_err(io::Error::other)?;
    let key = in_pem("PRIVATE KEY", &made.signing_key.serialize_der());
    Ok(key + &in_pem("CERTIFICATE", made.cert.der()))
}

/// RFC 7468.
fn in_pem(label: &str, der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::new();
    for three in der.chunks(3) {
        let byte = |i: usize| u32::from(three.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            text.push(match i <= three.len() {
                true => DIGITS[(bits >> (18 - 6 * i) & 63) as usize],
                false => b'=',
            });
        }
    }
    let lines: Vec<_> = text.chunks(64).map(String::from_utf8_lossy).collect();
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    )
}

fn certificates(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(bytes)
        .filter_map(Result::ok)
        .collect();
    match found.is_empty() {
        true => Err(refuse(path, "it holds no certificate")),
        false => Ok(found),
    }
}

fn read(storage: &dyn Storage, path: &Path) -> Result<Vec<u8>, Failure> {
    let read = || -> std::io::Result<Vec<u8>> {
        // Renewed certificates are often reached through symbolic links.
        let real = storage.canonical(path)?;
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(std::io::ErrorKind::InvalidFilename.into());
        };
        let file = storage.dir(parent)?.open(Path::new(name), OpenHow::Read)?;
        let mut bytes = vec![0; (file.stat()?.len as usize).min(LEN_MAX)];
        let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
        bytes.truncate(len);
        Ok(bytes)
    };
    read().map_err(|e| refuse(path, &e.to_string()))
}

fn refuse(path: &Path, why: &str) -> Failure {
    Failure::usage(
        format!("{} cannot be used for TLS", path.display()),
        "name PEM files that belong together with --certificate and --key",
    )
    .numbered(numbers::FILE_UNUSABLE)
    .because(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::{Fault, Host, HostClock, SimClock, SimDisk};

    #[test]
    fn pem_is_what_its_readers_take() {
        for len in [1, 2, 3, 47, 48, 49, 200] {
            let der: Vec<u8> = (0..len).map(|n| (n * 37) as u8).collect();
            let text = in_pem("CERTIFICATE", &der);
            let read = CertificateDer::from_pem_slice(text.as_bytes()).unwrap();
            assert_eq!(&*read, der.as_slice());
        }
    }

    /// A client that keeps sessions, and meets the server in memory.
    fn connected(client: &Arc<rustls::ClientConfig>, tls: &Tls) -> rustls::ClientConnection {
        let name = "localhost".try_into().unwrap();
        let mut client = rustls::ClientConnection::new(client.clone(), name).unwrap();
        let mut server = rustls::ServerConnection::new(tls.config.clone()).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut &bytes[..]).unwrap();
            server.process_new_packets().unwrap();
            bytes.clear();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut &bytes[..]).unwrap();
            client.process_new_packets().unwrap();
        }
        client
    }

    /// Goal: a client sees the certificate of which the fingerprint was printed, and each login has a handshake of its
    /// own: a session that went on would not ask for the certificate again.
    #[test]
    fn clients_see_the_certificate_of_the_fingerprint_and_no_session_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let kept = CertificateFiles::beside(&dir.path().join("state/logins"));
        let tls = config(&Host::new(), &HostClock, (None, &kept), Protocol::Tds).unwrap();
        let shown = std::fs::read(&kept.certificate).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(&shown).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = Arc::new(client);
        for login in 1..4 {
            let client = connected(&client, &tls);
            let [seen] = client.peer_certificates().unwrap() else {
                panic!("one certificate is shown");
            };
            let seen: String = Sha256::digest(seen)
                .iter()
                .map(|byte| format!("{byte:02X}"))
                .collect();
            assert_eq!(tls.fingerprint.replace(':', ""), seen);
            let kind = client.handshake_kind();
            assert_eq!(kind, Some(rustls::HandshakeKind::Full), "login {login}");
        }
    }

    /// Goal: a certificate that clients may have pinned is still the server's after a power cut.
    #[test]
    fn a_pair_that_was_shown_outlives_a_power_cut_though_its_maker_was_killed() {
        let kept = CertificateFiles::beside(Path::new("/state/logins"));
        let prepared = |seed| {
            let disk = SimDisk::new(seed);
            disk.write_file("/state/other", b"").unwrap();
            disk
        };
        let load = |disk: &SimDisk| kept.load(disk, &SimClock::new(0)).map(|(chain, _)| chain);
        let whole = prepared(0);
        load(&whole).unwrap();
        for step in 0..=whole.steps() {
            let cut = prepared(step).cut_power_at(step);
            let killed = prepared(step).inject(Fault::errno(libc::EIO).from_step(step));
            let _killed = load(&killed);
            killed.heal();
            for disk in [cut, killed] {
                let Ok(shown) = load(&disk) else { continue };
                for image in disk.images(6) {
                    assert_eq!(load(&image).unwrap(), shown, "step {step}");
                }
            }
        }
    }

    #[test]
    fn a_pair_is_made_once_and_a_key_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let kept = CertificateFiles::beside(&dir.path().join("state/logins"));
        let load = || config(&Host::new(), &HostClock, (None, &kept), Protocol::Tds);
        let first = load().unwrap();
        assert_eq!(first.fingerprint, load().unwrap().fingerprint);
        assert_eq!(first.fingerprint.len(), 32 * 3 - 1);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&kept.pair), mode(&kept.certificate)), (0o600, 0o644));
        let shown = std::fs::read_to_string(&kept.certificate).unwrap();
        assert!(shown.starts_with("-----BEGIN CERTIFICATE-----") && !shown.contains("PRIVATE"));
        let open = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(&kept.pair, open).unwrap();
        assert!(load().is_err());
    }
}
