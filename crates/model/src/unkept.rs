//! What an entry has that no copy of it gets: not compared, not set, but named where it is met.

use crate::errno;
use serde::{Deserialize, Serialize};
use std::ops::{BitOr, Sub};

/// Kinds of what is not kept, as a set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unkept(u16);

/// What is told in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Flags of inodes (chattr(1)).
    Flags,
    /// ACLs of other kinds than POSIX's, and what else file systems show under `system.`.
    Acls,
}

impl Sort {
    /// All of them.
    pub const ALL: [Sort; 2] = [Sort::Flags, Sort::Acls];
}

/// Each kind with its line and its word.
const KINDS: [(Unkept, Sort, &str); 11] = [
    (Unkept::IMMUTABLE, Sort::Flags, "immutable"),
    (Unkept::APPEND_ONLY, Sort::Flags, "append-only"),
    (Unkept::NO_DUMP, Sort::Flags, "no dump"),
    (Unkept::COMPRESSED, Sort::Flags, "compressed"),
    (Unkept::ENCRYPTED, Sort::Flags, "encrypted"),
    (Unkept::VERITY, Sort::Flags, "verity"),
    (Unkept::NFS4_ACL, Sort::Acls, "NFSv4 ACLs"),
    (Unkept::RICH_ACL, Sort::Acls, "rich ACLs"),
    (Unkept::SMB_ACL, Sort::Acls, "SMB ACLs"),
    (Unkept::SAMBA_ACL, Sort::Acls, "Samba's NT ACLs"),
    (
        Unkept::OTHER_SYSTEM,
        Sort::Acls,
        "other attributes \"system.*\"",
    ),
];

impl Unkept {
    /// Nothing.
    pub const NONE: Unkept = Unkept(0);
    /// Nobody may change it (`chattr +i`).
    pub const IMMUTABLE: Unkept = Unkept(1);
    /// It only grows (`chattr +a`).
    pub const APPEND_ONLY: Unkept = Unkept(1 << 1);
    /// dump(8) leaves it out (`chattr +d`).
    pub const NO_DUMP: Unkept = Unkept(1 << 2);
    /// Its file system makes its content smaller (`chattr +c`).
    pub const COMPRESSED: Unkept = Unkept(1 << 3);
    /// Its content needs a key (fscrypt).
    pub const ENCRYPTED: Unkept = Unkept(1 << 4);
    /// Its content is held against a hash tree (fs-verity).
    pub const VERITY: Unkept = Unkept(1 << 5);
    /// `system.nfs4_acl`, which a client of NFSv4 shows, and its relatives.
    pub const NFS4_ACL: Unkept = Unkept(1 << 6);
    /// `system.richacl`.
    pub const RICH_ACL: Unkept = Unkept(1 << 7);
    /// What clients of SMB show.
    pub const SMB_ACL: Unkept = Unkept(1 << 8);
    /// `security.NTACL`.
    pub const SAMBA_ACL: Unkept = Unkept(1 << 9);
    /// Others of `system.*`.
    pub const OTHER_SYSTEM: Unkept = Unkept(1 << 10);
    /// Extended attributes that the kernel cannot show (`E2BIG`): their names together, or a value,
    /// are longer than it allows (listxattr(2)). Each entry that has such is a problem.
    pub const TOO_LONG: Unkept = Unkept(1 << 11);
    /// Extended attributes whose names are listed and whose values cannot be read (`EOPNOTSUPP`).
    /// Each entry that has such is a problem.
    pub const NO_VALUE: Unkept = Unkept(1 << 12);
    /// Extended attributes that could not be read.
    pub const UNREAD: Unkept = Unkept(1 << 11 | 1 << 12);

    /// Returns which extended attributes an error number says could not be read; nothing if it says
    /// more than that.
    pub fn of_unread(errno: i32) -> Unkept {
        match errno {
            errno::E2BIG => Unkept::TOO_LONG,
            errno::EOPNOTSUPP => Unkept::NO_VALUE,
            _ => Unkept::NONE,
        }
    }

    /// Returns the error numbers with which extended attributes could not be read.
    pub fn unread_errnos(self) -> impl Iterator<Item = i32> {
        [errno::E2BIG, errno::EOPNOTSUPP]
            .into_iter()
            .filter(move |errno| self.has(Unkept::of_unread(*errno)))
    }

    /// What an extended attribute that is not kept stands for: one with access rights of its own.
    pub fn of_xattr(name: &[u8]) -> Unkept {
        let begins = |beginning: &[u8]| name.starts_with(beginning);
        match () {
            () if name == b"security.NTACL" => Unkept::SAMBA_ACL,
            () if !begins(b"system.") || begins(b"system.posix_acl_") => Unkept::NONE,
            () if begins(b"system.nfs4_") => Unkept::NFS4_ACL,
            () if begins(b"system.richacl") => Unkept::RICH_ACL,
            () if begins(b"system.cifs_") || begins(b"system.smb3_") => Unkept::SMB_ACL,
            () => Unkept::OTHER_SYSTEM,
        }
    }

    /// As a number, which keeps its meaning: each kind is a bit.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// What such a number stands for.
    pub fn from_bits(bits: u16) -> Unkept {
        Unkept(bits)
    }

    /// Whether it has all of this.
    pub fn has(self, kind: Unkept) -> bool {
        (kind - self).is_empty()
    }

    /// What of it new entries take over from the directory that they are made in.
    pub fn inherited(self) -> Unkept {
        Unkept(self.0 & (Unkept::NO_DUMP | Unkept::COMPRESSED | Unkept::ENCRYPTED).0)
    }

    /// Whether it is nothing.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// What of it is told in this line.
    pub fn of_sort(self, sort: Sort) -> Unkept {
        self.kinds()
            .filter(|(_, of, _)| *of == sort)
            .fold(Unkept::NONE, |all, (kind, ..)| all | *kind)
    }

    /// The words for it.
    pub fn words(self) -> Vec<&'static str> {
        self.kinds().map(|(_, _, word)| *word).collect()
    }

    fn kinds(self) -> impl Iterator<Item = &'static (Unkept, Sort, &'static str)> {
        KINDS.iter().filter(move |(kind, ..)| self.0 & kind.0 != 0)
    }
}

impl BitOr for Unkept {
    type Output = Unkept;

    fn bitor(self, other: Unkept) -> Unkept {
        Unkept(self.0 | other.0)
    }
}

impl Sub for Unkept {
    type Output = Unkept;

    fn sub(self, other: Unkept) -> Unkept {
        Unkept(self.0 & !other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_with_rights_of_their_own_are_known_by_their_names() {
        let words = |name: &str| Unkept::of_xattr(name.as_bytes()).words().concat();
        for (name, wanted) in [
            ("system.nfs4_acl", "NFSv4 ACLs"),
            ("system.nfs4_dacl", "NFSv4 ACLs"),
            ("system.richacl", "rich ACLs"),
            ("system.cifs_ntsd_full", "SMB ACLs"),
            ("system.smb3_acl", "SMB ACLs"),
            ("security.NTACL", "Samba's NT ACLs"),
            ("system.strange", "other attributes \"system.*\""),
            ("system.posix_acl_access", ""),
            ("security.selinux", ""),
            ("lustre.lov", ""),
        ] {
            assert_eq!(words(name), wanted, "{name}");
        }
    }

    #[test]
    fn every_kind_is_told_in_one_line() {
        let all = KINDS
            .iter()
            .fold(Unkept::NONE, |all, (kind, ..)| all | *kind);
        let told = Sort::ALL.map(|sort| all.of_sort(sort).words().len());
        assert_eq!((told, all.words().len()), ([6, 5], KINDS.len()));
        assert!(
            (all - Unkept::IMMUTABLE)
                .words()
                .iter()
                .all(|word| *word != "immutable")
        );
    }
}
