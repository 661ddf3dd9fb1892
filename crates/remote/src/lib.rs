//! Trees on other hosts: the agent that serves them, the line to it, and the tree that this side sees.
//!
//! The agent is started by the system's `ssh` and speaks over its standard input and output ([`wire`]). To the rest of Driftless a
//! directory there is a [`Dir`](driftless_tree::Dir) like any other. What makes a run fast over a long line is that hardly
//! anything waits: directories are asked for before they are entered, entries are told with their directory, small files go
//! whole, and their fate is heard of later.
#![deny(missing_docs)]

mod agent;
mod alive;
mod budget;
mod carrier;
mod compress;
mod confine;
mod deploy;
mod dir;
mod earlier;
mod ending;
mod fence;
mod file;
mod frame;
mod gather;
mod greeting;
mod hold;
mod home;
mod identity;
mod jobs;
mod limits;
mod lines;
mod link;
mod serve;
mod sparing;
mod ssh;
mod table;
mod target;
pub mod wire;

pub use agent::{Service, serve};
pub use carrier::spawn_there;
pub use deploy::{Deploy, bring};
pub use earlier::end_earlier;
pub use gather::join;
pub use greeting::{Heard, Silence, find, greeted};
pub use limits::{Limits, May};
pub use ssh::{Reach, ReachError, SSH_FAILED, SshHost, in_place_of};
pub use target::{Target, TargetError};
pub use wire::Root;
