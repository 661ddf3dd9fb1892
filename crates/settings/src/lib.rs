//! Files of TOML in which people say what is to be done: their keys, where each stands, and what is
//! wrong with them.
//!
//! Which keys there are, and what they mean, is said by whoever reads such a file. He asks a
//! [`Document`] for the value of each key, in one of the [`forms`]; what is wrong is told with line,
//! column and what may have been meant, all at once. No input or output here.
#![deny(missing_docs)]

mod document;
mod error;
pub mod forms;
mod keys;
pub mod metrics;
pub mod publish;
mod suggest;

pub use document::{Document, FILE_BYTES_MAX, parse};
pub use error::{FileErrors, KeyError};
pub use keys::Keys;
pub use publish::Publish;
