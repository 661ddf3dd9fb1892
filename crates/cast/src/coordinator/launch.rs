//! Connections of the coordinator to its nodes: ssh starts a node, or a daemon runs there already.

use crate::intake::PeerLink;
use crate::message::{
    ADDRESSES_MAX, NodeMessage, PROTOCOL, PeerOpening, decode, encode, kind, shown,
};
use crate::node::greeting::{NodeGreeting, read_greeting, write_coordinator};
use crate::settings::{CastNode, NodeAccess, SshStart};
use driftless_dataplane::{
    BundleEvent, BundleReceiver, BundleWait, DataEndpoint, ExpectedPeer, LinkBundle, LinkMessage,
    PeerKey, PeerTrust,
};
use driftless_lock::Mutex;
use driftless_model::{escape, escape_text};
use driftless_remote::{
    Heard, NOT_FOUND, ReachError, SSH_FAILED, SilenceLimit, bring, in_place_of, spawn_there,
    unstarted,
};
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Pause between two looks at a node that starts.
const TICK: Duration = Duration::from_millis(50);
/// Time for the first answer of a node that is connected.
const WELCOME_MAX: Duration = Duration::from_secs(10);
/// Time for a program to end whose output has ended.
const END_GRACE: Duration = Duration::from_secs(2);
/// Bytes of standard error that are kept.
const COMPLAINT_BYTES_MAX: usize = 2000;

/// A node that is connected.
pub(crate) struct ReachedNode {
    pub link: PeerLink,
    pub key: PeerKey,
    /// Addresses for other nodes, the one that the coordinator reached in front.
    pub addresses: Vec<SocketAddr>,
    pub version: String,
    /// The program that ssh started. It ends with this value.
    pub child: Option<StartedNode>,
}

/// State that connections need.
pub(crate) struct Launcher<'a> {
    pub endpoint: &'a DataEndpoint,
    pub trust: &'a PeerTrust,
    pub has_authority: bool,
    pub ssh: Option<&'a SshStart>,
    /// Program on a host, once it was brought there.
    pub programs: &'a Mutex<std::collections::HashMap<String, Vec<String>>>,
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
}

/// A program that ssh started. Dropping the value ends it.
pub(crate) struct StartedNode {
    child: Child,
    _input: Option<ChildStdin>,
    complaint: LastWords,
}

/// Last words on standard error.
type LastWords = Arc<Mutex<Vec<u8>>>;

impl StartedNode {
    /// Returns the last words of ssh and the node.
    fn complaint(&self) -> String {
        readable(self.complaint.lock().trim_ascii())
    }

    /// Waits for the end of the program, and for its last words. Returns its exit code, or `None` if
    /// it has none.
    fn wait(&mut self) -> Option<i32> {
        let begin = Instant::now();
        let mut code = None;
        while begin.elapsed() < END_GRACE {
            code = match self.child.try_wait() {
                Ok(status) => status.and_then(|status| status.code()),
                Err(_) => return None,
            };
            // The thread that listens has ended, and its share with it.
            if code.is_some() && Arc::strong_count(&self.complaint) == 1 {
                break;
            }
            std::thread::sleep(TICK);
        }
        code
    }
}

impl Drop for StartedNode {
    fn drop(&mut self) {
        // The end of its input ends a node. ssh ends with the node, or is killed here.
        self._input.take();
        let begin = Instant::now();
        while begin.elapsed() < END_GRACE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(TICK);
        }
        let _ended_already = self.child.kill();
        let _it_was_killed = self.child.wait();
    }
}

/// Cause of a start that failed.
struct StartFault {
    cause: String,
    lacks_program: bool,
    /// Whether the shell there found no such program.
    is_missing: bool,
}

/// Cause of an attempt to connect that failed.
pub(crate) struct NodeFault {
    /// Cause and remedy.
    pub cause: String,
    /// Whether a later attempt would fail for the same cause.
    pub is_final: bool,
}

impl<T: Into<String>> From<T> for NodeFault {
    fn from(cause: T) -> Self {
        NodeFault {
            cause: cause.into(),
            is_final: false,
        }
    }
}

/// Cause for which a program did not greet.
enum GreetFault {
    /// The output of the program ended.
    Ended {
        /// Output in the place of the greeting, in words.
        output: String,
    },
    /// Another cause, in words.
    Other(String),
}

impl Launcher<'_> {
    /// Connects to a node.
    ///
    /// # Errors
    /// Returns the cause and what to do.
    pub fn reach(&self, node: &CastNode) -> Result<ReachedNode, NodeFault> {
        match &node.access {
            NodeAccess::Ssh => self.start(node),
            NodeAccess::Daemon { host, port, peer } => {
                let addresses = resolve(host, *port)?;
                if let (ExpectedPeer::Key(key), false) = (peer, self.has_authority) {
                    self.trust.trust(*key);
                }
                Ok(self.connect(addresses, peer, None)?)
            }
        }
    }

    fn start(&self, node: &CastNode) -> Result<ReachedNode, NodeFault> {
        let ssh = self.ssh.ok_or("the settings have no way to start nodes")?;
        let known = self.programs.lock().get(&node.name).cloned();
        let program = known.unwrap_or_else(|| ssh.reach.agent.clone());
        let started = match (self.start_program(node, ssh, &program), &ssh.reach.deploy) {
            (Err(fault), Some(deploy)) if fault.lacks_program => {
                let brought = bring(&node.name, &ssh.reach, deploy);
                let brought = brought.map_err(|error| match error {
                    // The caller names the node.
                    ReachError::NotDeployed { why, .. } => {
                        format!("cannot deploy the program: {why}")
                    }
                    error => error.to_string(),
                })?;
                let program = in_place_of(&program, brought);
                let mut programs = self.programs.lock();
                programs.insert(node.name.clone(), program.clone());
                drop(programs);
                self.start_program(node, ssh, &program)
            }
            (started, _) => started,
        };
        let (started, greeting) = started.map_err(|fault| NodeFault {
            is_final: fault.is_missing && ssh.reach.deploy.is_none(),
            cause: fault.cause,
        })?;
        if self.has_authority {
            return Err("nodes that ssh starts have no certificate: use daemons, or cast without the authority".into());
        }
        self.trust.trust(greeting.key);
        let mut addresses: Vec<SocketAddr> = greeting
            .addresses
            .iter()
            .map(|address| SocketAddr::new(*address, greeting.port))
            .collect();
        let host = node.name.rsplit('@').next().unwrap_or(&node.name);
        // Names of ssh's configuration need not resolve.
        addresses.extend(resolve(host, greeting.port).unwrap_or_default());
        addresses.dedup();
        addresses.truncate(ADDRESSES_MAX);
        if addresses.is_empty() {
            return Err(format!(
                "cannot find the address of {host}: the name does not resolve, and its shell has no SSH_CONNECTION; give a name that resolves"
            )
            .into());
        }
        let key = ExpectedPeer::Key(greeting.key);
        Ok(self.connect(addresses, &key, Some(started))?)
    }

    fn start_program(
        &self,
        node: &CastNode,
        ssh: &SshStart,
        program: &[String],
    ) -> Result<(StartedNode, NodeGreeting), StartFault> {
        let fault = |cause: String| StartFault {
            cause,
            lacks_program: false,
            is_missing: false,
        };
        let line = shell_words::join(program.iter().chain(&ssh.arguments));
        let spawned = spawn_there(&node.name, &ssh.reach, &line);
        let mut child = spawned.map_err(|error| fault(error.to_string()))?;
        let limit = SilenceLimit::new(&child, ssh.reach.connecting);
        let output = child.stdout.take();
        let mut input = child.stdin.take();
        let complaint = listen(&mut child);
        if let Some(input) = &mut input {
            // A node that does not read it has ended, which its output tells.
            let _the_output_tells = write_coordinator(input, self.endpoint.key());
        }
        let mut started = StartedNode {
            child,
            _input: input,
            complaint,
        };
        let output = output.ok_or_else(|| fault("ssh has no output".into()))?;
        match self.greet(output, limit) {
            Ok(greeting) if greeting.protocol == PROTOCOL => Ok((started, greeting)),
            Ok(greeting) => Err(StartFault {
                cause: format!(
                    "driftless {} there speaks another protocol; install this version or use --deploy",
                    shown(&greeting.version)
                ),
                lacks_program: true,
                is_missing: false,
            }),
            Err(GreetFault::Other(cause)) => Err(fault(cause)),
            Err(GreetFault::Ended { output }) => {
                let code = started.wait();
                // The host was reached unless ssh itself failed.
                Err(StartFault {
                    cause: unstarted(code, &started.complaint(), &output),
                    lacks_program: code.is_some_and(|code| code != SSH_FAILED),
                    is_missing: code == Some(NOT_FOUND),
                })
            }
        }
    }

    /// Waits for the greeting of a node.
    fn greet(
        &self,
        output: ChildStdout,
        mut limit: SilenceLimit,
    ) -> Result<NodeGreeting, GreetFault> {
        let heard = Heard::default();
        let listening = heard.clone();
        let (tell, told) = channel();
        let wait = move || {
            let mut input = BufReader::new(output);
            let greeting = read_greeting(&mut input, &listening);
            let _the_caller_waits_no_more = tell.send(greeting);
            // A node that found its output closed would end.
            let _to_its_end = std::io::copy(&mut input, &mut std::io::sink());
        };
        let started = crate::stream::start_thread("greeting", wait);
        started.map_err(|error| GreetFault::Other(crate::Error::Thread(error).to_string()))?;
        loop {
            match told.recv_timeout(TICK) {
                Ok(Ok(greeting)) => return Ok(greeting),
                Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => {
                    let output = heard.words();
                    return Err(GreetFault::Ended { output });
                }
                Err(RecvTimeoutError::Timeout) if limit.is_over() => {
                    return Err(GreetFault::Other(limit.words("greeting of the node")));
                }
                Err(RecvTimeoutError::Timeout) if (self.is_stopped)() => {
                    return Err(GreetFault::Other("stopped".into()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Connects to a node that listens, and reads its welcome.
    fn connect(
        &self,
        mut addresses: Vec<SocketAddr>,
        peer: &ExpectedPeer,
        child: Option<StartedNode>,
    ) -> Result<ReachedNode, String> {
        let text = |error: driftless_dataplane::Error| match &child {
            Some(child) => match child.complaint() {
                words if words.is_empty() => error.to_string(),
                words => format!("{error}: {words}"),
            },
            None => error.to_string(),
        };
        let link = self.endpoint.connect(&addresses, peer).map_err(text)?;
        let reached = link.peer();
        let mut link = PeerLink::new(LinkBundle::from(link)).map_err(text)?;
        let opening = PeerOpening::Control { protocol: PROTOCOL };
        let sent = link
            .sender
            .send_control(kind::OPENING, &[&encode(&opening)]);
        sent.map_err(text)?;
        let welcome = match answer(&mut link.receiver, WELCOME_MAX, self.is_stopped) {
            Ok(Some(message)) => decode::<NodeMessage>(&message.bytes),
            Ok(None) => {
                Err("the daemon does not serve this host; add the key of this host (--trust) or the name in its certificate (--coordinator) to the daemon".into())
            }
            Err(cause) => Err(cause),
        };
        let version = match welcome? {
            NodeMessage::Welcome {
                protocol: PROTOCOL,
                version,
            } => shown(&version),
            NodeMessage::Welcome { version, .. } => {
                let version = shown(&version);
                return Err(format!(
                    "driftless {version} there speaks another protocol; install this version on all nodes"
                ));
            }
            _ => return Err("the node sent no welcome; run the same version on all nodes".into()),
        };
        addresses.retain(|address| *address != reached.address);
        addresses.insert(0, reached.address);
        addresses.truncate(ADDRESSES_MAX);
        Ok(ReachedNode {
            link,
            key: reached.key,
            addresses,
            version,
            child,
        })
    }
}

/// Waits for the next control message of a node. Returns `None` if the node ends the connection.
///
/// # Errors
/// The connection fails, the node sends something else, the limit is over, or `is_stopped` says so.
pub(crate) fn answer(
    receiver: &mut BundleReceiver,
    limit: Duration,
    is_stopped: &(dyn Fn() -> bool + Sync),
) -> Result<Option<LinkMessage>, String> {
    let begin = Instant::now();
    while begin.elapsed() < limit && !is_stopped() {
        match receiver.recv_within(TICK) {
            Ok(BundleWait::Event(BundleEvent::Control(message))) => return Ok(Some(message)),
            Ok(BundleWait::Event(_)) => return Err("the node sent no message".into()),
            Ok(BundleWait::End) => return Ok(None),
            Ok(BundleWait::Timeout) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    if is_stopped() {
        return Err("stopped".into());
    }
    let seconds = limit.as_secs();
    Err(format!(
        "the node has not answered for {seconds} s; look for processes in state D there"
    ))
}

fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found = (host, port).to_socket_addrs();
    found
        .map(|found| found.take(ADDRESSES_MAX).collect())
        .map_err(|error| {
            let cause = driftless_model::cause(&error);
            format!(
                "cannot find the address of {}: {cause}; check the name",
                shown(host)
            )
        })
}

/// Returns the last words as text. They are a sentence with quotes of its own, which stay.
fn readable(bytes: &[u8]) -> String {
    bytes.utf8_chunks().fold(String::new(), |text, chunk| {
        text + &escape_text(chunk.valid()) + &escape(chunk.invalid())
    })
}

/// Keeps the last words on standard error.
fn listen(child: &mut Child) -> LastWords {
    let complaint = LastWords::default();
    let Some(stderr) = child.stderr.take() else {
        return complaint;
    };
    let kept = Arc::clone(&complaint);
    let listening = move || {
        let mut input = BufReader::new(stderr);
        let mut line = Vec::new();
        let mut bounded = |line: &mut Vec<u8>| {
            let mut bounded = (&mut input).take(COMPLAINT_BYTES_MAX as u64);
            bounded.read_until(b'\n', line)
        };
        while matches!(bounded(&mut line), Ok(count) if count > 0) {
            if !line.trim_ascii().is_empty() {
                *kept.lock() = std::mem::take(&mut line);
            }
            line.clear();
        }
    };
    let _nothing_is_heard_then = crate::stream::start_thread("complaint", listening);
    complaint
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn quotes_of_a_node_are_not_escaped() {
        let text = readable(b"driftless: \"a\": cannot read\x1b\xff");
        assert_eq!(text, r#"driftless: "a": cannot read\x1b\xff"#);
    }
}
