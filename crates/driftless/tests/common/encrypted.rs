//! An ext4 with directories that are encrypted (fscrypt), whose key a test takes away.

use driftless_testkit::Scratch;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SIZE_MIB: u64 = 64;

/// A mounted file system and the key of its encrypted directories.
pub struct Encrypted {
    scratch: Scratch,
    key: PathBuf,
    id: String,
}

impl Encrypted {
    /// Makes one whose key is there.
    pub fn new() -> Encrypted {
        let format = ["mkfs.ext4", "-q", "-F", "-O", "encrypt"];
        let scratch = Scratch::formatted(&format, SIZE_MIB);
        let key = scratch.path().parent().expect("a folder").join("key");
        fs::write(&key, [b'K'; 64]).expect("a key");
        let mut encrypted = Encrypted {
            scratch,
            key,
            id: String::new(),
        };
        encrypted.id = encrypted.unlock();
        encrypted
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// Makes an encrypted directory with its parents.
    pub fn dir(&self, name: &str) -> PathBuf {
        let dir = self.path().join(name);
        fs::create_dir_all(&dir).expect("a directory");
        let _said = self.xfs_io(&format!("set_encpolicy -v 2 {}", self.id), &dir);
        dir
    }

    /// Adds the key, and returns its identifier.
    pub fn unlock(&self) -> String {
        let said = self.xfs_io("add_enckey", self.path());
        let id = said.split_whitespace().last().expect("an identifier");
        id.to_owned()
    }

    /// Takes the key away, and all that the kernel remembers in clear text. The kernel may hold
    /// inodes for a moment that a run has just closed.
    pub fn lock(&self) {
        super::wait_until("the key is absent", || {
            rustix::fs::sync();
            let _said = self.xfs_io(&format!("rm_enckey {}", self.id), self.path());
            let status = self.xfs_io(&format!("enckey_status {}", self.id), self.path());
            status.contains("Absent")
        });
    }

    fn xfs_io(&self, command: &str, at: &Path) -> String {
        let key = fs::File::open(&self.key).expect("the key");
        let output = Command::new("xfs_io")
            .args(["-c", command])
            .arg(at)
            .stdin(Stdio::from(key))
            .output()
            .expect("xfs_io runs");
        assert!(output.status.success(), "{command}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
