//! Renames that a detector reported, carried out on the replica.

use crate::sync::open::Trees;
use crate::sync::renamed::{Renamed, try_relocate};
use crate::trees::error::RunError;
use driftless_model::{Filter, Policy};

impl Trees {
    /// Renames an entry of the replica as the source's was; false if that is not possible, or not
    /// right as far as can be seen. Both paths are to be made equal afterwards either way.
    ///
    /// Only where the policy deletes, since the old name goes, and only without filters, since they
    /// may take one path and leave the other.
    ///
    /// # Errors
    /// Nothing may be changed any more.
    pub fn relocate(&self, renamed: &Renamed, policy: &Policy) -> Result<bool, RunError> {
        self.refuse_lost()?;
        // A flush waits for it.
        let changes = self.changes.read();
        let is_filtered = policy.filter != Filter::default();
        if !policy.delete || is_filtered {
            return Ok(false);
        }
        // What fails is seen again when the paths are looked at, and told then.
        let is_done = try_relocate(self.ground(), &self.ground().roots, renamed).unwrap_or(false);
        if let Some((changes, _)) = &*changes {
            changes.outcome()?;
        }
        Ok(is_done)
    }
}
