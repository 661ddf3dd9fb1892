//! An agent that announces through a broker what it hears, and those who follow: a mirror that
//! hears it from nobody else, and a real `sr3`. Whoever is killed or away, all arrives in the end.
#![allow(clippy::disallowed_methods)]

mod common;

use common::agent::{Agent, Shim};
use common::mirror::Mirror;
use common::published::{Stage, settle};
use common::sr3::{Component, Sr3, USER};
use driftless_announce::Publisher;
use driftless_model::{RelPath, Stamp};
use driftless_queue::{Broker, Credentials, Exchange};
use driftless_sarracenia::{About, Announced, BaseUrl, Became, Standing};
use driftless_testkit::rabbit::{alone, calm};
use driftless_testkit::{EVENT_MAX, Rabbit, wait_slowly_until};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest that anything may take that is expected to happen.
const LIMIT: Duration = EVENT_MAX;

/// Waits until so many messages of programs were heard, and announced.
fn settle_after(agent: &Agent, messages: u64) {
    agent.wait_for("it hears", |status| {
        status["messages"].as_u64() >= Some(messages)
    });
    settle(agent);
}

/// Writes a file as a program with a shim does; returns how long the program was held up.
fn write(shim: &Shim, path: &Path, content: &str) -> Duration {
    let began = Instant::now();
    fs::write(path, content).expect("a file");
    if !shim.try_send(&Shim::message('w', &[path])) {
        shim.write('w', &[path]);
    }
    began.elapsed()
}

#[test]
fn what_an_agent_hears_is_followed_elsewhere() {
    let rabbit = calm();
    let stage = Stage::new(&rabbit, "heard");
    let agent = stage.agent("[\"shim\"]");
    let mirror = stage.mirror();
    let shim = agent.shim();
    let path = |name: &str| stage.path(name);
    let hostile = stage.source.join(OsStr::from_bytes(b"dir/two\nlines \xff"));
    fs::create_dir(path("dir")).expect("a directory");
    fs::write(&hostile, "content").expect("a file");
    fs::write(path("file"), "1").expect("a file");
    symlink("dir/to nowhere", path("link")).expect("a link");
    fs::hard_link(path("file"), path("further")).expect("a link");
    shim.say('c', &[&path("dir")]);
    shim.say('w', &[&hostile]);
    shim.say('w', &[&path("file")]);
    shim.say('c', &[&path("link")]);
    shim.say('c', &[&path("further")]);
    fs::write(path("told by nobody"), "1").expect("a file");
    settle_after(&agent, 5);
    mirror.barrier();
    assert!(mirror.replica.join("dir").is_dir());
    assert!(!mirror.replica.join("told by nobody").exists());
    fs::remove_file(path("told by nobody")).expect("removed");
    fs::rename(path("dir"), path("moved")).expect("renamed");
    shim.say('r', &[&path("dir"), &path("moved")]);
    fs::write(path("tmp"), "atomic").expect("a file");
    shim.say('w', &[&path("tmp")]);
    fs::rename(path("tmp"), path("file")).expect("renamed");
    shim.say('r', &[&path("tmp"), &path("file")]);
    fs::remove_file(path("link")).expect("removed");
    shim.say('d', &[&path("link")]);
    let mode = fs::Permissions::from_mode(0o700);
    fs::set_permissions(path("moved"), mode).expect("changed");
    shim.say('m', &[&path("moved")]);
    settle_after(&agent, 10);
    mirror.check_equal("announced");
    assert_eq!(mirror.status()["unread"], 0);
    let publisher = agent.status()["publisher"].clone();
    // What an agent tells when it begins, there was no queue for.
    assert!(publisher["unheard"].as_u64() <= Some(1), "{publisher}");
    let sent = publisher["sent"].as_u64();
    assert!((10..60).contains(&sent.expect("a number")), "{publisher}");
}

#[test]
fn a_gap_of_an_agent_has_mirrors_elsewhere_compare() {
    let rabbit = calm();
    let stage = Stage::new(&rabbit, "gap");
    let agent = stage.agent("[\"shim\"]");
    let mirror = stage.mirror();
    fs::create_dir_all(stage.path("deep/er")).expect("a directory");
    fs::write(stage.path("deep/er/file"), "told by nobody").expect("a file");
    agent.shim().count_gap(0);
    let copy = mirror.replica.join("deep/er/file");
    wait_slowly_until("it is found", || copy.exists());
    mirror.check_equal("after a gap");
}

#[test]
fn what_only_the_kernel_tells_is_announced_too() {
    let rabbit = calm();
    let stage = Stage::new(&rabbit, "kernel");
    let agent = stage.agent("[\"fanotify\"]");
    let mirror = stage.mirror();
    let script = "mkdir -p a/b && echo 1 >a/b/f && mv a/b/f a/g && ln -s g a/l && cp -a a c && \
                  rm -r c/b && mv c d && echo 2 >>d/g && mkfifo a/pipe && chmod 750 a";
    let mut shell = std::process::Command::new("sh");
    let done = shell
        .args(["-c", script])
        .current_dir(&stage.source)
        .status();
    assert!(done.expect("it runs").success());
    // Nobody announces a pipe.
    fs::remove_file(stage.path("a/pipe")).expect("removed");
    fs::write(stage.path("last"), "1").expect("a file");
    let copy = mirror.replica.join("last");
    wait_slowly_until("the last one arrives", || copy.exists());
    settle(&agent);
    mirror.check_equal("heard of the kernel");
}

/// What is kept in the root of a replica, and an unfinished entry.
const OWN: [&str; 5] = [
    common::MARK_FILE,
    common::LOCK_FILE,
    common::SIGN_FILE,
    ".driftless-trash",
    ".driftless-tmp-0123456789abcdef0123456789abcdef",
];

/// Announces files that nobody has written, and waits until the broker has it.
fn forge(rabbit: &Rabbit, stage: &Stage, names: &[&str]) {
    let credentials = Credentials::from_value(Rabbit::PASSWORD);
    let broker = Broker::new(rabbit.url().parse().expect("a URL"), credentials);
    let broker = broker.expect("a thread").with_patience(LIMIT);
    let exchange = Exchange::new(&stage.exchange()).expect("a name");
    let base = format!("file:{}", stage.source.display());
    let base = BaseUrl::parse(&base).expect("a URL");
    let publisher = Publisher::new(&broker, &exchange, "v03", base);
    for name in names {
        let about = About {
            size: 1,
            mode: 0o644,
            mtime: Stamp::default(),
            atime: Stamp::default(),
        };
        let forged = Announced {
            path: RelPath::parse(name.as_bytes()).expect("a path"),
            became: Became::Here(Standing::File(about)),
        };
        let sent = publisher.announce(&forged, Stamp::default(), LIMIT);
        sent.expect("accepted");
    }
    publisher.flush(LIMIT).expect("confirmed");
}

#[test]
fn what_a_mirror_keeps_in_its_replica_is_no_entry_for_the_next() {
    let rabbit = calm();
    let stage = Stage::new(&rabbit, "own");
    let first = stage.folder.path().join("first");
    fs::create_dir(&first).expect("a directory");
    let agent = stage.agent("[\"shim\", \"fanotify\"]");
    let mirror = stage.mirror();
    let keys = "detect = [\"fanotify\"]\ndelete = true\ntrash = \"1d\"\n";
    let mut filling = Mirror::between(&first, &stage.source, keys);
    filling.barrier();
    // The sign of a replica comes and goes with a mirror.
    filling.stop();
    filling.start();
    fs::create_dir_all(first.join("dir/deep")).expect("a directory");
    fs::write(first.join("dir/deep/file"), "content").expect("a file");
    fs::write(first.join("gone"), "content").expect("a file");
    filling.barrier();
    fs::remove_file(first.join("gone")).expect("removed");
    filling.barrier();
    let copy = mirror.replica.join("dir/deep/file");
    wait_slowly_until("it is announced", || copy.exists());
    settle(&agent);
    mirror.barrier();
    assert!(stage.path(OWN[1]).exists() && stage.path(".driftless-trash").is_dir());
    // Whoever announces it nevertheless, it is left out as in a comparison.
    forge(&rabbit, &stage, &OWN);
    mirror.barrier();
    assert!(mirror.status()["unread"] == 0 && mirror.replica.join("dir/deep/file").exists());
    assert!(!mirror.replica.join(".driftless-trash").exists());
}

#[test]
fn nobody_waits_for_a_broker_that_is_away_and_all_arrives() {
    let mut rabbit = alone();
    let stage = Stage::new(&rabbit, "away");
    let mut agent = stage.agent("[\"shim\"]");
    let mirror = stage.mirror();
    rabbit.stop();
    let mut longest = Duration::ZERO;
    for number in 0..500 {
        let path = stage.path(&format!("f{number}"));
        longest = longest.max(write(&agent.shim(), &path, "1"));
    }
    agent.wait_for("it is told", |status| {
        !status["publisher"]["away"].is_null()
    });
    let status = agent.status();
    assert_eq!(status["publisher"]["waiting"], 500, "{status}");
    // A write that waited for the broker would wait for good.
    assert!(longest < Duration::from_secs(60), "{longest:?}");
    agent.kill();
    agent.start();
    for number in 400..600 {
        write(&agent.shim(), &stage.path(&format!("f{number}")), "22");
    }
    let _its_end = agent.stop();
    fs::remove_file(stage.path("f0")).expect("removed");
    agent.start();
    agent.shim().say('d', &[&stage.path("f0")]);
    agent.wait_for("it is kept", |status| status["messages"] == 1);
    rabbit.restart();
    settle(&agent);
    mirror.check_equal("it is back");
    assert_eq!(agent.status()["publisher"]["unheard"], 0);
}

#[test]
fn a_killed_agent_announces_what_it_was_told() {
    let rabbit = calm();
    let stage = Stage::new(&rabbit, "killed");
    let mut agent = stage.agent("[\"shim\"]");
    let mirror = stage.mirror();
    for round in 0..3 {
        let shim = agent.shim();
        for number in 0..400 {
            let path = stage.path(&format!("f{}", number % 150));
            write(&shim, &path, &format!("{round} {number}"));
        }
        agent.kill();
        write(&shim, &stage.path("late"), &format!("{round}"));
        agent.start();
    }
    settle(&agent);
    agent.wait_for("a gap is told", |status| status["trees"][0]["waiting"] == 0);
    mirror.check_equal("after kills");
}

#[test]
fn a_broker_that_refuses_is_told_and_ends_nothing() {
    let rabbit = calm();
    let stage = Stage::new(&rabbit, "refused");
    fs::write(stage.folder.path().join("password"), "wrong").expect("a file");
    let mut agent = Agent::not_started(
        &stage.source,
        &stage.folder.path().join("nobody"),
        &stage.table("publish"),
    );
    agent.start();
    agent.wait_for("it is told", |status| {
        let away = status["publisher"]["away"].as_str();
        away.is_some_and(|why| why.contains("the broker refuses"))
    });
    write(&agent.shim(), &stage.path("file"), "1");
    agent.wait_for("it goes on", |status| status["messages"] == 1);
    let said = agent
        .command()
        .arg("--status")
        .run()
        .expect(0)
        .stdout_text();
    assert!(said.contains("  publish xs_refused at amqp://"), "{said}");
    let log = agent.stop().stderr_text();
    assert!(log.contains("cannot publish: "), "{log}");
    assert!(
        !log.contains("wrong") && log.matches("cannot publish").count() == 1,
        "{log}"
    );
    let told = |keys: &str| {
        let table = stage.table("publish");
        agent.configure(&stage.source, &format!("{table}{keys}"));
        agent.command().run().expect(2).stderr_text()
    };
    assert!(told("base_url = \"gopher://x\"\n").contains("publish.base_url: a URL is expected"));
    fs::remove_file(stage.folder.path().join("password")).expect("removed");
    let said = told("");
    assert!(said.contains("credentials refused"), "{said}");
}

/// Waits until a subscriber of `sr3` has made both alike, in what it keeps.
fn wait_until_alike(source: &Path, replica: &Path, subscriber: &Component) {
    let began = Instant::now();
    while names(source) != names(replica) {
        assert!(
            began.elapsed() < LIMIT,
            "{:?}\n{:?}\n{}",
            names(source),
            names(replica),
            subscriber.log()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What is in a tree: names, and what they hold or lead to.
fn names(root: &Path) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let content = match entry.file_type() {
                Ok(kind) if kind.is_dir() => {
                    left.push(path.clone());
                    "a directory".to_owned()
                }
                Ok(kind) if kind.is_symlink() => fs::read_link(&path)
                    .map(|target| target.to_string_lossy().into_owned())
                    .unwrap_or_default(),
                _ => fs::read_to_string(&path).unwrap_or_default(),
            };
            all.push((
                path.strip_prefix(root).expect("below it").to_owned(),
                content,
            ));
        }
    }
    all.sort();
    all
}

#[test]
fn a_subscriber_of_sr3_follows_an_agent() {
    let rabbit = calm();
    let stage = Stage::new(&rabbit, USER);
    let sr3 = Sr3::new(&rabbit);
    let agent = stage.agent("[\"shim\"]");
    let replica = stage.folder.path().join("dst");
    fs::create_dir(&replica).expect("a directory");
    let lines = format!(
        "broker {}\nexchange xs_{USER}\ntopicPrefix v03\nqueueName q_{USER}.subscribe.agent.test\n\
         instances 1\nbatch 100\nmirror True\nbaseDir {}\ndirectory {}\nnodupe_ttl 0\n\
         subtopic #\naccept .*\n",
        sr3.url(),
        stage.source.display(),
        replica.display()
    );
    sr3.configure("subscribe", "agent", &lines);
    sr3.run("sr3", &["declare", "subscribe/agent"]);
    let subscriber = sr3.start("subscribe/agent");
    let shim = agent.shim();
    let path = |name: &str| stage.path(name);
    fs::create_dir_all(path("dir/deep")).expect("a directory");
    shim.say('c', &[&path("dir")]);
    shim.say('c', &[&path("dir/deep")]);
    for name in ["one", "two", "dir/a file", "dir/deep/x"] {
        write(&shim, &path(name), name);
    }
    symlink("one", path("link")).expect("a link");
    shim.say('c', &[&path("link")]);
    // All of the tree, which it takes for its root, and the root itself.
    shim.count_gap(0);
    shim.say('m', &[&stage.source]);
    wait_until_alike(&stage.source, &replica, &subscriber);
    fs::rename(path("two"), path("dir/second")).expect("renamed");
    shim.say('r', &[&path("two"), &path("dir/second")]);
    fs::rename(path("dir/deep"), path("deep")).expect("renamed");
    shim.say('r', &[&path("dir/deep"), &path("deep")]);
    write(&shim, &path("tmp"), "atomic, and longer");
    fs::rename(path("tmp"), path("one")).expect("renamed");
    shim.say('r', &[&path("tmp"), &path("one")]);
    fs::remove_file(path("link")).expect("removed");
    shim.say('d', &[&path("link")]);
    for number in 0..300 {
        write(&shim, &path(&format!("dir/burst{number}")), "1");
    }
    wait_until_alike(&stage.source, &replica, &subscriber);
    for (name, _) in names(&path("dir")) {
        let path = path("dir").join(name);
        fs::remove_file(&path).expect("removed");
        shim.say('d', &[&path]);
    }
    fs::remove_dir(path("dir")).expect("removed");
    shim.say('d', &[&path("dir")]);
    wait_until_alike(&stage.source, &replica, &subscriber);
}
