//! One question to the mirror of a job: it is waited for while the mirror begins, and it is told when
//! the mirror does not answer.

use super::{Failure, declared, operators, waiting};
use crate::args::JobArgs;
use crate::command::held::Holder;
use crate::command::job;
use crate::exit::Exit;
use crate::output::mirror as say;
use driftless_mirror::ask::{Answer, Ask};
use driftless_mirror::control;
use driftless_mirror::job::Job;
use driftless_mirror::status::Status;
use driftless_model::escape;
use std::io;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A mirror that begins is waited for so long, unless the user says for how long.
const BEGINNING: Duration = Duration::from_secs(20);
/// A mirror that was started a moment ago has the job by then; so has one that begins anew.
const STARTED: Duration = Duration::from_secs(1);
/// Time for sources of changes to tell what they have, where the user does not say for how long.
const HEARING: Duration = Duration::from_secs(5);
/// How often it is tried meanwhile.
const TRY_EVERY: Duration = Duration::from_millis(50);

/// Asks the mirror of a job.
pub fn ask(args: &JobArgs, question: &Ask) -> Result<Answer, Failure> {
    ask_or_not_running(args, question)?.ok_or_else(|| not_running(args))
}

/// Asks the mirror of a job; `None` if it does not run, or begins and is not waited for.
pub fn ask_or_not_running(args: &JobArgs, question: &Ask) -> Result<Option<Answer>, Failure> {
    let name = job::name(&args.job)?;
    let asking = Asking {
        socket: operators::place(&name)?,
        args,
        question,
        name,
        began: Instant::now(),
    };
    loop {
        let answer = asking.once()?;
        if answer.is_some() || !asking.waits_for_beginning()? {
            return Ok(answer);
        }
        sleep(TRY_EVERY);
    }
}

/// Has a mirror that runs hear everything that happened before, within a few seconds; false if it
/// has not by then. One that does not run hears nothing.
pub fn hear(name: &str) -> Result<bool, Failure> {
    let question = Ask::Hear { timeout: HEARING };
    let answer = control::ask(&operators::place(name)?, &question);
    let is_late = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
    Ok(match answer {
        Ok(answer) => !matches!(answer, Answer::Late { .. }),
        Err(error) => !is_late(&error),
    })
}

/// What is asked of whom.
struct Asking<'a> {
    args: &'a JobArgs,
    question: &'a Ask,
    name: String,
    socket: PathBuf,
    began: Instant,
}

impl Asking<'_> {
    /// Asks once; `None` if nobody listens, or who listens ends and its state has the answer.
    fn once(&self) -> Result<Option<Answer>, Failure> {
        if let Some(why) = self.other_trees()? {
            match self.question {
                Ask::Status | Ask::Problems => say::complaint(&why),
                _ => return Err((Exit::Refused, why)),
            }
        }
        let named = self.args.job.display().to_string();
        let answer = waiting::ask(&self.socket, &self.question_now(), &named);
        match answer {
            // It is about to end.
            Ok(Answer::Refused(_)) if self.is_kept() => Ok(None),
            Ok(Answer::Refused(why)) => Err((Exit::CouldNotRun, why)),
            Ok(Answer::Forbidden(why) | Answer::Busy(why)) => {
                Err((Exit::CouldNotRun, format!("{}: {why}", self.name)))
            }
            Ok(answer) => Ok(Some(answer)),
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&self, error: &io::Error) -> Result<Option<Answer>, Failure> {
        let why = match error.kind() {
            _ if operators::is_silent(error) => return Ok(None),
            io::ErrorKind::TimedOut => return Err(self.unanswered()),
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => {
                if self.is_kept() {
                    return Ok(None);
                }
                "its mirror has ended before it answered: ask again when it runs".into()
            }
            _ => operators::unreached(error),
        };
        Err((Exit::CouldNotRun, format!("{}: {why}", self.name)))
    }

    /// Whether the state has the answer of a mirror that does not run.
    fn is_kept(&self) -> bool {
        matches!(self.question, Ask::Status | Ask::Problems)
    }

    /// The question with what is left of its time.
    fn question_now(&self) -> Ask {
        match self.timeout() {
            None => self.question.clone(),
            Some(timeout) => Ask::Barrier {
                timeout: Some(timeout.saturating_sub(self.began.elapsed())),
            },
        }
    }

    /// The time after which the user is answered in any case.
    fn timeout(&self) -> Option<Duration> {
        match self.question {
            Ask::Barrier { timeout } => *timeout,
            _ => None,
        }
    }

    /// Whether somebody waits for as long as it takes, whatever the mirror does meanwhile.
    fn waits_for_good(&self) -> bool {
        let is_patient = matches!(self.question, Ask::Barrier { .. } | Ask::SyncNow { .. });
        is_patient && self.question.limit().is_none()
    }

    /// Why a mirror that runs is not that of the file, if so: what it says is of other trees.
    fn other_trees(&self) -> Result<Option<String>, Failure> {
        let Ok(job) = job::read(&self.args.job) else {
            return Ok(None);
        };
        let limits = [Ask::Status.limit(), self.timeout()];
        let limit = limits.into_iter().flatten().min();
        match control::ask_within(&self.socket, &Ask::Status, limit) {
            Ok(Answer::Status(all)) => Ok(unlike(&job, &all)),
            Err(error) if error.kind() == io::ErrorKind::TimedOut && !self.waits_for_good() => {
                Err(self.unanswered())
            }
            _ => Ok(None),
        }
    }

    /// Nobody listens: whether that may be so for a moment only, and the question waits for it.
    fn waits_for_beginning(&self) -> Result<bool, Failure> {
        if !matches!(self.question, Ask::Barrier { .. } | Ask::SyncNow { .. }) {
            return Ok(false);
        }
        let (waited, limit) = (self.began.elapsed(), self.timeout().unwrap_or(BEGINNING));
        match job::holder(&self.name)? {
            Some(holder) if holder.elsewhere.is_some() => Ok(false),
            Some(_) if waited >= limit => Err(self.unanswered()),
            Some(_) => Ok(true),
            None => Ok(waited < limit.min(STARTED)),
        }
    }

    /// A process has the job, and does not answer.
    fn unanswered(&self) -> Failure {
        let code = match self.timeout() {
            Some(_) => Exit::Behind,
            None => Exit::CouldNotRun,
        };
        let holder = job::holder(&self.name).ok().flatten();
        let holder = holder.unwrap_or_else(Holder::unknown);
        let (process, way_out) = (&holder.words, holder.way_out());
        let (name, waited) = (&self.name, self.began.elapsed().as_secs());
        let job = self.args.job.display();
        let why = format!(
            "{name}: its mirror ({process}) has not answered for {waited} s: it begins, waits for a disk, was stopped or hangs; {way_out} and start it again (driftless mirror run {job})"
        );
        (code, why)
    }
}

/// Why what a mirror says is of other trees than those of a job, if so.
fn unlike(job: &Job, all: &[Status]) -> Option<String> {
    let named = job.replicas.iter().map(|replica| (&job.source, replica));
    let own = all.iter().map(|status| (&status.source, &status.replica));
    let first = all.first().filter(|_| !own.eq(named))?;
    Some(format!(
        "{}: the mirror of this name that runs has other trees than the file names ({} -> {}): the file was changed since it began, and it has to be stopped and run again; or two jobs have one name",
        job.name,
        escape(first.source.as_bytes()),
        escape(first.replica.as_bytes()),
    ))
}

/// Nobody answers: because a replica is the active side, a mirror begins, or nobody has started one.
fn not_running(args: &JobArgs) -> Failure {
    let named = args.job.display();
    let job = job::read_idle(&args.job);
    let is_active = job.as_ref().map(|job| {
        job::refuse_active(job, &args.job)?;
        declared::refuse_here(job, &args.job)
    });
    if let Ok(Err(refused @ (Exit::Refused, _))) = is_active {
        return refused;
    }
    let holder = job::name(&args.job).and_then(|name| job::holder(&name));
    let why = match (holder, job) {
        (Ok(Some(holder)), _) => job::silent_words(&named.to_string(), &holder),
        (_, Err(unknown)) => return unknown,
        _ => format!("{named}: its mirror does not run (driftless mirror run {named})"),
    };
    (Exit::CouldNotRun, why)
}
