//! The configuration of an agent, as its TOML file says it.
//!
//! [`parse`] is pure: the caller reads the file. It tells all that is wrong with a file at once,
//! with line and column. `docs/watch.md` describes every key of [`KEYS`], and a test holds the two
//! against each other.

mod error;

use driftless_spool::Folder;
pub use error::{ConfigError, ConfigErrors};
use error::{Errors, kind};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The longest file in bytes. The caller reads no more than that and one byte.
pub const CONFIG_BYTES_MAX: usize = 1 << 20;
/// All keys: those of a table with its name before a dot.
pub const KEYS: [&str; 5] = ["name", "trees", "detect", "shim.map", "shim.spool"];
/// Trees of an agent.
const TREES_MAX: usize = 100;
/// Bytes of a name, so that it fits into the names of files.
const NAME_BYTES_MAX: usize = 64;
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
}

impl Config {
    /// Whether changes are heard of in this way.
    pub fn has(&self, detect: Detect) -> bool {
        self.detect.contains(&detect)
    }
}

/// Reads the text of the file at `place`.
///
/// # Errors
/// The text is no TOML, has keys that there are not, lacks some that there must be, or cannot be
/// meant.
pub fn parse(text: &str, place: &Path) -> Result<Config, ConfigErrors> {
    let mut errors = Errors::of(text);
    if text.len() > CONFIG_BYTES_MAX {
        errors.tell(0, "", format!("it has more than {CONFIG_BYTES_MAX} bytes"));
        return Err(errors.told(place));
    }
    let (root, wrong) = DeTable::parse_recoverable(text);
    for error in &wrong {
        let at = error.span().map_or(0, |span| span.start);
        errors.tell(at, "", error.message().to_owned());
    }
    if !wrong.is_empty() {
        return Err(errors.told(place));
    }
    let mut keys = Keys::of(root.into_inner(), &mut errors);
    let config = Config {
        name: name(&mut keys, place, &mut errors),
        trees: trees(&mut keys, &mut errors),
        detect: detect(&mut keys, &mut errors),
        shim: Folder {
            map: path(&mut keys, "shim.map", MAP, &mut errors),
            spool: path(&mut keys, "shim.spool", SPOOL, &mut errors),
        },
    };
    if let Some(at) = keys.shim.filter(|_| !config.has(Detect::Shim)) {
        errors.tell(at, "shim", "\"shim\" is not in detect".into());
    }
    match errors.is_none() {
        true => Ok(config),
        false => Err(errors.told(place)),
    }
}

/// The keys of a file that are known.
struct Keys<'t> {
    found: BTreeMap<&'static str, Spanned<DeValue<'t>>>,
    /// Where the table begins, in bytes.
    shim: Option<usize>,
}

impl<'t> Keys<'t> {
    fn of(root: DeTable<'t>, errors: &mut Errors) -> Keys<'t> {
        let mut keys = Keys {
            found: BTreeMap::new(),
            shim: None,
        };
        for (name, value) in root {
            let at = name.span().start;
            if name.get_ref() != "shim" {
                keys.keep("", name.get_ref(), (at, value), errors);
                continue;
            }
            keys.shim = Some(at);
            match value.into_inner() {
                DeValue::Table(table) => {
                    for (name, value) in table {
                        let at = name.span().start;
                        keys.keep("shim.", name.get_ref(), (at, value), errors);
                    }
                }
                other => {
                    let what = format!("it is a table, not {}: write [shim]", kind(&other));
                    errors.tell(at, "shim", what);
                }
            }
        }
        keys
    }

    fn keep(
        &mut self,
        table: &str,
        name: &str,
        (at, value): (usize, Spanned<DeValue<'t>>),
        errors: &mut Errors,
    ) {
        let full = format!("{table}{name}");
        match KEYS.into_iter().find(|key| **key == full) {
            Some(key) => drop(self.found.insert(key, value)),
            None => errors.tell_unknown(at, &full),
        }
    }

    /// A value, and where it stands.
    fn take(&mut self, key: &str) -> Option<(usize, DeValue<'t>)> {
        let value = self.found.remove(key)?;
        Some((value.span().start, value.into_inner()))
    }
}

/// The name that is written, or that of the file.
fn name(keys: &mut Keys<'_>, place: &Path, errors: &mut Errors) -> String {
    let stem = place.file_stem().unwrap_or_default().to_string_lossy();
    let (at, name) = match keys.take("name") {
        None => (0, stem.into_owned()),
        Some((at, DeValue::String(text))) => (at, text.into_owned()),
        Some((at, other)) => {
            errors.tell_kind(at, "name", "text in quotes", &other);
            return String::new();
        }
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_right = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_plain)
        && !name.starts_with(['.', '-']);
    if !is_right {
        let what = format!(
            "letters, digits, \"-\", \"_\" and \".\" are expected, {NAME_BYTES_MAX} at most, the first one a letter, a digit or \"_\""
        );
        errors.tell(at, "name", what);
    }
    name
}

fn trees(keys: &mut Keys<'_>, errors: &mut Errors) -> Vec<PathBuf> {
    let Some((at, value)) = keys.take("trees") else {
        let what =
            "it is missing: the trees whose changes are heard of, such as trees = [\"/projects\"]";
        errors.tell(0, "trees", what.into());
        return Vec::new();
    };
    let mut trees = Vec::new();
    for (at, value) in list(at, "trees", value, errors) {
        let Some(path) = absolute(at, "trees", value, errors) else {
            continue;
        };
        if trees.contains(&path) {
            errors.tell(at, "trees", "this tree stands here twice".into());
        }
        trees.push(path);
    }
    if trees.len() > TREES_MAX {
        errors.tell(
            at,
            "trees",
            format!("{TREES_MAX} trees at most are expected"),
        );
    }
    trees
}

fn detect(keys: &mut Keys<'_>, errors: &mut Errors) -> Vec<Detect> {
    let Some((at, value)) = keys.take("detect") else {
        return vec![Detect::Shim];
    };
    let mut all = Vec::new();
    for (at, value) in list(at, "detect", value, errors) {
        let DeValue::String(text) = &value else {
            errors.tell_kind(at, "detect", "\"shim\", \"fanotify\" or \"posts\"", &value);
            continue;
        };
        match Detect::ALL.into_iter().find(|one| one.name() == text) {
            Some(one) if all.contains(&one) => {
                errors.tell(at, "detect", format!("{text} stands here twice"));
            }
            Some(one) => all.push(one),
            None => errors.tell_choice(at, "detect", text, &Detect::ALL.map(Detect::name)),
        }
    }
    all
}

/// The elements of a list that is not empty.
fn list<'t>(
    at: usize,
    key: &str,
    value: DeValue<'t>,
    errors: &mut Errors,
) -> Vec<(usize, DeValue<'t>)> {
    match value {
        DeValue::Array(elements) if elements.is_empty() => {
            errors.tell(at, key, "it is empty: one at least is expected".into());
            Vec::new()
        }
        DeValue::Array(elements) => {
            let elements = elements.into_iter();
            elements
                .map(|one| (one.span().start, one.into_inner()))
                .collect()
        }
        other => {
            errors.tell_kind(at, key, "a list in [ ]", &other);
            Vec::new()
        }
    }
}

fn path(keys: &mut Keys<'_>, key: &str, default: &str, errors: &mut Errors) -> PathBuf {
    let typed = keys.take(key);
    let path = typed.and_then(|(at, value)| absolute(at, key, value, errors));
    path.unwrap_or_else(|| default.into())
}

fn absolute(at: usize, key: &str, value: DeValue<'_>, errors: &mut Errors) -> Option<PathBuf> {
    let text = match value {
        DeValue::String(text) => text,
        other => {
            errors.tell_kind(at, key, "an absolute path in quotes", &other);
            return None;
        }
    };
    let path = Path::new(&*text);
    let is_right = path.is_absolute() && !text.contains('\0');
    if !is_right {
        errors.tell(at, key, "an absolute path is expected".into());
    }
    is_right.then(|| path.components().collect())
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
                "1:1: trees: it is missing: the trees whose changes are heard of, such as trees = [\"/projects\"]",
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
            (
                "trees = []",
                "1:9: trees: it is empty: one at least is expected",
            ),
            (
                "trees = [\"a\"]",
                "1:10: trees: an absolute path is expected",
            ),
            (
                "trees = [\"/a\", \"/a/\"]",
                "1:16: trees: this tree stands here twice",
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
                "trees = [\"/a\"]\nname = \"../x\"",
                "2:8: name: letters, digits, \"-\", \"_\" and \".\" are expected, 64 at most, the first one a letter, a digit or \"_\"",
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
