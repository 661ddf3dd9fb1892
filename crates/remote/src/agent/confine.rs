//! The agent confines itself to the roots that its client has named, with Landlock (landlock(7)).
//!
//! Handles alone keep every act below a root as long as nobody moves a directory out of it, and as
//! long as this program has no mistake. Landlock holds then, too: the kernel refuses to open, list,
//! make, rename or remove anything that is not below a root, and all TCP. It binds the thread that
//! asks for it and those that it starts later, so it has to come before all others. What is open
//! already stays usable, and attributes are not its affair. A kernel that lacks it, or part of it,
//! does what it can; not so where whoever started the agent has limited its clients: then it serves
//! nobody.

use crate::agent::fence::Fence;
use crate::agent::home::find;
use crate::wire::May;
use crate::wire::Root;
use driftless_model::Side;
use driftless_tree::{DirRef, HandlePool, prepare_holder, prepare_marks};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Arc;

/// What the tests have met of Landlock: Linux 6.15.
const MET: ABI = ABI::V7;

/// Confines this thread, and all that it starts from now on, to the roots that lie within the
/// fence. An error says that the kernel has Landlock and refuses it.
pub fn confine(roots: &[Root], fence: &Fence, pool: &Arc<HandlePool>) -> io::Result<()> {
    let dirs = roots
        .iter()
        .filter_map(|root| Some((directory(root, pool)?, root.side)));
    let dirs: Vec<(DirRef, Side)> = dirs.filter(|(dir, _)| fence.holds(dir)).collect();
    dirs.iter()
        .filter_map(|(dir, _)| dir.as_local())
        .for_each(prepare_marks);
    let replicas = dirs.iter().filter(|(_, side)| *side == Side::Replica);
    replicas
        .filter_map(|(dir, _)| dir.as_local())
        .for_each(prepare_holder);
    let may = fence.limits().may;
    let below = dirs
        .iter()
        .filter_map(|(dir, side)| Some((open(dir)?, allowed(*side, may))))
        .collect();
    restrict(below, false)
        .map_err(|error| io::Error::other(format!("cannot confine itself to its roots: {error}")))
}

/// Confines it to the directories of the fence, before anything of the client's is looked at.
/// `needed` makes it an error if the kernel cannot.
pub fn confine_within(fence: &Fence, needed: bool) -> io::Result<()> {
    let rights = allowed(Side::Replica, fence.limits().may);
    let below = fence
        .directories()
        .filter_map(|dir| Some((open(dir)?, rights)))
        .collect();
    restrict(below, needed)
        .map_err(|error| io::Error::other(format!("cannot be held to its limits: {error}")))
}

/// Whether this kernel can hold an agent to a place: nothing is to be linked or renamed out of it
/// either (Linux 5.19).
pub fn can_hold() -> bool {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::Refer)
        .and_then(Ruleset::create)
        .is_ok()
}

/// The directory that a root is, or that holds it: a single file is replaced by a rename, and has
/// its lock beside it. There is none where a root cannot be used; the client hears why when it asks
/// for it.
fn directory(root: &Root, pool: &Arc<HandlePool>) -> Option<DirRef> {
    Some(find((&root.path, root.side), pool).ok()?.dir().reader())
}

fn open(dir: &DirRef) -> Option<Arc<OwnedFd>> {
    dir.as_local()?.fd().ok()
}

fn restrict(
    open: Vec<(Arc<OwnedFd>, BitFlags<AccessFs>)>,
    needed: bool,
) -> Result<(), RulesetError> {
    // Landlock's first version lets nothing be linked across directories: better none at all then.
    let level = if needed {
        CompatLevel::HardRequirement
    } else {
        CompatLevel::SoftRequirement
    };
    let rules = Ruleset::default()
        .set_compatibility(level)
        .handle_access(AccessFs::Refer)?;
    let rules = rules
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(MET))?;
    // No TCP at all, no word to sockets and no signal to processes outside.
    let rules = rules
        .handle_access(AccessNet::from_all(MET))?
        .scope(Scope::from_all(MET))?
        .create()?;
    let below = open
        .iter()
        .map(|(dir, rights)| Ok::<_, RulesetError>(PathBeneath::new(dir, *rights)));
    rules.add_rules(below)?.restrict_self()?;
    Ok(())
}

/// A source is read, and so is all that may only be read. In a replica everything else is done but
/// running programs and talking to devices.
fn allowed(side: Side, may: May) -> BitFlags<AccessFs> {
    match (side, may) {
        (Side::Source, _) | (_, May::Read) => AccessFs::ReadFile | AccessFs::ReadDir,
        (Side::Replica, May::Everything | May::Keep) => {
            AccessFs::from_all(MET) & !(AccessFs::Execute | AccessFs::IoctlDev)
        }
    }
}
