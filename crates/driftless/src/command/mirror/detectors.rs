//! Detectors of a job: the watch of its source, its lists and announcements, and its snapshots.

use super::pool::End;
use super::{Failure, announcements};
use crate::command::post;
use crate::exit::Exit;
use driftless_detect::changelog::lustre::Changelog;
use driftless_detect::fanotify::Watch;
use driftless_detect::list::{self, Format};
use driftless_detect::post::Posts;
use driftless_detect::snapshot::Provider;
use driftless_detect::snapshot::btrfs::Subvolumes;
use driftless_detect::snapshot::cephfs::Directory;
use driftless_detect::snapshot::command::Commands;
use driftless_detect::snapshot::gpfs::Fileset;
use driftless_detect::snapshot::zfs::Dataset;
use driftless_detect::{Base, Detector};
use driftless_mirror::job::{Detect, Job, ListFormat};
use driftless_mirror::snapshots::Snapshots;
use driftless_model::Scope;
use driftless_remote::Target;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Whether what a job asks for can be done; begins nothing that a mirror at work would notice.
pub fn check(job: &Job) -> Result<(), Failure> {
    if takes_posts(job)? {
        source_of(job, Detect::Announcements)?;
        post::check(&job.name).map_err(|why| refusal(job, why))?;
    }
    if let Some(from) = &job.list {
        source_of(job, Detect::List)?;
        list::check(&from.path).map_err(|deaf| refusal(job, deaf))?;
    }
    let _not_connected = announced(job, None)?;
    watch(job).map(drop)
}

/// Everything that tells of changes of a job's source while they happen; refuses what is not there.
/// The caller holds the job.
pub fn begin(job: &Job, end: Option<&End>) -> Result<Vec<Box<dyn Detector>>, Failure> {
    let mut all: Vec<Box<dyn Detector>> = Vec::new();
    if let Some(watch) = watch(job)? {
        all.push(Box::new(watch));
    }
    all.extend(lustre(job)?);
    all.extend(list(job)?);
    all.extend(posts(job)?);
    all.extend(announced(job, end)?);
    Ok(all)
}

/// What tells a member of a pool: the queue that it shares, and nothing of its host.
pub fn of_member(job: &Job, end: &End) -> Result<Vec<Box<dyn Detector>>, Failure> {
    Ok(announced(job, Some(end))?.into_iter().collect())
}

/// The changelog of Lustre, where the job wants that.
fn lustre(job: &Job) -> Result<Option<Box<dyn Detector>>, Failure> {
    let Some(from) = &job.lustre else {
        return Ok(None);
    };
    let source = source_of(job, Detect::Lustre)?;
    let log = Changelog::of((&from.mdt, &from.user), &source);
    Ok(Some(Box::new(log.map_err(|deaf| refusal(job, deaf))?)))
}

/// The lists of other programs, where the job has some.
fn list(job: &Job) -> Result<Option<Box<dyn Detector>>, Failure> {
    let Some(from) = &job.list else {
        return Ok(None);
    };
    let format = match from.format {
        ListFormat::Lines => Format::Lines(Scope::Entry),
        ListFormat::Nul => Format::Zero(Scope::Entry),
        ListFormat::Json => Format::Json,
    };
    let source = source_of(job, Detect::List)?;
    let root = Base::new(source.as_os_str().as_bytes());
    list::open(&from.path, format, root)
        .map(Some)
        .map_err(|deaf| refusal(job, deaf))
}

/// Where programs say what they have changed, where the job wants that.
fn posts(job: &Job) -> Result<Option<Box<dyn Detector>>, Failure> {
    if !takes_posts(job)? {
        return Ok(None);
    }
    let source = source_of(job, Detect::Announcements)?;
    let socket = post::socket_of(&job.name).map_err(|why| refusal(job, why))?;
    let posts = Posts::listen(&socket, &job.name, &source);
    let posts = posts.and_then(|posts| posts.asking_agents(&source));
    let posts = posts.map_err(|deaf| refusal(job, deaf))?;
    Ok(Some(Box::new(posts)))
}

/// Whether programs of this host post here. Those of another one cannot; a broker carries what they
/// announce.
fn takes_posts(job: &Job) -> Result<bool, Failure> {
    let is_far = own_path(job, &job.source)?.is_none();
    let has_broker = job.announcements.is_some();
    Ok(job.detects_by(Detect::Announcements) && !(has_broker && is_far))
}

/// What is announced through a broker, where the job names one.
fn announced(job: &Job, end: Option<&End>) -> Result<Option<Box<dyn Detector>>, Failure> {
    let Some(from) = &job.announcements else {
        return Ok(None);
    };
    let source = source_here(job)?;
    let pool = end.map(|end| (end.sharing.clone(), end.is_member));
    announcements::detector(job, from, (source.as_deref(), pool)).map(Some)
}

/// Which announcements a job hears, and what they call the source.
pub fn heard_as(job: &Job) -> Result<String, Failure> {
    let Some(from) = &job.announcements else {
        return Ok(String::new());
    };
    announcements::heard_as(job, from, source_here(job)?.as_deref())
}

/// The source, if it is on this host.
fn source_here(job: &Job) -> Result<Option<PathBuf>, Failure> {
    let is_here = own_path(job, &job.source)?.is_some();
    let source = is_here.then(|| source_of(job, Detect::Announcements));
    source.transpose()
}

/// The source of this host, absolute and without symbolic links where it is there now.
#[allow(
    clippy::disallowed_methods,
    reason = "it is only found out where the source is"
)]
fn source_of(job: &Job, detect: Detect) -> Result<PathBuf, Failure> {
    let Some(source) = own_path(job, &job.source)? else {
        let why = format!(
            "detect = [\"{}\"]: the source is on another host; run the mirror there",
            detect.name()
        );
        return Err(refusal(job, why));
    };
    let real = std::fs::canonicalize(&source).or_else(|_| std::path::absolute(&source));
    real.map_err(|error| refusal(job, driftless_model::cause(&error)))
}

fn refusal(job: &Job, why: impl std::fmt::Display) -> Failure {
    (Exit::CouldNotRun, format!("{}: {why}", job.name))
}

/// Where a tree of this host is; none if it is another's.
pub fn own_path(job: &Job, tree: &str) -> Result<Option<PathBuf>, Failure> {
    let target = Target::parse(tree.as_ref())
        .map_err(|error| (Exit::Usage, format!("{}: {error}", job.name)))?;
    Ok(target.host.is_none().then_some(target.path))
}

/// Who makes the snapshots for the one replica of a job, where it wants them.
pub fn snapshots(job: &Job) -> Result<Option<Snapshots>, Failure> {
    let refuse = |why: String| (Exit::CouldNotRun, format!("{}: {why}", job.name));
    if job.snapshots().is_none() {
        return Ok(None);
    }
    let Some(source) = own_path(job, &job.source)? else {
        return Err(refuse(
            "its source is on another host, where the snapshots are; run the mirror there".into(),
        ));
    };
    let Some(of_source) = provider(job, source) else {
        return Ok(None);
    };
    of_source
        .check()
        .map_err(|error| refuse(error.to_string()))?;
    // One that follows live changes is equal to no snapshot.
    let path = own_path(job, &job.replicas[0])?.filter(|_| job.reads_snapshots());
    let of_replica = path.and_then(|path| of_replica(&path));
    let snapshots = Snapshots::of(&job.own_name(), job.cycle.keep, of_source, of_replica);
    Ok(Some(snapshots))
}

/// Whether snapshots of the source can be made as it is now, where the job wants them.
pub fn check_snapshots(job: &Job) -> Result<(), Failure> {
    let _they_are_known = snapshots(job)?;
    let source = own_path(job, &job.source)?;
    let provider = source.and_then(|source| provider(job, source));
    let checked = provider.map_or(Ok(()), |provider| provider.check_open());
    checked.map_err(|error| refusal(job, error))
}

/// Who closes the one replica of a job to others, and opens it.
pub fn keeper(job: &Job) -> Result<Option<Box<dyn Provider>>, Failure> {
    let path = own_path(job, &job.replicas[0])?;
    Ok(path.and_then(|path| of_replica(&path)))
}

/// Returns the provider of snapshots of the source, if the job has a detector that reads them.
fn provider(job: &Job, source: PathBuf) -> Option<Box<dyn Provider>> {
    let provider: Box<dyn Provider> = match job.snapshots()? {
        Detect::Command => {
            let commands = job.command.as_ref()?;
            Box::new(Commands {
                source,
                create: commands.create.clone(),
                list: commands.list.clone(),
                delete: commands.delete.clone(),
                diff: commands.diff.clone(),
            })
        }
        Detect::Btrfs => Box::new(Subvolumes::of(&source)),
        Detect::Zfs => Box::new(Dataset::of(&source)),
        Detect::Gpfs => {
            let (device, fileset) = (job.gpfs.device.clone(), job.gpfs.fileset.clone());
            Box::new(Fileset::of(&source, device, fileset))
        }
        Detect::CephFs => Box::new(Directory::of(&source)),
        Detect::Walk | Detect::Fanotify | Detect::Lustre | Detect::List | Detect::Announcements => {
            return None;
        }
    };
    Some(provider)
}

/// What makes those of a replica, where its file system has any.
pub fn of_replica(path: &Path) -> Option<Box<dyn Provider>> {
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
