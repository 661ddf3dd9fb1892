//! What the threads that hear hand to the agent.

use driftless_detect::Seen;
use driftless_model::RelPath;

/// What was heard at once.
#[derive(Debug, Default)]
pub struct Heard {
    /// What was seen, with the numbers of trees.
    pub seen: Vec<(usize, Seen)>,
    /// Trees in which something was missed.
    pub missed: Vec<usize>,
    /// Messages of shims that were read.
    pub messages: u64,
    /// Of these, how many made no sense.
    pub unread: u64,
    /// Of these, how many were not heard, since their users say too much.
    pub dropped: u64,
    /// Events of the kernel that were read.
    pub events: u64,
    /// Changes that users have posted.
    pub posts: u64,
    /// It is what shims have announced.
    pub is_announced: bool,
    /// Files that programs have written, with the numbers of trees and the names of programs.
    pub written: Vec<(usize, RelPath, String)>,
    /// Who hears nothing, and why; none if it hears again.
    pub deaf: Option<(String, Option<String>)>,
    /// The number of a thread that has heard everything from before a round, and of the round.
    pub reached: Option<(usize, u64)>,
}
