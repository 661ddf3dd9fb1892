//! How far an unfinished large file has come: a set of byte ranges, and the note that is kept with
//! it.
//!
//! The note is text, one line each: a version, the fingerprint of the source, then the ranges:
//! `driftless 1` / `INO SIZE MTIME_SEC MTIME_NSEC CTIME_SEC CTIME_NSEC` / `START-END` ...

use driftless_model::Meta;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Ranges that a note holds at most; each takes up to 42 bytes of the 2 KiB that fit into an
/// attribute on every file system.
const RANGES_MAX: usize = 40;
const VERSION: &str = "driftless 1";

/// A set of byte ranges, sorted and merged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Range<u64>>")]
pub struct Ranges(Vec<Range<u64>>);

impl From<Vec<Range<u64>>> for Ranges {
    /// In one pass over what is sorted: the parts may come from a peer, in any order and number.
    fn from(mut parts: Vec<Range<u64>>) -> Self {
        parts.retain(|part| !part.is_empty());
        parts.sort_unstable_by_key(|part| part.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for part in parts {
            match merged.last_mut().filter(|last| part.start <= last.end) {
                Some(last) => last.end = last.end.max(part.end),
                None => merged.push(part),
            }
        }
        Ranges(merged)
    }
}

impl Ranges {
    /// Adds a range.
    pub fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let at = self.0.partition_point(|r| r.end < range.start);
        let mut merged = range;
        while self.0.get(at).is_some_and(|r| r.start <= merged.end) {
            let old = self.0.remove(at);
            merged = old.start.min(merged.start)..old.end.max(merged.end);
        }
        self.0.insert(at, merged);
    }

    /// Bytes in the set.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|r| r.end - r.start).sum()
    }

    /// What of `0..size` is not in the set, which may go beyond.
    pub fn missing(&self, size: u64) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = 0;
        for range in self.0.iter().take_while(|range| range.start < size) {
            if range.start > at {
                gaps.push(at..range.start);
            }
            at = range.end;
        }
        if at < size {
            gaps.push(at..size);
        }
        gaps
    }

    /// Whether the set goes nowhere beyond `0..size`.
    pub fn is_within(&self, size: u64) -> bool {
        self.0.last().is_none_or(|last| last.end <= size)
    }

    /// How many ranges it takes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }

    /// Cuts a range where the set begins and ends: pieces in order, each with whether it is in the
    /// set.
    pub fn cut(&self, range: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut pieces = Vec::new();
        let mut at = range.start;
        for inside in self
            .0
            .iter()
            .skip_while(|inside| inside.end <= range.start)
            .take_while(|inside| inside.start < range.end)
        {
            if inside.start > at {
                pieces.push((at..inside.start, false));
            }
            let end = inside.end.min(range.end);
            pieces.push((inside.start.max(at)..end, true));
            at = end;
        }
        if at < range.end {
            pieces.push((at..range.end, false));
        }
        pieces
    }

    /// The largest ranges, as many as a note holds.
    fn largest(&self) -> Vec<Range<u64>> {
        let mut ranges = self.0.clone();
        ranges.sort_by_key(|r| std::cmp::Reverse(r.end - r.start));
        ranges.truncate(RANGES_MAX);
        ranges
    }
}

/// What must agree for a source file to be the one that an unfinished copy began with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint([i128; 6]);

impl Fingerprint {
    /// The fingerprint of a file.
    pub fn of(meta: &Meta) -> Self {
        let (m, c) = (meta.mtime, meta.ctime);
        Fingerprint([
            meta.ino.into(),
            meta.size.into(),
            m.sec.into(),
            m.nsec.into(),
            c.sec.into(),
            c.nsec.into(),
        ])
    }

    /// The size of the file in bytes.
    pub fn size(&self) -> Option<u64> {
        self.0[1].try_into().ok()
    }

    /// As a line of text.
    pub fn to_line(&self) -> String {
        self.0.map(|number| number.to_string()).join(" ")
    }

    /// What such a line says.
    pub fn of_line(line: &str) -> Option<Self> {
        let numbers: Option<Vec<i128>> =
            line.split(' ').map(|number| number.parse().ok()).collect();
        numbers?.try_into().ok().map(Fingerprint)
    }
}

/// The note kept with an unfinished file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// The source it was copied from.
    pub source: Fingerprint,
    /// What is durable on the replica.
    pub done: Ranges,
}

impl Resume {
    /// Writes the note.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!("{VERSION}\n{}\n", self.source.to_line());
        for range in self.done.largest() {
            text.push_str(&format!("{}-{}\n", range.start, range.end));
        }
        text.into_bytes()
    }

    /// Reads a note; `None` if it is not one of this version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(bytes).ok()?.lines();
        if lines.next()? != VERSION {
            return None;
        }
        let source = Fingerprint::of_line(lines.next()?)?;
        let mut done = Ranges::default();
        for line in lines {
            let (start, end) = line.split_once('-')?;
            let (start, end) = (start.parse().ok()?, end.parse().ok()?);
            done.add(start..end);
        }
        Some(Resume { source, done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(parts: &[Range<u64>]) -> Ranges {
        let mut set = Ranges::default();
        parts.iter().for_each(|r| set.add(r.clone()));
        set
    }

    #[test]
    fn ranges_merge_and_name_their_gaps() {
        let set = ranges(&[20..30, 0..10, 10..12, 25..40]);
        assert_eq!(set.bytes(), 32);
        assert_eq!(set.missing(50), vec![12..20, 40..50]);
        assert_eq!(set.missing(40), vec![12..20]);
        assert_eq!(Ranges::default().missing(0), vec![]);
        assert_eq!(ranges(&[5..6, 0..100]).missing(100), vec![]);
    }

    #[test]
    fn a_set_is_the_same_however_its_parts_come() {
        let parts = [
            20..30,
            0..10,
            10..12,
            25..40,
            7..7,
            Range { start: 9, end: 3 },
            100..u64::MAX,
        ];
        assert_eq!(Ranges::from(parts.to_vec()), ranges(&parts));
        assert_eq!(Ranges::from(Vec::new()), Ranges::default());
    }

    #[test]
    fn nothing_is_missing_behind_the_end_of_a_file() {
        let beyond = ranges(&[100..200, 300..400]);
        assert_eq!(beyond.missing(50), vec![0..50]);
        assert_eq!(beyond.missing(100), vec![0..100]);
        assert_eq!(beyond.missing(150), vec![0..100]);
        assert_eq!(beyond.missing(0), vec![]);
    }

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let note = Resume {
            source: Fingerprint([1, 2, -3, 4, 5, 6]),
            done: ranges(&[0..10, 20..u64::MAX]),
        };
        assert_eq!(Resume::decode(&note.encode()), Some(note.clone()));
        for bad in [
            &b""[..],
            b"driftless 2\n1 2 3 4 5 6\n",
            b"driftless 1\n1 2 3\n",
            b"driftless 1\n1 2 3 4 5 6\n7\n",
            b"\xff",
        ] {
            assert_eq!(Resume::decode(bad), None);
        }
    }

    #[test]
    fn a_note_fits_into_an_attribute_of_any_file_system() {
        let many: Vec<Range<u64>> = (0..1000)
            .map(|i| u64::MAX - 3000 + i * 3..u64::MAX - 3000 + i * 3 + 1)
            .collect();
        let note = Resume {
            source: Fingerprint([i128::from(i64::MIN); 6]),
            done: ranges(&many),
        };
        assert!(note.encode().len() <= 2048);
    }

    #[test]
    fn a_range_is_cut_where_the_set_begins_and_ends() {
        let mut set = Ranges::default();
        [10..20, 30..40]
            .into_iter()
            .for_each(|range| set.add(range));
        type Piece = (Range<u64>, bool);
        let cases: [(Range<u64>, &[Piece]); 6] = [
            (
                0..50,
                &[
                    (0..10, false),
                    (10..20, true),
                    (20..30, false),
                    (30..40, true),
                    (40..50, false),
                ],
            ),
            (12..35, &[(12..20, true), (20..30, false), (30..35, true)]),
            (20..30, &[(20..30, false)]),
            (11..12, &[(11..12, true)]),
            (45..50, &[(45..50, false)]),
            (5..5, &[]),
        ];
        for (range, pieces) in cases {
            assert_eq!(set.cut(range.clone()), pieces, "{range:?}");
        }
    }
}
