//! A job of a mirror from a configuration of `sr3`.
//!
//! Whoever changes over has configurations that say where the trees, the broker and the queue are.
//! What of them a job can say is written as TOML, with the keys of `docs/mirror.md`; all else is
//! told with its line, so that nobody believes it is still done. The caller reads the file; other
//! files that it includes are not read. No password comes into the job or into what is told.

mod broker;
mod fit;
mod given;
mod job;
mod lines;
mod options;
mod regex;
mod secret;
mod toml;
mod trees;
mod units;
mod variables;

use given::Given;
use std::fmt;

/// Bytes of a configuration at most.
pub const CONFIGURATION_BYTES_MAX: usize = 1 << 20;

/// A job, and what of the configuration is not in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The file of the job, as TOML. A key that it needs and the configuration does not say stands
    /// there as a comment.
    pub job: String,
    /// What was left out, in the order of the lines.
    pub left_out: Vec<LeftOut>,
}

/// Something that the job does not do as the configuration says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    /// The line, from 1; 0 for what holds in `sr3` without a line.
    pub line: usize,
    /// The option, as it is written there.
    pub option: String,
    /// Why, and what to do in its place.
    pub why: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(out, "{}: ", self.line)?;
        }
        write!(out, "{}: {}", self.option, self.why)
    }
}

/// Why there is no job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoJob {
    /// It is about no tree, or about a host that only its own protocol reaches.
    #[error("\"{0}\" is none of cpost, post, watch, subscribe, sarra")]
    Component(String),
    /// The configuration is longer than any is.
    #[error("it has more than {CONFIGURATION_BYTES_MAX} bytes")]
    TooLong,
}

/// A component of `sr3` that is about a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Component {
    /// It names files that its user or a preloaded library has written.
    CPost,
    /// It names the files of a tree once.
    Post,
    /// It names the files of a tree as they change.
    Watch,
    /// It fetches what messages name.
    Subscribe,
    /// It does so, and announces it in turn.
    Sarra,
}

impl Component {
    const ALL: [(&'static str, Component); 5] = [
        ("cpost", Component::CPost),
        ("post", Component::Post),
        ("watch", Component::Watch),
        ("subscribe", Component::Subscribe),
        ("sarra", Component::Sarra),
    ];

    /// Whether it follows messages.
    pub(crate) fn is_subscriber(self) -> bool {
        matches!(self, Component::Subscribe | Component::Sarra)
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        let named = Component::ALL.iter().find(|(_, one)| *one == self);
        named.map_or("", |(name, _)| name)
    }
}

/// Makes a job of a configuration: of which component it is, what it is called (its file's name
/// without `.conf`), and its text.
///
/// # Errors
/// The component is not one of those that are about a tree, or the text is too long.
pub fn import(component: &str, name: &str, text: &str) -> Result<Imported, NoJob> {
    let known = Component::ALL.iter().find(|(known, _)| *known == component);
    let Some((_, component)) = known else {
        let shown = crate::refused::shown(component.as_bytes());
        return Err(NoJob::Component(shown));
    };
    if text.len() > CONFIGURATION_BYTES_MAX {
        return Err(NoJob::TooLong);
    }
    let mut given = Given::read(*component, name, text);
    let job = job::write(&mut given);
    Ok(Imported {
        job,
        left_out: given.into_left_out(),
    })
}
