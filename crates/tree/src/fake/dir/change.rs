//! What changes a directory in memory.

use super::FakeDir;
use crate::fake::file::FakeFile;
use crate::fake::{Call, Content};
use crate::{
    Attributes, BeforeChange, Dir, DirMut, DirMutRef, Done, Held, Known, Lock, Reach, Removed,
    Sentry, Spared, WriteFile, is_temp_name,
};
use driftless_model::{Act, Fault, Kind, RelPath, Stamp, errno};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::Arc;

impl DirMut for FakeDir {
    fn enter_mut(&self, name: &CStr) -> Done<DirMutRef> {
        Ok(Arc::new(self.open(name)?))
    }

    fn make_dir(&self, name: &CStr) -> Done<DirMutRef> {
        let ino = self.made(
            Call::MakeDir,
            name,
            (Kind::Dir, 0o700),
            Content::Dir(BTreeMap::new()),
        )?;
        let first = self.tree.0.state.lock().nodes[&ino].meta;
        Ok(Arc::new(FakeDir {
            ino,
            first,
            ..self.clone()
        }))
    }

    fn create_file(&self, name: &CStr, mode: u32) -> Done<Box<dyn WriteFile>> {
        let ino = self.made(
            Call::Create,
            name,
            (Kind::File, mode),
            Content::File(Vec::new()),
        )?;
        Ok(Box::new(FakeFile {
            tree: self.tree.clone(),
            ino,
            side: self.side,
            path: self.path_of(name),
        }))
    }

    fn reopen_file(&self, name: &CStr) -> Done<Box<dyn WriteFile>> {
        self.changing(Call::Open, name)?;
        Ok(Box::new(self.file(name, Act::Open)?))
    }

    fn make_symlink(&self, name: &CStr, target: &CStr) -> Done {
        self.made(
            Call::MakeNode,
            name,
            (Kind::Symlink, 0o777),
            Content::Symlink(target.into()),
        )
        .map(drop)
    }

    fn make_node(&self, name: &CStr, kind: Kind, rdev: u64) -> Done {
        let ino = self.made(Call::MakeNode, name, (kind, 0o600), Content::Node)?;
        self.tree
            .0
            .state
            .lock()
            .nodes
            .get_mut(&ino)
            .expect("it was made above")
            .meta
            .rdev = rdev;
        Ok(())
    }

    fn link(&self, name: &CStr, (from, from_name): (&dyn Dir, &CStr), id: (u64, u64)) -> Done {
        self.changing(Call::Link, name)?;
        let ino = self
            .other(from.token(), Act::Link)?
            .child(Act::Link, from_name)?;
        let mut state = self.tree.0.state.lock();
        if state.child(self.ino, name).is_some() {
            return Err(self.fault(Act::Link, errno::EEXIST));
        }
        if state.nodes[&ino].meta.id() != id {
            return Err(self.fault(Act::Link, errno::ESTALE));
        }
        state.attach(self.ino, name, ino);
        let now = state.tick();
        let meta = &mut state.nodes.get_mut(&ino).expect("it has a name").meta;
        (meta.nlink, meta.ctime) = (meta.nlink + 1, now);
        Ok(())
    }

    fn set(&self, name: &CStr, expected: &Known, attributes: &Attributes) -> Done<Vec<Fault>> {
        self.changing(Call::Set, name)?;
        let ino = self.child(Act::SetAttributes, name)?;
        let mut state = self.tree.0.state.lock();
        if expected
            .id
            .is_some_and(|id| id != state.nodes[&ino].meta.id())
        {
            return Err(self.fault(Act::SetAttributes, errno::ESTALE));
        }
        state.set(ino, attributes);
        Ok(Vec::new())
    }

    fn set_own(&self, _known: &Known, attributes: &Attributes) -> Vec<Fault> {
        if let Err(fault) = self
            .tree
            .0
            .gate
            .pass()
            .and_then(|()| self.asked_own(Call::Set))
        {
            return vec![fault];
        }
        self.tree.0.state.lock().set(self.ino, attributes);
        Vec::new()
    }

    fn make_writable(&self) {}

    fn nest(&self, _hidden: bool) -> Done<Option<DirMutRef>> {
        Ok(None)
    }

    fn take(&self, from: &dyn DirMut, name: &CStr, to: &CStr) -> Done {
        self.moved(&self.other(from.token(), Act::Rename)?, name, to)
    }

    fn rename(&self, from: &CStr, to: &CStr) -> Done {
        self.moved(self, from, to)
    }

    fn displace(&self, from: &CStr, to: &CStr, below_max: u64) -> Removed {
        let counted = self.count_tree(to, u64::MAX, Spared::NOTHING);
        if counted.entries.saturating_sub(1) > below_max {
            return Removed::failed(to, self.fault(Act::ReplaceDirectory, errno::ENOTEMPTY));
        }
        let gone = self.remove_tree(to, Spared::NOTHING);
        match self.moved(self, from, to) {
            Ok(()) => Removed {
                entries: gone.entries.saturating_sub(1),
                ..gone
            },
            Err(fault) => Removed {
                stuck: Removed::failed(to, fault).stuck,
                ..gone
            },
        }
    }

    fn remove(&self, name: &CStr) -> Done {
        self.changing(Call::Remove, name)?;
        let ino = self.child(Act::Remove, name)?;
        let mut state = self.tree.0.state.lock();
        if matches!(state.nodes[&ino].content, Content::Dir(_)) {
            return Err(self.fault(Act::Remove, errno::EISDIR));
        }
        state.detach(self.ino, name);
        Ok(())
    }

    fn remove_dir(&self, name: &CStr) -> Done {
        self.changing(Call::Remove, name)?;
        let ino = self.child(Act::RemoveDirectory, name)?;
        let mut state = self.tree.0.state.lock();
        match &state.nodes[&ino].content {
            Content::Dir(names) if names.is_empty() => {}
            Content::Dir(_) => return Err(self.fault(Act::RemoveDirectory, errno::ENOTEMPTY)),
            _ => return Err(self.fault(Act::RemoveDirectory, errno::ENOTDIR)),
        }
        state.detach(self.ino, name);
        Ok(())
    }

    fn remove_tree(&self, name: &CStr, spared: Spared<'_>) -> Removed {
        let mut removed = Removed::default();
        self.go((name, &RelPath::root()), spared, true, &mut removed);
        removed
    }

    fn remove_leftover(&self, name: &CStr) -> Removed {
        if is_temp_name(name) {
            self.remove_tree(name, Spared::NOTHING)
        } else {
            Removed::default()
        }
    }

    fn sync_all(&self) -> Done {
        self.asked_own(Call::Flush)
    }

    fn lock(&self, _name: Option<&CStr>, reach: Reach) -> Done<Lock> {
        Ok(if reach == Reach::Seen {
            Lock::Missing(errno::ENOENT)
        } else {
            Lock::Held(Box::new(Kept))
        })
    }

    fn set_unfinished(&self, is: bool) -> Done {
        if let Some(node) = self.tree.0.state.lock().nodes.get_mut(&self.ino) {
            node.is_unfinished = is;
        }
        Ok(())
    }

    fn set_mark(&self, text: &[u8], _durable: bool) -> Done<Stamp> {
        self.asked_own(Call::Mark)?;
        let mut state = self.tree.0.state.lock();
        let now = state.tick();
        if let Some(node) = state.nodes.get_mut(&self.ino) {
            node.mark = Some(text.to_vec());
        }
        Ok(now)
    }

    fn before_change(&self, act: Option<BeforeChange>) {
        self.tree.0.gate.set(act);
    }

    fn guard(&self, sentry: Option<Arc<dyn Sentry>>) {
        self.tree.0.gate.guard(sentry);
    }

    fn confirm(&self) -> Done {
        self.tree.0.gate.confirm()
    }
}

/// A lock that nobody takes away.
struct Kept;

impl Held for Kept {
    fn is_kept(&self) -> Done<bool> {
        Ok(true)
    }
}
