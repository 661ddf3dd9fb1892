//! Replicas that follow their source live: real file systems, real events, four writers at once,
//! and what goes wrong in between. After a barrier both judges find nothing.
//!
//! `DRIFTLESS_SEED` sets the first seed, `DRIFTLESS_SEEDS` how many rounds each writer makes.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::Far;
use common::mirror::Mirror;
use common::mounted::Mounted;
use driftless_testkit::{
    EVENT_MAX, FsKind, Options, Profile, Scratch, assert_equal, build_tree, mutate, rsync_oracle,
    wait_slowly_until,
};
use fastrand::Rng;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

const WRITERS: u64 = 4;
const ROUNDS: u64 = 4;
const KILLS: u64 = 10;
const MUTATIONS: usize = 40;
const SIZE_MIB: u64 = 600;

fn number(name: &str, otherwise: u64) -> u64 {
    let asked = std::env::var(name).ok();
    asked.map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Four writers change four subtrees as fast as they can.
fn write(source: &Path, seed: u64, rounds: u64) {
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let own = source.join(format!("writer{writer}"));
            scope.spawn(move || {
                for round in 0..rounds {
                    mutate(&own, seed * 10_000 + writer * 1000 + round, MUTATIONS);
                }
            });
        }
    });
}

fn build(source: &Path, seed: u64) {
    for writer in 0..WRITERS {
        let own = source.join(format!("writer{writer}"));
        fs::create_dir(&own).expect("a directory");
        build_tree(&own, seed + writer, &Profile::small());
    }
}

/// Where a file of xfs has holes depends on when its blocks were assigned, which is later than the
/// copy.
fn compared(kind: FsKind) -> Options {
    Options {
        holes: kind != FsKind::Xfs,
        ..Options::default()
    }
}

fn check_equal(mirror: &Mirror, context: &str) {
    check_equal_on(FsKind::Tmpfs, mirror, context);
}

fn check_equal_on(kind: FsKind, mirror: &Mirror, context: &str) {
    mirror.barrier();
    // It lets go of its locks.
    let _done = mirror.command("pause").run().expect(0);
    assert_equal(&mirror.source, &mirror.replica, &compared(kind), context);
    assert_eq!(
        rsync_oracle(&mirror.source, &mirror.replica),
        "",
        "{context}"
    );
    let _done = mirror.command("resume").run().expect(0);
}

fn check_live(kind: FsKind, first: u64) {
    let seed = number("DRIFTLESS_SEED", first);
    let context =
        format!("{kind:?}; replay: DRIFTLESS_SEED={seed} cargo test -p driftless --test mirror");
    println!("{context}");
    let scratch = Scratch::new(kind, SIZE_MIB);
    let source = scratch.dir("src");
    build(&source, seed);
    let mirror = Mirror::of(
        &source,
        "detect = [\"fanotify\", \"walk\"]\ndelete = true\n",
    );
    check_equal_on(kind, &mirror, &context);
    for round in 0..3 {
        write(&source, seed + round, number("DRIFTLESS_SEEDS", ROUNDS));
        check_equal_on(kind, &mirror, &format!("round {round} on {context}"));
        rename_writers(&source);
        check_equal_on(
            kind,
            &mirror,
            &format!("renames of round {round} on {context}"),
        );
    }
    let status = mirror.status();
    assert_eq!(status["overflows"], 0, "{status}");
    assert_eq!(status["problems"], 0, "{status}");
}

/// The writers' directories change places.
fn rename_writers(source: &Path) {
    let name = |number: u64| source.join(format!("writer{number}"));
    let aside = source.join("aside");
    fs::rename(name(0), &aside).expect("renamed");
    for number in 1..WRITERS {
        fs::rename(name(number), name(number - 1)).expect("renamed");
    }
    fs::rename(&aside, name(WRITERS - 1)).expect("renamed");
}

#[test]
fn four_writers_are_followed_on_tmpfs() {
    check_live(FsKind::Tmpfs, 1);
}

#[test]
fn four_writers_are_followed_on_ext4() {
    check_live(FsKind::Ext4, 101);
}

#[test]
fn four_writers_are_followed_on_xfs() {
    check_live(FsKind::Xfs, 201);
}

#[test]
fn four_writers_are_followed_on_btrfs() {
    check_live(FsKind::Btrfs, 301);
}

#[test]
fn a_renamed_directory_is_renamed_and_nothing_in_it_is_made_again() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fs::create_dir_all(source.join("a/deep")).expect("a directory");
    for number in 0..3000 {
        fs::write(source.join(format!("a/deep/f{number}")), b"content").expect("a file");
    }
    let mirror = Mirror::of(&source, "detect = [\"fanotify\"]\ndelete = true\n");
    mirror.barrier();
    let before = mirror.status()["changed"].as_u64();
    fs::create_dir(source.join("b")).expect("a directory");
    fs::rename(source.join("a/deep"), source.join("b/other")).expect("renamed");
    check_equal(&mirror, "renamed");
    let after = mirror.status()["changed"].as_u64();
    let made = after.zip(before).map(|(after, before)| after - before);
    assert!(made.is_some_and(|made| made < 10), "{made:?}");
}

#[test]
fn events_that_the_kernel_drops_are_made_good_by_a_comparison() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    let mirror = Mirror::of(
        &source,
        "detect = [\"fanotify\"]\ndelete = true\n[fanotify]\nunlimited = false\n",
    );
    mirror.barrier();
    mirror.freeze();
    for number in 0..20_000 {
        fs::write(source.join(format!("f{number}")), b"content").expect("a file");
    }
    mirror.thaw();
    check_equal(&mirror, "after an overflow");
    let status = mirror.status();
    assert!(status["overflows"].as_u64() > Some(0), "{status}");
}

#[test]
fn a_mirror_that_is_killed_at_any_moment_loses_nothing() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = scratch.dir("src");
    build(&source, 7);
    let mut mirror = Mirror::of(&source, "detect = [\"fanotify\"]\ndelete = true\n");
    let mut rng = Rng::with_seed(number("DRIFTLESS_SEED", 7));
    for round in 0..number("DRIFTLESS_SEEDS", KILLS) {
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| write(&source, 700 + round, 2));
            std::thread::sleep(Duration::from_millis(rng.u64(..200)));
            mirror.kill();
            writing.join().expect("no panic");
        });
        mirror.start();
    }
    check_equal(&mirror, "after kills");
}

#[test]
fn a_second_mirror_of_the_same_job_is_refused_and_says_who_has_it() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mirror = Mirror::of(&scratch.dir("src"), "detect = [\"walk\"]\n");
    let second = mirror.command("run").run();
    let second = second.expect(11);
    let holder = format!("process {}", mirror.process());
    assert!(
        second.stderr_text().contains(&holder),
        "{}",
        second.describe()
    );
}

#[test]
fn a_paused_mirror_changes_nothing_and_misses_nothing() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    let mirror = Mirror::of(&source, "detect = [\"fanotify\"]\ndelete = true\n");
    mirror.barrier();
    let _done = mirror.command("pause").run().expect(0);
    fs::write(source.join("new"), b"content").expect("a file");
    let late = mirror.command("barrier").arg("--timeout=1s").run();
    let _late = late.expect(6);
    assert!(!mirror.replica.join("new").exists());
    let _done = mirror.command("resume").run().expect(0);
    check_equal(&mirror, "resumed");
}

#[test]
fn a_path_with_a_problem_is_told_and_tried_again() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    let mirror = Mirror::of(&source, "detect = [\"fanotify\"]\ndelete = true\n");
    mirror.barrier();
    // What is mounted there cannot be replaced.
    let stuck = mirror.replica.join("stuck");
    fs::create_dir(source.join("stuck")).expect("a directory");
    mirror.barrier();
    let mounted = Mounted::tmpfs(&stuck);
    fs::remove_dir(source.join("stuck")).expect("removed");
    fs::write(source.join("stuck"), b"a file now").expect("a file");
    mirror.wait_for("problems", |problems| problems > 0);
    let told = mirror.command("problems").run();
    let told = told.expect(3);
    assert!(
        told.stdout_text().contains("\"stuck\""),
        "{}",
        told.describe()
    );
    drop(mounted);
    let _done = mirror.command("retry").run().expect(0);
    check_equal(&mirror, "mended");
    let _done = mirror.command("problems").run().expect(0);
}

#[test]
fn what_is_left_to_do_and_a_pause_outlive_the_mirror() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    let mut mirror = Mirror::of(&source, "detect = [\"fanotify\"]\ndelete = true\n");
    mirror.barrier();
    let _done = mirror.command("pause").run().expect(0);
    fs::write(source.join("new"), b"content").expect("a file");
    mirror.wait_for("left", |left| left > 0);
    wait_slowly_until("the path is kept", || {
        mirror.rows("SELECT CAST(path AS TEXT) FROM dirty WHERE path = CAST('new' AS BLOB)")
            == "new\n"
    });
    mirror.kill();
    assert_eq!(
        mirror.rows("SELECT count(*) FROM runs WHERE kind = 'walk' AND end = 'complete'"),
        "1\n"
    );
    mirror.start();
    assert_eq!(mirror.status()["is_paused"], true);
    assert!(!mirror.replica.join("new").exists());
    let _done = mirror.command("resume").run().expect(0);
    check_equal(&mirror, "going on");
}

#[test]
fn a_state_that_is_damaged_ends_it_with_a_clear_word() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mut mirror = Mirror::of(&scratch.dir("src"), "detect = [\"walk\"]\n");
    mirror.barrier();
    mirror.kill();
    let log = mirror.state_file().with_extension("db-wal");
    fs::remove_file(log).expect("removed");
    fs::write(
        mirror.state_file(),
        b"no database, and long enough to be none".repeat(200),
    )
    .expect("written");
    let refused = mirror.command("run").run().expect(12);
    let told = refused.stderr_text();
    assert!(told.contains("mirror-test.db"), "{told}");
    assert!(
        told.contains("move it away") && !told.contains("--fresh"),
        "{told}"
    );
}

#[test]
fn without_a_detector_a_barrier_compares_all() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    let mirror = Mirror::of(&source, "detect = [\"walk\"]\ndelete = true\n");
    mirror.barrier();
    for name in ["new", "another"] {
        fs::write(source.join(name), b"content").expect("a file");
    }
    check_equal(&mirror, "compared");
    fs::remove_file(source.join("new")).expect("removed");
    let _done = mirror.command("sync-now").arg("--wait").run().expect(0);
    assert!(!mirror.replica.join("new").exists());
}

#[test]
fn more_deletes_in_an_hour_than_one_run_may_make_are_refused_and_told() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    let name = |number: u32| source.join(format!("f{number}"));
    for number in 0..100 {
        fs::write(name(number), b"content").expect("a file");
    }
    let keys = "detect = [\"fanotify\"]\ndelete = true\nmax_delete = \"10%\"\n";
    let mirror = Mirror::of(&source, keys);
    mirror.barrier();
    fs::remove_file(name(0)).expect("removed");
    check_equal(&mirror, "one of a hundred");
    for number in 1..50 {
        fs::remove_file(name(number)).expect("removed");
    }
    mirror.wait_for("problems", |problems| problems > 0);
    let told = mirror.command("problems").run().expect(3);
    // How many of them went before the rest was refused depends on how fast they were removed.
    assert!(
        told.stdout_text().contains("(max_delete in the job)"),
        "{}",
        told.describe()
    );
    let left = fs::read_dir(&mirror.replica).expect("listed").count();
    assert!(left >= 90, "{left}");
}

#[test]
fn share_of_deletes_counts_what_came_since() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fs::write(source.join("first"), b"content").expect("a file");
    let keys = "detect = [\"fanotify\"]\ndelete = true\nmax_delete = \"50%\"\n";
    let mirror = Mirror::of(&source, keys);
    mirror.barrier();
    let name = |number: u32| source.join(format!("f{number}"));
    for number in 0..100 {
        fs::write(name(number), b"content").expect("a file");
    }
    mirror.barrier();
    for number in 0..40 {
        fs::remove_file(name(number)).expect("removed");
    }
    check_equal(&mirror, "40 of a hundred that came after the comparison");
}

#[test]
fn a_job_that_asks_for_what_is_not_there_is_refused() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    let refused = Mirror::refused(&source, "detect = [\"btrfs\"]\n");
    assert!(
        refused.stderr_text().contains("btrfs"),
        "{}",
        refused.describe()
    );
}

#[test]
fn the_page_has_every_field_of_a_status() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mirror = Mirror::of(&scratch.dir("src"), "detect = [\"walk\"]\n");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mirror.md");
    let page = fs::read_to_string(page).expect("the page");
    let table = page
        .split("### Fields of `mirror status --json`")
        .nth(1)
        .and_then(|rest| rest.split("\n`mirror problems").next())
        .expect("the table");
    let cells = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let told: BTreeSet<&str> = cells
        .filter_map(|line| line.split(" |").next())
        .flat_map(|cell| cell.split(", "))
        .map(|name| name.trim_matches('`'))
        .collect();
    let status = mirror.status();
    let printed = status.as_object().expect("an object").keys();
    assert_eq!(told, printed.map(String::as_str).collect());
}

#[test]
fn a_replica_on_another_host_follows_too_and_comes_back_when_the_line_is_cut() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    build(&source, 31);
    let far = Far::own();
    let mirror = Mirror::far(&source, &far, "detect = [\"fanotify\"]\ndelete = true\n");
    check_equal(&mirror, "the first copy");
    write(&source, 31, 3);
    rename_writers(&source);
    check_equal(&mirror, "changes over ssh");
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| write(&source, 32, 3));
        for _ in 0..3 {
            far.server.kill_sessions();
            std::thread::sleep(Duration::from_millis(300));
        }
        writing.join().expect("no panic");
    });
    check_equal(&mirror, "after cuts");
}

#[test]
fn in_quiet_hours_nothing_is_copied_and_what_changes_is_remembered() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fs::write(source.join("first"), b"content").expect("a file");
    let seconds = std::time::UNIX_EPOCH
        .elapsed()
        .expect("after 1970")
        .as_secs();
    // From an hour ago to an hour from now, where the test's clock is.
    let at = |seconds: u64| format!("{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60);
    let quiet = format!(
        "quiet = [\"{}-{}\"]\n",
        at(seconds - 3600),
        at(seconds + 3600)
    );
    let keys = "detect = [\"fanotify\"]\n";
    let mut mirror = Mirror::of(&source, &format!("{keys}{quiet}"));
    assert_eq!(mirror.status()["is_quiet"], true);
    fs::write(source.join("second"), b"content").expect("a file");
    mirror.wait_for("events", |events| events > 0);
    let _late = mirror
        .command("barrier")
        .arg("--timeout=2s")
        .run()
        .expect(6);
    assert!(!mirror.replica.join("first").exists());
    mirror.kill();
    mirror.change(keys);
    mirror.start();
    assert_eq!(mirror.status()["is_quiet"], false);
    check_equal(&mirror, "they are over");
}

#[test]
fn a_replica_that_is_away_holds_up_no_other_and_follows_again_when_it_is_back() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (source, near) = (scratch.dir("src"), scratch.dir("near"));
    build(&source, 51);
    let (there, disk) = (scratch.dir("there"), scratch.dir("disk"));
    let mounted = Mounted::bind(&disk, &there);
    let keys = "detect = [\"fanotify\"]\ndelete = true\n";
    let mirror = Mirror::several(&source, &[&near, &there], keys);
    check_equal(&mirror, "the first of two");
    assert_equal(&source, &there, &Options::default(), "the second of two");
    let paused = mirror.command("pause").run();
    drop((paused.expect(0), mounted));
    let _done = mirror.command("resume").run().expect(0);
    write(&source, 52, 2);
    let late = mirror
        .command("barrier")
        .arg("--timeout=3s")
        .run()
        .expect(6);
    assert!(late.stderr_text().contains("not on the replica"));
    mirror.wait_for("left", |left| left == 0);
    let away = &mirror.statuses()[1];
    assert!(away["away"].is_string() && away["left"].as_u64() > Some(0));
    assert_eq!(
        fs::read_dir(&there).expect("listed").count(),
        0,
        "filled underneath"
    );
    let mounted = Mounted::bind(&disk, &there);
    check_equal(&mirror, "both are there");
    assert_equal(&source, &there, &Options::default(), "the second is back");
    let _let_go = mirror.command("pause").run().expect(0);
    drop(mounted);
}

#[test]
fn another_disk_at_the_replicas_path_is_filled_when_somebody_says_so() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (source, there) = (scratch.dir("src"), scratch.dir("there"));
    fs::write(source.join("file"), b"content").expect("a file");
    let first = Mounted::tmpfs(&there);
    let keys = "detect = [\"fanotify\"]\ndelete = true\n";
    let mut mirror = Mirror::between(&source, &there, keys);
    mirror.barrier();
    mirror.kill();
    drop(first);
    let _second = Mounted::tmpfs(&there);
    mirror.start();
    let began = std::time::Instant::now();
    while mirror.status()["away"].is_null() {
        assert!(began.elapsed() < EVENT_MAX, "it is not missed");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!there.join("file").exists());
    mirror.kill();
    mirror.start_with(&["--new-replica"]);
    check_equal(&mirror, "the other disk");
    mirror.kill();
}
