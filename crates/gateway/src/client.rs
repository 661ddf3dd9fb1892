//! The client of a gateway: submits a job as the user, in the user's directory and environment.

use crate::message::{ClientRequest, GatewayReply, JobInfo, REPLY_BYTES_MAX, read, write};
use crate::{Error, JobRequest};
use driftless_batch::{
    BatchError, BatchKind, BatchSystem, HeldRequest, JobId, JobInput, JobMark, Submission,
};
use driftless_deposit::DepositHome;
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Longest wait for an answer of a gateway.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Code of a program that a signal ended, without its number (bash(1), "EXIT STATUS").
const SIGNAL_CODE: u8 = 128;
/// Codes of programs that a signal ended: 1 to 64 (signal(7)). `sbatch` ends with 255 for a wrong option.
const SIGNAL_CODES: RangeInclusive<u8> = 129..=192;
/// Status of a command whose end is unknown: that of SIGKILL (wait(2)).
const UNKNOWN_END: i32 = 9;
/// Bytes of the standard error of the user's command that are searched for its cause.
const TOLD_BYTES_MAX: usize = 64 << 10;
/// Looks into the batch system for a job whose number is unknown, and the pause between two.
const LOOKS: u32 = 3;
const LOOK_PAUSE: Duration = Duration::from_secs(1);

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

/// Submits a job held. The command of the user has the standard input of this process, and what it
/// prints to its standard error is passed on.
///
/// # Errors
/// No gateway answers, or it refuses; the command failed. The error states whether a job may have been
/// submitted.
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
        Err(error) if error.may_have_submitted() => {
            let found = look_for(&*submission.system(kind), &mark);
            found.ok_or(error)?
        }
        Err(error) => {
            let mark = prepared.mark;
            let _the_gateway_forgets_it_later = ask(socket, &ClientRequest::Abandon { mark });
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

/// Returns the number of the job with a mark. The gateway looks for it as well, so that no answer of the
/// batch system is needed here.
fn look_for(batch: &dyn BatchSystem, mark: &JobMark) -> Option<JobId> {
    for look in 0..LOOKS {
        if look > 0 {
            std::thread::sleep(LOOK_PAUSE);
        }
        let mut jobs = batch.marked().ok()?.into_iter();
        if let Some(found) = jobs.find(|job| job.mark == *mark) {
            return Some(found.job);
        }
    }
    None
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
        input: JobInput::Standard,
    })?;
    let program = submission.program.to_string_lossy().into_owned();
    let child = start(submission).map_err(|cause| Error::Program {
        program: program.clone(),
        cause,
    })?;
    let mark = mark.as_str().to_owned();
    let ended = end_of(child);
    if !ended.status.success() {
        let code = code_of(ended.status);
        let is_signal = SIGNAL_CODES.contains(&code);
        return Err(match batch.states_refusal(&ended.stderr) && !is_signal {
            true => Error::NotSubmitted { program, code },
            false => Error::MaybeSubmitted {
                program,
                code,
                mark,
            },
        });
    }
    let job = batch.submitted(&ended.stdout);
    job.map_err(|cause| Error::NoNumber { mark, cause })
}

/// End of the user's command.
struct CommandEnd {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

fn start(submission: Submission) -> io::Result<Child> {
    let stdin = match submission.input {
        Some(script) => Stdio::from(file_of(&script)?),
        None => Stdio::inherit(),
    };
    Command::new(&submission.program)
        .args(&submission.args)
        .envs(submission.env)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Returns a file in memory, at its begin.
fn file_of(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("driftless-job-script", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// Waits for a command. A command whose end is unknown counts as one that a signal ended: it may have
/// submitted the job.
fn end_of(mut child: Child) -> CommandEnd {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = std::thread::scope(|scope| {
        let told = scope.spawn(|| stderr.map(passed_on).unwrap_or_default());
        let mut bytes = Vec::new();
        if let Some(mut pipe) = stdout {
            let _what_came_is_judged = pipe.read_to_end(&mut bytes);
        }
        (bytes, told.join().unwrap_or_default())
    });
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    CommandEnd {
        status: child.wait().unwrap_or(ExitStatus::from_raw(UNKNOWN_END)),
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

/// Passes a pipe on to the standard error, and returns its last bytes.
fn passed_on(mut pipe: impl Read) -> Vec<u8> {
    let (mut kept, mut some) = (Vec::new(), [0; 4096]);
    loop {
        let count = match pipe.read(&mut some) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        let _the_reader_may_be_gone = io::stderr().write_all(&some[..count]);
        kept.extend_from_slice(&some[..count]);
        let too_many = kept.len().saturating_sub(TOLD_BYTES_MAX);
        kept.drain(..too_many);
    }
    kept
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

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
