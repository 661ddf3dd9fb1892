//! The user's job script, as the user reads it.

use std::io::Read;
use std::path::Path;

/// Bytes of a script in which options are searched.
const SCRIPT_BYTES_MAX: u64 = 4 << 20;

/// Reads the begin of a job script. Returns `None` if it is no regular file: reading a pipe would take
/// the script from the command that submits it. That command reports a missing file.
#[allow(
    clippy::disallowed_methods,
    reason = "the job script is the user's own file and no part of a tree"
)]
pub(crate) fn read_script(path: &Path) -> Option<String> {
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(SCRIPT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
