//! Jobs of batch systems that start where their data has arrived: gateway, node daemons and tasks of
//! an ordinary user, with a real Slurm, a real Grid Engine, and a stand-in for PBS.
#![allow(clippy::disallowed_methods)]

#[path = "jobs/accidents.rs"]
mod accidents;
#[path = "jobs/arrays.rs"]
mod arrays;
#[path = "jobs/changed.rs"]
mod changed;
#[path = "jobs/cluster.rs"]
mod cluster;
#[path = "jobs/commands.rs"]
mod commands;
#[path = "jobs/grid_engine.rs"]
mod grid_engine;
#[path = "jobs/hostile.rs"]
mod hostile;
#[path = "jobs/late.rs"]
mod late;
#[path = "jobs/pbs.rs"]
mod pbs;
#[path = "jobs/reboot.rs"]
mod reboot;
#[path = "jobs/results.rs"]
mod results;
#[path = "jobs/seed.rs"]
mod seed;
#[path = "jobs/site.rs"]
mod site;
#[path = "jobs/slurm.rs"]
mod slurm;
#[path = "jobs/troubles.rs"]
mod troubles;
