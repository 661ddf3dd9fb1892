//! The user's job script, as the user reads it.

use std::io::Read;
use std::path::Path;

/// Bytes of a script in which options are searched. Slurm refuses larger ones by default
/// (`max_script_size` in slurm.conf(5)).
pub(crate) const SCRIPT_BYTES_MAX: u64 = 4 << 20;

/// Reads the begin of a job script. Returns `None` if it is no regular file: reading a pipe would take
/// the script from the command that submits it. That command reports a missing file.
#[allow(
    clippy::disallowed_methods,
    reason = "the job script is the user's own file and no part of a tree"
)]
pub(crate) fn read_script(path: &Path) -> Option<Vec<u8>> {
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(SCRIPT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Reads the begin of a job script as text, with invalid UTF-8 replaced.
pub(crate) fn script_text(path: &Path) -> Option<String> {
    let bytes = read_script(path)?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
