//! A broker, its queues, movers and time itself, of one thread and one seed: what a coordinator meets when it calls upon its movers.
//!
//! The coordinator and what carries shares out are the real ones, on small real trees. In between, messages are late, come twice, come again
//! after a connection was lost, and overtake those of other queues; movers sleep, die, and go on with what was taken from them.

use driftless_engine::message::{Order, Report, decode, encode, reports};
use driftless_engine::{Alive, Brief, Clock, Counts, Ends, Exchange, Options, PartOfOutcome, Piece, Share, Word, work_off};
use fastrand::Rng;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Classes of work: what no route takes, and large files.
pub const CLASSES: usize = 2;
/// Tries after which a share is parked, as on a real queue.
const ATTEMPTS_MAX: u32 = 8;
/// A share takes so long at most, but for movers that sleep.
const WORK_MAX: u64 = 20_000;
/// In one of so many steps, something goes wrong.
const ACCIDENT: u32 = 40;
const MOVERS: usize = 3;
/// Steps in which a run comes to its end, or never.
const STEPS_MAX: u64 = 200_000;

/// A share on its way.
#[derive(Clone)]
struct Message {
    body: Vec<u8>,
    attempts: u32,
}

/// What a mover has in hand.
struct Hand {
    message: Message,
    /// It has not been given to somebody else.
    is_owned: bool,
    /// When it is done, in milliseconds.
    until: u64,
    /// What it has to say of it, when it is done.
    said: Option<VecDeque<Vec<u8>>>,
}

struct Mover {
    class: usize,
    hand: Option<Hand>,
}

/// What somebody does before a mover carries out a share.
pub type Before = Box<dyn FnMut(&Share)>;

/// All that is outside of the coordinator.
pub struct World {
    rng: Rng,
    options: Options,
    /// When it began, and the milliseconds since then.
    base: Instant,
    millis: u64,
    work: [VecDeque<Message>; CLASSES],
    results: VecDeque<Vec<u8>>,
    unacknowledged: BTreeMap<u64, Vec<u8>>,
    parked: Vec<Vec<u8>>,
    movers: Vec<Mover>,
    tickets: u64,
    steps: u64,
    /// Accidents that may still happen.
    accidents: u32,
    /// What happened, for whoever looks into a failure.
    pub history: Vec<String>,
    /// Somebody who changes the trees while the run goes on.
    pub before: Option<Before>,
}

impl World {
    pub fn new(seed: u64, options: Options) -> World {
        let mut rng = Rng::with_seed(seed);
        let mover = |class| Mover { class, hand: None };
        World {
            options,
            base: Instant::now(),
            millis: 0,
            work: Default::default(),
            results: VecDeque::new(),
            unacknowledged: BTreeMap::new(),
            parked: Vec::new(),
            movers: (0..MOVERS).map(|index| mover(usize::from(index == 0))).collect(),
            tickets: 0,
            steps: 0,
            accidents: rng.u32(0..12),
            rng,
            history: Vec::new(),
            before: None,
        }
    }

    fn tell(&mut self, what: String) {
        self.history.push(format!("{:>9} ms  {what}", self.millis));
    }

    /// Lets time pass.
    pub fn pass(&mut self, millis: u64) {
        self.millis += millis;
    }

    /// Movers go on while there is no coordinator, and its connection is gone.
    pub fn go_on_alone(&mut self, steps: u64) {
        self.return_results();
        for _ in 0..steps {
            self.step();
            self.millis += self.rng.u64(1..3000);
        }
    }

    /// What was delivered and not acknowledged comes again.
    fn return_results(&mut self) {
        let returned: Vec<Vec<u8>> = std::mem::take(&mut self.unacknowledged).into_values().collect();
        returned.into_iter().rev().for_each(|body| self.results.push_front(body));
    }

    /// Something happens.
    fn step(&mut self) {
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "the run does not come to its end");
        if self.accidents > 0 && self.rng.u32(0..ACCIDENT) == 0 {
            self.accidents -= 1;
            return self.accident();
        }
        let index = self.rng.usize(..self.movers.len());
        let millis = self.millis;
        match self.movers[index].hand.take() {
            None => self.take(index),
            Some(hand) if hand.until > millis => {
                self.say_alive(index, &hand);
                self.movers[index].hand = Some(hand);
            }
            Some(hand) => self.movers[index].hand = self.work_or_report(index, hand),
        }
    }

    fn take(&mut self, index: usize) {
        let class = self.movers[index].class;
        let Some(message) = self.work[class].pop_front() else { return };
        if message.attempts >= ATTEMPTS_MAX {
            self.tell("a share is parked".into());
            return self.parked.push(message.body);
        }
        let until = self.millis + self.rng.u64(0..WORK_MAX);
        self.movers[index].hand = Some(Hand { message, is_owned: true, until, said: None });
    }

    fn say_alive(&mut self, index: usize, hand: &Hand) {
        let Ok(Order::Share { run, id, .. }) = decode(&hand.message.body) else { return };
        if self.rng.bool() {
            let sign = Alive { run, id, mover: format!("mover {index}"), counts: Counts::default() };
            self.results.push_back(encode(&Report::Alive(sign)));
        }
    }

    /// Carries a share out, or sends the next part of what came of it; then it is acknowledged.
    fn work_or_report(&mut self, index: usize, mut hand: Hand) -> Option<Hand> {
        let Some(said) = &mut hand.said else {
            let Ok(Order::Share { brief, run, id, share }) = decode(&hand.message.body) else { return None };
            if let Some(before) = &mut self.before {
                before(&share);
            }
            let yields = self.rng.u8(0..3) == 0;
            self.tell(format!("mover {index} carries out {id}{}", if yields { " and leaves much" } else { "" }));
            match self.carry_out(&brief, &share, yields) {
                Some(outcome) => hand.said = Some(reports((run, id), self.rng.u64(..), outcome).iter().map(encode).collect()),
                None => {
                    self.give_back(hand, true);
                    return None;
                }
            }
            return Some(hand);
        };
        let part = said.pop_front()?;
        if self.rng.u8(0..10) == 0 {
            self.results.push_back(part.clone());
        }
        self.results.push_back(part);
        (!hand.said.as_ref().is_some_and(VecDeque::is_empty)).then_some(hand)
    }

    fn carry_out(&self, brief: &Brief, share: &Share, yields: bool) -> Option<driftless_engine::Outcome> {
        let (stop, yields) = (AtomicBool::new(false), AtomicBool::new(yields));
        let ends = Ends { stop: &stop, yields: &yields, lease: None };
        work_off(&self.options, (brief, share), &|_| {}, ends).ok().map(|(outcome, _)| outcome)
    }

    fn give_back(&mut self, hand: Hand, tried: bool) {
        let Ok(Order::Share { share, .. }) = decode(&hand.message.body) else { return };
        if hand.is_owned {
            let attempts = hand.message.attempts + u32::from(tried);
            self.work[usize::from(share.class)].push_front(Message { attempts, ..hand.message });
        }
    }

    fn accident(&mut self) {
        let index = self.rng.usize(..self.movers.len());
        let kind = self.rng.u8(0..7);
        match (kind, self.movers[index].hand.take()) {
            (0, Some(hand)) => self.kill(index, hand),
            (1, Some(hand)) => {
                self.tell(format!("mover {index} loses its connection, and goes on"));
                let copy = Hand { message: hand.message.clone(), is_owned: false, until: hand.until, said: None };
                self.give_back(hand, true);
                self.movers[index].hand = Some(copy);
            }
            (2, Some(mut hand)) => {
                self.tell(format!("mover {index} sleeps"));
                hand.until = self.millis + self.rng.u64(0..200_000);
                self.movers[index].hand = Some(hand);
            }
            (3, hand) => {
                self.movers[index].hand = hand;
                self.tell("the coordinator loses its connection".into());
                self.return_results();
            }
            (4, hand) => {
                self.movers[index].hand = hand;
                self.double();
            }
            (5, hand) => {
                self.movers[index].hand = hand;
                self.tell("the broker loses the work that waits".into());
                self.work.iter_mut().for_each(VecDeque::clear);
            }
            (_, hand) => self.movers[index].hand = hand,
        }
    }

    /// A mover dies; it has carried out some of its share, or all of it and said a part.
    fn kill(&mut self, index: usize, hand: Hand) {
        self.tell(format!("mover {index} dies"));
        if let (None, Ok(Order::Share { brief, share, .. })) = (&hand.said, decode(&hand.message.body)) {
            let pieces = share.pieces.iter().filter(|_| self.rng.bool()).cloned().collect();
            let _nobody_hears_of_it = self.carry_out(&brief, &Share { pieces, ..share.clone() }, false);
        }
        self.give_back(hand, true);
    }

    fn double(&mut self) {
        let Some(index) = (!self.results.is_empty()).then(|| self.rng.usize(..self.results.len())) else { return };
        self.tell("a result comes twice".into());
        let again = self.results[index].clone();
        self.results.push_back(again);
    }

    fn next_word(&mut self) -> Option<Word> {
        // It may be on its way for long.
        if self.rng.u8(0..4) == 0 {
            return None;
        }
        let body = self.results.pop_front()?;
        match decode(&body).expect("a report") {
            Report::Alive(sign) => Some(Word::Alive(Box::new(sign))),
            Report::Part(part) => {
                self.tell(format!("the coordinator hears of {}", described(&part)));
                self.tickets += 1;
                self.unacknowledged.insert(self.tickets, body);
                Some(Word::Part(part, self.tickets))
            }
            Report::Failed { .. } => None,
        }
    }
}

fn described(part: &PartOfOutcome) -> String {
    format!("{}, part {}{}", part.id, part.number, if part.last { ", the last" } else { "" })
}

fn described_share(share: &Share) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Root => "all".to_owned(),
        Piece::Entries(dir, names) => {
            names.iter().map(|name| driftless_model::escape(dir.join(name.as_bytes()).as_bytes())).collect::<Vec<_>>().join(" ")
        }
        Piece::Bytes(path, _, range) => format!("{range:?} of {path}"),
        Piece::Rest(path, ..) => format!("the rest of {path}"),
    };
    share.pieces.iter().map(piece).collect::<Vec<_>>().join(" ")
}

/// What a crash is: nobody catches it but whoever started the life.
pub struct Crash;

/// The coordinator's connection in one life, which ends in a crash after so many calls, or asks it to stop.
pub struct Life<'w> {
    pub world: &'w RefCell<World>,
    pub calls: u64,
    pub dies_at: Option<u64>,
    pub stops_at: Option<u64>,
    pub stop: &'w AtomicBool,
}

impl Life<'_> {
    fn call(&mut self) {
        self.calls += 1;
        if self.stops_at == Some(self.calls) {
            self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        if self.dies_at == Some(self.calls) {
            self.world.borrow_mut().tell("the coordinator dies".into());
            std::panic::resume_unwind(Box::new(Crash));
        }
    }
}

impl Exchange for Life<'_> {
    fn send(&mut self, brief: &Brief, run: u64, id: u64, share: &Share) -> Result<(), String> {
        self.call();
        let mut world = self.world.borrow_mut();
        let body = encode(&Order::Share { brief: Box::new(brief.clone()), run, id, share: share.clone() });
        world.tell(format!(
            "{id} is handed out, of class {}{}: {}",
            share.class,
            if share.alone { ", of links" } else { "" },
            described_share(share)
        ));
        world.work[usize::from(share.class)].push_back(Message { body, attempts: 0 });
        Ok(())
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Word>, String> {
        self.call();
        let mut world = self.world.borrow_mut();
        world.step();
        let word = world.next_word();
        let passes = if word.is_some() { 1 } else { limit.as_millis() as u64 };
        let passes = passes * if world.rng.u8(0..4) == 0 { 10 } else { 1 };
        world.pass(passes);
        Ok(word)
    }

    fn accept(&mut self, ticket: u64) {
        self.call();
        self.world.borrow_mut().unacknowledged.remove(&ticket);
    }

    fn waits(&mut self) -> Result<bool, String> {
        self.call();
        Ok(self.world.borrow().work.iter().any(|queue| !queue.is_empty()))
    }

    fn idle(&mut self) -> usize {
        self.world.borrow().movers.iter().filter(|mover| mover.hand.is_none()).count()
    }

    fn at_work(&mut self) -> usize {
        self.world.borrow().movers.iter().filter(|mover| mover.hand.as_ref().is_some_and(|hand| hand.is_owned)).count()
    }

    fn call_back(&mut self) -> Result<(), String> {
        self.call();
        let mut world = self.world.borrow_mut();
        world.tell("movers are called back".into());
        let hands: Vec<Hand> = world.movers.iter_mut().filter_map(|mover| mover.hand.take()).collect();
        hands.into_iter().for_each(|hand| world.give_back(hand, true));
        Ok(())
    }

    fn parked(&mut self, run: u64) -> Result<Vec<(u64, String)>, String> {
        let world = self.world.borrow();
        let ours = world.parked.iter().filter_map(|body| match decode(body) {
            Ok(Order::Share { run: of, id, .. }) if of == run => Some((id, "nobody could".to_owned())),
            _ => None,
        });
        Ok(ours.collect())
    }

    fn clear(&mut self, words: bool) -> Result<(), String> {
        self.call();
        let mut world = self.world.borrow_mut();
        world.tell(format!("the queues are emptied{}", if words { ", with all words" } else { "" }));
        world.work.iter_mut().for_each(VecDeque::clear);
        if words {
            world.results.clear();
            world.parked.clear();
        }
        Ok(())
    }
}

/// The time of the world.
pub struct WorldClock<'w>(pub &'w RefCell<World>);

impl Clock for WorldClock<'_> {
    fn now(&self) -> Instant {
        let world = self.0.borrow();
        world.base + Duration::from_millis(world.millis)
    }

    fn seconds(&self) -> u64 {
        1_000_000_000 + self.0.borrow().millis / 1000
    }
}
