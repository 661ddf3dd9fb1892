//! Jobs as files: where one is looked for, and who holds it.

use crate::command::held::{self, Held, Holder};
use crate::command::record;
use crate::exit::Exit;
use crate::own;
use driftless_mirror::job::{FILE_BYTES_MAX, Job, parse};
use driftless_mirror::memory::Memory;
use driftless_model::{cause, escape, moment, quote};
use driftless_state::mirror::{About, JobRow, MirrorState, MirrorView, Role};
use driftless_state::{DirectoryIndex, StateError};
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Where jobs of the machine are.
const FOLDER_OF_ALL: &str = "/etc/driftless";

/// The exit code, and what to say.
type Failure = (Exit, String);

/// Reads a job, by its file or its name.
#[allow(
    clippy::disallowed_methods,
    reason = "the user's own file, no part of a replicated tree"
)]
pub fn read(typed: &Path) -> Result<Job, Failure> {
    let path = place(typed)?;
    let failed = |why: String| (Exit::Usage, format!("{}: {why}", quote(&path)));
    // Whoever opens a pipe waits for somebody who writes.
    if !std::fs::metadata(&path).is_ok_and(|meta| meta.is_file()) {
        return Err(failed("it is no regular file, as that of a job is".into()));
    }
    let text = text_of(&path).map_err(failed)?;
    let mut job = parse(&text, &path).map_err(|errors| (Exit::Usage, errors.to_string()))?;
    let keep = &mut job.policy.keep;
    keep.umask = own::given_up_umask().unwrap_or(keep.umask);
    Ok(job)
}

/// Reads a job whose mirror does not run. If the file is gone, the state of an earlier mirror tells
/// that the job is known.
pub fn read_idle(typed: &Path) -> Result<Job, Failure> {
    read(typed).map_err(|failure| {
        let name = typed.to_string_lossy();
        let is_gone = is_name(typed) && !is_file(typed) && place(typed).is_err();
        if !is_gone || !file(&lock_name(&name)).is_ok_and(|lock| is_there(&lock)) {
            return failure;
        }
        let folders = folders_in_words();
        let why = format!(
            "{name}: its mirror does not run, and its job file is not in {folders}; name the file"
        );
        (Exit::CouldNotRun, why)
    })
}

/// The text of a file in which somebody says what is to be done, and a byte of what is too long.
#[allow(
    clippy::disallowed_methods,
    reason = "the user's own file, no part of a replicated tree"
)]
pub fn text_of(path: &Path) -> Result<String, String> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| cause(&error))?;
    file.take(FILE_BYTES_MAX as u64 + 1)
        .read_to_end(&mut text)
        .map_err(|error| cause(&error))?;
    String::from_utf8(text).map_err(|_| "is no text in UTF-8".into())
}

/// The name of a job. A file that cannot be read any more has its own.
pub fn name(typed: &Path) -> Result<String, Failure> {
    match place(typed) {
        // A mirror of another user may run whose file this user may not read.
        Ok(path) if is_name(typed) && is_closed(&path) => Ok(typed.to_string_lossy().into_owned()),
        Ok(_) => read(typed).map(|job| job.name),
        // A mirror may run whose file was taken away.
        Err(_) if is_name(typed) && !is_file(typed) => Ok(typed.to_string_lossy().into_owned()),
        Err(failure) => Err(failure),
    }
}

/// Returns whether this user may not read a file.
#[allow(
    clippy::disallowed_methods,
    reason = "the user's own file, no part of a replicated tree"
)]
fn is_closed(path: &Path) -> bool {
    File::open(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn is_name(typed: &Path) -> bool {
    typed.components().count() == 1 && typed.extension().is_none()
}

/// Returns the folders in which a job is looked for by its name.
pub fn folders() -> Vec<PathBuf> {
    let places = own::config_places().into_iter();
    places.chain([FOLDER_OF_ALL.into()]).collect()
}

/// Returns these folders for a sentence.
pub fn folders_in_words() -> String {
    let folders = folders();
    let quoted: Vec<String> = folders
        .iter()
        .map(|folder| quote(folder).to_string())
        .collect();
    quoted.join(" and ")
}

/// Returns the name of the job that a file describes: the file's own name if the job has errors.
/// Returns `None` for a file that cannot be read, and for one without a source, such as the
/// configuration of an agent.
pub fn name_in(file: &Path) -> Option<String> {
    let text = text_of(file).ok()?;
    let is_job = text
        .lines()
        .any(|line| line.trim_start().starts_with("source"));
    let own_name = || Some(file.file_stem()?.to_string_lossy().into_owned());
    is_job.then(|| parse(&text, file).map_or_else(|_| own_name(), |job| Some(job.name)))?
}

/// The file that is meant. A name that may mean two is refused: whoever may write into the working
/// directory could have another job be read.
fn place(typed: &Path) -> Result<PathBuf, Failure> {
    let files = folders().into_iter().map(|folder| {
        let mut file = folder.join(typed).into_os_string();
        file.push(".toml");
        PathBuf::from(file)
    });
    let job = files.filter(|_| is_name(typed)).find(|path| is_there(path));
    let refuse = |why: String| Err((Exit::Usage, format!("{}: {why}", quote(typed))));
    match (is_file(typed), job) {
        (true, None) => Ok(typed.to_owned()),
        (false, Some(job)) => Ok(job),
        (true, Some(job)) => {
            let (file, job) = (quote(&Path::new(".").join(typed)), quote(&job));
            refuse(format!(
                "it is the name of a job, {job}, and of a file in the working directory; name {job} or {file}"
            ))
        }
        (false, None) => {
            let folders = folders_in_words();
            let what = match is_there(typed) {
                true => "it is a directory",
                false => "there is no such job",
            };
            refuse(format!(
                "{what}; name the file of a job, or that of one in {folders} without .toml"
            ))
        }
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the user's own file, no part of a replicated tree"
)]
fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| !meta.is_dir())
}

/// Holds a job, so that no other mirror works on it.
pub fn hold(job: &Job) -> Result<Held, Failure> {
    let taken = "has the job: a mirror runs already";
    held::hold(&lock_name(&job.name), &job.name, taken)
}

/// Returns the process that has a job, if one has: its mirror runs, begins, or hangs.
pub fn holder(name: &str) -> Result<Option<Holder>, Failure> {
    held::holder(&lock_name(name), name)
}

fn lock_name(name: &str) -> String {
    format!("mirror-{name}.lock")
}

/// What an earlier mirror has left of the one replica of a job, for the process that holds it.
pub fn memory(job: &Job) -> Result<Memory, Failure> {
    state(job).map(Memory::of)
}

/// Opens the index of the source's directories, for the process that holds the job. A file that
/// cannot be read is made anew; without one, the mirror does without.
pub fn directories(job: &Job) -> Result<DirectoryIndex, Failure> {
    let path = file(&format!("mirror-{}.directories", job.own_name()))?;
    let opened = DirectoryIndex::open(&path).or_else(|_| {
        own::forget_database(&path);
        DirectoryIndex::open(&path)
    });
    Ok(opened.unwrap_or_else(|_| DirectoryIndex::without_file()))
}

/// The state of the mirror of a job, for the process that holds it.
pub fn state(job: &Job) -> Result<MirrorState, Failure> {
    state_at(job, &format!("mirror-{}.db", job.own_name()))
}

/// Returns what the state of the one replica of a job is about.
fn about(job: &Job) -> About {
    About {
        name: job.name.clone(),
        source: job.source.clone(),
        replica: job.replicas[0].clone(),
    }
}

fn state_at(job: &Job, name: &str) -> Result<MirrorState, Failure> {
    let path = file(name)?;
    let opened = MirrorState::open(&path, &about(job), driftless_mirror::clock::now());
    let (state, _found) = opened.map_err(|error| record::refusal(&error))?;
    Ok(state)
}

/// What a member of a pool keeps while it runs: nothing of it is of use to another life.
pub fn memory_of_member(job: &Job) -> Result<Memory, Failure> {
    forget_member(job);
    state_at(job, &format!("member-{}.db", job.name)).map(Memory::of)
}

/// Removes what a member has kept.
#[allow(
    clippy::disallowed_methods,
    reason = "our own files, no part of a replicated tree"
)]
pub fn forget_member(job: &Job) {
    for kind in ["", "-wal", "-shm"] {
        if let Ok(path) = file(&format!("member-{}.db{kind}", job.name)) {
            let _it_may_not_be_there = std::fs::remove_file(path);
        }
    }
}

/// The state of a mirror, to be read; nothing if there is none.
#[allow(
    clippy::disallowed_methods,
    reason = "our own file, no part of a replicated tree"
)]
pub fn look(name: &str) -> Result<Option<MirrorView>, Failure> {
    let path = file(&format!("mirror-{name}.db"))?;
    if std::fs::metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    match MirrorState::look(&path) {
        Ok(view) => Ok(Some(view)),
        Err(StateError::Unready { .. }) => Ok(None),
        Err(error) => Err(record::refusal(&error)),
    }
}

/// The job with one of its replicas alone: the only one, or the one that is named.
pub fn with_one(job: &Job, replica: Option<&str>) -> Result<Job, Failure> {
    let mut all = job.apart();
    let refuse = |why: &str| {
        let known: Vec<String> = job
            .replicas
            .iter()
            .map(|tree| escape(tree.as_bytes()))
            .collect();
        let why = format!("{}: {why}: it has {}", job.name, known.join(" and "));
        Err((Exit::Usage, why))
    };
    let plain = |tree: &str| tree.trim_end_matches('/').to_owned();
    match replica {
        None if all.len() == 1 => Ok(all.remove(0)),
        None => refuse("say which replica (--replica)"),
        Some(named) => {
            let is_named = |one: &Job| plain(&one.replicas[0]) == plain(named);
            match all.into_iter().find(is_named) {
                Some(one) => Ok(one),
                None => refuse("--replica is none of its replicas"),
            }
        }
    }
}

/// What is known of those replicas of a job that are the active side, or about to be.
pub fn active(job: &Job) -> Result<Vec<JobRow>, Failure> {
    let mut found = Vec::new();
    for one in job.apart() {
        found.extend(active_alone(&one)?);
    }
    Ok(found)
}

/// Returns the role of the one replica of a job if that is the active side.
pub fn active_alone(one: &Job) -> Result<Option<JobRow>, Failure> {
    let Some(view) = look(&one.own_name())? else {
        return Ok(None);
    };
    let row = view.job().map_err(|error| record::refusal(&error))?;
    Ok(Some(row).filter(|row| row.role.role != Role::Following))
}

/// Refuses to work against those who use a replica. The user names the job so.
pub fn refuse_active(job: &Job, named: &Path) -> Result<(), Failure> {
    match active(job)?.first() {
        None => Ok(()),
        Some(row) => Err((Exit::Refused, active_words(job, row, named))),
    }
}

/// Returns the words of a command about one replica of a job that the user named so.
pub fn command_words(job: &Job, named: &Path, command: &str, replica: &str) -> String {
    let which = match job.replicas.len() {
        1 => String::new(),
        _ => format!(" --replica {replica}"),
    };
    format!("driftless mirror {command} {}{which}", named.display())
}

/// Says that a replica of a job is the active side, and what ends that. The user named the job so.
pub fn active_words(job: &Job, row: &JobRow, named: &Path) -> String {
    let (name, replica, row) = (&job.name, &row.about.replica, &row.role);
    let since = row.since.unwrap_or_default();
    let since = moment(since.as_secs().cast_signed());
    let role = row.role.word();
    let command = |command| command_words(job, named, command, replica);
    let now = match row.role {
        Role::FailingOver => format!("{} continues that", command("failover")),
        _ => format!(
            "{} --finish copies its changes back, and lets it follow the source again",
            command("failback")
        ),
    };
    format!("{name}: {role} since {since}: its replica is the active side; {now}")
}

/// Says that a process has the job, which the user names so, and does not answer here.
pub fn silent_words(named: &str, holder: &Holder) -> String {
    let process = &holder.words;
    match holder.elsewhere {
        Some(_) => format!(
            "{named}: its mirror runs on another host ({process}), and does not answer here: ask it there"
        ),
        None => {
            format!(
                "{named}: its mirror is starting ({process}) and does not answer yet: ask again"
            )
        }
    }
}

/// What is kept for the one replica of a job, to be read, whether its mirror runs or not. The user
/// names the job so; the state of another job of that name is refused.
pub fn view(job: &Job, typed: &Path) -> Result<MirrorView, Failure> {
    let path = file(&format!("mirror-{}.db", job.own_name()))?;
    let (name, typed) = (&job.name, typed.display());
    let silent = |holder: &Holder| (Exit::CouldNotRun, silent_words(name, holder));
    let holder = holder(name)?;
    if !is_there(&path) {
        let other = match &job.operators {
            Some(_) => "; that of another user answers operators only while it runs",
            None => "",
        };
        let why =
            format!("{name}: its mirror has never run here (driftless mirror run {typed}){other}");
        return Err(holder.as_ref().map_or((Exit::CouldNotRun, why), silent));
    }
    let view = MirrorState::look(&path).map_err(|error| match (&error, &holder) {
        // It is being made, or brought up to date.
        (StateError::Unready { .. }, Some(holder)) => silent(holder),
        _ => record::refusal(&error),
    })?;
    match view.refuse_other_trees(&about(job)) {
        Ok(()) => Ok(view),
        Err(error) => Err(record::refusal(&error)),
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "our own file, no part of a replicated tree"
)]
fn is_there(path: &Path) -> bool {
    std::fs::metadata(path).is_ok()
}

/// Where the mirror of a job is asked.
pub fn socket(name: &str) -> Result<PathBuf, Failure> {
    let path = file(&socket_name(name))?;
    fit_for_socket(name, path)
}

/// Whether a mirror of that name runs on this host, paused or not.
pub fn runs(name: &str) -> Result<bool, Failure> {
    Ok(UnixStream::connect(socket(name)?).is_ok())
}

/// Refuses a job whose mirror could not be asked, since its name or the folder for state is too
/// long; makes nothing.
pub fn refuse_long(name: &str) -> Result<(), Failure> {
    match own::state_places().into_iter().next() {
        Some(folder) => fit_for_socket(name, folder.join(socket_name(name))).map(drop),
        None => Ok(()),
    }
}

/// Why nobody can be asked for metrics.
pub fn no_port(listen: SocketAddr, error: &io::Error) -> String {
    format!(
        "metrics.listen: cannot listen at {listen}: {}",
        cause(error)
    )
}

fn socket_name(name: &str) -> String {
    format!("mirror-{name}.socket")
}

fn fit_for_socket(name: &str, path: PathBuf) -> Result<PathBuf, Failure> {
    own::socket_path(path, "XDG_STATE_HOME")
        .map_err(|why| (Exit::CouldNotRun, format!("{name}: {why}")))
}

/// A file in the folder for state.
pub fn file(name: &str) -> Result<PathBuf, Failure> {
    let folder = own::state_folder().map_err(|why| (Exit::CouldNotRun, why))?;
    Ok(folder.join(name))
}
