//! Reaching another host: the system's own `ssh` starts the agent there, so that the user's configuration, keys and jump hosts just work.

use crate::agent::write_all;
use crate::alive::{AGENT_BEGINNING_SECONDS, AGENT_SILENCE_SECONDS, Ear};
use crate::carrier::{silent, spawn_there, tuned};
use crate::compress::FrameCompressor;
use crate::deploy::{Deploy, bring};
use crate::dir::{Foretold, Line, place};
use crate::ending::Ending;
use crate::greeting::{Heard, Silence, greeted};
use crate::identity::{Identity, Met};
use crate::limits::Limits;
use crate::lines::{Children, Further, Told};
use crate::link::{Link, nonsense};
use crate::wire::{Announced, Frame, Hello, Opening, PROTOCOL, Reply, Request, Root, WireFault, bad};
use crossbeam_channel::{Receiver, unbounded};
use driftless_lock::Mutex;
use driftless_model::{Act, Keep, Side, errno, escape};
use driftless_tree::{Answer, Gate, Host, Loss, Place, RootError};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// Bytes that are read or written at once.
const LINE_BYTES: usize = 256 * 1024;
/// What is kept of what ssh and the agent say on standard error, in bytes.
const COMPLAINT_BYTES_MAX: usize = 4096;
/// How long ssh has to end after its line was closed.
const PARTING: Duration = Duration::from_secs(2);
/// How long a host may take to be connected to for the first time. Somebody may have to type passwords, for which OpenSSH's server gives two
/// minutes (sshd_config(5), `LoginGraceTime`).
const CONNECTING: Duration = Duration::from_secs(300);
/// Between two looks at whether to wait on for the agent's greeting.
pub const TICK: Duration = Duration::from_millis(20);
/// Exit code of a shell that does not find a command (POSIX, "Exit Status for Commands").
const NOT_FOUND: i32 = 127;

/// How a host is reached.
#[derive(Debug, Clone)]
pub struct Reach {
    /// The command that connects, with its arguments.
    pub ssh: Vec<String>,
    /// The agent's program there: a command with its arguments, never empty; the last word is the program itself.
    pub agent: Vec<String>,
    /// Which attributes are kept.
    pub keep: Keep,
    /// How many connections carry data; found out if `None`.
    pub streams: Option<usize>,
    /// At which level of zstd content is compressed on its way, if at all.
    pub compress: Option<i32>,
    /// What is copied there if there is no agent, or one of another version.
    pub deploy: Option<Deploy>,
    /// Set when the run is to end: nobody waits for a host any more then, neither for a connection nor, beyond some seconds, for an answer.
    pub stop: Arc<AtomicBool>,
}

impl Reach {
    /// Whether the run is to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// Why a host cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// The command that connects cannot be started.
    #[error("\"{command}\": cannot start: {}", driftless_model::cause(cause))]
    NoSsh {
        /// The command.
        command: String,
        /// Why.
        cause: io::Error,
    },
    /// There is no agent there.
    #[error(
        "{host}: there is no \"{agent}\" there: install driftless on it, name its place with --agent-path, or have it copied there with --deploy{complaint}"
    )]
    NoAgent {
        /// The host.
        host: String,
        /// The program that was looked for.
        agent: String,
        /// What was said about it.
        complaint: String,
    },
    /// The agent speaks another protocol.
    #[error("{host}: the agent there is driftless {version}, which speaks protocol {protocol}; this is {own}, which speaks {PROTOCOL}: install the same version on both, or use --deploy", own = env!("CARGO_PKG_VERSION"))]
    OtherVersion {
        /// The host.
        host: String,
        /// Its version.
        version: String,
        /// Its protocol.
        protocol: String,
    },
    /// The line ended before the agent spoke.
    #[error("{host}: no connection{complaint}")]
    NoLine {
        /// The host.
        host: String,
        /// What was said about it.
        complaint: String,
        /// It would end so again.
        for_good: bool,
    },
    /// Something else spoke there, and the agent did not.
    #[error("{host}: no agent speaks there; {heard}")]
    NoGreeting {
        /// The host.
        host: String,
        /// What was said in its place, and what may be behind that.
        heard: String,
    },
    /// The agent could not be brought there.
    #[error("{host}: cannot deploy the agent: {why}")]
    NotDeployed {
        /// The host.
        host: String,
        /// Why.
        why: String,
    },
    /// Another machine answers to the name.
    #[error("{host}: \"{now}\" answers now, and the run began on \"{first}\": run again with the name of one of them")]
    OtherHost {
        /// What was connected to.
        host: String,
        /// What it called itself at first.
        first: String,
        /// What it calls itself now.
        now: String,
    },
    /// It took longer than whoever asked wanted to wait.
    #[error("{0}: no answer")]
    NoAnswer(String),
}

/// Exit code of ssh when it could not connect (ssh(1), "EXIT STATUS").
pub const SSH_FAILED: i32 = 255;
/// How lines end that OpenSSH says itself (log.c, `do_log`); those of a shell or a program there come without a carriage return.
const OWN_END: &[u8] = b"\r\n";
/// What OpenSSH says (sshconnect.c, sshconnect2.c, readconf.c) when connecting again leads to the same.
const FOR_GOOD: [&str; 7] = [
    "Permission denied",
    "Too many authentication failures",
    "Host key verification failed",
    "REMOTE HOST IDENTIFICATION HAS CHANGED",
    "Unable to negotiate",
    "Bad owner or permissions",
    "Bad configuration option",
];

impl ReachError {
    /// Whether the host may be reached later: what is wrong is the network or the host, not what was asked for.
    pub fn may_pass(&self) -> bool {
        match self {
            ReachError::NoAnswer(_) | ReachError::NoGreeting { .. } | ReachError::OtherHost { .. } => true,
            ReachError::NoLine { for_good, .. } => !for_good,
            _ => false,
        }
    }
}

/// Another host, reached through ssh.
pub struct SshHost {
    name: String,
    reach: Reach,
    /// By what an agent knows those that were started for the same run.
    token: String,
    identity: Identity,
    limits: Limits,
    roots: Vec<Root>,
    line: Arc<Line>,
    children: Children,
    told: Arc<Told>,
}

/// The end of what was said on standard error, and whether all of it is here.
pub type Complaint = Arc<Mutex<(Vec<u8>, bool)>>;

/// Whether ssh itself says that it could not connect and would not another time either.
fn is_for_good(code: Option<i32>, complaint: &Complaint) -> bool {
    let said = complaint.lock();
    let mut own = said.0.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(OWN_END));
    code == Some(SSH_FAILED) && own.any(|line| FOR_GOOD.iter().any(|words| String::from_utf8_lossy(line).contains(words)))
}

/// What was said, as one line for a person.
fn one_line(said: &[u8]) -> String {
    let lines = said.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    lines.map(escape).collect::<Vec<_>>().join("; ")
}

impl SshHost {
    /// Connects to `name`, which is what ssh takes: a host or `user@host`. Nothing but these roots can be used there.
    pub fn connect(name: &str, roots: Vec<Root>, reach: &Reach) -> Result<Arc<SshHost>, ReachError> {
        let (mut reach, token) = (tuned(name, reach), format!("{:032x}", fastrand::u128(..)));
        let arguments = agent_arguments(&reach, &format!("--run {token}"));
        let until = Instant::now() + CONNECTING;
        let give_up = || Instant::now() >= until;
        let opened = match (Opened::open(name, &reach, &arguments, &give_up), &reach.deploy) {
            (Err(ReachError::NoAgent { .. } | ReachError::OtherVersion { .. }), Some(program)) => {
                reach.agent = in_place_of(&reach.agent, bring(name, &reach, program)?);
                Opened::open(name, &reach, &arguments, &give_up)?
            }
            (opened, _) => opened?,
        };
        Ok(SshHost::over(opened, (name, roots), (reach, token), Arc::default()))
    }

    /// What the agent there lets its clients do.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Connects in place of this host, whose line was lost. Its agent is ended, if it has not noticed. Nobody is asked for a password,
    /// since nobody may be there any more. Polls `give_up`, and ends with [`ReachError::NoAnswer`] when that says so.
    pub fn connect_again(&self, give_up: &dyn Fn() -> bool) -> Result<Arc<SshHost>, ReachError> {
        // What the lost line still holds must not arrive there any more.
        for child in &mut *self.children() {
            end(child);
        }
        let silent = silent(&self.reach);
        let arguments = agent_arguments(&silent, &format!("--again {}", self.token));
        let mut opened = Opened::open(&self.name, &silent, &arguments, give_up)?;
        match self.identity.meets(&opened.hello.identity) {
            Met::Same => {}
            // What it reads of a source is what is there now.
            Met::Restarted if self.roots.iter().all(|root| root.side == Side::Source) => {}
            Met::Restarted => self.told.say(format!(
                "{}: it was started anew meanwhile: the content of what this run has changed there before is compared once more",
                self.name
            )),
            Met::Other => {
                part(&mut opened.child);
                let shown = |identity: &Identity| escape(&identity.host);
                return Err(ReachError::OtherHost {
                    host: self.name.clone(),
                    first: shown(&self.identity),
                    now: shown(&opened.hello.identity),
                });
            }
        }
        let reach = (self.reach.clone(), self.token.clone());
        Ok(SshHost::over(opened, (&self.name, self.roots.clone()), reach, self.told.clone()))
    }

    /// What the user should know and was not told yet.
    pub fn notes(&self) -> Vec<String> {
        self.told.take()
    }

    fn children(&self) -> MutexGuard<'_, Vec<Child>> {
        self.children.lock()
    }

    fn over(opened: Opened, (name, roots): (&str, Vec<Root>), (reach, token): (Reach, String), told: Arc<Told>) -> Arc<SshHost> {
        let (out, frames) = unbounded();
        out.send(Frame::new(0, &Opening { roots: roots.clone() }, Vec::new())).expect("both ends are here");
        let line = Arc::new(Line { link: Link::new(out), rights: opened.hello.rights.clone(), keep: reach.keep, gate: Gate::default() });
        let (identity, limits) = (opened.hello.identity.clone(), opened.hello.limits.clone());
        // A key with a command of its own may start an agent that knows nothing of it.
        let agreed = Reach { compress: reach.compress.filter(|_| opened.hello.compresses), ..reach.clone() };
        let child = opened.run(frames, (&line, &agreed), || ());
        let children = Arc::new(Mutex::new(vec![child]));
        Further::new(name, &silent(&agreed), (&line, &children), &told).begin();
        Arc::new(SshHost { name: name.into(), reach, token, identity, limits, roots, line, children, told })
    }
}

/// A connection on which the agent has greeted.
pub struct Opened {
    child: Child,
    input: BufReader<Ear<'static, ChildStdout>>,
    complaint: Complaint,
    /// What the agent said of itself.
    pub hello: Hello,
}

impl Opened {
    /// Connects and starts the agent with these arguments, unless `give_up` says that it takes too long.
    pub fn open(name: &str, reach: &Reach, arguments: &str, give_up: &dyn Fn() -> bool) -> Result<Opened, ReachError> {
        Opened::open_with(name, reach, (arguments, &[]), give_up)
    }

    /// Connects, and says these few bytes before anything else.
    pub fn open_with(
        name: &str,
        reach: &Reach,
        (arguments, said): (&str, &[u8]),
        give_up: &dyn Fn() -> bool,
    ) -> Result<Opened, ReachError> {
        let mut child = spawn(name, reach, arguments)?;
        // Nobody listens where ssh has ended, which is told by what it leaves behind. So few bytes wait for nobody (pipe(7)).
        let _it_is_told_below = child.stdin.as_mut().expect("it is piped").write_all(said);
        let complaint = Complaint::default();
        listen(child.stderr.take().expect("it is piped"), complaint.clone());
        let input = BufReader::with_capacity(LINE_BYTES, Ear::new(child.stdout.take().expect("it is piped")));
        // What ssh has started may keep the line open when ssh is gone, so nobody waits for this thread.
        let (tell, told) = unbounded();
        let heard = Heard::default();
        let listening = heard.clone();
        start("line-hello", input, move |mut input| {
            let hello = greeted(&mut input, &listening);
            let _nobody_waits_any_more = tell.send((hello, input));
        });
        loop {
            match told.recv_timeout(TICK) {
                Ok((Ok(hello), input)) => return Ok(Opened { child, input, complaint, hello }),
                Ok((Err(silence), _)) => return Err(explain(silence, &heard, (name, reach), (&mut child, &complaint))),
                Err(_) if heard.is_overdue() => return Err(unheard(name, &heard, &mut child)),
                Err(_) if give_up() || reach.is_stopped() => {
                    ask_to_end(&mut child);
                    return Err(ReachError::NoAnswer(name.into()));
                }
                Err(_) => {}
            }
        }
    }

    /// Ends it again.
    pub fn give_up(mut self) {
        part(&mut self.child);
    }

    /// Starts a thread for each direction, as it was `agreed` with the agent; returns ssh. Calls `lost` when the line is.
    pub fn run(self, frames: Receiver<Frame>, (line, agreed): (&Arc<Line>, &Reach), lost: impl FnOnce() + Send + 'static) -> Child {
        let Opened { mut child, mut input, complaint, .. } = self;
        let (compress, mut ending) = (agreed.compress, Ending::new(&agreed.stop, line));
        input.get_mut().watch(Box::new(move || ending.check()), (AGENT_BEGINNING_SECONDS, AGENT_SILENCE_SECONDS));
        let output = BufWriter::with_capacity(LINE_BYTES, child.stdin.take().expect("it is piped"));
        start("line-out", output, move |mut to: BufWriter<ChildStdin>| {
            let beat = || Frame::new(0, &Request::Alive, Vec::new());
            write_all(&mut to, (&frames, FrameCompressor::new(compress)), beat, |_| ());
        });
        let reading = line.clone();
        start("line-in", input, move |mut from| {
            let loss = read_all(&mut from, compress.is_some(), &reading.link, &complaint);
            lost();
            reading.link.lose(loss);
        });
        child
    }
}

/// The command that starts a program which was brought there, in place of the one that is missing: what starts it stays.
pub fn in_place_of(agent: &[String], brought: String) -> Vec<String> {
    let starting = agent.split_last().map_or(&[][..], |(_, starting)| starting);
    starting.iter().cloned().chain([brought]).collect()
}

/// What the first agent is started with; further ones hand their lines over to it. That both sides can compress, the protocol's number says.
fn agent_arguments(reach: &Reach, known_as: &str) -> String {
    reach.compress.map_or(format!("agent {known_as}"), |level| format!("agent --compress={level} {known_as}"))
}

fn spawn(name: &str, reach: &Reach, agent_arguments: &str) -> Result<Child, ReachError> {
    spawn_there(name, reach, &format!("{} {agent_arguments}", shell_words::join(&reach.agent)))
}

/// Starts a thread that works with one end of a line.
pub fn start<T: Send + 'static>(name: &str, end: T, work: impl FnOnce(T) + Send + 'static) {
    let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(end));
    thread.expect("a thread for each direction of the line can be started");
}

/// Keeps the end of what is said on standard error.
pub fn listen(stderr: ChildStderr, complaint: Complaint) {
    start("line-err", stderr, move |mut stderr: ChildStderr| {
        let mut bytes = [0; 1024];
        while let Ok(got @ 1..) = stderr.read(&mut bytes) {
            let kept = &mut complaint.lock().0;
            kept.extend_from_slice(&bytes[..got]);
            let excess = kept.len().saturating_sub(COMPLAINT_BYTES_MAX);
            kept.drain(..excess);
        }
        complaint.lock().1 = true;
    });
}

/// What was said, for a person. The line may end before the last word is heard, so this waits for that; not for ever, since a
/// process that stays behind may keep standard error open.
pub fn words(complaint: &Complaint) -> String {
    let since = Instant::now();
    while since.elapsed() < PARTING && !complaint.lock().1 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let said = complaint.lock();
    let said = one_line(&said.0);
    if said.is_empty() { said } else { format!(": {said}") }
}

/// There was much noise, or a long silence after it, and no greeting.
fn unheard(name: &str, heard: &Heard, child: &mut Child) -> ReachError {
    end(child);
    ReachError::NoGreeting { host: name.into(), heard: heard.question() }
}

/// Why there is no agent to talk to, from what was heard in place of its greeting and from how ssh has ended.
fn explain(silence: Silence, heard: &Heard, (name, reach): (&str, &Reach), (child, complaint): (&mut Child, &Complaint)) -> ReachError {
    let host = name.to_string();
    let (version, protocol) = match silence {
        Silence::Other { version, protocol } => (version, protocol),
        Silence::Noise => return unheard(name, heard, child),
        Silence::Ended => {
            let code = part(child);
            let heard = heard.words();
            let heard = if heard.is_empty() { heard } else { format!("; {heard}") };
            let said = words(complaint) + &heard;
            let said = if said.is_empty() { unsaid(code) } else { said };
            return match code {
                Some(NOT_FOUND) => ReachError::NoAgent { host, agent: reach.agent.join(" "), complaint: said },
                _ => ReachError::NoLine { host, complaint: said, for_good: is_for_good(code, complaint) },
            };
        }
    };
    part(child);
    ReachError::OtherVersion { host, version, protocol }
}

/// How ssh has ended, where nobody says why: at some levels of its own log it does not.
fn unsaid(code: Option<i32>) -> String {
    let how = code.map_or("was killed".into(), |code| format!("ended with exit code {code}"));
    format!(": the command that connects {how}, and said nothing")
}

/// Waits for ssh to end, and ends it if it does not.
pub fn part(child: &mut Child) -> Option<i32> {
    drop(child.stdin.take());
    let since = Instant::now();
    while since.elapsed() < PARTING {
        match child.try_wait() {
            Ok(Some(status)) => return status.code(),
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(_) => return None,
        }
    }
    end(child)
}

/// Asks ssh to end, which gives the terminal back where it asks for a password, and ends it if it does not.
pub fn ask_to_end(child: &mut Child) {
    let _it_may_have_ended = kill_process(Pid::from_child(child), Signal::TERM);
    part(child);
}

/// Ends ssh.
pub fn end(child: &mut Child) -> Option<i32> {
    let _it_may_have_ended = child.kill();
    child.wait().ok().and_then(|status| status.code())
}

fn read_all(line: &mut impl Read, compressed: bool, link: &Link<Answer>, complaint: &Complaint) -> Loss {
    let (why, is_mendable) = loop {
        // Memory is taken only for what is an answer, and no larger than was asked for.
        let admit = |_: &mut _, announced: &Announced| {
            announced.check_agreed(compressed)?;
            link.admit(announced).map_err(bad)
        };
        match Frame::read_admitted(line, admit) {
            Ok(Some((frame, ()))) if is_alive(&frame) => {}
            Ok(Some((frame, ()))) => {
                if let Err(why) = link.arrived(frame) {
                    break (bad(why).to_string(), false);
                }
            }
            Ok(None) => break (format!("the connection has ended{}", words(complaint)), true),
            Err(error) => break (error.to_string(), error.kind() != ErrorKind::InvalidData),
        }
    };
    Loss { why, is_mendable }
}

/// A sign of life, which answers nothing.
fn is_alive(frame: &Frame) -> bool {
    frame.number() == 0 && matches!(frame.message(), Ok(Reply::Alive))
}

impl Drop for SshHost {
    fn drop(&mut self) {
        let was_lost = self.line.link.lost().is_some();
        self.line.link.lose(Loss { why: "it was given up".into(), is_mendable: false });
        let mut children = std::mem::take(&mut *self.children());
        for child in &mut children {
            // Over a line that is lost nobody is told anything any more.
            if was_lost {
                end(child)
            } else {
                part(child)
            };
        }
    }
}

impl Host for SshHost {
    fn name(&self) -> &str {
        &self.name
    }

    fn machine(&self) -> &[u8] {
        &self.identity.machine
    }

    fn locate(&self, path: &Path, side: Side) -> Result<Place, RootError> {
        let named = self.roots.iter().position(|root| root.path == path.as_os_str().as_bytes() && root.side == side);
        let Some(root) = named else { return Err(self.refused(&request_path(path), &WireFault::new(Act::Open, errno::EACCES), side)) };
        let at = self.line.link.handle();
        let request = Request::Locate { root: root as u32, at };
        let mut foretold = Foretold::default();
        let located = match self.line.link.call_and(&request, Vec::new(), || foretold = Foretold::ask(&self.line, at)) {
            Ok((Reply::Located(located), _)) => place(&self.line, (side, at), located, foretold),
            Ok(_) => Err((request_path(path), nonsense())),
            Err(fault) => Err((request_path(path), fault)),
        };
        located.map_err(|(path, fault)| self.refused(&path, &fault, side))
    }

    fn answers(&self, wait: Duration) -> Vec<(u64, Answer)> {
        self.line.link.next_answers(wait)
    }

    fn round_trip(&self) -> Duration {
        self.line.link.round_trip()
    }

    fn lost(&self) -> Option<Loss> {
        self.line.link.lost()
    }
}

fn request_path(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

impl SshHost {
    fn refused(&self, path: &[u8], fault: &WireFault, side: Side) -> RootError {
        let fault = fault.on(side);
        let shown = [self.name.as_bytes(), b":", path].concat();
        let error = RootError::from_errno(&PathBuf::from(std::ffi::OsString::from_vec(shown)), fault.act, fault.errno);
        let limits = if fault.errno == errno::EACCES { self.limits.places() } else { None };
        limits.map_or(error.clone(), |places| error.with_hint(format!("the agent there lets this login in to {places} only")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ssh_itself_says_that_a_login_is_refused_for_good() {
        let cases: [(Option<i32>, &[u8], bool); 7] = [
            (Some(255), b"me@far: Permission denied (publickey).\r\n", true),
            (Some(255), b"Received disconnect from far port 22:2: Too many authentication failures\r\nDisconnected\r\n", true),
            (Some(255), b"bash: /opt/site.sh: Permission denied\nssh: connect to host far port 22: timed out\r\n", false),
            (Some(255), b"bash: /opt/site.sh: Permission denied\n", false),
            (Some(1), b"me@far: Permission denied (publickey).\r\n", false),
            (None, b"me@far: Permission denied (publickey).\r\n", false),
            (Some(255), b"", false),
        ];
        for (code, said, expected) in cases {
            let complaint = Complaint::new(Mutex::new((said.to_vec(), true)));
            assert_eq!(is_for_good(code, &complaint), expected, "{code:?} {}", one_line(said));
        }
    }

    #[test]
    fn what_ssh_says_is_one_line_without_its_line_ends() {
        let said = b"Permission denied, please try again.\r\nme@far: Permission \x1bdenied.\r\n\r\n";
        assert_eq!(one_line(said), r"Permission denied, please try again.; me@far: Permission \x1bdenied.");
    }

    #[test]
    fn what_starts_the_agent_starts_one_that_was_brought() {
        let words = |text: &str| shell_words::split(text).expect("words");
        assert_eq!(in_place_of(&words("sudo -n driftless"), "/cache/it".into()), words("sudo -n /cache/it"));
        assert_eq!(in_place_of(&words("driftless"), "/cache/it".into()), words("/cache/it"));
    }
}
