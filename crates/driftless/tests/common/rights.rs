//! What users may do in a tree. Each user tries, so that the kernel decides, and neither modes nor
//! ACLs have to be understood.

use driftless_testkit::escape;
use driftless_testkit::mutate::list_all;
use rustix::fd::OwnedFd;
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The source's owner and group.
pub const OWNER: (u32, u32) = (4321, 2222);
/// Users and groups that try: members of the source's group, of the usual one, of one that an ACL
/// names, a user whom an ACL names, and strangers.
pub const PERSONS: [(u32, u32); 5] = [
    (5555, 2222),
    (999, 100),
    (998, 4444),
    (3333, 3333),
    (7777, 7777),
];

/// A right that a person has: user, group, what it is, and to what.
pub type Right = (u32, u32, String);

/// Returns all rights of all persons below a root: to read and write files, to list, change and
/// enter directories. Symbolic links have none.
pub fn rights(root: &Path) -> BTreeSet<Right> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let top = rustix::fs::openat(CWD, root, flags, Mode::empty()).expect("open the root");
    let names = entries(root, &top);
    let by = |(uid, gid)| {
        become_person(uid, gid);
        let of = |(name, kind): &(PathBuf, FileType)| {
            let shown = escape(name.as_os_str().as_bytes());
            granted(&top, name, *kind)
                .into_iter()
                .map(move |right| (uid, gid, format!("{right} {shown}")))
                .collect::<Vec<Right>>()
        };
        names.iter().flat_map(of).collect::<Vec<Right>>()
    };
    std::thread::scope(|scope| {
        // A thread has its own user, and ends with it.
        let by = &by;
        let tries = PERSONS.map(|person| scope.spawn(move || by(person)));
        tries
            .into_iter()
            .flat_map(|tried| tried.join().expect("a person"))
            .collect()
    })
}

/// Checks that no person has more rights to the replica than to the source.
pub fn check_rights(src: &Path, dst: &Path, context: &str) {
    let (source, replica) = (rights(src), rights(dst));
    let more: Vec<_> = replica.difference(&source).collect();
    assert!(more.is_empty(), "{context}: {more:?}");
}

/// All entries below a root, and the root, with their types.
fn entries(root: &Path, top: &OwnedFd) -> Vec<(PathBuf, FileType)> {
    // The lock of a run at work tells all users who works there.
    let is_lock = |path: &Path| path.as_os_str().as_bytes() == super::LOCK_SIGN;
    let all = list_all(root).expect("list");
    let below = all
        .iter()
        .map(|path| path.strip_prefix(root).expect("below"));
    let kind = |path: &Path| {
        let stat: Stat = rustix::fs::statat(top, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((path.to_owned(), FileType::from_raw_mode(stat.st_mode)))
    };
    below
        .filter(|path| !is_lock(path))
        .chain([Path::new(".")])
        .filter_map(kind)
        .collect()
}

/// Makes this thread one of a user without supplementary groups and capabilities.
fn become_person(uid: u32, gid: u32) {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    set_thread_groups(&[]).expect("groups");
    set_thread_res_gid(gid, gid, gid).expect("group");
    set_thread_res_uid(uid, uid, uid).expect("user");
}

/// Returns what this thread may do with an entry: `r`, `w`, `x`. Nothing is read or written, so
/// that no time changes.
fn granted(top: &OwnedFd, name: &Path, kind: FileType) -> Vec<char> {
    let opens = |flags: OFlags| {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(top, name, flags, Mode::empty()).is_ok()
    };
    let may = |access: Access| rustix::fs::accessat(top, name, access, AtFlags::empty()).is_ok();
    let tried = match kind {
        FileType::Symlink => [false; 3],
        FileType::Directory => [
            opens(OFlags::RDONLY | OFlags::DIRECTORY),
            may(Access::WRITE_OK),
            may(Access::EXEC_OK),
        ],
        FileType::RegularFile => [
            opens(OFlags::RDONLY),
            opens(OFlags::WRONLY | OFlags::APPEND),
            may(Access::EXEC_OK),
        ],
        // To open a device or a fifo has effects.
        _ => [may(Access::READ_OK), may(Access::WRITE_OK), false],
    };
    let has = |(right, is_granted)| if is_granted { Some(right) } else { None };
    ['r', 'w', 'x']
        .into_iter()
        .zip(tried)
        .filter_map(has)
        .collect()
}
