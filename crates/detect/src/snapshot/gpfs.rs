//! What a policy scan of GPFS (IBM Storage Scale) lists: what has changed since a snapshot.
//!
//! ```text
//! inode generation snapshot [shown] -- path
//! ```
//!
//! Two spaces stand before what is shown, one on each side of `--`; with nothing shown there are
//! three before it. With `ESCAPE '%/'` in the policy, what is shown and the path are
//! percent-encoded, but for slashes. Source: IBM's "Administration Guide" of Storage Scale, external
//! lists and `mmapplypolicy`; lists that sites have published.
//!
//! A scan lists what there is: neither what is gone nor where something has come from. Both show in
//! the directories that have changed, which it lists, too, so their names have to be compared.
//!
//! A list has no end of its own, nor any order, so no object in it could mark one. Who reads it has
//! to say how many objects were chosen, which `mmapplypolicy` prints (`Chosen` in its summary), or
//! the program that hands a finished list on counts.

mod commands;
mod provider;

pub use commands::{SummaryError, TableError};
pub use provider::Fileset;

use crate::base::Base;
use crate::lines::{LineFault, Lines};
use driftless_model::{RelPath, escape};
use std::collections::BTreeSet;
use std::io::BufRead;

/// More lines than this are not read: a source of which more has changed is compared as a whole in
/// the same time.
const OBJECTS_MAX: u64 = 16 << 20;

/// What a list says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    /// Directories whose metadata and names are to be compared on both sides, in order. What was
    /// listed without its mode may be a file.
    pub directories: Vec<RelPath>,
    /// All else: each is to be compared alone, in order.
    pub entries: Vec<RelPath>,
}

/// How paths stand in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escaping {
    /// `ESCAPE '%/'`: percent-encoded, but for slashes.
    Percent,
    /// No `ESCAPE`: bytes as they are. A name with a line end in it makes the list unusable.
    None,
}

/// An object of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its inode number.
    pub inode: u64,
    /// The generation of the inode.
    pub generation: u32,
    /// The snapshot that it was read from; 0 is the live file system.
    pub snapshot: u64,
    /// What the policy shows of it.
    pub shown: Vec<u8>,
    /// One of its paths; each name has a line.
    pub path: RelPath,
}

/// A list that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the list: {fault}")]
pub struct ListError {
    /// Its number; the first is 1. Of a list that is too short, the first that is missing.
    pub line: u64,
    /// What is wrong with it.
    pub fault: ListFault,
}

/// What is wrong with a list.
#[derive(Debug, thiserror::Error)]
pub enum ListFault {
    /// There is no line.
    #[error(transparent)]
    Line(#[from] LineFault),
    /// The list ends within the line.
    #[error("truncated")]
    CutOff,
    /// It lacks a number, or the sign before the path.
    #[error("no {0}")]
    Missing(&'static str),
    /// A percent sign without two digits behind it.
    #[error("\"{}\" is not percent-encoded", escape(.0))]
    Escape(Vec<u8>),
    /// Another file system's.
    #[error("\"{}\" is not a path below \"{}\"", escape(.0), escape(.1))]
    Elsewhere(Vec<u8>, Vec<u8>),
    /// Not as many lines as objects were chosen.
    #[error("the summary counts {expected} objects, and the list has {found}")]
    Count {
        /// So many were chosen.
        expected: u64,
        /// So many lines were read; more may follow.
        found: u64,
    },
    /// More has changed than memory is planned for.
    #[error("more than {0} objects changed")]
    TooMany(u64),
}

/// Reads a list of `chosen` objects, whose paths lie below `base`: the folder of the snapshot.
///
/// Fails at the first line that cannot be used, and when there are more or fewer.
pub fn listed(
    reader: impl BufRead,
    escaping: Escaping,
    base: &Base,
    chosen: u64,
) -> Result<Listed, ListError> {
    if chosen > OBJECTS_MAX {
        return Err(ListFault::TooMany(OBJECTS_MAX).at(1));
    }
    let mut lines = Lines::new(reader, b'\n');
    let (mut directories, mut entries) = (BTreeSet::new(), BTreeSet::new());
    let mut found = 0;
    while let Some(line) = lines.next() {
        let line = line.map_err(|fault| ListFault::Line(fault).at(lines.number()))?;
        found += 1;
        if found > chosen {
            let expected = chosen;
            return Err(ListFault::Count { expected, found }.at(line.number));
        }
        if !line.has_end {
            return Err(ListFault::CutOff.at(line.number));
        }
        let object = parse(&line.bytes, escaping, base);
        let object = object.map_err(|fault| fault.at(line.number))?;
        let is_directory = object.may_be_directory();
        let side = if is_directory {
            &mut directories
        } else {
            &mut entries
        };
        side.insert(object.path);
    }
    if found < chosen {
        let expected = chosen;
        return Err(ListFault::Count { expected, found }.at(found + 1));
    }
    Ok(Listed {
        directories: directories.into_iter().collect(),
        entries: entries.into_iter().collect(),
    })
}

impl ListFault {
    fn at(self, line: u64) -> ListError {
        ListError { line, fault: self }
    }
}

impl Object {
    /// By the mode that the policies of [`Scan`] show, as `ls -l` prints it. Of what is shown
    /// otherwise nothing is known.
    fn may_be_directory(&self) -> bool {
        let is_mode =
            self.shown.len() == 10 && self.shown[1..].iter().all(|c| b"-rwxsStT".contains(c));
        !(is_mode && b"-lpsbc".contains(&self.shown[0]))
    }
}

/// Reads a line.
pub fn parse(line: &[u8], escaping: Escaping, base: &Base) -> Result<Object, ListFault> {
    let mut rest = line;
    let inode = number(&mut rest, "inode number")?;
    let generation = number(&mut rest, "generation number")?;
    let snapshot = number(&mut rest, "snapshot number")?;
    // A path may have the sign in it, and begins behind the first.
    let sign = rest.windows(4).position(|part| part == b" -- ");
    let sign = sign.ok_or(ListFault::Missing("\"--\" before the path"))?;
    let (shown, path) = (rest[..sign].trim_ascii(), &rest[sign + 4..]);
    let (shown, path) = match escaping {
        Escaping::Percent => (unescape(shown)?, unescape(path)?),
        Escaping::None => (shown.to_vec(), path.to_vec()),
    };
    let below = base.below(&path);
    Ok(Object {
        inode,
        generation,
        snapshot,
        shown,
        path: below.ok_or_else(|| ListFault::Elsewhere(path, base.as_bytes().to_vec()))?,
    })
}

fn number<N: std::str::FromStr>(rest: &mut &[u8], what: &'static str) -> Result<N, ListFault> {
    let line = rest.trim_ascii_start();
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, behind) = line.split_at(digits);
    *rest = behind;
    let text = std::str::from_utf8(number).ok();
    let number = text.and_then(|text| text.parse().ok());
    // A space has to follow, which the sign before the path begins with.
    let is_apart = behind.first() == Some(&b' ');
    number.filter(|_| is_apart).ok_or(ListFault::Missing(what))
}

pub(super) fn unescape(escaped: &[u8]) -> Result<Vec<u8>, ListFault> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((first, behind)) = rest.split_first() {
        let digit = |at: usize| {
            behind
                .get(at)
                .and_then(|byte| char::from(*byte).to_digit(16))
        };
        let (byte, length) = match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => ((high * 16 + low) as u8, 2),
            (b'%', _, _) => return Err(ListFault::Escape(escaped.to_vec())),
            _ => (*first, 0),
        };
        bytes.push(byte);
        rest = &behind[length..];
    }
    Ok(bytes)
}

/// A policy scan that lists what differs between two snapshots of a file system or fileset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// The text of the policy file, for `-P`.
    pub policy: String,
    /// What is put in for `older` in it, for `-M`: the snapshot's number, since one of a fileset has
    /// a name that others may have, too.
    pub substitution: String,
    /// What is scanned, below the root of the file system or fileset.
    pub folder: String,
}

/// The list of a [`Scan`]: with `-I defer -f PREFIX`, `mmapplypolicy` leaves it in
/// `PREFIX.list.changed`.
pub const LIST_NAME: &str = "changed";

/// The name of a snapshot that could mean something to the policy language.
#[derive(Debug, thiserror::Error)]
#[error("\"{}\" cannot be the name of a snapshot in a policy: only letters, digits, \".\", \"-\" and \"_\" can", escape(.0.as_bytes()))]
pub struct BadSnapshot(String);

impl Scan {
    /// What was changed after the snapshot with the number `older` was made, as `newer` has it.
    ///
    /// Fails if the name has other characters than letters, digits, dots, dashes and underscores.
    pub fn new(older: u64, newer: &str) -> Result<Scan, BadSnapshot> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if newer.is_empty() || !newer.chars().all(is_plain) || newer.starts_with(['.', '-']) {
            return Err(BadSnapshot(newer.to_owned()));
        }
        let policy = format!(
            "RULE EXTERNAL LIST '{LIST_NAME}' EXEC '' ESCAPE '%/'\n\
             RULE 'differs' LIST '{LIST_NAME}' DIRECTORIES_PLUS SHOW(MODE)\n  \
             WHERE MODIFICATION_SNAPID >= older\n"
        );
        Ok(Scan {
            policy,
            substitution: format!("older={older}"),
            folder: format!(".snapshots/{newer}"),
        })
    }
}

#[cfg(test)]
mod tests;
