//! Metadata that the standard library cannot set: xattrs, ACLs and capabilities as raw kernel
//! blobs, owners, times.
//!
//! The blobs are written out byte by byte here, from the kernel headers `posix_acl_xattr.h` and
//! `capability.h`, so that no ACL library's idea of them comes between the test and the kernel. All
//! functions act on the name itself and never follow a symbolic link at its end.

use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use std::io;
use std::path::Path;

/// The xattr that holds an access ACL.
pub const ACL_ACCESS: &str = "system.posix_acl_access";
/// The xattr that holds a directory's default ACL.
pub const ACL_DEFAULT: &str = "system.posix_acl_default";
/// The xattr that holds file capabilities.
pub const CAPABILITY: &str = "security.capability";

const ACL_VERSION: u32 = 2;
const ACL_NO_ID: u32 = u32::MAX;

/// An ACL blob with one named user and one named group; permissions are the usual three bits.
pub fn acl_blob(user: (u32, u16), group: (u32, u16), others: u16) -> Vec<u8> {
    let entries: [(u16, u16, u32); 6] = [
        (0x01, 7, ACL_NO_ID),
        (0x02, user.1, user.0),
        (0x04, 4, ACL_NO_ID),
        (0x08, group.1, group.0),
        (0x10, 7, ACL_NO_ID),
        (0x20, others, ACL_NO_ID),
    ];
    let mut blob = ACL_VERSION.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        blob.extend(tag.to_le_bytes());
        blob.extend(permissions.to_le_bytes());
        blob.extend(id.to_le_bytes());
    }
    blob
}

/// A version 2 `security.capability` blob with `permitted` as its low word and the effective bit
/// set.
pub fn capability_blob(permitted: u32) -> Vec<u8> {
    let mut blob = (0x0200_0000u32 | 1).to_le_bytes().to_vec();
    for word in [permitted, 0, 0, 0] {
        blob.extend(word.to_le_bytes());
    }
    blob
}

/// Sets an extended attribute.
pub fn set_xattr(path: &Path, name: &[u8], value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::lsetxattr(
        path,
        name,
        value,
        XattrFlags::empty(),
    )?)
}

/// Removes an extended attribute.
pub fn remove_xattr(path: &Path, name: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::lremovexattr(path, name)?)
}

/// Reads an extended attribute, `None` if it is not there.
pub fn get_xattr(path: &Path, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0u8; 65536];
    match rustix::fs::lgetxattr(path, name, &mut value[..]) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(rustix::io::Errno::NODATA) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Sets owner and group; the kernel clears setuid bits and capabilities of files on the way.
pub fn set_owner(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    Ok(rustix::fs::chownat(
        CWD,
        path,
        Some(uid),
        Some(gid),
        AtFlags::SYMLINK_NOFOLLOW,
    )?)
}

/// Sets the permission bits (07777) of anything but a symbolic link.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::chmodat(
        CWD,
        path,
        Mode::from_raw_mode(mode),
        AtFlags::empty(),
    )?)
}

/// Sets the mtime and leaves the atime alone.
pub fn set_mtime(path: &Path, seconds: i64, nanoseconds: u32) -> io::Result<()> {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds.into(),
        },
    };
    Ok(rustix::fs::utimensat(
        CWD,
        path,
        &times,
        AtFlags::SYMLINK_NOFOLLOW,
    )?)
}

/// Sets the atime and leaves the mtime alone.
pub fn set_atime(path: &Path, seconds: i64, nanoseconds: u32) -> io::Result<()> {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds.into(),
        },
        last_modification: Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT,
        },
    };
    Ok(rustix::fs::utimensat(
        CWD,
        path,
        &times,
        AtFlags::SYMLINK_NOFOLLOW,
    )?)
}

/// Makes a fifo, socket or device node with mode 0600.
pub fn make_node(
    path: &Path,
    kind: rustix::fs::FileType,
    major: u32,
    minor: u32,
) -> io::Result<()> {
    let device = rustix::fs::makedev(major, minor);
    Ok(rustix::fs::mknodat(
        CWD,
        path,
        kind,
        Mode::from_raw_mode(0o600),
        device,
    )?)
}

/// Swaps two names in one step.
pub fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    Ok(rustix::fs::renameat_with(
        CWD,
        a,
        CWD,
        b,
        rustix::fs::RenameFlags::EXCHANGE,
    )?)
}
