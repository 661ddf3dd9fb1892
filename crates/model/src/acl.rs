//! POSIX ACLs in the form of their extended attribute: a version of 4 bytes, then entries of 8
//! bytes, which are tag (2), rights (2) and identity (4), little-endian
//! (linux/posix_acl_xattr.h).

/// The attribute that holds the ACL of an entry (acl(5), xattr(7)).
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";

/// Tags of entries (linux/posix_acl.h).
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

/// All three rights.
const ALL: u32 = 7;

/// The rights that an ACL gives.
struct Rights {
    owner: u32,
    /// Those of the owning group, without the mask.
    group: u32,
    mask: Option<u32>,
    others: u32,
    /// Those that each user has whom it names, within the mask; all where it names none.
    users: u32,
    /// The same for groups.
    groups: u32,
}

impl Rights {
    fn of(acl: &[u8]) -> Option<Rights> {
        let entries = acl.get(4..)?.chunks_exact(8);
        let rights = |tag: u16| {
            let of_tag = move |entry: &&[u8]| u16::from_le_bytes([entry[0], entry[1]]) == tag;
            let rights = |entry: &[u8]| u32::from(entry[2]) & ALL;
            entries.clone().filter(of_tag).map(rights)
        };
        let one = |tag: u16| rights(tag).next();
        let mask = one(MASK);
        let all = |tag: u16| rights(tag).fold(ALL, |all, rights| all & rights);
        let masked = |tag: u16| match rights(tag).next() {
            Some(_) => all(tag) & mask.unwrap_or(ALL),
            None => ALL,
        };
        Some(Rights {
            owner: one(OWNER)?,
            group: one(OWNING_GROUP)?,
            mask,
            others: one(OTHERS)?,
            users: masked(USER),
            groups: masked(GROUP),
        })
    }
}

/// Returns the ACL of a directory that its owner may change and these users may read. The rights of
/// others are none. Without users, the mode 0700 says the same.
pub fn acl_of_readers(users: &[u32]) -> Vec<u8> {
    const VERSION: u32 = 2;
    const READ: u16 = 0o5;
    const NO_IDENTITY: u32 = u32::MAX;
    let named = users.iter().map(|user| (USER, READ, *user));
    let mask = (!users.is_empty()).then_some((MASK, READ, NO_IDENTITY));
    let entries = [(OWNER, ALL as u16, NO_IDENTITY)]
        .into_iter()
        .chain(named)
        .chain([(OWNING_GROUP, 0, NO_IDENTITY)])
        .chain(mask)
        .chain([(OTHERS, 0, NO_IDENTITY)]);
    let mut acl = VERSION.to_le_bytes().to_vec();
    for (tag, rights, identity) in entries {
        acl.extend(tag.to_le_bytes());
        acl.extend(rights.to_le_bytes());
        acl.extend(identity.to_le_bytes());
    }
    acl
}

/// Returns the permission bits that an ACL makes: the rights of the owner, of the mask (of the
/// group if there is no mask), and of others (acl(5)).
pub fn mode_of_acl(acl: &[u8]) -> Option<u32> {
    let rights = Rights::of(acl)?;
    Some(rights.owner << 6 | rights.mask.unwrap_or(rights.group) << 3 | rights.others)
}

/// Returns the permission bits that an entry keeps without its ACL. They give nothing to whom the
/// ACL denies it. A user whom it names may be of the owning group, or one of the others. A member
/// of a group that it names has the rights of all his groups, so he may be one of the others alone.
pub fn mode_without_acl(acl: &[u8]) -> u32 {
    // Nothing is known of the rights in one of another form.
    Rights::of(acl).map_or(0o700, |rights| {
        let group = rights.group & rights.mask.unwrap_or(ALL) & rights.users;
        let others = rights.others & rights.users & rights.groups;
        rights.owner << 6 | group << 3 | others
    })
}

/// Returns the ACL of an entry that belongs to another group than the one whose rights it tells.
/// The other group and others have what both the group and others had: a member of either may be
/// among them. Whom the ACL names keeps his rights. `None` if it has another form.
pub(crate) fn acl_for_other_group(acl: &[u8]) -> Option<Vec<u8>> {
    let rights = Rights::of(acl)?;
    let both = rights.group & rights.mask.unwrap_or(ALL) & rights.others;
    let mut other = acl.to_vec();
    for entry in other.get_mut(4..)?.chunks_exact_mut(8) {
        if matches!(
            u16::from_le_bytes([entry[0], entry[1]]),
            OWNING_GROUP | OTHERS
        ) {
            entry[2..4].copy_from_slice(&(both as u16).to_le_bytes());
        }
    }
    Some(other)
}

/// Returns the mode of an entry without an ACL that belongs to another group than the one whose
/// rights `mode` tells. The other group and others have what both the group and others had.
pub fn mode_for_other_group(mode: u32) -> u32 {
    let both = mode & mode >> 3 & ALL;
    mode & !(ALL << 3 | ALL) | both << 3 | both
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16)]) -> Vec<u8> {
        let mut acl = 2u32.to_le_bytes().to_vec();
        for (tag, rights) in entries {
            acl.extend(tag.to_le_bytes());
            acl.extend(rights.to_le_bytes());
            acl.extend(u32::MAX.to_le_bytes());
        }
        acl
    }

    #[test]
    fn another_group_has_what_group_and_others_had() {
        for (mode, other) in [
            (0o640, 0o600),
            (0o664, 0o644),
            (0o604, 0o600),
            (0o2775, 0o2755),
            (0o4711, 0o4711),
            (0o1777, 0o1777),
        ] {
            assert_eq!(mode_for_other_group(mode), other, "{mode:o}");
        }
        let of = |group, others| {
            acl(&[
                (OWNER, 7),
                (USER, 6),
                (OWNING_GROUP, group),
                (MASK, 6),
                (OTHERS, others),
            ])
        };
        assert_eq!(acl_for_other_group(&of(7, 5)), Some(of(4, 4)));
        assert_eq!(acl_for_other_group(&of(0, 4)), Some(of(0, 0)));
    }

    #[test]
    fn readers_alone_have_rights() {
        assert_eq!(mode_of_acl(&acl_of_readers(&[7, 9])), Some(0o750));
        assert_eq!(mode_without_acl(&acl_of_readers(&[7])), 0o700);
        assert_eq!(mode_of_acl(&acl_of_readers(&[])), Some(0o700));
        assert_eq!(acl_of_readers(&[7, 9]).len(), 4 + 6 * 8);
    }

    #[test]
    fn without_its_acl_an_entry_gives_nobody_more() {
        let cases: [(&[(u16, u16)], u32, u32); 7] = [
            (&[(OWNER, 6), (OWNING_GROUP, 4), (OTHERS, 0)], 0o640, 0o640),
            // The mask is no right of the owning group.
            (
                &[
                    (OWNER, 6),
                    (USER, 6),
                    (OWNING_GROUP, 0),
                    (MASK, 6),
                    (OTHERS, 0),
                ],
                0o660,
                0o600,
            ),
            // The mask limits it.
            (
                &[
                    (OWNER, 7),
                    (GROUP, 7),
                    (OWNING_GROUP, 7),
                    (MASK, 5),
                    (OTHERS, 5),
                ],
                0o755,
                0o755,
            ),
            // A user is denied what the group and others have.
            (
                &[
                    (OWNER, 7),
                    (USER, 0),
                    (OWNING_GROUP, 5),
                    (MASK, 5),
                    (OTHERS, 5),
                ],
                0o755,
                0o700,
            ),
            (
                &[
                    (OWNER, 7),
                    (USER, 7),
                    (USER, 4),
                    (OWNING_GROUP, 7),
                    (MASK, 7),
                    (OTHERS, 4),
                ],
                0o774,
                0o744,
            ),
            // A group is denied what others have.
            (
                &[
                    (OWNER, 6),
                    (OWNING_GROUP, 6),
                    (GROUP, 0),
                    (MASK, 6),
                    (OTHERS, 4),
                ],
                0o664,
                0o660,
            ),
            // So is a user by the mask.
            (
                &[
                    (OWNER, 6),
                    (USER, 6),
                    (OWNING_GROUP, 6),
                    (MASK, 0),
                    (OTHERS, 4),
                ],
                0o604,
                0o600,
            ),
        ];
        for (entries, with, without) in cases {
            let acl = acl(entries);
            assert_eq!(mode_of_acl(&acl), Some(with), "{entries:?}");
            assert_eq!(mode_without_acl(&acl), without, "{entries:?}");
        }
        assert_eq!(mode_without_acl(b"torn"), 0o700);
    }
}
