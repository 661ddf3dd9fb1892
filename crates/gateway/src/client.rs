//! The client of a gateway: submits a job as the user, in the user's directory and environment.

use crate::message::{ClientRequest, GatewayReply, JobInfo, REPLY_BYTES_MAX, read, write};
use crate::{Error, JobRequest};
use driftless_batch::{BatchError, BatchKind, BatchSystem, HeldRequest, JobId, JobMark};
use driftless_deposit::DepositHome;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Longest wait for an answer of a gateway.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Code of a program that a signal ended (bash(1), "EXIT STATUS").
const SIGNAL_CODE: u8 = 128;

/// A job that was submitted held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// Number in the batch system.
    pub job: JobId,
    /// Warning, if the gateway did not answer after the submission.
    pub warning: Option<String>,
}

/// A job that a user submits.
pub trait UserSubmission {
    /// Returns the command for a batch system: `sbatch` or `qsub` with its arguments.
    ///
    /// # Errors
    /// Cause and remedy, if the job is for another batch system.
    fn command(&self, kind: BatchKind) -> Result<Vec<OsString>, String>;

    /// Returns the interface to a batch system.
    fn system(&self, kind: BatchKind) -> Box<dyn BatchSystem>;
}

/// Submits a job held. The command of the user inherits standard input and standard error.
///
/// # Errors
/// No gateway answers, or it refuses; the command failed, and then no job was submitted.
pub fn submit(
    socket: &Path,
    request: JobRequest,
    submission: &dyn UserSubmission,
) -> Result<Submitted, Error> {
    let prepared = match ask(socket, &ClientRequest::Prepare(request))? {
        GatewayReply::Prepared(prepared) => prepared,
        other => return Err(unexpected(&other)),
    };
    let foreign = || Error::Refused("it has another version; install the same version".into());
    let kind = BatchKind::of_word(&prepared.system).ok_or_else(foreign)?;
    let mark = JobMark::new(&prepared.mark).ok_or_else(foreign)?;
    let job = match run(submission, kind, (&mark, &prepared.variables)) {
        Ok(job) => job,
        Err(error) => {
            abandon_unless_submitted(socket, &prepared.mark, &error);
            return Err(error);
        }
    };
    let confirm = ClientRequest::Confirm {
        mark: prepared.mark,
        number: job.to_string(),
    };
    let warning = ask(socket, &confirm).err().map(|error| error.to_string());
    Ok(Submitted { job, warning })
}

/// Returns the jobs of this user; those of all users for root.
///
/// # Errors
/// No gateway answers, or it refuses.
pub fn jobs(socket: &Path) -> Result<Vec<JobInfo>, Error> {
    match ask(socket, &ClientRequest::Jobs)? {
        GatewayReply::Jobs(jobs) => Ok(jobs),
        other => Err(unexpected(&other)),
    }
}

/// Returns the directory in which this user deposits data. The gateway creates it if it is missing.
///
/// # Errors
/// No gateway answers, or it refuses; the directory is unsafe, or open to other users.
pub fn deposits(socket: &Path) -> Result<DepositHome, Error> {
    match ask(socket, &ClientRequest::Home)? {
        GatewayReply::Home(path) => {
            let path = PathBuf::from(OsString::from_vec(path));
            Ok(DepositHome::open(&path)?)
        }
        other => Err(unexpected(&other)),
    }
}

/// Tells the gateway that no job has the mark. A job whose number cannot be read may exist: the
/// gateway looks for it.
fn abandon_unless_submitted(socket: &Path, mark: &str, error: &Error) {
    if !matches!(error, Error::NoNumber { .. }) {
        let mark = mark.to_owned();
        let _the_gateway_forgets_it_later = ask(socket, &ClientRequest::Abandon { mark });
    }
}

/// Runs the command of the batch system, and returns the number of the job.
fn run(
    user: &dyn UserSubmission,
    kind: BatchKind,
    (mark, variables): (&JobMark, &[(String, String)]),
) -> Result<JobId, Error> {
    let command = user.command(kind);
    let command = command.map_err(|why| Error::Batch(BatchError::Arguments(why)))?;
    let batch = user.system(kind);
    let submission = batch.submission(&HeldRequest {
        command: &command,
        mark,
        variables,
    })?;
    let program = submission.program.to_string_lossy().into_owned();
    let output = Command::new(&submission.program)
        .args(&submission.args)
        .envs(submission.env)
        .stderr(Stdio::inherit())
        .stdin(Stdio::inherit())
        .output()
        .map_err(|cause| Error::Program {
            program: program.clone(),
            cause,
        })?;
    if !output.status.success() {
        let code = code_of(output.status);
        return Err(Error::NotSubmitted { program, code });
    }
    let text = String::from_utf8_lossy(&output.stdout);
    batch.submitted(&text).map_err(|cause| Error::NoNumber {
        mark: mark.as_str().to_owned(),
        cause,
    })
}

fn code_of(status: ExitStatus) -> u8 {
    let signal = status.signal().and_then(|signal| u8::try_from(signal).ok());
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.or(signal.map(|signal| SIGNAL_CODE.saturating_add(signal)))
        .unwrap_or(1)
}

fn ask(socket: &Path, request: &ClientRequest) -> Result<GatewayReply, Error> {
    let mut stream = UnixStream::connect(socket).map_err(|cause| Error::NoGateway {
        path: socket.to_owned(),
        cause,
    })?;
    let mut exchange = || -> io::Result<GatewayReply> {
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        write(&mut stream, request)?;
        read(&mut stream, REPLY_BYTES_MAX)
    };
    let reply = exchange().map_err(|cause| Error::Socket {
        path: socket.to_owned(),
        cause,
    })?;
    match reply {
        GatewayReply::Refused(why) => Err(Error::Refused(why)),
        reply => Ok(reply),
    }
}

fn unexpected(reply: &GatewayReply) -> Error {
    let kind = match reply {
        GatewayReply::Prepared(_) => "a mark",
        GatewayReply::Done => "nothing",
        GatewayReply::Jobs(_) => "jobs",
        GatewayReply::Refused(_) => "a refusal",
        GatewayReply::Home(_) => "a directory",
    };
    Error::Refused(format!(
        "it has another version (it answered with {kind}); install the same version"
    ))
}
