//! Names and texts of lock files and of their signs.
//!
//! Users meet both beside their own files, so the names and the texts say what they are.

use crate::dir::Dir;
use crate::temp::{FORMER_ROOT_LOCK, FORMER_ROOT_SIGN, fnv1a, from_number};
use driftless_model::{LOCK, LOCK_SIGN};
use std::ffi::{CStr, CString};

/// How the text begins by which a lock or a sign is known.
const TITLE: &str = "driftless lock";
/// More bytes than stand in front of the end of the title.
pub const HEAD_BYTES: usize = 512;

/// What a lock file says to people, behind the lines that programs read.
pub const LOCK_TEXT: &str = "\
driftless lock: the process and host in line 1 have worked on this replica \
since the time in line 2 (seconds since 1970).
The run removes this file when it ends. \
If the run was killed, the next run removes it, and so may you.
";
/// What a sign says to people.
pub const SIGN_TEXT: &str = "\
driftless lock sign: it shows all users whether the run \
that made the lock file beside it is still at work.
The run removes this file when it ends. \
If the run was killed, the next run removes it, and so may you.
";

/// The names of a lock and of its sign.
pub struct LockNames {
    /// The locked file.
    pub lock: CString,
    /// The file that shows whether it is locked.
    pub sign: CString,
}

impl LockNames {
    /// Returns those of a directory, in it, or of its entry `entry`, beside that.
    pub fn of(entry: Option<&CStr>) -> LockNames {
        let named = |begin: &CStr| {
            let text = begin.to_str().expect("ASCII");
            let hash = entry.map(|name| format!("-{:032x}", fnv1a(name.to_bytes())));
            CString::new(format!("{text}{}", hash.unwrap_or_default())).expect("no NUL")
        };
        LockNames {
            lock: named(LOCK),
            sign: named(LOCK_SIGN),
        }
    }

    /// Returns the names that earlier versions gave to the same. For the lock of an entry the NUL
    /// was hashed, too, which kept it apart from the names of all unfinished copies.
    pub fn former(entry: Option<&CStr>) -> LockNames {
        let Some(name) = entry else {
            return LockNames {
                lock: FORMER_ROOT_LOCK.to_owned(),
                sign: FORMER_ROOT_SIGN.to_owned(),
            };
        };
        let lock = from_number(fnv1a(name.to_bytes_with_nul()));
        LockNames {
            sign: from_number(fnv1a(lock.to_bytes())),
            lock,
        }
    }
}

/// Whether a file that has the name of a lock or a sign begins like one. An empty file does: a run
/// makes the file before it writes to it.
pub fn says_lock(head: &[u8]) -> bool {
    let mut lines = head.split(|byte| *byte == b'\n');
    head.is_empty() || lines.any(|line| line.starts_with(TITLE.as_bytes()))
}

/// Whether the file `name`, which has the name of a lock or a sign, is one, and not a user's own. A
/// file that cannot be read counts as one: a lock is closed to others.
pub fn is_lock_of_run(dir: &dyn Dir, name: &CStr) -> bool {
    let mut head = [0; HEAD_BYTES];
    let got = dir
        .open_file(name)
        .and_then(|file| file.read_at(&mut head, 0));
    got.ok().is_none_or(|got| says_lock(&head[..got]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Holder;
    use crate::temp::{is_root_name, is_temp_name, stable_temp_name};
    use driftless_model::is_lock_name;

    #[test]
    fn names_of_locks_are_told_from_all_others() {
        for entry in [None, Some(c"a")] {
            let (now, former) = (LockNames::of(entry), LockNames::former(entry));
            let all = [&now.lock, &now.sign, &former.lock, &former.sign];
            let distinct: std::collections::BTreeSet<_> = all.into_iter().collect();
            assert_eq!(distinct.len(), all.len());
            assert!(all.iter().all(|name| is_temp_name(name)), "{all:?}");
            assert_eq!(all.map(|name| is_root_name(name)), [entry.is_none(); 4]);
            assert_eq!(
                all.map(|name| is_lock_name(name.to_bytes())),
                [true, true, false, false]
            );
        }
        assert_ne!(LockNames::former(Some(c"a")).lock, stable_temp_name(c"a"));
    }

    #[test]
    fn lock_files_are_known_by_their_texts() {
        let lock = [&Holder::here(1).encode()[..], LOCK_TEXT.as_bytes()].concat();
        assert_eq!(Holder::decode(&lock), Some(Holder::here(1)));
        for text in [&lock[..], SIGN_TEXT.as_bytes(), b""] {
            assert!(says_lock(&text[..text.len().min(HEAD_BYTES)]));
        }
        for text in [&b"17 host\n1\n"[..], b"a user's\n", b"no driftless lock\n"] {
            assert!(!says_lock(text));
        }
    }
}
