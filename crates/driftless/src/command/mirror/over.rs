//! `driftless mirror failover` and `promote`: the replica becomes the active side.
//!
//! The source is not asked for anything: it may be gone. What would be lost is told first, from the
//! state of the mirror. The state says that it begins before anything is changed, so that one that
//! was cut off is gone on with, and to the same end.

use super::agree::agree;
use super::alone::{connected, replica_alone};
use super::asking::hear;
use super::detectors::{of_replica, own_path};
use super::keep_equal::reach;
use super::shared::{Shared, Standing};
use super::take_job::take_job;
use super::{missing, operators, rivals};
use crate::args::{FailoverArgs, FailoverTo};
use crate::command::{job, record};
use crate::exit::Exit;
use crate::output::mirror as say;
use crate::output::mirror::recovery::{Over, over};
use crate::own;
use crate::signals;
use crate::units::show_counted;
use driftless_detect::snapshot::{Provider, SnapshotError};
use driftless_engine::{
    Alone, End, Options, RunError, declare_active, look_alone, refuse_busy, require_alone,
};
use driftless_mirror::clock::now;
use driftless_mirror::job::Job;
use driftless_mirror::recovery::{Approach, Known, Loss, carry_out, go_back, rehearse};
use driftless_mirror::snapshots::{KEPT, name_of};
use driftless_mirror::worded;
use driftless_model::Stamp;
use driftless_remote::Reach;
use driftless_state::mirror::{EqualUntil, MirrorState, Role, RoleRow, Saved};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

type Failure = (Exit, String);

/// A lock is given so much time to go.
const LOCK_MAX: Duration = Duration::from_secs(5);
/// Between two looks at whether it has gone, or a plan can be made.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Attempts to make a plan of a mirror that goes on meanwhile: for three seconds, of which it keeps its
/// state about once in each.
const PLANS_MAX: usize = 60;
/// In the place of a snapshot: the replica stays as it is.
const LATEST: &str = "latest";

/// A failover that is planned or at work.
struct Failover<'a> {
    job: &'a Job,
    /// This user has a state of the job on this host.
    is_known: bool,
    loss: Loss,
    provider: Option<Box<dyn Provider>>,
    options: Options,
    /// File systems that are not mounted any more are gone for good.
    forgets_mounts: bool,
    reach: Reach,
    stop: &'a AtomicBool,
}

/// Says what would be lost, and makes the replica the active side unless it is a rehearsal.
pub fn fail_over(args: &FailoverArgs) -> Result<Exit, Failure> {
    own::give_up_umask();
    let job = job::with_one(&job::read(&args.job.job)?, args.replica.as_deref())?;
    operators::refuse(&job, "failover")?;
    let signals = signals::watch();
    let reach = reach(&job, &signals);
    // What its sources of changes have not told yet is lost as well.
    let has_heard = hear(&job.name)?;
    if !has_heard {
        say::complaint(&format!(
            "{}: its mirror has not received all changes yet, so the numbers below may be too small; see driftless mirror status",
            job.name
        ));
    }
    let mut options = replica_alone(&job);
    let _connections = connected(&job, &mut options, &reach)?;
    let mut failover = Failover {
        is_known: job::look(&job.own_name())?.is_some(),
        loss: loss(&job)?,
        provider: own_path(&job, &job.replicas[0])?.and_then(|path| of_replica(&path)),
        job: &job,
        options,
        forgets_mounts: args.forget_mounts,
        reach,
        stop: &signals.stop,
    };
    if failover.loss.role.role == Role::FailedOver {
        return failover.stay_over(args);
    }
    refuse_second(args, &job)?;
    if job::holder(&job.name)?.is_none() {
        failover.refuse_rivals()?;
    }
    let told = failover.planned(args.to)?;
    if args.dry_run || !args.json && !args.yes {
        over(&told, args.json);
    }
    if args.dry_run {
        return Ok(Exit::Equal);
    }
    agree(
        args.yes,
        &format!("{}: the replica becomes the active side", job.name),
        &signals,
    )?;
    let _held = take_job(&job, &signals)?;
    refuse_second(args, &job)?;
    failover.refuse_rivals()?;
    let mut state = job::state(&job)?;
    // The mirror may have done more before it ended.
    failover.loss = Loss::of(&state).map_err(|error| record::refusal(&error))?;
    let to = failover.aim(args.to)?;
    failover.refuse_work(&to)?;
    if args.yes && !args.json {
        over(&failover.told(&to)?, false);
    }
    let done = Over {
        is_done: true,
        is_running: false,
        snapshot: failover.carry_out(&mut state, &to)?,
        ..failover.told(&to)?
    };
    over(&done, args.json);
    Ok(Exit::Equal)
}

/// Refuses a second active replica of a job.
fn refuse_second(args: &FailoverArgs, job: &Job) -> Result<(), Failure> {
    let all = job::read(&args.job.job)?.apart();
    let others = all.iter().filter(|one| one.replicas != job.replicas);
    for other in others {
        let role = loss(other)?.role.role;
        if role != Role::Following {
            let (name, active) = (&job.name, &other.replicas[0]);
            let named = args.job.job.display();
            let why = format!(
                "{name}: cannot fail over: its replica {active} is the active side already; to end that, give driftless mirror failback {named} --replica {active} --finish (nothing was changed)"
            );
            return Err((Exit::Refused, why));
        }
    }
    Ok(())
}

/// Refuses a replica that is not the one that the mirror has filled, where that is known.
pub fn refuse_other(job: &Job, loss: &Loss, alone: &Alone) -> Result<(), Failure> {
    match loss.replica {
        Some(known) if alone.identity != Some(known) => {
            let (name, replica) = (&job.name, &job.replicas[0]);
            let way_out = match loss.role.role {
                Role::FailedOver | Role::FailingBack => {
                    ". If the replica has only lost its marker, give failback --new-replica. If the replica is lost, give failback --give-up"
                }
                Role::Following | Role::FailingOver => "",
            };
            let why = format!(
                "{name}: {replica}: this directory is not the replica that the mirror filled; is its file system mounted? (nothing was changed){way_out}"
            );
            Err((Exit::Refused, why))
        }
        _ => Ok(()),
    }
}

/// Returns the recorded state of the mirror; an empty one if this host has no state of the job.
fn loss(job: &Job) -> Result<Loss, Failure> {
    let view = job::look(&job.own_name())?;
    let loss = view.map_or(Ok(Loss::default()), |view| Loss::of(&view));
    loss.map_err(|error| record::refusal(&error))
}

impl Failover<'_> {
    /// Refuses a replica at which a mirror of another job, user or state is at work: it would go on
    /// against those who use the replica. The job's own mirror has ended.
    fn refuse_rivals(&self) -> Result<(), Failure> {
        rivals::refuse_at_replica(self.job)?;
        let began = Instant::now();
        loop {
            match refuse_busy(&self.options) {
                // An agent lets go of its lock a moment after its mirror has ended.
                Err(error) if is_locked(&error) && began.elapsed() < LOCK_MAX => {
                    std::thread::sleep(LOOK_EVERY);
                }
                Err(error) if is_locked(&error) || !self.is_known => {
                    return Err(failed(self.job, &error));
                }
                _ => return Ok(()),
            }
        }
    }

    /// Returns the way to the replica and its snapshots, which are on this host.
    fn way(&self) -> Approach<'_> {
        Approach {
            reach: &self.reach,
            patience: Duration::ZERO,
            tell: &say::complaint,
        }
    }

    /// Plans the failover. Plans again if a mirror that runs has changed its state meanwhile.
    fn planned(&mut self, to: FailoverTo) -> Result<Over, Failure> {
        let mut plan = self.plan(to);
        for _ in 1..PLANS_MAX {
            if plan.is_ok() || !job::runs(&self.job.name)? {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
            self.loss = loss(self.job)?;
            plan = self.plan(to);
        }
        plan
    }

    fn plan(&self, to: FailoverTo) -> Result<Over, Failure> {
        let to = self.aim(to)?;
        self.refuse_work(&to)?;
        self.told(&to)
    }

    /// Returns the goal: the name of a snapshot, or [`LATEST`].
    fn aim(&self, to: FailoverTo) -> Result<String, Failure> {
        let refuse = |why: String| Err((Exit::Refused, format!("{}: {why}", self.job.name)));
        if self.loss.role.role == Role::FailingBack && to == FailoverTo::Common {
            return refuse(
                "cannot go back to a snapshot: a failback was interrupted, and users may have changed the replica; --to latest keeps its present state (nothing was changed)"
                    .into(),
            );
        }
        if let Some(begun) = self.begun()? {
            let is_latest = begun == LATEST;
            if is_latest == (to == FailoverTo::Latest) {
                return Ok(begun);
            }
            let way = if is_latest { "latest" } else { "common" };
            return refuse(format!(
                "cannot change the goal: a failover to {begun} was interrupted; complete it with --to {way}"
            ));
        }
        match to {
            FailoverTo::Latest => Ok(LATEST.to_owned()),
            FailoverTo::Common if !self.is_known => refuse(
                "--to common needs the state of its mirror, and this user has none on this host (see XDG_STATE_HOME); --to latest needs none (nothing was changed)"
                    .into(),
            ),
            FailoverTo::Common if self.provider.is_none() => refuse(
                "--to common needs a snapshot: source and replica have no snapshot in common, or the replica is not on this host; --to latest needs none (nothing was changed)"
                    .into(),
            ),
            FailoverTo::Common => self.shared()?.newest().or_else(refuse),
        }
    }

    /// The snapshots of the replica that it could go back to.
    fn shared(&self) -> Result<Shared, Failure> {
        let shared = Shared::of(&self.loss, self.provider.as_deref());
        shared.map_err(|error| not_done(self.job, &error))
    }

    /// Returns the goal of an interrupted failover, as long as that can be completed.
    fn begun(&self) -> Result<Option<String>, Failure> {
        let role = &self.loss.role;
        let begun = role.to.clone().filter(|_| role.role == Role::FailingOver);
        let Some(name) = begun.as_ref().filter(|begun| *begun != LATEST) else {
            return Ok(begun);
        };
        let Some(provider) = &self.provider else {
            return Ok(begun);
        };
        let all = provider.list();
        let all = all.map_err(|error| not_done(self.job, &error))?;
        let is_other = self.shared()?.standing(name) == Standing::Other;
        Ok(begun
            .clone()
            .filter(|name| all.contains_key(name) && !is_other))
    }

    /// The replica is the active side already, and is writable. It has work of its own, so it goes
    /// back to no snapshot.
    fn stay_over(&self, args: &FailoverArgs) -> Result<Exit, Failure> {
        let is_latest = self.loss.role.to.as_deref() == Some(LATEST);
        if is_latest && args.to == FailoverTo::Common {
            let why = format!(
                "{}: cannot go back to a snapshot: its replica is the active side already, with the state that it had (nothing was changed)",
                self.job.name
            );
            return Err((Exit::Refused, why));
        }
        let told = self.told(LATEST)?;
        if let Some(provider) = self.provider.as_ref().filter(|_| !args.dry_run) {
            let opened = provider.set_read_only(false);
            opened.map_err(|error| not_done(self.job, &error))?;
        }
        if !args.dry_run {
            self.declare()?;
        }
        over(&told, args.json);
        Ok(Exit::Equal)
    }

    /// Returns the report of the failover; changes nothing.
    fn told(&self, to: &str) -> Result<Over, Failure> {
        let refuse = |why: &str| (Exit::Refused, format!("{}: {why}", self.job.name));
        let alone = look_alone(&self.options).map_err(|error| failed(self.job, &error))?;
        if alone.is_empty {
            return Err(refuse(
                "cannot fail over: the replica is empty; is its file system mounted? (nothing was changed)",
            ));
        }
        refuse_other(self.job, &self.loss, &alone)?;
        self.refuse_part()?;
        let back = match self.snapshot(to)? {
            None => None,
            Some(path) => {
                let options = go_back(&self.options, &path);
                let known = self.known_of(to);
                let rehearsal = rehearse(&options, &self.way(), &known, self.stop);
                Some(rehearsal.map_err(|error| failed(self.job, &error))?)
            }
        };
        let is_read_only = self
            .provider
            .as_ref()
            .map(|provider| provider.is_read_only());
        let is_read_only = is_read_only.unwrap_or(Ok(false));
        Ok(Over {
            job: self.job.name.clone(),
            source: self.job.source.clone(),
            replica: self.job.replicas[0].clone(),
            is_known: self.is_known,
            is_running: job::runs(&self.job.name)?,
            loss: self.loss.clone(),
            to: to.to_owned(),
            is_as_left: self.is_as_left(to, &alone),
            doubt: alone.doubt.map(|since| self.durable_until(since)),
            snapshot_doubts: match to {
                LATEST => Vec::new(),
                to => self.shared()?.doubts(to),
            },
            is_read_only: is_read_only.map_err(|error| not_done(self.job, &error))?,
            can_snapshot: self.provider.is_some(),
            back,
            is_done: false,
            snapshot: None,
        })
    }

    /// Returns whether the replica is as its mirror has left it, as far as marks tell; nothing where
    /// that is unknown, or the replica becomes a snapshot.
    fn is_as_left(&self, to: &str, alone: &Alone) -> Option<bool> {
        let is_known = to == LATEST && self.loss.role.role == Role::Following;
        let runs = self.loss.run.zip(alone.run).filter(|_| is_known);
        runs.map(|(left, found)| left == found)
    }

    /// Refuses a replica of which a part is not mounted, or that lacks what the job requires.
    fn refuse_part(&self) -> Result<(), Failure> {
        let options = Options {
            known_mounts: Arc::new(self.loss.mounts.clone()),
            ..self.options.clone()
        };
        if !self.forgets_mounts {
            let replica = format!("the replica {}", self.job.replicas[0]);
            missing::refuse(self.job, &replica, &options)?;
        }
        require_alone(&options).map_err(|error| failed(self.job, &error))
    }

    /// From when on changes may not be durable, as the mark says with `since`: what was recorded as
    /// equal was durable before.
    fn durable_until(&self, since: Stamp) -> Stamp {
        let equal = self.loss.equal_until.unwrap_or_default();
        let equal = Stamp {
            sec: equal.as_secs().cast_signed(),
            nsec: equal.subsec_nanos(),
        };
        since.max(equal)
    }

    /// Refuses to go back to a snapshot where the replica says that it is the active side already,
    /// of which this state knows nothing.
    fn refuse_work(&self, to: &str) -> Result<(), Failure> {
        let alone = look_alone(&self.options).map_err(|error| failed(self.job, &error))?;
        if to == LATEST || alone.active.is_none() || self.loss.role.role != Role::Following {
            return Ok(());
        }
        let why = format!(
            "{}: cannot go back to a snapshot: the marker of the replica says that it is the active side already, so users may have changed it; --to latest keeps its present state (nothing was changed)",
            self.job.name
        );
        Err((Exit::Refused, why))
    }

    /// Returns the path of the snapshot that the replica goes back to; `None` for [`LATEST`].
    fn snapshot(&self, to: &str) -> Result<Option<PathBuf>, Failure> {
        if to == LATEST {
            return Ok(None);
        }
        let provider = self.provider.as_ref().expect("it has snapshots");
        let all = provider
            .list()
            .map_err(|error| not_done(self.job, &error))?;
        all.get(to).cloned().map(Some).ok_or_else(|| {
            let why = format!(
                "{}: cannot go back to snapshot {to}: the replica has it no longer",
                self.job.name
            );
            (Exit::Refused, why)
        })
    }

    /// Makes the replica the active side; returns the name of the snapshot that it gets.
    fn carry_out(&self, state: &mut MirrorState, to: &str) -> Result<Option<String>, Failure> {
        let before = self.loss.role.role;
        if before == Role::Following {
            take_role(state, Role::FailingOver, Some(to), &Saved::default())?;
        }
        let mut saved = Saved::default();
        if let Some(provider) = &self.provider {
            let opened = provider.set_read_only(false);
            opened.map_err(|error| not_done(self.job, &error))?;
        }
        if let Some(path) = self.snapshot(to)?.filter(|_| before != Role::FailingBack) {
            self.go_back(&path, to)?;
            let made = self.loss.shared.get(to).copied();
            saved.equal_until = made.map_or(EqualUntil::Unknown, EqualUntil::At);
        }
        let snapshot = keep(self.job, self.provider.as_deref(), &self.job.own_name())?;
        self.declare()?;
        take_role(state, Role::FailedOver, Some(to), &saved)?;
        Ok(snapshot)
    }

    /// Has the replica itself say that it is the active side: mirrors of other hosts and users, and
    /// those whose state is lost, hear of it nowhere else.
    fn declare(&self) -> Result<(), Failure> {
        let since = now().as_secs().cast_signed();
        match declare_active(&self.options, Some(since)) {
            Err(error) if is_locked(&error) => Err(failed(self.job, &error)),
            Err(error) => {
                say::complaint(&format!(
                    "{}: {error}; a mirror of another host or user does not see that this replica is the active side: stop it for good",
                    self.job.name
                ));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Returns what is known of a snapshot of the replica and the replica: it was made then.
    fn known_of(&self, name: &str) -> Known {
        Known::until(self.loss.shared.get(name).copied())
    }

    /// Makes the replica its own snapshot again. What it had until now stays in another one.
    fn go_back(&self, path: &std::path::Path, name: &str) -> Result<(), Failure> {
        let _kept = keep_aside(self.job, self.provider.as_deref())?;
        let options = go_back(&self.options, path);
        let carried = carry_out(&options, &self.way(), &self.known_of(name), self.stop)
            .map_err(|error| failed(self.job, &error))?;
        say::recovery::problems(&carried.problems);
        match (carried.summary.end, carried.problems.len()) {
            (End::Complete, 0) => Ok(()),
            (end, count) => {
                let why = match end {
                    End::Complete => show_counted(count as u64, "path failed", "paths failed"),
                    End::Stopped => "a signal ended it".into(),
                    End::Lost => "data written to the replica was lost; check its disk".into(),
                    End::Refused(why) | End::NoPlan(why) | End::CutOff(why) => {
                        worded::for_job(&why)
                    }
                };
                let why = format!(
                    "{}: cannot go back to snapshot {name} completely: {why}; repeat the command: it continues",
                    self.job.name
                );
                Err((Exit::Problems, why))
            }
        }
    }
}

/// Makes a snapshot of what one of a job's trees has before it becomes another, where that can be.
pub fn keep_aside(job: &Job, provider: Option<&dyn Provider>) -> Result<Option<String>, Failure> {
    keep(job, provider, &format!("{}{KEPT}", job.own_name()))
}

/// Makes a snapshot of one of a job's trees, where that can be.
fn keep(
    job: &Job,
    provider: Option<&dyn Provider>,
    beginning: &str,
) -> Result<Option<String>, Failure> {
    let Some(provider) = provider else {
        return Ok(None);
    };
    let name = name_of(beginning, now());
    let made = provider.prepare().and_then(|()| provider.create(&name));
    made.map_err(|error| not_done(job, &error))?;
    Ok(Some(name))
}

/// Returns whether another run is at work on the replica.
fn is_locked(error: &RunError) -> bool {
    Exit::of_error(error) == Exit::Locked
}

/// Returns the failure of a run on the trees of a job.
pub fn failed(job: &Job, error: &RunError) -> Failure {
    let why = worded::for_job(&error.to_string());
    (Exit::of_error(error), format!("{}: {why}", job.name))
}

/// Returns the failure of an operation on the snapshots of a tree.
pub fn not_done(job: &Job, error: &SnapshotError) -> Failure {
    (Exit::CouldNotRun, format!("{}: {error}", job.name))
}

/// Notes what the replica is from now on.
pub fn take_role(
    state: &mut MirrorState,
    role: Role,
    to: Option<&str>,
    saved: &Saved,
) -> Result<(), Failure> {
    let row = RoleRow {
        role,
        since: Some(now()),
        to: to.map(str::to_owned),
    };
    let taken = state.take_role(&row, saved);
    taken.map_err(|error| record::refusal(&error))
}
