//! In which steps the file systems of the replica keep times, as entries show that were just made.
//!
//! The kernel cuts a time without a word. An entry that is compared shows that; one that is made is
//! looked at once more, a few of each file system that may cut times, and none of the others.

use driftless_lock::Mutex;
use driftless_model::{Meta, Stamp};
use driftless_reconcile::{may_cut, step_of};
use std::collections::HashMap;

/// Entries that are looked at before a file system counts as one that keeps all of a time.
const LOOKS_MAX: u32 = 4;
/// File systems that are known, at most.
const KNOWN_MAX: usize = 4096;

/// File systems of the replica, by their devices.
#[derive(Debug, Default)]
pub struct Steps(Mutex<HashMap<u64, Known>>);

/// Results of the looks at a file system.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    looks: u32,
    /// Nanoseconds; `None` as long as no time was cut.
    step: Option<u32>,
}

impl Steps {
    /// Returns the step in nanoseconds to which the time `wanted` is cut, which an entry of the
    /// directory `place` was given; `None` if it is kept. `look` looks at the entry.
    pub fn cut(
        &self,
        place: &Meta,
        wanted: Stamp,
        look: impl FnOnce() -> Option<Meta>,
    ) -> Option<u32> {
        if wanted.nsec == 0 || !may_cut(place) {
            return None;
        }
        let known = self.count(place.dev)?;
        if known.step.is_some() || known.looks > LOOKS_MAX {
            return known.step.filter(|step| !wanted.nsec.is_multiple_of(*step));
        }
        let step = step_of(wanted, &look()?)?;
        self.0.lock().entry(place.dev).or_default().step = Some(step);
        Some(step)
    }

    /// Counts a look; returns what is known by now, if there is room for it.
    fn count(&self, device: u64) -> Option<Known> {
        let mut all = self.0.lock();
        if all.len() >= KNOWN_MAX && !all.contains_key(&device) {
            return None;
        }
        let known = all.entry(device).or_default();
        known.looks = known.looks.saturating_add(1);
        Some(*known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Kind, Unkept};

    fn meta(mtime: Stamp, ctime: Stamp) -> Meta {
        let (kind, mode, uid, gid, size, blocks) = (Kind::File, 0o644, 0, 0, 1, 8);
        let (nlink, dev, ino, rdev, unkept) = (1, 7, 1, 0, Unkept::NONE);
        Meta {
            kind,
            mode,
            uid,
            gid,
            size,
            blocks,
            mtime,
            atime: mtime,
            ctime,
            nlink,
            dev,
            ino,
            rdev,
            unkept,
        }
    }

    #[test]
    fn one_look_tells_how_all_times_are_cut() {
        let stamp = |nsec| Stamp {
            sec: 1_000_000_000,
            nsec,
        };
        let now = |nsec| Stamp {
            sec: 2_000_000_000,
            nsec,
        };
        let place = |nsec| meta(now(nsec), now(nsec));
        let kept = |nsec, grain| Some(meta(stamp(nsec), now(grain)));
        let steps = Steps::default();
        let fine = steps.cut(&place(123_456_789), stamp(5), || {
            unreachable!("it keeps all")
        });
        assert_eq!(fine, None);
        let seconds = 1_000_000_000;
        assert_eq!(steps.cut(&place(0), stamp(5), || kept(0, 0)), Some(seconds));
        let again = steps.cut(&place(0), stamp(6), || unreachable!("it is known"));
        assert_eq!(again, Some(seconds));
        assert_eq!(
            steps.cut(&place(0), stamp(0), || unreachable!("no parts")),
            None
        );
        let steps = Steps::default();
        let cut = steps.cut(&place(700), stamp(1_234), || kept(1_200, 700));
        assert_eq!(cut, Some(100));
        assert_eq!(steps.cut(&place(700), stamp(1_300), || None), None);
    }

    #[test]
    fn file_system_that_keeps_times_is_asked_seldom() {
        let stamp = Stamp {
            sec: 1_000_000_000,
            nsec: 5,
        };
        let now = Stamp {
            sec: 2_000_000_000,
            nsec: 0,
        };
        let (steps, mut looks) = (Steps::default(), 0);
        for _ in 0..3 * LOOKS_MAX {
            let look = || {
                looks += 1;
                Some(meta(stamp, now))
            };
            assert_eq!(steps.cut(&meta(now, now), stamp, look), None);
        }
        assert_eq!(looks, LOOKS_MAX);
    }
}
