//! Units whose hashes were checked. Only the check makes them, so no unit is hashed twice on its way
//! from the network to the disk.

use crate::catalogue::Catalogue;
use crate::error::Result;
use crate::format::SetHash;
use std::sync::Arc;

/// A unit of a set with the hash that the catalogue states. Clones share the bytes.
#[derive(Debug, Clone)]
pub struct VerifiedUnit {
    set: SetHash,
    number: u64,
    bytes: Arc<Vec<u8>>,
}

impl VerifiedUnit {
    /// Returns the set.
    pub fn set(&self) -> SetHash {
        self.set
    }

    /// Returns the number of the unit.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the content.
    pub fn bytes(&self) -> &Arc<Vec<u8>> {
        &self.bytes
    }
}

impl Catalogue {
    /// Verifies a unit.
    ///
    /// # Errors
    /// [`Error::WrongUnit`](crate::Error::WrongUnit) if the bytes have another hash; the set has no
    /// such unit; the file of the catalogue cannot be read.
    pub fn verify_unit(&self, number: u64, bytes: Vec<u8>) -> Result<VerifiedUnit> {
        self.check_unit(number, &bytes)?;
        Ok(VerifiedUnit {
            set: self.hash(),
            number,
            bytes: Arc::new(bytes),
        })
    }
}
