//! What a member knows of its lead, and what it has handed to that.

use super::{Crossings, LEAD_GONE, LEAD_HOLDS, LeadWord, Look};
use driftless_engine::Lent;
use driftless_model::{RelPath, Scope};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Paths that one word tells.
const LOOKS_TOLD_MAX: usize = 200;
/// Paths that wait to be looked at by the lead; of more, all of the tree is to be looked at.
const LOOKS_MAX: usize = 10_000;

/// A member.
#[derive(Debug)]
pub struct Member {
    id: u64,
    /// The replica as the job names it, and the number of its rules.
    replica: String,
    rules: u64,
    /// Where, and under which name, it announces what it changes; nothing if it does not.
    announces: Option<String>,
    /// Which announcements it hears, and what they call the source.
    hears: String,
    /// How often it could not, and leaves that to the lead.
    given_up: u64,
    lead: Option<(LeadWord, Duration)>,
    refused: Option<String>,
    looks: VecDeque<(Look, Duration)>,
    next: u64,
    answered: u64,
}

impl Member {
    /// One that has heard nothing yet: with a number that was drawn, the replica as its job names
    /// it, and the number of the rules of that.
    pub fn new(id: u64, replica: String, rules: u64) -> Member {
        Member {
            id,
            replica,
            rules,
            announces: None,
            hears: String::new(),
            given_up: 0,
            lead: None,
            refused: None,
            looks: VecDeque::new(),
            next: 1,
            answered: 0,
        }
    }

    /// It hears these announcements, and knows the source by what they call it.
    pub fn hears(&mut self, what: String) {
        self.hears = what;
    }

    /// It announces what it changes there, and under that name.
    pub fn announces(&mut self, place: String) {
        self.announces = Some(place);
    }

    /// It does not announce what it has changed until now: the lead does, in one word.
    pub fn give_up_to_announce(&mut self) {
        self.given_up += 1;
    }

    /// How often it did not announce what it has changed.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// A lead has said how it stands. Returns the paths that it remembers now.
    pub fn hear(&mut self, now: Duration, word: LeadWord) -> Vec<(RelPath, Scope)> {
        let other = |(known, heard): &(LeadWord, Duration)| {
            let holds = now.saturating_sub(*heard) < LEAD_HOLDS && known.rest == 0;
            // One that has not got the replica can lend nothing.
            let lends_less = known.lent.is_none() && word.lent.is_some();
            known.lead != word.lead && holds && !lends_less
        };
        if word.replica != self.replica || self.lead.as_ref().is_some_and(other) {
            return Vec::new();
        }
        let is_new = self
            .lead
            .as_ref()
            .is_none_or(|(known, _)| known.lead != word.lead);
        if is_new {
            // Its rounds begin anew, and it has taken nothing.
            self.answered = 0;
            self.renumber();
            tracing::info!("the mirror on {} leads", word.host);
        }
        self.refused = self.why_refused(&word);
        let own = word.members.iter().find(|(member, _)| *member == self.id);
        let remembered = own.map_or(0, |(_, remembered)| *remembered);
        self.lead = Some((word, now));
        let mut gone = Vec::new();
        while let Some((look, _)) = self
            .looks
            .front()
            .filter(|(look, _)| look.number <= remembered)
        {
            gone.push((look.path.clone(), look.scope));
            self.looks.pop_front();
        }
        gone
    }

    fn why_refused(&self, word: &LeadWord) -> Option<String> {
        let what = match () {
            () if word.rules != self.rules => {
                "has a job with other rules, or is of another version".to_owned()
            }
            () if word.hears != self.hears => format!(
                "receives \"{}\", and this follower \"{}\" ([announcements] base_url, which is the path \
                 of the source by default, exchange, topic_prefix, subtopics)",
                word.hears, self.hears
            ),
            () if word.announces != self.announces => {
                "publishes to another place, or under another name ([publish])".to_owned()
            }
            () if word.crossings.are_too_many() => {
                "has more file systems mounted below both trees than a message can list".to_owned()
            }
            () => return None,
        };
        Some(format!("the leader on {} {what}", word.host))
    }

    /// All that waits is asked for again, by new numbers.
    fn renumber(&mut self) {
        self.next = 1;
        for (look, _) in &mut self.looks {
            look.number = self.next;
            self.next += 1;
        }
    }

    /// The lead that was heard last, if that was not too long ago.
    fn lead_within(&self, now: Duration, holds: Duration) -> Option<&LeadWord> {
        let (word, heard) = self.lead.as_ref()?;
        (now.saturating_sub(*heard) < holds).then_some(word)
    }

    /// Why it may not work, if it may not.
    pub fn why_waiting(&self, now: Duration) -> Option<String> {
        if let Some(why) = &self.refused {
            return Some(why.clone());
        }
        let Some(lead) = self.lead_within(now, LEAD_HOLDS) else {
            return Some(
                "no leader found; start \"driftless mirror run\" for this job on one host".into(),
            );
        };
        if lead.rest > 0 {
            return Some(format!(
                "the mirror on {} is paused, or about to end",
                lead.host
            ));
        }
        let is_member = lead.members.iter().any(|(member, _)| *member == self.id);
        (!is_member || lead.lent.is_none())
            .then(|| format!("the mirror on {} has not taken it in yet", lead.host))
    }

    /// By what it knows the replica that is lent to it; nothing where the lead is gone for good, or
    /// has not lent it.
    pub fn lent(&self, now: Duration) -> Option<&Lent> {
        let lead = self.lead_within(now, LEAD_GONE)?;
        let is_member = lead.members.iter().any(|(member, _)| *member == self.id);
        lead.lent
            .as_ref()
            .filter(|_| is_member && lead.rest == 0 && self.refused.is_none())
    }

    /// The lead, by number and host, as long as it is heard.
    pub fn lead(&self, now: Duration) -> Option<(u64, &str)> {
        let lead = self.lead_within(now, LEAD_GONE)?;
        Some((lead.lead, &lead.host))
    }

    /// Where something is mounted on the lead's host, as it said last.
    pub fn crossings(&self) -> Crossings {
        let lead = self.lead.as_ref();
        lead.map(|(lead, _)| lead.crossings.clone())
            .unwrap_or_default()
    }

    /// The number of the lead's rest; 0 while it does not rest.
    pub fn rest(&self) -> u64 {
        self.lead.as_ref().map_or(0, |(lead, _)| lead.rest)
    }

    /// The round that is to be answered, if one is.
    pub fn asked(&self, now: Duration) -> Option<u64> {
        let lead = self.lead_within(now, LEAD_GONE)?;
        (lead.round > self.answered).then_some(lead.round)
    }

    /// Everything that it had heard when it was asked is durable.
    pub fn answer(&mut self, round: u64) {
        self.answered = self.answered.max(round);
    }

    /// The last round that was answered.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// The lead is to look at a path in its place, of which was heard at `since`.
    pub fn hand_over(&mut self, since: Duration, (path, scope): (RelPath, Scope), doubt: bool) {
        if self.looks.len() >= LOOKS_MAX {
            let oldest = self.looks.iter().map(|(_, at)| *at).min();
            self.looks.clear();
            let all = (RelPath::root(), Scope::Subtree);
            return self.push(oldest.unwrap_or(since).min(since), all, doubt);
        }
        self.push(since, (path, scope), doubt);
    }

    fn push(&mut self, since: Duration, (path, scope): (RelPath, Scope), is_doubtful: bool) {
        let look = Look {
            number: self.next,
            path,
            scope,
            is_doubtful,
        };
        self.next += 1;
        self.looks.push_back((look, since));
    }

    /// What it says that the lead is to look at.
    pub fn looks(&self) -> Vec<Look> {
        let looks = self.looks.iter().take(LOOKS_TOLD_MAX);
        looks.map(|(look, _)| look.clone()).collect()
    }

    /// Whether something waits for the lead that was heard of at `moment` or before.
    pub fn waits_since(&self, moment: Duration) -> bool {
        self.looks.iter().any(|(_, since)| *since <= moment)
    }

    /// Since when the oldest waits.
    pub fn oldest(&self) -> Option<Duration> {
        self.looks.iter().map(|(_, since)| *since).min()
    }

    /// How many paths wait for the lead.
    pub fn handed(&self) -> usize {
        let paths = self.looks.iter().map(|(look, _)| (&look.path, ()));
        paths.collect::<BTreeMap<_, _>>().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    fn member() -> Member {
        Member::new(1, "/r".into(), 5)
    }

    fn word(lead: u64, remembered: u64) -> LeadWord {
        LeadWord {
            lead,
            host: "h".into(),
            replica: "/r".into(),
            rules: 5,
            members: vec![(1, remembered)],
            ..LeadWord::default()
        }
    }

    fn lent() -> driftless_engine::Lent {
        let when = serde_json::json!({"sec": 1, "nsec": 0});
        let lent = serde_json::json!({
            "identity": 1, "members": 2, "is_hidden": false,
            "rights": {"uid": 0, "gid": 0, "groups": [], "any_owner": true, "capabilities": true,
                "trusted": true},
            "source": {"ino": 1, "times": {"changed": when, "made": null}, "entries": []},
            "suspect_since": null,
        });
        serde_json::from_value(lent).expect("what a lead says")
    }

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    #[test]
    fn what_was_handed_over_waits_until_the_lead_remembers_it() {
        let mut member = member();
        member.hear(at(1), word(9, 0));
        member.hand_over(at(1), (path("a"), Scope::Entry), false);
        member.hand_over(at(2), (path("b"), Scope::Subtree), true);
        assert!(member.waits_since(at(1)) && !member.waits_since(Duration::ZERO));
        assert_eq!(member.hear(at(3), word(9, 1)), [(path("a"), Scope::Entry)]);
        assert!(!member.waits_since(at(1)) && member.waits_since(at(2)));
        // Another lead has taken nothing yet.
        member.hear(at(20), word(10, 0));
        assert_eq!(member.looks()[0].number, 1);
        assert_eq!(member.hear(at(21), word(10, 1)).len(), 1);
        assert_eq!(member.oldest(), None);
    }

    #[test]
    fn it_works_for_a_lead_that_it_hears_with_the_same_rules() {
        let mut member = member();
        let waits = |member: &Member, second| member.why_waiting(at(second));
        assert!(waits(&member, 0).is_some_and(|why| why.contains("no leader")));
        member.hear(at(1), word(9, 0));
        assert!(waits(&member, 1).is_some_and(|why| why.contains("not taken it in")));
        let other = LeadWord {
            rules: 6,
            ..word(9, 0)
        };
        member.hear(at(2), other);
        assert!(waits(&member, 2).is_some_and(|why| why.contains("other rules")));
        let telling = LeadWord {
            announces: Some("x".into()),
            ..word(9, 0)
        };
        member.hear(at(2), telling.clone());
        assert!(waits(&member, 2).is_some_and(|why| why.contains("publishes to another place")));
        assert_eq!(member.lent(at(2)), None);
        let elsewhere = LeadWord {
            hears: "file:/elsewhere".into(),
            ..word(9, 0)
        };
        member.hear(at(2), elsewhere.clone());
        assert!(waits(&member, 2).is_some_and(|why| why.contains("receives \"file:/elsewhere\"")));
        let mut same = Member::new(1, "/r".into(), 5);
        same.hears("file:/elsewhere".into());
        same.hear(at(2), elsewhere);
        assert!(waits(&same, 2).is_some_and(|why| why.contains("not taken it in")));
        let mut other = Member::new(1, "/r".into(), 5);
        other.announces("x".into());
        other.hear(at(2), telling);
        assert!(waits(&other, 2).is_some_and(|why| why.contains("not taken it in")));
        let ending = LeadWord {
            rest: 1,
            ..word(9, 0)
        };
        member.hear(at(3), ending);
        assert!(waits(&member, 3).is_some_and(|why| why.contains("about to end")));
        assert_eq!(member.rest(), 1);
        let elsewhere = LeadWord {
            replica: "/other".into(),
            ..word(11, 0)
        };
        member.hear(at(30), elsewhere);
        assert_eq!(member.lead(at(30)), None);
    }

    #[test]
    fn a_second_lead_is_not_heard_while_the_first_is() {
        let mut member = member();
        member.hear(at(1), word(9, 0));
        member.hear(at(2), word(10, 0));
        assert_eq!(member.lead(at(2)).map(|(lead, _)| lead), Some(9));
        member.hear(at(7), word(10, 0));
        assert_eq!(member.lead(at(7)).map(|(lead, _)| lead), Some(10));
    }

    #[test]
    fn a_lead_that_lends_is_followed_rather_than_one_that_has_nothing_to_lend() {
        let mut member = member();
        let lends = |lead| LeadWord {
            lent: Some(lent()),
            ..word(lead, 0)
        };
        member.hear(at(1), word(9, 0));
        member.hear(at(2), lends(10));
        assert_eq!(member.lead(at(2)).map(|(lead, _)| lead), Some(10));
        member.hear(at(3), word(9, 0));
        member.hear(at(3), lends(11));
        assert_eq!(member.lead(at(3)).map(|(lead, _)| lead), Some(10));
    }

    #[test]
    fn a_round_is_answered_once_and_a_new_lead_begins_anew() {
        let mut member = member();
        let asking = |lead, round| LeadWord {
            round,
            ..word(lead, 0)
        };
        member.hear(at(1), asking(9, 4));
        assert_eq!(member.asked(at(1)), Some(4));
        member.answer(4);
        assert_eq!(member.asked(at(1)), None);
        member.hear(at(20), asking(10, 1));
        assert_eq!(member.asked(at(20)), Some(1));
    }
}
