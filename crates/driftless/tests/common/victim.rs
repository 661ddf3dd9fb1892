//! A client that says to a real agent what it likes.

use super::far::agent;
use super::liar::{CRASHES, END_MAX};
use driftless_model::{Keep, Kind, Side};
use driftless_remote::wire::{
    Frame, Located, Locked, Name, Opening, PROTOCOL, Reply, Request, Root,
};
use driftless_tree::Reach;
use std::ffi::CString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A name as it crosses the wire.
pub fn name(text: &str) -> Name {
    Name(CString::new(text).expect("no NUL"))
}

/// A real agent, and a client that says to it what it likes.
pub struct Victim {
    pub agent: Child,
    pub to: Option<ChildStdin>,
    pub from: BufReader<ChildStdout>,
    pub next: u64,
}

pub fn roots(paths: &[&Path], side: Side) -> Opening {
    use std::os::unix::ffi::OsStrExt;
    Opening {
        roots: paths
            .iter()
            .map(|path| Root {
                path: path.as_os_str().as_bytes().to_vec(),
                side,
            })
            .collect(),
    }
}

impl Victim {
    /// An agent that has not been told its roots yet.
    pub fn new() -> Victim {
        Victim::with(&["agent"])
    }

    pub fn with(arguments: &[&str]) -> Victim {
        let mut command = Command::new(agent());
        let mut agent = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("an agent");
        let mut from = BufReader::new(agent.stdout.take().expect("piped"));
        let mut greeting = String::new();
        from.read_line(&mut greeting).expect("a greeting");
        assert_eq!(
            greeting.split_whitespace().take(2).collect::<Vec<_>>(),
            ["driftless-agent", &PROTOCOL.to_string()]
        );
        let _hello = Frame::read(&mut from).expect("a frame").expect("a hello");
        let to = agent.stdin.take();
        Victim {
            agent,
            to,
            from,
            next: 1,
        }
    }

    /// An agent for these roots.
    pub fn letting_in(paths: &[&Path], side: Side) -> Victim {
        Victim::new().let_in(paths, side)
    }

    pub fn let_in(mut self, paths: &[&Path], side: Side) -> Victim {
        let mut bytes = Vec::new();
        Frame::new(0, &roots(paths, side), Vec::new())
            .write(&mut bytes)
            .expect("memory");
        self.say(&bytes);
        self
    }

    /// An agent for a replica, whose root has the number 1.
    pub fn of(replica: &Path) -> Victim {
        Victim::new().serving(replica)
    }

    pub fn serving(self, replica: &Path) -> Victim {
        let mut victim = self.let_in(&[replica], Side::Replica);
        let located = victim.ask(&Request::Locate { root: 0, at: 1 });
        assert!(
            matches!(located, Reply::Located(Located::Dir(_))),
            "{located:?}"
        );
        victim
    }

    pub fn say(&mut self, bytes: &[u8]) -> bool {
        self.to
            .as_mut()
            .is_some_and(|to| to.write_all(bytes).and_then(|()| to.flush()).is_ok())
    }

    pub fn send(&mut self, request: &Request, data: Vec<u8>) -> u64 {
        self.next += 1;
        let mut bytes = Vec::new();
        Frame::new(self.next, request, data)
            .write(&mut bytes)
            .expect("memory");
        self.say(&bytes);
        self.next
    }

    /// Asks and waits for the reply.
    pub fn ask(&mut self, request: &Request) -> Reply {
        self.ask_with(request, Vec::new())
    }

    pub fn ask_with(&mut self, request: &Request, data: Vec<u8>) -> Reply {
        let number = self.send(request, data);
        loop {
            let frame = Frame::read(&mut self.from)
                .expect("a frame")
                .expect("the agent lives");
            match frame.message().expect("the agent speaks properly") {
                Reply::Alive => {}
                reply => {
                    assert_eq!(frame.number(), number);
                    return reply;
                }
            }
        }
    }

    /// Asks for what the kernel must not let the agent do.
    pub fn is_denied(&mut self, request: &Request) {
        const EACCES: i32 = 13;
        match self.ask(request) {
            Reply::Lock(Locked::Missing(errno)) => assert_eq!(errno, EACCES, "{request:?}"),
            Reply::Fault(fault) | Reply::Located(Located::Refused(_, fault)) => {
                assert_eq!(
                    fault.on(Side::Replica).errno,
                    EACCES,
                    "{request:?}: {fault:?}"
                );
            }
            Reply::Removed(removed) => {
                let removed = removed.on(Side::Replica);
                let is_denied = matches!(removed.stuck[..], [(_, fault)] if fault.errno == EACCES);
                assert!(
                    removed.entries == 0 && is_denied,
                    "{request:?}: {removed:?}"
                );
            }
            other => panic!("{request:?}: {other:?}"),
        }
    }

    /// Says all this and hangs up behind it, whether or not the agent reads it.
    pub fn part_with(mut self, bytes: Vec<u8>, context: &str) -> (i32, String) {
        let mut to = self.to.take().expect("it is open");
        let speaker = std::thread::spawn(move || to.write_all(&bytes));
        let said = self.part(context);
        let _the_agent_may_have_ended_before = speaker.join().expect("speaker");
        said
    }

    /// Hangs up; the agent must end soon, without a crash. Returns its code and what it said.
    pub fn part(mut self, context: &str) -> (i32, String) {
        drop(self.to.take());
        let mut stderr = self.agent.stderr.take().expect("piped");
        let words = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let mut from = self.from;
        let rest = std::thread::spawn(move || std::io::copy(&mut from, &mut std::io::sink()));
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.agent.try_wait().expect("wait") {
                break status;
            }
            if since.elapsed() > END_MAX {
                let _ = self.agent.kill();
                let _ = self.agent.wait();
                panic!("{context}: the agent does not end when its client has");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let (words, _) = (words.join().expect("reader"), rest.join().expect("reader"));
        let code = status.code().unwrap_or(-1);
        assert!(
            code >= 0 && !CRASHES.contains(&code),
            "{context}: a crash: {status}\n{words}"
        );
        (code, words)
    }
}

/// The bit of a frame's number that says that its data are compressed.
pub const COMPRESSED: u64 = 1 << 63;

impl Victim {
    /// Sends a request with data that it says are compressed.
    pub fn send_compressed(&mut self, request: &Request, data: Vec<u8>) -> bool {
        self.next += 1;
        let mut bytes = Vec::new();
        Frame::new(self.next | COMPRESSED, request, data)
            .write(&mut bytes)
            .expect("memory");
        self.say(&bytes)
    }

    pub fn hear(&mut self) -> Reply {
        Frame::read(&mut self.from)
            .expect("a frame")
            .expect("the agent lives")
            .message()
            .expect("the agent speaks properly")
    }
}

/// Everything that opens, makes, renames or removes something below directory 2.
pub fn acts_in(file: &str, folder: &str) -> Vec<Request> {
    let (file, folder, new) = (name(file), name(folder), || name("new"));
    vec![
        Request::Enter {
            dir: 2,
            name: folder.clone(),
            at: 30,
            survey: None,
        },
        Request::Open {
            dir: 2,
            name: file.clone(),
            at: 31,
        },
        Request::Fetch {
            dir: 2,
            name: file.clone(),
            keep: Keep::default(),
        },
        Request::Reopen {
            dir: 2,
            name: file.clone(),
            at: 32,
        },
        Request::Create {
            dir: 2,
            name: new(),
            mode: 0o600,
            at: 33,
        },
        Request::MakeDir {
            dir: 2,
            name: new(),
            at: 34,
        },
        Request::Symlink {
            dir: 2,
            name: new(),
            target: c"x".into(),
        },
        Request::Node {
            dir: 2,
            name: new(),
            kind: Kind::Fifo,
            rdev: 0,
        },
        Request::Node {
            dir: 2,
            name: new(),
            kind: Kind::Socket,
            rdev: 0,
        },
        Request::Node {
            dir: 2,
            name: new(),
            kind: Kind::Char,
            rdev: 0x0103,
        },
        Request::Node {
            dir: 2,
            name: new(),
            kind: Kind::Block,
            rdev: 0x0103,
        },
        Request::Lock {
            dir: 2,
            name: Some(file.clone()),
            reach: Reach::Everywhere,
            at: 35,
        },
        Request::Lock {
            dir: 2,
            name: None,
            reach: Reach::Everywhere,
            at: 36,
        },
        Request::Rename {
            dir: 2,
            from: file.clone(),
            to: new(),
        },
        Request::Link {
            dir: 2,
            name: new(),
            from: 2,
            from_name: file.clone(),
            id: (1, 2),
        },
        Request::RemoveTree {
            dir: 2,
            name: folder.clone(),
            spared: None,
        },
        Request::Remove { dir: 2, name: file },
        Request::RemoveDir {
            dir: 2,
            name: folder,
        },
    ]
}

/// The most memory that a process has had, in KiB.
pub fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap_or("0 kB")
        .to_owned();
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number")
}

/// Device and inode of a file.
pub fn id_of(path: &Path) -> (u64, u64) {
    let meta = std::fs::metadata(path).expect("stat");
    (meta.dev(), meta.ino())
}
