//! The coordinator's way to movers that it has started.

use crate::executor::Executor;
use crate::hosts::TICK;
use crate::hosts::alone;
use crate::hosts::handle::{MoverHandle, Starting};
use crate::hosts::waiting::{Shared, Waiting};
use driftless_engine::message::{Order, encode};
use driftless_engine::{Batch, Brief, Exchange, Unreachable, Word};
use driftless_lock::{Condvar, Mutex};
use driftless_session::Witness;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The coordinator's way to movers that it has started.
pub struct HostsExchange<'a> {
    shared: Arc<Shared>,
    words: Receiver<Word>,
    hosts: Vec<Arc<MoverHandle>>,
    threads: Vec<std::thread::JoinHandle<()>>,
    told: usize,
    say: Sender<Word>,
    /// Carries out on this host what no mover can; `None` once it does.
    executor: Option<Executor>,
    witness: &'a dyn Witness,
}

impl<'a> HostsExchange<'a> {
    /// Starts a mover on each host. `executor` is for what none of them can carry out.
    pub fn start(
        (hosts, starting): (&[String], Starting),
        executor: Executor,
        witness: &'a dyn Witness,
    ) -> Self {
        let starting = Arc::new(starting);
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let (say, words) = channel();
        let line = |(index, host): (usize, &String)| {
            let (starting, program) = (starting.clone(), Mutex::new(starting.program().to_vec()));
            Arc::new(MoverHandle {
                index,
                host: host.clone(),
                starting,
                program,
                child: Mutex::new(None),
                orders: Mutex::new(None),
            })
        };
        let hosts: Vec<Arc<MoverHandle>> = hosts.iter().enumerate().map(line).collect();
        let serve = |host: &Arc<MoverHandle>| {
            let (host, shared, say) = (host.clone(), shared.clone(), say.clone());
            std::thread::spawn(move || host.serve(&shared, &say))
        };
        let threads = hosts.iter().map(serve).collect();
        HostsExchange {
            shared,
            words,
            hosts,
            threads,
            told: 0,
            say,
            executor: Some(executor),
            witness,
        }
    }

    /// Asks movers to leave some of their work to others, if any of these has nothing to do.
    fn share_out(&self) {
        let asked: Vec<usize> = {
            let mut state = self.shared.state.lock();
            if state.idle == 0 || !state.waiting.is_empty() {
                return;
            }
            let ready =
                |since: &Option<Instant>| since.is_some_and(|since| since.elapsed() > 2 * TICK);
            let asked: Vec<usize> = state
                .busy
                .iter()
                .filter(|(index, since)| **index < self.hosts.len() && ready(since))
                .map(|(index, _)| *index)
                .collect();
            state.busy.extend(asked.iter().map(|index| (*index, None)));
            asked
        };
        for index in asked {
            let _a_line_that_is_lost_is_noticed_where_it_is_read =
                self.hosts[index].order(&encode(&Order::Yield));
        }
    }

    /// Says which movers are gone.
    fn tell_gone(&mut self) {
        let gone = self.shared.state.lock().gone.clone();
        gone.iter().skip(self.told).for_each(|why| {
            self.witness
                .note(&format!("{why}; the run goes on without it"))
        });
        self.told = gone.len();
    }

    /// Has this host carry out what no mover can, if anything waits for it.
    ///
    /// # Errors
    /// Neither a mover nor this host can carry it out.
    fn help_out(&mut self) -> Result<(), Unreachable> {
        let mut state = self.shared.state.lock();
        let are_gone = state.gone.len() == self.hosts.len();
        let waits = are_gone && !state.waiting.is_empty();
        if state.over || !waits && state.for_own.is_empty() {
            return Ok(());
        }
        if let Some(why) = &state.own_gone {
            return Err(Unreachable::new(format!("no mover is left: {why}")));
        }
        let is_alone = are_gone && !std::mem::replace(&mut state.alone, are_gone);
        let refusal = state.refusal.clone();
        drop(state);
        if is_alone {
            self.witness
                .note("all movers are gone; this host goes on alone");
        }
        if let Some(executor) = self.executor.take() {
            if let Some(why) = refusal.filter(|_| !are_gone) {
                self.witness.note(&format!(
                    "movers cannot carry out a part of the work, so this host does: {why}"
                ));
            }
            let (shared, say, index) = (self.shared.clone(), self.say.clone(), self.hosts.len());
            self.threads.push(std::thread::spawn(move || {
                alone::serve(executor, index, &shared, say)
            }));
        }
        self.shared.changed.notify_all();
        Ok(())
    }
}

impl Exchange for HostsExchange<'_> {
    fn send(&mut self, brief: &Brief, run: u64, id: u64, batch: &Batch) -> Result<(), Unreachable> {
        let mut state = self.shared.state.lock();
        state.brief = Some(brief.clone());
        state.waiting.push_back(Waiting {
            run,
            id,
            batch: batch.clone(),
            attempts: 0,
            brief: None,
        });
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Leaves the batch to the coordinator's own host, which reads what the coordinator reads.
    fn send_elsewhere(
        &mut self,
        brief: &Brief,
        (run, id): (u64, u64),
        batch: &Batch,
        why: &str,
    ) -> Result<(), Unreachable> {
        let mut state = self.shared.state.lock();
        let waiting = Waiting {
            run,
            id,
            batch: batch.clone(),
            attempts: 0,
            brief: Some(Box::new(brief.clone())),
        };
        if state.own_gone.is_some() {
            state.waiting.push_back(waiting);
        } else {
            state.refusal.get_or_insert_with(|| why.to_owned());
            state.for_own.push_back(waiting);
        }
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    fn renew(&mut self, brief: &Brief) {
        self.shared.state.lock().brief = Some(brief.clone());
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Word>, Unreachable> {
        self.share_out();
        match self.words.recv_timeout(limit.min(TICK)) {
            Ok(word) => Ok(Some(word)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                self.tell_gone();
                self.help_out().map(|()| None)
            }
        }
    }

    fn accept(&mut self, _ticket: u64) {}

    fn waits(&mut self) -> Result<bool, Unreachable> {
        // Whatever is lost with a connection is put back at once.
        Ok(true)
    }

    fn idle(&mut self) -> usize {
        let state = self.shared.state.lock();
        let hosts = self.hosts.len();
        let busy = state.busy.range(..hosts).count();
        hosts.saturating_sub(busy + state.gone.len())
    }

    fn at_work(&mut self) -> usize {
        self.shared.state.lock().busy.len()
    }

    /// Ends the movers, who see the end of their standard input.
    fn call_back(&mut self) -> Result<(), Unreachable> {
        self.shared.state.lock().over = true;
        self.shared.changed.notify_all();
        self.hosts
            .iter()
            .for_each(|host| drop(host.orders.lock().take()));
        Ok(())
    }

    fn dismiss(&mut self, mover: &str, why: &str) {
        self.shared
            .state
            .lock()
            .dismissed
            .insert(mover.to_owned(), why.to_owned());
        self.shared.changed.notify_all();
    }

    fn parked(&mut self, _run: u64) -> Result<Vec<(u64, String)>, Unreachable> {
        Ok(std::mem::take(&mut self.shared.state.lock().given_up))
    }

    fn clear(&mut self, _words: bool) -> Result<(), Unreachable> {
        let mut state = self.shared.state.lock();
        state.waiting.clear();
        state.for_own.clear();
        Ok(())
    }
}

impl Drop for HostsExchange<'_> {
    fn drop(&mut self) {
        self.tell_gone();
        self.shared.state.lock().over = true;
        self.shared.changed.notify_all();
        self.hosts.iter().for_each(|host| host.hang_up());
        self.threads
            .drain(..)
            .for_each(|thread| drop(thread.join()));
    }
}
