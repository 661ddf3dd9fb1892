//! The file that keeps the hash trees of many files, version 1. It is text, so that a broken line
//! can be named.
//!
//! ```text
//! driftless-tree 1
//! leaf LEAF_BYTES
//! HASH SIZE NAME          for each file; with a backslash before HASH if NAME is escaped
//! LEAF                    for each leaf: SIZE / LEAF_BYTES, rounded up
//! end FILES
//! ```
//!
//! What is read is not trusted: counts reserve no memory, and hash and leaves must fit each other.
//! (The hash of a file of one leaf does not follow from that leaf, and is believed:
//! [`HashTree::new`].)

use crate::algorithm::Digest;
use crate::hashtree::{BadTree, HashTree, Leaf};
use crate::lines::{Lines, push_escaped, split_mark, unescaped};
use crate::subtree::{is_piece_size, pieces_of};
use driftless_model::cause;
use std::io::{self, BufRead, Write};

/// The first line of the format that is written and read here.
const HEADER: &str = "driftless-tree 1";
/// How the first line of any version begins.
const HEADER_ANY: &[u8] = b"driftless-tree ";

/// Writes a tree file.
#[derive(Debug)]
pub struct TreeWriter<W> {
    out: W,
    files: u64,
}

impl<W: Write> TreeWriter<W> {
    /// Begins a file of trees with leaves of this many bytes.
    ///
    /// # Errors
    /// The output cannot be written to.
    pub fn new(mut out: W, leaf_bytes: u64) -> io::Result<Self> {
        writeln!(out, "{HEADER}\nleaf {leaf_bytes}")?;
        Ok(TreeWriter { out, files: 0 })
    }

    /// Adds the tree of the file `name`.
    ///
    /// # Errors
    /// The output cannot be written to.
    pub fn add(&mut self, name: &[u8], tree: &HashTree) -> io::Result<()> {
        let special = b"\n\r\\";
        let mut line = Vec::with_capacity(name.len() + 96);
        if name.iter().any(|byte| special.contains(byte)) {
            line.push(b'\\');
        }
        line.extend(format!("{} {} ", tree.root(), tree.size()).into_bytes());
        push_escaped(&mut line, name, special);
        line.push(b'\n');
        self.out.write_all(&line)?;
        self.files += 1;
        tree.leaves().iter().try_for_each(|leaf| {
            writeln!(
                self.out,
                "{}",
                Digest::from(blake3::Hash::from_bytes(*leaf))
            )
        })
    }

    /// What is written to.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// Ends the file with its last line, without which it would count as cut off. Returns what was
    /// written to.
    ///
    /// # Errors
    /// The output cannot be written to.
    pub fn finish(mut self) -> io::Result<W> {
        writeln!(self.out, "end {}", self.files)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Why a tree file cannot be read on.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadTreeFile {
    /// The number of the line; the first is 1.
    pub line: u64,
    why: String,
}

/// Reads a tree file.
pub struct TreeReader<R> {
    lines: Lines<R>,
    leaf_bytes: u64,
    files: u64,
    over: bool,
}

impl<R: BufRead> TreeReader<R> {
    /// Reads the first two lines.
    ///
    /// # Errors
    /// They cannot be read, or this is not a tree file of version 1.
    pub fn new(input: R) -> Result<Self, BadTreeFile> {
        let mut reader = TreeReader {
            lines: Lines::new(input),
            leaf_bytes: 0,
            files: 0,
            over: false,
        };
        let header = reader.line()?;
        if header != HEADER.as_bytes() {
            let is_other = header.starts_with(HEADER_ANY);
            return Err(reader.bad(if is_other {
                "unsupported version of the format (1 is supported)"
            } else {
                "this is not a tree file"
            }));
        }
        let leaf = reader.line()?;
        reader.leaf_bytes = leaf
            .strip_prefix(b"leaf ")
            .and_then(number)
            .ok_or_else(|| reader.bad("\"leaf BYTES\" is expected"))?;
        if !is_piece_size(reader.leaf_bytes) {
            return Err(reader.bad(BadTree::LeafSize(reader.leaf_bytes)));
        }
        Ok(reader)
    }

    /// The number of bytes of a leaf, the same for all trees of the file.
    pub fn leaf_bytes(&self) -> u64 {
        self.leaf_bytes
    }

    /// The name of the next file and its tree; `None` at the end.
    ///
    /// # Errors
    /// A line cannot be read, has another form than is expected, or does not fit the lines before
    /// it.
    pub fn next_tree(&mut self) -> Result<Option<(Vec<u8>, HashTree)>, BadTreeFile> {
        if self.over {
            return Ok(None);
        }
        let line = self.line()?;
        if let Some(files) = line.strip_prefix(b"end ") {
            self.over = true;
            return if number(files) == Some(self.files) {
                self.no_more()
            } else {
                Err(self.bad("the number of files is wrong"))
            };
        }
        let (root, size, name) = self.record(&line)?;
        // Collecting results reserves no room in advance, so a forged size costs nothing.
        let leaves = (0..pieces_of(size, self.leaf_bytes))
            .map(|_| self.leaf())
            .collect::<Result<Vec<_>, _>>()?;
        let tree =
            HashTree::new(size, self.leaf_bytes, leaves, root).map_err(|error| self.bad(error))?;
        self.files += 1;
        Ok(Some((name, tree)))
    }

    fn no_more<T>(&mut self) -> Result<Option<T>, BadTreeFile> {
        match self.lines.read() {
            Ok(None) => Ok(None),
            _ => Err(self.bad("unexpected text after the end")),
        }
    }

    fn record(&self, line: &[u8]) -> Result<(Digest, u64, Vec<u8>), BadTreeFile> {
        let form = || self.bad("\"HASH SIZE NAME\" is expected");
        let (is_escaped, rest) = split_mark(line);
        let mut parts = rest.splitn(3, |byte| *byte == b' ');
        let root = parts.next().and_then(digest).ok_or_else(form)?;
        let size = parts.next().and_then(number).ok_or_else(form)?;
        let name = parts
            .next()
            .filter(|name| !name.is_empty())
            .ok_or_else(form)?;
        let name = if is_escaped {
            unescaped(name).ok_or_else(|| self.bad("an unknown escape in the name"))?
        } else {
            name.to_vec()
        };
        Ok((root, size, name))
    }

    fn leaf(&mut self) -> Result<Leaf, BadTreeFile> {
        let line = self.line()?;
        let leaf = digest(&line).ok_or_else(|| self.bad("the hash of a leaf is expected"))?;
        Ok(leaf.as_bytes().try_into().expect("it has 32 bytes"))
    }

    fn line(&mut self) -> Result<Vec<u8>, BadTreeFile> {
        match self.lines.read() {
            Ok(Some(line)) => Ok(line),
            Ok(None) => Err(self.bad("the file is truncated")),
            Err(error) => Err(self.bad(cause(&error))),
        }
    }

    fn bad(&self, why: impl ToString) -> BadTreeFile {
        BadTreeFile {
            line: self.lines.number(),
            why: why.to_string(),
        }
    }
}

fn digest(hex: &[u8]) -> Option<Digest> {
    Digest::from_hex(hex).filter(|digest| digest.as_bytes().len() == 32)
}

fn number(text: &[u8]) -> Option<u64> {
    let is_plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text)
        .ok()
        .filter(|_| is_plain)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Vec<u8> {
        let mut writer = TreeWriter::new(Vec::new(), 1024).unwrap();
        for (name, size) in [(&b"a\n\\b"[..], 3000), (b"\xff x", 1), (b"empty", 0)] {
            writer
                .add(name, &HashTree::of(&vec![5; size], 1024).unwrap())
                .unwrap();
        }
        writer.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> Result<Vec<(Vec<u8>, HashTree)>, BadTreeFile> {
        let mut reader = TreeReader::new(bytes)?;
        std::iter::from_fn(|| reader.next_tree().transpose()).collect()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let trees = read(&written()).unwrap();
        assert_eq!(trees.len(), 3);
        assert_eq!(
            trees[0],
            (b"a\n\\b".to_vec(), HashTree::of(&[5; 3000], 1024).unwrap())
        );
        assert_eq!(trees[2].1.leaves(), [[0; 32]; 0]);
    }

    #[test]
    fn whatever_is_cut_off_is_noticed() {
        let whole = written();
        for length in 0..whole.len() - 1 {
            assert!(
                read(&whole[..length]).is_err(),
                "{length} of {} bytes",
                whole.len()
            );
        }
    }

    #[test]
    fn a_broken_file_is_refused_with_the_line() {
        let hash = "00".repeat(32);
        let table = [
            ("".to_string(), "line 1: the file is truncated"),
            ("hello\n".into(), "line 1: this is not a tree file"),
            (
                "driftless-tree 2\n".into(),
                "line 1: unsupported version of the format (1 is supported)",
            ),
            (
                "driftless-tree 1\nleaf x\n".into(),
                "line 2: \"leaf BYTES\" is expected",
            ),
            (
                "driftless-tree 1\nleaf 1000\n".into(),
                "line 2: a leaf size must be a power of two from 1024 on, and is 1000",
            ),
            (
                "driftless-tree 1\nleaf 1024\nx\n".into(),
                "line 3: \"HASH SIZE NAME\" is expected",
            ),
            (
                format!("driftless-tree 1\nleaf 1024\n{hash} +1 a\n"),
                "line 3: \"HASH SIZE NAME\" is expected",
            ),
            (
                format!("driftless-tree 1\nleaf 1024\n\\{hash} 1 \\a\n"),
                "line 3: an unknown escape in the name",
            ),
            (
                format!("driftless-tree 1\nleaf 1024\n{hash} 18446744073709551615 a\n{hash}\n"),
                "line 5: the file is truncated",
            ),
            (
                format!("driftless-tree 1\nleaf 1024\n{hash} 2048 a\n{hash}\nx\n"),
                "line 5: the hash of a leaf is expected",
            ),
            (
                format!("driftless-tree 1\nleaf 1024\n{hash} 2048 a\n{hash}\n{hash}\n"),
                "line 5: the hash does not follow from the leaves",
            ),
            (
                "driftless-tree 1\nleaf 1024\nend 1\n".into(),
                "line 3: the number of files is wrong",
            ),
            (
                "driftless-tree 1\nleaf 1024\nend 0\nx\n".into(),
                "line 4: unexpected text after the end",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(
                read(text.as_bytes()).unwrap_err().to_string(),
                expected,
                "{text}"
            );
        }
    }
}
