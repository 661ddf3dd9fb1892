//! What of an entry is kept equal.

use crate::Kind;
use serde::{Deserialize, Serialize};

/// Which properties are compared and set. Everything but access times by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    /// Permission bits with setuid, setgid and sticky.
    pub mode: bool,
    /// Numeric owner.
    pub owner: bool,
    /// Numeric group.
    pub group: bool,
    /// Modification times.
    pub times: bool,
    /// Access times.
    pub atimes: bool,
    /// Hard-link groups.
    pub hard_links: bool,
    /// Holes of sparse files.
    pub holes: bool,
    /// Symbolic links.
    pub symlinks: bool,
    /// Named pipes and sockets.
    pub specials: bool,
    /// Character and block devices.
    pub devices: bool,
    /// Extended attributes other than ACLs.
    pub xattrs: bool,
    /// POSIX ACLs, access and default.
    pub acls: bool,
}

impl Default for Keep {
    fn default() -> Self {
        Keep {
            mode: true,
            owner: true,
            group: true,
            times: true,
            atimes: false,
            hard_links: true,
            holes: true,
            symlinks: true,
            specials: true,
            devices: true,
            xattrs: true,
            acls: true,
        }
    }
}

/// Namespace prefix of the POSIX ACL attributes (acl(5), include/uapi/linux/xattr.h).
const ACL_PREFIX: &[u8] = b"system.posix_acl_";

impl Keep {
    /// Whether entries of this kind are kept.
    pub fn keeps_kind(&self, kind: Kind) -> bool {
        match kind {
            Kind::File | Kind::Dir => true,
            Kind::Symlink => self.symlinks,
            Kind::Fifo | Kind::Socket => self.specials,
            Kind::Char | Kind::Block => self.devices,
        }
    }

    /// Whether any extended attribute has to be looked at.
    pub fn any_xattr(&self) -> bool {
        self.xattrs || self.acls
    }

    /// Whether the extended attribute `name` is kept: `user.*`, `trusted.*`, `security.capability` and POSIX ACLs (xattr(7)).
    ///
    /// Labels of security modules belong to the host, and `user.driftless.*` is our own.
    pub fn wants_xattr(&self, name: &[u8]) -> bool {
        if name.starts_with(ACL_PREFIX) {
            return self.acls;
        }
        let ours = name.starts_with(b"user.driftless.");
        let kept = name.starts_with(b"user.") || name.starts_with(b"trusted.") || name == b"security.capability";
        self.xattrs && kept && !ours
    }
}
