//! Directories whose listing is not what is in them.
//!
//! A file system may list a directory without an error and show something else than its content.
//! Such a directory is refused when it is opened, opened again, and when its listing ends: then it
//! is a problem of its path on every side and in every command, and no delete rests on it. Only a
//! directory whose metadata, which are read anyway, give a reason costs a further call.

use crate::local::sys;
use driftless_model::{Meta, Unkept};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::ffi::CString;
use std::fmt::Write;

/// `FSCRYPT_KEY_STATUS_PRESENT` (linux/fscrypt.h).
const PRESENT: u32 = 2;
/// `FSCRYPT_KEY_SPEC_TYPE_DESCRIPTOR` and its length in bytes.
const DESCRIPTOR: (u32, usize) = (1, 8);
/// `FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER` and its length in bytes.
const IDENTIFIER: (u32, usize) = (2, 16);
/// Prefixes of the keys of version 1 that a process's keyrings may hold (fscrypt(7) of the kernel's
/// documentation).
const PREFIXES: [&str; 3] = ["fscrypt", "ext4", "f2fs"];

/// Returns an error if the open directory, which had the metadata `first`, does not show what is in
/// it.
pub fn refuse_hidden(dir: impl AsFd, first: &Meta) -> Result<(), Errno> {
    if is_encrypted(first) {
        refuse_locked(dir)?;
    }
    Ok(())
}

/// Whether an entry has the flag of an encrypted one.
pub fn is_encrypted(meta: &Meta) -> bool {
    meta.unkept.has(Unkept::ENCRYPTED)
}

/// Returns `ENOKEY` if the key of an open encrypted directory is not there. Its names are cipher
/// text then, and a look at a true name says that there is none.
pub fn refuse_locked(dir: impl AsFd) -> Result<(), Errno> {
    let dir = dir.as_fd();
    let policy = match sys::encryption_policy(dir) {
        Ok(policy) => policy,
        // The flag is that of another kind of encryption, which a server keeps to itself (NTFS, SMB).
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::NODATA) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    let is_first_version = policy[0] == 0;
    let (at, (key_type, len)) = if is_first_version {
        (4, DESCRIPTOR)
    } else {
        (8, IDENTIFIER)
    };
    let key = &policy[at..at + len];
    let is_there = sys::encryption_key_status(dir, key_type, key)? == PRESENT
        || is_first_version && PREFIXES.iter().any(|prefix| is_in_keyring(prefix, key));
    if is_there { Ok(()) } else { Err(Errno::NOKEY) }
}

/// Whether a keyring of this process has the key of a policy of version 1.
fn is_in_keyring(prefix: &str, key: &[u8]) -> bool {
    let mut description = format!("{prefix}:");
    key.iter()
        .for_each(|byte| write!(description, "{byte:02x}").expect("a string takes all"));
    sys::has_logon_key(&CString::new(description).expect("no NUL"))
}
