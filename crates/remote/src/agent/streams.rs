//! Further streams of one client, to one agent.
//!
//! One ssh connection carries what fits into its window (2 MiB) in each round trip, so a connection
//! with long round trips needs several. Each starts a `driftless agent --join PLACE` of its own,
//! which hands its standard input and output to the first agent (unix(7), SCM_RIGHTS) and waits
//! until that is done with them. It says nothing itself: the first agent greets on the stream that
//! it was handed.
//!
//! The place is an abstract socket, which needs no file: an agent that has confined itself could
//! neither make one nor remove it. Anybody may connect to it, so both ends ask the kernel who is at
//! the other (SO_PEERCRED). That it is the same user is not enough: his keys may start agents with
//! different limits, and each key can name any place. So the agent draws a secret, which its client
//! is told on the stream that it has and gives to the joining process over standard input, where no
//! list of processes shows it; and that process says the limits that it was started with itself,
//! which must be those of the agent.

use crate::wire::Limits;
use driftless_tree::random_secret;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, getsockname, listen, recvmsg, sendmsg, socket_with,
};
use sha2::{Digest, Sha256};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// How long a process that has connected may take to hand its stream over.
const SILENCE: Duration = Duration::from_secs(10);
/// How long its client may take to give the secret to a process that joins.
const SECRET_SILENCE: Duration = Duration::from_secs(60);
/// Between two looks at whether to wait on.
const TICK: Duration = Duration::from_millis(50);
/// Streams that wait to be taken, at most.
const BACKLOG: i32 = 16;

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 16;
/// Bytes of what a process says that joins: the secret, and a hash (SHA-256) of its limits.
const CLAIM_BYTES: usize = SECRET_BYTES + 32;
/// What it is answered that does not know the secret, or whose limits are others. One whose stream
/// is taken is answered nothing.
const UNKNOWN: u8 = 1;
const OTHER_LIMITS: u8 = 2;

/// What entitles a process to bring a stream.
#[derive(Clone)]
pub struct Claim([u8; CLAIM_BYTES]);

impl Claim {
    fn new(secret: u128, limits: &Limits) -> Claim {
        let limits =
            postcard::to_stdvec(limits).expect("limits are plain values, and memory does not fail");
        let mut claim = [0; CLAIM_BYTES];
        let (first, last) = claim.split_at_mut(SECRET_BYTES);
        first.copy_from_slice(&secret.to_le_bytes());
        last.copy_from_slice(&Sha256::digest(limits));
        Claim(claim)
    }

    fn secret(&self) -> u128 {
        u128::from_le_bytes(
            self.0[..SECRET_BYTES]
                .try_into()
                .expect("it begins with one"),
        )
    }

    /// What is answered to another claim; nothing if it is this one. Who does not know the secret
    /// learns nothing of the limits.
    fn refusal_of(&self, other: &Claim) -> Option<u8> {
        // Numbers take as long to compare whatever they are.
        if self.secret() != other.secret() {
            return Some(UNKNOWN);
        }
        (self.0 != other.0).then_some(OTHER_LIMITS)
    }
}

/// Where further streams are taken.
pub struct Gathering {
    place: Vec<u8>,
    socket: OwnedFd,
    claim: Claim,
}

fn new_socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        flags | SocketFlags::CLOEXEC,
        None,
    )
}

/// Whether the process at the other end is this user's.
fn is_ours(socket: &OwnedFd) -> bool {
    socket_peercred(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

impl Gathering {
    /// Opens the place, and draws the secret. The kernel chooses a name that is free (unix(7),
    /// "Autobind feature").
    pub fn open(limits: &Limits) -> Result<Gathering, Errno> {
        let claim = Claim::new(random_secret()?, limits);
        let socket = new_socket(SocketFlags::NONBLOCK)?;
        bind(&socket, &SocketAddrUnix::new_unnamed())?;
        listen(&socket, BACKLOG)?;
        let own = SocketAddrUnix::try_from(getsockname(&socket)?)?;
        let place = own.abstract_name().ok_or(Errno::AFNOSUPPORT)?.to_vec();
        Ok(Gathering {
            place,
            socket,
            claim,
        })
    }

    /// What `--join` is given, and the secret.
    pub fn place(&self) -> (Vec<u8>, u128) {
        (self.place.clone(), self.claim.secret())
    }

    /// The next process of this user that wants to bring a stream, if one waits.
    pub fn accept(&self) -> Option<Bringer> {
        accept_with(&self.socket, SocketFlags::CLOEXEC)
            .ok()
            .filter(is_ours)
            .map(|socket| Bringer {
                socket,
                claim: self.claim.clone(),
            })
    }
}

/// Who brings a stream, and goes when this is dropped.
pub struct Bringer {
    socket: OwnedFd,
    /// What he has to say.
    claim: Claim,
}

impl Bringer {
    /// The stream's input and output, if the process may bring one. Nobody has to, so this waits
    /// for it a while only, and no longer than `is_over` says.
    pub fn stream(&self, is_over: impl Fn() -> bool) -> Option<(OwnedFd, OwnedFd)> {
        wait_for(self.socket.as_fd(), SILENCE, is_over).ok()?;
        let (claim, ends) = received(&self.socket).ok()?;
        if let Some(refusal) = self.claim.refusal_of(&claim) {
            let _it_may_be_gone = rustix::io::write(&self.socket, &[refusal]);
            return None;
        }
        let mut ends = ends.into_iter();
        Some((ends.next()?, ends.next()?))
    }
}

/// Waits until there is something to be read.
fn wait_for(from: BorrowedFd<'_>, silence: Duration, is_over: impl Fn() -> bool) -> io::Result<()> {
    let since = Instant::now();
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: TICK.as_nanos() as i64,
    };
    while rustix::io::retry_on_intr(|| poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&tick)))?
        == 0
    {
        if is_over() || since.elapsed() > silence {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

fn received(peer: &OwnedFd) -> Result<(Claim, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut claim = [0; CLAIM_BYTES];
    let got = recvmsg(
        peer,
        &mut [IoSliceMut::new(&mut claim)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let rights = ancillary.drain().filter_map(|message| {
        if let RecvAncillaryMessage::ScmRights(ends) = message {
            Some(ends)
        } else {
            None
        }
    });
    let ends = rights.flatten().collect();
    // It was sent at once, so it comes at once (unix(7)).
    if got.bytes == CLAIM_BYTES {
        Ok((Claim(claim), ends))
    } else {
        Err(Errno::BADMSG)
    }
}

/// Hands this process's standard input and output to the agent at `place`, and waits until it is
/// done with them. The secret stands first on standard input; the limits are those that this
/// process was started with.
///
/// # Errors
/// There is no such agent of this user, the secret is not its own, or it was started with other
/// limits.
pub fn join(place: &std::ffi::OsStr, limits: &Limits) -> io::Result<()> {
    let (input, output) = (io::stdin(), io::stdout());
    let claim = Claim::new(told_secret(input.as_fd())?, limits);
    let socket = new_socket(SocketFlags::empty())?;
    connect(
        &socket,
        &SocketAddrUnix::new_abstract_name(place.as_encoded_bytes())?,
    )?;
    // The agent may have ended, and its place be another's.
    if !is_ours(&socket) {
        return Err(Errno::PERM.into());
    }
    let ends = [input.as_fd(), output.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&ends));
    sendmsg(
        &socket,
        &[IoSlice::new(&claim.0)],
        &mut ancillary,
        SendFlags::empty(),
    )?;
    let mut answer = [0];
    match rustix::io::retry_on_intr(|| rustix::io::read(&socket, &mut answer))? {
        0 => Ok(()),
        _ if answer == [OTHER_LIMITS] => Err(io::Error::other(
            "it was started with other limits (--only, --read-only, --no-delete) than this one",
        )),
        _ => Err(io::Error::other("it is that of another client")),
    }
}

/// The secret that a client gives first. Nothing behind it is taken.
fn told_secret(input: BorrowedFd<'_>) -> io::Result<u128> {
    let (mut secret, mut got) = ([0; SECRET_BYTES], 0);
    while got < SECRET_BYTES {
        wait_for(input, SECRET_SILENCE, || false)?;
        match rustix::io::retry_on_intr(|| rustix::io::read(input, &mut secret[got..]))? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            more => got += more,
        }
    }
    Ok(u128::from_le_bytes(secret))
}
