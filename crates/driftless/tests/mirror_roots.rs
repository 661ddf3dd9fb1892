//! A mirror whose trees are not what they were: what their paths lead to, what is mounted on them
//! and in them, while it runs. It never goes on with what stood there before, and takes nothing away
//! for what is not mounted.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::Far;
use common::lease::Lease;
use common::mirror::Mirror;
use common::mounted::Mounted;
use driftless_testkit::{EVENT_MAX, FsKind, Scratch};
use std::fs::{self, FileTimes};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const SIZE_MIB: u64 = 300;
const LIMIT: Duration = EVENT_MAX;
const KEYS: &str = "detect = [\"fanotify\", \"walk\"]\ndelete = true\n";

fn wait_for(mirror: &Mirror, name: &str) {
    let began = Instant::now();
    while !mirror.replica.join(name).exists() {
        assert!(
            began.elapsed() < LIMIT,
            "{name}: {}",
            mirror.command("status").run().describe()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// It hears of the source that stands there by now.
fn check_heard(mirror: &Mirror, context: &str) {
    wait_for(mirror, "new");
    mirror.wait_until_answers();
    fs::write(mirror.source.join("later"), "later").expect("a file");
    fs::remove_file(mirror.source.join("new")).expect("removed");
    mirror.check_equal(context);
    assert_eq!(mirror.status()["missed"], 0, "{}", mirror.status());
}

#[test]
fn a_mirror_knows_a_source_whose_names_all_changed() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    let mount = Mounted::tmpfs(&source);
    fs::create_dir(source.join("run-25")).expect("a directory");
    fs::write(source.join("run-25/out"), "content").expect("a file");
    let mut mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    // A kill leaves the mark as it was during the work.
    mirror.kill();
    fs::rename(source.join("run-25"), source.join("run-26")).expect("renamed");
    fs::write(source.join("run-26/new"), "content").expect("a file");
    mirror.start();
    mirror.check_equal("all names at the top are new");
    mirror.stop();
    // What lies at the empty mount point is another tree.
    drop(mount);
    fs::write(source.join("stray"), "content").expect("a file");
    mirror.start();
    let began = Instant::now();
    while !mirror.status()["away"].is_string() {
        assert!(began.elapsed() < LIMIT, "{}", mirror.status());
        std::thread::sleep(Duration::from_millis(50));
    }
    let reached = mirror.command("barrier").arg("--timeout=1s").run();
    assert_ne!(reached.code(), 0, "{}", reached.describe());
    assert!(mirror.replica.join("run-26/new").exists());
    assert!(!mirror.replica.join("stray").exists());
}

#[test]
fn two_mirrors_do_not_work_against_each_other() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fs::write(source.join("file"), "content").expect("a file");
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    let replica = mirror.replica.clone();
    let other = scratch.path().join("other.toml");
    let third = scratch.dir("third");
    let run_other = |name: &str, (from, to): (&Path, &Path)| {
        let job = format!("name = {name:?}\nsource = {from:?}\nreplica = {to:?}\n{KEYS}");
        fs::write(&other, job).expect("a file");
        mirror.command_of("run", &other).run()
    };
    for is_paused in [false, true] {
        if is_paused {
            let _paused = mirror.command("pause").run().expect(0);
        }
        let told = run_other("back", (&replica, &source)).expect(13);
        assert!(told.stderr_text().contains("the other direction"));
        let told = run_other("third", (&third, &replica)).expect(13);
        assert!(told.stderr_text().contains("is that of the job test"));
    }
    assert!(replica.join("file").exists() && source.join("file").exists());
}

#[test]
fn a_source_that_is_replaced_is_followed() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = scratch.dir("src");
    fs::write(source.join("file"), "content").expect("a file");
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    fs::rename(&source, scratch.path().join("old")).expect("renamed");
    fs::create_dir(&source).expect("a directory");
    for name in ["file", "new"] {
        fs::write(source.join(name), "other").expect("a file");
    }
    let _begins_anew = mirror.command("barrier").run();
    check_heard(&mirror, "replaced");
}

/// Seconds since 1970.
fn clock() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_secs_f64()
}

#[test]
fn a_replaced_source_is_not_claimed_equal() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = scratch.dir("src");
    fs::write(source.join("file"), "content").expect("a file");
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    let life = mirror.status()["began"].clone();
    fs::rename(&source, scratch.path().join("old")).expect("renamed");
    let moved = clock();
    fs::create_dir(&source).expect("a directory");
    fs::write(source.join("new"), "content").expect("a file");
    loop {
        let status = mirror.status();
        // It may have looked by then, and follow the other directory.
        if status["began"] != life || status["now"].as_f64() > Some(moved + 4.0) {
            break;
        }
        assert!(status["equal_until"].as_f64() <= Some(moved), "{status}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whatever it is asked, it says that this tree is out of reach.
fn wait_until_out_of_reach(mirror: &Mirror, named: &Path) {
    let (began, named) = (Instant::now(), named.display().to_string());
    loop {
        let asked = mirror.command("barrier").arg("--timeout=1s").run();
        assert_ne!(asked.code(), 0, "{}", mirror.status());
        let status = mirror.status();
        if status["away"].to_string().contains(&named) {
            return;
        }
        assert!(began.elapsed() < LIMIT, "{status}");
    }
}

#[test]
fn a_tree_that_was_removed_under_a_mount_of_it_is_out_of_reach_and_keeps_what_the_replica_has() {
    for is_source in [true, false] {
        let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
        let (outer, other) = (scratch.dir("outer"), scratch.dir("other"));
        let inner = scratch.dir("outer/inner");
        let mounted = Mounted::bind(&inner, &scratch.dir("mounted"));
        let (source, replica) = match is_source {
            true => (mounted.path(), &*other),
            false => (&*other, mounted.path()),
        };
        fs::create_dir(source.join("dir")).expect("a directory");
        fs::write(source.join("dir/file"), "content").expect("a file");
        let mut mirror = Mirror::between(source, replica, KEYS);
        mirror.barrier();
        mirror.freeze();
        fs::remove_dir_all(outer).expect("removed");
        mirror.thaw();
        wait_until_out_of_reach(&mirror, mounted.path());
        assert!(other.join("dir/file").exists(), "{}", mirror.status());
        mirror.stop();
    }
}

/// Puts a copy in the place of a tree in which one file is another and one is missing.
fn put_back_older(tree: &Path, aside: &Path) {
    fs::rename(tree, aside).expect("renamed");
    let copied = Command::new("cp").arg("-a").args([aside, tree]).status();
    assert!(copied.expect("cp runs").success());
    fs::write(tree.join("d7/file"), "older content").expect("a file");
    fs::remove_file(tree.join("d8/file")).expect("removed");
    fs::remove_dir_all(aside).expect("removed");
}

/// What both have of the files that are others in an older copy.
fn check_files(source: &Path, replica: &Path, round: usize) {
    for name in ["d7/file", "d8/file"] {
        let [there, here] = [source, replica].map(|tree| fs::read(tree.join(name)).ok());
        assert_eq!(here, there, "{name}, round {round}");
    }
}

#[test]
fn a_barrier_waits_for_what_becomes_of_a_tree_in_whose_place_an_older_copy_is_put() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, replica) = (scratch.dir("src"), scratch.dir("replica"));
    for number in 0..300 {
        let dir = source.join(format!("d{number}"));
        fs::create_dir(&dir).expect("a directory");
        fs::write(dir.join("file"), "content").expect("a file");
    }
    let mirror = Mirror::between(&source, &replica, KEYS);
    let aside = scratch.path().join("aside");
    for (round, tree) in [&replica, &source, &replica].into_iter().enumerate() {
        mirror.barrier();
        put_back_older(tree, &aside);
        let began = Instant::now();
        // It may begin anew, and answer nobody for that long.
        while mirror.command("barrier").run().code() != 0 {
            assert!(began.elapsed() < LIMIT, "{}", mirror.status());
            std::thread::sleep(Duration::from_millis(20));
        }
        check_files(&source, &replica, round);
        fs::write(source.join("d8/file"), "content").expect("a file");
    }
}

#[test]
fn a_source_that_is_mounted_later_is_followed() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = scratch.dir("src");
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    let mounted = Mounted::tmpfs(&source);
    fs::write(source.join("new"), "new").expect("a file");
    let _begins_anew = mirror.command("barrier").run();
    check_heard(&mirror, "mounted");
    drop(mirror);
    drop(mounted);
}

#[test]
fn a_replica_that_is_renamed_is_left_alone_and_followed_when_it_is_back() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, replica) = (scratch.dir("src"), scratch.dir("replica"));
    fs::write(source.join("file"), "content").expect("a file");
    let mirror = Mirror::between(&source, &replica, KEYS);
    mirror.barrier();
    let away = scratch.path().join("away");
    fs::rename(&replica, &away).expect("renamed");
    let _late = mirror
        .command("barrier")
        .arg("--timeout=3s")
        .run()
        .expect(6);
    fs::write(source.join("new"), "new").expect("a file");
    let _late = mirror
        .command("barrier")
        .arg("--timeout=3s")
        .run()
        .expect(6);
    assert!(!away.join("new").exists() && !replica.exists());
    fs::rename(&away, &replica).expect("renamed");
    wait_for(&mirror, "new");
    mirror.check_equal("back");
}

#[test]
fn far_source_on_another_machine_is_not_followed() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (source, other) = (scratch.dir("src"), scratch.dir("other"));
    for file in [
        source.join("file"),
        source.join("second"),
        other.join("file"),
    ] {
        fs::write(file, "content").expect("a file");
    }
    let [ssh, lines, switch, boot] =
        ["ssh", "lines", "switch", "boot"].map(|name| scratch.path().join(name));
    fs::write(&boot, "00000000-0000-4000-8000-000000000000\n").expect("a file");
    let elsewhere = format!(
        "mount --bind {} /proc/sys/kernel/random/boot_id; mount --bind {} {}",
        boot.display(),
        other.display(),
        source.display()
    );
    let text = format!(
        "#!/bin/bash\ncommand=\"${{@: -1}}\"\necho $$ >>{}\n\
         [ -e {} ] || exec bash -c \"exec $command\"\n\
         exec unshare --mount bash -c \"{elsewhere}; exec $command\"\n",
        lines.display(),
        switch.display()
    );
    driftless_testkit::write_program(&ssh, &text);
    let keys = format!(
        "detect = [\"walk\"]\ndelete = true\n[walk]\nevery = \"3s\"\n[reach]\nssh = {ssh:?}\nagent_path = {:?}\n",
        common::far::agent()
    );
    let typed = format!("far:{}", source.display());
    let mirror = Mirror::of(Path::new(&typed), &keys);
    mirror.barrier();
    fs::write(&switch, "").expect("a file");
    for line in fs::read_to_string(&lines).expect("lines").lines() {
        let _it_may_be_over = Command::new("kill").args(["-9", line]).status();
    }
    let began = Instant::now();
    let is_away = |status: serde_json::Value| {
        let why = status["away"].as_str().unwrap_or_default().to_owned();
        why.contains("is not what the run began with")
    };
    while !is_away(mirror.status()) {
        assert!(began.elapsed() < LIMIT, "{}", mirror.status());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(
        mirror.replica.join("second").exists(),
        "{}",
        mirror.status()
    );
    fs::write(source.join("new"), "new").expect("a file");
    fs::remove_file(&switch).expect("removed");
    wait_for(&mirror, "new");
    assert!(
        mirror.replica.join("second").exists(),
        "{}",
        mirror.status()
    );
}

#[test]
fn far_replica_exchanged_during_a_cut_gets_nothing() {
    for is_mounted in [false, true] {
        let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
        let (source, far) = (scratch.dir("src"), Far::own());
        fs::write(source.join("file"), "content").expect("a file");
        let mirror = Mirror::far(&source, &far, KEYS);
        mirror.barrier();
        mirror.freeze();
        far.server.kill_sessions();
        let (replica, aside) = (&mirror.replica, mirror.replica.with_extension("aside"));
        let mounted = is_mounted.then(|| Mounted::tmpfs(replica));
        if mounted.is_none() {
            fs::rename(replica, &aside).expect("renamed");
            fs::create_dir(replica).expect("a directory");
        }
        fs::write(source.join("new"), "new").expect("a file");
        mirror.thaw();
        wait_until_out_of_reach(&mirror, replica);
        let away = mirror.status()["away"].to_string();
        assert!(away.contains("is not the replica"), "{away}");
        let left = fs::read_dir(replica).expect("a directory").count();
        assert_eq!(left, 0, "{}", mirror.status());
        if mounted.is_none() {
            fs::remove_dir(replica).expect("removed");
            fs::rename(&aside, replica).expect("renamed");
        }
        drop(mounted);
        wait_for(&mirror, "new");
        mirror.check_equal("back");
    }
}

#[test]
fn what_was_mounted_in_the_source_while_it_ran_stays_when_it_is_gone() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = scratch.dir("src");
    fs::create_dir(source.join("sub")).expect("a directory");
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    let mounted = Mounted::tmpfs(&source.join("sub"));
    fs::write(source.join("sub/kept"), "kept").expect("a file");
    let _done = mirror.command("sync-now").arg("--wait").run().expect(0);
    assert!(mirror.replica.join("sub/kept").exists());
    drop(mounted);
    let _told = mirror.command("sync-now").arg("--wait").run().expect(3);
    assert!(mirror.replica.join("sub/kept").exists());
    // As automounters do.
    fs::remove_dir(source.join("sub")).expect("removed");
    fs::write(source.join("file"), "content").expect("a file");
    wait_for(&mirror, "file");
    let _told = mirror.command("barrier").arg("--timeout=5s").run();
    assert!(mirror.replica.join("sub/kept").exists());
}

#[test]
fn a_barrier_waits_for_what_was_mounted_below_the_source() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, inner) = (scratch.dir("src"), scratch.dir("inner"));
    fs::write(inner.join("kept"), "kept").expect("a file");
    fs::create_dir(source.join("sub")).expect("a directory");
    fs::write(source.join("other"), "other").expect("a file");
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    let mounted = Mounted::bind(&inner, &source.join("sub"));
    mirror.barrier();
    assert!(mirror.replica.join("sub/kept").exists());
    drop(mounted);
    let _told = mirror.command("barrier").run().expect(3);
    let problems = mirror.command("problems").run().expect(3).stdout_text();
    assert!(problems.contains("sub"), "{problems}");
    assert!(mirror.replica.join("sub/kept").exists());
    assert_eq!(mirror.status()["walks"], 1, "only that part is compared");
}

#[test]
fn what_is_not_mounted_any_more_is_forgotten_during_a_pause() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, inner) = (scratch.dir("src"), scratch.dir("inner"));
    fs::write(inner.join("kept"), "kept").expect("a file");
    let mounted = Mounted::bind(&inner, &source.join("sub"));
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    drop(mounted);
    let _told = mirror.command("sync-now").arg("--wait").run().expect(3);
    let problems = mirror.command("problems").run().expect(3).stdout_text();
    assert!(problems.contains("sync --forget-mounts"), "{problems}");
    let _paused = mirror.command("pause").run().expect(0);
    let _forgotten = mirror.sync(&["--forget-mounts"]).run().expect(0);
    assert!(mirror.replica.join("sub/kept").exists());
    let _resumed = mirror.command("resume").run().expect(0);
    let _equal = mirror.command("sync-now").arg("--wait").run().expect(0);
    assert!(!mirror.replica.join("sub/kept").exists());
}

#[test]
fn a_paused_mirror_leaves_nothing_in_doubt_that_it_has_compared() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = scratch.dir("src");
    fs::write(source.join("one"), "one").expect("a file");
    let mut mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    mirror.kill();
    let beside = || {
        let told = mirror.sync(&["--dry-run"]).run().expect(0);
        told.stderr_text() + &told.stdout_text()
    };
    assert!(beside().contains("not made durable"), "{}", beside());
    mirror.start();
    fs::write(source.join("two"), "two").expect("a file");
    let _all = mirror.command("sync-now").arg("--wait").run().expect(0);
    let _paused = mirror.command("pause").run().expect(0);
    let told = mirror.sync(&["--dry-run"]).run().expect(0);
    let told = told.stderr_text() + &told.stdout_text();
    assert!(!told.contains("not made durable"), "{told}");
}

#[test]
fn a_place_that_went_with_what_was_mounted_there_is_forgotten_out_of_quarantine_too() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, inner) = (scratch.dir("src"), scratch.dir("inner"));
    fs::write(inner.join("kept"), "kept").expect("a file");
    fs::write(source.join("other"), "other").expect("a file");
    let mounted = Mounted::bind(&inner, &source.join("sub"));
    let mut mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    drop(mounted);
    fs::remove_dir(source.join("sub")).expect("removed");
    mirror.wait_for("problems", |problems| problems > 0);
    let began = Instant::now();
    loop {
        let _tried = mirror.command("retry").run().expect(0);
        let problems = mirror.command("problems").run().expect(3).stdout_text();
        assert!(problems.contains("sync --forget-mounts"), "{problems}");
        if problems.contains(", 3 times") {
            break;
        }
        assert!(began.elapsed() < LIMIT, "{problems}");
    }
    let _paused = mirror.command("pause").run().expect(0);
    // As it is after an hour in quarantine.
    mirror.stop();
    let quarantined = "attempts = 9, due_ms = due_ms + 3600000 WHERE attempts > 0";
    assert!(
        mirror
            .changed_state(&format!("UPDATE dirty SET {quarantined}"))
            .success()
    );
    mirror.start();
    assert_eq!(mirror.status()["quarantined"], 1, "{}", mirror.status());
    let forgotten = mirror.sync(&["--forget-mounts"]).run().expect(0);
    let said = forgotten.stderr_text() + &forgotten.stdout_text();
    assert!(!said.contains("not made durable"), "{said}");
    let _resumed = mirror.command("resume").run().expect(0);
    mirror.wait_for("problems", |problems| problems == 0);
    mirror.wait_for("quarantined", |paths| paths == 0);
    mirror.barrier();
    assert!(!mirror.replica.join("sub").exists());
}

#[test]
fn without_delete_what_the_source_has_lost_is_no_problem() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fs::write(source.join("old"), "old").expect("a file");
    fs::create_dir(source.join("dir")).expect("a directory");
    fs::write(source.join("dir/file"), "old").expect("a file");
    let mirror = Mirror::of(&source, "detect = [\"fanotify\", \"walk\"]\n");
    mirror.barrier();
    fs::remove_file(source.join("old")).expect("removed");
    fs::remove_dir_all(source.join("dir")).expect("removed");
    for number in 0..50 {
        let path = source.join(format!("tmp{number}"));
        fs::write(&path, "tmp").expect("a file");
        fs::remove_file(&path).expect("removed");
    }
    fs::write(source.join(".doc"), "doc").expect("a file");
    fs::rename(source.join(".doc"), source.join("doc")).expect("renamed");
    mirror.barrier();
    assert!(mirror.replica.join("doc").exists());
    assert!(mirror.replica.join("old").exists() && mirror.replica.join("dir/file").exists());
    let _none = mirror.command("problems").run().expect(0);
}

fn btrfs<'a>(words: impl IntoIterator<Item = &'a str>, paths: &[&Path]) {
    let done = Command::new("btrfs").args(words).args(paths).output();
    let done = done.expect("btrfs runs");
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn a_snapshot_that_is_made_within_the_source_arrives_filled() {
    let scratch = Scratch::new(FsKind::Btrfs, SIZE_MIB);
    let source = scratch.dir("src");
    let work = source.join("work");
    btrfs(["subvolume", "create"], &[&work]);
    fs::create_dir_all(work.join("dir")).expect("a directory");
    fs::write(work.join("dir/file"), "content").expect("a file");
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    btrfs(["subvolume", "snapshot"], &[&work, &source.join("snap")]);
    mirror.barrier();
    let copied = fs::read(mirror.replica.join("snap/dir/file"));
    assert_eq!(copied.expect("copied"), b"content");
}

/// Writes other content of the same size, and has the time be what it was.
fn write_unseen(path: &Path, content: &[u8]) {
    let before = fs::metadata(path)
        .expect("there")
        .modified()
        .expect("a time");
    let mut file = fs::OpenOptions::new().write(true).open(path).expect("open");
    file.write_all(content).expect("written");
    let times = FileTimes::new().set_modified(before);
    file.set_times(times).expect("a time");
}

#[test]
fn content_that_is_written_later_is_copied_though_size_and_time_are_the_same() {
    for (kind, keys, make) in [
        (FsKind::Ext4, KEYS, None),
        (
            FsKind::Btrfs,
            "detect = [\"btrfs\"]\ndelete = true\n",
            Some(["subvolume", "create"]),
        ),
    ] {
        let scratch = Scratch::new(kind, SIZE_MIB);
        let source = scratch.path().join("src");
        match make {
            Some(words) => btrfs(words, &[&source]),
            None => fs::create_dir(&source).expect("a directory"),
        }
        for name in ["file", "other"] {
            fs::write(source.join(name), [b'A'; 70_000]).expect("a file");
        }
        let mirror = Mirror::of(&source, keys);
        mirror.barrier();
        write_unseen(&source.join("file"), &[b'B'; 4096]);
        mirror.barrier();
        let copied = fs::read(mirror.replica.join("file")).expect("copied");
        assert_eq!(
            copied[..4097],
            [&[b'B'; 4096][..], b"A"].concat(),
            "{kind:?}"
        );
    }
}

/// What it says when its replica is made the active side, or is not any more.
fn turned(mirror: &Mirror, words: &[&str], code: i32) -> String {
    let command = mirror.command(words[0]).args(&words[1..]);
    command.run().expect(code).stderr_text()
}

#[test]
fn a_source_that_is_not_mounted_gets_nothing_back() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let [source, disk, replica] = ["src", "disk", "replica"].map(|name| scratch.dir(name));
    for number in 0..10 {
        fs::write(disk.join(format!("{number}")), "content").expect("a file");
    }
    // Under the mount there is something of the same name.
    fs::write(source.join("1"), "underneath").expect("a file");
    fs::write(source.join("mine"), "underneath").expect("a file");
    let mounted = Mounted::bind(&disk, &source);
    let mut mirror = Mirror::between(&source, &replica, KEYS);
    mirror.barrier();
    mirror.stop();
    turned(&mirror, &["failover", "--yes"], 0);
    drop(mounted);
    let said = turned(&mirror, &["failback", "--finish", "--yes"], 13);
    assert!(said.contains("is its file system mounted"), "{said}");
    assert!(source.join("mine").exists() && !source.join("2").exists());
    let mounted = Mounted::bind(&disk, &source);
    turned(&mirror, &["failback", "--finish", "--yes"], 0);
    drop(mounted);
}

#[test]
fn a_source_that_is_not_the_active_side_gets_nothing_out_of_the_trash() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let [source, replica] = ["src", "replica"].map(|name| scratch.dir(name));
    fs::create_dir(source.join("dir")).expect("a directory");
    for name in ["dir/gone", "dir/stays"] {
        fs::write(source.join(name), "content").expect("a file");
    }
    let mut mirror = Mirror::between(&source, &replica, &format!("{KEYS}trash = \"30d\"\n"));
    mirror.barrier();
    fs::remove_file(source.join("dir/gone")).expect("removed");
    mirror.barrier();
    mirror.stop();
    turned(&mirror, &["failover", "--yes"], 0);
    let said = turned(&mirror, &["trash", "restore", "dir/gone"], 13);
    let folder = replica.join("dir");
    let folder = folder.to_str().expect("text");
    assert!(said.contains(folder), "{said}");
    assert!(!source.join("dir/gone").exists());
    turned(
        &mirror,
        &["trash", "restore", "dir/gone", "--to", folder],
        0,
    );
    assert!(replica.join("dir/gone").exists());
}

#[test]
fn a_mirror_that_another_state_knows_of_is_not_failed_over_behind_its_back() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fs::write(source.join("file"), "content").expect("a file");
    let mut mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    let state = scratch.path().join("state");
    let elsewhere = |mirror: &Mirror, code| {
        let command = mirror.command("failover").arg("--yes");
        command.env("XDG_STATE_HOME", &state).run().expect(code)
    };
    let _another_run_is_at_work = elsewhere(&mirror, 11);
    assert_eq!(mirror.status()["role"], "following");
    mirror.stop();
    let said = elsewhere(&mirror, 0).stdout_text();
    assert!(said.contains("UNKNOWN"), "{said}");
}

#[test]
fn a_source_that_is_emptied_does_not_empty_its_replica() {
    for keys in [KEYS, "detect = [\"walk\"]\ndelete = true\n"] {
        let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
        let source = scratch.dir("src");
        fs::create_dir(source.join("dir")).expect("a directory");
        for name in ["one", "two", "dir/three"] {
            fs::write(source.join(name), "content").expect("a file");
        }
        let mirror = Mirror::of(&source, keys);
        mirror.barrier();
        for entry in fs::read_dir(&source).expect("listed").flatten() {
            let _gone = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir_all(entry.path()));
        }
        let _told = mirror.command("barrier").run().expect(3);
        let problems = mirror.command("problems").run().stdout_text();
        assert!(problems.contains("the source is empty"), "{problems}");
        assert!(mirror.replica.join("one").exists() && mirror.replica.join("dir").exists());
        // It was not lost, only away.
        fs::write(source.join("one"), "content").expect("a file");
        let _tried = mirror.command("retry").run().expect(0);
        mirror.check_equal("it is there again");
    }
}

#[test]
fn a_name_of_the_programs_own_that_comes_and_goes_is_no_problem() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fs::write(source.join("file"), "content").expect("a file");
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    let name = source.join(".driftless-tmp-0123456789abcdef0123456789abcdef");
    fs::write(&name, "").expect("a file");
    let _told = mirror.command("barrier").run().expect(3);
    fs::remove_file(&name).expect("removed");
    let _tried = mirror.command("retry").run().expect(0);
    mirror.check_equal("it is gone");
}

#[test]
fn a_directory_that_is_append_only_fills_with_nothing() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, replica) = (scratch.dir("src"), scratch.dir("dst"));
    fs::create_dir(source.join("dir")).expect("a directory");
    let mirror = Mirror::between(&source, &replica, KEYS);
    mirror.barrier();
    let chattr = |flag: &str| {
        let status = Command::new("chattr")
            .arg(flag)
            .arg(replica.join("dir"))
            .status();
        assert!(status.expect("chattr").success());
    };
    chattr("+a");
    fs::write(source.join("dir/file"), vec![1; 1 << 20]).expect("a file");
    let told = mirror.command("barrier").run().expect(3);
    let problems = mirror.command("problems").run().stdout_text();
    let names = fs::read_dir(replica.join("dir")).expect("listed").count();
    chattr("-a");
    assert!(
        problems.contains("append-only"),
        "{problems}\n{}",
        told.describe()
    );
    assert!(names <= 1, "{names} unfinished copies");
    // All is compared, and what was left goes with it.
    let _done = mirror.command("sync-now").arg("--wait").run().expect(0);
    mirror.check_equal("it may be changed again");
}

#[test]
fn nothing_is_said_of_trees_that_the_mirror_does_not_have() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (source, other) = (scratch.dir("src"), scratch.path().join("other.toml"));
    let mirror = Mirror::of(&source, KEYS);
    let (from, to) = (scratch.dir("from"), scratch.dir("to"));
    let job = format!("name = \"test\"\nsource = {from:?}\nreplica = {to:?}\n{KEYS}");
    fs::write(&other, job).expect("a file");
    for command in ["barrier", "sync-now", "pause", "retry"] {
        let refused = mirror.command_of(command, &other).run().expect(13);
        assert!(refused.stderr_text().contains("has other trees"));
    }
    let told = mirror.command_of("status", &other).run().expect(0);
    assert!(told.stderr_text().contains("has other trees"));
    mirror.barrier();
}

#[test]
fn files_that_others_hold_leases_on_hold_up_nothing_else() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let source = scratch.dir("src");
    let mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    // More than the mirror has threads for entries.
    let ignores = r#""IGNORE""#;
    let held: Vec<Lease> = (0..20)
        .map(|number| {
            let path = source.join(format!("held-{number}"));
            fs::write(&path, "").expect("a file");
            let lease = Lease::on(&path, ignores, Command::new("perl"));
            let time = rustix::fs::Timespec {
                tv_sec: 1_000_000_000,
                tv_nsec: 0,
            };
            let times = rustix::fs::Timestamps {
                last_access: time,
                last_modification: time,
            };
            let no_flags = rustix::fs::AtFlags::empty();
            rustix::fs::utimensat(rustix::fs::CWD, &path, &times, no_flags).expect("set");
            lease
        })
        .collect();
    fs::write(source.join("other"), "content").expect("a file");
    let began = Instant::now();
    wait_for(&mirror, "other");
    // The kernel itself ends a lease after 45 seconds (proc(5), lease-break-time).
    assert!(
        began.elapsed() < Duration::from_secs(40),
        "{:?}",
        began.elapsed()
    );
    drop(held);
    let _tried = mirror.command("retry").run().expect(0);
    mirror.check_equal("nobody holds them any more");
}

fn unmount_when_free(path: &Path) {
    let began = Instant::now();
    while !Command::new("umount")
        .arg(path)
        .status()
        .expect("umount")
        .success()
    {
        assert!(began.elapsed() < LIMIT, "it is in use");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Changes a tree as another host does that has its disk for a while.
fn change_elsewhere(dir: &Path) {
    fs::remove_file(dir.join("gone")).expect("removed");
    fs::write(dir.join("changed"), "on another host").expect("a file");
}

#[test]
fn disk_mounted_anew_during_a_pause_is_compared() {
    let (scratch, disk) = (
        Scratch::new(FsKind::Tmpfs, SIZE_MIB),
        Scratch::new(FsKind::Ext4, SIZE_MIB),
    );
    let (source, replica) = (scratch.dir("src"), disk.dir("dst"));
    for name in ["gone", "changed", "same"] {
        fs::write(source.join(name), "content").expect("a file");
    }
    let mirror = Mirror::between(&source, &replica, KEYS);
    mirror.barrier();
    let _paused = mirror.command("pause").run().expect(0);
    change_elsewhere(&replica);
    disk.mount_again();
    let _goes_on = mirror.command("resume").run().expect(0);
    mirror.check_equal("the disk was elsewhere");
}

#[test]
fn disk_below_the_replica_mounted_anew_is_compared() {
    let (scratch, disk) = (
        Scratch::new(FsKind::Tmpfs, SIZE_MIB),
        Scratch::new(FsKind::Ext4, SIZE_MIB),
    );
    let (source, replica) = (scratch.dir("src"), scratch.dir("dst"));
    let (below, part) = (replica.join("a"), disk.dir("part"));
    for dir in [source.join("a"), below.clone()] {
        fs::create_dir(dir).expect("a directory");
    }
    for name in ["gone", "changed", "same"] {
        fs::write(source.join("a").join(name), "content").expect("a file");
    }
    let mount = Mounted::bind(&part, &below);
    let mirror = Mirror::between(&source, &replica, KEYS);
    mirror.barrier();
    unmount_when_free(mount.path());
    change_elsewhere(&part);
    let _mount = Mounted::bind(&part, &below);
    mirror.check_equal("the disk was elsewhere");
}

#[test]
fn a_part_of_the_replica_that_is_elsewhere_by_now_is_compared() {
    let (scratch, disk) = (
        Scratch::new(FsKind::Tmpfs, SIZE_MIB),
        Scratch::new(FsKind::Tmpfs, SIZE_MIB),
    );
    let (source, replica) = (scratch.dir("src"), scratch.dir("dst"));
    fs::create_dir_all(source.join("a/b")).expect("a directory");
    fs::create_dir_all(replica.join("a/b")).expect("a directory");
    for number in 0..20 {
        fs::write(source.join(format!("a/b/{number}")), "content").expect("a file");
    }
    let mount = Mounted::bind(&disk.dir("part"), &replica.join("a/b"));
    let mirror = Mirror::between(&source, &replica, KEYS);
    mirror.barrier();
    // Nothing of it is held, so that it can be unmounted as ever.
    let began = Instant::now();
    unmount_when_free(mount.path());
    assert!(began.elapsed() < Duration::from_secs(60));
    mirror.check_equal("it is not mounted any more");
    let _mount = Mounted::bind(&disk.dir("other"), &replica.join("a/b"));
    fs::write(source.join("a/b/new"), "content").expect("a file");
    mirror.barrier();
    assert_eq!(
        fs::read_dir(replica.join("a/b")).expect("listed").count(),
        21
    );
}
