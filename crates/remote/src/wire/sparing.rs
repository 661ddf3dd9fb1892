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

/// Rules that spare what they leave out, as text, and the path that they see the directory at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SparingRules {
    #[serde(deserialize_with = "at_most::<RULES_MAX, _, _>")]
    rules: Vec<(bool, String)>,
    at: RelPath,
}

impl SparingRules {
    /// As they travel.
    pub fn of(spared: Spared<'_>) -> Option<Self> {
        let (filter, at) = spared.rules?;
        Some(SparingRules {
            rules: filter
                .rules
                .iter()
                .map(|rule| (rule.includes(), rule.pattern().to_owned()))
                .collect(),
            at: at.clone(),
        })
    }

    /// As they are asked.
    ///
    /// # Errors
    /// A rule cannot be understood.
    pub fn open(self) -> Result<(Filter, RelPath), FilterError> {
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
