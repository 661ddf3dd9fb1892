//! What the commands of GPFS print beside lists: their tables, and the summary of a policy scan.
//!
//! With `-Y` a command prints lines of fields between colons, percent-encoded. The first says what
//! stands where:
//!
//! ```text
//! mmlssnapshot::HEADER:version:reserved:reserved:filesystemName:directory:snapID:status:...
//! mmlssnapshot::0:1:::fs0:archive-2026:12:Valid:...
//! ```
//!
//! Source: IBM's "Command reference" of Storage Scale, mmlssnapshot and mmapplypolicy.

use super::unescape;
use driftless_model::escape;

/// A snapshot as GPFS lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    /// Its number: what was changed since has one that is not smaller.
    pub(super) id: u64,
    /// The fileset that it is one of; empty if it is the file system's.
    pub(super) fileset: String,
}

/// A table that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The line that says what stands where lacks something.
    #[error("the table has no column \"{0}\"")]
    Missing(&'static str),
    /// A line is not as the first one says.
    #[error("cannot parse the row \"{}\"", escape(.0))]
    Line(Vec<u8>),
}

/// A summary that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SummaryError {
    /// It does not say how many objects are in the list.
    #[error("the summary does not count the chosen objects")]
    NoCount,
    /// It says so more than once.
    #[error("the summary has more than one rule")]
    Twice,
}

/// Reads the table of `mmlssnapshot -Y`: the snapshots that can be read, of all filesets.
pub(super) fn snapshots(table: &[u8]) -> Result<Vec<Row>, TableError> {
    let mut columns = None;
    let mut rows = Vec::new();
    let lines = table.split(|byte| *byte == b'\n');
    for line in lines.filter(|line| line.starts_with(b"mmlssnapshot:")) {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        if fields.get(2) == Some(&&b"HEADER"[..]) {
            columns = Some(Columns::of(&fields)?);
            continue;
        }
        let columns = columns.as_ref().ok_or(TableError::Missing("HEADER"))?;
        rows.extend(
            columns
                .row(&fields)
                .ok_or_else(|| TableError::Line(line.to_vec()))?,
        );
    }
    Ok(rows)
}

/// Where what stands in a line.
struct Columns {
    name: usize,
    id: usize,
    status: usize,
    fileset: Option<usize>,
}

impl Columns {
    fn of(fields: &[&[u8]]) -> Result<Columns, TableError> {
        let at = |name: &str| fields.iter().position(|field| *field == name.as_bytes());
        let of = |name| at(name).ok_or(TableError::Missing(name));
        Ok(Columns {
            name: of("directory")?,
            id: of("snapID")?,
            status: of("status")?,
            fileset: at("fileset"),
        })
    }

    /// A line; nothing of one whose snapshot cannot be read, none if it is none.
    fn row(&self, fields: &[&[u8]]) -> Option<Option<Row>> {
        let text = |at: usize| String::from_utf8(unescape(fields.get(at)?).ok()?).ok();
        let row = Row {
            name: text(self.name)?,
            id: text(self.id)?.parse().ok()?,
            fileset: match self.fileset {
                Some(at) => text(at)?,
                None => String::new(),
            },
        };
        let is_valid = text(self.status)?.eq_ignore_ascii_case("valid");
        Some(is_valid.then_some(row))
    }
}

/// How many objects a scan with one rule has chosen: the number below `Chosen` in the table of its
/// summary.
pub(super) fn chosen(printed: &[u8]) -> Result<u64, SummaryError> {
    let text = String::from_utf8_lossy(printed);
    let mut lines = text.lines();
    let column = lines.by_ref().find_map(|line| {
        let mut words = line.split_whitespace();
        let is_head = words.next()?.eq_ignore_ascii_case("Rule#");
        is_head.then(|| words.position(|word| word == "Chosen"))?
    });
    let column = column.ok_or(SummaryError::NoCount)? + 1;
    let counts: Vec<&str> = lines
        .take_while(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()))
        .filter_map(|line| line.split_whitespace().nth(column))
        .collect();
    match &counts[..] {
        [count] => count.parse().map_err(|_| SummaryError::NoCount),
        [] => Err(SummaryError::NoCount),
        _ => Err(SummaryError::Twice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "mmlssnapshot::HEADER:version:reserved:reserved:filesystemName:directory:snapID:status:created:quotas:data:metadata:fileset:snapType:\n";

    #[test]
    fn snapshots_are_listed_with_their_numbers_and_filesets() {
        let table = format!(
            "{HEAD}mmlssnapshot::0:1:::fs0:a-1:7:Valid:Thu Jan  1 00%3A00%3A00 2026::::prod::\n\
             mmlssnapshot::0:1:::fs0:a%2D2:12:Valid::::::::\n\
             mmlssnapshot::0:1:::fs0:broken:9:DeleteRequired::::::::\n"
        );
        let found = snapshots(table.as_bytes()).unwrap();
        let row = |name: &str, id, fileset: &str| Row {
            name: name.into(),
            id,
            fileset: fileset.into(),
        };
        assert_eq!(found, [row("a-1", 7, "prod"), row("a-2", 12, "")]);
        assert_eq!(snapshots(HEAD.as_bytes()).unwrap(), []);
        assert_eq!(snapshots(b"").unwrap(), []);
        for (bad, why) in [
            (
                "mmlssnapshot::0:1:::fs0:a:7:Valid::::::::",
                "has no \"HEADER\"",
            ),
            (
                "mmlssnapshot::HEADER:version:directory:status:",
                "has no \"snapID\"",
            ),
            (
                &*format!("{HEAD}mmlssnapshot::0:1:::fs0:a:x:Valid:"),
                "is no line",
            ),
            (&*format!("{HEAD}mmlssnapshot::0:1:::fs0:a"), "is no line"),
            (
                &*format!("{HEAD}mmlssnapshot::0:1:::fs0:%zz:7:Valid:"),
                "is no line",
            ),
        ] {
            let told = snapshots(bad.as_bytes()).unwrap_err().to_string();
            assert!(told.contains(why), "{told}");
        }
    }

    #[test]
    fn the_summary_of_a_scan_tells_how_many_objects_were_chosen() {
        let summary = |rows: &str| {
            format!(
                "[I] 2026-01-01@00:00:00.000 Policy evaluation. 9 files scanned.\n\
                 [I] Summary of Rule Applicability and File Choices:\n \
                 Rule#      Hit_Cnt          KB_Hit          Chosen       KB_Chosen          KB_Ill     Rule\n\
                 {rows}\n[I] Filesystem objects with no applicable rules: 6.\n"
            )
        };
        let row = "     0            4             128               3             96               0     RULE 'differs' LIST 'changed' DIRECTORIES_PLUS SHOW(.) WHERE(.)";
        assert_eq!(chosen(summary(row).as_bytes()).unwrap(), 3);
        for bad in [
            "",
            "no summary",
            &summary(""),
            &summary(&format!("{row}\n{row}")),
            &summary("     0   x"),
        ] {
            assert!(chosen(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
