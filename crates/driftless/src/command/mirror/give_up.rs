//! The end of a failover whose replica is lost: the source is the active side again, and gets
//! nothing back.

use super::Failure;
use super::agree::agree;
use super::alone::{connected, replica_alone};
use super::over::take_role;
use crate::args::FailbackArgs;
use crate::command::{job, record};
use crate::exit::Exit;
use crate::output::mirror as say;
use crate::signals::Signals;
use driftless_engine::{Alone, look_alone};
use driftless_mirror::clock::now;
use driftless_mirror::job::Job;
use driftless_mirror::recovery::Loss;
use driftless_model::{RelPath, Scope};
use driftless_remote::Reach;
use driftless_state::mirror::{Cursor, DirtyRow, EqualUntil, Role, Saved};
use std::time::Duration;

/// Has the source be the active side again. The next mirror fills what stands at the replica's path.
pub fn give_up(
    how: &FailbackArgs,
    (job, loss): (&Job, &Loss),
    reach: &Reach,
    signals: &Signals,
) -> Result<Exit, Failure> {
    refuse_there(job, loss, reach)?;
    let what = format!(
        "{}: the source {} becomes the active side, and nothing is brought back from the replica {}",
        job.name, job.source, job.replicas[0]
    );
    if how.dry_run {
        say::line(&what);
        return Ok(Exit::Equal);
    }
    agree(how.yes, &what, signals)?;
    let mut state = job::state(job)?;
    state.know(None).map_err(|error| record::refusal(&error))?;
    take_role(&mut state, Role::Following, None, &all_is_left(now()))?;
    say::line(&format!(
        "{}: the source is the active side again; nothing was brought back",
        job.name
    ));
    Ok(Exit::Equal)
}

/// Refuses to give up a replica that is there: people's work is on it.
fn refuse_there(job: &Job, loss: &Loss, reach: &Reach) -> Result<(), Failure> {
    let mut options = replica_alone(job);
    let Ok(_connections) = connected(job, &mut options, reach) else {
        return Ok(());
    };
    let is_active = |alone: Alone| alone.active.is_some() && alone.identity == loss.replica;
    if !look_alone(&options).is_ok_and(is_active) {
        return Ok(());
    }
    let (name, replica) = (&job.name, &job.replicas[0]);
    let why = format!(
        "{name}: {replica}: cannot give it up: it exists, and is the active side; to copy its changes back, give driftless mirror failback {name} --finish (nothing was changed)"
    );
    Err((Exit::Refused, why))
}

/// Returns what is saved of trees of which nothing is known to be equal.
pub fn all_is_left(moment: Duration) -> Saved {
    let all = DirtyRow {
        path: RelPath::root(),
        scope: Scope::Subtree,
        since: moment,
        due: moment,
        attempts: 0,
        is_long: true,
        is_doubtful: false,
    };
    Saved {
        dirty: vec![all],
        equal_until: EqualUntil::Unknown,
        cursors: vec![no_snapshot(moment)],
        ..Saved::default()
    }
}

/// Returns the position of a mirror that has read no snapshot.
pub fn no_snapshot(moment: Duration) -> Cursor {
    Cursor {
        detector: "snapshots".into(),
        position: Vec::new(),
        at: moment,
    }
}
