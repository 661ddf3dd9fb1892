//! Directories of the replica that stand open while what is in them changes.
//!
//! A directory gets its attributes when everything in it is done. One that was made private on the
//! source, or went to another owner, would show new content to others until then. So before the
//! first change in it or below it, it goes to its owner, with a mode that lets in nobody whom either
//! mode keeps out.

use driftless_model::{ACL_ACCESS, Keep, Meta, Xattr, Xattrs, mode_for_other_group, mode_within};
use driftless_tree::{Attributes, DirMutRef, DirRef, Known, narrower};

/// What has to be known of a directory that was there, to narrow its mode.
pub struct Narrowing {
    keep: Keep,
    /// The user and the group that it comes to belong to.
    owner: (u32, u32),
    /// The user may have to let himself in.
    is_user: bool,
    /// A dry run tells the mode, and sets nothing.
    is_dry: bool,
}

impl Narrowing {
    /// Returns what narrows a directory that comes to belong to `owner`. An ordinary user may have to
    /// let himself in. A dry run sets nothing.
    pub fn new(keep: Keep, owner: (u32, u32), (is_user, is_dry): (bool, bool)) -> Narrowing {
        Narrowing {
            keep,
            owner,
            is_user,
            is_dry,
        }
    }

    /// Narrows the replica's directory, which was as `before` says, and returns the mode that it has
    /// from then on, or would have.
    pub fn narrow(
        &self,
        directory: &DirRef,
        (before, there): &(Meta, Xattrs),
        replica: &DirMutRef,
    ) -> u32 {
        let source = directory.first_meta();
        // Of one that cannot be read any more its end will tell.
        let xattrs = directory.xattrs(&self.keep).unwrap_or_default();
        let changes_acl = acl(&xattrs) != acl(there);
        // The source's ACL is set at the end. Until then nobody has what it denies.
        let mut wanted = if changes_acl {
            xattrs.mode_without_any_acl(source.mode)
        } else {
            xattrs.mode_of_copy(source.mode)
        };
        if self.owner.1 != source.gid {
            wanted = mode_for_other_group(wanted);
        }
        let narrowed = narrower(before.mode, wanted).filter(|_| changes_acl);
        let mut mode = narrowed.unwrap_or_else(|| mode_within(before.mode, wanted));
        let owner = (before.uid, before.gid);
        if (mode, self.owner) == (before.mode, owner) {
            return mode;
        }
        if self.is_user {
            mode |= 0o700;
        }
        if self.is_dry {
            return mode;
        }
        let attributes = Attributes {
            uid: Some(self.owner.0),
            gid: Some(self.owner.1),
            mode: Some(mode),
            ..Attributes::default()
        };
        let _told_at_its_end = replica.set_own(&Known::of(before), &attributes);
        mode
    }
}

fn acl(xattrs: &Xattrs) -> Option<&Xattr> {
    xattrs.iter().find(|(name, _)| **name == *ACL_ACCESS)
}
