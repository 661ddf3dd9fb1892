//! The library that announces, loaded into a program in C that changes files when it is told to.

use super::agent::Agent;
use driftless_testkit::Host;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock};

/// The library, built as it is for users.
pub fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let target = target.expect("the folder of the target");
    let mut cargo = Command::new(cargo);
    cargo.args(["build", "--offline", "--release", "-p", "driftless-shim"]);
    cargo.arg("--target-dir").arg(target);
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let output = output.expect("cargo starts");
    assert!(output.status.success(), "{output:?}");
    target.join("release/libdriftless_shim.so")
}

/// A program with the library, for whom the agent of this map listens.
pub fn covered(mut command: Command, map: &Path) -> Command {
    command.env("LD_PRELOAD", library());
    command.env("DRIFTLESS_SHIM_MAP", map);
    command
}

/// How the program is built: its name, and further words for the compiler.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Against the C library as it is loaded.
    Usual,
    /// With a C library of its own.
    Static,
    /// Such that it makes its system calls by number.
    Raw,
}

/// The program of `crates/shim/tests/programs/writer.c`.
fn compiled(kind: Kind) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock();
    let (name, word) = match kind {
        Kind::Usual => ("writer", "-O1"),
        Kind::Static => ("writer-static", "-static"),
        Kind::Raw => ("writer-raw", "-DRAW"),
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (program, made) = (
        folder.join(name),
        folder.join(format!("{name}-{}", std::process::id())),
    );
    let source = "../shim/tests/programs/writer.c";
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let mut compiler = Command::new("cc");
    compiler.args(["-w", word, "-o"]).arg(&made).arg(source);
    let output = compiler.output().expect("a C compiler");
    assert!(output.status.success(), "{output:?}");
    // Whole under its name at once: other test programs do the same.
    std::fs::rename(made, &program).expect("give it its name");
    program
}

/// The program at work, with the library.
pub struct Writer {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// How long some changes have taken.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    /// Calls that were timed.
    pub calls: u64,
    /// Of these, how many took more than a millisecond of the processor's time.
    pub slow: u64,
    /// The microseconds of the longest by the clock.
    pub longest_us: u64,
    /// How often the thread has waited for anything.
    pub waits: u64,
}

impl Writer {
    /// Starts one for whom this agent listens.
    pub fn beside(agent: &Agent, kind: Kind) -> Writer {
        Writer::started(covered(Command::new(compiled(kind)), &agent.map()))
    }

    /// The same on a host of a lab, for whom the agent of this map listens.
    pub fn on(host: &Host, map: &Path) -> Writer {
        Writer::started(covered(host.command(compiled(Kind::Usual)), map))
    }

    fn started(mut command: Command) -> Writer {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let orders = child.stdin.take().expect("its input");
        let answers = BufReader::new(child.stdout.take().expect("its output"));
        Writer {
            child,
            orders,
            answers,
        }
    }

    /// Has so many files of this name made, written, closed and renamed, and every third removed.
    pub fn change(&mut self, name: &Path, count: u64) -> Took {
        writeln!(self.orders, "{} {count}", name.display()).expect("say it");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        let numbers: Vec<u64> = line.split_whitespace().flat_map(str::parse).collect();
        let [calls, slow, longest_us, waits] = numbers[..] else {
            panic!("it has ended: {line:?}");
        };
        Took {
            calls,
            slow,
            longest_us,
            waits,
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _it_may_have_ended = self.child.kill();
        let _its_end = self.child.wait();
    }
}
