//! The pool of a job: what its processes say to each other through the broker.

use super::{Failure, announcements};
use crate::exit::Exit;
use crate::output::human::host_name;
use driftless_announce::Talk;
use driftless_detect::Sharing;
use driftless_mirror::job::Job;
use driftless_mirror::live::Pool;
use driftless_mirror::message::{Inboxes, Message};
use driftless_mirror::pool::{Lead, Member, Outlet, Side, Word, Words};
use driftless_tree::random_id;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};

/// What a process of a pool has: by what it talks, and by what its detector is told.
pub struct End {
    /// For the detector of the queue.
    pub sharing: Arc<Sharing>,
    /// It helps another mirror.
    pub is_member: bool,
    own: u64,
    outlet: Outlet,
    words: Words,
}

impl End {
    /// One, where a job can have a pool: it has one replica, and hears a queue.
    pub fn of(job: &Job, is_member: bool) -> Option<End> {
        let can = job.announcements.is_some() && job.replicas.len() == 1 && !job.reads_snapshots();
        can.then(|| {
            let (outlet, words) = Outlet::new();
            End {
                sharing: Sharing::new(!is_member),
                is_member,
                own: u64::try_from(random_id() >> 65).unwrap_or(1).max(1),
                outlet,
                words,
            }
        })
    }

    /// The pool as the life of the replica has it; `hears` is which announcements, and what they
    /// call the source.
    pub fn pool(&self, job: &Job, hears: String) -> Pool {
        let side = match self.is_member {
            false => Side::Lead(Lead::new(self.own)),
            true => {
                let replica = job.replicas[0].clone();
                Side::Member(Box::new(Member::new(self.own, replica, job.rules())))
            }
        };
        let (outlet, sharing) = (self.outlet.clone(), self.sharing.clone());
        Pool::new(side, outlet, sharing, (host_name(), hears))
    }

    /// Begins to talk.
    pub fn talk(self, job: &Job, inboxes: Inboxes) -> Result<Talking, Failure> {
        let failed = |why: String| (Exit::CouldNotRun, format!("{}: {why}", job.name));
        let talk = announcements::talk(job, (!self.is_member, self.own))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, words) = (is_over.clone(), self.words);
        let others = inboxes.clone();
        let mute = move |why: Option<String>| {
            others.send(|| Message::Mute(why.clone()));
        };
        let hear = move |text: &[u8]| {
            // What is no word is said by somebody of another version.
            if let Ok(word) = serde_json::from_slice::<Word>(text) {
                let word = Box::new(word);
                inboxes.send(|| Message::Pool(word.clone()));
            }
        };
        let thread = Builder::new().name("pool".into()).spawn(move || {
            let next = || words.next();
            Talk::run(talk, next, (hear, mute), || over.load(Relaxed));
        });
        let thread = thread.map_err(|error| failed(error.to_string()))?;
        Ok(Talking { is_over, thread })
    }
}

/// A talk that goes on.
pub struct Talking {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Talking {
    /// Ends it when the last words are said.
    pub fn end(self) {
        self.is_over.store(true, Relaxed);
        let _its_panic_was_told = self.thread.join();
    }
}
