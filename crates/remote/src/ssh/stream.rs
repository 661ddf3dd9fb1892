//! One connection through ssh: it is there when the agent has greeted on it, and has a thread for
//! each direction from then on.

use crate::client::{Client, ending::Ending};
use crate::ssh::child::{TICK, ask_to_end, end, part, start};
use crate::ssh::complaint::{
    Complaint, is_for_good, is_missing, is_restricted, listen, unsaid, words,
};
use crate::ssh::reach::{Reach, ReachError};
use crate::ssh::silence::SilenceLimit;
use crate::ssh::spawn::spawn_there;
use crate::wire::alive::{AGENT_SILENCE_SECONDS, BEAT, Ear};
use crate::wire::handshake::{Heard, Silence, greeted};
use crate::wire::send::{FrameCompressor, write_all};
use crate::wire::{Announced, Frame, Hello, Reply, Request, bad};
use crossbeam_channel::{Receiver, unbounded};
use driftless_tree::Loss;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::Arc;

/// Bytes that are read or written at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// A connection on which the agent has greeted.
pub struct Stream {
    child: Child,
    input: BufReader<Ear<'static, ChildStdout>>,
    complaint: Complaint,
    /// What the agent said of itself.
    pub hello: Hello,
}

impl Stream {
    /// Connects and starts the agent with these arguments, unless `give_up` says that it takes too
    /// long.
    pub fn open(
        name: &str,
        reach: &Reach,
        arguments: &str,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Stream, ReachError> {
        Stream::open_with(name, reach, (arguments, &[]), give_up)
    }

    /// Connects, and says these few bytes before anything else.
    pub fn open_with(
        name: &str,
        reach: &Reach,
        (arguments, said): (&str, &[u8]),
        give_up: &dyn Fn() -> bool,
    ) -> Result<Stream, ReachError> {
        let mut child = spawn(name, reach, arguments)?;
        // Nobody listens where ssh has ended, which is told by what it leaves behind. So few bytes
        // wait for nobody (pipe(7)).
        let _it_is_told_below = child.stdin.as_mut().expect("it is piped").write_all(said);
        let complaint = Complaint::default();
        listen(child.stderr.take().expect("it is piped"), complaint.clone());
        let input = BufReader::with_capacity(
            BUFFER_BYTES,
            Ear::new(child.stdout.take().expect("it is piped")),
        );
        // What ssh has started may keep the stream open when ssh is gone, so nobody waits for this
        // thread.
        let (tell, told) = unbounded();
        let heard = Heard::default();
        let listening = heard.clone();
        start("stream-hello", input, move |mut input| {
            let hello = greeted(&mut input, &listening);
            let _nobody_waits_any_more = tell.send((hello, input));
        });
        let mut limit = SilenceLimit::new(&child, reach.connecting);
        loop {
            match told.recv_timeout(TICK) {
                Ok((Ok(hello), input)) => {
                    return Ok(Stream {
                        child,
                        input,
                        complaint,
                        hello,
                    });
                }
                Ok((Err(silence), _)) => {
                    return Err(explain(
                        silence,
                        &heard,
                        (name, reach),
                        (&mut child, &complaint),
                    ));
                }
                Err(_) if heard.is_overdue() => return Err(unheard(name, &heard, &mut child)),
                Err(_) if limit.is_over() => {
                    ask_to_end(&mut child);
                    return Err(silent(name, &limit, &(words(&complaint), &heard)));
                }
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

    /// Starts a thread for each direction, as it was `agreed` with the agent; returns ssh. Calls
    /// `lost` when the stream is.
    pub fn run(
        self,
        frames: Receiver<Frame>,
        (client, agreed): (&Arc<Client>, &Reach),
        lost: impl FnOnce() + Send + 'static,
    ) -> Child {
        let Stream {
            mut child,
            mut input,
            complaint,
            ..
        } = self;
        // The agent looks for its roots before its first word.
        let first = agreed.connecting.max(2 * BEAT).as_secs();
        let first_seconds = u32::try_from(first).unwrap_or(u32::MAX);
        let (compress, mut ending) = (agreed.compress, Ending::new(&agreed.stop, client));
        input.get_mut().watch(
            Box::new(move || ending.check()),
            (first_seconds, AGENT_SILENCE_SECONDS),
        );
        let output =
            BufWriter::with_capacity(BUFFER_BYTES, child.stdin.take().expect("it is piped"));
        start(
            "stream-out",
            output,
            move |mut to: BufWriter<ChildStdin>| {
                let beat = || Frame::new(0, &Request::Alive, Vec::new());
                write_all(
                    &mut to,
                    (&frames, FrameCompressor::new(compress)),
                    beat,
                    |_| (),
                );
            },
        );
        let reading = client.clone();
        start("stream-in", input, move |mut from| {
            let loss = read_all(&mut from, compress.is_some(), &reading, &complaint);
            lost();
            reading.connection.lose(loss);
        });
        child
    }
}

/// There was much noise, or a long silence after it, and no greeting.
fn unheard(name: &str, heard: &Heard, child: &mut Child) -> ReachError {
    end(child);
    ReachError::NoGreeting {
        host: name.into(),
        heard: heard.question(),
    }
}

/// Returns the error for a host that has not greeted within its time, with what it and ssh said.
fn silent(name: &str, limit: &SilenceLimit, (said, heard): &(String, &Heard)) -> ReachError {
    let heard = heard.words();
    let heard = if heard.is_empty() {
        heard
    } else {
        format!("; {heard}")
    };
    ReachError::Silent {
        host: name.into(),
        why: format!("{}{said}{heard}", limit.words("greeting of the agent")),
    }
}

fn read_all(
    stream: &mut impl Read,
    compressed: bool,
    client: &Client,
    complaint: &Complaint,
) -> Loss {
    let connection = &client.connection;
    let (why, is_mendable) = loop {
        // Memory is taken only for what is an answer, and no larger than was asked for.
        let admit = |_: &mut _, announced: &Announced| {
            announced.check_agreed(compressed)?;
            connection.admit(announced).map_err(bad)
        };
        match Frame::read_admitted(stream, admit) {
            Ok(Some((frame, ()))) if is_alive(&frame) => {}
            Ok(Some((frame, ()))) => {
                if let Err(why) = connection.arrived(frame) {
                    break (bad(why).to_string(), false);
                }
            }
            Ok(None) => {
                break (
                    format!("the connection has ended{}", words(complaint)),
                    true,
                );
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                // A host that cannot be used when the run begins is an error at once.
                let is_in_use = client.is_again || connection.answers_come() > 0;
                let since = if is_in_use {
                    ""
                } else {
                    " after the greeting of the agent"
                };
                break (format!("{}: {error}{since}", client.host), is_in_use);
            }
            Err(error) => break (error.to_string(), error.kind() != ErrorKind::InvalidData),
        }
    };
    Loss { why, is_mendable }
}

/// A sign of life, which answers nothing.
fn is_alive(frame: &Frame) -> bool {
    frame.number() == 0 && matches!(frame.message(), Ok(Reply::Alive))
}

fn spawn(name: &str, reach: &Reach, agent_arguments: &str) -> Result<Child, ReachError> {
    spawn_there(
        name,
        reach,
        &format!("{} {agent_arguments}", shell_words::join(&reach.agent)),
    )
}

/// Says why the line ended before a greeting, from how ssh has ended and what was said.
fn explain_end(
    code: Option<i32>,
    heard: &Heard,
    (host, reach): (String, &Reach),
    complaint: &Complaint,
) -> ReachError {
    // All of it has arrived then.
    let complained = words(complaint);
    let heard = heard.words();
    let is_restricted = is_restricted(code, complaint, &heard);
    let heard = if heard.is_empty() {
        heard
    } else {
        format!("; {heard}")
    };
    let said = complained + &heard;
    let said = if said.is_empty() { unsaid(code) } else { said };
    if is_restricted {
        ReachError::Restricted {
            host,
            complaint: said,
        }
    } else if is_missing(code, &reach.agent, complaint) {
        ReachError::NoAgent {
            host,
            agent: reach.agent.join(" "),
            complaint: said,
        }
    } else {
        ReachError::NoConnection {
            host,
            complaint: said,
            for_good: is_for_good(code, complaint),
        }
    }
}

/// Why there is no agent to talk to, from what was heard in place of its greeting and from how ssh
/// has ended.
fn explain(
    silence: Silence,
    heard: &Heard,
    (name, reach): (&str, &Reach),
    (child, complaint): (&mut Child, &Complaint),
) -> ReachError {
    let host = name.to_string();
    let (version, protocol) = match silence {
        Silence::Other { version, protocol } => (version, protocol),
        Silence::Noise => return unheard(name, heard, child),
        Silence::Ended => {
            let code = part(child);
            return explain_end(code, heard, (host, reach), complaint);
        }
    };
    part(child);
    ReachError::OtherVersion {
        host,
        version,
        protocol,
    }
}
