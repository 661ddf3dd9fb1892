//! The result that a collection tried last. A collection ends after some failures in a row, and the next
//! one begins behind them: bad results hold up no good ones for ever.

use crate::distribution::CollectOrder;
use driftless_lock::Mutex;
use std::collections::HashMap;

/// Orders that are remembered at most. Without the memory of one, its next collection begins at the
/// first name.
const ORDERS_MAX: usize = 10_000;

/// Names of the results that were tried last, by job, node and generation.
#[derive(Debug, Default)]
pub(crate) struct TriedResults(Mutex<HashMap<TriedKey, Vec<u8>>>);

type TriedKey = (String, String, Vec<u8>);

fn key((order, generation): (&CollectOrder, &[u8])) -> TriedKey {
    (order.job.clone(), order.node.clone(), generation.to_vec())
}

impl TriedResults {
    /// Returns the names of a generation, from the one behind the last that was tried.
    pub fn in_turn(&self, of: (&CollectOrder, &[u8]), mut names: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        if let Some(last) = self.0.lock().get(&key(of)) {
            let tried = names.partition_point(|name| name <= last);
            names.rotate_left(tried);
        }
        names
    }

    /// Notes the result that is tried now.
    pub fn note(&self, of: (&CollectOrder, &[u8]), name: &[u8]) {
        let mut tried = self.0.lock();
        let key = key(of);
        if tried.len() < ORDERS_MAX || tried.contains_key(&key) {
            tried.insert(key, name.to_vec());
        }
    }

    /// Forgets a generation whose results all arrived.
    pub fn forget(&self, of: (&CollectOrder, &[u8])) {
        self.0.lock().remove(&key(of));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{EntryFate, ResultJob, order_of};
    use driftless_taskfile::ResultPattern;

    #[test]
    fn each_result_is_tried_in_turn() {
        let pattern = ResultPattern::parse(b"/out/%t").expect("a pattern");
        let job = ResultJob {
            name: "gateway-x-1",
            uid: 1000,
            number: "12",
            pattern: &pattern,
        };
        let order = order_of(&job, "n1", &[], &|_| EntryFate::Stay);
        let (tried, of) = (TriedResults::default(), (&order, &b"1"[..]));
        let names = |text: &str| -> Vec<Vec<u8>> { text.bytes().map(|one| vec![one]).collect() };
        assert_eq!(tried.in_turn(of, names("abcd")), names("abcd"));
        tried.note(of, b"b");
        assert_eq!(tried.in_turn(of, names("abcd")), names("cdab"));
        assert_eq!(tried.in_turn(of, names("ad")), names("da"));
        tried.note(of, b"d");
        assert_eq!(tried.in_turn(of, names("abcd")), names("abcd"));
        let later = (&order, &b"2"[..]);
        tried.note(later, b"a");
        tried.forget(later);
        assert_eq!(tried.in_turn(later, names("ab")), names("ab"));
    }
}
