//! Lives of a run that movers share: its coordinator ends early, is killed or loses its host, and another process goes on with its record.
//!
//! The record is a hint and no proof: it says what was done when it was written. So it is gone on with only where the trees are
//! those that it speaks of, on machines that were not started again since, and where no other run has changed the replica. Even then
//! whatever it says is settled is looked at once more in the new life, before the run ends.

use crate::options::Options;
use crate::trees::changes::Changes;
use crate::trees::numbers::boot_of;
use driftless_model::{Stamp, span};
use driftless_tree::{Dir, DirMutRef, DirRef};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A record that is older is not gone on with: little of what it could save is left by then. Seven days.
pub const AGE_SECONDS_MAX: u64 = 7 * 24 * 3600;

/// Which directory a root is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Root {
    /// The boot of its machine, as a number.
    boot: u64,
    dev: u64,
    ino: u64,
    made: Option<Stamp>,
}

impl Root {
    fn of<D: Dir + ?Sized>(dir: &Arc<D>, boot: u64) -> Root {
        let (dev, ino) = dir.first_meta().id();
        Root { boot, dev, ino, made: dir.made_at() }
    }
}

/// What a run stands on: by this it is known whether what was noted of it still speaks of the same trees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ground {
    source: Root,
    replica: Root,
    /// Which replica its mark says it is, and which run has changed it last; none if nothing says so.
    mark: Option<(u128, u128)>,
}

impl Ground {
    /// Of these trees, with what is known of the mark of the replica.
    pub fn of(options: &Options, source: &DirRef, replica: &DirMutRef, mark: Option<(u128, u128)>) -> Ground {
        let source = Root::of(source, boot_of(&options.source));
        Ground { source, replica: Root::of(replica, boot_of(&options.replica)), mark }
    }

    /// The same once the run has made its changes known.
    #[must_use]
    pub fn marked(self, changes: &Changes) -> Ground {
        Ground { mark: changes.own_mark(), ..self }
    }

    /// Why what was noted on the `earlier` ground says nothing of this one.
    fn differs(&self, earlier: &Ground) -> Option<&'static str> {
        let which = |root: &Root| (root.dev, root.ino, root.made);
        let (now, then) = (self.mark, earlier.mark);
        match () {
            () if self.source.boot != earlier.source.boot => Some("the source is on a machine that was started again since, or on another"),
            () if self.replica.boot != earlier.replica.boot => {
                Some("the replica is on a machine that was started again since, or on another")
            }
            () if which(&self.source) != which(&earlier.source) => Some("the source is another directory than it was"),
            () if which(&self.replica) != which(&earlier.replica) => Some("the replica is another directory than it was"),
            () if then.is_none() => Some("the replica has no mark that would tell whether it was changed since"),
            () if now.map(|mark| mark.0) != then.map(|mark| mark.0) => Some("the replica is not the one that it was, as its mark says"),
            () if now != then => Some("another run has changed the replica since"),
            () => None,
        }
    }
}

/// The life of a run, as it stands in its record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// A number that the process has drawn.
    pub process: u128,
    /// What it stands on.
    pub ground: Ground,
    /// When it was noted last, in seconds since 1970.
    pub seconds: u64,
    /// Some of what is settled was settled in an earlier life: all is to be looked at once more.
    pub is_second_hand: bool,
    /// What the coordinator alone did in an earlier life, nobody has heard to be durable.
    pub is_doubtful: bool,
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

impl Life {
    /// What becomes of a record that was noted in this life, in the life `now`.
    pub fn verdict(&self, now: &Life) -> Verdict {
        let age = now.seconds.saturating_sub(self.seconds);
        let is_own = self.process == now.process;
        // A single file has no mark. Its own process has only lost its connection.
        let without_mark = |ground: &Ground| Ground { mark: None, ..ground.clone() };
        let is_same = is_own && self.ground.mark.is_none() && without_mark(&now.ground) == self.ground;
        let ago = span(age);
        match now.ground.differs(&self.ground).filter(|_| !is_same) {
            Some(why) => Verdict::Dropped(format!("the run that was interrupted {ago} ago is not gone on with: {why}")),
            None if is_own => Verdict::Own,
            None if age > AGE_SECONDS_MAX => Verdict::Dropped(format!(
                "the run that was interrupted {ago} ago is not gone on with: that is more than {}",
                span(AGE_SECONDS_MAX)
            )),
            None => {
                Verdict::Another(format!("going on with the run that was interrupted {ago} ago; what it has done is looked at once more"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(process: u128, seconds: u64) -> Life {
        let root = |ino| Root { boot: 1, dev: 2, ino, made: Some(Stamp { sec: 5, nsec: 6 }) };
        let ground = Ground { source: root(3), replica: root(4), mark: Some((7, 8)) };
        Life { process, ground, seconds, is_second_hand: false, is_doubtful: false }
    }

    fn changed(change: impl FnOnce(&mut Ground)) -> Life {
        let mut now = life(2, 1000);
        change(&mut now.ground);
        now
    }

    #[test]
    fn a_record_is_gone_on_with_on_the_same_ground_alone() {
        let then = life(1, 1000 - 120);
        assert!(matches!(then.verdict(&life(2, 1000)), Verdict::Another(words) if words.contains("interrupted 2 minutes ago")));
        let cases = [
            (changed(|ground| ground.source.boot = 9), "the source is on a machine"),
            (changed(|ground| ground.replica.boot = 9), "the replica is on a machine"),
            (changed(|ground| ground.source.ino = 9), "the source is another"),
            (changed(|ground| ground.replica.dev = 9), "the replica is another"),
            (changed(|ground| ground.replica.made = Some(Stamp { sec: 5, nsec: 7 })), "the replica is another"),
            (changed(|ground| ground.mark = None), "not the one that it was"),
            (changed(|ground| ground.mark = Some((9, 8))), "not the one that it was"),
            (changed(|ground| ground.mark = Some((7, 9))), "another run"),
        ];
        for (now, word) in cases {
            assert!(matches!(then.verdict(&now), Verdict::Dropped(words) if words.contains(word)), "{word}");
        }
    }

    #[test]
    fn a_record_that_is_too_old_is_dropped_but_not_by_its_own_process() {
        let then = life(1, 1000);
        let late = 1000 + AGE_SECONDS_MAX;
        assert!(matches!(then.verdict(&life(2, late)), Verdict::Another(_)));
        assert!(matches!(then.verdict(&life(2, late + 1)), Verdict::Dropped(words) if words.contains("7 days ago")));
        assert_eq!(then.verdict(&life(1, late + 1)), Verdict::Own);
        // A clock that was set back says nothing.
        assert!(matches!(then.verdict(&life(2, 10)), Verdict::Another(words) if words.contains("0 seconds ago")));
    }

    #[test]
    fn without_a_mark_only_its_own_process_goes_on() {
        let unmarked = |process| Life { ground: Ground { mark: None, ..life(0, 0).ground }, ..life(process, 1000) };
        assert_eq!(unmarked(1).verdict(&unmarked(1)), Verdict::Own);
        assert!(matches!(unmarked(1).verdict(&unmarked(2)), Verdict::Dropped(words) if words.contains("no mark")));
    }
}
