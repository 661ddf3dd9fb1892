//! A place for deposits on another host: ssh starts driftless there, which carries out the orders.

use crate::args::PutArgs;
use crate::command::put::place::DepositPlace;
use crate::command::put::wire::{
    DepositRow, GREETING, PROTOCOL, PlacedDeposit, PutOrder, PutReply, PutRequest, read, write,
};
use crate::command::reach::{self, Unreached};
use crate::command::site::usage;
use crate::exit::Exit;
use crate::signals::Signals;
use driftless_lock::Mutex;
use driftless_model::escape;
use driftless_remote::{
    Heard, Reach, SSH_FAILED, SilenceLimit, Target, bring, find, in_place_of, spawn_there,
    unstarted,
};
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Pause between two looks at a signal.
const TICK: Duration = Duration::from_millis(50);
/// Time for a program to end whose input or output has ended.
const END_GRACE: Duration = Duration::from_secs(2);
/// Bytes of standard error that are kept.
const COMPLAINT_BYTES_MAX: u64 = 4096;

/// Text of ssh and of the program there on standard error.
type RemoteWords = Arc<Mutex<Vec<u8>>>;

/// A home on another host.
pub struct RemotePlace {
    /// Host as the user typed it.
    typed: OsString,
    host: String,
    program: RunningProgram,
    signals: Signals,
}

/// A program that ssh started. Dropping the value ends it.
struct RunningProgram {
    child: Child,
    input: Option<ChildStdin>,
    replies: Receiver<PutReply>,
    complaint: RemoteWords,
}

impl RemotePlace {
    /// Starts driftless on the host that `--on` names, after a copy of it if `--deploy` asks for one.
    pub fn open(args: &PutArgs, host: &OsStr, signals: &Signals) -> Result<Self, Unreached> {
        let mut typed = host.to_owned();
        typed.push(":");
        let target = Target::parse(&typed).map_err(|error| usage(&format!("--on {error}")))?;
        let name = target
            .host
            .ok_or_else(|| usage("--on names no host: write --on HOST or --on USER@HOST"))?;
        let reach = reach::reach(&args.reach, &signals.stop)?;
        let program = start(&name, &reach, args).map_err(|why| match signals.number() {
            0 => (Exit::CouldNotRun, format!("{name}: {why}")),
            number => (
                Exit::Signal(number),
                "stopped before anything was done".into(),
            ),
        })?;
        Ok(RemotePlace {
            typed: host.to_owned(),
            host: name,
            program,
            signals: signals.clone(),
        })
    }

    fn ask(&mut self, order: &PutOrder) -> Result<PutReply, Unreached> {
        self.send(order)?;
        loop {
            match self.program.replies.recv_timeout(TICK) {
                Ok(PutReply::Failed(code, why)) => {
                    return Err((Exit::of_code(code), format!("{}: {why}", self.host)));
                }
                Ok(reply) => return Ok(reply),
                Err(RecvTimeoutError::Timeout) if self.signals.number() > 0 => {
                    let why = "stopped before the deposit was complete".to_owned();
                    return Err((Exit::Signal(self.signals.number()), why));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.lost()),
            }
        }
    }

    fn send(&mut self, order: &PutOrder) -> Result<(), Unreached> {
        let input = self.program.input.as_mut();
        let sent = input.is_some_and(|input| write(input, order).is_ok());
        match sent {
            true => Ok(()),
            false => Err(self.lost()),
        }
    }

    fn lost(&mut self) -> Unreached {
        let words = match self.program.last_words() {
            words if words.is_empty() => words,
            words => format!(": {words}"),
        };
        let why = format!(
            "{}: the connection was lost{words}; see \"driftless put --list\" there, and run the same command again",
            self.host
        );
        (Exit::CouldNotRun, why)
    }

    fn unexpected(&self) -> Unreached {
        let why = format!(
            "{}: driftless there gave another answer; install the same version",
            self.host
        );
        (Exit::CouldNotRun, why)
    }
}

impl DepositPlace for RemotePlace {
    fn list(&mut self) -> Result<Vec<DepositRow>, Unreached> {
        match self.ask(&PutOrder::List)? {
            PutReply::Deposits(rows) => Ok(rows),
            _ => Err(self.unexpected()),
        }
    }

    fn remove(&mut self, name: &OsStr) -> Result<(), Unreached> {
        match self.ask(&PutOrder::Remove(name.as_bytes().to_vec()))? {
            PutReply::Removed => Ok(()),
            _ => Err(self.unexpected()),
        }
    }

    fn begin(&mut self, request: &PutRequest) -> Result<PathBuf, Unreached> {
        match self.ask(&PutOrder::Begin(request.clone()))? {
            PutReply::Draft(path) => Ok(OsString::from_vec(path).into()),
            _ => Err(self.unexpected()),
        }
    }

    fn write(&mut self, data: Vec<u8>) -> Result<(), Unreached> {
        self.send(&PutOrder::Data(data))
    }

    fn commit(&mut self) -> Result<PlacedDeposit, Unreached> {
        match self.ask(&PutOrder::Commit)? {
            PutReply::Placed(deposit) => Ok(deposit),
            _ => Err(self.unexpected()),
        }
    }

    fn home(&self) -> Option<&Path> {
        None
    }

    fn typed(&self, path: &Path) -> PathBuf {
        let mut typed = self.typed.clone();
        typed.push(":");
        typed.push(path);
        typed.into()
    }
}

/// Starts the program, and copies it to the host first if it is missing there and may be copied.
fn start(name: &str, reach: &Reach, args: &PutArgs) -> Result<RunningProgram, String> {
    let started = start_program(name, reach, (&reach.agent, args));
    match (started, &reach.deploy) {
        (
            Err(StartError {
                lacks_program: true,
                ..
            }),
            Some(deploy),
        ) => {
            let brought = bring(name, reach, deploy).map_err(|error| error.to_string())?;
            let agent = in_place_of(&reach.agent, brought);
            start_program(name, reach, (&agent, args)).map_err(|error| error.cause)
        }
        (started, _) => started.map_err(|error| error.cause),
    }
}

/// Error of a start.
struct StartError {
    cause: String,
    /// Whether the host was reached, and has no such program.
    lacks_program: bool,
}

fn start_program(
    name: &str,
    reach: &Reach,
    (agent, args): (&[String], &PutArgs),
) -> Result<RunningProgram, StartError> {
    let failed = |cause: String| StartError {
        cause,
        lacks_program: false,
    };
    let mut words = agent.to_vec();
    words.extend(["put", "--serve"].map(str::to_owned));
    if let Some(socket) = &args.socket.gateway {
        let socket = socket.to_str().ok_or_else(|| {
            failed("the path of --gateway is not UTF-8; use another path".to_owned())
        })?;
        words.extend(["--gateway".to_owned(), socket.to_owned()]);
    }
    let spawned = spawn_there(name, reach, &shell_words::join(words));
    let mut child = spawned.map_err(|error| failed(error.to_string()))?;
    let mut limit = SilenceLimit::new(&child, reach.connecting);
    let (greeted, greeting) = channel();
    let (reply, replies) = channel();
    let heard = Heard::default();
    let output = child.stdout.take().map(|output| (output, heard.clone()));
    let complaint = listen(&mut child);
    if let Some((output, heard)) = output {
        let listening = move || hear(output, &heard, (&greeted, &reply));
        std::thread::spawn(listening);
    }
    let mut program = RunningProgram {
        input: child.stdin.take(),
        child,
        replies,
        complaint,
    };
    loop {
        match greeting.recv_timeout(TICK) {
            Ok(PROTOCOL) => return Ok(program),
            Ok(_) => {
                return Err(StartError {
                    cause:
                        "driftless there has another version; install this version or use --deploy"
                            .into(),
                    lacks_program: true,
                });
            }
            Err(RecvTimeoutError::Disconnected) => {
                let code = program.wait();
                return Err(StartError {
                    cause: unstarted(code, &program.last_words(), &heard.words()),
                    lacks_program: code.is_some_and(|code| code != SSH_FAILED),
                });
            }
            Err(RecvTimeoutError::Timeout) if limit.is_over() => {
                return Err(failed(limit.words("greeting")));
            }
            Err(RecvTimeoutError::Timeout) if reach.is_stopped() => {
                return Err(failed("stopped".into()));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Reads the greeting, and then replies until the output ends.
fn hear(output: ChildStdout, heard: &Heard, (greeted, reply): (&Sender<u32>, &Sender<PutReply>)) {
    let mut input = BufReader::new(output);
    let protocol = find(&mut input, GREETING, heard, |rest| rest.trim().parse().ok());
    let Ok(protocol) = protocol else { return };
    if greeted.send(protocol).is_err() {
        return;
    }
    while let Ok(Some(message)) = read(&mut input) {
        if reply.send(message).is_err() {
            return;
        }
    }
}

/// Keeps the first bytes on standard error.
fn listen(child: &mut Child) -> RemoteWords {
    let complaint = RemoteWords::default();
    if let Some(stderr) = child.stderr.take() {
        let kept = Arc::clone(&complaint);
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stderr);
            let mut bytes = Vec::new();
            let _the_end = (&mut lines)
                .take(COMPLAINT_BYTES_MAX)
                .read_to_end(&mut bytes);
            *kept.lock() = bytes;
            let _to_its_end = std::io::copy(&mut lines, &mut std::io::sink());
        });
    }
    complaint
}

impl RunningProgram {
    /// Returns the last line on standard error of a program that has ended.
    fn last_words(&mut self) -> String {
        self.wait();
        let bytes = self.complaint.lock();
        let last = bytes.lines().map_while(Result::ok).last();
        escape(last.unwrap_or_default().trim().as_bytes())
    }

    /// Waits a moment for the end of the program, and for its last words. Returns its exit code.
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

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // The end of its input ends the program. ssh ends with it, or is killed here.
        self.input.take();
        if self.wait().is_none() {
            let _ended_already = self.child.kill();
            let _it_was_killed = self.child.wait();
        }
    }
}
