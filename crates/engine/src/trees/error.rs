//! Why a run does not begin, or does not go on.

use driftless_model::{escape, moment};
use driftless_mover::Unusable;
use driftless_reconcile::Refusal;
use driftless_tree::{Holder, RootError};

/// Why a run did not begin, so that nothing was touched; or, where that is said, did not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A root cannot be opened.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The source is not there.
    #[error("\"{0}\": no such file or directory (the source)")]
    NoSource(String),
    /// There is nothing to compare with.
    #[error("\"{0}\": no such replica")]
    NoReplica(String),
    /// Somebody has made the replica the active side of its job.
    #[error(
        "\"{path}\": it says that it is the active side since {}: users work there, and nothing was changed; \
        driftless mirror failover records this on this host, driftless mirror failback copies the changes back",
        moment(*since)
    )]
    Active {
        /// Path of the replica.
        path: String,
        /// Since when, in seconds since 1970.
        since: i64,
    },
    /// The replica leads to its own source.
    #[error(
        "\"{path}\": mirrors would form a loop: the source \"{source_path}\" is itself filled from this replica, through {}; \
        each mirror would undo the changes of the other; stop one of them. If no mirror fills the source any more, \
        run driftless mirror failover with the job that filled it",
        mirrors_words(*mirrors)
    )]
    Ring {
        /// Path of the replica.
        path: String,
        /// Path of the source.
        source_path: String,
        /// How many mirrors lead from the one to the other.
        mirrors: usize,
    },
    /// A single entry, where a directory is asked for.
    #[error("\"{0}\": not a directory; name a directory")]
    NotTrees(String),
    /// What was written is not there any more.
    #[error("\"{0}\": data written to the replica was lost; check its disk and mount")]
    DiskLied(String),
    /// The host of a tree cannot be reached, or was lost before everything was known to be durable.
    #[error("{0}")]
    CutOff(String),
    /// The same entry twice.
    #[error("source and replica are the same: \"{0}\"")]
    Same(String),
    /// One within the other.
    #[error("the {inner} \"{path}\" lies inside the {outer}: the run would copy into itself{hint}")]
    Inside {
        /// Which one lies inside.
        inner: &'static str,
        /// Which one it lies in.
        outer: &'static str,
        /// Its path.
        path: String,
        /// What can be done about it.
        hint: String,
    },
    /// The replica is of another type.
    #[error(
        "the source is {source_kind}, the replica \"{path}\" is {replica_kind}: name another{hint}"
    )]
    OtherType {
        /// What the source is.
        source_kind: &'static str,
        /// What the replica is.
        replica_kind: &'static str,
        /// Path of the replica.
        path: String,
        /// What could have been meant.
        hint: String,
    },
    /// The directory that would hold the replica is missing or cannot be used.
    #[error("\"{path}\": {cause}")]
    Unusable {
        /// Path of the root.
        path: String,
        /// Why, with what was tried.
        cause: String,
    },
    /// The program that moves content cannot be used.
    #[error(transparent)]
    NoCarrier(#[from] Unusable),
    /// Another run works on the same replica.
    #[error("\"{path}\": another run is working on this replica, or on one that overlaps it{}; wait for it to end", holder_words(holder.as_ref()))]
    Locked {
        /// Path of the replica.
        path: String,
        /// Who has the lock, as far as that can be told.
        holder: Option<Holder>,
    },
    /// The replica that is known is not there.
    #[error(
        "\"{0}\": this directory is not the replica that was filled before; is its file system mounted? \
        To fill this directory, start with --new-replica"
    )]
    OtherReplica(String),
    /// Another directory stands at a root than before a connection was lost, or none.
    #[error(
        "\"{0}\": cannot go on: it is not what the run began with (was its file system unmounted, or the directory replaced, while the connection was lost?), \
        and nothing was changed since; mount it, or put back the directory"
    )]
    OtherRoot(String),
    /// Its lock is not there any more.
    #[error(
        "\"{0}\": the lock of this run was taken away, so another run may work there; \
        this run ends, and the remaining entries differ; run again"
    )]
    Unlocked(String),
    /// A mover may not change the replica.
    #[error("\"{path}\": {why}")]
    NotHeld {
        /// Path of the replica.
        path: String,
        /// Why.
        why: String,
    },
    /// A mover would make something else than its coordinator, whoever asks it.
    #[error("\"{path}\": {why}")]
    Misfit {
        /// Path of the replica.
        path: String,
        /// Why.
        why: String,
    },
    /// Another run has worked on the replica between the first look of this one and its first
    /// change.
    #[error(
        "\"{0}\": another run has changed this replica since this run began to compare it; this run has changed nothing; run again"
    )]
    Overtaken(String),
    /// The guard refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The movers cannot be reached.
    #[error(transparent)]
    NoMovers(#[from] Unreachable),
    /// What is known of the batches of a run cannot be kept.
    #[error(transparent)]
    Record(#[from] driftless_state::StateError),
}

/// What carries messages between the coordinator and its movers cannot be reached, or takes none.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Unreachable(Box<dyn std::error::Error + Send + Sync>);

impl Unreachable {
    /// For this cause, as whatever carries the messages has it.
    pub fn new(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Unreachable {
        Unreachable(cause.into())
    }
}

/// Through how many mirrors a tree comes from another.
fn mirrors_words(mirrors: usize) -> String {
    match mirrors {
        1 => "another mirror".into(),
        more => format!("{more} other mirrors"),
    }
}

/// Who it is that works on a replica, in words.
pub fn holder_words(holder: Option<&Holder>) -> String {
    let since = |holder: &Holder| {
        holder
            .since
            .map_or_else(String::new, |since| format!(", since {}", moment(since)))
    };
    holder.map_or_else(String::new, |holder| {
        format!(
            " (process {} on {}{})",
            holder.process,
            escape(&holder.host),
            since(holder)
        )
    })
}
