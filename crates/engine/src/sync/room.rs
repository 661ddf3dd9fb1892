//! What stands on the replica where something of another kind shall be: whether it may go, and with
//! how much in it.
//!
//! The same terms hold as for deletes: nothing that rules protect goes, nothing that is mounted, no
//! more than the limit allows, and nothing but an empty directory without `--delete`.

use crate::sync::run::Run;
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::trees::looks::there;
use crate::trees::mounts::UNMOUNTED;
use driftless_model::{Kind, Meta, RelPath, Side, escape};
use driftless_mover::Trouble;
use driftless_tree::{DirMutRef, Removed, Spared, descend, descend_mut};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};

impl Worker<'_> {
    /// How many entries are removed with the directory `there` that stands at the name; trouble if
    /// it has to stay.
    pub fn room(&self, visit: &Visit, name: &CStr, there: &Meta) -> Result<u64, Trouble> {
        let options = self.run.options;
        let is_dir = there.kind == Kind::Dir && !options.compares();
        let Some(replica) = visit.replica.as_ref().filter(|_| is_dir) else {
            return Ok(0);
        };
        let (dir, name) = (visit.path(), visit.renamed.as_deref().unwrap_or(name));
        if self.run.had_mount(&dir.join(name.to_bytes())) {
            return Err(Trouble::Barred(Side::Source, UNMOUNTED));
        }
        // The rules are asked about what is in it by the replica's names.
        let spelt = visit.protected.spelling(name);
        let name = spelt.as_deref().unwrap_or(name);
        let most = if options.policy.delete { u64::MAX } else { 1 };
        let counted = self.run.count_warily((&dir, replica), name, most);
        if self.run.stopped() {
            return Err(Trouble::Stopped);
        }
        let below = counted.entries.saturating_sub(1);
        if !options.policy.delete && counted.met > 1 {
            return in_the_way("a directory that is not empty goes only with --delete");
        }
        self.may_all_go(&dir, &counted)?;
        if !self.run.reserve(below) {
            return in_the_way(
                "something lies in the directory, and --max-delete does not allow all that would go",
            );
        }
        Ok(below)
    }

    /// Whether an entry waits until it is known how much may go with a directory that stands at its
    /// name.
    pub fn waits_for_room(&self, visit: &Visit, name: &CStr, there: &Meta) -> bool {
        let is_due = there.kind == Kind::Dir && !self.run.options.compares();
        is_due && self.run.waits_for_the_whole(|| visit.path_of(name))
    }

    fn may_all_go(&self, dir: &RelPath, counted: &Removed) -> Result<(), Trouble> {
        match counted.stuck.first() {
            Some((_, fault)) if fault.is_cut_off() => Err(Trouble::Failed(*fault)),
            Some((below, fault)) => {
                let path = RelPath::from_names(dir.names().chain(below.names()));
                let why = self
                    .run
                    .frozen(&path, fault)
                    .map_or_else(|| fault.to_string(), str::to_owned);
                in_the_way(&format!(
                    "\"{}\" has to stay: {why}",
                    escape(path.as_bytes())
                ))
            }
            None if counted.spares => in_the_way(SPARED),
            None => Ok(()),
        }
    }

    /// Trouble if an entry that is no directory stands at the name of a new one, and has to stay.
    pub fn spared_for_dir(&self, visit: &Visit, name: &CStr) -> Result<(), Trouble> {
        let options = self.run.options;
        let goes = options.compares()
            || options.policy.delete_excluded
            || self.run.takes(visit, name, false);
        if goes { Ok(()) } else { in_the_way(SPARED) }
    }
}

impl Run<'_> {
    /// How many entries lie in directories at whose names something else waits to be made, and
    /// would go with them.
    pub fn displaced(&self) -> u64 {
        self.with_kept(|paths| {
            let paths: BTreeSet<&RelPath> = paths.iter().collect();
            paths
                .into_iter()
                .map(|path| self.displaced_at(path).unwrap_or(0))
                .sum()
        })
    }

    /// `None` where there is no such directory, or it would have to stay; the thread that makes the
    /// entry says why.
    fn displaced_at(&self, path: &RelPath) -> Option<u64> {
        let (dir, name) = path.split_last()?;
        let name = CString::new(name).ok()?;
        let (source, replica) = (
            descend(&self.roots.0, &dir).ok()?,
            descend_mut(self.roots.1.as_ref()?, &dir).ok()?,
        );
        let is_dir = |meta: Meta| meta.kind == Kind::Dir;
        let from = there(source.look(&name)).ok()??;
        let name = self.renamed.clone().unwrap_or(name);
        let to = there(replica.look(&name)).ok()??;
        if is_dir(from) || !is_dir(to) || self.had_mount(&dir.join(name.to_bytes())) {
            return None;
        }
        let counted = self.count_warily((&dir, &replica), &name, u64::MAX);
        (!counted.stays()).then(|| counted.entries.saturating_sub(1))
    }

    /// Counts what goes from the replica's directory with all at `name`, where all of it goes or
    /// nothing does.
    pub fn count_warily(
        &self,
        (path, replica): (&RelPath, &DirMutRef),
        name: &CStr,
        most: u64,
    ) -> Removed {
        self.with_spared(path, |spared| {
            replica.count_tree(
                name,
                most,
                Spared {
                    is_wary: true,
                    ..spared
                },
            )
        })
    }
}

const SPARED: &str = "the filters protect what stands there, or something in it";

fn in_the_way<T>(why: &str) -> Result<T, Trouble> {
    Err(Trouble::InTheWay(why.into()))
}
