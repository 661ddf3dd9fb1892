//! What can go wrong with a queue.

use std::path::PathBuf;

/// A call failed; nothing that was accepted is lost by it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL makes no sense. It is not repeated: it may hold a secret in the wrong place.
    #[error("the queue's URL is not of the form amqp://USER@HOST[:PORT]/VHOST: {why}")]
    Url {
        /// What is wrong with it.
        why: &'static str,
    },
    /// The URL has a password in it.
    #[error(
        "the queue's URL has a password in it, where ps shows it to everybody: give it with --queue-credentials FILE or in DRIFTLESS_QUEUE_PASSWORD"
    )]
    PasswordInUrl,
    /// There is no password.
    #[error(
        "there is no password for the broker: give it with --queue-credentials FILE or in DRIFTLESS_QUEUE_PASSWORD"
    )]
    NoPassword,
    /// The file of credentials cannot be trusted or read.
    #[error("{}: credentials refused: {why}", path.display())]
    Credentials {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A name of a job or class is not allowed.
    #[error("\"{name}\": {why}")]
    Name {
        /// The name, escaped.
        name: String,
        /// The rule.
        why: &'static str,
    },
    /// There was no connection for as long as the caller wanted to wait.
    #[error("{broker}: cannot reach the broker for {seconds} s: {why}")]
    Unreachable {
        /// The broker's URL.
        broker: String,
        /// How long it was tried, in seconds.
        seconds: u64,
        /// What the last try ended with.
        why: String,
    },
    /// The broker answered and does not let us in: user, password, vhost or certificate.
    #[error("{broker}: the broker refuses: {why}")]
    Refused {
        /// The broker's URL.
        broker: String,
        /// Its words.
        why: String,
    },
    /// A queue cannot be declared or is not as it must be.
    #[error("{queue}: cannot be used: {why}")]
    Queue {
        /// The queue.
        queue: String,
        /// The broker's words.
        why: String,
    },
    /// A call on a connection that stood failed, or took too long; it can be made again.
    #[error("{broker}: the connection was lost: {why}")]
    Lost {
        /// The broker's URL.
        broker: String,
        /// What happened.
        why: String,
    },
    /// A message came back because there is no such queue; it is kept, and sent again with the next
    /// call.
    #[error("{queue}: the message came back: there is no such queue (was the job deleted?)")]
    Unroutable {
        /// Where it was to go.
        queue: String,
    },
    /// The broker would not take a message; it is kept, and sent again with the next call.
    #[error("{queue}: the broker did not take the message")]
    Nacked {
        /// Where it was to go.
        queue: String,
    },
    /// The broker takes no messages because it is short of memory or disk space.
    #[error("{broker}: the broker has taken no messages for {seconds} s: {why}")]
    Blocked {
        /// The broker's URL.
        broker: String,
        /// Since when, in seconds.
        seconds: u64,
        /// Its reason.
        why: String,
    },
    /// Messages were not confirmed in time; they are kept, and sent again with the next call.
    #[error("{broker}: messages were not confirmed within {seconds} s")]
    Unconfirmed {
        /// The broker's URL.
        broker: String,
        /// How long was waited, in seconds.
        seconds: u64,
    },
    /// A message is longer than [`crate::MESSAGE_BYTES_MAX`].
    #[error("a message of {bytes} bytes is longer than 1 MiB")]
    TooLarge {
        /// Its length in bytes.
        bytes: usize,
    },
    /// Another one coordinates the job.
    #[error(
        "another run coordinates the job \"{job}\": {who}; wait for it to end, or name another job"
    )]
    Taken {
        /// The job.
        job: String,
        /// Who it is, in its own words.
        who: String,
    },
    /// The connection that this message came by is gone; the message will come again, to this
    /// consumer or another.
    #[error("the connection that the message came by is gone; it will come again")]
    Stale,
}
