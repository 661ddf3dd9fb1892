//! Connections of bundles that are not complete, grouped by peer and identifier.

use crate::opening::LinkOpening;
use crate::{DataLink, PeerKey};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Incomplete bundles at a time. The oldest one gives way.
const BUNDLES_MAX: usize = 64;

/// Connections of one bundle, in the order of their places.
struct PartialBundle {
    links: BTreeMap<u8, DataLink>,
    count: u8,
    begin: Instant,
}

/// Bundles that wait for further connections.
pub(crate) struct BundleGathering {
    limit: Duration,
    bundles: BTreeMap<(PeerKey, [u8; 16]), PartialBundle>,
}

impl BundleGathering {
    /// Returns an empty table, which drops bundles that are incomplete after `limit`.
    pub(crate) fn new(limit: Duration) -> Self {
        BundleGathering {
            limit,
            bundles: BTreeMap::new(),
        }
    }

    /// Adds a connection. Returns the connections of its bundle once all have arrived.
    pub(crate) fn add(&mut self, link: DataLink, opening: LinkOpening) -> Option<Vec<DataLink>> {
        self.bundles
            .retain(|_, bundle| bundle.begin.elapsed() < self.limit);
        let name = (link.peer().key, opening.id);
        let bundle = self.bundles.entry(name).or_insert_with(|| PartialBundle {
            links: BTreeMap::new(),
            count: opening.count,
            begin: Instant::now(),
        });
        let is_consistent = bundle.count == opening.count;
        if is_consistent {
            bundle.links.entry(opening.index).or_insert(link);
        }
        if bundle.links.len() == usize::from(bundle.count) {
            let bundle = self.bundles.remove(&name)?;
            return Some(bundle.links.into_values().collect());
        }
        self.drop_oldest();
        None
    }

    fn drop_oldest(&mut self) {
        if self.bundles.len() > BUNDLES_MAX {
            let oldest = self.bundles.iter().min_by_key(|(_, bundle)| bundle.begin);
            if let Some(name) = oldest.map(|(name, _)| *name) {
                self.bundles.remove(&name);
            }
        }
    }
}
