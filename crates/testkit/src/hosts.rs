//! Hosts for one test: network namespaces with addresses of their own, joined by a switch, gone
//! when the value is dropped.
//!
//! The switch is a bridge in one more namespace, so that the machine's own network is never
//! touched, no firewall of it is in the way, and labs of tests that run at the same time can have
//! the same addresses. A host has the machine's processes, users and files; only its network is its
//! own. Everything in it reaches it as `localhost` too.

use crate::accounts::machine_lock;
use crate::processes;
use crate::scratch::must_run;
use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Lets go of the mounts of other tests, in a new namespace of mounts, or their devices would stay busy
/// after they are unmounted. A machine whose root is no shared mount tells a namespace nothing of that
/// (mount_namespaces(7)). The folder of $2 is that of this test.
pub(crate) const LET_GO: &str = r#"
own=$(dirname -- "$2")
awk -v own="$own/" '$5 ~ "/driftless-test-" && index($5 "/", own) != 1 { print $5 }' /proc/self/mountinfo |
    tac | xargs -r -d '\n' umount --lazy 2>/dev/null || :
"#;

/// What follows is the process id of the test, the number of its lab, and the part that it plays.
const PREFIX: &str = "driftless-test-";
/// Where `ip netns` keeps them (ip-netns(8)).
const NAMESPACES: &str = "/run/netns";
/// The interface of a host.
const INTERFACE: &str = "net0";
/// The last part of an address is one byte, and some are taken.
const HOSTS_MAX: usize = 250;
/// What a limited link lets through at once: no less than some of the largest packets that the
/// kernel hands over, and no less than what passes between two ticks of its clock (tc-tbf(8)).
const BURST_BYTES_MIN: u64 = 32 << 10;
const TICKS_PER_SECOND_MIN: u64 = 100;

/// A few hosts that can reach each other, and nothing else.
#[derive(Debug)]
pub struct Lab {
    // In this order they are dropped: the links end with the hosts.
    hosts: Vec<Host>,
    switch: Namespace,
}

impl Lab {
    /// Makes hosts whose links are as fast as the machine; needs root.
    pub fn new(hosts: usize) -> Lab {
        Lab::build(hosts, None)
    }

    /// Makes hosts whose links carry at most so many bytes a second, each way, by the token bucket
    /// of `tc`.
    ///
    /// The first 32 KiB, or a hundredth of a second's worth, pass at once. The kernel has nothing
    /// here to delay packets with; a [`Relay`](crate::Relay) does that.
    pub fn limited(hosts: usize, bytes_per_second_max: u64) -> Lab {
        Lab::build(hosts, Some(bytes_per_second_max))
    }

    fn build(count: usize, bytes_per_second_max: Option<u64>) -> Lab {
        static LABS: AtomicU32 = AtomicU32::new(0);
        assert!(count <= HOSTS_MAX, "a lab has at most {HOSTS_MAX} hosts");
        let _turn = machine_lock();
        remove_abandoned();
        let name = format!(
            "{PREFIX}{}-{}",
            std::process::id(),
            LABS.fetch_add(1, Ordering::Relaxed)
        );
        let switch = Namespace::new(format!("{name}-switch"));
        switch.ip(&["link", "add", "switch", "type", "bridge"]);
        switch.ip(&["link", "set", "switch", "up"]);
        let hosts = (1..=count)
            .map(|number| Host::new(&name, number, &switch))
            .collect();
        let lab = Lab { hosts, switch };
        if let Some(rate) = bytes_per_second_max {
            lab.hosts.iter().for_each(|host| host.limit(rate));
        }
        lab
    }

    /// The host of this number, counted from 0.
    pub fn host(&self, number: usize) -> &Host {
        &self.hosts[number]
    }

    /// All hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Names of the network namespaces of its hosts and of its switch.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &str> {
        let hosts = self.hosts.iter().map(|host| &host.namespace);
        let all = hosts.chain([&self.switch]);
        all.map(|namespace| namespace.name.as_str())
    }
}

/// One host of a lab.
#[derive(Debug)]
pub struct Host {
    namespace: Namespace,
    address: Ipv4Addr,
    /// The switch's end of its link.
    port: String,
    switch: String,
}

impl Host {
    fn new(lab: &str, number: usize, switch: &Namespace) -> Host {
        let namespace = Namespace::new(format!("{lab}-host{number}"));
        let address = Ipv4Addr::new(10, 77, 0, number as u8);
        let port = format!("port{number}");
        switch.ip(&[
            "link",
            "add",
            &port,
            "type",
            "veth",
            "peer",
            "name",
            INTERFACE,
            "netns",
            &namespace.name,
        ]);
        switch.ip(&["link", "set", &port, "master", "switch", "up"]);
        namespace.ip(&["address", "add", &format!("{address}/24"), "dev", INTERFACE]);
        namespace.ip(&["link", "set", INTERFACE, "up"]);
        Host {
            namespace,
            address,
            port,
            switch: switch.name.clone(),
        }
    }

    /// Its address in the lab.
    pub fn address(&self) -> IpAddr {
        self.address.into()
    }

    /// A command that runs on it. As another user: put [`words_as`](Host::words_as) before the
    /// program instead, for the network of a host is root's to enter.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(program);
        command
    }

    /// What to put before a program and its arguments so that they run on it, as for
    /// [`Driftless::through`](crate::Driftless). The process that is started becomes that of the
    /// program.
    pub fn words(&self) -> Vec<String> {
        vec![
            "nsenter".to_owned(),
            format!("--net={}", self.namespace.path().display()),
            "--".to_owned(),
        ]
    }

    /// The same as another user, without supplementary groups.
    pub fn words_as(&self, uid: u32, gid: u32) -> Vec<String> {
        let mut words = self.words();
        words.splice(2..2, [format!("--setuid={uid}"), format!("--setgid={gid}")]);
        words
    }

    /// Returns all processes on this host.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.namespace.processes()
    }

    /// Runs `act` in a thread on this host: sockets that it opens, and threads that it starts, stay
    /// there.
    pub fn inside<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let on_host = || {
                self.namespace.enter();
                act()
            };
            scope
                .spawn(on_host)
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Pulls its cable: packets are lost without a word, connections stay and wait.
    pub fn link_down(&self) {
        ip(&self.switch, &["link", "set", &self.port, "down"]);
    }

    /// Puts the cable back.
    pub fn link_up(&self) {
        ip(&self.switch, &["link", "set", &self.port, "up"]);
    }

    /// What it sends waits at its own end of the link, what it receives at the other.
    fn limit(&self, bytes_per_second_max: u64) {
        let burst = BURST_BYTES_MIN
            .max(bytes_per_second_max / TICKS_PER_SECOND_MIN)
            .to_string();
        let rate = format!("{}bit", bytes_per_second_max * 8);
        for (namespace, interface) in [
            (&self.namespace.name, INTERFACE),
            (&self.switch, self.port.as_str()),
        ] {
            let mut tc = Command::new("tc");
            tc.args([
                "-netns", namespace, "qdisc", "add", "dev", interface, "root", "tbf",
            ]);
            must_run(tc.args(["rate", &rate, "burst", &burst, "latency", "100ms"]));
        }
    }
}

/// A named network namespace; dropping it ends what runs there and takes its name away, and with it
/// goes all the rest.
#[derive(Debug)]
struct Namespace {
    name: String,
}

impl Namespace {
    fn new(name: String) -> Namespace {
        must_run(Command::new("ip").args(["netns", "add", &name]));
        let namespace = Namespace { name };
        namespace.ip(&["link", "set", "lo", "up"]);
        namespace
    }

    fn path(&self) -> PathBuf {
        Path::new(NAMESPACES).join(&self.name)
    }

    fn ip(&self, arguments: &[&str]) {
        ip(&self.name, arguments);
    }

    fn processes(&self) -> Vec<u32> {
        fs::metadata(self.path()).map_or_else(
            |_| Vec::new(),
            |meta| processes::in_network((meta.dev(), meta.ino())),
        )
    }

    /// Takes the calling thread there, for good.
    fn enter(&self) {
        let file = fs::File::open(self.path()).expect("the namespace");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("enter the namespace");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        processes::end_all(|| self.processes());
        remove(&self.name);
    }
}

fn ip(namespace: &str, arguments: &[&str]) {
    must_run(
        Command::new("ip")
            .args(["-netns", namespace])
            .args(arguments),
    );
}

fn remove(name: &str) {
    let _ = Command::new("ip").args(["netns", "delete", name]).output();
}

/// Names that killed tests have left.
fn remove_abandoned() {
    let Ok(entries) = fs::read_dir(NAMESPACES) else {
        return;
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    for name in names.filter(|name| name.starts_with(PREFIX)) {
        let owner = name[PREFIX.len()..].split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(owner).exists() {
            remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    const MIB: usize = 1 << 20;

    /// Sends so many bytes from one host to the other and returns how long that took.
    fn transfer(from: &Host, to: &Host, bytes: usize) -> Duration {
        let listener = to.inside(|| TcpListener::bind((to.address(), 0)).expect("listen"));
        let address = listener.local_addr().expect("address");
        let started = Instant::now();
        let receiver = std::thread::spawn(move || {
            listener
                .accept()
                .expect("accept")
                .0
                .read_to_end(&mut Vec::new())
                .expect("read")
        });
        let mut stream = from.inside(|| TcpStream::connect(address).expect("connect"));
        stream.write_all(&vec![7; bytes]).expect("write");
        drop(stream);
        assert_eq!(receiver.join().expect("receiver"), bytes);
        started.elapsed()
    }

    #[test]
    fn hosts_have_networks_of_their_own() {
        let lab = Lab::new(2);
        let shown = lab
            .host(0)
            .command("ip")
            .args(["-brief", "address"])
            .output()
            .expect("ip");
        let shown = String::from_utf8(shown.stdout).expect("text");
        assert_eq!(shown.lines().count(), 2, "{shown}");
        assert!(shown.contains("10.77.0.1/24"), "{shown}");
        let (here, there) = (lab.host(0), lab.host(1));
        let listener = here.inside(|| TcpListener::bind((here.address(), 0)).expect("listen"));
        let address = listener.local_addr().expect("address");
        there
            .inside(|| TcpStream::connect(address).map(drop))
            .expect("a host reaches the other");
        let machine = TcpListener::bind(("127.0.0.1", 0)).expect("listen");
        let address = machine.local_addr().expect("address");
        there
            .inside(|| TcpStream::connect(address).map(drop))
            .expect_err("it does not reach the machine");
    }

    #[test]
    fn an_ordinary_user_runs_on_a_host() {
        let lab = Lab::new(1);
        let words = lab.host(0).words_as(65534, 65534);
        let outcome = crate::Driftless::new("/usr/bin/id")
            .through(&words)
            .arg("-u")
            .run()
            .expect(0);
        assert_eq!(outcome.stdout_text(), "65534\n");
    }

    #[test]
    fn a_limited_link_takes_its_time() {
        let lab = Lab::limited(2, 4 << 20);
        let (one, other) = (lab.host(0), lab.host(1));
        let limited = transfer(one, other, 2 * MIB);
        assert!(
            limited > Duration::from_millis(350),
            "{limited:?} for half a second's worth"
        );
        let back = transfer(other, one, 2 * MIB);
        assert!(
            back > Duration::from_millis(350),
            "{back:?} for half a second's worth"
        );
    }

    #[test]
    fn nothing_is_left_of_a_lab() {
        let lab = Lab::new(2);
        let names: Vec<PathBuf> = lab
            .hosts()
            .iter()
            .map(|host| host.namespace.path())
            .collect();
        let mut running = lab
            .host(1)
            .command("sleep")
            .arg("600")
            .spawn()
            .expect("sleep");
        assert!(names.iter().all(|name| name.exists()));
        drop(lab);
        assert!(
            !names.iter().any(|name| name.exists()),
            "names of namespaces are left"
        );
        let status = running.wait().expect("wait");
        assert!(!status.success(), "what ran on the host was ended");
    }

    #[test]
    fn what_a_killed_test_has_left_is_removed() {
        let mut ended = Command::new("true").spawn().expect("true");
        ended.wait().expect("wait");
        let name = format!("{PREFIX}{}-0-host1", ended.id());
        must_run(Command::new("ip").args(["netns", "add", &name]));
        drop(Lab::new(0));
        assert!(!Path::new(NAMESPACES).join(name).exists());
    }
}
