//! What file systems write down of each change: changelogs.

pub mod lustre;
