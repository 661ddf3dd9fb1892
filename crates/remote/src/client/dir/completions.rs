//! What follows from the replies to what was submitted.

use super::Inner;
use crate::client::connection::{nonsense, on};
use crate::client::replies::not_set;
use crate::wire::{Reply, WireFault, whole};
use driftless_model::{Meta, Side};
use driftless_tree::{Completion, Done};

pub(super) type Replied = Result<(Reply, Vec<u8>), WireFault>;

// The directory is kept until the reply is here, or the agent would let go of it.

pub(super) fn made(_kept: &Inner, side: Side, reply: Replied) -> Completion {
    match on(side, reply) {
        Ok((Reply::Mismatch, _)) => Completion::Mismatch,
        Ok((Reply::Removed(told), _)) => Completion::Stuck(told.on(side)),
        Ok((Reply::Lost(fault), _)) => Completion::Lost(fault.on(side)),
        other => Completion::Made(other.and_then(|(reply, _)| not_set(side, reply))),
    }
}

pub(super) fn fetched(_kept: &Inner, side: Side, reply: Replied) -> Completion {
    Completion::Fetched(match on(side, reply) {
        Ok((Reply::Whole(None), _)) => Ok(None),
        Ok((Reply::Whole(Some((entry, extents))), data)) => whole(entry, extents, data)
            .map(Some)
            .ok_or_else(|| nonsense().on(side)),
        Ok(_) => Err(nonsense().on(side)),
        Err(fault) => Err(fault),
    })
}

pub(super) fn looked(kept: &Inner, side: Side, reply: Replied) -> Done<Meta> {
    match on(side, reply)? {
        (Reply::Meta(meta), _) => {
            kept.looked(&meta);
            Ok(meta)
        }
        _ => Err(nonsense().on(side)),
    }
}

pub(super) fn own_set(_kept: &Inner, side: Side, reply: Replied) -> Completion {
    Completion::OwnSet(
        on(side, reply)
            .and_then(|(reply, _)| not_set(side, reply))
            .unwrap_or_else(|fault| vec![fault]),
    )
}
