//! The root that other programs' absolute paths are told below.

use driftless_model::RelPath;

/// An absolute path, as bytes: a mount point, say, or the folder of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base(Vec<u8>);

impl Base {
    /// Slashes at the end make no difference.
    pub fn new(path: &[u8]) -> Base {
        let length = path.iter().rposition(|byte| *byte != b'/');
        Base(path[..length.map_or(0, |last| last + 1)].to_vec())
    }

    /// An absolute path, told from the base; `None` if it leads elsewhere.
    pub fn below(&self, path: &[u8]) -> Option<RelPath> {
        let rest = path.strip_prefix(&self.0[..])?;
        match rest.first() {
            None if !path.is_empty() => Some(RelPath::root()),
            Some(b'/') => {
                let names = rest
                    .iter()
                    .position(|byte| *byte != b'/')
                    .unwrap_or(rest.len());
                RelPath::parse(&rest[names..]).ok()
            }
            _ => None,
        }
    }

    /// The bytes, without a slash at the end; the file system's root is empty.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_the_base_are_told() {
        let cases: [(&[u8], &[u8], Option<&[u8]>); 13] = [
            (b"/tank", b"/tank", Some(b"")),
            (b"/tank/", b"/tank/", Some(b"")),
            (b"/tank", b"/tank/a b/\xff", Some(b"a b/\xff")),
            (b"/tank", b"/tank//a", Some(b"a")),
            (b"/tank", b"/tanks/a", None),
            (b"/tank", b"/tan", None),
            (b"/tank", b"tank/a", None),
            (b"/tank", b"/tank/../a", None),
            (b"/tank", b"", None),
            (b"/", b"/a", Some(b"a")),
            (b"/", b"/", Some(b"")),
            (b"/", b"", None),
            (b"/", b"a", None),
        ];
        for (base, path, expected) in cases {
            let found = Base::new(base).below(path);
            assert_eq!(
                found.as_ref().map(RelPath::as_bytes),
                expected,
                "{base:?} {path:?}"
            );
        }
    }
}
