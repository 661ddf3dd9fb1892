//! The spread of the catalogue: which node fetches it from which other node.
//!
//! The catalogue of many small files is large, and each node needs it before its first unit. So a
//! node that has it gives it to another one, and the number of givers doubles with each round. The
//! link of the coordinator carries a few catalogues, whatever the number of nodes.
//!
//! A state machine, as the planner is: events with a time go in, feeds come out. A receiver checks
//! each part by its hash, so a giver is believed nothing. A giver that failed once gives no more.

use crate::messages::{NodeId, SOURCE};
use std::collections::{BTreeMap, BTreeSet};

/// Catalogues that the coordinator sends at the same time.
const SOURCE_FEEDS: usize = 2;
/// Bytes of all catalogues together that the coordinator sends itself: the spread would take longer.
const DIRECT_BYTES_MAX: u64 = 4 << 20;
/// Time for connecting and for a queue of orders.
const FEED_MS: u64 = 2000;
/// Bytes a second below which another giver is better.
const SLOW_BYTES_PER_SECOND: u64 = 4 << 20;

/// An order to fetch the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogueFeed {
    /// Node that lacks the catalogue.
    pub to: NodeId,
    /// Node that gives it. The coordinator, if it is [`SOURCE`].
    pub from: NodeId,
}

/// A feed at work.
#[derive(Clone, Copy, Debug)]
struct FeedAtWork {
    from: NodeId,
    began_ms: u64,
    /// Whether the giver waits for the end of this feed.
    is_counted: bool,
}

/// Spread of the catalogue of one cast.
#[derive(Clone, Debug)]
pub struct CatalogueSpread {
    /// Place of each node in rack order. The coordinator has place 0.
    places: BTreeMap<NodeId, u64>,
    nodes: BTreeMap<u64, NodeId>,
    is_direct: bool,
    limit_ms: u64,
    /// Nodes that have the catalogue.
    holders: BTreeSet<NodeId>,
    /// Places of the givers that can begin a feed.
    idle: BTreeSet<u64>,
    /// Places of the nodes that wait for a giver.
    waiting: BTreeSet<u64>,
    /// Feeds by their receivers.
    feeds: BTreeMap<NodeId, FeedAtWork>,
    /// Nodes that failed as givers.
    failed: BTreeSet<NodeId>,
}

impl CatalogueSpread {
    /// Returns the spread of a catalogue to `nodes` in rack order.
    ///
    /// A rate is that of `--bwlimit`.
    pub fn new(
        catalogue_bytes: u64,
        nodes: impl IntoIterator<Item = NodeId>,
        bytes_per_second_max: Option<u64>,
    ) -> Self {
        let nodes: BTreeMap<u64, NodeId> = (1..).zip(nodes).chain([(0, SOURCE)]).collect();
        let count = u64::try_from(nodes.len()).unwrap_or(u64::MAX);
        let rate = bytes_per_second_max.map_or(SLOW_BYTES_PER_SECOND, |rate| rate / 4);
        let rate = rate.clamp(1, SLOW_BYTES_PER_SECOND);
        let feed_ms = catalogue_bytes.saturating_mul(1000) / rate;
        CatalogueSpread {
            places: nodes.iter().map(|(place, node)| (*node, *place)).collect(),
            nodes,
            is_direct: catalogue_bytes.saturating_mul(count) <= DIRECT_BYTES_MAX,
            limit_ms: FEED_MS.saturating_add(feed_ms),
            holders: BTreeSet::from([SOURCE]),
            idle: BTreeSet::from([0]),
            waiting: BTreeSet::new(),
            feeds: BTreeMap::new(),
            failed: BTreeSet::new(),
        }
    }

    /// Returns the time of a feed in milliseconds, after which its receiver gives up.
    pub fn limit_ms(&self) -> u64 {
        self.limit_ms
    }

    /// Notes that a node lacks the catalogue.
    pub fn lack(&mut self, now_ms: u64, node: NodeId) -> Vec<CatalogueFeed> {
        let Some(place) = self.places.get(&node).copied().filter(|place| *place > 0) else {
            return Vec::new();
        };
        self.forget(node);
        if self.is_direct {
            return vec![CatalogueFeed {
                to: node,
                from: SOURCE,
            }];
        }
        self.waiting.insert(place);
        self.assign(now_ms)
    }

    /// Notes that a node has the catalogue, and can give it.
    pub fn hold(&mut self, now_ms: u64, node: NodeId) -> Vec<CatalogueFeed> {
        let Some(place) = self.places.get(&node).copied() else {
            return Vec::new();
        };
        self.forget(node);
        self.holders.insert(node);
        if !self.is_direct && !self.failed.contains(&node) {
            self.idle.insert(place);
        }
        self.assign(now_ms)
    }

    /// Notes that a node could not fetch the catalogue, which the coordinator sends it then. Returns
    /// the giver that failed, and further feeds.
    pub fn fail(&mut self, now_ms: u64, node: NodeId) -> (Option<NodeId>, Vec<CatalogueFeed>) {
        let feed = self.feeds.get(&node).copied();
        let giver = feed.map(|feed| feed.from).filter(|from| *from != SOURCE);
        if let Some(giver) = giver {
            self.failed.insert(giver);
        }
        self.forget(node);
        if let Some(place) = giver.and_then(|giver| self.places.get(&giver)) {
            self.idle.remove(place);
        }
        (giver, self.assign(now_ms))
    }

    /// Notes that the connection to a node is lost.
    pub fn lose(&mut self, now_ms: u64, node: NodeId) -> Vec<CatalogueFeed> {
        self.forget(node);
        self.assign(now_ms)
    }

    /// Lets givers go on whose feeds take too long.
    pub fn tick(&mut self, now_ms: u64) -> Vec<CatalogueFeed> {
        let limit = self.limit_ms;
        let is_late = |feed: &FeedAtWork| now_ms.saturating_sub(feed.began_ms) > limit;
        let late = self.feeds.iter_mut();
        let late = late.filter(|(_, feed)| feed.is_counted && is_late(feed));
        let mut givers = Vec::new();
        for (_, feed) in late {
            feed.is_counted = false;
            givers.push(feed.from);
        }
        givers.into_iter().for_each(|giver| self.release(giver));
        self.assign(now_ms)
    }

    /// Forgets what is known of a node, and frees its giver.
    fn forget(&mut self, node: NodeId) {
        if let Some(place) = self.places.get(&node).filter(|place| **place > 0) {
            self.waiting.remove(place);
            self.idle.remove(place);
        }
        if node != SOURCE {
            self.holders.remove(&node);
        }
        if let Some(feed) = self.feeds.remove(&node)
            && feed.is_counted
        {
            self.release(feed.from);
        }
    }

    fn release(&mut self, giver: NodeId) {
        let can_give = self.holders.contains(&giver) && !self.failed.contains(&giver);
        if let Some(place) = self.places.get(&giver)
            && can_give
        {
            self.idle.insert(*place);
        }
    }

    /// Gives each waiting node the idle giver that is next to it in rack order.
    fn assign(&mut self, now_ms: u64) -> Vec<CatalogueFeed> {
        let mut feeds = Vec::new();
        while let Some(place) = self.waiting.first().copied() {
            let below = self.idle.range(..place).next_back().copied();
            let above = self.idle.range(place..).next().copied();
            let is_below = |below: &u64| {
                above.is_none_or(|above| place.abs_diff(*below) <= place.abs_diff(above))
            };
            let Some(giver) = below.filter(is_below).or(above) else {
                break;
            };
            let (Some(to), Some(from)) = (self.nodes.get(&place), self.nodes.get(&giver)) else {
                break;
            };
            let (to, from) = (*to, *from);
            self.waiting.remove(&place);
            self.feeds.insert(
                to,
                FeedAtWork {
                    from,
                    began_ms: now_ms,
                    is_counted: true,
                },
            );
            if from != SOURCE || self.feeds_of_source() >= SOURCE_FEEDS {
                self.idle.remove(&giver);
            }
            feeds.push(CatalogueFeed { to, from });
        }
        feeds
    }

    fn feeds_of_source(&self) -> usize {
        let feeds = self.feeds.values();
        let own = feeds.filter(|feed| feed.from == SOURCE && feed.is_counted);
        own.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: u64 = 15 << 20;

    fn spread(nodes: u32) -> CatalogueSpread {
        CatalogueSpread::new(LARGE, (1..=nodes).map(NodeId), None)
    }

    fn to(feeds: &[CatalogueFeed]) -> Vec<(u32, u32)> {
        feeds.iter().map(|feed| (feed.from.0, feed.to.0)).collect()
    }

    /// Runs rounds in which each feed succeeds. Returns the rounds and the feeds of the source.
    fn run(spread: &mut CatalogueSpread, nodes: u32) -> (u32, u32) {
        let mut feeds = Vec::new();
        for node in 1..=nodes {
            feeds.extend(spread.lack(0, NodeId(node)));
        }
        let (mut rounds, mut of_source, mut complete) = (0, 0, BTreeSet::new());
        while !feeds.is_empty() {
            rounds += 1;
            for feed in std::mem::take(&mut feeds) {
                of_source += u32::from(feed.from == SOURCE);
                assert!(feed.from == SOURCE || complete.contains(&feed.from));
                assert!(complete.insert(feed.to), "{feed:?}");
                feeds.extend(spread.hold(rounds.into(), feed.to));
            }
        }
        assert_eq!(complete.len(), nodes as usize);
        (rounds, of_source)
    }

    #[test]
    fn coordinator_sends_few_catalogues() {
        let (rounds, of_source) = run(&mut spread(128), 128);
        assert!(rounds <= 8 && of_source <= 16, "{rounds} {of_source}");
        let (rounds, of_source) = run(&mut spread(5000), 5000);
        assert!(rounds <= 14 && of_source <= 28, "{rounds} {of_source}");
    }

    #[test]
    fn small_catalogue_comes_from_the_coordinator() {
        let mut spread = CatalogueSpread::new(10_000, (1..=128).map(NodeId), None);
        let (rounds, of_source) = run(&mut spread, 128);
        assert_eq!((rounds, of_source), (1, 128));
    }

    #[test]
    fn neighbour_in_rack_order_gives() {
        let mut spread = CatalogueSpread::new(LARGE, [3, 1, 4, 2].map(NodeId), None);
        assert_eq!(to(&spread.lack(0, NodeId(3))), [(0, 3)]);
        assert_eq!(to(&spread.lack(0, NodeId(2))), [(0, 2)]);
        assert!(spread.lack(0, NodeId(1)).is_empty());
        assert_eq!(to(&spread.hold(1, NodeId(3))), [(3, 1)]);
        assert!(spread.hold(1, NodeId(2)).is_empty());
        assert_eq!(to(&spread.lack(1, NodeId(4))), [(2, 4)]);
    }

    #[test]
    fn failed_giver_gives_no_more() {
        let mut spread = spread(4);
        assert!(spread.hold(0, NodeId(2)).is_empty());
        assert_eq!(to(&spread.lack(0, NodeId(1))), [(0, 1)]);
        assert_eq!(to(&spread.lack(0, NodeId(3))), [(2, 3)]);
        let (giver, feeds) = spread.fail(1, NodeId(3));
        assert_eq!((giver, feeds.len()), (Some(NodeId(2)), 0));
        assert_eq!(to(&spread.lack(2, NodeId(4))), [(0, 4)]);
        assert!(spread.hold(3, NodeId(2)).is_empty());
        // The coordinator itself is never given up.
        assert_eq!(spread.fail(3, NodeId(4)).0, None);
        assert_eq!(to(&spread.lack(4, NodeId(3))), [(0, 3)]);
    }

    #[test]
    fn lost_nodes_hold_up_no_other() {
        let mut spread = spread(6);
        assert_eq!(to(&spread.lack(0, NodeId(1))), [(0, 1)]);
        assert_eq!(to(&spread.lack(0, NodeId(2))), [(0, 2)]);
        assert!(spread.lack(0, NodeId(3)).is_empty());
        assert!(spread.lack(0, NodeId(4)).is_empty());
        assert!(spread.lose(1, NodeId(4)).is_empty());
        assert_eq!(to(&spread.lose(1, NodeId(1))), [(0, 3)]);
        // A giver that is gone gives nothing, and comes back without the catalogue.
        assert!(spread.hold(2, NodeId(2)).is_empty());
        assert!(spread.lose(3, NodeId(2)).is_empty());
        assert_eq!(to(&spread.lack(3, NodeId(5))), [(0, 5)]);
    }

    #[test]
    fn slow_feed_frees_its_giver() {
        let mut spread = spread(4);
        for node in 1..=3 {
            spread.lack(0, NodeId(node));
        }
        assert!(spread.tick(spread.limit_ms()).is_empty());
        let late = spread.limit_ms() + 1;
        assert_eq!(to(&spread.tick(late)), [(0, 3)]);
        assert!(spread.tick(late).is_empty());
    }
}
