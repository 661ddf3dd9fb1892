//! A node that answers orders without a cast, one after another.

use crate::coordinator::launch::{ReachedNode, StartedNode, answer};
use crate::message::{CastPeer, NodeMessage, NodeOrder, decode, encode, kind};
use driftless_dataplane::{BundleReceiver, BundleSender, LinkHandle};
use driftless_planner::NodeId;
use std::time::Duration;

/// Fault of a node that breaks the protocol.
pub(crate) const OTHER_ANSWER: &str =
    "the node sent another answer; run the same version on all nodes";
/// Time for the answer to an order, besides the work that it asks for.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(60);

/// A node that answers orders.
pub(crate) struct AskedNode<'a> {
    pub sender: BundleSender,
    pub receiver: BundleReceiver,
    pub handles: Vec<LinkHandle>,
    pub peer: CastPeer,
    pub version: String,
    _child: Option<StartedNode>,
    is_stopped: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> AskedNode<'a> {
    /// Returns a node that is connected.
    pub fn new(
        node: NodeId,
        reached: ReachedNode,
        is_stopped: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        let key = *reached.key.as_bytes();
        AskedNode {
            sender: reached.link.sender,
            receiver: reached.link.receiver,
            handles: reached.link.handles,
            peer: CastPeer {
                node,
                key,
                addresses: reached.addresses,
            },
            version: reached.version,
            _child: reached.child,
            is_stopped,
        }
    }

    /// Sends an order, and waits for the answer, no longer than `limit`. The node sends heartbeats while it
    /// works.
    ///
    /// # Errors
    /// Returns the cause: the connection failed, the limit is over, or the caller stops.
    pub fn ask(&mut self, order: &NodeOrder, limit: Duration) -> Result<NodeMessage, String> {
        let text = |error: driftless_dataplane::Error| error.to_string();
        let sent = self.sender.send_control(kind::ORDER, &[&encode(order)]);
        sent.map_err(text)?;
        match answer(&mut self.receiver, limit, self.is_stopped)? {
            Some(message) => decode(&message.bytes),
            None => Err("the node ended the connection".into()),
        }
    }
}
