//! TLS of a session: TLS 1.2 and 1.3, and client certificates of the site's authority.
//!
//! libunftp offers no way to ask whether a data connection has TLS, and matches it with the control
//! connection by the address alone. The resolver of certificates here counts handshakes, so the
//! storage refuses a transfer without a new one. After a login by a certificate, each data connection
//! must show the same certificate, so no other process of the client's host can take its place.

use crate::{Error, FtpsSettings};
use driftless_lock::Mutex;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};
use std::path::Path;
use std::sync::Arc;

/// Handshakes of one session.
#[derive(Debug, Default)]
pub struct Handshakes(Mutex<HandshakeState>);

#[derive(Debug, Default)]
struct HandshakeState {
    /// Handshakes that no transfer has used.
    unused: u64,
    /// Certificate of the client in the last handshake, in DER.
    shown: Option<Vec<u8>>,
    /// Certificate that logged in, in DER.
    login: Option<Vec<u8>>,
}

impl Handshakes {
    /// Takes one handshake. Returns `false` if there is none, or the client did not show the
    /// certificate of its login.
    pub fn take(&self) -> bool {
        let mut state = self.0.lock();
        let is_same = state.login.is_none() || state.login == state.shown;
        match state.unused.checked_sub(1) {
            Some(rest) if is_same => {
                state.unused = rest;
                true
            }
            _ => false,
        }
    }

    /// Forgets the handshakes that were not used, such as that of the control connection.
    pub fn clear(&self) {
        self.0.lock().unused = 0;
    }

    /// Notes the certificate that logged in. Data connections must show it from now on.
    pub fn require(&self, certificate: &[u8]) {
        self.0.lock().login = Some(certificate.to_owned());
    }

    fn begin(&self) {
        let mut state = self.0.lock();
        state.unused += 1;
        state.shown = None;
    }

    fn show(&self, certificate: &[u8]) {
        self.0.lock().shown = Some(certificate.to_owned());
    }
}

/// The one certificate of the server. rustls asks for it in each handshake, also in one that resumes a
/// session of TLS.
#[derive(Debug)]
struct CountingResolver {
    key: Arc<CertifiedKey>,
    handshakes: Arc<Handshakes>,
}

impl ResolvesServerCert for CountingResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.handshakes.begin();
        Some(self.key.clone())
    }
}

/// Verifier that notes the certificates of clients.
#[derive(Debug)]
struct NotingVerifier {
    verifier: Arc<dyn ClientCertVerifier>,
    handshakes: Arc<Handshakes>,
}

impl ClientCertVerifier for NotingVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.verifier.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self
            .verifier
            .verify_client_cert(end_entity, intermediates, now)?;
        // A handshake without a signature by the key fails afterwards, and no transfer follows it.
        self.handshakes.show(end_entity);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Returns the configuration of TLS, and its handshakes.
///
/// # Errors
/// A file cannot be read or has another form, or the key does not belong to the certificate.
pub fn server_config(
    settings: &FtpsSettings,
) -> Result<(Arc<ServerConfig>, Arc<Handshakes>), Error> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&settings.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&read_file(&settings.key)?)
        .map_err(|fault| form(&settings.key, &format!("no private key in PEM: {fault}")))?;
    let key = CertifiedKey::from_der(chain, key, &provider)
        .map_err(|fault| form(&settings.key, &fault.to_string()))?;
    let handshakes = Arc::new(Handshakes::default());
    let resolver = CountingResolver {
        key: Arc::new(key),
        handshakes: handshakes.clone(),
    };
    let failed = |fault: rustls::Error| Error::Tls(fault.to_string());
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS12, &TLS13])
        .map_err(failed)?
        .with_client_cert_verifier(verifier(settings, provider, &handshakes)?)
        .with_cert_resolver(Arc::new(resolver));
    // Each data connection proves the key anew. Some clients lose the end of an upload when tickets
    // arrive that they do not read.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok((Arc::new(config), handshakes))
}

fn verifier(
    settings: &FtpsSettings,
    provider: Arc<CryptoProvider>,
    handshakes: &Arc<Handshakes>,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let Some(keys) = &settings.client_keys else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&keys.authority)? {
        let added = roots.add(certificate);
        added.map_err(|fault| form(&keys.authority, &fault.to_string()))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|fault| form(&keys.authority, &fault.to_string()))?;
    Ok(Arc::new(NotingVerifier {
        verifier,
        handshakes: handshakes.clone(),
    }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_is_for_one_transfer() {
        let handshakes = Handshakes::default();
        assert!(!handshakes.take());
        handshakes.begin();
        assert!(handshakes.take() && !handshakes.take());
        handshakes.begin();
        handshakes.clear();
        assert!(!handshakes.take());
    }

    #[test]
    fn transfers_need_the_certificate_of_the_login() {
        let handshakes = Handshakes::default();
        handshakes.require(b"alice");
        handshakes.begin();
        assert!(!handshakes.take(), "no certificate");
        for (shown, expected) in [(b"other".as_slice(), false), (b"alice", true)] {
            handshakes.begin();
            handshakes.show(shown);
            assert_eq!(handshakes.take(), expected);
        }
    }
}
