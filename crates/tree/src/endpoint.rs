//! Where a tree is: a path on this machine, or on another that is reached through a [`Host`].

use crate::{Completion, DirMutRef, HandlePool, Place, RootError, locate, locate_mut};
use driftless_model::{Side, escape};
use rustix::fs::{Access, Mode, OFlags, access, open};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;
use std::time::Duration;

/// Another machine whose trees are met through a connection.
pub trait Host: Send + Sync {
    /// What the user calls it.
    fn name(&self) -> &str;
    /// Which running machine it is. Where two hosts say the same, device and inode numbers mean the
    /// same on both.
    fn machine(&self) -> &[u8];
    /// Looks at what stands at `path` there. Symbolic links in the path and at its end are
    /// followed.
    fn locate(&self, path: &Path, side: Side) -> Result<Place, RootError>;
    /// Finds what stands at a path of a replica that may be changed.
    fn locate_mut(&self, path: &Path) -> Result<Place<DirMutRef>, RootError>;
    /// The next completions of what was submitted, with their tokens; none if none comes within
    /// `wait`.
    fn completions(&self, wait: Duration) -> Vec<(u64, Completion)>;
    /// The shortest time from a question to its answer, as far as it is known.
    fn round_trip(&self) -> Duration;
    /// Why the connection is lost, if it is.
    fn lost(&self) -> Option<Loss>;
}

/// A connection that was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Why, for a person.
    pub why: String,
    /// Whether connecting again may help: it may if the connection broke, and not if the other side
    /// did not keep to the protocol.
    pub is_mendable: bool,
}

/// A root as the user named it.
#[derive(Clone, Default)]
pub struct Endpoint {
    /// The machine; this one if `None`.
    pub host: Option<Arc<dyn Host>>,
    /// The path there.
    pub path: PathBuf,
}

impl From<PathBuf> for Endpoint {
    fn from(path: PathBuf) -> Self {
        Endpoint { host: None, path }
    }
}

impl Endpoint {
    /// Looks at what stands there.
    pub fn locate(&self, side: Side, pool: &Arc<HandlePool>) -> Result<Place, RootError> {
        match &self.host {
            None => locate(&self.path, side, pool),
            Some(host) => host.locate(&self.path, side),
        }
    }

    /// Looks at what stands there, in a replica that may be changed.
    ///
    /// # Errors
    /// It cannot be opened, or its directory cannot.
    pub fn locate_mut(&self, pool: &Arc<HandlePool>) -> Result<Place<DirMutRef>, RootError> {
        match &self.host {
            None => locate_mut(&self.path, pool),
            Some(host) => host.locate_mut(&self.path),
        }
    }

    /// The path in the form in which it is written down, to be recognised later: absolute if it is
    /// on this machine, and without parts that say nothing, such as a slash at its end.
    pub fn plain_path(&self) -> PathBuf {
        if self.host.is_none() {
            plain_path(&self.path)
        } else {
            self.path.components().collect()
        }
    }

    /// Another path on the same machine.
    pub fn at(&self, path: PathBuf) -> Self {
        Endpoint {
            host: self.host.clone(),
            path,
        }
    }

    /// Why the connection to its host is lost, if it is, with the host's name in front.
    pub fn lost(&self) -> Option<Loss> {
        let host = self.host.as_ref()?;
        let loss = host.lost()?;
        Some(Loss {
            why: format!("{}: {}", host.name(), loss.why),
            ..loss
        })
    }

    /// Returns whether it is on this machine, on a file system that is mounted read-only (`EROFS`,
    /// access(2)). Returns `false` for a path of another machine, and if access fails otherwise.
    pub fn is_read_only_here(&self) -> bool {
        self.host.is_none() && access(&self.path, Access::WRITE_OK) == Err(Errno::ROFS)
    }

    /// Which running machine it is on.
    pub fn machine(&self) -> Vec<u8> {
        self.host
            .as_ref()
            .map_or_else(this_machine, |host| host.machine().to_vec())
    }

    /// What the user typed, as bytes: `HOST:PATH` or a path.
    pub fn to_bytes(&self) -> Vec<u8> {
        let host = self
            .host
            .as_ref()
            .map(|host| [host.name().as_bytes(), b":"].concat())
            .unwrap_or_default();
        [&host, self.path.as_os_str().as_bytes()].concat()
    }
}

/// A path of this machine made absolute, without doubled slashes, `.` or a slash at its end.
/// Symbolic links and `..` stay as they are; so does a relative path if the current folder is not
/// known.
pub fn plain_path(path: &Path) -> PathBuf {
    absolute(path)
        .as_deref()
        .unwrap_or(path)
        .components()
        .collect()
}

/// The kernel's number of this boot (random(4), `/proc/sys/kernel/random/boot_id`), as text; empty
/// if it cannot be read. Within one boot, a device number means one device.
pub fn this_machine() -> Vec<u8> {
    let mut id = [0; 64];
    let path = c"/proc/sys/kernel/random/boot_id";
    let read = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|file| rustix::io::read(&file, &mut id));
    id[..read.unwrap_or(0)].trim_ascii().to_vec()
}

/// A random number of 128 bits, which nobody else has drawn. Never fails: where the kernel gives no
/// random numbers, one is drawn that others might guess.
pub fn random_id() -> u128 {
    random_secret().unwrap_or_else(|_| fastrand::u128(..))
}

/// A random number of 128 bits that nobody can guess. A call for so few bytes is never cut short
/// (getrandom(2)).
///
/// # Errors
/// The kernel gives no random numbers.
pub fn random_secret() -> Result<u128, Errno> {
    let mut secret = [0; 16];
    getrandom(&mut secret[..], GetRandomFlags::empty())?;
    Ok(u128::from_ne_bytes(secret))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&escape(&self.to_bytes()))
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self}")
    }
}
