//! Where an agent and the shims of its node meet: a file that is mapped, a socket, counters, and a
//! folder of files.

use crate::gaps::Gaps;
use crate::map::{ANNOUNCE, BYTES_MAX, FLAGS_AT, MAGIC, Map, REPLACED, Tree};
use crate::mounts::Mounts;
use crate::spooled::Spool;
use driftless_model::{cause, quote};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, flock};
use rustix::io::{Errno, pwrite};
use rustix::net::sockopt::{
    set_socket_passcred, set_socket_recv_buffer_size, set_socket_recv_buffer_size_force,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of messages that wait for the agent.
const QUEUE_BYTES: usize = 16 << 20;
/// Messages that wait for the agent, where root may say so (`net.unix.max_dgram_qlen`, ip-sysctl).
const QUEUE_MESSAGES: &[u8] = b"4096";
const QUEUE_LIMIT: &str = "/proc/sys/net/unix/max_dgram_qlen";

/// Why an agent hears nothing.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Another agent has the file that shims map.
    #[error("{}: in use by another watch daemon; stop it, or set a different \"shim.map\"", quote(.0))]
    Taken(PathBuf),
    /// Another agent reads the folder of the spool.
    #[error(
        "{}: in use by another watch daemon; stop it, or set a different \"shim.spool\"",
        quote(.0)
    )]
    SpoolTaken(PathBuf),
    /// What stands in the place of the file that shims map is somebody's.
    #[error(
        "{}: exists, and is not a map of a watch daemon; remove it, or set a different \"shim.map\"",
        quote(.0)
    )]
    NoMap(PathBuf),
    /// Something failed.
    #[error("{}: cannot {act}: {}", quote(.path), cause(&(*.errno).into()))]
    Failed {
        /// Where.
        path: PathBuf,
        /// What was tried.
        act: &'static str,
        /// Why not.
        errno: Errno,
    },
}

impl SpoolError {
    fn of(path: &Path, act: &'static str) -> impl FnOnce(Errno) -> SpoolError {
        let path = path.to_owned();
        move |errno| SpoolError::Failed { path, act, errno }
    }
}

/// Where shims find what matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// The file that they map.
    pub map: PathBuf,
    /// The folder in which each user has a file of what the agent did not take.
    pub spool: PathBuf,
}

/// How much waits in the folder for an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depth {
    /// Files: one for each user whose programs could not be heard.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// What an agent holds of it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) socket: OwnedFd,
    /// Messages that may wait there.
    pub(crate) room: u64,
    /// Where it is.
    pub(crate) at: PathBuf,
    pub(crate) gaps: Gaps,
    /// Counters of an earlier agent, and its trees: programs may not know the new ones yet.
    pub(crate) earlier: Option<(Gaps, Vec<PathBuf>)>,
    pub(crate) spool: Spool,
    /// What programs have said before is not known: there was no agent, or it did not end cleanly
    /// and has not read all of it.
    pub(crate) has_missed: bool,
    /// The file that programs map, and what it says.
    file: OwnedFd,
    map: Map,
    mounts: Option<Mounts>,
    /// No other agent makes these while this is open.
    _lock: OwnedFd,
}

impl Opened {
    /// Looks whether trees are still on the devices that programs know; returns those that are not,
    /// which programs know from here on.
    pub(crate) fn look_at_devices(&mut self) -> Vec<usize> {
        let mut moved = Vec::new();
        let Some(mounts) = &mut self.mounts else {
            return moved;
        };
        if !mounts.have_changed() {
            return moved;
        }
        for number in 0..self.map.trees.len() {
            let tree = &self.map.trees[number];
            let device = mounts.device(&tree.path);
            if device != tree.device {
                self.map.trees[number].device = device;
                let at = self.map.device_at(number);
                let _programs_map_it = pwrite(&self.file, &device.to_ne_bytes(), at);
                moved.push(number);
            }
        }
        moved
    }
}

impl Folder {
    fn beside(&self, end: &str) -> PathBuf {
        let mut path = self.map.clone().into_os_string();
        path.push(end);
        path.into()
    }

    /// Sees to it that there is one agent at a time.
    fn lock(&self) -> Result<OwnedFd, SpoolError> {
        let path = self.beside(".lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
        let file = opened.map_err(SpoolError::of(&path, "open the lock of shim.map"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(file),
            Err(Errno::AGAIN) => Err(SpoolError::Taken(self.map.clone())),
            Err(errno) => Err(SpoolError::of(&path, "lock it")(errno)),
        }
    }

    /// Makes all of it for these trees.
    ///
    /// # Errors
    /// Another agent has it, or something cannot be made.
    pub(crate) fn open(&self, trees: &[PathBuf]) -> Result<Opened, SpoolError> {
        let lock = self.lock()?;
        self.refuse_what_is_no_map()?;
        let old = self.old();
        let has_missed = old.as_ref().is_none_or(|(_, old)| is_there(&old.socket));
        let spool = self.open_spool()?;
        let moment = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let counters = self.beside(&format!(".gaps-{}", moment.as_nanos()));
        let gaps = Gaps::create(&counters, trees.len());
        let gaps = gaps.map_err(SpoolError::of(
            &counters,
            "create the counters of event losses",
        ))?;
        let path = self.beside(".socket");
        let listening = listening(&path).map_err(SpoolError::of(&path, "listen there"));
        let (socket, room) = listening?;
        let mut mounts = Mounts::open();
        let tree = |path: &PathBuf| Tree {
            device: mounts.as_mut().map_or(0, |mounts| mounts.device(path)),
            path: path.clone(),
        };
        let trees = trees.iter().map(tree).collect();
        let map = Map {
            socket: path.clone(),
            spool: self.spool.clone(),
            gaps: counters,
            trees,
        };
        let file = self.put(&map)?;
        Ok(Opened {
            socket,
            room,
            file,
            map,
            mounts,
            at: path,
            gaps,
            earlier: old.and_then(replace),
            spool,
            has_missed,
            _lock: lock,
        })
    }

    fn open_spool(&self) -> Result<Spool, SpoolError> {
        let failed = SpoolError::of(
            &self.spool,
            "create shim.spool as a directory (a link is refused)",
        );
        Spool::open(&self.spool).map_err(|errno| match errno {
            Errno::AGAIN => SpoolError::SpoolTaken(self.spool.clone()),
            errno => failed(errno),
        })
    }

    /// The file that shims map is made anew each time: what is none is not written over.
    fn refuse_what_is_no_map(&self) -> Result<(), SpoolError> {
        if !is_there(&self.map) {
            return Ok(());
        }
        let mut begin = [0; MAGIC.len()];
        let file = self.map_file(OFlags::RDONLY);
        let length = file.and_then(|file| rustix::io::pread(&file, &mut begin, 0));
        match length {
            Ok(0) => Ok(()),
            Ok(_) if begin == *MAGIC => Ok(()),
            Ok(_) | Err(_) => Err(SpoolError::NoMap(self.map.clone())),
        }
    }

    /// What an earlier agent has left.
    fn old(&self) -> Option<(OwnedFd, Map)> {
        let (file, _, map) = self.found(OFlags::RDWR)?;
        Some((file, map))
    }

    /// The file that shims map, or whatever stands there and is no link.
    fn map_file(&self, access: OFlags) -> Result<OwnedFd, Errno> {
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(&self.map, flags, Mode::empty())
    }

    /// The file that shims map, what its flags are, and what it says.
    fn found(&self, access: OFlags) -> Option<(OwnedFd, u32, Map)> {
        let file = self.map_file(access).ok()?;
        let mut bytes = vec![0; BYTES_MAX];
        let length = rustix::io::pread(&file, &mut bytes[..], 0).ok()?;
        let (flags, map) = Map::read(&bytes[..length])?;
        Some((file, flags, map))
    }

    fn put(&self, map: &Map) -> Result<OwnedFd, SpoolError> {
        let failed = |errno| SpoolError::of(&self.map, "write the map of the shims")(errno);
        let bytes = map.bytes().ok_or(Errno::NAMETOOLONG).map_err(failed)?;
        let new = self.beside(".new");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let _left_behind = rustix::fs::unlink(&new);
        let file = rustix::fs::open(&new, flags | OFlags::EXCL, Mode::empty()).map_err(failed)?;
        let written = rustix::io::write(&file, &bytes).map_err(failed)?;
        if written != bytes.len() {
            return Err(failed(Errno::NOSPC));
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644)).map_err(failed)?;
        rustix::fs::rename(&new, &self.map).map_err(failed)?;
        Ok(file)
    }

    /// Whether there is a file that has shims announce what changes, and whether somebody listens.
    pub fn is_announced(&self) -> (bool, bool) {
        let found = self.found(OFlags::RDONLY);
        let announces = |(_, flags, _): &(_, u32, _)| flags & (ANNOUNCE | REPLACED) == ANNOUNCE;
        let Some((_, _, map)) = found.filter(announces) else {
            return (false, false);
        };
        (true, is_heard(&map.socket))
    }

    /// The trees whose changes shims announce.
    pub fn trees(&self) -> Vec<PathBuf> {
        let found = self.found(OFlags::RDONLY);
        let trees = found.map(|(_, _, map)| map.trees).unwrap_or_default();
        trees.into_iter().map(|tree| tree.path).collect()
    }

    /// How much waits in the folder of the spool.
    ///
    /// # Errors
    /// It cannot be looked into.
    pub fn depth(&self) -> Result<Depth, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = match rustix::fs::open(&self.spool, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(Depth::default()),
            folder => folder?,
        };
        let mut depth = Depth::default();
        for entry in rustix::fs::Dir::read_from(&folder)? {
            let name = entry?.file_name().to_owned();
            let found = rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW);
            let is_file = |stat: &Stat| FileType::from_raw_mode(stat.st_mode).is_file();
            if let Some(stat) = found.ok().filter(is_file) {
                depth.files += 1;
                depth.bytes += u64::try_from(stat.st_size).unwrap_or_default();
            }
        }
        Ok(depth)
    }

    /// Has all shims announce nothing any more, until an agent begins again.
    ///
    /// # Errors
    /// An agent has it, or the file cannot be changed.
    pub fn end(&self) -> Result<(), SpoolError> {
        if !is_there(&self.map) {
            return Ok(());
        }
        let _held = self.lock()?;
        let failed = |errno| SpoolError::of(&self.map, "end the announcements of shims")(errno);
        let Some((file, map)) = self.old() else {
            return Ok(());
        };
        rustix::fs::unlink(&self.map).map_err(failed)?;
        pwrite(&file, &REPLACED.to_ne_bytes(), FLAGS_AT).map_err(failed)?;
        let _it_may_be_gone = rustix::fs::unlink(&map.gaps);
        let _it_may_be_gone = rustix::fs::unlink(&map.socket);
        Ok(())
    }
}

/// Whether somebody listens at a socket of datagrams.
fn is_heard(path: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
    let address = SocketAddrUnix::new(path);
    let connected = socket.and_then(|socket| rustix::net::connect(&socket, &address?));
    connected.is_ok()
}

fn is_there(path: &Path) -> bool {
    rustix::fs::lstat(path).err() != Some(Errno::NOENT)
}

/// Has programs look for the file that has taken the place of this one; returns the counters of then,
/// and their trees.
fn replace((file, old): (OwnedFd, Map)) -> Option<(Gaps, Vec<PathBuf>)> {
    // What whoever maps it says just now is announced as well.
    let replaced = ANNOUNCE | REPLACED;
    let _whoever_maps_it_looks_anew = pwrite(&file, &replaced.to_ne_bytes(), FLAGS_AT);
    let earlier = Gaps::earlier(&old.gaps, old.trees.len()).ok();
    let _nobody_else_finds_it = rustix::fs::unlink(&old.gaps);
    let trees = old.trees.into_iter().map(|tree| tree.path);
    Some((earlier?, trees.collect()))
}

/// A socket for messages, and how many may wait there.
fn listening(path: &Path) -> Result<(OwnedFd, u64), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let make = || {
        let made = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
        (made, queue_limit())
    };
    let (made, room) = with_room(make);
    let made = made?;
    set_socket_passcred(&made, true)?;
    set_socket_recv_buffer_size_force(&made, QUEUE_BYTES)
        .or_else(|_| set_socket_recv_buffer_size(&made, QUEUE_BYTES))?;
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    bind(&made, &SocketAddrUnix::new(path)?)?;
    // Sending takes the right to write (unix(7)).
    rustix::fs::chmod(path, Mode::from_raw_mode(0o666))?;
    Ok((made, room.unwrap_or_default()))
}

/// Messages that may wait at a socket that is made now.
fn queue_limit() -> Option<u64> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(QUEUE_LIMIT, flags, Mode::empty()).ok()?;
    let mut text = [0; 32];
    let length = rustix::io::pread(&file, &mut text[..], 0).ok()?;
    number(&text[..length])
}

/// A socket takes the limit of its queue when it is made; the node's is set back.
fn with_room<T>(make: impl FnOnce() -> T) -> T {
    let open = || rustix::fs::open(QUEUE_LIMIT, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let Ok(file) = open() else { return make() };
    let mut before = [0; 32];
    let length = rustix::io::pread(&file, &mut before[..], 0).unwrap_or_default();
    let has_less = is_less(&before[..length]);
    if has_less {
        let _as_it_was = pwrite(&file, QUEUE_MESSAGES, 0);
    }
    let made = make();
    if has_less {
        let _for_others = pwrite(&file, &before[..length], 0);
    }
    made
}

fn is_less(limit: &[u8]) -> bool {
    number(limit) < number(QUEUE_MESSAGES)
}

fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.trim().parse().ok()
}
