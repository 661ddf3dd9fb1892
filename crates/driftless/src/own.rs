//! Our own files and folders: with modes of their own, never those that a run leaves to chance when
//! it gives up its umask, and only in places where nobody else can put something.

use driftless_model::{cause, quote};
use rustix::fs::Mode;
use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where mirrors of root listen for posts.
const RUNTIME_OF_ALL: &str = "/run/driftless";

/// The umask that the user gave this process (umask(2)).
static UMASK: OnceLock<u32> = OnceLock::new();

/// Gives up the umask: entries of a tree get their modes from the source, and nothing may be taken
/// off them on the way.
pub fn give_up_umask() {
    let _known = umask();
}

/// The user's umask, which the process itself does not have any more.
pub fn umask() -> u32 {
    *UMASK.get_or_init(|| rustix::process::umask(Mode::empty()).as_raw_mode())
}

/// The same if the process has given it up, as all do that change trees.
pub fn given_up_umask() -> Option<u32> {
    UMASK.get().copied()
}

/// The mode of a file that the user asked for, such as a log.
pub fn file_mode() -> u32 {
    0o666 & !umask()
}

/// Opens a file of ours for locking; it is made if it is not there.
#[allow(
    clippy::disallowed_methods,
    reason = "our own file, no part of a replicated tree"
)]
pub fn lock_file(path: &Path) -> io::Result<File> {
    File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

/// The user's folder for state (XDG Base Directory Specification), made if it is not there. An
/// error says why there is none to be had. A home that is not there is none: that of `nobody` is
/// `/nonexistent`, and shall stay so.
#[allow(
    clippy::disallowed_methods,
    reason = "our own folder, no part of a replicated tree"
)]
pub fn state_folder() -> Result<PathBuf, String> {
    let path = state_places()
        .into_iter()
        .next()
        .ok_or("XDG_STATE_HOME names no folder, and HOME none that is there")?;
    make_own(&path, "set XDG_STATE_HOME").map_err(|why| format!("{}: {why}", quote(&path)))?;
    Ok(path)
}

/// Makes a directory of this user with mode 0700. Returns the cause if other users can change it.
pub fn make_private_folder(path: &Path) -> Result<(), String> {
    make_own(
        path,
        "name another directory with --dir, or change their owner and mode",
    )
    .map_err(|why| format!("{}: {why}", quote(path)))
}

/// Where that folder is: the first of these. Locks of an ordinary user are kept in all of them.
#[allow(
    clippy::disallowed_methods,
    reason = "our own folder, no part of a replicated tree"
)]
pub fn state_places() -> Vec<PathBuf> {
    let folder = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let home =
        folder("HOME").filter(|home| std::fs::metadata(home).is_ok_and(|meta| meta.is_dir()));
    let bases = folder("XDG_STATE_HOME")
        .into_iter()
        .chain(home.map(|home| home.join(".local/state")));
    bases.map(|base| base.join("driftless")).collect()
}

/// Opens the file by which a job is held, to read and write; it is made if it is not there.
#[allow(
    clippy::disallowed_methods,
    reason = "our own file, no part of a replicated tree"
)]
pub fn job_lock(path: &Path) -> io::Result<File> {
    File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(path)
}

/// The user's folders for configuration (XDG Base Directory Specification).
pub fn config_places() -> Vec<PathBuf> {
    let folder = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let home = folder("HOME").map(|home| home.join(".config"));
    let base = folder("XDG_CONFIG_HOME").or(home);
    base.map(|base| base.join("driftless"))
        .into_iter()
        .collect()
}

/// Where mirrors listen for posts of other users: in a folder of their service, or in the machine's
/// for those of root and in the user's own for others.
pub fn runtime_places() -> Vec<PathBuf> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    match named("DRIFTLESS_RUNTIME_DIR") {
        Some(folder) => vec![folder],
        None => {
            let own = named("XDG_RUNTIME_DIR").map(|folder| folder.join("driftless"));
            [Some(PathBuf::from(RUNTIME_OF_ALL)), own]
                .into_iter()
                .flatten()
                .collect()
        }
    }
}

/// The one of these folders in which this process may listen; it may not be there yet. An error says
/// why there is none to be had.
pub fn runtime_place() -> Result<PathBuf, String> {
    let mut places = runtime_places();
    let is_root = rustix::process::geteuid().is_root();
    places.retain(|place| is_root || place != Path::new(RUNTIME_OF_ALL));
    let place = places.into_iter().next();
    place.ok_or_else(|| "neither DRIFTLESS_RUNTIME_DIR nor XDG_RUNTIME_DIR names a folder".into())
}

/// That folder, made if it is not there. Everybody may look into it. An error says why there is none
/// to be had.
#[allow(
    clippy::disallowed_methods,
    reason = "our own folder, no part of a replicated tree"
)]
pub fn runtime_folder() -> Result<PathBuf, String> {
    let path = runtime_place()?;
    let failed = |why: &str| format!("{}: {why}", quote(&path));
    let made = DirBuilder::new().recursive(true).mode(0o755).create(&path);
    made.map_err(|error| failed(&format!("cannot make the folder: {}", cause(&error))))?;
    let meta = std::fs::symlink_metadata(&path).map_err(|error| failed(&cause(&error)))?;
    if !meta.is_dir() || !is_own(&meta) || meta.mode() & 0o022 != 0 {
        return Err(failed(
            "it is not a folder that this user alone can write to",
        ));
    }
    // Whatever made it first need not have let others in, who are to post.
    if path == Path::new(RUNTIME_OF_ALL) && meta.mode() & 0o055 != 0o055 {
        let opened = std::fs::set_permissions(&path, Permissions::from_mode(0o755));
        opened.map_err(|error| {
            failed(&format!(
                "cannot let others look into it: {}",
                cause(&error)
            ))
        })?;
    }
    Ok(path)
}

/// A path of this host without symbolic links, whether or not the last name is there already.
#[allow(
    clippy::disallowed_methods,
    reason = "it is only found out where something is"
)]
pub fn real_place(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let in_its_place = || {
        let parent = std::fs::canonicalize(absolute.parent()?).ok()?;
        Some(parent.join(absolute.file_name().unwrap_or(std::ffi::OsStr::new(""))))
    };
    std::fs::canonicalize(&absolute)
        .ok()
        .or_else(in_its_place)
        .unwrap_or(absolute)
}

/// Makes the folder that a path of ours is in, with those above it, if they are not there: everybody
/// may look into them, and nobody else may change what is in it.
#[allow(
    clippy::disallowed_methods,
    reason = "our own folder, no part of a replicated tree"
)]
pub fn make_folder_of(path: &Path) -> Result<(), String> {
    let Some(folder) = path.parent() else {
        return Ok(());
    };
    let failed = |why: &str| format!("{}: {why}", quote(folder));
    let made = DirBuilder::new().recursive(true).mode(0o755).create(folder);
    made.map_err(|error| failed(&format!("cannot make the folder: {}", cause(&error))))?;
    let meta = std::fs::metadata(folder).map_err(|error| failed(&cause(&error)))?;
    let is_ours = is_own(&meta) || meta.uid() == 0;
    if !is_ours || meta.mode() & 0o022 != 0 {
        return Err(failed("others than this user may change what is in it"));
    }
    Ok(())
}

/// A path at which a socket can be made (unix(7), `sun_path`, which ends with a NUL). An error says
/// what is to be shorter: the name, or the folder that `variable` names.
pub fn socket_path(path: PathBuf, variable: &str) -> Result<PathBuf, String> {
    const BYTES_MAX: usize = 107;
    match path.as_os_str().len() {
        0..=BYTES_MAX => Ok(path),
        len => Err(format!(
            "{}: the path of a socket has {BYTES_MAX} bytes at most, and this one has {len}: give the job a shorter name, or set {variable} to a folder with a shorter path",
            quote(&path)
        )),
    }
}

/// A file of this name in the folder for state. What somebody else put there is none of ours and
/// goes.
#[allow(
    clippy::disallowed_methods,
    reason = "our own file, no part of a replicated tree"
)]
pub fn state_file(name: &str) -> Result<PathBuf, String> {
    let path = state_folder()?.join(name);
    if std::fs::symlink_metadata(&path).is_ok_and(|meta| !meta.is_file() || !is_own(&meta)) {
        forget_database(&path);
    }
    Ok(path)
}

/// Removes a database of ours, and what SQLite keeps beside it.
#[allow(
    clippy::disallowed_methods,
    reason = "our own file, no part of a replicated tree"
)]
pub fn forget_database(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(suffix);
        let _it_may_never_have_been_made = std::fs::remove_file(file);
    }
}

fn is_own(meta: &Metadata) -> bool {
    meta.uid() == rustix::process::geteuid().as_raw()
}

/// Makes a folder that is the user's own, and closed to others, with all above it. `remedy` is that for
/// an unsafe folder.
#[allow(
    clippy::disallowed_methods,
    reason = "our own folder, no part of a replicated tree"
)]
fn make_own(path: &Path, remedy: &str) -> Result<(), String> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| format!("cannot make the folder: {}", cause(&error)))?;
    let meta = std::fs::symlink_metadata(path)
        .map_err(|error| format!("cannot look at the folder: {}", cause(&error)))?;
    if !meta.is_dir() || !is_own(&meta) {
        return Err(format!("it is not a folder of this user ({remedy})"));
    }
    if let Some(above) = foreign_above(path) {
        return Err(format!(
            "root cannot trust it, since others may change {} ({remedy})",
            quote(above)
        ));
    }
    if meta.mode() & 0o077 != 0 {
        let closed = std::fs::set_permissions(path, Permissions::from_mode(0o700));
        closed.map_err(|error| format!("cannot close the folder to others: {}", cause(&error)))?;
    }
    Ok(())
}

/// For root: a directory above `path` in which somebody else could put another folder in its place,
/// as where sudo keeps the HOME of the user.
#[allow(
    clippy::disallowed_methods,
    reason = "our own folder, no part of a replicated tree"
)]
fn foreign_above(path: &Path) -> Option<&Path> {
    const STICKY: u32 = 0o1000;
    const OTHERS_WRITE: u32 = 0o022;
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let is_open = |meta: Metadata| {
        meta.uid() != 0 || meta.mode() & OTHERS_WRITE != 0 && meta.mode() & STICKY == 0
    };
    path.ancestors()
        .skip(1)
        .find(|above| std::fs::metadata(above).is_ok_and(is_open))
}
