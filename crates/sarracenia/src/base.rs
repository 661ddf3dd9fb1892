//! What a tree is called in messages: a base URL, to which a path is appended with a slash.
//!
//! Its path is compared as it stands: nobody who reads version 03 decodes escapes in it. Nothing is
//! fetched from such a URL, so that it is a name and no more; a user or a password in it is not
//! looked at.

use crate::refused::{Refused, SCHEMES, shown};
use driftless_model::RelPath;

/// A base URL, such as `file:/src/tree` or `sftp://user@host/tree`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    text: String,
    scheme: &'static str,
    /// In lower case, with its port and without a user.
    host: String,
    path: RelPath,
}

impl BaseUrl {
    /// Reads a base URL.
    ///
    /// # Errors
    /// It is no URL, its scheme is not known, or its path goes up (`..`).
    pub fn parse(text: &str) -> Result<BaseUrl, Refused> {
        let no_url = || Refused::malformed("baseUrl", text, "a URL");
        let (scheme, rest) = text.split_once(':').ok_or_else(no_url)?;
        let lower = scheme.to_ascii_lowercase();
        let known = SCHEMES.into_iter().find(|known| *known == lower);
        let scheme = known.ok_or_else(|| Refused::Scheme(shown(scheme.as_bytes())))?;
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None if scheme == "file" => ("", rest),
            None => return Err(no_url()),
        };
        let host = authority.rsplit('@').next().unwrap_or_default();
        if scheme != "file" && host.is_empty() {
            return Err(no_url());
        }
        Ok(BaseUrl {
            text: text.to_owned(),
            scheme,
            host: host.to_ascii_lowercase(),
            path: RelPath::parse(path.trim_start_matches('/').as_bytes())
                .map_err(|_| Refused::path("baseUrl", text.as_bytes()))?,
        })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Without slashes at its end. Sarracenia replaces the path in it by a directory, and would
    /// lose the slash behind.
    pub(crate) fn trimmed(&self) -> BaseUrl {
        BaseUrl {
            text: self.text.trim_end_matches('/').to_owned(),
            ..self.clone()
        }
    }

    /// The absolute path of the tree on its host, below the root of that.
    pub fn path(&self) -> &RelPath {
        &self.path
    }

    /// Whether both name the same kind of access to the same host.
    pub(crate) fn is_beside(&self, other: &BaseUrl) -> bool {
        (self.scheme, &self.host) == (other.scheme, &other.host)
    }

    /// An absolute path, below the root of the host, told from the tree; `None` if it is elsewhere.
    pub(crate) fn below(&self, absolute: &RelPath) -> Option<RelPath> {
        let is_within = absolute.is_within(&self.path);
        is_within.then(|| absolute.rebased(&self.path, &RelPath::root()))
    }

    /// The absolute path of something below the tree, below the root of the host.
    pub(crate) fn absolute(&self, path: &RelPath) -> RelPath {
        path.rebased(&RelPath::root(), &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (&'static str, String, String) {
        let base = BaseUrl::parse(text).expect(text);
        (base.scheme, base.host.clone(), base.path.to_string())
    }

    #[test]
    fn trees_are_named_in_all_forms_that_are_in_use() {
        for (text, scheme, host, path) in [
            ("file:/src/tree", "file", "", "src/tree"),
            ("file:///src//tree/", "file", "", "src/tree"),
            ("file:", "file", "", "."),
            ("file:/", "file", "", "."),
            ("sftp://me@Host:22/x", "sftp", "host:22", "x"),
            ("sftp://me:pw@host", "sftp", "host", "."),
            ("HTTPS://host/~me/a%20b", "https", "host", "~me/a%20b"),
        ] {
            assert_eq!(parsed(text), (scheme, host.into(), path.into()), "{text}");
        }
    }

    #[test]
    fn another_scheme_is_named_and_what_is_no_url_is_refused() {
        let why = |text: &str| BaseUrl::parse(text).expect_err(text).to_string();
        assert_eq!(
            why("gopher://host/x"),
            "baseUrl: \"gopher\" is none of the schemes file, sftp, scp, ftp, ftps, http, https"
        );
        for text in [
            "",
            "/src",
            "sftp:/x",
            "http://",
            "sftp://me@/x",
            "file:/a/../b",
            "file:/\0",
        ] {
            assert!(why(text).starts_with("baseUrl: "), "{text}");
        }
    }

    #[test]
    fn what_lies_below_is_told_and_what_lies_beside_is_not() {
        let base = BaseUrl::parse("file:/src/tree").expect("a URL");
        let path = |text: &str| RelPath::parse(text.as_bytes()).expect("a path");
        for (absolute, below) in [
            ("src/tree/a/b", Some("a/b")),
            ("src/tree", Some("")),
            ("src/trees/a", None),
            ("src", None),
        ] {
            assert_eq!(base.below(&path(absolute)), below.map(path), "{absolute}");
        }
        assert_eq!(base.absolute(&path("a")), path("src/tree/a"));
        assert_eq!(base.absolute(&RelPath::root()), path("src/tree"));
        let whole = BaseUrl::parse("file:/").expect("a URL");
        assert_eq!(whole.absolute(&path("a")), path("a"));
        assert_eq!(whole.below(&path("a")), Some(path("a")));
    }
}
