//! The snapshots that a mirror makes: of its source, to read from and to compare, and of its
//! replica, where that can be.

use crate::hands::ReplicaHere;
use driftless_detect::snapshot::{Provider, SnapshotError};
use driftless_model::{Change, RelPath, date_and_time};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// What the names of snapshots end in, behind that of a job and before the moment, that failover and
/// failback keep.
pub const KEPT: &str = "-kept";

/// Makes snapshots, compares them, and deletes those that are not needed any more.
pub struct Snapshots {
    source: Box<dyn Provider>,
    replica: Option<Box<dyn Provider>>,
    job: String,
    keep: usize,
}

/// A snapshot of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// What it is called.
    pub name: String,
    /// Where it is read.
    pub path: PathBuf,
    /// It holds everything that happened before.
    pub at: Duration,
    /// What makes one of the snapshot before.
    pub changes: Vec<Change>,
    /// What tells it from others of its name, where something does.
    pub identity: Option<String>,
}

/// A snapshot of the replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnReplica {
    /// What it is called.
    pub name: String,
    /// What tells it from others of its name, where something does.
    pub identity: Option<String>,
}

/// The snapshots that a state knows to be its own. A clock that was ahead has given some of them names
/// that are later than those of snapshots that were made after them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Those that source and replica have in common.
    pub common: BTreeSet<String>,
    /// Those of the source that the replica was not equal to, or not yet.
    pub unfinished: BTreeSet<String>,
}

impl Known {
    /// One of the source was made.
    pub fn made(&mut self, name: &str) {
        self.unfinished.insert(name.to_owned());
    }

    /// Both have it.
    pub fn shared(&mut self, name: &str) {
        self.unfinished.remove(name);
        self.common.insert(name.to_owned());
    }

    /// These were deleted.
    pub fn gone(&mut self, names: &[String]) {
        for name in names {
            self.unfinished.remove(name);
            self.common.remove(name);
        }
    }

    fn has(&self, name: &str) -> bool {
        self.common.contains(name) || self.unfinished.contains(name)
    }
}

/// What is asked of who makes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// A snapshot of the source, and what differs from an older one; all, without that, and on
    /// another replica than the one that was made equal to it.
    Make {
        /// The older one.
        older: Option<String>,
        /// What told that from others of its name when it was made.
        identity: Option<String>,
        /// The last snapshot of the replica.
        on_replica: Option<String>,
        /// The last that both have in common, or "" if none is: those since then were never whole
        /// on the replica. `None` where snapshots are made beside live changes.
        common: Option<String>,
        /// Those that the state knows.
        known: Known,
        /// The replica as it was.
        replica: Option<ReplicaHere>,
        /// What time it is.
        now: Duration,
    },
    /// The replica is equal to a snapshot: it gets one of that name.
    Finish {
        /// The snapshot.
        name: String,
    },
    /// Those go that are not needed, once it is known for good that this one is.
    Thin {
        /// The snapshot.
        needed: String,
        /// Those that the state knows.
        known: Known,
    },
}

/// What became of it.
#[derive(Debug)]
pub enum Told {
    /// A snapshot was made.
    Made(Made),
    /// The snapshots of a cycle are complete.
    Finished {
        /// The replica's snapshot, if it has one.
        on_replica: Option<OnReplica>,
    },
    /// What is not needed is gone.
    Thinned {
        /// Names of snapshots that were deleted.
        deleted: Vec<String>,
    },
    /// It could not be done.
    Failed(String),
}

impl Snapshots {
    /// For the snapshots of a job, of which so many are kept.
    pub fn of(
        job: &str,
        keep: u32,
        source: Box<dyn Provider>,
        replica: Option<Box<dyn Provider>>,
    ) -> Snapshots {
        Snapshots {
            source,
            replica,
            job: job.to_owned(),
            keep: keep as usize,
        }
    }

    /// Where a snapshot of the source is read, if it is there.
    ///
    /// # Errors
    /// Nobody knows whether it is.
    pub fn find(&self, name: &str) -> Result<Option<PathBuf>, SnapshotError> {
        Ok(self.source.list()?.remove(name))
    }

    /// Does what is asked.
    pub fn carry_out(&self, task: Task) -> Told {
        let done = match task {
            Task::Make {
                older,
                identity,
                on_replica,
                common,
                known,
                replica,
                now,
            } => {
                let older = older.as_deref();
                let is_same = || {
                    !is_replaced(replica)
                        && self.is_known(on_replica.as_deref(), older, &known)
                        && self.is_itself(older, identity.as_deref())
                };
                let made = self.make(older, is_same, now);
                if let (Ok(made), Some(common)) = (&made, &common) {
                    self.drop_between(common, older, &made.name, &known);
                }
                made.map(Told::Made)
            }
            Task::Finish { name } => self.finish(&name),
            Task::Thin { needed, known } => self.thin_both(&needed, &known),
        };
        done.unwrap_or_else(|error| Told::Failed(error.to_string()))
    }

    /// What differs from the older one is of use where the replica `is_same`, and was made equal to
    /// it.
    fn make(
        &self,
        older: Option<&str>,
        is_same: impl FnOnce() -> bool,
        now: Duration,
    ) -> Result<Made, SnapshotError> {
        for provider in self.replica.iter().chain([&self.source]) {
            provider.prepare()?;
        }
        let name = self.name(now);
        self.source.create(&name)?;
        let path = self.source.list()?.remove(&name);
        let path = path.ok_or_else(|| SnapshotError::Absent(name.clone()))?;
        let all = || vec![Change::subtree(RelPath::root())];
        let changes = match older.filter(|_| is_same()) {
            None => all(),
            // Whatever is wrong with the older one: a comparison of all does without it.
            Some(older) => self.source.diff(older, &name).unwrap_or_else(|error| {
                tracing::warn!("{error}: comparing everything with snapshot {name}");
                all()
            }),
        };
        Ok(Made {
            identity: self.source.identity(&name)?,
            path,
            at: now,
            name,
            changes,
        })
    }

    /// Whether the older snapshot is what it was when it was made: somebody may have changed it, or
    /// made another one of its name.
    fn is_itself(&self, older: Option<&str>, identity: Option<&str>) -> bool {
        let Some((older, was)) = older.zip(identity) else {
            return true;
        };
        let is = self.source.identity(older).ok().flatten();
        let is_itself = is.as_deref() == Some(was);
        if !is_itself {
            tracing::warn!(
                "snapshot {older} was replaced by another one of its name: comparing everything"
            );
        }
        is_itself
    }

    /// Whether the last snapshot of the replica is the one that is known: an older state of the
    /// replica that was put in its place lacks it, whatever its mark says, and where an older state
    /// of the mirror was put back, the replica has later ones, but for that of a cycle that was cut
    /// off at its end. One of which nobody can say that is compared.
    fn is_known(&self, on_replica: Option<&str>, older: Option<&str>, known: &Known) -> bool {
        let Some((replica, name)) = self.replica.as_ref().zip(on_replica) else {
            return true;
        };
        let names = replica.list().unwrap_or_default();
        let is_later = |other: &&String| {
            let is_new = other.as_str() > name && !known.common.contains(other.as_str());
            is_new && Some(other.as_str()) != older && self.is_own(other)
        };
        if !names.contains_key(name) {
            tracing::warn!("the replica lacks its snapshot {name}: comparing everything");
            return false;
        }
        let later = names.keys().find(is_later);
        if let Some(later) = later {
            tracing::warn!(
                "the replica has snapshot {later}, which this state does not know: comparing everything"
            );
        }
        later.is_none()
    }

    /// Deletes snapshots of cycles that did not come to their end: those after the last common one
    /// that are neither the newest nor what it is compared with.
    fn drop_between(&self, common: &str, older: Option<&str>, newest: &str, known: &Known) {
        let all = self.source.list().unwrap_or_default();
        let is_between = |name: &&String| {
            let is_in_order = name.as_str() > common && name.as_str() < newest;
            self.is_own(name)
                && (is_in_order && !known.common.contains(*name)
                    || known.unfinished.contains(*name))
                && name.as_str() != newest
                && Some(name.as_str()) != older
        };
        for name in all.keys().filter(is_between) {
            if let Err(error) = self.source.delete(name) {
                tracing::warn!("snapshot {name} stays: {error}");
            }
        }
    }

    fn finish(&self, name: &str) -> Result<Told, SnapshotError> {
        let Some(replica) = &self.replica else {
            return Ok(Told::Finished { on_replica: None });
        };
        // Whatever has this name was not made of the replica as it is.
        if replica.list()?.contains_key(name) {
            replica.delete(name)?;
        }
        replica.create(name)?;
        let on_replica = OnReplica {
            name: name.to_owned(),
            identity: replica.identity(name)?,
        };
        Ok(Told::Finished {
            on_replica: Some(on_replica),
        })
    }

    fn thin_both(&self, needed: &str, known: &Known) -> Result<Told, SnapshotError> {
        let mut deleted = self.thin(&*self.source, needed, known)?;
        if let Some(replica) = &self.replica {
            deleted.extend(self.thin(&**replica, needed, known)?);
        }
        Ok(Told::Thinned { deleted })
    }

    /// Deletes the oldest snapshots of the job beyond those that are kept, never `needed`, nor a
    /// later one that the state does not know. One that it knows and whose name is later was made
    /// before `needed`, by a clock that was ahead. One that cannot be deleted is tried again after
    /// the next cycle.
    fn thin(
        &self,
        provider: &dyn Provider,
        needed: &str,
        known: &Known,
    ) -> Result<Vec<String>, SnapshotError> {
        let all = provider.list()?;
        let own: Vec<&String> = all.keys().filter(|name| self.is_own(name)).collect();
        let beyond = own.len().saturating_sub(self.keep);
        let (before, behind): (Vec<&String>, Vec<&String>) = own
            .into_iter()
            .filter(|name| *name != needed)
            .partition(|name| name.as_str() < needed);
        let mut early: Vec<&String> = behind.into_iter().filter(|name| known.has(name)).collect();
        early.sort_by_key(|name| known.common.contains(*name));
        let old = early.into_iter().chain(before).take(beyond);
        let delete = |name: &&String| match provider.delete(name) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!("snapshot {name} stays: {error}");
                false
            }
        };
        Ok(old.filter(delete).cloned().collect())
    }

    /// The name of a snapshot that is made now: the job's and the moment, in universal time, so
    /// that names of one job are in the order of their moments.
    fn name(&self, now: Duration) -> String {
        name_of(&self.job, now)
    }

    /// Whether a snapshot is one of the job: the moment has a form of its own, so that job "a" is
    /// told from job "a-b".
    fn is_own(&self, name: &str) -> bool {
        const FORM: &str = "-0000-00-00T000000.000Z";
        let moment = name.strip_prefix(self.job.as_str()).unwrap_or_default();
        let fits = |(is, form): (char, char)| match form {
            '0' => is.is_ascii_digit(),
            _ => is == form,
        };
        moment.len() == FORM.len() && moment.chars().zip(FORM.chars()).all(fits)
    }
}

fn is_replaced(replica: Option<ReplicaHere>) -> bool {
    let why_other = replica.and_then(|replica| replica.why_other());
    if let Some(why) = why_other {
        tracing::warn!("{why}: comparing everything");
    }
    why_other.is_some()
}

/// The name of a snapshot that is made now. What begins with more than the name of a job is none of
/// its own, so it is kept until somebody deletes it.
pub fn name_of(beginning: &str, now: Duration) -> String {
    let (date, time) = date_and_time(now.as_secs().cast_signed());
    let time = time.replace(':', "");
    format!("{beginning}-{date}T{time}.{:03}Z", now.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_lock::Mutex;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Names(Arc<Mutex<BTreeSet<String>>>);

    impl Provider for Names {
        fn check(&self) -> Result<(), SnapshotError> {
            Ok(())
        }

        fn prepare(&self) -> Result<(), SnapshotError> {
            Ok(())
        }

        fn create(&self, name: &str) -> Result<(), SnapshotError> {
            assert!(self.0.lock().insert(name.to_owned()));
            Ok(())
        }

        fn list(&self) -> Result<BTreeMap<String, PathBuf>, SnapshotError> {
            let names = self.0.lock().clone();
            let path = |name: String| (name.clone(), PathBuf::from("/snapshots").join(name));
            Ok(names.into_iter().map(path).collect())
        }

        fn delete(&self, name: &str) -> Result<(), SnapshotError> {
            assert!(self.0.lock().remove(name));
            Ok(())
        }

        fn diff(&self, older: &str, _newer: &str) -> Result<Vec<Change>, SnapshotError> {
            let why = "is not there";
            match self.0.lock().contains(older) {
                true => Ok(Vec::new()),
                false => Err(SnapshotError::NotFit {
                    path: older.to_owned(),
                    why,
                }),
            }
        }
    }

    fn made(snapshots: &Snapshots, older: Option<&str>, seconds: u64) -> Made {
        let task = Task::Make {
            older: older.map(str::to_owned),
            identity: None,
            on_replica: None,
            common: None,
            known: Known::default(),
            replica: None,
            now: Duration::from_secs(seconds),
        };
        match snapshots.carry_out(task) {
            Told::Made(made) => made,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_oldest_go_but_never_what_the_next_cycle_begins_with() {
        let (source, replica) = (Names::default(), Names::default());
        for names in [&source, &replica] {
            names.create("a-b-2026-01-01T000000.000Z").unwrap();
            names.create("a-by-hand").unwrap();
        }
        let of = |names: &Names| Box::new(names.clone());
        let snapshots = Snapshots::of("a", 2, of(&source), Some(of(&replica)));
        let first = made(&snapshots, None, 1_000_000_000);
        assert_eq!(first.name, "a-2001-09-09T014640.000Z");
        assert_eq!(first.changes, [Change::subtree(RelPath::root())]);
        let mut names = vec![first.name];
        for cycle in 1..4 {
            let older = names.last().cloned();
            let next = made(&snapshots, older.as_deref(), 1_000_000_000 + cycle * 3600);
            assert_eq!(next.changes, []);
            names.push(next.name);
        }
        let deleted = |name: &String| {
            let finish = Task::Finish { name: name.clone() };
            assert!(matches!(snapshots.carry_out(finish), Told::Finished { .. }));
            let needed = name.clone();
            let known = Known::default();
            match snapshots.carry_out(Task::Thin { needed, known }) {
                Told::Thinned { deleted } => deleted,
                other => panic!("{other:?}"),
            }
        };
        // Three cycles in a row did not come to an end.
        assert_eq!(deleted(&names[0]), [""; 0]);
        assert_eq!(deleted(&names[3]), names[..2]);
        assert_eq!(source.list().unwrap().len(), 4);
        assert_eq!(replica.list().unwrap().len(), 4);
    }

    #[test]
    fn on_a_replica_without_its_last_snapshot_all_is_compared() {
        let (source, replica) = (Names::default(), Names::default());
        let of = |names: &Names| Box::new(names.clone());
        let snapshots = Snapshots::of("a", 2, of(&source), Some(of(&replica)));
        let name = made(&snapshots, None, 1_000_000_000).name;
        let make = |seconds| Task::Make {
            older: Some(name.clone()),
            identity: None,
            on_replica: Some(name.clone()),
            common: Some(name.clone()),
            known: Known::default(),
            replica: None,
            now: Duration::from_secs(seconds),
        };
        let changes = |seconds| match snapshots.carry_out(make(seconds)) {
            Told::Made(made) => made.changes,
            other => panic!("{other:?}"),
        };
        assert_eq!(changes(1_000_003_600), [Change::subtree(RelPath::root())]);
        replica.create(&name).unwrap();
        assert_eq!(changes(1_000_007_200), []);
        // An older state of the mirror was put back.
        replica.create("a-2001-09-09T030000.000Z").unwrap();
        assert_eq!(changes(1_000_010_800), [Change::subtree(RelPath::root())]);
    }

    #[test]
    fn snapshots_of_cycles_that_do_not_come_to_their_end_do_not_pile_up() {
        let source = Names::default();
        let snapshots = Snapshots::of("a", 2, Box::new(source.clone()), None);
        let common = made(&snapshots, None, 1_000_000_000).name;
        let mut older = common.clone();
        for cycle in 1..10 {
            let task = Task::Make {
                older: Some(older.clone()),
                identity: None,
                on_replica: None,
                common: Some(common.clone()),
                known: Known::default(),
                replica: None,
                now: Duration::from_secs(1_000_000_000 + cycle),
            };
            let Told::Made(made) = snapshots.carry_out(task) else {
                panic!("it is made")
            };
            let names = source.list().unwrap();
            assert!(names.contains_key(&common) && names.contains_key(&older));
            assert!(
                names.contains_key(&made.name) && names.len() <= 3,
                "{names:?}"
            );
            older = made.name;
        }
    }

    #[test]
    fn what_a_clock_that_was_ahead_has_made_is_known_and_goes_first() {
        let (source, replica) = (Names::default(), Names::default());
        let of = |names: &Names| Box::new(names.clone());
        let snapshots = Snapshots::of("a", 2, of(&source), Some(of(&replica)));
        let mut known = Known::default();
        let mut last: Option<String> = None;
        // Two days ahead, and corrected; the third cycle does not come to its end.
        for (seconds, is_whole) in [
            (172_800, true),
            (172_801, true),
            (172_802, false),
            (1, true),
        ] {
            let task = Task::Make {
                older: last.clone(),
                identity: None,
                on_replica: known.common.last().cloned(),
                common: known.common.last().cloned(),
                known: known.clone(),
                replica: None,
                now: Duration::from_secs(1_000_000_000 + seconds),
            };
            let Told::Made(made) = snapshots.carry_out(task) else {
                panic!("it is made")
            };
            assert_eq!(made.changes.is_empty(), last.is_some(), "{seconds}");
            known.made(&made.name);
            last = Some(made.name.clone());
            if !is_whole {
                continue;
            }
            let name = made.name.clone();
            let finished = snapshots.carry_out(Task::Finish { name });
            assert!(matches!(finished, Told::Finished { .. }), "{finished:?}");
            known.shared(&made.name);
            let task = Task::Thin {
                needed: made.name,
                known: known.clone(),
            };
            let thinned = snapshots.carry_out(task);
            assert!(matches!(thinned, Told::Thinned { .. }), "{thinned:?}");
        }
        let newest = "a-2001-09-09T014641.000Z";
        assert!(source.list().unwrap().contains_key(newest));
        assert!(replica.list().unwrap().contains_key(newest));
        assert_eq!(source.list().unwrap().len(), 2);
        assert_eq!(replica.list().unwrap().len(), 2);
    }

    #[test]
    fn without_the_older_one_all_is_compared() {
        let source = Names::default();
        let snapshots = Snapshots::of("a", 2, Box::new(source), None);
        let next = made(&snapshots, Some("a-2001-09-09T014640.000Z"), 1_000_003_600);
        assert_eq!(next.changes, [Change::subtree(RelPath::root())]);
    }
}
