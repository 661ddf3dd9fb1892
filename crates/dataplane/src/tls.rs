//! Configurations of rustls: TLS 1.3 with the ring provider, without resumption.
//!
//! A resumed session skips the check of the peer's key, so that a revoked key would stay valid. Both
//! sides therefore keep no sessions and send no tickets.

use crate::verifier::{ConnectorVerifier, ListenerVerifier, PeerRules, PeerVerdict};
use crate::{CipherChoice, Error, ExpectedPeer, PeerTrust, TlsIdentity};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, ResolvesClientCert, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::ServerName;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, ResolvesServerCert,
    WebPkiClientVerifier,
};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::sync::Arc;

/// Application protocol (RFC 7301) with its version. Ends of other versions refuse each other.
pub(crate) const PROTOCOL: &[u8] = b"driftless-data/1";
/// Server name that rustls needs and does not send.
const UNUSED_NAME: &str = "peer.invalid";

/// Parts that all connections of an endpoint share.
#[derive(Debug)]
pub(crate) struct TlsContext {
    provider: Arc<CryptoProvider>,
    identity: TlsIdentity,
    trust: PeerTrust,
    chains: Option<Arc<dyn ClientCertVerifier>>,
    prefers_own_order: bool,
}

/// A connection before its handshake, and the place of the verdict.
pub(crate) struct NewSession {
    pub(crate) connection: Connection,
    pub(crate) verdict: Arc<PeerVerdict>,
}

fn refused(error: impl ToString) -> Error {
    Error::Identity(error.to_string())
}

impl TlsContext {
    pub(crate) fn new(
        identity: TlsIdentity,
        trust: PeerTrust,
        cipher: CipherChoice,
    ) -> Result<Self, Error> {
        if trust.roots().is_some() != identity.has_certificate() {
            return Err(refused(
                "an authority needs a certificate on both ends, and listed keys need none",
            ));
        }
        let mut provider = default_provider();
        provider.cipher_suites = suites(cipher);
        let provider = Arc::new(provider);
        let chains = trust.roots().map(|roots| {
            WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(&provider))
                .build()
        });
        Ok(TlsContext {
            provider,
            identity,
            chains: chains
                .transpose()
                .map_err(|error| Error::Authority(error.to_string()))?,
            trust,
            prefers_own_order: cipher == CipherChoice::Processor && !has_aes(),
        })
    }

    /// Returns the same with keys that encrypt at most so many records, so that tests see renewals.
    #[cfg(test)]
    pub(crate) fn with_records_max(mut self, records_max: u64) -> Self {
        use rustls::{CipherSuiteCommon, SupportedCipherSuite, Tls13CipherSuite};
        let aes = TLS13_AES_128_GCM_SHA256
            .tls13()
            .expect("a suite of TLS 1.3");
        let suite = Tls13CipherSuite {
            common: CipherSuiteCommon {
                suite: aes.common.suite,
                hash_provider: aes.common.hash_provider,
                confidentiality_limit: records_max,
            },
            quic: None,
            ..*aes
        };
        let mut provider = (*self.provider).clone();
        provider.cipher_suites = vec![SupportedCipherSuite::Tls13(Box::leak(Box::new(suite)))];
        self.provider = Arc::new(provider);
        self
    }

    pub(crate) fn identity(&self) -> &TlsIdentity {
        &self.identity
    }

    pub(crate) fn trust(&self) -> &PeerTrust {
        &self.trust
    }

    fn rules(&self) -> PeerRules {
        PeerRules {
            trust: self.trust.clone(),
            algorithms: self.provider.signature_verification_algorithms,
            verdict: Arc::default(),
        }
    }

    /// Returns the end that connects to `expected`.
    pub(crate) fn connector(&self, expected: ExpectedPeer) -> Result<NewSession, Error> {
        let rules = self.rules();
        let verdict = Arc::clone(&rules.verdict);
        let certified = self.identity.certified();
        let resolver: Arc<dyn ResolvesClientCert> = if self.identity.has_certificate() {
            Arc::new(SingleCertAndKey::from(certified))
        } else {
            Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified))
        };
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(refused)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ListenerVerifier { rules, expected }))
            .with_client_cert_resolver(resolver);
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        let name = ServerName::try_from(UNUSED_NAME).map_err(refused)?;
        let connection = ClientConnection::new(Arc::new(config), name).map_err(refused)?;
        Ok(NewSession {
            connection: connection.into(),
            verdict,
        })
    }

    /// Returns the end that has accepted a connection.
    pub(crate) fn acceptor(&self) -> Result<NewSession, Error> {
        let rules = self.rules();
        let verdict = Arc::clone(&rules.verdict);
        let certified = self.identity.certified();
        let resolver: Arc<dyn ResolvesServerCert> = if self.identity.has_certificate() {
            Arc::new(SingleCertAndKey::from(certified))
        } else {
            Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified))
        };
        let chains = self.chains.clone();
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(refused)?
            .with_client_cert_verifier(Arc::new(ConnectorVerifier { rules, chains }))
            .with_cert_resolver(resolver);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.ignore_client_order = self.prefers_own_order;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        let connection = ServerConnection::new(Arc::new(config)).map_err(refused)?;
        Ok(NewSession {
            connection: connection.into(),
            verdict,
        })
    }
}

/// Returns cipher suites, the preferred one first.
fn suites(cipher: CipherChoice) -> Vec<rustls::SupportedCipherSuite> {
    let (aes, chacha) = (TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256);
    match cipher {
        CipherChoice::Aes128Gcm => vec![aes],
        CipherChoice::ChaCha20Poly1305 => vec![chacha],
        CipherChoice::Processor if has_aes() => vec![aes, chacha],
        CipherChoice::Processor => vec![chacha, aes],
    }
}

/// Returns whether the processor has the instructions that ring needs for fast AES-GCM. Without
/// them, links prefer ChaCha20-Poly1305.
pub fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}
