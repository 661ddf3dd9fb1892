//! Processes that are killed at random moments: a reader of the final name finds the old version or
//! the new one, whole.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Bench, assert_same, build, names, open, put_all};
use driftless_model::{Keep, Stamp};
use driftless_state::holdings::{CopyState, Holdings, InodeIdentity};
use driftless_store::{
    BuildOptions, CopyRights, NodeStore, Placing, PurgeWhat, Receiving, SealMove, SealedPath,
};
use driftless_testkit::{Options, Profile, build_tree, compare, mutate};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, thread};

const CHILD: &str = "DRIFTLESS_TEST_CHILD";
/// Kills without `DRIFTLESS_SEEDS`.
const KILLS: u64 = 25;

/// The process that is killed: places the set of `src` at `to`. Does nothing without the variable.
#[test]
fn child_places_a_set() {
    let Some(folder) = env::var_os(CHILD) else {
        return;
    };
    let folder = Path::new(&folder);
    let open =
        |name: &str| NodeStore::open(&folder.join(name), Arc::new(|| Duration::from_secs(9)));
    let (origin, node) = (
        open("origin").expect("a store"),
        open("node").expect("a store"),
    );
    let mut options = BuildOptions {
        keep: Keep::default(),
        rights: CopyRights::OfSource,
        user: 0,
        pace: &mut |_| true,
    };
    let set = origin
        .build(&vec![folder.join("src")].into(), &mut options)
        .expect("a set");
    node.sweep().expect("swept");
    let catalogue = common::bring(&node, &set.catalogue);
    let to = Placing::Directory(folder.join("to"));
    if let Receiving::Open(mut receiver) = node.receive(&catalogue, &to).expect("begun") {
        receiver.reuse(&mut |_| true).expect("reused");
        put_all(&mut receiver, &mut set.source.reader(), 1);
        receiver.finish().expect("placed");
    }
}

fn child(folder: &Path) -> Command {
    child_of("child_places_a_set", folder)
}

fn child_of(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(env::current_exe().expect("the program"));
    command.args(["--exact", test]).env(CHILD, folder);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The process that is killed: casts the set of `src` to the cache, for a job of a user.
#[test]
fn child_casts_for_a_job() {
    let Some(folder) = env::var_os(CHILD) else {
        return;
    };
    let folder = Path::new(&folder);
    let open =
        |name: &str| NodeStore::open(&folder.join(name), Arc::new(|| Duration::from_secs(9)));
    let (origin, node) = (
        open("origin").expect("a store"),
        open("node").expect("a store"),
    );
    let set = build(&origin, &[folder.join("src")]).expect("a set");
    node.sweep().expect("swept");
    let catalogue = common::bring(&node, &set.catalogue);
    let copy = match node.receive(&catalogue, &Placing::Cached).expect("begun") {
        Receiving::Held(copy) => copy,
        Receiving::Open(mut receiver) => {
            put_all(&mut receiver, &mut set.source.reader(), 1);
            receiver.finish().expect("placed").copy
        }
    };
    node.add_job(copy, "job", None).expect("added");
}

#[test]
fn killed_process_leaves_a_whole_link() {
    let bench = Bench::new();
    let (folder, link) = (bench.folder.path(), bench.path("node/jobs/job"));
    let content = |round: u64| format!("content of round {round}");
    let write = |round: u64| common::write(&bench.path("src/file"), content(round).as_bytes());
    write(0);
    let run = || child_of("child_casts_for_a_job", folder);
    let begun = std::time::Instant::now();
    assert!(run().status().expect("started").success());
    let lasts = begun.elapsed();
    let mut rng = fastrand::Rng::with_seed(53);
    let mut old = 0;
    for round in 1..=KILLS {
        write(round);
        let mut running = run().spawn().expect("started");
        thread::sleep(lasts.mul_f64(rng.f64() * 1.2));
        let _it_may_be_over = running.kill();
        running.wait().expect("over");
        let found = fs::read_to_string(link.join("src/file")).expect("a whole set");
        let is_old = found == content(round - 1);
        assert!(is_old || found == content(round), "round {round}: {found}");
        old += u64::from(is_old);
        assert!(run().status().expect("started").success(), "round {round}");
        let found = fs::read_to_string(link.join("src/file")).expect("a whole set");
        assert_eq!(found, content(round));
        assert_eq!(names(&bench.path("node/jobs")), ["job"], "round {round}");
    }
    assert!(old > 0, "no process was killed early");
    let node = bench.node();
    assert_eq!(node.end_job("job").expect("ended").len() as u64, KILLS + 1);
    assert!(names(&bench.path("node/jobs")).is_empty());
}

#[test]
fn purge_removes_directories_of_killed_processes() {
    let bench = Bench::new();
    common::write(&bench.path("src/file"), b"content");
    let run = child_of("child_casts_for_a_job", bench.folder.path()).status();
    assert!(run.expect("started").success());
    let sets = names(&bench.path("node/sets"));
    let set = bench.path("node/sets").join(sets.first().expect("a set"));
    // Made, and not renamed yet.
    fs::create_dir(set.join(format!(".driftless-tmp-{:032x}", 7))).expect("made");
    let end = bench.node().finish_job("job").expect("ended");
    assert_eq!(end.copies, 1, "{end:?}");
    assert!(names(&bench.path("node/sets")).is_empty());
}

#[test]
fn killed_process_leaves_a_whole_version() {
    let bench = Bench::new();
    build_tree(&bench.path("src"), 51, &Profile::small());
    let folder = bench.folder.path();
    let begun = std::time::Instant::now();
    assert!(child(folder).status().expect("started").success());
    let lasts = begun.elapsed();
    fs::create_dir(bench.path("old")).expect("made");
    // A copy of cp(1) may have other holes.
    let options = Options {
        holes: false,
        ..Options::default()
    };
    let differences = |a: &str| compare(&bench.path(a), &bench.path("to/src"), &options);
    let mut rng = fastrand::Rng::with_seed(52);
    let seeds = env::var("DRIFTLESS_SEEDS").ok();
    let kills = seeds.and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let mut old = 0;
    for round in 0..kills {
        driftless_testkit::remove_deep(&bench.path("old")).expect("removed");
        let copied = Command::new("cp")
            .arg("-a")
            .args([bench.path("src"), bench.path("old")])
            .status();
        assert!(copied.expect("cp starts").success());
        mutate(&bench.path("src"), 100 + round, 20);
        let mut running = child(folder).spawn().expect("started");
        thread::sleep(lasts.mul_f64(rng.f64() * 1.2));
        let _it_may_be_over = running.kill();
        running.wait().expect("over");
        let (of_old, of_new) = (differences("old"), differences("src"));
        let is_whole = of_old.is_empty() || of_new.is_empty();
        assert!(is_whole, "round {round}: {of_old:?} {of_new:?}");
        old += u64::from(of_old.is_empty());
        let output = child(folder)
            .stdout(Stdio::piped())
            .output()
            .expect("started");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "round {round}: {text}");
        assert_same(
            &bench.path("src"),
            &bench.path("to/src"),
            &format!("round {round}"),
        );
        assert_eq!(names(&bench.path("to")), ["src"], "round {round}");
    }
    assert!(old > 0, "no process was killed early");
    let node = bench.node();
    assert_eq!(node.copies().expect("read").len(), 1);
    node.purge(&PurgeWhat::All).expect("purged");
    assert!(names(&bench.path("to")).is_empty());
    assert!(names(&bench.path("node/identities")).is_empty());
}

#[test]
fn interrupted_publication_is_finished() {
    let bench = Bench::new();
    for name in ["one", "two"] {
        build_tree(&made(&bench, name), 61, &Profile::small());
    }
    let paths = ["one", "two"].map(|name| bench.path("src").join(name));
    let (set, node) = (build(&bench.origin(), &paths).expect("a set"), bench.node());
    let mut receiver = open(&node, &set, &bench.to());
    put_all(&mut receiver, &mut set.source.reader(), 1);
    let private = bench.path("to").join(&names(&bench.path("to"))[0]);
    let copy = receiver.finish().expect("placed").copy;
    drop(node);
    // The state between the two renames.
    fs::create_dir(&private).expect("made");
    fs::rename(bench.path("to/two"), private.join("two")).expect("moved");
    let mut index = Holdings::open(&bench.path("node/index.db")).expect("open");
    index.note_private(copy, id_of(&private)).expect("noted");
    index.set_state(copy, CopyState::Publishing).expect("set");
    drop(index);
    bench.node().sweep().expect("swept");
    assert_eq!(names(&bench.path("to")), ["one", "two"]);
    for name in ["one", "two"] {
        assert_same(
            &bench.path("src").join(name),
            &bench.path("to").join(name),
            name,
        );
    }
    assert_eq!(
        bench.node().copies().expect("read")[0].state,
        CopyState::Held
    );
}

fn id_of(path: &Path) -> InodeIdentity {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, flags).expect("there");
    let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    let birth = has_birth.then_some(Stamp {
        sec: found.stx_btime.tv_sec,
        nsec: found.stx_btime.tv_nsec,
    });
    let inode = found.stx_ino;
    InodeIdentity { inode, birth }
}

fn made(bench: &Bench, name: &str) -> std::path::PathBuf {
    let path = bench.path("src").join(name);
    fs::create_dir(&path).expect("made");
    path
}

/// Results in the outbox of the test of kills.
const RESULTS: u64 = 40;

fn sealed_path(result: u64) -> String {
    format!("d{}/{result}", result % 3)
}

/// The process that is killed: seals all results and discards every second one. It notes each order to
/// discard first.
#[test]
fn child_collects_results() {
    let Some(folder) = env::var_os(CHILD) else {
        return;
    };
    let folder = Path::new(&folder);
    let node = NodeStore::open(&folder.join("node"), Arc::new(|| Duration::from_secs(9)));
    let node = node.expect("a store");
    node.sweep().expect("swept");
    for result in 0..RESULTS {
        let path = SealedPath::parse(sealed_path(result).as_bytes()).expect("a path");
        let name = result.to_string().into_bytes().try_into().expect("a name");
        let order = SealMove {
            name,
            path: path.clone(),
        };
        node.seal("job", &[order]).expect("sealed");
        if result % 2 == 0 {
            fs::write(folder.join("ordered").join(result.to_string()), "").expect("noted");
            node.discard_sealed("job", &path).expect("discarded");
        }
    }
}

/// Asserts that a result is whole at one place, or was discarded after the order.
fn assert_one_result(bench: &Bench, result: u64) {
    let outbox = bench.path("node/outbox/job").join(result.to_string());
    let sealed = bench
        .path("node/outbox/.sealed/job")
        .join(sealed_path(result));
    let ordered = bench.path("ordered").join(result.to_string()).exists();
    let found: Vec<_> = [outbox, sealed]
        .into_iter()
        .filter(|path| path.exists())
        .collect();
    assert!(
        found.len() == 1 || ordered && found.is_empty(),
        "{result}: {found:?}"
    );
    for path in found {
        let content = fs::read_to_string(path.join("a/file"));
        assert_eq!(content.expect("whole"), format!("result {result}"));
        assert_eq!(names(&path.join("a")).len(), 20);
    }
}

#[test]
fn killed_process_loses_no_result() {
    let bench = Bench::new();
    fs::create_dir(bench.path("ordered")).expect("made");
    let node = bench.node();
    node.make_outbox("job", None).expect("made");
    drop(node);
    let fill = || {
        for result in 0..RESULTS {
            let _left = fs::remove_file(bench.path("ordered").join(result.to_string()));
            let path = bench.path("node/outbox/job").join(result.to_string());
            let content = format!("result {result}");
            common::write(&path.join("a/file"), content.as_bytes());
            (1..20).for_each(|at| common::write(&path.join(format!("a/{at}")), b""));
        }
    };
    let run = || child_of("child_collects_results", bench.folder.path());
    let clear = || {
        let node = bench.node();
        for name in node.sealed_names("job", None, b"").expect("read") {
            let path = SealedPath::parse(&name).expect("a path");
            node.discard_sealed("job", &path).expect("discarded");
        }
    };
    fill();
    let begun = std::time::Instant::now();
    assert!(run().status().expect("started").success());
    let lasts = begun.elapsed();
    let mut rng = fastrand::Rng::with_seed(54);
    let mut early = 0;
    for round in 0..KILLS {
        clear();
        fill();
        let mut running = run().spawn().expect("started");
        thread::sleep(lasts.mul_f64(rng.f64() * 1.1));
        let _it_may_be_over = running.kill();
        running.wait().expect("over");
        (0..RESULTS).for_each(|result| assert_one_result(&bench, result));
        early += u64::from(!names(&bench.path("node/outbox/job")).is_empty());
        assert!(run().status().expect("started").success(), "round {round}");
        (0..RESULTS).for_each(|result| assert_one_result(&bench, result));
        assert!(names(&bench.path("node/outbox/job")).is_empty());
        assert!(names(&bench.path("node/outbox/.private")).is_empty());
    }
    assert!(early > 0, "no process was killed early");
    clear();
    assert!(
        bench
            .node()
            .finish_job("job")
            .expect("ended")
            .staying
            .is_empty()
    );
}
