//! Messages of MetPX-Sarracenia (`sr3`), by which changes are announced through a broker.
//!
//! All of it is pure: bytes become values and values bytes, and a moment is handed in. A message is
//! never more than a hint that a path may differ; [`changes_of`] makes it one, and [`announce`]
//! says in a message what has become of an entry. [`import`](mod@import) makes a job of a
//! configuration of `sr3`.
//!
//! The format is described in the manual page sr3_post(7) of MetPX-Sarracenia; `docs/sarracenia.md`
//! says what of it is sent and understood.

mod announce;
mod base;
mod body;
mod changes;
mod fields;
pub mod import;
mod message;
mod name;
mod operation;
mod refused;
mod time;
mod topic;
mod v02;

pub use announce::{About, Announced, Became, Standing, announce};
pub use base::BaseUrl;
pub use body::{CONTENT_ENCODING, CONTENT_TYPE, CONTENT_TYPE_V02, parse};
pub use changes::changes_of;
pub use message::{
    BELOW_FIELD, Blocks, Content, Identity, MESSAGE_BYTES_MAX, Message, NAMES_FIELD,
};
pub use operation::Operation;
pub use refused::Refused;
pub use topic::{binding, topic};
pub use v02::Headers;
