//! What a lead knows of its members.

use super::{ALONE_AFTER, MEMBER_GONE};
use super::{LeadWord, Look, MemberWord};
use driftless_detect::Queue;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Members that are known at once.
const MEMBERS_MAX: usize = 256;
/// Rounds are made so often at least, so that it is known how far the replica is behind.
const ROUND_EVERY: Duration = Duration::from_secs(5);
/// A member that was not heard of for so long may be gone. Nothing that it does then is lost: the
/// broker hands out what it had when it is gone, and its lease is waited for after that.
const SILENT_AFTER: Duration = Duration::from_secs(4);

/// A lead, and its members.
#[derive(Debug)]
pub struct Lead {
    id: u64,
    seats: BTreeMap<u64, Seat>,
    last_heard: Option<Duration>,
    round: Option<Round>,
    rounds: u64,
    last_round: Duration,
    /// Rests so far, and whether the last goes on.
    rests: u64,
    is_resting: bool,
    /// What members have changed may never have been announced.
    has_untold: bool,
}

/// A member.
#[derive(Debug)]
struct Seat {
    word: MemberWord,
    heard: Duration,
    is_taken_in: bool,
    /// Numbers that were taken, when, in their order.
    looks: VecDeque<(u64, Duration)>,
    /// The last number that was taken, and the last that is remembered.
    taken: u64,
    remembered: u64,
    /// How often it had given up to announce what it has changed when that was taken over.
    given_up: u64,
    /// It is silent, and what it has not announced by now was taken over.
    is_taken_over: bool,
}

impl Seat {
    fn of(word: MemberWord, now: Duration) -> Seat {
        Seat {
            word,
            heard: now,
            is_taken_in: false,
            looks: VecDeque::new(),
            taken: 0,
            remembered: 0,
            given_up: 0,
            is_taken_over: false,
        }
    }
}

impl Seat {
    /// Whether it was not heard of for a while.
    fn is_silent(&self, now: Duration) -> bool {
        now.saturating_sub(self.heard) >= SILENT_AFTER
    }
}

/// What is asked of all members at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// Everything that happened before was in the hands of the lead or a member when it began.
    pub moment: Duration,
    number: u64,
    /// The members then, by which connection to the queue; and the lead's own.
    members: BTreeMap<u64, u64>,
    connection: u64,
}

impl Lead {
    /// One without members, of a life with this number.
    pub fn new(id: u64) -> Lead {
        Lead {
            id,
            seats: BTreeMap::new(),
            last_heard: None,
            round: None,
            rounds: 0,
            last_round: Duration::ZERO,
            rests: 0,
            is_resting: false,
            has_untold: false,
        }
    }

    /// It rests from now on, or no more.
    pub fn rest(&mut self, rests: bool) {
        if rests && !self.is_resting {
            self.rests += 1;
        }
        self.is_resting = rests;
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether somebody may be changing the replica beside it, or was a moment ago.
    pub fn has_company(&self, now: Duration) -> bool {
        let is_fresh = |heard| now.saturating_sub(heard) < ALONE_AFTER;
        !self.seats.is_empty() || self.last_heard.is_some_and(is_fresh)
    }

    /// How many members there are.
    pub fn count(&self) -> usize {
        self.seats.len()
    }

    /// A member has said how it stands; returns what it wants to be looked at, which was not heard
    /// of before.
    pub fn hear(&mut self, now: Duration, mut word: MemberWord) -> Vec<Look> {
        let is_known = self.seats.contains_key(&word.member);
        if word.has_left {
            let seat = self.seats.remove(&word.member);
            let given_up = seat.as_ref().map_or(0, |seat| seat.given_up);
            self.has_untold |= word.given_up > given_up;
            if seat.is_some() && self.seats.is_empty() {
                // All that it did is durable.
                self.last_heard = None;
            }
            return Vec::new();
        }
        if !is_known && self.seats.len() >= MEMBERS_MAX {
            return Vec::new();
        }
        self.last_heard = Some(now);
        let mut looks = std::mem::take(&mut word.looks);
        if word.lead != self.id {
            // It was said to an earlier lead.
            word.round = 0;
            looks.clear();
        }
        let seat = self.seats.entry(word.member);
        let seat = seat.or_insert_with(|| Seat::of(word.clone(), now));
        self.has_untold |= word.given_up > seat.given_up;
        seat.given_up = word.given_up.max(seat.given_up);
        seat.is_taken_over = false;
        (seat.word, seat.heard) = (word, now);
        let taken = seat.taken;
        let new: Vec<Look> = looks
            .into_iter()
            .filter(|look| look.number > taken)
            .collect();
        for look in &new {
            seat.taken = seat.taken.max(look.number);
            seat.looks.push_back((look.number, now));
        }
        new
    }

    /// Forgets members that were not heard of for long. What they had comes by the broker again;
    /// what they have changed until now and did not announce, nobody knows.
    pub fn forget_silent(&mut self, now: Duration) {
        self.seats.retain(|_, seat| {
            let is_there = now.saturating_sub(seat.heard) < MEMBER_GONE;
            if !is_there {
                self.has_untold = true;
                let (host, process) = (&seat.word.host, seat.word.process);
                tracing::warn!(
                    "the follower on {host} (process {process}) does not answer any more"
                );
            }
            is_there
        });
    }

    /// What those who are silent have changed and did not announce is taken over: somebody waits for
    /// it. They may go on, and announce what they change then.
    pub fn take_over_silent(&mut self, now: Duration) {
        for seat in self.seats.values_mut().filter(|seat| seat.is_silent(now)) {
            self.has_untold |= !std::mem::replace(&mut seat.is_taken_over, true);
        }
    }

    /// Whether it is to be announced, once, that all may differ: what members have changed may never
    /// have been announced.
    pub fn take_untold(&mut self) -> bool {
        std::mem::take(&mut self.has_untold)
    }

    /// Whether all that members have changed is announced, or was taken over; nothing is changed by
    /// them any more.
    pub fn has_told_all(&self) -> bool {
        self.seats.values().all(|seat| !seat.word.has_untold)
    }

    /// All that have said that they are there may work.
    pub fn take_in(&mut self) {
        for seat in self.seats.values_mut() {
            if !std::mem::replace(&mut seat.is_taken_in, true) {
                let (host, process) = (&seat.word.host, seat.word.process);
                tracing::info!("the follower on {host} (process {process}) takes part");
            }
        }
    }

    /// Whether some that have said that they are there may not work yet.
    pub fn has_new(&self) -> bool {
        self.seats.values().any(|seat| !seat.is_taken_in)
    }

    /// Nobody may work until [`Lead::take_in`]: the replica is lent anew.
    pub fn put_off(&mut self) {
        self.seats
            .values_mut()
            .for_each(|seat| seat.is_taken_in = false);
    }

    /// Everything that was taken until then is done, or is remembered.
    pub fn remembers(&mut self, until: Duration) {
        for seat in self.seats.values_mut() {
            while let Some((number, _)) = seat.looks.front().filter(|(_, at)| *at <= until) {
                seat.remembered = *number;
                seat.looks.pop_front();
            }
        }
    }

    /// Whether all members have ended what they did since it rests.
    pub fn is_quiet(&self) -> bool {
        let rests = |seat: &Seat| seat.word.lead == self.id && seat.word.rest == self.rests;
        self.seats.values().all(rests)
    }

    /// Since when the oldest change waits that a member has heard of.
    pub fn oldest(&self) -> Option<Duration> {
        self.seats
            .values()
            .filter_map(|seat| seat.word.oldest)
            .min()
    }

    /// The members as they last said, and when they were heard of.
    pub fn members(&self) -> impl Iterator<Item = (&MemberWord, Duration)> {
        self.seats.values().map(|seat| (&seat.word, seat.heard))
    }

    /// What it adds to what it says.
    pub fn word(&self) -> LeadWord {
        let taken_in = self.seats.iter().filter(|(_, seat)| seat.is_taken_in);
        LeadWord {
            lead: self.id,
            members: taken_in
                .map(|(member, seat)| (*member, seat.remembered))
                .collect(),
            round: self.rounds,
            rest: if self.is_resting { self.rests } else { 0 },
            ..LeadWord::default()
        }
    }

    /// Whether it is time for a round though nobody waits for one.
    pub fn wants_round(&self, now: Duration) -> bool {
        self.round.is_none() && now.saturating_sub(self.last_round) >= ROUND_EVERY
    }

    /// Nothing waits in the queue: everything that happened until `moment` is in the hands of the
    /// lead, or of one of those that the broker counts. Begins to ask them, if they are the members
    /// that are known: what others have nobody can ask for, and a member that says nothing any more
    /// keeps what it has for as long as its connection lives.
    pub fn begin_round(&mut self, now: Duration, moment: Duration, queue: Queue) -> bool {
        // What those had who are silent and not counted any more is in the queue again.
        let is_fresh = |seat: &&Seat| !seat.is_silent(now);
        let fresh = self.seats.values().filter(is_fresh);
        let hearing = fresh.filter(|seat| seat.word.hears).count() as u64;
        if queue.consumers != hearing + 1 {
            return false;
        }
        self.rounds += 1;
        self.last_round = now;
        let has_some = |word: &MemberWord| word.hears || word.has_untold || word.left > 0;
        // Who hears no lead has nothing to work on, and cannot hear a question.
        let works = |seat: &Seat| seat.is_taken_in && seat.word.lead != 0;
        let may_have_some = |seat: &Seat| is_fresh(&seat) && (works(seat) || has_some(&seat.word));
        let members = self.seats.iter().filter(|(_, seat)| may_have_some(seat));
        self.round = Some(Round {
            moment,
            number: self.rounds,
            members: members
                .map(|(member, seat)| (*member, seat.word.connection))
                .collect(),
            connection: queue.connection,
        });
        true
    }

    /// Whether a round is under way.
    pub fn is_asking(&self) -> bool {
        self.round.is_some()
    }

    /// What has come of the round under way, if it is over: until when everything is in the hands
    /// of the lead or durable; or nothing, where what a member had may have come to another one
    /// meanwhile, and all are to be asked again. `connection` is the lead's own to the queue.
    pub fn end_round(&mut self, now: Duration, connection: u64) -> Option<Option<Duration>> {
        let round = self.round.as_ref()?;
        let mut is_complete = true;
        let mut is_broken = round.connection != connection;
        for (member, connection) in &round.members {
            match self.seats.get(member) {
                Some(seat) if seat.word.connection == *connection => {
                    let has_answered = seat.word.round >= round.number;
                    is_complete &= has_answered;
                    // Who is silent may be gone for good, and never answer.
                    is_broken |= !has_answered && seat.is_silent(now);
                }
                _ => is_broken = true,
            }
        }
        if !is_broken && !is_complete {
            return None;
        }
        let round = self.round.take()?;
        Some((!is_broken).then_some(round.moment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{RelPath, Scope};

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    fn word(member: u64, round: u64) -> MemberWord {
        MemberWord {
            member,
            lead: 7,
            round,
            hears: true,
            ..MemberWord::default()
        }
    }

    fn queue(consumers: u64) -> Queue {
        Queue {
            waiting: 0,
            consumers,
            connection: 0,
        }
    }

    fn lead_of(members: &[u64]) -> Lead {
        let mut lead = Lead::new(7);
        for member in members {
            lead.hear(at(0), word(*member, 0));
        }
        lead.take_in();
        lead
    }

    #[test]
    fn a_round_is_over_when_all_have_answered_it() {
        let mut lead = lead_of(&[1, 2]);
        assert!(lead.begin_round(at(1), at(1), queue(3)));
        assert_eq!(lead.end_round(at(1), 0), None);
        lead.hear(at(2), word(1, 1));
        assert_eq!(lead.end_round(at(2), 0), None);
        lead.hear(at(2), word(2, 1));
        assert_eq!(lead.end_round(at(2), 0), Some(Some(at(1))));
        assert_eq!(lead.end_round(at(2), 0), None);
    }

    #[test]
    fn who_is_silent_in_a_round_has_all_asked_again_and_may_go_on() {
        let mut lead = lead_of(&[1, 2]);
        assert!(lead.begin_round(at(1), at(1), queue(3)));
        lead.hear(at(2), word(1, 1));
        lead.hear(at(3), word(2, 0));
        assert_eq!(
            lead.end_round(at(6), 0),
            None,
            "who has answered may be silent"
        );
        lead.hear(at(7), word(1, 1));
        assert_eq!(lead.end_round(at(7), 0), Some(None));
        // As long as the broker counts it, it may have something.
        assert!(!lead.begin_round(at(7), at(7), queue(3)));
        lead.hear(at(8), word(2, 0));
        assert!(lead.begin_round(at(8), at(8), queue(3)));
        lead.hear(at(9), word(1, 2));
        lead.hear(at(9), word(2, 1));
        assert_eq!(lead.end_round(at(9), 0), None, "an answer of before");
        lead.hear(at(10), word(2, 2));
        assert_eq!(lead.end_round(at(10), 0), Some(Some(at(8))));
        assert!(
            lead.begin_round(at(14), at(14), queue(1)),
            "both are silent and gone"
        );
        assert_eq!(lead.end_round(at(14), 0), Some(Some(at(14))));
    }

    #[test]
    fn who_dies_in_a_round_has_all_asked_again() {
        let mut lead = lead_of(&[1, 2]);
        assert!(lead.begin_round(at(1), at(1), queue(3)));
        lead.hear(at(30), word(1, 1));
        lead.forget_silent(at(30));
        assert_eq!(lead.end_round(at(30), 0), Some(None));
        // The broker has not noticed yet.
        assert!(!lead.begin_round(at(31), at(31), queue(3)));
        assert!(lead.begin_round(at(32), at(32), queue(2)));
    }

    #[test]
    fn a_connection_that_was_lost_in_a_round_has_all_asked_again() {
        let mut lead = lead_of(&[1]);
        assert!(lead.begin_round(at(1), at(1), queue(2)));
        let connected_anew = MemberWord {
            connection: 1,
            ..word(1, 1)
        };
        lead.hear(at(2), connected_anew);
        assert_eq!(lead.end_round(at(2), 0), Some(None));
        assert!(lead.begin_round(at(3), at(3), queue(2)));
        assert_eq!(lead.end_round(at(3), 1), Some(None), "the lead's own");
    }

    #[test]
    fn nothing_is_known_while_the_queue_is_heard_by_one_who_is_no_member() {
        let mut lead = lead_of(&[1]);
        assert!(!lead.begin_round(at(1), at(1), queue(3)));
        lead.hear(at(900), word(1, 0));
        assert!(!lead.begin_round(at(900), at(900), queue(3)));
        assert!(lead.begin_round(at(900), at(900), queue(2)));
    }

    #[test]
    fn who_cannot_hear_and_has_nothing_is_not_asked() {
        let mut lead = lead_of(&[1, 2]);
        let cannot_hear = |left| MemberWord {
            lead: 0,
            hears: false,
            left,
            ..word(2, 0)
        };
        lead.hear(at(1), cannot_hear(1));
        assert!(lead.begin_round(at(1), at(1), queue(2)));
        lead.hear(at(2), word(1, 1));
        assert_eq!(lead.end_round(at(2), 0), None, "it is still at something");
        lead.hear(at(5), word(1, 1));
        assert_eq!(lead.end_round(at(5), 0), Some(None));
        lead.hear(at(5), cannot_hear(0));
        assert!(lead.begin_round(at(5), at(5), queue(2)));
        lead.hear(at(6), word(1, 2));
        assert_eq!(lead.end_round(at(6), 0), Some(Some(at(5))));
    }

    #[test]
    fn what_is_to_be_looked_at_is_taken_once_and_told_when_it_is_remembered() {
        let mut lead = lead_of(&[1]);
        let look = |number| Look {
            number,
            path: RelPath::root(),
            scope: Scope::Entry,
            is_doubtful: false,
        };
        let asking = |numbers: &[u64]| MemberWord {
            looks: numbers.iter().map(|number| look(*number)).collect(),
            ..word(1, 0)
        };
        assert_eq!(lead.hear(at(1), asking(&[1, 2])).len(), 2);
        assert_eq!(lead.hear(at(2), asking(&[1, 2, 3])), [look(3)]);
        assert_eq!(lead.word().members, [(1, 0)]);
        lead.remembers(at(1));
        assert_eq!(lead.word().members, [(1, 2)]);
        lead.remembers(at(2));
        assert_eq!(lead.word().members, [(1, 3)]);
    }

    #[test]
    fn what_members_cannot_announce_the_lead_does() {
        let mut lead = lead_of(&[1, 2, 3]);
        let giving_up = |member, given_up| MemberWord {
            given_up,
            ..word(member, 0)
        };
        assert!(!lead.take_untold());
        lead.hear(at(1), giving_up(1, 1));
        assert!(lead.take_untold() && !lead.take_untold());
        lead.hear(at(2), giving_up(1, 1));
        lead.hear(at(2), word(2, 0));
        assert!(!lead.take_untold(), "it was said again");
        // One is silent, and goes on.
        lead.take_over_silent(at(5));
        assert!(lead.take_untold());
        lead.take_over_silent(at(5));
        assert!(!lead.take_untold(), "once");
        lead.hear(at(6), word(3, 0));
        let left = |given_up| MemberWord {
            has_left: true,
            ..giving_up(1, given_up)
        };
        lead.hear(at(7), left(2));
        assert!(lead.take_untold());
        lead.forget_silent(at(30));
        assert!(lead.take_untold(), "what they did while they were silent");
        lead.hear(at(31), word(2, 0));
        lead.hear(
            at(32),
            MemberWord {
                has_left: true,
                ..word(2, 0)
            },
        );
        assert!(!lead.take_untold(), "it has told all");
    }

    #[test]
    fn who_has_something_to_announce_is_asked_though_it_does_not_work() {
        let mut lead = Lead::new(7);
        let deaf = |round, has_untold| MemberWord {
            hears: false,
            has_untold,
            ..word(1, round)
        };
        lead.hear(at(0), deaf(0, true));
        assert!(!lead.has_told_all());
        assert!(lead.begin_round(at(1), at(1), queue(1)));
        assert_eq!(lead.end_round(at(1), 0), None);
        lead.hear(at(2), deaf(1, false));
        assert_eq!(lead.end_round(at(2), 0), Some(Some(at(1))));
        assert!(lead.has_told_all());
        assert!(lead.begin_round(at(3), at(3), queue(1)));
        assert_eq!(lead.end_round(at(3), 0), Some(Some(at(3))));
    }

    #[test]
    fn a_lead_is_alone_when_its_members_have_left_or_their_lease_is_long_over() {
        let mut lead = lead_of(&[1, 2]);
        let left = |member| MemberWord {
            has_left: true,
            ..word(member, 0)
        };
        lead.hear(at(1), left(1));
        assert!(lead.has_company(at(1)));
        lead.hear(at(1), left(2));
        assert!(!lead.has_company(at(1)));
        lead.hear(at(2), word(3, 0));
        lead.forget_silent(at(40));
        assert_eq!(lead.count(), 0);
        assert!(lead.has_company(at(61)) && !lead.has_company(at(62)));
    }
}
