//! One record of the changelog, from its line.

use crate::lines::LineFault;
use driftless_model::{EntryName, Stamp, escape};
use std::fmt;

/// A file or directory of the file system, by the number that it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fid {
    /// The sequence.
    pub seq: u64,
    /// The object in it.
    pub oid: u32,
    /// Its version.
    pub ver: u32,
}

impl fmt::Display for Fid {
    /// As `lfs fid2path` takes it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "[{:#x}:{:#x}:{:#x}]", self.seq, self.oid, self.ver)
    }
}

/// What a record is about (`enum changelog_rec_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The log was begun or ended: 0.
    Mark,
    /// A new entry has a name: 1, 2, 4, 5.
    Made,
    /// A further name of a file: 3.
    Linked,
    /// A name of an entry that is no directory is gone: 6.
    Unlinked,
    /// A directory is gone: 7.
    Removed,
    /// An entry has another name: 8, and 9, which older versions wrote besides.
    Renamed,
    /// Content or metadata may differ: 11 to 22.
    Changed,
    /// Nothing differs: 10, 23, 24.
    Read,
    /// A type that is not known here.
    Unknown(u32),
}

impl Kind {
    fn of(number: u32) -> Kind {
        match number {
            0 => Kind::Mark,
            3 => Kind::Linked,
            1 | 2 | 4 | 5 => Kind::Made,
            6 => Kind::Unlinked,
            7 => Kind::Removed,
            8 | 9 => Kind::Renamed,
            // CLOSE LYOUT TRUNC SATTR XATTR HSM MTIME CTIME ATIME MIGRT FLRW RESYNC.
            11..=22 => Kind::Changed,
            // OPEN GXATR NOPEN.
            10 | 23 | 24 => Kind::Read,
            other => Kind::Unknown(other),
        }
    }
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number; what `lfs changelog_clear` takes.
    pub index: u64,
    /// What it is about.
    pub kind: Kind,
    /// When it was written.
    pub time: Stamp,
    /// What it means depends on the type.
    pub flags: u64,
    /// The entry; of a rename, the one that was overwritten. `None` if it is zero.
    pub target: Option<Fid>,
    /// The directory that the name is in.
    pub parent: Option<Fid>,
    /// The name; of a rename, the new one.
    pub name: Option<EntryName>,
    /// Of a rename, what was renamed.
    pub source: Option<Source>,
}

/// What was renamed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The entry.
    pub fid: Fid,
    /// The directory that it was in.
    pub parent: Fid,
    /// The name that it had.
    pub name: EntryName,
}

/// What is wrong with a record.
#[derive(Debug, thiserror::Error)]
pub enum LustreFault {
    /// There is no line.
    #[error(transparent)]
    Line(#[from] LineFault),
    /// The text ends within the record.
    #[error("truncated")]
    CutOff,
    /// It lacks something.
    #[error("no {wanted} in \"{}\"", escape(rest))]
    Missing {
        /// What should stand there.
        wanted: &'static str,
        /// What stands there.
        rest: Vec<u8>,
    },
    /// What should be one component of a path is none.
    #[error("\"{}\" is not a name", escape(.0))]
    Name(Vec<u8>),
}

/// Whether a line begins like a record: a number, and two digits and letters.
pub(super) fn begins(line: &[u8]) -> bool {
    let mut words = line
        .split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty());
    let (index, kind) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    index.iter().all(u8::is_ascii_digit)
        && kind.len() > 2
        && kind[..2].iter().all(u8::is_ascii_digit)
        && kind[2..].iter().all(u8::is_ascii_uppercase)
}

/// Reads a record, without the line end behind it.
pub fn parse(line: &[u8]) -> Result<Record, LustreFault> {
    let mut rest = line;
    let index = word(&mut rest, "index", |word| word.parse().ok())?;
    let number = word(&mut rest, "type", |word| {
        let digits = word.trim_end_matches(|c: char| c.is_ascii_uppercase());
        digits.parse().ok()
    })?;
    let (seconds, nsec) = word(&mut rest, "time", time_of_day)?;
    let days = word(&mut rest, "date", days_since_1970)?;
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let flags = word(&mut rest, "flags", hex)?;
    let target = word(&mut rest, "target", |word| {
        whole_fid(word.strip_prefix("t=")?)
    })?;
    let kind = Kind::of(number);
    let (named, source) = match kind {
        Kind::Renamed => split_source(rest)?,
        _ => (rest, None),
    };
    let (parent, name) =
        split_name(named)?.map_or((None, None), |(parent, name)| (non_zero(parent), name));
    Ok(Record {
        index,
        kind,
        time: Stamp {
            sec: days * 86_400 + seconds,
            nsec,
        },
        flags,
        target: non_zero(target),
        parent,
        name,
        source,
    })
}

/// The next word, as what it is.
fn word<T>(
    rest: &mut &[u8],
    wanted: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<T, LustreFault> {
    let line = rest.trim_ascii_start();
    let length = line
        .iter()
        .position(|byte| *byte == b' ')
        .unwrap_or(line.len());
    let found = std::str::from_utf8(&line[..length]).ok().and_then(read);
    *rest = &line[length..];
    found.ok_or_else(|| LustreFault::Missing {
        wanted,
        rest: line.to_vec(),
    })
}

/// What stands before ` s=[fid] sp=[fid] name`, and what that says. The last place that reads so.
fn split_source(rest: &[u8]) -> Result<(&[u8], Option<Source>), LustreFault> {
    const MARK: &[u8] = b" s=";
    for at in (0..rest.len())
        .rev()
        .filter(|at| rest[*at..].starts_with(MARK))
    {
        let Some((fid, behind)) = fid(&rest[at + MARK.len()..]) else {
            continue;
        };
        let parent = behind.strip_prefix(b" sp=").and_then(self::fid);
        let Some((parent, name)) =
            parent.and_then(|(parent, behind)| Some((parent, behind.strip_prefix(b" ")?)))
        else {
            continue;
        };
        let name = entry_name(name)?;
        return Ok((&rest[..at], Some(Source { fid, parent, name })));
    }
    Ok((rest, None))
}

/// What ` p=[fid] name` says, behind words that are passed over. The first place that reads so.
fn split_name(rest: &[u8]) -> Result<Option<(Fid, Option<EntryName>)>, LustreFault> {
    const MARK: &[u8] = b" p=";
    let places = (0..rest.len()).filter(|at| rest[*at..].starts_with(MARK));
    let found = places.filter_map(|at| fid(&rest[at + MARK.len()..])).next();
    let Some((parent, behind)) = found else {
        return Ok(None);
    };
    match behind.strip_prefix(b" ") {
        None | Some(b"") => Ok(Some((parent, None))),
        Some(name) => Ok(Some((parent, Some(entry_name(name)?)))),
    }
}

fn entry_name(bytes: &[u8]) -> Result<EntryName, LustreFault> {
    EntryName::try_from(bytes.to_vec()).map_err(|_| LustreFault::Name(bytes.to_vec()))
}

fn non_zero(fid: Fid) -> Option<Fid> {
    (fid.seq != 0 || fid.oid != 0).then_some(fid)
}

/// `[0x200000402:0x3:0x0]`, and what stands behind it.
fn fid(bytes: &[u8]) -> Option<(Fid, &[u8])> {
    let length = bytes.iter().position(|byte| *byte == b']')? + 1;
    let (fid, behind) = bytes.split_at(length);
    Some((whole_fid(std::str::from_utf8(fid).ok()?)?, behind))
}

fn whole_fid(text: &str) -> Option<Fid> {
    let mut numbers = text.strip_prefix('[')?.strip_suffix(']')?.split(':');
    let mut next = || u64::from_str_radix(numbers.next()?.strip_prefix("0x")?, 16).ok();
    let fid = Fid {
        seq: next()?,
        oid: next()?.try_into().ok()?,
        ver: next()?.try_into().ok()?,
    };
    numbers.next().is_none().then_some(fid)
}

/// `10:11:12.123456789` in seconds and nanoseconds.
fn time_of_day(word: &str) -> Option<(i64, u32)> {
    let (time, nsec) = word.split_once('.')?;
    let mut parts = time.split(':').map(|part| part.parse::<u32>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    let nsec = (nsec.len() == 9).then(|| nsec.parse::<u32>().ok())??;
    let is_time = hours < 24 && minutes < 60 && seconds <= 60 && parts.next().is_none();
    is_time.then(|| (i64::from(hours * 3600 + minutes * 60 + seconds), nsec))
}

/// `2026.01.31` in days, in the proleptic Gregorian calendar (H. Hinnant, "chrono-compatible
/// low-level date algorithms", 2014, `days_from_civil`).
fn days_since_1970(word: &str) -> Option<i64> {
    let mut parts = word.split('.').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let is_date =
        (0..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || parts.next().is_some() {
        return None;
    }
    // Years begin in March, so that the day that not all have is their last.
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}
