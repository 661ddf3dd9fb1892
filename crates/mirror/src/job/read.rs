//! From the text of a job to its values, section by section.
//!
//! Each key has its form and its default here, and nowhere else. Whether the values can be meant
//! together is asked at the end, by [`check`](super::check).

use super::forms::{check_job_name, group_name, job_name};
use super::keys::JOB;
use super::quiet::Quiet;
use super::values::{
    Cycle, Deploy, Detect, Fanotify, Gpfs, Job, Limits, ListFormat, ListSource, Live, Lustre,
    Metrics, Reach, SnapshotCommands, Trash, Walk,
};
use super::{announcements, check, policy};
use driftless_settings::{Document, FileErrors, forms, metrics, publish};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::de::DeValue;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Requests in flight at most, as for `sync`.
const JOBS_MAX: u64 = 1024;
/// Connections to a host at most, as for `sync`.
const STREAMS_MAX: u64 = 64;
/// How hard zstd tries at most, as for `sync`.
const COMPRESS_MAX: u64 = 19;

/// Reads the text of the file at `place`.
///
/// # Errors
/// Fails if the text is no TOML, has keys that there are not, lacks some that there must be, or
/// cannot be meant; all that is wrong is told at once, but for what a text that is no TOML hides.
pub fn parse(text: &str, place: &Path) -> Result<Job, FileErrors> {
    driftless_settings::parse(text, place, JOB, |from| read(from, place))
}

/// The values, right or wrong: what is wrong with them has been told to the document.
fn read(from: &mut Document, place: &Path) -> Job {
    let (name, source, replicas) = (name(from, place), source(from), replicas(from));
    let (detect, trash) = (detect(from), trash(from));
    let several = (replicas.len() > 1).then_some("replicas");
    let path = |value: &DeValue| forms::text(value).map(PathBuf::from);
    let publish = publish::read(from, path, several);
    let job = Job {
        rpo: from
            .take("rpo", forms::some_time)
            .unwrap_or_else(|| rpo(&detect)),
        name: name.unwrap_or_default(),
        source: source.unwrap_or_default(),
        replicas,
        detect,
        quiet: quiet(from),
        key: None,
        on_problem: from.take("on_problem", forms::command),
        operators: from.take("operators", group_name),
        read_only: from.take("read_only", forms::flag).unwrap_or(true),
        policy: driftless_model::Policy {
            trash: trash.is_some(),
            ..policy::read(from)
        },
        trash,
        walk: Walk {
            every: from
                .take("walk.every", |value| forms::time_or(value, "never"))
                .unwrap_or(Some(DAY)),
        },
        cycle: cycle(from),
        live: Live {
            settle: from
                .take("live.settle", forms::time)
                .unwrap_or(Duration::from_secs(2)),
        },
        fanotify: Fanotify {
            unlimited: from.take("fanotify.unlimited", forms::flag).unwrap_or(true),
        },
        gpfs: Gpfs {
            device: from.take("gpfs.device", forms::plain_name),
            fileset: from.take("gpfs.fileset", forms::plain_name),
        },
        command: commands(from),
        list: list(from),
        lustre: lustre(from),
        announcements: announcements::read(from),
        publish,
        limits: limits(from),
        reach: reach(from),
        metrics: metrics::read(from).map(|listen| Metrics { listen }),
    };
    check::check(from, &job);
    job
}

/// The name that is written, or that of the file.
fn name(from: &mut Document, place: &Path) -> Option<String> {
    if from.has("name") {
        return from.take("name", job_name);
    }
    let _there_is_none = from.take("name", job_name);
    let stem = place.file_stem().unwrap_or_default().to_string_lossy();
    match check_job_name(&stem) {
        Ok(()) => Some(stem.into_owned()),
        Err(why) => {
            from.wrong(
                "name",
                format!("it is missing, and the file name is not usable: {why}"),
            );
            None
        }
    }
}

fn source(from: &mut Document) -> Option<String> {
    if !from.has("source") {
        from.wrong(
            "source",
            "it is missing: the tree that is read, such as source = \"/projects\"",
        );
    }
    from.take("source", forms::text)
}

fn replicas(from: &mut Document) -> Vec<String> {
    match (from.has("replica"), from.has("replicas")) {
        (false, false) => from.wrong(
            "replica",
            "it is missing: the tree that becomes equal, such as replica = \"backup@far:/backup/projects\"",
        ),
        (true, true) => from.wrong("replica", "replicas is there, too: write all of them there"),
        _ => {}
    }
    let one = from.take("replica", forms::text);
    let many = from.take_list("replicas", forms::text);
    not_empty(from, "replicas", &many);
    one.into_iter().chain(many.into_iter().flatten()).collect()
}

/// Refuses a list that has nothing in it.
fn not_empty<T>(from: &mut Document, key: &'static str, values: &Option<Vec<T>>) {
    if values.as_ref().is_some_and(Vec::is_empty) && from.is_right_about(key) {
        from.wrong(key, "it is empty: one at least is expected");
    }
}

/// How changes are found.
fn detect(from: &mut Document) -> Vec<Detect> {
    let detect = from.take_list("detect", |value| forms::choice(value, &Detect::ALL));
    not_empty(from, "detect", &detect);
    detect.unwrap_or_else(|| vec![Detect::Walk])
}

/// Returns how far a replica may be behind if the job does not say it. Between comparisons of all,
/// which are a day apart if the job does not say that, it is never nearer.
fn rpo(detect: &[Detect]) -> Duration {
    match () {
        () if detect.iter().any(|one| one.is_live()) => 5 * MINUTE,
        () if detect.iter().any(|one| one.is_snapshot()) => 4 * HOUR,
        () => 2 * DAY,
    }
}

fn quiet(from: &mut Document) -> Quiet {
    let mut quiet = Quiet::default();
    from.take_list("quiet", |value| quiet.add(&forms::text(value)?));
    quiet
}

/// `trash = "30d"`, or the table.
fn trash(from: &mut Document) -> Option<Trash> {
    let short = from.take("trash", forms::some_time);
    let trash = Trash {
        age: from.take("trash.age", forms::some_time).or(short),
        bytes: from.take("trash.bytes", forms::some_size),
    };
    if from.has_table("trash") && !from.has("trash.age") && !from.has("trash.bytes") {
        from.wrong_table("trash", "it has neither age nor bytes");
    }
    (trash.age.is_some() || trash.bytes.is_some()).then_some(trash)
}

fn cycle(from: &mut Document) -> Cycle {
    let every = from.take("cycle.every", |value| forms::time_or(value, "back-to-back"));
    let keep = from.take("cycle.keep", |value| {
        forms::number(value, (1, u64::from(u32::MAX)))
    });
    Cycle {
        every: every.unwrap_or(Some(HOUR)),
        keep: keep.and_then(|keep| u32::try_from(keep).ok()).unwrap_or(24),
    }
}

fn commands(from: &mut Document) -> Option<SnapshotCommands> {
    let create = from.take("command.create", forms::command);
    let list = from.take("command.list", forms::command);
    let delete = from.take("command.delete", forms::command);
    let diff = from.take("command.diff", forms::command);
    Some(SnapshotCommands {
        create: create?,
        list: list?,
        delete: delete?,
        diff: diff?,
    })
}

fn list(from: &mut Document) -> Option<ListSource> {
    const FORMATS: [(&str, ListFormat); 3] = [
        ("lines", ListFormat::Lines),
        ("nul", ListFormat::Nul),
        ("json", ListFormat::Json),
    ];
    let path = from.take("list.path", forms::text);
    let format = from.take("list.format", |value| forms::choice(value, &FORMATS));
    Some(ListSource {
        path: PathBuf::from(path?),
        format: format.unwrap_or(ListFormat::Lines),
    })
}

fn lustre(from: &mut Document) -> Option<Lustre> {
    let mdt = from.take("lustre.mdt", forms::plain_name);
    let user = from.take("lustre.user", forms::plain_name);
    Some(Lustre {
        mdt: mdt?,
        user: user?,
    })
}

fn limits(from: &mut Document) -> Limits {
    Limits {
        bytes_per_second: from.take("limits.bytes_per_second", forms::some_size),
        requests_per_second: from.take("limits.requests_per_second", |value| {
            forms::number(value, (1, u64::MAX))
        }),
        jobs: from
            .take("limits.jobs", |value| {
                forms::auto_or_number(value, JOBS_MAX)
            })
            .flatten(),
    }
}

fn reach(from: &mut Document) -> Reach {
    let word = |word: &str| vec![word.to_owned()];
    let compress = from.take("reach.compress", |value| {
        forms::number(value, (1, COMPRESS_MAX))
    });
    Reach {
        ssh: from
            .take("reach.ssh", forms::command)
            .unwrap_or_else(|| word("ssh")),
        agent_path: from
            .take("reach.agent_path", forms::command)
            .unwrap_or_else(|| word("driftless")),
        streams: from
            .take("reach.streams", |value| {
                forms::auto_or_number(value, STREAMS_MAX)
            })
            .flatten(),
        compress: compress.and_then(|level| i32::try_from(level).ok()),
        deploy: from.take("reach.deploy", deploy).flatten(),
        reconnect: from
            .take("reach.reconnect", forms::time)
            .unwrap_or(5 * MINUTE),
    }
}

/// `true` is this program.
fn deploy(value: &DeValue) -> Result<Option<Deploy>, String> {
    match value {
        DeValue::Boolean(is_wanted) => Ok(is_wanted.then_some(Deploy::Own)),
        DeValue::String(_) => Ok(Some(Deploy::File(forms::text(value)?.into()))),
        _ => Err("true, false or the path of a program in quotes is expected".into()),
    }
}
