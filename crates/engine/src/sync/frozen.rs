//! Why something is refused that modes allow: flags of inodes that keep everybody, root too, from
//! changing them (chattr(1)), and sticky directories. The kernel says no more than "operation not
//! permitted", so where it says that of the replica, the entry and its directory are looked at.

use crate::sync::run::Run;
use driftless_model::{Act, Fault, Meta, RelPath, Side, Unkept, errno};
use driftless_tree::descend_mut;
use std::ffi::CString;
use std::sync::atomic::Ordering::Relaxed;

const OWN: [(Unkept, &str); 2] = [
    (
        Unkept::IMMUTABLE,
        "it is immutable there: \"chattr -i\" frees it",
    ),
    (
        Unkept::APPEND_ONLY,
        "it is append-only there: \"chattr -a\" frees it",
    ),
];
const ABOVE: [(Unkept, &str); 2] = [
    (
        Unkept::IMMUTABLE,
        "its directory is immutable there: \"chattr -i\" frees it",
    ),
    (
        Unkept::APPEND_ONLY,
        "its directory is append-only there: \"chattr -a\" frees it",
    ),
];
const STICKY: &str = "its directory is sticky there, and it belongs to another user";

impl Run<'_> {
    /// The flag, or the sticky bit, for which something was refused, in words.
    pub fn frozen(&self, path: &RelPath, fault: &Fault) -> Option<&'static str> {
        let replica = self
            .roots
            .1
            .as_ref()
            .filter(|_| fault.side == Side::Replica && fault.errno == errno::EPERM)?;
        let named = |flags: Unkept, words: &[(Unkept, &'static str)]| {
            words
                .iter()
                .find(|(flag, _)| flags.has(*flag))
                .map(|(_, words)| *words)
        };
        let Some((above, name)) = path.split_last() else {
            return named(replica.first_meta().unkept, &OWN);
        };
        let dir = descend_mut(replica, &above).ok()?;
        // A tree that stays open may remember it as it was.
        let (around, there) = (
            dir.meta().unwrap_or(*dir.first_meta()),
            CString::new(name)
                .ok()
                .and_then(|name| dir.look(&name).ok()),
        );
        let own = there.as_ref().and_then(|there| named(there.unkept, &OWN));
        let sticky = || {
            there
                .as_ref()
                .filter(|there| takes_name(fault.act) && self.is_held_by_sticky(&around, there))
                .map(|_| STICKY)
        };
        if around.unkept.has(Unkept::APPEND_ONLY) {
            self.ground.has_append_only.store(true, Relaxed);
        }
        own.or_else(|| named(around.unkept, &ABOVE)).or_else(sticky)
    }

    /// In a sticky directory a name goes only by the owner of what has it, by the directory's and
    /// by root (unlink(2), rename(2)).
    fn is_held_by_sticky(&self, around: &Meta, there: &Meta) -> bool {
        const STICKY_BIT: u32 = 0o1000;
        let is_others = |uid| {
            self.ground
                .rights
                .as_ref()
                .is_some_and(|rights| rights.uid != uid)
        };
        around.mode & STICKY_BIT != 0 && is_others(around.uid) && is_others(there.uid)
    }
}

fn takes_name(act: Act) -> bool {
    matches!(
        act,
        Act::Remove | Act::RemoveDirectory | Act::Rename | Act::Replace | Act::ReplaceDirectory
    )
}
