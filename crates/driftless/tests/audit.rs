//! What `driftless audit` claims: samples are uniform, planted differences are found as often as
//! the formula says, bounds hold, and what was changed a moment ago is told apart.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{
    USER, count_entries, on_trees, on_trees_by_user, only_local, problems, put, sync_ok, verify,
    wait_until,
};
use driftless_testkit::{
    Driftless, FsKind, Outcome, Profile, Scratch, attrs, build_tree, deep_path, snapshot_hash,
};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const NONE: [&str; 0] = [];

/// A source, and its replica made by a sync.
struct Stage {
    _scratch: Scratch,
    src: PathBuf,
    dst: PathBuf,
}

impl Stage {
    fn new(fill: impl FnOnce(&Path)) -> Stage {
        let scratch = Scratch::new(FsKind::Tmpfs, 512);
        let (src, dst) = (scratch.dir("src"), scratch.path().join("dst"));
        fill(&src);
        let _ = sync_ok(&src, &dst, NONE);
        Stage {
            _scratch: scratch,
            src,
            dst,
        }
    }

    /// An audit whose changes of a moment ago count.
    fn audit<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Driftless {
        on_trees("audit", &self.src, &self.dst)
            .args(["--json", "--grace=0"])
            .args(arguments)
    }

    /// The same by an ordinary user.
    fn audit_by_user<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Driftless {
        on_trees_by_user("audit", &self.src, &self.dst)
            .args(["--json", "--grace=0"])
            .args(arguments)
    }

    fn entries(&self) -> u64 {
        count_entries(&self.src)
    }
}

/// `count` small files in directories of a hundred.
fn many_files(root: &Path, count: u64) {
    for index in 0..count {
        put(
            &root.join(format!("run-{}/{index:05}.dat", index / 100)),
            format!("{index:05}"),
        );
    }
}

/// Gives a directory the modification time of another one.
fn copy_mtime(from: &Path, to: &Path) {
    let meta = fs::metadata(from).expect("there");
    attrs::set_mtime(to, meta.mtime(), meta.mtime_nsec() as u32).expect("a time");
}

/// Changes content and neither size nor modification time.
fn flip(path: &Path) {
    let before = fs::metadata(path)
        .expect("metadata")
        .modified()
        .expect("mtime");
    let mut content = fs::read(path).expect("read");
    let last = content.last_mut().expect("not empty");
    *last ^= 1;
    driftless_testkit::content::write(path, &content).expect("write");
    set_mtime(path, before);
}

fn set_mtime(path: &Path, time: SystemTime) {
    File::open(path)
        .and_then(|file| file.set_modified(time))
        .expect("set mtime");
}

/// The modification time of the directory that holds it stays as it was.
fn quietly(dir: &Path, act: impl FnOnce()) {
    let before = fs::metadata(dir)
        .expect("metadata")
        .modified()
        .expect("mtime");
    act();
    set_mtime(dir, before);
}

fn differences(outcome: &Outcome) -> Vec<String> {
    let all = outcome.events_named("difference");
    all.iter()
        .map(|event| {
            format!(
                "{} {}",
                event["found"].as_str().expect("a word"),
                event["path"].as_str().expect("a path")
            )
        })
        .collect()
}

/// The probability that `samples` of `all`, drawn without replacement, hold one of `bad`.
fn chance(all: u64, bad: u64, samples: u64) -> f64 {
    1.0 - (0..samples)
        .map(|drawn| (all - bad - drawn) as f64 / (all - drawn) as f64)
        .product::<f64>()
}

/// Audits with many seeds. As many of them must find a difference as the formula says, within four
/// standard deviations, and as many bounds must hold as the confidence promises.
fn check_statistics(stage: &Stage, all: u64, bad: u64, samples: u64) {
    const RUNS: u64 = 300;
    let (mut found, mut held) = (0, 0);
    for seed in 1..=RUNS {
        let arguments = [
            format!("--samples={samples}"),
            format!("--seed={seed}"),
            "--confidence=0.9".into(),
        ];
        let outcome = stage.audit(arguments).run();
        let (drift, bound) = (
            outcome.count("drift"),
            outcome.summary()["bound"].as_f64().expect("a bound"),
        );
        assert_eq!(
            outcome.code(),
            if drift > 0 { 4 } else { 0 },
            "{}",
            outcome.describe()
        );
        assert_eq!(
            (outcome.count("entries"), outcome.count("sampled")),
            (all, samples),
            "{}",
            outcome.describe()
        );
        assert_eq!(
            outcome.count("same") + drift,
            samples,
            "{}",
            outcome.describe()
        );
        found += u64::from(drift > 0);
        held += u64::from(bound >= bad as f64 / all as f64);
    }
    let sigma = |p: f64| (p * (1.0 - p) / RUNS as f64).sqrt();
    let (expected, share) = (chance(all, bad, samples), found as f64 / RUNS as f64);
    assert!(
        (0.4..0.95).contains(&expected),
        "{samples} samples make a weak test: {expected}"
    );
    assert!(
        (share - expected).abs() < 4.0 * sigma(expected),
        "{found} of {RUNS} found it, {expected} expected"
    );
    assert!(
        held as f64 / RUNS as f64 > 0.9 - 4.0 * sigma(0.9),
        "{held} of {RUNS} bounds held"
    );
}

#[test]
fn planted_differences_are_found_as_often_as_the_formula_says() {
    only_local!("needs hundreds of runs");
    let stage = Stage::new(|root| many_files(root, 2000));
    for index in (0..2000).step_by(100) {
        flip(
            &stage
                .dst
                .join(format!("run-{}/{:05}.dat", index / 100, index + 37)),
        );
    }
    let all = stage.entries();
    assert_eq!(all, 2021);
    check_statistics(&stage, all, 20, 60);
    check_statistics(&stage, all, 20, 150);
}

#[test]
fn what_only_the_replica_has_is_found_as_often_as_it_should_be() {
    only_local!("needs hundreds of runs");
    let stage = Stage::new(|root| many_files(root, 1500));
    quietly(&stage.dst, || many_files(&stage.dst.join("left-over"), 18));
    let run = stage.dst.join("run-3");
    quietly(&run, || put(&run.join("extra"), "x"));
    let all = stage.entries() + 21;
    check_statistics(&stage, all, 21, 80);
    let outcome = stage.audit(["--samples=5000"]).run().expect(4);
    let found = differences(&outcome);
    assert_eq!(found.len(), 21, "{found:#?}");
    assert!(
        found.contains(&"extra left-over/run-0/00017.dat".into())
            && found.contains(&"extra run-3/extra".into()),
        "{found:#?}"
    );
    assert!(found.contains(&"extra left-over".into()) && outcome.summary()["exact"] == true);
}

/// Where an entry of the uneven tree lies: its directory, or how deep.
fn group_of(path: &str) -> String {
    match path.matches('/').count() {
        0 => "top".into(),
        1 => path.split('/').next().expect("a name").into(),
        depth => format!("depth {}", depth / 8),
    }
}

/// One wide directory, one narrow, many small ones, a deep chain.
fn uneven_tree(root: &Path) {
    (0..400).for_each(|index| put(&root.join(format!("wide/{index}")), "x"));
    (0..40).for_each(|index| put(&root.join(format!("narrow/{index}")), "x"));
    (0..60).for_each(|index| put(&root.join(format!("small-{}/{index}", index % 30)), "x"));
    let mut deep = root.join("deep");
    for level in 0..40 {
        deep.push(format!("{level}"));
        (0..8).for_each(|index| put(&deep.join(format!("file-{index}")), "x"));
    }
}

/// With an empty replica every entry that is drawn shows. Pearson's statistic, with the correction
/// for drawing without replacement, is compared with the mean of its distribution and six standard
/// deviations more.
#[test]
fn samples_are_uniform_over_directories_and_depths() {
    only_local!("needs hundreds of runs");
    const RUNS: u64 = 60;
    const SAMPLES: u64 = 200;
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let stage = Stage {
        src: scratch.dir("src"),
        dst: scratch.dir("dst"),
        _scratch: scratch,
    };
    uneven_tree(&stage.src);
    let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
    let names: Vec<String> = common::names_below(&stage.src);
    names
        .iter()
        .for_each(|path| *sizes.entry(group_of(path)).or_default() += 1);
    let mut drawn: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 1..=RUNS {
        let outcome = stage
            .audit([format!("--samples={SAMPLES}"), format!("--seed={seed}")])
            .run()
            .expect(4);
        let events = outcome.events_named("difference");
        let paths = events
            .iter()
            .map(|event| event["path"].as_str().expect("a path"))
            .filter(|path| *path != ".");
        paths.for_each(|path| *drawn.entry(group_of(path)).or_default() += 1);
    }
    let (all, total) = (names.len() as f64, drawn.values().sum::<u64>() as f64);
    assert!(
        total >= (RUNS * (SAMPLES - 1)) as f64,
        "all that was drawn differs"
    );
    let sum: f64 = sizes
        .iter()
        .map(|(group, size)| {
            let (expected, seen) = (
                total * *size as f64 / all,
                drawn.get(group).copied().unwrap_or(0) as f64,
            );
            (seen - expected).powi(2) / expected
        })
        .sum();
    let statistic = sum * (all - 1.0) / (all - SAMPLES as f64);
    let freedom = (sizes.len() - 1) as f64;
    assert!(
        statistic < freedom + 6.0 * (2.0 * freedom).sqrt(),
        "{statistic} with {freedom}: {sizes:?} {drawn:?}"
    );
}

#[test]
fn a_seed_draws_the_same_sample_with_any_number_of_threads() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let stage = Stage {
        src: scratch.dir("src"),
        dst: scratch.dir("dst"),
        _scratch: scratch,
    };
    uneven_tree(&stage.src);
    let sample = |seed: &str, jobs: &str| {
        differences(&stage.audit(["--samples=100", seed, jobs]).run().expect(4))
    };
    let first = sample("--seed=5", "--jobs=1");
    assert_eq!(sample("--seed=5", "--jobs=16"), first);
    assert_ne!(sample("--seed=6", "--jobs=1"), first);
    let chosen = stage.audit(["--samples=100"]).run().expect(4);
    let seed = chosen.events_named("start")[0]["seed"].to_string();
    assert_eq!(
        sample(&format!("--seed={seed}"), "--jobs=2"),
        differences(&chosen)
    );
}

#[test]
fn a_sample_of_everything_finds_every_difference_that_its_level_can_see() {
    let stage = Stage::new(|root| {
        many_files(root, 300);
        put(&root.join("same-size"), "abcdef");
        put(&root.join("empty"), "");
    });
    let outcome = stage.audit(["--samples=1000000"]).run().expect(0);
    assert_eq!(
        outcome.count("sampled"),
        stage.entries(),
        "{}",
        outcome.describe()
    );
    assert_eq!(
        (
            outcome.summary()["exact"].as_bool(),
            outcome.summary()["bound"].as_f64()
        ),
        (Some(true), Some(0.0))
    );
    flip(&stage.dst.join("same-size"));
    let outcome = stage
        .audit(["--samples=1000000", "--level=meta"])
        .run()
        .expect(0);
    assert_eq!(differences(&outcome), NONE);
    for level in ["content", "media"] {
        let outcome = stage
            .audit(["--samples=1000000", "--level", level])
            .run()
            .expect(4);
        assert_eq!(differences(&outcome), ["differs same-size"], "{level}");
        let event = &outcome.events_named("difference")[0];
        assert_eq!(
            (event["what"][0].as_str(), event["recent"].as_bool()),
            (Some("content"), Some(false)),
            "{event}"
        );
    }
    flip(&stage.dst.join("same-size"));
    attrs::set_mode(&stage.dst.join("run-1"), 0o700).expect("chmod");
    quietly(&stage.dst, || {
        fs::remove_file(stage.dst.join("empty")).expect("remove")
    });
    quietly(&stage.src, || {
        fs::remove_dir_all(stage.src.join("run-2")).expect("remove")
    });
    let outcome = stage
        .audit(["--samples=1000000", "--level=meta"])
        .run()
        .expect(4);
    let found = differences(&outcome);
    assert_eq!(found.len(), 103, "{found:#?}");
    assert!(
        [
            "missing empty",
            "differs run-1",
            "extra run-2",
            "extra run-2/00217.dat"
        ]
        .iter()
        .all(|word| found.contains(&word.to_string()))
    );
    assert_eq!(outcome.count("drift"), 103);
}

#[test]
fn an_audit_touches_nothing() {
    let stage = Stage::new(|root| many_files(root, 200));
    flip(&stage.dst.join("run-1/00150.dat"));
    put(&stage.dst.join("extra"), "x");
    let before = (
        snapshot_hash(&stage.src, true),
        snapshot_hash(&stage.dst, true),
    );
    let _ = stage.audit(["--samples=1000"]).run().expect(4);
    assert_eq!(
        (
            snapshot_hash(&stage.src, true),
            snapshot_hash(&stage.dst, true)
        ),
        before
    );
}

#[test]
fn a_directory_on_the_way_to_what_was_drawn_does_not_count() {
    let stage =
        Stage::new(|root| (0..50).for_each(|index| put(&root.join(format!("dir/{index}")), "x")));
    attrs::set_mode(&stage.dst.join("dir"), 0o700).expect("chmod");
    let mut found = BTreeSet::new();
    for seed in 1..=40 {
        let outcome = stage
            .audit(["--samples=5".into(), format!("--seed={seed}")])
            .run();
        assert_eq!(
            outcome.count("same") + outcome.count("drift"),
            5,
            "{}",
            outcome.describe()
        );
        found.insert(outcome.count("drift"));
    }
    assert_eq!(
        found,
        BTreeSet::from([0, 1]),
        "now and then it was drawn itself"
    );
}

#[test]
fn unfinished_entries_are_no_drift() {
    const UNFINISHED: &str = ".driftless-tmp-0123456789abcdef0123456789abcdef";
    let stage = Stage::new(|root| many_files(root, 100));
    let entries = stage.entries();
    for below in ["", "run-0"] {
        put(&stage.dst.join(below).join(UNFINISHED), "part");
        copy_mtime(&stage.src.join(below), &stage.dst.join(below));
    }
    put(
        &stage.dst.join(UNFINISHED.replace('0', "1")).join("file"),
        "part",
    );
    copy_mtime(&stage.src, &stage.dst);
    let outcome = stage.audit(["--samples=1000"]).run().expect(0);
    assert_eq!(outcome.count("entries"), entries, "{}", outcome.describe());
    let _equal = verify(&stage.src, &stage.dst).run().expect(0);
    // On the source such a name is a problem, as it is to a run.
    put(&stage.src.join("run-0").join(UNFINISHED), "part");
    copy_mtime(&stage.dst.join("run-0"), &stage.src.join("run-0"));
    for outcome in [
        stage.audit(["--samples=1000"]).run().expect(3),
        verify(&stage.src, &stage.dst).run().expect(3),
    ] {
        let path = format!("run-0/{UNFINISHED}");
        assert_eq!(problems(&outcome), [path], "{}", outcome.describe());
    }
}

#[test]
fn what_was_changed_a_moment_ago_is_told_apart() {
    let stage = Stage::new(|root| many_files(root, 100));
    put(&stage.src.join("run-0/00003.dat"), "newer and longer");
    put(&stage.src.join("new"), "new on the source");
    fs::remove_file(stage.src.join("run-0/00004.dat")).expect("remove");
    fs::rename(
        stage.src.join("run-0/00005.dat"),
        stage.src.join("run-0/renamed"),
    )
    .expect("rename");
    let audit = |grace: &str| {
        on_trees("audit", &stage.src, &stage.dst)
            .args(["--json", "--samples=1000", grace])
            .run()
    };
    let outcome = audit("--grace=3600").expect(0);
    // Four files, the name that is gone, and both directories, whose times have changed.
    assert_eq!(
        (
            outcome.count("recent"),
            outcome.count("drift"),
            outcome.count("same")
        ),
        (7, 0, 97),
        "{}",
        outcome.describe()
    );
    assert!(
        outcome
            .events_named("difference")
            .iter()
            .all(|event| event["recent"] == true)
    );
    assert!(
        outcome.summary()["proof"]
            .as_str()
            .expect("a sentence")
            .starts_with("0 of 97 sampled entries differ:")
    );
    let outcome = audit("--grace=0").expect(4);
    assert_eq!(
        (outcome.count("recent"), outcome.count("drift")),
        (0, 7),
        "{}",
        outcome.describe()
    );
    let kinds: Vec<String> = differences(&outcome);
    assert_eq!(
        kinds,
        [
            "differs .",
            "missing new",
            "differs run-0",
            "differs run-0/00003.dat",
            "extra run-0/00004.dat",
            "extra run-0/00005.dat",
            "missing run-0/renamed"
        ]
    );
}

#[test]
fn a_modification_time_in_the_future_hides_nothing() {
    let stage = Stage::new(|root| put(&root.join("file"), "content"));
    let future = SystemTime::now() + Duration::from_secs(1_000_000_000);
    for root in [&stage.src, &stage.dst] {
        set_mtime(&root.join("file"), future);
    }
    flip(&stage.dst.join("file"));
    let outcome = stage.audit(["--samples=10"]).run().expect(4);
    assert_eq!(differences(&outcome), ["differs file"]);
}

#[test]
fn a_fraction_and_a_confidence_give_the_number_of_samples() {
    let stage = Stage::new(|root| put(&root.join("file"), "content"));
    for (arguments, samples) in [
        (vec!["--fraction=1e-4"], 29_956),
        (vec!["--fraction=0.01%", "--confidence=0.99"], 46_050),
        (vec!["--fraction=1%", "--confidence=95%"], 299),
        (vec!["--samples=7", "--confidence=0.99"], 7),
    ] {
        let outcome = stage.audit(&arguments).run().expect(0);
        assert_eq!(
            outcome.events_named("start")[0]["samples"].as_u64(),
            Some(samples),
            "{arguments:?}"
        );
    }
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let stage = Stage::new(|root| put(&root.join("file"), "content"));
    let wrong: [(&[&str], &str); 14] = [
        (&[], "--samples"),
        (&["--confidence=0.99"], "--fraction"),
        (&["--samples=0"], "0"),
        (&["--samples=-1"], "-1"),
        (&["--samples=many"], "many"),
        (&["--samples=10", "--fraction=0.1"], "cannot be used with"),
        (&["--fraction=0"], "a share above 0 and below 1"),
        (&["--fraction=1"], "a share above 0 and below 1"),
        (&["--fraction=-0.1"], "a share above 0 and below 1"),
        (
            &["--fraction=0.1", "--confidence=0"],
            "a share above 0 and below 1",
        ),
        (
            &["--fraction=0.1", "--confidence=1"],
            "a share above 0 and below 1",
        ),
        (
            &["--fraction=0.1", "--confidence=100%"],
            "a share above 0 and below 1",
        ),
        (
            &["--fraction=0.1", "--confidence=NaN"],
            "a share above 0 and below 1",
        ),
        (&["--samples=10", "--level=deep"], "deep"),
    ];
    for (arguments, message) in wrong {
        let outcome = stage.audit(arguments).run().expect(2);
        assert!(
            outcome.stderr_text().contains(message),
            "{arguments:?}\n{}",
            outcome.describe()
        );
        assert!(outcome.stdout.is_empty());
    }
}

#[test]
fn what_is_no_pair_of_directories_is_refused() {
    let stage = Stage::new(|root| put(&root.join("dir/file"), "content"));
    let cases = [
        (stage.src.join("dir/file"), stage.dst.join("dir/file")),
        (stage.src.join("missing"), stage.dst.clone()),
        (stage.src.clone(), stage.dst.join("missing")),
        (stage.src.clone(), stage.src.clone()),
        (stage.src.clone(), stage.src.join("dir")),
        (stage.src.clone(), stage.dst.join("dir/file")),
    ];
    for (src, dst) in cases {
        let outcome = on_trees("audit", &src, &dst)
            .args(["--json", "--samples=10"])
            .run()
            .expect(1);
        let errors = outcome.events_named("error");
        assert_eq!(
            (errors.len(), errors[0]["exit_code"].as_u64()),
            (1, Some(1)),
            "{}",
            outcome.describe()
        );
    }
    let outcome = stage
        .audit(["--samples=10", "--report=/no/such/folder/report.html"])
        .run()
        .expect(1);
    assert!(
        outcome
            .stderr_text()
            .contains("cannot write the report: no such file"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn filters_hold_for_both_sides() {
    let stage = Stage::new(|root| many_files(root, 200));
    put(&stage.dst.join("run-0/scratch.tmp"), "x");
    put(&stage.dst.join("cache/extra"), "x");
    put(&stage.src.join("mine.tmp"), "x");
    let filters = [
        "--samples=1000",
        "--exclude=*.tmp",
        "--exclude=/cache/",
        "--no-times",
    ];
    let outcome = stage.audit(filters).run().expect(0);
    assert_eq!(outcome.count("entries"), 203, "{}", outcome.describe());
}

#[test]
fn a_hostile_tree_agrees_with_its_copy() {
    let stage = Stage::new(|root| build_tree(root, 7, &Profile::root()));
    let outcome = stage.audit(["--samples=1000000"]).run().expect(0);
    assert_eq!(
        (outcome.count("entries"), outcome.count("same")),
        (stage.entries(), stage.entries()),
        "{}",
        outcome.describe()
    );
    let sampled = stage
        .audit(["--samples=100", "--level=media"])
        .run()
        .expect(0);
    assert_eq!(sampled.count("same"), 100, "{}", sampled.describe());
    let swapped = on_trees("audit", &stage.dst, &stage.src)
        .args(["--json", "--samples=300"])
        .run()
        .expect(0);
    assert_eq!(swapped.count("same"), 300, "{}", swapped.describe());
}

#[test]
fn paths_longer_than_the_kernel_takes_are_drawn_and_looked_at() {
    let scratch = Scratch::new(FsKind::Tmpfs, 64);
    let stage = Stage {
        src: scratch.dir("src"),
        dst: scratch.path().join("dst"),
        _scratch: scratch,
    };
    deep_path(&stage.src, 1500, 20).expect("deep");
    let _ = sync_ok(&stage.src, &stage.dst, NONE);
    let few = ["prlimit", "--nofile=64:64", "--"];
    let outcome = stage.audit(["--samples=150"]).through(few).run().expect(0);
    assert_eq!(outcome.count("same"), 150, "{}", outcome.describe());
    let empty = stage.dst.with_file_name("empty");
    fs::create_dir(&empty).expect("dir");
    let outcome = on_trees("audit", &empty, &stage.dst)
        .args(["--json", "--samples=150", "--grace=0"])
        .through(few)
        .run()
        .expect(4);
    assert_eq!(
        (outcome.count("drift"), outcome.count("failed")),
        (150, 0),
        "{}",
        outcome.describe()
    );
}

#[test]
fn what_cannot_be_read_is_reported_and_not_vouched_for() {
    let stage = Stage::new(|root| {
        many_files(root, 100);
        put(&root.join("locked/a/file"), "x");
        put(&root.join("secret"), "content");
    });
    for root in [&stage.src, &stage.dst] {
        for path in common::names_below(root) {
            attrs::set_owner(&root.join(path), USER, USER).expect("chown");
        }
        attrs::set_owner(root, USER, USER).expect("chown");
    }
    attrs::set_mode(&stage.src.join("locked"), 0o000).expect("chmod");
    attrs::set_mode(&stage.dst.join("locked"), 0o000).expect("chmod");
    attrs::set_owner(&stage.dst.join("secret"), 0, 0).expect("chown");
    attrs::set_mode(&stage.dst.join("secret"), 0o600).expect("chmod");
    attrs::set_mode(&stage.src.join("secret"), 0o600).expect("chmod");
    let arguments = ["--samples=1000", "--no-owner", "--no-group"];
    let outcome = stage.audit_by_user(arguments).run().expect(3);
    let mut paths: Vec<String> = outcome
        .events_named("problem")
        .iter()
        .map(|event| event["path"].as_str().expect("a path").to_owned())
        .collect();
    paths.sort();
    assert_eq!(paths, ["locked", "secret"], "{}", outcome.describe());
    assert_eq!(
        (outcome.count("failed"), outcome.count("drift")),
        (2, 0),
        "{}",
        outcome.describe()
    );
    // The root, a directory with a hundred files, and the two that cannot be read; nobody knows
    // what lies below.
    assert_eq!(
        (outcome.count("entries"), outcome.count("same")),
        (104, 102),
        "{}",
        outcome.describe()
    );
    flip(&stage.dst.join("run-0/00001.dat"));
    let _ = stage.audit_by_user(arguments).run().expect(4);
}

#[test]
fn an_audit_that_is_stopped_proves_nothing() {
    let stage =
        Stage::new(|root| (0..300).for_each(|index| put(&root.join(format!("{index}/file")), "x")));
    let report = stage.src.with_file_name("report.html");
    let running = stage
        .audit(["--samples=1000", "--iops-limit=20"])
        .arg("--report")
        .arg(&report)
        .spawn();
    let folder = report.parent().expect("a folder");
    let is_begun = |name: OsString| name.as_bytes().starts_with(b".driftless-new-");
    let names = || {
        fs::read_dir(folder)
            .expect("list")
            .map(|entry| entry.expect("entry").file_name())
    };
    wait_until("it has begun", || names().any(is_begun));
    assert!(
        !running.ends_within(Duration::from_millis(300)),
        "it should take seconds"
    );
    running.signal(Signal::INT);
    let outcome = running.wait().expect(130);
    let summary = outcome.summary();
    assert_eq!(
        (summary["end"].as_str(), summary["bound"].as_f64()),
        (Some("stopped"), None),
        "{}",
        outcome.describe()
    );
    assert!(
        !report.exists() && !names().any(is_begun),
        "there is nothing to report"
    );
}

/// Checks that every element is closed in order, and returns the text of all cells.
fn check_well_formed(html: &str) -> Vec<String> {
    let (mut open, mut cells, mut rest) = (
        Vec::new(),
        Vec::new(),
        html.strip_prefix("<!DOCTYPE html>").expect("a doctype"),
    );
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        assert!(!text.contains('>'), "a stray > in {text}");
        if open.last() == Some(&"td") {
            cells.push(text.to_owned());
        }
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes in {tag}");
        let name = tag
            .trim_start_matches('/')
            .split([' ', '/', '\n'])
            .next()
            .expect("a name");
        match tag {
            _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(name), "{tag}"),
            _ if tag.ends_with('/') => {}
            _ => open.push(name),
        }
        rest = &rest[end + 1..];
    }
    assert!(
        open.is_empty() && rest.trim().is_empty(),
        "{open:?} is left open"
    );
    cells
}

#[test]
fn the_report_is_one_page_that_any_name_can_stand_on() {
    let names: [&[u8]; 5] = [
        b"<script>alert(1)</script>",
        b"a&b\"c'd",
        b"line\nbreak",
        b"\xff\xfe",
        b"\x1b[2J</table>",
    ];
    let stage = Stage::new(|root| {
        many_files(root, 200);
        let dir = root.join("names");
        fs::create_dir(&dir).expect("dir");
        // A slash cannot be in a name.
        names.iter().for_each(|name| {
            put(
                &dir.join(OsStr::from_bytes(&name.replace_slash())),
                "content",
            )
        });
    });
    names.iter().for_each(|name| {
        flip(
            &stage
                .dst
                .join("names")
                .join(OsStr::from_bytes(&name.replace_slash())),
        )
    });
    let report = stage.src.with_file_name("report.html");
    fs::write(
        &report,
        format!(
            "<!DOCTYPE html>{}",
            "something longer than any report".repeat(10_000)
        ),
    )
    .expect("write");
    let outcome = stage
        .audit(["--samples=1000", "--seed=42", "--report"])
        .arg(&report)
        .run()
        .expect(4);
    let html = fs::read_to_string(&report).expect("the report, in UTF-8");
    let cells = check_well_formed(&html);
    for shown in [
        "names/&lt;script&gt;alert(1)&lt;|script&gt;",
        "names/a&amp;b\\&quot;c&#39;d",
        "names/line\\nbreak",
        "names/\\xff\\xfe",
    ] {
        assert!(
            cells.iter().any(|cell| cell == shown),
            "{shown} in {cells:#?}"
        );
    }
    assert_eq!(html.matches("<svg").count(), 2);
    assert!(html.contains("<th>filters</th><td>none</td>"), "{html}");
    assert!(
        html.matches("<rect").count() > 4 && !html.contains("<script") && !html.contains("src="),
        "{html}"
    );
    let proof = outcome.summary()["proof"]
        .as_str()
        .expect("a sentence")
        .to_owned();
    assert!(
        html.contains(&proof) && cells.contains(&"42".into()),
        "{proof} in {html}"
    );
}

trait ReplaceSlash {
    fn replace_slash(&self) -> Vec<u8>;
}

impl ReplaceSlash for &[u8] {
    fn replace_slash(&self) -> Vec<u8> {
        self.iter()
            .map(|byte| if *byte == b'/' { b'|' } else { *byte })
            .collect()
    }
}

#[test]
fn an_empty_tree_has_a_report_too() {
    let stage = Stage::new(|_| ());
    let report = stage.src.with_file_name("report.html");
    let outcome = stage
        .audit(["--samples=10", "--report"])
        .arg(&report)
        .run()
        .expect(0);
    assert_eq!(outcome.count("entries"), 1);
    check_well_formed(&fs::read_to_string(&report).expect("the report"));
}

#[test]
fn a_person_is_told_what_was_found_and_what_it_proves() {
    let stage = Stage::new(|root| many_files(root, 200));
    flip(&stage.dst.join("run-1/00150.dat"));
    let audit = |arguments: &[&str]| {
        on_trees("audit", &stage.src, &stage.dst)
            .arg("--grace=0")
            .args(arguments)
            .run()
    };
    let outcome = audit(&["--samples=1000", "--seed=9"]).expect(4);
    let text = outcome.stdout_text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0], "differs  file     run-1/00150.dat  content: bytes 0-4",
        "{text}"
    );
    assert!(
        lines[1].starts_with("203 entries, 203 sampled (seed 9): 202 equal, 1 different; "),
        "{text}"
    );
    assert_eq!(
        lines[2], "all 203 entries were compared, and 1 differs: 0.5 %",
        "{text}"
    );
    assert_eq!(
        audit(&["--samples=1000", "--quiet"])
            .expect(4)
            .stdout_text()
            .lines()
            .collect::<Vec<_>>(),
        [lines[0]]
    );
    let log = stage.src.with_file_name("log");
    let _ = audit(&[
        "--samples=1000",
        "--quiet",
        "--log",
        log.to_str().expect("text"),
    ])
    .expect(4);
    let logged = fs::read_to_string(&log).expect("the log");
    // What stands before it is the time.
    assert!(
        logged.lines().count() == 1 && logged.ends_with(&format!("Z {}\n", lines[0])),
        "{logged}"
    );
}

/// The fields of an event in the table of the page.
fn documented(event: &str) -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/audit.md");
    let text = fs::read_to_string(page).expect("the page");
    let heading = format!("### {event}");
    let lines = text
        .lines()
        .skip_while(|line| **line != *heading)
        .skip(1)
        .take_while(|line| !line.starts_with('#'));
    let fields = lines.filter_map(|line| {
        line.strip_prefix("| `")?
            .split_once('`')
            .map(|(field, _)| field.to_owned())
    });
    fields.collect()
}

#[test]
fn json_objects_have_exactly_the_documented_fields() {
    let stage = Stage::new(|root| many_files(root, 120));
    flip(&stage.dst.join("run-1/00110.dat"));
    attrs::set_mode(&stage.src.join("run-0"), 0o000).expect("chmod");
    let slow = stage
        .audit_by_user(["--samples=1000", "--iops-limit=10"])
        .run()
        .expect(4);
    let refused = on_trees("audit", &stage.src, &stage.src)
        .args(["--json", "--samples=1"])
        .run()
        .expect(1);
    let events: Vec<Value> = [slow, refused].iter().flat_map(Outcome::events).collect();
    for event in [
        "start",
        "difference",
        "problem",
        "progress",
        "summary",
        "error",
    ] {
        let found: Vec<&Value> = events
            .iter()
            .filter(|object| object["event"] == event)
            .collect();
        assert!(!found.is_empty(), "no {event} in {events:#?}");
        for object in found {
            let fields: BTreeSet<String> = object
                .as_object()
                .expect("an object")
                .keys()
                .cloned()
                .collect();
            assert_eq!(fields, documented(event), "{event}: {object}");
        }
    }
}
