//! Lines of text files that hold names: escaping, and reading with a bound.
//!
//! Names are bytes and may hold newlines. As GNU coreutils and b3sum do it, such a name is written
//! with `\n` for a newline, `\r` for a carriage return and `\\` for a backslash, and the line
//! begins with a backslash to say so.

use std::io::{self, BufRead, Read};

/// Bytes of the longest line that is read, its end included: a path of thousands of directories
/// fits.
pub const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Appends `name` with each byte of `special` escaped.
pub fn push_escaped(line: &mut Vec<u8>, name: &[u8], special: &[u8]) {
    for byte in name {
        match byte {
            b'\n' if special.contains(byte) => line.extend(b"\\n"),
            b'\r' if special.contains(byte) => line.extend(b"\\r"),
            b'\\' if special.contains(byte) => line.extend(b"\\\\"),
            other => line.push(*other),
        }
    }
}

/// Replaces each escape by the byte that it stands for; `None` if there is an escape that does not
/// exist.
pub fn unescaped(name: &[u8]) -> Option<Vec<u8>> {
    let mut found = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        found.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b'\\' => b'\\',
                _ => return None,
            },
            other => *other,
        });
    }
    Some(found)
}

/// Takes the backslash from the beginning of a line: returns whether there is one, so that the name
/// is escaped, and the rest of the line.
pub fn split_mark(line: &[u8]) -> (bool, &[u8]) {
    line.strip_prefix(b"\\")
        .map_or((false, line), |rest| (true, rest))
}

/// Reads lines and counts them.
pub struct Lines<R> {
    input: R,
    end: u8,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// Reads lines that end with a newline.
    pub fn new(input: R) -> Self {
        Lines::ending_with(b'\n', input)
    }

    /// Reads lines that end with the byte `end`; it may be missing after the last line.
    pub fn ending_with(end: u8, input: R) -> Self {
        Lines {
            input,
            end,
            number: 0,
        }
    }

    /// The number of the line that was read last, the first being 1; at the end of the input, that
    /// of the line that would come next.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next line without its end; `None` at the end of the input.
    ///
    /// # Errors
    /// Reading failed, or the line is longer than `LINE_BYTES_MAX`, 16 MiB.
    pub fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        self.number += 1;
        if self
            .input
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(self.end, &mut line)?
            == 0
        {
            return Ok(None);
        }
        if line.last() == Some(&self.end) {
            line.pop();
        } else if line.len() as u64 == LINE_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the line is too long",
            ));
        }
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_taken_back() {
        let name = b"a\n\\n\r\\\xff";
        let mut line = Vec::new();
        push_escaped(&mut line, name, b"\n\r\\");
        assert_eq!(line, b"a\\n\\\\n\\r\\\\\xff");
        assert_eq!(unescaped(&line).unwrap(), name);
        assert_eq!(unescaped(b"a\\t"), None);
        assert_eq!(unescaped(b"a\\"), None);
    }

    #[test]
    fn lines_are_counted_and_bounded() {
        let mut lines = Lines::new(&b"a\n\nlast"[..]);
        assert_eq!(lines.read().unwrap().unwrap(), b"a");
        assert_eq!(lines.read().unwrap().unwrap(), b"");
        assert_eq!(lines.read().unwrap().unwrap(), b"last");
        assert_eq!((lines.number(), lines.read().unwrap()), (3, None));
        let mut endless = Lines::new(io::BufReader::new(io::repeat(b'x')));
        assert!(endless.read().is_err());
        let mut records = Lines::ending_with(0, &b"a\n\0b\0"[..]);
        assert_eq!(
            (
                records.read().unwrap().unwrap(),
                records.read().unwrap().unwrap()
            ),
            (b"a\n".to_vec(), b"b".to_vec())
        );
        assert_eq!(records.read().unwrap(), None);
    }
}
