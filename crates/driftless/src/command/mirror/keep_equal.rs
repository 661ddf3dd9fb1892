//! `driftless mirror run`: opens what a job names, and keeps its replicas equal until a signal comes.

use super::pool::End;
use super::{Failure, detectors, operators, places, publish, rivals};
use crate::args::{JobArgs, LogArgs};
use crate::command::{job, mounts, record, report};
use crate::exit::Exit;
use crate::output::diagnostics;
use crate::{own, service, signals};
use driftless_detect::Detector;
use driftless_engine::{Options, RunError, Throttle};
use driftless_lock::Mutex;
use driftless_mirror::alarm::{Caller, Pace};
use driftless_mirror::ask::AskState;
use driftless_mirror::clock::now;
use driftless_mirror::control::{self, Desk, Operators};
use driftless_mirror::hands::Hands;
use driftless_mirror::hub::{Mirror, statuses};
use driftless_mirror::job::Job;
use driftless_mirror::live::{BeginError, Beginning};
use driftless_mirror::message::Inboxes;
use driftless_mirror::pulse::Pulse;
use driftless_mirror::status::Status;
use driftless_mirror::{metrics, worded};
use driftless_model::cause;
use driftless_remote::Reach;
use driftless_session::{ConnectError, connect};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Builder, sleep};
use std::time::Duration;

/// Keeps the replicas of a job equal.
pub fn keep_equal(args: &JobArgs, takes_new_replica: bool, log: &LogArgs) -> Result<Exit, Failure> {
    // Modes are set as the source has them; nothing may be taken off them on the way.
    own::give_up_umask();
    diagnostics::start("mirror", log);
    let job = job::read(&args.job)?;
    let signals = signals::watch();
    let _held = job::hold(&job)?;
    job::refuse_active(&job, &args.job)?;
    if let Some(why) = places::remembers(&job) {
        tracing::warn!("{why}");
    }
    // First, so that nothing that happens from here on is missed.
    let end = End::of(&job, false);
    let detectors = detectors::begin(&job, end.as_ref())?;
    let reach = reach(&job, &signals);
    let caller = on_problem(&job)?;
    let beginning = |one| beginning(one, &reach, caller.clone(), end.as_ref());
    let beginnings = job.apart().into_iter().map(beginning);
    let mut beginnings = beginnings.collect::<Result<Vec<_>, _>>()?;
    for beginning in beginnings.iter_mut().filter(|_| takes_new_replica) {
        let taken = beginning.memory.take_new_replica();
        taken.map_err(|error| record::refusal(&error))?;
    }
    run(&job, (beginnings, detectors), end, &signals)
}

/// Works on what was begun, and answers whoever asks, until a signal comes.
pub fn run(
    job: &Job,
    (beginnings, detectors): (Vec<Beginning>, Vec<Box<dyn Detector>>),
    end: Option<End>,
    signals: &signals::Signals,
) -> Result<Exit, Failure> {
    let operators = operators::of(job)?;
    let begun = Mirror::begin(beginnings, detectors, signals.stop.clone());
    let (mirror, inboxes) = begun.map_err(|error| not_begun(&job.name, &error))?;
    answer_users(job, operators.as_ref(), inboxes.clone())?;
    rivals::refuse(job)?;
    serve_metrics(job, inboxes.clone())?;
    let talk = |end: End| end.talk(job, inboxes.clone());
    let talking = end.map(talk).transpose()?;
    let pulses = mirror.pulses();
    answer_signals(&job.name, inboxes.clone(), signals.stop.clone());
    let service = service::begin(Replicas { inboxes, pulses }, signals.stop.clone());
    tracing::info!("{}: at work", job.name);
    let is_deaf = mirror.run();
    if let Some(talking) = talking {
        talking.end();
    }
    if let Some(thread) = service {
        let _its_panic_was_told = thread.join();
    }
    if is_deaf && signals.number() == 0 {
        return Err(begin_anew(&job.name));
    }
    tracing::info!("{}: stopped", job.name);
    Ok(match signals.number() {
        // Somebody has asked for its end.
        0 => Exit::Equal,
        number => Exit::Signal(number),
    })
}

/// Begins anew as the same process, which lets go of all that this life holds: the job, the sockets
/// and the directory that the kernel tells of. Returns only why that cannot be.
fn begin_anew(job: &str) -> Failure {
    tracing::info!("{job}: begins anew");
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    let error = Command::new("/proc/self/exe").arg0(name).args(words).exec();
    let why = format!("{job}: cannot begin anew: {}", cause(&error));
    (Exit::CouldNotRun, why)
}

/// What one replica of a job begins with.
fn beginning(
    job: Job,
    reach: &Reach,
    on_problem: Option<Caller>,
    end: Option<&End>,
) -> Result<Beginning, Failure> {
    let snapshots = detectors::snapshots(&job)?;
    let (mut hands, is_away) = hands_of(&job, reach)?;
    hands.directories = Some(Arc::new(Mutex::new(job::directories(&job)?)));
    let mut memory = job::memory(&job)?;
    // What is noted on the replica when it is opened is this mirror's.
    let known = memory
        .replica()
        .and_then(|known| Ok((known, memory.owner()?)));
    let (replica, owner) = known.map_err(|error| record::refusal(&error))?;
    hands.expect(replica, owner);
    if !is_away {
        refuse_replica(&job, &hands, snapshots.is_some())?;
    }
    let pool = match end {
        Some(end) => Some(end.pool(&job, detectors::heard_as(&job)?)),
        None => None,
    };
    Ok(Beginning {
        herald: publish::herald(&job)?,
        memory,
        pool,
        job,
        hands,
        snapshots,
        on_problem,
    })
}

/// Begins to answer this user and root, and the operators of the job if it names them.
fn answer_users(job: &Job, operators: Option<&Operators>, inboxes: Inboxes) -> Result<(), Failure> {
    let failed = |error| (Exit::CouldNotRun, format!("{}: {error}", job.name));
    let reported = job.clone();
    let state = move |AskState::Report { day, form }: &AskState| {
        let typed = Path::new(&reported.name);
        let made = report::made(&reported, typed, (*day, *form));
        made.map_err(|(_, why)| why)
    };
    let desk = Desk {
        inboxes,
        state: Arc::new(state),
    };
    control::listen(&job::socket(&job.name)?, desk.clone()).map_err(failed)?;
    let listen = |operators| control::listen_to(operators, desk);
    operators.map_or(Ok(()), listen).map_err(|error| {
        let why = format!("operators: cannot listen to them: {}", cause(&error));
        (Exit::CouldNotRun, format!("{}: {why}", job.name))
    })
}

/// Answers who asks for metrics, where the job wants that.
fn serve_metrics(job: &Job, inboxes: Inboxes) -> Result<(), Failure> {
    let Some(asked) = job.metrics else {
        return Ok(());
    };
    let listening = metrics::listen(asked.listen, inboxes).map_err(|error| {
        let why = job::no_port(asked.listen, &error);
        (Exit::CouldNotRun, format!("{}: {why}", job.name))
    })?;
    tracing::info!("{}: metrics at http://{listening}/metrics", job.name);
    Ok(())
}

/// Has the command of the job be started when something is wrong.
fn on_problem(job: &Job) -> Result<Option<Caller>, Failure> {
    let start = |words: Vec<String>| Caller::start(words, own::umask(), Pace::default());
    let started = job.on_problem.clone().map(start).transpose();
    started.map_err(|error| (Exit::CouldNotRun, format!("{}: {error}", job.name)))
}

/// Both trees of one replica. A host that cannot be reached now may be reached later: its replica
/// alone waits. The second value says that one cannot.
pub fn hands_of(job: &Job, reach: &Reach) -> Result<(Hands, bool), Failure> {
    let is_away = match options(job, reach) {
        Ok(_) => false,
        Err(Unprepared::Away(_)) => true,
        Err(Unprepared::Wrong(failure)) => return Err(failure),
    };
    let prepare = {
        let (job, reach) = (job.clone(), reach.clone());
        move || {
            options(&job, &reach).map_err(|error| match error {
                Unprepared::Away(why) | Unprepared::Wrong((_, why)) => RunError::CutOff(why),
            })
        }
    };
    let hands = Hands::new(job.policy.clone(), prepare, reach.clone());
    Ok((
        hands.kept_by(detectors::keeper(job)?, job.read_only),
        is_away,
    ))
}

/// Why it is not known how trees are to be opened.
enum Unprepared {
    /// A host cannot be reached.
    Away(String),
    /// It makes no sense to try again.
    Wrong(Failure),
}

/// Refuses a replica that is the active side. Where snapshots are read, it is not seen later that
/// one tree is within the other.
fn refuse_replica(job: &Job, hands: &Hands, reads_snapshots: bool) -> Result<(), Failure> {
    let opened = hands.open();
    hands.close();
    let refuse = |error: &RunError| {
        let why = worded::for_job(&error.to_string());
        Err((Exit::Refused, format!("{}: {why}", job.name)))
    };
    match opened {
        Err(error @ RunError::Active { .. }) => refuse(&error),
        Err(error @ RunError::Ring { .. }) => {
            // That says more, where it knows the other mirror.
            rivals::refuse(job)?;
            refuse(&error)
        }
        Err(error @ (RunError::Same(_) | RunError::Inside { .. })) if reads_snapshots => {
            refuse(&error)
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

/// A mirror that does not say within this how it stands is not asked for longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval at which the mirror looks whether SIGUSR1 came.
const QUESTIONS_EVERY: Duration = Duration::from_millis(500);
/// A host has so much time for its greeting: nobody is there to type a password, and other replicas
/// wait for the beginning.
const CONNECTING: Duration = Duration::from_secs(20);

pub fn reach(job: &Job, signals: &signals::Signals) -> Reach {
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
        connecting: CONNECTING,
        stop: signals.stop.clone(),
    }
}

/// The same for a run of its own, which does not wait for a host.
pub fn options_now(job: &Job, reach: &Reach) -> Result<Options, Failure> {
    options(job, reach).map_err(|error| match error {
        Unprepared::Away(why) => (Exit::CouldNotRun, why),
        Unprepared::Wrong(failure) => failure,
    })
}

/// What the engine is asked to do, with what earlier runs know of mounted file systems.
fn options(job: &Job, reach: &Reach) -> Result<Options, Unprepared> {
    let mut options = Options {
        source: Path::new(&job.source).to_owned().into(),
        replica: Path::new(&job.replicas[0]).to_owned().into(),
        policy: job.policy.clone(),
        refuses_active: true,
        passes_by_leases: true,
        enters_stubs: job.reads_snapshots(),
        throttle: Throttle {
            jobs: job
                .limits
                .jobs
                .map_or_else(Default::default, crate::units::fixed_jobs),
            bytes_per_second_max: job.limits.bytes_per_second,
            requests_per_second_max: job.limits.requests_per_second,
        },
        ..Options::default()
    };
    let mut reached = options.clone();
    let _connections = connect(&mut reached, reach, Duration::ZERO).map_err(|error| {
        let why = worded::for_job(&format!("{}: {error}", job.name));
        match error {
            ConnectError::Unreached(_) => Unprepared::Away(why),
            error => Unprepared::Wrong((Exit::of_connection(&error, 0), why)),
        }
    })?;
    let notes = Arc::new(mounts::Notes::of(&reached));
    if let Some(why) = notes.doubt() {
        return Err(Unprepared::Wrong((Exit::Refused, why)));
    }
    options.known_mounts = notes.known();
    options.mount_notes = Some(notes);
    Ok(options)
}

/// What the service manager is told of a mirror.
struct Replicas {
    inboxes: Inboxes,
    pulses: Vec<Pulse>,
}

impl service::Served for Replicas {
    fn idle(&self) -> Duration {
        let ages = self.pulses.iter().map(|pulse| pulse.age(now()));
        ages.max().unwrap_or_default()
    }

    fn words(&self) -> Option<String> {
        statuses(&self.inboxes, PATIENCE).map(|statuses| words(&statuses))
    }
}

/// Logs how the replicas stand whenever SIGUSR1 asks, until `stop` is set.
fn answer_signals(job: &str, inboxes: Inboxes, stop: Arc<AtomicBool>) {
    signals::hear_questions();
    let job = job.to_owned();
    let answer = move || {
        while !stop.load(Relaxed) {
            if signals::was_asked()
                && let Some(statuses) = statuses(&inboxes, PATIENCE)
            {
                tracing::info!("{job}: {}", words(&statuses));
            }
            sleep(QUESTIONS_EVERY);
        }
    };
    let started = Builder::new().name("questions".into()).spawn(answer);
    if let Err(error) = started {
        tracing::warn!("SIGUSR1 is not answered: {error}");
    }
}

/// How the replicas stand, in a line.
fn words(statuses: &[Status]) -> String {
    let all = statuses.iter().map(|status| {
        let (left, problems) = (status.left, status.problems);
        let what = match &status.away {
            Some(_) => "out of reach, ".to_owned(),
            None if status.is_paused => "paused, ".to_owned(),
            None if status.is_walking => status.comparison() + ", ",
            None => String::new(),
        };
        let behind = status.behind().as_secs();
        format!("{what}{behind} s behind, {left} left, {problems} problems")
    });
    all.collect::<Vec<_>>().join("; ")
}
