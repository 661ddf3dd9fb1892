//! Decides during a handshake whether the peer is the expected one and trusted.
//!
//! The verifier of a handshake notes its verdict, so that an error can name the key.

use crate::{ExpectedPeer, PeerKey, PeerTrust};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls13_signature, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible,
    SignatureScheme,
};
use std::sync::{Arc, OnceLock};

/// Key of the peer, and the cause if it was refused.
#[derive(Debug, Default)]
pub(crate) struct PeerVerdict {
    pub(crate) key: OnceLock<PeerKey>,
    pub(crate) refusal: OnceLock<String>,
}

impl PeerVerdict {
    /// Notes a cause and returns the error that makes rustls send an alert.
    fn refuse(&self, cause: String) -> Error {
        let _first_cause_stays = self.refusal.set(cause);
        Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
    }
}

/// Returns the key of a peer from its certificate, or from the raw public key in its place.
pub(crate) fn key_of(trust: &PeerTrust, entity: &CertificateDer<'_>) -> Result<PeerKey, Error> {
    if trust.roots().is_none() {
        return Ok(PeerKey::of(&SubjectPublicKeyInfoDer::from(entity.as_ref())));
    }
    let parsed = ParsedCertificate::try_from(entity)?;
    Ok(PeerKey::of(&parsed.subject_public_key_info()))
}

/// Rules that both sides share.
#[derive(Debug, Clone)]
pub(crate) struct PeerRules {
    pub(crate) trust: PeerTrust,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
    pub(crate) verdict: Arc<PeerVerdict>,
}

impl PeerRules {
    /// Returns the key of a peer, and notes it.
    fn key(&self, entity: &CertificateDer<'_>) -> Result<PeerKey, Error> {
        let key = key_of(&self.trust, entity)?;
        let _first_key_stays = self.verdict.key.set(key);
        Ok(key)
    }

    /// Checks the list of keys.
    fn check_key(&self, key: PeerKey, refusal: impl FnOnce() -> String) -> Result<(), Error> {
        match self.trust.allows(&key) {
            true => Ok(()),
            false => Err(self.verdict.refuse(refusal())),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        entity: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.trust.roots().is_some() {
            return verify_tls13_signature(message, entity, signature, &self.algorithms);
        }
        let key = SubjectPublicKeyInfoDer::from(entity.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
    }
}

/// Verifier of the end that connects.
#[derive(Debug)]
pub(crate) struct ListenerVerifier {
    pub(crate) rules: PeerRules,
    pub(crate) expected: ExpectedPeer,
}

impl ListenerVerifier {
    fn check_expected(&self, entity: &CertificateDer<'_>, key: PeerKey) -> Result<(), Error> {
        match &self.expected {
            ExpectedPeer::Key(expected) if *expected == key => Ok(()),
            ExpectedPeer::Key(expected) => Err(self.rules.verdict.refuse(format!(
                "has the key {key}, not {expected}; copy it from \"driftless node status\" there"
            ))),
            ExpectedPeer::Name(name) => self.check_name(entity, name),
        }
    }

    fn check_name(&self, entity: &CertificateDer<'_>, name: &str) -> Result<(), Error> {
        let refuse = |cause: &str| Err(self.rules.verdict.refuse(cause.to_owned()));
        if self.rules.trust.roots().is_none() {
            return refuse("is known by its key only, without an authority; name its key");
        }
        let Ok(server_name) = ServerName::try_from(name) else {
            return refuse("has a name that is neither a DNS name nor an IP address; change it");
        };
        verify_server_name(&ParsedCertificate::try_from(entity)?, &server_name)
    }
}

impl ServerCertVerifier for ListenerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(roots) = self.rules.trust.roots() {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            let algorithms = self.rules.algorithms.all;
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                roots,
                intermediates,
                now,
                algorithms,
            )?;
        }
        let key = self.rules.key(end_entity)?;
        self.check_expected(end_entity, key)?;
        let refusal = || format!("has the key {key}, which is not trusted here; trust it");
        self.rules.check_key(key, refusal)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.rules.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.rules.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.rules.trust.roots().is_none()
    }
}

/// Verifier of the end that listens.
#[derive(Debug)]
pub(crate) struct ConnectorVerifier {
    pub(crate) rules: PeerRules,
    /// Verifier of chains, if there is an authority.
    pub(crate) chains: Option<Arc<dyn ClientCertVerifier>>,
}

impl ClientCertVerifier for ConnectorVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        match &self.chains {
            Some(chains) => chains.root_hint_subjects(),
            None => &[],
        }
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Some(chains) = &self.chains {
            chains.verify_client_cert(end_entity, intermediates, now)?;
        }
        let key = self.rules.key(end_entity)?;
        let refusal = || format!("its key {key} is not among the trusted keys (--trust)");
        self.rules.check_key(key, refusal)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.rules.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.rules.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.rules.trust.roots().is_none()
    }
}
