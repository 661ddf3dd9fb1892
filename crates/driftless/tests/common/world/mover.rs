//! A mover of the world: the real way of a batch from its queue to its report, with the real lease
//! and the real watcher. It goes on when the world lets it, from one change of the replica to the
//! next.

use super::turn::Turn;
use super::{Link, Message, State, lock};
use driftless_engine::message::Report;
use driftless_engine::{
    Alive, Batch, Brief, Carrying, Counts, Delivered, Desk, Ends, Failure, Known, Lease,
    LeaseClock, Line, Moment, Options, Outcome, Over, Seen, Unreachable, Watched, Watcher, carried,
    serve, work_off,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A mover's place in the world.
#[derive(Clone)]
pub struct Place {
    pub state: Arc<Mutex<State>>,
    pub turn: Arc<Turn>,
    pub index: usize,
}

/// A batch that was delivered.
pub struct Delivery {
    message: Message,
    number: u64,
    state: Arc<Mutex<State>>,
    index: usize,
}

impl Delivered for Delivery {
    fn body(&self) -> &[u8] {
        &self.message.body
    }

    fn attempts(&self) -> u32 {
        self.message.attempts
    }
}

impl Drop for Delivery {
    /// What nothing was said of comes again; what was settled is no longer there.
    fn drop(&mut self) {
        lock(&self.state).hand_back(self.index, self.number, 1);
    }
}

impl Place {
    /// Works as long as the world goes on.
    pub fn live(mut self) {
        self.turn.begin();
        let lived = catch_unwind(AssertUnwindSafe(|| {
            while let Some(delivery) = self.next() {
                let mut hands = Hands {
                    clock: Arc::new(MoverClock(self.clone())),
                };
                if let Err(why) = serve(delivery, &mut self, &mut hands) {
                    lock(&self.state).fails(self.index, &why.to_string());
                }
            }
        }));
        if lived.is_err() {
            lock(&self.state).failure = Some(format!("mover {} panics", self.index));
        }
        self.turn.end();
    }

    /// The next batch that the broker delivers; none when the world has come to its end.
    fn next(&self) -> Option<Delivery> {
        self.turn.set_free(false);
        lock(&self.state).is_ready(self.index);
        loop {
            if lock(&self.state).is_over {
                return None;
            }
            self.turn.pause();
            let mut state = lock(&self.state);
            if let Some((number, message)) = state.deliver(self.index) {
                return Some(Delivery {
                    message,
                    number,
                    state: self.state.clone(),
                    index: self.index,
                });
            }
        }
    }
}

impl Desk for Place {
    type Delivery = Delivery;

    fn is_coordinated(&mut self) -> bool {
        lock(&self.state).is_coordinated(self.index)
    }

    fn wait_for_coordinator(&mut self) {
        lock(&self.state).movers[self.index].consumes = false;
    }

    fn acknowledge(&mut self, delivery: Delivery) {
        lock(&self.state).settle(self.index, delivery.number);
    }

    fn give_back(&mut self, delivery: Delivery) {
        lock(&self.state).hand_back(self.index, delivery.number, 0);
    }

    fn sit_out(&mut self, delivery: Delivery) {
        self.give_back(delivery);
        self.wait_for_coordinator();
    }

    fn try_again(&mut self, delivery: Delivery) {
        let mut state = lock(&self.state);
        let again = Message {
            attempts: delivery.message.attempts + 1,
            ..delivery.message.clone()
        };
        state.publish(again);
        state.settle(self.index, delivery.number);
    }

    fn park(&mut self, delivery: Delivery, reason: &str) -> Result<(), Unreachable> {
        let mut state = lock(&self.state);
        state.park(self.index, delivery.message.body.clone(), reason);
        state.settle(self.index, delivery.number);
        Ok(())
    }

    fn report(&mut self, body: &[u8]) -> Result<(), Unreachable> {
        self.turn.pause();
        while matches!(lock(&self.state).movers[self.index].link, Link::Cut) {
            self.turn.pause();
        }
        let mut state = lock(&self.state);
        if state.movers[self.index].is_dead {
            return Err(Unreachable::new("it is dead"));
        }
        state.report(self.index, body);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Unreachable> {
        self.turn.pause();
        if lock(&self.state).movers[self.index].is_dead {
            Err(Unreachable::new("it is dead"))
        } else {
            Ok(())
        }
    }

    fn note(&mut self, text: &str) {
        let index = self.index;
        lock(&self.state).tell(format!("mover {index}: {text}"));
    }
}

impl Line for Place {
    fn alive(&mut self, report: Report) {
        lock(&self.state).sign(self.index, &report);
    }

    fn is_hungry(&mut self) -> bool {
        lock(&self.state).is_hungry(self.index)
    }

    fn is_lost(&mut self) -> bool {
        matches!(lock(&self.state).movers[self.index].link, Link::Closed)
    }

    fn begin(&mut self, lease: &Arc<Lease>) {
        let mover = &mut lock(&self.state).movers[self.index];
        mover.lease = Some(lease.clone());
        if mover.is_dead {
            lease.end(Over::Unwanted);
        }
    }

    fn ask_for_sign(&mut self, lease: &Lease) {
        let state = lock(&self.state);
        let asked = state.moment(self.index);
        if state.is_coordinated(self.index) {
            lease.heard(asked);
        }
    }
}

/// The world's time as a mover sees it. Whoever makes changes gives the turn back when asking for
/// it.
struct MoverClock(Place);

impl LeaseClock for MoverClock {
    fn moment(&self) -> Moment {
        self.0.turn.pause();
        lock(&self.0.state).moment(self.0.index)
    }

    fn rest(&self, _wait: &dyn Fn()) {
        self.0.turn.pause();
    }
}

/// What carries batches out.
struct Hands {
    clock: Arc<MoverClock>,
}

impl Carrying<Place> for Hands {
    fn name(&self) -> &str {
        "a mover"
    }

    fn carry_out(
        &mut self,
        (run, id): (u64, u64),
        what: (&Brief, &Batch),
        place: &mut Place,
    ) -> Result<Outcome, Failure> {
        let (options, yields) = lock(&place.state).begin_batch(place.index, (run, id), what.1);
        let lease = Arc::new(Lease::by(self.clock.clone()));
        place.begin(&lease);
        let (stop, yields, leave) = (
            AtomicBool::new(false),
            AtomicBool::new(yields),
            AtomicBool::new(false),
        );
        let watched = Watched {
            leave: &leave,
            stop: &stop,
            yields: &yields,
            lease: &lease,
            walk: what.1.walk,
        };
        let ends = Ends {
            stop: &stop,
            yields: &yields,
            leaves: &leave,
            lease: Some(&lease),
        };
        place.turn.open_eyes();
        let done = std::thread::scope(|scope| {
            let eyes = place.clone();
            scope.spawn(move || eyes.look_after(watched, (run, id)));
            let done = catch_unwind(AssertUnwindSafe(|| carry_out(&options, what, ends, &lease)));
            place.turn.close_eyes();
            done
        });
        lock(&place.state).end_batch(place.index, &done);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn carry_out(
    options: &Options,
    what: (&Brief, &Batch),
    ends: Ends<'_>,
    lease: &Lease,
) -> Result<Outcome, Failure> {
    let done = work_off((options, &mut Known::default()), what, &|_| {}, ends);
    carried(done, lease.over())
}

impl Place {
    /// What the threads beside a batch do in a real mover.
    fn look_after(mut self, watched: Watched<'_>, (run, id): (u64, u64)) {
        let mut watcher: Option<Watcher<'_>> = None;
        let mover = format!("mover {}", self.index);
        let report = |seen: &Seen| {
            Report::Alive(Alive {
                run,
                id,
                mover: mover.clone(),
                counts: seen.counts,
            })
        };
        while self.turn.wait_for_eyes() {
            let (now, seen) = {
                let state = lock(&self.state);
                let changes = state.movers[self.index].slices;
                (
                    state.now(),
                    Seen {
                        counts: Counts {
                            changed: changes,
                            ..Counts::default()
                        },
                        opening: Duration::ZERO,
                    },
                )
            };
            let looked = catch_unwind(AssertUnwindSafe(|| {
                watched.lease.tick();
                watched.lease.look_if_due();
                let watcher = watcher.get_or_insert_with(|| Watcher::new(watched, now));
                watcher.look(&mut self, now, &seen, (&report, 0.5));
            }));
            if looked.is_err() {
                lock(&self.state).failure = Some(format!("the eyes of mover {} panic", self.index));
            }
            self.turn.blink();
        }
    }
}
