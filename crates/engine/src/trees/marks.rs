//! What marks say of the trees of a run: of the replica and of all that lies above it, of replicas
//! that lie within it, of an earlier copy, of the source.
//!
//! A mark speaks of everything below its directory. So a replica is in doubt since the earliest
//! moment that its own mark or one above it names, and a directory in it since an earlier one
//! still, if it has a mark of its own: somebody has made it the root of a run. Marks above are read
//! and left as they are, since this run sees only a part of what they speak of. Marks within are
//! settled where it has compared all of that.

use crate::clock::now;
use crate::monitor::Monitor;
use crate::options::Options;
use crate::trees::error::RunError;
use crate::trees::numbers::boot_of;
use driftless_model::{Stamp, moment};
use driftless_reconcile::{EVER, Mark, Scope, Unsettled};
use driftless_tree::{Dir, DirRef, Done, Endpoint, MarkText, random_id};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    pub fn read<D: Dir + ?Sized>(
        root: &Endpoint,
        dir: &Arc<D>,
        scope: Scope,
    ) -> Result<Marks, RunError> {
        Ok(Marks::of_texts(Marks::texts(root, dir)?, scope))
    }

    /// What those say that stand on a directory itself, if there are any.
    pub fn read_own<D: Dir + ?Sized>(dir: &Arc<D>, scope: Scope) -> Done<Option<Mark>> {
        Ok(told_as_one(&dir.marks(false)?, scope))
    }

    /// What they say, in their own words.
    ///
    /// # Errors
    /// Nobody knows.
    pub fn texts<D: Dir + ?Sized>(
        root: &Endpoint,
        dir: &Arc<D>,
    ) -> Result<Vec<MarkText>, RunError> {
        dir.marks(true).map_err(|fault| RunError::Unusable {
            path: root.to_string(),
            cause: fault.to_string(),
        })
    }

    /// The marks that say so. What cannot be read speaks of everything.
    pub fn of_texts(texts: Vec<MarkText>, scope: Scope) -> Marks {
        let (own, above): (Vec<MarkText>, Vec<MarkText>) =
            texts.into_iter().partition(|found| found.above.is_empty());
        let above = above.into_iter().map(|found| {
            (
                PathBuf::from(OsString::from_vec(found.above)),
                decoded(&found.text, scope),
            )
        });
        Marks {
            own: told_as_one(&own, scope),
            above: above.collect(),
        }
    }

    /// What the marks say of a single file or the like in that directory, which has no mark of its
    /// own.
    #[must_use]
    pub fn of_entry(mut self, entry: &Endpoint) -> Marks {
        let path = entry.plain_path();
        let dir = path.parent().unwrap_or(Path::new("/")).to_owned();
        self.above.extend(self.own.take().map(|mark| (dir, mark)));
        self
    }

    /// Where the earliest moment stands since which something is in doubt, and that; no path for
    /// the directory itself.
    pub(crate) fn doubt(&self, now: (u128, u64)) -> Option<(Option<&PathBuf>, Stamp)> {
        let since = |mark: &Mark| mark.suspect_since(now.0, now.1);
        let own = self
            .own
            .iter()
            .filter_map(|mark| Some((None, since(mark)?)));
        let above = self
            .above
            .iter()
            .filter_map(|(path, mark)| Some((Some(path), since(mark)?)));
        own.chain(above).min_by_key(|(_, since)| *since)
    }
}

/// What the marks that stand on one directory say together.
pub fn told_as_one(texts: &[MarkText], scope: Scope) -> Option<Mark> {
    let mut marks = texts.iter().map(|found| decoded(&found.text, scope));
    let mut mark = marks.next()?;
    marks.for_each(|other| mark.take_over(other));
    Some(mark)
}

/// Of a directory whose mark nobody can read, nothing is known.
fn decoded(text: &[u8], scope: Scope) -> Mark {
    let mut mark = Mark::decode(text).unwrap_or_else(|| {
        let Scope {
            source, entries, ..
        } = scope;
        Mark {
            unsettled: vec![Unsettled {
                since: EVER,
                run: 0,
                source,
                entries,
                boot: 0,
                is_left: false,
            }],
            ..Mark::new(random_id())
        }
    });
    let now = now();
    mark.doubt_what_is_after(Stamp {
        sec: now.sec + CLOCKS_SEC,
        ..now
    });
    mark
}

/// The earlier of two moments.
pub fn earliest(one: Option<Stamp>, other: Option<Stamp>) -> Option<Stamp> {
    one.into_iter().chain(other).min()
}

/// Since when changes below a directory may not be durable, as marks say that were met on the way
/// to it from the root.
#[derive(Debug, Clone, Copy, Default)]
pub struct Doubt {
    /// On the replica.
    pub replica: Option<Stamp>,
    /// In an earlier copy.
    pub basis: Option<Stamp>,
}

/// Says so if the source is a replica, or lies in one, that a run has not finished: its files are
/// what they are, and perhaps not what they shall be.
pub fn tell_source(options: &Options, (source, is_single): (&DirRef, bool), monitor: &dyn Monitor) {
    // Whatever else is wrong with the source, the run finds out. What is no mark of ours says
    // nothing of a source: it is a file of its user.
    let Ok(mut texts) = source.marks(true) else {
        return;
    };
    texts.retain(|found| Mark::decode(&found.text).is_some());
    let marks = Marks::of_texts(
        texts,
        Scope {
            source: 0,
            entries: 0,
            whole: false,
        },
    );
    let marks = if is_single {
        marks.of_entry(&options.source)
    } else {
        marks
    };
    let Some((above, since)) = marks.doubt((0, boot_of(&options.source))) else {
        return;
    };
    let path = above.map_or_else(
        || options.source.clone(),
        |path| options.source.at(path.clone()),
    );
    let when = if since == EVER {
        "an unknown moment".into()
    } else {
        moment(since.sec)
    };
    monitor.note(&format!("the source is itself an unfinished copy: \"{path}\": what was written there since {when} was not made durable"));
}

/// Since when changes of an earlier copy may not be durable; says so.
///
/// # Errors
/// Nobody knows.
pub fn doubt_of_basis(
    options: &Options,
    basis: &DirRef,
    monitor: &dyn Monitor,
) -> Result<Option<Stamp>, RunError> {
    let root = options.link_dest.as_ref().map_or_else(
        || options.replica.clone(),
        |path| options.replica.at(path.clone()),
    );
    let marks = Marks::read(
        &root,
        basis,
        Scope {
            source: 0,
            entries: 0,
            whole: false,
        },
    )?;
    let doubt = marks
        .doubt((0, boot_of(&options.replica)))
        .map(|(_, since)| since);
    if doubt.is_some() {
        tell_basis(&root.to_string(), monitor);
    }
    Ok(doubt)
}

/// Says that an earlier copy is not durable.
pub fn tell_basis(path: &str, monitor: &dyn Monitor) {
    monitor.note(&format!("the earlier copy \"{path}\" was not made durable: what was changed there since then is copied and not linked"));
}
