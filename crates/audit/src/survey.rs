//! Walks source and replica side by side, counts the entries of both and draws a sample of them.
//!
//! Names only: nothing is looked at but what a listing tells no kind of. An entry that stands on
//! both sides counts once. Of a directory that stands on one side only, all that is in it does.
//! Names of the replica are known by their numbers in the sample's hash: an entry would go
//! uncounted if it had the same 64 bits as another of its directory.

use crate::monitor::{AuditMonitor, AuditStage, Watch};
use driftless_engine::{Options, RESERVED, folds};
use driftless_lock::Mutex;
use driftless_model::{Act, Class, Fault, Kind, Problem, RelPath, Side};
use driftless_pool::{Concurrency, Pace, Queue, Workload, drive};
use driftless_reconcile::{Likeness, without};
use driftless_tree::{Dir, DirRef, Done, Levels, NameStream, Names, is_temp_name, windows};
use driftless_verify::Sampler;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Names of one directory that are held at a time.
const WINDOW_NAMES: usize = 4096;
/// Items in the queue above which the walk goes down before it goes on.
const QUEUE_LONG: usize = 256;
/// Numbers of the source's names in one directory that are kept to know the replica's by: 16 MiB.
/// Beyond, the source is asked.
const NUMBERS_MAX: usize = 2 * 1024 * 1024;

/// Directories that are remembered because they could not be read, so that they are not reported
/// again.
const UNREAD_MAX: usize = 10_000;

/// A walk through both trees.
struct Survey<'r> {
    options: &'r Options,
    sampler: Sampler,
    monitor: &'r dyn AuditMonitor,
    stop: &'r AtomicBool,
    queue: Queue<Item>,
    pace: Option<Pace>,
    entries: AtomicU64,
    problems: AtomicU64,
    unread: Mutex<BTreeSet<RelPath>>,
    cut_off: AtomicBool,
    /// Device and inode of the replica's root, if both trees are on one machine.
    own_replica: Option<(u64, u64)>,
}

/// What a walk found.
#[derive(Debug, Default)]
pub struct Surveyed {
    /// The sample: sorted paths, each with the tree it was met in (the replica only if the source
    /// lacks it).
    pub sample: Vec<(RelPath, Side)>,
    /// Entries of both trees together.
    pub entries: u64,
    /// How many directories could not be read.
    pub problems: u64,
    /// The first of them.
    pub unread: BTreeSet<RelPath>,
}

/// A directory, where it is open.
struct Place {
    path: RelPath,
    source: Option<DirRef>,
    replica: Option<DirRef>,
    /// The directories above it, on the source and on the replica.
    levels: [Levels; 2],
}

/// A listing in progress.
struct Listing {
    place: Arc<Place>,
    side: Side,
    stream: Box<dyn NameStream>,
    /// Numbers of the source's names; sorted once the source is listed.
    numbers: Vec<u64>,
    /// There were too many names to keep the numbers of all.
    overflowed: bool,
    /// Numbers of the source's names as names are that the replica takes for one.
    folded: Vec<(Likeness, Vec<u64>)>,
}

enum Item {
    /// Read more names.
    List(Listing),
    /// Enter a range of the subdirectories that were met on this side.
    Enter(Arc<Place>, Arc<Names>, Side, Range<u64>),
}

/// Goes through both trees with at most `threads_max` threads.
pub fn survey(
    options: &Options,
    sampler: Sampler,
    watch: Watch<'_>,
    (source, replica): (DirRef, DirRef),
    threads_max: usize,
) -> Surveyed {
    let Watch { monitor, stop } = watch;
    let pace = Pace::new(options.throttle.requests_per_second_max);
    let (entries, problems) = (AtomicU64::new(0), AtomicU64::new(0));
    let (queue, unread, cut_off) = (Queue::new(1), Mutex::default(), AtomicBool::new(false));
    let own_replica = options.is_one_machine().then(|| replica.first_meta().id());
    let survey = Survey {
        options,
        sampler,
        monitor,
        stop,
        queue,
        pace,
        entries,
        problems,
        unread,
        cut_off,
        own_replica,
    };
    let roots = [Some(source), Some(replica)];
    let levels = below(&Default::default(), &roots).expect("nothing is above the roots");
    let [source, replica] = roots;
    let place = Place {
        path: RelPath::root(),
        source,
        replica,
        levels,
    };
    survey.meet(survey.sampler.number(b""), b"", Side::Source);
    survey.begin(place);
    drive(&survey, threads_max);
    let _an_audit_looks_again = options.lost_as(survey.cut_off.load(Relaxed));
    let unread = survey.unread.into_inner();
    let (entries, problems) = (survey.entries.into_inner(), survey.problems.into_inner());
    Surveyed {
        sample: survey.sampler.finish(),
        entries,
        problems,
        unread,
    }
}

impl Workload for Survey<'_> {
    type Item = Item;

    fn queue(&self) -> &Queue<Item> {
        &self.queue
    }

    fn concurrency(&self) -> Concurrency {
        self.options.throttle.jobs
    }

    fn work_done(&self) -> u64 {
        self.entries.load(Relaxed)
    }

    fn work(&self, index: usize) {
        while let Some(item) = self.queue.take(index) {
            match item {
                _ if self.stopped() => {}
                Item::List(listing) => self.list(listing),
                Item::Enter(place, names, side, range) => {
                    self.enter_all(&place, &names, side, range)
                }
            }
            self.queue.done();
        }
    }

    fn tell(&self, jobs: usize) {
        self.monitor
            .progress(AuditStage::Counting, self.entries.load(Relaxed), None, jobs);
    }
}

impl Survey<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Relaxed) || self.cut_off.load(Relaxed)
    }

    fn unread(&self, path: RelPath, fault: Fault) {
        // One lost connection is no problem of a path, and the end of the audit says it.
        if fault.is_cut_off() {
            return self.cut_off.store(true, Relaxed);
        }
        self.problems.fetch_add(1, Relaxed);
        self.monitor
            .problem(&Problem::new(path.clone(), fault, Class::Skip));
        let mut unread = self.unread.lock();
        if unread.len() < UNREAD_MAX {
            unread.insert(path);
        }
    }

    /// Counts an entry and offers it to the sample.
    fn meet(&self, number: u64, path: &[u8], side: Side) {
        self.entries.fetch_add(1, Relaxed);
        self.sampler.offer(number, path, side);
    }

    /// Starts to list a directory, the source's side first.
    fn begin(&self, place: Place) {
        let (side, dir) = match (&place.source, &place.replica) {
            (Some(source), _) => (Side::Source, source),
            (None, Some(replica)) => (Side::Replica, replica),
            (None, None) => return,
        };
        match dir.list() {
            Ok(stream) => self.list(Listing {
                place: Arc::new(place),
                side,
                stream,
                numbers: Vec::new(),
                overflowed: false,
                folded: Vec::new(),
            }),
            Err(fault) => self.unread(place.path, fault),
        }
    }

    /// Reads a window of names; what is left of the directory and its subdirectories become items.
    fn list(&self, mut listing: Listing) {
        let (place, side) = (listing.place.clone(), listing.side);
        let window = self.window(&mut listing);
        let followed = window.and_then(|(subdirs, more)| {
            Ok((
                subdirs,
                if more {
                    Some(listing)
                } else {
                    other_side(listing)?
                },
            ))
        });
        match followed {
            Ok((subdirs, next)) => {
                next.into_iter()
                    .for_each(|listing| self.queue.push(Item::List(listing)));
                if !subdirs.is_empty() {
                    let all = 0..subdirs.len() as u64;
                    self.queue
                        .push(Item::Enter(place, Arc::new(subdirs), side, all));
                }
            }
            Err(fault) => self.unread(place.path.clone(), fault),
        }
    }

    /// Meets the entries of a window; returns the subdirectories and whether there may be more
    /// names.
    fn window(&self, listing: &mut Listing) -> Done<(Names, bool)> {
        let (mut names, mut subdirs) = (Names::default(), Names::default());
        let more = listing.stream.fill(&mut names, WINDOW_NAMES)?;
        let mut path = listing.place.path.as_bytes().to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        let stem = path.len();
        for (name, hint) in (0..names.len()).map(|index| names.get(index)) {
            path.truncate(stem);
            path.extend_from_slice(name.to_bytes());
            if is_temp_name(name) {
                self.pass_by(listing.side, &path, hint);
                continue;
            }
            if self.is_dir(listing, name, &path, hint)? == Some(true) {
                subdirs.push(name, Some(Kind::Dir));
            }
        }
        Ok((subdirs, more))
    }

    /// Passes by an unfinished entry, as a run does. On the source such a name is a problem, as it
    /// is in a run, unless the rules leave it out.
    fn pass_by(&self, side: Side, path: &[u8], hint: Option<Kind>) {
        let is_dir = hint == Some(Kind::Dir);
        let is_taken = self.options.policy.filter.takes(path, is_dir);
        if side == Side::Replica || self.options.passes_by_unfinished || !is_taken {
            return;
        }
        let problem = Problem {
            path: RelPath::parse(path).expect("a listing gives names"),
            side,
            act: Act::Copy,
            cause: RESERVED.into(),
            class: Class::Skip,
        };
        self.problems.fetch_add(1, Relaxed);
        self.monitor.problem(&problem);
    }

    /// Meets one entry; whether it is a directory, or `None` if it is not to be met: left out, or
    /// known from the source.
    fn is_dir(
        &self,
        listing: &mut Listing,
        name: &CStr,
        path: &[u8],
        hint: Option<Kind>,
    ) -> Done<Option<bool>> {
        let number = self.sampler.number(path);
        let side = listing.side;
        match side {
            Side::Source => listing.remember(number),
            Side::Replica
                if listing.is_known(name, number) || self.is_spelt_otherwise(listing, name)? =>
            {
                return Ok(None);
            }
            Side::Replica => {}
        }
        let kind = match hint.map_or_else(|| listing.dir().look(name).map(|meta| meta.kind), Ok) {
            Err(fault) if fault.is_missing() => return Ok(None),
            kind => kind?,
        };
        let is_dir = kind == Kind::Dir;
        if !self.options.policy.keep.keeps_kind(kind)
            || !self.options.policy.filter.takes(path, is_dir)
        {
            return Ok(None);
        }
        if is_dir && self.is_mount_point(listing, name)? {
            return Ok(None);
        }
        self.meet(number, path, listing.side);
        Ok(Some(is_dir))
    }

    /// Whether the source has what the replica lists under another spelling, which is one name to
    /// the replica.
    fn is_spelt_otherwise(&self, listing: &mut Listing, name: &CStr) -> Done<bool> {
        let (Some(source), Some(replica)) = (&listing.place.source, &listing.place.replica) else {
            return Ok(false);
        };
        let Some(likeness) = folds(replica, name) else {
            return Ok(false);
        };
        let number = |name: &CStr| self.sampler.number(&without(likeness, name.to_bytes()));
        if listing.folded.iter().all(|(known, _)| *known != likeness) {
            listing.folded.push((likeness, numbers(source, number)?));
        }
        let (_, numbers) = listing
            .folded
            .iter()
            .find(|(known, _)| *known == likeness)
            .expect("it was added above");
        Ok(numbers.binary_search(&number(name)).is_ok())
    }

    /// Enters a range of subdirectories, giving half of the rest away whenever somebody is idle.
    fn enter_all(&self, place: &Arc<Place>, names: &Arc<Names>, side: Side, mut range: Range<u64>) {
        let share = |range| Item::Enter(place.clone(), names.clone(), side, range);
        while range.start < range.end && !self.stopped() {
            let name = names.get(range.start as usize).0;
            range.start += 1;
            self.queue.spare(&mut range, QUEUE_LONG, share);
            if let Some(pace) = &self.pace {
                pace.take(1, &|| self.stopped());
            }
            self.enter(place, name, side);
        }
    }

    /// Enters a subdirectory where it is one. If it cannot be read on one side, nothing is known of
    /// what is missing from it.
    fn enter(&self, above: &Place, name: &CStr, side: Side) {
        let path = above.path.join(name.to_bytes());
        let source = above.source.as_ref().filter(|_| side == Side::Source);
        let opened = source
            .map_or(Ok(None), |dir| open(dir, name))
            .and_then(|source| {
                let replica = above
                    .replica
                    .as_ref()
                    .map_or(Ok(None), |dir| open(dir, name))?;
                let dirs = [source, replica];
                let levels = below(&above.levels, &dirs)?;
                Ok((dirs, levels))
            });
        match opened {
            Err(fault) => self.unread(path, fault),
            Ok(([Some(source), _], _))
                if self.is_foreign(above, &source)
                    || self.own_replica == Some(source.first_meta().id()) => {}
            Ok(([source, replica], levels)) => self.begin(Place {
                path,
                source,
                replica,
                levels,
            }),
        }
    }

    /// Whether another file system is mounted there that is left out: no run compares what it is
    /// mounted on.
    fn is_mount_point(&self, listing: &Listing, name: &CStr) -> Done<bool> {
        if !self.options.policy.one_file_system || listing.side == Side::Replica {
            return Ok(false);
        }
        match listing.dir().peek(name) {
            Err(fault) if fault.is_missing() => Ok(false),
            meta => Ok(self
                .options
                .is_foreign(meta?.dev, listing.dir().first_meta().dev)),
        }
    }

    fn is_foreign(&self, above: &Place, dir: &DirRef) -> bool {
        above.source.as_ref().is_some_and(|own| {
            self.options
                .is_foreign(dir.first_meta().dev, own.first_meta().dev)
        })
    }
}

impl Listing {
    fn dir(&self) -> &dyn Dir {
        let dir = if self.side == Side::Source {
            &self.place.source
        } else {
            &self.place.replica
        };
        &**dir.as_ref().expect("it is being listed")
    }

    fn remember(&mut self, number: u64) {
        self.overflowed |= self.place.replica.is_some() && self.numbers.len() == NUMBERS_MAX;
        if self.place.replica.is_some() && !self.overflowed {
            self.numbers.push(number);
        }
    }

    /// Whether a name of the replica was met on the source.
    fn is_known(&self, name: &CStr, number: u64) -> bool {
        let asked = || {
            self.place
                .source
                .as_ref()
                .is_some_and(|source| source.look(name).is_ok())
        };
        self.numbers.binary_search(&number).is_ok() || self.overflowed && asked()
    }
}

/// The numbers of the names of a directory, sorted; of more than [`NUMBERS_MAX`], the first ones.
fn numbers(dir: &DirRef, number: impl Fn(&CStr) -> u64) -> Done<Vec<u64>> {
    let mut numbers = Vec::new();
    for names in windows(dir)? {
        let names = names?;
        numbers.extend((0..names.len()).map(|at| number(names.get(at).0)));
        if numbers.len() >= NUMBERS_MAX {
            break;
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The replica's listing, if the one that ended was the source's and there is one.
fn other_side(mut listing: Listing) -> Done<Option<Listing>> {
    let Some(replica) = listing
        .place
        .replica
        .as_ref()
        .filter(|_| listing.side == Side::Source)
    else {
        return Ok(None);
    };
    let stream = replica.list()?;
    listing.numbers.sort_unstable();
    Ok(Some(Listing {
        side: Side::Replica,
        stream,
        ..listing
    }))
}

/// Returns the levels down to the directories that were opened on both sides.
fn below(above: &[Levels; 2], [source, replica]: &[Option<DirRef>; 2]) -> Done<[Levels; 2]> {
    let enter = |above: &Levels, dir: &Option<DirRef>, side| match dir {
        Some(dir) => above.enter(dir, side),
        None => Ok(Levels::default()),
    };
    Ok([
        enter(&above[0], source, Side::Source)?,
        enter(&above[1], replica, Side::Replica)?,
    ])
}

/// Opens a subdirectory; `None` if there is none.
fn open(dir: &DirRef, name: &CStr) -> Done<Option<DirRef>> {
    match dir.enter(name) {
        Ok(dir) => Ok(Some(dir)),
        Err(fault) if fault.is_absent() => Ok(None),
        Err(fault) => Err(fault),
    }
}
