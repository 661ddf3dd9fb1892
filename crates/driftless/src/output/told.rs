//! Lines that were printed before a connection was lost. The next pass through the trees does not
//! print them again.

use std::collections::HashMap;
use std::hash::BuildHasher;

/// Lines that are known to have been told, at most: 16 bytes each. More are told again when a
/// connection was lost.
const TOLD_MAX: usize = 1 << 19;

/// Lines that passes through the trees printed before they lost their connection. The next pass finds
/// them again.
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
