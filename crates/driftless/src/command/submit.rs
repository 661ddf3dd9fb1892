//! The command `submit`: from arguments or a task file to a held job.

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
    let planned = match &args.file {
        Some(file) => task_file::planned(args, file)?,
        None => PlannedSubmission {
            request: request(args, absolute(&args.data)?)?,
            source: CommandSource::Words(args.command.clone()),
        },
    };
    check_readable(&planned.request.source_paths())?;
    check_names(&planned.request.source_paths())?;
    check_program(&planned.source)?;
    if args.dry_run {
        let kind = planned.named_kind().unwrap_or(BatchKind::Slurm);
        let command = planned.command_for(kind).map_err(|why| usage(&why))?;
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

/// Refuses two sources that would have one name.
fn check_names(paths: &[PathBuf]) -> Result<(), Unreached> {
    let mut names = BTreeSet::new();
    let double = paths.iter().find(|path| !names.insert(path.file_name()));
    double.map_or(Ok(()), |path| {
        let why = "another one has the same last name; name a directory that holds both";
        Err(usage(&format!("--data {}: {why}", quote(path))))
    })
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
#[allow(
    clippy::disallowed_methods,
    reason = "a look at paths that the user names; the gateway opens them"
)]
fn check_readable(paths: &[PathBuf]) -> Result<(), Unreached> {
    let look = |path: &Path| match std::fs::metadata(path) {
        Ok(_) => Ok(()),
        Err(error) => {
            let (path, cause) = (quote(path), cause(&error));
            let why = format!("{path}: cannot read: {cause}; no job was submitted");
            Err((Exit::CouldNotRun, why))
        }
    };
    paths.iter().try_for_each(|path| look(path))
}
