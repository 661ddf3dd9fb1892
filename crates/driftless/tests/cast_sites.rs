//! Casts to daemons that prove their names with certificates of a site's authority, and casts over
//! several connections.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{check_equal, driftless, put, stage, wait_until};
use driftless_testkit::{Driftless, EVENT_MAX, FsKind, Lab, Running, Scratch};
use rustix::process::Signal;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PORT: u16 = 7400;
/// State of a connection that is open in `/proc/net/tcp` (kernel header `net/tcp_states.h`).
const ESTABLISHED: &str = "01";

/// Hosts with a daemon each, a host that casts, and the authority of their site.
struct Site {
    daemons: Vec<Running>,
    lab: Lab,
    folder: Scratch,
    src: PathBuf,
}

impl Site {
    /// Starts so many daemons, which serve `login1` alone.
    fn new(nodes: usize) -> Site {
        Site::with_stores(nodes, |_| None)
    }

    /// Starts daemons of which some have stores elsewhere, by their numbers.
    fn with_stores(nodes: usize, store: impl Fn(usize) -> Option<PathBuf>) -> Site {
        let (folder, src, _) = stage();
        let mut site = Site {
            daemons: Vec::new(),
            lab: Lab::new(nodes + 1),
            folder,
            src,
        };
        site.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=site \
             -addext keyUsage=keyCertSign -keyout ca.key -out ca.pem",
        );
        site.certify("login1");
        let mut lines = String::new();
        for at in 0..nodes {
            let node = format!("n{}", at + 1);
            site.certify(&node);
            let to = site.path(&node).join("to");
            fs::create_dir_all(&to).expect("a folder");
            let daemon = driftless().through(site.lab.host(at).words()).arg("node");
            let daemon = daemon.args(["--ports", &PORT.to_string(), "--coordinator", "login1"]);
            let daemon = site.proved(daemon, &node).arg("--place").arg(&to);
            let own = site.path(&node).join("store");
            let daemon = daemon.arg("--dir").arg(store(at).unwrap_or(own));
            site.daemons.push(daemon.spawn());
            wait_until("the daemon listens", || site.connections(at, "0A") > 0);
            let address = site.lab.host(at).address();
            writeln!(lines, "{node} {address}:{PORT}").expect("memory");
        }
        put(&site.path("daemons"), lines);
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn openssl(&self, words: &str) {
        let mut command = Command::new("openssl");
        command.args(words.split_whitespace());
        let output = command.current_dir(self.folder.path()).output();
        let output = output.expect("openssl is installed");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
    }

    /// Makes a key and a certificate of the authority for a name.
    fn certify(&self, name: &str) {
        self.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name} \
             -addext subjectAltName=DNS:{name} -addext basicConstraints=critical,CA:FALSE \
             -addext extendedKeyUsage=serverAuth,clientAuth -CA ca.pem -CAkey ca.key \
             -keyout {name}.key -out {name}.pem"
        ));
    }

    /// Has a program prove this name.
    fn proved(&self, program: Driftless, name: &str) -> Driftless {
        let files = [
            ("--ca", "ca.pem".to_owned()),
            ("--cert", format!("{name}.pem")),
            ("--key", format!("{name}.key")),
        ];
        files.into_iter().fold(program, |program, (option, file)| {
            program.arg(option).arg(self.path(&file))
        })
    }

    /// Returns a cast to the first node and all others, by a host with this name.
    fn cast(&self, name: &str, daemons: &Path) -> Driftless {
        let nodes = format!("n[1-{}]", self.daemons.len());
        let host = self.lab.host(self.daemons.len());
        let cast = driftless().through(host.words()).arg("cast").arg(&self.src);
        let cast = cast.args(["--nodes", &nodes, "--to-cache", "--join-wait", "3"]);
        let cast = cast.arg("--daemons").arg(daemons).arg("--dir");
        self.proved(cast.arg(self.path("source-store")), name)
    }

    /// Returns the connections of the daemon of a host that have this state.
    fn connections(&self, at: usize, state: &str) -> usize {
        let words = self.lab.host(at).words();
        let (program, rest) = words.split_first().expect("a program");
        let mut command = Command::new(program);
        let output = command.args(rest).args(["cat", "/proc/net/tcp6"]).output();
        let table = String::from_utf8(output.expect("the table").stdout).expect("text");
        let of_port = |line: &&str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let port = format!(":{PORT:04X}");
            matches!(fields[..], [_, local, _, is, ..] if local.ends_with(&port) && is == state)
        };
        table.lines().filter(of_port).count()
    }

    /// Returns the copy of a node in its cache.
    fn copy(&self, node: &str) -> PathBuf {
        let sets = self.path(node).join("store/sets");
        let name = self.src.file_name().expect("a name");
        let entries = fs::read_dir(&sets).expect("the sets").flatten();
        let copies = entries.map(|entry| entry.path().join(name));
        copies
            .into_iter()
            .find(|copy| copy.exists())
            .expect("a copy")
    }

    fn end(self) {
        for daemon in self.daemons {
            daemon.signal(Signal::TERM);
            let _ = daemon.wait().expect(143);
        }
    }
}

/// File system whose writers wait. They go on when the value is dropped.
struct Frozen<'a>(&'a Path);

impl Frozen<'_> {
    fn new(path: &Path) -> Frozen<'_> {
        let frozen = Frozen(path);
        frozen.call("-f");
        frozen
    }

    fn call(&self, option: &str) {
        let mut command = Command::new("fsfreeze");
        let status = command.arg(option).arg(self.0).status();
        assert!(status.expect("fsfreeze is installed").success());
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.call("-u");
    }
}

#[test]
fn hanging_disk_of_a_node_ends_with_cast() {
    let disk = Scratch::new(FsKind::Ext4, 96);
    let store = disk.path().join("store");
    let site = Site::with_stores(2, |at| (at == 0).then(|| store.clone()));
    let mut content = vec![0; 12 << 20];
    fastrand::Rng::with_seed(2).fill(&mut content);
    put(&site.src.join("file"), content);
    let cast = site.cast("login1", &site.path("daemons"));
    let running = cast.args(["--bwlimit", "1M"]).spawn();
    let is_receiving = || fs::read_dir(&store).is_ok_and(|entries| entries.count() > 3);
    wait_until("the first node receives", is_receiving);
    let frozen = Frozen::new(disk.path());
    std::thread::sleep(Duration::from_secs(2));
    running.signal(Signal::TERM);
    assert!(
        running.ends_within(EVENT_MAX),
        "the cast waits for the disk"
    );
    drop(frozen);
    let _ = running.wait().expect(143);
    site.end();
}

#[test]
fn certified_names_replace_exchanged_keys() {
    let site = Site::new(2);
    put(&site.src.join("file"), "content");
    let daemons = site.path("daemons");
    let _ = site.cast("login1", &daemons).run().expect(0);
    for node in ["n1", "n2"] {
        check_equal(&site.src, &site.copy(node), node);
    }
    // A node that is certified is no host that casts.
    let refused = site.cast("n1", &daemons).run().expect(3);
    let text = refused.stderr_text();
    assert!(text.contains("does not serve this host"), "{text}");
    let lines = fs::read_to_string(&daemons).expect("the list");
    let swapped = lines.replace("n1 ", "x ").replace("n2 ", "n1 ");
    let other = site.path("swapped");
    put(&other, swapped.replace("x ", "n2 "));
    let refused = site.cast("login1", &other).run().expect(3);
    let text = refused.stderr_text();
    assert!(text.contains("not valid for name \"n1\""), "{text}");
    site.end();
}

#[test]
fn copy_of_two_jobs_outlives_the_first() {
    let site = Site::new(1);
    put(&site.src.join("file"), "content");
    for job in ["a", "b"] {
        let cast = site.cast("login1", &site.path("daemons"));
        let _ = cast.args(["--job", job]).run().expect(0);
    }
    let copy = site.copy("n1");
    let purge = |job: &str| {
        let purge = driftless().args(["node", "purge", "--job", job, "--dir"]);
        purge.arg(site.path("n1").join("store")).run()
    };
    let _ = purge("a").expect(0);
    check_equal(&site.src, &copy, "job b still needs it");
    let _ = purge("b").expect(0);
    assert!(!copy.exists(), "no job needs it");
    site.end();
}

#[test]
fn several_connections_carry_one_cast() {
    let site = Site::new(2);
    let mut content = vec![0; 6 << 20];
    fastrand::Rng::with_seed(1).fill(&mut content);
    put(&site.src.join("file"), content);
    let cast = site.cast("login1", &site.path("daemons"));
    let running = cast.args(["--connections", "4", "--bwlimit", "1M"]).spawn();
    wait_until("the first node has all connections of its feeder", || {
        assert!(!running.ends_within(Duration::ZERO), "it ended");
        (0..2).any(|at| site.connections(at, ESTABLISHED) > 4)
    });
    let _ = running.wait().expect(0);
    for node in ["n1", "n2"] {
        check_equal(&site.src, &site.copy(node), node);
    }
    site.end();
}

#[test]
fn errors_of_certificates_name_the_file() {
    let site = Site::new(0);
    site.certify("other");
    for words in [
        "pkey -aes256 -passout pass:secret -in login1.key -out locked.key",
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-521 -nodes -days 2 -subj /CN=a \
         -keyout p521.key -out p521.pem",
    ] {
        site.openssl(words);
    }
    put(&site.path("empty"), "");
    let damaged = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
    put(&site.path("damaged.pem"), damaged);
    for (ca, cert, key, at_fault, words) in [
        (
            "ca.pem",
            "login1.pem",
            "locked.key",
            "locked.key",
            "openssl pkey -in FILE -out NEW",
        ),
        (
            "ca.pem",
            "login1.pem",
            "empty",
            "empty",
            "cannot read a private key: the file has none",
        ),
        (
            "ca.pem",
            "login1.pem",
            "other.key",
            "other.key",
            "is not the key of the certificate",
        ),
        (
            "ca.pem",
            "p521.pem",
            "p521.key",
            "p521.key",
            "ECDSA on P-256 or P-384",
        ),
        (
            "ca.pem",
            "damaged.pem",
            "login1.key",
            "damaged.pem",
            "it is damaged",
        ),
        (
            "ca.pem",
            "empty",
            "login1.key",
            "empty",
            "cannot read a certificate: the file has none",
        ),
        (
            "damaged.pem",
            "login1.pem",
            "login1.key",
            "damaged.pem",
            "one of them is damaged",
        ),
        (
            "empty",
            "login1.pem",
            "login1.key",
            "empty",
            "the file has none",
        ),
    ] {
        let node = driftless().args(["node", "--coordinator", "login1", "--dir"]);
        let node = node.arg(site.path("node-store"));
        let files = [("--ca", ca), ("--cert", cert), ("--key", key)];
        let node = files.into_iter().fold(node, |node, (option, file)| {
            node.arg(option).arg(site.path(file))
        });
        let text = node.run().expect(1).stderr_text();
        let file = format!("driftless: {:?}: ", site.path(at_fault));
        assert!(text.contains(&file) && text.contains(words), "{text}");
        assert!(!text.contains("make a new key"), "{text}");
    }
}

#[test]
fn uncertified_nodes_are_refused_at_once() {
    let site = Site::new(0);
    put(&site.src.join("file"), "content");
    put(&site.path("daemons"), "n1 192.0.2.1:7400\n");
    let cast = driftless().arg("cast").arg(&site.src).arg("--to-cache");
    let cast = cast
        .args(["--nodes", "n[1-3]", "--daemons"])
        .arg(site.path("daemons"));
    let cast = cast.arg("--dir").arg(site.path("source-store"));
    let text = site.proved(cast, "login1").run().expect(2).stderr_text();
    assert!(text.contains("no line for n2, n3,"), "{text}");
}

#[test]
fn weak_certificates_are_warned_of() {
    let site = Site::new(1);
    put(&site.src.join("file"), "content");
    let mode = PermissionsExt::from_mode(0o644);
    fs::set_permissions(site.path("login1.key"), mode).expect("a mode");
    let cast = site.cast("login1", &site.path("daemons"));
    let text = cast.run().expect(0).stderr_text();
    assert!(text.contains("expires within 14 days"), "{text}");
    assert!(text.contains("chmod 600 FILE"), "{text}");
    site.end();
}
