//! Names of peers: hashes of their public keys, which fit into a line of text.

use crate::Error;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use std::fmt;
use std::str::FromStr;

/// Bytes of a peer key.
const KEY_BYTES: usize = blake3::OUT_LEN;
/// Hexadecimal digits that a message shows of a peer key.
const SHOWN_DIGITS: usize = 16;

/// BLAKE3 hash of a public key (`SubjectPublicKeyInfo`, RFC 5280 section 4.1.2.7, in DER).
///
/// The text form has 64 hexadecimal digits. `Debug` shows the first 16 of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerKey([u8; KEY_BYTES]);

impl PeerKey {
    /// Hashes a public key.
    pub(crate) fn of(public_key: &SubjectPublicKeyInfoDer<'_>) -> Self {
        PeerKey(*blake3::hash(public_key.as_ref()).as_bytes())
    }

    /// Returns the hash.
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl From<[u8; KEY_BYTES]> for PeerKey {
    fn from(bytes: [u8; KEY_BYTES]) -> Self {
        PeerKey(bytes)
    }
}

impl fmt::Display for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from(self.0).to_hex())
    }
}

impl fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.to_string();
        write!(f, "PeerKey({}…)", text.get(..SHOWN_DIGITS).unwrap_or(&text))
    }
}

impl FromStr for PeerKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let hash = blake3::Hash::from_hex(text.trim());
        let hash = hash.map_err(|_| Error::PeerKey {
            text: text.escape_debug().take(2 * KEY_BYTES).collect(),
        })?;
        Ok(PeerKey(*hash.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::PeerKey;

    #[test]
    fn text_of_a_key_is_read_again() {
        let key = PeerKey::from([0xab; 32]);
        assert_eq!(key.to_string().parse(), Ok(key));
        assert_eq!(format!("{key:?}"), "PeerKey(abababababababab…)");
    }

    #[test]
    fn other_text_is_no_key() {
        for text in ["", "ab", &"x".repeat(64), &"a".repeat(65), "ü"] {
            let error = text.parse::<PeerKey>().unwrap_err().to_string();
            assert!(error.contains("64 hexadecimal digits"), "{error}");
        }
    }
}
