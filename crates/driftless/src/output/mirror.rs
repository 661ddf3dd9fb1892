//! What the commands of a mirror print.

pub mod recovery;

use driftless_mirror::ask::Troubles;
use driftless_mirror::foreign::Foreign;
use driftless_mirror::status::{CycleNow, Status, Trouble};
use driftless_model::{escape, escape_text, moment};
use driftless_state::mirror::{JobRow, Role};
use std::io::Write;
use std::time::Duration;

/// Prints a line.
pub fn line(text: &str) {
    let text = escape_text(text);
    let _nobody_reads_it = writeln!(std::io::stdout(), "{text}");
}

/// Prints how a mirror is.
pub fn status(status: &Status, json: bool) {
    if json {
        line(&serde_json::to_string(&json_of(status)).expect("plain values"));
        return;
    }
    line(&format!(
        "{}: {} -> {}",
        status.job, status.source, status.replica
    ));
    line(&format!("  {}", state(status)));
    line(&format!(
        "  behind     {} (may be {}){}",
        seconds(status.behind()),
        seconds(status.rpo),
        if status.is_behind() { ": TOO FAR" } else { "" }
    ));
    line(&format!(
        "  left       {} paths, {} of them in quarantine; {} paths have problems",
        status.left, status.quarantined, status.problems
    ));
    let lag = &status.lag;
    line(&format!(
        "  lag        {} changes; of the newest, half within {}, 95 % {}, 99 % {}, all {}",
        lag.files,
        seconds(lag.p50),
        seconds(lag.p95),
        seconds(lag.p99),
        seconds(lag.max)
    ));
    if let Some(cycle) = &status.cycle {
        line(&format!("  cycle      {}", cycle_now(cycle)));
    }
    line(&format!("  compared   {}", walks(status)));
    line(&format!(
        "  done       {} changed, {} deleted, {} bytes copied, {} events heard, {} times some were missed",
        status.changed, status.deleted, status.bytes_copied, status.events, status.overflows
    ));
    if let Some(why) = status
        .cycle
        .as_ref()
        .and_then(|cycle| cycle.failed.as_ref())
    {
        line(&format!("  NO SNAPSHOT  {why}"));
    }
    if let Some(why) = &status.deaf {
        line(&format!("  DEAF       {why}"));
    }
}

fn state(status: &Status) -> String {
    let since = moment(status.began.as_secs().cast_signed());
    let what = status.cycle.as_ref().map_or("changes", |_| "snapshots");
    let doing = match (&status.away, status.is_paused, status.is_walking) {
        (Some(why), ..) => format!("OUT OF REACH: {why}"),
        (_, true, _) => "paused".to_owned(),
        _ if status.is_quiet => format!("quiet hours: hearing of {what}, copying nothing"),
        (_, _, true) => format!("comparing all, and following {what}"),
        _ => format!("following {what}"),
    };
    format!("{doing} (process {}, since {since})", status.process)
}

fn cycle_now(cycle: &CycleNow) -> String {
    let told = |at: Duration| moment(at.as_secs().cast_signed());
    let equal = cycle.equal.map_or_else(
        || "no snapshot yet".to_owned(),
        |at| format!("the source as it was at {}", told(at)),
    );
    format!(
        "the replica has {equal}; {}, {} complete, the next at {}",
        cycle.stage,
        cycle.count,
        told(cycle.next)
    )
}

fn walks(status: &Status) -> String {
    match status.walk.ended {
        None => "not yet".to_owned(),
        Some(ended) => format!(
            "{} entries until {}, {} of them changed; {} that no detector had told of, {} that somebody else had changed on the replica, in {} comparisons",
            status.walk.seen,
            moment(ended.as_secs().cast_signed()),
            status.walk.changed,
            status.walk.missed,
            status.foreign.count,
            status.walk.count
        ),
    }
}

fn seconds(span: Duration) -> String {
    match span.as_secs() {
        0 => format!("{} ms", span.as_millis()),
        1..60 => format!("{:.1} s", span.as_secs_f64()),
        _ => driftless_model::span(span.as_secs()),
    }
}

fn json_of(status: &Status) -> serde_json::Value {
    let seconds = |span: Duration| span.as_secs_f64();
    serde_json::json!({
        "job": status.job,
        "source": status.source,
        "replica": status.replica,
        "process": status.process,
        "began": seconds(status.began),
        "now": seconds(status.now),
        "rpo_seconds": seconds(status.rpo),
        "behind_seconds": seconds(status.behind()),
        "is_behind": status.is_behind(),
        "left": status.left,
        "quarantined": status.quarantined,
        "problems": status.problems,
        "is_walking": status.is_walking,
        "is_paused": status.is_paused,
        "is_quiet": status.is_quiet,
        "away": status.away,
        "deaf": status.deaf,
        "forgets": status.forgets,
        "events": status.events,
        "overflows": status.overflows,
        "gaps": status.gaps,
        "narrowed": status.narrowed,
        "narrowed_seen": status.narrowed_seen,
        "changed": status.changed,
        "deleted": status.deleted,
        "bytes_copied": status.bytes_copied,
        "walks": status.walk.count,
        "walk_ended": status.walk.ended.map(seconds),
        "walk_seen": status.walk.seen,
        "walk_changed": status.walk.changed,
        "missed": status.walk.missed,
        "foreign": status.foreign.count,
        "role": Role::Following.word(),
        "cycle": status.cycle.as_ref().map(|cycle| serde_json::json!({
            "snapshot": cycle.snapshot,
            "equal": cycle.equal.map(seconds),
            "next": seconds(cycle.next),
            "stage": cycle.stage,
            "count": cycle.count,
            "failed": cycle.failed,
        })),
        "lag_files": status.lag.files,
        "lag_p50_seconds": seconds(status.lag.p50),
        "lag_p95_seconds": seconds(status.lag.p95),
        "lag_p99_seconds": seconds(status.lag.p99),
        "lag_max_seconds": seconds(status.lag.max),
    })
}

/// Prints how a job is whose replica is the active side.
pub fn active(job: &JobRow, json: bool) {
    let since = job.role.since.unwrap_or_default();
    if json {
        let value = serde_json::json!({
            "job": job.about.name,
            "source": job.about.source,
            "replica": job.about.replica,
            "role": job.role.role.word(),
            "role_since": since.as_secs_f64(),
            "to": job.role.to,
            "equal_until": job.equal_until.map(|until| until.as_secs_f64()),
        });
        return line(&value.to_string());
    }
    let (name, since) = (&job.about.name, moment(since.as_secs().cast_signed()));
    line(&format!(
        "{name}: {} -> {}",
        job.about.source, job.about.replica
    ));
    line(&format!(
        "  {} SINCE {since}: the replica is the active side (driftless mirror failback {name})",
        job.role.role.word().to_uppercase()
    ));
}

/// Prints what somebody else has changed on the replicas.
pub fn foreign(replicas: &[(String, Foreign)], json: bool) {
    for (replica, foreign) in replicas {
        for path in &foreign.paths {
            let path = escape(path.as_bytes());
            match json {
                true => line(&serde_json::json!({ "replica": replica, "path": path }).to_string()),
                false if replicas.len() > 1 => line(&format!("{replica}: {path}")),
                false => line(&path),
            }
        }
    }
}

/// Prints the paths that have a problem; of which replica, where there are several.
pub fn problems(replicas: &[Troubles], json: bool) {
    for Troubles { replica, paths } in replicas {
        if !json && replicas.len() > 1 && !paths.is_empty() {
            line(&format!("{replica}:"));
        }
        for trouble in paths {
            line(&match json {
                true => problem_json(replica, trouble),
                false => problem(trouble),
            });
        }
    }
}

fn problem_json(replica: &str, trouble: &Trouble) -> String {
    let value = serde_json::json!({
        "replica": replica,
        "path": escape(trouble.problem.path.as_bytes()),
        "what": trouble.problem.to_string(),
        "first": trouble.first.as_secs_f64(),
        "last": trouble.last.as_secs_f64(),
        "times": trouble.times,
    });
    value.to_string()
}

fn problem(trouble: &Trouble) -> String {
    let first = moment(trouble.first.as_secs().cast_signed());
    format!(
        "{} (since {first}, {} times)",
        trouble.problem, trouble.times
    )
}
