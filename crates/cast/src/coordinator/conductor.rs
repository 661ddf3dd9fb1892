//! The coordinator's side of a node: connects, connects again, and carries messages both ways.

use crate::coordinator::launch::{Launcher, NodeFault, ReachedNode};
use crate::message::{NodeMessage, NodeOrder, decode, encode, kind};
use crate::settings::CastNode;
use crossbeam_channel::{Receiver, Sender, unbounded};
use driftless_dataplane::{BundleEvent, BundleReceiver, BundleSender, BundleWait, PeerKey};
use driftless_planner::NodeId;
use driftless_store::Catalogue;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Pause after the first failed attempt. Each one doubles it, up to the longest.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Longest wait before the end of the cast is looked at.
const TICK: Duration = Duration::from_millis(50);
/// The same while nodes are silent: shorter, the threads of a thousand nodes would wake all the time.
const SILENT_TICK: Duration = Duration::from_millis(500);

/// Message to the loop of the coordinator.
pub(crate) enum NodeInput {
    /// A node is connected. The number counts its connections.
    Connected {
        node: NodeId,
        generation: u64,
        key: PeerKey,
        addresses: Vec<SocketAddr>,
        orders: Sender<ToNode>,
    },
    /// Attempt to connect that failed. There is no other one after a final cause.
    Unreachable {
        node: NodeId,
        cause: String,
        is_final: bool,
    },
    /// Message of a node.
    Message {
        node: NodeId,
        generation: u64,
        message: NodeMessage,
    },
    /// The connection ended.
    Lost {
        node: NodeId,
        generation: u64,
        cause: String,
    },
}

/// Message for the thread that sends to a node.
pub(crate) enum ToNode {
    Order(NodeOrder),
    /// Parts of the catalogue, without the last.
    Parts(Vec<(u32, u32)>),
}

/// State that the conductors share.
pub(crate) struct ConductorContext<'a> {
    pub launcher: Launcher<'a>,
    pub catalogue: Arc<Catalogue>,
    pub inputs: Sender<NodeInput>,
    /// Set when the cast is over.
    pub is_over: &'a AtomicBool,
}

/// Keeps a node connected until the cast is over, or `is_done` says that the node has its outcome.
pub(crate) fn conduct(
    context: &ConductorContext<'_>,
    node: NodeId,
    settings: &CastNode,
    is_done: &AtomicBool,
) {
    let (mut generation, mut pause) = (0_u64, PAUSE);
    while !context.is_over.load(Relaxed) && !is_done.load(Relaxed) {
        match context.launcher.reach(settings) {
            Ok(reached) => {
                generation = generation.saturating_add(1);
                serve(context, (node, generation), reached);
                pause = PAUSE;
            }
            Err(NodeFault { cause, is_final }) => {
                // A node that was connected has the program.
                let is_final = is_final && generation == 0;
                let unreachable = NodeInput::Unreachable {
                    node,
                    cause,
                    is_final,
                };
                let _the_cast_is_over = context.inputs.send(unreachable);
                if is_final {
                    return;
                }
            }
        }
        let begin = Instant::now();
        while begin.elapsed() < pause && !context.is_over.load(Relaxed) {
            std::thread::sleep(TICK);
        }
        pause = pause.saturating_mul(2).min(PAUSE_MAX);
    }
}

/// Carries messages until the connection ends.
fn serve(context: &ConductorContext<'_>, (node, generation): (NodeId, u64), reached: ReachedNode) {
    let (orders, to_send) = unbounded();
    let link = reached.link;
    let connected = NodeInput::Connected {
        node,
        generation,
        key: reached.key,
        addresses: reached.addresses,
        orders,
    };
    if context.inputs.send(connected).is_err() {
        return;
    }
    let (sender, receiver, handles) = (link.sender, link.receiver, link.handles);
    let cause = std::thread::scope(|scope| {
        let sending = std::thread::Builder::new().name("orders".into());
        let send = || send_all(sender, &to_send, &context.catalogue);
        let Ok(sending) = sending.spawn_scoped(scope, send) else {
            return "the kernel refuses a thread; raise the limits".to_owned();
        };
        let cause = receive_all(context, (node, generation), receiver);
        for handle in handles {
            handle.abort("the other direction has ended");
        }
        // The loop drops the channel of orders then, which ends the thread that sends.
        let lost = NodeInput::Lost {
            node,
            generation,
            cause: cause.clone(),
        };
        let _the_cast_is_over = context.inputs.send(lost);
        let _panic_was_printed = sending.join();
        cause
    });
    tracing::debug!("{node}: {cause}");
    drop(reached.child);
}

fn receive_all(
    context: &ConductorContext<'_>,
    (node, generation): (NodeId, u64),
    mut receiver: BundleReceiver,
) -> String {
    let mut is_ready = false;
    // A node that neither closes nor dies does not prolong a cast that is over.
    while !context.is_over.load(Relaxed) {
        let message = match receiver.recv_within(SILENT_TICK) {
            Ok(BundleWait::Timeout) => continue,
            Ok(BundleWait::Event(BundleEvent::Control(message))) if message.kind == kind::NODE => {
                message
            }
            Ok(BundleWait::Event(_)) => return "the node sent a message of an unknown kind".into(),
            Ok(BundleWait::End) => return "the node ended the connection".into(),
            Err(error) => return error.to_string(),
        };
        let message = match decode::<NodeMessage>(&message.bytes) {
            Ok(message) => message,
            Err(cause) => return cause,
        };
        let says_ready = matches!(message, NodeMessage::Ready { .. });
        if says_ready && std::mem::replace(&mut is_ready, true) {
            return "the node sent twice that it is ready".into();
        }
        let input = NodeInput::Message {
            node,
            generation,
            message,
        };
        if context.inputs.send(input).is_err() {
            break;
        }
    }
    "the cast is over".into()
}

/// Sends orders until the channel closes or the connection fails.
fn send_all(sender: BundleSender, to_send: &Receiver<ToNode>, catalogue: &Catalogue) {
    for message in to_send {
        let sent = match message {
            ToNode::Order(order) => sender
                .send_control(kind::ORDER, &[&encode(&order)])
                .map_err(|error| error.to_string()),
            ToNode::Parts(parts) => send_parts(&sender, &parts, catalogue),
        };
        if sent.is_err() {
            break;
        }
    }
    let _the_node_may_be_gone = sender.finish();
}

fn send_parts(
    sender: &BundleSender,
    parts: &[(u32, u32)],
    catalogue: &Catalogue,
) -> Result<(), String> {
    for (first, end) in parts {
        for number in *first..(*end).min(catalogue.parts()) {
            let part = catalogue.part(number).map_err(|error| error.to_string())?;
            let sent = sender.send_control(kind::PART, &[&number.to_le_bytes(), &part]);
            sent.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}
