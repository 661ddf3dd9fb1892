//! The sources of a set: paths of this host, or trees that the caller has opened.
//!
//! Only paths are checked against the directory of a store. An open tree may belong to another user
//! or to another host: whatever it returns is data, which the catalogue bounds.

use crate::cursor::TopPlace;
use crate::error::{Error, Result};
use crate::place::is_private_name;
use driftless_model::{Act, Kind, Side, errno, is_reserved_name};
use driftless_tree::{DirRef, HandlePool, Host, Names, Place, RootError, locate};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Open directories of a source at most.
const OPEN_DIRS_MAX: usize = 512;

/// The sources of a set.
#[derive(Clone)]
pub enum CastSources {
    /// Paths of this host. Each appears under its last name in the place of a copy.
    Paths(Vec<PathBuf>),
    /// Trees that the caller has opened.
    Open(Vec<OpenSource>),
}

/// A tree that the caller has opened.
#[derive(Clone)]
pub struct OpenSource {
    /// Its name in the place of a copy.
    pub name: Vec<u8>,
    /// The tree.
    pub top: TopPlace<DirRef>,
    /// Its host, whose connection ends with the last owner of this value.
    _host: Option<Arc<dyn Host>>,
}

impl OpenSource {
    /// Returns a source with this name.
    pub fn new(name: Vec<u8>, top: TopPlace<DirRef>) -> OpenSource {
        let _host = None;
        OpenSource { name, top, _host }
    }

    /// Opens a path of another host. The source has the last name of the path.
    ///
    /// # Errors
    /// The host does not open the path; the path leads to nothing or to an empty directory;
    /// [`Error::SourceName`] if the path has no last name.
    pub fn at(host: &Arc<dyn Host>, path: &Path) -> Result<OpenSource> {
        let place = host.locate(path, Side::Source)?;
        if let Place::Missing { .. } = place {
            return Err(RootError::from_errno(path, Act::Find, errno::ENOENT).into());
        }
        Ok(OpenSource {
            _host: Some(host.clone()),
            ..OpenSource::found(path, place)?
        })
    }

    /// Returns the source that was found at a path.
    fn found(path: &Path, place: Place<DirRef>) -> Result<OpenSource> {
        refuse_hollow(path, &place)?;
        let name = match path.file_name() {
            Some(name) => Some(name.as_bytes().to_vec()),
            None => last_name(&place)?,
        };
        let name = name.ok_or_else(|| Error::SourceName {
            name: path.as_os_str().as_bytes().to_vec(),
            why: "it has no last name",
        })?;
        let top = match place {
            Place::Dir(dir) => TopPlace::Whole(dir),
            Place::Entry { parent, name, .. } | Place::Missing { parent, name } => {
                TopPlace::Within(parent, name)
            }
        };
        Ok(OpenSource::new(name, top))
    }

    fn check_name(&self) -> Result<()> {
        let name = self.name.clone();
        let c_name = CString::new(name.clone()).unwrap_or_default();
        let why = "driftless uses such names itself";
        match is_reserved_name(&name) || is_private_name(&c_name) {
            true => Err(Error::SourceName { name, why }),
            false => Ok(()),
        }
    }

    fn refuse_empty(&self) -> Result<()> {
        match &self.top {
            TopPlace::Whole(dir) if has_no_entry(dir)? => Err(Error::HollowSource {
                path: PathBuf::from(OsStr::from_bytes(&self.name)),
                why: EMPTY,
            }),
            _ => Ok(()),
        }
    }
}

const EMPTY: &str = "the directory is empty";

impl From<Vec<PathBuf>> for CastSources {
    fn from(paths: Vec<PathBuf>) -> CastSources {
        CastSources::Paths(paths)
    }
}

impl CastSources {
    /// Returns whether there is no source.
    pub fn is_empty(&self) -> bool {
        match self {
            CastSources::Paths(paths) => paths.is_empty(),
            CastSources::Open(sources) => sources.is_empty(),
        }
    }

    /// Returns the paths of this host. Open trees have none.
    pub fn paths(&self) -> &[PathBuf] {
        match self {
            CastSources::Paths(paths) => paths,
            CastSources::Open(_) => &[],
        }
    }

    /// Opens the sources, in the order of their names.
    pub(crate) fn open(&self) -> Result<Vec<OpenSource>> {
        let mut found = match self {
            CastSources::Paths(paths) => open_paths(paths)?,
            CastSources::Open(sources) => {
                sources.iter().try_for_each(OpenSource::refuse_empty)?;
                sources.clone()
            }
        };
        found.iter().try_for_each(OpenSource::check_name)?;
        found.sort_by(|a, b| a.name.cmp(&b.name));
        match found.windows(2).find(|pair| pair[0].name == pair[1].name) {
            None => Ok(found),
            Some(pair) => Err(Error::SourceName {
                name: pair[0].name.clone(),
                why: "another source has the same name",
            }),
        }
    }
}

fn open_paths(paths: &[PathBuf]) -> Result<Vec<OpenSource>> {
    let pool = HandlePool::new(OPEN_DIRS_MAX);
    let open = |path: &PathBuf| OpenSource::found(path, locate(path, Side::Source, &pool)?);
    paths.iter().map(open).collect()
}

/// Refuses a source without content: a directory without entries, a link that leads to nothing, or a FIFO,
/// socket or device.
fn refuse_hollow(path: &Path, place: &Place<DirRef>) -> Result<()> {
    let is_special = |kind: Kind| !matches!(kind, Kind::File | Kind::Dir | Kind::Symlink);
    let why = match place {
        Place::Entry { meta, .. } if is_special(meta.kind) => {
            return Err(Error::SourceKind(path.to_owned()));
        }
        Place::Entry { meta, .. } if meta.kind == Kind::Symlink => {
            "the symbolic link leads to nothing"
        }
        Place::Dir(dir) if has_no_entry(dir)? => EMPTY,
        _ => return Ok(()),
    };
    let path = path.to_owned();
    Err(Error::HollowSource { path, why })
}

fn has_no_entry(dir: &DirRef) -> Result<bool> {
    let mut names = Names::default();
    let filled = dir
        .list()
        .and_then(|mut listing| listing.fill(&mut names, 1));
    filled.map_err(|fault| Error::Entry {
        path: b".".to_vec(),
        fault,
    })?;
    Ok(names.is_empty())
}

fn last_name(place: &Place<DirRef>) -> Result<Option<Vec<u8>>> {
    let Place::Dir(dir) = place else {
        return Ok(None);
    };
    let above = dir.lineage().map_err(|fault| Error::Entry {
        path: b".".to_vec(),
        fault,
    })?;
    let own = above.first().and_then(|own| own.name.as_ref());
    Ok(own.map(|name| name.as_bytes().to_vec()))
}
