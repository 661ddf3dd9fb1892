//! What somebody is to be told of at once: a path with a problem, a replica that is out of reach or too
//! far behind, a state that cannot be written.
//!
//! [`Alarms`] is pure: once a second it sees how a replica stands, and says what is new. Each thing is
//! told when it begins, and again only after it was over.

mod call;
mod logged;

pub use call::{Caller, Pace};
pub use logged::AlarmLog;

use crate::status::{Problems, Status};
use crate::worded;
use driftless_model::RelPath;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A path has a problem.
    Problem,
    /// A path has failed so often that it is tried seldom.
    Quarantine,
    /// A tree is out of reach.
    Away,
    /// The replica is further behind than it may be.
    Behind,
    /// The first copy takes longer than the replica may be behind.
    FirstCopy,
    /// Changes are not heard of any more.
    Deaf,
    /// The state cannot be written.
    Unsaved,
}

impl What {
    /// As a program reads it.
    pub fn word(self) -> &'static str {
        match self {
            What::Problem => "problem",
            What::Quarantine => "quarantine",
            What::Away => "away",
            What::Behind => "behind",
            What::FirstCopy => "first_copy",
            What::Deaf => "deaf",
            What::Unsaved => "unsaved",
        }
    }
}

/// One thing that somebody is to be told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    /// What has happened.
    pub what: What,
    /// To which job.
    pub job: String,
    /// And to which of its replicas.
    pub replica: String,
    /// The path, if it is about one.
    pub path: Option<RelPath>,
    /// What is wrong, in words.
    pub why: String,
    /// When it was seen.
    pub at: Duration,
}

impl Alarm {
    /// As a program reads it.
    pub fn json(&self) -> Value {
        json!({
            "what": self.what.word(),
            "job": self.job,
            "replica": self.replica,
            "path": self.path.as_ref().map(worded::shown),
            "why": self.why,
            "at": self.at.as_secs_f64(),
        })
    }
}

/// What of a replica was told.
#[derive(Debug, Default)]
pub struct Alarms {
    paths: BTreeMap<RelPath, What>,
    states: BTreeMap<&'static str, ()>,
    /// The lines of the mirror's log about them.
    pub log: AlarmLog,
}

impl Alarms {
    /// What is new in how a replica stands; `is_quarantined` says so of a path.
    pub fn see(
        &mut self,
        status: &Status,
        problems: &Problems,
        is_quarantined: impl Fn(&RelPath) -> bool,
    ) -> Vec<Alarm> {
        let mut new = self.see_states(status);
        let mut paths = BTreeMap::new();
        for (path, trouble) in problems.iter() {
            let what = match is_quarantined(path) {
                true => What::Quarantine,
                false => What::Problem,
            };
            let known = self.paths.get(path).copied();
            // Out of quarantine again, it still has the problem that was told.
            if known.is_none() || known == Some(What::Problem) && what == What::Quarantine {
                let why = trouble.problem.to_string();
                new.push(alarm(status, what, Some(path.clone()), &why));
            }
            let worst = known.filter(|known| *known == What::Quarantine);
            paths.insert(path.clone(), worst.unwrap_or(what));
        }
        self.paths = paths;
        new
    }

    fn see_states(&mut self, status: &Status) -> Vec<Alarm> {
        let is_first = status.is_first_copy();
        let behind = (status.is_behind() && !is_first).then(|| {
            let [behind, rpo] = [status.behind(), status.rpo]
                .map(|time| worded::counted(time.as_secs(), "second", "seconds"));
            format!("{behind} behind, of {rpo} that the job allows")
        });
        let first_copy = (status.is_behind() && is_first).then(|| first_copy(status));
        let states = [
            (What::Away, status.away.clone()),
            (What::Behind, behind),
            (What::FirstCopy, first_copy),
            (What::Deaf, status.deaf.clone()),
            (What::Unsaved, status.forgets.clone()),
        ];
        let mut new = Vec::new();
        for (what, why) in states {
            match why {
                None => drop(self.states.remove(what.word())),
                Some(why) if self.states.insert(what.word(), ()).is_none() => {
                    new.push(alarm(status, what, None, &why));
                }
                Some(_) => {}
            }
        }
        new
    }
}

/// Returns how far the first copy is, which takes longer than the RPO.
fn first_copy(status: &Status) -> String {
    let rpo = driftless_model::span(status.rpo.as_secs());
    let progress = status
        .comparing
        .map_or("waiting".into(), |now| now.in_words());
    format!("the first copy is not complete ({progress}); the RPO of {rpo} does not hold yet")
}

fn alarm(status: &Status, what: What, path: Option<RelPath>, why: &str) -> Alarm {
    Alarm {
        what,
        job: status.job.clone(),
        replica: status.replica.clone(),
        path,
        why: worded::for_job(why),
        at: status.now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Trouble;
    use driftless_model::{Act, Class, Problem, Side};

    fn problems(paths: &[&str]) -> Problems {
        let trouble = |path: &&str| Trouble {
            problem: Problem {
                path: RelPath::parse(path.as_bytes()).unwrap(),
                side: Side::Replica,
                act: Act::Remove,
                cause: "it is so".into(),
                class: Class::Skip,
            },
            first: Duration::ZERO,
            last: Duration::ZERO,
            times: 1,
        };
        Problems::of(paths.iter().map(trouble))
    }

    fn words(alarms: &[Alarm]) -> Vec<&'static str> {
        alarms.iter().map(|alarm| alarm.what.word()).collect()
    }

    #[test]
    fn each_thing_is_told_when_it_begins_and_again_after_it_was_over() {
        let mut alarms = Alarms::default();
        let well = Status::default();
        let ill = Status {
            away: Some("gone".into()),
            forgets: Some("full".into()),
            oldest: Some(Duration::ZERO),
            now: Duration::from_secs(1),
            ..Status::default()
        };
        let none = problems(&[]);
        let never = |_: &RelPath| false;
        assert!(alarms.see(&well, &none, never).is_empty());
        let new = alarms.see(&ill, &none, never);
        assert_eq!(words(&new), ["away", "behind", "unsaved"]);
        assert!(alarms.see(&ill, &none, never).is_empty());
        assert!(alarms.see(&well, &none, never).is_empty());
        assert_eq!(alarms.see(&ill, &none, never).len(), 3);
    }

    #[test]
    fn root_is_a_dot_in_an_alarm() {
        let new = Alarms::default().see(&Status::default(), &problems(&["", "a"]), |_| false);
        let paths: Vec<Value> = new
            .iter()
            .map(|alarm| alarm.json()["path"].clone())
            .collect();
        assert_eq!(paths, [".", "a"]);
        assert!(new[0].why.starts_with("\".\": "), "{}", new[0].why);
    }

    #[test]
    fn one_second_is_told_in_the_singular() {
        let counted = |count| worded::counted(count, "second", "seconds");
        assert_eq!(
            [0, 1, 2].map(counted),
            ["0 seconds", "1 second", "2 seconds"]
        );
    }

    #[test]
    fn a_path_is_told_of_once_and_once_more_in_quarantine() {
        let mut alarms = Alarms::default();
        let (status, two) = (Status::default(), problems(&["a", "b"]));
        let (never, always) = (|_: &RelPath| false, |_: &RelPath| true);
        assert_eq!(alarms.see(&status, &problems(&["a"]), never).len(), 1);
        let new = alarms.see(&status, &two, never);
        assert_eq!(new[0].path.as_ref().unwrap().as_bytes(), b"b");
        let new = alarms.see(&status, &two, always);
        assert_eq!(words(&new), ["quarantine", "quarantine"]);
        assert!(alarms.see(&status, &two, never).is_empty());
        assert!(alarms.see(&status, &two, always).is_empty());
        assert!(alarms.see(&status, &problems(&[]), never).is_empty());
        assert_eq!(alarms.see(&status, &two, never).len(), 2);
    }
}
