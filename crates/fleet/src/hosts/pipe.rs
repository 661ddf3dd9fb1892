//! Input from a mover on another host: its messages, and the errors that it and ssh print.

use crate::hosts::TICK;
use crate::hosts::launch::explains_more;
use driftless_lock::Mutex;
use driftless_remote::{Heard, SilenceLimit};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::process::ChildStdout;
use std::sync::Arc;
use std::time::Duration;

/// Time without a message after which a mover has hung or lost its host: a mover sends a heartbeat
/// each second.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(15);

/// Standard output of a mover; silence for too long is the end of it.
pub struct Pipe {
    pub output: ChildStdout,
    /// Limit to the time before the greeting; `None` once the mover has greeted.
    pub greeting: Option<SilenceLimit>,
}

impl Pipe {
    /// Waits for bytes of the greeting.
    ///
    /// # Errors
    /// The mover has not greeted within its time, whatever else came.
    fn wait_for_greeting(&self, limit: &mut SilenceLimit) -> io::Result<()> {
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: TICK.as_nanos() as i64,
        };
        loop {
            if limit.is_over() {
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    limit.words("greeting of the mover"),
                ));
            }
            if poll(&mut [PollFd::new(&self.output, PollFlags::IN)], Some(&tick))? > 0 {
                return Ok(());
            }
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if let Some(mut limit) = self.greeting.take() {
            let waited = self.wait_for_greeting(&mut limit);
            self.greeting = Some(limit);
            waited?;
            return self.output.read(bytes);
        }
        let limit = Timespec {
            tv_sec: SILENCE_TIMEOUT.as_secs() as i64,
            tv_nsec: 0,
        };
        match poll(
            &mut [PollFd::new(&self.output, PollFlags::IN)],
            Some(&limit),
        )? {
            0 => Err(io::Error::new(
                ErrorKind::TimedOut,
                format!("no heartbeat for {} s", SILENCE_TIMEOUT.as_secs()),
            )),
            _ => self.output.read(bytes),
        }
    }
}

/// The end of what ssh and the mover said on standard error.
pub type Complaint = Arc<Mutex<String>>;

/// Keeps the last line of what is said on standard error. A line of Slurm itself does not replace
/// one of the mover: srun(1) prints the exit code after it.
pub fn listen(stderr: std::process::ChildStderr) -> Complaint {
    let complaint = Complaint::default();
    let kept = complaint.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            let line = driftless_model::escape(line.trim_ascii());
            let mut kept = kept.lock();
            if !line.is_empty() && explains_more(&line, &kept) {
                *kept = line;
            }
        }
    });
    complaint
}

/// Returns the last line on standard error, or an empty text.
pub fn last_line(complaint: &Complaint) -> String {
    // The line may be on its way still.
    std::thread::sleep(TICK);
    complaint.lock().clone()
}

/// Returns the reason, followed by the last line on standard error.
pub fn complained(complaint: &Complaint, why: String) -> String {
    let said = last_line(complaint);
    if said.is_empty() {
        why
    } else {
        format!("{why}: {said}")
    }
}

/// Returns the reason for a missing greeting, with the output that came instead.
pub fn unheard(why: &io::Error, heard: &Heard) -> String {
    let why = match why.kind() {
        ErrorKind::InvalidData => "too much output before the greeting".into(),
        ErrorKind::UnexpectedEof => "the connection was closed".into(),
        _ => why.to_string(),
    };
    if heard.words().is_empty() {
        why
    } else {
        format!("{why}; {}", heard.question())
    }
}
