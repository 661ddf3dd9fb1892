//! Mirrors one behind the other: each announces what it has changed, and the next one hears it. And
//! rings of mirrors, which are refused.
//!
//! What the last mirror is not told of it does not look at, so each test sees that it was told.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::Far;
use common::mirror::Mirror;
use common::sr3::{Sr3, USER};
use common::wait_until;
use driftless_testkit::rabbit::{alone, calm};
use driftless_testkit::scratch::scratch_folder;
use driftless_testkit::{Options, Rabbit, Relay, assert_equal, attrs};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The mark of a replica of root's.
const MARK: &str = "trusted.driftless.mark";
/// Names in the root of a replica by which a mirror holds it.
const HELD: [&str; 2] = [common::LOCK_FILE, common::SIGN_FILE];

/// Trees of some sites, and what the broker is called by their mirrors.
struct Sites {
    folder: TempDir,
    url: String,
    credentials: PathBuf,
    /// In the names of exchanges and queues of this test.
    name: &'static str,
}

impl Sites {
    fn new(rabbit: &Rabbit, name: &'static str) -> Sites {
        Sites::by(rabbit.url(), name)
    }

    fn by(url: String, name: &'static str) -> Sites {
        let folder = scratch_folder();
        let credentials = folder.path().join("password");
        fs::write(&credentials, Rabbit::PASSWORD).expect("a file");
        fs::set_permissions(&credentials, Permissions::from_mode(0o600)).expect("closed");
        for site in ["1", "2", "3", "4"] {
            fs::create_dir(folder.path().join(site)).expect("a directory");
        }
        Sites {
            folder,
            url,
            credentials,
            name,
        }
    }

    fn tree(&self, site: &str) -> PathBuf {
        self.folder.path().join(site)
    }

    /// Keys of a job that announces what it has changed on this site.
    fn publishes(&self, site: &str) -> String {
        let (url, credentials, name) = (&self.url, &self.credentials, self.name);
        format!(
            "[publish]\nbroker = {url:?}\ncredentials = {credentials:?}\n\
             exchange = \"xs_{name}_{site}\"\n"
        )
    }

    /// Keys of a job that follows what is announced of this site and nothing else.
    fn hears(&self, site: &str) -> String {
        let (url, credentials, name) = (&self.url, &self.credentials, self.name);
        format!(
            "detect = [\"announcements\"]\ndelete = true\n[announcements]\nbroker = {url:?}\n\
             credentials = {credentials:?}\nexchange = \"xs_{name}_{site}\"\n\
             queue = \"q_{name}_{site}\"\n"
        )
    }

    /// The mirror between two sites.
    fn mirror(&self, from: &str, to: &str, keys: &str) -> Mirror {
        Mirror::between(&self.tree(from), &self.tree(to), keys)
    }
}

/// A way to the broker that can be cut, and its URL by that.
fn relayed(rabbit: &Rabbit) -> (Relay, String) {
    let url = rabbit.url();
    let address = url.split(['@', '/']).nth(3).expect("an address");
    let relay = Relay::start(address.parse().expect("an address"));
    let by_relay = url.replace(address, &relay.address().to_string());
    (relay, by_relay)
}

const WATCHES: &str = "detect = [\"fanotify\"]\ndelete = true\n";

fn put(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    fs::write(path, content).expect("a file");
}

fn told(mirror: &Mirror, name: &str) -> Value {
    mirror.status()["told"][name].clone()
}

fn number(mirror: &Mirror, name: &str) -> u64 {
    mirror.status()[name].as_u64().expect("a number")
}

/// All have everything, the one before first.
fn check_all(mirrors: &[&Mirror], context: &str) {
    mirrors
        .iter()
        .for_each(|mirror| mirror.check_equal(context));
}

#[test]
fn what_changes_on_the_first_site_is_followed_to_the_last() {
    let rabbit = calm();
    let sites = Sites::new(&rabbit, "chain");
    let one = sites.tree("1");
    put(&one.join("before/file"), "1");
    let first = sites.mirror("1", "2", &format!("{WATCHES}{}", sites.publishes("2")));
    first.barrier();
    let second = sites.mirror("2", "3", &sites.hears("2"));
    check_all(&[&first, &second], "the first fill");
    let walks = number(&second, "walks");
    for name in [&b"two\nlines"[..], b"\xff\xfe", b"#.*", b"\"'\\ {}"] {
        put(
            &one.join("deep/er").join(OsStr::from_bytes(name)),
            "content",
        );
    }
    symlink("deep", one.join("link")).expect("a link");
    put(&one.join("file"), "one");
    fs::hard_link(one.join("file"), one.join("deep/name")).expect("a link");
    check_all(&[&first, &second], "made");
    fs::rename(one.join("deep"), one.join("moved")).expect("renamed");
    fs::rename(one.join("before/file"), one.join("after")).expect("renamed");
    fs::create_dir(one.join("new")).expect("a directory");
    fs::rename(one.join("moved/er"), one.join("new/er")).expect("renamed");
    fs::set_permissions(one.join("after"), Permissions::from_mode(0o600)).expect("changed");
    put(&one.join("file"), "something else");
    check_all(&[&first, &second], "renamed and changed");
    fs::remove_dir_all(one.join("new")).expect("removed");
    fs::remove_file(one.join("link")).expect("removed");
    fs::remove_dir(one.join("before")).expect("removed");
    put(&one.join("before"), "a file by now");
    check_all(&[&first, &second], "removed");
    let status = second.status();
    assert!(
        status["missed"] == 0 && status["unread"] == 0 && first.status()["told"]["waiting"] == 0,
        "{status}"
    );
    // A further name of a file may have all compared; nothing else has.
    assert!(number(&second, "walks") <= walks + 1, "{status}");
    let text = first.command("status").run().expect(0).stdout_text();
    assert!(text.contains("announced "), "{text}");
}

#[test]
fn whoever_is_stopped_killed_or_cut_off_a_chain_becomes_equal() {
    let rabbit = alone();
    let (relay, url) = relayed(&rabbit);
    let sites = Sites::by(url, "kills");
    let one = sites.tree("1");
    let mut first = sites.mirror("1", "2", &format!("{WATCHES}{}", sites.publishes("2")));
    first.barrier();
    let mut second = sites.mirror("2", "3", &sites.hears("2"));
    put(&one.join("a/file"), "1");
    check_all(&[&first, &second], "begun");

    // All was announced at a clean end: the next life has nothing to tell.
    first.stop();
    let events = number(&second, "events");
    first.start();
    check_all(&[&first, &second], "stopped");
    assert_eq!(number(&second, "events"), events);
    assert_eq!(told(&first, "announced"), 0);

    // What is durable and was not announced before a kill, nobody knows of.
    relay.stall();
    put(&one.join("a/unheard"), "1");
    let arrives = sites.tree("2").join("a/unheard");
    wait_until("it is on the replica", || arrives.exists());
    first.kill();
    relay.resume();
    first.start();
    check_all(&[&first, &second], "killed before it was announced");

    for number in 0..300 {
        put(&one.join(format!("burst/{number}")), "1");
        match number {
            75 => relay.cut(),
            150 => {
                second.kill();
                second.start();
            }
            225 => rabbit.close_connections(),
            _ => {}
        }
    }
    check_all(&[&first, &second], "cut");
    assert_equal(&one, &sites.tree("2"), &Options::default(), "the first");
}

/// A chain of four sites, of which a pool of two fills the third and announces it.
struct Pool {
    sites: Sites,
    first: Mirror,
    lead: Mirror,
    member: Mirror,
    last: Mirror,
    /// Between the member and the broker, for what it announces.
    relay: Relay,
    member_keys: String,
    count: usize,
}

impl Pool {
    fn new(rabbit: &Rabbit, name: &'static str) -> Pool {
        let sites = Sites::new(rabbit, name);
        let (relay, by_relay) = relayed(rabbit);
        put(&sites.tree("1").join("before"), "1");
        let first = sites.mirror("1", "2", &format!("{WATCHES}{}", sites.publishes("2")));
        first.barrier();
        let (hears, publishes) = (sites.hears("2"), sites.publishes("3"));
        let lead = sites.mirror("2", "3", &format!("{hears}{publishes}"));
        let publishes = publishes.replace(&rabbit.url(), &by_relay);
        let member_keys = format!("{hears}{publishes}");
        let member = Mirror::joined(&lead, &member_keys);
        let last = sites.mirror("3", "4", &sites.hears("3"));
        let pool = Pool {
            sites,
            first,
            lead,
            member,
            last,
            relay,
            member_keys,
            count: 0,
        };
        pool.wait_for_member();
        pool
    }

    fn wait_for_member(&self) {
        let own = self.member.process();
        let hears = |one: &Value| one["process"] == own && one["hears"] == true;
        let is_there = || {
            let pool = self.lead.status()["pool"].as_array().cloned();
            pool.is_some_and(|pool| pool.iter().any(hears))
        };
        wait_until("the member hears", is_there);
    }

    /// Another member in the place of one that was killed or has left.
    fn join(&mut self) {
        self.member = Mirror::joined(&self.lead, &self.member_keys);
        self.wait_for_member();
    }

    /// Many files, so that both of the pool have some; returns the names of the first and the last.
    fn write(&mut self) -> (String, String) {
        let name = |number: usize| format!("d{}/{number}", number % 7);
        for number in self.count..self.count + 200 {
            put(
                &self.sites.tree("1").join(name(number)),
                &number.to_string(),
            );
        }
        self.count += 200;
        (name(self.count - 200), name(self.count - 1))
    }

    /// All that was written is on the third site, and the member has made some of it. What it has
    /// acknowledged a moment later does not come again, which would be waited for.
    fn wait_until_made(&mut self) {
        let done = |pool: &Pool| told(&pool.member, "waiting").as_u64() > Some(0);
        while !done(self) {
            self.write();
            self.first.barrier();
            let all = |site: &str| {
                let tree = self.sites.tree(site);
                let is_there = |number: usize| tree.join(format!("d{}/{number}", number % 7));
                (0..self.count).all(|number| is_there(number).exists())
            };
            wait_until("all is there", || all("3"));
        }
        std::thread::sleep(Duration::from_secs(2));
    }

    /// Each site is equal to the one before it, after one barrier after the other, and so is the last
    /// to the first.
    fn check(&self, context: &str) {
        let began = Instant::now();
        for mirror in [&self.first, &self.lead, &self.last] {
            mirror.barrier();
            println!(
                "{context}: a barrier was over after {:.1?}",
                began.elapsed()
            );
        }
        // What a mirror keeps on its replica as long as it works.
        let ignore = HELD.iter().map(|name| name.as_bytes().to_vec()).collect();
        let options = Options {
            ignore,
            ..Options::default()
        };
        let trees = ["1", "2", "3", "4"].map(|site| self.sites.tree(site));
        for pair in trees.windows(2) {
            assert_equal(&pair[0], &pair[1], &options, context);
        }
    }
}

#[test]
fn what_a_pool_changes_is_followed_to_the_last_site_whoever_is_killed() {
    let rabbit = calm();
    let mut pool = Pool::new(&rabbit, "pool");
    pool.check("begun");
    let walks = |pool: &Pool| number(&pool.last, "walks");
    let begun = walks(&pool);
    pool.write();
    pool.check("by both");
    let done = pool.lead.status()["pool"][0]["done"].as_u64();
    assert!(done > Some(0), "the member has made some");
    assert_eq!(told(&pool.member, "waiting"), 0);
    // Who ends in order has announced all that it made.
    pool.write();
    pool.member.stop();
    pool.check("a member has left");
    assert_eq!(walks(&pool), begun, "all was announced by its name");
    pool.join();
    pool.write();
    pool.member.kill();
    pool.write();
    pool.check("a member was killed");
    pool.join();
    pool.write();
    pool.lead.kill();
    pool.write();
    pool.lead.start();
    pool.check("the lead was killed");
}

#[test]
fn what_a_member_could_not_announce_its_lead_does() {
    let rabbit = calm();
    let mut pool = Pool::new(&rabbit, "pool_untold");
    pool.check("begun");
    pool.relay.stall();
    pool.relay.cut();
    pool.wait_until_made();
    let late = pool.lead.command("barrier").arg("--timeout=4s").run();
    assert_eq!(late.code(), 6, "it waits for it: {}", late.describe());
    pool.member.kill();
    pool.check("killed");

    pool.join();
    pool.wait_until_made();
    pool.member.stop();
    pool.check("ended");

    // It has not ended when its lead does.
    pool.join();
    pool.wait_until_made();
    pool.lead.stop();
    pool.member.kill();
    pool.lead.start();
    pool.check("killed without a lead");

    pool.join();
    pool.wait_until_made();
    pool.lead.kill();
    pool.relay.resume();
    pool.lead.start();
    pool.check("the lead was killed");
}

#[test]
fn a_broker_that_is_away_delays_no_replica() {
    let rabbit = alone();
    let (relay, url) = relayed(&rabbit);
    let sites = Sites::by(url, "away");
    let mut mirror = sites.mirror("1", "2", &format!("{WATCHES}{}", sites.publishes("2")));
    mirror.barrier();
    relay.stall();
    for number in 0..100 {
        put(&sites.tree("1").join(number.to_string()), "1");
    }
    let last = sites.tree("2").join("99");
    wait_until("it is on the replica", || last.exists());
    wait_until("it is told", || told(&mirror, "away").is_string());
    assert!(told(&mirror, "waiting").as_u64() > Some(0));
    let text = mirror.command("status").run().expect(0).stdout_text();
    assert!(text.contains("changes are not announced: "), "{text}");
    let late = mirror.command("barrier").arg("--timeout=1s").run();
    assert_eq!(late.code(), 6, "{}", late.describe());
    relay.resume();
    mirror.barrier();
    assert_eq!(told(&mirror, "waiting"), 0);
    assert!(told(&mirror, "away").is_null());
    relay.stall();
    put(&sites.tree("1").join("more"), "1");
    wait_until("it is told", || told(&mirror, "away").is_string());
    mirror.stop();
    let rows = mirror.rows("SELECT has_told_all FROM job");
    assert_eq!(rows, "0\n", "it has not told all");
}

/// What is told of a path while more waits is told once, and has to say all that it was meanwhile.
#[test]
fn what_was_removed_while_the_broker_is_away_goes_on_the_last_site_too() {
    let rabbit = alone();
    let (relay, url) = relayed(&rabbit);
    let mut sites = Sites::by(url, "removed");
    let one = sites.tree("1");
    for number in 0..3 {
        put(&one.join(format!("{number}/d/old")), "1");
        put(&one.join(format!("{number}/d/sub/old")), "1");
    }
    let first = sites.mirror("1", "2", &format!("{WATCHES}{}", sites.publishes("2")));
    sites.url = rabbit.url();
    let second = sites.mirror("2", "3", &sites.hears("2"));
    check_all(&[&first, &second], "the first fill");
    relay.stall();
    let arrived = |path: &str, is: &dyn Fn(&Path) -> bool| {
        let path = sites.tree("2").join(path);
        wait_until("it is on the replica", || is(&path));
    };
    let again = |path: &str| fs::create_dir(one.join(path)).expect("a directory");
    let gone = |path: &str| fs::remove_dir_all(one.join(path)).expect("removed");
    let removed = |path: &str| fs::remove_file(one.join(path)).expect("removed");

    gone("0/d");
    put(&one.join("0/d"), "a file");
    arrived("0/d", &Path::is_file);
    removed("0/d");
    again("0/d");
    arrived("0/d", &Path::is_dir);

    put(&one.join("1/d/more"), "1");
    arrived("1/d/more", &Path::is_file);
    gone("1/d");
    arrived("1/d", &|path| !path.exists());
    again("1/d");
    arrived("1/d", &Path::is_dir);

    gone("2/d/sub");
    symlink("..", one.join("2/d/sub")).expect("a link");
    arrived("2/d/sub", &Path::is_symlink);
    removed("2/d/sub");
    again("2/d/sub");
    arrived("2/d/sub", &|path| path.is_dir() && !path.is_symlink());
    relay.resume();
    check_all(&[&first, &second], "removed and made anew");
}

#[test]
fn what_a_pipe_takes_the_place_of_goes_on_the_last_site_too() {
    let rabbit = calm();
    let sites = Sites::new(&rabbit, "pipes");
    let one = sites.tree("1");
    put(&one.join("directory/file"), "1");
    put(&one.join("file"), "1");
    put(&one.join("renamed"), "1");
    let first = sites.mirror("1", "2", &format!("{WATCHES}{}", sites.publishes("2")));
    let second = sites.mirror("2", "3", &sites.hears("2"));
    check_all(&[&first, &second], "the first fill");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    let pipe = |name: &str| {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            one.join(name),
            rustix::fs::FileType::Fifo,
            mode,
            0,
        )
        .expect("a pipe");
    };
    fs::remove_dir_all(one.join("directory")).expect("removed");
    pipe("directory");
    fs::remove_file(one.join("file")).expect("removed");
    pipe("file");
    pipe("new");
    fs::rename(one.join("new"), one.join("renamed")).expect("renamed");
    check_all(&[&first, &second], "pipes");
}

#[test]
fn too_much_is_told_in_one_word() {
    let rabbit = calm();
    let sites = Sites::new(&rabbit, "many");
    let one = sites.tree("1");
    for directory in 0..101 {
        fs::create_dir(one.join(directory.to_string())).expect("a directory");
        for number in 0..1000 {
            fs::write(one.join(format!("{directory}/{number}")), "").expect("a file");
        }
    }
    let first = sites.mirror("1", "2", &format!("{WATCHES}{}", sites.publishes("2")));
    let second = sites.mirror("2", "3", &sites.hears("2"));
    first.barrier();
    let announced = told(&first, "announced").as_u64().expect("a number");
    assert!((1..=3).contains(&announced), "{announced}");
    second.barrier();
    let count = |site: &str| {
        fs::read_dir(sites.tree(site).join("100"))
            .expect("there")
            .count()
    };
    assert_eq!((count("2"), count("3")), (1000, 1000));
}

#[test]
fn a_replica_on_another_host_is_announced() {
    let rabbit = calm();
    let (sites, far) = (Sites::new(&rabbit, "far"), Far::own());
    let one = sites.tree("1");
    let called = "file:/far/tree";
    let keys = format!("{WATCHES}{}base_url = {called:?}\n", sites.publishes("2"));
    let first = Mirror::far(&one, &far, &keys);
    first.barrier();
    let keys = format!("{}base_url = {called:?}\n", sites.hears("2"));
    let second = Mirror::of(&first.replica, &keys);
    second.barrier();
    put(&one.join("dir/file"), "1");
    symlink("dir", one.join("link")).expect("a link");
    first.barrier();
    second.barrier();
    fs::rename(one.join("dir"), one.join("moved")).expect("renamed");
    first.barrier();
    second.barrier();
    // What it keeps there as long as it works is no part of the tree.
    let _done = first.command("pause").run().expect(0);
    second.check_equal("announced from afar");
    assert!(second.replica.join("moved/file").exists() && second.replica.join("link").is_symlink());
}

#[test]
fn a_mirror_that_hears_itself_is_quiet_again() {
    let rabbit = calm();
    let sites = Sites::new(&rabbit, "echo");
    let one = sites.tree("1");
    let called = format!("base_url = \"file:{}\"\n", one.display());
    let keys = format!("{}{}{called}", sites.hears("1"), sites.publishes("1"));
    let keys = keys.replace("[\"announcements\"]", "[\"fanotify\", \"announcements\"]");
    let mirror = sites.mirror("1", "2", &keys);
    mirror.barrier();
    put(&one.join("dir/file"), "1");
    mirror.barrier();
    fs::rename(one.join("dir"), one.join("moved")).expect("renamed");
    mirror.barrier();
    // What it has announced by now it has heard by the second barrier from now, with all answers.
    mirror.barrier();
    let announced = told(&mirror, "announced");
    for _ in 0..3 {
        mirror.barrier();
    }
    assert_eq!(told(&mirror, "announced"), announced);
    mirror.check_equal("an echo");
}

#[test]
fn a_subscriber_of_sr3_follows_a_mirror() {
    let rabbit = calm();
    let (sites, sr3) = (Sites::new(&rabbit, "sr3"), Sr3::new(&rabbit));
    let (one, two, three) = (sites.tree("1"), sites.tree("2"), sites.tree("3"));
    let mirror = sites.mirror("1", "2", &format!("{WATCHES}{}", sites.publishes("2")));
    mirror.barrier();
    let lines = format!(
        "broker {}\nexchange xs_sr3_2\ntopicPrefix v03\nqueueName q_{USER}.subscribe.own.test\n\
         instances 1\nbatch 100\nmirror True\nbaseDir {}\ndirectory {}\nnodupe_ttl 0\n\
         subtopic #\naccept .*\n",
        sr3.url(),
        two.display(),
        three.display()
    );
    sr3.configure("subscribe", "own", &lines);
    sr3.run("sr3", &["declare", "subscribe/own"]);
    let subscriber = sr3.start("subscribe/own");
    for name in ["a", "dir/b c", "dir/deep/d"] {
        put(&one.join(name), name);
    }
    symlink("a", one.join("link")).expect("a link");
    let has = |name: &str| three.join(name).symlink_metadata().is_ok();
    let wait = |names: &[&str]| {
        let what = format!("{names:?}: {}", subscriber.log());
        wait_until(&what, || names.iter().all(|name| has(name)));
    };
    wait(&["a", "dir/b c", "dir/deep/d", "link"]);
    fs::rename(one.join("dir/deep"), one.join("deep")).expect("renamed");
    fs::remove_file(one.join("link")).expect("removed");
    put(&one.join("a"), "longer than before");
    wait(&["deep/d"]);
    // It removes no directory that has something in it, so it hears of that first.
    fs::remove_file(one.join("dir/b c")).expect("removed");
    mirror.barrier();
    fs::remove_dir(one.join("dir")).expect("removed");
    wait_until("it follows", || {
        !has("link")
            && !has("dir")
            && fs::read(three.join("a")).ok() == fs::read(one.join("a")).ok()
    });
}

/// The mark of a tree.
fn mark(tree: &Path) -> String {
    let bytes = attrs::get_xattr(tree, MARK.as_bytes()).expect("attributes");
    String::from_utf8(bytes.expect("a mark")).expect("text")
}

#[test]
fn a_ring_is_refused_before_anything_is_touched() {
    let sites = Sites::by(String::new(), "ring");
    let (one, three) = (sites.tree("1"), sites.tree("3"));
    put(&one.join("file"), "1");
    let keys = "detect = [\"walk\"]\ndelete = true\n";
    let first = sites.mirror("1", "2", keys);
    first.barrier();
    let second = sites.mirror("2", "3", keys);
    second.barrier();
    drop((first, second));
    put(&one.join("new"), "what people have made meanwhile");
    for (source, replica, mirrors) in [
        (&three, &one, "through 2 other mirrors"),
        (&three, &sites.tree("2"), "through another mirror"),
        (&sites.tree("2"), &one, "through another mirror"),
    ] {
        let mirror = Mirror::idle(source, keys);
        let job = mirror.replica.with_file_name("ring.toml");
        let text = format!("source = {source:?}\nreplica = {replica:?}\n{keys}");
        fs::write(&job, text).expect("a file");
        let refused = mirror.command_of("run", &job).run();
        let why = refused.stderr_text();
        assert_eq!(refused.code(), 13, "{why}");
        assert!(
            why.contains("form a loop") && why.contains(mirrors),
            "{why}"
        );
    }
    assert!(one.join("new").exists() && !one.join(".driftless-mark").exists());
    let marked = attrs::get_xattr(&one, MARK.as_bytes());
    assert_eq!(marked.expect("attributes"), None);
}

#[test]
fn a_ring_that_is_closed_behind_a_mirror_stops_it_until_it_is_open() {
    let sites = Sites::by(String::new(), "closed");
    let (one, two) = (sites.tree("1"), sites.tree("2"));
    let mirror = sites.mirror("1", "2", WATCHES);
    put(&one.join("before"), "1");
    mirror.barrier();
    let text = mark(&two);
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let identity = line("identity ").expect("an identity");
    assert!(line("upstream ").is_some(), "{text}");
    // As the mirror of another host leaves it that fills the first site from the second.
    let closed = format!(
        "driftless mark 1\nidentity {:032x}\nrun {:032x}\nupstream {identity}\n",
        5, 6
    );
    attrs::set_xattr(&one, MARK.as_bytes(), closed.as_bytes()).expect("a mark");
    let is_away = || {
        mirror.status()["away"]
            .as_str()
            .is_some_and(|why| why.contains("form a loop"))
    };
    put(&one.join("first"), "1");
    wait_until("it is noticed", || {
        put(&one.join("changing"), "2");
        is_away()
    });
    put(&one.join("during"), "1");
    std::thread::sleep(Duration::from_millis(300));
    assert!(!two.join("during").exists());
    attrs::remove_xattr(&one, MARK.as_bytes()).expect("removed");
    mirror.check_equal("open again");
    assert!(two.join("during").exists());
}

#[test]
fn a_failover_says_that_its_replica_comes_from_nowhere() {
    let sites = Sites::by(String::new(), "turned");
    let (one, two) = (sites.tree("1"), sites.tree("2"));
    put(&one.join("file"), "1");
    let keys = "detect = [\"walk\"]\ndelete = true\n";
    let mut mirror = sites.mirror("1", "2", keys);
    mirror.barrier();
    mirror.stop();
    let over = mirror
        .command("failover")
        .arg("--to=latest")
        .arg("--yes")
        .run();
    assert_eq!(over.code(), 0, "{}", over.describe());
    put(&two.join("new"), "1");
    let back = Mirror::between(&two, &one, keys);
    back.barrier();
    assert!(one.join("new").exists());
}

#[test]
fn where_changes_are_published_is_checked() {
    let sites = Sites::by("amqp://u@broker/v".into(), "checked");
    let one = sites.tree("1");
    let checked = |keys: &str| {
        let mirror = Mirror::idle(&one, keys);
        let checked = mirror.command("check").run();
        (checked.code(), checked.stderr_text())
    };
    let walk = "detect = [\"walk\"]\n";
    let whole = sites.publishes("2");
    assert_eq!(checked(&format!("{walk}{whole}")).0, 0);
    let (code, why) = checked(&format!("{walk}[publish]\nexchange = \"x\"\n"));
    assert!(
        code == 2 && why.contains("publish.broker: it is missing"),
        "{why}"
    );
    let without = whole.replace(&format!("credentials = {:?}\n", sites.credentials), "");
    let (code, why) = checked(&format!("{walk}{without}"));
    assert!(
        code == 2 && why.contains("publish.credentials: it is missing"),
        "{why}"
    );
    let (code, why) = checked(&format!("{walk}{whole}base_url = \"gopher://h/x\"\n"));
    assert!(
        code == 2 && why.contains("publish.base_url: a URL is expected"),
        "{why}"
    );
    let mirror = Mirror::idle(&one, "");
    for (replicas, keys, expected) in [
        (
            "replica = \"far:/x\"",
            "",
            "publish.base_url: it is missing",
        ),
        (
            "replicas = [\"/x\", \"/y\"]",
            "base_url = \"file:/x\"\n",
            "there are several replicas",
        ),
        (
            "replicas = [\"/tmp/x\", \"far:/y\"]",
            "",
            "one of several cannot have one",
        ),
    ] {
        let job = mirror.replica.with_file_name("other.toml");
        let text = format!("name = \"other\"\nsource = {one:?}\n{replicas}\n{walk}{whole}{keys}");
        fs::write(&job, text).expect("a file");
        let checked = mirror.command_of("check", &job).run();
        let why = checked.stderr_text();
        assert!(
            checked.code() == 2 && why.contains(expected),
            "{expected}: {why}"
        );
    }
}
