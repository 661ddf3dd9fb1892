//! What was told before a connection was lost, so that the pass through the trees that follows does
//! not tell it again.

use std::collections::HashMap;
use std::hash::BuildHasher;

/// Lines that are known to have been told, at most: 16 bytes each. More are told again when a
/// connection was lost.
const TOLD_MAX: usize = 1 << 19;

/// What was told in passes through the trees that a lost connection ended; the next pass finds it
/// again.
#[derive(Default)]
pub struct Told {
    /// The number of the pass through the trees.
    pub pass: u64,
    lines: HashMap<u64, u64>,
}

impl Told {
    /// Notes a line; whether an earlier pass told it.
    pub fn knows(&mut self, line: &str) -> bool {
        let key = self.lines.hasher().hash_one(line);
        match self.lines.get(&key) {
            Some(pass) => *pass < self.pass,
            None => {
                if self.lines.len() < TOLD_MAX {
                    self.lines.insert(key, self.pass);
                }
                false
            }
        }
    }
}
