//! The second opinion: rsync, which shares no line with driftless or with this crate.

use std::path::Path;
use std::process::Command;

/// What `rsync` would still do to make `dst` equal to `src`, by content; empty when they are equal.
pub fn rsync_oracle(src: &Path, dst: &Path) -> String {
    let slash = |path: &Path| path.join("");
    let output = Command::new("rsync")
        .args(["-naHAXS", "--numeric-ids", "--delete", "--checksum", "--modify-window=-1", "--itemize-changes", "--"])
        .args([slash(src), slash(dst)])
        .env("LC_ALL", "C")
        .output()
        .expect("rsync runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { text } else { format!("{text}{errors}rsync: {}\n", output.status) }
}
