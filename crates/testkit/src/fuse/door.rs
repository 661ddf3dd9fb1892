//! A mounted `/dev/fuse`: threads that read requests, hand them to a [`Server`] and write its
//! answers.
//!
//! Root mounts by itself, without a helper program. The threads wait on the device and on an event,
//! so that the connection can be cut at any time; then whoever waits in the kernel for an answer
//! gets an error, and nothing holds the mount.

use super::wire::{Answer, Call, Op, WRITE_BYTES_MAX, greeting};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A slow answer keeps one thread busy; the others go on.
const THREADS: usize = 6;

/// What answers the kernel.
pub trait Server: Send + Sync + 'static {
    /// Answers any request but `INIT`.
    fn answer(&self, call: &Call<'_>) -> Answer;

    /// Flags of `INIT` beside those that are always wanted.
    fn features(&self) -> u32 {
        0
    }

    /// How it is mounted.
    fn flags(&self) -> MountFlags {
        MountFlags::empty()
    }
}

/// A mount that a server answers for; gone on drop.
#[derive(Debug)]
pub struct Door {
    path: PathBuf,
    line: Option<Arc<Line>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Line {
    device: OwnedFd,
    end: OwnedFd,
}

impl Door {
    /// Mounts at `path`; needs root.
    pub fn open(path: &Path, server: Arc<impl Server>) -> Door {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let device =
            rustix::fs::openat(CWD, "/dev/fuse", flags, Mode::empty()).expect("open /dev/fuse");
        let end = eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd");
        mount(path, &device, server.flags());
        let line = Arc::new(Line { device, end });
        let work = |_| {
            let (line, server) = (line.clone(), server.clone());
            std::thread::spawn(move || line.serve(&*server))
        };
        let threads = (0..THREADS).map(work).collect();
        Door {
            path: path.to_owned(),
            line: Some(line),
            threads,
        }
    }

    /// Cuts the connection; every request, those under way too, fails from now on (`ENOTCONN`,
    /// `ECONNABORTED`).
    pub fn cut(&mut self) {
        let Some(line) = self.line.take() else { return };
        let _ = rustix::io::write(&line.end, &1u64.to_ne_bytes());
        self.threads
            .drain(..)
            .for_each(|thread| drop(thread.join()));
    }
}

/// Mounts a file system at `path` for which nobody answers, not once; whatever asks it is refused
/// (`ENOTCONN`). It stays until it is unmounted. Needs root.
pub fn mount_dead(path: &Path) {
    let device = rustix::fs::openat(
        CWD,
        "/dev/fuse",
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .expect("open /dev/fuse");
    mount(path, &device, MountFlags::empty());
}

impl Drop for Door {
    fn drop(&mut self) {
        self.cut();
        let _ = rustix::mount::unmount(&self.path, UnmountFlags::DETACH);
    }
}

/// Access is checked by the kernel, from the modes and ACLs that it is told, and everybody may
/// come.
fn mount(path: &Path, device: &OwnedFd, flags: MountFlags) {
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions",
        device.as_raw_fd()
    );
    let data = CString::new(data).expect("no NUL");
    rustix::mount::mount("driftless-test", path, "fuse", flags, &*data)
        .unwrap_or_else(|e| panic!("cannot mount a FUSE file system at {}: {e}", path.display()));
}

impl Line {
    fn serve(&self, server: &impl Server) {
        let mut buffer = vec![0u8; WRITE_BYTES_MAX as usize + 8192];
        while let Some(length) = self.next(&mut buffer) {
            let call = Call::read(&buffer[..length]);
            let answer = match call.op {
                Some(Op::Init) => Answer::Done(greeting(&call, server.features())),
                Some(Op::Destroy) => Answer::Done(Vec::new()),
                _ => server.answer(&call),
            };
            // The caller may be gone (ENOENT), or the whole connection (ENODEV): neither matters
            // here.
            answer
                .encode(call.unique)
                .map(|bytes| rustix::io::write(&self.device, &bytes));
        }
    }

    /// Waits for a request; none once the connection has ended.
    fn next(&self, buffer: &mut [u8]) -> Option<usize> {
        loop {
            let mut both = [
                PollFd::new(&self.device, PollFlags::IN),
                PollFd::new(&self.end, PollFlags::IN),
            ];
            match poll(&mut both, None) {
                Err(Errno::INTR) => continue,
                ready => drop(ready.expect("poll /dev/fuse")),
            }
            if !both[1].revents().is_empty() {
                return None;
            }
            match rustix::io::read(&self.device, &mut *buffer) {
                Ok(length) => return Some(length),
                // Another thread was faster, or the request was withdrawn (ENOENT).
                Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => (),
                Err(_) => return None,
            }
        }
    }
}
