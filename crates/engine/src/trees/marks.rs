//! What marks say of the trees of a run: of the replica and of all that lies above it, of replicas that lie within it, of an earlier copy,
//! of the source.
//!
//! A mark speaks of everything below its directory. So a replica is in doubt since the earliest moment that its own mark or one above it
//! names, and a directory in it since an earlier one still, if it has a mark of its own: somebody has made it the root of a run. Marks
//! above are read and left as they are, since this run sees only a part of what they speak of. Marks within are settled where it has
//! compared all of that.

use crate::monitor::Monitor;
use crate::options::Options;
use crate::sync::run::{Run, now};
use crate::sync::visit::Visit;
use crate::trees::changes::{boot_of, source_number};
use crate::trees::roots::RunError;
use driftless_lock::Mutex;
use driftless_model::{RelPath, Stamp, errno, escape, moment};
use driftless_reconcile::{EVER, Ending, Mark, Rules, Scope, Unsettled};
use driftless_tree::{DirRef, Done, Endpoint, Lock, MarkText, ROOT_MARK, Reach, random_id};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Replicas within a replica whose marks are settled by one run; more are settled by later ones.
const NESTED_MAX: usize = 1024;

/// How far the clocks of this machine and of a replica's file system are apart at most.
const CLOCKS_SEC: i64 = 60;

/// What the marks of a directory and of those above it say.
pub struct Marks {
    /// Its own, if it has any.
    pub own: Option<Mark>,
    /// The paths of those above it, and theirs.
    pub above: Vec<(PathBuf, Mark)>,
}

impl Marks {
    /// Reads them. What cannot be read speaks of everything.
    ///
    /// # Errors
    /// Nobody knows what they say.
    pub fn read(root: &Endpoint, dir: &DirRef, scope: Scope) -> Result<Marks, RunError> {
        Ok(Marks::of_texts(Marks::texts(root, dir)?, scope))
    }

    /// What those say that stand on a directory itself, if there are any.
    pub fn read_own(dir: &DirRef, scope: Scope) -> Done<Option<Mark>> {
        Ok(told_as_one(&dir.marks(false)?, scope))
    }

    /// What they say, in their own words.
    ///
    /// # Errors
    /// Nobody knows.
    pub fn texts(root: &Endpoint, dir: &DirRef) -> Result<Vec<MarkText>, RunError> {
        dir.marks(true).map_err(|fault| RunError::Unusable { path: root.to_string(), cause: fault.to_string() })
    }

    /// The marks that say so. What cannot be read speaks of everything.
    pub fn of_texts(texts: Vec<MarkText>, scope: Scope) -> Marks {
        let (own, above): (Vec<MarkText>, Vec<MarkText>) = texts.into_iter().partition(|found| found.above.is_empty());
        let above = above.into_iter().map(|found| (PathBuf::from(OsString::from_vec(found.above)), decoded(&found.text, scope)));
        Marks { own: told_as_one(&own, scope), above: above.collect() }
    }

    /// The same of a single file or the like in that directory, which has no mark of its own.
    #[must_use]
    pub fn of_entry(mut self, entry: &Endpoint) -> Marks {
        let path = entry.plain_path();
        let dir = path.parent().unwrap_or(Path::new("/")).to_owned();
        self.above.extend(self.own.take().map(|mark| (dir, mark)));
        self
    }

    /// Where the earliest moment stands since which something is in doubt, and that; no path for the directory itself.
    fn doubt(&self, now: (u128, u64)) -> Option<(Option<&PathBuf>, Stamp)> {
        let since = |mark: &Mark| mark.suspect_since(now.0, now.1);
        let own = self.own.iter().filter_map(|mark| Some((None, since(mark)?)));
        let above = self.above.iter().filter_map(|(path, mark)| Some((Some(path), since(mark)?)));
        own.chain(above).min_by_key(|(_, since)| *since)
    }
}

/// What the marks that stand on one directory say together.
fn told_as_one(texts: &[MarkText], scope: Scope) -> Option<Mark> {
    let mut marks = texts.iter().map(|found| decoded(&found.text, scope));
    let mut mark = marks.next()?;
    marks.for_each(|other| mark.take_over(other));
    Some(mark)
}

/// Of a directory whose mark nobody can read, nothing is known.
fn decoded(text: &[u8], scope: Scope) -> Mark {
    let mut mark = Mark::decode(text).unwrap_or_else(|| {
        let Scope { source, entries, .. } = scope;
        Mark { unsettled: vec![Unsettled { since: EVER, run: 0, source, entries, boot: 0, is_left: false }], ..Mark::new(random_id()) }
    });
    let now = now();
    mark.doubt_what_is_after(Stamp { sec: now.sec + CLOCKS_SEC, ..now });
    mark
}

/// The earlier of two moments.
pub fn earliest(one: Option<Stamp>, other: Option<Stamp>) -> Option<Stamp> {
    one.into_iter().chain(other).min()
}

/// Since when changes below a directory may not be durable, as marks say that were met on the way to it from the root.
#[derive(Debug, Clone, Copy, Default)]
pub struct Doubt {
    /// On the replica.
    pub replica: Option<Stamp>,
    /// In an earlier copy.
    pub basis: Option<Stamp>,
}

/// Says so if the source is a replica, or lies in one, that a run has not finished: its files are what they are, and perhaps not what they
/// shall be.
pub fn tell_source(options: &Options, (source, is_single): (&DirRef, bool), monitor: &dyn Monitor) {
    // Whatever else is wrong with the source, the run finds out. What is no mark of ours says nothing of a source: it is a file of its user.
    let Ok(mut texts) = source.marks(true) else { return };
    texts.retain(|found| Mark::decode(&found.text).is_some());
    let marks = Marks::of_texts(texts, Scope { source: 0, entries: 0, whole: false });
    let marks = if is_single { marks.of_entry(&options.source) } else { marks };
    let Some((above, since)) = marks.doubt((0, boot_of(&options.source))) else { return };
    let path = above.map_or_else(|| options.source.clone(), |path| options.source.at(path.clone()));
    let when = if since == EVER { "nobody knows when".into() } else { moment(since.sec) };
    monitor.note(&format!("the source is itself an unfinished copy: \"{path}\": what was written there since {when} was not made durable"));
}

/// Since when changes of an earlier copy may not be durable; says so.
///
/// # Errors
/// Nobody knows.
pub fn doubt_of_basis(options: &Options, basis: &DirRef, monitor: &dyn Monitor) -> Result<Option<Stamp>, RunError> {
    let root = options.link_dest.as_ref().map_or_else(|| options.replica.clone(), |path| options.replica.at(path.clone()));
    let marks = Marks::read(&root, basis, Scope { source: 0, entries: 0, whole: false })?;
    let doubt = marks.doubt((0, boot_of(&options.replica))).map(|(_, since)| since);
    if doubt.is_some() {
        tell_basis(&root.to_string(), monitor);
    }
    Ok(doubt)
}

fn tell_basis(path: &str, monitor: &dyn Monitor) {
    monitor.note(&format!("the earlier copy \"{path}\" was not made durable: what was changed there since then is copied and not linked"));
}

/// A replica within the replica, which an earlier run has left unfinished.
struct Nested {
    dir: DirRef,
    texts: Vec<MarkText>,
    mark: Mark,
}

/// Those that a run has met, by their paths.
#[derive(Default)]
pub struct NestedMarks(Mutex<BTreeMap<RelPath, Nested>>);

impl Run<'_> {
    /// How entries of a directory are compared.
    pub fn rules_in(&self, visit: &Visit) -> Rules {
        Rules { suspect_since: earliest(self.rules.suspect_since, visit.suspect_since()), ..self.rules }
    }

    /// How entries of its earlier copy are.
    pub fn basis_rules_in(&self, visit: &Visit) -> Rules {
        Rules { suspect_since: earliest(self.basis_since, visit.doubt.basis), checksum: false, ..self.rules }
    }

    /// Takes notice of the marks that a directory has, as its attributes show, which were read when it was entered.
    pub fn meet_marks(&self, visit: &mut Visit) -> Done {
        if let Some(replica) = visit.replica.clone().filter(|replica| !visit.is_made() && replica.is_marked()) {
            visit.doubt.replica = earliest(visit.doubt.replica, self.doubt_within(visit, &replica)?);
        }
        if let Some(basis) = visit.basis.clone() {
            match self.doubt_of_basis_dir(&basis) {
                Ok(None) => {}
                Ok(doubt) if visit.doubt.basis.is_some() || self.basis_since.is_some() => {
                    visit.doubt.basis = earliest(visit.doubt.basis, doubt)
                }
                Ok(doubt) => {
                    tell_basis(&escape(visit.path().as_bytes()), self.monitor);
                    visit.doubt.basis = doubt;
                }
                // What nobody knows is not linked to.
                Err(_) => visit.basis = None,
            }
        }
        Ok(())
    }

    /// Takes notice of a mark that is a file, if a directory has one, before entries of a part of its names are compared.
    pub fn look_for_mark(&self, visit: &Visit) -> Done {
        let Some(replica) = visit.replica.as_ref().filter(|_| visit.parent.is_some() && !visit.is_made()) else { return Ok(()) };
        match replica.look(ROOT_MARK) {
            Ok(_) => self.meet_listed_mark(visit, replica),
            Err(fault) if fault.is_missing() => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Takes notice of a mark that a listing of the replica has shown.
    pub fn meet_listed_mark(&self, visit: &Visit, replica: &DirRef) -> Done {
        if visit.parent.is_some()
            && let Some(since) = self.doubt_within(visit, replica)?
        {
            visit.doubt_listed(since);
        }
        Ok(())
    }

    fn doubt_within(&self, visit: &Visit, dir: &DirRef) -> Done<Option<Stamp>> {
        let (path, texts) = (visit.path(), dir.marks(false)?);
        let scope = Scope { source: source_number(self.options, &path), entries: 0, whole: true };
        let Some(mark) = told_as_one(&texts, scope).filter(|mark| !mark.unsettled.is_empty()) else { return Ok(None) };
        let since = mark.suspect_since(0, boot_of(&self.options.replica));
        let mut nested = self.nested.0.lock();
        if since.is_some() && nested.is_empty() {
            let path = escape(path.as_bytes());
            let what = "what was changed there since then is compared by content";
            self.monitor.note(&format!("an earlier run was not made durable, on \"{path}\" in the replica: {what}"));
        }
        if nested.len() < NESTED_MAX {
            nested.insert(path, Nested { dir: dir.clone(), texts, mark });
        }
        Ok(since)
    }

    fn doubt_of_basis_dir(&self, basis: &DirRef) -> Done<Option<Stamp>> {
        basis.xattrs(&self.options.keep)?;
        if !basis.is_marked() {
            return Ok(None);
        }
        let mark = told_as_one(&basis.marks(false)?, Scope { source: 0, entries: 0, whole: false });
        Ok(mark.and_then(|mark| mark.suspect_since(0, boot_of(&self.options.replica))))
    }

    /// The run is over, and has come to this end: what it has compared of replicas within the replica is in doubt no longer.
    pub fn settle_nested(&self, ending: &Ending) {
        let nested = std::mem::take(&mut *self.nested.0.lock());
        // What rules leave out is another thing in each directory.
        for (path, nested) in nested.into_iter().filter(|_| ending.scope.whole) {
            let scope = Scope { source: source_number(self.options, &path), ..ending.scope };
            let now = (0, boot_of(&self.options.replica));
            let mark = nested.mark.settled(None, now, &Ending { scope, ..*ending });
            if mark != nested.mark {
                let _it_says_more_than_it_must_if_that_fails = nested.write(&mark);
            }
        }
    }
}

impl Nested {
    /// Writes the mark, unless a run of another host is at work there, or was meanwhile.
    fn write(&self, mark: &Mark) -> Done {
        let lock = self.dir.lock(None, Reach::Within)?;
        if matches!(lock, Lock::Held(_) | Lock::Missing(errno::ENOENT)) && self.dir.marks(false)? == self.texts {
            self.dir.set_mark(&mark.encode(), false)?;
        }
        Ok(())
    }
}
