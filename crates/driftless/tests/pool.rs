//! Pools: a mirror that leads and members that share its queue of announcements. They come and go,
//! are killed and cut off while a source changes, and the replica is equal after the barrier.
#![allow(clippy::disallowed_methods)]

mod common;

use common::announcing::{Writer, announce};
use common::driftless;
use common::mirror::Mirror;
use common::mounted::Mounted;
use driftless_announce::Publisher;
use driftless_queue::{Broker, Credentials, Exchange};
use driftless_sarracenia::BaseUrl;
use driftless_testkit::fuse::{Fuse, Mood};
use driftless_testkit::mutate::list_all;
use driftless_testkit::rabbit::calm;
use driftless_testkit::relay::Relay;
use driftless_testkit::scratch::scratch_folder;
use driftless_testkit::{Driftless, EVENT_MAX, Rabbit, Running, attrs};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::RwLockReadGuard;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest that anything may take that is expected to happen.
const LIMIT: Duration = EVENT_MAX;

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

    /// What messages call the source, as a key of a job.
    fn base_url(&self) -> String {
        format!("base_url = \"file:{}\"\n", self.source.display())
    }

    fn put(&self, publisher: &Publisher, name: &str) {
        fs::write(self.source.join(name), name).expect("a file");
        announce(publisher, &self.source, name);
    }

    fn queue(&self) -> String {
        format!("q_{}.driftless.{}", Rabbit::USER, self.name)
    }

    fn lead(&self) -> Mirror {
        Mirror::of(&self.source, &self.keys(&self.rabbit.url()))
    }

    /// How many messages the broker has for the pool, handed out or not.
    fn unacknowledged(&self) -> u64 {
        self.messages().expect("the queue")
    }

    /// How many messages the queue has, if it is there.
    fn messages(&self) -> Option<u64> {
        let columns = ["name", "messages"];
        let listed = ["list_queues", "-q", "-p", Rabbit::VHOST];
        let listed = self.rabbit.control(&[&listed[..], &columns[..]].concat());
        let name = format!("{}\t", self.queue());
        let line = listed.lines().find_map(|line| line.strip_prefix(&*name))?;
        Some(line.trim().parse().expect("a number"))
    }

    fn has_queue(&self) -> bool {
        self.messages().is_some()
    }
}

/// A member, as on a host of its own.
struct Member {
    folder: TempDir,
    running: Option<Running>,
}

impl Member {
    /// One on whose host nothing is mounted at these places.
    fn without(places: [&Path; 2], stage: &Stage, lead: &Mirror) -> Member {
        let unmounts = r#"umount "$0" && umount "$1" && shift && exec "$@""#;
        let words = ["unshare", "--mount", "--propagation", "private", "sh", "-c"].map(Path::new);
        let words = words.into_iter().chain([Path::new(unmounts)]).chain(places);
        let url = stage.rabbit.url();
        let mut member = Member::not_started(&stage.source, lead, &stage.keys(&url));
        let join = member.command("join").through(words);
        member.running = Some(join.limit(Duration::from_secs(600)).spawn());
        member
    }

    /// Joins the mirror of `lead` by the broker at `url`; `keys` are further lines of its job.
    fn of(stage: &Stage, lead: &Mirror, url: &str) -> Member {
        Member::with(stage, lead, &stage.keys(url))
    }

    fn with(stage: &Stage, lead: &Mirror, keys: &str) -> Member {
        Member::reading(&stage.source, lead, keys)
    }

    fn reading(source: &Path, lead: &Mirror, keys: &str) -> Member {
        let mut member = Member::not_started(source, lead, keys);
        let join = member.command("join").limit(Duration::from_secs(600));
        member.running = Some(join.spawn());
        member
    }

    fn not_started(source: &Path, lead: &Mirror, keys: &str) -> Member {
        let folder = scratch_folder();
        let replica = &lead.replica;
        let job = format!("name = \"test\"\nsource = {source:?}\nreplica = {replica:?}\n{keys}");
        fs::write(folder.path().join("job.toml"), job).expect("a file");
        Member {
            folder,
            running: None,
        }
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
    assert!(told.contains("a follower, at work"), "{told}");
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
    let waits = || astray.status().contains("[announcements] base_url");
    wait_until("it hears of another tree", waits, || astray.status());
    drop(astray);
    let named = format!("{}{}", stage.keys(&url), stage.base_url());
    let astray = Member::reading(&elsewhere, &lead, &named);
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
    assert!(why.contains("this is a follower"), "{why}");
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

/// A host may mount the source without ACLs (NFS with `noacl`).
#[test]
fn member_that_sees_no_acls_gets_no_work() {
    let stage = Stage::new("blind");
    let _the_exchange_is_there = stage.publisher();
    for number in 0..40 {
        fs::write(stage.source.join(format!("f{number}")), "content").expect("a file");
    }
    let set = std::process::Command::new("setfacl")
        .args(["-R", "-m", "u:7:r,g::---"])
        .arg(&stage.source)
        .status();
    assert!(set.expect("setfacl").success());
    // What was changed within ten seconds may have been changed again after the lead looked.
    let written = fs::metadata(stage.source.join("f0")).and_then(|meta| meta.modified());
    let written = written.expect("a file");
    let is_old = || written.elapsed().is_ok_and(|age| age.as_secs() > 12);
    wait_until("the files are old", is_old, String::new);
    let lead = stage.lead();
    lead.barrier();
    let bare = Fuse::over(&stage.source, Mood::bare());
    let in_place = r#"mount --bind "$0" "$1" && shift && exec "$@""#;
    let words = ["unshare", "--mount", "--propagation", "private", "sh", "-c"].map(Path::new);
    let words = words
        .into_iter()
        .chain([Path::new(in_place), bare.path(), stage.source.as_path()]);
    let url = stage.rabbit.url();
    let mut blind = Member::not_started(&stage.source, &lead, &stage.keys(&url));
    let join = blind.command("join").through(words);
    blind.running = Some(join.limit(Duration::from_secs(600)).spawn());
    let is_told = || {
        let pool = lead.status()["pool"].as_array().cloned();
        let wrong = |one: &serde_json::Value| one["wrong"].as_str().map(str::to_owned);
        let mut told = pool.iter().flatten().filter_map(wrong);
        told.any(|why| why.contains("is not what the leader sees"))
    };
    let how = || format!("{}\n{}", lead.status(), blind.status());
    wait_until("the lead tells of it", is_told, how);
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
    assert!(took < Duration::from_secs(60), "{took:.1?}");
    writer.steps(50);
    lead.check_equal("the lead goes on alone");
}

/// Waits until the replica has no unfinished entry, which a barrier does not wait for: a member that
/// lost its lease while it made one removes it when the replica is lent to it again.
fn wait_until_finished(lead: &Mirror, member: &Member) {
    let is_unfinished = |path: &PathBuf| path.to_string_lossy().contains("/.driftless-tmp-");
    let is_finished = || {
        // A directory may vanish while it is listed.
        let all = list_all(&lead.replica);
        all.is_ok_and(|all| !all.iter().any(is_unfinished))
    };
    let how = || format!("{}\n{}", lead.status(), member.status());
    wait_until("no entry is unfinished", is_finished, how);
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
        wait_until_finished(&lead, &member);
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
    let put = |name: &str| stage.put(&publisher, name);
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
        away.is_some_and(|why| why.contains("form a loop"))
    };
    wait_until("it is noticed", is_away, || lead.status().to_string());
    assert!(names.iter().all(|name| !lead.replica.join(name).exists()));
    attrs::remove_xattr(&stage.source, MARK.as_bytes()).expect("removed");
    lead.check_equal("open again");
    assert!(names.iter().all(|name| lead.replica.join(name).exists()));
}

/// Whoever makes the queue has to know that something may have been missed, and remember it.
#[test]
fn a_queue_that_is_gone_is_made_by_the_lead_alone() {
    let stage = Stage::new("gone");
    let publisher = stage.publisher();
    let lead = stage.lead();
    let mut member = Member::of(&stage, &lead, &stage.rabbit.url());
    wait_for_members(&lead, &[&member]);
    lead.freeze();
    let deleted =
        stage
            .rabbit
            .control(&["delete_queue", "-q", "-p", Rabbit::VHOST, &stage.queue()]);
    assert!(!stage.has_queue(), "{deleted}");
    for number in 0..40 {
        stage.put(&publisher, &format!("f{number}"));
    }
    std::thread::sleep(Duration::from_secs(4));
    assert!(!stage.has_queue(), "{}", member.status());
    member.end(Signal::KILL);
    lead.thaw();
    lead.check_equal("what was announced to nobody is found");
    let member = Member::of(&stage, &lead, &stage.rabbit.url());
    wait_for_members(&lead, &[&member]);
}

/// A mirror that cannot have the replica hears its part of the queue and keeps it.
#[test]
fn nothing_is_called_equal_while_somebody_else_hears_the_queue() {
    let stage = Stage::new("second");
    let publisher = stage.publisher();
    let lead = stage.lead();
    let second = Member::not_started(&stage.source, &lead, &stage.keys(&stage.rabbit.url()));
    let running = second.command("run").limit(LIMIT * 2).spawn();
    let is_shared = || {
        let queue = lead.status()["queue"].clone();
        queue["consumers"].as_u64() >= Some(2)
    };
    wait_until("both hear", is_shared, || lead.status().to_string());
    (0..40).for_each(|number| stage.put(&publisher, &format!("f{number}")));
    let barrier = lead.command("barrier").args(["--timeout", "15s"]);
    let told = barrier.run().expect(6).stderr_text();
    assert!(told.contains("1 unknown consumer receives"), "{told}");
    running.signal(Signal::KILL);
    let _its_end = running.wait();
    lead.check_equal("what it had has come back");
}

/// What is mounted is seen by the lead alone, which was there before its member, and comes while
/// that is at work.
#[test]
fn what_is_mounted_on_the_host_of_the_lead_is_not_removed_by_a_member_that_lacks_it() {
    const DIRS: [&str; 3] = ["read", "filled", "plain"];
    let stage = Stage::new("mounts");
    let publisher = stage.publisher();
    let lead = stage.lead();
    let write = |dir: &str, text: &str| {
        for number in 0..20 {
            let path = format!("{dir}/f{number}");
            fs::write(stage.source.join(&path), text).expect("a file");
            announce(&publisher, &stage.source, &path);
        }
    };

    for dir in DIRS {
        fs::create_dir(stage.source.join(dir)).expect("a directory");
    }
    let _read = Mounted::tmpfs(&stage.source.join("read"));
    DIRS.iter()
        .for_each(|dir| announce(&publisher, &stage.source, dir));
    lead.barrier();
    let filled = Mounted::tmpfs(&lead.replica.join("filled"));
    DIRS.iter().for_each(|dir| write(dir, "before"));
    lead.barrier();
    let places = [&*stage.source.join("read"), filled.path()];
    let member = Member::without(places, &stage, &lead);
    wait_for_members(&lead, &[&member]);
    DIRS.iter().for_each(|dir| write(dir, "with a member"));
    lead.barrier();
    let is_there = |dir: &str, text: &str| {
        for number in 0..20 {
            let found = fs::read_to_string(lead.replica.join(format!("{dir}/f{number}")));
            assert_eq!(found.expect("it is there"), text, "{dir}/f{number}");
        }
    };
    DIRS.iter().for_each(|dir| is_there(dir, "with a member"));
    // The member sees what is below.
    write("plain", "below");
    lead.barrier();
    let _later = Mounted::tmpfs(&stage.source.join("plain"));
    write("plain", "mounted a moment ago");
    lead.barrier();
    is_there("plain", "mounted a moment ago");
    wait_for_members(&lead, &[&member]);
}
