//! Both trees of a run: how they are opened, which pairs are refused, what their marks say, what is mounted in them, and from when on
//! changes of the replica are under way.

pub mod changes;
pub mod marks;
pub mod mounts;
pub mod overlap;
pub mod precautions;
pub mod roots;
pub mod whereabouts;
