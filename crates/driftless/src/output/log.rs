//! The log of a run: a line for each event, with the time.

use crate::own;
use crate::units::log_time;
use driftless_lock::Mutex;
use driftless_model::{cause, escape_text, quote};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
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
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(own::file_mode())
            .open(path);
        let file = file
            .map_err(|error| format!("{}: cannot open the log: {}", quote(path), cause(&error)))?;
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
