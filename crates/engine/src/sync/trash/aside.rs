//! What a run removes goes into the trash instead: on the same terms, and counted alike.
//!
//! A directory of which all may go is renamed as one. Where something in it stays, because rules
//! protect it, something is mounted there or flags keep it, what is around it goes piece by piece,
//! as a removal would have it.

use super::Going;
use crate::clock::now;
use crate::sync::run::Run;
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use driftless_model::{Fault, Kind, Meta, RelPath};
use driftless_mover::Trouble;
use driftless_tree::{DirMutRef, Done, Names, Removed, STUCK_MAX, windows};
use std::ffi::{CStr, CString};

/// A directory of which some stays.
struct Frame {
    /// Its path below the directory in which it began.
    below: RelPath,
    dir: DirMutRef,
    windows: Box<dyn Iterator<Item = Done<Names>>>,
    /// Directories of its last window of which some stays, too.
    split: Vec<CString>,
}

/// What is put into the trash from one directory on.
struct Aside<'a, 'r> {
    run: &'a Run<'r>,
    /// The path of the directory in which it began.
    from: &'a RelPath,
    removed: Removed,
}

impl Run<'_> {
    /// Puts the entry `name` of the replica's directory at a path into the trash, but for what is
    /// spared; tells what a removal would.
    pub fn set_aside(&self, (path, dir): (&RelPath, &DirMutRef), name: &CStr) -> Removed {
        let mut aside = Aside {
            run: self,
            from: path,
            removed: Removed::default(),
        };
        let mut frames = Vec::new();
        if aside.meet((&RelPath::root(), dir), name) {
            aside.enter((&RelPath::root(), dir), name, &mut frames);
        }
        while let Some(frame) = frames.last_mut().filter(|_| !self.stopped()) {
            if let Some(name) = frame.split.pop() {
                let (below, dir) = (frame.below.clone(), frame.dir.clone());
                aside.enter((&below, &dir), &name, &mut frames);
            } else if !aside.window(frame) {
                frames.pop();
            }
        }
        aside.removed
    }

    /// Puts an entry that is no directory into the trash, as something of another kind takes its
    /// place.
    pub fn give_way(
        &self,
        (path, dir): (&RelPath, &DirMutRef),
        (name, there): (&CStr, &Meta),
    ) -> Done {
        debug_assert!(there.kind != Kind::Dir, "what is in it has to be counted");
        self.put((path, dir), name)
    }

    fn put(&self, (path, dir): (&RelPath, &DirMutRef), name: &CStr) -> Done {
        let root = self.roots.1.as_ref().expect("what goes is on the replica");
        self.ground
            .trash
            .put(root, Going { path, dir, name }, now())
    }
}

impl Worker<'_> {
    /// Puts what stands at the name into the trash, where something of another kind is about to
    /// take its place: a directory at once, of which all may go as was seen before, and another
    /// entry by a second name, so that it stands where it is until then.
    pub fn set_aside_unlike(
        &self,
        visit: &Visit,
        name: &CStr,
        (there, wanted): (&Meta, &Meta),
    ) -> Result<(), Trouble> {
        let options = self.run.options;
        let is_kept = options.policy.trash && options.applies();
        let Some(replica) = visit
            .replica
            .as_ref()
            .filter(|_| is_kept && there.kind != wanted.kind)
        else {
            return Ok(());
        };
        visit.touch();
        let (path, name) = (visit.path(), visit.renamed.as_deref().unwrap_or(name));
        let root = self.run.roots.1.as_ref().expect("there is a replica");
        let trash = &self.run.ground.trash;
        let going = Going {
            path: &path,
            dir: replica,
            name,
        };
        if there.kind != Kind::Dir && trash.keep(root, going, there, now()).is_ok() {
            return Ok(());
        }
        self.run.put((&path, replica), name).map_err(Trouble::from)
    }
}

impl Aside<'_, '_> {
    /// Puts an entry into the trash if all of it may go; says whether it is a directory of which
    /// some may.
    fn meet(&mut self, (below, dir): (&RelPath, &DirMutRef), name: &CStr) -> bool {
        let path = self.path_of(below);
        let counted = self.run.count_warily((&path, dir), name, u64::MAX);
        if self.run.stopped() {
            self.removed.spares = true;
            return false;
        }
        self.removed.met += counted.met;
        if counted.stays() {
            self.removed.spares |= counted.spares;
            if counted.entries == 0 {
                self.stay(below, counted.stuck);
            }
            return counted.entries > 0;
        }
        match self.run.put((&path, dir), name) {
            Ok(()) => self.removed.entries += counted.entries,
            Err(gone) if gone.is_missing() => {}
            Err(fault) => self.stay(below, vec![(RelPath::root().join(name.to_bytes()), fault)]),
        }
        false
    }

    /// Begins with a directory of which some stays.
    fn enter(
        &mut self,
        (below, dir): (&RelPath, &DirMutRef),
        name: &CStr,
        frames: &mut Vec<Frame>,
    ) {
        let entered = dir.enter_mut(name).and_then(|dir| {
            dir.make_writable();
            let windows = Box::new(windows(&dir)?);
            Ok((dir, windows))
        });
        match entered {
            Ok((dir, windows)) => frames.push(Frame {
                below: below.join(name.to_bytes()),
                dir,
                windows,
                split: Vec::new(),
            }),
            Err(gone) if gone.is_missing() => {}
            Err(fault) => self.stay(below, vec![(RelPath::root().join(name.to_bytes()), fault)]),
        }
    }

    /// Goes through a window of names; false if there is none.
    fn window(&mut self, frame: &mut Frame) -> bool {
        let names = match frame.windows.next() {
            None => return false,
            Some(Ok(names)) => names,
            Some(Err(fault)) => {
                self.stay(&frame.below, vec![(RelPath::root(), fault)]);
                return false;
            }
        };
        for (name, _) in (0..names.len()).map(|index| names.get(index)) {
            if self.meet((&frame.below, &frame.dir), name) {
                frame.split.push(name.into());
            }
        }
        true
    }

    /// Something below a directory stays.
    fn stay(&mut self, below: &RelPath, stuck: Vec<(RelPath, Fault)>) {
        let room = STUCK_MAX.saturating_sub(self.removed.stuck.len());
        let told = stuck.into_iter().take(room);
        let told = told.map(|(path, fault)| (joined(below, &path), fault));
        self.removed.stuck.extend(told);
    }

    fn path_of(&self, below: &RelPath) -> RelPath {
        joined(self.from, below)
    }
}

fn joined(above: &RelPath, below: &RelPath) -> RelPath {
    RelPath::from_names(above.names().chain(below.names()))
}
