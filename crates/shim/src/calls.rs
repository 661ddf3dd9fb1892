//! The functions that stand in the place of the C library's, as its headers have them. Each calls
//! the one that it stands for and returns what that returns.
//!
//! Functions with a variable number of arguments (open(2), fcntl(2)) are taken with all that they
//! may have: an argument that was not passed is read from its register and not used, as the calling
//! conventions of x86-64 and AArch64 under Linux allow.
//!
//! Not here: functions that the C library builds on others without a look at these, and what is
//! seen of them all the same. `system`, `popen` and `posix_spawn` start programs that have this
//! library themselves. `fdopen` has a descriptor that was marked when it was opened. `tmpfile` is a
//! file that never has a name. FICLONE (ioctl(2)) writes to a file that is open for writing, as
//! write(2) does.

mod attributes;
mod contents;
mod limits;
mod memory;
mod names;
mod opens;
mod programs;
mod sockets;
