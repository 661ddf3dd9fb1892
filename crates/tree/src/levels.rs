//! The directories above one: a server that follows links may show a directory in itself, and so
//! without end.

use crate::Done;
use crate::dir::DirRef;
use driftless_model::{Act, Fault, Side, Stamp, errno};
use std::sync::Arc;

/// What tells a directory from those above it.
#[derive(Debug, Clone, Copy)]
pub struct Level {
    id: (u64, u64),
    mtime: Stamp,
    is_mounted: bool,
}

/// The directories from a root down to one.
#[derive(Debug, Clone, Default)]
pub struct Levels(Option<Arc<Link>>);

/// A directory and those above it.
#[derive(Debug)]
struct Link {
    level: Level,
    above: Levels,
}

impl Level {
    /// Returns what tells an open directory.
    pub fn of(dir: &DirRef) -> Level {
        let meta = dir.first_meta();
        Level {
            id: meta.id(),
            mtime: meta.mtime,
            is_mounted: dir.is_mount_root() == Some(true),
        }
    }

    /// Returns whether a directory is one of those `above` it, the nearest first, and is not mounted
    /// there, nor one of them between: what is mounted comes to an end. A directory that changes
    /// meanwhile is found a level further down.
    pub fn is_endless(self, above: impl IntoIterator<Item = Level>) -> bool {
        let mut is_mounted = self.is_mounted;
        for level in above {
            if (level.id, level.mtime) == (self.id, self.mtime) {
                return !is_mounted;
            }
            is_mounted |= level.is_mounted;
        }
        false
    }
}

impl Levels {
    /// Returns the levels down to a directory, which was opened below these.
    ///
    /// # Errors
    /// It is one of those above it.
    pub fn enter(&self, dir: &DirRef, side: Side) -> Done<Levels> {
        let level = Level::of(dir);
        let above = std::iter::successors(self.0.as_ref(), |link| link.above.0.as_ref());
        if level.is_endless(above.map(|link| link.level)) {
            return Err(Fault {
                side,
                act: Act::Enter,
                errno: errno::ENOTUNIQ,
            });
        }
        let above = self.clone();
        Ok(Levels(Some(Arc::new(Link { level, above }))))
    }
}

/// Links deep down are let go of one by one, not each within the other, or a tree of some ten thousand
/// levels would overflow the stack.
impl Drop for Link {
    fn drop(&mut self) {
        let mut above = self.above.0.take();
        while let Some(mut link) = above.and_then(Arc::into_inner) {
            above = link.above.0.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_that_lies_in_itself_has_no_end_unless_mounted() {
        let level = |number, is_mounted| Level {
            id: (1, number),
            mtime: Stamp::default(),
            is_mounted,
        };
        let above = [level(3, false), level(2, false), level(1, true)];
        assert!(level(1, false).is_endless(above));
        assert!(level(3, false).is_endless(above));
        assert!(!level(4, false).is_endless(above));
        assert!(!level(1, true).is_endless(above), "it is mounted there");
        let above = [level(3, true), level(2, false)];
        assert!(!level(2, false).is_endless(above), "the one above is");
        let changed = Level {
            mtime: Stamp { sec: 1, nsec: 0 },
            ..level(3, false)
        };
        assert!(!changed.is_endless(above));
    }
}
