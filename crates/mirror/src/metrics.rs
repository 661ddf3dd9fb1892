//! What Prometheus is told of a mirror: names, meanings and values, in its text format
//! (prometheus.io/docs/instrumenting/exposition_formats).
//!
//! All names stand in [`METRICS`] and [`LAG`]; `docs/metrics.md` describes them, and a test holds the
//! two and the board beside the page against each other. Counters begin anew with the process.

pub use driftless_metrics::check;

use crate::hub::statuses;
use crate::message::Inboxes;
use crate::status::{LAG_BOUNDS, Status};
use driftless_metrics::{Metric, counter, flag, gauge, head, seconds, whole};
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The histogram of how long changes took to the replica.
pub const LAG: (&str, &str) = (
    "driftless_mirror_lag_seconds",
    "How long changes took from when they were heard of until they were durable on the replica.",
);

/// All numbers but the histogram.
pub const METRICS: [Metric<Status>; 35] = [
    gauge(
        "driftless_mirror_behind_seconds",
        "Since when the oldest change waits that is not on the replica.",
        |status| seconds(status.behind()).filter(|_| !status.is_unknown),
    ),
    gauge(
        "driftless_mirror_rpo_seconds",
        "How far the replica may be behind.",
        |status| seconds(status.rpo),
    ),
    gauge(
        "driftless_mirror_equal_until_timestamp_seconds",
        "The replica has everything that happened before.",
        |status| status.equal_until.and_then(seconds),
    ),
    gauge(
        "driftless_mirror_start_timestamp_seconds",
        "When the mirror began.",
        |status| seconds(status.began),
    ),
    gauge(
        "driftless_mirror_left_paths",
        "Paths that are left to do.",
        |status| whole(status.left),
    ),
    gauge(
        "driftless_mirror_quarantined_paths",
        "Paths that have failed so often that they are tried seldom.",
        |status| whole(status.quarantined),
    ),
    gauge(
        "driftless_mirror_problem_paths",
        "Paths that have a problem.",
        |status| whole(status.problems),
    ),
    gauge(
        "driftless_mirror_pool_members",
        "Followers that work on the replica together with this mirror.",
        |status| whole(status.pool.len() as u64),
    ),
    gauge(
        "driftless_mirror_pool_left_paths",
        "Paths that are left to do for followers.",
        |status| whole(status.pool.iter().map(|one| one.left).sum()),
    ),
    gauge(
        "driftless_mirror_is_away",
        "1 while a tree is out of reach.",
        |status| flag(status.away.is_some()),
    ),
    gauge(
        "driftless_mirror_is_paused",
        "1 while it is paused.",
        |status| flag(status.is_paused),
    ),
    gauge("driftless_mirror_is_quiet", "1 in quiet hours.", |status| {
        flag(status.is_quiet)
    }),
    gauge(
        "driftless_mirror_is_walking",
        "1 while all is compared.",
        |status| flag(status.is_walking),
    ),
    gauge(
        "driftless_mirror_is_first_copy",
        "1 until the replica was equal for the first time.",
        |status| flag(status.is_first_copy()),
    ),
    gauge(
        "driftless_mirror_walk_ratio",
        "Estimated share of the comparison that runs now, 0 to 1.",
        |status| Some(status.comparing?.share),
    ),
    gauge(
        "driftless_mirror_walk_left_seconds",
        "Estimated time to its end.",
        |status| seconds(status.comparing?.left?),
    ),
    gauge(
        "driftless_mirror_walk_seen_entries",
        "Entries that it has seen so far.",
        |status| whole(status.comparing?.seen),
    ),
    gauge(
        "driftless_mirror_is_deaf",
        "1 when changes are not heard of any more.",
        |status| flag(status.deaf.is_some()),
    ),
    gauge(
        "driftless_mirror_is_unsaved",
        "1 while the state cannot be written.",
        |status| flag(status.forgets.is_some()),
    ),
    gauge(
        "driftless_mirror_is_mute",
        "1 while changes cannot be announced.",
        |status| flag(status.told.as_ref()?.away.is_some()),
    ),
    gauge(
        "driftless_mirror_unannounced_changes",
        "Changes that wait to be announced.",
        |status| whole(status.told.as_ref()?.waiting),
    ),
    gauge(
        "driftless_mirror_unannounced_seconds",
        "For how long the oldest of these has waited.",
        |status| seconds(status.unannounced()?),
    ),
    counter(
        "driftless_mirror_announcements_total",
        "Announcements that the broker has taken.",
        |status| whole(status.told.as_ref()?.announced),
    ),
    counter(
        "driftless_mirror_unwanted_announcements_total",
        "Announcements that no queue wanted.",
        |status| whole(status.told.as_ref()?.unheard),
    ),
    counter(
        "driftless_mirror_events_total",
        "Changes that were told by a detector.",
        |status| whole(status.events),
    ),
    counter(
        "driftless_mirror_overflows_total",
        "How often a detector has lost some.",
        |status| whole(status.overflows),
    ),
    counter(
        "driftless_mirror_changed_entries_total",
        "Entries that were changed on the replica.",
        |status| whole(status.changed),
    ),
    counter(
        "driftless_mirror_deleted_entries_total",
        "Entries that were deleted on the replica.",
        |status| whole(status.deleted),
    ),
    counter(
        "driftless_mirror_copied_bytes_total",
        "Bytes that were copied.",
        |status| whole(status.bytes_copied),
    ),
    counter(
        "driftless_mirror_walks_total",
        "Comparisons of all that have ended.",
        |status| whole(status.walk.count),
    ),
    counter(
        "driftless_mirror_missed_changes_total",
        "Entries that comparisons have changed and that no detector had told of.",
        |status| whole(status.walk.missed),
    ),
    counter(
        "driftless_mirror_cycles_total",
        "Cycles of snapshots that are complete.",
        |status| whole(status.cycle.as_ref()?.count),
    ),
    gauge(
        "driftless_mirror_walk_end_timestamp_seconds",
        "When the last comparison of all ended.",
        |status| status.walk.ended.and_then(seconds),
    ),
    gauge(
        "driftless_mirror_walk_duration_seconds",
        "How long it took.",
        |status| status.walk.ended.and(seconds(status.walk.took)),
    ),
    gauge(
        "driftless_mirror_walk_entries",
        "Entries that it met.",
        |status| status.walk.ended.and(whole(status.walk.seen)),
    ),
];

/// Begins to answer who asks for the metrics of a mirror at an address, which is returned.
///
/// # Errors
/// Nobody can listen there.
pub fn listen(address: SocketAddr, inboxes: Inboxes) -> io::Result<SocketAddr> {
    let told = move |patience| Some(text(&statuses(&inboxes, patience)?));
    driftless_metrics::listen(address, told)
}

/// What is told of the replicas of a job.
pub fn text(replicas: &[Status]) -> String {
    let mut text = String::new();
    let all: Vec<(String, &Status)> = replicas.iter().map(|one| (labels(one), one)).collect();
    driftless_metrics::write(&mut text, &METRICS, &all);
    head(&mut text, LAG.0, LAG.1, "histogram");
    replicas
        .iter()
        .for_each(|status| histogram(&mut text, status));
    text
}

fn histogram(text: &mut String, status: &Status) {
    let (name, labels, lag) = (LAG.0, labels(status), &status.lag);
    let within = LAG_BOUNDS
        .iter()
        .zip(lag.within.iter().chain([&0; LAG_BOUNDS.len()]));
    for (millis, count) in within {
        let bound = Duration::from_millis(*millis).as_secs_f64();
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
    }
    let (count, sum) = (lag.files, lag.sum.as_secs_f64());
    let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
    let _ = writeln!(
        text,
        "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}"
    );
}

fn labels(status: &Status) -> String {
    driftless_metrics::labels(&[("job_name", &status.job), ("replica", &status.replica)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_all_that_took_no_longer() {
        let mut status = Status {
            job: "a\"b\\c\nd".into(),
            ..Status::default()
        };
        let waited = [10, 10, 900, 5_000_000].map(Duration::from_millis);
        status.lag(Duration::from_secs(1), &waited);
        let told = text(&[status.measured()]);
        let labels = "job_name=\"a\\\"b\\\\c\\nd\",replica=\"\"";
        for line in [
            format!("driftless_mirror_lag_seconds_bucket{{{labels},le=\"0.01\"}} 2"),
            format!("driftless_mirror_lag_seconds_bucket{{{labels},le=\"1\"}} 3"),
            format!("driftless_mirror_lag_seconds_bucket{{{labels},le=\"3600\"}} 3"),
            format!("driftless_mirror_lag_seconds_bucket{{{labels},le=\"+Inf\"}} 4"),
            format!("driftless_mirror_lag_seconds_sum{{{labels}}} 5000.92"),
            format!("driftless_mirror_left_paths{{{labels}}} 0"),
        ] {
            assert!(told.lines().any(|told| told == line), "{line}: {told}");
        }
        assert!(
            !told.contains("cycles_total{"),
            "nothing is known of cycles"
        );
    }

    #[test]
    fn names_say_what_they_count_in() {
        let names = METRICS.map(|metric| (metric.name, metric.kind));
        assert_eq!(driftless_metrics::misnamed(names), None);
    }
}
