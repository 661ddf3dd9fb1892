//! Directories in which users deposit data for their jobs: one area, and a home in it for each user.
//!
//! A gateway and a server for file transfers both create homes, and programs of users fill them, so
//! the rules stand in one place.
//!
//! What must hold: a home belongs to its user, and no other user can enter it. A deposit has its name
//! when it is complete, and not before. The crate acts by handles below the area, and follows no
//! symbolic link there. Nothing here copies content or prints.

mod area;
mod draft;
mod error;
mod folder;
mod home;
mod measure;
mod sweep;

pub use area::DepositArea;
pub use draft::{CommittedDeposit, DepositDraft};
pub use error::DepositError;
pub use home::{Deposit, DepositHome, check_deposit_name, is_draft};
