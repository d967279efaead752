//! The server's half of TLS.
//!
//! TLS 1.2 alone: under TDS 7 the handshake travels in packets, and those of TLS 1.3 that come after it would not.
//! (SQL Server does the same.)

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{OpenHow, Storage, Via};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::failure::Failure;

/// Longest file of certificates.
const LEN_MAX: usize = 1 << 20;
/// In the certificate that is made here.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// `identity`: certificate and key; without them one is made that lasts until the end of the program.
pub fn config(
    storage: &dyn Storage,
    identity: Option<&(PathBuf, PathBuf)>,
) -> Result<Arc<ServerConfig>, Failure> {
    let (chain, key) = match identity {
        Some((certificate, key)) => (
            certificates(certificate, &read(storage, certificate)?)?,
            PrivateKeyDer::from_pem_slice(&read(storage, key)?)
                .map_err(|_| refuse(key, "it holds no private key"))?,
        ),
        None => own()?,
    };
    let place = identity.map_or(Path::new("the certificate"), |(path, _)| path);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .map_err(|e| refuse(place, &e.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|e| refuse(place, &e.to_string()))?;
    // Each login shakes hands anew: nothing is kept of it.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    Ok(Arc::new(config))
}

fn own() -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Failure> {
    let made = rcgen::generate_simple_self_signed(NAMES.map(str::to_owned));
    let made = made.map_err(|e| refuse(Path::new("a certificate"), &e.to_string()))?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    Ok((vec![made.cert.der().clone()], key.into()))
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
        // Renewed certificates are often behind links.
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
    let mut failure = Failure::usage(
        format!("{} cannot be used for TLS", path.display()),
        "--certificate and --key name PEM files that belong together",
    );
    failure.causes.push(why.to_owned());
    failure
}
