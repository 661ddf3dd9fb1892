//! What of an entry is kept equal.

use crate::{Kind, Meta, bounds};
use serde::{Deserialize, Serialize};

/// Which properties are compared and set. Everything but access times by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Keep {
    /// Permission bits with setuid, setgid and sticky.
    pub mode: bool,
    /// Numeric owner.
    pub owner: bool,
    /// Numeric group.
    pub group: bool,
    /// An owner or group that this user cannot give is a problem; an ordinary user's are only
    /// counted otherwise.
    pub demands_owners: bool,
    /// Modification times.
    pub times: bool,
    /// Seconds by which times may be apart and count as equal all the same.
    pub modify_window: u32,
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
    /// Permission bits that new entries do not get where modes are not kept: those of the umask
    /// that the user gave the run (umask(2)).
    #[serde(deserialize_with = "bounds::mode")]
    pub umask: u32,
}

impl Default for Keep {
    fn default() -> Self {
        Keep {
            mode: true,
            owner: true,
            group: true,
            demands_owners: false,
            times: true,
            modify_window: 0,
            atimes: false,
            hard_links: true,
            holes: true,
            symlinks: true,
            specials: true,
            devices: true,
            xattrs: true,
            acls: true,
            umask: 0o022,
        }
    }
}

/// The bits of a mode that permit something: those of the owner, the group and others.
pub const PERMISSIONS: u32 = 0o777;
/// Those of the group and of others.
const SHARED: u32 = 0o077;
/// A file with this bit runs with the rights of its owner (inode(7)).
pub const SETUID: u32 = 0o4000;
/// A file with this bit runs with the rights of its group (inode(7)).
pub const SETGID: u32 = 0o2000;

/// The attribute that lends a program single rights of root (capabilities(7)).
pub const CAPABILITY: &[u8] = b"security.capability";

/// Namespace prefix of the POSIX ACL attributes (acl(5), include/uapi/linux/xattr.h).
const ACL_PREFIX: &[u8] = b"system.posix_acl_";

/// Attributes in which a file system keeps what is its own: they say where its data lies or which
/// inode this is, or hold in another form what is kept anyway (XFS keeps the ACLs in
/// `trusted.SGI_ACL_*` and lists both). On another file system they mean nothing, and removing them
/// may remove what they stand for. A `*` at the end stands for any rest. Where each comes from is
/// told in `docs/attributes.md`, which is held against this list by a test.
const FILE_SYSTEMS_OWN: [&str; 27] = [
    "trusted.SGI_*",
    "trusted.lov",
    "trusted.lma",
    "trusted.lmv",
    "trusted.dmv",
    "trusted.link",
    "trusted.fid",
    "trusted.version",
    "trusted.som",
    "trusted.hsm",
    "trusted.lfsck_*",
    "trusted.dummy",
    "trusted.gfid",
    "trusted.gfid2path.*",
    "trusted.pgfid.*",
    "trusted.glusterfs.*",
    "trusted.afr.*",
    "trusted.ec.*",
    "trusted.bit-rot.*",
    "trusted.distribute.*",
    "trusted.tier.*",
    "trusted.io-stats-dump",
    "trusted.overlay.origin",
    "trusted.overlay.impure",
    "trusted.overlay.nlink",
    "trusted.overlay.upper",
    "trusted.overlay.uuid",
];

/// Whether `name` is an attribute that a file system keeps for itself.
fn is_file_systems_own(name: &[u8]) -> bool {
    FILE_SYSTEMS_OWN
        .iter()
        .any(|own| match own.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning.as_bytes()),
            None => name == own.as_bytes(),
        })
}

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

    /// The mode that an entry of the replica shall have, where `there` are the user and group that
    /// it has now. A set-id bit lends a file the rights of the owner whom the source names: where
    /// the owner is not kept, and is another, it would lend other rights. Those of a directory lend
    /// none.
    pub fn mode_for(&self, source: &Meta, there: (u32, u32)) -> u32 {
        let mut mode = source.mode;
        if source.kind != Kind::Dir && !self.owner && source.uid != there.0 {
            mode &= !SETUID;
        }
        if source.kind != Kind::Dir && !self.group && source.gid != there.1 {
            mode &= !SETGID;
        }
        mode
    }

    /// Returns the mode of a new entry where modes are not kept: that of its source, less the
    /// umask.
    pub fn new_mode(&self, mode: u32) -> u32 {
        mode & PERMISSIONS & !self.umask
    }

    /// Whether any extended attribute has to be looked at.
    pub fn any_xattr(&self) -> bool {
        self.xattrs || self.acls
    }

    /// Whether the extended attribute `name` is kept: `user.*`, `trusted.*`, `security.capability`
    /// and POSIX ACLs (xattr(7)).
    ///
    /// Labels of security modules belong to the host, some of `trusted.*` to the file system, and
    /// `user.driftless.*` and `trusted.driftless.*` are our own.
    pub fn wants_xattr(&self, name: &[u8]) -> bool {
        if name.starts_with(ACL_PREFIX) {
            return self.acls;
        }
        let of_users = name.starts_with(b"user.") && !name.starts_with(b"user.driftless.");
        let trusted = || {
            name.starts_with(b"trusted.")
                && !name.starts_with(b"trusted.driftless.")
                && !is_file_systems_own(name)
        };
        self.xattrs && (of_users || name == CAPABILITY || trusted())
    }
}

/// Returns the mode of an entry that had the mode `stood` before, and gives the group and others no
/// more than `wanted` does.
pub fn mode_within(stood: u32, wanted: u32) -> u32 {
    stood & (wanted | !SHARED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_are_not_kept_are_never_wider() {
        let keep = |umask| Keep {
            mode: false,
            umask,
            ..Keep::default()
        };
        for (source, umask, new) in [
            (0o600, 0o022, 0o600),
            (0o4775, 0o022, 0o755),
            (0o666, 0o077, 0o600),
            (0o1777, 0, 0o777),
        ] {
            assert_eq!(keep(umask).new_mode(source), new, "{source:o}, {umask:o}");
        }
        for (stood, source, now) in [
            (0o640, 0o755, 0o640),
            (0o755, 0o600, 0o700),
            (0o2770, 0o750, 0o2750),
            (0o400, 0o666, 0o400),
        ] {
            assert_eq!(mode_within(stood, source), now, "{stood:o}, {source:o}");
        }
    }

    #[test]
    fn what_a_file_system_keeps_for_itself_is_not_kept() {
        let wants = |name: &str| Keep::default().wants_xattr(name.as_bytes());
        for own in [
            "trusted.SGI_ACL_FILE",
            "trusted.SGI_DMI_X",
            "trusted.lov",
            "trusted.lfsck_ns",
            "trusted.gfid",
            "trusted.ec.size",
        ] {
            assert!(!wants(own), "{own}");
        }
        // What an overlay's layer means is in these, and a copy of the layer is to mean the same.
        for kept in [
            "trusted.lovely",
            "trusted.links",
            "trusted.overlay.opaque",
            "trusted.overlay.redirect",
            "user.lov",
            "user.SGI_X",
        ] {
            assert!(wants(kept), "{kept}");
        }
        for foreign in [
            "lustre.lov",
            "security.selinux",
            "system.nfs4_acl",
            "user.driftless.resume",
            "trusted.driftless.x",
            "xuser.a",
        ] {
            assert!(!wants(foreign), "{foreign}");
        }
    }

    #[test]
    fn acls_and_other_attributes_are_left_out_apart_from_each_other() {
        let (no_acls, no_xattrs) = (
            Keep {
                acls: false,
                ..Keep::default()
            },
            Keep {
                xattrs: false,
                ..Keep::default()
            },
        );
        assert!(!no_acls.wants_xattr(b"system.posix_acl_access") && no_acls.wants_xattr(b"user.a"));
        assert!(
            no_xattrs.wants_xattr(b"system.posix_acl_default")
                && !no_xattrs.wants_xattr(b"trusted.a")
        );
        assert!(
            !no_acls.wants_xattr(b"trusted.SGI_ACL_FILE"),
            "an ACL under another name"
        );
    }

    #[test]
    fn the_documented_list_is_the_one_that_is_used() {
        let page = include_str!("../../../docs/attributes.md");
        let row = |line: &str| {
            line.starts_with("| ").then(|| {
                line.split('`')
                    .skip(1)
                    .step_by(2)
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            })
        };
        let told: Vec<String> = page
            .lines()
            .filter_map(row)
            .flatten()
            .filter(|name| name.starts_with("trusted."))
            .collect();
        assert_eq!(told, FILE_SYSTEMS_OWN);
    }
}
