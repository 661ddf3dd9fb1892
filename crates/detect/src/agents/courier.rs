//! The thread that asks agents to deliver to a mirror what they have heard, round after round.
//!
//! A detector never waits: it asks for a round, and is woken when that is complete. A round covers
//! everything that was said on this host before it began. An agent that does not answer keeps the
//! round from being complete, and it is asked again until it does.

use super::{Delivery, Question, Registration, concerned};
use crate::detector::{Deaf, Waker};
use driftless_lock::{Condvar, Mutex};
use driftless_model::{cause, escape};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Age of a round after which the detector asks for the next one, also if no user waits.
const ROUND_AGE_MAX: Duration = Duration::from_secs(2);
/// Longest silence of an agent: it says several times within this that it is at work.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Pause before an agent is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// Time without success after which the detector is said to be deaf: a restart takes less.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of a line of an answer.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Asks the agents that hear what concerns one mirror.
#[derive(Debug)]
pub(crate) struct Courier(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The socket of the mirror; agents register beside it.
    mirror: PathBuf,
    source: Vec<u8>,
    waker: Arc<Waker>,
    rounds: Mutex<Rounds>,
    changed: Condvar,
}

#[derive(Debug)]
struct Rounds {
    /// The round that is wanted or at work.
    wanted: Option<Round>,
    /// The last one that is complete; before the first one, the start of this thread.
    last: Round,
    /// Why the one at work is not complete for long.
    why: Option<String>,
    is_over: bool,
}

/// A round of questions to all agents.
#[derive(Debug, Clone, Copy)]
struct Round {
    /// Number of requests that it covers.
    asked: u64,
    began: Instant,
    is_awaited: bool,
}

impl Courier {
    /// Starts the thread for the mirror of `source` that listens at a socket.
    pub(crate) fn start(
        mirror: PathBuf,
        source: Vec<u8>,
        waker: Arc<Waker>,
    ) -> io::Result<Courier> {
        let shared = Arc::new(Shared {
            mirror,
            source,
            waker,
            rounds: Mutex::new(Rounds {
                wanted: None,
                last: Round {
                    asked: 0,
                    began: Instant::now(),
                    is_awaited: false,
                },
                why: None,
                is_over: false,
            }),
            changed: Condvar::default(),
        });
        let at_work = shared.clone();
        let run = move || at_work.run();
        Builder::new().name("courier".into()).spawn(run)?;
        Ok(Courier(shared))
    }

    /// Returns the moment before which everything was delivered, and begins a round if that is not
    /// late enough: not all of the requests up to `asked` came before it.
    pub(crate) fn delivered(&self, asked: u64) -> Result<Instant, Deaf> {
        let shared = &self.0;
        let mut rounds = shared.rounds.lock();
        let is_awaited = rounds.last.asked < asked;
        let is_old = rounds.last.began.elapsed() > ROUND_AGE_MAX;
        if rounds.wanted.is_none() && (is_awaited || is_old) {
            let round = Round {
                asked,
                began: Instant::now(),
                is_awaited,
            };
            // Most hosts have no agent.
            if matches!(shared.agents(), Ok(agents) if agents.is_empty()) {
                rounds.last = round;
            } else {
                rounds.wanted = Some(round);
                shared.changed.notify_all();
            }
        }
        match &rounds.why {
            Some(why) => Err(Deaf::for_now(why.clone())),
            None => Ok(rounds.last.began),
        }
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        self.0.rounds.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn agents(&self) -> io::Result<Vec<Registration>> {
        let folder = self.mirror.parent().unwrap_or(&self.mirror);
        Ok(concerned(folder, &self.source)?)
    }

    fn run(&self) {
        while let Some(round) = self.next() {
            let since = Instant::now();
            while let Err(why) = self.deliver(round, since) {
                if !self.note(why, since) {
                    return;
                }
            }
            let mut rounds = self.rounds.lock();
            (rounds.last, rounds.wanted, rounds.why) = (round, None, None);
            drop(rounds);
            self.waker.wake();
        }
    }

    /// Waits for the next round; `None` once nobody listens.
    fn next(&self) -> Option<Round> {
        let mut rounds = self.rounds.lock();
        loop {
            if rounds.is_over {
                return None;
            }
            if rounds.wanted.is_some() {
                return rounds.wanted;
            }
            rounds = self.changed.wait(rounds);
        }
    }

    /// Notes why a round is not complete, and waits before the next try; false once nobody listens.
    fn note(&self, why: String, since: Instant) -> bool {
        self.complain(why, since);
        let rounds = self.rounds.lock();
        let rounds = self.changed.wait_for(rounds, ASK_AGAIN);
        !rounds.is_over
    }

    /// Has the detector say why a round is not complete, if that takes long.
    fn complain(&self, why: String, since: Instant) {
        if since.elapsed() < PATIENCE {
            return;
        }
        let mut rounds = self.rounds.lock();
        if rounds.why.replace(why).is_none() {
            drop(rounds);
            self.waker.wake();
        }
    }

    /// Asks all agents; an error says which one has not delivered.
    fn deliver(&self, round: Round, since: Instant) -> Result<(), String> {
        let agents = self.agents().map_err(|error| cause(&error))?;
        for agent in agents {
            let asked = self.deliver_one(&agent, round, since);
            asked.map_err(|error| unanswered(&agent, &error))?;
        }
        Ok(())
    }

    fn deliver_one(&self, agent: &Registration, round: Round, since: Instant) -> io::Result<()> {
        let question = Question::Deliver {
            mirror: self.mirror.as_os_str().as_bytes().to_vec(),
            is_awaited: round.is_awaited,
        };
        let mut stream = UnixStream::connect(&agent.socket)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        stream.set_write_timeout(Some(SILENCE_MAX))?;
        let mut text = serde_json::to_vec(&question)?;
        text.push(b'\n');
        stream.write_all(&text)?;
        let mut lines = BufReader::new(stream);
        loop {
            let mut line = Vec::new();
            let mut bounded = (&mut lines).take(LINE_BYTES_MAX);
            if bounded.read_until(b'\n', &mut line)? == 0 {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            match serde_json::from_slice(&line)? {
                Delivery::Done => return Ok(()),
                Delivery::Waiting { why: Some(why) } => {
                    let name = escape(agent.name.as_bytes());
                    self.complain(format!("watch daemon \"{name}\": {why}"), since);
                }
                Delivery::Waiting { why: None } => {}
            }
            if self.rounds.lock().is_over {
                return Ok(());
            }
        }
    }
}

/// Says what is wrong with an agent that has not delivered.
fn unanswered(agent: &Registration, error: &io::Error) -> String {
    let name = escape(agent.name.as_bytes());
    let why = match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it does not answer".into(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => "it does not run".into(),
        _ => cause(error),
    };
    format!(
        "watch daemon \"{name}\": cannot deliver the announcements of programs: {why}; start it (driftless watch CONFIG), \
         or end it for good (driftless watch CONFIG --end)"
    )
}
