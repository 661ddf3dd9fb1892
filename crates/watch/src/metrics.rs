//! What Prometheus is told of an agent: names, meanings and values.
//!
//! `docs/metrics.md` describes them all, and a test holds the two and the board beside the page
//! against each other. Counters begin anew with the process, but for gaps, which are kept.

use crate::clock::now;
use crate::status::{PublisherStatus, Status, TreeStatus};
use driftless_metrics::{Metric, counter, flag, gauge, labels, seconds, whole, write};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Numbers of an agent.
pub const OF_AGENT: [Metric<Status>; 9] = [
    counter(
        "driftless_watch_messages_total",
        "Messages of shims that were read.",
        |status| whole(status.counts.messages),
    ),
    counter(
        "driftless_watch_unread_messages_total",
        "Of these, how many made no sense.",
        |status| whole(status.counts.unread),
    ),
    counter(
        "driftless_watch_dropped_messages_total",
        "Of these, how many were not heard, since their users said too much.",
        |status| whole(status.counts.dropped),
    ),
    counter(
        "driftless_watch_events_total",
        "Events of the kernel that were read.",
        |status| whole(status.counts.events),
    ),
    counter(
        "driftless_watch_posts_total",
        "Changes that users have posted.",
        |status| whole(status.counts.posts),
    ),
    counter(
        "driftless_watch_uncovered_files_total",
        "Files that programs have written and that no shim has announced.",
        |status| whole(status.counts.uncovered.values().sum()),
    ),
    gauge(
        "driftless_watch_is_deaf",
        "1 while a source of changes is not heard any more.",
        |status| flag(!status.counts.deaf.is_empty()),
    ),
    gauge(
        "driftless_watch_is_unsaved",
        "1 while what is told is not durable.",
        |status| flag(status.counts.unsaved.is_some()),
    ),
    gauge(
        "driftless_watch_away_mirrors",
        "Mirrors of this host that take nothing.",
        |status| {
            whole(
                status
                    .mirrors
                    .iter()
                    .filter(|one| one.away.is_some())
                    .count() as u64,
            )
        },
    ),
];

/// Numbers of each of its trees.
pub const OF_TREE: [Metric<TreeStatus>; 3] = [
    gauge(
        "driftless_watch_waiting_paths",
        "Paths that not every mirror has been told of, or that are not announced.",
        |tree| whole(tree.waiting),
    ),
    gauge(
        "driftless_watch_waiting_seconds",
        "For how long the oldest of these has waited.",
        |tree| since(tree.oldest_ms),
    ),
    counter(
        "driftless_watch_gaps_total",
        "How often something may have been missed.",
        |tree| whole(tree.gaps.count),
    ),
];

/// Numbers of what it announces through a broker.
pub const OF_PUBLISHER: [Metric<PublisherStatus>; 5] = [
    gauge(
        "driftless_watch_is_mute",
        "1 while changes cannot be announced.",
        |publisher| flag(publisher.away.is_some()),
    ),
    gauge(
        "driftless_watch_unannounced_paths",
        "Paths that wait to be announced, or for the broker to confirm it.",
        |publisher| whole(publisher.waiting),
    ),
    gauge(
        "driftless_watch_unannounced_seconds",
        "For how long the oldest of these has waited.",
        |publisher| since(publisher.oldest_ms),
    ),
    counter(
        "driftless_watch_announcements_total",
        "Announcements that the broker has taken.",
        |publisher| whole(publisher.sent),
    ),
    counter(
        "driftless_watch_unwanted_announcements_total",
        "Announcements that no queue wanted.",
        |publisher| whole(publisher.unheard),
    ),
];

/// What has passed since a moment, in milliseconds since 1970; nothing if there is none.
fn since(moment: Option<u64>) -> Option<f64> {
    let passed = |moment| now().saturating_sub(Duration::from_millis(moment));
    seconds(moment.map_or(Duration::ZERO, passed))
}

/// Begins to answer who asks for the metrics of an agent at an address, which is returned.
///
/// # Errors
/// Nobody can listen there.
pub fn listen(
    address: SocketAddr,
    status: impl Fn() -> Status + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    driftless_metrics::listen(address, move |_| Some(text(&status())))
}

/// What is told of an agent.
pub fn text(status: &Status) -> String {
    let mut text = String::new();
    let agent = ("agent", status.name.as_str());
    let trees = status.trees.iter();
    let trees = trees.map(|tree| (labels(&[agent, ("tree", &tree.path)]), tree));
    let publisher = status.publisher.iter();
    let publisher = publisher.map(|publisher| (labels(&[agent]), publisher));
    write(&mut text, &OF_AGENT, &[(labels(&[agent]), status)]);
    write(&mut text, &OF_TREE, &trees.collect::<Vec<_>>());
    write(&mut text, &OF_PUBLISHER, &publisher.collect::<Vec<_>>());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_they_count_in() {
        let agent = OF_AGENT
            .map(|metric| (metric.name, metric.kind))
            .into_iter();
        let tree = OF_TREE.map(|metric| (metric.name, metric.kind));
        let publisher = OF_PUBLISHER.map(|metric| (metric.name, metric.kind));
        let all = agent.chain(tree).chain(publisher);
        assert_eq!(driftless_metrics::misnamed(all), None);
    }

    #[test]
    fn what_is_announced_is_told_where_it_is_and_trees_each_for_themselves() {
        let tree = |path: &str| TreeStatus {
            path: path.into(),
            waiting: 7,
            oldest_ms: Some(0),
            gaps: crate::status::GapStatus::default(),
        };
        let mut status = Status {
            name: "node".into(),
            trees: vec![tree("/a"), tree("/b")],
            ..Status::default()
        };
        let told = text(&status);
        assert!(
            told.contains("waiting_paths{agent=\"node\",tree=\"/b\"} 7\n"),
            "{told}"
        );
        assert!(!told.contains("unannounced_paths{"), "{told}");
        status.publisher = Some(PublisherStatus {
            waiting: 3,
            away: Some("refused".into()),
            ..PublisherStatus::default()
        });
        let told = text(&status);
        for line in [
            "driftless_watch_is_mute{agent=\"node\"} 1",
            "driftless_watch_unannounced_paths{agent=\"node\"} 3",
            "driftless_watch_unannounced_seconds{agent=\"node\"} 0",
        ] {
            assert!(told.lines().any(|one| one == line), "{line}: {told}");
        }
    }
}
