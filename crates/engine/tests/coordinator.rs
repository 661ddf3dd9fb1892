//! The coordinator of a run that movers share, in a table of accidents: with a fake way to the
//! movers that obeys a script, a clock of the test's own, trees in memory, and the real record and
//! work of movers. Whatever happens, the run comes to its end, each entry is accounted for once,
//! the trees are equal, and nothing is handed out again that was settled.
#![allow(clippy::disallowed_methods)]

use driftless_engine::message::{Report, encode, reports};
use driftless_engine::{
    Alive, Batch, Brief, By, Clock, Counts, End, Ends, Exchange, Known, Monitor, Options, Outcome,
    PartOfOutcome, Piece, Progress, RunError, Summary, Unreachable, Word, coordinate, work_off,
};
use driftless_model::{Meta, Policy, Problem, Receipt, Side};
use driftless_state::Record;
use driftless_tree::fake::{Call, FakeTree};
use driftless_tree::{HandlePool, Place};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Milliseconds after which a run that has not come to its end never does.
const MILLIS_MAX: u64 = 3_600_000;
/// Calls, words and batches of a run are fewer than this.
const EVENTS_MAX: u64 = 1000;
/// Runs at a time.
const THREADS: usize = 8;
/// Bytes of a part of an outcome: so few that each part says one thing.
const PART_BYTES: usize = 1;
/// Directories that movers leave to the coordinator.
const OPEN_DIRS: u64 = 400;
/// Path of the directory that holds them.
const ABOVE_OPEN: &str = "a/b/c/d/e/f/g";
/// Files of a batch that is in its sample as a whole.
const SAMPLED: u64 = 200;
/// Time for which a thread waits for another one.
const MEETING: Duration = Duration::from_secs(30);

/// Keeps what is told.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Told {
    fn words(&self) -> String {
        self.0.lock().expect("no panic").join("\n")
    }
}

impl Monitor for Told {
    fn wants_receipts(&self) -> bool {
        false
    }
    fn receipt(&self, _receipt: &Receipt) {}
    fn problem(&self, problem: &Problem) {
        self.0
            .lock()
            .expect("no panic")
            .push(format!("problem: {problem}"));
    }
    fn note(&self, text: &str) {
        self.0
            .lock()
            .expect("no panic")
            .push(format!("note: {text}"));
    }
    fn progress(&self, _progress: &Progress) {}
}

/// Place where the first thread waits until a second one comes.
#[derive(Default)]
struct Meeting {
    state: Mutex<Present>,
    changed: Condvar,
}

/// Threads at a meeting.
#[derive(Default)]
struct Present {
    threads: usize,
    have_met: bool,
    /// A thread has waited in vain, and no other one waits.
    is_over: bool,
}

impl Meeting {
    fn attend(&self) {
        let mut present = self.state.lock().expect("no panic");
        present.threads += 1;
        present.have_met |= present.threads > 1;
        self.changed.notify_all();
        let waits = |present: &mut Present| !present.have_met && !present.is_over;
        let (mut present, _) = self
            .changed
            .wait_timeout_while(present, MEETING, waits)
            .expect("no panic");
        present.threads -= 1;
        present.is_over = true;
    }

    fn has_taken_place(&self) -> bool {
        self.state.lock().expect("no panic").have_met
    }
}

/// Change of the source and the replica, or count of their calls.
type TreesAct = Box<dyn FnOnce(&FakeTree, &FakeTree)>;

/// Time that passes when the test says so.
struct TestClock {
    /// Seconds since 1970 in which the test began.
    first_second: u64,
    began: Instant,
    millis: Cell<u64>,
}

impl TestClock {
    fn pass(&self, span: Duration) {
        self.millis.set(self.millis.get() + span.as_millis() as u64);
        assert!(
            self.millis.get() < MILLIS_MAX,
            "the run does not come to its end"
        );
    }
}

impl Clock for TestClock {
    fn now(&self) -> Instant {
        self.began + Duration::from_millis(self.millis.get())
    }

    fn seconds(&self) -> u64 {
        self.first_second + self.millis.get() / 1000
    }

    fn sleep(&self, span: Duration) {
        self.pass(span);
    }
}

/// What goes wrong, once: `at` counts batches that movers take, words that they say, or calls of
/// the coordinator, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accident {
    Nothing,
    /// A word is lost.
    WordLost {
        at: u64,
    },
    /// All words come twice, one right after the other.
    AllTwice,
    /// All words come again in the end.
    AllAgain,
    /// Words of another run, and of batches that nobody knows, are among the others.
    Strangers,
    /// What a mover says comes minutes later, when another one has done the batch, too.
    Late {
        at: u64,
    },
    /// A mover dies with a batch in hand of which it has done nothing.
    DiesIdle {
        at: u64,
    },
    /// A mover dies with a batch in hand of which it has done everything.
    DiesDone {
        at: u64,
    },
    /// A mover dies and has said all but its last word.
    DiesSpeaking {
        at: u64,
    },
    /// What a mover says at the end of a batch is noise.
    Noise {
        at: u64,
    },
    /// Nobody can carry out a batch, which is told in the end.
    Parked {
        at: u64,
    },
    /// The coordinator is killed in a call to the movers. Another process goes on, or the same one,
    /// which had lost its connection.
    Killed {
        at: u64,
        is_same_process: bool,
    },
    /// The movers cannot be reached any more.
    Unreachable {
        at: u64,
    },
    /// The record cannot be written any more.
    Unwritable {
        at: u64,
    },
    /// A user asks for the end.
    Stopped {
        at: u64,
    },
}

/// A batch in the hands of whoever carries it.
#[derive(Clone)]
struct Order {
    brief: Brief,
    run: u64,
    id: u64,
    batch: Batch,
}

/// Trees, movers and their queue; coordinators come and go.
struct World {
    source: FakeTree,
    replica: FakeTree,
    options: Options,
    folder: tempfile::TempDir,
    clock: TestClock,
    accident: Accident,
    /// The accident has happened.
    is_over: bool,
    waiting: VecDeque<Order>,
    /// Runs and batches that nobody could carry out.
    parked: Vec<(u64, u64)>,
    /// Words on their way, and when they arrive at the earliest, in milliseconds.
    words: VecDeque<(u64, Word)>,
    /// Words that were delivered and not accepted, by their tickets: the next coordinator hears
    /// them again.
    unaccepted: BTreeMap<u64, Word>,
    /// Runs and batches whose last word was accepted.
    settled: BTreeSet<(u64, u64)>,
    taken: u64,
    said: u64,
    tickets: u64,
    told: Told,
    /// Carried out when all batches are settled.
    before_end: Option<TreesAct>,
}

/// What a crash is: nobody catches it but whoever started the coordinator.
struct Crash;

/// How one coordinator ended.
type Ended = Result<Result<Summary, RunError>, Crash>;

impl World {
    fn new(accident: Accident) -> World {
        let (source, replica) = (FakeTree::new("here"), FakeTree::new("there"));
        for dir in ["a", "b", "c", "d", "e"] {
            (0..4).for_each(|number| {
                source.put(
                    &format!("{dir}/file-{number}"),
                    format!("{dir} {number}").as_bytes(),
                )
            });
            source.put(&format!("{dir}/deep/er/file"), b"deep");
            source.put_link(&format!("{dir}/second"), &format!("{dir}/file-0"));
            replica.put(&format!("{dir}/extra/{dir}"), b"only here");
        }
        source.put("one", b"of three names");
        source.put_link("a/two", "one");
        source.put_link("b/three", "one");
        source.put_symlink("link", "one");
        source.put_dir("empty");
        replica.put("a/file-1", b"other content");
        let policy = Policy {
            delete: true,
            delete_unlike: true,
            ..Policy::default()
        };
        let options = Options {
            source: source.endpoint(),
            replica: replica.endpoint(),
            policy,
            ..Options::default()
        };
        World {
            source,
            replica,
            options,
            // In memory, where that can be: what is durable is not what is looked at here.
            folder: tempfile::tempdir_in("/dev/shm")
                .or_else(|_| tempfile::tempdir())
                .expect("a folder"),
            clock: TestClock {
                first_second: 1_000_000_000,
                began: Instant::now(),
                millis: Cell::new(0),
            },
            accident,
            is_over: false,
            waiting: VecDeque::new(),
            parked: Vec::new(),
            words: VecDeque::new(),
            unaccepted: BTreeMap::new(),
            settled: BTreeSet::new(),
            taken: 0,
            said: 0,
            tickets: 0,
            told: Told::default(),
            before_end: None,
        }
    }

    fn record(&self) -> PathBuf {
        self.folder.path().join("record")
    }

    /// One life of a coordinator.
    fn live(&mut self, process: u128) -> Ended {
        let stop = AtomicBool::new(false);
        let options = Options {
            run: process,
            ..self.options.clone()
        };
        let mut record = Record::open(&self.record(), "the same").expect("the record");
        let mut brief = Brief::of(&options, &[], false);
        // The next life has other clocks and monitors in hand: they are the world's.
        let clock = TestClock {
            millis: Cell::new(self.clock.millis.get()),
            ..self.clock
        };
        let told = std::mem::take(&mut self.told);
        let mut connection = Connection {
            world: self,
            clock: &clock,
            stop: &stop,
            calls: 0,
        };
        let by = By {
            exchange: &mut connection,
            record: &mut record,
            clock: &clock,
        };
        let lived = catch_unwind(AssertUnwindSafe(|| {
            coordinate((&options, &mut brief), &told, &stop, by)
        }));
        (self.told, self.clock) = (told, clock);
        match lived {
            Ok(ended) => Ok(ended),
            Err(crash) if crash.is::<Crash>() => Err(Crash),
            Err(failure) => resume_unwind(failure),
        }
    }

    /// Nobody coordinates: what was not accepted is delivered again.
    fn is_left(&mut self) {
        let again = std::mem::take(&mut self.unaccepted);
        let now = self.clock.millis.get();
        again
            .into_values()
            .rev()
            .for_each(|word| self.words.push_front((now, word)));
    }

    /// Lives until the run has come to its end.
    fn run(&mut self) -> Summary {
        self.run_from(1)
    }

    /// Lives until the run has come to its end; the first of its processes has drawn this number.
    fn run_from(&mut self, process: u128) -> Summary {
        for process in process..process + 9 {
            let is_same_process = matches!(
                self.accident,
                Accident::Killed {
                    is_same_process: true,
                    ..
                }
            );
            match self.live(if is_same_process { 1 } else { process }) {
                Ok(Ok(summary)) if summary.end == End::Complete => return summary,
                Ok(Ok(summary)) => assert_eq!((summary.end, self.is_over), (End::Stopped, true)),
                Ok(Err(RunError::NoMovers(_))) => {
                    assert!(matches!(self.accident, Accident::Unreachable { .. }))
                }
                Ok(Err(RunError::Record(error))) => {
                    assert!(
                        matches!(self.accident, Accident::Unwritable { .. }),
                        "{error}"
                    );
                    assert!(error.to_string().contains("the disk is full"), "{error}");
                    self.allow_writing(true);
                }
                Ok(Err(error)) => panic!("{error}"),
                Err(Crash) => {}
            }
            self.is_left();
        }
        panic!("so many lives, and no end");
    }

    /// From now on the record can be written, or not.
    fn allow_writing(&self, allow: bool) {
        let file = rusqlite::Connection::open(self.record()).expect("the record");
        for table in ["batches", "counts", "run", "life"] {
            for act in ["INSERT", "UPDATE", "DELETE"] {
                let name = format!("full_{table}_{act}");
                let script = match allow {
                    true => format!("DROP TRIGGER {name}"),
                    false => format!(
                        "CREATE TRIGGER {name} BEFORE {act} ON {table} BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
                    ),
                };
                file.execute_batch(&script).expect("the trigger");
            }
        }
    }

    /// Says whether the accident happens now, which it does once.
    fn happens(&mut self, accident: Accident) -> bool {
        let happens = !self.is_over && self.accident == accident;
        self.is_over |= happens;
        happens
    }

    /// A mover takes a batch, carries it out and says what came of it.
    fn work(&mut self, order: Order) {
        self.taken += 1;
        let (at, id, run) = (self.taken, order.id, order.run);
        let mover = format!("mover {}", at % 3);
        self.say(
            0,
            Word::Alive(Box::new(Alive {
                run,
                id,
                mover: mover.clone(),
                counts: Counts::default(),
            })),
        );
        if self.happens(Accident::DiesIdle { at }) {
            return;
        }
        if self.happens(Accident::Parked { at }) {
            self.parked.push((run, id));
            return;
        }
        let outcome = self.carry_out(&order);
        if self.happens(Accident::DiesDone { at }) {
            return;
        }
        let is_late = self.happens(Accident::Late { at });
        let (dies_speaking, is_noise) = (
            self.happens(Accident::DiesSpeaking { at }),
            self.happens(Accident::Noise { at }),
        );
        let delay = if is_late { 200_000 } else { 0 };
        for mut part in parts((run, id), at, &mover, outcome) {
            if part.last && dies_speaking {
                return;
            }
            if part.last && is_noise {
                part.outcome = vec![0xff; 9];
            }
            self.say(delay, Word::Part(part, 0));
        }
    }

    fn carry_out(&self, order: &Order) -> Outcome {
        let options = order
            .brief
            .options(self.source.endpoint(), self.replica.endpoint());
        let (no, yields) = (
            AtomicBool::new(false),
            AtomicBool::new((2..5).contains(&self.taken)),
        );
        let ends = Ends {
            stop: &no,
            yields: &yields,
            leaves: &no,
            lease: None,
        };
        let (outcome, end) = work_off(
            (&options, &mut Known::default()),
            (&order.brief, &order.batch),
            &|_| {},
            ends,
        )
        .expect("it is carried out");
        assert_eq!(end, End::Complete);
        outcome
    }

    fn say(&mut self, delay: u64, word: Word) {
        self.said += 1;
        let (at, due) = (self.said, self.clock.millis.get() + delay);
        if self.happens(Accident::WordLost { at }) {
            return;
        }
        if self.accident == Accident::AllTwice {
            self.words.push_back((due, word.clone()));
        }
        if self.accident == Accident::AllAgain {
            self.words.push_back((due + 1000, word.clone()));
        }
        if let (Accident::Strangers, Word::Part(part, _)) = (self.accident, &word) {
            self.is_over = true;
            self.words.push_back((
                due,
                Word::Part(
                    PartOfOutcome {
                        run: part.run + 1,
                        ..part.clone()
                    },
                    0,
                ),
            ));
            self.words.push_back((
                due,
                Word::Part(
                    PartOfOutcome {
                        id: part.id + 1000,
                        ..part.clone()
                    },
                    0,
                ),
            ));
        }
        self.words.push_back((due, word));
    }

    /// The next word that has arrived.
    fn arrived(&mut self) -> Option<Word> {
        let now = self.clock.millis.get();
        let index = self.words.iter().position(|(due, _)| *due <= now)?;
        let (_, word) = self.words.remove(index)?;
        let Word::Part(part, _) = word else {
            return Some(word);
        };
        self.tickets += 1;
        let word = Word::Part(part, self.tickets);
        self.unaccepted.insert(self.tickets, word.clone());
        Some(word)
    }

    /// What of two trees has to agree, of all entries.
    fn entries(
        tree: &FakeTree,
    ) -> Vec<(String, Option<Vec<u8>>, impl PartialEq + std::fmt::Debug)> {
        let of = |meta: Meta| (meta.kind, meta.mode, meta.size, meta.mtime, meta.nlink);
        let all = tree.paths().into_iter();
        all.map(|path| (path.clone(), tree.content(&path), tree.meta(&path).map(of)))
            .collect()
    }

    /// What must come of every run.
    fn check(&self, summary: &Summary) {
        let (counts, words) = (&summary.counts, self.told.words());
        let context = format!("{:?}: {counts:?}\n{words}", self.accident);
        assert!(counts.adds_up(), "{context}");
        assert_eq!(
            (counts.seen, counts.failed, counts.problems()),
            (self.source.paths().len() as u64 + 1, 0, 0),
            "{context}"
        );
        assert!(!words.contains("problem"), "{context}");
        assert!(
            World::entries(&self.source) == World::entries(&self.replica),
            "{context}: {:#?}",
            World::entries(&self.replica)
        );
        let inode = |path| self.replica.meta(path).map(|meta| meta.ino);
        assert!(
            inode("one") == inode("a/two") && inode("one") == inode("b/three"),
            "{context}"
        );
    }
}

/// What came of a batch, in several parts.
fn parts(batch: (u64, u64), attempt: u64, mover: &str, outcome: Outcome) -> Vec<PartOfOutcome> {
    let [Report::Part(whole)] = &reports(batch, attempt, mover, Outcome::default())[..] else {
        panic!("an outcome is one part")
    };
    let split = outcome.split(PART_BYTES);
    let count = split.len() as u32;
    // A message is the number of its protocol, and a value as the record keeps it.
    let bytes = |outcome: &Outcome| encode(outcome)[2..].to_vec();
    let part = |(number, outcome)| PartOfOutcome {
        number,
        last: number + 1 == count,
        outcome: bytes(outcome),
        ..whole.clone()
    };
    (0..).zip(&split).map(part).collect()
}

/// The way of one coordinator to the movers.
struct Connection<'w> {
    world: &'w mut World,
    clock: &'w TestClock,
    stop: &'w AtomicBool,
    calls: u64,
}

impl Connection<'_> {
    fn call(&mut self) -> Result<(), Unreachable> {
        self.calls += 1;
        let at = self.calls;
        self.world.clock.millis.set(self.clock.millis.get());
        for is_same_process in [false, true] {
            if self.world.happens(Accident::Killed {
                at,
                is_same_process,
            }) {
                resume_unwind(Box::new(Crash));
            }
        }
        if self.world.happens(Accident::Unreachable { at }) {
            return Err(Unreachable::new("the movers cannot be reached"));
        }
        if self.world.happens(Accident::Unwritable { at }) {
            self.world.allow_writing(false);
        }
        if self.world.happens(Accident::Stopped { at }) {
            self.stop.store(true, Relaxed);
        }
        Ok(())
    }
}

impl Exchange for Connection<'_> {
    fn send(&mut self, brief: &Brief, run: u64, id: u64, batch: &Batch) -> Result<(), Unreachable> {
        self.call()?;
        assert!(
            !self.world.settled.contains(&(run, id)),
            "batch {id} was settled and is handed out again"
        );
        assert!(!batch.pieces.is_empty(), "a batch of nothing");
        self.world.waiting.push_back(Order {
            brief: brief.clone(),
            run,
            id,
            batch: batch.clone(),
        });
        Ok(())
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Word>, Unreachable> {
        self.call()?;
        if let Some(word) = self.world.arrived() {
            self.clock.pass(Duration::from_millis(1));
            return Ok(Some(word));
        }
        match self.world.waiting.pop_front() {
            Some(order) => self.world.work(order),
            None => self.clock.pass(limit),
        }
        Ok(None)
    }

    fn accept(&mut self, ticket: u64) {
        if let Some(Word::Part(part, _)) = self.world.unaccepted.remove(&ticket)
            && part.last
            && part.read().is_some()
        {
            self.world.settled.insert((part.run, part.id));
        }
    }

    fn waits(&mut self) -> Result<bool, Unreachable> {
        self.call()?;
        Ok(!self.world.waiting.is_empty())
    }

    fn idle(&mut self) -> usize {
        2
    }

    fn at_work(&mut self) -> usize {
        if let Some(act) = self.world.before_end.take() {
            act(&self.world.source, &self.world.replica);
        }
        self.world.words.len()
    }

    fn call_back(&mut self) -> Result<(), Unreachable> {
        self.clear(false)
    }

    fn dismiss(&mut self, mover: &str, why: &str) {
        panic!("{mover} is dismissed: {why}");
    }

    fn parked(&mut self, run: u64) -> Result<Vec<(u64, String)>, Unreachable> {
        let ours = self.world.parked.iter().filter(|(of, _)| *of == run);
        Ok(ours
            .map(|(_, id)| (*id, "no mover has the rights".to_owned()))
            .collect())
    }

    fn clear(&mut self, words: bool) -> Result<(), Unreachable> {
        self.call()?;
        self.world.waiting.clear();
        if words {
            self.world.words.clear();
        }
        Ok(())
    }
}

/// A run with this accident; says whether it happened.
fn run_with(accident: Accident) -> bool {
    let mut world = World::new(accident);
    let summary = world.run();
    world.check(&summary);
    world.is_over
}

/// Runs with this accident at each of its places, many at a time, since a run waits for its threads
/// more than it works; says how many places there are.
fn run_at_each(accident: impl Fn(u64) -> Accident + Sync) -> u64 {
    let (next, first_without) = (AtomicU64::new(1), AtomicU64::new(EVENTS_MAX));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while next.load(Relaxed) < first_without.load(Relaxed) {
                    let at = next.fetch_add(1, Relaxed);
                    if !run_with(accident(at)) {
                        first_without.fetch_min(at, Relaxed);
                    }
                }
            });
        }
    });
    first_without.into_inner() - 1
}

#[test]
fn a_calm_run_makes_the_trees_equal() {
    for accident in [
        Accident::Nothing,
        Accident::AllTwice,
        Accident::AllAgain,
        Accident::Strangers,
    ] {
        run_with(accident);
    }
}

#[test]
fn whichever_word_is_lost_it_is_said_again() {
    assert!(run_at_each(|at| Accident::WordLost { at }) > 20);
}

#[test]
fn whichever_batch_a_mover_dies_with_another_one_carries_it_out() {
    assert!(run_at_each(|at| Accident::DiesIdle { at }) > 5);
    assert!(run_at_each(|at| Accident::DiesDone { at }) > 5);
    assert!(run_at_each(|at| Accident::DiesSpeaking { at }) > 5);
}

#[test]
fn the_first_outcome_of_a_batch_counts_and_a_late_one_is_passed_over() {
    assert!(run_at_each(|at| Accident::Late { at }) > 5);
}

#[test]
fn names_that_one_listing_lacks_are_copied() {
    let mut world = World::new(Accident::Nothing);
    (world.source, world.replica) = (FakeTree::new("here"), FakeTree::new("there"));
    (world.options.source, world.options.replica) =
        (world.source.endpoint(), world.replica.endpoint());
    for name in ["one", "two", "three"] {
        world.source.put(&format!("dir/{name}"), name.as_bytes());
    }
    // Later than the last change of the source, so that views of it count.
    world.clock.first_second = 2_000_000_000;
    world.source.hide("dir/two", 1);
    let summary = world.run();
    world.check(&summary);
}

#[test]
fn several_threads_finish_directories_below_open_parents() {
    let mut world = World::new(Accident::Nothing);
    (world.source, world.replica) = (FakeTree::new("here"), FakeTree::new("there"));
    (world.options.source, world.options.replica) =
        (world.source.endpoint(), world.replica.endpoint());
    let dirs = || (0..OPEN_DIRS).map(|number| format!("{ABOVE_OPEN}/dir-{number}"));
    for dir in dirs() {
        // Movers leave names of one file to the coordinator, and so the directory.
        world.source.put(&format!("{dir}/file"), b"of two names");
        let second = format!("{dir}/second");
        world.source.put_link(&second, &format!("{dir}/file"));
    }
    let meeting = Arc::new(Meeting::default());
    let (before, at_work) = (Arc::new(AtomicU64::new(0)), meeting.clone());
    let entered = |source: &FakeTree, replica: &FakeTree| {
        source.calls(Call::Enter) + replica.calls(Call::Enter)
    };
    let counted = before.clone();
    world.before_end = Some(Box::new(move |source: &FakeTree, replica: &FakeTree| {
        counted.store(entered(source, replica), Relaxed);
        for dir in dirs() {
            let meeting = at_work.clone();
            replica.surprise(Call::Set, &dir, move |_| meeting.attend());
        }
    }));
    let summary = world.run();
    world.check(&summary);
    assert!(meeting.has_taken_place(), "one thread was at work");
    // On both sides, once to link names, and once to finish the directory.
    let entered = entered(&world.source, &world.replica) - before.load(Relaxed);
    assert!(
        entered < 5 * OPEN_DIRS,
        "{entered} directories were entered"
    );
}

#[test]
fn sample_of_a_batch_costs_no_looks() {
    let mut world = World::new(Accident::Nothing);
    (world.source, world.replica) = (FakeTree::new("here"), FakeTree::new("there"));
    (world.options.source, world.options.replica) =
        (world.source.endpoint(), world.replica.endpoint());
    (0..SAMPLED).for_each(|file| world.source.put(&format!("dir/{file}"), b"content"));
    let summary = world.run();
    world.check(&summary);
    let root = |tree: &FakeTree, side| match tree.endpoint().locate(side, &HandlePool::new(8)) {
        Ok(Place::Dir(root)) => *root.first_meta(),
        _ => panic!("the root is a directory"),
    };
    let mut brief = Brief::of(&world.options, &[], false);
    brief.set_roots(
        &root(&world.source, Side::Source),
        &root(&world.replica, Side::Replica),
    );
    let batch = Batch {
        pieces: vec![Piece::Root],
        ..Batch::default()
    };
    let looks = || world.source.calls(Call::Look) + world.replica.calls(Call::Look);
    let before = looks();
    let outcome = world.carry_out(&Order {
        brief,
        run: 1,
        id: 1,
        batch,
    });
    // Eight entries of a tree that counts as far, each of which the mover has looked at once on each
    // side. The root and its directory are looked at when they are entered.
    assert_eq!(outcome.settled.len(), 8);
    let looks = looks() - before;
    assert!(looks <= 2 * SAMPLED + 4, "{looks} looks");
}

#[test]
fn noise_settles_nothing() {
    assert!(run_at_each(|at| Accident::Noise { at }) > 5);
}

#[test]
fn wherever_a_coordinator_ends_the_next_one_goes_on() {
    assert!(
        run_at_each(|at| Accident::Killed {
            at,
            is_same_process: false
        }) > 20
    );
    assert!(
        run_at_each(|at| Accident::Killed {
            at,
            is_same_process: true
        }) > 20
    );
}

#[test]
fn wherever_movers_cannot_be_reached_or_the_user_stops_it_the_next_one_goes_on() {
    assert!(run_at_each(|at| Accident::Unreachable { at }) > 20);
    assert!(run_at_each(|at| Accident::Stopped { at }) > 20);
}

#[test]
fn wherever_the_record_cannot_be_written_the_run_ends_and_the_next_one_goes_on() {
    assert!(run_at_each(|at| Accident::Unwritable { at }) > 20);
}

#[test]
fn what_nobody_can_carry_out_is_told_path_by_path_and_the_next_run_mends_it() {
    let places = |at| {
        let mut world = World::new(Accident::Parked { at });
        let counts = world.run().counts;
        let words = world.told.words();
        let told = words
            .lines()
            .filter(|line| line.contains("no mover has the rights"))
            .count() as u64;
        let context = format!("{at}: {counts:?}\n{words}");
        assert!(
            counts.adds_up() && counts.failed == told && counts.problems() == told,
            "{context}"
        );
        assert_eq!(told > 0, world.is_over, "{context}");
        let is_over = world.is_over;
        let is_kept = world.replica.content("a/extra/a").is_some();
        assert!(!is_kept || told > 0, "{context}");
        std::fs::remove_file(world.record()).expect("the run came to its end");
        (world.accident, world.told) = (Accident::Nothing, Told::default());
        let summary = world.run();
        world.check(&summary);
        is_over
    };
    assert!((1..EVENTS_MAX).take_while(|at| places(*at)).count() > 5);
}

#[test]
fn a_coordinator_that_ends_before_its_record_is_gone_does_its_last_stage_again() {
    for (process, words) in [(1, ""), (2, "going on with the run")] {
        let mut world = World::new(Accident::Nothing);
        let first = world.run();
        world.check(&first);
        if process == 2 {
            // Another process looks at everything once more; that of the first life goes on with
            // the last stage alone.
            world.source.put("a/late", b"made since");
        }
        let again = world.run_from(process);
        world.check(&again);
        assert!(world.told.words().contains(words), "{}", world.told.words());
    }
}
