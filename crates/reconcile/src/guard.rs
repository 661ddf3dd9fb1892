//! The guard before deletes: it sees the whole plan and refuses it as a whole.

use driftless_model::DeleteLimit;
use thiserror::Error;

/// Why a plan of deletes was refused. Nothing was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The source has nothing although the replica has something: an unmounted file system looks
    /// like that.
    #[error("the source is empty and the replica is not; is it mounted? nothing was deleted")]
    EmptySource,
    /// The source cannot be listed.
    #[error("the source cannot be read ({0}) and the replica is not empty; nothing was deleted")]
    UnreadableSource(String),
    /// No name at the top of the replica is one of the source's: the wrong directory looks like
    /// that.
    #[error(
        "\"{replica}\" is not empty, and shares no top-level name with the source: it looks like another tree; nothing was touched (--delete-unlike deletes nevertheless)"
    )]
    Unlike {
        /// The replica.
        replica: String,
        /// The replica that may have been meant, as it would be typed.
        meant: Option<Vec<u8>>,
    },
    /// The replica holds other entries and none of the source's, and nothing would be deleted: the
    /// directory above the replica looks like that.
    #[error(
        "\"{replica}\": cannot copy \"{source_path}\" into it: it holds {held}, and shares no top-level name with the source; nothing was touched; name a directory of its own, or give --copy-into to copy beside these entries"
    )]
    OtherEntries {
        /// The source.
        source_path: String,
        /// The replica.
        replica: String,
        /// Entries that it holds.
        held: String,
        /// The replica that may have been meant, as it would be typed.
        meant: Option<Vec<u8>>,
    },
    /// Something that must be there on both sides is not: an unmounted file system looks like that.
    #[error(
        "\"{path}\": missing on the {side}: {cause} (--require); nothing was touched; mount its file system, or create it"
    )]
    Lacking {
        /// On which side.
        side: &'static str,
        /// Its path below the root.
        path: String,
        /// Why, in words.
        cause: String,
    },
    /// More than the limit.
    #[error("entries to delete: {deletes}, allowed: {allowed} (--max-delete); nothing was deleted")]
    TooMany {
        /// Entries that would go.
        deletes: u64,
        /// Entries that may go.
        allowed: u64,
    },
}

/// Decides about a plan of deletes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Guard {
    /// The limit, if one was given.
    pub limit: Option<DeleteLimit>,
}

impl Guard {
    /// How many of `entries` entries on the replica may be deleted.
    pub fn allowed(&self, entries: u64) -> u64 {
        match self.limit {
            None => u64::MAX,
            Some(DeleteLimit::Count(count)) => count,
            Some(DeleteLimit::Percent(percent)) => {
                (u128::from(entries) * u128::from(percent) / 100) as u64
            }
        }
    }

    /// Passes or refuses a plan that deletes `deletes` of `entries` entries.
    pub fn check(&self, deletes: u64, entries: u64) -> Result<(), Refusal> {
        let allowed = self.allowed(entries);
        if deletes > allowed {
            Err(Refusal::TooMany { deletes, allowed })
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_over_the_limit_is_refused_whole() {
        let cases = [
            (None, 1000, 1000, true),
            (Some(DeleteLimit::Count(0)), 1, 10, false),
            (Some(DeleteLimit::Count(5)), 5, 10, true),
            (Some(DeleteLimit::Percent(10)), 10, 100, true),
            (Some(DeleteLimit::Percent(10)), 11, 100, false),
            (Some(DeleteLimit::Percent(100)), 100, 100, true),
        ];
        for (limit, deletes, entries, passes) in cases {
            assert_eq!(
                Guard { limit }.check(deletes, entries).is_ok(),
                passes,
                "{limit:?} {deletes} {entries}"
            );
        }
    }
}
