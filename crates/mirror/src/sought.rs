//! Files of which nothing but device and inode is known: they were changed by a name that is gone or
//! left out, and may have another one in the source. Who compares entries tells their names.
//!
//! What was found out of a file is remembered. As long as it is, each name of the file that is met is
//! told, so that a later change of it needs no comparison of all; nor does one of a file that has no
//! name in the source.

use driftless_lock::RwLock;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Device and inode.
pub type InodeId = (u64, u64);

/// Files that are remembered. Of more, those that were asked about first are forgotten.
const SOUGHT_MAX: usize = 50_000;

/// What is known of such files. Told by the threads that compare, and asked by them.
#[derive(Debug, Default)]
pub struct Sought {
    files: RwLock<Files>,
    /// There are some: to compare entries costs nothing more while there are none.
    is_any: AtomicBool,
}

#[derive(Debug, Default)]
struct Files {
    of: HashMap<InodeId, Known>,
    /// The same, in the order in which they were asked about first.
    order: VecDeque<InodeId>,
}

/// What is known of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It is looked for since it was changed then.
    Lost(Duration),
    /// Its names in the source were met.
    Here,
    /// It had none in the source when all was compared.
    Elsewhere,
}

impl Sought {
    /// Whether the names of a file are to be told, also where it has but one.
    pub fn seeks(&self, file: InodeId) -> bool {
        self.is_any.load(Relaxed) && self.files.read().of.contains_key(&file)
    }

    /// A file was changed, and none of its names is known. False if it is known to have none in the
    /// source.
    pub fn lost(&self, now: Duration, file: InodeId) -> bool {
        let mut files = self.files.write();
        match files.of.get(&file) {
            Some(Known::Elsewhere) => return false,
            Some(Known::Lost(_)) => return true,
            Some(Known::Here) => {}
            None => files.make_room(),
        }
        if files.of.insert(file, Known::Lost(now)).is_none() {
            files.order.push_back(file);
        }
        self.is_any.store(true, Relaxed);
        true
    }

    /// All names of a file in the source are known. Returns since when it was looked for, if it
    /// was.
    pub fn met(&self, file: InodeId) -> Option<Duration> {
        if !self.seeks(file) {
            return None;
        }
        match self.files.write().of.insert(file, Known::Here) {
            Some(Known::Lost(since)) => Some(since),
            _ => None,
        }
    }

    /// All was compared, and no more files are looked for than these.
    pub fn compared(&self, is_lost: impl Fn(&InodeId) -> bool) {
        if !self.is_any.load(Relaxed) {
            return;
        }
        for (file, known) in &mut self.files.write().of {
            if matches!(known, Known::Lost(_)) && !is_lost(file) {
                *known = Known::Elsewhere;
            }
        }
    }
}

impl Files {
    fn make_room(&mut self) {
        while self.order.len() >= SOUGHT_MAX {
            let oldest = self.order.pop_front();
            oldest.and_then(|file| self.of.remove(&file));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(7);

    #[test]
    fn what_was_found_out_of_a_file_is_remembered() {
        let sought = Sought::default();
        let (here, gone, late) = ((1, 7), (1, 8), (1, 9));
        assert!([here, gone, late].iter().all(|file| !sought.seeks(*file)));
        assert!(
            [here, gone, late]
                .iter()
                .all(|file| sought.lost(NOW, *file))
        );
        assert!([here, gone, late].iter().all(|file| sought.seeks(*file)));
        assert_eq!((sought.met(here), sought.met(here)), (Some(NOW), None));
        sought.compared(|file| *file == late);
        assert!(!sought.lost(NOW, gone), "it has no name in the source");
        assert!(sought.lost(NOW, late), "all was not compared since");
        assert!(sought.lost(NOW, here), "its name is not known any more");
        assert_eq!(sought.met(gone), None);
        assert!(sought.lost(NOW, gone), "it got a name");
    }

    #[test]
    fn as_many_are_remembered_as_there_is_room_for() {
        let sought = Sought::default();
        let count = SOUGHT_MAX as u64 + 5;
        assert!((0..count).all(|number| sought.lost(NOW, (1, number))));
        let (of, order) = {
            let files = sought.files.read();
            (files.of.len(), files.order.len())
        };
        assert_eq!((of, order), (SOUGHT_MAX, SOUGHT_MAX));
        assert!(!sought.seeks((1, 4)) && sought.seeks((1, 5)));
    }
}
