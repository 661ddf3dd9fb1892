//! A library that is loaded into users' programs (ld.so(8), `LD_PRELOAD`) and announces what they
//! change below the trees that an agent of this node watches.
//!
//! It costs its host almost nothing and never harms it. It allocates nothing, takes no lock, waits
//! for nobody, prints nothing, keeps errno, and does what it does by plain system calls, which are
//! no cancellation points (pthreads(7)). What it announces is a hint: the agent looks for itself.
//! What it cannot announce is a gap, which it counts.
//!
//! A program that does little pays most for its start, and there for pages of memory that it
//! touches first: small values stand together, in the section of those that are not 0
//! (`link_section`), and apart from large tables.
//!
//! No code of it panics, which a test of the library shows: so nothing of the standard library is
//! left in it, and it needs the C library alone, whatever the rest of the workspace does when it
//! panics.
//!
//! - [`config`]: what the agent has written for all processes of the node: which trees matter
//! - [`files`]: which descriptors may have been written through
//! - [`paths`]: what a path is in the end, without links
//! - [`tell`]: the way to the agent, and what is left to do when it is not there
//! - [`process`], [`life`]: whose memory this is; the beginning and the end of a process
//! - [`calls`]: the functions that stand in the place of the C library's
#![allow(unsafe_code, reason = "it stands between programs and their C library")]

mod buffers;
mod calls;
mod config;
mod files;
mod life;
mod linked;
mod mapped;
mod nearby;
mod paths;
mod places;
mod process;
mod real;
mod sys;
mod tell;
