//! Tests of large.

use super::*;
use driftless_model::{Keep, Kind, Xattrs};
use driftless_model::{Meta, Stamp};
use driftless_tree::Done;
use driftless_tree::{Attributes, Known};

/// A file whose first flush fails, as a disk's does that has lost something: the kernel says so
/// once.
#[derive(Default)]
struct Forgetful {
    flushes: AtomicU64,
    note: Arc<Mutex<Option<Vec<u8>>>>,
}

fn meta() -> Meta {
    let stamp = Stamp::default();
    let (mtime, atime, ctime) = (stamp, stamp, stamp);
    Meta {
        kind: Kind::File,
        mode: 0,
        uid: 0,
        gid: 0,
        size: 100,
        blocks: 0,
        mtime,
        atime,
        ctime,
        nlink: 1,
        dev: 1,
        ino: 1,
        rdev: 0,
        unkept: driftless_model::Unkept::NONE,
    }
}

impl ReadFile for Forgetful {
    fn meta(&self) -> Done<Meta> {
        Ok(meta())
    }
    fn xattrs(&self, _keep: &Keep) -> Done<Xattrs> {
        Ok(Xattrs::default())
    }
    fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> Done<usize> {
        Ok(0)
    }
    fn drop_cached(&self) -> Done {
        Ok(())
    }
    fn next_data(&self, within: Range<u64>) -> Done<Option<Range<u64>>> {
        Ok(Some(within))
    }
}

impl WriteFile for Forgetful {
    fn write_at(&self, _data: &[u8], _offset: u64) -> Done {
        Ok(())
    }
    fn set_len(&self, _len: u64) -> Done {
        Ok(())
    }
    fn allocate(&self, _range: Range<u64>) -> Done {
        Ok(())
    }
    fn set(&self, _known: &Known, _attributes: &Attributes) -> Vec<Fault> {
        Vec::new()
    }
    fn sync(&self) -> Done {
        let fault = Fault {
            side: Side::Replica,
            act: Act::Flush,
            errno: 5,
        };
        if self.flushes.fetch_add(1, Relaxed) == 1 {
            Err(fault)
        } else {
            Ok(())
        }
    }
    fn flush(&self) -> Done {
        Ok(())
    }
    fn close(self: Box<Self>) -> Done {
        Ok(())
    }
    fn progress(&self) -> Option<Vec<u8>> {
        None
    }
    fn save_progress(&self, note: Option<&[u8]>) -> Done {
        *self.note.lock() = note.map(<[u8]>::to_vec);
        Ok(())
    }
}

#[test]
fn after_a_flush_that_failed_nothing_is_noted_as_durable() {
    let file = Forgetful::default();
    let note = file.note.clone();
    let mover = Mover {
        copier: Copier::new(driftless_model::Cache::Keep, Arc::default()),
        terms: crate::Terms::default(),
        carrier: None,
        pace: &|_| (),
        stopped: &|| false,
    };
    let opened = Opened {
        file: Arc::new(Forgetful::default()),
        meta: meta(),
        young: false,
    };
    let large = Large::over(
        &mover,
        opened,
        (Box::new(file), c"temp".into()),
        Ranges::default(),
    );
    large.done.lock().add(0..50);
    assert!(large.checkpoint().is_ok() && note.lock().is_some());
    large.done.lock().add(50..100);
    assert!(
        matches!(large.checkpoint(), Err(Trouble::Lost(_))) && note.lock().is_none(),
        "the note went with what it vouched for"
    );
    assert!(
        matches!(large.checkpoint(), Err(Trouble::Lost(_))),
        "the kernel says it once, and it holds for all"
    );
    assert!(note.lock().is_none());
}
