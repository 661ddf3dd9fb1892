//! TLS of a session: TLS 1.2 and 1.3, and client certificates of the site's authority.
//!
//! libunftp offers no way to ask whether a data connection has TLS. The resolver of certificates here
//! counts handshakes, so the storage refuses a transfer without a new one.

use crate::{ClientKeys, Error, FtpsSettings};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Handshakes of one session that no transfer has used.
#[derive(Debug, Default)]
pub struct HandshakeCount(AtomicU64);

impl HandshakeCount {
    /// Takes one handshake. Returns `false` if there is none.
    pub fn take(&self) -> bool {
        self.0
            .fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1))
            .is_ok()
    }

    /// Forgets the handshakes that were not used, such as that of the control connection.
    pub fn clear(&self) {
        self.0.store(0, Relaxed);
    }
}

/// The one certificate of the server. rustls asks for it in each handshake, also in one that resumes a
/// session of TLS.
#[derive(Debug)]
struct CountingResolver {
    key: Arc<CertifiedKey>,
    count: Arc<HandshakeCount>,
}

impl ResolvesServerCert for CountingResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.count.0.fetch_add(1, Relaxed);
        Some(self.key.clone())
    }
}

/// Returns the configuration of TLS, and the count of its handshakes.
///
/// # Errors
/// A file cannot be read or has another form, or the key does not belong to the certificate.
pub fn server_config(
    settings: &FtpsSettings,
) -> Result<(Arc<ServerConfig>, Arc<HandshakeCount>), Error> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&settings.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&read_file(&settings.key)?)
        .map_err(|fault| form(&settings.key, &format!("no private key in PEM: {fault}")))?;
    let key = CertifiedKey::from_der(chain, key, &provider)
        .map_err(|fault| form(&settings.key, &fault.to_string()))?;
    let count = Arc::new(HandshakeCount::default());
    let resolver = CountingResolver {
        key: Arc::new(key),
        count: count.clone(),
    };
    let failed = |fault: rustls::Error| Error::Tls(fault.to_string());
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS12, &TLS13])
        .map_err(failed)?
        .with_client_cert_verifier(verifier(settings.client_keys.as_ref(), provider)?)
        .with_cert_resolver(Arc::new(resolver));
    // Each data connection proves the key anew. Some clients lose the end of an upload when tickets
    // arrive that they do not read.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok((Arc::new(config), count))
}

fn verifier(
    keys: Option<&ClientKeys>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let Some(keys) = keys else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&keys.authority)? {
        let added = roots.add(certificate);
        added.map_err(|fault| form(&keys.authority, &fault.to_string()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|fault| form(&keys.authority, &fault.to_string()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bytes = read_file(path)?;
    let chain: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&bytes).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(form(path, "no certificate in PEM")),
        Err(fault) => Err(form(path, &fault.to_string())),
    }
}

fn form(path: &Path, why: &str) -> Error {
    Error::Form {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}

/// Reads a file of the administrator.
#[allow(
    clippy::disallowed_methods,
    reason = "files of the administrator, no part of a tree of a user"
)]
pub fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|cause| Error::Read {
        path: path.to_owned(),
        cause,
    })
}
