//! How a coordinator begins: anew, or with what an earlier life of its run has left.

use super::{BATCHES, Coordinator, Opened, WAIT};
use crate::clock::Clock;
use crate::monitor::Monitor;
use crate::options::Options;
use crate::shared::batch::{Batch, Piece};
use crate::shared::brief::Brief;
use crate::shared::encoding::encoded;
use crate::shared::exchange::PartOfOutcome;
use crate::shared::life::{Verdict, ground_of, verdict};
use crate::shared::names::{alike_chosen, note_alike};
use crate::shared::noted::{add_batches, put_unfinished};
use crate::shared::plan::{chosen, pack};
use crate::shared::unfinished::{Listed, Unfinished};
use crate::shared::work_off::{Ends, Known, work_off};
use crate::sync::ending::End;
use crate::tally::{Counts, WHOLE_WALK};
use crate::trees::changes::Changes;
use crate::trees::error::RunError;
use driftless_model::{RelPath, Stamp};
use driftless_state::{Ground, Life, Record, Stage};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long movers are listened to before batches of an interrupted run are handed out again; they
/// say that they are alive each second.
const LISTEN: Duration = Duration::from_secs(3);

/// What is known when a life of the run begins.
pub(super) struct Birth {
    pub changes: Arc<Changes>,
    pub life: Life,
    /// What the process has counted before it dropped its own record.
    pub counted: Counts,
}

impl Birth {
    /// Decides what becomes of the record, and marks the replica: nobody knows which mover will
    /// make the first change, so all that is due before it is done now.
    ///
    /// # Errors
    /// The replica cannot be used, or the record.
    pub fn of(
        options: &Options,
        opened: &Opened,
        monitor: &dyn Monitor,
        (record, clock): (&mut Record, &dyn Clock),
    ) -> Result<Birth, RunError> {
        let (source, Some(replica)) = &opened.roots else {
            return Err(RunError::NoReplica(options.replica.to_string()));
        };
        let mut changes = Changes::of(
            options,
            replica,
            opened.single.as_ref().map(|(_, renamed)| &**renamed),
            &opened.locks,
        )?;
        let ground = ground_of(options, source, replica, changes.found_mark());
        let life = Life {
            process: options.run,
            ground,
            seconds: clock.seconds(),
            is_second_hand: false,
            is_doubtful: false,
        };
        let (life, counted) = take_up(record, life, monitor)?;
        // All lives of a run are one run to the mark: what movers still have in hand is wanted by
        // the next one, too.
        changes.set_run(record.run().into());
        changes.set_movers(record.run());
        // Why it is refused is what counts.
        let _refusal = changes.begin(clock);
        changes.outcome()?;
        changes.tell(monitor);
        let life = Life {
            ground: Ground {
                mark: changes.own_mark(),
                ..life.ground
            },
            ..life
        };
        Ok(Birth {
            changes: Arc::new(changes),
            life,
            counted,
        })
    }

    /// Has movers compare the content of what may not be durable. What an earlier life has left
    /// open is more in doubt than what it has settled: returns since when that is, which counts for
    /// the look at all.
    pub fn tell_suspects(&self, brief: &mut Brief) -> Option<Stamp> {
        let (of_all, settled) = (
            self.changes.suspect_since_of_all(),
            self.changes.suspect_since(),
        );
        let settled = if self.life.is_doubtful {
            of_all
        } else {
            settled
        };
        brief.set_suspect_since(if self.life.is_second_hand {
            of_all
        } else {
            settled
        });
        settled
    }
}

/// Goes on with the record in this life, or empties it; returns what is known of the life then, and
/// what its process has counted so far.
fn take_up(
    record: &mut Record,
    life: Life,
    monitor: &dyn Monitor,
) -> Result<(Life, Counts), RunError> {
    // One that was killed before it had made the first batch has left nothing to go on with.
    let Some(stage) = record.stage()? else {
        return Ok((life, Counts::default()));
    };
    let Some(found) = record.life()? else {
        return Err(record.damaged("a run without a life").into());
    };
    match verdict(&found, &life) {
        Verdict::Own => Ok((
            Life {
                is_second_hand: found.is_second_hand,
                is_doubtful: found.is_doubtful,
                ..life
            },
            Counts::default(),
        )),
        Verdict::Another(words) => {
            monitor.note(&words);
            let is_doubtful = found.is_doubtful || stage == Stage::End;
            Ok((
                Life {
                    is_second_hand: true,
                    is_doubtful,
                    ..life
                },
                Counts::default(),
            ))
        }
        Verdict::Dropped(words) => {
            monitor.note(&words);
            let is_own = found.process == life.process;
            let counted = if is_own {
                total_of(record)?.before_another_look()
            } else {
                Counts::default()
            };
            record.begin_anew()?;
            Ok((life, counted))
        }
    }
}

fn total_of(record: &Record) -> Result<Counts, RunError> {
    let counts = record.counts()?;
    Ok(Counts::of_named(
        counts.iter().map(|(name, value)| (&**name, *value)),
    ))
}

impl Coordinator<'_> {
    pub(super) fn begin(&mut self) -> Result<(), RunError> {
        let is_resumed = self.record.stage()?.is_some();
        self.clear(!is_resumed)?;
        if !is_resumed {
            return self.walk_all();
        }
        self.note_life()?;
        self.go_on()
    }

    /// Hands out everything; of what was noted before, nothing counts any more but what was done.
    fn walk_all(&mut self) -> Result<(), RunError> {
        let (pieces, passed) = self.first_pieces();
        let batches = pack(
            pieces,
            self.wanted(),
            &Batch {
                walk: WHOLE_WALK,
                ..Batch::default()
            },
        );
        let alike = self
            .options
            .selection
            .as_ref()
            .map_or_else(Vec::new, |chosen| {
                alike_chosen(chosen, &self.options.policy.filter)
            });
        let (source, replica) = (
            self.options.source.to_string(),
            self.options.replica.to_string(),
        );
        let (life, total) = (&self.life, self.total);
        self.record.transaction(|transaction| {
            transaction.begin_walk(&source, &replica, life.seconds)?;
            transaction.set_life(life)?;
            transaction.set_counts(total.named())?;
            add_batches(transaction, &batches)?;
            note_alike(transaction, &alike)?;
            passed
                .into_iter()
                .try_for_each(|(dir, left)| put_unfinished(transaction, dir, left))
        })?;
        match &batches[..] {
            [batch] if batch.pieces == [Piece::Root] && self.exchange.idle() > 1 => {
                self.divide_root(batch)
            }
            _ => self.send_open(0),
        }
    }

    /// What an earlier life has settled saves copying. Before the end, all is looked at in this
    /// one.
    pub(super) fn look_again(&mut self) -> Result<(), RunError> {
        self.wait_for_late_movers()?;
        self.monitor.look_again();
        self.total = self.total.before_another_look();
        self.life.is_second_hand = false;
        self.brief.set_suspect_since(self.settled_since);
        self.walk_all()
    }

    /// Notes that the run lives.
    pub(super) fn note_life(&mut self) -> Result<(), RunError> {
        self.life.seconds = self.clock.seconds();
        self.noted = self.clock.now();
        Ok(self
            .record
            .transaction(|transaction| transaction.set_life(&self.life))?)
    }

    /// Notes that from now on the coordinator itself changes the replica.
    pub(super) fn note_ending(&mut self) -> Result<(), RunError> {
        Ok(self
            .record
            .transaction(|transaction| transaction.set_stage(Stage::End))?)
    }

    /// Looks into the root and leaves everything in it to movers, so that all of them have work at
    /// once.
    fn divide_root(&mut self, batch: &Batch) -> Result<(), RunError> {
        let Some((id, _)) = self.record.batches(0, 1)?.pop() else {
            return Ok(());
        };
        let at_once = AtomicBool::new(true);
        match work_off(
            (self.options, &mut Known::default()),
            (self.brief, batch),
            &|_| {},
            Ends {
                stop: self.stop,
                yields: &at_once,
                leaves: &at_once,
                lease: None,
            },
        ) {
            Ok((outcome, End::Complete | End::Lost)) => {
                let outcome = encoded(&outcome);
                self.note(&PartOfOutcome {
                    run: self.record.run(),
                    id,
                    attempt: 0,
                    number: 0,
                    last: true,
                    mover: String::new(),
                    outcome,
                })
            }
            // Whatever it was, the mover that takes the batch meets it again, and can say so.
            Ok(_) | Err(_) => self.send_open(0),
        }
    }

    /// Goes on with a run whose coordinator was killed: batches that movers have in hand are not
    /// handed out again.
    fn go_on(&mut self) -> Result<(), RunError> {
        self.total = total_of(self.record)?;
        let mut after = 0;
        loop {
            let batches = self.record.batches(after, BATCHES)?;
            let Some((last, _)) = batches.last() else {
                break;
            };
            after = *last;
            let now = self.clock.now();
            self.sent.extend(batches.iter().map(|(id, _)| (*id, now)));
        }
        // What was said to the coordinator that was killed proves nothing of now.
        self.listen(|_, heard| heard)?;
        self.alive.clear();
        self.listen(|coordinator, _| !coordinator.sent.is_empty())?;
        let silent: Vec<u64> = self
            .sent
            .keys()
            .filter(|id| !self.alive.contains_key(id))
            .copied()
            .collect();
        silent
            .into_iter()
            .try_for_each(|id| self.hand_out_again(id))
    }

    /// Listens to movers for a while, as long as `goes_on` says so, which is told whether one has
    /// said anything.
    fn listen(&mut self, goes_on: impl Fn(&Self, bool) -> bool) -> Result<(), RunError> {
        let began = self.clock.now();
        while self.clock.now() - began < LISTEN && !self.stop.load(Relaxed) {
            let word = self.exchange.next(WAIT)?;
            let heard = word.is_some();
            word.map_or(Ok(()), |word| self.hear(word))?;
            if !goes_on(self, heard) {
                break;
            }
        }
        Ok(())
    }

    /// What is looked at, and the directories on the way there, which nobody else finishes.
    fn first_pieces(&self) -> (Vec<(u8, Piece)>, Vec<(RelPath, Unfinished)>) {
        if let Some((name, _)) = &self.single {
            return (
                vec![(0, Piece::Entries(RelPath::root(), vec![(&**name).into()]))],
                Vec::new(),
            );
        }
        match &self.options.selection {
            Some(selection) if !selection.whole => {
                let (pieces, passed) = chosen(RelPath::root(), selection);
                let left = Unfinished {
                    listed: Listed::InPart,
                    made: false,
                    replaced: false,
                    unlisted: false,
                };
                (
                    pieces.into_iter().map(|piece| (0, piece)).collect(),
                    passed.into_iter().map(|dir| (dir, left)).collect(),
                )
            }
            _ => (vec![(0, Piece::Root)], Vec::new()),
        }
    }
}
