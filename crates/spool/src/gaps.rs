//! Counters of what no program could say: a number for each tree, which grows by one when something
//! has changed there and neither the agent nor a file took the word of it.
//!
//! Every user of the node counts in it, so a hostile one can take a gap of others away. What is
//! missed for that is found by a comparison of all, as everything that nobody says.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, ftruncate};
use rustix::io::{Errno, pread};
use std::path::Path;

/// The counters of all trees.
#[derive(Debug)]
pub struct Gaps {
    file: OwnedFd,
    known: Vec<u64>,
}

impl Gaps {
    /// New counters for so many trees, in a file that is not there yet.
    pub fn create(path: &Path, trees: usize) -> Result<Gaps, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let everybody = Mode::from_raw_mode(0o666);
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        // Whatever the umask.
        rustix::fs::fchmod(&file, everybody)?;
        ftruncate(&file, (trees * 8) as u64)?;
        Ok(Gaps {
            file,
            known: vec![0; trees],
        })
    }

    /// Those that an earlier agent has made, whose programs may still count there. What that agent
    /// has known of them is not known.
    pub fn earlier(path: &Path, trees: usize) -> Result<Gaps, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Gaps {
            file,
            known: vec![0; trees],
        })
    }

    /// The trees whose counters are not what they were; all, if they cannot be read.
    pub fn counted(&mut self) -> Vec<usize> {
        let mut bytes = vec![0; self.known.len() * 8];
        let is_whole = pread(&self.file, &mut bytes[..], 0) == Ok(bytes.len());
        if !is_whole {
            return (0..self.known.len()).collect();
        }
        let now = bytes.chunks_exact(8).map(|bytes| {
            let bytes = bytes.try_into().expect("eight bytes");
            u64::from_ne_bytes(bytes)
        });
        let now: Vec<u64> = now.collect();
        let others = self.known.iter().zip(&now).enumerate();
        let counted = others.filter(|(_, (was, is))| was != is);
        let counted = counted.map(|(tree, _)| tree).collect();
        self.known = now;
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::pwrite;

    #[test]
    fn what_has_grown_since_the_last_look_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gaps");
        let mut gaps = Gaps::create(&path, 3).unwrap();
        assert_eq!(gaps.counted(), [0; 0]);
        let file = rustix::fs::open(&path, OFlags::WRONLY, Mode::empty()).unwrap();
        pwrite(&file, &1u64.to_ne_bytes(), 8).unwrap();
        let mut later = Gaps::earlier(&path, 3).unwrap();
        assert_eq!(later.counted(), [1]);
        assert_eq!(gaps.counted(), [1]);
        assert_eq!(gaps.counted(), [0; 0]);
        ftruncate(&file, 3).unwrap();
        assert_eq!(gaps.counted(), [0, 1, 2]);
        assert!(Gaps::create(&path, 3).is_err(), "it is there");
    }
}
