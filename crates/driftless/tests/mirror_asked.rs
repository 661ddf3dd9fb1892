//! Whoever asks a mirror that begins, hangs, or has a tree out of reach is told so, and in time.
#![allow(clippy::disallowed_methods)]

mod common;

use common::mirror::Mirror;
use common::wait_until;
use driftless_testkit::accounts::ORDINARY_ID;
use driftless_testkit::fuse::{Fuse, Mood};
use driftless_testkit::{Driftless, EVENT_MAX, FsKind, Outcome, Scratch, write_program};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

const LIMIT: Duration = EVENT_MAX;
const SIZE_MIB: u64 = 64;
const KEYS: &str = "detect = [\"fanotify\"]\ndelete = true\n";

/// A job whose replica is on a host that takes its time to say that it cannot be reached.
fn slow(scratch: &Scratch, seconds: u32) -> Mirror {
    let program = scratch.path().join("ssh");
    let text = format!("#!/bin/sh\nsleep {seconds}\nexit 255\n");
    write_program(&program, &text);
    let reach = format!("{KEYS}[reach]\nssh = {program:?}\n");
    Mirror::begun(&scratch.dir("src"), "far:/r", &reach)
}

/// Waits until its process has the job.
fn wait_until_held(mirror: &Mirror) {
    let (lock, began) = (mirror.state_file().with_extension("lock"), Instant::now());
    let is_held = || fs::read_to_string(&lock).is_ok_and(|text| text.starts_with("process "));
    while !is_held() {
        assert!(began.elapsed() < LIMIT, "nobody has the job");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_mirror_that_starts_says_so_and_is_waited_for() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mirror = slow(&scratch, 10);
    wait_until_held(&mirror);
    for command in ["status", "problems", "pause"] {
        let told = mirror.command(command).run().expect(1);
        let words = "is starting (process ";
        assert!(told.stderr_text().contains(words), "{}", told.describe());
    }
    let late = mirror.command("barrier").arg("--timeout=1s").run();
    let told = late.expect(6).stderr_text();
    assert!(told.contains("has not answered"), "{told}");
    let _asked = mirror.command("sync-now").run().expect(0);
    assert_eq!(mirror.status()["is_running"], true);
}

#[test]
fn a_barrier_right_behind_the_start_waits_for_the_mirror() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (source, replica) = (scratch.dir("src"), scratch.path().join("r"));
    fs::write(source.join("file"), "content").expect("a file");
    let mirror = Mirror::begun(&source, replica.to_str().expect("text"), KEYS);
    let equal = mirror.command("barrier").arg("--timeout=50s").run();
    let _equal = equal.expect(0);
    assert!(replica.join("file").exists());
}

#[test]
fn a_start_that_is_not_the_first_tells_how_it_was_left() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mut mirror = Mirror::of(&scratch.dir("src"), KEYS);
    mirror.barrier();
    mirror.kill();
    let lock = mirror.state_file().with_extension("lock");
    // As long as this runs, another process has the job.
    let holds = ["flock".as_ref(), lock.as_os_str()];
    let told = mirror.command("status").through(holds).run().expect(0);
    let told = told.stdout_text();
    assert!(told.contains("starting (process "), "{told}");
    assert!(!told.contains("the mirror does not run"), "{told}");
}

#[test]
fn a_state_that_is_being_made_is_that_of_a_mirror_that_starts() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mut mirror = Mirror::of(&scratch.dir("src"), KEYS);
    mirror.barrier();
    mirror.stop();
    for end in ["db", "db-wal", "db-shm"] {
        let _it_may_be_gone = fs::remove_file(mirror.state_file().with_extension(end));
    }
    fs::write(mirror.state_file(), "").expect("an empty file");
    let lock = mirror.state_file().with_extension("lock");
    let holds = ["flock".as_ref(), lock.as_os_str()];
    let told = mirror.command("status").through(holds).run().expect(1);
    let told = told.stderr_text();
    assert!(told.contains("is starting (process "), "{told}");
}

#[test]
fn mirror_of_another_host_is_named() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fs::write(source.join("file"), "content").expect("a file");
    let mut mirror = Mirror::of(&source, KEYS);
    mirror.barrier();
    mirror.kill();
    let lock = mirror.state_file().with_extension("lock");
    // The folder for state is on a server, and its lock is one of another host.
    fs::write(&lock, "process 1\nhost far\nboot another\n").expect("a text");
    for command in ["status", "problems", "pause", "barrier"] {
        let holds = ["flock".as_ref(), lock.as_os_str()];
        let told = mirror.command(command).through(holds).run().expect(1);
        let told = told.stderr_text();
        let is_named = told.contains("process 1 on the host \"far\"");
        assert!(is_named && !told.contains("kill"), "{command}: {told}");
    }
    let (said, lock) = (scratch.path().join("said"), lock.display().to_string());
    let script = format!("exec \"$0\" \"$@\" 2>{}", said.display());
    let words = ["flock", "--no-fork", &lock, "sh", "-c", &script];
    let failover = mirror.command("failover").arg("--yes").through(words);
    let (waits, began) = (failover.spawn(), Instant::now());
    let told = || fs::read_to_string(&said).unwrap_or_default();
    while !told().contains("waiting for up to") {
        assert!(began.elapsed() < LIMIT, "{}", told());
        std::thread::sleep(Duration::from_millis(20));
    }
    waits.signal(Signal::TERM);
    let _ended = waits.wait().expect(143);
    assert!(told().contains("nothing was changed"), "{}", told());
    assert_eq!(mirror.status()["role"], "following");
}

#[test]
fn job_of_another_host_is_not_taken() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (home, source) = (scratch.dir("home"), scratch.dir("src"));
    let folder = home.join("driftless");
    fs::create_dir(&folder).expect("a folder");
    // Locks on one of these file systems are not seen on the other.
    let seen = Fuse::over(&home, Mood::healthy());
    let lock = fs::File::create(folder.join("mirror-test.lock")).expect("a lock");
    let beat = |number: u32| {
        let text = format!("process 1\nhost far\nboot another\nbeat {number:020}\n");
        lock.write_all_at(text.as_bytes(), 0).expect("a beat");
    };
    beat(0);
    let mirror = Mirror::idle(&source, KEYS);
    for (command, code) in [("run", 11), ("status", 1)] {
        let command = mirror.command(command);
        let running = command.env("XDG_STATE_HOME", seen.path()).spawn();
        let (began, mut number) = (Instant::now(), 0);
        while !running.ends_within(Duration::from_millis(200)) {
            assert!(began.elapsed() < LIMIT, "it goes on");
            number += 1;
            beat(number);
        }
        let told = running.wait().expect(code).stderr_text();
        let words = "process 1 on the host \"far\"";
        assert!(told.contains(words), "{told}");
    }
}

fn check_in_time(told: &Outcome, seconds: std::ops::Range<u64>, process: u32) {
    for words in [&format!("process {process}"), "kill -CONT"] {
        assert!(told.stderr_text().contains(words), "{}", told.describe());
    }
    let took = told.elapsed.as_secs();
    assert!(seconds.contains(&took), "{took} s: {}", told.describe());
}

#[test]
fn a_mirror_that_hangs_holds_up_nobody() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mirror = Mirror::of(&scratch.dir("src"), KEYS);
    mirror.barrier();
    mirror.freeze();
    let late = mirror.command("barrier").arg("--timeout=3s").run();
    check_in_time(&late.expect(6), 3..60, mirror.process());
    for command in ["status", "pause"] {
        let told = mirror.command(command).run().expect(1);
        check_in_time(&told, 10..60, mirror.process());
    }
    let waits = mirror.command("barrier").spawn();
    std::thread::sleep(Duration::from_secs(26));
    mirror.thaw();
    let told = waits.wait().expect(0);
    let words = "its mirror does not answer";
    assert!(told.stderr_text().contains(words), "{}", told.describe());
}

#[test]
fn whoever_waits_is_told_of_paths_that_find_no_room() {
    let (scratch, small) = (
        Scratch::new(FsKind::Tmpfs, SIZE_MIB),
        Scratch::new(FsKind::Tmpfs, 8),
    );
    let (source, replica) = (scratch.dir("src"), small.dir("replica"));
    let mirror = Mirror::between(&source, &replica, KEYS);
    mirror.barrier();
    for number in 0..20 {
        let path = source.join(format!("{number}"));
        fs::write(path, vec![1; 1 << 20]).expect("a file");
    }
    let late = mirror.command("barrier").arg("--timeout=12s").run();
    let told = late.expect(6).stderr_text();
    let words = "waiting: some paths differ";
    assert_eq!(told.matches(words).count(), 1, "{told}");
}

/// Tries of which one is not delayed by a loaded machine.
const TRIES: u32 = 4;
/// Longest time of a try on request. The mirror's own next try is seven seconds away.
const ON_REQUEST_MAX: Duration = Duration::from_secs(3);

/// Has the replica be away until the mirror tries it only every eight seconds.
fn be_away(mirror: &Mirror, aside: &Path) {
    fs::rename(&mirror.replica, aside).expect("renamed");
    fs::write(mirror.source.join("meanwhile"), "content").expect("a file");
    let late = mirror.command("barrier").arg("--timeout=8s").run();
    let _late = late.expect(6);
    fs::rename(aside, &mirror.replica).expect("renamed");
}

#[test]
fn trees_that_are_out_of_reach_are_tried_when_somebody_asks_for_it() {
    let scratch = Scratch::new(FsKind::Ext4, SIZE_MIB);
    let (source, replica) = (scratch.dir("src"), scratch.dir("replica"));
    // One that was never filled would be made anew.
    fs::write(source.join("first"), "content").expect("a file");
    let mirror = Mirror::between(&source, &replica, KEYS);
    mirror.barrier();
    for (command, words) in [("retry", "out of reach are tried again"), ("sync-now", "")] {
        let is_soon = (0..TRIES).any(|number| {
            be_away(&mirror, &scratch.path().join("aside"));
            let name = format!("{command}-{number}");
            fs::write(source.join(&name), "content").expect("a file");
            let told = mirror.command(command).run().expect(0).stdout_text();
            assert!(told.contains(words), "{told}");
            let began = Instant::now();
            wait_until("the file is there", || replica.join(&name).exists());
            let took = began.elapsed();
            mirror.barrier();
            took < ON_REQUEST_MAX
        });
        assert!(is_soon, "{command}");
    }
}

/// It takes the question, and is killed before it answers.
#[test]
fn what_a_mirror_does_not_say_that_ends_meanwhile_its_state_does() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mut mirror = Mirror::of(&scratch.dir("src"), KEYS);
    mirror.barrier();
    mirror.stop();
    let socket = mirror.state_file().with_extension("socket");
    fs::remove_file(&socket).expect("where it listened");
    let listener = UnixListener::bind(&socket).expect("a socket");
    std::thread::spawn(move || {
        for asked in listener.incoming() {
            let mut line = String::new();
            let _question = BufReader::new(asked.expect("a question")).read_line(&mut line);
        }
    });
    assert_eq!(mirror.status()["is_running"], false);
    let _none = mirror.command("problems").run().expect(0);
    let told = mirror.command("barrier").run().expect(1).stderr_text();
    assert!(told.contains("has ended before it answered"), "{told}");
}

#[test]
fn a_mirror_that_was_killed_does_not_run() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mut mirror = Mirror::of(&scratch.dir("src"), KEYS);
    mirror.barrier();
    let by_name = |command: &str, job: &str| mirror.command_of(command, Path::new(job)).run();
    let unknown = by_name("pause", "unknown").expect(2).stderr_text();
    assert!(unknown.contains("there is no such job"), "{unknown}");
    let _known = by_name("pause", "test").expect(0);
    mirror.kill();
    let socket = mirror.state_file().with_extension("socket");
    assert!(socket.exists(), "it is stale");
    for is_stale in [true, false] {
        for command in ["status", "problems", "pause", "retry"] {
            let told = mirror.command_of(command, Path::new("test")).run();
            let told = told.expect(1).stderr_text();
            let words = "test: its mirror does not run";
            assert!(told.contains(words), "{command}, {is_stale}: {told}");
        }
        let _gone_then = fs::remove_file(&socket);
    }
    let told = mirror.command("pause").run().expect(1).stderr_text();
    assert!(told.contains("its mirror does not run"), "{told}");
}

#[test]
fn clients_that_say_nothing_are_hung_up_on() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mirror = Mirror::of(&scratch.dir("src"), KEYS);
    mirror.barrier();
    let socket = mirror.state_file().with_extension("socket");
    let connect = |_: u32| UnixStream::connect(&socket).expect("connected");
    let mut silent: Vec<UnixStream> = (0..300).map(connect).collect();
    let last = silent.last_mut().expect("one");
    last.set_read_timeout(Some(LIMIT)).expect("a limit");
    let mut said = String::new();
    let _hung_up = last.read_to_string(&mut said);
    assert!(said.contains("\"busy\""), "{said}");
    let told = mirror.command("status").run().expect(1).stderr_text();
    assert!(told.contains("answers as many as it can"), "{told}");
    let first = &mut silent[0];
    first.set_read_timeout(Some(LIMIT)).expect("a limit");
    assert_eq!(first.read(&mut [0; 10]).expect("hung up"), 0);
    let (began, is_running) = (Instant::now(), "\"is_running\":true");
    let answers = || mirror.command("status").arg("--json").run();
    while !answers().stdout_text().contains(is_running) {
        assert!(began.elapsed() < LIMIT, "{}", answers().describe());
    }
}

/// Threads at the socket of a mirror.
fn threads_at_socket(mirror: &Mirror) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", mirror.process())).expect("threads");
    let names = tasks
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("comm")));
    names
        .flatten()
        .filter(|name| name.trim() == "control")
        .count()
}

fn wait_for_threads(mirror: &Mirror, wanted: usize) {
    let began = Instant::now();
    while threads_at_socket(mirror) != wanted {
        assert!(began.elapsed() < LIMIT, "{wanted} threads");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_barrier_that_was_killed_is_given_up() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mirror = Mirror::of(&scratch.dir("src"), KEYS);
    mirror.barrier();
    let _paused = mirror.command("pause").run().expect(0);
    fs::write(mirror.source.join("file"), "content").expect("a file");
    wait_for_threads(&mirror, 1);
    let waits = mirror.command("barrier").spawn();
    let (began, mut looks) = (Instant::now(), 0);
    // The command asks for the status first, and waits at a connection of its own then.
    while looks < 20 {
        assert!(began.elapsed() < LIMIT, "nobody waits");
        std::thread::sleep(Duration::from_millis(20));
        looks = if threads_at_socket(&mirror) == 2 {
            looks + 1
        } else {
            0
        };
    }
    waits.signal(Signal::KILL);
    let _killed = waits.wait();
    wait_for_threads(&mirror, 1);
}

/// A group that is on every host, and that the mirror's user is no member of.
const GROUP: &str = "games";

/// A command about the job of a mirror by another user, who has a state folder of their own and
/// these groups.
fn by_other(command: Driftless, home: &Path, groups: &str) -> Driftless {
    let id = ORDINARY_ID.to_string();
    let words = ["setpriv", "--reuid", &id, "--regid", &id, groups];
    let command = command.through(words).env("XDG_STATE_HOME", home);
    command.env("XDG_CONFIG_HOME", home).env("HOME", home)
}

/// Option of setpriv(1) that makes a process a member of the group.
fn membership() -> String {
    let groups = fs::read_to_string("/etc/group").expect("groups");
    let mut lines = groups.lines().map(|line| line.split(':'));
    let found = lines.find(|fields| fields.clone().next() == Some(GROUP));
    let gid = found
        .and_then(|mut fields| fields.nth(2))
        .expect("a number");
    format!("--groups={gid}")
}

fn home_of_other(scratch: &Scratch) -> std::path::PathBuf {
    let home = scratch.dir("home");
    fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).expect("a mode");
    std::os::unix::fs::chown(&home, Some(ORDINARY_ID), Some(ORDINARY_ID)).expect("an owner");
    home
}

#[test]
fn operators_may_ask_and_may_not_act() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let home = home_of_other(&scratch);
    let keys = format!("{KEYS}operators = {GROUP:?}\n");
    let mut mirror = Mirror::of(&scratch.dir("src"), &keys);
    mirror.barrier();
    let member = membership();
    let ask = |command: Driftless| by_other(command, &home, &member);
    let runtime = mirror.runtime_folder();
    let list = mirror.without_job(&["list", "--json"]);
    for (command, words) in [
        (
            mirror.command("status").arg("--json"),
            "\"is_running\":true",
        ),
        (mirror.command("status").arg("--check"), "test"),
        (mirror.command("problems"), ""),
        (mirror.command("foreign"), ""),
        (list, "\"is_running\":true"),
        (mirror.report().arg("--json"), "\"job\":\"test\""),
        (mirror.report(), "backlog"),
    ] {
        let told = ask(command.env("DRIFTLESS_RUNTIME_DIR", &runtime)).run();
        let told = told.expect(0);
        assert!(told.stdout_text().contains(words), "{}", told.describe());
    }
    let refused = format!("members of the group \"{GROUP}\" may ask");
    for words in [
        &["pause"][..],
        &["resume"],
        &["sync-now"],
        &["barrier"],
        &["retry"],
        &["failover", "--yes"],
        &["failback", "--yes"],
        &["trash", "restore", "file"],
        &["trash", "purge"],
    ] {
        let told = ask(mirror.command(words[0]).args(&words[1..])).run();
        let told = told.expect(1);
        assert!(told.stderr_text().contains(&refused), "{}", told.describe());
    }
    assert_eq!(mirror.status()["is_paused"], false);
    let stranger = by_other(mirror.command("status"), &home, "--clear-groups");
    let told = stranger.run().expect(1).stderr_text();
    assert!(told.contains("runs as another user"), "{told}");
    mirror.kill();
    let told = ask(mirror.command("status")).run().expect(1);
    let words = "answers operators only while it runs";
    assert!(told.stderr_text().contains(words), "{}", told.describe());
}

#[test]
fn missing_group_of_operators_is_named() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let keys = format!("{KEYS}operators = \"no-such-group\"\n");
    let told = Mirror::refused(&scratch.dir("src"), &keys).stderr_text();
    let words = "there is no group \"no-such-group\" on this host";
    assert!(told.contains(words), "{told}");
}
