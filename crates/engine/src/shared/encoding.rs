//! Plain values as bytes, in postcard (postcard.jamesmunns.com/wire-format): as movers get them,
//! and as the record keeps what only movers read.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A plain value as bytes.
pub fn encoded(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).expect("plain values can be encoded")
}

/// The value that these bytes are; none if they are of another kind.
pub fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}
