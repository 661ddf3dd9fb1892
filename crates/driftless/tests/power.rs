//! The power fails: whatever a disk has kept of what was not flushed, the next run makes the
//! replica equal and nothing is called equal that is not; what a run has called done is there.
//!
//! The replica is on a recorded disk ([`Disk`]), on which somebody else flushes now and then, so
//! that names, sizes and times get into the journal before the content. Each recorded session is
//! cut at several points. `make campaign` cuts 200 times on each file system; `DRIFTLESS_SEED` with
//! the name of the test runs one session alone.
#![allow(clippy::disallowed_methods)]

mod common;

use common::campaign::{Campaign, count_of};
use common::{LOCK, LOCK_SIGN, leftovers, put, sync, sync_ok, verify};
use driftless_testkit::{
    Disk, FsKind, Options, Profile, Recording, Scratch, assert_equal, build_tree, mutate,
};
use fastrand::Rng;
use rustix::process::Signal;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const MUTATIONS: usize = 30;
const CUTS_EACH: usize = 5;
/// Sessions of a campaign on each file system for each seed that is asked for: 200 cuts with five
/// seeds.
const SESSIONS_EACH: u64 = 8;
/// So that some of it lasts long enough to be cut.
const SLOW: &str = "--bwlimit=25M";

/// What is going on when the power fails.
#[derive(Clone, Copy, Debug)]
enum Session {
    FirstCopy,
    Changes,
    AfterAKill,
}

const SESSIONS: [Session; 3] = [Session::Changes, Session::FirstCopy, Session::AfterAKill];

/// A disk that was switched off, and the source of what is on it.
struct Recorded {
    source: Scratch,
    recording: Recording,
    /// The points of the record between which the run was at work.
    began: usize,
    ended: usize,
}

impl Recorded {
    fn new(kind: FsKind, session: Session, seed: u64) -> Recorded {
        let source = Scratch::new(FsKind::Tmpfs, 300);
        let (src, disk) = (source.dir("src"), Disk::new(kind));
        let dst = disk.path().join("dst");
        build_tree(
            &src,
            seed,
            &Profile {
                entries: 60,
                ..Profile::small()
            },
        );
        add_own(&src, seed);
        if !matches!(session, Session::FirstCopy) {
            let _ = sync_ok(&src, &dst, ["--delete"]);
            change_own(&src, seed);
            mutate(&src, seed + 1, MUTATIONS);
        }
        let mut rng = Rng::with_seed(seed);
        if matches!(session, Session::AfterAKill) {
            let running = sync(&src, &dst).args(["--delete", SLOW]).spawn();
            let _ended = running.ends_within(Duration::from_millis(rng.u64(20..700)));
            running.signal(Signal::KILL);
            let _ = running.wait();
        }
        let began = disk.now();
        let durability = rng
            .choice(["--durability=end", "--durability=end", "--durability=file"])
            .expect("one");
        beside_flushes(disk.path(), || {
            drop(sync_ok(&src, &dst, ["--delete", SLOW, durability]))
        });
        let ended = disk.now();
        Recorded {
            source,
            recording: disk.switch_off(kind),
            began,
            ended,
        }
    }

    fn src(&self) -> PathBuf {
        self.source.path().join("src")
    }

    /// Mounts what is left, looks, runs again as a user would, and looks at what the disk holds
    /// then.
    fn check_cut(&self, at: usize, rng: &mut Rng) {
        let after = self.recording.cut(at, rng);
        let dst = after.path().join("dst");
        // Holes are no content, and what a cut leaves of a file may have others.
        let options = Options {
            holes: false,
            ..Options::default()
        };
        if at >= self.ended {
            // The lock of the run goes after its flush with what tells of it, and one that is still
            // there keeps nobody out.
            let options = Options {
                ignore: vec![LOCK.to_vec(), LOCK_SIGN.to_vec()],
                ..options.clone()
            };
            assert_equal(&self.src(), &dst, &options, "what was called done");
        }
        let outcome = sync_ok(&self.src(), &dst, ["--delete"]);
        after.mount_again();
        assert_equal(
            &self.src(),
            &dst,
            &options,
            &format!("the run after the cut\n{}", outcome.describe()),
        );
        assert_eq!(leftovers(&dst), Vec::<PathBuf>::new());
        let _ = verify(&self.src(), &dst).run().expect(0);
    }
}

/// Runs `work` while somebody else makes things durable on the same file system.
fn beside_flushes(root: &Path, work: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = File::create(root.join("other")).expect("create");
            while !is_over.load(Relaxed) {
                other.write_all_at(b"something", 0).expect("write");
                other.set_len(9).expect("size");
                other.sync_all().expect("flush");
                std::thread::sleep(Duration::from_millis(60));
            }
        });
        // The other thread ends also if this panics.
        let _over = Over(&is_over);
        work();
    });
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    std::iter::repeat_with(|| rng.u8(..)).take(bytes).collect()
}

/// Files that last: dense ones, small ones that end in a hole, a large one with holes.
fn add_own(src: &Path, seed: u64) {
    for index in 0..12 {
        put(
            &src.join(format!("own/dense-{index}")),
            noise(seed + index, 500_000),
        );
        put(
            &src.join(format!("own/holed-{index}")),
            noise(seed + 50 + index, 200_000),
        );
        let holed = OpenOptions::new()
            .write(true)
            .open(src.join(format!("own/holed-{index}")))
            .expect("open");
        holed.set_len(MIB).expect("size");
        put(&src.join(format!("gone/{index}")), "to be deleted");
    }
    put(&src.join("own/large"), "");
    let large = OpenOptions::new()
        .write(true)
        .open(src.join("own/large"))
        .expect("open");
    large.set_len(66 * MIB).expect("size");
    [0, 20, 64].into_iter().for_each(|at| {
        large
            .write_all_at(&noise(seed + at, MIB as usize), at * MIB)
            .expect("write")
    });
}

/// New content of the same size, new names for old content, new files, deletes, and attributes
/// alone.
fn change_own(src: &Path, seed: u64) {
    for index in 0..12 {
        put(
            &src.join(format!("own/dense-{index}")),
            noise(seed + 100 + index, 500_000),
        );
        put(
            &src.join(format!("new/{index}")),
            noise(seed + 150 + index, 100_000),
        );
    }
    driftless_testkit::remove_deep(&src.join("gone")).expect("remove");
    let large = OpenOptions::new()
        .write(true)
        .open(src.join("own/large"))
        .expect("open");
    large
        .write_all_at(&noise(seed + 200, MIB as usize), 40 * MIB)
        .expect("write");
}

fn cut_often(kind: FsKind, test: &str, name: &'static str, seeds: std::ops::Range<u64>) {
    let mut campaign = Campaign::new(name);
    let one = std::env::var("DRIFTLESS_SEED")
        .ok()
        .map(|_| count_of("DRIFTLESS_SEED", 1));
    for seed in one.map_or(seeds, |seed| seed..seed + 1) {
        let session = SESSIONS[(seed % 3) as usize];
        let recorded = Recorded::new(kind, session, seed);
        let (began, ended) = (recorded.began, recorded.ended);
        let mut rng = Rng::with_seed(seed);
        println!(
            "{session:?} on {kind:?}: {} writes, {} flushes",
            ended - began,
            recorded.recording.flushes(began..ended)
        );
        for cut in 0..CUTS_EACH {
            // The last is right behind the end.
            let at = if cut + 1 == CUTS_EACH {
                ended
            } else {
                rng.usize(began..ended)
            };
            let what = format!(
                "{session:?}, cut at {at} of {began}..{ended}; DRIFTLESS_SEED={seed} ... --test power {test}"
            );
            campaign.run(what, || recorded.check_cut(at, &mut rng));
        }
    }
    campaign.end();
}

macro_rules! on_each {
    ($($sample:ident, $campaign:ident: $kind:ident, $first:literal;)*) => {
        $(#[test]
        fn $sample() {
            cut_often(FsKind::$kind, stringify!($sample), concat!("sample of power cuts on ", stringify!($kind)), $first..$first + 3);
        }

        #[test]
        #[ignore = "hundreds of cuts: make campaign"]
        fn $campaign() {
            let sessions = SESSIONS_EACH * count_of("DRIFTLESS_SEEDS", 5);
            cut_often(FsKind::$kind, stringify!($campaign), concat!("power cuts on ", stringify!($kind)), $first..$first + sessions);
        })*
    };
}

on_each! {
    after_a_power_cut_the_next_run_is_exact_on_ext4, the_power_is_cut_often_on_ext4: Ext4, 3000;
    after_a_power_cut_the_next_run_is_exact_on_xfs, the_power_is_cut_often_on_xfs: Xfs, 6000;
    after_a_power_cut_the_next_run_is_exact_on_btrfs, the_power_is_cut_often_on_btrfs: Btrfs, 9000;
}
