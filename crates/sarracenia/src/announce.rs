//! What is told of an entry that was seen at the source, or that became equal on a replica.
//!
//! A Sarracenia subscriber carries it out; Driftless looks at the paths that it names.

use crate::base::BaseUrl;
use crate::message::Message;
use crate::operation::Operation;
use driftless_model::{Kind, Meta, RelPath, Stamp};

/// What became of the entry at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// Where, below the root of the tree.
    pub path: RelPath,
    /// What.
    pub became: Became,
}

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Became {
    /// It stands there: it was made, written to, or has other attributes.
    Here(Standing),
    /// It was renamed, with all below it.
    Moved {
        /// Where it was.
        from: RelPath,
        /// What it is.
        now: Standing,
    },
    /// It is a further name of a file.
    Linked {
        /// A name that the file had before.
        of: RelPath,
        /// The file.
        file: About,
    },
    /// It was removed.
    Gone {
        /// It was a directory.
        was_directory: bool,
    },
    /// It is a directory, and all below it may differ: nobody knows what has changed there.
    Below(About),
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// A regular file.
    File(About),
    /// A directory.
    Directory(About),
    /// A symbolic link.
    Symlink {
        /// Where it leads, as it says itself.
        target: Vec<u8>,
    },
}

/// What a message says of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// Size in bytes; of a directory nothing is said.
    pub size: u64,
    /// Permission bits with setuid, setgid and sticky (07777).
    pub mode: u32,
    /// Last modification.
    pub mtime: Stamp,
    /// Last access.
    pub atime: Stamp,
}

impl From<&Meta> for About {
    fn from(meta: &Meta) -> About {
        About {
            size: meta.size,
            mode: meta.mode,
            mtime: meta.mtime,
            atime: meta.atime,
        }
    }
}

impl Standing {
    /// What stands there by its metadata and, of a symbolic link, its target; `None` for what has
    /// no message: a link without its target, a named pipe, a socket, a device.
    pub fn of(meta: &Meta, target: Option<&[u8]>) -> Option<Standing> {
        match meta.kind {
            Kind::File => Some(Standing::File(meta.into())),
            Kind::Dir => Some(Standing::Directory(meta.into())),
            Kind::Symlink => Some(Standing::Symlink {
                target: target?.to_vec(),
            }),
            Kind::Fifo | Kind::Socket | Kind::Char | Kind::Block => None,
        }
    }
}

/// The message that tells it, published at `now`, of the tree that is called `base`.
pub fn announce(announced: &Announced, base: &BaseUrl, now: Stamp) -> Message {
    let message = Message::new(now, base.trimmed(), announced.path.clone());
    let other = |path| other_path(path, announced, base);
    match &announced.became {
        Became::Here(standing) => stands(message, standing, Operation::default()),
        Became::Moved { from, now } => {
            let operation = Operation {
                rename: Some(other(from)),
                ..Operation::default()
            };
            stands(message, now, operation)
        }
        Became::Linked { of, file } => {
            let operation = Operation {
                hlink: Some(other(of)),
                ..Operation::default()
            };
            done(about_file(message, file), operation)
        }
        Became::Gone { was_directory } => {
            let operation = Operation {
                remove: true,
                directory: *was_directory,
                ..Operation::default()
            };
            done(message, operation)
        }
        Became::Below(directory) => {
            let standing = Standing::Directory(*directory);
            Message {
                is_below: true,
                ..stands(message, &standing, Operation::default())
            }
        }
    }
}

fn stands(message: Message, standing: &Standing, operation: Operation) -> Message {
    match standing {
        Standing::File(file) if operation == Operation::default() => about_file(message, file),
        Standing::File(file) => done(about_file(message, file), operation),
        Standing::Directory(directory) => {
            let operation = Operation {
                directory: true,
                ..operation
            };
            done(about(message, directory), operation)
        }
        Standing::Symlink { target } => {
            let operation = Operation {
                link: Some(target.clone()),
                ..operation
            };
            done(message, operation)
        }
    }
}

fn done(message: Message, operation: Operation) -> Message {
    Message {
        file_op: Some(operation),
        ..message
    }
}

fn about_file(message: Message, file: &About) -> Message {
    Message {
        size: Some(file.size),
        ..about(message, file)
    }
}

fn about(message: Message, about: &About) -> Message {
    Message {
        mode: Some(about.mode),
        mtime: Some(about.mtime),
        atime: Some(about.atime),
        ..message
    }
}

/// Another path as Sarracenia finds it: it replaces the path of the base URL at its beginning by
/// its own directory. Where the base URL has none, the path goes up from the directory of the entry
/// that the message is about, since Sarracenia works there.
fn other_path(path: &RelPath, announced: &Announced, base: &BaseUrl) -> Vec<u8> {
    if !base.path().is_root() {
        return [b"/", base.absolute(path).as_bytes()].concat();
    }
    let depth = announced.path.names().count().saturating_sub(1);
    [&b"../".repeat(depth)[..], path.as_bytes()].concat()
}
