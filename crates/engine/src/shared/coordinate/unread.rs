//! Paths of the source that a mover could not read and the coordinator can.
//!
//! Such a path is no problem of the tree: a disk, a mount or a connection of that host is at fault.
//! The batch is carried out again, on another host if there is a way to choose one, and all that
//! was changed on the replica in this run is compared there by its content, since what that host
//! did read may be as wrong.

use super::Coordinator;
use super::batches::outcomes;
use crate::shared::exchange::PartOfOutcome;
use crate::trees::error::RunError;
use crate::trees::marks::earliest;
use crate::view::Views;
use driftless_model::{Act, Problem, Side, escape};
use driftless_reconcile::EVER;
use std::collections::{HashMap, HashSet};

/// Outcomes of one batch with unread paths; the last one is believed.
const UNREAD_MAX: u32 = 3;
/// Paths of an outcome that the coordinator tries to read at most.
const PATHS_MAX: usize = 64;

/// Outcomes with paths that could not be read.
#[derive(Debug, Default)]
pub(super) struct UnreadOutcomes {
    /// Number of such outcomes of each batch.
    batches: HashMap<u64, u32>,
    /// Movers that were named.
    named: HashSet<String>,
}

impl Coordinator<'_> {
    /// Has a batch carried out elsewhere if its mover could not read what the coordinator can.
    /// Returns whether that is so: then the outcome does not count.
    pub(super) fn does_elsewhere(&mut self, part: &PartOfOutcome) -> Result<bool, RunError> {
        let Some(problem) = self.readable(part)? else {
            return Ok(false);
        };
        let count = self.unread.batches.entry(part.id).or_default();
        *count += 1;
        if *count >= UNREAD_MAX {
            return Ok(false);
        }
        let (path, act) = (
            escape(problem.path.as_bytes()),
            problem.act.on(problem.side),
        );
        let why = format!(
            "{}: \"{path}\": cannot {act}: {}; the coordinator can, so another host does this part; check the source on that host",
            part.mover, problem.cause
        );
        if self.unread.named.insert(part.mover.clone()) {
            self.monitor.note(&why);
        }
        self.suspect_content();
        self.alive.remove(&part.id);
        self.hand_out_elsewhere(part.id, &why)?;
        Ok(true)
    }

    /// Returns a problem of an outcome at whose path the coordinator can read the source.
    fn readable(&mut self, part: &PartOfOutcome) -> Result<Option<Problem>, RunError> {
        let outcomes = match part.number {
            0 => part.read().map(|outcome| vec![outcome]),
            _ => self
                .record
                .transaction(|transaction| outcomes(transaction, part))?,
        };
        let problems = outcomes
            .into_iter()
            .flatten()
            .flat_map(|outcome| outcome.problems);
        let mut own = Views::of(&self.roots.0, &self.options.policy.keep);
        let unread = problems.filter(is_unread).take(PATHS_MAX);
        Ok(unread
            .into_iter()
            .find(|problem| own.can_read(&problem.path, problem.act)))
    }

    /// Hands a batch out again whose content is in doubt.
    fn hand_out_elsewhere(&mut self, id: u64, why: &str) -> Result<(), RunError> {
        let since = self.changes.changed_since().unwrap_or(EVER);
        let mut brief = self.brief.clone();
        brief.set_suspect_since(earliest(brief.suspect_since(), Some(since)));
        let Some(batch) = self.open_batch(id)? else {
            return Ok(());
        };
        self.exchange
            .send_elsewhere(&brief, (self.record.run(), id), &batch, why)?;
        self.sent.insert(id, self.clock.now());
        Ok(())
    }
}

/// Returns whether a mover could not read an entry of the source.
fn is_unread(problem: &Problem) -> bool {
    let is_read = matches!(
        problem.act,
        Act::Open
            | Act::OpenDirectory
            | Act::ReopenDirectory
            | Act::LookAt
            | Act::List
            | Act::Enter
            | Act::Read
            | Act::ReadAll
            | Act::ReadXattrs
            | Act::ReadLink
            | Act::FindHoles
    );
    problem.side == Side::Source && is_read
}
