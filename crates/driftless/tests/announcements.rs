//! Replicas that follow what is announced through a broker, by us and by a real `sr3`, and a real
//! `sr3` that follows what we announce. What nobody has announced is not looked at, so each test
//! sees that it was the announcement.
#![allow(clippy::disallowed_methods)]

mod common;

use common::driftless;
use common::far::{Far, agent};
use common::mirror::Mirror;
use common::sr3::{Sr3, USER};
use driftless_announce::Publisher;
use driftless_model::{RelPath, Stamp};
use driftless_queue::{Broker, Credentials, Exchange};
use driftless_sarracenia::{About, Announced, BaseUrl, Became, Standing};
use driftless_testkit::scratch::scratch_folder;
use driftless_testkit::{EVENT_MAX, Rabbit, wait_slowly_until};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest that anything may take that is expected to happen.
const LIMIT: Duration = EVENT_MAX;
/// Names that a message or a topic could spoil.
const HOSTILE: [&[u8]; 6] = [
    b"two\nlines",
    b"\xff\xfe",
    b" ",
    b"#.*",
    b"\"'\\ {}",
    b"a.b",
];

/// A broker, what may use it, and a source.
struct Stage {
    rabbit: Rabbit,
    sr3: Sr3,
    folder: TempDir,
    source: PathBuf,
}

impl Stage {
    fn new() -> Stage {
        let rabbit = Rabbit::start();
        let folder = scratch_folder();
        let source = folder.path().join("src");
        fs::create_dir(&source).expect("a directory");
        let sr3 = Sr3::new(&rabbit);
        Stage {
            rabbit,
            sr3,
            folder,
            source,
        }
    }

    /// Who announces changes of the source; the exchange is there.
    fn publisher(&self) -> Publisher {
        let credentials = Credentials::from_file(self.sr3.credentials()).expect("a password");
        let broker = Broker::new(self.sr3.url().parse().expect("a URL"), credentials);
        let exchange = Exchange::new(&format!("xs_{USER}")).expect("a name");
        let broker = broker.expect("a thread").with_patience(LIMIT);
        let publisher = Publisher::new(&broker, &exchange, "v03", self.base());
        publisher.connect(LIMIT).expect("the exchange is made");
        publisher
    }

    fn base(&self) -> BaseUrl {
        let source = self.source.to_str().expect("text");
        BaseUrl::parse(&format!("file:{source}")).expect("a URL")
    }

    /// Keys of a job that follows what is announced and nothing else.
    fn keys(&self) -> String {
        let (url, credentials) = (self.sr3.url(), self.sr3.credentials());
        format!(
            "detect = [\"announcements\"]\ndelete = true\n[announcements]\nbroker = \"{url}\"\n\
             credentials = {credentials:?}\nexchange = \"xs_{USER}\"\n\
             queue = \"q_{USER}.driftless.test\"\n"
        )
    }

    /// How many messages the broker has for the mirror, handed out or not.
    fn unacknowledged(&self) -> u64 {
        let listed =
            self.rabbit
                .control(&["list_queues", "-q", "-p", Rabbit::VHOST, "name", "messages"]);
        let name = format!("q_{USER}.driftless.test\t");
        let line = listed.lines().find_map(|line| line.strip_prefix(&*name));
        line.expect("the queue").trim().parse().expect("a number")
    }
}

/// Tells what stands at a path of the source.
fn announce(publisher: &Publisher, source: &Path, path: &[u8]) {
    let full = source.join(OsStr::from_bytes(path));
    let became = match fs::symlink_metadata(&full) {
        Err(_) => Became::Gone {
            was_directory: false,
        },
        Ok(meta) if meta.is_symlink() => Became::Here(Standing::Symlink {
            target: fs::read_link(&full)
                .expect("a link")
                .into_os_string()
                .into_encoded_bytes(),
        }),
        Ok(meta) if meta.is_dir() => Became::Here(Standing::Directory(about(&meta))),
        Ok(meta) => Became::Here(Standing::File(about(&meta))),
    };
    tell(publisher, path, became);
}

fn tell(publisher: &Publisher, path: &[u8], became: Became) {
    let path = RelPath::parse(path).expect("a path");
    let sent = publisher.announce(&Announced { path, became }, now(), LIMIT);
    sent.expect("accepted");
}

fn now() -> Stamp {
    let since = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
    stamp(
        i64::try_from(since.as_secs()).expect("in range"),
        since.subsec_nanos().into(),
    )
}

fn stamp(sec: i64, nsec: i64) -> Stamp {
    Stamp {
        sec,
        nsec: u32::try_from(nsec).expect("below a second"),
    }
}

fn about(meta: &fs::Metadata) -> About {
    About {
        size: meta.len(),
        mode: meta.mode() & 0o7777,
        mtime: stamp(meta.mtime(), meta.mtime_nsec()),
        atime: stamp(meta.atime(), meta.atime_nsec()),
    }
}

#[test]
fn what_is_announced_is_followed_and_let_go_when_it_is_durable() {
    let stage = Stage::new();
    let (publisher, source) = (stage.publisher(), &stage.source);
    let mirror = Mirror::of(source, &stage.keys());
    mirror.barrier();
    fs::create_dir_all(source.join("deep/er")).expect("a directory");
    announce(&publisher, source, b"deep");
    announce(&publisher, source, b"deep/er");
    for name in HOSTILE {
        let path = [b"deep/er/", name].concat();
        fs::write(source.join(OsStr::from_bytes(&path)), name).expect("a file");
        announce(&publisher, source, &path);
    }
    symlink("deep/er", source.join("link")).expect("a link");
    announce(&publisher, source, b"link");
    fs::write(source.join("not told"), b"1").expect("a file");
    publisher.flush(LIMIT).expect("confirmed");
    mirror.barrier();
    assert!(!mirror.replica.join("not told").exists());
    announce(&publisher, source, b"not told");
    publisher.flush(LIMIT).expect("confirmed");
    mirror.check_equal("announced");
    fs::rename(source.join("deep/er"), source.join("moved")).expect("renamed");
    let meta = fs::metadata(source.join("moved")).expect("it is there");
    let moved = Became::Moved {
        from: RelPath::parse(b"deep/er").expect("a path"),
        now: Standing::Directory(about(&meta)),
    };
    tell(&publisher, b"moved", moved);
    fs::hard_link(source.join("not told"), source.join("further")).expect("a link");
    let meta = fs::metadata(source.join("further")).expect("it is there");
    let linked = Became::Linked {
        of: RelPath::parse(b"not told").expect("a path"),
        file: about(&meta),
    };
    tell(&publisher, b"further", linked);
    fs::remove_file(source.join("link")).expect("removed");
    announce(&publisher, source, b"link");
    publisher.flush(LIMIT).expect("confirmed");
    mirror.check_equal("moved, linked and removed");
    wait_slowly_until("the broker lets go", || stage.unacknowledged() == 0);
    assert_eq!(mirror.status()["unread"], 0);
}

#[test]
fn a_broker_that_goes_away_is_told_and_followed_when_it_is_back() {
    let mut stage = Stage::new();
    let publisher = stage.publisher();
    let mirror = Mirror::of(&stage.source, &stage.keys());
    mirror.barrier();
    stage.rabbit.settle_declarations();
    stage.rabbit.stop();
    wait_slowly_until("it is told", || mirror.status()["deaf"].is_string());
    let why = mirror.status()["deaf"].to_string();
    assert!(why.contains("tried again by itself"), "{why}");
    assert!(
        why.contains("announcements") && !why.contains("hidden"),
        "{why}"
    );
    for number in 0..100 {
        let name = format!("f{number}");
        fs::write(stage.source.join(&name), &name).expect("a file");
        announce(&publisher, &stage.source, name.as_bytes());
    }
    stage.rabbit.restart();
    publisher.flush(LIMIT).expect("confirmed");
    wait_slowly_until("it hears again", || mirror.status()["deaf"].is_null());
    mirror.check_equal("a broker that was away");
}

#[test]
fn how_the_queue_stands_and_who_shares_it_is_told() {
    let stage = Stage::new();
    let _the_exchange_is_there = stage.publisher();
    let mirror = Mirror::of(&stage.source, &stage.keys());
    mirror.barrier();
    let queue = || mirror.status()["queue"].clone();
    assert_eq!(queue(), serde_json::json!({"waiting": 0, "consumers": 1}));
    let told = || mirror.command("status").run().expect(0).stdout_text();
    assert!(told().contains("0 announcements wait\n"), "{}", told());
    let other = Mirror::of(&stage.source, &stage.keys());
    wait_slowly_until("the other is counted", || queue()["consumers"] == 2);
    assert!(told().contains("SHARED with 1 unknown consumer"), "{}", told());
    drop(other);
    wait_slowly_until("it has gone", || queue()["consumers"] == 1);
}

#[test]
fn connections_that_are_cut_in_a_burst_lose_nothing() {
    let stage = Stage::new();
    let publisher = stage.publisher();
    let mirror = Mirror::of(&stage.source, &stage.keys());
    mirror.barrier();
    for number in 0..2000 {
        let name = format!("f{number}");
        fs::write(stage.source.join(&name), &name).expect("a file");
        announce(&publisher, &stage.source, name.as_bytes());
        if number % 700 == 350 {
            stage.rabbit.close_connections();
        }
    }
    publisher.flush(LIMIT).expect("confirmed");
    assert_eq!(publisher.confirmed(), 2000);
    wait_slowly_until("it hears", || mirror.status()["deaf"].is_null());
    // Nothing else is compared: what was announced is all that is looked at.
    let gaps = mirror.status()["gaps"].clone();
    mirror.check_equal("cut");
    assert_eq!(mirror.status()["gaps"], gaps);
    wait_slowly_until("the broker lets go", || stage.unacknowledged() == 0);
}

#[test]
fn a_mirror_begins_without_its_broker_and_follows_programs_of_its_host() {
    let mut stage = Stage::new();
    let publisher = stage.publisher();
    stage.rabbit.settle_declarations();
    stage.rabbit.stop();
    fs::write(stage.source.join("before"), b"1").expect("a file");
    let mirror = Mirror::of(&stage.source, &stage.keys());
    wait_slowly_until("it is told", || mirror.status()["deaf"].is_string());
    fs::write(stage.source.join("posted"), b"1").expect("a file");
    let post = driftless().arg("post").arg(stage.source.join("posted"));
    let post = post.env("DRIFTLESS_RUNTIME_DIR", mirror.runtime_folder());
    let _done = post.run().expect(0);
    wait_slowly_until("what is posted is followed", || {
        mirror.replica.join("posted").exists() && mirror.replica.join("before").exists()
    });
    stage.rabbit.restart();
    wait_slowly_until("it hears", || mirror.status()["deaf"].is_null());
    fs::write(stage.source.join("announced"), b"1").expect("a file");
    announce(&publisher, &stage.source, b"announced");
    publisher.flush(LIMIT).expect("confirmed");
    mirror.check_equal("a broker that came later");
}

#[test]
fn what_was_announced_while_the_mirror_was_killed_is_followed() {
    let stage = Stage::new();
    let publisher = stage.publisher();
    let mut mirror = Mirror::of(&stage.source, &stage.keys());
    mirror.barrier();
    mirror.kill();
    for number in 0..50 {
        let name = format!("f{number}");
        fs::write(stage.source.join(&name), &name).expect("a file");
        announce(&publisher, &stage.source, name.as_bytes());
    }
    publisher.flush(LIMIT).expect("confirmed");
    assert_eq!(stage.unacknowledged(), 50);
    mirror.start();
    mirror.check_equal("killed");
    wait_slowly_until("the broker lets go", || stage.unacknowledged() == 0);
}

#[test]
fn a_broker_with_tls_is_followed_if_its_certificate_is_trusted() {
    let stage = Stage::new();
    let publisher = stage.publisher();
    let url = stage.rabbit.url_encrypted("127.0.0.1");
    let url = url.replace(Rabbit::USER, USER);
    let encrypted = stage.keys().replace(stage.sr3.url(), &url);
    let stranger = Mirror::of(&stage.source, &encrypted);
    wait_slowly_until("it is told", || stranger.status()["deaf"].is_string());
    drop(stranger);
    let authority = stage.folder.path().join("authority.pem");
    fs::write(&authority, stage.rabbit.authority()).expect("a file");
    let mirror = Mirror::of(&stage.source, &format!("{encrypted}ca = {authority:?}\n"));
    mirror.barrier();
    assert!(mirror.status()["deaf"].is_null());
    fs::write(stage.source.join("file"), "1").expect("a file");
    announce(&publisher, &stage.source, b"file");
    publisher.flush(LIMIT).expect("confirmed");
    mirror.check_equal("TLS");
}

#[test]
fn a_source_on_another_host_is_followed_by_its_name_in_messages() {
    let stage = Stage::new();
    let (publisher, far) = (stage.publisher(), Far::own());
    let mut mirror = Mirror::idle(&stage.source, "");
    mirror.source = far.path(&stage.source).into();
    mirror.change(&stage.keys());
    let refused = mirror.command("check").run().expect(2).stderr_text();
    assert!(
        refused.contains("announcements.base_url: it is missing"),
        "{refused}"
    );
    let base = stage.base();
    let reach = format!(
        "[reach]\nssh = {:?}\nagent_path = {:?}\n",
        far.words(),
        agent()
    );
    mirror.change(&format!(
        "{}base_url = \"{}\"\n{reach}",
        stage.keys(),
        base.as_str()
    ));
    mirror.start();
    mirror.source.clone_from(&stage.source);
    mirror.barrier();
    fs::create_dir(stage.source.join("dir")).expect("a directory");
    fs::write(stage.source.join("dir/file"), "1").expect("a file");
    fs::write(stage.source.join("not told"), "1").expect("a file");
    announce(&publisher, &stage.source, b"dir");
    announce(&publisher, &stage.source, b"dir/file");
    publisher.flush(LIMIT).expect("confirmed");
    mirror.barrier();
    assert!(mirror.replica.join("dir/file").exists() && !mirror.replica.join("not told").exists());
    announce(&publisher, &stage.source, b"not told");
    publisher.flush(LIMIT).expect("confirmed");
    mirror.check_equal("a source on another host");
}

#[test]
fn a_job_without_its_password_or_with_a_wrong_name_of_its_tree_is_refused() {
    let stage = Stage::new();
    let keys = stage.keys();
    let credentials = format!("credentials = {:?}\n", stage.sr3.credentials());
    let refused = |keys: &str| {
        let mirror = Mirror::idle(&stage.source, keys);
        let [checked, run] = ["check", "run"].map(|word| mirror.command(word).run());
        assert_eq!(
            (checked.code(), run.code()),
            (2, 2),
            "{}",
            checked.describe()
        );
        checked.stderr_text()
    };
    let why = refused(&keys.replace(&credentials, ""));
    assert!(
        why.contains("announcements.credentials: it is missing"),
        "{why}"
    );
    let why = refused(&format!("{keys}base_url = \"file:/a/../b\"\n"));
    assert!(why.contains("announcements.base_url: "), "{why}");
    let why = refused(&keys.replace(&format!("//{USER}@"), &format!("//{USER}:hidden@")));
    assert!(
        why.contains("announcements.broker: ") && !why.contains("hidden"),
        "{why}"
    );
}

/// What stands in a tree, as far as a real `sr3` keeps it: kinds, contents, modes and times of
/// files, targets.
fn listed(root: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(meta) = fs::symlink_metadata(&path) else {
                continue;
            };
            if name.as_bytes().starts_with(b".driftless-") {
                continue;
            }
            let what = if meta.is_symlink() {
                format!("{:?}", fs::read_link(&path).unwrap_or_default())
            } else if meta.is_dir() {
                folders.push(path.clone());
                format!("{:o}", meta.mode())
            } else {
                let content = fs::read(&path).unwrap_or_default();
                format!("{:o} {} {content:?}", meta.mode(), meta.mtime())
            };
            let below = path.strip_prefix(root).expect("below").to_owned();
            found.push((below, what));
        }
    }
    found.sort();
    found
}

/// The first of what is in one and not in the other.
fn only_in<T: PartialEq + Clone>(one: &[T], other: &[T]) -> Vec<T> {
    let only = one.iter().filter(|one| !other.contains(one));
    only.take(20).cloned().collect()
}

fn wait_until_alike(one: &Path, other: &Path, told: impl Fn() -> String) {
    let began = Instant::now();
    loop {
        let (one, other) = (listed(one), listed(other));
        if one == other {
            return;
        }
        if began.elapsed() >= LIMIT {
            panic!(
                "only here: {:?}\nonly there: {:?}\n{}",
                only_in(&one, &other),
                only_in(&other, &one),
                told()
            );
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A poster of sr3 that announces the source.
fn poster(stage: &Stage, component: &str, more: &str) {
    let lines = format!(
        "post_broker {}\npost_exchange xs_{USER}\npost_baseUrl file:{source}\n\
         post_baseDir {source}\npath {source}\n{more}",
        stage.sr3.url(),
        source = stage.source.display()
    );
    stage.sr3.configure(component, "own", &lines);
}

#[test]
fn what_sr3_post_announces_is_followed() {
    let stage = Stage::new();
    let _the_exchange_is_there = stage.publisher();
    let source = &stage.source;
    let mirror = Mirror::of(source, &stage.keys());
    mirror.barrier();
    fs::create_dir_all(source.join("a/b c")).expect("a directory");
    for number in 0..20 {
        fs::write(source.join(format!("a/b c/f{number}.txt")), "content").expect("a file");
    }
    symlink("f1.txt", source.join("a/b c/link")).expect("a link");
    poster(&stage, "post", "");
    let config = "own";
    let path = source.to_str().expect("text");
    stage.sr3.run("sr3_post", &["-c", config, "-p", path]);
    mirror.check_equal("sr3_post");
}

#[test]
fn what_sr3_watch_announces_is_followed() {
    let stage = Stage::new();
    let _the_exchange_is_there = stage.publisher();
    let source = &stage.source;
    let mirror = Mirror::of(source, &stage.keys());
    mirror.barrier();
    poster(&stage, "watch", "sleep 0.5\n");
    let watch = stage.sr3.start("watch/own");
    // It is at work when it has announced something.
    let began = Instant::now();
    while !mirror.replica.join("probe").exists() {
        assert!(began.elapsed() < LIMIT, "{}", watch.log());
        fs::write(source.join("probe"), "1").expect("a file");
        std::thread::sleep(Duration::from_millis(500));
    }
    let follows = || {
        wait_until_alike(source, &mirror.replica, || {
            format!("{}\n{}", mirror.status(), watch.log())
        });
    };
    fs::create_dir_all(source.join("dir/deep")).expect("a directory");
    for name in ["one", "two", "three", "dir/a file", "dir/deep/x#y"] {
        fs::write(source.join(name), name).expect("a file");
    }
    symlink("one", source.join("link")).expect("a link");
    follows();
    fs::write(source.join("one"), "longer than before").expect("a file");
    fs::rename(source.join("two"), source.join("dir/second")).expect("renamed");
    fs::rename(source.join("dir/deep"), source.join("deeper")).expect("renamed");
    fs::remove_file(source.join("three")).expect("removed");
    fs::remove_file(source.join("link")).expect("removed");
    // It tells no change of a mode or a time alone.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(source.join("dir/a file"), mode).expect("changed");
    fs::write(source.join("dir/a file"), "with another mode").expect("a file");
    let file = fs::File::options().append(true).open(source.join("one"));
    let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.and_then(|file| file.set_modified(long_ago))
        .expect("changed");
    follows();
    for number in 0..1000 {
        fs::write(source.join(format!("dir/burst{number}")), "1").expect("a file");
    }
    follows();
    // It may lose sight of a directory that was renamed. Of this one it tells what is in it.
    let watched = source.join("watched");
    fs::create_dir(&watched).expect("a directory");
    follows();
    // It hears of nothing in a new directory until it watches that.
    let began = Instant::now();
    while !mirror.replica.join("watched/file").exists() {
        assert!(began.elapsed() < LIMIT, "{}", watch.log());
        fs::write(watched.join("file"), "1").expect("a file");
        std::thread::sleep(Duration::from_millis(500));
    }
    follows();
    fs::remove_dir_all(watched).expect("removed");
    follows();
    mirror.check_equal("sr3 watch");
}

#[test]
fn a_subscriber_of_sr3_follows_what_we_announce() {
    let stage = Stage::new();
    let (publisher, source) = (stage.publisher(), &stage.source);
    let replica = stage.folder.path().join("dst");
    fs::create_dir(&replica).expect("a directory");
    let lines = format!(
        "broker {}\nexchange xs_{USER}\ntopicPrefix v03\nqueueName q_{USER}.subscribe.own.test\n\
         instances 1\nbatch 100\nmirror True\nbaseDir {}\ndirectory {}\nnodupe_ttl 0\n\
         subtopic #\naccept .*\n",
        stage.sr3.url(),
        source.display(),
        replica.display()
    );
    stage.sr3.configure("subscribe", "own", &lines);
    stage.sr3.run("sr3", &["declare", "subscribe/own"]);
    let subscriber = stage.sr3.start("subscribe/own");
    fs::create_dir_all(source.join("dir/deep")).expect("a directory");
    announce(&publisher, source, b"dir");
    announce(&publisher, source, b"dir/deep");
    for name in ["one", "two", "dir/a file", "dir/deep/x"] {
        fs::write(source.join(name), name).expect("a file");
        announce(&publisher, source, name.as_bytes());
    }
    symlink("one", source.join("link")).expect("a link");
    announce(&publisher, source, b"link");
    publisher.flush(LIMIT).expect("confirmed");
    wait_until_alike(source, &replica, || subscriber.log());
    fs::rename(source.join("two"), source.join("dir/second")).expect("renamed");
    let meta = fs::metadata(source.join("dir/second")).expect("it is there");
    let moved = Became::Moved {
        from: RelPath::parse(b"two").expect("a path"),
        now: Standing::File(about(&meta)),
    };
    tell(&publisher, b"dir/second", moved);
    fs::remove_file(source.join("link")).expect("removed");
    announce(&publisher, source, b"link");
    for number in 0..1000 {
        let name = format!("dir/burst{number}");
        fs::write(source.join(&name), "1").expect("a file");
        announce(&publisher, source, name.as_bytes());
    }
    publisher.flush(LIMIT).expect("confirmed");
    wait_until_alike(source, &replica, || subscriber.log());
    assert_eq!(publisher.confirmed(), 1000 + 9);
}
