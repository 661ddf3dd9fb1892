//! The key pair of this end, with the certificates of an authority if a site has one.

use crate::{CertificateFault, Error, PeerKey, PeerTrust};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::CertificateError;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring::default_provider;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SigningKey};
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Characters of a line of PEM (RFC 7468 section 2).
const PEM_LINE_CHARS: usize = 64;
/// Marks of an encrypted private key in PEM (RFC 5958 section 3, RFC 1421 section 4.6.1.1).
const ENCRYPTED: [&[u8]; 2] = [b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED"];

/// Key pair of this end.
///
/// Ends that know each other's keys prove them as raw public keys (RFC 7250). Ends of a site with
/// an authority have certificates besides.
#[derive(Clone)]
pub struct TlsIdentity {
    certified: Arc<CertifiedKey>,
    key: PeerKey,
    secret: Arc<PrivateKeyDer<'static>>,
    has_certificate: bool,
}

impl TlsIdentity {
    /// Makes a new Ed25519 key pair.
    ///
    /// # Errors
    /// Fails if the system has no random numbers.
    pub fn generate() -> Result<Self, Error> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| Error::Identity("the system gives no random numbers".into()))?;
        let secret = PrivatePkcs8KeyDer::from(document.as_ref().to_vec());
        Self::raw(secret.into())
    }

    /// Reads a private key in PEM, as [`Self::to_pem`] writes it.
    ///
    /// # Errors
    /// Fails if the text has no private key that the provider supports.
    pub fn from_pem(key_pem: &[u8]) -> Result<Self, Error> {
        let secret = PrivateKeyDer::from_pem_slice(key_pem);
        Self::raw(secret.map_err(|error| Error::Identity(error.to_string()))?)
    }

    /// Reads a private key in PEM and its chain of certificates, the own certificate first.
    ///
    /// # Errors
    /// Fails if a text is unreadable, or the certificate has another key.
    pub fn from_certificate(chain_pem: &[u8], key_pem: &[u8]) -> Result<Self, CertificateFault> {
        let unreadable = |cause: &str| CertificateFault::NoCertificate(cause.to_owned());
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain_pem).collect();
        let chain = chain.map_err(|error| unreadable(&error.to_string()))?;
        if chain.is_empty() {
            return Err(unreadable("the file has none"));
        }
        let secret = secret_of(key_pem)?;
        let (signing, public_key) =
            signing_of(&secret).map_err(|_| CertificateFault::UnsupportedKey)?;
        let certified = CertifiedKey::new(chain, signing);
        certified.keys_match().map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => CertificateFault::Mismatch,
            _ => unreadable("it is damaged"),
        })?;
        Ok(TlsIdentity {
            certified: Arc::new(certified),
            key: PeerKey::of(&public_key),
            secret: Arc::new(secret),
            has_certificate: true,
        })
    }

    /// Returns the key that peers know this end by.
    pub fn key(&self) -> PeerKey {
        self.key
    }

    /// Returns the private key in PEM (PKCS #8). The caller keeps it secret, in a file of mode 0600.
    pub fn to_pem(&self) -> String {
        let text = STANDARD.encode(self.secret.secret_der());
        let label = match *self.secret {
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        let mut pem = format!("-----BEGIN {label}-----\n");
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at(PEM_LINE_CHARS.min(rest.len()));
            pem.push_str(line);
            pem.push('\n');
            rest = after;
        }
        pem + &format!("-----END {label}-----\n")
    }

    /// Whether the certificate of this end, or one of its chain, has expired at a time. Returns
    /// `false` for a key without a certificate.
    pub fn has_expired_at(&self, trust: &PeerTrust, time: SystemTime) -> bool {
        let (Some((own, issuers)), Some(roots), Ok(time)) = (
            self.certified.cert.split_first(),
            trust.roots(),
            time.duration_since(UNIX_EPOCH),
        ) else {
            return false;
        };
        let Ok(own) = ParsedCertificate::try_from(own) else {
            return false;
        };
        let time = UnixTime::since_unix_epoch(time);
        let algorithms = default_provider().signature_verification_algorithms.all;
        let verified =
            verify_server_cert_signed_by_trust_anchor(&own, roots, issuers, time, algorithms);
        let is_expired = |fault: &CertificateError| {
            use CertificateError::{Expired, ExpiredContext};
            matches!(fault, Expired | ExpiredContext { .. })
        };
        matches!(verified, Err(rustls::Error::InvalidCertificate(fault)) if is_expired(&fault))
    }

    /// Whether an authority has signed a certificate of this end.
    pub(crate) fn has_certificate(&self) -> bool {
        self.has_certificate
    }

    /// Returns the key with its chain, or with the raw public key in place of a chain.
    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }

    /// Returns the end of a key that has no certificate.
    fn raw(secret: PrivateKeyDer<'static>) -> Result<Self, Error> {
        let (signing, public_key) = signing_of(&secret).map_err(Error::Identity)?;
        // RFC 7250: the raw key takes the place of the certificate.
        let entity = vec![public_key.as_ref().to_vec().into()];
        Ok(TlsIdentity {
            certified: Arc::new(CertifiedKey::new(entity, signing)),
            key: PeerKey::of(&public_key),
            secret: Arc::new(secret),
            has_certificate: false,
        })
    }
}

/// Private key that signs, and its public key.
type SigningPair = (Arc<dyn SigningKey>, SubjectPublicKeyInfoDer<'static>);

fn signing_of(secret: &PrivateKeyDer<'static>) -> Result<SigningPair, String> {
    let signing = any_supported_type(secret).map_err(|error| error.to_string())?;
    let public_key = signing.public_key().map(|key| key.into_owned());
    let public_key = public_key.ok_or("the key has no public part")?;
    Ok((signing, public_key))
}

fn secret_of(pem: &[u8]) -> Result<PrivateKeyDer<'static>, CertificateFault> {
    let has = |mark: &&[u8]| pem.windows(mark.len()).any(|part| part == *mark);
    if ENCRYPTED.iter().any(has) {
        return Err(CertificateFault::EncryptedKey);
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        CertificateFault::NoKey(match error {
            pem::Error::NoItemsFound => "the file has none".into(),
            error => error.to_string(),
        })
    })
}

/// Without the secret.
impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity")
            .field("key", &self.key)
            .field("has_certificate", &self.has_certificate)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{CertificateFault, TlsIdentity};

    #[test]
    fn stored_key_is_read_again() {
        let identity = TlsIdentity::generate().unwrap();
        let again = TlsIdentity::from_pem(identity.to_pem().as_bytes()).unwrap();
        assert_eq!(again.key(), identity.key());
        assert_ne!(TlsIdentity::generate().unwrap().key(), identity.key());
    }

    #[test]
    fn text_without_a_key_is_refused() {
        let pem = TlsIdentity::generate().unwrap().to_pem();
        for text in ["", "-----BEGIN PRIVATE KEY-----", &pem.replace('M', "!")] {
            assert!(TlsIdentity::from_pem(text.as_bytes()).is_err(), "{text}");
        }
        assert!(TlsIdentity::from_certificate(b"", pem.as_bytes()).is_err());
    }

    #[test]
    fn encrypted_key_is_named_as_such() {
        let chain = b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        for mark in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----",
            "Proc-Type: 4,ENCRYPTED",
        ] {
            let fault = TlsIdentity::from_certificate(chain, mark.as_bytes()).err();
            assert_eq!(fault, Some(CertificateFault::EncryptedKey));
        }
        let fault = TlsIdentity::from_certificate(chain, b"").expect_err("a fault");
        assert!(fault.is_of_key(), "{fault}");
    }

    #[test]
    fn debug_output_has_no_secret() {
        let identity = TlsIdentity::generate().unwrap();
        let shown = format!("{identity:?}");
        assert!(shown.len() < 100, "{shown}");
    }
}
