//! What keeps other runs from a replica.

use crate::options::Options;
use crate::trees::error::RunError;
use driftless_model::escape;
use driftless_tree::{DirMutRef, Hold, Lock, Reach};
use std::ffi::CStr;
use std::sync::Arc;

/// What keeps other runs from a replica.
#[derive(Default, Clone)]
pub struct Locks {
    pub(super) holds: Vec<Arc<Hold>>,
    /// One of them is seen by other hosts: a run that was killed had left it.
    pub(super) is_everywhere: bool,
}

impl Locks {
    /// These, and those of the name that the root was made at. Bytes that both have locked belong
    /// to the process, so dropping either gives them up; and a lock of a name keeps no run of
    /// another host from the root, so only these say whether it is kept out.
    pub fn beside(mut self, of_name: Locks) -> Locks {
        self.holds.extend(of_name.holds);
        self
    }
}

/// Keeps other runs of this host from a replica, or from its entry `name`, and those of other hosts
/// that are at work already.
///
/// # Errors
/// Another run is at work.
pub fn hold(options: &Options, root: &DirMutRef, name: Option<&CStr>) -> Result<Locks, RunError> {
    let mut locks = Locks::default();
    for reach in [Reach::Host, Reach::Found] {
        let path = || options.replica.to_string();
        match root.lock(name, reach).map_err(|fault| RunError::Unusable {
            path: path(),
            cause: fault.to_string(),
        })? {
            Lock::Held(hold) => {
                locks.holds.push(Arc::new(hold));
                locks.is_everywhere |= reach == Reach::Found;
            }
            Lock::Taken(holder) => {
                return Err(RunError::Locked {
                    path: path(),
                    holder,
                });
            }
            Lock::Left(name) => return Err(left(&path(), &name)),
            Lock::Missing(_) => {}
        }
    }
    Ok(locks)
}

/// Nobody is at work, and there is nothing to wait for.
pub(super) fn left(path: &str, name: &[u8]) -> RunError {
    let name = escape(name);
    let cause = format!(
        "its lock \"{name}\" was left by a run of another user that is over, and may not be removed by this one: remove it"
    );
    RunError::Unusable {
        path: path.to_owned(),
        cause,
    }
}
