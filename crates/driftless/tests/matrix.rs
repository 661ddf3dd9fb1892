//! Every file system as source and as replica of every other: the hostile tree, cut to what both
//! can hold, is kept, a second run finds nothing, and what a replica cannot hold is told by path.
//!
//! `make test` runs each kind once on each side. `make campaign` runs all pairs, `DRIFTLESS_SEEDS`
//! trees each; `DRIFTLESS_PAIR=Xfs,Bare` those of one pair alone, `DRIFTLESS_SEED` one seed.
#![allow(clippy::disallowed_methods)]

mod common;

use common::campaign::{Campaign, count_of};
use common::places::{Kind, Place};
use common::{check_accounts, leftovers, sync, sync_ok, verify};
use driftless_testkit::{Profile, attrs, build_tree, mutate, rsync_opinion, snapshot, touched};
use std::fs;
use std::path::{Path, PathBuf};

const NONE: [&str; 0] = [];
const MUTATIONS: usize = 80;
const SEEDS_EACH: u64 = 3;

/// Pairs that do not hold yet, and what they wait for.
fn waits_for(_from: Kind, _to: Kind) -> Option<&'static str> {
    None
}

struct Pair {
    from: Place,
    to: Place,
    kinds: (Kind, Kind),
    seed: u64,
}

impl Pair {
    fn new(from: Kind, to: Kind, seed: u64) -> Pair {
        Pair {
            from: Place::new(from),
            to: Place::new(to),
            kinds: (from, to),
            seed,
        }
    }

    fn src(&self) -> PathBuf {
        self.from.join("src")
    }

    fn dst(&self) -> PathBuf {
        self.to.join("dst")
    }

    /// Source and replica are equal, as far as both can hold what they shall, by both judges and by
    /// `verify`.
    fn check(&self, what: &str) {
        let context = format!(
            "{what}, {:?} to {:?}, seed {}",
            self.kinds.0, self.kinds.1, self.seed
        );
        let options = self.kinds.0.holds().and(&self.kinds.1.holds()).options();
        driftless_testkit::assert_equal(&self.src(), &self.dst(), &options, &context);
        assert_eq!(
            rsync_opinion(&self.src(), &self.dst(), &options),
            "",
            "{context}: rsync would still change something"
        );
        assert_eq!(
            leftovers(&self.to.truth("dst")),
            Vec::<PathBuf>::new(),
            "{context}"
        );
        let _ = verify(&self.src(), &self.dst()).run().expect(0);
    }

    /// Another run does nothing at all.
    fn check_settled(&self, arguments: &[&str]) {
        let before = snapshot(&self.to.truth("dst"), true);
        let outcome = sync_ok(&self.src(), &self.dst(), arguments);
        let touched = touched(&before, &snapshot(&self.to.truth("dst"), true));
        assert_eq!(
            touched,
            Vec::<String>::new(),
            "a second run touched the replica\n{}",
            outcome.describe()
        );
        for field in ["changed", "deleted", "bytes_copied", "failed"] {
            assert_eq!(
                outcome.count(field),
                0,
                "{field} of a second run\n{}",
                outcome.describe()
            );
        }
    }
}

fn check_pair(from: Kind, to: Kind, seed: u64) {
    let pair = Pair::new(from, to, seed);
    let holds = from.holds().and(&to.holds());
    let truth = pair.from.truth("src");
    fs::create_dir(&truth).expect("source");
    build_tree(
        &truth,
        seed,
        &Profile {
            entries: 60,
            large: false,
            ..profile(from)
        },
    );
    holds.cut(&truth);
    pair.from.settle();
    let _ = sync_ok(&pair.src(), &pair.dst(), NONE);
    pair.check("first copy");
    pair.to.settle();
    pair.check_settled(&[]);
    mutate(&truth, seed + 1, MUTATIONS);
    holds.cut(&truth);
    let _ = sync_ok(&pair.src(), &pair.dst(), ["--delete"]);
    pair.check("after mutations");
    pair.check_settled(&["--delete"]);
}

/// Whatever the kind lets be made; an overlay refuses whiteouts, the one device that the catalogue
/// cannot do without.
fn profile(kind: Kind) -> Profile {
    Profile {
        whiteouts: kind.holds().whiteouts,
        ..Profile::root()
    }
}

fn sample(from: Kind, to: Kind) {
    match waits_for(from, to) {
        Some(reason) => println!("{from:?} to {to:?} waits for {reason}"),
        None => check_pair(from, to, 1),
    }
}

macro_rules! samples {
    ($($name:ident: $from:ident, $to:ident;)*) => {
        $(#[test]
        fn $name() {
            sample(Kind::$from, Kind::$to);
        })*

        #[test]
        fn the_samples_have_every_kind_on_each_side() {
            let pairs = [$((Kind::$from, Kind::$to)),*];
            assert!(Kind::ALL.iter().all(|kind| pairs.iter().any(|(from, _)| from == kind) && pairs.iter().any(|(_, to)| to == kind)));
        }
    };
}

samples! {
    tmpfs_is_kept_on_folded: Tmpfs, Folded;
    folded_is_kept_on_ext4: Folded, Ext4;
    ext4_is_kept_on_bare: Ext4, Bare;
    bare_is_kept_on_tmpfs: Bare, Tmpfs;
    ext4_is_kept_on_xfs: Ext4, Xfs;
    xfs_is_kept_on_seconds: Xfs, Seconds;
    seconds_are_kept_on_btrfs: Seconds, Btrfs;
    btrfs_is_kept_on_overlay: Btrfs, Overlay;
    overlay_is_kept_on_old_ext4: Overlay, Ext4Old;
    old_ext4_is_kept_on_untyped: Ext4Old, Untyped;
    untyped_is_kept_on_ext2: Untyped, Ext2Untyped;
    ext2_is_kept_on_tmpfs: Ext2Untyped, Tmpfs;
}

#[test]
#[ignore = "the better part of an hour: make campaign"]
fn every_pair_of_file_systems_is_kept() {
    let asked = std::env::var("DRIFTLESS_PAIR").ok();
    let mut campaign = Campaign::new("matrix");
    let first = count_of("DRIFTLESS_SEED", 1);
    let seeds = if std::env::var("DRIFTLESS_SEED").is_ok() {
        1
    } else {
        count_of("DRIFTLESS_SEEDS", SEEDS_EACH)
    };
    for (from, to) in Kind::ALL
        .into_iter()
        .flat_map(|from| Kind::ALL.into_iter().map(move |to| (from, to)))
    {
        let name = format!("{from:?},{to:?}");
        if asked.as_ref().is_some_and(|asked| *asked != name) {
            continue;
        }
        if let Some(reason) = waits_for(from, to) {
            println!("{name} waits for {reason}");
            continue;
        }
        for seed in first..first + seeds {
            let replay = format!("DRIFTLESS_PAIR={name} DRIFTLESS_SEED={seed}");
            campaign.run(replay, || check_pair(from, to, seed));
        }
    }
    campaign.end();
}

/// An entry that a kind of replica cannot hold as it is.
struct Unheld {
    kind: Kind,
    path: &'static str,
    make: fn(&Path),
    /// Whether it is there all the same, but for the property that cannot be kept.
    is_there: bool,
}

const UNHELD: [Unheld; 6] = [
    Unheld {
        kind: Kind::Xfs,
        path: "long",
        make: |path| std::os::unix::fs::symlink("t".repeat(2000), path).expect("link"),
        is_there: false,
    },
    Unheld {
        kind: Kind::Overlay,
        path: "whiteout",
        make: make_whiteout,
        is_there: false,
    },
    Unheld {
        kind: Kind::Bare,
        path: "attribute",
        make: |path| make_with(path, "user.x", b"value".to_vec()),
        is_there: true,
    },
    Unheld {
        kind: Kind::Bare,
        path: "acl",
        make: |path| make_with(path, attrs::ACL_ACCESS, attrs::acl_blob((7, 7), (8, 5), 0)),
        is_there: true,
    },
    Unheld {
        kind: Kind::Ext4Old,
        path: "future",
        make: |path| make_at(path, 4_200_000_000),
        is_there: true,
    },
    Unheld {
        kind: Kind::Ext4Old,
        path: "past",
        make: |path| make_at(path, -5_000_000_000),
        is_there: true,
    },
];

fn make_whiteout(path: &Path) {
    attrs::make_node(path, rustix::fs::FileType::CharacterDevice, 0, 0).expect("mknod");
}

fn make_with(path: &Path, name: &str, value: Vec<u8>) {
    fs::write(path, "content").expect("write");
    attrs::set_xattr(path, name.as_bytes(), &value).expect("attribute");
}

fn make_at(path: &Path, seconds: i64) {
    fs::write(path, "content").expect("write");
    attrs::set_mtime(path, seconds, 5).expect("utimensat");
}

/// What waits in [`UNHELD`], by its path.
const UNHELD_WAITING: [(&str, &str); 0] = [];

#[test]
fn what_a_replica_cannot_hold_is_told_by_path_once_in_each_run_and_nothing_is_copied_again() {
    for row in UNHELD
        .iter()
        .filter(|row| UNHELD_WAITING.iter().all(|(path, _)| *path != row.path))
    {
        let pair = Pair::new(Kind::Tmpfs, row.kind, 1);
        fs::create_dir(pair.src()).expect("source");
        fs::write(pair.src().join("plain"), "plain").expect("write");
        (row.make)(&pair.src().join(row.path));
        attrs::set_mtime(&pair.src(), 1_000_000_000, 0).expect("utimensat");
        attrs::set_mtime(&pair.src().join("plain"), 1_000_000_000, 0).expect("utimensat");
        let first = run_told(&pair, row);
        // What is lacking is tried again, which may change the time of change.
        let before = snapshot(&pair.to.truth("dst"), false);
        assert_eq!(
            before.contains_key(row.path.as_bytes()),
            row.is_there,
            "{} on {:?}\n{first}",
            row.path,
            row.kind
        );
        assert!(before.contains_key(&b"plain"[..]), "{first}");
        let again = run_told(&pair, row);
        let touched = touched(&before, &snapshot(&pair.to.truth("dst"), false));
        assert_eq!(
            touched,
            Vec::<String>::new(),
            "{} on {:?}: the second run\n{again}",
            row.path,
            row.kind
        );
    }
}

/// Runs a sync that must end with 3 and one problem, that of the row's path.
fn run_told(pair: &Pair, row: &Unheld) -> String {
    let outcome = sync(&pair.src(), &pair.dst()).run().expect(3);
    check_accounts(&outcome);
    let problems = outcome.events_named("problem");
    let told: Vec<_> = problems
        .iter()
        .filter_map(|problem| problem["path"].as_str())
        .collect();
    assert_eq!(
        told,
        [row.path],
        "on {:?}\n{}",
        row.kind,
        outcome.describe()
    );
    outcome.describe()
}

/// An overlay gives a directory a wrong time where entries of two directories in it are changed at
/// once for the first time; what is not changed itself keeps its time all the same.
#[test]
fn an_overlay_keeps_the_times_of_directories_above_changes() {
    let pair = Pair::new(Kind::Tmpfs, Kind::Overlay, 1);
    let files: Vec<PathBuf> = (0..8 * 16)
        .map(|number| format!("{}/{}", number / 16, number % 16))
        .flat_map(|dir| ["changed", "removed"].map(|name| pair.src().join(&dir).join(name)))
        .collect();
    for file in &files {
        fs::create_dir_all(file.parent().expect("its directory")).expect("directory");
        fs::write(file, "first").expect("write");
    }
    for round in 0..3 {
        let _ = sync_ok(&pair.src(), &pair.dst(), ["--jobs", "8", "--delete"]);
        pair.to.settle();
        for file in files.iter().filter(|file| file.ends_with("changed")) {
            fs::write(file, format!("round {round}")).expect("write");
        }
        let _ = sync_ok(&pair.src(), &pair.dst(), ["--jobs", "8"]);
        pair.check("changes");
        pair.to.settle();
        for file in files.iter().filter(|file| file.ends_with("removed")) {
            let _there_in_the_first_round = fs::remove_file(file);
            fs::write(file.with_extension(round.to_string()), "next").expect("write");
            if round > 0 {
                fs::remove_file(file.with_extension((round - 1).to_string())).expect("remove");
            }
        }
        let _ = sync_ok(&pair.src(), &pair.dst(), ["--jobs", "8", "--delete"]);
        pair.check("removals");
    }
}
