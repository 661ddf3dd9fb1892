//! What a life does that shares its replica: as the lead of a pool, or as a member.

mod again;
mod member;

use super::Live;
use crate::ask::Answer;
use crate::dirty::Circumstance;
use crate::hands::Outcome;
use crate::pool::{Lead, LeadWord, Look, Member, MemberWord, Outlet, SAY_EVERY, Side, Word};
use crate::status::PoolMember;
use again::Again;
use crossbeam_channel::Receiver;
use driftless_detect::{Queue, Sharing};
use driftless_engine::Lent;
use driftless_model::{Change, RelPath, Scope};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often all are asked anew where that came to nothing.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// For how long the members are waited for at the end of their lead.
const QUIET_TIME_MAX: Duration = Duration::from_secs(8);
/// How often a replica that is to be lent and is not is opened.
const LEND_AGAIN: Duration = Duration::from_secs(1);
/// Words that are waited for are said again after this.
const SAY_SOON: Duration = Duration::from_millis(300);

/// The pool that a life belongs to.
pub struct Pool {
    side: Side,
    outlet: Outlet,
    sharing: Arc<Sharing>,
    host: String,
    /// Which announcements are heard, and what they call the source.
    hears: String,
    /// Why nothing is said to others, or heard of them.
    mute: Option<String>,
    said: Duration,
    /// How the queue stood last.
    queue: Queue,
    /// Work of the lead that was begun when nobody else changed the replica.
    alone: usize,
    /// When all members were asked last, and when the replica was last to be lent.
    asked: Duration,
    tried: Duration,
    /// The round that a member answers.
    answering: Option<Answering>,
    /// What was lent to the member last.
    lent: Option<Lent>,
    /// Its trees were opened since, and can be worked on.
    is_proven: bool,
    /// The last rest of the lead in which it has made durable all that it did, and works on
    /// nothing.
    rest: u64,
    /// What it is at is left, since what it has heard goes to others.
    leaves: bool,
    /// Where, and under which name, what is changed is announced; nothing if it is not.
    announces: Option<String>,
    /// Since when a member has something to announce and cannot look at it.
    untold_since: Option<Duration>,
    /// What another may have been at.
    again: Again,
}

/// A round that a member is to answer.
struct Answering {
    round: u64,
    connection: u64,
    answer: Receiver<Answer>,
    /// All that was heard of until then is durable, or with the lead.
    reached: Option<Duration>,
    /// How much was to be announced by then.
    told: Option<u64>,
}

impl Pool {
    /// Of a life on a host, on this side of it. Words go out there; `sharing` tells the detector of
    /// the queue; `hears` is which announcements that hears, and what they call the source.
    pub fn new(
        mut side: Side,
        outlet: Outlet,
        sharing: Arc<Sharing>,
        (host, hears): (String, String),
    ) -> Pool {
        if let Side::Member(member) = &mut side {
            member.hears(hears.clone());
        }
        Pool {
            side,
            outlet,
            sharing,
            host,
            hears,
            mute: None,
            said: Duration::ZERO,
            queue: Queue::default(),
            alone: 0,
            asked: Duration::ZERO,
            tried: Duration::ZERO,
            answering: None,
            lent: None,
            is_proven: false,
            rest: 0,
            leaves: false,
            announces: None,
            untold_since: None,
            again: Again::default(),
        }
    }

    /// What is changed is announced there and under that name, or is not. Whether it is a member.
    pub(super) fn announces(&mut self, place: Option<String>) -> bool {
        if let (Some(place), Side::Member(member)) = (&place, &mut self.side) {
            member.announces(place.clone());
        }
        self.announces = place;
        self.is_member()
    }

    pub(super) fn is_member(&self) -> bool {
        matches!(self.side, Side::Member(_))
    }

    fn lead(&mut self) -> Option<&mut Lead> {
        match &mut self.side {
            Side::Lead(lead) => Some(lead),
            Side::Member(_) => None,
        }
    }

    fn member(&mut self) -> Option<&mut Member> {
        match &mut self.side {
            Side::Member(member) => Some(member),
            Side::Lead(_) => None,
        }
    }

    /// Whether something that was heard of at `moment` or before waits for the lead, or for the end
    /// of another's lease.
    pub(super) fn waits_for_others(&self, moment: Duration) -> bool {
        let is_with_lead = match &self.side {
            Side::Member(member) => member.waits_since(moment),
            Side::Lead(_) => false,
        };
        is_with_lead || self.again.waits_since(moment)
    }

    /// Why a member works on nothing, if so.
    fn why_waiting(&self, now: Duration) -> Option<String> {
        match &self.side {
            Side::Member(_) if self.leaves => Some("its connection to the queue was lost".into()),
            Side::Member(member) => {
                let mute = self.mute.as_ref().filter(|_| member.lead(now).is_none());
                let why = mute.map(|why| format!("cannot receive from its leader: {why}"));
                why.or_else(|| member.why_waiting(now))
            }
            Side::Lead(_) => None,
        }
    }
}

impl Live {
    fn member(&mut self) -> Option<&mut Member> {
        self.pool.as_mut().and_then(Pool::member)
    }

    pub(super) fn is_member(&self) -> bool {
        self.pool.as_ref().is_some_and(Pool::is_member)
    }

    /// Whether others may be changing the replica.
    pub(super) fn has_company(&self, now: Duration) -> bool {
        match self.pool.as_ref().map(|pool| &pool.side) {
            Some(Side::Lead(lead)) => lead.has_company(now),
            Some(Side::Member(_)) => true,
            None => false,
        }
    }

    /// Why it works on nothing, where it helps another mirror.
    pub(super) fn why_waiting(&self, now: Duration) -> Option<String> {
        self.pool.as_ref().and_then(|pool| pool.why_waiting(now))
    }

    /// The same for whoever asks, where it is to be asked elsewhere.
    pub(super) fn refuses_as_member(&self, now: Duration) -> Option<Answer> {
        let Some(Side::Member(member)) = self.pool.as_ref().map(|pool| &pool.side) else {
            return None;
        };
        let lead = member.lead(now);
        let lead = lead.map_or("the host of its leader", |(_, host)| host);
        Some(Answer::Refused(format!(
            "this is a follower: ask the mirror on {lead}"
        )))
    }

    /// Work is begun; whether nobody else changes the replica.
    pub(super) fn begins_alone(&mut self) -> bool {
        let is_alone = !self.hands.has_company();
        if let Some(pool) = self.pool.as_mut().filter(|_| is_alone) {
            pool.alone += 1;
        }
        is_alone
    }

    /// Something has come out of a lane: what follows from it for the pool.
    pub(super) fn note_outcome(&mut self, now: Duration, outcome: &mut Outcome) {
        let is_done = outcome.end == crate::hands::Ended::Done;
        let has_company = self.hands.has_company();
        let Some(pool) = &mut self.pool else {
            return;
        };
        if outcome.is_alone {
            pool.alone = pool.alone.saturating_sub(1);
        }
        pool.is_proven |= is_done && pool.lent.is_some();
        let is_member = pool.is_member();
        if !has_company {
            return;
        }
        if !is_done {
            // What others did meanwhile is not known, nor what of this is durable.
            for (path, dirty) in &mut outcome.taken.paths {
                dirty.is_doubtful = true;
                if let Some(dir) = path.above().next() {
                    // A member without its lease could not remove what it had begun to make there.
                    let change = match is_member {
                        true => Change::names(dir),
                        false => Change::entry(dir),
                    };
                    self.dirty.add(now, change, Circumstance::default());
                }
            }
        }
        self.hand_links_over(now, outcome);
    }

    /// Somebody of the pool has said something.
    pub(super) fn take_word(&mut self, now: Duration, word: Word) {
        let replica = &self.job.replicas[0];
        match (self.pool.as_mut().map(|pool| &mut pool.side), word) {
            (Some(Side::Lead(lead)), Word::Member(word)) if word.replica == *replica => {
                let looks = lead.hear(now, word);
                self.tell_for_members();
                looks
                    .into_iter()
                    .for_each(|look| self.look_for_member(now, look));
            }
            (Some(Side::Member(member)), Word::Lead(word)) => {
                let done = member.hear(now, word);
                let crossings = member.crossings();
                self.problems.replace(now, &done, Vec::new());
                self.problems
                    .forget_changing_above(&done, |dir| self.dirty.has_failed_within(dir));
                self.hands.leave_to_lead(crossings);
                self.hands.heard_of_lead();
            }
            _ => {}
        }
    }

    /// Nothing can be said to others or heard of them, and why, or it can.
    pub(super) fn note_mute(&mut self, why: Option<String>) {
        if let Some(pool) = &mut self.pool {
            pool.mute = why;
        }
    }

    fn look_for_member(&mut self, now: Duration, look: Look) {
        if look.path.is_root() && look.scope == Scope::Subtree {
            return self.walk_in_doubt(now);
        }
        let circumstance = Circumstance {
            is_written: look.is_doubtful,
            ..Circumstance::default()
        };
        let change = Change {
            path: look.path,
            scope: look.scope,
            hint: None,
        };
        self.add(now, change, circumstance);
    }

    /// How the queue stands, by which connection.
    pub(super) fn note_queue(&mut self, queue: Queue) {
        let is_busy = self.is_busy();
        if let Some(pool) = &mut self.pool {
            pool.leaves |= is_busy && pool.queue.connection != queue.connection;
            pool.queue = queue;
        }
    }

    /// Nothing waits in the queue; what was handed to others by then is asked for.
    pub(super) fn heard_until(&mut self, now: Duration, moment: Duration) {
        let has_company = self.has_company(now) && !self.is_member();
        let Some(pool) = self.pool.as_mut().filter(|_| has_company) else {
            self.heard_until = moment;
            return self.waits.heard_until(moment, now);
        };
        let queue = pool.queue;
        if pool.lead().is_none_or(|lead| lead.is_asking()) {
            return;
        }
        self.look_at_mounts(now);
        let Some(lead) = self.pool.as_mut().and_then(Pool::lead) else {
            return;
        };
        if lead.begin_round(now, moment, queue) {
            if self.waits.is_hearing() {
                // Whoever waits, waits for what those have changed as well who are not asked.
                lead.take_over_silent(now);
            }
            self.tell_for_members();
            self.say(now);
        }
    }

    /// Something is mounted elsewhere below a tree than a moment ago: a member may have looked there
    /// by what it knew before, and may not come to look again.
    pub(super) fn doubt_members_at(&mut self, now: Duration, place: RelPath) {
        let since = self.in_doubt_since(now);
        let has_company = self.has_company(now);
        if let Some(pool) = self.pool.as_mut().filter(|_| has_company) {
            let below = Change::subtree(place);
            pool.again.add_after_lease(now, since, below);
        }
    }

    /// What members have changed and may never have announced is announced in one word.
    fn tell_for_members(&mut self) {
        let lead = self.pool.as_mut().and_then(Pool::lead);
        if lead.is_some_and(Lead::take_untold) {
            self.desk().doubt();
        }
    }

    /// Looks after the pool, in each turn.
    pub(super) fn turn_pool(&mut self, now: Duration) {
        self.look_again_now(now);
        match self.pool.as_ref().map(|pool| &pool.side) {
            None => return,
            Some(Side::Lead(_)) => self.turn_lead(now),
            Some(Side::Member(_)) => self.turn_member(now),
        }
        let is_due = |pool: &Pool| now.saturating_sub(pool.said) >= SAY_EVERY;
        if self.pool.as_ref().is_some_and(is_due) {
            self.say(now);
        }
    }

    fn turn_lead(&mut self, now: Duration) {
        let rests = self.is_paused;
        let Some(pool) = &mut self.pool else { return };
        let (connection, waits_anew) = (pool.queue.connection, pool.asked + ASK_AGAIN <= now);
        let (alone, sharing) = (pool.alone, pool.sharing.clone());
        let Side::Lead(lead) = &mut pool.side else {
            return;
        };
        lead.forget_silent(now);
        lead.rest(rests);
        sharing.set_others(lead.count() as u64);
        let ended = lead.end_round(now, connection);
        let (has_company, has_new) = (lead.has_company(now), lead.has_new());
        let asks = !lead.is_asking() && (self.waits.is_hearing() || lead.wants_round(now));
        let number = lead.id();
        self.tell_for_members();
        if let Some(Some(moment)) = ended {
            self.heard_until = moment;
            self.waits.heard_until(moment, now);
        }
        if has_company && asks && waits_anew {
            if let Some(pool) = &mut self.pool {
                pool.asked = now;
            }
            self.hearing.wake();
        }
        if !has_company && self.hands.has_company() {
            self.hands.is_alone();
        }
        if rests {
            return self.let_go(now);
        }
        if has_company && !self.hands.has_company() {
            self.hands.expect_members(number);
        }
        self.lend(now, has_company && has_new && alone == 0);
    }

    /// Whether no member works on the replica while this lead rests; it is told that it does.
    pub(super) fn members_rest(&mut self, now: Duration) -> bool {
        let has_company = self.hands.has_company();
        let Some(lead) = self
            .pool
            .as_mut()
            .and_then(Pool::lead)
            .filter(|_| has_company)
        else {
            return true;
        };
        lead.rest(true);
        let is_quiet = lead.is_quiet();
        if is_quiet {
            lead.put_off();
            self.hands.is_alone();
        } else if self
            .pool
            .as_ref()
            .is_some_and(|pool| pool.said + SAY_SOON <= now)
        {
            self.say(now);
        }
        is_quiet
    }

    fn tried(&mut self, now: Duration) {
        if let Some(pool) = &mut self.pool {
            pool.tried = now;
        }
    }

    /// Lends the replica to members, as soon as it is open and nothing is in work that was begun
    /// without them.
    fn lend(&mut self, now: Duration, is_time: bool) {
        let is_lent = self.hands.lent().is_some();
        let Some(pool) = &mut self.pool else { return };
        let is_late = pool.tried + LEND_AGAIN <= now;
        let Some(lead) = pool.lead() else { return };
        if is_lent && is_time {
            lead.take_in();
            self.say(now);
        } else if !is_lent && lead.count() > 0 {
            lead.put_off();
            if is_late && self.away.is_none() {
                self.tried(now);
                self.look_at_roots(now);
            }
        }
    }

    /// All that was heard of until then is done or saved.
    pub(super) fn saved_until(&mut self, moment: Duration) {
        if let Some(lead) = self.pool.as_mut().and_then(Pool::lead) {
            lead.remembers(moment);
        }
    }

    fn say(&mut self, now: Duration) {
        self.say_with(now, false);
    }

    fn say_with(&mut self, now: Duration, has_left: bool) {
        let lent = self.hands.lent();
        let Some(pool) = &self.pool else { return };
        let word = match &pool.side {
            Side::Lead(lead) => Word::Lead(LeadWord {
                host: pool.host.clone(),
                replica: self.job.replicas[0].clone(),
                rules: self.job.rules(),
                lent,
                announces: pool.announces.clone(),
                hears: pool.hears.clone(),
                crossings: self.hands.crossings().told(),
                ..lead.word()
            }),
            Side::Member(member) => Word::Member(MemberWord {
                has_left,
                ..self.word_of_member(now, pool, member)
            }),
        };
        pool.outlet.say(&word);
        if let Some(pool) = &mut self.pool {
            pool.said = now;
        }
    }

    /// The members, for whoever asks.
    pub(super) fn pool_now(&self) -> Vec<PoolMember> {
        let Some(Side::Lead(lead)) = self.pool.as_ref().map(|pool| &pool.side) else {
            return Vec::new();
        };
        let members = lead.members().map(|(word, heard)| PoolMember {
            host: word.host.clone(),
            process: word.process,
            began: word.began,
            heard,
            hears: word.hears,
            left: word.left,
            done: word.done,
            bytes: word.bytes,
            problems: word.problems,
            wrong: word.wrong.clone(),
        });
        members.collect()
    }

    /// Since when the oldest change waits that members have heard of.
    pub(super) fn oldest_of_members(&self) -> Option<Duration> {
        match self.pool.as_ref().map(|pool| &pool.side) {
            Some(Side::Lead(lead)) => lead.oldest(),
            _ => None,
        }
    }

    /// The lead ends: members end what they are at, make it durable and announce it. Whether they
    /// have.
    pub(super) fn dismiss_members(&mut self) -> bool {
        if self.is_member() {
            return true;
        }
        let have_told = |live: &mut Live| {
            let lead = live.pool.as_mut().and_then(Pool::lead);
            lead.is_none_or(|lead| lead.has_told_all())
        };
        if !self.hands.has_company() {
            return have_told(self);
        }
        let began = Instant::now();
        while began.elapsed() < QUIET_TIME_MAX {
            let now = crate::clock::now();
            if let Some(lead) = self.pool.as_mut().and_then(Pool::lead) {
                lead.forget_silent(now);
            }
            self.tell_for_members();
            if self.members_rest(now) {
                return have_told(self);
            }
            if let Ok(crate::message::Message::Pool(word)) =
                self.inbox.recv_timeout(Duration::from_millis(100))
            {
                self.take_word(now, *word);
            }
        }
        tracing::warn!("followers have not finished their work");
        false
    }
}
