//! A site where a run of many movers meets with accidents: a broker, a coordinator and movers on
//! hosts of a lab, trees to work on, and what must hold however it went.

use super::campaign::count_of;
use super::movers::Job;
use super::{check_accounts, check_equal, leftovers, put, state_but_for_the_mark};
use driftless_testkit::{
    Driftless, EVENT_MAX, FsKind, Host, Lab, Outcome, Profile, Rabbit, Running, Scratch, attrs,
    build_tree, mutate, touched,
};
use fastrand::Rng;
use rustix::process::Signal;
use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Movers of a case, each on a host of its own.
pub const MOVERS: usize = 3;
/// Limit of a run that met with the worst of accidents, on a loaded machine.
const END_MAX: Duration = EVENT_MAX;
/// Time in which a mover receives that its batch was taken away, and stops.
const HEARS: Duration = Duration::from_secs(3);
/// Bytes of the file that is divided among the movers.
const LARGE_BYTES: usize = 100 << 20;
/// Files that a reader looks at while they are replaced.
const WATCHED: usize = 6;

/// Hosts and a broker that many cases batch, one after the other.
pub struct Site {
    rabbit: Mutex<Rabbit>,
    lab: Lab,
}

impl Site {
    /// The first hosts are those of the movers; the broker and the coordinator have one each.
    pub fn new() -> Site {
        let lab = Lab::new(MOVERS + 2);
        Site {
            rabbit: Mutex::new(Rabbit::start_on(lab.host(MOVERS))),
            lab,
        }
    }

    /// The host of a mover.
    pub fn host(&self, mover: usize) -> &Host {
        self.lab.host(mover)
    }

    /// The broker.
    pub fn rabbit(&self) -> MutexGuard<'_, Rabbit> {
        self.rabbit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host of the coordinator.
    pub fn desk(&self) -> &Host {
        self.lab.host(MOVERS + 1)
    }
}

/// What is replicated in a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Some of everything, to a new replica.
    Mixed,
    /// Mostly one large file.
    Large,
    /// A replica that was equal before some changes.
    Changed,
    /// Many small files.
    Small,
}

/// Trees on a file system of their own.
struct Trees {
    _scratch: Scratch,
    src: PathBuf,
    dst: PathBuf,
    shape: Shape,
}

impl Trees {
    fn new(rng: &mut Rng, shape: Shape) -> Trees {
        let scratch = Scratch::new(FsKind::Tmpfs, 500);
        let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
        let trees = Trees {
            _scratch: scratch,
            src,
            dst,
            shape,
        };
        trees.fill(rng);
        if shape == Shape::Changed {
            trees.change(rng);
        }
        trees
    }

    fn fill(&self, rng: &mut Rng) {
        let src = &self.src;
        let hostile = src.join("hostile");
        fs::create_dir(&hostile).expect("make");
        build_tree(
            &hostile,
            rng.u64(..),
            &Profile {
                entries: 60,
                catalogue: rng.bool(),
                large: false,
                ..Profile::root()
            },
        );
        let (dirs, wide) = if self.shape == Shape::Large {
            (8, 50)
        } else {
            (40, 500)
        };
        for dir in 0..dirs {
            let path = src.join(format!("nested/{}/{}/{dir}", dir % 3, dir % 7));
            (0..12).for_each(|file| {
                put(
                    &path.join(format!("file-{file}")),
                    vec![dir as u8 + 1; rng.usize(0..30_000)],
                )
            });
            attrs::set_mode(&path, *rng.choice(&[0o755, 0o700, 0o2775]).expect("a mode"))
                .expect("mode");
            attrs::set_xattr(&path.join("file-0"), b"user.number", &[dir as u8]).expect("xattr");
            std::os::unix::fs::symlink(format!("file-{dir}"), path.join("link")).expect("link");
            attrs::make_node(&path.join("fifo"), rustix::fs::FileType::Fifo, 0, 0).expect("fifo");
        }
        (0..wide).for_each(|file| {
            put(
                &src.join(format!("wide/file-{file}")),
                vec![7; rng.usize(0..2000)],
            )
        });
        for file in 0..dirs {
            let to = src.join(format!("linked/{}/name-{file}", file % 4));
            fs::create_dir_all(to.parent().expect("a parent")).expect("make");
            fs::hard_link(
                src.join(format!("nested/{}/{}/{file}/file-1", file % 3, file % 7)),
                to,
            )
            .expect("link");
        }
        if self.shape != Shape::Small {
            put(&src.join("large"), patterned(rng.u8(..)));
        }
        watched(src).for_each(|(index, path)| put(&path, vec![b'a'; watched_bytes(index, b'a')]));
    }

    /// Copies all of it, and changes the source then.
    fn change(&self, rng: &mut Rng) {
        let _ = super::sync(&self.src, &self.dst).run().expect(0);
        mutate(&self.src.join("hostile"), rng.u64(..), 60);
        mutate(&self.src.join("nested"), rng.u64(..), 60);
        for file in 0..400 {
            put(
                &self.src.join(format!("wide/new-{file}")),
                vec![8; rng.usize(0..2000)],
            );
            put(
                &self
                    .src
                    .join(format!("new/{}/{}/file-{file}", file % 5, file % 9)),
                vec![9; rng.usize(0..20_000)],
            );
        }
        (0..100).for_each(|file| {
            fs::remove_file(self.src.join(format!("wide/file-{file}"))).expect("remove")
        });
        put(&self.src.join("large"), patterned(rng.u8(..)));
        watched(&self.src)
            .for_each(|(index, path)| put(&path, vec![b'b'; watched_bytes(index, b'b')]));
    }

    /// Bytes of all files of the source, each counted once.
    fn bytes(&self) -> u64 {
        let all = driftless_testkit::mutate::list_all(&self.src).expect("list");
        let files = all
            .iter()
            .map(|path| path.symlink_metadata().expect("stat"))
            .filter(|meta| meta.is_file());
        files
            .map(|meta| (meta.ino(), meta.len()))
            .collect::<HashMap<_, _>>()
            .values()
            .sum()
    }

    /// Files with one name that are complete on the replica, with what shows that they were not
    /// touched since.
    fn complete(&self) -> HashMap<PathBuf, Mark> {
        let all = driftless_testkit::mutate::list_all(&self.src).expect("list");
        let complete = all.into_iter().filter_map(|path| {
            let there = self.dst.join(path.strip_prefix(&self.src).expect("below"));
            let (one, other) = (
                path.symlink_metadata().ok()?,
                there.symlink_metadata().ok()?,
            );
            let of = |meta: &fs::Metadata| {
                (
                    meta.len(),
                    meta.mtime(),
                    meta.mtime_nsec(),
                    meta.mode(),
                    meta.uid(),
                    meta.gid(),
                )
            };
            let is_plain =
                one.is_file() && other.is_file() && one.nlink() == 1 && other.nlink() == 1;
            let is_same = is_plain
                && of(&one) == of(&other)
                && ATTRIBUTES
                    .iter()
                    .all(|name| attribute(&path, name) == attribute(&there, name));
            is_same.then(|| (there, mark(&other)))
        });
        complete.collect()
    }
}

/// Those that mutations set.
const ATTRIBUTES: [&str; 4] = [
    "user.number",
    "user.changed",
    "trusted.changed",
    attrs::ACL_ACCESS,
];

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    attrs::get_xattr(path, name.as_bytes()).ok().flatten()
}

fn mark(meta: &fs::Metadata) -> Mark {
    (meta.ino(), meta.ctime(), meta.ctime_nsec())
}

fn patterned(salt: u8) -> Vec<u8> {
    let mut content = vec![salt | 1; LARGE_BYTES];
    content
        .chunks_mut(1 << 16)
        .enumerate()
        .for_each(|(at, chunk)| chunk[..8].copy_from_slice(&(at as u64 + 1).to_le_bytes()));
    content
}

fn watched(root: &Path) -> impl Iterator<Item = (usize, PathBuf)> + use<'_> {
    (0..WATCHED).map(move |index| (index, root.join(format!("watched/file-{index}"))))
}

fn watched_bytes(index: usize, version: u8) -> usize {
    (index + 1) * 150_000 + usize::from(version)
}

/// Looks at files by name while they are replaced: whatever is seen where others may look must be a
/// whole version.
struct Reader {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Option<String>>,
}

impl Reader {
    fn start(dst: &Path) -> Reader {
        let (over, dst) = (Arc::new(AtomicBool::new(false)), dst.to_owned());
        let seen = over.clone();
        let thread = std::thread::spawn(move || {
            while !seen.load(Relaxed) {
                if let Some(torn) = watched(&dst).find_map(|(index, path)| torn(index, &path)) {
                    return Some(torn);
                }
                std::thread::sleep(Duration::from_millis(15));
            }
            None
        });
        Reader { over, thread }
    }

    /// What it saw that was not whole.
    fn end(self) -> Option<String> {
        self.over.store(true, Relaxed);
        self.thread.join().expect("the reader")
    }
}

fn torn(index: usize, path: &Path) -> Option<String> {
    let dir = fs::metadata(path.parent()?).ok()?;
    if dir.permissions().mode() & 0o7777 == 0o700 {
        return None;
    }
    let content = fs::read(path).ok()?;
    let whole = content.first().is_some_and(|version| {
        content.len() == watched_bytes(index, *version)
            && content.iter().all(|byte| byte == version)
    });
    (!whole).then(|| {
        format!(
            "{}: {} bytes, from {:?} to {:?}",
            path.display(),
            content.len(),
            content.first(),
            content.last()
        )
    })
}

/// A case in its course.
pub struct Case<'s> {
    pub site: &'s Site,
    pub rng: Rng,
    job: Job,
    trees: Trees,
    movers: Vec<Option<Running>>,
    /// What movers said that were killed.
    ended: Vec<Outcome>,
    coordinator: Option<Running>,
    reader: Option<Reader>,
    delete: bool,
    /// The run goes on after an accident at which a batch may be in two hands.
    pub twice: bool,
}

impl<'s> Case<'s> {
    fn new(site: &'s Site, seed: u64) -> Case<'s> {
        let mut rng = Rng::with_seed(seed);
        let shape = [Shape::Mixed, Shape::Changed, Shape::Small, Shape::Large][(seed % 4) as usize];
        let trees = Trees::new(&mut rng, shape);
        let job = Job::new(&site.rabbit());
        let (movers, ended) = ((0..MOVERS).map(|_| None).collect(), Vec::new());
        let delete = shape == Shape::Changed || rng.bool();
        let mut case = Case {
            site,
            rng,
            job,
            trees,
            movers,
            ended,
            coordinator: None,
            reader: None,
            delete,
            twice: false,
        };
        (0..MOVERS).for_each(|mover| case.start_mover(mover));
        case
    }

    fn start(&mut self) {
        self.reader = Some(Reader::start(&self.trees.dst));
        self.start_coordinator();
    }

    pub fn start_mover(&mut self, mover: usize) {
        self.movers[mover] = Some(self.job.start_mover_on(
            self.site.host(mover),
            &["--bwlimit=24M", "--iops-limit=400"],
        ));
    }

    pub fn kill_mover(&mut self, mover: usize) {
        if let Some(running) = self.movers[mover].take() {
            running.signal(Signal::KILL);
            self.ended.push(running.wait());
        }
    }

    pub fn signal_mover(&self, mover: usize, signal: Signal) {
        self.movers[mover]
            .iter()
            .for_each(|running| running.signal(signal));
    }

    pub fn start_coordinator(&mut self) {
        self.coordinator = Some(self.sync().spawn());
    }

    fn sync(&self) -> Driftless {
        let run = self
            .job
            .sync(&self.trees.src, &self.trees.dst)
            .args(self.delete.then_some("--delete"));
        run.through(self.site.desk().words())
    }

    pub fn kill_coordinator(&mut self) {
        if let Some(running) = self.coordinator.take() {
            running.signal(Signal::KILL);
            let _ = running.wait();
        }
    }

    /// Waits, but not longer than the run takes; says whether it runs still.
    pub fn pass(&self, time: Duration) -> bool {
        !self
            .coordinator
            .as_ref()
            .expect("it was started")
            .ends_within(time)
    }

    /// Waits for a time out of a range of milliseconds.
    pub fn pass_some(&mut self, milliseconds: Range<u64>) -> bool {
        let time = Duration::from_millis(self.rng.u64(milliseconds));
        self.pass(time)
    }

    /// Any of the movers.
    pub fn any_mover(&mut self) -> usize {
        self.rng.usize(..MOVERS)
    }

    /// Waits until nothing happens on the replica, and then until something does, each with a
    /// limit.
    pub fn pass_silence(&self, limit: Duration) {
        let began = Instant::now();
        let (mut state, mut since) = (self.state(), Instant::now());
        while began.elapsed() < limit && self.pass(Duration::from_millis(150)) {
            let now = self.state();
            if now != state {
                if since.elapsed() > Duration::from_secs(3) {
                    return;
                }
                (state, since) = (now, Instant::now());
            }
        }
    }

    fn state(&self) -> (usize, u64) {
        let all = driftless_testkit::mutate::list_all(&self.trees.dst).unwrap_or_default();
        (
            all.len(),
            all.iter()
                .filter_map(|path| path.symlink_metadata().ok())
                .map(|meta| meta.blocks())
                .sum(),
        )
    }

    /// Waits until the first change of the replica.
    fn wait_until_it_works(&self, before: (usize, u64)) {
        let began = Instant::now();
        while self.state() == before && self.pass(Duration::from_millis(5)) {
            assert!(began.elapsed() < END_MAX, "nothing is done");
        }
    }

    /// Ends the movers and checks what must hold.
    fn check(&mut self, seed: u64, kept: &HashMap<PathBuf, Mark>) {
        let coordinator = self.coordinator.take().expect("it was started");
        let in_time = coordinator.ends_within(END_MAX);
        if !in_time {
            coordinator.signal(Signal::KILL);
        }
        let outcome = coordinator.wait();
        let torn = self.reader.take().and_then(Reader::end);
        if self.twice {
            // A mover that was stopped, or cut off, may write once more before it hears that its
            // batch was taken away.
            std::thread::sleep(HEARS);
        }
        let again = self.twice || seed.is_multiple_of(3);
        let second = (in_time && again).then(|| self.second());
        let said = format!("{}\n{}", outcome.describe(), self.end_movers());
        assert!(in_time, "it takes longer than {END_MAX:?}\n{said}");
        assert_eq!(outcome.code(), 0, "exit code\n{said}");
        assert_eq!(torn, None, "torn content\n{said}");
        check_accounts(&outcome);
        check_equal(&self.trees.src, &self.trees.dst, &said);
        assert_eq!(
            leftovers(&self.trees.dst),
            Vec::<PathBuf>::new(),
            "unfinished files\n{said}"
        );
        second
            .into_iter()
            .for_each(|second| self.check_second(&second, &said));
        self.check_kept(kept, &said);
        let copied = outcome.count("bytes_copied");
        assert!(
            copied <= self.trees.bytes(),
            "{copied} of {} bytes were copied\n{said}",
            self.trees.bytes()
        );
    }

    /// Whatever was complete before the accident was not made again.
    fn check_kept(&self, kept: &HashMap<PathBuf, Mark>, said: &str) {
        let touched = |(path, before): &(&PathBuf, &Mark)| {
            path.symlink_metadata()
                .map_or(true, |meta| mark(&meta) != **before)
        };
        let again: Vec<_> = kept
            .iter()
            .filter(touched)
            .map(|(path, _)| path)
            .take(10)
            .collect();
        assert!(
            again.is_empty(),
            "of {} complete files these were made again: {again:?}\n{said}",
            kept.len()
        );
    }

    /// Another run, and what was touched of the replica meanwhile.
    fn second(&self) -> (Outcome, Vec<String>) {
        let before = state_but_for_the_mark(&self.trees.dst);
        (
            self.sync().run(),
            touched(&before, &state_but_for_the_mark(&self.trees.dst)),
        )
    }

    /// Another run finds nothing to do.
    fn check_second(&self, (outcome, touched): &(Outcome, Vec<String>), said: &str) {
        assert_eq!(
            outcome.code(),
            0,
            "exit code of a second run\n{}",
            outcome.describe()
        );
        check_accounts(outcome);
        let changed: u64 = ["changed", "deleted", "bytes_copied", "failed"]
            .iter()
            .map(|field| outcome.count(field))
            .sum();
        assert_eq!(
            changed,
            0,
            "a second run found something to do\n{}",
            outcome.describe()
        );
        assert_eq!(
            *touched,
            Vec::<String>::new(),
            "the replica was touched in a second run\n{}\n{said}",
            outcome.describe()
        );
    }

    /// Asks all movers to end, and returns what they said.
    fn end_movers(&mut self) -> String {
        let mut said = Vec::new();
        for mover in self.movers.drain(..).flatten() {
            mover.signal(Signal::CONT);
            mover.signal(Signal::TERM);
            let outcome = mover.wait();
            said.push(format!(
                "--- mover -> {}\n{}",
                outcome.code(),
                outcome.stderr_text()
            ));
        }
        self.ended.iter().for_each(|outcome| {
            said.push(format!(
                "--- a mover that was killed\n{}",
                outcome.stderr_text()
            ))
        });
        said.join("\n")
    }
}

/// Inode and time of change.
type Mark = (u64, i64, i64);

/// Runs `count` cases of a kind, one after the other on one site, each with an accident after some
/// of it was done.
///
/// `DRIFTLESS_SEEDS` sets another number of cases. `DRIFTLESS_SEED` runs that seed alone.
pub fn run_cases(kind: &str, count: u64, accident: impl Fn(&mut Case<'_>)) {
    let count = count_of("DRIFTLESS_SEEDS", count);
    run_cases_on(&Site::new(), kind, 0..count, accident);
}

/// The same, on a site that is there.
pub fn run_cases_on(site: &Site, kind: &str, seeds: Range<u64>, accident: impl Fn(&mut Case<'_>)) {
    let one: Option<u64> = std::env::var("DRIFTLESS_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seeds: Vec<u64> = seeds
        .filter(|seed| one.is_none_or(|one| one == *seed))
        .collect();
    let (mut failed, mut late) = (Vec::new(), 0);
    for seed in &seeds {
        println!(
            "{kind}: seed {seed}; replay: DRIFTLESS_SEED={seed} cargo test -p driftless --test movers_chaos {kind}"
        );
        let began = Instant::now();
        let ran = catch_unwind(AssertUnwindSafe(|| {
            run_case(site, (kind, *seed), &accident)
        }));
        match ran {
            Ok(in_time) => late += usize::from(!in_time),
            Err(_) => failed.push(seed),
        }
        println!("{kind}: seed {seed} took {:?}", began.elapsed());
    }
    assert!(
        failed.is_empty(),
        "{kind}: these seeds failed: {failed:?}; replay one with DRIFTLESS_SEED"
    );
    // One of several may end before its accident, whatever their number.
    let late_max = (seeds.len() / 4).max(usize::from(seeds.len() > 1));
    assert!(
        late <= late_max,
        "{kind}: {late} of {} runs ended before the accident",
        seeds.len()
    );
}

/// Returns whether the accident met the run at work.
fn run_case(site: &Site, (kind, seed): (&str, u64), accident: &impl Fn(&mut Case<'_>)) -> bool {
    // Each kind has trees of its own.
    let salt: u64 = kind.bytes().map(u64::from).sum();
    let mut case = Case::new(site, seed + (salt << 8 & !3));
    let before = case.state();
    case.start();
    case.wait_until_it_works(before);
    let in_time = case.pass_some(0..1500);
    let kept = case.trees.complete();
    accident(&mut case);
    case.check(seed, &kept);
    in_time
}
