//! The command `put`: from files of the user to a deposit at a gateway.
//!
//! The engine of `sync` copies into a draft, as the user. The draft gets its name when the copy is
//! complete and on disk. So a job finds the whole deposit or none.

mod place;
mod remote;
mod serve;
pub mod wire;

use crate::args::{GuardArgs, OutputArgs, PutArgs};
use crate::command::gateway::socket_of;
use crate::command::reach::Unreached;
use crate::command::run::{alone, run as run_engine};
use crate::command::site::usage;
use crate::exit::Exit;
use crate::output::files::rules_for_state;
use crate::output::human::host_name;
use crate::output::{Task, mirror as say, put as show};
use crate::signals::{self, Signals};
use driftless_deposit::check_deposit_name;
use driftless_engine::Options;
use driftless_model::{Filter, Policy, cause, quote};
use place::{DepositPlace, LocalPlace};
use remote::RemotePlace;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wire::{PutForm, PutRequest};

/// Bytes of standard input that are read at a time.
const READ_BYTES: usize = 256 << 10;
/// Device number of `/dev/null` (Linux, devices.txt).
const NULL_DEVICE: (u32, u32) = (1, 3);
/// Longest time until a wait for standard input sees a signal.
const STOP_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Makes, lists or removes deposits; returns the exit code.
pub fn run(args: &PutArgs) -> Exit {
    if args.serve {
        return serve::run(args);
    }
    let code = put(args).unwrap_or_else(|(code, why)| {
        say::complaint(&why);
        code
    });
    say::final_code(code)
}

fn put(args: &PutArgs) -> Result<Exit, Unreached> {
    let planned = match args.list || args.remove.is_some() {
        true => None,
        false => Some(PlannedPut::of(args)?),
    };
    let signals = signals::watch();
    let mut place: Box<dyn DepositPlace> = match &args.on {
        None => Box::new(LocalPlace::open(&socket_of(&args.socket))?),
        Some(host) => Box::new(RemotePlace::open(args, host, &signals)?),
    };
    match (&args.remove, planned) {
        (Some(name), _) => place.remove(name)?,
        (None, None) => show::deposits(&place.list()?, args.json),
        (None, Some(planned)) => return planned.carry_out(args, &mut *place, &signals),
    }
    Ok(Exit::Equal)
}

/// A deposit that is to be made.
struct PlannedPut {
    /// Absolute paths; none for standard input.
    sources: Vec<PathBuf>,
    request: PutRequest,
}

impl PlannedPut {
    /// Checks the sources and the name.
    fn of(args: &PutArgs) -> Result<Self, Unreached> {
        let is_stdin = |path: &&PathBuf| path.as_os_str() == "-";
        let form = match (&args.sources[..], args.sources.iter().find(is_stdin)) {
            ([_], Some(_)) => PutForm::Stream,
            (_, Some(_)) => return Err(usage("standard input (\"-\") must be the only source")),
            ([_], None) => PutForm::Tree,
            (_, None) => PutForm::Group,
        };
        let sources = match form {
            PutForm::Stream => Vec::new(),
            PutForm::Tree | PutForm::Group => absolute(&args.sources)?,
        };
        let name = name(args, (form, &sources))?;
        check_deposit_name(&name).map_err(|error| usage(&error.to_string()))?;
        check_sources(&sources)?;
        if form == PutForm::Stream && is_stdin_closed() {
            return Err(usage(
                "standard input is closed: pipe the data to this command",
            ));
        }
        Ok(PlannedPut {
            request: PutRequest {
                name: name.as_bytes().to_vec(),
                origin: (form != PutForm::Stream).then(|| origin(&sources)),
                form,
                replaces: args.replace,
            },
            sources,
        })
    }

    fn carry_out(
        &self,
        args: &PutArgs,
        place: &mut dyn DepositPlace,
        signals: &Signals,
    ) -> Result<Exit, Unreached> {
        self.check_no_source_holds(place.home())?;
        let draft = place.begin(&self.request)?;
        let code = match self.request.form {
            PutForm::Stream => carry_stream(place, signals)?,
            PutForm::Tree | PutForm::Group => self.copy(args, place, &draft),
        };
        let code = match (code, signals.number()) {
            (Exit::Equal, 0) => Exit::Equal,
            (Exit::Equal, signal) => Exit::Signal(signal),
            (code, _) => code,
        };
        if code != Exit::Equal {
            let name = quote(Path::new(OsStr::from_bytes(&self.request.name)));
            say::complaint(&match self.request.form {
                PutForm::Stream => format!("{name}: nothing was deposited"),
                PutForm::Tree | PutForm::Group => format!(
                    "{name}: nothing was deposited; the same command continues the copy, and --remove removes it"
                ),
            });
            return Ok(code);
        }
        let placed = place.commit()?;
        if let Some(why) = &placed.leftover {
            say::complaint(&format!(
                "the deposit is complete; what it replaced, or its draft, was not removed: {why}"
            ));
        }
        show::placed(&placed, &self.request.name, args.json);
        Ok(Exit::Equal)
    }

    /// Refuses a source that holds the deposits: the copy would contain itself.
    #[allow(
        clippy::disallowed_methods,
        reason = "a look at paths that the user names; the engine opens them"
    )]
    fn check_no_source_holds(&self, home: Option<&Path>) -> Result<(), Unreached> {
        let Some(Ok(home)) = home.map(std::fs::canonicalize) else {
            return Ok(());
        };
        let holds = |source: &&PathBuf| {
            let source = std::fs::canonicalize(source);
            source.is_ok_and(|source| home.starts_with(source))
        };
        match self.sources.iter().find(holds) {
            None => Ok(()),
            Some(source) => Err(usage(&format!(
                "{}: it contains your deposits; name the directories below it",
                quote(source)
            ))),
        }
    }

    /// Copies the sources into the draft.
    fn copy(&self, args: &PutArgs, place: &dyn DepositPlace, draft: &Path) -> Exit {
        for source in &self.sources {
            let replica = match (self.request.form, source.file_name()) {
                (PutForm::Group, Some(name)) => draft.join(name),
                _ => draft.to_owned(),
            };
            let options = options(args, source, place.typed(&replica));
            let guard = GuardArgs {
                require: Vec::new(),
                forget_mounts: true,
            };
            let output = OutputArgs {
                json: false,
                strict: false,
                log: None,
                quiet: args.quiet,
                verbose: false,
                progress: args.progress,
            };
            let run = (Ok(options), &args.reach, &guard);
            match run_engine(run, &output, Task::Put, alone) {
                Exit::Equal => {}
                code => return code,
            }
        }
        Exit::Equal
    }
}

/// Returns a run that makes `replica` identical to `source`. Entries that an earlier attempt copied,
/// and that the source lost since, are deleted.
fn options(args: &PutArgs, source: &Path, replica: PathBuf) -> Options {
    let policy = Policy {
        filter: Filter {
            rules: rules_for_state([source, &replica]),
            ..Filter::default()
        },
        delete: true,
        delete_unlike: true,
        ..Policy::default()
    };
    Options {
        source: source.to_owned().into(),
        replica: replica.into(),
        policy,
        throttle: args.throttle.for_engine(),
        ..Options::default()
    }
}

/// Returns the name of the deposit.
fn name(args: &PutArgs, (form, sources): (PutForm, &[PathBuf])) -> Result<OsString, Unreached> {
    if let Some(name) = &args.name {
        return Ok(name.clone());
    }
    let last = match (form, sources) {
        (PutForm::Tree, [source]) => source.file_name(),
        (PutForm::Group, _) => {
            return Err(usage(
                "several sources make one deposit: name it with --name",
            ));
        }
        _ => {
            return Err(usage(
                "standard input has no name: name the deposit with --name",
            ));
        }
    };
    last.map(OsStr::to_owned)
        .ok_or_else(|| usage("the source has no last name: name the deposit with --name"))
}

fn absolute(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Unreached> {
    let absolute = |path: &PathBuf| {
        std::path::absolute(path)
            .map_err(|error| usage(&format!("{}: {}", quote(path), cause(&error))))
    };
    paths.iter().map(absolute).collect()
}

/// Looks at each source before anything is copied.
#[allow(
    clippy::disallowed_methods,
    reason = "a look at paths that the user names; the engine opens them"
)]
fn check_sources(sources: &[PathBuf]) -> Result<(), Unreached> {
    let mut names = BTreeSet::new();
    for source in sources {
        let meta = std::fs::metadata(source).map_err(|error| {
            let (path, cause) = (quote(source), cause(&error));
            let why = format!("{path}: cannot read: {cause}; nothing was deposited");
            (Exit::CouldNotRun, why)
        })?;
        if !meta.is_file() && !meta.is_dir() {
            return Err(usage(&format!(
                "{}: it is neither a file nor a directory; pipe its data to \"driftless put -\"",
                quote(source)
            )));
        }
        if !names.insert(source.file_name()) || sources.len() > 1 && source.file_name().is_none() {
            let why = "it has no last name, or another source has the same one";
            return Err(usage(&format!(
                "{}: {why}; deposit a directory that holds both",
                quote(source)
            )));
        }
    }
    Ok(())
}

/// Returns whether the caller closed standard input. The library opens `/dev/null` for reading and
/// writing in its place.
fn is_stdin_closed() -> bool {
    use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, major, minor};
    let stdin = std::io::stdin();
    let is_null = fstat(&stdin).is_ok_and(|meta| {
        let device = (major(meta.st_rdev), minor(meta.st_rdev));
        FileType::from_raw_mode(meta.st_mode) == FileType::CharacterDevice && device == NULL_DEVICE
    });
    is_null && fcntl_getfl(&stdin).is_ok_and(|flags| flags.contains(OFlags::RDWR))
}

/// Returns a description of the sources: the same command on the same host continues a copy. A
/// source of another type cannot continue it.
#[allow(
    clippy::disallowed_methods,
    reason = "a look at paths that the user names; the engine opens them"
)]
fn origin(sources: &[PathBuf]) -> Vec<u8> {
    let mut origin = host_name().into_bytes();
    for source in sources {
        origin.push(0);
        origin.extend_from_slice(source.as_os_str().as_bytes());
        let meta = std::fs::symlink_metadata(source);
        let is_dir = meta.is_ok_and(|meta| meta.is_dir());
        origin.extend_from_slice(if is_dir { b"\0dir" } else { b"\0file" });
    }
    origin
}

/// Carries standard input into the draft. Returns the code of a signal that came before its end.
fn carry_stream(place: &mut dyn DepositPlace, signals: &Signals) -> Result<Exit, Unreached> {
    let stdin = std::io::stdin();
    let failed = |errno: Errno| {
        let cause = cause(&errno.into());
        let why = format!("standard input: cannot read: {cause}; nothing was deposited");
        (Exit::CouldNotRun, why)
    };
    loop {
        if signals.number() > 0 {
            return Ok(Exit::Signal(signals.number()));
        }
        match poll(
            &mut [PollFd::new(&stdin, PollFlags::IN)],
            Some(&STOP_INTERVAL),
        ) {
            Ok(0) | Err(Errno::INTR) => continue,
            ready => ready.map_err(failed)?,
        };
        let mut buffer = vec![0; READ_BYTES];
        let count = match rustix::io::read(&stdin, &mut buffer[..]) {
            Ok(0) => return Ok(Exit::Equal),
            Err(Errno::INTR | Errno::AGAIN) => continue,
            count => count.map_err(failed)?,
        };
        buffer.truncate(count);
        place.write(buffer)?;
    }
}
