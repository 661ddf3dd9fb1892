//! The socket of a gateway. The kernel states who asks (unix(7), `SO_PEERCRED`), and a client asks for
//! its own user alone.

use crate::clients::{ClientQueue, RequestRoom};
use crate::message::{
    ClientRequest, GatewayReply, JobInfo, JobNodeInfo, PreparedJob, REQUEST_BYTES_MAX, ResultInfo,
    read_length, read_value, write,
};
use crate::parts::{GatewayParts, now};
use crate::users::User;
use crate::{Error, JobRequest};
use driftless_batch::JobMark;
use driftless_deposit::DepositArea;
use driftless_state::StateError;
use driftless_state::jobs::{BatchJobRow, JobStage, JobTable, NewJob, UserLoad};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Variable of a task: the directory with the data.
const SPOOL: &str = "SPOOL_DIRECTORY";
/// Variable of a task: the directory for results.
const RESULTS: &str = "RESULTS_DIRECTORY";
/// Longest wait for a client.
const CLIENT_MAX: Duration = Duration::from_secs(10);
/// Pause between two looks at the wish to stop, while no client comes.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// Pause after a connection that could not be accepted: the process may have no file handles left.
const FAILED: Duration = Duration::from_millis(20);
/// Jobs of one user that are not closed, at most.
const USER_JOBS_MAX: u64 = 100_000;
/// Jobs of one user that wait for their number, at most.
const USER_PREPARED_MAX: u64 = 10_000;
/// Bytes of the requests of one user's jobs that are not closed, at most.
const USER_REQUEST_BYTES_MAX: u64 = 32 << 20;

/// Binds the socket. A socket that no process listens on is replaced.
#[allow(
    clippy::disallowed_methods,
    reason = "the socket of the gateway itself"
)]
pub(crate) fn bind(path: &Path) -> Result<UnixListener, Error> {
    if UnixStream::connect(path).is_ok() {
        return Err(Error::Taken(path.to_owned()));
    }
    let _it_may_be_missing = fs::remove_file(path);
    let failed = |cause: io::Error| Error::OwnFile {
        path: path.to_owned(),
        act: "listen",
        cause,
    };
    let socket = UnixListener::bind(path).map_err(failed)?;
    // Each user may ask; the credentials decide what for.
    fs::set_permissions(path, Permissions::from_mode(0o666)).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    Ok(socket)
}

/// The server for clients.
pub(crate) struct ClientServer {
    parts: Arc<GatewayParts>,
    clients: Arc<ClientQueue<UnixStream>>,
    room: Arc<RequestRoom>,
}

impl ClientServer {
    pub fn new(parts: Arc<GatewayParts>) -> Self {
        ClientServer {
            parts,
            clients: Arc::default(),
            room: Arc::default(),
        }
    }

    /// Answers clients until `stop` is set.
    pub fn run(&self, socket: &UnixListener, stop: &AtomicBool) {
        while !stop.load(Relaxed) {
            if poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&TICK)).is_err() {
                std::thread::sleep(FAILED);
            }
            match socket.accept() {
                Ok((stream, _)) => self.start(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => std::thread::sleep(FAILED),
            }
        }
    }

    /// Answers a client in a thread of its own, and then those that wait.
    fn start(&self, stream: UnixStream) {
        let Ok(uid) = socket_peercred(&stream).map(|peer| peer.uid.as_raw()) else {
            return;
        };
        let Some(stream) = self.clients.admit(uid, stream) else {
            return;
        };
        let (parts, room) = (Arc::clone(&self.parts), Arc::clone(&self.room));
        let clients = Arc::clone(&self.clients);
        let answering = move || {
            let mut next = Some((uid, stream));
            while let Some((uid, stream)) = next {
                let _the_client_may_be_gone = answer(&parts, &room, (uid, stream));
                next = clients.next(uid);
            }
        };
        let thread = std::thread::Builder::new().name("client".into());
        if thread.spawn(answering).is_err() {
            self.clients.leave(uid);
        }
    }
}

fn answer(
    parts: &GatewayParts,
    room: &RequestRoom,
    (uid, mut stream): (u32, UnixStream),
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(CLIENT_MAX))?;
    stream.set_write_timeout(Some(CLIENT_MAX))?;
    let own = rustix::process::geteuid().as_raw();
    let bytes = read_length(&mut stream, REQUEST_BYTES_MAX)?;
    let taken = room.take(uid, bytes, Instant::now() + CLIENT_MAX);
    let taken = taken.ok_or_else(|| io::Error::other("too many large requests at a time"))?;
    let request = read_value(&mut stream, bytes)?;
    let reply = match own == 0 || own == uid {
        true => reply(parts, uid, request),
        false => Err(
            "this gateway serves only the user who started it; use your own or that of root"
                .to_owned(),
        ),
    };
    drop(taken);
    write(&mut stream, &reply.unwrap_or_else(GatewayReply::Refused))
}

/// Returns the answer, or cause and remedy of a refusal.
fn reply(parts: &GatewayParts, uid: u32, request: ClientRequest) -> Result<GatewayReply, String> {
    let failed = |error: StateError| error.to_string();
    match request {
        ClientRequest::Prepare(request) => prepare(parts, uid, &request),
        ClientRequest::Confirm { mark, number } => {
            let kind = parts.batch.kind();
            let number = kind.job_id(&number);
            let number = number.ok_or_else(|| format!("{kind} gives no such number to a job"))?;
            let mut table = parts.table.lock();
            let is_own = table.claim(&mark, uid, number.as_str()).map_err(failed)?;
            let _it_is_awake = is_own.then(|| parts.nudge.try_send(()));
            is_own.then_some(GatewayReply::Done).ok_or_else(unknown)
        }
        ClientRequest::Abandon { mark } => {
            let is_gone = parts.table.lock().abandon(&mark, uid).map_err(failed)?;
            is_gone.then_some(GatewayReply::Done).ok_or_else(unknown)
        }
        ClientRequest::Home => home(parts, uid),
        ClientRequest::Jobs => {
            let table = parts.table.lock();
            let of = (uid != 0).then_some(uid);
            let jobs = table.jobs_of(of).map_err(failed)?;
            let info = |job| info_of(&table, job).map_err(failed);
            let mut jobs = jobs.into_iter().map(info).collect::<Result<Vec<_>, _>>()?;
            drop(table);
            add_batch_fault(parts, &mut jobs);
            Ok(GatewayReply::Jobs(jobs))
        }
    }
}

/// Returns the directory of deposits of a user, and creates it if it is missing.
fn home(parts: &GatewayParts, uid: u32) -> Result<GatewayReply, String> {
    let user = User::find(uid)?;
    let area = DepositArea::new(&parts.settings.deposits);
    let home = area.home(&user.name, uid, user.gid);
    let home = home.map_err(|error| error.to_string())?;
    Ok(GatewayReply::Home(home.into_os_string().into_vec()))
}

fn unknown() -> String {
    "this user has no such job that waits for its number; submit it again".to_owned()
}

fn prepare(parts: &GatewayParts, uid: u32, request: &JobRequest) -> Result<GatewayReply, String> {
    request.check().map_err(str::to_owned)?;
    let user = User::find(uid)?;
    let mark = JobMark::of(fastrand::u64(..));
    let (system, encoded) = (parts.batch.kind().word(), request.encode());
    let new = NewJob {
        mark: mark.as_str(),
        uid,
        owner: &user.name,
        system,
        request: &encoded,
        now: now(),
    };
    let mut table = parts.table.lock();
    let load = table.load_of(uid).map_err(|error| error.to_string())?;
    check_load(&load, new.request.len())?;
    table.add(&new).map_err(|error| error.to_string())?;
    let name = parts.job_name(mark.as_str());
    let mut variables = vec![(SPOOL.to_owned(), parts.distribution.spool_directory(&name))];
    if request.results.is_some() {
        let outbox = parts.distribution.results_directory(&name);
        variables.push((RESULTS.to_owned(), outbox));
    }
    Ok(GatewayReply::Prepared(PreparedJob {
        mark: mark.as_str().to_owned(),
        system: system.to_owned(),
        variables,
    }))
}

/// Refuses one more job of a user who has too many, or too large ones: the gateway keeps all requests of
/// open jobs in memory.
fn check_load(load: &UserLoad, bytes: usize) -> Result<(), String> {
    let UserLoad { open, prepared, .. } = load;
    if *open >= USER_JOBS_MAX {
        return Err(format!("this user has {open} jobs; wait until some ended"));
    }
    if *prepared >= USER_PREPARED_MAX {
        return Err(format!(
            "{prepared} jobs of this user wait for their number; wait until the batch system lists them"
        ));
    }
    if load.request_bytes.saturating_add(bytes as u64) > USER_REQUEST_BYTES_MAX {
        return Err("the jobs of this user name too many paths; name a directory that holds them, or wait until some jobs ended".to_owned());
    }
    Ok(())
}

/// States why the batch system does not answer, for jobs that wait for it and have no problem of their
/// own.
fn add_batch_fault(parts: &GatewayParts, jobs: &mut [JobInfo]) {
    let fault = parts.batch_fault.lock().clone();
    for job in jobs.iter_mut().filter(|_| fault.is_some()) {
        if job.fault.is_none() && job.stage != JobStage::Closed.word() {
            job.fault.clone_from(&fault);
        }
    }
}

fn info_of(table: &JobTable, row: BatchJobRow) -> Result<JobInfo, StateError> {
    let request = JobRequest::decode(&row.request).unwrap_or_default();
    let nodes = table.nodes(&row.mark)?.into_iter().map(|node| JobNodeInfo {
        node: node.node,
        state: node.state.word().to_owned(),
        fault: node.fault,
    });
    let of_tasks = match request.results {
        Some(_) => table.task_results(&row.mark)?,
        None => Vec::new(),
    };
    let earlier_runs = |node: &str| {
        let runs = of_tasks.iter();
        let runs = runs.filter(|one| one.is_earlier && one.node == node);
        runs.count() as u64
    };
    let results = table.results(&row.mark)?.into_iter().map(|one| ResultInfo {
        earlier_runs: earlier_runs(&one.node),
        node: one.node,
        entries: one.entries,
        bytes: one.bytes,
        fault: one.fault,
    });
    Ok(JobInfo {
        pattern: request.results,
        results: results.collect(),
        nodes: nodes.collect(),
        mark: row.mark,
        owner: row.owner,
        number: row.number,
        stage: row.stage.word().to_owned(),
        sources: request.sources,
        policy: request.policy.need.to_string(),
        set: row.hash,
        bytes: row.bytes,
        fault: row.fault,
        made: row.made.as_secs(),
        changed: row.changed.as_secs(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_a_user_are_bounded() {
        let load = |open, prepared, request_bytes| UserLoad {
            open,
            prepared,
            request_bytes,
        };
        for (load, is_refused) in [
            (load(0, 0, 0), false),
            (load(99_999, 9999, 0), false),
            (load(100_000, 0, 0), true),
            (load(10_000, 10_000, 0), true),
            (load(8, 8, 31 << 20), true),
            (load(8, 8, 28 << 20), false),
        ] {
            assert_eq!(check_load(&load, 4 << 20).is_err(), is_refused, "{load:?}");
        }
    }
}
