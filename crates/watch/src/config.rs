//! The configuration of an agent, as its TOML file says it.
//!
//! [`parse`] is pure: the caller reads the file. It tells all that is wrong with a file at once,
//! with line and column. `docs/watch.md` describes every key of [`KEYS`], and a test holds the two
//! against each other.

use driftless_settings::{Document, FileErrors, Keys, forms, metrics, publish};
pub use driftless_settings::{FILE_BYTES_MAX, Publish};
use driftless_spool::Folder;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// All keys: those of a table with its name before a dot.
pub const KEYS: [&str; 13] = [
    "name",
    "trees",
    "detect",
    "shim.map",
    "shim.spool",
    "publish.broker",
    "publish.credentials",
    "publish.ca",
    "publish.exchange",
    "publish.topic_prefix",
    "publish.base_url",
    "metrics.listen",
    "metrics.public",
];
/// Trees of an agent.
const TREES_MAX: usize = 100;
/// Where shims look, unless they are told another place.
pub const MAP: &str = "/run/driftless/shim.map";
/// Where is written what the agent does not take.
pub const SPOOL: &str = "/var/spool/driftless/shim";

/// How changes are heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detect {
    /// Programs say it, through a library that is loaded into them.
    Shim,
    /// The kernel says it.
    Fanotify,
    /// Users say it (`driftless post`).
    Posts,
}

impl Detect {
    const ALL: [Detect; 3] = [Detect::Shim, Detect::Fanotify, Detect::Posts];

    /// How it is written.
    pub fn name(self) -> &'static str {
        match self {
            Detect::Shim => "shim",
            Detect::Fanotify => "fanotify",
            Detect::Posts => "posts",
        }
    }
}

/// What an agent is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// What it is called.
    pub name: String,
    /// Absolute paths of the trees.
    pub trees: Vec<PathBuf>,
    /// How changes are heard of.
    pub detect: Vec<Detect>,
    /// Where shims find what matters.
    pub shim: Folder,
    /// Where changes are announced, if they are.
    pub publish: Option<Publish>,
    /// Where metrics can be asked for, if they can.
    pub metrics: Option<SocketAddr>,
}

impl Config {
    /// Whether changes are heard of in this way.
    pub fn has(&self, detect: Detect) -> bool {
        self.detect.contains(&detect)
    }
}

/// The keys, with nothing that other programs call otherwise.
const AGENT: Keys = Keys {
    of_what: "a configuration",
    all: &KEYS,
    elsewhere: |_| None,
};

/// Reads the text of the file at `place`.
///
/// # Errors
/// The text is no TOML, has keys that there are not, lacks some that there must be, or cannot be
/// meant.
pub fn parse(text: &str, place: &Path) -> Result<Config, FileErrors> {
    driftless_settings::parse(text, place, AGENT, |from| read(from, place))
}

/// The values, right or wrong: what is wrong with them has been told to the document.
fn read(from: &mut Document, place: &Path) -> Config {
    let path = |from: &mut Document, key, default: &str| {
        let typed = from.take(key, forms::absolute_path);
        typed.unwrap_or_else(|| default.into())
    };
    let trees = trees(from);
    let several = (trees.len() > 1).then_some("trees");
    let config = Config {
        name: name(from, place),
        publish: publish::read(from, forms::absolute_path, several),
        metrics: metrics::read(from),
        trees,
        detect: detect(from),
        shim: Folder {
            map: path(from, "shim.map", MAP),
            spool: path(from, "shim.spool", SPOOL),
        },
    };
    if from.has_table("shim") && !config.has(Detect::Shim) {
        from.wrong_table("shim", "\"shim\" is not in detect");
    }
    config
}

/// The name that is written, or that of the file.
fn name(from: &mut Document, place: &Path) -> String {
    if let Some(name) = from.take("name", forms::plain_name) {
        return name;
    }
    let stem = place.file_stem().unwrap_or_default().to_string_lossy();
    if !from.has("name")
        && let Err(why) = forms::check_name(&stem)
    {
        from.wrong(
            "name",
            format!("it is missing, and the file name is not usable: {why}"),
        );
    }
    stem.into_owned()
}

fn trees(from: &mut Document) -> Vec<PathBuf> {
    const KEY: &str = "trees";
    let Some(trees) = from.take_list(KEY, forms::absolute_path) else {
        if !from.has(KEY) {
            from.wrong(
                KEY,
                "it is missing: the trees to watch, such as trees = [\"/projects\"]",
            );
        }
        return Vec::new();
    };
    if from.is_right_about(KEY) && !(1..=TREES_MAX).contains(&trees.len()) {
        from.wrong(KEY, format!("1 to {TREES_MAX} trees are expected"));
    }
    refuse_twice(from, KEY, &trees);
    trees
}

fn detect(from: &mut Document) -> Vec<Detect> {
    const KEY: &str = "detect";
    let all = Detect::ALL.map(|one| (one.name(), one));
    let Some(detect) = from.take_list(KEY, |value| forms::choice(value, &all)) else {
        return vec![Detect::Shim];
    };
    if from.is_right_about(KEY) && detect.is_empty() {
        from.wrong(KEY, "it is empty: one at least is expected");
    }
    refuse_twice(from, KEY, &detect);
    detect
}

/// Of a list in which nothing stands twice.
fn refuse_twice<T: PartialEq>(from: &mut Document, key: &'static str, all: &[T]) {
    // Where an element is wrong, the others have other places.
    let is_right = from.is_right_about(key);
    let again = (1..all.len()).filter(|index| all[..*index].contains(&all[*index]));
    for index in again.filter(|_| is_right) {
        from.wrong_element(key, index, "it is listed twice".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        parse(text, Path::new("/etc/driftless/node.toml"))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn what_is_not_written_is_as_it_is_documented() {
        let config = parse("trees = [\"/data/\"]", Path::new("x/node.toml")).unwrap();
        assert_eq!(config.name, "node");
        assert_eq!(config.trees, [Path::new("/data")]);
        assert_eq!(config.detect, [Detect::Shim]);
        assert_eq!(config.shim.map, Path::new(MAP));
        assert_eq!(config.shim.spool, Path::new(SPOOL));
        let text = "name = \"n\"\ntrees = [\"/a\", \"/b\"]\ndetect = [\"fanotify\", \"shim\"]\n\
            [shim]\nmap = \"/m\"\nspool = \"/s\"\n";
        let config = parse(text, Path::new("x.toml")).unwrap();
        assert_eq!(config.name, "n");
        assert!(config.has(Detect::Shim) && config.has(Detect::Fanotify));
        assert_eq!(
            (config.shim.map, config.shim.spool),
            ("/m".into(), "/s".into())
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place_and_what_is_possible() {
        for (text, line) in [
            (
                "",
                "1:1: trees: it is missing: the trees to watch, such as trees = [\"/projects\"]",
            ),
            (
                "tres = [\"/a\"]\ntrees = [\"/a\"]",
                "1:1: tres: no such key; did you mean trees?",
            ),
            (
                "trees = [\"/a\"]\n[shim]\nsocket = 1",
                "3:1: shim.socket: no such key; possible here: map, spool",
            ),
            (
                "trees = [\"/a\"]\nmap = \"/m\"",
                "2:1: map: no such key; map belongs in [shim]",
            ),
            (
                "trees = \"/a\"",
                "1:9: trees: a list in [ ] is expected, not text",
            ),
            ("trees = []", "1:9: trees: 1 to 100 trees are expected"),
            (
                "trees = [\"a\"]",
                "1:10: trees: an absolute path is expected",
            ),
            (
                "trees = [\"/a\", \"/a/\"]",
                "1:16: trees: it is listed twice",
            ),
            (
                "trees = [\"/a\"]\ndetect = [\"fanotfy\"]",
                "2:11: detect: \"fanotfy\" is none of shim, fanotify, posts; did you mean \"fanotify\"?",
            ),
            (
                "trees = [\"/a\"]\ndetect = [\"fanotify\"]\n[shim]\nmap = \"/m\"",
                "3:2: shim: \"shim\" is not in detect",
            ),
            (
                "trees = [\"/a\"]\n[metrics]\nlisten = \"0.0.0.0:9465\"",
                "3:10: metrics.listen: 0.0.0.0 is seen by other hosts: write 127.0.0.1, or public = true in [metrics]",
            ),
            (
                "trees = [\"/a\"]\nname = \"../x\"",
                "2:8: name: \"../x\" is no name: 1 to 64 letters (a to z), digits and -_. are, with no dot or hyphen at first",
            ),
        ] {
            assert_eq!(
                told(text),
                format!("/etc/driftless/node.toml:{line}"),
                "{text}"
            );
        }
        let told = told("trees = [\"/a\"\nx");
        assert!(told.starts_with("/etc/driftless/node.toml:2:1: "), "{told}");
    }
}
