//! The thread that hands on to one mirror what concerns it.
//!
//! Each batch has a connection of its own, so a mirror that was stopped, killed or begun anew is
//! noticed by the next one. What it has not taken is told again.

use crate::book::{Batch, Book};
use driftless_detect::post::{Line, NoMirror};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long it is waited for something to hand on before it is looked whether all is over.
const WAIT: Duration = Duration::from_secs(5);
/// A mirror that does not answer is tried again after this, then after twice as long.
const AWAY_FIRST: Duration = Duration::from_millis(50);
/// The longest wait for a mirror that does not answer.
const AWAY_MAX: Duration = Duration::from_secs(1);
/// A mirror that is away for so long is not known any more.
const FORGET_AFTER: Duration = Duration::from_secs(3600);

/// Why nothing was taken.
enum Untaken {
    /// The mirror does not answer.
    Away(NoMirror),
    /// Another mirror answers in its place.
    Another,
}

/// Hands on to the mirror at `socket` until it is not known any more, or all is over.
pub fn hand_on(socket: &Path, book: &Arc<Book>) {
    let mut pause = AWAY_FIRST;
    while let Some(batch) = book.next(socket, WAIT) {
        if !book.is_known(socket) {
            return;
        }
        match told(socket, book, &batch) {
            Ok(()) => {
                book.take(socket, batch.until);
                pause = AWAY_FIRST;
            }
            Err(Untaken::Another) => return book.forget(socket),
            Err(Untaken::Away(why)) => {
                let time = book.away(socket, why.to_string());
                if time > FORGET_AFTER {
                    tracing::warn!(
                        "{}: no mirror receives, and this daemon stops trying: {why}",
                        socket.display()
                    );
                    return book.forget(socket);
                }
                if book.pause(pause) {
                    return;
                }
                pause = (pause * 2).min(AWAY_MAX);
            }
        }
    }
}

fn told(socket: &Path, book: &Book, batch: &Batch) -> Result<(), Untaken> {
    if batch.posts.is_empty() {
        return Ok(());
    }
    let mut line = Line::connect(socket).map_err(Untaken::Away)?;
    if !book.is_of(socket, line.source().as_os_str().as_bytes()) {
        return Err(Untaken::Another);
    }
    for post in &batch.posts {
        let posted = line.post(post.sort, &post.path, post.from.as_deref());
        posted.map_err(Untaken::Away)?;
    }
    let taken = line.end().map_err(Untaken::Away)?;
    if taken.refused > 0 {
        tracing::warn!("{}: {} posts were refused", socket.display(), taken.refused);
    }
    Ok(())
}
