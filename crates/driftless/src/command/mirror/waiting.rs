//! What is told to somebody who waits for a mirror: why it takes so long, if something is in the
//! way.

use crate::output::mirror as say;
use driftless_mirror::ask::{Answer, Ask};
use driftless_mirror::control;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Whoever waits longer is told why, and told again when that changes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks what is answered only when something is done, and tells meanwhile what is in the way. The
/// user names the job so.
pub fn ask(socket: &Path, question: &Ask, named: &str) -> std::io::Result<Answer> {
    let waits = match question {
        Ask::Barrier { .. } => true,
        Ask::SyncNow { wait, .. } => *wait,
        _ => false,
    };
    if !waits {
        return control::ask(socket, question);
    }
    let (_answered, over) = channel();
    let (at, named) = (PathBuf::from(socket), named.to_owned());
    // It ends with the answer, or with the process.
    let _watcher = thread::spawn(move || tell(&at, &named, &over));
    control::ask(socket, question)
}

fn tell(socket: &Path, named: &str, over: &Receiver<()>) {
    let mut told = None;
    while over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        let Some(why) = in_the_way(socket, named) else {
            return;
        };
        if why.is_some() && why != told {
            say::complaint(&format!("waiting: {}", why.as_deref().unwrap_or_default()));
        }
        told = why;
    }
}

/// What is in the way now, if something is; `None` where nobody is there to be asked.
fn in_the_way(socket: &Path, named: &str) -> Option<Option<String>> {
    match control::ask_within(socket, &Ask::Status, Some(PATIENCE)) {
        Ok(Answer::Status(replicas)) => {
            let in_the_way = |status| say::in_the_way(status, named);
            Some(replicas.iter().find_map(in_the_way))
        }
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            Some(Some("its mirror does not answer".into()))
        }
        _ => None,
    }
}
