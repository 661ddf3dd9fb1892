//! `driftless mirror trash`: what a mirror has deleted from its replica and keeps there, and what
//! failbacks have deleted from the source. The trash is read where it is, so the mirror need not run.

use super::alone::{connected, replica_alone};
use super::back::root_words_back;
use super::over::not_done;
use super::{Failure, detectors, keep_equal, missing, operators};
use crate::args::{JobArgs, RestoreArgs, TrashCommand};
use crate::command::job;
use crate::exit::Exit;
use crate::output::{mirror as say, trash as show};
use crate::{own, signals};
use driftless_detect::snapshot::Provider;
use driftless_engine::{
    Bin, DeletionDates, Limits, Monitor, Options, Progress, RestoreError, RunError, Sizes,
    TargetIn, Wanted, find_tree_of_target, look_alone, restore,
};
use driftless_mirror::ask::{Answer, Ask};
use driftless_mirror::control;
use driftless_mirror::job::Job;
use driftless_mirror::status::Status;
use driftless_mirror::worded::shown;
use driftless_model::{Fault, Policy, Problem, Receipt, RelPath, Side, escape, quote};
use driftless_remote::Target;
use driftless_session::{Connections, connect};
use driftless_tree::{Endpoint, plain_path};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Lists what is there where no command says otherwise.
const LIST: TrashCommand = TrashCommand::List {
    path: None,
    json: false,
};

/// Does what is asked about the trash of a job: about that of each replica, and of the source. What
/// is restored comes from the first that has it.
pub fn run(args: &JobArgs, command: Option<&TrashCommand>) -> Result<Exit, Failure> {
    let job = job::read(&args.job)?;
    match command.unwrap_or(&LIST) {
        TrashCommand::List { .. } => {}
        TrashCommand::Restore(_) => operators::refuse(&job, "trash restore")?,
        TrashCommand::Purge { .. } => operators::refuse(&job, "trash purge")?,
    }
    let signals = signals::watch();
    if let Some(TrashCommand::Restore(RestoreArgs { path, to: None, .. })) = command {
        refuse_inactive(&job, path)?;
    }
    let mut last = Ok(Exit::Equal);
    let jobs = job.apart();
    if let Some(TrashCommand::Restore(RestoreArgs { to: Some(to), .. })) = command {
        refuse_target((&job, &jobs), to, &signals)?;
    }
    let replicas = jobs.iter().map(|job| (job, &job.replicas[0], false));
    let source = jobs.first().map(|job| (job, &job.source, true));
    for (job, tree, is_source) in replicas.chain(source) {
        let about = About {
            job,
            tree,
            is_source,
            signals: signals.clone(),
        };
        let done = match command.unwrap_or(&LIST) {
            TrashCommand::List { path, json } => about.list(path.as_deref(), *json),
            TrashCommand::Restore(args) => match about.restore(args) {
                Ok(Ok(exit)) => return Ok(exit),
                Ok(Err(not_there)) => Err((Exit::CouldNotRun, not_there)),
                Err(failure) if is_source => Err(failure),
                Err(failure) => return Err(failure),
            },
            TrashCommand::Purge { older } => about.purge(*older),
        };
        last = worse(last, done);
    }
    last
}

/// A source that is not the active side gets nothing back: the next failback would remove it again.
fn refuse_inactive(job: &Job, path: &Path) -> Result<(), Failure> {
    let Some(active) = job::active(job)?.into_iter().next() else {
        return Ok(());
    };
    let above = below(job, path)?.split_last().map(|(above, _)| above);
    let above = above.unwrap_or_else(RelPath::root);
    let replica = Path::new(&active.about.replica);
    let above = OsStr::from_bytes(above.as_bytes());
    let folder: PathBuf = replica.join(above).components().collect();
    let why = format!(
        "{}: its replica is the active side ({}), and nothing is restored to the source; --to {} restores it there (nothing was changed)",
        job.name,
        active.role.role.word(),
        quote(&folder)
    );
    Err((Exit::Refused, why))
}

/// Refuses to restore to a directory in a trash, or in a replica that is not the active side. A
/// replica on another host than the directory does not have it.
fn refuse_target(
    (job, jobs): (&Job, &[Job]),
    to: &Path,
    signals: &signals::Signals,
) -> Result<(), Failure> {
    let target = Target::parse(to.as_os_str()).ok();
    let host = target.and_then(|target| target.host);
    for one in jobs {
        let tree = &*one.replicas[0];
        let is_active = job::active_alone(one)?.is_some();
        let there = Target::parse(tree.as_ref()).ok();
        let is_same_host = there.is_some_and(|there| there.host == host);
        let replica = if is_same_host { Path::new(tree) } else { to };
        let about = About {
            job: one,
            tree,
            is_source: false,
            signals: signals.clone(),
        };
        let mut options = about.options(replica, to);
        let _connections = about.connect(&mut options)?;
        let why = match find_tree_of_target(&options) {
            TargetIn::Trash => "it lies in a trash, which no list shows there".to_owned(),
            TargetIn::Replica if is_same_host && !is_active => {
                let tree = quote(Path::new(tree));
                format!(
                    "it lies in the replica {tree}, from which a full scan would delete the entries"
                )
            }
            _ => continue,
        };
        let why = format!(
            "{}: {}: cannot restore anything there: {why}; name another directory with --to (nothing was changed)",
            job.name,
            quote(to)
        );
        return Err((Exit::Refused, why));
    }
    Ok(())
}

/// Returns the path below the source that a user typed.
fn below(job: &Job, path: &Path) -> Result<RelPath, Failure> {
    let source = Target::parse(job.source.as_ref()).map_err(|error| {
        let why = format!("{}: {error}", job.name);
        (Exit::Usage, why)
    })?;
    let below = typed_below((&job.source, &source), path);
    below.ok_or_else(|| wrong_path(job, path, "is not a path below the source"))
}

/// Returns the path below a source that a user typed. A relative path begins at the source, or with
/// the source as the job names it. An absolute path begins with the source. `None` if it is not
/// below the source.
fn typed_below((named, source): (&str, &Target), path: &Path) -> Option<RelPath> {
    let root = match source.host {
        None if path.is_absolute() => plain_path(&source.path),
        _ => without_dots(&source.path),
    };
    let typed = without_dots(path);
    let as_named = typed.strip_prefix(without_dots(Path::new(named)));
    let below = as_named.or_else(|_| typed.strip_prefix(&root));
    let below = below.unwrap_or(&typed);
    RelPath::parse(below.as_os_str().as_bytes()).ok()
}

/// Returns a path without the parts `.` and without doubled slashes.
fn without_dots(path: &Path) -> PathBuf {
    let parts = path.components();
    parts.filter(|part| *part != Component::CurDir).collect()
}

fn wrong_path(job: &Job, path: &Path, why: &str) -> Failure {
    let (name, path, source) = (&job.name, quote(path), &job.source);
    let why = format!(
        "{name}: {path}: {why} {source}; name an entry below it, relative to it or absolute (nothing was changed)"
    );
    (Exit::Usage, why)
}

fn dates_of(args: &RestoreArgs) -> DeletionDates {
    match (args.from, args.since) {
        (Some(date), _) => DeletionDates::Only(date),
        (None, Some(date)) => DeletionDates::Since(date),
        (None, None) => DeletionDates::All,
    }
}

/// What counts of two replicas: that something is wrong with one.
fn worse(earlier: Result<Exit, Failure>, later: Result<Exit, Failure>) -> Result<Exit, Failure> {
    match (earlier, later) {
        (Err((_, earlier)), Err((code, later))) => Err((code, format!("{earlier}; {later}"))),
        (Ok(Exit::Equal), later) => later,
        (earlier, _) => earlier,
    }
}

/// A job with one replica, and the one of its trees whose trash it is.
struct About<'a> {
    job: &'a Job,
    tree: &'a str,
    is_source: bool,
    signals: signals::Signals,
}

impl About<'_> {
    fn list(&self, path: Option<&Path>, json: bool) -> Result<Exit, Failure> {
        let path = path.map(|path| below(self.job, path)).transpose()?;
        let Some((bin, _connections)) = self.bin()? else {
            return Ok(Exit::Equal);
        };
        let is_meant = |gone: &RelPath| path.as_ref().is_none_or(|path| gone.is_near(path));
        bin.for_each(&mut |gone| {
            if is_meant(&gone.path) {
                show::gone(self.tree, &gone, json);
            }
        })
        .map_err(|fault| self.failed(&fault))?;
        Ok(Exit::Equal)
    }

    /// Brings back what was deleted at a path and below it; why not, where this replica does not
    /// have it.
    fn restore(&self, args: &RestoreArgs) -> Result<Result<Exit, String>, Failure> {
        own::give_up_umask();
        let (path, to) = (below(self.job, &args.path)?, args.to.as_deref());
        let Some((_, name)) = path.split_last() else {
            return Err(wrong_path(self.job, &args.path, "names the source itself"));
        };
        let name = RelPath::from_names([name]);
        let wanted = Wanted {
            to: if to.is_some() { name } else { path.clone() },
            path,
            dates: dates_of(args),
        };
        let place = to.unwrap_or(Path::new(&self.job.source));
        let mut options = self.options(self.tree, place);
        let _connections = self.connect(&mut options)?;
        if to.is_none() && !self.is_source {
            self.refuse_empty(&options)?;
            self.refuse_beneath(&wanted.to)?;
        }
        let trees = self.trees(to);
        match restore(&options, &wanted, &trees, &self.signals.stop) {
            Ok(restored) => {
                show::restored(self.tree, (&wanted.to, place), &restored, args.json);
                Ok(Ok(match restored.problems {
                    0 => Exit::Equal,
                    _ => Exit::Problems,
                }))
            }
            Err(error @ RestoreError::NotThere(..)) => Ok(Err(format!("{}: {error}", self.tree))),
            Err(error) => Err(self.not_restored(&error, &trees)),
        }
    }

    /// Refuses a source in which nothing is, while something is in the replica: its file system may not
    /// be mounted. The options name the source as their replica.
    fn refuse_empty(&self, options: &Options) -> Result<(), Failure> {
        let is_empty = |options: &Options| look_alone(options).is_ok_and(|alone| alone.is_empty);
        if !is_empty(options) {
            return Ok(());
        }
        let mut replica = replica_alone(self.job);
        let reach = keep_equal::reach(self.job, &self.signals);
        let _connections = connected(self.job, &mut replica, &reach)?;
        match is_empty(&replica) {
            true => Ok(()),
            false => Err(self.unmounted("nothing is in it; is its file system mounted?")),
        }
    }

    /// Refuses a path at, above or below which the mirror met a file system that is not mounted now.
    fn refuse_beneath(&self, path: &RelPath) -> Result<(), Failure> {
        let reach = keep_equal::reach(self.job, &self.signals);
        let mut options = keep_equal::options_now(self.job, &reach)?;
        let known = Arc::make_mut(&mut options.known_mounts);
        known.retain(|place| path.is_near(place));
        let _connections = connected(self.job, &mut options, &reach)?;
        match missing::gone(&options).first().map(shown) {
            None => Ok(()),
            Some(place) => Err(self.unmounted(&format!(
                "the file system at {place} is not mounted now; mount it"
            ))),
        }
    }

    /// Says why nothing is restored to the source.
    fn unmounted(&self, why: &str) -> Failure {
        let (name, source) = (&self.job.name, &self.job.source);
        let why = format!(
            "{name}: the source {source}: cannot restore anything there: {why}; --to restores it to another folder (nothing was changed)"
        );
        (Exit::Refused, why)
    }

    /// Returns what the trees of a restore are called.
    fn trees(&self, to: Option<&Path>) -> RestoreTrees {
        let trashed = if self.is_source {
            Side::Source
        } else {
            Side::Replica
        };
        RestoreTrees {
            trashed: trashed.tree(),
            target: to.map_or_else(|| Side::Source.tree(), quote),
        }
    }

    fn not_restored(&self, error: &RestoreError, trees: &RestoreTrees) -> Failure {
        let code = match error {
            RestoreError::Interrupted(_) => Exit::Signal(self.signals.number()),
            RestoreError::Incomplete(_) => Exit::Problems,
            RestoreError::OtherFileSystem(_) => Exit::Refused,
            _ => Exit::CouldNotRun,
        };
        (code, format!("{}: {}", self.job.name, trees.words(error)))
    }

    fn purge(&self, older: Option<Duration>) -> Result<Exit, Failure> {
        let limits = match (older, self.job.trash) {
            (Some(age), _) => Limits {
                age: Some(age),
                bytes: None,
            },
            (None, Some(trash)) => trash.limits(),
            (None, None) => {
                let why = format!(
                    "{}: the job has no trash that says what may be there; give --older",
                    self.job.name
                );
                return Err((Exit::Usage, why));
            }
        };
        let Some((bin, _connections)) = self.bin()? else {
            return Ok(Exit::Equal);
        };
        let _opened = match self.is_source {
            true => None,
            false => self.open_replica()?,
        };
        let is_over = || self.signals.stop.load(Relaxed);
        let purged = bin
            .purge(limits, &mut Sizes::default(), &is_over)
            .map_err(|fault| self.failed(&fault))?;
        let (trees, side) = (self.trees(None), Side::Source);
        show::purged(&purged, trees.of(side));
        Ok(match (is_over(), purged.stuck.is_empty()) {
            (true, _) => Exit::Signal(self.signals.number()),
            (_, false) => Exit::Problems,
            (_, true) => Exit::Equal,
        })
    }

    /// Has a replica that is closed to others take changes until the end. A mirror that runs may
    /// close it again meanwhile, when what it does there is over; then the purge fails, and loses
    /// nothing. A mirror that is at work there in the end closes it itself.
    fn open_replica(&self) -> Result<Option<Opened>, Failure> {
        let Some(keeper) = detectors::keeper(self.job)? else {
            return Ok(None);
        };
        let is_closed = keeper.is_read_only();
        if !is_closed.map_err(|error| not_done(self.job, &error))? {
            return Ok(None);
        }
        let opened = keeper.set_read_only(false);
        opened.map_err(|error| not_done(self.job, &error))?;
        let socket = job::socket(&self.job.name)?;
        Ok(Some(Opened { keeper, socket }))
    }

    /// The trash of the tree; nothing of a source that has none, or is out of reach: it may be lost.
    fn bin(&self) -> Result<Option<(Bin, Connections)>, Failure> {
        let found = self.bin_there().and_then(|(bin, connections)| {
            let has_any = || bin.has_any().map_err(|fault| self.failed(&fault));
            let is_meant = !self.is_source || has_any()?;
            Ok(is_meant.then_some((bin, connections)))
        });
        match found {
            Err((_, why)) if self.is_source => {
                say::complaint(&why);
                Ok(None)
            }
            found => found,
        }
    }

    fn bin_there(&self) -> Result<(Bin, Connections), Failure> {
        let mut options = self.options("/", Path::new(self.tree));
        let connections = self.connect(&mut options)?;
        let bin = Bin::of(&options).map_err(|error| {
            let why = match error {
                RunError::NoReplica(path) if self.is_source => {
                    format!("\"{path}\": nothing is at the source's path")
                }
                RunError::Root(error) if self.is_source => root_words_back(&error),
                error => error.to_string(),
            };
            (Exit::CouldNotRun, format!("{}: {why}", self.job.name))
        })?;
        Ok((bin, connections))
    }

    fn options(&self, from: impl AsRef<Path>, to: &Path) -> Options {
        Options {
            source: Endpoint::from(from.as_ref().to_owned()),
            replica: Endpoint::from(to.to_owned()),
            policy: Policy {
                keep: self.job.policy.keep,
                ..Policy::default()
            },
            ..Options::default()
        }
    }

    fn connect(&self, options: &mut Options) -> Result<Connections, Failure> {
        let reach = keep_equal::reach(self.job, &self.signals);
        connect(options, &reach, Duration::ZERO).map_err(|error| {
            (
                Exit::of_connection(&error, 0),
                format!("{}: {error}", self.job.name),
            )
        })
    }

    fn failed(&self, fault: &Fault) -> Failure {
        let (name, tree) = (&self.job.name, quote(Path::new(self.tree)));
        let why = format!("{name}: the trash of {tree}: {}", fault.alone());
        (Exit::CouldNotRun, why)
    }
}

/// A replica that is closed to others again in the end, unless its mirror is at work there.
struct Opened {
    keeper: Box<dyn Provider>,
    socket: PathBuf,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if is_at_work(&self.socket) {
            return;
        }
        if let Err(error) = self.keeper.set_read_only(true) {
            say::complaint(&format!("the replica stays writable: {error}"));
        }
    }
}

/// Whether a mirror is in the middle of a cycle.
fn is_at_work(socket: &Path) -> bool {
    let is_idle = |status: &Status| {
        let cycle = status.cycle.as_ref();
        cycle.is_none_or(|cycle| cycle.stage == "idle")
    };
    match control::ask(socket, &Ask::Status) {
        Ok(Answer::Status(all)) => !all.iter().all(is_idle),
        _ => false,
    }
}

/// Names of the two trees of a restore. Prints problems with these words: the engine takes
/// the tree with the trash for the source of a run, and the target for its replica.
struct RestoreTrees {
    /// The tree that has the trash.
    trashed: String,
    /// The tree that gets the entries.
    target: String,
}

impl RestoreTrees {
    fn of(&self, side: Side) -> &str {
        match side {
            Side::Source => &self.trashed,
            Side::Replica => &self.target,
        }
    }

    /// Returns the words of an error.
    fn words(&self, error: &RestoreError) -> String {
        match error {
            RestoreError::Failed { path, fault } => {
                let (path, tree) = (escape(path.as_bytes()), self.of(fault.side));
                let act = fault.act.on_tree(tree);
                format!("\"{path}\": cannot {act}: {}", fault.cause())
            }
            other => other.to_string(),
        }
    }
}

impl Monitor for RestoreTrees {
    fn wants_receipts(&self) -> bool {
        false
    }

    fn receipt(&self, _receipt: &Receipt) {}

    fn problem(&self, problem: &Problem) {
        say::complaint(&problem.on_tree(self.of(problem.side)));
    }

    fn progress(&self, _progress: &Progress) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below_source(source: &str, path: &Path) -> Option<String> {
        let target = Target::parse(source.as_ref()).expect("a source");
        typed_below((source, &target), path).map(|path| path.to_string())
    }

    #[test]
    fn relative_and_absolute_paths_name_one_entry() {
        let here = std::env::current_dir().expect("a directory").join("src");
        for (source, path) in [
            ("/data/src", "/data/src/plans/june"),
            ("/data/src/", "/data//src/./plans/june/"),
            ("/data/src", "plans/june"),
            ("/data/src", "./plans/june"),
            ("src", "plans/june"),
            ("src", "src/plans/june"),
            ("./src", "src/plans/june"),
            (".", "plans/june"),
            ("src", here.join("plans/june").to_str().expect("text")),
            ("far:/data/src", "/data/src/plans/june"),
            ("far:/data/src", "far:/data/src/plans/june"),
        ] {
            let below = below_source(source, Path::new(path));
            assert_eq!(below.as_deref(), Some("plans/june"), "{source} {path}");
        }
    }

    #[test]
    fn paths_beside_the_source_are_refused() {
        for (source, path) in [
            ("/data/src", "/data/other"),
            ("/data/src", "../other"),
            ("/data/src", "/data/src/../other"),
            ("src", "/data/src/plans"),
            ("far:/data/src", "/data/other"),
        ] {
            assert_eq!(
                below_source(source, Path::new(path)),
                None,
                "{source} {path}"
            );
        }
    }
}
