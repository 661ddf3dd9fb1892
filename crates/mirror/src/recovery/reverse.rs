//! One run between two trees whose roots are not those of the mirror: from the replica to what was
//! the source, or from a snapshot of the replica to itself.
//!
//! It is a run like any other, with the guards of one: an empty replica never empties the source.
//! No mirror has heard of what people do on a replica, so a file's content is compared where either
//! tree says that it was changed since both were equal.

use super::loss::{Known, Lost};
use crate::job::Job;
use driftless_detect::gap::has_own_clock;
use driftless_engine::{
    Counts, End, MachineClock, Mode, Monitor, Options, Progress, RunError, Summary, Trees,
};
use driftless_lock::Mutex;
use driftless_model::{Action, Meta, Policy, Problem, Receipt, RelPath, Selection};
use driftless_remote::Reach;
use driftless_session::{
    Before, Connections, Earlier, Passed, Witness, connect, lost_words, made_words, repeat, sync,
};
use rustix::fd::AsFd;
use rustix::fs::{self, OFlags, open};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

/// Entries whose times are looked at, to tell what is lost.
const LOOKED_AT_MAX: usize = 100_000;
/// Clocks of hosts are at most so far apart, and those of file servers. One that is further off is
/// wrong, and an administrator has to set it.
const CLOCKS_APART: Duration = Duration::from_secs(300);
/// Problems that are told.
const PROBLEMS_MAX: usize = 1000;

/// Way to the trees of a run.
pub struct Approach<'a> {
    /// Settings of connections to hosts.
    pub reach: &'a Reach,
    /// Time for which a lost connection is tried again.
    pub patience: Duration,
    /// Listener to what becomes of connections.
    pub tell: &'a dyn Fn(&str),
}

/// What a run would do.
#[derive(Debug, Clone)]
pub struct Rehearsal {
    /// As the run would count it.
    pub counts: Counts,
    /// What is there and would go, though it may be newer.
    pub lost: Vec<Lost>,
    /// Not all that would go was looked at.
    pub has_more: bool,
    /// Entries of the tree that is read which the other one does not have at all.
    pub made: u64,
    /// What it could not do.
    pub problems: Vec<Problem>,
    /// End of the run: a guard may have refused the deletes.
    pub end: End,
}

/// Result of a run.
#[derive(Debug, Clone)]
pub struct Carried {
    /// Its end, and the counts of its last pass.
    pub summary: Summary,
    /// Entries that were made equal before a connection was lost; the last pass found them so.
    pub changed_before: u64,
    /// Problems that it met.
    pub problems: Vec<Problem>,
}

impl Rehearsal {
    /// How many entries of the tree that is read the other one has, too, and how many there are.
    #[must_use]
    pub fn alike(&self) -> (u64, u64) {
        let all = self.counts.same + self.counts.changed;
        (all.saturating_sub(self.made), all)
    }

    /// The other tree has so few of these entries that it is hardly the one that had them: the
    /// directory that a file system was mounted on looks like that.
    #[must_use]
    pub fn is_unlike(&self) -> bool {
        let (alike, all) = self.alike();
        alike.saturating_mul(2) < all
    }
}

/// The job the other way round: from its replica to its source.
#[must_use]
pub fn reversed(job: &Job) -> Job {
    Job {
        source: job.replicas[0].clone(),
        replicas: vec![job.source.clone()],
        ..job.clone()
    }
}

/// The options of a run that makes a tree again what its snapshot is.
#[must_use]
pub fn go_back(options: &Options, snapshot: &Path) -> Options {
    let policy = Policy {
        delete: true,
        // The tree is its own: whatever it had then was there.
        delete_unlike: true,
        ..Policy::default()
    };
    Options {
        source: snapshot.to_owned().into(),
        policy,
        leaves_mounts: true,
        enters_stubs: true,
        passes_by_unfinished: true,
        ..options.clone()
    }
}

/// Says what a run would do, and changes nothing. `known` tells what of the tree that is changed may
/// be newer.
///
/// # Errors
/// A tree is out of reach, or a guard refuses.
pub fn rehearse(
    options: &Options,
    way: &Approach<'_>,
    known: &Known,
    stop: &AtomicBool,
) -> Result<Rehearsal, RunError> {
    let mut options = Options {
        mode: Mode::Preview,
        mount_notes: None,
        ..options.clone()
    };
    let mut connections = reached(&mut options, way)?;
    let known = &known.with_clocks_apart(clocks_apart(&options));
    let heard = Heard::of(known);
    let pass = |options: &mut Options, _: &Before<'_>| {
        let rehearsal = rehearsed(options, &heard, stop)?;
        Ok(Passed {
            counts: rehearsal.counts,
            end: rehearsal.end.clone(),
            result: rehearsal,
        })
    };
    let watching = LineWatch {
        heard: &heard,
        way,
        stop,
    };
    let trees = (&mut options, &mut connections);
    let passed = repeat(trees, &watching, (&mut Earlier::default(), false), pass)?;
    Ok(Rehearsal {
        end: passed.end,
        ..passed.result
    })
}

/// Goes through the trees once, and says what a run would do.
fn rehearsed(
    options: &Options,
    heard: &Heard<'_>,
    stop: &AtomicBool,
) -> Result<Rehearsal, RunError> {
    let trees = Trees::open(options, heard, &MachineClock)?;
    let all = Arc::new(Selection::all());
    let summary = trees.reconcile(&all, &options.policy, heard, stop)?;
    let replaced = std::mem::take(&mut *heard.replaced.lock());
    let is_lost = |lost: &Lost| {
        let changed = trees.changed_on_replica(&lost.path);
        let may_go = |at| heard.known.may_lose(&lost.path, at);
        changed.is_some_and(|changed| changed.is_there && may_go(changed.at))
    };
    Ok(Rehearsal {
        counts: summary.counts,
        end: summary.end,
        has_more: replaced.len() >= LOOKED_AT_MAX,
        made: heard.made.load(Relaxed),
        lost: replaced.into_iter().filter(is_lost).collect(),
        problems: heard.problems.lock().clone(),
    })
}

/// Carries the run out, durably. `known` tells where content is compared.
///
/// # Errors
/// A tree is out of reach, or a guard refuses.
pub fn carry_out(
    options: &Options,
    way: &Approach<'_>,
    known: &Known,
    stop: &AtomicBool,
) -> Result<Carried, RunError> {
    let mut options = options.clone();
    let mut connections = reached(&mut options, way)?;
    let known = known.with_clocks_apart(clocks_apart(&options));
    let heard = Heard::of(&known);
    let watching = LineWatch {
        heard: &heard,
        way,
        stop,
    };
    let trees = (&mut options, &mut connections);
    let (summary, earlier) = sync(trees, &heard, &watching, stop)?;
    Ok(Carried {
        summary,
        changed_before: earlier.changed,
        problems: heard.problems.into_inner(),
    })
}

/// Returns how far the clocks that stamp changes in both trees may be from the one of this host.
fn clocks_apart(options: &Options) -> Duration {
    let has_own_clock = |path: &Path| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Nothing was stamped in a tree that is not there.
        open(path, flags, fs::Mode::empty()).map_or(true, |dir| has_own_clock(dir.as_fd()))
    };
    let mut trees = [&options.source, &options.replica].into_iter();
    match trees.all(|tree| tree.host.is_none() && has_own_clock(tree.path.as_path())) {
        true => Duration::ZERO,
        false => CLOCKS_APART,
    }
}

fn reached(options: &mut Options, way: &Approach<'_>) -> Result<Connections, RunError> {
    let connected = connect(options, way.reach, way.patience);
    connected.map_err(|error| RunError::CutOff(error.to_string()))
}

/// Tells of connections that are lost and made again, and has the next pass begin with nothing told.
struct LineWatch<'a> {
    heard: &'a Heard<'a>,
    way: &'a Approach<'a>,
    stop: &'a AtomicBool,
}

impl Witness for LineWatch<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn connection_lost(&self, why: &str, _elapsed: Duration, patience: Duration) {
        (self.way.tell)(&lost_words(why, patience));
    }

    fn connection_made(&self, host: &str, after: Duration) {
        (self.way.tell)(&made_words(host, after));
    }

    fn note(&self, text: &str) {
        tracing::info!("{text}");
    }

    fn begin_again(&self) {
        self.heard.replaced.lock().clear();
        self.heard.problems.lock().clear();
        self.heard.made.store(0, Relaxed);
    }
}

/// What a run tells.
struct Heard<'k> {
    known: &'k Known,
    /// Entries that are there, and are overwritten or removed.
    replaced: Mutex<Vec<Lost>>,
    /// How many entries are not there.
    made: AtomicU64,
    problems: Mutex<Vec<Problem>>,
}

impl<'k> Heard<'k> {
    fn of(known: &'k Known) -> Heard<'k> {
        Heard {
            known,
            replaced: Mutex::default(),
            made: AtomicU64::default(),
            problems: Mutex::default(),
        }
    }
}

impl Monitor for Heard<'_> {
    fn wants_receipts(&self) -> bool {
        true
    }

    fn receipt(&self, receipt: &Receipt) {
        // The times of the root change with every run.
        if receipt.path == RelPath::root() {
            return;
        }
        if receipt.action == Action::Create {
            self.made.fetch_add(1, Relaxed);
            return;
        }
        let mut replaced = self.replaced.lock();
        if replaced.len() < LOOKED_AT_MAX {
            replaced.push(Lost {
                path: receipt.path.clone(),
                is_removed: receipt.action == Action::Delete,
            });
        }
    }

    fn problem(&self, problem: &Problem) {
        let mut problems = self.problems.lock();
        if problems.len() < PROBLEMS_MAX {
            problems.push(problem.clone());
        }
    }

    fn note(&self, text: &str) {
        tracing::info!("{text}");
    }

    fn is_unheard(&self, source: &Meta, replica: &Meta) -> bool {
        self.known.may_differ([source.ctime, replica.ctime])
    }

    fn progress(&self, _progress: &Progress) {}
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use std::fs;

    fn rehearsal(names: &[&str]) -> Rehearsal {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        fs::create_dir_all(from.join("dir")).unwrap();
        fs::create_dir_all(to.join("dir")).unwrap();
        for name in ["1", "2", "3", "dir/1", "dir/2", "dir/3"] {
            fs::write(from.join(name), name).unwrap();
        }
        for name in names {
            fs::write(to.join(name), "something else").unwrap();
        }
        let options = Options {
            source: from.into(),
            replica: to.into(),
            ..Options::default()
        };
        let reach = Reach {
            ssh: Vec::new(),
            agent: Vec::new(),
            keep: options.policy.keep,
            streams: None,
            compress: None,
            deploy: None,
            connecting: Duration::ZERO,
            stop: Arc::default(),
        };
        let way = Approach {
            reach: &reach,
            patience: Duration::ZERO,
            tell: &|_| {},
        };
        rehearse(&options, &way, &Known::default(), &AtomicBool::new(false)).unwrap()
    }

    #[test]
    fn a_tree_that_lacks_most_of_the_other_one_is_unlike() {
        for (names, alike, is_unlike) in [
            (&[][..], 2, true),
            (&["1"], 3, true),
            (&["1", "dir/1", "other"], 4, false),
            (&["1", "2", "3", "dir/1", "dir/2", "dir/3"], 8, false),
        ] {
            let told = rehearsal(names);
            assert_eq!(told.alike(), (alike, 8), "{names:?}: {:?}", told.counts);
            assert_eq!(told.is_unlike(), is_unlike, "{names:?}");
        }
    }
}
