//! The attributes that an entry is to have, and what is known of it before.

use driftless_model::{
    ACL_ACCESS, Keep, Kind, Meta, SETGID, SETUID, Stamp, Xattrs, bounds, mode_of_acl,
};
use serde::{Deserialize, Serialize};

/// Bits that lend the rights of the owner or the group to whoever runs a file.
pub(super) const SETID_BITS: u32 = SETUID | SETGID;

/// What an entry is to have; `None` leaves a property as it is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Attributes {
    /// Owner.
    #[serde(deserialize_with = "bounds::maybe_owner")]
    pub uid: Option<u32>,
    /// Group.
    #[serde(deserialize_with = "bounds::maybe_owner")]
    pub gid: Option<u32>,
    /// Permission bits, 07777.
    #[serde(deserialize_with = "bounds::maybe_mode")]
    pub mode: Option<u32>,
    /// Nobody asked for that mode: where the file system has modes of its own, it is no fault that
    /// this one cannot be set.
    pub mode_is_plain: bool,
    /// Where modes are not kept: the mode that stays, but for rights that `mode` does not give.
    pub stood: Option<Stood>,
    /// Whose rights the set-id bits among them stand for: the user and the group that the entry
    /// must belong to, where that matters. `None` if there are no such bits.
    pub lends: Option<Lends>,
    /// The group whom the rights of the group are meant for.
    #[serde(deserialize_with = "bounds::maybe_owner")]
    pub group: Option<u32>,
    /// Modification time.
    pub mtime: Option<Stamp>,
    /// Access time.
    pub atime: Option<Stamp>,
    /// Among the extended attributes that `Keep` wants, all that the entry is to have.
    pub xattrs: Option<(Xattrs, Keep)>,
}

/// A mode that stays where modes are not kept. The entry loses rights that its source does not give
/// when its owner, its group or its ACL changes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Stood {
    /// The mode that the entry has, or that the one had which it replaces.
    #[serde(deserialize_with = "bounds::mode")]
    pub mode: u32,
    /// Its content has changed: it loses those rights in any case.
    pub is_changed: bool,
}

impl Attributes {
    /// These attributes, with the mode `plain` if they have none.
    pub fn or_mode(self, plain: u32) -> Self {
        Attributes {
            mode_is_plain: self.mode.is_none(),
            mode: self.mode.or(Some(plain)),
            ..self
        }
    }

    /// The attributes of the source that `keep` asks for.
    pub fn of(meta: &Meta, xattrs: Xattrs, keep: &Keep) -> Self {
        Attributes {
            uid: keep.owner.then_some(meta.uid),
            gid: keep.group.then_some(meta.gid),
            mode: keep.mode.then_some(xattrs.mode_of_copy(meta.mode)),
            mode_is_plain: false,
            stood: None,
            lends: Lends::of(meta, keep),
            group: Some(meta.gid),
            mtime: keep.times.then_some(meta.mtime),
            atime: keep.atimes.then_some(meta.atime),
            xattrs: keep.any_xattr().then_some((xattrs, *keep)),
        }
    }
}

impl Attributes {
    /// Whether these attributes may give somebody else than the present owner of a directory rights
    /// to it.
    pub(crate) fn opens(&self) -> bool {
        let others = self.mode.is_some_and(|mode| mode & 0o077 != 0);
        let listed = self
            .xattrs
            .as_ref()
            .is_some_and(|(xattrs, _)| !xattrs.is_empty());
        self.uid.is_some() || self.gid.is_some() || others || listed
    }

    /// The permission bits that are part of the ACL, where that is kept and the mode is not:
    /// another mode would change the ACL.
    pub(super) fn mode_of_acl(&self) -> Option<u32> {
        let (_, keep) = self.xattrs.as_ref()?;
        self.acl().filter(|_| !keep.mode).and_then(mode_of_acl)
    }

    /// Returns these attributes for an entry that belongs to another group: its members get no more
    /// than everybody else.
    pub(super) fn for_other_group(&self) -> Attributes {
        let none = Xattrs::default();
        let mode = self.mode.unwrap_or_default();
        let xattrs = self.xattrs.as_ref();
        let (mode, narrowed) = xattrs
            .map_or(&none, |(xattrs, _)| xattrs)
            .for_other_group(mode);
        Attributes {
            mode: self.mode.map(|_| mode),
            xattrs: xattrs.map(|(_, keep)| (narrowed, *keep)),
            ..self.clone()
        }
    }

    /// The ACL, if it is kept.
    pub(super) fn acl(&self) -> Option<&[u8]> {
        let (xattrs, _) = self.xattrs.as_ref().filter(|(_, keep)| keep.acls)?;
        let acl = xattrs.iter().find(|(name, _)| **name == *ACL_ACCESS);
        acl.map(|(_, acl)| &**acl)
    }
}

/// The user and the group without whom an entry does not get its set-user-id and set-group-id bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lends {
    #[serde(deserialize_with = "bounds::maybe_owner")]
    pub(super) uid: Option<u32>,
    #[serde(deserialize_with = "bounds::maybe_owner")]
    pub(super) gid: Option<u32>,
}

impl Lends {
    /// A file lends the rights of its owner and group to whoever runs it. A directory lends none:
    /// only what is kept otherwise matters.
    fn of(meta: &Meta, keep: &Keep) -> Option<Lends> {
        let is_dir = meta.kind == Kind::Dir;
        let (uid, gid) = (
            (!is_dir || keep.owner).then_some(meta.uid),
            (!is_dir || keep.group).then_some(meta.gid),
        );
        (meta.mode & SETID_BITS != 0).then_some(Lends { uid, gid })
    }
}

/// What is known of an entry before its attributes are set; what is known to be right is not set
/// again.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Known {
    /// Device and inode that the entry must be.
    pub id: Option<(u64, u64)>,
    /// Owner and group.
    pub owner: Option<(u32, u32)>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Access time; that of now is none worse where the entry was made a moment ago.
    pub atime: Option<Stamp>,
    /// It has no extended attributes.
    pub clean: bool,
    /// It is a symbolic link, which has no mode of its own.
    pub symlink: bool,
    /// It was made a moment ago: it must belong to this user and have no other name.
    pub made_now: bool,
    /// Nobody else can reach the directory it lies in.
    pub private: bool,
}

impl Known {
    /// What a look has shown.
    pub fn of(meta: &Meta) -> Self {
        Known {
            id: Some(meta.id()),
            owner: Some((meta.uid, meta.gid)),
            mode: Some(meta.mode),
            atime: Some(meta.atime),
            clean: false,
            symlink: meta.kind == driftless_model::Kind::Symlink,
            ..Known::default()
        }
    }
}
