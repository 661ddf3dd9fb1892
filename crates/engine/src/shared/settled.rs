//! A few of the entries of which a mover says that they are equal now, spread evenly over all of
//! them, so that the coordinator can look at them: a mover that sees another tree makes everything
//! equal there, and no other host sees any of it.

use driftless_lock::Mutex;
use driftless_model::{Kind, RelPath};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Entries of a batch that are told.
const TOLD_MAX: usize = 8;
/// Bytes of a path that is told.
const PATH_BYTES_MAX: usize = 1024;

/// An entry of which a mover says that it is equal now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// Where.
    pub path: RelPath,
    /// What the mover has made of it: of what kind it is, and the size of a file in bytes. Nothing
    /// where it was equal before.
    pub made: Option<(Kind, u64)>,
}

/// Those of a batch, while it is carried out.
#[derive(Debug, Default)]
pub struct SettledFew {
    count: AtomicU64,
    kept: Mutex<Kept>,
    /// One of so many is kept, as a power of two.
    doublings: AtomicU64,
}

#[derive(Debug, Default)]
struct Kept(Vec<Settled>);

impl SettledFew {
    /// An entry is equal now. Its path is made only if it is one of the few.
    pub fn add(&self, path: impl FnOnce() -> RelPath, made: Option<(Kind, u64)>) {
        let number = self.count.fetch_add(1, Relaxed);
        if number & ((1 << self.doublings.load(Relaxed)) - 1) != 0 {
            return;
        }
        let path = path();
        if path.as_bytes().len() > PATH_BYTES_MAX {
            return;
        }
        let mut kept = self.kept.lock();
        kept.0.push(Settled { path, made });
        if kept.0.len() > TOLD_MAX {
            let mut is_odd = false;
            kept.0.retain(|_| {
                is_odd = !is_odd;
                is_odd
            });
            self.doublings.fetch_add(1, Relaxed);
        }
    }

    /// All that were kept.
    pub fn take(&self) -> Vec<Settled> {
        std::mem::take(&mut self.kept.lock().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_entries_are_told_and_they_lie_evenly_among_all() {
        for count in [0_u64, 1, 8, 9, 1000, 100_000] {
            let few = SettledFew::default();
            for number in 0..count {
                few.add(
                    || RelPath::parse(number.to_string().as_bytes()).expect("a path"),
                    None,
                );
            }
            let told: Vec<u64> = few
                .take()
                .iter()
                .map(|told| {
                    String::from_utf8_lossy(told.path.as_bytes())
                        .parse()
                        .expect("a number")
                })
                .collect();
            assert!(
                told.len() <= TOLD_MAX && told.len() as u64 >= count.min(TOLD_MAX as u64 / 2),
                "{count}: {told:?}"
            );
            let gaps: Vec<u64> = told.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(
                gaps.windows(2).all(|pair| pair[0] == pair[1]),
                "{count}: {told:?}"
            );
            assert!(
                told.last().is_none_or(|last| count - last <= count / 4 + 1),
                "{count}: {told:?}"
            );
        }
    }
}
