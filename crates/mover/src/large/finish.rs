//! The end of a large file: it takes its place, it is left for the next run, or it is discarded.

use super::Large;
use crate::mover::{Made, Mover};
use crate::new_attributes::new_attributes;
use crate::spot::{Moved, Spot, Trouble};
use driftless_model::{Act, Fault, Kind, Side, errno};
use driftless_reconcile::lends_rights;
use driftless_tree::{Attributes, Dir, DirMut, Known};

impl Large {
    /// Looks again at the source, sets attributes and gives the file its name. Call once, when all
    /// ranges are through.
    pub fn finish(&self, mover: &Mover, spot: &Spot) -> Made {
        let done = self.try_finish(mover, spot);
        match done {
            Ok(_) | Err(Trouble::Stopped) => {}
            // What was copied is as good as ever: it is gone on with when the other host is there
            // again.
            Err(ref trouble) if trouble.is_cut_off() => drop(self.suspend(mover, spot)),
            Err(_) => self.discard(spot),
        }
        done
    }

    /// Ends early, so that the next run can go on.
    pub fn suspend(&self, mover: &Mover, spot: &Spot) -> Trouble {
        if !self.gives_way(mover, spot) {
            let _or_the_older_note_counts = self.checkpoint();
        }
        Trouble::Stopped
    }

    /// Whether another mover has finished the copy; then what was written here since is made to
    /// leave no trace.
    pub fn gives_way(&self, mover: &Mover, spot: &Spot) -> bool {
        let gives_way = self.was_finished_by_another(spot);
        if gives_way {
            self.hide_traces(mover);
        }
        gives_way
    }

    /// Whether the copy does not have its temporary name any more: another mover, which took over,
    /// has finished it.
    fn was_finished_by_another(&self, spot: &Spot) -> bool {
        let id = self.replica.meta().map(|meta| meta.id());
        match spot.replica.look(&self.temp) {
            Ok(there) => id.is_ok_and(|id| there.id() != id),
            Err(fault) => fault.is_missing(),
        }
    }

    /// What was written last was there already, but for the time of the writing and a note of
    /// progress.
    fn hide_traces(&self, mover: &Mover) {
        if !self
            .opened
            .file
            .meta_again()
            .is_ok_and(|now| self.opened.meta.unchanged(&now))
        {
            return;
        }
        let _as_well_as_it_can_be_done = self.replica.settle();
        let _nor_this = self.replica.save_progress(None);
        let keep = &mover.terms.rules.keep;
        let Ok(xattrs) = self.opened.file.xattrs(keep) else {
            return;
        };
        let attributes = Attributes {
            xattrs: None,
            ..Attributes::of(&self.opened.wanted(keep), xattrs, keep)
        };
        let _nor_that = self.replica.set(&Known::default(), &attributes);
    }

    fn try_finish(&self, mover: &Mover, spot: &Spot) -> Made {
        if let Some(trouble) = self.trouble.lock().clone() {
            return Err(self.opened.cause_of(trouble));
        }
        if (mover.stopped)() && !self.missing().is_empty() {
            return Err(self.suspend(mover, spot));
        }
        let keep = mover.terms.rules.keep;
        let xattrs = self.opened.file.xattrs(&keep)?;
        if !self.opened.meta.unchanged(&self.opened.file.meta_again()?) {
            return Err(Trouble::Changing);
        }
        self.replica.settle()?;
        if mover.terms.sync_large {
            self.flush(&mut self.flushing.lock())?;
        }
        self.replica.save_progress(None)?;
        let hidden = !spot.private && lends_rights(&self.opened.meta, &xattrs, &keep);
        let unkept = self.opened.meta.unkept | xattrs.unkept;
        let source = Some(self.opened.entry(&xattrs));
        let attributes = new_attributes(
            spot,
            &self.opened.wanted(&keep),
            xattrs,
            &mover.terms.rules.keep,
        );
        if let Some(nest) = if hidden {
            spot.replica.nest(true)?
        } else {
            None
        } {
            return self
                .finish_out_of_sight(mover, &*nest, spot, &attributes)
                .map(|moved| Moved {
                    unkept,
                    source,
                    ..moved
                });
        }
        let (faults, id) = self.dress(spot.replica, spot, &attributes)?;
        spot.replica.confirm()?;
        mover.publish(spot, Some(&self.temp))?;
        // Its bytes were counted as they were copied.
        Ok(Moved {
            faults,
            id: Some(id),
            young: self.opened.young,
            unkept,
            source,
            ..Moved::default()
        })
    }

    /// So far nobody but this user may open the copy. It is moved to where nobody can find it
    /// before it belongs to somebody else, who could write to it before it has the rights that go
    /// with its content.
    fn finish_out_of_sight(
        &self,
        mover: &Mover,
        nest: &dyn DirMut,
        spot: &Spot,
        attributes: &Attributes,
    ) -> Made {
        nest.take(spot.replica, &self.temp, &self.temp)?;
        // By another name it could be found.
        let alone = nest
            .look(&self.temp)
            .map_err(Trouble::from)
            .and_then(|there| {
                if there.nlink == 1 {
                    Ok(())
                } else {
                    Err(stale())
                }
            });
        let dressed = alone
            .and_then(|()| self.keeps_name(nest))
            .and_then(|_| self.dress(nest, spot, attributes));
        if dressed.is_err() {
            let _the_first_error_counts = nest.remove(&self.temp);
        }
        let (faults, id) = dressed?;
        spot.replica.confirm()?;
        mover.emerge(nest, &self.temp, spot)?;
        Ok(Moved {
            faults,
            id: Some(id),
            young: self.opened.young,
            ..Moved::default()
        })
    }

    /// Gives the copy in `dir` its attributes. Returns what could not be set, and its inode.
    fn dress(
        &self,
        dir: &dyn Dir,
        spot: &Spot,
        attributes: &Attributes,
    ) -> Result<(Vec<Fault>, (u64, u64)), Trouble> {
        let known = Known {
            clean: false,
            ..spot.newborn(Kind::File, 0o600)
        };
        let faults = self.replica.set(&known, attributes);
        self.replica.flush()?;
        Ok((faults, self.keeps_name(dir)?))
    }

    /// Which inode the copy is, if that is what stands at the temporary name in `dir`. Anybody can
    /// find out that name, and whoever may rename there can put a file of his own in its place.
    fn keeps_name(&self, dir: &dyn Dir) -> Result<(u64, u64), Trouble> {
        let id = self.replica.meta()?.id();
        if dir.look(&self.temp)?.id() == id {
            Ok(id)
        } else {
            Err(stale())
        }
    }

    pub(super) fn discard(&self, spot: &Spot) {
        let _the_next_run_removes_it = spot.replica.remove(&self.temp);
    }
}

/// Something else stands at the temporary name.
fn stale() -> Trouble {
    Fault {
        side: Side::Replica,
        act: Act::HoldUnfinished,
        errno: errno::ESTALE,
    }
    .into()
}
