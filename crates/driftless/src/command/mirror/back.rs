//! `driftless mirror failback`: what has changed on the replica is brought back to the source.
//!
//! Both trees are compared the other way round, so only what differs moves. It can be done often
//! while people still work on the replica; the last time makes the source the active side again.

use super::agree::agree;
use super::alone::connected;
use super::detectors::{of_replica, own_path};
use super::give_up::{all_is_left, give_up, no_snapshot};
use super::keep_equal::{options_now, reach};
use super::over::{failed, keep_aside, not_done, refuse_other, take_role};
use super::{declared, missing, operators};
use crate::args::FailbackArgs;
use crate::command::{job, record};
use crate::exit::Exit;
use crate::output::mirror as say;
use crate::output::mirror::recovery::{Back, back};
use crate::own;
use crate::signals::{self, Signals};
use driftless_detect::snapshot::Provider;
use driftless_engine::{Counts, End, Options, RunError, declare_active, look_alone, not_gone};
use driftless_mirror::clock::now;
use driftless_mirror::job::Job;
use driftless_mirror::recovery::{Approach, Loss, Rehearsal, carry_out, rehearse, reversed};
use driftless_mirror::worded::for_job;
use driftless_model::{Act, Problem, Side};
use driftless_reconcile::Refusal;
use driftless_remote::Reach;
use driftless_session::Connections;
use driftless_state::mirror::{EqualUntil, MirrorState, Role, Saved};
use driftless_tree::{Endpoint, RootError};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

type Failure = (Exit, String);

/// The last failback compares again until nothing differs any more, at most so often.
const PASSES_MAX: u64 = 5;

/// End of the last pass of a failback.
struct Pass {
    code: Exit,
    /// Moment at which it began: what was written to the source since may have been looked at before.
    began: Duration,
    /// Entries that the source alone has, and keeps.
    only_on_source: u64,
}

/// A failback that is planned or at work.
struct Failback<'a> {
    job: &'a Job,
    how: &'a FailbackArgs,
    loss: Loss,
    options: Options,
    reach: Reach,
    stop: &'a AtomicBool,
}

/// Says what would be lost, and brings back what has changed unless it is a rehearsal.
pub fn fail_back(how: &FailbackArgs) -> Result<Exit, Failure> {
    own::give_up_umask();
    let all = job::read(&how.job.job)?;
    let job = job::with_one(&all, how.replica.as_deref())?;
    operators::refuse(&job, "failback")?;
    let signals = signals::watch();
    let reach = reach(&job, &signals);
    active(how, (&all, &job), &reach)?;
    let _held = (!how.dry_run).then(|| job::hold(&job)).transpose()?;
    // Another failback may have ended meanwhile.
    let loss = active(how, (&all, &job), &reach)?;
    if how.give_up {
        return give_up(how, (&job, &loss), &reach, &signals);
    }
    let failback = Failback {
        options: options_back(&job, how, &loss, &reach)?,
        job: &job,
        how,
        loss,
        reach,
        stop: &signals.stop,
    };
    let told = failback.told()?;
    if how.dry_run || !how.json {
        back(&told, how.json);
    }
    if how.dry_run {
        return Ok(exit_of(&told.end, &signals));
    }
    agree(
        how.yes,
        &format!(
            "{}: the source {} becomes identical to the replica {}",
            job.name, job.source, job.replicas[0]
        ),
        &signals,
    )?;
    let mut state = job::state(&job)?;
    let (done, code) = failback.carry_out(&mut state, told)?;
    back(&done, how.json);
    Ok(match signals.number() {
        number if signals.stop.load(Relaxed) => Exit::Signal(number),
        _ => code,
    })
}

/// Returns the exit code of a rehearsal: a guard refuses the run as well.
fn exit_of(end: &End, signals: &Signals) -> Exit {
    match end {
        End::Complete => Exit::Equal,
        End::Refused(_) => Exit::Refused,
        End::Stopped => Exit::Signal(signals.number()),
        End::Lost | End::CutOff(_) | End::NoPlan(_) => Exit::CouldNotRun,
    }
}

/// Returns what the engine is asked to do: the job the other way round.
fn options_back(
    job: &Job,
    how: &FailbackArgs,
    loss: &Loss,
    reach: &Reach,
) -> Result<Options, Failure> {
    let mut options = Options {
        // Of what is mounted below the source, and of subvolumes, the replica has nothing then.
        leaves_mounts: job.reads_snapshots() || job.policy.one_file_system,
        passes_by_unfinished: true,
        ..options_now(&reversed(job), reach)?
    };
    // The mirror saw what is mounted below the replica; earlier failbacks noted what they met there.
    let known = Arc::make_mut(&mut options.known_mounts);
    known.extend(loss.mounts.iter().cloned());
    if how.forget_mounts {
        let mut reached = options.clone();
        let _connections = connected(job, &mut reached, reach)?;
        options.known_mounts = Arc::new(not_gone(&reached));
    }
    Ok(options)
}

/// Returns the recorded state of one replica of a job, if it is the active side.
fn active(how: &FailbackArgs, (all, job): (&Job, &Job), reach: &Reach) -> Result<Loss, Failure> {
    let refuse = |why: &str| Err((Exit::Refused, format!("{}: {why}", job.name)));
    let view = job::look(&job.own_name())?;
    let loss = view.map_or(Ok(Loss::default()), |view| Loss::of(&view));
    let loss = loss.map_err(|error| record::refusal(&error))?;
    match loss.role.role {
        Role::FailedOver | Role::FailingBack => Ok(loss),
        // The replica may have been lost meanwhile.
        Role::FailingOver if how.give_up => Ok(loss),
        Role::FailingOver => refuse(&format!(
            "cannot fail back: its failover was interrupted; repeat it first: {}",
            job::command_words(all, &how.job.job, "failover", &job.replicas[0])
        )),
        Role::Following => match job::active(all)?.first() {
            Some(row) => {
                let active = &row.about.replica;
                let back = job::command_words(all, &how.job.job, "failback", active);
                refuse(&format!(
                    "cannot fail back from this replica: {active} is the active side; give {back}"
                ))
            }
            None => {
                declared::refuse((all, job), &how.job.job, reach)?;
                refuse("cannot fail back: there was no failover, so the source is the active side")
            }
        },
    }
}

impl Failback<'_> {
    fn told(&self) -> Result<Back, Failure> {
        self.refuse_other()?;
        self.refuse_empty()?;
        self.refuse_unmounted()?;
        self.refuse_read_only()?;
        let until = self.loss.equal_until;
        let rehearsal = rehearse(&self.options, &self.way(), &self.loss.known(), self.stop)
            .map_err(|error| failed_back(self.job, &error))?;
        self.refuse_unlike(&rehearsal)?;
        Ok(Back {
            job: self.job.name.clone(),
            source: self.job.source.clone(),
            replica: self.job.replicas[0].clone(),
            equal_until: until,
            counts: rehearsal.counts,
            lost: rehearsal.lost,
            has_more: rehearsal.has_more,
            problems: as_in_the_job(rehearsal.problems),
            end: rehearsal.end,
            passes: 0,
            kept: None,
            role: self.loss.role.role,
        })
    }

    /// Returns the way to the trees: connections that are lost are made again, as the job says.
    fn way(&self) -> Approach<'_> {
        Approach {
            reach: &self.reach,
            patience: self.job.reach.reconnect,
            tell: &say::complaint,
        }
    }

    /// Returns options that name the job's replica alone.
    fn replica_alone(&self) -> Result<(Options, Connections), Failure> {
        let mut options = Options {
            replica: self.options.source.clone(),
            ..self.options.clone()
        };
        let connections = connected(self.job, &mut options, &self.reach)?;
        Ok((options, connections))
    }

    /// Has what stands at the replica's path be the replica from now on, and say that it is the
    /// active side.
    fn adopt(&self, state: &mut MirrorState) -> Result<(), Failure> {
        let (options, _connections) = self.replica_alone()?;
        let since = now().as_secs().cast_signed();
        let alone = declare_active(&options, Some(since)).and_then(|()| look_alone(&options));
        let alone = alone.map_err(|error| failed(self.job, &error))?;
        let known = state.know(alone.identity);
        known.map_err(|error| record::refusal(&error))
    }

    /// Refuses a directory at the replica's path that is not the replica that was the active side.
    fn refuse_other(&self) -> Result<(), Failure> {
        let (options, _connections) = self.replica_alone()?;
        let alone = look_alone(&options).map_err(|error| failed(self.job, &error))?;
        if self.how.new_replica {
            return Ok(());
        }
        refuse_other(self.job, &self.loss, &alone)?;
        // One that was cut off may have said already that the replica is it no more.
        if self.loss.role.role != Role::FailedOver || alone.active.is_some() {
            return Ok(());
        }
        let (name, replica) = (&self.job.name, &self.job.replicas[0]);
        let text = format!(
            "{name}: {replica}: cannot fail back: its marker does not say that it is the active side, so the state file of the mirror may be out of date, and the source may be newer (nothing was changed). If users work on the source, give driftless mirror failback {name} --give-up. If users work on the replica, give driftless mirror failover {name}"
        );
        Err((Exit::Refused, text))
    }

    /// A source that is not mounted is no place to bring anything back to.
    fn refuse_empty(&self) -> Result<(), Failure> {
        if self.how.into_empty {
            return Ok(());
        }
        let mut options = self.options.clone();
        let _connections = connected(self.job, &mut options, &self.reach)?;
        let why = match look_alone(&options) {
            Ok(alone) if !alone.is_empty => return Ok(()),
            Ok(_) => "it is empty".to_owned(),
            Err(error) => words_back(self.job, &error),
        };
        let text = format!(
            "{}: the source {}: cannot fail back: {why}; is its file system mounted? For a new disk, add --into-empty (nothing was changed)",
            self.job.name, self.job.source
        );
        Err((Exit::Refused, text))
    }

    /// Refuses trees below which something is not mounted: of the replica, it would be taken for
    /// deleted; of the source, what is brought back would lie beneath the place.
    fn refuse_unmounted(&self) -> Result<(), Failure> {
        if self.how.forget_mounts {
            return Ok(());
        }
        let refuse = |tree: String, mut options: Options| {
            let _connections = connected(self.job, &mut options, &self.reach)?;
            missing::refuse(self.job, &tree, &options)
        };
        let (source, replica) = (&self.job.source, &self.job.replicas[0]);
        refuse(format!("the replica {replica}"), self.options.clone())?;
        if self.how.into_empty {
            return Ok(());
        }
        // The mirror noted what it met there.
        let forth = options_now(self.job, &self.reach)?;
        refuse(format!("the source {source}"), forth)
    }

    /// Refuses a source of this host to which nothing can be written; a rehearsal says so.
    fn refuse_read_only(&self) -> Result<(), Failure> {
        let source = own_path(self.job, &self.job.source)?.map(Endpoint::from);
        if !source.is_some_and(|source| source.is_read_only_here()) {
            return Ok(());
        }
        let text = format!(
            "{}: the source {}: cannot fail back: it is read-only; make it writable, for example with mount -o remount,rw (nothing was changed)",
            self.job.name, self.job.source
        );
        if self.how.dry_run {
            say::complaint(&text);
            return Ok(());
        }
        Err((Exit::Refused, text))
    }

    /// Nor is one that has nearly nothing of what the replica has: something may stand under the
    /// place where it was mounted.
    fn refuse_unlike(&self, rehearsal: &Rehearsal) -> Result<(), Failure> {
        if self.how.into_empty || !rehearsal.is_unlike() {
            return Ok(());
        }
        let (alike, all) = rehearsal.alike();
        let text = format!(
            "{}: the source {}: cannot fail back: it has only {alike} of the {all} entries of the replica; is its file system mounted? To copy everything nevertheless, add --into-empty (nothing was changed)",
            self.job.name, self.job.source
        );
        Err((Exit::Refused, text))
    }

    fn carry_out(&self, state: &mut MirrorState, told: Back) -> Result<(Back, Exit), Failure> {
        let to = self.loss.role.to.as_deref();
        take_role(state, Role::FailingBack, to, &Saved::default())?;
        if self.how.new_replica {
            self.adopt(state)?;
        }
        let keeper = own_path(self.job, &self.job.replicas[0])?.and_then(|path| of_replica(&path));
        if let Some(keeper) = &keeper {
            // People work on it until the last failback; one that was cut off may have closed it.
            let closed = keeper.set_read_only(self.how.finish);
            closed.map_err(|error| not_done(self.job, &error))?;
        }
        let mut done = Back {
            kept: self.keep()?,
            counts: Counts::default(),
            problems: Vec::new(),
            ..told
        };
        let pass = self.passes(&mut done).inspect_err(|_| {
            // People go on working there. What stays closed, the next failback opens.
            let _opened = keeper.as_ref().map(|keeper| keeper.set_read_only(false));
        })?;
        let is_equal = pass.code == Exit::Equal;
        let is_over = is_equal && self.how.finish;
        let saved = if is_equal {
            equal(state, &pass, is_over)?
        } else {
            Saved::default()
        };
        if let Some(keeper) = keeper.as_ref().filter(|_| self.how.finish && !is_over) {
            let opened = keeper.set_read_only(false);
            opened.map_err(|error| not_done(self.job, &error))?;
        }
        if is_over {
            self.follow(keeper.as_deref())?;
        }
        done.role = if is_over {
            Role::Following
        } else {
            Role::FailedOver
        };
        take_role(state, done.role, to.filter(|_| !is_over), &saved)?;
        Ok((done, pass.code))
    }

    /// Has the replica say that it is the active side no more. It was closed before.
    fn follow(&self, keeper: Option<&dyn Provider>) -> Result<(), Failure> {
        let close = |is_closed| match keeper {
            Some(keeper) => keeper
                .set_read_only(is_closed)
                .map_err(|error| not_done(self.job, &error)),
            None => Ok(()),
        };
        close(false)?;
        let (options, _connections) = self.replica_alone()?;
        declare_active(&options, None).map_err(|error| failed(self.job, &error))?;
        close(true)
    }

    /// Brings back what differs; the last time until nothing differs any more.
    fn passes(&self, done: &mut Back) -> Result<Pass, Failure> {
        let known = self.loss.known();
        loop {
            let began = now();
            let ended = carry_out(&self.options, &self.way(), &known, self.stop);
            let carried = ended.map_err(|error| failed_back(self.job, &error))?;
            done.passes += 1;
            let summary = carried.summary;
            let counts = &summary.counts;
            let has_changed = counts.changed + counts.deleted > 0;
            let pass = Pass {
                code: Exit::of_run(&summary, (&self.options, false), 0),
                began,
                only_on_source: counts.only_on_replica,
            };
            done.counts.add(counts);
            done.counts.changed += carried.changed_before;
            done.problems = as_in_the_job(carried.problems);
            done.end = summary.end;
            if pass.code != Exit::Equal || !has_changed || !self.how.finish {
                return Ok(pass);
            }
            if done.passes >= PASSES_MAX {
                say::complaint(
                    "the replica is still being written to; stop the writers, and repeat the command",
                );
                return Ok(Pass {
                    code: Exit::Changing,
                    ..pass
                });
            }
        }
    }

    /// Makes a snapshot of the source, if its file system has snapshots.
    fn keep(&self) -> Result<Option<String>, Failure> {
        let provider = own_path(self.job, &self.job.source)?.and_then(|path| of_replica(&path));
        keep_aside(self.job, provider.as_deref())
    }
}

/// Swaps the sides of problems: the source of a run the other way round is the job's replica.
fn as_in_the_job(problems: Vec<Problem>) -> Vec<Problem> {
    let turned = |problem: Problem| Problem {
        side: problem.side.other(),
        ..problem
    };
    problems.into_iter().map(turned).collect()
}

/// Returns why a run the other way round failed.
fn failed_back(job: &Job, error: &RunError) -> Failure {
    let why = words_back(job, error);
    (Exit::of_error(error), format!("{}: {why}", job.name))
}

/// Returns what the engine says of a run the other way round, in the words of the job: the tree that
/// it reads is the replica.
fn words_back(job: &Job, error: &RunError) -> String {
    match error {
        RunError::NoReplica(path) => format!("\"{path}\": the source does not exist"),
        RunError::Refused(Refusal::EmptySource) => {
            "the replica is empty and the source is not; is it mounted? nothing was deleted".into()
        }
        RunError::Refused(Refusal::UnreadableSource(cause)) => format!(
            "the replica cannot be read ({cause}) and the source is not empty; nothing was deleted"
        ),
        RunError::Refused(Refusal::Unlike { .. }) => format!(
            "the source {} is not empty, and shares no top-level name with the replica: it looks like another tree; nothing was changed (delete_unlike = true in the job deletes nevertheless)",
            job.source
        ),
        RunError::Refused(Refusal::Lacking { side, path, cause }) => {
            let read = Side::Source;
            let turned = if *side == read.word() {
                read.other()
            } else {
                read
            };
            let lacking = Refusal::Lacking {
                side: turned.word(),
                path: path.clone(),
                cause: cause.clone(),
            };
            for_job(&lacking.to_string())
        }
        RunError::Root(error) => root_words_back(error),
        error => for_job(&error.to_string()),
    }
}

/// Returns why a root cannot be used in a run the other way round: the tree that is missing is the
/// source.
pub(super) fn root_words_back(error: &RootError) -> String {
    let above_source = "open the directory that shall hold the source";
    for_job(&error.to_string()).replace(Act::OpenAbove.words(), above_source)
}

/// Returns what is saved of trees that were equal when the pass began: nothing of what the mirror knew
/// is left to do, and the snapshot that it read last says nothing any more. Entries that the source
/// alone has and keeps are to come to the replica, once that follows.
fn equal(state: &MirrorState, pass: &Pass, is_over: bool) -> Result<Saved, Failure> {
    let known = Loss::of(state).map_err(|error| record::refusal(&error))?;
    let solved = known.problems.into_iter().map(|problem| problem.path);
    let lacks = is_over && pass.only_on_source > 0;
    let saved = match lacks {
        true => all_is_left(pass.began),
        false => Saved {
            equal_until: EqualUntil::At(pass.began),
            cursors: vec![no_snapshot(pass.began)],
            ..Saved::default()
        },
    };
    Ok(Saved {
        clean: known.left,
        solved: solved.collect(),
        ..saved
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::errno;
    use std::path::Path;

    #[test]
    fn missing_parent_is_that_of_the_source() {
        let error = RootError::from_errno(Path::new("/x"), Act::OpenAbove, errno::ENOENT);
        let words = root_words_back(&error);
        assert!(words.contains("hold the source") && !words.contains("replica"));
    }
}
