//! Carries out one record of the plan of deletes: names of one directory are removed from the
//! replica, each after one more look on both sides.

use crate::sync::entry::Intent;
use crate::sync::stored::{Kept, Stored, stored_otherwise};
use crate::sync::worker::Worker;
use crate::tally::add;
use crate::trees::looks::{believed_twice, there};
use driftless_model::{Act, Action, Class, Kind, Meta, Problem, RelPath, Side, What};
use driftless_tree::{Attributes, DirMutRef, DirRef, Done, Known, descend, descend_mut};
use std::ffi::{CStr, CString};

/// What a second look says of a name that is to be removed from the replica.
enum Standing {
    /// The replica has it no more.
    Gone,
    /// The replica alone has it.
    Extra(Meta),
    /// The source has it, too.
    There,
}

impl Worker<'_> {
    /// Removes names from the replica's directory at `path`, if the source still lacks them, and
    /// mends its times and its mode, which may have to let the user in.
    pub fn delete(&mut self, path: &RelPath, names: &[CString]) {
        let Some((source, replica)) = self.open_both(path) else {
            return;
        };
        // A network file system remembers names that are not there as long as it takes the
        // directory to be what it was.
        if let Err(fault) = source.meta_again() {
            return self.run.problem(path.clone(), fault, Class::Skip);
        }
        let stored = match stored_otherwise(self.run, (path, names), (&source, &replica)) {
            Ok(stored) => stored,
            Err(fault) => return self.run.problem(path.clone(), fault, Class::Skip),
        };
        let copying_up = self.run.ground.copying_up.clone();
        let _one_at_a_time = copying_up.as_ref().map(|copying_up| copying_up.lock());
        let before = replica.meta();
        if self.run.options.applies() {
            replica.make_writable();
        }
        for name in names {
            if self.run.stopped() {
                return;
            }
            self.run.pace_request();
            self.delete_one((path, name), (&source, &replica), &stored);
        }
        if !self.run.options.applies() {
            return;
        }
        if let (Ok(meta), Ok(before), Ok(there)) = (source.meta(), before, replica.meta()) {
            let keep = &self.run.options.policy.keep;
            let attributes = Attributes {
                mode: Some(before.mode),
                mtime: keep.times.then_some(meta.mtime),
                atime: keep.atimes.then_some(meta.atime),
                ..Attributes::default()
            };
            let faults = replica.set_own(&Known::of(&there), &attributes);
            // What this user may not set was told when the directory was finished.
            let new = faults.into_iter().filter(|fault| !fault.is_denied());
            new.for_each(|fault| self.run.problem(path.clone(), fault, Class::Partly));
        }
    }

    /// Opens, on both sides, the directory from which names are removed. The run has listed it, so
    /// only a second look that misses it is believed. Where the replica lacks it now, there is
    /// nothing to remove; where the source lacks it now, the end of the run sees whether the
    /// replica still has it.
    fn open_both(&self, path: &RelPath) -> Option<(DirRef, DirMutRef)> {
        let (source, replica) = &self.run.roots;
        let open = || descend_mut(replica.as_ref().expect("deletes need a replica"), path);
        match believed_twice(open).and_then(|replica| Ok((descend(source, path)?, replica))) {
            Ok(both) => return Some(both),
            Err(fault) if !fault.is_absent() => self.run.problem(path.clone(), fault, Class::Skip),
            Err(fault)
                if fault.side == Side::Replica || self.run.deletes.left_by_source(path, fault) => {}
            Err(fault) => self.run.problem(path.clone(), fault, Class::Changing),
        }
        None
    }

    /// Removes an entry of the replica, unless it is `stored` there under another name that stays.
    fn delete_one(
        &mut self,
        (path, name): (&RelPath, &CStr),
        dirs: (&DirRef, &DirMutRef),
        stored: &Stored,
    ) {
        match self.still_extra(path, name, dirs) {
            Ok(Standing::Extra(meta)) => match stored.keeps(name, &meta) {
                Kept::Stays => {}
                Kept::Untold => self.report_untold(path.join(name.to_bytes())),
                Kept::Not => self.remove_extra(path, name, dirs.1, &meta),
            },
            Ok(Standing::Gone) => {}
            Ok(Standing::There) => self.report_unlisted(path.join(name.to_bytes())),
            Err(fault) => self
                .run
                .problem(path.join(name.to_bytes()), fault, Class::Skip),
        }
    }

    /// Looks once more on both sides at a name that is to be removed. The source is not asked about
    /// excluded entries, which are removed whatever it has. The replica has listed the name, so
    /// only a second look that misses it is believed: another program removed it then, and this run
    /// is the only one to tell.
    fn still_extra(
        &self,
        path: &RelPath,
        name: &CStr,
        (source, replica): (&DirRef, &DirMutRef),
    ) -> Done<Standing> {
        let Some(meta) = there(believed_twice(|| replica.look(name)))? else {
            return Ok(Standing::Gone);
        };
        let (filter, options) = (&self.run.options.policy.filter, self.run.options);
        let excluded = options.policy.delete_excluded
            && !filter.takes(
                path.join(name.to_bytes()).as_bytes(),
                meta.kind == Kind::Dir,
            );
        let lacks = excluded || there(source.look(name))?.is_none();
        if lacks && !excluded {
            self.run.prove_source()?;
        }
        Ok(if lacks {
            Standing::Extra(meta)
        } else {
            Standing::There
        })
    }

    /// Says that a name may be one of the source's that the replica stores otherwise, or a further
    /// one of the same file.
    fn report_untold(&self, path: RelPath) {
        let cause =
            "another name of the source leads to the same file, and a listing shows one alone"
                .into();
        self.run.report(&Problem {
            path,
            side: Side::Replica,
            act: Act::TellApart,
            cause,
            class: Class::Skip,
        });
    }

    /// Says that the source has a name that no listing had: it came back, or the listing missed it.
    /// It was not compared.
    fn report_unlisted(&self, path: RelPath) {
        let (act, cause) = (Act::Compare, "it is there, and was not listed".into());
        self.run.report(&Problem {
            path,
            side: Side::Source,
            act,
            cause,
            class: Class::Changing,
        });
    }

    fn remove_extra(&mut self, path: &RelPath, name: &CStr, replica: &DirMutRef, meta: &Meta) {
        let place = || path.join(name.to_bytes());
        let dry = !self.run.options.applies();
        let removed = match dry || !self.run.options.policy.trash {
            true => self.run.with_spared(path, |spared| match dry {
                true => replica.count_tree(name, u64::MAX, spared),
                false => replica.remove_tree(name, spared),
            }),
            false => self.run.set_aside((path, replica), name),
        };
        add(&self.run.tally.deleted, removed.entries);
        self.run.report_stuck(path, removed.stuck);
        // Where everything in a directory is spared, nothing was removed.
        if removed.entries > 0 {
            self.run.receipt(
                place,
                Intent {
                    size: 0,
                    ..Intent::new(Action::Delete, What::default(), meta)
                },
            );
        }
    }
}
