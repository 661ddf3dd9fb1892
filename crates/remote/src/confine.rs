//! The agent confines itself to the roots that its client has named, with Landlock (landlock(7)).
//!
//! Handles alone keep every act below a root as long as nobody moves a directory out of it, and as long as this program has no
//! mistake. Landlock holds then, too: the kernel refuses to open, list, make, rename or remove anything that is not below a root,
//! and all TCP. It binds the thread that asks for it and those that it starts later, so it has to come before all others. What is
//! open already stays usable, and attributes are not its affair. A kernel that lacks it, or part of it, does what it can.

use crate::wire::Root;
use driftless_model::Side;
use driftless_tree::{DirRef, HandlePool, Place, locate, prepare_marks};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, Scope,
};
use rustix::fd::OwnedFd;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// What the tests have met of Landlock: Linux 6.15.
const MET: ABI = ABI::V7;

/// Confines this thread, and all that it starts from now on, to the roots. An error says that the kernel has Landlock and refuses it.
pub fn confine(roots: &[Root], pool: &Arc<HandlePool>) -> io::Result<()> {
    let dirs: Vec<(DirRef, Side)> = roots.iter().filter_map(|root| Some((directory(root, pool)?, root.side))).collect();
    dirs.iter().filter_map(|(dir, _)| dir.as_local()).for_each(prepare_marks);
    let open: Vec<(Arc<OwnedFd>, Side)> = dirs.iter().filter_map(|(dir, side)| Some((dir.as_local()?.fd().ok()?, *side))).collect();
    restrict(&open).map_err(|error| io::Error::other(format!("cannot confine itself to its roots: {error}")))
}

/// The directory that a root is, or that holds it: a single file is replaced by a rename, and has its lock beside it. There is none
/// where a root cannot be used; the client hears why when it asks for it.
fn directory(root: &Root, pool: &Arc<HandlePool>) -> Option<DirRef> {
    let (Place::Dir(dir) | Place::Entry { parent: dir, .. } | Place::Missing { parent: dir, .. }): Place =
        locate(Path::new(OsStr::from_bytes(&root.path)), root.side, pool).ok()?;
    Some(dir)
}

fn restrict(open: &[(Arc<OwnedFd>, Side)]) -> Result<(), RulesetError> {
    // Landlock's first version lets nothing be linked across directories: better none at all then.
    let rules = Ruleset::default().set_compatibility(CompatLevel::SoftRequirement).handle_access(AccessFs::Refer)?;
    let rules = rules.set_compatibility(CompatLevel::BestEffort).handle_access(AccessFs::from_all(MET))?;
    // No TCP at all, no word to sockets and no signal to processes outside.
    let rules = rules.handle_access(AccessNet::from_all(MET))?.scope(Scope::from_all(MET))?.create()?;
    let below = open.iter().map(|(dir, side)| Ok::<_, RulesetError>(PathBeneath::new(dir, allowed(*side))));
    rules.add_rules(below)?.restrict_self()?;
    Ok(())
}

/// A source is read. In a replica everything is done but running programs and talking to devices.
fn allowed(side: Side) -> BitFlags<AccessFs> {
    match side {
        Side::Source => AccessFs::ReadFile | AccessFs::ReadDir,
        Side::Replica => AccessFs::from_all(MET) & !(AccessFs::Execute | AccessFs::IoctlDev),
    }
}
