//! The greeting: what an agent says before its first frame, so that a client finds it behind whatever a shell printed.

use crate::wire::{Frame, Hello, PROTOCOL};
use driftless_model::escape;
use driftless_tree::{Rights, this_machine};
use std::io::{self, BufRead, Read, Write};

/// The first word on the line.
const GREETING: &str = "driftless-agent";
/// What a shell may print before the agent speaks, in bytes.
const NOISE_BYTES_MAX: u64 = 64 * 1024;
/// What is shown of another agent's version, in characters.
const VERSION_CHARS_MAX: usize = 40;

/// Says who speaks.
pub fn greet(output: &mut impl Write) -> io::Result<()> {
    writeln!(output, "{GREETING} {PROTOCOL} {}", env!("CARGO_PKG_VERSION"))?;
    let hello = Hello { rights: Rights::own(), machine: this_machine() };
    Frame::new(0, &hello, Vec::new()).write(output)?;
    output.flush()
}

/// Why there is no greeting.
#[derive(Debug, PartialEq, Eq)]
pub enum Silence {
    /// The line ended.
    Ended,
    /// The agent is another.
    Other {
        /// Its version.
        version: String,
        /// Its protocol.
        protocol: String,
    },
}

/// Finds the agent's greeting behind whatever the shell printed.
pub fn greeted(input: &mut impl BufRead) -> Result<Hello, Silence> {
    let mut noise = 0;
    while noise < NOISE_BYTES_MAX {
        let mut text = Vec::new();
        let got = input.by_ref().take(NOISE_BYTES_MAX).read_until(b'\n', &mut text).unwrap_or(0);
        if got == 0 {
            break;
        }
        noise += got as u64;
        let text = String::from_utf8_lossy(&text);
        if let Some([protocol, version]) = text.strip_prefix(GREETING).map(|rest| rest.split_whitespace().collect::<Vec<_>>()).as_deref() {
            if *protocol != PROTOCOL.to_string() {
                let clean = |text: &str| escape(text.as_bytes()).chars().take(VERSION_CHARS_MAX).collect();
                return Err(Silence::Other { version: clean(version), protocol: clean(protocol) });
            }
            let hello = Frame::read(input).ok().flatten().and_then(|frame| frame.message().ok());
            return hello.ok_or(Silence::Ended);
        }
    }
    Err(Silence::Ended)
}
