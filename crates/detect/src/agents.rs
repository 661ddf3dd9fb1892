//! Agents of this host (`driftless watch`), as a mirror asks them to deliver what they have heard.
//!
//! An agent takes in what programs, the kernel and users say, keeps it, and posts it to the mirrors
//! that listen in a folder. A barrier has to cover what the agent has not posted yet. So each agent
//! registers in that folder: a file says which trees it hears, and at which socket it is asked. The
//! file stays when the agent is killed, so a mirror knows that something is not delivered.
//!
//! ```text
//! NAME.agent:  driftless-agent 1 NUL  name NUL  socket NUL  tree NUL  tree NUL ...
//! question:    a line of JSON, one [`Question`]
//! answer:      lines of JSON, [`Delivery`] each, until `done`
//! ```

mod courier;

pub(crate) use courier::Courier;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, open, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The end of the name of a registration.
const SUFFIX: &str = ".agent";
/// The first word of a registration, with the version of its form.
const GREETING: &[u8] = b"driftless-agent 1";
/// Bytes of the longest registration: a hundred trees, with the longest paths.
const BYTES_MAX: u64 = 1 << 20;

/// A question to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Question {
    /// The agent answers with its status.
    Status,
    /// The agent delivers to one mirror everything that it was told before.
    Deliver {
        /// The socket at which the mirror listens for posts, as bytes.
        mirror: Vec<u8>,
        /// A user waits for the answer.
        is_awaited: bool,
    },
}

/// One line of an agent's answer to [`Question::Deliver`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Delivery {
    /// Something is not delivered yet.
    Waiting {
        /// The part of the agent that cannot hear, and the cause, if there is one.
        why: Option<String>,
    },
    /// The mirror has taken everything.
    Done,
}

/// An agent, as it registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Its name.
    pub name: String,
    /// The socket at which it answers.
    pub socket: PathBuf,
    /// Its trees: absolute paths without symbolic links.
    pub trees: Vec<PathBuf>,
}

impl Registration {
    fn bytes(&self) -> Vec<u8> {
        let head = [
            GREETING,
            self.name.as_bytes(),
            self.socket.as_os_str().as_bytes(),
        ];
        let trees = self.trees.iter().map(|tree| tree.as_os_str().as_bytes());
        let words = head.into_iter().chain(trees);
        words.flat_map(|word| [word, b"\0"].concat()).collect()
    }

    fn read(bytes: &[u8]) -> Option<Registration> {
        let mut words = bytes.strip_suffix(b"\0")?.split(|byte| *byte == 0);
        let path = |word: &[u8]| PathBuf::from(OsString::from_vec(word.to_vec()));
        (words.next()? == GREETING).then_some(())?;
        Some(Registration {
            name: String::from_utf8_lossy(words.next()?).into_owned(),
            socket: path(words.next()?),
            trees: words.map(path).collect(),
        })
    }

    fn concerns(&self, source: &[u8]) -> bool {
        let mut trees = self.trees.iter();
        trees.any(|tree| concerns(tree.as_os_str().as_bytes(), source))
    }
}

/// Registers an agent with the mirrors that listen in a folder.
///
/// # Errors
/// The file cannot be written.
pub fn register(folder: &Path, agent: &Registration) -> io::Result<()> {
    let place = place(folder, &agent.name);
    let mut file = tempfile::Builder::new().tempfile_in(folder)?;
    file.write_all(&agent.bytes())?;
    file.persist(place)?;
    Ok(())
}

/// Removes the registration of an agent that delivers nothing any more.
///
/// # Errors
/// The file cannot be removed.
pub fn unregister(folder: &Path, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(CWD, place(folder, name), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn place(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}{SUFFIX}"))
}

/// Returns the agents that are registered in a folder by root or this user, and hear what concerns
/// the source.
fn concerned(folder: &Path, source: &[u8]) -> Result<Vec<Registration>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = open(folder, flags, Mode::empty())?;
    let mut found = Vec::new();
    for entry in Dir::read_from(&dir)? {
        let name = entry?.file_name().to_owned();
        if !name.to_bytes().ends_with(SUFFIX.as_bytes()) {
            continue;
        }
        let Ok(stat) = statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || stat.st_uid != 0 && stat.st_uid != geteuid().as_raw() {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut bytes = Vec::new();
        let read = openat(&dir, &name, flags, Mode::empty())
            .map_err(io::Error::from)
            .and_then(|file| File::from(file).take(BYTES_MAX).read_to_end(&mut bytes));
        let registered = read.ok().and_then(|_| Registration::read(&bytes));
        found.extend(registered.filter(|agent| agent.concerns(source)));
    }
    Ok(found)
}

/// Returns whether what changes in a tree may concern a source.
pub fn concerns(tree: &[u8], source: &[u8]) -> bool {
    let (tree, source) = (trimmed(tree), trimmed(source));
    is_within(tree, source) || is_within(source, tree)
}

/// Returns whether `path` is at `above`, or below it. Both are absolute, without a slash at the end.
pub fn is_within(path: &[u8], above: &[u8]) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Returns a path without slashes at the end: nothing is left of the root.
pub fn trimmed(path: &[u8]) -> &[u8] {
    let last = path.iter().rposition(|byte| *byte != b'/');
    &path[..last.map_or(0, |last| last + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let agent = |name: &str, trees: &[&str]| Registration {
            name: name.to_owned(),
            socket: folder.path().join("state.socket"),
            trees: trees.iter().map(PathBuf::from).collect(),
        };
        let both = [
            agent("node", &["/data", "/two\nlines"]),
            agent("other", &["/b"]),
        ];
        for one in &both {
            register(folder.path(), one).unwrap();
        }
        let found = |source: &[u8]| concerned(folder.path(), source).unwrap();
        assert_eq!(found(b"/data/a"), both[..1]);
        assert_eq!(found(b"/two\nlines"), both[..1]);
        assert_eq!(found(b"/").len(), 2);
        assert_eq!(found(b"/dat"), []);
        unregister(folder.path(), "node").unwrap();
        unregister(folder.path(), "node").unwrap();
        assert_eq!(found(b"/"), both[1..]);
        for nonsense in [&b""[..], b"driftless-agent 1", b"driftless-agent 2\0a\0b\0"] {
            assert_eq!(Registration::read(nonsense), None);
        }
    }

    #[test]
    fn a_tree_concerns_what_is_in_it_and_what_it_is_in() {
        for (tree, source, is_so) in [
            ("/a", "/a", true),
            ("/a", "/a/b", true),
            ("/a/b", "/a", true),
            ("/", "/a", true),
            ("/a", "/", true),
            ("/a", "/ab", false),
            ("/a/b", "/a/c", false),
        ] {
            assert_eq!(concerns(tree.as_bytes(), source.as_bytes()), is_so);
        }
    }
}
