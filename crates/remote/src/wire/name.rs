//! How a message calls what it is about: entries by name, open objects by number.

use driftless_model::check_name;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{CStr, CString};

/// Number of an object on the agent's side.
pub type Handle = u64;

/// The name of an entry: one component.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name(pub CString);

impl From<&CStr> for Name {
    fn from(name: &CStr) -> Self {
        Name(name.into())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0.to_bytes())
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = <&[u8]>::deserialize(deserializer)?;
        check_name(bytes).map_err(D::Error::custom)?;
        CString::new(bytes).map(Name).map_err(D::Error::custom)
    }
}
