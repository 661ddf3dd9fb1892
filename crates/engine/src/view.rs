//! Attributes of an entry as one host sees them, so that a coordinator can compare the view of a
//! mover with its own.
//!
//! A clone or a snapshot of a file system has the inode numbers and the times of birth of the
//! original. Only an entry that was changed since tells them apart: its `ctime`, which nobody can
//! set. Another file system that is mounted below a replica has other inode numbers: those of an
//! entry of the replica and of the directories above it are compared, unless its file system may
//! show another number on each host.

mod reader;
mod threads;

pub use reader::{Further, Views};
pub use threads::ViewThreads;

use driftless_model::{Keep, Kind, Meta, Side, Stamp, Unkept, Xattrs};
use driftless_reconcile::{Agreement, mtimes};
use driftless_tree::Names;
use reader::hash_of_xattrs;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use xxhash_rust::xxh3::xxh3_64;

/// Largest directory whose names are compared.
pub const NAMES_MAX: usize = 10_000;

/// Words for a mover that has other directories above an entry.
pub const OTHER_WAY: &str = "other inode numbers of directories above it than the coordinator";

/// Number of the names in a directory, and the sum of their hashes.
pub type NameDigest = (u64, u64);

/// Attributes of an entry as one host sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    kind: Kind,
    size: u64,
    mode: u32,
    owner: (u32, u32),
    mtime: Stamp,
    ctime: Stamp,
    ino: u64,
    /// Hash of the inode numbers of the directories above, without the root.
    way: u64,
    /// Number of hard links of a file.
    links: u64,
    /// Hash of the extended attributes and ACLs that are kept, if all of them were read.
    xattrs: Option<u64>,
    /// Time of birth, where it was read and is no whole second.
    pub born: Option<Stamp>,
    /// Names of a directory that was listed.
    pub names: Option<NameDigest>,
}

impl View {
    /// Takes the attributes that are compared.
    pub fn of(meta: &Meta) -> View {
        View {
            kind: meta.kind,
            size: meta.size,
            mode: meta.mode,
            owner: (meta.uid, meta.gid),
            mtime: meta.mtime,
            ctime: meta.ctime,
            ino: meta.ino,
            way: 0,
            links: meta.nlink,
            xattrs: None,
            born: None,
            names: None,
        }
    }

    /// Takes the attributes of an entry, and its extended attributes if all of them were read.
    pub fn with_xattrs(meta: &Meta, xattrs: &Xattrs) -> View {
        View {
            xattrs: hash_of_xattrs(xattrs),
            ..View::of(meta)
        }
    }

    /// Returns this view of an entry below directories whose inode numbers have this hash.
    #[must_use]
    pub fn below(self, way: u64) -> View {
        View { way, ..self }
    }

    /// Returns this view of a directory with what the work on it showed.
    #[must_use]
    pub fn with_listing(self, listing: &ListedNames) -> View {
        View {
            names: listing.digest(),
            xattrs: listing.xattrs,
            ..self
        }
    }

    /// Returns whether the entry was changed in these seconds.
    pub fn is_changed_in(&self, seconds: &RangeInclusive<i64>) -> bool {
        seconds.contains(&self.ctime.sec)
    }

    /// Returns whether both views are of the same change of an entry.
    pub fn is_of_one_change(&self, other: &View) -> bool {
        (self.ino, self.ctime) == (other.ino, other.ctime)
    }

    /// Returns whether the coordinator's `own` view may differ from this one because the entry was
    /// changed after the mover looked, in the seconds of the run.
    pub fn may_be_outdated(&self, own: &View, seconds: &RangeInclusive<i64>) -> bool {
        own.is_changed_in(seconds) && own.ctime >= self.ctime
    }

    /// Returns the first attribute that differs from the coordinator's `own` view, with both
    /// values, or `None` if the views agree. Directories of a replica get their attributes when
    /// all below them is done, and its change times are of no tree: neither is compared.
    pub fn difference(&self, own: &View, (side, keep): (Side, &Keep)) -> Option<String> {
        let is_linked = side == Side::Source && keep.hard_links;
        self.difference_of_meta(own, side)
            .or_else(|| self.difference_of_names(own))
            .or_else(|| self.difference_of_links(own).filter(|_| is_linked))
            .or_else(|| self.difference_of_xattrs(own, side))
    }

    /// Returns whether an entry of the replica that a mover has made is none of this source: it has
    /// another kind, size or modification time. A time from `began` on, in seconds, is none that
    /// the replica could not keep.
    pub fn is_unlike(&self, source: &View, keep: &Keep, began: i64) -> bool {
        let is_file = source.kind == Kind::File;
        let is_of_other_time = || {
            let agreement = mtimes(&source.to_meta(), &self.to_meta(), keep.modify_window);
            keep.times && agreement == Agreement::Other && self.mtime.sec < began
        };
        self.kind != source.kind || is_file && (self.size != source.size || is_of_other_time())
    }

    /// Returns the attributes as those of an entry, for a comparison of times.
    fn to_meta(&self) -> Meta {
        let (uid, gid) = self.owner;
        Meta {
            kind: self.kind,
            mode: self.mode,
            uid,
            gid,
            size: self.size,
            blocks: 0,
            mtime: self.mtime,
            atime: self.mtime,
            ctime: self.ctime,
            nlink: self.links,
            dev: 0,
            ino: self.ino,
            rdev: 0,
            unkept: Unkept::NONE,
        }
    }

    fn difference_of_meta(&self, own: &View, side: Side) -> Option<String> {
        let (is_source, is_dir) = (side == Side::Source, own.kind == Kind::Dir);
        let owner = |(uid, gid): (u32, u32)| format!("{uid}:{gid}");
        let attributes = is_source || !is_dir;
        match () {
            () if self.kind != own.kind => Some(word(
                "kind",
                self.kind.word().to_owned(),
                own.kind.word().to_owned(),
            )),
            () if !is_dir && self.size != own.size => {
                Some(word("size", self.size.to_string(), own.size.to_string()))
            }
            () if attributes && self.mtime != own.mtime => {
                Some(word("mtime", times(self.mtime), times(own.mtime)))
            }
            () if is_source && self.ctime != own.ctime => {
                Some(word("ctime", times(self.ctime), times(own.ctime)))
            }
            () if attributes && self.owner != own.owner => {
                Some(word("owner", owner(self.owner), owner(own.owner)))
            }
            () if attributes && self.mode != own.mode => Some(word(
                "mode",
                format!("{:04o}", self.mode),
                format!("{:04o}", own.mode),
            )),
            () => None,
        }
    }

    fn difference_of_names(&self, own: &View) -> Option<String> {
        let (theirs, own) = self.names.zip(own.names)?;
        let ((count, _), (own_count, _)) = (theirs, own);
        (theirs != own)
            .then(|| format!("{count} names, and the coordinator {own_count}, or others"))
    }

    /// Returns the difference in what decides which names are those of one file.
    fn difference_of_links(&self, own: &View) -> Option<String> {
        match () {
            () if own.kind == Kind::Dir => None,
            () if self.links != own.links => Some(word(
                "number of links",
                self.links.to_string(),
                own.links.to_string(),
            )),
            () if own.links > 1 && self.ino != own.ino => {
                Some(word("inode", self.ino.to_string(), own.ino.to_string()))
            }
            () => None,
        }
    }

    fn difference_of_xattrs(&self, own: &View, side: Side) -> Option<String> {
        let (theirs, here) = self.xattrs.zip(own.xattrs)?;
        let is_compared = side == Side::Source || own.kind != Kind::Dir;
        (is_compared && theirs != here)
            .then(|| "other extended attributes or another ACL than the coordinator".to_owned())
    }

    /// Returns the words for the coordinator's `own` view of another inode.
    pub fn inode_words(&self, own: &View) -> String {
        match (self.born, own.born) {
            _ if self.way != own.way => OTHER_WAY.into(),
            (Some(theirs), Some(own_birth)) if self.ino == own.ino => {
                word("time of birth", times(theirs), times(own_birth))
            }
            _ => word("inode", self.ino.to_string(), own.ino.to_string()),
        }
    }

    /// Returns whether the coordinator's `own` view is of another inode. A file that was changed
    /// after this view may have been made anew by another mover: its number says nothing.
    fn is_of_other_inode(&self, own: &View) -> bool {
        let is_later = own.kind != Kind::Dir && own.ctime > self.ctime;
        self.way != own.way || !is_later && self.differs_from(own.ino, own.born)
    }

    /// Returns whether an inode with this number and time of birth is another one.
    fn differs_from(&self, ino: u64, born: Option<Stamp>) -> bool {
        let births = self.born.zip(born);
        self.ino != ino || births.is_some_and(|(theirs, own)| theirs != own)
    }
}

/// Adds the inode number of a directory to the hash of those of the directories above it.
pub fn way_below(way: u64, ino: u64) -> u64 {
    xxh3_64([way, ino].map(u64::to_le_bytes).as_flattened())
}

/// Returns a time of birth that is no whole second, which may be that of many inodes.
pub fn exact_birth(born: Option<Stamp>) -> Option<Stamp> {
    born.filter(|born| born.nsec != 0)
}

fn word(what: &str, theirs: String, own: String) -> String {
    format!("{what} {theirs}, and the coordinator {what} {own}")
}

fn times(stamp: Stamp) -> String {
    format!("{}.{:09}", stamp.sec, stamp.nsec)
}

/// Names and extended attributes of a directory as the work on it showed them.
#[derive(Debug, Default)]
pub struct ListedNames {
    digest: NameDigest,
    is_whole: bool,
    /// Hash of the directory's extended attributes, if all of them were read.
    xattrs: Option<u64>,
}

impl ListedNames {
    /// Adds names that were read one after the other. The first of a listing take the place of an
    /// earlier one.
    pub fn add(&mut self, names: &Names, is_first: bool, is_last: bool) {
        let before = if is_first { (0, 0) } else { self.digest };
        (self.digest, self.is_whole) = (add_names(before, names), is_last);
    }

    /// Notes the extended attributes of the directory.
    pub fn note_xattrs(&mut self, xattrs: &Xattrs) {
        self.xattrs = hash_of_xattrs(xattrs);
    }

    /// Returns the digest of the names, or `None` if they were not read to the end.
    pub fn digest(&self) -> Option<NameDigest> {
        Some(self.digest).filter(|_| self.is_whole)
    }
}

/// Adds names to the digest of a listing.
fn add_names((mut count, mut sum): NameDigest, names: &Names) -> NameDigest {
    for index in 0..names.len() {
        let hash = xxh3_64(names.get(index).0.to_bytes());
        (count, sum) = (count + 1, sum.wrapping_add(hash));
    }
    (count, sum)
}

#[cfg(test)]
impl View {
    /// Returns a view of some entry of this kind.
    pub fn of_kind(kind: Kind) -> View {
        let stamp = Stamp { sec: 5, nsec: 7 };
        View {
            kind,
            size: 3,
            mode: 0o644,
            owner: (1, 2),
            mtime: stamp,
            ctime: stamp,
            ino: 11,
            way: 13,
            links: 1,
            xattrs: Some(17),
            born: None,
            names: Some((2, 9)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(kind: Kind) -> View {
        View::of_kind(kind)
    }

    #[test]
    fn made_entry_differs_by_kind_size_or_time() {
        let (file, dir) = (view(Kind::File), view(Kind::Dir));
        let of = |size, sec| View {
            size,
            mtime: Stamp { sec, nsec: 7 },
            ..file.clone()
        };
        // Entry of the replica, that of the source, and whether they are unlike.
        let cases = [
            (file.clone(), &file, false),
            (dir.clone(), &file, true),
            (of(4, 5), &file, true),
            (of(3, 4), &file, true),
            (of(3, 20), &file, false),
            (of(4, 5), &dir, true),
            (
                View {
                    size: 9,
                    ..dir.clone()
                },
                &dir,
                false,
            ),
        ];
        for (number, (own, source, is_unlike)) in cases.into_iter().enumerate() {
            let found = own.is_unlike(source, &Keep::default(), 10);
            assert_eq!(found, is_unlike, "case {number}");
        }
        let untimed = Keep {
            times: false,
            ..Keep::default()
        };
        assert!(!of(3, 4).is_unlike(&file, &untimed, 10));
    }

    #[test]
    fn inode_is_another_by_number_way_or_birth() {
        let [earlier, later] = [6, 8].map(|nsec| Stamp { sec: 5, nsec });
        let [ino, way] = [
            |view: View| View { ino: 12, ..view },
            |view: View| View { way: 14, ..view },
        ];
        let born = |view: View, born| View {
            born: Some(born),
            ..view
        };
        let (file, dir) = (view(Kind::File), view(Kind::Dir));
        let changed = |view: &View, ctime| View {
            ctime,
            ..view.clone()
        };
        // The view of a mover, that of the coordinator, and whether it is of another inode.
        let cases = [
            (file.clone(), file.clone(), false),
            (ino(file.clone()), file.clone(), true),
            (ino(file.clone()), changed(&file, earlier), true),
            (ino(file.clone()), changed(&file, later), false),
            (way(file.clone()), changed(&file, later), true),
            (ino(dir.clone()), changed(&dir, later), true),
            (way(dir.clone()), dir.clone(), true),
            (born(dir.clone(), later), dir.clone(), false),
            (born(dir.clone(), later), born(dir.clone(), later), false),
            (born(dir.clone(), later), born(dir, earlier), true),
        ];
        for (number, (theirs, own, is_other)) in cases.into_iter().enumerate() {
            assert_eq!(theirs.is_of_other_inode(&own), is_other, "case {number}");
        }
    }

    #[test]
    fn views_differ_in_links_and_extended_attributes() {
        let (file, dir) = (view(Kind::File), view(Kind::Dir));
        let of = |view: &View, links, ino, xattrs| View {
            links,
            ino,
            xattrs,
            ..view.clone()
        };
        let (same, other) = (Some(17), Some(18));
        // The view of a mover, that of the coordinator, and whether they differ on the source and
        // on the replica.
        let cases = [
            (of(&file, 2, 11, same), file.clone(), [true, false]),
            (of(&file, 1, 12, same), file.clone(), [false, false]),
            (
                of(&file, 2, 12, same),
                of(&file, 2, 11, same),
                [true, false],
            ),
            (of(&dir, 3, 12, same), dir.clone(), [false, false]),
            (of(&file, 1, 11, other), file.clone(), [true, true]),
            (of(&file, 1, 11, None), file.clone(), [false, false]),
            (of(&dir, 1, 11, other), dir.clone(), [true, false]),
        ];
        for (number, (theirs, own, differs)) in cases.into_iter().enumerate() {
            let is_other = |side| theirs.difference(&own, (side, &Keep::default())).is_some();
            let found = [Side::Source, Side::Replica].map(is_other);
            assert_eq!(found, differs, "case {number}");
        }
        let kept = Keep {
            hard_links: false,
            ..Keep::default()
        };
        let theirs = of(&file, 2, 12, same);
        assert_eq!(theirs.difference(&file, (Side::Source, &kept)), None);
    }

    #[test]
    fn mover_view_is_outdated_by_a_change_meanwhile() {
        let at = |sec| View {
            ctime: Stamp { sec, nsec: 0 },
            ..view(Kind::File)
        };
        // Seconds of the mover's view, of the coordinator's, and whether a change of the run may
        // explain a difference.
        for (theirs, own, may_be) in [
            (5, 12, true),
            (12, 12, true),
            (13, 12, false),
            (13, 5, false),
            (5, 9, false),
            (5, 21, false),
        ] {
            let found = at(theirs).may_be_outdated(&at(own), &(10..=20));
            assert_eq!(found, may_be, "{theirs} {own}");
        }
    }

    #[test]
    fn views_differ_in_all_that_is_replicated() {
        let (file, dir) = (view(Kind::File), view(Kind::Dir));
        let later = Stamp { sec: 5, nsec: 8 };
        // The view of a mover, and whether it differs on the source and on the replica.
        let cases = [
            (file.clone(), &file, [false, false]),
            (
                View {
                    size: 4,
                    ..file.clone()
                },
                &file,
                [true, true],
            ),
            (
                View {
                    mode: 0o600,
                    ..file.clone()
                },
                &file,
                [true, true],
            ),
            (
                View {
                    owner: (1, 3),
                    ..file.clone()
                },
                &file,
                [true, true],
            ),
            (
                View {
                    mtime: later,
                    ..file.clone()
                },
                &file,
                [true, true],
            ),
            (
                View {
                    ctime: later,
                    ..file.clone()
                },
                &file,
                [true, false],
            ),
            (dir.clone(), &file, [true, true]),
            (
                View {
                    size: 4,
                    ..dir.clone()
                },
                &dir,
                [false, false],
            ),
            (
                View {
                    mtime: later,
                    ..dir.clone()
                },
                &dir,
                [true, false],
            ),
            (
                View {
                    names: Some((2, 8)),
                    ..dir.clone()
                },
                &dir,
                [true, true],
            ),
            (
                View {
                    names: None,
                    ..dir.clone()
                },
                &dir,
                [false, false],
            ),
        ];
        for (number, (theirs, own, differs)) in cases.into_iter().enumerate() {
            let found = [Side::Source, Side::Replica]
                .map(|side| theirs.difference(own, (side, &Keep::default())).is_some());
            assert_eq!(found, differs, "case {number}");
        }
    }
}
