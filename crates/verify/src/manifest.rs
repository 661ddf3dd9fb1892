//! The manifest of a tree, version 1: one line for each entry, and a hash over all of it that two
//! people can compare by eye.
//!
//! ```text
//! driftless-manifest 1
//! KIND MODE UID GID MTIME SIZE LINK XATTRS CONTENT NAME     for each entry; a backslash
//!                                                           before KIND if NAME is escaped
//! root HASH                                                 BLAKE3 of all lines above
//! ```
//!
//! Inode numbers, change times and allocation are left out, which a copy cannot keep, and access
//! times, which reading changes; so equal trees have equal manifests, however they came to be. The
//! order of the lines is that of a walk that takes names sorted by bytes.

use crate::algorithm::Digest;
use crate::lines::push_escaped;
use driftless_model::{Entry, Kind, Meta};
use std::collections::HashMap;

/// The first line.
const HEADER: &str = "driftless-manifest 1";

/// A manifest in the making: returns its lines, newlines included, for the caller to write.
#[derive(Debug)]
pub struct Manifest {
    hasher: blake3::Hasher,
    lines: u64,
    /// Hard-link groups of which names are still to come, by device and inode: the line of the
    /// first name, and how many names are to come.
    groups: HashMap<(u64, u64), (u64, u64)>,
}

impl Manifest {
    /// Begins a manifest; returns its first line.
    pub fn begin() -> (Self, Vec<u8>) {
        let mut manifest = Manifest {
            hasher: blake3::Hasher::new(),
            lines: 0,
            groups: HashMap::new(),
        };
        let line = manifest.count(format!("{HEADER}\n").into_bytes());
        (manifest, line)
    }

    /// Adds the next entry and returns its line. `path` is its path below the root (`.` is the root
    /// itself), `content` the hash of the content of a regular file or of the target of a symbolic
    /// link.
    pub fn add(&mut self, path: &[u8], entry: &Entry, content: Option<&Digest>) -> Vec<u8> {
        let special = b"\n\r\\";
        let mut line = Vec::with_capacity(path.len() + 192);
        if path.iter().any(|byte| special.contains(byte)) {
            line.push(b'\\');
        }
        let Entry { meta, xattrs } = entry;
        let link = self.group(meta).map_or("-".into(), |line| line.to_string());
        let xattrs = if xattrs.is_empty() {
            "-".into()
        } else {
            xattrs_digest(xattrs).to_string()
        };
        let content = content.map_or("-".into(), ToString::to_string);
        line.extend(format!("{} {link} {xattrs} {content} ", properties(meta)).into_bytes());
        push_escaped(&mut line, path, special);
        line.push(b'\n');
        self.count(line)
    }

    /// Ends the manifest; returns its last line and the hash in it.
    pub fn end(self) -> (Vec<u8>, Digest) {
        let root = self.hasher.finalize().into();
        (format!("root {root}\n").into_bytes(), root)
    }

    fn count(&mut self, line: Vec<u8>) -> Vec<u8> {
        self.hasher.update(&line);
        self.lines += 1;
        line
    }

    /// If this is a further name of a hard-link group, the number of the line of the group's first
    /// name.
    fn group(&mut self, meta: &Meta) -> Option<u64> {
        if meta.kind == Kind::Dir || meta.nlink < 2 {
            return None;
        }
        match self.groups.get_mut(&meta.id()) {
            None => {
                self.groups
                    .insert(meta.id(), (self.lines + 1, meta.nlink - 1));
                None
            }
            Some((first, left)) => {
                let first = *first;
                *left -= 1;
                if *left == 0 {
                    self.groups.remove(&meta.id());
                }
                Some(first)
            }
        }
    }
}

/// `KIND MODE UID GID MTIME SIZE`. A symbolic link has no mode of its own, a directory no size that
/// a copy would keep.
fn properties(meta: &Meta) -> String {
    let mode = if meta.kind == Kind::Symlink {
        "-".into()
    } else {
        format!("{:04o}", meta.mode)
    };
    let size = match meta.kind {
        Kind::File => meta.size.to_string(),
        Kind::Char | Kind::Block => meta.rdev.to_string(),
        _ => "-".into(),
    };
    let (word, mtime) = (meta.kind.word(), meta.mtime);
    format!(
        "{word} {mode} {} {} {}.{:09} {size}",
        meta.uid, meta.gid, mtime.sec, mtime.nsec
    )
}

/// The hash over extended attributes in the order of their names: length (4 bytes, little-endian)
/// and bytes of each name and value.
fn xattrs_digest(xattrs: &driftless_model::Xattrs) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for part in xattrs.iter().flat_map(|(name, value)| [name, value]) {
        hasher.update(&(part.len() as u32).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Stamp, Unkept, Xattrs};

    fn entry(kind: Kind) -> Entry {
        let stamp = Stamp { sec: -1, nsec: 5 };
        let meta = Meta {
            kind,
            mode: 0o640,
            uid: 1,
            gid: 2,
            size: 3,
            blocks: 8,
            mtime: stamp,
            atime: stamp,
            ctime: stamp,
            nlink: 1,
            dev: 9,
            ino: 10,
            rdev: 259,
            unkept: Unkept::NONE,
        };
        Entry {
            meta,
            xattrs: Xattrs::default(),
        }
    }

    fn root_of(entries: &[(&[u8], Entry)]) -> String {
        let (mut manifest, _) = Manifest::begin();
        let content = blake3::hash(b"x").into();
        entries
            .iter()
            .for_each(|(path, entry)| _ = manifest.add(path, entry, Some(&content)));
        manifest.end().1.to_string()
    }

    #[test]
    fn lines_are_as_the_documents_say() {
        let (mut manifest, first) = Manifest::begin();
        assert_eq!(first, b"driftless-manifest 1\n");
        let hash = "00".repeat(32);
        let content = Digest::from_hex(hash.as_bytes()).unwrap();
        let mut line = |path: &[u8], kind, content: Option<&Digest>| {
            String::from_utf8(manifest.add(path, &entry(kind), content)).unwrap()
        };
        assert_eq!(
            line(b".", Kind::Dir, None),
            "dir 0640 1 2 -1.000000005 - - - - .\n"
        );
        assert_eq!(
            line(b"a\nb", Kind::File, Some(&content)),
            format!("\\file 0640 1 2 -1.000000005 3 - - {hash} a\\nb\n")
        );
        assert_eq!(
            line(b"l", Kind::Symlink, Some(&content)),
            format!("symlink - 1 2 -1.000000005 - - - {hash} l\n")
        );
        assert_eq!(
            line(b"c", Kind::Char, None),
            "char 0640 1 2 -1.000000005 259 - - - c\n"
        );
    }

    #[test]
    fn the_last_line_is_the_hash_of_those_above() {
        let (mut manifest, mut text) = Manifest::begin();
        text.extend(manifest.add(b".", &entry(Kind::Dir), None));
        assert_eq!(
            manifest.end().0,
            format!("root {}\n", blake3::hash(&text)).into_bytes()
        );
    }

    #[test]
    fn names_of_one_inode_refer_to_the_first() {
        let (mut manifest, _) = Manifest::begin();
        let mut linked = entry(Kind::File);
        linked.meta.nlink = 3;
        let mut links = |path: &[u8]| {
            let line = String::from_utf8(manifest.add(path, &linked, None)).unwrap();
            line.split(' ').nth(6).unwrap().to_owned()
        };
        assert_eq!([links(b"a"), links(b"b"), links(b"c")], ["-", "2", "2"]);
        assert!(manifest.groups.is_empty());
    }

    #[test]
    fn every_property_that_a_copy_keeps_counts_and_no_other() {
        let base = entry(Kind::File);
        let plain = root_of(&[(b"a", base.clone())]);
        let changed = |change: &dyn Fn(&mut Entry)| {
            let mut entry = base.clone();
            change(&mut entry);
            root_of(&[(b"a", entry)])
        };
        let kept: [&dyn Fn(&mut Entry); 7] = [
            &|entry| entry.meta.mode = 0o641,
            &|entry| entry.meta.uid = 0,
            &|entry| entry.meta.gid = 0,
            &|entry| entry.meta.size = 0,
            &|entry| entry.meta.mtime.nsec = 0,
            &|entry| entry.meta.kind = Kind::Fifo,
            &|entry| {
                entry.xattrs = [(b"user.a"[..].into(), b""[..].into())]
                    .into_iter()
                    .collect()
            },
        ];
        assert!(kept.iter().all(|change| changed(*change) != plain));
        assert_ne!(root_of(&[(b"b", base.clone())]), plain);
        let others: [&dyn Fn(&mut Entry); 5] = [
            &|entry| entry.meta.atime.sec = 7,
            &|entry| entry.meta.ctime.sec = 7,
            &|entry| entry.meta.ino = 7,
            &|entry| entry.meta.blocks = 7,
            &|entry| entry.meta.nlink = 7,
        ];
        assert!(others.iter().all(|change| changed(*change) == plain));
    }
}
