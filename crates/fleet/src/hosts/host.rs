//! Movers that the coordinator starts on other hosts itself, through ssh, and that take their work over the same connections.
//!
//! A message goes over a line as its length (4 bytes, little-endian) and its bytes. A mover first prints a line that says so, because a
//! shell may print something before.

use super::crew::Crew;
use crate::args::SyncArgs;
use crate::exit::Exit;
use crate::output::Output;
use crate::reach::{self, Unreached};
use crate::signals::Signals;
use crate::units::show_counted;
use driftless_engine::message::{Order, Report, Unclear, VERSION, decode, encode, reports};
use driftless_engine::{Alive, Brief, Exchange, Failure, Lease, Line, Moment, Options, PartOfOutcome, Batch, Word};
use driftless_lock::{Condvar, Mutex};
use driftless_pool::Concurrency;
use driftless_queue::MESSAGE_BYTES_MAX;
use driftless_remote::{Heard, Reach, ReachError, SSH_FAILED, bring, find, in_place_of, spawn_there};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// What a mover prints before its first message, followed by the number of its protocol.
const GREETING: &str = "driftless mover ready, protocol ";
/// Tries after which a batch is given up.
const ATTEMPTS_MAX: u32 = 5;
/// A host that failed so many times in a row is left alone, unless it was reached before and may come back in time.
const FAILURES_MAX: u32 = 6;
/// Pause after the first of them; it doubles with each.
const PAUSE: Duration = Duration::from_millis(500);
/// How long it has to end when its output has.
const PARTING: Duration = Duration::from_secs(2);
/// Between two looks at whether the run is over.
const TICK: Duration = Duration::from_millis(50);
/// A mover that says nothing for so long has hung or lost its host: it says that it is alive each second.
const SILENCE: Duration = Duration::from_secs(15);

/// What comes over these lines is not acknowledged: a batch whose line is lost is put back.
const NO_TICKET: u64 = 0;

/// A batch on its way to a mover.
struct Waiting {
    run: u64,
    id: u64,
    batch: Batch,
    attempts: u32,
}

#[derive(Default)]
struct State {
    /// What a mover that takes a batch is told of the run; it says what the source is like now.
    brief: Option<Brief>,
    waiting: VecDeque<Waiting>,
    /// Hosts that have nothing to do.
    idle: usize,
    /// Hosts that are at work, and since when; none once they were asked to leave some to others.
    busy: BTreeMap<usize, Option<Instant>>,
    given_up: Vec<(u64, String)>,
    /// Hosts that get no more batches, and why.
    dismissed: BTreeMap<String, String>,
    /// Hosts that are left alone, and why.
    gone: Vec<String>,
    over: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The coordinator's way to movers that it has started.
pub struct HostsExchange<'a> {
    shared: Arc<Shared>,
    words: Receiver<Word>,
    hosts: Vec<Arc<HostLine>>,
    threads: Vec<std::thread::JoinHandle<()>>,
    told: usize,
    output: &'a Output,
}

/// One host, and the line to it while there is one.
struct HostLine {
    index: usize,
    host: String,
    starting: Arc<Starting>,
    /// The program there, with what starts it.
    program: Mutex<Vec<String>>,
    child: Mutex<Option<Child>>,
    orders: Mutex<Option<ChildStdin>>,
}

/// How movers are started.
pub struct Starting {
    reach: Reach,
    /// What the program is started with.
    arguments: Vec<String>,
    /// How long a connection that is lost is tried to be made again.
    patience: Duration,
}

impl Starting {
    /// As the arguments of `sync` say.
    pub fn of(args: &SyncArgs, options: &Options, signals: &Signals) -> Result<Starting, Unreached> {
        let (throttle, reach) = (&args.running.throttle, &args.reach);
        let mut words = vec!["mover".to_owned(), "--stdio".into()];
        if let Concurrency::Fixed(jobs) = throttle.jobs {
            words.extend(["--jobs".into(), jobs.to_string()]);
        }
        let limits = [("--bwlimit", throttle.bwlimit), ("--iops-limit", throttle.iops_limit)];
        words.extend(limits.iter().flat_map(|(name, limit)| limit.map(|limit| [(*name).to_owned(), limit.to_string()])).flatten());
        words.extend(["--ssh".into(), reach.ssh.clone(), "--agent-path".into(), reach.agent_path.clone()]);
        words.extend(["--reconnect".into(), reach.reconnect.to_string()]);
        words.extend(reach.compress.map(|level| format!("--compress={level}")));
        words.extend(reach.streams.0.map(|streams| format!("--streams={streams}")));
        // A program that was brought to a host can bring itself to the next. A file of this host is none of that one's.
        words.extend(reach.deploy.as_ref().map(|_| "--deploy".into()));
        let patience = Duration::from_secs(reach.reconnect);
        Ok(Starting { reach: reach::reach(reach, options.policy.keep, &signals.stop)?, arguments: words, patience })
    }

    /// What ssh is told to run on the host.
    fn command_line(&self, program: &[String]) -> String {
        shell_words::join(program.iter().chain(&self.arguments))
    }
}

impl<'a> HostsExchange<'a> {
    /// Starts a mover on each host.
    pub fn start(hosts: &[String], starting: Starting, output: &'a Output) -> Self {
        let starting = Arc::new(starting);
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let (say, words) = channel();
        let line = |(index, host): (usize, &String)| {
            let (starting, program) = (starting.clone(), Mutex::new(starting.reach.agent.clone()));
            Arc::new(HostLine { index, host: host.clone(), starting, program, child: Mutex::new(None), orders: Mutex::new(None) })
        };
        let hosts: Vec<Arc<HostLine>> = hosts.iter().enumerate().map(line).collect();
        let serve = |host: &Arc<HostLine>| {
            let (host, shared, say) = (host.clone(), shared.clone(), say.clone());
            std::thread::spawn(move || host.serve(&shared, &say))
        };
        let threads = hosts.iter().map(serve).collect();
        HostsExchange { shared, words, hosts, threads, told: 0, output }
    }

    /// Asks movers to leave some of their work to others, if any of these has nothing to do.
    fn share_out(&self) {
        let asked: Vec<usize> = {
            let mut state = self.shared.state.lock();
            if state.idle == 0 || !state.waiting.is_empty() {
                return;
            }
            let ready = |since: &Option<Instant>| since.is_some_and(|since| since.elapsed() > 2 * TICK);
            let asked: Vec<usize> = state.busy.iter().filter(|(_, since)| ready(since)).map(|(index, _)| *index).collect();
            state.busy.extend(asked.iter().map(|index| (*index, None)));
            asked
        };
        for index in asked {
            let _a_line_that_is_lost_is_noticed_where_it_is_read = self.hosts[index].order(&encode(&Order::Yield));
        }
    }

    fn tell_gone(&mut self) -> Result<(), String> {
        let (gone, all) = {
            let state = self.shared.state.lock();
            (state.gone.clone(), state.gone.len() == self.hosts.len())
        };
        // What ended the last one is said at the end of the run.
        let noted = gone.len() - usize::from(all);
        gone[..noted].iter().skip(self.told).for_each(|why| self.output.note(&format!("{why}; the run goes on without it")));
        self.told = gone.len();
        if all { Err(format!("no mover is left: {}", gone.last().map_or("", String::as_str))) } else { Ok(()) }
    }
}

impl Exchange for HostsExchange<'_> {
    fn send(&mut self, brief: &Brief, run: u64, id: u64, batch: &Batch) -> Result<(), String> {
        let mut state = self.shared.state.lock();
        state.brief = Some(brief.clone());
        state.waiting.push_back(Waiting { run, id, batch: batch.clone(), attempts: 0 });
        drop(state);
        self.shared.changed.notify_one();
        Ok(())
    }

    fn renew(&mut self, brief: &Brief) {
        self.shared.state.lock().brief = Some(brief.clone());
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Word>, String> {
        self.share_out();
        match self.words.recv_timeout(limit.min(TICK)) {
            Ok(word) => Ok(Some(word)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => self.tell_gone().map(|()| None),
        }
    }

    fn accept(&mut self, _ticket: u64) {}

    fn waits(&mut self) -> Result<bool, String> {
        // Whatever is lost with a connection is put back at once.
        Ok(true)
    }

    fn idle(&mut self) -> usize {
        let state = self.shared.state.lock();
        self.hosts.len() - state.busy.len() - state.gone.len()
    }

    fn at_work(&mut self) -> usize {
        self.shared.state.lock().busy.len()
    }

    /// Ends the movers, who see the end of their standard input.
    fn call_back(&mut self) -> Result<(), String> {
        self.shared.state.lock().over = true;
        self.shared.changed.notify_all();
        self.hosts.iter().for_each(|host| drop(host.orders.lock().take()));
        Ok(())
    }

    fn dismiss(&mut self, mover: &str, why: &str) {
        self.shared.state.lock().dismissed.insert(mover.to_owned(), why.to_owned());
        self.shared.changed.notify_all();
    }

    fn parked(&mut self, _run: u64) -> Result<Vec<(u64, String)>, String> {
        Ok(std::mem::take(&mut self.shared.state.lock().given_up))
    }

    fn clear(&mut self, _words: bool) -> Result<(), String> {
        self.shared.state.lock().waiting.clear();
        Ok(())
    }
}

impl Drop for HostsExchange<'_> {
    fn drop(&mut self) {
        let _that_none_is_left_was_said_before = self.tell_gone();
        self.shared.state.lock().over = true;
        self.shared.changed.notify_all();
        self.hosts.iter().for_each(|host| host.hang_up());
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl HostLine {
    /// Keeps a mover at work until the run is over.
    fn serve(&self, shared: &Shared, say: &Sender<Word>) {
        let (mut failures, mut stood) = (0, None);
        while let Err(failed) = self.session(shared, say) {
            failures = if failed.worked { 1 } else { failures + 1 };
            if failed.connected {
                stood = Some(Instant::now());
            }
            let may_come_back = !failed.connected && stood.is_some_and(|at| at.elapsed() < self.starting.patience);
            if failures >= FAILURES_MAX && !may_come_back {
                return shared.state.lock().gone.push(format!("{}: {}", self.host, failed.why));
            }
            pause(shared, PAUSE * 2u32.pow(failures.min(FAILURES_MAX) - 1));
            if shared.state.lock().over {
                return;
            }
        }
        let mut state = shared.state.lock();
        if let Some(why) = state.dismissed.get(&self.host).filter(|_| !state.over).cloned() {
            state.gone.push(format!("{}: {why}", self.host));
        }
    }

    /// One connection; it ends well when the run is over, or the host is dismissed.
    fn session(&self, shared: &Shared, say: &Sender<Word>) -> Result<(), Failed> {
        let (mut input, complaint) = self.connect().map_err(|why| Failed { connected: false, worked: false, why })?;
        let mut worked = false;
        let ended = loop {
            let Some(batch) = take(shared, self) else { break Ok(()) };
            match self.carry(&batch, &mut input, (shared, say)) {
                Ok(Carried::Done) => worked = true,
                Ok(Carried::Misfit(why)) => {
                    leave_out(shared, &self.host, (batch, why));
                    break Ok(());
                }
                Ok(Carried::Failed(reason)) => {
                    put_back(shared, batch, &format!("{}: {reason}", self.host));
                    break Err(complained(&complaint, reason));
                }
                Err(why) => {
                    // What it said last is all that is known of a mover that ends.
                    let why = complained(&complaint, why.to_string());
                    put_back(shared, batch, &format!("{}: {why}", self.host));
                    break Err(why);
                }
            }
        };
        shared.state.lock().busy.remove(&self.index);
        self.hang_up();
        ended.map_err(|why| Failed { connected: true, worked, why })
    }

    /// Starts a mover there, and before that brings the program along if it is wanted and there is none.
    fn connect(&self) -> Result<(BufReader<Pipe>, Complaint), String> {
        let program = self.program.lock().clone();
        match (self.start(&program), &self.starting.reach.deploy) {
            (Err(Unstarted { is_missing: true, .. }), Some(deploy)) => {
                let brought = bring(&self.host, &self.starting.reach, deploy).map_err(|error| match error {
                    ReachError::NotDeployed { why, .. } => format!("cannot deploy driftless: {why}"),
                    error => error.to_string(),
                })?;
                let brought = in_place_of(&program, brought);
                self.program.lock().clone_from(&brought);
                self.start(&brought).map_err(|unstarted| unstarted.why)
            }
            (started, _) => started.map_err(|unstarted| unstarted.why),
        }
    }

    fn start(&self, program: &[String]) -> Result<(BufReader<Pipe>, Complaint), Unstarted> {
        let mut child = spawn_there(&self.host, &self.starting.reach, &self.starting.command_line(program))
            .map_err(|error| Unstarted { is_missing: false, why: error.to_string() })?;
        let complaint = listen(child.stderr.take().expect("it is piped"));
        *self.orders.lock() = child.stdin.take();
        let mut input = BufReader::new(Pipe { output: child.stdout.take().expect("it is piped") });
        *self.child.lock() = Some(child);
        let heard = Heard::default();
        match find(&mut input, GREETING, &heard, |rest| rest.trim().parse().ok()) {
            Ok(VERSION) => Ok((input, complaint)),
            Ok(theirs) => Err(self.not_started(true, Unclear::Version(theirs).to_string(), &complaint)),
            Err(why) => {
                let why = format!(
                    "no mover answers ({}); is driftless of this version installed there (--agent-path, --deploy)?",
                    unheard(&why, &heard)
                );
                Err(self.not_started(self.is_missing(), why, &complaint))
            }
        }
    }

    fn not_started(&self, is_missing: bool, why: String, complaint: &Complaint) -> Unstarted {
        self.hang_up();
        Unstarted { is_missing, why: complained(complaint, why) }
    }

    /// Whether the line stood and has ended, so that it is the program that is not there.
    fn is_missing(&self) -> bool {
        let mut child = self.child.lock();
        let Some(child) = child.as_mut() else { return false };
        let until = Instant::now() + PARTING;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return status.code().is_some_and(|code| code != SSH_FAILED),
                Ok(None) if Instant::now() < until => std::thread::sleep(TICK),
                _ => return false,
            }
        }
    }

    /// Has a batch carried out, and passes on what is said of it.
    fn carry(&self, batch: &Waiting, input: &mut BufReader<Pipe>, (shared, say): (&Shared, &Sender<Word>)) -> io::Result<Carried> {
        let brief = shared.state.lock().brief.clone().expect("it came with the batch");
        self.order(&encode(&Order::Batch { brief: Box::new(brief), run: batch.run, id: batch.id, batch: batch.batch.clone() }))?;
        loop {
            let message = read_message(input)?.ok_or_else(|| io::Error::other("the mover has ended, or the connection to it"))?;
            match decode(&message).map_err(|unclear| io::Error::other(unclear.to_string()))? {
                Report::Alive(sign) => {
                    let _the_end_of_the_line_is_met_where_it_is_read = self.order(&encode(&Order::Heard));
                    let _the_run_may_be_over = say.send(Word::Alive(Box::new(Alive { mover: self.host.clone(), ..sign })));
                }
                Report::Part(part) => {
                    let last = part.last;
                    if last {
                        shared.state.lock().busy.remove(&self.index);
                    }
                    let _the_run_may_be_over = say.send(Word::Part(PartOfOutcome { mover: self.host.clone(), ..part }, NO_TICKET));
                    if last {
                        return Ok(Carried::Done);
                    }
                }
                Report::Failed { reason, is_misfit: true, .. } => return Ok(Carried::Misfit(reason)),
                Report::Failed { reason, .. } => return Ok(Carried::Failed(reason)),
            }
        }
    }

    fn order(&self, body: &[u8]) -> io::Result<()> {
        let mut orders = self.orders.lock();
        write_message(orders.as_mut().ok_or(io::ErrorKind::NotConnected)?, body)
    }

    fn hang_up(&self) {
        self.orders.lock().take();
        if let Some(mut child) = self.child.lock().take() {
            let _gone_already = child.kill();
            let _it_was_started_here = child.wait();
        }
    }
}

/// Why a connection did not last until the end of the run.
struct Failed {
    connected: bool,
    /// A batch was carried out on it.
    worked: bool,
    why: String,
}

/// Why there is no mover on a host.
struct Unstarted {
    /// The host was reached, and has no driftless, or one of another version.
    is_missing: bool,
    why: String,
}

/// What became of a batch on a line that stands.
enum Carried {
    Done,
    Failed(String),
    /// As would any other.
    Misfit(String),
}

/// The next batch for a host that has nothing to do; none when the run is over, or the host is dismissed.
fn take(shared: &Shared, host: &HostLine) -> Option<Waiting> {
    let mut state = shared.state.lock();
    state.idle += 1;
    let taken = loop {
        if state.over || state.dismissed.contains_key(&host.host) {
            break None;
        }
        if let Some(batch) = state.waiting.pop_front() {
            break Some(batch);
        }
        state = shared.changed.wait(state);
    };
    state.idle -= 1;
    if taken.is_some() {
        state.busy.insert(host.index, Some(Instant::now()));
    }
    taken
}

/// Puts a batch back that this host can do nothing about, and gives the host no other.
fn leave_out(shared: &Shared, host: &str, (batch, why): (Waiting, String)) {
    let mut state = shared.state.lock();
    state.dismissed.insert(host.to_owned(), why);
    state.waiting.push_front(batch);
    drop(state);
    shared.changed.notify_all();
}

/// Puts a batch back for another host, or gives it up after too many tries.
fn put_back(shared: &Shared, batch: Waiting, reason: &str) {
    let mut state = shared.state.lock();
    let attempts = batch.attempts + 1;
    if attempts >= ATTEMPTS_MAX {
        state.given_up.push((batch.id, format!("{reason} (tried {})", show_counted(attempts.into(), "time", "times"))));
    } else {
        state.waiting.push_front(Waiting { attempts, ..batch });
    }
    drop(state);
    shared.changed.notify_one();
}

fn pause(shared: &Shared, pause: Duration) {
    let until = Instant::now() + pause;
    while Instant::now() < until && !shared.state.lock().over {
        std::thread::sleep(TICK);
    }
}

/// Standard output of a mover; silence for too long is the end of it.
struct Pipe {
    output: ChildStdout,
}

impl Read for Pipe {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        use rustix::event::{PollFd, PollFlags, poll};
        let limit = rustix::fs::Timespec { tv_sec: SILENCE.as_secs() as i64, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&self.output, PollFlags::IN)], Some(&limit))? {
            0 => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no sign of life for {} s", SILENCE.as_secs()))),
            _ => self.output.read(bytes),
        }
    }
}

/// The end of what ssh and the mover said on standard error.
type Complaint = Arc<Mutex<String>>;

fn listen(stderr: std::process::ChildStderr) -> Complaint {
    let complaint = Complaint::default();
    let kept = complaint.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            let line = driftless_model::escape(line.trim_ascii());
            if !line.is_empty() {
                *kept.lock() = line;
            }
        }
    });
    complaint
}

/// Why, with what was said about it.
fn complained(complaint: &Complaint, why: String) -> String {
    // What was said may be on its way still.
    std::thread::sleep(TICK);
    let said = complaint.lock().clone();
    if said.is_empty() { why } else { format!("{why}: {said}") }
}

/// Why there was no greeting, with what came in its place.
fn unheard(why: &io::Error, heard: &Heard) -> String {
    let why = match why.kind() {
        io::ErrorKind::InvalidData => "too much else was said".into(),
        io::ErrorKind::UnexpectedEof => "the connection has ended".into(),
        _ => why.to_string(),
    };
    if heard.words().is_empty() { why } else { format!("{why}; {}", heard.question()) }
}

fn write_message(out: &mut impl Write, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(body)?;
    out.flush()
}

/// The next message; none at the end.
fn read_message(input: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > MESSAGE_BYTES_MAX {
        return Err(io::Error::other("a message longer than any may be"));
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    Ok(Some(body))
}

/// A mover whose coordinator is at the other end of its standard streams.
pub fn serve(mut crew: Crew, signals: &Signals) -> Exit {
    let reports_out = Arc::new(Mutex::new(io::stdout()));
    {
        let mut out = reports_out.lock();
        let greeted = writeln!(out, "{GREETING}{VERSION}").and_then(|()| out.flush());
        if greeted.is_err() {
            return Exit::CouldNotRun;
        }
    }
    let (orders, yields, gone) = (channel(), Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (order, orders) = orders;
    let signs = Arc::new(Signs::default());
    let mut line = StdioLine { out: reports_out.clone(), yields: yields.clone(), gone: gone.clone(), signs: signs.clone() };
    let (asked, hung_up) = (yields.clone(), gone.clone());
    std::thread::spawn(move || read_orders(&order, &asked, &hung_up, &signs));
    while !signals.stop.load(Relaxed) {
        let next = orders.recv_timeout(Duration::from_secs(1));
        let Order::Batch { brief, run, id, batch } = (match next {
            Ok(order) => order,
            // A sign of life, for a coordinator that has no work either, is not needed: the line itself is watched by ssh.
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Exit::Equal,
        }) else {
            continue;
        };
        yields.store(false, Relaxed);
        let said = match crew.work_off((run, id), (&brief, &batch), &mut line, &signals.stop) {
            Ok(outcome) => reports((run, id), fastrand::u64(..), crew.name(), outcome),
            Err(Failure::Dropped) => return Exit::CouldNotRun,
            Err(Failure::Misfit(reason)) => vec![Report::Failed { id, mover: crew.name().to_owned(), reason, is_misfit: true }],
            Err(Failure::Here(reason) | Failure::Stale(reason)) => {
                vec![Report::Failed { id, mover: crew.name().to_owned(), reason, is_misfit: false }]
            }
        };
        let written = said.iter().try_for_each(|report| write_message(&mut *reports_out.lock(), &encode(report)));
        if written.is_err() {
            return Exit::CouldNotRun;
        }
    }
    Exit::Signal(signals.number())
}

fn read_orders(order: &Sender<Order>, yields: &AtomicBool, gone: &AtomicBool, signs: &Signs) {
    let mut input = BufReader::new(io::stdin());
    while let Ok(Some(message)) = read_message(&mut input) {
        match decode(&message) {
            Ok(Order::Yield) => yields.store(true, Relaxed),
            Ok(Order::Heard) => signs.answered(),
            Ok(batch) => drop(order.send(batch)),
            Err(unclear) => {
                eprintln!("driftless mover: {unclear}");
                break;
            }
        }
    }
    gone.store(true, Relaxed);
}

/// Signs of life of this mover, each of which the coordinator answers in turn. What comes after a pause may be an old answer, so it
/// tells of the moment of the question.
#[derive(Default)]
struct Signs {
    sent: Mutex<VecDeque<Moment>>,
    lease: Mutex<Option<Arc<Lease>>>,
}

impl Signs {
    fn answered(&self) {
        let asked = self.sent.lock().pop_front();
        if let (Some(asked), Some(lease)) = (asked, &*self.lease.lock()) {
            lease.heard(asked);
        }
    }
}

struct StdioLine {
    out: Arc<Mutex<io::Stdout>>,
    yields: Arc<AtomicBool>,
    gone: Arc<AtomicBool>,
    signs: Arc<Signs>,
}

impl Line for StdioLine {
    fn alive(&mut self, report: Report) {
        self.signs.sent.lock().push_back(Moment::now());
        if write_message(&mut *self.out.lock(), &encode(&report)).is_err() {
            self.gone.store(true, Relaxed);
        }
    }

    fn is_hungry(&mut self) -> bool {
        self.yields.load(Relaxed)
    }

    fn is_lost(&mut self) -> bool {
        self.gone.load(Relaxed)
    }

    fn begin(&mut self, lease: &Arc<Lease>) {
        *self.signs.lease.lock() = Some(lease.clone());
    }

    fn ask_for_sign(&mut self, _lease: &Lease) {
        // Each of this mover's is answered.
    }
}
