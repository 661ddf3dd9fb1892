//! What the life of a replica has heard from each detector: until when, and which of the positions
//! that came with the changes stand before nothing that is left to do.
//!
//! A detector lets go of a position when all replicas are done with it ([`Shared`]): what stands
//! before it is durable there, or is remembered in the state, such as a path in quarantine.

use driftless_detect::Waker;
use driftless_lock::Mutex;
use driftless_state::mirror::Cursor;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Positions of a detector that are told apart; of more, every other one is forgotten.
const POSITIONS_MAX: usize = 4096;

/// So many positions after the last time, what is put off is done at once: whoever tells them holds
/// back more until the oldest are done (a broker after what it hands out at most).
const POSITIONS_AHEAD_MAX: u64 = 2000;

/// How old the last word of a detector may be that hears nothing: until when an idle replica is
/// known to be equal.
const WORD_AGE_MAX: Duration = Duration::from_secs(5);

/// A detector, as its thread and the lives of all replicas know it.
#[derive(Debug)]
pub struct Shared {
    name: String,
    keeps_position: bool,
    waker: Arc<Waker>,
    /// Up to where each replica is done.
    done: Mutex<Vec<Option<u64>>>,
}

impl Shared {
    /// A detector of this name, told to so many replicas. `keeps_position`: its positions mean the
    /// same to a later process.
    pub fn new(
        (name, keeps_position): (String, bool),
        waker: Arc<Waker>,
        replicas: usize,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            name,
            keeps_position,
            waker,
            done: Mutex::new(vec![None; replicas]),
        })
    }

    /// Up to where all replicas are done.
    pub fn done(&self) -> Option<u64> {
        let done = self.done.lock();
        done.iter().copied().min().flatten()
    }

    fn set_done(&self, replica: usize, position: u64) {
        self.done.lock()[replica] = Some(position);
        self.waker.wake();
    }
}

/// What one replica has heard from all detectors.
#[derive(Debug)]
pub struct Hearing {
    replica: usize,
    ears: Vec<Ear>,
}

#[derive(Debug)]
struct Ear {
    shared: Arc<Shared>,
    until: Duration,
    /// When it was last asked for a word.
    asked: Duration,
    /// When positions were heard of, in the order in which that was.
    positions: VecDeque<(Duration, u64)>,
    /// Which was heard when what is put off was last done at once.
    hurried: u64,
    deaf: Option<String>,
}

impl Hearing {
    /// The replica of this number hears these from now on.
    pub fn of(detectors: &[Arc<Shared>], replica: usize, now: Duration) -> Hearing {
        let ear = |shared: &Arc<Shared>| Ear {
            shared: shared.clone(),
            until: now,
            asked: now,
            positions: VecDeque::new(),
            hurried: 0,
            deaf: None,
        };
        Hearing {
            replica,
            ears: detectors.iter().map(ear).collect(),
        }
    }

    /// Whether there is no detector.
    pub fn is_none(&self) -> bool {
        self.ears.is_empty()
    }

    /// An earlier life was done up to where `cursor` says for a name.
    ///
    /// # Errors
    /// Those of `cursor`.
    pub fn resume<E>(&self, cursor: impl Fn(&str) -> Result<Option<Cursor>, E>) -> Result<(), E> {
        for ear in self.ears.iter().filter(|ear| ear.shared.keeps_position) {
            let found = cursor(&ear.shared.name)?;
            if let Some(position) = found.and_then(|found| number(&found.position)) {
                ear.shared.set_done(self.replica, position);
            }
        }
        Ok(())
    }

    /// Has all detectors tell what they have not told yet, and ask those who tell them.
    pub fn wake(&self) {
        for ear in &self.ears {
            ear.shared.waker.ask();
        }
    }

    /// Has those detectors say until when they have heard everything that have not said so for a
    /// while, as when nothing changes.
    pub fn wake_quiet(&mut self, now: Duration) {
        let is_quiet = |ear: &&mut Ear| ear.until.max(ear.asked) + WORD_AGE_MAX <= now;
        for ear in self.ears.iter_mut().filter(is_quiet) {
            ear.asked = now;
            ear.shared.waker.wake();
        }
    }

    /// Nobody listens any more.
    pub fn stop(&self) {
        for ear in &self.ears {
            ear.shared.waker.stop();
        }
    }

    /// A position was told, behind the changes before it. Returns whether what is put off should
    /// be done now, for so much is told behind it.
    #[must_use]
    pub fn heard(&mut self, from: usize, now: Duration, position: u64) -> bool {
        let ear = &mut self.ears[from];
        let positions = &mut ear.positions;
        if positions.len() >= POSITIONS_MAX {
            // Those that stay come later, and so stand for more.
            let mut is_kept = false;
            positions.retain(|_| {
                is_kept = !is_kept;
                !is_kept
            });
        }
        positions.push_back((now, position));
        let is_far = position.saturating_sub(ear.hurried) >= POSITIONS_AHEAD_MAX;
        if is_far {
            ear.hurried = position;
        }
        is_far
    }

    /// A detector has told everything that happened until then; returns until when all have.
    pub fn heard_until(&mut self, from: usize, moment: Duration) -> Duration {
        self.ears[from].until = moment;
        let all = self.ears.iter().map(|ear| ear.until);
        all.min().unwrap_or(moment)
    }

    /// A detector hears nothing for this reason, or hears again.
    pub fn deaf(&mut self, from: usize, why: Option<String>) {
        self.ears[from].deaf = why;
    }

    /// Why something is not heard.
    pub fn why_deaf(&self) -> Option<String> {
        self.ears.iter().find_map(|ear| ear.deaf.clone())
    }

    /// The last position of each detector of which everything that was heard by then is done.
    pub fn done(&self, is_done: impl Fn(Duration) -> bool) -> Vec<(usize, u64)> {
        let last = |(from, ear): (usize, &Ear)| {
            // What is done at a moment is done at all before it.
            let count = ear
                .positions
                .partition_point(|(moment, _)| is_done(*moment));
            let last = count.checked_sub(1)?;
            Some((from, ear.positions[last].1))
        };
        self.ears.iter().enumerate().filter_map(last).collect()
    }

    /// Where these positions are to be found in the next life.
    pub fn cursors(&self, done: &[(usize, u64)], now: Duration) -> Vec<Cursor> {
        let kept = done
            .iter()
            .filter(|(from, _)| self.ears[*from].shared.keeps_position);
        kept.map(|(from, position)| Cursor {
            detector: self.ears[*from].shared.name.clone(),
            position: position.to_string().into_bytes(),
            at: now,
        })
        .collect()
    }

    /// These are done, and where that is to be remembered, it is.
    pub fn let_go(&mut self, done: &[(usize, u64)]) {
        for (from, position) in done {
            let ear = &mut self.ears[*from];
            ear.positions.retain(|(_, other)| other > position);
            ear.shared.set_done(self.replica, *position);
        }
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(replicas: usize) -> Arc<Shared> {
        Shared::new(("log".into(), true), Waker::new().unwrap(), replicas)
    }

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn a_position_is_done_when_nothing_is_left_that_was_heard_by_then() {
        let mut hearing = Hearing::of(&[shared(1)], 0, second(0));
        for (moment, position) in [(1, 10), (2, 20), (2, 21), (5, 50)] {
            let _ = hearing.heard(0, second(moment), position);
        }
        let done = |hearing: &Hearing, until: u64| hearing.done(|moment| moment < second(until));
        assert_eq!(done(&hearing, 1), []);
        assert_eq!(done(&hearing, 2), [(0, 10)]);
        assert_eq!(done(&hearing, 3), [(0, 21)]);
        hearing.let_go(&[(0, 21)]);
        assert_eq!(done(&hearing, 5), []);
        assert_eq!(done(&hearing, 6), [(0, 50)]);
        let kept = hearing.cursors(&[(0, 50)], second(9));
        assert_eq!(kept[0].position, b"50");
    }

    #[test]
    fn a_detector_lets_go_of_what_all_replicas_are_done_with() {
        let detector = shared(2);
        let lives =
            [0, 1].map(|replica| Hearing::of(std::slice::from_ref(&detector), replica, second(0)));
        let [mut first, mut other] = lives;
        first.let_go(&[(0, 7)]);
        assert_eq!(detector.done(), None);
        other.let_go(&[(0, 5)]);
        assert_eq!(detector.done(), Some(5));
        other.let_go(&[(0, 9)]);
        assert_eq!(detector.done(), Some(7));
    }

    #[test]
    fn many_positions_are_thinned_out_and_the_last_stays() {
        let mut hearing = Hearing::of(&[shared(1)], 0, second(0));
        let last = 3 * POSITIONS_MAX as u64;
        for position in 1..=last {
            let _ = hearing.heard(0, second(position), position);
        }
        assert!(hearing.ears[0].positions.len() <= POSITIONS_MAX);
        assert_eq!(hearing.done(|_| true), [(0, last)]);
        let half = hearing.done(|moment| moment <= second(last / 2));
        assert!(half[0].1 <= last / 2 && half[0].1 > last / 4, "{half:?}");
    }

    #[test]
    fn all_have_told_what_happened_until_the_slowest_has() {
        let mut hearing = Hearing::of(&[shared(1), shared(1)], 0, second(1));
        assert_eq!(hearing.heard_until(0, second(5)), second(1));
        assert_eq!(hearing.heard_until(1, second(3)), second(3));
        assert_eq!(hearing.heard_until(1, second(9)), second(5));
    }

    #[test]
    fn what_is_put_off_is_done_now_and_then_while_much_is_told() {
        let mut hearing = Hearing::of(&[shared(1)], 0, second(0));
        let last = 3 * POSITIONS_AHEAD_MAX;
        let hurries = (1..=last).filter(|position| hearing.heard(0, second(1), *position));
        assert_eq!(hurries.count(), 3);
    }
}
