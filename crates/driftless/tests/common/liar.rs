//! Agents that lie to a client: real ones behind a man in the middle, who changes their words on
//! the way.
//!
//! Whatever is said, a run ends soon, with a code that tells the truth or with an error, never with
//! a bug, touches nothing outside of its roots, and takes a bounded amount of memory.

use super::far::agent;
use super::{driftless, put};
use driftless_remote::wire::{Frame, Hello, Listing, Reply, Request};
use driftless_testkit::{EVENT_MAX, FsKind, Outcome, Scratch, snapshot_hash};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// No run with a liar, and no agent with a hostile client, may take longer.
pub const END_MAX: Duration = EVENT_MAX;
/// A bug trap, a panic, an abort, a wild access.
pub const CRASHES: [i32; 5] = [70, 101, 134, 135, 139];
/// What a process may need for a tree of a few entries, whatever is said to it.
pub const RESIDENT_KIB_MAX: u64 = 400 << 10;
/// From 64 MiB on, files are copied in pieces.
pub const LARGE_BYTES: u64 = 70 << 20;

/// What is passed on in place of a reply: frames, or any bytes.
pub enum Told {
    Frames(Vec<Frame>),
    Bytes(Vec<u8>),
    /// These are the last, and the line ends.
    Last(Vec<u8>),
}

/// One message of the agent: the request that it answers, and itself.
pub struct Said<'a> {
    pub request: &'a Request,
    pub number: u64,
    pub reply: Reply,
    pub data: Vec<u8>,
}

impl Said<'_> {
    pub fn unchanged(self) -> Told {
        Told::Frames(vec![Frame::new(self.number, &self.reply, self.data)])
    }

    pub fn instead(&self, reply: &Reply) -> Told {
        Told::Frames(vec![Frame::new(self.number, reply, Vec::new())])
    }
}

pub type Lie = Box<dyn FnMut(Said<'_>) -> Told + Send>;

/// A real agent behind a man in the middle, reached by a command that takes the place of ssh.
pub struct Liar {
    /// What takes the place of ssh.
    pub command: String,
    _scratch: tempfile::TempDir,
}

impl Liar {
    pub fn new(lie: Lie) -> Liar {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen");
        let scratch = tempfile::tempdir().expect("temp folder");
        let script = scratch.path().join("connect");
        let port = listener.local_addr().expect("address").port();
        // The background part ends with the connection, the foreground part with the client.
        driftless_testkit::write_program(
            &script,
            &format!("#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/{port}\ncat <&3 &\nexec cat >&3\n"),
        );
        std::thread::spawn(move || {
            let (near, _) = listener.accept().expect("accept");
            speak(&near, lie);
        });
        Liar {
            command: script.to_str().expect("text").to_owned(),
            _scratch: scratch,
        }
    }

    pub fn run(&self, command: &str, ends: [OsString; 2], arguments: &[&str]) -> Outcome {
        let run = driftless()
            .args([command, "--streams=1", "--reconnect=0", "--ssh"])
            .arg(&self.command)
            .args(ends)
            .args(arguments);
        run.through(["/usr/bin/time", "-q", "-f", "resident %M"])
            .limit(END_MAX)
            .run()
    }
}

/// Carries what client and agent say, the agent's words as `lie` has them.
fn speak(near: &TcpStream, mut lie: Lie) {
    let mut agent = Command::new(agent())
        .arg("agent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("an agent");
    let asked: Arc<Mutex<HashMap<u64, Request>>> = Arc::default();
    let (mut to_agent, from_agent) = (
        agent.stdin.take().expect("piped"),
        agent.stdout.take().expect("piped"),
    );
    let mut from_client = near.try_clone().expect("clone");
    let noted = asked.clone();
    let listener = std::thread::spawn(move || {
        while let Ok(Some(frame)) = Frame::read(&mut from_client) {
            if let Ok(request) = frame.message() {
                noted
                    .lock()
                    .expect("no panic")
                    .insert(frame.number(), request);
            }
            if frame
                .write(&mut to_agent)
                .and_then(|()| to_agent.flush())
                .is_err()
            {
                break;
            }
        }
    });
    pass_on(&mut BufReader::new(from_agent), near, &asked, &mut lie);
    let _ = near.shutdown(Shutdown::Both);
    let _ = agent.kill();
    let _ = agent.wait();
    let _ = listener.join();
}

fn pass_on(
    from: &mut BufReader<ChildStdout>,
    mut near: &TcpStream,
    asked: &Mutex<HashMap<u64, Request>>,
    lie: &mut Lie,
) {
    let mut greeting = Vec::new();
    let _ = from.read_until(b'\n', &mut greeting);
    let mut hello: Hello = Frame::read(from)
        .expect("a frame")
        .expect("a hello")
        .message()
        .expect("a hello");
    // A client that wants content to be compressed is told that it is.
    hello.compresses = true;
    let hello = Frame::new(0, &hello, Vec::new());
    if near
        .write_all(&greeting)
        .and_then(|()| hello.write(&mut near))
        .is_err()
    {
        return;
    }
    while let Ok(Some(frame)) = Frame::read(from) {
        let number = frame.number();
        let reply = frame.message().expect("the agent speaks properly");
        if matches!(reply, Reply::Alive) {
            if frame.write(&mut near).is_err() {
                return;
            }
            continue;
        }
        let request = asked
            .lock()
            .expect("no panic")
            .remove(&number)
            .expect("the agent answers what was asked");
        let done = match lie(Said {
            request: &request,
            number,
            reply,
            data: frame.data,
        }) {
            Told::Frames(frames) => frames.iter().try_for_each(|frame| frame.write(&mut near)),
            Told::Bytes(bytes) => near.write_all(&bytes),
            Told::Last(bytes) => return drop(near.write_all(&bytes)),
        };
        if done.is_err() {
            return;
        }
    }
}

/// Two trees and something beside them that nobody may touch.
pub struct Stage {
    pub scratch: Scratch,
    pub src: PathBuf,
    pub dst: PathBuf,
    pub outside: PathBuf,
}

impl Stage {
    pub fn new() -> Stage {
        let scratch = Scratch::new(FsKind::Tmpfs, 300);
        let (src, dst, outside) = (
            scratch.dir("src"),
            scratch.dir("dst"),
            scratch.dir("outside"),
        );
        for name in ["a", "sub/b", "sub/deeper/c", "other/d", "other/e"] {
            put(&src.join(name), name.repeat(1000));
        }
        std::os::unix::fs::symlink("a", src.join("link")).expect("symlink");
        // Large, for its size; what it holds is little, so that many stages can be made.
        put(&src.join("large"), vec![5u8; 3 << 20]);
        fs::File::options()
            .write(true)
            .open(src.join("large"))
            .and_then(|file| file.set_len(LARGE_BYTES))
            .expect("size");
        put(&dst.join("sub/old"), "was here");
        put(&outside.join("victim"), "untouched");
        put(&outside.join("folder/file"), "untouched");
        Stage {
            scratch,
            src,
            dst,
            outside,
        }
    }

    pub fn ends(&self, pull: bool) -> [OsString; 2] {
        let far = |path: &Path| {
            let mut typed = OsString::from("liar:");
            typed.push(path);
            typed
        };
        if pull {
            [far(&self.src), self.dst.clone().into()]
        } else {
            [self.src.clone().into(), far(&self.dst)]
        }
    }

    /// What stands beside the trees.
    pub fn beside(&self) -> (u128, Vec<OsString>) {
        let names = fs::read_dir(self.scratch.path())
            .expect("list")
            .map(|entry| entry.expect("entry").file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        (snapshot_hash(&self.outside, true), names)
    }
}

/// Runs a sync with a liar and checks what must hold whatever it says.
pub fn with_liar(pull: bool, context: &str, lie: Lie) -> (Stage, Outcome) {
    let stage = Stage::new();
    let (beside, source) = (stage.beside(), snapshot_hash(&stage.src, true));
    let liar = Liar::new(lie);
    let outcome = liar.run("sync", stage.ends(pull), &["--delete", "--jobs=4"]);
    assert!(
        !CRASHES.contains(&outcome.code()),
        "{context}: a crash\n{}",
        outcome.describe()
    );
    assert_eq!(
        stage.beside(),
        beside,
        "{context}: something outside was touched\n{}",
        outcome.describe()
    );
    assert_eq!(
        snapshot_hash(&stage.src, true),
        source,
        "{context}: the source was touched\n{}",
        outcome.describe()
    );
    let text = outcome.stderr_text();
    let resident = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("resident ")?.trim().parse::<u64>().ok());
    assert!(
        resident.expect("how much memory it took") < RESIDENT_KIB_MAX,
        "{context}: memory\n{}",
        outcome.describe()
    );
    (stage, outcome)
}

/// A lie about listings that a client must not believe.
pub fn about_listings(mut change: impl FnMut(&mut Listing) + Send + 'static) -> Lie {
    Box::new(move |mut said: Said<'_>| {
        if let Reply::Listing(listing) | Reply::Entered(_, Some(listing)) = &mut said.reply {
            change(listing);
        }
        said.unchanged()
    })
}

pub fn answering(with: impl Fn() -> Reply + Send + 'static, which: fn(&Request) -> bool) -> Lie {
    Box::new(move |said: Said<'_>| {
        if which(said.request) {
            said.instead(&with())
        } else {
            said.unchanged()
        }
    })
}
