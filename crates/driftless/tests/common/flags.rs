//! Flags of inodes for the time of a test (chattr(1)).

use std::path::{Path, PathBuf};
use std::process::Command;

/// Sets or clears a flag, such as `+i`.
pub fn chattr(flag: &str, path: &Path) {
    let done = Command::new("chattr").arg(flag).arg(path).status();
    assert!(
        done.expect("chattr starts").success(),
        "chattr {flag} {}",
        path.display()
    );
}

/// A file that is immutable until this is dropped.
pub struct Immutable(PathBuf);

impl Immutable {
    /// Makes the file so.
    pub fn of(path: PathBuf) -> Immutable {
        chattr("+i", &path);
        Immutable(path)
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        let _ = Command::new("chattr").arg("-i").arg(&self.0).status();
    }
}
