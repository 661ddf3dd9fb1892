//! The question whether something shall be done that cannot be undone.

use super::Failure;
use crate::exit::Exit;
use crate::signals::Signals;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Errno;
use std::io::{IsTerminal, Write};
use std::sync::atomic::Ordering::Relaxed;

/// Between two looks at whether a signal has come while a question waits for its answer.
const ANSWER_LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Asks the user whether it shall be done. A signal that asks for the end is the answer no.
pub fn agree(is_agreed: bool, what: &str, signals: &Signals) -> Result<(), Failure> {
    if is_agreed {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        let why = format!(
            "{what}: cannot ask: standard input is not a terminal; add --yes (nothing was changed)"
        );
        return Err((Exit::Usage, why));
    }
    let mut asked = std::io::stderr();
    let _nobody_reads_it = write!(asked, "{what}. Go on? [y/N] ").and_then(|()| asked.flush());
    let mut answer = String::new();
    if is_answered(signals) {
        let _no_answer_is_none = std::io::stdin().read_line(&mut answer);
    } else {
        // The next line begins below the question.
        let _nobody_reads_it = writeln!(asked);
    }
    match (answer.trim(), signals.number()) {
        ("y" | "yes", 0) => Ok(()),
        (_, 0) => Err((Exit::CouldNotRun, format!("{what}: not done"))),
        (_, number) => Err((Exit::Signal(number), format!("{what}: not done"))),
    }
}

/// Waits for a line of the terminal; returns `false` if a signal comes first. A signal does not end
/// a read that waits: the handlers of signals have interrupted reads go on.
fn is_answered(signals: &Signals) -> bool {
    let stdin = std::io::stdin();
    while !signals.stop.load(Relaxed) {
        let mut lines = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut lines, Some(&ANSWER_LOOK)) {
            Ok(0) | Err(Errno::INTR) => {}
            _ => return true,
        }
    }
    false
}
