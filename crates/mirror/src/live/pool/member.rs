//! What a member of a pool does beside its work: it follows its lead, answers it, and hands over what
//! it cannot do.

use super::{Answering, Live, Pool};
use crate::ask::Reply;
use crate::hands::Outcome;
use crate::herald::Crier;
use crate::pool::{Member, MemberWord, Side};
use crate::waits::Wait;
use driftless_model::{Act, RelPath, Scope, escape_text};
use std::time::Duration;

/// What a member has failed at so often the lead tries in its place.
const ATTEMPTS_OF_MEMBER: u32 = 3;
/// Longest text of what is wrong, in characters.
const WRONG_MAX: usize = 500;
/// For so long a member that is not lent the replica waits until it can announce what it has changed;
/// then it leaves that to its lead.
const UNTOLD_MAX: Duration = Duration::from_secs(10);

impl Live {
    /// The lead knows all names of files that have several, and a member does not; and it alone
    /// looks where hosts may have different file systems mounted.
    pub(super) fn hand_links_over(&mut self, now: Duration, outcome: &mut Outcome) {
        let Some(member) = self.pool.as_mut().and_then(Pool::member) else {
            return;
        };
        let since = outcome.taken.since().unwrap_or(now);
        let untold = outcome
            .problems
            .extract_if(.., |problem| problem.act == Act::LinkAll);
        let names = untold.map(|problem| problem.path);
        let linked = outcome.linked.drain(..).map(|linked| linked.path);
        for path in names.chain(linked) {
            member.hand_over(since, (path, Scope::Entry), false);
        }
        for (path, dirty) in outcome.for_lead.drain(..) {
            member.hand_over(dirty.since, (path, dirty.scope), dirty.is_doubtful);
        }
    }

    /// A member does not try for long what fails: the lead may be able to, and remembers it.
    pub(in crate::live) fn hand_failed_over(&mut self) {
        if !self.is_member() {
            return;
        }
        for (path, dirty) in self.dirty.take_failed(ATTEMPTS_OF_MEMBER) {
            if let Some(member) = self.member() {
                member.hand_over(dirty.since, (path, dirty.scope), true);
            }
        }
    }

    /// A member has the lead compare all.
    pub(in crate::live) fn hand_all_over(&mut self, since: Duration) -> bool {
        let Some(member) = self.member() else {
            return false;
        };
        member.hand_over(since, (RelPath::root(), Scope::Subtree), false);
        true
    }

    pub(super) fn turn_member(&mut self, now: Duration) {
        self.follow_lead(now);
        self.give_up_untold(now);
        let is_free = self.why_waiting(now).is_none() && !self.is_paused;
        let (is_away, is_busy) = (self.away.is_some(), self.is_busy());
        let Some(pool) = &mut self.pool else { return };
        let may_hear = is_free && !is_away && pool.is_proven;
        if pool.sharing.set_may_hear(may_hear) {
            self.hearing.wake();
        }
        let Some(pool) = &mut self.pool else { return };
        pool.leaves &= is_busy;
        let rest = pool.member().map_or(0, |member| member.rest());
        if pool.lent.is_none() && !is_busy && pool.rest != rest {
            pool.rest = rest;
            self.say(now);
        }
        self.answer_round(now, is_busy);
    }

    /// Opens what the lead lends anew, and leaves what it lends no more.
    fn follow_lead(&mut self, now: Duration) {
        let is_busy = self.is_busy();
        let Some(pool) = &mut self.pool else { return };
        let Side::Member(member) = &pool.side else {
            return;
        };
        let (lent, is_resting) = (member.lent(now).cloned(), member.rest() > 0);
        let is_same = match (&lent, &pool.lent) {
            (Some(new), Some(old)) => (new.identity, new.members) == (old.identity, old.members),
            (new, old) => new.is_none() && old.is_none(),
        };
        if is_same {
            return;
        }
        if is_busy {
            // What is in work ends, unless the lead waits for it.
            return match is_resting {
                true => self.interrupt(),
                false => self.hands.give_up(),
            };
        }
        if is_resting && !self.ends_its_work() {
            return;
        }
        let Some(pool) = &mut self.pool else { return };
        pool.is_proven = false;
        pool.lent.clone_from(&lent);
        let is_new = lent.is_some();
        self.hands.close();
        self.hands.borrow(lent);
        if is_new {
            self.try_again(now);
            // It opens the trees.
            self.look_at_roots(now);
        }
        self.say(now);
    }

    /// Makes durable what it has changed; whether it is announced, or nobody can be told.
    fn ends_its_work(&mut self) -> bool {
        if self.is_unsettled {
            self.is_unsettled = false;
            self.make_durable();
        }
        !self.crier.as_ref().is_some_and(Crier::is_telling)
    }

    /// What it has changed and cannot look at any more, its lead announces.
    fn give_up_untold(&mut self, now: Duration) {
        let has_untold = self.has_untold();
        let Some(is_closed) = self.hands.is_closed() else {
            return;
        };
        let Some(pool) = &mut self.pool else { return };
        let Side::Member(member) = &mut pool.side else {
            return;
        };
        let is_left = has_untold && is_closed && member.lead(now).is_some() && member.rest() == 0;
        if !is_left {
            pool.untold_since = None;
            return;
        }
        if now.saturating_sub(*pool.untold_since.get_or_insert(now)) < UNTOLD_MAX {
            return;
        }
        pool.untold_since = None;
        member.give_up_to_announce();
        if let Some(crier) = &self.crier {
            crier.give_up();
        }
        tracing::warn!(
            "its changes cannot be announced: the leader reports that everything may differ"
        );
        self.say(now);
    }

    /// Whether something that it has changed was not announced yet.
    fn has_untold(&self) -> bool {
        self.crier
            .as_ref()
            .is_some_and(|crier| !crier.has_told_all())
    }

    /// Whether all that it has changed by now is announced, also what it was interrupted at: others
    /// may find that equal, and tell nobody.
    fn tells_all(&mut self) -> bool {
        let waits_for_disk = self.crier.as_ref().is_some_and(Crier::waits_for_disk);
        if waits_for_disk && self.hands.is_open() {
            self.make_durable();
        }
        !self.has_untold()
    }

    fn answer_round(&mut self, now: Duration, is_busy: bool) {
        let Some(pool) = &mut self.pool else { return };
        let connection = pool.queue.connection;
        let is_deaf = pool.queue.consumers == 0;
        let Side::Member(member) = &mut pool.side else {
            return;
        };
        let Some(round) = member.asked(now) else {
            pool.answering = None;
            return;
        };
        if is_deaf && !is_busy {
            // What it has heard others hear again.
            pool.answering = None;
            return self.answer_deaf(now, round);
        }
        match &mut pool.answering {
            Some(answering) if answering.round == round => {
                if answering.answer.try_recv().is_ok() {
                    answering.reached = Some(now);
                }
                let is_again = |moment| pool.again.waits_since(moment);
                let is_done = |moment| !member.waits_since(moment) && !is_again(moment);
                let is_told = |told: &mut Option<u64>, crier: &Crier| {
                    crier.has_told(*told.get_or_insert_with(|| crier.pushed()))
                };
                let crier = self.crier.as_ref();
                if answering.reached.is_some_and(is_done)
                    && crier.is_none_or(|crier| is_told(&mut answering.told, crier))
                {
                    if answering.connection == connection {
                        member.answer(round);
                    }
                    pool.answering = None;
                    self.say(now);
                }
            }
            _ => {
                let (reply, answer) = Reply::new();
                pool.answering = Some(Answering {
                    round,
                    connection,
                    answer,
                    reached: None,
                    told: None,
                });
                self.waits.add(Wait::for_all(reply, now, None));
                self.hearing.wake();
                self.dirty.hurry(now);
            }
        }
    }

    /// It hears nothing any more, and works on nothing.
    fn answer_deaf(&mut self, now: Duration, round: u64) {
        if !self.tells_all() {
            return;
        }
        if let Some(member) = self.member() {
            member.answer(round);
        }
        self.say(now);
    }

    pub(super) fn word_of_member(&self, now: Duration, pool: &Pool, member: &Member) -> MemberWord {
        let oldest = self.dirty.oldest().into_iter().chain(member.oldest()).min();
        let hears = pool.queue.consumers > 0;
        MemberWord {
            member: member.id(),
            lead: member.lead(now).map_or(0, |(lead, _)| lead),
            host: pool.host.clone(),
            process: std::process::id(),
            began: self.status.began,
            replica: self.job.replicas[0].clone(),
            hears,
            connection: pool.queue.connection,
            left: (self.dirty.len() + member.handed()) as u64,
            oldest: oldest.filter(|_| hears),
            done: self.status.changed + self.status.deleted,
            bytes: self.status.bytes_copied,
            problems: self.problems.count() as u64,
            wrong: self.wrong_of_member(now),
            round: member.answered(),
            looks: member.looks(),
            rest: pool.rest,
            has_left: false,
            has_untold: self.has_untold(),
            given_up: member.given_up(),
        }
    }

    fn wrong_of_member(&self, now: Duration) -> Option<String> {
        let away = self.away.as_ref().map(|away| away.why.clone());
        let problem = || {
            let all = self.problems.all();
            let last = all.iter().max_by_key(|trouble| trouble.last)?;
            Some(last.problem.to_string())
        };
        let untold = || {
            let why = self.crier.as_ref()?.now().away?;
            Some(format!("changes are not announced: {why}"))
        };
        let wrong = away.or_else(|| self.why_waiting(now)).or_else(untold);
        let why = wrong.or_else(problem)?;
        // Names in it are shown already.
        Some(escape_text(&why).chars().take(WRONG_MAX).collect())
    }

    /// It ends, and what it has changed was not all announced: its lead does that.
    pub(in crate::live) fn leave_untold(&mut self) {
        if let Some(member) = self.member() {
            member.give_up_to_announce();
        }
    }

    /// A member ends; what it did is durable.
    pub(in crate::live) fn leave_pool(&mut self) {
        if self.is_member() {
            let now = crate::clock::now();
            self.say_with(now, true);
        }
    }
}
