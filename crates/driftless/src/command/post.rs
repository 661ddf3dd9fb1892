//! `driftless post`: a program names the files that it has changed, and the mirrors of this host whose
//! sources they are in are told.

use crate::args::PostArgs;
use crate::command::job;
use crate::command::lists::form_of;
use crate::exit::Exit;
use crate::output::mirror as say;
use crate::own;
use driftless_detect::post::{Line, SOCKET_SUFFIX, Sort};
use driftless_model::{ListError, cause, quote};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Paths that are told at once.
const PATHS_AT_ONCE: usize = 10_000;
/// Paths that nobody took are named up to so many.
const NAMED_MAX: u64 = 10;

/// The exit code, and what to say.
type Failure = (Exit, String);

/// Posts paths; returns the exit code.
pub fn run(args: &PostArgs) -> Exit {
    post_all(args).unwrap_or_else(|(code, why)| {
        say::refusal(code, &why);
        code
    })
}

/// The socket of a job's mirror, for the process that holds the job.
pub fn socket_of(job: &str) -> Result<PathBuf, String> {
    let path = own::runtime_folder()?.join(format!("{job}{SOCKET_SUFFIX}"));
    own::socket_path(path, "DRIFTLESS_RUNTIME_DIR")
}

/// Says why a job's mirror could listen nowhere; makes nothing.
pub fn check(job: &str) -> Result<(), String> {
    let path = own::runtime_place()?.join(format!("{job}{SOCKET_SUFFIX}"));
    own::socket_path(path, "DRIFTLESS_RUNTIME_DIR").map(drop)
}

fn post_all(args: &PostArgs) -> Result<Exit, Failure> {
    let sockets = sockets(args.job.as_deref())?;
    let sort = if args.recursive {
        Sort::Subtree
    } else {
        Sort::Entry
    };
    let mut posts = Posts {
        sockets,
        sort,
        paths: Vec::new(),
        untaken: 0,
    };
    for path in &args.paths {
        posts.add(path)?;
    }
    if let Some(from) = &args.from {
        let wrong = |error| (Exit::Usage, format!("{}: {}", quote(from), cause(&error)));
        for path in paths_of(from, args.is_null).map_err(wrong)? {
            posts.add(&path.map_err(wrong)?)?;
        }
    }
    posts.tell()?;
    Ok(if posts.untaken == 0 {
        Exit::Equal
    } else {
        Exit::Problems
    })
}

/// Where mirrors listen.
fn sockets(job: Option<&Path>) -> Result<Vec<PathBuf>, Failure> {
    let name = job.map(job::name).transpose()?;
    let places = own::runtime_places();
    let found: Vec<PathBuf> = match &name {
        Some(name) => {
            let socket = |place: &PathBuf| place.join(format!("{name}{SOCKET_SUFFIX}"));
            places.iter().map(socket).collect()
        }
        None => places.iter().flat_map(|place| listed(place)).collect(),
    };
    if found.is_empty() {
        return Err(nobody_listens(name.as_deref()));
    }
    Ok(found)
}

#[allow(
    clippy::disallowed_methods,
    reason = "our own folder, no part of a replicated tree"
)]
fn listed(place: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(place) else {
        return Vec::new();
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let is_socket = |path: &PathBuf| {
        path.as_os_str()
            .as_bytes()
            .ends_with(SOCKET_SUFFIX.as_bytes())
    };
    paths.filter(is_socket).collect()
}

fn nobody_listens(job: Option<&str>) -> Failure {
    let whose = job.map_or_else(String::new, |job| format!("{job}: "));
    let why = format!(
        "{whose}no mirror listens that has \"announcements\" in detect (driftless mirror run)"
    );
    (Exit::CouldNotRun, why)
}

/// The paths that a file lists.
#[allow(
    clippy::disallowed_methods,
    reason = "the user's own file, no part of a replicated tree"
)]
fn paths_of(
    from: &Path,
    is_null: bool,
) -> io::Result<Box<dyn Iterator<Item = io::Result<PathBuf>>>> {
    let mut reader: Box<dyn BufRead> = if from == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(from)?))
    };
    let end = if is_null { 0 } else { b'\n' };
    let path = |line: &[u8]| PathBuf::from(OsStr::from_bytes(line));
    let refused = |error: ListError| {
        let words = error.to_string().replace("--from0", "--null");
        io::Error::new(io::ErrorKind::InvalidData, words)
    };
    let form = form_of(&mut reader, end, |line| Some(path(line))).map_err(refused)?;
    let lines = (1..).zip(reader.split(end));
    let paths = lines.map(move |(number, line)| line.map(|line| path(form.line(number, &line))));
    Ok(Box::new(paths.filter(
        |path| !matches!(path, Ok(path) if path.as_os_str().is_empty()),
    )))
}

/// What is told, and to whom.
struct Posts {
    sockets: Vec<PathBuf>,
    sort: Sort,
    paths: Vec<PathBuf>,
    /// Paths that are in no source.
    untaken: u64,
}

impl Posts {
    fn add(&mut self, typed: &Path) -> Result<(), Failure> {
        match resolved(typed) {
            Ok(path) => self.paths.push(path),
            Err(error) => self.leave_out(typed, &cause(&error)),
        }
        if self.paths.len() >= PATHS_AT_ONCE {
            self.tell()?;
        }
        Ok(())
    }

    fn leave_out(&mut self, path: &Path, why: &str) {
        self.untaken += 1;
        if self.untaken <= NAMED_MAX {
            eprintln!("driftless: {}: {why}", quote(path));
        }
    }

    /// Tells what has gathered.
    fn tell(&mut self) -> Result<(), Failure> {
        let paths = std::mem::take(&mut self.paths);
        let mut is_taken = vec![false; paths.len()];
        let (mut count, mut why) = (0, None);
        for socket in &self.sockets {
            match self.tell_one(socket, &paths, &mut is_taken) {
                Ok(()) => count += 1,
                Err(error) => why = Some(format!("{}: {error}", quote(socket))),
            }
        }
        match why {
            // A socket that a mirror has left behind is nobody's.
            Some(why) if count == 0 => {
                let (code, nobody) = nobody_listens(None);
                return Err((code, format!("{nobody}; {why}")));
            }
            _ => {}
        }
        let untaken = paths
            .iter()
            .zip(&is_taken)
            .filter(|(_, is_taken)| !**is_taken);
        for (path, _) in untaken {
            self.leave_out(path, "it is in the source of no mirror that listens");
        }
        Ok(())
    }

    fn tell_one(
        &self,
        socket: &Path,
        paths: &[PathBuf],
        is_taken: &mut [bool],
    ) -> Result<(), driftless_detect::post::NoMirror> {
        let mut line = Line::connect(socket)?;
        let source = line.source().to_owned();
        let mut own = Vec::new();
        for (index, path) in paths.iter().enumerate() {
            if path.starts_with(&source) {
                line.post(self.sort, path.as_os_str().as_bytes(), None)?;
                own.push(index);
            }
        }
        // What was posted counts when the mirror has said that it heard it.
        line.end()?;
        own.into_iter().for_each(|index| is_taken[index] = true);
        Ok(())
    }
}

/// The absolute path, with symbolic links followed in the directories above, as far as these are
/// there: what is posted may be gone.
#[allow(
    clippy::disallowed_methods,
    reason = "it is only found out what the user means"
)]
fn resolved(typed: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(typed)?;
    let no_name = || io::Error::from(io::ErrorKind::NotFound);
    let (Some(mut dir), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return std::fs::canonicalize(&absolute);
    };
    let mut behind = vec![name];
    loop {
        match std::fs::canonicalize(dir) {
            Ok(real) => {
                let names = behind.iter().rev();
                return Ok(names.fold(real, |path, name| path.join(name)));
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                behind.push(dir.file_name().ok_or_else(no_name)?);
                dir = dir.parent().ok_or_else(no_name)?;
            }
            Err(error) => return Err(error),
        }
    }
}
