//! Lines for people: what happened, what differs, how a run ended. The log has the same lines.

use super::Task;
use crate::units::{show_bytes, show_count, show_counted, show_entries, show_time};
use driftless_engine::{Counts, End, Summary};
use driftless_model::event::{ChangeMade, DifferenceFound, ProblemMet};
use driftless_model::{What, date_and_time};
use driftless_session::Earlier;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Ranges of one file that are printed for a person.
const SHOWN_RANGES_MAX: usize = 20;

/// `"a/b": cannot open it on the source: permission denied (left as it was)`.
pub fn problem(problem: &ProblemMet) -> String {
    let (path, act, cause) = (
        &problem.path.path,
        problem.act.on(problem.side),
        &problem.cause,
    );
    format!("\"{path}\": cannot {act}: {cause} ({})", problem.follows)
}

/// `create  file  a/b`, and behind it what differed.
pub fn change(change: &ChangeMade) -> String {
    let what = change.what.words().join(",");
    let what = if what.is_empty() {
        what
    } else {
        format!("  ({what})")
    };
    format!(
        "{:<8} {:<8} {}{what}",
        change.action.word(),
        change.kind.word(),
        change.path.path
    )
}

/// `differs  file     a/b  mode: 0644, replica 0600; content: bytes 0-4095`.
pub fn difference(found: &DifferenceFound) -> String {
    let details = details(found);
    let details = if details.is_empty() {
        String::new()
    } else {
        format!("  {}", details.join("; "))
    };
    format!(
        "{:<8} {:<8} {}{details}",
        found.found,
        found.kind.word(),
        found.path.path
    )
}

/// What differs, each property with both values.
pub fn details(found: &DifferenceFound) -> Vec<String> {
    let values = found.values.iter();
    let mut details: Vec<String> = values
        .map(|value| {
            format!(
                "{}: {}, replica {}",
                value.property,
                shown(value.property, &value.source),
                shown(value.property, &value.replica)
            )
        })
        .collect();
    if found.what.has(What::LINKS) {
        details.push("links: another group of hard links".into());
    }
    if found.what.has(What::CONTENT) && found.ranges.is_empty() {
        details.push("content: the replica's cannot be read".into());
    } else if found.what.has(What::CONTENT) {
        let ranges: Vec<String> = found
            .ranges
            .iter()
            .take(SHOWN_RANGES_MAX)
            .map(|r| format!("{}-{}", r[0], r[1] - 1))
            .collect();
        let more = if found.ranges.len() > SHOWN_RANGES_MAX {
            " and more"
        } else {
            ""
        };
        details.push(format!("content: bytes {}{more}", ranges.join(" ")));
    }
    details
}

/// Formats one value of a difference for a person: a time as a date, an empty value in quotes.
fn shown(property: &str, value: &str) -> String {
    match property {
        "mtime" | "atime" => date_of(value).unwrap_or_else(|| value.to_owned()),
        _ if value.is_empty() => "\"\"".into(),
        _ => value.to_owned(),
    }
}

/// Formats a time that is written as seconds since 1970 and nanoseconds (`stat -c %.9Y`) as
/// `2026-11-27 17:51:53.000000000 UTC`. Returns `None` if the text has another form.
fn date_of(stamp: &str) -> Option<String> {
    let (seconds, nanoseconds) = stamp.split_once('.')?;
    let (date, time) = date_and_time(seconds.parse().ok()?);
    Some(format!("{date} {time}.{nanoseconds} UTC"))
}

/// The line at the end of a run.
pub fn summary_line(task: Task, summary: &Summary, earlier: &Earlier) -> String {
    let c = &summary.counts;
    let seconds = summary.elapsed.as_secs_f64();
    let (same, made, gone, respelt) = match task {
        Task::Sync | Task::Put => ("same", "changed", "deleted", "respelt"),
        Task::DryRun => ("same", "to change", "to delete", "to respell"),
        Task::Verify => (
            "equal",
            "different",
            "extra on the replica",
            "differ in the spelling of their names",
        ),
    };
    let mut line = format!(
        "{}: {} {same}, {} {made}",
        show_entries(c.seen),
        show_count(c.same),
        show_count(c.changed)
    );
    for (count, word) in [(c.skipped(), "skipped"), (c.failed, "failed")] {
        if count > 0 {
            line.push_str(&format!(", {} {word}", show_count(count)));
        }
    }
    for (count, word) in [(c.deleted, gone), (c.respelt, respelt)] {
        if count > 0 {
            line.push_str(&format!("; {} {word}", show_count(count)));
        }
    }
    if c.only_on_replica > 0 {
        line.push_str(&format!(
            "; {} extra on the replica, kept",
            show_count(c.only_on_replica)
        ));
    }
    let (done, bytes) = moved(task, c);
    if task != Task::DryRun {
        let rate = (bytes as f64 / seconds.max(0.001)) as u64;
        let rate = if bytes > 0 {
            format!(" ({}/s)", show_bytes(rate))
        } else {
            String::new()
        };
        line.push_str(&format!(
            "; {done} {} in {seconds:.2} s{rate}",
            show_bytes(bytes)
        ));
    }
    line + &remarks(c, earlier)
}

/// What is done with content, and with how many bytes of it so far.
pub fn moved(task: Task, c: &Counts) -> (&'static str, u64) {
    if task == Task::Verify {
        ("compared", c.bytes_compared)
    } else {
        ("copied", c.bytes_copied)
    }
}

/// Says why a run did not come to its end.
pub fn print_end(summary: &Summary) {
    match &summary.end {
        End::Complete => {}
        End::Stopped => eprintln!(
            "driftless: stopped; finished entries are kept, large files up to their last checkpoint; to continue, run again: {}",
            command_line(std::env::args_os())
        ),
        End::CutOff(why) => eprintln!(
            "driftless: the connection was lost: {why}; finished entries are kept; run again to continue"
        ),
        End::Lost => eprintln!(
            "driftless: data written to the replica was lost; check its disk and mount, then run again"
        ),
        End::Refused(why) | End::NoPlan(why) => {
            eprintln!("driftless: {why}; the run finished everything else")
        }
    }
}

/// What is out of the ordinary.
fn remarks(c: &Counts, earlier: &Earlier) -> String {
    let mut remarks = String::new();
    let [from, by] = if earlier.lost > 0 {
        ["before"; 2]
    } else {
        ["from an interrupted run", "by an interrupted run"]
    };
    if c.bytes_resumed > 0 {
        remarks.push_str(&format!(
            "; {} were there {from}",
            show_bytes(c.bytes_resumed)
        ));
    }
    if c.known_equal > 0 {
        let ago = if earlier.lost > 0 {
            String::new()
        } else {
            format!(", {} ago at most", show_time(c.oldest_note_seconds))
        };
        let files = show_counted(c.known_equal, "file", "files");
        remarks.push_str(&format!("; the content of {files} was compared {by}{ago}"));
    }
    if earlier.lost > 0 {
        let times = if earlier.lost == 1 {
            "once".into()
        } else {
            format!("{} times", show_count(earlier.lost))
        };
        remarks.push_str(&format!("; the connection was lost {times}"));
    }
    if earlier.changed > 0 {
        remarks.push_str(&format!(
            ", and {} changed before that",
            show_counted(earlier.changed, "was", "were")
        ));
    }
    if c.changed_before > 0 {
        remarks.push_str(&format!(
            "; {} changed before, and compared again",
            show_counted(c.changed_before, "was", "were")
        ));
    }
    for (count, kept) in [
        (c.times_cut_seconds, "to the second"),
        (c.times_cut_fine, "not to the nanosecond"),
    ] {
        if count > 0 {
            let times = show_counted(
                count,
                "time agrees as far as the replica keeps it",
                "times agree as far as the replica keeps them",
            );
            remarks.push_str(&format!("; {times}, {kept}"));
        }
    }
    if c.mismatched > 0 {
        let times = show_counted(c.mismatched, "time", "times");
        remarks.push_str(&format!(
            "; {times} the replica returned other content than was written"
        ));
    }
    remarks
}

/// Returns the name of this host.
pub fn host_name() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

/// A command as a shell takes it.
pub fn command_line(words: impl IntoIterator<Item = OsString>) -> String {
    words
        .into_iter()
        .map(|word| quoted(&word))
        .collect::<Vec<_>>()
        .join(" ")
}

/// A word as a shell takes it; bytes that are no text in the form `$'\377'` of bash, zsh and ksh.
fn quoted(word: &OsStr) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    match word.to_str() {
        Some(text) if !text.is_empty() && text.chars().all(plain) => text.to_owned(),
        Some(text) if !text.chars().any(char::is_control) => {
            format!("'{}'", text.replace('\'', "'\\''"))
        }
        _ => format!(
            "$'{}'",
            word.as_bytes()
                .iter()
                .map(|byte| octal(*byte))
                .collect::<String>()
        ),
    }
}

fn octal(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("\\{byte:03o}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_differences_are_dates() {
        let cases = [
            ("mtime", "0.000000005", "1970-01-01 00:00:00.000000005 UTC"),
            ("mtime", "-1.500000000", "1969-12-31 23:59:59.500000000 UTC"),
            (
                "atime",
                "951782400.000000000",
                "2000-02-29 00:00:00.000000000 UTC",
            ),
            ("size", "15", "15"),
            ("xattrs", "", "\"\""),
        ];
        for (property, value, wanted) in cases {
            assert_eq!(shown(property, value), wanted);
        }
    }
}
