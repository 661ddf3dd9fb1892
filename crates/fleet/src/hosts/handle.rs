//! One host and the mover on it, which a thread of the coordinator starts, gives its work, and
//! starts again.

use crate::hosts::frames::{read_message, write_message};
use crate::hosts::launch::MoverLauncher;
use crate::hosts::pipe::{Complaint, Pipe, complained, last_line, listen, unheard};
use crate::hosts::waiting::{Shared, Waiting, give_back, leave_out, pause, put_back, take};
use crate::hosts::{GREETING, TICK};
use driftless_engine::message::{Order, Report, Unclear, VERSION, decode, encode};
use driftless_engine::{Alive, PartOfOutcome, Word};
use driftless_lock::Mutex;
use driftless_remote::{
    Deploy, Heard, Reach, ReachError, SSH_FAILED, SilenceLimit, bring, find, in_place_of,
};
use std::io::{self, BufReader, ErrorKind};
use std::process::{Child, ChildStdin};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// A host that failed so many times in a row is left alone, unless it was reached before and may
/// come back in time.
pub const FAILURES_MAX: u32 = 6;
/// A mover that greeted and fell silent so many times in a row, and never worked, is left alone: no
/// later than a minute after the beginning.
const SILENCES_MAX: u32 = 3;
/// Pause after the first of them; it doubles with each.
pub const PAUSE: Duration = Duration::from_millis(500);
/// How long a mover has to end when its output has.
const END_GRACE: Duration = Duration::from_secs(2);
/// What comes over these connections is not acknowledged: a batch whose connection is lost is put
/// back.
pub const NO_TICKET: u64 = 0;

/// How movers are started.
pub struct Starting {
    /// How the host is reached.
    pub reach: Reach,
    /// Command that starts movers.
    pub launcher: MoverLauncher,
    /// What the program is started with.
    pub arguments: Vec<String>,
    /// How long a connection that is lost is tried to be made again.
    pub patience: Duration,
}

impl Starting {
    /// Returns the program on a host, with what starts it.
    pub fn program(&self) -> &[String] {
        match &self.launcher {
            MoverLauncher::Ssh => &self.reach.agent,
            MoverLauncher::Srun { program } => program,
        }
    }

    /// Returns what is copied to a host that lacks the program. Nodes of a job get no program: ssh
    /// may not reach them.
    fn deploy(&self) -> Option<&Deploy> {
        match self.launcher {
            MoverLauncher::Ssh => self.reach.deploy.as_ref(),
            MoverLauncher::Srun { .. } => None,
        }
    }
}

/// One host, and the line to it while there is one.
pub struct MoverHandle {
    pub index: usize,
    pub host: String,
    pub starting: Arc<Starting>,
    /// The program there, with what starts it.
    pub program: Mutex<Vec<String>>,
    pub child: Mutex<Option<Child>>,
    pub orders: Mutex<Option<ChildStdin>>,
}

impl MoverHandle {
    /// Keeps a mover at work until the run is over.
    pub fn serve(&self, shared: &Shared, say: &Sender<Word>) {
        let (mut failures, mut silences, mut has_worked, mut stood) = (0, 0, false, None);
        while let Err(failed) = self.session(shared, say) {
            failures = if failed.worked { 1 } else { failures + 1 };
            silences = if failed.is_silent { silences + 1 } else { 0 };
            let silences_max = if stood.is_none() && !failed.connected {
                1
            } else {
                SILENCES_MAX
            };
            if failed.connected {
                stood = Some(Instant::now());
            }
            let may_come_back =
                !failed.connected && stood.is_some_and(|at| at.elapsed() < self.starting.patience);
            has_worked |= failed.worked;
            let is_mute = !has_worked && silences >= silences_max;
            if is_mute || failures >= FAILURES_MAX && !may_come_back {
                return shared
                    .state
                    .lock()
                    .gone
                    .push(format!("{}: {}", self.host, failed.why));
            }
            pause(shared, PAUSE * 2u32.pow(failures.min(FAILURES_MAX) - 1));
            if shared.state.lock().over {
                return;
            }
        }
        let mut state = shared.state.lock();
        if let Some(why) = state
            .dismissed
            .get(&self.host)
            .filter(|_| !state.over)
            .cloned()
        {
            state.gone.push(format!("{}: {why}", self.host));
        }
    }

    /// One connection; it ends well when the run is over, or the host is dismissed.
    fn session(&self, shared: &Shared, say: &Sender<Word>) -> Result<(), Failed> {
        let (mut input, complaint) = self.connect().map_err(Unstarted::failed)?;
        let (mut worked, mut is_silent) = (false, false);
        let ended = loop {
            let Some(batch) = take(shared, (self.index, &self.host)) else {
                break Ok(());
            };
            match self.carry(&batch, &mut input, (shared, say)) {
                Ok(Carried::Done) => worked = true,
                Ok(Carried::Misfit(why)) => {
                    leave_out(shared, &self.host, (batch, why));
                    break Ok(());
                }
                Ok(Carried::Failed(reason)) => {
                    give_back(shared, batch, &format!("{}: {reason}", self.host));
                    break Err(complained(&complaint, reason));
                }
                Err(why) => {
                    is_silent = why.kind() == ErrorKind::TimedOut;
                    let since = if is_silent && !worked {
                        " after the greeting of the mover"
                    } else {
                        ""
                    };
                    // What it said last is all that is known of a mover that ends.
                    let why = complained(&complaint, format!("{why}{since}"));
                    put_back(shared, batch, &format!("{}: {why}", self.host));
                    break Err(why);
                }
            }
        };
        shared.state.lock().busy.remove(&self.index);
        self.hang_up();
        ended.map_err(|why| Failed {
            connected: true,
            worked,
            is_silent,
            why,
        })
    }

    /// Starts a mover there, and before that brings the program along if it is wanted and there is
    /// none.
    fn connect(&self) -> Result<(BufReader<Pipe>, Complaint), Unstarted> {
        let program = self.program.lock().clone();
        match (self.start(&program), self.starting.deploy()) {
            (
                Err(Unstarted {
                    miss: Miss::Program,
                    ..
                }),
                Some(deploy),
            ) => {
                let not_brought = |error| Unstarted {
                    miss: Miss::Program,
                    why: match error {
                        ReachError::NotDeployed { why, .. } => {
                            format!("cannot deploy driftless: {why}")
                        }
                        error => error.to_string(),
                    },
                };
                let brought =
                    bring(&self.host, &self.starting.reach, deploy).map_err(not_brought)?;
                let brought = in_place_of(&program, brought);
                self.program.lock().clone_from(&brought);
                self.start(&brought)
            }
            (started, _) => started,
        }
    }

    fn start(&self, program: &[String]) -> Result<(BufReader<Pipe>, Complaint), Unstarted> {
        let (launcher, reach) = (&self.starting.launcher, &self.starting.reach);
        let words = [program, self.starting.arguments.as_slice()].concat();
        let mut child = launcher
            .spawn(&self.host, reach, &words)
            .map_err(|why| Unstarted {
                miss: Miss::Connection,
                why,
            })?;
        let complaint = listen(child.stderr.take().expect("it is piped"));
        *self.orders.lock() = child.stdin.take();
        let limit = SilenceLimit::new(&child, self.starting.reach.connecting);
        let mut input = BufReader::new(Pipe {
            output: child.stdout.take().expect("it is piped"),
            greeting: Some(limit),
        });
        *self.child.lock() = Some(child);
        let heard = Heard::default();
        match find(&mut input, GREETING, &heard, |rest| {
            rest.trim().parse().ok()
        }) {
            Ok(VERSION) => {
                input.get_mut().greeting = None;
                Ok((input, complaint))
            }
            Ok(theirs) => {
                let why = Unclear::Version(theirs).to_string();
                Err(self.not_started(Miss::Program, why, &complaint))
            }
            Err(why) if why.kind() == ErrorKind::TimedOut => {
                let why = format!("cannot connect: {}", unheard(&why, &heard));
                Err(self.not_started(Miss::Greeting, why, &complaint))
            }
            Err(why) => {
                let (miss, code) = self.miss();
                let output = match why.kind() {
                    ErrorKind::UnexpectedEof => heard.words(),
                    _ => unheard(&why, &heard),
                };
                self.hang_up();
                let why = launcher.unstarted(code, &last_line(&complaint), &output);
                Err(Unstarted { miss, why })
            }
        }
    }

    fn not_started(&self, miss: Miss, why: String, complaint: &Complaint) -> Unstarted {
        self.hang_up();
        Unstarted {
            miss,
            why: complained(complaint, why),
        }
    }

    /// Returns the missing part of a line that has ended, and the exit code of ssh. The program is
    /// missing if the line stood.
    fn miss(&self) -> (Miss, Option<i32>) {
        let mut child = self.child.lock();
        let Some(child) = child.as_mut() else {
            return (Miss::Connection, None);
        };
        let until = Instant::now() + END_GRACE;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => {
                    let code = status.code();
                    let miss = match code.is_some_and(|code| code != SSH_FAILED) {
                        true => Miss::Program,
                        false => Miss::Connection,
                    };
                    return (miss, code);
                }
                Ok(None) if Instant::now() < until => std::thread::sleep(TICK),
                _ => return (Miss::Connection, None),
            }
        }
    }

    /// Has a batch carried out, and passes on what is said of it.
    fn carry(
        &self,
        batch: &Waiting,
        input: &mut BufReader<Pipe>,
        (shared, say): (&Shared, &Sender<Word>),
    ) -> io::Result<Carried> {
        self.order(&encode(&Order::Batch {
            brief: Box::new(shared.brief_of(batch)),
            run: batch.run,
            id: batch.id,
            batch: batch.batch.clone(),
        }))?;
        loop {
            let message = read_message(input)?
                .ok_or_else(|| io::Error::other("the mover has ended, or the connection to it"))?;
            match decode(&message).map_err(|unclear| io::Error::other(unclear.to_string()))? {
                Report::Alive(sign) => {
                    let _the_end_of_the_line_is_met_where_it_is_read =
                        self.order(&encode(&Order::Heard));
                    let _the_run_may_be_over = say.send(Word::Alive(Box::new(Alive {
                        mover: self.host.clone(),
                        ..sign
                    })));
                }
                Report::Part(part) => {
                    let last = part.last;
                    if last {
                        shared.state.lock().busy.remove(&self.index);
                    }
                    let _the_run_may_be_over = say.send(Word::Part(
                        PartOfOutcome {
                            mover: self.host.clone(),
                            ..part
                        },
                        NO_TICKET,
                    ));
                    if last {
                        return Ok(Carried::Done);
                    }
                }
                Report::Failed {
                    reason,
                    is_misfit: true,
                    ..
                } => return Ok(Carried::Misfit(reason)),
                Report::Failed { reason, .. } => return Ok(Carried::Failed(reason)),
            }
        }
    }

    /// Sends an order there.
    ///
    /// # Errors
    /// There is no connection, or it takes nothing.
    pub fn order(&self, body: &[u8]) -> io::Result<()> {
        let mut orders = self.orders.lock();
        write_message(orders.as_mut().ok_or(io::ErrorKind::NotConnected)?, body)
    }

    /// Ends the mover.
    pub fn hang_up(&self) {
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
    /// The host said nothing for too long.
    is_silent: bool,
    why: String,
}

/// Why there is no mover on a host.
struct Unstarted {
    miss: Miss,
    why: String,
}

impl Unstarted {
    /// Returns the failure of a session that did not begin.
    fn failed(self) -> Failed {
        Failed {
            connected: false,
            worked: false,
            is_silent: self.miss == Miss::Greeting,
            why: self.why,
        }
    }
}

/// Part of a start that did not come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Miss {
    /// The host was not reached.
    Connection,
    /// Something was reached and has not greeted within its time.
    Greeting,
    /// The host was reached, and has no driftless, or one of another version.
    Program,
}

/// What became of a batch on a line that stands.
enum Carried {
    Done,
    Failed(String),
    /// As would any other.
    Misfit(String),
}
