//! Trees that no path can name: far longer than 4096 bytes, thousands of levels deep.
//!
//! Everything here goes down one handle at a time and up again by `..`, like the scan.

use crate::scan::{list_names, open_dir};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Makes a chain of `levels` directories below `root`, each with a name of `name_bytes`, and a file
/// in each tenth of them and in the last.
pub fn deep_path(root: &Path, levels: usize, name_bytes: usize) -> io::Result<()> {
    let mut here = open_dir(CWD, root.as_os_str().as_bytes())?;
    for level in 1..=levels {
        let name = vec![b'a' + (level % 26) as u8; name_bytes];
        rustix::fs::mkdirat(&here, &name[..], Mode::from_raw_mode(0o755))?;
        here = open_dir(here.as_fd(), &name)?;
        if level % 10 == 0 || level == levels {
            write_marker(&here, level)?;
        }
    }
    Ok(())
}

fn write_marker(here: &OwnedFd, level: usize) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(here, "marker", flags, Mode::from_raw_mode(0o644))?;
    let text = format!("level {level}\n");
    assert_eq!(rustix::io::write(&fd, text.as_bytes())?, text.len());
    Ok(())
}

/// Removes a tree of any depth, the root included; a root that is not there is fine.
pub fn remove_deep(root: &Path) -> io::Result<()> {
    let name = root.as_os_str().as_bytes();
    let mut here = match open_dir(CWD, name) {
        Ok(fd) => fd,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(_) => return Ok(rustix::fs::unlinkat(CWD, name, AtFlags::empty())?),
    };
    let mut stack = vec![(Vec::new(), empty_files(&here)?)];
    while let Some((own, directories)) = stack.last_mut() {
        if let Some(next) = directories.pop() {
            here = open_dir(here.as_fd(), &next)?;
            let below = empty_files(&here)?;
            stack.push((next, below));
        } else {
            let own = std::mem::take(own);
            stack.pop();
            if !stack.is_empty() {
                here = open_dir(here.as_fd(), b"..")?;
                rustix::fs::unlinkat(&here, &own[..], AtFlags::REMOVEDIR)?;
            }
        }
    }
    Ok(rustix::fs::unlinkat(CWD, name, AtFlags::REMOVEDIR)?)
}

/// Unlinks everything but directories and returns the names of those.
fn empty_files(here: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut directories = Vec::new();
    for name in list_names(here)? {
        match rustix::fs::unlinkat(here, &name[..], AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => (),
            Err(Errno::ISDIR | Errno::PERM) => directories.push(name),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(directories)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_far_deeper_than_any_path_is_made_and_removed() {
        let folder = tempfile::tempdir().expect("temp folder");
        let root = folder.path().join("deep");
        std::fs::create_dir(&root).expect("root");
        deep_path(&root, 500, 255).expect("make");
        remove_deep(&root).expect("remove");
        assert!(!root.exists());
    }
}
