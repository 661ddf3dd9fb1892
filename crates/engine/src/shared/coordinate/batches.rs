//! Batches on their way: handed out, heard of, settled by the first outcome that comes, handed out
//! again where nobody works on them, and given up where nobody can.

use super::{BATCHES, Coordinator, SILENCE};
use crate::monitor::Monitor;
use crate::shared::batch::{Batch, Outcome, Piece};
use crate::shared::encoding::decoded;
use crate::shared::exchange::{PartOfOutcome, Word};
use crate::shared::names::alike_in_batch;
use crate::shared::noted::{Noted, add_batches, note_outcome, settle_pieces};
use crate::shared::plan::pack;
use crate::tally::Counts;
use crate::trees::error::RunError;
use crate::trees::mounts::may_be_mounted;
use driftless_model::{Act, Class, Problem, RelPath, Side, escape_text};
use driftless_state::Transaction;
use std::collections::BTreeSet;
use std::time::Instant;

impl Coordinator<'_> {
    /// Hands out all open batches with a number above `after`.
    pub(super) fn send_open(&mut self, after: u64) -> Result<(), RunError> {
        let mut after = after;
        loop {
            let batches = self.record.batches(after, BATCHES)?;
            let Some((last, _)) = batches.last() else {
                return Ok(());
            };
            after = *last;
            for (id, body) in batches {
                self.hand_out(id, &body)?;
            }
        }
    }

    /// Returns the open batch of this number.
    pub(super) fn open_batch(&mut self, id: u64) -> Result<Option<Batch>, RunError> {
        let body = self.record.batch(id)?;
        body.map(|body| self.batch_of(id, &body)).transpose()
    }

    fn batch_of(&self, id: u64, body: &[u8]) -> Result<Batch, RunError> {
        // Passed over, it would stay open for ever.
        let mut batch: Batch = decoded(body).ok_or_else(|| self.record.damaged(&unreadable(id)))?;
        batch.alike = alike_in_batch(self.record, &batch)?;
        Ok(batch)
    }

    fn hand_out(&mut self, id: u64, body: &[u8]) -> Result<(), RunError> {
        let batch = self.batch_of(id, body)?;
        self.sample();
        self.exchange
            .send(self.brief, self.record.run(), id, &batch)?;
        self.sent.insert(id, self.clock.now());
        Ok(())
    }

    pub(super) fn hand_out_again(&mut self, id: u64) -> Result<(), RunError> {
        let body = self.record.batch(id)?;
        body.map_or(Ok(()), |body| self.hand_out(id, &body))
    }

    pub(super) fn hear(&mut self, word: Word) -> Result<(), RunError> {
        match word {
            Word::Alive(sign) => {
                self.standing.note(&sign, self.clock.now());
                self.movers.insert(sign.mover, self.clock.now());
                if sign.run == self.record.run() && self.sent.contains_key(&sign.id) {
                    self.alive.insert(sign.id, (self.clock.now(), sign.counts));
                }
                Ok(())
            }
            Word::Part(part, ticket) => self.weigh(part, ticket),
        }
    }

    /// Notes a part of what came of a batch, and if it is the last, all of it.
    pub(super) fn note(&mut self, part: &PartOfOutcome) -> Result<(), RunError> {
        let (wanted, total, monitor, options) =
            (self.wanted(), self.total, self.monitor, self.options);
        let source = &self.roots.0;
        // Later runs of this host would miss what is mounted on the host of a mover alone.
        let is_here = |path: &RelPath| may_be_mounted(options, source, path);
        let said = self.record.transaction(|transaction| {
            let said = note_part(transaction, part, (wanted, total), (monitor, &is_here))?;
            if let Said::All(settled) = &said {
                options.note_mounts(&settled.mounts);
            }
            Ok(said)
        })?;
        match said {
            Said::InPart => Ok(()),
            Said::WithGaps => self.disbelieve(
                part,
                "parts of what it says came of a batch are missing, or cannot be read",
            ),
            Said::All(settled) => {
                self.total = settled.total;
                self.lost |= settled.is_lost;
                self.alive.remove(&part.id);
                self.sent.remove(&part.id);
                let newest = self
                    .sent
                    .keys()
                    .next_back()
                    .copied()
                    .unwrap_or(0)
                    .max(part.id);
                self.send_open(newest)
            }
        }
    }

    /// Looks for batches that nobody could work off, and for those that nobody works on.
    pub(super) fn look_after(&mut self) -> Result<(), RunError> {
        for (id, reason) in self.exchange.parked(self.record.run())? {
            self.give_up(id, &reason)?;
        }
        let silent = |at: &Instant| self.since(*at) > SILENCE;
        let silent: Vec<u64> = self
            .sent
            .iter()
            .filter(|(id, at)| {
                silent(at) && self.alive.get(id).is_none_or(|(heard, _)| silent(heard))
            })
            .map(|(id, _)| *id)
            .collect();
        if silent.is_empty() || self.exchange.waits()? {
            return Ok(());
        }
        silent
            .into_iter()
            .try_for_each(|id| self.hand_out_again(id))
    }

    /// A batch that nobody could work off: what it was about is not equal.
    pub(super) fn give_up(&mut self, id: u64, reason: &str) -> Result<(), RunError> {
        let total = self.total;
        let given_up = self
            .record
            .transaction(|transaction| note_given_up(transaction, id, reason, total))?;
        let Some((total, problems)) = given_up else {
            return Ok(());
        };
        self.total = total;
        self.sent.remove(&id);
        self.alive.remove(&id);
        problems
            .iter()
            .for_each(|problem| self.monitor.problem(problem));
        self.send_open(id)
    }
}

/// How much of what came of a batch is known.
enum Said {
    /// The last word has not come, or the batch was settled before.
    InPart,
    /// The last word has come, and something before it is missing: what the mover left to others
    /// would be lost.
    WithGaps,
    /// All of it: the batch is settled.
    All(Box<Settled>),
}

/// What follows for the coordinator from a batch that was settled.
struct Settled {
    total: Counts,
    /// Going on would be wrong.
    is_lost: bool,
    mounts: BTreeSet<RelPath>,
}

/// Notes a part of what came of a batch, and if it is the last, settles the batch: what is left of
/// it becomes about so many batches as are wanted, and what it did is added to the total. Mounts
/// are noted that `is_here` confirms.
fn note_part(
    transaction: &Transaction<'_>,
    part: &PartOfOutcome,
    (wanted, before): (usize, Counts),
    (monitor, is_here): (&dyn Monitor, &dyn Fn(&RelPath) -> bool),
) -> Noted<Said> {
    if !transaction.is_open(part.id)? {
        return Ok(Said::InPart);
    }
    if !part.last {
        transaction.add_part(
            (part.id, part.attempt, part.number),
            &part.mover,
            &part.outcome,
        )?;
        return Ok(Said::InPart);
    }
    let Some(outcomes) = outcomes(transaction, part)? else {
        return Ok(Said::WithGaps);
    };
    let Some(body) = transaction.settle(part.id)? else {
        return Ok(Said::InPart);
    };
    let batch: Batch = decoded(&body).ok_or_else(|| transaction.damaged(&unreadable(part.id)))?;
    let mut settled = Settled {
        total: before,
        is_lost: false,
        mounts: BTreeSet::new(),
    };
    let mut rest = Vec::new();
    for mut outcome in outcomes {
        outcome.mounts.retain(is_here);
        settled.is_lost |= outcome
            .problems
            .iter()
            .any(|problem| problem.class == Class::Stop);
        settled.total.add(&outcome.counts);
        settled.mounts.extend(outcome.mounts.iter().cloned());
        note_outcome(transaction, outcome, monitor, &mut rest)?;
    }
    settle_pieces(transaction, &batch, &mut rest)?;
    let walk = batch
        .walk
        .saturating_sub(settled.total.walked - before.walked);
    add_batches(
        transaction,
        &pack(
            rest,
            wanted,
            &Batch {
                pieces: Vec::new(),
                walk,
                ..batch
            },
        ),
    )?;
    transaction.set_counts(settled.total.named())?;
    Ok(Said::All(Box::new(settled)))
}

/// All that an attempt said of a batch, of which this is the last part; nothing if any part is
/// missing, or cannot be read.
pub(super) fn outcomes(
    transaction: &Transaction<'_>,
    last: &PartOfOutcome,
) -> Noted<Option<Vec<Outcome>>> {
    let parts = transaction.parts(last.id, last.attempt)?;
    let is_whole = parts.iter().map(|(number, _)| *number).eq(0..last.number);
    let outcomes = parts
        .iter()
        .map(|(_, part)| decoded(part))
        .chain([last.read()]);
    Ok(if is_whole { outcomes.collect() } else { None })
}

/// Settles a batch that nobody could work off, if it is open: each path that it is about is a
/// problem. Returns the new total.
fn note_given_up(
    transaction: &Transaction<'_>,
    id: u64,
    reason: &str,
    mut total: Counts,
) -> Noted<Option<(Counts, Vec<Problem>)>> {
    let Some(body) = transaction.settle(id)? else {
        return Ok(None);
    };
    let batch: Batch = decoded(&body).ok_or_else(|| transaction.damaged(&unreadable(id)))?;
    let mut rest = Vec::new();
    settle_pieces(transaction, &batch, &mut rest)?;
    add_batches(
        transaction,
        &pack(
            rest,
            1,
            &Batch {
                pieces: Vec::new(),
                ..batch.clone()
            },
        ),
    )?;
    let problem = |path| Problem {
        path,
        side: Side::Replica,
        act: Act::MakeEqual,
        cause: escape_text(reason),
        class: Class::Skip,
    };
    let problems: Vec<Problem> = paths_of(&batch).into_iter().map(problem).collect();
    let count = problems.len() as u64;
    (total.seen, total.failed, total.problems_skip) = (
        total.seen + count,
        total.failed + count,
        total.problems_skip + count,
    );
    problems
        .iter()
        .try_for_each(|problem| transaction.add_problem(problem))?;
    transaction.set_counts(total.named())?;
    Ok(Some((total, problems)))
}

fn unreadable(id: u64) -> String {
    format!("batch {id} cannot be read")
}

/// The paths that a batch is about, as problems name them.
fn paths_of(batch: &Batch) -> Vec<RelPath> {
    let mut paths = Vec::new();
    for piece in &batch.pieces {
        match piece {
            Piece::Root => paths.push(RelPath::root()),
            Piece::Entries(dir, names) => {
                paths.extend(names.iter().map(|name| dir.join(name.as_bytes())))
            }
            Piece::Rest(path, ..) => paths.push(path.clone()),
            // The mover that finishes the file copies what is missing.
            Piece::Bytes(..) => {}
        }
    }
    paths
}
