//! How a mirror stands, for a person: one line for each question that is asked at night, and what to
//! do next where something is wrong.

use crate::units::{show_bytes, show_count, show_counted, show_entries};
use driftless_mirror::comparing::ComparingNow;
use driftless_mirror::herald::ToldNow;
use driftless_mirror::status::{CycleNow, PoolMember, QueueNow, Status};
use driftless_mirror::worded::for_job;
use driftless_model::moment;
use std::time::Duration;

/// What is told of one replica of a job that the user names so.
pub fn lines(status: &Status, named: &str) -> Vec<String> {
    let mut rows = vec![
        ("state", state(status)),
        ("behind", behind(status)),
        ("left", left(status)),
        ("lag", lag(status)),
    ];
    if let Some(cycle) = &status.cycle {
        rows.push(("cycle", cycle_now(cycle)));
    }
    if let Some(queue) = status.queue.filter(|_| status.is_running()) {
        rows.push(("queue", queue_now(queue, status)));
    }
    if let Some(told) = status.told.as_ref().filter(|_| status.is_running()) {
        rows.push(("announced", announced(told)));
    }
    let members = status
        .pool
        .iter()
        .map(|one| ("follower", member(one, status.now)));
    rows.extend(members);
    if let Some(now) = status.comparing {
        rows.push(("comparing", comparing(&now)));
    }
    rows.push(("compared", walks(status)));
    if status.is_running() {
        rows.push(("done", done(status)));
    }
    if let Some(trash) = &status.trash {
        let text = format!(
            "{}, {}",
            show_entries(trash.entries),
            show_bytes(trash.bytes)
        );
        rows.push(("trash", text));
    }
    let wrong = wrong(status, named).into_iter().map(|text| ("WRONG", text));
    let rows = rows.into_iter().chain(wrong);
    let rows = rows.map(|(name, text)| format!("  {name:<9} {text}"));
    let head = format!("{}: {} -> {}", status.job, status.source, status.replica);
    [head].into_iter().chain(rows).collect()
}

/// Formats the state of a replica in one line: its job, state, delay and problems, and its trees.
pub fn listed(status: &Status) -> String {
    let doing = match (status.is_running(), &status.starting) {
        (true, _) => doing(status),
        (false, Some(_)) => "starting".into(),
        (false, None) => "not running".into(),
    };
    let delay = match (status.is_unknown, status.is_behind()) {
        (true, _) => "delay unknown: TOO FAR".into(),
        (false, true) => format!("{} behind: TOO FAR", seconds(status.behind())),
        (false, false) => format!("{} behind", seconds(status.behind())),
    };
    let problems = show_counted(status.problems, "problem", "problems");
    format!(
        "{}: {doing}; {delay}; {problems}; {} -> {}",
        status.job, status.source, status.replica
    )
}

fn state(status: &Status) -> String {
    if !status.is_running() {
        let paused = if status.is_paused { ", and paused" } else { "" };
        let running = match &status.starting {
            Some(process) => format!("starting ({process})"),
            None => "not running".into(),
        };
        return format!("{running}{paused}; last known state");
    }
    let since = at(status.began);
    format!(
        "{} (process {}, since {since})",
        doing(status),
        status.process
    )
}

/// Returns the work of a running mirror in words.
fn doing(status: &Status) -> String {
    let what = match &status.cycle {
        Some(_) => "snapshots",
        None => "changes",
    };
    let tells = status.hears || status.cycle.is_some();
    match (&status.away, status.is_paused, status.is_walking) {
        (Some(_), ..) => "waiting: the trees are out of reach".to_owned(),
        (_, true, _) => "paused".to_owned(),
        _ if status.is_quiet && tells => {
            format!("quiet hours: receiving {what}, copying nothing")
        }
        _ if status.is_quiet => "quiet hours: copying nothing".to_owned(),
        (_, _, true) if !tells => status.comparison(),
        _ if !tells => "waiting for the next full scan".to_owned(),
        (_, _, true) => format!("{}, and following {what}", status.comparison()),
        _ if status.helps => match &status.waiting {
            Some(why) => format!("a follower, waiting: {why}"),
            None => "a follower, at work".to_owned(),
        },
        _ => format!("following {what}"),
    }
}

/// Formats the counts of the comparison that runs.
fn comparing(now: &ComparingNow) -> String {
    format!(
        "{} seen, {} changed, {} copied in {}",
        show_entries(now.seen),
        show_count(now.changed),
        show_bytes(now.bytes_copied),
        seconds(now.elapsed)
    )
}

fn behind(status: &Status) -> String {
    let allowed = seconds(status.rpo);
    if status.is_unknown {
        return format!(
            "unknown, limit {allowed}: TOO FAR; the clock was ahead when the replica was last complete"
        );
    }
    let verdict = if status.is_behind() { ": TOO FAR" } else { "" };
    let equal = match (status.equal_until, status.walk.ended) {
        (Some(moment), _) => format!("; complete at {}", at(moment)),
        (None, Some(ended)) if status.problems > 0 => {
            let failed = show_counted(status.problems, "path failed", "paths failed");
            format!("; the last full scan ended at {}; {failed}", at(ended))
        }
        _ => "; not complete yet".to_owned(),
    };
    let behind = seconds(status.behind());
    format!("{behind}, limit {allowed}{verdict}{equal}")
}

fn left(status: &Status) -> String {
    let mut text = show_counted(status.left, "path", "paths");
    if status.quarantined > 0 {
        text += &format!(", {} in quarantine", show_count(status.quarantined));
    }
    if status.problems > 0 {
        text += &format!("; {}", show_counted(status.problems, "problem", "problems"));
    }
    text
}

fn lag(status: &Status) -> String {
    let lag = &status.lag;
    if lag.files == 0 {
        return "no change measured yet".into();
    }
    let parts = [
        ("p50", lag.p50),
        ("p95", lag.p95),
        ("p99", lag.p99),
        ("max", lag.max),
    ];
    let parts = parts.map(|(share, time)| format!("{share} {}", seconds(time)));
    let count = show_counted(lag.files, "change", "changes");
    format!(
        "{}, in the last clock hour with changes and the hour before; {count} since the start",
        parts.join(", ")
    )
}

fn done(status: &Status) -> String {
    format!(
        "{} changed, {} deleted, {} copied; {} received, {}",
        show_count(status.changed),
        show_count(status.deleted),
        show_bytes(status.bytes_copied),
        show_counted(status.events, "event", "events"),
        show_counted(status.overflows, "event loss", "event losses"),
    )
}

fn cycle_now(cycle: &CycleNow) -> String {
    let equal = cycle.equal.map_or_else(
        || "no snapshot yet".to_owned(),
        |moment| format!("the source as it was at {}", at(moment)),
    );
    let mut text = format!("the replica has {equal}; {}", cycle.stage);
    if !cycle.next.is_zero() {
        let next = at(cycle.next);
        text += &format!(", {} complete, the next at {next}", cycle.count);
    }
    text
}

fn walks(status: &Status) -> String {
    let walk = &status.walk;
    let Some(ended) = walk.ended else {
        return "not yet".to_owned();
    };
    format!(
        "{} until {}, {} changed; {} missed by detectors, in {}",
        show_counted(walk.seen, "entry", "entries"),
        at(ended),
        show_count(walk.changed),
        show_count(walk.missed),
        show_counted(walk.count, "full scan", "full scans")
    )
}

/// What keeps a mirror that runs from copying anything.
pub fn in_the_way(status: &Status, named: &str) -> Option<String> {
    let away = status.away.as_ref().map(|why| out_of_reach(why));
    if status.is_paused {
        Some(paused(named))
    } else if status.is_quiet {
        Some("quiet hours of the job".to_owned())
    } else {
        let problems = || (status.problems > 0).then(|| not_equal(named));
        away.or_else(|| no_snapshot(status))
            .or_else(|| deaf(status))
            .or_else(problems)
            .or_else(|| mute(status))
            .or_else(|| shared(status))
    }
}

/// How many are subscribed to the queue that are no members of its pool. Which those are only their
/// lead knows.
fn strangers(status: &Status) -> u64 {
    let members = status.pool.iter().filter(|one| one.hears).count() as u64;
    let consumers = status.queue.map_or(0, |queue| queue.consumers);
    match status.helps {
        true => 0,
        false => consumers.saturating_sub(1 + members),
    }
}

fn shared(status: &Status) -> Option<String> {
    let others = Some(strangers(status)).filter(|others| *others > 0)?;
    Some(format!(
        "{} announcements that this mirror lacks; end the second mirror of the job, or the follower \
         that hangs",
        show_counted(
            others,
            "unknown consumer receives",
            "unknown consumers receive"
        )
    ))
}

/// A member of the pool.
fn member(one: &PoolMember, now: Duration) -> String {
    let silent = now.saturating_sub(one.heard);
    let hears = if one.hears { "" } else { "; not subscribed" };
    let wrong = match (&one.wrong, one.problems) {
        (Some(why), _) => format!("; WRONG: {why}"),
        (None, 0) => String::new(),
        (None, some) => format!("; {}", show_counted(some, "problem", "problems")),
    };
    format!(
        "{} (process {}, since {}): {} left, {} done, {} copied; last message {} ago{hears}{wrong}",
        one.host,
        one.process,
        at(one.began),
        show_count(one.left),
        show_count(one.done),
        show_bytes(one.bytes),
        seconds(silent),
    )
}

fn queue_now(queue: QueueNow, status: &Status) -> String {
    let waiting = show_counted(queue.waiting, "announcement waits", "announcements wait");
    match strangers(status) {
        0 => waiting,
        others => format!(
            "{waiting}; SHARED with {} announcements that this mirror lacks",
            show_counted(
                others,
                "unknown consumer, which receives",
                "unknown consumers, which receive"
            )
        ),
    }
}

fn announced(told: &ToldNow) -> String {
    let waiting = show_counted(told.waiting, "change waits", "changes wait");
    let mut text = format!("{}; {waiting}", show_count(told.announced));
    if let Some(oldest) = told.oldest {
        text += &format!(" since {}", at(oldest));
    }
    if told.unheard > 0 {
        text += &format!("; {} unroutable", show_count(told.unheard));
    }
    text
}

fn mute(status: &Status) -> Option<String> {
    let told = status.told.as_ref()?;
    let why = told.away.as_ref()?;
    Some(format!(
        "changes are not announced: {why}; the mirror retries"
    ))
}

fn not_equal(job: &str) -> String {
    format!("some paths differ; list them: driftless mirror problems {job}")
}

fn out_of_reach(why: &str) -> String {
    let why = for_job(why);
    format!("out of reach: {why}; the mirror retries")
}

fn deaf(status: &Status) -> Option<String> {
    let why = status.deaf.as_ref()?;
    Some(format!(
        "changes are not received, and only full scans find them: {why}"
    ))
}

fn no_snapshot(status: &Status) -> Option<String> {
    let why = status.cycle.as_ref()?.failed.as_ref()?;
    Some(format!("no snapshot: {why}; the mirror retries"))
}

fn paused(job: &str) -> String {
    format!("paused; continue with: driftless mirror resume {job}")
}

/// What is wrong, and what to do about it.
fn wrong(status: &Status, job: &str) -> Vec<String> {
    let mut all = Vec::new();
    if !status.is_running() && status.starting.is_none() {
        let note = "the mirror does not run; start it: driftless mirror run";
        all.push(format!("{note} {job}"));
    }
    all.extend(status.away.as_deref().map(out_of_reach));
    all.extend(deaf(status));
    all.extend(mute(status));
    if let Some(why) = &status.forgets {
        all.push(format!("cannot save the state: {why}"));
    }
    all.extend(no_snapshot(status));
    if status.problems > 0 {
        all.push(not_equal(job));
    }
    if status.is_running() && status.is_paused {
        all.push(paused(job));
    }
    all
}

/// A moment for a person.
pub fn at(moment_of: Duration) -> String {
    moment(moment_of.as_secs().cast_signed())
}

/// A span for a person.
pub fn seconds(span: Duration) -> String {
    match span.as_secs() {
        0 => format!("{} ms", span.as_millis()),
        1..60 => format!("{:.1} s", span.as_secs_f64()),
        _ => driftless_model::span(span.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_reconcile::Refusal;

    #[test]
    fn what_a_guard_advises_is_a_key_of_the_job() {
        let unlike = Refusal::Unlike {
            replica: "/b".into(),
            meant: None,
        };
        let lacking = Refusal::Lacking {
            side: "source",
            path: ".here".into(),
            cause: "no such file".into(),
        };
        let many = Refusal::TooMany {
            deletes: 2,
            allowed: 1,
        };
        for (refusal, key) in [
            (unlike, "(delete_unlike = true in the job"),
            (lacking, "(required in the job)"),
            (many, "(max_delete in the job)"),
        ] {
            let told = for_job(&refusal.to_string());
            assert!(told.contains(key) && !told.contains("--"), "{told}");
        }
    }

    #[test]
    #[allow(
        clippy::field_reassign_with_default,
        reason = "a status has fields of its own, so no expression makes one elsewhere"
    )]
    fn what_is_wrong_is_told_with_what_to_do_about_it() {
        let mut status = Status::default();
        status.job = "projects".into();
        status.process = 7;
        status.rpo = Duration::from_secs(300);
        assert!(
            !lines(&status, "projects")
                .iter()
                .any(|text| text.contains("WRONG"))
        );
        status.process = 0;
        status.away = Some("no such host".into());
        status.problems = 2;
        status.now = Duration::from_secs(1000);
        status.oldest = Some(Duration::from_secs(100));
        status.lag.files = 1;
        let told = lines(&status, "projects").join("\n");
        for part in [
            "behind    15 minutes, limit 5 minutes: TOO FAR",
            "driftless mirror run projects",
            "out of reach: no such host",
            "driftless mirror problems projects",
            "; 1 change since the start",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}
