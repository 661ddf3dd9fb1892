//! What is submitted to another host and not waited for, and what follows from its completion.
//!
//! Over a connection, nobody waits for the making of a small file, for its content, or for the end
//! of a directory: the operation is submitted, its directory has one more piece of work pending,
//! and a listener goes on with it when it is complete. The rare cases (hard links, large files,
//! what changes meanwhile) are called for and waited for, as on this machine.

use crate::sync::entry::{Intent, Met, Verdict};
use crate::sync::pending::{PendingEntry, PendingOp};
use crate::sync::run::Run;
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::tally::add;
use driftless_model::{Entry, Fault, Meta};
use driftless_mover::{Moved, Opened, Spot, Trouble, kind_changed};
use driftless_tree::{Attributes, Completion, Known, NewEntry, Op, OpMut, WHOLE_BYTES_MAX, Whole};
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Listeners for each host.
pub const LISTENERS: usize = 4;

/// Between two looks at whether the work is over.
const LISTEN: Duration = Duration::from_millis(10);

impl Run<'_> {
    /// Has `submit` submit an operation by its number.
    fn submit(&self, op: PendingOp, submit: impl FnOnce(u64)) {
        let token = self.pending.next.fetch_add(1, Relaxed);
        self.pending.open.lock().insert(token, op);
        self.queue.hold();
        self.pending.submitting.fetch_add(1, Relaxed);
        submit(token);
        self.pending.submitting.fetch_sub(1, Relaxed);
    }

    /// How many threads wait to submit, since too much is under way, or are about to.
    pub fn submitting(&self) -> usize {
        self.pending.submitting.load(Relaxed)
    }

    /// How many listeners there are.
    pub fn listeners(&self) -> usize {
        LISTENERS * self.hosts().count()
    }

    /// The other machines that the trees are on.
    pub fn hosts(&self) -> impl Iterator<Item = &Arc<dyn driftless_tree::Host>> {
        [&self.options.source.host, &self.options.replica.host]
            .into_iter()
            .flatten()
    }

    /// Why a connection is lost, if one is.
    pub fn cut_off(&self) -> Option<String> {
        self.options
            .lost_as(self.was_told_cut_off())
            .map(|loss| loss.why)
    }

    /// Goes on with what is complete, as listener number `index`, until the work is over.
    pub fn listen(&self, index: usize) {
        let host = self
            .hosts()
            .nth(index / LISTENERS)
            .expect("there are listeners for each host");
        self.with_worker(|worker| {
            while !self.queue.is_over() {
                for (token, answer) in host.completions(LISTEN) {
                    let op = self.pending.open.lock().remove(&token);
                    worker.answered(op.expect("an operation is completed once"), answer);
                    self.queue.done();
                }
            }
        });
    }
}

impl Worker<'_> {
    /// Whether making this entry can be submitted.
    fn may_submit(&self, met: &Met<'_>) -> bool {
        !met.leads
            && met
                .visit
                .replica
                .as_ref()
                .is_some_and(|replica| replica.takes_submissions())
    }

    /// Submits the making of a small file, if that can be; says whether it was.
    pub fn submit_file(
        &mut self,
        met: &Met<'_>,
        opened: &Opened,
        intent: &Intent,
    ) -> Result<bool, Trouble> {
        if !self.may_submit(met) || opened.meta.size > WHOLE_BYTES_MAX || opened.young {
            return Ok(false);
        }
        self.run.pace_bytes(opened.meta.size);
        let Some(whole) = Whole::read(&*opened.file, &opened.meta, &self.mover.terms.rules.keep)?
        else {
            return Ok(false);
        };
        let bytes = whole
            .extents
            .iter()
            .map(|extent| extent.end - extent.start)
            .sum();
        let entry = Entry {
            meta: whole.meta,
            xattrs: whole.xattrs.clone(),
        };
        self.submit_make(met, (entry, Some(whole), None), intent, bytes);
        Ok(true)
    }

    /// Submits the making of something that is no regular file, if that can be; says whether it
    /// was.
    pub fn submit_special(
        &mut self,
        met: &Met<'_>,
        source: &Entry,
        target: Option<&CStr>,
        intent: &Intent,
    ) -> bool {
        let may = self.may_submit(met);
        if may {
            self.submit_make(
                met,
                (source.clone(), None, target.map(CStr::to_owned)),
                intent,
                0,
            );
        }
        may
    }

    fn submit_make(
        &mut self,
        met: &Met<'_>,
        (entry, content, target): Inside,
        intent: &Intent,
        bytes: u64,
    ) {
        let (visit, terms) = (met.visit, self.mover.terms);
        self.note_made(visit, met.name, entry.meta.unkept | entry.xattrs.unkept);
        let is_batch = self.run.part.is_batch();
        let moved = Moved {
            bytes,
            source: is_batch.then(|| Box::new(entry.clone())),
            ..Moved::default()
        };
        let spot = visit.touched_spot(met.name);
        let (name, private) = (spot.name.into(), spot.private);
        let (room, stood) = (intent.room, intent.stood);
        let (keep, sync, verify) = (terms.rules.keep, terms.sync_each, terms.verify);
        let new = NewEntry {
            name,
            entry,
            content,
            target,
            keep,
            private,
            room,
            stood,
            sync,
            verify,
        };
        visit.more();
        let replica = visit
            .replica
            .as_ref()
            .expect("only dry runs have none, and they make nothing");
        let op = PendingOp::Make(PendingEntry::of(met), intent.clone(), moved);
        self.run.submit(op, |token| {
            replica.submit_change(token, OpMut::Make(Box::new(new)))
        });
    }

    /// Submits the reading of a file that was not looked at, if that can be; says whether it was.
    pub fn submit_fetch_new(&mut self, visit: &Arc<Visit>, name: &CStr, weight: u64) -> bool {
        let may = visit.source.takes_submissions();
        if may {
            self.submit_fetch(
                PendingEntry {
                    visit: visit.clone(),
                    name: name.into(),
                    weight,
                },
                None,
            );
        }
        may
    }

    /// Submits the reading of a file that is to be made, if that can be; says whether it was.
    pub fn submit_fetch_known(&mut self, met: &Met<'_>, intent: &Intent) -> bool {
        let may =
            !met.leads && met.meta.size <= WHOLE_BYTES_MAX && met.visit.source.takes_submissions();
        if may {
            self.submit_fetch(PendingEntry::of(met), Some((*met.meta, intent.clone())));
        }
        may
    }

    fn submit_fetch(&mut self, place: PendingEntry, known: Option<(Meta, Intent)>) {
        place.visit.more();
        let (source, name) = (place.visit.source.clone(), place.name.clone());
        let fetch = Op::Fetch(name, self.mover.terms.rules.keep);
        self.run.submit(PendingOp::Fetch(place, known), |token| {
            source.submit(token, fetch)
        });
    }

    /// Submits another look at a directory's source, if that can be; says whether it was.
    pub fn submit_look_again(&mut self, visit: &Arc<Visit>) -> bool {
        let may = visit.source.takes_submissions();
        if may {
            self.run
                .submit(PendingOp::LookAgain(visit.clone()), |token| {
                    visit.source.submit(token, Op::Meta)
                });
        }
        may
    }

    /// Submits the attributes of a replica's directory, if that can be; says whether it was.
    pub fn submit_attributes(
        &mut self,
        visit: &Arc<Visit>,
        known: Known,
        attributes: &Attributes,
        intent: &Intent,
    ) -> bool {
        let Some(replica) = visit
            .replica
            .as_ref()
            .filter(|replica| replica.takes_submissions())
        else {
            return false;
        };
        let change = OpMut::SetOwn(known, Box::new(attributes.clone()));
        self.run
            .submit(PendingOp::SetOwn(visit.clone(), intent.clone()), |token| {
                replica.submit_change(token, change)
            });
        true
    }

    fn answered(&mut self, op: PendingOp, answer: Completion) {
        match (op, answer) {
            (PendingOp::Make(place, intent, moved), answer) => {
                self.made(&place, intent, moved, answer)
            }
            (PendingOp::Fetch(place, known), Completion::Fetched(fetched)) => {
                self.fetched(&place, known, fetched)
            }
            (PendingOp::LookAgain(visit), Completion::Meta(now)) => self.looked_again(&visit, now),
            (PendingOp::SetOwn(visit, intent), Completion::OwnSet(faults)) => {
                self.account_dir(&visit, intent, faults);
                self.ascend(&visit);
            }
            _ => unreachable!("an operation completes in its own way"),
        }
    }

    fn made(&mut self, place: &PendingEntry, intent: Intent, moved: Moved, answer: Completion) {
        let done = match answer {
            Completion::Made(done) => done
                .map(|faults| Moved { faults, ..moved })
                .map_err(Trouble::from),
            Completion::Lost(fault) => Err(Trouble::Lost(fault)),
            Completion::Stuck(removed) => Err(Trouble::Stuck(removed)),
            _ => self.make_again(place, &intent),
        };
        self.conclude(
            &place.visit,
            &place.name,
            place.weight,
            done.map(|moved| Verdict::Changed(intent, moved)),
        );
        self.less(&place.visit);
    }

    /// What was written is not what was read back: it is made again while this thread waits.
    fn make_again(&mut self, place: &PendingEntry, intent: &Intent) -> Result<Moved, Trouble> {
        let spot = Spot {
            room: intent.room,
            stood: intent.stood,
            ..place.visit.touched_spot(&place.name)
        };
        let opened = self.mover.open(&spot)?;
        let moved = self.mover.copy_small(&spot, opened)?;
        Ok(Moved {
            mismatches: moved.mismatches + 1,
            ..moved
        })
    }

    fn fetched(
        &mut self,
        place: &PendingEntry,
        known: Option<(Meta, Intent)>,
        fetched: Result<Option<Whole>, Fault>,
    ) {
        let PendingEntry {
            visit,
            name,
            weight,
        } = place;
        let opened = match fetched {
            Ok(Some(whole)) => Ok(Opened {
                meta: whole.meta,
                file: Arc::new(whole),
                young: false,
            }),
            // All files of a directory are asked for at once, and what is too large to come along
            // would all be copied here.
            Ok(None) if self.run.yields() => {
                self.give_back(visit, name, self.run.part.class());
                return self.less(visit);
            }
            // Too large, or it did not come to rest: the long way.
            Ok(None) => visit.spot(name).open(),
            Err(fault) => Err(kind_changed(fault)),
        };
        let done = opened.and_then(|opened| match known {
            None => self.new_opened(visit, name, *weight, opened),
            Some((meta, intent)) => self.make_opened(
                Met {
                    visit,
                    name,
                    meta: &meta,
                    leads: false,
                    whole: None,
                    weight: *weight,
                },
                opened,
                None,
                intent,
            ),
        });
        self.conclude(visit, name, *weight, done);
        self.less(visit);
    }

    fn looked_again(&mut self, visit: &Arc<Visit>, now: Result<Meta, Fault>) {
        if self.finish_now(visit, now) {
            self.ascend(visit);
        }
    }

    /// Accounts for an entry, if that is due.
    pub fn conclude(
        &mut self,
        visit: &Arc<Visit>,
        name: &CStr,
        weight: u64,
        done: Result<Verdict, Trouble>,
    ) {
        match done {
            Ok(Verdict::Below | Verdict::Large | Verdict::Submitted) => return,
            Ok(verdict) => self.account(visit, name, verdict),
            Err(trouble) => self.account_trouble(visit, name, trouble),
        }
        add(&self.run.tally.walked, weight);
    }
}

/// What an entry is made of: metadata and attributes, the content of a file, the target of a link.
type Inside = (Entry, Option<Whole>, Option<CString>);
