//! What a lead and its members say to each other: JSON objects, each with all there is to say at
//! the moment.

use super::Crossings;
use driftless_engine::Lent;
use driftless_model::{RelPath, Scope};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What is said. Fields that are not known mean nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(
    clippy::large_enum_variant,
    reason = "a mirror has one word at a time in hand"
)]
pub enum Word {
    /// By whoever leads.
    Lead(LeadWord),
    /// By a member.
    Member(MemberWord),
}

/// How a lead stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeadWord {
    /// The life of the lead, by a number that was drawn.
    pub lead: u64,
    /// Its host.
    pub host: String,
    /// The replica, as its job names it.
    pub replica: String,
    /// What its job takes, keeps and leaves out, and by which version, as a number.
    pub rules: u64,
    /// By what members know the replica; nothing while it is not lent to anybody.
    pub lent: Option<Lent>,
    /// Members that may work, and up to which number of theirs what they asked to be looked at is
    /// remembered.
    pub members: Vec<(u64, u64)>,
    /// The number of the last round: each member answers when all that it had heard is durable.
    pub round: u64,
    /// The number of its rest, while it rests or is about to end: each member ends what it is at.
    pub rest: u64,
    /// Where, and under which name, what is changed on the replica is announced; nothing if it is
    /// not.
    #[serde(default)]
    pub announces: Option<String>,
    /// Which announcements it hears, and what they call the source.
    #[serde(default)]
    pub hears: String,
    /// Where something is mounted below both trees on its host: what lies there members leave to it.
    #[serde(default)]
    pub crossings: Crossings,
}

/// How a member stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberWord {
    /// The member, by a number that was drawn.
    pub member: u64,
    /// The lead that it works for.
    pub lead: u64,
    /// Its host.
    pub host: String,
    /// Its process.
    pub process: u32,
    /// When it began: time since 1970, as all moments here.
    pub began: Duration,
    /// The replica, as its job names it.
    pub replica: String,
    /// It is subscribed to the queue.
    pub hears: bool,
    /// How many connections to the queue it has lost.
    pub connection: u64,
    /// Paths that are left to do.
    pub left: u64,
    /// Since when the oldest change waits that it has heard of and that is not on the replica.
    pub oldest: Option<Duration>,
    /// Entries that it has changed or removed.
    pub done: u64,
    /// Bytes that it has copied.
    pub bytes: u64,
    /// Paths that have a problem here and were not handed to the lead yet.
    pub problems: u64,
    /// Why it cannot work, or the last problem of a path, in words.
    pub wrong: Option<String>,
    /// The last round that it has answered.
    pub round: u64,
    /// What the lead is to look at.
    pub looks: Vec<Look>,
    /// The last rest in which it works on nothing, and all that it did is durable.
    pub rest: u64,
    /// It ends, and all that it did is durable.
    pub has_left: bool,
    /// Some of what it has changed is not announced yet.
    #[serde(default)]
    pub has_untold: bool,
    /// How often it could not announce what it has changed, and does not any more: the lead does, in
    /// one word.
    #[serde(default)]
    pub given_up: u64,
}

/// What a lead is to look at in a member's place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// Its number, from 1 on.
    pub number: u64,
    /// Where: the bytes of the path below the root.
    pub path: RelPath,
    /// How far below.
    pub scope: Scope,
    /// Content may differ although size and times agree.
    pub is_doubtful: bool,
}
