//! What may have changed in a gap: the source alone is looked at, and times of change say which of
//! its entries a replica has to be compared with.
//!
//! Nobody can set a time of change (ctime), and the kernel sets it at each change of an entry and
//! of a directory's names. So an entry whose ctime is older than the gap has not changed in it, as
//! long as the same kernel has had the file system mounted ([`Place`](crate::place::Place)) and its
//! clock was not set back ([`Clock`](crate::place::Clock)): whoever asks must know that.
//! What happens while a scan looks must be heard of by other means.

mod scan;

pub use scan::{has_own_clock, scan};

use driftless_model::{Change, Stamp};

/// A gap begins so many seconds earlier than is known. A write(2) sets the time when it begins, and
/// may take long to bring 2 GiB to a disk that is busy; small inodes of ext4 know whole seconds;
/// the kernel's coarse clock is behind by some milliseconds, and may be set back by a leap second.
pub const SLACK_SECONDS: i64 = 10;

/// More changes than this are not told apart: all is to be compared.
const CHANGES_MAX: usize = 100_000;
/// More directories than this do not wait to be looked at: all is to be compared.
const WAITING_MAX: usize = 500_000;

/// What a scan has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Only these may differ.
    Changes(Vec<Change>),
    /// It cannot be said: too much has changed, or the file system's times cannot be trusted.
    All,
    /// It was to stop.
    Stopped,
}

/// What is known of the times of a file system. Checked by `crates/detect/tests/gap.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Habits {
    /// Directories of one parent that change places (`RENAME_EXCHANGE` of rename(2)) keep their
    /// times; only that of the parent changes. The other one may be gone by now.
    hides_exchange: bool,
}

/// `EXT4_SUPER_MAGIC` and others of statfs(2).
const EXT4: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;
const TMPFS: u64 = 0x0102_1994;

/// Of a file system of this kind (statfs(2), `f_type`); none if its times are not known well
/// enough.
fn habits(kind: u64) -> Option<Habits> {
    let hides_exchange = match kind {
        EXT4 | BTRFS | TMPFS => false,
        XFS => true,
        _ => return None,
    };
    Some(Habits { hides_exchange })
}

/// What one directory with its entries comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    /// Its ctime is within the gap.
    is_changed: bool,
    /// So is that of the directory above it.
    is_above_changed: bool,
    /// How many directories it has.
    dirs: u64,
}

/// What is to be compared of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// Nothing but those of its entries that have changed.
    Entries,
    /// Its names, and the entries that are no directories.
    Names,
    /// All below it.
    All,
}

impl Look {
    /// A directory that changed beside its parent may have been moved there: what is below has old
    /// times then, and may be new to the replica.
    fn doubt(self, habits: Habits) -> Doubt {
        let may_hide = habits.hides_exchange && self.dirs > 0;
        match (self.is_changed, self.is_above_changed) {
            (false, _) => Doubt::Entries,
            (true, true) => Doubt::All,
            (true, false) if may_hide => Doubt::All,
            (true, false) => Doubt::Names,
        }
    }
}

/// Returns the moment from which on times of change count, in a gap since a moment.
pub fn begin_of(since: Stamp) -> Stamp {
    Stamp {
        sec: since.sec.saturating_sub(SLACK_SECONDS),
        ..since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_compared_no_further_than_what_may_have_happened_to_it() {
        let (plain, hiding) = (habits(EXT4).unwrap(), habits(XFS).unwrap());
        for (is_changed, is_above_changed, dirs, of_plain, of_hiding) in [
            (false, false, 5, Doubt::Entries, Doubt::Entries),
            (false, true, 5, Doubt::Entries, Doubt::Entries),
            (true, false, 0, Doubt::Names, Doubt::Names),
            (true, false, 1, Doubt::Names, Doubt::All),
            (true, true, 0, Doubt::All, Doubt::All),
        ] {
            let look = Look {
                is_changed,
                is_above_changed,
                dirs,
            };
            assert_eq!(look.doubt(plain), of_plain, "{look:?}");
            assert_eq!(look.doubt(hiding), of_hiding, "{look:?}");
        }
        assert_eq!(habits(0x6969), None, "NFS");
    }
}
