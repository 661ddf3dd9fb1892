//! What stands on the replica where something of another kind shall be: whether it may go, and with how much in it.
//!
//! The same terms hold as for deletes: nothing that rules protect goes, nothing that is mounted, no more than the limit allows, and
//! nothing but an empty directory without `--delete`.

use crate::entries::Met;
use crate::job::DirJob;
use crate::mounts::UNMOUNTED;
use crate::worker::Worker;
use driftless_model::{Kind, Meta, RelPath, Side, escape};
use driftless_mover::Trouble;
use driftless_tree::{Removed, Spared};
use std::ffi::CStr;

impl Worker<'_> {
    /// How many entries go with a directory that stands at the name, `there` being what does; trouble if it has to stay.
    pub fn room(&self, job: &DirJob, name: &CStr, there: &Meta) -> Result<u64, Trouble> {
        let options = self.run.options;
        let is_dir = there.kind == Kind::Dir && !options.report_only;
        let Some(replica) = job.replica.as_ref().filter(|_| is_dir) else { return Ok(0) };
        let (dir, name) = (job.path(), job.renamed.as_deref().unwrap_or(name));
        if self.run.had_mount(&dir.join(name.to_bytes())) {
            return Err(Trouble::Barred(Side::Source, UNMOUNTED));
        }
        // The rules are asked about what is in it by the replica's names.
        let spelt = job.protected.spelling(name);
        let name = spelt.as_deref().unwrap_or(name);
        let most = if options.delete { u64::MAX } else { 1 };
        let is_over = || self.run.stopped();
        let counted = replica.count_tree(name, most, Spared { is_over: Some(&is_over), ..options.spared(&dir) });
        if is_over() {
            return Err(Trouble::Stopped);
        }
        let below = counted.entries.saturating_sub(1);
        if !options.delete && counted.met > 1 {
            return in_the_way("a directory that is not empty goes only with --delete");
        }
        may_all_go(&dir, &counted)?;
        if !self.run.deletes.reserve(below, self.run) {
            return in_the_way("more entries lie in the directory than --max-delete allows");
        }
        Ok(below)
    }

    /// Whether an entry waits until it is known how much may go with a directory that stands at its name. A further name of a file is
    /// made at once: the first would be forgotten.
    pub fn waits_for_room(&self, met: &Met<'_>, there: &Meta) -> bool {
        there.kind == Kind::Dir && met.meta.nlink < 2 && self.run.waits_for_the_whole(|| met.job.path_of(met.name))
    }

    /// Trouble if what stands at the name of a new directory, and is none, has to stay.
    pub fn spared_for_dir(&self, job: &DirJob, name: &CStr) -> Result<(), Trouble> {
        let options = self.run.options;
        let goes = options.report_only || options.delete_excluded || self.run.takes(job, name, false);
        if goes { Ok(()) } else { in_the_way(SPARED) }
    }
}

const SPARED: &str = "the filters protect what stands there, or something in it";

fn in_the_way<T>(why: &str) -> Result<T, Trouble> {
    Err(Trouble::InTheWay(why.into()))
}

fn may_all_go(dir: &RelPath, counted: &Removed) -> Result<(), Trouble> {
    match counted.stuck.first() {
        Some((_, fault)) if fault.is_cut_off() => Err(Trouble::Failed(*fault)),
        Some((below, fault)) => {
            let path = RelPath::from_names(dir.names().chain(below.names()));
            in_the_way(&format!("\"{}\" has to stay: {fault}", escape(path.as_bytes())))
        }
        None if counted.spares => in_the_way(SPARED),
        None => Ok(()),
    }
}
