//! Lustre's changelog, as `lfs changelog FS-MDT0000` prints it.
//!
//! ```text
//! index NNTYPE hh:mm:ss.nanoseconds yyyy.mm.dd 0xflags t=[fid] [j=...] [ef=...] [u=...] [nid=...]
//!     [m=...] [x=...] [p=[fid] name] [s=[fid] sp=[fid] name]
//! ```
//!
//! Source: lustre/utils/lfs.c (`lfs_changelog`), lustre_user.h (`enum changelog_rec_type`) of the
//! Lustre project. Names stand there as bytes, with whatever they hold:
//!
//! - A name may look like the end of a rename, so that is looked for from the right.
//! - A name may hold line ends. A line that does not begin like a record belongs to the name before
//!   it; one that only looks like a record makes two bad ones of one.
//!
//! Who gives files such names hides what he does to them from the changelog; the walk finds it.

mod lfs;
mod log;
mod record;
mod resolve;

pub use log::Changelog;
pub use record::{Fid, Kind, LustreFault, Record, Source, parse};
pub use resolve::{Fids, Place, changes};

use crate::lines::{LINE_BYTES_MAX, Line, LineFault, Lines};
use std::io::BufRead;

/// A record that cannot be read: what it says is not known.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the changelog: {fault}")]
pub struct LustreError {
    /// The number of its first line; the first is 1.
    pub line: u64,
    /// What is wrong with it.
    pub fault: LustreFault,
}

/// Reads records; one that is bad does not stop the others. Reads a line ahead, to see whether it
/// belongs to the record.
#[derive(Debug)]
pub struct Records<R> {
    lines: Lines<R>,
    /// The line that was read ahead, and its number.
    ahead: Option<(u64, Result<Line, LineFault>)>,
}

impl<R: BufRead> Records<R> {
    /// Reads what `lfs changelog` prints.
    pub fn new(reader: R) -> Self {
        Records {
            lines: Lines::new(reader, b'\n'),
            ahead: None,
        }
    }

    fn line(&mut self) -> Option<(u64, Result<Line, LineFault>)> {
        self.ahead.take().or_else(|| {
            let line = self.lines.next()?;
            Some((self.lines.number(), line))
        })
    }

    /// Adds the lines that belong to the name at the end of this one.
    fn whole(&mut self, mut first: Line) -> Result<Line, LineFault> {
        while first.has_end {
            match self.line() {
                Some((_, Ok(line))) if !record::begins(&line.bytes) => {
                    if first.bytes.len() + line.bytes.len() >= LINE_BYTES_MAX {
                        return Err(LineFault::TooLong(LINE_BYTES_MAX));
                    }
                    first.bytes.push(b'\n');
                    first.bytes.extend(line.bytes);
                    first.has_end = line.has_end;
                }
                other => {
                    self.ahead = other;
                    break;
                }
            }
        }
        Ok(first)
    }
}

impl<R: BufRead> Iterator for Records<R> {
    type Item = Result<Record, LustreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (number, line) = self.line()?;
        let whole = line.and_then(|line| self.whole(line));
        let read = whole
            .map_err(LustreFault::Line)
            .and_then(|line| match line.has_end {
                true => parse(&line.bytes),
                false => Err(LustreFault::CutOff),
            });
        Some(read.map_err(|fault| LustreError {
            line: number,
            fault,
        }))
    }
}

#[cfg(test)]
mod tests;
