//! What each value allows for itself and the values together do not: told of the key that would
//! have to change.

use super::policy;
use super::values::{Detect, Job};
use driftless_settings::Document;
use std::time::Duration;

/// Tells what of a job cannot be meant.
pub(super) fn check(from: &mut Document, job: &Job) {
    // Of a list with an element that could not be read, the others are not where they were.
    if from.is_right_about("replica") && from.is_right_about("replicas") {
        trees(from, job);
    }
    policy::check(from, &job.policy);
    trash(from, job);
    if from.is_right_about("detect") {
        detectors(from, &job.detect);
        tables(from, job);
    }
    times(from, job);
}

/// What a shell makes of a tilde, nobody makes of a tree of this host.
const NO_HOME: &str = "no shell reads a job, and ~ is no home directory here: write the whole path, such as \"/home/me/tree\" (\"./~\" is a directory of that name)";

/// Whether a tree of this host is named as a shell has those of a home directory.
fn is_home(tree: &str) -> bool {
    tree == "~" || tree.starts_with("~/")
}

/// No tree stands there twice, and none is named as for a shell.
fn trees(from: &mut Document, job: &Job) {
    let key = if from.has("replica") {
        "replica"
    } else {
        "replicas"
    };
    if is_home(&job.source) {
        from.wrong("source", NO_HOME);
    }
    let source = plain(&job.source);
    let replicas: Vec<String> = job.replicas.iter().map(|replica| plain(replica)).collect();
    for (index, replica) in replicas.iter().enumerate() {
        if is_home(replica) {
            from.wrong_element(key, index, NO_HOME.into());
        } else if !source.is_empty() && *replica == source {
            from.wrong_element(key, index, "it is the source".into());
        } else if replicas[..index].contains(replica) {
            from.wrong_element(key, index, "this replica is listed twice".into());
        }
    }
}

/// The text of a tree without slashes and dots that mean nothing. Whether two texts that differ
/// mean the same tree is seen when the trees are opened.
fn plain(tree: &str) -> String {
    let mut names = tree.split('/');
    let first = names.next().unwrap_or_default();
    let rest: Vec<&str> = names
        .filter(|name| !name.is_empty() && *name != ".")
        .collect();
    match (first, rest.is_empty()) {
        // A name with a colon would be a host's without the dot.
        (".", false) if !rest[0].contains(':') => rest.join("/"),
        ("", true) if !tree.is_empty() => "/".into(),
        (first, true) => first.to_owned(),
        (first, false) => format!("{first}/{}", rest.join("/")),
    }
}

fn trash(from: &mut Document, job: &Job) {
    if job.trash.is_none() || job.policy.delete {
        return;
    }
    let why = "nothing is deleted without delete = true";
    if from.has("trash") {
        from.wrong("trash", why);
    } else {
        from.wrong_table("trash", why);
    }
}

fn detectors(from: &mut Document, detect: &[Detect]) {
    let mut snapshots: Option<Detect> = None;
    for (index, one) in detect.iter().enumerate() {
        let earlier = snapshots.filter(|_| one.is_snapshot());
        if detect[..index].contains(one) {
            let what = format!("{} is listed twice", one.name());
            from.wrong_element("detect", index, what);
        } else if let Some(earlier) = earlier {
            let what = format!(
                "{} and {}: a job has one kind of snapshots",
                earlier.name(),
                one.name()
            );
            from.wrong_element("detect", index, what);
        }
        snapshots = snapshots.or(one.is_snapshot().then_some(*one));
    }
}

/// A table that belongs to detectors is there for them alone, and where they cannot be without.
fn tables(from: &mut Document, job: &Job) {
    for (table, detect) in [
        ("walk", Detect::Walk),
        ("fanotify", Detect::Fanotify),
        ("gpfs", Detect::Gpfs),
        ("command", Detect::Command),
        ("list", Detect::List),
        ("lustre", Detect::Lustre),
        ("announcements", Detect::Announcements),
    ] {
        if from.has_table(table) && !job.detects_by(detect) {
            from.wrong_table(table, format!("\"{table}\" is not in detect"));
        }
    }
    if from.has_table("cycle") && job.snapshots().is_none() {
        let names = named(Detect::is_snapshot);
        from.wrong_table(
            "cycle",
            format!("no detector of snapshots is in detect: {names}"),
        );
    }
    if from.has_table("live") && !job.is_live() {
        let names = named(Detect::is_live);
        from.wrong_table(
            "live",
            format!("no detector of live changes is in detect: {names}"),
        );
    }
    for (detect, keys) in [
        (
            Detect::Command,
            &[
                "command.create",
                "command.list",
                "command.delete",
                "command.diff",
            ][..],
        ),
        (Detect::List, &["list.path"]),
        (Detect::Lustre, &["lustre.mdt", "lustre.user"]),
    ] {
        for key in keys.iter().filter(|_| job.detects_by(detect)) {
            if !from.has(key) {
                let what = format!("it is missing: detect has \"{}\"", detect.name());
                from.wrong(key, what);
            }
        }
    }
    announcements(from, job);
}

/// Programs of this host are heard without a table; a broker has to be named whole.
fn announcements(from: &mut Document, job: &Job) {
    if !from.has_table("announcements") || !job.detects_by(Detect::Announcements) {
        return;
    }
    for (key, example) in [
        ("announcements.broker", "\"amqps://USER@HOST/VHOST\""),
        ("announcements.exchange", "\"xs_USER\""),
        ("announcements.queue", "\"q_USER.driftless.NAME\""),
    ] {
        if !from.has(key) {
            from.wrong(key, format!("it is missing, such as {example}"));
        }
    }
}

/// The names of the detectors of a sort.
fn named(is_one: impl Fn(Detect) -> bool) -> String {
    let names = Detect::ALL.into_iter().filter(|(_, one)| is_one(*one));
    names.map(|(name, _)| name).collect::<Vec<_>>().join(", ")
}

/// What takes longer than a replica may be behind keeps it from ever being as near as that.
fn times(from: &mut Document, job: &Job) {
    if job.quiet.is_always() {
        from.wrong("quiet", "no minute of the week is left to copy in");
    }
    if !from.is_right_about("rpo") || !from.is_right_about("detect") {
        return;
    }
    if job.is_live() {
        within_rpo(from, job.rpo, ("live.settle", job.live.settle));
    }
    // Beside live changes, snapshots find what these have missed.
    if let (Some(_), Some(every), false) = (job.snapshots(), job.cycle.every, job.is_live()) {
        within_rpo(from, job.rpo, ("cycle.every", every));
    }
}

fn within_rpo(from: &mut Document, rpo: Duration, (key, time): (&'static str, Duration)) {
    let (time_shown, rpo_shown) = (shown(time), shown(rpo));
    if time <= rpo {
    } else if from.has(key) {
        from.wrong(key, format!("{time_shown} is more than rpo, {rpo_shown}"));
    } else {
        from.wrong(
            "rpo",
            format!("{rpo_shown} is less than {key}, {time_shown}"),
        );
    }
}

/// A time in the largest unit that it has whole ones of.
fn shown(time: Duration) -> String {
    let millis = time.as_millis();
    let units = [
        (24 * 3_600_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1000, "s"),
        (1, "ms"),
    ];
    let fits = units.iter().find(|(unit, _)| millis.is_multiple_of(*unit));
    fits.map_or_else(
        || format!("{time:?}"),
        |(unit, name)| format!("{}{name}", millis / unit),
    )
}
