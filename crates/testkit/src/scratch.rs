//! Real file systems for one test: a sparse image in memory, formatted, loop-mounted, and gone when
//! the value is dropped.
//!
//! Holes, reflinks, xattr limits, directory order and time stamps differ between file systems, so a
//! test that only ever meets the one below the temp folder proves little.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const BUSY_MAX: Duration = Duration::from_secs(60);

/// A kind of file system that a scratch can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsKind {
    /// In memory; no reflinks.
    Tmpfs,
    /// With its journal, 256-byte inodes.
    Ext4,
    /// With reflinks; at least 300 MiB.
    Xfs,
    /// With reflinks; at least 128 MiB.
    Btrfs,
    /// ext4 with 128-byte inodes: whole seconds, from 1901 to 2038.
    Ext4Old,
    /// ext2 without `filetype`: listings do not say of what kind an entry is.
    Ext2Untyped,
    /// Layers of a tmpfs, see [`Scratch::sink`]; no whiteouts (devices 0:0).
    Overlay,
}

impl FsKind {
    /// The kinds that hold all of a hostile tree.
    pub const ALL: [FsKind; 4] = [FsKind::Tmpfs, FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs];

    fn size_mib_min(self) -> u64 {
        match self {
            FsKind::Tmpfs | FsKind::Overlay => 1,
            FsKind::Ext4 | FsKind::Ext4Old | FsKind::Ext2Untyped => 8,
            FsKind::Xfs => 300,
            FsKind::Btrfs => 128,
        }
    }
}

/// A mounted file system that is unmounted and removed on drop.
#[derive(Debug)]
pub struct Scratch {
    folder: Option<tempfile::TempDir>,
    mount: PathBuf,
}

/// Two threads that ask for a free loop device at once can get the same one.
static MOUNTING: Mutex<()> = Mutex::new(());

impl Scratch {
    /// Makes and mounts a file system of at least `size_mib`; needs root.
    pub fn new(kind: FsKind, size_mib: u64) -> Scratch {
        let size_mib = size_mib.max(kind.size_mib_min());
        match kind {
            FsKind::Tmpfs => Scratch::mounted(|scratch| scratch.mount_tmpfs(size_mib)),
            FsKind::Ext4 => Scratch::formatted(
                &[
                    "mkfs.ext4",
                    "-q",
                    "-F",
                    "-b",
                    "4096",
                    "-I",
                    "256",
                    "-i",
                    "4096",
                    "-m",
                    "0",
                ],
                size_mib,
            ),
            FsKind::Xfs => Scratch::formatted(&["mkfs.xfs", "-q", "-m", "reflink=1"], size_mib),
            FsKind::Btrfs => Scratch::formatted(&["mkfs.btrfs", "-q"], size_mib),
            FsKind::Ext4Old => Scratch::formatted(
                &[
                    "mkfs.ext4",
                    "-q",
                    "-F",
                    "-b",
                    "4096",
                    "-I",
                    "128",
                    "-i",
                    "4096",
                    "-m",
                    "0",
                ],
                size_mib,
            ),
            FsKind::Ext2Untyped => Scratch::formatted(
                &[
                    "mkfs.ext2",
                    "-q",
                    "-F",
                    "-O",
                    "^filetype",
                    "-b",
                    "4096",
                    "-i",
                    "4096",
                    "-m",
                    "0",
                ],
                size_mib,
            ),
            FsKind::Overlay => Scratch::mounted(Scratch::mount_layers),
        }
    }

    /// Mounts an image of `size_mib` that the command `format` makes a file system of.
    pub fn formatted(format: &[&str], size_mib: u64) -> Scratch {
        Scratch::mounted(|scratch| scratch.mount_image(format, size_mib))
    }

    /// Mounts an image that `write` has filled, such as one that was found after a power cut.
    pub fn found(options: &str, write: impl FnOnce(&Path)) -> Scratch {
        Scratch::mounted(|scratch| {
            write(&scratch.image());
            scratch.mount_as_it_is(options);
        })
    }

    /// Unmounts an image. [`mount_again`](Scratch::mount_again) mounts it.
    pub fn unmount(&self) {
        assert!(unmount(&self.mount), "{} is busy", self.mount.display());
    }

    /// Unmounts an image that is mounted, and mounts it, so that what shows comes from the image
    /// alone.
    pub fn mount_again(&self) {
        let is_mounted = Command::new("mountpoint")
            .arg("-q")
            .arg(&self.mount)
            .status();
        if is_mounted.is_ok_and(|status| status.success()) {
            self.unmount();
        }
        let _turn = MOUNTING
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        self.mount_as_it_is("loop");
    }

    fn mount_as_it_is(&self, options: &str) {
        must_run(
            Command::new("mount")
                .args(["-o", options])
                .arg(self.image())
                .arg(&self.mount),
        );
    }

    fn mounted(mount: impl FnOnce(&Scratch)) -> Scratch {
        let folder = scratch_folder();
        let place = folder.path().join("mnt");
        fs::create_dir(&place).expect("mount point");
        let scratch = Scratch {
            folder: Some(folder),
            mount: place,
        };
        let _turn = MOUNTING
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        mount(&scratch);
        fs::set_permissions(
            &scratch.mount,
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .expect("open to all");
        scratch
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// The image that it is mounted from; a tmpfs has none.
    pub fn image(&self) -> PathBuf {
        self.mount.with_file_name("image")
    }

    /// Makes a directory in it and returns its path.
    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.mount.join(name);
        fs::create_dir(&path).unwrap_or_else(|e| panic!("cannot make {}: {e}", path.display()));
        path
    }

    fn mount_tmpfs(&self, size_mib: u64) {
        let options = format!("size={size_mib}m,nr_inodes=2000000,mode=0755");
        must_run(
            Command::new("mount")
                .args(["-t", "tmpfs", "-o", &options, "driftless-scratch"])
                .arg(&self.mount),
        );
    }

    /// Everything that an overlay holds becomes a layer that it cannot write to, with an empty one
    /// on top.
    pub fn sink(&self) {
        assert!(unmount(&self.mount), "{}: busy", self.mount.display());
        self.mount_layers();
    }

    /// Mounts the layers that are there, the newest first, below a new one.
    fn mount_layers(&self) {
        let folder = self.mount.parent().expect("the scratch folder");
        let layer = |number: usize| folder.join(format!("layer-{number}"));
        let lowest = layer(0);
        if !lowest.exists() {
            fs::create_dir(&lowest).expect("lowest layer");
        }
        let count = (0..).take_while(|number| layer(*number).exists()).count();
        let (upper, work) = (layer(count), folder.join(format!("work-{count}")));
        [&upper, &work]
            .into_iter()
            .for_each(|path| fs::create_dir(path).expect("layer"));
        let lower: Vec<String> = (0..count)
            .rev()
            .map(|number| layer(number).display().to_string())
            .collect();
        // Without an index, files with several names come apart when they are copied up, by a
        // change of mode, say: a run then finds another inode at the name than the one it has
        // changed, makes no link to it (exit code 3), and only the next makes the group whole.
        let options = format!(
            "index=on,lowerdir={},upperdir={},workdir={}",
            lower.join(":"),
            upper.display(),
            work.display()
        );
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "overlay", "-o", &options, "driftless-test"])
            .arg(&self.mount);
        assert!(succeeds_in_time(&mut mount), "{mount:?}");
    }

    fn mount_image(&self, format: &[&str], size_mib: u64) {
        format_image(&self.image(), format, size_mib);
        self.mount_as_it_is("loop");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let plain = Command::new("umount").arg("-q").arg(&self.mount).status();
        if !plain.is_ok_and(|status| status.success()) {
            let _ = Command::new("umount")
                .args(["-q", "-l"])
                .arg(&self.mount)
                .status();
        }
        drop(self.folder.take());
    }
}

/// A folder in memory where there is one, else in the usual place for temporary files; open to
/// every user.
pub fn scratch_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let mut builder = tempfile::Builder::new();
    builder
        .prefix("driftless-test-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755));
    let made = if memory.is_dir() {
        builder.tempdir_in(memory)
    } else {
        builder.tempdir()
    };
    made.expect("temp folder")
}

/// A sparse file that the command `format` makes a file system of.
pub(crate) fn format_image(image: &Path, format: &[&str], size_mib: u64) {
    let file = fs::File::create(image).expect("image");
    file.set_len(size_mib << 20).expect("image size");
    must_run(Command::new(format[0]).args(&format[1..]).arg(image));
}

/// Unmounts. Returns false if the mount stays busy.
pub(crate) fn unmount(path: &Path) -> bool {
    succeeds_in_time(Command::new("umount").arg("-q").arg(path))
}

/// Runs a command until it succeeds: a process that a test has just started may hold open files, or a
/// copy of the mounts, until it runs its program. Returns false if it fails all the time.
fn succeeds_in_time(command: &mut Command) -> bool {
    let deadline = Instant::now() + BUSY_MAX;
    loop {
        let status = command.stderr(Stdio::null()).status();
        if status.is_ok_and(|status| status.success()) {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Mounts an image by a loop device.
pub(crate) fn mount_loop(image: &Path, at: &Path, options: &str) {
    let _turn = MOUNTING
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    must_run(
        Command::new("mount")
            .args(["-o", options])
            .arg(image)
            .arg(at),
    );
}

pub(crate) fn must_run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}: {errors}",
        output.status
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_mounts_and_goes_away() {
        let others = [FsKind::Ext4Old, FsKind::Ext2Untyped, FsKind::Overlay];
        for kind in FsKind::ALL.into_iter().chain(others) {
            let scratch = Scratch::new(kind, 64);
            let mount = scratch.path().to_owned();
            fs::write(scratch.dir("a").join("b"), b"data").expect("write");
            let mounts = || fs::read_to_string("/proc/self/mounts").expect("mounts");
            let text = mount.to_str().expect("ascii").to_owned();
            assert!(mounts().contains(&text), "{kind:?} is mounted");
            drop(scratch);
            assert!(!mounts().contains(&text), "{kind:?} is gone");
            assert!(!mount.exists(), "{kind:?} left its folder");
        }
    }

    #[test]
    fn what_an_overlay_held_shows_through_and_is_not_written_to() {
        let scratch = Scratch::new(FsKind::Overlay, 1);
        fs::write(scratch.dir("a").join("b"), b"data").expect("write");
        scratch.sink();
        fs::write(scratch.path().join("a/b"), b"changed").expect("write above");
        let below = scratch.image().with_file_name("layer-1").join("a/b");
        assert_eq!(
            (
                fs::read(below).expect("read"),
                fs::read(scratch.path().join("a/b")).expect("read")
            ),
            (b"data".to_vec(), b"changed".to_vec())
        );
    }
}
