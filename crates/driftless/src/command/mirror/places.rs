//! Where the trees of a job lie on this host: what no mirror could work with is told before one
//! begins.

use super::{Failure, detectors};
use crate::exit::Exit;
use driftless_mirror::job::Job;
use driftless_model::{SNAPSHOTS, cause, quote};
use driftless_remote::Target;
use driftless_tree::lacks_to_ask_server;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Refuses trees of this host that cannot be a source and its replicas. Returns what may be over
/// when the mirror begins.
pub fn check(job: &Job) -> Result<Option<String>, Failure> {
    let refuse = |why: String| (Exit::CouldNotRun, format!("{}: {why}", job.name));
    let mut replicas: Vec<PathBuf> = Vec::new();
    for named in &job.replicas {
        let Some(replica) = here(job, named)? else {
            continue;
        };
        not_there(&replica, "replica").map_err(refuse)?;
        apart_from(&replica, &replicas).map_err(refuse)?;
        replicas.push(replica);
    }
    let Some(source) = here(job, &job.source)? else {
        have_parents(&replicas).map_err(refuse)?;
        return Ok(None);
    };
    for replica in &replicas {
        apart(job, &source, replica).map_err(refuse)?;
    }
    for replica in &replicas {
        really_apart(job, &source, replica).map_err(refuse)?;
    }
    let missing = not_there(&source, "source").map_err(refuse)?;
    have_parents(&replicas).map_err(refuse)?;
    let wait = "the mirror leaves the replica unchanged until it can read the source";
    Ok(missing.map(|why| format!("{}: {why}; {wait}", job.name)))
}

/// Returns why this host may not see what others tell of the source, if a job hears them.
pub fn remembers(job: &Job) -> Option<String> {
    let hears_others = job.announcements.is_some() || job.list.is_some();
    let source = here(job, &job.source).ok().flatten()?;
    let options = lacks_to_ask_server(&source).filter(|_| hears_others)?;
    Some(format!(
        "{}: this host caches attributes of the file server of {}, so the mirror may miss changes that other hosts report; mount it with the options {options}",
        job.name,
        quote(&source)
    ))
}

/// Both trees of one replica as they are compared with those of other jobs: absolute on this host,
/// as the job has them on another.
pub fn trees(source: &str, replica: &str) -> (PathBuf, PathBuf) {
    let place = |tree: &str| match Target::parse(tree.as_ref()) {
        Ok(target) if target.host.is_none() => {
            plain(&std::path::absolute(&target.path).unwrap_or(target.path))
        }
        _ => PathBuf::from(tree),
    };
    (place(source), place(replica))
}

/// The path of a tree of this host, absolute, without what means nothing in it.
fn here(job: &Job, tree: &str) -> Result<Option<PathBuf>, Failure> {
    let path = detectors::own_path(job, tree)?;
    Ok(path.map(|path| plain(&std::path::absolute(&path).unwrap_or(path))))
}

fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// Returns the reason if a tree cannot be read now. Fails if it is not a directory.
#[allow(
    clippy::disallowed_methods,
    reason = "it is only found out what the user means"
)]
fn not_there(tree: &Path, which: &str) -> Result<Option<String>, String> {
    let named = || format!("the {which} {}", quote(tree));
    match std::fs::metadata(tree) {
        Ok(meta) if meta.is_dir() => Ok(None),
        Ok(_) => Err(format!("{} is not a directory; name a directory", named())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(Some(format!("{} does not exist now", named())))
        }
        Err(error) => Ok(Some(format!(
            "{} cannot be read now: {}",
            named(),
            cause(&error)
        ))),
    }
}

/// Refuses a replica that can neither be there nor be made, since what it would be in is missing.
fn have_parents(replicas: &[PathBuf]) -> Result<(), String> {
    for replica in replicas {
        let parent = replica.parent().unwrap_or(replica);
        if let Some(why) = not_there(parent, "directory")? {
            return Err(format!(
                "{why}, so the mirror cannot create the replica {} in it; mount it, or create it",
                quote(replica)
            ));
        }
    }
    Ok(())
}

/// Refuses a replica within another one, or around it.
fn apart_from(replica: &Path, others: &[PathBuf]) -> Result<(), String> {
    for other in others {
        let (inner, outer) = match (replica.starts_with(other), other.starts_with(replica)) {
            (true, _) => (replica, other.as_path()),
            (_, true) => (other.as_path(), replica),
            _ => continue,
        };
        return Err(format!(
            "the replica {} lies inside the replica {}: name another directory",
            quote(inner),
            quote(outer)
        ));
    }
    Ok(())
}

/// Refuses a source within its replica, and a replica within its source that is not left out.
fn apart(job: &Job, source: &Path, replica: &Path) -> Result<(), String> {
    if source == replica {
        return Err(format!(
            "the replica {} is the source; name another directory",
            quote(replica)
        ));
    }
    if let Ok(below) = replica.strip_prefix(source)
        && !is_left_out(job, below)
    {
        return Err(format!(
            "the replica {} lies inside the source, so the mirror would copy it into itself; exclude it with filters = [\"- /{}/\"], or name another directory",
            quote(replica),
            driftless_model::escape(below.as_os_str().as_bytes())
        ));
    }
    match source.strip_prefix(replica) {
        Ok(below) if !below.starts_with(OsStr::from_bytes(SNAPSHOTS.to_bytes())) => Err(format!(
            "the source {} lies inside the replica {}; name another directory",
            quote(source),
            quote(replica)
        )),
        _ => Ok(()),
    }
}

/// The same where links and directories that are mounted twice lead to, as far as they are there.
fn really_apart(job: &Job, source: &Path, replica: &Path) -> Result<(), String> {
    let (of_source, of_replica) = (lineage(source), lineage(replica));
    let within = |inner: &[Step], outer: &[Step]| {
        let root = outer
            .first()
            .filter(|root| root.below.as_os_str().is_empty())?;
        let step = inner.iter().find(|step| step.id == root.id)?;
        Some(step.below.clone())
    };
    match within(&of_replica, &of_source) {
        Some(below) if below.as_os_str().is_empty() => {
            return Err(format!(
                "the replica {} leads to the source {} by a link or a mount; name another directory",
                quote(replica),
                quote(source)
            ));
        }
        Some(below) if !is_left_out(job, &below) => {
            return Err(format!(
                "the replica {} leads into the source {} by a link or a mount, so the mirror would copy it into itself; exclude it with filters, or name another directory",
                quote(replica),
                quote(source)
            ));
        }
        _ => {}
    }
    match within(&of_source, &of_replica) {
        Some(below) if !below.starts_with(OsStr::from_bytes(SNAPSHOTS.to_bytes())) => Err(format!(
            "the source {} leads into the replica {} by a link or a mount; name another directory",
            quote(source),
            quote(replica)
        )),
        _ => Ok(()),
    }
}

/// A directory at or above a path.
struct Step {
    /// Its device and inode number.
    id: (u64, u64),
    /// Rest of the path below it.
    below: PathBuf,
}

/// The directories at and above a path that are there, without links, the innermost first.
#[allow(
    clippy::disallowed_methods,
    reason = "it is only found out what the user means"
)]
fn lineage(path: &Path) -> Vec<Step> {
    let real = |at: &Path| std::fs::canonicalize(at).ok();
    let there = path.ancestors().find_map(|at| Some((at, real(at)?)));
    let Some((at, real)) = there else {
        return Vec::new();
    };
    let rest = path.strip_prefix(at).unwrap_or(Path::new(""));
    let steps = real.ancestors().filter_map(|above| {
        let meta = std::fs::metadata(above).ok()?;
        let below = real.strip_prefix(above).ok()?.join(rest);
        Some(Step {
            id: (meta.dev(), meta.ino()),
            below: below.components().collect(),
        })
    });
    steps.collect()
}

/// Whether nothing of a directory below the source is taken.
fn is_left_out(job: &Job, below: &Path) -> bool {
    let mut ways = below.ancestors().filter(|way| !way.as_os_str().is_empty());
    // Whether it is on a file system of its own is seen when both trees are opened.
    job.policy.one_file_system
        || ways.any(|way| !job.policy.filter.takes(way.as_os_str().as_bytes(), true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_mirror::job::parse;

    fn told(source: &str, replicas: &[&str], keys: &str) -> String {
        let text = format!("source = {source:?}\nreplicas = {replicas:?}\n{keys}");
        let job = parse(&text, Path::new("test.toml")).expect("a job");
        match check(&job) {
            Ok(warning) => warning.unwrap_or_default(),
            Err((_, why)) => why,
        }
    }

    #[test]
    fn trees_that_lie_within_each_other_are_refused() {
        for (source, replicas, why) in [
            ("/none/s", &["/none/s/r"][..], "inside the source"),
            ("/none/s", &["/none/x/../s/./r"], "inside the source"),
            ("/none/s", &["/none/x/../s"], "is the source"),
            ("/none/s", &["/none"], "inside the replica"),
            ("/none/s", &["/none/r", "/none/r/x"], "inside the replica"),
            ("/none/s", &["/none/r/x", "/none/r"], "inside the replica"),
            ("/proc/self/comm", &["/none/r"], "is not a directory"),
            ("/proc", &["/proc/self/comm"], "is not a directory"),
            ("/none/s", &["/none-r"], "does not exist now"),
            ("/proc", &["/none/r"], "\"/none\" does not exist now, so"),
            (
                "far:/proc",
                &["/none/r"],
                "\"/none\" does not exist now, so",
            ),
        ] {
            let told = told(source, replicas, "");
            assert!(told.contains(why), "{source} {replicas:?}: {told}");
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "trees of the test's own")]
    fn links_lead_where_they_lead() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("s/below")).expect("a directory");
        std::fs::create_dir(at("r")).expect("a directory");
        for (link, to) in [("link", "s"), ("deep", "s/below"), ("out", "r")] {
            std::os::unix::fs::symlink(at(to), at(link)).expect("a link");
        }
        for (source, replica, why) in [
            ("s", "link", "leads to the source"),
            ("s", "link/new", "leads into the source"),
            ("s", "deep", "leads into the source"),
            ("deep", "s", "leads into the replica"),
            ("s", "out", ""),
            ("s", "out/new", ""),
        ] {
            let (source, replica) = (at(source), at(replica));
            let text = |path: &Path| path.to_str().expect("text").to_owned();
            let told = told(&text(&source), &[&text(&replica)], "");
            assert!(told.contains(why), "{source:?} {replica:?}: {told}");
            assert_eq!(told.is_empty(), why.is_empty(), "{told}");
        }
    }

    #[test]
    fn trees_beside_each_other_and_what_is_left_out_are_taken() {
        for (source, replicas, keys) in [
            ("/proc", &["/none-r", "/none-rx"][..], ""),
            ("/proc", &["/procs", "far:/proc/r"], ""),
            ("far:/proc", &["/none-r"], ""),
            ("/proc", &["/proc/none"], "filters = [\"- /none/\"]\n"),
            ("/proc", &["/proc/none"], "one_file_system = true\n"),
        ] {
            assert_eq!(told(source, replicas, keys), "", "{source} {replicas:?}");
        }
    }
}
