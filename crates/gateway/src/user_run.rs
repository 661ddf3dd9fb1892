//! Programs that run as a user. The user may stop such a program, and holds up the gateway with
//! nothing: its output is bounded, and a program that does not end is killed or left alone.

use driftless_lock::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Cause of a run that the gateway ended.
pub(crate) const STOPPED: &str = "the gateway stopped the collection";
/// Longest pause between two looks at a program.
const TICK: Duration = Duration::from_millis(50);
/// Shortest one.
const TICK_MIN: Duration = Duration::from_millis(2);
/// Time for the end of a program after SIGTERM, and after SIGKILL: a file system that hangs can hold up
/// the latter.
const END_MAX: Duration = Duration::from_secs(3);
/// Time for the rest of the output of a program that ended: its children may hold the pipe.
const OUTPUT_MAX: Duration = Duration::from_secs(2);
/// Bytes of an output that are kept: the last ones.
const KEPT_BYTES: usize = 64 << 10;
/// Bytes of a message of a program that are shown.
const SHOWN_BYTES_MAX: usize = 2000;
/// Stack of a thread that reads, in bytes.
const STACK_BYTES: usize = 64 << 10;

/// Runs a program to its end, and returns the last part of its output.
///
/// # Errors
/// The program cannot be started, or `stop` was set: the program was killed then.
pub(crate) fn run(command: &mut Command, stop: &AtomicBool) -> Result<Output, String> {
    command.stdin(Stdio::null()).process_group(0);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| unstarted(command, &error))?;
    let stdout = child.stdout.take().map(LastBytes::of);
    let stderr = child.stderr.take().map(LastBytes::of);
    let status = wait(&mut child, stop);
    let until = Instant::now() + OUTPUT_MAX;
    let readers = [&stdout, &stderr];
    while readers
        .iter()
        .any(|one| one.as_ref().is_some_and(LastBytes::is_open))
    {
        if Instant::now() > until || status.is_err() {
            // Children of the program, which no other process waits for.
            signal(&child, Signal::KILL);
            break;
        }
        thread::sleep(TICK_MIN);
    }
    let taken = |reader: Option<LastBytes>| reader.map(|one| one.take()).unwrap_or_default();
    Ok(Output {
        status: status?,
        stdout: taken(stdout),
        stderr: taken(stderr),
    })
}

/// Waits for the end of a program, and ends it if `stop` is set.
fn wait(child: &mut Child, stop: &AtomicBool) -> Result<ExitStatus, String> {
    let begin = Instant::now();
    let mut stopped = None;
    loop {
        let ended = child.try_wait();
        if let Some(status) = ended.map_err(|error| driftless_model::cause(&error))? {
            return match stopped {
                Some(_) => Err(STOPPED.to_owned()),
                None => Ok(status),
            };
        }
        let now = Instant::now();
        match stopped {
            None if stop.load(Relaxed) => {
                signal(child, Signal::TERM);
                stopped = Some((now + END_MAX, Signal::TERM));
            }
            Some((until, Signal::TERM)) if now > until => {
                // A process that is stopped by a signal takes this one alone.
                signal(child, Signal::KILL);
                stopped = Some((now + END_MAX, Signal::KILL));
            }
            Some((until, _)) if now > until => {
                let id = child.id();
                return Err(format!(
                    "process {id} does not end, not even by SIGKILL: a file system hangs"
                ));
            }
            _ => {}
        }
        thread::sleep((begin.elapsed() / 10).clamp(TICK_MIN, TICK));
    }
}

/// Sends a signal to a program and its children.
fn signal(child: &Child, signal: Signal) {
    let _it_may_have_ended = kill_process_group(Pid::from_child(child), signal);
}

/// The last bytes of an output, read by a thread that this process does not wait for.
struct LastBytes {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: io::Result<JoinHandle<()>>,
}

impl LastBytes {
    fn of(mut from: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&bytes);
        let read = move || {
            let mut buffer = [0; 8192];
            loop {
                match from.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(count) => keep(&mut kept.lock(), buffer.get(..count).unwrap_or_default()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
        };
        let thread = thread::Builder::new().name("output".into());
        let thread = thread.stack_size(STACK_BYTES).spawn(read);
        LastBytes { bytes, thread }
    }

    fn is_open(&self) -> bool {
        self.thread
            .as_ref()
            .is_ok_and(|thread| !thread.is_finished())
    }

    fn take(self) -> Vec<u8> {
        std::mem::take(&mut *self.bytes.lock())
    }
}

/// Adds bytes, and drops the first ones of too many.
fn keep(kept: &mut Vec<u8>, bytes: &[u8]) {
    kept.extend_from_slice(bytes);
    if kept.len() > 2 * KEPT_BYTES {
        kept.drain(..kept.len() - KEPT_BYTES);
    }
}

/// Runs a program that has to succeed.
///
/// # Errors
/// As [`run`]; the last words of a program that failed.
pub(crate) fn run_well(command: &mut Command, stop: &AtomicBool) -> Result<Output, String> {
    let output = run(command, stop)?;
    match output.status.success() {
        true => Ok(output),
        false => Err(complaint(&output)),
    }
}

fn unstarted(command: &Command, error: &io::Error) -> String {
    let program = driftless_model::escape(command.get_program().as_bytes());
    format!("{program}: cannot start: {}", driftless_model::cause(error))
}

/// Returns the last words of a program that failed.
pub(crate) fn complaint(output: &Output) -> String {
    let words = String::from_utf8_lossy(&output.stderr);
    let begin = words.len().saturating_sub(SHOWN_BYTES_MAX);
    let last = words.get(begin..).unwrap_or(&words);
    let last: Vec<&str> = last.split_whitespace().collect();
    match last.is_empty() {
        true => format!("the run ended with {}", output.status),
        false => driftless_model::escape_text(&last.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_of_a_user_is_bounded() {
        let script = "head -c 9000000 /dev/zero; echo last";
        let output = run(&mut shell(script), &AtomicBool::new(false)).unwrap();
        assert!(output.status.success() && output.stdout.ends_with(b"\0last\n"));
        assert!(output.stdout.len() <= 2 * KEPT_BYTES);
    }

    #[test]
    fn child_with_the_pipe_holds_up_nothing() {
        let begin = Instant::now();
        let output = run(
            &mut shell("echo done; sleep 600 &"),
            &AtomicBool::new(false),
        )
        .unwrap();
        assert_eq!(output.stdout, b"done\n");
        assert!(begin.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn frozen_program_is_killed() {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let frozen = scope.spawn(|| run(&mut shell("kill -STOP $$; sleep 600"), &stop));
            stop.store(true, Relaxed);
            let ended = frozen.join().unwrap().unwrap_err();
            assert!(ended.contains("stopped"), "{ended}");
        });
    }
}
