//! Batches that stand still on the host that carries them out.
//!
//! A mover whose file system hangs still sends heartbeats, so only its counts show that nothing
//! happens. The coordinator cannot take the batch away from it, and the user has to look at that
//! host: the run would seem to hang without a cause.

use crate::shared::exchange::Alive;
use crate::tally::Counts;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time without progress after which a host is named for the first time. Each further time takes
/// twice as long.
const STILL: Duration = Duration::from_secs(60);

/// Batches in hand, with their progress.
#[derive(Debug, Default)]
pub(super) struct StandingBatches(BTreeMap<u64, BatchProgress>);

/// Progress of one batch.
#[derive(Debug)]
struct BatchProgress {
    mover: String,
    counts: Counts,
    /// Last change of the counts.
    since: Instant,
    /// Time without progress after which the host is named.
    due: Duration,
}

impl StandingBatches {
    /// Notes the counts of a heartbeat.
    pub(super) fn note(&mut self, sign: &Alive, now: Instant) {
        let known = self.0.get(&sign.id);
        let stands =
            known.is_some_and(|batch| (&batch.mover, &batch.counts) == (&sign.mover, &sign.counts));
        if stands {
            return;
        }
        let (mover, counts) = (sign.mover.clone(), sign.counts);
        let standing = BatchProgress {
            mover,
            counts,
            since: now,
            due: STILL,
        };
        self.0.insert(sign.id, standing);
    }

    /// Forgets the batches that are not `wanted` any more.
    pub(super) fn retain(&mut self, wanted: impl Fn(u64) -> bool) {
        self.0.retain(|id, _| wanted(*id));
    }

    /// Returns the words for each host that is to be named now.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<String> {
        let mut due = Vec::new();
        for (id, batch) in &mut self.0 {
            let still = now.saturating_duration_since(batch.since);
            if still < batch.due {
                continue;
            }
            while batch.due <= still {
                batch.due = batch.due.saturating_mul(2);
            }
            due.push(format!(
                "{}: batch {id} stands still for {} s; look whether the file systems of both trees answer on that host",
                batch.mover,
                still.as_secs()
            ));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(mover: &str, seen: u64) -> Alive {
        Alive {
            run: 1,
            id: 7,
            mover: mover.into(),
            counts: Counts {
                seen,
                ..Counts::default()
            },
        }
    }

    #[test]
    fn standing_host_is_named_ever_more_rarely() {
        let (mut batches, began) = (StandingBatches::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        // Seconds, the entries that a heartbeat counts, and the seconds that are told.
        let cases = [
            (0, 1, None),
            (59, 1, None),
            (61, 1, Some("far: batch 7 stands still for 61 s")),
            (100, 1, None),
            (121, 1, Some("far: batch 7 stands still for 121 s")),
            (200, 2, None),
            (259, 2, None),
            (260, 2, Some("far: batch 7 stands still for 60 s")),
        ];
        for (seconds, seen, told) in cases {
            batches.note(&sign("far", seen), at(seconds));
            let due = batches.take_due(at(seconds));
            let is_told = due
                .iter()
                .map(|words| told.is_some_and(|told| words.starts_with(told)));
            assert!(is_told.eq(told.map(|_| true)), "{seconds} s: {due:?}");
        }
        batches.note(&sign("other", 2), at(300));
        assert!(batches.take_due(at(330)).is_empty(), "another mover has it");
        batches.retain(|_| false);
        assert!(batches.take_due(at(900)).is_empty(), "the batch is over");
    }
}
