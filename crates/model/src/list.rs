//! How a list of paths is written, told by its beginning: the marks that programs of other systems
//! leave in it, and what its lines end with.
//!
//! All lists of names are read by these rules, wherever they come from. A byte order mark is passed
//! over. A carriage return ends lines where it ends all of them, unless such names exist.

use std::fmt;

/// The UTF-8 byte order mark (RFC 3629, section 6).
const MARK: &[u8] = b"\xef\xbb\xbf";
/// The UTF-16 byte order marks (RFC 2781, section 3.2).
const WIDE_MARKS: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];
/// Names that are looked for to find out whether carriage returns belong to them.
const TRIED_NAMES_MAX: usize = 4;

/// How a list is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListForm {
    has_mark: bool,
    has_returns: bool,
}

/// Why a list cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListError {
    /// Its characters have two bytes.
    Wide,
    /// NUL ends its paths, and newlines were expected.
    EndsWithNul,
    /// Newlines end its paths, and NUL was expected.
    EndsWithNewline,
}

impl fmt::Display for ListError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            ListError::Wide => "the list is UTF-16; save it as UTF-8",
            ListError::EndsWithNul => "the paths end with NUL; add --from0",
            ListError::EndsWithNewline => "no path ends with NUL; leave --from0 out",
        })
    }
}

impl std::error::Error for ListError {}

impl ListForm {
    /// Tells the form of a list from its first bytes, of which the last line may be cut off. `end`
    /// ends its lines; `is_there` says whether the file exists that a line names.
    ///
    /// # Errors
    /// The list is of another kind than `end` says.
    pub fn of(
        first: &[u8],
        end: u8,
        is_there: impl Fn(&[u8]) -> bool,
    ) -> Result<ListForm, ListError> {
        if WIDE_MARKS.iter().any(|mark| first.starts_with(mark)) {
            return Err(ListError::Wide);
        }
        let text = first.strip_prefix(MARK).unwrap_or(first);
        let has_mark = text.len() < first.len();
        let has_nul = text.contains(&0);
        if end == 0 {
            let is_one_name = || is_there(text);
            return if has_nul || !text.contains(&b'\n') || is_one_name() {
                Ok(ListForm {
                    has_mark,
                    has_returns: false,
                })
            } else {
                Err(ListError::EndsWithNewline)
            };
        }
        if has_nul {
            return Err(ListError::EndsWithNul);
        }
        let lines: Vec<&[u8]> = text
            .split_inclusive(|byte| *byte == end)
            .filter_map(|line| line.strip_suffix(&[end]))
            .collect();
        Ok(ListForm {
            has_mark,
            has_returns: !lines.is_empty()
                && lines.iter().all(|line| line.ends_with(b"\r"))
                && !are_of_names(&lines, is_there),
        })
    }

    /// Returns the part of a line that is the list's own: without a mark at the beginning of the first line,
    /// whose `number` is 1, and without the carriage return that ends each.
    pub fn line<'l>(&self, number: u64, line: &'l [u8]) -> &'l [u8] {
        let line = line
            .strip_prefix(MARK)
            .filter(|_| self.has_mark && number == 1)
            .unwrap_or(line);
        line.strip_suffix(b"\r")
            .filter(|_| self.has_returns)
            .unwrap_or(line)
    }
}

/// Whether carriage returns belong to the names: the first file that exists tells.
fn are_of_names(lines: &[&[u8]], is_there: impl Fn(&[u8]) -> bool) -> bool {
    let told = lines
        .iter()
        .filter(|line| line.len() > 1)
        .take(TRIED_NAMES_MAX)
        .map(|line| (is_there(line), is_there(&line[..line.len() - 1])));
    told.filter(|(with, without)| with != without)
        .map(|(with, _)| with)
        .next()
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(list: &[u8], end: u8, there: &[u8]) -> Result<Vec<Vec<u8>>, ListError> {
        let form = ListForm::of(list, end, |name| name == there)?;
        let lines = list.split(|byte| *byte == end).zip(1..);
        Ok(lines
            .map(|(line, number)| form.line(number, line).to_vec())
            .filter(|line| !line.is_empty())
            .collect())
    }

    /// A list, the byte that ends its lines, the directory that absolute paths lie in, and the names.
    type Row<'a> = (&'a [u8], u8, &'a [u8], &'a [&'a [u8]]);

    #[test]
    fn lists_of_other_systems_name_the_same_paths() {
        let table: [Row<'_>; 9] = [
            (b"a\nb\n", b'\n', b"", &[b"a", b"b"]),
            (b"a\r\nb\r\n", b'\n', b"", &[b"a", b"b"]),
            (b"\xef\xbb\xbfa\r\n\r\nb", b'\n', b"", &[b"a", b"b"]),
            (
                b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n",
                b'\n',
                b"",
                &[b"a", b"\xef\xbb\xbfb"],
            ),
            (b"a\r\nb\n", b'\n', b"", &[b"a\r", b"b"]),
            (b"a\r\n", b'\n', b"a\r", &[b"a\r"]),
            (b"a\r\0b\r\0", 0, b"", &[b"a\r", b"b\r"]),
            (b"a\nb", 0, b"a\nb", &[b"a\nb"]),
            (b"\xef\xbb\xbfa\0", 0, b"", &[b"a"]),
        ];
        for (list, end, there, expected) in table {
            assert_eq!(
                lines(list, end, there),
                Ok(expected.iter().map(|name| name.to_vec()).collect()),
                "{}",
                list.escape_ascii()
            );
        }
    }

    #[test]
    fn lists_of_another_kind_are_refused() {
        let table: [(&[u8], u8, ListError); 4] = [
            (b"a\0b\0", b'\n', ListError::EndsWithNul),
            (b"a\nb\n", 0, ListError::EndsWithNewline),
            (b"\xff\xfea\0", b'\n', ListError::Wide),
            (b"\xfe\xff\0a", 0, ListError::Wide),
        ];
        for (list, end, error) in table {
            assert_eq!(lines(list, end, b""), Err(error), "{}", list.escape_ascii());
        }
    }
}
