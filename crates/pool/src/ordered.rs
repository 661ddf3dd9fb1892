//! Work that is done by many in any order, and whose results come out in one.
//!
//! Every task has a [`Position`]: its position in the output, as a path of numbers. A task may be
//! replaced by tasks with places behind its own and before the next, so a tree can be walked while
//! it is worked on. The first task that waits is always the next to be taken. What is done waits
//! for all before it; when too much waits, only the task that holds up the others is given out. So
//! memory is bounded, and there is always somebody who can go on.

use std::collections::{BTreeMap, BTreeSet};

/// A position in the output: compared number by number, a beginning before what it begins.
pub type Position = Vec<u64>;

/// The place of part number `index` of what stands at `place`.
pub fn part(place: &Position, index: u64) -> Position {
    let mut part = Vec::with_capacity(place.len() + 1);
    part.extend(place);
    part.push(index);
    part
}

/// Tasks that wait, tasks that are being done, and results that are not out yet.
#[derive(Debug)]
pub struct Ordered<T, R> {
    waiting: BTreeMap<Position, T>,
    taken: BTreeSet<Position>,
    done: BTreeMap<Position, Vec<R>>,
    held: usize,
    held_max: usize,
}

impl<T, R> Ordered<T, R> {
    /// Nothing yet; about `held_max` results may wait for those before them.
    pub fn new(held_max: usize) -> Self {
        Ordered {
            waiting: BTreeMap::new(),
            taken: BTreeSet::new(),
            done: BTreeMap::new(),
            held: 0,
            held_max,
        }
    }

    /// Adds a task. Its place must be free, and behind that of a task that is being done unless it
    /// is the first.
    pub fn put(&mut self, place: Position, task: T) {
        let before = self.waiting.insert(place, task);
        debug_assert!(before.is_none(), "every task has a place of its own");
    }

    /// Takes the first task, if one may be taken now.
    pub fn take(&mut self) -> Option<(Position, T)> {
        if !self.may_take() {
            return None;
        }
        let (place, task) = self.waiting.pop_first()?;
        self.taken.insert(place.clone());
        Some((place, task))
    }

    /// Whether a task may be taken: there is room for results, or all others wait for the first
    /// one.
    pub fn may_take(&self) -> bool {
        let Some((first, _)) = self.waiting.first_key_value() else {
            return false;
        };
        self.has_room() || (self.head() == Some(first) && !self.is_ready())
    }

    /// Whether there is room for more results.
    pub fn has_room(&self) -> bool {
        self.held < self.held_max
    }

    /// Says that the task at `place` is done; `weight` is what its results count.
    pub fn finish(&mut self, place: Position, results: Vec<R>, weight: usize) {
        let was_taken = self.taken.remove(&place);
        debug_assert!(was_taken, "only what was taken can be done");
        if !results.is_empty() {
            self.held += weight;
            self.done.insert(place, results);
        }
    }

    /// The place before which everything is done.
    fn head(&self) -> Option<&Position> {
        let waiting = self.waiting.first_key_value().map(|(place, _)| place);
        match (waiting, self.taken.first()) {
            (Some(waiting), Some(taken)) => Some(waiting.min(taken)),
            (waiting, taken) => waiting.or(taken),
        }
    }

    fn is_ready(&self) -> bool {
        self.done
            .first_key_value()
            .is_some_and(|(first, _)| self.head().is_none_or(|head| first < head))
    }

    /// Takes out the results that nothing is missing before, in order. `weigh` says what a result
    /// counted.
    pub fn ready(&mut self, weigh: impl Fn(&R) -> usize) -> Vec<R> {
        let mut results = Vec::new();
        while self.is_ready() {
            let (_, part) = self.done.pop_first().expect("something is ready");
            results.extend(part);
        }
        self.held -= results.iter().map(weigh).sum::<usize>();
        results
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(held_max: usize) -> Ordered<&'static str, u32> {
        Ordered::new(held_max)
    }

    fn ready(order: &mut Ordered<&'static str, u32>) -> Vec<u32> {
        order.ready(|_| 1)
    }

    #[test]
    fn results_come_out_in_the_order_of_their_places() {
        let mut order = order(10);
        order.put(vec![0], "tree");
        let (root, _) = order.take().unwrap();
        order.put(part(&root, 0), "a");
        order.put(part(&root, 1), "b");
        order.finish(root.clone(), vec![1], 1);
        assert_eq!(ready(&mut order), [1]);
        let (a, _) = order.take().unwrap();
        let (b, _) = order.take().unwrap();
        order.finish(b, vec![4, 5], 2);
        assert_eq!(ready(&mut order), [0; 0]);
        order.put(part(&a, 7), "below a");
        order.finish(a.clone(), vec![2], 1);
        assert_eq!(ready(&mut order), [2]);
        let (below, task) = order.take().unwrap();
        assert_eq!(task, "below a");
        order.finish(below, vec![3], 1);
        assert_eq!(ready(&mut order), [3, 4, 5]);
        assert_eq!((order.take(), order.held), (None, 0));
    }

    #[test]
    fn when_too_much_waits_only_the_first_goes_on() {
        let mut order = order(1);
        (0..4).for_each(|place| order.put(vec![place], "x"));
        let (first, _) = order.take().unwrap();
        let (second, _) = order.take().unwrap();
        order.finish(second, vec![2], 1);
        assert!(
            !order.may_take(),
            "a result waits, and the first is being done"
        );
        order.put(part(&first, 0), "the rest of the first");
        order.finish(first, vec![1], 1);
        assert!(
            !order.may_take(),
            "something can come out, which makes room"
        );
        assert_eq!(ready(&mut order), [1]);
        assert_eq!(order.take().unwrap().1, "the rest of the first");
        assert!(!order.may_take());
        order.finish(vec![0, 0], vec![], 0);
        assert_eq!(ready(&mut order), [2]);
        assert!(order.may_take());
    }
}
