//! Collection of results from one node: seal, copy with the rights of the user, discard.
//!
//! `driftless sync` runs as the user and reads from an agent on the node, which runs as the user as
//! well. This process carries their bytes, and believes neither. Only after the run reported that all
//! is equal and durable does the node remove anything.

use crate::distribution::{
    CollectGuard, CollectMove, CollectOrder, CollectOutcome, CollectedResults,
};
use crate::places::BusyPlaces;
use crate::relay_socket::RelaySocket;
use crate::tried::TriedResults;
use crate::user_run::{STOPPED, complaint, run, run_well};
use crate::users::User;
use driftless_cast::{
    CastNode, OrderFault, OrderSettings, OutboxReader, Pace, SealMove, SealOutcome, SealedPath,
    discard_outbox, relay_outbox, seal_outbox, sealed_at_once, sealed_names,
};
use rustix::net::sockopt::socket_peercred;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Pause between two looks at a socket.
const TICK: Duration = Duration::from_millis(5);
/// Pause between two questions whether a task ended that began again.
const AGAIN: Duration = Duration::from_secs(2);
/// Makes the directories of the destination with mode 0700 if they are missing, and prints owner and
/// mode of the last one. The directories below the first one are those whose names the user
/// did not choose: another user could have made them, to read or redirect the results.
const PREPARE: &str = r#"umask 022
own=$1 fixed=$2 base=$3; shift 3
[ -d "$fixed" ] || mkdir -p -- "$fixed" || exit
last=$base
for dir; do
  last=$dir
  if [ ! -e "$dir" ] && [ ! -h "$dir" ]; then
    mkdir -m 700 -- "$dir" || [ -d "$dir" ] || exit
  fi
  owner=$(stat -c %u -- "$dir") || exit
  [ "$owner" = "$own" ] && continue
  mode=$(stat -L -c %a -- "$dir") || exit
  if [ "$owner" != 0 ] || [ $((0$mode & 022)) != 0 ]; then
    echo "\"$dir\" belongs to the user $owner, or other users can write there: they could read or replace the results; remove it, or name another directory" >&2
    exit 1
  fi
done
stat -L -c '%u %a' -- "$last""#;
/// Refuses a file of a destination in whose place another user has put something else.
const CHECK: &str = r#"[ ! -h "$1" ] && [ ! -d "$1" ] && exit
echo "\"$1\" is no file; remove it, or name another directory" >&2; exit 1"#;
/// Option that the message of a run names if a directory is where a file should be.
const NEEDS_DELETE: &str = "only with --delete";
/// Exit code of a run in which some paths failed.
const SOME_FAILED: i32 = 3;
/// Results of one collection that fail in a row, after which the others wait. The next collection begins
/// with these.
const FAILURES_MAX: usize = 8;
/// Bytes of the name of a generation, and a slash.
const GENERATION_BYTES: usize = 23;

/// Ways of a gateway to the results of one node.
pub(crate) struct CollectionWays {
    /// Orders to the node.
    pub orders: OrderSettings,
    /// The node.
    pub node: CastNode,
    /// Program of driftless on this host.
    pub program: String,
    /// Directory of the sockets to which runs of users connect.
    pub relay_dir: PathBuf,
    /// Directory of the sealed results of the job on the node.
    pub sealed_dir: PathBuf,
    /// Limit on the bytes of all collections.
    pub pace: Option<Arc<Pace>>,
    /// Destinations of all collections that copy now.
    pub places: Arc<BusyPlaces>,
    /// Results that were tried last.
    pub tried: Arc<TriedResults>,
}

/// A collection from one node.
///
/// Each order to seal makes a *generation*: a directory of its own, to which no later order adds. So a
/// gateway that lost the lease, and did not notice it, discards what it copied and nothing else.
pub(crate) struct Collection<'a> {
    ways: CollectionWays,
    order: &'a CollectOrder,
    user: User,
    guard: &'a dyn CollectGuard,
    stop: &'a AtomicBool,
}

/// Destination of the results.
#[derive(Debug, Clone, Copy)]
struct PreparedPlace {
    /// Whether the directory with the results is open to no other user: it can be a destination as a
    /// whole.
    is_private: bool,
    /// Whether the directory with the results belongs to the user.
    is_own: bool,
}

/// Failure with results.
enum CollectFault {
    /// Cause of all results.
    All(String),
    /// Results of these names below the holder stay on the node.
    Some(String, BTreeSet<Vec<u8>>),
}

/// Failure of one run.
struct CopyFault {
    cause: String,
    /// Whether other paths were copied.
    is_partial: bool,
}

impl From<String> for CopyFault {
    fn from(cause: String) -> Self {
        CopyFault {
            cause,
            is_partial: false,
        }
    }
}

/// The last line of `driftless sync --json`.
#[derive(Deserialize)]
struct CollectionSummary {
    event: String,
    #[serde(default)]
    changed: u64,
    #[serde(default)]
    bytes_copied: u64,
}

impl<'a> Collection<'a> {
    /// Prepares a collection.
    ///
    /// # Errors
    /// The user is unknown.
    pub fn new(
        ways: CollectionWays,
        order: &'a CollectOrder,
        (guard, stop): (&'a dyn CollectGuard, &'a AtomicBool),
    ) -> Result<Self, String> {
        Ok(Collection {
            ways,
            order,
            user: User::find(order.uid)?,
            guard,
            stop,
        })
    }

    /// Collects, and removes from the node what is durable here. What was sealed before comes first.
    pub fn run(&self) -> CollectOutcome {
        let mut outcome = CollectOutcome::default();
        if let Err(cause) = self.try_run(&mut outcome) {
            outcome.fault.get_or_insert(cause);
        }
        outcome
    }

    fn try_run(&self, outcome: &mut CollectOutcome) -> Result<(), String> {
        let mut left = BTreeSet::new();
        if self.order.has_sealed {
            for generation in self.names_below(None)? {
                self.bring_noted(&generation, (&mut *outcome, &mut left))?;
            }
        }
        let is_left = |one: &&CollectMove| left.contains(self.name_in_holder(&one.path));
        let moves = self.order.moves.iter().filter(|one| !is_left(one));
        let moves: Vec<CollectMove> = moves.cloned().collect();
        let longest = moves.iter().map(|one| one.path.len()).max().unwrap_or(0);
        for some in moves.chunks(sealed_at_once(longest.saturating_add(GENERATION_BYTES))) {
            let ended = self.guard.have_ended(some)?;
            let ended = some.iter().zip(ended).filter(|(_, has_ended)| *has_ended);
            let ended: Vec<&CollectMove> = ended.map(|(one, _)| one).collect();
            if ended.is_empty() {
                continue;
            }
            let generation = self.seal(&ended, outcome)?;
            self.wait_for_restarted(some)?;
            self.bring_noted(&generation, (&mut *outcome, &mut BTreeSet::new()))?;
        }
        Ok(())
    }

    /// Seals entries as a new generation, and returns its name.
    fn seal(
        &self,
        ended: &[&CollectMove],
        outcome: &mut CollectOutcome,
    ) -> Result<Vec<u8>, String> {
        let generation = new_generation();
        let (mut moves, mut names) = (Vec::new(), Vec::new());
        for one in ended {
            match seal_move(&generation, one) {
                Ok(order) => {
                    moves.push(order);
                    names.push(one.name.as_slice());
                }
                Err(why) => note(outcome, refused(&one.name, why)),
            }
        }
        let (orders, job) = (&self.ways.orders, self.order.job.as_str());
        let sealed = seal_outbox(orders, &self.ways.node, (job, &moves), self.stop);
        for (answer, name) in sealed.map_err(text)?.into_iter().zip(names) {
            if let SealOutcome::Refused(why) = answer {
                note(outcome, refused(name, &why));
            }
        }
        Ok(generation)
    }

    /// Waits until tasks ended that began again while their results were sealed. They may have open
    /// files there.
    fn wait_for_restarted(&self, moves: &[CollectMove]) -> Result<(), String> {
        while self.guard.have_begun_again(moves)? {
            let until = Instant::now() + AGAIN;
            while Instant::now() < until {
                if self.stop.load(Relaxed) {
                    return Err(STOPPED.to_owned());
                }
                thread::sleep(TICK.saturating_mul(10));
            }
        }
        Ok(())
    }

    /// Collects a generation. Notes what stays, and fails if nothing can arrive.
    fn bring_noted(
        &self,
        generation: &[u8],
        (outcome, left): (&mut CollectOutcome, &mut BTreeSet<Vec<u8>>),
    ) -> Result<(), String> {
        match self.bring(generation, &mut outcome.collected) {
            Ok(()) => Ok(()),
            Err(CollectFault::All(cause)) => Err(cause),
            Err(CollectFault::Some(cause, names)) => {
                note(outcome, cause);
                left.extend(names);
                Ok(())
            }
        }
    }

    /// Collects a generation: in one run if the destination is private, or else each result for itself.
    fn bring(&self, generation: &[u8], sum: &mut CollectedResults) -> Result<(), CollectFault> {
        let place = self.prepared().map_err(CollectFault::All)?;
        let holder = self.order.holder.as_slice();
        let above = joined(&[generation, holder]);
        if place.is_private && !self.is_hollow(&above).map_err(CollectFault::All)? {
            let from = self.ways.sealed_dir.join(path_of(&above));
            let to = joined(&[&self.order.base, holder]);
            match self.copy(&from, &path_of(&to)) {
                Ok(collected) => {
                    add(sum, collected);
                    let top = sealed_path(generation).map_err(CollectFault::All)?;
                    return self.discard(top).map_err(CollectFault::All);
                }
                Err(fault) if !fault.is_partial => return Err(CollectFault::All(fault.cause)),
                Err(_) => {}
            }
        }
        self.bring_each(generation, sum)
    }

    /// Returns whether a directory of a generation with names above it was not made, since nothing was
    /// sealed.
    fn is_hollow(&self, above: &[u8]) -> Result<bool, String> {
        Ok(!self.order.holder.is_empty() && self.names_below(Some(above))?.is_empty())
    }

    /// Collects each result of a generation for itself: one that fails holds up no other.
    fn bring_each(
        &self,
        generation: &[u8],
        sum: &mut CollectedResults,
    ) -> Result<(), CollectFault> {
        let holder = self.order.holder.as_slice();
        let above = joined(&[generation, holder]);
        let names = self.names_below(Some(&above)).map_err(CollectFault::All)?;
        if names.is_empty() {
            let top = sealed_path(generation).map_err(CollectFault::All)?;
            return self.discard(top).map_err(CollectFault::All);
        }
        let (mut left, mut first, mut failures) = (BTreeSet::new(), None, 0);
        let order = (self.order, generation);
        for name in self.ways.tried.in_turn(order, names) {
            if failures < FAILURES_MAX {
                self.ways.tried.note(order, &name);
                match self.bring_one(&joined(&[&above, &name]), &joined(&[holder, &name])) {
                    Ok(collected) => {
                        add(sum, collected);
                        failures = 0;
                        continue;
                    }
                    Err(cause) => {
                        first.get_or_insert(self.with_remedy(&above, &name, &cause));
                        failures = failures.saturating_add(1);
                    }
                }
            }
            left.insert(name);
        }
        match first {
            Some(cause) => Err(CollectFault::Some(cause, left)),
            None => {
                self.ways.tried.forget(order);
                Ok(())
            }
        }
    }

    fn bring_one(&self, sealed: &[u8], below: &[u8]) -> Result<CollectedResults, String> {
        let to = joined(&[&self.order.base, below]);
        if !self.prepared()?.is_own {
            self.claim(sealed, &to)?;
        }
        let from = self.ways.sealed_dir.join(path_of(sealed));
        let copied = self
            .copy(&from, &path_of(&to))
            .map_err(|fault| fault.cause)?;
        self.discard(sealed_path(sealed)?)?;
        Ok(copied)
    }

    /// Takes a name in a directory in which other users may make entries.
    fn claim(&self, sealed: &[u8], to: &[u8]) -> Result<(), String> {
        let is_dir = self.names_below(Some(sealed)).is_ok();
        if is_dir {
            return self.prepare(&[to.to_vec()]).map(drop);
        }
        let mut check = self.as_user("/bin/sh");
        check.args(["-c", CHECK, "check"]).arg(path_of(to));
        run_well(&mut check, self.stop).map(drop)
    }

    fn with_remedy(&self, above: &[u8], name: &[u8], cause: &str) -> String {
        let path = self
            .ways
            .sealed_dir
            .join(path_of(above))
            .join(path_of(name));
        let (path, node) = (driftless_model::quote(&path), &self.order.node);
        remedy(cause, &format!("take the result {path} away on {node}"))
    }

    /// Returns the first name of a path below the holder of the results.
    fn name_in_holder<'b>(&self, path: &'b [u8]) -> &'b [u8] {
        let below = path.strip_prefix(self.order.holder.as_slice());
        let below = below.unwrap_or(path);
        let below = below.strip_prefix(b"/").unwrap_or(below);
        below.split(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// Returns names of sealed results in a directory, or the generations.
    fn names_below(&self, below: Option<&[u8]>) -> Result<Vec<Vec<u8>>, String> {
        let below = below.map(sealed_path).transpose()?;
        let what = (self.order.job.as_str(), below.as_ref());
        sealed_names(&self.ways.orders, &self.ways.node, what, self.stop).map_err(text)
    }

    fn discard(&self, path: SealedPath) -> Result<(), String> {
        self.guard.check_lease()?;
        let what = (self.order.job.as_str(), &[path][..]);
        let causes = discard_outbox(&self.ways.orders, &self.ways.node, what, self.stop);
        match causes.map_err(text)?.into_iter().flatten().next() {
            Some(cause) => Err(cause),
            None => Ok(()),
        }
    }

    /// Prepares the destination. `sync` gives the destination the metadata of the directory, and a
    /// directory of the user keeps its own. So only a private directory is a destination as a whole.
    ///
    /// Another user who may write above the destination can exchange it. So each copy begins with this
    /// check.
    fn prepared(&self) -> Result<PreparedPlace, String> {
        self.prepare(&self.chosen_dirs()).map_err(|cause| {
            let (user, base) = (&self.user.name, driftless_model::escape(&self.order.base));
            let (node, job) = (&self.order.node, driftless_model::escape_text(&self.order.job));
            format!("\"{base}\": cannot prepare the destination: {cause}; let {user} write there on the host of the gateway, or take the results away by hand: on {node}, they are in outbox/{job} and outbox/.sealed/{job} of the store")
        })
    }

    /// Makes directories and checks them.
    fn prepare(&self, dirs: &[Vec<u8>]) -> Result<PreparedPlace, String> {
        let order = self.order;
        let mut prepare = self.as_user("/bin/sh");
        prepare.args(["-c", PREPARE, "prepare", &order.uid.to_string()]);
        prepare.arg(path_of(&order.fixed)).arg(path_of(&order.base));
        prepare.args(dirs.iter().map(|dir| path_of(dir)));
        let output = run_well(&mut prepare, self.stop)?;
        let shown = String::from_utf8_lossy(&output.stdout);
        let last = shown.lines().next().unwrap_or_default();
        Ok(PreparedPlace {
            is_own: last.split(' ').next() == Some(&order.uid.to_string()),
            is_private: is_private(last, order.uid),
        })
    }

    /// Returns the directories of the destination whose names have the job or the node in them, from the
    /// first on.
    fn chosen_dirs(&self) -> Vec<Vec<u8>> {
        let order = self.order;
        let whole = joined(&[&order.base, &order.holder]);
        let below = whole
            .strip_prefix(order.fixed.as_slice())
            .unwrap_or_default();
        let mut path = order.fixed.clone();
        let names = below
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty());
        let dirs = names.map(|name| {
            path = joined(&[&path, name]);
            path.clone()
        });
        dirs.collect()
    }

    /// Copies an entry of the node with `driftless sync`.
    fn copy(&self, from: &Path, to: &Path) -> Result<CollectedResults, CopyFault> {
        let taken = self.ways.places.take((self.order.uid, to), self.stop);
        let _taken = taken.ok_or_else(|| STOPPED.to_owned())?;
        let socket = RelaySocket::new(&self.ways.relay_dir, self.order.uid)?;
        let mut sync = self.as_user(self.ways.program.as_str());
        let path = socket.path.to_string_lossy();
        let relay = shell_words::join([self.ways.program.as_str(), "relay", &path]);
        sync.args(["sync", "--json", "--no-owner", "--no-group"]);
        sync.args(["--streams", "1", "--copy-into", "--reconnect", "0"]);
        // The node removes what a run reports as copied.
        sync.arg("--refuse-set-aside");
        sync.args(["--ssh", &relay]);
        let mut source = OsString::from("node:");
        source.push(from);
        sync.arg(source).arg(to);
        let is_over = AtomicBool::new(false);
        let (output, relayed) = thread::scope(|scope| {
            let relay = || self.relay(&socket, &is_over);
            let relaying = thread::Builder::new().name("relay".into());
            let relaying = relaying.spawn_scoped(scope, relay);
            let output = run(&mut sync, self.stop);
            is_over.store(true, Relaxed);
            let relayed = match relaying {
                Ok(thread) => thread.join().unwrap_or(Ok(())),
                Err(error) => Err(driftless_model::cause(&error)),
            };
            (output, relayed)
        });
        let output = output?;
        match (output.status.success(), relayed) {
            (true, _) => Ok(collected_of(&output)),
            (false, Err(cause)) => Err(cause.into()),
            (false, Ok(())) => Err(CopyFault {
                cause: complaint(&output),
                is_partial: output.status.code() == Some(SOME_FAILED),
            }),
        }
    }

    /// Carries the bytes of the run to the agent on the node, once the run has connected.
    fn relay(&self, socket: &RelaySocket, is_over: &AtomicBool) -> Result<(), String> {
        let stream = loop {
            match socket.listener.accept() {
                Ok((stream, _)) if self.is_of_user(&stream) => break stream,
                Ok(_) => {}
                Err(_) if is_over.load(Relaxed) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(TICK),
                Err(error) => return Err(driftless_model::cause(&error)),
            }
        };
        let blocking = stream.set_nonblocking(false);
        blocking.map_err(|error| driftless_model::cause(&error))?;
        let reader = OutboxReader {
            job: &self.order.job,
            stream: &stream,
            pace: self.ways.pace.as_deref(),
        };
        let ended = relay_outbox(&self.ways.orders, &self.ways.node, &reader, self.stop);
        ended.map(drop).map_err(text)
    }

    /// Whether the user of the job is at the other end (unix(7), `SO_PEERCRED`).
    fn is_of_user(&self, stream: &UnixStream) -> bool {
        socket_peercred(stream).is_ok_and(|peer| peer.uid.as_raw() == self.order.uid)
    }

    /// Returns a command that runs as the user.
    fn as_user(&self, program: &str) -> Command {
        let mut words = self.user.words();
        words.push(program.to_owned());
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command
    }
}

/// Adds a remedy to the cause of a failure. A run deletes nothing: it may be the only copy.
fn remedy(cause: &str, otherwise: &str) -> String {
    match cause.contains(NEEDS_DELETE) {
        true => format!(
            "{cause}: an earlier run of the task left a directory there; move the directory away at the destination, or {otherwise}"
        ),
        false => format!("{cause}; correct the cause, or {otherwise}"),
    }
}

/// Returns whether a directory with this owner and mode is open to no other user. A directory below
/// one with the set-group-ID bit has this bit from its birth (inode(7)).
fn is_private(shown: &str, uid: u32) -> bool {
    let Some((owner, mode)) = shown.split_once(' ') else {
        return false;
    };
    owner == uid.to_string() && matches!(mode, "700" | "2700")
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

fn text(fault: OrderFault) -> String {
    fault.to_string()
}

/// Returns a path of names. Empty ones are left out.
fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let parts: Vec<&[u8]> = parts
        .iter()
        .copied()
        .filter(|part| !part.is_empty())
        .collect();
    match parts.split_first() {
        Some((&b"/", rest)) => [b"/", rest.join(&b'/').as_slice()].concat(),
        _ => parts.join(&b'/'),
    }
}

/// Returns the name of a new generation. The names of later ones are later in the order of bytes.
fn new_generation() -> Vec<u8> {
    let time = crate::parts::now().as_millis();
    format!("{time:013x}-{:08x}", fastrand::u32(..)).into_bytes()
}

fn sealed_path(bytes: &[u8]) -> Result<SealedPath, String> {
    SealedPath::parse(bytes).map_err(str::to_owned)
}

fn seal_move(generation: &[u8], one: &CollectMove) -> Result<SealMove, &'static str> {
    let name = one.name.clone().try_into();
    Ok(SealMove {
        name: name.map_err(|_| "it is no name of an entry")?,
        path: SealedPath::parse(&joined(&[generation, &one.path]))?,
    })
}

fn refused(name: &[u8], why: &str) -> String {
    let name = driftless_model::escape(name);
    format!("result \"{name}\": {why}")
}

/// Notes the first cause.
fn note(outcome: &mut CollectOutcome, cause: String) {
    outcome.fault.get_or_insert(cause);
}

fn add(sum: &mut CollectedResults, more: CollectedResults) {
    sum.entries = sum.entries.saturating_add(more.entries);
    sum.bytes = sum.bytes.saturating_add(more.bytes);
}

/// Returns the counts of a run. A run that reported success and no counts is no failure.
fn collected_of(output: &Output) -> CollectedResults {
    let lines = String::from_utf8_lossy(&output.stdout);
    let summary = lines.lines().rev().find_map(|line| {
        let line: Option<CollectionSummary> = serde_json::from_str(line).ok();
        line.filter(|line| line.event == "summary")
    });
    summary.map_or_else(CollectedResults::default, |summary| CollectedResults {
        entries: summary.changed,
        bytes: summary.bytes_copied,
    })
}

#[cfg(test)]
#[path = "collection_tests.rs"]
mod tests;
