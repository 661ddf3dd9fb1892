//! An audit: a uniform sample of the entries of both trees, compared.
//!
//! First both trees are walked by their names, to count and to draw; then a run that changes
//! nothing compares the entries that were drawn; then what differed is looked at once more, on both
//! sides, to tell drift from what was changed a moment ago and from what has gone. Only then is
//! anything reported.

use crate::findings::{Draw, Mismatch, Standing, Verdict, judge};
use crate::inspect::{Found, Seen, inspect};
use crate::monitor::{AuditMonitor, AuditStage, Watch};
use crate::survey::{Surveyed, survey};
use driftless_engine::{
    End, Mode, Monitor, Options, Progress, Replica, Roots, RunError, open_roots, sync,
};
use driftless_lock::Mutex;
use driftless_model::{
    Class, Kind, Policy, Problem, Receipt, RelPath, Scope, Selection, Side, Stamp, Work,
};
use driftless_pool::descriptors;
use driftless_tree::{DirRef, HandlePool};
use driftless_verify::Sampler;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// An audit: which trees, how they are compared, and what of them.
#[derive(Debug, Clone)]
pub struct AuditOptions {
    /// The trees, what is kept, how closely it is compared, which entries are taken, how fast.
    pub run: Options,
    /// Entries that are drawn at most.
    pub samples: u64,
    /// Which ones are drawn follows from this.
    pub seed: u64,
    /// When it began.
    pub started: Stamp,
    /// What was changed so long before the beginning, or later, is told apart from drift.
    pub grace: Duration,
    /// All of the sample is looked at, not only what differs, and listed in [`Audit::census`].
    pub census: bool,
}

/// What an audit found.
#[derive(Debug, Clone)]
pub struct Audit {
    /// Entries of both trees together; one that stands on both sides is one.
    pub entries: u64,
    /// Entries that were drawn.
    pub sampled: u64,
    /// Drawn entries that agree.
    pub same: u64,
    /// Drawn entries that differ.
    pub drift: u64,
    /// Drawn entries that differ, but were changed just before or during the audit.
    pub recent: u64,
    /// Drawn entries that were gone from both sides when they were to be compared.
    pub vanished: u64,
    /// Drawn entries that could not be compared; each has a problem, or lies below a directory that
    /// has one.
    pub failed: u64,
    /// Problems, those of directories that could not be read while entries were counted included.
    pub problems: u64,
    /// What differs, recent or not, by path.
    pub mismatches: Vec<Mismatch>,
    /// All that was drawn and is still there, if it was asked for.
    pub census: Vec<Sampled>,
    /// How long it took.
    pub elapsed: Duration,
    /// It was not asked to stop, and no connection was lost.
    pub complete: bool,
    /// Why a connection was lost, if that ended it.
    pub cut_off: Option<String>,
}

/// A drawn entry for the census.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampled {
    /// Its kind, on the source if it is there.
    pub kind: Kind,
    /// Its size in bytes.
    pub size: u64,
    /// When it was last modified.
    pub mtime: Stamp,
    /// What came of it.
    pub standing: Standing,
}

/// Audits the replica. A connection that is lost is an end ([`Audit::cut_off`]), however early.
pub fn audit(
    options: &AuditOptions,
    monitor: &dyn AuditMonitor,
    stop: &AtomicBool,
) -> Result<Audit, RunError> {
    match (try_audit(options, monitor, stop), options.run.lost()) {
        (done, None) => done,
        (done, Some(loss)) => {
            let audit = done.unwrap_or_else(|_| Audit::of(&Surveyed::default()));
            Ok(Audit {
                complete: false,
                cut_off: Some(loss.why),
                ..audit
            })
        }
    }
}

fn try_audit(
    options: &AuditOptions,
    monitor: &dyn AuditMonitor,
    stop: &AtomicBool,
) -> Result<Audit, RunError> {
    let began = Instant::now();
    let (directories, threads_max) = descriptors();
    let (source, replica) = open_both(&options.run, &HandlePool::new(directories))?;
    let sampler = Sampler::new(options.seed, options.samples);
    let surveyed = survey(
        &options.run,
        sampler,
        Watch { monitor, stop },
        (source.clone(), replica.clone()),
        threads_max,
    );
    let compared = compare(&options.run, &surveyed, monitor, stop)?;
    let matter = Matter {
        options,
        surveyed: &surveyed,
        compared: &compared,
        monitor,
    };
    let seen = matter.look_again((&source, &replica), (began, threads_max), stop);
    let complete = !stop.load(Relaxed) && options.run.lost().is_none();
    // Of an audit that was stopped, nobody knows which entries were compared.
    let audit = if complete {
        matter.sum_up(&seen)
    } else {
        Audit::of(&surveyed)
    };
    Ok(Audit {
        complete,
        elapsed: began.elapsed(),
        ..audit
    })
}

fn open_both(options: &Options, pool: &Arc<HandlePool>) -> Result<(DirRef, DirRef), RunError> {
    match open_roots(options, pool)? {
        Roots::Trees {
            source,
            replica: Replica::There(replica),
        } => Ok((source, replica)),
        Roots::Trees {
            replica: Replica::Missing(..),
            ..
        } => Err(RunError::NoReplica(options.replica.to_string())),
        Roots::Entries { .. } => {
            let cause = "not a directory; an audit compares two directories".into();
            Err(RunError::Unusable {
                path: options.source.to_string(),
                cause,
            })
        }
    }
}

/// What a run over the sample said, by path.
#[derive(Default)]
struct Compared {
    receipts: BTreeMap<RelPath, Receipt>,
    problems: BTreeMap<RelPath, Problem>,
}

/// Compares the drawn entries that the source has. A run meets the directories above them, too,
/// which are of no concern.
fn compare(
    options: &Options,
    surveyed: &Surveyed,
    monitor: &dyn AuditMonitor,
    stop: &AtomicBool,
) -> Result<Compared, RunError> {
    let drawn = surveyed
        .sample
        .iter()
        .filter(|(_, side)| *side == Side::Source);
    let works: Vec<Work> = drawn
        .map(|(path, _)| Work {
            path: path.clone(),
            scope: Scope::Entry,
        })
        .collect();
    if works.is_empty() || stop.load(Relaxed) {
        return Ok(Compared::default());
    }
    let selection = Some(Arc::new(Selection::of(&works)));
    let policy = Policy {
        delete: false,
        ..options.policy.clone()
    };
    let options = Options {
        selection,
        policy,
        mode: Mode::Compare,
        ..options.clone()
    };
    let collector = Collector {
        works: &works,
        compared: Mutex::default(),
        monitor,
    };
    let summary = sync(&options, &collector, stop)?;
    let is_early = stop.load(Relaxed) || options.lost().is_some();
    assert!(
        summary.end == End::Complete || is_early,
        "the audit ended early, for an unknown reason"
    );
    Ok(collector.compared.into_inner())
}

/// Keeps what concerns the sample.
struct Collector<'a> {
    works: &'a [Work],
    compared: Mutex<Compared>,
    monitor: &'a dyn AuditMonitor,
}

impl Collector<'_> {
    fn keep(&self, keep: impl FnOnce(&mut Compared)) {
        keep(&mut self.compared.lock());
    }
}

impl Monitor for Collector<'_> {
    fn wants_receipts(&self) -> bool {
        true
    }

    fn wants_values(&self) -> bool {
        true
    }

    fn receipt(&self, receipt: &Receipt) {
        if self
            .works
            .binary_search_by(|work| work.path.cmp(&receipt.path))
            .is_ok()
        {
            self.keep(|compared| {
                drop(
                    compared
                        .receipts
                        .insert(receipt.path.clone(), receipt.clone()),
                )
            });
        }
    }

    fn problem(&self, problem: &Problem) {
        self.keep(|compared| {
            drop(
                compared
                    .problems
                    .insert(problem.path.clone(), problem.clone()),
            )
        });
    }

    fn progress(&self, progress: &Progress) {
        let counts = &progress.counts;
        let of = self.works.len() as u64;
        let entries = (counts.same + counts.changed + counts.failed).min(of);
        self.monitor
            .progress(AuditStage::Comparing, entries, Some(of), progress.jobs);
    }
}

impl Compared {
    /// The problem of a path, or of a directory above it that kept it from being compared.
    fn problem_of(&self, path: &RelPath) -> Option<&Problem> {
        let own = self.problems.get(path);
        if own.is_some() || self.problems.is_empty() {
            return own;
        }
        let parent = |path: &RelPath| path.split_last().map(|(dir, _)| dir);
        let mut above = parent(path);
        while let Some(dir) = above {
            if let Some(problem) = self
                .problems
                .get(&dir)
                .filter(|problem| problem.class != Class::Changing)
            {
                return Some(problem);
            }
            above = parent(&dir);
        }
        None
    }
}

/// What is known when the comparison is over.
struct Matter<'a> {
    options: &'a AuditOptions,
    surveyed: &'a Surveyed,
    compared: &'a Compared,
    monitor: &'a dyn AuditMonitor,
}

impl Matter<'_> {
    fn draw(&self, (path, side): &(RelPath, Side)) -> Draw<'_> {
        match (
            side,
            self.compared.receipts.get(path),
            self.compared.problem_of(path),
        ) {
            (Side::Replica, ..) => Draw::ReplicaOnly,
            (Side::Source, Some(receipt), _) => Draw::Differs(receipt),
            (Side::Source, None, Some(_)) => Draw::Failed,
            (Side::Source, None, None) => Draw::Same,
        }
    }

    /// Looks at what does not simply agree, or at everything.
    fn look_again(
        &self,
        roots: (&DirRef, &DirRef),
        (began, threads_max): (Instant, usize),
        stop: &AtomicBool,
    ) -> BTreeMap<RelPath, Seen> {
        let wanted = |drawn: &&(RelPath, Side)| {
            self.options.census || !matches!(self.draw(drawn), Draw::Same)
        };
        let paths: Vec<&RelPath> = self
            .surveyed
            .sample
            .iter()
            .filter(wanted)
            .map(|(path, _)| path)
            .collect();
        let now = later(self.options.started, began.elapsed());
        let seen = inspect(
            &paths,
            roots,
            (now, self.options.run.throttle.jobs),
            Watch {
                monitor: self.monitor,
                stop,
            },
            threads_max,
        );
        paths.into_iter().cloned().zip(seen).collect()
    }

    fn sum_up(&self, seen: &BTreeMap<RelPath, Seen>) -> Audit {
        let since = earlier(self.options.started, self.options.grace);
        let mut audit = Audit::of(self.surveyed);
        let mut reported = self.surveyed.unread.clone();
        let known = reported.len();
        for drawn in &self.surveyed.sample {
            let (path, seen) = (&drawn.0, seen.get(&drawn.0));
            let verdict = judge(path, self.draw(drawn), seen, since);
            if matches!(verdict, Verdict::Failed) {
                self.report(path, seen, &mut reported);
            }
            audit.count(verdict, seen.filter(|_| self.options.census));
        }
        audit.problems += (reported.len() - known) as u64;
        audit
    }

    /// Reports why an entry could not be compared; the problem of a directory above it only once.
    fn report(&self, path: &RelPath, seen: Option<&Seen>, reported: &mut BTreeSet<RelPath>) {
        let unknown = seen.and_then(|seen| {
            [seen.source, seen.replica]
                .into_iter()
                .find_map(Found::fault)
        });
        let looked = unknown.map(|fault| Problem::new(path.clone(), fault, Class::Skip));
        if let Some(problem) = self.compared.problem_of(path).or(looked.as_ref())
            && reported.insert(problem.path.clone())
        {
            self.monitor.problem(problem);
        }
    }
}

impl Audit {
    fn of(surveyed: &Surveyed) -> Self {
        Audit {
            entries: surveyed.entries,
            sampled: surveyed.sample.len() as u64,
            same: 0,
            drift: 0,
            recent: 0,
            vanished: 0,
            failed: 0,
            problems: surveyed.problems,
            mismatches: Vec::new(),
            census: Vec::new(),
            elapsed: Duration::ZERO,
            complete: false,
            cut_off: None,
        }
    }

    /// Entries that the sample proves something with.
    pub fn settled(&self) -> u64 {
        self.same + self.drift
    }

    fn count(&mut self, verdict: Verdict, seen: Option<&Seen>) {
        let standing = verdict.standing();
        let counter = match &verdict {
            Verdict::Same => &mut self.same,
            Verdict::Vanished => &mut self.vanished,
            Verdict::Failed => &mut self.failed,
            Verdict::Differs(mismatch) if mismatch.recent => &mut self.recent,
            Verdict::Differs(_) => &mut self.drift,
        };
        *counter += 1;
        if let (Some(standing), Some(meta)) = (standing, seen.and_then(Seen::meta)) {
            self.census.push(Sampled {
                kind: meta.kind,
                size: meta.size,
                mtime: meta.mtime,
                standing,
            });
        }
        if let Verdict::Differs(mismatch) = verdict {
            self.mismatches.push(*mismatch);
        }
    }
}

fn later(stamp: Stamp, by: Duration) -> Stamp {
    let nsec = stamp.nsec + by.subsec_nanos();
    let carried = i64::from(nsec >= 1_000_000_000);
    Stamp {
        sec: stamp.sec.saturating_add_unsigned(by.as_secs()) + carried,
        nsec: nsec % 1_000_000_000,
    }
}

fn earlier(stamp: Stamp, by: Duration) -> Stamp {
    Stamp {
        sec: stamp.sec.saturating_sub_unsigned(by.as_secs()),
        ..stamp
    }
}
