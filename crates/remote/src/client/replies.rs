//! What the replies to some requests mean, about directories and files alike.

use crate::client::connection::nonsense;
use crate::wire::Reply;
use driftless_model::{Act, Fault, Side, Xattrs, errno};
use driftless_tree::Done;

/// What could not be set, as the reply to a request to set something says.
pub fn not_set(side: Side, reply: Reply) -> Done<Vec<Fault>> {
    match reply {
        Reply::Done => Ok(Vec::new()),
        Reply::Faults(faults) => Ok(faults.iter().map(|fault| fault.on(side)).collect()),
        _ => Err(nonsense().on(side)),
    }
}

/// Asks for attributes, of which there are mostly few, and once more with room for more of them
/// where that did not suffice.
pub fn long_if_need_be(ask: impl Fn(bool) -> Done<Xattrs>) -> Done<Xattrs> {
    match ask(false) {
        Err(fault) if fault.act == Act::SendReply && fault.errno == errno::E2BIG => ask(true),
        other => other,
    }
}
