//! What a mirror tells those who do not ask it themselves: whoever looks when it does not run, a command
//! for problems, the service manager.
#![allow(clippy::disallowed_methods)]

mod common;

use common::driftless;
use common::mirror::{LIMIT, Mirror};
use driftless_testkit::{EVENT_MAX, FsKind, Scratch, wait_slowly_until, write_program};
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const SIZE_MIB: u64 = 64;
const FOLLOWING: &str = "detect = [\"fanotify\"]\ndelete = true\n";

/// What a command prints as JSON, one object a line.
fn json(text: &str) -> Vec<Value> {
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("JSON")
}

#[test]
fn a_mirror_without_changes_is_known_to_be_equal_until_a_moment_ago() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fs::write(source.join("file"), b"content").expect("a file");
    let mirror = Mirror::of(&source, FOLLOWING);
    mirror.barrier();
    let until = || {
        mirror.status()["equal_until"]
            .as_f64()
            .expect("it is equal")
    };
    let (then, began) = (until(), Instant::now());
    while until() < then + 1.0 {
        assert!(began.elapsed() < LIMIT, "{}", mirror.status());
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_mirror_that_does_not_run_is_told_of_as_its_state_has_it() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fs::write(source.join("file"), b"content").expect("a file");
    let mut mirror = Mirror::of(&source, &format!("rpo = \"3s\"\n{FOLLOWING}"));
    mirror.barrier();
    let equal = Cell::new(0.0);
    wait_slowly_until("the replica is equal in time", || {
        let running = mirror.status();
        equal.set(running["equal_until"].as_f64().unwrap_or_default());
        running["is_behind"] == false && equal.get() > 0.0
    });
    let equal = equal.get();
    let kept = "SELECT equal_until_ms FROM job";
    wait_slowly_until("that is kept", || {
        let kept: f64 = mirror.rows(kept).trim().parse().unwrap_or_default();
        kept / 1000.0 >= equal - 1.5
    });
    mirror.kill();
    let status = mirror.status();
    assert_eq!(status["is_running"], false, "{status}");
    assert_eq!(status["process"], Value::Null);
    assert!(status["equal_until"].as_f64().expect("kept") >= equal - 1.5);
    assert_eq!(status["walks"], 1);
    std::thread::sleep(Duration::from_secs(4));
    let late = mirror.command("status").arg("--check").run().expect(6);
    for words in ["not running", "TOO FAR", "driftless mirror run /"] {
        assert!(late.stdout_text().contains(words), "{}", late.describe());
    }
    let _none = mirror.command("problems").run().expect(0);
    let refused = mirror.command("barrier").run().expect(1);
    assert!(refused.stderr_text().contains("does not run"));
    // A job of the same name has a state of its own, or none.
    let (job, other) = (scratch.path().join("job.toml"), scratch.dir("other"));
    let replica = &mirror.replica;
    let text = format!("name = \"test\"\nsource = {other:?}\nreplica = {replica:?}\n");
    fs::write(&job, text).expect("a job");
    for command in ["status", "problems"] {
        let told = mirror.command_of(command, &job).run().expect(13);
        let words = "it is the state of a mirror of";
        assert!(told.stderr_text().contains(words), "{}", told.describe());
    }
}

#[test]
fn a_moment_that_is_yet_to_come_proves_nothing() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fs::write(source.join("file"), b"content").expect("a file");
    let mut mirror = Mirror::of(&source, FOLLOWING);
    mirror.barrier();
    mirror.stop();
    let _equal = mirror.command("status").arg("--check").run().expect(0);
    // As a clock leaves it that was two days ahead.
    let ahead = "equal_until_ms = equal_until_ms + 172800000, since_ms = since_ms + 172800000";
    let changed = mirror.changed_state(&format!("UPDATE job SET {ahead}"));
    assert!(changed.success());
    let status = mirror.status();
    assert_eq!(status["is_behind"], true, "{status}");
    for field in ["behind_seconds", "equal_until"] {
        assert_eq!(status[field], Value::Null, "{status}");
    }
    let late = mirror.command("status").arg("--check").run().expect(6);
    assert!(
        late.stdout_text().contains("TOO FAR; the clock was ahead"),
        "{}",
        late.describe()
    );
    mirror.start();
    mirror.barrier();
    let status = mirror.status();
    assert_eq!(status["is_behind"], false, "{status}");
    assert_eq!(status["foreign"], 0, "{status}");
    assert!(status["equal_until"].is_f64(), "{status}");
}

/// Waits until the state file has rows of this table.
fn wait_until_kept(mirror: &Mirror, table: &str) {
    let count = format!("SELECT count(*) > 0 FROM {table}");
    wait_slowly_until(table, || mirror.rows(&count) == "1\n");
}

#[test]
fn problems_of_a_mirror_that_does_not_run_are_told() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    let mut mirror = Mirror::of(&source, "detect = [\"fanotify\"]\n");
    mirror.barrier();
    // Without delete, a directory that is not empty stays where a file should be.
    fs::create_dir_all(mirror.replica.join("name/below")).expect("directories");
    fs::write(source.join("name"), b"content").expect("a file");
    mirror.wait_for("problems", |problems| problems > 0);
    wait_until_kept(&mirror, "problems");
    mirror.kill();
    let told = mirror.command("problems").arg("--json").run().expect(3);
    let problems = json(&told.stdout_text());
    assert_eq!(problems[0]["path"], "name", "{}", told.describe());
    assert_eq!(mirror.status()["problems"], 1);
}

#[test]
fn a_mirror_that_has_never_run_says_so() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mut mirror = Mirror::of(&scratch.dir("src"), FOLLOWING);
    mirror.kill();
    fs::remove_file(mirror.state_file()).expect("its state");
    let typed = "has never run here (driftless mirror run /";
    for command in ["status", "problems"] {
        let told = mirror.command(command).run().expect(1);
        assert!(told.stderr_text().contains(typed), "{}", told.describe());
    }
    let told = mirror.report().run().expect(1).stderr_text();
    assert!(told.contains(typed) && told.contains("job.toml)"), "{told}");
}

#[test]
fn first_copy_shows_its_progress() {
    const FILE: usize = 256 << 10;
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    for number in 0..40 {
        let content = vec![number as u8 + 1; FILE];
        fs::write(source.join(format!("file {number}")), content).expect("a file");
    }
    let keys = format!("{FOLLOWING}rpo = \"3s\"\n[limits]\nbytes_per_second = \"1M\"\n");
    let mut mirror = Mirror::of(&source, &keys);
    let began = Instant::now();
    let share = loop {
        let status = mirror.status();
        assert_eq!(status["is_first_copy"], true, "{status}");
        let now = &status["comparing"];
        if now["bytes_copied"].as_u64() > Some(0) && now["share"].as_f64() > Some(0.0) {
            break now["share"].as_f64();
        }
        assert!(began.elapsed() < LIMIT, "{status}");
    };
    assert!(share < Some(1.0));
    let text = mirror.command("status").run().expect(0).stdout_text();
    assert!(text.contains(" first copy, "), "{text}");
    assert!(text.contains("  comparing "), "{text}");
    mirror.ask_by_signal();
    mirror.barrier();
    let status = mirror.status();
    let is_over = (&status["is_first_copy"], &status["comparing"]);
    assert_eq!(is_over, (&false.into(), &Value::Null), "{status}");
    mirror.terminate();
    let log = mirror.ended().stderr_text();
    for words in [
        "the first copy begins",
        "first copy, ",
        "the first copy is not complete",
        "the first copy is complete: ",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
}

#[test]
fn beginning_of_first_copy_is_logged_once() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fs::write(source.join("file"), b"content").expect("a file");
    let parent = scratch.path().join("not mounted yet");
    let mut mirror = Mirror::between(&source, &parent.join("replica"), FOLLOWING);
    let began = Instant::now();
    while mirror.status()["away"].is_null() {
        assert!(began.elapsed() < LIMIT, "{}", mirror.status());
    }
    fs::create_dir(&parent).expect("a directory");
    let _done = mirror.command("retry").run().expect(0);
    mirror.barrier();
    mirror.terminate();
    let log = mirror.ended().stderr_text();
    assert_eq!(log.matches("the first copy begins").count(), 1, "{log}");
}

#[test]
fn problems_of_a_mirror_are_in_its_log() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    let mut mirror = Mirror::of(&source, "detect = [\"fanotify\"]\n");
    mirror.barrier();
    for name in ["one", "two", "three"] {
        fs::create_dir_all(mirror.replica.join(name).join("below")).expect("directories");
        fs::write(source.join(name), b"content").expect("a file");
    }
    mirror.wait_for("problems", |problems| problems == 3);
    // The log is written with the next look at what is wrong.
    std::thread::sleep(Duration::from_millis(2500));
    mirror.terminate();
    let log = mirror.ended().stderr_text();
    let lines = log.lines().filter(|line| line.contains("cannot "));
    let lines: Vec<&str> = lines.collect();
    assert!((1..=2).contains(&lines.len()), "{log}");
    assert!(
        lines[0].contains("is not empty") || lines[0].contains("not empty"),
        "{log}"
    );
}

#[test]
fn verify_beside_a_mirror_names_no_earlier_run() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    let mirror = Mirror::of(&source, FOLLOWING);
    for name in ["one", "two", "three"] {
        fs::write(source.join(name), b"content").expect("a file");
        mirror.barrier();
    }
    let verify = driftless().arg("verify").args([&source, &mirror.replica]);
    let told = verify.run().expect(0).stderr_text();
    assert!(told.contains("another run works on the replica"), "{told}");
    assert!(!told.contains("earlier run"), "{told}");
}

#[test]
fn mirrors_are_listed_without_a_job() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    let mut mirror = Mirror::of(&source, FOLLOWING);
    mirror.barrier();
    let config = scratch.dir("config");
    let folder = config.join("driftless");
    fs::create_dir(&folder).expect("a folder");
    let job_to = |replica: &Path, name: &str, key: &str| {
        let text = format!("name = {name:?}\nsource = {source:?}\nreplica = {replica:?}\n{key}");
        fs::write(folder.join(name).with_extension("toml"), text).expect("a job");
    };
    let job = |name: &str, key: &str| job_to(Path::new("/no"), name, key);
    job("idle", FOLLOWING);
    job("broken", "no_such_key = 1\n");
    fs::write(folder.join("node.toml"), "trees = [\"/data\"]\n").expect("an agent's file");
    let list = |mirror: &Mirror, words: &[&str]| {
        let run = mirror.without_job(words).env("XDG_CONFIG_HOME", &config);
        let told = run.run().expect(0);
        (told.stdout_text(), told.stderr_text())
    };
    let trees = format!("{} -> {}", source.display(), mirror.replica.display());
    for words in [&["list"] as &[_], &["status"]] {
        let (listed, complaints) = list(&mirror, words);
        assert!(listed.starts_with("test: following changes; "), "{listed}");
        assert!(
            listed.ends_with(&format!("; 0 problems; {trees}\n")),
            "{listed}"
        );
        assert_eq!(listed.lines().count(), 1, "{listed}");
        assert!(
            complaints.contains("idle: its mirror has never run here"),
            "{complaints}"
        );
        assert!(complaints.contains("no_such_key"), "{complaints}");
        assert!(!complaints.contains("node"), "{complaints}");
    }
    let (listed, _) = list(&mirror, &["list", "--json"]);
    assert_eq!(json(&listed)[0]["job"], "test", "{listed}");
    mirror.kill();
    let (listed, complaints) = list(&mirror, &["list"]);
    assert_eq!(listed, "", "its job file is elsewhere");
    assert!(complaints.contains("test: not running"), "{complaints}");
    job("test", FOLLOWING);
    let (listed, complaints) = list(&mirror, &["list"]);
    assert_eq!(listed, "", "its job has another replica");
    assert!(
        complaints.contains("it is the state of a mirror of"),
        "{complaints}"
    );
    job_to(&mirror.replica, "test", FOLLOWING);
    let (listed, _) = list(&mirror, &["list"]);
    assert!(listed.starts_with("test: not running; "), "{listed}");
}

/// Waits until a file has what is looked for.
fn wait_for_text(path: &Path, part: &str) -> String {
    let began = Instant::now();
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        if text.contains(part) {
            return text;
        }
        assert!(began.elapsed() < EVENT_MAX, "{part}: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_command_for_problems_gets_the_facts_and_none_of_our_files() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (source, tools) = (scratch.dir("src"), scratch.dir("tools"));
    let (script, told) = (tools.join("tell me"), tools.join("told"));
    let text = format!(
        "#!/bin/sh\n{{ echo \"job=$DRIFTLESS_JOB what=$DRIFTLESS_WHAT arg=$1\"; cat\n\
         ls -l /proc/self/fd; echo \"umask $(umask)\"; grep SigBlk /proc/self/status\n\
         echo end; }} > {0}.new; mv {0}.new {0}\n",
        told.display()
    );
    write_program(&script, &text);
    let command = format!("'{}' 'one $HOME argument'", script.display());
    let keys = format!("detect = [\"fanotify\"]\non_problem = {command:?}\n");
    let mirror = Mirror::of(&source, &keys);
    mirror.barrier();
    fs::create_dir_all(mirror.replica.join("na\nme/below")).expect("directories");
    fs::write(source.join("na\nme"), b"content").expect("a file");
    let told = wait_for_text(&told, "end");
    for words in [
        "job=test what=problem arg=one $HOME argument",
        "umask 0022",
        "SigBlk:\t0000000000000000",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    // What the mirror has open: its state, sockets, events, trees.
    for open in ["mirror-test", "socket:", "anon_inode:", "/src", "/replica"] {
        let is_open = |line: &str| line.contains(" -> ") && line.contains(open);
        assert!(!told.lines().any(is_open), "{open}: {told}");
    }
    let line = told
        .lines()
        .find(|line| line.starts_with('{'))
        .expect("a line of JSON");
    let fact: Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(
        (&fact["what"], &fact["path"]),
        (&"problem".into(), &"na\\nme".into()),
        "{fact}"
    );
}

#[test]
fn status_names_problems_where_all_was_compared() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    for name in ["equal", "unlike"] {
        fs::write(source.join(name), b"content").expect("a file");
    }
    let mut mirror = Mirror::idle(&source, "detect = [\"fanotify\"]\n");
    fs::create_dir_all(mirror.replica.join("unlike/below")).expect("directories");
    mirror.start();
    mirror.wait_for("problems", |problems| problems > 0);
    let (began, mut told) = (Instant::now(), String::new());
    while !told.contains("1 path failed") {
        assert!(began.elapsed() < LIMIT, "{told}");
        told = mirror.command("status").run().expect(0).stdout_text();
    }
    assert!(!told.contains("not complete yet"), "{told}");
}

/// Sets the number of descriptors that a process may have, which cannot raise it again; false if it
/// cannot be set.
fn limit_descriptors(process: u32, limit: &str) -> bool {
    let process = process.to_string();
    let words = ["--pid", &process, &format!("--nofile={limit}:{limit}")];
    let done = Command::new("prlimit").args(words).status();
    done.expect("prlimit").success()
}

/// Ticks of the processor that the threads at the socket of a mirror have had.
fn ticks_at_socket(process: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("threads");
    let stats = tasks.flatten().filter_map(|task| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let is_meant = name.trim() == "control";
        is_meant.then(|| fs::read_to_string(task.path().join("stat")).ok())?
    });
    let ticks = |stat: String| -> u64 {
        let (_, fields) = stat.rsplit_once(')').expect("a name");
        let fields = fields.split_whitespace().skip(11).take(2);
        fields
            .map(|field| field.parse::<u64>().expect("ticks"))
            .sum()
    };
    stats.map(ticks).sum()
}

#[test]
fn alarm_waits_until_its_command_can_start() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (source, log) = (scratch.dir("src"), scratch.path().join("log"));
    let told = scratch.path().join("told");
    let keys = format!(
        "{FOLLOWING}on_problem = \"cp /dev/stdin {}\"\n",
        told.display()
    );
    let mirror = Mirror::idle(&source, &keys);
    let to_log = [
        "sh",
        "-c",
        "exec \"$@\" 2>\"$0\"",
        log.to_str().expect("text"),
    ];
    let run = mirror
        .command("run")
        .through(to_log)
        .limit(4 * LIMIT)
        .spawn();
    mirror.wait_until_answers();
    mirror.barrier();
    assert!(limit_descriptors(run.pid(), "3"));
    fs::write(source.join("file"), "content").expect("a file");
    wait_for_text(&log, "on_problem: ");
    let before = ticks_at_socket(run.pid());
    let late = mirror.command("barrier").arg("--timeout=2s").run();
    let _nobody_answers = late.expect(6);
    let spent = ticks_at_socket(run.pid()) - before;
    assert!(
        spent < 50,
        "{spent} ticks for a connection that cannot be taken"
    );
    let text = fs::read_to_string(&log).expect("a log");
    assert_eq!(text.matches("on_problem: ").count(), 1, "{text}");
    // To raise it takes CAP_SYS_RESOURCE, which root lacks in some containers.
    if limit_descriptors(run.pid(), "1024") {
        wait_for_text(&told, "\"job\":\"test\"");
        mirror.barrier();
    }
}

#[test]
fn the_service_manager_is_told_that_it_is_ready_goes_on_and_ends() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let name = format!("driftless-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a name");
    let path = scratch.dir("manager").join("socket");
    let source = scratch.dir("src");
    for (socket, typed) in [
        (UnixDatagram::bind_addr(&address), format!("@{name}")),
        (UnixDatagram::bind(&path), path.display().to_string()),
    ] {
        let socket = socket.expect("a socket");
        let patience = Some(EVENT_MAX);
        socket.set_read_timeout(patience).expect("a limit");
        let hear = || {
            let mut bytes = [0; 4096];
            let count = loop {
                match socket.recv(&mut bytes) {
                    // Whoever is stopped and goes on is interrupted (signal(7)).
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    count => break count.expect("a word in time"),
                }
            };
            String::from_utf8_lossy(&bytes[..count]).into_owned()
        };
        let environment = [("NOTIFY_SOCKET", &*typed), ("WATCHDOG_USEC", "4000000")];
        let mirror = Mirror::serving(&source, FOLLOWING, &environment);
        assert_eq!(hear(), "READY=1");
        let mut heard = BTreeSet::new();
        while !heard.contains("WATCHDOG=1") || heard.len() < 2 {
            heard.insert(hear());
        }
        let status = heard.iter().find(|word| word.starts_with("STATUS="));
        assert!(
            status.is_some_and(|word| word.contains("s behind")),
            "{heard:?}"
        );
        mirror.terminate();
        while hear() != "STOPPING=1" {}
    }
}

#[test]
fn the_units_are_what_systemd_takes() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systemd");
    let unit = units.join("driftless-mirror@.service");
    let text = fs::read_to_string(&unit).expect("the unit");
    for line in [
        "Type=notify",
        "WatchdogSec=",
        "CAP_SYS_ADMIN",
        "RestartPreventExitStatus=2 11 12 13",
        // Where the locks of this host and the sockets for posts are.
        "RuntimeDirectory=driftless",
        "RuntimeDirectoryMode=0755",
        "RuntimeDirectoryPreserve=yes",
    ] {
        assert!(text.contains(line), "{line}");
    }
    systemd_takes("driftless-mirror@", &text);
    let unit = units.join("driftless-watch@.service");
    let text = fs::read_to_string(&unit).expect("the unit");
    for line in [
        "Type=notify",
        "WatchdogSec=",
        "CAP_SYS_ADMIN",
        "RestartPreventExitStatus=2 11 12\n",
        "RuntimeDirectory=driftless",
        "RuntimeDirectoryPreserve=yes",
    ] {
        assert!(text.contains(line), "{line}");
    }
    systemd_takes("driftless-watch@", &text);
    let unit = units.join("driftless-node@.service");
    let text = fs::read_to_string(&unit).expect("the unit");
    assert!(text.contains("Type=notify") && text.contains("RestartPreventExitStatus=2 11 13\n"));
    systemd_takes("driftless-node@", &text);
    let unit = units.join("driftless-gateway.service");
    let text = fs::read_to_string(&unit).expect("the unit");
    assert!(text.contains("Type=notify") && text.contains("RestartPreventExitStatus=2 11\n"));
    systemd_takes("driftless-gateway", &text);
    let unit = units.join("driftless-ftps.service");
    let text = fs::read_to_string(&unit).expect("the unit");
    assert!(text.contains("Type=notify") && text.contains("RestartPreventExitStatus=2\n"));
    systemd_takes("driftless-ftps", &text);
}

/// What systemd checks of programs, it finds at their places: here is ours.
fn systemd_takes(name: &str, text: &str) {
    let folder = driftless_testkit::scratch::scratch_folder();
    // Its page of the manual need not be installed.
    let page = format!("Documentation=man:{}(1)\n", name.trim_end_matches('@'));
    assert!(text.contains(&page), "{name}: {page}");
    let named = text
        .replace("/usr/bin/driftless", env!("CARGO_BIN_EXE_driftless"))
        .replace(&page, "");
    let copy = folder.path().join(format!("{name}test.service"));
    fs::write(&copy, named).expect("a copy");
    match Command::new("systemd-analyze")
        .arg("verify")
        .arg(&copy)
        .output()
    {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let ours: Vec<&str> = said
                .lines()
                .filter(|line| line.contains("driftless"))
                .collect();
            assert!(ours.is_empty(), "{said}");
        }
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
    }
}

#[test]
fn the_report_tells_what_a_mirror_did_also_when_it_does_not_run() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    let mut mirror = Mirror::of(&source, "detect = [\"fanotify\"]\n");
    mirror.barrier();
    for number in 0..100 {
        fs::write(source.join(format!("file {number}")), b"content").expect("a file");
    }
    mirror.barrier();
    fs::create_dir_all(mirror.replica.join("<b>name/below")).expect("directories");
    fs::write(source.join("<b>name"), b"content").expect("a file");
    mirror.wait_for("problems", |problems| problems > 0);
    wait_until_kept(&mirror, "problems");
    wait_until_kept(&mirror, "backlog WHERE left_max > 0");
    mirror.kill();
    let told = mirror.report().arg("--json").run().expect(0);
    let facts = json(&told.stdout_text()).swap_remove(0);
    let total = &facts["total"];
    assert!(total["lag_files"].as_u64() >= Some(100), "{facts}");
    assert_eq!(total["bytes_copied"], 700, "{facts}");
    assert!(total["lag_max_seconds"].as_f64() >= total["lag_p50_seconds"].as_f64());
    assert!(total["left_max"].as_u64() >= Some(1), "{facts}");
    assert_eq!(facts["runs"][0]["kind"], "walk");
    assert_eq!(
        (&facts["missed"], &facts["problems"][0]["path"]),
        (&0.into(), &"<b>name".into())
    );
    let text = mirror.report().run().expect(0).stdout_text();
    let share = facts["share_within_rpo"].as_f64();
    assert!(share.is_none_or(|share| share <= 1.0), "{facts}");
    for words in ["p50 ", "walk", "<b>name", "700 B", "RPO "] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let page = scratch.dir("pages").join("page.html");
    let _written = mirror.report().arg("--html").arg(&page).run().expect(0);
    let html = fs::read_to_string(&page).expect("a page");
    assert!(
        html.contains("&lt;b&gt;name") && !html.contains("<b>name"),
        "{html}"
    );
    assert!(html.matches("<svg").count() >= 4, "{html}");
    assert!(
        html.contains("<br/>Filters: none</p>") && html.contains("<p>Command: "),
        "{html}"
    );
    let _again = mirror.report().arg("--html").arg(&page).run().expect(0);
    let long_ago = mirror
        .report()
        .args(["--day", "2001-02-03", "--json"])
        .run()
        .expect(0);
    let facts = json(&long_ago.stdout_text()).swap_remove(0);
    assert_eq!(
        (&facts["total"]["lag_files"], &facts["miss_rate"]),
        (&0.into(), &Value::Null)
    );
    let _wrong = mirror.report().args(["--day", "yesterday"]).run().expect(2);
}

#[test]
fn all_that_is_wrong_with_a_job_is_told_line_by_line() {
    let folder = driftless_testkit::scratch::scratch_folder();
    // Neither the name of the file nor a value may begin a line of its own.
    let job = folder.path().join("a\ndriftless: all is well.toml");
    let text = "soruce = \"/s\"\nreplica = \"/r\"\ndetect = [\"walk\", \"a\\ndriftless: b\"]\n";
    fs::write(&job, text).expect("a job");
    let check = driftless().args(["mirror", "check"]).arg(&job);
    let told = check.run().expect(2).stderr_text();
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines.len() >= 3, "{told}");
    for line in lines {
        assert!(
            line.starts_with("driftless: ") && line.contains("well.toml:"),
            "{told}"
        );
    }
    assert!(
        told.contains("soruce: no such key; did you mean source?\n"),
        "{told}"
    );
}

#[test]
fn what_a_mirror_is_asked_and_cannot_be_written_is_no_success() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mut mirror = Mirror::of(&scratch.dir("src"), "detect = [\"walk\"]\n");
    mirror.barrier();
    mirror.stop();
    let to = |place: &str| ["sh", "-c", &format!("exec \"$0\" \"$@\" {place}")].map(str::to_owned);
    for command in ["status", "check"] {
        let full = mirror.command(command).through(to(">/dev/full")).run();
        let told = full.expect(1).stderr_text();
        assert!(told.contains("cannot write to standard output"), "{told}");
    }
    let report = mirror.report().through(to(">/dev/full"));
    let _told = report.run().expect(1);
    let closed = r#""$0" "$@" | true; exit ${PIPESTATUS[0]}"#;
    let nobody_reads = mirror.command("status").through(["bash", "-c", closed]);
    let _told = nobody_reads.run().expect(0);
}

#[test]
fn a_job_whose_socket_would_have_too_long_a_path_is_refused_with_what_to_do() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    let folder = scratch.path().join("a-folder-for-state".repeat(4));
    let job = scratch.path().join("job.toml");
    let text = format!(
        "name = \"{}\"\nsource = {source:?}\nreplica = {:?}\n",
        "n".repeat(64),
        scratch.path().join("replica")
    );
    fs::write(&job, text).expect("a job");
    for command in ["check", "run"] {
        let run = driftless().args(["mirror", command]).arg(&job);
        let told = run.env("XDG_STATE_HOME", &folder).run().expect(1);
        for words in [
            "a-folder-for-state",
            "107 bytes",
            "shorter",
            "XDG_STATE_HOME",
        ] {
            assert!(told.stderr_text().contains(words), "{}", told.describe());
        }
    }
}

#[test]
fn a_source_that_is_not_there_is_told_of_and_trees_within_each_other_are_refused() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let (folder, job) = (scratch.path(), scratch.path().join("job.toml"));
    fs::write(folder.join("file"), "content").expect("a file");
    let check = |source: &str, replicas: &[&str], code: i32, words: &str| {
        let place = |tree: &str| folder.join(tree);
        let replicas: Vec<_> = replicas.iter().map(|tree| place(tree)).collect();
        let text = format!("source = {:?}\nreplicas = {replicas:?}\n", place(source));
        fs::write(&job, text).expect("a job");
        let told = driftless().args(["mirror", "check"]).arg(&job).run();
        let told = told.expect(code);
        assert!(told.stderr_text().contains(words), "{}", told.describe());
    };
    check("none", &["replica"], 0, "does not exist now");
    check("file", &["replica"], 1, "is not a directory");
    check("none", &["none/replica"], 1, "inside the source");
    check("replica/none", &["replica"], 1, "inside the replica");
    check("none", &["r", "r/x"], 1, "inside the replica");
}

#[test]
fn whoever_waits_is_told_what_is_in_the_way() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    let mirror = Mirror::of(&source, FOLLOWING);
    mirror.barrier();
    let _paused = mirror.command("pause").run().expect(0);
    fs::write(source.join("file"), b"content").expect("a file");
    let late = mirror
        .command("barrier")
        .arg("--timeout=7s")
        .run()
        .expect(6);
    let told = late.stderr_text();
    let advice = "waiting: paused; continue with: driftless mirror resume ";
    assert_eq!(told.matches(advice).count(), 1, "{told}");
    // The job is named as it was typed.
    assert!(told.contains("/job.toml\n"), "{told}");
    let status = mirror.command("status").run().expect(0).stdout_text();
    assert!(status.contains("/job.toml"), "{status}");
}

#[test]
fn a_mirror_that_only_compares_says_that_it_waits_for_the_next_comparison() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let mirror = Mirror::of(&scratch.dir("src"), "detect = [\"walk\"]\ndelete = true\n");
    mirror.barrier();
    let status = mirror.command("status").run().expect(0).stdout_text();
    assert!(
        status.contains("waiting for the next full scan"),
        "{status}"
    );
    assert_eq!(mirror.status()["hears"], false);
    // What has changed since the comparison is not known.
    let equal_after = |earlier: f64| {
        let began = Instant::now();
        loop {
            let status = mirror.status();
            let number = |name: &str| status[name].as_f64();
            if let Some(equal) = number("equal_until").filter(|equal| *equal > earlier) {
                let behind = number("now").expect("a moment") - equal;
                let told = number("behind_seconds").expect("a time");
                assert!(behind > 0.0 && (told - behind).abs() < 0.001, "{status}");
                return equal;
            }
            assert!(began.elapsed() < LIMIT, "{status}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let equal = equal_after(0.0);
    let _compared = mirror.command("sync-now").arg("--wait").run().expect(0);
    equal_after(equal);
}

#[test]
fn deletes_that_the_hour_does_not_allow_are_told_with_those_that_went_before() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    for number in 0..6 {
        fs::write(source.join(format!("{number}")), b"content").expect("a file");
    }
    let mirror = Mirror::of(&source, &format!("{FOLLOWING}max_delete = 3\n"));
    mirror.barrier();
    let remove = |numbers: std::ops::Range<i32>| {
        for number in numbers {
            fs::remove_file(source.join(format!("{number}"))).expect("removed");
        }
    };
    remove(0..2);
    mirror.barrier();
    remove(2..5);
    let late = mirror
        .command("barrier")
        .arg("--timeout=7s")
        .run()
        .expect(6);
    let told = late.stderr_text();
    assert!(told.contains("waiting: some paths differ"), "{told}");
    let problems = mirror.command("problems").run().expect(3);
    let told = problems.stdout_text();
    for words in [
        "(max_delete in the job)",
        "still allowed within this hour: ",
        "the last hour, which count: ",
    ] {
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn changed_job_tries_what_had_failed() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    let file = |number: u32| source.join(format!("{number}"));
    (0..6).for_each(|number| fs::write(file(number), b"content").expect("a file"));
    let mut mirror = Mirror::of(&source, &format!("{FOLLOWING}max_delete = 3\n"));
    mirror.barrier();
    mirror.stop();
    (0..4).for_each(|number| fs::remove_file(file(number)).expect("removed"));
    mirror.start();
    mirror.wait_for("problems", |problems| problems > 0);
    let told = mirror.command("problems").run().expect(3).stdout_text();
    let words =
        "cannot remove what the source does not have from the replica: entries to delete: 4";
    assert!(told.contains(words), "{told}");
    mirror.stop();
    // As it is after an hour in quarantine.
    let quarantined = "attempts = 9, due_ms = due_ms + 3600000 WHERE attempts > 0";
    let changed = mirror.changed_state(&format!("UPDATE dirty SET {quarantined}"));
    assert!(changed.success());
    mirror.change(&format!("{FOLLOWING}max_delete = 5\n"));
    mirror.start();
    mirror.barrier();
    assert!(!mirror.replica.join("0").exists());
}
