//! Both trees of a run: how they are opened, which pairs are refused, what their marks say, what is
//! mounted in them, and from when on changes of the replica are under way.

pub mod alike;
pub mod alone;
pub mod changes;
pub mod earlier_copy;
pub mod error;
pub mod filling;
pub mod folding;
pub mod held;
pub mod locks;
pub mod looks;
pub mod marks;
pub mod mounts;
pub mod numbers;
pub mod overlap;
pub mod precautions;
pub mod replica;
pub mod rings;
pub mod roots;
pub mod shown;
pub mod steps;
