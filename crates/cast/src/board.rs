//! The verified units of one set at one node, shared by the threads that receive and feed.
//!
//! A receiver adds a unit once its hash is right. A feeder waits here for the next unit that its
//! peer wants. The newest units stay in memory, so that a successor gets them without a read.

use crate::bits::UnitBitmap;
use driftless_lock::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Newest units whose numbers are kept, for feeders that wait.
const RECENT_MAX: usize = 4096;

/// Verified units of a set.
pub(crate) struct UnitBoard {
    state: Mutex<BoardState>,
    changed: Condvar,
}

struct BoardState {
    verified: UnitBitmap,
    /// Newest units, and the number of units before them.
    recent: VecDeque<u64>,
    before_recent: u64,
    window: HashMap<u64, Arc<Vec<u8>>>,
    order: VecDeque<u64>,
    window_bytes: u64,
    window_bytes_max: u64,
    is_closed: bool,
    /// Feeders that wait.
    waiting: u32,
}

/// Position of a feeder.
pub(crate) struct FeedCursor {
    /// Units that are still to be sent.
    pub wanted: UnitBitmap,
    /// Unit from which the scan goes on. `None` if the scan is over.
    scan: Option<u64>,
    /// Number of the next of the newest units.
    recent: u64,
}

/// Next unit of a feeder.
pub(crate) enum NextUnit {
    /// A verified unit, with its content if that is in memory.
    Unit(u64, Option<Arc<Vec<u8>>>),
    /// No wanted unit is verified yet.
    Wait,
    /// The node gives up the set.
    Closed,
}

impl FeedCursor {
    /// Returns the position of a feeder that has sent nothing.
    pub fn new(units: u64) -> Self {
        FeedCursor {
            wanted: UnitBitmap::new(units),
            scan: Some(0),
            recent: 0,
        }
    }

    /// Adds wanted units.
    pub fn want(&mut self, units: impl IntoIterator<Item = u64>) {
        for unit in units {
            self.wanted.insert(unit);
        }
        self.scan = Some(0);
    }
}

impl UnitBoard {
    /// Returns a board with these verified units.
    pub fn new(verified: UnitBitmap, window_bytes_max: u64) -> Self {
        UnitBoard {
            state: Mutex::new(BoardState {
                verified,
                recent: VecDeque::new(),
                before_recent: 0,
                window: HashMap::new(),
                order: VecDeque::new(),
                window_bytes: 0,
                window_bytes_max,
                is_closed: false,
                waiting: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// Adds a verified unit. Returns whether the unit is new.
    pub fn add(&self, unit: u64, bytes: &Arc<Vec<u8>>) -> bool {
        let mut state = self.state.lock();
        if !state.verified.insert(unit) {
            return false;
        }
        state.keep(unit, bytes);
        state.recent.push_back(unit);
        if state.recent.len() > RECENT_MAX {
            state.recent.pop_front();
            state.before_recent = state.before_recent.saturating_add(1);
        }
        let is_awaited = state.waiting > 0;
        drop(state);
        // Each call costs a system call, even if no feeder waits (futex(2)).
        if is_awaited {
            self.changed.notify_all();
        }
        true
    }

    /// Removes a unit that cannot be read any more.
    pub fn remove(&self, unit: u64) {
        let mut state = self.state.lock();
        state.verified.remove(unit);
    }

    /// Returns the verified units.
    pub fn verified(&self) -> UnitBitmap {
        self.state.lock().verified.clone()
    }

    /// Ends every wait of feeders.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Returns the next wanted unit: those that are there in ascending order, then each as it is
    /// verified. Waits up to `limit`.
    pub fn next(&self, cursor: &mut FeedCursor, limit: Duration) -> NextUnit {
        let mut state = self.state.lock();
        let mut has_waited = false;
        loop {
            if state.is_closed {
                return NextUnit::Closed;
            }
            if let Some(unit) = state.scan(cursor).or_else(|| state.newest(cursor)) {
                cursor.wanted.remove(unit);
                return NextUnit::Unit(unit, state.window.get(&unit).cloned());
            }
            if has_waited {
                return NextUnit::Wait;
            }
            if limit.is_zero() {
                return NextUnit::Wait;
            }
            state.waiting = state.waiting.saturating_add(1);
            state = self.changed.wait_for(state, limit);
            state.waiting = state.waiting.saturating_sub(1);
            has_waited = true;
        }
    }
}

impl BoardState {
    /// Keeps a unit in memory. The oldest ones go.
    fn keep(&mut self, unit: u64, bytes: &Arc<Vec<u8>>) {
        let size = |bytes: &Arc<Vec<u8>>| u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.window_bytes = self.window_bytes.saturating_add(size(bytes));
        self.window.insert(unit, Arc::clone(bytes));
        self.order.push_back(unit);
        while self.window_bytes > self.window_bytes_max {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            let removed = self.window.remove(&oldest);
            let freed = removed.as_ref().map_or(0, size);
            self.window_bytes = self.window_bytes.saturating_sub(freed);
        }
    }

    /// Goes on with the scan of a feeder in ascending order.
    fn scan(&self, cursor: &mut FeedCursor) -> Option<u64> {
        let from = cursor.scan?;
        if from == 0 {
            cursor.recent = self.end_of_recent();
        }
        let found = self.verified.first_common(&cursor.wanted, from);
        cursor.scan = found.map(|unit| unit.saturating_add(1));
        found
    }

    /// Returns the first wanted one of the newest units.
    fn newest(&self, cursor: &mut FeedCursor) -> Option<u64> {
        if cursor.recent < self.before_recent {
            // Some of them are forgotten.
            cursor.scan = Some(0);
            return self.scan(cursor);
        }
        while cursor.recent < self.end_of_recent() {
            let at = cursor.recent.saturating_sub(self.before_recent);
            cursor.recent = cursor.recent.saturating_add(1);
            let unit = usize::try_from(at).ok().and_then(|at| self.recent.get(at));
            let is_wanted =
                |unit: &&u64| cursor.wanted.contains(**unit) && self.verified.contains(**unit);
            if let Some(unit) = unit.filter(is_wanted) {
                return Some(*unit);
            }
        }
        None
    }

    fn end_of_recent(&self) -> u64 {
        let count = u64::try_from(self.recent.len()).unwrap_or(u64::MAX);
        self.before_recent.saturating_add(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_planner::UnitSet;

    fn next(board: &UnitBoard, cursor: &mut FeedCursor) -> Option<u64> {
        match board.next(cursor, Duration::ZERO) {
            NextUnit::Unit(unit, _) => Some(unit),
            NextUnit::Wait | NextUnit::Closed => None,
        }
    }

    #[test]
    fn held_units_come_before_new_ones() {
        let board = UnitBoard::new(UnitBitmap::of(&UnitSet::range(2, 5), 10), 1 << 20);
        let mut cursor = FeedCursor::new(10);
        cursor.want(0..10);
        let bytes = Arc::new(vec![1]);
        assert_eq!(next(&board, &mut cursor), Some(2));
        assert!(board.add(0, &bytes) && board.add(9, &bytes) && !board.add(9, &bytes));
        let rest: Vec<u64> = std::iter::from_fn(|| next(&board, &mut cursor)).collect();
        assert_eq!(rest, [3, 4, 9, 0]);
        board.add(1, &bytes);
        assert_eq!(next(&board, &mut cursor), Some(1));
        assert_eq!(next(&board, &mut cursor), None);
    }

    #[test]
    fn no_unit_is_forgotten_while_many_arrive() {
        let units = 3 * RECENT_MAX as u64;
        let board = UnitBoard::new(UnitBitmap::new(units), 10);
        let mut cursor = FeedCursor::new(units);
        cursor.want(0..units);
        assert_eq!(next(&board, &mut cursor), None);
        let bytes = Arc::new(vec![1]);
        (0..units).rev().for_each(|unit| {
            board.add(unit, &bytes);
        });
        let mut sent: Vec<u64> = std::iter::from_fn(|| next(&board, &mut cursor)).collect();
        sent.sort_unstable();
        assert!(sent.into_iter().eq(0..units));
    }

    #[test]
    fn window_stays_within_its_bytes() {
        let board = UnitBoard::new(UnitBitmap::new(100), 30);
        for unit in 0..100 {
            board.add(unit, &Arc::new(vec![0; 10]));
        }
        let state = board.state.lock();
        assert_eq!((state.window.len(), state.window_bytes), (3, 30));
        assert!(state.window.contains_key(&99));
    }
}
