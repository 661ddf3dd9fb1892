//! Which programs write without a shim: what the kernel says was written and closed is compared with
//! what shims have announced.
//!
//! Either may be heard first, so it is said after a few seconds. Bounded: of very many files at once
//! some are not looked at.

use driftless_model::RelPath;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

/// A file is announced within this time before or after the kernel tells of it.
const PATIENCE: Duration = Duration::from_secs(4);
/// Files that wait to be looked at; of more, nobody says whether they were announced.
const FILES_MAX: usize = 100_000;
/// Programs that are told apart.
const PROGRAMS_MAX: usize = 1000;
/// What the others are called.
const OTHERS: &str = "(others)";

/// A file: the number of its tree, and its path there.
type File = (usize, RelPath);

/// What is known of who announces.
#[derive(Debug, Default)]
pub struct Coverage {
    written: VecDeque<(Duration, File, String)>,
    announced: HashMap<File, Duration>,
    /// In the order in which they were announced.
    order: VecDeque<(Duration, File)>,
    covered: u64,
    uncovered: BTreeMap<String, u64>,
}

impl Coverage {
    /// A shim has announced something about a file.
    pub fn announce(&mut self, now: Duration, file: File) {
        if self.order.len() < FILES_MAX {
            self.order.push_back((now, file.clone()));
            self.announced.insert(file, now);
        }
    }

    /// The kernel says that this program has closed a file that it had written.
    pub fn write(&mut self, now: Duration, file: File, program: String) {
        if self.written.len() < FILES_MAX {
            self.written.push_back((now, file, program));
        }
    }

    /// Looks at what was written long enough ago.
    pub fn look(&mut self, now: Duration) {
        while let Some((moment, ..)) = self.written.front() {
            if *moment + PATIENCE > now {
                break;
            }
            let (moment, file, program) = self.written.pop_front().expect("it was looked at");
            let last = self.announced.get(&file);
            if last.is_some_and(|last| *last + PATIENCE >= moment) {
                self.covered += 1;
            } else {
                self.count(program);
            }
        }
        while let Some((moment, _)) = self.order.front() {
            if *moment + 3 * PATIENCE > now {
                break;
            }
            let (moment, file) = self.order.pop_front().expect("it was looked at");
            if self.announced.get(&file) == Some(&moment) {
                self.announced.remove(&file);
            }
        }
    }

    fn count(&mut self, program: String) {
        let has_room = self.uncovered.len() < PROGRAMS_MAX || self.uncovered.contains_key(&program);
        let name = if has_room { program } else { OTHERS.into() };
        *self.uncovered.entry(name).or_default() += 1;
    }

    /// How many files were announced, of those that were looked at.
    pub fn covered(&self) -> u64 {
        self.covered
    }

    /// Programs that have written files which no shim has announced, and how many.
    pub fn uncovered(&self) -> &BTreeMap<String, u64> {
        &self.uncovered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> File {
        (0, RelPath::parse(name.as_bytes()).unwrap())
    }

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn who_was_not_announced_in_time_is_told() {
        let mut coverage = Coverage::default();
        coverage.announce(second(9), file("before"));
        for name in ["before", "after", "never", "too late"] {
            coverage.write(second(10), file(name), format!("writer of {name}"));
        }
        coverage.announce(second(12), file("after"));
        coverage.announce(second(12), (1, file("never").1));
        coverage.look(second(13));
        assert_eq!(coverage.covered(), 0);
        coverage.look(second(14));
        coverage.announce(second(15), file("too late"));
        coverage.look(second(20));
        assert_eq!(coverage.covered(), 2);
        let told: Vec<&str> = coverage.uncovered().keys().map(String::as_str).collect();
        assert_eq!(told, ["writer of never", "writer of too late"]);
        coverage.look(second(60));
        assert!(coverage.announced.is_empty() && coverage.order.is_empty());
    }

    #[test]
    fn it_takes_no_more_room_however_much_is_told() {
        let mut coverage = Coverage::default();
        for number in 0..2 * FILES_MAX {
            let name = number.to_string();
            coverage.announce(second(0), file(&name));
            coverage.write(second(0), (1, file(&name).1), name);
        }
        assert_eq!(
            (coverage.order.len(), coverage.written.len()),
            (FILES_MAX, FILES_MAX)
        );
        coverage.look(second(60));
        assert_eq!(coverage.uncovered.len(), PROGRAMS_MAX + 1);
        let all: u64 = coverage.uncovered.values().sum();
        assert_eq!(all, FILES_MAX as u64);
    }
}
