//! Claims to unfinished copies: one process at a time receives a copy.

use crate::error::Result;
use crate::node::NodeFiles;
use crate::staging::failed_at;
use driftless_state::holdings::CopyRow;
use driftless_tree::{DirMutRef, Hold, Lock, Reach};
use std::sync::Arc;

/// The claim of this process to an unfinished copy.
pub(crate) struct CopyClaim {
    files: Arc<NodeFiles>,
    copy: u64,
    _lock: Option<Hold>,
}

impl Drop for CopyClaim {
    fn drop(&mut self) {
        self.files.receiving.lock().remove(&self.copy);
    }
}

/// Claims an unfinished copy for this process. Returns `None` if another receiver has it.
pub(crate) fn claim(
    files: &Arc<NodeFiles>,
    row: &CopyRow,
    staging: Option<&DirMutRef>,
) -> Result<Option<CopyClaim>> {
    if !files.receiving.lock().insert(row.id) {
        return Ok(None);
    }
    let mut claim = CopyClaim {
        files: files.clone(),
        copy: row.id,
        _lock: None,
    };
    if let Some(staging) = staging {
        let locked = staging.lock(None, Reach::Host);
        match locked.map_err(failed_at(&row.place, c"."))? {
            Lock::Held(hold) => claim._lock = Some(hold),
            Lock::Taken(_) => return Ok(None),
            Lock::Left(_) | Lock::Missing(_) => {}
        }
    }
    Ok(Some(claim))
}
