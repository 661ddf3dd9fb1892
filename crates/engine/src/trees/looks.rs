//! What a look at an entry proves, and what it does not.

use driftless_model::Meta;
use driftless_tree::Done;

/// What a look found; `None` if it proves that there is nothing. That a look failed proves nothing.
pub fn there(look: Done<Meta>) -> Done<Option<Meta>> {
    match look {
        Ok(meta) => Ok(Some(meta)),
        Err(fault) if fault.is_missing() => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// What a look at the replica says, and that nothing is there only if a second look says so, too.
pub fn believed_twice<T>(look: impl Fn() -> Done<T>) -> Done<T> {
    match look() {
        Err(fault) if fault.is_missing() => look(),
        other => other,
    }
}
