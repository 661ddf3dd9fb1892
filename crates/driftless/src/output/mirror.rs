//! What the commands of a mirror print.

pub mod recovery;
mod standing;

pub use standing::{at, in_the_way, seconds};

use crate::exit::Exit;
use crate::units::show_counted;
use driftless_lock::Mutex;
use driftless_mirror::ask::Troubles;
use driftless_mirror::clock::is_past;
use driftless_mirror::foreign::Foreign;
use driftless_mirror::status::{PoolMember, Status, Trouble};
use driftless_mirror::worded::{for_job, shown};
use driftless_model::{cause, escape_text, moment};
use driftless_state::mirror::{JobRow, Role};
use std::io::{ErrorKind, Write};
use std::time::Duration;

/// Why what was asked for could not be printed, the first time.
static UNWRITTEN: Mutex<Option<String>> = Mutex::new(None);

/// Prints a line of what was asked for.
pub fn line(text: &str) {
    raw_line(escape_text(text).as_bytes());
}

/// Prints a line with bytes as they are, for a program that reads them.
pub fn raw_line(bytes: &[u8]) {
    let text = [bytes, b"\n"].concat();
    let mut output = std::io::stdout().lock();
    match output.write_all(&text).and_then(|()| output.flush()) {
        Ok(()) => {}
        // Nobody reads any more: whoever closed the pipe has what he wanted.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => {
            let why = || format!("cannot write to standard output: {}", cause(&error));
            UNWRITTEN.lock().get_or_insert_with(why);
        }
    }
}

/// How a command ends that would end so: what was asked for and could not be printed is a failure.
pub fn final_code(code: Exit) -> Exit {
    let Some(why) = UNWRITTEN.lock().take() else {
        return code;
    };
    complaint(&why);
    match code {
        Exit::Equal => Exit::CouldNotRun,
        code => code,
    }
}

/// Prints on standard error why something is not done. What is wrong with the file of a job, or
/// with arguments, has a line each: names are quoted there, and nothing that others say comes into
/// it.
pub fn refusal(code: Exit, why: &str) {
    let why = for_job(why);
    match code {
        Exit::Usage => why.lines().for_each(complaint),
        _ => complaint(&why),
    }
}

/// Prints on standard error what is wrong.
pub fn complaint(text: &str) {
    let text = escape_text(text);
    let _nobody_reads_it = writeln!(std::io::stderr(), "driftless: {text}");
}

/// Prints how a mirror is, whose job the user names so.
pub fn status(status: &Status, named: &str, json: bool) {
    if json {
        line(&serde_json::to_string(&json_of(status)).expect("plain values"));
    } else {
        standing::lines(status, named)
            .iter()
            .for_each(|text| line(text));
    }
}

/// Prints how a replica stands in one line of a list.
pub fn listed(status: &Status, json: bool) {
    if json {
        line(&serde_json::to_string(&json_of(status)).expect("plain values"));
    } else {
        line(&standing::listed(status));
    }
}

/// All fields, in the order of their names.
fn json_of(status: &Status) -> serde_json::Value {
    let parts = [
        json_of_state(status),
        json_of_work(status),
        json_of_times(status),
    ];
    let fields = parts.into_iter().flat_map(|part| match part {
        serde_json::Value::Object(fields) => fields,
        _ => unreachable!("each part is an object"),
    });
    serde_json::Value::Object(fields.collect())
}

/// What it is, and how it stands.
fn json_of_state(status: &Status) -> serde_json::Value {
    let seconds = |span: Duration| span.as_secs_f64();
    serde_json::json!({
        "job": status.job,
        "source": status.source,
        "replica": status.replica,
        "is_running": status.is_running(),
        "is_starting": status.starting.is_some(),
        "process": status.is_running().then_some(status.process),
        "began": seconds(status.began),
        "now": seconds(status.now),
        "rpo_seconds": seconds(status.rpo),
        "behind_seconds": (!status.is_unknown).then(|| seconds(status.behind())),
        "is_behind": status.is_behind(),
        "equal_until": status.equal_until.map(seconds),
        "left": status.left,
        "quarantined": status.quarantined,
        "problems": status.problems,
        "is_walking": status.is_walking,
        "is_first_copy": status.is_first_copy(),
        "comparing": status.comparing.map(|now| serde_json::json!({
            "elapsed_seconds": seconds(now.elapsed),
            "seen": now.seen,
            "changed": now.changed,
            "bytes_copied": now.bytes_copied,
            "share": now.share,
            "left_seconds": now.left.map(seconds),
        })),
        "is_paused": status.is_paused,
        "is_quiet": status.is_quiet,
        "hears": status.hears,
        "away": status.away.as_deref().map(for_job),
        "deaf": status.deaf,
        "forgets": status.forgets,
    })
}

/// What was heard of and done.
fn json_of_work(status: &Status) -> serde_json::Value {
    let seconds = |span: Duration| span.as_secs_f64();
    serde_json::json!({
        "events": status.events,
        "overflows": status.overflows,
        "gaps": status.gaps,
        "narrowed": status.narrowed,
        "narrowed_seen": status.narrowed_seen,
        "unread": status.unread,
        "queue": status.queue.map(|queue| serde_json::json!({
            "waiting": queue.waiting,
            "consumers": queue.consumers,
        })),
        "told": status.told.as_ref().map(|told| serde_json::json!({
            "announced": told.announced,
            "waiting": told.waiting,
            "oldest": told.oldest.map(seconds),
            "unheard": told.unheard,
            "away": told.away,
        })),
        "pool": status.pool.iter().map(json_of_member).collect::<Vec<_>>(),
        "helps": status.helps,
        "waiting": status.waiting,
        "changed": status.changed,
        "deleted": status.deleted,
        "bytes_copied": status.bytes_copied,
        "trash": status.trash.map(|trash| serde_json::json!({
            "entries": trash.entries,
            "bytes": trash.bytes,
        })),
        "walks": status.walk.count,
        "walk_ended": status.walk.ended.map(seconds),
        "walk_seen": status.walk.seen,
        "walk_changed": status.walk.changed,
        "missed": status.walk.missed,
        "foreign": status.foreign.count,
        "role": Role::Following.word(),
    })
}

/// Somebody who works on the replica at the same time.
fn json_of_member(one: &PoolMember) -> serde_json::Value {
    serde_json::json!({
        "host": one.host,
        "process": one.process,
        "began": one.began.as_secs_f64(),
        "heard": one.heard.as_secs_f64(),
        "hears": one.hears,
        "left": one.left,
        "done": one.done,
        "bytes_copied": one.bytes,
        "problems": one.problems,
        "wrong": one.wrong,
    })
}

/// Where the cycle is, and how long changes took.
fn json_of_times(status: &Status) -> serde_json::Value {
    let seconds = |span: Duration| span.as_secs_f64();
    serde_json::json!({
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

/// Prints how a job is whose replica is the active side; `back` is the command that ends that.
pub fn active(job: &JobRow, back: &str, json: bool) {
    if json {
        return line(&json_of_active(job).to_string());
    }
    let (about, since) = (&job.about, active_since(job));
    line(&format!(
        "{}: {} -> {}",
        about.name, about.source, about.replica
    ));
    line(&format!(
        "  {since}: the replica is the active side ({back})"
    ));
}

/// Prints the same in a line.
pub fn listed_active(job: &JobRow, json: bool) {
    let (about, since) = (&job.about, active_since(job));
    line(&match json {
        true => json_of_active(job).to_string(),
        false => format!(
            "{}: {since}; {} -> {}",
            about.name, about.source, about.replica
        ),
    });
}

/// Returns what the replica is, and since when.
fn active_since(job: &JobRow) -> String {
    let since = job.role.since.unwrap_or_default();
    let since = moment(since.as_secs().cast_signed());
    format!("{} SINCE {since}", job.role.role.word().to_uppercase())
}

fn json_of_active(job: &JobRow) -> serde_json::Value {
    let equal_until = job.equal_until.filter(|until| is_past(*until));
    serde_json::json!({
        "job": job.about.name,
        "source": job.about.source,
        "replica": job.about.replica,
        "role": job.role.role.word(),
        "role_since": job.role.since.unwrap_or_default().as_secs_f64(),
        "to": job.role.to,
        "equal_until": equal_until.map(|until| until.as_secs_f64()),
    })
}

/// Prints what somebody else has changed on the replicas.
pub fn foreign(replicas: &[(String, Foreign)], json: bool) {
    for (replica, foreign) in replicas {
        for path in &foreign.paths {
            let path = shown(path);
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
        "path": shown(&trouble.problem.path),
        "what": for_job(&trouble.problem.to_string()),
        "first": trouble.first.as_secs_f64(),
        "last": trouble.last.as_secs_f64(),
        "times": trouble.times,
    });
    value.to_string()
}

fn problem(trouble: &Trouble) -> String {
    let first = moment(trouble.first.as_secs().cast_signed());
    format!(
        "{} (since {first}, {})",
        for_job(&trouble.problem.to_string()),
        show_counted(trouble.times, "time", "times")
    )
}
