//! Lines of another program's output, as bytes, with numbers and a bound.

use driftless_model::cause;
use std::io::{self, BufRead};

/// A line holds two paths at most, each byte of which may be escaped with four or five.
pub(crate) const LINE_BYTES_MAX: usize = 128 << 10;

/// A line, without what ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// The number of the line; the first is 1.
    pub(crate) number: u64,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// The last line of a text that was cut off has no end.
    pub(crate) has_end: bool,
}

/// Why there is no line.
#[derive(Debug, thiserror::Error)]
pub enum LineFault {
    /// The reader failed.
    #[error("cannot read: {}", cause(.0))]
    Read(io::Error),
    /// It is longer than two paths.
    #[error("longer than {0} bytes")]
    TooLong(usize),
}

/// Reads lines that end with one byte.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: R,
    end: u8,
    number: u64,
    has_failed: bool,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(reader: R, end: u8) -> Self {
        Lines {
            reader,
            end,
            number: 0,
            has_failed: false,
        }
    }

    /// The number of the line that was read last.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn read(&mut self) -> Result<Option<Line>, LineFault> {
        let (mut bytes, mut is_too_long, mut has_end, mut is_empty) =
            (Vec::new(), false, false, true);
        while !has_end {
            let buffer = match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other.map_err(LineFault::Read)?,
            };
            if buffer.is_empty() {
                break;
            }
            is_empty = false;
            let found = buffer.iter().position(|byte| *byte == self.end);
            let part = &buffer[..found.unwrap_or(buffer.len())];
            is_too_long |= bytes.len() + part.len() > LINE_BYTES_MAX;
            // Of a line that is too long the rest is passed over, to go on with the next.
            bytes.extend_from_slice(if is_too_long { &[] } else { part });
            has_end = found.is_some();
            let taken = part.len() + usize::from(has_end);
            self.reader.consume(taken);
        }
        if is_empty {
            return Ok(None);
        }
        self.number += 1;
        if is_too_long {
            return Err(LineFault::TooLong(LINE_BYTES_MAX));
        }
        Ok(Some(Line {
            number: self.number,
            bytes,
            has_end,
        }))
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<Line, LineFault>;

    /// Ends after the last line, and where the reader fails; goes on after a line that is too long.
    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let read = self.read();
        if matches!(read, Err(LineFault::Read(_))) {
            self.number += 1;
            self.has_failed = true;
        }
        read.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    #[test]
    fn lines_are_numbered_and_the_last_may_have_no_end() {
        let read = |text: &[u8]| -> Vec<(u64, Vec<u8>, bool)> {
            let lines = Lines::new(BufReader::with_capacity(3, text), b'\n');
            let whole = lines.map(|line| line.expect("memory does not fail"));
            whole
                .map(|line| (line.number, line.bytes, line.has_end))
                .collect()
        };
        assert_eq!(read(b""), []);
        assert_eq!(read(b"\n"), [(1, b"".to_vec(), true)]);
        assert_eq!(
            read(b"long line\n\xff"),
            [
                (1, b"long line".to_vec(), true),
                (2, b"\xff".to_vec(), false)
            ]
        );
    }

    #[test]
    fn a_line_that_is_too_long_does_not_stop_the_others() {
        let text = [&vec![b'a'; LINE_BYTES_MAX + 1][..], b"\nb\n"].concat();
        let lines: Vec<_> = Lines::new(&text[..], b'\n').collect();
        assert!(matches!(lines[0], Err(LineFault::TooLong(LINE_BYTES_MAX))));
        assert_eq!(lines[1].as_ref().expect("the second").number, 2);
    }
}
