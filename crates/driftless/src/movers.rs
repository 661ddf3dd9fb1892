//! Runs that many hosts share: `sync --queue` and `sync --hosts`, and the command `mover`.

mod broker;
mod crew;
mod hosts;

use crate::again::{self, Passed};
use crate::args::{MoverArgs, MoversArgs, SyncArgs};
use crate::exit::Exit;
use crate::output::Output;
use crate::reach::Lines;
use crate::signals::{self, Signals};
use crate::{Ended, own};
use broker::BrokerExchange;
use crew::Crew;
use driftless_engine::{Brief, By, End, Exchange, MachineClock, Options, Summary, coordinate};
use driftless_state::{Found, Record, StoreError};
use driftless_tree::Endpoint;
use hosts::{HostsExchange, Starting};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Whether others share the work.
pub fn are_wanted(args: &MoversArgs) -> bool {
    args.queue.queue.is_some() || !args.hosts.is_empty()
}

/// What cannot be had together with movers, if it is asked for.
pub fn refusal(args: &SyncArgs) -> Option<&'static str> {
    let asked = [
        (args.dry_run, "--dry-run looks only from here: run it without --queue and --hosts"),
        (args.copy_with.is_some(), "--copy-with is a command, and movers take no commands from others: run it without --queue and --hosts"),
        (args.link_dest.is_some(), "--link-dest needs one host that sees all names of a file: run it without --queue and --hosts"),
    ];
    asked.into_iter().find(|(asked, _)| *asked).map(|(_, why)| why)
}

/// What is coordinated: the run, the lines to its trees, and what each mover is told of it.
struct Shared<'a> {
    options: &'a mut Options,
    lines: &'a mut Lines,
    brief: Brief,
}

/// Coordinates a run that others share.
pub fn sync(args: &SyncArgs, (options, lines): (&mut Options, &mut Lines), output: &Output, signals: &Signals) -> Ended {
    (options.source, options.replica) = (absolute(&options.source), absolute(&options.replica));
    let wants_receipts = driftless_engine::Monitor::wants_receipts(output);
    let brief = Brief::of(options, &args.movers.route, wants_receipts);
    let shared = Shared { options, lines, brief };
    if args.movers.hosts.is_empty() { with_queue(args, shared, output, signals) } else { with_hosts(args, shared, output, signals) }
}

/// Movers know nothing of the folder that this was typed in.
fn absolute(root: &Endpoint) -> Endpoint {
    if root.host.is_some() { root.clone() } else { root.at(root.plain_path()) }
}

fn with_queue(args: &SyncArgs, shared: Shared<'_>, output: &Output, signals: &Signals) -> Ended {
    let (options, brief) = (&shared.options, &shared.brief);
    let name = args.movers.queue.job.as_deref().unwrap_or_default();
    let broker = broker::broker(&args.movers.queue).map_err(|error| broker::queue_error(&error))?;
    let classes: Vec<String> = brief.routes.iter().map(|route| route.class.clone()).collect();
    let mut exchange = BrokerExchange::open(&broker, name, &classes, output, &signals.stop).map_err(|error| broker::queue_error(&error))?;
    let path = own::state_file(&format!("job-{name}")).map_err(|why| (Exit::CouldNotRun, format!("{NO_STATE}: {why}")))?;
    let _lock = lock(&path, name)?;
    // Whether receipts are wanted makes no other run of it.
    let about = format!("{} {:?} {:?} {:?}", env!("CARGO_PKG_VERSION"), brief.without_receipts(), options.delete_limit, options.selection);
    let mut record = Record::open(&path, about.as_bytes()).map_err(|error| unusable(&path, &error))?;
    tell_dropped(&mut record, (args.movers.fresh, name), output).map_err(|error| unusable(&path, &error))?;
    if record.found() == Found::Same {
        // What is told of entries that are looked at twice is told once.
        output.remember();
    }
    let (summary, earlier) = shared.run(output, signals, (&mut exchange, &mut record))?;
    drop(record);
    if !matches!(summary.end, End::Stopped | End::CutOff(_)) {
        // After a run that came to its end there is nothing to go on with; nor after one whose disk did not keep what it was given: what
        // is settled in the record may be what was lost.
        own::forget_database(&path);
    }
    Ok((summary, earlier))
}

/// Drops the record if the user says so, and says what became of one that is no use.
fn tell_dropped(record: &mut Record, (fresh, name): (bool, &str), output: &Output) -> Result<(), StoreError> {
    let why = match record.found() {
        Found::Other => "it had other options or trees, or was of another version of driftless",
        Found::Same if fresh => "as --fresh says",
        _ => return Ok(()),
    };
    output.note(&format!("the interrupted run of job \"{name}\" is not gone on with: {why}"));
    if fresh { record.begin_anew() } else { Ok(()) }
}

const NO_STATE: &str = "there is no folder for the record of the run";

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> (Exit, String) {
    let path = driftless_model::escape(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()));
    (Exit::CouldNotRun, format!("\"{path}\": cannot keep the record of the run: {error}"))
}

/// Two coordinators of one job would take each other's shares away.
fn lock(path: &Path, name: &str) -> Result<File, (Exit, String)> {
    let mut name_of_lock = path.as_os_str().to_owned();
    name_of_lock.push(".lock");
    let path = PathBuf::from(name_of_lock);
    let file = own::lock_file(&path).map_err(|error| unusable(&path, &error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(_) => Err((Exit::Locked, format!("another run coordinates the job \"{name}\"; wait for it to end, or name another job"))),
    }
}

fn with_hosts(args: &SyncArgs, shared: Shared<'_>, output: &Output, signals: &Signals) -> Ended {
    let starting = Starting::of(args, shared.options, signals)?;
    let folder = tempfile::tempdir().map_err(|error| (Exit::CouldNotRun, format!("cannot make a temporary folder: {error}")))?;
    let path = folder.path().join("record");
    let mut record = Record::open(&path, b"").map_err(|error| unusable(&path, &error))?;
    let mut exchange = HostsExchange::start(&args.movers.hosts, starting, output);
    shared.run(output, signals, (&mut exchange, &mut record))
}

impl Shared<'_> {
    /// Coordinates it, in as many passes as the lines to the trees take. What movers did stands in the record, however often they are lost.
    fn run(mut self, output: &Output, signals: &Signals, (exchange, record): (&mut dyn Exchange, &mut Record)) -> Ended {
        let began = Instant::now();
        let pass = |options: &Options| {
            let by = By { exchange, record, clock: &MachineClock };
            let summary = coordinate((options, &mut self.brief), output, &signals.stop, by)?;
            Ok(Passed { counts: summary.counts, end: summary.end.clone(), result: summary })
        };
        match again::repeat((self.options, self.lines), &(output, signals), false, pass) {
            Ok((passed, earlier)) => Ok((Summary { end: passed.end, elapsed: began.elapsed(), ..passed.result }, earlier)),
            // What was waited for when the signal came no longer matters.
            Err(_) if signals.number() > 0 => Err((Exit::Signal(signals.number()), "stopped; run it again to go on".into())),
            Err(error) => Err(crate::refusal(&error, self.options)),
        }
    }
}

/// The command `mover`.
pub fn serve(args: &MoverArgs) -> Exit {
    // Modes are set as the source has them; nothing may be taken off them on the way.
    own::give_up_umask();
    let signals = signals::watch();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let crew = Crew::new(format!("{host}:{}", std::process::id()), args.reach.clone(), args.throttle.clone(), &signals);
    match (args.stdio, &args.queue.queue) {
        (true, _) => hosts::serve(crew, &signals),
        (false, Some(_)) => broker::serve(args, crew, &signals),
        (false, None) => {
            eprintln!("driftless mover: name the broker with --queue and the job with --job");
            Exit::Usage
        }
    }
}
