//! Comparing an entry of the source with the one of the replica, and the least that makes them
//! equal.

use crate::times::{Agreement, atimes, mtimes};
use driftless_model::{
    CAPABILITY, Entry, Keep, Kind, Meta, SETGID, SETUID, Stamp, Unkept, What, Xattrs,
};
use std::borrow::Cow;

/// How entries are compared.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    /// What is kept equal.
    pub keep: Keep,
    /// Content is compared even where size and time agree.
    pub checksum: bool,
    /// Whoever acts on the replica may not give his files to others; then the rights that depend on
    /// the owner are not set either.
    pub keeps_own: bool,
    /// What was changed on the replica since then may have the right size and time, and not the
    /// right content: an earlier run was not made durable. By the clock of the replica's file
    /// system.
    pub suspect_since: Option<Stamp>,
    /// An entry was changed since both were known to be equal, and no detector has told how: size and
    /// time say nothing of its content.
    pub is_unheard: bool,
}

impl Rules {
    /// Whether size and time say nothing of the content of an entry of the replica. Where there are
    /// no change times, nothing shows since when that is.
    pub fn suspects(&self, replica: &Meta) -> bool {
        let is_since = |since| replica.ctime >= since || lacks_change_time(replica);
        self.suspect_since
            .is_some_and(|since| replica.kind == Kind::File && is_since(since))
    }
}

/// Whether an entry that a run has finished has no change time of its own: FAT and some servers
/// tell the modification time in its place. Elsewhere a time is set before the moment of that,
/// unless it is one that is to come.
pub fn lacks_change_time(meta: &Meta) -> bool {
    meta.ctime <= meta.mtime
}

/// The least that makes a replica entry equal to its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Same,
    /// Set metadata; no data moves.
    Meta(What),
    /// The same, if all names of the replica's inode are known to be names of this source. Else
    /// make it anew: whose the others are, nobody knows.
    MetaOfAll(What),
    /// Compare the content, then copy it (if it differs) or set what else differs.
    CompareContent(What),
    /// Make it anew: the content differs, or a property that cannot be changed in place.
    Anew(What),
    /// It is of another kind: remove it and make it anew.
    Replace(What),
}

/// All kept properties in which `replica` differs from `source`, content and link target aside.
/// What is as near to the source as the replica's file system can keep it does not differ.
pub fn differences(source: &Entry, replica: &Entry, keep: &Keep) -> What {
    let source = fitted(source, &replica.meta, keep);
    let (s, r) = (&source.meta, &replica.meta);
    let mut what = What::default();
    what.add_if(s.kind != r.kind, What::KIND);
    what.add_if(
        s.kind == Kind::File && r.kind == Kind::File && s.size != r.size,
        What::SIZE,
    );
    what.add_if(s.kind.is_device() && s.rdev != r.rdev, What::DEVICE);
    let window = keep.modify_window;
    what.add_if(
        keep.times && mtimes(s, r, window) == Agreement::Other,
        What::MTIME,
    );
    // Listing a directory or reading a link, which every comparison does, changes the time.
    let keeps_atime = keep.atimes && !matches!(s.kind, Kind::Dir | Kind::Symlink);
    what.add_if(
        keeps_atime && atimes(s, r, window) == Agreement::Other,
        What::ATIME,
    );
    what.add_if(
        keep.mode && s.kind != Kind::Symlink && keep.mode_for(s, (r.uid, r.gid)) != r.mode,
        What::MODE,
    );
    what.add_if(keep.owner && s.uid != r.uid, What::OWNER);
    what.add_if(keep.group && s.gid != r.gid, What::GROUP);
    what.add_if(
        keep.any_xattr() && !source.xattrs.agrees_with(&replica.xattrs),
        What::XATTRS,
    );
    what
}

/// Returns what an entry of the replica that is now like `there` is to have of its source. Rights
/// that an ACL or a group limits, which is not kept, go to nobody else.
pub fn fitted<'e>(source: &'e Entry, there: &Meta, keep: &Keep) -> Cow<'e, Entry> {
    let is_foreign = !keep.group && source.meta.gid != there.gid;
    if !is_foreign && source.xattrs.without_acl.is_none() {
        return Cow::Borrowed(source);
    }
    let mut entry = source.clone();
    entry.meta.mode = source.xattrs.mode_of_copy(source.meta.mode);
    if is_foreign {
        (entry.meta.mode, entry.xattrs) = source.xattrs.for_other_group(entry.meta.mode);
    }
    Cow::Owned(entry)
}

/// Whether a file that stays as it is would give somebody a right that its source does not give, by
/// what is not kept. Who makes entries there is the user `own`.
pub fn opens_more(source: &Entry, there: &Entry, keep: &Keep, own: u32) -> bool {
    const GIVEN: u32 = SETUID | SETGID | 0o077;
    let wanted = fitted(source, &there.meta, keep);
    let by_owner = !keep.owner && ![source.meta.uid, own].contains(&there.meta.uid);
    let by_mode = !keep.mode && there.meta.mode & GIVEN & !wanted.meta.mode != 0;
    by_owner || by_mode || there.xattrs.without_acl.is_some()
}

/// Decides the step for a pair of entries. `same_target` tells whether the targets of two symbolic
/// links agree.
pub fn decide(source: &Entry, replica: &Entry, rules: &Rules, same_target: bool) -> Step {
    let mut what = differences(source, replica, &rules.keep);
    let kind = source.meta.kind;
    what.add_if(kind == Kind::Symlink && !same_target, What::TARGET);
    if what.has(What::KIND) {
        return Step::Replace(what);
    }
    if what.has(What::SIZE) || what.has(What::TARGET) || what.has(What::DEVICE) {
        return Step::Anew(what);
    }
    if kind == Kind::File {
        return decide_file(source, replica, rules, what);
    }
    in_place(source, replica, rules, what)
}

fn decide_file(source: &Entry, replica: &Entry, rules: &Rules, what: What) -> Step {
    let vouches = || {
        !matches!(
            mtimes(&source.meta, &replica.meta, rules.keep.modify_window),
            Agreement::Unsure(_) | Agreement::OutOfRange
        )
    };
    // Without times there is nothing that vouches for the content.
    if source.meta.size > 0 && (rules.checksum || !rules.keep.times || !vouches()) {
        return Step::CompareContent(what);
    }
    if source.meta.size > 0 && what.has(What::MTIME) {
        return Step::Anew(what);
    }
    if source.meta.size > 0 && (rules.is_unheard || rules.suspects(&replica.meta)) {
        return Step::CompareContent(what);
    }
    in_place(source, replica, rules, what)
}

/// Decides what follows from comparing content, `what` being what differs besides.
pub fn after_content(
    source: &Entry,
    replica: &Entry,
    rules: &Rules,
    mut what: What,
    same: bool,
) -> Step {
    what.add_if(!same, What::CONTENT);
    if same {
        in_place(source, replica, rules, what)
    } else {
        Step::Anew(what)
    }
}

/// A change in place would reach every name of the inode. More names than the source has are
/// somebody else's (an earlier snapshot made with hard links, say), so then the entry is made anew.
fn in_place(source: &Entry, replica: &Entry, rules: &Rules, what: What) -> Step {
    let (names, wanted) = (replica.meta.nlink, source.meta.nlink);
    let others = names > wanted || names > 1 && !rules.keep.hard_links;
    // Attributes that the kernel does not show are not to be removed one by one.
    let hides = what.has(What::XATTRS) && replica.xattrs.unkept.has(Unkept::TOO_LONG);
    if what.is_empty() {
        Step::Same
    } else if source.meta.kind == Kind::Dir {
        Step::Meta(what)
    } else if others || hides || gains_rights(source, replica, rules, what) {
        Step::Anew(what)
    } else if names > 1 {
        Step::MetaOfAll(what)
    } else {
        Step::Meta(what)
    }
}

/// Whether a file lends rights to whoever runs it: set-id bits, capabilities.
pub fn lends_rights(meta: &Meta, xattrs: &Xattrs, keep: &Keep) -> bool {
    let set_id = keep.mode && meta.kind == Kind::File && meta.mode & (SETUID | SETGID) != 0;
    set_id || xattrs.iter().any(|(name, _)| **name == *CAPABILITY)
}

/// Whether what differs would lend rights to content that may be another's: size and time say
/// nothing of who wrote it, and between a comparison and the change he may write again.
fn gains_rights(source: &Entry, replica: &Entry, rules: &Rules, what: What) -> bool {
    if source.meta.kind != Kind::File || rules.keeps_own && what.has(What::OWNER) {
        return false;
    }
    let mode = rules
        .keep
        .mode_for(&source.meta, (replica.meta.uid, replica.meta.gid));
    let set_id = if rules.keep.mode {
        mode & (SETUID | SETGID)
    } else {
        0
    };
    let capability = |entry: &Entry| {
        entry
            .xattrs
            .iter()
            .find(|(name, _)| **name == *CAPABILITY)
            .map(|(_, value)| value.clone())
    };
    let has_any = set_id != 0 || capability(source).is_some();
    let new_owner = has_any && (what.has(What::OWNER) || what.has(What::GROUP));
    let new_bits = what.has(What::MODE) && set_id & !replica.meta.mode != 0;
    let new_capability = capability(source).is_some() && capability(source) != capability(replica);
    new_owner || new_bits || new_capability
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Stamp, Unkept};

    fn entry(kind: Kind) -> Entry {
        let stamp = Stamp { sec: 1, nsec: 2 };
        let meta = Meta {
            kind,
            mode: 0o644,
            uid: 1,
            gid: 2,
            size: 10,
            blocks: 8,
            mtime: stamp,
            atime: stamp,
            ctime: stamp,
            nlink: 1,
            dev: 3,
            ino: 4,
            rdev: 0,
            unkept: Unkept::NONE,
        };
        Entry {
            meta,
            xattrs: Xattrs::default(),
        }
    }

    fn step(kind: Kind, change: impl Fn(&mut Entry), rules: Rules) -> Step {
        let mut replica = entry(kind);
        change(&mut replica);
        decide(&entry(kind), &replica, &rules, true)
    }

    #[test]
    fn only_what_differs_is_done() {
        let rules = Rules::default();
        let file = |change: &dyn Fn(&mut Entry)| step(Kind::File, change, rules);
        assert_eq!(file(&|_| ()), Step::Same);
        assert_eq!(file(&|e| e.meta.ctime.sec = 9), Step::Same);
        assert_eq!(file(&|e| e.meta.atime.sec = 9), Step::Same);
        assert_eq!(file(&|e| e.meta.mode = 0o600), Step::Meta(What::MODE));
        assert_eq!(file(&|e| e.meta.uid = 9), Step::Meta(What::OWNER));
        assert_eq!(
            file(&|e| e.xattrs = vec![(b"user.a"[..].into(), b"1"[..].into())].into()),
            Step::Meta(What::XATTRS)
        );
        assert_eq!(file(&|e| e.meta.mtime.nsec = 9), Step::Anew(What::MTIME));
        assert_eq!(file(&|e| e.meta.size = 9), Step::Anew(What::SIZE));
        assert!(matches!(
            file(&|e| e.meta.kind = Kind::Dir),
            Step::Replace(_)
        ));
    }

    #[test]
    fn rights_of_a_group_are_not_wanted_for_another() {
        let keep = Keep {
            group: false,
            ..Keep::default()
        };
        let rules = Rules {
            keep,
            ..Rules::default()
        };
        let step = |source: u32, (gid, mode): (u32, u32)| {
            let (mut from, mut to) = (entry(Kind::Dir), entry(Kind::Dir));
            from.meta.mode = source;
            (to.meta.gid, to.meta.mode) = (gid, mode);
            decide(&from, &to, &rules, true)
        };
        assert_eq!(step(0o750, (2, 0o750)), Step::Same, "it is the same group");
        assert_eq!(step(0o750, (9, 0o700)), Step::Same);
        assert_eq!(step(0o750, (9, 0o750)), Step::Meta(What::MODE));
        assert_eq!(step(0o705, (9, 0o705)), Step::Meta(What::MODE));
        assert_eq!(step(0o755, (9, 0o755)), Step::Same);
    }

    #[test]
    fn a_file_that_opens_more_than_its_source_is_known() {
        let all = Keep::default();
        let left_out = [
            Keep { mode: false, ..all },
            Keep {
                owner: false,
                ..all
            },
            Keep { acls: false, ..all },
        ];
        let changes: [fn(&mut Entry); 4] = [
            |e| e.meta.mode = 0o664,
            |e| e.meta.mode = 0o4644,
            |e| e.meta.uid = 7,
            |e| e.xattrs.without_acl = Some(0o600),
        ];
        let opens = |keep: &Keep, change: fn(&mut Entry), own| {
            let mut there = entry(Kind::File);
            change(&mut there);
            opens_more(&entry(Kind::File), &there, keep, own)
        };
        let found = left_out.map(|keep| changes.map(|change| opens(&keep, change, 0)));
        assert_eq!(
            found,
            [
                [true, true, false, true],
                [false, false, true, true],
                [false, false, false, true],
            ]
        );
        assert!(!opens(&left_out[1], changes[2], 7), "it is the user's own");
        assert!(!opens(&left_out[0], |e| e.meta.mode = 0o600, 0));
    }

    #[test]
    fn times_of_what_has_no_content_are_set_in_place() {
        for kind in [Kind::Dir, Kind::Symlink, Kind::Fifo, Kind::Char] {
            assert_eq!(
                step(kind, |e| e.meta.mtime.nsec = 9, Rules::default()),
                Step::Meta(What::MTIME),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn access_times_are_compared_where_comparing_does_not_change_them() {
        let rules = Rules {
            keep: Keep {
                atimes: true,
                ..Keep::default()
            },
            ..Rules::default()
        };
        let read_again = |kind| step(kind, |e| e.meta.atime.sec = 9, rules);
        assert_eq!(
            [Kind::File, Kind::Fifo, Kind::Char].map(read_again),
            [Step::Meta(What::ATIME); 3]
        );
        assert_eq!([Kind::Dir, Kind::Symlink].map(read_again), [Step::Same; 2]);
    }

    #[test]
    fn an_inode_with_foreign_names_is_never_changed_in_place() {
        let change = |e: &mut Entry| (e.meta.mode, e.meta.nlink) = (0o600, 2);
        assert_eq!(
            step(Kind::File, change, Rules::default()),
            Step::Anew(What::MODE)
        );
        assert_eq!(
            step(Kind::File, |e| e.meta.nlink = 2, Rules::default()),
            Step::Same
        );
        assert_eq!(
            step(Kind::Dir, change, Rules::default()),
            Step::Meta(What::MODE)
        );
        let linked = |names, keep| {
            let (mut source, mut replica) = (entry(Kind::File), entry(Kind::File));
            (source.meta.nlink, replica.meta.nlink, replica.meta.mode) = (2, names, 0o600);
            decide(
                &source,
                &replica,
                &Rules {
                    keep,
                    ..Rules::default()
                },
                true,
            )
        };
        let [keep, no_links] = [true, false].map(|hard_links| Keep {
            hard_links,
            ..Keep::default()
        });
        assert_eq!(
            (linked(1, keep), linked(2, keep), linked(3, keep)),
            (
                Step::Meta(What::MODE),
                Step::MetaOfAll(What::MODE),
                Step::Anew(What::MODE)
            )
        );
        assert_eq!(
            (linked(1, no_links), linked(2, no_links)),
            (Step::Meta(What::MODE), Step::Anew(What::MODE))
        );
    }

    /// The step for a source with this mode, owner and capability, and a replica with those.
    fn rights(source: (u32, u32, &[u8]), replica: (u32, u32, &[u8]), rules: Rules) -> Step {
        let dressed = |(mode, uid, capability): (u32, u32, &[u8])| {
            let mut entry = entry(Kind::File);
            (entry.meta.mode, entry.meta.uid) = (mode, uid);
            entry.xattrs = if capability.is_empty() {
                vec![]
            } else {
                vec![(CAPABILITY.into(), capability.into())]
            }
            .into();
            entry
        };
        decide(&dressed(source), &dressed(replica), &rules, true)
    }

    #[test]
    fn rights_are_never_added_to_content_that_is_there() {
        let in_place =
            |source, replica, rules| matches!(rights(source, replica, rules), Step::Meta(_));
        let (all, own) = (
            Rules::default(),
            Rules {
                keeps_own: true,
                ..Rules::default()
            },
        );
        assert!(
            !in_place((0o4755, 1, b""), (0o755, 1, b""), all),
            "a set-id bit"
        );
        assert!(
            !in_place((0o4755, 0, b""), (0o4755, 1, b""), all),
            "another owner of a set-id file"
        );
        assert!(
            !in_place((0o755, 1, b"c"), (0o755, 1, b""), all),
            "a capability"
        );
        assert!(
            !in_place((0o755, 0, b"c"), (0o755, 1, b"c"), all),
            "another owner of a file with a capability"
        );
        assert!(
            !in_place((0o4755, 1, b""), (0o755, 1, b""), own),
            "a set-id bit, by the owner"
        );
        assert!(
            in_place((0o755, 0, b""), (0o755, 1, b""), all),
            "another owner of a plain file"
        );
        assert!(
            in_place((0o755, 1, b""), (0o4755, 1, b"c"), all),
            "rights that are taken away"
        );
        assert!(
            in_place((0o4711, 1, b""), (0o4755, 1, b""), all),
            "a narrower mode"
        );
        assert!(
            in_place((0o4755, 0, b""), (0o755, 1, b""), own),
            "an owner that cannot be set, and so no bit"
        );
    }

    #[test]
    fn set_id_bits_are_not_wanted_for_another_owner() {
        let keep = Keep {
            owner: false,
            ..Keep::default()
        };
        let rules = Rules {
            keep,
            ..Rules::default()
        };
        assert_eq!(rights((0o4755, 1, b""), (0o755, 0, b""), rules), Step::Same);
        assert_eq!(
            rights((0o4755, 1, b""), (0o4755, 0, b""), rules),
            Step::Meta(What::MODE)
        );
        assert_eq!(
            rights((0o4755, 1, b""), (0o4755, 1, b""), rules),
            Step::Same
        );
        assert_eq!(
            rights((0o2755, 1, b""), (0o2755, 0, b""), rules),
            Step::Same,
            "its group is the same"
        );
    }

    #[test]
    fn content_is_compared_where_an_earlier_run_was_not_made_durable() {
        let since = |sec| Rules {
            suspect_since: Some(Stamp { sec, nsec: 2 }),
            ..Rules::default()
        };
        let changed_in_5 = |e: &mut Entry| e.meta.ctime.sec = 5;
        assert_eq!(
            step(Kind::File, changed_in_5, since(5)),
            Step::CompareContent(What::default())
        );
        assert_eq!(step(Kind::File, changed_in_5, since(6)), Step::Same);
        assert_eq!(
            step(Kind::File, |_| (), since(6)),
            Step::CompareContent(What::default()),
            "there are no change times"
        );
        assert_eq!(
            step(Kind::File, |e| e.meta.mtime.sec = 9, since(1)),
            Step::Anew(What::MTIME)
        );
        assert_eq!(step(Kind::Dir, |_| (), since(1)), Step::Same);
    }

    #[test]
    fn content_is_compared_when_asked_or_when_no_time_vouches_for_it() {
        let checksum = Rules {
            checksum: true,
            ..Rules::default()
        };
        assert_eq!(
            step(Kind::File, |_| (), checksum),
            Step::CompareContent(What::default())
        );
        assert_eq!(
            step(Kind::File, |e| e.meta.mtime.sec = 9, checksum),
            Step::CompareContent(What::MTIME)
        );
        let unsure = |e: &mut Entry| (e.meta.mtime.nsec, e.meta.ctime.nsec) = (0, 0);
        assert_eq!(
            step(Kind::File, unsure, Rules::default()),
            Step::CompareContent(What::default())
        );
        assert_eq!(step(Kind::Dir, unsure, Rules::default()), Step::Same);
        let timeless = Rules {
            keep: Keep {
                times: false,
                ..Keep::default()
            },
            ..Rules::default()
        };
        assert_eq!(
            step(Kind::File, |e| e.meta.mtime.sec = 9, timeless),
            Step::CompareContent(What::default())
        );
    }
}
