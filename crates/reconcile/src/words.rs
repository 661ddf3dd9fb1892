//! Both values of what differs between two entries, in words, for a user who compares the trees.

use crate::compare::fitted;
use driftless_model::{Difference, Entry, Keep, Meta, Stamp, What, Xattrs, escape};

/// How the names of attributes that are ACLs begin.
const ACLS: &[u8] = b"system.posix_acl_";

/// Both values, in words, of the properties in `what` that the entries themselves hold; content,
/// link targets and link groups are not among these. The source's are those that the replica's is to
/// have.
pub fn values(source: &Entry, replica: &Entry, keep: &Keep, what: What) -> Vec<Difference> {
    let source = fitted(source, &replica.meta, keep);
    let (s, r) = (&source.meta, &replica.meta);
    let pair = |show: &dyn Fn(&Meta) -> String| (show(s), show(r));
    let mut found = Vec::new();
    for property in what.words() {
        let (source, replica) = match property {
            "kind" => pair(&|m| m.kind.word().into()),
            "size" => pair(&|m| m.size.to_string()),
            "mtime" => pair(&|m| shown_stamp(m.mtime)),
            "atime" => pair(&|m| shown_stamp(m.atime)),
            "mode" => pair(&|m| format!("{:04o}", m.mode)),
            "owner" => pair(&|m| m.uid.to_string()),
            "group" => pair(&|m| m.gid.to_string()),
            "device" => pair(&|m| format!("{}:{}", rdev_major(m.rdev), rdev_minor(m.rdev))),
            // Of what is of another kind they were not read.
            "xattrs" if s.kind == r.kind => differing_xattrs(&source.xattrs, &replica.xattrs),
            _ => continue,
        };
        found.push(Difference {
            property,
            source,
            replica,
        });
    }
    found
}

/// Seconds since 1970 and nanoseconds, as `stat -c %.9Y` prints them.
fn shown_stamp(stamp: Stamp) -> String {
    format!("{}.{:09}", stamp.sec, stamp.nsec)
}

/// The parts of a device number (makedev(3), glibc's layout).
fn rdev_major(rdev: u64) -> u64 {
    (rdev >> 8) & 0xfff | (rdev >> 32) & 0xffff_f000
}

fn rdev_minor(rdev: u64) -> u64 {
    rdev & 0xff | (rdev >> 12) & 0xffff_ff00
}

/// The attributes that only one side has or that have different values: what each side has of them.
fn differing_xattrs(source: &Xattrs, replica: &Xattrs) -> (String, String) {
    let mut differing: Vec<&[u8]> = source
        .iter()
        .filter(|one| !replica.contains(one))
        .map(|(name, _)| &**name)
        .collect();
    differing.extend(
        replica
            .iter()
            .filter(|one| !source.contains(one))
            .map(|(name, _)| &**name),
    );
    differing.sort_unstable();
    differing.dedup();
    let shown = |side: &Xattrs| {
        differing
            .iter()
            .map(|name| shown_attribute(name, side))
            .collect::<Vec<_>>()
            .join(" ")
    };
    (shown(source), shown(replica))
}

fn shown_attribute(name: &[u8], side: &Xattrs) -> String {
    let shown = escape(name);
    match side.iter().find(|(its, _)| **its == *name) {
        None => format!("no {shown}"),
        Some((_, value)) if name.starts_with(ACLS) => format!(
            "{shown}={}",
            shown_acl(value).unwrap_or_else(|| shown_value(value))
        ),
        Some((_, value)) => format!("{shown}={}", shown_value(value)),
    }
}

/// The beginning of a value; an attribute may hold 64 KiB (xattr(7)).
fn shown_value(value: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 64;
    let more = if value.len() > SHOWN_BYTES_MAX {
        format!("... ({} bytes)", value.len())
    } else {
        String::new()
    };
    format!(
        "\"{}\"{more}",
        escape(&value[..value.len().min(SHOWN_BYTES_MAX)])
    )
}

/// An ACL as getfacl(1) writes it, in one line, from the form in which the kernel hands it out
/// (linux/posix_acl_xattr.h).
fn shown_acl(value: &[u8]) -> Option<String> {
    const VERSION: [u8; 4] = 2_u32.to_le_bytes();
    const ENTRY_BYTES: usize = 8;
    let entries = value.strip_prefix(&VERSION)?;
    if !entries.len().is_multiple_of(ENTRY_BYTES) {
        return None;
    }
    entries
        .chunks(ENTRY_BYTES)
        .map(shown_acl_entry)
        .collect::<Option<Vec<_>>>()
        .map(|entries| entries.join(","))
}

fn shown_acl_entry(entry: &[u8]) -> Option<String> {
    let number = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
    let id = u32::from_le_bytes(entry[4..].try_into().ok()?);
    let who = match number(0) {
        0x01 => "user:".into(),
        0x02 => format!("user:{id}"),
        0x04 => "group:".into(),
        0x08 => format!("group:{id}"),
        0x10 => "mask:".into(),
        0x20 => "other:".into(),
        _ => return None,
    };
    let rights: String = [(4, 'r'), (2, 'w'), (1, 'x')]
        .map(|(bit, letter)| if number(2) & bit == 0 { '-' } else { letter })
        .iter()
        .collect();
    Some(format!("{who}:{rights}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(all: &[(&str, &[u8])]) -> Xattrs {
        all.iter()
            .map(|(name, value)| (name.as_bytes().into(), (*value).into()))
            .collect()
    }

    #[test]
    fn of_attributes_that_differ_each_side_is_said() {
        let source = attributes(&[("user.a", b"1"), ("user.empty", b""), ("user.same", b"x")]);
        let replica = attributes(&[("user.a", b"2"), ("user.extra", b"\0"), ("user.same", b"x")]);
        let (ours, theirs) = differing_xattrs(&source, &replica);
        assert_eq!(ours, r#"user.a="1" user.empty="" no user.extra"#);
        assert_eq!(theirs, r#"user.a="2" no user.empty user.extra="\x00""#);
    }

    #[test]
    fn acls_are_shown_as_getfacl_writes_them() {
        let entry = |tag: u16, rights: u16, id: u32| {
            [
                &tag.to_le_bytes()[..],
                &rights.to_le_bytes(),
                &id.to_le_bytes(),
            ]
            .concat()
        };
        let acl = [
            &2_u32.to_le_bytes()[..],
            &entry(1, 6, u32::MAX),
            &entry(2, 4, 7),
            &entry(16, 5, u32::MAX),
            &entry(32, 0, 0),
        ]
        .concat();
        assert_eq!(
            shown_acl(&acl).as_deref(),
            Some("user::rw-,user:7:r--,mask::r-x,other::---")
        );
        for broken in [
            &acl[..5],
            &acl[1..],
            b"",
            &[&acl[..4], &entry(3, 0, 0)].concat(),
        ] {
            assert_eq!(shown_acl(broken), None, "{broken:?}");
        }
    }
}
