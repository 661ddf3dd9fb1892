//! Files that a command makes for the user, such as hash trees or a report: whole or not at all,
//! and never at the cost of something else of his that has the name.

use crate::own;
use driftless_model::{cause, quote};
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// What a product is, and how a file of its kind begins (upper and lower case alike).
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// The product in words, such as `a report`.
    pub what: &'static str,
    /// The first bytes of every file of this kind.
    pub begins: &'static [u8],
}

/// A product that is being written.
#[derive(Debug)]
pub struct Product {
    path: PathBuf,
    form: Form,
    out: Out,
    /// Device and inode of the earlier product that has the name.
    earlier: Option<(u64, u64)>,
}

#[derive(Debug)]
enum Out {
    /// A regular file grows beside its name and gets it when it is whole.
    Beside(NamedTempFile),
    /// A device or a pipe is written into.
    Into(File),
}

impl Product {
    /// Begins with a product at `path`. What stands there already must be of the same form, or
    /// empty, or no regular file.
    #[allow(
        clippy::disallowed_methods,
        reason = "the user's own file, no part of a replicated tree"
    )]
    pub fn begin(path: &Path, form: Form) -> Result<Self, String> {
        let fail = |error: &io::Error| {
            format!(
                "{}: cannot write {}: {}",
                quote(path),
                form.what,
                cause(error)
            )
        };
        match standing_at(path).map_err(|error| fail(&error))? {
            None => Self::beside(path, form, None).map_err(|error| fail(&error)),
            Some((_, meta)) if meta.is_dir() => Err(format!(
                "{}: cannot write {}: it is a directory",
                quote(path),
                form.what
            )),
            Some((path, meta)) if meta.is_file() => {
                if !holds(&path, form).map_err(|error| fail(&error))? {
                    let (path, what) = (quote(&path), form.what);
                    return Err(format!(
                        "{path}: exists, and does not hold {what}; remove it, or name another file"
                    ));
                }
                Self::beside(&path, form, Some(&meta)).map_err(|error| fail(&error))
            }
            Some((path, _)) => {
                let file = OpenOptions::new()
                    .write(true)
                    .open(&path)
                    .map_err(|error| fail(&error))?;
                Ok(Product {
                    path,
                    form,
                    out: Out::Into(file),
                    earlier: None,
                })
            }
        }
    }

    /// Opens a new file in the directory of `path`, which must be there, with the rights of the
    /// `earlier` one.
    fn beside(path: &Path, form: Form, earlier: Option<&Metadata>) -> io::Result<Self> {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        builder.prefix(".driftless-new-");
        let file = builder
            .permissions(Permissions::from_mode(own::file_mode()))
            .tempfile_in(folder)?;
        if let Some(earlier) = earlier {
            file.as_file()
                .set_permissions(Permissions::from_mode(earlier.mode() & 0o777))?;
        }
        Ok(Product {
            path: path.to_owned(),
            form,
            out: Out::Beside(file),
            earlier: earlier.map(id_of),
        })
    }

    /// Whether an earlier product of the same name would be replaced.
    pub fn replaces(&self) -> bool {
        self.earlier.is_some()
    }

    /// Device and inode of the files that are, or were, this product.
    pub fn ids(&self) -> Vec<(u64, u64)> {
        let growing = match &self.out {
            Out::Beside(file) => file.as_file().metadata().ok().map(|meta| id_of(&meta)),
            Out::Into(_) => None,
        };
        growing.into_iter().chain(self.earlier).collect()
    }

    /// Gives it its name, whole and durable.
    pub fn publish(self) -> Result<(), String> {
        let done = match self.out {
            Out::Into(_) => Ok(()),
            Out::Beside(file) => file.as_file().sync_all().and_then(|()| {
                file.persist(&self.path)
                    .map(drop)
                    .map_err(|error| error.error)
            }),
        };
        done.map_err(|error| unwritten(&self.path, self.form, &error))
    }

    /// What could not be done, in words.
    pub fn unwritten(&self, error: &io::Error) -> String {
        unwritten(&self.path, self.form, error)
    }

    /// Its path, in quotes.
    pub fn name(&self) -> String {
        quote(&self.path)
    }
}

impl Write for Product {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Out::Beside(file) => file.write(bytes),
            Out::Into(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Out::Beside(file) => file.flush(),
            Out::Into(file) => file.flush(),
        }
    }
}

/// Device and inode of what the user named.
#[allow(
    clippy::disallowed_methods,
    reason = "a path that the user named, no part of a replicated tree"
)]
pub fn id_at(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|meta| id_of(&meta))
}

fn id_of(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// What stands at a path, and where that is when symbolic links are followed.
#[allow(
    clippy::disallowed_methods,
    reason = "the user's own file, no part of a replicated tree"
)]
fn standing_at(path: &Path) -> io::Result<Option<(PathBuf, Metadata)>> {
    match std::fs::metadata(path) {
        Ok(meta) => Ok(Some((std::fs::canonicalize(path)?, meta))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a file is a product of this form, or empty.
#[allow(
    clippy::disallowed_methods,
    reason = "the user's own file, no part of a replicated tree"
)]
fn holds(path: &Path, form: Form) -> io::Result<bool> {
    let mut first = Vec::new();
    File::open(path)?
        .take(form.begins.len() as u64)
        .read_to_end(&mut first)?;
    Ok(first.is_empty() || first.eq_ignore_ascii_case(form.begins))
}

fn unwritten(path: &Path, form: Form, error: &io::Error) -> String {
    format!(
        "{}: cannot write {}: {}",
        quote(path),
        form.what,
        cause(error)
    )
}
