//! Further lines of one client, to one agent.
//!
//! One ssh connection carries what fits into its window (2 MiB) in each round trip, so a long line needs several. Each starts a
//! `driftless agent --join PLACE` of its own, which hands its standard input and output to the first agent (unix(7), SCM_RIGHTS) and
//! waits until that is done with them. It says nothing itself: the first agent greets on the line that it was handed.
//!
//! The place is an abstract socket, which needs no file: an agent that has confined itself could neither make one nor remove it. Anybody
//! may connect to it, so both ends ask the kernel who is at the other (SO_PEERCRED).

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, getsockname, listen, recvmsg, sendmsg, socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long a process that has connected may take to hand its line over.
const SILENCE: Duration = Duration::from_secs(10);
/// Between two looks at whether to wait on.
const TICK: Duration = Duration::from_millis(50);
/// Lines that wait to be taken, at most.
const BACKLOG: i32 = 16;

/// Where further lines are taken.
pub struct Gathering {
    place: Vec<u8>,
    socket: OwnedFd,
}

fn new_socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags | SocketFlags::CLOEXEC, None)
}

/// Whether the process at the other end is this user's.
fn is_ours(socket: &OwnedFd) -> bool {
    socket_peercred(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

impl Gathering {
    /// Opens the place. The kernel chooses a name that is free (unix(7), "Autobind feature").
    pub fn open() -> Result<Gathering, Errno> {
        let socket = new_socket(SocketFlags::NONBLOCK)?;
        bind(&socket, &SocketAddrUnix::new_unnamed())?;
        listen(&socket, BACKLOG)?;
        let own = SocketAddrUnix::try_from(getsockname(&socket)?)?;
        let place = own.abstract_name().ok_or(Errno::AFNOSUPPORT)?.to_vec();
        Ok(Gathering { place, socket })
    }

    /// What `--join` is given.
    pub fn place(&self) -> Vec<u8> {
        self.place.clone()
    }

    /// The next process of this user that wants to bring a line, if one waits.
    pub fn accept(&self) -> Option<Bringer> {
        accept_with(&self.socket, SocketFlags::CLOEXEC).ok().filter(is_ours).map(Bringer)
    }
}

/// Who brings a line, and goes when this is dropped.
pub struct Bringer(OwnedFd);

impl Bringer {
    /// The line's input and output. Nobody has to bring one, so this waits for it a while only, and no longer than `is_over` says.
    pub fn line(&self, is_over: impl Fn() -> bool) -> Option<(OwnedFd, OwnedFd)> {
        let since = Instant::now();
        let tick = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 };
        while poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&tick)).ok()? == 0 {
            if is_over() || since.elapsed() > SILENCE {
                return None;
            }
        }
        let mut ends = received(&self.0).ok()?.into_iter();
        Some((ends.next()?, ends.next()?))
    }
}

fn received(peer: &OwnedFd) -> Result<Vec<OwnedFd>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(peer, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let rights =
        ancillary.drain().filter_map(|message| if let RecvAncillaryMessage::ScmRights(ends) = message { Some(ends) } else { None });
    Ok(rights.flatten().collect())
}

/// Hands this process's standard input and output to the agent at `place`, and waits until it is done with them.
pub fn join(place: &std::ffi::OsStr) -> io::Result<()> {
    let socket = new_socket(SocketFlags::empty())?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(place.as_encoded_bytes())?)?;
    // The agent may have ended, and its place be another's.
    if !is_ours(&socket) {
        return Err(Errno::PERM.into());
    }
    let (input, output) = (io::stdin(), io::stdout());
    let ends = [input.as_fd(), output.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&ends));
    sendmsg(&socket, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::empty())?;
    let mut byte = [0];
    rustix::io::retry_on_intr(|| rustix::io::read(&socket, &mut byte))?;
    Ok(())
}
