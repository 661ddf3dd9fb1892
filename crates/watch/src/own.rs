//! What an agent keeps for itself, where that lies in one of its trees: it is not told, or the agent
//! would hear itself for ever.

use driftless_model::RelPath;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Paths of an agent's own, below each of its trees.
#[derive(Debug, Default)]
pub struct Own(Vec<Vec<RelPath>>);

impl Own {
    /// Those of `paths` that lie in trees. All are absolute and without symbolic links.
    pub fn of(trees: &[PathBuf], paths: &[PathBuf]) -> Own {
        let below = |tree: &PathBuf| {
            let below = paths.iter().filter_map(|path| path.strip_prefix(tree).ok());
            let parse = |below: &Path| RelPath::parse(below.as_os_str().as_bytes()).ok();
            below.filter_map(parse).collect()
        };
        Own(trees.iter().map(below).collect())
    }

    /// Whether what stands at a path of the tree of this number is the agent's own: one of its
    /// paths, below it, or beside it with a name that goes on with a dot.
    pub fn has(&self, tree: usize, path: &RelPath) -> bool {
        let own = self.0.get(tree).into_iter().flatten();
        let mut rests = own.filter_map(|own| path.as_bytes().strip_prefix(own.as_bytes()));
        rests.any(|rest| matches!(rest.first(), None | Some(b'/' | b'.')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_agents_own_is_told_from_what_stands_beside_it() {
        let paths = |all: &[&str]| -> Vec<PathBuf> { all.iter().map(PathBuf::from).collect() };
        let trees = paths(&["/data", "/", "/run"]);
        let own = Own::of(
            &trees,
            &paths(&["/data/run/map", "/data/spool", "/run/map"]),
        );
        for (tree, path, is_own) in [
            (0, "run/map", true),
            (0, "run/map.gaps-7", true),
            (0, "spool/1000", true),
            (0, "run/mapped", false),
            (0, "run", false),
            (0, "", false),
            (0, "a/run/map", false),
            (1, "data/spool/0", true),
            (1, "run/map", true),
            (1, "spool/0", false),
            (2, "map", true),
            (2, "spool", false),
        ] {
            let path = RelPath::parse(path.as_bytes()).unwrap();
            assert_eq!(own.has(tree, &path), is_own, "{tree}: {path}");
        }
    }
}
