//! Going through the targets of sums: directories are listed in windows of sorted names, files are
//! hashed or set apart.
//!
//! What is met is either dealt with at once, or set apart as a task of its own in its place. In the
//! second case, what comes after it goes back into the order, for any thread that is free.

use crate::algorithm::{Algorithm, Digest, digest_of};
use crate::content::BUFFER_BYTES;
use crate::sum::file::{HashFile, Large, all_xattrs};
use crate::sum::found::{Found, Target, What};
use crate::sum::hands::Hands;
use crate::sum::run::Sums;
use crate::sum::task::{Chosen, Folder, Row, Task};
use driftless_model::{Entry, Keep, Kind, Side};
use driftless_pool::Position;
use driftless_tree::{Dir, Done, Levels, NameStream, Names, Place, locate};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Names of a directory that are held at once. A larger directory is listed again for each window:
/// the price of sorted output in bounded memory.
const WINDOW_NAMES: usize = 256 * 1024;

/// Names that are read from a listing at once when only some of them are wanted.
const FILL_NAMES: usize = 1024;

/// Targets or names that one thread takes at once.
const SHARE: usize = 64;

/// What came of an entry or a target that was met.
pub enum Met {
    /// It was dealt with, and this is found.
    Found(Found),
    /// It has no sum, or is left out.
    Nothing,
    /// It is a task of its own.
    Apart(Task),
}

impl<'a, 'r> Hands<'a, 'r> {
    /// What a new thread of the run has.
    pub fn new(sums: &'a Sums<'r>) -> Self {
        Hands {
            sums,
            buffer: vec![0; BUFFER_BYTES],
        }
    }

    /// Carries out a task.
    pub fn carry_out(&mut self, place: Position, task: Task) {
        match task {
            Task::Targets(number) => self.targets(place, number),
            Task::Chosen(number, chosen) => self.chosen(place, number, chosen),
            Task::Dir(above, name) => self.enter(place, &above, &name),
            Task::Open(folder) => self.open(place, *folder),
            Task::More(folder, after, base) => {
                self.list(place, Vec::new(), (folder, Some(after), base))
            }
            Task::Row(row) => self.row(place, Vec::new(), row),
            Task::Large(job) => self.large(place, *job),
        }
    }

    fn targets(&mut self, place: Position, number: u64) {
        let chosen: Chosen = self.sums.targets.lock().by_ref().take(SHARE).collect();
        if chosen.len() == SHARE {
            let next = number + SHARE as u64;
            self.sums.put(vec![next], Task::Targets(next));
        }
        self.chosen(place, number, chosen);
    }

    fn chosen(&mut self, place: Position, mut number: u64, mut chosen: Chosen) {
        let mut found = Vec::new();
        while let Some(target) = chosen.pop_front().filter(|_| !self.sums.stopped()) {
            let met = match target {
                Ok(target) => self.target(Arc::new(target)),
                Err(bad) => Met::Found(Found {
                    target: None,
                    path: Vec::new(),
                    what: What::Problem(bad.to_string()),
                }),
            };
            number += 1;
            let share = self.sums.queue.hungry() || matches!(met, Met::Apart(_));
            match met {
                Met::Found(one) => found.push(one),
                Met::Nothing => {}
                Met::Apart(task) => self.sums.put(vec![number - 1, 0], task),
            }
            if share && !chosen.is_empty() {
                self.sums.put(
                    vec![number],
                    Task::Chosen(number, std::mem::take(&mut chosen)),
                );
            }
        }
        self.sums.finish(place, found);
    }

    fn target(&mut self, target: Arc<Target>) -> Met {
        let path = target.path.as_os_str().as_bytes().to_vec();
        let spot = match locate(&target.path, Side::Source, &self.sums.handles) {
            Ok(spot) => spot,
            Err(error) if error.is_missing() => return Met::what(&target, path, What::Missing),
            Err(error) => return Met::what(&target, path, What::Problem(error.reason())),
        };
        match spot {
            Place::Missing { .. } => Met::what(&target, path, What::Missing),
            Place::Dir(_) if target.expected.is_some() => Met::what(
                &target,
                path,
                What::without_sum(&target, "it is a directory".into()),
            ),
            Place::Dir(dir) => {
                let path = if self.sums.options.manifest {
                    Vec::new()
                } else {
                    path
                };
                let levels = Levels::default().enter(&dir, Side::Source);
                Met::Apart(Task::Open(Box::new(Folder {
                    target,
                    path,
                    dir,
                    levels: levels.expect("nothing is above it"),
                    place: Position::new(),
                })))
            }
            Place::Entry { meta, .. } if self.sums.options.manifest => Met::what(
                &target,
                path,
                What::Problem(format!(
                    "a manifest is made of a directory, and this is {}",
                    meta.kind.phrase()
                )),
            ),
            Place::Entry { parent, name, meta } if meta.kind == Kind::File => {
                self.file(&target, path, &*parent, &name)
            }
            // A symbolic link itself is met only if it leads nowhere.
            Place::Entry { meta, .. } if meta.kind == Kind::Symlink => {
                Met::what(&target, path, What::Missing)
            }
            Place::Entry { meta, .. } => {
                let why = format!("it is {}", meta.kind.phrase());
                Met::what(&target, path, What::without_sum(&target, why))
            }
        }
    }

    fn enter(&mut self, place: Position, above: &Folder, name: &CStr) {
        let (path, target) = (joined(&above.path, name), above.target.clone());
        let entered = above.dir.enter(name).and_then(|dir| {
            let levels = above.levels.enter(&dir, Side::Source)?;
            Ok((dir, levels))
        });
        match entered {
            Ok((dir, levels)) => self.open(
                place,
                Folder {
                    target,
                    path,
                    dir,
                    levels,
                    place: Position::new(),
                },
            ),
            Err(fault) => self
                .sums
                .finish(place, vec![Found::problem(&target, path, fault)]),
        }
    }

    fn open(&mut self, place: Position, folder: Folder) {
        let folder = Folder {
            place: place.clone(),
            ..folder
        };
        let mut found = Vec::new();
        if self.sums.options.manifest {
            let path = if folder.path.is_empty() {
                b".".to_vec()
            } else {
                folder.path.clone()
            };
            let meta = *folder.dir.first_meta();
            let xattrs = all_xattrs(folder.dir.xattrs(&Keep::default()));
            let entry = xattrs.map(|xattrs| Entry { meta, xattrs });
            found.push(Found::entry(
                &folder.target,
                path,
                entry.map(|entry| (entry, None)),
            ));
        }
        self.list(place, found, (Arc::new(folder), None, 0));
    }

    /// Lists the window of names that sort after `after`, or the first window, and goes through it.
    /// What was `found` already is told first.
    fn list(
        &mut self,
        place: Position,
        mut found: Vec<Found>,
        (folder, after, base): (Arc<Folder>, Option<CString>, u64),
    ) {
        match window(&*folder.dir, after.as_deref(), WINDOW_NAMES) {
            Ok((names, more)) => {
                let range = 0..names.len();
                self.row(
                    place,
                    found,
                    Row {
                        folder,
                        names: Arc::new(names),
                        range,
                        base,
                        more,
                    },
                );
            }
            Err(fault) => {
                let path = if folder.path.is_empty() {
                    b".".to_vec()
                } else {
                    folder.path.clone()
                };
                found.push(Found::problem(&folder.target, path, fault));
                self.sums.finish(place, found);
            }
        }
    }

    fn row(&mut self, place: Position, mut found: Vec<Found>, mut row: Row) {
        self.put_rest(&mut row, SHARE);
        while let Some(index) = row.range.next().filter(|_| !self.sums.stopped()) {
            if row.range.len() > 1 && self.sums.queue.hungry() {
                let half = row.range.len() / 2;
                self.put_rest(&mut row, half);
            }
            let (name, hint) = row.names.get(index);
            match self.entry(&row.folder, name, hint) {
                Met::Found(one) => found.push(one),
                Met::Nothing => {}
                Met::Apart(task) => {
                    self.sums.put_part(&row.place_of(index), 0, task);
                    self.put_rest(&mut row, 0);
                }
            }
        }
        self.sums.finish(place, found);
    }

    /// Keeps `keep` names of a row, and puts the others back into the order, with the windows that
    /// may come after them.
    fn put_rest(&self, row: &mut Row, keep: usize) {
        let middle = (row.range.start + keep).min(row.range.end);
        let rest = middle..std::mem::replace(&mut row.range.end, middle);
        let more = std::mem::replace(&mut row.more, false);
        let place = row.place_of(middle);
        if !rest.is_empty() {
            let (folder, names, base) = (row.folder.clone(), row.names.clone(), row.base);
            self.sums.put(
                place,
                Task::Row(Row {
                    folder,
                    names,
                    range: rest,
                    base,
                    more,
                }),
            );
        } else if more {
            let last: CString = row.names.get(row.names.len() - 1).0.into();
            self.sums.put(
                place,
                Task::More(row.folder.clone(), last, row.base + middle as u64),
            );
        }
    }

    fn entry(&mut self, folder: &Arc<Folder>, name: &CStr, hint: Option<Kind>) -> Met {
        let kind = match hint.map_or_else(|| folder.dir.look(name).map(|meta| meta.kind), Ok) {
            Ok(kind) => kind,
            Err(fault) => {
                return Met::Found(Found::problem(
                    &folder.target,
                    joined(&folder.path, name),
                    fault,
                ));
            }
        };
        match kind {
            Kind::Dir => Met::Apart(Task::Dir(folder.clone(), name.into())),
            Kind::File => self.file(
                &folder.target,
                joined(&folder.path, name),
                &*folder.dir,
                name,
            ),
            _ if self.sums.options.manifest => Met::Found(Found::entry(
                &folder.target,
                joined(&folder.path, name),
                other_entry(&*folder.dir, name),
            )),
            _ => Met::Nothing,
        }
    }

    /// Hashes a file now, or sets it apart if it is large.
    fn file(&mut self, target: &Arc<Target>, path: Vec<u8>, dir: &dyn Dir, name: &CStr) -> Met {
        match HashFile::open(target, path, (dir, name), self.sums.options.manifest) {
            Err(found) => Met::Found(*found),
            Ok(job) if self.sums.options.left_out.contains(&job.id()) => Met::Nothing,
            Ok(job) if job.is_large() => Met::Apart(Task::Large(Box::new(job))),
            Ok(job) => Met::Found(self.hash(job)),
        }
    }

    fn large(&mut self, place: Position, job: HashFile) {
        if job.pieces() < 2 {
            let found = self.hash(job);
            return self.sums.finish(place, vec![found]);
        }
        match Large::begin(place, job) {
            Ok(large) => {
                let all = large.all();
                self.pieces(&Arc::new(large), all);
            }
            Err((place, found)) => self.sums.finish(place, vec![*found]),
        }
    }
}

impl Met {
    fn what(target: &Arc<Target>, path: Vec<u8>, what: What) -> Met {
        Met::Found(Found {
            target: Some(target.clone()),
            path,
            what,
        })
    }
}

/// The path of an entry in a directory.
fn joined(path: &[u8], name: &CStr) -> Vec<u8> {
    let mut longer = Vec::with_capacity(path.len() + 1 + name.count_bytes());
    longer.extend(path);
    if !path.is_empty() && path.last() != Some(&b'/') {
        longer.push(b'/');
    }
    longer.extend(name.to_bytes());
    longer
}

/// An entry that is neither a directory nor a regular file.
fn other_entry(dir: &dyn Dir, name: &CStr) -> Done<(Entry, Option<Digest>)> {
    let meta = dir.look(name)?;
    let xattrs = all_xattrs(dir.xattrs_of(name, &Keep::default()))?;
    let link = if meta.kind == Kind::Symlink {
        Some(dir.read_link(name)?)
    } else {
        None
    };
    Ok((
        Entry { meta, xattrs },
        link.map(|link| digest_of(Algorithm::Blake3, link.to_bytes())),
    ))
}

/// The first `names_max` names of a directory that sort after `after`, sorted, and whether there
/// are more.
fn window(dir: &dyn Dir, after: Option<&CStr>, names_max: usize) -> Done<(Names, bool)> {
    let mut stream = dir.list()?;
    let (mut kept, mut cut) = (Names::default(), false);
    loop {
        let more = match after {
            None => stream.fill(&mut kept, 2 * names_max)?,
            Some(after) => fill_behind(&mut *stream, after, &mut kept)?,
        };
        if !more || kept.len() >= 2 * names_max {
            kept.sort();
            if kept.len() > names_max {
                (kept, cut) = (first(&kept, names_max), true);
            }
        }
        if !more {
            return Ok((kept, cut));
        }
    }
}

fn fill_behind(stream: &mut dyn NameStream, after: &CStr, kept: &mut Names) -> Done<bool> {
    let mut fresh = Names::default();
    let more = stream.fill(&mut fresh, FILL_NAMES)?;
    let all = (0..fresh.len()).map(|index| fresh.get(index));
    all.filter(|(name, _)| *name > after)
        .for_each(|(name, kind)| kept.push(name, kind));
    Ok(more)
}

fn first(names: &Names, count: usize) -> Names {
    let mut some = Names::default();
    (0..count)
        .map(|index| names.get(index))
        .for_each(|(name, kind)| some.push(name, kind));
    some
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_tree::{HandlePool, locate_mut};

    #[test]
    fn windows_of_a_directory_are_sorted_and_leave_nothing_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let Ok(Place::Dir(dir)) = locate_mut(folder.path(), &HandlePool::new(8)) else {
            panic!("it is there")
        };
        let name =
            |number: u32| CString::new(format!("{:03}", number * 7919 % 100)).expect("no NUL");
        (0..100).for_each(|number| drop(dir.create_file(&name(number), 0o600).expect("create")));
        for names_max in [1, 7, 33, 50, 99, 100, 1000] {
            let (mut all, mut after) = (Vec::<CString>::new(), None);
            loop {
                let (names, more) = window(&*dir, after.as_deref(), names_max).expect("list");
                assert!(names.len() <= names_max && (names.len() == names_max || !more));
                all.extend((0..names.len()).map(|index| CString::from(names.get(index).0)));
                after = all.last().cloned();
                if !more {
                    break;
                }
            }
            assert!(
                all.is_sorted() && all.len() == 100,
                "windows of {names_max}: {all:?}"
            );
        }
    }

    #[test]
    fn paths_are_joined_with_one_slash() {
        for (path, expected) in [("", "a"), ("b", "b/a"), ("b/", "b/a"), ("/", "/a")] {
            assert_eq!(joined(path.as_bytes(), c"a"), expected.as_bytes());
        }
    }
}
