//! The changelog of a metadata target, read by `lfs changelog` from the record behind the last one
//! that was heard, and cleared up to what is durable on the replica.
//!
//! Records have numbers without gaps. So a number that is left out says that records were purged, and
//! all is compared. Since a hostile name can look like a record with any number, a jump counts only
//! when a record behind it goes on from there; the position stays before it until then.

use super::lfs::{Fid2Path, Lfs, Printed, Running};
use super::{LustreFault, Record, Records, changes};
use crate::detector::{Deaf, Detector, Heard, Seen, Waker};
use std::ffi::OsStr;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Records that are looked up and told at once.
const RECORDS_AT_ONCE: usize = 1000;
/// How often the changelog is asked for more.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// A changelog that is read.
#[derive(Debug)]
pub struct Changelog {
    mdt: String,
    user: String,
    lfs: Lfs,
    fids: Fid2Path,
    /// The last record that was heard, with all before it.
    last: Option<u64>,
    /// A record behind a jump that was not followed by another yet.
    held: Option<u64>,
    stream: Option<Stream>,
}

#[derive(Debug)]
struct Stream {
    records: Records<BufReader<Printed>>,
    program: Running,
}

/// What was read at once.
#[derive(Debug, Default)]
struct Batch {
    records: Vec<Record>,
    /// How many could not be read before each record.
    bad: Vec<u64>,
}

impl Changelog {
    /// The changelog of `mdt`, as its registered reader `user`, for the source at this absolute path.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn of((mdt, user): (&str, &str), source: &Path) -> Result<Changelog, Deaf> {
        let waker = Waker::new().map_err(|errno| Deaf::of(mdt, "wait for it", errno))?;
        let lfs = Lfs { waker };
        Ok(Changelog {
            mdt: mdt.to_owned(),
            user: user.to_owned(),
            fids: Fid2Path::below(source, lfs.clone()),
            lfs,
            last: None,
            held: None,
            stream: None,
        })
    }

    fn opened(&mut self) -> Result<&mut Stream, Deaf> {
        if self.stream.is_none() {
            let first = self.last.map(|last| (last + 1).to_string());
            let mut words = vec!["changelog".as_ref(), OsStr::new(&self.mdt)];
            words.extend(first.as_ref().map(OsStr::new));
            let (program, printed) = self.lfs.start(&words)?;
            let records = Records::new(BufReader::new(printed));
            self.stream = Some(Stream { records, program });
        }
        Ok(self.stream.as_mut().expect("it was opened"))
    }

    /// The next records; none at the end of what there is.
    fn read(&mut self) -> Result<Batch, Deaf> {
        let mdt = self.mdt.clone();
        let stream = self.opened()?;
        let (mut batch, mut bad) = (Batch::default(), 0);
        while batch.records.len() < RECORDS_AT_ONCE {
            match stream.records.next() {
                Some(Ok(record)) => {
                    batch.records.push(record);
                    batch.bad.push(std::mem::take(&mut bad));
                }
                // It broke off; why is said when the program has ended.
                Some(Err(error)) if matches!(error.fault, LustreFault::CutOff) => {}
                Some(Err(error)) => {
                    bad += 1;
                    tracing::debug!("{mdt}: {error}");
                }
                None => {
                    let ended = stream.program.end();
                    self.stream = None;
                    if batch.records.is_empty() {
                        ended?;
                    }
                    break;
                }
            }
        }
        Ok(batch)
    }

    /// What was read and was not heard before.
    fn news(&mut self) -> Result<Batch, Deaf> {
        let was_open = self.stream.is_some();
        let mut batch = self.read()?;
        if batch.records.is_empty() && was_open {
            // The end of what there was when it was asked: there may be more by now.
            batch = self.read()?;
        }
        let is_held = |record: &Record| Some(record.index) == self.held;
        if batch.records.iter().all(is_held) {
            batch.records.clear();
        }
        Ok(batch)
    }

    fn tell(&mut self, batch: &Batch) -> Result<Heard, Deaf> {
        let told = changes(&batch.records, &mut self.fids)?;
        let numbers = batch.records.iter().map(|record| record.index);
        let followed = follow(self.last, numbers.zip(batch.bad.iter().copied()));
        let is_new_jump = followed.held.is_some() && followed.held != self.held;
        let is_missing = followed.is_gap || is_new_jump;
        (self.last, self.held) = (followed.last, followed.held);
        let unread: u64 = batch.bad.iter().sum();
        if unread > 0 {
            tracing::warn!(
                "{}: {unread} records of the changelog cannot be read",
                self.mdt
            );
        }
        Ok(Heard {
            seen: told.into_iter().map(Seen::closed).collect(),
            events: batch.records.len(),
            missed: is_missing.then_some("records are missing in the changelog"),
            unread,
            position: self.last,
            ..Heard::default()
        })
    }
}

impl Detector for Changelog {
    fn name(&self) -> String {
        format!("lustre {} {}", self.mdt, self.user)
    }

    fn hear(&mut self) -> Result<Heard, Deaf> {
        let batch = self.news()?;
        if batch.records.is_empty() {
            return Ok(Heard::default());
        }
        let heard = self.tell(&batch);
        if heard.is_err() {
            // They are read again.
            self.stream = None;
        }
        heard
    }

    fn wait(&mut self) -> Result<(), Deaf> {
        let waited = self.lfs.waker.wait(None, Some(ASK_EVERY));
        waited.map_err(|errno| Deaf::of(&self.mdt, "wait for it", errno))
    }

    fn waker(&self) -> Arc<Waker> {
        self.lfs.waker.clone()
    }

    fn keeps_position(&self) -> bool {
        true
    }

    fn resume(&mut self, position: u64) {
        self.last = Some(position);
    }

    fn acknowledge(&mut self, position: u64) -> Result<(), Deaf> {
        let end = position.to_string();
        let words = ["changelog_clear", &self.mdt, &self.user, &end].map(OsStr::new);
        self.lfs.run(&words)?;
        Ok(())
    }
}

/// How far the numbers of records go on.
#[derive(Debug, PartialEq, Eq)]
struct Followed {
    last: Option<u64>,
    is_gap: bool,
    held: Option<u64>,
}

/// Follows the numbers of records, each with how many before it could not be read.
fn follow(last: Option<u64>, numbers: impl Iterator<Item = (u64, u64)>) -> Followed {
    let mut now = Followed {
        last,
        is_gap: false,
        held: None,
    };
    let mut unread = 0;
    for (number, bad) in numbers {
        unread += bad;
        let Some(last) = now.last else {
            now.last = Some(number);
            continue;
        };
        let goes_on = number > last && number - last <= 1 + unread;
        let confirms = now.held.is_some_and(|held| number == held + 1);
        if goes_on || confirms {
            now.is_gap |= !goes_on;
            (now.last, now.held, unread) = (Some(number), None, 0);
        } else if number > last {
            now.held = Some(number);
        }
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last record before, records with how many before each are missing by error, and the last
    /// record after, whether there is a gap, and what is held.
    type Case<'a> = (
        Option<u64>,
        &'a [(u64, u64)],
        (Option<u64>, bool, Option<u64>),
    );

    #[test]
    fn a_jump_counts_when_another_record_goes_on_from_there() {
        let cases: [Case<'_>; 10] = [
            (None, &[], (None, false, None)),
            (None, &[(7, 0), (8, 0)], (Some(8), false, None)),
            (Some(6), &[(7, 0), (8, 0)], (Some(8), false, None)),
            // Purged.
            (Some(6), &[(9, 0), (10, 0), (11, 0)], (Some(11), true, None)),
            (Some(6), &[(9, 0)], (Some(6), false, Some(9))),
            // A name that looks like a record.
            (Some(6), &[(7, 0), (999, 0), (8, 0)], (Some(8), false, None)),
            (
                Some(6),
                &[(7, 0), (3, 0), (7, 0), (8, 0)],
                (Some(8), false, None),
            ),
            // One that cannot be read is no gap.
            (Some(6), &[(8, 1), (9, 0)], (Some(9), false, None)),
            (Some(6), &[(9, 1), (10, 0)], (Some(10), true, None)),
            (Some(6), &[(5, 0)], (Some(6), false, None)),
        ];
        for (last, numbers, (expected, is_gap, held)) in cases {
            let expected = Followed {
                last: expected,
                is_gap,
                held,
            };
            assert_eq!(
                follow(last, numbers.iter().copied()),
                expected,
                "{numbers:?}"
            );
        }
    }
}
