//! Directories in which users deposit data for their jobs: one area, and a home in it for each user.
//!
//! A gateway and a server for file transfers both create homes, so the rules stand in one place.
//!
//! What must hold: a home belongs to its user, and no other user can enter it. The crate acts by
//! handles below the area, and follows no symbolic link there. Nothing here copies content or prints.

mod area;
mod error;

pub use area::DepositArea;
pub use error::DepositError;
