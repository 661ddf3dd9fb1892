//! The thread that looks for mirrors of this host which listen for posts.

use crate::book::Book;
use crate::hand;
use driftless_detect::post::{Line, NoMirror, SOCKET_SUFFIX};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, open, statat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

/// How often it is looked for new ones.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How an agent begins its name where it hears posts itself: no job has a space in it.
pub const AGENT: &str = "agent ";

/// Which socket stands at a path: its inode, and when that was changed.
type Socket = (u64, i64);

/// Looks into folders until all is over.
pub fn look_for_mirrors(folders: &[PathBuf], book: &Arc<Book>) {
    // Mirrors that nothing here concerns.
    let mut others: HashMap<PathBuf, Socket> = HashMap::new();
    loop {
        let mut found = HashMap::new();
        for folder in folders {
            found.extend(sockets(folder).unwrap_or_default());
        }
        others.retain(|path, socket| found.get(path) == Some(socket));
        let mut is_all = true;
        for (path, socket) in found {
            if others.contains_key(&path) || book.is_known(&path) {
                continue;
            }
            match found_at(&path, book) {
                Found::Concerned => {}
                Found::Unconcerned => drop(others.insert(path, socket)),
                Found::Unclear => is_all = false,
            }
        }
        if is_all {
            book.has_looked();
        }
        if book.pause(LOOK_EVERY) {
            return;
        }
    }
}

/// What listens at a socket.
enum Found {
    /// A mirror that is handed on to from here on, or nobody.
    Concerned,
    /// A mirror that nothing here concerns.
    Unconcerned,
    /// What it is cannot be told now.
    Unclear,
}

fn found_at(path: &Path, book: &Arc<Book>) -> Found {
    let line = match Line::connect(path) {
        Ok(line) => line,
        Err(why) => {
            tracing::debug!("{}: {why}", path.display());
            return match why {
                NoMirror::Silent(_) => Found::Concerned,
                NoMirror::Strange(_) => Found::Unclear,
            };
        }
    };
    let source = line.source().as_os_str().as_bytes().to_vec();
    let job = line.job().to_owned();
    // The mirror waits for nothing more.
    drop(line);
    if job.starts_with(AGENT) || !book.know(path, &job, &source) {
        return Found::Unconcerned;
    }
    tracing::info!("{job}: changes are reported to its mirror");
    let (path, known) = (path.to_owned(), book.clone());
    let hand = move || hand::hand_on(&path, &known);
    if let Err(error) = Builder::new().name("hand".into()).spawn(hand) {
        tracing::error!("{job}: cannot start a thread: {error}");
    }
    Found::Concerned
}

fn sockets(folder: &Path) -> Result<Vec<(PathBuf, Socket)>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = open(folder, flags, Mode::empty())?;
    let mut found = Vec::new();
    for entry in Dir::read_from(&dir)? {
        let name = entry?.file_name().to_owned();
        if !name.to_bytes().ends_with(SOCKET_SUFFIX.as_bytes()) {
            continue;
        }
        let Ok(stat) = statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Socket {
            let path = folder.join(OsStr::from_bytes(name.to_bytes()));
            found.push((path, (stat.st_ino, stat.st_ctime)));
        }
    }
    Ok(found)
}
