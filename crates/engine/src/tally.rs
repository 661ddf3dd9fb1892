//! What a run has done so far: counters that add up, readable at any time.
//!
//! seen = same + changed + skipped + failed, always, once the run is over: every entry is accounted
//! for.

use driftless_model::Class;
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Why an entry was left out on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A filter or a bound on its size.
    Filtered,
    /// Its kind is not kept.
    Kind,
    /// It lies on another file system.
    OtherFileSystem,
    /// It vanished from the source before it was looked at.
    Vanished,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of a run in progress.
        #[derive(Debug, Default)]
        pub struct Tally { $($(#[$doc])* pub $name: AtomicU64,)* }

        /// Counters at one moment.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        impl Counts {
            /// Adds what others counted.
            pub fn add(&mut self, more: &Counts) {
                $(self.$name = self.$name.wrapping_add(more.$name);)*
            }

            /// Each counter with its name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// The counters that have these names; others are 0, and names that no counter has are
            /// passed over.
            pub fn of_named<'n>(named: impl Iterator<Item = (&'n str, u64)>) -> Counts {
                let mut counts = Counts::default();
                for (name, value) in named {
                    match name {
                        $(stringify!($name) => counts.$name = value,)*
                        _ => {}
                    }
                }
                counts
            }
        }

        impl Tally {
            /// The counters now.
            pub fn counts(&self) -> Counts {
                Counts { $($name: self.$name.load(Relaxed),)* }
            }

            /// Adds what others counted.
            pub fn add(&self, counts: &Counts) {
                $(add(&self.$name, counts.$name);)*
            }
        }
    };
}

counters! {
    /// Entries of the source that were met.
    seen,
    /// Entries that were equal already.
    same,
    /// Entries that were made equal.
    changed,
    /// Entries that were made equal before all was looked at once more; they were met again, and
    /// are counted among the others.
    changed_before,
    /// Entries left out by a filter or a bound on size.
    skipped_filtered,
    /// Entries left out because their kind is not kept.
    skipped_kind,
    /// Directories left out because they lie on another file system.
    skipped_other_fs,
    /// Entries that vanished before they were looked at.
    skipped_vanished,
    /// Entries that are not equal: each has a problem.
    failed,
    /// Problems, by what follows: the source changes.
    problems_changing,
    /// Problems: a property could not be kept.
    problems_partly,
    /// Problems: the entry was left as it was.
    problems_skip,
    /// Entries whose owner or group the user of the run cannot give.
    unkept_owners,
    /// Capabilities and trusted attributes of entries that the user of the run may not set.
    unkept_privileges,
    /// Symbolic links whose owner and times the replica's file system cannot set.
    unkept_links,
    /// Entries with flags of their inodes that their copies do not have.
    unkept_flags,
    /// Entries with ACLs of a kind that is not copied.
    unkept_acls,
    /// Entries whose time agrees as far as the replica keeps it: parts of a second are lost.
    times_cut_fine,
    /// Entries whose time agrees as far as the replica keeps it: whole seconds, or within the
    /// window.
    times_cut_seconds,
    /// Files whose content was compared before, by a run that was interrupted.
    known_equal,
    /// Age in seconds of the oldest note of an interrupted run that was used.
    oldest_note_seconds,
    /// Times that what was read back was not what had been written.
    mismatched,
    /// Entries that were given the source's spelling on a replica that takes no heed of it.
    respelt,
    /// Entries removed from the replica, also from directories that something else took the place
    /// of.
    deleted,
    /// Entries of the replica that the source lacks and that stay there; those below them are not
    /// among it.
    only_on_replica,
    /// Of these, entries in or below which something was changed since an earlier run that was not
    /// made durable: the first at least.
    kept_in_doubt,
    /// Entries met on the replica.
    replica_seen,
    /// Bytes of content copied.
    bytes_copied,
    /// Bytes of the source whose content was compared.
    bytes_compared,
    /// Bytes that an interrupted run had copied already.
    bytes_resumed,
    /// Bytes of all regular files met.
    bytes_seen,
    /// Share of the walk that is over, in parts of 2^60.
    walked,
}

/// The whole walk, in the unit of `walked`.
pub const WHOLE_WALK: u64 = 1 << 60;

/// Adds to a counter. All threads share its line of the cache, so where there is nothing to add it
/// is left alone.
pub fn add(counter: &AtomicU64, n: u64) {
    if n > 0 {
        counter.fetch_add(n, Relaxed);
    }
}

impl Tally {
    /// Counts an entry that was left out.
    pub fn skip(&self, reason: Reason) {
        let counter = match reason {
            Reason::Filtered => &self.skipped_filtered,
            Reason::Kind => &self.skipped_kind,
            Reason::OtherFileSystem => &self.skipped_other_fs,
            Reason::Vanished => &self.skipped_vanished,
        };
        add(counter, 1);
    }

    /// Counts a problem.
    pub fn problem(&self, class: Class) {
        let counter = match class {
            Class::Changing => &self.problems_changing,
            Class::Partly => &self.problems_partly,
            Class::Skip | Class::Stop => &self.problems_skip,
        };
        add(counter, 1);
    }
}

/// What others counted may be anything.
fn sum<const N: usize>(counts: [u64; N]) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

impl Counts {
    /// Entries left out, for whatever reason.
    pub fn skipped(&self) -> u64 {
        sum([
            self.skipped_filtered,
            self.skipped_kind,
            self.skipped_other_fs,
            self.skipped_vanished,
        ])
    }

    /// Problems of all kinds.
    pub fn problems(&self) -> u64 {
        sum([
            self.problems_changing,
            self.problems_partly,
            self.problems_skip,
        ])
    }

    /// Entries of which something is not kept that counts as no problem.
    pub fn unkept(&self) -> u64 {
        let given = [
            self.unkept_owners,
            self.unkept_privileges,
            self.unkept_links,
            self.unkept_flags,
            self.unkept_acls,
        ];
        sum(given).saturating_add(sum([self.times_cut_fine, self.times_cut_seconds]))
    }

    /// What still counts when everything is looked at once more: what was done, and no entry.
    #[must_use]
    pub fn before_another_look(&self) -> Counts {
        Counts {
            changed_before: self.changed_before + self.changed,
            deleted: self.deleted,
            mismatched: self.mismatched,
            bytes_copied: self.bytes_copied,
            bytes_compared: self.bytes_compared,
            bytes_resumed: self.bytes_resumed,
            ..Counts::default()
        }
    }

    /// Whether every entry that was seen is accounted for.
    pub fn adds_up(&self) -> bool {
        self.seen == sum([self.same, self.changed, self.skipped(), self.failed])
    }

    /// The share of the walk that is over, 0 to 1.
    pub fn walked_share(&self) -> f64 {
        self.walked as f64 / WHOLE_WALK as f64
    }
}
