//! One of everything: the fixed part of a hostile tree, a directory for each theme.
//!
//! Random trees meet most of this sooner or later; the catalogue makes every test meet all of it at
//! once.

use crate::attrs::{self, ACL_ACCESS, ACL_DEFAULT, CAPABILITY};
use crate::build::TreeBuilder;
use crate::names::nasty_names;
use rustix::fs::FileType;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const FILE: FileType = FileType::RegularFile;
const DIRECTORY: FileType = FileType::Directory;
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
const WIDE_ENTRIES: usize = 320;
const LEVELS: usize = 30;

/// Name, size, and the data as offsets and lengths.
type Layout<'a> = (&'a str, u64, &'a [(u64, u64)]);

impl TreeBuilder {
    pub(crate) fn catalogue(&mut self) -> io::Result<()> {
        self.catalogue_names()?;
        self.catalogue_sizes()?;
        self.catalogue_holes()?;
        self.catalogue_links()?;
        self.catalogue_symlinks()?;
        self.catalogue_nodes()?;
        self.catalogue_modes()?;
        self.catalogue_owners()?;
        self.catalogue_xattrs()?;
        self.catalogue_acls()?;
        self.catalogue_times()?;
        self.catalogue_directories()
    }

    fn theme(&mut self, name: &str) -> io::Result<PathBuf> {
        let path = self.root.join(name);
        let attributes = self.plain_attributes(DIRECTORY);
        self.directory(&path, attributes)?;
        Ok(path)
    }

    fn catalogue_names(&mut self) -> io::Result<()> {
        let theme = self.theme("names")?;
        for (index, name) in nasty_names().into_iter().enumerate() {
            let path = theme.join(OsStr::from_bytes(&name));
            if index % 3 == 0 {
                let attributes = self.plain_attributes(DIRECTORY);
                self.directory(&path, attributes)?;
                let attributes = self.plain_attributes(FILE);
                self.file(
                    &path.join(OsStr::from_bytes(&name)),
                    index as u64,
                    attributes,
                )?;
            } else {
                let attributes = self.plain_attributes(FILE);
                self.file(&path, index as u64, attributes)?;
            }
        }
        Ok(())
    }

    fn catalogue_sizes(&mut self) -> io::Result<()> {
        let theme = self.theme("sizes")?;
        let mut sizes = vec![
            0,
            1,
            511,
            4095,
            4096,
            4097,
            65_535,
            65_536,
            65_537,
            262_144,
            MIB - 1,
        ];
        if self.profile.large {
            sizes.extend([MIB, 3 * MIB + 17, 8 * MIB]);
        }
        for size in sizes {
            let attributes = self.plain_attributes(FILE);
            self.file(&theme.join(format!("{size}")), size, attributes)?;
        }
        Ok(())
    }

    fn catalogue_holes(&mut self) -> io::Result<()> {
        let theme = self.theme("holes")?;
        let layouts: [Layout; 8] = [
            ("start", MIB, &[(MIB / 2, MIB / 2)]),
            ("middle", MIB, &[(0, 64 * KIB), (MIB - 64 * KIB, 64 * KIB)]),
            ("end", MIB, &[(0, 128 * KIB)]),
            ("all", 4 * MIB, &[]),
            ("all-odd", 12_345, &[]),
            ("one-byte-at-the-end", 2 * MIB + 1, &[(2 * MIB, 1)]),
            (
                "islands",
                8 * MIB,
                &[(5000, 3), (MIB, 1), (3 * MIB + 100, 7000), (6 * MIB, 4096)],
            ),
            (
                "comb",
                512 * KIB,
                &[(0, 1), (32_768, 1), (65_536, 1), (131_072, 1), (262_144, 1)],
            ),
        ];
        for (name, size, islands) in layouts {
            let attributes = self.plain_attributes(FILE);
            self.sparse(&theme.join(name), size, islands, attributes)?;
        }
        if self.profile.large {
            let attributes = self.plain_attributes(FILE);
            self.sparse(
                &theme.join("gigabyte"),
                GIB,
                &[(100 * MIB, 5), (GIB - 4096, 4096)],
                attributes,
            )?;
        }
        Ok(())
    }

    fn catalogue_links(&mut self) -> io::Result<()> {
        let theme = self.theme("links")?;
        let other = self.theme("links-elsewhere")?;
        let attributes = self.random_attributes(FILE);
        self.file(&theme.join("a1"), 5000, attributes)?;
        self.hard_link(&theme.join("a1"), &theme.join("a2"))?;
        self.hard_link(&theme.join("a1"), &other.join("a3"))?;
        let attributes = self.plain_attributes(FILE);
        self.file(&other.join("b1"), 0, attributes)?;
        for index in 0..20 {
            self.hard_link(&other.join("b1"), &theme.join(format!("b-{index}")))?;
        }
        let attributes = self.plain_attributes(FileType::Symlink);
        self.symlink(&theme.join("s1"), b"linked symlink", attributes)?;
        self.hard_link(&theme.join("s1"), &other.join("s2"))?;
        let attributes = self.plain_attributes(FileType::Fifo);
        self.node(&theme.join("f1"), FileType::Fifo, (0, 0), attributes)?;
        self.hard_link(&theme.join("f1"), &other.join("f2"))
    }

    fn catalogue_symlinks(&mut self) -> io::Result<()> {
        let theme = self.theme("symlinks")?;
        // None leads to anything of the machine: a careless program under test, or a test, may
        // follow them.
        let targets: [(&str, &[u8]); 8] = [
            ("dangling", b"no/such/target"),
            ("absolute", b"/nonexistent/file"),
            ("to-directory", b"../sizes"),
            ("up", b".."),
            ("self", b"self"),
            ("outside", b"/nonexistent/"),
            ("hostile", b"\xff\n\x1b[31m -rf"),
            ("one", b"x"),
        ];
        for (name, target) in targets {
            let attributes = self.plain_attributes(FileType::Symlink);
            self.symlink(&theme.join(name), target, attributes)?;
        }
        self.longest_symlink(&theme.join("long"))?;
        if self.profile.privileged_xattrs {
            let mut attributes = self.plain_attributes(FileType::Symlink);
            attributes.owner = Some((1000, 123_456));
            attributes
                .xattrs
                .push((b"trusted.on-a-link".to_vec(), b"value\0x".to_vec()));
            self.symlink(&theme.join("with-xattr"), b"target", attributes)?;
        }
        Ok(())
    }

    /// XFS takes no target over 1024 bytes, the others nearly 4096.
    fn longest_symlink(&mut self, path: &Path) -> io::Result<()> {
        let attributes = self.plain_attributes(FileType::Symlink);
        match self.symlink(path, &vec![b't'; 4000], attributes.clone()) {
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::NAMETOOLONG.raw_os_error()) =>
            {
                self.symlink(path, &vec![b't'; 1000], attributes)
            }
            other => other,
        }
    }

    fn catalogue_nodes(&mut self) -> io::Result<()> {
        let theme = self.theme("nodes")?;
        let nodes = [
            ("fifo", FileType::Fifo, (0, 0)),
            ("socket", FileType::Socket, (0, 0)),
            ("null", FileType::CharacterDevice, (1, 3)),
            ("char-big", FileType::CharacterDevice, (511, 262_143)),
            ("whiteout", FileType::CharacterDevice, (0, 0)),
            ("loop", FileType::BlockDevice, (7, 0)),
        ];
        for (name, kind, device) in nodes {
            let is_device = kind == FileType::CharacterDevice || kind == FileType::BlockDevice;
            let is_whiteout = is_device && device == (0, 0);
            if !is_device || self.profile.devices && (self.profile.whiteouts || !is_whiteout) {
                let mut attributes = self.plain_attributes(kind);
                attributes.mode = Some(0o4621);
                self.node(&theme.join(name), kind, device, attributes)?;
            }
        }
        Ok(())
    }

    fn catalogue_modes(&mut self) -> io::Result<()> {
        let theme = self.theme("modes")?;
        let mut modes = vec![0o644, 0o400, 0o4755, 0o2755, 0o1755, 0o7777, 0o666];
        let mut directory_modes = vec![0o700, 0o2775, 0o1777, 0o555];
        if self.profile.unreadable {
            modes.extend([0, 0o222, 0o111, 0o4000]);
            directory_modes.extend([0, 0o111, 0o7000]);
        }
        for mode in modes {
            let mut attributes = self.plain_attributes(FILE);
            attributes.mode = Some(mode);
            self.file(&theme.join(format!("file-{mode:04o}")), 100, attributes)?;
        }
        for mode in directory_modes {
            let mut attributes = self.plain_attributes(DIRECTORY);
            attributes.mode = Some(mode);
            let path = theme.join(format!("dir-{mode:04o}"));
            self.directory(&path, attributes)?;
            let attributes = self.plain_attributes(FILE);
            self.file(&path.join("inside"), 10, attributes)?;
        }
        Ok(())
    }

    fn catalogue_owners(&mut self) -> io::Result<()> {
        let theme = self.theme("owners")?;
        if !self.profile.owners {
            return Ok(());
        }
        for (uid, gid) in [
            (1000, 1000),
            (65534, 65534),
            (123_456, 0),
            (0, 123_456),
            (4_294_967_294, 4_294_967_294),
        ] {
            let mut attributes = self.plain_attributes(FILE);
            attributes.owner = Some((uid, gid));
            attributes.mode = Some(0o6755);
            self.file(
                &theme.join(format!("file-{uid}-{gid}")),
                20,
                attributes.clone(),
            )?;
            let path = theme.join(format!("dir-{uid}-{gid}"));
            self.directory(&path, attributes.clone())?;
            attributes.mode = None;
            self.symlink(&path.join("link"), b"whatever", attributes)?;
        }
        Ok(())
    }

    fn catalogue_xattrs(&mut self) -> io::Result<()> {
        let theme = self.theme("xattrs")?;
        let mut xattrs: Vec<(Vec<u8>, Vec<u8>)> = vec![
            (b"user.empty".to_vec(), Vec::new()),
            (b"user.binary".to_vec(), (0..=255).collect()),
            (b"user.\xff\n name".to_vec(), b"hostile name".to_vec()),
            ([b"user.".to_vec(), vec![b'n'; 200]].concat(), vec![0; 3]),
            (b"user.big".to_vec(), vec![b'v'; 1500]),
        ];
        if self.profile.privileged_xattrs {
            xattrs.push((b"trusted.overlay.like".to_vec(), b"y\0".to_vec()));
        }
        let mut attributes = self.plain_attributes(DIRECTORY);
        attributes.xattrs = xattrs.clone();
        self.directory(&theme.join("directory"), attributes)?;
        if self.profile.privileged_xattrs {
            xattrs.push((CAPABILITY.into(), attrs::capability_blob(1 << 10)));
        }
        let mut attributes = self.plain_attributes(FILE);
        attributes.xattrs = xattrs;
        self.file(&theme.join("file"), 64, attributes)
    }

    fn catalogue_acls(&mut self) -> io::Result<()> {
        let theme = self.theme("acls")?;
        let blob = attrs::acl_blob((1000, 7), (100, 5), 0);
        let mut attributes = self.plain_attributes(FILE);
        attributes.xattrs.push((ACL_ACCESS.into(), blob.clone()));
        self.file(&theme.join("file"), 10, attributes)?;
        for (name, keys) in [
            ("access", &[ACL_ACCESS][..]),
            ("default", &[ACL_DEFAULT]),
            ("both", &[ACL_ACCESS, ACL_DEFAULT]),
        ] {
            let mut attributes = self.plain_attributes(DIRECTORY);
            attributes.xattrs = keys
                .iter()
                .map(|key| (key.as_bytes().to_vec(), blob.clone()))
                .collect();
            self.directory(&theme.join(name), attributes)?;
            let attributes = self.plain_attributes(FILE);
            self.file(&theme.join(name).join("plain"), 10, attributes)?;
            let attributes = self.plain_attributes(DIRECTORY);
            self.directory(&theme.join(name).join("plain-dir"), attributes)?;
        }
        Ok(())
    }

    fn catalogue_times(&mut self) -> io::Result<()> {
        let theme = self.theme("times")?;
        let times = [
            (0, 0),
            (-1, 999_999_999),
            (-2_000_000_000, 1),
            (1_700_000_000, 123_456_789),
            (9_000_000_000, 5),
            (1, 1),
        ];
        for (index, mtime) in times.into_iter().enumerate() {
            let mut attributes = self.plain_attributes(FILE);
            attributes.mtime = mtime;
            self.file(&theme.join(format!("file-{index}")), 10, attributes)?;
            let mut attributes = self.plain_attributes(DIRECTORY);
            attributes.mtime = mtime;
            self.directory(&theme.join(format!("dir-{index}")), attributes)?;
            let mut attributes = self.plain_attributes(FileType::Symlink);
            attributes.mtime = mtime;
            self.symlink(&theme.join(format!("link-{index}")), b"x", attributes)?;
        }
        Ok(())
    }

    fn catalogue_directories(&mut self) -> io::Result<()> {
        let theme = self.theme("directories")?;
        let attributes = self.plain_attributes(DIRECTORY);
        self.directory(&theme.join("empty"), attributes)?;
        let wide = theme.join("wide");
        let attributes = self.plain_attributes(DIRECTORY);
        self.directory(&wide, attributes)?;
        for index in 0..WIDE_ENTRIES {
            let attributes = self.plain_attributes(FILE);
            self.file(
                &wide.join(format!("entry-{index}")),
                index as u64 % 7,
                attributes,
            )?;
        }
        let mut path = theme;
        for level in 0..LEVELS {
            path.push(format!("level-{level}"));
            let attributes = self.plain_attributes(DIRECTORY);
            self.directory(&path, attributes)?;
        }
        let attributes = self.plain_attributes(FILE);
        self.file(&path.join("bottom"), 3, attributes)
    }
}
