//! The greeting: what an agent says before its first frame, so that a client finds it behind
//! whatever a shell printed.
//!
//! Start-up files print what they like: lines, titles of terminals, words without an end of line.
//! So a greeting may begin anywhere in a line, and ends it. What comes before is passed over up to
//! a bound, and its end is kept to be shown when no greeting follows.

use crate::wire::frame::{Announced, Frame};
use crate::wire::hello::{Hello, PROTOCOL};
use driftless_lock::Mutex;
use driftless_model::escape;
use std::io::{self, BufRead, ErrorKind, Write};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// The first word on the line.
const GREETING: &str = "driftless-agent ";
/// What a shell may print before a greeting, in bytes.
pub const NOISE_BYTES_MAX: u64 = 4 << 20;
/// How long it may be silent once it has printed something.
const SILENCE: Duration = Duration::from_secs(30);
/// What is kept of a line that does not end, in bytes; a greeting is shorter.
const LINE_BYTES_MAX: usize = 4096;
/// What an agent says of itself has at most so many bytes: the numbers of all groups of a user
/// (`NGROUPS_MAX` of linux/limits.h), above all.
const HELLO_BYTES_MAX: usize = 1 << 20;
/// What is shown of what was heard in place of a greeting, in bytes.
const SHOWN_BYTES_MAX: usize = 200;
/// What is shown of another agent's version, in characters.
const VERSION_CHARS_MAX: usize = 40;
/// What may be behind it when something else was heard.
const QUESTION: &str = "check whether a start-up file of the shell there prints or waits";

/// Says who speaks.
pub fn greet(output: &mut impl Write, hello: &Hello) -> io::Result<()> {
    writeln!(output, "{GREETING}{PROTOCOL} {}", env!("CARGO_PKG_VERSION"))?;
    Frame::new(0, hello, Vec::new()).write(output)?;
    output.flush()
}

/// Why there is no greeting.
#[derive(Debug, PartialEq, Eq)]
pub enum Silence {
    /// The line ended.
    Ended,
    /// So much was said that was none that nobody listened any longer.
    Noise,
    /// The agent is another.
    Other {
        /// Its version.
        version: String,
        /// Its protocol.
        protocol: String,
    },
}

/// What was heard on a line so far. Clones share it: one thread listens, another looks at how long
/// nothing came.
#[derive(Debug, Default, Clone)]
pub struct Heard(Arc<Mutex<Noise>>);

#[derive(Debug, Default)]
struct Noise {
    bytes: u64,
    tail: Vec<u8>,
    last: Option<Instant>,
}

impl Heard {
    fn noise(&self) -> MutexGuard<'_, Noise> {
        self.0.lock()
    }

    /// Takes note of bytes; false if these were too many.
    fn note(&self, bytes: &[u8]) -> bool {
        let mut noise = self.noise();
        noise.bytes += bytes.len() as u64;
        noise.tail.extend_from_slice(bytes);
        keep_end(&mut noise.tail, SHOWN_BYTES_MAX);
        noise.last = Some(Instant::now());
        noise.bytes <= NOISE_BYTES_MAX
    }

    /// Whether something was said, and nothing since for so long that no greeting will follow.
    /// Before the first byte the connection is being made, which may take as long as somebody looks
    /// for a password.
    pub fn is_overdue(&self) -> bool {
        self.noise()
            .last
            .is_some_and(|last| last.elapsed() >= SILENCE)
    }

    /// The end of what was said, for a person; empty if nothing was.
    pub fn words(&self) -> String {
        let noise = self.noise();
        let said = noise.tail.trim_ascii();
        if said.is_empty() {
            String::new()
        } else {
            format!("what came was \"{}\"", escape(said))
        }
    }

    /// Why there is no greeting, with what may be behind it.
    pub fn question(&self) -> String {
        let words = self.words();
        if words.is_empty() {
            QUESTION.into()
        } else {
            format!("{words}: {QUESTION}")
        }
    }
}

fn keep_end(bytes: &mut Vec<u8>, bytes_max: usize) {
    let excess = bytes.len().saturating_sub(bytes_max);
    bytes.drain(..excess);
}

/// Reads on behind the first line that ends in `word` and something that `read` makes sense of;
/// nothing behind it is taken.
///
/// # Errors
/// The line fails, ends (`UnexpectedEof`), or says too much else (`InvalidData`).
pub fn find<T>(
    input: &mut impl BufRead,
    word: &str,
    heard: &Heard,
    mut read: impl FnMut(&str) -> Option<T>,
) -> io::Result<T> {
    let mut line = Vec::new();
    loop {
        let bytes = match input.fill_buf() {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            bytes => bytes?,
        };
        if bytes.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = &bytes[..end.map_or(bytes.len(), |end| end + 1)];
        line.extend_from_slice(taken);
        let (count, goes_on) = (taken.len(), heard.note(taken));
        input.consume(count);
        if end.is_some() {
            if let Some(found) = behind(&line, word).and_then(&mut read) {
                return Ok(found);
            }
            line.clear();
        }
        if !goes_on {
            return Err(ErrorKind::InvalidData.into());
        }
        keep_end(&mut line, LINE_BYTES_MAX);
    }
}

/// What follows on the last `word` of a line.
fn behind<'l>(line: &'l [u8], word: &str) -> Option<&'l str> {
    let word = word.as_bytes();
    let at = line
        .windows(word.len())
        .rposition(|window| window == word)?;
    std::str::from_utf8(&line[at + word.len()..]).ok()
}

/// The protocol and the version that follow on the first word, and nothing else. A protocol that no
/// agent of ours has may be anything.
fn protocol_and_version(rest: &str) -> Option<(String, String)> {
    let mut words = rest.split_whitespace().map(str::to_owned);
    let both = (words.next()?, words.next()?);
    words.next().is_none().then_some(both)
}

/// Finds the agent's greeting behind whatever the shell printed.
pub fn greeted(input: &mut impl BufRead, heard: &Heard) -> Result<Hello, Silence> {
    let (protocol, version) =
        find(input, GREETING, heard, protocol_and_version).map_err(|error| {
            if error.kind() == ErrorKind::InvalidData {
                Silence::Noise
            } else {
                Silence::Ended
            }
        })?;
    if protocol != PROTOCOL.to_string() {
        let clean = |text: &str| {
            escape(text.as_bytes())
                .chars()
                .take(VERSION_CHARS_MAX)
                .collect()
        };
        return Err(Silence::Other {
            version: clean(&version),
            protocol: clean(&protocol),
        });
    }
    let admit = |_: &mut _, announced: &Announced| {
        let fits = announced.head <= HELLO_BYTES_MAX && announced.data == 0;
        if fits {
            Ok(())
        } else {
            Err(ErrorKind::InvalidData.into())
        }
    };
    let hello = Frame::read_admitted(input, admit)
        .ok()
        .flatten()
        .and_then(|(frame, ())| frame.message().ok());
    hello.ok_or(Silence::Ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Read};

    /// Gives a few bytes at a time.
    struct Drops<'a>(&'a [u8], usize);

    impl Read for Drops<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(bytes.len());
            let (now, rest) = self.0.split_at(count);
            bytes[..count].copy_from_slice(now);
            self.0 = rest;
            Ok(count)
        }
    }

    fn behind_noise(noise: &[u8], each: usize) -> (Result<Hello, Silence>, Heard) {
        let mut line = noise.to_vec();
        greet(&mut line, &Hello::own()).expect("memory");
        let heard = Heard::default();
        (
            greeted(
                &mut BufReader::with_capacity(1 << 16, Drops(&line, each)),
                &heard,
            ),
            heard,
        )
    }

    #[test]
    fn a_greeting_is_found_behind_noise_of_any_form() {
        let title = b"\x1b]0;title\x07";
        let megabyte = b"words and words ".repeat(65536);
        let nothing = [0; 5000];
        let text =
            "Welcome: driftless-agent is installed here\ndriftless-agent 3\ndriftless-agent ";
        let twice = format!("{GREETING}{PROTOCOL} \n{GREETING}{GREETING}");
        let noises: [&[u8]; 9] = [
            b"",
            title,
            b"no end of line",
            &megabyte,
            &nothing,
            text.as_bytes(),
            twice.as_bytes(),
            b"\xff\xfe\n\xff",
            b"\n\r\n\r",
        ];
        for noise in noises {
            for each in [1, 7, 16, 1 << 16] {
                let (found, _) = behind_noise(noise, each);
                assert!(
                    found.is_ok(),
                    "{each} at a time: {}",
                    escape(&noise[..noise.len().min(100)])
                );
            }
        }
    }

    #[test]
    fn noise_has_an_end_and_its_last_words_are_shown() {
        let (found, heard) = behind_noise(&b"again\x07 ".repeat(1 << 20), 1 << 16);
        assert_eq!(found.err(), Some(Silence::Noise));
        assert!(
            heard.words().contains("again\\x07 again") && heard.words().len() < 4 * SHOWN_BYTES_MAX,
            "{}",
            heard.words()
        );
        let heard = Heard::default();
        assert_eq!(
            greeted(&mut &b"\x1b[31mhello"[..], &heard).err(),
            Some(Silence::Ended)
        );
        assert_eq!(heard.words(), "what came was \"\\x1b[31mhello\"");
    }

    #[test]
    fn an_agent_of_another_protocol_is_known_behind_noise() {
        let line = format!("no end of line{GREETING}999 9.9.9\n");
        let other = Silence::Other {
            version: "9.9.9".into(),
            protocol: "999".into(),
        };
        assert_eq!(
            greeted(&mut line.as_bytes(), &Heard::default()).err(),
            Some(other)
        );
    }

    #[test]
    fn only_a_line_that_has_said_something_is_overdue() {
        let heard = Heard::default();
        assert!(!heard.is_overdue(), "somebody may be typing a password");
        heard.note(b"Welcome");
        assert!(!heard.is_overdue());
        let long_ago = Instant::now()
            .checked_sub(SILENCE)
            .expect("this machine runs for longer");
        heard.noise().last = Some(long_ago);
        assert!(heard.is_overdue());
    }
}
