//! Encryption, and what the server must prove.
//!
//! Invariants
//! - A certificate is not checked only where libpq does not check it either: with `prefer`, and with `require` without
//!   a root file.
//! - With `verify-full` the name must fit, also for a self-signed certificate that is itself a root.
//! - The server's signature on the handshake is always verified.
//!
//! Leaves to others: whether a connection is encrypted at all (`startup.rs`), and reading files and their permissions
//! (`files.rs`).
//!
//! Source: PostgreSQL 18 documentation, libpq, "SSL Support", table of `sslmode`.

use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use longshore_io::Storage;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore,
    SignatureScheme, StreamOwned,
};

use super::options::{Options, SslMode, SslRoot};
use super::{Error, files};

/// Files in which distributions keep the roots that a machine trusts.
const SYSTEM_ROOTS: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// Starts TLS on a connection whose server has agreed to it.
pub(super) fn wrap(
    storage: &dyn Storage,
    options: &Options,
    name: &str,
    mut socket: TcpStream,
) -> Result<Box<StreamOwned<ClientConnection, TcpStream>>, Error> {
    let refuse = |reason: String| Error::Tls {
        address: name.to_owned(),
        reason,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier::new(storage, options, provider.clone())?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| refuse(e.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match &options.ssl_identity {
        None => config.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = certificates(storage, cert)?;
            let (bytes, _) = files::read(storage, key)?.ok_or_else(|| missing(key))?;
            let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| Error::File {
                path: key.clone(),
                reason: "it holds no private key".into(),
            })?;
            config
                .with_client_auth_cert(chain, key)
                .map_err(|e| refuse(e.to_string()))?
        }
    };
    let server = ServerName::try_from(name.to_owned())
        .map_err(|_| refuse("the host's name cannot be in a certificate".into()))?;
    let mut session =
        ClientConnection::new(Arc::new(config), server).map_err(|e| refuse(e.to_string()))?;
    session
        .complete_io(&mut socket)
        .map_err(|e| refuse(e.to_string()))?;
    Ok(Box::new(StreamOwned::new(session, socket)))
}

fn missing(path: &Path) -> Error {
    Error::File {
        path: path.into(),
        reason: "it does not exist".into(),
    }
}

fn certificates(storage: &dyn Storage, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let (bytes, _) = files::read(storage, path)?.ok_or_else(|| missing(path))?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&bytes)
        .filter_map(Result::ok)
        .collect();
    if found.is_empty() {
        return Err(Error::File {
            path: path.into(),
            reason: "it holds no certificate".into(),
        });
    }
    Ok(found)
}

/// The roots that must have signed the server's certificate; `None`: no check.
fn roots(
    storage: &dyn Storage,
    options: &Options,
) -> Result<Option<Vec<CertificateDer<'static>>>, Error> {
    let exists = |path: &Path| storage.stat(path).is_ok();
    match (options.ssl_mode, &options.ssl_root_cert) {
        (SslMode::Disable | SslMode::Prefer, _) => Ok(None),
        (_, SslRoot::System) => {
            let bundle = SYSTEM_ROOTS.iter().map(Path::new).find(|path| exists(path));
            let bundle = bundle.ok_or_else(|| missing(Path::new(SYSTEM_ROOTS[0])))?;
            certificates(storage, bundle).map(Some)
        }
        (_, SslRoot::File(path)) => certificates(storage, path).map(Some),
        (_, SslRoot::Usual(Some(path))) if exists(path) => certificates(storage, path).map(Some),
        (SslMode::Require, SslRoot::Usual(_)) => Ok(None),
        (SslMode::VerifyCa | SslMode::VerifyFull, SslRoot::Usual(path)) => {
            let usual = path.as_deref();
            Err(missing(
                usual.unwrap_or(Path::new("~/.postgresql/root.crt")),
            ))
        }
    }
}

/// Verifies a server's certificate as `sslmode` requires.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    trusted: Option<(Vec<CertificateDer<'static>>, Arc<WebPkiServerVerifier>)>,
    names_must_fit: bool,
}

impl Verifier {
    fn new(
        storage: &dyn Storage,
        options: &Options,
        provider: Arc<CryptoProvider>,
    ) -> Result<Verifier, Error> {
        let trusted = match roots(storage, options)? {
            None => None,
            Some(roots) => {
                let mut store = RootCertStore::empty();
                // A system's bundle may contain roots of unknown kinds; the others count.
                store.add_parsable_certificates(roots.iter().cloned());
                let chains =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone())
                        .build()
                        .map_err(|e| Error::Tls {
                            address: "sslrootcert".into(),
                            reason: e.to_string(),
                        })?;
                Some((roots, chains))
            }
        };
        Ok(Verifier {
            provider,
            trusted,
            names_must_fit: options.ssl_mode == SslMode::VerifyFull,
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some((roots, chains)) = &self.trusted else {
            return Ok(ServerCertVerified::assertion());
        };
        // webpki does not accept a self-signed certificate as a leaf, but such certificates are usual with PostgreSQL.
        if roots.iter().any(|root| root == end_entity) {
            if self.names_must_fit {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        // The chain is verified before the name, so an error about the name means that the chain is good.
        match chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.names_must_fit => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
