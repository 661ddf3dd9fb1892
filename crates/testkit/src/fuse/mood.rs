//! How a file system behaves as a whole (a [`Mood`]), and what goes wrong with single requests (a
//! [`Rule`]).

use super::wire::Op;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// The bits of a mode that chmod(2) sets.
pub(super) const MODE_BITS: u32 = 0o7777;

/// How a file system behaves as a whole.
#[derive(Clone, Debug)]
pub struct Mood {
    /// Time stamps are multiples of this many nanoseconds.
    pub grain_ns: u64,
    /// Time stamps lie between these seconds.
    pub seconds: RangeInclusive<i64>,
    /// Names that differ in case alone are one name; the first spelling stays.
    pub folds: bool,
    /// Names lose this character at their end, as dots on FAT and SMB.
    pub strips: Option<u8>,
    /// An entry `loop` is the directory that it is in, as where a server follows links.
    pub loops: bool,
    /// Listings show all names twice.
    pub doubles: bool,
    /// Listings do not say of what kind an entry is (`DT_UNKNOWN`).
    pub unknown_kinds: bool,
    /// Extended attributes can be kept. Set before mounting.
    pub attributes: bool,
    /// ACLs can be kept. Set before mounting.
    pub acls: bool,
    /// Nothing can be written. Set before mounting.
    pub read_only: bool,
    /// There are change times; without, the modification time stands in their place.
    pub change_times: bool,
    /// The change time is that of the question, as of a server without change times that stamps each
    /// answer with its clock.
    pub stamps: bool,
    /// What is removed while it is open gets a hidden name, and goes when it is closed (libfuse
    /// without `hard_remove`, as sshfs).
    pub hides: bool,
    /// The hidden name is not counted among those of its file (libfuse 2).
    pub hides_count: bool,
    /// All files show these rights, and directories may be searched besides by whoever may read
    /// (vfat, exfat, ntfs-3g without permissions).
    pub fixed_mode: Option<u32>,
    /// Times are set where a request has both of them, and passed over otherwise, without an error
    /// (libfuse 2 without `flag_utime_omit_ok`, as bindfs).
    pub both_times: bool,
    /// For so long the kernel does not ask again for attributes and names that it was told.
    pub remembers: Duration,
    /// Owners and times of symbolic links are set of what they lead to in the backing directory
    /// (sshfs).
    pub follows_links: bool,
    /// Files have blocks on the medium; without, they are placeholders whose content is elsewhere.
    pub blocks: bool,
    /// Files show so many bytes less than they have, and reads go past the cache of pages and so past
    /// that size (`direct_io`).
    pub hidden_bytes: u64,
    /// It is as CephFS, with its snapshots in this folder on the btrfs of the backing directory.
    pub ceph: Option<PathBuf>,
}

impl Mood {
    /// As a good local file system.
    pub fn healthy() -> Mood {
        Mood {
            grain_ns: 1,
            seconds: i64::MIN..=i64::MAX,
            folds: false,
            strips: None,
            loops: false,
            doubles: false,
            unknown_kinds: false,
            attributes: true,
            acls: true,
            read_only: false,
            change_times: true,
            stamps: false,
            hides: false,
            hides_count: false,
            fixed_mode: None,
            both_times: false,
            remembers: Duration::ZERO,
            follows_links: false,
            blocks: true,
            hidden_bytes: 0,
            ceph: None,
        }
    }

    /// Whole seconds, as Lustre.
    pub fn whole_seconds() -> Mood {
        Mood {
            grain_ns: 1_000_000_000,
            ..Mood::healthy()
        }
    }

    /// Every second second and names without case, as vfat.
    pub fn folded() -> Mood {
        Mood {
            grain_ns: 2_000_000_000,
            folds: true,
            ..Mood::healthy()
        }
    }

    /// Neither extended attributes nor ACLs.
    pub fn bare() -> Mood {
        Mood {
            attributes: false,
            acls: false,
            ..Mood::healthy()
        }
    }

    /// Listings without kinds, as ext2 without `filetype` or NFS in large directories.
    pub fn untyped() -> Mood {
        Mood {
            unknown_kinds: true,
            ..Mood::healthy()
        }
    }

    /// Listings with all names twice, as of a union of folders.
    pub fn doubled() -> Mood {
        Mood {
            doubles: true,
            ..Mood::healthy()
        }
    }

    /// The mode that an entry shows.
    pub(super) fn shown(&self, mode: u32) -> u32 {
        const SEARCH: u32 = 0o111;
        let is_dir = FileType::from_raw_mode(mode).is_dir();
        let fixed = |rights: u32| {
            mode & !MODE_BITS | rights | if is_dir { rights >> 2 & SEARCH } else { 0 }
        };
        self.fixed_mode.map_or(mode, fixed)
    }

    /// A time stamp as it can be kept.
    pub(super) fn cut(&self, (seconds, nanoseconds): (i64, u32)) -> (i64, u32) {
        let within = seconds.clamp(*self.seconds.start(), *self.seconds.end());
        if within != seconds {
            return (within, 0);
        }
        let all = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        let cut = all - all.rem_euclid(i128::from(self.grain_ns));
        (
            cut.div_euclid(1_000_000_000) as i64,
            cut.rem_euclid(1_000_000_000) as u32,
        )
    }
}

/// What is done instead of a right answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Fail(Errno),
    FailNonblocking(Errno),
    Slow(Duration),
    Never,
    Lose,
    EndAt(u64),
    Omit,
}

/// What goes wrong with requests of one kind: with all of them, or with some by name or number.
#[derive(Clone, Debug)]
pub struct Rule {
    op: Op,
    name: Option<Vec<u8>>,
    skipped: u64,
    times: u64,
    pub(super) deed: Deed,
}

impl Rule {
    fn new(op: Op, deed: Deed) -> Rule {
        Rule {
            op,
            name: None,
            skipped: 0,
            times: u64::MAX,
            deed,
        }
    }

    /// It fails.
    pub fn fail(op: Op, errno: Errno) -> Rule {
        Rule::new(op, Deed::Fail(errno))
    }

    /// Opening with `O_NONBLOCK` fails with `EWOULDBLOCK`, as while another program holds a lease.
    pub fn leased() -> Rule {
        Rule::new(Op::Open, Deed::FailNonblocking(Errno::AGAIN))
    }

    /// It is answered rightly, but so much later.
    pub fn slow(op: Op, delay: Duration) -> Rule {
        Rule::new(op, Deed::Slow(delay))
    }

    /// It is never answered; the caller hangs until the connection is cut.
    pub fn never(op: Op) -> Rule {
        Rule::new(op, Deed::Never)
    }

    /// What is written is accepted and lost, as before an upload that fails at `flush`.
    pub fn lose_writes() -> Rule {
        Rule::new(Op::Write, Deed::Lose)
    }

    /// Reading ends at `offset`, whatever size the file is said to have.
    pub fn end_at(offset: u64) -> Rule {
        Rule::new(Op::Read, Deed::EndAt(offset))
    }

    /// Listings leave this name out, though it can be looked up.
    pub fn omit(name: impl AsRef<[u8]>) -> Rule {
        Rule::new(Op::Readdir, Deed::Omit).named(name)
    }

    /// Only for this last component of a path, or this extended attribute; `*` at the end stands
    /// for anything.
    #[must_use]
    pub fn named(mut self, name: impl AsRef<[u8]>) -> Rule {
        self.name = Some(name.as_ref().to_vec());
        self
    }

    /// Not for the first `count` that it fits.
    #[must_use]
    pub fn after(mut self, count: u64) -> Rule {
        self.skipped = count;
        self
    }

    /// Only `count` times.
    #[must_use]
    pub fn times(mut self, count: u64) -> Rule {
        self.times = count;
        self
    }

    fn fits(&self, op: Op, names: &[&[u8]]) -> bool {
        let is_named = |pattern: &Vec<u8>| match pattern.strip_suffix(b"*") {
            Some(head) => names.iter().any(|name| name.starts_with(head)),
            None => names.iter().any(|name| name == pattern),
        };
        self.op == op && self.name.as_ref().is_none_or(is_named)
    }

    /// Whether this call is one of those that go wrong; counts it.
    fn strikes(&mut self) -> bool {
        if self.skipped > 0 {
            self.skipped -= 1;
            return false;
        }
        let due = self.times > 0;
        self.times -= u64::from(due);
        due
    }
}

/// The mood, the rules, and how often what was asked.
#[derive(Debug)]
pub(super) struct Orders {
    pub(super) mood: Mood,
    pub(super) rules: Vec<Rule>,
    pub(super) calls: HashMap<Op, u64>,
}

impl Orders {
    pub(super) fn new(mood: Mood) -> Orders {
        Orders {
            mood,
            rules: Vec::new(),
            calls: HashMap::new(),
        }
    }

    /// Counts a request and says what is to go wrong with it.
    pub(super) fn judge(&mut self, op: Op, names: &[&[u8]]) -> Vec<Deed> {
        *self.calls.entry(op).or_default() += 1;
        let struck = |rule: &mut &mut Rule| {
            rule.deed != Deed::Omit && rule.fits(op, names) && rule.strikes()
        };
        self.rules
            .iter_mut()
            .filter_map(|mut rule| struck(&mut rule).then_some(rule.deed))
            .collect()
    }

    /// Whether a listing leaves this name out.
    pub(super) fn omits(&mut self, name: &[u8]) -> bool {
        self.rules.iter_mut().any(|rule| {
            rule.deed == Deed::Omit && rule.fits(Op::Readdir, &[name]) && rule.strikes()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_cut_downwards_and_kept_in_range() {
        assert_eq!(Mood::whole_seconds().cut((7, 999)), (7, 0));
        assert_eq!(Mood::folded().cut((-1, 5)), (-2, 0));
        assert_eq!(Mood::healthy().cut((-1, 5)), (-1, 5));
        let old = Mood {
            seconds: -10..=10,
            ..Mood::healthy()
        };
        assert_eq!(old.cut((11, 5)), (10, 0));
    }

    #[test]
    fn a_rule_strikes_by_name_and_number() {
        let mut orders = Orders::new(Mood::healthy());
        orders.rules.push(
            Rule::fail(Op::Open, Errno::IO)
                .named("a*")
                .after(1)
                .times(1),
        );
        let mut strikes = |name: &[u8]| orders.judge(Op::Open, &[name]) == [Deed::Fail(Errno::IO)];
        assert_eq!(
            [
                strikes(b"ab"),
                strikes(b"b"),
                strikes(b"ab"),
                strikes(b"ab")
            ],
            [false, false, true, false]
        );
        assert_eq!(orders.calls[&Op::Open], 4);
    }
}
