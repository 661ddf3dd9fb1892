//! How an agent stands, and how it is asked: at a socket, a line of JSON for a [`Question`]; what
//! answers it is JSON, too.
//!
//! Only the user whose agent it is and root may ask; the kernel says who does (unix(7),
//! `SO_PEERCRED`).

use driftless_detect::agents::{Delivery, Question};
use driftless_detect::take_each;
use driftless_model::cause;
use driftless_state::StateError;
use driftless_state::watch::{TreeRow, WatchView};
use rustix::net::sockopt::socket_peercred;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::Builder;
use std::time::Duration;

/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a question.
const QUESTION_BYTES_MAX: u64 = 64 << 10;
/// Who does not take or give an answer within this is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// How an agent stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// What it is called.
    pub name: String,
    /// Whether it runs.
    pub is_running: bool,
    /// The number of its process, if it runs.
    pub process: Option<u32>,
    /// What it hears: "shim", "fanotify", "posts".
    pub detect: Vec<String>,
    /// What was counted since it began.
    pub counts: Counts,
    /// Its trees, in the order of its configuration.
    pub trees: Vec<TreeStatus>,
    /// The mirrors that it hands on to.
    pub mirrors: Vec<MirrorStatus>,
    /// What it announces through a broker, if it does.
    pub publisher: Option<PublisherStatus>,
}

/// What is counted while an agent runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Messages of shims that were read.
    pub messages: u64,
    /// Of these, how many made no sense.
    pub unread: u64,
    /// Of these, how many were not heard, since their users said too much.
    pub dropped: u64,
    /// Events of the kernel that were read.
    pub events: u64,
    /// Changes that users have posted.
    pub posts: u64,
    /// Files that programs had written and that shims have announced, where the kernel tells, too.
    pub covered: u64,
    /// Names of programs that have written files which no shim has announced, and how many files.
    pub uncovered: BTreeMap<String, u64>,
    /// Who hears nothing, and why.
    pub deaf: BTreeMap<String, String>,
    /// Why what was told is not durable.
    pub unsaved: Option<String>,
}

/// A tree of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeStatus {
    /// Its path.
    pub path: String,
    /// Paths that not every mirror has been told of.
    pub waiting: u64,
    /// When the oldest of these was heard of, in milliseconds since 1970.
    pub oldest_ms: Option<u64>,
    /// Where something may have been missed.
    pub gaps: GapStatus,
}

/// How often something may have been missed in a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapStatus {
    /// How often, since the agent began to hear of it.
    pub count: u64,
    /// When first, in milliseconds since 1970.
    pub first_ms: Option<u64>,
    /// When last.
    pub last_ms: Option<u64>,
    /// The last one is held back, and was told nobody yet.
    #[serde(default)]
    pub is_held: bool,
}

impl GapStatus {
    /// As it is kept.
    pub fn of(row: &TreeRow) -> GapStatus {
        GapStatus {
            count: row.gaps,
            first_ms: row.first_gap.map(millis),
            last_ms: row.last_gap.map(millis),
            is_held: false,
        }
    }
}

/// A moment in milliseconds since 1970.
pub(crate) fn millis(moment: Duration) -> u64 {
    u64::try_from(moment.as_millis()).unwrap_or(u64::MAX)
}

/// A mirror that an agent hands on to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorStatus {
    /// Its job.
    pub job: String,
    /// Its source.
    pub source: String,
    /// Paths that it has not taken.
    pub waiting: u64,
    /// Why it does not take any.
    pub away: Option<String>,
}

/// How an agent announces what it hears.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublisherStatus {
    /// The broker, without a password.
    pub broker: String,
    /// The exchange.
    pub exchange: String,
    /// Paths that are not announced, or whose messages are not confirmed.
    pub waiting: u64,
    /// When the oldest of these was heard of, in milliseconds since 1970.
    pub oldest_ms: Option<u64>,
    /// Messages that were confirmed, since the agent began.
    pub sent: u64,
    /// Of these, how many no queue wanted.
    pub unheard: u64,
    /// Why the broker takes none.
    pub away: Option<String>,
}

impl Status {
    /// Of an agent that does not run, as its state says.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn kept(name: &str, view: &WatchView) -> Result<Status, StateError> {
        let counts: BTreeMap<u64, u64> = view.counts()?.into_iter().collect();
        let tree = |row: TreeRow| TreeStatus {
            path: String::from_utf8_lossy(&row.path).into_owned(),
            waiting: counts.get(&row.id).copied().unwrap_or_default(),
            oldest_ms: None,
            gaps: GapStatus::of(&row),
        };
        Ok(Status {
            name: name.to_owned(),
            trees: view.trees()?.into_iter().map(tree).collect(),
            ..Status::default()
        })
    }
}

/// Reports a step of a delivery to the mirror that waits for it.
pub type Tell<'a> = dyn FnMut(&Delivery) -> io::Result<()> + 'a;

/// Delivers to mirrors.
pub trait Deliver: Clone + Send + 'static {
    /// Has the mirror that listens at a socket told everything that was said before the call. Calls
    /// `tell` now and then, and at the end.
    ///
    /// # Errors
    /// Those of `tell`.
    fn deliver(&self, mirror: &Path, is_awaited: bool, tell: &mut Tell<'_>) -> io::Result<()>;
}

/// Answers at a socket how an agent stands, and delivers to mirrors. What stands at `path` goes: whoever calls this holds
/// the agent's name.
///
/// # Errors
/// The socket cannot be made.
#[allow(
    clippy::disallowed_methods,
    reason = "our own socket, no part of a replicated tree"
)]
pub fn serve(
    path: &Path,
    status: impl Fn() -> Status + Send + Clone + 'static,
    deliverer: impl Deliver,
) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    let serve = move || {
        take_each(&listener, |stream| {
            let (status, deliverer) = (status.clone(), deliverer.clone());
            let answer = move || {
                if let Err(error) = answer(&stream, status, &deliverer) {
                    tracing::debug!("status: {}", cause(&error));
                }
            };
            let _without_a_thread_nobody_answers =
                Builder::new().name("status".into()).spawn(answer);
        });
    };
    Builder::new().name("status".into()).spawn(serve).map(drop)
}

fn answer(
    stream: &UnixStream,
    status: impl Fn() -> Status,
    deliverer: &impl Deliver,
) -> io::Result<()> {
    let who = socket_peercred(stream)?;
    if !who.uid.is_root() && who.uid != rustix::process::geteuid() {
        return Ok(());
    }
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = Vec::new();
    let mut bounded = BufReader::new(stream).take(QUESTION_BYTES_MAX);
    bounded.read_until(b'\n', &mut line)?;
    match serde_json::from_slice(&line)? {
        Question::Status => {
            let text = serde_json::to_vec(&status())?;
            (&mut &*stream).write_all(&text)
        }
        Question::Deliver { mirror, is_awaited } => {
            let mut tell = |delivery: &Delivery| {
                let mut text = serde_json::to_vec(delivery)?;
                text.push(b'\n');
                (&mut &*stream).write_all(&text)
            };
            deliverer.deliver(Path::new(OsStr::from_bytes(&mirror)), is_awaited, &mut tell)
        }
    }
}

/// Asks the agent that answers at `path`.
///
/// # Errors
/// None does.
pub fn ask(path: &Path) -> io::Result<Status> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut question = serde_json::to_vec(&Question::Status)?;
    question.push(b'\n');
    (&stream).write_all(&question)?;
    let mut text = Vec::new();
    (&stream).take(ANSWER_BYTES_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
