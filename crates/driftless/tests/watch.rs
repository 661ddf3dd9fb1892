//! The agent of a node: what programs announce comes to the replicas, whoever is killed or away
//! meanwhile, and what makes no sense or is too much does nothing. What stands in for a shim says
//! what it says as it is documented.
#![allow(clippy::disallowed_methods)]

mod common;

use common::agent::{Agent, POSTS, Shim, at_work};
use common::driftless;
use common::mirror::Mirror;
use common::mounted::Mounted;
use driftless_testkit::scratch::scratch_folder;
use driftless_testkit::{EVENT_MAX, FsKind, Scratch, wait_slowly_until};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NOBODY: u32 = 65534;

/// A source, in a folder that others may enter.
fn place() -> (TempDir, PathBuf) {
    let folder = scratch_folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("changed");
    let source = folder.path().join("src");
    fs::create_dir(&source).expect("a directory");
    (folder, fs::canonicalize(source).expect("a path"))
}

/// Waits until what was announced is on the replica.
fn settle(mirror: &Mirror, agent: &Agent, messages: u64) {
    agent.wait_for("it hears", |status| {
        status["messages"].as_u64() >= Some(messages)
    });
    agent.wait_until_told();
    mirror.barrier();
}

#[test]
fn what_is_announced_arrives_within_a_moment_and_nothing_else_does() {
    let (_folder, source) = place();
    let (mirror, agent, shim) = at_work(&source);
    let hostile = OsStr::from_bytes(b"two\nlines \xff");
    fs::create_dir(source.join("dir")).expect("a directory");
    fs::write(source.join("dir").join(hostile), b"content").expect("a file");
    fs::write(source.join("not announced"), b"1").expect("a file");
    let began = Instant::now();
    shim.say('c', &[&source.join("dir")]);
    shim.say('w', &[&source.join("dir").join(hostile)]);
    let copy = mirror.replica.join("dir").join(hostile);
    wait_slowly_until("it arrives", || copy.exists());
    assert!(began.elapsed() < EVENT_MAX, "{:?}", began.elapsed());
    settle(&mirror, &agent, 2);
    assert!(!mirror.replica.join("not announced").exists());
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(source.join("dir"), mode).expect("changed");
    fs::remove_file(source.join("not announced")).expect("removed");
    fs::remove_file(source.join("dir").join(hostile)).expect("removed");
    shim.say('d', &[&source.join("dir").join(hostile)]);
    shim.say('m', &[&source.join("dir")]);
    settle(&mirror, &agent, 4);
    assert!(!copy.exists());
    mirror.check_equal("announced");
}

#[test]
fn a_renamed_directory_costs_one_rename() {
    let (_folder, source) = place();
    fs::create_dir_all(source.join("old/deep")).expect("a directory");
    for number in 0..3000 {
        let path = source.join(format!("old/deep/f{number}"));
        fs::write(path, vec![b'x'; 5000]).expect("a file");
    }
    let (mirror, agent, shim) = at_work(&source);
    let before = mirror.status()["bytes_copied"].as_u64().expect("a number");
    assert!(before >= 3000 * 5000, "{before}");
    fs::create_dir(source.join("to")).expect("a directory");
    shim.say('c', &[&source.join("to")]);
    fs::rename(source.join("old"), source.join("to/new")).expect("renamed");
    shim.say('r', &[&source.join("old"), &source.join("to/new")]);
    // An atomic writer.
    fs::write(source.join("tmp"), b"new content").expect("a file");
    shim.say('w', &[&source.join("tmp")]);
    fs::rename(source.join("tmp"), source.join("to/file")).expect("renamed");
    shim.say('r', &[&source.join("tmp"), &source.join("to/file")]);
    settle(&mirror, &agent, 4);
    mirror.check_equal("renamed");
    let copied = mirror.status()["bytes_copied"].as_u64().expect("a number") - before;
    assert!(copied < 5000, "{copied} bytes were copied again");
}

#[test]
fn a_killed_agent_has_lost_nothing_of_what_it_was_told() {
    let (_folder, source) = place();
    let (mut mirror, mut agent, shim) = at_work(&source);
    mirror.stop();
    fs::write(source.join("told"), b"1").expect("a file");
    fs::write(source.join("told by nobody"), b"1").expect("a file");
    shim.say('w', &[&source.join("told")]);
    agent.wait_until_kept(1);
    agent.kill();
    let status = agent.status();
    assert_eq!(
        (&status["is_running"], &status["trees"][0]["waiting"]),
        (&false.into(), &1.into())
    );
    let gaps = agent.gaps();
    // Said to nobody, and written down by the program.
    fs::write(source.join("written down"), b"1").expect("a file");
    assert!(!shim.try_send(&Shim::message('w', &[&source.join("written down")])));
    shim.write('w', &[&source.join("written down")]);
    mirror.start();
    let late = mirror
        .command("barrier")
        .arg("--timeout=8s")
        .run()
        .expect(6);
    let words =
        "waiting: changes are not received, and only full scans find them: watch daemon \"node\"";
    assert!(late.stderr_text().contains(words), "{}", late.describe());
    agent.start();
    // What was in the socket when it was killed is not known.
    agent.wait_for("a gap", |status| {
        status["trees"][0]["gaps"]["count"].as_u64() > Some(gaps)
    });
    agent.wait_until_told();
    mirror.check_equal("after a kill");
}

#[test]
fn what_was_told_while_a_mirror_was_away_comes_when_it_is_back() {
    let (_folder, source) = place();
    let (mut mirror, mut agent, shim) = at_work(&source);
    mirror.kill();
    for number in 0..100 {
        let path = source.join(format!("f{number}"));
        for _ in 0..5 {
            fs::write(&path, b"1").expect("a file");
            shim.say('w', &[&path]);
        }
    }
    agent.wait_for("each stands once", |status| {
        status["messages"] == 500 && status["trees"][0]["waiting"] == 100
    });
    agent.wait_for("it is away", |status| {
        !status["mirrors"][0]["away"].is_null()
    });
    let _its_end = agent.stop();
    fs::write(source.join("late"), b"1").expect("a file");
    shim.write('w', &[&source.join("late")]);
    agent.start();
    assert_eq!(agent.gaps(), 1, "a clean end is no gap");
    mirror.start();
    agent.wait_until_told();
    mirror.check_equal("it is back");
}

#[test]
fn what_programs_have_written_down_is_read() {
    let (_folder, source) = place();
    let (mirror, agent, shim) = at_work(&source);
    fs::write(source.join("a"), b"1").expect("a file");
    shim.write('w', &[&source.join("a")]);
    wait_slowly_until("it arrives", || mirror.replica.join("a").exists());
    // The agent reads nothing for a while, and its queue is full.
    agent.freeze(true);
    let message = Shim::message('m', &[&source]);
    while shim.try_send(&message) {}
    fs::write(source.join("b"), b"1").expect("a file");
    shim.write('w', &[&source.join("b")]);
    agent.freeze(false);
    wait_slowly_until("it arrives", || mirror.replica.join("b").exists());
    agent.wait_until_told();
    mirror.check_equal("written down");
    agent.wait_for("the spool is empty", |status| status["spool_files"] == 0);
}

#[test]
fn a_gap_that_a_program_has_counted_leads_to_a_comparison() {
    let (_folder, source) = place();
    let (mirror, mut agent, shim) = at_work(&source);
    fs::write(source.join("told by nobody"), b"1").expect("a file");
    shim.count_gap(0);
    agent.wait_for("a gap", |status| status["trees"][0]["gaps"]["count"] == 2);
    agent.wait_until_told();
    mirror.check_equal("a gap");
    // One that was counted while no agent ran.
    let _its_end = agent.stop();
    fs::write(source.join("nor this"), b"1").expect("a file");
    shim.count_gap(0);
    agent.start();
    agent.wait_for("a gap", |status| status["trees"][0]["gaps"]["count"] == 3);
    agent.wait_until_told();
    mirror.check_equal("a gap of before");
}

fn text(path: &Path) -> String {
    path.to_str().expect("text").to_owned()
}

/// Runs a script as an ordinary user.
fn as_nobody(script: &str) {
    let done = Command::new("python3")
        .arg("-c")
        .arg(script)
        .uid(NOBODY)
        .gid(NOBODY)
        .output();
    let done = done.expect("python3 runs");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
}

#[test]
fn messages_that_make_no_sense_or_lead_elsewhere_do_nothing() {
    let (folder, source) = place();
    let (mirror, agent, shim) = at_work(&source);
    fs::write(source.join("not announced"), b"1").expect("a file");
    let outside = folder.path().join("outside");
    let messages = [
        Vec::new(),
        b"DS1".to_vec(),
        b"DS9w/x\0".to_vec(),
        vec![b'x'; 60_000],
        Shim::message('?', &[&source.join("not announced")]),
        Shim::message('w', &[&outside]),
        Shim::message('w', &[&source.join("../outside")]),
        Shim::message('w', &[Path::new("/etc/passwd")]),
        Shim::message('r', &[&outside, Path::new("/etc")]),
        Shim::message('w', &[&source.join("x".repeat(5000))]),
    ];
    for message in &messages {
        let began = Instant::now();
        while !shim.try_send(message) && !message.is_empty() {
            assert!(began.elapsed() < EVENT_MAX);
        }
    }
    let socket = text(&agent.map()).replace(".map", ".map.socket");
    as_nobody(&format!(
        "import socket\ns = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
         s.sendto(b'DS1w/etc/shadow\\0', {socket:?})\ns.sendto(b'nonsense', {socket:?})"
    ));
    agent.wait_for("they are heard", |status| {
        status["unread"].as_u64() >= Some(5)
    });
    agent.wait_until_told();
    mirror.barrier();
    assert!(!mirror.replica.join("not announced").exists());
    assert_eq!(mirror.status()["problems"], 0, "{}", mirror.status());
    assert_eq!(agent.gaps(), 1);
}

#[test]
fn what_an_ordinary_user_puts_into_the_spool_takes_nothing_away() {
    let (_folder, source) = place();
    let (mirror, agent, shim) = at_work(&source);
    let spool = text(&agent.spool());
    as_nobody(&format!(
        "import os\nos.symlink('/etc/passwd', {spool:?} + '/12345')\nos.mkdir({spool:?} + '/0x')\n\
         os.mkfifo({spool:?} + '/777')\nopen({spool:?} + '/65534', 'wb').write(b'\\xff\\xff' + b'x' * 999)"
    ));
    fs::write(source.join("a"), b"1").expect("a file");
    shim.write('w', &[&source.join("a")]);
    wait_slowly_until("it arrives", || mirror.replica.join("a").exists());
    agent.wait_for("the spool is empty", |status| status["spool_files"] == 0);
    assert_eq!(fs::read_dir(agent.spool()).expect("a folder").count(), 0);
    agent.wait_until_told();
    mirror.check_equal("beside nonsense");
}

#[test]
fn a_flood_of_one_user_keeps_nobody_from_being_heard() {
    let (_folder, source) = place();
    let (mirror, agent, shim) = at_work(&source);
    let socket = text(&agent.map()).replace(".map", ".map.socket");
    let tree = text(&source);
    let flood = std::thread::spawn(move || {
        as_nobody(&format!(
            "import socket, time\ns = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
             s.setblocking(False)\nend = time.time() + 8\nn = 0\n\
             while time.time() < end:\n  n += 1\n  try: s.sendto(b'DS1w%s/none%d\\0' % ({tree:?}.encode(), n), {socket:?})\n\
             \x20 except BlockingIOError: pass"
        ));
    });
    for number in 0..20 {
        let path = source.join(format!("f{number}"));
        fs::write(&path, b"1").expect("a file");
        shim.say('w', &[&path]);
        std::thread::sleep(Duration::from_millis(200));
    }
    flood.join().expect("it ends");
    agent.wait_until_told();
    mirror.check_equal("beside a flood");
    assert!(agent.status()["messages"].as_u64() > Some(1000));
}

#[test]
fn one_agent_has_a_name_at_a_time() {
    let (_folder, source) = place();
    let (_mirror, agent, _shim) = at_work(&source);
    let told = agent.command().run().expect(11);
    assert!(
        told.stderr_text().contains("a watch daemon runs already"),
        "{}",
        told.describe()
    );
    let told = agent.command().arg("--end").run().expect(11);
    assert!(
        told.stderr_text().contains("a watch daemon runs already"),
        "{}",
        told.describe()
    );
    // One of another name would take the programs away from it.
    let text = fs::read_to_string(agent.config()).expect("a file");
    let text = text.replace("\"node\"", "\"other\"");
    fs::write(agent.config(), text).expect("a file");
    for arguments in [&[][..], &["--end"]] {
        let told = agent.command().args(arguments).run().expect(11);
        assert!(
            told.stderr_text()
                .contains("in use by another watch daemon"),
            "{}",
            told.describe()
        );
    }
}

#[test]
fn the_service_manager_is_told_that_it_is_ready_goes_on_and_ends() {
    let (folder, source) = place();
    let path = folder.path().join("manager");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    let limit = Some(EVENT_MAX);
    manager.set_read_timeout(limit).expect("set");
    let hear = || {
        let mut words = [0; 500];
        let length = manager.recv(&mut words).expect("it says something");
        String::from_utf8_lossy(&words[..length]).into_owned()
    };
    let agent = Agent::not_started(&source, folder.path(), "");
    let run = agent.command().env("NOTIFY_SOCKET", &path);
    let running = run.env("WATCHDOG_USEC", "4000000").spawn();
    assert_eq!(hear(), "READY=1");
    assert!(agent.map().exists(), "it hears");
    let mut told: Vec<String> = (0..2).map(|_| hear()).collect();
    told.sort();
    assert!(told[0].starts_with("STATUS=0 messages, "), "{told:?}");
    assert_eq!(told[1], "WATCHDOG=1");
    running.signal(rustix::process::Signal::TERM);
    while hear() != "STOPPING=1" {}
    let _its_end = running.wait().expect(143);
}

#[test]
fn programs_announce_nothing_any_more_when_that_was_ended() {
    let (_folder, source) = place();
    let (_mirror, mut agent, _shim) = at_work(&source);
    let _its_end = agent.stop();
    let map = fs::File::open(agent.map()).expect("it stays");
    let _done = agent.command().arg("--end").run().expect(0);
    let mut bytes = [0; 4];
    std::os::unix::fs::FileExt::read_exact_at(&map, &mut bytes, 8).expect("read");
    assert_eq!(u32::from_ne_bytes(bytes), 2, "whoever maps it looks anew");
    assert!(!agent.map().exists());
    let _again = agent.command().arg("--end").run().expect(0);
}

#[test]
fn a_configuration_that_cannot_be_meant_is_refused_with_its_place() {
    let (_folder, source) = place();
    let agent = Agent::not_started(&source, &source, "tree = [\"/a\"]\n");
    let told = agent.command().run().expect(2);
    let words = "node.toml:3:1: tree: no such key; did you mean trees?";
    assert!(told.stderr_text().contains(words), "{}", told.describe());
    agent.configure(&source.join("nowhere"), "");
    let told = agent.command().run().expect(1);
    assert!(
        told.stderr_text().contains("no such file"),
        "{}",
        told.describe()
    );
    let told = agent.command().arg("--status").run().expect(1);
    assert!(
        told.stderr_text().contains("it has not run here yet"),
        "{}",
        told.describe()
    );
}

#[test]
fn writers_that_no_shim_covers_are_told_and_the_kernel_hears_them() {
    let (_folder, source) = place();
    let mirror = Mirror::of(&source, POSTS);
    let agent = Agent::beside(&mirror, "detect = [\"shim\", \"fanotify\"]\n");
    agent.wait_until_told();
    mirror.barrier();
    let shim = agent.shim();
    fs::write(source.join("covered"), b"1").expect("a file");
    shim.say('w', &[&source.join("covered")]);
    let done = Command::new("tee")
        .arg(source.join("uncovered"))
        .stdin(std::process::Stdio::null())
        .status();
    assert!(done.expect("tee runs").success());
    wait_slowly_until("the kernel has told", || {
        mirror.replica.join("uncovered").exists()
    });
    agent.wait_for("it was looked at", |status| {
        status["covered"].as_u64() > Some(0)
            && status["uncovered"]
                .as_object()
                .is_some_and(|found| !found.is_empty())
    });
    let status = agent.status();
    let programs: Vec<&String> = status["uncovered"]
        .as_object()
        .expect("programs")
        .keys()
        .collect();
    assert!(
        programs
            .iter()
            .all(|name| *name == "tee" || *name == "(ended)"),
        "{status}"
    );
    let told = agent
        .command()
        .arg("--status")
        .run()
        .expect(0)
        .stdout_text();
    assert!(told.contains("  without "), "{told}");
    mirror.check_equal("by the kernel");
}

#[test]
fn what_only_the_kernel_tells_is_followed_too() {
    let (_folder, source) = place();
    let mirror = Mirror::of(&source, POSTS);
    let agent = Agent::beside(&mirror, "detect = [\"fanotify\"]\n");
    agent.wait_until_told();
    fs::create_dir_all(source.join("a/b")).expect("directories");
    fs::write(source.join("a/b/f"), b"1").expect("a file");
    fs::rename(source.join("a"), source.join("c")).expect("renamed");
    wait_slowly_until("it arrives", || mirror.replica.join("c/b/f").exists());
    agent.wait_until_told();
    mirror.check_equal("by the kernel");
}

#[test]
fn the_lines_for_a_shell_and_its_status_say_what_is_so() {
    let (folder, source) = place();
    let agent = Agent::of(&source, folder.path(), "");
    let library = folder.path().join("libdriftless_shim.so");
    fs::write(&library, b"").expect("a file");
    let shim = |command: &str| driftless().arg("shim").arg(command);
    let lines = shim("env")
        .arg("--library")
        .arg(&library)
        .arg("--map")
        .arg(agent.map());
    let lines = lines.run().expect(0).stdout_text();
    let script = format!("{lines}\nprintf '%s\\n' \"$LD_PRELOAD\" \"$DRIFTLESS_SHIM_MAP\"");
    let said = Command::new("sh")
        .arg("-c")
        .arg(script)
        .env("LD_PRELOAD", "")
        .output();
    let said = String::from_utf8(said.expect("sh runs").stdout).expect("text");
    let library = fs::canonicalize(library).expect("a path");
    assert_eq!(
        said,
        format!("{}\n{}\n", library.display(), agent.map().display())
    );
    let module = shim("env").arg("--module").arg("--library").arg(&library);
    let module = module.run().expect(0).stdout_text();
    assert!(module.starts_with("#%Module") && module.contains("prepend-path LD_PRELOAD"));
    let told = shim("env")
        .arg("--library")
        .arg(source.join("nothing"))
        .run()
        .expect(1);
    assert!(
        told.stderr_text().contains("no such file"),
        "{}",
        told.describe()
    );
    let status = shim("status")
        .arg("--map")
        .arg(agent.map())
        .run()
        .expect(1)
        .stdout_text();
    assert!(
        status.contains("a watch daemon listens: yes") && status.ends_with("not covered\n"),
        "{status}"
    );
}

/// The fields that the page describes.
fn fields_of_the_page() -> std::collections::BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/watch.md");
    let page = fs::read_to_string(page).expect("the page");
    let (_, after) = page.split_once("| field |").expect("a table");
    let table = after.split("\n\n").next().expect("its end");
    let cells = table
        .lines()
        .skip(2)
        .filter_map(|row| row.split('|').nth(1));
    let names = cells.flat_map(|cell| cell.split(','));
    names
        .map(|name| name.trim().trim_matches('`').to_owned())
        .collect()
}

#[test]
fn the_status_has_the_fields_of_its_page_whether_the_agent_runs_or_not() {
    let (folder, source) = place();
    let mut agent = Agent::of(&source, folder.path(), "");
    let fields = |status: serde_json::Value| {
        status
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect()
    };
    let running: std::collections::BTreeSet<String> = fields(agent.status());
    assert_eq!(running, fields_of_the_page());
    let _its_end = agent.stop();
    let stopped: std::collections::BTreeSet<String> = fields(agent.status());
    assert_eq!(stopped, running);
    let told = agent
        .command()
        .arg("--status")
        .run()
        .expect(0)
        .stdout_text();
    assert!(told.starts_with("node: not running\n"), "{told}");
}

#[test]
fn what_users_post_is_kept_for_a_mirror_that_is_away() {
    let (_folder, source) = place();
    let mut mirror = Mirror::of(&source, POSTS);
    let agent = Agent::beside(&mirror, "detect = [\"posts\"]\n");
    agent.wait_until_told();
    mirror.stop();
    fs::write(source.join("posted"), b"1").expect("a file");
    let post = driftless().arg("post").arg(source.join("posted"));
    let post = post.env("DRIFTLESS_RUNTIME_DIR", mirror.runtime_folder());
    let _taken = post.run().expect(0);
    agent.wait_until_kept(1);
    mirror.start();
    agent.wait_until_told();
    let status = agent.status();
    let jobs: Vec<&serde_json::Value> = status["mirrors"]
        .as_array()
        .expect("a list")
        .iter()
        .collect();
    assert_eq!(jobs.len(), 1, "it does not tell itself: {status}");
    assert_eq!(
        (&status["posts"], &jobs[0]["job"]),
        (&1.into(), &"test".into())
    );
    mirror.check_equal("posted");
}

#[test]
fn programs_are_told_the_device_of_a_tree_that_is_on_one_alone() {
    let (folder, source) = place();
    let agent = Agent::of(&source, folder.path(), "");
    agent.wait_for("it begins", |status| {
        status["trees"][0]["gaps"]["count"] == 1
    });
    let device = || {
        let map = fs::read(agent.map()).expect("a map");
        u64::from_ne_bytes(map[1152..1160].try_into().expect("8 bytes"))
    };
    let own = fs::metadata(&source).expect("it is there").dev();
    assert_eq!(device(), own);
    fs::create_dir(source.join("mnt")).expect("a directory");
    let (gaps, mount) = (agent.gaps(), Mounted::tmpfs(&source.join("mnt")));
    wait_slowly_until("it is on several", || device() == 0);
    // What was written there before programs knew, nobody has announced.
    wait_slowly_until("that is a gap", || agent.gaps() > gaps);
    drop(mount);
    wait_slowly_until("it is on one again", || device() == own);
    agent.shim().say('w', &[&source.join("file")]);
    agent.wait_for("it is heard", |status| status["messages"] == 1);
}

#[test]
fn what_an_agent_keeps_in_its_own_tree_is_not_told() {
    // The kernel tells of all of a file system, so nobody else may be at work on it.
    let scratch = Scratch::new(FsKind::Tmpfs, 16);
    let source = scratch.dir("src");
    let mirror = Mirror::of(&source, POSTS);
    let keys = "detect = [\"shim\", \"fanotify\"]\n";
    let mut agent = Agent::not_started(&source, &mirror.runtime_folder(), keys);
    let own = agent.config().parent().expect("a folder").to_owned();
    for name in ["state", "run", "spool"] {
        fs::create_dir(source.join(name)).expect("a directory");
        symlink(source.join(name), own.join(name)).expect("a link");
    }
    agent.start();
    fs::write(source.join("file"), "1").expect("a file");
    let told = source.join("by the spool");
    fs::write(&told, "1").expect("a file");
    agent.shim().write('w', &[&told]);
    wait_slowly_until("both arrive", || {
        ["file", "by the spool"].map(|name| mirror.replica.join(name).exists()) == [true; 2]
    });
    agent.wait_until_told();
    // What it writes now, only the kernel tells it.
    let events = || agent.status()["events"].as_u64();
    let (began, mut before) = (Instant::now(), None);
    while before != events() {
        let is_late = began.elapsed() > EVENT_MAX;
        assert!(!is_late, "it hears itself: {}", agent.status());
        before = events();
        std::thread::sleep(Duration::from_secs(1));
    }
    let _its_end = agent.stop();
    agent.configure(&agent.spool(), "");
    let told = agent.command().run().expect(2);
    let why = told.stderr_text();
    assert!(
        why.contains("keeps its own files there"),
        "{}",
        told.describe()
    );
}

#[test]
fn a_gap_that_is_held_back_is_told_to_whoever_asks() {
    let nobody = scratch_folder();
    let source = scratch_folder();
    let agent = Agent::of(source.path(), nobody.path(), "");
    let shim = agent.shim();
    agent.wait_for("a first gap", |status| {
        status["trees"][0]["gaps"]["count"] == 1
    });
    let is_held = |status: &Value| status["trees"][0]["gaps"]["is_held"] == true;
    assert!(!is_held(&agent.status()));
    for number in 2..=4 {
        shim.count_gap(0);
        agent.wait_for("a gap", |status| {
            status["trees"][0]["gaps"]["count"] == number
        });
    }
    agent.wait_for("the fourth is not told at once", is_held);
    let told = agent.command().arg("--status").run().expect(0);
    let text = told.stdout_text();
    assert!(text.contains(", held back for up to a minute"), "{text}");
}
