//! The queues of a job on RabbitMQ (AMQP 0.9.1; 3.10 and later), and exchanges by which everybody
//! hears what concerns him, behind calls that block and always with a limit.
//!
//! It stands here so that nothing else of driftless is asynchronous or knows the broker. Messages
//! are opaque bytes. What is promised is at least once: what was accepted is sent until the broker
//! has confirmed it, what was delivered comes again until it is acknowledged, and what nobody can
//! work off is parked, not dropped. So receivers must bear a message twice.
//!
//! The client's own recovery is off. When anything is wrong with a connection it is thrown away and
//! made anew, with all that stood on it (`link.rs`).

mod again;
mod backoff;
mod broker;
mod confirms;
mod consumer;
mod control;
mod credentials;
mod deadline;
mod declare;
mod delivery;
mod error;
mod headers;
mod job;
mod link;
mod publisher;
mod runtime;
mod seat;
mod session;
mod topic_consumer;
mod topic_publisher;
mod topology;
mod url;
mod window;

pub use broker::Broker;
pub use consumer::Consumer;
pub use control::{Control, Count, LISTED_MAX, Parked};
pub use credentials::Credentials;
pub use delivery::Delivery;
pub use error::Error;
pub use job::Job;
pub use link::Blocked;
pub use publisher::Publisher;
pub use seat::Seat;
pub use topic_consumer::{Acknowledger, TopicConsumer, TopicDelivery};
pub use topic_publisher::{TopicMessage, TopicPublisher};
pub use topology::{Exchange, Passing, Subscription};
pub use url::Url;

/// Longest message, in bytes; far below the broker's own limit, 16 MiB in RabbitMQ 4.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
