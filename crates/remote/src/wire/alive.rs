//! Signs of life: how each side of a stream knows that the other is still there.
//!
//! Each side says something at least every few seconds, and takes a stream on which nothing came
//! for much longer for lost. So it does not matter what carries the stream, and what that notices
//! of a host that has lost its power, or of a process that was stopped. The client gives up first:
//! when it is back, the agent that it left is on its way out. Only the time counts that this side
//! was awake and listened: a side that slept hears what has come meanwhile before it judges.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use rustix::fs::Timespec;
use rustix::io::Errno;
use std::io::{self, ErrorKind, Read};
use std::time::Duration;

/// Who has said nothing for so long says that it is there.
pub const BEAT: Duration = Duration::from_secs(3);
/// An agent that is silent for so many seconds is lost.
pub const AGENT_SILENCE_SECONDS: u32 = 20;
/// A client that is silent for so many seconds is gone.
pub const CLIENT_SILENCE_SECONDS: u32 = 30;
/// Between two looks at whether to listen on.
const TICK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Asked each second, and before each piece that is read: an error ends the listening.
pub type Wanted<'a> = Box<dyn FnMut() -> io::Result<()> + Send + 'a>;

/// The end of a stream at which somebody listens.
pub struct Ear<'a, R> {
    stream: R,
    wanted: Wanted<'a>,
    /// Ticks of silence that end the stream.
    ticks_max: u32,
    /// Ticks that may pass before anything was heard.
    first_ticks_max: u32,
}

impl<'a, R: Read + AsFd> Ear<'a, R> {
    /// Listens for as long as it takes.
    pub fn new(stream: R) -> Self {
        Ear {
            stream,
            wanted: Box::new(|| Ok(())),
            ticks_max: u32::MAX,
            first_ticks_max: u32::MAX,
        }
    }

    /// From now on listens only while `wanted` says so, and for so many seconds to a silent stream,
    /// the first time for so many.
    pub fn watch(&mut self, wanted: Wanted<'a>, (first_seconds_max, seconds_max): (u32, u32)) {
        (self.wanted, self.ticks_max, self.first_ticks_max) =
            (wanted, seconds_max, first_seconds_max);
    }

    /// An error says that nobody can say anything any more, whatever was said and not read yet.
    pub fn check_open(&self) -> io::Result<()> {
        let mut end = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match poll(&mut end, Some(&now)) {
            Ok(1..)
                if end[0]
                    .revents()
                    .intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR) =>
            {
                Err(ErrorKind::BrokenPipe.into())
            }
            _ => Ok(()),
        }
    }

    /// Waits until there is something to read, or the end.
    fn listen(&mut self) -> io::Result<()> {
        let mut ticks = 0;
        loop {
            (self.wanted)()?;
            match poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&TICK)) {
                Ok(0) => ticks += 1,
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if ticks >= self.first_ticks_max {
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    format!("no heartbeat for {ticks} s"),
                ));
            }
        }
    }
}

impl<R: Read + AsFd> Read for Ear<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.listen()?;
        self.first_ticks_max = self.ticks_max;
        self.stream.read(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    fn stream() -> (File, File) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        (
            std::os::fd::OwnedFd::from(reader).into(),
            std::os::fd::OwnedFd::from(writer).into(),
        )
    }

    #[test]
    fn silence_ends_a_line_and_a_word_does_not() {
        let (reader, mut writer) = stream();
        let mut ear = Ear::new(reader);
        ear.watch(Box::new(|| Ok(())), (1, 1));
        writer.write_all(b"a").expect("write");
        let mut bytes = [0; 4];
        assert_eq!(ear.read(&mut bytes).expect("a word"), 1);
        assert_eq!(
            ear.read(&mut bytes).expect_err("silence").kind(),
            ErrorKind::TimedOut
        );
        drop(writer);
        assert_eq!(ear.read(&mut bytes).expect("the end"), 0);
    }

    #[test]
    fn nobody_listens_to_what_is_not_wanted() {
        let (reader, _writer) = stream();
        let mut asked = 0;
        let mut ear = Ear::new(reader);
        let wanted = move || {
            asked += 1;
            if asked > 2 {
                Err(ErrorKind::BrokenPipe.into())
            } else {
                Ok(())
            }
        };
        ear.watch(Box::new(wanted), (100, 100));
        assert_eq!(
            ear.read(&mut [0]).expect_err("an end").kind(),
            ErrorKind::BrokenPipe
        );
    }
}
