//! A RabbitMQ node of a test's own: on the loopback, with its own ports, port mapper, cookie and
//! data, gone with the test.
//!
//! A node is slow to start, so the tests of a binary share one in a `static`, and a static is never
//! dropped. Therefore a guard process holds the reading end of a pipe: when the writing end goes,
//! with the value or with the whole process, however it ended, the guard kills what was started and
//! removes its folder.

use crate::hosts::Host;
use crate::scratch::scratch_folder;
use rustix::process::{Pid, Signal};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// Where Debian has the programs themselves; those in `/usr/sbin` change the user and the
/// environment first.
const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";
/// The longest that a node may take to start or to stop.
const NODE_SECONDS_MAX: u64 = 180;
/// Between two looks at a condition.
const LOOK: Duration = Duration::from_millis(50);
/// The last bytes of a log that a failure shows.
const SHOWN_BYTES_MAX: usize = 3000;
/// What the guard does: the last line that it read names what runs, and its argument is the folder.
const GUARD: &str = r#"
last=
while read -r line; do last=$line; done
for group in $last; do kill -s KILL -- "-$group"; done 2>/dev/null
rm -rf -- "$1"
"#;

/// A running node, with a user and a vhost.
#[derive(Debug)]
pub struct Rabbit {
    folder: PathBuf,
    ports: Ports,
    place: Place,
    guard: Child,
    pipe: Option<ChildStdin>,
    epmd: Child,
    server: Option<Child>,
}

/// Where the node runs: on this machine's loopback, or on a host of a lab, whose words are put
/// before every program.
#[derive(Debug, Clone)]
struct Place {
    words: Vec<String>,
    address: IpAddr,
}

impl Place {
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut words = self.words.iter().map(OsStr::new).chain([program.as_ref()]);
        let mut command = Command::new(words.next().expect("at least the program"));
        command.args(words);
        command
    }
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    amqp: u16,
    amqps: u16,
    nodes: u16,
    epmd: u16,
}

impl Rabbit {
    /// The user that tests log in as; may do everything.
    pub const USER: &'static str = "tester";
    /// The user's password.
    pub const PASSWORD: &'static str = "open sesame";
    /// The vhost that tests work in.
    pub const VHOST: &'static str = "tests";

    /// Starts a node and waits until it answers; needs `rabbitmq-server` and root.
    pub fn start() -> Rabbit {
        Rabbit::start_at(Place {
            words: Vec::new(),
            address: Ipv4Addr::LOCALHOST.into(),
        })
    }

    /// Starts a node on a host of a lab, reached by that host's address.
    pub fn start_on(host: &Host) -> Rabbit {
        Rabbit::start_at(Place {
            words: host.words(),
            address: host.address(),
        })
    }

    fn start_at(place: Place) -> Rabbit {
        let folder = scratch_folder().keep();
        let ports = free_ports();
        fs::write(
            folder.join("rabbitmq.conf"),
            configuration(&place, ports, &folder),
        )
        .expect("configuration");
        make_certificates(&folder);
        fs::write(folder.join("enabled_plugins"), "[].\n").expect("plugins");
        let (mut guard, epmd) = (start_guard(&folder), start_epmd(&place, &folder, ports));
        let pipe = guard.stdin.take();
        let mut rabbit = Rabbit {
            folder,
            ports,
            place,
            guard,
            pipe,
            epmd,
            server: None,
        };
        rabbit.tell_guard();
        rabbit.start_server();
        rabbit
    }

    /// The URL of the vhost, without a password.
    pub fn url(&self) -> String {
        format!(
            "amqp://{}@{}:{}/{}",
            Self::USER,
            self.place.address,
            self.ports.amqp,
            Self::VHOST
        )
    }

    /// The URL of the vhost over TLS at `host`; the broker's certificate is for 127.0.0.1 alone.
    pub fn url_encrypted(&self, host: &str) -> String {
        format!(
            "amqps://{}@{host}:{}/{}",
            Self::USER,
            self.ports.amqps,
            Self::VHOST
        )
    }

    /// The certificate of the authority that signed the broker's, in PEM.
    pub fn authority(&self) -> String {
        fs::read_to_string(self.folder.join("authority.pem")).expect("the authority")
    }

    /// Stops the node as an operator does; what it had confirmed is there when it is started again.
    pub fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            let _ = rustix::process::kill_process(pid(&server), Signal::TERM);
            reap(server);
            self.tell_guard();
        }
    }

    /// Kills the node, as a crash does, and starts it again.
    pub fn crash(&mut self) {
        self.kill();
        self.start_server();
    }

    /// Has the node write down which queues there are.
    ///
    /// It does so by itself, some seconds late, though the declaration was answered: a quorum queue
    /// that was declared just before a crash is there afterwards, without a leader and without its
    /// messages (seen with 3.10.8; Ra keeps its directory in a dets table, which delays writes). So
    /// a test of crashes is one of queues that are settled.
    pub fn settle_declarations(&self) {
        self.control(&["eval", "[dets:sync(Table) || Table <- dets:all()]."]);
    }

    /// Kills the node.
    pub fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            let _ = rustix::process::kill_process_group(pid(&server), Signal::KILL);
            reap(server);
            self.tell_guard();
        }
    }

    /// Stops the node if it runs, starts it and waits until it answers.
    pub fn restart(&mut self) {
        self.stop();
        self.start_server();
    }

    /// Raises or clears the alarm about memory: while it is on, the node reads nothing from
    /// connections that publish.
    pub fn memory_alarm(&self, on: bool) {
        // The node looks at its memory when the mark is set, so the alarm stands when this returns.
        self.control(&[
            "set_vm_memory_high_watermark",
            if on { "0.0000001" } else { "0.6" },
        ]);
    }

    /// Closes every client's connection from the broker's side.
    pub fn close_connections(&self) {
        self.control(&["close_all_connections", "--global", "closed by a test"]);
    }

    /// Runs `rabbitmqctl` against this node and returns what it printed.
    pub fn control(&self, arguments: &[&str]) -> String {
        let mut command = self.command("rabbitmqctl");
        let output = command
            .arg("-q")
            .args(arguments)
            .output()
            .expect("rabbitmqctl is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "rabbitmqctl {arguments:?}: {errors}{}",
            self.log()
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn start_server(&mut self) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("output"))
            .expect("log");
        let mut command = self.command("rabbitmq-server");
        command
            .stdout(log.try_clone().expect("log"))
            .stderr(log)
            .process_group(0);
        self.server = Some(command.spawn().expect("rabbitmq-server is installed"));
        self.tell_guard();
        self.wait_until_it_answers();
    }

    fn wait_until_it_answers(&mut self) {
        let end = Instant::now() + Duration::from_secs(NODE_SECONDS_MAX);
        while !answers(&self.place, self.ports.amqp) {
            let ended = self
                .server
                .as_mut()
                .and_then(|server| server.try_wait().ok().flatten());
            assert!(
                ended.is_none(),
                "the node ended, {ended:?}:\n{}",
                self.log()
            );
            assert!(
                Instant::now() < end,
                "the node does not answer:\n{}",
                self.log()
            );
            std::thread::sleep(LOOK);
        }
    }

    /// A program of RabbitMQ in the environment of this node, and of no other.
    fn command(&self, program: &str) -> Command {
        let mut command = self.place.command(Path::new(PROGRAMS).join(program));
        let below = |name: &str| self.folder.join(name);
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LANG", "C.UTF-8")
            .env("HOME", &self.folder);
        command
            .env("ERL_EPMD_PORT", self.ports.epmd.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1");
        command
            .env("RABBITMQ_NODENAME", "driftless@localhost")
            .env("RABBITMQ_DIST_PORT", self.ports.nodes.to_string());
        command.env("ERL_CRASH_DUMP", below("crash.dump"));
        command
            .env("RABBITMQ_CONF_ENV_FILE", below("none"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", below("none"));
        command
            .env("RABBITMQ_CONFIG_FILE", below("rabbitmq.conf"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", below("enabled_plugins"));
        command
            .env("RABBITMQ_MNESIA_BASE", below("data"))
            .env("RABBITMQ_LOG_BASE", below("log"))
            .env("RABBITMQ_LOGS", "-");
        command
            .env("RABBITMQ_GENERATED_CONFIG_DIR", below("config"))
            .env("RABBITMQ_PID_FILE", below("pid"));
        // Waiting threads sleep instead of spinning, which leaves the processors to the tests.
        let arguments =
            "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none";
        command.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", arguments);
        command.current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    fn tell_guard(&mut self) {
        let server = self
            .server
            .as_ref()
            .map_or(String::new(), |server| server.id().to_string());
        if let Some(pipe) = &mut self.pipe {
            writeln!(pipe, "{} {server}", self.epmd.id()).expect("the guard reads");
        }
    }

    fn log(&self) -> String {
        let text = fs::read(self.folder.join("output")).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(SHOWN_BYTES_MAX)..]).into_owned()
    }
}

impl Drop for Rabbit {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let _ = self.guard.wait();
        let _ = self.epmd.wait();
        let _ = self.server.take().map(|mut server| server.wait());
    }
}

fn configuration(place: &Place, ports: Ports, folder: &Path) -> String {
    let plain = format!(
        "listeners.tcp.local = {}:{}\ndefault_vhost = {}\ndefault_user = {}\ndefault_pass = {}\n\
         default_permissions.configure = .*\ndefault_permissions.read = .*\ndefault_permissions.write = .*\n\
         disk_free_limit.absolute = 1MB\nraft.wal_max_size_bytes = 16777216\nvm_memory_high_watermark.relative = 0.6\n",
        place.address,
        ports.amqp,
        Rabbit::VHOST,
        Rabbit::USER,
        Rabbit::PASSWORD
    );
    let path = |name: &str| folder.join(name).display().to_string();
    let (authority, server, key) = (
        path("authority.pem"),
        path("server.pem"),
        path("server.key"),
    );
    format!(
        "{plain}listeners.ssl.local = 127.0.0.1:{}\nssl_options.cacertfile = {authority}\nssl_options.certfile = {server}\n\
         ssl_options.keyfile = {key}\nssl_options.verify = verify_none\n",
        ports.amqps
    )
}

/// An authority of the test's own, and a certificate for 127.0.0.1 and no other name.
fn make_certificates(folder: &Path) {
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        let output = command
            .args(arguments.split(' '))
            .current_dir(folder)
            .output()
            .expect("openssl is installed");
        assert!(
            output.status.success(),
            "openssl {arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let new = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1\n").expect("names");
    openssl(&format!(
        "{new} -x509 -keyout authority.key -out authority.pem -subj /CN=driftless-test-authority -days 2"
    ));
    openssl(&format!(
        "{new} -keyout server.key -out server.csr -subj /CN=driftless-test-broker"
    ));
    openssl(
        "x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial -out server.pem -days 2 -extfile names",
    );
}

/// Ports that nobody listens on now. They are held together, so they differ.
fn free_ports() -> Ports {
    let held = [(); 4].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
    let [amqp, amqps, nodes, epmd] = held
        .each_ref()
        .map(|listener| listener.local_addr().expect("an address").port());
    Ports {
        amqp,
        amqps,
        nodes,
        epmd,
    }
}

fn start_guard(folder: &Path) -> Child {
    let mut command = Command::new("sh");
    command
        .args(["-c", GUARD, "guard"])
        .arg(folder)
        .stdin(Stdio::piped())
        .process_group(0);
    command.spawn().expect("sh")
}

/// The port mapper of Erlang; started here, or the node would start one that outlives it.
fn start_epmd(place: &Place, folder: &Path, ports: Ports) -> Child {
    let mut command = place.command("epmd");
    command
        .args(["-port", &ports.epmd.to_string(), "-address", "127.0.0.1"])
        .env_remove("LISTEN_FDS");
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    command.spawn().expect("epmd is installed")
}

/// Whether a broker greets whoever says `AMQP 0.9.1` to it; its listener comes last when it starts.
/// The shell asks, on the node's host.
fn answers(place: &Place, port: u16) -> bool {
    const GREET: &str =
        r"exec 3<>/dev/tcp/$0/$1 && printf 'AMQP\0\0\11\1' >&3 && timeout 5 head -c 1 <&3";
    let mut command = place.command("bash");
    command
        .args(["-c", GREET])
        .arg(place.address.to_string())
        .arg(port.to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command.output().is_ok_and(|output| output.stdout == [1])
}

/// The one broker of a test program.
fn shared() -> &'static RwLock<Rabbit> {
    static RABBIT: OnceLock<RwLock<Rabbit>> = OnceLock::new();
    RABBIT.get_or_init(|| RwLock::new(Rabbit::start()))
}

/// The broker that all tests of a program share, while nobody disturbs it.
pub fn calm() -> RwLockReadGuard<'static, Rabbit> {
    shared().read().unwrap_or_else(PoisonError::into_inner)
}

/// The same, for one test alone.
pub fn alone() -> RwLockWriteGuard<'static, Rabbit> {
    shared().write().unwrap_or_else(PoisonError::into_inner)
}

fn pid(child: &Child) -> Pid {
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .expect("a process")
}

/// Waits for a process that is ending, with a limit.
fn reap(mut child: Child) {
    let end = Instant::now() + Duration::from_secs(NODE_SECONDS_MAX);
    while child.try_wait().expect("a child").is_none() {
        assert!(Instant::now() < end, "the node does not stop");
        std::thread::sleep(LOOK);
    }
}
