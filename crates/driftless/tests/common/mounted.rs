//! What a test mounts for its time.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Something that is mounted, until it is dropped.
pub struct Mounted(PathBuf);

impl Mounted {
    /// A directory or a file that is there at a second place.
    pub fn bind(what: &Path, at: &Path) -> Mounted {
        Mounted::by(Command::new("mount").arg("--bind").arg(what), at)
    }

    /// What mount(8) makes of these arguments.
    pub fn with<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>, at: &Path) -> Mounted {
        Mounted::by(Command::new("mount").args(arguments), at)
    }

    /// Takes over what a program of the test has mounted there.
    pub fn found(at: &Path) -> Mounted {
        Mounted(at.to_owned())
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file system in memory.
    pub fn tmpfs(at: &Path) -> Mounted {
        Mounted::by(
            Command::new("mount").args(["-t", "tmpfs", "-o", "mode=0755", "driftless-inner"]),
            at,
        )
    }

    /// A file system whose server is gone.
    pub fn dead(at: &Path) -> Mounted {
        fs::create_dir_all(at).expect("mount point");
        driftless_testkit::fuse::door::mount_dead(at);
        Mounted(at.to_owned())
    }

    fn by(command: &mut Command, at: &Path) -> Mounted {
        if !at.exists() {
            fs::create_dir_all(at).expect("mount point");
        }
        assert!(
            command.arg(at).status().expect("mount runs").success(),
            "{command:?}"
        );
        Mounted(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
