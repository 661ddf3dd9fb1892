//! What the tests have in common: the library as it is shipped, a stand-in for the agent, and
//! programs in C.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Limit of a wait for an event that must come, on a loaded machine.
pub const EVENT_MAX: Duration = Duration::from_secs(300);

/// The folder in which cargo puts what it builds.
fn target() -> PathBuf {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    tmp.parent().expect("the folder of the target").to_owned()
}

/// The library, built as it is for users.
pub fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| built("release", &[])).clone()
}

/// The library for systems with an old C library, built as `make shim` does.
pub fn library_for_old_systems() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let variable = ("DRIFTLESS_SHIM_OLD_GLIBC", "1");
    BUILT.get_or_init(|| built("shim", &[variable])).clone()
}

fn built(profile: &str, variables: &[(&str, &str)]) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut cargo = Command::new(cargo);
    cargo.args(["build", "--offline", "-p", "driftless-shim"]);
    cargo
        .args(["--profile", profile, "--target-dir"])
        .arg(target());
    cargo
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .envs(variables.iter().copied());
    let output = cargo.output().expect("cargo starts");
    assert!(output.status.success(), "{output:?}");
    target().join(profile).join("libdriftless_shim.so")
}

/// The program of a file of `tests/programs`, compiled with further words.
pub fn compiled(name: &str, words: &[&str]) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let made = folder.join(format!("{name}-{}{}", std::process::id(), words.concat()));
    let mut compiler = match name {
        "parallel" => Command::new("mpicc"),
        _ => Command::new("cc"),
    };
    compiler.args(["-O1", "-w", "-pthread", "-o"]).arg(&made);
    compiler.arg(source.join(format!("{name}.c"))).args(words);
    let output = compiler.output().expect("a C compiler");
    assert!(output.status.success(), "{output:?}");
    // Whole under its name at once: other tests do the same.
    let program = folder.join(format!("shim-{name}{}", words.concat()));
    fs::rename(made, &program).expect("give it its name");
    program
}

/// What stands in for the agent: it writes the map, listens, and reads the spool and the gaps.
pub struct Agent {
    folder: TempDir,
    heard: Arc<Mutex<Vec<String>>>,
    listens: Option<JoinHandle<()>>,
}

/// What was announced, in order, and the gaps that were counted.
#[derive(Debug, PartialEq, Eq)]
pub struct Announced {
    pub all: Vec<String>,
    pub gaps: u64,
}

impl Agent {
    /// One that listens, and a tree with the files `f` and `d/g`, the link `l` to `f` and the empty
    /// directory `e`.
    pub fn new() -> Agent {
        let mut agent = Agent::without();
        agent.listen();
        agent
    }

    /// One that does not listen yet.
    pub fn without() -> Agent {
        let folder = tempfile::Builder::new().prefix("shim").tempdir();
        let agent = Agent {
            folder: folder.expect("a folder"),
            heard: Arc::default(),
            listens: None,
        };
        agent.plant();
        fs::create_dir(agent.at("spool")).expect("the spool");
        fs::write(agent.at("gaps"), [0; 8]).expect("the gaps");
        agent.write_map(fs::metadata(agent.tree()).expect("the tree").dev(), 1);
        agent
    }

    fn plant(&self) {
        let tree = self.tree();
        fs::create_dir_all(tree.join("d")).expect("a directory");
        fs::create_dir(tree.join("e")).expect("a directory");
        fs::write(tree.join("f"), "content").expect("a file");
        fs::write(tree.join("d/g"), "other").expect("a file");
        symlink("f", tree.join("l")).expect("a link");
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn tree(&self) -> PathBuf {
        self.at("tree")
    }

    /// Writes the map anew, as `crates/shim/src/config.rs` draws it.
    pub fn write_map(&self, device: u64, flags: u32) {
        let mut map = b"DRFTSHM1".to_vec();
        map.extend(flags.to_ne_bytes());
        map.extend(1_u32.to_ne_bytes());
        for (name, room) in [("socket", 112), ("spool", 512), ("gaps", 512)] {
            let path = self.at(name);
            let mut field = path.as_os_str().as_bytes().to_vec();
            assert!(field.len() < room, "{path:?} is too long");
            field.resize(room, 0);
            map.extend(field);
        }
        let tree = self.tree();
        let path = tree.as_os_str().as_bytes();
        map.extend(device.to_ne_bytes());
        map.extend((path.len() as u32).to_ne_bytes());
        map.extend(path);
        map.resize(map.len().next_multiple_of(8), 0);
        fs::write(self.at("map.new"), map).expect("the map");
        fs::set_permissions(self.at("map.new"), fs::Permissions::from_mode(0o644)).expect("modes");
        fs::rename(self.at("map.new"), self.at("map")).expect("its name");
    }

    /// Says of a map that another has taken its place.
    pub fn mark_replaced(map: &fs::File) {
        map.write_all_at(&3_u32.to_ne_bytes(), 8).expect("mark it");
    }

    pub fn listen(&mut self) {
        let socket = UnixDatagram::bind(self.at("socket")).expect("a socket");
        let (heard, tree) = (self.heard.clone(), self.tree());
        self.listens = Some(std::thread::spawn(move || {
            let mut message = [0; 10_000];
            loop {
                let len = socket.recv(&mut message).expect("a message");
                if &message[..len] == b"end" {
                    return;
                }
                heard
                    .lock()
                    .expect("heard")
                    .push(text_of(&message[..len], &tree));
            }
        }));
    }

    /// Ends listening, as an agent that is killed: the socket's name stays.
    pub fn fall_silent(&mut self) {
        let Some(thread) = self.listens.take() else {
            return;
        };
        let sender = UnixDatagram::unbound().expect("a socket");
        sender.send_to(b"end", self.at("socket")).expect("the end");
        thread.join().expect("the agent ends");
        self.wait_until_refused();
    }

    /// Waits until the kernel refuses messages: children that other tests start hold copies of the
    /// socket until they execute a program (fork(2)).
    fn wait_until_refused(&self) {
        let begin = Instant::now();
        let probe = UnixDatagram::unbound().expect("a socket");
        while probe.connect(self.at("socket")).is_ok() {
            assert!(begin.elapsed() < EVENT_MAX, "the socket stays open");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A program under the library, in the tree.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.tree())
            .env("LD_PRELOAD", library());
        command.env("DRIFTLESS_SHIM_MAP", self.at("map"));
        command
    }

    /// Runs a script of a shell's, which has to succeed.
    pub fn run(&self, shell: &str, script: &str) -> Output {
        let mut command = self.command(shell);
        let output = command.arg("-c").arg(script).output().expect("it starts");
        assert!(output.status.success(), "{shell}: {script}: {output:?}");
        output
    }

    pub fn gaps(&self) -> u64 {
        let gaps = fs::read(self.at("gaps")).expect("the gaps");
        gaps.try_into().map_or(0, u64::from_ne_bytes)
    }

    /// The file of this user in the spool.
    pub fn own_spool(&self) -> PathBuf {
        let user = fs::metadata("/proc/self").expect("this process").uid();
        self.at("spool").join(user.to_string())
    }

    /// The messages in the spool, each with its time in nanoseconds.
    pub fn spooled(&self) -> Vec<(u64, String)> {
        let bytes = fs::read(self.own_spool()).unwrap_or_default();
        let mut rest = bytes.as_slice();
        let mut found = Vec::new();
        while let Some((len, after)) = rest.split_first_chunk::<2>() {
            let len = usize::from(u16::from_ne_bytes(*len));
            let (record, after) = after.split_at(len);
            let (time, message) = record.split_first_chunk::<8>().expect("a time");
            let text = text_of(message, &self.tree());
            found.push((u64::from_ne_bytes(*time), text));
            rest = after;
        }
        found
    }

    /// All that was announced, and no more is heard.
    pub fn announced(&mut self) -> Announced {
        self.fall_silent();
        let mut all = std::mem::take(&mut *self.heard.lock().expect("heard"));
        all.extend(self.spooled().into_iter().map(|(_, text)| text));
        Announced {
            all,
            gaps: self.gaps(),
        }
    }

    /// What was announced, each once.
    pub fn announced_set(&mut self) -> BTreeSet<String> {
        let announced = self.announced();
        assert_eq!(announced.gaps, 0, "{:?}", announced.all);
        announced.all.into_iter().collect()
    }

    /// Waits until so many messages were heard.
    pub fn wait_for(&self, count: usize) {
        let begin = Instant::now();
        while self.heard.lock().expect("heard").len() < count {
            assert!(begin.elapsed() < EVENT_MAX, "{count} messages");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.fall_silent();
        }
    }
}

/// A message as a line: its letter, and the paths below the tree; those of temporary files with a
/// star.
fn text_of(message: &[u8], tree: &Path) -> String {
    assert_eq!(&message[..3], b"DS1");
    assert_eq!(message.last(), Some(&0), "it ends");
    let paths = message[4..message.len() - 1].split(|byte| *byte == 0);
    let mut text = char::from(message[3]).to_string();
    for path in paths {
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        let path = path.strip_prefix(tree).expect("a path in the tree");
        let path = path.as_os_str().as_bytes().escape_ascii().to_string();
        let path = match path.split_once("tmp_") {
            Some((before, _)) => format!("{before}tmp_*"),
            None => path,
        };
        text.push(' ');
        text.push_str(&path);
    }
    text
}

/// The set of words that a table names, of which each is a letter and a path.
pub fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(ToString::to_string).collect()
}
