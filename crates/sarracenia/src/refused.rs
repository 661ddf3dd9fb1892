//! Why a message is not used.

use driftless_model::escape;

/// The schemes by which trees are named.
pub(crate) const SCHEMES: [&str; 7] = ["file", "sftp", "scp", "ftp", "ftps", "http", "https"];

/// Characters that are shown of what others wrote.
const SHOWN_CHARS_MAX: usize = 80;

/// Why bytes are no message that can be used. What others wrote is shown escaped, and in part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is longer than any message is.
    #[error("it has {bytes} bytes, more than {max}")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The most that is read, in bytes.
        max: usize,
    },
    /// It is no JSON object (version 03).
    #[error("it is no JSON object: {0}")]
    Json(String),
    /// It is not a time, a URL and a path with spaces between them (version 02).
    #[error("it is not a time, a URL and a path")]
    Text,
    /// A field that every message has is not there, or is no text.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A field cannot be read.
    #[error("{field}: \"{shown}\" is not {expected}")]
    Malformed {
        /// Which field.
        field: &'static str,
        /// What stands there.
        shown: String,
        /// What is expected.
        expected: &'static str,
    },
    /// The base URL has a scheme by which no tree is named.
    #[error("baseUrl: \"{0}\" is none of the schemes {known}", known = SCHEMES.join(", "))]
    Scheme(String),
    /// A path leads out of the tree, or cannot be one.
    #[error("{field}: \"{shown}\" is no path below the base URL")]
    Path {
        /// Which field.
        field: &'static str,
        /// The path.
        shown: String,
    },
}

impl Refused {
    pub(crate) fn malformed(field: &'static str, text: &str, expected: &'static str) -> Refused {
        Refused::Malformed {
            field,
            shown: shown(text.as_bytes()),
            expected,
        }
    }

    pub(crate) fn path(field: &'static str, path: &[u8]) -> Refused {
        Refused::Path {
            field,
            shown: shown(path),
        }
    }
}

/// The beginning of what others wrote.
pub(crate) fn shown(bytes: &[u8]) -> String {
    // A character has four bytes at most.
    let start = &bytes[..bytes.len().min(4 * SHOWN_CHARS_MAX)];
    escape(start).chars().take(SHOWN_CHARS_MAX).collect()
}
