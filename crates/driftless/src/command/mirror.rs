//! `driftless mirror`: a replica that stays equal, and what can be asked of it.

use crate::args::{JobArgs, LogArgs, MirrorArgs, MirrorCommand};
use crate::command::{job, mounts, record};
use crate::exit::Exit;
use crate::output::{diagnostics, mirror as say};
use crate::{own, signals};
use driftless_detect::fanotify::Watch;
use driftless_detect::snapshot::Provider;
use driftless_detect::snapshot::btrfs::Subvolumes;
use driftless_detect::snapshot::command::Commands;
use driftless_detect::snapshot::zfs::Dataset;
use driftless_engine::{Options, RunError};
use driftless_mirror::ask::{Answer, Ask};
use driftless_mirror::control;
use driftless_mirror::hands::Hands;
use driftless_mirror::job::{Detect, Job, Movers};
use driftless_mirror::live::{BeginError, Detectors, Live};
use driftless_mirror::snapshots::Snapshots;
use driftless_remote::{Reach, Target};
use driftless_session::connect;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The exit code, and what to say.
type Failure = (Exit, String);

/// Runs a command of the mirror; returns the exit code.
pub fn run(args: &MirrorArgs) -> Exit {
    let done = match &args.command {
        MirrorCommand::Check(args) => check(args),
        MirrorCommand::Run { job, log } => keep_equal(job, log),
        MirrorCommand::Status { job, json, check } => status(job, *json, *check),
        MirrorCommand::Pause(args) => ask_done(args, &Ask::Pause),
        MirrorCommand::Resume(args) => ask_done(args, &Ask::Resume),
        MirrorCommand::SyncNow { job, wait } => ask_done(job, &Ask::SyncNow { wait: *wait }),
        MirrorCommand::Barrier { job, timeout } => {
            ask_done(job, &Ask::Barrier { timeout: *timeout })
        }
        MirrorCommand::Problems { job, json } => problems(job, *json),
        MirrorCommand::Retry { job, path } => {
            let path = path
                .as_ref()
                .map(|path| path.as_os_str().as_bytes().to_vec());
            ask_done(job, &Ask::Retry { path })
        }
    };
    done.unwrap_or_else(|(code, why)| {
        eprintln!("driftless: {why}");
        code
    })
}

fn check(args: &JobArgs) -> Result<Exit, Failure> {
    let job = job::read(&args.job)?;
    let detectors = detectors(&job)?;
    let hears = match (detectors.watch.is_some(), detectors.snapshots.is_some()) {
        (true, _) => "changes are heard of as they happen",
        (_, true) => "changes are found by comparing snapshots",
        (false, false) => "changes are found by comparing",
    };
    say::line(&format!("{}: a job that can be run; {hears}", job.name));
    Ok(Exit::Equal)
}

/// How the mirror of a job finds out what has changed.
fn detectors(job: &Job) -> Result<Detectors, Failure> {
    refuse_unbuilt(job)?;
    Ok(Detectors {
        watch: watch(job)?,
        snapshots: snapshots(job)?,
    })
}

/// Nothing is left out that a job asks for.
fn refuse_unbuilt(job: &Job) -> Result<(), Failure> {
    let refuse = |why: String| Err((Exit::CouldNotRun, format!("{}: {why}", job.name)));
    if let Some(other) = job.detect.iter().find(|detect| !is_built(**detect)) {
        let name = other.name();
        return refuse(format!(
            "detect = [\"{name}\"] is not there yet; fanotify, btrfs, zfs, command and walk are"
        ));
    }
    if job.snapshots().is_some() && job.is_live() {
        return refuse(
            "snapshots and live changes in one job are not there yet; write a job for each".into(),
        );
    }
    if let Some(key) = unbuilt_key(job) {
        return refuse(format!(
            "\"{key}\" is not there yet, and nothing is left out that a job asks for: take it out of the job"
        ));
    }
    if job.replicas.len() > 1 {
        return refuse(
            "several replicas of one job are not there yet; write a job for each".into(),
        );
    }
    Ok(())
}

/// Where a tree of this host is; none if it is another's.
fn own_path(job: &Job, tree: &str) -> Result<Option<PathBuf>, Failure> {
    let target = Target::parse(tree.as_ref())
        .map_err(|error| (Exit::CouldNotRun, format!("{}: {error}", job.name)))?;
    Ok(target.host.is_none().then_some(target.path))
}

/// Who makes the snapshots, where the job wants them.
fn snapshots(job: &Job) -> Result<Option<Snapshots>, Failure> {
    let refuse = |why: String| (Exit::CouldNotRun, format!("{}: {why}", job.name));
    if job.snapshots().is_none() {
        return Ok(None);
    }
    let Some(source) = own_path(job, &job.source)? else {
        return Err(refuse(
            "its source is on another host, where the snapshots are; run the mirror there".into(),
        ));
    };
    let of_source = provider(job, source);
    of_source
        .check()
        .map_err(|error| refuse(error.to_string()))?;
    let of_replica = own_path(job, &job.replicas[0])?.and_then(|path| of_replica(&path));
    let snapshots = Snapshots::of(&job.name, job.cycle.keep, of_source, of_replica);
    Ok(Some(snapshots))
}

/// What makes the snapshots of the source.
fn provider(job: &Job, source: PathBuf) -> Box<dyn Provider> {
    match (&job.command, job.snapshots()) {
        (Some(commands), Some(Detect::Command)) => Box::new(Commands {
            source,
            create: commands.create.clone(),
            list: commands.list.clone(),
            delete: commands.delete.clone(),
            diff: commands.diff.clone(),
        }),
        (_, Some(Detect::Zfs)) => Box::new(Dataset::of(&source)),
        _ => Box::new(Subvolumes::of(&source)),
    }
}

/// What makes those of a replica, where its file system has any.
fn of_replica(path: &Path) -> Option<Box<dyn Provider>> {
    let (btrfs, zfs) = (Subvolumes::of(path), Dataset::of(path));
    if btrfs.check().is_ok() {
        Some(Box::new(btrfs))
    } else if zfs.check().is_ok() {
        Some(Box::new(zfs))
    } else {
        None
    }
}

/// Has the kernel tell of changes, where the job wants that.
fn watch(job: &Job) -> Result<Option<Watch>, Failure> {
    let refuse = |why: String| (Exit::CouldNotRun, format!("{}: {why}", job.name));
    if !job.detects_by(Detect::Fanotify) {
        return Ok(None);
    }
    let Some(source) = own_path(job, &job.source)? else {
        return Err(refuse(
            "detect = [\"fanotify\"]: the source is on another host, whose kernel alone tells of its changes; run the mirror there".into(),
        ));
    };
    Watch::begin(&source, job.fanotify.unlimited)
        .map(Some)
        .map_err(|error| refuse(error.to_string()))
}

/// A key of the job that nothing heeds yet.
fn unbuilt_key(job: &Job) -> Option<&'static str> {
    let unbuilt = [
        ("trash", job.trash.is_some()),
        ("quiet", !job.quiet.is_empty()),
        ("on_problem", job.on_problem.is_some()),
        ("metrics", job.metrics.is_some()),
        ("movers", job.movers != Movers::Own),
    ];
    unbuilt.into_iter().find(|(_, is)| *is).map(|(key, _)| key)
}

fn is_built(detect: Detect) -> bool {
    match detect {
        Detect::Walk | Detect::Fanotify | Detect::Btrfs | Detect::Zfs | Detect::Command => true,
        Detect::Gpfs | Detect::CephFs | Detect::Lustre | Detect::List | Detect::Announcements => {
            false
        }
    }
}

fn keep_equal(args: &JobArgs, log: &LogArgs) -> Result<Exit, Failure> {
    // Modes are set as the source has them; nothing may be taken off them on the way.
    own::give_up_umask();
    diagnostics::start("mirror", log);
    let job = job::read(&args.job)?;
    let signals = signals::watch();
    let _held = job::hold(&job)?;
    // First, so that nothing that happens from here on is missed.
    let detectors = detectors(&job)?;
    let reach = reach(&job, &signals);
    let options = options(&job, &reach)?;
    let hands = Hands::new(options, reach);
    if detectors.snapshots.is_some() {
        refuse_within(&job, &hands)?;
    }
    let socket = job::socket(&job.name)?;
    let name = job.name.clone();
    let memory = job::memory(&job)?;
    let begun = Live::begin(job, (hands, memory), detectors, signals.stop.clone());
    let (live, inbox) = begun.map_err(|error| not_begun(&name, &error))?;
    control::listen(&socket, inbox)
        .map_err(|error| (Exit::CouldNotRun, format!("{name}: {error}")))?;
    tracing::info!("{name}: at work");
    live.run();
    tracing::info!("{name}: stopped");
    Ok(Exit::Signal(signals.number()))
}

/// A snapshot is read, in which it is not seen that one tree is within the other.
fn refuse_within(job: &Job, hands: &Hands) -> Result<(), Failure> {
    let opened = hands.open();
    hands.close();
    match opened {
        Err(error @ (RunError::Same(_) | RunError::Inside { .. })) => {
            Err((Exit::Refused, format!("{}: {error}", job.name)))
        }
        // What else is wrong may be over soon, and is told then.
        _ => Ok(()),
    }
}

fn not_begun(name: &str, error: &BeginError) -> Failure {
    match error {
        BeginError::State(error) => record::refusal(error),
        BeginError::Thread(_) => (Exit::CouldNotRun, format!("{name}: {error}")),
    }
}

fn reach(job: &Job, signals: &signals::Signals) -> Reach {
    let deploy = job.reach.deploy.as_ref().map(|deploy| match deploy {
        driftless_mirror::job::Deploy::Own => driftless_remote::Deploy::Own,
        driftless_mirror::job::Deploy::File(path) => driftless_remote::Deploy::File(path.clone()),
    });
    Reach {
        ssh: job.reach.ssh.clone(),
        agent: job.reach.agent_path.clone(),
        keep: job.policy.keep,
        streams: job.reach.streams,
        compress: job.reach.compress,
        deploy,
        stop: signals.stop.clone(),
    }
}

/// What the engine is asked to do, with what earlier runs know of mounted file systems.
fn options(job: &Job, reach: &Reach) -> Result<Options, Failure> {
    let mut options = Options {
        source: Path::new(&job.source).to_owned().into(),
        replica: Path::new(&job.replicas[0]).to_owned().into(),
        policy: job.policy.clone(),
        jobs: job
            .limits
            .jobs
            .map_or_else(Default::default, crate::units::fixed_jobs),
        bytes_per_second_max: job.limits.bytes_per_second,
        requests_per_second_max: job.limits.requests_per_second,
        ..Options::default()
    };
    let mut reached = options.clone();
    let _connections = connect(&mut reached, reach, Duration::ZERO).map_err(|error| {
        (
            Exit::of_connection(&error, 0),
            format!("{}: {error}", job.name),
        )
    })?;
    let notes = Arc::new(mounts::Notes::of(&reached));
    if let Some(why) = notes.doubt() {
        return Err((Exit::Refused, why));
    }
    options.known_mounts = notes.known();
    options.mount_notes = Some(notes);
    Ok(options)
}

/// Asks the mirror of a job.
fn ask(args: &JobArgs, ask: &Ask) -> Result<Answer, Failure> {
    let name = job::name(&args.job)?;
    let socket = job::socket(&name)?;
    control::ask(&socket, ask).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => (
            Exit::CouldNotRun,
            format!("{name}: its mirror does not run (driftless mirror run {name})"),
        ),
        _ => (Exit::CouldNotRun, format!("{name}: {error}")),
    })
}

fn ask_done(args: &JobArgs, question: &Ask) -> Result<Exit, Failure> {
    match ask(args, question)? {
        Answer::Refused(why) => Err((Exit::CouldNotRun, why)),
        Answer::Reached { problems: 0 } | Answer::Done => Ok(Exit::Equal),
        Answer::Reached { problems } => Err((
            Exit::Problems,
            format!(
                "all is on the replica but {problems} paths that have problems (driftless mirror problems)"
            ),
        )),
        Answer::Late { left } => Err((
            Exit::Behind,
            format!("{left} paths are not on the replica yet"),
        )),
        Answer::Retried(count) => {
            say::line(&format!("{count} paths are tried again"));
            Ok(Exit::Equal)
        }
        Answer::Status(_) | Answer::Problems(_) => Ok(Exit::Equal),
    }
}

fn status(args: &JobArgs, json: bool, check: bool) -> Result<Exit, Failure> {
    let Answer::Status(status) = ask(args, &Ask::Status)? else {
        return Err((Exit::Bug, "the mirror gave another answer".into()));
    };
    say::status(&status, json);
    Ok(match check && status.is_behind() {
        true => Exit::Behind,
        false => Exit::Equal,
    })
}

fn problems(args: &JobArgs, json: bool) -> Result<Exit, Failure> {
    let Answer::Problems(problems) = ask(args, &Ask::Problems)? else {
        return Err((Exit::Bug, "the mirror gave another answer".into()));
    };
    let is_empty = problems.is_empty();
    say::problems(&problems, json);
    Ok(if is_empty {
        Exit::Equal
    } else {
        Exit::Problems
    })
}
