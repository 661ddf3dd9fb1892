//! The side of a program that posts.

use super::{GREETING, POST_BYTES_MAX, Sort, written};
use driftless_model::cause;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::Shutdown;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A mirror that takes nothing for so long does not run well.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection to a mirror.
#[derive(Debug)]
pub struct Line {
    job: String,
    source: PathBuf,
    answers: BufReader<UnixStream>,
    posts: BufWriter<UnixStream>,
}

/// What became of posts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// So many were taken.
    pub taken: u64,
    /// So many were none, or of paths that are not below the source.
    pub refused: u64,
}

/// Why nothing can be posted.
#[derive(Debug, thiserror::Error)]
pub enum NoMirror {
    /// No mirror listens there.
    #[error("no mirror listens: {}", cause(.0))]
    Silent(io::Error),
    /// What listens is no mirror, or one that ended.
    #[error("the mirror takes no posts, or has ended: {}", cause(.0))]
    Strange(io::Error),
}

impl Line {
    /// Connects to the mirror that listens at `socket`.
    ///
    /// # Errors
    /// None does, or it does not say what a mirror says.
    pub fn connect(socket: &Path) -> Result<Line, NoMirror> {
        let stream = UnixStream::connect(socket).map_err(NoMirror::Silent)?;
        Line::greeted(stream).map_err(NoMirror::Strange)
    }

    fn greeted(stream: UnixStream) -> io::Result<Line> {
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let mut answers = BufReader::new(stream.try_clone()?);
        if word(&mut answers)? != GREETING {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let job = word(&mut answers)?;
        let source = word(&mut answers)?;
        Ok(Line {
            job: String::from_utf8_lossy(&job).into_owned(),
            source: OsString::from_vec(source).into(),
            answers,
            posts: BufWriter::new(stream),
        })
    }

    /// The job of the mirror.
    pub fn job(&self) -> &str {
        &self.job
    }

    /// Where its source is, without symbolic links.
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// Posts an absolute path; of what was moved, with its old one.
    ///
    /// # Errors
    /// The mirror has ended.
    pub fn post(&mut self, sort: Sort, path: &[u8], from: Option<&[u8]>) -> Result<(), NoMirror> {
        let post = written(sort, path, from);
        self.posts.write_all(&post).map_err(NoMirror::Strange)
    }

    /// Ends the posts, and waits until the mirror has heard them.
    ///
    /// # Errors
    /// The mirror has ended before.
    pub fn end(mut self) -> Result<Taken, NoMirror> {
        self.answer().map_err(NoMirror::Strange)
    }

    fn answer(&mut self) -> io::Result<Taken> {
        self.posts.flush()?;
        self.posts.get_ref().shutdown(Shutdown::Write)?;
        let mut number = || {
            let text = String::from_utf8(word(&mut self.answers)?).ok();
            let number = text.and_then(|text| text.parse().ok());
            number.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
        };
        Ok(Taken {
            taken: number()?,
            refused: number()?,
        })
    }
}

/// What stands before the next zero byte.
fn word(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut word = Vec::new();
    from.take(POST_BYTES_MAX as u64).read_until(0, &mut word)?;
    match word.pop() {
        Some(0) => Ok(word),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
