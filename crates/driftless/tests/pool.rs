//! Pools: a mirror that leads and members that share its queue of announcements. They come and go,
//! are killed and cut off while a source changes, and the replica is equal after the barrier.
#![allow(clippy::disallowed_methods)]

mod common;

use common::driftless;
use common::mirror::Mirror;
use driftless_announce::Publisher;
use driftless_model::{RelPath, Stamp};
use driftless_queue::{Broker, Credentials, Exchange};
use driftless_sarracenia::{About, Announced, BaseUrl, Became, Standing};
use driftless_testkit::rabbit::calm;
use driftless_testkit::relay::Relay;
use driftless_testkit::scratch::scratch_folder;
use driftless_testkit::{Driftless, Rabbit, Running, attrs};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::RwLockReadGuard;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest that anything may take that is expected to happen.
const LIMIT: Duration = Duration::from_secs(120);

/// The mark of a replica of root's.
const MARK: &str = "trusted.driftless.mark";

/// A source, whose changes are announced at a broker under a name of the test's own.
struct Stage {
    rabbit: RwLockReadGuard<'static, Rabbit>,
    folder: TempDir,
    source: PathBuf,
    name: &'static str,
}

impl Stage {
    fn new(name: &'static str) -> Stage {
        let folder = scratch_folder();
        let source = folder.path().join("src");
        fs::create_dir(&source).expect("a directory");
        let password = folder.path().join("password");
        fs::write(&password, Rabbit::PASSWORD).expect("a file");
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).expect("closed");
        Stage {
            rabbit: calm(),
            folder,
            source,
            name,
        }
    }

    fn password(&self) -> PathBuf {
        self.folder.path().join("password")
    }

    fn publisher(&self) -> Publisher {
        let credentials = Credentials::from_file(self.password()).expect("a password");
        let broker = Broker::new(self.rabbit.url().parse().expect("a URL"), credentials);
        let exchange = Exchange::new(&format!("xs_{}_{}", Rabbit::USER, self.name));
        let broker = broker.expect("a thread").with_patience(LIMIT);
        let base = BaseUrl::parse(&format!("file:{}", self.source.display())).expect("a URL");
        let publisher = Publisher::new(&broker, &exchange.expect("a name"), "v03", base);
        publisher.connect(LIMIT).expect("the exchange is made");
        publisher
    }

    /// Keys of a job that hears by the broker at `url`.
    fn keys(&self, url: &str) -> String {
        let (name, user, password) = (self.name, Rabbit::USER, self.password());
        format!(
            "detect = [\"announcements\"]\ndelete = true\n[announcements]\nbroker = \"{url}\"\n\
             credentials = {password:?}\nexchange = \"xs_{user}_{name}\"\n\
             queue = \"q_{user}.driftless.{name}\"\n"
        )
    }

    fn lead(&self) -> Mirror {
        Mirror::of(&self.source, &self.keys(&self.rabbit.url()))
    }

    /// How many messages the broker has for the pool, handed out or not.
    fn unacknowledged(&self) -> u64 {
        let columns = ["name", "messages"];
        let listed = ["list_queues", "-q", "-p", Rabbit::VHOST];
        let listed = self.rabbit.control(&[&listed[..], &columns[..]].concat());
        let name = format!("q_{}.driftless.{}\t", Rabbit::USER, self.name);
        let line = listed.lines().find_map(|line| line.strip_prefix(&*name));
        line.expect("the queue").trim().parse().expect("a number")
    }
}

/// A member, as on a host of its own.
struct Member {
    folder: TempDir,
    running: Option<Running>,
}

impl Member {
    /// Joins the mirror of `lead` by the broker at `url`; `keys` are further lines of its job.
    fn of(stage: &Stage, lead: &Mirror, url: &str) -> Member {
        Member::with(stage, lead, &stage.keys(url))
    }

    fn with(stage: &Stage, lead: &Mirror, keys: &str) -> Member {
        Member::reading(&stage.source, lead, keys)
    }

    fn reading(source: &Path, lead: &Mirror, keys: &str) -> Member {
        let folder = scratch_folder();
        let replica = &lead.replica;
        let job = format!("name = \"test\"\nsource = {source:?}\nreplica = {replica:?}\n{keys}");
        fs::write(folder.path().join("job.toml"), job).expect("a file");
        let mut member = Member {
            folder,
            running: None,
        };
        let join = member.command("join").limit(Duration::from_secs(600));
        member.running = Some(join.spawn());
        member
    }

    fn command(&self, command: &str) -> Driftless {
        driftless()
            .arg("mirror")
            .arg(command)
            .arg(self.folder.path().join("job.toml"))
            .env("XDG_STATE_HOME", self.folder.path().join("state"))
            .env("DRIFTLESS_RUNTIME_DIR", self.folder.path().join("run"))
    }

    fn process(&self) -> u64 {
        self.running.as_ref().expect("it runs").pid().into()
    }

    fn signal(&self, signal: Signal) {
        self.running.as_ref().expect("it runs").signal(signal);
    }

    fn end(&mut self, signal: Signal) -> driftless_testkit::Outcome {
        self.signal(signal);
        self.running.take().expect("it runs").wait()
    }

    fn status(&self) -> String {
        self.command("status").run().stdout_text()
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool, how: impl Fn() -> String) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "{what}: {}", how());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until these members, and no others, hear the queue.
fn wait_for_members(lead: &Mirror, members: &[&Member]) {
    let hearing = || {
        let status = lead.status();
        let pool = status["pool"].as_array().cloned().unwrap_or_default();
        let hearing = pool.iter().filter(|one| one["hears"] == true);
        let mut processes: Vec<u64> = hearing.filter_map(|one| one["process"].as_u64()).collect();
        processes.sort_unstable();
        processes
    };
    let mut wanted: Vec<u64> = members.iter().map(|one| one.process()).collect();
    wanted.sort_unstable();
    let how = || {
        let members: Vec<String> = members.iter().map(|one| one.status()).collect();
        format!("{}\n{}", lead.status(), members.join("\n"))
    };
    wait_until("the members hear", || hearing() == wanted, how);
}

/// Announces what stands at a path of the source.
fn announce(publisher: &Publisher, source: &Path, path: &str) {
    let full = source.join(path);
    let became = match fs::symlink_metadata(&full) {
        Err(_) => Became::Gone {
            was_directory: false,
        },
        Ok(meta) if meta.is_symlink() => Became::Here(Standing::Symlink {
            target: b"target".to_vec(),
        }),
        Ok(meta) if meta.is_dir() => Became::Here(Standing::Directory(about(&meta))),
        Ok(meta) => Became::Here(Standing::File(about(&meta))),
    };
    tell(publisher, path, became);
}

fn tell(publisher: &Publisher, path: &str, became: Became) {
    let path = RelPath::parse(path.as_bytes()).expect("a path");
    let sent = publisher.announce(&Announced { path, became }, stamp_now(), LIMIT);
    sent.expect("accepted");
}

fn stamp_now() -> Stamp {
    let since = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
    Stamp {
        sec: since.as_secs().cast_signed(),
        nsec: since.subsec_nanos(),
    }
}

fn about(meta: &fs::Metadata) -> About {
    let stamp = |sec, nsec: i64| Stamp {
        sec,
        nsec: u32::try_from(nsec).expect("below a second"),
    };
    About {
        size: meta.len(),
        mode: meta.mode() & 0o7777,
        mtime: stamp(meta.mtime(), meta.mtime_nsec()),
        atime: stamp(meta.atime(), meta.atime_nsec()),
    }
}

/// Changes a source at random and announces each change.
struct Writer<'a> {
    publisher: &'a Publisher,
    source: &'a Path,
    random: fastrand::Rng,
}

impl<'a> Writer<'a> {
    fn new(publisher: &'a Publisher, source: &'a Path, seed: u64) -> Writer<'a> {
        for dir in 0..4 {
            fs::create_dir_all(source.join(format!("d{dir}"))).expect("a directory");
            announce(publisher, source, &format!("d{dir}"));
        }
        let random = fastrand::Rng::with_seed(seed);
        Writer {
            publisher,
            source,
            random,
        }
    }

    /// One of few names, so that the same are changed again and again.
    fn name(&mut self) -> String {
        format!("d{}/f{}", self.random.u8(..4), self.random.u8(..12))
    }

    fn announce(&self, path: &str) {
        announce(self.publisher, self.source, path);
    }

    /// Many, at a pace at which all of a pool are at work meanwhile.
    fn steps(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn step(&mut self) {
        let path = self.name();
        let full = self.source.join(&path);
        match self.random.u8(..20) {
            0..=9 => {
                let is_file = fs::symlink_metadata(&full).is_ok_and(|meta| meta.is_file());
                // In place, under all its names, or anew.
                if !is_file || self.random.bool() {
                    clear(&full);
                }
                let text = vec![self.random.u8(..); self.random.usize(..3000)];
                fs::write(&full, text).expect("a file");
                self.announce(&path);
            }
            10..=12 => {
                clear(&full);
                self.announce(&path);
            }
            13 => {
                clear(&full);
                symlink("target", &full).expect("a link");
                self.announce(&path);
            }
            14..=15 => {
                clear(&full);
                fs::create_dir(&full).expect("a directory");
                fs::write(full.join("below"), &path).expect("a file");
                self.announce(&path);
                self.announce(&format!("{path}/below"));
            }
            16..=18 => self.rename(&path),
            _ => self.link(&path),
        }
    }

    fn rename(&mut self, path: &str) {
        let to = self.name();
        let (full, new) = (self.source.join(path), self.source.join(&to));
        let Ok(meta) = fs::symlink_metadata(&full) else {
            return;
        };
        if path == to {
            return;
        }
        clear(&new);
        fs::rename(&full, &new).expect("renamed");
        let now = match () {
            () if meta.is_dir() => Standing::Directory(about(&meta)),
            () if meta.is_symlink() => Standing::Symlink {
                target: b"target".to_vec(),
            },
            () => Standing::File(about(&meta)),
        };
        let from = RelPath::parse(path.as_bytes()).expect("a path");
        tell(self.publisher, &to, Became::Moved { from, now });
    }

    fn link(&mut self, path: &str) {
        let to = self.name();
        let (full, new) = (self.source.join(path), self.source.join(&to));
        let is_file = fs::symlink_metadata(&full).is_ok_and(|meta| meta.is_file());
        if !is_file || path == to {
            return;
        }
        clear(&new);
        fs::hard_link(&full, &new).expect("a link");
        let about = about(&fs::metadata(&new).expect("a file"));
        let first = RelPath::parse(path.as_bytes()).expect("a path");
        tell(
            self.publisher,
            &to,
            Became::Linked {
                of: first,
                file: about,
            },
        );
    }
}

fn clear(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
        fs::remove_dir_all(path).expect("removed");
    } else {
        let _it_may_not_be_there = fs::remove_file(path);
    }
}

#[test]
fn members_come_and_go_and_the_last_state_of_each_entry_wins() {
    let stage = Stage::new("comings");
    let publisher = stage.publisher();
    let mut lead = stage.lead();
    let mut writer = Writer::new(&publisher, &stage.source, 7);
    let url = stage.rabbit.url();
    let mut first = Member::of(&stage, &lead, &url);
    let relay = Relay::start(address_of(&url));
    let by_relay = relayed(&url, &relay);
    let second = Member::of(&stage, &lead, &by_relay);
    wait_for_members(&lead, &[&first, &second]);
    writer.steps(400);
    // One leaves in order, and all that it did is done.
    assert_eq!(first.end(Signal::TERM).code(), 143);
    writer.steps(200);
    wait_for_members(&lead, &[&second]);
    let mut third = Member::of(&stage, &lead, &url);
    wait_for_members(&lead, &[&second, &third]);
    writer.steps(300);
    third.end(Signal::KILL);
    writer.steps(100);
    relay.cut();
    writer.steps(300);
    lead.kill();
    writer.steps(100);
    lead.start();
    wait_for_members(&lead, &[&second]);
    writer.steps(200);
    lead.check_equal("one was killed, one was cut off, the lead was killed");
    wait_until(
        "it let go",
        || stage.unacknowledged() == 0,
        || lead.status().to_string(),
    );
    wait_for_members(&lead, &[&second]);
    let told = second.status();
    assert!(told.contains("a member of a pool, at work"), "{told}");
}

/// Where the broker of a URL is.
fn address_of(url: &str) -> std::net::SocketAddr {
    let place = url
        .split_once('@')
        .and_then(|(_, rest)| rest.split_once('/'));
    place.expect("host and port").0.parse().expect("an address")
}

/// The URL by which a broker is reached through a relay.
fn relayed(url: &str, relay: &Relay) -> String {
    url.replace(&address_of(url).to_string(), &relay.address().to_string())
}

#[test]
fn who_may_not_be_a_member_is_told_why() {
    let stage = Stage::new("strangers");
    let _the_exchange_is_there = stage.publisher();
    let lead = stage.lead();
    let url = stage.rabbit.url();
    let others = Member::with(
        &stage,
        &lead,
        &format!("filters = [\"- x\"]\n{}", stage.keys(&url)),
    );
    let waits = || others.status().contains("a job with other rules");
    wait_until("it is refused", waits, || others.status());
    let pool = || lead.status()["pool"][0].clone();
    let is_told = || {
        pool()["wrong"]
            .as_str()
            .is_some_and(|why| why.contains("other rules"))
    };
    wait_until("the lead tells", is_told, || lead.status().to_string());
    assert_eq!(pool()["hears"], false);
    lead.barrier();
    // A name is shown as it is in all that is told of it.
    let elsewhere = stage.folder.path().join("other \"src");
    fs::create_dir(&elsewhere).expect("a directory");
    let astray = Member::reading(&elsewhere, &lead, &stage.keys(&url));
    let is_told = || {
        let pool = lead.status()["pool"].as_array().cloned();
        let wrong = |one: &serde_json::Value| one["wrong"].as_str().map(str::to_owned);
        let told: Vec<String> = pool.iter().flatten().filter_map(wrong).collect();
        let once = "other \\\"src\": this is not the directory";
        told.iter()
            .any(|why| why.starts_with('"') && why.contains(once))
    };
    let how = || format!("{}\n{}", lead.status(), astray.status());
    wait_until("the lead tells of the other source", is_told, how);
    drop(astray);
    let publishes = stage.keys(&url).replace("[announcements]", "[publish]");
    let publishes: Vec<&str> = publishes.lines().skip(2).collect();
    let publishes = publishes
        .join("\n")
        .replace("queue = \"", "base_url = \"file:/");
    let telling = Member::with(&stage, &lead, &format!("{}{publishes}\n", stage.keys(&url)));
    let waits = || telling.status().contains("announces its replica elsewhere");
    wait_until("it would announce", waits, || telling.status());
    drop(telling);
    let barrier = others.command("barrier").run().expect(1);
    let why = barrier.stderr_text();
    assert!(why.contains("this is a member of a pool"), "{why}");
    for (keys, why) in [
        (
            format!("max_delete = 5\n{}", stage.keys(&url)),
            "max_delete counts",
        ),
        (
            "detect = [\"walk\"]\n".to_owned(),
            "only a mirror with one replica",
        ),
    ] {
        let mut refused = Member::with(&stage, &lead, &keys);
        let said = refused.running.take().expect("it was started").wait();
        assert!(said.stderr_text().contains(why), "{}", said.describe());
    }
}

/// Nothing but the round waits for it: it has nothing that it has heard of.
#[test]
fn a_member_that_dies_in_a_round_is_waited_for_no_longer_than_it_may_be_silent() {
    let stage = Stage::new("silence");
    let publisher = stage.publisher();
    let lead = stage.lead();
    let mut writer = Writer::new(&publisher, &stage.source, 3);
    let url = stage.rabbit.url();
    let mut member = Member::of(&stage, &lead, &url);
    wait_for_members(&lead, &[&member]);
    writer.steps(100);
    lead.barrier();
    // Its answer is waited for until it is known that none will come.
    member.signal(Signal::STOP);
    let began = Instant::now();
    let took = std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            lead.barrier();
            began.elapsed()
        });
        std::thread::sleep(Duration::from_secs(1));
        member.end(Signal::KILL);
        waits.join().expect("it is over")
    });
    println!("a barrier took {took:.1?} after a member was killed in its round");
    assert!(took < Duration::from_secs(20), "{took:.1?}");
    writer.steps(50);
    lead.check_equal("the lead goes on alone");
}

/// What it had comes to others meanwhile, or does not, and it goes on with it either way.
#[test]
fn a_member_that_stands_still_for_a_while_leaves_no_old_state() {
    let stage = Stage::new("frozen");
    let publisher = stage.publisher();
    let lead = stage.lead();
    let mut writer = Writer::new(&publisher, &stage.source, 11);
    let url = stage.rabbit.url();
    let member = Member::of(&stage, &lead, &url);
    wait_for_members(&lead, &[&member]);
    // Shorter than its broker takes to notice, and longer.
    for seconds in [5, 12] {
        writer.steps(200);
        member.signal(Signal::STOP);
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| lead.barrier());
            writer.steps(100);
            std::thread::sleep(Duration::from_secs(seconds).saturating_sub(began.elapsed()));
            member.signal(Signal::CONT);
            writer.steps(100);
        });
        println!(
            "{seconds} s: the barrier was over after {:.1?}",
            began.elapsed()
        );
        lead.check_equal("it stood still and went on");
    }
    wait_for_members(&lead, &[&member]);
}

#[test]
fn a_ring_that_is_closed_behind_a_pool_stops_all_of_it() {
    let stage = Stage::new("rings");
    let publisher = stage.publisher();
    let lead = stage.lead();
    let member = Member::of(&stage, &lead, &stage.rabbit.url());
    wait_for_members(&lead, &[&member]);
    let put = |name: &str| {
        fs::write(stage.source.join(name), name).expect("a file");
        announce(&publisher, &stage.source, name);
    };
    put("before");
    lead.barrier();
    let mark = |tree: &Path| attrs::get_xattr(tree, MARK.as_bytes()).expect("attributes");
    let text = String::from_utf8(mark(&lead.replica).expect("a mark")).expect("text");
    let identity = text.lines().find_map(|line| line.strip_prefix("identity "));
    let identity = identity.expect("an identity");
    // As the mirror of another host leaves it that fills the source from the replica.
    let closed = format!(
        "driftless mark 1\nidentity {:032x}\nrun {:032x}\nupstream {identity}\n",
        5, 6
    );
    attrs::set_xattr(&stage.source, MARK.as_bytes(), closed.as_bytes()).expect("a mark");
    // The paths of both trees are looked at again after this at the latest.
    std::thread::sleep(Duration::from_secs(2));
    let names: Vec<String> = (0..40).map(|number| format!("during{number}")).collect();
    names.iter().for_each(|name| put(name));
    let is_away = || {
        let away = lead.status()["away"].as_str().map(str::to_owned);
        away.is_some_and(|why| why.contains("in a ring"))
    };
    wait_until("it is noticed", is_away, || lead.status().to_string());
    assert!(names.iter().all(|name| !lead.replica.join(name).exists()));
    attrs::remove_xattr(&stage.source, MARK.as_bytes()).expect("removed");
    lead.check_equal("open again");
    assert!(names.iter().all(|name| lead.replica.join(name).exists()));
}
