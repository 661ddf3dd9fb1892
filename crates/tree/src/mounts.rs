//! Where one mounted file system ends and another begins.
//!
//! A removal in a replica never goes into a mounted file system: what is mounted below a replica is
//! somebody else's. A bind mount may show another part of the same file system, so the device
//! number alone does not tell.

use crate::Done;
use crate::local::LocalDir;
use crate::local::look::fault;
use crate::magic::{
    BTRFS, CEPH, CIFS, EXT, F2FS, FUSE, GPFS, LUSTRE, NFS, OVERLAY, RAMFS, SMB, SMB2, TMPFS, V9FS,
    XFS, ZFS, magic,
};
use driftless_model::{Act, RelPath, unescape_mountinfo};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{Mode, OFlags, open, readlink};
use std::cell::OnceCell;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Whether `below`, which was entered from `above`, is of another file system, or something is
/// mounted there. A fault if the kernel does not tell.
pub fn is_crossing(above: &LocalDir, below: &LocalDir) -> Done<bool> {
    use crate::Dir;
    if above.first_meta().dev != below.first_meta().dev {
        return Ok(true);
    }
    match below.is_mount_root() {
        Some(is_root) => Ok(is_root),
        // Kernels before 5.8 do not tell; the numbers of the mounts do, where they can be had.
        None => match (mount_id(above.fd()?.as_fd()), mount_id(below.fd()?.as_fd())) {
            (Some(upper), Some(lower)) => Ok(upper != lower),
            _ => Err(fault(
                below.side(),
                Act::TellMounted,
                rustix::io::Errno::NOSYS,
            )),
        },
    }
}

/// Whether a directory of another device than the one above it is a subvolume of btrfs, and nothing
/// is mounted there.
pub fn is_subvolume(dir: &LocalDir) -> bool {
    use crate::Dir;
    dir.is_mount_root() == Some(false) && is_on(dir, &[BTRFS])
}

/// Kind of what a file system lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shows {
    /// Entries, and subvolumes of btrfs.
    Subvolumes,
    /// State of the kernel, made up for each reader.
    Kernel,
    /// Places on which a daemon mounts what a program looks for (autofs(5)).
    Automounts,
    /// Entries that the file system keeps.
    Entries,
}

/// File systems of the kernel (linux/magic.h, and for the last three their own sources).
const KERNEL: [u64; 20] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0xf97c_ff8c, // selinuxfs
    0x4341_5d53, // smackfs
    0x1cd1,      // devpts
    0xcafe_4a11, // bpf
    0x6165_676c, // pstore
    0xde5e_81e4, // efivarfs
    0x4249_4e4d, // binfmt_misc
    0x6e73_6673, // nsfs
    0x6265_6570, // configfs
    0x1980_0202, // mqueue
    0x6759_6969, // rpc_pipefs
    0x6e66_7364, // nfsd
    0x6573_5543, // fusectl
];

/// Returns what the file system of a directory lists.
pub fn shows(dir: &LocalDir) -> Shows {
    /// `AUTOFS_SUPER_MAGIC`.
    const AUTOFS: u64 = 0x0187;
    let kinds: [(Shows, &[u64]); 3] = [
        (Shows::Subvolumes, &[BTRFS]),
        (Shows::Kernel, &KERNEL),
        (Shows::Automounts, &[AUTOFS]),
    ];
    let magic = magic_of(dir);
    kinds
        .into_iter()
        .find(|(_, magics)| magic.is_some_and(|magic| magics.contains(&magic)))
        .map_or(Shows::Entries, |(shows, _)| shows)
}

/// Whether changes that other hosts make below a directory are seen here at once, as far as is
/// known of the file system: no other host can change it, or all hosts agree about each change.
pub fn shows_changes_at_once(dir: &LocalDir) -> bool {
    has_names_as_given(dir) || is_on(dir, &[OVERLAY, ZFS, LUSTRE, GPFS])
}

/// Whether the first change of an entry below a directory gives each directory above it a copy of
/// its own (overlayfs). Where two do so at once, the kernel gives back to the directory above the
/// time that it has just made itself (`ovl_copy_up_one` in fs/overlayfs/copy_up.c).
pub fn copies_up(dir: &LocalDir) -> bool {
    is_on(dir, &[OVERLAY])
}

/// Whether the file system of a directory is known to set attributes of an inode, and not of what
/// stands at a path.
pub fn sets_by_inode(dir: &LocalDir) -> bool {
    shows_changes_at_once(dir) || is_on(dir, &[NFS, CEPH, F2FS, RAMFS])
}

/// Whether the file system of a directory keeps each name as it was given, byte for byte, unless
/// the directory was set to ignore case.
pub fn has_names_as_given(dir: &LocalDir) -> bool {
    is_on(dir, &[EXT, XFS, BTRFS, TMPFS])
}

/// Returns whether all hosts that see a directory see the same inode numbers in it. Clients of FUSE,
/// SMB and 9P may number inodes themselves, and overlayfs numbers those of several layers anew.
pub fn has_common_inodes(dir: &LocalDir) -> bool {
    magic_of(dir).is_some_and(|magic| ![FUSE, SMB, CIFS, SMB2, V9FS, OVERLAY].contains(&magic))
}

/// Whether files below a directory can share blocks (`FICLONERANGE`, ioctl_ficlonerange(2)). An old
/// XFS is taken for one that can, and cannot.
pub fn shares_blocks(dir: &LocalDir) -> bool {
    is_on(dir, &[BTRFS, XFS])
}

/// Returns whether a directory is on a file system of one of these kinds.
fn is_on(dir: &LocalDir, magics: &[u64]) -> bool {
    magic_of(dir).is_some_and(|magic| magics.contains(&magic))
}

/// Returns the kind of a directory's file system; nothing if it is not known.
fn magic_of(dir: &LocalDir) -> Option<u64> {
    magic(&*dir.fd().ok()?)
}

/// A place on which something is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPoint {
    /// Where it is, below a root.
    pub path: RelPath,
    /// It mounts what somebody looks for there (autofs(5)), so it is another file system on each
    /// host.
    pub is_autofs: bool,
    /// The device of what is mounted, as the kernel writes it (`major:minor`).
    pub device: Vec<u8>,
}

/// Mounts of this process as the kernel lists them at the first question
/// (`/proc/self/mountinfo`, proc_pid_mountinfo(5)); later questions read nothing.
#[derive(Debug, Default)]
pub struct MountTable(OnceCell<Option<Vec<u8>>>);

impl MountTable {
    /// Returns the places below `root` on which something is mounted, as far as the list can be
    /// read.
    pub fn below(&self, root: &Path) -> Vec<MountPoint> {
        let listed = || Some((real_path(root)?, self.0.get_or_init(mount_list).as_ref()?));
        listed().map_or_else(Vec::new, |(root, list)| {
            list.split(|byte| *byte == b'\n')
                .filter_map(|line| mount_point(line, &root))
                .collect()
        })
    }
}

/// Returns the places below `root` on which something is mounted now, as far as the list of mounts
/// can be read.
pub fn mounts_below(root: &Path) -> Vec<MountPoint> {
    MountTable::default().below(root)
}

/// Returns whether a mount at, around or below a path shows other owners than its file system has
/// (`MOUNT_ATTR_IDMAP`, mount_setattr(2)), as far as `/proc/self/mountinfo` can be read.
pub(crate) fn is_id_mapped(root: &Path) -> bool {
    let listed = || Some((real_path(root)?, mount_list()?));
    listed().is_some_and(|(root, list)| is_id_mapped_in(&list, &root))
}

fn is_id_mapped_in(list: &[u8], root: &Path) -> bool {
    let all = || list.split(|byte| *byte == b'\n').filter_map(mount_options);
    let is_mapped = |options: &[u8]| {
        let mut words = options.split(|byte| *byte == b',');
        words.any(|word| word == b"idmapped")
    };
    let around = around(all(), root);
    let below = all().filter(|(at, _)| at.starts_with(root));
    around
        .into_iter()
        .chain(below)
        .any(|(_, options)| is_mapped(options))
}

/// Returns the mount that shows a path: of several that are mounted at one place, the last.
fn around<T>(mounts: impl Iterator<Item = (PathBuf, T)>, path: &Path) -> Option<(PathBuf, T)> {
    mounts
        .filter(|(at, _)| path.starts_with(at))
        .max_by_key(|(at, _)| at.components().count())
}

/// Returns the options with which a client asks the file server of a path each time, if that is
/// mounted without them, as far as `/proc/self/mountinfo` tells: it answers from its memory
/// otherwise, and does not see at once what another host has changed.
pub fn lacks_to_ask_server(path: &Path) -> Option<&'static str> {
    let (path, list) = (real_path(path)?, mount_list()?);
    lacks_to_ask_in(&list, &path)
}

fn lacks_to_ask_in(list: &[u8], path: &Path) -> Option<&'static str> {
    let all = list.split(|byte| *byte == b'\n').filter_map(server_options);
    let (_, (kind, options)) = around(all, path)?;
    let has = |wanted: &[u8]| {
        options
            .split(|byte| *byte == b',')
            .any(|word| word == wanted)
    };
    match kind {
        // nfs(5)
        b"nfs" | b"nfs4" => {
            let asks = has(b"noac") || has(b"acregmax=0") && has(b"acdirmax=0");
            (!asks).then_some("actimeo=0")
        }
        // mount.cifs(8)
        b"cifs" | b"smb3" => {
            let asks = has(b"actimeo=0") || has(b"acregmax=0") && has(b"acdirmax=0");
            (!(asks && has(b"cache=none"))).then_some("actimeo=0,cache=none")
        }
        _ => None,
    }
}

/// Place of a mount, the kind of its file system and the options of that.
type ServerOptions<'l> = (PathBuf, (&'l [u8], &'l [u8]));

/// Reads the fifth field of a line of `/proc/self/mountinfo`, and the first and third after the
/// hyphen.
fn server_options(line: &[u8]) -> Option<ServerOptions<'_>> {
    let mut fields = line.split(|byte| *byte == b' ').skip(4);
    let path = OsString::from_vec(unescape_mountinfo(fields.next()?));
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, _source, options) = (fields.next()?, fields.next()?, fields.next()?);
    Some((path.into(), (kind, options)))
}

/// Reads the fifth and the sixth field of a line of `/proc/self/mountinfo`.
fn mount_options(line: &[u8]) -> Option<(PathBuf, &[u8])> {
    let mut fields = line.split(|byte| *byte == b' ').skip(4);
    let path = OsString::from_vec(unescape_mountinfo(fields.next()?));
    Some((path.into(), fields.next()?))
}

/// Pairs of paths that show the same entry, because it is mounted a second time, as far as
/// `/proc/self/mountinfo` tells: the first is below `root`, the second at or below it. Another
/// mount may hide one of the two, so the caller has to look at both.
pub fn shown_twice(root: &Path) -> Vec<(RelPath, RelPath)> {
    let listed = || Some((real_path(root)?, mount_list()?));
    listed().map_or_else(Vec::new, |(root, list)| {
        twice_below(
            &list
                .split(|byte| *byte == b'\n')
                .filter_map(View::parse)
                .collect::<Vec<_>>(),
            &root,
        )
    })
}

/// Returns the paths below `outer` at which the directory `inner` is shown, as far as
/// `/proc/self/mountinfo` tells, whichever of several mounts the two paths go through. Another mount
/// may hide such a path, so the caller has to look there.
pub fn shown_below(outer: &Path, inner: &Path) -> Vec<RelPath> {
    let listed = || Some((real_path(outer)?, real_path(inner)?, mount_list()?));
    listed().map_or_else(Vec::new, |(outer, inner, list)| {
        let mounted: Vec<View> = list
            .split(|byte| *byte == b'\n')
            .filter_map(View::parse)
            .collect();
        below_in(&mounted, &outer, &inner)
    })
}

fn below_in(mounted: &[View], outer: &Path, inner: &Path) -> Vec<RelPath> {
    let places = |dir: &Path| -> Vec<PathBuf> {
        let tree = View::of(mounted, dir);
        let shown = |tree: &View| {
            mounted
                .iter()
                .filter_map(|view| view.place_of(tree))
                .collect()
        };
        tree.as_ref().map_or_else(Vec::new, shown)
    };
    let (outer, inner) = (places(outer), places(inner));
    let below = |inner: &PathBuf| {
        let rest = |outer: &PathBuf| {
            let rest = inner.strip_prefix(outer).ok()?;
            RelPath::parse(rest.as_os_str().as_bytes()).ok()
        };
        outer.iter().filter_map(rest).collect::<Vec<_>>()
    };
    let mut found: Vec<RelPath> = inner.iter().flat_map(below).collect();
    found.sort();
    found.dedup();
    found.retain(|path| !path.is_root());
    found
}

/// A part of a file system, and the path where it is shown.
#[derive(Debug)]
struct View {
    /// Major and minor number of the file system.
    device: Vec<u8>,
    /// The directory of the file system that is shown.
    part: PathBuf,
    at: PathBuf,
}

impl View {
    /// Reads the third, fourth and fifth field of a line of `/proc/self/mountinfo`.
    fn parse(line: &[u8]) -> Option<View> {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let device = fields.next()?.to_vec();
        let mut path = || Some(OsString::from_vec(unescape_mountinfo(fields.next()?)).into());
        Some(View {
            device,
            part: path()?,
            at: path()?,
        })
    }

    /// Returns the directory at the real path `dir`, as part of the file system that is mounted
    /// around it.
    fn of(mounted: &[View], dir: &Path) -> Option<View> {
        // Of several that are mounted at one place, the last is what is seen.
        let around = mounted
            .iter()
            .filter(|view| dir.starts_with(&view.at))
            .max_by_key(|view| view.at.components().count())?;
        let below = dir.strip_prefix(&around.at).ok()?;
        Some(View {
            device: around.device.clone(),
            part: around.part.join(below),
            at: dir.to_owned(),
        })
    }

    /// Where this view shows what `other` shows, if it does.
    fn place_of(&self, other: &View) -> Option<PathBuf> {
        let rest = other
            .part
            .strip_prefix(&self.part)
            .ok()
            .filter(|_| self.device == other.device)?;
        Some(self.at.join(rest).components().collect())
    }
}

fn twice_below(mounted: &[View], root: &Path) -> Vec<(RelPath, RelPath)> {
    let relative =
        |path: &Path| RelPath::parse(path.strip_prefix(root).ok()?.as_os_str().as_bytes()).ok();
    let Some(tree) = View::of(mounted, root) else {
        return Vec::new();
    };
    let inner: Vec<&View> = mounted
        .iter()
        .filter(|view| view.at.starts_with(root) && view.at != root)
        .collect();
    let mut twice: Vec<(PathBuf, PathBuf)> = Vec::new();
    for view in &inner {
        twice.extend(tree.place_of(view).map(|place| (view.at.clone(), place)));
        twice.extend(view.place_of(&tree).map(|place| (place, tree.at.clone())));
        // Of two mounts that show the same part, only the one with the later path counts as the
        // second.
        let others = inner
            .iter()
            .filter(|other| other.part != view.part || other.at < view.at);
        twice.extend(others.filter_map(|other| Some((view.at.clone(), other.place_of(view)?))));
    }
    let mut twice: Vec<_> = twice
        .into_iter()
        .filter(|(at, place)| at != place)
        .collect();
    twice.sort();
    twice.dedup();
    twice
        .iter()
        .filter_map(|(at, place)| {
            Some((relative(at).filter(|at| !at.is_root())?, relative(place)?))
        })
        .collect()
}

/// The path of a directory without symbolic links.
fn real_path(dir: &Path) -> Option<PathBuf> {
    let fd = open(
        dir,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    let path = readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new()).ok()?;
    Some(OsString::from_vec(path.into_bytes()).into())
}

/// The kernel's list of what is mounted.
fn mount_list() -> Option<Vec<u8>> {
    let file = open(
        "/proc/self/mountinfo",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    let mut list = Vec::new();
    File::from(file).read_to_end(&mut list).ok()?;
    Some(list)
}

/// Reads the fifth field of a line, relative to `root`, and the kind of file system after the
/// hyphen; `None` if the path is not below `root`.
fn mount_point(line: &[u8], root: &Path) -> Option<MountPoint> {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let device = fields.next()?.to_vec();
    let mut fields = fields.skip(1);
    let path = OsString::from_vec(unescape_mountinfo(fields.next()?));
    let is_autofs = fields.skip_while(|field| *field != b"-").nth(1) == Some(&b"autofs"[..]);
    let below = Path::new(&path).strip_prefix(root).ok()?;
    let path = RelPath::parse(below.as_os_str().as_bytes())
        .ok()
        .filter(|path| !path.is_root())?;
    Some(MountPoint {
        path,
        is_autofs,
        device,
    })
}

/// The number of the mount that an open directory is on: `mnt_id` of `/proc/PID/fdinfo/N`
/// (proc_pid_fdinfo(5)).
fn mount_id(dir: BorrowedFd<'_>) -> Option<u64> {
    const INFO_BYTES_MAX: usize = 4096;
    let path = format!("/proc/self/fdinfo/{}", dir.as_raw_fd());
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut info = [0; INFO_BYTES_MAX];
    let len = rustix::io::read(&file, &mut info).ok()?;
    let text = str::from_utf8(&info[..len]).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::Side;
    use std::sync::Arc;

    #[test]
    fn a_mount_point_is_read_from_its_line() {
        let line = br"36 35 98:0 /mnt1 /a/b\040c\134d rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let at = |root: &str| {
            mount_point(line, Path::new(root)).map(|found| found.path.as_bytes().to_vec())
        };
        assert_eq!(at("/a").as_deref(), Some(&br"b c\d"[..]));
        assert_eq!(at("/"), Some(br"a/b c\d".to_vec()));
        assert_eq!((at("/other"), at(r"/a/b c\d")), (None, None));
        assert_eq!(mount_point(b"36 35", Path::new("/")), None);
        let is_autofs = |kind: &str| {
            mount_point(
                format!("36 35 0:50 / /home rw shared:2 - {kind} x rw").as_bytes(),
                Path::new("/"),
            )
            .map(|found| found.is_autofs)
        };
        assert_eq!(
            [is_autofs("autofs"), is_autofs("nfs4")],
            [Some(true), Some(false)]
        );
    }

    #[test]
    fn id_mapped_mount_is_found_around_and_below() {
        let list = b"36 35 98:0 / / rw - ext4 x rw\n\
            37 36 98:1 / /data rw,relatime,idmapped shared:1 - ext4 x rw\n\
            38 37 98:2 / /data/plain rw - ext4 x rw\n\
            39 36 98:3 / /srv/in\\040dex rw,idmapped - ext4 x rw";
        for (root, expected) in [
            ("/", true),
            ("/data", true),
            ("/data/a", true),
            ("/data/plain", false),
            ("/database", false),
            ("/srv", true),
            ("/srv/in dex/a", true),
            ("/home", false),
        ] {
            assert_eq!(is_id_mapped_in(list, Path::new(root)), expected, "{root}");
        }
    }

    #[test]
    fn mount_that_remembers_is_told_by_its_options() {
        let lacks = |kind: &str, options: &str| {
            let list = format!(
                "36 35 98:0 / / rw - ext4 x rw\n37 36 0:50 / /n rw shared:1 - {kind} server:/x {options}"
            );
            lacks_to_ask_in(list.as_bytes(), Path::new("/n/tree"))
        };
        for (kind, options, expected) in [
            ("nfs4", "rw,vers=4.2,hard", Some("actimeo=0")),
            ("nfs", "rw,acregmax=0", Some("actimeo=0")),
            (
                "nfs4",
                "rw,acregmin=0,acregmax=0,acdirmin=0,acdirmax=0",
                None,
            ),
            ("nfs", "rw,noac", None),
            ("cifs", "rw,actimeo=1", Some("actimeo=0,cache=none")),
            ("cifs", "rw,cache=none,actimeo=0", None),
            ("ceph", "rw", None),
            ("ext4", "rw", None),
        ] {
            assert_eq!(lacks(kind, options), expected, "{kind} {options}");
        }
    }

    #[test]
    fn what_is_mounted_a_second_time_below_a_root_is_found_by_what_it_shows() {
        const AROUND: [(&str, &str, &str); 2] = [("8:1", "/", "/"), ("8:2", "/home", "/m")];
        let twice = |inner: &[(&str, &str, &str)]| {
            let line = |(device, part, at): &(&str, &str, &str)| {
                View::parse(format!("36 35 {device} {part} {at} rw - ext4 /dev/x rw").as_bytes())
            };
            let mounted: Vec<View> = AROUND
                .iter()
                .chain(inner)
                .map(|view| line(view).expect("a line"))
                .collect();
            let text = |path: &RelPath| String::from_utf8(path.as_bytes().to_vec()).expect("text");
            twice_below(&mounted, Path::new("/m/r"))
                .iter()
                .map(|(at, place)| (text(at), text(place)))
                .collect::<Vec<_>>()
        };
        let pairs = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(at, place)| ((*at).to_owned(), (*place).to_owned()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            twice(&[("8:2", "/home/r/a", "/m/r/b")]),
            pairs(&[("b", "a")])
        );
        assert_eq!(
            twice(&[("8:2", "/home/r", "/m/r/b")]),
            pairs(&[("b", "")]),
            "the root itself"
        );
        assert_eq!(
            twice(&[("8:2", "/", "/m/r/b")]),
            pairs(&[("b/home/r", "")]),
            "what is around the root"
        );
        assert_eq!(
            twice(&[("8:3", "/x", "/m/r/b"), ("8:3", "/x", "/m/r/c")]),
            pairs(&[("c", "b")])
        );
        assert_eq!(
            twice(&[("8:3", "/x", "/m/r/b"), ("8:3", "/x/y", "/m/r/c")]),
            pairs(&[("c", "b/y")])
        );
        assert_eq!(
            twice(&[
                ("8:2", "/home/other", "/m/r/b"),
                ("8:1", "/home/r/a", "/m/r/c"),
                ("8:3", "/home/r", "/m/r/d")
            ]),
            pairs(&[])
        );
        assert_eq!(twice(&[("8:2", "/home/r/a", "/m/elsewhere")]), pairs(&[]));
    }

    #[test]
    fn a_directory_is_found_below_another_through_each_mount() {
        let lines = [
            ("8:1", "/", "/"),
            ("8:2", "/", "/data"),
            ("8:2", "/backup", "/mnt/b"),
            ("8:3", "/", "/data/backup/disk"),
            ("8:3", "/x", "/mnt/x"),
        ];
        let mounted: Vec<View> = lines
            .iter()
            .map(|(device, part, at)| format!("36 35 {device} {part} {at} rw - ext4 /dev/x rw"))
            .filter_map(|line| View::parse(line.as_bytes()))
            .collect();
        for (outer, inner, expected) in [
            ("/data/backup", "/data/backup/mon", vec!["mon"]),
            ("/data/backup", "/mnt/b/mon", vec!["mon"]),
            ("/mnt/b", "/data/backup/mon", vec!["mon"]),
            ("/data/backup", "/mnt/b", vec![]),
            ("/data/backup", "/mnt/x/y", vec!["disk/x/y"]),
            ("/data/backup/mon", "/mnt/b", vec![]),
            ("/data/other", "/mnt/b/mon", vec![]),
        ] {
            let found = below_in(&mounted, Path::new(outer), Path::new(inner));
            let found: Vec<String> = found
                .iter()
                .map(|path| String::from_utf8(path.as_bytes().to_vec()).expect("text"))
                .collect();
            assert_eq!(found, expected, "{inner} below {outer}");
        }
    }

    fn root(path: &str) -> LocalDir {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty()).expect("open");
        LocalDir::root(&crate::HandlePool::new(16), Side::Replica, fd).expect("root")
    }

    #[test]
    fn both_ways_to_know_a_mount_agree() {
        let (top, proc) = (root("/"), root("/proc"));
        let (upper, lower): (Arc<_>, Arc<_>) = (top.fd().expect("fd"), proc.fd().expect("fd"));
        assert!(is_crossing(&top, &proc).expect("known"));
        assert_ne!(mount_id(upper.as_fd()), mount_id(lower.as_fd()));
        let below = proc
            .enter_local(c"self")
            .or_else(|_| proc.enter_local(c"sys"))
            .expect("a directory");
        assert!(!is_crossing(&proc, &below).expect("known"));
        assert_eq!(
            mount_id(below.fd().expect("fd").as_fd()),
            mount_id(lower.as_fd())
        );
    }
}
