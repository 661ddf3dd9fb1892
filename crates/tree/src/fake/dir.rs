//! Directories of a tree in memory.

mod change;

use super::file::FakeFile;
use super::{Call, Content, FakeTree, ROOT, State, missing};
use crate::{
    Ancestor, Dir, DirRef, Done, MarkText, NameStream, Names, Place, ReadFile, Removed, Rights,
    Spared,
};
use driftless_model::{Act, Fault, Keep, Kind, Meta, RelPath, Side, TRASH, Xattrs, errno};
use std::ffi::{CStr, CString};
use std::sync::Arc;

/// An open directory.
#[derive(Clone)]
pub(super) struct FakeDir {
    tree: FakeTree,
    ino: u64,
    side: Side,
    first: Meta,
}

/// The names of a directory as they were when its listing began.
struct FakeNames(std::vec::IntoIter<(CString, Kind)>);

impl NameStream for FakeNames {
    fn fill(&mut self, names: &mut Names, max: usize) -> Done<bool> {
        while names.len() < max {
            let Some((name, kind)) = self.0.next() else {
                return Ok(false);
            };
            names.push(&name, Some(kind));
        }
        Ok(self.0.len() > 0)
    }
}

impl FakeTree {
    /// Leaves an entry out of the next `times` listings of its directory.
    pub fn hide(&self, path: &str, times: u64) {
        let mut state = self.0.state.lock();
        let ino = state.find(path).expect("an entry");
        state.hidden.insert(ino, times);
    }
}

impl State {
    /// Returns whether a listing leaves an entry out, and counts the listing.
    fn hides(&mut self, ino: u64) -> bool {
        let left = self.hidden.get_mut(&ino).filter(|left| **left > 0);
        left.is_some_and(|left| {
            *left -= 1;
            true
        })
    }
}

impl FakeDir {
    pub(super) fn root(tree: &FakeTree, side: Side) -> FakeDir {
        let first = tree.0.state.lock().nodes[&ROOT].meta;
        FakeDir {
            tree: tree.clone(),
            ino: ROOT,
            side,
            first,
        }
    }

    /// What stands at a name that could not be entered, with this fault.
    pub(super) fn place(self, name: CString, fault: &Fault) -> Place<FakeDir> {
        match self.look(&name) {
            Ok(meta) if !fault.is_missing() => Place::Entry {
                parent: self,
                name,
                meta,
            },
            _ => Place::Missing { parent: self, name },
        }
    }

    fn fault(&self, act: Act, errno: i32) -> Fault {
        Fault {
            side: self.side,
            act,
            errno,
        }
    }

    fn path_of(&self, name: &CStr) -> String {
        let above = self.tree.0.state.lock().path_of(self.ino);
        let slash = if above.is_empty() { "" } else { "/" };
        format!("{above}{slash}{}", name.to_string_lossy())
    }

    fn asked(&self, call: Call, name: &CStr) -> Done {
        self.tree.asked(self.side, call, &self.path_of(name))
    }

    fn asked_own(&self, call: Call) -> Done {
        let path = self.tree.0.state.lock().path_of(self.ino);
        self.tree.asked(self.side, call, &path)
    }

    /// Passes the gate, and what the test has planned.
    fn changing(&self, call: Call, name: &CStr) -> Done {
        self.tree.0.gate.pass()?;
        self.asked(call, name)
    }

    fn child(&self, act: Act, name: &CStr) -> Done<u64> {
        self.tree
            .0
            .state
            .lock()
            .child(self.ino, name)
            .ok_or_else(|| missing(self.side, act))
    }

    pub(super) fn open(&self, name: &CStr) -> Done<FakeDir> {
        self.asked(Call::Enter, name)?;
        let ino = self.child(Act::Enter, name)?;
        let first = self.tree.0.state.lock().nodes[&ino].meta;
        match first.kind {
            Kind::Dir => Ok(FakeDir {
                tree: self.tree.clone(),
                ino,
                side: self.side,
                first,
            }),
            Kind::Symlink => Err(self.fault(Act::Enter, errno::ELOOP)),
            _ => Err(self.fault(Act::Enter, errno::ENOTDIR)),
        }
    }

    fn file(&self, name: &CStr, act: Act) -> Done<FakeFile> {
        let ino = self.child(act, name)?;
        let is_file = matches!(
            self.tree.0.state.lock().nodes[&ino].content,
            Content::File(_)
        );
        let file = FakeFile {
            tree: self.tree.clone(),
            ino,
            side: self.side,
            path: self.path_of(name),
        };
        if is_file {
            Ok(file)
        } else {
            Err(self.fault(act, errno::ELOOP))
        }
    }

    /// Makes an entry, where nothing may stand at its name.
    fn made(
        &self,
        call: Call,
        name: &CStr,
        (kind, mode): (Kind, u32),
        content: Content,
    ) -> Done<u64> {
        self.changing(call, name)?;
        let mut state = self.tree.0.state.lock();
        if !state.nodes.contains_key(&self.ino) {
            return Err(missing(self.side, call.act()));
        }
        if state.child(self.ino, name).is_some() {
            return Err(self.fault(call.act(), errno::EEXIST));
        }
        let made = state.make(self.tree.0.device, kind, mode, content);
        state.attach(self.ino, name, made);
        Ok(made)
    }

    /// Gives an entry of `from` a name here, in place of what is no directory.
    fn moved(&self, from: &FakeDir, name: &CStr, to: &CStr) -> Done {
        self.changing(Call::Rename, to)?;
        let ino = from.child(Act::Rename, name)?;
        let mut state = self.tree.0.state.lock();
        if let Some(there) = state.child(self.ino, to) {
            if there == ino {
                return Ok(());
            }
            let is_dir = |ino: &u64| matches!(state.nodes[ino].content, Content::Dir(_));
            if is_dir(&there) {
                return Err(self.fault(
                    Act::Rename,
                    if is_dir(&ino) {
                        errno::ENOTEMPTY
                    } else {
                        errno::EISDIR
                    },
                ));
            }
            state.detach(self.ino, to);
        }
        // Not with `detach`: that would take a link from the entry, and all that is below a
        // directory.
        let names = &mut state
            .nodes
            .get_mut(&from.ino)
            .expect("it has a name there")
            .content;
        let Content::Dir(names) = names else {
            unreachable!("names stand in directories")
        };
        names.remove(name);
        state.attach(self.ino, to, ino);
        Ok(())
    }

    /// Goes through an entry and all below it; with `acts` removes what may go.
    fn go(
        &self,
        (name, at): (&CStr, &RelPath),
        spared: Spared<'_>,
        acts: bool,
        removed: &mut Removed,
    ) {
        removed.met += 1;
        let Ok(meta) = self.look(name) else { return };
        let (path, is_dir) = (at.join(name.to_bytes()), meta.kind == Kind::Dir);
        let is_over = spared.is_over.is_some_and(|is_over| is_over());
        let is_left_out = |(filter, above): (&driftless_model::Filter, &RelPath)| {
            let seen = RelPath::from_names(above.names().chain(path.names()));
            !filter.takes(seen.as_bytes(), is_dir)
        };
        if is_over || spared.rules.is_some_and(is_left_out) {
            removed.spares = true;
            return;
        }
        let stuck = removed.stuck.len();
        let spares = std::mem::take(&mut removed.spares);
        if is_dir {
            match self.open(name) {
                Ok(dir) => {
                    let names = self.tree.0.state.lock().names(dir.ino);
                    names
                        .iter()
                        .for_each(|(below, _)| dir.go((below, &path), spared, acts, removed));
                }
                Err(fault) => removed.stuck.push((path.clone(), fault)),
            }
        }
        let stays = removed.spares || removed.stuck.len() > stuck;
        removed.spares |= spares;
        if stays {
            return;
        }
        match if acts {
            self.changing(Call::Remove, name)
        } else {
            Ok(())
        } {
            Ok(()) => {
                removed.entries += 1;
                if acts {
                    self.tree.0.state.lock().detach(self.ino, name);
                }
            }
            Err(fault) => removed.stuck.push((path, fault)),
        }
    }
}

impl Dir for FakeDir {
    fn enter(&self, name: &CStr) -> Done<DirRef> {
        Ok(Arc::new(self.open(name)?))
    }

    fn leave(&self) {}

    fn first_meta(&self) -> &Meta {
        &self.first
    }

    fn meta(&self) -> Done<Meta> {
        self.asked_own(Call::Look)?;
        let state = self.tree.0.state.lock();
        state
            .nodes
            .get(&self.ino)
            .map(|node| node.meta)
            .ok_or_else(|| missing(self.side, Act::LookAt))
    }

    fn meta_again(&self) -> Done<Meta> {
        self.meta()
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

    fn list(&self) -> Done<Box<dyn NameStream>> {
        self.asked_own(Call::List)?;
        let mut state = self.tree.0.state.lock();
        let mut names = state.names(self.ino);
        names.retain(|(name, ino)| {
            let is_own = self.ino == ROOT && **name == *TRASH;
            !is_own && !state.hides(*ino)
        });
        let names: Vec<(CString, Kind)> = names
            .into_iter()
            .map(|(name, ino)| (name, state.nodes[&ino].meta.kind))
            .collect();
        Ok(Box::new(FakeNames(names.into_iter())))
    }

    fn look(&self, name: &CStr) -> Done<Meta> {
        self.asked(Call::Look, name)?;
        let ino = self.child(Act::LookAt, name)?;
        Ok(self.tree.0.state.lock().nodes[&ino].meta)
    }

    fn xattrs_of(&self, name: &CStr, keep: &Keep) -> Done<Xattrs> {
        let ino = self.child(Act::ReadXattrs, name)?;
        let state = self.tree.0.state.lock();
        Ok(if keep.any_xattr() {
            state.nodes[&ino].xattrs.clone()
        } else {
            Xattrs::default()
        })
    }

    fn read_link(&self, name: &CStr) -> Done<CString> {
        self.asked(Call::Read, name)?;
        let ino = self.child(Act::ReadLink, name)?;
        match &self.tree.0.state.lock().nodes[&ino].content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(self.fault(Act::ReadLink, errno::EINVAL)),
        }
    }

    fn open_file(&self, name: &CStr) -> Done<Box<dyn ReadFile>> {
        self.asked(Call::Open, name)?;
        Ok(Box::new(self.file(name, Act::Open)?))
    }

    fn count_tree(&self, name: &CStr, _max: u64, spared: Spared<'_>) -> Removed {
        let mut counted = Removed::default();
        self.go((name, &RelPath::root()), spared, false, &mut counted);
        counted
    }

    fn user(&self) -> (u32, u32) {
        (0, 0)
    }

    fn rights(&self) -> Rights {
        Rights {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            any_owner: true,
            capabilities: true,
            trusted: true,
        }
    }

    fn marks(&self, _above: bool) -> Done<Vec<MarkText>> {
        self.asked_own(Call::Mark)?;
        let state = self.tree.0.state.lock();
        let text = state
            .nodes
            .get(&self.ino)
            .and_then(|node| node.mark.clone());
        Ok(text
            .map(|text| MarkText {
                above: Vec::new(),
                text,
            })
            .into_iter()
            .collect())
    }

    fn is_marked(&self) -> bool {
        self.tree
            .0
            .state
            .lock()
            .nodes
            .get(&self.ino)
            .is_some_and(|node| node.mark.is_some())
    }

    fn is_unfinished(&self) -> bool {
        self.tree
            .0
            .state
            .lock()
            .nodes
            .get(&self.ino)
            .is_some_and(|node| node.is_unfinished)
    }

    fn lineage(&self) -> Done<Vec<Ancestor>> {
        let state = self.tree.0.state.lock();
        let (mut above, mut at) = (Vec::new(), self.ino);
        loop {
            let node = state
                .nodes
                .get(&at)
                .ok_or_else(|| missing(self.side, Act::FindAbove))?;
            let name = node.above.as_ref().map(|(_, name)| name.as_c_str().into());
            above.push(Ancestor {
                id: node.meta.id(),
                name,
            });
            match &node.above {
                Some((dir, _)) => at = *dir,
                None => return Ok(above),
            }
        }
    }

    fn is_mount_root(&self) -> Option<bool> {
        Some(false)
    }

    fn token(&self) -> Option<(usize, u64)> {
        Some((Arc::as_ptr(&self.tree.0) as usize, self.ino))
    }
}

impl FakeDir {
    /// The directory of the same tree that has this token.
    fn other(&self, token: Option<(usize, u64)>, act: Act) -> Done<FakeDir> {
        let own = Arc::as_ptr(&self.tree.0) as usize;
        let ino = token
            .filter(|(tree, _)| *tree == own)
            .map(|(_, ino)| ino)
            .ok_or_else(|| self.fault(act, errno::EXDEV))?;
        Ok(FakeDir {
            ino,
            ..self.clone()
        })
    }
}
