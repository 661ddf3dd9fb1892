//! A lock on a directory of the other side, and how the directory of a root is found.

use crate::client::Client;
use crate::client::connection::{nonsense, on};
use crate::wire::{Handle, Reply, Request};
use driftless_model::Side;
use driftless_tree::{Done, Held};
use std::sync::Arc;

/// A lock that is given up when it is dropped.
pub(super) struct FarLock(pub(super) Arc<Client>, pub(super) Side, pub(super) Handle);

impl Held for FarLock {
    fn is_kept(&self) -> Done<bool> {
        match on(
            self.1,
            self.0
                .connection
                .call(&Request::IsKept { at: self.2 }, Vec::new()),
        )? {
            (Reply::Kept(kept), _) => Ok(kept),
            _ => Err(nonsense().on(self.1)),
        }
    }
}

impl Drop for FarLock {
    fn drop(&mut self) {
        self.0.connection.forget(self.2);
    }
}
