//! Regular files of a tree in memory.

use super::{Call, Content, FakeTree, missing};
use crate::{Attributes, Done, Known, ReadFile, WriteFile};
use driftless_model::{Act, Fault, Keep, Meta, Side, Xattrs};
use std::ops::Range;

/// An open file.
pub(super) struct FakeFile {
    pub(super) tree: FakeTree,
    pub(super) ino: u64,
    pub(super) side: Side,
    /// Where it was opened: what is asked about it is counted, and fails, under this path.
    pub(super) path: String,
}

impl FakeFile {
    fn asked(&self, call: Call) -> Done {
        self.tree.asked(self.side, call, &self.path)
    }

    fn with_bytes<T>(&self, act: Act, with: impl FnOnce(&mut Vec<u8>) -> T) -> Done<T> {
        let mut state = self.tree.0.state.lock();
        match state.nodes.get_mut(&self.ino).map(|node| &mut node.content) {
            Some(Content::File(bytes)) => Ok(with(bytes)),
            _ => Err(missing(self.side, act)),
        }
    }

    fn written(&self, change: impl FnOnce(&mut Vec<u8>)) -> Done {
        self.tree.0.gate.pass()?;
        self.asked(Call::Write)?;
        let size = self.with_bytes(Act::Write, |bytes| {
            change(bytes);
            bytes.len() as u64
        })?;
        let mut state = self.tree.0.state.lock();
        let now = state.tick();
        let meta = &mut state
            .nodes
            .get_mut(&self.ino)
            .expect("it was written to")
            .meta;
        (meta.size, meta.mtime, meta.ctime) = (size, now, now);
        Ok(())
    }
}

impl ReadFile for FakeFile {
    fn meta(&self) -> Done<Meta> {
        self.asked(Call::Look)?;
        let state = self.tree.0.state.lock();
        state
            .nodes
            .get(&self.ino)
            .map(|node| node.meta)
            .ok_or_else(|| missing(self.side, Act::LookAt))
    }

    fn xattrs(&self, keep: &Keep) -> Done<Xattrs> {
        let state = self.tree.0.state.lock();
        let node = state
            .nodes
            .get(&self.ino)
            .ok_or_else(|| missing(self.side, Act::ReadXattrs))?;
        Ok(if keep.any_xattr() {
            node.xattrs.clone()
        } else {
            Xattrs::default()
        })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Done<usize> {
        self.asked(Call::Read)?;
        self.with_bytes(Act::Read, |bytes| {
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            let got = rest.len().min(buffer.len());
            buffer[..got].copy_from_slice(&rest[..got]);
            got
        })
    }

    fn drop_cached(&self) -> Done {
        Ok(())
    }

    fn next_data(&self, within: Range<u64>) -> Done<Option<Range<u64>>> {
        let size = self.with_bytes(Act::FindHoles, |bytes| bytes.len() as u64)?;
        let data = within.start..within.end.min(size);
        Ok(Some(data).filter(|data| !data.is_empty()))
    }
}

impl WriteFile for FakeFile {
    fn write_at(&self, data: &[u8], offset: u64) -> Done {
        self.written(|bytes| {
            let end = offset as usize + data.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset as usize..end].copy_from_slice(data);
        })
    }

    fn set_len(&self, len: u64) -> Done {
        self.written(|bytes| bytes.resize(len as usize, 0))
    }

    fn allocate(&self, _range: Range<u64>) -> Done {
        Ok(())
    }

    fn set(&self, _known: &Known, attributes: &Attributes) -> Vec<Fault> {
        if let Err(fault) = self.tree.0.gate.pass().and_then(|()| self.asked(Call::Set)) {
            return vec![fault];
        }
        self.tree.0.state.lock().set(self.ino, attributes);
        Vec::new()
    }

    fn sync(&self) -> Done {
        self.asked(Call::Flush)
    }

    fn flush(&self) -> Done {
        Ok(())
    }

    fn close(self: Box<Self>) -> Done {
        self.flush()
    }

    fn progress(&self) -> Option<Vec<u8>> {
        self.tree
            .0
            .state
            .lock()
            .nodes
            .get(&self.ino)?
            .progress
            .clone()
    }

    fn save_progress(&self, note: Option<&[u8]>) -> Done {
        if let Some(node) = self.tree.0.state.lock().nodes.get_mut(&self.ino) {
            node.progress = note.map(<[u8]>::to_vec);
        }
        Ok(())
    }
}
