//! The gateway of a batch system: users submit jobs with their data, and each job starts where the
//! data has arrived.
//!
//! A client submits the job held, as the user ([`submit`]). The gateway that has the lease
//! ([`Gateway`]) casts the data set to the nodes, tells the batch system which nodes are ready,
//! releases the job by its policy, and removes the copies after the last task.
//!
//! What must hold: what the gateway knows is in its table of jobs before it acts, and each act can be
//! repeated. A gateway acts only while it holds the lease. A user is known by the credentials of the
//! socket, and a job by its mark and the owner that the batch system states.
//!
//! Programs use [`GatewayClient`].
//!
//! Nothing here prints or knows of arguments.

mod casts;
mod client;
mod clients;
mod collection;
mod distribution;
mod error;
mod fresh;
mod gateway;
mod leader;
mod lease;
mod library;
mod message;
mod parts;
mod places;
mod plan;
mod policy;
mod relay_socket;
mod request;
mod results;
mod server;
mod tried;
mod user_run;
mod users;

pub use casts::{Casts, CastsSettings};
pub use client::{Submitted, UserSubmission, deposits, jobs, submit};
pub use distribution::{
    CollectGuard, CollectMove, CollectOrder, CollectOutcome, CollectedResults, CopyKeeping,
    Distribution, LoadEvent, LoadOrder, NodeAnswer, OutboxState,
};
pub use driftless_batch::JobId;
pub use driftless_deposit::{CommittedDeposit, Deposit, DepositDraft, DepositError, DepositHome};
pub use error::Error;
pub use gateway::Gateway;
pub use library::{GatewayClient, JobSubmission};
pub use message::{JobInfo, JobNodeInfo, ResultInfo};
pub use parts::GatewaySettings;
pub use policy::{ReleaseError, ReleaseNeed, ReleasePolicy};
pub use request::JobRequest;
pub use users::User;
