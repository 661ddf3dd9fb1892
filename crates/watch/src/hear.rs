//! The threads that hear: one for all shims, one for each tree that the kernel tells of, and one for
//! each tree that users post about.

use crate::heard::Heard;
use crate::rounds::Outlet;
use driftless_detect::fanotify::{Unwatched, Watch, Writer};
use driftless_detect::post::Posts;
use driftless_detect::{Deaf, Detector, Waker};
use driftless_spool::{Shims, Told};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who cannot hear tries again after so long.
const DEAF_PAUSE: Duration = Duration::from_secs(5);
/// For so long after something was heard, there is probably more soon.
const AWAKE: Duration = Duration::from_secs(1);
/// How often it is looked then whether there is.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// What a program is called that is gone by now.
const ENDED: &str = "(ended)";
/// Bytes of the name of a program (proc(5), `/proc/pid/comm`), and more.
const NAME_BYTES: usize = 64;

/// Hears shims of so many trees until `waker` says that it is over, and all that was said before was heard.
pub fn hear_shims(mut shims: Shims, trees: usize, waker: &Waker, outlet: &mut Outlet) -> Shims {
    let mut is_ending = false;
    let mut was_failing = false;
    let mut last: Option<Instant> = None;
    loop {
        if waker.is_stopping() && !is_ending {
            shims.end();
            is_ending = true;
        }
        let asked = outlet.asked();
        if let Some((_, is_awaited)) = asked {
            shims.look_now(is_awaited);
        }
        let heard = shims.hear();
        let is_failing = heard.is_err();
        let is_nothing = heard.as_ref().is_ok_and(|told| told.messages == 0);
        let has_news = heard.as_ref().is_ok_and(|told| !told.is_nothing());
        let is_told = has_news || is_failing || was_failing;
        let is_all = heard.as_ref().is_ok_and(|told| told.is_all);
        let is_over =
            is_told && !outlet.send(heard_of(heard, trees)) || is_all && !outlet.report(asked);
        if is_over || is_ending && (is_nothing || is_failing) {
            return shims;
        }
        was_failing = is_failing;
        if !is_nothing && !is_failing {
            last = Some(Instant::now());
            continue;
        }
        if let Err(error) = wait(&shims, waker, is_failing, last) {
            tracing::error!("shims: cannot wait for messages: {error}");
            std::thread::sleep(DEAF_PAUSE);
        }
    }
}

/// Waits until there may be something to hear. A program that announces pays for waking whoever
/// sleeps at the socket. So while programs announce, nobody does: it is looked there each
/// millisecond.
fn wait(
    shims: &Shims,
    waker: &Waker,
    is_failing: bool,
    last: Option<Instant>,
) -> Result<(), Errno> {
    if is_failing {
        return waker.wait(None, Some(DEAF_PAUSE));
    }
    let is_awake = last.is_some_and(|last| last.elapsed() < AWAKE);
    if is_awake && shims.has_much_room() {
        return waker.wait(None, Some(LOOK_EVERY));
    }
    let (socket, time) = shims.ready();
    waker.wait(Some(socket), Some(time))
}

fn heard_of(told: Result<Told, Errno>, trees: usize) -> Heard {
    let deaf = told.as_ref().err().map(|error| {
        tracing::error!("shims: cannot read messages: {error}");
        error.to_string()
    });
    let told = told.unwrap_or_else(|_| Told {
        missed: (0..trees).collect(),
        ..Told::default()
    });
    Heard {
        seen: told.seen,
        missed: told.missed,
        messages: told.messages as u64,
        unread: told.unread,
        dropped: told.dropped,
        is_announced: true,
        deaf: Some(("shim".into(), deaf)),
        ..Heard::default()
    }
}

/// A tree of which the kernel tells.
pub struct Watched {
    /// Its number.
    pub tree: usize,
    /// What tells.
    pub watch: Watch,
}

impl Watched {
    /// Begins to watch the tree of this number at a path.
    ///
    /// # Errors
    /// The kernel does not tell of it.
    pub fn begin(tree: usize, path: &Path) -> Result<Watched, Unwatched> {
        let mut watch = Watch::begin(path, true)?;
        watch.tell_writers();
        Ok(Watched { tree, watch })
    }

    /// What ends it.
    pub fn waker(&self) -> Arc<Waker> {
        Watch::waker(&self.watch)
    }

    /// Hears until the waker says that it is over, or nothing more is told for good.
    pub fn hear(mut self, outlet: &mut Outlet) {
        let waker = self.waker();
        while !waker.is_stopping() {
            let asked = outlet.asked();
            let (heard, is_all) = match self.hear_once() {
                Ok(heard) => heard,
                Err(deaf) => return self.end(&deaf, outlet),
            };
            let is_nothing = heard.events == 0;
            if !outlet.send(heard) || !outlet.report(asked.filter(|_| is_all)) {
                return;
            }
            if is_nothing && let Err(deaf) = Detector::wait(&mut self.watch) {
                return self.end(&deaf, outlet);
            }
        }
    }

    /// Says that the kernel is not heard any more.
    fn end(&self, deaf: &Deaf, outlet: &Outlet) {
        tracing::error!("{deaf}: events of the kernel are not received any more");
        let heard = Heard {
            missed: vec![self.tree],
            deaf: Some(("fanotify".into(), Some(deaf.to_string()))),
            ..Heard::default()
        };
        let _the_agent_may_have_ended = outlet.send(heard);
    }

    /// Hears what there is; the second value says that everything from before the call is in it.
    fn hear_once(&mut self) -> Result<(Heard, bool), Deaf> {
        let told = Detector::hear(&mut self.watch)?;
        if told.is_nothing() {
            return Ok((Heard::default(), true));
        }
        let tree = self.tree;
        let own = std::process::id().cast_signed();
        let writers = self.watch.take_writers().into_iter();
        let written = writers
            .filter(|writer| writer.process != own)
            .map(|Writer { path, process }| (tree, path, program(process)));
        let heard = Heard {
            written: written.collect(),
            seen: told.seen.into_iter().map(|seen| (tree, seen)).collect(),
            missed: told.missed.map(|_| tree).into_iter().collect(),
            events: told.events as u64,
            ..Heard::default()
        };
        Ok((heard, told.is_all))
    }
}

/// Hears what users post of the tree of this number, until the waker of `posts` says that it is over.
pub fn hear_posts(mut posts: Posts, tree: usize, outlet: &mut Outlet) {
    let waker = posts.waker();
    loop {
        let asked = outlet.asked();
        let told = match posts.hear() {
            Ok(told) => told,
            Err(deaf) => {
                tracing::error!("{deaf}: posts are not received any more");
                let heard = Heard {
                    missed: vec![tree],
                    deaf: Some(("posts".into(), Some(deaf.to_string()))),
                    ..Heard::default()
                };
                let _nobody_may_listen = outlet.send(heard);
                return;
            }
        };
        if told.is_nothing() {
            if !outlet.report(asked) || waker.is_stopping() || posts.wait().is_err() {
                return;
            }
            continue;
        }
        let heard = Heard {
            posts: told.seen.len() as u64,
            seen: told.seen.into_iter().map(|seen| (tree, seen)).collect(),
            ..Heard::default()
        };
        if !outlet.send(heard) {
            return;
        }
    }
}

/// The name of the program that a process runs, if it still does.
fn program(process: i32) -> String {
    let path = format!("/proc/{process}/comm");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut name = [0; NAME_BYTES];
    let read =
        open(path, flags, Mode::empty()).and_then(|file| rustix::io::read(&file, &mut name[..]));
    match read {
        Ok(length) if length > 0 => {
            String::from_utf8_lossy(name[..length].trim_ascii_end()).into_owned()
        }
        _ => ENDED.into(),
    }
}
