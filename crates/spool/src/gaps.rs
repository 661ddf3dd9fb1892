//! Counters of what no program could say: a number for each tree, which grows by one when something
//! has changed there and neither the agent nor a file took the word of it.
//!
//! Every user of the node counts in it, so a hostile one can take a gap of others away. What is
//! missed for that is found by a comparison of all, as everything that nobody says. Every user can cut
//! the file off, too: then it is made as long as it was, for programs that have mapped it.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, ftruncate};
use rustix::io::{Errno, pread};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often it is said at most that somebody cuts the file off.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// The counters of all trees.
#[derive(Debug)]
pub struct Gaps {
    file: OwnedFd,
    path: PathBuf,
    known: Vec<u64>,
    /// Nothing can be counted, and that was told as a gap.
    is_lost: bool,
    warned: Option<Instant>,
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
        Ok(Gaps::of(file, path, trees))
    }

    fn of(file: OwnedFd, path: &Path, trees: usize) -> Gaps {
        Gaps {
            file,
            path: path.to_owned(),
            known: vec![0; trees],
            is_lost: false,
            warned: None,
        }
    }

    /// Those that an earlier agent has made, whose programs may still count there. What that agent
    /// has known of them is not known.
    pub fn earlier(path: &Path, trees: usize) -> Result<Gaps, Errno> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Gaps::of(file, path, trees))
    }

    /// The trees whose counters are not what they were; all, once, if they cannot be read.
    pub fn counted(&mut self) -> Vec<usize> {
        let now = match self.read() {
            Ok(Some(now)) => now,
            Ok(None) => return self.cut_off(self.mend()),
            Err(errno) => return self.cut_off(Err(errno)),
        };
        if std::mem::take(&mut self.is_lost) {
            tracing::warn!("{}: event losses are counted again", self.path.display());
        }
        let others = self.known.iter().zip(&now).enumerate();
        let counted = others.filter(|(_, (was, is))| was != is);
        let counted = counted.map(|(tree, _)| tree).collect();
        self.known = now;
        counted
    }

    /// All counters; none if the file is too short.
    fn read(&self) -> Result<Option<Vec<u64>>, Errno> {
        let mut bytes = vec![0; self.known.len() * 8];
        let length = pread(&self.file, &mut bytes[..], 0)?;
        let now = bytes.chunks_exact(8).map(|bytes| {
            let bytes = bytes.try_into().expect("eight bytes");
            u64::from_ne_bytes(bytes)
        });
        Ok((length == bytes.len()).then(|| now.collect()))
    }

    /// Makes the file as long as it was, and returns what stands in it then.
    fn mend(&self) -> Result<Vec<u64>, Errno> {
        ftruncate(&self.file, (self.known.len() * 8) as u64)?;
        self.read()?.ok_or(Errno::IO)
    }

    /// The counters were cut off, and are whole again if that was `mended`. All trees may have had
    /// gaps; where they cannot be counted any more, that is said once.
    fn cut_off(&mut self, mended: Result<Vec<u64>, Errno>) -> Vec<usize> {
        let all = (0..self.known.len()).collect();
        let path = self.path.display();
        let why = match &mended {
            Ok(_) => format!("{path}: the counters of event losses were truncated"),
            Err(errno) => format!("{path}: cannot count event losses: {errno}"),
        };
        let has_just_warned = self.warned.is_some_and(|at| at.elapsed() < TOLD_EVERY);
        if !has_just_warned {
            self.warned = Some(Instant::now());
            tracing::warn!("{why}: all trees may differ");
        }
        match mended {
            Ok(now) => self.known = now,
            Err(_) if std::mem::replace(&mut self.is_lost, true) => return Vec::new(),
            Err(_) => {}
        }
        all
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
        for cut in [3, 0, 17] {
            ftruncate(&file, cut).unwrap();
            assert_eq!(gaps.counted(), [0, 1, 2]);
            assert_eq!(gaps.counted(), [0; 0], "it is told once");
        }
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 24);
        pwrite(&file, &1u64.to_ne_bytes(), 16).unwrap();
        assert_eq!(gaps.counted(), [2], "it is counted there again");
        assert!(Gaps::create(&path, 3).is_err(), "it is there");
    }
}
