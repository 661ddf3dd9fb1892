//! What a removal on another host spares, and what came of it, as they go over the connection.
//!
//! The rules travel with the request, so that the whole walk is over there: one round trip for a
//! tree and not one for each entry.

use crate::wire::bounds::at_most;
use crate::wire::fault::WireFault;
use driftless_model::{Filter, FilterError, RelPath, Rule, Side};
use driftless_tree::{Removed, STUCK_MAX, Spared};
use serde::{Deserialize, Serialize};

/// Rules at most.
const RULES_MAX: usize = 64 << 10;

/// Filter rules as text, and the path at which they see the directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Rules {
    #[serde(deserialize_with = "at_most::<RULES_MAX, _, _>")]
    rules: Vec<(bool, String)>,
    at: RelPath,
}

/// Entries that a removal spares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireSpared {
    rules: Option<Rules>,
    kept: Option<(u64, u64)>,
}

/// The same, where the removal is.
#[derive(Debug, Default)]
pub struct Sparing {
    /// Rules that spare what they leave out, and the path at which they see the directory.
    pub rules: Option<(Filter, RelPath)>,
    /// Device and inode of a directory that stays.
    pub kept: Option<(u64, u64)>,
}

impl WireSpared {
    /// Returns `None` if nothing is spared.
    pub fn of(spared: Spared<'_>) -> Option<Self> {
        let (rules, kept) = (spared.rules.map(Rules::of), spared.kept);
        (rules.is_some() || kept.is_some()).then_some(WireSpared { rules, kept })
    }

    /// Parses the rules.
    ///
    /// # Errors
    /// A rule cannot be understood.
    pub fn open(self) -> Result<Sparing, FilterError> {
        let (rules, kept) = (self.rules.map(Rules::open).transpose()?, self.kept);
        Ok(Sparing { rules, kept })
    }
}

impl Rules {
    fn of((filter, at): (&Filter, &RelPath)) -> Rules {
        Rules {
            rules: filter
                .rules
                .iter()
                .map(|rule| (rule.includes(), rule.pattern().to_owned()))
                .collect(),
            at: at.clone(),
        }
    }

    fn open(self) -> Result<(Filter, RelPath), FilterError> {
        let rules: Result<Vec<Rule>, FilterError> = self
            .rules
            .iter()
            .map(|(include, pattern)| Rule::new(*include, pattern))
            .collect();
        Ok((
            Filter {
                rules: rules?,
                ..Filter::default()
            },
            self.at,
        ))
    }
}

/// What a removal did.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct WireRemoved {
    entries: u64,
    met: u64,
    spares: bool,
    #[serde(deserialize_with = "at_most::<STUCK_MAX, _, _>")]
    stuck: Vec<(RelPath, WireFault)>,
}

impl From<Removed> for WireRemoved {
    fn from(
        Removed {
            entries,
            met,
            spares,
            stuck,
        }: Removed,
    ) -> Self {
        WireRemoved {
            entries,
            met,
            spares,
            stuck: stuck
                .into_iter()
                .map(|(path, fault)| (path, fault.into()))
                .collect(),
        }
    }
}

impl WireRemoved {
    /// On the side of the tree that it happened on.
    pub fn on(self, side: Side) -> Removed {
        let WireRemoved {
            entries,
            met,
            spares,
            stuck,
        } = self;
        Removed {
            entries,
            met,
            spares,
            stuck: stuck
                .into_iter()
                .map(|(path, fault)| (path, fault.on(side)))
                .collect(),
        }
    }
}
