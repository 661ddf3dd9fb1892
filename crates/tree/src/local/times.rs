//! Changing a directory without a trace in its modification time, or with another mode for a
//! moment.

use crate::local::look::meta_of;
use driftless_model::Stamp;
use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Does something in a directory, and sets the modification time of the directory back to what it
/// was. Does nothing if that time cannot be read. At the end of a run, when the last lock is
/// removed, nobody is there to be told of a failure, so reading and setting the time are tried
/// twice.
pub fn keep_times<T>(dir: &OwnedFd, act: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let st = fs::fstat(dir).or_else(|_| fs::fstat(dir))?;
    let done = act()?;
    let before = meta_of(&st);
    let _only_its_owner_can = set_times(dir, before.atime, before.mtime);
    Ok(done)
}

/// Sets both times of a directory: the modification time alone would not be set everywhere
/// (libfuse 2).
pub fn set_times(dir: &OwnedFd, atime: Stamp, mtime: Stamp) -> Result<(), Errno> {
    let spec = |stamp: Stamp| Timespec {
        tv_sec: stamp.sec,
        tv_nsec: stamp.nsec.into(),
    };
    let times = Timestamps {
        last_access: spec(atime),
        last_modification: spec(mtime),
    };
    fs::futimens(dir, &times).or_else(|_| fs::futimens(dir, &times))
}

/// Does something that takes the right to write to a directory. If this user lacks that right and
/// owns the directory, he has it for as long as the act takes.
pub fn while_writable<T>(
    dir: &OwnedFd,
    mut act: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mode = match act() {
        // What root may not do is not a matter of modes.
        Err(Errno::ACCESS) if !geteuid().is_root() => fs::fstat(dir)?.st_mode & 0o7777,
        other => return other,
    };
    fs::fchmod(dir, Mode::from_raw_mode(mode | 0o300)).map_err(|_| Errno::ACCESS)?;
    let done = act();
    fs::fchmod(dir, Mode::from_raw_mode(mode))?;
    done
}
