//! Why a call failed, in words that a user can act on.
//!
//! The kernel's own words are kept where they say it. Others speak of the kernel's business
//! ("invalid cross-device link") or mislead ("no space left on device", where inodes are used up,
//! too): these have words here. What a number means depends on what was tried, so a few acts have
//! words of their own. Sources: errno(3), and the manual page of each call.

use crate::{Act, LINE_LOST, escape_text};
use std::io;

/// Cause that all changes of a file system share: one path says it of all.
pub const READ_ONLY: &str = "the file system is read-only";

/// Why `act` failed with an error number.
pub fn cause_of(act: Act, errno: i32) -> String {
    let words = of_act(act, errno).or_else(|| of_shown(act, errno));
    words.map_or_else(
        || cause(&io::Error::from_raw_os_error(errno)),
        str::to_owned,
    )
}

/// An error of the kernel in words, lower case and without its number. The words of other errors
/// are escaped.
pub fn cause(error: &io::Error) -> String {
    if let Some(words) = error.raw_os_error().and_then(of_any) {
        return words.to_owned();
    }
    // Of an error without a number, the standard library says that an entity is not found.
    if error.kind() == io::ErrorKind::NotFound && is_bare(error) {
        return "no such file or directory".to_owned();
    }
    let text = error.to_string();
    let words = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = words.chars();
    let lower: String = chars
        .next()
        .map(|c| c.to_lowercase().chain(chars).collect())
        .unwrap_or_default();
    escape_text(&lower)
}

/// Whether an error has neither a number nor words of its own.
fn is_bare(error: &io::Error) -> bool {
    error.raw_os_error().is_none() && error.get_ref().is_none()
}

fn of_act(act: Act, errno: i32) -> Option<&'static str> {
    use crate::errno::{
        E2BIG, EAGAIN, EBUSY, EFBIG, EILSEQ, EINVAL, ELOOP, EMLINK, ENODATA, ENOSPC, ENOTEMPTY,
        EOPNOTSUPP, EPERM, EPROTO, ERANGE, ESTALE, EXDEV,
    };
    use Act as A;
    Some(match (act, errno) {
        (_, LINE_LOST) => "the connection is lost",
        (A::Understand | A::Obey, EPROTO) => "it does not keep to the protocol",
        (A::Obey, _) => "the agent does not take it",
        (A::ReadXattrs, E2BIG) => "they are longer than the kernel can show (listxattr(2))",
        (A::SendRequest | A::SendReply, E2BIG) => "it is too long for a message",
        (A::FindAgain, ESTALE) => {
            "it was moved away or replaced during the run, which went on with what is elsewhere now"
        }
        (A::BeginAtHome, EINVAL) => "the agent was not started there but in /",
        (A::SetMounted, EBUSY) => "it belongs to another tree",
        (A::ReadAll | A::CopyOld, ENODATA) => "it ends earlier than its size says",
        (A::ReadAll, EFBIG) => "it goes on beyond its size",
        (A::SetTimes, ERANGE) => "the file system cannot hold this time",
        (A::Lock | A::Change, EAGAIN) => "another run has it",
        (A::Open, EAGAIN) => {
            "another process holds a lease on it (fcntl(2), F_SETLEASE), and was asked to give it up"
        }
        (A::LetReach, EXDEV) => "it is not what this run has opened",
        (A::SetAside, EXDEV) => "it is on another file system than the root, and stays",
        (A::OpenTrash, EPERM) => "it belongs to another user, or others may write to it",
        (A::RemoveSource, EBUSY) => "a mount shows it here as well; exclude this path",
        (A::RemoveForeign, EPERM) => "others can write to the directory that it is in",
        (A::HoldFirstLink | A::HoldDirectory | A::HoldUnfinished, ESTALE) => {
            "something else stands in its place now"
        }
        (A::RemoveSubvolume, ENOTEMPTY) => {
            "something lies in it: \"btrfs subvolume delete\" removes it"
        }
        (A::SetGroup, EPERM) => "this user is not of the group, or the file is another user's",
        (A::SetOwner, EPERM) => "this user may not give files to others",
        (A::SetMode | A::SetTimes | A::SetAcl, EPERM) => {
            "operation not permitted, see ls -l and lsattr"
        }
        (A::Open | A::Remove | A::RemoveDirectory | A::Rename, EPERM) => {
            "operation not permitted, see lsattr"
        }
        (A::Link, EPERM | EOPNOTSUPP) => {
            "the file system has no hard links, or the kernel forbids this one, see sysctl fs.protected_hardlinks"
        }
        (A::LinkSame, EILSEQ) => "the content there differs, see --checksum",
        (A::Link, EMLINK) => "the file system takes no more names for this file",
        (A::MakeDirectory | A::Rename, EMLINK) => {
            "the file system takes no more directories in this one"
        }
        (A::MakeSymlink, EPERM | EOPNOTSUPP) => "the file system has no symbolic links",
        (A::SetXattr | A::SetAcl, ENOSPC) => {
            "no space is left on the file system, or all attributes together are larger than it takes"
        }
        (A::MakeNode, EPERM | EINVAL | EOPNOTSUPP) => {
            "the file system has no such files, or this user may not make them"
        }
        (A::Create | A::MakeDirectory | A::MakeSymlink | A::Rename, EINVAL | EILSEQ) => {
            "the file system does not take this name"
        }
        // Below a root, no symbolic link is followed.
        (A::Open | A::OpenDirectory | A::ReopenDirectory, ELOOP) => {
            "a symbolic link stands in its place"
        }
        _ => return None,
    })
}

/// Returns why an act failed where a file system shows, or does, something else than it should.
fn of_shown(act: Act, errno: i32) -> Option<&'static str> {
    use crate::errno as e;
    use Act as A;
    Some(match (act, errno) {
        (A::Open | A::OpenDirectory | A::ReopenDirectory | A::List, e::ENOKEY) => {
            "it is encrypted and its key is not there; unlock it, or exclude it"
        }
        (A::Enter, e::EREMOTE) => {
            "a snapshot of btrfs has an empty directory in the place of this subvolume; copy the subvolume itself, or exclude it"
        }
        (A::Enter, e::EMEDIUMTYPE) => {
            "the kernel makes this file system up for each reader; exclude it"
        }
        (A::Enter, e::EHOSTDOWN) => {
            "it is an automount point and nothing is mounted on it; mount it, or exclude it"
        }
        (A::Enter, e::ENOTUNIQ) => {
            "it is a directory that it lies in, so it contains itself without end; exclude it"
        }
        (A::Link, e::ENOTUNIQ) => {
            "the file system shows another inode number under each name of a file; see --no-hard-links"
        }
        // What is open cannot be missing: the path that leads to it by /proc is.
        (A::ReadMarksAbove, e::ENOENT) => {
            "they are read by way of /proc, which is not mounted there; mount it"
        }
        (A::SetAttributes, e::EOPNOTSUPP) => {
            "the file system would set them of the entry that the link leads to"
        }
        _ => return None,
    })
}

fn of_any(number: i32) -> Option<&'static str> {
    use crate::errno as e;
    Some(match number {
        e::ENOSPC => "no space or no inode is left on the file system, see df and df -i",
        e::EDQUOT => "the disk quota is used up",
        e::EROFS => READ_ONLY,
        e::EIO => "input/output error, see dmesg",
        e::EUCLEAN | e::EBADMSG => "the file system is damaged, see dmesg",
        e::ENOMEM => "the memory is used up",
        e::EMFILE => "this process has as many files open as ulimit -n allows",
        e::ENFILE => "the machine has as many files open as sysctl fs.file-max allows",
        e::ENAMETOOLONG => "the name is too long for the file system",
        e::EILSEQ => "the file system does not take this name",
        e::EFBIG => "it is larger than the file system, or ulimit -f, allows",
        e::EMLINK => "the file system takes no more links",
        e::E2BIG => "it is too large",
        e::ESTALE => "it was replaced or removed meanwhile, or the server lost it",
        e::ENOTCONN => "the server of this file system is gone, a dead mount",
        e::ENOKEY => "its encryption key is not there",
        e::ETXTBSY => "it is a program that runs",
        e::EBUSY => "it is in use, or something is mounted on it",
        e::EEXIST => "something else stands there already",
        e::EXDEV => "it is on another file system",
        e::EOPNOTSUPP | e::ENOSYS => "the file system does not support that",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Side::{self, Replica, Source};
    use crate::errno as e;
    use crate::{Class, Fault, Problem, RelPath};

    fn told(act: Act, side: Side, errno: i32, class: Class) -> String {
        let path = RelPath::parse(b"a/b").expect("a path");
        Problem::new(path, Fault { side, act, errno }, class).to_string()
    }

    #[test]
    fn a_problem_is_a_sentence_with_what_where_why_and_what_follows() {
        use Act as A;
        let table = [
            (
                A::Open,
                Source,
                13,
                r#""a/b": cannot open it on the source: permission denied (left as it was)"#,
            ),
            (
                A::LookAt,
                Source,
                e::EIO,
                r#""a/b": cannot look at it on the source: input/output error, see dmesg (left as it was)"#,
            ),
            (
                A::Open,
                Source,
                e::ELOOP,
                r#""a/b": cannot open it on the source: a symbolic link stands in its place (left as it was)"#,
            ),
            (
                A::ReadMarksAbove,
                Replica,
                e::ENOENT,
                r#""a/b": cannot read the marks of the directories above it on the replica: they are read by way of /proc, which is not mounted there; mount it (left as it was)"#,
            ),
            (
                A::Create,
                Replica,
                e::EILSEQ,
                r#""a/b": cannot create the file on the replica: the file system does not take this name (left as it was)"#,
            ),
            (
                A::Rename,
                Replica,
                e::EDQUOT,
                r#""a/b": cannot give it its name on the replica: the disk quota is used up (left as it was)"#,
            ),
            (
                A::CopyWith,
                Replica,
                e::ETXTBSY,
                r#""a/b": cannot have the program of --copy-with make it on the replica: it is a program that runs (left as it was)"#,
            ),
            (
                A::RemoveDirectory,
                Replica,
                39,
                r#""a/b": cannot remove the directory from the replica: directory not empty (left as it was)"#,
            ),
            (
                A::ReachAgent,
                Source,
                crate::LINE_LOST,
                r#""a/b": cannot reach the agent of the source: the connection is lost (left as it was)"#,
            ),
            (
                A::Read,
                Source,
                e::ENOTCONN,
                r#""a/b": cannot read it on the source: the server of this file system is gone, a dead mount (left as it was)"#,
            ),
            (
                A::HoldFirstLink,
                Replica,
                e::ESTALE,
                r#""a/b": cannot keep hold of the file to link it to on the replica: something else stands in its place now (left as it was)"#,
            ),
        ];
        for (act, side, errno, sentence) in table {
            assert_eq!(told(act, side, errno, Class::Skip), sentence);
        }
    }

    #[test]
    fn every_act_and_cause_reads_as_one_line_without_numbers_or_doubled_words() {
        for act in Act::ALL {
            for errno in 1..134 {
                let sentence = told(*act, Replica, errno, Class::Partly);
                assert!(
                    sentence.starts_with(r#""a/b": cannot "#)
                        && sentence.ends_with("the rest of it was kept)"),
                    "{sentence}"
                );
                assert!(
                    !sentence.contains("os error")
                        && !sentence.contains("  ")
                        && !sentence.contains('\n'),
                    "{sentence}"
                );
                let words: Vec<&str> = sentence.split(' ').collect();
                assert!(
                    words
                        .windows(2)
                        .all(|pair| pair[0] != pair[1] || pair[0] == "it"),
                    "{sentence}"
                );
            }
        }
    }

    #[test]
    fn what_is_not_there_is_told_alike_with_and_without_a_number() {
        let without: io::Error = io::ErrorKind::NotFound.into();
        let with = io::Error::from_raw_os_error(2);
        let own = io::Error::new(io::ErrorKind::NotFound, "Its own words");
        for (error, words) in [
            (without, "no such file or directory"),
            (with, "no such file or directory"),
            (own, "its own words"),
        ] {
            assert_eq!(cause(&error), words);
        }
    }
}
