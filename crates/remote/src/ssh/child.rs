//! The process that connects: how it is given up, and the threads that work with its ends.

use rustix::process::{Pid, Signal, kill_process};
use std::process::Child;
use std::time::{Duration, Instant};

/// How long ssh has to end after its stream was closed.
pub const PARTING_GRACE: Duration = Duration::from_secs(2);

/// Between two looks at whether to wait on for the agent's greeting.
pub const TICK: Duration = Duration::from_millis(20);

/// Starts a thread that works with one end of a stream.
pub fn start<T: Send + 'static>(name: &str, end: T, work: impl FnOnce(T) + Send + 'static) {
    let thread = std::thread::Builder::new()
        .name(name.into())
        .spawn(move || work(end));
    thread.expect("a thread for each direction of the line can be started");
}

/// Waits for ssh to end, and ends it if it does not.
pub fn part(child: &mut Child) -> Option<i32> {
    drop(child.stdin.take());
    let since = Instant::now();
    while since.elapsed() < PARTING_GRACE {
        match child.try_wait() {
            Ok(Some(status)) => return status.code(),
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(_) => return None,
        }
    }
    end(child)
}

/// Asks ssh to end, which gives the terminal back where it asks for a password, and ends it if it
/// does not.
pub fn ask_to_end(child: &mut Child) {
    let _it_may_have_ended = kill_process(Pid::from_child(child), Signal::TERM);
    part(child);
}

/// Ends ssh.
pub fn end(child: &mut Child) -> Option<i32> {
    let _it_may_have_ended = child.kill();
    child.wait().ok().and_then(|status| status.code())
}
