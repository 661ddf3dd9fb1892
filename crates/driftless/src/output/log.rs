//! The log of a run: a line for each event, with the time.

use crate::own;
use crate::units::log_time;
use driftless_lock::Mutex;
use driftless_model::{cause, errno, escape_text, quote};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// A file that lines are appended to.
pub struct Log(Mutex<BufWriter<File>>);

impl Log {
    /// The log is the user's own file, not part of a replicated tree.
    #[allow(
        clippy::disallowed_methods,
        reason = "the user's own file, no part of a replicated tree"
    )]
    pub fn open(path: &Path) -> Result<Log, String> {
        let is_pipe = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo());
        // Without a reader the kernel lets nobody open a pipe to write, and would wait for one (fifo(7)).
        let at_once = if is_pipe {
            OFlags::NONBLOCK
        } else {
            OFlags::empty()
        };
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(own::file_mode())
            .custom_flags(at_once.bits().cast_signed())
            .open(path)
            .and_then(|file| {
                if is_pipe {
                    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
                }
                Ok(file)
            });
        let file = file.map_err(|error| {
            let why = match error.raw_os_error() {
                Some(errno::ENXIO) if is_pipe => {
                    "no program reads from this pipe; start one first".into()
                }
                _ => cause(&error),
            };
            format!("{}: cannot open the log: {why}", quote(path))
        })?;
        Ok(Log(Mutex::new(BufWriter::new(file))))
    }

    /// Appends a line, with the time.
    pub fn write(&self, line: &str) -> io::Result<()> {
        writeln!(self.0.lock(), "{} {}", log_time(), escape_text(line))
    }

    /// Writes it out.
    pub fn flush(&self) -> io::Result<()> {
        self.0.lock().flush()
    }
}
