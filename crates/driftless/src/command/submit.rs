//! The command `submit`: from arguments or a task file to a held job.

mod check;
mod task_file;

use crate::args::SubmitArgs;
use crate::command::gateway::socket_of;
use crate::command::reach::Unreached;
use crate::command::site::{read_text, usage};
use crate::exit::Exit;
use crate::output::{jobs as show, mirror as say};
use driftless_batch::{BatchKind, BatchSystem, CommandSettings};
use driftless_cast::parse_hostlist;
use driftless_gateway::{JobRequest, ReleasePolicy, UserSubmission};
use driftless_model::{cause, quote};
use driftless_taskfile::TaskFile;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A job that is about to be submitted.
pub struct PlannedSubmission {
    /// Request to the gateway.
    pub request: JobRequest,
    /// Command of the batch system, or the task file that makes one.
    pub source: CommandSource,
}

/// Source of the command of the batch system.
pub enum CommandSource {
    /// The command line.
    Words(Vec<OsString>),
    /// A task file.
    Tasks(Box<TaskFile>),
}

impl PlannedSubmission {
    /// Returns the batch system that a task file names.
    pub fn named_kind(&self) -> Option<BatchKind> {
        match &self.source {
            CommandSource::Words(_) => None,
            CommandSource::Tasks(tasks) => Some(task_file::kind_of(tasks.system)),
        }
    }

    /// Returns the command for a batch system. A task file without options fits each of them.
    pub fn command_for(&self, kind: BatchKind) -> Result<Vec<OsString>, String> {
        match &self.source {
            CommandSource::Words(words) => Ok(words.clone()),
            CommandSource::Tasks(tasks) => task_file::command(kind, tasks),
        }
    }
}

impl UserSubmission for PlannedSubmission {
    fn command(&self, kind: BatchKind) -> Result<Vec<OsString>, String> {
        self.command_for(kind)
    }

    fn system(&self, kind: BatchKind) -> Box<dyn BatchSystem> {
        driftless_batch::system(kind, CommandSettings::default())
    }
}

/// Submits the job; returns the exit code.
pub fn run(args: &SubmitArgs) -> Exit {
    let code = submit(args).unwrap_or_else(|(code, why)| {
        say::complaint(&why);
        code
    });
    say::final_code(code)
}

fn submit(args: &SubmitArgs) -> Result<Exit, Unreached> {
    if args.file.is_none() && args.command.is_empty() {
        return Err(usage(
            "the command of the batch system is missing: write -- before sbatch or qsub, such as \"driftless submit --data nr -- sbatch job.sh\"",
        ));
    }
    let planned = match &args.file {
        Some(file) => task_file::planned(args, file)?,
        None => PlannedSubmission {
            request: request(args, absolute(&args.data)?)?,
            source: CommandSource::Words(args.command.clone()),
        },
    };
    check_names(&planned.request.source_paths())?;
    check_readable(&planned.request.source_paths())?;
    check_program(&planned.source)?;
    if args.dry_run {
        let kind = planned.named_kind().unwrap_or(BatchKind::Slurm);
        let command = planned.command_for(kind).map_err(|why| usage(&why))?;
        check::check(planned.named_kind(), &command).map_err(|why| usage(&why))?;
        show::planned(&planned, &command);
        return Ok(Exit::Equal);
    }
    let socket = socket_of(&args.socket);
    let submitted = driftless_gateway::submit(&socket, planned.request.clone(), &planned)
        .map_err(|error| (Exit::of_gateway_error(&error), error.to_string()))?;
    say::line(submitted.job.as_str());
    match submitted.warning {
        None => Ok(Exit::Equal),
        Some(warning) => {
            let job = submitted.job;
            let why = format!(
                "job {job} was submitted and is held; the gateway takes it when it runs again, do not submit it again: {warning}"
            );
            Err((Exit::Problems, why))
        }
    }
}

/// Returns the request for sources with the options of the command line.
fn request(args: &SubmitArgs, sources: Vec<PathBuf>) -> Result<JobRequest, Unreached> {
    let bytes = |path: PathBuf| path.as_os_str().as_bytes().to_vec();
    let results = args.results.as_ref().map(PathBuf::from);
    Ok(JobRequest {
        results: pattern(results)?,
        sources: sources.into_iter().map(bytes).collect(),
        nodes: args.nodes.as_deref().map(nodes).transpose()?,
        policy: ReleasePolicy {
            need: args.release,
            seconds_max: args.deadline.map(|time| time.as_secs()),
        },
        ..JobRequest::default()
    })
}

/// Returns the pattern of results as an absolute path in bytes.
fn pattern(given: Option<PathBuf>) -> Result<Option<Vec<u8>>, Unreached> {
    let whole = absolute(&given.into_iter().collect::<Vec<_>>())?;
    let bytes = |path: PathBuf| path.as_os_str().as_bytes().to_vec();
    Ok(whole.into_iter().next().map(bytes))
}

/// Returns absolute paths: the gateway has another working directory.
fn absolute(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Unreached> {
    let absolute = |path: &PathBuf| {
        std::path::absolute(path)
            .map_err(|error| usage(&format!("{}: {}", quote(path), cause(&error))))
    };
    paths.iter().map(absolute).collect()
}

/// Returns a list of nodes without names of files, which the gateway could not read.
fn nodes(list: &str) -> Result<String, Unreached> {
    let names = parse_hostlist(list, &mut |path| read_text(Path::new(path)));
    let names = names.map_err(|error| usage(&format!("--nodes: {error}")))?;
    Ok(names.join(","))
}

/// Refuses sources by whose last names no task could find them.
fn check_names(paths: &[PathBuf]) -> Result<(), Unreached> {
    let mut names = BTreeSet::new();
    for path in paths {
        let why = match path.file_name() {
            None => "it has no last name, by which tasks find it; name what is in it",
            Some(name) if !names.insert(name) => {
                "another one has the same last name; name a directory that holds both"
            }
            Some(_) => continue,
        };
        return Err(usage(&format!("--data {}: {why}", quote(path))));
    }
    Ok(())
}

/// Refuses a command that submits no job to a batch system.
fn check_program(source: &CommandSource) -> Result<(), Unreached> {
    let CommandSource::Words(words) = source else {
        return Ok(());
    };
    let program = words.first().map(Path::new).and_then(Path::file_name);
    let is_known = program.is_some_and(|name| name == "sbatch" || name == "qsub");
    is_known.then_some(()).ok_or_else(|| {
        usage("the command behind -- is neither sbatch nor qsub: write \"-- sbatch JOB\" or \"-- qsub JOB\"")
    })
}

/// Looks at each path, so that a user learns of a mistake before the job is submitted.
fn check_readable(paths: &[PathBuf]) -> Result<(), Unreached> {
    paths.iter().try_for_each(|path| {
        let why = match look(path) {
            Ok(None) => return Ok(()),
            Ok(Some(why)) => why.to_owned(),
            Err(error) => format!("cannot read: {}", cause(&error)),
        };
        let why = format!("{}: {why}; no job was submitted", quote(path));
        Err((Exit::CouldNotRun, why))
    })
}

/// Opens a file or directory as the user. Returns the reason if the path can be no data.
#[allow(
    clippy::disallowed_methods,
    reason = "a look at paths that the user names; the gateway opens them"
)]
fn look(path: &Path) -> io::Result<Option<&'static str>> {
    let kind = std::fs::metadata(path)?;
    if kind.is_dir() {
        let first = std::fs::read_dir(path)?.next().transpose()?;
        return Ok(first.is_none().then_some("the directory is empty; fill it"));
    }
    // Opening a FIFO or a device could wait for ever, or have an effect.
    match kind.is_file() {
        true => std::fs::File::open(path).map(|_| None),
        false => Ok(Some("neither a file nor a directory; name one of these")),
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "files of the test, no part of a tree"
)]
mod tests {
    use super::*;

    #[test]
    fn data_is_files_and_directories() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("directory")).unwrap();
        std::fs::write(path("directory/entry"), "").unwrap();
        std::fs::create_dir(path("empty")).unwrap();
        std::fs::write(path("file"), "").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        for name in ["directory", "file", "link"] {
            check_readable(&[path(name)]).unwrap();
        }
        for path in ["socket", "empty", "missing", "/dev/zero"].map(path) {
            let (code, why) = check_readable(std::slice::from_ref(&path)).unwrap_err();
            assert_eq!(code, Exit::CouldNotRun);
            assert!(why.ends_with("; no job was submitted"), "{why}");
        }
    }

    #[test]
    fn data_has_names_for_tasks() {
        let check = |paths: &[&str]| {
            let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
            check_names(&paths)
        };
        check(&["/a/nr", "/b/tax"]).unwrap();
        for wrong in [&["/"] as &[&str], &[""], &["/a/.."], &["/a/nr", "/b/nr"]] {
            let (code, why) = check(wrong).unwrap_err();
            assert_eq!(code, Exit::Usage, "{why}");
        }
    }
}
