//! Hard-link groups with more names than the replica's file system takes for one file (EMLINK).
//!
//! Such a group has as many inodes on the replica as it takes, filled in turn. When the leader is
//! full, the next name leads, and those that follow become links to it. In a later run, two inodes
//! of a group are right if one of them is full and both are equal to the source.

use crate::sync::entry::{Met, Reconciled};
use crate::sync::grouped::store_trouble;
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::trees::looks::there;
use driftless_model::{Fault, Meta, errno, escape};
use driftless_mover::Trouble;
use driftless_state::Leader;
use std::ffi::CStr;

/// Names that one file can have at most, by file system, the fewest first: ntfs3 (`NTFS_LINK_MAX`),
/// ext2, ext3 and nilfs2 (`EXT2_LINK_MAX`), ext4 (`EXT4_LINK_MAX`), btrfs, jfs and udf
/// (`BTRFS_LINK_MAX`; all in the kernel's fs).
const NAMES_MAX: [u64; 4] = [1_024, 32_000, 65_000, 65_535];

impl Worker<'_> {
    /// Whether a link failed since its file has as many names as its file system takes.
    pub fn takes_no_more(&self, source: &Meta, fault: &Fault) -> bool {
        fault.errno == errno::EMLINK && self.run.links.may_succeed(source.id())
    }

    /// The leader of a group has as many names as its file system takes (EMLINK): the name becomes a
    /// further inode of the group, to which the next names are linked.
    pub fn succeed(&mut self, met: Met<'_>, leader: &Leader) -> Reconciled {
        let Met {
            visit, name, meta, ..
        } = met;
        self.tell_further(visit, name);
        visit.more();
        let place = (visit.clone(), name.into());
        let arrival = self.run.links.succeed(meta.id(), leader, place);
        self.arrived(met, arrival.map_err(store_trouble)?, None)
    }

    /// Whether the replica's inode at a name is equal and one more inode of the group, since that
    /// one or the leader has as many names as its file system takes.
    pub fn is_further(
        &mut self,
        met: &Met<'_>,
        there: &Meta,
        leader: &Leader,
    ) -> Result<bool, Trouble> {
        let Met {
            visit, name, meta, ..
        } = *met;
        if self.run.links.is_further(meta.id(), there.id()) {
            return Ok(true);
        }
        if there.kind != meta.kind || meta.nlink <= NAMES_MAX[0] {
            return Ok(false);
        }
        // A run that changes something finds out by a link that the leader is full.
        let is_full = |nlink: u64| NAMES_MAX.contains(&nlink);
        let is_due = is_full(there.nlink)
            || !self.run.options.applies() && is_full(self.names_of(visit, leader)?);
        if !is_due || !self.is_equal_alone(met, there)? {
            return Ok(false);
        }
        self.tell_further(visit, name);
        self.run.links.add_further(meta.id(), there.id());
        Ok(true)
    }

    /// Returns how many names the leader of a group has on the replica, none if it is gone.
    fn names_of(&self, visit: &Visit, leader: &Leader) -> Result<u64, Trouble> {
        let (dir, name) = self.place_of(visit, leader)?;
        let there = there(dir.look(&name))?;
        Ok(there.map_or(0, |there| there.nlink))
    }

    /// Says once in a run that a file has more names than the replica's file system takes.
    fn tell_further(&self, visit: &Visit, name: &CStr) {
        if self.run.links.tells_further() {
            let path = visit.path_of(name);
            self.run.monitor.note(&format!(
                "\"{}\" has more names (hard links) than the replica's file system takes for one file: \
                such names are shared among several files",
                escape(path.as_bytes())
            ));
        }
    }
}
