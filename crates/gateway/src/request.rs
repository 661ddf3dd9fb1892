//! The request of a user.

use crate::{CopyKeeping, ReleasePolicy};
use driftless_taskfile::ResultPattern;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Data sets of one job at most.
const SOURCES_MAX: usize = 1024;
/// Bytes of a path (limits.h, `PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;
/// Bytes of a list of nodes.
const NODES_BYTES_MAX: usize = 64 << 10;

/// A job that a user wants to run where its data is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// Absolute paths of files and directories, as bytes.
    #[serde(deserialize_with = "read_sources")]
    pub sources: Vec<Vec<u8>>,
    /// Nodes that get the data set, in the form of `--nodes`. All nodes on which the job may run if
    /// `None`.
    pub nodes: Option<String>,
    /// Policy of the release.
    pub policy: ReleasePolicy,
    /// Fate of the copies after the job.
    pub keeping: CopyKeeping,
    /// Pattern of the absolute path that receives the results of tasks, as bytes. `None` if tasks leave
    /// no results on the nodes.
    pub results: Option<Vec<u8>>,
}

impl JobRequest {
    /// Returns the sources as paths.
    pub fn source_paths(&self) -> Vec<PathBuf> {
        let path = |bytes: &Vec<u8>| PathBuf::from(OsString::from_vec(bytes.clone()));
        self.sources.iter().map(path).collect()
    }

    /// Checks what came from another process.
    ///
    /// # Errors
    /// Names the rule that the request breaks.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let is_path = |path: &Vec<u8>| {
            path.first() == Some(&b'/') && path.len() < PATH_BYTES_MAX && !path.contains(&0)
        };
        if self.sources.is_empty() {
            return Err("no data is named; name a file or directory with --data");
        }
        if self.sources.len() > SOURCES_MAX {
            return Err("more than 1024 files and directories; name a directory that holds them");
        }
        if !self.sources.iter().all(is_path) {
            return Err("a path of the data is not absolute, or too long");
        }
        let has_name = |path: &PathBuf| path.file_name().is_some();
        if !self.source_paths().iter().all(has_name) {
            return Err(
                "a path of the data has no last name, by which tasks find it; name what is in it",
            );
        }
        if let Some(pattern) = &self.results {
            let is_pattern = ResultPattern::parse(pattern).is_ok();
            if !is_path(pattern) || !is_pattern {
                return Err("the pattern of the results is no absolute path with %j, %t and %h");
            }
        }
        if self
            .nodes
            .as_ref()
            .is_some_and(|nodes| nodes.len() > NODES_BYTES_MAX)
        {
            return Err("the list of nodes is too long; use ranges such as n[1-128]");
        }
        Ok(())
    }

    /// Returns the form in the table of jobs.
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Fails for types without a known length alone, and the request has none.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Reads the form in the table of jobs.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}

/// Reads paths, and keeps one more than are allowed: a short message can have millions of empty ones.
fn read_sources<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<Vec<u8>>, D::Error> {
    struct Sources;

    impl<'a> Visitor<'a> for Sources {
        type Value = Vec<Vec<u8>>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("paths")
        }

        fn visit_seq<A: SeqAccess<'a>>(self, mut from: A) -> Result<Self::Value, A::Error> {
            let mut sources = Vec::new();
            while let Some(source) = from.next_element()? {
                if sources.len() <= SOURCES_MAX {
                    sources.push(source);
                }
            }
            Ok(sources)
        }
    }

    from.deserialize_seq(Sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surplus_paths_take_no_memory() {
        let many = JobRequest {
            sources: vec![Vec::new(); 1 << 20],
            ..JobRequest::default()
        };
        let read = JobRequest::decode(&many.encode()).expect("a request");
        assert_eq!(read.sources.len(), SOURCES_MAX + 1);
        assert!(read.check().is_err());
    }

    #[test]
    fn requests_are_checked() {
        let of = |sources: Vec<Vec<u8>>| JobRequest {
            sources,
            ..JobRequest::default()
        };
        let good = of(vec![b"/data/nr\xff".to_vec()]);
        assert_eq!(good.check(), Ok(()));
        assert_eq!(JobRequest::decode(&good.encode()), Some(good));
        for wrong in [
            of(Vec::new()),
            of(vec![b"data".to_vec()]),
            of(vec![b"/a\0b".to_vec()]),
            of(vec![b"/".to_vec()]),
            of(vec![b"/a/..".to_vec()]),
            of(vec![vec![b'/'; 4096]]),
            of(vec![b"/a".to_vec(); 1025]),
        ] {
            assert!(wrong.check().is_err());
        }
    }
}
