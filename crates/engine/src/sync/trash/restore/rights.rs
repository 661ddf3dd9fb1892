//! Computes the rights of a directory that comes back from several pieces. A user who could not
//! enter one of the pieces must not reach its entries in the restored directory, so it gets only
//! rights that all pieces gave.

use driftless_model::{Keep, Meta, Xattrs, mode_for_other_group};
use driftless_tree::{Attributes, Dir, DirMut, Done};

/// All rights of the owner.
const OWNER_MODE: u32 = 0o700;
/// The right to write of the group and of others.
const SHARED_WRITE: u32 = 0o022;
/// In a directory with this bit, only the owner of an entry renames or removes it (inode(7)).
const STICKY: u32 = 0o1000;

/// Users who may reach the entries of a directory.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectoryRights {
    /// User and group that the directory belongs to.
    owner: (u32, u32),
    /// Permission bits with setuid, setgid and sticky (07777).
    mode: u32,
    /// Access ACL and default ACL; `None` if they cannot be read.
    acls: Option<Xattrs>,
}

impl DirectoryRights {
    /// Reads the rights of a directory with this metadata, as far as a copy keeps them.
    ///
    /// # Errors
    /// The ACLs cannot be read.
    pub fn of<D: Dir + ?Sized>(dir: &D, meta: &Meta, keep: &Keep) -> Done<DirectoryRights> {
        let acls = dir.xattrs(&only_acls(keep))?;
        Ok(DirectoryRights {
            owner: (meta.uid, meta.gid),
            mode: acls.mode_of_copy(meta.mode),
            acls: Some(acls).filter(Xattrs::is_whole),
        })
    }

    /// Returns the rights of a directory of this owner with this mode and without ACLs.
    pub fn closed(owner: (u32, u32), mode: u32) -> DirectoryRights {
        DirectoryRights {
            owner,
            mode,
            acls: Some(Xattrs::default()),
        }
    }

    /// Returns these rights of a piece as its copy in `staged` has them: an ordinary user gives no
    /// directory to another owner.
    pub fn copied_to(self, staged: &dyn DirMut, (uid, gid): (u32, u32)) -> DirectoryRights {
        if staged.may_give() {
            return self;
        }
        let mode = match self.owner.1 == gid {
            true => self.mode,
            false => mode_for_other_group(self.mode),
        };
        DirectoryRights {
            owner: (uid, gid),
            mode,
            ..self
        }
    }

    /// Returns the rights that both directories give. Where owners, groups or ACLs differ, only the
    /// owner keeps rights. Where the owners differ, `user` becomes the owner.
    pub fn common(&self, other: &DirectoryRights, user: (u32, u32)) -> DirectoryRights {
        let mode = common_mode(self.mode, other.mode);
        if self.owner == other.owner && self.has_acls_of(other) {
            return DirectoryRights {
                mode,
                ..self.clone()
            };
        }
        let is_same_user = self.owner.0 == other.owner.0;
        DirectoryRights {
            owner: if is_same_user { self.owner } else { user },
            mode: mode & OWNER_MODE,
            acls: Some(Xattrs::default()),
        }
    }

    fn has_acls_of(&self, other: &DirectoryRights) -> bool {
        let both = self.acls.as_ref().zip(other.acls.as_ref());
        both.is_some_and(|(own, other)| own.iter().eq(other.iter()))
    }

    /// Returns the attributes that give a directory with the rights `now` these rights.
    pub fn attributes(&self, now: &DirectoryRights, keep: &Keep) -> Attributes {
        let is_owner_new = self.owner != now.owner;
        let acls = self.acls.clone().filter(|_| !self.has_acls_of(now));
        Attributes {
            uid: is_owner_new.then_some(self.owner.0),
            gid: is_owner_new.then_some(self.owner.1),
            mode: Some(self.mode),
            xattrs: acls.map(|acls| (acls, only_acls(keep))),
            ..Attributes::default()
        }
    }
}

/// Returns a wish for no extended attributes but ACLs.
fn only_acls(keep: &Keep) -> Keep {
    Keep {
        xattrs: false,
        ..*keep
    }
}

/// Returns the permissions that both modes give. The sticky bit takes rights away, so one of both is
/// enough; it is left out where the owner alone may write.
fn common_mode(one: u32, other: u32) -> u32 {
    let mode = one & other & !STICKY;
    let sticky = (one | other) & STICKY;
    match mode & SHARED_WRITE {
        0 => mode,
        _ => mode | sticky,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{ACL_ACCESS, Unkept};

    const USER: (u32, u32) = (0, 0);

    fn rights(owner: (u32, u32), mode: u32, acl: Option<&[u8]>) -> DirectoryRights {
        let acl = acl.map(|acl| (ACL_ACCESS.into(), acl.into()));
        DirectoryRights {
            owner,
            mode,
            acls: Some(Xattrs::new(acl.into_iter().collect(), Unkept::NONE)),
        }
    }

    #[test]
    fn common_rights_are_those_of_all_pieces() {
        let (alice, bob, other_group) = ((1000, 100), (1001, 100), (1000, 101));
        let plain = |owner, mode| rights(owner, mode, None);
        let listed = |mode| rights(alice, mode, Some(b"one"));
        for (one, other, common) in [
            (
                plain(alice, 0o755),
                plain(alice, 0o700),
                plain(alice, 0o700),
            ),
            (
                plain(alice, 0o750),
                plain(alice, 0o705),
                plain(alice, 0o700),
            ),
            (
                plain(alice, 0o2775),
                plain(alice, 0o755),
                plain(alice, 0o755),
            ),
            // Without the sticky bit, others could remove entries of each other.
            (
                plain(alice, 0o777),
                plain(alice, 0o1777),
                plain(alice, 0o1777),
            ),
            // The mode 1700 is that of directories that only lead to entries.
            (
                plain(alice, 0o700),
                plain(alice, 0o1777),
                plain(alice, 0o700),
            ),
            (plain(alice, 0o755), plain(bob, 0o755), plain(USER, 0o700)),
            (
                plain(alice, 0o755),
                plain(other_group, 0o755),
                plain(alice, 0o700),
            ),
            (listed(0o750), listed(0o750), listed(0o750)),
            (listed(0o750), plain(alice, 0o750), plain(alice, 0o700)),
            (plain(alice, 0o750), listed(0o750), plain(alice, 0o700)),
        ] {
            assert_eq!(one.common(&other, USER), common, "{one:?} {other:?}");
        }
    }

    #[test]
    fn unread_acls_close_a_directory() {
        let one = rights((1000, 100), 0o755, None);
        let other = DirectoryRights {
            acls: None,
            ..one.clone()
        };
        assert_eq!(one.common(&other, USER).mode, 0o700);
        assert_eq!(other.common(&one, USER).mode, 0o700);
    }
}
