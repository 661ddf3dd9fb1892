//! Several processes that keep one replica equal: a mirror that leads, and members that help it.
//!
//! All of them hear the same queue, and the broker shares its messages out. The mirror leads: it
//! alone holds the replica, walks, purges, and keeps what outlives a process. A member keeps
//! nothing: what it has not done stays at the broker, and what it cannot do it hands to the lead.
//! They talk through the broker ([`word`]). Whatever is said is said again about every second, so
//! that nothing depends on one message. What is heard is never trusted beyond what the replica and
//! its mark show.
//!
//! Nothing here reads a clock or sends anything: [`Lead`] and [`Member`] are told what time it is
//! and what was said.

mod crossings;
mod lead;
mod member;
mod word;

pub use crossings::Crossings;
pub use lead::{Lead, Round};
pub use member::Member;
pub use word::{LeadWord, Look, MemberWord, Word};

use crossbeam_channel::{Receiver, Sender, bounded};
use std::time::Duration;

/// How often each says how it stands.
pub const SAY_EVERY: Duration = Duration::from_secs(1);
/// A member that has not heard its lead for so long begins no more work.
pub const LEAD_HOLDS: Duration = Duration::from_secs(5);
/// After so long without its lead a member gives up what it has: longer than a lead takes to be
/// started again would not help, since that lends the replica anew.
pub const LEAD_GONE: Duration = Duration::from_secs(12);
/// A member that was not heard of for so long is none any more: its lease is over by then.
pub const MEMBER_GONE: Duration = Duration::from_secs(25);
/// So long after the last member was heard of, the lead is alone again.
pub const ALONE_AFTER: Duration = Duration::from_secs(60);
/// Words that wait to be sent; more are let go, since all is said again.
const WORDS_WAITING_MAX: usize = 64;

/// Which side of a pool a life is on, and where its words go.
pub enum Side {
    /// It leads.
    Lead(Lead),
    /// It helps.
    Member(Box<Member>),
}

/// Where words go out, and come in by [`crate::message::Message::Pool`].
#[derive(Debug, Clone)]
pub struct Outlet(Sender<Vec<u8>>);

impl Outlet {
    /// One, and where the words come out.
    pub fn new() -> (Outlet, Words) {
        let (sender, words) = bounded(WORDS_WAITING_MAX);
        (Outlet(sender), Words(words))
    }

    /// Says something, if there is room.
    pub fn say(&self, word: &Word) {
        if let Ok(text) = serde_json::to_vec(word) {
            let _it_is_said_again = self.0.try_send(text);
        }
    }
}

/// Where words come out that are to be said.
#[derive(Debug)]
pub struct Words(Receiver<Vec<u8>>);

impl Words {
    /// The next, as JSON, if there is one.
    pub fn next(&self) -> Option<Vec<u8>> {
        self.0.try_recv().ok()
    }
}
