//! Jobs of batch systems that start where their data has arrived: gateway, node daemons and tasks of
//! an ordinary user, with a real Slurm, a real Grid Engine, and a stand-in for PBS.
#![allow(clippy::disallowed_methods)]

#[path = "jobs/arrays.rs"]
mod arrays;
#[path = "jobs/cluster.rs"]
mod cluster;
#[path = "jobs/grid_engine.rs"]
mod grid_engine;
#[path = "jobs/pbs.rs"]
mod pbs;
#[path = "jobs/seed.rs"]
mod seed;
#[path = "jobs/site.rs"]
mod site;
#[path = "jobs/slurm.rs"]
mod slurm;
