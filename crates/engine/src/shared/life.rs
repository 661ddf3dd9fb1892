//! Lives of a run that movers share: its coordinator ends early, is killed or loses its host, and
//! another process goes on with its record.
//!
//! The record is a hint and no proof: it says what was done when it was written. So it is gone on
//! with only where the trees are those that it speaks of, on machines that were not started again
//! since, and where no other run has changed the replica. Even then whatever it says is settled is
//! looked at once more in the new life, before the run ends.

use crate::options::Options;
use crate::trees::numbers::boot_of;
use driftless_model::span;
use driftless_state::{Ground, Life, Root};
use driftless_tree::{Dir, DirMutRef, DirRef};
use std::sync::Arc;

/// A record that is older is not gone on with: little of what it could save is left by then. Seven
/// days.
pub const AGE_SECONDS_MAX: u64 = 7 * 24 * 3600;

/// What a run between these trees stands on, with what is known of the mark of the replica.
pub fn ground_of(
    options: &Options,
    source: &DirRef,
    replica: &DirMutRef,
    mark: Option<(u128, u128)>,
) -> Ground {
    let source = root_of(source, boot_of(&options.source));
    Ground {
        source,
        replica: root_of(replica, boot_of(&options.replica)),
        mark,
    }
}

fn root_of<D: Dir + ?Sized>(dir: &Arc<D>, boot: u64) -> Root {
    let (dev, ino) = dir.first_meta().id();
    Root {
        boot,
        dev,
        ino,
        made: dir.made_at(),
    }
}

/// Why what was noted on one ground says nothing of another one.
fn differs(now: &Ground, earlier: &Ground) -> Option<&'static str> {
    let which = |root: &Root| (root.dev, root.ino, root.made);
    let (mark, then) = (now.mark, earlier.mark);
    match () {
        () if now.source.boot != earlier.source.boot => {
            Some("the source is on a machine that was started again since, or on another")
        }
        () if now.replica.boot != earlier.replica.boot => {
            Some("the replica is on a machine that was started again since, or on another")
        }
        () if which(&now.source) != which(&earlier.source) => {
            Some("the source is another directory than it was")
        }
        () if which(&now.replica) != which(&earlier.replica) => {
            Some("the replica is another directory than it was")
        }
        () if then.is_none() => {
            Some("the replica has no mark that would tell whether it was changed since")
        }
        () if mark.map(|mark| mark.0) != then.map(|mark| mark.0) => {
            Some("the replica is not the one that it was, as its mark says")
        }
        () if mark != then => Some("another run has changed the replica since"),
        () => None,
    }
}

/// What becomes of a record.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The process goes on with its own.
    Own,
    /// It is gone on with, in a life of its own.
    Another(String),
    /// It is dropped; the words for that.
    Dropped(String),
}

/// What becomes of a record that was noted in the life `then`, in the life `now`.
pub fn verdict(then: &Life, now: &Life) -> Verdict {
    let age = now.seconds.saturating_sub(then.seconds);
    let is_own = then.process == now.process;
    // A single file has no mark. Its own process has only lost its connection.
    let is_same = is_own
        && then.ground.mark.is_none()
        && Ground {
            mark: None,
            ..now.ground
        } == then.ground;
    let ago = span(age);
    match differs(&now.ground, &then.ground).filter(|_| !is_same) {
        Some(why) => Verdict::Dropped(format!(
            "cannot continue the run that was interrupted {ago} ago: {why}"
        )),
        None if is_own => Verdict::Own,
        None if age > AGE_SECONDS_MAX => Verdict::Dropped(format!(
            "cannot continue the run that was interrupted {ago} ago: the limit is {}",
            span(AGE_SECONDS_MAX)
        )),
        None => Verdict::Another(format!(
            "continuing the run that was interrupted {ago} ago; its finished entries are compared again"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::Stamp;

    fn life(process: u128, seconds: u64) -> Life {
        let root = |ino| Root {
            boot: 1,
            dev: 2,
            ino,
            made: Some(Stamp { sec: 5, nsec: 6 }),
        };
        let ground = Ground {
            source: root(3),
            replica: root(4),
            mark: Some((7, 8)),
        };
        Life {
            process,
            ground,
            seconds,
            is_second_hand: false,
            is_doubtful: false,
        }
    }

    fn changed(change: impl FnOnce(&mut Ground)) -> Life {
        let mut now = life(2, 1000);
        change(&mut now.ground);
        now
    }

    #[test]
    fn a_record_is_gone_on_with_on_the_same_ground_alone() {
        let then = life(1, 1000 - 120);
        assert!(
            matches!(verdict(&then, &life(2, 1000)), Verdict::Another(words) if words.contains("interrupted 2 minutes ago"))
        );
        let cases = [
            (
                changed(|ground| ground.source.boot = 9),
                "the source is on a machine",
            ),
            (
                changed(|ground| ground.replica.boot = 9),
                "the replica is on a machine",
            ),
            (
                changed(|ground| ground.source.ino = 9),
                "the source is another",
            ),
            (
                changed(|ground| ground.replica.dev = 9),
                "the replica is another",
            ),
            (
                changed(|ground| ground.replica.made = Some(Stamp { sec: 5, nsec: 7 })),
                "the replica is another",
            ),
            (
                changed(|ground| ground.mark = None),
                "not the one that it was",
            ),
            (
                changed(|ground| ground.mark = Some((9, 8))),
                "not the one that it was",
            ),
            (changed(|ground| ground.mark = Some((7, 9))), "another run"),
        ];
        for (now, word) in cases {
            assert!(
                matches!(verdict(&then, &now), Verdict::Dropped(words) if words.contains(word)),
                "{word}"
            );
        }
    }

    #[test]
    fn a_record_that_is_too_old_is_dropped_but_not_by_its_own_process() {
        let then = life(1, 1000);
        let late = 1000 + AGE_SECONDS_MAX;
        assert!(matches!(
            verdict(&then, &life(2, late)),
            Verdict::Another(_)
        ));
        assert!(
            matches!(verdict(&then, &life(2, late + 1)), Verdict::Dropped(words) if words.contains("7 days ago"))
        );
        assert_eq!(verdict(&then, &life(1, late + 1)), Verdict::Own);
        // A clock that was set back says nothing.
        assert!(
            matches!(verdict(&then, &life(2, 10)), Verdict::Another(words) if words.contains("0 seconds ago"))
        );
    }

    #[test]
    fn without_a_mark_only_its_own_process_goes_on() {
        let unmarked = |process| Life {
            ground: Ground {
                mark: None,
                ..life(0, 0).ground
            },
            ..life(process, 1000)
        };
        assert_eq!(verdict(&unmarked(1), &unmarked(1)), Verdict::Own);
        assert!(
            matches!(verdict(&unmarked(1), &unmarked(2)), Verdict::Dropped(words) if words.contains("no mark"))
        );
    }
}
