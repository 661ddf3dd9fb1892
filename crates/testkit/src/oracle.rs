//! The second opinion: rsync, which shares no line with driftless or with this crate.

use crate::compare::Options;
use std::path::Path;
use std::process::Command;

const SECOND_NS: u64 = 1_000_000_000;

/// What `rsync` would still do to make `dst` equal to `src`, by content; empty when they are equal.
pub fn rsync_oracle(src: &Path, dst: &Path) -> String {
    rsync_opinion(src, dst, &Options::default())
}

/// What `rsync` would still do where one side cannot keep everything: `options` say whether
/// attributes, ACLs, fine times.
pub fn rsync_opinion(src: &Path, dst: &Path, options: &Options) -> String {
    let slash = |path: &Path| path.join("");
    let mut rsync = Command::new("rsync");
    rsync
        .args([
            "-naHS",
            "--numeric-ids",
            "--delete",
            "--checksum",
            "--itemize-changes",
        ])
        .arg(window(options));
    if options.acls {
        rsync.arg("-A");
    }
    if options.xattrs {
        // Attributes that belong to the file system (xfs shows its ACLs as such), and ACLs, which
        // have an option of their own.
        rsync.args(["-X", "--filter=-x trusted.SGI_*", "--filter=-x system.*"]);
        // What a root says of itself as a replica is no part of the tree.
        rsync.args([
            "--filter=-x trusted.driftless.mark",
            "--filter=-x user.driftless.mark",
        ]);
    }
    rsync.arg("--exclude=/.driftless-tmp-00000000000000000000000000000001");
    rsync.arg("--exclude=/.driftless-snapshots/");
    rsync.arg("--exclude=/.driftless-trash/");
    let output = rsync
        .arg("--")
        .args([slash(src), slash(dst)])
        .env("LC_ALL", "C")
        .output()
        .expect("rsync runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        text
    } else {
        format!("{text}{errors}rsync: {}\n", output.status)
    }
}

/// -1 compares nanoseconds, and N lets times differ by N whole seconds.
fn window(options: &Options) -> String {
    let seconds = options.mtime_grain_ns / SECOND_NS;
    format!(
        "--modify-window={}",
        if options.mtime_grain_ns == 1 {
            -1
        } else {
            seconds.saturating_sub(1) as i64
        }
    )
}
