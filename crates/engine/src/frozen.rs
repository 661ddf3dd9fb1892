//! Why root itself may not do something: flags of inodes that keep everybody from changing them (chattr(1)). The kernel says no more than
//! "operation not permitted", so where it says that of the replica, the entry and its directory are looked at for such flags.

use crate::job::descend;
use crate::run::Run;
use driftless_model::{Fault, RelPath, Side, Unkept};
use std::ffi::CString;

const OWN: [(Unkept, &str); 2] = [
    (Unkept::IMMUTABLE, "it is immutable there: \"chattr -i\" frees it"),
    (Unkept::APPEND_ONLY, "it is append-only there: \"chattr -a\" frees it"),
];
const ABOVE: [(Unkept, &str); 2] = [
    (Unkept::IMMUTABLE, "its directory is immutable there: \"chattr -i\" frees it"),
    (Unkept::APPEND_ONLY, "its directory is append-only there: \"chattr -a\" frees it"),
];

impl Run<'_> {
    /// The flag for which something was refused, in words.
    pub fn frozen(&self, path: &RelPath, fault: &Fault) -> Option<&'static str> {
        const EPERM: i32 = 1;
        let replica = self.roots.1.as_ref().filter(|_| fault.side == Side::Replica && fault.errno == EPERM)?;
        let named =
            |flags: Unkept, words: &[(Unkept, &'static str)]| words.iter().find(|(flag, _)| flags.has(*flag)).map(|(_, words)| *words);
        let Some((above, name)) = path.split_last() else { return named(replica.first_meta().unkept, &OWN) };
        let dir = descend(replica, &above).ok()?;
        let own = CString::new(name).ok().and_then(|name| dir.look(&name).ok()).and_then(|there| named(there.unkept, &OWN));
        own.or_else(|| named(dir.first_meta().unkept, &ABOVE))
    }
}
