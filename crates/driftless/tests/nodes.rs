//! Four nodes of one file system: programs with the library write on all of them at the same time,
//! each node's agent announces at one broker, and a pool of two mirrors on two further hosts follows.
//! Agents and members are killed, lines to the broker are cut, and the replica is equal after the
//! barrier.
//!
//! A node is a network of its own; all see the same source, as on a cluster file system.
//! `DRIFTLESS_SEED` sets the first seed, `DRIFTLESS_SEEDS` how many rounds there are.
#![allow(clippy::disallowed_methods)]

mod common;

use common::agent::Agent;
use common::campaign::count_of;
use common::mirror::Mirror;
use common::published::settle;
use common::writer::{Writer, covered};
use driftless_testkit::{EVENT_MAX, FsKind, Host, Lab, Rabbit, Relay, Scratch};
use fastrand::Rng;
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The longest that anything may take that is expected to happen.
const LIMIT: Duration = EVENT_MAX;
/// Hosts on which programs write, the first of the lab.
const NODES: usize = 4;
/// The hosts of the mirror that leads, of its member, and of the broker.
const LEAD: usize = NODES;
const MEMBER: usize = NODES + 1;
const BROKER: usize = NODES + 2;
/// Programs that a node starts at least, one after the other, and how much each of them does.
const PROGRAMS_MIN: u64 = 8;
const STEPS: u64 = 30;

/// Changes names that all nodes share. Its arguments are a seed, how many changes, and whether files
/// get further names. Others change the same at the same time, so anything may fail.
const SHELL: &str = r#"
RANDOM=$1
few() { set -- a b c d e; shift $((RANDOM % 5)); name=$1; }
path() { few; path=$name; local more=$((RANDOM % 3)); while ((more--)); do few; path+=/$name; done; }
for ((step = 0; step < $2; step++)); do
    path; from=$path; path
    case $((RANDOM % 13)) in
    0 | 1) echo $1 $step >$from ;;
    2 | 3) echo $step >>$from ;;
    4) mv -fT $from $path ;;
    5) rm -f $from ;;
    6) rm -rf $from ;;
    7 | 8) mkdir $from ;;
    9) ln -sfT $path $from ;;
    10) chmod 7$((RANDOM % 6))5 $from ;;
    11) if (($(find $from | wc -l) < 40)); then cp -aT $from $path; fi ;;
    12) if (($3)); then ln -fT $from $path; else touch $from; fi ;;
    esac 2>/dev/null
done
exit 0
"#;

/// The same by other calls.
const PYTHON: &str = r#"
import os, random, sys
random.seed(sys.argv[1])
def path():
    return "/".join(random.choice("abcde") for _ in range(random.choice((1, 1, 2, 2, 3))))
def write(one, other):
    with open(one, random.choice("wa")) as file:
        file.write(sys.argv[1] * random.randrange(400))
def patch(one, other):
    with open(one, "r+") as file:
        file.seek(random.randrange(100))
        file.write("x")
def replace(one, other):
    with open(one + ".new", "w") as file:
        file.write(other)
    os.rename(one + ".new", one)
def link(one, other):
    os.link(one, other) if sys.argv[3] == "1" else os.utime(one, (1, random.randrange(1000000)))
def attribute(one, other):
    os.setxattr(one, "user.one", other.encode())
def symlink(one, other):
    os.symlink(other, one)
def mkdir(one, other):
    os.mkdir(one)
    write(one + "/a", other)
def remove(one, other):
    os.unlink(one)
def rmdir(one, other):
    os.rmdir(one)
def shorten(one, other):
    os.truncate(one, random.randrange(50))
every = [write, write, patch, replace, os.rename, os.rename, link, attribute, symlink, mkdir, mkdir, remove, rmdir, shorten]
for _ in range(int(sys.argv[2])):
    try:
        random.choice(every)(path(), path())
    except OSError:
        pass
"#;

/// Hosts and their broker, which all rounds share.
struct Site {
    rabbit: Rabbit,
    lab: Lab,
}

impl Site {
    fn new() -> Site {
        let lab = Lab::new(BROKER + 1);
        Site {
            rabbit: Rabbit::start_on(lab.host(BROKER)),
            lab,
        }
    }

    /// The broker's address, as it stands in its URL.
    fn broker(&self) -> SocketAddr {
        let url = self.rabbit.url();
        let place = url.split(['@', '/']).nth(3).expect("host and port");
        place.parse().expect("an address")
    }
}

/// What all programs of a node are told.
struct Node<'a> {
    host: &'a Host,
    source: &'a Path,
    map: PathBuf,
    number: usize,
    /// Whether files get further names.
    has_links: bool,
}

impl Node<'_> {
    /// Starts programs one after the other: some, and until there is a word to end.
    fn work(&self, seed: u64, is_over: &AtomicBool, programs: &AtomicU64) {
        let mut rng = Rng::with_seed(seed + self.number as u64);
        let mut writer = Writer::on(self.host, &self.map);
        let mut count = 0;
        while count < PROGRAMS_MIN || !is_over.load(Relaxed) {
            match rng.u8(..5) {
                0 => {
                    let name = self.source.join(format!("node{}", self.number));
                    let _took = writer.change(&name, STEPS);
                }
                1..3 => self.run("python3", PYTHON, rng.u64(..)),
                _ => self.run("bash", SHELL, rng.u64(..30_000)),
            }
            count += 1;
        }
        programs.fetch_add(count, Relaxed);
    }

    fn run(&self, program: &str, text: &str, seed: u64) {
        let mut command: Command = covered(self.host.command(program), &self.map);
        command.arg("-c").arg(text);
        if program == "bash" {
            command.arg(program);
        }
        command.args([seed, STEPS, self.has_links.into()].map(|number| number.to_string()));
        let ended = command
            .current_dir(self.source)
            .stdin(Stdio::null())
            .output();
        let ended = ended.expect("it starts");
        assert!(ended.status.success(), "{ended:?}");
    }
}

/// What happens while programs write.
#[derive(Debug, Clone, Copy)]
enum Accident {
    AgentKilled,
    AgentRestarted,
    MemberKilled,
    AgentCutOff,
    MirrorCutOff,
    LeadKilled,
}

/// A round: trees, agents and mirrors.
struct Round<'a> {
    site: &'a Site,
    seed: u64,
    source: PathBuf,
    /// Before the broker, one on each host.
    relays: Vec<Relay>,
    agents: Vec<Agent>,
    lead: Mirror,
    member: Mirror,
    member_keys: String,
    _scratch: Scratch,
}

impl<'a> Round<'a> {
    fn new(site: &'a Site, seed: u64) -> Round<'a> {
        let scratch = Scratch::new(FsKind::Tmpfs, 500);
        let source = fs::canonicalize(scratch.dir("src")).expect("a path");
        let password = scratch.path().join("password");
        fs::write(&password, Rabbit::PASSWORD).expect("a file");
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).expect("closed");
        let hosts = &site.lab.hosts()[..BROKER];
        let start = |host: &Host| host.inside(|| Relay::start(site.broker()));
        let relays: Vec<Relay> = hosts.iter().map(start).collect();
        let table = |table: &str, number: usize| {
            let url = site.rabbit.url();
            let near = relays[number].address().to_string();
            let url = url.replace(&site.broker().to_string(), &near);
            let user = Rabbit::USER;
            format!(
                "[{table}]\nbroker = \"{url}\"\ncredentials = {password:?}\n\
                 exchange = \"xs_{user}_nodes{seed}\"\n"
            )
        };
        let nobody = scratch.path().join("nobody");
        let agent = |number: usize| {
            let keys = table("publish", number);
            let agent = Agent::not_started(&source, &nobody, &keys);
            let mut agent = agent.on(&hosts[number]);
            agent.start();
            settle(&agent);
            agent
        };
        let agents = (0..NODES).map(agent).collect();
        let keys = |number: usize| {
            let (user, table) = (Rabbit::USER, table("announcements", number));
            let queue = format!("queue = \"q_{user}.driftless.nodes{seed}\"\n");
            format!("detect = [\"announcements\"]\ndelete = true\n{table}{queue}")
        };
        let lead = Mirror::on(&hosts[LEAD], &source, &keys(LEAD));
        let member = Mirror::member(&hosts[MEMBER], &lead, &keys(MEMBER));
        let member_keys = keys(MEMBER);
        Round {
            site,
            seed,
            source,
            relays,
            agents,
            lead,
            member,
            member_keys,
            _scratch: scratch,
        }
    }

    /// Programs write on all nodes while these accidents happen; then the trees are equal.
    fn write(&mut self, has_links: bool, accidents: &[Accident], rng: &mut Rng) {
        let (site, seed, source) = (self.site, self.seed, self.source.clone());
        let (is_over, programs) = (AtomicBool::new(false), AtomicU64::new(0));
        let node = |(number, agent): (usize, &Agent)| Node {
            host: site.lab.host(number),
            source: &source,
            map: agent.map(),
            number,
            has_links,
        };
        let nodes: Vec<Node<'_>> = self.agents.iter().enumerate().map(node).collect();
        let began = Instant::now();
        std::thread::scope(|scope| {
            for node in &nodes {
                scope.spawn(|| node.work(seed, &is_over, &programs));
            }
            let _ends_them = OnDrop(&is_over);
            accidents.iter().for_each(|one| self.meet(*one, rng));
        });
        let written = began.elapsed();
        self.agents.iter().for_each(settle_all);
        let what = format!("DRIFTLESS_SEED={seed}: {accidents:?}");
        self.lead.check_equal(&what);
        let (programs, equal) = (programs.load(Relaxed), began.elapsed());
        println!("{what}: {programs} programs in {written:.1?}, equal after {equal:.1?}");
        self.wait_for_member();
    }

    /// Waits until the member shares the queue. One that was killed is known for a while.
    fn wait_for_member(&self) {
        let began = Instant::now();
        let own = self.member.process();
        let hears = |one: &Value| one["process"] == own && one["hears"] == true;
        loop {
            let told = self.lead.command("status").arg("--json").run();
            let status: Option<Value> = serde_json::from_str(&told.stdout_text()).ok();
            let pool = status.as_ref().and_then(|all| all["pool"].as_array());
            if pool.is_some_and(|pool| pool.iter().any(hears)) {
                return;
            }
            let own = || self.member.command("status").run().stdout_text();
            assert!(began.elapsed() < LIMIT, "{}\n{}", told.describe(), own());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// How often each agent has missed something, and how often the lead has compared something
    /// for another reason than a path that it was told.
    fn missed(&self) -> (Vec<u64>, Vec<Value>) {
        let status = self.lead.status();
        let counts = ["walks", "gaps", "overflows"].map(|name| status[name].clone());
        (self.agents.iter().map(Agent::gaps).collect(), counts.into())
    }

    fn meet(&mut self, accident: Accident, rng: &mut Rng) {
        let node = rng.usize(..NODES);
        match accident {
            Accident::AgentKilled => {
                self.agents[node].kill();
                std::thread::sleep(Duration::from_millis(rng.u64(..500)));
                self.agents[node].start();
            }
            Accident::AgentRestarted => {
                let _its_end = self.agents[node].stop();
                self.agents[node].start();
            }
            Accident::MemberKilled => {
                self.member.kill();
                let host = self.site.lab.host(MEMBER);
                self.member = Mirror::member(host, &self.lead, &self.member_keys);
                self.wait_for_member();
            }
            Accident::AgentCutOff => self.cut(node, rng),
            Accident::MirrorCutOff => self.cut(*rng.choice(&[LEAD, MEMBER]).expect("one"), rng),
            Accident::LeadKilled => {
                self.lead.kill();
                std::thread::sleep(Duration::from_millis(rng.u64(..500)));
                self.lead.start();
            }
        }
    }

    /// Cuts the line of a host to the broker for some seconds.
    fn cut(&self, host: usize, rng: &mut Rng) {
        let relay = &self.relays[host];
        relay.stall();
        relay.cut();
        std::thread::sleep(Duration::from_millis(rng.u64(1000..3000)));
        relay.resume();
    }
}

/// Says that it is over, also where something fails.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Waits until an agent has read what programs have said, and the broker has confirmed it.
fn settle_all(agent: &Agent) {
    agent.wait_for("the spool is read", |status| status["spool_files"] == 0);
    // What is said last, and makes no sense, is counted when all before it was read.
    let unread = agent.status()["unread"].as_u64().expect("a number");
    agent.shim().say('?', &[Path::new("/")]);
    agent.wait_for("all is heard", |status| {
        status["unread"].as_u64() > Some(unread)
    });
    settle(agent);
}

/// Starts a round for each seed.
fn run_rounds(name: &'static str, run: impl Fn(&mut Round<'_>, &mut Rng)) {
    let first = count_of("DRIFTLESS_SEED", fastrand::u64(..1_000_000_000));
    let site = Site::new();
    for seed in first..first + count_of("DRIFTLESS_SEEDS", 1) {
        println!("{name}: DRIFTLESS_SEED={seed}");
        let mut rng = Rng::with_seed(seed);
        let mut round = Round::new(&site, seed);
        round.wait_for_member();
        round.lead.barrier();
        run(&mut round, &mut rng);
    }
}

/// Then nothing is compared but what was announced.
#[test]
fn four_nodes_write_at_once_and_a_pool_follows_by_what_they_announce() {
    run_rounds("announced", |round, rng| {
        let mut accidents = vec![
            Accident::AgentCutOff,
            Accident::AgentRestarted,
            Accident::MirrorCutOff,
        ];
        rng.shuffle(&mut accidents);
        // First, since the barrier waits for what it may have begun.
        accidents.insert(0, Accident::MemberKilled);
        let missed = round.missed();
        round.write(false, &accidents, rng);
        assert_eq!(round.missed(), missed, "all was announced by its path");
    });
}

/// An agent and a lead that were killed have all of the tree compared.
#[test]
fn four_nodes_write_at_once_whoever_is_killed_and_their_replica_is_equal() {
    run_rounds("killed", |round, rng| {
        let mut accidents = vec![
            Accident::AgentCutOff,
            Accident::AgentKilled,
            Accident::AgentRestarted,
            Accident::MirrorCutOff,
            Accident::LeadKilled,
        ];
        rng.shuffle(&mut accidents);
        accidents.insert(0, Accident::MemberKilled);
        round.write(true, &accidents, rng);
    });
}
