//! Changes that are announced through a broker, as messages of Sarracenia.
//!
//! [`Announcements`] hears them and says which paths may differ; [`Publisher`] tells them. Here the
//! broker and the messages come together: `queue` does not know what a message means, and
//! `sarracenia` sends none. What is heard is a hint, whoever sent it.
#![deny(missing_docs)]

mod announcements;
mod publisher;
mod seen;
mod talk;

pub use announcements::Announcements;
pub use publisher::Publisher;
pub use talk::Talk;
