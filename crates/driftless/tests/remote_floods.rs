//! Agents and clients that are flooded: memory stays under the bound of docs/remote.md, whatever
//! the other side says, and however much.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::agent;
use common::liar::CRASHES;
use common::put;
use driftless_model::{Keep, Side};
use driftless_remote::wire::{
    DATA_BYTES_MAX, Frame, Hello, Name, Opening, Reply, Request, Root, Survey,
};
use driftless_testkit::{FsKind, Scratch, attrs};
use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// What either side may take (docs/remote.md).
const RESIDENT_KIB_MAX: u64 = 256 << 10;
/// How long a flood that nobody takes may be pushed.
const FLOOD_MAX: Duration = Duration::from_secs(8);
/// What is said in one flood at most: more than anybody may keep.
const SAID_BYTES_MAX: u64 = 1 << 30;

fn name(text: impl Into<Vec<u8>>) -> Name {
    Name(CString::new(text).expect("no NUL"))
}

/// The most that a process has taken of memory so far, in KiB (proc_pid_status(5), `VmHWM`).
fn peak_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it lives");
    let told = status.lines().find_map(|line| {
        line.strip_prefix("VmHWM:")?
            .trim()
            .strip_suffix(" kB")?
            .trim()
            .parse()
            .ok()
    });
    told.expect("a number")
}

/// A real agent, and a client that says to it what it likes and listens only if it wants to.
struct Flooded {
    agent: Child,
    to: BufWriter<ChildStdin>,
    from: BufReader<ChildStdout>,
    number: u64,
}

impl Flooded {
    fn new(root: &Path, arguments: &[&str]) -> Flooded {
        let mut command = Command::new(agent());
        let mut agent = command
            .arg("agent")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("an agent");
        let (to, from) = (
            agent.stdin.take().expect("piped"),
            agent.stdout.take().expect("piped"),
        );
        let (to, mut from) = (BufWriter::with_capacity(1 << 20, to), BufReader::new(from));
        from.read_until(b'\n', &mut Vec::new()).expect("a greeting");
        let _hello: Hello = Frame::read(&mut from)
            .expect("a frame")
            .expect("a hello")
            .message()
            .expect("a hello");
        let mut flooded = Flooded {
            agent,
            to,
            from,
            number: 0,
        };
        let roots = vec![Root {
            path: root.as_os_str().as_bytes().to_vec(),
            side: Side::Replica,
        }];
        Frame::new(0, &Opening { roots }, Vec::new())
            .write(&mut flooded.to)
            .expect("it listens");
        let located = flooded.ask(&Request::Locate { root: 0, at: 1 });
        assert!(matches!(located, Reply::Located(_)), "{located:?}");
        flooded
    }

    fn say(&mut self, request: &Request, data: Vec<u8>) -> bool {
        self.number += 1;
        Frame::new(self.number, request, data)
            .write(&mut self.to)
            .is_ok()
    }

    fn ask(&mut self, request: &Request) -> Reply {
        assert!(
            self.say(request, Vec::new()) && self.to.flush().is_ok(),
            "it listens"
        );
        loop {
            let frame = Frame::read(&mut self.from)
                .expect("a frame")
                .expect("the agent lives");
            match frame.message().expect("it speaks properly") {
                Reply::Alive => {}
                reply => return reply,
            }
        }
    }

    fn flood(
        self,
        what: &str,
        heard: bool,
        mut next: impl FnMut(u64) -> (Request, Vec<u8>) + Send + 'static,
    ) {
        self.flood_frames(what, heard, move |round, number| {
            let (request, data) = next(round);
            Frame::new(number, &request, data)
        });
    }

    /// Says this again and again, until the agent ends, takes no more, or was told more than it may
    /// keep. `heard`: what it answers is read.
    fn flood_frames(
        mut self,
        what: &str,
        heard: bool,
        mut next: impl FnMut(u64, u64) -> Frame + Send + 'static,
    ) {
        let process = self.agent.id();
        let mut from = self.from;
        if heard {
            std::thread::spawn(move || std::io::copy(&mut from, &mut std::io::sink()));
        } else {
            // Open, and nobody reads.
            std::mem::forget(from);
        }
        let (mut to, mut number) = (self.to, self.number);
        let speaker = std::thread::spawn(move || {
            let (mut said, mut round) = (0, 0);
            while said < SAID_BYTES_MAX {
                (number, round) = (number + 1, round + 1);
                let frame = next(round, number);
                said += frame.bytes() + 100;
                if frame.write(&mut to).is_err() {
                    return;
                }
            }
            let _it_may_have_ended = to.flush();
            std::mem::forget(to);
        });
        let since = Instant::now();
        while since.elapsed() < FLOOD_MAX
            && !speaker.is_finished()
            && self.agent.try_wait().expect("wait").is_none()
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        // What it was told it may still be busy with.
        std::thread::sleep(Duration::from_millis(300));
        match self.agent.try_wait().expect("wait") {
            Some(status) => assert!(
                status.code().is_some_and(|code| !CRASHES.contains(&code)),
                "{what}: {status}"
            ),
            None => assert!(
                peak_kib(process) < RESIDENT_KIB_MAX,
                "{what}: {} KiB",
                peak_kib(process)
            ),
        }
        let _it_may_have_ended = self.agent.kill();
        let _ = self.agent.wait();
        let _it_hears_that_now = speaker.join();
    }
}

fn stage() -> (Scratch, PathBuf) {
    let scratch = Scratch::new(FsKind::Tmpfs, 900);
    let root = scratch.dir("root");
    (scratch, root)
}

fn survey(entries_max: u32) -> Survey {
    Survey {
        keep: Keep::default(),
        files: true,
        entries_max,
    }
}

#[test]
fn requests_that_wait_for_what_is_never_made_are_held_in_bounded_memory() {
    type Asked = (&'static str, fn() -> (Request, Vec<u8>));
    let asked: [Asked; 5] = [
        ("content", || {
            (
                Request::Write { file: 5, offset: 0 },
                vec![0; DATA_BYTES_MAX],
            )
        }),
        ("what has no reply", || {
            (Request::Forget { at: 5 }, Vec::new())
        }),
        ("notes", || {
            (
                Request::SaveProgress {
                    file: 5,
                    note: Some(vec![1; 15 << 20]),
                },
                Vec::new(),
            )
        }),
        ("little", || (Request::Meta { at: 5 }, Vec::new())),
        ("links", || {
            (
                Request::Symlink {
                    dir: 5,
                    name: name("a"),
                    target: CString::new(vec![b'x'; 4000]).expect("no NUL"),
                },
                Vec::new(),
            )
        }),
    ];
    for (what, request) in asked {
        let (_scratch, root) = stage();
        let mut flooded = Flooded::new(&root, &[]);
        // It waits for itself.
        assert!(flooded.say(
            &Request::MakeDir {
                dir: 5,
                name: name("a"),
                at: 5
            },
            Vec::new()
        ));
        flooded.flood(what, true, move |_| request());
    }
}

#[test]
fn answers_that_nobody_reads_are_held_in_bounded_memory() {
    let (_scratch, root) = stage();
    put(&root.join("large"), "");
    fs::File::options()
        .write(true)
        .open(root.join("large"))
        .and_then(|file| file.set_len(1 << 40))
        .expect("size");
    for number in 0..20_000 {
        put(&root.join(format!("many/{number:0200}")), "");
    }
    put(&root.join("whole"), vec![1; 250 << 10]);
    let marked = root.join("marked");
    put(&marked, "");
    for number in 0..200 {
        attrs::set_xattr(&marked, format!("user.{number}").as_bytes(), &[7; 60_000])
            .expect("an attribute");
    }
    let keep = Keep::default();
    type Asked = (&'static str, fn(Keep) -> Request);
    let asked: [Asked; 7] = [
        ("content", |_| Request::Read {
            file: 3,
            offset: 0,
            len: DATA_BYTES_MAX as u32,
        }),
        ("hashes", |_| Request::Digests {
            file: 3,
            range: 0..65_000,
            piece: 1,
        }),
        ("names", |_| Request::List {
            dir: 2,
            survey: survey(u32::MAX),
        }),
        ("a few names", |_| Request::List {
            dir: 2,
            survey: survey(500),
        }),
        ("attributes", |keep| Request::EntryXattrs {
            dir: 1,
            name: name("marked"),
            keep,
            long: true,
        }),
        ("whole files", |keep| Request::Fetch {
            dir: 1,
            name: name("whole"),
            keep,
        }),
        ("what is above", |_| Request::Lineage { dir: 2 }),
    ];
    for (what, request) in asked {
        let mut flooded = Flooded::new(&root, &[]);
        let _ = flooded.ask(&Request::Enter {
            dir: 1,
            name: name("many"),
            at: 2,
            survey: None,
        });
        let opened = flooded.ask(&Request::Open {
            dir: 1,
            name: name("large"),
            at: 3,
        });
        assert!(matches!(opened, Reply::Meta(_)), "{opened:?}");
        flooded.flood(what, false, move |_| (request(keep), Vec::new()));
    }
}

#[test]
fn files_with_many_megabytes_of_attributes_are_read_in_bounded_memory() {
    let (_scratch, root) = stage();
    let marked = root.join("d/marked");
    put(&marked, "");
    for number in 0..200 {
        attrs::set_xattr(&marked, format!("user.{number}").as_bytes(), &[7; 60_000])
            .expect("an attribute");
    }
    fs::hard_link(&marked, root.join("marked")).expect("a link");
    type Asked = (&'static str, fn(u64) -> Request);
    let asked: [Asked; 3] = [
        ("whole files", |_| Request::Fetch {
            dir: 1,
            name: name("marked"),
            keep: Keep::default(),
        }),
        ("short answers", |_| Request::EntryXattrs {
            dir: 1,
            name: name("marked"),
            keep: Keep::default(),
            long: false,
        }),
        ("listings", |round| Request::Enter {
            dir: 1,
            name: name("d"),
            at: 10 + round,
            survey: Some(survey(1)),
        }),
    ];
    for (what, request) in asked {
        let flooded = Flooded::new(&root, &[]);
        flooded.flood(what, true, move |round| (request(round), Vec::new()));
    }
}

#[test]
fn content_that_grows_when_it_is_opened_is_held_in_bounded_memory() {
    let (_scratch, root) = stage();
    let mut flooded = Flooded::new(&root, &["--compress=1"]);
    let made = flooded.ask(&Request::Create {
        dir: 1,
        name: name("new"),
        mode: 0o600,
        at: 2,
    });
    assert!(matches!(made, Reply::Meta(_)), "{made:?}");
    let bomb = compressed(DATA_BYTES_MAX);
    flooded.flood_frames("bombs", true, move |_, number| {
        let frame = Frame::new(number, &Request::Write { file: 2, offset: 0 }, Vec::new());
        frame.with_compressed(bomb.clone())
    });
}

/// Zeros, compressed.
fn compressed(len: usize) -> Vec<u8> {
    [
        &(len as u32).to_le_bytes(),
        &zstd::bulk::compress(&vec![0; len], 1).expect("memory")[..],
    ]
    .concat()
}

#[test]
fn objects_that_are_never_let_go_of_are_held_in_bounded_memory() {
    let (_scratch, root) = stage();
    for number in 0..3000 {
        put(&root.join(format!("many/{number:0200}")), "");
    }
    for (what, survey) in [("directories", None), ("listings", Some(survey(1)))] {
        let flooded = Flooded::new(&root, &[]);
        flooded.flood(what, true, move |round| {
            (
                Request::Enter {
                    dir: 1,
                    name: name("many"),
                    at: 10 + round,
                    survey,
                },
                Vec::new(),
            )
        });
    }
    let flooded = Flooded::new(&root, &[]);
    flooded.flood("what cannot be made", true, |round| {
        (
            Request::Enter {
                dir: 1,
                name: name("none"),
                at: 10 + round,
                survey: None,
            },
            Vec::new(),
        )
    });
}

#[test]
fn further_lines_without_end_are_held_in_bounded_memory() {
    const LINES: usize = 120;
    let (_scratch, root) = stage();
    let mut flooded = Flooded::new(&root, &[]);
    let Reply::Gathers { place, secret } = flooded.ask(&Request::Gather { secret: 7 }) else {
        panic!("no place for further lines")
    };
    let place = String::from_utf8(place).expect("text");
    // Each says most of the longest request. Those that are too many are not taken.
    let (mut longest, note) = (secret.to_le_bytes().to_vec(), vec![1; 15 << 20]);
    Frame::new(
        1,
        &Request::SaveProgress {
            file: 5,
            note: Some(note),
        },
        Vec::new(),
    )
    .write(&mut longest)
    .expect("memory");
    longest.pop();
    let longest = std::sync::Arc::new(longest);
    let mut lines: Vec<Child> = (0..LINES)
        .map(|_| {
            let mut command = Command::new(agent());
            let mut line = command
                .args(["agent", "--join", &place])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("a line");
            let (mut to, longest) = (line.stdin.take().expect("piped"), longest.clone());
            std::thread::spawn(move || to.write_all(&longest).map(|()| std::mem::forget(to)));
            line
        })
        .collect();
    std::thread::sleep(Duration::from_secs(3));
    let peak = peak_kib(flooded.agent.id());
    let _ = flooded.agent.kill();
    let _ = flooded.agent.wait();
    for line in &mut lines {
        let _it_ends_with_the_agent = line.kill();
        let _ = line.wait();
    }
    assert!(peak < RESIDENT_KIB_MAX, "{peak} KiB");
}
