//! `driftless relay`: carries standard input and output to and from a Unix socket, in the place of ssh.

use crate::exit::Exit;
use driftless_model::{cause, quote};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 64 << 10;
/// Option with which ssh shows its settings for a host, and connects to none (ssh(1)).
const SHOW_SETTINGS: &str = "-G";

/// Carries bytes until the other end of the socket closes it. `words` are those that ssh would get.
pub fn run(socket: &Path, words: &[OsString]) -> Exit {
    let is_question = words
        .iter()
        .take_while(|word| *word != "--")
        .any(|word| word == SHOW_SETTINGS);
    if is_question {
        return Exit::Usage;
    }
    match relay(socket) {
        Ok(()) => Exit::Equal,
        Err(error) => {
            let (socket, cause) = (quote(socket), cause(&error));
            eprintln!(
                "driftless relay: {socket}: cannot carry bytes: {cause}; is the gateway at work?"
            );
            Exit::CouldNotRun
        }
    }
}

fn relay(socket: &Path) -> io::Result<()> {
    let stream = UnixStream::connect(socket)?;
    // As files: the standard streams of the library look for lines, and there are none.
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let upload = stream.try_clone()?;
    let sending = move || {
        let _the_other_end_may_be_gone = carry(&input, &upload);
        let _the_other_end_may_be_gone = upload.shutdown(Shutdown::Write);
    };
    std::thread::Builder::new()
        .name("relay".into())
        .spawn(sending)?;
    carry(&stream, &output)
}

/// Copies bytes as they come. `std::io::copy` would call splice(2), which may hold back bytes of a socket.
fn carry(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(buffer.get(..count).unwrap_or_default())?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
