//! What failover, failback and promote print.

use super::{complaint, line};
use crate::units::{show_counted, show_entries};
use driftless_engine::{Counts, End};
use driftless_mirror::recovery::{Loss, Lost, PATHS_TOLD_MAX, Rehearsal};
use driftless_mirror::worded::{for_job, shown};
use driftless_model::{Problem, RelPath, Stamp, moment};
use driftless_state::mirror::Role;
use std::time::Duration;

/// A failover, before or after.
pub struct Over {
    pub job: String,
    pub source: String,
    pub replica: String,
    /// A state of the job is on this host, for this user.
    pub is_known: bool,
    /// Its mirror is at work, and may do more than is told here.
    pub is_running: bool,
    pub loss: Loss,
    /// What the replica becomes.
    pub to: String,
    /// The replica is as its mirror has left it; `None` if that is unknown.
    pub is_as_left: Option<bool>,
    /// What was changed on the replica since then may not be durable.
    pub doubt: Option<Stamp>,
    /// Why the snapshot that it becomes may not be the newest, or not what it was.
    pub snapshot_doubts: Vec<String>,
    pub is_read_only: bool,
    pub can_snapshot: bool,
    /// What going back to a snapshot does.
    pub back: Option<Rehearsal>,
    pub is_done: bool,
    /// What the replica's snapshot is called.
    pub snapshot: Option<String>,
}

/// A failback, before or after.
pub struct Back {
    pub job: String,
    pub source: String,
    pub replica: String,
    pub equal_until: Option<Duration>,
    pub counts: Counts,
    /// What the source has, and goes.
    pub lost: Vec<Lost>,
    pub has_more: bool,
    pub problems: Vec<Problem>,
    /// End of the last run, or of the one that was rehearsed.
    pub end: End,
    /// Runs that were made.
    pub passes: u64,
    /// What the snapshot of the source is called.
    pub kept: Option<String>,
    /// What the replica is.
    pub role: Role,
}

fn told(at: Duration) -> String {
    moment(at.as_secs().cast_signed())
}

fn paths<'p>(paths: impl Iterator<Item = &'p RelPath>) -> Vec<String> {
    let told = paths.take(PATHS_TOLD_MAX);
    told.map(shown).collect()
}

fn list(all: &[String], count: usize) {
    all.iter().for_each(|path| line(&format!("    {path}")));
    if count > all.len() {
        line(&format!("    and {} more", count - all.len()));
    }
}

/// Prints a failover.
pub fn over(over: &Over, json: bool) {
    if json {
        return line(&json_of_over(over).to_string());
    }
    if over.is_done {
        line(&format!(
            "{}: the replica {} is the active side",
            over.job, over.replica
        ));
        return;
    }
    if was_never_equal(over) {
        line(&format!(
            "{}: THE REPLICA HAS NEVER BEEN COMPLETE: no full scan has ended, so it lacks {}",
            over.job,
            missing(over)
        ));
    }
    line(&format!(
        "{}: {} -> {}",
        over.job, over.source, over.replica
    ));
    if over.loss.role.role == Role::FailedOver {
        let since = over.loss.role.since.unwrap_or_default();
        return line(&format!("  failed over already, since {}", told(since)));
    }
    doubts(over);
    line(&format!("  has      {}", has(over)));
    let left = over.loss.left.len();
    line(&format!(
        "  lost     {} changed since, as far as reported",
        missing(over)
    ));
    list(&paths(over.loss.left.iter()), left);
    let count = over.loss.problems.len();
    line(&format!(
        "  problems {} failed",
        show_counted(count as u64, "path", "paths")
    ));
    list(
        &paths(over.loss.problems.iter().map(|one| &one.path)),
        count,
    );
    if let Some(since) = over.doubt {
        line(&format!(
            "  DOUBT    changes since {} may not be on disk",
            moment(since.sec)
        ));
    }
    for doubt in &over.snapshot_doubts {
        line(&format!("  DOUBT    {doubt}"));
    }
    match &over.back {
        None => line("  becomes  its present state"),
        Some(back) => {
            let Counts {
                changed, deleted, ..
            } = back.counts;
            line(&format!(
                "  becomes  its snapshot {}: {} restored, {deleted} deleted; its present state stays in a snapshot",
                over.to,
                show_entries(changed)
            ));
            list(
                &paths(back.lost.iter().map(|one| &one.path)),
                back.lost.len(),
            );
        }
    }
}

/// Returns whether the state knows that no comparison has come to its end.
fn was_never_equal(over: &Over) -> bool {
    let follows = matches!(over.loss.role.role, Role::Following | Role::FailingOver);
    over.is_known && follows && !over.loss.has_been_equal
}

/// Returns until when the replica has everything.
fn has(over: &Over) -> String {
    match over.loss.equal_until {
        Some(until) => format!("all changes until {}", told(until)),
        None if was_never_equal(over) => "a part of the source: it has never been complete".into(),
        None => "all changes until an unknown moment".into(),
    }
}

/// Returns how many paths the replica lacks. A directory that is left with all below it, and a
/// comparison that did not come to its end, make that unknown.
fn missing(over: &Over) -> String {
    let left = show_counted(over.loss.left.len() as u64, "path", "paths");
    match is_left_all(over) {
        true => left,
        false => format!("an unknown number, at least {left}"),
    }
}

/// Returns whether all that is missing is known. An older copy of the replica lacks more.
fn is_left_all(over: &Over) -> bool {
    over.is_known && over.loss.is_counted() && over.is_as_left != Some(false)
}

/// Prints why more may have been done than is known, or less be there.
fn doubts(over: &Over) {
    if !over.is_known {
        line(
            "  UNKNOWN  this user has no state of the job on this host: the command ends no mirror of another user or host",
        );
    }
    if over.is_as_left == Some(false) {
        line(
            "  DOUBT    another run has changed the replica last, which the state does not know: \
             the replica may be an older copy, and lack later changes",
        );
    }
    if over.is_running {
        line("  RUNNING  the mirror runs: its last changes may not be counted yet");
    }
}

fn json_of_over(over: &Over) -> serde_json::Value {
    let seconds = |span: Duration| span.as_secs_f64();
    let back = over.back.as_ref();
    serde_json::json!({
        "job": over.job,
        "source": over.source,
        "replica": over.replica,
        "role": if over.is_done { Role::FailedOver.word() } else { over.loss.role.role.word() },
        "to": over.to,
        "done": over.is_done,
        "is_known": over.is_known,
        "is_running": over.is_running,
        "equal_until": over.loss.equal_until.map(seconds),
        "has_been_equal": over.is_known.then_some(over.loss.has_been_equal),
        "left": over.loss.left.len(),
        "is_left_all": is_left_all(over),
        "is_as_left": over.is_as_left,
        "left_paths": paths(over.loss.left.iter()),
        "problems": over.loss.problems.len(),
        "problem_paths": paths(over.loss.problems.iter().map(|one| &one.path)),
        "doubt_since": over.doubt.map(|since| since.sec),
        "snapshot_doubts": over.snapshot_doubts,
        "is_read_only": over.is_read_only,
        "can_snapshot": over.can_snapshot,
        "go_back": back.map(|back| back.counts.changed),
        "go": back.map(|back| back.counts.deleted),
        "snapshot": over.snapshot,
    })
}

/// Prints a failback.
pub fn back(back: &Back, json: bool) {
    if json {
        return line(&json_of_back(back).to_string());
    }
    let Counts {
        changed,
        deleted,
        bytes_copied,
        ..
    } = back.counts;
    if back.passes > 0 {
        problems(&back.problems);
        if let Some(why) = refused(&back.end) {
            complaint(&format!("{}: {why}", back.job));
        }
        let side = match back.role {
            Role::Following => "the source is the active side again",
            _ => "the replica is still the active side",
        };
        line(&format!(
            "{}: {} changed, {deleted} deleted, {} copied; {side}",
            back.job,
            show_entries(changed),
            show_counted(bytes_copied, "byte", "bytes")
        ));
        return;
    }
    line(&format!(
        "{}: {} -> {}",
        back.job, back.replica, back.source
    ));
    line(&format!(
        "  moves    {}; {} deleted",
        show_entries(changed),
        show_counted(deleted, "is", "are")
    ));
    let count = back.lost.len();
    let until = back
        .equal_until
        .map_or_else(|| "an unknown moment".to_owned(), told);
    line(&format!(
        "  lost     {} changed on the source since {until}",
        show_counted(count as u64, "entry was", "entries were")
    ));
    list(&paths(back.lost.iter().map(|one| &one.path)), count);
    if back.has_more {
        line("  the list is not complete: the failback may overwrite more entries");
    }
    if let Some(why) = refused(&back.end) {
        line(&format!("  REFUSED  {why}"));
    }
    problems(&back.problems);
}

/// Returns why a run does not come to its end, in the words of a job, if so.
fn refused(end: &End) -> Option<String> {
    match end {
        End::Refused(why) | End::NoPlan(why) | End::CutOff(why) => Some(for_job(why)),
        End::Complete | End::Stopped | End::Lost => None,
    }
}

fn json_of_back(back: &Back) -> serde_json::Value {
    serde_json::json!({
        "job": back.job,
        "source": back.source,
        "replica": back.replica,
        "role": back.role.word(),
        "done": back.passes > 0,
        "equal_until": back.equal_until.map(|span| span.as_secs_f64()),
        "changed": back.counts.changed,
        "deleted": back.counts.deleted,
        "bytes_copied": back.counts.bytes_copied,
        "passes": back.passes,
        "lost": back.lost.len(),
        "lost_paths": paths(back.lost.iter().map(|one| &one.path)),
        "problems": back.problems.len(),
        "refused": refused(&back.end),
        "kept": back.kept,
    })
}

/// Prints problems.
pub fn problems(problems: &[Problem]) {
    let told = problems.iter().take(PATHS_TOLD_MAX);
    told.for_each(|problem| eprintln!("driftless: {problem}"));
}
