//! What all shims of a node say, tree by tree.

use crate::budget::Budgets;
use crate::folder::{Folder, Opened, SpoolError};
use crate::left::Left;
use crate::message::{MESSAGE_BYTES_MAX, Message, Now, changes, left};
use driftless_detect::{Base, Seen};
use rustix::cmsg_space;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, lstat};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, Shutdown, UCred, recvmsg,
    shutdown,
};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Messages that are heard at once.
const MESSAGES_AT_ONCE: usize = 1024;
/// Messages that can wait where it does no harm to hear them some milliseconds late.
const MUCH_ROOM: u64 = 1024;
/// How often it is looked what programs have written that were not heard.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Shims that announce what changes in trees.
#[derive(Debug)]
pub struct Shims {
    opened: Opened,
    trees: Vec<Base>,
    buffer: Vec<u8>,
    looked: Option<Instant>,
    budgets: Budgets,
    left: Left,
    /// What was written is looked at with the next messages; what is left as well, if that is true.
    is_asked: Option<bool>,
    is_ending: bool,
    began: Instant,
}

/// What was heard at once.
#[derive(Debug, Default)]
pub struct Told {
    /// Changes, each with the number of its tree.
    pub seen: Vec<(usize, Seen)>,
    /// Trees in which more has changed than was told.
    pub missed: Vec<usize>,
    /// How many messages were read.
    pub messages: usize,
    /// Of these, how many made no sense.
    pub unread: u64,
    /// Of these, how many were not heard, since their user says too much; their trees are among
    /// those in which something was missed.
    pub dropped: u64,
    /// Everything is among these that was sent before the call.
    pub is_all: bool,
}

impl Told {
    /// Whether nothing was heard, and nothing missed.
    pub fn is_nothing(&self) -> bool {
        self.messages == 0 && self.missed.is_empty() && self.seen.is_empty()
    }
}

impl Shims {
    /// Has shims announce what changes in these trees: absolute paths without links.
    ///
    /// # Errors
    /// Something cannot be made.
    pub fn listen(folder: &Folder, trees: &[PathBuf]) -> Result<Shims, SpoolError> {
        let opened = folder.open(trees)?;
        let base = |path: &PathBuf| Base::new(path.as_os_str().as_bytes());
        Ok(Shims {
            opened,
            trees: trees.iter().map(base).collect(),
            buffer: vec![0; MESSAGE_BYTES_MAX],
            looked: None,
            budgets: Budgets::default(),
            left: Left::default(),
            is_asked: None,
            is_ending: false,
            began: Instant::now(),
        })
    }

    /// Where it is to be waited for messages; what was written is looked at each second.
    pub fn ready(&self) -> (BorrowedFd<'_>, Duration) {
        (self.opened.socket.as_fd(), LOOK_EVERY)
    }

    /// Whether so many messages can wait that it does no harm to look for them now and then only.
    pub fn has_much_room(&self) -> bool {
        self.opened.room >= MUCH_ROOM
    }

    /// What there is to be heard now; does not wait for more.
    ///
    /// # Errors
    /// The socket fails.
    pub fn hear(&mut self) -> Result<Told, Errno> {
        let mut told = Told::default();
        let now = self.began.elapsed();
        while told.messages < MESSAGES_AT_ONCE {
            match receive(&self.opened.socket, &mut self.buffer) {
                Ok((length, sender)) => self.take_in(length, sender, now, &mut told),
                Err(Errno::AGAIN) => {
                    told.is_all = true;
                    break;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        let asked = self.is_asked.take();
        let is_due = self.looked.is_none_or(|last| last.elapsed() >= LOOK_EVERY);
        if is_due || asked.is_some() {
            let due = match asked {
                Some(true) => self.left.all(now),
                _ => self.left.due(now),
            };
            for message in due {
                add(&self.trees, &message, true, &mut told);
            }
            self.look(&mut told);
        }
        if self.is_ending {
            for message in self.left.take_all() {
                add(&self.trees, &message, false, &mut told);
            }
        }
        Ok(told)
    }

    /// Takes in a message of so many bytes.
    fn take_in(&mut self, length: usize, sender: Option<UCred>, now: Duration, told: &mut Told) {
        let is_heard = self.is_heard(sender.map(|who| who.uid.as_raw()), now);
        let message = &mut self.buffer[..length];
        let is_left = left(message);
        let before = told.seen.len();
        tell(&self.trees, message, is_heard, told);
        let is_meant = is_left && told.seen.len() > before;
        let keeps = |who: UCred| self.left.keep(who.pid, message, now);
        if is_meant && !sender.is_some_and(keeps) {
            add(&self.trees, message, false, told);
        }
    }

    /// Root and the agent's own user are always heard; who cannot be told is not.
    fn is_heard(&mut self, user: Option<u32>, now: Duration) -> bool {
        let own = rustix::process::geteuid().as_raw();
        user.is_some_and(|user| user == 0 || user == own || self.budgets.allow(user, now))
    }

    /// Has what was written looked at with the next messages, whenever that was done last; with
    /// `takes_left`, what programs have left open is told as well.
    pub fn look_now(&mut self, takes_left: bool) {
        self.is_asked = Some(takes_left);
    }

    /// Nobody is listened to any more: what is said from now on is written. What was said before is
    /// still to be heard, until nothing is.
    pub fn end(&mut self) {
        self.is_ending = true;
        let _nobody_else_sends = shutdown(&self.opened.socket, Shutdown::Read);
    }

    /// What was heard is kept, and nothing is left to be heard: the next agent has missed nothing.
    pub fn ended(self) {
        let _it_may_be_gone = rustix::fs::unlink(&self.opened.at);
    }

    /// Reads what was written, and what was counted.
    fn look(&mut self, told: &mut Told) {
        let has_missed = self.looked.is_none() && self.opened.has_missed;
        self.looked = Some(Instant::now());
        let all = 0..self.trees.len();
        let has_more = match self.opened.spool.take() {
            Ok(spooled) => {
                let messages = spooled.messages.iter();
                messages.for_each(|message| tell(&self.trees, message, true, told));
                spooled.has_more
            }
            Err(errno) => {
                tracing::warn!("{}: {errno}", self.opened.spool.path().display());
                true
            }
        };
        let moved = self.opened.look_at_devices();
        if has_missed || has_more {
            told.missed.extend(all);
        } else {
            told.missed.extend(self.opened.gaps.counted());
            told.missed.extend(self.counted_earlier());
            // On what was mounted just now, programs have announced nothing yet.
            told.missed.extend(moved);
        }
    }

    /// Trees of which programs have counted gaps where an earlier agent had them count.
    fn counted_earlier(&mut self) -> Vec<usize> {
        let Some((gaps, trees)) = &mut self.opened.earlier else {
            return Vec::new();
        };
        let counted = gaps.counted().into_iter().map(|number| {
            let path = Base::new(trees[number].as_os_str().as_bytes());
            self.trees.iter().position(|tree| *tree == path)
        });
        counted.flatten().collect()
    }
}

/// The next message, and who sends it: the kernel says so (unix(7), `SCM_CREDENTIALS`).
fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Result<(usize, Option<UCred>), Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmCredentials(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut parts, &mut beside, flags)?;
    let sender = beside.drain().find_map(|one| match one {
        RecvAncillaryMessage::ScmCredentials(who) => Some(who),
        _ => None,
    });
    // One that is longer than any that makes sense makes none.
    let is_whole = !received.flags.contains(ReturnFlags::TRUNC);
    Ok((if is_whole { received.bytes } else { 0 }, sender))
}

/// Takes in what a message says, and counts it.
fn tell(trees: &[Base], message: &[u8], is_heard: bool, told: &mut Told) {
    told.messages += 1;
    match add(trees, message, is_heard, told) {
        None => told.unread += 1,
        Some(()) => told.dropped += u64::from(!is_heard),
    }
}

/// Adds what a message says; of one that is not heard, only that something was said of a tree.
/// `None` if it makes no sense.
fn add(trees: &[Base], message: &[u8], is_heard: bool, told: &mut Told) -> Option<()> {
    let message = Message::read(message)?;
    for (number, tree) in trees.iter().enumerate() {
        let seen = changes(&message, tree, look);
        if is_heard {
            told.seen
                .extend(seen.into_iter().map(|seen| (number, seen)));
        } else if !seen.is_empty() && !told.missed.contains(&number) {
            told.missed.push(number);
        }
    }
    Some(())
}

fn look(path: &[u8]) -> Now {
    match lstat(path).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::Directory) => Now::Dir,
        Ok(_) => Now::File,
        Err(_) => Now::Nothing,
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "folders of these tests")]
mod tests {
    use super::*;
    use driftless_model::RelPath;
    use rustix::fs::{Mode, OFlags};
    use rustix::io::pwrite;
    use std::fs;
    use std::os::unix::net::UnixDatagram;

    struct Node {
        place: tempfile::TempDir,
        folder: Folder,
        trees: Vec<PathBuf>,
    }

    fn node() -> Node {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder {
            map: place.path().join("map"),
            spool: place.path().join("spool"),
        };
        let trees = ["a", "b"].map(|name| place.path().join(name)).to_vec();
        Node {
            place,
            folder,
            trees,
        }
    }

    impl Node {
        fn listen(&self) -> Shims {
            Shims::listen(&self.folder, &self.trees).unwrap()
        }

        /// What a program says, and whether it was taken.
        fn say(&self, kind: char, path: &str) -> bool {
            let path = self.place.path().join(path);
            let message = format!("DS1{kind}{}\0", path.display());
            let socket = self.place.path().join("map.socket");
            let sent = UnixDatagram::unbound().unwrap();
            sent.send_to(message.as_bytes(), socket).is_ok()
        }

        fn counters(&self) -> Vec<PathBuf> {
            let entries = fs::read_dir(self.place.path()).unwrap();
            let paths = entries.map(|entry| entry.unwrap().path());
            let is_one = |path: &PathBuf| path.to_string_lossy().contains("map.gaps-");
            paths.filter(is_one).collect()
        }
    }

    /// Names of trees, and paths in them.
    fn heard(shims: &mut Shims) -> Vec<(usize, String)> {
        let told = shims.hear().unwrap();
        let text = |path: &RelPath| String::from_utf8_lossy(path.as_bytes()).into_owned();
        let seen = told.seen.iter();
        seen.map(|(tree, seen)| (*tree, text(&seen.change.path)))
            .collect()
    }

    #[test]
    fn what_is_said_is_heard_of_the_tree_that_it_is_in() {
        let node = node();
        let mut shims = node.listen();
        for path in ["a/x", "b/y/z", "c/x", "ab"] {
            assert!(node.say('w', path));
        }
        let both = [(0, "x".to_owned()), (1, "y/z".to_owned())];
        assert_eq!(heard(&mut shims), both);
        assert_eq!(node.folder.is_announced(), (true, true));
        assert_eq!(node.folder.trees(), node.trees);
    }

    #[test]
    fn what_a_program_leaves_is_told_at_once_and_missed_when_nobody_waits_for_it_any_more() {
        let node = node();
        let mut shims = node.listen();
        assert_eq!(shims.hear().unwrap().missed, [0, 1], "it is new");
        assert!(node.say('l', "b/x") && node.say('l', "c/x"));
        assert_eq!(heard(&mut shims), [(1, "x".to_owned())]);
        shims.end();
        let told = shims.hear().unwrap();
        assert_eq!((told.messages, told.missed), (0, vec![1]));
        assert!(shims.hear().unwrap().is_nothing());
    }

    #[test]
    fn only_after_a_clean_end_nothing_is_missed() {
        let node = node();
        assert_eq!(node.listen().hear().unwrap().missed, [0, 1], "it is new");
        let mut killed = node.listen();
        assert_eq!(killed.hear().unwrap().missed, [0, 1], "it was dropped");
        assert!(node.say('w', "a/x"));
        killed.end();
        assert!(!node.say('w', "a/y"), "nobody listens any more");
        assert_eq!(heard(&mut killed), [(0, "x".to_owned())]);
        killed.ended();
        assert_eq!(node.folder.is_announced(), (true, false));
        let mut next = node.listen();
        assert_eq!(next.hear().unwrap().missed, [0; 0]);
        assert!(node.say('w', "a/y"));
    }

    #[test]
    fn there_is_one_agent_at_a_time() {
        let node = node();
        let shims = node.listen();
        let told = Shims::listen(&node.folder, &node.trees).unwrap_err();
        assert!(matches!(told, SpoolError::Taken(_)), "{told}");
        let told = node.folder.end().unwrap_err();
        assert!(matches!(told, SpoolError::Taken(_)), "{told}");
        drop(shims);
        node.folder.end().unwrap();
        assert_eq!(node.folder.is_announced(), (false, false));
        assert!(node.counters().is_empty());
    }

    #[test]
    fn no_two_agents_read_one_spool() {
        let node = node();
        let shims = node.listen();
        let other = Folder {
            map: node.place.path().join("other"),
            ..node.folder.clone()
        };
        let told = Shims::listen(&other, &node.trees).unwrap_err();
        assert!(matches!(told, SpoolError::SpoolTaken(_)), "{told}");
        drop(shims);
        Shims::listen(&other, &node.trees).unwrap();
    }

    #[test]
    fn what_is_no_map_is_not_written_over() {
        let node = node();
        let map = &node.folder.map;
        let refused = |what: &str| {
            let told = Shims::listen(&node.folder, &node.trees).unwrap_err();
            assert!(matches!(told, SpoolError::NoMap(_)), "{what}: {told}");
            node.folder.end().unwrap();
        };
        fs::write(map, "years of work").unwrap();
        refused("a file");
        assert_eq!(fs::read(map).unwrap(), b"years of work");
        fs::remove_file(map).unwrap();
        std::os::unix::fs::symlink("elsewhere", map).unwrap();
        refused("a link");
        fs::remove_file(map).unwrap();
        fs::create_dir(map).unwrap();
        refused("a directory");
        fs::remove_dir(map).unwrap();
        fs::write(map, "").unwrap();
        node.listen();
    }

    #[test]
    fn a_gap_that_is_counted_where_an_earlier_agent_looked_is_known() {
        let mut node = node();
        let mut first = node.listen();
        first.hear().unwrap();
        let counters = node.counters().remove(0);
        let open = || rustix::fs::open(&counters, OFlags::WRONLY, Mode::empty()).unwrap();
        let (early, late) = (open(), open());
        first.end();
        first.ended();
        pwrite(&early, &1u64.to_ne_bytes(), 8).unwrap();
        node.trees.reverse();
        let mut next = node.listen();
        assert_eq!(
            next.hear().unwrap().missed,
            [0],
            "the second is the first now"
        );
        pwrite(&late, &1u64.to_ne_bytes(), 0).unwrap();
        next.looked = None;
        next.opened.has_missed = false;
        assert_eq!(next.hear().unwrap().missed, [1]);
        assert_eq!(node.counters().len(), 1);
    }
}
