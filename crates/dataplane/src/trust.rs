//! Peers that an endpoint accepts: listed keys, or the keys that a site's authority has signed.
//!
//! A clone shares the list. A change holds for the next handshake at once, and ends open connections
//! of a revoked key with the next heartbeat.

use crate::{Error, PeerKey};
use driftless_lock::RwLock;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Peers that an endpoint accepts.
#[derive(Debug, Clone)]
pub struct PeerTrust(Arc<TrustRule>);

#[derive(Debug)]
struct TrustRule {
    /// Certificates of the authority. Only listed keys are trusted if `None`.
    authority: Option<Arc<RootCertStore>>,
    /// Trusted keys, or revoked keys if there is an authority.
    listed: RwLock<BTreeSet<PeerKey>>,
}

/// The peer that a connection must lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedPeer {
    /// The owner of a key.
    Key(PeerKey),
    /// The owner of a certificate with this DNS name or IP address. Needs an authority.
    Name(String),
}

impl fmt::Display for ExpectedPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExpectedPeer::Key(key) => write!(f, "peer with key {key}"),
            ExpectedPeer::Name(name) => write!(f, "peer \"{}\"", name.escape_debug()),
        }
    }
}

impl PeerTrust {
    /// Trusts the owners of these keys.
    pub fn keys(keys: impl IntoIterator<Item = PeerKey>) -> Self {
        PeerTrust(Arc::new(TrustRule {
            authority: None,
            listed: RwLock::new(keys.into_iter().collect()),
        }))
    }

    /// Trusts the owners of certificates that an authority has signed.
    ///
    /// A certificate needs both extended key usages, `serverAuth` and `clientAuth` (RFC 5280
    /// section 4.2.1.12), or none.
    ///
    /// # Errors
    /// Fails if the PEM text has no usable certificate.
    pub fn authority(certificates_pem: &[u8]) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(certificates_pem) {
            let certificate = certificate.map_err(|error| Error::Authority(error.to_string()))?;
            let added = roots.add(certificate);
            added.map_err(|_| Error::Authority("one of them is damaged".into()))?;
        }
        if roots.is_empty() {
            return Err(Error::Authority("the file has none".into()));
        }
        Ok(PeerTrust(Arc::new(TrustRule {
            authority: Some(Arc::new(roots)),
            listed: RwLock::new(BTreeSet::new()),
        })))
    }

    /// Trusts a key. With an authority, lifts its revocation.
    pub fn trust(&self, key: PeerKey) {
        let mut listed = self.0.listed.write();
        if self.0.authority.is_some() {
            listed.remove(&key);
        } else {
            listed.insert(key);
        }
    }

    /// Ends the trust in a key, even if the authority has signed its certificate.
    pub fn revoke(&self, key: PeerKey) {
        let mut listed = self.0.listed.write();
        if self.0.authority.is_some() {
            listed.insert(key);
        } else {
            listed.remove(&key);
        }
    }

    /// Whether the owner of a key may be a peer. With an authority, the key is not revoked.
    pub fn allows(&self, key: &PeerKey) -> bool {
        self.0.listed.read().contains(key) != self.0.authority.is_some()
    }

    /// Returns the certificates of the authority, or `None` if only listed keys are trusted.
    pub(crate) fn roots(&self) -> Option<&Arc<RootCertStore>> {
        self.0.authority.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::{PeerKey, PeerTrust};

    #[test]
    fn only_listed_keys_are_trusted() {
        let (one, two) = (PeerKey::from([1; 32]), PeerKey::from([2; 32]));
        let trust = PeerTrust::keys([one]);
        assert!(trust.allows(&one) && !trust.allows(&two));
        let shared = trust.clone();
        shared.trust(two);
        shared.revoke(one);
        assert!(!trust.allows(&one) && trust.allows(&two));
    }

    #[test]
    fn authority_needs_a_certificate() {
        assert!(PeerTrust::authority(b"").is_err());
        assert!(
            PeerTrust::authority(b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n")
                .is_err()
        );
    }
}
